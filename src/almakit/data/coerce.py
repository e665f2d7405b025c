"""Images and labels as data sets: arrays, lists, loaders, data sets of torch, torchvision and Hugging Face, pandas
frames of paths, and what a user's function returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
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
from .files import from_files, from_table
from .images import map_of, pixels
from .user_file import call

Data = str | Dataset | Tensor | np.ndarray[Any, Any] | TorchDataset[Any] | Iterable[Any]
"""Labelled images in any of the forms ``dataset_of`` knows; where labels are given beside them, images alone."""

IMAGE_KEYS = ("image", "img", "images", "pixel_values", "x", "jpg", "png")
LABEL_KEYS = ("label", "labels", "fine_label", "y", "class", "target", "cls")
"""Names of a sample's parts where it is a dict, in the order they are looked for."""
HF_SPLITS = {"test": ("test", "validation", "valid", "val"), "train": ("train",)}


def name_of(data: object) -> str:
    """The name in records of data that came from Python."""
    if isinstance(data, Dataset):
        return data.name
    return "python:arrays" if isinstance(data, (tuple, list, Tensor, np.ndarray)) else f"python:{type(data).__name__}"


def tensors_of(x: Data, labels: Any = None) -> tuple[Any, Any]:
    """Images (B, ...) and labels (B,) for an attack. Tensors stay as they are; data without ``labels`` beside them must
    bring their own."""
    if labels is None and not isinstance(x, (Tensor, np.ndarray)):
        return load(x).tensors() if isinstance(x, str) else dataset_of(x, ordered=False).tensors()
    if labels is None:
        raise BadInput(
            "the images come without labels: give attack(model, images, labels), or data that bring theirs, such as a "
            "DataLoader."
        )
    if isinstance(x, (str, Dataset, DataLoader)):
        raise BadInput(
            f"{x if isinstance(x, str) else _short(name_of(x))} brings its own labels; leave the labels out."
        )
    return (x if isinstance(x, Tensor) else _images(x)), labels


def dataset_of(data: Any, last: int | None = None, size: int | None = None, ordered: bool = True) -> Dataset:
    """A data set of whatever brings images and labels.

    Args:
        data: a data set, a pair (images, labels), a loader, a data set of torch or Hugging Face, a pandas frame with
            the columns file and label, or an iterable of batches or samples.
        last: no image past this position is read.
        size: makes images that are files or PIL images square with this side.
        ordered: the order must be the same every time.
    """
    if isinstance(data, Dataset):
        return data
    name = name_of(data)
    if (isinstance(data, tuple) and len(data) in (2, 3)) or (
        isinstance(data, list) and len(data) == 2 and not _is_sample(data[0])
    ):
        return _from_pair(name, size, *data)
    if isinstance(data, DataLoader):
        if ordered and isinstance(data.sampler, RandomSampler):
            raise BadInput(
                "this DataLoader shuffles, so a run could not be resumed: make it with shuffle=False, or give its "
                "data set."
            )
        return from_arrays(name, *_read_all(name, data, last, _image, _images, (0, 2)))
    if hasattr(data, "columns") and hasattr(data, "to_dict"):
        return from_table(name, data.to_dict("records"), size)
    if isinstance(data, Mapping):
        raise BadInput(
            f"{type(data).__name__} holds the splits {', '.join(map(str, data))}; give one of them, e.g. "
            f"data[{next(iter(data), 'test')!r}]."
        )
    if not isinstance(data, (str, bytes, Tensor, np.ndarray)):
        if hasattr(data, "__getitem__") and hasattr(data, "__len__"):
            return _from_indexed(name, data, last, size)
        if isinstance(data, Iterable):
            # The label of one image is a class, or a map of classes.
            return from_arrays(name, *_read_all(name, data, last, _image, _images, (0, 2)))
    raise BadInput(
        "data are a name, a pair (images, labels), a DataLoader, a data set or a pandas frame with the columns file "
        f"and label, not a {type(data).__name__}."
    )


