"""What is checked before every run: does the model classify these images, is it a function of each image alone, and do
its gradients carry information?"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from math import exp, lgamma, log
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core.oracle import borrowed, pass_seconds
from ..errors import BadInput, BadModel, UnknownName
from ..goals.outputs import described, logits_of
from .labels import Severity, name_findings, prediction_findings

REMEDIES: dict[str, str] = {
    "bad-goal": "Mend the goal: almakit.check_goal(goal, model, x, labels) tries it, docs/goals.md says what it needs.",
    "bad-output": "Return floating logits of shape (batch, classes), with two classes or more; for data with label "
    "maps (batch, classes, height, width), which ?output=fit behind the model's name brings to the maps' size. Of "
    "several outputs a goal picks one: --goal 'threshold(above=0, output=score)', or output=1 of a tuple.",
    "batch-dependent": "Take batch statistics out of the model: every image must be judged by itself.",
    "class-count": "Say which label each class has: a classes.txt beside the images with one class on each line, "
    "label 0 first, or a csv with file and label.",
    "class-elsewhere": "Check the order of the classes (a missing class folder shifts all later ones); a classes.txt "
    "beside the images sets it.",
    "class-order": "Say which label each class has: a classes.txt beside the images with one class on each line, "
    "label 0 first, or a csv with file and label.",
    "data-range": "Bring the images to [0, 1]: divide by 255 once; undo a normalisation and give it to the model, "
    "normalisation=(means, deviations).",
    "few-images": "Give ten images or more.",
    "forward-fails": "Check the shape (channels, height, width) and the size of images the model expects; data can be "
    "resized with size=.",
    "labels-outside": "Count classes from 0, and check that the data belongs to the model.",
    "low-clean-accuracy": "Check labels and preprocessing, or go on if the model is known to be weak.",
    "low-precision": "Convert it with model.float() for the evaluation.",
    "nan-gradient": "Look for a square root or a norm at zero, or a logarithm of zero.",
    "nan-logits": "Look for a division by zero, an overflow in half precision, or images out of range.",
    "non-differentiable": "Keep the model in torch, without detach, no_grad, numpy or argmax, use attacks that need no "
    "gradients, square (scores) and hopskipjump (decisions), or take them from a model like it with --surrogate.",
    "not-deterministic": "Attack means over several passes and let fresh passes vote: --eot 16 (eot=16 in Python). Or "
    "fix the model's random numbers with a seed in forward.",
    "not-random": "Leave eot out: it costs passes.",
    "probabilities": "Return the logits before the softmax.",
    "random": "More passes (eot, votes) make it surer.",
    "randomness-elsewhere": "Draw from the global generators in forward, or live with it: shares and intervals hold.",
    "saturated": "Prefer attacks on the logits' margin, as almakit's are, to attacks on the cross-entropy.",
    "shuffled-labels": "Check that labels and images are in the same order and counted as the model's classes are.",
    "train-mode": "Call model.eval() to say so yourself.",
    "wrong-labels-or-range": "Check the order of the classes, the images' range and size, and their normalisation "
    "(done twice, or not at all?).",
    "zero-gradient": "Look for rounding, thresholds or saturated outputs in the model; replace them with a "
    "differentiable stand-in (--surrogate), or use attacks that need no gradients, square and hopskipjump.",
}
"""Every finding, by name, with what to do about it."""

_MOST_SEVERE_FIRST = {"refuse": 0, "warn": 1, "note": 2}
_TOLERANCE = {torch.bfloat16: 0.1, torch.float16: 0.05}  # 1e-3 of other types
_MOST_PIXELS = 20_000  # judged at most
_ENOUGH_IMAGES = 10


@dataclass(frozen=True)
class Finding:
    """One thing that was noticed. ``severity`` is refuse (the run does not start), warn (its numbers may mislead) or
    note."""

    name: str
    severity: Severity
    sentence: str
    way_out: str

    def __str__(self) -> str:
        return f"{self.name} ({self.severity}): {self.sentence} {self.way_out}"


@dataclass(frozen=True)
class Preflight:
    """All findings, the most severe first, and the figures.

    ``seconds`` is the time of a forward and a backward pass for one image, ``batch_size`` images at a time;
    ``bytes_per_image`` is what autograd keeps for one image between the two, ``bytes_of_weights`` the parameters and
    buffers.
    """

    findings: tuple[Finding, ...]
    allowed: frozenset[str]
    images: int
    classes: int | None
    clean_accuracy: float | None
    batch_size: int
    seconds: float | None
    bytes_per_image: int | None
    bytes_of_weights: int

    @property
    def refusals(self) -> tuple[Finding, ...]:
        """The findings that stop a run and were not allowed."""
        return tuple(each for each in self.findings if each.severity == "refuse" and each.name not in self.allowed)

    @property
    def ok(self) -> bool:
        """Whether a run may start."""
        return not self.refusals

    def get(self, name: str) -> Finding | None:
        """The finding of that name, if there is one."""
        return next((finding for finding in self.findings if finding.name == name), None)

    def estimate(self, images: int, passes: int) -> tuple[float, int]:
        """Seconds and bytes that ``passes`` forward and backward passes over so many images take, in batches as
        measured."""
        if self.seconds is None or self.bytes_per_image is None:
            raise BadModel(
                "no estimate can be made: the model's forward and backward pass did not work or was not measured."
            )
        bytes_of_batch = self.bytes_per_image * min(images, self.batch_size)
        return self.seconds * images * passes, self.bytes_of_weights + bytes_of_batch

    def raise_if_refused(self) -> None:
        """Raise ``BadModel`` with every refusal and its remedy."""
        if self.refusals:
            listed = "".join(f"\n  - {finding}" for finding in self.refusals)
            names = " ".join(f"--allow {finding.name}" for finding in self.refusals)
            raise BadModel(f"the preflight check refuses this run:{listed}\nTo run all the same: {names}")


def preflight(
    model: Callable[[Tensor], Tensor],
    x: Tensor,
    labels: Tensor,
    *,
    allow: Collection[str] = (),
    batch_size: int = 64,
    measure: bool = True,
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
        allow: findings that shall not refuse.
        batch_size: images at a time.
        measure: whether to time a pass.
        class_names: the data's class names.
        alphabetical: whether the labels are nothing but the names' places in alphabetical order.
        eot: the model is random, and so many passes are averaged.
        gradients: whether any attack needs the model's gradients; findings about them are notes otherwise.
    """
    unknown = sorted(set(allow) - set(REMEDIES))
    if unknown:
        raise UnknownName(f"there is no finding called {unknown[0]!r} to allow; known: {', '.join(REMEDIES)}.")
    per_image, per_pixel = x.shape[:1], (len(x), *x.shape[2:])
    if x.ndim < 2 or labels.shape not in (per_image, per_pixel) or len(x) == 0 or labels.is_floating_point():
        got = f"images {tuple(x.shape)} and labels {tuple(labels.shape)} of type {labels.dtype}"
        raise BadInput(f"{got} do not belong together; give one integer label per image, or per pixel.")
    if not x.is_floating_point():
        raise BadInput(f"the images are {x.dtype}; give floats in [0, 1], e.g. x.float() / 255.")
    checks = _Checks(model, batch_size, class_names, alphabetical, gradients, eot)
    devices = sorted({tensor.get_device() for tensor in (x, *checks.weights) if tensor.is_cuda})
    checks.training_mode()
    with torch.random.fork_rng(devices=devices), borrowed(model):
        checks.precision()
        checks.image_range(x)
        logits = checks.predictions(checks.placed(x), labels)
        if logits is not None:
            sample = checks.placed(x[:batch_size])
            reordered = checks.gradient(sample.roll(1, 0), labels[:batch_size].to(sample.device).roll(1, 0))
            checks.consistency(sample, logits, None if reordered is None else reordered.roll(-1, 0))
            if measure and checks.differentiable:
                checks.cost(sample)
    return Preflight(
        findings=tuple(sorted(checks.findings, key=lambda finding: _MOST_SEVERE_FIRST[finding.severity])),
        allowed=frozenset(allow),
        images=len(x),
        classes=checks.classes,
        clean_accuracy=checks.accuracy,
        batch_size=min(batch_size, len(x)),
        seconds=checks.seconds,
        bytes_per_image=checks.bytes_per_image,
        bytes_of_weights=sum(tensor.numel() * tensor.element_size() for tensor in checks.weights),
    )


