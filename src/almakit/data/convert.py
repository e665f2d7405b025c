"""Conversions from what a source delivers to the files of ``catalogue.toml``: each function takes paths, perhaps a
text, and returns the file's bytes.

Nothing is unpickled freely: torch checkpoints are read with ``weights_only=True``, plain numpy pickles with an
unpickler that knows arrays and nothing else.
"""

from __future__ import annotations

import gzip
import io
import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from ..errors import Unavailable

PREFIXES = ("module.", "model.", "module.model.")
"""What training scripts leave in front of a network's keys (``DataParallel``, wrappers, both)."""


_WRAPPERS = ("state_dict", "model", "net", "model_state_dict")


def as_is(path: Path) -> bytes:
    """The file itself."""
    return path.read_bytes()


def compressed(path: Path) -> bytes:
    """A raw file as gzip, without a time stamp."""
    return gzip.compress(path.read_bytes(), compresslevel=6, mtime=0)


def cifar_batch(picture: Path, labels: Path, first: str = "0") -> bytes:
    """A CIFAR-10 batch file (label, 3 x 32 x 32 for each image) from a PNG with one image per row and a JSON list of
    labels."""
    from PIL import Image

    try:
        with Image.open(picture) as opened:
            rows = np.asarray(opened.convert("RGB"))
    except Image.DecompressionBombError as error:
        raise Unavailable(f"{picture.name} is larger than a picture should be.") from error
    images = rows.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2).reshape(-1, 3072)
    classes = json.loads(labels.read_text(encoding="utf-8"))[int(first) : int(first) + len(images)]
    return np.concatenate([np.asarray(classes, dtype=np.uint8)[:, None], images], axis=1).tobytes()


def cifar_first(batch: bytes, count: int = 1000) -> bytes:
    """The first images of a CIFAR-10 batch file as an npz with ``x`` uint8 (N, 32, 32, 3) and ``y`` uint8 (N,)."""
    rows = np.frombuffer(batch, dtype=np.uint8).reshape(-1, 3073)[:count]
    images = np.ascontiguousarray(rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
    out = io.BytesIO()
    np.savez_compressed(out, x=images, y=np.ascontiguousarray(rows[:, 0]))
    return out.getvalue()


def cifar_first_of_picture(picture: Path, labels: Path) -> bytes:
    """``cifar_first`` of the batch in a PNG."""
    return cifar_first(cifar_batch(picture, labels))


def cifar_first_of_batch(batch: Path) -> bytes:
    """``cifar_first`` of a batch file."""
    return cifar_first(batch.read_bytes())


def alexnet_of_flax(path: Path) -> bytes:
    """torchvision's AlexNet convolutions, with torchvision's keys, from the numpy dict of a flax port (kernels H, W,
    in, out)."""
    with path.open("rb") as opened:
        layers = _ArraysOnly(opened).load()["AlexNet_0"]
    tensors: dict[str, np.ndarray[Any, Any]] = {}
    for ours, theirs in zip((0, 3, 6, 8, 10), range(5), strict=True):
        layer = layers[f"Conv_{theirs}"]
        tensors[f"features.{ours}.weight"] = np.ascontiguousarray(
            np.asarray(layer["kernel"], dtype=np.float32).transpose(3, 2, 0, 1)
        )
        tensors[f"features.{ours}.bias"] = np.asarray(layer["bias"], dtype=np.float32)
    return _safetensors(tensors)


def checkpoint(path: Path, keep: str = "") -> bytes:
    """A torch checkpoint's weights as safetensors: float32, prefixes taken off, batch counters dropped, only keys
    starting with ``keep``."""
    import torch

    content = torch.load(path, map_location="cpu", weights_only=True)
    tensors = {
        key: value.detach().float().numpy() for key, value in state_dict_of(content).items() if key.startswith(keep)
    }
    return _safetensors(tensors)


def state_dict_of(content: Any) -> dict[str, Any]:
    """The tensors of a loaded checkpoint, wherever its author put them, keyed as the network itself names them."""
    for _ in range(3):
        if isinstance(content, (list, tuple)) and len(content) == 1:
            content = content[0]
        elif isinstance(content, Mapping):
            inner = next((content[key] for key in _WRAPPERS if isinstance(content.get(key), (Mapping, list))), None)
            if inner is None:
                break
            content = inner
    if not isinstance(content, Mapping) or not all(isinstance(key, str) for key in content):
        raise Unavailable("the checkpoint holds no dictionary of weights.")
    tensors = {
        key: value
        for key, value in content.items()
        if hasattr(value, "shape") and not key.endswith("num_batches_tracked")
    }
    return _without_prefix(tensors)


def _without_prefix(tensors: dict[str, Any]) -> dict[str, Any]:
    """A prefix goes only where every key carries it, the longest first."""
    for prefix in sorted(PREFIXES, key=len, reverse=True):
        if tensors and all(key.startswith(prefix) for key in tensors):
            return {key.removeprefix(prefix): value for key, value in tensors.items()}
    return tensors


def _safetensors(tensors: dict[str, np.ndarray[Any, Any]]) -> bytes:
    return save({key: np.ascontiguousarray(value) for key, value in tensors.items()})


class _ArraysOnly(pickle.Unpickler):
    """Unpickles dicts, lists and numpy arrays; any other global is refused."""

    ALLOWED = frozenset(
        {("multiarray", "_reconstruct"), ("numpy", "ndarray"), ("numpy", "dtype"), ("_codecs", "encode")}
    )

    def find_class(self, module: str, name: str) -> Any:
        # numpy renamed numpy.core to numpy._core; both mean the one function that makes an empty array.
        short = "multiarray" if module in ("numpy.core.multiarray", "numpy._core.multiarray") else module
        if (short, name) not in self.ALLOWED:
            raise Unavailable(f"the file wants to load {module}.{name}; only numpy arrays are taken from it.")
        if short == "multiarray":
            return np.empty(0).__reduce__()[0]
        if module == "_codecs":
            return _encode
        return getattr(np, name)


def _encode(text: str, encoding: str = "latin1") -> bytes:
    return text.encode(encoding)
