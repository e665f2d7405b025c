"""`almakit reproduce`: runs the paper's grid cell by cell and reports the results."""

from __future__ import annotations

import base64
from pathlib import Path

from .. import api
from ..errors import BadInput, Unavailable
from ..report.page import template
from ..report.palette import css
from ..report.run import write_report
from ..report.table import comma_separated, latex
from ..runs.failures import SpecChanged
from ..runs.plan import Request
from ..runs.progress import Progress
from ..runs.store import files
from . import tables
from .entries import Collected, collect, to_json
from .grid import SAMPLES, name_of
from .plan import Plan


def run(made: Plan, progress: Progress | None = None, workers: int | str = "auto") -> None:
    """Run every cell of the plan in its own folder; finished cells are not repeated.

    A cell that cannot be run (missing weights of LPIPS, a folder with other settings) is left out with a message.

    Args:
        made: the plan.
        progress: receives the progress.
        workers: number of processes that share a cell's chunks, or "auto".
    """
    show, looked_at = progress or Progress(), set[str]()
    for number, task in enumerate(list(made.tasks), 1):
        show.note(
            f"[{number}/{len(made.tasks)}] {task.network.label}: {name_of(task.cell.distance)}, {task.cell.title}, "
            f"{task.spec.limit} images"
        )
        preflight = task.network.name not in looked_at
        looked_at.add(task.network.name)
        try:
            request = Request(
                task.spec, task.folder, preflight=preflight, progress=show, workers=workers, certify=task.certify
            )
            api.run(request)
        except Unavailable as error:
            made.skipped.append(f"{task.title} is left out: {error}")
        except SpecChanged as error:
            made.skipped.append(f"{task.title} is not resumed, and its folder is left as it is: {error}")


def gather(made: Plan) -> Collected:
    """All cells in the output folder, of this command and of others."""
    found = collect(made.settings.out, made.settings.dataset, [task.network.name for task in made.tasks])
    if not found.entries:
        raise BadInput(f"nothing in {made.settings.out} has been run yet.")
    return found


def report(made: Plan, found: Collected, figures: bool = True) -> list[Path]:
    """Write ``report/`` in the output folder: the paper's tables with almakit's numbers and the report of all
    runs. Returns the files, the page of tables first."""
    out, entries = made.settings.out / "report", found.entries
    most = max(found.folders.values())
    complete = [folder for folder, count in found.folders.items() if count == most]
    fewer = [folder for folder, count in found.folders.items() if count != most]
    written = write_report(complete, out, with_figures=figures)
    written += write_report(fewer, out / "costly", with_figures=figures) if fewer else []
    means, single = tables.geometric(entries), tables.by_model(entries)
    compared = "and almakit's" if any(entry.paper for entry in entries) else "its attacks on other networks"
    head = f"The paper's {made.settings.dataset} tables, {compared}"
    notes = [
        "Success and median are over all images: already wrong counts 0, nothing found infinite; – is a median that is "
        "not defined, because fewer than half of the images were fooled. Forwards and backwards are per attacked "
        f"image. Ratio is our median over the paper's, which is of {SAMPLES[made.settings.dataset]} images.",
        *(f"- {line}" for line in (*made.skipped, *found.unfinished)),
    ]
    page = template("paper.html.j2").render(
        css=css(),
        head=head,
        notes=notes,
        costly=bool(fewer),
        parts=[("Geometric means", means), ("Model by model", single)],
        curves=[base64.b64encode(path.read_bytes()).decode() for path in written if path.name == "curves.png"],
    )
    texts = {
        "paper.html": page,
        "paper.md": "\n\n".join([f"# {head}", "\n".join(notes), tables.markdown([*means, *single])]) + "\n",
        "paper.csv": comma_separated([*means, *single]),
        "paper.tex": latex([*single, *means]),
        "reproduce.json": to_json(entries, found.environment, made.skipped),
    }
    for name, text in texts.items():
        files.write_bytes(out / name, text.encode("utf-8"))
    return [*(out / name for name in texts), *written]
