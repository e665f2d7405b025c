"""Distance against queries: the median of the best distances so far, from what each record kept on its way. No torch
here."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..runs.store.fields import finite
from ..runs.store.records import PASSES, AttackInfo, Record
from .numbers import median


def course(info: AttackInfo, records: Sequence[Record]) -> list[dict[str, float | None]]:
    """The median best distance of the attacked images after each of ``PASSES`` forwards, as far as the attack goes;
    empty where no record kept any.

    null: nothing found for half of them by then.
    """
    mine = [record for record in records if record.attacked]
    if not info.minimal or not any(value is not None for record in mine for value in record.course.values()):
        return []
    most = max(record.forwards for record in mine)
    kept = [count for place, count in enumerate(PASSES) if place == 0 or PASSES[place - 1] < most]
    rows = []
    for count in kept:
        values = [
            record.course.get(f"best_{count}") for record in mine if not record.refuted or record.status != "success"
        ]
        middle = median(np.array([math.inf if value is None else value for value in values]))
        rows.append({"forwards": min(count, most), "median": finite(middle)})
    return rows
