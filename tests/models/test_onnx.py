"""ONNX graphs in torch: every operator against the onnx package's own reference, a whole network against its torch
original."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from almakit import models
from almakit.errors import BadInput, BadModel, Unavailable
from almakit.models.onnx import OnnxNetwork, onnx_network
from almakit.models.onnx_ops import OPS

RNG = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def whole(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


IMAGE = floats(2, 3, 7, 8)
PLAIN = """GlobalAveragePool GlobalMaxPool Flatten Transpose Shape ReduceMin Softmax Relu Sigmoid Softplus
    Tanh Erf Exp Abs Neg Floor Reciprocal Identity Dropout"""
# (operator, data input, further inputs, attributes, opset)
CASES: list[tuple[str, np.ndarray, list[np.ndarray | None], dict[str, Any], int]] = [
    *((op, IMAGE, [], {}, 17) for op in PLAIN.split()),
    ("Conv", IMAGE, [floats(4, 3, 3, 3), floats(4)], {"pads": [1, 0, 1, 0], "strides": [2, 1]}, 17),
    ("Conv", IMAGE, [floats(4, 3, 2, 3)], {"pads": [0, 1, 2, 1]}, 17),
    ("Conv", IMAGE, [floats(6, 1, 3, 3), floats(6)], {"group": 3, "dilations": [2, 2], "auto_pad": "VALID"}, 17),
    ("Conv", IMAGE, [floats(4, 3, 3, 3)], {"auto_pad": "SAME_UPPER", "strides": [2, 2]}, 17),
    ("Conv", IMAGE, [floats(4, 3, 4, 4)], {"auto_pad": "SAME_LOWER", "strides": [1, 3]}, 17),
    ("Conv", floats(2, 3, 9), [floats(4, 3, 3), floats(4)], {"pads": [1, 1]}, 17),
    ("MaxPool", IMAGE, [], {"kernel_shape": [2, 2], "strides": [2, 2]}, 17),
    ("MaxPool", IMAGE, [], {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}, 17),
    ("MaxPool", IMAGE, [], {"kernel_shape": [2, 3], "strides": [2, 3], "ceil_mode": 1}, 17),
    ("AveragePool", IMAGE, [], {"kernel_shape": [2, 2], "strides": [2, 2]}, 17),
    ("AveragePool", IMAGE, [], {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}, 17),
    (
        "AveragePool",
        IMAGE,
        [],
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "count_include_pad": 1},
        17,
    ),
    ("AveragePool", IMAGE, [], {"kernel_shape": [2, 3], "strides": [2, 3], "ceil_mode": 1}, 19),
    ("AveragePool", IMAGE, [], {"kernel_shape": [3, 3], "strides": [2, 3], "pads": [1, 1, 1, 1], "ceil_mode": 1}, 19),
    ("BatchNormalization", IMAGE, [floats(3), floats(3), floats(3), np.abs(floats(3)) + 0.1], {"epsilon": 1e-3}, 17),
    ("LayerNormalization", floats(2, 5, 6), [floats(6), floats(6)], {"axis": -1}, 17),
    ("Gemm", floats(2, 5), [floats(5, 4), floats(4)], {}, 17),
    ("Gemm", floats(5, 2), [floats(4, 5), floats(4)], {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0}, 17),
    ("MatMul", floats(2, 3, 5), [floats(5, 4)], {}, 17),
    ("Add", IMAGE, [floats(1, 3, 1, 1)], {}, 17),
    ("Sub", IMAGE, [floats(3, 1, 1)], {}, 17),
    ("Mul", IMAGE, [floats(1)], {}, 17),
    ("Div", IMAGE, [np.abs(floats(8)) + 0.5], {}, 17),
    ("Div", whole(7, -7, 9), [whole(2, 2, 4)], {}, 17),
    ("Pow", np.abs(IMAGE), [np.array(2.0, dtype=np.float32)], {}, 17),
    ("Max", IMAGE, [floats(1, 3, 1, 1), floats(8)], {}, 17),
    ("Min", IMAGE, [floats(1, 3, 1, 1)], {}, 17),
    ("Sum", IMAGE, [floats(2, 3, 7, 8), floats(2, 3, 7, 8)], {}, 17),
    ("Clip", IMAGE, [np.array(-0.5, dtype=np.float32), None], {}, 17),
    ("Clip", IMAGE, [None, np.array(0.5, dtype=np.float32)], {}, 17),
    ("Clip", IMAGE, [], {"min": -0.3, "max": 0.4}, 6),
    ("Flatten", IMAGE, [], {"axis": 2}, 17),
    ("Flatten", IMAGE, [], {"axis": 0}, 17),
    ("Flatten", IMAGE, [], {"axis": -1}, 17),
    ("Reshape", IMAGE, [whole(0, -1)], {}, 17),
    ("Reshape", IMAGE, [whole(2, 3, 56)], {}, 17),
    ("Transpose", IMAGE, [], {"perm": [0, 2, 3, 1]}, 17),
    ("Concat", IMAGE, [floats(2, 1, 7, 8)], {"axis": 1}, 17),
    ("Split", IMAGE, [whole(3, 5)], {"axis": 3}, 17),
    ("Pad", IMAGE, [whole(0, 0, 1, 2, 0, 1, 0, 3), np.array(0.5, dtype=np.float32)], {}, 17),
    ("Pad", IMAGE, [whole(0, 0, 1, 2, 0, 0, 2, 1)], {"mode": "reflect"}, 17),
    ("Pad", IMAGE, [whole(0, 0, 1, 2, 0, 0, 2, 1)], {"mode": "edge"}, 17),
    ("Pad", IMAGE, [whole(1, 2, 3, 4), None, whole(-1, 2)], {}, 18),
    ("Shape", IMAGE, [], {"start": 1, "end": -1}, 17),
    ("Gather", IMAGE, [whole(2, -1)], {"axis": 1}, 17),
    ("Gather", IMAGE, [np.array(1, dtype=np.int64)], {"axis": 3}, 17),
    ("Unsqueeze", floats(2, 3), [whole(0, -1)], {}, 17),
    ("Squeeze", floats(1, 2, 1, 3), [whole(0, 2)], {}, 17),
    ("Squeeze", floats(1, 2, 1, 3), [], {}, 17),
    ("Slice", IMAGE, [whole(1, -3), whole(7, 2**62), whole(2, 3)], {}, 17),
    ("Slice", IMAGE, [whole(-1), whole(-(2**62)), whole(3), whole(-2)], {}, 17),
    ("Slice", IMAGE, [whole(6), whole(1), whole(2), whole(-1)], {}, 17),
    ("ReduceMean", IMAGE, [], {"axes": [2, 3], "keepdims": 0}, 17),
    ("ReduceMean", IMAGE, [whole(-1)], {}, 18),
    ("ReduceSum", IMAGE, [whole(1)], {"keepdims": 0}, 17),
    ("ReduceMax", IMAGE, [], {"axes": [1]}, 17),
    ("LogSoftmax", IMAGE, [], {"axis": 1}, 17),
    ("LeakyRelu", IMAGE, [], {"alpha": 0.2}, 17),
    ("PRelu", IMAGE, [floats(3, 1, 1)], {}, 17),
    ("Elu", IMAGE, [], {"alpha": 0.7}, 17),
    ("Gelu", IMAGE, [], {}, 20),
    ("Gelu", IMAGE, [], {"approximate": "tanh"}, 20),
    ("HardSigmoid", IMAGE, [], {"alpha": 0.3, "beta": 0.4}, 17),
    ("HardSwish", 4 * IMAGE, [], {}, 17),
    ("Log", np.abs(IMAGE) + 0.1, [], {}, 17),
    ("Sqrt", np.abs(IMAGE), [], {}, 17),
    ("Cast", IMAGE, [], {"to": TensorProto.DOUBLE}, 17),
    ("Cast", IMAGE, [], {"to": TensorProto.INT64}, 17),
    ("Expand", floats(3, 1), [whole(2, 1, 4)], {}, 17),
    ("Equal", whole(1, 2, 3), [whole(1, 5, 3)], {}, 17),
    ("Where", np.array([True, False, True]), [floats(2, 3), floats(3)], {}, 17),
    ("ConstantOfShape", whole(2, 3), [], {"value": helper.make_tensor("v", TensorProto.FLOAT, [1], [1.5])}, 17),
]


def graph_of(
    op: str, data: np.ndarray, others: list[np.ndarray | None], attributes: dict[str, Any], opset: int
) -> onnx.ModelProto:
    names = ["" if other is None else f"in{number}" for number, other in enumerate(others)]
    outputs = ["out", "rest"] if op == "Split" else ["out"]
    node = helper.make_node(op, ["x", *names], outputs, **attributes)
    kind = helper.np_dtype_to_tensor_dtype(data.dtype)
    initial = [
        numpy_helper.from_array(other, name) for name, other in zip(names, others, strict=True) if other is not None
    ]
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info("x", kind, [None] * data.ndim)],
        [onnx.ValueInfoProto(name="out")],
        initial,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


@pytest.mark.parametrize("case", CASES, ids=[f"{case[0]}-{number}" for number, case in enumerate(CASES)])
def test_operator_agrees_with_the_reference(
    case: tuple[str, np.ndarray, list[np.ndarray | None], dict[str, Any], int],
) -> None:
    model = graph_of(*case)
    expected = ReferenceEvaluator(model).run(None, {"x": case[1]})[0]
    got = OnnxNetwork(model.graph, case[4])._run(torch.from_numpy(case[1]))
    assert tuple(got.shape) == expected.shape
    assert str(got.dtype).removeprefix("torch.") == str(expected.dtype)
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-4, atol=1e-5)


def test_every_operator_is_tested() -> None:
    assert {case[0] for case in CASES} | {"Constant"} == set(OPS)


def small_cnn_file(folder: Path, batch: int | str, flatten_to: list[int]) -> Path:
    """mnist/smallcnn-tiny written node by node, its shape taken apart and put together as exporters do."""
    state = models.load("mnist/smallcnn-tiny").network.state_dict()
    initial = [numpy_helper.from_array(value.numpy(), key) for key, value in state.items()]
    initial.append(numpy_helper.from_array(np.array(flatten_to, dtype=np.int64), "flat"))
    nodes, last = [], "x"
    for number in range(1, 5):
        key = f"feature_extractor.conv{number}"
        nodes.append(
            helper.make_node("Conv", [last, f"{key}.weight", f"{key}.bias"], [f"c{number}"], kernel_shape=[3, 3])
        )
        nodes.append(helper.make_node("Relu", [f"c{number}"], [f"r{number}"]))
        last = f"r{number}"
        if number % 2 == 0:
            nodes.append(helper.make_node("MaxPool", [last], [f"p{number}"], kernel_shape=[2, 2], strides=[2, 2]))
            last = f"p{number}"
    nodes.append(helper.make_node("Reshape", [last, "flat"], ["f0"]))
    for number in range(1, 4):
        key = f"classifier.fc{number}"
        nodes.append(
            helper.make_node("Gemm", [f"f{number - 1}", f"{key}.weight", f"{key}.bias"], [f"g{number}"], transB=1)
        )
        nodes.append(helper.make_node("Relu" if number < 3 else "Identity", [f"g{number}"], [f"f{number}"]))
    graph = helper.make_graph(
        nodes,
        "smallcnn",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 1, 28, 28])],
        [helper.make_tensor_value_info("f3", TensorProto.FLOAT, [batch, 10])],
        initial,
    )
    path = folder / "smallcnn.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


@pytest.mark.parametrize(
    ("batch", "flatten_to", "fixed"),
    [("n", [0, -1], None), (1, [-1, 512], None), (1, [1, 512], 1), (3, [3, 512], 3)],
    ids=str,
)
def test_a_network_from_onnx_has_the_logits_and_gradients_of_the_original(
    tmp_path: Path, batch: int | str, flatten_to: list[int], fixed: int | None
) -> None:
    loaded = models.load(str(small_cnn_file(tmp_path, batch, flatten_to)))
    original = models.load("mnist/smallcnn-tiny")
    assert loaded.network.batch == fixed
    assert loaded.shape == (1, 28, 28)
    x = torch.rand(5, 1, 28, 28, generator=torch.Generator().manual_seed(0)).requires_grad_(True)
    torch.testing.assert_close(loaded(x), original(x), rtol=1e-5, atol=1e-5)
    ours, theirs = (torch.autograd.grad(model(x)[:, 3].sum(), x)[0] for model in (loaded, original))
    assert float(theirs.abs().max()) > 0
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert loaded.to(torch.float64)(x).dtype == torch.float64


def test_old_opsets_are_refused(tmp_path: Path) -> None:
    onnx.save(graph_of("Relu", IMAGE, [], {}, 6), tmp_path / "old.onnx")
    with pytest.raises(BadModel, match="uses opset 6; opsets from 7 on are read: convert it"):
        models.load(str(tmp_path / "old.onnx"))


def sklearn_like(path: Path, second: str = "scores") -> tuple[np.ndarray, Path]:
    """A linear classifier as scikit-learn's exporter writes it: labels, and a dictionary of scores for each row."""
    weights = floats(4, 3)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["scores"]),
        helper.make_node("ArgMax", ["scores"], ["place"], axis=1),
        helper.make_node("ArrayFeatureExtractor", ["classes", "place"], ["label"], domain="ai.onnx.ml"),
        helper.make_node("ZipMap", ["scores"], ["probabilities"], domain="ai.onnx.ml", classlabels_int64s=[0, 1, 2]),
    ]
    kinds = {"label": TensorProto.INT64, "scores": TensorProto.FLOAT}
    maps = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    outputs = [
        helper.make_value_info(name, helper.make_sequence_type_proto(maps))
        if name == "probabilities"
        else helper.make_tensor_value_info(name, kinds[name], [None, 3] if name == "scores" else [None])
        for name in ("label", *second.split())
    ]
    initial = [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(whole(0, 1, 2), "classes")]
    entry = helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 4])
    graph = helper.make_graph(nodes, "linear", [entry], outputs, initial)
    domains = [helper.make_opsetid("", 13), helper.make_opsetid("ai.onnx.ml", 1)]
    onnx.save(helper.make_model(graph, opset_imports=domains, ir_version=8), path)
    return weights, path


