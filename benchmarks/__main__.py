"""``python -m benchmarks`` lists what can be measured; ``python -m benchmarks NAME [PART] ...`` measures it; with
``--help`` it tells the flags."""

from __future__ import annotations

import difflib
import sys
from dataclasses import dataclass
from importlib import import_module


@dataclass(frozen=True)
class Part:
    """A measurement: its module, what it measures, how long that takes on one core, the file in results/ and the
    page in docs/ that it writes."""

    module: str
    about: str
    takes: str
    kept: str = ""
    page: str = ""

    def line(self) -> str:
        written = ", ".join(
            text for text in (self.kept and f"results/{self.kept}", self.page and f"docs/{self.page}") if text
        )
        return f"{self.about} ({self.takes}{f'; {written}' if written else ''})"


BENCHMARKS: dict[str, dict[str, Part]] = {
    "quality": {
        "attacks": Part(
            "quality.attacks",
            "every attack that minimises, ours and others', on the same images at equal budgets",
            "hours",
            "quality.json",
            "figures/quality.md",
        ),
        "photos": Part("quality.photos", "64 photos and a network from a package through the command line", "20 min"),
        "kwta": Part("quality.kwta", "trains the k-WTA network among the subjects", "5 min", "mnist-kwta.safetensors"),
    },
    "walk": {
        "ablation": Part(
            "walk.ablation",
            "what each piece of the soft walk is worth",
            "hours",
            "ablation.json",
            "figures/ablation.md",
        ),
        "sealed": Part(
            "walk.sealed",
            "the soft walk on networks nothing was chosen on",
            "hours",
            "sealed.json",
            "figures/sealed.md",
        ),
        "spread": Part(
            "walk.spread", "how much rounding moves its distances", "20 min", "spread.json", "figures/spread.md"
        ),
        "picture": Part("walk.picture", "its picture in two dimensions", "10 s", page="pictures/walk.png"),
        "pool": Part("pool.networks", "the pool's networks: a table of them, or their training", "minutes each"),
    },
    "baselines": {
        "networks": Part(
            "baselines.networks",
            "other papers' attacks as we have them beside other libraries' and the paper's tables",
            "hours",
            "baselines.json",
            "figures/parity.md",
        ),
        "standard": Part(
            "baselines.standard",
            "the standard ensemble beside AutoAttack",
            "3 min",
            "standard.json",
            "figures/standard.md",
        ),
    },
    "brackets": {
        "bounds": Part(
            "brackets.bounds",
            "certified radii beside found distances, attacks beside exact ones",
            "an hour",
            "brackets.json",
            "brackets.md",
        ),
        "law": Part(
            "brackets.law", "no attack succeeds below a certified radius", "more than an hour", "brackets_law.json"
        ),
    },
    "libraries": {
        "bridges": Part(
            "libraries.bridges",
            "other libraries' attacks in our runs, ours in theirs",
            "8 min",
            "bridges.json",
            "figures/bridges.md",
        ),
        "six-tasks": Part(
            "libraries.six_tasks",
            "six tasks in four libraries, in lines of code",
            "2 min",
            "six_tasks.json",
            "figures/six-tasks.md",
        ),
        "black-box": Part(
            "libraries.black_box", "attacks without gradients beside other libraries'", "10 min", "black_box.json"
        ),
    },
    "faults": {
        "injected": Part(
            "faults.injected",
            "hundreds of faults thrown at real runs, each followed by a resume",
            "an hour",
            "faults.json",
            "figures/reliability.md",
        ),
        "fuzz": Part(
            "faults.fuzz", "the fuzzers of the tests for longer", "16 min", "fuzz.json", "figures/reliability.md"
        ),
        "kills": Part(
            "faults.kills", "a run killed at random moments against one left alone", "5 min", "kill_resume.json"
        ),
        "soak": Part(
            "faults.soak", "memory and file handles over mixed runs", "40 min", "soak.json", "figures/reliability.md"
        ),
    },
    "speed": {
        "rows": Part(
            "speed.rows",
            "ratios of time and memory against other libraries and bare passes",
            "an hour",
            "speed.json",
            "figures/speed.md",
        ),
        "guard": Part("speed.guard", "whether anything has become slower than the kept rows", "5 min"),
        "distances": Part(
            "speed.distances", "each perceptual distance with its gradient against adv-lib's", "2 min", "distances.json"
        ),
        "overhead": Part("speed.overhead", "what the engine costs on top of the bare attack", "5 min", "overhead.json"),
        "machine": Part(
            "speed.machine", "whole commands on the whole machine against adv-lib", "15 min", "machine.json", "scale.md"
        ),
        "tolerance": Part(
            "speed.tolerance", "what --budget auto saves and costs", "an hour", "tolerance.json", "engine.md"
        ),
    },
    "parity": {
        "parity": Part(
            "parity",
            "our ALMA beside the authors' library and their paper",
            "1.5 h",
            "parity.json",
            "figures/parity.md",
        )
    },
    "recompute": {
        "recompute": Part(
            "recompute.numbers", "every number of reports and boards computed anew", "2 min", "recompute.json"
        )
    },
    "scale": {
        "engine": Part(
            "scale.engine", "what a run can do at most, and a capacity model", "3 min", "scale.json", "figures/scale.md"
        ),
        "report": Part("scale.report", "time and memory of a report of 10 000 images", "3 min", "report_scale.json"),
    },
    "segmentation": {
        "segmentation": Part(
            "segmentation",
            "smallest changes that make 99 % of the pixels wrong, ours and adv-lib's",
            "hours",
            "segmentation.json",
        )
    },
    "paper": {
        "tables": Part(
            "paper.tables",
            "the paper's tables from runs of almakit reproduce",
            "seconds",
            "reproduce-*.json",
            "figures/results.md",
        ),
        "claim": Part(
            "paper.claim",
            "one attack for any distance against specialised ones, at equal queries and seconds",
            "seconds; --time an hour",
            "claim.json",
            "results.md",
        ),
        "deviations": Part(
            "paper.deviations",
            "the authors' library on the images where ours is off the paper by more than 3 %",
            "20 min",
            "deviations.json",
            "results.md",
        ),
        "pictures": Part("paper.pictures", "the pictures of README and docs", "20 min", page="pictures"),
    },
}


def listing() -> str:
    """All benchmarks, a line for each part."""
    lines = [
        "python -m benchmarks NAME [PART] ...      --help after it tells the flags; the first part is the default",
        "",
    ]
    for name, parts in BENCHMARKS.items():
        for number, (part, facts) in enumerate(parts.items()):
            words = "" if part == name else part
            lines.append(f"{name if number == 0 else '':13} {words:10} {facts.line()}")
    return "\n".join(lines)


def main(given: list[str]) -> int:
    if not given or given[0] in ("-h", "--help"):
        print(listing())
        return 0
    name, *rest = given
    if name not in BENCHMARKS:
        near = difflib.get_close_matches(name, BENCHMARKS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(BENCHMARKS)}."
        print(f"there is no benchmark {name!r}; {hint}", file=sys.stderr)
        return 2
    parts = BENCHMARKS[name]
    part = rest.pop(0) if rest and rest[0] in parts else next(iter(parts))
    sys.argv = [f"python -m benchmarks {name}{'' if part == name else f' {part}'}", *rest]
    return import_module(f"benchmarks.{parts[part].module}").main() or 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
