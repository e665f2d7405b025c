"""The looks of a preflight at a model: its logits, its randomness, its gradients and what a pass costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import exp, lgamma, log
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core.model import pass_seconds
from ..errors import BadModel
from ..goals.outputs import described, logits_of
from .findings import WAYS_OUT, Finding, Severity
from .labels import name_findings, prediction_findings
from .randomness import TOLERANCE, random_findings

_PIXELS = 20_000  # judged at most
_ENOUGH = 10


class Look:
    """The checks, in their order, and what they found."""

    def __init__(
        self,
        model: Callable[[Tensor], Tensor],
        batch_size: int,
        class_names: Sequence[str] | None,
        alphabetical: bool,
        gradients: bool,
        eot: int | None = None,
    ):
        self.eot = eot
        self.model, self.batch_size, self.class_names, self.alphabetical = model, batch_size, class_names, alphabetical
        self.gradients = gradients
        self.findings: list[Finding] = []
        self.classes: int | None = None
        self.accuracy: float | None = None
        self.seconds: float | None = None
        self.bytes_per_image: int | None = None
        self.differentiable = False
        self.things = "images"
        self.weights = [*model.parameters(), *model.buffers()] if isinstance(model, nn.Module) else []
        self.floats = [tensor for tensor in self.weights if tensor.is_floating_point()]

    def found(self, name: str, severity: Severity, sentence: str) -> None:
        self.findings.append(Finding(name, severity, sentence, WAYS_OUT[name]))

    def place(self, x: Tensor) -> Tensor:
        """Images on the model's device and in its floating type."""
        return x.to(device=self.floats[0].device, dtype=self.floats[0].dtype) if self.floats else x

    def ask(self, x: Tensor) -> Any:
        """What the model returns for ``x`` (B, ...), unwrapped where it is a record with logits."""
        return logits_of(self.model(x.clone()))  # some models normalise in place

    def logits(self, batches: list[Tensor]) -> list[Tensor] | None:
        """What the model returns for each of the batches; None, and a finding, where it fails."""
        outputs = []
        for batch in batches:
            try:
                with torch.no_grad():
                    outputs.append(self.ask(batch))
            except BadModel as error:
                self.found("bad-output", "refuse", f"{str(error).rstrip('.')}.")
                return None
            except Exception as error:
                reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
                self.found(
                    "forward-fails",
                    "refuse",
                    f"The model failed on images of shape {tuple(batch.shape)} with {reason}.",
                )
                return None
        return outputs

    def at_training_mode(self) -> None:
        if isinstance(self.model, nn.Module) and any(module.training for module in self.model.modules()):
            self.found(
                "train-mode",
                "note",
                "The model was given in training mode; it is evaluated in evaluation mode and put back afterwards.",
            )

    def at_precision(self) -> None:
        kinds = sorted(
            {str(tensor.dtype).removeprefix("torch.") for tensor in self.floats if tensor.dtype in TOLERANCE}
        )
        if kinds:
            how = f"The model computes in {', '.join(kinds)}"
            self.found(
                "low-precision", "warn", f"{how}: near the boundary its rounding decides, and gradients may vanish."
            )

    def at_images(self, x: Tensor) -> None:
        low, high = float(x.min()), float(x.max())
        if not (low >= 0 and high <= 1):
            cause = (
                "they look normalised"
                if low < 0
                else "they look like bytes from 0 to 255"
                if high > 2
                else "some are no numbers in it"
            )
            self.found(
                "data-range", "refuse", f"The images range from {low:.4g} to {high:.4g}, not within [0, 1]; {cause}."
            )
        elif high <= 1.5 / 255:
            self.found(
                "data-range",
                "refuse",
                f"The largest value in the images is {high:.2g}: they seem to have been divided by 255 twice.",
            )

    def at_logits(self, x: Tensor, labels: Tensor) -> None:
        parts = self.logits(list(x.split(self.batch_size)))
        if parts is None:
            return
        given = len(x[: self.batch_size])
        first = parts[0]
        if (
            not isinstance(first, Tensor)
            or first.ndim != labels.ndim + 1
            or (len(first), *first.shape[2:]) != (given, *labels.shape[1:])
            or first.shape[1] < 2
            or not first.is_floating_point()
        ):
            what = (
                f"a tensor of shape {tuple(first.shape)} and type {first.dtype}"
                if isinstance(first, Tensor)
                else described(first)
            )
            maps = f" with label maps of {labels.shape[1]} x {labels.shape[2]}" if labels.ndim > 1 else ""
            self.found("bad-output", "refuse", f"The model returned {what} for {given} images{maps}.")
            return
        logits = torch.cat(parts).float()
        labels = labels.to(logits.device)
        classes = self.classes = logits.shape[1]
        images = len(x)
        if labels.ndim > 1:
            # Each labelled pixel is judged as an image of its own, or some thousands of them, evenly spread; other
            # labels count for nothing.
            logits, labels = logits.movedim(1, -1).flatten(0, -2), labels.flatten()
            counted = ((labels >= 0) & (labels < classes)).nonzero().flatten()
            counted = counted[:: len(counted) // _PIXELS + 1]
            logits, labels, images, self.things = logits[counted], labels[counted], len(counted), "labelled pixels"
        broken = ~logits.isfinite().all(1)
        if not images:
            self.found(
                "labels-outside",
                "refuse",
                f"None of the pixels has a label that is one of the model's {classes} classes.",
            )
            return
        if bool(broken.any()):
            self.found(
                "nan-logits",
                "refuse",
                f"The model returned NaN or infinite logits for {int(broken.sum())} of {images} {self.things}.",
            )
        if bool(((labels < 0) | (labels >= classes)).any()):
            span = f"from {int(labels.min())} to {int(labels.max())}"
            self.found("labels-outside", "refuse", f"There are labels {span}, but the model has {classes} classes.")
        right = int((logits.argmax(1) == labels).sum())
        self.accuracy = right / images
        self._judge_accuracy(right, images, classes)
        said = name_findings(self.class_names, classes) if self.alphabetical and self.class_names is not None else []
        guessing = any(finding.name == "wrong-labels-or-range" for finding in self.findings)
        if self.things != "images":
            # pixels beside each other are alike: what counts would show of classes in another order, one object shows
            # as well
            return
        for name, severity, sentence in [
            *said,
            *prediction_findings(logits[~broken], labels[~broken], self.class_names, guessing),
        ]:
            self.found(name, severity, sentence)
        rows = logits[~broken].double()
        if len(rows) and bool((rows >= 0).all()) and bool(((rows.sum(1) - 1).abs() < 1e-3).all()):
            self.found(
                "probabilities",
                "warn",
                "The outputs are probabilities (between 0 and 1, summing to 1): gradients vanish where it is sure.",
            )

    def _judge_accuracy(self, right: int, images: int, classes: int) -> None:
        said = f"{right} of {images} clean {self.things} are classified as labelled ({100 * right / images:.1f} %)"
        if images < _ENOUGH:
            self.found("few-images", "note", f"{said}; {images} images are too few to judge clean accuracy.")
        elif _by_luck(right, images, classes) > 0.01:
            self.found(
                "wrong-labels-or-range",
                "refuse",
                f"{said}, which guessing among {classes} classes would reach as well.",
            )
            return
        if right < 0.5 * images:
            self.found("low-clean-accuracy", "warn", f"{said}; an image that is already wrong counts as distance 0.")

    def at_randomness(self, x: Tensor) -> None:
        kind = self.floats[0].dtype if self.floats else None
        for name, severity, sentence in random_findings(self.logits, x, kind, self.eot):
            self.found(name, severity, sentence)

    def at_gradients(self, x: Tensor, labels: Tensor) -> None:
        try:
            with torch.enable_grad():
                leaf = x.detach().clone().requires_grad_(True)
                logits = self.ask(leaf).float()
                top = logits.topk(2, 1).values
                (margin,) = torch.autograd.grad((top[:, 0] - top[:, 1]).sum(), leaf, retain_graph=True)
                inside = labels.clamp(0, logits.shape[1] - 1)
                (entropy,) = torch.autograd.grad(F.cross_entropy(logits, inside, reduction="sum"), leaf)
        except RuntimeError as error:
            what = f"No gradient reaches the images ({str(error).splitlines()[0][:160]})."
            self.found("non-differentiable", self._of_gradients("refuse"), what)
            return
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

    def _of_gradients(self, severity: Severity) -> Severity:
        """How grave a finding about gradients is: a note where nobody needs them."""
        return severity if self.gradients else "note"

    def at_cost(self, x: Tensor) -> None:
        """Counts what autograd keeps between a forward and a backward pass, then times two rounds and takes the
        faster."""
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


def _by_luck(right: int, images: int, classes: int) -> float:
    """The probability that guessing among the classes gets that many images or more right: a binomial tail, its terms
    as logarithms."""
    ways = (lgamma(images + 1) - lgamma(k + 1) - lgamma(images - k + 1) for k in range(right, images + 1))
    return sum(exp(way - k * log(classes) + (images - k) * log(1 - 1 / classes)) for k, way in enumerate(ways, right))
