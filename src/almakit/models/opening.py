"""A model of a URI: which library or file it comes from, and its weights. Needs torch; ``load.py`` says what there is
without it."""

from __future__ import annotations

import os
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from torch import nn

from ..data import hub
from ..data.user_file import call, is_user_file
from ..errors import BadInput, BadModel, Unavailable, UnknownName, suggestion
from . import foreign
from .classifier import Classifier, state_sha256
from .exported import exported
from .load import FOREIGN, FORMS, Normalisation
from .onnx import onnx_network
from .weights import fit, read
from .zoo import ZOO, Entry, build


def from_uri(uri: str, trust: bool, normalisation: Normalisation | None) -> Classifier:
    """The classifier of ``uri``, on the CPU."""
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
            raise BadModel(
                f"{uri} returned the class {network.__name__} and not a model; let it return {network.__name__}()."
            )
    elif uri.endswith(".pt2"):
        network = exported(_file(uri), trust)
    elif uri.endswith(".onnx"):
        network = onnx_network(_file(uri))
    elif kind in FOREIGN and rest:
        found: Classifier = getattr(foreign, kind)(rest, trust)
        if normalisation is not None:
            return Classifier(
                found.network,
                name=uri,
                mean=normalisation[0],
                std=normalisation[1],
                shape=found.shape,
                classes=found.classes,
            )
        return found
    else:
        raise _unknown(uri)
    mean, std = normalisation or (None, None)
    shape, classes = getattr(network, "image_shape", None), getattr(network, "classes", None)
    return Classifier(
        network, name=uri, mean=mean, std=std, shape=shape, classes=classes if isinstance(classes, int) else None
    )


def _with_weights(network: Any, source: str, file: str, trust: bool) -> Any:
    """A network of the user's own with the weights of a file, as ``almakit train`` leaves them."""
    if not isinstance(network, nn.Module):
        raise BadModel(
            f"{source} returned a {type(network).__name__}, which takes no weights; let it return a torch module."
        )
    fit(network, read(Path(file).expanduser(), trust=trust), source)
    return network


def _from_zoo(entry: Entry, file: str, trust: bool, normalisation: Normalisation | None) -> Classifier:
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
        raise BadModel(
            f"the weights of {entry.name} inside the package were altered: sha256 {found}; install almakit again."
        )
    mean, std = normalisation or entry.normalisation or (None, None)
    name = f"{entry.name}@{file}" if file else entry.name
    return Classifier(
        network, name=name, mean=mean, std=std, dataset=entry.dataset, shape=entry.shape, classes=entry.classes
    )


def _elsewhere(entry: Entry, trust: bool) -> Classifier:
    """The entry's network from the library that publishes it, where that is installed; otherwise what the user can
    do."""
    why = ""
    if entry.via and os.environ.get("ALMAKIT_OFFLINE", "0") in ("", "0"):
        kind, _, rest = entry.via.partition(":")
        try:
            found = getattr(foreign, kind)(rest, trust)
        except Unavailable as error:
            why = f" ({entry.via} would bring them: {str(error).rstrip('.')})"
        else:
            mean, std = (None if value is None else value.flatten().tolist() for value in (found.mean, found.std))
            return Classifier(
                found.network,
                name=entry.name,
                mean=mean,
                std=std,
                dataset=entry.dataset,
                shape=entry.shape,
                classes=entry.classes,
            )
    raise Unavailable(
        f"almakit cannot fetch the weights of {entry.name}, {entry.about}{why}; get {entry.whence} and name the file: "
        f"{entry.name}@<file>."
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
            f"{uri} holds weights, and weights alone are no model: name a network of the zoo they belong to (<zoo "
            f"name>@{uri}), or write a function that "
            "builds the network, loads them and returns it, and name it as file.py:function."
        )
    return UnknownName(f"there is no model called {uri!r}; {suggestion(uri.partition('@')[0], [*ZOO, *FORMS])}")
