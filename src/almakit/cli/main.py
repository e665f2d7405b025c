"""``almakit VERB ...``: selects the verb, prints errors as messages and returns exit codes. Imports nothing heavy."""

from __future__ import annotations

import argparse
import io
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from types import ModuleType
from typing import TextIO, cast

from ..errors import SYNONYMS, AlmakitError, UnknownName, suggestion
from ..runs.failures import CodeNamed, Refused
from ..streams import Lasting, hold_standard_places
from ..version import VERSION
from .arguments import DONE, ERROR, EXIT_CODES, INTERRUPTED, REFUSED, USAGE, Usage, parser_of

# A verb is a module of this package with ARGUMENTS and main(args) -> exit code. A new verb needs one line here.
VERBS = {
    "run": "attack a model's images; recorded, verified, resumable",
    "init": "write a run.toml, a my_model.py and a my_attack.py to start from",
    "demo": "attack 64 digits with a shipped network and print a table, under a minute",
    "doctor": "check a model and its data before a run: accuracy, ranges, gradients, time, memory",
    "report": "make a page, figures and tables of one or several runs",
    "board": "make a static leaderboard of many runs: models x attacks",
    "compare": "compare two runs image by image, with an exit code for CI",
    "verify": "verify a run's stored images, or a folder of images, again",
    "certify": "compute radii within which the model provably keeps its class",
    "transfer": "test a run's adversarial images on other models: the transfer matrix",
    "merge": "join the shards of a run",
    "export": "write a run's records as csv or parquet, its images as PNG",
    "reproduce": "run the paper's tables and compare the numbers",
    "train": "train a network: regular, adversarial or certified",
    "fetch": "download data sets and weights ahead of time",
    "ls": "list attacks, distances, goals, models or data",
    "completion": "print a script that completes verbs, flags and names in your shell",
}

# Settings of attacks that users write as flags.
ATTACK_SETTINGS = ("steps", "distance", "loss", "restarts", "queries")


def overview() -> str:
    """What ``almakit --help`` prints."""
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {name.ljust(width)}  {text}" for name, text in VERBS.items())
    return f"""almakit finds the smallest change that makes a model wrong, in any distance, and verifies what it found.

usage: almakit VERB ...      almakit VERB --help explains a verb

verbs:
{verbs}

example:
  almakit run --model mnist/smallcnn-trades --data mnist --limit 200 --attack "ddn(steps=100)" --out runs/a

{EXIT_CODES}
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line and returns its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    hold_standard_places()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a folder's name need not be UTF-8
    out, err = Lasting(sys.stdout), Lasting(sys.stderr)
    try:
        # A reader that leaves, as that of `almakit run ... | head -1` does, must neither end the work nor decide the
        # exit code.
        with redirect_stdout(cast("TextIO", out)), redirect_stderr(cast("TextIO", err)):
            code = _outcome(words, own_process=arguments is None)
            out.flush()
            if out.lost and code == DONE:
                _say(f"the output could not be written ({out.lost}); the work itself is finished.")
                code = ERROR
            err.flush()
    finally:
        out.let_go()
        err.let_go()
    return code


def _outcome(words: list[str], own_process: bool = False) -> int:
    """The exit code of a command line; prints its errors as messages."""
    try:
        command = _parsed(words, own_process)
        return command if isinstance(command, int) else int(command[0].main(command[1]))
    except AlmakitError as error:
        _say(str(error))
        return _code(error)
    except KeyboardInterrupt as stop:
        _say(f"stopped{f' by {stop}' if str(stop) else ''}. {_how_to_resume(words)}")
        return INTERRUPTED
    except SystemExit as leaving:
        # Not raised by the verb: a user's model, data set or attack called exit(), possibly with 0, during the work.
        _say(
            f"your model, data set or attack called exit({leaving.code!r}) before the command had finished. "
            f"{_how_to_resume(words)}"
        )
        return ERROR
    except Exception as error:
        if os.environ.get("ALMAKIT_DEBUG"):
            traceback.print_exc()
        where = traceback.extract_tb(error.__traceback__)[-1]
        _say(
            f"unexpected {type(error).__name__}: {error} ({os.path.basename(where.filename)}, line {where.lineno}). "
            "Set ALMAKIT_DEBUG=1 for the full traceback. Finished work is stored."
        )
        return ERROR


def _parsed(words: list[str], own_process: bool) -> int | tuple[ModuleType, argparse.Namespace]:
    """The verb's module and its arguments, or the exit code where there is nothing to do."""
    if not words or words[0] in ("-h", "--help", "help"):
        print(overview(), end="")
        return DONE if words else USAGE
    if words[0] == "--version":
        print(f"almakit {VERSION}")
        return DONE
    verb = words[0]
    if verb not in VERBS:
        raise Usage(f"there is no verb {verb!r}; {suggestion(verb, VERBS)}")
    parser = parser_of(verb)
    try:
        parsed, rest = parser.parse_known_args(words[1:])
    except SystemExit as leaving:  # 0 after --help, 2 after a usage error
        return leaving.code if isinstance(leaving.code, int) else USAGE
    if rest:
        raise Usage(_unknown(verb, rest, parser))
    parsed.own_process = own_process  # whether it may change process-wide settings
    return import_module(f".{verb}", __package__), parsed


def _unknown(verb: str, rest: Sequence[str], parser: argparse.ArgumentParser) -> str:
    """The error for arguments that a verb does not know."""
    flag = next((word.partition("=")[0] for word in rest if word.startswith("--")), None)
    if flag is None:
        return f"almakit {verb} has no argument {rest[0]!r}; almakit {verb} --help lists all arguments."
    flags = [option for action in parser._actions for option in action.option_strings if option.startswith("--")]
    setting = SYNONYMS.get(flag[2:], flag[2:])
    hint = (
        f"did you mean --{setting}?" if f"--{setting}" in flags else suggestion(flag.replace("_", "-"), flags, most=1)
    )
    if setting == "epsilon" and "--attack" in flags:
        hint = '--epsilon linf=8/255 adds robust accuracy at a radius, --attack "pgd(epsilon=8/255)" attacks at one.'
    elif "--attack" in flags and setting in ATTACK_SETTINGS:
        hint = f'{setting} is part of an attack\'s text, --attack "ddn(steps=100)".'
    elif not hint.startswith("did"):
        hint = f"almakit {verb} --help lists all flags."
    return f"almakit {verb} has no flag {flag}; {hint}"


def _code(error: AlmakitError) -> int:
    if isinstance(error, (Usage, UnknownName, CodeNamed)):
        return USAGE
    return REFUSED if isinstance(error, Refused) else ERROR


def _how_to_resume(words: Sequence[str]) -> str:
    if words[:1] in (["run"], ["demo"], ["reproduce"], ["train"], ["certify"], ["transfer"]):
        return "Finished work is stored. Re-run the same command to resume."
    return "Nothing was changed."


def _say(sentence: str) -> None:
    print(f"almakit: {sentence}", file=sys.stderr, flush=True)
