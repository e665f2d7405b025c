"""A network as a graph of steps from image to logits, read with ``torch.export`` from any ``nn.Module``."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..core.oracle import Function, borrowed
from ..errors import BadModel
from .affine import Affine, Scale
from .nonlinear import MaxPool, Relu
from .reading import READERS, Unreadable, constant, lossy_type, same

BATCH = 5
"""Batch size with which a network is exported: a number that few layers have as a size."""
Layer = Affine | Relu | MaxPool


@dataclass(frozen=True)
class Step:
    """One step: what it computes from the steps ``sources`` (indices), and the ``shape`` of one image's result. The
    input has no layer."""

    layer: Layer | None
    sources: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def affine(self) -> bool:
        return isinstance(self.layer, Affine)


class Graph:
    """The steps of a network in order; the first is the input, the last gives the logits.

    With ``outward``, steps compute in float64 and bounds include every rounding error, so that they hold for the
    network with its given weights in exact arithmetic. Without ``outward``, as in training, the steps share the model's
    parameters, so bounds change with them, and rounding errors are ignored. ``precision``: the coarsest type the model
    computes in, float32 or float64.
    """

    def __init__(self, steps: list[Step], name: str, outward: bool, precision: torch.dtype = torch.float64):
        self.steps, self.name, self.outward, self.precision = steps, name, outward, precision
        self.classes = steps[-1].shape[0]
        self.first = {
            i for i, step in enumerate(steps) if not step.affine and step.sources and self._from_input(step.sources[0])
        }
        self.widest = max(sum(count(steps[j].shape) for j in {i, *step.sources}) for i, step in enumerate(steps))
        self.prefix: dict[int, Tensor] = {}  # matrices from the input to affine steps, kept between calls

    def _from_input(self, index: int) -> bool:
        """Whether only affine steps lie between the input and this step."""
        step = self.steps[index]
        return step.layer is None or (step.affine and all(self._from_input(source) for source in step.sources))

    def depth(self, index: int) -> int:
        """How often entries are mixed on the longest path from the input to the affine step ``index``.

        A step that joins branches counts once more for each branch after the first. Up to depth 1, intervals are exact
        in linf.
        """
        step = self.steps[index]
        if step.layer is None:
            return 0
        mixes = not isinstance(step.layer, Scale) and not (
            isinstance(step.layer, Affine) and step.layer.units == 0 and len(step.sources) == 1
        )
        return max(self.depth(source) for source in step.sources) + int(mixes) + len(set(step.sources)) - 1

    def values(self, x: Tensor, last: int | None = None) -> list[Tensor]:
        """Every step's value for images ``x`` (B, C, H, W), or those up to step ``last``."""
        found: list[Tensor] = []
        for step in self.steps[: None if last is None else last + 1]:
            found.append(x if step.layer is None else step.layer.value(*(found[source] for source in step.sources)))
        return found


def read(model: nn.Module | Callable[[Tensor], Tensor], images: Tensor, *, training: bool = False) -> Graph:
    """The steps of ``model`` for images like ``images`` (N, C, H, W); a step almakit has no bound for is refused by
    name.

    The model is not changed. With ``training``, dropout is left out and the steps share the model's parameters;
    otherwise a model whose dropout or batch norm is in training mode is refused.
    """
    name = str(getattr(model, "name", None) or type(model).__name__)
    module = model if isinstance(model, nn.Module) else Function(model)
    drops = (nn.modules.dropout._DropoutNd, nn.modules.batchnorm._BatchNorm)
    if not training and (moving := [part for part in module.modules() if part.training and isinstance(part, drops)]):
        raise BadModel(
            f"{name} is in training mode, where its {type(moving[0]).__name__} changes from batch to batch; call "
            "model.eval() first."
        )
    example = images[:1].expand(BATCH, *images.shape[1:]).contiguous()
    try:
        with warnings.catch_warnings(), torch.no_grad(), borrowed(module):
            warnings.simplefilter("ignore")
            program = torch.export.export(module, (example,), strict=False)
            random = any(
                "dropout" in str(node.target) and node.args[2:] and node.args[2] is True for node in program.graph.nodes
            )
            # With an empty table, layers are not decomposed and in-place steps become ordinary steps.
            program = program.run_decompositions({})
    except Exception as error:  # any error that a user's forward() raises for symbolic inputs
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise BadModel(
            f"the steps of {name} cannot be followed, so it has no bounds; its forward must be the same computation "
            f"for every image of a size ({first})."
        ) from error
    if random:
        raise BadModel(
            f"{name} has a dropout in training mode; call model.eval(), and give the functional form "
            "training=self.training."
        )
    return _Steps(program, module, name, tuple(images.shape[1:]), training).graph()


