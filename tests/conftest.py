"""What every test shares: real data beside the project, one thread per process."""

from __future__ import annotations

import os
from pathlib import Path

os.environ.setdefault("ALMAKIT_DATA", str(Path(__file__).resolve().parents[2] / "shared" / "data"))
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

torch.set_num_threads(1)
