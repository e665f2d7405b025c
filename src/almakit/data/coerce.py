"""Images and labels as a ``Dataset``: arrays, lists, loaders, data sets of torch, torchvision and Hugging Face, pandas
frames of paths, and what a user's function returns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate
from torch.utils.data import DataLoader, RandomSampler
from torch.utils.data import Dataset as TorchDataset

from ..errors import BadInput, Unavailable, optional
from . import load
from .dataset import IGNORED, Dataset
from .features import Features
from .files import from_table
from .images import is_picture, map_of, pixels, stacked
from .user_file import call

Data = str | Dataset | Tensor | np.ndarray[Any, Any] | TorchDataset[Any] | Iterable[Any]
"""Labelled images in any form that ``dataset_of`` accepts; only images if labels are passed separately."""

IMAGE_KEYS = ("image", "img", "images", "pixel_values", "x", "jpg", "png")
LABEL_KEYS = ("label", "labels", "fine_label", "y", "class", "target", "cls")
"""Names of a sample's parts if it is a dict, in the order in which they are looked for."""
HF_SPLITS = {"test": ("test", "validation", "valid", "val"), "train": ("train",)}


def name_of(data: object) -> str:
    """The name in records of data that came from Python."""
    if isinstance(data, Dataset):
        return data.name
    return "python:arrays" if isinstance(data, (tuple, list, Tensor, np.ndarray)) else f"python:{type(data).__name__}"


def tensors_of(x: Data, labels: Any = None) -> tuple[Any, Any]:
    """Images (B, ...) and labels (B,) for an attack. Tensors are returned unchanged."""
    if labels is not None:
        if isinstance(x, (str, Dataset, DataLoader)):
            raise BadInput(f"{x if isinstance(x, str) else name_of(x)} brings its own labels; leave the labels out.")
        return x if isinstance(x, Tensor) else _floats(as_images("python:arrays", x)), labels
    if isinstance(x, (Tensor, np.ndarray)):
        raise BadInput(
            "the images come without labels: give attack(model, images, labels), or data with labels such as a "
            "DataLoader."
        )
    return (load(x) if isinstance(x, str) else dataset_of(x, ordered=False)).tensors()


def dataset_of(
    data: Any,
    last: int | None = None,
    size: int | None = None,
    ordered: bool = True,
    units: Mapping[str, Any] | None = None,
) -> Dataset:
    """A data set from images and labels in any form.

    Args:
        data: a data set, a pair (images, labels), a loader, a data set of torch or Hugging Face, a pandas frame with
            the columns file and label, or an iterable of batches or samples.
        last: no image past this position is read.
        size: makes images square with this side.
        ordered: the order must be the same every time.
        units: for values (N, ...) other than images in [0, 1]: lo, hi, step and fixed of ``Features``.
    """
    if units is not None and not isinstance(data, tuple):
        raise BadInput("a box of your own is for values given from Python: a pair (values, labels).")
    if isinstance(data, Dataset):
        return data
    name = name_of(data)
    if isinstance(data, tuple) and len(data) in (2, 3):
        images, labels, targets = (*data, None)[:3]
        return from_arrays(name, images, labels, targets=targets, size=size, units=units)
    if isinstance(data, Mapping):
        names = ", ".join(map(str, data))
        raise BadInput(f"{name} holds the splits {names}; give one of them, e.g. data[{next(iter(data), 'test')!r}].")
    if isinstance(data, DataLoader) and ordered and isinstance(data.sampler, RandomSampler):
        raise BadInput(
            "this DataLoader shuffles, so a run could not be resumed: make it with shuffle=False, or give its data set."
        )
    if hasattr(data, "columns") and hasattr(data, "to_dict"):
        return from_table(name, data.to_dict("records"), size)
    if not isinstance(data, (str, bytes, Tensor, np.ndarray)):
        if hasattr(data, "__getitem__") and hasattr(data, "__len__"):
            return _from_indexed(name, data, last, size)
        if isinstance(data, Iterable):
            return from_arrays(name, *_read_all(name, data, last), size=size)
    raise BadInput(
        "data are a name, a pair (images, labels), a DataLoader, a data set or a pandas frame with the columns file "
        f"and label, not a {type(data).__name__}."
    )


