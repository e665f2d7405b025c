"""How long a report takes and how much memory, for a large run: `python -m benchmarks scale report [--images 10000]
[--attacks 10]`.

Makes a run folder through the store's own interface, makes its report in a process of its own, and opens the page in
Chromium where there is one; then times each of its sections, and a board. Prints a table and writes JSON. The targets
are for 10 000 images and 10 attacks: under 20 s, also each section, under 1 GB, page under 3 MB without pictures.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from report.made_runs import MadeAttack, make_run

from benchmarks.common import Results, markdown

METHODS = (("alma", "ALMA", 1.0), ("ddn", "DDN", 1.1), ("fmn", "FMN", 1.15), ("fab", "FAB", 1.3), ("cw", "C&W", 1.05))
SECONDS, BYTES, PAGE = 20.0, 1e9, 3e6


def attacks(count: int) -> tuple[MadeAttack, ...]:
    """Five methods at two budgets, and more of the same kind beyond ten."""
    return tuple(
        MadeAttack(
            f"{name}{n // 10 or ''}",
            title if n < 10 else f"{title} {n // 10}",
            steps=(100, 1000)[n // 5 % 2],
            strength=strength,
        )
        for n in range(count)
        for name, title, strength in [METHODS[n % 5]]
    )


def report(run: Path, out: Path, *more: str) -> dict[str, float]:
    """Wall seconds, processor seconds and peak memory of `almakit report` in its own process."""
    code = "import sys; from almakit.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "report", str(run), "--out", str(out), *more]
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit("almakit report failed.")
    wall = time.perf_counter() - begin
    return {
        "seconds": wall,
        "processor_seconds": usage.ru_utime + usage.ru_stime,
        "peak_bytes": usage.ru_maxrss * 1024.0,
    }


def parts(run: Path) -> dict[str, float]:
    """Processor seconds of each part of a report, one after the other, and of a board of this run."""
    from almakit.report import board, figures, page, sections, subjects, tables, trust
    from almakit.report import run as report_run

    found: dict[str, float] = {}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        begin = time.process_time()
        result = work()
        found[name] = time.process_time() - begin
        return result

    mine = timed("records to numbers", lambda: subjects.load([run]))
    made = timed("numbers", lambda: tables.tables_of(mine))
    timed("md, csv, tex", lambda: [tables.written(made, kind) for kind in ("markdown", "csv", "latex")])
    timed("trust", lambda: [trust.checks(subject.summaries, subject.worst_cases) for subject in mine])
    timed("sections", lambda: sections.sections_of(mine))
    timed("curves, scatter, images", lambda: page.build(mine))
    timed("summary.json", lambda: report_run.report_summary(mine))
    with tempfile.TemporaryDirectory() as place:
        timed("figures", lambda: figures.draw_curves(mine, Path(place)))
    timed("the board, with reading", lambda: board.render(board.read([run])))
    return found


def opened(page: Path) -> dict[str, float] | None:
    """Seconds until the page is ready in Chromium, and for one move of the epsilon slider; None, and a sentence,
    without a browser."""
    chromium = shutil.which("chromium")
    if chromium is None or find_spec("playwright") is None:
        print("There is no Chromium with playwright here: the page was not opened.", file=sys.stderr)
        return None
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--headless", "--no-sandbox", "--disable-gpu"])
        tab = browser.new_page(viewport={"width": 1400, "height": 900})
        begin = time.perf_counter()
        tab.goto(page.resolve().as_uri())
        tab.locator("#gallery .card-button").first.wait_for()
        ready = time.perf_counter() - begin
        move = """() => { const slider = document.querySelector("#curves input[type=range]"), begin = performance.now();
                 for (let i = 0; i < 20; i++) { slider.value = 100 + 40 * i; slider.dispatchEvent(new Event("input")); }
                 return (performance.now() - begin) / 20000; }"""
        moved = float(tab.evaluate(move))
        browser.close()
    return {"ready_seconds": ready, "slider_seconds": moved}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--attacks", type=int, default=10)
    parser.add_argument("--run", type=Path, help="keep the made run here and use it again")


def measure(results: Results, args: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        run, out, bare = args.run or Path(scratch) / "run", Path(scratch) / "report", Path(scratch) / "bare"
        if not (run / "run.toml").is_file():
            make_run(run, args.images, attacks(args.attacks), chunk=256)
        found: dict[str, Any] = {"images": args.images, "attacks": args.attacks, "load": os.getloadavg()[0]}
        found |= report(run, out)
        found["page_bytes"] = (out / "index.html").stat().st_size
        found["browser"] = opened(out / "index.html")
        report(run, bare, "--images", "0", "--no-figures")
        found["sections"] = parts(run)
        found["page_bytes_without_pictures"] = (bare / "index.html").stat().st_size
    found["within_targets"] = {
        "seconds": found["seconds"] < SECONDS,
        "memory": found["peak_bytes"] < BYTES,
        "page": found["page_bytes_without_pictures"] < PAGE,
        "sections": max(found["sections"].values()) < SECONDS,
    }
    results.update(found)


def sections(results: Results, args: argparse.Namespace) -> dict[str, str]:
    kept = results.cells
    rows = [
        ["report, wall", f"{kept['seconds']:.1f} s", f"{SECONDS:.0f} s"],
        ["report, processor", f"{kept['processor_seconds']:.1f} s", ""],
        ["memory", f"{kept['peak_bytes'] / 1e6:.0f} MB", f"{BYTES / 1e6:.0f} MB"],
        ["page", f"{kept['page_bytes'] / 1e6:.2f} MB", ""],
        ["page without pictures", f"{kept['page_bytes_without_pictures'] / 1e6:.2f} MB", f"{PAGE / 1e6:.0f} MB"],
    ]
    rows += [[name, f"{seconds:.2f} s", f"{SECONDS:.0f} s"] for name, seconds in kept["sections"].items()]
    if page := kept["browser"]:
        rows.append(["ready in Chromium", f"{page['ready_seconds']:.2f} s", ""])
        rows.append(["a move of the slider", f"{1000 * page['slider_seconds']:.1f} ms", ""])
    title = f"{kept['images']} images x {kept['attacks']} attacks, load average {kept['load']:.1f}"
    return {"report": f"{title}\n\n{markdown(['measured ', 'figure', 'target'], rows)}"}
