"""The paper's claim tested: one attack for any distance against the attacks made for it, at equal queries and at equal
seconds.

    python -m benchmarks paper claim --keep runs/reproduce-mnist --keep runs/reproduce-cifar10
                                           takes each image's best distances on the way out of the run folders
    python -m benchmarks paper claim --time   also measures what a query of each attack costs (processor time)
    python -m benchmarks paper claim   the tables and the figure from what is kept: docs/results.md,
                                           docs/figures/claim.svg and .pdf

Quality is the smallest distance that any kept attack found for an image over the distance this one has found by then;
nothing found is 0, the best of all is 1. Seconds are in passes: the time of one forward and backward pass of the
network in use, so that networks can be pooled. Results: results/claim.json.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from almakit import Run, attacks, data, models
from almakit.paper.entries import collect
from almakit.paper.grid import TITLES, name_of
from almakit.report import palette
from almakit.report.figures import STYLE, mathematical, plotting, save_figure
from benchmarks import DOCS, RESULTS
from benchmarks.common import Results, markdown, replace_section
from benchmarks.paper.claim_numbers import GRID, MARKS, OURS, SPECIALISED, Curve, curves, difference, pooled

IMAGES = 100
"""Images of a run that are kept, the first ones."""
PASSES, TRIED, SECONDS = 100, 48, 2.0
"""Budget and images of a measurement of seconds; fewer images, 8 at least, where the passes would take longer. Fewer
passes would not do: in a distance that is no norm the soft walk takes as many of its gradients in a short walk."""
QUERIES = (30, 100, 1000)
POOLED = ("mnist", "cifar10")
"""Data sets whose networks are pooled: on photos FAB, which would be the strongest rival in l2, was not run."""


def keep(out: Path, results: Results) -> None:
    """Takes in the cells of a reproduction: distances to five digits, null where nothing was found yet."""
    for dataset in POOLED:
        for entry in collect(out, dataset).entries:
            if not entry.complete or entry.clean_accuracy == 0:
                continue
            run = Run(out / entry.folder)
            records = sorted(run.records, key=lambda record: record.image)[:IMAGES]
            mine = [record for record in records if record.attacked]
            rows = [[_short(record.course[f"best_{mark}"]) for mark in MARKS] for record in mine]
            cell = {
                "dataset": dataset,
                "network": entry.label,
                "model": run.spec.model,
                "distance": entry.distance,
                "attack": entry.attack,
                "budget": entry.budget,
                "text": entry.text,
                "spec_sha256": entry.spec_sha256,
                "forwards": [round(float(np.mean([min(mark, r.forwards) for r in mine])), 1) for mark in MARKS]
                + [round(float(np.mean([r.forwards for r in mine])), 1)],
                "images": [record.image for record in mine],
                "distances": [[*row, _short(record.verified)] for row, record in zip(rows, mine, strict=True)],
            }
            key = f"{entry.label}|{entry.distance}|{entry.attack}|{entry.budget}"
            before = results.cells.get(key)
            if before is None or len(cell["images"]) >= len(before["images"]):
                results.keep(key, cell | ({"seconds": before["seconds"]} if before and "seconds" in before else {}))
                print(f"{key}: {len(mine)} images", flush=True)


def _short(value: float | None) -> float | None:
    return None if value is None or not np.isfinite(value) else float(f"{value:.5g}")


def time_queries(results: Results) -> None:
    """Processor seconds of a query inside each attack, and of a bare pass, on the same images, one thread; networks of
    the same layers share them."""
    torch.set_num_threads(1)
    known: dict[tuple[object, ...], list[float]] = {}
    for key, cell in sorted(results.cells.items(), key=lambda pair: "seconds" not in pair[1]):
        model = models.load(cell["model"])
        layers = (cell["text"], *(tuple(part.shape) for part in model.parameters()))
        if "seconds" in cell or layers in known:
            known.setdefault(layers, cell.get("seconds") or known[layers])
            results.keep(key, {**cell, "seconds": cell.get("seconds") or known[layers]})
            continue
        x, labels = data.load(
            cell["dataset"], limit=TRIED, size=224 if cell["dataset"] == "imagenet" else None
        ).tensors()
        attack = attacks.get(cell["text"])
        few = min(len(x), max(8, int(SECONDS / PASSES / bare_pass(model, x[:8], labels[:8]))))
        x, labels = x[:few], labels[:few]
        took = []
        for _ in range(3):  # bare passes and the attack take turns; the middle ratio counts
            bare = bare_pass(model, x, labels)
            began = time.process_time()
            result = attack(model, x, labels, budget=PASSES)
            took.append(((time.process_time() - began) / int(result.forwards.sum()), bare))
        seconds = sorted(took, key=lambda pair: pair[0] / pair[1])[1]
        known[layers] = [float(f"{value:.4g}") for value in seconds]
        results.keep(key, {**cell, "seconds": known[layers]})
        print(f"{key}: a query takes {seconds[0] / seconds[1]:.2f} passes", flush=True)


def bare_pass(model: torch.nn.Module, x: torch.Tensor, labels: torch.Tensor, times: int = 8) -> float:
    """Processor seconds of a forward and backward pass of one of the images ``x`` (B, ...) with ``labels`` (B,)."""
    began = time.process_time()
    for _ in range(times):
        leaf = x.clone().requires_grad_()
        torch.autograd.grad(torch.nn.functional.cross_entropy(model(leaf), labels), leaf)
    return (time.process_time() - began) / times / len(x)


def table(found: dict[str, list[Curve]]) -> str:
    """Per distance and budget, on the networks where ALMA was run that long: the best specialised attack, and ours
    minus it, with standard errors."""
    head = ["distance ", "at equal ", "networks", "images", "best specialised attack ", "its quality"]
    rows = []
    for distance, mine in found.items():
        alma = next(curve for curve in mine if curve.attack == OURS[0])
        for axis, budget in ((axis, budget) for axis in ("queries", "seconds") for budget in QUERIES):
            networks = [network for network in alma.networks if alma.lasts(network, axis, budget)]
            able = [curve for curve in mine if all(curve.lasts(network, axis, budget) for network in networks)]
            if not networks:
                continue
            rivals = [curve for curve in able if curve.attack in SPECIALISED]
            best = max(rivals, key=lambda curve: pooled(curve, axis, budget, networks)[0], default=None)
            images = sum(len(alma.best(network, axis, budget)[0]) for network in networks)
            unit = f"{budget} {'queries' if axis == 'queries' else 'passes of time'}"
            row = [name_of(distance), unit, str(len(networks)), str(images)]
            row += ["none", ""] if best is None else [TITLES[best.attack], _with(pooled(best, axis, budget, networks))]
            for name in OURS:
                own = next((curve for curve in able if curve.attack == name), None)
                row += ["–" if own is None else _with(pooled(own, axis, budget, networks))]
                against = None if own is None or best is None else difference(own, best, axis, budget, networks)
                row += ["" if against is None else _signed(*against)]
            rows.append(row)
    for name in OURS:
        head += [TITLES[name], "minus it"]
    return markdown(head, rows)


def _with(found: tuple[float, float]) -> str:
    return f"{found[0]:.3f} ± {found[1]:.3f}"


def _signed(mean: float, error: float) -> str:
    text = f"{mean:+.3f} ± {error:.3f}"
    return f"**{text}**" if mean > 2 * error else text


def draw(found: dict[str, list[Curve]], place: Path) -> None:
    """Quality against seconds, one panel for each distance, one curve for each attack."""
    pyplot = plotting()
    names = list(dict.fromkeys(curve.attack for curves_ in found.values() for curve in curves_))
    with pyplot.rc_context(STYLE):
        across = min(3, len(found))
        down = -(-len(found) // across)
        figure, panels = pyplot.subplots(
            down, across, figsize=(2.6 * across, 2.3 * down + 0.5), squeeze=False, layout="constrained", sharey=True
        )
        handles: dict[str, Any] = {}
        for panel in panels.flat[len(found) :]:
            panel.set_visible(False)
        for panel, (distance, mine) in zip(panels.flat, found.items(), strict=False):
            for curve in mine:
                points = curve.points()
                if not points:
                    continue
                colour = palette.SERIES_LIGHT[names.index(curve.attack) % len(palette.SERIES_LIGHT)]
                style = "-" if curve.attack in OURS else "--"
                at, values, errors = (np.array(part) for part in zip(*points, strict=True))
                (line,) = panel.plot(
                    at, values, color=colour, linestyle=style, marker="o" if style == "-" else ".", markersize=3
                )
                panel.fill_between(at, values - errors, values + errors, color=colour, alpha=0.15, linewidth=0)
                handles.setdefault(TITLES[curve.attack], line)
            panel.set(
                xscale="log",
                xlabel="seconds, in passes of the network",
                title=mathematical(distance),
                xlim=(GRID[0], GRID[-1]),
                ylim=(0, 1.02),
            )
        for row in panels:
            row[0].set_ylabel("quality")
        figure.legend(handles.values(), handles, loc="outside lower center", ncols=min(6, len(handles)))
        for kind in ("svg", "pdf"):
            save_figure(figure, place.with_suffix(f".{kind}"))
        pyplot.close(figure)


def stored() -> Results:
    return Results(RESULTS / "claim.json")


def sections(results: Results, args: argparse.Namespace) -> dict[str, str]:
    """The table; the figure is drawn beside the others."""
    found = curves(results.cells)
    if args.docs:
        draw(found, DOCS / "figures" / "claim.svg")
    return {"claim": table(found)}


def write() -> None:
    """Table and figure anew from what is kept, as ``--table --docs`` does."""
    for name, text in sections(stored(), argparse.Namespace(docs=True)).items():
        replace_section(DOCS / "results.md", name, text)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keep", type=Path, action="append", default=[], metavar="RUN")
    parser.add_argument("--time", action="store_true", help="measure the seconds of cells that have none yet")


def measure(results: Results, args: argparse.Namespace) -> None:
    for run in args.keep:
        keep(run, results)
    if args.time:
        time_queries(results)
