"""Attacks of other libraries in almakit: one class for each library, with what the library's attacks do not say about
themselves. A library is imported when one of its attacks is named."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import BadInput
from .foreign import CountedModel, Foreign, norm_name


@dataclass(frozen=True)
class Foolbox(Foreign):
    """``foolbox:<class of foolbox.attacks>(settings)``. Attacks at a fixed radius take it as ``epsilon``."""

    library = package = "foolbox"
    install = "pip install foolbox"
    module, kind = "foolbox.attacks", "foolbox.attacks.base:Attack"
    can_target = True  # attacks without a targeted form raise an error when they run
    gradient_free = (
        "HopSkipJumpAttack BoundaryAttack PointwiseAttack GenAttack NoiseAttack ContrastReductionAttack "
        "GaussianBlurAttack InversionAttack"
    )

    @property
    def _minimises(self) -> bool:
        return issubclass(self.target, self.load("foolbox.attacks.base").MinimizationAttack)  # type: ignore[arg-type]

    def guess_distance(self) -> str | None:
        if "constraint" in self.parameters:  # HopSkipJump declares l1 for every distance
            return norm_name(self.values["constraint"])
        return norm_name(getattr(self.target.distance, "p", None))  # type: ignore[attr-defined]

    def radius(self) -> float | None:
        return None if self._minimises else self.epsilon

    def __post_init__(self) -> None:
        super().__post_init__()
        if self._minimises and self.epsilon is not None:
            raise BadInput(
                f"{self.name} looks for the smallest change and takes no epsilon; read robust accuracy at any radius "
                "off the results."
            )
        if not self._minimises and self.epsilon is None:
            raise BadInput(
                f"{self.name} works at a fixed radius: give epsilon=..., for example {self.name}(epsilon=0.3)."
            )

    def made(self) -> Any:
        """foolbox's own attack object."""
        settings = {name: value.made() if isinstance(value, Foolbox) else value for name, value in self.settings}
        if "distance" in settings:
            settings["distance"] = self.load("foolbox").distances.LpDistance(self.measure.norm)
        return self.target(**settings)

    def perturb(self, model: CountedModel, x: Tensor, labels: Tensor, targets: Tensor | None) -> Tensor:
        foolbox = self.load("foolbox")
        wrapped = foolbox.PyTorchModel(model.eval(), bounds=model.problem.box.ends, device=x.device)
        untargeted, targeted = foolbox.criteria.Misclassification, foolbox.criteria.TargetedMisclassification
        criterion = untargeted(labels) if targets is None else targeted(targets)
        more = {} if self.minimal else {"epsilon": self.epsilon}
        found: Tensor = self.made().run(wrapped, x, criterion, **more)
        return found


@dataclass(frozen=True)
class Torchattacks(Foreign):
    """``torchattacks:<attack>(settings)``; with ``eps``, only successes within this radius count."""

    library = package = "torchattacks"
    install = "pip install torchattacks"
    module, kind = "torchattacks", "torchattacks.attack:Attack"
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


GREEK = {"alpha": "α", "gamma": "γ", "epsilon": "ε", "mu": "μ", "rho": "ρ", "tau": "τ", "delta": "δ", "lambda": "λ"}


@dataclass(frozen=True)
class AdvLib(Foreign):
    """``adv-lib:<function of adv_lib.attacks>(settings)``; Greek settings are written in letters: ``alpha`` for α,
    ``mu_init`` for μ_init."""

    library = package = "adv-lib"
    install = "pip install adv-lib"
    module, kind = "adv_lib.attacks", "types:FunctionType"
    minimises = {
        "l0": "sigma_zero fga vfga",
        "l2": "carlini_wagner_l2 ddn df sdf pdgd str_attack",
        "linf": "carlini_wagner_linf pgd_linf",
        "ciede2000": "perc_al",
    }

    @cached_property
    def parameters(self) -> dict[str, inspect.Parameter]:
        return {_in_letters(name): each for name, each in super().parameters.items()}

    def perturb(self, model: CountedModel, x: Tensor, labels: Tensor, targets: Tensor | None) -> Tensor:
        theirs = {_in_letters(name): name for name in inspect.signature(self.target).parameters}
        settings = {theirs[name]: value for name, value in self.settings}
        if isinstance(settings.get("penalty"), str):
            penalties = self.load("adv_lib.utils.lagrangian_penalties").all_penalties
            settings["penalty"] = penalties[settings["penalty"]]
        if targets is not None:
            settings["targeted"] = True
        found: Tensor = self.target(model.eval(), x, labels if targets is None else targets, **settings)
        return found


