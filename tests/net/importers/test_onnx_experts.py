"""Mixtures of experts as ONNX files have them, made by hand: FLOPs and parameters by hand.

All have samples of 6 tokens of 16 features, and are counted for 2 samples. Each token goes to 2
of 4 experts, of a matrix of 16x24 and one of 24x16. So there are 2*6*2 = 24 rows, and a matrix
takes 2 * 24*16*24 = 18432 FLOPs; the router takes 2 * 12*16*4 = 1536 and has 16*4 parameters.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx_models import INT, Read, last, load, node, types
from products import counts

import paleo

__all__ = ["load"]

EVEN = "each expert of a mixture is taken to have as many rows as any other"

ROUTER, MATRIX = 1536, 18432
STACKED = 16 * 4 + 2 * 4 * 16 * 24
TOKENS = {"x": ["N", 6, 16]}


def test_matrices_that_are_read_for_each_row(load: Read) -> None:
    nodes = [
        node("MatMul", "x router", "scores"),
        node("TopK", "scores two", "gates chosen", axis=-1),
        node("Unsqueeze", "chosen end", "at"),
        node("GatherND", "up at", "ups"),
        node("GatherND", "down at", "downs"),
        node("Unsqueeze", "x middle", "rows"),
        node("MatMul", "rows ups", "between"),
        node("Relu", "between", "active"),
        node("MatMul", "active downs", "given"),
    ]
    weights: dict[str, Any] = {
        "router": (16, 4),
        "up": (4, 16, 24),
        "down": (4, 24, 16),
        "two": [2],
        "end": [-1],
        "middle": [2, 3],
    }
    net = load(nodes, TOKENS, weights)
    assert counts(net, 2)[:2] == (STACKED, ROUTER + 2 * MATRIX)


@pytest.mark.parametrize(
    ("at", "output"),
    [
        # Rows of a table, and its parts of 5 by two indices each.
        (["N", 7, 1], (1, 7, 3, 5)),
        (["N", 7, 2], (1, 7, 5)),
        # Single numbers of it.
        (["N", 7, 3], (1, 7)),
    ],
)
def test_parts_of_a_table(load: Read, at: list[Any], output: tuple[int, ...]) -> None:
    net = load([node("GatherND", "table at")], {"at": at}, {"table": (4, 3, 5)}, types={"at": INT})
    assert (counts(net)[0], last(net)[1]) == (60, output)


def test_parts_of_samples(load: Read) -> None:
    inputs = {**TOKENS, "at": ["N", 3, 2]}
    net = load([node("GatherND", "x at")], inputs, types={"at": INT})
    assert last(net)[1] == (1, 3, 16)


# Experts one after another, on the rows that a mask picks


BIASES = 4 * (24 + 16)
ONE_HOT = [
    node("OneHot", "chosen experts off_on", "hot", axis=-1),
    node("Transpose", "hot", "by_expert", perm=[2, 1, 0]),
]


def asked(how: str, i: int) -> tuple[list[Any], str]:
    """Ask which choices are of expert i; return the nodes and where rows stand among indices."""
    if how == "numbers":
        return [node("Equal", f"chosen is_{i}", f"mask_{i}")], "0"
    if how == "one hot":
        return [node("Gather", f"by_expert is_{i}", f"mask_{i}", axis=0)], "1"
    nodes = [
        node("Equal", f"chosen is_{i}", f"choices_{i}"),
        node("Cast", f"choices_{i}", f"cast_{i}", to=INT),
    ]
    if how == "truths":
        return [*nodes, node("ReduceMax", f"cast_{i} last", f"mask_{i}", keepdims=0)], "0"
    return [
        *nodes,
        node("ReduceSum", f"cast_{i} last", f"sum_{i}", keepdims=0),
        node("Greater", f"sum_{i} axis_0", f"mask_{i}"),
    ], "0"


def computed(how: str, i: int) -> list[Any]:
    """Compute the rows of expert i, in one of the ways in which files hold its weights."""
    rows, up, down = (f"{name}_{i}" for name in ("rows", "up", "down"))
    if how == "Gemm":
        first = [node("Gemm", f"{rows} {up} b_{up}", f"between_{i}", transB=1)]
        second = [node("Gemm", f"active_{i} {down} b_{down}", f"given_{i}")]
    elif how == "MatMul":
        first = [
            node("Transpose", up, f"turned_{i}", perm=[1, 0]),
            node("MatMul", f"{rows} turned_{i}", f"product_{i}"),
            node("Add", f"b_{up} product_{i}", f"between_{i}"),
        ]
        second = [
            node("MatMul", f"active_{i} {down}", f"made_{i}"),
            node("Add", f"made_{i} b_{down}", f"given_{i}"),
        ]
    else:
        first = [
            node("Gather", f"up is_{i}", up, axis=0),
            node("MatMul", f"{rows} {up}", f"between_{i}"),
        ]
        second = [
            node("Slice", f"down from_{i} to_{i} zero", f"part_{i}"),
            node("Squeeze", f"part_{i} zero", down),
            node("MatMul", f"active_{i} {down}", f"given_{i}"),
        ]
    return [*first, node("Relu", f"between_{i}", f"active_{i}"), *second]


def written(how: str, i: int) -> list[Any]:
    """Add the rows of expert i to what the experts before it gave."""
    before = f"y_{i - 1}" if i else "zeros"
    if how == "in place":
        return [node("ScatterND", f"{before} at_{i} given_{i}", f"y_{i}", reduction="add")]
    return [
        node("ConstantOfShape", "size", f"zeros_{i}"),
        node("Expand", f"at_{i} size_{i}", f"all_at_{i}"),
        node("ScatterElements", f"zeros_{i} all_at_{i} given_{i}", f"placed_{i}", axis=0),
        node("Add", f"{before} placed_{i}", f"y_{i}"),
    ]


def turn(i: int, ask: str = "numbers", compute: str = "Gemm", write: str = "in place") -> list[Any]:
    nodes, at = asked(ask, i)
    return [
        *nodes,
        node("NonZero", f"mask_{i}", f"found_{i}"),
        node("Gather", f"found_{i} axis_{at}", f"index_{i}", axis=0),
        node("Unsqueeze", f"index_{i} last", f"at_{i}"),
        node("Gather", f"tokens index_{i}", f"rows_{i}", axis=0),
        *computed(compute, i),
        node("Shape", f"given_{i}", f"size_{i}"),
        *written(write, i),
    ]


def weights(compute: str = "Gemm", experts: int = 4, hidden: Any = (24,) * 4) -> dict[str, Any]:
    held: dict[str, Any] = {"router": (16, 4), "two": [2], "last": [-1], "flat": [-1, 16]}
    held |= {"experts": [4], "off_on": [0, 1], "axis_0": 0, "axis_1": 1, "zero": [0]}
    held |= {f"is_{i}": i for i in range(experts)}
    if compute == "stack":
        held |= {"up": (4, 16, 24), "down": (4, 24, 16)}
        return held | {f"{a}_{i}": [i + b] for i in range(4) for a, b in (("from", 0), ("to", 1))}
    for i in range(experts):
        h = hidden[i]
        held |= {f"up_{i}": (h, 16), f"down_{i}": (h, 16), f"b_up_{i}": (h,), f"b_down_{i}": (16,)}
    return held


def routed(*turns: list[Any], zeros: bool = True) -> list[Any]:
    """Route tokens to experts, add up what these give, and read it by a last layer."""
    return [
        node("Reshape", "x flat", "tokens"),
        node("MatMul", "tokens router", "scores"),
        node("TopK", "scores two", "gates chosen", axis=-1),
        *ONE_HOT,
        node("Shape", "tokens", "size"),
        *([node("ConstantOfShape", "size", "zeros")] if zeros else []),
        *(each for nodes in turns for each in nodes),
        node("Relu", f"y_{len(turns) - 1}", "y"),
    ]


@pytest.mark.parametrize("ask", ["numbers", "one hot", "truths", "sums"])
@pytest.mark.parametrize("write", ["in place", "beside"])
@pytest.mark.parametrize("compute", ["Gemm", "MatMul", "stack"])
def test_loops(load: Read, ask: str, compute: str, write: str) -> None:
    nodes = routed(*(turn(i, ask, compute, write) for i in range(4)))
    net = load(nodes, TOKENS, weights(compute), 18)
    biases = 0 if compute == "stack" else BIASES
    assert counts(net, 2)[:2] == (STACKED + biases, ROUTER + 2 * MATRIX)
    assert types(net).count("Experts") == 2
    assert net.notes == (EVEN,)


def test_single_elements_that_are_written(load: Read) -> None:
    # A mask of tokens, repeated for each of 16 features, says where each element belongs.
    turns = [turn(i, "sums") for i in range(4)]
    for i, nodes in enumerate(turns):
        nodes[-1:] = [
            node("Unsqueeze", f"mask_{i} last", f"column_{i}"),
            node("Expand", f"column_{i} size", f"wide_{i}"),
            node("NonZero", f"wide_{i}", f"turned_at_{i}"),
            node("Transpose", f"turned_at_{i}", f"all_at_{i}"),
            node("Reshape", f"given_{i} last", f"elements_{i}"),
            node("ScatterND", f"y_{i - 1} all_at_{i} elements_{i}", f"y_{i}", reduction="add"),
        ]
    turns[0][-1].input[0] = "zeros"
    net = load(routed(*turns), TOKENS, weights(), 18)
    assert counts(net, 2)[:2] == (STACKED + BIASES, ROUTER + 2 * MATRIX)
    assert net.notes == (EVEN,)


@pytest.mark.parametrize("write", ["in place", "beside"])
def test_zeros_that_the_file_holds(load: Read, write: str) -> None:
    # A file for 2 samples has the 2*6*16 zeros that rows are added to, which nobody trains.
    name = "val_7" if write == "in place" else "zeros"
    turns = [turn(i, write=write) for i in range(4)]
    turns[0][-1].input[0] = name
    inputs = {"x": [2, 6, 16]}
    net = load(routed(*turns, zeros=False), inputs, weights() | {name: (12, 16)}, 18)
    assert counts(net, 2)[:2] == (STACKED + BIASES, ROUTER + 2 * MATRIX)


def test_experts_that_were_left_out(load: Read) -> None:
    # 3 of 4 experts, as an exporter leaves out one that had no rows: 18 of 24 rows.
    net = load(routed(*map(turn, range(3))), TOKENS, weights(experts=3), 18)
    assert counts(net, 2)[:2] == (64 + 3 * (2 * 16 * 24 + 40), ROUTER + 2 * MATRIX * 3 // 4)
    assert "the file has 3 of the 4 experts" in net.notes[0]


def test_experts_of_two_sizes(load: Read) -> None:
    # Two experts of 24 and two of 32, with 12 rows each pair: 2 * 12*16 * (24 + 32) twice.
    net = load(routed(*map(turn, range(4))), TOKENS, weights(hidden=(24, 32, 24, 32)), 18)
    params = 64 + 2 * (2 * 16 * (24 + 32) + 24 + 32 + 2 * 16)
    assert counts(net, 2)[:2] == (params, ROUTER + 2 * (2 * 12 * 16 * (24 + 32)))
    assert net.notes == (EVEN,)


def own_products(turns: list[list[Any]]) -> dict[str, Any]:
    """Let each expert read a product of all tokens that is its own."""
    for i, nodes in enumerate(turns):
        rows = next(each for each in nodes if each.input[0] == "tokens")
        rows.input[0] = f"own_{i}"
        nodes.insert(0, node("MatMul", f"tokens own_weight_{i}", f"own_{i}"))
    return {f"own_weight_{i}": (16, 16) for i in range(4)}


def own_scales(turns: list[list[Any]]) -> dict[str, Any]:
    """Let each expert have a weight that is in no product."""
    for i, nodes in enumerate(turns):
        active = next(each for each in nodes if each.op_type == "Relu")
        active.input[0] = f"scaled_{i}"
        nodes.insert(nodes.index(active), node("Mul", f"between_{i} scale_{i}", f"scaled_{i}"))
    return {f"scale_{i}": (24,) for i in range(4)}


def halves(turns: list[list[Any]]) -> dict[str, Any]:
    """Let each expert's matrix be half of one that the file holds."""
    for i, nodes in enumerate(turns):
        product = next(each for each in nodes if each.op_type == "Gemm")
        product.input[1] = f"half_{i}"
        nodes.insert(nodes.index(product), node("Slice", f"up_{i} zero half", f"half_{i}"))
    return {"half": [24]} | {f"up_{i}": (48, 16) for i in range(4)}


