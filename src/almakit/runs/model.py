"""The model of a run: opened from any form, identified by hashes, queried for logits, and wrapped for attacks."""

from __future__ import annotations

import copy
import hashlib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from ..core.oracle import EOT, LEAST, Model, filled, image_seed, precision_and_device, seeded
from ..data.features import Features
from ..data.user_file import imports_sha256
from ..errors import BadInput, BadModel, Unavailable
from ..goals.base import Goal
from ..goals.outputs import logits_of
from ..goals.pixels import PixelGoal
from ..models import OUTPUT, is_code
from ..models import load as load_model
from ..models.classifier import state_sha256
from .failures import CodeNamed
from .folder import RunFolder
from .identity import model_sha256
from .images import in_units, share_of
from .python_code import fingerprint, settings_sha256
from .spec import AUTO, RunSpec

TINY = 1e-12
AUTOCAST = {"bfloat16": torch.bfloat16, "float16": torch.float16}
"""Precisions to which a model is cast during attacks."""


@dataclass(frozen=True, eq=False)
class Subject:
    """The model of a run, with what is known about it."""

    name: str
    model: Model
    facts: Mapping[str, str | None]  # the hashes named in ``identity.FACTS``; None where there is nothing to hash
    model_sha256: str | None  # of all these together, see identity.py
    device: torch.device
    working: torch.dtype  # of images and distances
    native: torch.dtype | None  # of the model's weights, None for a function
    autocast: torch.dtype | None
    by_name: bool = False  # loaded by name or from a file, as any other process can do
    draws: EOT | None = None  # passes that vote on a point of a random model
    seed: int = 0
    classes: list[int] = field(default_factory=list)  # number of classes, known after the first answer
    features: Features | None = None  # features of data with units: the model receives values in these units
    held: bool = True  # whether seeds determine its random numbers
    goal: Goal | None = None  # goal of the attacks; None: leave the label or reach the target
    aimed: bool = False  # the outputs are not class logits; the classes are: not reached, reached

    @property
    def maps(self) -> bool:
        """Whether the data have label maps, so that the model returns logits for each pixel."""
        return isinstance(self.goal, PixelGoal)

    @property
    def weights_sha256(self) -> str | None:
        """The sha256 of the weights, or of the code of a plain function; None if neither is available."""
        return self.facts["weights_sha256"]

    def logits(self, x: Tensor, size: int, truth: Tensor | None = None) -> Tensor:
        """The first value of ``answers``: (B, K), float64 on the CPU."""
        return self.answers(x, size, truth)[0]

    def clean_pass(self, x: Tensor, grad: bool) -> CleanPass:
        """One pass over the clean images ``x`` (B, ...), with a graph for gradients if ``grad``."""
        with torch.inference_mode(False), torch.set_grad_enabled(grad):
            inputs = self.place(x).clone().requires_grad_(grad)
            try:
                return CleanPass(inputs, filled(self.model, inputs.clone(), self.least))
            except RuntimeError as error:
                # A model that computes with numpy has no gradients; attacks that need them raise the error.
                if grad and "requires grad" in str(error):
                    return self.clean_pass(x, grad=False)
                raise

    @property
    def least(self) -> int:
        """The smallest number of rows in a batch, so that the last images of a run, or a batch size of one, give the
        same bits."""
        return LEAST if self.device.type == "cpu" else 1

    @torch.no_grad()
    def outputs(self, x: Tensor, size: int, clean: CleanPass | None = None) -> Tensor:
        """The outputs (B, ...) that the goal reads from the model's answers to ``x`` (B, ...), float64 on the CPU."""
        assert self.goal is not None
        parts = [(part, self._answer(part) if clean is None else clean.answer) for part in x.split(size)]
        return torch.cat([self.goal.read(answer, len(part)).detach().cpu().double() for part, answer in parts])

    def met(self, outputs: Tensor, clean: Tensor, truth: Tensor | None) -> Tensor:
        """Logits (B, 2) for "goal not reached" and "goal reached": margin and minus margin of ``outputs`` (B, ...), for
        the goal fitted to the ``clean`` outputs (B, ...) and labels ``truth`` (B, ...). NaN where outputs are not
        finite."""
        assert self.goal is not None
        self.classes[:] = [2]
        bound = self.goal.for_labels(truth, None).fit(torch.nan_to_num(clean), torch.arange(len(clean)))
        margin = bound.margin(torch.nan_to_num(outputs))
        finite = torch.isfinite(outputs).flatten(1).all(1) & torch.isfinite(clean).flatten(1).all(1)
        return torch.where(finite.unsqueeze(1), torch.stack([margin, -margin], 1).double(), math.nan)

    def with_features(self, features: Features | None) -> Subject:
        """The subject for data scaled to [0, 1]; the model still receives the data's own units."""
        if features is None:
            return self
        return replace(self, model=in_units(self.model, features), features=features)

    @torch.no_grad()
    def passes(self, image: Tensor, purpose: str) -> Tensor:
        """Logits (M, K) of one ``image`` (...) in the passes that vote on it, float64 on the CPU."""
        assert self.draws is not None
        with seeded(image_seed(self.seed, image, purpose), image.device):
            counts = [min(256, self.draws.votes - begun) for begun in range(0, self.draws.votes, 256)]
            parts = [image.expand(count, *image.shape) for count in counts]
            return torch.cat([self._logits(self._answer(part), part).cpu().double() for part in parts])

    @torch.no_grad()
    def answers(
        self, x: Tensor, size: int, truth: Tensor | None = None, clean: CleanPass | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """The model's ``logits`` (B, K) and, if it returns logits (B, K, H, W), the class of each pixel (B, H, W), -1
        for images with a logit that is not finite. For a random model, the logits are the logarithms of the classes'
        vote shares. ``clean``: the pass over these images, if it was made already."""
        if self.aimed:
            outputs = self.outputs(x, size, clean)
            return self.met(outputs, outputs, truth), None
        if self.draws is not None:
            return torch.stack([votes(self.passes(image, "clean")).clamp_min(TINY).log() for image in x]), None
        rows, maps = [], []
        for part in x.split(size):
            answer = self._logits(self._answer(part) if clean is None else clean.answer, part)
            if self.maps:
                finite = torch.isfinite(answer).flatten(1).all(1)
                maps.append(torch.where(finite[:, None, None], torch.nan_to_num(answer).argmax(1), -1).cpu())
                counts = one_hot(maps[-1].flatten(1).clamp_min(0), answer.shape[1]).sum(1).double()
                counts[~finite.cpu()] = math.nan
                rows.append((counts / maps[-1][0].numel()).clamp_min(TINY).log())
            else:
                rows.append(answer.cpu().double())
        return torch.cat(rows), torch.cat(maps) if maps else None

    def _answer(self, part: Tensor) -> Any:
        return self.model(self.place(part).clone())  # a copy, because some models normalise in place

    def _logits(self, answer: Any, part: Tensor) -> Tensor:
        """The logits (B, K), or (B, K, H, W) for segmentation, in the model's ``answer`` for ``part``."""
        answer = logits_of(answer)
        shape = "(batch, classes, height, width)" if self.maps else "(batch, classes)"
        if not isinstance(answer, Tensor) or answer.ndim != (4 if self.maps else 2) or len(answer) != len(part):
            got = f"shape {tuple(answer.shape)}" if isinstance(answer, Tensor) else f"a {type(answer).__name__}"
            raise BadModel(f"the model must return logits of shape {shape}; for {len(part)} images it returned {got}.")
        if self.maps and answer.shape[2:] != part.shape[2:]:
            raise BadModel(
                f"expected logits (B, K, {part.shape[2]}, {part.shape[3]}), got {tuple(answer.shape)}: load the "
                "model with ?output=fit behind its name, or resize them inside it."
            )
        self.classes[:] = self.classes or [answer.shape[1]]
        if answer.shape[1] != self.classes[0]:
            raise BadModel(f"the model returned {answer.shape[1]} logits for an image and {self.classes[0]} before.")
        return answer.detach()

    @property
    def near(self) -> float:
        """How much rounding may change a probability: little on a CPU in single or double precision; more if kernels or
        precisions differ, or if it is a share of pixels."""
        if self.draws is not None:
            # Vote shares differ little if seeds determine the random numbers, otherwise as two independent counts do.
            return 1e-2 if self.held else 3.3 * math.sqrt(0.5 / self.draws.votes)
        exact = not self.maps and self.device.type == "cpu" and self.native in (None, torch.float32, torch.float64)
        return 1e-4 if exact else 1e-2

    def place(self, x: Tensor) -> Tensor:
        """``x`` (B, ...) on the model's device and in its precision."""
        return x.to(self.device, self.native or self.working)


@dataclass(frozen=True, eq=False)
class CleanPass:
    """The model's ``answer`` to a chunk's clean images, with its graph back to ``inputs`` (B, ...)."""

    inputs: Tensor
    answer: Any

    def serves(self, x: Tensor) -> bool:
        """Whether a pass over ``x`` (B, ...) would repeat this one bit for bit."""
        return (
            isinstance(self.answer, Tensor)
            and x.dtype == self.inputs.dtype
            and (x.requires_grad and torch.is_grad_enabled()) == self.inputs.requires_grad
            and bool(torch.equal(x, self.inputs))
        )


class _Again(torch.autograd.Function):
    """The outputs of a clean pass for another leaf ``x`` (B, ...). Gradients are computed with the graph of the first
    pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, clean: CleanPass) -> Tensor:
        ctx.clean = clean
        answer: Tensor = clean.answer.detach()
        return answer.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        clean: CleanPass = ctx.clean
        return torch.autograd.grad(clean.answer, clean.inputs, gradients[0], retain_graph=True)[0], None


class Attacked(nn.Module):
    """The module that attacks call. It calls ``before`` with the size of each batch, pads batches to ``least`` rows,
    and uses the ``clean`` pass instead of the first call if both are equal."""

    def __init__(
        self, model: Model, before: Callable[[int], None] | None = None, least: int = 1, clean: CleanPass | None = None
    ):
        super().__init__()
        self.inner, self.training = model, getattr(model, "training", False)
        self.before, self.least, self.clean = before, least, clean

    def __call__(self, x: Tensor) -> Any:
        if self.before is not None:
            self.before(len(x))
        clean, self.clean = self.clean, None
        if clean is not None and clean.serves(x):
            return _Again.apply(x, clean)  # type: ignore[no-untyped-call]
        return self.inner(x) if len(x) >= self.least else filled(self.inner, x, self.least)


def votes(logits: Tensor) -> Tensor:
    """The share (K,) of the passes ``logits`` (M, K) that vote for each class, float64; NaN if a logit is not
    finite."""
    if not bool(torch.isfinite(logits).all()):
        return torch.full_like(logits[0], math.nan)
    return torch.bincount(logits.argmax(1), minlength=logits.shape[1]).double() / len(logits)


def model_name(model: Any) -> str:
    """The name in records of a model that was passed in Python."""
    name = getattr(model, "name", None)
    if isinstance(name, str) and name:
        return name
    return f"python:{type(model).__qualname__ if isinstance(model, nn.Module) else fingerprint(model)}"


def open_model(model: str | Model, spec: RunSpec) -> Subject:
    """The model of a URI, or the model passed by the caller, in the run's precision. The caller's model is not
    changed."""
    device = _device(spec.device)
    file = None
    if isinstance(model, str):
        if model.startswith("python:"):
            raise BadInput(f"the model {model} was passed in Python; resume with almakit.evaluate(...).")
        normalisation = (spec.mean, spec.std) if spec.mean else None
        loaded: Model = load_model(model, trust=spec.trust, device=device, normalisation=normalisation)
        # Files of these kinds contain more than weights.
        file = Path(re.sub(r"(\.py):\w+(@.*)?\Z", r"\1", model.partition(OUTPUT)[0])).expanduser()
        file = file if file.suffix in (".py", ".pt2", ".onnx") and file.is_file() else None
    elif not callable(model):
        raise BadInput(f"expected a name, a torch module or a function as model, got a {type(model).__name__}.")
    elif spec.mean:
        raise BadInput("mean and std are for models loaded by name; put the normalisation inside the model you give.")
    else:
        loaded = model
    native, place = precision_and_device(loaded)
    name, code = model if isinstance(model, str) else model_name(loaded), file is not None and file.suffix == ".py"
    # Named models do not change; a .py file may read its settings from other places.
    known = not code and (isinstance(model, str) or getattr(model, "by_name", False))
    facts = {
        "weights_sha256": weights_sha256(loaded),
        "code_sha256": None if file is None else hashlib.sha256(file.read_bytes()).hexdigest(),
        "imports_sha256": imports_sha256(file) if file is not None and code else None,
        "settings_sha256": None if known else settings_sha256(loaded),
    }
    working = torch.float64 if spec.dtype == "float64" else torch.float32
    if isinstance(loaded, nn.Module) and working == torch.float64:
        loaded, native = copy.deepcopy(loaded).double(), native and torch.float64
    return Subject(
        name,
        loaded,
        facts,
        model_sha256(name, facts, spec),
        place or torch.device(device),
        working,
        native,
        AUTOCAST.get(spec.dtype),
        by_name=isinstance(model, str),
        draws=None if spec.eot is None else EOT(spec.eot, spec.votes, spec.vote_share),
        seed=spec.seed,
    )


def _device(name: str) -> str:
    """The device of a name; ``auto`` is a GPU if one is available."""
    if name == AUTO:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(1, device=name).item()
    except (RuntimeError, AssertionError) as error:
        why = str(error).splitlines()[0]
        raise Unavailable(f"the device {name!r} cannot be used here ({why}); choose --device cpu.") from error
    return name


def open_of(run: RunFolder, model: str | Model | None, device: str, trust: bool) -> Subject:
    """The model for judging the images of a run folder again: ``model``, or the run's own.

    A folder is untrusted data: its setting of trust is ignored, and code that it names does not run.
    """
    if model is None and is_code(run.spec.model):
        raise CodeNamed(
            f"no code runs because a folder names it, and the run's model is Python code: --model {run.spec.model}"
        )
    return open_model(model or run.spec.model, replace(run.spec, device=device, trust=trust))


def for_run(subject: Subject, run: RunFolder, goal: Goal | None) -> Subject:
    """The subject with the run's ``goal`` and the units of its data, for judging stored images."""
    goal = PixelGoal(share=share_of(run.spec.goal)) if run.segmentation else goal
    return replace(subject, goal=goal, aimed=run.aimed).with_features(run.features)


def goal_of(run: RunFolder, goal: object = None) -> object:
    """``goal``, or else the text of the run's own goal, unless that is about pixels. Code is accepted only in
    ``goal``."""
    own = None if run.segmentation else run.spec.goal
    if goal is None and own is not None and ":" in own:
        raise CodeNamed(f"no code runs because a folder names it, and the run's goal is Python code: --goal {own}")
    return own if goal is None else goal


def weights_sha256(model: Model) -> str | None:
    """The sha256 of a model's weights, or of a function's code."""
    known = getattr(model, "weights_sha256", None)
    if isinstance(known, str):
        return known
    if isinstance(model, nn.Module):
        return state_sha256(model.state_dict())
    mark = fingerprint(model)
    return f"code:{mark}" if "#" in mark else None
