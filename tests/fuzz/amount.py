"""How many examples the fuzzers try: by default a third of the basic set, the same every time; ALMAKIT_FUZZ=20 means
twenty times the basic set, other examples each time."""

from __future__ import annotations

import atexit
import json
import os
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, settings

TIMES = int(os.environ.get("ALMAKIT_FUZZ", "0"))
COUNTS: Counter[str] = Counter()


def amount(basic: int) -> int:
    """How many examples of a basic set of so many."""
    return basic * TIMES if TIMES else max(3, basic // 3)


def examples(basic: int) -> settings:
    """Settings for ``amount(basic)`` examples."""
    return settings(
        max_examples=amount(basic),
        derandomize=not TIMES,
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
