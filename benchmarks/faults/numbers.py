"""Situations made at random in which a number could be silently wrong: almakit must give the right one or refuse.

    python -m benchmarks faults numbers              all of them
    python -m benchmarks faults numbers --times 5    each five times

What is right is known from how a situation was made, from a pass over single images, or from counting in integers.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import random
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import almakit
from almakit.cli import main as command_line
from almakit.errors import AlmakitError
from benchmarks.common import Results, markdown

CLASSES, SIDE = 5, 8


class Net(nn.Module):
    """Two layers with random weights; ``change`` acts on the images before them."""

    def __init__(self, seed: int, change: Callable[[Tensor], Tensor] = lambda x: x):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.first, self.second = nn.Linear(SIDE * SIDE, 24), nn.Linear(24, CLASSES)
        for parameter in self.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator) * 0.25
        self.change = change

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.second(torch.relu(self.first(2 * self.change(x).flatten(1) - 1)))
        return found


def images(seed: int, count: int) -> Tensor:
    return torch.rand(count, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(seed))


def quiet(*words: object) -> tuple[int, str]:
    """Exit code and output of the command line."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = command_line.main([str(word) for word in words])
    return code, out.getvalue()


def run_of(place: Path, model: nn.Module, x: Tensor, labels: Tensor, **settings: Any) -> almakit.Run:
    return almakit.evaluate(
        model, (x, labels), "fmn(distance=linf, steps=10)", out=place, preflight=False, **{"batch_size": 4, **settings}
    )


def refused(act: Callable[[], object]) -> bool:
    """Whether an error that says why came instead of a number."""
    try:
        act()
    except AlmakitError as error:
        return bool(str(error))
    return False


def levels(seed: int, place: Path) -> bool:
    """Robust accuracy on a grid of random depth is the share counted in whole levels."""
    chance = random.Random(seed)
    bits, level, model, x = chance.randint(2, 8), chance.randint(1, 3), Net(seed), images(seed, 12)
    top = 2**bits - 1
    x = (x * top).round() / top
    run = run_of(place / "a", model, x, model(x).argmax(1), bits=bits)
    records = run.records_of(0)
    clean, stored = run.originals([record.image for record in records]), run.adversarials(records)
    changed = abs((stored * top).round() - (clean * top).round()).reshape(len(records), -1).max(1)
    fooled = [record.claimed and record.fooled for record in records]
    robust = sum(not (won and steps <= level) for won, steps in zip(fooled, changed))
    return math.isclose(run.robust_accuracy(level / top, attack=0), robust / len(records))


def defence(seed: int, place: Path) -> bool:
    """A change of the images without weights, before the same network, is another model: ``compare`` refuses."""
    strength = random.Random(seed).uniform(0.05, 0.5)
    x = images(seed, 8)
    for name, share in (("a", 0.0), ("b", strength)):
        model = Net(seed)
        model.register_buffer("share", torch.tensor(0.0), persistent=False)
        model.change = lambda images, share=share: images + share * (images.mean() - images)
        run_of(place / name, model, x, model(x).argmax(1))
    code, said = quiet("compare", place / "a", place / "b")
    return code != 0 and "weights are equal" in said


def labels_twice(seed: int, place: Path) -> bool:
    """Images that occur again, some with another label, are compared with themselves in an order of their own."""
    chance, model, x = random.Random(seed), Net(seed), images(seed, 12)
    y = model(x).argmax(1)
    for row in range(6, 12):
        x[row] = x[row - 6]
        y[row] = (y[row - 6] + chance.randint(0, 1)) % CLASSES
    order = torch.tensor(chance.sample(range(12), 12))
    run_of(place / "a", model, x, y, batch_size=12)
    run_of(place / "b", model, x[order], y[order], batch_size=12)
    from almakit.report.compare import compare

    (pair,) = compare(place / "a", place / "b")["comparisons"]
    return (pair["images"], pair["ties"]) == (12, 12)


def rows(seed: int, place: Path) -> bool:
    """Of a model whose answers to some rows of a batch are another image's, no success is reported that fails alone."""
    chance, inner, x = random.Random(seed), Net(seed), images(seed, 9)
    start, step = chance.randint(1, 3), chance.randint(2, 4)

    def model(batch: Tensor) -> Tensor:
        logits = inner(batch)
        moved = torch.zeros(len(batch), 1, dtype=torch.bool)
        moved[start::step] = True
        return torch.where(moved, logits.roll(1, 1), logits)

    y = inner(x).argmax(1)
    try:
        result = almakit.attack(model, x, y, attack="ddn", steps=8)
    except AlmakitError:
        return True
    alone = torch.cat([inner(image[None]).argmax(1) for image in result.adversarials]) != y
    return bool(alone[result.success].all())


