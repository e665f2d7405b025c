"""What a preflight check can find: names, ways out, and the report that holds the findings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..errors import BadModel

Severity = Literal["refuse", "warn", "note"]

WAYS_OUT: dict[str, str] = {
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
"""Every finding there is, by name, with what to do about it."""


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
    """All findings, the gravest first, and the figures.

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
        return tuple(
            finding for finding in self.findings if finding.severity == "refuse" and finding.name not in self.allowed
        )

    @property
    def ok(self) -> bool:
        """Whether a run may start."""
        return not self.refusals

    def get(self, name: str) -> Finding | None:
        """The finding of that name, if there is one."""
        return next((finding for finding in self.findings if finding.name == name), None)

    def estimate(self, images: int, passes: int) -> tuple[float, int]:
        """Seconds and bytes that ``passes`` forward and backward passes over so many images will take, in batches as
        measured."""
        if self.seconds is None or self.bytes_per_image is None:
            raise BadModel(
                "no estimate can be made: the model's forward and backward pass did not work or was not measured."
            )
        return self.seconds * images * passes, self.bytes_of_weights + self.bytes_per_image * min(
            images, self.batch_size
        )

    def raise_if_refused(self) -> None:
        """Raises ``BadModel`` with every refusal and its way out."""
        if self.refusals:
            listed = "".join(f"\n  - {finding}" for finding in self.refusals)
            names = " ".join(f"--allow {finding.name}" for finding in self.refusals)
            raise BadModel(f"the preflight check refuses this run:{listed}\nTo run all the same: {names}")
