"""One pass of the model as it was made: which rows went through it, in how many calls, and the gradients that can be
pulled back through them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ...errors import BadInput, BadModel
from ...tensors import per_image

NO_GRADIENT = (
    "the model's logits carry no gradient, and this attack needs one: leave out torch.no_grad(), detach() and "
    "conversions to numpy inside the model, take an attack that needs none, square (scores) or hopskipjump "
    "(decisions), or give surrogate=, a model that has gradients."
)


@dataclass(frozen=True, eq=False)
class Pass:
    """``images`` (R,) are the images of the rows asked about (None: row i is image i), ``sent`` (S,) the rows that went
    to the model (None: all).

    ``leaf`` (S, ...) holds what the model saw (None: no gradient was asked for); one larger than that, the clean pass
    of a whole batch, holds the rows at ``places``. Where images run out of backward passes at different times the rows
    came in several ``calls`` (rows, leaf, outputs), of which ``outputs`` (S, ...) are put together and cut off.
    ``attached``: whether the outputs have a gradient at all.
    """

    leaf: Tensor | None
    images: Tensor | None = None
    sent: Tensor | None = None
    places: Tensor | None = None
    outputs: Tensor | None = None
    calls: tuple[tuple[Tensor, Tensor, Tensor], ...] = ()
    attached: bool = False

    @property
    def owners(self) -> Tensor | None:
        """The images that were sent, one per row of the leaf; None: each image once."""
        if self.sent is None:
            return self.images
        return self.sent if self.images is None else self.images[self.sent]

    def weigh(self, value: Tensor, slope: Tensor | None, allowed: Tensor | None) -> Tensor:
        """() the sum of ``value`` (R,), or of ``value`` (R, ...) times ``slope``, without the rows sent that are not
        ``allowed`` (S,)."""
        if not value.requires_grad and self.attached:
            raise BadInput(
                "the goal's margin carries no gradient, and this attack needs one: leave out detach(), item() and "
                "conversions to numpy in it."
            )
        if not value.requires_grad:
            raise BadModel(NO_GRADIENT)
        if allowed is not None:
            # An image past its budget learns nothing more: its row is kept out of the pass.
            kept = allowed if self.sent is None else allowed.new_ones(len(value)).index_copy(0, self.sent, allowed)
            if slope is None:
                value = torch.where(kept, value, torch.zeros_like(value))
            else:
                slope = torch.where(per_image(kept, slope), slope, torch.zeros_like(slope))
        # The gradient of the weighted sum: handed over as grad_outputs, the same weights would make torch import 40 MB
        # of symbolic algebra.
        return value.sum() if slope is None else (value * slope).sum()

    def pull(self, total: Tensor, allowed: Tensor | None, keep: bool) -> Tensor:
        """The gradient (S, ...) of ``total`` () at the rows sent; calls of which no row is ``allowed`` (S,) are not
        gone through."""
        assert self.leaf is not None
        if self.calls:
            assert self.outputs is not None
            inner, gradient = _pulled(total, self.outputs, keep), torch.zeros_like(self.leaf, requires_grad=False)
            for rows, leaf, outputs in self.calls:
                if allowed is None or bool(allowed[rows].any()):
                    gradient[rows] = _pulled((outputs * inner[rows]).sum(), leaf, keep)
            return gradient
        gradient = _pulled(total, self.leaf, keep)
        # A copy: a backward of the model's own may return a tensor it keeps, its saved input or a buffer that the next
        # pass overwrites.
        return (
            gradient.clone(memory_format=torch.contiguous_format)
            if self.places is None
            else gradient[self.places].contiguous()
        )


def in_calls(
    leaf: Tensor, groups: list[Tensor], ask: Callable[[Tensor], Tensor]
) -> tuple[Tensor, tuple[tuple[Tensor, Tensor, Tensor], ...]]:
    """The outputs of ``leaf`` (S, ...) asked for in ``groups`` of its rows, put together and cut off from the groups'
    graphs, and the groups' calls."""
    leaves = [leaf.detach()[rows].requires_grad_(True) for rows in groups]
    calls = tuple((rows, part, ask(part)) for rows, part in zip(groups, leaves, strict=True))
    order = torch.cat(groups).argsort()
    return torch.cat([outputs.detach() for _, _, outputs in calls])[order].requires_grad_(True), calls


def _pulled(total: Tensor, leaf: Tensor, keep: bool) -> Tensor:
    """The gradient of ``total`` () in ``leaf`` (S, ...), zero where it does not depend on it."""
    (gradient,) = torch.autograd.grad(total, leaf, retain_graph=keep, allow_unused=True)
    return torch.zeros_like(leaf, requires_grad=False) if gradient is None else gradient.detach()
