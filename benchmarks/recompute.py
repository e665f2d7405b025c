"""Is every number what it says? `python benchmarks/recompute.py [--json FILE]`: seven runs, their reports, and each number computed anew.

Makes runs (smallest change, fixed epsilon, targeted, every target, 8-bit, mixed, one chunk given up) with the shipped network on the shipped digits, exports
their records with `almakit export`, writes their reports with `almakit report`, and recomputes every number of tables.csv, tables.md, tables.tex,
summary.json and the page from the exported records alone, with NumPy and code of its own. Prints a table of numbers compared and differences.
The reports of several runs are checked together too: labels, blocks, the worst case over runs.
"""

from __future__ import annotations

import argparse
import base64
import csv
import html
import json
import re
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

TOLERANCE = 1e-9  # relative: both sides work in double precision
RESAMPLES = 1000
Rows = list[dict[str, str]]


class Check:
    """Counts what is compared, and keeps what differs."""

    def __init__(self) -> None:
        self.compared: dict[str, int] = defaultdict(int)
        self.differences: list[str] = []

    def same(self, where: str, what: str, mine: Any, theirs: Any, exact: bool = True) -> None:
        self.compared[where] += 1
        if isinstance(mine, float) and not np.isfinite(mine):
            mine = None
        if mine is None or theirs is None or isinstance(mine, str):
            equal = mine == theirs
        else:
            equal = abs(mine - theirs) <= TOLERANCE * max(1.0, abs(mine)) if exact else mine == theirs
        if not equal:
            self.differences.append(f"{where}: {what} is {theirs!r}, recomputed {mine!r}")


# The arithmetic, anew.


def quantile(values: np.ndarray, at: float) -> float:
    if not len(values):
        return np.nan
    ordered, place = np.sort(values), at * (len(values) - 1)
    low, share = int(place), place - int(place)
    if share == 0 or ordered[low] == ordered[low + 1]:
        return float(ordered[low])
    return float(ordered[low] * (1 - share) + ordered[low + 1] * share)


def ends(drawn: np.ndarray) -> tuple[float, float]:
    return quantile(drawn, 0.025), quantile(drawn, 0.975)


def share(flags: np.ndarray) -> dict[str, float]:
    """A share with the interval of binomial resampling."""
    if not len(flags):
        return {"value": np.nan, "low": np.nan, "high": np.nan}
    drawn = np.random.default_rng((0, 1)).binomial(len(flags), float(np.mean(flags)), RESAMPLES) / len(flags)
    low, high = ends(drawn)
    return {"value": float(np.mean(flags)), "low": low, "high": high}


def middle(values: np.ndarray, keep: np.ndarray | None = None) -> dict[str, float]:
    """A median with its interval: the middle of m draws lies where the k-th of m uniform numbers does."""
    source, images = np.sort(values if keep is None else values[keep]), len(values)
    if not len(source):
        return {"value": np.nan, "low": np.nan, "high": np.nan}
    generator = np.random.default_rng((0, 3))
    sizes = generator.binomial(images, len(source) / images, RESAMPLES)
    sizes = sizes[sizes > 0]
    rank = (sizes + 1) // 2
    lower = generator.beta(rank, sizes + 1 - rank)
    step = 1 - generator.random(len(sizes)) ** (1 / np.maximum(sizes - rank, 1))
    upper = np.where(sizes % 2 == 1, lower, lower + (1 - lower) * step)
    pick = [source[np.minimum((place * len(source)).astype(int), len(source) - 1)] for place in (lower, upper)]
    with np.errstate(invalid="ignore"):
        low, high = ends(np.where(pick[0] == pick[1], pick[0], (pick[0] + pick[1]) / 2))
    return {"value": quantile(source, 0.5), "low": low, "high": high}


