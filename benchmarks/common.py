"""What the benchmarks share: our attack and a peer judged alike on the same images, results kept cell by cell, the
paper's figures, tables."""

from __future__ import annotations

import csv
import json
import math
import os
import random
import statistics
import time
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from almakit import attacks, distances
from almakit.core import Attack, Status
from benchmarks import peers

Cell = dict[str, Any]
WHOLE_PAGE = ""


class Results:
    """Cells by key in a JSON file, written after each one, so that a run that was stopped goes on where it was."""

    def __init__(self, path: Path, must_exist: bool = False):
        if must_exist and not path.is_file():
            raise SystemExit(f"{path} is not there: measure it first, or name another file with --out.")
        self.path = path
        self.cells: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}

    def keep(self, key: str, cell: Any) -> None:
        """Adds a cell and writes the file."""
        self.update({key: cell})

    def update(self, cells: dict[str, Any]) -> None:
        """Adds cells and writes the file; other runs may write to it at the same time, so theirs are read again
        first."""
        if self.path.exists():
            self.cells = {**self.cells, **json.loads(self.path.read_text())}
        self.cells.update(cells)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_suffix(f".{os.getpid()}.part")
        lines = [f"{json.dumps(name)}: {json.dumps(self.cells[name])}" for name in sorted(self.cells)]
        part.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        part.replace(self.path)


def run_ours(
    attack: str | Attack, model: nn.Module, x: Tensor, labels: Tensor, batch: int, budget: int | None = None
) -> Cell:
    """Our attack, itself or as text such as ``alma(distance=l2)``, on the images ``x`` (B, ...) with ``labels``
    (B,)."""
    made = attacks.get(attack) if isinstance(attack, str) else attack
    started = time.perf_counter()
    result = made(model, x, labels, batch_size=batch, budget=budget)
    seconds = time.perf_counter() - started
    attacked = result.status != Status.ALREADY_WRONG
    with torch.no_grad():
        # Judged as the peers are: by a fresh pass over what was returned, not by what the result says of itself.
        found = torch.cat([model(part).argmax(1) for part in result.adversarials.split(batch)]) != labels
    values = torch.where(found, result.distances, torch.full_like(result.distances, float("inf")))
    return cell(values, seconds, result.forwards[attacked], result.backwards[attacked])


def run_peer(
    peer: peers.Peer,
    model: nn.Module,
    x: Tensor,
    labels: Tensor,
    steps: int,
    distance: str,
    batch: int,
    within: float = math.inf,
) -> Cell:
    """A peer on those of the images ``x`` (B, ...) that are classified as ``labels`` (B,), judged by a fresh pass over
    what it returned.

    A point counts where its distance is at most ``within``, up to 1e-5 of it for rounding.
    """
    with torch.no_grad():
        todo = (torch.cat([model(part).argmax(1) for part in x.split(batch)]) == labels).nonzero().flatten()
    torch.manual_seed(0)
    counting = peers.Counting(model).eval()
    started = time.perf_counter()
    found = torch.cat([peer(counting, x[rows], labels[rows], steps).detach() for rows in todo.split(batch)])
    seconds = time.perf_counter() - started
    values = torch.zeros(len(x))
    with torch.no_grad():
        wrong = torch.cat([model(part).argmax(1) for part in found.split(batch)]) != labels[todo]
        wrong &= ((found >= 0) & (found <= 1)).flatten(1).all(1)
        away = distances.get(distance)(x[todo], found)
        values[todo] = torch.where(wrong & (away <= within * (1 + 1e-5)), away, torch.tensor(float("inf")))
    passes = torch.tensor([counting.forwards, counting.backwards]) / len(todo)
    return cell(values, seconds, passes[:1], passes[1:])


