"""How fast almakit is: ratios measured side by side in one run, against other libraries, against the model's own
passes, and in growing size.

    python -m benchmarks speed --list
    python -m benchmarks speed --rows alma-l2,alma-l1 --threads 1,2
    python -m benchmarks speed --table --docs

Each row takes a minute or two, needs a machine that does little else, and is kept in the JSON file when it is done.
Rows against adv-lib and foolbox need them installed beside almakit; rows with lite0 need two packages that the error
names.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks import peers
from benchmarks.common import Results, markdown
from benchmarks.speed import measures, processes

Cell = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """A measurement: what it compares, the figure it should reach, and how to make it with a number of repeats."""

    about: str
    target: str
    measure: Callable[[int], Cell]
    kind: str = "ratio"
    threads: tuple[int, ...] = (1, 2)


def _peer(ours: str, library: str, name: str, **settings: Any) -> Callable[[int], Cell]:
    def measure(repeats: int) -> Cell:
        peer = getattr(peers, library)(name, **settings)
        return measures.against(peer, ours, "mnist/smallcnn", 1000, 12, repeats)

    return measure


def _alma(norm: str, first: float) -> Callable[[int], Cell]:
    return _peer(
        f"alma(distance={norm}, steps={{steps}})",
        "adv_lib",
        "alma",
        steps_as="num_steps",
        distance=norm,
        init_lr_distance=first,
        α=0.5,
    )


def _rows(name: str, *arguments: Any) -> Callable[[int], Cell]:
    return lambda repeats: getattr(measures, name)(*arguments, repeats)


def _process(name: str, *arguments: Any) -> Callable[[int], Cell]:
    return lambda repeats: getattr(processes, name)(*arguments, repeats)


def _walk(norm: str, model: str) -> Callable[[int], Cell]:
    return _rows("against_bare", f"soft-walk(distance={norm}, steps={{steps}})", model, 99)


WALKS = {
    f"walk-{model.split('/')[1]}-{norm}": (
        f"soft walk {sign}, {model.split('/')[1]}, 100 queries, against bare passes",
        f"≤ {most}",
        _walk(norm, model),
    )
    for model, most in (("mnist/smallcnn-tiny", 2.0), ("mnist/smallcnn", 1.3), ("cifar10/resnet20", 1.1))
    for norm, sign in (("l1", "ℓ1"), ("l2", "ℓ2"), ("linf", "ℓ∞"))
} | {
    f"walk-{name}": (
        f"soft walk {name}, {subject}, 100 queries, against ALMA with 1000 steps",
        f"≤ {most}",
        _rows("walk_against_alma", name, model, images),
    )
    for subject, model, images, names, most in (
        ("cnn-a", "cifar10/cnn-a-adv", 32, ("lpips", "ssim", "ciede2000"), 0.35),
        ("cnn-a", "cifar10/cnn-a-adv", 32, ("l4", "weighted-l2", "dists-like"), 0.6),
        ("photos", "lite0", 2, ("ms-ssim",), 0.35),
    )
    for name in names
}
SMALL, LARGE = (64, 3, 32, 32), (8, 3, 224, 224)
L2 = "alma(distance=l2, steps={steps})"
ROWS = {
    "alma-l2": Row("ALMA ℓ2, SmallCNN, 1000 images, against adv-lib's in one batch", "≤ 0.5", _alma("l2", 0.1)),
    "alma-l1": Row("ALMA ℓ1, SmallCNN, 1000 images, against adv-lib's in one batch", "≤ 0.5", _alma("l1", 0.5)),
    "bare-smallcnn": Row(
        "ALMA ℓ2, SmallCNN, against bare passes", "≤ 1.05", _rows("against_bare", L2, "mnist/smallcnn", 30)
    ),
    "bare-smallcnn-l1": Row(
        "ALMA ℓ1, SmallCNN, against bare passes",
        "≤ 1.05",
        _rows("against_bare", "alma(distance=l1, steps={steps})", "mnist/smallcnn", 30),
    ),
    **{
        f"bare-smallcnn-{name}": Row(
            f"{title}, SmallCNN, against bare passes",
            "≤ 1.05",
            _rows("against_bare", f"{name}({'distance=l2, ' * (name == 'fmn')}steps={{steps}})", "mnist/smallcnn", 30),
        )
        for name, title in (("ddn", "DDN"), ("fmn", "FMN ℓ2"))
    },
    "bare-resnet20": Row(
        "ALMA ℓ2, ResNet-20, against bare passes", "≤ 1.05", _rows("against_bare", L2, "cifar10/resnet20", 10)
    ),
    "bare-lite0": Row(
        "ALMA ℓ2, EfficientNet-Lite0 at 224 x 224, against bare passes", "≤ 1.05", _rows("against_bare", L2, "lite0", 8)
    ),
    **{name: Row(*facts, "ratio", (1,)) for name, facts in WALKS.items()},
    "ciede2000-32": Row(
        "CIEDE2000, 64 of 32 x 32, against adv-lib's", "≤ 0.4", _rows("distance", "ciede2000-paper", SMALL)
    ),
    "ciede2000-224": Row(
        "CIEDE2000, 8 of 224 x 224, against adv-lib's", "≤ 0.4", _rows("distance", "ciede2000-paper", LARGE)
    ),
    "ssim-32": Row("SSIM, 64 of 32 x 32, against adv-lib's", "≤ 0.5", _rows("distance", "ssim", SMALL)),
    "ssim-224": Row("SSIM, 8 of 224 x 224, against adv-lib's", "≤ 0.5", _rows("distance", "ssim", LARGE)),
    "lpips-32": Row("LPIPS, 64 of 32 x 32, against adv-lib's", "", _rows("distance", "lpips", SMALL)),
    "lpips-224": Row("LPIPS, 8 of 224 x 224, against adv-lib's", "", _rows("distance", "lpips", LARGE)),
    "lpips-alma-cnn-a": Row(
        "ALMA LPIPS, cnn-a, 1000 CIFAR-10 images, against adv-lib's in one batch",
        "≤ 0.6",
        _rows("lpips_alma", "cifar10/cnn-a-adv", 1000, 8),
    ),
    "lpips-alma-resnet20": Row(
        "ALMA LPIPS, ResNet-20, 500 CIFAR-10 images, against adv-lib's in one batch",
        "≤ 0.6",
        _rows("lpips_alma", "cifar10/resnet20", 500, 4),
    ),
    "lpips-alma-lite0": Row(
        "ALMA LPIPS, EfficientNet-Lite0, 32 photos at 224 x 224, against adv-lib's in one batch",
        "≤ 0.6",
        _rows("lpips_alma", "lite0", 32, 4),
    ),
    "ddn-adv-lib": Row(
        "DDN, SmallCNN, 1000 images, against adv-lib's in one batch",
        "≤ 0.6",
        _peer("ddn(steps={steps})", "adv_lib", "ddn"),
    ),
    "ddn-foolbox": Row(
        "DDN, SmallCNN, 1000 images, against foolbox's in one batch",
        "≤ 0.6",
        _peer("ddn(steps={steps})", "foolbox", "DDNAttack"),
    ),
    "fmn-adv-lib": Row(
        "FMN ℓ2, SmallCNN, 1000 images, against adv-lib's in one batch",
        "≤ 0.6",
        _peer("fmn(distance=l2, steps={steps})", "adv_lib", "fmn", norm=2),
    ),
    "fmn-foolbox": Row(
        "FMN ℓ2, SmallCNN, 1000 images, against foolbox's in one batch",
        "≤ 0.6",
        _peer("fmn(distance=l2, steps={steps})", "foolbox", "L2FMNAttack"),
    ),
    "fmn-l1-adv-lib": Row(
        "FMN ℓ1, SmallCNN, 1000 images, against adv-lib's in one batch",
        "≤ 0.6",
        _peer("fmn(distance=l1, steps={steps})", "adv_lib", "fmn", norm=1),
    ),
    "growth-images": Row(
        "seconds over images, 100 to 10 000: slope of the logarithms", "1", _rows("growth_in_images"), "slope", (1,)
    ),
    "growth-steps": Row(
        "seconds over steps, 10 to 160: slope of the logarithms", "1", _rows("growth_in_steps"), "slope", (1,)
    ),
    "growth-pixels-l2": Row(
        "seconds over pixels in ℓ2, 28 x 28 to 224 x 224: slope of the logarithms",
        "1",
        _rows("growth_in_pixels", "l2"),
        "slope",
        (1,),
    ),
    "growth-pixels-ssim": Row(
        "seconds over pixels in SSIM, 28 x 28 to 224 x 224: slope of the logarithms",
        "1",
        _rows("growth_in_pixels", "ssim"),
        "slope",
        (1,),
    ),
    "memory-smallcnn": Row(
        "peak memory of ALMA ℓ2 over bare passes, SmallCNN, 128 at a time",
        "≤ 1.5",
        _process("pass_memory", "mnist/smallcnn", "alma(distance=l2, steps=10)", 128),
        "memory",
        (1,),
    ),
    "memory-resnet20": Row(
        "peak memory of ALMA ℓ2 over bare passes, ResNet-20, 128 at a time",
        "≤ 1.5",
        _process("pass_memory", "cifar10/resnet20", "alma(distance=l2, steps=5)", 128),
        "memory",
        (1,),
    ),
    "memory-lite0": Row(
        "peak memory of ALMA ℓ2 over bare passes, EfficientNet-Lite0, 8 at a time",
        "≤ 1.5",
        _process("pass_memory", "lite0", "alma(distance=l2, steps=5)", 8),
        "memory",
        (1,),
    ),
    "memory-stream": Row(
        "peak memory of a run of 10 000 images over that of 1000",
        "1",
        _process("streamed_memory", 1000, 10_000),
        "memory",
        (1,),
    ),
    "imports": Row(
        "seconds of `import almakit` over `import torch`", "< 0.3", _process("import_times"), "seconds", (1,)
    ),
}


def measured(name: str, threads: int, repeats: int) -> Cell:
    """One row on a number of threads."""
    torch.set_num_threads(threads)
    return {"threads": threads, "repeats": repeats, **ROWS[name].measure(repeats)}


def sections(results: Results, args: argparse.Namespace) -> dict[str, str]:
    """All rows, with what was measured."""
    lines = []
    for name, row in ROWS.items():
        shown = []
        for threads in (1, 2):
            cell = results.cells.get(f"{name}/{threads}")
            shown.append(_figure(cell) if cell else "–" if threads in row.threads else "")
        lines.append([f"`{name}`", row.about, *shown])
    return {"speed": markdown(["row ", "what ", "1 thread", "2 threads"], lines)}


def _figure(cell: Cell) -> str:
    figure = f"{cell['ratio']:.2f}" if cell["ratio"] >= 0.1 else f"{cell['ratio']:.3f}"
    return figure + (f"; `--help` {cell['help_s']:.2f} s" if "help_s" in cell else "")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", help="comma-separated names; all of them by default")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--list", action="store_true", help="print the rows and measure nothing")


def todo(words: str, threads: str) -> list[tuple[str, int]]:
    """The rows that are named, on each number of threads that is asked for and makes sense for them."""
    if unknown := [name for name in words.split(",") if name not in ROWS]:
        raise SystemExit(f"no such row: {', '.join(unknown)}; python -m benchmarks speed --list names them")
    asked = {int(text) for text in threads.split(",")}
    return [(name, count) for name in words.split(",") for count in sorted(asked & set(ROWS[name].threads))]


def measure(results: Results, args: argparse.Namespace) -> None:
    if args.list:
        print("\n".join(f"{name:22}{row.about}, wanted: {row.target}" for name, row in ROWS.items()))
        raise SystemExit(0)
    for name, threads in todo(args.rows or ",".join(ROWS), args.threads):
        cell = measured(name, threads, max(args.repeats, 3))
        results.keep(f"{name}/{threads}", cell)
        print(f"{name} on {threads} thread(s): {cell}", flush=True)
