"""Trackers: what they are told, TensorBoard's files byte by byte, and the sentences where something is missing."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import pytest
import torch
from eval.small_runs import ATTACKS, Net, images, small_run, source_file
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

import almakit
from almakit import trackers
from almakit.cli.main import main
from almakit.errors import AlmakitError
from almakit.trackers.tensorboard import TensorBoard, crc32c


def event_class():
    """TensorFlow's ``Event`` as its .proto files declare it, so that protobuf's own parser reads what we wrote."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="event.proto", package="t", syntax="proto3")

    def message(name: str, *fields: tuple[str, int, int, int, str]) -> None:
        made = file.message_type.add(name=name)
        for field, number, kind, label, type_name in fields:
            made.field.add(name=field, number=number, type=kind, label=label, type_name=type_name or None)

    one, many = kinds.LABEL_OPTIONAL, kinds.LABEL_REPEATED
    message("Tensor", ("dtype", 1, kinds.TYPE_INT32, one, ""), ("string_val", 8, kinds.TYPE_BYTES, many, ""))
    message("Value", ("tag", 1, kinds.TYPE_STRING, one, ""), ("simple_value", 2, kinds.TYPE_FLOAT, one, ""),
            ("tensor", 8, kinds.TYPE_MESSAGE, one, ".t.Tensor"))  # fmt: skip
    message("Summary", ("value", 1, kinds.TYPE_MESSAGE, many, ".t.Value"))
    message("Event", ("wall_time", 1, kinds.TYPE_DOUBLE, one, ""), ("step", 2, kinds.TYPE_INT64, one, ""), ("file_version", 3, kinds.TYPE_STRING, one, ""),
            ("summary", 5, kinds.TYPE_MESSAGE, one, ".t.Summary"))  # fmt: skip
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Event"))


def unmasked(crc: int) -> int:
    rotated = (crc - 0xA282EAD8) & 0xFFFFFFFF
    return (rotated >> 17 | rotated << 15) & 0xFFFFFFFF


def read(folder: Path) -> list:
    (file,) = folder.glob("events.out.tfevents.*")
    data, events, kind = file.read_bytes(), [], event_class()
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        body = data[12 : 12 + length]
        assert unmasked(struct.unpack("<I", data[8:12])[0]) == crc32c(data[:8])
        assert unmasked(struct.unpack("<I", data[12 + length : 16 + length])[0]) == crc32c(body)
        events.append(kind.FromString(body))
        data = data[16 + length :]
    return events


def test_the_checksum_is_castagnolis() -> None:
    # RFC 3720, appendix B.4.
    assert crc32c(b"123456789") == 0xE3069283 and crc32c(bytes(32)) == 0x8A9136AA and crc32c(bytes([255] * 32)) == 0x62A8AB43


def test_tensorboard_files_hold_what_was_told(tmp_path: Path) -> None:
    run = small_run(limit=16, track=f"tensorboard:{tmp_path / 'tb'}")
    events = read(tmp_path / "tb")
    assert events[0].file_version == "brain.Event:2" and abs(events[0].wall_time - events[-1].wall_time) < 600
    numbers = {(value.tag, event.step): value.simple_value for event in events for value in event.summary.value if not value.HasField("tensor")}
    (settings,) = [value for event in events for value in event.summary.value if value.tag == "settings"]
    assert ATTACKS[0] in settings.tensor.string_val[0].decode()
    for info, part in zip(run.attacks, run.summary["attacks"], strict=True):
        assert numbers[f"{info.text}/fooled", 16] == pytest.approx(part["success_rate"]["value"])
        assert numbers[f"{info.text}/median", 16] == pytest.approx(part["median_all"]["value"])
        assert numbers[f"{info.text}/summary/forwards", 0] == pytest.approx(part["forwards"]["mean"])
    trace = run.traces[0]
    name = run.images[trace.image].id
    for place, step in enumerate(trace.values["step"]):
        if (distance := trace.values["distance"][place]) is not None:
            assert numbers[f"{run.attacks[trace.attack].text}/{name}/distance", step] == pytest.approx(distance, rel=1e-6)


def test_a_plain_function_is_told_everything_in_order() -> None:
    events: list[dict] = []
    run = small_run(limit=16, track=events.append)
    kinds = [event["event"] for event in events]
    assert kinds[0] == "begin" and kinds[-1] == "end" and events[0]["settings"]["limit"] == 16
    progress = [event for event in events if event["event"] == "progress"]
    assert [(event["attack"], event["images"]) for event in progress] == [(text, seen) for text in ATTACKS for seen in (8, 16)]
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
    found = [event for event in read(tmp_path) if event.summary.value]
    assert len(found) == len(kept) >= 5
    for event, told in zip(found, kept, strict=True):
        values = {value.tag: value.simple_value for value in event.summary.value}
        assert event.step == told["step"] and values["distance"] == pytest.approx(float(told["distance"].mean()), rel=1e-5)


def test_numbers_that_are_none_or_not_finite_are_left_out(tmp_path: Path) -> None:
    tracker = TensorBoard(str(tmp_path))
    tracker({"event": "progress", "attack": "a", "images": 3, "fooled": 0.0, "median": None})
    tracker({"event": "trace", "attack": "a", "image": "i", "step": 2**40, "values": {"x": math.inf, "y": True, "z": "word"}})
    tracker({"step": 1, "image": torch.tensor([0]), "margin": torch.tensor([math.nan])})
    found = [(value.tag, value.simple_value, event.step) for event in read(tmp_path) for value in event.summary.value]
    assert found == [("a/fooled", 0.0, 3), ("a/i/y", 1.0, 2**40)]


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = source_file(tmp_path)
    (tmp_path / "mine.py").write_text(source.read_text() + "\n\ndef heard(event):\n    open(__file__ + '.log', 'a').write(event['event'] + '\\n')\n")
    base = ["run", "--model", f"{source}:model", "--data", f"{source}:data", "--attack", ATTACKS[0], "--limit", "8", "--quiet"]
    tracked = ["--track", f"tensorboard:{tmp_path / 'tb'}", "--track", f"{source}:heard", "--out", str(tmp_path / "a")]
    assert main([*base, *tracked]) == 0 and len(read(tmp_path / "tb")) > 10
    assert "begin" in Path(f"{source}.log").read_text().split() and "end" in Path(f"{source}.log").read_text().split()
    for text, words in (("tensorbord:x", "did you mean tensorboard"), ("tensorboard", "say where"), ("wandb:mine", "pip install wandb"),
                        ("mlflow:mine", "pip install mlflow"), (f"tensorboard:{source}/x", "choose another folder")):  # fmt: skip
        capsys.readouterr()
        assert main([*base, "--track", text, "--out", str(tmp_path / "b")]) in (1, 2)
        assert words in capsys.readouterr().err
    with pytest.raises(AlmakitError, match="a function that takes an event"):
        trackers.get(3)  # type: ignore[arg-type]
