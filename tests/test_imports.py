"""Who may know whom: the import rules of the design, read from the source of every file, lazy imports inside functions
included."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from almakit import registry

ROOT = Path(__file__).resolve().parents[1] / "src" / "almakit"
FILES = sorted(ROOT.rglob("*.py"))
# Modules that everyone may import.
COMMON = {"errors", "expression", "files", "radius", "registry", "streams", "tensors", "version", "wilson"}


def module_of(path: Path) -> str:
    """ "attacks.alma" for src/almakit/attacks/alma.py; "" for the package itself."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path) for path in FILES}


def imports_of(path: Path) -> tuple[set[str], set[str]]:
    """The modules of almakit a file imports, without the prefix, and the top-level names of everything else.

    Imports for the type checker alone do not run and do not count.
    """
    own, foreign = set(), set()
    tree = ast.parse(path.read_text())
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)) and id(node) not in skipped:
            here, others = names_in(node, path)
            own |= here
            foreign |= others
    return own, foreign


def names_in(node: ast.Import | ast.ImportFrom, path: Path) -> tuple[set[str], set[str]]:
    """What one import statement of the file ``path`` imports, as ``imports_of`` gives it."""
    own, foreign = set(), set()
    package = module_of(path).split(".") if path.name == "__init__.py" else module_of(path).split(".")[:-1]
    package = [part for part in package if part]
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif not node.level:
        names = [
            f"{node.module}.{alias.name}" if str(node.module).startswith("almakit") else str(node.module)
            for alias in node.names
        ]
    else:
        base = package[: len(package) - node.level + 1]
        names = [".".join(["almakit", *base, *filter(None, [node.module]), alias.name]) for alias in node.names]
    for name in names:
        top, _, rest = name.partition(".")
        if top == "almakit":
            # "core.Attack" is something in the module core.
            while rest and rest not in MODULES:
                rest = rest.rpartition(".")[0]
            own.add(rest)
        else:
            foreign.add(top)
    return own, foreign


def lazy_imports(path: Path) -> list[tuple[str, set[str]]]:
    """(function, modules of almakit) of every import statement inside a function, and the libraries of the others as
    "*library"."""
    found = []
    for function in ast.walk(ast.parse(path.read_text())):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for node in ast.walk(function):
                if isinstance(node, (ast.Import, ast.ImportFrom)):
                    own, foreign = names_in(node, path)
                    found.append((function.name, own | {f"*{name}" for name in foreign}))
    return found


def inside(name: str, room: str) -> bool:
    return name == room or name.startswith(room + ".")


def rooms_known(room: str) -> dict[str, set[str]]:
    """For each file of a room: what it knows of almakit outside its room and the common things."""
    return {
        module_of(path): {
            name for name in imports_of(path)[0] if not inside(name, room) and name not in COMMON and name
        }
        for path in FILES
        if inside(module_of(path), room)
    }


def beyond(room: str, allowed: set[str], exceptions: dict[str, set[str]] | None = None) -> dict[str, set[str]]:
    """The files of a room that know more than ``allowed``, apart from ``exceptions``."""
    known = rooms_known(room)
    assert known, f"there is no room {room}"
    wrong = {
        file: {name for name in names if not any(inside(name, other) for other in allowed)}
        - (exceptions or {}).get(file, set())
        for file, names in known.items()
    }
    return {file: names for file, names in wrong.items() if names}


def test_the_reader_of_imports_reads() -> None:
    own, foreign = imports_of(ROOT / "attacks" / "alma.py")
    assert {"registry", "core", "optim.steps", "errors"} <= own and {"torch", "math", "dataclasses"} <= foreign
    assert any(beyond("attacks", set()).values()), "attacks do know the core"


@pytest.mark.parametrize("name", sorted(COMMON))
def test_common_things_know_nothing(name: str) -> None:
    own, foreign = imports_of(ROOT / f"{name}.py")
    allowed = {"torch"} if name == "tensors" else set()
    assert own <= {"errors", "expression"} and foreign <= set(sys.stdlib_module_names) | allowed


def test_distances_know_torch_alone() -> None:
    # The weights of LPIPS' network are a file that the hub of the data room finds.
    assert not beyond("distances", set(), {"distances.lpips": {"data.hub"}})


