"""``Run``, which ``almakit.open`` and ``almakit.evaluate`` return, and the files of a report. No torch here."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

from ..errors import BadInput, optional
from ..runs.export import flat_rows
from ..runs.failures import writable
from ..runs.folder import SUMMARY, RunFolder
from ..runs.radii import Radii
from ..runs.store import files
from . import figures, page, subjects, tables
from .sections import Section, sections_of
from .subjects import Subject
from .summary import FORMAT, resisting


class Run(RunFolder):
    """A run folder with its numbers. ``Run(folder)`` opens any run folder, finished or not. Values are cached once
    read."""

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The run's numbers, as in ``summary.json``."""
        return subjects.summarise(self)

    def table(self, format: str = "text", verbose: bool = False) -> str:
        """The numbers as a table.

        Args:
            format: ``text``, ``markdown``, ``csv`` or ``latex`` (needs the packages booktabs and graphicx).
            verbose: whether a text has all columns and explains them; the other formats always have them.
        """
        if format not in tables.FORMATS:
            raise BadInput(f"format={format!r} is no format of tables; choose one of {', '.join(tables.FORMATS)}.")
        if format == "text":
            return tables.run_text(self.summary, verbose)
        return tables.written({str(self.meta.get("model")): tables.tables_of_run(self.summary)}, format)

    def robust_accuracy(
        self, eps: float | str | Mapping[str | float, float | str], attack: int | str | None = None
    ) -> float:
        """The share of images that resist every attack, or one attack, within a radius.

        Args:
            eps: a radius in the distance of the run's attacks, such as 0.5 or "8/255", or radii by distance,
                ``{"linf": 8/255, "l2": 0.5}``; an image then has to be robust in each of them.
            attack: position, text or name of an attack; default: all attacks.

        Returns:
            The share of the finished images; NaN if no attack gives a result at a radius.
        """
        return resisting(self, eps, self.attacks if attack is None else [self.info(attack)])

    def to_pandas(self) -> Any:
        """A pandas frame with one row per attack, image and target. ``verified`` is the verified distance, infinite if
        the attack failed."""
        pandas = optional("pandas", "to_pandas needs pandas: pip install pandas.")
        rows = [
            row | {"distance": record.distance, "verified": record.verified}
            for row, record in zip(flat_rows(self), self.records, strict=True)
        ]
        return pandas.DataFrame(rows)

    def report(self, out: str | Path | None = None, figures: bool = True) -> Path:
        """Write the report, as ``almakit report`` does.

        Args:
            out: folder of the report; default: ``report`` in the run folder.
            figures: whether to draw the figures with matplotlib.

        Returns:
            The path of the page.
        """
        return write_report([self.folder], self.folder / "report" if out is None else out, with_figures=figures)[0]

    def _repr_html_(self) -> str:
        """For notebooks: the model, the data and a line for each attack."""
        what = f"{self.meta.get('model')} on {self.meta.get('data')}, {escape(str(self.folder))}"
        return f"<p>{escape(what)}</p>" + "".join(table.html() for table in tables.tables_of_run(self.summary))


def finish(out: Path, keep: tempfile.TemporaryDirectory[str] | None = None) -> Run:
    """Write ``summary.json`` into the run folder ``out`` and return its ``Run``."""
    run = Run(out, keep)
    text = json.dumps(run.summary, indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    files.write_bytes(out / SUMMARY, writable(text).encode())
    return run


def write_report(
    folders: Sequence[str | Path],
    out: str | Path,
    images: int | None = None,
    with_figures: bool = True,
    epsilons: Radii = (),
    names: Sequence[str] = (),
) -> list[Path]:
    """Write the page, tables, figures and summary of run folders into ``out``.

    Args:
        folders: run folders; those with the same model and images are combined.
        out: folder to write into.
        images: largest number of images of each model whose pictures are on the page, by default 60 or fewer.
        with_figures: whether to draw the figures with matplotlib.
        epsilons: radii to give robust accuracy at, by default those of the runs.
        names: names of the models, in their order.

    Returns:
        The files, the page first.
    """
    found = subjects.load(folders, epsilons, names)
    made = sections_of(found)
    place = Path(out)
    written_tables = tables.tables_of(found)
    texts = {
        "index.html": page.render(found, images, sections=made),
        "tables.md": tables.written(written_tables, "markdown"),
        "tables.csv": tables.written(written_tables, "csv"),
        "tables.tex": tables.written(written_tables, "latex"),
        "summary.json": json.dumps(report_summary(found, made), indent=1, ensure_ascii=False, allow_nan=False) + "\n",
    }
    for name, text in texts.items():
        files.write_bytes(place / name, writable(text).encode())
    written = [place / name for name in texts]
    if with_figures:
        written += figures.draw_curves(found, place)
    return written


def report_summary(found: Sequence[Subject], made: Sequence[Section] = ()) -> dict[str, Any]:
    """The numbers of all runs and of the sections of the page."""
    runs = [
        part | {"folder": run.folder.name}
        for subject in found
        for run, part in zip(subject.runs, subject.summaries, strict=True)
    ]
    worst = [{"model": subject.name} | worst for subject in found for worst in subject.worst_cases]
    shown = {section.key: [card.json() for card in section.cards] for section in made}
    return {"format": FORMAT, "radii": found[0].radii, "worst_case": worst, "runs": runs, "sections": shown}