class Attack:
    """One attack's exported records."""

    def __init__(self, rows: Rows):
        self.rows, self.text, self.distance = rows, rows[0]["attack"], rows[0]["distance_name"]
        self.epsilon = float(rows[0]["epsilon"]) if rows[0]["epsilon"] else None
        self.keys = [(int(row["image"]), int(row["target"] or -1)) for row in rows]
        self.attacked = np.array([row["status"] != "already-wrong" for row in rows])
        self.verified = np.array([self._verified(row, "") for row in rows])
        self.coarse = np.array([self._verified(row, "_8bit") for row in rows])

    @staticmethod
    def _verified(row: dict[str, str], kind: str) -> float:
        if row["status"] not in ("already-wrong", "success") or row[f"fooled{kind}"] != "True":
            return np.inf
        return 0.0 if row["status"] == "already-wrong" else float(row[f"measured{kind}"])

    def column(self, name: str, attacked: bool = False) -> np.ndarray:
        return np.array([float(row[name]) for row, mine in zip(self.rows, self.attacked, strict=True) if mine or not attacked])

    def robust(self, radius: float) -> np.ndarray | None:
        if self.epsilon is None:
            return self.verified > radius
        return np.isinf(self.verified) if abs(radius - self.epsilon) <= 1e-5 * radius else None

    def numbers(self) -> dict[str, Any]:
        found = {"success_rate": share(np.isfinite(self.verified)), "success_rate_8bit": share(np.isfinite(self.coarse)),
                 "forwards": self.column("forwards", True).mean(), "backwards": self.column("backwards", True).mean(),
                 "seconds": self.column("seconds").mean()}  # fmt: skip
        none = {"value": np.nan, "low": np.nan, "high": np.nan}
        smallest = self.epsilon is None
        found["median_all"] = middle(self.verified) if smallest else none
        found["median_attacked"] = middle(self.verified, self.attacked) if smallest else none
        found["median_all_8bit"] = middle(self.coarse) if smallest else none
        return found

    def optimality(self, best: dict[tuple[int, int], float]) -> float:
        """1 - (area under this curve - area under the best one) / (area under no attack's - that)."""
        if self.epsilon is not None:
            return np.nan
        known = np.minimum([best.get(key, np.inf) for key in self.keys], self.verified)
        if not np.isfinite(known).any() or (top := known[np.isfinite(known)].max()) <= 0:
            return np.nan
        ideal, here = np.minimum(known, top).mean(), np.minimum(self.verified, top).mean()
        scale = self.attacked.mean() * top - ideal
        return 1 - (here - ideal) / scale if scale > 1e-12 * top else np.nan


def best_known(attacks: list[Attack]) -> dict[str, dict[tuple[int, int], float]]:
    """Distance -> (image, target) -> the smallest distance any verified image has in it, whichever attack found it."""
    best: dict[str, dict[tuple[int, int], float]] = {attack.distance: {} for attack in attacks}
    for attack in attacks:
        for key, row, verified, attacked in zip(attack.keys, attack.rows, attack.verified, attack.attacked, strict=True):
            for name, known in best.items():
                value = verified if name == attack.distance else float(row[name]) if row.get(name) else np.inf
                if np.isfinite(verified):
                    known[key] = min(known.get(key, np.inf), value if attacked else 0.0)
    return best


def worst(attacks: list[Attack], radius: float) -> np.ndarray | None:
    """Which images (and targets) resist every attack within a radius; None where no attack says anything about it."""
    if not any(attack.robust(radius) is not None for attack in attacks):
        return None
    stands: dict[tuple[int, int], bool] = {}
    for attack in attacks:
        for key, verified in zip(attack.keys, attack.verified, strict=True):
            inside = verified <= radius if attack.epsilon is None or verified == 0 else np.isfinite(verified) and attack.epsilon <= radius * (1 + 1e-5)
            stands[key] = stands.get(key, True) and not inside
    return np.array([stands[key] for key in sorted(stands)])


# What a report shows, against that.