def cell(values: Tensor, seconds: float, forwards: Tensor, backwards: Tensor) -> Cell:
    """What is kept of a run: success in percent, median over all images (already wrong 0, failed infinite), passes per
    attacked image.

    ``values`` (B,) are the distances, kept to five digits with null for a failure; ``forwards`` and ``backwards`` (A,)
    are averaged.
    """
    rows = [float(f"{value:.5g}") for value in values.double().tolist()]
    return {
        "asr": round(100 * sum(map(math.isfinite, rows)) / len(rows), 3),
        "median": _number(float(f"{statistics.median(rows):.6g}")),
        "forwards": round(float(forwards.double().mean()), 2),
        "backwards": round(float(backwards.double().mean()), 2),
        "seconds": round(seconds, 1),
        "distances": [_number(row) for row in rows],
    }


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def median(distances: list[float | None]) -> float:
    """Of all images: None, nothing found, counts as infinite."""
    return statistics.median(math.inf if value is None else value for value in distances)


def figure(value: float | None) -> str:
    """A median as tables show it."""
    return "∞" if value is None else f"{value:.4g}" if value >= 1e-3 else f"{value:.3e}"


def paired(ours: Cell, theirs: Cell) -> list[float]:
    """Our distance over theirs for each image that both attacked with success, in rising order."""
    pairs = zip(ours["distances"], theirs["distances"], strict=True)
    return sorted(a / b for a, b in pairs if a and b)


def first_images(one: Cell, other: Cell) -> tuple[Cell, Cell]:
    """Both cells on the images both have: each begins at the first of its data set."""
    count = min(len(one["distances"]), len(other["distances"]))
    return {**one, "distances": one["distances"][:count]}, {**other, "distances": other["distances"][:count]}


def geometric_mean(ratios: list[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, ratios)))


def mean_and_error(ratios: list[float]) -> tuple[float, float]:
    """The geometric mean and its standard error, which is no number for one ratio alone."""
    logs, mean = [math.log(ratio) for ratio in ratios], geometric_mean(ratios)
    return mean, mean * statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else math.nan


def medians_ratio_interval(ours: Cell, theirs: Cell, draws: int = 2000) -> tuple[float, float]:
    """The 5 % and 95 % points of the ratio of medians over images drawn with replacement: how well so few images can
    tell it."""
    pairs = [
        (a if a is not None else math.inf, b if b is not None else math.inf)
        for a, b in zip(ours["distances"], theirs["distances"], strict=True)
    ]
    generator, ratios = random.Random(0), []
    for _ in range(draws):
        drawn = generator.choices(pairs, k=len(pairs))
        numerator, denominator = statistics.median(a for a, _ in drawn), statistics.median(b for _, b in drawn)
        if 0 < denominator < math.inf:
            ratios.append(numerator / denominator)
    ratios.sort()
    return ratios[round(0.05 * (len(ratios) - 1))], ratios[round(0.95 * (len(ratios) - 1))]


@cache
def _paper() -> list[dict[str, str]]:
    with (files("almakit.paper") / "tables.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def published(dataset: str, model: str, distance: str, attack: str, budget: str) -> dict[str, str]:
    """The paper's line, empty where it has none."""
    wanted = {"dataset": dataset, "model": model, "distance": distance, "attack": attack, "budget": budget}
    return next((line for line in _paper() if wanted.items() <= line.items()), {})


def markdown(head: list[str], rows: list[list[str]]) -> str:
    """A markdown table; a column whose name ends in a space is set to the left."""
    rule = [":--" if name.endswith(" ") else "--:" for name in head]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [[name.strip() for name in head], rule, *rows])


def replace_section(path: Path, name: str, text: str) -> None:
    """Puts ``text`` between the markers ``<!-- name: begin -->`` and ``<!-- name: end -->`` of a page, or makes it the
    whole page."""
    if name == WHOLE_PAGE:
        path.write_text(text, encoding="utf-8")
        return
    page = path.read_text()
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    if begin not in page or end not in page:
        raise SystemExit(f"{path} has no lines {begin} and {end}; add them where the table belongs.")
    before, after = page.split(begin)[0], page.split(end)[1]
    path.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}")
