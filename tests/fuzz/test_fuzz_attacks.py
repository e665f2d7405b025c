"""All attacks with all distances (a third of them without ALMAKIT_FUZZ), models that misbehave, images of any shape: a
valid result or a sentence, in bounded time, never a wrong success."""

from __future__ import annotations

import math
import random
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from fuzz.amount import TIMES, examples, outcome
from fuzz.hostile import KINDS, Hostile, build, check, independent_rows
from hypothesis import given
from hypothesis import strategies as st

from almakit import registry
from almakit.core import Box
from almakit.errors import AlmakitError, BadInput

NORMS = ("l0", "l1", "l2", "linf")
SIDES = {"ms-ssim": 180, "lpips": 32, "lpips-learned": 32, "ssim": 16, "ciede2000": 6, "ciede2000-paper": 6}
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
shapes = st.one_of(
    st.tuples(st.integers(0, 3)),
    st.tuples(st.integers(0, 3), st.integers(1, 9)),
    st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 4)),
    st.tuples(st.integers(0, 3), st.sampled_from([1, 3]), st.integers(1, 5), st.integers(1, 5)),
    st.tuples(st.integers(1, 2), st.integers(1, 2), st.integers(1, 2), st.integers(1, 3), st.integers(1, 3)),
    st.just((1, 1)),
    st.just((1, 1, 1, 1)),
    st.just((2, 3, 0, 4)),
)


def attacked(
    name: str, distance: str, kind: str, shape: tuple[int, ...], classes: int, seed: int, **options: Any
) -> None:
    """One scenario from its drawn parts; returns where the outcome is a sentence or a valid result."""
    generator = torch.Generator().manual_seed(seed)
    dtype = options.pop("dtype", torch.float32)
    x = torch.rand(shape, generator=generator)
    x = x.to(dtype) if dtype.is_floating_point else (x * 255).to(dtype)
    model = Hostile(kind, math.prod(shape[1:]), classes, seed)
    count = shape[0]
    with torch.no_grad():
        own = (
            torch.nan_to_num(model.answer(x.float())).argmax(1)
            if count and x.ndim > 1 and x.numel()
            else torch.zeros(count, dtype=torch.long)
        )
    labels = torch.where(torch.rand(count, generator=generator) < 0.85, own, (own + 1) % classes)
    targets = (labels + 1) % classes if options.pop("targeted", False) else None
    given_labels = options.pop("as_", lambda tensor: tensor)(labels)
    box, budget = Box(bits=options.pop("bits", None)), options.pop("budget", None)
    try:
        attack = build(name, distance)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            result = attack(
                model,
                x,
                given_labels,
                targets,
                box=box,
                budget=budget,
                seed=seed,
                check=independent_rows(kind),
                **options,
            )
    except AlmakitError as error:
        assert len(str(error)) > 20 and str(error).rstrip().endswith((".", "?", ")")), f"not a sentence: {error}"
        outcome("attacks on hostile models", "sentence")
        return
    assert dtype.is_floating_point and x.ndim > 1
    if independent_rows(kind):
        check(attack, model, x, labels, targets, box, result, budget)
    outcome("attacks on hostile models", "result")


@pytest.mark.parametrize("name", registry.names("attacks"))
def test_every_attack_with_every_distance(name: str) -> None:
    chance = random.Random(name)
    distances = registry.names("distances")
    for distance in distances if TIMES else chance.sample(distances, len(distances) // 3):
        try:
            build(name, distance)
        except BadInput:
            continue
        side = SIDES.get(distance, 5)
        for _ in range(TIMES or 1):
            kinds = ["linear", chance.choice(KINDS)] if side < 100 else ["linear"]
            for kind in kinds:
                attacked(
                    name,
                    distance,
                    kind,
                    (2 if side < 100 else 1, 3, side, side),
                    chance.choice([2, 3, 7]),
                    chance.randrange(1000),
                )


@examples(170)
@given(
    name=st.sampled_from(registry.names("attacks")),
    distance=st.sampled_from(NORMS),
    kind=st.sampled_from(KINDS),
    shape=shapes,
    classes=st.sampled_from([2, 3, 4, 10, 100, 1000]),
    seed=st.integers(0, 10**6),
    targeted=st.booleans(),
    bits=st.sampled_from([None, None, 1, 8]),
    budget=st.sampled_from([None, None, 1, 2, 9]),
    batch_size=st.sampled_from([None, 1, 2]),
    dtype=st.sampled_from(
        [torch.float32] * 6 + [torch.float64, torch.float16, torch.bfloat16, torch.uint8, torch.int64]
    ),
)
def test_any_attack_on_any_images(name, distance, kind, shape, classes, seed, **options):
    attacked(name, distance, kind, shape, classes, seed, **options)


@examples(30)
@given(
    form=st.sampled_from(
        [*INTEGERS, "list", "tuple", "numpy", "int8 numpy", "float", "bool", "none", "text", "ragged"]
    ),
    classes=st.sampled_from([2, 5, 100]),
    name=st.sampled_from(["alma", "alma-plus", "ddn", "fmn"]),
    seed=st.integers(0, 999),
)
def test_labels_of_any_type(form, classes, name, seed):
    def given_as(labels: torch.Tensor) -> Any:
        if isinstance(form, torch.dtype):
            return labels.to(form)
        return {
            "list": labels.tolist(),
            "tuple": tuple(labels.tolist()),
            "numpy": labels.numpy(),
            "int8 numpy": labels.numpy().astype(np.int8),
            "float": labels.float(),
            "bool": labels.bool(),
            "none": None,
            "text": "0123",
            "ragged": [[0], [1, 2]],
        }[form]

    attacked(name, "l2", "linear", (3, 1, 3, 3), classes, seed, as_=given_as)


def test_the_judge_can_find_fault() -> None:
    """Were the judge blind, the tests above would prove nothing."""
    from dataclasses import replace

    x = torch.rand(4, 6, generator=torch.Generator().manual_seed(1))
    model = Hostile("linear", 6, 3, 1)
    labels = model.answer(x).argmax(1)
    attack = build("alma-plus", "l2")
    result = attack(model, x, labels)
    check(attack, model, x, labels, None, Box(), result, None)
    for broken in (
        replace(result, adversarials=x),
        replace(result, distances=result.distances * 0.9),
        replace(result, forwards=result.forwards + 1),
        replace(result, status=result.status * 0 + 2),
        replace(result, adversarials=result.adversarials - 1),
    ):
        with pytest.raises(AssertionError):
            check(attack, model, x, labels, None, Box(), broken, None)
