"""Attacks a model's images and writes a run folder with records, images and summary.json.

Re-run the same command to resume; a finished run only checks that the model is unchanged. The specification,
run.toml in the run folder, is a config too: almakit run --config runs/a/run.toml.

  almakit run --model my_model.py:build --data folder:photos
  almakit run --model mnist/smallcnn-trades --data mnist --limit 200 --attack "alma(distance=l2, steps=100)"
  almakit run --out runs/a --add "ddn(steps=100)"
"""

from __future__ import annotations

import argparse
import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from ..errors import BadInput
from ..expression import parse_number
from ..runs.progress import Progress, for_terminal
from ..runs.spec import AUTO, DEFAULT, DTYPES, RunSpec, parse_shard
from ..trackers import all_of
from .certify import HELP as CERTIFY_HELP
from .certify import METHODS as CERTIFY
from .main import DONE, FAILED_IMAGES, Usage
from .malloc import add_malloc, tune

FLAGS = {"attacks": "attack"}  # fields whose flag has another name
MANY = {"attacks": "ATTACK", "allow": "NAME", "epsilon": "DISTANCE=E,...", "stop_within": "DISTANCE=E"}
CHOICES = {"dtype": DTYPES, "split": ("test", "train")}


def add_spec_arguments(parser: argparse.ArgumentParser, leave_out: tuple[str, ...] = ()) -> None:
    """A flag for each field of ``RunSpec``."""
    for field in fields(RunSpec):
        if field.name in leave_out:
            continue
        flag = f"--{FLAGS.get(field.name, field.name).replace('_', '-')}"
        text = field.metadata["help"].replace("%", "%%")
        if field.default not in (None, "", (), False):
            text += f" (default {field.default})"
        if field.name in MANY:
            parser.add_argument(flag, dest=field.name, action="append", metavar=MANY[field.name], help=text)
        elif field.name in ("mean", "std"):
            parser.add_argument(flag, dest=field.name, type=_numbers, metavar="A,B,C", help=text)
        elif field.default is False:
            parser.add_argument(flag, dest=field.name, action="store_const", const=True, help=text)
        elif field.name in CHOICES:
            parser.add_argument(flag, dest=field.name, choices=CHOICES[field.name], help=text)
        elif field.name in ("batch_size", "budget"):
            parser.add_argument(flag, dest=field.name, type=_size, metavar="N|auto", help=text)
        elif "int" in str(field.type):
            parser.add_argument(flag, dest=field.name, type=int, metavar="N", help=text)
        else:
            parser.add_argument(flag, dest=field.name, metavar=field.name.upper(), help=text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="a TOML file with these settings; flags override it"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FOLDER",
        help="the run folder (default: the config's folder, or runs/<model>-<data>-<hash>)",
    )
    add_spec_arguments(parser)
    parser.add_argument(
        "--add",
        action="append",
        metavar="ATTACK",
        help="add this attack to the run in --out and keep its other settings; may be repeated",
    )
    parser.add_argument(
        "--shard",
        metavar="I/N",
        help="compute every N-th chunk only, starting with chunk I (0 to N - 1); `almakit merge` joins the shards",
    )
    parser.add_argument(
        "--engine",
        choices=("local", "ray"),
        default="local",
        help="where to compute: in this process or on a Ray cluster (needs almakit[ray]); the numbers are the same",
    )
    parser.add_argument(
        "--address",
        default="local",
        metavar="ADDRESS",
        help="with --engine ray: local starts a cluster on this machine for the run, auto joins the running cluster "
        "of this machine, host:port joins another one (default local)",
    )
    parser.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="number of processes, one thread each (default: one per core if the model is small and the run long "
        "enough; the numbers are the same); with --engine ray the largest number of tasks at a time",
    )
    add_malloc(parser)
    parser.add_argument("--certify", choices=CERTIFY, help=f"certify the images afterwards: {CERTIFY_HELP}")
    parser.add_argument(
        "--track",
        action="append",
        metavar="TRACKER",
        help="send progress and results to a tracker: tensorboard:<folder>, mlflow:<experiment>, wandb:<project> or "
        "file.py:function; may be repeated",
    )
    parser.add_argument(
        "--no-preflight", action="store_true", help="skip the checks of the model (to accept one finding use --allow)"
    )
    parser.add_argument("--json", action="store_true", help="print the summary as JSON instead of the table")
    parser.add_argument("--verbose", action="store_true", help="print all columns of the table, and what they mean")
    parser.add_argument("--quiet", action="store_true", help="no progress, no notes")


