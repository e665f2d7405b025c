"""Checks before every run: accuracy on the images, order of the classes, determinism and independence of the batch, and
gradients.

``CHECKS`` lists the checks in their order; each takes the ``Examined`` model and data and yields findings.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import exp, lgamma, log
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core.oracle import borrowed
from ..data.named import imagenet_index
from ..errors import BadInput, BadModel
from ..goals.outputs import described, logits_of

Severity = Literal["refuse", "warn", "note"]

_SAY_ORDER = (
    "Say which label each class has: a classes.txt beside the images with one class on each line, label 0 first, or a "
    "csv with file and label."
)
REMEDIES: dict[str, str] = {
    "bad-goal": "Mend the goal: almakit.check_goal(goal, model, x, labels) tries it, docs/goals.md says what it needs.",
    "bad-output": "Return floating logits of shape (batch, classes), with two classes or more; for data with label "
    "maps (batch, classes, height, width), which ?output=fit behind the model's name brings to the maps' size. Of "
    "several outputs a goal picks one: --goal 'threshold(above=0, output=score)', or output=1 of a tuple.",
    "batch-dependent": "Take batch statistics out of the model: every image must be judged by itself.",
    "class-count": _SAY_ORDER,
    "class-elsewhere": "Check the order of the classes (a missing class folder shifts all later ones); a classes.txt "
    "beside the images sets it.",
    "class-order": _SAY_ORDER,
    "constant-gradient": "The backward pass is a stand-in that says nothing of the model (such as x.detach() + 0 * x "
    "and a constant): give one that follows it (--surrogate), or use attacks that need no gradients, square and "
    "hopskipjump.",
    "data-range": "Bring the images to [0, 1]: divide by 255 once; undo a normalisation and give it to the model, "
    "normalisation=(means, deviations).",
    "few-images": "Give ten images or more.",
    "forward-fails": "Check the shape (channels, height, width) and the size of images the model expects; data can be "
    "resized with size=.",
    "labels-outside": "Count classes from 0, and check that the data belongs to the model.",
    "low-clean-accuracy": "Check labels and preprocessing, or continue if the model is known to be weak.",
    "low-precision": "Convert it with model.float() for the evaluation.",
    "nan-gradient": "Look for a square root or a norm at zero, or a logarithm of zero.",
    "nan-logits": "Look for a division by zero, an overflow in half precision, or images out of range.",
    "non-differentiable": "Keep the model in torch, without detach, no_grad, numpy or argmax, use attacks that need no "
    "gradients, square (scores) and hopskipjump (decisions), or take them from a model like it with --surrogate.",
    "not-deterministic": "Attack means over several passes and let fresh passes vote: --eot 16 (eot=16 in Python). Or "
    "fix the model's random numbers with a seed in forward.",
    "not-random": "Leave eot out to save passes.",
    "probabilities": "Return the logits before the softmax.",
    "random": "Use more passes (eot, votes) for smaller intervals.",
    "randomness-elsewhere": "Draw from the global generators in forward, or accept it: shares and intervals hold.",
    "saturated": "Prefer attacks on the logits' margin, as almakit's are, to attacks on the cross-entropy.",
    "shuffled-labels": "Check that labels and images are in the same order and counted as the model's classes are.",
    "train-mode": "Call model.eval() yourself.",
    "wrong-labels-or-range": "Check the order of the classes, the images' range and size, and their normalisation "
    "(done twice, or not at all?).",
    "zero-gradient": "Look for rounding, thresholds or saturated outputs in the model; replace them with a "
    "differentiable stand-in (--surrogate), or use attacks that need no gradients, square and hopskipjump.",
}
"""Every finding, by name, with what to do about it."""

SEVERITIES: dict[str, Severity] = {
    **dict.fromkeys(("low-clean-accuracy", "low-precision", "probabilities"), "warn"),
    **dict.fromkeys(("randomness-elsewhere", "shuffled-labels"), "warn"),
    **dict.fromkeys(("few-images", "not-random", "random", "saturated", "train-mode"), "note"),
}
"""The usual severity of findings that do not refuse."""

_MOST_SEVERE_FIRST = {"refuse": 0, "warn": 1, "note": 2}
_TOLERANCE = {torch.bfloat16: 0.1, torch.float16: 0.05}  # 1e-3 of other types
_MOST_PIXELS = 20_000  # judged at most
_ENOUGH_IMAGES = 10
_ENOUGH_OF_A_CLASS, _NEARLY_ALL = 5, 0.9
"""If at least this number of images of a class are given, and at least this share of them is classified as one other
class, the class probably has a wrong number."""
_CONFIDENT = 0.8
"""If a model with chance accuracy has at least this mean probability of its predictions, the labels are probably those
of another data set."""


@dataclass(frozen=True)
class Finding:
    """One finding. ``severity`` is refuse (the run does not start), warn (its numbers may mislead) or note."""

    name: str
    severity: Severity
    sentence: str
    way_out: str

    def __str__(self) -> str:
        return f"{self.name} ({self.severity}): {self.sentence} {self.way_out}"


def finding(name: str, sentence: str, severity: Severity | None = None) -> Finding:
    """The finding with the severity and the remedy that belong to its name."""
    return Finding(name, severity or SEVERITIES.get(name, "refuse"), sentence, REMEDIES[name])


@dataclass(frozen=True)
class Preflight:
    """All findings, the most severe first, the number of images and classes, and the clean accuracy."""

    findings: tuple[Finding, ...]
    images: int
    classes: int | None
    clean_accuracy: float | None


def preflight(
    model: Callable[[Tensor], Tensor],
    x: Tensor,
    labels: Tensor,
    *,
    batch_size: int = 64,
    class_names: Sequence[str] | None = None,
    alphabetical: bool = False,
    eot: int | None = None,
    gradients: bool = True,
) -> Preflight:
    """Check a model from images in [0, 1] to logits on labelled images.

    Clean accuracy is measured on all images, the rest on the first ``batch_size``. A model without problems is called
    once for each batch, once with gradients, and once with a single image. It is returned unchanged: mode,
    ``requires_grad``, gradients, buffers, the random generators' state.

    Args:
        model: from images (N, C, H, W) to logits (N, K).
        x: images in [0, 1], shape (N, C, H, W).
        labels: integers, shape (N,), or (N, H, W) for a class per pixel.
        batch_size: number of images in a model call.
        class_names: the data's class names.
        alphabetical: whether the labels only number the class names in alphabetical order.
        eot: number of passes to average over for a random model.
        gradients: whether any attack needs the model's gradients; findings about them are notes otherwise.
    """
    if labels.shape not in (x.shape[:1], (len(x), *x.shape[2:])) or len(x) == 0 or labels.is_floating_point():
        got = f"images {tuple(x.shape)} and labels {tuple(labels.shape)} of type {labels.dtype}"
        raise BadInput(f"{got} do not belong together; give one integer label per image, or per pixel.")
    if not x.is_floating_point():
        raise BadInput(f"the images are {x.dtype}; give floats in [0, 1], e.g. x.float() / 255.")
    examined = Examined(model, x, labels, batch_size, class_names, alphabetical, eot, gradients)
    findings = list(_training_mode(examined))  # before the model is put into evaluation mode
    devices = sorted({tensor.get_device() for tensor in (x, *examined.weights) if tensor.is_cuda})
    with torch.random.fork_rng(devices=devices), borrowed(model):
        try:
            for check in CHECKS:
                findings += check(examined)
        except _Failed as failed:
            findings.append(failed.args[0])
    findings.sort(key=lambda found: _MOST_SEVERE_FIRST[found.severity])
    return Preflight(tuple(findings), len(x), examined.classes, examined.accuracy)


class _Failed(Exception):
    """The model failed with this finding; no further check is made."""


@dataclass
class Examined:
    """A model and data, with results of earlier checks."""

    model: Callable[[Tensor], Tensor]
    x: Tensor
    labels: Tensor
    batch_size: int
    class_names: Sequence[str] | None
    alphabetical: bool
    eot: int | None
    gradients: bool
    # Set by _predictions: the logits of the first batch, and of what is judged, images or labelled pixels.
    logits: Tensor = field(default_factory=lambda: torch.empty(0))
    judged: tuple[Tensor, Tensor] | None = None
    classes: int | None = None
    accuracy: float | None = None
    guessing: bool = False
    # Set by _gradients, if there are any: the logits of the first batch, rolled by one image, and what _constant says.
    rolled: Tensor | None = None
    constant: int = 0

    @property
    def weights(self) -> list[Tensor]:
        """Parameters and buffers."""
        return [*self.model.parameters(), *self.model.buffers()] if isinstance(self.model, nn.Module) else []

    @property
    def floats(self) -> list[Tensor]:
        """Those of a floating type."""
        return [tensor for tensor in self.weights if tensor.is_floating_point()]

    def placed(self, x: Tensor) -> Tensor:
        """Images on the model's device and in its floating type."""
        return x.to(device=self.floats[0].device, dtype=self.floats[0].dtype) if self.floats else x

    def call(self, x: Tensor) -> Any:
        """The model's output for ``x`` (B, ...), or its logits if it returns a record."""
        return logits_of(self.model(x.clone()))  # a copy, because some models normalise in place

    def outputs(self, x: Tensor, failure: str = "forward-fails") -> Any:
        """The model's output for ``x`` without gradients; ``failure`` names the finding if it raises an error."""
        try:
            with torch.no_grad():
                return self.call(x)
        except BadModel as error:
            raise _Failed(finding("bad-output", f"{str(error).rstrip('.')}.")) from error
        except Exception as error:
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            sentence = f"The model failed on images of shape {tuple(x.shape)} with {reason}."
            raise _Failed(finding(failure, sentence)) from error