class _Steps:
    """The steps of an exported ``program`` of ``module``, read node by node: ``known`` says what each node is, a step
    made from the image (its index) or a constant."""

    def __init__(self, program: Any, module: nn.Module, name: str, shape: tuple[int, ...], training: bool):
        self.program, self.module, self.name, self.training = program, module, name, training
        self.known: dict[Any, int | Tensor | float | None] = {}
        self.constants: dict[Any, Any] = {}  # in the model's own type; ``known`` has them in float64
        self.precision = torch.float64
        self.steps: list[Step] = [Step(None, (), shape)]
        self.trained = {id(value) for value in module.parameters()} if training else set()

    def graph(self) -> Graph:
        inputs = self.program.graph_signature.user_inputs
        for node in self.program.graph.nodes:
            if node.op == "placeholder":
                if node.name in inputs:
                    self.known[node] = 0
                else:
                    self._keep(node, self._fetched(node.name))
            elif node.op == "call_function":
                self._take(node)
        last = self._answer()
        return Graph(self.steps[: last + 1], self.name, not self.training, self.precision)

    def _fetched(self, key: str) -> Tensor:
        """A parameter, buffer or constant of the program."""
        signature = self.program.graph_signature
        place = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}.get(key)
        constants = self.program.constants
        value = _attribute(self.module, place) if place else constants[signature.inputs_to_lifted_tensor_constants[key]]
        return value if self.training else value.detach()

    def _keep(self, node: Any, value: Any) -> None:
        """Store a constant in the model's type and in that of the bounds."""
        wide = isinstance(value, Tensor) and value.is_floating_point() and not self.training
        self.constants[node], self.known[node] = value, value.double() if wide else value

    def _take(self, node: Any) -> None:
        """Read one call of the program: a step, a constant, or a call without effect."""
        full = str(getattr(node.target, "name", lambda: node.target)()).removeprefix("aten::")
        kind = full.partition(".")[0]
        if kind.startswith(("_assert", "sym_")) or not node.users:
            return
        if not self.training:
            self._check_type(node, kind)
        at = {key: value for key, value in self.known.items() if isinstance(value, int)}
        if any(source in at for source in node.all_input_nodes):
            self.known[node] = self._step(node, kind, at)
            return
        if any(id(self.known.get(source)) in self.trained for source in node.all_input_nodes) and not same(kind):
            raise BadModel(
                f"{self.name} computes its weights in every pass ({kind}), so bounds cannot follow them in "
                "training; train it as it is."
            )
        # In training a cast keeps the parameter itself, which gradients go to.
        passed = self.training and same(kind)
        self._keep(node, self.constants[node.args[0]] if passed else constant(node, self.constants))

    def _check_type(self, node: Any, kind: str) -> None:
        """Raise an error for a step whose rounding is not counted, and for one that draws random numbers."""
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()) and "dropout" not in kind:
            raise BadModel(f"{self.name} draws random numbers ({kind}), so its logits have no bounds.")
        if lossy := lossy_type(node, kind):
            raise BadModel(
                f"{self.name} computes in {str(lossy).removeprefix('torch.')} (in its step {kind}), whose rounding "
                "bounds do not follow; certificates need float32 or float64 throughout."
            )
        if getattr(node.meta.get("val"), "dtype", None) == torch.float32:
            self.precision = torch.float32

    def _step(self, node: Any, kind: str, at: dict[Any, int]) -> int:
        """The index of the step that ``node`` is, made from the steps ``at`` others; a new one where it computes."""
        meta = node.meta.get("val")
        meta = meta[0] if isinstance(meta, (tuple, list)) else meta
        after = tuple(meta.shape[1:])
        if meta.ndim == 1:
            raise _refused(self.name, f"{kind} that leaves a single number of each image, without a dimension")
        reader = READERS.get(kind)
        if reader is None or (self.training and "batch_norm" in kind):
            raise _refused(self.name, kind)
        if meta.ndim == 0 or meta.shape[0] != BATCH:
            raise BadModel(
                f"{self.name} mixes the images of a batch in its step {kind}, so no image has a bound of its own."
            )
        try:
            layer, sources = reader(node, self.known, after, not self.training)
        except Unreadable as problem:
            raise _refused(self.name, f"{kind} {problem}") from None
        if not same(kind) and {part for part in node.all_input_nodes if part in at} != set(sources):
            raise _refused(self.name, f"{kind} whose settings depend on the image")
        if layer is None:
            return at[sources[0]]
        self.steps.append(Step(layer, tuple(at[source] for source in sources), after))
        return len(self.steps) - 1

    def _answer(self) -> int:
        """The index of the step that gives the logits."""
        if self.program.graph_signature.user_inputs_to_mutate:
            raise BadModel(
                f"{self.name} changes its input in place, so it has no bounds; give its first layer inplace=False, or "
                "let it work on a copy."
            )
        output = next(node for node in self.program.graph.nodes if node.op == "output").args[0]
        several = output if isinstance(output, (tuple, list)) else [output]
        answers = [self.known.get(node) for node in several if node is not None]
        if len(answers) != 1 or not isinstance(answers[0], int):
            raise BadModel(
                f"{self.name} returned {len(answers)} tensors; a model with bounds returns the logits, one tensor (B, "
                "classes), made from the image."
            )
        shape = self.steps[answers[0]].shape
        if len(shape) != 1:
            raise BadModel(
                f"{self.name} returned logits of shape (B, {', '.join(map(str, shape))}); bounds need one row of "
                "logits for each image."
            )
        return answers[0]


def _refused(name: str, what: str) -> BadModel:
    what = what.replace("_native_batch_norm_legit_no_training", "BatchNorm2d")
    if what.lstrip("_") in ("softmax", "log_softmax"):
        return BadModel(
            f"{name} has a {what}, and bounds are those of differences of logits, which are linear in them: give the "
            "model without it."
        )
    kinds = "convolutions, linear layers, ReLU, pooling, sums, reshapes and, when it is not being trained, batch norm"
    return BadModel(
        f"{name} has a step {what}, which almakit has no bounds for; certificates need networks of {kinds}. Attacks "
        "work on any model."
    )


def _attribute(module: nn.Module, place: str) -> Tensor:
    owner, _, attribute = place.rpartition(".")
    value = getattr(module.get_submodule(owner), attribute)
    assert isinstance(value, Tensor)
    return value


def count(shape: tuple[int, ...]) -> int:
    return int(torch.Size(shape).numel())
