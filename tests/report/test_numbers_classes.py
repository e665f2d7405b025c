"""The classes of a report; their numbers are recomputed in test_numbers_recompute.py."""

from __future__ import annotations

from dataclasses import replace

from runs.small_runs import small_run

from almakit.report import subjects
from almakit.report.page import render
from almakit.report.sections import classes_of


def test_only_the_most_frequent_classes_are_listed(tmp_path) -> None:
    run = small_run(tmp_path / "run", attacks=["ddn(steps=10)", "alma(distance=l2, steps=12)"])
    (subject,) = subjects.load([run.folder])
    page = render([subject])
    assert "Class by class" in page and "Nearest on how many images" in page
    wide = replace(subject, images=[replace(info, label=info.index) for info in subject.images])
    (card,) = classes_of(wide)
    assert len(card.tables[0].rows) == 20 and card.note == "20 classes with fewer images are not shown."