def _training_mode(examined: Examined) -> Iterator[Finding]:
    model = examined.model
    if isinstance(model, nn.Module) and any(module.training for module in model.modules()):
        yield finding("train-mode", "The model is in training mode; it is evaluated in evaluation mode.")


def _precision(examined: Examined) -> Iterator[Finding]:
    low = {tensor.dtype for tensor in examined.floats} & set(_TOLERANCE)
    if low:
        kinds = ", ".join(sorted(str(kind).removeprefix("torch.") for kind in low))
        what = f"The model computes in {kinds}: near the boundary its rounding decides, and gradients may vanish."
        yield finding("low-precision", what)


def _image_range(examined: Examined) -> Iterator[Finding]:
    low, high = float(examined.x.min()), float(examined.x.max())
    if not (low >= 0 and high <= 1):
        cause = (
            "they look normalised" if low < 0 else "they look like bytes from 0 to 255" if high > 2 else "check them"
        )
        yield finding("data-range", f"The images range from {low:.4g} to {high:.4g}, not within [0, 1]; {cause}.")
    elif high <= 1.5 / 255:
        what = f"The largest value in the images is {high:.2g}: they seem to have been divided by 255 twice."
        yield finding("data-range", what)


def _predictions(examined: Examined) -> Iterator[Finding]:
    """Whether the model returns finite logits for every image, and its clean accuracy."""
    x, labels, parts = examined.placed(examined.x), examined.labels, []
    for batch in x.split(examined.batch_size):
        parts.append(examined.outputs(batch))
        if len(parts) == 1:
            _require_logits(parts[0], len(batch), labels)
    examined.logits = parts[0]
    logits, labels = torch.cat(parts).float(), labels.to(parts[0].device)
    classes = examined.classes = logits.shape[1]
    subjects = "images"
    if labels.ndim > 1:
        # Each labelled pixel is judged as an image of its own, or some thousands of them, evenly spread; pixels with
        # other labels are left out.
        logits, labels, subjects = logits.movedim(1, -1).flatten(0, -2), labels.flatten(), "labelled pixels"
        labelled = ((labels >= 0) & (labels < classes)).nonzero().flatten()
        labelled = labelled[:: len(labelled) // _MOST_PIXELS + 1]
        logits, labels = logits[labelled], labels[labelled]
    count = len(labels)
    if not count:
        yield finding("labels-outside", f"None of the pixels has a label that is one of the model's {classes} classes.")
        return
    broken = ~logits.isfinite().all(1)
    if bool(broken.any()):
        what = f"The model returned NaN or infinite logits for {int(broken.sum())} of {count} {subjects}."
        yield finding("nan-logits", what)
    if bool(((labels < 0) | (labels >= classes)).any()):
        span = f"from {int(labels.min())} to {int(labels.max())}"
        yield finding("labels-outside", f"There are labels {span}, but the model has {classes} classes.")
    right = int((logits.argmax(1) == labels).sum())
    examined.accuracy = right / count
    said = f"{right} of {count} clean {subjects} are classified as labelled ({100 * right / count:.1f} %)"
    examined.guessing = count >= _ENOUGH_IMAGES and _chance_of(right, count, classes) > 0.01
    if count < _ENOUGH_IMAGES:
        yield finding("few-images", f"{said}; {count} images are too few to judge clean accuracy.")
    if examined.guessing:
        yield finding("wrong-labels-or-range", f"{said}, which guessing among {classes} classes would reach as well.")
    elif right < 0.5 * count:
        yield finding("low-clean-accuracy", f"{said}; an image that is already wrong counts as distance 0.")
    # Neighbouring pixels are alike: one object looks like classes in another order.
    examined.judged = (logits[~broken], labels[~broken]) if subjects == "images" else None


def _require_logits(output: Any, images: int, labels: Tensor) -> None:
    if (
        isinstance(output, Tensor)
        and output.ndim == labels.ndim + 1
        and (len(output), *output.shape[2:]) == (images, *labels.shape[1:])
        and output.shape[1] >= 2
        and output.is_floating_point()
    ):
        return
    tensor = isinstance(output, Tensor)
    what = f"a tensor of shape {tuple(output.shape)} and type {output.dtype}" if tensor else described(output)
    maps = f" with label maps of {labels.shape[1]} x {labels.shape[2]}" if labels.ndim > 1 else ""
    raise _Failed(finding("bad-output", f"The model returned {what} for {images} images{maps}."))


def _labels(examined: Examined) -> Iterator[Finding]:
    """Whether labels and classes agree, from the classes' names and the predictions on clean images."""
    if examined.judged is None or examined.classes is None:
        return
    logits, labels = examined.judged
    if examined.alphabetical and examined.class_names is not None:
        yield from name_findings(examined.class_names, examined.classes)
    predicted, sure = logits.argmax(1), float(torch.softmax(logits.double(), 1).amax(1).nan_to_num(0.0).mean())
    if examined.guessing:
        if sure >= _CONFIDENT and len(labels) >= 2 * _ENOUGH_OF_A_CLASS:
            what = (
                f"The model is as good as guessing, yet confident (a mean probability of {sure:.2f}): the labels seem "
                "to belong to other images or other classes."
            )
            yield finding("shuffled-labels", what)
    else:
        moved, names = [], dict(enumerate(examined.class_names or ()))
        for label in labels.unique().tolist():
            own = predicted[labels == label]
            other = own.mode().values.item()
            count = int((own == other).sum())
            if len(own) >= _ENOUGH_OF_A_CLASS and other != label and count >= _NEARLY_ALL * len(own):
                name = names.get(label, str(label))
                named = name if name == str(label) else f"{label} ({name!r})"
                moved.append(f"{count} of {len(own)} images of class {named} are predicted as class {other}")
        if moved:
            listed = "; ".join(moved[:3]) + (" and more" if len(moved) > 3 else "")
            yield finding("class-elsewhere", f"{listed}: the class has another number in the model.")
    rows = logits.double()
    if len(rows) and bool((rows >= 0).all()) and bool(((rows.sum(1) - 1).abs() < 1e-3).all()):
        what = "The outputs are probabilities (between 0 and 1, summing to 1): gradients vanish where it is sure."
        yield finding("probabilities", what)


def name_findings(names: Sequence[str], classes: int) -> Iterator[Finding]:
    """Findings from the data's class names, numbered in alphabetical order, for a model with this number of classes."""
    if len(names) != classes:
        few = ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
        what = (
            f"The data have {len(names)} classes ({few}) and the model {classes}: counted in alphabetical order, the "
            "data's classes need not have the model's numbers."
        )
        yield finding("class-count", what)
    numbers = [
        int(name) if re.fullmatch(r"[0-9]{1,6}", name) else imagenet_index(name) if classes == 1000 else None
        for name in names
    ]
    wrong = [place for place, number in enumerate(numbers) if number not in (None, place)]
    if wrong and None not in numbers and numbers != list(range(1, len(names) + 1)):
        what = (
            f"The class {names[wrong[0]]!r} has the label {wrong[0]}, its place in alphabetical order, and its name "
            f"says {numbers[wrong[0]]} ({len(wrong)} of {len(names)} classes disagree)."
        )
        yield finding("class-order", what)


def _gradients(examined: Examined) -> Iterator[Finding]:
    """Check that gradients of margin and cross-entropy reach the images; stores the logits."""
    size = examined.batch_size
    x, labels = examined.placed(examined.x[:size]).roll(1, 0), examined.labels[:size].roll(1, 0)

    def severity(some: Tensor) -> Severity:
        return "note" if not examined.gradients else "refuse" if bool(some.all()) else "warn"

    try:
        with torch.enable_grad():
            leaf = x.detach().clone().requires_grad_(True)
            logits = examined.call(leaf).float()
            top = logits.topk(2, 1).values
            (margin,) = torch.autograd.grad((top[:, 0] - top[:, 1]).sum(), leaf, retain_graph=True)
            inside = labels.to(x.device).clamp(0, logits.shape[1] - 1)
            (entropy,) = torch.autograd.grad(F.cross_entropy(logits, inside, reduction="sum"), leaf)
    except RuntimeError as error:
        what = f"No gradient reaches the images ({str(error).splitlines()[0][:160]})."
        yield finding("non-differentiable", what, severity(torch.ones(1)))
        return
    examined.rolled = logits.detach()
    examined.constant = _constant(x, examined.rolled, margin.flatten(1))
    flat, share = margin.flatten(1), f"of {len(x)} images"
    broken, zero = ~flat.isfinite().all(1), (flat == 0).all(1)
    blind = (entropy.flatten(1) == 0).all(1) & ~zero
    if bool(broken.any()):
        what = f"The gradient is NaN or infinite for {int(broken.sum())} {share}."
        yield finding("nan-gradient", what, severity(broken))
    if bool(zero.any()):
        what = (
            f"The gradient of the logits' margin is zero for {int(zero.sum())} {share}: robustness may only seem high."
        )
        yield finding("zero-gradient", what, severity(zero))
    if bool(blind.any()):
        what = f"The cross-entropy's gradient vanishes for {int(blind.sum())} {share} though the margin's does not."
        yield finding("saturated", what)


def _constant(x: Tensor, logits: Tensor, slopes: Tensor) -> int:
    """The number of images ``x`` (B, ...) whose margin has the gradient (B, n) of another image with the same two first
    classes, although the difference of the two margins is not linear."""
    if logits.ndim > 2:
        return 0
    top, pairs = logits.double().topk(2, 1)
    margins, first, found = top[:, 0] - top[:, 1], dict[tuple[int, ...], int](), 0
    rounding = 1e-4 * float(top.abs().max())
    for row, pair in enumerate(map(tuple, pairs.tolist())):
        other = first.setdefault(pair, row)
        if other != row and bool(slopes[row].any()) and torch.allclose(slopes[row], slopes[other], rtol=1e-3):
            moved = float(margins[row] - margins[other])
            linear = float(slopes[row].double() @ (x[row] - x[other]).double().flatten())
            found += abs(moved - linear) > 0.1 * abs(moved) + rounding
    return found


def _consistency(examined: Examined) -> Iterator[Finding]:
    """Check that the logits are equal in a second call, at other positions of the batch, and for an image alone."""
    x, logits = examined.placed(examined.x[: examined.batch_size]), examined.logits
    rolled = examined.outputs(x.roll(1, 0)) if examined.rolled is None else examined.rolled
    size = float(logits.double().abs().nan_to_num(0.0, 0.0, 0.0).amax().clamp_min(1e-6))
    allowed = size * _TOLERANCE.get(examined.floats[0].dtype if examined.floats else logits.dtype, 1e-3)
    moved = _difference(logits, rolled.roll(-1, 0))
    gap = _difference(logits, examined.outputs(x)) if moved > allowed else 0.0
    if gap > allowed:
        yield from _random(examined, x, gap, allowed)
    elif examined.eot is not None:
        yield finding("not-random", f"The model is deterministic: {examined.eot} passes give the same as one.")
    elif moved > allowed:
        yield finding("batch-dependent", f"An image's logits differ by up to {moved:.3g} with its place in the batch.")
    else:
        row = len(x) // 2
        alone = examined.outputs(x[row : row + 1], "batch-dependent")
        if alone.shape != logits[:1].shape:
            what = f"An image alone gets logits of shape {tuple(alone.shape)}, not {tuple(logits[:1].shape)}."
            yield finding("batch-dependent", what)
        elif (gap := _difference(logits[row : row + 1], alone)) > allowed:
            what = f"An image's logits differ by up to {gap:.3g} between a batch of {len(x)} and alone."
            yield finding("batch-dependent", what)
        elif examined.constant:
            same = f"The gradient of {examined.constant} of {len(x)} images is that of another image"
            what = f"{same}, and their logits do not follow it."
            yield finding("constant-gradient", what, "warn" if examined.gradients else "note")


def _random(examined: Examined, x: Tensor, gap: float, allowed: float) -> Iterator[Finding]:
    if examined.eot is None:
        yield finding("not-deterministic", f"The same images got logits that differ by up to {gap:.3g} in two calls.")
        return
    what = f"The model is random (logits differ by up to {gap:.3g}): means over {examined.eot} passes count."
    yield finding("random", what)
    seeded = []
    state, python = np.random.get_state(), random.getstate()
    try:
        for _ in range(2):
            torch.manual_seed(0)
            np.random.seed(0)
            random.seed(0)
            seeded.append(examined.outputs(x))
    finally:
        np.random.set_state(state)
        random.setstate(python)
    if _difference(*seeded) > allowed:
        what = (
            "With torch's, NumPy's and Python's generators set alike it still answers otherwise: another run will "
            "give other numbers, and a result depends on its batch."
        )
        yield finding("randomness-elsewhere", what)


CHECKS = (_precision, _image_range, _predictions, _labels, _gradients, _consistency)


def _difference(a: Tensor, b: Tensor) -> float:
    """The largest difference between two sets of logits where both are numbers."""
    difference = (a.double() - b.double()).abs()
    return float(difference[difference.isfinite()].max()) if bool(difference.isfinite().any()) else 0.0


def _chance_of(right: int, images: int, classes: int) -> float:
    """The probability that guessing classifies at least this number of images correctly: a binomial tail, computed with
    logarithms."""
    ways = (lgamma(images + 1) - lgamma(k + 1) - lgamma(images - k + 1) for k in range(right, images + 1))
    return sum(exp(way - k * log(classes) + (images - k) * log(1 - 1 / classes)) for k, way in enumerate(ways, right))
