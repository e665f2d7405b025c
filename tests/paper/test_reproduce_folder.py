"""One output folder and many commands: the report is of all of them; unfinished cells, changed settings and
weights files of one's own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from almakit.cli.main import main
from almakit.data import hub
from almakit.models.zoo import ZOO
from almakit.paper.entries import collect, from_json
from almakit.paper.plan import Settings, plan
from almakit.runs.spec import RunSpec
from almakit.runs.store import ATTACK, ChunkKey, FailureRow, Store

TINY = ["reproduce", "mnist", "--distances", "l2", "--model", "mnist/smallcnn-tiny", "--no-figures", "--quiet"]
SMALL = [*TINY, "--budget", "small", "--limit", "4", "--batch-size", "2"]


def reported(out: Path) -> dict[tuple[str, str, str], int]:
    """(label, attack, budget) -> images, as the report has them."""
    return {(e.label, e.attack, e.budget): e.images for e in from_json(out / "report" / "reproduce.json")[0]}


@pytest.mark.shared_data
def test_a_second_command_adds_to_the_report(tmp_path: Path) -> None:
    out = ["--out", str(tmp_path)]
    assert main([*SMALL, "--attacks", "alma", *out]) == 0
    assert main([*SMALL, "--attacks", "ddn", *out]) == 0
    assert set(reported(tmp_path)) == {("mnist/smallcnn-tiny", "alma", "100"), ("mnist/smallcnn-tiny", "ddn", "100")}
    assert (
        main([*TINY, "--budget", "small", "--limit", "3", "--model", "mnist/smallcnn", "--attacks", "ddn", *out]) == 0
    )
    assert reported(tmp_path) == {
        ("mnist/smallcnn-tiny", "alma", "100"): 4,
        ("mnist/smallcnn-tiny", "ddn", "100"): 4,
        ("SmallCNN", "ddn", "100"): 3,
    }, "of the two folders of a cell the one with more images counts"
    (config,) = tmp_path.glob("runs/smallcnn-tiny/l2-ddn-100-first-4/run.toml")
    config.write_text(config.read_text().replace("steps=100", "steps=100, gamma=none"))
    with Store(config.parent / "records.sqlite") as store:
        store.set_meta(
            spec_sha256=RunSpec.from_toml(config).sha256
        )  # as an almakit that writes the text so would have left it
    assert len(collect(tmp_path, "mnist").entries) == 3, "an attack written otherwise is the same attack"
    assert collect(tmp_path, "cifar10").entries == [], "the same attacks on another data set are other cells"


def test_a_cell_begun_with_other_settings_does_not_stop_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path)]
    assert main([*SMALL, "--attacks", "alma", *out]) == 0
    assert main([*SMALL, "--attacks", "alma,ddn", "--seed", "1", *out]) == 0
    said = capsys.readouterr().out
    assert "ALMA 100 (ℓ2) on mnist/smallcnn-tiny is not resumed" in said and "seed is 1 now and was 0" in said
    assert set(attack for _, attack, _ in reported(tmp_path)) == {"alma", "ddn"}
    assert "is not resumed" in (tmp_path / "report" / "paper.md").read_text()


def test_what_is_not_finished_is_named_and_what_was_given_up_is_exit_code_4(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [*SMALL, "--attacks", "alma", "--out", str(tmp_path)]
    assert main(flags) == 0
    key = ChunkKey(ATTACK, 0, 1)
    (database,) = tmp_path.glob("runs/*/*/records.sqlite")
    with Store(database) as store:
        store.discard(key)
    assert main([*flags, "--report-only"]) == 0
    with Store(database) as store:
        store.give_up(FailureRow(key, 2, 3, "the card fell off."), 1)
    assert main([*flags, "--report-only"]) == 4
    sentence = "ALMA 100 (ℓ2) on mnist/smallcnn-tiny is not finished: 2 of 4 images; 1 chunk was given up."
    assert sentence in capsys.readouterr().out
    assert all(sentence in (tmp_path / "report" / name).read_text() for name in ("paper.md", "paper.html"))
    assert main(flags) == 0 and "is not finished" not in (tmp_path / "report" / "paper.md").read_text()


@pytest.mark.shared_data
def test_weights_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    places = [tmp_path / "a" / "net.safetensors", tmp_path / "b" / "net.safetensors", tmp_path / "other.safetensors"]
    for place in places:
        place.parent.mkdir(exist_ok=True)
        shutil.copy(hub.path(str(ZOO["mnist/smallcnn"].file)), place)
    first, second, third = (f"mnist/smallcnn@{place}" for place in places)

    def planned(*models: str) -> tuple[list[str], list[str]]:
        made = plan(Settings("mnist", tmp_path, "small", ("alma",), ("l2",), models, limit=4))
        return [task.network.label for task in made.tasks], [task.folder.parent.name for task in made.tasks]

    labels, folders = planned(third)
    assert labels == ["SmallCNN (other.safetensors)", "SmallCNN-DDN", "SmallCNN-TRADES"], (
        "the paper's other networks stay"
    )
    assert folders[0].startswith("smallcnn-") and folders[1:] == ["smallcnn-ddn", "smallcnn-trades"]
    labels, folders = planned(first, second, "mnist/smallcnn-tiny")
    assert labels == [first, second, "mnist/smallcnn-tiny"] and len(set(folders)) == 3
    labels, _ = planned("mnist/smallcnn-tiny", "mnist/smallcnn-tiny")
    assert labels == ["mnist/smallcnn-tiny"], "a model that is given twice counts once"
    assert main(["reproduce", "mnist", "--attacks", ","]) == 2 and "',' names nothing" in capsys.readouterr().err
