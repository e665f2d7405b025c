"""The model as a foreign attack sees it: a torch module behind which the ``Problem`` counts, projects, decides and
remembers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ..core import Exhausted, Problem, Query
from ..errors import BadInput

# An attack that goes on asking after every image has spent its budget is ended after this many refusals.
PATIENCE = 20_000


class Gate(nn.Module):
    """Answers for the images ``rows`` (G,) of a problem; every pass is counted for the image it belongs to.

    A foreign attack may send any number of candidates in any order. As many rows as images are the images in their
    order, unless a row lies less than half as far from another clean image; otherwise a row belongs to the nearest
    clean image. What counts is the image's own label and distance, so a wrong guess could cost a count but never make a
    false claim.

    Candidates are brought into the domain before the model sees them, and gradients pass through that as if it were not
    there. Past its budget an image is answered with its true label and zero gradients. A demanded confidence is shown
    to the attack as logits in which the goal is that much farther away.
    """

    def __init__(self, problem: Problem, rows: Tensor):
        super().__init__()
        self.problem, self.rows = problem, rows
        self.x = problem.x[rows]
        self.whole = len(rows) == len(problem)
        self.has_twins = len(torch.unique(self.x.flatten(1), dim=0)) < len(rows)
        self.asked = self.refused = 0
        # The point of each image that was asked about last, in the domain: an attack often returns it.
        self.last = self.x.clone()
        self.failure: BaseException | None = None
        # Attacks look for the device at the first parameter.
        self.place = nn.Parameter(torch.zeros(1, dtype=self.x.dtype, device=self.x.device), requires_grad=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (R, K) of ``inputs`` (R, ...)."""
        if inputs.shape[1:] != self.x.shape[1:]:
            raise self._remember(
                BadInput(
                    f"the attack sent images of shape {tuple(inputs.shape)}; the model takes (B, {_shape(self.x)})."
                )
            )
        if not len(inputs):
            return inputs.new_zeros(0, self._clean(self.rows[:1]).shape[1])
        if inputs.requires_grad and torch.is_grad_enabled():
            answer: Tensor = _Ask.apply(inputs, self)  # type: ignore[no-untyped-call]  # torch leaves it untyped
            return answer
        with torch.no_grad():
            return self.ask(inputs, grad=False)[0]

    def ask(self, inputs: Tensor, grad: bool) -> tuple[Tensor, Query | None, Tensor | None]:
        """Logits (R, K), the query behind them (None: all refused) and which rows (R,) were answered by the model
        (None: all)."""
        problem = self.problem
        candidate = inputs.detach().to(self.x.device, self.x.dtype)
        owners = self._owners(candidate)
        images = self.rows if owners is None else self.rows[owners]
        in_order = owners is None and self.whole
        try:
            # Some libraries ask for the gradient of every class.
            query = problem.query(
                candidate, grad=grad, images=None if in_order else images, gradients=self._clean(self.rows[:1]).shape[1]
            )
        except Exhausted:
            self.refused += len(inputs)
            if self.refused > PATIENCE * len(self.rows):
                raise self._remember(Exhausted()) from None
            return self._refusal(images).to(inputs), None, None
        except BaseException as error:
            raise self._remember(error) from None
        logits, sent = query.logits.detach(), None
        if query.sent is not None:
            sent = torch.zeros(len(inputs), dtype=torch.bool, device=logits.device).index_fill(0, query.sent, True)
            logits = torch.where(sent.unsqueeze(1), logits, self._refusal(images))
            self.refused += len(inputs) - len(query.sent)
        self.last = query.point if owners is None else self.last.index_copy(0, owners, query.point)
        if in_order:
            problem.record(self.asked, distance=query.distance, margin=query.margin, success=query.success)
        self.asked += 1
        return self._shown(logits, images).to(inputs), query, sent

    def slope(self, query: Query | None, sent: Tensor | None, weights: Tensor) -> Tensor | None:
        """The gradient (R, ...) of the sum of ``weights`` (R, K) times the logits; None where nothing was sent."""
        if query is None:
            return None
        weights = weights.to(query.logits)
        weights = weights if sent is None else weights * sent.unsqueeze(1)
        try:
            with torch.enable_grad():
                return query.gradient((query.logits * weights).sum(1), keep=True)
        except Exhausted:
            return None
        except BaseException as error:
            raise self._remember(error) from None

    def _remember(self, error: BaseException) -> BaseException:
        """Keeps an error of ours or of the model, which must not be taken for one of the attack's or swallowed by
        it."""
        self.failure = error
        return error

    def _clean(self, images: Tensor) -> Tensor:
        assert self.problem.clean_logits is not None
        return self.problem.clean_logits[images]

    def _refusal(self, images: Tensor) -> Tensor:
        """(R, K) logits that say the true label, on the scale of the clean image's."""
        goal = self.problem.goal
        assert goal.labels is not None
        clean, labels = self._clean(images), goal.labels[images].unsqueeze(1)
        own = torch.maximum(clean.gather(1, labels), clean.scatter(1, labels, float("-inf")).amax(1, keepdim=True) + 1)
        right = clean.argmax(1, keepdim=True) == labels
        return torch.where(right, clean, clean.scatter(1, labels, own))

    def _shown(self, logits: Tensor, images: Tensor) -> Tensor:
        goal = self.problem.goal
        if not goal.confidence:
            return logits
        sign = -1.0 if goal.targeted else 1.0
        assert goal.classes is not None
        classes = goal.classes[images].unsqueeze(1)
        return logits.scatter_add(1, classes, torch.full_like(logits[:, :1], sign * goal.confidence))

    def _owners(self, candidate: Tensor) -> Tensor | None:
        """(R,) which of this gate's images each candidate (R, ...) belongs to; None: as many candidates as images, in
        their order."""
        count = len(self.rows)
        if count == 1:
            return (
                None if len(candidate) == 1 else torch.zeros(len(candidate), dtype=torch.long, device=candidate.device)
            )
        points, clean = candidate.flatten(1).float(), self.x.flatten(1).float()
        squares = (points.square().sum(1, keepdim=True) + clean.square().sum(1) - 2 * points @ clean.T).clamp_min(0)
        least, nearest = squares.min(1)
        if len(candidate) == count:
            at_home = least * 4 >= squares.diagonal()
            # The products above round; rows that differ from two images by less than that are at home.
            at_home |= squares.diagonal() <= 1e-5 * clean.square().sum(1).clamp_min(1)
            if bool(at_home.all()):
                return None
            return torch.where(at_home, torch.arange(count, device=candidate.device), nearest)
        return self._among_twins(nearest, clean) if self.has_twins else nearest

    def _among_twins(self, nearest: Tensor, clean: Tensor) -> Tensor:
        """``nearest`` (R,) with the candidates of equal images dealt out to them in turn; ``clean`` (G, pixels)."""
        _, group = torch.unique(clean, dim=0, return_inverse=True)
        dealt = nearest.clone()
        for twins in (
            torch.nonzero(group == each).flatten() for each in group.unique() if int((group == each).sum()) > 1
        ):
            places = torch.isin(nearest, twins).nonzero().flatten()
            dealt[places] = twins[torch.arange(len(places), device=twins.device) % len(twins)]
        return dealt


class _Ask(torch.autograd.Function):
    """The gate's answer in the attack's own graph."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, gate: Gate) -> Tensor:
        logits, query, sent = gate.ask(inputs, grad=True)
        ctx.kept = gate, query, sent, inputs.shape
        return logits

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, weights: Tensor) -> tuple[Tensor, None]:
        gate, query, sent, shape = ctx.kept
        slope = gate.slope(query, sent, weights)
        return (weights.new_zeros(shape) if slope is None else slope.to(weights)), None


def _shape(x: Tensor) -> str:
    return ", ".join(map(str, x.shape[1:]))
