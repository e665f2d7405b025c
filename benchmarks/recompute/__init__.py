"""Is every number what it says? Seven runs, their reports and boards, and each number computed anew.

Makes runs (smallest change, fixed epsilon, targeted, every target, 8-bit, mixed, one chunk given up) with the shipped
network on the shipped digits, exports their records with `almakit export`, writes their reports with `almakit report`,
and recomputes every number of tables.csv, tables.md, tables.tex, summary.json, the page, `almakit run`'s table and the
board from the exported records alone, with NumPy and code of its own (`anew.py`; the comparisons are in `report.py` and
`board.py`). Prints how many numbers were compared and how many differ. The reports
and the board of several runs are checked together too: labels, blocks, the worst case over runs.
"""

from __future__ import annotations

import argparse
import tempfile
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from benchmarks.common import Results
from benchmarks.recompute.anew import Check, read
from benchmarks.recompute.board import check_board, check_terminal
from benchmarks.recompute.report import check_report


def make_runs(root: Path) -> dict[str, Path]:
    """Name -> run folder; through the public interface only."""
    from almakit import evaluate
    from almakit.runs.executors import InProcess, Lost

    class OneFailed(InProcess):
        """Computes in this process, and gives up one chunk of the second attack."""

        def submit(self, job: Any, task: Any, notify: Any = None) -> Future[Any]:
            if (task.key.attack, task.key.chunk) != (1, 1):
                return super().submit(job, task, notify)
            future: Future[Any] = Future()
            future.set_exception(Lost("given up on purpose", 1))
            return future

    l2, linf = "alma(distance=l2, steps=30)", "apgd(distance=linf, epsilon=0.1, steps=10)"
    settings: dict[str, dict[str, Any]] = {
        "smallest change": {"attacks": [l2, "ddn(steps=20)", "alma(distance=l1, steps=30)"]},
        "fixed epsilon": {
            "attacks": [linf, "pgd(distance=linf, epsilon=0.1, steps=10)", "pgd(distance=linf, epsilon=0.2, steps=10)"]
        },
        "targeted": {"attacks": [l2, "ddn(steps=20)"], "targets": "random", "epsilons": {"l2": [1, 1.5]}},
        "every target": {"attacks": ["ddn(steps=10)"], "targets": "all", "limit": 16},
        "8-bit": {"attacks": [l2, "ddn(steps=20)"], "bits": 8},
        "mixed": {
            "attacks": ["alma(distance=linf, steps=30)", linf, l2],
            "epsilons": {"linf": ["8/255", 0.1, 0.15], "l2": 1},
        },
        "one failed chunk": {"attacks": [l2, "ddn(steps=20)"], "engine": OneFailed()},
    }
    made = {}
    for name, more in settings.items():
        out = root / name.replace(" ", "-")
        evaluate("mnist/smallcnn-tiny", "mnist-demo", out=out, batch_size=32, preflight=False, **more)
        made[name] = out
    return made


def measure(results: Results, args: argparse.Namespace) -> int:
    from almakit import Run
    from almakit.report.board import write_board
    from almakit.report.run import write_report
    from almakit.runs.export import export_table

    answer: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        folders = make_runs(root)
        reports = {name: [folder] for name, folder in folders.items()}
        reports["four together"] = [folders[name] for name in ("smallest change", "8-bit", "targeted", "mixed")]
        for name, parts in reports.items():
            check, place = Check(), root / f"report-{name.replace(' ', '-')}"
            for folder in parts:
                export_table(Run(folder), folder / "records.csv")
            write_report(parts, place, with_figures=False)
            check_report(check, place, [read(folder) for folder in parts])
            write_board(parts, place / "site")
            check_board(check, place / "site", {folder.name: read(folder) for folder in parts})
            for run in map(Run, parts):
                check_terminal(check, run.table(), read(run.folder), [part["label"] for part in run.summary["attacks"]])
            counts = ", ".join(f"{where} {count}" for where, count in sorted(check.compared.items()))
            print(
                f"{name:18} {sum(check.compared.values()):5d} numbers, {len(check.differences)} differences   "
                f"({counts})"
            )
            for difference in check.differences[:20]:
                print(f"    {difference}")
            answer[name] = {"numbers": dict(check.compared), "differences": len(check.differences)}
    total, wrong = (
        sum(sum(row["numbers"].values()) for row in answer.values()),
        sum(row["differences"] for row in answer.values()),
    )
    print(f"{'all':18} {total:5d} numbers, {wrong} differences")
    results.update(answer)
    return 1 if wrong else 0
