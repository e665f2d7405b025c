"""Models by URI."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..data import hub
from ..data.user_file import call, is_user_file
from ..errors import BadInput, BadModel, Unavailable, UnknownName
from ..hints import meant
from .zoo import ZOO, Entry, build

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from .classifier import Classifier

FORMS = (
    "<zoo name>@<weights file>",
    "file.py:function",
    "file.py:function@<weights file>",
    "<file>.pt2",
    "<file>.onnx",
    "torchvision:<model>",
    "timm:<model>",
    "hf:<owner>/<model>",
    "robustbench:<data set>/<threat model>/<model>",
)
FIT = "?output=fit"
FOREIGN = ("torchvision", "timm", "hf", "robustbench")

Normalisation = tuple[Sequence[float], Sequence[float]]


def names() -> list[str]:
    """The networks known by name; ``zoo.ZOO[name].at_hand`` says whether almakit can also get the weights."""
    return list(ZOO)


def forms() -> list[str]:
    """The other forms of URI that ``load`` understands."""
    return list(FORMS)


def load(
    uri: str, *, trust: bool = False, device: str | torch.device = "cpu", dtype: torch.dtype | None = None, normalisation: Normalisation | None = None
) -> Classifier:
    """A classifier from its URI: images in [0, 1] -> logits, in evaluation mode, frozen, on ``device``.

    A zoo name (perhaps with ``@<weights file>``), ``file.py:function`` (a function that returns a torch module or a function of images),
    a ``.pt2`` file of ``torch.export``, an ``.onnx`` file, or ``torchvision:``, ``timm:``, ``hf:`` and ``robustbench:`` with a model's
    name. ``normalisation`` is (means, standard deviations) per channel for models that expect it and do not bring it; ``trust`` allows
    what would run the code of a file's author (full unpickling, a repository's own classes). Weights are otherwise read as safetensors
    or with ``weights_only=True``. ``?output=fit`` behind a URI: logits (B, K, h, w) are resized to the images' height and width.
    """
    source, fit, _ = uri.partition(FIT)
    model = _from(source, trust, normalisation)
    if fit:
        model.name, model.fit_output = uri, True
    model.to(device=device, dtype=dtype)
    return model


def is_foreign(uri: str) -> bool:
    """Whether a URI names a model of another library."""
    return uri.partition(":")[0] in FOREIGN


def opened(model: str | Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """The model itself, or the one of a URI."""
    return load(model) if isinstance(model, str) else model


def _from(uri: str, trust: bool, normalisation: Normalisation | None) -> Classifier:
    from .classifier import Classifier

    kind, _, rest = uri.partition(":")
    name, _, file = uri.partition("@")
    network: Any
    if name in ZOO:
        return _from_zoo(ZOO[name], file, trust, normalisation)
    source, at, weights = uri.rpartition("@")
    if is_user_file(uri) or (at and is_user_file(source)):
        network = call(source if at and is_user_file(source) else uri)
        if at and is_user_file(source):
            network = _with_weights(network, source, weights, trust)
        if isinstance(network, Classifier):
            return network
        if isinstance(network, type):
            raise BadModel(f"{uri} returned the class {network.__name__} and not a model; let it return {network.__name__}().")
    elif uri.endswith(".pt2"):
        from .exported import exported

        network = exported(_file(uri), trust)
    elif uri.endswith(".onnx"):
        from .onnx import onnx_network

        network = onnx_network(_file(uri))
    elif kind in FOREIGN and rest:
        from . import foreign

        found: Classifier = getattr(foreign, kind)(rest, trust)
        if normalisation is not None:
            return Classifier(found.network, name=uri, mean=normalisation[0], std=normalisation[1], shape=found.shape, classes=found.classes)
        return found
    else:
        raise _unknown(uri)
    mean, std = normalisation or (None, None)
    shape, classes = getattr(network, "image_shape", None), getattr(network, "classes", None)
    return Classifier(network, name=uri, mean=mean, std=std, shape=shape, classes=classes if isinstance(classes, int) else None)


def _with_weights(network: Any, source: str, file: str, trust: bool) -> Any:
    """A network of the user's own with the weights of a file, as ``almakit train`` leaves them."""
    from torch import nn

    from .weights import fit, read

    if not isinstance(network, nn.Module):
        raise BadModel(f"{source} returned a {type(network).__name__}, which takes no weights; let it return a torch module.")
    fit(network, read(Path(file).expanduser(), trust=trust), source)
    return network


def _from_zoo(entry: Entry, file: str, trust: bool, normalisation: Normalisation | None) -> Classifier:
    from .classifier import Classifier, state_sha256
    from .weights import fit, read

    if file:
        state = read(Path(file).expanduser(), trust=trust)
    elif entry.shipped:
        with as_file(files("almakit.models.zoo") / "weights" / entry.shipped) as path:
            state = read(path)
    elif entry.file:
        state = read(hub.path(entry.file))
    else:
        return _elsewhere(entry, trust)
    network = build(entry)
    fit(network, state, entry.name)
    if not file and entry.sha256 and (found := state_sha256(state)) != entry.sha256:
        raise BadModel(f"the weights of {entry.name} inside the package were altered: sha256 {found}; install almakit again.")
    mean, std = normalisation or entry.normalisation or (None, None)
    name = f"{entry.name}@{file}" if file else entry.name
    return Classifier(network, name=name, mean=mean, std=std, dataset=entry.dataset, shape=entry.shape, classes=entry.classes)


def _elsewhere(entry: Entry, trust: bool) -> Classifier:
    """The entry's network from the library that publishes it, where that is installed; otherwise what the user can do."""
    why = ""
    if entry.via and os.environ.get("ALMAKIT_OFFLINE", "0") in ("", "0"):
        from . import foreign
        from .classifier import Classifier

        kind, _, rest = entry.via.partition(":")
        try:
            found = getattr(foreign, kind)(rest, trust)
        except Unavailable as error:
            why = f" ({entry.via} would bring them: {str(error).rstrip('.')})"
        else:
            mean, std = (None if value is None else value.flatten().tolist() for value in (found.mean, found.std))
            return Classifier(found.network, name=entry.name, mean=mean, std=std, dataset=entry.dataset, shape=entry.shape, classes=entry.classes)
    raise Unavailable(
        f"almakit cannot fetch the weights of {entry.name}, {entry.about}{why}; get {entry.whence} and name the file: {entry.name}@<file>."
    )


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
            f"{uri} holds weights, and weights alone are no model: name a network of the zoo they belong to (<zoo name>@{uri}), or write a function that "
            "builds the network, loads them and returns it, and name it as file.py:function."
        )
    return UnknownName(f"there is no model called {uri!r}; {meant(uri.partition('@')[0], [*ZOO, *FORMS])}")
