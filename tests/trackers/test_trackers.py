"""Trackers: what they are told, TensorBoard's files as TensorBoard reads them, and the sentences where something is
missing."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest
import torch
from runs.small_runs import ATTACKS, Net, images, small_run, source_file
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

import almakit
from almakit import trackers
from almakit.cli.main import main
from almakit.errors import AlmakitError
from almakit.trackers import TensorBoard


def read(folder: Path) -> list:
    """The events in a folder, as TensorBoard's own loader reads them; it checks every checksum."""
    (file,) = folder.glob("events.out.tfevents.*")
    return list(LegacyEventFileLoader(str(file)).Load())


def test_tensorboard_files_hold_what_was_told(tmp_path: Path) -> None:
    run = small_run(limit=16, track=f"tensorboard:{tmp_path / 'tb'}")
    events = read(tmp_path / "tb")
    assert events[0].file_version == "brain.Event:2" and abs(events[0].wall_time - events[-1].wall_time) < 600
    numbers = {
        (value.tag, event.step): value.simple_value
        for event in events
        for value in event.summary.value
        if not value.HasField("tensor")
    }
    (settings,) = [value for event in events for value in event.summary.value if value.tag == "settings/text_summary"]
    assert ATTACKS[0] in settings.tensor.string_val[0].decode()
    for info, part in zip(run.attacks, run.summary["attacks"], strict=True):
        assert numbers[f"{info.text}/fooled", 16] == pytest.approx(part["success_rate"]["value"])
        assert numbers[f"{info.text}/median", 16] == pytest.approx(part["median_all"]["value"])
        assert numbers[f"{info.text}/summary/forwards", 0] == pytest.approx(part["forwards"]["mean"])
    trace = run.traces[0]
    name = run.images[trace.image].id
    for place, step in enumerate(trace.values["step"]):
        if (distance := trace.values["distance"][place]) is not None:
            assert numbers[f"{run.attacks[trace.attack].text}/{name}/distance", step] == pytest.approx(
                distance, rel=1e-6
            )


def test_a_plain_function_is_told_everything_in_order() -> None:
    events: list[dict] = []
    run = small_run(limit=16, track=events.append)
    kinds = [event["event"] for event in events]
    assert kinds[0] == "begin" and kinds[-1] == "end" and events[0]["settings"]["limit"] == 16
    progress = [event for event in events if event["event"] == "progress"]
    assert [(event["attack"], event["images"]) for event in progress] == [
        (text, seen) for seen in (8, 16) for text in ATTACKS
    ]
    courses = [event for event in events if event["event"] == "trace" and event["attack"] == ATTACKS[0]]
    assert [event["step"] for event in courses] == run.traces[0].values["step"]
    assert events[-1]["summary"] == run.summary


def test_an_attacks_own_trace_goes_to_the_same_tracker(tmp_path: Path) -> None:
    x, labels = images(8)
    kept: list[dict] = []
    tracker = trackers.get(f"tensorboard:{tmp_path}")

    def both(event: dict) -> None:
        kept.append(event)
        tracker(event)

    almakit.ALMA(distance="l2", steps=6)(Net(), x, labels, trace=both)
    found = [
        (event.step, value.simple_value)
        for event in read(tmp_path)
        for value in event.summary.value
        if value.tag == "distance"
    ]
    assert len(found) == len(kept) >= 5
    for (step, value), told in zip(found, kept, strict=True):
        assert step == told["step"] and value == pytest.approx(float(told["distance"].mean()), rel=1e-5)


def test_numbers_that_are_none_or_not_finite_are_left_out(tmp_path: Path) -> None:
    tracker = TensorBoard(str(tmp_path))
    tracker({"event": "progress", "attack": "a", "images": 3, "fooled": 0.0, "median": None})
    tracker(
        {
            "event": "trace",
            "attack": "a",
            "image": "i",
            "step": 2**40,
            "values": {"x": math.inf, "y": True, "z": "word"},
        }
    )
    tracker({"step": 1, "image": torch.tensor([0]), "margin": torch.tensor([math.nan])})
    found = [(value.tag, value.simple_value, event.step) for event in read(tmp_path) for value in event.summary.value]
    assert found == [("a/fooled", 0.0, 3), ("a/i/y", 1.0, 2**40)]


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = source_file(tmp_path)
    (tmp_path / "mine.py").write_text(
        source.read_text() + "\n\ndef heard(event):\n    open(__file__ + '.log', 'a').write(event['event'] + '\\n')\n"
    )
    base = [
        "run",
        "--model",
        f"{source}:model",
        "--data",
        f"{source}:data",
        "--attack",
        ATTACKS[0],
        "--limit",
        "8",
        "--quiet",
    ]
    tracked = ["--track", f"tensorboard:{tmp_path / 'tb'}", "--track", f"{source}:heard", "--out", str(tmp_path / "a")]
    assert main([*base, *tracked]) == 0 and len(read(tmp_path / "tb")) > 10
    assert "begin" in Path(f"{source}.log").read_text().split() and "end" in Path(f"{source}.log").read_text().split()
    for text, words in (
        ("tensorbord:x", "did you mean tensorboard"),
        ("tensorboard", "say where"),
        (f"tensorboard:{source}/x", "choose another folder"),
    ):
        capsys.readouterr()
        assert main([*base, "--track", text, "--out", str(tmp_path / "b")]) in (1, 2)
        assert words in capsys.readouterr().err
    with pytest.raises(AlmakitError, match="a function that takes an event"):
        trackers.get(3)  # type: ignore[arg-type]


def test_without_tensorboard_a_sentence_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(AlmakitError, match="pip install tensorboard"):
        trackers.get(f"tensorboard:{tmp_path}")
