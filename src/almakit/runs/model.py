"""The model as a run uses it: opened from its many forms, identified by hashes, queried for logits, and as attacks call
it."""

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
"""Precisions that a model is cast to while it is attacked."""


@dataclass(frozen=True, eq=False)
class Subject:
    """The model as a run uses it."""

    name: str
    model: Model
    facts: Mapping[str, str | None]  # the hashes of ``identity.FACTS``, None where there is nothing to hash
    model_sha256: str | None  # of all these together, see identity.py
    device: torch.device
    working: torch.dtype  # of images and distances
    native: torch.dtype | None  # of the model's weights, None for a function
    autocast: torch.dtype | None
    by_name: bool = False  # loaded by its name or from a file, as any other process can load it
    draws: EOT | None = None  # number of passes of a random model
    seed: int = 0
    classes: list[int] = field(default_factory=list)  # their number, once the model has answered
    features: Features | None = None  # of the data, where their values have units: the model gets these
    held: bool = True  # seeds determine the random numbers of a random model
    goal: Goal | None = None  # of the attacks; None: to leave the label or to reach the target
    aimed: bool = False  # the goal is on outputs that are no logits of classes; the classes are: not reached, reached

    @property
    def maps(self) -> bool:
        """Whether the data have label maps, so that the model has logits for each pixel."""
        return isinstance(self.goal, PixelGoal)

    @property
    def weights_sha256(self) -> str | None:
        """Names the weights, or the code of a plain function; None where neither can be seen."""
        return self.facts["weights_sha256"]

    def logits(self, x: Tensor, size: int, truth: Tensor | None = None) -> Tensor:
        """The first part of ``answers``: (B, K), float64 on the CPU."""
        return self.answers(x, size, truth)[0]

    def clean_pass(self, x: Tensor, grad: bool) -> CleanPass:
        """One pass over the clean images ``x`` (B, ...), with a graph for gradients where ``grad``."""
        with torch.inference_mode(False), torch.set_grad_enabled(grad):
            inputs = self.place(x).clone().requires_grad_(grad)
            try:
                return CleanPass(inputs, filled(self.model, inputs.clone(), self.least))
            except RuntimeError as error:
                # A model that computes in numpy has no gradients; attacks that need them report it.
                if grad and "requires grad" in str(error):
                    return self.clean_pass(x, grad=False)
                raise

    @property
    def least(self) -> int:
        """Rows of a batch at least, so that the last images of a run, or a batch size of one, have the same bits."""
        return LEAST if self.device.type == "cpu" else 1

    @torch.no_grad()
    def outputs(self, x: Tensor, size: int, clean: CleanPass | None = None) -> Tensor:
        """What the goal reads (B, ...) of the model's answers to ``x`` (B, ...), float64 on the CPU."""
        assert self.goal is not None
        parts = [(part, self._answer(part) if clean is None else clean.answer) for part in x.split(size)]
        return torch.cat([self.goal.read(answer, len(part)).detach().cpu().double() for part, answer in parts])

    def met(self, outputs: Tensor, clean: Tensor, truth: Tensor | None) -> Tensor:
        """(B, 2) margin and minus margin of ``outputs`` (B, ...), for the goal fitted to the ``clean`` ones (B, ...)
        and their ``truth`` (B, ...): class 0 says that it is not reached, class 1 that it is; NaN where outputs are not
        finite."""
        assert self.goal is not None
        self.classes[:] = [2]
        bound = self.goal.for_labels(truth, None).fit(torch.nan_to_num(clean), torch.arange(len(clean)))
        margin = bound.margin(torch.nan_to_num(outputs))
        finite = torch.isfinite(outputs).flatten(1).all(1) & torch.isfinite(clean).flatten(1).all(1)
        return torch.where(finite.unsqueeze(1), torch.stack([margin, -margin], 1).double(), math.nan)

    def with_features(self, features: Features | None) -> Subject:
        """Itself for data whose values are scaled to [0, 1]: the model still sees their own units."""
        if features is None:
            return self
        return replace(self, model=in_units(self.model, features), features=features)

    @torch.no_grad()
    def passes(self, image: Tensor, purpose: str) -> Tensor:
        """Logits (M, K) of one ``image`` (...) in the fresh passes that vote on it, float64 on the CPU."""
        assert self.draws is not None
        with seeded(image_seed(self.seed, image, purpose), image.device):
            counts = [min(256, self.draws.votes - begun) for begun in range(0, self.draws.votes, 256)]
            parts = [image.expand(count, *image.shape) for count in counts]
            return torch.cat([self._logits(self._answer(part), part).cpu().double() for part in parts])

    @torch.no_grad()
    def answers(
        self, x: Tensor, size: int, truth: Tensor | None = None, clean: CleanPass | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """``logits`` (B, K), and the class of each pixel (B, H, W) where the model returns logits (B, K, H, W): -1 all
        over an image with one not finite; of a random model the logarithms of the classes' shares of the votes.
        ``clean``: the pass over these images, where it was made already."""
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
        return self.model(self.place(part).clone())  # some models normalise in place

    def _logits(self, answer: Any, part: Tensor) -> Tensor:
        """The logits (B, K), or (B, K, H, W) where pixels have classes, in the model's ``answer`` for ``part``."""
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
        """What rounding may do to a probability: little on a CPU in single or double precision, more where kernels and
        precisions differ, or where it is a share of pixels, some of them between two classes."""
        if self.draws is not None:
            # Of shares of votes: little where seeds hold the random numbers, else what two counts may differ by.
            return 1e-2 if self.held else 3.3 * math.sqrt(0.5 / self.draws.votes)
        exact = not self.maps and self.device.type == "cpu" and self.native in (None, torch.float32, torch.float64)
        return 1e-4 if exact else 1e-2

    def place(self, x: Tensor) -> Tensor:
        """``x`` (B, ...) as the model takes it: on its device, in its precision."""
        return x.to(self.device, self.native or self.working)


@dataclass(frozen=True, eq=False)
class CleanPass:
    """The model's ``answer`` to a chunk's clean images, with its graph back to ``inputs`` (B, ...)."""

    inputs: Tensor
    answer: Any

    def serves(self, x: Tensor) -> bool:
        """Whether a pass over ``x`` (B, ...) now would be this one again, bit for bit."""
        return (
            isinstance(self.answer, Tensor)
            and x.dtype == self.inputs.dtype
            and (x.requires_grad and torch.is_grad_enabled()) == self.inputs.requires_grad
            and bool(torch.equal(x, self.inputs))
        )


class _Again(torch.autograd.Function):
    """The outputs of a clean pass for another leaf ``x`` (B, ...); gradients go through the graph of the first."""

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
    """The model as attacks call it, always a module: ``before`` gets the size of each batch, batches are
    filled up to ``least`` rows, and the ``clean`` pass stands in for the first call where it is the same."""

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
    """(K,) the share of the passes ``logits`` (M, K) that vote for each class, float64; NaN where one is not finite."""
    if not bool(torch.isfinite(logits).all()):
        return torch.full_like(logits[0], math.nan)
    return torch.bincount(logits.argmax(1), minlength=logits.shape[1]).double() / len(logits)


def model_name(model: Any) -> str:
    """How a model given from Python is called in records."""
    name = getattr(model, "name", None)
    if isinstance(name, str) and name:
        return name
    return f"python:{type(model).__qualname__ if isinstance(model, nn.Module) else fingerprint(model)}"


def open_model(model: str | Model, spec: RunSpec) -> Subject:
    """The model of a URI, or the one given, in the run's precision; the given one is not changed."""
    device = _device(spec.device)
    file = None
    if isinstance(model, str):
        if model.startswith("python:"):
            raise BadInput(f"the model {model} was given from Python; go on with almakit.evaluate(...), which has it.")
        normalisation = (spec.mean, spec.std) if spec.mean else None
        loaded: Model = load_model(model, trust=spec.trust, device=device, normalisation=normalisation)
        # A file of these kinds holds more than weights.
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
    # What a name stands for does not change; a .py file may read its settings from elsewhere.
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
    """The device of a name; ``auto`` is a GPU where there is one."""
    if name == AUTO:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(1, device=name).item()
    except (RuntimeError, AssertionError) as error:
        why = str(error).splitlines()[0]
        raise Unavailable(f"the device {name!r} cannot be used here ({why}); choose --device cpu.") from error
    return name


def open_of(run: RunFolder, model: str | Model | None, device: str, trust: bool) -> Subject:
    """The model that judges the images of a run folder again: ``model``, or the run's own.

    A folder is data: what it says about trust, and code that it names, count for nothing.
    """
    if model is None and is_code(run.spec.model):
        raise CodeNamed(
            f"no code runs because a folder names it, and the run's model is Python code: --model {run.spec.model}"
        )
    return open_model(model or run.spec.model, replace(run.spec, device=device, trust=trust))


def for_run(subject: Subject, run: RunFolder, goal: Goal | None) -> Subject:
    """The subject as it judges what a run stored: with the run's ``goal`` and the units of its data."""
    goal = PixelGoal(share=share_of(run.spec.goal)) if run.segmentation else goal
    return replace(subject, goal=goal, aimed=run.aimed).with_features(run.features)


def goal_of(run: RunFolder, goal: object = None) -> object:
    """``goal``, or the run's own as text where it has one that is not about pixels; code counts only as ``goal``."""
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
