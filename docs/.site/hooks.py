"""What the site takes from the project itself: the pages of ``pages.py``, KaTeX from npm, redirects."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

sys.path.insert(0, str(Path(__file__).resolve().parent))
from pages import API, MARKERS, NAVIGATION, RENAMED, SEARCH, api_page

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


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Replaces the markers of generated tables and sets the page's weight in the search."""
    for start, weight in SEARCH.items():
        if page.file.src_uri.startswith(start):
            page.meta["search"] = {"boost": weight}
    for marker, text in MARKERS.items():
        if f"<!-- {marker} -->" in markdown:
            markdown = markdown.replace(f"<!-- {marker} -->", text())
    return markdown
