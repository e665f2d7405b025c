"""Every number a report uses is checked, images are looked up by index, and run.toml is
held to its hash."""

from __future__ import annotations

import csv
import random
import shutil
from pathlib import Path

import pytest
from runs.forgery import NUMBERS, Colours, alter, colour_run, forge
from runs.small_runs import ATTACKS, Failing, Net, images, small_run, source_file
from security.hostile_folders import sql

import almakit
from almakit import Run
from almakit.cli.main import main
from almakit.data.dataset import image_sha256
from almakit.errors import AlmakitError
from almakit.report import subjects
from almakit.report.page import render
from almakit.runs.executors import Lost
from almakit.runs.export import flat_rows
from almakit.runs.failures import SpecChanged
from almakit.runs.merge import merge
from almakit.runs.model import open_model
from almakit.runs.spec import RunSpec
from almakit.runs.store.records import MEASURED
from almakit.runs.verify import verify_run

SUBJECT = open_model(Colours(), RunSpec(model="m", data="d"))


@pytest.fixture(scope="module")
def colours(tmp_path_factory):
    return colour_run(tmp_path_factory.mktemp("colours") / "run").folder


def noticed(folder, subject=SUBJECT) -> list[str]:
    """What verify says of a folder: the disagreements, or why it cannot be read."""
    try:
        run = Run(folder)
        found = verify_run(run, subject)
        weights = [] if run.meta["weights_sha256"] == subject.weights_sha256 else ["other weights"]
        assert found.good == (not found.sentences() and all(v.confirmed == v.claimed for v in found)), found
        return (
            found.sentences() + weights + [f"{v.attack}: a claim is refuted" for v in found if v.confirmed < v.claimed]
        )
    except AlmakitError as error:
        return [str(error)]


def test_an_honest_folder_has_nothing_to_hide(colours):
    assert noticed(colours) == []
    statuses = {record.status for record in Run(colours).records}
    assert statuses >= {"success", "already-wrong"} and all(
        r.measures["ssim"] is not None for r in Run(colours).records if r.claimed
    )


@pytest.mark.parametrize(
    "settings",
    [{"dtype": "float64"}, {"targets": "all"}, {"targets": "least-likely", "bits": 8}, {"dtype": "bfloat16"}],
    ids=str,
)
def test_honest_folders_of_every_kind_pass(settings, tmp_path):
    """Among them an attack that finds next to nothing, so that all that is judged is a clean image that was wrong from
    the start."""
    attacks = [ATTACKS[0], "apgd(distance=linf, steps=2, epsilon=0.0001)"]
    run = small_run(tmp_path, attacks=attacks, limit=16, **settings)
    found = verify_run(run, open_model(Net(), run.spec))
    assert found.good, found.sentences()


@pytest.mark.parametrize(("table", "column"), NUMBERS, ids=lambda name: str(name))
def test_verify_notices_every_stored_number(table, column, colours, tmp_path):
    """Once each; tests/fuzz does it many times."""
    folder = Path(shutil.copytree(colours, tmp_path / "run"))
    done = alter(folder, table, column, random.Random(len(column)))
    assert noticed(folder), f"{done} passed"


def test_the_report_no_longer_shows_a_tenth_without_a_word(tmp_path, capsys):
    """As it was reported: measured times 0.1 in the database."""
    source = source_file(tmp_path)
    command = f"run --model {source}:model --data {source}:data --batch-size 8 --quiet --out {tmp_path / 'run'}".split()
    assert main([*command, "--attack", ATTACKS[0]]) == 0
    verify = ["verify", str(tmp_path / "run"), "--model", f"{source}:model"]
    assert main(verify) == 0
    assert "Every number that can be computed again is the stored one" in capsys.readouterr().out
    forge(tmp_path / "run", lambda db: db.execute("UPDATE results SET measured = measured * 0.1"))
    assert main(verify) == 4
    said = capsys.readouterr().out
    assert f"{ATTACKS[0]}: measured disagrees 39 times (for one image 0: stored" in said
    assert "Every claimed success" not in said
    change = "UPDATE results SET measured = measured * 10, fooled_8bit = 1 - fooled_8bit WHERE image = 7"
    sql(change)(tmp_path / "run")
    assert main(verify) == 4
    assert "fooled_8bit disagrees 1 time (for one image 7:" in capsys.readouterr().out


