"""Defaults: the usual attacks, attacks added to a run, one class as the target, training your own network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from laws.models import RowWise

import almakit
from almakit.cli.main import main
from almakit.errors import AlmakitError, BadInput
from almakit.runs import resume
from almakit.runs.spec import DEFAULT_ATTACKS, RunSpec
from almakit.train import Recipe, train

MODEL = RowWise((1, 4, 4)).eval()
X = torch.rand(12, 1, 4, 4, generator=torch.Generator().manual_seed(0))
with torch.no_grad():
    LABELS = MODEL(X).argmax(1)
TINY = ["--model", "mnist/smallcnn-tiny", "--data", "mnist-demo", "--limit", "12", "--batch-size", "6", "--quiet"]


def test_the_usual_attacks_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", "--model", "mnist/smallcnn-tiny", "--data", "mnist-demo", "--limit", "4", "--quiet"]) == 0
    (place,) = (tmp_path / "runs").iterdir()
    run = almakit.open(place)
    assert [info.text for info in run.attacks] == list(DEFAULT_ATTACKS)
    assert {info.distance for info in run.attacks} == {"l2", "linf"}
    assert [info.text for info in almakit.evaluate(MODEL, (X[:1], LABELS[:1])).attacks] == list(DEFAULT_ATTACKS)


def test_a_run_that_is_there_keeps_its_attacks(tmp_path: Path) -> None:
    almakit.evaluate(MODEL, (X, LABELS), "ddn(steps=3)", out=tmp_path / "a")
    assert [info.text for info in almakit.evaluate(MODEL, (X, LABELS), out=tmp_path / "a").attacks] == ["ddn(steps=3)"]


def verified(run: almakit.Run) -> dict[str, list[float]]:
    return {info.text: [record.verified for record in run.records_of(info.index)] for info in run.attacks}


def test_attacks_are_added_to_a_finished_run(tmp_path: Path) -> None:
    out = str(tmp_path / "a")
    assert main(["run", *TINY, "--attack", "ddn(steps=5)", "--out", out]) == 0
    before = almakit.open(out)
    assert main(["run", "--out", out, "--add", "fmn(steps=5)", "--add", "alma(distance=linf, steps=5)", "--quiet"]) in (
        0,
        4,
    )
    after = almakit.open(out)
    assert [info.text for info in after.attacks] == [
        "ddn(steps=5)",
        "fmn(distance=l2, steps=5)",
        "alma(distance=linf, steps=5)",
    ]
    assert verified(after)["ddn(steps=5)"] == verified(before)["ddn(steps=5)"]
    assert after.summary["complete"]
    assert len(after.records) == 36
    chunks = {row.key: row.sha256 for row in before.chunks}
    assert chunks.items() <= {row.key: row.sha256 for row in after.chunks}.items(), (
        "what was there was not computed again"
    )
    at_once = tmp_path / "b"
    three = ("ddn(steps=5)", "fmn(steps=5)", "alma(distance=linf, steps=5)")
    main(["run", *TINY, *(part for text in three for part in ("--attack", text)), "--out", str(at_once)])
    assert verified(almakit.open(at_once)) == verified(after)
    assert RunSpec.from_toml(at_once / "run.toml").sha256 == RunSpec.from_toml(Path(out) / "run.toml").sha256
    # The same again does nothing, and the whole run goes on as one that began so.
    assert main(["run", "--out", out, "--add", "fmn(steps=5)", "--quiet"]) in (0, 4)
    assert main(["run", "--config", f"{out}/run.toml", "--quiet"]) in (0, 4)
    assert main(["verify", out]) == 0


def test_from_python_too_with_attacks_only_python_has(tmp_path: Path) -> None:
    out, mine = tmp_path / "a", almakit.ALMA(distance=lambda x, y: (y - x).abs().flatten(1).mean(1), steps=4)
    almakit.evaluate(MODEL, (X, LABELS), [mine], out=out)
    with pytest.raises(AlmakitError):
        almakit.evaluate(MODEL, (X, LABELS), ["ddn(steps=3)"], out=out, add=True)
    run = almakit.evaluate(MODEL, (X, LABELS), [mine, "ddn(steps=3)"], out=out, add=True)
    assert len(run.attacks) == 2 and run.attacks[1].text == "ddn(steps=3)" and run.summary["complete"]


def test_a_stop_while_attacks_are_added_is_made_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "a"
    almakit.evaluate(MODEL, (X, LABELS), "ddn(steps=3)", out=out)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    for place in ("agree", "state_of"):
        with monkeypatch.context() as patch:
            patch.setattr("almakit.runs.session." + place, killed)
            with pytest.raises(KeyboardInterrupt):
                almakit.evaluate(MODEL, (X, LABELS), "fmn(steps=3)", out=out, add=True)
        assert [text.partition("(")[0] for text in RunSpec.from_toml(out / "run.toml").attacks] == ["ddn", "fmn"]
    # run.toml knows the new attack, the database does not yet: the plain command goes on.
    run = almakit.evaluate(MODEL, (X, LABELS), out=out)
    assert len(run.attacks) == 2 and run.summary["complete"]


def test_what_cannot_be_added_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command, sentence in (
        (["--out", str(tmp_path / "none"), "--add", "ddn"], "name its folder, --out runs/a"),
        (["--add", "ddn"], "name its folder"),
    ):
        assert main(["run", *command]) == 2 and sentence in capsys.readouterr().err
    out = tmp_path / "a"
    main(["run", *TINY, "--attack", "ddn(steps=3)", "--out", str(out)])
    capsys.readouterr()
    assert main(["run", "--out", str(out), "--add", "fmn", "--attack", "ddn"]) == 2
    assert "leave --attack out" in capsys.readouterr().err
    assert main(["run", "--out", str(out), "--add", "fmn", "--limit", "3"]) == 1
    assert "limit is 3 now and was 12" in capsys.readouterr().err
    assert main(["run", "--out", str(out), "--add", "fmn", "--shard", "0/2"]) == 2
    assert "leave --shard out" in capsys.readouterr().err
    assert [info.text for info in almakit.open(out).attacks] == ["ddn(steps=3)"]
    assert len(RunSpec.from_toml(out / "run.toml").attacks) == 1
    assert main(["run", *TINY, "--attack", "fmn(steps=3)", "--out", str(out)]) == 1
    said = capsys.readouterr().err
    assert "Attacks are added to it by --add" in said and f"almakit report {out} <the other>" in said
    with pytest.raises(BadInput, match="holds no run that attacks could be added to"):
        resume.extended(RunSpec(), [], tmp_path)


def test_one_class_as_the_target(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "a"
    command = ["run", *TINY[:-1], "--attack", "ddn(steps=20)", "--targets", "3", "--out", str(out)]
    assert main(command) == 0
    labels = almakit.data.load("mnist-demo", limit=12).labels
    left_out = int((labels == 3).sum())
    run = almakit.open(out)
    assert {info.target for info in run.images} == {3}
    assert len(run.images) == 12 - left_out
    assert 3 not in {info.label for info in run.images}
    assert (f"{left_out} of 12 images are of the target class 3" in capsys.readouterr().err) == bool(left_out)
    assert main(command) == 0, "resumed"
    target = int((LABELS[0] + 1) % 5)
    mine = almakit.evaluate(MODEL, (X, LABELS), "ddn(steps=20)", targets=target)
    assert {info.target for info in mine.images} == {target} and len(mine.images) == int((target != LABELS).sum())
    some = target != LABELS
    assert torch.equal(
        almakit.attack(MODEL, X[some], LABELS[some], target, steps=10).distances,
        almakit.attack(MODEL, X[some], LABELS[some], [target] * int(some.sum()), steps=10).distances,
    )
    with pytest.raises(BadInput, match="equals its label"):
        almakit.attack(MODEL, X, LABELS, targets=int(LABELS[0]))
    with pytest.raises(BadInput, match="all images are of class 2 already"):
        almakit.evaluate(MODEL, (X[:2], [2, 2]), "ddn(steps=3)", targets=2)
    with pytest.raises(BadInput, match="a class such as 3"):
        RunSpec(targets="three")


OWN = """
from torch import nn


