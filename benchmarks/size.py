"""Lines, statements and files of each part of the package, frames from a call to the model, and long parameter lists.

    python -m benchmarks size

Docstrings are no statements; parameters are counted without ``self`` and ``cls``. tests/core/test_launches.py holds
frames and parameters.
"""

from __future__ import annotations

import argparse
import ast
import traceback
from pathlib import Path

import torch
from torch import Tensor, nn

import almakit
from benchmarks.common import markdown

SOURCE = Path(almakit.__file__).parent
LIMIT = 8
# Calls of users have more: ten options beside model, x, labels, targets and goal.
LIMITS = {
    "core/attack.py Attack.__call__": 15,
    "api.py attack": 9,
    "api.py standard_evaluation": 9,
    "api.py evaluate": 16,
    "models/classifier.py Classifier.__init__": 9,
}


def sizes() -> dict[str, tuple[int, ...]]:
    """Lines, statements and files of each subpackage, and of the modules beside them."""
    found: dict[str, tuple[int, ...]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        text, place = path.read_text(), path.relative_to(SOURCE)
        part = place.parts[0] if len(place.parts) > 1 else "root modules"
        nodes = list(ast.walk(ast.parse(text)))
        docstrings = sum(isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant) for n in nodes)
        counts = (len(text.splitlines()), sum(isinstance(n, ast.stmt) for n in nodes) - docstrings, 1)
        found[part] = tuple(map(sum, zip(found.get(part, (0, 0, 0)), counts, strict=True)))
    return found


def long_signatures() -> list[tuple[str, int]]:
    """Functions with more parameters than the limit, as ``file name`` or ``file Class.name``, and how many."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text())
        owners = {
            node: owner.name for owner in ast.walk(tree) if isinstance(owner, ast.ClassDef) for node in owner.body
        }
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
                count = sum(argument.arg not in ("self", "cls") for argument in arguments)
                name = f"{path.relative_to(SOURCE)} {f'{owners[node]}.' if node in owners else ''}{node.name}"
                if count > LIMITS.get(name, LIMIT):
                    found.append((name, count))
    return found


def frames() -> list[str]:
    """The functions of the package between ``almakit.attack`` and the model, in the deepest call."""
    network, stacks = nn.Sequential(nn.Flatten(), nn.Linear(6, 3)), []

    def model(x: Tensor) -> Tensor:
        own = [frame.name for frame in traceback.extract_stack() if SOURCE in Path(frame.filename).parents]
        stacks.append(own[own.index("attack") :])
        output: Tensor = network(x)
        return output

    x = torch.rand(4, 2, 3, generator=torch.Generator().manual_seed(0))
    almakit.attack(model, x, network(x).argmax(1), steps=30)
    return max(stacks, key=len)


def main(args: argparse.Namespace) -> None:
    del args
    counted = sizes()
    counted["all"] = tuple(map(sum, zip(*counted.values(), strict=True)))
    print(
        markdown(["part ", "lines", "statements", "files"], [[part, *map(str, row)] for part, row in counted.items()])
    )
    print(f"\nframes from almakit.attack to the model: {len(stack := frames())} ({' > '.join(stack)})")
    longest = ", ".join(f"{name} ({count})" for name, count in long_signatures())
    print(f"functions with more than {LIMIT} parameters: {longest or 'none'}")
