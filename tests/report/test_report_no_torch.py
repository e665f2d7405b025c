"""Reports are made where there is no torch: a subprocess makes one with every module of the package and torch is never
imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from report.made_runs import make_run

CODE = """
import pkgutil, sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "torchvision"):
            raise ImportError("no torch in a report")
sys.meta_path.insert(0, Refuse())
import almakit.report
for module in pkgutil.iter_modules(almakit.report.__path__):
    __import__("almakit.report." + module.name)
from almakit.cli.main import main
assert main(["report", sys.argv[1], "--out", sys.argv[2]]) == 0
assert main(["compare", sys.argv[1], sys.argv[1], "--show", "0"]) == 0
assert "torch" not in sys.modules
"""


def test_a_report_is_made_without_torch(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 20)
    done = subprocess.run([sys.executable, "-c", CODE, str(run), str(tmp_path / "out")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "curves.pdf",
        "curves.png",
        "curves.svg",
        "gallery.png",
        "index.html",
        "summary.json",
        "tables.csv",
        "tables.md",
        "tables.tex",
    ]
