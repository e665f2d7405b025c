"""What comes from outside is data: nothing of it runs, nothing leaves its place, everything is shown as text.
docs/security.md says the same in words."""

from __future__ import annotations

import ast
import pickle
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from runs.forgery import forge
from runs.small_runs import Net, images, small_run
from security.hostile_files import Payload

import almakit
from almakit import Run, attacks, data, models
from almakit.cli.main import main
from almakit.data.dataset import Dataset
from almakit.data.hub import COLLECTIONS
from almakit.errors import AlmakitError, BadInput, BadModel
from almakit.report import subjects
from almakit.report.page import render
from almakit.runs.failures import Corrupt
from almakit.runs.merge import merge
from almakit.runs.spec import RunSpec
from almakit.runs.verify import damaged_files

SOURCE = Path(almakit.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))


def evil_checkpoint(path: Path, mark: Path) -> Path:
    torch.save({"state_dict": Net().state_dict(), "more": Payload(mark)}, path)
    return path


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".ckpt", ".bin"])
def test_a_malicious_checkpoint_does_not_run(tmp_path, suffix):
    mark = tmp_path / "it-ran"
    file = evil_checkpoint(tmp_path / f"evil{suffix}", mark)
    with pytest.raises(BadModel, match=r"would run code of its author.*--trust"):
        models.load(f"mnist/smallcnn-tiny@{file}")
    (tmp_path / "bare").write_bytes(pickle.dumps(Payload(mark)))
    with pytest.raises(BadModel):
        models.load(f"mnist/smallcnn-tiny@{tmp_path / 'bare'}")
    assert not mark.exists()


def test_the_malicious_checkpoint_is_malicious(tmp_path):
    """Without this the test above could not fail: with the user's word it does run."""
    mark = tmp_path / "it-ran"
    with pytest.raises(BadModel):
        models.load(f"mnist/smallcnn-tiny@{evil_checkpoint(tmp_path / 'evil.pt', mark)}", trust=True)
    assert mark.exists()


def test_the_command_line_asks_for_trust(tmp_path, capsys):
    mark, out = tmp_path / "it-ran", tmp_path / "run"
    file = evil_checkpoint(tmp_path / "evil.pt", mark)
    flags = f"--data mnist-demo --limit 4 --attack ddn(steps=2) --out {out} --quiet".split()
    assert main(["run", "--model", f"mnist/smallcnn-tiny@{file}", *flags]) == 1
    assert "--trust" in capsys.readouterr().err and not mark.exists() and not out.exists()


def test_malicious_data_and_programs_do_not_run(tmp_path):
    mark = tmp_path / "it-ran"
    objects = np.empty(2, dtype=object)
    objects[:] = [Payload(mark), Payload(mark)]
    np.savez(tmp_path / "evil.npz", x=objects, y=np.zeros(2, dtype=np.int64))
    with pytest.raises(AlmakitError):
        data.load(f"npz:{tmp_path / 'evil.npz'}")
    (tmp_path / "evil.onnx").write_bytes(pickle.dumps(Payload(mark)))
    with pytest.raises(AlmakitError):
        models.load(str(tmp_path / "evil.onnx"))
    (tmp_path / "evil.safetensors").write_bytes(pickle.dumps(Payload(mark)))
    with pytest.raises(AlmakitError):
        models.load(f"mnist/smallcnn-tiny@{tmp_path / 'evil.safetensors'}")
    assert not mark.exists()


def test_configs_are_toml_and_texts_are_no_code(tmp_path, capsys):
    mark = tmp_path / "it-ran"
    (tmp_path / "evil.py").write_text(f"open({str(mark)!r}, 'w')\nmodel = 'x'\n")
    assert main(["run", "--config", str(tmp_path / "evil.py")]) == 2
    assert "cannot be read as TOML" in capsys.readouterr().err
    for text in (
        f"open('{mark}','w')",
        "__import__('os').getpid()",
        "alma(steps=__import__('os'))",
        "alma(distance=lambda x, y: 0)",
        "{{7*7}}",
        "$(id)",
    ):
        with pytest.raises((BadInput, AlmakitError)):
            attacks.get(text)
    with pytest.raises(AlmakitError):
        RunSpec.from_dict({"__class__": "x"})
    assert not mark.exists()


METHODS = ("exec_module", "extractall")


