"""Opens the model that a URI names: the zoo, a user's function, ``.pt2`` and ``.onnx`` files, and other libraries.

torchvision, timm, transformers (``hf:``) and RobustBench are imported only when named.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..data import hub
from ..data.user_file import call, is_user_file
from ..errors import BadInput, BadModel, Unavailable, UnknownName, optional, suggestion
from . import FORMS, Normalisation
from .classifier import Classifier, in_fixed_batches, state_sha256
from .onnx import onnx_network
from .weights import fit, no_unpickling, read
from .zoo import ZOO, Entry, build

_ALL = ", or pip install 'almakit[zoo]' for all of torchvision, timm and transformers"
_INSTALL = {
    "torchvision": f"pip install torchvision{_ALL}",
    "timm": f"pip install timm{_ALL}",
    "transformers": f"pip install transformers{_ALL}",
    "robustbench": "pip install git+https://github.com/RobustBench/robustbench (it is in no extra of almakit)",
}


def from_uri(uri: str, trust: bool, normalisation: Normalisation | None, output: str = "") -> Classifier:
    """The classifier of ``uri``, on the CPU; ``output`` names one of several outputs of an ONNX graph."""
    if output and not uri.endswith(".onnx"):
        raise BadInput(
            f"{uri}?output={output}: only an .onnx file has outputs by name; ?output=fit resizes logits to the images."
        )
    kind, _, rest = uri.partition(":")
    name, _, file = uri.partition("@")
    source, _, weights = uri.rpartition("@")
    network: Any
    if name in ZOO:
        return _from_zoo(ZOO[name], file, trust, normalisation)
    with_weights = is_user_file(source)
    if with_weights or is_user_file(uri):
        network = _with_weights(call(source), source, weights, trust) if with_weights else call(uri)
        if isinstance(network, Classifier):
            return network
        if isinstance(network, type):
            raise BadModel(
                f"{uri} returned the class {network.__name__} and not a model; let it return {network.__name__}()."
            )
    elif uri.endswith(".pt2"):
        network = _exported(_file(uri), trust)
    elif uri.endswith(".onnx"):
        network = onnx_network(_file(uri), output)
    elif kind in OPENERS and rest:
        found = OPENERS[kind](rest, trust)
        if normalisation is not None:
            found.normalise(*normalisation)
        return found
    else:
        raise _unknown(uri)
    mean, std = normalisation or (None, None)
    shape, classes = getattr(network, "image_shape", None), getattr(network, "classes", None)
    return Classifier(
        network, name=uri, mean=mean, std=std, shape=shape, classes=classes if isinstance(classes, int) else None
    )


def _with_weights(network: Any, source: str, file: str, trust: bool) -> nn.Module:
    """A user's network with the weights of a file, as ``almakit train`` writes them."""
    if not isinstance(network, nn.Module):
        raise BadModel(
            f"{source} returned a {type(network).__name__}, which takes no weights; let it return a torch module."
        )
    fit(network, read(Path(file).expanduser(), trust=trust), source)
    return network


def _file(uri: str) -> Path:
    path = Path(uri).expanduser()
    if not path.is_file():
        raise Unavailable(f"there is no file {uri}.")
    return path


def _unknown(uri: str) -> Exception:
    if not uri:
        return BadInput("a model's URI is empty; see almakit.models.names().")
    if uri.endswith(".py"):
        return UnknownName(f"{uri} is a file; name the function in it that returns the model: {uri}:<function>.")
    if Path(uri).suffix.lower() in (".pt", ".pth", ".pkl", ".ckpt", ".safetensors", ".bin"):
        return UnknownName(
            f"{uri} holds weights, and weights alone are no model: name a network of the zoo they belong to (<zoo "
            f"name>@{uri}), or write a function that builds the network, loads them and returns it, and name it as "
            "file.py:function."
        )
    return UnknownName(f"there is no model called {uri!r}; {suggestion(uri.partition('@')[0], [*ZOO, *FORMS])}")


# The zoo.


def _from_zoo(entry: Entry, file: str, trust: bool, normalisation: Normalisation | None) -> Classifier:
    if file:
        state = read(Path(file).expanduser(), trust=trust)
    elif entry.shipped:
        with as_file(files("almakit.models.zoo") / "weights" / entry.shipped) as path:
            state = read(path)
    elif entry.file:
        state = read(hub.path(entry.file))
    else:
        return _from_library(entry, trust)
    network = build(entry)
    fit(network, state, entry.name)
    if not file and entry.sha256 and (found := state_sha256(state)) != entry.sha256:
        raise BadModel(
            f"the weights of {entry.name} inside the package were altered: sha256 {found}; install almakit again."
        )
    mean, std = normalisation or entry.normalisation or (None, None)
    name = f"{entry.name}@{file}" if file else entry.name
    return Classifier(
        network, name=name, mean=mean, std=std, dataset=entry.dataset, shape=entry.shape, classes=entry.classes
    )


def _from_library(entry: Entry, trust: bool) -> Classifier:
    """The entry's network from the library that publishes it, if installed; else ``Unavailable`` with what to do."""
    why = ""
    if entry.via and os.environ.get("ALMAKIT_OFFLINE", "0") in ("", "0"):
        kind, _, rest = entry.via.partition(":")
        try:
            found = OPENERS[kind](rest, trust)
        except Unavailable as error:
            why = f" ({entry.via} would bring them: {str(error).rstrip('.')})"
        else:
            found.name, found.dataset = entry.name, entry.dataset
            found.shape, found.classes = entry.shape, entry.classes
            return found
    raise Unavailable(
        f"almakit cannot fetch the weights of {entry.name}, {entry.about}{why}; get {entry.whence} and name the file: "
        f"{entry.name}@<file>."
    )


