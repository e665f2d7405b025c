"""Other people's files and folders run nothing here: one test for each way that once did, each with the proof that the
way is real."""

from __future__ import annotations

import csv
import json
import os
import shutil
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from runs.small_runs import images, small_run, source_file
from security.hostile_files import evil_py, exploits, pack, program
from security.hostile_folders import sql, summed, toml
from security.mutated_files import graph

from almakit import Run, data, models
from almakit.cli.main import main
from almakit.data.dataset import Dataset
from almakit.errors import AlmakitError, BadInput, BadModel
from almakit.runs.failures import Corrupt, StoreError
from almakit.runs.spec import RunSpec


def opened(path: Path, trust: bool) -> None:
    with suppress(Exception):
        models.load(str(path), trust=trust)(torch.rand(2, 1, 8, 8))


# 1. Model files.


def test_an_exported_program_is_not_opened_without_trust(tmp_path):
    mark = tmp_path / "it-ran"
    for number, made in enumerate([program(), *exploits(program(), mark).values()]):
        path = pack(tmp_path / f"program-{number}.pt2", made)
        with pytest.raises(BadModel, match=r"can run code of its author.*--trust.*\.onnx"):
            models.load(str(path))
    assert not mark.exists()


@pytest.mark.parametrize("name", ["an opaque constant", "a guard", "a pickled weight", "pickled sample inputs"])
def test_the_hostile_programs_are_hostile(tmp_path, name):
    """Without this the test above could not fail: torch's own loader, which --trust asks for, runs them."""
    mark = tmp_path / "it-ran"
    opened(pack(tmp_path / "evil.pt2", exploits(program(), mark)[name]), trust=True)
    assert mark.exists()


def test_onnx_weights_are_read_from_beside_the_file_and_nowhere_else(tmp_path):
    good = graph()
    onnx.save(good, str(tmp_path / "net.onnx"), save_as_external_data=True, location="net.bin", size_threshold=0)
    onnx.save(graph(), str(tmp_path / "whole.onnx"))
    x = torch.rand(1, 1, 8, 8)
    assert torch.equal(models.load(str(tmp_path / "net.onnx"))(x), models.load(str(tmp_path / "whole.onnx"))(x))
    (tmp_path / "sub").mkdir()
    for location in ("../net.bin", str(tmp_path / "net.bin"), "link.bin"):
        model = onnx.load(str(tmp_path / "net.onnx"), load_external_data=False)
        for tensor in model.graph.initializer:
            tensor.external_data[0].value = location
        (tmp_path / "sub" / "net.onnx").write_bytes(model.SerializeToString())
        with suppress(FileExistsError):
            (tmp_path / "sub" / "link.bin").symlink_to(tmp_path / "net.bin")
        with pytest.raises(BadModel, match="outside its own folder"):
            models.load(str(tmp_path / "sub" / "net.onnx"))


def test_the_tar_checkpoints_of_2017_are_refused(tmp_path):
    import tarfile

    with tarfile.open(tmp_path / "old.pt", "w") as tar:
        tar.addfile(tarfile.TarInfo("pickle"))
    with pytest.raises(BadModel, match="tar file"):
        models.load(f"mnist/smallcnn-tiny@{tmp_path / 'old.pt'}")


# 2. Run folders.


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("made")
    source = source_file(place)
    flags = ["--data", f"{source}:data", "--limit", "8", "--attack", "alma(distance=l2, steps=12)", "--batch-size", "8"]
    assert main(["run", "--model", f"{source}:model", *flags, "--out", str(place / "run"), "--quiet"]) == 0
    return place


@pytest.fixture
def theirs(made: Path, tmp_path) -> Path:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path / "run"


def changed(folder: Path, *changes) -> Path:  # type: ignore[no-untyped-def]
    for change in changes:
        change(folder)
    summed(folder)
    return folder


def test_verify_builds_no_attack_a_folder_names(theirs, tmp_path):
    mark = tmp_path / "it-ran"
    changed(theirs, sql("UPDATE attacks SET text = ?", f"{evil_py(tmp_path, mark)}:f(steps=3)"))
    assert main(["verify", str(theirs), "--model", f"{tmp_path / 'mine.py'}:model"]) in (0, 4) and not mark.exists()


def test_trust_comes_from_the_command_line(theirs, tmp_path, capsys):
    from security.test_security import evil_checkpoint

    mark = tmp_path / "it-ran"
    file = evil_checkpoint(tmp_path / "evil.pt", mark)
    changed(theirs, toml(model=json.dumps(f"mnist/smallcnn-tiny@{file}"), trust="true"))
    assert main(["verify", str(theirs)]) == 1 and not mark.exists()
    assert "--trust" in capsys.readouterr().err
    assert main(["run", "--config", str(theirs / "run.toml")]) == 2 and not mark.exists()
    assert "Give --trust yourself" in capsys.readouterr().err


def test_files_that_are_links_are_neither_read_nor_written_through(theirs, tmp_path):
    victim = tmp_path / "victim"
    victim.mkdir()
    for name in ("report", "png"):
        (theirs / name).symlink_to(victim)
    assert main(["report", str(theirs), "--no-figures"]) == 1 and main(["export", str(theirs), "--format", "png"]) == 1
    assert not list(victim.iterdir())
    file = next(theirs.glob("adversarials/*/*.safetensors"))
    file.rename(victim / file.name)
    file.symlink_to(victim / file.name)
    with pytest.raises(Corrupt, match="link"):
        Run(theirs).adversarials([record for record in Run(theirs).records if record.slot is not None])


