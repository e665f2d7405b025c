"""torchvision, timm, transformers and datasets themselves, beside the torch that is installed (``pytest -m
network``)."""

from __future__ import annotations

import os
import subprocess
import venv
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.network


def test_one_random_model_of_each_library(tmp_path: Path) -> None:
    """In an environment of its own over this one's packages; pip may add to them and must leave torch alone."""
    venv.create(tmp_path / "env", with_pip=True, symlinks=True)
    python, (site,) = tmp_path / "env" / "bin" / "python", (tmp_path / "env").glob("lib/python*/site-packages")
    (site / "shared.pth").write_text(str(Path(torch.__file__).parents[1]) + "\n")
    install = [python, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt"]
    subprocess.run([*install, "--no-deps", "timm", "torchvision"], check=True, capture_output=True)
    subprocess.run([*install, "transformers", "datasets", "huggingface_hub"], check=True, capture_output=True)
    env = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    script = Path(__file__).with_name("real_zoo_script.py")
    done = subprocess.run([python, script], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0 and "all done" in done.stdout, done.stdout + done.stderr[-3000:]
    told = subprocess.run(
        [python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == torch.__version__
