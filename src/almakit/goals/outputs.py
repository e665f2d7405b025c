"""Reads a model's output: a tensor, an array, a record with ``logits``, a tuple or a dict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import BadModel


def logits_of(answer: Any) -> Any:
    """A model's output as a tensor: the output itself, its entry ``logits`` (as in transformers) or ``out`` (as in
    torchvision's segmentation models); also of a numpy array."""
    if isinstance(answer, (Tensor, np.ndarray)):
        return _tensor(answer)
    inner = answer.get("logits", answer.get("out")) if isinstance(answer, Mapping) else getattr(answer, "logits", None)
    return _tensor(inner) if isinstance(inner, (Tensor, np.ndarray)) else answer


def picked(answer: Any, output: str | int | None) -> Any:
    """The part of an answer that ``output`` names: a key, an attribute or a position in a tuple; None: the tensor or
    its logits."""
    if output is None:
        return logits_of(answer)
    if isinstance(output, int) and isinstance(answer, (tuple, list)) and -len(answer) <= output < len(answer):
        return _tensor(answer[output])
    if isinstance(output, str) and isinstance(answer, Mapping) and output in answer:
        return _tensor(answer[output])
    if isinstance(output, str) and hasattr(answer, output):
        return _tensor(getattr(answer, output))
    raise BadModel(f"the model's answer has no output {output!r}: it is {described(answer)}.")


def _tensor(part: Any) -> Any:
    return torch.as_tensor(part) if isinstance(part, np.ndarray) else part


def first_rows(answer: Any, count: int) -> Any:
    """The answer for the first ``count`` images of a batch, in any form."""
    if isinstance(answer, Mapping):
        return {name: first_rows(value, count) for name, value in answer.items()}
    answer = logits_of(answer)
    if isinstance(answer, Tensor):
        return answer[:count] if answer.ndim else answer
    return tuple(first_rows(value, count) for value in answer) if isinstance(answer, (tuple, list)) else answer


def described(answer: Any) -> str:
    """A description of an answer for messages: ``a tuple of (4, 10) and (4, 1)``."""
    if isinstance(answer, Tensor):
        return f"a tensor of shape {tuple(answer.shape)}"
    if isinstance(answer, Mapping):
        return "a dict with " + ", ".join(f"{name} {_shape(value)}" for name, value in answer.items())
    return (
        f"a tuple of {' and '.join(map(_shape, answer))}"
        if isinstance(answer, (tuple, list))
        else f"a {type(answer).__name__}"
    )


def _shape(value: Any) -> str:
    return str(tuple(value.shape)) if isinstance(value, Tensor) else f"a {type(value).__name__}"