def check_json(check: Check, attacks: list[Attack], part: dict[str, Any], attack: Attack, best: dict[str, dict[tuple[int, int], float]]) -> None:
    mine = attack.numbers()
    for name in ("success_rate", "success_rate_8bit", "median_all", "median_attacked", "median_all_8bit"):
        for side in ("value", "low", "high"):
            check.same("summary.json", f"{attack.text} {name} {side}", mine[name][side], part[name][side])
    for name in ("forwards", "backwards"):
        values = attack.column(name, True)
        for side, value in (("mean", values.mean()), ("median", quantile(values, 0.5)), ("max", values.max()), ("total", values.sum())):
            check.same("summary.json", f"{attack.text} {name} {side}", float(value), part[name][side])
    check.same("summary.json", f"{attack.text} seconds", mine["seconds"], part["seconds"]["per_image"])
    check.same("summary.json", f"{attack.text} optimality", attack.optimality(best[attack.distance]), part.get("optimality", {}).get("value"))
    for status, count in part["status"].items():
        check.same("summary.json", f"{attack.text} {status}", sum(row["status"] == status for row in attack.rows), count)
    check.same("summary.json", f"{attack.text} records", len(attack.rows), part["records"])
    for row in part["robust_accuracy"]:
        flags = attack.robust(row["epsilon"])
        check.same("summary.json", f"{attack.text} speaks of {row['epsilon']}", flags is not None, True)
        for side, value in share(flags if flags is not None else np.array([])).items():
            check.same("summary.json", f"{attack.text} robust at {row['epsilon']} {side}", value, row[side])
    if attack.epsilon is None:
        for row in part["quantiles_all"]:
            check.same("summary.json", f"{attack.text} quantile {row['at']}", quantile(attack.verified, row["at"]), row["value"])
        finite = attack.verified[attack.attacked]
        check.same("summary.json", f"{attack.text} mean attacked", float(finite.mean()), part["mean_attacked"])
        check.same("summary.json", f"{attack.text} mean found", float(finite[np.isfinite(finite)].mean()), part["mean_found"])


def shown(value: float, digits: int) -> str:
    """As tables print a distance."""
    if not np.isfinite(value):
        return "–"
    return "0" if value == 0 else (f"{value:#.{digits}g}" if 1e-3 <= abs(value) < 1e6 else f"{value:.{digits - 2}e}").removesuffix(".")


def percent(value: float) -> str:
    return f"{100 * value:.1f}" if np.isfinite(value) else "–"


