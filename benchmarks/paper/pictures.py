"""The pictures of README and docs: `python -m benchmarks paper pictures --runs FOLDER [--out docs/pictures]`.

Attacks the first 100 MNIST test images on five networks inside the package and the paper's regular one, with eight
attacks at published budgets (100 steps; APGD at two fixed radii), resumable in FOLDER; then writes the report's figures
of two of them (curves.png) and, with Chromium, the pages (page-*.png) and the board (board.png).
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import DOCS

NETWORKS = ("smallcnn-tiny", "smallcnn-tiny-ddn", "smallcnn-tiny-trades", "smallcnn-tiny-ibp", "mlp-2x100", "smallcnn")
PAIR = ("smallcnn-tiny-ddn", "smallcnn-tiny-trades")
ATTACKS = (
    "soft-walk(distance=l2, steps=100)",
    "ddn(steps=100)",
    "fmn(distance=l2, steps=100)",
    "alma(distance=l2, steps=100)",
    "soft-walk(distance=linf, steps=100)",
    "fmn(distance=linf, steps=100)",
    "apgd(distance=linf, epsilon=0.1, steps=100)",
    "apgd(distance=linf, epsilon=0.3, steps=100)",
)
EPSILONS = {"linf": [0.1, 0.2, 0.3], "l2": [1, 1.5, 2]}
SIZE = {"width": 1180, "height": 900}


def make_runs(root: Path) -> dict[str, Path]:
    from almakit import evaluate

    for name in NETWORKS:
        evaluate(
            f"mnist/{name}",
            "mnist",
            list(ATTACKS),
            out=root / name,
            limit=100,
            batch_size=100,
            epsilons=EPSILONS,
            progress=True,
        )
    return {name: root / name for name in NETWORKS}


def photograph(page: Any, address: str, out: Path) -> None:
    """The parts of a report."""
    page.goto(address)
    page.evaluate("document.querySelector('#curves h2').scrollIntoView()")
    page.wait_for_timeout(700)
    page.screenshot(path=out / "page-curves-light.png")
    page.evaluate("document.querySelector('#explore h2').scrollIntoView()")
    page.locator("#gallery .card-button").first.click()
    page.wait_for_timeout(300)
    page.screenshot(path=out / "page-one-image.png")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=Path, required=True, help="where the runs are, or are to be")
    parser.add_argument("--out", type=Path, default=DOCS / "pictures")


def main(args: argparse.Namespace) -> None:
    from playwright.sync_api import sync_playwright

    from almakit.report.board import write_board
    from almakit.report.run import write_report

    runs = make_runs(args.runs)
    with tempfile.TemporaryDirectory() as temporary, sync_playwright() as driver:
        place = Path(temporary)
        write_report([runs[name] for name in PAIR], place / "report")
        shutil.copy(place / "report" / "curves.png", args.out / "curves.png")
        write_board(list(runs.values()), place / "site")
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--headless", "--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport=SIZE)
        photograph(page, (place / "report" / "index.html").as_uri(), args.out)
        page.set_viewport_size({**SIZE, "height": 970})  # six rows
        page.goto((place / "site" / "index.html").as_uri())
        page.screenshot(path=args.out / "board.png")
        browser.close()
