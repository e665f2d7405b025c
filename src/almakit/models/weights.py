"""Weights from files: safetensors, or torch checkpoints read with ``weights_only=True``; nothing is unpickled without
the user's word."""

from __future__ import annotations

import os
import pickle
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from ..data.convert import state_dict_of
from ..errors import BadModel, Unavailable

PREFIXES = ("", "module.", "model.", "module.model.", "net.", "network.")
"""What training scripts leave in front of a network's keys."""

HARMLESS = ("num_batches_tracked", "sub_block1.", "attacker.", "normalizer.", "mean", "std", "mu", "sigma")
"""Parts of keys a checkpoint may hold that the architecture lacks: counters, unused branches, a normalisation we do
ourselves."""


def read(path: Path, *, trust: bool = False) -> dict[str, Tensor]:
    """The tensors of a weights file by key: ``.safetensors``, or a torch checkpoint; ``trust`` allows a full
    unpickling."""
    if not path.is_file():
        raise Unavailable(f"there is no weights file {path}.")
    if path.suffix == ".safetensors":
        try:
            return load_file(path)
        except SafetensorError as error:
            raise BadModel(f"{path} is not a whole safetensors file ({error}).") from error
    try:
        content = checkpoint(path, trust)
    except pickle.UnpicklingError as error:
        if trust:
            raise BadModel(f"{path} cannot be read as a torch checkpoint ({error}).") from error
        raise BadModel(
            f"{path} holds more than tensors, and unpickling it would run code of its author; convert it to "
            "safetensors, or, if you trust that author, say so with trust=True (--trust)."
        ) from error
    except BadModel:
        raise
    except Exception as error:  # a file that is no checkpoint fails in many ways
        raise BadModel(
            f"{path} cannot be read as a torch checkpoint ({type(error).__name__}: {str(error)[:300]})."
        ) from error
    return state_dict_of(content)


def checkpoint(source: Path | BytesIO, trust: bool = False) -> Any:
    """A torch checkpoint, without ``trust`` read by torch's restricted unpickler, which knows tensors and containers of
    them.

    The tar files of 2017 are refused: the readers of torch before 2.6 unpickle those without restriction.
    """
    if not trust and tarfile.is_tarfile(source):
        raise BadModel(
            "the checkpoint is a tar file of the kind torch wrote in 2017; load it with an old torch and save it again."
        )
    if isinstance(source, BytesIO):
        source.seek(0)
    return torch.load(source, map_location="cpu", weights_only=not trust)


def fit(network: nn.Module, state: Mapping[str, Tensor], name: str) -> None:
    """Puts the weights into the network, whatever prefix its keys carry; a weight too few or too many is an error."""
    own = network.state_dict()
    needed = {key for key in own if not key.endswith("num_batches_tracked")}
    best = max(
        PREFIXES, key=lambda prefix: len(needed & {key.removeprefix(prefix) for key in state if key.startswith(prefix)})
    )
    fitting = {key.removeprefix(best): value for key, value in state.items() if key.startswith(best)}
    missing = sorted(needed - set(fitting))
    if missing:
        share = f"{len(missing)} of {len(needed)} tensors, such as {missing[0]}"
        raise BadModel(f"the weights for {name} lack {share}; they are for another architecture.")
    strange = sorted(key for key in set(fitting) - set(own) if not any(part in key for part in HARMLESS))
    if strange:
        raise BadModel(
            f"the weights for {name} hold {len(strange)} tensors the architecture lacks, such as {strange[0]}."
        )
    wrong = [key for key in needed if fitting[key].shape != own[key].shape]
    if wrong:
        raise BadModel(
            f"the weights for {name} have {wrong[0]} of shape {tuple(fitting[wrong[0]].shape)}; the architecture has "
            f"{tuple(own[wrong[0]].shape)}."
        )
    network.load_state_dict({key: fitting[key] for key in needed}, strict=False)


@contextmanager
def no_unpickling(trust: bool) -> Iterator[None]:
    """While it lasts, ``torch.load`` reads tensors and nothing else, also where another library calls it; ``trust``
    lifts that."""
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


def pair(values: Any) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """A normalisation as (means, standard deviations), or None where nothing would change."""
    if values is None:
        return None
    mean, std = (tuple(float(value) for value in part) for part in values)
    return None if all(value == 0 for value in mean) and all(value == 1 for value in std) else (mean, std)
