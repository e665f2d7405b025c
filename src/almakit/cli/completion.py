"""Prints a script that completes verbs, flags and names in your shell.

almakit completion bash > ~/.local/share/bash-completion/completions/almakit
almakit completion zsh > "${fpath[1]}/_almakit"
almakit completion fish > ~/.config/fish/completions/almakit.fish
"""

from __future__ import annotations

import argparse
from importlib import import_module

from .. import registry
from ..errors import optional
from .arguments import DONE, add
from .main import VERBS

ARGUMENTS = (("shell", ("bash", "zsh", "fish", "tcsh", "powershell"), "the shell to complete in"),)


def main(args: argparse.Namespace) -> int:
    shtab = optional("shtab", "completion needs shtab: pip install 'almakit[cli]'.")
    print(shtab.complete(whole_parser(shtab.FILE), args.shell))
    return DONE


def whole_parser(file: object) -> argparse.ArgumentParser:
    """All verbs in one parser, each argument with the names that may stand there or with ``file``, shtab's mark of one;
    it does not parse."""
    parser = argparse.ArgumentParser(prog="almakit")
    parser.add_argument("--version", action="store_true", help="print the version")
    verbs = parser.add_subparsers()
    for verb, text in VERBS.items():
        sub = verbs.add_parser(verb, help=text)
        add(sub, import_module(f".{verb}", __package__).ARGUMENTS)
        for action in sub._actions:
            action.choices = action.choices or _names(action.dest)
            if not action.choices and action.dest in ("out", "config", "folder", "folders", "targets"):
                action.complete = file  # type: ignore[attr-defined]
    return parser


def _names(dest: str) -> list[str] | None:
    if dest in ("attack", "add"):
        return registry.names("attacks")
    if dest == "track":
        return [f"{name}:" for name in registry.names("trackers")]
    if dest == "model":
        return list(import_module("almakit.models.zoo").ZOO)
    if dest == "data":
        return [*import_module("almakit.data").names(), "folder:"]
    return None
