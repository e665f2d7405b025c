"""Interval bounds: what a network's values can be when every pixel moves inside its own interval."""

from __future__ import annotations

import copy
import operator
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import BadModel
from ..models.classifier import Classifier

SAME = (nn.Dropout, nn.Identity)
"""Layers that change nothing once a network is trained; bounds are those of the trained network."""


@dataclass(frozen=True)
class Interval:
    """``lower`` and ``upper`` (B, ...): every value lies between."""

    lower: Tensor
    upper: Tensor

    @property
    def middle(self) -> Tensor:
        return (self.upper + self.lower) / 2

    @property
    def radius(self) -> Tensor:
        return (self.upper - self.lower) / 2


@dataclass(frozen=True)
class Step:
    """A node of a network as bounds see it: ``kind``, the layer where it has one, the node and those it takes its values from."""

    kind: str
    node: torch.fx.Node
    sources: tuple[torch.fx.Node, ...]
    layer: Any = None


class Bounded:
    """A classifier whose steps are known: convolutions, linear layers, ReLU, max pooling, flattening, sums. Anything else is refused."""

    def __init__(self, model: Classifier):
        self.model = model
        try:
            graph = torch.fx.symbolic_trace(model.network).graph
        except Exception as error:  # whatever a foreign forward() raises when it is given a symbol
            raise BadModel(f"the steps of {model.name} cannot be followed, so it has no interval bounds ({error}).") from error
        answer = next(node for node in graph.nodes if node.op == "output").args[0]
        self.steps = [_step(model, node) for node in graph.nodes if node.op != "output"]
        self.last = next(step for step in self.steps if step.node is answer)

    def intervals(self, x: Tensor, radius: float | Tensor) -> dict[torch.fx.Node, Interval]:
        """The interval of every node for images ``x`` (B, C, H, W) moved by at most ``radius`` (a number or (B,)) inside [0, 1]."""
        reach = radius.reshape(-1, 1, 1, 1) if isinstance(radius, Tensor) else radius
        lower, upper = (x - reach).clamp(0, 1), (x + reach).clamp(0, 1)
        mean, std = self.model.mean, self.model.std
        if mean is not None:
            lower, upper = lower - mean.to(x.dtype), upper - mean.to(x.dtype)
        if std is not None:
            lower, upper = lower / std.to(x.dtype), upper / std.to(x.dtype)
        known: dict[torch.fx.Node, Interval] = {}
        for step in self.steps:
            if step.kind == "input":
                known[step.node] = Interval(lower, upper)
            else:
                known[step.node] = _propagated(step, [known[source] for source in step.sources])
        return known

    def margins(self, x: Tensor, labels: Tensor, radius: float | Tensor) -> Tensor:
        """Lower bounds (B, K) of z_label - z_j over the ball, 0 where j is the label. Gowal et al., arXiv 1810.12715, section 3.

        The last linear layer is joined with the difference of logits (section 3.2 there), so that what both logits share cancels.
        """
        return self.margins_of(self.intervals(x, radius), labels)

    def margins_of(self, known: dict[torch.fx.Node, Interval], labels: Tensor) -> Tensor:
        """``margins`` from intervals that are known already."""
        last = self.last
        if last.kind != "linear":
            value = known[last.node]
            gap = value.lower.gather(1, labels[:, None]) - value.upper
            return gap.scatter(1, labels[:, None], 0.0)
        before = known[last.sources[0]]
        weight = last.layer.weight[labels][:, None] - last.layer.weight[None]
        offset = last.layer.bias[labels][:, None] - last.layer.bias[None] if last.layer.bias is not None else 0.0
        reach = torch.einsum("bkh,bh->bk", weight.abs(), before.radius)
        return torch.einsum("bkh,bh->bk", weight, before.middle) - reach + offset


