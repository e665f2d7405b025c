"""Models by URI."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .zoo import ZOO

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
    uri: str,
    *,
    trust: bool = False,
    device: str | torch.device = "cpu",
    dtype: torch.dtype | None = None,
    normalisation: Normalisation | None = None,
) -> Classifier:
    """A classifier from its URI: images in [0, 1] -> logits, in evaluation mode, frozen, on ``device``.

    A zoo name (perhaps with ``@<weights file>``), ``file.py:function`` (a function that returns a torch module or a
    function of images), a ``.pt2`` file of ``torch.export``, an ``.onnx`` file, or ``torchvision:``, ``timm:``, ``hf:``
    and ``robustbench:`` with a model's name. ``normalisation`` is (means, standard deviations) per channel for models
    that expect it and do not bring it; ``trust`` allows what would run the code of a file's author (full unpickling, a
    repository's own classes). Weights are otherwise read as safetensors or with ``weights_only=True``. ``?output=fit``
    behind a URI: logits (B, K, h, w) are resized to the images' height and width.
    """
    # torch comes in here and not with the module: `almakit ls` does without it.
    from .opening import from_uri

    source, fit, _ = uri.partition(FIT)
    model = from_uri(source, trust, normalisation)
    if fit:
        model.name, model.fit_output = uri, True
    model.by_name = normalisation is None and (source.partition("@")[0] in ZOO or is_foreign(source))
    model.to(device=device, dtype=dtype)
    return model


def is_foreign(uri: str) -> bool:
    """Whether a URI names a model of another library."""
    return uri.partition(":")[0] in FOREIGN


def opened(model: str | Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """The model itself, or the one of a URI."""
    return load(model) if isinstance(model, str) else model
