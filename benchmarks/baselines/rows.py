"""What ``baselines.py`` compares: for each attack and distance our texts, the same attack in other libraries, the
paper's line and the images."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from benchmarks import peers

NORMS = {"l0": 0.0, "l1": 1.0, "l2": 2.0, "linf": math.inf}
MNIST = ("smallcnn", "smallcnn-ddn", "smallcnn-trades")
CIFAR = ("resnet20", "resnet4b-adv")


@dataclass(frozen=True)
class Row:
    """One attack and distance: our default and variants of it as texts, peers, the paper's (attack, budget), and which
    images.

    ``passes`` is about how many forwards with a backward an image costs, to run cheap rows first. ``fewer`` says who
    gets fewer images than ``images``, counted from ``first`` on; who is compared is compared on the images both had.
    ``epsilon`` makes it a row of success rates inside that radius.
    """

    attack: str
    distance: str
    ours: str
    also: dict[str, str] = field(default_factory=dict)
    peers: dict[str, peers.Peer] = field(default_factory=dict)
    paper: tuple[str, str] | None = None
    steps: int = 100
    passes: int = 100
    data: str = "mnist"
    networks: tuple[str, ...] = MNIST
    first: int = 0
    images: int = 200
    fewer: dict[str, int] = field(default_factory=dict)
    epsilon: float | None = None

    @property
    def key(self) -> str:
        return f"{self.attack}/{self.distance}"

    def count(self, who: str) -> int:
        """How many images ``who`` is run on."""
        return self.fewer.get(who, self.images)


# DeepFool's damping, the primal-dual attacks' ratio and sigma-zero's trim were chosen on the first 64 test images: they
# are judged on others.
UNSEEN = 200


def _steps_of_100() -> Iterator[Row]:
    """Attacks with one gradient a step, or that are done after a few."""
    yield Row(
        "ddn",
        "l2",
        "ddn(steps=100)",
        {"ours, as published": "ddn(steps=100, adaptive=false, levels=256)"},
        {
            "adv-lib": peers.adv_lib("ddn", levels=None),
            "adv-lib, 256 levels": peers.adv_lib("ddn", levels=256),
            "foolbox": peers.foolbox("DDNAttack"),
        },
        ("ddn", "100"),
    )
    for name, norm in NORMS.items():
        said, title = f"distance={name}, steps=100", "LInf" if name == "linf" else name.upper()
        in_paper = name in ("l1", "l2")
        yield Row(
            "fmn",
            name,
            f"fmn({said})",
            {"ours, as published": f"fmn({said}, adaptive=false, overshoot=0)"} if in_paper else {},
            {"adv-lib": peers.adv_lib("fmn", norm=norm), "foolbox": peers.foolbox(f"{title}FMNAttack")},
            ("fmn", "100") if in_paper else None,
        )
        yield Row(
            "pdpgd",
            name,
            f"pdpgd({said})",
            {},
            {"adv-lib": peers.adv_lib("pdpgd", "num_steps", norm=norm)},
            first=UNSEEN,
        )
        if name in ("l2", "linf"):
            deepfool = {
                "adv-lib": peers.adv_lib("df", norm=norm),
                "foolbox": peers.foolbox("L2DeepFoolAttack" if name == "l2" else "LinfDeepFoolAttack"),
            }
            if name == "l2":
                deepfool["torchattacks"] = peers.torchattacks("DeepFool")
            yield Row(
                "deepfool",
                name,
                f"deepfool({said})",
                {"ours, as published": f"deepfool({said}, boxed=false, damping=1, pull_back=0)"},
                deepfool,
                first=UNSEEN,
                passes=60,
                fewer={"torchattacks": 50},
            )
            yield Row(
                "tr",
                name,
                f"tr({said})",
                {"ours, fixed radius": f"tr({said}, adaptive=false)", "ours, no pull-back": f"tr({said}, pull_back=0)"},
                {
                    "adv-lib": peers.adv_lib("tr", "iter", p=norm),
                    "adv-lib, adaptive": peers.adv_lib("tr", "iter", p=norm, adaptive=True),
                },
                passes=50,
                images=100,
            )
    yield Row(
        "vfga",
        "l0",
        "vfga(steps=100)",
        {},
        {"adv-lib": peers.adv_lib("vfga", "max_iter", targeted=False)},
        passes=600,
        images=32,
    )
    yield Row(
        "superdeepfool",
        "l2",
        "superdeepfool(steps=100)",
        {"ours, as published": "superdeepfool(steps=100, preset=paper)"},
        {"adv-lib": peers.adv_lib("sdf")},
        passes=70,
    )
    yield Row("pdgd", "l2", "pdgd(steps=100)", {}, {"adv-lib": peers.adv_lib("pdgd", "num_steps")}, first=UNSEEN)
    yield Row(
        "sigma-zero",
        "l0",
        "sigma-zero(steps=100)",
        {"ours, as published": "sigma-zero(steps=100, trim=0)"},
        {"adv-lib": peers.adv_lib("sigma_zero", "num_steps")},
        first=UNSEEN,
    )


def _fixed_radius() -> Iterator[Row]:
    """Success inside a given radius: about the median distance of the ordinary network."""
    for name, norm, epsilon in (("l1", 1.0, 8.0), ("l2", 2.0, 1.5), ("linf", math.inf, 0.15)):
        others = {"adv-lib": peers.adv_lib("apgd", "n_iter", norm=norm, eps=epsilon, use_large_reps=name == "l1")}
        if name != "l1":
            others["torchattacks"] = peers.torchattacks(
                "APGD", norm={"l2": "L2", "linf": "Linf"}[name], eps=epsilon, loss="dlr"
            )
        said = f"distance={name}, epsilon={epsilon:g}, steps=100"
        # The peers climb DLR: with the same loss the libraries are compared, with our default the losses too.
        yield Row(
            "apgd",
            f"{name} <= {epsilon:g}",
            f"apgd({said})",
            {"ours, dlr": f"apgd({said}, loss=dlr)"},
            others,
            epsilon=epsilon,
            passes=70,
        )
        if name != "l1":
            title = "LinfPGD" if name == "linf" else "L2PGD"
            torch_name = {"l2": "PGDL2", "linf": "PGD"}[name]
            yield Row(
                "pgd",
                f"{name} <= {epsilon:g}",
                f"pgd(distance={name}, epsilon={epsilon:g}, steps=40)",
                {},
                {
                    "foolbox": peers.foolbox_at(title, epsilon, rel_stepsize=2.5 / 40),
                    "torchattacks": peers.torchattacks(torch_name, eps=epsilon, alpha=2.5 / 40 * epsilon),
                },
                epsilon=epsilon,
                passes=30,
                steps=40,
            )


def _several_gradients() -> Iterator[Row]:
    """FAB, EAD, searches on epsilon or a weight, B&B."""
    for name in ("l1", "l2", "linf"):
        norm, said = NORMS[name], f"distance={name}, steps=100"
        fab = {"adv-lib": peers.adv_lib("fab", "n_iter", norm=norm)}
        if name != "l1":  # torchattacks' l1 version stops with an error
            fab["torchattacks"] = peers.torchattacks("FAB", norm="Linf" if name == "linf" else "L2", eps=1e9)
        in_paper = ("fab", "100") if name != "linf" else None
        yield Row(
            "fab",
            name,
            f"fab({said})",
            {"ours, as published": f"fab({said}, search=0)"} if in_paper else {},
            fab,
            in_paper,
            passes=700,
            fewer={"torchattacks": 50, "ours, as published": 100},
        )
        yield Row(
            "fab-t",
            name,
            f"fab({said}, targeted_classes=9)",
            {},
            {"adv-lib": peers.adv_lib("fab", "n_iter", norm=norm, targeted_restarts=True, restarts=9)},
            passes=1100,
            images=50,
        )
        largest = {"l1": 40.0, "l2": 5.0, "linf": 0.5}[name]
        yield Row(
            "apgd+search",
            name,
            f"search(attack=apgd({said}), largest={largest:g}, halvings=13)",
            {},
            {
                "adv-lib": peers.adv_lib(
                    "auto_pgd.minimal_apgd",
                    "n_iter",
                    norm=norm,
                    max_eps=largest,
                    binary_search_steps=13,
                    use_large_reps=name == "l1",
                )
            },
            passes=1300,
            images=50,
        )
        yield Row(
            "bb",
            name,
            f"bb({said})",
            {},
            {
                "foolbox": peers.foolbox_from_others(
                    "LinfinityBrendelBethgeAttack" if name == "linf" else f"{name.upper()}BrendelBethgeAttack"
                )
            },
            passes=400,
            images=100,
            fewer={"foolbox": 50},
        )
    yield Row(
        "ead",
        "l1",
        "ead(steps=100)",
        {"ours, as published": "ead(steps=100, rule=en)"},
        {"foolbox": peers.foolbox("EADAttack"), "torchattacks": peers.torchattacks("EADL1", "max_iterations")},
        ("ead", "9x100"),
        passes=450,
        fewer={"torchattacks": 50, "ours, as published": 100},
    )
    yield Row(
        "strattack",
        "l2",
        "strattack(steps=200)",
        {},
        {"adv-lib": peers.adv_lib("str_attack", "max_iterations")},
        steps=200,
        passes=2500,
        images=20,
    )
    yield Row(
        "alma-prox",
        "linf",
        "alma-prox(steps=500)",
        {},
        {"adv-lib": peers.adv_lib_alma_prox},
        steps=500,
        passes=500,
        images=100,
    )
    for name in ("l1", "l2"):
        yield Row(
            "alm",
            name,
            f"alm(distance={name}, outer=10, inner=100)",
            {"alma, 1000 steps": f"alma(distance={name}, steps=1000)"},
            {},
            passes=1000,
            images=50,
        )
    yield Row(
        "cw",
        "l2",
        "cw(steps=1000)",
        {},
        {
            "adv-lib": peers.adv_lib("carlini_wagner_l2", "max_iterations"),
            "foolbox": peers.foolbox("L2CarliniWagnerAttack"),
        },
        ("cw", "9x1000"),
        steps=1000,
        passes=7000,
        images=50,
        fewer={"adv-lib": 20, "foolbox": 20},
    )
    # Another algorithm for linf than ours, of 20 rounds and more: on linear models only.
    yield Row(
        "cw",
        "linf",
        "cw(distance=linf, steps=100)",
        {},
        {"adv-lib": peers.adv_lib("carlini_wagner_linf", "max_iterations")},
        networks=(),
    )
    yield Row(
        "apgd-t+search",
        "l2",
        "search(attack=apgd(distance=l2, steps=100, loss=targeted-dlr, rivals=9), largest=5, halvings=13)",
        {},
        {
            "adv-lib": peers.adv_lib(
                "auto_pgd.minimal_apgd", "n_iter", norm=2.0, max_eps=5.0, binary_search_steps=13, targeted_version=True
            )
        },
        ("apgd-t-dlr+search", ""),
        passes=11000,
        images=50,
        fewer={"adv-lib": 10},
    )


def _perceptual() -> Iterator[Row]:
    """CIFAR-10 in colour, structure and features; the networks are not the paper's."""
    perc_al = {"adv-lib": peers.adv_lib("perc_al", "max_iterations", num_classes=10)}
    for name in ("ciede2000", "ciede2000-paper"):
        yield Row(
            "perc-al",
            name,
            f"perc-al(distance={name}, steps=100)",
            {"ours, as published": f"perc-al(distance={name}, steps=100, levels=256)"},
            perc_al,
            passes=1000,
            data="cifar10",
            networks=CIFAR,
            images=64,
        )
    yield Row(
        "lpa+search",
        "lpips",
        "search(attack=lpa(steps=40, searches=5), largest=0.5, halvings=10)",
        {},
        {},
        passes=8000,
        data="cifar10",
        networks=("resnet4b-adv",),
        images=64,
    )
    yield Row(
        "lpa+search",
        "lpips",
        "search(attack=lpa(steps=40, searches=5), largest=0.5, halvings=10)",
        {},
        {},
        passes=30000,
        data="cifar10",
        networks=("resnet20",),
        images=32,
    )
    for name in ("ciede2000", "ciede2000-paper", "ssim", "lpips"):
        yield Row(
            "cw",
            name,
            f"cw(distance={name}, steps=100)",
            {"alma, 1000 steps": f"alma(distance={name}, steps=1000)"},
            {},
            passes=5000,
            data="cifar10",
            networks=("resnet4b-adv",),
            images=64,
        )
        yield Row(
            "cw 9x1000",
            name,
            f"cw(distance={name}, steps=1000)",
            {},
            {},
            passes=30000,
            data="cifar10",
            networks=("resnet4b-adv",),
            images=32,
        )
        yield Row(
            "cw",
            name,
            f"cw(distance={name}, steps=100)",
            {},
            {},
            passes=20000,
            data="cifar10",
            networks=("resnet20",),
            images=32,
        )


ROWS: list[Row] = [*_steps_of_100(), *_fixed_radius(), *_several_gradients(), *_perceptual()]
