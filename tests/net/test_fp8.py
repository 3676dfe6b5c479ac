"""Products in fp8: what is cast, kept, sent and multiplied, in bytes by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

import paleo
from paleo.core.kinds import Fusion, Pass
from paleo.core.operations import Fused, MatMul
from paleo.core.scaling import SCALINGS
from paleo.core.tensor import find_precision
from paleo.net.division import divided, divided_by_experts
from paleo.net.fusion import fused_forward
from paleo.net.graph import Graph, Node
from paleo.net.scaled import messages, weight_casts, weight_copies
from paleo.step.memory.usage import Step
from paleo.step.optimizers import OPTIMIZERS
from paleo.step.passes import BACKWARD, keep_shape, kernels
from paleo.step.passes import FORWARD as FORWARD_PASS
from paleo.studies.mesh_memory import mesh_memory

#: Two texts of T words of H numbers: rows of 64, which three products read.
N, T, H, WIDE, WORDS = 2, 32, 64, 128, 100
ROWS = N * T
TILED = paleo.find_cost_model("tiled")
FORWARD, INWARD, OF_WEIGHTS = Pass.FORWARD, Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT
DELAYED, TENSORWISE = "mixed_fp8_delayed", "mixed_fp8_tensorwise"
BLOCKWISE, MXFP8 = "mixed_fp8_blockwise", "mixed_mxfp8"


def fc(*parents: str, outputs: int = H, bias: bool = False) -> dict[str, Any]:
    return {
        "type": "InnerProduct",
        "parents": [*parents],
        "num_outputs": outputs,
        "axis": -1,
        "use_bias": bias,
    }


LAYERS = {
    "words": {"type": "Input", "parents": [], "tensor": [N, T]},
    "table": {"type": "Embedding", "parents": ["words"], "num_embeddings": WORDS, "num_outputs": H},
    "norm": {"type": "RMSNorm", "parents": ["table"]},
    "gate": fc("norm", outputs=WIDE),
    "up": fc("norm", outputs=WIDE),
    "act": {"type": "Gated", "parents": ["gate", "up"], "function": "silu"},
    "down": fc("act"),
    "add": {"type": "Elementwise", "parents": ["table", "down"]},
    "odd": fc("add", outputs=H + 8),  # 72 is no multiple of 16
    "back": fc("odd"),
    "head": fc("back", outputs=WORDS),
}


def net_of(layers: dict[str, Any]) -> paleo.NetSpec:
    return paleo.loads(json.dumps({"name": "small", "layers": layers}))


def graph_of(dtype: str = DELAYED, layers: dict[str, Any] | None = None) -> Graph:
    return paleo.build(net_of(layers or LAYERS), None, dtype, keep_shape)


def node_of(graph: Graph, name: str) -> Node:
    return next(node for node in graph.nodes if node.name == name)


def done(graph: Graph, name: str, direction: Pass) -> list[tuple[str, Any, Any]]:
    """Return the operations of a layer: what each is, bytes read, bytes written."""
    operations = graph.operations(node_of(graph, name), direction)
    return [(f"{each.name} {each.dtype}".strip(), each.reads, each.writes) for each in operations]


def scaled(graph: Graph) -> list[str]:
    return [node.name for node in graph.nodes if node.scaled]


def test_linear_layers_whose_sides_fit_multiply_in_fp8_but_not_the_last() -> None:
    # 72 does not divide by 16: neither what gives 72 numbers nor what takes them; the head has
    # scores, and 100 does not divide anyway.
    assert scaled(graph_of()) == ["gate", "up", "down"]
    assert scaled(graph_of("mixed_bf16")) == []
    scores = {**LAYERS, "head": fc("back", outputs=4 * H)}
    assert "head" not in scaled(graph_of(DELAYED, scores))


def test_fused_nets_have_the_same_casts() -> None:
    layers = {**LAYERS, "gate": fc("norm", outputs=WIDE, bias=True)}
    graph = graph_of(TENSORWISE, layers)
    for fusion in (Fusion.ALL, Fusion.STREAMS, Fusion.BIAS):
        for directions, training in ((FORWARD_PASS, True), (FORWARD_PASS, False), (BACKWARD, True)):
            found = kernels(graph, directions, TILED, fusion=fusion, training=training)
            names = [each.name for own in found.of for _, each in own]
            is_back = directions is BACKWARD
            # Two inputs, which three products read; three gradients.
            assert names.count("cast to fp8") == names.count("largest number") == 2 + is_back
            assert sum("matmul" in name for name in names) == 6 * (1 + is_back)
    # The gradient of what was gated is made by the product that reads it.
    found = kernels(graph, BACKWARD, TILED, fusion=Fusion.ALL)
    assert "act" in {graph.nodes[i].name for i in found.into}


def test_a_net_that_ends_in_a_sum_as_stages_do_has_no_scores() -> None:
    names = ("words", "table", "norm", "gate", "up", "act", "down", "add")
    assert scaled(graph_of(DELAYED, {name: LAYERS[name] for name in names})) == [
        "gate", "up", "down",
    ]  # fmt: skip
    on: dict[str, Any] = {"device": "H100_SXM", "network": "nvlink4", "workers": 2, "pp": 2}
    net = paleo.load("gpt2").with_dims(seq=128)
    halves, bytes_ = (
        mesh_memory(net, dtype=dtype, batch_size=1, loss="none", **on)[0].stages[1]
        for dtype in ("mixed_bf16", DELAYED)
    )
    # Six blocks of 12 H^2 weights, in two copies. Of a word the products keep what two norms gave,
    # H numbers each, what attention gave in order, H, and 4 H of the widened layer.
    assert bytes_.weights - halves.weights == 6 * 2 * 12 * 768**2
    assert halves.activations - bytes_.activations == 6 * 128 * (1 + 1 + 1 + 4) * 768


def test_an_input_is_cast_once_and_sums_come_in_two_bytes() -> None:
    graph, numbers = graph_of(), ROWS * H
    product = ("matmul fp8", (numbers, H * WIDE), (2 * ROWS * WIDE,))
    assert done(graph, "gate", FORWARD) == [
        ("cast to fp8", (2 * numbers,), (2 * numbers,)),
        product,
    ]
    assert done(graph, "up", FORWARD) == [product]  # which reads the same
    # Each has a gradient of its own, cast once for both products of it.
    given = ROWS * WIDE
    assert done(graph, "up", INWARD) == [
        ("cast to fp8", (2 * given,), (2 * given,)),
        ("matmul fp8", (given, H * WIDE), (2 * numbers,)),
    ]
    assert done(graph, "up", OF_WEIGHTS) == [("matmul fp8", (numbers, given), (2 * H * WIDE,))]


def test_where_no_gradient_goes_on_that_of_the_weights_has_the_cast() -> None:
    layers = {
        "data": {"type": "Input", "parents": [], "tensor": [32, H]},
        "first": fc("data"),
        "last": fc("first", outputs=WIDE),
    }
    graph = graph_of(DELAYED, layers)
    assert scaled(graph) == ["first"]
    names = [name for name, _, _ in done(graph, "first", OF_WEIGHTS)]
    assert names == ["cast to fp8", "matmul fp8"]


@pytest.mark.parametrize(
    ("dtype", "scales"),
    # Of 64 x 64 numbers: none, none, 4 bytes for each 128, one byte for each 32; of both copies.
    [(DELAYED, 0), (TENSORWISE, 0), (BLOCKWISE, 2 * 4 * 4096 // 128), (MXFP8, 2 * 4096 // 32)],
)
def test_scales_are_written_and_found(dtype: str, scales: int) -> None:
    operations = done(graph_of(dtype), "gate", FORWARD)
    numbers = ROWS * H
    cast = ("cast to fp8", (2 * numbers,), (2 * numbers + scales,))
    looked = [("largest number", (2 * numbers,), ())] if dtype == TENSORWISE else []
    assert operations[:-1] == [*looked, cast]


def test_weights_are_cast_once_a_step_and_two_copies_stay() -> None:
    graph = graph_of()
    (cast,) = weight_casts(graph, node_of(graph, "gate"))
    assert (cast.reads, cast.writes) == ((2 * H * WIDE,), (2 * H * WIDE,))
    assert weight_casts(graph, node_of(graph, "head")) == ()
    assert dict(zip([node.name for node in graph.nodes], weight_copies(graph), strict=True)) == {
        **dict.fromkeys(LAYERS, 0),
        **dict.fromkeys(("gate", "up", "down"), 2 * H * WIDE),
    }


def test_a_router_stays_in_two_bytes_and_experts_do_not() -> None:
    layers = {
        "data": {"type": "Input", "parents": [], "tensor": [N, T, H]},
        "before": fc("data"),
        "router": fc("before", outputs=16),
        "scores": {"type": "Softmax", "parents": ["router"], "dim": -1},
        "chosen": {"type": "TopK", "parents": ["scores"], "k": 2},
        "dispatch": {"type": "Dispatch", "parents": ["before", "chosen"]},
        "experts": {
            "type": "Experts",
            "parents": ["dispatch"],
            "num_experts": 16,
            "num_outputs": WIDE,
            "use_bias": False,
        },
        "narrow": {
            "type": "Experts",
            "parents": ["experts"],
            "num_experts": 16,
            "num_outputs": H,
            "use_bias": False,
        },
        "combine": {"type": "Combine", "parents": ["narrow", "chosen"]},
        "last": fc("combine"),
    }
    graph = graph_of(DELAYED, layers)
    assert scaled(graph) == ["before", "experts", "narrow"]
    rows = 2 * ROWS  # two experts a token
    cast, product = done(graph, "experts", FORWARD)
    assert cast == ("cast to fp8", (2 * rows * H,), (2 * rows * H,))
    assert product == ("experts fp8", (rows * H, 16 * H * WIDE), (2 * rows * WIDE,))
    (weights,) = done(graph, "experts", OF_WEIGHTS)
    assert weights == ("experts fp8", (rows * H, rows * WIDE), (2 * 16 * H * WIDE,))
    assert weight_copies(graph)[graph.nodes.index(node_of(graph, "experts"))] == 2 * 16 * H * WIDE


def kept(dtype: str, layers: dict[str, Any] | None = None) -> int:
    graph = graph_of(dtype, layers)
    return int(Step(graph, OPTIMIZERS["sgd"]).kept)


def test_what_is_kept_of_a_products_input_has_a_byte_a_number() -> None:
    # The norm's output is read by products alone, and so is the gate's; 2 bytes a number become 1,
    # with blocks 1/32 more of scales of 4 bytes for 128.
    numbers = ROWS * H + ROWS * WIDE
    assert kept("mixed_bf16") - kept(DELAYED) == numbers
    assert kept("mixed_bf16") - kept(BLOCKWISE) == numbers - numbers // 32


def test_weights_in_memory_have_two_copies_of_a_byte_more() -> None:
    one, other = (paleo.footprint(net_of(LAYERS), dtype=dtype) for dtype in ("mixed_bf16", DELAYED))
    assert other.weights - one.weights == 3 * 2 * H * WIDE
    assert other.gradients == one.gradients
    assert other.optimizer_state == one.optimizer_state


def test_devices_that_divide_positions_gather_in_fp8_and_cast_their_part() -> None:
    net = divided(net_of(LAYERS), 2, sequence=True)
    graph = paleo.build(net, None, DELAYED, keep_shape)
    plain = paleo.build(net, None, "mixed_bf16", keep_shape)
    gather = next(node for node in graph.nodes if node.name == "norm/all_gather")
    scatter = next(node for node in graph.nodes if node.name == "down/reduce_scatter")
    whole = ROWS * H

    def sent(graph: Graph, node: Node) -> list[tuple[str, int]]:
        return [
            (each.operation, int(each.num_bytes))
            for direction in (FORWARD, *BACKWARD)
            for each in messages(graph, node, direction)
        ]

    assert sent(graph, gather) == [
        ("all_gather", whole), ("all_gather", whole), ("reduce_scatter", 2 * whole),
    ]  # fmt: skip
    assert sent(plain, plain.nodes[gather.index])[0] == ("all_gather", 2 * whole)
    assert sent(graph, scatter) == [("reduce_scatter", 2 * whole), ("all_gather", whole)]
    # Each casts half of the input, and of the gradient that comes gathered.
    cast, _ = done(graph, "gate", FORWARD)
    assert cast == ("cast to fp8", (whole,), (whole,))
    cast, _ = done(graph, "down", INWARD)
    assert cast == ("cast to fp8", (whole,), (whole,))
    # Of the gathered input a device keeps its half, in fp8; of what it gated all, of half as wide.
    saved = int(Step(plain, OPTIMIZERS["sgd"]).kept) - int(Step(graph, OPTIMIZERS["sgd"]).kept)
    assert saved == whole // 2 + ROWS * WIDE // 2


def test_a_framework_that_casts_parameters_casts_those_to_fp8_from_fp32() -> None:
    plan = paleo.scenario(
        net_of(LAYERS), device="H100_SXM", dtype=DELAYED, framework="pytorch", loss="none"
    ).plan
    graph = plan.graph(net_of(LAYERS), None)
    names = [name for name, _, _ in done(graph, "gate", FORWARD)]
    assert "cast of parameters" not in names
    assert "cast of parameters" in [name for name, _, _ in done(graph, "head", FORWARD)]
    (cast,) = weight_casts(graph, node_of(graph, "gate"))
    assert (cast.reads, cast.writes) == ((4 * H * WIDE,), (2 * H * WIDE,))


@pytest.mark.parametrize(
    ("device", "dtype", "said"),
    [
        ("A100_SXM_80GB", DELAYED, "device A100_SXM_80GB has no peak for fp8; it has: "),
        ("H100_SXM", MXFP8, "dtype: mixed_mxfp8 takes matrix units that multiply blocks"),
    ],
)
def test_a_device_without_is_refused(device: str, dtype: str, said: str) -> None:
    with pytest.raises(paleo.PaleoError) as caught:
        paleo.simulate("gpt2", device=device, dtype=dtype, workers=1)
    (mistake,) = caught.value.mistakes
    assert str(mistake).startswith(said)
    assert "\n" not in str(mistake)


def test_a_step_in_fp8_is_quicker_and_its_parts_add_up() -> None:
    on: dict[str, Any] = {"cluster": "dgx_h100", "workers": 8, "tp": 2, "global_batch": 8}
    rows = {
        dtype: paleo.simulate("llama3_8b", dtype=dtype, micro_batch=1, **on)
        .runs[0]
        .rows[0]
        .to_dict()
        for dtype in ("mixed_bf16", DELAYED, TENSORWISE)
    }
    steps = {dtype: row["step_s"] for dtype, row in rows.items()}
    assert steps["mixed_bf16"] > steps[TENSORWISE] > steps[DELAYED] > steps["mixed_bf16"] / 2
    for row in rows.values():
        assert sum(row["parts"].values()) == pytest.approx(row["step_s"], rel=1e-12)
    assert rows["mixed_bf16"]["parts"]["weight_casts"] == 0
    assert rows[DELAYED]["parts"]["weight_casts"] > 0
    # As many FLOPs of a peak twice as large.
    shares = {dtype: row["mfu"] * row["step_s"] for dtype, row in rows.items()}
    assert shares["mixed_bf16"] == pytest.approx(2 * shares[DELAYED], rel=1e-3)


def test_types_say_what_they_multiply() -> None:
    for name, scaling in SCALINGS.items():
        kind = find_precision(name)
        assert (kind.computing, kind.learning, kind.multiplying) == ("bf16", "fp32", "fp8")
        assert kind.scaling is scaling
    assert SCALINGS[BLOCKWISE].size == 1 + 4 / 128
    assert SCALINGS[MXFP8].size == 1 + 1 / 32
    assert find_precision("mixed_bf16").multiplying == "bf16"


def test_experts_that_are_elsewhere_are_cast_where_their_rows_come() -> None:
    layers = {
        "data": {"type": "Input", "parents": [], "tensor": [N, T, H]},
        "router": fc("data", outputs=16),
        "chosen": {"type": "TopK", "parents": ["router"], "k": 2},
        "dispatch": {"type": "Dispatch", "parents": ["data", "chosen"]},
        "experts": {
            "type": "Experts",
            "parents": ["dispatch"],
            "num_experts": 16,
            "num_outputs": H,
            "use_bias": False,
        },
        "combine": {"type": "Combine", "parents": ["experts", "chosen"]},
        "last": fc("combine"),
    }
    net = divided_by_experts(net_of(layers), 4)
    graph = paleo.build(net, None, DELAYED, keep_shape)
    cast, product = done(graph, "experts", FORWARD)
    assert cast[1] == (2 * 2 * ROWS * H,)
    assert product[1] == (2 * ROWS * H, 4 * H * H)


def test_a_bias_and_a_function_are_in_the_kernel_of_a_product_in_fp8() -> None:
    """The input is cast by a kernel of its own; nothing is between product, bias and GELU."""
    layers = {
        "x": {"type": "Input", "parents": [], "tensor": [ROWS, H]},
        "fc": fc("x", outputs=WIDE, bias=True),
        "gelu": {"type": "Activation", "parents": ["fc"], "function": "gelu"},
        "back": fc("gelu"),
    }
    graph = graph_of(layers=layers)
    for fusion, tail in ((Fusion.ALL, 2), (Fusion.BIAS, 1)):
        cast, product = fused_forward(graph, fusion=fusion).operations[FORWARD][1]
        assert cast.work.num_bytes == ROWS * H * (2 + 2)  # a half read, two copies in fp8 written
        assert isinstance(product, Fused)
        assert isinstance(product.head, MatMul)
        assert (product.head.dtype, len(product.tail)) == ("fp8", tail)


def test_shards_of_the_optimizer_s_state_have_fp32_parameters_and_no_copies() -> None:
    """With ZeRO 1 two devices divide 4 bytes a parameter; 2 and both copies in fp8 each has."""
    net = paleo.load("gpt2").with_dims(seq=128)
    on: dict[str, Any] = {"device": "H100_SXM", "network": "nvlink4", "workers": 2, "zero": 1}
    (found,) = mesh_memory(net, dtype=DELAYED, batch_size=1, loss="none", **on)
    params, linear = 124439808, 12 * 12 * 768**2
    assert found.fullest.weights == 2 * params + 2 * params + 2 * linear
    assert paleo.footprint(net, 1, dtype=DELAYED).copies == 2 * params + 2 * linear
    assert paleo.footprint(net, 1, dtype="mixed_bf16").copies == 2 * params
    assert paleo.footprint(net, 1, dtype="bf16").copies == 0
