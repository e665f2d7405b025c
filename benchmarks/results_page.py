"""Writes docs/results.md from the stored runs in benchmarks/results/reproduce-*.json; every number comes from a run folder.

    almakit reproduce mnist --limit 500 --budget small --out runs/reproduce-mnist
    almakit reproduce mnist --limit 500 --budget large --attacks alma,alma-plus --out runs/reproduce-mnist
    python benchmarks/results_page.py --keep runs/reproduce-mnist          takes the run's summary into benchmarks/results and writes the page
    python benchmarks/results_page.py                                      writes the page again from what is kept
    python benchmarks/results_page.py --check runs/reproduce-mnist         compares what is kept with the run folders themselves

A second ``--keep`` of the same data set replaces the cells it has (same network, attack and number of images or fewer) and keeps the others.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from almakit.errors import AlmakitError
from almakit.eval.folder import Run
from almakit.paper import layout
from almakit.paper.entries import Entry, from_json, to_json
from almakit.paper.grid import DATASETS, choose, networks
from almakit.report.formats import figure
from almakit.report.published import published

HERE = Path(__file__).resolve().parent
KEPT, PAGE = HERE / "results", HERE.parent / "docs" / "results.md"
TITLES = {"mnist": "MNIST", "cifar10": "CIFAR-10", "imagenet": "ImageNet photos"}
TOLERANCE = 0.03


def keep(run: Path) -> Path:
    """Takes the entries of a reproduction's report into the kept results."""
    entries, rest = from_json(run / "report" / "reproduce.json")
    place = KEPT / f"reproduce-{entries[0].dataset}.json"
    before, _ = from_json(place) if place.is_file() else ([], {})
    found = {(entry.label, entry.text): entry for entry in before}
    for entry in entries:
        old = found.get((entry.label, entry.text))
        if entry.complete and (old is None or entry.images >= old.images):
            found[entry.label, entry.text] = entry
    order = {cell.text: number for number, cell in enumerate(choose(entries[0].dataset))}
    place.write_text(to_json(sorted(found.values(), key=lambda entry: order.get(entry.text, len(order))), rest["machine"], rest["skipped"]))
    return place


def check(run: Path) -> list[str]:
    """Sentences about entries that the run folders below ``run`` do not bear out."""
    faults = []
    kept = [entry for path in sorted(KEPT.glob("reproduce-*.json")) for entry in from_json(path)[0]]
    for entry in kept:
        folder = run / entry.folder
        if not folder.is_dir():
            continue
        summary = Run(folder).summary
        part = summary["attacks"][0]
        if (part["median_all"]["value"], part["success_rate"]["value"], part["attack"]) != (entry.median, entry.success, entry.text):
            faults.append(f"{folder} gives median {part['median_all']['value']}, kept is {entry.median}.")
        paper = published(f"{entry.dataset}/{entry.model}", entry.dataset, Run(folder).attacks[0])
        if entry.paper != paper and entry.paper is not None and paper is not None:
            faults.append(f"{folder}: the paper's figures differ from those kept.")
    return faults


def judged(entries: list[Entry]) -> str:
    """Each line of the small and large budgets against the paper: within 3 %, within the bootstrap interval, smaller, or larger."""
    lines = [
        "| Network | Distance | Attack | Images | Median | 95 % interval | Paper | Ratio | |",
        "|:--|:--|:--|--:|--:|--:|--:|--:|:--|",
    ]
    for entry in entries:
        if entry.paper is None or entry.paper.median is None:
            continue
        cells = [entry.label, layout.name_of(entry.distance), entry.cell.title, str(entry.images), figure(entry.median)]
        if entry.median is None:
            lines.append("| " + " | ".join([*cells, "", figure(entry.paper.median, 3), "", "no median: less than half found"]) + " |")
            continue
        ratio = entry.median / entry.paper.median
        inside = entry.low is not None and entry.low <= entry.paper.median <= (float("inf") if entry.high is None else entry.high)
        verdict = "within 3 %" if abs(ratio - 1) <= TOLERANCE else "within the interval" if inside else "smaller" if ratio < 1 else "**larger**"
        interval = f"{figure(entry.low, 3)} to {figure(entry.high, 3)}"
        lines.append("| " + " | ".join([*cells, interval, figure(entry.paper.median, 3), f"{ratio:.3f}", verdict]) + " |")
    return "\n".join(lines)