def in_box(data: Any, last: int | None, **parts: Any) -> Dataset:
    """A data set of values (N, ...) of any rank, as they are: a pair (values, labels), or anything that gives batches
    or samples of both. ``parts``: lo, hi, step and fixed of its features."""
    name, targets = name_of(data), None
    if isinstance(data, tuple) and len(data) in (2, 3):
        values, labels, targets = torch.as_tensor(data[0]), data[1], data[2] if len(data) == 3 else None
    elif isinstance(data, (str, Dataset)) or not isinstance(data, Iterable):
        raise BadInput("a box of your own is for values given from Python: a pair (values, labels), or a DataLoader.")
    else:
        values, labels = _read_all(name, data, last, torch.as_tensor, torch.as_tensor, (0,))
    return from_values(name, values, labels, Features.of(values.shape[1:], **parts), targets=targets)


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
    name, _, own = rest.partition("@")
    try:
        found = datasets.load_dataset(name)
    except Exception as error:  # its downloads fail in many ways
        raise Unavailable(
            f"the data set {name} could not be loaded ({type(error).__name__}: {str(error).strip()[:300]})."
        ) from error
    choice = next((each for each in ((own,) if own else HF_SPLITS[split]) if each in found), None)
    if choice is None:
        raise Unavailable(f"{name} has the splits {', '.join(found)}; name one, hf-dataset:{name}@{next(iter(found))}.")
    return replace(dataset_of(found[choice], last, size), name=f"hf-dataset:{rest}")


# Arrays.


def from_arrays(
    name: str,
    images: Any,
    labels: Any,
    *,
    targets: Any = None,
    ids: Sequence[str] | None = None,
    class_names: tuple[str, ...] | None = None,
    size: int | None = None,
) -> Dataset:
    """A data set in memory.

    Args:
        name: the data set's name.
        images: uint8, or floats in [0, 1], shape (N, H, W), (N, C, H, W) or (N, H, W, C); vectors (N, n) and values
            (N, ...) of rank 5 and more keep their shape.
        labels: integers (N,), label maps (N, H, W), or labels (N, ...) of another kind.
        targets: integers (N,), the class a targeted attack aims at.
        ids: a name for each image.
        class_names: a name for each class.
        size: images are resized to squares with this side.
    """
    stored = _tensor(name, "images", images)
    if stored.ndim == 2 or stored.ndim > 4:
        stored = stored / 255 if stored.dtype == torch.uint8 else in_unit_range(name, stored)
        return from_values(name, stored, labels, Features.of(stored.shape[1:]), targets=targets, ids=ids)
    stored = channels_first(name, stored)
    if stored.dtype != torch.uint8:
        stored = in_unit_range(name, stored)
    known = _tensor(name, "labels", labels)
    maps = _map_reader(name, stored, known, size) if known.ndim == 3 else None
    classes, truths = classes_or_truths(name, labels) if maps is None else (_no_classes(len(stored)), None)
    if len(classes) != len(stored):
        raise BadInput(f"{name} has {len(stored)} images and {len(classes)} labels; each image needs one label.")

    def read(indices: Sequence[int]) -> Tensor:
        chosen = stored[torch.as_tensor(list(indices), dtype=torch.long)]
        x = chosen.to(torch.float32) / 255 if chosen.dtype == torch.uint8 else chosen.to(torch.float32)
        if size is not None and x.shape[-2:] != (size, size):
            x = interpolate(x, size=(size, size), mode="bilinear", antialias=True).clamp_(0, 1)
        return x.contiguous()

    aims = None if targets is None else integers(name, "targets", targets)
    return Dataset(name, _ids(ids, len(stored)), classes, read, aims, class_names, maps=maps, truths=truths)


def from_values(
    name: str, values: Any, labels: Any, features: Features, *, targets: Any = None, ids: Sequence[str] | None = None
) -> Dataset:
    """A data set of values (N, ...) in the units of their features, whatever their rank, and integer labels (N,), or
    labels (N, ...) of another kind."""
    own = _tensor(name, "values", values)
    if own.ndim < 2 or not len(own) or own.is_complex():
        raise BadInput(f"the values of {name} have shape {tuple(own.shape)}; they must be (N, ...), N at least 1.")
    if not bool(torch.isfinite(own).all()):
        raise BadInput(f"the values of {name} are not all finite; remove or repair those rows.")
    classes, truths = classes_or_truths(name, labels)
    if len(classes) != len(own):
        raise BadInput(f"{name} has {len(own)} rows and {len(classes)} labels; each row needs one label.")
    x = torch.from_numpy(features.scaled(own.detach().cpu().numpy()))
    return Dataset(
        name,
        _ids(ids, len(x)),
        classes,
        lambda indices: x[torch.as_tensor(list(indices), dtype=torch.long)],
        None if targets is None else integers(name, "targets", targets),
        features=features,
        truths=truths,
    )