def verified(model: Classifier, x: Tensor, labels: Tensor, radius: float | Tensor, batch_size: int = 250) -> Tensor:
    """(N,) bool: no image within linf ``radius`` of ``x`` (N, C, H, W) and inside [0, 1] gets another class than ``labels`` (N,).

    Interval bounds in float64, so that rounding (1e-13 here) does not decide.
    """
    bounded = Bounded(copy.deepcopy(model).double())
    reach = radius if isinstance(radius, Tensor) else torch.full((len(x),), float(radius))
    parts = []
    with torch.no_grad():
        for images, wanted, far in zip(x.split(batch_size), labels.split(batch_size), reach.split(batch_size), strict=True):
            margins = bounded.margins(images.double(), wanted, far.double())
            others = torch.ones_like(margins, dtype=torch.bool).scatter(1, wanted[:, None], False)
            parts.append(((margins > 0) | ~others).all(1))
    return torch.cat(parts)


def certified_radius(model: Classifier, x: Tensor, labels: Tensor, largest: float = 1.0, halvings: int = 12) -> Tensor:
    """(N,) a linf radius each image of ``x`` (N, C, H, W) is verified at, by bisection up to ``largest``; 0 where none was."""
    low, high = torch.zeros(len(x), dtype=torch.float64), torch.full((len(x),), float(largest), dtype=torch.float64)
    for _ in range(halvings):
        middle = (low + high) / 2
        holds = verified(model, x, labels, middle)
        low, high = torch.where(holds, middle, low), torch.where(holds, high, middle)
    return low


def _step(model: Classifier, node: torch.fx.Node) -> Step:
    sources = tuple(node.all_input_nodes)
    if node.op == "placeholder":
        return Step("input", node, ())
    if node.op == "call_module":
        layer = model.network.get_submodule(str(node.target))
        if isinstance(layer, nn.Conv2d) and layer.padding_mode == "zeros" and not isinstance(layer.padding, str):
            return Step("conv", node, sources, layer)
        if isinstance(layer, nn.Linear):
            return Step("linear", node, sources, layer)
        if isinstance(layer, nn.MaxPool2d) and layer.padding == 0 and layer.dilation == 1 and not layer.ceil_mode:
            return Step("max", node, sources, layer)
        for kind, name in ((nn.ReLU, "relu"), (nn.Flatten, "flatten"), (SAME, "same")):
            if isinstance(layer, kind):
                return Step(name, node, sources, layer)
        raise _refused(model, type(layer).__name__)
    named = {F.relu: "relu", torch.relu: "relu", operator.add: "add", operator.iadd: "add", torch.add: "add", torch.flatten: "flatten"}
    kind_of = named.get(node.target) if node.op == "call_function" else {"flatten": "flatten", "relu": "relu"}.get(str(node.target))  # type: ignore[arg-type]
    if kind_of is None or (kind_of == "flatten" and node.args[1:] != (1,)) or (kind_of == "add" and len(node.args) != 2):
        raise _refused(model, str(node.target))
    return Step(kind_of, node, sources if kind_of != "add" else tuple(a for a in node.args if isinstance(a, torch.fx.Node)))


def _refused(model: Classifier, what: str) -> BadModel:
    return BadModel(
        f"{model.name} has a step {what}, which almakit has no interval bounds for; certified training and verification need networks of "
        "convolutions, linear layers, ReLU, max pooling, flattening and sums, such as mnist/smallcnn or cifar10/cnn-a-adv."
    )


def _propagated(step: Step, before: list[Interval]) -> Interval:
    first, layer = before[0], step.layer
    if step.kind == "conv":
        where = (layer.stride, layer.padding, layer.dilation, layer.groups)
        middle = F.conv2d(first.middle, layer.weight, layer.bias, *where)
        reach = F.conv2d(first.radius, layer.weight.abs(), None, *where)
        return Interval(middle - reach, middle + reach)
    if step.kind == "linear":
        middle = F.linear(first.middle, layer.weight, layer.bias)
        reach = F.linear(first.radius, layer.weight.abs())
        return Interval(middle - reach, middle + reach)
    if step.kind == "relu":
        return Interval(first.lower.relu(), first.upper.relu())
    if step.kind == "max":
        return Interval(*(F.max_pool2d(part, layer.kernel_size, layer.stride) for part in (first.lower, first.upper)))
    if step.kind == "flatten":
        return Interval(first.lower.flatten(1), first.upper.flatten(1))
    if step.kind == "add":
        second = before[1] if len(before) > 1 else first
        return Interval(first.lower + second.lower, first.upper + second.upper)
    return first
