"""Targets: each rule gives every image a class that is not its label, whatever the batch; memory that runs out halves
the batch."""

from __future__ import annotations

import pytest
import torch
from runs.small_runs import Net, contents, images, small_run
from torch import Tensor

from almakit import attacks
from almakit.data.coerce import from_arrays
from almakit.errors import BadInput, BadModel
from almakit.runs.merge import merge

ONE = "alma(distance=l2, steps=20)"


@pytest.mark.parametrize("rule", ["random", "least-likely", "next"])
def test_a_rule_chooses_a_target_that_no_batch_changes(rule, tmp_path):
    run = small_run(tmp_path, attacks="alma(distance=l2, steps=40)", targets=rule, limit=20)
    x, labels = images(20)
    targets = [record.target for record in run.records]
    assert all(target != label for target, label in zip(targets, labels.tolist(), strict=True))
    logits = Net()(x)
    if rule == "next":
        assert targets == ((labels + 1) % 5).tolist()
    if rule == "least-likely":
        assert targets == logits.scatter(1, labels.unsqueeze(1), float("inf")).argmin(1).tolist()
    if rule == "random":
        assert len({(t - int(y)) % 5 for t, y in zip(targets, labels, strict=True)}) == 4
        other = small_run(None, attacks="ddn(steps=1)", targets="random", limit=20, seed=1)
        assert [record.target for record in other.records] != targets
    again = small_run(None, attacks="ddn(steps=1)", targets=rule, limit=20, batch_size=3)
    assert [record.target for record in again.records] == targets
    for record in run.records:
        if record.fooled:
            assert record.prediction == record.target
    assert sum(record.fooled for record in run.records) > 10


def test_all_targets_make_a_record_each_and_the_nearest_is_told(tmp_path):
    run = small_run(tmp_path / "a", attacks=ONE, targets="all", limit=10, batch_size=4)
    assert len(run.records) == 40
    assert {(r.image, r.target) for r in run.records} == {
        (i.index, c) for i in run.images for c in range(5) if c != i.label
    }
    part = run.summary["attacks"][0]
    nearest = [min(r.verified for r in run.records if r.image == i) for i in range(10)]
    assert part["best_target"]["median"]["value"] == pytest.approx(
        float(torch.tensor(nearest, dtype=torch.float64).quantile(0.5))
    )
    for number in range(2):
        small_run(tmp_path / "b", attacks=ONE, targets="all", limit=10, batch_size=4, shard=(number, 2))
    merge([tmp_path / "b"])
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_targets_from_the_data_a_file_and_python_agree(tmp_path):
    x, labels = images(12)
    targets = (labels + 2) % 5
    table = tmp_path / "targets.csv"
    table.write_text("id,target\n" + "".join(f"{i},{int(t)}\n" for i, t in enumerate(targets)))
    dataset = from_arrays("mine", x, labels, targets=targets)
    runs = [
        small_run(None, data=dataset, attacks=ONE, targets="data"),
        small_run(None, data=(x, labels), attacks=ONE, targets=targets),
        small_run(None, data=(x, labels), attacks=ONE, targets=str(table)),
    ]
    assert [r.target for r in runs[0].records] == targets.tolist()
    assert len({tuple(r.distance for r in run.records) for run in runs}) == 1


@pytest.mark.parametrize(
    ("targets", "words"),
    [
        ("data", "names no targets"),
        (torch.zeros(3).long(), "3 targets for 12 images"),
        ("missing.csv", "cannot be read"),
        (images(12)[1], "image 0 equals its label"),
    ],
)
def test_targets_that_do_not_fit_are_sentences(targets, words, tmp_path):
    with pytest.raises(BadInput, match=words):
        small_run(tmp_path, data=images(12), attacks=ONE, targets=targets)


class Hungry(Net):
    """Asks the allocator for more than any machine has when given more than three images."""

    def forward(self, x: Tensor) -> Tensor:
        if len(x) > self.appetite:
            torch.empty(len(x) * 2**45, dtype=torch.uint8)
        return super().forward(x)

    appetite = 3


def test_running_out_of_memory_halves_the_batch_and_a_resume_remembers(tmp_path):
    # In float64: float32 kernels round differently for other batch sizes, and the steps amplify that.
    x, labels = images(16)
    run = small_run(tmp_path, model=Hungry(), data=(x, labels), preflight=False, attacks=ONE, dtype="float64")
    assert {chunk.batch for chunk in run.chunks} == {2} and len(run.records) == 16
    pairs = attacks.get(ONE)(Net().double(), x.double(), labels, batch_size=2)
    assert [r.distance for r in run.records] == pytest.approx(pairs.distances.tolist(), rel=1e-6)
    auto = small_run(None, model=Hungry(), preflight=False, attacks=ONE, batch_size="auto", limit=4)
    assert auto.spec.batch_size == 2, "four images at once were too much"


def test_memory_that_is_short_even_for_one_image_is_a_sentence(tmp_path):
    model = Hungry()
    model.appetite = 0
    with pytest.raises(BadModel, match="even with one image"):
        small_run(tmp_path, model=model, preflight=False)