def test_the_core_knows_goals_and_distances_base_alone() -> None:
    assert not beyond("core", {"distances.base", "goals", "optim.steps", "radius"})


def test_solvers_know_the_problem_alone() -> None:
    assert not beyond("optim", {"core", "distances.base"})


# What several attacks are made of; an attack knows no other attack besides.
SHARED_BY_ATTACKS = {"attacks.fixed_epsilon", "attacks.pixelwise"}
PARTS: dict[str, tuple[str, ...]] = {
    "attacks.sea": ("attacks.apgd",),
    "attacks.search": ("attacks",),
    "attacks.ensemble": ("attacks",),
    "attacks.standard": ("attacks", "attacks.ensemble"),
}


def test_attacks_know_the_core_and_no_other_attack() -> None:
    # Distances are named in settings, so their base is allowed too; an attack's parts are declared above.
    assert not beyond("attacks", {"core", "optim", "goals", "distances.base", "radius"})
    for path in FILES:
        module = module_of(path)
        if not inside(module, "attacks") or path.name == "__init__.py":
            continue
        family = {module, *PARTS.get(module, ()), *SHARED_BY_ATTACKS}
        others = {name for name in imports_of(path)[0] if inside(name, "attacks") and name not in family}
        assert not others, f"{module} knows {others}"


def test_goals_know_how_to_call_a_model_alone() -> None:
    # A user's goal is a file, read as models and data of the user's own are.
    assert not beyond("goals", {"core.oracle"}, {"goals.resolve": {"data", "data.user_file"}})


def test_bridges_know_attacks_and_the_core() -> None:
    # A user's own attack is a file, read as models and data of his own are.
    assert not beyond(
        "bridges",
        {"core", "optim", "goals", "attacks", "distances.base", "radius"},
        {"bridges.user_file": {"data.user_file", "data"}},
    )


def test_models_and_data_keep_to_themselves() -> None:
    # Whoever calls a model does it through core.oracle.
    # Weights are files that the data room's hub finds, its readers convert, and its loader of a user's own file runs.
    files = {
        "models": {"data.user_file"},
        "models.open": {"data.hub", "data.user_file"},
        "models.weights": {"data.hub"},
        "models.preflight": {"data.named"},
    }  # ImageNet's order of WordNet ids
    assert not beyond("models", {"core.oracle", "goals.outputs"}, files)
    assert not beyond("data", set())


def test_bounds_know_how_to_call_a_model_alone() -> None:
    assert not beyond("certify", {"core.oracle"})


def test_the_report_knows_records_and_never_torch() -> None:
    # The store is a folder: its database, its image files, and the errors of both.
    assert not beyond(
        "report", {"runs.store", "runs.folder", "runs.failures", "runs.threat", "runs.radii", "runs.export"}
    )
    for path in FILES:
        if inside(module_of(path), "report"):
            assert "torch" not in imports_of(path)[1], path.name


def test_runs_know_no_report_and_no_numbers() -> None:
    # Whoever wants a run with its numbers takes almakit.Run, which is the report's.
    known = {name for names in rooms_known("runs").values() for name in names}
    assert not [name for name in known if any(inside(name, room) for room in ("report", "api", "paper"))]


@pytest.mark.parametrize(
    "room",
    [
        "core",
        "distances",
        "attacks",
        "models",
        "data",
        "certify",
        "report",
        "runs",
        "train",
        "paper",
        "bridges",
        "trackers",
    ],
)
def test_no_room_knows_the_command_line(room: str) -> None:
    assert not any(inside(name, "cli") for names in rooms_known(room).values() for name in names)


def loaded_by(statement: str) -> set[str]:
    """The top-level modules and almakit modules in memory after a statement in a fresh interpreter."""
    script = f"{statement}\nimport sys\nprint(*sorted(sys.modules))"
    return set(
        subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.split()
    )


def test_importing_almakit_is_light() -> None:
    loaded = loaded_by("import almakit")
    assert not {"torch", "numpy", "almakit.core", "almakit.report", "torchvision"} & loaded


def test_every_module_of_the_report_loads_without_torch() -> None:
    modules = [f"almakit.{name}" for name in sorted(MODULES) if inside(name, "report")]
    assert modules
    loaded = loaded_by("import " + ", ".join(modules))
    assert "torch" not in loaded and "torchvision" not in loaded


