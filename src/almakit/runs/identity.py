"""The identity of the model of a run, a transfer or a certificate. No torch here."""

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

    Runs, transfers and certificates belong to the same model if it is equal. The place of a file does not matter.

    Args:
        name: the model's URI, or the name of a model passed in Python.
        facts: the hashes ``FACTS``, as far as they are known: the meta table of a run, or the facts of a subject.
        spec: the settings of the run; ``mean`` and ``std`` are used.

    Returns:
        A sha256; None if the weights are not known, so that two models cannot be compared.
    """
    return None if facts.get("weights_sha256") is None else _digest(name, facts, spec)


def difference(run: RunFolder, subject: Subject) -> str:
    """A description of how ``subject``, opened with the settings of ``run``, differs from the run's model; empty if
    they agree. Hashes that an earlier version did not record are not compared."""
    facts = {key: value for key, value in subject.facts.items() if key in run.meta or key not in LATER}
    if _digest(subject.name, facts, run.spec) == _digest(run.spec.model, run.meta, run.spec):
        return ""
    same = subject.weights_sha256 == run.meta.get("weights_sha256")
    return f"the {'code, preprocessing or settings' if same else 'weights'} of the two differ"


def _digest(name: str, facts: Mapping[str, Any], spec: RunSpec) -> str:
    content = [[facts.get(key) for key in FACTS], _built(name), spec.mean, spec.std]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _built(name: str) -> str:
    """The part of a name that says how the model is built: a function of a .py file, or a zoo name without its weights
    file."""
    source, *output = name.partition(OUTPUT)
    function = re.match(r".+\.py:(\w+)(@.*)?\Z", source, re.DOTALL)
    if function:
        return "".join([function[1], *output])
    suffix = Path(source).suffix
    return "".join([suffix if suffix in (".pt2", ".onnx") else source.partition("@")[0], *output])
