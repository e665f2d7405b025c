"""No verb runs code because a run folder names it."""

from __future__ import annotations

from pathlib import Path

import pytest

import almakit
from almakit.cli.arguments import USAGE
from almakit.cli.main import main
from almakit.models import is_code

CODE = (
    "from almakit import models\nfrom pathlib import Path\n\n\ndef build():\n    Path({marker!r}).touch()\n    "
    "return models.load('mnist/mlp-2x100')\n"
)


def test_no_verb_runs_a_model_that_a_folder_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    marker, code, out = tmp_path / "ran", tmp_path / "own.py", str(tmp_path / "run")
    code.write_text(CODE.format(marker=str(marker)))
    name = f"{code}:build?output=fit"
    almakit.evaluate(name, "mnist-demo", attacks=["ddn(steps=3)"], out=out, limit=2)
    marker.unlink()
    for command in (["verify", out], ["certify", out, "--method", "ibp", "--quiet"]):
        assert main(command) == USAGE
        assert "no code runs because a folder names it" in capsys.readouterr().err and not marker.exists()
        assert main([*command, "--model", name]) == 0 and marker.exists()
        marker.unlink()


@pytest.mark.parametrize(
    ("uri", "code"),
    [
        ("m.py:build", True),
        ("m.py:build@w.safetensors", True),
        ("m.py:build@w.safetensors?output=fit", True),
        ("mnist/smallcnn@w.pt", False),
        ("net.onnx?output=logits", False),
    ],
)
def test_which_names_run_code(uri: str, code: bool) -> None:
    assert is_code(uri) is code