def user_function(uri: str, size: int | None) -> Dataset:
    """The data that ``file.py:function`` returns, in any form that ``dataset_of`` accepts."""
    made = call(uri)
    if isinstance(made, Dataset):
        return made
    try:
        return replace(dataset_of(made, size=size), name=uri)
    except BadInput as error:
        raise BadInput(f"{uri} returned {type(made).__name__}: {error}") from error


def hf_dataset(rest: str, split: str, size: int | None, last: int | None) -> Dataset:
    """``hf-dataset:<name>`` of Hugging Face's library: its test (or validation) or training split; ``<name>@<split>``
    takes a split by its own name."""
    datasets = optional("datasets", "hf-dataset: needs Hugging Face's library of data sets: pip install datasets.")
    name, _, own = rest.partition("@")
    try:
        found = datasets.load_dataset(name)
    except Exception as error:  # downloads raise many kinds of errors
        reason = f"{type(error).__name__}: {str(error).strip()[:300]}"
        raise Unavailable(f"the data set {name} could not be loaded ({reason}).") from error
    choice = next((known for known in ((own,) if own else HF_SPLITS[split]) if known in found), None)
    if choice is None:
        raise Unavailable(f"{name} has the splits {', '.join(found)}; name one, hf-dataset:{name}@{next(iter(found))}.")
    return replace(dataset_of(found[choice], last, size), name=f"hf-dataset:{rest}")


def from_arrays(
    name: str,
    images: Any,
    labels: Any,
    *,
    targets: Any = None,
    ids: Sequence[str] | None = None,
    class_names: tuple[str, ...] | None = None,
    size: int | None = None,
    units: Mapping[str, Any] | None = None,
) -> Dataset:
    """A data set in memory.

    Args:
        name: the data set's name.
        images: uint8, or floats in [0, 1], shape (N, H, W), (N, C, H, W) or (N, H, W, C); vectors (N, n) and values
            (N, ...) of rank 5 and more keep their shape.
        labels: integers (N,), label maps (N, H, W), or labels (N, ...) of another kind.
        targets: target classes, integers (N,).
        ids: a name for each image.
        class_names: a name for each class.
        size: images are resized to squares with this side.
        units: for values in units of their own, of any shape (N, ...): lo, hi, step, fixed and names of ``Features``.
    """
    stored = as_images(name, images) if units is None else _tensor(name, "values", images)
    if stored.ndim < 2 or not len(stored):
        raise BadInput(
            f"the images of {name} have shape {tuple(stored.shape)}; they must be (N, H, W), (N, C, H, W), (N, H, W, "
            "C) or vectors (N, n), N at least 1."
        )
    features = None if units is None and stored.ndim == 4 else Features.of(stored.shape[1:], **(units or {}))
    if units is not None and features is not None:
        stored = torch.from_numpy(features.scaled(stored.detach().cpu().numpy()))
    elif stored.dtype != torch.uint8:
        stored = in_unit_range(name, stored)
    known = _tensor(name, "labels", labels)
    maps = features is None and known.ndim == 3
    classes, truths = (_no_classes(len(stored)), None) if maps else classes_or_truths(name, known)
    if maps and (known.is_floating_point() or known.is_complex() or known.dtype == torch.bool):
        raise BadInput(f"the label maps of {name} are {known.dtype}; they must be integers, a class for every pixel.")
    if maps and known.shape != (len(stored), *stored.shape[2:]):
        sides = f"images of shape {tuple(stored.shape)} and label maps of shape {tuple(known.shape)}"
        raise BadInput(f"{name} has {sides}; each pixel of each image needs one class.")

    def read(indices: Sequence[int]) -> Tensor:
        x = _floats(stored[list(indices)]).to(torch.float32)
        return _resized(x, None if features is not None else size).contiguous()

    def read_maps(indices: Sequence[int]) -> Tensor:
        chosen = known[list(indices)].to(torch.int64)
        if size is not None and tuple(chosen.shape[1:]) != (size, size):
            chosen = interpolate(chosen[:, None].double(), size=(size, size), mode="nearest-exact")[:, 0].long()
        return torch.where(chosen < 0, IGNORED, chosen)

    return Dataset(
        name,
        _numbers(len(stored)) if ids is None else tuple(ids),
        classes,
        read,
        None if targets is None else integers(name, "targets", targets),
        class_names,
        maps=read_maps if maps else None,
        features=features,
        truths=truths,
    )


