"""The measurements of ``speed.py``: each times ours and the other side in turn, in one process, and gives one ratio per
repeat.

On one thread processor time counts, so that other programs on the machine matter little; on two, wall time. Ours gets
one query more than the other side has steps, because our last query has no backward pass: so both make as many full
passes, and ours one forward pass on top.
"""

from __future__ import annotations

import copy
import gc
import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from almakit import attacks, data
from almakit.runs.checks import OUTSIDE
from benchmarks import peers, subjects

Cell = dict[str, Any]
Work = Callable[[], object]


def clock() -> float:
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


def seconds_of(work: Work) -> float:
    began = clock()
    work()
    return clock() - began


def seconds(work: Work) -> float:
    gc.collect()
    return seconds_of(work)


def turns(works: list[Work], repeats: int) -> list[list[float]]:
    """Seconds of each one after the other, ``repeats`` times, and up to five times as often while that takes less than
    half a minute."""
    began, found = time.perf_counter(), []
    while len(found) < repeats or (len(found) < 5 * repeats and time.perf_counter() - began < 30):
        found.append([seconds(work) for work in works])
    return found


def in_turn(ours: Work, theirs: Work, repeats: int) -> Cell:
    """The two in turns; the median of each and of the ratios within a turn."""
    pairs = turns([ours, theirs], repeats)
    ratios = [a / b for a, b in pairs]
    return {
        "ratio": round(statistics.median(ratios), 3),
        "ours_s": round(statistics.median(a for a, _ in pairs), 4),
        "theirs_s": round(statistics.median(b for _, b in pairs), 4),
        "ratios": [round(ratio, 3) for ratio in ratios],
    }


def forward_and_backward(model: nn.Module, x: Tensor) -> None:
    leaf = x.clone().requires_grad_(True)
    torch.autograd.grad(model(leaf).sum(), leaf)


def network(name: str) -> nn.Module:
    return subjects.network(subjects.PHOTOS[0] if name == "lite0" else name)


def pictures(model: str, count: int) -> tuple[Tensor, Tensor]:
    """Images and labels for a network: of its data set, and for lite0 photos at its size with the classes it gives
    them."""
    if model != "lite0":
        return data.load(model.split("/")[0], limit=count).tensors()
    x, _ = subjects.images(subjects.PHOTOS[0], count)
    net = network(model)
    with torch.no_grad():
        return x, torch.cat([net(part).argmax(1) for part in x.split(8)])