def test_no_shell_no_eval_no_unpickling_in_the_source():
    """Calls that would hand text to an interpreter; each exception is named with its reason."""
    allowed = {
        ("runs/ray.py", "pickle.loads"),  # what our own driver packed, inside the user's own cluster
        ("runs/executors.py", "pickle.loads"),  # from the parent process, and errors packed a line before
        ("models/open.py", "torch.export.load"),  # only with trust: it unpickles and evaluates what a file holds
        ("models/weights.py", "torch.load"),  # weights_only unless the user says trust
        ("data/hub.py", "torch.load"),  # weights_only, contents pinned by sha256
        ("train/loop.py", "torch.load"),  # weights_only
        ("data/user_file.py", "exec_module"),  # a model given as Python code runs as code
    }
    modules = "marshal.load marshal.loads pickle.load pickle.loads shelve.open torch.export.load torch.jit.load"
    dangerous = {*modules.split(), "cloudpickle.loads", "joblib.load", "torch.load", "yaml.load"}
    dangerous |= {"eval", "exec", "os.system", "os.popen", "exec_module", "extractall", "tempfile.mktemp"}
    found = set()
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name, where = ast.unparse(node.func), path.relative_to(SOURCE).as_posix()
            given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            last = name.rpartition(".")[2]
            found |= {(where, short) for short in dangerous & {name, last if last in METHODS else name}}
            assert given.get("shell", "False") == "False", f"{where}: shell"
            assert name != "torch.load" or given.get("weights_only") in ("True", "not trust"), where
            assert not name.endswith("np.load") or given.get("allow_pickle") == "False", where
    assert found <= allowed, found - allowed


def test_downloads_are_pinned_and_bounded():
    for source in (source for sources in COLLECTIONS.values() for source in sources):
        assert 0 < source.limit <= 1 << 33
        for file in source.files:
            assert len(file.sha256) == 64 and 0 < file.size < 1 << 33, file
            assert ".." not in Path(file.name).parts and not Path(file.name).is_absolute()


HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</script><script>alert(2)</script>",
    "{{7*7}}",
    "javascript:alert(3)",
    "&lt;b&gt;",
    "'onload='x",
]


class Tags(HTMLParser):
    def __init__(self, text: str):
        super().__init__()
        self.found: Counter[tuple[object, ...]] = Counter()
        self.events: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found[(tag, *sorted(name for name, _ in attrs))] += 1
        self.events += [name for name, _ in attrs if name.startswith("on")]


def page(folder: Path, names: list[str]) -> str:
    x, labels = images(len(HOSTILE))
    model = Net()
    model.name = names[0]  # type: ignore[assignment]
    ids = tuple(f"{name} {row}" for row, name in enumerate(names))
    dataset = Dataset(names[1], ids, labels, lambda rows: x[list(rows)], None, tuple(names[:5]))
    small_run(folder, model=model, data=dataset, attacks=["alma(distance=l2, steps=4)"])
    return render(subjects.load([folder]), 4)


def test_the_report_escapes_everything_and_has_a_policy(tmp_path):
    hostile, harmless = (
        Tags(text := page(tmp_path / "a", HOSTILE)),
        Tags(page(tmp_path / "b", [f"plain{row}" for row in range(len(HOSTILE))])),
    )
    assert hostile.found == harmless.found, "a name became an element"
    assert not hostile.events and "<script>alert" not in text
    assert "Content-Security-Policy" in text and "default-src" in text
    assert ">49<" not in text, "a name was read as a template"


@pytest.fixture(scope="module")
def eight(tmp_path_factory) -> Path:
    """The folder of a run on eight images."""
    return small_run(tmp_path_factory.mktemp("eight") / "run", **EIGHT).folder


EIGHT = {"attacks": ["alma(distance=l2, steps=4)"], "data": images(8)}


@pytest.mark.parametrize(
    "name", ["../secret.safetensors", "/etc/hostname", "originals/../../secret", "..\\secret", "C:/secret", ""]
)
def test_a_database_cannot_point_outside_its_folder(eight, tmp_path, name):
    """A folder from elsewhere, its sums made to fit: files are read from inside it or not at all."""
    shutil.copytree(eight, tmp_path / "run")
    (tmp_path / "secret.safetensors").write_bytes(b"secret")
    forge(tmp_path / "run", lambda db: db.execute("UPDATE chunks SET file = ? WHERE kind = 'clean'", (name,)))
    run = Run(tmp_path / "run")
    for use in (
        run.originals,
        lambda: damaged_files(run),
        lambda: merge([tmp_path / "run"], tmp_path / "out"),
        lambda: small_run(tmp_path / "run", **EIGHT),
    ):
        with pytest.raises(Corrupt, match="outside the folder"):
            use()
    assert (tmp_path / "secret.safetensors").read_bytes() == b"secret"


def test_reading_a_strangers_database_runs_nothing(eight, tmp_path):
    """Triggers in a database are code too: a database that has one is not used."""
    shutil.copytree(eight, tmp_path / "run")
    with sqlite3.connect(tmp_path / "run" / "records.sqlite") as db:
        db.execute("CREATE TRIGGER evil AFTER INSERT ON chunks BEGIN DELETE FROM results; END")
    db.close()
    with pytest.raises(AlmakitError, match="evil"):
        Run(tmp_path / "run")
    with pytest.raises(AlmakitError, match="evil"):
        small_run(tmp_path / "run", **EIGHT)


def test_importing_and_asking_for_help_reads_no_config_and_no_network(tmp_path):
    (tmp_path / "almakit.toml").write_text("model = 'x'")
    (tmp_path / "conftest.py").write_text("raise SystemExit('ran')")
    code = "import socket; socket.socket = None; from almakit.cli.main import main; exit(main(['run', '--help']))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
