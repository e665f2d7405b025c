"""What a report shows (summary.json, tables.csv, tables.md, tables.tex, the page, a run's own table) against the
numbers of `recompute_anew.py`."""

from __future__ import annotations

import base64
import csv
import html
import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.recompute.anew import Attack, Check, Rows, best_known, images_of, quantile, share, worst
from benchmarks.recompute.board import check_parts


def check_json(
    check: Check,
    attacks: list[Attack],
    part: dict[str, Any],
    attack: Attack,
    best: dict[str, dict[tuple[int, int], float]],
) -> None:
    mine = attack.numbers()
    for name in ("success_rate", "success_rate_8bit", "median_all", "median_attacked", "median_all_8bit"):
        for side in ("value", "low", "high"):
            check.same("summary.json", f"{attack.text} {name} {side}", mine[name][side], part[name][side])
    for name in ("forwards", "backwards"):
        values = attack.column(name, True)
        for side, value in (
            ("mean", values.mean()),
            ("median", quantile(values, 0.5)),
            ("max", values.max()),
            ("total", values.sum()),
        ):
            check.same("summary.json", f"{attack.text} {name} {side}", float(value), part[name][side])
    check.same("summary.json", f"{attack.text} seconds", mine["seconds"], part["seconds"]["per_image"])
    check.same(
        "summary.json",
        f"{attack.text} optimality",
        attack.optimality(best[attack.distance]),
        part.get("optimality", {}).get("value"),
    )
    for status, count in part["status"].items():
        check.same(
            "summary.json", f"{attack.text} {status}", sum(row["status"] == status for row in attack.rows), count
        )
    check.same("summary.json", f"{attack.text} records", len(attack.rows), part["records"])
    for row in part["robust_accuracy"]:
        flags = attack.robust(row["epsilon"])
        check.same("summary.json", f"{attack.text} speaks of {row['epsilon']}", flags is not None, True)
        for side, value in attack.share(flags if flags is not None else np.array([])).items():
            check.same("summary.json", f"{attack.text} robust at {row['epsilon']} {side}", value, row[side])
    if attack.epsilon is None:
        for row in part["quantiles_all"]:
            check.same(
                "summary.json",
                f"{attack.text} quantile {row['at']}",
                quantile(attack.verified, row["at"]),
                row["value"],
            )
        finite = attack.verified[attack.attacked]
        check.same("summary.json", f"{attack.text} mean attacked", float(finite.mean()), part["mean_attacked"])
        check.same(
            "summary.json", f"{attack.text} mean found", float(finite[np.isfinite(finite)].mean()), part["mean_found"]
        )


def shown(value: float, digits: int) -> str:
    """As tables print a distance."""
    if not np.isfinite(value):
        return "∞"
    return (
        "0"
        if value == 0
        else (f"{value:#.{digits}g}" if 1e-3 <= abs(value) < 1e6 else f"{value:.{digits - 2}e}").removesuffix(".")
    )


def percent(value: float) -> str:
    return f"{100 * value:.1f}" if np.isfinite(value) else "–"


def ends_of(value: dict[str, float], form: Any) -> str:
    return f"{form(value['value'])} ({form(value['low'])} to {form(value['high'])})"


def cells_of(mine: dict[str, Any], optimality: float, robust: list[tuple[float, dict[str, float] | None]]) -> list[str]:
    """What the formats for people print of an attack: success, median, passes, seconds, optimality, robust accuracy."""
    cells = [ends_of(mine["success_rate"], percent), f"{mine['forwards']:.0f}", f"{mine['backwards']:.0f}"]
    cells += [f"{float(format(mine['seconds'], '.3g')):g}"]
    if np.isfinite(mine["median_all"]["value"]):
        cells.append(ends_of(mine["median_all"], lambda value: shown(value, 4)))
    if np.isfinite(optimality):
        cells.append(percent(optimality))
    return cells + [ends_of(value, percent) for _, value in robust if value is not None]