def _from_indexed(name: str, data: Any, last: int | None, size: int | None) -> Dataset:
    """A data set with ``len`` and ``data[i] -> (image, label)`` or a dict of both; images are read when needed."""
    count = len(data) if last is None else min(len(data), last)
    if not count:
        raise BadInput(f"{name} gave no images.")

    def read(indices: Sequence[int]) -> Tensor:
        images = [_image(name, _parts(name, data[int(index)])[0], size) for index in indices]
        return in_unit_range(name, stacked(name, images).float())

    def maps(indices: Sequence[int]) -> Tensor:
        return torch.stack([map_of(_parts(name, data[int(index)])[1], size) for index in indices])

    labels = _labels(name, data, count)
    first = next(labels)
    if is_picture(first) or np.ndim(first) == 2:
        return Dataset(name, _numbers(count), _no_classes(count), read, maps=maps)
    listed = np.array([np.asarray(label) for label in (first, *labels)])
    whole = listed.ndim == 1 and bool((listed == np.floor(listed)).all())
    classes, truths = classes_or_truths(name, listed.astype(np.int64) if whole else listed)
    return Dataset(name, _numbers(count), classes, read, None, _class_names(data), truths=truths)


def _read_all(name: str, batches: Iterable[Any], last: int | None) -> tuple[Tensor, list[Any]]:
    """Images (N, ...) and labels of batches, or of single samples with a class or a map of classes each."""
    images: list[Tensor] = []
    labels: list[Any] = []
    for batch in batches:
        x, y = _parts(name, batch)
        y = torch.as_tensor(y)
        if y.ndim in (0, 2):
            images.append(_image(name, x))
            labels.append(y.tolist())
        else:
            images += list(_floats(as_images(name, x)))
            labels += y.tolist()
        if last is not None and len(labels) >= last:
            break
    if not labels:
        raise BadInput(f"{name} gave no images.")
    return stacked(name, images), labels


def _labels(name: str, data: Any, count: int) -> Iterator[Any]:
    """The labels or label maps, without reading images if the data set stores them separately, as torchvision and
    Hugging Face do."""
    features = getattr(data, "features", None)
    if isinstance(features, Mapping) and getattr(data, "format", {}).get("type") != "custom":
        return iter(data[_key(name, features, LABEL_KEYS)][:count])
    kept = getattr(data, "targets", None)
    if isinstance(kept, (list, Tensor)) and len(kept) == len(data) and getattr(data, "target_transform", None) is None:
        return iter(kept[:count])
    return (_parts(name, data[index])[1] for index in range(count))


def _class_names(data: Any) -> tuple[str, ...] | None:
    features, found = getattr(data, "features", None), getattr(data, "classes", None)
    if isinstance(features, Mapping):
        found = next((getattr(features[key], "names", None) for key in LABEL_KEYS if key in features), None)
    listed = isinstance(found, (list, tuple)) and found and all(isinstance(name, str) for name in found)
    return tuple(found) if found is not None and listed else None


def _parts(name: str, sample: Any) -> tuple[Any, Any]:
    """Images and labels of a sample or batch: the first two of a tuple, or the entries of a dict."""
    if isinstance(sample, Mapping):
        return sample[_key(name, sample, IMAGE_KEYS)], sample[_key(name, sample, LABEL_KEYS)]
    if isinstance(sample, (tuple, list)) and len(sample) >= 2:
        return sample[0], sample[1]
    raise BadInput(
        f"{name} gave a {type(sample).__name__}; it must give (image, label), or a dict with image and label."
    )


