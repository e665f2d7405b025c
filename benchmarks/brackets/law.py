"""The law of the brackets: no attack of the registry, in any distance, succeeds below a certified radius of any network
at hand.

    python -m benchmarks brackets law   every cell that is not in the results yet, then the totals
    python -m benchmarks brackets law --again   everything anew, which takes more than an hour on one core

Every success counts once as an image x attack pair and is measured in linf, l2 and l1, whichever distance the attack
worked in. A combination that an attack refuses is kept with its sentence. Results: results/brackets_law.json.
"""

from __future__ import annotations

import argparse
from dataclasses import fields
from typing import Any

import torch

from almakit import attacks, data, models, registry
from almakit.certify import certified_radius
from almakit.certify.intervals import NORMS
from almakit.core import Status
from almakit.errors import AlmakitError
from benchmarks import common

# network: images, and by norm the tightest bound that is affordable for as many
NETWORKS: dict[str, tuple[int, dict[str, str]]] = {
    "mnist/mlp-2x100": (100, {"linf": "alpha-crown", "l2": "crown", "l1": "crown"}),
    "mnist/smallcnn-tiny": (5, {"linf": "ibp", "l2": "ibp", "l1": "ibp"}),
    "mnist/smallcnn-tiny-ddn": (5, {"linf": "ibp", "l2": "ibp", "l1": "ibp"}),
    "mnist/smallcnn-tiny-trades": (5, {"linf": "ibp", "l2": "ibp", "l1": "ibp"}),
    "mnist/smallcnn-tiny-ibp": (5, {"linf": "ibp", "l2": "ibp", "l1": "ibp"}),
    "mnist/smallcnn": (3, {"linf": "ibp", "l2": "ibp", "l1": "ibp"}),
    "mnist/smallcnn-ddn": (3, {"linf": "ibp", "l2": "ibp", "l1": "ibp"}),
    "mnist/smallcnn-trades": (3, {"linf": "ibp", "l2": "ibp", "l1": "ibp"}),
    "cifar10/cnn-a-adv": (4, {"linf": "crown", "l2": "crown", "l1": "crown"}),
    "cifar10/resnet4b-adv": (3, {"linf": "ibp", "l2": "ibp", "l1": "ibp"}),
    "cifar10/resnet20": (3, {"linf": "ibp", "l2": "ibp", "l1": "ibp"}),
}
STEPS, HALVINGS, BUDGET = 30, 6, 270


def texts(name: str) -> list[str]:
    """The attack in each distance it works in, at a small budget; one of a fixed radius inside a search."""
    kind = registry.get("attacks", name)
    own = {field.name for field in fields(kind)}
    if name == "search":
        return []  # every attack of a fixed radius below is one
    steps = [f"steps={STEPS}"] if "steps" in own else []
    made = []
    for distance in kind.does or registry.names("distances"):
        if name == "ensemble":
            made.append(
                f"ensemble(attacks=[alma(distance={distance}, steps={STEPS}), soft-walk(distance={distance}, "
                f"steps={STEPS})])"
            )
            continue
        given = ", ".join([*([f"distance={distance}"] if "distance" in own else []), *steps])
        made.append(f"{name}({given})" if kind.minimal else f"search(attack={name}({given}), halvings={HALVINGS})")
    return made


def everything() -> list[str]:
    """Every attack of the registry in every distance."""
    return [text for name in registry.names("attacks") for text in texts(name)]


def judged(
    model: models.Classifier, x: torch.Tensor, labels: torch.Tensor, radii: dict[str, list[float]], text: str
) -> dict[str, Any]:
    """How many images the attack changed, and which of them below a certified radius: (row, norm, found, certified)."""
    try:
        result = attacks.get(text)(model, x, labels, batch_size=50, budget=BUDGET)
    except AlmakitError as error:
        return {"pairs": 0, "below": [], "refused": str(error)}
    hit = result.success & (result.status != Status.ALREADY_WRONG)
    moved = (result.adversarials - x).double().flatten(1)
    below = []
    for norm, power in NORMS.items():
        away = torch.linalg.vector_norm(moved, power, dim=1).tolist()
        below += [
            (row, norm, away[row], radii[norm][row])
            for row in hit.nonzero().flatten().tolist()
            if away[row] < radii[norm][row]
        ]
    return {"pairs": int(hit.sum()), "below": below}


def measure(results: common.Results, args: argparse.Namespace) -> int:
    if args.again:
        results.cells.clear()
        results.path.unlink(missing_ok=True)
    for name, (count, methods) in NETWORKS.items():
        model = models.load(name)
        x, labels = data.load(str(model.dataset), limit=count).tensors()
        key = f"radii|{name}@{str(model.weights_sha256)[:8]}|{count}"
        if key not in results.cells:
            results.keep(
                key,
                {
                    norm: certified_radius(model, x, labels, norm, method, batch_size=16).tolist()
                    for norm, method in methods.items()
                },
            )
        radii = results.cells[key]
        for text in everything():
            key = f"law|{name}|{count}|{text}"
            if key not in results.cells:
                results.keep(key, judged(model, x, labels, radii, text))
                print(key, results.cells[key], flush=True)
    return int(any(cell["below"] for key, cell in results.cells.items() if key.startswith("law|")))


def sections(results: common.Results, args: argparse.Namespace) -> dict[str, str]:
    """The totals in a sentence or two."""
    cells = {key: cell for key, cell in results.cells.items() if key.startswith("law|")}
    ran = {key: cell for key, cell in cells.items() if "refused" not in cell}
    networks, kinds = {key.split("|")[1] for key in ran}, {key.split("|")[3] for key in ran}
    found = {
        network
        for network in networks
        if any(cell["pairs"] for key, cell in ran.items() if key.split("|")[1] == network)
    }
    text = (
        f"{len(kinds)} attacks (every one of the registry, in each distance that fits) on {len(networks)} networks: "
        f"{sum(cell['pairs'] for cell in ran.values())} image x attack pairs, each measured in linf, l2 and l1, on "
        f"{len(found)} networks with successes; "
        f"{sum(len(cell['below']) for cell in ran.values())} below a certified radius. {len(cells) - len(ran)} "
        "combinations are refused by the "
        "distance or the attack (colour distances on grey images, MS-SSIM on small ones)."
    )
    return {"law": text}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--again", action="store_true", help="measure every cell anew")
