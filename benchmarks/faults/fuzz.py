"""The fuzzers of tests/fuzz for longer than a test may take, and what they met.

python -m benchmarks faults fuzz --times 20   twenty times the examples of `make test`
python -m benchmarks faults fuzz --only files hostile_folders   these of tests/fuzz/test_fuzz_*.py; other counts stay
python -m benchmarks faults fuzz --docs   write the kept table into docs/figures/reliability.md
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import DOCS, RESULTS, ROOT

KEPT = RESULTS / "fuzz.json"


def table(results: dict[str, Any]) -> str:
    from benchmarks.common import markdown

    kinds = dict.fromkeys(name.partition(": ")[0] for name in results["counts"])
    rows = []
    for kind in kinds:
        good, said = (results["counts"].get(f"{kind}: {outcome}", 0) for outcome in ("result", "sentence"))
        rows.append([kind, str(good + said), str(good), str(said), "0" if results["passed"] else "?"])
    head = ["bad input ", "tried", "valid results", "sentences", "anything else"]
    how = f"`python -m benchmarks faults fuzz --times {results['times']}` in {results['minutes']:.0f} minutes"
    return f"{markdown(head, rows)}\n\nMeasured {results['date']} with {how}."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="NAME", help="these fuzzers only; the others' kept counts stay"
    )
    parser.add_argument(
        "--docs", action="store_true", help="write the kept table into docs/figures/reliability.md and do nothing else"
    )
    args = parser.parse_args()
    if args.docs:
        from benchmarks.common import replace_section

        replace_section(DOCS / "figures" / "reliability.md", "fuzz", table(json.loads(KEPT.read_text())))
        return
    kept = json.loads(KEPT.read_text()) if args.only else {}
    if kept and kept["times"] != args.times:
        parser.error(f"the kept counts are of --times {kept['times']}: give the same, or leave --only out.")
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        counts = Path(place) / "counts.json"
        environment = {
            **os.environ,
            "ALMAKIT_FUZZ": str(args.times),
            "ALMAKIT_FUZZ_COUNTS": str(counts),
            "OMP_NUM_THREADS": "1",
        }
        files = [f"tests/fuzz/test_fuzz_{name}.py" for name in args.only] or ["tests/fuzz"]
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files]
        passed = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode == 0
        found = json.loads(counts.read_text()) if counts.is_file() else {}
    results = {
        "date": time.strftime("%Y-%m-%d"),
        "times": args.times,
        "minutes": (time.monotonic() - begin) / 60,
        "passed": passed,
        "counts": found,
    }
    if kept:
        results |= {
            "counts": {**kept["counts"], **found},
            "passed": passed and kept["passed"],
            "minutes": results["minutes"] + kept["minutes"],
        }
        if kept["date"] != results["date"]:
            results["date"] = f"{kept['date'].partition(' ')[0]} to {results['date']}"
    KEPT.parent.mkdir(exist_ok=True)
    KEPT.write_text(json.dumps(results, indent=1) + "\n")
    print(table(results))
    sys.exit(0 if passed else 1)
