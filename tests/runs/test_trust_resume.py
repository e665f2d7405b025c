"""Issue 18, item 8: a run does not go on with another model, however it was changed; and a shard counts its own records
(item 16)."""

from __future__ import annotations

import functools
import sqlite3

import pytest
import torch
from runs.small_runs import ATTACKS, Failing, Net, contents, images, small_run

from almakit.cli.main import main
from almakit.data.user_file import imports_sha256, own_imports
from almakit.runs.failures import SpecChanged
from almakit.runs.merge import merge
from almakit.runs.resume import SAMPLE

OTHERWISE = "answers otherwise than when this run began"


def broken_off(out, model) -> None:
    """A run of ``model`` that ends after a chunk and the next one's clean pass."""

    def fault(key, count):
        return RuntimeError("the cable was pulled") if (key.attack, key.chunk) == (0, 1) else None

    with pytest.raises(RuntimeError, match="cable"):
        small_run(out, model=model, engine=Failing(fault))


class Scaled(Net):
    """Its temperature is an attribute: neither a weight nor code."""

    def __init__(self, scale: float):
        super().__init__()
        self.scale = scale

    def forward(self, x):
        return self.scale * super().forward(x)


class Turned(Net):
    def forward(self, x):
        return super().forward(x).roll(1, 1)


def closed_over(scale: float):
    net = Net()
    return lambda x: scale * net(x)


def plain(net, scale, x):
    return scale * net(x)


def partial(scale: float):
    return functools.partial(plain, Net(), scale)


class Callable:
    def __init__(self, scale: float):
        self.net, self.scale = Net(), scale

    def __call__(self, x):
        return self.scale * self.net(x)


@pytest.mark.parametrize("made", [Scaled, closed_over, partial, Callable])
def test_item_8_a_resume_with_another_model_is_refused(made, tmp_path):
    broken_off(tmp_path, made(1.0))
    before = contents(tmp_path)
    with pytest.raises(SpecChanged, match=OTHERWISE):
        small_run(tmp_path, model=made(1.25))
    assert contents(tmp_path) == before, "refused before anything was written"
    run = small_run(tmp_path, model=made(1.0))
    assert len(run.records) == 80
    with pytest.raises(SpecChanged, match=OTHERWISE):
        small_run(tmp_path, model=made(1.25))  # a finished run's numbers are not another model's either


def test_item_8_another_class_with_the_same_weights_and_name_is_refused(tmp_path):
    broken_off(tmp_path, Net())
    other = Turned()
    other.name = "python:Net"
    with pytest.raises(SpecChanged, match=OTHERWISE):
        small_run(tmp_path, model=other)


def test_item_8_a_resume_asks_about_a_few_images_once(tmp_path):
    sizes = []

    class Counting(Net):
        def forward(self, x):
            sizes.append(len(x))
            return super().forward(x)

    small_run(tmp_path, model=Counting())
    sizes.clear()
    small_run(tmp_path, model=Counting())
    assert sum(sizes) == SAMPLE and max(sizes) == 8, "no more than the run's batch size at a time"


def test_item_8_a_model_that_never_gives_the_same_answer_twice_still_goes_on(tmp_path):
    generator = torch.Generator().manual_seed(3)

    class Noisy(Net):
        def forward(self, x):
            logits = super().forward(x)
            return logits + 0.2 * torch.randn(logits.shape, generator=generator)

    settings = {"allow": ["random-output"], "preflight": False}
    small_run(tmp_path, model=Noisy(), attacks=ATTACKS[:1], **settings)
    assert len(small_run(tmp_path, model=Noisy(), attacks=ATTACKS[:1], **settings).records) == 40


MODEL = (
    "from {module} import scale\nfrom runs.small_runs import Net\n\ndef model():\n    net = Net()\n    return "
    "lambda x: scale() * net(x)\n"
)


@pytest.mark.parametrize(("module", "file"), [("helper", "helper.py"), ("kit.inner", "kit/inner.py")])
def test_item_8_a_changed_helper_beside_the_model_is_refused(module, file, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    source, helper = tmp_path / "code" / "mine.py", tmp_path / "code" / file
    helper.parent.mkdir(parents=True)
    source.write_text(
        MODEL.format(module=module) + "\ndef data():\n    from runs.small_runs import images\n    return images()\n"
    )
    helper.write_text("def scale():\n    return 1.0\n")
    command = f"run --model {source}:model --data {source}:data --batch-size 8 --out {tmp_path / 'run'} --quiet".split()
    command += ["--attack", ATTACKS[0]]
    assert main(command) == 0
    helper.write_text("def scale():\n    return 1.0 + 0  # the same, for all that is known of it\n")
    assert main(command) == 1
    assert "imports from its folder have changed" in capsys.readouterr().err
    helper.write_text("def scale():\n    return 1.0\n")
    assert main(command) == 0
    db = sqlite3.connect(tmp_path / "run" / "records.sqlite")
    assert len(db.execute("SELECT value FROM meta WHERE key = 'imports_sha256'").fetchone()[0]) == 64
    db.close()


def test_item_8_imports_are_read_from_the_source(tmp_path):
    (tmp_path / "pack" / "deep").mkdir(parents=True)
    texts = {
        "model.py": "import os, one\nfrom pack import two\n\ndef model():\n    from pack.deep.three import f\n",
        "one.py": "import torch\nimport model\n",
        "pack/__init__.py": "",
        "pack/two.py": "from . import four\nfrom .deep import three\n",
        "pack/four.py": "def broken(:\n",
        "pack/deep/three.py": "from ..four import x\n",
        "unused.py": "",
        "pack/unused.py": "",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    found = [path.relative_to(tmp_path.resolve()).as_posix() for path in own_imports(tmp_path / "model.py")]
    assert found == ["one.py", "pack/__init__.py", "pack/deep/three.py", "pack/four.py", "pack/two.py"]
    assert imports_sha256(tmp_path / "unused.py") is None
    before = imports_sha256(tmp_path / "model.py")
    (tmp_path / "unused.py").write_text("x = 1\n")
    assert imports_sha256(tmp_path / "model.py") == before
    (tmp_path / "pack" / "deep" / "three.py").write_text("from ..four import y\n")
    assert imports_sha256(tmp_path / "model.py") != before


def test_item_16_a_shard_after_a_merge_reports_its_own_count(tmp_path, capsys):
    for number in (0, 1):
        small_run(tmp_path, shard=(number, 2))
    merge([tmp_path])
    assert len(small_run(tmp_path, shard=(1, 2)).records) == 32, "two of five chunks, two attacks"
    assert len(small_run(tmp_path).records) == 80
    x, labels = images()
    assert small_run(None, data=(x, labels), shard=(1, 2)).originals().shape == (16, 1, 8, 8), (
        "a temporary shard lives as long as its run"
    )
