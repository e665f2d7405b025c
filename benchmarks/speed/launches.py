"""Operators and reads back to the host of a query, on the path for devices where reading back is expensive.

    python -m benchmarks speed launches
    python -m benchmarks speed launches --every   reads of every registered attack that takes steps=, on 8 digits; those
                                                  in distances of colours on digits in three channels

A batch of 32 digits on mnist/smallcnn-tiny, selected on the CPU by ALMAKIT_CHEAP_SYNC=0. Counted is every operator that
torch dispatches and that is no view: on a GPU each is a kernel launch. The fixed costs of a call are not in it: two
calls of different lengths are subtracted. Reads are operators whose answer Python waits for. A null attack, which makes
one query and one gradient of the margin per step and nothing else, shows what the bookkeeping takes. Where adv-lib is
installed its attacks are counted beside ours and kept, elsewhere the kept counts are shown. Counts do not depend on
the machine; tests/core/test_launches.py holds them.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from almakit import attacks, data, models, registry
from almakit.core import Attack, Problem
from almakit.errors import BadInput
from benchmarks import peers
from benchmarks.common import Results, markdown

IMAGES, STEPS = 32, (30, 60)
FEW_IMAGES = 8  # for every attack
IN_COLOUR = ("ciede2000", "lpips")
TEXTS = {
    "ALMA l2": "alma(distance=l2, steps={})",
    "DDN": "ddn(steps={})",
    "FMN l2": "fmn(distance=l2, steps={})",
    "APGD linf": "apgd(distance=linf, epsilon=0.1, steps={})",
    "B&B l2": "bb(distance=l2, steps={})",
    "soft walk l2": "soft-walk(distance=l2, steps={})",
    "soft walk linf": "soft-walk(distance=linf, steps={})",
    "soft walk l1": "soft-walk(distance=l1, steps={})",
}
PEERS: dict[str, dict[str, Any]] = {
    "ALMA l2": {"function": "alma", "steps_as": "num_steps", "distance": "l2", "init_lr_distance": 0.1},
    "DDN": {"function": "ddn", "steps_as": "steps"},
    "FMN l2": {"function": "fmn", "steps_as": "steps", "norm": 2},
}


class Launches(TorchDispatchMode):
    """Counts operators that are no views, and those whose answer Python waits for."""

    READS = frozenset(
        ("_local_scalar_dense", "nonzero", "is_nonzero", "equal", "masked_select", "_unique2", "unique_dim")
    )
    INDEXING = frozenset(("index", "index_put", "index_put_"))
    # Views that torch does not call so, and memory that nobody fills.
    NOTHING = frozenset(("detach", "alias", "_unsafe_view", "lift_fresh", "empty", "empty_like", "new_empty"))

    def __init__(self) -> None:
        super().__init__()
        self.operators: Counter[str] = Counter()
        self.reads: Counter[str] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function.overloadpacket.__name__
        masks = name in self.INDEXING and any(each is not None and each.dtype == torch.bool for each in args[1])
        if name in self.READS or masks:
            self.reads[name] += 1
        if not function.is_view and name not in self.NOTHING:
            self.operators[name] += 1
        return function(*args, **(kwargs or {}))


@dataclass(frozen=True)
class Null(Attack):
    """One query and one gradient of the margin per step."""

    steps: int = 100

    def run(self, problem: Problem) -> None:
        for _ in range(self.steps):
            problem.query(problem.x).margin_gradient()


def per_query(call: Callable[[int], int]) -> tuple[float, float]:
    """Operators and reads per query of ``call``, which attacks with so many steps and returns how many queries it
    made."""
    operators, reads, queries = [], [], []
    call(2)  # computes what is kept between calls
    for steps in STEPS:
        with Launches() as counted:
            queries.append(call(steps))
        operators.append(counted.operators.total())
        reads.append(counted.reads.total())
    more = queries[1] - queries[0]
    if not more:
        raise BadInput(f"it makes no more queries in {STEPS[1]} steps than in {STEPS[0]}.")
    return (operators[1] - operators[0]) / more, (reads[1] - reads[0]) / more


def grey(images: int) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """The network and the digits (images, 1, 28, 28)."""
    return models.load("mnist/smallcnn-tiny"), data.load("mnist-demo", limit=images).tensors()[0]


def coloured(images: int) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """The network on the mean of three channels, and the digits (images, 3, 28, 28) in three equal ones, for attacks in
    distances of colours."""
    model, x = grey(images)
    return lambda images: model(images.mean(1, keepdim=True)), x.repeat(1, 3, 1, 1)


def count(
    attack: Callable[[int], Attack], subject: tuple[Callable[[Tensor], Tensor], Tensor] | None = None
) -> tuple[float, float]:
    """Operators and reads per query of an attack of so many steps on a network and images, by default grey digits."""
    model, x = grey(IMAGES) if subject is None else subject
    with torch.no_grad():
        labels = model(x).argmax(1)
    before = os.environ.get("ALMAKIT_CHEAP_SYNC")
    os.environ["ALMAKIT_CHEAP_SYNC"] = "0"
    try:
        return per_query(lambda steps: int(attack(steps)(model, x, labels, check=False).forwards.max()))
    finally:
        os.environ.pop("ALMAKIT_CHEAP_SYNC")
        if before is not None:
            os.environ["ALMAKIT_CHEAP_SYNC"] = before


def count_peer(name: str) -> float:
    """Operators per step of adv-lib's attack."""
    model = models.load("mnist/smallcnn-tiny")
    x = data.load("mnist-demo", limit=IMAGES).tensors()[0]
    with torch.no_grad():
        labels = model(x).argmax(1)
    call = peers.adv_lib(**PEERS[name])

    def attack(steps: int) -> int:
        call(model, x, labels, steps)
        return steps

    return per_query(attack)[0]


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--every", action="store_true", help="also reads of every registered attack with steps")


