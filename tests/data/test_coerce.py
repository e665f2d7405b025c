"""Data and models as people have them: every form gives the same images, and so the same distances, in ``attack`` and
in ``evaluate``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

import almakit
from almakit import evaluate
from almakit.data.coerce import dataset_of
from almakit.errors import AlmakitError, BadInput, BadModel

NAMES = tuple(f"kind {number}" for number in range(10))


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    model = almakit.models.load("mnist/smallcnn-tiny")
    x, labels = almakit.data.load("mnist-demo", limit=12).tensors()
    photos = [Image.fromarray((image[0] * 255).round().byte().numpy()) for image in x]
    folder = tmp_path_factory.mktemp("photos")
    for number, photo in enumerate(photos):
        photo.save(folder / f"{number}.png")
    return {
        "model": model,
        "x": x,
        "labels": labels,
        "photos": photos,
        "paths": [str(folder / f"{number}.png") for number in range(12)],
        "distances": almakit.attack(model, x, labels, steps=10).distances,
    }


class Photos(Dataset):
    """As torchvision's: PIL images and labels one by one, ``targets`` and ``classes`` beside them; counts what is
    read."""

    def __init__(self, photos: list[Any], labels: list[int], transform: Any = None):
        self.photos, self.targets, self.classes = photos, labels, list(NAMES)
        self.transform, self.target_transform, self.reads = transform, None, 0

    def __len__(self) -> int:
        return len(self.photos)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        self.reads += 1
        return (self.transform(self.photos[index]) if self.transform else self.photos[index]), self.targets[index]


class Stream(IterableDataset):
    def __init__(self, x: Tensor, labels: Tensor):
        self.x, self.labels = x, labels

    def __iter__(self) -> Any:
        return iter(zip(self.x, self.labels.tolist(), strict=True))


FORMS = {
    "tensors": lambda d: (d["x"], d["labels"]),
    "numpy floats": lambda d: (d["x"].numpy(), d["labels"].numpy()),
    "numpy bytes, channels last": lambda d: (
        (d["x"] * 255).round().byte().permute(0, 2, 3, 1).numpy(),
        d["labels"].tolist(),
    ),
    "a list of tensors": lambda d: (list(d["x"]), d["labels"].tolist()),
    "nested lists": lambda d: (d["x"].tolist(), d["labels"].tolist()),
    "a list of PIL images": lambda d: (d["photos"], d["labels"].tolist()),
    "a list of samples": lambda d: (list(zip(d["photos"], d["labels"].tolist(), strict=True)),),
    "a pair": lambda d: ((d["x"], d["labels"]),),
    "a loader": lambda d: (DataLoader(TensorDataset(d["x"], d["labels"]), batch_size=5),),
    "a loader of dicts": lambda d: (
        DataLoader([{"pixel_values": x, "labels": y} for x, y in zip(d["x"], d["labels"], strict=True)], batch_size=5),
    ),
    "a data set of tensors": lambda d: (TensorDataset(d["x"], d["labels"]),),
    "a part of one": lambda d: (
        Subset(TensorDataset(d["x"].repeat(2, 1, 1, 1), d["labels"].repeat(2)), range(12, 24)),
    ),
    "a data set of photos": lambda d: (Photos(d["photos"], d["labels"].tolist()),),
    "a data set of dicts": lambda d: (
        [{"img": x, "label": int(y)} for x, y in zip(d["photos"], d["labels"], strict=True)],
    ),
    "a stream": lambda d: (Stream(d["x"], d["labels"]),),
    "a generator of batches": lambda d: ((d["x"][i : i + 5], d["labels"][i : i + 5]) for i in range(0, 12, 5)),
    "a frame of paths": lambda d: (pandas.DataFrame({"path": d["paths"], "label": d["labels"].tolist()}),),
}


def given(form: str, digits: dict[str, Any]) -> tuple[Any, ...]:
    made = FORMS[form](digits)
    return made if isinstance(made, tuple) else (made,)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_attacked_and_evaluated_alike(form: str, digits: dict[str, Any]) -> None:
    result = almakit.attack(digits["model"], *given(form, digits), steps=10)
    assert torch.equal(result.distances.float(), digits["distances"]) and torch.equal(result.labels, digits["labels"])
    assert torch.equal(result.originals.float(), digits["x"])
    data = given(form, digits)
    run = evaluate(digits["model"], data[0] if len(data) == 1 else data, "ddn(steps=3)", limit=10, offset=1)
    assert np.array_equal(run.originals(), digits["x"][1:11].numpy())
    assert [info.label for info in run.images] == digits["labels"][1:11].tolist()
    assert run.meta["data"].startswith("python:")


def test_a_model_and_data_by_name(digits: dict[str, Any]) -> None:
    named = almakit.attack("mnist/smallcnn-tiny", almakit.data.load("mnist-demo", limit=12), steps=10)
    assert torch.equal(named.distances, digits["distances"])
    with pytest.raises(BadInput, match="mnist-demo brings its own labels"):
        almakit.attack(digits["model"], "mnist-demo", digits["labels"])
    found = almakit.standard_evaluation(
        "mnist/smallcnn-tiny", DataLoader(TensorDataset(digits["x"][:1], digits["labels"][:1])), norm=2, eps=5.0
    )
    assert len(found) == 1 and found.norm == "l2" and bool(found.success.all())


def test_an_attack_object_takes_arrays_and_says_where_the_rest_goes(digits: dict[str, Any]) -> None:
    attack = almakit.SoftWalk(steps=10)
    for x in (digits["x"].numpy(), list(digits["x"])):
        assert torch.equal(attack(digits["model"], x, digits["labels"].numpy()).distances, digits["distances"])
    with pytest.raises(
        BadInput, match=r"not a DataLoader; loaders, data sets and image files are for almakit.attack\(model, data\)"
    ):
        attack(digits["model"], DataLoader(digits["x"]), digits["labels"])


def test_a_data_set_is_read_when_it_is_needed_and_keeps_its_names(digits: dict[str, Any]) -> None:
    photos = Photos(digits["photos"], digits["labels"].tolist())
    found = dataset_of(photos)
    assert photos.reads == 0 and len(found) == 12 and found.class_names == NAMES
    found.chunk([3])
    assert photos.reads == 1
    photos.target_transform = lambda label: label
    assert torch.equal(dataset_of(photos, last=4).labels, digits["labels"][:4]) and photos.reads == 5, (
        "labels may be changed when they are read"
    )


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (
            lambda d: DataLoader(TensorDataset(d["x"], d["labels"]), shuffle=True),
            "shuffles, so a run could not be resumed: make it with shuffle=False",
        ),
        (
            lambda d: Photos(
                d["photos"], d["labels"].tolist(), lambda photo: torch.as_tensor(np.array(photo))[None] / 127.5 - 1
            ),
            "undo a normalisation",
        ),
        (
            lambda d: Photos([d["photos"][0], d["photos"][1].resize((9, 9))], [0, 1]),
            "different sizes, such as .* give a size, e.g. size=224",
        ),
        (lambda d: {"test": 1, "train": 2}, r"holds the splits test, train; give one of them, e.g. data\['test'\]"),
        (
            lambda d: [{"picture": 1, "label": 2}],
            "has the columns picture, label; none is called image or img or images",
        ),
        (lambda d: [1, 2, 3], r"gave a int; it must give \(image, label\)"),
        (
            lambda d: pandas.DataFrame({"picture": ["a"], "label": [1]}),
            "has the columns picture, label; it needs file and label",
        ),
        (
            lambda d: pandas.DataFrame({"file": ["no/where.png"], "label": [1]}),
            "files that do not exist, the first is no/where.png",
        ),
        (lambda d: 3, "data are a name, a pair"),
        (lambda d: DataLoader(TensorDataset(d["x"][:0], d["labels"][:0])), "gave no images"),
        (lambda d: (d["x"], d["labels"][:3]), "12 images and 3 labels"),
    ],
)
def test_what_cannot_be_data_is_answered_with_a_sentence(data: Any, sentence: str, digits: dict[str, Any]) -> None:
    with pytest.raises(AlmakitError, match=sentence):
        evaluate(digits["model"], data(digits), "ddn(steps=3)")


def test_images_without_labels_and_labels_twice(digits: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="the images come without labels"):
        almakit.attack(digits["model"], digits["x"])
    with pytest.raises(BadInput, match="DataLoader brings its own labels; leave the labels out"):
        almakit.attack(digits["model"], DataLoader(TensorDataset(digits["x"], digits["labels"])), digits["labels"])


def test_a_frame_has_names_of_classes_and_targets(digits: dict[str, Any]) -> None:
    frame = pandas.DataFrame(
        {"file": digits["paths"], "label": [f"digit {label}" for label in digits["labels"].tolist()]}
    )
    assert dataset_of(frame).class_names == tuple(sorted({f"digit {label}" for label in digits["labels"].tolist()}))
    targets = [(label + 1) % 10 for label in digits["labels"].tolist()]
    whole = pandas.DataFrame({"file": digits["paths"], "label": digits["labels"].double().tolist(), "target": targets})
    run = evaluate(digits["model"], whole, "ddn(steps=5)", targets="data", size=28)
    assert [info.target for info in run.images] == targets


def test_a_users_function_may_return_a_data_set(digits: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import torch\nfrom torch.utils.data import TensorDataset\n\ndef build():\n    return "
        "TensorDataset(torch.full((4, 1, 3, 3), 0.5), torch.arange(4))\n"
    )
    found = almakit.data.load(f"{tmp_path}/mine.py:build", limit=3)
    assert len(found) == 3 and found.name.endswith("mine.py:build") and found.labels.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "wrap",
    [lambda logits: {"logits": logits}, lambda logits: type("Output", (), {"logits": logits, "loss": None})()],
    ids=["dict", "object"],
)
def test_outputs_with_logits_are_unwrapped(wrap: Callable[[Tensor], Any], digits: dict[str, Any]) -> None:
    def model(x: Tensor) -> Any:
        return wrap(digits["model"](x))

    assert torch.equal(almakit.attack(model, digits["x"], digits["labels"], steps=10).distances, digits["distances"])
    plain, run = (
        evaluate(each, (digits["x"], digits["labels"]), "ddn(steps=5)", batch_size=6)
        for each in (digits["model"], model)
    )
    assert [record.verified for record in run.records] == [record.verified for record in plain.records]
    with pytest.raises(BadModel, match="must return logits of shape"):
        almakit.attack(lambda x: {"scores": digits["model"](x)}, digits["x"], digits["labels"])


def test_pil_images_are_read_as_files_of_them_would_be_and_stay_as_they_are_turned() -> None:
    deep = Image.fromarray(np.full((2, 3), 65535, np.uint16))
    assert float(dataset_of([(deep, 0)]).tensors()[0].min()) == 1
    turned = Image.new("RGB", (3, 2))
    turned.getexif()[274] = 6
    assert dataset_of([(turned, 0)]).tensors()[0].shape == (1, 3, 2, 3)
    with pytest.raises(BadInput, match="a PIL image is transparent in places"):
        dataset_of([(Image.new("RGBA", (3, 2)), 0)]).tensors()


def test_hf_dataset_without_the_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(AlmakitError, match="pip install datasets"):
        almakit.data.load("hf-dataset:mnist")
