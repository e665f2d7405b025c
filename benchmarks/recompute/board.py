"""What the board and the page's smaller tables show, against the numbers of `recompute_anew.py`."""

from __future__ import annotations

import base64
import html
import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.recompute.anew import Attack, Check, images_of, middle, middle_over_images, quantile, share, worst

SIDES = ("value", "low", "high")
NONE = dict.fromkeys(SIDES)


def check_board(check: Check, place: Path, runs: dict[str, list[Attack]]) -> None:
    """board.json and index.html; ``runs``: folder name -> its attacks."""
    numbers, page = json.loads((place / "board.json").read_text()), (place / "index.html").read_text()
    data = json.loads(re.search(r'id="report-data">(.*?)</script>', page, re.S)[1])  # type: ignore[index]
    matrices = re.findall(r'<table class="matrix">(.*?)</table>', page, re.S)
    for table, embedded in zip(numbers["tables"], data["tables"], strict=True):
        for model in table["models"]:
            parts = [attack for run in model["runs"] for attack in runs[table["runs"][run]["folder"]]]
            for side, value in share(clean(parts)).items():
                check.same("board", f"{model['name']} clean {side}", value, model["clean_accuracy"][side])
        for block, curves in zip(table["blocks"], embedded["blocks"], strict=True):
            lines = re.findall(r"<tr>.*?</tr>", matrices.pop(0).partition("<tbody>")[2], re.S)
            for row, packed, line in zip(block["rows"], curves["rows"], lines, strict=True):
                check_row(check, table, block, row, packed, line, runs)


def check_row(
    check: Check, table: Any, block: Any, row: Any, packed: Any, line: str, runs: dict[str, list[Attack]]
) -> None:
    """One model's line: all attacks together, then each attack."""
    name, mine = table["models"][row["model"]]["name"], []
    static = [float(text) if text else None for text in re.findall(r'data-v="([^"]*)"', line)]
    first = block["radii"][0]["epsilon"] if block["radii"] else None
    for place, (head, cell) in enumerate(zip(block["attacks"], row["cells"], strict=True)):
        if cell is None:
            check.same("board", f"{name} {head['label']} has no number", None, static[place + 1])
            continue
        here = [
            attack
            for attack in runs[table["runs"][cell["run"]]["folder"]]
            if attack.text == head["text"] and attack.distance == block["distance"]
        ]
        attack = here[0]
        mine.append(attack)
        what, found = f"{name} {head['label']}", attack.numbers()
        check.same("board", f"{what} epsilon", attack.epsilon, cell["epsilon"])
        for entry in cell["robust_accuracy"]:
            compare(check, f"{what} robust at {entry['epsilon']}", attack.share(attack.robust(entry["epsilon"])), entry)  # type: ignore[arg-type]
        compare(check, f"{what} median", found["median_all"], cell["median"])
        check.same("board", f"{what} passes", found["forwards"] + found["backwards"], cell["passes"])
        check.same("board", f"{what} seconds", found["seconds"], cell["seconds"])
        flags = None if first is None else attack.robust(first)
        check.same("board", f"{what} as first shown", None if flags is None else float(flags.mean()), static[place + 1])
        check_curve(check, what, attack.verified if attack.epsilon is None else None, packed["cells"][place]["curve"])
    together, entry = f"{name} all attacks", row["all"]
    check.same("board", f"{together} count", len(mine), entry["attacks"])
    for at in entry["robust_accuracy"]:
        flags = worst(mine, at["epsilon"])
        compare(check, f"{together} at {at['epsilon']}", NONE if flags is None else share(flags, images_of(mine)), at)
    minimal = [attack for attack in mine if attack.epsilon is None]
    compare(check, f"{together} median", middle_of(minimal) if minimal else NONE, entry["median"])
    check.same(
        "board",
        f"{together} passes",
        sum(a.numbers()["forwards"] + a.numbers()["backwards"] for a in mine),
        entry["passes"],
    )
    check.same("board", f"{together} seconds", sum(a.numbers()["seconds"] for a in mine), entry["seconds"])
    check_curve(check, together, nearest(mine) if minimal else None, packed["all"]["curve"])
    flags = None if first is None else worst(mine, first)
    check.same("board", f"{together} as first shown", None if flags is None else float(flags.mean()), static[0])


