"""The standard ensemble beside AutoAttack: robust accuracy of one network on the same images, at radii where they
differ most.

    python -m benchmarks baselines standard   the paper's TRADES network, 50 MNIST images, linf
    python -m benchmarks baselines standard --images 1000 --full   all of AutoAttack, not APGD-T alone (hours)
    python -m benchmarks baselines standard --docs docs/figures/standard.md   also writes the table into that page

The ensemble is run once and read at every radius; AutoAttack is run once for each. Both behind our own judge, so that
passes are counted alike. Needs pyautoattack (in the extra ``bridges``) and ALMAKIT_DATA as for the tests.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

import almakit
from almakit.attacks import get
from benchmarks import RESULTS, common

RADII = (0.3, 0.31, 0.32, 0.33)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=50)
    parser.add_argument("--model", default="mnist/smallcnn-trades")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--docs", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    model, (x, labels) = almakit.models.load(args.model), almakit.data.load("mnist", limit=args.images).tensors()
    ours = almakit.standard_evaluation(model, x, labels, norm="Linf", bs=50)
    print(ours, flush=True)
    theirs = "standard" if args.full else "apgd-t"
    # AutoAttack's points lie on the sphere, up to the rounding of x + delta: a radius is read with that much slack for
    # both.
    rows, kept = [], {}
    for radius in RADII:
        found = get(f"autoattack:{theirs}(norm=Linf, eps={radius})")(model, x, labels, batch_size=50)
        mine = ours.robust_accuracy(radius * (1 + 1e-5))
        kept[str(radius)] = {
            "ours": mine,
            "autoattack": 1 - found.success_rate,
            "forwards": float(found.forwards.double().mean()),
        }
        rows.append(
            [
                f"{radius:g}",
                f"{100 * mine:.0f}",
                f"{100 * (1 - found.success_rate):.0f}",
                f"{found.forwards.double().mean():.0f}",
            ]
        )
        print(rows[-1], flush=True)
    forwards, backwards = (float(each.double().mean()) for each in (ours.forwards, ours.backwards))
    text = common.markdown(["ε", f"{ours.version} %", f"AutoAttack's {theirs} %", "its forwards for this ε"], rows)
    text += (
        f"\n\n{args.model}, the first {args.images} MNIST test images; robust accuracy. The ensemble took "
        f"{forwards:.0f} forwards and {backwards:.0f} backwards"
        " per image for all radii together."
    )
    print(f"\n{text}")
    (RESULTS / "standard.json").write_text(
        json.dumps({"images": args.images, "model": args.model, "with": theirs, "radii": kept}, indent=1) + "\n"
    )
    if args.docs:
        common.replace_section(args.docs, "standard", text)
    return 0
