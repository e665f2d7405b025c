"""Image classifiers by URI: images in [0, 1] in, logits out, normalisation inside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..data.user_file import is_user_file
from .zoo import ZOO, Entry

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from .classifier import Classifier

__all__ = ["ZOO", "Classifier", "Entry", "forms", "load", "names"]

LIBRARIES = ("torchvision", "timm", "hf", "robustbench")
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
OUTPUT = "?output="
"""Behind a URI: ``fit``, or the name of an output of an ONNX graph."""

Normalisation = tuple[Sequence[float], Sequence[float]]


def names() -> list[str]:
    """The networks known by name; ``zoo.ZOO[name].at_hand`` says whether almakit can also get the weights."""
    return list(ZOO)


def forms() -> list[str]:
    """The other forms of URI that ``load`` understands."""
    return list(FORMS)


def load(
    uri: str,
    *,
    trust: bool = False,
    device: str | torch.device = "cpu",
    dtype: torch.dtype | None = None,
    normalisation: Normalisation | None = None,
) -> Classifier:
    """Load a classifier: images in [0, 1] -> logits, in evaluation mode, frozen, on ``device``.

    Args:
        uri: a zoo name (also with ``@<weights file>``); ``file.py:function``, a function that returns a torch module or
            a function of images; an ``.onnx`` file, where ``?output=NAME`` behind it picks one of several outputs; a
            ``.pt2`` file of ``torch.export``; or ``torchvision:``, ``timm:``, ``hf:`` and ``robustbench:`` with a
            model's name. ``?output=fit`` at the end resizes logits (B, K, h, w) to the images' height and width.
        trust: allow what can run the code of a file's author: full unpickling, ``.pt2`` files, a repository's own
            classes. Otherwise weights are read as safetensors or with ``weights_only=True``.
        device: where the weights go.
        dtype: the floating type of the weights; None leaves it.
        normalisation: (means, standard deviations) per channel, for models that need it and do not contain it.

    Examples:
        >>> import almakit
        >>> model = almakit.models.load("mnist/smallcnn-tiny")
        >>> model.classes
        10

    See also:
        Any ``torch.nn.Module`` from images in [0, 1] to logits is a model too.
    """
    # torch is imported here, because `almakit ls` does not need it.
    from .open import from_uri

    source, _, output = uri.partition(OUTPUT)
    model = from_uri(source, trust, normalisation, "" if output == "fit" else output)
    model.name, model.fit_output = (uri if output else model.name), model.fit_output or output == "fit"
    model.by_name = normalisation is None and (source.partition("@")[0] in ZOO or is_foreign(source))
    model.to(device=device, dtype=dtype)
    return model


def is_foreign(uri: str) -> bool:
    """Whether a URI names a model of another library."""
    return uri.partition(":")[0] in LIBRARIES


def is_code(uri: str) -> bool:
    """Whether opening a URI runs a Python file, also if weights or an output follow its name."""
    source = uri.partition(OUTPUT)[0]
    return is_user_file(source) or is_user_file(source.rpartition("@")[0])


def opened(model: str | Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """The model itself, or the one of a URI."""
    return load(model) if isinstance(model, str) else model


def __getattr__(name: str) -> Any:
    if name == "Classifier":  # needs torch, which is imported on first use
        return import_module(".classifier", __name__).Classifier
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
