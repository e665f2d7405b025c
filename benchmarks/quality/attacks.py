"""Every minimal attack on the same images at the same budget: who finds the smallest perturbation?

    python -m benchmarks quality --models smallcnn --images 8 --budgets 30,100 --out /tmp/quality.json
    python -m benchmarks quality --models mnist --distances l2,l1 --budgets 100,300
    python -m benchmarks quality --attacks soft-walk,alma   only these; cells already in the results are not run
      again
    python -m benchmarks quality --models masked --peers   other libraries' attacks too (in an environment that has
      them, see parity.py)
    python -m benchmarks quality --models cnn-a --distances l4,weighted-l2,dists-like --attacks alma,soft-walk
    python -m benchmarks quality --table --docs   the kept results as markdown, into docs/figures/quality.md

A budget of N allows each image N forwards and N backwards, enforced by the problem itself for every attack alike. The
images reported on begin at the first of the test set (``subjects.REPORTED``); those the default attack was chosen on
are MNIST's test images from 9000 and CIFAR-10's from 2000 on and are never reported on. The reference of the paired
ratio is ALMA with 1000 steps on the same images: the authors' library's where benchmarks/parity.py has kept it,
otherwise ours. The ratio is the geometric mean of d / d_reference over images both succeed on, with its standard error
and the worst single image.
"""

from __future__ import annotations

import argparse
import math
import statistics
from functools import cache

from almakit import registry
from almakit.core import Attack
from almakit.core.attack import resolve_distance
from benchmarks import RESULTS, common, peers, subjects

NETWORKS = (*subjects.ZOO, *subjects.MASKED, *subjects.PHOTOS)
BUDGETS = (30, 100, 300, 1000)
REFERENCE = ("alma", 1000)
# The default attack, and the stored distances of the one before it: ALMA-plus of version 0.1.
OURS, BEFORE = "soft-walk", "alma-plus"
PEERS: dict[str, dict[str, peers.Peer]] = {
    "l2": {
        "adv-lib alma": peers.adv_lib("alma", "num_steps", distance="l2", init_lr_distance=0.1),
        "adv-lib ddn": peers.adv_lib("ddn"),
        "adv-lib fmn": peers.adv_lib("fmn", norm=2),
        "adv-lib pdgd": peers.adv_lib("pdgd", "num_steps"),
        "adv-lib cw": peers.shared_out(peers.adv_lib("carlini_wagner_l2", "max_iterations")),
        "adv-lib fab": peers.adv_lib("fab", "n_iter", norm=2),
        "foolbox ddn": peers.foolbox("DDNAttack"),
        "foolbox fmn": peers.foolbox("L2FMNAttack"),
        "foolbox deepfool": peers.foolbox("L2DeepFoolAttack"),
        "foolbox cw": peers.shared_out(peers.foolbox("L2CarliniWagnerAttack")),
        "foolbox bb": peers.foolbox_from_others("L2BrendelBethgeAttack"),
    },
    "l1": {
        "adv-lib alma": peers.adv_lib("alma", "num_steps", distance="l1", init_lr_distance=0.5),
        "adv-lib fmn": peers.adv_lib("fmn", norm=1),
        "adv-lib pdpgd": peers.adv_lib("pdpgd", "num_steps", norm=1),
        "adv-lib fab": peers.adv_lib("fab", "n_iter", norm=1),
        "foolbox fmn": peers.foolbox("L1FMNAttack"),
        "foolbox ead": peers.shared_out(peers.foolbox("EADAttack")),
        "foolbox bb": peers.foolbox_from_others("L1BrendelBethgeAttack"),
    },
}
"""Other libraries' attacks that take a number of steps, with their own defaults; C&W's and EAD's nine searches share
the budget out as ours do, and B&B is given starting points. Some need more passes than steps; the table shows how
many."""


def candidates() -> list[str]:
    """The registered attacks that look for the smallest perturbation by themselves."""
    kinds = {name: registry.get("attacks", name) for name in registry.names("attacks")}
    return [name for name, kind in kinds.items() if kind.minimal and name not in ("search", "ensemble", "alma-prox")]


