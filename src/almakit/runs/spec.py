"""The specification of a run: a frozen value that can be written as a TOML file, as command-line flags and in Python,
with a canonical hash."""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ..errors import BadInput, require_text, wrong_setting
from ..expression import parse_number
from .radii import parse, texts_of

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover
    import tomli as tomllib

FORMAT = 1
AUTO, DEFAULT = "auto", "default"
"""Values that are decided when a run begins: ``auto`` by a measurement, ``default`` by a fixed rule."""
DTYPES = ("float32", "float64", "bfloat16", "float16")
# Settings of version 0.1 that run folders may still contain; they are now properties of the caller's model.
RETIRED = ("layout", "accelerate")
TARGETS = ("random", "least-likely", "next", "all", "data")
DEFAULT_ATTACKS = ("soft-walk(distance=l2, steps=100)", "soft-walk(distance=linf, steps=100)")
Rule = Callable[[str, Any], Any]
"""A rule: takes a setting's name and value, returns the normalised value or raises an error."""


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise BadInput(f"{name}={value!r}: give a text.")
    return require_text(value, f"{name} of a run")


def _texts(name: str, value: Any) -> tuple[str, ...]:
    """One text or several."""
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, (tuple, list)) or not all(isinstance(item, str) for item in listed):
        raise BadInput(f"{name}={value!r}: give a list of texts.")
    return tuple(require_text(item, f"one of {name}") for item in listed)


def _stop_radii(name: str, value: Any) -> tuple[str, ...]:
    """One radius for each distance."""
    found = texts_of(value, name)
    for distance, values in parse(found, name).items():
        if len(values) > 1:
            where = f" for {distance}" if distance else ""
            raise BadInput(f"{name} gives {len(values)} radii{where}; images stop at one, such as linf=8/255.")
    return found


def _number(value: Any) -> float:
    """The number; NaN for anything else."""
    try:
        return parse_number(value) if isinstance(value, str) else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _numbers(name: str, value: Any) -> tuple[float, ...]:
    found = tuple(map(_number, value)) if isinstance(value, (tuple, list)) else (math.nan,)
    if not all(map(math.isfinite, found)):
        raise BadInput(f"{name}={value!r}: give one number per channel.")
    return found


def _plain(fits: Callable[[Any], bool], what: str) -> Rule:
    """A rule for TOML values for which ``fits`` holds; ``what`` describes them in the error."""

    def rule(name: str, value: Any) -> Any:
        if not fits(value):
            raise BadInput(f"{name}={value!r}: {what}.")
        return value

    return rule


def _whole(at_least: float = -math.inf, at_most: float = math.inf, words: tuple[str, ...] = ()) -> Rule:
    """A rule for integers within bounds, or one of a few words."""
    what = "give a whole number" + f", at least {at_least}" * math.isfinite(at_least)
    what += f" and at most {at_most}" * math.isfinite(at_most) + ", or auto" * bool(words)
    return _plain(lambda value: (type(value) is int and at_least <= value <= at_most) or value in words, what)


def _share(name: str, value: Any) -> float:
    found = _number(value)
    if isinstance(value, bool) or not 0 < found <= 1:
        raise BadInput(f"{name}={value!r}: give a share above 0 and at most 1.")
    return found


def _one_of(*choices: str) -> Rule:
    return _plain(lambda value: value in choices, f"choose {(' or ' if len(choices) == 2 else ', ').join(choices)}")


def _is_target(value: Any) -> bool:
    text = isinstance(value, str) and require_text(value, "targets of a run")
    return bool(text) and (
        value in TARGETS or value.startswith("python:") or value.endswith(".csv") or value.isdecimal()
    )


def _setting(rule: Rule, default: Any, text: str, *, relevant: bool = True) -> Any:
    """A field with the rule for its values and its one-line help; a ``relevant`` one is part of the hash."""
    return field(default=default, metadata={"rule": rule, "help": text, "relevant": relevant})


