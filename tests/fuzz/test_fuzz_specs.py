"""Specifications, attack texts and command lines at random: a value or a sentence, never another error."""

from __future__ import annotations

import io
import string
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import fields
from pathlib import Path

import pytest
from fuzz.amount import examples, outcome
from hypothesis import given
from hypothesis import strategies as st

from almakit.attacks import get, names
from almakit.cli.main import main
from almakit.errors import AlmakitError
from almakit.runs.attack_text import text_of
from almakit.runs.spec import RunSpec, parse_shard

plain = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=12)
    | st.lists(st.integers() | st.text(max_size=5), max_size=3)
)
anything = plain | st.dictionaries(st.text(max_size=4), plain, max_size=2)
settings_of_a_run = st.sampled_from([field.name for field in fields(RunSpec)]) | st.text(max_size=8)


@examples(150)
@given(values=st.dictionaries(settings_of_a_run, anything, max_size=5))
def test_any_mapping(values):
    try:
        spec = RunSpec.from_dict(values)
    except AlmakitError as error:
        assert len(str(error)) > 15
        return outcome("settings of a run", "sentence")
    outcome("settings of a run", "result")
    assert RunSpec.from_dict(spec.to_dict()) == spec and len(spec.sha256) == 64


GOOD = RunSpec(
    model="mnist/smallcnn-tiny",
    data="mnist-demo",
    attacks=("alma(distance=l2, steps=5)", "ddn(steps=3)"),
    limit=8,
    batch_size=4,
    bits=8,
)


@examples(120)
@given(
    places=st.lists(st.tuples(st.integers(0, 3000), st.binary(max_size=4), st.integers(0, 4)), min_size=1, max_size=4)
)
def test_any_damage_to_a_config(places, tmp_path_factory):
    content = bytearray(GOOD.to_toml().encode())
    for place, inserted, removed in places:
        place %= len(content) + 1
        content[place : place + removed] = inserted
    path = tmp_path_factory.mktemp("config") / "run.toml"
    path.write_bytes(bytes(content))
    try:
        spec = RunSpec.from_toml(path)
    except AlmakitError as error:
        assert len(str(error)) > 15
        return outcome("config files", "sentence")
    outcome("config files", "result")
    assert isinstance(spec, RunSpec)


VALUES = "l2 1 -1 0 1e400 nan none true [] alma alma(steps=3) '' 10**9 (( inf"
values = st.sampled_from([*VALUES.split(), "[1, 2]", '"x"'])
SETTINGS = st.sampled_from(["steps", "distance", "epsilon", "attack", "attacks", "rate", "searches", "mu", "restarts"])
calls = st.builds(
    lambda name, pairs: f"{name}({', '.join(f'{key}={value}' for key, value in pairs)})",
    st.sampled_from(names()) | st.text(string.ascii_letters + "-_.", max_size=6),
    st.lists(st.tuples(SETTINGS | st.text(max_size=4), values)),
)


@examples(300)
@given(text=calls | st.text(alphabet=string.ascii_letters + string.digits + "()[]=,.'\"- \n\x00é", max_size=40))
def test_any_attack_text(text):
    try:
        attack = get(text)
    except AlmakitError as error:
        assert len(str(error)) > 15
        return outcome("attack texts", "sentence")
    outcome("attack texts", "result")
    assert get(text_of(attack)) == attack or "nan" in text


def test_deep_nesting_is_a_sentence():
    with pytest.raises(AlmakitError):
        get("alma(steps=" + "[" * 100_000)
    with pytest.raises(AlmakitError):
        get("search(attack=" * 20_000)


@examples(60)
@given(text=st.text(max_size=10) | st.from_regex(r"-?\d{1,25}/-?\d{1,25}", fullmatch=True))
def test_any_shard(text):
    try:
        number, total = parse_shard(text)
    except AlmakitError:
        return
    assert 0 <= number < total


FLAGS = """--model --data --attack --limit --offset --bits --targets --dtype --batch-size --seed --budget --shard
    --engine --workers --config --mean --std --epsilon --json --quiet --device --allow --split --size"""
WORDS = "mnist/smallcnn-tiny mnist-demo nix alma(steps=2) 0 -1 3 auto cpu x.csv 0/2 nan --"
flags, words = st.sampled_from(FLAGS.split()), st.sampled_from([*WORDS.split(), ""])


@examples(60)
@given(rest=st.lists(st.tuples(flags, words | st.text(max_size=6)), max_size=5))
def test_any_command_line(rest, tmp_path_factory):
    """Without a model that exists nothing heavy runs: what is fuzzed is the way there."""
    place: Path = tmp_path_factory.mktemp("cli")
    arguments = [part for pair in rest for part in pair if part != "mnist/smallcnn-tiny"]
    said = io.StringIO()
    with redirect_stderr(said), redirect_stdout(io.StringIO()):
        code = main(["run", *arguments, "--out", str(place / "run")])
    asked_for_help = bool({"-h", "--help"} & set(arguments))
    assert code in (1, 2) or (code == 0 and asked_for_help), said.getvalue()
    assert code == 0 or ("almakit" in said.getvalue() and "unexpected" not in said.getvalue())
    assert not (place / "run" / "records.sqlite").exists(), "a run was begun"
    outcome("command lines", "sentence")