def cells_of(mine: dict[str, Any], optimality: float, robust: list[tuple[float, dict[str, float] | None]]) -> list[str]:
    """What every format prints of an attack: success, median, passes, seconds, optimality, robust accuracy."""
    cells = [percent(mine["success_rate"]["value"]), shown(mine["median_all"]["value"], 4), shown(mine["seconds"], 3), percent(optimality)]
    cells.append(f"{mine['forwards']:.0f} / {mine['backwards']:.0f}")
    return cells + [percent(value["value"]) for _, value in robust if value is not None]


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
        (line,) = (row for row in table if row["attack"].lstrip("'") == part["label"] and row["distance"] == attack.distance and row["goal"] == goal)
        mine, xi = attack.numbers(), attack.optimality(best[attack.distance])
        pairs = {"success_rate": mine["success_rate"]["value"], "median": mine["median_all"]["value"], "median_low": mine["median_all"]["low"],
                 "median_high": mine["median_all"]["high"], "median_attacked": mine["median_attacked"]["value"], "forwards": mine["forwards"],
                 "backwards": mine["backwards"], "seconds_per_image": mine["seconds"], "optimality": xi,
                 "success_rate_8bit": mine["success_rate_8bit"]["value"], "median_8bit": mine["median_all_8bit"]["value"]}  # fmt: skip
        for name, value in pairs.items():
            check.same("tables.csv", f"{part['label']} {name}", value, float(line[name]) if line[name] else None)
        robust = []
        for number, radius in enumerate(summary["radii"][attack.distance], 1):
            flags = attack.robust(radius)
            value = None if flags is None else share(flags)
            robust.append((radius, value))
            check.same("tables.csv", f"{part['label']} epsilon {number}", radius, float(line[f"epsilon_{number}"]))
            for side, ending in (("value", ""), ("low", "_low"), ("high", "_high")):
                text = line[f"robust_accuracy_{number}{ending}"]
                check.same("tables.csv", f"{part['label']} robust {radius} {side}", None if value is None else value[side], float(text) if text else None)
        check_text(check, "tables.md", part["label"], goal, cells_of(mine, xi, robust), markdown)
        check_text(check, "tables.tex", part["label"], goal, cells_of(mine, xi, robust), tex)
        named = f'title="{html.escape(attack.text)}">{html.escape(part["label"])}</th>'
        row = re.search(rf'<tr[^>]*>\s*<th scope="row" {re.escape(named)}(.*?)</tr>', body, re.S)
        check.same("page", f"{part['label']} has a row", True, row is not None)
        values = [float(text) if text else None for text in re.findall(r'data-v="([^"]*)"', row[1])] if row else []
        values = values[1:] if "Images</th>" in heading_of(body) else values
        wanted = [pairs["success_rate"], pairs["median"], *(None if value is None else value["value"] for _, value in robust)]
        wanted += [None] * (values_of_robust(body) - len(robust))
        wanted += [pairs["median_attacked"], pairs["forwards"] + pairs["backwards"], pairs["seconds_per_image"], xi, pairs["success_rate_8bit"]]
        for mine_value, theirs in zip(wanted, values, strict=True):
            check.same("page", f"{part['label']} row", mine_value, theirs)
    check_worst(check, attacks, [run["run"] for run, _ in parts], summary, table, body)
    for attack, entry in zip(attacks, data["attacks"], strict=True):
        stored = np.frombuffer(base64.b64decode(entry["cells"]), dtype="<f4")
        nearest: dict[int, float] = {}
        for (image, _), value in zip(attack.keys, attack.verified, strict=True):
            nearest[image] = min(nearest.get(image, np.inf), value)
        found = np.array([nearest[image] for image in sorted(nearest)], dtype=np.float32)
        check.same("page", f"{attack.text} curve", True, bool(np.array_equal(found, stored[~np.isnan(stored)])))
        if entry["fixed"]:
            check.same("page", f"{attack.text} marker", float(np.isinf(attack.verified).mean()), entry["fixed"]["value"])


def values_of_robust(body: str) -> int:
    """How many columns the page has for robust accuracy."""
    return len(re.findall(r'class="robust"', heading_of(body)))


def heading_of(body: str) -> str:
    """The heading of the page's table of results; other tables have columns of the same names."""
    return body.partition('class="sortable results"')[2].partition("</thead>")[0]


def check_text(check: Check, where: str, label: str, goal: str, wanted: list[str], lines: list[str]) -> None:
    """Every printed cell stands in the row of the attack."""
    plain = [re.sub(r"\\(.)", r"\1", line.replace("**", "").replace("\\mathbf{", "").replace("$\\epsilon$", "ε")) for line in lines]
    label = label.replace("×", "$times$") if where == "tables.tex" else label
    rows = [line.replace("--", "–").replace("}", "") for line in plain if f" {label} " in line]
    for cell in wanted:
        mantissa = cell.partition("e")[0]  # LaTeX writes powers of ten its own way
        check.same(where, f"{label}: {cell}", True, any(mantissa in row for row in rows))


def check_worst(check: Check, attacks: list[Attack], runs: list[dict[str, Any]], summary: dict[str, Any], table: Rows, body: str) -> None:
    groups: dict[tuple[str, str], list[Attack]] = defaultdict(list)
    for attack, run in zip(attacks, runs, strict=True):
        groups[attack.distance, f"targeted ({run['targets']})" if run["targets"] else "untargeted"].append(attack)
    check.same("summary.json", "blocks", len(groups), len(summary["worst_case"]))
    for entry in summary["worst_case"]:
        mine = groups[entry["distance"], entry["goal"]]
        check.same("summary.json", "attacks together", len(mine), entry["attacks"])
        lines = [row for row in table if row["attack"] == "all attacks" and row["distance"] == entry["distance"] and row["goal"] == entry["goal"]]
        for number, row in enumerate(entry["robust_accuracy"], 1):
            flags = worst(mine, row["epsilon"])
            value = {"value": None, "low": None, "high": None} if flags is None else share(flags)
            for side in ("value", "low", "high"):
                check.same("summary.json", f"all attacks at {row['epsilon']} {side}", value[side], row[side])
                if lines:
                    text = lines[0][f"robust_accuracy_{number}" + ("" if side == "value" else f"_{side}")]
                    check.same("tables.csv", f"all attacks at {row['epsilon']} {side}", value[side], float(text) if text else None)
            if value["value"] is not None:
                check.same("page", f"all attacks at {row['epsilon']}", True, f'data-v="{value["value"]!r}"' in body)


