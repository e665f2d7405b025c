"""What the site takes from the project itself: its navigation from the pages that exist, and the API reference from the registry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from almakit import registry

# In this order; a page that is not there yet is left out, one that is in no list comes last.
SECTIONS: dict[str, list[str]] = {
    "Begin": ["index.md", "quickstart.md", "choose.md", "gallery.md"],
    "Extend": ["add-distance.md", "add-attack.md", "add-model.md", "add-data.md"],
    "Evaluate": ["engine.md", "report.md", "brackets.md", "standard.md", "scale.md", "reliability.md", "security.md", "speed.md"],
    "Other libraries": ["bridges.md", "trackers.md"],
    "Notebooks": ["notebooks/first-evaluation.ipynb", "notebooks/own-distance.ipynb", "notebooks/compare-libraries.ipynb"],
    "Results": ["parity.md", "results.md", "alma-plus.md"],
    "Reference": ["cli.md", "api.md"],
}


def on_config(config: Any) -> Any:
    """Builds the navigation."""
    folder = Path(config["docs_dir"])
    listed = {page for pages in SECTIONS.values() for page in pages}
    nav: list[dict[str, list[str]]] = [
        {title: [page for page in pages if (folder / page).is_file()]} for title, pages in SECTIONS.items()
    ]
    more = sorted(path.name for path in folder.glob("*.md") if path.name not in listed)
    config["nav"] = [section for section in [*nav, {"More": more}] if next(iter(section.values()))]
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Puts every registered name in the place of its marker."""
    for kind in ("attacks", "distances", "penalties"):
        if f"<!-- every registered {kind} -->" in markdown:
            # Attacks stand at the top of the package; a page names what a reader writes.
            public = {target: f"almakit.{target.partition(':')[2]}" for target in registry.BUILT_IN["attacks"].values()}
            homes = dict.fromkeys(public.get(target, target.replace(":", ".")) for target in registry.BUILT_IN[kind].values())
            markdown = markdown.replace(f"<!-- every registered {kind} -->", "\n\n".join(f"::: {home}" for home in homes))
    return markdown
