"""Random models: what fresh passes say of an attack's successes. No torch here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .numbers import wilson
from .subjects import Column, Subject


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
        "quantiles": [(share, *wilson(share, passes)) for share in (shares[0], shares[len(shares) // 2], shares[-1])]
        if shares
        else [],
    }