@pytest.mark.parametrize("change", [own_products, own_scales, halves])
def test_what_is_no_grouped_product_is_refused(load: Read, change: Any) -> None:
    turns = [turn(i) for i in range(4)]
    more = change(turns)
    with pytest.raises(paleo.NetSpecError, match="it takes some samples out of the batch"):
        load(routed(*turns), TOKENS, weights() | more, 18)


def test_rows_that_are_read_elsewhere_are_refused(load: Read) -> None:
    with pytest.raises(paleo.NetSpecError, match="it takes some samples out of the batch"):
        load(routed(*map(turn, range(4))), TOKENS, weights(), 18, outputs="y given_2")


# ONNX Runtime's operators of whole mixtures


def mixture(op: str, inputs: str, **attributes: Any) -> list[Any]:
    return [
        node("Reshape", "x flat", "tokens"),
        node("MatMul", "tokens router", "scores"),
        node(op, f"x scores {inputs}", domain="com.microsoft", **({"k": 2} | attributes)),
    ]


def packed(*shape: int) -> Any:
    return np.zeros(shape, np.uint8)


BOTH = {"up": (4, 24, 16), "down": (4, 16, 24)}


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "held", "products", "biases"),
    [
        ("MoE", "up - down", {}, BOTH, 2, 0),
        # As files had them at first: a matrix from rows to columns.
        ("MoE", "up - down", {}, {"up": (4, 16, 24), "down": (4, 24, 16)}, 2, 0),
        ("MoE", "up b_up down b_down", {"activation_type": "gelu"},
         BOTH | {"b_up": (4, 24), "b_down": (4, 16)}, 2, 4 * (24 + 16)),
        ("MoE", "up - down - gate", {"activation_type": "silu"}, BOTH | {"gate": (4, 24, 16)},
         3, 0),
        # Gate and the other in one product of 48 columns.
        ("MoE", "up - down", {"activation_type": "swiglu", "swiglu_fusion": 1},
         BOTH | {"up": (4, 48, 16)}, 3, 0),
        # Two numbers of 4 bits in a byte; scales are no parameters.
        ("QMoE", "up s - down s", {}, {"up": packed(4, 24, 8), "down": packed(4, 16, 12),
         "s": (4, 24)}, 2, 0),
        ("QMoE", "up s - down s - gate s", {"expert_weight_bits": 8, "activation_type": "silu"},
         {"up": packed(4, 24, 16), "down": packed(4, 16, 24), "gate": packed(4, 24, 16),
          "s": (4, 24)}, 3, 0),
        # The second product is of other bits than the first.
        ("QMoE", "up s - down s", {"fc2_expert_weight_bits": 8},
         {"up": packed(4, 24, 8), "down": packed(4, 16, 24), "s": (4, 24)}, 2, 0),
    ],
)  # fmt: skip
@pytest.mark.parametrize("rank", [2, 3])
def test_whole_mixtures(
    load: Read,
    op: str,
    inputs: str,
    attributes: dict[str, Any],
    held: dict[str, Any],
    products: int,
    biases: int,
    rank: int,
) -> None:
    x = TOKENS if rank == 3 else {"x": ["N", 16]}
    more = {"flat": [-1, 16], "router": (16, 4)}
    net = load(mixture(op, inputs, **attributes), x, held | more)
    # Without a number of steps, 12 samples are 12 tokens.
    params, flops, _ = counts(net, 2 if rank == 3 else 12)
    assert (params, flops) == (64 + products * 4 * 16 * 24 + biases, ROUTER + products * MATRIX)
    assert last(net)[1] == ((1, 6, 16) if rank == 3 else (1, 16))
    assert EVEN in net.notes