# The runs.


def make_runs(root: Path) -> dict[str, Path]:
    """Name -> run folder; through the public interface only."""
    from almakit.eval.engines.local import outcomes
    from almakit.eval.run import evaluate
    from almakit.eval.store import FailureRow

    def one_failed(bench: Any, keys: Any) -> Any:
        """The engine of one process, which gives one piece of work of the second attack up."""
        for key in keys:
            if key.attack == 1 and key.chunk == 1:
                yield FailureRow(key, len(bench.positions(key.chunk)), 3, "given up on purpose")
            else:
                yield from outcomes(bench, [key])

    l2, linf = "alma(distance=l2, steps=30)", "apgd(distance=linf, epsilon=0.1, steps=10)"
    settings: dict[str, dict[str, Any]] = {
        "smallest change": {"attacks": [l2, "ddn(steps=20)", "alma(distance=l1, steps=30)"]},
        "fixed epsilon": {"attacks": [linf, "pgd(distance=linf, epsilon=0.1, steps=10)", "pgd(distance=linf, epsilon=0.2, steps=10)"]},
        "targeted": {"attacks": [l2, "ddn(steps=20)"], "targets": "random", "epsilons": {"l2": [1, 1.5]}},
        "every target": {"attacks": ["ddn(steps=10)"], "targets": "all", "limit": 16},
        "8-bit": {"attacks": [l2, "ddn(steps=20)"], "bits": 8},
        "mixed": {"attacks": ["alma(distance=linf, steps=30)", linf, l2], "epsilons": {"linf": ["8/255", 0.1, 0.15], "l2": 1}},
        "one failed chunk": {"attacks": [l2, "ddn(steps=20)"], "engine": one_failed},
    }
    made = {}
    for name, more in settings.items():
        out = root / name.replace(" ", "-")
        evaluate("mnist/smallcnn-tiny", "mnist-demo", out=out, batch_size=32, preflight=False, **more)
        made[name] = out
    return made


def read(folder: Path) -> list[Attack]:
    by_attack: dict[str, Rows] = {}
    with (folder / "records.csv").open(newline="") as opened:
        for row in csv.DictReader(opened):
            by_attack.setdefault(row["attack"], []).append(row)
    return [Attack(rows) for rows in by_attack.values()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the counts here")
    args = parser.parse_args()
    from almakit.eval.export import export_csv
    from almakit.eval.folder import Run
    from almakit.report.write import write_report

    answer: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        folders = make_runs(root)
        reports = {name: [folder] for name, folder in folders.items()}
        reports["four together"] = [folders[name] for name in ("smallest change", "8-bit", "targeted", "mixed")]
        for name, parts in reports.items():
            check, place = Check(), root / f"report-{name.replace(' ', '-')}"
            for folder in parts:
                export_csv(Run(folder), folder / "records.csv")
            write_report(parts, place, with_figures=False)
            check_report(check, place, [read(folder) for folder in parts])
            counts = ", ".join(f"{where} {count}" for where, count in sorted(check.compared.items()))
            print(f"{name:18} {sum(check.compared.values()):5d} numbers, {len(check.differences)} differences   ({counts})")
            for difference in check.differences[:20]:
                print(f"    {difference}")
            answer[name] = {"numbers": dict(check.compared), "differences": len(check.differences)}
    total, wrong = sum(sum(row["numbers"].values()) for row in answer.values()), sum(row["differences"] for row in answer.values())
    print(f"{'all':18} {total:5d} numbers, {wrong} differences")
    if args.json:
        args.json.write_text(json.dumps(answer, indent=1) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
