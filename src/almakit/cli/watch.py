"""Serves the report of a run in progress on this machine only (127.0.0.1). The page updates itself.

It only reads the run folder and serves nothing else. Stop it with Ctrl-C; the run continues.

  almakit watch runs/a
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ..report.watch import Pages, Server
from ..runs.failures import StoreError
from .main import DONE, Usage
from .report import add_limits, limits


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folders", type=Path, nargs="+", metavar="RUN", help="a run folder")
    parser.add_argument(
        "--port", type=int, default=8700, metavar="N", help="the port (default 8700; 0 takes any free one)"
    )
    parser.add_argument(
        "--seconds", type=float, default=5.0, metavar="S", help="how often the page looks for more (default 5)"
    )
    add_limits(parser)


def main(args: argparse.Namespace) -> int:
    if not 0.2 <= args.seconds <= 3600 or not 0 <= args.port < 65536:
        raise Usage("--seconds goes from 0.2 to 3600, --port from 0 to 65535.")
    for folder in args.folders:
        if not folder.is_dir():
            raise StoreError(f"there is no run folder {folder}; begin the run first.")
    with Server(Pages(args.folders, limits(args), args.seconds), args.port) as server:
        print(f"Watching at {server.url} (Ctrl-C ends it; the run continues).", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("Ended.")
    return DONE