def test_attacking_needs_no_torchvision_and_no_report() -> None:
    loaded = loaded_by("import almakit; almakit.ALMA, almakit.Box, almakit.attacks.get('alma')")
    assert "torch" in loaded and not {"torchvision", "almakit.report", "almakit.runs", "matplotlib"} & loaded


# Imports inside functions, each with its reason; whoever adds one says why, and there are at most 25.
TORCH = "torch takes a second or more, and --help, ls and completion do without it"
LAZY = {
    ("", "open"): (1, TORCH),
    ("certify.graph", "prefix"): (1, "graph and backward know each other"),
    ("cli.certify", "main"): (1, TORCH),
    ("cli.transfer", "main"): (1, TORCH),
    ("cli.demo", "main"): (1, TORCH),
    ("cli.doctor", "main"): (2, TORCH),
    ("cli.ls", "explained"): (1, TORCH),
    ("cli.reproduce", "main"): (1, TORCH),
    ("cli.run", "main"): (2, TORCH),
    ("cli.train", "main"): (1, TORCH),
    ("cli.verify", "main"): (1, TORCH),
    ("core.result", "plot"): (1, "matplotlib is optional, and figures are classes of it"),
    ("core.result", "show"): (1, "matplotlib is optional, and figures are classes of it"),
    ("data", "_whole"): (1, TORCH),
    ("runs.folder", "result"): (1, TORCH),
    ("models", "load"): (1, TORCH),
}
# Libraries that need not be there, or that cost more than the function that wants them; what installs them is an extra
# of pyproject.toml.
OPTIONAL = {"PIL", "datasets", "highspy", "jinja2", "matplotlib", "onnx", "pandas", "pyarrow", "ray", "shtab"}
COSTLY = {
    ("registry", "importlib"): "importlib.metadata takes longer than all of import almakit",
    ("errors", "difflib"): "importing almakit loads at most 40 modules",
    ("data.hub", "torch"): TORCH,
    ("data.hub", "urllib"): "asking for help loads nothing that knows the network",
    ("runs.environment", "torch"): TORCH,
    ("runs.folder", "torch"): TORCH,
}


def test_imports_inside_functions_have_reasons() -> None:
    found: dict[tuple[str, str], int] = {}
    for path in FILES:
        for function, names in lazy_imports(path):
            if not all(name.startswith("*") for name in names):
                found[module_of(path), function] = found.get((module_of(path), function), 0) + 1
    without = {place: count for place, count in found.items() if count > LAZY.get(place, (0, ""))[0]}
    assert not without, "move these imports to the top of their files, or say in LAZY why not"
    assert sum(found.values()) <= 25


def test_other_libraries_inside_functions_are_optional_or_costly() -> None:
    seen = {
        (module_of(path), name[1:])
        for path in FILES
        for _, names in lazy_imports(path)
        for name in names
        if name.startswith("*")
    }
    assert {place for place in seen if place[1] not in OPTIONAL} == set(COSTLY)
    named = {name for path in FILES for name in re.findall(r'\boptional\(\s*"(\w+)', path.read_text())}
    assert {name for _, name in seen} | named >= OPTIONAL, "a library that nobody wants any more stands in the list"


def test_names_of_the_registry_lead_into_their_rooms() -> None:
    """A name fetched by text is an import too: each leads into the room its registry is named for, or one declared
    here."""
    rooms = {
        "attacks": {"attacks"},
        "distances": {"distances"},
        "penalties": {"optim"},
        "bridges": {"bridges", "attacks"},
        "trackers": {"trackers"},
        "goals": {"goals"},
    }
    for kind, entries in registry.BUILT_IN.items():
        for name, place in entries.items():
            module = place.partition(":")[0].removeprefix("almakit.")
            assert module in MODULES, f"{name} leads to {place}, which is no file"
            assert any(inside(module, room) for room in rooms[kind]), f"the {kind} {name} leads into {module}"


def test_every_verb_loads_without_torch() -> None:
    verbs = ", ".join(f"almakit.{name}" for name in sorted(MODULES) if inside(name, "cli"))
    assert not {"torch", "matplotlib", "pandas", "PIL", "rich"} & loaded_by(f"import {verbs}")
