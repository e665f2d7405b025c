"""`almakit certify` runs no code because a folder names it."""

from __future__ import annotations

from pathlib import Path

import pytest

import almakit
from almakit.cli.main import USAGE, main

CODE = (
    "from almakit import models\nfrom pathlib import Path\n\n\ndef build():\n    Path({marker!r}).touch()\n    "
    "return models.load('mnist/smallcnn-tiny')\n"
)


def test_certify_runs_no_model_that_a_folder_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    marker, code = tmp_path / "ran", tmp_path / "own.py"
    code.write_text(CODE.format(marker=str(marker)))
    almakit.evaluate(f"{code}:build", "mnist-demo", attacks=["ddn(steps=3)"], out=tmp_path / "run", limit=2)
    marker.unlink()
    assert main(["certify", str(tmp_path / "run"), "--method", "ibp", "--quiet"]) == USAGE
    assert "certify runs no code because a folder names it" in capsys.readouterr().err and not marker.exists()
    assert (
        main(["certify", str(tmp_path / "run"), "--method", "ibp", "--quiet", "--model", f"{code}:build"]) == 0
        and marker.exists()
    )
