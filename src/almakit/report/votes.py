"""Random models: what fresh passes say of an attack's successes. No torch here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .subjects import Column, Subject

Z = 1.959964


def interval(share: float, passes: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share of so many passes: the two p with |share - p| = Z sqrt(p (1 - p) / passes)."""
    square = Z * Z
    root = Z * math.sqrt(share * (1 - share) / passes + square / (4 * passes * passes))
    low, high = ((share + square / (2 * passes) + sign * root) / (1 + square / passes) for sign in (-1, 1))
    return max(0.0, low), min(1.0, high)


def sections(subjects: Sequence[Subject]) -> list[dict[str, Any]]:
    """For each model that was asked several times: every attack's claims and the shares of the votes they got."""
    return [
        {
            "model": subject.name,
            "eot": spec.eot,
            "votes": spec.votes,
            "share": spec.vote_share,
            "attacks": [_attack(column, spec.votes) for column in subject.columns],
        }
        for subject in subjects
        if (spec := subject.runs[0].spec).eot is not None
    ]


def _attack(column: Column, passes: int) -> dict[str, Any]:
    claims = [row for row in column.rows.values() if row.claimed and row.vote is not None]
    shares = sorted(row.vote for row in claims if row.vote is not None)
    return {
        "text": column.info.text,
        "claims": len(claims),
        "refuted": sum(row.refuted for row in claims),
        "quantiles": [(share, *interval(share, passes)) for share in (shares[0], shares[len(shares) // 2], shares[-1])]
        if shares
        else [],
    }
