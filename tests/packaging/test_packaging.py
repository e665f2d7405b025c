"""Wheel and sdist hold what they must; a package of someone else's adds a distance and an attack; shells complete."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from almakit.cli.arguments import parser_of
from almakit.cli.main import VERBS, main
from almakit.version import VERSION

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = Path(__file__).parent / "plugin"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clean copy of the project, and its wheel and sdist made by setuptools as ``python -m build`` has it do."""
    place = tmp_path_factory.mktemp("built")
    copy = place / "project"
    leave_out = shutil.ignore_patterns("__pycache__", "*.egg-info", "results", "*.pyc")
    copy.mkdir()
    for name in ("src", "docs", "tests"):
        shutil.copytree(ROOT / name, copy / name, ignore=leave_out)
    papers = [path.name for path in ROOT.glob("*.md")] + ["LICENSE", "CITATION.cff", "tox.ini"]
    for file in (*papers, "pyproject.toml", "MANIFEST.in", "constraints.txt", "Makefile", "mkdocs.yml"):
        shutil.copy(ROOT / file, copy / file)
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(place)],
        cwd=copy,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return place


@pytest.mark.slow
def test_the_wheel_is_whole(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    assert wheel.name == f"almakit-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = archive.read(f"almakit-{VERSION}.dist-info/METADATA").decode()
        archive.extractall(tmp_path)
    source = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src" / "almakit").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert source <= names, f"left out: {sorted(source - names)}"
    assert "almakit/py.typed" in names and not [name for name in names if name.startswith("tests")]
    for extra in ("cli", "report", "ray", "vision", "bridges", "docs", "dev"):
        assert f"Provides-Extra: {extra}" in metadata
    # It runs from where it was unpacked, with what it ships.
    code = (
        "import almakit; print(almakit.__file__); m = almakit.models.load('mnist/smallcnn-tiny'); "
        "print(len(almakit.data.load('mnist-demo', limit=3)))"
    )
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout.split() == [str(tmp_path / "almakit" / "__init__.py"), "3"]


@pytest.mark.slow
def test_the_sdist_is_whole(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "pyproject.toml",
        "CHANGELOG.md",
        "CITATION.cff",
        "CONTRIBUTING.md",
        "LICENSE",
        "src/almakit/py.typed",
        "tests/conftest.py",
        "mkdocs.yml",
    } <= names


@pytest.fixture(scope="module")
def plugged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which the example package is installed beside almakit."""
    place = tmp_path_factory.mktemp("plugin")
    shutil.copytree(PLUGIN, place / "source", ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
    target = place / "site"
    offline = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    command = [sys.executable, "-m", "pip", "install", *offline, "--target", str(target), str(place / "source")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {**os.environ, "PYTHONPATH": str(target)}


def python(code: str, env: dict[str, str], *arguments: str) -> str:
    """What a process of its own prints."""
    done = subprocess.run([sys.executable, "-c", code, *arguments], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


USED = """
import sys
from almakit.cli.main import main

flags = "--model mnist/smallcnn-tiny --data mnist-demo --limit 6".split()
attacks = ["--attack", "straight(steps=30)", "--attack", "alma(distance=l4, steps=20)"]
assert main(["ls", "attacks"]) == 0
assert main(["run", *flags, *attacks, "--out", sys.argv[1]]) in (0, 4)
assert main(["verify", sys.argv[1]]) == 0
"""


def test_a_package_adds_a_distance_and_an_attack(plugged: dict[str, str], tmp_path: Path) -> None:
    said = python(USED, plugged, str(tmp_path / "run"))
    assert said.count("straight") >= 3 and "l4" in said
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert {attack["name"] for attack in summary["attacks"]} == {
        "straight(distance=l2, steps=30)",
        "alma(distance=l4, steps=20)",
    }


BROKEN = """
from almakit.cli.main import main
from almakit.distances import get

assert main("run --model mnist/smallcnn-tiny --data mnist-demo --attack alma(distance=broken)".split()) == 1
print(type(get("l2")).__module__)
"""


def test_a_broken_package_is_a_sentence_and_cannot_replace_a_name(plugged: dict[str, str]) -> None:
    said = python(BROKEN, plugged)
    assert "comes from the package almakit-example, which cannot be loaded" in said
    assert "almakit.distances.lp\n" in said


def completed(script: Path, *words: str) -> list[str]:
    """What bash offers after these words, the last of which is being typed."""
    ask = 'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _shtab_almakit; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", ask, str(script), *words], capture_output=True, text=True, check=True)
    assert not done.stderr
    return done.stdout.split()


def test_bash_completes_verbs_flags_and_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "completion.sh"
    script.write_text(capsys.readouterr().out)
    assert set(completed(script, "almakit", "")) >= set(VERBS)
    assert completed(script, "almakit", "com") == ["compare", "completion"]
    assert "--attack" in completed(script, "almakit", "run", "--a")
    assert "--shard" not in completed(script, "almakit", "run", "--a")
    assert completed(script, "almakit", "run", "--attack", "soft-w") == ["soft-walk"]
    assert completed(script, "almakit", "run", "--dtype", "float") == ["float32", "float64", "float16"]
    assert set(completed(script, "almakit", "ls", "")) >= {"attacks", "distances", "models", "data"}
    assert "mnist/smallcnn-tiny" in completed(script, "almakit", "run", "--model", "mnist/")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "tcsh", "powershell"])
def test_every_verb_and_flag_is_in_the_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for verb in VERBS:
        assert verb in script
        for action in parser_of(verb)._actions:
            assert all(flag.lstrip("-") in script for flag in action.option_strings)
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)