def _map_reader(name: str, images: Tensor, maps: Tensor, size: int | None) -> Callable[[Sequence[int]], Tensor]:
    """A reader of label maps (N, H, W) that belong to ``images`` (N, C, H, W); negative classes are ignored."""
    if maps.is_floating_point() or maps.is_complex() or maps.dtype == torch.bool:
        raise BadInput(f"the label maps of {name} are {maps.dtype}; they must be integers, a class for every pixel.")
    if maps.shape != (len(images), *images.shape[2:]):
        high, wide = images.shape[2:]
        got = f"{len(images)} images of {high} x {wide} and label maps of shape {tuple(maps.shape)}"
        raise BadInput(f"{name} has {got}; each pixel of each image needs one class.")

    def read(indices: Sequence[int]) -> Tensor:
        chosen = maps[torch.as_tensor(list(indices), dtype=torch.long)].to(torch.int64)
        if size is not None and tuple(chosen.shape[1:]) != (size, size):
            chosen = interpolate(chosen[:, None].double(), size=(size, size), mode="nearest-exact")[:, 0].long()
        return torch.where(chosen < 0, IGNORED, chosen)

    return read


def channels_first(name: str, images: Tensor) -> Tensor:
    """Images (N, H, W), (N, C, H, W) or (N, H, W, C) as (N, C, H, W)."""
    if images.ndim == 3:
        images = images[:, None]
    if images.ndim != 4 or len(images) == 0:
        raise BadInput(
            f"the images of {name} have shape {tuple(images.shape)}; they must be (N, H, W), (N, C, H, W) or (N, H, "
            "W, C), N at least 1."
        )
    if images.shape[1] not in (1, 3) and images.shape[3] in (1, 3):
        images = images.permute(0, 3, 1, 2)
    return images


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
        raise BadInput(
            f"the {what} of {name} have shape {tuple(tensor.shape)} and type {tensor.dtype}; they must be integers of "
            "shape (N,)."
        )
    tensor = tensor.to(torch.int64).clone()
    if len(tensor) and int(tensor.min()) < 0:
        raise BadInput(f"the {what} of {name} go down to {int(tensor.min())}; classes are counted from 0.")
    return tensor


def _tensor(name: str, what: str, values: Any) -> Tensor:
    """Arrays, lists and the like as a tensor; text, objects and ragged lists are errors."""
    try:
        tensor = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise BadInput(f"the {what} of {name} are no array of numbers ({str(error).splitlines()[0]}).") from error
    if tensor.device.type == "meta":
        raise BadInput(f"the {what} of {name} are on the device meta, which holds shapes and no values.")
    return tensor


def _no_classes(count: int) -> Tensor:
    return torch.zeros(count, dtype=torch.int64)


def _ids(ids: Sequence[str] | None, count: int) -> tuple[str, ...]:
    return tuple(map(str, range(count))) if ids is None else tuple(ids)


# Whatever else people have.


def _from_pair(name: str, size: int | None, images: Any, labels: Any, targets: Any = None) -> Dataset:
    """(images, labels) or (images, labels, targets)."""
    if isinstance(images, (list, tuple)) and images and isinstance(images[0], (str, Path)):
        aims = None if targets is None else integers(name, "targets", targets)
        return from_files(name, images, integers(name, "labels", labels), aims, size)
    if size is not None:
        raise BadInput("size is for images that are files; resize the arrays you give.")
    return from_arrays(name, images if isinstance(images, Tensor) else _images(images), labels, targets=targets)


