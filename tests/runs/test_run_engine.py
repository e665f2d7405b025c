"""The engine: what is recorded is what the attack found, a repeat does nothing, and neither shards nor resumes nor
batches change it."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from runs.small_runs import ATTACKS, Failing, Net, contents, images, small_run

from almakit import Run, evaluate
from almakit.attacks import get
from almakit.errors import AlmakitError
from almakit.runs.failures import Refused, SpecChanged, StoreError
from almakit.runs.merge import merge
from almakit.runs.model import open_model
from almakit.runs.store import files
from almakit.runs.verify import verify_run


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return small_run(tmp_path_factory.mktemp("whole") / "run")


def test_records_are_what_the_attack_found(whole):
    x, labels = images()
    for index, text in enumerate(ATTACKS):
        records = whole.records_of(index)
        parts = [get(text)(Net(), x[i : i + 8], labels[i : i + 8], batch_size=8, check=False) for i in range(0, 40, 8)]
        assert [r.distance for r in records] == torch.cat([p.distances for p in parts]).double().tolist()
        assert [r.forwards for r in records] == torch.cat([p.forwards for p in parts]).tolist()
        assert [r.backwards for r in records] == torch.cat([p.backwards for p in parts]).tolist()
        stored = [r for r in records if r.slot is not None]
        found = torch.cat([p.adversarials for p in parts])[[r.image for r in stored]]
        assert np.array_equal(whole.adversarials(stored), found.numpy())
        assert all(r.fooled for r in stored) and len(stored) >= 35
    assert np.array_equal(whole.originals(), x.numpy())
    assert [info.label for info in whole.images] == labels.tolist()


def test_an_already_wrong_image_counts_zero_and_stores_nothing(whole):
    record = whole.records_of(0)[3]
    assert (record.status, record.distance, record.slot) == ("already-wrong", 0.0, None)
    assert record.fooled and record.verified == 0
    assert whole.images[3].prediction != whole.images[3].label


def test_the_verdict_measures_the_stored_image(whole):
    x, _ = images()
    stored = [record for record in whole.records_of(1) if record.slot is not None]
    for record, y in zip(stored, whole.adversarials(stored), strict=True):
        delta = np.abs(y.astype(np.float64) - x[record.image].numpy().astype(np.float64))
        assert record.measures["l1"] == pytest.approx(delta.sum(), rel=1e-12)
        assert record.measures["l2"] == pytest.approx(np.sqrt((delta**2).sum()), rel=1e-12)
        assert record.measures["linf"] == delta.max() and record.measures["l0"] == (delta > 0).sum()
        assert record.measured == record.measures["l1"] == pytest.approx(record.distance, rel=1e-5)
        rounded = np.abs(np.rint(y * 255) / 255 - x[record.image].numpy())
        assert record.measured_8bit == pytest.approx(rounded.sum(), rel=1e-4)


def test_a_second_run_only_asks_whether_it_is_the_same_model(whole):
    model = Net()
    again = small_run(whole.folder, model=model)
    assert model.passes == 2, "16 stored images, 8 at a time"
    assert len(again.records) == 80


def cable_pulled(now):
    return RuntimeError("the cable was pulled") if now else None


def test_a_run_that_breaks_off_goes_on_where_it_was(whole, tmp_path):
    for limit in (2, 6, 1, 0, 3):
        with pytest.raises(RuntimeError, match="cable"):
            small_run(tmp_path, engine=Failing(lambda _, count, at=limit: cable_pulled(count == at)))
    run = small_run(tmp_path)
    assert contents(tmp_path) == contents(whole.folder)
    assert [session["outcome"] for session in run.sessions][-1] == "done"
    assert "cable" in run.sessions[0]["outcome"]


def test_two_shards_joined_are_one_run_bit_for_bit(whole, tmp_path):
    for number in (1, 0):
        small_run(tmp_path / "same", shard=(number, 2))
        small_run(tmp_path / f"apart{number}", shard=(number, 2))
    with pytest.raises(StoreError, match="almakit merge"):
        Run(tmp_path / "same")
    assert merge([tmp_path / "same"]) == (tmp_path / "same", 0)
    assert contents(tmp_path / "same") == contents(whole.folder)
    merge([tmp_path / "apart0", tmp_path / "apart1"], tmp_path / "joined")
    assert contents(tmp_path / "joined") == contents(whole.folder)
    for row in Run(tmp_path / "joined").chunks:
        assert files.fault_of(tmp_path / "joined", row) is None
    merge([tmp_path / "same"])  # joining again changes nothing
    assert contents(tmp_path / "same") == contents(whole.folder)
    model = Net()
    small_run(tmp_path / "joined", model=model)
    assert model.passes == 2, "nothing but the question whether it is the same model"


def test_a_missing_shard_is_said_and_can_be_computed_afterwards(whole, tmp_path):
    small_run(tmp_path, shard=(0, 2))
    assert merge([tmp_path])[1] == 2 * 3
    assert not Run(tmp_path).summary["complete"]
    small_run(tmp_path)
    assert contents(tmp_path) == contents(whole.folder)


def test_shards_of_different_runs_are_not_joined(tmp_path):
    small_run(tmp_path / "a", shard=(0, 2))
    small_run(tmp_path / "b", shard=(1, 2), seed=1)
    with pytest.raises(SpecChanged, match="seed"):
        merge([tmp_path / "a", tmp_path / "b"], tmp_path / "c")
    with pytest.raises(StoreError, match="--out"):
        merge([tmp_path / "a", tmp_path / "b"])


def assert_alike(run: Run, whole: Run) -> None:
    """Same status, medians within 0.1 %, 99 % of the distances within 1 %."""
    for info in whole.attacks:
        here, there = run.records_of(info.index), whole.records_of(info.index)
        assert [r.status for r in here] == [r.status for r in there]
        a, b = np.array([r.verified for r in here]), np.array([r.verified for r in there])
        assert np.median(a) == pytest.approx(np.median(b), rel=1e-3)
        assert np.mean(np.abs(a - b) <= 0.01 * b) >= 0.99


REAL = {"model": "mnist/smallcnn-tiny", "data": "mnist-demo", "attacks": ["alma(distance=l2, steps=40)"], "limit": 8}


def test_other_batch_sizes_change_nothing_that_matters():
    """In float64: forty steps amplify what float32 kernels round differently for other batch sizes."""
    whole = small_run(None, batch_size=8, dtype="float64", **REAL)
    for size in (1, 7):
        assert_alike(small_run(None, batch_size=size, dtype="float64", **REAL), whole)


def test_auto_records_the_size_it_chose_and_a_resume_keeps_it(tmp_path):
    run, model = small_run(tmp_path, batch_size="auto"), Net()
    size = run.spec.batch_size
    assert isinstance(size, int) and 1 <= size <= 40
    assert small_run(tmp_path, model=model, batch_size="auto").spec.batch_size == size
    assert model.passes == -(-16 // size)
    assert run.meta["spec_sha256"] == run.spec.sha256


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": 5}, "seed is 5 now and was 0"),
        ({"limit": 10}, "limit is 10 now and was not given"),
        ({"batch_size": 4}, "batch_size is 4 now and was 8"),
        ({"attacks": ["alma(distance=l2, steps=13)"]}, "attacks is"),
        ({"bits": 8}, "bits is 8"),
    ],
)
def test_a_changed_spec_is_refused_and_the_field_named(whole, change, words):
    with pytest.raises(SpecChanged, match=words):
        small_run(whole.folder, **change)


def test_changed_weights_and_data_are_refused(whole):
    other = Net()
    other.second.bias.data[0] += 1e-6
    with pytest.raises(SpecChanged, match="weights"):
        small_run(whole.folder, model=other)
    x, labels = images()
    x[5, 0, 0, 0] = 0.5
    with pytest.raises(SpecChanged, match="first that differs is 5"):
        small_run(whole.folder, data=(x, labels))


def test_preflight_refuses_and_can_be_allowed(tmp_path):
    x, labels = images()
    wrong = (labels + 1) % 5
    with pytest.raises(Refused, match="--allow wrong-labels-or-range"):
        small_run(tmp_path, data=(x, wrong))
    assert not list(tmp_path.iterdir())
    run = small_run(tmp_path, data=(x, wrong), allow=["wrong-labels-or-range"])
    assert "wrong-labels-or-range" in [finding["name"] for finding in run.findings]
    with pytest.raises(AlmakitError, match="no finding called"):
        small_run(tmp_path / "b", allow=["everything"])


def test_the_users_model_leaves_as_it_came(tmp_path):
    model = Net()
    model.train()
    model.first.eval()
    small_run(tmp_path, model=model)
    assert model.training and not model.first.training and all(p.requires_grad for p in model.parameters())


def test_a_function_is_a_model_and_a_temporary_folder_goes_with_the_run():
    net = Net()
    run = evaluate(lambda x: net(x), images(8), ATTACKS[0], batch_size=8)
    folder = run.folder
    assert folder.is_dir() and len(run.records) == 8
    assert "ALMA 12" in run.table()
    del run
    assert not folder.exists()


def test_traces_tell_the_course_of_the_first_attackable_image(whole):
    trace = whole.traces[0]
    assert (trace.attack, trace.image) == (0, 0)
    assert trace.values["step"] == list(range(11)) and len(trace.values["mu"]) == len(trace.values["distance"]) == 11
    run = small_run(None, traces=0)
    assert run.traces == []
    assert [record.distance for record in run.records] == [record.distance for record in whole.records]


def test_bits_keeps_every_success_after_rounding(tmp_path):
    x = (images()[0] * 255).round() / 255
    run = small_run(tmp_path, data=(x, Net()(x).argmax(1)), bits=8)
    stored = [record for record in run.records if record.slot is not None]
    assert stored and all(record.fooled_8bit and record.measured_8bit == record.measured for record in stored)
    chunk = next(row for row in run.chunks if row.file == stored[0].file)
    assert files.read(tmp_path, chunk)["images"].dtype == np.uint8


def test_double_precision_is_stored_and_judged_in_double_precision(tmp_path):
    run = small_run(tmp_path, dtype="float64")
    stored = [record for record in run.records if record.slot is not None]
    assert run.adversarials(stored[:1]).dtype == np.float64
    assert all(record.fooled for record in stored)
    for found in verify_run(run, open_model(Net(), run.spec)):
        assert found.confirmed == found.claimed and not found.changed and not found.misreported


def test_autocast_is_judged_in_full_precision(tmp_path):
    run = small_run(tmp_path, dtype="bfloat16")
    assert sum(record.fooled for record in run.records) >= 70
    net, stored = Net(), [record for record in run.records if record.fooled and record.slot is not None]
    predictions = net(torch.from_numpy(run.adversarials(stored))).argmax(1).tolist()
    assert all(p != run.images[r.image].label and p == r.prediction for p, r in zip(predictions, stored, strict=True))


def test_a_budget_holds(tmp_path):
    run = small_run(tmp_path, budget=5)
    assert max(record.forwards for record in run.records) <= 5 and max(record.backwards for record in run.records) <= 5


def test_summary_json_has_neither_nan_nor_infinity(tmp_path):
    run = small_run(tmp_path, budget=1)  # nothing can be found
    text = (tmp_path / "summary.json").read_text()

    def refuse(constant):
        raise AssertionError(constant)

    summary = json.loads(text, parse_constant=refuse)
    assert summary["attacks"][0]["median_all"]["value"] is None and summary["attacks"][0]["status"]["failed"] == 39
    assert summary == json.loads(json.dumps(run.summary))


def test_a_verdict_that_runs_out_of_memory_goes_on_with_fewer_images(whole, tmp_path):
    """Batches of the attack fit; the verdict's larger one does not, once."""

    class Short(Net):
        refused = 0

        def forward(self, x):
            if not torch.is_grad_enabled() and len(x) == 9 and not self.refused:
                self.refused = 1
                raise torch.OutOfMemoryError("out of memory")
            return super().forward(x)

    model = Short()
    run = small_run(tmp_path, model=model, data=images(16))
    assert model.refused == 1
    assert [(r.status, r.distance, r.fooled) for r in run.records] == [
        (r.status, r.distance, r.fooled) for r in whole.records if r.image < 16
    ]