def test_cells_that_almakit_never_writes_are_refused(theirs):
    wrong = ("target = '../../x'", "slot = -1", "measured = 9e999")
    for cell in (*(f"results SET {one}" for one in wrong), "images SET id = x'ff'"):
        run = Run(changed(theirs, sql(f"UPDATE {cell}")))
        with pytest.raises(StoreError, match="almakit did not write"):
            run.originals()


# 3. What export writes.


def test_png_names_come_from_a_slug_and_an_index(theirs, tmp_path):
    changed(theirs, sql("UPDATE attacks SET text = ?, distance = ?", "../../../escaped/x", "../y"))
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    assert main(["export", str(theirs), "--format", "png", "--out", str(tmp_path / "out" / "png")]) == 0
    new = {path for path in tmp_path.rglob("*") if path.is_file()} - before
    assert new and all(path.is_relative_to(tmp_path / "out" / "png") for path in new)
    assert {path.parent.name for path in new if path.suffix == ".png"} == {"00-escaped-x-y"}
    assert not list(tmp_path.parent.rglob("escaped*"))


def test_cells_are_no_formulas_and_numbers_stay_numbers(tmp_path):
    x, labels = images(8)
    begins = ["=", "+", "-", "@", "\t", "\r", "==", "@@"]
    ids = tuple(f"{begin}cmd|' /C calc'!A{row}" for row, begin in enumerate(begins))
    data = Dataset("d", ids, labels, lambda rows: x[list(rows)])
    run = small_run(tmp_path / "run", data=data, attacks=["alma(distance=l2, steps=4)"])
    assert main(["export", str(run.folder), "--out", str(tmp_path / "a.csv")]) == 0
    assert main(["export", str(run.folder), "--format", "png", "--out", str(tmp_path / "png")]) in (0, 1)
    tables = [path for path in (tmp_path / "a.csv", tmp_path / "png" / "images.csv") if path.is_file()]
    for table in tables:
        with table.open(newline="") as opened:
            for row in csv.DictReader(opened):
                begin = begins[int(row["id"].rpartition("A")[2])]
                assert row["id"].startswith(f"'{begin}cmd".replace("\r", " "))
    with (tmp_path / "a.csv").open(newline="") as opened:
        rows = list(csv.DictReader(opened))
    assert len(rows) == len(begins)
    measured = [np.nan if record.measured is None else record.measured for record in run.records]
    assert np.array_equal([float(row["measured"] or "nan") for row in rows], measured, equal_nan=True)


# 4. A sentence instead of "unexpected".


@pytest.mark.parametrize("sides", [(1, 1, 1 << 40, 8), (1 << 62, 1, 8, 8), (1, -3, 8, 8), (1, 1, 100000, 100000)])
def test_onnx_with_impossible_dimensions(tmp_path, sides):
    onnx.save(graph(sides=sides), str(tmp_path / "net.onnx"))
    with pytest.raises(BadModel, match="no images have"):
        models.load(str(tmp_path / "net.onnx"))
    model = graph()
    model.graph.initializer[0].dims[0] = sides[1] * (1 << 50)
    (tmp_path / "dims.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(BadModel, match="ONNX file"):
        models.load(str(tmp_path / "dims.onnx"))


def test_a_lone_surrogate_in_a_name(tmp_path):
    x, labels = images(4)
    with pytest.raises(BadInput, match=r"\\ud800.*UTF-8.*rename"):
        Dataset("d", ("a", "b\ud800", "c", "d"), labels, lambda rows: x[list(rows)])
    with pytest.raises(BadInput, match="UTF-8"):
        Dataset("d", tuple("abcd"), labels, lambda rows: x[list(rows)], class_names=("\udcff",) * 5)
    for name in ("model", "data", "attacks", "targets"):
        with pytest.raises(BadInput, match="UTF-8"):
            RunSpec.from_dict({name: "\ud800.csv"})

    def odd(a, b):  # type: ignore[no-untyped-def]
        return (a - b).flatten(1).norm(dim=1)

    odd.__name__ = "odd\ud800"
    import almakit

    with pytest.raises(AlmakitError, match="UTF-8"):
        small_run(tmp_path / "run", attacks=[almakit.attacks.alma.ALMA(distance=odd, steps=2)])


def test_file_names_that_are_not_utf_8(tmp_path, capfd):
    from PIL import Image

    strange = os.fsdecode(b"\xff\xfe")
    (tmp_path / "images" / "a").mkdir(parents=True)
    Image.new("L", (8, 8)).save(tmp_path / "images" / "a" / f"{strange}.png")
    with pytest.raises(BadInput, match=r"\\udcff.*UTF-8"):
        data.load(f"folder:{tmp_path / 'images'}")
    source = source_file(tmp_path)
    out = tmp_path / f"run-{strange}"
    flags = ["--limit", "8", "--attack", "ddn(steps=12)", "--batch-size", "8", "--out", str(out), "--quiet"]
    assert main(["run", "--model", f"{source}:model", "--data", f"{source}:data", *flags]) == 0
    for verb, *more in (["report", "--no-figures"], ["export"], ["export", "--format", "png"], ["compare", str(out)]):
        assert main([verb, str(out), *more]) == 0, capfd.readouterr().err
    assert main(["verify", str(out), "--model", f"{source}:model"]) == 0
    assert main(["run", "--model", f"{strange}.pt2", "--data", "mnist-demo", *flags]) == 2
    assert "UTF-8" in capfd.readouterr().err
