"""What was meant: the nearest known word for one that nobody knows, as the end of a sentence."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, TypeVar, cast

from .errors import BadInput

F = TypeVar("F", bound=Callable[..., Any])

# What other libraries call it.
SYNONYMS = {
    "eps": "epsilon",
    "epsilons": "epsilon",
    "radius": "epsilon",
    "norm": "distance",
    "metric": "distance",
    "p": "distance",
    "lp": "distance",
    "iterations": "steps",
    "n_iter": "steps",
    "nb_iter": "steps",
    "max_iter": "steps",
    "num_steps": "steps",
    "iters": "steps",
    "n_restarts": "restarts",
    "num_restarts": "restarts",
    "bs": "batch_size",
    "batchsize": "batch_size",
    "y": "labels",
    "label": "labels",
    "y_target": "targets",
    "target": "targets",
    "step_size": "rate",
    "eps_iter": "rate",
    "rel_stepsize": "rate",
    "random_start": "random",
    "rand_init": "random",
    "bounds": "box",
    "verbose": "progress",
    "n_examples": "limit",
    "output": "out",
    "save_dir": "out",
    "dataset": "data",
    "attack": "attacks",
    "quiet": "progress",
}
_RADIUS = ("eps", "epsilon", "epsilons", "radius")


def meant(word: str, known: Iterable[str], unlisted: Iterable[str] = (), most: int = 3) -> str:
    """``did you mean ddn?``, or all that is known where nothing is near; names ``unlisted`` may be meant and are not
    shown otherwise."""
    words = list(known)
    spelt = {
        name.lower(): name for name in reversed([*words, *unlisted])
    }  # of names that differ in case alone the first
    near = [spelt[name] for name in difflib.get_close_matches(word.lower(), spelt, n=most, cutoff=0.5)]
    near.sort(
        key=lambda name: sorted(name.lower()) != sorted(word.lower())
    )  # letters in another order are the likeliest slip
    other = SYNONYMS.get(word.lower())
    if other in words:
        near = [str(other)]
    return (
        f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(words)}." if words else "there are none."
    )


def wrong_setting(owner: str, word: str, known: Iterable[str]) -> BadInput:
    """The sentence for a setting or option that ``owner`` does not have."""
    words = list(known)
    if word in _RADIUS and "epsilon" not in words and "eps" not in words and "epsilons" not in words:
        return BadInput(
            f"{owner} has no setting {word!r}: it looks for the smallest change, and robust accuracy at any radius is "
            "read off the result, result.robust_accuracy(8/255). Attacks at a fixed radius are pgd and apgd."
        )
    hint = meant(word, words)
    listed = "" if hint.startswith(("known", "there")) else f" Its settings are {', '.join(words)}."
    return BadInput(f"{owner} has no setting {word!r}; {hint}{listed}")


def sentences(function: F) -> F:
    """The function, with a wrong keyword answered by a sentence instead of a TypeError; type checkers see its own
    signature."""
    parameters = inspect.signature(function).parameters
    known = [name for name, each in parameters.items() if name != "self" and each.kind is not each.VAR_KEYWORD]

    @wraps(function)
    def checked(*given: Any, **named: Any) -> Any:
        for word in named:
            if word not in known:
                owner = (
                    f"a call of {type(given[0]).__name__}"
                    if "self" in parameters and given
                    else f"almakit.{function.__name__}"
                )
                raise wrong_setting(owner, word, known)
        return function(*given, **named)

    return cast(F, checked)


FRACTION = re.compile(
    r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*/\s*((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*\Z"
)


def number(text: str) -> float:
    """``"0.3"``, and ``"8/255"`` as people write radii; ValueError for anything else."""
    if (parts := FRACTION.match(text)) is None:
        return float(text)
    if not float(parts[2]):
        raise ValueError(f"{text!r} divides by zero")
    return float(parts[1]) / float(parts[2])
