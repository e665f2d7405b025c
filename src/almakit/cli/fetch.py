"""Downloads data sets and weights ahead of time, checks their sha256 and keeps them in the cache (ALMAKIT_HOME).

almakit fetch mnist
almakit fetch --list
"""

from __future__ import annotations

import argparse

from ..data import hub
from ..runs.progress import Progress, for_terminal
from .arguments import DONE, Usage

ARGUMENTS = (
    ("names* NAME", str, "what to fetch; `all` fetches everything"),
    ("--list", False, "list what can be fetched and whether it is in the cache"),
)


def main(args: argparse.Namespace) -> int:
    if args.list:
        for name in hub.COLLECTIONS:
            known = hub.files_of(name)
            here = sum(hub.local(file.name) is not None for file in known)
            print(f"{name}: {here} of {len(known)} files in the cache")
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
    """A download's progress in bytes, shown in MB; nothing if its size is not known."""
    shown: dict[str, int] = {}

    def tell(what: str, done: int, total: int | None) -> None:
        if total is None:
            return
        if what not in shown:
            show.begin(f"fetching {what}", 0, total // 1_000_000, "MB")
        show.advance(done // 1_000_000 - shown.get(what, 0))
        shown[what] = done // 1_000_000

    return tell
