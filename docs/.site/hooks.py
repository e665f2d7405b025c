"""What the site takes from the project itself: its navigation from the pages that exist, the API reference from the
registry, and KaTeX from npm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

from almakit import registry

# In this order; a page that is not there yet is left out, one that is in no list comes last.
SECTIONS: dict[str, list[str]] = {
    "Begin": ["index.md", "quickstart.md", "gallery.md"],
    "Guides": ["guide-defence.md", "guide-compare.md", "guide-own.md", "guide-large.md", "report.md"],
    "Notebooks": [
        "notebooks/first-evaluation.ipynb",
        "notebooks/own-distance.ipynb",
        "notebooks/compare-libraries.ipynb",
    ],
    "Reference": [
        "choose.md",
        "goals.md",
        "segmentation.md",
        "tables.md",
        "random.md",
        "black-boxes.md",
        "add-distance.md",
        "add-attack.md",
        "add-model.md",
        "add-data.md",
        "engine.md",
        "standard.md",
        "scale.md",
        "bridges.md",
        "trackers.md",
        "security.md",
        "reproduce.md",
        "cli.md",
        "api.md",
        "architecture.md",
        "decisions.md",
    ],
    "Background": [
        "soft-walk.md",
        "brackets.md",
        "parity.md",
        "results.md",
        "reliability.md",
        "speed.md",
        "libraries.md",
    ],
    "Figures": [],
}
# Pages that had another name: their old addresses lead to the new ones.
RENAMED = {"alma-plus": "soft-walk"}
# KaTeX as npm gives it: ``make docs`` puts it there.
KATEX = Path(__file__).resolve().parents[2] / "build" / "npm" / "node_modules" / "katex" / "dist"


def on_config(config: Any) -> Any:
    """Builds the navigation."""
    folder = Path(config["docs_dir"])
    SECTIONS["Figures"] = sorted(f"figures/{path.name}" for path in (folder / "figures").glob("*.md"))
    listed = {page for pages in SECTIONS.values() for page in pages}
    nav: list[dict[str, list[str]]] = [
        {title: [page for page in pages if (folder / page).is_file()]} for title, pages in SECTIONS.items()
    ]
    more = sorted(path.name for path in folder.glob("*.md") if path.name not in listed)
    config["nav"] = [section for section in [*nav, {"More": more}] if next(iter(section.values()))]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Adds KaTeX, its script, the style sheet and redirects. Pages load nothing from other hosts."""
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
    for old, new in RENAMED.items():
        refresh = f'<meta http-equiv="refresh" content="0; url=../{new}/">'
        page = f'<!doctype html><meta charset="utf-8">{refresh}<a href="../{new}/">{new}</a>'
        files.append(File.generated(config, f"{old}/index.html", content=page))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Puts every registered name in the place of its marker."""
    for kind in ("attacks", "distances", "penalties"):
        if f"<!-- every registered {kind} -->" in markdown:
            # Attacks stand at the top of the package; a page names what a reader writes.
            public = {target: f"almakit.{target.partition(':')[2]}" for target in registry.BUILT_IN["attacks"].values()}
            homes = dict.fromkeys(
                public.get(target, target.replace(":", ".")) for target in registry.BUILT_IN[kind].values()
            )
            markdown = markdown.replace(
                f"<!-- every registered {kind} -->", "\n\n".join(f"::: {home}" for home in homes)
            )
    return markdown
