"""The fuzzers of tests/fuzz for longer than a test may take, and what they met.

python -m benchmarks faults fuzz --times 20   twenty times the examples of `make test`
python -m benchmarks faults fuzz --only files hostile_folders   these of tests/fuzz/test_fuzz_*.py; other counts stay
python -m benchmarks faults fuzz --table --docs   write the kept table into docs/figures/reliability.md
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import ROOT, surroundings
from benchmarks.common import Results, markdown


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these; the others' kept counts stay")


def measure(results: Results, args: argparse.Namespace) -> int:
    kept = results.cells if args.only else {}
    if kept and kept["times"] != args.times:
        raise SystemExit(f"the kept counts are of --times {kept['times']}: give the same, or leave --only out.")
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        counts = Path(place) / "counts.json"
        amount = {"ALMAKIT_FUZZ": str(args.times), "ALMAKIT_FUZZ_COUNTS": str(counts), "OMP_NUM_THREADS": "1"}
        files = [f"tests/fuzz/test_fuzz_{name}.py" for name in args.only] or ["tests/fuzz"]
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files]
        passed = subprocess.run(command, cwd=ROOT, env=surroundings() | amount, check=False).returncode == 0
        found = json.loads(counts.read_text()) if counts.is_file() else {}
    today, first = time.strftime("%Y-%m-%d"), kept.get("date", "").partition(" ")[0]
    results.update(
        {
            "date": today if first in ("", today) else f"{first} to {today}",
            "times": args.times,
            "minutes": (time.monotonic() - begin) / 60 + kept.get("minutes", 0),
            "passed": passed and kept.get("passed", True),
            "counts": {**kept.get("counts", {}), **found},
        }
    )
    return 0 if passed else 1


def sections(results: Results, args: argparse.Namespace) -> dict[str, str]:
    kept, rows = results.cells, []
    for kind in dict.fromkeys(name.partition(": ")[0] for name in kept["counts"]):
        good, said = (kept["counts"].get(f"{kind}: {outcome}", 0) for outcome in ("result", "sentence"))
        rows.append([kind, str(good + said), str(good), str(said), "0" if kept["passed"] else "?"])
    head = ["bad input ", "tried", "valid results", "sentences", "anything else"]
    how = f"`python -m benchmarks faults fuzz --times {kept['times']}` in {kept['minutes']:.0f} minutes"
    return {"fuzz": f"{markdown(head, rows)}\n\nMeasured {kept['date']} with {how}."}