@pytest.mark.parametrize("second", ["scores", "probabilities", "scores probabilities"])
def test_class_scores_are_read_beside_labels(tmp_path: Path, second: str) -> None:
    weights, path = sklearn_like(tmp_path / "linear.onnx", second)
    x = torch.rand(5, 4)
    uri = str(path)
    if " " in second:
        with pytest.raises(BadModel, match=r"outputs label, scores, probabilities; name one, model.onnx\?output="):
            models.load(uri)
        uri += "?output=probabilities"
    torch.testing.assert_close(models.load(uri)(x), x @ torch.from_numpy(weights))
    with pytest.raises(BadModel, match="no output 'score'"):
        models.load(f"{path}?output=score")
    with pytest.raises(BadModel, match=r"uses ArgMax, ai\.onnx\.ml\.ArrayFeatureExtractor"):
        models.load(f"{path}?output=label")
    with pytest.raises(BadInput, match=r"only an .onnx file has outputs by name"):
        models.load("mnist/smallcnn-tiny?output=label")


def test_channels_last_graphs_get_channels_last() -> None:
    node = helper.make_node("ReduceMean", ["x"], ["out"], axes=[1, 2], keepdims=0)
    graph = helper.make_graph(
        [node],
        "last",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8, 9, 3])],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, ["n", 3])],
    )
    network = OnnxNetwork(graph, 13)
    x = torch.rand(4, 3, 8, 9)
    assert network.image_shape == (3, 8, 9)
    torch.testing.assert_close(network(x), x.mean((2, 3)))


def test_an_unknown_operator_is_named(tmp_path: Path) -> None:
    model = graph_of("Det", floats(2, 3, 3), [], {}, 17)
    onnx.save(model, tmp_path / "det.onnx")
    with pytest.raises(BadModel, match="uses Det,"):
        onnx_network(tmp_path / "det.onnx")


def test_a_broken_file_is_a_sentence(tmp_path: Path) -> None:
    for content in (b"no graph at all", b""):
        (tmp_path / "broken.onnx").write_bytes(content)
        with pytest.raises(BadModel, match="not a valid ONNX file"):
            models.load(str(tmp_path / "broken.onnx"))
    with pytest.raises(Unavailable, match="there is no file"):
        models.load(str(tmp_path / "missing.onnx"))
