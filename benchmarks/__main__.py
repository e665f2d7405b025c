"""``python -m benchmarks`` lists what can be measured; ``python -m benchmarks NAME ...`` measures it, with the flags of
``benchmarks/NAME.py``."""

from __future__ import annotations

import ast
import difflib
import runpy
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def commands() -> dict[str, str]:
    """The scripts that can be run, each with the first sentence it says about itself."""
    found = {}
    for path in sorted(HERE.glob("*.py")):
        text = path.read_text()
        if not path.name.startswith("_") and '__name__ == "__main__"' in text:
            found[path.stem] = " ".join((ast.get_docstring(ast.parse(text)) or "").split("\n\n")[0].split())
    return found


def main(given: list[str]) -> int:
    known = commands()
    if not given or given[0] in ("-h", "--help"):
        width = max(map(len, known))
        print("python -m benchmarks NAME ...      python -m benchmarks NAME --help tells its flags\n")
        print("\n".join(f"{name.ljust(width)}  {text}" for name, text in known.items()))
        return 0
    name = given[0]
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        print(
            f"there is no benchmark {name!r}; "
            + (f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}."),
            file=sys.stderr,
        )
        return 2
    # As if the file had been started: the scripts import what they share by its plain name.
    sys.path.insert(0, str(HERE))
    sys.argv = [str(HERE / f"{name}.py"), *given[1:]]
    runpy.run_path(sys.argv[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
