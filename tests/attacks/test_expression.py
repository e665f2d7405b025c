"""The language of attack texts: what is written is what is read, and what cannot be read is explained."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from almakit import ALMA, attacks, registry
from almakit.errors import BadInput, UnknownName
from almakit.expression import Call, Value, parse

words = st.from_regex(r"[a-z][a-z0-9_+/.:-]{0,8}", fullmatch=True).filter(
    lambda w: w not in ("true", "false", "none", "nan", "inf", "infinity")
)
settings_names = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)
plain: st.SearchStrategy[Value] = st.one_of(
    words,
    st.integers(-(10**9), 10**9),
    st.floats(allow_nan=False),
    st.booleans(),
    st.none(),
    st.text(st.characters(blacklist_characters="\"'", blacklist_categories=["Cs", "Cc"]), max_size=8).map(
        lambda text: text
    ),
)
values: st.SearchStrategy[Value] = st.recursive(
    plain,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple),
        st.builds(Call, words, st.dictionaries(settings_names, inner, max_size=3)),
    ),
    max_leaves=6,
)
calls = st.builds(Call, words, st.dictionaries(settings_names, values, max_size=4))


def write(value: Value, quote: str, space: str) -> str:
    """The text of a value, written as a person might."""
    if isinstance(value, Call):
        inside = f"{space},{space}".join(
            f"{name}{space}={space}{write(item, quote, space)}" for name, item in value.arguments.items()
        )
        return f"{value.name}({space}{inside}{space})"
    if isinstance(value, tuple):
        return "[" + f",{space}".join(write(item, quote, space) for item in value) + "]"
    if isinstance(value, str):
        return quote + value + quote
    return str(value)


@given(calls, st.sampled_from(["'", '"']), st.sampled_from(["", " ", "\n  "]))
@settings(max_examples=150, deadline=None)
def test_what_is_written_is_what_is_read(call: Call, quote: str, space: str) -> None:
    assert parse(write(call, quote, space)) == call


@given(st.one_of(st.text(max_size=25), st.text(alphabet="alm(),=[]\"' 1.", max_size=25)))
@settings(max_examples=500, deadline=None)
def test_any_text_is_read_or_explained(text: str) -> None:
    try:
        assert isinstance(parse(text), Call)
    except BadInput as error:
        assert str(error).startswith("cannot read the attack")
        assert "Write it like alma(distance=l2, steps=100)." in str(error)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("alma", Call("alma")),
        ("alma()", Call("alma")),
        ("alma-plus(distance=l2,)", Call("alma-plus", {"distance": "l2"})),
        (
            "a(b=1, c=-2.5, d=1e3, e=True, f=none, g=l2)",
            Call("a", {"b": 1, "c": -2.5, "d": 1000.0, "e": True, "f": None, "g": "l2"}),
        ),
        ("a(b='1')", Call("a", {"b": "1"})),
        ("a(b=[1, x, [c(d=2)]], e=[])", Call("a", {"b": (1, "x", (Call("c", {"d": 2}),)), "e": ()})),
        (
            "search(attack=apgd(steps=50), epsilon=5)",
            Call("search", {"attack": Call("apgd", {"steps": 50}), "epsilon": 5}),
        ),
        ("a(path=mnist/smallcnn-trades)", Call("a", {"path": "mnist/smallcnn-trades"})),
    ],
)
def test_examples(text: str, expected: Call) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it ends too early"),
        ("alma(", "'=' is missing at the end"),
        ("alma(steps", "'=' is missing at the end"),
        ("alma(steps=", "it ends too early"),
        ("alma(steps=5", r"'\)' is missing at the end"),
        ("alma(l2)", r"'=' is missing before '\)'"),
        ("alma(steps=)", r"'\)' is out of place"),
        ("alma(steps=5 distance=l2)", r"'\)' is missing before 'distance'"),
        ("alma(steps=5, steps=6)", "'steps' is given twice"),
        ("alma(steps=5) ddn", "nothing may follow, but 'ddn' does"),
        ("[alma]", "it must start with the name of an attack"),
        ("5", "it must start with the name of an attack"),
        ('alma(distance="l2)', "'\"' has no meaning here"),
        ("alma(steps=5; distance=l2)", "';' has no meaning here"),
        ("alma(epsilon=[1, 2)", r"'\]' is missing before '\)'"),
    ],
)
def test_what_cannot_be_read_is_explained(text: str, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        parse(text)


def test_texts_become_attacks() -> None:
    assert attacks.get("alma") == ALMA()
    assert attacks.get("alma(distance=l1, steps=7, epsilon=0.2, ema=false)") == ALMA(
        distance="l1", steps=7, epsilon=0.2, ema=False
    )
    made = ALMA(steps=3)
    assert attacks.get(made) is made and "alma" in attacks.names()
    with pytest.raises(
        BadInput, match=r"alma has no setting 'step'; did you mean steps.*Its settings are distance, steps, epsilon"
    ):
        attacks.get("alma(step=3)")
    with pytest.raises(UnknownName, match="there is no attack called 'allma'; did you mean alma"):
        attacks.get("allma(steps=3)")
    with pytest.raises(BadInput, match=r"steps=1000.0: an attack needs a whole number"):
        attacks.get("alma(steps=1e3)")
    with pytest.raises(BadInput, match="ALMA cannot take mu='large'"):
        attacks.get("alma(mu=large)")


def test_presets_by_name_and_what_is_given_beside_them() -> None:
    assert attacks.get("ddn(preset=paper, steps=30)") == attacks.get("ddn(steps=30, adaptive=false, levels=256)")
    assert attacks.get("fmn(preset=paper, overshoot=0.01)") == attacks.get("fmn(adaptive=false, overshoot=0.01)")
    for name in registry.names("attacks"):
        kind = registry.get("attacks", name)
        for preset in kind.presets:
            given = "attack=apgd, " if name == "search" else ""
            assert isinstance(attacks.get(f"{name}({given}preset={preset})"), kind)
    with pytest.raises(BadInput, match="ddn has no preset 'own'; it has paper"):
        attacks.get("ddn(preset=own)")


def test_names_inside_attacks_and_a_radius_that_search_would_ignore() -> None:
    assert attacks.get("search(attack=apgd)") == attacks.get("search(attack=apgd())")
    with pytest.raises(BadInput, match="search chooses the radius itself"):
        attacks.get("search(attack=pgd(epsilon=0.5))")
    with pytest.raises(BadInput, match="DDN does l2, not l1"):
        attacks.get("ddn(distance=l1)")
    with pytest.raises(BadInput, match="overshoot=nan; it must be a finite number"):
        attacks.get("fmn(overshoot=nan)")
