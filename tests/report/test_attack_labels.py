"""Names for people."""

from __future__ import annotations

from report.made_runs import MadeAttack

from almakit.report.labels import budget, distance_name, distance_order, extras, label_attacks


def test_labels_name_method_and_budget() -> None:
    made = [
        MadeAttack(),
        MadeAttack(steps=1000),
        MadeAttack(steps=1000, settings={"alpha": 0.9}),
        MadeAttack("cw", "C&W", settings={"searches": 9}),
        MadeAttack("cw", "C&W", steps=10, settings={"searches": 9, "box": "(0, 1)"}),
    ]
    infos = [one.info(place) for place, one in enumerate(made)]
    labels = label_attacks(infos)
    assert [label.label for label in labels] == [
        "ALMA 100",
        "ALMA 1000",
        "ALMA 1000 (alpha=0.9)",
        "C&W 9×100",
        "C&W 9×10 (box=(0, 1))",
    ]
    assert [label.dash for label in labels] == ["dotted", "solid", "solid", "solid", "solid"]
    assert labels[0].method == labels[1].method != labels[2].method
    assert extras(infos[2]) == "alpha=0.9" and budget(infos[3]) == ("9×100", 900.0)


def test_three_budgets_and_two_distances() -> None:
    made = [MadeAttack(steps=steps, distance=distance) for distance in ("l1", "l2") for steps in (10, 100, 1000)]
    labels = label_attacks([one.info(place) for place, one in enumerate(made)])
    assert [label.dash for label in labels] == ["dotted", "dashed", "solid"] * 2
    assert len({label.method for label in labels}) == 1


def test_distances_in_the_papers_order() -> None:
    assert distance_order(["zeta", "l2", "ssim", "l1", "my<b>"]) == ["l1", "l2", "ssim", "my<b>", "zeta"]
    assert distance_name("l2").label == "ℓ2" and distance_name("my_one").tex == r"my\_one"