@dataclass(frozen=True)
class RunSpec:
    """The settings of a run: those that determine its numbers, and a few that do not (not part of the hash)."""

    model: str = _setting(
        _text,
        "",
        "the model: a zoo name, file.py:function, a .pt2 or .onnx file, torchvision:..., timm:..., hf:..., "
        "robustbench:...",
    )
    surrogate: str | None = _setting(
        _text, None, "take gradients from this model; outputs and verification use --model (transfer attacks, BPDA)"
    )
    data: str = _setting(
        _text,
        "",
        "the images: mnist, fashion-mnist, cifar10, imagenet:<folder>, folder:<folder or csv>, npz:<file>, "
        "file.py:function",
    )
    attacks: tuple[str, ...] = _setting(
        _texts,
        (),
        'an attack such as "alma(distance=l2, steps=100)", "foolbox:DDNAttack(steps=100)" or "file.py:function"; '
        "may be repeated (default: soft-walk in l2 and in linf, 100 steps)",
    )
    limit: int | None = _setting(_whole(1), None, "use at most this many images")
    offset: int = _setting(_whole(0), 0, "skip this many images")
    split: str = _setting(_one_of("test", "train"), "test", "which part of the data set: test or train")
    size: int | None = _setting(_whole(1), None, "resize and crop images to squares of this side")
    channels: int | None = _setting(_whole(1), None, "number of channels of image files: 1 or 3")
    mean: tuple[float, ...] = _setting(
        _numbers, (), "per-channel means of the normalisation that the model expects, e.g. 0.485,0.456,0.406"
    )
    std: tuple[float, ...] = _setting(_numbers, (), "per-channel standard deviations of the same normalisation")
    seed: int = _setting(_whole(), 0, "seed of everything random; each image draws from its own generator")
    bits: int | None = _setting(
        _whole(1, at_most=16), None, "restrict attacks to the values of this bit depth (8: image files)"
    )
    targets: str | None = _setting(
        _plain(_is_target, f"choose {', '.join(TARGETS)}, a class such as 3, or a csv file with columns id and target"),
        None,
        "targeted attacks: random, least-likely, next, all, data (the data set's own targets), a class such as 3 for "
        "all images, or a csv file with id and target",
    )
    goal: str | None = _setting(
        _text,
        None,
        'the goal (default: leave the label): "top-k(k=5)", "reject(probability=0.9)", ... or my_goal.py:build; '
        'for segmentation "pixels(share=0.99)"',
    )
    budget: int | None = _setting(_whole(1), None, "at most this many forward and this many backward passes per image")
    stop_within: tuple[str, ...] = _setting(
        _stop_radii,
        (),
        "stop each image once it is broken within this radius: linf=8/255 for one distance, a number for all; the run "
        "then has results for this radius and larger ones only; may be repeated",
    )
    eot: int | None = _setting(
        _whole(1),
        None,
        "for random models: average outputs and gradients over this many passes; fresh passes vote on each success",
    )
    votes: int = _setting(_whole(1), 100, "with eot: number of fresh passes that vote on each success")
    vote_share: float = _setting(_share, 0.5, "with eot: share of the votes in which the goal must be reached")
    dtype: str = _setting(
        _one_of(*DTYPES),
        "float32",
        "precision: float32, float64, or bfloat16 / float16 for autocast (verification never uses half precision)",
    )
    batch_size: int | str = _setting(
        _whole(1, words=(AUTO, DEFAULT)),
        DEFAULT,
        "images per chunk, the unit of work that is stored and resumed; 64 on a CPU, 256 on a GPU, fewer large images; "
        "auto measures the best size",
    )
    device: str = _setting(_text, AUTO, "cpu, cuda, cuda:1, mps; auto uses a GPU if there is one")
    traces: int = _setting(_whole(0), 1, "record the history of each attack, step by step, for this many images")
    epsilon: tuple[str, ...] = _setting(
        lambda name, value: texts_of(value),
        (),
        "radii for robust accuracy: linf=8/255,4/255 for one distance, a number for all; may be repeated",
        relevant=False,
    )
    trust: bool = _setting(
        _plain(lambda value: isinstance(value, bool), "give true or false"),
        False,
        "allow the model file to be unpickled, which can run code in it",
        relevant=False,
    )
    allow: tuple[str, ...] = _setting(
        _texts, (), "accept this finding of preflight and run; may be repeated", relevant=False
    )

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if value is not None or f.default is not None:
                object.__setattr__(self, f.name, f.metadata["rule"](f.name, value))
        if len(self.mean) != len(self.std):
            raise BadInput(f"mean has {len(self.mean)} numbers and std {len(self.std)}; both need one per channel.")

    @property
    def target_class(self) -> int | None:
        """The target class of all images, if ``targets`` is a number."""
        return int(self.targets) if self.targets is not None and self.targets.isdecimal() else None

    def complete(self, out: Path | None = None) -> RunSpec:
        """The spec with attacks: if it has none, those of the run in ``out``, or else the default ones. Raises an error
        if model or data are missing."""
        for name, example in (("model", "mnist/smallcnn"), ("data", "mnist")):
            if not getattr(self, name):
                raise BadInput(f"a run needs a {name}: give --{name}, for example --{name} {example}.")
        if self.attacks:
            return self
        begun = out is not None and (out / "run.toml").is_file()
        return replace(self, attacks=RunSpec.from_toml(out / "run.toml").attacks if begun and out else DEFAULT_ATTACKS)

    # Conversion to a mapping and to TOML.

    def to_dict(self) -> dict[str, Any]:
        return {
            f.name: list(value) if isinstance(value := getattr(self, f.name), tuple) else value for f in fields(self)
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> RunSpec:
        known = {f.name for f in fields(cls)}
        values = {key.replace("-", "_"): value for key, value in values.items() if key not in RETIRED}
        for name in values:
            if name not in known:
                raise wrong_setting("a run", name, sorted(known))
        return cls(**values)

    def to_toml(self) -> str:
        """A config file: every setting that has a value, with its meaning."""
        lines = [
            "# An almakit run. Repeat it with `almakit run --config <this file> --out <folder>`;",
            "# Without --out, the run resumes in the folder of this file.",
            f"format = {FORMAT}",
            "",
        ]
        for f in fields(self):
            value = getattr(self, f.name)
            if value is None or value == () or value is False:
                continue
            lines += [f"# {f.metadata['help']}", f"{f.name} = {toml_value(value)}"]
        return "\n".join(lines) + "\n"

    @classmethod
    def from_toml(cls, path: str | Path) -> RunSpec:
        place = Path(path)
        try:
            return cls.from_text(place.read_text(encoding="utf-8"), str(place))
        except FileNotFoundError:
            raise BadInput(f"there is no config file {place}.") from None
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"{place} cannot be read as TOML: {error}.") from error

    @classmethod
    def from_text(cls, text: str, place: str) -> RunSpec:
        """The spec in the text of a TOML file; ``place`` is its name in error messages."""
        try:
            values = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise BadInput(f"{place} cannot be read as TOML: {error}.") from error
        found = values.pop("format", FORMAT)
        if found != FORMAT:
            raise BadInput(f"{place} is a config of format {found}; this almakit reads format {FORMAT}.")
        return cls.from_dict(values)

    # Identity.

    def canonical(self) -> dict[str, Any]:
        """The settings that determine the numbers; of the device only its kind."""
        relevant = {f.name for f in fields(self) if f.metadata["relevant"]}
        values = {name: value for name, value in self.to_dict().items() if name in relevant}
        values["device"] = str(values["device"]).partition(":")[0]
        # Settings of later versions do not change the hash of older runs unless they are used.
        unused = {name for name in ("goal", "surrogate", "stop_within", "eot") if not values[name]}
        unused |= {"votes", "vote_share"} if "eot" in unused else set()
        return {"format": FORMAT, **{name: value for name, value in values.items() if name not in unused}}

    @property
    def sha256(self) -> str:
        """The canonical hash, equal for equal settings in any order and from any source."""
        return hashlib.sha256(json.dumps(self.canonical(), sort_keys=True, separators=(",", ":")).encode()).hexdigest()

    def fill(self, recorded: RunSpec) -> RunSpec:
        """This spec with undecided values, and radii if it has none, taken from a recorded spec."""
        return replace(
            self,
            epsilon=self.epsilon or recorded.epsilon,
            goal=self.goal or recorded.goal,
            batch_size=recorded.batch_size if self.batch_size in (AUTO, DEFAULT) else self.batch_size,
            device=recorded.device if self.device == AUTO else self.device,
        )

    def differences(self, recorded: RunSpec) -> list[tuple[str, Any, Any]]:
        """(field, own value, recorded value) for every relevant setting that differs."""
        here, there = self.canonical(), recorded.canonical()
        return [
            (name, here.get(name), there.get(name)) for name in {**here, **there} if here.get(name) != there.get(name)
        ]

    def folder_name(self) -> str:
        """The default folder of a run, equal for equal settings."""
        undecided = replace(self, batch_size=AUTO, device=AUTO)
        model = Path(self.model.partition(":")[0]).stem if ".py:" in self.model else self.model
        slug = re.sub(r"[^A-Za-z0-9]+", "-", f"{model}-{self.data}").strip("-")
        return f"{slug[:60]}-{undecided.sha256[:8]}"


def toml_value(value: object) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (tuple, list)):
        inner = ", ".join(toml_value(item) for item in value)
        return (
            f"[{inner}]" if len(inner) < 100 else "[\n" + "".join(f"    {toml_value(item)},\n" for item in value) + "]"
        )
    # JSON strings are TOML basic strings, except that TOML wants DEL escaped too.
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def parse_shard(text: str | None) -> tuple[int, int] | None:
    """``"i/n"`` -> (i, n) with 0 <= i < n."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+)/(\d+)", text.strip())
    if match is None or not int(match[1]) < int(match[2]):
        raise BadInput(f"shard {text!r}: write i/n with i from 0 to n - 1, for example 0/4 to 3/4.")
    return int(match[1]), int(match[2])
