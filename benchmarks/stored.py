"""Cells of the comparison out of run folders of ``almakit reproduce``: an attack that was run on an image need not run there again.

An image's result does not depend on its company, so the first images of a longer run are the run on the first images. That the folder's code and
ours still agree is not taken on trust: the attack is run anew on the first four images that it had to attack. Rounding differs with the size of a batch
and moves single images of a chaotic attack to another minimum; that none of the four comes out as it is kept is an error.
"""

from __future__ import annotations

from pathlib import Path

import common
import torch
from torch import Tensor, nn

from almakit import attacks
from almakit.core import Attack
from almakit.errors import AlmakitError
from almakit.eval.folder import Run
from almakit.eval.records import Record

CHECKED = 4


class Stored:
    """The run folders below a place, by (model, attack)."""

    def __init__(self, place: Path):
        self.runs: list[tuple[str, Attack, Run]] = []
        for database in sorted(place.rglob("records.sqlite")):
            run = Run(database.parent)
            try:
                self.runs.append((run.spec.model, attacks.get(run.attacks[0].text), run))
            except AlmakitError as error:
                print(f"{run.folder} is left out: {error}")
        if not self.runs:
            raise SystemExit(f"There are no run folders below {place}; name the folder given to almakit reproduce --out.")

    def cell(self, text: str, model: str, network: nn.Module, x: Tensor, labels: Tensor, first: int) -> common.Cell | None:
        """The attack on the images ``x`` (B, ...), which begin at number ``first`` of the test set; None where no folder has them all."""
        wanted = attacks.get(text)
        for name, attack, run in self.runs:
            if name != model or attack != wanted or run.spec.offset:
                continue
            records = {record.image: record for record in run.records}
            if all(first + i in records for i in range(len(x))):
                mine = [records[first + i] for i in range(len(x))]
                _agree(run, wanted, network, x, labels, mine)
                return {**_cell(mine), "from": run.folder.name}
        return None


def _cell(records: list[Record]) -> common.Cell:
    values = torch.tensor([float("inf") if not record.fooled or record.measured is None else record.measured for record in records])
    attacked = [record for record in records if record.forwards > 1]
    passes = torch.tensor([[record.forwards, record.backwards] for record in attacked], dtype=torch.float64)
    return common.cell(values, 0.0, passes[:, 0], passes[:, 1])


def _agree(run: Run, attack: Attack, network: nn.Module, x: Tensor, labels: Tensor, records: list[Record]) -> None:
    rows = [i for i, record in enumerate(records) if record.forwards > 1][:CHECKED]
    again = attack(network, x[rows], labels[rows])
    kept = torch.tensor([records[i].distance for i in rows], dtype=again.distances.dtype)
    if not bool(torch.isclose(again.distances, kept, rtol=1e-3).any()):
        raise SystemExit(f"{run.folder} holds {kept.tolist()} for images on which {run.attacks[0].text} now gives {again.distances.tolist()}.")
