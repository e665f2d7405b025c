"""Labels are checked before a run: class folders, their names, what the model predicts, shuffled
labels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import almakit.data
import almakit.models
from almakit.cli.main import main
from almakit.errors import BadInput
from almakit.models.classifier import Classifier
from almakit.models.preflight import name_findings, preflight

Image = pytest.importorskip("PIL.Image")
MODEL = "mnist/smallcnn-tiny"


def write(root: Path, names: dict[int, str], count: int = 64) -> Path:
    """Digits as PNG files in class folders; ``names``: which digits, and how their folders are called."""
    chunk = almakit.data.load("mnist-demo", limit=count).chunk(range(count))
    for name, image, label in zip(chunk.ids, chunk.x, chunk.labels.tolist(), strict=True):
        if label in names:
            place = root / names[label]
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray((image[0] * 255).round().byte().numpy()).save(place / f"{name}.png")
    return root


def found(place: Path) -> set[str]:
    data, model = almakit.data.load(f"folder:{place}", channels=1), almakit.models.load(MODEL)
    x, labels = data.tensors()
    return {
        finding.name
        for finding in preflight(
            model, x, labels, class_names=data.class_names, alphabetical=data.alphabetical
        ).findings
        if finding.severity == "refuse"
    }


def test_a_missing_folder_is_noticed(tmp_path, capsys):
    place = write(tmp_path / "digits", {digit: str(digit) for digit in range(10) if digit != 8})
    assert found(place) == {"class-count", "class-order", "class-elsewhere"}
    flags = ["--model", MODEL, "--data", f"folder:{place}", "--channels", "1"]
    assert main(["doctor", *flags]) == 3
    said = capsys.readouterr().out
    assert "The data have 9 classes (0, 1, 2, 3, ...) and the model 10" in said
    assert "The class '9' has the label 8" in said and "of class 8 ('9') are predicted as class 9" in said
    assert main(["run", *flags, "--attack", "ddn(steps=2)", "--out", str(tmp_path / "run"), "--quiet"]) == 3
    assert not (tmp_path / "run").exists()


def test_classes_are_put_in_order_by_a_file(tmp_path):
    place = write(tmp_path, {digit: str(digit) for digit in range(10) if digit != 8})
    (place / "classes.txt").write_text("\n".join(map(str, range(10))))
    data = almakit.data.load(f"folder:{place}", channels=1)
    assert not data.alphabetical and data.class_names == tuple("0123456789")
    assert set(data.labels.tolist()) == {0, 1, 2, 3, 4, 5, 6, 7, 9} and found(place) == set()
    (place / "classes.txt").write_text("\n".join(map(str, range(9))))
    with pytest.raises(BadInput, match="does not name the class '9'"):
        almakit.data.load(f"folder:{place}", channels=1)


def test_a_class_that_is_predicted_as_another(tmp_path):
    letters = dict(enumerate("abcdefghij"))
    assert found(write(tmp_path / "right", letters)) == set(), "names that say nothing in the right order"
    assert found(write(tmp_path / "swapped", letters | {3: "f", 5: "d"})) == {"class-elsewhere"}


def test_shuffled_labels():
    data, model = almakit.data.load("mnist-demo"), almakit.models.load(MODEL)
    x, labels = data.tensors()
    shuffled = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))]
    assert {"shuffled-labels", "wrong-labels-or-range"} == {
        finding.name for finding in preflight(model, x, shuffled).findings
    }
    assert not preflight(model, x, labels).findings


def test_names():
    digits = [str(digit) for digit in range(10)]
    assert list(name_findings(digits, 10)) == []
    assert [found.name for found in name_findings(sorted(str(k) for k in range(12)), 12)] == ["class-order"], (
        "10 and 11 come before 2"
    )
    synsets = ["n01440764", "n01443537", "n01498041"]
    assert [found.name for found in name_findings(synsets, 1000)] == ["class-count", "class-order"]
    assert [found.name for found in name_findings(["cat", "dog"], 2)] == []


def test_the_models_own_names_decide(tmp_path):
    place = write(tmp_path, {0: "zero", 1: "one", 7: "Seven_"})
    data = almakit.data.load(f"folder:{place}", channels=1)
    names = ["Zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    model = Classifier(nn.Flatten(), name="named", class_names=names)
    matched = data.numbered_as(model.class_names)
    assert matched.class_names == tuple(names) and not matched.alphabetical
    for before, after in zip(data.labels.tolist(), matched.labels.tolist(), strict=True):
        assert {"zero": 0, "one": 1, "Seven_": 7}[data.class_names[before]] == after
    aimed = replace(data, targets=data.labels.flip(0)).numbered_as(model.class_names)
    assert torch.equal(aimed.targets, matched.labels.flip(0)), "targets are numbered as labels are"
    assert data.numbered_as(["a", "b"]) is data and data.numbered_as(None) is data
