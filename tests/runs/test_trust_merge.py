"""A merge is all or nothing, whether it is refused, killed at any step, or runs out of disk."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from runs.merge_injections import WAYS, MergeArena, _files
from runs.small_runs import contents

from almakit.errors import AlmakitError
from almakit.runs import merge as merging
from almakit.runs.failures import Corrupt, SpecChanged, StoreError
from almakit.runs.merge import merge


@pytest.fixture(scope="module")
def arena(tmp_path_factory):
    """In memory where there is such a folder: a kill loses nothing that a disk would have kept, and half of the time is
    a disk's."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield MergeArena(tmp_path_factory.mktemp("merges"))
        return
    with tempfile.TemporaryDirectory(dir=memory) as place:
        yield MergeArena(Path(place))


@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("way", WAYS)
def test_a_merge_killed_at_any_step(way, every, arena):
    steps = arena.steps(way)
    assert steps > 30
    for step in range(1, steps + 1, every):
        injected = arena.killed(way, step)
        assert injected.survived, injected.why


def disagreeing(folder: Path) -> None:
    """A row of the second shard that the target has otherwise, with its file."""
    from runs.forgery import forge

    shutil.copy(folder / "records-1-of-2.sqlite", folder / "records.sqlite")
    forge(folder, lambda db: db.execute("UPDATE results SET measured = 2 * measured WHERE image = 9"))
    (folder / "records.sqlite").rename(folder / "records-1-of-2.sqlite")


def damaged_file(folder: Path) -> None:
    file = sorted((folder / "adversarials").rglob("*.safetensors"))[-1]
    file.write_bytes(file.read_bytes()[:-1] + b"x")


@pytest.mark.parametrize(("harm", "kind"), [(disagreeing, SpecChanged), (damaged_file, Corrupt)])
def test_a_refused_merge_leaves_its_target_as_it_was(harm, kind, arena, tmp_path):
    """The target holds the whole run; the second shard has another number for an image of it, and other pictures."""
    shutil.copytree(arena.place / "whole", tmp_path / "target")
    for number in (0, 1):
        shutil.copytree(arena.place / f"shard{number}", tmp_path / f"shard{number}")
    harm(tmp_path / "shard1")
    before = _files(tmp_path / "target")
    for out in ("target", "new"):
        if out == "new" and harm is disagreeing:
            continue  # there is nothing to disagree with
        with pytest.raises(kind):
            merge([tmp_path / "shard0", tmp_path / "shard1"], tmp_path / out)
    after = _files(tmp_path / "target")
    assert {path for path in after} - {tmp_path / "target" / "records.lock"} == set(before) - {
        tmp_path / "target" / "records.lock"
    }
    assert all(after[path] == content for path, content in before.items() if path.suffix != ".sqlite")
    assert contents(tmp_path / "target") == contents(arena.place / "whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["shard0", "shard1", "target"]


def test_a_merge_that_fails_while_it_copies_is_completed_by_the_same_call(arena, tmp_path, monkeypatch):
    shutil.copytree(arena.place / "part", tmp_path / "target")
    before, calls = _files(tmp_path / "target"), []

    def full(path: Path, content: bytes) -> None:
        calls.append(path)
        if len(calls) == 3:
            raise StoreError("the disk is full")
        chunks(path, content)

    chunks = merging.write_bytes
    monkeypatch.setattr(merging, "write_bytes", full)
    with pytest.raises(StoreError, match="full"):
        merge([arena.place / "shard1"], tmp_path / "target")
    after = _files(tmp_path / "target")
    assert len(calls) == 3 and all(after[path] == content for path, content in before.items())
    assert contents(tmp_path / "target") == contents(arena.place / "part")
    merge([arena.place / "shard1"], tmp_path / "target")
    assert contents(tmp_path / "target") == arena.expected


def test_a_folder_that_is_something_else_is_left_alone(arena, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(AlmakitError, match="neither empty nor a run folder"):
        merge([arena.place / "shard0"], tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    (tmp_path / "empty").mkdir()
    assert merge([arena.place / "shard0", arena.place / "shard1"], tmp_path / "empty")[1] == 0
    assert contents(tmp_path / "empty") == arena.expected
