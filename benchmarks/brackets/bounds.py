"""How close is it? Certified radii beside the distances attacks find, and attacks beside exact distances.

    python -m benchmarks brackets   every part that is not in the results yet, then the tables
    python -m benchmarks brackets --only bounds   ibp, crown and alpha-crown on three networks in linf and l2
    python -m benchmarks brackets --only exact   exact linf distances of mnist/mlp-2x100
    python -m benchmarks brackets --only attack   the default attack against those distances, measured again
    python -m benchmarks brackets --table   the tables alone, with the totals of law.py

Seconds are CPU seconds of one thread; memory is the largest resident size of a process of its own.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import resource
import statistics
import time
from typing import Any

import torch

from almakit import attacks, data, models
from almakit.certify import certified_radius
from almakit.certify.exact import exact_radius
from almakit.core import Status
from benchmarks import RESULTS, common
from benchmarks.brackets import law

# network, norm, images, methods
BOUNDS = (
    ("mnist/smallcnn-tiny-ibp", "linf", 200, ("ibp",)),
    ("cifar10/cnn-a-adv", "linf", 100, ("crown", "alpha-crown")),
    ("mnist/smallcnn-tiny-ibp", "l2", 20, ("ibp", "crown")),
    ("cifar10/cnn-a-adv", "l2", 10, ("crown", "alpha-crown")),
    ("mnist/smallcnn-tiny-ibp", "linf", 20, ("ibp", "crown")),
    ("cifar10/cnn-a-adv", "linf", 20, ("ibp",)),
    ("cifar10/resnet4b-adv", "linf", 4, ("ibp", "crown")),
)
FINDER, EXACT_MODEL, EXACT_IMAGES, EXACT_SECONDS = "soft-walk(distance={norm}, steps=100)", "mnist/mlp-2x100", 25, 60.0
WALL = 4
"""Wall seconds for each CPU second that the limit allows: the solver's own limit is in wall seconds, and machines are
shared."""
ATTACKS = {
    "soft-walk 100": "soft-walk(distance=linf, steps=100)",
    "soft-walk 1000": "soft-walk(distance=linf, steps=1000)",
}


def subject(name: str, count: int) -> tuple[models.Classifier, torch.Tensor, torch.Tensor]:
    model = models.load(name)
    x, labels = data.load(str(model.dataset), limit=count).tensors()
    return model, x, labels


def exact_name() -> str:
    """The network of the exact distances with its weights: other weights have other distances."""
    return f"{EXACT_MODEL}@{str(models.load(EXACT_MODEL).weights_sha256)[:8]}"


def found_by(text: str, model: models.Classifier, x: torch.Tensor, labels: torch.Tensor) -> list[float | None]:
    """Each image's distance: 0 for one that was wrong already, None where nothing was found."""
    result = attacks.get(text)(model, x, labels, batch_size=50)
    wrong = result.status == Status.ALREADY_WRONG
    return [
        0.0 if bad else (value if math.isfinite(value) else None)
        for value, bad in zip(result.distances.double().tolist(), wrong.tolist(), strict=True)
    ]


