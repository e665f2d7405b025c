"""Issue 18, items 9 and 10: what the report says of every target, of refuted claims, and beyond the radius of an attack."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from eval.small_runs import Net, images, small_run

from almakit.core import Result
from almakit.eval.folder import Run
from almakit.report import blocks, figures, formats, html, payload, subjects
from almakit.report.numbers import reach_of, robust
from almakit.report.trust import checks, count

ALL = {"attacks": ["alma(distance=l2, steps=12)"], "targets": "all", "batch_size": 8}


@pytest.fixture(scope="module")
def every_target(tmp_path_factory):
    return small_run(tmp_path_factory.mktemp("all") / "run", **ALL)


def test_item_9_with_all_targets_every_record_counts(every_target):
    (subject,) = subjects.load([every_target.folder])
    claims = sum(record.status == "success" for record in every_target.records)
    counts = count(subject)
    assert counts.records == 160 and counts.claims == claims > 100, "four targets for each of 40 images"
    (verdict,) = (check for check in checks(subject) if check.what == "Verdict")
    assert verdict.sentence.startswith(f"All {claims} claimed successes are confirmed")
    page = html.render([subject])
    assert f"{html.shown_count(claims)}<small> / {html.shown_count(claims)}</small>" in page


def test_item_9_medians_and_curves_say_what_they_are_over(every_target):
    subject = subjects.load([every_target.folder])
    (part,) = every_target.summary["attacks"]
    assert part["over"] == "records" and part["records"] == 160 and "best_target" in part
    assert "over all records, one for each image and target" in every_target.table()
    assert "records (each image once for every target" in html.render(subject) and "each image by its nearest target" in html.render(subject)
    table = blocks.blocks(subject)
    assert "over all records" in formats.markdown(table) and "over all records" in formats.latex(table)
    plain = small_run(None)
    assert {part["over"] for part in plain.summary["attacks"]} == {"images"} and "over all images" in plain.table()


class Flips(Net):
    """Wrong on five clean images as long as it is asked with gradients, as an attack asks; right when the verdict asks."""

    def forward(self, x):
        logits = super().forward(x)
        if torch.is_grad_enabled() and len(x) == 8:
            logits = logits.clone()
            logits[:1] = logits[:1].roll(1, 1)
        return logits


def test_item_9_refuted_already_wrong_images_are_counted_apart(tmp_path):
    run = small_run(tmp_path, model=Flips(), attacks=["alma(distance=l2, steps=2)"], preflight=False)
    (subject,) = subjects.load([run.folder])
    counts = count(subject)
    never = [record for record in run.records if record.status == "already-wrong" and record.refuted]
    assert counts.never_wrong == len(never) >= 4
    assert 0 <= counts.refuted <= counts.claims and counts.claims == sum(record.status == "success" for record in run.records)
    (said,) = (check for check in checks(subject) if check.what == "Wrong from the start")
    assert said.level == "bad" and said.sentence.startswith(f"{len(never)} results")
    page = html.render([subject])
    assert "-1<small>" not in page and "<dd>-" not in page


# Item 10.


@pytest.fixture(scope="module")
def fixed(tmp_path_factory):
    return small_run(tmp_path_factory.mktemp("fixed") / "run", attacks=["apgd(distance=l2, steps=10, epsilon=0.2)", "alma(distance=l2, steps=12)"])


def test_item_10_robust_accuracy_stops_at_epsilon(fixed):
    near, anywhere = fixed.summary["attacks"]
    assert near["robust_up_to"] == 0.2 and anywhere["robust_up_to"] is None
    assert max(row["epsilon"] for row in near["robust_accuracy"]) == 0.2 < max(row["epsilon"] for row in anywhere["robust_accuracy"])
    at = {row["epsilon"]: row["value"] for row in near["robust_accuracy"]}
    assert at[0.2] == pytest.approx(1 - near["success_rate"]["value"]), "at its own radius every success counts"
    again = Run(fixed.folder, epsilons=[0.1, 1.7])
    asked = [row["epsilon"] for row in again.summary["attacks"][0]["robust_accuracy"]]
    assert 0.1 in asked and 1.7 not in asked
    assert near["optimality"]["value"] is None and near["area"]["value"] is None, "they would need the curve beyond the radius"


def test_item_10_the_command_line_says_so(fixed):
    from almakit.cli.run import robustness

    said = robustness(Run(fixed.folder, epsilons=[0.1, 1.7]).summary, [0.1, 1.7])
    assert "apgd(epsilon=0.2, distance=l2, steps=10): looked within l2 0.2 only; robust accuracy within 1.7 is not known" in said
    assert "alma(distance=l2, steps=12): robust accuracy within l2 1.7 is" in said and said.count("within l2 0.1 is") == 2


def test_item_10_curves_end_there(fixed, tmp_path):
    (subject,) = subjects.load([fixed.folder])
    data = payload.build([subject], payload.Limits(images=1))
    assert [attack["reach"] for attack in data["attacks"]] == [0.2, None] and data["envelopes"][0]["reach"] is None
    alone = replace(subject, columns=subject.columns[:1])
    assert payload.build([alone], payload.Limits(images=1))["attacks"][0]["reach"] == 0.2
    drawn = []

    class Panel:
        transAxes = None

        def plot(self, xs, ys, **_):
            drawn.append(xs)
            return (None,)

        def __getattr__(self, name):
            return lambda *_, **__: None

    labels = subjects.labelled([subject])
    figures._panel(Panel(), subject, ("l2", ""), labels, [label.method for label in labels.values()], {}, True, True)
    assert drawn[0].max() == 0.2 < drawn[1].max()
    assert "ends there" in html.render([subject])


def test_item_10_the_arithmetic():
    found = np.array([0.0, 0.1, 0.2 * (1 + 1e-7), math.inf])
    assert robust(found, 0.1, 0.2).tolist() == [0, 0, 1, 1] and robust(found, 0.2, 0.2).tolist() == [0, 0, 0, 1]
    assert np.isnan(robust(found, 0.21, 0.2)).all() and robust(found, 5.0).tolist() == [0, 0, 0, 1]
    assert reach_of(True, {"epsilon": 0.2}, found) == math.inf and reach_of(False, {"epsilon": 0.2}, found) == 0.2
    nested = {"attacks": [{"attack": "apgd", "epsilon": 0.1}, {"attack": "pgd", "epsilon": 0.3}]}
    assert reach_of(False, nested, found) == 0.3 and reach_of(False, {}, found) == found[2]


def test_item_10_an_ensemble_of_fixed_radii_is_no_search_for_the_smallest():
    import almakit.attacks as attacks

    assert not attacks.get("ensemble(attacks=[apgd(distance=l2, epsilon=0.2), pgd(distance=l2, epsilon=0.3)])").minimal
    assert attacks.get("ensemble(attacks=[apgd(distance=l2, epsilon=0.2), alma(distance=l2)])").minimal
    assert isinstance(attacks.get("apgd(distance=l2, epsilon=0.2)")(Net(), *images(4)), Result)
