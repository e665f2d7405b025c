"""Data sets that lie in one array: the built-in ones, ``npz:`` files, and what a user's function returns."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from ..errors import BadInput, Unavailable
from . import hub
from .dataset import Dataset
from .features import Features
from .masks import from_maps

DIGITS = tuple("0123456789")
CLOTHES = ("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
CIFAR_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
FEW_CIFAR = 1000
KEYS, UNITS = ("x", "images", "y", "labels", "targets", "ids"), ("lo", "hi", "step", "fixed", "names")


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
    """A data set of images uint8 or float in [0, 1], shaped (N, H, W), (N, C, H, W) or (N, H, W, C), and integer labels
    (N,), label maps (N, H, W) or labels (N, ...) of another kind;
    vectors (N, n) and videos (N, ...) of rank 5 and more are left in their shape."""
    stored = _tensor(name, "images", images)
    if stored.ndim == 2 or stored.ndim > 4:
        stored = stored / 255 if stored.dtype == torch.uint8 else in_unit_range(name, stored)
        return from_values(name, stored, labels, Features.of(stored.shape[1:]), targets=targets, ids=ids)
    stored = channels_first(name, stored)
    if stored.dtype != torch.uint8:
        stored = in_unit_range(name, stored)
    given = _tensor(name, "labels", labels)
    maps = from_maps(name, len(stored), given, (stored.shape[2], stored.shape[3]), size) if given.ndim == 3 else None
    wanted, truths = torch.zeros(len(stored), dtype=torch.int64), None
    if maps is None:
        wanted, truths = classes_or_truths(name, labels)
    if len(wanted) != len(stored):
        raise BadInput(f"{name} has {len(stored)} images and {len(wanted)} labels; each image needs one label.")

    def read(indices: Sequence[int]) -> Tensor:
        chosen = stored[torch.as_tensor(list(indices), dtype=torch.long)]
        x = chosen.to(torch.float32) / 255 if chosen.dtype == torch.uint8 else chosen.to(torch.float32)
        if size is not None and x.shape[-2:] != (size, size):
            x = interpolate(x, size=(size, size), mode="bilinear", antialias=True).clamp_(0, 1)
        return x.contiguous()

    aims = None if targets is None else integers(name, "targets", targets)
    return Dataset(
        name,
        tuple(ids) if ids is not None else tuple(map(str, range(len(stored)))),
        wanted,
        read,
        aims,
        class_names,
        maps=maps,
        truths=truths,
    )


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
    wanted, truths = classes_or_truths(name, labels)
    if len(wanted) != len(own):
        raise BadInput(f"{name} has {len(own)} rows and {len(wanted)} labels; each row needs one label.")
    x = torch.from_numpy(features.scaled(own.detach().cpu().numpy()))
    return Dataset(
        name,
        tuple(ids) if ids is not None else tuple(map(str, range(len(x)))),
        wanted,
        lambda indices: x[torch.as_tensor(list(indices), dtype=torch.long)],
        None if targets is None else integers(name, "targets", targets),
        features=features,
        truths=truths,
    )


def digits(name: str, split: str, size: int | None) -> Dataset:
    """MNIST or Fashion-MNIST: 10 000 test or 60 000 training images, 1 x 28 x 28."""
    part = {"test": "t10k", "train": "train"}[split]
    images = _idx(hub.path(f"{name}/{part}-images-idx3-ubyte.gz"))
    labels = _idx(hub.path(f"{name}/{part}-labels-idx1-ubyte.gz"))
    return from_arrays(name, images, labels, class_names=DIGITS if name == "mnist" else CLOTHES, size=size)


def demo(size: int | None) -> Dataset:
    """The 256 MNIST test digits inside the package: no file and no network needed."""
    with (
        (files("almakit.data") / "demo" / "mnist-demo.npz").open("rb") as opened,
        np.load(opened, allow_pickle=False) as arrays,
    ):
        ids = [str(index) for index in arrays["index"]]
        return from_arrays("mnist-demo", arrays["x"], arrays["y"], ids=ids, class_names=DIGITS, size=size)


def cifar10(split: str, size: int | None, last: int | None) -> Dataset:
    """CIFAR-10: 10 000 test or 50 000 training images, 3 x 32 x 32.

    Where no image past the first 1000 (``last``) is asked for and only the small file with those is at hand, that file
    will do.
    """
    few = "cifar10/cifar10_test_first1000.npz"
    if (
        split == "test"
        and last is not None
        and last <= FEW_CIFAR
        and hub.local("cifar10/test_batch.bin") is None
        and hub.local(few)
    ):
        with np.load(hub.path(few), allow_pickle=False) as arrays:
            return from_arrays("cifar10", arrays["x"], arrays["y"], class_names=CIFAR_CLASSES, size=size)
    batches = ["test_batch"] if split == "test" else [f"data_batch_{number}" for number in range(1, 6)]
    try:
        rows = np.concatenate(
            [np.fromfile(hub.path(f"cifar10/{batch}.bin"), dtype=np.uint8) for batch in batches]
        ).reshape(-1, 3073)
    except Unavailable as error:
        if split == "test" and hub.local(few):
            raise Unavailable(
                f"{error}\nThe first 1000 test images are at hand: ask for limit={FEW_CIFAR} or less."
            ) from error
        raise
    return from_arrays("cifar10", rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0], class_names=CIFAR_CLASSES, size=size)


def npz(path: str, size: int | None) -> Dataset:
    """A numpy archive with ``x`` (or ``images``) and ``y`` (or ``labels``: a class for each image or for each pixel),
    and perhaps ``targets`` and ``ids``. With ``lo`` and ``hi`` (and ``step``, ``fixed``, ``names``) x holds values of
    any rank, (N, ...), in those units."""
    name = f"npz:{path}"
    try:
        with np.load(Path(path).expanduser(), allow_pickle=False) as arrays:
            if not hasattr(arrays, "files"):
                raise BadInput(
                    f"{path} holds one array; an npz data set holds x and y (numpy.savez('{path}', x=images, "
                    "y=labels))."
                )
            held = {key: arrays[key] for key in arrays.files if key in (*KEYS, *UNITS)}
            for key, value in held.items():
                if not isinstance(value, np.ndarray) or (
                    value.dtype.kind not in "biuf" and key not in ("ids", "names")
                ):
                    raise BadInput(
                        f"{path} holds {key} that is no array of numbers; save it with numpy.savez('{path}', "
                        "x=images, y=labels)."
                    )
    except FileNotFoundError as error:
        raise Unavailable(f"there is no file {path}; give the path of an npz archive with x and y.") from error
    except BadInput:
        raise
    except Exception as error:  # a file that is no archive, or a damaged one, fails in many ways
        raise BadInput(f"{path} cannot be read as an npz archive of plain arrays ({error}).") from error
    images, labels = held.get("x", held.get("images")), held.get("y", held.get("labels"))
    if images is None or labels is None:
        raise BadInput(
            f"{path} holds {', '.join(held) or 'none of them'}; it must hold x (or images) and y (or labels)."
        )
    ids = [str(value) for value in held["ids"]] if "ids" in held else None
    units: dict[str, Any] = {key: held[key] for key in UNITS if key in held}
    if units:
        units["names"] = [str(value) for value in units["names"].flat] if "names" in units else None
        features = Features.of(np.shape(images)[1:], **units)
        return from_values(name, images, labels, features, targets=held.get("targets"), ids=ids)
    return from_arrays(name, images, labels, targets=held.get("targets"), ids=ids, size=size)


def _idx(path: Path) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """An idx file of unsigned bytes: two zero bytes, type 8, the number of dimensions, the dimensions as big-endian
    int32, the values."""
    content = gzip.decompress(path.read_bytes())
    if content[:3] != b"\0\0\x08":
        raise BadInput(f"{path} is not an idx file of bytes.")
    shape = np.frombuffer(content, dtype=">i4", count=content[3], offset=4)
    values: np.ndarray[Any, np.dtype[np.uint8]] = (
        np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * content[3]).reshape(shape).copy()
    )
    return values


def _tensor(name: str, what: str, values: Any) -> Tensor:
    """Arrays, lists and the like as a tensor; text, objects and ragged lists are none."""
    try:
        tensor = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise BadInput(f"the {what} of {name} are no array of numbers ({str(error).splitlines()[0]}).") from error
    if tensor.device.type == "meta":
        raise BadInput(f"the {what} of {name} are on the device meta, which holds shapes and no values.")
    return tensor


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
    given = _tensor(name, "labels", labels)
    if given.ndim == 1 and not (given.is_floating_point() or given.is_complex() or given.dtype == torch.bool):
        return integers(name, "labels", given), None
    if not given.ndim or given.is_complex() or not bool(torch.isfinite(given).all()):
        raise BadInput(f"the labels of {name} have shape {tuple(given.shape)}; each image needs finite ones.")
    return torch.zeros(len(given), dtype=torch.int64), given.detach().cpu().clone()


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