def rounding(seed: int, place: Path) -> bool:
    """A model that rounds inside is refused by ``certify``."""
    dtype = random.Random(seed).choice([torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.int32])
    model, x = Net(seed, lambda images: images.to(dtype).float()), images(seed, 4)
    return refused(lambda: almakit.certify.certified_radius(model, x, model(x).argmax(1), norm="linf"))


def scaled(seed: int, place: Path) -> bool:
    """The certified radius does not depend on the scale of the logits, from 1e-6 to 1e6."""
    scale, model, x = 10 ** random.Random(seed).uniform(-6, 6), Net(seed), images(seed, 4)
    y = model(x).argmax(1)
    before = almakit.certify.certified_radius(model, x, y, norm="linf")
    for parameter in model.second.parameters():
        parameter.data *= scale
    after = almakit.certify.certified_radius(model, x, y, norm="linf")
    return bool(torch.allclose(torch.as_tensor(before), torch.as_tensor(after), rtol=1e-3, atol=1e-6))


def forged(seed: int, place: Path) -> bool:
    """One altered certified radius is found by ``verify``."""
    folder = place / "a"
    chance, ibp = random.Random(seed), "mnist/smallcnn-tiny-ibp"
    attack = "fmn(distance=linf, steps=5)"
    words = ["run", "--model", ibp, "--data", "mnist-demo", "--limit", 4, "--attack", attack, "--quiet"]
    quiet(*words, "--out", folder, "--certify", "ibp")
    file = folder / "certificates" / "linf-ibp.json"
    content = json.loads(file.read_text())
    image = chance.choice([key for key, radius in content["radii"].items() if radius])
    content["radii"][image] *= chance.choice([0.9, 0.99, 1.01])
    file.write_text(json.dumps(content))
    code, said = quiet("verify", folder)
    return code != 0 and "certified radius" in said


def outside(seed: int, place: Path) -> bool:
    """An attack at a fixed radius has no robust accuracy at another one."""
    model, x = Net(seed), images(seed, 4)
    own, other = random.Random(seed).sample([0.01, 0.02, 0.05, 0.1], 2)
    result = almakit.PGD(epsilon=own, steps=5)(model, x, model(x).argmax(1))
    return math.isnan(result.robust_accuracy(other)) and not math.isnan(result.robust_accuracy(own))


def softmax(seed: int, place: Path) -> bool:
    """Probabilities instead of logits, or labels off by one, are named before a run."""
    inner, x = Net(seed), images(seed, 24)
    y = inner(x).argmax(1)
    off = random.Random(seed).random() < 0.5
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            almakit.evaluate(
                inner if off else (lambda batch: inner(batch).softmax(1)),
                (x, (y + 1) % CLASSES if off else y),
                "fmn(distance=linf, steps=3)",
                out=place / "a",
            )
        except AlmakitError:
            return True
    return bool(said)


SITUATIONS: dict[str, tuple[int, Callable[[int, Path], bool]]] = {
    "8-bit and coarser grids: ties at ε": (20, levels),
    "a defence without weights of its own": (10, defence),
    "an image twice, under two labels": (10, labels_twice),
    "answers that depend on the row of a batch": (40, rows),
    "rounding inside a certified model": (40, rounding),
    "logits of another scale, certified": (20, scaled),
    "an altered certified radius": (5, forged),
    "a fixed ε read at another radius": (20, outside),
    "probabilities for logits, labels off by one": (10, softmax),
}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--times", type=int, help="of each situation (default 5 to 40)")


def measure(results: Results, args: argparse.Namespace) -> int:
    found = []
    for name, (usual, right) in SITUATIONS.items():
        times = args.times or usual
        wrong = []
        for seed in range(times):
            with tempfile.TemporaryDirectory() as place:
                if not right(seed, Path(place)):
                    wrong.append(seed)
        found.append([name, times, times - len(wrong)])
        print(
            f"{name}: {times - len(wrong)} of {times}{f', wrong with the seeds {wrong}' if wrong else ''}", flush=True
        )
    results.update({"date": time.strftime("%Y-%m-%d"), "numbers": found})
    return 0 if all(times == right for _, times, right in found) else 1


def sections(results: Results, args: argparse.Namespace) -> dict[str, str]:
    kept = results.cells
    rows = [[name, str(times), str(right)] for name, times, right in kept["numbers"]]
    table = markdown(["situation ", "made at random", "right, or refused with the reason"], rows)
    return {"numbers": f"{table}\n\nMeasured {kept['date']} with `python -m benchmarks faults numbers`."}
