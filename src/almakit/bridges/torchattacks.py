"""torchattacks: its attacks in almakit (``torchattacks:CW(steps=100)``), and almakit's attacks as a torchattacks
``Attack``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ..attacks import get
from ..core import Attack, Result
from .foreign import CountedModel, Foreign, labels_and_targets, library

torchattacks = library("torchattacks", "pip install torchattacks")
base = library("torchattacks.attack", "pip install torchattacks")
Base: Any = base.Attack


@dataclass(frozen=True)
class TorchattacksForeign(Foreign):
    """``torchattacks:<attack>(settings)``; with ``eps``, only successes within this radius count."""

    library = "torchattacks"
    package = "torchattacks"
    module = torchattacks
    kind = base.Attack
    minimises = {  # or whose ball they stay in
        "l0": "SparseFool OnePixel Pixle JSMA",
        "l1": "EADL1 EADEN",
        "l2": "CW DeepFool GN PGDL2 PGDRSL2",
    }
    gradient_free = "Square OnePixel Pixle GN VANILA"

    def guess_distance(self) -> str | None:
        return super().guess_distance() or ("linf" if "eps" in self.parameters else None)

    @property
    def can_target(self) -> bool:  # type: ignore[override]
        return "targeted" in self.made(nn.Linear(1, 1)).supported_mode

    def made(self, model: nn.Module) -> Any:
        """torchattacks' own attack object."""
        return self.target(model, **dict(self.settings))

    def perturb(self, model: CountedModel, x: Tensor, labels: Tensor, targets: Tensor | None) -> Tensor:
        attack = self.made(model.eval())
        if targets is not None:
            attack.set_mode_targeted_by_label(quiet=True)
        found: Tensor = attack(x, labels if targets is None else targets)
        return found


class TorchattacksAttack(Base):
    """An attack of almakit as an attack of torchattacks: ``TorchattacksAttack(model, "alma(distance=l2,
    steps=100)")(images, labels)``.

    ``set_mode_targeted_by_function`` and similar methods work, as does ``set_normalization_used``. ``result`` is the
    ``Result`` of the last call.
    """

    def __init__(self, model: nn.Module, attack: str | Attack, **options: Any):
        """``options`` are those of an attack's call: ``batch_size``, ``seed``, ``budget``, ``confidence`` ..."""
        ours = get(attack)
        super().__init__(type(ours).__name__, model)
        self.ours, self.options = ours, options
        self.result: Result | None = None
        self.supported_mode = ["default", "targeted"] if ours.can_target else ["default"]

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        """The adversarial images (B, ...) of ``images`` (B, ...) in [0, 1] with ``labels`` (B,)."""
        images, labels = images.clone().detach().to(self.device), labels.clone().detach().to(self.device)
        targets = None
        if self.targeted:
            targets = self.get_target_label(images, labels)
            if self.attack_mode == "targeted(label)":
                # The passed labels are the targets; the model's predictions replace the labels.
                labels, targets = labels_and_targets(self.get_output_with_eval_nograd(images.clone()), targets)
        # Without normalisation pass the module itself, so that precision, mode and frozen weights are handled.
        model = self.get_logits if self.normalization_used is not None else self.model
        self.result = self.ours(model, images, labels, targets, **self.options)
        return self.result.adversarials
