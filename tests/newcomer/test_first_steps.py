"""A new user's path: own model and own images to a report in five lines, and the likely mistakes on the way: each a
sentence, none a traceback."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from almakit.cli.main import main

MODEL = '''
import torch
from torch import nn


class Net(nn.Module):
    """Tells light pictures from dark ones."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(8.0))

    def forward(self, x):
        bright = self.scale * (x.flatten(1).mean(1) - 0.5)
        return torch.stack([-bright, bright], 1)


def build():
    return Net()


def softmax():
    return nn.Sequential(Net(), nn.Softmax(1))


def state():
    return Net().state_dict()


def nothing():
    Net()


def a_class():
    return Net


def dropout():
    class Noisy(Net):
        def forward(self, x):
            return super().forward(x) + torch.randn(len(x), 2)
    return Noisy()


def no_grad():
    class Frozen(Net):
        @torch.no_grad()
        def forward(self, x):
            return super().forward(x)
    return Frozen()


def pair():
    class Pair(Net):
        def forward(self, x):
            return super().forward(x), x
    return Pair()


def grey():
    return nn.Sequential(nn.Conv2d(1, 2, 16), nn.Flatten())


def other_order():
    class Other(Net):
        def forward(self, x):
            return super().forward(x).flip(1)
    return Other()


def one_class_too_few():
    class One(Net):
        def forward(self, x):
            return super().forward(x)[:, :1]
    return One()


def takes_more(path):
    return Net()