def measure(results: Results, args: argparse.Namespace) -> None:
    for name in registry.names("attacks") if args.every else ():
        kind = registry.get("attacks", name)
        if "steps" not in (settings := kind.__dataclass_fields__):
            continue
        fixed: dict[str, Any] = {"epsilon": 0.1} if "epsilon" in settings and not kind.minimal else {}
        fixed |= {"searches": 2} if "searches" in settings else {}
        subject = (coloured if repr(kind(**fixed).measure) in IN_COLOUR else grey)(FEW_IMAGES)
        try:
            found = count(lambda steps, kind=kind, fixed=fixed: kind(steps=steps, **fixed), subject)  # type: ignore[misc]
        except BadInput as error:
            print(f"{name} is not counted: {error}")
        else:
            results.keep(f"every {name}", found)
    results.keep("a null attack", {"ours": count(Null)})
    for name, text in TEXTS.items():
        cell = {**results.cells.get(name, {}), "ours": count(lambda steps, text=text: attacks.get(text.format(steps)))}  # type: ignore[misc]
        if name in PEERS and find_spec("adv_lib") is not None:
            cell["adv-lib"] = count_peer(name)
        results.keep(name, cell)


def sections(results: Results, args: argparse.Namespace) -> dict[str, str]:
    del args
    rows = []
    for name in ("a null attack", *TEXTS):
        (operators, reads), peer = results.cells[name]["ours"], results.cells[name].get("adv-lib")
        rows.append([name, f"{operators:.1f}", f"{reads:.2f}", "" if peer is None else f"{peer:.0f}"])
    for name in (name for name in results.cells if name.startswith("every ")):
        rows.append([name.removeprefix("every "), *(f"{value:.2f}" for value in results.cells[name]), ""])
    return {"launches": markdown(["attack ", "operators per query", "reads per query", "adv-lib's operators"], rows)}
