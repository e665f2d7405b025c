"""ART, the Adversarial Robustness Toolbox: its evasion attacks in almakit (``art:ElasticNet(max_iter=100)``), and
almakit's attacks in ART."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..attacks import get
from ..core import Attack, Box, Result
from ..errors import BadInput
from .foreign import CountedModel, Foreign, labels_and_targets, library

INSTALL = "pip install adversarial-robustness-toolbox, or pip install 'almakit[bridges]'"
evasion = library("art.attacks.evasion", INSTALL)
base = library("art.attacks.attack", INSTALL)
classification = library("art.estimators.classification", INSTALL)
Base: Any = base.EvasionAttack
label_format = library("art.utils", INSTALL).check_and_transform_label_format


@dataclass(frozen=True)
class ARTForeign(Foreign):
    """``art:<class of art.attacks.evasion>(settings)``; ``eps`` with a ``norm`` is the radius its successes are held
    to."""

    library = "art"
    package = "adversarial-robustness-toolbox"
    module = evasion
    kind = base.EvasionAttack
    minimises = {
        "l0": "CarliniL0Method SaliencyMapMethod PixelAttack",
        "l1": "ElasticNet",
        "l2": "DeepFool CarliniL2Method NewtonFool BoundaryAttack ZooAttack SignOPTAttack SimBA "
        "VirtualAdversarialMethod",
        "linf": "CarliniLInfMethod ThresholdAttack BasicIterativeMethod",
    }
    gradient_free = (
        "HopSkipJump BoundaryAttack SquareAttack ZooAttack SimBA SignOPTAttack GeoDA PixelAttack ThresholdAttack"
    )
    not_settings = "self classifier estimator targeted summary_writer tensor_board"

    def perturb(self, model: CountedModel, x: Tensor, labels: Tensor, targets: Tensor | None) -> Tensor:
        assert model.problem.clean_logits is not None
        box, classes = model.problem.box, model.problem.clean_logits.shape[1]
        classifier = classification.PyTorchClassifier(
            model=model.eval(),
            loss=nn.CrossEntropyLoss(),
            input_shape=tuple(x.shape[1:]),
            nb_classes=classes,
            clip_values=box.ends,
            device_type="gpu" if x.is_cuda else "cpu",
        )
        settings = dict(self.settings)
        if "verbose" in self.parameters:
            settings.setdefault("verbose", False)
        if self.can_target:
            settings["targeted"] = targets is not None
        goal = np.eye(classes, dtype=np.float32)[(labels if targets is None else targets).cpu().numpy()]
        return torch.from_numpy(np.asarray(self.target(classifier, **settings).generate(x.cpu().numpy(), goal)))


class ARTAttack(Base):
    """An attack of almakit as an attack of ART: ``ARTAttack(classifier, "alma(distance=l2, steps=100)").generate(x,
    y)`` with a ``PyTorchClassifier``.

    The classifier's ``clip_values`` are the box (default [0, 1]), and its preprocessing is part of the model. Without
    ``y``, the classifier's predictions are the labels. With ``targeted=True``, ``y`` are the targets. ``result`` is the
    ``Result`` of the last call.
    """

    attack_params = [*base.EvasionAttack.attack_params, "attack", "targeted"]
    _estimator_requirements = (classification.PyTorchClassifier,)

    def __init__(self, classifier: Any, attack: str | Attack, targeted: bool = False, **options: Any):
        """``options`` are those of an attack's call: ``batch_size``, ``seed``, ``budget``, ``confidence`` ..."""
        super().__init__(estimator=classifier)
        self.attack, self.options, self._targeted = get(attack), options, targeted
        self.result: Result | None = None

    def generate(self, x: Any, y: Any = None, **kwargs: Any) -> Any:
        """Adversarial images (B, ...) of the array ``x`` (B, ...); ``y`` are classes (B,) or one-hot rows (B, K)."""
        if self._targeted and y is None:
            raise BadInput("a targeted attack needs the targets: generate(x, y).")
        device, clip = self.estimator.device, self.estimator.clip_values
        images = torch.from_numpy(np.asarray(x)).to(device)
        predicted = torch.from_numpy(self.estimator.predict(np.asarray(x))).to(device)
        labels, targets = predicted.argmax(1), None
        if y is not None:
            labels = torch.from_numpy(label_format(np.asarray(y), self.estimator.nb_classes)).argmax(1).to(device)
        if self._targeted:
            labels, targets = labels_and_targets(predicted, labels)
        box = Box() if clip is None else Box(torch.as_tensor(np.asarray(clip[0])), torch.as_tensor(np.asarray(clip[1])))
        self.result = self.attack(
            lambda batch: self.estimator._predict_framework(batch)[0], images, labels, targets, box=box, **self.options
        )
        return self.result.adversarials.cpu().numpy()
