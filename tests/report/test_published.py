"""The paper's figures are found for the same model, distance, attack and budget, and for nothing else."""

from __future__ import annotations

from dataclasses import replace

from report.made_runs import MadeAttack

from almakit.report.published import Published, published, read, tables

TABLE = read("""dataset,model,distance,attack,budget,asr_percent,median_distance,forwards,backwards
mnist,smallcnn,l2,alma,100,99.72,2.38,100,100
mnist,smallcnn,l2,cw,9x1000,40.19,--,8643,8643
mnist,smallcnn,l2,apgd-t-dlr+search,,99.98,2.52,12271,12253
cifar10,wrn-28-10,ciede2000,alma,100,100,1.09,100,100
""")


def test_the_same_cell_is_found() -> None:
    assert published("mnist/smallcnn", "mnist", MadeAttack().info(0), TABLE) == Published(0.9972, 2.38, 100, 100)
    wagner = published(
        "mnist/smallcnn", "mnist", MadeAttack("cw", "C&W", steps=1000, settings={"searches": 9}).info(0), TABLE
    )
    assert wagner is not None and wagner.median is None and wagner.success == 0.4019
    assert published("mnist/smallcnn", "mnist", MadeAttack("apgd-t", "APGD-T").info(0), TABLE) is not None


def test_other_cells_are_not() -> None:
    info = MadeAttack().info(0)
    assert published("mnist/smallcnn", "cifar10", info, TABLE) is None
    assert published("mnist/smallcnn-ddn", "mnist", info, TABLE) is None
    assert published("my-model.py:load", "mnist", info, TABLE) is None
    assert published("mnist/smallcnn", "mnist", MadeAttack(steps=99).info(0), TABLE) is None
    assert published("mnist/smallcnn", "mnist", MadeAttack(settings={"alpha": 0.9}).info(0), TABLE) is None
    assert published("mnist/smallcnn", "mnist", replace(info, targeted=True), TABLE) is None


def test_only_the_papers_own_ciede2000_is_compared_with_the_papers() -> None:
    for distance, found in (("ciede2000", False), ("ciede2000-paper", True)):
        row = published("cifar10/wrn-28-10", "cifar10", MadeAttack(distance=distance).info(0), TABLE)
        assert (row is not None) == found


def test_the_packages_tables_can_be_read_where_they_are() -> None:
    assert all(isinstance(row, Published) for row in tables().values())
