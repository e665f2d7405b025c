"""Issue 18, items 9 and 10: what the report says of every target, of refuted claims, and beyond the radius of an
attack."""

from __future__ import annotations

import pytest
import torch
from runs.small_runs import Net, images, small_run

from almakit.attacks.standard import BY_SCORES_ALONE
from almakit.core import Result
from almakit.report import subjects, tables
from almakit.report.page import render
from almakit.report.trust import checks, counts_of

ALL = {"attacks": ["alma(distance=l2, steps=12)"], "targets": "all", "batch_size": 8}


@pytest.fixture(scope="module")
def every_target(tmp_path_factory):
    return small_run(tmp_path_factory.mktemp("all") / "run", **ALL)


def test_with_all_targets_every_record_counts(every_target):
    (subject,) = subjects.load([every_target.folder])
    claims = sum(record.status == "success" for record in every_target.records)
    counts = counts_of(subject.summaries[0]["attacks"])
    assert counts["records"] == 160 and counts["claims"] == claims > 100, "four targets for each of 40 images"
    (verdict,) = (check for check in checks(subject.summaries, subject.worst_cases) if check.what == "Verdict")
    assert verdict.sentence.startswith(f"All {claims} claimed successes are confirmed")
    page = render([subject])
    assert f"{claims}<small> / {claims}</small>" in page


def test_medians_and_curves_say_what_they_are_over(every_target):
    subject = subjects.load([every_target.folder])
    (part,) = every_target.summary["attacks"]
    assert part["over"] == "records" and part["records"] == 160 and "best_target" in part
    assert "over all records, one for each image and target" in every_target.table()
    assert "records (each image once for every target" in render(subject)
    assert "each image by its nearest target" in render(subject)
    assert "over all records" in tables.written(tables.tables_of(subject), "latex")
    plain = small_run(None)
    assert {part["over"] for part in plain.summary["attacks"]} == {"images"} and "over all images" in plain.table()


class Flips(Net):
    """Wrong on five clean images as long as it is asked with gradients, as an attack asks; right when the verdict
    asks."""

    def forward(self, x):
        logits = super().forward(x)
        if torch.is_grad_enabled() and len(x) == 8:
            logits = logits.clone()
            logits[:1] = logits[:1].roll(1, 1)
        return logits


def test_refuted_already_wrong_images_are_counted_apart(tmp_path):
    run = small_run(tmp_path, model=Flips(), attacks=["alma(distance=l2, steps=2)"], preflight=False)
    (subject,) = subjects.load([run.folder])
    counts = counts_of(subject.summaries[0]["attacks"])
    never = [record for record in run.records if record.status == "already-wrong" and record.refuted]
    assert counts["never_wrong"] == len(never) >= 4
    assert 0 <= counts["refuted"] <= counts["claims"]
    assert counts["claims"] == sum(record.status == "success" for record in run.records)
    (said,) = (
        check for check in checks(subject.summaries, subject.worst_cases) if check.what == "Wrong from the start"
    )
    assert said.level == "bad" and said.sentence.startswith(f"{len(never)} results")
    page = render([subject])
    assert "-1<small>" not in page and "<dd>-" not in page


# Item 10; what is left of it is in test_numbers_fixed.py.


def test_an_ensemble_of_fixed_radii_is_no_search_for_the_smallest():
    import almakit.attacks as attacks

    assert not attacks.get("ensemble(attacks=[apgd(distance=l2, epsilon=0.2), pgd(distance=l2, epsilon=0.3)])").minimal
    assert attacks.get("ensemble(attacks=[apgd(distance=l2, epsilon=0.2), alma(distance=l2)])").minimal
    assert isinstance(attacks.get("apgd(distance=l2, epsilon=0.2)")(Net(), *images(4)), Result)


class Rounded(Net):
    """Gradients are zero: the images are rounded first."""

    def forward(self, x):
        return super().forward((8 * x).round() / 8)


def test_zero_and_masked_gradients_are_said_with_what_to_do(tmp_path):
    attacks = ["pgd(distance=linf, epsilon=0.3, steps=5)", "square(distance=linf, epsilon=0.3, steps=60)"]
    run = small_run(tmp_path, model=Rounded(), attacks=attacks, preflight=False)
    (worst,) = run.summary["worst_case"]
    along, free = run.summary["attacks"]
    broken = [{r.image for r in run.records_of(place) if r.attacked and r.verified < 1} for place in (0, 1)]
    assert worst["masked"] == len(broken[1] - broken[0]) > 5 and along["zero_gradients"] > 5
    assert "zero_gradients" not in free
    page = render(subjects.load([run.folder]))
    for text in (run.table(), page):
        assert f"got only zero gradients on {along['zero_gradients']} of" in text and "--surrogate" in text
        assert f"{worst['masked']} of 40 images fall to an attack that uses no gradients" in text
    plain = small_run(None, attacks=["ddn(steps=5)"])
    assert plain.summary["worst_case"][0]["masked"] == 0 and "Gradients" not in plain.table()


def test_what_only_the_last_stage_of_the_standard_evaluation_breaks_is_said(tmp_path):
    text = "almakit:standard-v1(distance=linf, epsilon=0.12)"
    run = small_run(tmp_path, model=Rounded(), attacks=[text], preflight=False, limit=8)
    (part,) = run.summary["attacks"]
    alone = [record for record in run.records if record.reason == BY_SCORES_ALONE]
    assert part["masked"] == len(alone) > 0 and all(record.status == "success" for record in alone)
    sentence = f"{len(alone)} of 8 images fall to an attack that uses no gradients"
    assert sentence in run.table() and sentence in render(subjects.load([run.folder]))


def test_more_success_with_a_surrogate_is_said(tmp_path):
    settings = {"attacks": ["pgd(distance=linf, epsilon=0.3, steps=5)"], "preflight": False}
    own = small_run(tmp_path / "own", model=Rounded(), **settings)
    lent = small_run(tmp_path / "lent", model=Rounded(), surrogate=Net(), **settings)
    (subject,) = subjects.load([own.folder, lent.folder])
    broken = [{r.image for r in run.records if r.attacked and r.verified < 1} for run in (own, lent)]
    (worst,) = subject.worst_cases
    assert worst["masked"] == len(broken[1] - broken[0]) > 5 and own.summary["worst_case"][0]["masked"] == 0
    assert f"{worst['masked']} of 40 images fall to an attack that uses no gradients, or those of a" in render(
        [subject]
    )
