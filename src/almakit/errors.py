"""Error classes, and parts of messages: the nearest known name, a wrong setting, a missing library."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

# Names of settings in other libraries, by their names in almakit.
SYNONYMS = {
    word: name
    for name, words in {
        "epsilon": "eps epsilons radius",
        "distance": "norm metric p lp",
        "steps": "iterations n_iter nb_iter max_iter num_steps iters",
        "restarts": "n_restarts num_restarts",
        "batch_size": "bs batchsize",
        "labels": "y label",
        "targets": "y_target target",
        "rate": "step_size eps_iter rel_stepsize",
        "random": "random_start rand_init",
        "box": "bounds",
        "progress": "verbose quiet",
        "limit": "n_examples",
        "out": "output save_dir",
        "data": "dataset",
        "attacks": "attack",
    }.items()
    for word in words.split()
}
_RADIUS = ("eps", "epsilon", "epsilons", "radius")


class AlmakitError(ValueError):
    """Base of all errors that the caller can correct; the message says how."""


class UnknownName(AlmakitError):
    """A name that no registry knows; the message offers the nearest ones."""


class BadInput(AlmakitError):
    """Images, labels, targets or settings that cannot be attacked as given."""


class BadModel(AlmakitError):
    """The model does not behave like a deterministic classifier that returns logits."""


class Unavailable(AlmakitError):
    """A file, an optional library or a download that is not available."""


@dataclass(frozen=True)
class CheckReport:
    """The requirements of a distance or a goal that ``subject`` violates, each with its name and what was measured;
    one line each when printed. ``ok`` if there are none."""

    subject: str
    kind: str
    findings: tuple[tuple[str, str], ...]

    @property
    def ok(self) -> bool:
        return not self.findings

    def __str__(self) -> str:
        if self.ok:
            return f"{self.subject} satisfies every requirement of {self.kind}, on these images."
        count = f"{len(self.findings)} requirement{'s' if len(self.findings) > 1 else ''}"
        lines = (f"  {name}: {sentence}" for name, sentence in self.findings)
        return "\n".join([f"{self.subject} violates {count} of {self.kind}:", *lines])


def require_text(text: str, what: str) -> str:
    """Return ``text`` if files and databases can hold it; refuse surrogates, as in a file name that is not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadInput(
            f"{what} is {text!a}, which is not text in UTF-8, so that no record or report could hold it; rename it."
        ) from None
    return text


def suggestion(word: str, known: Iterable[str], unlisted: Iterable[str] = (), most: int = 3) -> str:
    """The end of a message about an unknown word: ``did you mean ddn?``, or all known words if none is close.

    Args:
        word: what the user wrote.
        known: the words that exist.
        unlisted: further words that may be meant and are not listed otherwise.
        most: how many words are suggested.
    """
    import difflib

    words = list(known)
    # Of names that differ only in case, the first is suggested.
    by_lower_case = {name.lower(): name for name in reversed([*words, *unlisted])}
    near = [by_lower_case[name] for name in difflib.get_close_matches(word.lower(), by_lower_case, n=most, cutoff=0.5)]
    # Transposed letters are the most likely mistake.
    near.sort(key=lambda name: sorted(name.lower()) != sorted(word.lower()))
    other = SYNONYMS.get(word.lower())
    if other in words:
        near = [str(other)]
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"known: {', '.join(words)}." if words else "there are none."


def wrong_setting(owner: str, word: str, known: Iterable[str]) -> BadInput:
    """The error for a setting or option ``word`` that ``owner``, whose settings are ``known``, does not have."""
    words = list(known)
    if word in _RADIUS and "epsilon" not in words and "eps" not in words and "epsilons" not in words:
        return BadInput(
            f"{owner} has no setting {word!r}: it looks for the smallest change, and robust accuracy at any radius is "
            "read off the result, result.robust_accuracy(8/255). Attacks at a fixed radius are pgd and apgd."
        )
    if word == "device" and word not in words:
        return BadInput(
            f"{owner} has no setting 'device': it runs where the model and the images are; move both with .to(device). "
            "almakit.evaluate takes device=."
        )
    hint = suggestion(word, words)
    listed = "" if hint.startswith(("known", "there")) else f" Its settings are {', '.join(words)}."
    return BadInput(f"{owner} has no setting {word!r}; {hint}{listed}")


def optional(module: str, missing: str, install: str = "") -> Any:
    """Import an optional library, or raise ``Unavailable`` with the command that installs it.

    Any exception counts: a torchvision that was built for another torch raises RuntimeError on import.

    Args:
        module: the module to import.
        missing: the message if the library is not installed.
        install: the command that repairs an installed library that fails to import.
    """
    try:
        return import_module(module)
    except Exception as error:
        root = module.split(".")[0]
        if isinstance(error, ModuleNotFoundError) and str(error.name).split(".")[0] == root:
            raise Unavailable(missing) from error
        why = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        hint = install or f"pip install -U {root}"
        if "torchvision" in str(error):  # it fits one version of torch
            hint = "install the torchvision that was built for your torch, from where that came"
        raise Unavailable(f"{root} is installed but cannot be imported ({why}): {hint}.") from error
