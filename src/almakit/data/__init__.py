"""Labelled images in [0, 1], by URI; and the files almakit needs, by name (``hub``)."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import BadInput, UnknownName, suggestion
from .user_file import is_user_file

if TYPE_CHECKING:
    from . import hub
    from .dataset import Chunk, Dataset, image_sha256

__all__ = ["Chunk", "Dataset", "forms", "hub", "image_sha256", "load", "names"]

NAMES = {
    "mnist-demo": "256 MNIST test digits inside the package",
    "mnist": "handwritten digits, 10 000 test and 60 000 training images of 1 x 28 x 28",
    "fashion-mnist": "clothes, 10 000 test and 60 000 training images of 1 x 28 x 28",
    "cifar10": "ten kinds of objects, 10 000 test and 50 000 training images of 3 x 32 x 32",
    "imagenet": "ImageNet photos, from the folder imagenet of ALMAKIT_DATA",
    "scenes": "digits on textured canvases with a class for every pixel, drawn by a seeded generator; no file needed",
}
LARGEST_SIDE = 8192
FORMS = (
    "imagenet:<folder>",
    "folder:<folder or csv>",
    "npz:<file>",
    "table:<csv or parquet>?label=<column>",
    "hf-dataset:<name>",
    "file.py:function",
)


def names() -> list[str]:
    """The data sets known by name."""
    return list(NAMES)


def forms() -> list[str]:
    """The other forms of URI that ``load`` understands."""
    return list(FORMS)


def load(
    uri: str,
    limit: int | None = None,
    offset: int = 0,
    split: str = "test",
    size: int | None = None,
    channels: int | None = None,
) -> Dataset:
    """Load a data set. Images are read when they are needed, except where the whole data set is one array.

    Args:
        uri: a name, ``imagenet:<folder>``, ``folder:<folder or csv>``, ``npz:<file>``, ``table:<csv or
            parquet>?label=<column>``, ``hf-dataset:<name>`` (with Hugging Face's library) or ``file.py:function``.
        limit: largest number of images.
        offset: the position of the first.
        split: ``test`` or ``train``.
        size: makes images square with this side.
        channels: 1 or 3, how image files of ``folder:`` are read.

    Examples:
        >>> import almakit
        >>> x, labels = almakit.data.load("mnist-demo", limit=8).tensors()
        >>> tuple(x.shape)
        (8, 1, 28, 28)
    """
    if split not in ("test", "train"):
        raise BadInput(f"there are the splits test and train, not {split!r}.")
    if offset < 0 or (limit is not None and limit < 1) or (size is not None and size < 1):
        raise BadInput(
            f"offset must be 0 or more, limit and size 1 or more; got offset={offset}, limit={limit}, size={size}."
        )
    if size is not None and size > LARGEST_SIDE:
        raise BadInput(f"size={size}: images are made square with a side of {LARGEST_SIDE} at most.")
    whole = _whole(uri, split, size, channels, None if limit is None else offset + limit)
    if offset >= len(whole):
        raise BadInput(f"{uri} has {len(whole)} images; offset {offset} lies beyond the last.")
    last = len(whole) if limit is None else min(len(whole), offset + limit)
    return whole if (offset, last) == (0, len(whole)) else whole.select(range(offset, last))


def _whole(uri: str, split: str, size: int | None, channels: int | None, last: int | None) -> Dataset:
    # torch is imported here, because `almakit fetch` and `almakit ls` do not need it.
    from . import coerce, files, named, scenes, tables

    kind, _, rest = uri.partition(":")
    if is_user_file(uri):
        return coerce.user_function(uri, size)
    if uri in ("mnist", "fashion-mnist"):
        return named.digits(uri, split, size)
    if uri == "mnist-demo":
        return named.demo(size)
    if uri == "scenes":
        return scenes.scenes(split, size)
    if uri == "cifar10":
        return named.cifar10(split, size, last)
    if kind == "imagenet":
        return named.imagenet(rest or None, split, size)
    if kind == "folder" and rest:
        return files.folder(uri, rest, size, channels, split)
    if kind == "table" and rest:
        return tables.table(uri, rest)
    if kind == "npz" and rest:
        return named.npz(rest, size)
    if kind == "hf-dataset" and rest:
        return coerce.hf_dataset(rest, split, size, last)
    if Path(uri).expanduser().exists():
        forms = {".py": f"{uri}:<function>", ".npz": f"npz:{uri}", ".parquet": f"table:{uri}?label=<column>"}
        forms[".csv"] = f"table:{uri}?label=<column> (or folder:{uri} if it lists image files)"
        form = forms.get(Path(uri).suffix, f"folder:{uri}")
        raise UnknownName(f"{uri!r} is a file or folder and no data set's name; write {form} for it.")
    raise UnknownName(f"there is no data set called {uri!r}; {suggestion(uri, [*NAMES, *FORMS])}")


def __getattr__(name: str) -> Any:
    # The first needs safetensors, the others torch: both are imported on first use.
    if name == "hub":
        return import_module(".hub", __name__)
    if name in ("Chunk", "Dataset", "image_sha256"):
        return getattr(import_module(".dataset", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
