"""Robust accuracy on the 8-bit grid beside counting whole grey levels in the stored images, in integers.

    python -m benchmarks faults ties   64 images, two CIFAR-10 networks, five attacks in linf, 1, 2, 4 and 8/255
    python -m benchmarks faults ties --images 16

Every share must be equal: that of the run's own numbers, and that of the images whose stored adversarial image fools
the network and differs by at most that many levels.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

import almakit
from benchmarks.common import Results, markdown

NETWORKS = ("cifar10/resnet4b-adv", "cifar10/cnn-a-adv")
LEVELS = (1, 2, 4, 8)
MINIMAL = ("fmn(distance=linf, steps=20)", "soft-walk(distance=linf, steps=40)", "alma(distance=linf, steps=40)")
FIXED = ("pgd(distance=linf, epsilon={}/255, steps=10)", "apgd(distance=linf, epsilon={}/255, steps=10)")


def rows_of(network: str, images: int, out: Path) -> list[list[object]]:
    """[network, attack, radius in levels, images robust by the run, images robust by counting] for each."""
    fixed = {text.format(level): (text, level) for text in FIXED for level in LEVELS}
    run = almakit.evaluate(network, "cifar10", [*MINIMAL, *fixed], out=out, limit=images, bits=8, preflight=False)
    found: list[list[object]] = []
    for info, given in zip(run.attacks, [*MINIMAL, *fixed], strict=True):
        text, own = fixed.get(given, (given, None))
        records = run.records_of(info.index)
        clean, stored = run.originals([record.image for record in records]), run.adversarials(records)
        changed = np.abs(np.rint(255.0 * stored) - np.rint(255.0 * clean)).astype(int).reshape(len(records), -1).max(1)
        fooled = np.array([record.claimed and record.fooled for record in records])
        for level in LEVELS if own is None else (own,):
            ours = run.robust_accuracy(f"{level}/255", attack=info.index) * len(records)
            found.append([network, text, level, round(ours, 9), int((~(fooled & (changed <= level))).sum())])
    return found


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--images", type=int, default=64)


def measure(results: Results, args: argparse.Namespace) -> int:
    rows: list[list[object]] = []
    with tempfile.TemporaryDirectory() as place:
        for number, network in enumerate(NETWORKS):
            rows += rows_of(network, args.images, Path(place) / str(number))
    results.update({"date": time.strftime("%Y-%m-%d"), "images": args.images, "rows": rows})
    return 0 if all(row[3] == row[4] for row in rows) else 1


def sections(results: Results, args: argparse.Namespace) -> dict[str, str]:
    kept = results.cells
    cells: dict[tuple[str, str], dict[int, str]] = {}
    for network, text, level, ours, counted in kept["rows"]:
        shown = [f"{100 * value / kept['images']:.1f}" for value in (ours, counted)]
        cells.setdefault((network, text.format("k")), {})[level] = " / ".join(shown)
    rows = [[network, f"`{text}`", *(shares[level] for level in LEVELS)] for (network, text), shares in cells.items()]
    equal = sum(ours == counted for *_, ours, counted in kept["rows"])
    head = ["network ", "attack ", *(f"{level}/255" for level in LEVELS)]
    said = f"{equal} of {len(kept['rows'])} shares of {kept['images']} images are equal."
    return {
        "ties": f"{markdown(head, rows)}\n\n{said} Measured {kept['date']} with `python -m benchmarks faults ties`."
    }
