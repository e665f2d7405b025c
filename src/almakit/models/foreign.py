"""Models of other libraries, imported only when named: torchvision, timm, transformers (``hf:``) and RobustBench."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from ..data import hub
from ..errors import BadModel, Unavailable, UnknownName, optional
from .classifier import Classifier
from .weights import no_unpickling, pair

_ALL = ", or pip install 'almakit[zoo]' for all of torchvision, timm and transformers"
_NEEDS = {
    "torchvision": f"pip install torchvision{_ALL}",
    "timm": f"pip install timm{_ALL}",
    "transformers": f"pip install transformers{_ALL}",
    "robustbench": "pip install git+https://github.com/RobustBench/robustbench (it is in no extra of almakit)",
}


def library(name: str) -> Any:
    """Another library, or an ``Unavailable`` that says what to install."""
    root = name.split(".")[0]
    found = optional(name, f"{root} is not installed: {_NEEDS[root]}.")
    if root == "transformers" and find_spec("torchvision") is not None:
        # transformers does so later, in the middle of loading a model, and says less
        optional("torchvision", _NEEDS["torchvision"])
    return found


def torchvision(rest: str, trust: bool) -> Classifier:
    """``torchvision:resnet50`` or ``torchvision:resnet50/IMAGENET1K_V1``; the normalisation is the weights' own."""
    models = library("torchvision.models")
    name, _, version = rest.partition("/")
    try:
        enum = models.get_model_weights(name)
        weights = enum[version] if version else enum.DEFAULT
    except (ValueError, KeyError) as error:
        raise UnknownName(
            f"torchvision has no classifier {rest!r}; see torchvision.models.list_models(), and its weights by name."
        ) from error
    network = models.get_model(name, weights=None)
    with no_unpickling(trust):
        network.load_state_dict(_downloaded(rest, lambda: weights.get_state_dict(progress=False, check_hash=True)))
    transform = weights.transforms()
    side = transform.crop_size[0] if getattr(transform, "crop_size", None) else None
    shape = (3, side, side) if side else None
    return _made(
        f"torchvision:{rest}",
        network,
        (transform.mean, transform.std),
        shape,
        len(weights.meta["categories"]),
        names=weights.meta["categories"],
    )


def timm(rest: str, trust: bool) -> Classifier:
    """``timm:<model>``, also ``timm:<model>.<tag>``; normalisation and size from the model's pretrained
    configuration."""
    module = library("timm")
    if not module.is_model(rest):
        raise UnknownName(f"timm has no model {rest!r}; see timm.list_models('*{rest.split('.')[0]}*').")
    with no_unpickling(trust):
        network = _downloaded(rest, lambda: module.create_model(rest, pretrained=True))
    facts = network.pretrained_cfg
    shape = tuple(facts["input_size"]) if facts.get("input_size") else None
    return _made(f"timm:{rest}", network, (facts["mean"], facts["std"]), shape, network.num_classes)


def hf(rest: str, trust: bool) -> Classifier:
    """``hf:<owner>/<model>`` or ``hf:<folder>``: an image classifier of transformers; safetensors only, unless
    trusted."""
    module = library("transformers")
    options: dict[str, Any] = {} if trust else {"use_safetensors": True}
    with no_unpickling(trust):
        network = _downloaded(
            rest,
            lambda: module.AutoModelForImageClassification.from_pretrained(rest, trust_remote_code=trust, **options),
        )
    # The processor's settings are read and not the processor: that would want torchvision or Pillow.
    facts, _ = _downloaded(
        rest, lambda: module.image_processing_utils.BaseImageProcessor.get_image_processor_dict(rest)
    )
    normalisation = (
        (facts["image_mean"], facts["image_std"]) if facts.get("do_normalize", True) and "image_mean" in facts else None
    )
    size = facts.get("crop_size") if facts.get("do_center_crop") else facts.get("size")
    sides = (size.get("height"), size.get("width")) if isinstance(size, dict) else (size, size)
    shape = (
        (int(getattr(network.config, "num_channels", 3)), int(sides[0]), int(sides[1]))
        if sides[0] and sides[1]
        else None
    )
    return _made(
        f"hf:{rest}", network, normalisation, shape, network.config.num_labels, names=_names_of(network.config)
    )


def robustbench(rest: str, trust: bool) -> Classifier:
    """``robustbench:<data set>/<threat model>/<model>``, e.g. ``robustbench:cifar10/Linf/Carmon2019Unlabeled``; it
    normalises inside."""
    parts = rest.split("/")
    if len(parts) != 3:
        raise UnknownName(
            "a RobustBench model is named <data set>/<threat model>/<model>, as cifar10/Linf/Carmon2019Unlabeled; "
            f"got {rest!r}."
        )
    dataset, threat, name = parts
    module = library("robustbench.utils")
    folder = hub.home() / "robustbench"

    def fetch() -> Any:
        return module.load_model(model_name=name, dataset=dataset, threat_model=threat, model_dir=str(folder))

    with no_unpickling(trust):
        network = _downloaded(rest, fetch)
    facts = {"cifar10": ((3, 32, 32), 10), "cifar100": ((3, 32, 32), 100), "imagenet": ((3, 224, 224), 1000)}
    shape, classes = facts.get(dataset, (None, None))
    return _made(f"robustbench:{rest}", network, None, shape, classes, dataset)


def _made(
    name: str,
    network: Any,
    normalisation: Any,
    shape: Any,
    classes: int | None,
    dataset: str | None = None,
    names: Any = None,
) -> Classifier:
    mean, std = pair(normalisation) or (None, None)
    on = dataset or ("imagenet" if classes == 1000 else None)
    return Classifier(
        network, name=name, mean=mean, std=std, dataset=on, shape=shape, classes=classes, class_names=names
    )


def _names_of(config: Any) -> list[str] | None:
    """The class names of a transformers configuration; the placeholders LABEL_0, LABEL_1 ... are none."""
    names = [str(config.id2label.get(number, "")) for number in range(config.num_labels)]
    return None if all(name in ("", f"LABEL_{number}") for number, name in enumerate(names)) else names


def _downloaded(name: str, fetch: Any) -> Any:
    """The result of a library's own download, its many kinds of failure as one sentence."""
    import pickle

    try:
        return fetch()
    except (pickle.UnpicklingError, BadModel):
        raise
    except Exception as error:
        raise Unavailable(
            f"{name} could not be loaded ({type(error).__name__}: {str(error).strip()[:300]})."
        ) from error
