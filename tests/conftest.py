"""What every test shares: real data beside the project, one thread per process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

os.environ.setdefault("ALMAKIT_DATA", str(Path(__file__).resolve().parents[2] / "shared" / "data"))
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch

torch.set_num_threads(1)

DATA_LEFT_OUT = "TESTS ON REAL DATA LEFT OUT"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leaves tests marked ``shared_data`` out where the folder of real data and networks is not there, as on a bare
    machine."""
    if Path(os.environ["ALMAKIT_DATA"].split(os.pathsep)[0]).is_dir():
        return
    for item in items:
        if item.get_closest_marker("shared_data"):
            item.add_marker(pytest.mark.skip(reason=DATA_LEFT_OUT))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Here and not beside the browser tests: with workers, the process that talks to the user loads this file only."""
    from browser.at_hand import say_what_was_left_out

    say_what_was_left_out(terminalreporter)
    skipped = [report for report in terminalreporter.stats.get("skipped", []) if DATA_LEFT_OUT in str(report.longrepr)]
    if skipped:
        terminalreporter.section(f"{len(skipped)} {DATA_LEFT_OUT}", sep="!", red=True, bold=True)
        terminalreporter.line(
            f"ALMAKIT_DATA ({os.environ['ALMAKIT_DATA']}) is no folder; these tests need the data sets and weights in "
            "it.",
            red=True,
        )