def spec_of(args: argparse.Namespace) -> RunSpec:
    """The specification of a command line: the config's, with the flags that were given."""
    given = {f.name: value for f in fields(RunSpec) if (value := getattr(args, f.name, None)) is not None}
    try:
        base = RunSpec.from_toml(args.config) if getattr(args, "config", None) else RunSpec()
        if base.trust and not given.get("trust"):
            raise BadInput(
                f"{args.config} says trust = true, and a file cannot say so for you: it allows code in a model file "
                "to run. Give --trust yourself."
            )
        return replace(base, **given)
    except BadInput as error:
        raise Usage(str(error)) from error


def main(args: argparse.Namespace) -> int:
    try:
        if args.add:
            spec, args.out = _with_added(args)
        else:
            spec = spec_of(args)
        spec, shard = spec.complete(args.out), parse_shard(args.shard)
    except BadInput as error:
        raise Usage(str(error)) from error
    tune(args)

    from .. import api
    from ..runs.plan import Request

    try:
        request = Request(
            spec,
            args.out or _default_folder(spec, args.config),
            add=bool(args.add),
            shard=shard,
            preflight=not args.no_preflight,
            progress=Progress() if args.quiet else for_terminal(),
            engine=args.engine,
            address=args.address,
            workers="auto" if args.workers is None else args.workers,
            trackers=all_of(args.track),
            certify=args.certify,
        )
    except BadInput as error:
        raise Usage(str(error)) from error
    run = api.run(request)
    if shard is not None:
        print(
            f"Shard {args.shard} is done: {len(run.records)} records in {run.folder}. When all shards are: almakit "
            f"merge {run.folder}"
        )
        return DONE
    table = f"{run.table(verbose=args.verbose)}\n\nrecords, images, summary.json: {run.folder}"
    print(json.dumps(run.summary, indent=1) if args.json else table)
    return exit_code(run.summary)


def _with_added(args: argparse.Namespace) -> tuple[RunSpec, Path]:
    """The spec of the run in --out (or of --config, in its folder) with the attacks of --add in the place of its own,
    and the folder."""
    out = args.out or (args.config.parent if args.config else None)
    if out is None or not (out / "run.toml").is_file():
        raise BadInput("--add adds an attack to a run that is there: name its folder, --out runs/a.")
    if args.attacks:
        raise BadInput("--add adds to the attacks of the run: leave --attack out.")
    args.config, args.attacks = out / "run.toml", args.add
    return spec_of(args), out


def exit_code(summary: dict[str, Any]) -> int:
    """4 where a chunk was given up or an image failed: no finite logits, a refuted claim, or nothing found by an attack
    that looks for the smallest change.

    An attack at a fixed epsilon that finds nothing has not failed: the image is robust there.
    """
    failed = sum(
        part["status"]["invalid"] + part["refuted"] + part["status"].get("failed", 0) for part in summary["attacks"]
    )
    return FAILED_IMAGES if failed or summary["failed_chunks"] else DONE


def _default_folder(spec: RunSpec, config: Path | None) -> Path:
    # The run.toml of a run folder resumes that run; any other config starts a run elsewhere.
    if config is not None and config.name == "run.toml" and any(config.parent.glob("records*.sqlite")):
        return config.parent
    return Path("runs") / spec.folder_name()


def _size(text: str) -> int | str:
    return text if text in (AUTO, DEFAULT) else int(text)


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(parse_number(part) for part in text.split(","))
