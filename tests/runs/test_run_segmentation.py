"""Runs on data with a class for every pixel: records, verdict, verify, resume, report; the attacks made for such
models."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from laws.test_segmentation import Pixelwise
from runs.forgery import forge
from torch import Tensor

import almakit
from almakit import attacks
from almakit.attacks.asma import mean_iou as overlap_of
from almakit.attacks.pixelwise import Pixels
from almakit.attacks.sea import LOSSES, pixel_loss
from almakit.data.dataset import IGNORED
from almakit.errors import BadInput
from almakit.runs.model import RunSpec, open_model
from almakit.runs.store.records import mean_iou, wrong_pixels
from almakit.runs.verdict import tallies
from almakit.runs.verify import verify_run

PROX = "alma-prox(steps=40, rate=0.01, share=0.9)"


def scene(batch: int = 5) -> tuple[Pixelwise, Tensor, Tensor]:
    model = Pixelwise()
    x = (torch.rand(batch, 3, 6, 6, generator=torch.Generator().manual_seed(1)) * 255).round() / 255
    with torch.no_grad():
        maps = model(x).argmax(1)
    maps[:, 0] = IGNORED  # borders that count for nothing
    maps[:, 1, 0] = (maps[:, 1, 0] + 1) % 4  # and a pixel that is wrong from the start
    return model, x, maps


def run(out: Path, model: object, **settings: object) -> almakit.Run:
    _, x, maps = scene()
    return almakit.evaluate(
        model, (x, maps), [PROX], goal="pixels(share=0.9)", batch_size=2, out=out, preflight=False, **settings
    )  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> almakit.Run:
    return run(tmp_path_factory.mktemp("run"), scene()[0])


def test_records_count_the_pixels_and_the_verdict_holds_the_share(done: almakit.Run) -> None:
    model, _, maps = scene()
    counted = maps != IGNORED
    points = torch.from_numpy(done.adversarials())
    for record in done.records:
        assert record.fooled and record.pixels is not None
        with torch.no_grad():
            now = model(points[record.image][None]).argmax(1)[0]
        wrong = (now != maps[record.image])[counted[record.image]].double().mean()
        assert wrong_pixels(record.pixels) == pytest.approx(float(wrong)) and wrong >= 0.9
        assert sum(row[1] for row in record.pixels) == int(counted[record.image].sum())
    assert all(info.pixels is not None and wrong_pixels(info.pixels) == pytest.approx(1 / 30) for info in done.images)
    assert np.array_equal(done.maps([3, 1]), maps[[3, 1]].numpy())
    summary = done.summary
    assert summary["pixels"]["accuracy"]["value"] == pytest.approx(29 / 30)
    assert summary["attacks"][0]["pixels"]["wrong"]["value"] >= 0.9
    assert "pixels(share=0.9)" in summary["run"]["threat_model"] and "mIoU" in done.table()


def test_verify_judges_again_and_notices_other_counts(done: almakit.Run, tmp_path: Path) -> None:
    subject = open_model(scene()[0], RunSpec(model="python:", data="python:"))
    assert verify_run(done, subject).good
    copy = Path(shutil.copytree(done.folder, tmp_path / "copy"))
    forge(copy, lambda db: db.execute("UPDATE results SET pixels = '[[0, 30, 30, 30]]' WHERE image = 2"))
    assert not verify_run(almakit.Run(copy), subject).good


class Breaks(Pixelwise):
    """Fails once, after so many calls: the middle of a run."""

    calls = 70

    def forward(self, x: Tensor) -> Tensor:
        Breaks.calls -= 1
        if Breaks.calls == 0:
            raise KeyboardInterrupt
        return super().forward(x)


def test_a_run_that_was_stopped_goes_on_to_the_same_records(done: almakit.Run, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, Breaks())
    assert 0 < len(almakit.Run(tmp_path).records) < len(done.records)
    resumed = run(tmp_path, Breaks())
    found, expected = ([replace(record, seconds=0) for record in one.records] for one in (resumed, done))
    assert found == expected
    assert resumed.images == done.images


def test_the_page_says_how_many_pixels_are_wrong(done: almakit.Run, tmp_path: Path) -> None:
    page = done.report(tmp_path, figures=False).read_text()
    (item,) = json.loads(page.split('id="report-data">')[1].split("</script>")[0])["gallery"][:1]
    assert 0 < item["wrong"] < item["results"][0]["wrong"] <= 1
    table = page.split("Labelled pixels</caption>")[1].split("</table>")[0]
    assert f">{100 * done.summary['pixels']['mean_iou']:.1f}<" in table
    assert "Class by class" not in page, "an image of many classes is in none"


def test_other_goals_and_targets_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"pixels\(share=0.99\)"):
        almakit.evaluate(scene()[0], scene()[1:], [PROX], goal="pixels(part=3)", out=tmp_path)
    with pytest.raises(BadInput, match="every pixel a class"):
        almakit.evaluate(scene()[0], scene()[1:], [PROX], targets="next", out=tmp_path)


TEXTS = ["dag(steps=60, rate=0.02)", "asma(steps=400, tau=0.01, beta=0.01)", "sea(epsilon=0.6, steps=20)"]


@pytest.mark.parametrize("text", [*TEXTS, "sea(epsilon=0.7, steps=60, losses=js)"])
@pytest.mark.parametrize("targeted", [False, True])
def test_attacks_on_pixels_reach_share_and_radius(text: str, targeted: bool) -> None:
    model, x, maps = scene(3)
    targets = model(x).argsort(1, descending=True)[:, 1] if targeted else None
    # ASMA raises the target's logit and lowers none: where another class rises with it, it stops short.
    share = 0.3 if targeted and text.startswith("asma") else 0.9
    result = attacks.get(text)(model, x, maps, targets, almakit.goals.pixels(share=share))
    assert result.success_rate == 1
    now = model(result.adversarials).argmax(1)
    reached = now == targets if targeted else now != maps
    assert bool(((reached & (maps != IGNORED)).flatten(1).sum(1) >= share * 30).all())
    if "epsilon" in text:
        assert float(result.distances.max()) <= 0.7 * (1 + 1e-6)


def test_the_losses_of_sea_are_their_formulas() -> None:
    """Two pixels, three classes, one right and one wrong; Jensen-Shannon against its definition."""
    logits = torch.tensor([[[2.0, 0.0], [1.0, 3.0], [0.0, 0.5]]], dtype=torch.float64)
    pixels = Pixels(logits, torch.tensor([[0, 0]]), torch.tensor([[True, True]]), False)
    p = logits.softmax(1)
    ce = -p[0, 0].log()
    assert pixel_loss("mask-ce", pixels, 0.3).item() == pytest.approx(ce[0].item())
    assert pixel_loss("balanced-ce", pixels, 0.3).item() == pytest.approx((0.85 * ce[0] + 0.15 * ce[1]).item())
    one = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    sphere = (logits[0, :, 0] / logits[0, :, 0].norm() - one).square().sum() / 2
    assert pixel_loss("mask-sphere", pixels, 0.3).item() == pytest.approx(sphere.item())
    divergence = 0.0
    for column in range(2):
        q, m = p[0, :, column], (p[0, :, column] + one) / 2
        divergence += float(((q * (q / m).log()).sum() + (1 / m[0]).log()) / 2)
    assert pixel_loss("js", pixels, 0.3).item() == pytest.approx(divergence)
    assert set(LOSSES) == {"mask-ce", "balanced-ce", "js", "mask-sphere"}
    assert overlap_of(pixels).item() == pytest.approx(0.5)


def test_counts_of_pixels_by_hand() -> None:
    truth, guess = torch.tensor([[[0, 0, 1], [1, IGNORED, 2]]]), torch.tensor([[[0, 1, 1], [1, 2, 0]]])
    (tally,) = tallies(guess, truth, 3)
    assert tally == ((0, 2, 2, 1), (1, 2, 3, 2), (2, 1, 0, 0))
    assert wrong_pixels(tally) == pytest.approx(2 / 5) and mean_iou([tally]) == pytest.approx((1 / 3 + 2 / 3 + 0) / 3)