def measured(name: str, norm: str, count: int, method: str) -> dict[str, Any]:
    """Radii of one method, in a process of its own, so that its memory is its own."""
    model, x, labels = subject(name, count)
    started = time.process_time()
    radii = certified_radius(model, x, labels, norm, method, batch_size=16)
    return {
        "radii": [float(f"{value:.6g}") for value in radii.tolist()],
        "seconds": round((time.process_time() - started) / count, 3),
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def bounds(results: common.Results) -> None:
    context = multiprocessing.get_context("spawn")
    for name, norm, count, methods in BOUNDS:
        key = f"found|{name}|{norm}|{count}"
        if key not in results.cells:
            results.keep(key, {"distances": found_by(FINDER.format(norm=norm), *subject(name, count))})
        for method in methods:
            key = f"bound|{name}|{norm}|{count}|{method}"
            if key not in results.cells:
                with context.Pool(1) as pool:
                    results.keep(key, pool.apply(measured, (name, norm, count, method)))
                print(key, results.cells[key]["seconds"], flush=True)


def exact(results: common.Results) -> None:
    model, x, labels = subject(EXACT_MODEL, EXACT_IMAGES)
    near = torch.tensor(
        [math.inf if value is None else value for value in found_by(ATTACKS["soft-walk 1000"], model, x, labels)]
    )
    for row in range(EXACT_IMAGES):
        key = f"exact|{exact_name()}|{row}"
        if key in results.cells or not near[row]:
            continue
        started = time.process_time()
        (bracket,) = exact_radius(
            model, x[row : row + 1], labels[row : row + 1], found=near[row : row + 1], seconds=WALL * EXACT_SECONDS
        )
        seconds = time.process_time() - started
        closed = bracket.closed and seconds <= EXACT_SECONDS
        results.keep(
            key, {"lower": bracket.lower, "upper": bracket.upper, "seconds": round(seconds, 2), "closed": closed}
        )
        print(key, results.cells[key], flush=True)


def attack(results: common.Results) -> None:
    model, x, labels = subject(EXACT_MODEL, EXACT_IMAGES)
    for name, text in ATTACKS.items():
        results.keep(f"attack|{exact_name()}|{name}", {"distances": found_by(text, model, x, labels)})


def ratios(results: common.Results, name: str, norm: str, count: int, method: str) -> list[float]:
    """Certified over found, of the images that were right and for which something was found."""
    found = results.cells[f"found|{name}|{norm}|{count}"]["distances"]
    radii = results.cells[f"bound|{name}|{norm}|{count}|{method}"]["radii"]
    return [radius / distance for radius, distance in zip(radii, found, strict=True) if distance]


def sections(results: common.Results, args: argparse.Namespace) -> dict[str, str]:
    rows = []
    for name, norm, count, methods in BOUNDS:
        for method in methods:
            cell = results.cells.get(f"bound|{name}|{norm}|{count}|{method}")
            if cell is None:
                continue
            share = ratios(results, name, norm, count, method)
            radii = statistics.median(cell["radii"])
            rows.append(
                [
                    name,
                    norm,
                    method,
                    str(len(share)),
                    f"{radii:.4g}",
                    f"{statistics.median(share):.3f}",
                    f"{max(share):.3f}",
                    f"{cell['seconds']:.2f}",
                    str(cell["megabytes"]),
                ]
            )
    head = [
        "network ",
        "distance ",
        "bound ",
        "images",
        "median certified",
        "median certified / found",
        "largest",
        "CPU s / image",
        "MB",
    ]
    text = common.markdown(head, rows)
    cells = {
        int(key.split("|")[2]): cell for key, cell in results.cells.items() if key.startswith(f"exact|{exact_name()}|")
    }
    closed = {row: cell for row, cell in cells.items() if cell["closed"] and cell["upper"] > 0}
    if closed:
        seconds = sorted(cell["seconds"] for cell in cells.values())
        text += (
            f"\n\nExact linf distances of {EXACT_MODEL}: {len(closed)} of {len(cells)} images solved exactly "
            f"with a limit of {EXACT_SECONDS:.0f} CPU seconds each, "
            f"median {statistics.median(seconds):.1f} s, longest {seconds[-1]:.1f} s.\n\n"
        )
        lines = []
        for name in ATTACKS:
            found = results.cells.get(f"attack|{exact_name()}|{name}", {}).get("distances")
            if found:
                above = sorted(100 * (found[row] / cell["upper"] - 1) for row, cell in closed.items() if found[row])
                lines.append(
                    [
                        name,
                        str(len(above)),
                        f"{statistics.median(above):.2f}",
                        f"{statistics.fmean(above):.2f}",
                        f"{above[-1]:.2f}",
                    ]
                )
        text += common.markdown(["attack ", "images", "median % above the truth", "mean %", "largest %"], lines)
    laws = law.sections(common.Results(RESULTS / "brackets_law.json", must_exist=True), args)
    return {"brackets": "\n\n".join([text, *laws.values()])}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", choices=("bounds", "exact", "attack"))


def measure(results: common.Results, args: argparse.Namespace) -> None:
    for part in (bounds, exact, attack):
        if args.only in (None, part.__name__):
            part(results)
