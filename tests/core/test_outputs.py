"""What a model returned, unwrapped and cut, whatever form it has."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch import nn

from almakit.core.oracle import pass_seconds, predict, steady
from almakit.goals.outputs import first_rows, logits_of, picked

LOGITS, OTHER = torch.arange(12.0).view(4, 3), torch.arange(4.0).view(4, 1)


def test_logits_are_found_under_their_names() -> None:
    for answer in (LOGITS, {"logits": LOGITS, "out": OTHER}, {"out": LOGITS, "aux": OTHER}):
        assert logits_of(answer) is LOGITS
    assert logits_of(SimpleNamespace(logits=LOGITS)) is LOGITS
    assert logits_of({"other": OTHER}) == {"other": OTHER}


def test_the_first_rows_of_a_dict_keep_all_its_outputs() -> None:
    cut = first_rows({"logits": LOGITS, "score": OTHER}, 2)
    assert torch.equal(logits_of(cut), LOGITS[:2]) and torch.equal(picked(cut, "score"), OTHER[:2])
    assert torch.equal(first_rows((LOGITS, OTHER), 3)[1], OTHER[:3])


def test_a_tiny_batch_keeps_every_output_of_the_model() -> None:
    sizes = []
    model = steady(lambda x: (sizes.append(len(x)), {"logits": x, "score": x.sum(1)})[1], torch.device("cpu"))
    assert torch.equal(model(LOGITS[:1])["score"], LOGITS[:1].sum(1)) and sizes == [4]


def test_a_prediction_leaves_the_model_as_it_came() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.9))
    first, again = predict(model, LOGITS), predict(model, LOGITS)
    assert torch.equal(first, again) and not first.requires_grad
    assert model.training and all(weight.requires_grad for weight in model.parameters())


def test_a_timed_pass_goes_forward_and_backward_once() -> None:
    model, seen = nn.Linear(3, 3), []
    model.register_forward_hook(lambda *_: seen.append("forward"))
    model.register_full_backward_hook(lambda *_: seen.append("backward"))
    with torch.inference_mode():
        assert pass_seconds(model, LOGITS.clone()) > 0
    assert seen == ["forward", "backward"]
    assert pass_seconds(lambda x: x.detach(), LOGITS) > 0  # nothing to go back through
