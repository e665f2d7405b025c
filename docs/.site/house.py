"""The drawing of the house, from the imports themselves: ``python docs/.site/house.py > docs/figures/house.svg``.

A room stands above every room it imports. Solid lines are imports at the top of a file, dashed ones wait inside
functions; a line that follows from two others is left out. What everybody may use (errors, names, version) is not
drawn.
"""

from __future__ import annotations

import ast
import html
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from test_imports import COMMON, FILES, imports_of, lazy_imports, module_of

WIDTH, HEIGHT, GAP, RISE = 200, 62, 24, 64
FACE = {"api", ""}  # files beside the rooms that are what a user imports
Edges = dict[str, set[str]]


def room_of(module: str) -> str:
    top = module.partition(".")[0]
    return "almakit" if top in FACE else top


def edges() -> tuple[Edges, Edges]:
    """Which room knows which: at the top of files, and inside functions only."""
    top: Edges = {}
    late: Edges = {}
    for path in FILES:
        here = room_of(module_of(path))
        if here in COMMON or here == "__main__":
            continue
        inside = {room_of(name) for _, names in lazy_imports(path) for name in names if not name.startswith("*")}
        known = {room_of(name) for name in imports_of(path)[0]}
        for rooms, kept in ((known - inside, top), (inside, late)):
            kept.setdefault(here, set()).update(room for room in rooms if room != here and room not in COMMON)
    # The package itself is what everything lies in.
    for kept in (top, late):
        for room, known in kept.items():
            known.discard("almakit" if room != "cli" else "")
    return top, {room: known - top[room] for room, known in late.items()}


def without_circles(top: Edges, late: Edges) -> None:
    """Where rooms know each other in a circle, the line that closes it, seen from the command line, is drawn as one
    inside a function."""
    done: set[str] = set()

    def walk(room: str, above: tuple[str, ...]) -> None:
        for other in sorted(top[room]):
            if other in (*above, room):
                top[room].discard(other)
                late[room].add(other)
            elif other not in done:
                walk(other, (*above, room))
        done.add(room)

    for room in sorted(top, key=lambda name: (name != "cli", name)):
        if room not in done:
            walk(room, ())


def floors(top: Edges, late: Edges) -> dict[str, int]:
    """How far below the roof a room stands: below all that know it, where that can be."""

    def below(room: str) -> set[str]:
        return set().union(*({other} | below(other) for other in top[room])) if top[room] else set()

    depth = dict.fromkeys(top, 0)
    for _ in top:
        for room in top:
            for other in top[room] | {name for name in late[room] if room not in below(name)}:
                depth[other] = max(depth[other], depth[room] + 1)
    # What nobody knows stands just above the highest room it knows.
    known = set().union(*top.values(), *late.values())
    alone = [room for room in top if room not in known and room != "cli" and top[room]]
    return depth | {room: max(min(depth[other] for other in top[room]) - 1, 0) for room in alone}


def needed(top: Edges) -> Edges:
    """Without the lines that follow from two others."""

    def reach(room: str) -> set[str]:
        return set().union(*({other} | reach(other) for other in top[room])) if top[room] else set()

    return {
        room: {other for other in known if not any(other in reach(middle) for middle in known - {other})}
        for room, known in top.items()
    }


def told(room: str) -> str:
    """The first words of a room about itself."""
    if room == "almakit":
        return "the public face: attack, evaluate, open, every name"
    path = ROOT / "src" / "almakit" / room
    text = (
        ast.get_docstring(ast.parse(((path / "__init__.py") if path.is_dir() else path.with_suffix(".py")).read_text()))
        or ""
    )
    return text.split(". ")[0].split("\n")[0].split(": ")[0].split("; ")[0].replace("``", "").rstrip(".:")


def drawing() -> str:
    top, late = edges()
    without_circles(top, late)
    depth = floors(top, late)
    rows = [sorted(room for room in top if depth[room] == level) for level in range(max(depth.values()) + 1)]
    across = max(map(len, rows)) * (WIDTH + GAP) + GAP
    place = {}
    for y, row in enumerate(rows):
        # A little to the side on every other floor, so that long lines pass between rooms.
        left = (across - len(row) * (WIDTH + GAP) + GAP) / 2 + (WIDTH / 3 if y % 2 else -WIDTH / 3) * (
            len(row) < max(map(len, rows))
        )
        place |= {room: (left + x * (WIDTH + GAP), GAP + y * (HEIGHT + RISE)) for x, room in enumerate(row)}
    whole = GAP * 2 + len(rows) * HEIGHT + (len(rows) - 1) * RISE
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {across:g} {whole:g}" font-family="sans-serif" '
        'role="img" '
        'aria-label="The rooms of almakit and who knows whom">',
        f'<rect width="{across:g}" height="{whole:g}" fill="#fff"/>',
    ]
    for known, dash in ((needed(top), ""), (late, ' stroke-dasharray="5 4"')):
        for room in sorted(known):
            for other in sorted(known[room]):
                (x, y), (u, v) = place[room], place[other]
                below = v > y
                begin, end = (y + HEIGHT, v) if below else (y, v + HEIGHT)
                bend = (end - begin) / 2
                parts.append(
                    f'<path d="M{x + WIDTH / 2:g} {begin:g}c0 {bend:g} {u - x:g} {bend:g} {u - x:g} {end - begin:g}" '
                    'fill="none" '
                    f'stroke="{"#56657a" if not dash else "#b0574a"}" stroke-width="1.3"{dash}/>'
                )
    for room, (x, y) in place.items():
        parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{WIDTH}" height="{HEIGHT}" rx="6" fill="#eef2f8" stroke="#56657a"/>'
        )
        parts.append(
            f'<text x="{x + WIDTH / 2:g}" y="{y + 19:g}" text-anchor="middle" font-size="15" '
            f'font-weight="bold">{room}</text>'
        )
        for line, words in enumerate(textwrap.wrap(told(room), 32)[:2]):
            parts.append(
                f'<text x="{x + WIDTH / 2:g}" y="{y + 36 + 15 * line:g}" text-anchor="middle" '
                f'font-size="11">{html.escape(words)}</text>'
            )
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    print(drawing(), end="")