def build(name: str, distance: str, budget: int) -> Attack | None:
    """The attack with the budget as its number of steps; None where it does not do the distance."""
    kind = registry.get("attacks", name)
    if kind.does is not None and distance not in kind.does:
        return None
    fields = kind.__dataclass_fields__
    settings = {"distance": subjects.distance(distance)} if "distance" in fields else {}
    if "steps" in fields:
        # Attacks with an outer search share the budget out between its rounds.
        settings["steps"] = max(1, budget // (fields["searches"].default if "searches" in fields else 1))
    return kind(**settings)


@cache
def _parity() -> common.Results:
    return common.Results(RESULTS / "parity.json", must_exist=True)


def reference(results: common.Results, model: str, distance: str, count: int) -> tuple[str, common.Cell] | None:
    """The authors' library's ALMA at 1000 steps on the first ``count`` images where parity.py kept it, else our own."""
    kept = _parity().cells
    # The authors' library has no correct CIEDE2000: there our ALMA's cell is taken.
    first_step, who = ("0.5", "ours") if distance == "ciede2000" else ("paper", "adv-lib")
    for key, value in kept.items():
        if (
            f"|{model}|{distance}|{first_step}|1000 steps|" in key
            and key.endswith(who)
            and len(value["distances"]) >= count
        ):
            return who, {**value, "distances": value["distances"][:count]}
    name = f"{model}|{distance}|{REFERENCE[0]}|{REFERENCE[1]}|"
    counts = sorted(
        number for key in results.cells if key.startswith(name) and (number := int(key.rsplit("|", 1)[1])) >= count
    )
    if not counts:
        return None
    own = results.cells[f"{name}{counts[0]}"]
    return "ours", {**own, "distances": own["distances"][:count]}


def row(results: common.Results, key: str) -> list[str]:
    """A line of the table."""
    model, distance, attack, budget, count = key.split("|")
    cell = results.cells[key]
    found = [value for value in cell["distances"] if value is not None]
    against = reference(results, model, distance, int(count))
    ratio = "–"
    if against is not None and len(ratios := common.paired(cell, against[1])) > 1:
        mean, error = common.mean_and_error(ratios)
        ratio = f"{mean:.3f} ± {error:.3f}, worst {ratios[-1]:.2f} ({against[0]})"
    median = "–" if cell["median"] is None else f"{cell['median']:.4g}"
    middle = f"{statistics.fmean(found):.4g}" if found else "–"
    return [
        model,
        distance,
        budget,
        attack,
        f"{cell['asr']:.1f}",
        median,
        middle,
        ratio,
        f"{cell['forwards']:.0f} / {cell['backwards']:.0f}",
        f"{cell['seconds']:.0f}",
        count,
    ]


def table(results: common.Results) -> str:
    head = [
        "network ",
        "distance ",
        "budget",
        "attack ",
        "ASR %",
        "median",
        "mean of found",
        "ratio to ALMA 1000",
        "F / B",
        "seconds",
        "images",
    ]

    def order(key: str) -> tuple[str, str, int, float]:
        model, distance, _, budget, _ = key.split("|")
        return model, distance, int(budget), results.cells[key]["median"] or math.inf

    return common.markdown(head, [row(results, key) for key in sorted(results.cells, key=order)])


def largest(results: common.Results) -> dict[tuple[str, str, int], dict[str, common.Cell]]:
    """The cell with most images of each attack, by network, distance and budget."""
    groups: dict[tuple[str, str, int], dict[str, common.Cell]] = {}
    for key, cell in results.cells.items():
        model, distance, attack, budget, _ = key.split("|")
        group = groups.setdefault((model, distance, int(budget)), {})
        if attack not in group or len(cell["distances"]) > len(group[attack]["distances"]):
            group[attack] = cell
    return groups


def standing(results: common.Results) -> str:
    """Where the soft walk stands in every comparison: its median beside the smallest of all others at the same budget,
    on the first images all of them have."""
    rows = []
    for (model, distance, budget), cells in sorted(largest(results).items()):
        if OURS not in cells or len(cells) < 2:
            continue
        count = min(len(cell["distances"]) for cell in cells.values())
        cells = {name: {**cell, "distances": cell["distances"][:count]} for name, cell in cells.items()}
        own, others = cells.pop(OURS), cells
        medians = {name: common.median(cell["distances"]) for name, cell in others.items()}
        best, median = min(others, key=lambda name: medians[name]), common.median(own["distances"])
        ahead = sum(value < median for value in medians.values())
        rows.append(
            [
                model,
                distance,
                str(budget),
                str(len(others)),
                f"{median:.4g}",
                best,
                f"{medians[best]:.4g}",
                f"{100 * (medians[best] / median - 1):+.1f} %",
                _pair_by_pair(others[best], own),
                "**first**" if not ahead else f"{ahead + 1} of {len(cells) + 1}",
                ", ".join(_ahead_pair_by_pair(others, own)) or "–",
                str(count),
            ]
        )
    head = [
        "network ",
        "distance ",
        "budget",
        "others",
        "median",
        "best other ",
        "its median",
        "larger by",
        "pair by pair",
        "place",
        "ahead pair by pair ",
        "images",
    ]
    return common.markdown(head, rows)


def before(results: common.Results) -> str:
    """The default attack over that of version 0.1, pair by pair, in every cell both have; geometric means over the
    networks last."""
    rows, means = [], {}
    for (model, distance, budget), cells in sorted(largest(results).items()):
        if OURS not in cells or BEFORE not in cells:
            continue
        cell, old = common.first_images(cells[OURS], cells[BEFORE])
        if len(common.paired(cell, old)) < 2:
            continue
        mean, error = common.mean_and_error(common.paired(cell, old))
        missed = sum(value is None for value in cell["distances"]) - sum(value is None for value in old["distances"])
        means.setdefault((distance, budget), []).append(mean)
        figure = f"{mean:.3f} ± {error:.3f}"
        rows.append(
            [model, distance, str(budget), figure, f"{missed:+d}" if missed else "–", str(len(cell["distances"]))]
        )
    for (distance, budget), found in sorted(means.items()):
        rows.append([f"**all {len(found)}**", distance, str(budget), f"**{common.geometric_mean(found):.3f}**", "", ""])
    return common.markdown(["network ", "distance ", "budget", "over version 0.1's", "more failed", "images"], rows)


def _pair_by_pair(rival: common.Cell, own: common.Cell) -> str:
    """How much larger the rival's distances are, with the standard error."""
    mean, error = common.mean_and_error(common.paired(rival, own))
    return f"{100 * (mean - 1):+.1f} ± {100 * error:.1f} %"


def _ahead_pair_by_pair(others: dict[str, common.Cell], own: common.Cell) -> list[str]:
    """The attacks whose distances are smaller by more than the standard error, not judged by a few images alone."""
    ratios = {name: common.paired(cell, own) for name, cell in others.items()}
    means = {name: common.mean_and_error(found) for name, found in ratios.items() if len(found) >= 5}
    return sorted(name for name, (mean, error) in means.items() if math.log(mean) < -error / mean)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--models", default="", help="comma-separated words; networks whose name contains one")
    parser.add_argument("--distances", default="", help="comma-separated names; default: all that suit the data set")
    parser.add_argument("--attacks", default="", help="comma-separated names; default: all registered minimal attacks")
    parser.add_argument("--budgets", default="", help="comma-separated numbers; default 30,100,300,1000")
    parser.add_argument("--images", type=int, help="how many images; default 100 of MNIST, 32 of CIFAR-10")
    parser.add_argument("--peers", action="store_true", help="run other libraries' attacks instead of ours")
    parser.add_argument("--batch", type=int, default=64)


def measure(results: common.Results, args: argparse.Namespace) -> None:
    words = [word for word in args.models.split(",") if word]
    budgets = [int(b) for b in args.budgets.split(",") if b] or BUDGETS
    names = [name for name in args.attacks.split(",") if name] or candidates()
    for model in [name for name in NETWORKS if not words or any(word in name for word in words)]:
        dataset = model.split("/")[0]
        count = args.images or subjects.REPORTED[dataset]
        for distance in [d for d in args.distances.split(",") if d] or subjects.DISTANCES[dataset]:
            if distance not in subjects.UNKNOWN:
                resolve_distance(distance)
            for budget in budgets:
                for name in PEERS.get(distance, {}) if args.peers else names:
                    key = f"{model}|{distance}|{name}|{budget}|{count}"
                    if key in results.cells or not (args.peers or build(name, distance, budget)):
                        continue
                    results.keep(key, one(model, distance, name, budget, count, args.batch))
                    print(" ".join(row(results, key)), flush=True)


def sections(results: common.Results, args: argparse.Namespace) -> dict[str, str]:
    return {"quality": table(results), "standing": standing(results), "before": before(results)}


def one(model: str, distance: str, name: str, budget: int, count: int, batch: int) -> common.Cell:
    """Runs one cell."""
    (x, labels), net = subjects.images(model, count), subjects.network(model)
    if name in PEERS.get(distance, {}):
        return common.run_peer(PEERS[distance][name], net, x, labels, budget, distance, batch)
    attack = build(name, distance, budget)
    assert attack is not None, f"{name} does not do {distance}"
    return common.run_ours(attack, net, x, labels, batch, budget)
