"""The examples in the docstrings of public functions run and give what they show."""

from __future__ import annotations

import doctest

import pytest

import almakit

EXAMPLES = {
    "attack": almakit.attack,
    "standard_evaluation": almakit.standard_evaluation,
    "evaluate": almakit.evaluate,
    "attacks.get": almakit.attacks.get,
    "Box": almakit.Box,
    "models.load": almakit.models.load,
    "data.load": almakit.data.load,
    "check_distance": almakit.check_distance,
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_of_a_docstring_run(name: str) -> None:
    (found, *_) = doctest.DocTestFinder(recurse=False).find(EXAMPLES[name], name, globs={})
    assert found.examples, f"{name} has no example"
    assert doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(found).failed == 0
