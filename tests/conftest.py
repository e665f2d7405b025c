"""What every test shares: real data beside the project, one thread per process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

os.environ.setdefault("ALMAKIT_DATA", str(Path(__file__).resolve().parents[2] / "shared" / "data"))
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

torch.set_num_threads(1)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Here and not beside the browser tests: with workers, the process that talks to the user loads this file only."""
    from browser.at_hand import say_what_was_left_out

    say_what_was_left_out(terminalreporter)
