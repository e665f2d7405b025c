"""Smallest changes that make 99 % of the pixels wrong: our attacks and adv-lib's on the segmentation network inside the
package.

``python -m benchmarks segmentation`` attacks the first 64 test scenes, eight at a time, and keeps the distances in
``--out`` after every eight; a second call goes on, ``--table`` prints what there is. adv-lib 0.2.8 must be importable
for its rows (its own environment: ``PYTHONPATH=<site-packages>``). Nothing was tuned on these scenes: the walk's
settings for pixels were chosen on the test scenes from 900 on.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

import almakit
from almakit.data.dataset import IGNORED
from benchmarks.common import Results
from benchmarks.peers import library

MODEL, SHARE, CHUNK = "scenes/unet-small", 0.99, 8
NORMS = {"linf": float("inf"), "l2": 2.0}
EPSILON = "4/255"
OURS = {
    "linf": {
        "soft-walk": "soft-walk(distance=linf, steps={steps})",
        "alma-prox": "alma-prox(steps={steps}, share=0.99)",
        "fmn": "fmn(distance=linf, steps={steps})",
        "pdpgd": "pdpgd(distance=linf, steps={steps})",
        "dag": "dag(steps=200)",
        f"sea at {EPSILON}": f"sea(epsilon={EPSILON}, steps={{steps}})",
    },
    "l2": {
        "soft-walk": "soft-walk(distance=l2, steps={steps})",
        "alma": "alma(distance=l2, steps={steps})",
        "ddn": "ddn(steps={steps})",
        "fmn": "fmn(distance=l2, steps={steps})",
        "pdgd": "pdgd(steps={steps})",
        "pdpgd": "pdpgd(distance=l2, steps={steps})",
        "asma": "asma(steps=1000)",
    },
}
ADV_LIB: dict[str, dict[str, dict[str, Any]]] = {
    "linf": {"alma_prox": {}, "pdpgd": {"norm": float("inf")}, "dag": {"max_iter": 200}},
    "l2": {"pdgd": {}, "pdpgd": {"norm": 2.0}, "asma": {"num_steps": 1000}},
}
Run = Callable[[Any, Tensor, Tensor], Tensor]


def ours(text: str) -> Run:
    """One of our attacks: (model, images, maps) -> points."""
    attack = almakit.attacks.get(text)
    return lambda model, x, maps: attack(model, x, maps, goal=almakit.goals.pixels(share=SHARE)).adversarials


def adv_lib(name: str, steps: int, options: dict[str, Any]) -> Run:
    """An attack of adv-lib's, one image at a time: images with different numbers of labelled pixels in one batch end
    its ALMA-prox in an IndexError (index -1 for some)."""
    attack = getattr(library("adv_lib.attacks.segmentation"), name)
    options = options if "max_iter" in options else {"num_steps": steps, **options}

    def run(model: Any, x: Tensor, maps: Tensor) -> Tensor:
        labels, masks = torch.where(maps == IGNORED, 0, maps), maps != IGNORED
        rows = [slice(row, row + 1) for row in range(len(x))]
        found = [attack(model, x[r], labels[r], masks=masks[r], adv_threshold=SHARE, **options) for r in rows]
        return torch.cat(found).detach()

    return run


def judged(model: Callable[[Tensor], Tensor], x: Tensor, maps: Tensor, points: Tensor, norm: float) -> list[Any]:
    """The distance of each of ``points`` (B, C, H, W) that is in the box and has the share of labelled pixels wrong on
    a fresh pass, else None."""
    counted = maps != IGNORED
    with torch.no_grad():
        wrong = torch.cat([model(point[None]).argmax(1) for point in points]) != maps
    reached = (wrong & counted).flatten(1).sum(1) >= SHARE * counted.flatten(1).sum(1) - 1e-6
    inside = ((points >= 0) & (points <= 1)).flatten(1).all(1)
    sizes = torch.linalg.vector_norm((points - x).flatten(1), norm, dim=1).tolist()
    return [size if good else None for size, good in zip(sizes, (reached & inside).tolist(), strict=True)]


def paired(mine: list[Any], others: list[Any]) -> str:
    """The geometric mean of mine / others over the images both were successful on, with its standard error, and how
    often each is the nearer one."""
    both = list(zip(mine, others, strict=False))
    logs = torch.tensor([math.log(a / b) for a, b in both if a and b], dtype=torch.float64)
    nearer = sum((a or math.inf) < (b or math.inf) for a, b in both)
    farther = sum((a or math.inf) > (b or math.inf) for a, b in both)
    if len(logs) < 2:
        return f"-, {nearer} : {farther}"
    mean, error = float(logs.mean().exp()), float(logs.std() / len(logs) ** 0.5)
    return f"{mean:.3f} ± {mean * error:.3f}, {nearer} : {farther}"


def table(found: dict[str, Any]) -> str:
    """For each distance the attacks by their lower medians; the soft walk and ALMA-prox paired with each."""
    lines = []
    for distance in NORMS:
        rows = {name.partition(" ")[2]: row for name, row in found.items() if name.startswith(f"{distance} ")}
        if not rows:
            continue
        heads = [head for head in ("soft-walk", "alma-prox") if head in rows]
        lines += [
            f"| {distance} | images | success | median | "
            + "".join(f"{head} / it, nearer : farther | " for head in heads)
            + "s per image |",
            "| :-- " + "| --: " * (4 + len(heads)) + "|",
        ]
        ordered = {name: sorted(math.inf if d is None else d for d in row["distances"]) for name, row in rows.items()}
        for name in sorted(rows, key=lambda name: ordered[name][(len(ordered[name]) - 1) // 2]):
            each, count = rows[name]["distances"], len(ordered[name])
            pairs = ["" if name == head else paired(rows[head]["distances"], each) for head in heads]
            lines.append(
                f"| {name} | {count} | {sum(d is not None for d in each)} | {ordered[name][(count - 1) // 2]:.5f} | "
                + "".join(f"{pair} | " for pair in pairs)
                + f"{rows[name]['seconds'] / count:.1f} |"
            )
        lines.append("")
    return "\n".join(lines)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--only", nargs="*", help="names as in the table with their distance, such as 'linf fmn'")


def runs(steps: int) -> dict[str, tuple[float, Callable[[], Run]]]:
    """By name: the norm, and what makes the attack."""
    found: dict[str, tuple[float, Callable[[], Run]]] = {}
    for distance, norm in NORMS.items():
        for name, text in OURS[distance].items():
            found[f"{distance} {name}"] = norm, partial(ours, text.format(steps=steps))
        for name, more in ADV_LIB[distance].items():
            found[f"{distance} adv-lib {name}"] = norm, partial(adv_lib, name, steps, more)
    return found


def key(steps: int) -> str:
    return f"{steps} steps, weights {almakit.models.load(MODEL).weights_sha256}"


def measure(results: Results, args: argparse.Namespace) -> None:
    model, made = almakit.models.load(MODEL), runs(args.steps)
    for name in args.only or made:
        if name not in made:
            raise SystemExit(f"there is no row {name!r}; the rows are {', '.join(made)}.")
        norm, make = made[name]
        row = results.cells.setdefault(key(args.steps), {}).setdefault(name, {"distances": [], "seconds": 0.0})
        while (first := len(row["distances"])) < args.images:
            x, maps = almakit.data.load("scenes", offset=first, limit=min(CHUNK, args.images - first)).tensors()
            began = time.process_time()
            points = make()(model, x, maps)
            row["seconds"] += time.process_time() - began
            row["distances"] += judged(model, x, maps, points, norm)
            keep(results, key(args.steps), name, row)
        print(table({name: row}), flush=True)


def keep(results: Results, steps: str, name: str, row: dict[str, Any]) -> None:
    """Another process may have kept other rows meanwhile."""
    now = Results(results.path).cells.get(steps, {})
    results.keep(steps, {**results.cells.get(steps, {}), **now, name: row})


def sections(results: Results, args: argparse.Namespace) -> dict[str, str]:
    if key(args.steps) not in results.cells:
        raise SystemExit(f"{results.path} has nothing of {key(args.steps)}.")
    return {"segmentation": table(results.cells[key(args.steps)])}
