"""Whether there is a browser to test with, and the loud words where there is none."""

from __future__ import annotations

import os
import shutil
from typing import Any

LEFT_OUT = "BROWSER TESTS LEFT OUT"


def chromium() -> str | None:
    """Chromium's path."""
    return os.environ.get("ALMAKIT_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


def missing() -> str | None:
    """Why there is no browser to test with, and what to do about it."""
    if chromium() is None:
        return "there is no chromium: apt-get install -y --no-install-recommends chromium (or set ALMAKIT_CHROMIUM)"
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "Playwright is not installed: pip install playwright"
    return None


def say_what_was_left_out(terminalreporter: Any) -> None:
    """In red at the end of a test run that left browser tests out, also where workers ran the tests."""
    skipped = [report for report in terminalreporter.stats.get("skipped", []) if LEFT_OUT in str(report.longrepr)]
    if skipped:
        terminalreporter.section(f"{len(skipped)} {LEFT_OUT}", sep="!", red=True, bold=True)
        terminalreporter.line(f"The report's page was not tested in a browser: {missing()}.", red=True)
