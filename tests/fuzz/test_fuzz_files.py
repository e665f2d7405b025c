"""Files that try to run code, and hundreds of mutated ones, opened in a process that is watched: none executes, each
ends in a result or a sentence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import security
from fuzz.amount import TIMES, amount, outcome
from security.mutated_files import jobs, seeds

WATCHED = Path(security.__path__[0]) / "watched.py"


def watched(
    folder: Path, todo: list[tuple[str, str, str]], warm: list[tuple[str, str]]
) -> list[tuple[str, str, str, list[str]]]:
    """What became of each: (name, outcome, what was said, what was noticed)."""
    plan = folder / "jobs.json"
    plan.write_text(json.dumps({"warm": warm, "jobs": todo}))
    environment = {**os.environ, "TMPDIR": str(folder), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(WATCHED), str(plan)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=3600,
    )
    assert done.returncode == 0, f"the process died ({done.returncode}): {done.stderr[-2000:]}"
    return [(name, ending, said, seen) for name, ending, said, seen in json.loads(done.stdout.splitlines()[-1])]


def test_hostile_model_files_do_not_execute(tmp_path):
    mark = tmp_path / "it-ran"
    good = seeds(tmp_path / "warm")
    acts = {"onnx": "model", "npz": "npz", "safetensors": "weights", "pt": "weights", "tar": "archive"}
    warm = [(acts[kind], str(path)) for kind, path in good.items()]
    found = watched(tmp_path, jobs(tmp_path / "files", mark, amount(240), seed=TIMES), warm)
    assert len(found) >= amount(240) and not mark.exists(), "a file executed"
    for name, ending, said, seen in found:
        assert not seen, f"{name} did something: {seen}"
        assert ending in ("result", "sentence"), f"{name}: {said}"
        outcome("hostile model files", ending)
    assert {ending for _, ending, _, _ in found} == {"result", "sentence"}