def page() -> str:
    """The page's text."""
    parts = [
        "# Results",
        "",
        "<!-- Written by benchmarks/results_page.py from benchmarks/results/reproduce-*.json; do not edit. -->",
        "",
        "Every number here comes from a run folder of `almakit reproduce`; its summary is kept in `benchmarks/results/reproduce-*.json` with the hashes of "
        "specification, weights and images, and the commands at the end of each section make it again. Success and median are over all images: "
        "already wrong counts 0, nothing found infinite; – is a median that is not defined because fewer than half of the images were fooled. "
        "Forwards and backwards are per attacked image. The attacks have the settings of the paper's runs, which are not "
        "almakit's defaults; ALMA-plus, which the paper does not have, stands beside them. The paper's figures are of all 10 000 MNIST test images, "
        "and of 1000 images of CIFAR-10 and ImageNet.",
        "",
    ]
    for dataset in DATASETS:
        place = KEPT / f"reproduce-{dataset}.json"
        if not place.is_file():
            continue
        entries, rest = from_json(place)
        machine = rest["machine"] or {}
        counts = ", ".join(str(count) for count in sorted({entry.images for entry in entries}, reverse=True))
        days = sorted({entry.started[:10] for entry in entries})
        parts += [
            f"## {TITLES[dataset]}",
            "",
            f"First {counts} images (the costly attacks have fewer; each table says how many). Begun {days[0]}"
            + (f" to {days[-1]}" if days[-1] != days[0] else "")
            + f"; {machine.get('processor')}, {machine.get('threads')} thread(s), torch {machine.get('torch')}, almakit {machine.get('almakit')}"
            + f" (source {source(machine.get('commit'))}); seed {', '.join(sorted({str(entry.seed) for entry in entries}))}.",
            "",
            *(f"- {sentence}" for sentence in rest["skipped"]),
            "",
            layout.markdown([*layout.geometric(entries), *layout.by_model(entries)]),
        ]
        if any(entry.paper for entry in entries):
            parts += [
                "### Line by line against the paper",
                "",
                "The interval is the 95 % bootstrap interval of our median over our images. With few images it is wide, and that the paper's figure lies "
                "inside it says little.",
                "",
                judged(entries),
                "",
            ]
        parts += ["Again:", "", "```", *commands(dataset, entries), "```", ""]
    return "\n".join(parts)


def source(commit: str | None) -> str:
    """A commit for print, with the word that says that files differed from it."""
    head, plus, rest = str(commit).partition("+")
    return f"{head[:12]}{plus}{rest}"


def commands(dataset: str, entries: list[Entry]) -> list[str]:
    """The commands that make the entries."""
    found = []
    known = {network.model for network in networks(dataset)}
    models = "".join(f" --model {label}" for label in dict.fromkeys(entry.label for entry in entries if entry.model not in known))
    for size in ("small", "large"):
        mine = [entry for entry in entries if entry.size == size]
        for count in sorted({entry.images for entry in mine}, reverse=True):
            attacks = ",".join(dict.fromkeys(entry.attack for entry in mine if entry.images == count))
            found.append(f"almakit reproduce {dataset} --limit {count} --costly-limit {count} --budget {size} --attacks {attacks}{models}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, action="append", default=[], metavar="RUN", help="take a reproduction's summary in first")
    parser.add_argument("--check", type=Path, metavar="RUN", help="compare what is kept with the run folders below RUN")
    parser.add_argument("--out", type=Path, default=PAGE)
    args = parser.parse_args()
    try:
        for run in args.keep:
            print(f"kept in {keep(run)}")
        if args.check:
            faults = check(args.check)
            print("\n".join(faults) or "What is kept agrees with the run folders.")
            return 1 if faults else 0
        args.out.write_text(page(), encoding="utf-8")
        print(args.out)
    except AlmakitError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
