"""Every attack at the top; names as people write them; a wrong keyword is a sentence that says what was meant."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from laws.models import RowWise

import almakit
from almakit import registry
from almakit.attacks import get
from almakit.attacks.standard import Standard
from almakit.cli.main import main
from almakit.errors import AlmakitError, BadInput, UnknownName, suggestion
from almakit.expression import parse_number
from almakit.runs.attack_text import text_of
from almakit.runs.spec import RunSpec

SOURCE = Path(__file__).resolve().parents[2] / "src"
MODEL = RowWise((1, 4, 4)).eval()
X = torch.rand(4, 1, 4, 4, generator=torch.Generator().manual_seed(0))
with torch.no_grad():
    LABELS = MODEL(X).argmax(1)


def test_public_names_are_those_of_the_registry() -> None:
    for name, place in registry.BUILT_IN["attacks"].items():
        kind = place.partition(":")[2]
        assert kind in almakit.__all__ and getattr(almakit, kind) is registry.get("attacks", name)
    for name in almakit.__all__:
        assert getattr(almakit, name) is not None
    assert set(dir(almakit)) == {*almakit.__all__, "open"}
    assert "open" not in almakit.__all__, "a star import must not hide Python's open"


def test_deprecated_names_work_and_are_not_listed() -> None:
    with pytest.warns(DeprecationWarning, match="almakit.SoftWalk"):
        assert almakit.ALMAPlus is almakit.SoftWalk
    assert "ALMAPlus" not in dir(almakit) and "alma-plus" not in registry.names("attacks")
    assert get("alma-plus(steps=20)") == almakit.SoftWalk(steps=20)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("DNN", "DDN"), ("Alma", "ALMA"), ("evalute", "evaluate"), ("softwalk", "SoftWalk"), ("xyzzy", "dir(almakit)")],
)
def test_a_misspelt_name_says_what_was_meant(wrong: str, right: str) -> None:
    with pytest.raises(AttributeError, match=re.escape(right)):
        getattr(almakit, wrong)


@pytest.mark.parametrize(
    "written", ["Linf", "linf", "LINF", "l_inf", "L-inf", "inf", "l∞", float("inf"), math.inf, torch.inf]
)
def test_linf_as_people_write_it(written: str | float) -> None:
    assert (
        almakit.DDN(distance="L_2") == almakit.DDN(distance=2) == almakit.DDN(distance=2.0) == almakit.DDN(distance="2")
    )
    attack = almakit.FMN(distance=written, steps=10)
    assert attack == almakit.FMN(distance="linf", steps=10) and text_of(attack) == "fmn(distance=linf, steps=10)"
    assert repr(almakit.distances.get(written)) == "linf" and Standard.of(written).norm == "linf"


@pytest.mark.parametrize(
    ("name", "written"),
    [("autoattack", "autoattack:standard("), ("AutoAttack", "autoattack:standard("), ("art", "art:<attack>(...)")],
)
def test_a_library_named_as_an_attack_says_what_to_write(name: str, written: str) -> None:
    with pytest.raises(UnknownName, match=re.escape(written)):
        almakit.attack(MODEL, X, LABELS, attack=name)


def test_distances_and_attacks_as_people_write_them() -> None:
    assert repr(almakit.distances.get("MS_SSIM")) == "ms-ssim"
    assert repr(almakit.distances.get(0)) == "l0"
    assert repr(almakit.distances.get("1")) == "l1"
    for written in ("DDN", "ddn", "Ddn"):
        assert text_of(get(written)) == "ddn(steps=100)"
    for written in (
        "SoftWalk",
        "soft_walk",
        "soft-walk",
        "ALMAPlus",
        "alma_plus",
        "alma-plus",
        "AlmaPlus(distance=Linf, steps=50)",
    ):
        assert text_of(get(written)).startswith("soft-walk(")
    assert (
        text_of(get("alma(distance=inf)"))
        == text_of(get("alma(distance=Linf)"))
        == text_of(get("ALMA(distance=l_inf)"))
    )
    with pytest.raises(UnknownName, match="there is no distance called 'l3'; did you mean"):
        almakit.ALMA(distance=3)
    with pytest.raises(BadInput, match="None is no distance"):
        almakit.distances.get(None)


def test_an_attack_by_name_with_settings() -> None:
    assert get("pgd", epsilon=8 / 255) == almakit.PGD(epsilon=8 / 255) and get("ddn(steps=3)", steps=5).steps == 5
    assert get(almakit.DDN(steps=3), steps=5) == almakit.DDN(steps=5)
    with pytest.raises(BadInput, match="pgd has no setting 'eps'; did you mean epsilon"):
        get("pgd", eps=0.3)
    with pytest.raises(BadInput, match="PGD has no setting 'eps'; did you mean epsilon"):
        almakit.PGD(eps=0.3)
    with pytest.raises(BadInput, match="DDN has no setting 'nb_iter'; did you mean steps"):
        almakit.DDN(nb_iter=3)
    with pytest.raises(
        BadInput, match=r"DDN has no setting 'epsilon': it looks for the smallest change.*robust_accuracy"
    ):
        almakit.DDN(epsilon=0.3)


def test_any_attack_in_one_call() -> None:
    ddn = almakit.attack(MODEL, X, LABELS, attack="ddn", steps=20)
    assert torch.equal(ddn.distances, almakit.DDN(steps=20)(MODEL, X, LABELS).distances)
    pgd = almakit.attack(MODEL, X, LABELS, attack="pgd", epsilon=0.2, distance="Linf", seed=3)
    assert torch.equal(pgd.adversarials, almakit.PGD(epsilon=0.2)(MODEL, X, LABELS, seed=3).adversarials)
    assert torch.equal(almakit.attack(MODEL, X, LABELS, attack=almakit.DDN(steps=20)).distances, ddn.distances)
    plain = almakit.attack(MODEL, X, LABELS)
    assert torch.equal(plain.distances, almakit.SoftWalk(distance="l2", steps=100)(MODEL, X, LABELS).distances)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"epsilon": 0.3},
            r"soft-walk has no setting 'epsilon': it looks for the smallest change.*result.robust_accuracy.*pgd and "
            r"apgd",
        ),
        ({"eps": 0.3}, "soft-walk has no setting 'eps': it looks for the smallest change"),
        ({"norm": 2}, "soft-walk has no setting 'norm'; did you mean distance"),
        ({"step": 3}, "soft-walk has no setting 'step'; did you mean steps"),
        ({"bs": 3}, "almakit.attack has no setting 'bs'; did you mean batch_size"),
        ({"target": [1]}, "almakit.attack has no setting 'target'; did you mean targets"),
        ({"attack": "ddm"}, "there is no attack called 'ddm'; did you mean ddn"),
    ],
)
def test_a_wrong_option_of_attack(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(AlmakitError, match=sentence):
        almakit.attack(MODEL, X, LABELS, **options)


def test_a_wrong_option_elsewhere() -> None:
    with pytest.raises(BadInput, match="a call of DDN has no setting 'batchsize'; did you mean batch_size"):
        almakit.DDN(steps=3)(MODEL, X, LABELS, batchsize=3)
    with pytest.raises(BadInput, match=r"almakit\.standard_evaluation has no setting 'verison'; did you mean version"):
        almakit.standard_evaluation(MODEL, X, LABELS, verison=1)
    for word, right in (("eps", "epsilons"), ("batchsize", "batch_size"), ("n_examples", "limit")):
        with pytest.raises(BadInput, match=f"almakit.evaluate has no setting {word!r}; did you mean {right}"):
            almakit.evaluate(MODEL, (X, LABELS), "ddn", **{word: 3})
    with pytest.raises(BadInput, match="progress='yes': give True, False"):
        almakit.evaluate(MODEL, (X, LABELS), "ddn(steps=2)", progress="yes", allow=["low-clean-accuracy"])
    with pytest.raises(BadInput, match="a run has no setting 'limits'; did you mean limit"):
        RunSpec.from_dict({"limits": 3})
    assert suggestion("zzz", ["a"]) == "known: a." and suggestion("zzz", []) == "there are none."


def test_progress_true_shows(capsys: pytest.CaptureFixture[str]) -> None:
    almakit.evaluate(MODEL, (X, LABELS), "ddn(steps=3)", progress=True)
    assert "ddn(steps=3): 4/4 images" in capsys.readouterr().err
    almakit.evaluate(MODEL, (X, LABELS), "ddn(steps=3)")
    assert capsys.readouterr().err == ""


def test_fractions_are_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text in (
        "pgd(epsilon=8/255)",
        "pgd(epsilon=8 / 255)",
        "pgd(epsilon = 8/255, steps=40)",
        "pgd(epsilon=8.0/255)",
    ):
        attack = get(text)
        assert attack == almakit.PGD(epsilon=8 / 255) and get(text_of(attack)) == attack
    assert text_of(get("pgd(epsilon=8/255)")) == f"pgd(epsilon={8 / 255!r}, distance=linf, steps=40)"
    assert parse_number("8/255") == 8 / 255 and parse_number(".5") == 0.5 and parse_number("1e-1/2") == 0.05
    for wrong in ("8/0", "8/", "/8", "8/2/2", "a/b"):
        with pytest.raises(ValueError):
            parse_number(wrong)
    with pytest.raises(BadInput):
        get("pgd(epsilon=8/0)")
    config = tmp_path / "run.toml"
    config.write_text(
        'model = "mnist/smallcnn-tiny"\ndata = "mnist-demo"\nattacks = ["pgd(epsilon=8/255)"]\nmean = '
        '["127.5/255"]\nstd = ["1/2"]\n'
    )
    spec = RunSpec.from_toml(config)
    assert spec.mean == spec.std == (0.5,) and get(spec.attacks[0]) == almakit.PGD(epsilon=8 / 255)
    command = ["run", "--model", "mnist/smallcnn-tiny", "--data", "mnist-demo", "--limit", "12"]
    command += ["--attack", "ddn(steps=5)", "--out", str(tmp_path / "a")]
    assert main([*command, "--epsilon", "8/255"]) == 0 and "0.0313725" in capsys.readouterr().out
    assert main([*command, "--epsilon", "8/0"]) == 2 and "8/0" in capsys.readouterr().err


def test_a_path_that_looks_like_a_fraction_is_a_word() -> None:
    from almakit.expression import parse
    from almakit.runs.attack_text import _value

    assert parse("a(file=1/2/x.txt)").arguments == {"file": "1/2/x.txt"} and _value("1/2") == '"1/2"'
    assert parse(f"a(file={_value('1/2')})").arguments == {"file": "1/2"}


USER = """
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import almakit

