"""The page of a reproduction, paper.html, and the remarks above its tables. No torch here."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from pathlib import Path

from ..report.palette import css
from . import layout, typeset
from .grid import SAMPLES


def remarks(dataset: str, sentences: Sequence[str]) -> str:
    """What the columns mean, and a line for each sentence about what is left out or not finished."""
    return "\n".join(
        [
            "Success and median are over all images: already wrong counts 0, nothing found infinite; – is a median "
            "that is not defined, because fewer than half of the images were fooled. Forwards and backwards are per "
            f"attacked image. Ratio is our median over the paper's, which is of {SAMPLES[dataset]} images.",
            *(f"- {sentence}" for sentence in sentences),
        ]
    )


def page(
    head: str,
    notes: str,
    means: Sequence[layout.Table],
    single: Sequence[layout.Table],
    pictures: Sequence[Path],
    sentence: str,
    fewer: bool,
) -> str:
    """One page that needs nothing from outside; the pictures are inside it. ``fewer``: there is a second report, of
    runs with fewer images."""
    style = (
        f"{css()} "
        "body{font:15px/1.5 system-ui,sans-serif;background:var(--page);color:var(--text);"
        "max-width:72rem;margin:2rem auto;padding:0 1rem}"
        "table{border-collapse:collapse;font-variant-numeric:tabular-nums}td,th{padding:.2rem "
        ".6rem;text-align:right;border-bottom:1px solid var(--line)}"
        "td:first-child,th:first-child{text-align:left}div{overflow-x:auto}img{max-width:100%;background:#fff}a{color:var(--accent)}"
    )
    images = "".join(
        f'<h3>{html.escape(path.stem)}</h3><img alt="{html.escape(path.stem)}" '
        f'src="data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}">\n'
        for path in pictures
    )
    lines = "".join(f"<p>{html.escape(line)}</p>\n" for line in notes.split("\n"))
    links = '<p><a href="index.html">Curves, images and every number of the runs</a>'
    links += ', <a href="costly/index.html">the same for the attacks on fewer images</a></p>' if fewer else "</p>"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        'content="width=device-width">'
        f"<title>{html.escape(head)}</title>\n<style>{style}</style></head>\n<body><h1>{html.escape(head)}</h1>\n{lines}{links}\n"
        f"{'<h2>Geometric means</h2>' if means else ''}{typeset.web_tables(means)}\n<h2>Model by "
        f"model</h2>\n{typeset.web_tables(single)}\n"
        f"{'<h2>Figures</h2>' if images else ''}{images}<p>{html.escape(sentence)}</p></body></html>\n"
    )
