"""Downloads data sets and weights ahead of time, checks their sha256 and keeps them in the cache (ALMAKIT_HOME).

almakit fetch mnist
almakit fetch --list
"""

from __future__ import annotations

import argparse

from ..data import hub
from ..runs.progress import Progress, for_terminal
from .main import DONE, Usage


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="what to fetch; `all` fetches everything")
    parser.add_argument("--list", action="store_true", help="list what can be fetched and whether it is in the cache")


def main(args: argparse.Namespace) -> int:
    if args.list:
        for name, collection in hub.COLLECTIONS.items():
            here = sum(hub.local(file.name) is not None for file in collection.files)
            print(f"{name}: {here} of {len(collection.files)} files in the cache")
        return DONE
    if not args.names:
        raise Usage(f"say what to fetch: {', '.join(hub.collections())}, or all.")
    show = for_terminal()
    for name in hub.collections() if args.names == ["all"] else args.names:
        paths = hub.fetch(name, in_megabytes(show))
        print(f"{name}: {len(paths)} files, the first is {paths[0]}")
    show.end()
    return DONE


def in_megabytes(show: Progress) -> hub.Progress:
    """``show`` as what a download tells its progress in bytes."""
    noted: set[str] = set()
    shown: dict[str, int] = {}

    def tell(what: str, done: int, total: int | None) -> None:
        if total is None:
            if what not in noted:
                show.note(f"fetching {what}")
                noted.add(what)
            return
        if what not in shown:
            show.begin(f"fetching {what}", 0, total // 1_000_000, "MB")
            shown[what] = 0
        show.advance(done // 1_000_000 - shown[what])
        shown[what] = done // 1_000_000

    return tell
