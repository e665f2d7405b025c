"""The guard against slowness, and the figures of docs/speed.md: they are those of the committed JSON file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def guard(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import guard

    return guard


def test_the_guard_allows_fifteen_percent(guard: Any) -> None:
    assert guard.judge("a", 0.5, 0.57)[0] and guard.judge("a", 0.5, 0.2)[0]
    good, line = guard.judge("a", 0.5, 0.58)
    assert not good and "SLOW" in line and "+16.0 %" in line


def test_the_guard_fails_when_a_row_is_slow(guard: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    committed = tmp_path / "speed.json"
    committed.write_text(json.dumps({"ssim-32/1": {"ratio": 0.2}, "imports/1": {"ratio": 0.1}}))
    monkeypatch.setattr(guard, "measured", lambda name, threads, repeats: {"ratio": {"ssim-32": 0.3, "imports": 0.1}[name]})
    monkeypatch.setattr(sys, "argv", ["guard.py", "--rows", "ssim-32,imports", "--committed", str(committed)])
    assert guard.main() == 1
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["SLOW", "ok"]
    monkeypatch.setattr(sys, "argv", ["guard.py", "--rows", "imports", "--committed", str(committed)])
    assert guard.main() == 0
    monkeypatch.setattr(sys, "argv", ["guard.py", "--rows", "lpips-32", "--committed", str(committed)])
    with pytest.raises(SystemExit):
        guard.main()


def test_the_page_shows_the_committed_figures(guard: Any) -> None:
    import speed

    cells = json.loads(speed.RESULTS.read_text())
    assert set(cells) <= {f"{name}/{threads}" for name, row in speed.ROWS.items() for threads in row.threads}
    page = (ROOT / "docs" / "speed.md").read_text()
    assert speed.table(cells) in page, "run: python benchmarks/speed.py --table --docs docs/speed.md"
    assert set(guard.QUICK) <= {key.split("/")[0] for key in cells}, "the guard has something to compare with"


def test_help_is_quick_because_it_imports_no_torch() -> None:
    script = "import sys; from almakit.cli.main import main; main(['--help']); print('torch' in sys.modules, 'numpy' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    assert shown.splitlines()[-1] == "False False"
