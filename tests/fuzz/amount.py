"""How long the fuzzers look: a moment by default, always at the same examples; ALMAKIT_FUZZ=20 means twenty times as
many, others each time."""

from __future__ import annotations

import atexit
import json
import os
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, settings

TIMES = max(1, int(os.environ.get("ALMAKIT_FUZZ", "1")))
COUNTS: Counter[str] = Counter()


def examples(count: int) -> settings:
    """Settings for so many examples, times ALMAKIT_FUZZ."""
    return settings(
        max_examples=count * TIMES,
        derandomize=TIMES == 1,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )


def outcome(what: str, kind: str) -> None:
    """Counts an example: ``what`` was tried and ended with a ``result`` or a ``sentence``."""
    COUNTS[f"{what}: {kind}"] += 1


@atexit.register
def _write() -> None:
    """For benchmarks/faults/fuzz.py, which names a file."""
    if os.environ.get("ALMAKIT_FUZZ_COUNTS") and COUNTS:
        Path(os.environ["ALMAKIT_FUZZ_COUNTS"]).write_text(json.dumps(COUNTS))
