"""The box: projections land in it exactly, the grid is the one image files decode to, and masked pixels never move."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from almakit import Box, attack
from almakit.errors import BadInput

boxes = st.tuples(st.floats(-3, 3), st.floats(0.01, 5), st.sampled_from([None, 1, 4, 8, 16]))


@given(boxes, st.integers(0, 10_000), st.sampled_from([torch.float32, torch.float64]))
@example((0.1, 0.6, 8), 0, torch.float32)
@settings(max_examples=200, deadline=None)
def test_projections_lie_in_the_box_and_stay_where_they_are(
    spec: tuple[float, float, int | None], seed: int, dtype: torch.dtype
) -> None:
    lo, width, bits = spec
    box = Box(lo, lo + width, bits)
    generator = torch.Generator().manual_seed(seed)
    candidate = (lo + width * (3 * torch.rand(2, 3, 4, generator=generator, dtype=torch.float64) - 1)).to(dtype)
    x = (lo + width * torch.rand(2, 3, 4, generator=generator, dtype=torch.float64)).to(dtype).clamp(lo, lo + width)
    point = box.project(candidate, x)
    low, high = torch.tensor([box.lo, box.hi], dtype=dtype)
    assert bool((point >= low).all()) and bool((point <= high).all())
    assert torch.equal(box.project(point, x), point) and bool(box.contains(point, x).all())
    step = width if bits is None else width / (2**bits - 1)
    limit = 0.0 if bits is None else 0.5001 * step + 1e-5
    assert bool(((point - candidate.clamp(low, high)).abs() <= limit).all())


def test_eight_bits_give_the_floats_that_files_decode_to() -> None:
    stored = np.arange(256, dtype=np.uint8)
    decoded = torch.from_numpy(stored.astype(np.float32) / 255)
    near = decoded + (torch.rand(256, generator=torch.Generator().manual_seed(0)) - 0.5) * 0.9 / 255
    assert torch.equal(Box(bits=8).project(near[None], near[None])[0], decoded)
    assert torch.equal(
        Box(bits=8).project(decoded[None].double(), decoded[None].double())[0], torch.from_numpy(stored / 255.0)
    )


def test_the_iterate_keeps_what_is_below_a_level() -> None:
    box, x = Box(bits=8), torch.zeros(1, 3)
    small = torch.tensor([[0.001, 0.5, 1.5]])
    assert torch.equal(box.project_continuous(small, x), torch.tensor([[0.001, 0.5, 1.0]]))
    assert float(box.project(small, x)[0, 0]) == 0


@pytest.mark.parametrize("bits", [None, 8])
def test_masked_pixels_never_move(bits: int | None) -> None:
    x = torch.rand(4, 2, 3, generator=torch.Generator().manual_seed(0))
    one = torch.rand(2, 3, generator=torch.Generator().manual_seed(1)) < 0.5
    each = torch.rand(4, 2, 3, generator=torch.Generator().manual_seed(2)) < 0.5
    for mask in (one, each):
        box = Box(bits=bits, mask=mask)
        point = box.project(torch.full_like(x, 0.7), x)
        frozen = ~mask.expand(x.shape)
        assert torch.equal(point[frozen], x[frozen])
        assert torch.allclose(point[~frozen], torch.tensor(0.7), atol=0.002)
        assert torch.equal(box.free(torch.ones_like(x)), mask.expand(x.shape).float())
        outside = point.clone()
        outside[1][frozen[1].nonzero()[0].tolist()[0], frozen[1].nonzero()[0].tolist()[1]] = 0.123
        assert box.contains(outside, x).tolist() == [True, False, True, True]


def test_take_slices_a_mask_of_the_batch_and_keeps_one_of_an_image() -> None:
    each = torch.rand(4, 2, 3, generator=torch.Generator().manual_seed(2)) < 0.5
    rows, shape = torch.tensor([3, 1, 3]), torch.Size([2, 3])
    taken = Box(bits=4, mask=each).take(rows, shape)
    assert taken.mask is not None and torch.equal(taken.mask, each[rows]) and taken.bits == 4
    shared = Box(mask=each[0])
    assert shared.take(rows, shape) is shared and Box().take(rows, shape).mask is None


def test_contains_is_exact() -> None:
    x = torch.full((3, 2), 0.5)
    point = torch.tensor([[0.5, 1.0], [0.5, 1.0000001], [0.2, 128 / 255]])
    assert Box().contains(point, x).tolist() == [True, False, True]
    assert Box(bits=8).contains(point, x).tolist() == [False, False, True]


@given(st.integers(0, 10_000), st.sampled_from([torch.float32, torch.float64]))
@settings(max_examples=60, deadline=None)
def test_a_box_and_a_grid_per_feature(seed: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(seed)
    lo = (4 * torch.rand(6, generator=generator, dtype=torch.float64) - 2).to(dtype)
    hi = lo + 3 * torch.rand(6, generator=generator, dtype=torch.float64).to(dtype)
    hi[5] = lo[5]
    step = torch.tensor([0, 0.1, 1 / 3, 0.25, 0, 0.5], dtype=torch.float64)
    x = (lo + (hi - lo) * torch.rand(4, 6, generator=generator, dtype=torch.float64)).to(dtype).clamp(lo, hi)
    box = Box(lo, hi, step=step).around(x)
    x = box.project(x, x)
    assert bool(box.contains(x, x).all()) and box.mask is not None and box.mask.tolist() == [True] * 5 + [False]
    candidate = (lo - 1 + 5 * torch.rand(4, 6, generator=generator, dtype=torch.float64)).to(dtype)
    point = box.project(candidate, x)
    assert bool((point >= lo).all()) and bool((point <= hi).all())
    assert bool(box.contains(point, x).all()) and torch.equal(box.project(point, x), point)
    assert torch.equal(point[:, 5], x[:, 5])
    numbers = ((point.double() - lo.double()) / step)[:, 1:4]
    assert torch.allclose(numbers, numbers.round(), rtol=0, atol=1.1e-3)  # an original off its grid by less is on it
    # nearest: never more than half a step from where the box lets the candidate be, but at the upper end
    last = lo.double() + ((hi - lo).double() / step + 1e-3).floor() * step
    near = torch.minimum(candidate.clamp(lo, hi).double(), last)[:, 1:4]
    assert bool(((point[:, 1:4].double() - near).abs() <= 0.502 * step[1:4]).all())


def test_whole_numbers_in_other_units_are_the_nearest_floats() -> None:
    """37 of 0 to 100 scaled to [0, 1] is the float nearest to 0.37, and 0.37 times 100 rounds to 37."""
    x = (torch.arange(101, dtype=torch.float64) / 100).float()[None]
    box = Box(step=0.01).around(x)
    noise = 0.004 * (torch.rand(x.shape, generator=torch.Generator().manual_seed(0)) - 0.5)
    assert torch.equal(box.project((x + noise).clamp(0, 1), x), x)


def test_what_does_not_fit_the_inputs_is_a_sentence() -> None:
    x, labels = torch.rand(3, 4, generator=torch.Generator().manual_seed(0)), torch.zeros(3, dtype=torch.long)
    for box, sentence in (
        (Box(torch.zeros(5), torch.ones(5)), r"the box's lo has shape \(5,\); for inputs of shape \(4,\)"),
        (Box(step=torch.ones(3)), r"the box's step has shape \(3,\)"),
        (Box(torch.zeros(3, 4), torch.ones(4)), "bounds that differ from input to input need a call each"),
        (Box(torch.zeros(4), torch.tensor([1, 1, 0.0, 1])), "value 2 of image 0 is .* outside its box"),
        (Box(step=torch.tensor([0, 0, 1.0, 0])), "value 2 of image 0 is .* not on its grid of steps of 1"),
        (Box(torch.zeros(4), torch.ones(4), mask=torch.ones(5, dtype=torch.bool)), r"the mask has shape \(5,\)"),
    ):
        with pytest.raises(BadInput, match=sentence):
            attack(lambda images: images[:, :2], x, labels, box=box)
