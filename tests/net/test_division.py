"""Nets divided over devices that share their layers: what each has, and what they exchange.

Letters: b samples, s positions, h hidden size.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

import paleo
from paleo.core.errors import SettingError
from paleo.core.operations import Pass
from paleo.net.division import (
    WORDS,
    divided,
    divided_by_experts,
    divided_by_positions,
)
from paleo.net.generators import transformer
from paleo.net.graph import Graph, build
from paleo.net.layers.exchanges import AllReduce
from paleo.net.spec import NetSpec
from paleo.step.scenario import scenario

BOTH = (Pass.FORWARD, Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT)


def llama(hidden: int = 64, heads: int = 8, kv_heads: int = 4, seq: int = 32) -> NetSpec:
    return transformer(
        layers=3, hidden=hidden, heads=heads, kv_heads=kv_heads, ffn=4 * hidden, vocab=1024,
        seq_len=seq,
    )  # fmt: skip


def messages(graph: Graph, *passes: Pass) -> list[tuple[str, int]]:
    """Return the operation and bytes of every message, in the order of the graph."""
    return [
        (each.operation, int(each.num_bytes))
        for node in graph.nodes
        for direction in passes
        for each in node.layer.messages(direction, node.inputs, graph.element_size)
    ]


def of_block(graph: Graph, number: int, *passes: Pass) -> list[tuple[str, int]]:
    nodes = [node for node in graph.nodes if f"/{number}/" in node.name]
    part = Graph(graph.name, tuple(nodes), graph.dtype)
    return messages(part, *passes)


def products(graph: Graph) -> int:
    """Return the FLOPs of products of all passes."""
    return sum(
        int(each.flops)
        for node in graph.nodes
        for direction in BOTH
        for each in graph.operations(node, direction)
        if each.kind.name in ("MATMUL", "ATTENTION")
    )


@pytest.mark.parametrize("sequence", [False, True])
def test_each_device_has_its_share_of_the_parameters_and_products(sequence: bool) -> None:
    net, ways = llama(), 4
    whole, part = build(net, 2), build(divided(net, ways, sequence=sequence), 2)
    norms = (2 * 3 + 1) * 64  # two a block and one at the end, on every device
    assert part.num_params == (whole.num_params - norms) // ways + norms
    assert products(part) == products(whole) // ways


def test_a_block_sums_up_twice_forward_and_twice_backward() -> None:
    """Megatron-LM, arXiv:1909.08053, section 3: two all-reduces of b s h in each pass."""
    b, s, h = 2, 32, 64
    graph = build(divided(llama(h, seq=s), 4), b, "bf16")
    size = 2 * b * s * h
    assert of_block(graph, 1, Pass.FORWARD) == [("all_reduce", size)] * 2
    assert of_block(graph, 1, Pass.INPUT_GRADIENT) == [("all_reduce", size)] * 2
    assert of_block(graph, 1, Pass.WEIGHT_GRADIENT) == []


def test_with_positions_divided_a_block_gathers_and_scatters() -> None:
    """arXiv:2205.05198, section 4.2.2: as many bytes cross, and what is gathered is not kept.

    Backward each gathers what it read once more, for the gradient of its parameters.
    """
    b, s, h = 2, 32, 64
    graph = build(divided(llama(h, seq=s), 4, sequence=True), b, "bf16")
    size = 2 * b * s * h
    gather, scatter = ("all_gather", size), ("reduce_scatter", size)
    assert of_block(graph, 1, Pass.FORWARD) == [gather, scatter] * 2
    assert of_block(graph, 1, Pass.INPUT_GRADIENT) == [gather, scatter, gather] * 2
    norms = [node for node in graph.nodes if node.type_name == "RMSNorm"]
    assert {node.output for node in norms} == {(b, s // 4, h)}
    sums = [node for node in graph.nodes if node.name.endswith(("add_1", "add_2"))]
    assert {node.output for node in sums} == {(b, s // 4, h)}


def test_words_are_added_until_all_devices_have_as_many() -> None:
    """Megatron-LM pads GPT-2's 50,257 words to 50,304 = 393 x 128 on one device."""
    net = paleo.load("gpt2")
    ways = 8
    part = build(divided(net, ways), 1)
    padded = 128 * ways * 50
    assert 50257 <= padded < 50257 + WORDS * ways
    by_name = {node.name: node for node in part.nodes}
    assert by_name["wte"].num_params == padded // ways * 768
    assert by_name["wte"].output == (1, 1024, 768)


