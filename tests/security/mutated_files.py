"""Hundreds of model and data files that are wrong in every way one can think of, made from good ones: for each kind
known attacks, then mutations."""

from __future__ import annotations

import io
import json
import os
import pickle
import random
import struct
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import save as save_tensors
from security.hostile_files import Payload, Small, pack

from almakit.models.zoo import ZOO, build

Job = tuple[str, str, str]
"""Name, act of watched.py, path."""


def seeds(folder: Path) -> dict[str, Path]:
    """A good file of each kind."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {"onnx": folder / "good.onnx", "npz": folder / "good.npz"}
    found |= {"safetensors": folder / "good.safetensors", "pt": folder / "good.pt", "tar": folder / "good.tar"}
    onnx.save(graph(), str(found["onnx"]))
    np.savez(found["npz"], x=np.random.default_rng(0).random((3, 1, 8, 8), dtype=np.float32), y=np.arange(3))
    state = build(ZOO["mnist/smallcnn-tiny"]).state_dict()
    torch.save(state, found["pt"])
    found["safetensors"].write_bytes(save_tensors({name: value.numpy() for name, value in state.items()}))
    with tarfile.open(found["tar"], "w") as tar:
        _add(tar, "wanted", b"good")
    return found


def graph(**inputs: Any) -> Any:
    """``Small`` in the words of ONNX, roughly: a convolution, a ReLU, a linear map."""
    net = Small()
    weights = {"w": net.convolution.weight, "b": net.convolution.bias, "l": net.linear.weight, "c": net.linear.bias}
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["conv"]),
        helper.make_node("Relu", ["conv"], ["relu"]),
        helper.make_node("Flatten", ["relu"], ["flat"]),
        helper.make_node("Gemm", ["flat", "l", "c"], ["out"], transB=1),
    ]
    sides = inputs.get("sides", (1, 1, 8, 8))
    own = [numpy_helper.from_array(value.detach().numpy(), name) for name, value in weights.items()]
    x, out = (helper.make_tensor_value_info(name, 1, shape) for name, shape in (("x", sides), ("out", (1, 5))))
    made = helper.make_graph(nodes, "g", [x], [out], own)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)])


def jobs(folder: Path, mark: Path, count: int, seed: int) -> list[Job]:
    """At least ``count`` files: all known attacks, then mutations until there are as many, the kinds taking turns."""
    chance = random.Random(seed)
    good = seeds(folder / "good")
    made = [*_onnx(folder, mark), *_npz(folder, mark), *_safetensors(folder), *_checkpoints(folder, mark)]
    made += _archives(folder)
    acts = {"onnx": "model", "npz": "npz", "safetensors": "weights", "pt": "weights", "tar": "archive"}
    while len(made) < count:
        kind = list(acts)[len(made) % 5]
        path = folder / f"mutated-{len(made)}.{kind}"
        how = _mutate(kind, good[kind], path, mark, chance)
        made.append((f"{kind}: {how}", acts[kind], str(path)))
    return made


def _mutate(kind: str, good: Path, path: Path, mark: Path, chance: random.Random) -> str:
    if kind in ("npz", "pt") and chance.random() < 0.7:
        with zipfile.ZipFile(good) as archive:
            parts = [(name, archive.read(name)) for name in archive.namelist()]
        how = _mutate_parts(parts, mark, chance)
        pack(path, parts)
        return how
    if kind == "onnx" and chance.random() < 0.6:
        model = onnx.load(str(good))
        how = _mutate_graph(model, mark, chance)
        path.write_bytes(model.SerializeToString())
        return how
    content = bytearray(good.read_bytes())
    return _mutate_bytes(content, path, chance)


def _mutate_bytes(content: bytearray, path: Path, chance: random.Random) -> str:
    how = chance.choice(("flip", "cut", "grow", "splice", "zero"))
    at = chance.randrange(len(content))
    if how == "flip":
        for _ in range(chance.choice((1, 1, 4, 32))):
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    elif how == "cut":
        del content[at:]
    elif how == "grow":
        content += chance.randbytes(64)
    elif how == "splice":
        content[at : at + 16] = chance.randbytes(chance.randrange(40))
    else:
        content[at : at + 64] = bytes(min(64, len(content) - at))
    path.write_bytes(content)
    return how


def _mutate_parts(parts: list[tuple[str, bytes]], mark: Path, chance: random.Random) -> str:
    at = chance.randrange(len(parts))
    name, content = parts[at]
    how = chance.choice(("twice", "rename", "gone", "pickle", "flip"))
    if how == "twice":
        parts.insert(chance.randrange(len(parts)), (name, pickle.dumps(Payload(mark))))
    elif how == "rename":
        names = (f"../{name}", f"/{name}", name.replace("/", "\\"), name.upper(), f"other/{name}")
        parts[at] = (chance.choice(names), content)
    elif how == "gone":
        del parts[at]
    elif how == "pickle":
        parts[at] = (name, pickle.dumps(Payload(mark)))
    else:
        changed = bytearray(content or b"\0")
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
        parts[at] = (name, bytes(changed))
    return how


def _mutate_graph(model: Any, mark: Path, chance: random.Random) -> str:
    how = chance.choice(("dims", "op", "name", "external", "input", "type", "attribute", "domain", "data"))
    node, weight = chance.choice(model.graph.node), chance.choice(model.graph.initializer)
    if how == "dims":
        weight.dims[0] = chance.choice((-1, 0, 1 << 40, 1 << 62))
    elif how == "op":
        node.op_type = chance.choice(("Loop", "If", "PyOp", "ConstantOfShape", "Slice", "Resize", "Split", "Where"))
    elif how == "name":
        node.input[0] = chance.choice((node.output[0], "nowhere", "", "../x"))
    elif how == "external":
        weight.ClearField("raw_data")
        weight.data_location = TensorProto.EXTERNAL
        place = chance.choice(("/etc/hostname", "../../etc/hostname", str(mark), "gone", "", "a\0b"))
        for key, text in (("location", place), ("offset", "-5"), ("length", "10")):
            weight.external_data.add(key=key, value=text)
    elif how == "input":
        sides = model.graph.input[0].type.tensor_type.shape.dim
        sides[chance.randrange(4)].dim_value = chance.choice((-3, 1 << 40, 1 << 62, 100000))
    elif how == "type":
        weight.data_type = chance.choice((0, 8, 99, 16, 20))
    elif how == "attribute":
        name = chance.choice(("axis", "pads", "strides", "group", "kernel_shape"))
        value = chance.choice(([-(1 << 60)] * 4, 1 << 40, "x", 0.5))
        node.attribute.append(helper.make_attribute(name, value))
    elif how == "domain":
        node.domain = chance.choice(("com.microsoft", "ai.onnx.ml", "evil"))
    else:
        weight.raw_data = weight.raw_data[: chance.randrange(len(weight.raw_data))]
    return how


def _onnx(folder: Path, mark: Path) -> Iterator[Job]:
    def external(name: str, location: str, **more: str) -> Job:
        model = graph()
        weight = model.graph.initializer[0]
        weight.ClearField("raw_data")
        weight.data_location = TensorProto.EXTERNAL
        for key, value in {"location": location, **more}.items():
            weight.external_data.add(key=key, value=value)
        (folder / f"{name}.onnx").write_bytes(model.SerializeToString())
        return f"onnx: {name}", "model", str(folder / f"{name}.onnx")

    (folder / "beside.bin").write_bytes(bytes(144))
    (folder / "link.bin").symlink_to("/etc/hostname")
    os.makedirs(folder / "sub", exist_ok=True)
    (folder / "sub" / "up").symlink_to(Path("/"))
    yield external("beside", "beside.bin")
    places = ("/etc/hostname", "../../../../etc/hostname", "link.bin", "sub/up/etc/hostname", "", ".", "sub", "\0")
    for number, location in enumerate(places):
        yield external(f"outside-{number}", location)
    yield external("offset", "beside.bin", offset="100", length="144")
    yield external("negative", "beside.bin", offset="-1", length="-1")
    yield external("text", "beside.bin", offset="__import__('os')", length="x")
    shapes = [(-1, 1, 8, 8), (1, 1, 1 << 40, 8), (1, 1 << 31, 8, 8), (1 << 62, 1, 8, 8), (1, -3, 8, 8)]
    for number, sides in enumerate([*shapes, (0, 0, 0, 0), (1, 1, 100000, 100000)]):
        onnx.save(graph(sides=sides), str(folder / f"sides-{number}.onnx"))
        yield f"onnx: sides {sides}", "model", str(folder / f"sides-{number}.onnx")
    for number, dims in enumerate([(-4, 1, 3, 3), (1 << 50, 1, 3, 3), (4, 1, 3), (0, 1 << 62)]):
        model = graph()
        del model.graph.initializer[0].dims[:]
        model.graph.initializer[0].dims.extend(dims)
        (folder / f"dims-{number}.onnx").write_bytes(model.SerializeToString())
        yield f"onnx: dims {dims}", "model", str(folder / f"dims-{number}.onnx")
    (folder / "pickle.onnx").write_bytes(pickle.dumps(Payload(mark)))
    yield "onnx: a pickle", "model", str(folder / "pickle.onnx")
    model = graph()
    shape = helper.make_node("ConstantOfShape", ["big"], ["huge"])
    model.graph.initializer.append(numpy_helper.from_array(np.array([1 << 20, 1 << 20]), "big"))
    model.graph.node.insert(0, shape)
    (folder / "huge.onnx").write_bytes(model.SerializeToString())
    yield "onnx: a huge constant", "model", str(folder / "huge.onnx")


def _npz(folder: Path, mark: Path) -> Iterator[Job]:
    objects = np.empty(2, dtype=object)
    objects[:] = [Payload(mark), Payload(mark)]
    np.savez(folder / "objects.npz", x=objects, y=np.zeros(2, dtype=np.int64))
    yield "npz: objects", "npz", str(folder / "objects.npz")
    (folder / "bare.npz").write_bytes(pickle.dumps(Payload(mark)))
    yield "npz: a pickle", "npz", str(folder / "bare.npz")
    good = io.BytesIO()
    np.save(good, np.zeros(2))
    headers = {
        "code": f"{{'descr': __import__('os').mkdir({str(mark)!r}), 'fortran_order': False, 'shape': (2,)}}",
        "huge": "{'descr': '<f8', 'fortran_order': False, 'shape': (1099511627776, 1099511627776)}",
        "large": "{'descr': '<f8', 'fortran_order': False, 'shape': (68719476736,)}",
        "negative": "{'descr': '<f8', 'fortran_order': False, 'shape': (-2,)}",
        "objects": "{'descr': '|O', 'fortran_order': False, 'shape': (2,)}",
        "deep": "(" * 5000,
    }
    for name, header in headers.items():
        text = header.encode().ljust(117) + b"\n"
        array = b"\x93NUMPY\x02\x00" + struct.pack("<I", len(text)) + text + pickle.dumps(Payload(mark))
        yield (
            f"npz: header {name}",
            "npz",
            str(pack(folder / f"header-{name}.npz", {"x.npy": array, "y.npy": good.getvalue()})),
        )
    member, bare = ("x.npy", good.getvalue()), pickle.dumps(Payload(mark))
    for name, parts in {
        "names": [("../../x.npy", member[1])],
        "twice": [member, ("x.npy", array)],
        "no array": [("x", bare)],
    }.items():
        yield f"npz: {name}", "npz", str(pack(folder / f"{name}.npz", parts))


def _safetensors(folder: Path) -> Iterator[Job]:
    def file(name: str, header: bytes, body: bytes = bytes(16), length: int | None = None) -> Job:
        (folder / f"{name}.safetensors").write_bytes(
            struct.pack("<Q", len(header) if length is None else length) + header + body
        )
        return f"safetensors: {name}", "weights", str(folder / f"{name}.safetensors")

    one = {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}
    headers: dict[str, Any] = {
        "metadata": {"__metadata__": {"format": "__import__('os')", "torch": "1"}, "a": one},
        "metadata-number": {"__metadata__": {"a": 1}, "a": one},
        "overlap": {"a": one, "b": one},
        "outside": {"a": {**one, "data_offsets": [0, 1 << 40]}},
        "backwards": {"a": {**one, "data_offsets": [16, 0]}},
        "negative": {"a": {**one, "shape": [-4]}},
        "huge": {"a": {**one, "shape": [1 << 62]}},
        "dtype": {"a": {**one, "dtype": "OBJECT"}},
        "name": {"../../x": one},
        "surrogate": {"\ud800": one},
        "list": [one],
        "empty": {},
    }
    for name, header in headers.items():
        yield file(name, json.dumps(header).encode())
    yield file("long", b"{}", length=1 << 60)
    yield file("deep", b"[" * 10000)
    yield file("bytes", b"\xff\xfe{}")


def _checkpoints(folder: Path, mark: Path) -> Iterator[Job]:
    def write(name: str, content: bytes) -> Job:
        (folder / f"{name}.pt").write_bytes(content)
        return f"pt: {name}", "weights", str(folder / f"{name}.pt")

    for zipped in (True, False):
        saved = io.BytesIO()
        state = {"state_dict": {"a": torch.zeros(2)}, "more": Payload(mark)}
        torch.save(state, saved, _use_new_zipfile_serialization=zipped)
        yield write("zip" if zipped else "before-1.6", saved.getvalue())
    for protocol in range(5):
        yield write(f"pickle-{protocol}", pickle.dumps(Payload(mark), protocol=protocol))
    yield write("system", b"cos\nsystem\n(S'touch " + str(mark).encode() + b"'\ntR.")
    yield write("torch-load", b"ctorch.serialization\nload\n(S'" + str(folder / "before-1.6.pt").encode() + b"'\ntR.")
    yield write("getattr", b"cbuiltins\ngetattr\n(ctorch\nstorage\nS'os'\ntR.")
    old = io.BytesIO()
    with tarfile.open(fileobj=old, mode="w") as tar:  # as torch wrote them in 2017
        for part in ("storages", "tensors", "pickle", "sys_info"):
            _add(tar, part, pickle.dumps(Payload(mark), protocol=2))
    yield write("tar-of-2017", old.getvalue())
    script = io.BytesIO()
    torch.jit.save(torch.jit.trace(Small().eval(), torch.rand(2, 1, 8, 8)), script)
    yield write("torchscript", script.getvalue())
    with zipfile.ZipFile(io.BytesIO((folder / "zip.pt").read_bytes())) as archive:
        parts = [(name, archive.read(name)) for name in archive.namelist()]
    plain = io.BytesIO()
    torch.save({"a": torch.zeros(2)}, plain)
    with zipfile.ZipFile(plain) as archive:
        innocent = [(name, archive.read(name)) for name in archive.namelist()]
    data = next(content for name, content in parts if name.endswith("data.pkl"))
    name = next(name for name, _ in innocent if name.endswith("data.pkl"))
    for how, made in {"evil-first": [(name, data), *innocent], "evil-last": [*innocent, (name, data)]}.items():
        yield f"pt: {how}", "weights", str(pack(folder / f"{how}.pt", made))


def _archives(folder: Path) -> Iterator[Job]:
    def tar(name: str, *members: tuple[str, bytes, int, str]) -> Job:
        with tarfile.open(folder / f"{name}.tar", "w") as made:
            for file, content, kind, link in members:
                info = tarfile.TarInfo(file)
                info.type, info.linkname, info.size = bytes([kind]), link, len(content)
                made.addfile(info, io.BytesIO(content))
        return f"tar: {name}", "archive", str(folder / f"{name}.tar")

    plain, link, hard, device, pipe = 48, 50, 49, 51, 54
    escapes = ("../wanted", "/tmp/almakit-escaped", "a/../../wanted", "..\\wanted", "C:\\wanted", "./../wanted")
    for number, escape in enumerate(escapes):
        yield tar(f"escape-{number}", (escape, b"x", plain, ""))
    for name, kind in {"link": link, "hard": hard, "device": device, "pipe": pipe}.items():
        yield tar(name, ("wanted", b"", kind, "/etc/hostname"))
    yield tar("through-a-link", ("d", b"", link, "/tmp"), ("d/wanted", b"x", plain, ""), ("wanted", b"x", plain, ""))
    yield tar("large", ("wanted", bytes(2 << 20), plain, ""))
    yield tar("twice", ("wanted", b"x", plain, ""), ("wanted", b"", link, "/etc/hostname"))
    with zipfile.ZipFile(folder / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("wanted", bytes(64 << 20))
    yield "zip: a bomb", "archive", str(folder / "bomb.zip")
    for number, name in enumerate(("../wanted", "/wanted", "..\\wanted")):
        yield f"zip: {name}", "archive", str(pack(folder / f"escape-{number}.zip", {name: b"x"}))
    with zipfile.ZipFile(folder / "link.zip", "w") as archive:
        info = zipfile.ZipInfo("wanted")
        info.external_attr = 0o120777 << 16
        archive.writestr(info, "/etc/hostname")
    yield "zip: link", "archive", str(folder / "link.zip")


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))
