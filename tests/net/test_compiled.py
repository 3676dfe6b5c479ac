"""What TorchInductor makes one kernel of, and the bytes that it moves, by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

import paleo
from paleo.core.kinds import Fusion, Pass
from paleo.core.operations import Operation
from paleo.net.compiled import compiled_forward, gains_channels_last
from paleo.net.fusion import fused_forward
from paleo.net.graph import Graph
from paleo.net.handled import with_autocast, with_views
from paleo.step.passes import keep_shape

#: Rows of 8 numbers, 6 a sample.
N, T, D = 2, 6, 8
ROWS = N * T * D
DATA = {"type": "Input", "parents": [], "tensor": [N, T, D]}
#: Images of 4 x 4 x 8.
IMAGES = {"type": "Input", "parents": [], "tensor": [N, 4, 4, D]}
IMAGE = N * 4 * 4 * D


def layer(kind: str, *parents: str, **keys: Any) -> dict[str, Any]:
    return {"type": kind, "parents": [*parents], **keys}


def fc(parent: str, **keys: Any) -> dict[str, Any]:
    return layer("InnerProduct", parent, num_outputs=D, axis=-1, use_bias=False, **keys)


def conv(parent: str, size: int = 1, taken: int = D) -> dict[str, Any]:
    """Return a convolution of whose input each filter takes so many channels, as groups do."""
    return layer(
        "Convolution", parent, filter=[size, size, taken, D], strides=[1, 1, 1, 1],
        padding="SAME", use_bias=False, groups=D // taken,
    )  # fmt: skip


def summed(*parents: str) -> dict[str, Any]:
    return layer("Elementwise", *parents, function="sum")


def graph_of(data: dict[str, Any] = DATA, dtype: str = "fp16", **layers: dict[str, Any]) -> Graph:
    text = json.dumps({"name": "compiled", "layers": {"data": data, **layers}})
    graph = paleo.build(paleo.loads(text), None, dtype, keep_shape)
    if dtype.startswith("mixed"):
        graph = with_autocast(graph)
    return with_views(graph)


def made(graph: Graph) -> dict[str, list[tuple[set[str], list[int], list[int]]]]:
    """Return for each layer with kernels their parts, and the bytes that they read and write."""
    found = compiled_forward(graph).operations

    def shown(operation: Operation) -> tuple[set[str], list[int], list[int]]:
        names = set(operation.name.split(" + "))
        return names, sorted(map(int, operation.reads)), sorted(map(int, operation.writes))

    return {
        node.name: [*map(shown, found[node.index])] for node in graph.nodes if found[node.index]
    }


def test_a_sum_and_the_normalization_of_it_are_one_kernel_that_writes_both() -> None:
    graph = graph_of(
        a=fc("data"), sum=summed("a", "data"), norm=layer("LayerNorm", "sum"), b=fc("norm"),
        again=summed("sum", "b"),
    )  # fmt: skip
    found = made(graph)
    # The sum is read later on, too. What is added to it then is made of what this kernel gives.
    one = ({"layernorm", "elementwise"}, [2 * ROWS] * 2, [2 * ROWS] * 2)
    assert found["sum"] == [one]
    assert "norm" not in found
    assert found["again"] == [({"elementwise"}, [2 * ROWS] * 2, [2 * ROWS])]


def test_what_is_computed_in_fp32_is_written_in_halves_for_a_product() -> None:
    graph = graph_of(
        dtype="mixed_fp16", a=fc("data"), norm=layer("LayerNorm", "a"), b=fc("norm"),
        sum=summed("norm", "b"), c=fc("sum"),
    )  # fmt: skip
    found = made(graph)
    # The samples come in fp32, and no kernel makes them: one casts them.
    assert found["a"][0] == ({"copy"}, [4 * ROWS], [2 * ROWS])
    # The sum reads the normalization in fp32: so it is written.
    assert found["norm"] == [({"layernorm"}, [2 * ROWS], [4 * ROWS])]
    assert found["sum"] == [({"elementwise"}, [2 * ROWS, 4 * ROWS], [2 * ROWS])]


def test_a_gate_is_computed_where_it_multiplies() -> None:
    # Squeeze and excitation: the mean is taken where its input is made; the product takes that
    # and the gate, of which a number a channel is read.
    graph = graph_of(
        IMAGES,
        a=conv("data"), norm=layer("BatchNorm", "a"),
        silu=layer("Activation", "norm", function="silu"),
        mean=layer("GlobalPooling", "silu"), squeezed=conv("mean"),
        gate=layer("Activation", "squeezed", function="sigmoid"),
        product=layer("Elementwise", "silu", "gate", function="product"), b=conv("product"),
    )  # fmt: skip
    found = made(graph)
    of_mean = 2 * N * D
    (kernel,) = found["norm"]
    assert kernel[1:] == ([2 * IMAGE], [of_mean, 2 * IMAGE])
    assert {"batchnorm", "silu"} < kernel[0]
    (gated,) = found["gate"]
    assert gated == ({"sigmoid", "elementwise"}, [of_mean, 2 * IMAGE], [2 * IMAGE])


def test_two_branches_are_one_kernel_with_their_sum() -> None:
    graph = graph_of(
        IMAGES,
        a=conv("data"), left=layer("BatchNorm", "a"), b=conv("data"), right=layer("BatchNorm", "b"),
        sum=summed("left", "right"), relu=layer("Activation", "sum", function="relu"),
    )  # fmt: skip
    names = {"batchnorm", "elementwise", "relu"}
    assert made(graph)["right"] == [(names, [2 * IMAGE] * 2, [2 * IMAGE])]
    assert "left" not in made(graph)


def test_sums_over_rows_of_different_length_are_kernels_apart() -> None:
    graph = graph_of(
        a=fc("data"), norm=layer("LayerNorm", "a"), softmax=layer("Softmax", "norm", dim=1),
    )  # fmt: skip
    found = made(graph)
    assert [each for name in ("norm", "softmax") for each, *_ in found[name]] == [
        {"layernorm"},
        {"softmax"},
    ]


def test_a_copy_into_order_is_where_the_kernel_before_writes() -> None:
    graph = graph_of(
        IMAGES,
        norm=layer("LayerNorm", "data"),
        cut=layer("Reshape", "norm", output_shape=[-1, 2, 2, 2, 2, D]),
        turned=layer("Transpose", "cut", perm=[0, 1, 3, 2, 4, 5]),
        windows=layer("Reshape", "turned", output_shape=[-1, 4, 4, D]),
        a=fc("windows"),
    )  # fmt: skip
    found = made(graph)
    assert found["norm"] == [({"layernorm", "copy"}, [2 * IMAGE], [2 * IMAGE])]
    assert set(found) == {"norm", "a"}


def test_joined_tensors_are_written_in_place_or_copied() -> None:
    graph = graph_of(
        a=fc("data"), relu=layer("Activation", "a", function="relu"), b=fc("data"),
        joined=layer("Concatenate", "relu", "b"), c=fc("joined"),
    )  # fmt: skip
    found = made(graph)
    # A kernel makes the one, a library the other.
    assert found["relu"] == [({"relu"}, [2 * ROWS], [2 * ROWS])]
    assert found["joined"] == [({"copy"}, [2 * ROWS], [2 * ROWS])]


def test_it_is_what_compiled_nets_run_in_inference_alone() -> None:
    graph = graph_of(
        a=fc("data"),
        norm=layer("LayerNorm", "a"),
        relu=layer("Activation", "norm", function="relu"),
    )
    compiled = fused_forward(graph, training=False, fusion=Fusion.STREAMS).operations[Pass.FORWARD]
    assert [len(own) for own in compiled] == [0, 1, 1, 0]
    training = fused_forward(graph, fusion=Fusion.STREAMS).operations[Pass.FORWARD]
    assert [len(own) for own in training] == [0, 1, 1, 0]


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ({"a": conv("data", 3)}, True),
        # 4 channels a group: 1.358 times as long, by TorchInductor's figures.
        ({"a": conv("data", 3, taken=D // 2)}, False),
        # Of one channel each they are not counted as groups.
        ({"a": conv("data", 3, taken=1)}, True),
        # 9 x 4 products a channel in groups and 16 x 8 of few channels: 0.22 and 0.78 of all, so
        # 0.22 x 1.358 + 0.78 x 0.783 = 0.91 of the time.
        ({"a": conv("data", 3, taken=D // 2), "b": conv("a", 4)}, True),
        ({}, True),
    ],
)
def test_grouped_convolutions_may_keep_images_as_given(
    layers: dict[str, dict[str, Any]], expected: bool
) -> None:
    assert gains_channels_last(graph_of(IMAGES, "fp16", **layers)) is expected
