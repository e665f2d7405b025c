"""``almakit board``: the leaderboard's page, a page for each model and board.json, in one folder that needs no server.
No torch here."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..radius import same
from ..runs.failures import writable
from ..runs.radii import Radii
from ..runs.store import files
from . import board, html
from .payload import Limits

SCRIPTS = ("core", "theme", "board")
FEW = Limits(12, 2.0)
"""Pictures on a model's page: a board may have many."""
PAGE = re.compile(r"models/[a-z0-9-]+\.html")


def write_board(
    folders: Sequence[str | Path], out: str | Path, epsilons: Radii = (), limits: Limits = FEW
) -> tuple[board.Board, list[Path]]:
    """Reads the run folders and writes ``index.html``, ``models/*.html`` and ``board.json`` into ``out``; returns the
    board and what was written.

    Pages of models that an earlier board here had, and this one has not, are taken away.
    """
    place = Path(out)
    found = board.read([folder for folder in folders if Path(folder).resolve() != place.resolve()], epsilons)
    numbers = board.numbers(found)
    texts = {
        model["page"]: html.render([subject], limits, board="../index.html")
        for table, part in zip(found.tables, numbers["tables"], strict=True)
        for subject, model in zip(table.subjects, part["models"], strict=True)
    }
    before = _pages(place)
    texts["index.html"] = render(found)
    texts["board.json"] = json.dumps(numbers, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    for name, text in texts.items():
        files.write_bytes(files.inside(place, name), writable(text).encode())
    for name in before - texts.keys():
        files.inside(place, name).unlink(missing_ok=True)
    return found, [
        place / name for name in ("index.html", "board.json", *(name for name in texts if name.startswith("models/")))
    ]


def _pages(place: Path) -> set[str]:
    """The model pages of the board that lies there already, as its board.json names them."""
    try:
        known = json.loads((place / "board.json").read_text(encoding="utf-8"))
        return {
            model["page"] for table in known["tables"] for model in table["models"] if PAGE.fullmatch(model["page"])
        }
    except (OSError, ValueError, TypeError, KeyError):
        return set()


def render(found: board.Board) -> str:
    """The leaderboard's page; all names in it come from outside and are only ever used as text."""
    data = board.numbers(found, curves=True)
    runs = [run for table in data["tables"] for run in table["runs"]]
    return writable(
        html.template("board.html.j2").render(
            **html.frame(SCRIPTS),
            data=html.embedded(data | {"distances": [], "groups": [], "watch": None}),
            board=data,
            counts={
                "models": len({model["name"] for table in data["tables"] for model in table["models"]}),
                "folders": len(runs),
                "attacks": len(
                    {head["text"] for table in data["tables"] for block in table["blocks"] for head in block["attacks"]}
                ),
            },
            unfinished=[run for run in runs if not run["complete"]],
            first=_first,
        )
    )


def _first(cell: dict[str, Any] | None, block: dict[str, Any]) -> dict[str, Any] | None:
    """What a cell shows before anything is chosen: robust accuracy at the block's first radius."""
    if cell is None or not block["radii"]:
        return None
    at = block["radii"][0]["epsilon"]
    return next((row for row in cell["robust_accuracy"] if same(row["epsilon"], at) and row["value"] is not None), None)
