"""Makes a report of one or several run folders: one self-contained page, tables and figures.

index.html loads nothing from the network. The folder also holds tables.md, tables.csv, tables.tex (booktabs),
curves.svg, curves.pdf, curves.png and summary.json. Runs of the same model on the same images are one model in the
report. An unfinished run is reported with its finished chunks, and the report says so.

  almakit report runs/a
  almakit report runs/smallcnn runs/smallcnn-ddn --out report
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ..report.run import write_report
from ..runs.radii import texts_of
from ..runs.store.files import inside
from .arguments import DONE, FOLDERS, NO_FIGURES, Row, checked, within

EPSILON: Row = (
    "--epsilon DISTANCE=E,...",
    [checked(lambda text: texts_of(text)[0])],
    "radii for robust accuracy: linf=8/255,4/255 for a distance, a number for all (default: those of the runs); may be "
    "repeated",
)


PICTURES: Row = (
    "--images N",
    within(int, 0),
    "pictures of at most this many images per model (default: 60, for a board 12, fewer if they are large)",
)


ARGUMENTS = (
    FOLDERS,
    ("--out FOLDER", Path, "where to write (default: report in the run folder; for several runs: report)"),
    (
        "--name NAME",
        [str],
        "the name of the model in the report; repeat it for several models, in the order of their runs",
    ),
    EPSILON,
    PICTURES,
    NO_FIGURES,
)


def main(args: argparse.Namespace) -> int:
    out = args.out or (inside(args.folders[0], "report") if len(args.folders) == 1 else Path("report"))
    written = write_report(args.folders, out, args.images, not args.no_figures, args.epsilon, args.name)
    names = ", ".join(path.name for path in written[1:])
    print(f"{written[0]} ({written[0].stat().st_size / 1e6:.1f} MB), and beside it {names}.")
    return DONE