def _key(name: str, entries: Mapping[str, Any], known: Sequence[str]) -> str:
    found = next((key for key in known if key in entries), None)
    if found is None:
        columns, names = ", ".join(map(str, entries)), " or ".join(known[:3])
        raise BadInput(f"{name} has the columns {columns}; none is called {names}.")
    return found


# Tensors.


def as_images(name: str, values: Any) -> Tensor:
    """Images (N, ...) of an array, nested lists, or a list of arrays, tensors or PIL images; channels first."""
    if isinstance(values, (list, tuple)) and values and not isinstance(values[0], (int, float, list, tuple)):
        return stacked(name, [_image(name, value) for value in values])
    images = _tensor(name, "images", values)
    if images.ndim == 3:
        return images[:, None]
    last = images.ndim == 4 and images.shape[1] not in (1, 3) and images.shape[3] in (1, 3)
    return images.permute(0, 3, 1, 2) if last else images


def _image(name: str, value: Any, size: int | None = None) -> Tensor:
    """One image as a float tensor (C, H, W), or another shape if it is no image: bytes and PIL images in [0, 1]."""
    if is_picture(value):
        return pixels(value, size)
    image = _floats(as_images(name, torch.as_tensor(value)[None]))
    return _resized(image, size)[0] if image.ndim == 4 else image[0]


def _floats(images: Tensor) -> Tensor:
    return images.float() / 255 if images.dtype == torch.uint8 else images


def _resized(x: Tensor, size: int | None) -> Tensor:
    if size is None or x.shape[-2:] == (size, size):
        return x
    return interpolate(x, size=(size, size), mode="bilinear", antialias=True).clamp_(0, 1)


def in_unit_range(name: str, images: Tensor) -> Tensor:
    """The images (N, ...), which must be floats in [0, 1]."""
    if not images.is_floating_point():
        raise BadInput(f"the images of {name} are {images.dtype}; give uint8 (0 to 255) or floats in [0, 1].")
    low, high = float(images.min()), float(images.max())
    if not (low >= 0 and high <= 1):
        raise BadInput(
            f"the images of {name} range from {low:.4g} to {high:.4g}; they must lie in [0, 1]: divide by 255, or undo "
            "a normalisation (almakit's models normalise inside)."
        )
    return images


def classes_or_truths(name: str, labels: Any) -> tuple[Tensor, Tensor | None]:
    """Labels that are class numbers (N,), or zeros (N,) and the labels (N, ...) as they are, for a goal to read."""
    values = _tensor(name, "labels", labels)
    if values.ndim == 1 and not (values.is_floating_point() or values.is_complex() or values.dtype == torch.bool):
        return integers(name, "labels", values), None
    if not values.ndim or values.is_complex() or not bool(torch.isfinite(values).all()):
        raise BadInput(f"the labels of {name} have shape {tuple(values.shape)}; each image needs finite ones.")
    return _no_classes(len(values)), values.detach().cpu().clone()


def integers(name: str, what: str, values: Any) -> Tensor:
    """Labels or targets as int64 (N,)."""
    tensor = _tensor(name, what, values)
    if tensor.ndim != 1 or tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        got = f"shape {tuple(tensor.shape)} and type {tensor.dtype}"
        raise BadInput(f"the {what} of {name} have {got}; they must be integers of shape (N,).")
    tensor = tensor.to(torch.int64).clone()
    if len(tensor) and int(tensor.min()) < 0:
        raise BadInput(f"the {what} of {name} go down to {int(tensor.min())}; classes are counted from 0.")
    return tensor


def _tensor(name: str, what: str, values: Any) -> Tensor:
    """Arrays, lists and the like as a tensor; text, objects and ragged lists are errors."""
    try:
        return torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise BadInput(f"the {what} of {name} are no array of numbers ({str(error).splitlines()[0]}).") from error


def _no_classes(count: int) -> Tensor:
    return torch.zeros(count, dtype=torch.int64)


def _numbers(count: int) -> tuple[str, ...]:
    return tuple(map(str, range(count)))
