"""The default attack on networks nobody has tuned anything on: the pool's fresh ones, or its sealed half, against every
other attack at the same counted budget.

    python -m benchmarks walk sealed   l1, l2, linf at 40 and 100 queries, l0 at 100; what is kept is not run again
    python -m benchmarks walk sealed --budgets 1000 --images 8 --attacks soft-walk,fmn,bb
    python -m benchmarks walk sealed --peers   adv-lib's and foolbox's attacks (where they are installed)
    python -m benchmarks walk sealed --part sealed   the half that was run twice
    python -m benchmarks walk sealed --table --docs

Nothing may be chosen by these figures. The images are the first of the test sets. A budget of N is N forwards and N
backwards for each image, which the problem itself enforces; other libraries' attacks get N steps and take as many
passes as they take. A figure is the geometric mean of the other attack's distance over the soft walk's on images both
succeed on, with its standard error: above 1 the soft walk is ahead.
"""

from __future__ import annotations

import argparse
import math

from almakit import attacks
from almakit.core import Attack
from benchmarks import common, peers
from benchmarks.pool import networks
from benchmarks.quality import attacks as quality

OURS = quality.OURS
BUDGETS = {"l1": (40, 100), "l2": (40, 100), "linf": (40, 100), "l0": (100,)}
PEERS = {
    **quality.PEERS,
    "linf": {
        "adv-lib fmn": peers.adv_lib("fmn", norm=math.inf),
        "adv-lib fab": peers.adv_lib("fab", "n_iter", norm=math.inf),
        "adv-lib pdpgd": peers.adv_lib("pdpgd", "num_steps", norm=math.inf),
        "foolbox fmn": peers.foolbox("LInfFMNAttack"),
        "foolbox deepfool": peers.foolbox("LinfDeepFoolAttack"),
        "foolbox bb": peers.foolbox_from_others("LinfinityBrendelBethgeAttack"),
    },
}
# Attacks at a fixed radius find the smallest one by search: a try that succeeds stops at once, so an eighth of the
# budget goes into one that fails.
SEARCHES = {
    "apgd + search": "search(attack=apgd(distance={distance}, steps={steps}), halvings=14)",
    "apgd-t + search": "search(attack=apgd(distance={distance}, steps={steps}, loss=targeted-dlr, rivals=2), "
    "halvings=14)",
}