# Programs of torch.export.


class Exported(nn.Module):
    """A program of ``torch.export`` for images (B, C, H, W) of one shape; a fixed batch size n takes n images at a
    time."""

    def __init__(self, program: torch.export.ExportedProgram):
        super().__init__()
        inputs = program.graph_signature.user_inputs
        values = [node.meta.get("val") for node in program.graph.nodes if node.name in inputs]
        if len(values) != 1 or not isinstance(values[0], Tensor) or values[0].ndim < 2:
            raise BadModel(f"it takes {len(inputs)} inputs; a classifier takes one, the images")
        self.sides = tuple(side if isinstance(side, int) else None for side in values[0].shape)
        fixed = tuple(side for side in self.sides if side is not None)
        self.image_shape = fixed[1:] if len(fixed) == 4 else None
        self.program = program.module()

    def train(self, mode: bool = True) -> Exported:
        # Dropout and batch norm were fixed when the program was exported, and its own train() raises.
        self.training = mode
        return self

    def forward(self, x: Tensor) -> Tensor:
        expected = self.sides[1:]
        if x.ndim != len(self.sides) or any(
            want not in (None, side) for want, side in zip(expected, x.shape[1:], strict=True)
        ):
            sides = tuple("any" if side is None else side for side in expected)
            raise BadModel(
                f"the program was exported for images of shape {sides}, not {tuple(x.shape[1:])}; see --size and "
                "--channels."
            )
        batch = self.sides[0]
        logits: Tensor = self.program(x) if batch is None else in_fixed_batches(self.program, x, batch)
        return logits


def _exported(path: Path, trust: bool) -> Exported:
    """The network in a ``.pt2`` file, which torch unpickles and evaluates in part: only for trusted files."""
    if not trust:
        raise BadModel(
            f"{path} is a torch.export file, and reading one can run code of its author; if you trust that author, say "
            "so with trust=True (--trust), or use an .onnx file, which is read without."
        )
    try:
        return Exported(torch.export.load(path))
    except Exception as error:
        kind = "" if isinstance(error, BadModel) else f"{type(error).__name__}: "
        raise BadModel(
            f"{path} cannot be read as a torch.export file ({kind}{str(error)[:300].rstrip('.')}); save it with "
            "torch.export.save, in evaluation mode."
        ) from error


# Other libraries.


def library(name: str) -> Any:
    """Another library, or an ``Unavailable`` that says what to install."""
    root = name.split(".")[0]
    return optional(name, f"{root} is not installed: {_INSTALL[root]}.")


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
        network.load_state_dict(_downloaded(rest, lambda: weights.get_state_dict(progress=True, check_hash=True)))
    transform, categories = weights.transforms(), weights.meta["categories"]
    side = transform.crop_size[0] if getattr(transform, "crop_size", None) else None
    shape = (3, side, side) if side else None
    normalisation = (transform.mean, transform.std)
    return _made(f"torchvision:{rest}", network, normalisation, shape, len(categories), names=categories)


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
    # The settings are read without the processor, which needs torchvision or Pillow.
    facts, _ = _downloaded(
        rest, lambda: module.image_processing_utils.BaseImageProcessor.get_image_processor_dict(rest)
    )
    normalised = facts.get("do_normalize", True) and "image_mean" in facts
    normalisation = (facts["image_mean"], facts["image_std"]) if normalised else None
    size = facts.get("crop_size") if facts.get("do_center_crop") else facts.get("size")
    high, wide = (size.get("height"), size.get("width")) if isinstance(size, dict) else (size, size)
    config = network.config
    shape = (int(getattr(config, "num_channels", 3)), int(high), int(wide)) if high and wide else None
    names = [str(config.id2label.get(number, "")) for number in range(config.num_labels)]
    if all(name in ("", f"LABEL_{number}") for number, name in enumerate(names)):
        names = []  # placeholders
    return _made(f"hf:{rest}", network, normalisation, shape, config.num_labels, names=names or None)


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
    module, folder = library("robustbench.utils"), str(hub.home() / "robustbench")
    with no_unpickling(trust):
        network = _downloaded(
            rest, lambda: module.load_model(model_name=name, dataset=dataset, threat_model=threat, model_dir=folder)
        )
    facts = {"cifar10": ((3, 32, 32), 10), "cifar100": ((3, 32, 32), 100), "imagenet": ((3, 224, 224), 1000)}
    shape, classes = facts.get(dataset, (None, None))
    return _made(f"robustbench:{rest}", network, None, shape, classes, dataset)


OPENERS: dict[str, Callable[[str, bool], Classifier]] = {
    "torchvision": torchvision,
    "timm": timm,
    "hf": hf,
    "robustbench": robustbench,
}


def _made(
    name: str,
    network: Any,
    normalisation: Any,
    shape: Any,
    classes: int | None,
    dataset: str | None = None,
    names: Any = None,
) -> Classifier:
    mean, std = (None, None) if normalisation is None else (tuple(map(float, part)) for part in normalisation)
    if mean and std and not any(mean) and set(std) == {1.0}:
        mean = std = None  # nothing would change
    on = dataset or ("imagenet" if classes == 1000 else None)
    return Classifier(
        network, name=name, mean=mean, std=std, dataset=on, shape=shape, classes=classes, class_names=names
    )


def _downloaded(name: str, fetch: Callable[[], Any]) -> Any:
    """The result of a library's own download. All kinds of failures become one error message."""
    try:
        return fetch()
    except (pickle.UnpicklingError, BadModel):
        raise
    except Exception as error:
        raise Unavailable(
            f"{name} could not be loaded ({type(error).__name__}: {str(error).strip()[:300]})."
        ) from error
