"""Images and labels as people have them in Python: arrays, lists, loaders, data sets of torch, torchvision and Hugging
Face, pandas frames of paths."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, RandomSampler
from torch.utils.data import Dataset as TorchDataset

from ..errors import BadInput, Unavailable, optional
from .arrays import channels_first, classes_or_truths, from_arrays, from_values, in_unit_range, integers
from .dataset import Dataset
from .features import Features
from .folder import from_files, from_table
from .images import map_of, pixels
from .load import load
from .user_file import call

Data = str | Dataset | Tensor | np.ndarray[Any, Any] | TorchDataset[Any] | Iterable[Any]
"""Labelled images in any of the forms ``dataset_of`` knows; where labels are given beside them, images alone."""

IMAGE = ("image", "img", "images", "pixel_values", "x", "jpg", "png")
LABEL = ("label", "labels", "fine_label", "y", "class", "target", "cls")
"""What the parts of a sample are called where it is a dict, in the order they are looked for."""
HF_SPLITS = {"test": ("test", "validation", "valid", "val"), "train": ("train",)}


def name_of(data: object) -> str:
    """How data given from Python are called in records."""
    if isinstance(data, Dataset):
        return data.name
    return "python:arrays" if isinstance(data, (tuple, list, Tensor, np.ndarray)) else f"python:{type(data).__name__}"


def tensors_of(x: Data, labels: Any = None) -> tuple[Any, Any]:
    """Images (B, ...) and labels (B,) for an attack. Tensors stay as they are; data without ``labels`` beside them must
    bring their own."""
    if labels is None and not isinstance(x, (Tensor, np.ndarray)):
        if isinstance(x, str):
            return load(x).tensors()
        return dataset_of(x, ordered=False).tensors()
    if labels is None:
        raise BadInput(
            "the images come without labels: give attack(model, images, labels), or data that bring theirs, such as a "
            "DataLoader."
        )
    if isinstance(x, (str, Dataset, DataLoader)):
        raise BadInput(
            f"{name_of(x).removeprefix('python:') if not isinstance(x, str) else x} brings its own labels; leave the "
            "labels out."
        )
    return (x if isinstance(x, Tensor) else _images(x)), labels


def dataset_of(data: Any, last: int | None = None, size: int | None = None, ordered: bool = True) -> Dataset:
    """A data set of whatever brings images and labels; no image past position ``last`` will be asked for.

    ``size`` makes images that are files or PIL images square with that side. ``ordered``: the order must be the same
    every time.
    """
    if isinstance(data, Dataset):
        return data
    name = name_of(data)
    if (isinstance(data, tuple) and len(data) in (2, 3)) or (
        isinstance(data, list) and len(data) == 2 and not _sample(data[0])
    ):
        return _pair(name, size, *data)
    if isinstance(data, DataLoader):
        if ordered and isinstance(data.sampler, RandomSampler):
            raise BadInput(
                "this DataLoader shuffles, so a run could not be resumed: make it with shuffle=False, or give its "
                "data set."
            )
        return _consumed(name, data, last)
    if hasattr(data, "columns") and hasattr(data, "to_dict"):
        return from_table(name, data.to_dict("records"), size)
    if isinstance(data, Mapping):
        raise BadInput(
            f"{type(data).__name__} holds the splits {', '.join(map(str, data))}; give one of them, e.g. "
            f"data[{next(iter(data), 'test')!r}]."
        )
    if (
        hasattr(data, "__getitem__")
        and hasattr(data, "__len__")
        and not isinstance(data, (str, bytes, Tensor, np.ndarray))
    ):
        return _indexed(name, data, last, size)
    if isinstance(data, Iterable) and not isinstance(data, (str, bytes, Tensor, np.ndarray)):
        return _consumed(name, data, last)
    raise BadInput(
        "data are a name, a pair (images, labels), a DataLoader, a data set or a pandas frame with the columns file "
        f"and label, not a {type(data).__name__}."
    )


def in_box(data: Any, last: int | None, **parts: Any) -> Dataset:
    """A data set of values (N, ...) of any rank, as they are: a pair (values, labels), or anything that gives batches
    or samples of both. ``parts``: lo, hi, step and fixed of its features."""
    name = name_of(data)
    if isinstance(data, tuple) and len(data) in (2, 3):
        values, labels, targets = torch.as_tensor(data[0]), data[1], data[2] if len(data) == 3 else None
    elif isinstance(data, (str, Dataset)) or not isinstance(data, Iterable):
        raise BadInput("a box of your own is for values given from Python: a pair (values, labels), or a DataLoader.")
    else:
        values, labels = _read(name, data, last, torch.as_tensor, torch.as_tensor, (0,))
        targets = None
    return from_values(name, values, labels, Features.of(values.shape[1:], **parts), targets=targets)


def _pair(name: str, size: int | None, images: Any, labels: Any, targets: Any = None) -> Dataset:
    """(images, labels) or (images, labels, targets)."""
    if isinstance(images, (list, tuple)) and images and isinstance(images[0], (str, Path)):
        wanted = None if targets is None else integers(name, "targets", targets)
        return from_files(name, images, integers(name, "labels", labels), wanted, size)
    if size is not None:
        raise BadInput("size is for images that are files; resize the arrays you give.")
    return from_arrays(name, images if isinstance(images, Tensor) else _images(images), labels, targets=targets)


def _images(given: Any) -> Tensor:
    """Images (B, ...) of an array, or of a list of arrays, tensors, PIL images or numbers; bytes as floats in [0, 1],
    channels first."""
    if isinstance(given, (list, tuple)) and given and not isinstance(given[0], (int, float, list, tuple)):
        return torch.stack(_alike("the list", [_image(one) for one in given]))
    try:
        array = torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError):
        raise BadInput(
            f"images are a tensor, a numpy array or a list of images, not a {type(given).__name__}."
        ) from None
    array = channels_first("the array", array) if array.ndim in (3, 4) and len(array) else array
    return array.float() / 255 if array.dtype == torch.uint8 else array


def _consumed(name: str, batches: Iterable[Any], last: int | None) -> Dataset:
    """A loader, or any iterable of batches or of samples, read once from its beginning."""
    # Of one image there is a class, or one for each pixel.
    return from_arrays(name, *_read(name, batches, last, _image, _images, (0, 2)))


def _read(
    name: str,
    batches: Iterable[Any],
    last: int | None,
    one: Callable[[Any], Tensor],
    several: Callable[[Any], Tensor],
    ranks: tuple[int, ...],
) -> tuple[Tensor, list[Any]]:
    """Values (N, ...) and labels of batches, or of single samples, whose labels have one of the ``ranks``."""
    values: list[Tensor] = []
    labels: list[Any] = []
    for batch in batches:
        some, wanted = _parts(name, batch)
        wanted = torch.as_tensor(wanted)
        single = wanted.ndim in ranks
        values += [one(some)] if single else list(several(some))
        labels += [wanted.tolist()] if single else wanted.tolist()
        if last is not None and len(labels) >= last:
            break
    if not labels:
        raise BadInput(f"{name.removeprefix('python:')} gave no images.")
    return torch.stack(_alike(name, values)), labels


def _indexed(name: str, data: Any, last: int | None, size: int | None) -> Dataset:
    """A data set with ``len`` and ``data[i] -> (image, label)`` or a dict of both; images are read when they are
    needed."""
    count = len(data) if last is None else min(len(data), last)
    if not count:
        raise BadInput(f"{name.removeprefix('python:')} holds no images.")

    def read(indices: Sequence[int]) -> Tensor:
        images = [_image(_parts(name, data[int(index)])[0], size) for index in indices]
        return in_unit_range(name, torch.stack(_alike(name, images)).float()) if images else torch.empty(0)

    ids, labels = tuple(map(str, range(count))), _labels(name, data, count)
    first = next(labels)
    if _picture(first) or np.ndim(first) == 2:

        def maps(indices: Sequence[int]) -> Tensor:
            return torch.stack([map_of(_parts(name, data[int(index)])[1], size) for index in indices])

        return Dataset(name, ids, torch.zeros(count, dtype=torch.int64), read, maps=maps)
    listed = np.array([np.asarray(each) for each in (first, *labels)])
    whole = listed.ndim == 1 and bool((listed == np.floor(listed)).all())
    wanted, truths = classes_or_truths(name, listed.astype(np.int64) if whole else listed)
    return Dataset(name, ids, wanted, read, None, _class_names(data), truths=truths)


def _labels(name: str, data: Any, count: int) -> Iterator[Any]:
    """The labels, or label maps, without the images where the data set keeps them apart, as those of torchvision and
    Hugging Face do."""
    features = getattr(data, "features", None)
    if isinstance(features, Mapping) and getattr(data, "format", {}).get("type") != "custom":
        column = _key(name, features, LABEL, "label")
        return iter(data[column][:count])
    kept = getattr(data, "targets", None)
    if isinstance(kept, (list, Tensor)) and len(kept) == len(data) and getattr(data, "target_transform", None) is None:
        return iter(kept[:count])
    return (_parts(name, data[index])[1] for index in range(count))


def _class_names(data: Any) -> tuple[str, ...] | None:
    features = getattr(data, "features", None)
    if isinstance(features, Mapping):
        found = next((getattr(features[key], "names", None) for key in LABEL if key in features), None)
    else:
        found = getattr(data, "classes", None)
    return (
        tuple(found)
        if isinstance(found, (list, tuple)) and found and all(isinstance(one, str) for one in found)
        else None
    )


def _sample(one: object) -> bool:
    """Whether something is an image with its label, and not an image alone."""
    return isinstance(one, Mapping) or (
        isinstance(one, tuple) and len(one) >= 2 and (_picture(one[1]) or np.ndim(one[1]) == 0)
    )


def _parts(name: str, sample: Any) -> tuple[Any, Any]:
    """Images and labels of a sample or batch: the first two of a tuple, or the entries of a dict."""
    if isinstance(sample, Mapping):
        return sample[_key(name, sample, IMAGE, "image")], sample[_key(name, sample, LABEL, "label")]
    if isinstance(sample, (tuple, list)) and len(sample) >= 2:
        return sample[0], sample[1]
    raise BadInput(
        f"{name.removeprefix('python:')} gave a {type(sample).__name__}; it must give (image, label), or a dict with "
        "image and label."
    )


def _key(name: str, entries: Mapping[str, Any], known: Sequence[str], what: str) -> str:
    found = next((key for key in known if key in entries), None)
    if found is None:
        there, wanted = ", ".join(map(str, entries)), " or ".join(known[:3])
        raise BadInput(
            f"{name.removeprefix('python:')} has the columns {there}; none is called {wanted} for the {what}."
        )
    return found


def _image(one: Any, size: int | None = None) -> Tensor:
    """One image as a float tensor (C, H, W), or whatever shape a tensor has: bytes and PIL images in [0, 1], channels
    first."""
    if _picture(one):
        return pixels(one, size)
    tensor = torch.as_tensor(one)
    if size is not None and tuple(tensor.shape[-2:]) != (size, size):
        raise BadInput(
            f"size={size}: only files and PIL images are resized; the data set's images have shape "
            f"{tuple(tensor.shape)}."
        )
    if tensor.ndim in (2, 3):
        tensor = channels_first("the data set", tensor[None])[0]
    return tensor.float() / 255 if tensor.dtype == torch.uint8 else tensor


def _picture(one: object) -> bool:
    """Whether something is a PIL image."""
    return hasattr(one, "convert") and hasattr(one, "mode")


def _alike(name: str, images: list[Tensor]) -> list[Tensor]:
    shapes = sorted({tuple(image.shape) for image in images})
    if len(shapes) > 1:
        shown = ", ".join(map(str, shapes[:3]))
        raise BadInput(
            f"the images of {name.removeprefix('python:')} have different shapes, such as {shown}; bring them to one, "
            "e.g. with size=224."
        )
    return images


def user_function(uri: str, size: int | None) -> Dataset:
    """What ``file.py:function`` returns: images, labels and perhaps targets, or any data that ``dataset_of`` knows."""
    made = call(uri)
    if isinstance(made, Dataset):
        return made
    several = isinstance(made, (tuple, list))
    if not several and hasattr(made, "__len__") and hasattr(made, "__iter__") | hasattr(made, "__getitem__"):
        return replace(dataset_of(made, size=size), name=uri)
    if not several or len(made) not in (2, 3):
        raise BadInput(
            f"{uri} returned {type(made).__name__}; it must return (images, labels), (images, labels, targets) or a "
            "data set."
        )
    return from_arrays(uri, made[0], made[1], targets=made[2] if len(made) == 3 else None, size=size)


def hf_dataset(rest: str, split: str, size: int | None, last: int | None) -> Dataset:
    """``hf-dataset:<name>`` of Hugging Face's library: its test (or validation) or training split; ``<name>@<split>``
    takes a split by its own name."""
    datasets = optional("datasets", "hf-dataset: needs Hugging Face's library of data sets: pip install datasets.")
    name, _, wanted = rest.partition("@")
    try:
        found = datasets.load_dataset(name)
    except Exception as error:  # its downloads fail in many ways
        raise Unavailable(
            f"the data set {name} could not be loaded ({type(error).__name__}: {str(error).strip()[:300]})."
        ) from error
    choice = next((one for one in ((wanted,) if wanted else HF_SPLITS[split]) if one in found), None)
    if choice is None:
        raise Unavailable(f"{name} has the splits {', '.join(found)}; name one, hf-dataset:{name}@{next(iter(found))}.")
    return replace(dataset_of(found[choice], last, size), name=f"hf-dataset:{rest}")