def build(name: str, distance: str, budget: int) -> Attack | None:
    if name in SEARCHES:
        return (
            attacks.get(SEARCHES[name].format(distance=distance, steps=max(2, budget // 8)))
            if distance == "linf"
            else None
        )  # type: ignore[return-value]
    return quality.build(name, distance, budget)


def measure(results: common.Results, args: argparse.Namespace) -> None:
    wanted = args.attacks.split(",") if args.attacks else []
    ours = wanted or [OURS, *[name for name in quality.candidates() if name != OURS], *SEARCHES]
    for distance in args.distances.split(","):
        for budget in [int(text) for text in args.budgets.split(",") if text] or BUDGETS[distance]:
            for name in (
                [name for name in PEERS.get(distance, {}) if not wanted or name in wanted] if args.peers else ours
            ):
                if not args.peers and build(name, distance, budget) is None:
                    continue
                for network in networks.halves()[args.part]:
                    key = f"{network}|{distance}|{name}|{budget}|{args.images}"
                    if key not in results.cells:
                        results.keep(key, one(network, distance, name, budget, args.images))
                        print(
                            key,
                            results.cells[key]["asr"],
                            results.cells[key]["median"],
                            f"{results.cells[key]['seconds']:.1f} s",
                            flush=True,
                        )


def one(network: str, distance: str, name: str, budget: int, count: int) -> common.Cell:
    model, (x, labels) = networks.load(network, sealed=True), networks.images(network, range(count))
    if name in PEERS.get(distance, {}):
        return common.run_peer(PEERS[distance][name], model, x, labels, budget, distance, 64)
    attack = build(name, distance, budget)
    assert attack is not None, f"{name} does not do {distance}"
    return common.run_ours(attack, model, x, labels, 64, budget)


def ratios(results: common.Results, part: str, distance: str, attack: str, budget: int) -> dict[str, list[float]]:
    """By network, the other attack's distances over the soft walk's."""
    pairs = {name: _pair(results, name, distance, attack, budget) for name in networks.halves()[part]}
    found = {name: common.paired(*pair) for name, pair in pairs.items() if pair is not None}
    return {name: values for name, values in found.items() if len(values) > 1}


def overall(results: common.Results, part: str, distance: str, attack: str, budget: int) -> str:
    """The geometric mean over networks."""
    found = ratios(results, part, distance, attack, budget)
    means = [common.geometric_mean(values) for values in found.values()]
    return f"{common.geometric_mean(means):.3f}" if means else "–"


def kinds(results: common.Results, part: str) -> list[tuple[str, int, str]]:
    found = {
        (distance, int(budget), attack)
        for name, distance, attack, budget, _ in (key.split("|") for key in results.cells)
        if name in networks.halves()[part]
    }
    return sorted(kind for kind in found if kind[2] != OURS)


def means(results: common.Results, part: str) -> str:
    """Attacks by distances and budgets: the geometric mean over all networks."""
    columns = sorted({(distance, budget) for distance, budget, _ in kinds(results, part)})
    names = sorted({attack for _, _, attack in kinds(results, part)})
    head = ["attack ", *[f"{distance}, {budget}" for distance, budget in columns]]
    return common.markdown(
        head,
        [[name, *[overall(results, part, distance, name, budget) for distance, budget in columns]] for name in names],
    )


def sections(results: common.Results, args: argparse.Namespace) -> dict[str, str]:
    found = {}
    for part in ("fresh", "sealed") if args.docs else (args.part,):
        found |= {part: table(results, part), f"{part} means": means(results, part)}
    return found


def table(results: common.Results, part: str) -> str:
    """One row for each distance, budget and other attack: the ratio on each network and how many images each missed
    that the other found."""
    names, lines = networks.halves()[part], []
    for distance, budget, attack in kinds(results, part):
        cells, missed, ours_missed, found = [], 0, 0, ratios(results, part, distance, attack, budget)
        for name in names:
            pair = _pair(results, name, distance, attack, budget)
            for theirs, ours in zip(pair[0]["distances"], pair[1]["distances"], strict=True) if pair else ():
                missed += theirs is None and ours is not None
                ours_missed += ours is None and theirs is not None
            cells.append("{:.2f} ± {:.2f}".format(*common.mean_and_error(found[name])) if name in found else "–")
        mean = overall(results, part, distance, attack, budget)
        lines.append([distance, str(budget), attack, f"**{mean}**", f"{missed} / {ours_missed}", *cells])
    return common.markdown(["distance ", "budget", "attack ", "all", "missed alone: it / soft walk", *names], lines)


def _pair(
    results: common.Results, name: str, distance: str, attack: str, budget: int
) -> tuple[common.Cell, common.Cell] | None:
    """The other attack's cell and the soft walk's on the same first images; None where one is missing."""
    found = []
    for which in (attack, OURS):
        counts = [
            int(key.rsplit("|", 1)[1])
            for key in results.cells
            if key.startswith(f"{name}|{distance}|{which}|{budget}|")
        ]
        if not counts:
            return None
        found.append(results.cells[f"{name}|{distance}|{which}|{budget}|{max(counts)}"])
    return common.first_images(*found)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--part", default="fresh", choices=("fresh", "sealed"), help="of the pool")
    parser.add_argument("--distances", default="linf,l2,l1,l0")
    parser.add_argument("--budgets", default="", help="comma-separated numbers; default 40 and 100")
    parser.add_argument("--attacks", default="", help="default: all that minimise, and APGD with search in linf")
    parser.add_argument("--images", type=int, default=24)
    parser.add_argument("--peers", action="store_true", help="run other libraries' attacks instead of ours")
