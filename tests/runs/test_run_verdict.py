"""The verdict: it shares nothing with the attacks, catches what is not so, and says the same again later."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from runs.small_runs import Net, images, small_run

import almakit.runs.verdict as verdict
from almakit.core import Attack, Problem, Result
from almakit.distances import get
from almakit.runs.failures import Corrupt
from almakit.runs.model import open_model
from almakit.runs.spec import RunSpec
from almakit.runs.store.files import pack, unpack
from almakit.runs.verify import damaged_files, verify_run

SUBJECT = open_model(Net(), RunSpec(model="m", data="d"))


def test_the_verdict_shares_no_code_with_the_attacks():
    tree = ast.parse(Path(verdict.__file__).read_text())
    modules = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert not [name for name in modules if name.startswith(("core", "attacks", "almakit.core", "almakit.attacks"))]


@dataclass(frozen=True)
class Liar(Attack):
    """Claims that every clean image fools the model, at no distance."""

    steps: int = 1

    def __call__(self, model, x, labels, targets=None, **settings):  # type: ignore[no-untyped-def,override]
        ones = torch.ones(len(x), dtype=torch.long)
        return Result(x.clone(), torch.zeros(len(x)), ones, ones, ones, [None] * len(x))

    def run(self, problem: Problem) -> None:
        raise AssertionError


def test_a_false_claim_is_refuted_and_does_not_count():
    run = small_run(None, attacks=Liar())
    assert sum(record.refuted for record in run.records) == 39
    part = run.summary["attacks"][0]
    assert part["refuted"] == 39 and part["success_rate"]["value"] == pytest.approx(1 / 40)
    assert part["median_all"]["value"] is None
    assert "39 of 40 claimed successes are refuted" in run.table()


def test_not_a_number_fools_nobody():
    def broken(x: torch.Tensor) -> torch.Tensor:
        logits = Net()(x)
        logits[:, 0] = float("nan")
        return logits

    x, labels = images(4)
    subject = open_model(broken, RunSpec(model="m", data="d"))
    found = verdict.judge(subject, x, x, ((labels + 1) % 5).tolist(), None, "l2", None, 4)
    assert [(j.prediction, j.fooled, j.fooled_8bit, j.top) for j in found] == [(-1, False, False, ())] * 4
    assert verdict.judge(subject, x, x, labels.tolist(), labels.tolist(), "l2", None, 4)[0].fooled is False


def test_the_batch_size_is_another_one():
    sizes = []

    def watching(x: torch.Tensor) -> torch.Tensor:
        sizes.append(len(x))
        return Net()(x)

    x, labels = images(8)
    verdict.judge(open_model(watching, RunSpec(model="m", data="d")), x, x, labels.tolist(), None, "l2", None, 8)
    assert sizes and 8 not in sizes and sum(sizes) == 16


def test_perceptual_distances_are_measured_on_colour_images():
    generator = torch.Generator().manual_seed(2)
    x = torch.rand(3, 3, 16, 16, generator=generator)
    y = (x + 0.1 * torch.randn(x.shape, generator=generator)).clamp(0, 1)
    subject = open_model(lambda images: images.flatten(1)[:, :4], RunSpec(model="m", data="d"))
    found = verdict.judge(subject, x, y, [0, 1, 2], None, "ciede2000", get("ciede2000"), 3)
    assert [j.measures["ssim"] for j in found] == pytest.approx(get("ssim")(x, y).tolist(), rel=1e-5)
    colours = [j.measured for j in found]
    assert colours == [j.measures["ciede2000"] for j in found]
    assert colours == pytest.approx(get("ciede2000")(x, y).tolist(), rel=1e-5)
    small = verdict.judge(subject, x[:, :, :8, :8], y[:, :, :8, :8], [0, 1, 2], None, "l2", None, 3)
    assert [j.measures["ssim"] for j in small] == [None] * 3


def test_a_run_is_verified_again_and_a_changed_model_is_noticed(tmp_path):
    run = small_run(tmp_path)
    for found in verify_run(run, SUBJECT):
        assert found.claimed == found.confirmed == 40 and found.changed == found.misreported == 0
        assert found.confirmed_8bit == sum(r.fooled_8bit for r in run.records_of(found.attack))
    other = Net()
    other.second.weight.data = other.second.weight.data.flip(0)
    assert all(found.changed > 0 for found in verify_run(run, open_model(other, run.spec)))


def test_a_damaged_file_is_noticed_before_it_is_judged(tmp_path):
    run = small_run(tmp_path)
    file = next(tmp_path.glob("adversarials/*/*.safetensors"))
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    assert len(damaged_files(run)) == 1 and "recorded contents" in damaged_files(run)[0]
    with pytest.raises(Corrupt, match="recomputes this chunk"):
        verify_run(run, SUBJECT)


def test_images_on_the_grid_are_packed_without_loss():
    levels = np.arange(256, dtype=np.uint8).reshape(1, 1, 16, 16)
    x = levels.astype(np.float32) / np.float32(255)
    assert pack(x).dtype == np.uint8 and np.array_equal(unpack(pack(x)), x)
    assert np.array_equal(unpack(pack(x)), (torch.from_numpy(levels).float() / 255).numpy())
    off = x.copy()
    off[0, 0, 3, 3] = np.nextafter(off[0, 0, 3, 3], np.float32(1))
    assert pack(off).dtype == np.float32 and np.array_equal(unpack(pack(off)), off)
