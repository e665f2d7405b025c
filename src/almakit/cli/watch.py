"""Serves the report of a run in progress on this machine only (127.0.0.1). The page updates itself.

It only reads the run folder and serves nothing else. Stop it with Ctrl-C; the run continues.

  almakit watch runs/a
"""

from __future__ import annotations

import argparse

from ..report.page import Limits
from ..report.watch import Pages, Server
from ..runs.failures import StoreError
from .arguments import DONE, FOLDERS, within
from .report import limits

ARGUMENTS = (
    FOLDERS,
    ("--port N", within(int, 0, 65535), "the port; 0 takes any free one", 8700),
    ("--seconds S", within(float, 0.2, 3600), "how often the page looks for more", 5.0),
    *limits(),
)


def main(args: argparse.Namespace) -> int:
    for folder in args.folders:
        if not folder.is_dir():
            raise StoreError(f"there is no run folder {folder}; begin the run first.")
    pages = Pages(args.folders, Limits(args.images, args.megabytes), args.seconds)
    with Server(pages, args.port) as server:
        print(f"Watching at {server.url} (Ctrl-C ends it; the run continues).", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("Ended.")
    return DONE