def _read_all(
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
        x, y = _parts(name, batch)
        y = torch.as_tensor(y)
        single = y.ndim in ranks
        values += [one(x)] if single else list(several(x))
        labels += [y.tolist()] if single else y.tolist()
        if last is not None and len(labels) >= last:
            break
    if not labels:
        raise BadInput(f"{_short(name)} gave no images.")
    return _stacked(name, values), labels


def _from_indexed(name: str, data: Any, last: int | None, size: int | None) -> Dataset:
    """A data set with ``len`` and ``data[i] -> (image, label)`` or a dict of both; images are read when they are
    needed."""
    count = len(data) if last is None else min(len(data), last)
    if not count:
        raise BadInput(f"{_short(name)} holds no images.")

    def read(indices: Sequence[int]) -> Tensor:
        images = [_image(_parts(name, data[int(index)])[0], size) for index in indices]
        return in_unit_range(name, _stacked(name, images).float()) if images else torch.empty(0)

    labels = _labels(name, data, count)
    first = next(labels)
    if _is_picture(first) or np.ndim(first) == 2:

        def maps(indices: Sequence[int]) -> Tensor:
            return torch.stack([map_of(_parts(name, data[int(index)])[1], size) for index in indices])

        return Dataset(name, _ids(None, count), _no_classes(count), read, maps=maps)
    listed = np.array([np.asarray(each) for each in (first, *labels)])
    whole = listed.ndim == 1 and bool((listed == np.floor(listed)).all())
    classes, truths = classes_or_truths(name, listed.astype(np.int64) if whole else listed)
    return Dataset(name, _ids(None, count), classes, read, None, _class_names(data), truths=truths)


def _labels(name: str, data: Any, count: int) -> Iterator[Any]:
    """The labels, or label maps, without reading the images where the data set keeps them apart, as those of
    torchvision and Hugging Face do."""
    features = getattr(data, "features", None)
    if isinstance(features, Mapping) and getattr(data, "format", {}).get("type") != "custom":
        return iter(data[_key(name, features, LABEL_KEYS, "label")][:count])
    kept = getattr(data, "targets", None)
    if isinstance(kept, (list, Tensor)) and len(kept) == len(data) and getattr(data, "target_transform", None) is None:
        return iter(kept[:count])
    return (_parts(name, data[index])[1] for index in range(count))


def _class_names(data: Any) -> tuple[str, ...] | None:
    features = getattr(data, "features", None)
    if isinstance(features, Mapping):
        found = next((getattr(features[key], "names", None) for key in LABEL_KEYS if key in features), None)
    else:
        found = getattr(data, "classes", None)
    names = isinstance(found, (list, tuple)) and found and all(isinstance(each, str) for each in found)
    return tuple(found) if names and found is not None else None


def _is_sample(value: object) -> bool:
    """Whether a value is an image with its label, and not an image alone."""
    return isinstance(value, Mapping) or (
        isinstance(value, tuple) and len(value) >= 2 and (_is_picture(value[1]) or np.ndim(value[1]) == 0)
    )


def _parts(name: str, sample: Any) -> tuple[Any, Any]:
    """Images and labels of a sample or batch: the first two of a tuple, or the entries of a dict."""
    if isinstance(sample, Mapping):
        return sample[_key(name, sample, IMAGE_KEYS, "image")], sample[_key(name, sample, LABEL_KEYS, "label")]
    if isinstance(sample, (tuple, list)) and len(sample) >= 2:
        return sample[0], sample[1]
    raise BadInput(
        f"{_short(name)} gave a {type(sample).__name__}; it must give (image, label), or a dict with image and label."
    )


def _key(name: str, entries: Mapping[str, Any], known: Sequence[str], what: str) -> str:
    found = next((key for key in known if key in entries), None)
    if found is None:
        columns, names = ", ".join(map(str, entries)), " or ".join(known[:3])
        raise BadInput(f"{_short(name)} has the columns {columns}; none is called {names} for the {what}.")
    return found


def _images(values: Any) -> Tensor:
    """Images (B, ...) of an array, or of a list of arrays, tensors, PIL images or numbers; bytes as floats in [0, 1],
    channels first."""
    if isinstance(values, (list, tuple)) and values and not isinstance(values[0], (int, float, list, tuple)):
        return _stacked("the list", [_image(each) for each in values])
    try:
        array = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError):
        raise BadInput(
            f"images are a tensor, a numpy array or a list of images, not a {type(values).__name__}."
        ) from None
    array = channels_first("the array", array) if array.ndim in (3, 4) and len(array) else array
    return array.float() / 255 if array.dtype == torch.uint8 else array


def _image(value: Any, size: int | None = None) -> Tensor:
    """One image as a float tensor (C, H, W), or whatever shape a tensor has: bytes and PIL images in [0, 1], channels
    first."""
    if _is_picture(value):
        return pixels(value, size)
    tensor = torch.as_tensor(value)
    if size is not None and tuple(tensor.shape[-2:]) != (size, size):
        raise BadInput(
            f"size={size}: only files and PIL images are resized; the data set's images have shape "
            f"{tuple(tensor.shape)}."
        )
    if tensor.ndim in (2, 3):
        tensor = channels_first("the data set", tensor[None])[0]
    return tensor.float() / 255 if tensor.dtype == torch.uint8 else tensor


def _is_picture(value: object) -> bool:
    """Whether a value is a PIL image."""
    return hasattr(value, "convert") and hasattr(value, "mode")


def _stacked(name: str, images: list[Tensor]) -> Tensor:
    shapes = sorted({tuple(image.shape) for image in images})
    if len(shapes) > 1:
        listed = ", ".join(map(str, shapes[:3]))
        raise BadInput(
            f"the images of {_short(name)} have different shapes, such as {listed}; bring them to one, e.g. with "
            "size=224."
        )
    return torch.stack(images)


def _short(name: str) -> str:
    return name.removeprefix("python:")