def _in_letters(name: str) -> str:
    for letters, sign in GREEK.items():
        name = name.replace(sign, letters)
    return name


@dataclass(frozen=True)
class ART(Foreign):
    """``art:<class of art.attacks.evasion>(settings)``; ``eps`` with a ``norm`` is the radius its successes are held
    to."""

    library, package = "art", "adversarial-robustness-toolbox"
    install = "pip install adversarial-robustness-toolbox, or pip install 'almakit[bridges]'"
    module, kind = "art.attacks.evasion", "art.attacks.attack:EvasionAttack"
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
        classes = model.problem.clean_logits.shape[1]
        classifier = self.load("art.estimators.classification").PyTorchClassifier(
            model=model.eval(),
            loss=nn.CrossEntropyLoss(),
            input_shape=tuple(x.shape[1:]),
            nb_classes=classes,
            clip_values=model.problem.box.ends,
            device_type="gpu" if x.is_cuda else "cpu",
        )
        settings = dict(self.settings)
        if "verbose" in self.parameters:
            settings.setdefault("verbose", False)
        if self.can_target:
            settings["targeted"] = targets is not None
        goal = np.eye(classes, dtype=np.float32)[(labels if targets is None else targets).cpu().numpy()]
        return torch.from_numpy(np.asarray(self.target(classifier, **settings).generate(x.cpu().numpy(), goal)))


@dataclass(frozen=True)
class AutoAttack(Foreign):
    """``autoattack:<version or attack>(norm=..., eps=...)``: versions standard, plus, rand; attacks apgd-ce, apgd-dlr,
    apgd-t, fab, fab-t, square.

    ``distance=linf`` may be written instead of ``norm=Linf``. Successes are points within ``eps``; FAB's points beyond
    it do not count. The authors' package is used if it is installed, else ``pyautoattack`` with the same attacks.
    """

    library = "autoattack"
    package = "autoattack" if find_spec("autoattack") else "pyautoattack"
    install = "pip install pyautoattack, or pip install git+https://github.com/fra31/auto-attack"
    can_target = False
    gradient_free = "square"
    not_settings = "self model attacks attacks_to_run device version verbose is_tf_model log_path logger"

    @cached_property
    def target(self) -> Callable[..., Any]:
        versions = (*VERSIONS, *SINGLE)
        found: Callable[..., Any] = self.named(dict.fromkeys(versions, self.load(self.package).AutoAttack))
        return found

    def __post_init__(self) -> None:
        if isinstance(self.distance, str) and "norm" not in dict(self.settings):
            norm = {"linf": "Linf", "l2": "L2", "l1": "L1"}.get(self.distance, self.distance)
            object.__setattr__(self, "settings", (*self.settings, ("norm", norm)))
        super().__post_init__()

    def perturb(self, model: CountedModel, x: Tensor, labels: Tensor, targets: Tensor | None) -> Tensor:
        takes = inspect.signature(self.target).parameters
        # Seeded by the image, like all random numbers of foreign attacks, unless the user sets a seed.
        settings = {"seed": model.problem.random.seed, **dict(self.settings), "device": x.device}
        settings |= {"verbose": False} if "verbose" in takes else {}
        if self.short_name in SINGLE:
            attacks = "attacks" if "attacks" in takes else "attacks_to_run"
            settings |= {"version": "custom", attacks: [self.short_name]}
        else:
            settings["version"] = self.short_name
        run = self.target(model.eval(), **settings).run_standard_evaluation
        logging.getLogger("auto-attack").setLevel(logging.ERROR)
        size = "bs" if "bs" in inspect.signature(run).parameters else "batch_size"
        found = run(x, labels, **{size: len(x)})
        adversarials: Tensor = found[0] if isinstance(found, tuple) else found
        return adversarials


VERSIONS = ("standard", "plus", "rand")
SINGLE = ("apgd-ce", "apgd-dlr", "apgd-t", "fab", "fab-t", "square")
