"""The zoo: published accuracies on real images, architectures with their authors' keys, weights that fit or are
refused."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import pytest
import torch

from almakit import data, models
from almakit.errors import BadModel, Unavailable, UnknownName
from almakit.models.classifier import state_sha256
from almakit.models.weights import fit, read
from almakit.models.zoo import ZOO, build
from almakit.models.zoo.architectures import CifarResNet50, ResNet50, WideResNet
from almakit.train import recipes
from almakit.train.loop import accuracy, mean_iou
from almakit.train.objectives import KINDS

# Correct answers among the first 1000 test images of each network's data set: measured for MNIST and ResNet-20, whose
# published figures are of all 10 000 (below); published for the other two.
FIRST_1000 = {
    "mnist/smallcnn": 992,
    "mnist/smallcnn-ddn": 990,
    "mnist/smallcnn-trades": 994,
    "cifar10/resnet20": 915,
    "cifar10/resnet4b-adv": 771,
    "cifar10/cnn-a-adv": 703,
}


@pytest.mark.shared_data
@pytest.mark.parametrize("name", FIRST_1000)
def test_clean_accuracy_on_the_first_thousand(name: str) -> None:
    model = models.load(name)
    assert model.dataset is not None
    x, labels = data.load(model.dataset, limit=1000).tensors()
    assert x.shape[1:] == model.shape
    assert round(1000 * accuracy(model, x, labels)) == FIRST_1000[name]
    # The README's figures for the two adversarially trained CIFAR networks are of these very images.
    if ZOO[name].measured_on == "the first 1000 test images":
        assert ZOO[name].accuracy == FIRST_1000[name] / 10


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mnist/smallcnn", "mnist/smallcnn-ddn", "mnist/smallcnn-trades"])
def test_published_accuracy_on_the_whole_test_set(name: str) -> None:
    assert round(100 * accuracy(models.load(name), *data.load("mnist").tensors()), 2) == ZOO[name].accuracy


SHIPPED = [name for name, entry in ZOO.items() if entry.shipped]


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_network_is_as_its_log_says(name: str) -> None:
    folder, entry = files("almakit.models.zoo") / "weights", ZOO[name]
    log = json.loads((folder / str(entry.shipped)).with_suffix(".json").read_text())  # type: ignore[attr-defined]
    model = models.load(name)
    assert state_sha256(read(Path(str(folder / str(entry.shipped))))) == log["weights_sha256"] == entry.sha256
    assert (folder / str(entry.shipped)).stat().st_size < 1_500_000  # type: ignore[attr-defined]
    x, labels = data.load(entry.dataset, limit=log["test_images"]).tensors()
    right = 100 * accuracy(model, x, labels)
    assert right == pytest.approx(log["clean_accuracy"], abs=0.011)
    assert entry.accuracy == pytest.approx(log["clean_accuracy"], abs=0.0051)
    assert right >= (95 if entry.dataset == "mnist" else 90)
    if labels.ndim == 3:
        assert 100 * mean_iou(model, x, labels) == pytest.approx(log["mean_iou"], abs=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SHIPPED if recipes()[name].kind != "regular"])
def test_a_robust_network_is_as_robust_as_its_log_says(name: str) -> None:
    log = json.loads((files("almakit.models.zoo") / "weights" / f"{name.replace('/', '-')}.json").read_text())
    model, (x, labels) = models.load(name), data.load(ZOO[name].dataset, limit=200).tensors()
    measured = KINDS[log["recipe"]["kind"]].measure(model, x, labels, log["recipe"]["options"])
    assert measured["pgd_accuracy"] == pytest.approx(log["pgd_accuracy"], abs=6), "on 200 of the log's 1000 images"
    if "verified_accuracy" in log:
        assert log["verified_accuracy"] > 70 and measured["verified_accuracy"] == pytest.approx(
            log["verified_accuracy"], abs=6
        )


def test_models_come_frozen_in_evaluation_mode_and_differentiable() -> None:
    model = models.load("mnist/smallcnn-tiny")
    assert not any(module.training for module in model.modules())
    assert not any(parameter.requires_grad for parameter in model.parameters())
    x = torch.rand(2, 1, 28, 28, requires_grad=True)
    model(x).sum().backward()
    assert x.grad is not None and float(x.grad.abs().max()) > 0
    assert (model.name, model.dataset, model.shape, model.classes) == ("mnist/smallcnn-tiny", "mnist", (1, 28, 28), 10)


@pytest.mark.shared_data
def test_normalisation_is_inside() -> None:
    model = models.load("cifar10/resnet20")
    x = torch.rand(3, 3, 32, 32)
    mean, std = (torch.tensor(part).reshape(3, 1, 1) for part in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
    with torch.no_grad():
        torch.testing.assert_close(model(x), model.network((x - mean) / std))
        other = models.load("cifar10/resnet20", normalisation=((0, 0, 0), (1, 1, 1)))
        torch.testing.assert_close(other(x), model.network(x))
    assert other.weights_sha256 == model.weights_sha256


@pytest.mark.shared_data
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_every_floating_type_works_and_half_precision_logits_come_back_whole(dtype: torch.dtype) -> None:
    model = models.load("cifar10/cnn-a-adv", dtype=dtype)
    logits = model(torch.rand(2, 3, 32, 32))
    assert logits.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert model.dtype == dtype


# The number of weights (without batch counters) that the papers and libraries give for these architectures.
SIZES = {
    "mnist/smallcnn": 312_202,
    "cifar10/resnet20": 269_722,
    "cifar10/wrn-28-10": 36_479_194,
    "cifar10/resnet50-augustin": 23_520_842,
    "imagenet/resnet50": 25_557_032,
}


@pytest.mark.parametrize("name", SIZES)
def test_architectures_have_the_known_number_of_parameters(name: str) -> None:
    with torch.device("meta"):
        network = build(ZOO[name])
    assert sum(parameter.numel() for parameter in network.parameters()) == SIZES[name]


@pytest.mark.parametrize("name", list(ZOO))
def test_every_architecture_maps_its_images_to_its_classes(name: str) -> None:
    entry = ZOO[name]
    with torch.device("meta"):
        network = build(entry).eval()
        sides = entry.shape[1:] if entry.dataset == "scenes" else ()
        assert network(torch.empty(2, *entry.shape)).shape == (2, entry.classes, *sides)


def test_keys_are_those_of_the_checkpoints_in_the_world() -> None:
    with torch.device("meta"):
        wide, cifar, imagenet = (network().state_dict() for network in (WideResNet, CifarResNet50, ResNet50))
    for keys, names in (
        (wide, "conv1.weight block1.layer.0.convShortcut.weight block3.layer.3.bn2.running_var bn1.bias fc.weight"),
        (cifar, "layer1.0.shortcut.0.weight layer4.0.shortcut.1.running_mean layer3.5.conv3.weight linear.bias"),
        (imagenet, "layer1.0.downsample.0.weight layer4.2.bn3.weight fc.bias"),
    ):
        assert set(names.split()) <= set(keys)
    assert "block1.layer.1.convShortcut.weight" not in wide and "layer1.1.downsample.0.weight" not in imagenet


def small_wide(**options: int) -> WideResNet:
    torch.manual_seed(0)
    return WideResNet(depth=10, widen=1, **options)


# How the authors of each of the paper's networks wrap their checkpoints: prefix of the keys, the dictionary's key, and
# what else lies in it.
WORLD = {
    "mnist/crown-ibp-large": ("", "state_dict", {}),
    "cifar10/wrn-28-10": ("", None, {}),
    "cifar10/wrn-28-10-carmon": ("module.", "state_dict", {"module.sub_block1.layer.0.conv1.weight": (16, 16, 3, 3)}),
    "cifar10/resnet50-augustin": ("", None, {"mu": (1, 3, 1, 1), "sigma": (1, 3, 1, 1)}),
    "imagenet/resnet50": ("", None, {}),
    "imagenet/resnet50-l2": (
        "module.model.",
        "model",
        {"module.normalizer.new_mean": (3, 1, 1), "module.attacker.normalize.new_std": (3, 1, 1)},
    ),
    "imagenet/resnet50-linf": (
        "module.model.",
        "model",
        {"module.attacker.model.fc.bias": (1000,), "module.normalizer.new_std": (3, 1, 1)},
    ),
}


@pytest.mark.parametrize("name", WORLD)
def test_the_papers_networks_load_from_files_of_their_authors_format(name: str, tmp_path: Path) -> None:
    prefix, wrapper, more = WORLD[name]
    entry = ZOO[name]
    generator = torch.Generator().manual_seed(0)
    with torch.device("meta"):
        shapes = {key: value.shape for key, value in build(entry).state_dict().items() if "num_batches" not in key}
    # One random value per tensor: whole tensors of random numbers would make files of hundreds of megabytes slow to
    # write.
    values = {key: float(torch.rand(1, generator=generator)) + 0.5 for key in shapes}
    state = {f"{prefix}{key}": torch.full(shape, values[key]) for key, shape in shapes.items()}
    state |= {key: torch.zeros(shape) for key, shape in more.items()}
    torch.save(state if wrapper is None else {wrapper: state, "epoch": 7}, tmp_path / "weights.pt")
    del state
    model = models.load(f"{name}@{tmp_path}/weights.pt")
    found = {key: value for key, value in model.network.state_dict().items() if key in shapes}
    assert found.keys() == shapes.keys()
    assert all(bool((value == values[key]).all()) for key, value in found.items())
    assert (model.dataset, model.shape, model.classes) == (entry.dataset, entry.shape, entry.classes)


def test_weights_of_another_library_are_taken_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    from almakit.models.classifier import Classifier
    from almakit.models.open import OPENERS

    asked: list[tuple[str, bool]] = []

    def robustbench(rest: str, trust: bool) -> Classifier:
        asked.append((rest, trust))
        return Classifier(small_wide(), name="theirs", mean=(0.1, 0.2, 0.3), std=(1.0, 2.0, 4.0))

    monkeypatch.setitem(OPENERS, "robustbench", robustbench)
    model = models.load("cifar10/wrn-28-10-carmon", trust=True)
    assert asked == [("cifar10/Linf/Carmon2019Unlabeled", True)] and model.name == "cifar10/wrn-28-10-carmon"
    assert model.std is not None and model.std.flatten().tolist() == [1.0, 2.0, 4.0] and model.dataset == "cifar10"
    monkeypatch.setenv("ALMAKIT_OFFLINE", "1")
    with pytest.raises(Unavailable, match="cannot fetch the weights of cifar10/wrn-28-10-carmon"):
        models.load("cifar10/wrn-28-10-carmon")
    assert len(asked) == 1, "offline means offline"


def test_weights_that_do_not_fit_are_refused() -> None:
    state = dict(small_wide().state_dict())
    with pytest.raises(BadModel, match=r"lack 1 tensors, such as fc\.weight"):
        fit(small_wide(), {key: value for key, value in state.items() if key != "fc.weight"}, "a net")
    with pytest.raises(BadModel, match=r"have in addition 1 tensors, such as extra\.weight"):
        fit(small_wide(), state | {"extra.weight": torch.ones(1)}, "a net")
    with pytest.raises(BadModel, match="have in another shape 2 tensors, such as fc"):
        fit(small_wide(classes=7), state, "a net")


def test_a_users_own_weights_file(tmp_path: Path) -> None:
    network = build(ZOO["mnist/smallcnn-tiny"]).eval()
    state = {f"module.{key}": value for key, value in network.state_dict().items()}
    torch.save({"state_dict": state}, tmp_path / "mine.pt")
    model = models.load(f"mnist/smallcnn-tiny@{tmp_path}/mine.pt")
    x = torch.rand(2, 1, 28, 28)
    assert torch.equal(model(x), network(x)) and model.name.endswith("mine.pt")
    before = model.weights_sha256
    assert before is not None and len(before) == 64 and before != models.load("mnist/smallcnn-tiny").weights_sha256
    with torch.no_grad():
        model.network.get_parameter("classifier.fc3.bias")[0] += 1e-3
    assert model.weights_sha256 != before


class Harmless:
    """Something a training script may leave in its checkpoint."""


def test_nothing_is_unpickled_without_the_users_word(tmp_path: Path) -> None:
    network = build(ZOO["mnist/smallcnn-tiny"])
    torch.save({"state_dict": network.state_dict(), "args": Harmless()}, tmp_path / "more.pt")
    uri = f"mnist/smallcnn-tiny@{tmp_path}/more.pt"
    with pytest.raises(BadModel, match="trust=True"):
        models.load(uri)
    assert models.load(uri, trust=True).classes == 10


def test_torn_and_missing_files_are_sentences(tmp_path: Path) -> None:
    (tmp_path / "torn.pt").write_bytes(b"PK\x03\x04 torn")
    (tmp_path / "torn.safetensors").write_bytes(b"torn")
    with pytest.raises(BadModel, match="cannot be read as a torch checkpoint"):
        models.load(f"mnist/smallcnn@{tmp_path}/torn.pt")
    with pytest.raises(BadModel, match="not a whole safetensors file"):
        models.load(f"mnist/smallcnn@{tmp_path}/torn.safetensors")
    with pytest.raises(Unavailable, match="no weights file"):
        models.load(f"mnist/smallcnn@{tmp_path}/none.pt")
    with pytest.raises(
        Unavailable, match="get RobustBench's Carmon2019Unlabeled and name the file: cifar10/wrn-28-10-carmon@<file>"
    ):
        models.load("cifar10/wrn-28-10-carmon")


def test_names_are_known_and_near_ones_offered() -> None:
    assert models.names()[0] == "mnist/smallcnn-tiny"
    with pytest.raises(UnknownName, match="did you mean mnist/smallcnn-trades"):
        models.load("mnist/smallcnn-trade")
    with pytest.raises(UnknownName, match="torchvision:<model>"):
        models.load("???")
