"""What frameworks do with gradients of parameters: by hand."""

from __future__ import annotations

from typing import Any

import paleo
from paleo.cluster.frameworks import FRAMEWORKS
from paleo.core.operations import Pass, Stream
from paleo.net.parameters import added
from paleo.step.passes import computed_by, updated_in


def test_each_tensor_is_filled_and_added_to() -> None:
    # 1,000 parameters of 4 bytes in 2 tensors: 2,000 bytes each.
    operations = added(1000, 2, 4)
    assert [(each.reads, each.writes) for each in operations] == [
        ((), (2000,)),
        ((2000, 2000), (2000,)),
    ] * 2


def test_pytorch_before_2_adds_gradients_of_each_layer() -> None:
    graph = paleo.build(paleo.load("lenet5"), 8)
    older = computed_by(FRAMEWORKS["pytorch1"], graph)
    moved: Any = 0
    for node, other in zip(graph.nodes, older.nodes, strict=True):
        alone = graph.operations(node, Pass.WEIGHT_GRADIENT)
        found = older.operations(other, Pass.WEIGHT_GRADIENT)
        assert found[: len(alone)] == alone
        more = found[len(alone) :]
        # A weight and a bias each: a fill and a sum for both.
        assert len(more) == (4 if node.num_params else 0)
        assert all(isinstance(each, Stream) for each in more)
        moved += sum(each.work.num_bytes for each in more)
    # P is written for the zeros; 2 P are read and P is written for the sum.
    assert moved == 4 * 4 * graph.num_params


def test_half_precision_parameters_are_half_as_large() -> None:
    graph = computed_by(FRAMEWORKS["pytorch1"], paleo.build(paleo.load("lenet5"), 8, "fp16"))
    fills = [
        each
        for node in graph.nodes
        for each in graph.operations(node, Pass.WEIGHT_GRADIENT)
        if each.name == "zero gradient"
    ]
    assert sum(each.writes[0] for each in fills) == 2 * graph.num_params


def test_autocast_casts_parameters_of_products_in_every_step() -> None:
    graph = paleo.build(paleo.load("lenet5"), 8, "mixed_fp16")
    found = computed_by(FRAMEWORKS["pytorch"], graph)
    casts = [
        (node, each)
        for node in found.nodes
        for direction in (Pass.FORWARD, Pass.WEIGHT_GRADIENT)
        for each in found.operations(node, direction)
        if each.name in ("cast of parameters", "cast of gradients")
    ]
    # A filter and a bias of each layer: read in 4 bytes and written in 2, and back.
    trained = [node for node in found.nodes if node.num_params]
    assert len(casts) == 2 * 2 * len(trained)
    assert sum(each.work.num_bytes for _, each in casts) == 2 * (4 + 2) * graph.num_params
    # TensorFlow's graph does not, and what casts in its passes has none in its update.
    plain = computed_by(FRAMEWORKS["tensorflow"], graph)
    assert not any(node.num_weight_casts for node in plain.nodes)
    assert updated_in(FRAMEWORKS["pytorch"], "mixed_fp16") == "fp32"
    assert updated_in(FRAMEWORKS["tensorflow"], "mixed_fp16") == "mixed_fp16"
    assert updated_in(FRAMEWORKS["pytorch"], "bf16") == "bf16"


def test_gradients_of_layer_normalizations_are_summed_by_blocks_of_16_columns_in_pytorch_1(
    net: Any,
) -> None:
    layers = {
        "data": {"type": "Input", "tensor": [8, 100]},
        "norm": {"type": "LayerNorm", "parents": ["data"]},
    }
    graph = paleo.build(net(layers))
    found = {}
    for name in ("pytorch1", "pytorch"):
        node = computed_by(FRAMEWORKS[name], graph).nodes[-1]
        sums, *_ = computed_by(FRAMEWORKS[name], graph).operations(node, Pass.WEIGHT_GRADIENT)
        assert isinstance(sums, Stream)
        found[name] = (sums.blocks, sums.width, sums.run)
    # 100 columns are 6 blocks of 16 and one of 4; a lane loads 4 bytes, 16 lanes 64 side by side.
    assert found == {"pytorch1": (7, 4, 64), "pytorch": (0, 0, 0)}


def test_one_block_a_column_reads_a_column_and_paddle_writes_the_gradient_of_the_input_too(
    net: Any,
) -> None:
    layers = {
        "data": {"type": "Input", "tensor": [8, 100]},
        "norm": {"type": "LayerNorm", "parents": ["data"]},
        "fc": {"type": "InnerProduct", "parents": ["norm"], "num_outputs": 50},
    }
    plain = paleo.build(net(layers))

    def sums(name: str, k: int) -> Any:
        graph = computed_by(FRAMEWORKS[name], plain)
        return graph.operations(graph.nodes[k], Pass.WEIGHT_GRADIENT)[-1]

    # 8 x 100 numbers of the gradient and the input are read, two sums of 100 written; a block for
    # each column loads 4 bytes at a time, and no two that lie side by side.
    rows, of_bias = 4 * 8 * 100, 4 * 8 * 50
    for name, written in (("mindspore", (2 * 400,)), ("paddle", (2 * 400, rows))):
        found = sums(name, 1)
        assert (found.reads, found.writes) == ((rows, rows), written)
        assert (found.blocks, found.width, found.run) == (100, 4, 4)
    bias = sums("paddle", 2)
    assert (bias.reads, bias.writes) == ((of_bias,), (200, of_bias))
    assert (bias.blocks, bias.width, bias.run) == (50, 4, 4)
    bias = sums("mindspore", 2)
    assert (bias.writes, bias.blocks, bias.run) == ((200,), 0, 0)
