"""Runs on models without gradients, runs with a surrogate, and the transfer matrix."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

import almakit
from almakit.cli.arguments import DONE, ERROR, FAILED_IMAGES, REFUSED
from almakit.cli.main import main
from almakit.errors import AlmakitError
from almakit.runs.failures import Refused, SpecChanged
from almakit.runs.spec import RunSpec
from almakit.runs.store.derived import read_transfers

TINY, IBP = "mnist/smallcnn-tiny", "mnist/smallcnn-tiny-ibp"
BUILD = """
import almakit

network = almakit.models.load("mnist/smallcnn-tiny")


def build():
    return lambda x: network(x).detach().numpy()
"""
DATA = ["--data", "mnist-demo", "--limit", "12", "--batch-size", "6", "--quiet"]


def numpy_model(x: Tensor) -> object:
    return NETWORK(x).detach().numpy()


NETWORK = almakit.models.load(TINY)


def test_a_model_of_numpy_is_run_verified_and_resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = tmp_path / "my_model.py"
    code.write_text(BUILD)
    command = ["run", "--model", f"{code}:build", *DATA, "--out", str(tmp_path / "a")]
    attacks = ["--attack", "square(distance=linf, epsilon=0.3, steps=60)", "--attack", "hopskipjump(steps=120)"]
    assert main([*command, "--attack", "ddn(steps=5)"]) == REFUSED
    said = capsys.readouterr().err
    assert "non-differentiable" in said and "square" in said and "hopskipjump" in said
    assert main([*command, *attacks]) == DONE and main([*command, *attacks]) == DONE
    run = almakit.open(tmp_path / "a")
    assert all(record.backwards == 0 for record in run.records)
    assert sum(record.fooled for record in run.records) > 20
    assert main(["verify", str(tmp_path / "a"), "--model", f"{code}:build"]) == DONE


def test_a_surrogate_lends_its_gradients_and_is_counted(tmp_path: Path) -> None:
    data = almakit.data.load("mnist-demo", limit=12).tensors()
    with pytest.raises(Refused, match="non-differentiable"):
        almakit.evaluate(numpy_model, data, "ddn(steps=20)")
    run = almakit.evaluate(numpy_model, data, "ddn(steps=20)", surrogate=NETWORK, out=tmp_path / "a")
    plain = almakit.evaluate(NETWORK, data, "ddn(steps=20)", out=tmp_path / "b")
    assert [r.verified for r in run.records] == pytest.approx([r.verified for r in plain.records], rel=1e-3)
    for record in run.records:
        assert record.surrogate_forwards is not None and 1 <= record.surrogate_forwards <= record.forwards
    assert all(record.surrogate_forwards is None for record in plain.records)
    assert "surrogate_forwards" in run.to_pandas().columns
    mean = sum(record.surrogate_forwards or 0 for record in run.records) / len(run.records)
    assert run.summary["attacks"][0]["surrogate_forwards"]["mean"] == pytest.approx(mean)
    assert "surrogate's" in run.table() and "surrogate's" not in plain.table()
    assert "gradients of mnist/smallcnn-tiny" in run.report(figures=False).read_text()


def test_the_surrogate_is_part_of_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["run", "--model", TINY, *DATA, "--attack", "ddn(steps=10)", "--out", str(tmp_path / "a")]
    assert main([*command, "--surrogate", IBP]) == FAILED_IMAGES  # a few steps with another model's gradients
    assert f'surrogate = "{IBP}"' in (tmp_path / "a" / "run.toml").read_text()
    assert main(["run", "--config", str(tmp_path / "a" / "run.toml"), "--quiet"]) == FAILED_IMAGES
    assert main(command) == 1 and "surrogate" in capsys.readouterr().err
    assert RunSpec(surrogate=IBP).sha256 != RunSpec().sha256
    assert "surrogate" not in RunSpec().canonical()


def test_preflight_looks_at_both(tmp_path: Path) -> None:
    data = almakit.data.load("mnist-demo", limit=12).tensors()
    with pytest.raises(Refused, match=r"the surrogate: .*No gradient|the surrogate: No gradient"):
        almakit.evaluate(NETWORK, data, "ddn(steps=5)", surrogate=numpy_model)
    with pytest.raises(Refused, match=r"the surrogate: .* clean images"):
        almakit.evaluate(NETWORK, data, "ddn(steps=5)", surrogate=lambda x: NETWORK(x).roll(3, 1))


def test_other_weights_of_the_surrogate_do_not_go_on(tmp_path: Path) -> None:
    data = almakit.data.load("mnist-demo", limit=12).tensors()
    other = almakit.models.load(IBP).network  # a network without a hash of its own
    almakit.evaluate(NETWORK, data, "ddn(steps=5)", surrogate=other, out=tmp_path / "a", batch_size=6)
    with torch.no_grad():
        next(other.parameters()).mul_(1.01)
    with pytest.raises(SpecChanged, match="the weights of the surrogate"):
        almakit.evaluate(NETWORK, data, "ddn(steps=5)", surrogate=other, out=tmp_path / "a", batch_size=6)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folders = []
    for model in (TINY, IBP):
        folders.append(tmp_path_factory.mktemp("runs") / "a")
        attack = ["--attack", "pgd(distance=linf, epsilon=0.3, steps=10)", "--attack", "ddn(steps=20)"]
        assert main(["run", "--model", model, *DATA, *attack, "--out", str(folders[-1])]) in (DONE, FAILED_IMAGES)
    return folders


def test_the_matrix_has_sources_as_rows_and_targets_as_columns(
    pair: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["transfer", *map(str, pair), "--model", TINY, "--model", IBP, "--json"]) == DONE
    made = json.loads(capsys.readouterr().out)
    assert made["targets"] == [TINY, IBP] and [row["source"] for row in made["rows"]] == [TINY, TINY, IBP, IBP]
    for folder, own, rows in ((pair[0], 0, made["rows"][:2]), (pair[1], 1, made["rows"][2:])):
        run = almakit.open(folder)
        for row, info in zip(rows, run.attacks, strict=True):
            found = [r for r in run.records_of(info.index) if r.slot is not None and r.fooled]
            own_cell = {"images": len(found), "fooled": len(found), "share": 1.0}
            assert row["cells"][own].items() >= own_cell.items(), "its own model"
            # The other model, asked here by hand.
            other = almakit.models.load((IBP, TINY)[own])
            clean, stored = (
                other(torch.from_numpy(part)).argmax(1).tolist()
                for part in (run.originals([r.image for r in found]), run.adversarials(found))
            )
            labels = [run.image[r.image].label for r in found]
            right = [place for place, label in enumerate(labels) if clean[place] == label]
            fooled = sum(stored[place] != labels[place] for place in right)
            cell = row["cells"][1 - own]
            assert (cell["images"], cell["fooled"], cell["share"]) == (len(right), fooled, fooled / len(right))
            assert cell["low"] <= cell["share"] <= cell["high"]
    assert main(["transfer", str(pair[0]), "--model", IBP]) == DONE
    assert "found with" in capsys.readouterr().out
    assert main(["report", *map(str, pair), "--out", str(tmp_path / "page"), "--no-figures"]) == DONE
    page = next((tmp_path / "page").rglob("*.html")).read_text()
    assert 'id="transfer"' in page and f">{IBP} <small>%</small></th>" in page


def test_answers_that_are_there_are_not_asked_for_again(pair: list[Path]) -> None:
    calls = 0

    def counted(x: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return NETWORK(x)

    first = almakit.transfer(pair[0], counted)
    asked = calls
    assert asked > 0 and almakit.transfer(pair[0], [counted]) == first and calls == asked
    part = next(part for part in read_transfers(pair[0]) if part.target.startswith("python:"))
    part.seen = {text: dict(list(rows.items())[:3]) for text, rows in part.seen.items()}
    part.write(pair[0])
    assert almakit.transfer(pair[0], counted) == first and calls > asked, "what is missing is asked for"


def test_mistakes_are_sentences(pair: list[Path], tmp_path: Path) -> None:
    assert main(["transfer", str(tmp_path), "--model", TINY]) == ERROR
    place = next((pair[1] / "transfers").glob("*.json"))
    kept = place.read_text()
    altered = json.loads(kept)
    next(iter(altered["seen"].values()))["0"] = [7, 0]
    for wrong in ("{", '{"seen": 3}', json.dumps(altered)):
        place.write_text(wrong)
        with pytest.raises(AlmakitError, match="is not a file of transfers of this run"):
            almakit.transfer(pair[1], TINY)
    place.write_text(kept)