def check_report(check: Check, place: Path, runs: list[list[Attack]]) -> None:
    """All formats of a report over one run or several of the same model and images."""
    attacks = [attack for run in runs for attack in run]
    best: dict[str, dict[tuple[int, int], float]] = defaultdict(dict)
    for run in runs:
        for name, known in best_known(run).items():
            for key, value in known.items():
                best[name][key] = min(value, best[name].get(key, np.inf))
    summary = json.loads((place / "summary.json").read_text())
    table = list(csv.DictReader((place / "tables.csv").read_text().splitlines()))
    page = (place / "index.html").read_text()
    markdown, tex = (place / "tables.md").read_text().splitlines(), (place / "tables.tex").read_text().splitlines()
    parts = [(run, part) for run in summary["runs"] for part in run["attacks"]]
    check.same("summary.json", "attacks", len(attacks), len(parts))
    data = json.loads(re.search(r'id="report-data">(.*?)</script>', page, re.S)[1])  # type: ignore[index]
    body = re.sub(r"<script.*", "", page, flags=re.S)
    for attack, (_, part) in zip(attacks, parts, strict=True):
        check_json(check, attacks, part, attack, best)
        goal = part["goal"]
        (line,) = (
            row
            for row in table
            if row["attack"].lstrip("'") == part["label"] and row["distance"] == attack.distance and row["goal"] == goal
        )
        mine, xi = attack.numbers(), attack.optimality(best[attack.distance])
        pairs = {
            "success_rate": mine["success_rate"]["value"],
            "success_rate_low": mine["success_rate"]["low"],
            "success_rate_high": mine["success_rate"]["high"],
            "median": mine["median_all"]["value"],
            "median_low": mine["median_all"]["low"],
            "median_high": mine["median_all"]["high"],
            "median_attacked": mine["median_attacked"]["value"],
            "forwards": mine["forwards"],
            "backwards": mine["backwards"],
            "seconds_per_image": mine["seconds"],
            "optimality": xi,
            "success_rate_8bit": mine["success_rate_8bit"]["value"],
            "median_8bit": mine["median_all_8bit"]["value"],
        }
        for name, value in pairs.items():
            check.same("tables.csv", f"{part['label']} {name}", value, float(line[name]) if line[name] else None)
        robust = []
        for number, radius in enumerate(summary["radii"][attack.distance], 1):
            flags = attack.robust(radius)
            value = None if flags is None else attack.share(flags)
            robust.append((radius, value))
            check.same("tables.csv", f"{part['label']} epsilon {number}", radius, float(line[f"epsilon_{number}"]))
            for side, ending in (("value", ""), ("low", "_low"), ("high", "_high")):
                text = line[f"robust_accuracy_{number}{ending}"]
                check.same(
                    "tables.csv",
                    f"{part['label']} robust {radius} {side}",
                    None if value is None else value[side],
                    float(text) if text else None,
                )
        cells = cells_of(mine, xi, robust)
        check_text(check, "tables.md", part["label"], cells, markdown)
        main = [cell for cell in cells if cell != percent(xi)]
        check_text(check, "tables.tex", part["label"], [re.sub(r"\((.*) to (.*)\)", r"[\1, \2]", c) for c in main], tex)
        check_page(check, body, attack, part, pairs, robust)
    groups = check_worst(check, attacks, [run["run"] for run, _ in parts], summary, table, body)
    labels = {id(attack): part["label"] for attack, (_, part) in zip(attacks, parts, strict=True)}
    check_parts(check, body, groups, labels)
    for attack, entry in zip(attacks, data["attacks"], strict=True):
        stored = np.frombuffer(base64.b64decode(entry["cells"]), dtype="<f4")
        nearest: dict[int, float] = {}
        for (image, _), value in zip(attack.keys, attack.verified, strict=True):
            nearest[image] = min(nearest.get(image, np.inf), value)
        found = np.array([nearest[image] for image in sorted(nearest)], dtype=np.float32)
        check.same("page", f"{attack.text} curve", True, bool(np.array_equal(found, stored[~np.isnan(stored)])))
        if entry["fixed"]:
            check.same(
                "page", f"{attack.text} marker", float(np.isinf(attack.verified).mean()), entry["fixed"]["value"]
            )


