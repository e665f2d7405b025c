"""Cells of the comparison out of run folders of ``almakit reproduce``: an attack that was run on an image need not run
there again.

An image's result does not depend on its company, so the first images of a longer run are the run on the first images.
That the folder's code and ours still agree is not taken on trust: the attack is run anew on the first four images that
it had to attack. Rounding differs with the size of a batch and moves single images of a chaotic attack to another
minimum; that fewer than half of the four come out as they are kept is an error.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from almakit import Run, attacks
from almakit.core import Attack
from almakit.errors import AlmakitError
from almakit.runs.attack_text import describe
from almakit.runs.spec import RunSpec
from almakit.runs.store.records import Record
from benchmarks import common

CHECKED = 4


class Stored:
    """The run folders below a place: of one attack each, on a test set from its first image on, with nothing but the
    attack set."""

    def __init__(self, place: Path):
        self.runs: list[Run] = []
        for database in sorted(place.rglob("records.sqlite")):
            try:
                run = Run(database.parent)
            except AlmakitError as error:
                print(f"{database.parent} is left out: {error}")
                continue
            s, usual = run.spec, RunSpec(model="", data="", attacks=())
            same = all(
                getattr(s, name) == getattr(usual, name)
                for name in ("split", "offset", "seed", "bits", "targets", "budget")
            )
            if len(run.attacks) == 1 and same and s.dtype in ("auto", "float32"):
                self.runs.append(run)
        if not self.runs:
            raise SystemExit(
                f"There are no run folders to take from below {place}; name the folder given to almakit reproduce "
                "--out."
            )

    def cell(
        self, text: str, model: str, network: nn.Module, x: Tensor, labels: Tensor, first: int
    ) -> common.Cell | None:
        """The attack on the images ``x`` (B, ...), which begin at number ``first`` of the test set; None where no
        folder has them all."""
        wanted = attacks.get(text)
        settings = describe(wanted, 0, False).settings
        for run in self.runs:
            if (run.spec.model, run.spec.data) != (model, model.split("/")[0]) or attacks.get(
                run.attacks[0].text
            ) != wanted:
                continue
            # What was stored before an attack inside another was kept with all its settings has its text there, which
            # the line above has read.
            then = {
                name: value
                for name, value in run.attacks[0].settings.items()
                if not isinstance(settings.get(name), dict | list)
            }
            if any(settings.get(name) != value for name, value in then.items()):
                continue
            records = {record.image: record for record in run.records_of(0)}
            if all(first + i in records for i in range(len(x))):
                mine = [records[first + i] for i in range(len(x))]
                _agree(run, wanted, network, x, labels, mine)
                return {**_cell(mine), "from": run.folder.name}
        return None


def _cell(records: list[Record]) -> common.Cell:
    values = torch.tensor([record.verified for record in records])
    passes = torch.tensor(
        [[record.forwards, record.backwards] for record in records if record.attacked], dtype=torch.float64
    ).reshape(-1, 2)
    return common.cell(values, 0.0, passes[:, 0], passes[:, 1])


def _agree(run: Run, attack: Attack, network: nn.Module, x: Tensor, labels: Tensor, records: list[Record]) -> None:
    rows = [i for i, record in enumerate(records) if record.attacked][:CHECKED]
    if not rows:
        return
    again = attack(network, x[rows], labels[rows]).distances
    kept = torch.tensor([records[i].distance for i in rows], dtype=again.dtype)
    finite = kept.isfinite() & again.isfinite()
    close = torch.isclose(again, kept, rtol=1e-3)[finite]
    if not torch.equal(kept.isfinite(), again.isfinite()) or 2 * int(close.sum()) < len(close):
        raise SystemExit(
            f"{run.folder} holds {kept.tolist()} for images on which {run.attacks[0].text} now gives {again.tolist()}."
        )