def build():
    return nn.Sequential(nn.Conv2d(1, 4, 5, 3), nn.ReLU(), nn.Flatten(), nn.Linear(256, 10))


def wrong():
    return nn.Linear(3, 3)


def function():
    return lambda x: x
"""


@pytest.mark.parametrize("kind", ["regular", "pgd"])
def test_a_network_of_ones_own_is_trained_and_used(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my_model.py").write_text(OWN)
    command = ["train", "my_model.py:build", "--kind", kind, "--data", "mnist-demo", "--epochs", "2"]
    command += ["--batch-size", "32", *(["--option", "radius=8/255"] if kind == "pgd" else [])]
    assert main([*command, "--quiet"]) == 0
    said = capsys.readouterr().out
    assert "Use it as my_model.py:build@trained/my_model-build.safetensors" in said
    model = almakit.models.load("my_model.py:build@trained/my_model-build.safetensors")
    assert model.name.startswith("my_model.py:build@") and model(torch.rand(2, 1, 28, 28)).shape == (2, 10)
    assert main([*command, "--quiet"]) == 0 and "Nothing is left to do" in capsys.readouterr().out
    use = ["run", "--model", "my_model.py:build@trained/my_model-build.safetensors", "--data", "mnist-demo"]
    use += ["--limit", "12"]
    assert main([*use, "--attack", "ddn(steps=5)", "--quiet", "--allow", "wrong-labels-or-range"]) in (0, 4)


def test_the_network_learns_and_holds_images_out(tmp_path: Path) -> None:
    (tmp_path / "my_model.py").write_text(OWN)
    x, labels = almakit.data.load("mnist-demo").tensors()
    np.savez(tmp_path / "digits.npz", x=x.numpy(), y=labels.numpy())
    settings = {"epochs": 30, "batch_size": 32, "learning_rate": 0.01, "shift": 0}
    log = train(Recipe(f"{tmp_path}/my_model.py:build", data=f"npz:{tmp_path}/digits.npz", **settings)).log
    assert (log["training_images"], log["test_images"]) == (231, 25) and log["clean_accuracy"] > 50


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (["my_model.py:build", "--kind", "pgd"], "does not say what it is trained on: give --data"),
        (["my_model.py:build", "--data", "mnist-demo"], "say how it is trained, --kind"),
        (["my_model.py:wrong", "--kind", "regular", "--data", "mnist-demo"], "failed on an image of 1 x 28 x 28"),
        (
            ["my_model.py:function", "--kind", "regular", "--data", "mnist-demo"],
            "must return a torch module with parameters",
        ),
        (
            ["my_model.py:nothing", "--kind", "regular", "--data", "mnist-demo"],
            "has no function called 'nothing'; did you mean",
        ),
        (["nowhere", "--kind", "regular"], "or one of your own, file.py:function"),
    ],
)
def test_what_cannot_be_trained(
    command: list[str],
    sentence: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my_model.py").write_text(OWN)
    assert main(["train", *command]) == 2
    assert sentence in capsys.readouterr().err