def check_page(
    check: Check,
    body: str,
    attack: Attack,
    part: dict[str, Any],
    pairs: dict[str, Any],
    robust: list[tuple[float, dict[str, float] | None]],
) -> None:
    """The attack's row in the page's table of its block, cell by cell as the headings name them."""
    named = f'title="{html.escape(attack.text)}">{html.escape(part["label"])}</th>'
    nearest: dict[int, float] = {}
    for (image, _), value in zip(attack.keys, attack.verified, strict=True):
        nearest[image] = min(nearest.get(image, np.inf), value)
    values = np.array(list(nearest.values()))
    wanted = dict(pairs) | {"images": len(nearest), "best_target_median": quantile(values, 0.5)}
    wanted["best_target_success_rate"] = float(np.isfinite(values).mean())
    for number, (_, value) in enumerate(robust, 1):
        wanted[f"robust_accuracy_{number}"] = None if value is None else value["value"]
    tables = [text for text in body.split('class="sortable results"')[1:] if named in text.partition("</table>")[0]]
    check.same("page", f"{part['label']} has a row", True, len(tables) > 0)
    for text in tables[:1]:
        names = re.findall(r'data-name="(\w+)"', text.partition("</thead>")[0])[1:]
        cells = re.findall(r'data-v="([^"]*)"', text.partition(named)[2].partition("</tr>")[0])
        check.same("page", f"{part['label']} columns", True, {"success_rate", "forwards"} <= set(names))
        for name, cell in zip(names, cells, strict=True):
            check.same("page", f"{part['label']} {name}", wanted[name], float(cell) if cell else None)


def check_text(check: Check, where: str, label: str, wanted: list[str], lines: list[str]) -> None:
    """Every printed cell stands in the row of the attack."""
    label = label.replace("×", r"$\times$").replace("ε", r"$\epsilon$") if where == "tables.tex" else label
    plain = [
        re.sub(
            r"\\textbf\{([^}]*)\}|\{\\scriptsize (\[[^]]*\])\}|\\([()\[\]_*])", r"\1\2\3", line.replace("**", "")
        ).replace("$\\infty$", "∞")
        for line in lines
    ]
    rows = [line for line in plain if f"{label} " in line]
    for cell in wanted:
        mantissa = cell.partition("e")[0]  # LaTeX writes powers of ten its own way
        check.same(where, f"{label}: {cell}", True, any(mantissa in row for row in rows))


def check_worst(
    check: Check, attacks: list[Attack], runs: list[dict[str, Any]], summary: dict[str, Any], table: Rows, body: str
) -> list[tuple[list[Attack], list[float]]]:
    """The rows "all attacks"; returns the attacks of each block with its radii."""
    groups: dict[tuple[str, str], list[Attack]] = defaultdict(list)
    for attack, run in zip(attacks, runs, strict=True):
        groups[attack.distance, f"targeted ({run['targets']})" if run["targets"] else "untargeted"].append(attack)
    check.same("summary.json", "blocks", len(groups), len(summary["worst_case"]))
    for entry in summary["worst_case"]:
        mine = groups[entry["distance"], entry["goal"]]
        check.same("summary.json", "attacks together", len(mine), entry["attacks"])
        lines = [
            row
            for row in table
            if row["attack"] == "all attacks" and row["distance"] == entry["distance"] and row["goal"] == entry["goal"]
        ]
        for number, row in enumerate(entry["robust_accuracy"], 1):
            flags = worst(mine, row["epsilon"])
            value = {"value": None, "low": None, "high": None} if flags is None else share(flags, images_of(mine))
            for side in ("value", "low", "high"):
                check.same("summary.json", f"all attacks at {row['epsilon']} {side}", value[side], row[side])
                if lines:
                    text = lines[0][f"robust_accuracy_{number}" + ("" if side == "value" else f"_{side}")]
                    check.same(
                        "tables.csv",
                        f"all attacks at {row['epsilon']} {side}",
                        value[side],
                        float(text) if text else None,
                    )
            if value["value"] is not None:
                check.same("page", f"all attacks at {row['epsilon']}", True, f'data-v="{value["value"]!r}"' in body)
    return [
        (groups[entry["distance"], entry["goal"]], summary["radii"][entry["distance"]])
        for entry in summary["worst_case"]
    ]
