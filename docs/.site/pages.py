"""The pages of the site that are made from the project: API reference, table of attacks, listing of commands.

mkdocs is not needed to import this module, so that the tests can check what the pages contain.
"""

from __future__ import annotations

import argparse

from almakit import registry
from almakit.cli.arguments import parser_of
from almakit.cli.main import VERBS

NAVIGATION: dict[str, list[str | dict[str, str]]] = {
    "Get started": [{"Overview": "index.md"}, "quickstart.md", "standard.md", "coming-from.md"],
    "Guides": [
        "guide-defence.md",
        "guide-compare.md",
        "guide-own.md",
        "goals.md",
        "add-model-and-data.md",
        "segmentation.md",
        "tables.md",
        "random-and-black-box.md",
        "guide-large.md",
        "report.md",
        {"Notebook: a first evaluation": "notebooks/first-evaluation.ipynb"},
        {"Notebook: your own distance": "notebooks/own-distance.ipynb"},
        {"Notebook: foolbox and AutoAttack": "notebooks/compare-libraries.ipynb"},
    ],
    "Reference": ["choose.md", "cli.md", "engine.md", "security.md", "api.md"],
    "Background": ["soft-walk.md", "results.md", "parity.md", "brackets.md", "speed-and-reliability.md"],
}
# Each page of the API reference: its title, and the objects it documents.
API: dict[str, tuple[str, list[str]]] = {
    "attack": (
        "attack, evaluate and results",
        [
            *("attack", "evaluate", "standard_evaluation", "StandardEvaluation", "open", "best_of", "transfer"),
            *("Result", "ImageResult", "Status", "Box", "EOT", "check_distance", "check_goal"),
        ],
    ),
    "attacks": ("Attacks", ["Attack", "attacks.get", "core.problem.Problem", "core.problem.Query"]),
    "distances": ("Distances", ["distances.base.Distance", "distances.base.Bound"]),
    "goals": ("Goals", ["goals.Goal"]),
    "penalties": ("Penalties", []),
    "models-and-data": ("Models and data", ["models.load", "data.load"]),
    "runs": ("Runs", ["Run", "runs.spec.RunSpec", "runs.store.records.Record"]),
    "bridges": (
        "Other libraries",
        [
            "bridges.foolbox.FoolboxAttack",
            "bridges.attackbench.as_function",
        ],
    ),
    "trackers": ("Trackers and errors", ["trackers.get", "trackers.numbers", "errors"]),
}
# Weight of a page in the site's search, by the beginning of its address. Guides answer most searches better than tables.
SEARCH = {"figures/": 0.1, "notebooks/": 0.3, "api/": 0.3, "standard.md": 2.0, "guide-own.md": 2.0}
# Pages that had another name: their old addresses lead to the new ones.
RENAMED = {
    "alma-plus": "soft-walk",
    "libraries": "coming-from",
    "bridges": "coming-from",
    "gallery": "report",
    "add-model": "add-model-and-data",
    "add-data": "add-model-and-data",
    "add-distance": "guide-own",
    "add-attack": "guide-own",
    "random": "random-and-black-box",
    "black-boxes": "random-and-black-box",
    "scale": "guide-large",
    "trackers": "guide-large",
    "speed": "speed-and-reliability",
    "reliability": "speed-and-reliability",
    "reproduce": "results",
}


def api_objects(name: str) -> list[str]:
    """Dotted names of the objects on a page of the API reference, every registered one of its kind at the end."""
    found = [f"almakit.{path}" for path in API[name][1]]
    if name in registry.BUILT_IN:
        targets = dict.fromkeys(registry.BUILT_IN[name].values())
        # Attacks are names of the package itself; a page shows what a reader writes.
        found += [f"almakit.{t.partition(':')[2]}" if name == "attacks" else t.replace(":", ".") for t in targets]
    return found


def api_page(name: str) -> str:
    """A page of the API reference, in the notation of mkdocstrings."""
    return "\n\n".join([f"# {API[name][0]}", *(f"::: {path}" for path in api_objects(name)), ""])


def attack_table() -> str:
    """Every registered attack: what it finds, what it costs, where it comes from."""
    rows = ["| attack | finds | distances | targeted | passes per image | source |", "|" + " :-- |" * 6]
    for name in registry.names("attacks"):
        kind = registry.get("attacks", name)
        cells = [
            f"[`{name}`](api/attacks.md#almakit.{kind.__name__})",
            "smallest change" if kind.minimal else "a point within a fixed ε",
            "any" if kind.does is None else " ".join(kind.does),
            "yes" if kind.can_target else "no",
            kind.cost,
            kind.paper,
        ]
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows)


def commands() -> str:
    """Every verb of the command line with its examples, arguments and flags, from the parsers."""
    return "\n".join(_verb(verb) for verb in VERBS)


def _verb(verb: str) -> str:
    parser = parser_of(verb, add_help=False)
    told = (parser.description or "").splitlines()
    prose = [line for line in told if not line.startswith("  ")]
    examples = [line.strip() for line in told if line.startswith("  ")]
    lines = [f"### {verb}\n", "\n".join(prose).strip() + "\n"]
    if examples:
        lines.append("```sh\n" + "\n".join(examples) + "\n```\n")
    if found := parser._actions:
        rows = "\n".join(f"| <code>{_call(action)}</code> | {_meaning(action)} |" for action in found)
        lines.append(f"| argument | meaning |\n| :-- | :-- |\n{rows}\n")
    return "\n".join(lines)


def _call(action: argparse.Action) -> str:
    """An argument as it is written: a flag with its value, or a position; a bar would end the cell of the table."""
    value = str(action.metavar or ("|".join(map(str, action.choices)) if action.choices else action.dest.upper()))
    value = value.replace("<", "&lt;").replace("|", "&#124;")
    if not action.option_strings:
        return f"[{value}]" if action.nargs in ("?", "*") else value
    flags = ", ".join(action.option_strings)
    return flags if action.nargs == 0 else f"{flags} {value}"


def _meaning(action: argparse.Action) -> str:
    text = (action.help or "").replace("%%", "%").replace("|", "\\|").replace("<", "&lt;")
    repeats = type(action).__name__ == "_AppendAction" and "repeat" not in text and "several times" not in text
    return text + ("; may be repeated" if repeats else "")


MARKERS = {"every attack": attack_table, "every command": commands}
"""What replaces a comment of this text in a page."""
