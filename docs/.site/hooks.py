"""What the site takes from the project itself: navigation, API pages and the tables of attacks and commands from the
registry and the parsers, KaTeX from npm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

from almakit import registry
from almakit.cli import reference

NAVIGATION: dict[str, list[str]] = {
    "Get started": ["index.md", "quickstart.md", "standard.md", "coming-from.md"],
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
        "notebooks/first-evaluation.ipynb",
        "notebooks/own-distance.ipynb",
        "notebooks/compare-libraries.ipynb",
    ],
    "Reference": ["choose.md", "cli.md", "engine.md", "security.md", "api.md"],
    "Background": ["soft-walk.md", "results.md", "parity.md", "brackets.md", "speed-and-reliability.md"],
}
# Each page of the API reference: its title, and the objects it documents.
API: dict[str, tuple[str, list[str]]] = {
    "attack": (
        "attack, evaluate and results",
        ["attack", "evaluate", "standard_evaluation", "StandardEvaluation", "open", "best_of", "transfer"]
        + ["Result", "ImageResult", "Status", "Box", "EOT", "check_distance", "check_goal"],
    ),
    "attacks": ("Attacks", ["Attack", "attacks.get", "core.problem.Problem", "core.problem.Query"]),
    "distances": ("Distances", ["distances.base.Distance", "distances.base.Bound"]),
    "goals": ("Goals", ["goals.Goal"]),
    "penalties": ("Penalties", []),
    "models-and-data": ("Models and data", ["models.load", "data.load"]),
    "runs": ("Runs", ["Run", "runs.spec.RunSpec", "runs.store.records.Record"]),
    "bridges": (
        "Other libraries",
        ["bridges.foolbox.FoolboxAttack", "bridges.torchattacks.TorchattacksAttack", "bridges.art.ARTAttack"]
        + ["bridges.attackbench.as_function"],
    ),
    "trackers": ("Trackers and errors", ["trackers.get", "errors"]),
}
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
# KaTeX as npm gives it: ``make docs`` puts it there.
KATEX = Path(__file__).resolve().parents[2] / "build" / "npm" / "node_modules" / "katex" / "dist"


def on_config(config: Any) -> Any:
    """Builds the navigation."""
    figures = sorted(f"figures/{path.name}" for path in (Path(config["docs_dir"]) / "figures").glob("*.md"))
    nav: list[dict[str, Any]] = [{title: list(pages)} for title, pages in NAVIGATION.items()]
    nav[2]["Reference"].append({"API by module": [f"api/{name}.md" for name in API]})
    nav[3]["Background"].append({"Tables of figures": figures})
    config["nav"] = nav
    return config


def on_files(files: Any, config: Any) -> Any:
    """Adds the API pages, KaTeX, its script, the style sheet and redirects. Pages load nothing from other hosts."""
    if not (KATEX / "katex.min.js").is_file():
        raise PluginError(
            f"KaTeX is not in {KATEX.parents[3]}; make docs fetches it, or npm install --prefix build/npm katex."
        )
    here = Path(__file__).resolve().parent
    places = {
        "katex/katex.min.css": KATEX / "katex.min.css",
        "katex/katex.min.js": KATEX / "katex.min.js",
        "katex/auto-render.min.js": KATEX / "contrib" / "auto-render.min.js",
    }
    places |= {f"katex/fonts/{font.name}": font for font in sorted((KATEX / "fonts").glob("*.woff2"))}
    places |= {"mathematics.js": here / "mathematics.js", "site.css": here / "site.css"}
    for uri, path in places.items():
        files.append(File.generated(config, uri, abs_src_path=str(path)))
    for name in API:
        files.append(File.generated(config, f"api/{name}.md", content=api_page(name)))
    for old, new in RENAMED.items():
        refresh = f'<meta http-equiv="refresh" content="0; url=../{new}/">'
        page = f'<!doctype html><meta charset="utf-8">{refresh}<a href="../{new}/">{new}</a>'
        files.append(File.generated(config, f"{old}/index.html", content=page))
    return files


def api_page(name: str) -> str:
    """A page of the API reference; those of attacks, distances, goals and penalties end with every registered one."""
    title, objects = API[name]
    found = [f"almakit.{path}" for path in objects]
    if name in registry.BUILT_IN:
        targets = dict.fromkeys(registry.BUILT_IN[name].values())
        # Attacks stand at the top of the package; a page names what a reader writes.
        found += [f"almakit.{t.partition(':')[2]}" if name == "attacks" else t.replace(":", ".") for t in targets]
    return "\n\n".join([f"# {title}", *(f"::: {path}" for path in found), ""])


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


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Puts the tables of attacks and commands in the place of their markers."""
    for marker, text in (("every attack", attack_table), ("every command", reference.commands)):
        if f"<!-- {marker} -->" in markdown:
            markdown = markdown.replace(f"<!-- {marker} -->", text())
    return markdown
