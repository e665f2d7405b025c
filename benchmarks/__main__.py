"""``python -m benchmarks`` lists what can be measured; ``python -m benchmarks NAME [PART] ...`` measures it; with
``--help`` it tells the flags.

A part is a module of ``benchmarks/NAME``. ``options(parser)`` adds its flags. One that keeps results has
``measure(results, args)``, which may return an exit code, and where there is something to show ``sections(results,
args)``: the texts of the docs page by the names of their markers. Any other has ``main(args)``.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType

from benchmarks import DOCS, RESULTS

TABLE = """
quality attacks | every minimising attack at equal budgets | hours | quality.json | figures/quality.md
quality kwta | trains the k-WTA network among the subjects | 5 min | mnist-kwta.safetensors
walk ablation | what each piece of the soft walk is worth | hours | ablation.json | figures/ablation.md
walk sealed | the soft walk on networks nothing was chosen on | hours | sealed.json | figures/sealed.md
walk spread | how much rounding moves its distances | 20 min | spread.json | figures/spread.md
walk cost | its processor time outside the model | 2 min
walk picture | its picture in two dimensions | 10 s | | pictures/walk.png
walk pool | a table of the pool's networks, or their training | minutes each
baselines networks | other papers' attacks beside other libraries' | hours | baselines.json | figures/parity.md
baselines linear | the same on linear models with a known optimum | an hour | baselines.json | figures/parity.md
baselines standard | robust accuracy at one radius beside AutoAttack | 3 h | standard.json | standard.md
brackets bounds | certified radii and exact distances beside found ones | an hour | brackets.json | brackets.md
brackets law | no attack succeeds below a certified radius | more than an hour | brackets_law.json
libraries bridges | other libraries' attacks in our runs, ours in theirs | 8 min | bridges.json | figures/bridges.md
libraries six-tasks | six tasks in four libraries, in lines of code | 2 min | six_tasks.json | figures/six-tasks.md
libraries black-box | attacks without gradients beside other libraries' | 10 min | black_box.json
faults injected | hundreds of faults thrown at real runs, and resumes | an hour | faults.json | figures/reliability.md
faults fuzz | the fuzzers of the tests for longer | 16 min | fuzz.json | figures/reliability.md
faults kills | a run killed at random moments against one left alone | 5 min | kill_resume.json
faults soak | memory and file handles over mixed runs | 40 min | soak.json | figures/reliability.md
faults ties | 8-bit robust accuracy beside counting grey levels | 3 min | ties.json | figures/reliability.md
faults numbers | situations in which numbers could be silently wrong | 3 min | numbers.json | figures/reliability.md
speed rows | time and memory against other libraries and bare passes | an hour | speed.json | figures/speed.md
speed guard | whether anything has become slower than the kept rows | 5 min
speed machine | whole commands on the whole machine against adv-lib | 15 min | machine.json | guide-large.md
speed launches | operators and reads per query where reading is expensive | a minute | launches.json
size | lines, statements, frames to the model and parameters of the source | 10 s
parity | our ALMA beside the authors' library and their paper | 1.5 h | parity.json | figures/parity.md
recompute | every number of reports and boards computed anew | 2 min | recompute.json
scale engine | what a run can do at most, and a capacity model | 3 min | scale.json | figures/scale.md
scale report | time and memory of a report of 10 000 images | 3 min | report_scale.json
segmentation | 99 % of the pixels wrong, ours and adv-lib's | hours | segmentation.json
paper tables | the paper's tables from runs of almakit reproduce | seconds | reproduce-*.json | figures/results.md
paper claim | one attack for any distance against specialised ones | seconds | claim.json | results.md
paper deviations | the authors' library where ours is off the paper | 20 min | deviations.json | results.md
paper pictures | the pictures of README and docs | 20 min | | pictures
"""


@dataclass(frozen=True)
class Part:
    """What it measures, how long on one core, the file in results/ and the page in docs/ that it writes."""

    name: str
    about: str
    takes: str
    kept: str = ""
    page: str = ""

    @property
    def module(self) -> str:
        return f"benchmarks.{self.name.replace(' ', '.').replace('-', '_')}"


PARTS = [Part(*(cell.strip() for cell in line.split("|"))) for line in TABLE.strip().splitlines()]
NAMES = list(dict.fromkeys(part.name.split()[0] for part in PARTS))


def listing() -> str:
    """All benchmarks, a line for each part."""
    lines = [
        "python -m benchmarks NAME [PART] ...   --help tells the flags; the first part runs where none is named",
        "",
    ]
    for part in PARTS:
        written = [*([f"results/{part.kept}"] if part.kept else []), *([f"docs/{part.page}"] if part.page else [])]
        lines.append(f"{part.name:20} {part.about} ({'; '.join([part.takes, *written])})")
    return "\n".join(lines)


def chosen(given: list[str]) -> tuple[Part, list[str]]:
    """The part that the words name, and the flags after it."""
    if given[0] not in NAMES:
        near = difflib.get_close_matches(given[0], NAMES, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(NAMES)}."
        print(f"there is no benchmark {given[0]!r}; {hint}", file=sys.stderr)
        raise SystemExit(2)
    for part in PARTS:
        if part.name == " ".join(given[:2]) and " " in part.name:
            return part, given[2:]
    return next(part for part in PARTS if part.name.split()[0] == given[0]), given[1:]


def parsed(part: Part, module: ModuleType, flags: list[str]) -> argparse.Namespace:
    """The flags that all parts share, and the part's own."""
    parser = argparse.ArgumentParser(f"python -m benchmarks {part.name}", description=module.__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    shared = parser.add_argument_group("what is kept and shown")
    if hasattr(module, "measure"):
        shared.add_argument("--out", type=Path, default=RESULTS / part.kept, help=f"default: results/{part.kept}")
    if hasattr(module, "sections"):
        shared.add_argument("--table", action="store_true", help="measure nothing, show what is kept")
        if part.page:
            shared.add_argument("--docs", action="store_true", help=f"also write it into docs/{part.page}")
    if hasattr(module, "options"):
        module.options(parser)
    return parser.parse_args(flags)


def run(part: Part, module: ModuleType, args: argparse.Namespace) -> int:
    """Measures and keeps, prints, and writes the page."""
    import torch

    from almakit.errors import AlmakitError
    from benchmarks import common

    torch.set_num_threads(1)
    try:
        if hasattr(module, "main"):
            return module.main(args) or 0
        code, shows = 0, hasattr(module, "sections")
        results = common.Results(args.out, must_exist=shows and args.table)
        if not (shows and args.table):
            code = module.measure(results, args) or 0
        found: dict[str, str] = module.sections(results, args) if shows else {}
    except AlmakitError as error:
        print(error, file=sys.stderr)
        return 1
    if found:
        print("\n\n".join(found.values()))
    for name, text in found.items() if found and part.page and args.docs else ():
        common.replace_section(DOCS / part.page, name, text)
    return code


def main(given: list[str]) -> int:
    if not given or given[0] in ("-h", "--help"):
        print(listing())
        return 0
    part, flags = chosen(given)
    module = import_module(part.module)
    return run(part, module, parsed(part, module, flags))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