def compare(check: Check, what: str, mine: dict[str, Any], theirs: dict[str, Any]) -> None:
    for side in SIDES:
        check.same("board", f"{what} {side}", mine[side], theirs[side])


def check_curve(check: Check, what: str, values: np.ndarray | None, stored: str | None) -> None:
    same = (
        values is None
        if stored is None
        else np.array_equal(np.sort(values).astype("<f4"), np.frombuffer(base64.b64decode(stored), dtype="<f4"))
    )  # type: ignore[arg-type]
    check.same("board", f"{what} curve", True, bool(same))


def clean(attacks: list[Attack]) -> np.ndarray:
    """Which images are classified as labelled."""
    right = {int(row["image"]): row["clean_prediction"] == row["label"] for attack in attacks for row in attack.rows}
    return np.array([right[image] for image in sorted(right)])


def nearest(attacks: list[Attack]) -> np.ndarray:
    """The smallest distance of each image (and target) over these attacks; what one at a fixed radius breaks counts
    from that radius on."""
    best: dict[tuple[int, int], float] = {}
    for attack in attacks:
        for key, value in zip(attack.keys, attack.verified, strict=True):
            known = value if attack.epsilon is None or not 0 < value < np.inf else attack.epsilon
            best[key] = min(best.get(key, np.inf), known)
    return np.array([best[key] for key in sorted(best)])


def middle_of(attacks: list[Attack]) -> dict[str, float]:
    """The median of ``nearest``, with its interval over images."""
    images = images_of(attacks)
    if len(set(images)) == len(images):
        return middle(nearest(attacks))
    return middle_over_images(nearest(attacks), images, sorted(set(images)))


# The page's table of models and radii, its tables of classes, its figures at the head.


def check_parts(
    check: Check, body: str, groups: list[tuple[list[Attack], list[float]]], labels: dict[int, str]
) -> None:
    """``groups``: the attacks of each block of a one-model report in its order, with the block's radii; ``labels``:
    id(attack) -> its label."""
    attacks = [attack for mine, _ in groups for attack in mine]
    standing = body.partition('class="sortable standing"')[2].partition("<tbody>")[2].partition("</tbody>")[0]
    wanted: list[float | None] = [float(clean(attacks).mean())]
    for mine, radii in groups:
        wanted += [None if (flags := worst(mine, at)) is None else float(flags.mean()) for at in radii]
    values = [float(text) if text else None for text in re.findall(r'data-v="([^"]*)"', standing)]
    if any(radii for _, radii in groups):
        for mine_value, theirs in zip(wanted, values, strict=True):
            check.same("page", "all attacks, model and radius", mine_value, theirs)
    check.same(
        "page",
        "clean accuracy at the head",
        True,
        f"<dd>{100 * float(clean(attacks).mean()):.1f}<small> %</small></dd>" in body,
    )
    claims = [row for attack in attacks for row in attack.rows if row["status"] == "success"]
    good = sum(row["fooled"] == "True" for row in claims)
    check.same(
        "page",
        "successes confirmed",
        True,
        f"<dd>{good}<small> / {len(claims)}</small></dd>" in body.replace("\u2009", ""),
    )
    portraits = body.split('class="sortable classes"')[1:]
    minimal = [([attack for attack in mine if attack.epsilon is None], radii) for mine, radii in groups]
    for (mine, radii), portrait in zip([part for part in minimal if part[0]], portraits, strict=True):
        check_classes(check, portrait, mine, radii, labels)


