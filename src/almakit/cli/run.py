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
from ..runs.environment import keep_memory
from ..runs.progress import Progress, for_terminal
from ..runs.spec import AUTO, DEFAULT, DTYPES, RunSpec, parse_shard
from ..trackers import all_of
from .arguments import DONE, FAILED_IMAGES, JSON, QUIET, VERBOSE, Row, checked, usage, within
from .certify import HELP as CERTIFY_HELP
from .certify import METHODS as CERTIFY


def _size(text: str) -> int | str:
    return text if text in (AUTO, DEFAULT) else int(text)


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(parse_number(part) for part in text.split(","))


# Flags of RunSpec's fields whose form does not follow from the type: the flag with its metavar, and the kind of its
# values.
FLAGS: dict[str, tuple[str, Any]] = {
    "attacks": ("--attack ATTACK", [str]),
    "allow": ("--allow NAME", [str]),
    "epsilon": ("--epsilon DISTANCE=E,...", [str]),
    "stop_within": ("--stop-within DISTANCE=E", [str]),
    "mean": ("--mean A,B,C", _numbers),
    "std": ("--std A,B,C", _numbers),
    "dtype": ("--dtype", DTYPES),
    "split": ("--split", ("test", "train")),
    "batch_size": ("--batch-size N|auto", _size),
}


def spec_arguments(leave_out: tuple[str, ...] = ()) -> tuple[Row, ...]:
    """A flag for each field of ``RunSpec``."""
    rows = []
    for field in fields(RunSpec):
        flag = f"--{field.name.replace('_', '-')}"
        if field.default is False:
            usual: tuple[str, Any] = flag, False
        else:
            usual = (f"{flag} N", int) if "int" in str(field.type) else (f"{flag} {field.name.upper()}", str)
        default = f" (default {field.default})" if field.default not in (None, "", (), False) else ""
        if field.name not in leave_out:
            rows.append((*FLAGS.get(field.name, usual), field.metadata["help"] + default))
    return tuple(rows)


ARGUMENTS = (
    ("--config FILE", Path, "a TOML file with these settings; flags override it"),
    ("--out FOLDER", Path, "the run folder (default: the config's folder, or runs/<model>-<data>-<hash>)"),
    *spec_arguments(),
    ("--add ATTACK", [str], "add this attack to the run in --out and keep its other settings; may be repeated"),
    (
        "--shard I/N",
        checked(parse_shard),
        "compute every N-th chunk only, starting with chunk I (0 to N - 1); `almakit merge` joins the shards",
    ),
    (
        "--engine",
        ("local", "ray"),
        "where to compute: in this process or on a Ray cluster (needs almakit[ray]); the numbers are the same",
        "local",
    ),
    (
        "--address ADDRESS",
        str,
        "with --engine ray: local starts a cluster on this machine for the run, auto joins the running cluster of this "
        "machine, host:port joins another one",
        "local",
    ),
    (
        "--workers N",
        within(int, 1),
        "number of processes, one thread each (default: one per core for a small model and enough chunks; "
        "the numbers are the same); with --engine ray the largest number of tasks at a time",
    ),
    ("--certify", CERTIFY, f"certify the images afterwards: {CERTIFY_HELP}"),
    (
        "--track TRACKER",
        [str],
        "send progress and results to a tracker: tensorboard:<folder> or file.py:function; may be repeated",
    ),
    ("--no-preflight", False, "skip the checks of the model (to accept one finding use --allow)"),
    JSON,
    VERBOSE,
    QUIET,
)


def spec_of(args: argparse.Namespace, config: Path | None = None) -> RunSpec:
    """The specification of a command line: that of the config file, with the flags that were given."""
    given = {}
    for field in fields(RunSpec):
        value = getattr(args, "attack" if field.name == "attacks" else field.name, None)
        if value is not None and value is not False and value != []:
            given[field.name] = value
    base = RunSpec.from_toml(config) if config else RunSpec()
    if base.trust and not given.get("trust"):
        raise BadInput(
            f"{config} says trust = true, and a file cannot say so for you: it allows code in a model file to run. "
            "Give --trust yourself."
        )
    return replace(base, **given)


def main(args: argparse.Namespace) -> int:
    if args.own_process:
        keep_memory()
    with usage():
        spec, out = (_added_to if args.add else _begun)(args)
        from .. import api
        from ..runs.plan import Request

        request = Request(
            spec,
            out,
            add=bool(args.add),
            shard=args.shard,
            preflight=not args.no_preflight,
            progress=Progress() if args.quiet else for_terminal(),
            engine=args.engine,
            address=args.address,
            workers=args.workers or AUTO,
            trackers=all_of(args.track),
            certify=args.certify,
        )
    run = api.run(request)
    if args.shard is not None:
        shard, records = "/".join(map(str, args.shard)), len(run.records)
        print(f"Shard {shard} is done: {records} records in {run.folder}. When all are: almakit merge {run.folder}")
        return DONE
    table = f"{run.table(verbose=args.verbose)}\n\nrecords, images, summary.json: {run.folder}"
    print(json.dumps(run.summary, indent=1) if args.json else table)
    return exit_code(run.summary)


def _begun(args: argparse.Namespace) -> tuple[RunSpec, Path]:
    """The specification of a run, and its folder."""
    spec = spec_of(args, args.config).complete(args.out)
    # The run.toml of a run folder resumes that run; any other config starts a new run.
    if args.config is not None and args.config.name == "run.toml" and any(args.config.parent.glob("records*.sqlite")):
        return spec, args.out or args.config.parent
    return spec, args.out or Path("runs") / spec.folder_name()


def _added_to(args: argparse.Namespace) -> tuple[RunSpec, Path]:
    """The spec of the run in --out (or of --config, in its folder) with the attacks of --add in the place of its own,
    and the folder."""
    out = args.out or (args.config.parent if args.config else None)
    if out is None or not (out / "run.toml").is_file():
        raise BadInput("--add adds an attack to a run that is there: name its folder, --out runs/a.")
    if args.attack:
        raise BadInput("--add adds to the attacks of the run: leave --attack out.")
    args.attack = args.add
    return spec_of(args, out / "run.toml").complete(out), out


def exit_code(summary: dict[str, Any]) -> int:
    """4 if a chunk was given up or an image failed: logits that are not finite, a refuted success, or no success by an
    attack that minimises the distance.

    An attack at a fixed epsilon that finds nothing has not failed: the image is robust at this radius.
    """
    failed = sum(
        part["status"]["invalid"] + part["refuted"] + part["status"].get("failed", 0) for part in summary["attacks"]
    )
    return FAILED_IMAGES if failed or summary["failed_chunks"] else DONE
