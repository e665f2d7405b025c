"""Attacks as users write them: functions of (model, x, y) with every habit a bridge has to cope with."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def whole(
    model: nn.Module, x: Tensor, y: Tensor, steps: int = 6, rate: float = 0.05, targets: Tensor | None = None
) -> Tensor:
    """Signed gradient steps on the whole batch; remembers nothing and returns its last iterate."""
    point = x.clone()
    for _ in range(steps):
        point.requires_grad_(True)
        loss = nn.functional.cross_entropy(model(point), y if targets is None else targets, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, point)
        point = (point.detach() + (rate if targets is None else -rate) * gradient.sign()).clamp(0, 1)
    return point


def only_the_right_ones(model: nn.Module, x: Tensor, y: Tensor, steps: int = 6) -> Tensor:
    """Goes on with those that are still right, as many attacks do: fewer rows each time, in another order."""
    out, todo = x.clone(), torch.arange(len(x)).flip(0)
    for _ in range(steps):
        if not len(todo):
            break
        point = out[todo].requires_grad_(True)
        logits = model(point)
        (gradient,) = torch.autograd.grad(logits.gather(1, y[todo, None]).sum(), point)
        out[todo] = (point.detach() - 0.05 * gradient.sign()).clamp(0, 1)
        todo = todo[logits.argmax(1) == y[todo]]
    return out


def one_by_one(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """An image at a time, with a gradient for every class from one graph."""
    out = []
    for image, label in zip(x, y, strict=True):
        point = image[None].clone().requires_grad_(True)
        logits = model(point)
        slopes = [torch.autograd.grad(logit, point, retain_graph=True)[0] for logit in logits[0]]
        rival = logits[0].scatter(0, label[None], float("-inf")).argmax()
        step = slopes[rival] - slopes[label]
        out.append((point.detach() + 0.1 * step.sign()).clamp(0, 1))
    return torch.cat(out)


def several_of_each(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Three noisy copies of every image in one call without gradients."""
    copies = (x.repeat(3, 1, 1, 1) + 0.3 * torch.randn(3 * len(x), *x.shape[1:])).clamp(0, 1)
    with torch.no_grad():
        wrong = (model(copies).argmax(1) != y.repeat(3)).reshape(3, -1)
    first = wrong.long().argmax(0)
    return copies.reshape(3, *x.shape)[first, torch.arange(len(x))]


def never_asks(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Returns the inverted image without a single question."""
    return 1 - x


def outside(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Asks far outside the box."""
    with torch.no_grad():
        model(x + 3)
    return x - 3


def hungry(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Never stops asking."""
    while True:
        point = (1 - x).requires_grad_(True)
        torch.autograd.grad(model(point).square().sum(), point)


hungry.distance = "linf"  # type: ignore[attr-defined]


def in_ball(model: nn.Module, x: Tensor, y: Tensor, eps: float = 0.1, distance: str = "linf") -> Tensor:
    """Asks inside and outside its ball and returns a point on it."""
    with torch.no_grad():
        model((x + 0.9).clamp(0, 1))
    return (x + eps * torch.sign(0.5 - x)).clamp(0, 1)


def breaks(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    raise KeyError("no such thing")


def wrong_shape(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return x[:, :1]


def returns_nothing(model: nn.Module, x: Tensor, y: Tensor) -> None:
    model(x)


def too_few(model: nn.Module) -> Tensor:
    return torch.zeros(1)
