"""The standard ensemble beside AutoAttack: robust accuracy of one network on the same images, at radii where they
differ most.

    python -m benchmarks baselines standard   the paper's TRADES network, 50 MNIST images, linf
    python -m benchmarks baselines standard --images 1000 --full   all of AutoAttack, not APGD-T alone (hours)
    python -m benchmarks baselines standard --docs   also writes the table into docs/figures/standard.md

The ensemble is run once and read at every radius; AutoAttack is run once for each. Both behind our own judge, so that
passes are counted alike. Needs pyautoattack (in the extra ``bridges``) and ALMAKIT_DATA as for the tests.
"""

from __future__ import annotations

import argparse

import almakit
from almakit.attacks import get
from benchmarks import common

RADII = (0.3, 0.31, 0.32, 0.33)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--images", type=int, default=50)
    parser.add_argument("--model", default="mnist/smallcnn-trades")
    parser.add_argument("--full", action="store_true", help="all of AutoAttack instead of APGD-T alone")


def measure(results: common.Results, args: argparse.Namespace) -> None:
    model, (x, labels) = almakit.models.load(args.model), almakit.data.load("mnist", limit=args.images).tensors()
    ours = almakit.standard_evaluation(model, x, labels, norm="Linf", bs=50)
    print(ours, flush=True)
    theirs, radii = "standard" if args.full else "apgd-t", {}
    for radius in RADII:
        found = get(f"autoattack:{theirs}(norm=Linf, eps={radius})")(model, x, labels, batch_size=50)
        # AutoAttack's points lie on the sphere, up to the rounding of x + delta: a radius is read with that much slack
        # for both.
        radii[str(radius)] = {
            "ours": ours.robust_accuracy(radius * (1 + 1e-5)),
            "autoattack": 1 - found.success_rate,
            "forwards": float(found.forwards.double().mean()),
        }
        print(radius, radii[str(radius)], flush=True)
    passes = [float(each.double().mean()) for each in (ours.forwards, ours.backwards)]
    facts = {"images": args.images, "model": args.model, "with": theirs, "radii": radii}
    results.update(facts | {"version": ours.version, "passes": passes})


def sections(results: common.Results, args: argparse.Namespace) -> dict[str, str]:
    kept = results.cells
    if "passes" not in kept:
        raise SystemExit(
            f"{results.path} is of before the ensemble's passes were kept: measure it again without --table."
        )
    rows = []
    for radius, cell in kept["radii"].items():
        shares = [f"{100 * cell[who]:.0f}" for who in ("ours", "autoattack")]
        rows.append([f"{float(radius):g}", *shares, f"{cell['forwards']:.0f}"])
    head = ["ε", f"{kept['version']} %", f"AutoAttack's {kept['with']} %", "its forwards for this ε"]
    text = (
        f"{kept['model']}, the first {kept['images']} MNIST test images; robust accuracy. The ensemble took "
        f"{kept['passes'][0]:.0f} forwards and {kept['passes'][1]:.0f} backwards per image for all radii together."
    )
    return {"standard": f"{common.markdown(head, rows)}\n\n{text}"}
