"""Attacks of foolbox, torchattacks, adv-lib, ART and AutoAttack beside ours in one run, and ours driven by two of
those libraries.

    python -m benchmarks libraries bridges   100 MNIST images, 8 minutes of one core; the table, and the run
      folder runs/bridges
    python -m benchmarks libraries bridges --docs   also writes the table into docs/figures/bridges.md

Four things are shown. The table comes from one `almakit run` and its report. The passes an attack is charged are what
hooks on the model count, and what it finds behind our judge is nowhere worse than what the library returns by itself,
both on the first 20 images. And ALMA driven through foolbox's and adv-lib's own calls must give the very numbers of
``ALMA(...)``. Whatever does not hold makes the exit code 1.

All libraries together need an environment of their own (their pins do not agree), with ``src`` and ``tests`` on
PYTHONPATH and ALMAKIT_DATA set:

    pip install torch==2.13.0 foolbox==3.3.4 adv-lib==0.2.8 pyautoattack==0.2.0 adversarial-robustness-toolbox==1.20.1
    six cloudpickle pip install --no-deps torchattacks==3.5.1
"""

from __future__ import annotations

import argparse
import math
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import SimpleNamespace

import torch
from laws.models import Counted
from torch import Tensor, nn

from almakit import ALMA, Run, data, models
from almakit.attacks import get
from almakit.cli.main import main as almakit
from almakit.core import Box, Result, Status
from benchmarks import RESULTS, common, peers

MODEL = "mnist/smallcnn-trades"
FOREIGN = (
    "foolbox:DDNAttack(steps=100)",
    "foolbox:L2FMNAttack(steps=100)",
    "foolbox:LInfFMNAttack(steps=100)",
    "foolbox:EADAttack(binary_search_steps=3, steps=100)",
    "torchattacks:CW(c=10, steps=100, lr=0.05)",
    "adv-lib:alma(num_steps=100, distance=l2, init_lr_distance=0.1, alpha=0.5)",
    "adv-lib:alma(num_steps=100, distance=l1, init_lr_distance=0.5, alpha=0.5)",
    "adv-lib:pdpgd(norm=1, num_steps=100)",
    "art:DeepFool(max_iter=50, batch_size=100)",
    "autoattack:apgd-t(norm=Linf, eps=0.3)",
)
OURS = (
    "alma(distance=l2, steps=100)",
    "alma(distance=l1, steps=100)",
    "ddn(steps=100)",
    "fmn(distance=l2, steps=100)",
    "fmn(distance=linf, steps=100)",
    "ead(steps=100, searches=3)",
    "pdpgd(distance=l1, steps=100)",
    "deepfool(steps=50)",
    "soft-walk(distance=l2, steps=100)",
    "soft-walk(distance=l1, steps=100)",
    "soft-walk(distance=linf, steps=100)",
)
LIBRARIES = ("foolbox", "torchattacks", "adv-lib", "adversarial-robustness-toolbox", "pyautoattack")


def sections(results: common.Results, args: argparse.Namespace) -> dict[str, str]:
    """The run's summary, distance by distance."""
    head = ["attack ", "distance", "success %", "median", "forwards", "backwards", "survive 8 bits %"]
    rows = []
    for text, cell in sorted(
        results.cells.items(), key=lambda pair: (pair[1]["distance"], pair[1]["median"] or math.inf)
    ):
        row = [f"`{text}`", cell["distance"], f"{100 * cell['success']:.0f}"]
        row.append("–" if cell["median"] is None else f"{cell['median']:.3f}")
        rows.append([*row, *(f"{cell[name]:.0f}" for name in ("forwards", "backwards"))])
        rows[-1].append(f"{100 * cell['success_8bit']:.0f}")
    try:
        versions = ", ".join(f"{name} {version(name)}" for name in LIBRARIES)
    except PackageNotFoundError as error:
        raise SystemExit(f"{error.name} is not installed here, and the table names its version.") from error
    return {"bridges": f"{common.markdown(head, rows)}\n\nVersions: {versions}."}


def kept(run: Run) -> dict[str, dict[str, object]]:
    """What is kept of the run in results/bridges.json."""
    return {
        part["attack"]: {
            "distance": part["distance"],
            "success": part["success_rate"]["value"],
            "median": part["median_all"]["value"],
            "success_8bit": part["success_rate_8bit"]["value"],
            "forwards": part["forwards"]["mean"],
            "backwards": part["backwards"]["mean"],
        }
        for part in run.summary["attacks"]
    }


class Bare(nn.Module):
    """The model without our judge before it, with what a bridge asks of one."""

    def __init__(self, model: nn.Module, x: Tensor):
        super().__init__()
        self.model = model
        self.problem = SimpleNamespace(box=Box(), clean_logits=model(x), random=SimpleNamespace(seed=0))

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x)


