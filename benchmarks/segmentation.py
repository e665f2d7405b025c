"""Smallest changes that make nearly all pixels wrong: our attacks and adv-lib's on the segmentation network inside the
package.

``python benchmarks/segmentation.py --images 64 --steps 500``; each attack's distances are kept in ``--out`` as soon as
it is done, and a second call goes on. adv-lib 0.2.8 must be importable for its rows (its own environment:
``PYTHONPATH=<site-packages>``). Test scenes, from the first on; nothing was tuned on them.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from peers import library
from torch import Tensor

import almakit
from almakit.data.dataset import IGNORED

SHARE = 0.99
OURS = {
    "alma-prox": "alma-prox(steps={steps}, share=0.99)",
    "soft-walk": "soft-walk(distance=linf, steps={steps})",
    "fmn": "fmn(distance=linf, steps={steps})",
    "dag": "dag(steps=200)",
}


def judged(model: Callable[[Tensor], Tensor], x: Tensor, maps: Tensor, points: Tensor) -> list[float | None]:
    """The linf distance of each of ``points`` (B, C, H, W) that is in the box and has the share of labelled pixels
    wrong on a fresh pass, else None."""
    counted = maps != IGNORED
    with torch.no_grad():
        wrong = torch.cat([model(point[None]).argmax(1) for point in points]) != maps
    reached = (wrong & counted).flatten(1).sum(1) >= SHARE * counted.flatten(1).sum(1) - 1e-6
    inside = ((points >= 0) & (points <= 1)).flatten(1).all(1)
    sizes = (points - x).abs().flatten(1).amax(1).tolist()
    return [size if good else None for size, good in zip(sizes, (reached & inside).tolist(), strict=True)]


def adv_lib(name: str, steps: int) -> Callable[[Any, Tensor, Tensor], Tensor]:
    """An attack of adv-lib's: (model, images, maps) -> points."""
    options = {
        "alma_prox": {"num_steps": steps},
        "pdpgd": {"num_steps": steps, "norm": float("inf")},
        "dag": {"max_iter": 200},
    }[name]
    attack = getattr(library("adv_lib.attacks.segmentation"), name)

    def run(model: Any, x: Tensor, maps: Tensor) -> Tensor:
        # One image at a time: images with different numbers of labelled pixels in one batch end its ALMA-prox in an
        # IndexError (index -1 for some).
        labels, masks = torch.where(maps == IGNORED, 0, maps), maps != IGNORED
        rows = [slice(row, row + 1) for row in range(len(x))]
        return torch.cat(
            [
                attack(model, x[row], labels[row], masks=masks[row], adv_threshold=SHARE, **options).detach()
                for row in rows
            ]
        )

    return run


def table(found: dict[str, Any]) -> str:
    """Lower medians, and for each pair with ALMA-prox the images on which a row is nearer."""
    lines = [
        "| attack | success | median linf | mean linf | nearer than ours (alma-prox) | s |",
        "| :-- | --: | --: | --: | --: | --: |",
    ]
    own = found.get("alma-prox", {}).get("distances", [])
    for name, row in found.items():
        values = torch.tensor([float("inf") if value is None else value for value in row["distances"]])
        ok = torch.isfinite(values)
        nearer = sum(1 for a, b in zip(row["distances"], own, strict=False) if (a or 9e9) < (b or 9e9))
        mean = float(values[ok].mean()) if bool(ok.any()) else float("nan")
        middle = float(values.sort().values[(len(values) - 1) // 2])
        lines.append(
            f"| {name} | {float(ok.double().mean()):.1%} | {middle:.5f} | {mean:.5f} | {nearer}/{len(own)} | "
            f"{row['seconds']:.0f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/segmentation.json"))
    given = parser.parse_args()
    model = almakit.models.load("scenes/unet-small")
    x, maps = almakit.data.load("scenes", limit=given.images).tensors()
    key = f"{given.images} images, {given.steps} steps, weights {model.weights_sha256}"
    kept = json.loads(given.out.read_text()) if given.out.is_file() else {}
    found = kept.setdefault(key, {})
    runs: dict[str, Callable[[Any, Tensor, Tensor], Tensor]] = {}
    for name, text in OURS.items():
        attack = almakit.attacks.get(text.format(steps=given.steps))
        runs[name] = lambda m, a, b, attack=attack: attack(m, a, b, goal=almakit.goals.pixels(share=SHARE)).adversarials  # type: ignore[misc]
    for name in ("alma_prox", "pdpgd", "dag"):
        runs[f"adv-lib {name}"] = lambda m, a, b, name=name: adv_lib(name, given.steps)(m, a, b)  # type: ignore[misc]
    first = [name for name in ("alma-prox", "adv-lib alma_prox", "soft-walk") if name in runs]
    for name, run in ((name, runs[name]) for name in [*first, *(name for name in runs if name not in first)]):
        if name in found or (given.only and name not in given.only):
            continue
        began = time.process_time()
        points = run(model, x, maps)
        found[name] = {"distances": judged(model, x, maps, points), "seconds": time.process_time() - began}
        given.out.write_text(json.dumps(kept, indent=1) + "\n")
        print(table(found), flush=True)
    print(table(found))


if __name__ == "__main__":
    main()
