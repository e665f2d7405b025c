"""Parses radii for robust accuracy: ``linf=8/255,4/255``, ``l2=0.5``, or a number for every distance. No torch here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..errors import BadInput, require_text
from ..radius import number

Radii = float | str | Sequence[float | str] | Mapping[str, "float | str | Sequence[float | str]"]


def texts_of(epsilons: Radii, option: str = "epsilon") -> tuple[str, ...]:
    """Radii from Python or TOML as the texts that a run records: ("linf=8/255,4/255", "l2=0.5").

    ``option`` is the name of the setting in error messages.
    """
    if isinstance(epsilons, Mapping):
        found = [f"{name}={_listed(values, option)}" for name, values in epsilons.items()]
    elif isinstance(epsilons, Sequence) and not isinstance(epsilons, str):
        found = [_listed(value, option) for value in epsilons]
    else:
        found = [_listed(epsilons, option)]
    parse(found, option)
    return tuple(require_text(text, option) for text in found)


def _listed(values: object, option: str) -> str:
    if isinstance(values, str):
        return values.strip()
    if isinstance(values, (int, float)) and not isinstance(values, bool):
        return repr(values)
    if isinstance(values, Sequence):
        return ",".join(_listed(value, option) for value in values)
    raise BadInput(f"{option} {values!r} is no radius; write a number, 0 or more, such as 0.5 or 8/255.")


def parse(texts: Sequence[str], option: str = "epsilon") -> dict[str, list[float]]:
    """The radii by distance; those under the key "" apply to every distance."""
    found: dict[str, list[float]] = {}
    for text in texts:
        name, equals, values = text.rpartition("=")
        if equals and not name.strip():
            raise BadInput(f"{option} {text!r} names no distance before =; write for example linf=8/255.")
        found.setdefault(name.strip(), []).extend(number(value, option) for value in values.split(","))
    return found


def for_distances(texts: Sequence[str], distances: Sequence[str], option: str = "epsilon") -> dict[str, list[float]]:
    """The radii by distance, ascending and without duplicates. A distance that no attack uses is an error."""
    found: dict[str, set[float]] = {}
    for name, values in parse(texts, option).items():
        mine = [distance for distance in distances if name in ("", distance)] or [
            distance for distance in distances if name.lower() == distance.lower()
        ]
        if not mine and name:
            known = ", ".join(dict.fromkeys(distances)) or "none"
            raise BadInput(f"{option} is given for {name}, and no attack here is in it; they have {known}.")
        for distance in mine:
            found.setdefault(distance, set()).update(values)
    return {distance: sorted(values) for distance, values in found.items()}


def stop_radius(texts: Sequence[str], distance: str) -> float | None:
    """The radius at which attacks in ``distance`` stop; None if ``texts`` contain none for it."""
    found = parse(texts, "stop_within")
    own = next((values for name, values in found.items() if name.lower() == distance.lower()), found.get("", []))
    return own[0] if own else None