def check_classes(
    check: Check, portrait: str, attacks: list[Attack], radii: list[float], labels: dict[int, str]
) -> None:
    found: dict[
        int, list[tuple[float, dict[str, str]]]
    ] = {}  # image -> its nearest target's distance and record, attack by attack
    for attack in attacks:
        mine: dict[int, tuple[float, dict[str, str]]] = {}
        for (image, _), value, row in zip(attack.keys, attack.verified, attack.rows, strict=True):
            if image not in mine or value < mine[image][0]:
                mine[image] = (value, row)
        for image, pair in mine.items():
            found.setdefault(image, []).append(pair)
    best = {image: min(pairs, key=lambda pair: pair[0]) for image, pairs in found.items()}
    tables = re.findall(r"<tbody>(.*?)</tbody>", portrait, re.S)
    rows = re.findall(r'<tr><th scope="row">(.*?)</th>(.*?)</tr>', tables[0], re.S)
    for label, (name, cells) in zip(sorted({int(row["label"]) for _, row in best.values()}), rows, strict=True):
        here = [pair for pair in best.values() if int(pair[1]["label"]) == label]
        values = np.array([value for value, _ in here])
        check.same("page", f"class {label} is called", here[0][1]["label_name"] or str(label), html.unescape(name))
        wanted = [
            float(len(here)),
            float(np.mean([row["clean_prediction"] == row["label"] for _, row in here])),
            quantile(values, 0.5),
        ]
        wanted += [float((values > at).mean()) for at in radii]
        for mine_value, text in zip(wanted, re.findall(r'data-v="([^"]*)"', cells), strict=True):
            check.same("page", f"class {label}", mine_value, float(text) if text else None)
    if len(attacks) > 1:
        open_ = [pairs for pairs in found.values() if 0 < min(value for value, _ in pairs) < np.inf]
        for place, (name, cells) in enumerate(
            re.findall(r'<tr><th scope="row">(.*?)</th>(.*?)</tr>', tables[-1], re.S)
        ):
            near = sum(
                len(pairs) > place and pairs[place][0] <= min(value for value, _ in pairs) * 1.001 for pairs in open_
            )
            check.same("page", f"nearest attack {place}", labels[id(attacks[place])], html.unescape(name))
            check.same(
                "page", f"nearest attack {place} count", float(near), float(re.findall(r'data-v="([^"]*)"', cells)[0])
            )


def check_terminal(check: Check, text: str, attacks: list[Attack], labels: list[str]) -> None:
    """The table that `almakit run` prints: every number stands under its heading in the attack's lines."""
    tables: dict[str, list[dict[str, str]]] = {}
    for block in text.split("\n\n"):
        lines = block.splitlines()
        rule = next((place for place, line in enumerate(lines) if re.fullmatch(r"-+(  -+)+", line)), None)
        if rule is not None:
            spans = [(found.start(), found.end()) for found in re.finditer("-+", lines[rule])]
            tables.setdefault(re.split(r"[ ,]", lines[0])[0], []).extend(rows_of(lines, rule, spans))
    for attack, label in zip(attacks, labels, strict=True):
        found = attack.numbers()
        (row,) = (row for row in tables[attack.distance] if row["attack"] == label)
        wanted = {
            "success %": cell_of(found["success_rate"], percent),
            "forward passes": f"{found['forwards']:.0f}",
            "backward passes": f"{found['backwards']:.0f}",
            "seconds per image": f"{float(format(found['seconds'], '.3g')):g}",
        }
        if attack.epsilon is None:
            wanted["median distance"] = cell_of(found["median_all"], figure)
        for head in row:
            if at := re.search(r" at (\S+) %", head):
                over, _, under = at[1].partition("/")
                flags = attack.robust(float(over) / float(under or 1))
                wanted[head] = "-" if flags is None else cell_of(attack.share(flags), percent)
        for head, cell in wanted.items():
            theirs = re.sub(r" \((\S+) to (\S+)\)", r" \1-\2", row[head])
            check.same("table", f"{label} {head}", cell, theirs)


def rows_of(lines: list[str], rule: int, spans: list[tuple[int, int]]) -> list[dict[str, str]]:
    """The rows of a printed table; a line whose first cells go on belongs to the row above."""
    cells = [[line[start:end].strip() for start, end in spans] for line in lines]
    heads = [" ".join(row[k] for row in cells[1:rule] if row[k]) for k in range(len(spans))]
    rows: list[list[str]] = []
    for row in cells[rule + 1 :]:
        if len(row) > 2 and row[-1]:
            rows.append(row)
        else:
            rows[-1] = [f"{above} {here}".strip() for above, here in zip(rows[-1], row, strict=True)]
    return [dict(zip(heads, row, strict=True)) for row in rows]


def percent(value: float) -> str:
    return f"{100 * value:.1f}"


def figure(value: float) -> str:
    return "inf" if np.isinf(value) else "0" if value == 0 else f"{value:#.4g}".removesuffix(".")


def cell_of(value: dict[str, float], form: Any) -> str:
    return f"{form(value['value'])} {form(value['low'])}-{form(value['high'])}"