model = nn.Sequential(nn.Flatten(), nn.Linear(16, 4))
x, labels = torch.rand(8, 1, 4, 4), torch.zeros(8, dtype=torch.long)
result: almakit.Result = almakit.attack(model, x, labels, distance=2, steps=10)
one: almakit.ImageResult = result[3]
some: almakit.Result = result[result.success]
distance: float = one.distance
accuracy: float = result.robust_accuracy(8 / 255)
points: list[tuple[float, float]] = result.curve()
attack = almakit.PGD(epsilon=8 / 255, distance="Linf", steps=10)
best = almakit.best_of([attack(model, x, labels), almakit.DDN(steps=10)(model, x, labels, seed=1, batch_size=4)])
loader = DataLoader(TensorDataset(x, labels), batch_size=4)
almakit.attack(model, loader, attack="ddn")
almakit.attack(model, x.numpy(), np.zeros(8, dtype=np.int64).tolist())
run: almakit.Run = almakit.evaluate(model, loader, attacks=[attack, "ddn(steps=10)"], out="runs/a", limit=4)
again = almakit.open("runs/a")
print(again.robust_accuracy({"linf": 8 / 255, "l2": 0.5}), again.report(), result.plot())
print(result.show(3), result.save("a.safetensors"))
found = almakit.standard_evaluation(model, x, labels, norm="Linf")
print(found.version, found.robust_accuracy(0.3), almakit.Result.load("a.safetensors").median)
print(almakit.check_distance("ssim"), almakit.Box(bits=8))


class Mine(almakit.Attack):
    pass
"""
WRONG = """
import almakit

almakit.DDN(stepz=3)
almakit.attack(3, 4, steps="many")
almakit.DNN
almakit.open("runs/a").robust_accuracy([0.1])
"""


@pytest.mark.slow
def test_a_users_script_is_clean_under_strict_mypy(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(USER)
    (tmp_path / "wrong.py").write_text(WRONG)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(SOURCE.parent / ".mypy_cache" / "user")]
    env = {**os.environ, "MYPYPATH": str(SOURCE)}
    said = subprocess.run(
        [*command, "script.py", "wrong.py"], cwd=tmp_path, env=env, capture_output=True, text=True
    ).stdout
    errors = {int(line.split(":")[1]): line for line in said.splitlines() if line.startswith("wrong.py")}
    assert errors.keys() == {4, 5, 6, 7} and "in 1 file (checked 2 source files)" in said, said
    assert 'Unexpected keyword argument "stepz"' in errors[4] and 'has no attribute "DNN"' in errors[6], said
