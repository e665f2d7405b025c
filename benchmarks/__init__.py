"""What the documents' numbers come from: ``python -m benchmarks`` lists the benchmarks."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS, DOCS = ROOT / "benchmarks" / "results", ROOT / "docs"
# Faults, made runs and problems with a known optimum are those of the tests.
if str(ROOT / "tests") not in sys.path:
    sys.path.append(str(ROOT / "tests"))


def surroundings() -> dict[str, str]:
    """The environment of a child process: it finds this package and almakit wherever it is started."""
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src"), *_given()])}


def _given() -> list[str]:
    return [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
