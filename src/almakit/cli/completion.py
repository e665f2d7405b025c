"""Prints a script that completes verbs, flags and names in your shell.

  bash   almakit completion bash > ~/.local/share/bash-completion/completions/almakit
  zsh    almakit completion zsh > "${fpath[1]}/_almakit"
  fish   almakit completion fish > ~/.config/fish/completions/almakit.fish
"""

from __future__ import annotations

import argparse
from importlib import import_module

from .. import registry
from .main import DONE, VERBS

FILES = "\0files"  # stands for whatever files there are


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell to complete in")


def main(args: argparse.Namespace) -> int:
    print({"bash": bash, "zsh": zsh, "fish": fish}[args.shell](), end="")
    return DONE


def actions(verb: str) -> list[argparse.Action]:
    """The flags and arguments of a verb, without --help."""
    parser = argparse.ArgumentParser(prog=f"almakit {verb}", add_help=False)
    import_module(f".{verb}", __package__).add_arguments(parser)
    return list(parser._actions)


def values(action: argparse.Action) -> list[str]:
    """What may follow a flag, or stand for an argument; ``FILES`` for files, nothing where only the user knows."""
    if action.choices:
        return [str(choice) for choice in action.choices]
    if action.dest in ("attacks", "attack", "add"):
        return registry.names("attacks")
    if action.dest == "track":
        return [f"{name}:" for name in registry.names("trackers")]
    if action.dest == "model":
        from ..models.zoo import ZOO

        return [*ZOO, FILES]
    if action.dest == "data":
        from ..data import names

        return [*names(), "folder:", FILES]
    return [FILES] if action.dest in ("out", "config", "folder", "folders", "targets") else []


def takes_value(action: argparse.Action) -> bool:
    return bool(action.option_strings) and action.nargs != 0


def bash() -> str:
    """A function for bash's ``complete``."""
    lines = [
        "# almakit completion for bash", "_almakit() {",
        '    local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" verb="${COMP_WORDS[1]}"', "    COMPREPLY=()",
        '    if [ "$COMP_CWORD" -eq 1 ]; then',
        f'        COMPREPLY=($(compgen -W "{" ".join([*VERBS, "--help", "--version"])}" -- "$word")); return', "    fi", '    case "$verb $before" in',
    ]  # fmt: skip
    for verb in VERBS:
        for action in actions(verb):
            if takes_value(action):
                names = "|".join(f'"{verb} {flag}"' for flag in action.option_strings)
                lines.append(f"        {names}) {_bash_reply(values(action))}; return ;;")
    lines += ["    esac", '    case "$verb" in']
    for verb in VERBS:
        flags = [flag for action in actions(verb) for flag in action.option_strings]
        places = [value for action in actions(verb) if not action.option_strings for value in values(action)]
        words = " ".join([*flags, "--help", *(value for value in places if value != FILES)])
        more = ' COMPREPLY+=($(compgen -f -- "$word"))' if FILES in places else ""
        lines.append(f'        {verb}) COMPREPLY=($(compgen -W "{words}" -- "$word"));{more} ;;')
    return "\n".join([*lines, "    esac", "}", "complete -o filenames -F _almakit almakit", ""])


def _bash_reply(found: list[str]) -> str:
    words = " ".join(value for value in found if value != FILES)
    files = ' COMPREPLY+=($(compgen -f -- "$word"))' if FILES in found or not found else ""
    return f'COMPREPLY=($(compgen -W "{words}" -- "$word"));{files}'.rstrip(";")


def zsh() -> str:
    """bash's function, through zsh's own translation of it."""
    return f"#compdef almakit\nautoload -U +X bashcompinit && bashcompinit\n{bash()}"


def fish() -> str:
    """One ``complete`` line for each verb and flag."""
    lines = ["# almakit completion for fish", "complete -c almakit -f"]
    for verb, text in VERBS.items():
        lines.append(f"complete -c almakit -n __fish_use_subcommand -a {verb} -d {_quoted(text)}")
        for action in actions(verb):
            found = values(action)
            words = f" -a {_quoted(' '.join(value for value in found if value != FILES))}" if [v for v in found if v != FILES] else ""
            files = " -F" if FILES in found else ""
            here = f"complete -c almakit -n '__fish_seen_subcommand_from {verb}'"
            if not action.option_strings:
                lines.append(f"{here}{words}{files}")
            for flag in action.option_strings:
                needs = " -r" if takes_value(action) else ""
                lines.append(f"{here} -l {flag.lstrip('-')}{needs}{words}{files} -d {_quoted((action.help or '').replace('%%', '%'))}")
    return "\n".join([*lines, ""])


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
