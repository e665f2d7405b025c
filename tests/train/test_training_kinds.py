"""The kinds of training: inner steps that stay in their ball and make things worse, losses that fall, trainings that go
on bit for bit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from almakit import data, models, train
from almakit.cli.main import main
from almakit.data import hub
from almakit.errors import BadInput, BadModel
from almakit.train import objectives
from almakit.train.loop import mirrored, settled
from almakit.train.objectives import ramp

SHORT = train.Recipe("mnist/smallcnn-tiny", epochs=2, batch_size=32, seed=3, channels_last=True)
OPTIONS = {
    "regular": {},
    "ddn": {"radius": 1.0, "steps": 2},
    "trades": {"radius": 0.1, "steps": 2},
    "crown-ibp": {"radius": 0.05},
}


def test_ramps() -> None:
    assert [ramp(at, 0.2, 0.6, 1.0, 3.0) for at in (0.0, 0.2, 0.4, 0.6, 1.0)] == pytest.approx([1, 1, 2, 3, 3])
    assert ramp(0.0, 0.0, 0.0, 1.0, 3.0) == 3.0


def test_the_inner_steps_stay_in_the_ball_and_raise_the_loss() -> None:
    model = models.load("mnist/smallcnn-tiny").train()
    x, labels = data.load("mnist", limit=32).tensors()
    generator = torch.Generator().manual_seed(0)
    near = objectives.pgd_steps(
        model, x, lambda logits: F.cross_entropy(logits, labels, reduction="sum"), 0.1, 5, generator
    )
    assert float((near - x).abs().max()) <= 0.1 + 1e-6 and 0 <= float(near.min()) <= float(near.max()) <= 1
    far = objectives.ddn_steps(model, x, labels, 1.5, 6, 0.2)
    lengths = (far - x).flatten(1).norm(dim=1)
    assert float(lengths.max()) <= 1.5 + 1e-5 and 0 <= float(far.min()) <= float(far.max()) <= 1
    assert model.training, "the mode was not put back"
    model.eval()
    with torch.no_grad():
        clean = F.cross_entropy(model(x), labels)
        assert F.cross_entropy(model(near), labels) > clean + 0.1 and F.cross_entropy(model(far), labels) > clean + 0.1


@pytest.mark.parametrize("kind", OPTIONS)
def test_a_training_gives_the_same_weights_again(kind: str) -> None:
    recipe = replace(SHORT, kind=kind, options=OPTIONS[kind])
    one, two = (train.train(recipe, limit=48, test_limit=8).log for _ in range(2))
    assert one["weights_sha256"] == two["weights_sha256"]
    if kind != "regular":
        assert one["epsilon"] == recipe.options["radius"] and 0 <= one["pgd_accuracy"] <= 100


def test_certified_training_certifies() -> None:
    recipe = replace(
        SHORT,
        kind="ibp",
        epochs=6,
        batch_size=25,
        learning_rate=3e-3,
        weight_decay=0.0,
        shift=0,
        options={"radius": 0.01, "end": 0.5},
    )
    certified = train.train(recipe, limit=1000, test_limit=100)
    from almakit.certify import verified

    x, labels = data.load("mnist", limit=100).tensors()
    share = float(verified(models.load("mnist/smallcnn-tiny"), x, labels, 0.01).double().mean())
    assert certified.log["verified_accuracy"] > 100 * share + 10
    assert certified.log["verified_accuracy"] <= certified.log["pgd_accuracy"] <= certified.log["clean_accuracy"]


def test_cifar_networks_train_too(tmp_path: Path) -> None:
    place = hub.path("cifar10/cifar10_test_first1000.npz")
    recipe = train.Recipe(
        "cifar10/cnn-a-adv",
        kind="pgd",
        epochs=2,
        batch_size=50,
        flip=True,
        data=f"npz:{place}",
        channels_last=True,
        options={"radius": 2 / 255, "steps": 2},
    )
    trained = train.train(recipe, limit=400, test_limit=100)
    losses = [line["loss"] for line in trained.log["epochs"]]
    assert losses[1] < losses[0] and trained.model.shape == (3, 32, 32) and trained.model.std is not None


def test_half_of_the_images_are_mirrored() -> None:
    x = torch.arange(4.0).expand(100, 1, 2, 4)
    images = mirrored(x, torch.Generator().manual_seed(0))
    turned = images[:, 0, 0, 0] == 3
    assert 30 < int(turned.sum()) < 70 and torch.equal(images[turned][:, 0, 0], x[turned][:, 0, 0].flip(1))


def test_the_command_trains_and_says_when_nothing_is_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = "train mnist/smallcnn-tiny --kind pgd --option radius=0.1 --option steps=2 --epochs 1 --limit 64"
    command = [*command.split(), "--test-limit", "50", "--out", str(tmp_path)]
    assert main(command) == 0
    said = capsys.readouterr()
    assert "PGD accuracy" in said.out and "epoch 1: loss" in said.err
    log = json.loads((tmp_path / "mnist-smallcnn-tiny.json").read_text())
    assert log["recipe"]["options"] == {"radius": 0.1, "steps": 2.0}
    assert np.isfinite(log["epochs"][0]["loss"])
    assert main(command) == 0 and "Nothing is left to do" in capsys.readouterr().out
    assert main([*command, "--test-limit", "20"]) == 0, "another test limit is another measurement"
    said = capsys.readouterr().out
    assert "Nothing is left" not in said and "of 20 test images" in said
    trained = models.load(f"mnist/smallcnn-tiny@{tmp_path}/mnist-smallcnn-tiny.safetensors")
    assert trained.weights_sha256 == log["weights_sha256"]


def test_the_commands_mistakes_are_sentences(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for flags, sentence in (
        ([], "name a network to train"),
        (["mnist/none"], "no architecture called 'mnist/none'"),
        (["mnist/smallcnn-tiny", "--option", "radius"], "write NAME=NUMBER"),
        (["mnist/smallcnn-tiny", "--option", "radius=1"], "has no option 'radius'; its options are balance"),
        (["mnist/smallcnn-tiny", "--kind", "pgd", "--option", "none=1"], "its options are radius, steps, warm_up"),
        (["mnist/smallcnn-tiny", "--epochs", "0"], "epochs=0: it must be at least 1"),
        (["mnist/smallcnn-ddn"], "there is no recipe for mnist/smallcnn-ddn"),
        (["cifar10/cnn-a-adv"], "say how it is trained, --kind regular, ddn"),
        (["imagenet/resnet50", "--kind", "pgd"], "no usual linf radius for imagenet: give one, --option radius=R"),
    ):
        assert main(["train", *flags, "--out", str(tmp_path)]) == 2
        assert sentence in capsys.readouterr().err
    assert main(["train", "--list"]) == 0
    assert 'mnist/smallcnn-tiny-ibp: {"model": "mnist/smallcnn-tiny-ibp", "kind": "ibp"' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"kind": "pgd", "options": {"radius": -1.0}}, "radius=-1.0: it must be positive"),
        ({"kind": "trades", "options": {"steps": 0}}, "steps=0: it must be at least 1"),
        ({"kind": "ddn", "options": {"gamma": 1.0}}, r"gamma=1.0: it must be in \(0, 1\)"),
        ({"kind": "ibp", "options": {"begin": 0.7, "end": 0.2}}, "begin=0.7 lies after end=0.2"),
        ({"learning_rate": float("nan")}, "learning_rate=nan"),
        ({"data": "cifar10"}, "mnist/smallcnn-tiny failed on an image of 3 x 32 x 32"),
        ({"model": "cifar10/resnet20", "kind": "ibp", "data": "cifar10-first"}, "BatchNorm2d"),
        ({"kind": "none"}, "no kind of training called 'none'"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_the_first_epoch(changes: dict[str, Any], sentence: str) -> None:
    npz = f"npz:{hub.path('cifar10/cifar10_test_first1000.npz')}"
    recipe = replace(SHORT, **(changes | ({"data": npz} if "data" in changes else {})))

    def never(done: int, total: int, loss: float) -> None:
        pytest.fail("a batch was trained")

    with pytest.raises((BadInput, BadModel), match=sentence):
        train.train(recipe, limit=32, test_limit=10, batch_trace=never)


def test_cifar_has_radii_of_its_own() -> None:
    def radius(model: str, kind: str, **options: float) -> float | None:
        return settled(train.Recipe(model, kind=kind, options=options)).options.get("radius")

    assert radius("cifar10/cnn-a-adv", "ddn") == 0.5
    assert all(radius("cifar10/cnn-a-adv", kind) == 8 / 255 for kind in ("pgd", "trades", "ibp", "crown-ibp"))
    assert radius("cifar10/cnn-a-adv", "pgd", radius=0.1) == 0.1 and radius("cifar10/cnn-a-adv", "regular") is None
    assert radius("mnist/smallcnn-tiny", "pgd") is None, "the objective's own default is MNIST's"
