"""A run with its numbers: what ``almakit.open`` and ``almakit.evaluate`` return."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

from ..errors import optional
from ..runs.export.table import flat_rows
from ..runs.failures import writable
from ..runs.folder import SUMMARY, RunFolder
from ..runs.store.files import write_bytes
from .summary import summarise
from .tables import run_table
from .worst import resisting
from .write import write_report


class Run(RunFolder):
    """What a run left behind, with its numbers. ``Run(folder)`` opens any run folder, finished or not; what has been
    read once is kept."""

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The run's numbers, as in ``summary.json``."""
        return summarise(self)

    def table(self) -> str:
        """The numbers as text."""
        return run_table(self.summary)

    def robust_accuracy(
        self, eps: float | str | Mapping[str | float, float | str], attack: int | str | None = None
    ) -> float:
        """The share of images that resist every attack within ``eps``, or ``attack`` alone: "all attacks" and an
        attack's own row in the tables.

        ``eps`` is a radius in the distance of the run's attacks, or radii by distance, ``{"linf": 8/255, "l2": 0.5}``:
        then an image counts as robust where it is in each of them. Images that no attack has come to yet are left out.
        NaN where no attack says anything about a radius.
        """
        return resisting(self, eps, self.attacks if attack is None else [self.info(attack)])

    def to_pandas(self) -> Any:
        """A pandas frame with one row per attack, image and target; ``verified`` is the distance that counts, infinite
        where nothing was found."""
        pandas = optional("pandas", "to_pandas needs pandas: pip install pandas.")
        rows = [
            row | {"distance": record.distance, "verified": record.verified}
            for row, record in zip(flat_rows(self), self.records, strict=True)
        ]
        return pandas.DataFrame(rows)

    def report(self, out: str | Path | None = None, figures: bool = True) -> Path:
        """Writes the report, as ``almakit report`` does, into ``out`` (``report`` in the run folder by default);
        returns the page."""
        return write_report([self.folder], self.folder / "report" if out is None else out, with_figures=figures)[0]

    def _repr_html_(self) -> str:
        """For notebooks: the model, the data and a line for each attack."""

        def shown(value: float | None, form: str) -> str:
            return "∞" if value is None else format(value, form)

        rows = "".join(
            f"<tr><td>{escape(part['attack'])}</td><td>{escape(part['distance'])}</td><td>{part['images']}</td>"
            f"<td>{shown(part['success_rate']['value'], '.1%')}</td>"
            f"<td>{shown(part['median_all']['value'], '.4g')}</td>"
            f"<td>{shown(part['forwards']['mean'], '.1f')}</td></tr>"
            for part in self.summary["attacks"]
        )
        head = "".join(f"<th>{name}</th>" for name in ("attack", "distance", "images", "success", "median", "forwards"))
        what = f"{self.meta.get('model')} on {self.meta.get('data')}, {escape(str(self.folder))}"
        return f"<p>{escape(what)}</p><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def finish(out: Path, keep: tempfile.TemporaryDirectory[str] | None = None) -> Run:
    """Writes ``summary.json`` and opens the run."""
    run = Run(out, keep)
    text = json.dumps(run.summary, indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    write_bytes(out / SUMMARY, writable(text).encode())
    return run
