"""What users rely on: public names, flags, and the numbers of three reference runs.

``python tests/frozen/reference.py`` writes the stored files. Do that only in a commit that changes one of them on
purpose.
"""

from __future__ import annotations

import inspect
import json
import tempfile
from pathlib import Path
from typing import Any

import almakit
from almakit.cli.arguments import parser_of
from almakit.cli.main import VERBS

PLACE = Path(__file__).parent
NUMBERS = ("images", "success_rate", "robust_accuracy", "median_all", "median_attacked", "forwards", "backwards")
RUNS: dict[str, dict[str, Any]] = {
    "minimal": {
        "attacks": ["alma(distance=l2, steps=20)", "ddn(steps=20)", "fmn(distance=linf, steps=20)"],
        "epsilon": {"linf": [0.05, 0.1]},
    },
    "targeted": {"attacks": ["alma(distance=l1, steps=20)"], "targets": "next", "epsilon": {"l1": [1, 4]}},
    "eight-bits": {
        "attacks": ["fmn(distance=linf, steps=20)", "pgd(distance=linf, epsilon=0.1, steps=10)"],
        "bits": 8,
        "epsilon": {"linf": [0.05, 0.1]},
    },
}


def public_names() -> dict[str, Any]:
    """The names of ``almakit`` and the options of an attack's call."""
    call = [name for name in inspect.signature(almakit.Attack.__call__).parameters if name not in ("self", "unknown")]
    attacks = {
        name: sorted(inspect.signature(almakit.registry.get("attacks", name)).parameters)
        for name in almakit.attacks.names()
    }
    return {"almakit": sorted(almakit.__all__), "call": call, "attacks": attacks}


def flags() -> dict[str, list[str]]:
    """The flags and positional arguments of every verb."""
    parsers = {verb: parser_of(verb, add_help=False) for verb in VERBS}
    return {
        verb: sorted(option for action in parser._actions for option in action.option_strings or [action.dest])
        for verb, parser in parsers.items()
    }


def summaries(folder: Path) -> dict[str, Any]:
    """The numbers of the reference runs: 12 digits, a shipped network, attacks of 10 to 20 steps."""
    found = {}
    for name, settings in RUNS.items():
        run = almakit.evaluate("mnist/mlp-2x100", "mnist-demo", out=folder / name, limit=12, **settings)
        found[name] = {
            part["name"]: without_intervals({key: part[key] for key in NUMBERS if key in part})
            for part in run.summary["attacks"]
        }
    return found


def without_intervals(value: Any) -> Any:
    """``value`` without the ends of intervals."""
    if isinstance(value, dict):
        return {name: without_intervals(inner) for name, inner in value.items() if name not in ("low", "high")}
    return [without_intervals(inner) for inner in value] if isinstance(value, list) else value


def write(name: str, value: Any) -> None:
    (PLACE / f"{name}.json").write_text(json.dumps(value, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    write("public_names", public_names())
    write("flags", flags())
    with tempfile.TemporaryDirectory() as place:
        write("summaries", summaries(Path(place)))
