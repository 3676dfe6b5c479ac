"""ONNX operators that move data, in the forms of their versions; numbers that a graph computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx_models import FLOAT, IMAGE, NEWEST, Read, last, load, node

helper = pytest.importorskip("onnx.helper")
numpy_helper = pytest.importorskip("onnx.numpy_helper")

__all__ = ["load"]


# Data movement, in the forms of its versions


@pytest.mark.parametrize(
    ("nodes", "weights", "opset", "output"),
    [
        ([node("Squeeze", "u", axes=[1])], {}, 11, (1, 6)),
        ([node("Squeeze", "u a")], {"a": [1]}, 13, (1, 6)),
        ([node("Squeeze", "u a")], {"a": [-2]}, NEWEST, (1, 6)),
        ([node("Slice", "u", starts=[1], ends=[-1], axes=[2])], {}, 9, (1, 1, 4)),
        ([node("Slice", "u a b c")], {"a": [1], "b": [-1], "c": [2]}, 10, (1, 1, 4)),
        (
            [node("Slice", "u a b c d")],
            {"a": [0], "b": [2**63 - 1], "c": [2], "d": [2]},
            13,
            (1, 1, 3),
        ),
        ([node("Pad", "u", pads=[0, 0, 1, 0, 0, 2])], {}, 9, (1, 1, 9)),
        ([node("Pad", "u p")], {"p": [0, 0, 1, 0, 0, 2]}, 13, (1, 1, 9)),
        ([node("Pad", "u p - a")], {"p": [1, 2], "a": [2]}, 18, (1, 1, 9)),
        ([node("ReduceSum", "u", axes=[1], keepdims=0)], {}, 11, (1, 6)),
        ([node("ReduceSum", "u a", keepdims=0)], {"a": [1]}, 13, (1, 6)),
        ([node("ReduceMax", "u", axes=[2], keepdims=0)], {}, 17, (1, 1)),
        ([node("ReduceMax", "u a", keepdims=0)], {"a": [2]}, 18, (1, 1)),
        ([node("Split", "u", "y z", axis=2, split=[2, 4])], {}, 11, (1, 1, 2)),
        ([node("Split", "u s", "y z", axis=2)], {"s": [2, 4]}, 13, (1, 1, 2)),
        ([node("Split", "u", "y z", axis=2, num_outputs=2)], {}, 18, (1, 1, 3)),
        ([node("Gather", "u i", axis=2)], {"i": 3}, 13, (1, 1)),
        ([node("Reshape", "u s")], {"s": [0, -1, 3]}, 13, (1, 2, 3)),
        ([node("Transpose", "u", "t", perm=[0, 2, 1]), node("Relu", "t")], {}, 13, (1, 6, 1)),
        ([node("Concat", "u u", axis=1)], {}, 13, (1, 2, 6)),
        ([node("Concat", "u u", axis=-1)], {}, 13, (1, 1, 12)),
    ],
)
def test_moves(
    load: Read, nodes: list[Any], weights: dict[str, Any], opset: int, output: tuple[int, ...]
) -> None:
    net = load(
        [node("Relu", "x", "u"), *nodes], {"x": ["N", 1, 6]}, weights, opset=opset, outputs="y"
    )
    found = last(net)[1]
    # The layer may keep dimensions of 1 that the source has no more.
    assert [size for size in found if size > 1] == [size for size in output if size > 1]


@pytest.mark.parametrize(
    ("op", "sizes", "features"),
    [
        ("Tile", [1, 2, 1], 12),
        ("Tile", [1, 1, 3], 18),
        ("Expand", [1, 5, 6], 30),
        ("Expand", [5, 1], 30),
    ],
)
def test_repeating(load: Read, op: str, sizes: list[int], features: int) -> None:
    nodes = [node(op, "x r", "t"), node("Flatten", "t", "f"), node("Gemm", "f w")]
    net = load(nodes, {"x": ["N", 1, 6]}, {"r": sizes, "w": (features, 4)})
    assert last(net) == ("InnerProduct", (1, 4), 4 * features, 8 * features)


@pytest.mark.parametrize(
    ("nodes", "weights", "opset"),
    [
        ([node("Unsqueeze", "x", axes=[1])], {}, 11),
        ([node("Unsqueeze", "x a")], {"a": [1]}, 13),
    ],
)
def test_unsqueeze(load: Read, nodes: list[Any], weights: dict[str, Any], opset: int) -> None:
    nodes = [*nodes, node("Conv", "y w", "z")]
    net = load(nodes, {"x": ["N", 6, 8]}, {**weights, "w": (2, 1, 3, 3)}, opset=opset)
    assert last(net)[:2] == ("Convolution", (1, 4, 6, 2))


@pytest.mark.parametrize(
    ("nodes", "weights", "opset"),
    [
        ([node("Upsample", "x", mode="nearest", scales=[1.0, 1.0, 2.0, 2.0])], {}, 7),
        ([node("Upsample", "x s")], {"s": np.array([1, 1, 2, 2], np.float32)}, 9),
        ([node("Resize", "x s", mode="linear")], {"s": np.array([1, 1, 2, 2], np.float32)}, 10),
        ([node("Resize", "x - s")], {"s": np.array([1, 1, 2, 2], np.float32)}, 13),
        ([node("Resize", "x - - z", mode="cubic")], {"z": [1, 3, 18, 16]}, 19),
    ],
)
def test_resizing(load: Read, nodes: list[Any], weights: dict[str, Any], opset: int) -> None:
    inputs = {"x": [1, 3, 9, 8]}
    assert last(load(nodes, inputs, weights, opset=opset))[1] == (1, 18, 16, 3)


def test_depth_to_space(load: Read) -> None:
    net = load([node("DepthToSpace", "x", blocksize=2)], {"x": ["N", 12, 4, 4]})
    assert last(net)[1] == (1, 8, 8, 3)


# Numbers that the graph computes


def test_a_shape_computed_by_the_graph(load: Read) -> None:
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s zero", "n"),
        node("Unsqueeze", "n a", "u"),
        node("Concat", "u rest", "t", axis=0),
        node("Reshape", "x t", "r"),
        node("Gemm", "r w", "y"),
    ]
    weights = {"zero": 0, "a": [0], "rest": [-1], "w": (216, 10)}
    net = load(nodes, IMAGE, weights)
    assert last(net)[1:3] == ((1, 10), 2160)


@pytest.mark.parametrize("taken", [True, False])
def test_a_branch_that_is_known(load: Read, taken: bool) -> None:
    def branch(op: str) -> Any:
        out = helper.make_tensor_value_info(f"b{op}", FLOAT, None)
        return helper.make_graph([node(op, "x", f"b{op}")], op, [], [out])

    nodes = [
        helper.make_node("If", ["c"], ["y"], then_branch=branch("Relu"), else_branch=branch("Tanh"))
    ]
    net = load(nodes, IMAGE, {"c": np.asarray(taken)})
    assert vars(net.layers[-1].layer)["function"] == ("relu" if taken else "tanh")
