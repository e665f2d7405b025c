"""Text made safe for LaTeX."""

from __future__ import annotations

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "×": r"$\times$",
    "±": r"$\pm$",
    "ℓ": r"$\ell$",
    "∞": r"$\infty$",
    "−": "$-$",
    "–": "--",
    "\n": " ",
    "\r": " ",
    "\t": " ",
}


def escape(text: str) -> str:
    """``text`` with LaTeX's special characters spelled out; control characters are left out."""
    return "".join(_SPECIAL.get(character, character if character.isprintable() else "") for character in text)