def batches(net: nn.Module, x: Tensor) -> tuple[int, int]:
    """The batch sizes that are best for an attack on ``x`` (B, ...), as a run measures it (``--batch-size auto``), and
    for bare passes."""
    x = x[:128]
    forward_and_backward(net, x)
    sizes = [batch for batch in (4, 8, 16, 32, 64, 128) if len(x) // 8 <= batch <= len(x) + 1]
    rates = {
        batch: len(x)
        / min(
            seconds(lambda batch=batch: [forward_and_backward(net, part) for part in x.split(batch)]) for _ in range(5)
        )
        for batch in sizes
    }
    ours = max(sizes, key=lambda size: 1 / (1 / rates[size] + OUTSIDE / size))
    return ours, max((size for size in sizes if size <= ours), key=rates.__getitem__)


def against(
    peer: peers.Peer, ours: str, model: str, images: int, steps: int, repeats: int, others_steps: int | None = None
) -> Cell:
    """Our attack in the batches that are best for it against a peer's on the same images in one batch."""
    net = network(model)
    x, labels = pictures(model, images)
    size, _ = batches(net, x)
    attack = attacks.get(ours.format(steps=steps + 1))
    cell = in_turn(
        lambda: attack(net, x, labels, batch_size=size, check=False),
        lambda: peer(net, x, labels, others_steps or steps),
        repeats,
    )
    return cell | {"model": model, "images": images, "steps": steps, "batch": size}


def step_by_step(
    ours: str, net: nn.Module, x: Tensor, labels: Tensor, steps: int, batch: int, bare_batch: int
) -> tuple[float, float]:
    """Seconds of an attack and of as many bare passes, forward and backward, made in turns: after every step of the
    attack one bare pass.

    So both meet the same load of the machine. The bare passes belong to a copy of the model.
    """
    attack, bare_net = attacks.get(ours.format(steps=steps + 1)), copy.deepcopy(net)
    total = bare = 0.0
    for part, names in zip(x.split(batch), labels.split(batch), strict=True):

        def one_pass(event: object, part: Tensor = part) -> None:
            nonlocal bare
            bare += seconds_of(lambda: [forward_and_backward(bare_net, few) for few in part.split(bare_batch)])

        total += seconds(
            lambda part=part, names=names, one_pass=one_pass: attack(net, part, names, check=False, trace=one_pass)
        )
    with torch.no_grad():
        last = seconds(lambda: [bare_net(part) for part in x.split(bare_batch)])
    return total - bare, bare + last


def against_bare(ours: str, model: str, steps: int, repeats: int) -> Cell:
    """Our attack, in the batch size a run measures (``--batch-size auto``), against as many bare passes of the model as
    the user handed it over, in the batch size that is best for those."""
    net = network(model)
    x, labels = pictures(model, {"lite0": 8, "cifar10/resnet20": 32}.get(model, 128))
    # Only images that are attacked: the rest would cost one pass instead of all.
    with torch.no_grad():
        kept = torch.cat([net(part).argmax(1) for part in x.split(32)]) == labels
    x, labels = x[kept], labels[kept]
    batch, bare_batch = batches(net, x)
    found = [step_by_step(ours, net, x, labels, steps, batch, bare_batch) for _ in range(max(repeats, 3))]
    ratios = [round(a / b, 3) for a, b in found]
    return {
        "ratio": statistics.median(ratios),
        "ratios": ratios,
        "ours_s": round(statistics.median(a for a, _ in found), 3),
        "theirs_s": round(statistics.median(b for _, b in found), 3),
        "model": model,
        "images": len(x),
        "steps": steps,
        "batch": batch,
        "bare_batch": bare_batch,
    }


def walk_against_alma(name: str, model: str, images: int, repeats: int) -> Cell:
    """The default attack with 100 queries against ALMA with 1000 steps, in a distance that is no norm, one batch."""
    net = network(model)
    x, labels = pictures(model, images)
    walk, alma = (
        attacks.get(kind, distance=subjects.distance(name), steps=steps)
        for kind, steps in (("soft-walk", 100), ("alma", 1000))
    )
    return in_turn(lambda: walk(net, x, labels, check=False), lambda: alma(net, x, labels, check=False), repeats) | {
        "images": images
    }


def distance(name: str, shape: tuple[int, ...], repeats: int) -> Cell:
    """Value and gradient of a distance against adv-lib's, the reference image bound once as in an attack."""
    from almakit import distances
    from benchmarks.speed import distances as distances_benchmark

    generator = torch.Generator().manual_seed(0)
    x = torch.rand(shape, generator=generator)
    y = (x + 0.02 * torch.randn(shape, generator=generator)).clamp(0, 1)
    bound, loss = distances.get(name).bind(x), distances_benchmark.theirs(name, x)

    def eager() -> None:
        leaf = y.clone().requires_grad_(True)
        torch.autograd.grad(loss(leaf).sum(), leaf)

    def ours() -> None:
        bound.value_and_grad(y)

    ours(), eager()
    return in_turn(ours, eager, max(repeats, 5)) | {"shape": list(shape)}


def lpips_alma(model: str, images: int, steps: int, repeats: int) -> Cell:
    """ALMA in LPIPS, ours against adv-lib's on the same images in one batch; adv-lib's LPIPS gets the same AlexNet."""
    from benchmarks.speed import distances as distances_benchmark

    lagrangian = peers.library("adv_lib.attacks.augmented_lagrangian")
    lpips = peers.library("adv_lib.distances.lpips").LPIPS
    lagrangian._distances["lpips"] = lambda target: lpips(model=distances_benchmark._AlexNet(), target=target)
    peer = peers.adv_lib("alma", steps_as="num_steps", distance="lpips", init_lr_distance=1e-3, α=0.5)
    return against(peer, "alma(distance=lpips, steps={steps})", model, images, steps, repeats)


def growth(sizes: list[int], work: Callable[[int], Work], repeats: int) -> Cell:
    """Seconds at each size, and the slope of their logarithms: 1 is linear."""
    times = {}
    for size in sizes:
        job = work(size)
        times[size] = min(seconds(job) for _ in range(repeats))
    logs = [(math.log(size), math.log(value)) for size, value in times.items()]
    middle = [statistics.fmean(column) for column in zip(*logs, strict=True)]
    slope = sum((a - middle[0]) * (b - middle[1]) for a, b in logs) / sum((a - middle[0]) ** 2 for a, _ in logs)
    each = [value / size for size, value in times.items()]
    return {
        "ratio": round(slope, 3),
        "last_over_first": round(each[-1] / each[0], 3),
        "seconds": {str(k): round(v, 4) for k, v in times.items()},
    }


def growth_in_images(repeats: int) -> Cell:
    """ALMA on 100 to 10 000 digits."""
    model = network("mnist/smallcnn-tiny")
    x, labels = pictures("mnist/", 10_000)
    attack = attacks.get("alma(distance=l2, steps=3)")
    return growth(
        [100, 1000, 10_000], lambda count: lambda: attack(model, x[:count], labels[:count], check=False), repeats
    )


def growth_in_steps(repeats: int) -> Cell:
    """ALMA with 10 to 160 steps."""
    model = network("mnist/smallcnn-tiny")
    x, labels = pictures("mnist/", 128)
    return growth(
        [10, 40, 160],
        lambda count: lambda: attacks.get(f"alma(distance=l2, steps={count})")(model, x, labels, check=False),
        repeats,
    )


def growth_in_pixels(name: str, repeats: int) -> Cell:
    """ALMA on images of 28 x 28 to 224 x 224 pixels, against a network of convolutions whose own cost is linear in
    them; sizes are pixels."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 10),
    ).eval()
    attack = attacks.get(f"alma(distance={name}, steps=10)")

    def work(pixels: int) -> Work:
        side = math.isqrt(pixels)
        x = torch.rand(8, 3, side, side, generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            labels = model(x).argmax(1)
        return lambda: attack(model, x, labels, check=False)

    return growth([side * side for side in (28, 56, 112, 224)], work, repeats)