def test_a_hidden_success_is_noticed(colours, tmp_path):
    """A success that was made a failure, with nothing left of it in its row: its image is still in the file."""
    shutil.copytree(colours, tmp_path / "run")
    empty = (*MEASURED, "prediction", "measured", "measured_8bit", "slot", "distance")
    gone = ", ".join(
        ["status = 'failed', top = '[]', fooled = 0, fooled_8bit = 0", *(f"{one} = NULL" for one in empty)]
    )
    forge(tmp_path / "run", lambda db: db.execute(f"UPDATE results SET {gone} WHERE image = 5"))
    assert any("the stored images" in said for said in noticed(tmp_path / "run"))
    shutil.copytree(colours, tmp_path / "other")
    forge(tmp_path / "other", lambda db: db.execute("DELETE FROM results WHERE image = 5"))
    assert any("the rows of a chunk" in said for said in noticed(tmp_path / "other"))


def test_a_folder_without_a_distance_almakit_knows_says_so(tmp_path):
    run = small_run(tmp_path, attacks=[almakit.ALMA(distance=lambda x, y: (x - y).abs().flatten(1).sum(1), steps=4)])
    found = verify_run(run, open_model(Net(), run.spec))
    assert not found.folder and next(iter(found)).unmeasured == sum(record.claimed for record in run.records) > 0


@pytest.mark.parametrize("gap", ["shard", "chunk given up"])
def test_export_and_verify_go_by_image_index(gap, tmp_path):
    if gap == "shard":
        small_run(tmp_path, shard=(1, 2))
        merge([tmp_path])
    else:
        small_run(tmp_path, engine=Failing(lambda key, _: Lost("it broke.", 1) if key.chunk == 1 else None))
    run = Run(tmp_path)
    place = 8 if gap != "shard" else 0
    assert len(run.images) < 40 and run.images[place].index != place, "there is a gap"
    x, labels = images()
    for row in flat_rows(run):
        image = row["image"]
        assert (row["id"], row["label"], row["sha256"]) == (str(image), int(labels[image]), image_sha256(x[image]))
    found = verify_run(run, open_model(Net(), run.spec))
    assert found.good, found.sentences()
    assert [v.claimed for v in found] == [len(run.images)] * 2
    assert main(["export", str(tmp_path), "--format", "png", "--out", str(tmp_path / "png")]) == 0
    with (tmp_path / "png" / "images.csv").open(newline="") as opened:
        for line in csv.DictReader(opened):
            assert int(line["label"]) == int(labels[int(line["id"])])
            assert line["file"].rpartition("/")[2].startswith(f"{int(line['id']):06d}")
    render(subjects.load([tmp_path]))


def edited(text: str) -> str:
    return text.replace("seed = 0", "seed = 7")


def truncated(text: str) -> str:
    return text[: text.index("# seed")]


@pytest.mark.parametrize("harm", [edited, truncated])
def test_no_reader_believes_an_edited_run_toml(harm, tmp_path, capsys):
    run = small_run(tmp_path / "run")
    file = run.folder / "run.toml"
    honest = file.read_text()
    file.write_text(harm(honest))
    assert file.read_text() != honest
    readers = {
        "open": lambda: Run(run.folder),
        "report": lambda: subjects.load([run.folder]),
        "merge": lambda: merge([run.folder], tmp_path / "other"),
    }
    for name, read in readers.items():
        with pytest.raises(SpecChanged, match=r"run\.toml is not the one that records\.sqlite"):
            read()
            pytest.fail(name)
    more = {"compare": [str(run.folder)], "merge": ["--out", str(tmp_path / "merged")]}
    for verb in ("verify", "report", "export", "compare", "merge"):
        assert main([verb, str(run.folder), *more.get(verb, [])]) == 1, verb
        assert "run.toml is not the one" in capsys.readouterr().err
    assert not (tmp_path / "merged").exists() and not (tmp_path / "other").exists()
    file.write_text(honest)
    assert len(Run(run.folder).records) == 80


def test_a_folder_without_the_hash_still_opens(tmp_path):
    small_run(tmp_path)
    sql("DELETE FROM meta WHERE key = 'spec_sha256'")(tmp_path)
    assert len(Run(tmp_path).records) == 80


def test_merge_into_another_runs_folder_is_refused(tmp_path):
    for number in (0, 1):
        small_run(tmp_path / f"shard{number}", shard=(number, 2))
    small_run(tmp_path / "other", seed=5)
    before = {path: path.read_bytes() for path in (tmp_path / "other").rglob("*") if path.is_file()}
    with pytest.raises(SpecChanged, match="different runs: seed is 0 and 5"):
        merge([tmp_path / "shard0", tmp_path / "shard1"], tmp_path / "other")
    assert {path: path.read_bytes() for path in (tmp_path / "other").rglob("*") if path.is_file()} == before
