"""A specification is the same thing as TOML, as a mapping and as Python; attacks have one text."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from almakit.attacks import get, names
from almakit.attacks.alma import ALMA
from almakit.errors import BadInput
from almakit.runs.attack_text import build_all, describe, text_of
from almakit.runs.spec import AUTO, RunSpec, parse_shard

SPEC = RunSpec("mnist/smallcnn", data="mnist", attacks=("alma(distance=l2, steps=100)",), limit=200, bits=8)

texts = st.text(max_size=30)
specs = st.builds(
    RunSpec,
    model=texts,
    data=texts,
    attacks=st.lists(texts, max_size=3).map(tuple),
    limit=st.none() | st.integers(1, 10**6),
    offset=st.integers(0, 100),
    seed=st.integers(-(2**40), 2**40),
    bits=st.none() | st.integers(1, 16),
    targets=st.sampled_from([None, "random", "all", "next", "some.csv"]),
    batch_size=st.just(AUTO) | st.integers(1, 512),
    dtype=st.sampled_from(["float32", "bfloat16"]),
    trust=st.booleans(),
)


@settings(max_examples=60, deadline=None)
@given(spec=specs)
def test_toml_brings_back_the_same_spec(spec, tmp_path_factory):
    path = tmp_path_factory.mktemp("spec") / "run.toml"
    path.write_text(spec.to_toml(), encoding="utf-8")
    again = RunSpec.from_toml(path)
    assert again == spec
    assert again.sha256 == spec.sha256
    assert RunSpec.from_dict(spec.to_dict()) == spec


def test_every_setting_that_decides_numbers_changes_the_hash():
    other = {"model": "m", "data": "d", "attacks": ("ddn",), "limit": 1, "offset": 1, "split": "train", "size": 9}
    other |= {"channels": 3, "seed": 1, "bits": 4, "targets": "next", "budget": 5, "dtype": "float64", "batch_size": 3}
    other |= {"device": "cuda", "traces": 2, "trust": True, "allow": ("x",), "epsilon": ("l2=0.5",), "eot": 4}
    other |= {"goal": "pixels(share=0.9)", "surrogate": "mnist/smallcnn", "stop_within": ("l2=0.5",)}
    other |= {"votes": 7, "vote_share": 0.9}
    for field in fields(RunSpec):
        if field.name in ("mean", "std"):
            changed = replace(SPEC, mean=(0.5,), std=(0.5,))
        else:
            # Votes are of random models alone.
            base = replace(SPEC, eot=3) if field.name in ("eot", "votes", "vote_share") else SPEC
            changed = replace(base, **{field.name: other[field.name]})
            assert (changed.sha256 != base.sha256) == field.metadata["relevant"], field.name
        assert (changed.sha256 != SPEC.sha256) == field.metadata["relevant"], field.name


def test_the_hash_does_not_depend_on_which_gpu():
    assert replace(SPEC, device="cuda:1").sha256 == replace(SPEC, device="cuda").sha256


def test_differences_name_the_field_and_both_values():
    assert replace(SPEC, limit=50).differences(SPEC) == [("limit", 50, 200)]
    assert replace(SPEC, trust=True).differences(SPEC) == []


def test_auto_takes_what_was_recorded_and_nothing_else_does():
    recorded = replace(SPEC, batch_size=48, device="cpu")
    assert SPEC.fill(recorded).differences(recorded) == []
    assert replace(SPEC, batch_size=16).fill(recorded).differences(recorded) == [("batch_size", 16, 48)]


WRONG = {"limit": 0, "bits": 17, "dtype": "int8", "batch_size": 0, "targets": "most", "seed": 1.5, "split": "both"}


@pytest.mark.parametrize(
    "settings", [*({name: value} for name, value in WRONG.items()), {"trust": 1}, {"mean": (0.5,)}]
)
def test_bad_settings_are_sentences_that_name_them(settings):
    with pytest.raises(BadInput, match=next(iter(settings))):
        RunSpec(**settings)


def test_a_config_with_an_unknown_setting_lists_the_known_ones(tmp_path):
    path = tmp_path / "c.toml"
    path.write_text('model = "m"\nstepz = 3\n')
    with pytest.raises(BadInput, match=r"stepz.*batch_size"):
        RunSpec.from_toml(path)
    path.write_text("model = ")
    with pytest.raises(BadInput, match="cannot be read as TOML"):
        RunSpec.from_toml(path)
    with pytest.raises(BadInput, match="no config file"):
        RunSpec.from_toml(tmp_path / "none.toml")


def test_retired_settings_leave_the_hash_of_older_runs_alone() -> None:
    plain = RunSpec(model="m", data="d", attacks=("ddn",), batch_size=8)
    older = plain.to_toml() + 'layout = "contiguous"\naccelerate = "none"\n'
    assert RunSpec.from_text(older, "run.toml") == plain


def test_shards_are_counted_from_zero():
    assert parse_shard("0/2") == (0, 2)
    for text in ("2/2", "1", "a/b", "-1/2"):
        with pytest.raises(BadInput, match="0/4 to 3/4"):
            parse_shard(text)


def test_an_attack_has_one_text_and_the_text_builds_it():
    first, second = get("alma(steps=20, distance=l1)"), ALMA(distance="l1", steps=20)
    assert text_of(first) == text_of(second) == "alma(distance=l1, steps=20)"
    texts = ["alma(distance=linf, epsilon=0.25, ema=false)", "alma(alpha=none, mu=2.0)", "alma(penalty=phr)"]
    for text in ("alma", *texts):
        attack = get(text)
        assert get(text_of(attack)) == attack
    assert text_of(get("alma")) == "alma(distance=l2, steps=1000)"


NEEDS_AN_ATTACK = {
    "search": "search(attack=apgd(distance=l2, steps=50))",
    "ensemble": "ensemble(attacks=[alma(distance=l2, steps=30), ddn(steps=20)])",
}


@pytest.mark.parametrize("name", names())
def test_every_registered_attack_has_a_text_that_builds_it(name):
    attack = get(NEEDS_AN_ATTACK.get(name, name))
    text = text_of(attack)
    assert get(text) == attack and text_of(get(text)) == text
    assert json.loads(json.dumps(describe(attack, 0, False).settings, allow_nan=False))


def test_a_function_as_distance_is_named_by_its_code():
    norms = [lambda x, y: (y - x).abs().sum(), lambda x, y: (y - x).abs().sum(), lambda x, y: (y - x).square().sum()]
    one, same, other = (ALMA(distance=norm) for norm in norms)
    assert text_of(one) == text_of(same) != text_of(other)
    assert "#" in describe(one, 0, False).text


def test_an_attack_given_twice_is_refused():
    with pytest.raises(BadInput, match="given twice"):
        build_all(["alma(steps=10, distance=l2)", "alma(steps=10)"])