class _Checks:
    """The checks, in their order, and what they found."""

    def __init__(
        self,
        model: Callable[[Tensor], Tensor],
        batch_size: int,
        class_names: Sequence[str] | None,
        alphabetical: bool,
        gradients: bool,
        eot: int | None,
    ):
        self.model, self.batch_size, self.class_names, self.alphabetical = model, batch_size, class_names, alphabetical
        self.gradients, self.eot = gradients, eot
        self.findings: list[Finding] = []
        self.classes: int | None = None
        self.accuracy: float | None = None
        self.seconds: float | None = None
        self.bytes_per_image: int | None = None
        self.differentiable = False
        self.weights = [*model.parameters(), *model.buffers()] if isinstance(model, nn.Module) else []
        self.floats = [tensor for tensor in self.weights if tensor.is_floating_point()]

    def found(self, name: str, severity: Severity, sentence: str) -> None:
        self.findings.append(Finding(name, severity, sentence, REMEDIES[name]))

    def placed(self, x: Tensor) -> Tensor:
        """Images on the model's device and in its floating type."""
        return x.to(device=self.floats[0].device, dtype=self.floats[0].dtype) if self.floats else x

    def call(self, x: Tensor) -> Any:
        """What the model returns for ``x`` (B, ...), unwrapped where it is a record with logits."""
        return logits_of(self.model(x.clone()))  # some models normalise in place

    def outputs(self, x: Tensor, failure: str = "forward-fails") -> Any:
        """What the model returns for ``x`` without gradients; None, and a finding, where it fails."""
        try:
            with torch.no_grad():
                return self.call(x)
        except BadModel as error:
            self.found("bad-output", "refuse", f"{str(error).rstrip('.')}.")
        except Exception as error:
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            self.found(failure, "refuse", f"The model failed on images of shape {tuple(x.shape)} with {reason}.")
        return None

    def training_mode(self) -> None:
        if isinstance(self.model, nn.Module) and any(module.training for module in self.model.modules()):
            self.found(
                "train-mode",
                "note",
                "The model was given in training mode; it is evaluated in evaluation mode and put back afterwards.",
            )

    def precision(self) -> None:
        kinds = sorted(
            {str(tensor.dtype).removeprefix("torch.") for tensor in self.floats if tensor.dtype in _TOLERANCE}
        )
        if kinds:
            how = f"The model computes in {', '.join(kinds)}"
            self.found(
                "low-precision", "warn", f"{how}: near the boundary its rounding decides, and gradients may vanish."
            )

    def image_range(self, x: Tensor) -> None:
        low, high = float(x.min()), float(x.max())
        if not (low >= 0 and high <= 1):
            cause = "they look normalised" if low < 0 else "they look like bytes from 0 to 255" if high > 2 else None
            cause = cause or "some are no numbers in it"
            self.found(
                "data-range", "refuse", f"The images range from {low:.4g} to {high:.4g}, not within [0, 1]; {cause}."
            )
        elif high <= 1.5 / 255:
            self.found(
                "data-range",
                "refuse",
                f"The largest value in the images is {high:.2g}: they seem to have been divided by 255 twice.",
            )

    def predictions(self, x: Tensor, labels: Tensor) -> Tensor | None:
        """The logits of the first batch, after what all clean predictions show; None where the model gives none."""
        parts: list[Tensor] = []
        for batch in x.split(self.batch_size):
            output = self.outputs(batch)
            if output is None or (not parts and not self._are_logits(output, len(batch), labels)):
                return None
            parts.append(output)
        logits, labels = torch.cat(parts).float(), labels.to(parts[0].device)
        classes = self.classes = logits.shape[1]
        count, subjects = len(x), "images"
        if labels.ndim > 1:
            # Each labelled pixel is judged as an image of its own, or some thousands of them, evenly spread; pixels
            # with other labels are left out.
            logits, labels = logits.movedim(1, -1).flatten(0, -2), labels.flatten()
            labelled = ((labels >= 0) & (labels < classes)).nonzero().flatten()
            labelled = labelled[:: len(labelled) // _MOST_PIXELS + 1]
            logits, labels, count, subjects = logits[labelled], labels[labelled], len(labelled), "labelled pixels"
        if not count:
            self.found(
                "labels-outside",
                "refuse",
                f"None of the pixels has a label that is one of the model's {classes} classes.",
            )
            return parts[0]
        broken = ~logits.isfinite().all(1)
        if bool(broken.any()):
            self.found(
                "nan-logits",
                "refuse",
                f"The model returned NaN or infinite logits for {int(broken.sum())} of {count} {subjects}.",
            )
        if bool(((labels < 0) | (labels >= classes)).any()):
            span = f"from {int(labels.min())} to {int(labels.max())}"
            self.found("labels-outside", "refuse", f"There are labels {span}, but the model has {classes} classes.")
        right = int((logits.argmax(1) == labels).sum())
        self.accuracy = right / count
        guessing = self._judge_accuracy(right, count, classes, subjects)
        # Neighbouring pixels are alike: one object looks like classes in another order.
        if subjects == "images":
            self._judge_labels(logits[~broken], labels[~broken], guessing)
        return parts[0]

    def _are_logits(self, output: Any, images: int, labels: Tensor) -> bool:
        if (
            isinstance(output, Tensor)
            and output.ndim == labels.ndim + 1
            and (len(output), *output.shape[2:]) == (images, *labels.shape[1:])
            and output.shape[1] >= 2
            and output.is_floating_point()
        ):
            return True
        tensor = isinstance(output, Tensor)
        what = f"a tensor of shape {tuple(output.shape)} and type {output.dtype}" if tensor else described(output)
        maps = f" with label maps of {labels.shape[1]} x {labels.shape[2]}" if labels.ndim > 1 else ""
        self.found("bad-output", "refuse", f"The model returned {what} for {images} images{maps}.")
        return False

    def _judge_accuracy(self, right: int, count: int, classes: int, subjects: str) -> bool:
        """Whether the model is no better than guessing."""
        said = f"{right} of {count} clean {subjects} are classified as labelled ({100 * right / count:.1f} %)"
        if count < _ENOUGH_IMAGES:
            self.found("few-images", "note", f"{said}; {count} images are too few to judge clean accuracy.")
        elif _chance_of(right, count, classes) > 0.01:
            what = f"{said}, which guessing among {classes} classes would reach as well."
            self.found("wrong-labels-or-range", "refuse", what)
            return True
        if right < 0.5 * count:
            self.found("low-clean-accuracy", "warn", f"{said}; an image that is already wrong counts as distance 0.")
        return False

    def _judge_labels(self, logits: Tensor, labels: Tensor, guessing: bool) -> None:
        names = self.class_names
        assert self.classes is not None
        said = name_findings(names, self.classes) if self.alphabetical and names is not None else []
        for name, severity, sentence in [*said, *prediction_findings(logits, labels, names, guessing)]:
            self.found(name, severity, sentence)
        rows = logits.double()
        if len(rows) and bool((rows >= 0).all()) and bool(((rows.sum(1) - 1).abs() < 1e-3).all()):
            self.found(
                "probabilities",
                "warn",
                "The outputs are probabilities (between 0 and 1, summing to 1): gradients vanish where it is sure.",
            )

    def gradient(self, x: Tensor, labels: Tensor) -> Tensor | None:
        """The logits of ``x`` (B, ...), after what gradients show; None where none reaches the images."""
        try:
            with torch.enable_grad():
                leaf = x.detach().clone().requires_grad_(True)
                logits = self.call(leaf).float()
                top = logits.topk(2, 1).values
                (margin,) = torch.autograd.grad((top[:, 0] - top[:, 1]).sum(), leaf, retain_graph=True)
                inside = labels.clamp(0, logits.shape[1] - 1)
                (entropy,) = torch.autograd.grad(F.cross_entropy(logits, inside, reduction="sum"), leaf)
        except RuntimeError as error:
            what = f"No gradient reaches the images ({str(error).splitlines()[0][:160]})."
            self.found("non-differentiable", self._of_gradients("refuse"), what)
            return None
        self.differentiable = True
        flat, share = margin.flatten(1), f"of {len(x)} images"
        broken, zero = ~flat.isfinite().all(1), (flat == 0).all(1)
        blind = (entropy.flatten(1) == 0).all(1) & ~zero
        if bool(broken.any()):
            what = f"The gradient is NaN or infinite for {int(broken.sum())} {share}."
            self.found("nan-gradient", self._of_gradients("refuse" if bool(broken.all()) else "warn"), what)
        if bool(zero.any()):
            what = (
                f"The gradient of the logits' margin is exactly zero for {int(zero.sum())} {share}: robustness may "
                "only seem high."
            )
            self.found("zero-gradient", self._of_gradients("refuse" if bool(zero.all()) else "warn"), what)
        if bool(blind.any()):
            self.found(
                "saturated",
                "note",
                f"The cross-entropy's gradient vanishes for {int(blind.sum())} {share} though the margin's does not.",
            )
        found: Tensor = logits.detach()
        return found

    def _of_gradients(self, severity: Severity) -> Severity:
        """The severity of a finding about gradients: a note where no attack needs them."""
        return severity if self.gradients else "note"

    def consistency(self, x: Tensor, logits: Tensor, reordered: Tensor | None) -> None:
        """Whether the logits of ``x`` (B, ...) are the same in a second call, at other places of the batch, and alone.

        ``reordered`` are logits from a call in which every image had another place; None: they are computed here.
        """
        if reordered is None:
            output = self.outputs(x.roll(1, 0))
            if output is None:
                return
            reordered = output.roll(-1, 0)
        size = float(logits.double().abs().nan_to_num(0.0, 0.0, 0.0).amax().clamp_min(1e-6))
        allowed = size * _TOLERANCE.get(self.floats[0].dtype if self.floats else logits.dtype, 1e-3)
        moved, gap = _difference(logits, reordered), 0.0
        if moved > allowed:
            if (again := self.outputs(x)) is None:
                return
            gap = _difference(logits, again)
        if gap > allowed:
            self._random(x, gap, allowed)
        elif self.eot is not None:
            what = f"The model answers the same every time: {self.eot} passes show no more than one."
            self.found("not-random", "note", what)
        elif moved > allowed:
            what = f"An image's logits differ by up to {moved:.3g} with its place in the batch."
            self.found("batch-dependent", "refuse", what)
        else:
            self._alone(x, logits, allowed)

    def _alone(self, x: Tensor, logits: Tensor, allowed: float) -> None:
        row = len(x) // 2
        if (alone := self.outputs(x[row : row + 1], "batch-dependent")) is None:
            return
        if alone.shape != logits[:1].shape:
            what = f"An image alone gets logits of shape {tuple(alone.shape)}, not {tuple(logits[:1].shape)}."
            self.found("batch-dependent", "refuse", what)
        elif (gap := _difference(logits[row : row + 1], alone)) > allowed:
            what = f"An image's logits differ by up to {gap:.3g} between a batch of {len(x)} and alone."
            self.found("batch-dependent", "refuse", what)

    def _random(self, x: Tensor, gap: float, allowed: float) -> None:
        if self.eot is None:
            what = f"The same images got logits that differ by up to {gap:.3g} when asked twice."
            self.found("not-deterministic", "refuse", what)
            return
        what = f"The model is random (logits differ by up to {gap:.3g}): means over {self.eot} passes count."
        self.found("random", "note", what)
        seeded = []
        state, python = np.random.get_state(), random.getstate()
        try:
            for _ in range(2):
                torch.manual_seed(0)
                np.random.seed(0)
                random.seed(0)
                seeded.append(self.outputs(x))
        finally:
            np.random.set_state(state)
            random.setstate(python)
        if all(output is not None for output in seeded) and _difference(*seeded) > allowed:
            self.found(
                "randomness-elsewhere",
                "warn",
                "With torch's, NumPy's and Python's generators set alike it still answers otherwise: another run will "
                "give other numbers, and a result depends on its batch.",
            )

    def cost(self, x: Tensor) -> None:
        """Count what autograd keeps between a forward and a backward pass, and time the faster of two rounds."""
        kept: dict[int, int] = {}
        own = {tensor.untyped_storage().data_ptr() for tensor in self.weights}

        def keep(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in own:
                kept[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            pass_seconds(self.model, x)
        self.seconds = min(pass_seconds(self.model, x) for _ in range(2)) / len(x)
        self.bytes_per_image = max(sum(kept.values()) // len(x), x[0].numel() * x.element_size())


def _difference(a: Tensor, b: Tensor) -> float:
    """The largest difference between two sets of logits where both are numbers."""
    difference = (a.double() - b.double()).abs()
    return float(difference[difference.isfinite()].max()) if bool(difference.isfinite().any()) else 0.0


def _chance_of(right: int, images: int, classes: int) -> float:
    """The probability that guessing gets that many images or more right: a binomial tail, its terms as logarithms."""
    ways = (lgamma(images + 1) - lgamma(k + 1) - lgamma(images - k + 1) for k in range(right, images + 1))
    return sum(exp(way - k * log(classes) + (images - k) * log(1 - 1 / classes)) for k, way in enumerate(ways, right))
