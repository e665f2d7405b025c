"""The guides from an empty folder, in a fresh environment with the wheel and what it asks for: no source tree, nothing
else.

``make newcomer`` runs them. Nothing is downloaded: of the packages installed here, the environment gets the very ones
that the wheel's extras name, and theirs. Commands are typed at the installed ``almakit``, Python runs in one session
for a page.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import venv
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from docs.prose import PAGES, ROOT, blocks
from docs.test_pages import photos
from packaging.requirements import Requirement

pytestmark = pytest.mark.slow
GUIDES = ["README", "guide-defence", "guide-compare", "guide-own", "guide-large", "report"]
NOT_THERE = ("foolbox:",)
"""Used by the pages and not installed by ``almakit[cli,report,trackers]``: the answer must be a message that says what
to install."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT / "src", place / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, place)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(place / "dist"), str(place)]
    subprocess.run(command, check=True, capture_output=True)
    (made,) = (place / "dist").glob("*.whl")
    return made


def needed(requirements: list[str], extra: str = "") -> set[str]:
    """The names of the distributions that ``requirements`` lead to."""
    found: set[str] = set()
    for text in requirements:
        wanted = Requirement(text)
        if wanted.marker and not wanted.marker.evaluate({"extra": extra}):
            continue
        try:
            inner = distribution(wanted.name)
        except PackageNotFoundError:
            continue  # for another system or Python
        if inner.name not in found:
            found.add(inner.name)
            for one in wanted.extras or [""]:
                found |= needed([each for each in inner.requires or []], one) if inner.name != "torch" else set()
    return found


def environment(place: Path, wheel: Path, extras: str) -> Path:
    """A virtual environment with the wheel and what ``extras`` ask for, linked from the packages installed here; its
    bin."""
    venv.create(place, symlinks=True)
    (site,) = place.glob("lib/python*/site-packages")
    asked = [
        line for line in metadata(wheel) if "extra ==" not in line or any(f'"{e}"' in line for e in extras.split(","))
    ]
    names = needed([line.partition(";")[0] for line in asked])
    names |= needed(
        [line for line in distribution("torch").requires or [] if not re.search("nvidia|cuda|triton", line)]
    )
    for name in names | {"torch"}:
        for top in {
            file.parts[0] for file in distribution(name).files or [] if file.parts[0] not in ("..", "__pycache__")
        }:
            source = Path(str(distribution(name).locate_file(top)))
            if source.exists() and not (site / top).exists():
                (site / top).symlink_to(source)
    offline = ["--no-deps", "--no-index", "--quiet", "--disable-pip-version-check"]
    pip = [sys.executable, "-m", "pip", "--python", str(place / "bin" / "python"), "install", *offline, str(wheel)]
    subprocess.run(pip, check=True, capture_output=True, env=clean())
    return place / "bin"


def metadata(wheel: Path) -> list[str]:
    import zipfile

    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        text = archive.read(name).decode()
    return re.findall(r"^Requires-Dist: (.+)$", text, re.MULTILINE)


def clean() -> dict[str, str]:
    """The surroundings of someone who has no project: no path to the sources, no data."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "ALMAKIT", "PYTEST"))}
    return kept | {"OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}


def walk(page: str, home: Path, programs: Path) -> None:
    """Does all that a page says, in its order, and shows what went wrong."""
    lines = ["import subprocess, sys; sys.path.insert(0, '.')"]
    for block in blocks(PAGES[page].read_text()):
        if block.title:
            (home / block.title).write_text(block.body)
        elif block.needs or block.kind not in ("python", "sh"):
            continue
        elif block.kind == "python":
            lines.append(block.body)
        else:
            lines += [f"typed({command!r})" for command in block.commands() if command.startswith("almakit ")]
    script = home / "follow_page.py"
    script.write_text(
        "\n".join([lines[0], TYPED.format(almakit=str(programs / "almakit"), absent=NOT_THERE), *lines[1:]])
    )
    env = clean() | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run([programs / "python", script], cwd=home, env=env, capture_output=True, text=True)
    assert done.returncode == 0, f"{page}: {done.stdout[-2000:]}\n{done.stderr[-3000:]}"


TYPED = """
def typed(command):
    from glob import glob
    import shlex
    words = [n for w in shlex.split(command)[1:] for n in (sorted(glob(w)) if w.endswith('/*') else [w])]
    done = subprocess.run(['{almakit}', *words], capture_output=True, text=True)
    if any(name in command for name in {absent!r}):
        assert done.returncode == 1 and 'pip install' in done.stderr and 'Traceback' not in done.stderr, done.stderr
    else:
        allowed = (0, 3) if words[0] == 'doctor' else (0, 4)
        assert done.returncode in allowed, command + done.stdout[-1500:] + done.stderr[-1500:]
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    return environment(tmp_path_factory.mktemp("fresh"), wheel, "cli,report,trackers")


def test_the_environment_is_what_it_claims(programs: Path, tmp_path: Path) -> None:
    code = "import almakit, importlib.util as u; print(almakit.__file__, [n for n in {names} if u.find_spec(n)])"
    absent = ["foolbox", "pandas", "ray", "pytest", "onnx", "torchvision"]
    done = subprocess.run(
        [programs / "python", "-c", code.format(names=absent)],
        cwd=tmp_path,
        env=clean(),
        capture_output=True,
        text=True,
        check=True,
    )
    place, _, rest = done.stdout.partition(" ")
    assert place.startswith(str(programs.parent)) and rest.strip() == "[]", done.stdout


@pytest.mark.parametrize("page", GUIDES)
def test_a_guide_with_the_wheel_alone(page: str, programs: Path, tmp_path: Path) -> None:
    walk(page, tmp_path, programs)


def test_the_quick_start_with_its_extras(wheel: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    photos(tmp_path / "photos")
    walk("quickstart", tmp_path, environment(tmp_path_factory.mktemp("vision"), wheel, "cli,report,vision"))


OWN = """
from torch import nn

class Network(nn.Sequential):
    def __init__(self):
        convolutions = [nn.Conv2d(3, 16, 4, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 4, 2, 1), nn.ReLU(), nn.Flatten()]
        super().__init__(*convolutions, nn.Linear(2048, 100), nn.ReLU(), nn.Linear(100, 10))
"""


@pytest.mark.shared_data
def test_the_readme_alone_evaluates_your_own_cifar10_network(programs: Path, tmp_path: Path) -> None:
    """At most ten lines of the README, with the wheel alone; prints how long they take."""
    import torch
    from safetensors.torch import load_file

    data = os.environ["ALMAKIT_DATA"]
    (block,) = (block for block in blocks(PAGES["README"].read_text()) if "my_network" in block.body)
    assert len([line for line in block.body.splitlines() if line.strip()]) <= 10
    (tmp_path / "my_network.py").write_text(OWN)
    state = load_file(Path(data.split(os.pathsep)[0]) / "weights" / "cifar10-cnn-a-adv.safetensors")
    torch.save(state, tmp_path / "weights.pt")
    (tmp_path / "evaluate.py").write_text(block.body)
    command, env = [programs / "python", "evaluate.py"], clean() | {"ALMAKIT_DATA": data}
    begin = time.perf_counter()
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    print(f"README to robust accuracy of 128 CIFAR-10 images: {time.perf_counter() - begin:.0f} s")
    assert done.returncode == 0, done.stderr[-3000:]
    assert 0 <= float(done.stdout.split()[-1]) < 0.5, done.stdout