def not_as_good(text: str, model: nn.Module, x: Tensor, labels: Tensor, result: Result) -> list[str]:
    """Whether the library by itself found for some image what ``result`` has not, or something nearer; random attacks
    are left out."""
    attack = get(text)
    if text.startswith("autoattack"):
        return []
    todo = (result.status != Status.ALREADY_WRONG).nonzero().flatten()
    alone = attack.perturb(Bare(model, x[todo]).eval(), x[todo], labels[todo], None).detach()
    with torch.no_grad():
        logits, distances = model(alone), attack.measure(x[todo], alone)
    rival = logits.scatter(1, labels[todo, None], float("-inf")).amax(1) - logits.gather(1, labels[todo, None])[:, 0]
    # A lead within the rounding of the logits is no success for us: it may be gone in another batch.
    fooled = rival > 1e-5 * (logits.amax(1) - logits.amin(1)) + 1e-6 * logits.abs().amax(1)
    print(
        f"    by itself: {int(fooled.sum())} of {len(todo)} fooled; behind the judge: "
        f"{int(result.success[todo].sum())}",
        flush=True,
    )
    worse = fooled & ~(result.distances[todo] <= distances * (1 + 1e-4))
    return [f"{text}: by itself better on {int(worse.sum())} images"] if bool(worse.any()) else []


def counts_differ(model: nn.Module, x: Tensor, labels: Tensor) -> list[str]:
    """Attacks whose recorded passes are not what hooks count, or that do worse than by themselves."""
    wrong = []
    for text in FOREIGN:
        counted = Counted(model)
        result = get(text)(model, x, labels, check=False)
        counted.remove()
        ours, theirs = (int(result.forwards.sum()), int(result.backwards.sum())), (counted.forwards, counted.backwards)
        print(
            f"{text}: {ours[0]} forwards and {ours[1]} backwards recorded, hooks count {theirs[0]} and {theirs[1]}",
            flush=True,
        )
        wrong += [] if ours == theirs else [f"{text}: recorded {ours}, hooks {theirs}"]
        wrong += not_as_good(text, model, x, labels, result)
    return wrong


def harnesses_differ(model: nn.Module, x: Tensor, labels: Tensor) -> list[str]:
    """Libraries through which ALMA does not give what ``ALMA(...)`` gives."""
    import foolbox

    from almakit.bridges.attackbench import as_function
    from almakit.bridges.foolbox import FoolboxAttack

    ours, targets = ALMA(distance="l2", steps=100), (labels + 1) % 10
    plain, aimed = ours(model, x, labels), ours(model, x, labels, targets)
    wrapped = foolbox.PyTorchModel(model, bounds=(0, 1))
    _, images, wrong = FoolboxAttack(ours)(wrapped, x, labels, epsilons=None)
    found = {"foolbox": images, "adv-lib's call": as_function(ours)(model, x, labels)}
    targeted = {
        "adv-lib's call": as_function(ours)(model=model, inputs=x, labels=labels, targeted=True, targets=targets)
    }
    failed = [name for name, got in found.items() if not torch.equal(got, plain.adversarials)]
    failed += [f"{name}, targeted" for name, got in targeted.items() if not torch.equal(got, aimed.adversarials)]
    # foolbox gives the targets alone, so that the constraint is scaled by another class than the label where the model
    # is wrong.
    criterion = foolbox.criteria.TargetedMisclassification(targets)
    also = {"foolbox": FoolboxAttack(ours)(wrapped, x, criterion, epsilons=None)[1]}
    right = model(x).argmax(1) == labels
    failed += [
        f"{name}, targeted" for name, got in also.items() if not torch.equal(got[right], aimed.adversarials[right])
    ]
    for name in found:
        print(f"ALMA through {name}: {'differs' if name in failed else 'the same images, bit for bit'}", flush=True)
    return failed + ([] if bool(wrong.eq(plain.success).all()) else ["foolbox's verdict"])


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--run", type=Path, default=Path("runs/bridges"), help="the run folder; default runs/bridges")


def measure(results: common.Results, args: argparse.Namespace) -> int:
    if args.images != 100 and results.path == RESULTS / "bridges.json":
        raise SystemExit("the kept results are of 100 images: for another number name another file with --out.")
    for name in ("adv_lib.attacks", "foolbox", "torchattacks", "art", "pyautoattack"):
        peers.library(name)
    flags = ["--model", MODEL, "--data", "mnist", "--limit", str(args.images), "--batch-size", str(args.images)]
    every = [part for text in (*FOREIGN, *OURS) for part in ("--attack", text)]
    if almakit(["run", *flags, *every, "--out", str(args.run)]) not in (0, 4):
        return 1
    run = Run(args.run)
    unverified = sum(record.claimed and not record.fooled for record in run.records)
    model, (x, labels) = models.load(MODEL), data.load("mnist", limit=20).tensors()
    wrong = counts_differ(model, x, labels) + harnesses_differ(model, x, labels)
    wrong += [f"{unverified} claims refuted"] if unverified else []
    print("Everything holds." if not wrong else "\n".join(wrong))
    results.update(kept(run))
    return bool(wrong)
