"""``hf-dataset:<name>``: a data set of Hugging Face's library, where that is installed."""

from __future__ import annotations

from dataclasses import replace

from ..errors import Unavailable, optional
from .dataset import Dataset
from .given import dataset_of

SPLITS = {"test": ("test", "validation", "valid", "val"), "train": ("train",)}


def hf_dataset(rest: str, split: str, size: int | None, last: int | None) -> Dataset:
    """``<name>``, its test (or validation) or training split; ``<name>@<split>`` takes a split by its own name."""
    datasets = optional("datasets", "hf-dataset: needs Hugging Face's library of data sets: pip install datasets.")
    name, _, wanted = rest.partition("@")
    try:
        found = datasets.load_dataset(name)
    except Exception as error:  # its downloads fail in many ways
        raise Unavailable(
            f"the data set {name} could not be loaded ({type(error).__name__}: {str(error).strip()[:300]})."
        ) from error
    choice = next((one for one in ((wanted,) if wanted else SPLITS[split]) if one in found), None)
    if choice is None:
        raise Unavailable(f"{name} has the splits {', '.join(found)}; name one, hf-dataset:{name}@{next(iter(found))}.")
    return replace(dataset_of(found[choice], last, size), name=f"hf-dataset:{rest}")
