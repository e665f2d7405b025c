"""Prose is tested: every Python block and command of README and docs runs, or says what it needs and is parsed."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import re
import sqlite3
import subprocess
import sys
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from docs.prose import DOCS, PAGES, ROOT, Block, blocks, inline_commands, words

from almakit.cli.arguments import parser_of
from almakit.cli.main import VERBS, main

tomllib = (
    pytest.importorskip("tomllib", reason="Python 3.11 reads TOML")
    if sys.version_info < (3, 11)
    else import_module("tomllib")
)
NOTEBOOKS = ["first-evaluation", "own-distance", pytest.param("compare-libraries", marks=pytest.mark.slow)]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def photos(folder: Path) -> None:
    """What a reader has: a few small images in sub-folders named after their classes."""
    from PIL import Image

    generator = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (folder / name).mkdir(parents=True)
        for number in range(6):
            Image.fromarray(generator.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(
                folder / name / f"{number}.png"
            )


def parse(command: str, mention: bool = False) -> list[str]:
    """The command's words, once a real parser has taken them: almakit's own, make's, pip's; a Python file must be
    there.

    A ``mention`` in a sentence, such as `almakit report`, may leave out what a command needs.
    """
    given = words(command)
    while given and re.fullmatch(r"\w+=\S*", given[0]):  # OMP_NUM_THREADS=1 almakit ...
        given = given[1:]
    program, rest = given[0], given[1:]
    if program == "almakit":
        if rest[0] in ("--help", "--version"):
            return given
        assert rest[0] in VERBS, f"there is no verb {rest[0]}: {command}"
        parser = parser_of(rest[0])
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
                parser.parse_args(rest[1:])
        except SystemExit as leaving:
            unfinished = re.search("arguments are required|expected one argument", said.getvalue())
            assert leaving.code == 0 or (mention and unfinished), f"{command}: {said.getvalue()}"
        check_attacks(rest)
    elif program == "make":
        subprocess.run(["make", "--dry-run", *rest], cwd=ROOT, check=True, capture_output=True)
    elif program == "pip":
        from pip._internal.cli.main_parser import create_main_parser
        from pip._internal.commands import create_command

        create_main_parser().parse_args(rest[:1])
        _, wanted = create_command(rest[0]).parse_args(rest[1:])
        for extras in re.findall(r"^(?:almakit\S*|\.|dist/\S+)\[(.+)\]$", "\n".join(wanted), re.MULTILINE):
            assert set(extras.split(",")) <= set(EXTRAS), command
    elif program == "python":
        assert rest[0] in ("-m", "-c", "-W") or (ROOT / rest[0]).is_file(), command
        if rest[0] == "-m":
            inner = rest[1].replace(".", "/")
            files = [
                place / name
                for place in (ROOT, ROOT / "src", ROOT / "tests")
                for name in (f"{inner}.py", f"{inner}/__main__.py")
            ]
            assert rest[1] in ("venv", "build") or any(file.is_file() for file in files), command
    else:
        assert program in ("cd", "git", "ray", "ssh", "rsync", "srun", "tensorboard", "sqlite3", "npm"), (
            f"who is {program}? {command}"
        )
    return given


def check_attacks(given: list[str]) -> None:
    """Attack texts are read by the reader of attack texts; those of other libraries and of the reader's own files are
    theirs."""
    from almakit.attacks import get

    for flag, text in pairwise(given):
        if flag in ("--attack", "--add") and ":" not in text:
            get(text)


LONG = ("brackets", "guide-defence", "standard", "segmentation", "index")
"""Pages whose commands take long, or repeat the README's: followed under `make nightly`."""


def fewer(text: str) -> str:
    """``text`` with 4 images where a page takes ten or more; the newcomer test runs the pages as they are written."""
    return re.sub(r"(?<=\blimit=)\d\d+|(?<=--limit )\d\d+", "4", text)


