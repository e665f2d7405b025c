"""Tables as data: what is read, how it is scaled and back, and the sentences for everything that is wrong with one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import almakit
from almakit.data import load
from almakit.data.features import Features
from almakit.errors import AlmakitError, BadInput, Unavailable
from almakit.models.classifier import InUnits

PEOPLE = "who,age,income,sex,granted\na,37,1000.5,0,no\nb,50,2000,1,yes\nc,20,500.25,1,no\n"


def written(folder: Path, text: str | bytes, name: str = "people.csv") -> str:
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(folder / name)


def test_columns_become_features_in_the_unit_interval_and_back(tmp_path: Path) -> None:
    uri = f"table:{written(tmp_path, PEOPLE)}?label=granted&fixed=sex&integer=age&id=who"
    data = load(uri)
    x, labels = data.tensors()
    assert data.ids == ("a", "b", "c") and labels.tolist() == [0, 1, 0] and data.class_names == ("no", "yes")
    features = data.features
    assert features is not None and features.names == ("age", "income", "sex")
    assert features.fixed.tolist() == [False, False, True] and features.step.tolist() == [1, 0, 0]
    own = np.array([[37, 1000.5, 0], [50, 2000, 1], [20, 500.25, 1]])
    assert np.allclose(features.own(x.numpy()), own, rtol=1e-6) and float(x.min()) == 0 and float(x.max()) == 1
    seen: list[torch.Tensor] = []
    InUnits(lambda values: seen.append(values) or values, features.lo, features.sides, features.step)(x)
    assert torch.allclose(seen[0], torch.from_numpy(own).float(), rtol=1e-6)
    assert seen[0][:, 0].tolist() == [37.0, 50.0, 20.0]
    assert load(uri, limit=1, offset=1).chunk([0]).ids == ("b",)


@pytest.mark.parametrize("form", ["bom", "parquet"])
def test_other_forms_of_the_same_table(tmp_path: Path, form: str) -> None:
    frame = pandas.read_csv(written(tmp_path, PEOPLE))
    other = str(tmp_path / f"other.{'parquet' if form == 'parquet' else 'csv'}")
    if form == "parquet":
        frame.to_parquet(other)
    else:
        frame.to_csv(other, index=False, encoding="utf-8-sig")
    asked = "label=granted&drop=who&integer=age,sex"
    one, two = (load(f"table:{place}?{asked}") for place in (str(tmp_path / "people.csv"), other))
    assert torch.equal(one.tensors()[0], two.tensors()[0]) and one.class_names == two.class_names
    assert one.features is not None and two.features is not None and one.features.to_json() == two.features.to_json()
    assert one.features.step.tolist() == [1, 0, 1]


def test_ranges_come_from_another_table(tmp_path: Path) -> None:
    train = written(tmp_path, "a,y\n-10,0\n10,1\n", "train.csv")
    data = load(f"table:{written(tmp_path, chr(10).join(['a,y', '5,0', '0,1']))}?label=y&ranges={train}")
    assert data.tensors()[0].flatten().tolist() == [0.75, 0.5]
    with pytest.raises(BadInput, match=r"a of row 0 is 11, outside its range \[-10, 10\]. Widen the table"):
        load(f"table:{written(tmp_path, chr(10).join(['a,y', '11,0']))}?label=y&ranges={train}")


def test_broken_numbers_are_labels_for_a_goal_that_reads_them(tmp_path: Path) -> None:
    place = written(tmp_path, "a,b,y\n1,2,0.5\n3,4,1\n2,3,1.25\n")
    truths = load(f"table:{place}?label=y").truths
    assert truths is not None and truths.tolist() == [0.5, 1.0, 1.25]
    model = torch.nn.Linear(2, 1)
    run = almakit.evaluate(model, f"table:{place}?label=y", "ddn(steps=20)", goal="regression(by=0.2)", preflight=False)
    off = (model(torch.tensor([[1.0, 2.0], [3.0, 4.0], [2.0, 3.0]])).flatten() - truths).abs() > 0.2
    assert [record.status == "already-wrong" for record in run.records] == off.tolist()
    with pytest.raises(BadInput, match="no class numbers"):
        almakit.evaluate(model, f"table:{place}?label=y", "ddn(steps=20)")


def test_a_constant_column_cannot_move(tmp_path: Path) -> None:
    features = load(f"table:{written(tmp_path, 'a,b,y' + chr(10) + '3,1,0' + chr(10) + '3,2,1')}?label=y").features
    assert features is not None and features.moves.tolist() == [False, True]
    assert features.own(np.zeros((1, 2))).tolist() == [[3, 1]]


GOOD = "a,b,y\n1,2,0\n3,4,1\n"
WRONG = [
    (GOOD, "", "does not say which column is the label"),
    (GOOD, "label=z", "has no column 'z'"),
    (GOOD, "label=y&fixed=c", "has no column 'c'"),
    (GOOD, "label=y&colour=red", "'colour=red' in .* is no option of a table"),
    (GOOD, "label=y&fixed=y", "'y' is no feature here"),
    (GOOD, "label=y&drop=a,b", "no column left to be a feature"),
    (GOOD, "label=y&id=a&integer=a", "'a' is no feature here"),
    ("a,b,y\n1,,0\n3,4,1\n", "label=y", "b has no finite number of at most 1e30 in data row 1; fill it in, .* drop=b"),
    ("a,b,y\n1,2,0\n3,1e300,1\n", "label=y", "b has no finite number of at most 1e30"),
    ("a,b,y\n1,2,0\n3,red,1\n", "label=y", "b holds texts such as 'red'. Categories have no smallest change"),
    ("a,b,y\n1,2.5,0\n3,4,1\n", "label=y&integer=b", "b has values that are no whole numbers"),
    ("a,b,y\n1,0,0\n3,999999999,1\n", "label=y&integer=b", "b has more than 131072 steps"),
    ("a,b,y\n1,2,0.5\n3,4,inf\n", "label=y", "the label y is missing or not finite"),
    ("a,b,y\n1,2,\n3,4,1\n", "label=y", "the label y is missing or not finite"),
    ("a,a,y\n1,2,0\n", "label=y", "columns a, a, y; each needs a name of its own"),
    ("a,b,y\n1,2\n", "label=y", "Row #2: Expected 3 columns, got 2"),
    ("a,b,y\n", "label=y", "holds no rows"),
    ("", "label=y", "Empty CSV file"),
    (b"a,b,y\n1,\xff\xfe,0\n", "label=y", "b holds texts"),
    ('a,b,y\n1,"2,0\n', "label=y", "cannot be read as a csv table"),
    ("a,b,y\n1,2,0\n1,3,1\n", "label=y&id=a", "does not give every row an id of its own"),
]


@pytest.mark.parametrize(("text", "query", "sentence"), WRONG, ids=[sentence[:30] for _, _, sentence in WRONG])
def test_what_is_wrong_with_a_table_is_a_sentence(tmp_path: Path, text: str | bytes, query: str, sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        load(f"table:{written(tmp_path, text)}?{query}")


def test_missing_and_false_files_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="there is no file"):
        load(f"table:{tmp_path / 'none.csv'}?label=y")
    with pytest.raises(BadInput, match="cannot be read as a parquet table"):
        load(f"table:{written(tmp_path, GOOD, 'people.parquet')}?label=y")
    place = written(tmp_path, GOOD)
    with pytest.raises(AlmakitError, match="write table:"):
        load(place)


@given(st.binary(max_size=200))
@settings(max_examples=150, deadline=None)
def test_any_bytes_are_a_table_or_a_sentence(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    folder = tmp_path_factory.mktemp("tables")
    for name in ("some.csv", "some.parquet"):
        try:
            x = load(f"table:{written(folder, b'a,y' + bytes([10]) + content, name)}?label=y").tensors()[0]
        except AlmakitError as error:
            assert str(error)
        else:
            assert bool(((x >= 0) & (x <= 1)).all())


def test_recorded_features_are_read_again_and_nonsense_is_a_sentence() -> None:
    features = Features.of((2, 3), lo=-1, hi=[1, 2, 3], step=[[0, 0.5, 0]] * 2, fixed=[True, False, False])
    again = Features.from_json(features.to_json())
    for part in ("lo", "hi", "step", "fixed"):
        assert np.array_equal(getattr(features, part), getattr(again, part))
    assert again.name(4) == "value 1, 1"
    for text in (
        "",
        "[]",
        "{}",
        '{"shape": [2], "lo": 0, "hi": [1], "step": 0, "fixed": false, "names": null}',
        "[" * 9999,
    ):
        with pytest.raises(BadInput, match="features cannot be read"):
            Features.from_json(text)


def test_kept_looks_at_box_grid_and_fixed_values() -> None:
    features = Features.of((3,), hi=[10, 1, 1], step=[1, 0, 0], fixed=[False, False, True])
    x = np.array([[0.3, 0.5, 0.5]] * 5, dtype=np.float32)
    points = x.copy()
    points[1, 0], points[2, 0], points[3, 1], points[4, 2] = 0.4, 0.45, 1.1, 0.6
    assert features.kept(points, x).tolist() == [True, True, False, False, False]
