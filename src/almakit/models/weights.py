"""Weights from files: safetensors, or torch checkpoints read with ``weights_only=True``; full unpickling only with
``trust``."""

from __future__ import annotations

import os
import pickle
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from ..data.hub import state_dict_of
from ..errors import BadModel, Unavailable

PREFIXES = ("", "module.", "model.", "module.model.", "net.", "network.")
"""Prefixes that training scripts add to a network's keys."""

HARMLESS = ("num_batches_tracked", "sub_block1.", "attacker.", "normalizer.", "mean", "std", "mu", "sigma")
"""Parts of keys a checkpoint may hold that the architecture lacks: counters, unused branches, a normalisation that
``Classifier`` applies."""


def read(path: Path, *, trust: bool = False) -> dict[str, Tensor]:
    """Read a weights file, ``.safetensors`` or a torch checkpoint, as tensors by key.

    ``trust`` allows a full unpickling. Without it tar checkpoints of 2017 are refused as well: torch before 2.6
    unpickles those without restriction.
    """
    if not path.is_file():
        raise Unavailable(f"there is no weights file {path}.")
    if path.suffix == ".safetensors":
        try:
            return load_file(path)
        except SafetensorError as error:
            raise BadModel(f"{path} is not a whole safetensors file ({error}).") from error
    if not trust and tarfile.is_tarfile(path):
        raise BadModel(f"{path} is a tar file of the kind torch wrote in 2017; load it with an old torch and save it.")
    try:
        content = torch.load(path, map_location="cpu", weights_only=not trust)
    except Exception as error:  # an invalid checkpoint raises many kinds of errors
        if isinstance(error, pickle.UnpicklingError) and not trust:
            raise BadModel(
                f"{path} holds more than tensors, and unpickling it would run code of its author; convert it to "
                "safetensors, or, if you trust that author, say so with trust=True (--trust)."
            ) from error
        raise BadModel(
            f"{path} cannot be read as a torch checkpoint ({type(error).__name__}: {str(error)[:300]})."
        ) from error
    return state_dict_of(content)


def fit(network: nn.Module, state: Mapping[str, Tensor], name: str) -> None:
    """Load the weights into the network. Prefixes of keys are removed; a missing or additional weight is an error."""
    own = network.state_dict()
    needed = {key for key in own if not key.endswith("num_batches_tracked")}
    best = max(
        PREFIXES, key=lambda prefix: len(needed & {key.removeprefix(prefix) for key in state if key.startswith(prefix)})
    )
    fitting = {key.removeprefix(best): value for key, value in state.items() if key.startswith(best)}
    missing = sorted(needed - set(fitting))
    surplus = sorted(key for key in set(fitting) - set(own) if not any(part in key for part in HARMLESS))
    wrong = [key for key in needed & set(fitting) if fitting[key].shape != own[key].shape]
    for faults, what in ((missing, "lack"), (surplus, "have in addition"), (wrong, "have in another shape")):
        if faults:
            raise BadModel(
                f"the weights for {name} are for another architecture: they {what} {len(faults)} tensors, such as "
                f"{faults[0]}."
            )
    network.load_state_dict({key: fitting[key] for key in needed}, strict=False)


@contextmanager
def no_unpickling(trust: bool) -> Iterator[None]:
    """Within the block ``torch.load`` reads only tensors, also where another library calls it; ``trust`` lifts that."""
    flag = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    before = os.environ.get(flag)
    if not trust:
        os.environ[flag] = "1"
    try:
        yield
    except pickle.UnpicklingError as error:
        raise BadModel(
            "the weights hold more than tensors, and unpickling them would run code of their author; if you trust that "
            "author, say so with trust=True (--trust)."
        ) from error
    finally:
        if not trust:
            if before is None:
                del os.environ[flag]
            else:
                os.environ[flag] = before