'''


def pictures(folder: Path, size: int = 16, count: int = 8, classes: tuple[str, ...] = ("dark", "light")) -> None:
    generator = np.random.default_rng(0)
    for number, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        for index in range(count):
            level = (60, 200)[number % 2] + 3 * index
            noise = generator.integers(-20, 20, (size, size, 3))
            Image.fromarray(np.clip(level - 20 + noise, 0, 255).astype(np.uint8)).save(folder / name / f"{index}.png")


@pytest.fixture()
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a user works: his model's file and his folder of images."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_model.py").write_text(MODEL)
    pictures(tmp_path / "photos")
    return tmp_path


def test_the_quick_starts_five_lines(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The very lines of the quick start, with a model that is trained, then the report."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "quickstart.md").read_text()
    code = "import almakit\n" + re.search(r"```python\n(.*?)```", page.split("The same in Python:")[1], re.DOTALL)[1]
    assert len([line for line in code.splitlines() if line.strip()]) <= 5
    exec(compile(code, "quickstart.md", "exec"), {})
    assert "clean accuracy 100.0" in capsys.readouterr().out
    assert (
        main(["report", "runs/mine", "--no-figures"]) == 0
        and (home / "runs" / "mine" / "report" / "index.html").stat().st_size > 50_000
    )


RUN = [
    "run",
    "--model",
    "my_model.py:build",
    "--data",
    "folder:photos",
    "--attack",
    "ddn(steps=5)",
    "--out",
    "runs/mine",
    "--quiet",
]


def with_(flag: str, value: str) -> list[str]:
    command = list(RUN)
    command[command.index(flag) + 1] = value
    return command


def no_folders(home: Path) -> None:
    (home / "flat").mkdir()
    Image.new("RGB", (16, 16)).save(home / "flat" / "1.png")


def other_sizes(home: Path) -> None:
    pictures(home / "sizes", 16)
    Image.new("RGB", (20, 24)).save(home / "sizes" / "dark" / "large.png")


def not_an_image(home: Path) -> None:
    pictures(home / "broken")
    (home / "broken" / "dark" / "3.png").write_text("this is no image")


def three_classes(home: Path) -> None:
    pictures(home / "three", classes=("dark", "light", "other"))


def bad_csv(home: Path) -> None:
    pictures(home / "listed")
    (home / "listed" / "list.csv").write_text("picture,kind\ndark/1.png,0\n")


def missing_in_csv(home: Path) -> None:
    pictures(home / "listed")
    (home / "listed" / "list.csv").write_text("file,label\ndark/100.png,0\n")


def broken_import(home: Path) -> None:
    (home / "my_model.py").write_text("import a_package_that_is_not_there\n" + MODEL)


def syntax_error(home: Path) -> None:
    (home / "my_model.py").write_text(MODEL + "\ndef (:\n")


def another_run(home: Path) -> None:
    assert main([*RUN]) in (0, 4)


def pickled(home: Path) -> None:
    torch.save(torch.nn.Linear(2, 2), home / "whole.pth")


def weights_only(home: Path) -> None:
    torch.save({"layer.weight": torch.zeros(2, 2)}, home / "mine.pth")


MISTAKES: list[tuple[str, Callable[[Path], None] | None, list[str], int, str]] = [
    ("the model's file is misspelt", None, with_("--model", "my_modl.py:build"), 1, "there is no file my_modl.py"),
    ("the function is misspelt", None, with_("--model", "my_model.py:biuld"), 1, "did you mean build"),
    ("the function is forgotten", None, with_("--model", "my_model.py"), 2, "my_model.py:<function>"),
    (
        "the function wants arguments",
        None,
        with_("--model", "my_model.py:takes_more"),
        1,
        "missing 1 required positional argument",
    ),
    ("the file needs a package that is not there", broken_import, RUN, 1, "a_package_that_is_not_there"),
    ("the file is not Python", syntax_error, RUN, 1, "SyntaxError"),
    ("the function returns weights", None, with_("--model", "my_model.py:state"), 1, "OrderedDict"),
    ("the function returns nothing", None, with_("--model", "my_model.py:nothing"), 1, "NoneType"),
    ("the function returns the class", None, with_("--model", "my_model.py:a_class"), 1, "Net()"),
    ("probabilities instead of logits", None, with_("--model", "my_model.py:softmax"), 0, ""),
    ("random layers", None, with_("--model", "my_model.py:dropout"), 3, "not-deterministic"),
    ("no gradients", None, with_("--model", "my_model.py:no_grad"), 3, "non-differentiable"),
    (
        "a tuple of outputs",
        None,
        with_("--model", "my_model.py:pair"),
        3,
        "bad-output: The model returned a tuple of (",
    ),
    ("one logit", None, with_("--model", "my_model.py:one_class_too_few"), 3, "bad-output"),
    ("colour images for a grey model", None, with_("--model", "my_model.py:grey"), 3, "forward-fails"),
    ("classes in another order", None, with_("--model", "my_model.py:other_order"), 3, "wrong-labels-or-range"),
    ("a checkpoint is given as the model", pickled, with_("--model", "whole.pth"), 2, "weights alone are no model"),
    (
        "weights that do not belong to the network",
        weights_only,
        with_("--model", "mnist/smallcnn@mine.pth"),
        1,
        "for another architecture",
    ),
    ("the folder is misspelt", None, with_("--data", "folder:foto"), 1, "there is no folder foto"),
    ("folder: is forgotten", None, with_("--data", "photos"), 2, "folder:photos"),
    ("images without class folders", no_folders, with_("--data", "folder:flat"), 1, "sub-folder"),
    ("images of several sizes", other_sizes, with_("--data", "folder:sizes"), 1, "size"),
    ("a file that is no image", not_an_image, with_("--data", "folder:broken"), 1, "3.png"),
    ("more classes than the model has", three_classes, with_("--data", "folder:three"), 3, "labels-outside"),
    ("a csv with other columns", bad_csv, with_("--data", "folder:listed"), 1, "it needs file and label"),
    ("a csv that names a file that is not there", missing_in_csv, with_("--data", "folder:listed"), 1, "100.png"),
    ("the attack is misspelt", None, with_("--attack", "amla(steps=5)"), 2, "did you mean alma"),
    ("a setting is misspelt", None, with_("--attack", "ddn(step=5)"), 2, "its settings are"),
    ("a distance the attack does not do", None, with_("--attack", "ddn(distance=l1)"), 2, "ddn"),
    ("no data at all", None, ["run", "--model", "my_model.py:build"], 2, "give --data"),
    ("a fixed-radius attack without its radius", None, with_("--attack", "pgd(steps=5)"), 2, "epsilon"),
    ("the folder holds another run", another_run, with_("--attack", "ddn(steps=6)"), 1, "holds another run"),
    ("a report of nothing", None, ["report", "runs/none"], 1, "runs/none"),
    ("a GPU that is not there", None, [*RUN, "--device", "cuda:9"], 1, "choose --device cpu"),
]


@pytest.mark.parametrize(
    ("prepare", "command", "code", "words"),
    [mistake[1:] for mistake in MISTAKES],
    ids=[mistake[0] for mistake in MISTAKES],
)
def test_a_likely_mistake_is_a_sentence(
    prepare: Callable[[Path], None] | None,
    command: list[str],
    code: int,
    words: str,
    home: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if prepare:
        prepare(home)
    capsys.readouterr()
    found = main(command)
    said = capsys.readouterr()
    if not words:
        assert found in (0, 4)
        return
    assert "Traceback" not in said.err and "unexpected" not in said.err, said.err
    assert words.lower() in said.err.lower(), said.err
    assert found == code, said.err
    assert said.err.startswith("almakit: ") and len(said.err) < 1500
