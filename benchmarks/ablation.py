"""What each piece of ALMA-plus is worth: the attack at 100 passes with one piece taken out or changed, against the whole.

    python benchmarks/ablation.py                               what is missing in benchmarks/results/ablation.json (some ten minutes of one core)
    python benchmarks/ablation.py --table --docs docs/alma-plus.md

The images are of those it was tuned on (MNIST's test images 9000 to 9063, CIFAR-10's 2000 to 2031), none of which is reported on elsewhere. The figure is
the geometric mean of d(changed) / d(whole) over the images both succeed on: above 1 the piece helps. Rows that change the search are compared with the
Lagrangian search and polish for all images instead of the whole attack.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import common
import subjects
import torch

from almakit import data
from almakit.attacks.alma_plus import ALMAPlus
from almakit.attacks.plus import rounds
from almakit.attacks.plus.free_steps import FreeSteps, free_steps
from almakit.attacks.plus.lagrangian import Lagrangian, lagrangian
from almakit.attacks.plus.polish import polish
from almakit.attacks.plus.rounds import SIZES, searches
from almakit.attacks.plus.scan import scan
from almakit.core import Attack, Problem

HERE = Path(__file__).resolve().parent
STEPS = 100
MNIST, CIFAR = (*subjects.ZOO[:3], "masked/ibp", "masked/quantised", "masked/kwta"), subjects.ZOO[4:]
GROUPS = ((("l2",), MNIST), (("l1",), MNIST), (("l1",), subjects.ZOO[3:]), (("lpips", "ssim", "ciede2000"), CIFAR))
WHOLE, PLAIN = "whole", "Lagrangian search for all images"
# Compared with the whole attack; the other rows of l1 and l2 with the Lagrangian search.
OF_THE_WHOLE = (WHOLE, PLAIN, "no far start", "no walk on rough images", "polish after FMN")
EPSILON = {1.0: 0.5, 2.0: 0.1}


@dataclass(frozen=True)
class Made(Attack):
    """An attack from a function of the problem."""

    distance: Any = "l2"
    does_it: Callable[[Problem], None] = lambda problem: None

    def run(self, problem: Problem) -> None:
        self.does_it(problem)


def search(norm: float, rivals: int = 5, share: float | None = None, fixed: bool = False, searching: bool = True, **changes: Any) -> Callable[[Problem], None]:
    """Scan, search and polish as the attack has them at a budget below two searches, with changes."""

    def does_it(problem: Problem) -> None:
        seen, sizes = scan(problem, rivals, norm), SIZES[norm]
        problem.query(seen.nearest, grad=False)
        passes = STEPS - 2 - max(0, seen.classes.shape[1] - 3)
        typical = problem.x[0].numel() ** 0.5 * problem.box.width
        unit = seen.unit.clamp_max(sizes.unit_cap * typical)
        first = (sizes.first * seen.unit).clamp_max(sizes.step_cap * typical) / unit
        settings = Lagrangian(first=EPSILON[norm] / unit if fixed else first, weight=sizes.weight)
        last = int((sizes.polish if share is None else share) * passes)
        if searching:
            lagrangian(problem, passes - last, unit, seen.height, replace(settings, **changes))
            polish(problem, last, norm)
        else:
            polish(problem, passes, norm, start=seen.nearest)

    return does_it


def without_far_start(norm: float) -> Callable[[Problem], None]:
    """The attack when no image is taken for misled."""

    def does_it(problem: Problem) -> None:
        seen = scan(problem, 5, norm)
        problem.query(seen.nearest, grad=False)
        searches(problem, STEPS - 2 - max(0, seen.classes.shape[1] - 3), norm, seen, torch.zeros_like(seen.margin))

    return does_it


def with_rounds(distance: str, **changes: Any) -> Callable[[Problem], None]:
    """The attack with other contents of the module that divides its budget."""

    def does_it(problem: Problem) -> None:
        before = {name: getattr(rounds, name) for name in changes}
        try:
            for name, value in changes.items():
                setattr(rounds, name, value)
            ALMAPlus(distance=distance, steps=STEPS).run(problem)
        finally:
            for name, value in before.items():
                setattr(rounds, name, value)

    return does_it


def polished(problem: Problem, passes: int, halvings: int, norm: float, start: torch.Tensor | None = None) -> None:
    """The polish where the attack walks."""
    polish(problem, passes, norm, start=start)


def free(**changes: Any) -> Callable[[Problem], None]:
    return lambda problem: free_steps(problem, STEPS, FreeSteps(**changes))


def variants(distance: str, name: str) -> dict[str, Callable[[Problem], None]]:
    """Name -> the attack with that piece changed, of those that matter on the network ``name``; the whole one first."""
    if distance in ("l1", "l2"):
        norm = {"l1": 1.0, "l2": 2.0}[distance]
        whole = {WHOLE: ALMAPlus(distance=distance, steps=STEPS).run}
        if name not in MNIST:
            return {**whole, "polish after FMN": with_rounds(distance, _finish=polished), PLAIN: search(norm)}
        return {
            **whole, "no far start": without_far_start(norm), "no walk on rough images": with_rounds(distance, ROUGH_SHARE=0.0), PLAIN: search(norm),
            "no scan: one rival": search(norm, rivals=1), "hard margin": search(norm, hot=1e-4, cold=1e-4),
            "first step of the paper": search(norm, fixed=True), "weight of the distance / 10": search(norm, weight=SIZES[norm].weight / 10),
            "RMSProp average from the first gradient": search(norm, warmth=1.0), "no polish": search(norm, share=0.0),
            "polish of a fifth in l2, a tenth in l1": search(norm, share=0.3 - SIZES[norm].polish),
            "no search: polish from the scan": search(norm, searching=False),
        }  # fmt: skip
    return {
        WHOLE: free(), "free steps not guarded": free(guarded=False), "overshoot not followed": free(tighter=1.0, looser=1.0),
        "1 free step": free(inner=1), "3 free steps": free(inner=3), "10 free steps": free(inner=10),
        "no momentum": free(momentum=0.0), "overshoot x 3": free(overshoot=0.3), "overshoot to 0.01": free(overshoot_floor=0.01),
    }  # fmt: skip


@cache
def images(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    return (data.load("mnist", offset=9000, limit=64) if name in MNIST else data.load("cifar10", offset=2000, limit=32)).tensors()


def run(results: common.Results, words: list[str]) -> None:
    for distances, networks in GROUPS:
        for name in networks:
            for distance in distances:
                for variant, does_it in variants(distance, name).items():
                    key = f"{name}|{distance}|{variant}"
                    if key in results.cells or (words and not any(word in key for word in words)):
                        continue
                    x, labels = images(name)
                    results.keep(key, common.run_ours(Made(distance=distance, does_it=does_it), subjects.network(name), x, labels, 64))
                    print(key, results.cells[key]["asr"], results.cells[key]["median"], flush=True)


def table(results: common.Results) -> str:
    parts = []
    for distances, networks in GROUPS:
        head = ["piece ", *(f"{name.split('/')[1]} {distance}" for distance in distances for name in networks)]
        pieces = variants(distances[0], networks[0])
        rows = [[variant, *(_ratio(results, name, distance, variant) for distance in distances for name in networks)] for variant in pieces]
        parts.append(common.markdown(head, rows))
    return "\n\n".join(parts)


def _ratio(results: common.Results, name: str, distance: str, variant: str) -> str:
    base = WHOLE if distance not in ("l1", "l2") or variant in OF_THE_WHOLE else PLAIN
    cells = [results.cells.get(f"{name}|{distance}|{which}") for which in (variant, base)]
    if cells[0] is None or cells[1] is None:
        return "–"
    ratios = common.paired(cells[0], cells[1])
    said = f"{common.geometric_mean(ratios):.3f}" if ratios else "–"
    return said if cells[0]["asr"] == 100 else f"{said} ({cells[0]['asr']:.0f} %)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", default="", help="words, comma-separated: only cells whose name contains one of them")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "ablation.json")
    parser.add_argument("--table", action="store_true", help="print what is kept and run nothing")
    parser.add_argument("--docs", type=Path, help="a page whose section between the ablation markers gets the table")
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = common.Results(options.out)
    if not options.table:
        run(results, [word for word in options.cells.split(",") if word])
    text = table(results)
    print(text)
    if options.docs:
        common.replace_section(options.docs, "ablation", text)


if __name__ == "__main__":
    main()