def test_gradients_of_what_has_none_are_not_summed() -> None:
    graph = build(divided(llama(), 2), 1)
    names = [node.name for node in graph.nodes[:3]]
    assert names == ["words", "embed_tokens", "embed_tokens/all_reduce"]


def test_a_router_sees_whole_features() -> None:
    """Scores of experts are taken together, so that their product cannot be divided."""
    part = build(divided(paleo.load("mixtral_8x7b"), 2), 1)
    gate = next(node for node in part.nodes if node.name.endswith("layers/0/mlp/gate"))
    assert gate.output == (1, 4096, 8)
    up = next(
        node for node in part.nodes if node.name.endswith("layers/0/mlp/experts/gate_up_proj")
    )
    assert up.output == (1, 4096, 2, 14336)


def test_convolutions_are_divided_by_channels() -> None:
    """Of two convolutions one gives a part of its channels, and the next sums up what it makes."""
    layers: dict[str, Any] = {
        "data": {"type": "Input", "parents": [], "tensor": [2, 8, 8, 4]},
        "one": _convolution("data", 4, 16),
        "relu": {"type": "Activation", "parents": ["one"], "function": "relu"},
        "two": _convolution("relu", 16, 8),
    }
    net = paleo.loads(json.dumps({"name": "net", "layers": layers}))
    graph = build(divided(net, 2), 2)
    shapes = {node.name: (node.type_name, node.output[-1]) for node in graph.nodes}
    assert shapes["one"] == ("Convolution", 8)
    assert shapes["two"] == ("Convolution", 8)
    assert [node.num_params for node in graph.nodes] == [0, 3 * 3 * 4 * 8 + 8, 0, 3 * 3 * 8 * 8 + 8]


def _convolution(parent: str, channels: int, filters: int) -> dict[str, Any]:
    return {
        "type": "Convolution", "parents": [parent], "filter": [3, 3, channels, filters],
        "strides": [1, 1, 1, 1], "padding": "SAME",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("ways", "kv_heads", "said"),
    [(3, 4, "8 and 4 heads of layers/./attention/attention"), (8, 4, "8 and 4 heads")],
)
def test_what_does_not_divide_is_said(ways: int, kv_heads: int, said: str) -> None:
    with pytest.raises(SettingError, match=f"tp: {said}.* do not divide {ways} ways"):
        divided(llama(kv_heads=kv_heads), ways)


def test_a_net_of_which_nothing_divides_is_said() -> None:
    with pytest.raises(SettingError, match="tp: nothing of lenet5 divides 7 ways"):
        divided(paleo.load("lenet5"), 7)