class Reader:
    """Someone who does what a page says, in an empty folder."""

    def __init__(self, place: Path):
        self.place, self.names = place, {"__name__": "__main__"}

    def follow(self, page: str, block: Block) -> None:
        where = f"{page}, line {block.line}"
        if block.title:
            (self.place / block.title).write_text(block.body)
        elif block.kind == "python":
            code = compile(fewer(block.body), f"<{where}>", "exec")
            if not block.needs:
                exec(code, self.names)
        elif block.kind in ("sh", "bash"):
            if block.kind == "bash":
                assert block.needs, f"{where}: a script that is not run says what it needs"
                subprocess.run(["bash", "-n"], input=block.body, text=True, check=True)
            for command in block.commands():
                if block.kind == "bash":
                    values = re.sub(r"\$\w+", "0", command)  # of the shell's variables
                    for inner in re.findall(r"almakit (?:run|merge|report)[^&;|]*", values):
                        parse(inner.strip() if inner.count('"') % 2 == 0 else inner[: inner.rindex('"')])
                elif parse(command)[0] == "almakit" and not block.needs:
                    # 4: done, and something was not found for an image, which a small example need not.
                    # 3: doctor's opinion of an untrained network.
                    allowed = (0, 3) if words(command)[1] == "doctor" else (0, 4)
                    assert main(words(fewer(command))[1:]) in allowed, f"{where}: {command}"
        elif block.kind == "toml":
            tomllib.loads(block.body)
        elif block.kind == "sql":
            with contextlib.closing(sqlite3.connect(next(self.place.glob("runs/*/records.sqlite")))) as base:
                assert base.execute(block.body).fetchall(), where
        else:
            assert block.kind in ("", "text"), f"{where}: say what the block is: python, sh, bash, toml, sql or text"
            assert not re.search(r"^(almakit|pip|make|python) ", block.body, re.MULTILINE), (
                f"{where}: commands belong into a block of kind sh"
            )


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[pytest.mark.slow] if page in LONG else []) for page in PAGES]
)
def test_a_page_can_be_followed(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = PAGES[page].read_text()
    assert text.count("<!-- needs:") == sum(block.needs is not None for block in blocks(text)), (
        "a marker stands on the line before its block"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.syspath_prepend(str(tmp_path))
    photos(tmp_path / "photos")
    known = set(sys.modules)
    reader = Reader(tmp_path)
    try:
        for block in blocks(text):
            reader.follow(page, block)
        for command in inline_commands(text):
            parse(command, mention=True)
    finally:
        for name in set(sys.modules) - known:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
                del sys.modules[name]


@pytest.mark.parametrize(
    ("text", "words_"),
    [
        ("```sh\nalmakit run --no-such-flag\n```", "no-such-flag"),
        ("```sh\npip install almakit-*.whl[cli]\n```", "quote them"),
        ("```sh\nmake no-such-target\n```", "no-such-target"),
        ("```sh\npip install 'almakit[no-such-extra]'\n```", "no-such-extra"),
        ("```python\nraise AssertionError('it ran')\n```", "it ran"),
        ("```\nalmakit ls\n```", "block of kind sh"),
        ("```sh\nalmakit run --model m --data d --attack 'dnn(steps=3)'\n```", "did you mean ddn"),
    ],
)
def test_the_reader_notices(text: str, words_: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = blocks(text)
    with pytest.raises(Exception) as caught:
        Reader(tmp_path).follow("a page", block)
    assert words_ in str(caught.value) + str(getattr(caught.value, "cmd", ""))


@pytest.mark.parametrize("path", [*DOCS.glob("*.md"), ROOT / "README.md"], ids=lambda path: path.stem)
def test_links_of_a_page_lead_somewhere(path: Path) -> None:
    text = path.read_text()
    for target in re.findall(
        r"\]\((?!http|#)([^)\s]+?)(?:#[\w-]+)?\)", re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    ):
        made = target.startswith("api/")  # by docs/.site/hooks.py
        assert made or (path.parent / target).exists(), f"{path.name} links to {target}"


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_was_executed_and_still_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = json.loads((DOCS / "notebooks" / f"{name}.ipynb").read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1)), (
        "execute it anew, from top to bottom"
    )
    outputs = [output for cell in code for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error"]
    assert any("image/png" in output.get("data", {}) for output in outputs), "a notebook shows a picture"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    names: dict[str, object] = {"__name__": "__main__"}
    for number, cell in enumerate(code):
        tree = ast.parse("".join(cell["source"]))
        exec(compile(tree, f"<{name}, cell {number + 1}>", "exec"), names)


def test_the_page_of_the_standard_names_its_attacks() -> None:
    from almakit.attacks.standard import AT_RADIUS, CURRENT, SMALLEST

    page = (DOCS / "standard.md").read_text()
    assert CURRENT in page
    for texts in SMALLEST[CURRENT].values():
        assert all(f"`{text}`" in page for text in texts)
    for stages in AT_RADIUS[CURRENT].values():
        assert all(f"| {name} | `{text}` |" in page for name, text in stages.items())


def test_pages_say_nothing_of_this_machine() -> None:
    for path in [*DOCS.rglob("*.md"), *DOCS.glob("notebooks/*.ipynb")]:
        for word in ("/work/", "/tmp/", "/root/", "/opt/"):
            assert word not in path.read_text(), f"{path.name} names {word}"


def test_the_goals_of_the_page_can_be_built() -> None:
    """The table's own calls, with what the page calls tags, t, a and b."""
    import torch

    from almakit import goals

    section = (DOCS / "goals.md").read_text().partition("| goal | reached if |")[2].partition("\n\n")[0]
    calls = [call for row in section.splitlines() for call in re.findall(r"`(\w+\([^`]*\))`", row.split(" | ")[0])]
    known = {name: getattr(goals, name) for name in goals.__all__}
    known |= {"targets": 3, "tags": torch.zeros(2, 4, dtype=torch.bool)}
    known |= {"a": goals.targeted(1), "b": goals.targeted(2), "e": torch.ones(2, 4), "p": torch.ones(3, 4)}
    for call in calls:
        assert isinstance(eval(call, known), goals.Goal), call
