"""Which model a run, a transfer or a certificate is about. No torch here."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..models import OUTPUT
from .spec import RunSpec

if TYPE_CHECKING:
    from .folder import RunFolder
    from .model import Subject

LATER = ("imports_sha256", "settings_sha256")
FACTS = ("weights_sha256", "code_sha256", *LATER)


def model_sha256(name: str, facts: Mapping[str, Any], spec: RunSpec) -> str | None:
    """The identity of a model: its weights, its code, its preprocessing and its settings.

    Runs, transfers and certificates are about the same model where this is equal. Where a file lies has no part in it.

    Args:
        name: the model's URI, or the name of one given from Python.
        facts: the hashes ``FACTS``, as far as they are known: the meta table of a run, or the facts of a subject.
        spec: the settings it was opened with, of which ``mean`` and ``std`` count.

    Returns:
        A sha256; None where the weights are not known, so that nothing says whether two models are the same.
    """
    return None if facts.get("weights_sha256") is None else _digest(name, facts, spec)


def difference(run: RunFolder, subject: Subject) -> str:
    """How ``subject``, opened with the settings of ``run``, differs from the run's own model, in words; empty where it
    does not. A hash that an earlier version did not record is not compared."""
    facts = {key: value for key, value in subject.facts.items() if key in run.meta or key not in LATER}
    if _digest(subject.name, facts, run.spec) == _digest(run.spec.model, run.meta, run.spec):
        return ""
    same = subject.weights_sha256 == run.meta.get("weights_sha256")
    return f"the {'code, preprocessing or settings' if same else 'weights'} of the two differ"


def _digest(name: str, facts: Mapping[str, Any], spec: RunSpec) -> str:
    content = [[facts.get(key) for key in FACTS], _built(name), spec.mean, spec.std]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _built(name: str) -> str:
    """How a name says that the model is built: a function of a .py file, a zoo name without its file of weights."""
    source, *output = name.partition(OUTPUT)
    function = re.match(r".+\.py:(\w+)(@.*)?\Z", source, re.DOTALL)
    if function:
        return "".join([function[1], *output])
    suffix = Path(source).suffix
    return "".join([suffix if suffix in (".pt2", ".onnx") else source.partition("@")[0], *output])