def test_positions_are_divided_and_keys_pass_a_ring() -> None:
    """A causal query sees half of the keys on average, dealt out evenly."""
    b, s, cp = 1, 32, 4
    whole = build(llama(seq=s), b, "bf16")
    part = build(divided_by_positions(llama(seq=s), cp, "ring"), b, "bf16")
    assert part.num_params == whole.num_params
    attention = [node for node in part.nodes if node.layer.is_attention]
    assert {node.inputs for node in attention} == {
        ((b, 8, s // cp, 8), (b, 4, s // 2, 8), (b, 4, s // 2, 8))
    }
    rings = [node for node in part.nodes if node.type_name == "Ring"]
    assert len(rings) == 2 * 3
    # All keys, and all values, of 4 heads with 8 features: once forward, with gradients backward.
    size = 2 * b * 4 * s * 8
    assert messages(part, Pass.FORWARD) == [("all_gather", size)] * 6
    assert messages(part, Pass.INPUT_GRADIENT) == [("all_gather", size)] * 12


def test_positions_are_divided_and_heads_swapped() -> None:
    """DeepSpeed-Ulysses: each device has all positions of its heads in attention."""
    b, s, cp = 1, 32, 4
    part = build(divided_by_positions(llama(seq=s), cp, "all_to_all"), b, "bf16")
    attention = [node for node in part.nodes if node.layer.is_attention]
    assert {node.inputs for node in attention} == {((b, 2, s, 8), (b, 1, s, 8), (b, 1, s, 8))}
    # Queries and what comes of them have 8 heads of 8 features, keys and values 4.
    queries, keys = (2 * b * heads * (s // cp) * 8 for heads in (8, 4))
    swaps = [("all_to_all", size) for size in (queries, keys, keys, queries)]
    assert messages(part, Pass.FORWARD) == 3 * swaps


@pytest.mark.parametrize(
    ("net", "ways", "how", "said"),
    [
        ("llama", 3, "ring", "32 positions of words do not divide 3 ways"),
        ("llama", 8, "all_to_all", "4 heads of .* do not divide 8 ways"),
        ("lenet5", 2, "ring", "lenet5 has no layer of type Attention"),
    ],
)
def test_positions_that_do_not_divide_are_said(net: str, ways: int, how: str, said: str) -> None:
    spec = llama() if net == "llama" else paleo.load(net)
    with pytest.raises(SettingError, match=f"cp: {said}"):
        divided_by_positions(spec, ways, how)


def test_experts_are_divided_and_rows_sent_to_them() -> None:
    """Two all-to-alls of tokens x k x h forward, and two backward, in each block."""
    net = paleo.load("mixtral_8x7b")
    whole, part = build(net, 1, "bf16"), build(divided_by_experts(net, 4), 1, "bf16")
    experts = 32 * 8 * (2 * 14336 + 14336) * 4096
    assert part.num_params == whole.num_params - experts + experts // 4
    size = 2 * 4096 * 2 * 4096
    for direction in (Pass.FORWARD, Pass.INPUT_GRADIENT):
        assert of_block(part, 5, direction) == [("all_to_all", size)] * 2


@pytest.mark.parametrize(
    ("net", "ways", "said"),
    [
        ("mixtral_8x7b", 3, "8 experts of .* do not divide 3"),
        ("gpt2", 2, "no layer of type Experts"),
    ],
)
def test_experts_that_do_not_divide_are_said(net: str, ways: int, said: str) -> None:
    with pytest.raises(SettingError, match=f"ep: .*{said}"):
        divided_by_experts(paleo.load(net), ways)


def test_all_of_them_together() -> None:
    """Positions 2 ways, experts 4 ways, tensors 2 ways with positions divided again."""
    part = divided_by_positions(paleo.load("mixtral_8x7b"), 2, "ring")
    part = divided(divided_by_experts(part, 4), 2, sequence=True)
    graph = build(part, 1)
    norms = (2 * 32 + 1) * 4096
    routers = 32 * 8 * 4096
    experts = 32 * 8 * 3 * 14336 * 4096
    others = 2 * 32000 * 4096 + 32 * (2 * 4096 * 4096 + 2 * 1024 * 4096)
    assert graph.num_params == experts // 8 + others // 2 + norms + routers


def test_a_head_with_its_loss_is_divided_by_words() -> None:
    net = plan_of("fused_linear").trained(llama())
    graph = build(divided(net, 4), 2)
    (head,) = (node for node in graph.nodes if node.type_name == "LinearCrossEntropy")
    assert head.num_params == 1024 // 4 * 64
    # Its loss is the sum of what each device has of a sample's.
    assert graph.nodes[-1].type_name == "AllReduce"
    assert graph.nodes[-1].output == (2, 1)


def test_norms_of_all_heads_sum_squares() -> None:
    """OLMo 2 1B: 16 layers of 16 heads of 128, of which queries and keys are normalized."""
    net = paleo.load("olmo2_1b", dims={"seq": 8})
    whole, part = (build(divided(net, 4, norms=norms), 3) for norms in (False, True))
    widths = {"q_proj": 2048, "k_proj": 2048, "v_proj": 512}
    for graph, divides in ((whole, 1), (part, 4)):
        made = {node.name: node.output[-1] for node in graph.nodes}
        for name, width in widths.items():
            expected = width if name == "v_proj" else width // divides
            assert made[f"model/layers/1/self_attn/{name}"] == expected
    # A number of 4 bytes for each of 3 x 8 positions, of queries and of keys, and their gradients.
    squares = [("all_reduce", 3 * 8 * 4)] * 2
    of_block = [
        message
        for node in part.nodes
        if "layers/1/" in node.name and isinstance(node.layer, AllReduce) and node.layer.squares
        for direction in BOTH
        for each in node.layer.messages(direction, node.inputs, part.element_size)
        for message in [(each.operation, int(each.num_bytes))]
    ]
    assert of_block == 2 * squares
    assert not any(getattr(node.layer, "squares", 0) for node in whole.nodes)


def plan_of(loss: str) -> Any:
    return scenario(llama(), device="A100_SXM_80GB", loss=loss).plan
