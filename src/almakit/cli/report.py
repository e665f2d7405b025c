"""Makes a report of one or several run folders: one self-contained page, tables and figures.

index.html loads nothing from the network. The folder also holds tables.md, tables.csv, tables.tex (booktabs),
curves.svg, curves.pdf, curves.png, gallery.png and summary.json. Runs of the same model on the same images are one
model in the report. An unfinished run is reported with its finished chunks, and the report says so.

  almakit report runs/a
  almakit report runs/smallcnn runs/smallcnn-ddn --out report
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ..errors import BadInput
from ..report.page import Limits
from ..report.run import write_report
from ..runs.radii import texts_of
from ..runs.store.files import inside
from .main import DONE, Usage


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folders", type=Path, nargs="+", metavar="RUN", help="a run folder")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FOLDER",
        help="where to write (default: report in the run folder; for several runs: report)",
    )
    parser.add_argument(
        "--name",
        action="append",
        default=[],
        metavar="NAME",
        help="the name of the model in the report; repeat it for several models, in the order of their runs",
    )
    add_epsilon(parser)
    add_limits(parser)
    parser.add_argument("--no-figures", action="store_true", help="leave out the figures made with matplotlib")


def add_epsilon(parser: argparse.ArgumentParser) -> None:
    """The radii of tables; shared with ``board``."""
    parser.add_argument(
        "--epsilon",
        action="append",
        type=radii,
        default=[],
        metavar="DISTANCE=E,...",
        help="radii for robust accuracy: linf=8/255,4/255 for a distance, a number for all (default: those of the "
        "runs); may be repeated",
    )


def radii(text: str) -> str:
    """The radii of a flag, checked before anything is read."""
    try:
        texts_of(text)
    except BadInput as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def add_limits(parser: argparse.ArgumentParser, images: int = 60, megabytes: float = 12.0) -> None:
    """How much of the images goes into the page; shared with ``watch`` and ``board``."""
    parser.add_argument(
        "--images",
        type=int,
        default=images,
        metavar="N",
        help=f"pictures of at most this many images per model (default {images})",
    )
    parser.add_argument(
        "--megabytes",
        type=float,
        default=megabytes,
        metavar="MB",
        help=f"at most about so much for all pictures of a page (default {megabytes:g})",
    )


def limits(args: argparse.Namespace):  # type: ignore[no-untyped-def]
    """The limits the flags say."""
    if args.images < 0 or not 0 <= args.megabytes < 1e6:
        raise Usage("--images and --megabytes must not be negative.")
    return Limits(args.images, args.megabytes)


def main(args: argparse.Namespace) -> int:
    out = args.out or (inside(args.folders[0], "report") if len(args.folders) == 1 else Path("report"))
    written = write_report(args.folders, out, limits(args), not args.no_figures, args.epsilon, args.name)
    print(
        f"{written[0]} ({written[0].stat().st_size / 1e6:.1f} MB), and beside it "
        f"{', '.join(path.name for path in written[1:])}."
    )
    return DONE