@pytest.mark.parametrize(
    ("inputs", "attributes", "held", "message"),
    [
        ("up - down", {"activation_type": "wild"}, BOTH, 'MoE with an activation of "wild"'),
        ("up - down", {"k": 5}, BOTH, "5 of 4 experts for 2x6x16, chosen by 12 rows"),
        ("up - down", {}, BOTH | {"down": (4, 16, 20)}, "rows of 24, for 4 experts, times 4x16x20"),
        ("up - down", {}, BOTH | {"up": (3, 24, 16)}, "rows of 16, for 4 experts, times 3x24x16"),
        ("up - down - gate", {}, BOTH | {"gate": (4, 20, 16)}, "4 matrices of 16x24 should be"),
        (
            "up - down",
            {"activation_type": "swiglu"},
            BOTH | {"up": (4, 25, 16)},
            "two halves of 25",
        ),
    ],
)
def test_mixtures_that_do_not_fit(
    load: Read, inputs: str, attributes: dict[str, Any], held: dict[str, Any], message: str
) -> None:
    more = {"flat": [-1, 16], "router": (16, 4)}
    with pytest.raises(paleo.NetSpecError, match=message):
        load(mixture("MoE", inputs, **attributes), {"x": [2, 6, 16]}, held | more)


def test_masks_of_something_else_are_refused(load: Read) -> None:
    # Tokens of which more than one choice is expert i: how many there are, nothing says.
    turns = [turn(i, "sums") for i in range(4)]
    for nodes in turns:
        next(each for each in nodes if each.op_type == "Greater").input[1] = "axis_1"
    with pytest.raises(paleo.NetSpecError, match="it picks samples out of the batch"):
        load(routed(*turns), TOKENS, weights(), 18)
