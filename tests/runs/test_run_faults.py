"""Disks and processes fail: a sentence each time, nothing lost, and the same command goes on."""

from __future__ import annotations

import shutil
import sqlite3

import pytest
from runs.injections import obeying_permissions
from runs.small_runs import Failing, Net, contents, images, small_run

from almakit import Run
from almakit.data.dataset import Dataset
from almakit.runs.failures import SpecChanged, StoreError
from almakit.runs.progress import Progress
from almakit.runs.store import database, only_writer


class Heard(Progress):
    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, sentence: str) -> None:
        self.said.append(sentence)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small_run(tmp_path_factory.mktemp("whole") / "run").folder


@pytest.fixture(scope="module")
def whole(folder):
    return contents(folder)


@pytest.mark.parametrize("harm", ["altered", "truncated", "empty", "missing", "original"])
def test_a_damaged_chunk_is_computed_again(folder, whole, tmp_path, harm):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    pattern = "originals/00001.safetensors" if harm == "original" else "adversarials/01-alma-l1/00002.safetensors"
    (file,) = tmp_path.glob(pattern)
    content = bytearray(file.read_bytes())
    if harm == "missing":
        file.unlink()
    elif harm == "altered":
        content[len(content) // 2] ^= 8
        file.write_bytes(content)
    else:
        file.write_bytes({"truncated": content[:-7], "empty": b"", "original": content[:-1]}[harm])
    with pytest.raises(StoreError, match="recomputes this chunk"):
        run = Run(tmp_path)
        run.originals()
        run.adversarials([r for r in run.records if r.slot is not None])
    model, heard = Net(), Heard()
    run = small_run(tmp_path, model=model, progress=heard)
    assert contents(tmp_path) == whole
    assert any("computed again" in sentence and pattern in sentence for sentence in heard.said)
    assert 0 < model.passes < 60, "only the damaged chunk is computed again"
    run.originals()


def test_a_read_only_folder_is_a_sentence(tmp_path):
    locked = tmp_path / "locked"
    locked.mkdir()
    locked.chmod(0o555)
    for out in (locked / "run", locked):
        with obeying_permissions(), pytest.raises(StoreError, match=r"cannot write .*: Permission denied"):
            small_run(out)
    locked.chmod(0o755)
    small_run(locked / "run")


def test_a_finished_run_can_be_read_from_a_read_only_disk(tmp_path):
    run = small_run(tmp_path / "run")
    table = run.table()
    for path in [*run.folder.rglob("*"), run.folder]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    with obeying_permissions():
        assert Run(run.folder).table() == table


def test_a_file_in_the_way_is_a_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="Not a directory"):
        small_run(tmp_path / "file" / "run")


def test_a_locked_database_is_a_sentence_and_nothing_is_lost(whole, tmp_path, monkeypatch):
    monkeypatch.setattr(database, "LOCK_PATIENCE", 0.2)
    stopped = []

    def lock(key, _):
        """Another process takes the database during the third chunk's first attack."""
        if (key.attack, key.chunk) == (0, 2):
            other = sqlite3.connect(tmp_path / "records.sqlite", isolation_level=None)
            other.execute("BEGIN EXCLUSIVE")
            stopped.append(other)

    with pytest.raises(StoreError, match="database is locked"):
        small_run(tmp_path, engine=Failing(lock))
    with pytest.raises(StoreError, match="database is locked"):
        small_run(tmp_path)
    stopped[0].close()
    run = Run(tmp_path)
    assert len(run.records) == 32, "two attacks on two chunks were finished before the lock"
    small_run(tmp_path)
    assert contents(tmp_path) == whole


def test_a_second_writer_is_told(tmp_path):
    with only_writer(tmp_path / "records.sqlite"), pytest.raises(StoreError, match="another almakit process"):
        small_run(tmp_path)


def test_a_damaged_database_is_a_sentence(folder, tmp_path):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "records.sqlite").write_bytes(b"this is no database at all, though it is long enough to be one" * 20)
    for use in (small_run, Run):
        with pytest.raises(StoreError, match="not a database"):
            use(tmp_path)


def test_data_that_change_while_they_are_read_are_refused(tmp_path):
    x, labels = images()
    asked = []

    def read(indices):
        asked.append(len(indices))
        return x[list(indices)] * (1.0 if len(asked) < 3 else 0.5)

    with pytest.raises(SpecChanged, match="same image every time"):
        small_run(tmp_path, data=Dataset("mine", tuple(map(str, range(40))), labels, read), preflight=False)
