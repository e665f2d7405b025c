"""Downloads data sets and weights ahead of time, checks them by sha256 and keeps them in the cache (ALMAKIT_HOME).

almakit fetch mnist          almakit fetch --list
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from ..data import hub
from .main import DONE, Usage


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="what to fetch; `all` fetches everything")
    parser.add_argument("--list", action="store_true", help="say what can be fetched and whether it is at hand")


def main(args: argparse.Namespace) -> int:
    if args.list:
        for name, collection in hub.COLLECTIONS.items():
            here = sum(hub.local(file.name) is not None for file in collection.files)
            print(f"{name}: {here} of {len(collection.files)} files at hand")
        return DONE
    if not args.names:
        raise Usage(f"say what to fetch: {', '.join(hub.collections())}, or all.")
    for name in hub.collections() if args.names == ["all"] else args.names:
        with _Progress() as progress:
            paths = hub.fetch(name, progress)
        print(f"{name}: {len(paths)} files, the first is {paths[0]}")
    return DONE


class _Progress:
    """A bar on a terminal where rich is installed; a line per source otherwise."""

    def __init__(self) -> None:
        self.bar: Any = None
        self.tasks: dict[str, Any] = {}
        self.said = 0.0
        if sys.stderr.isatty():
            try:
                from rich.console import Console
                from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
            except ImportError:
                return
            self.bar = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                DownloadColumn(),
                TransferSpeedColumn(),
                console=Console(stderr=True),
            )

    def __enter__(self) -> _Progress:
        if self.bar is not None:
            self.bar.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def __call__(self, what: str, done: int, total: int | None) -> None:
        if self.bar is not None:
            if what not in self.tasks:
                self.tasks[what] = self.bar.add_task(what)
            self.bar.update(self.tasks[what], completed=done, total=total)
        elif what not in self.tasks or time.monotonic() - self.said > 5 or done == total:
            self.tasks[what], self.said = True, time.monotonic()
            print(
                f"{what}: {done / 1e6:.1f} MB{f' of {total / 1e6:.1f}' if total else ''}", file=sys.stderr, flush=True
            )
