"""ONNX graphs within nodes: branches, loops and sequences, as often as they are gone through.

Figures in comments are by hand; a multiply-add is two FLOPs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx_models import FLOAT, INT, Read, last, load, node, types

import paleo

helper = pytest.importorskip("onnx.helper")
numpy_helper = pytest.importorskip("onnx.numpy_helper")

__all__ = ["load"]

BOOL = 9


def graph(nodes: list[Any], inputs: str, outputs: str, types: dict[str, int] | None = None) -> Any:
    """Make the graph of a node; shapes are not said."""
    named = types or {}
    values = [
        [helper.make_tensor_value_info(name, named.get(name, FLOAT), None) for name in names]
        for names in (inputs.split(), outputs.split())
    ]
    return helper.make_graph(nodes, "body", *values)


def body(*nodes: Any, outputs: str = "d v2", going: Any = None) -> Any:
    """Make the body of a loop that carries v: nodes from v to v2, and its condition."""
    going = going or node("Identity", "c", "d")
    return graph([going, *nodes], "i c v", outputs, {"i": INT, "c": BOOL, "d": BOOL})


def constant(name: str, number: Any) -> Any:
    return node("Constant", "", name, value=numpy_helper.from_array(np.asarray(number)))


def products(net: paleo.NetSpec) -> tuple[int, int, int]:
    """Return how many products there are, and all of their parameters and forward FLOPs."""
    layers = [x for x in paleo.summarize(net).layers if x.type_name == "InnerProduct"]
    flops = sum(int(layer.forward_flops or 0) for layer in layers)
    return len(layers), sum(layer.num_params for layer in layers), flops


# Loops


def test_a_loop_takes_each_turn_with_the_same_weight(load: Read) -> None:
    step = body(node("MatMul", "v w", "v2"))
    net = load([node("Loop", "n - x", "y", body=step)], {"x": ["N", 4]}, {"w": (4, 4), "n": 3})
    # Three products of 4 x 4, whose 16 weights are one tensor.
    assert products(net) == (3, 16, 3 * 2 * 16)
    assert last(net)[1] == (1, 4)
    assert [each.name.split("/")[:2] for each in net.layers[1:]] == [
        ["Loop_0", "0"], ["Loop_0", "1"], ["Loop_0", "2"],
    ]  # fmt: skip
    assert net.notes == ()


def test_what_each_turn_gives_is_stacked(load: Read) -> None:
    step = body(node("Relu", "v", "v2"), node("Identity", "v2", "s"), outputs="d v2 s")
    nodes = [node("Loop", "n - x", "end all", body=step), node("Neg", "all")]
    net = load(nodes, {"x": ["N", 4]}, {"n": 5}, outputs="y")
    # 5 x N x 4, of which the batch is Paleo's first dimension.
    assert last(net)[1] == (1, 5, 4)
    assert types(net).count("Activation") == 5 + 1


def test_a_loop_ends_where_its_condition_says(load: Read) -> None:
    step = body(node("MatMul", "v w", "v2"), going=node("Less", "i two", "d"))
    weights = {"w": (4, 4), "two": 2}
    net = load([node("Loop", "- - x", "y", body=step)], {"x": ["N", 4]}, weights)
    # Turns 0, 1 and 2: behind the last one, 2 is not less than 2.
    assert products(net)[0] == 3


def test_a_loop_that_data_may_end_takes_all_turns_and_says_so(load: Read) -> None:
    total = node("ReduceMax", "v", "t", keepdims=0)
    step = body(node("MatMul", "v w", "v2"), node("Cast", "t", "d", to=BOOL), going=total)
    loop = node("Loop", "n - x", "y", body=step)
    net = load([loop], {"x": ["N", 4]}, {"w": (4, 4), "n": 4})
    assert products(net)[0] == 4
    assert net.notes == ("Loop_0 takes all of the 4 turns that it may take at most",)
    loop.input[0] = ""
    with pytest.raises(paleo.NetSpecError, match="how many is not known"):
        load([loop], {"x": ["N", 4]}, {"w": (4, 4)})


@pytest.mark.parametrize(
    ("turns", "message"),
    [
        (
            10**9,
            'layer "Loop_0": Loop takes 1,000,000,000 turns of 2 nodes, which is too many to read',
        ),
        (None, r"Loop needs the numbers of its trip count.*: give them with --value n="),
    ],
)
def test_loops_that_cannot_be_followed(load: Read, turns: int | None, message: str) -> None:
    step = body(node("Identity", "v", "v2"))
    loop = node("Loop", "n - x", "y", body=step)
    weights = {} if turns is None else {"n": turns}
    inputs: dict[str, Any] = {"x": ["N", 4], **({"n": []} if turns is None else {})}
    with pytest.raises(paleo.NetSpecError, match=message):
        load([loop], inputs, weights, types={"n": INT})


@pytest.mark.parametrize("op", ["Loop", "Scan", "SequenceMap"])
def test_a_turn_that_gives_too_little(load: Read, op: str) -> None:
    step = graph([node("Relu", "a", "b")], "a", "b")
    nodes = [node("SequenceConstruct", "x", "s")]
    if op == "Loop":
        nodes = [node("Loop", "n - x", "y z w", body=step)]
    elif op == "Scan":
        nodes = [node("Scan", "x", "y z", body=step, num_scan_inputs=1, scan_input_axes=[1])]
    else:
        nodes.append(node("SequenceMap", "s", "y z", body=step))
    with pytest.raises(paleo.NetSpecError, match=f"a turn of {op} gives (1 tensors, not|too few)"):
        load(nodes, {"x": ["N", 4]}, {"n": 3}, outputs="y")


def test_what_is_wrong_in_a_loop_is_said_once(load: Read) -> None:
    step = body(node("Foo", "v", "v2", name="odd", domain="com.example"))
    with pytest.raises(paleo.NetSpecError) as caught:
        load([node("Loop", "n - x", "y", body=step)], {"x": ["N", 4]}, {"n": 3})
    (line,) = str(caught.value).splitlines()
    assert 'not understood: Foo (com.example) ("odd")' in line


def test_a_scan_is_a_recurrent_layer_step_by_step(load: Read) -> None:
    step = graph(
        [node("MatMul", "e w", "a"), node("MatMul", "h r", "b"), node("Add", "a b", "s"),
         node("Tanh", "s", "h2"), node("Identity", "h2", "out")],
        "h e", "h2 out",
    )  # fmt: skip
    scan = node(
        "Scan", "start x", "end y", body=step, num_scan_inputs=1,
        scan_input_axes=[1], scan_output_axes=[1],
    )  # fmt: skip
    net = load(
        [scan], {"start": ["N", 3], "x": ["N", 6, 5]}, {"w": (5, 3), "r": (3, 3)}, outputs="y"
    )
    # Six steps of 5 x 3 and 3 x 3 weights.
    assert products(net) == (12, 15 + 9, 6 * 2 * (15 + 9))
    assert last(net)[1] == (1, 6, 3)


def test_a_scan_backwards_reads_the_last_element_first(load: Read) -> None:
    step = graph([node("Add", "h e", "h2")], "h e", "h2")
    scan = node(
        "Scan", "s x", "y", body=step, num_scan_inputs=1,
        scan_input_axes=[1], scan_input_directions=[1],
    )  # fmt: skip
    net = load([scan], {"s": ["N", 5], "x": ["N", 3, 5]})
    begins = [each.layer.begin for each in net.layers if each.layer.type_name == "Slice"]  # type: ignore[attr-defined]
    assert begins == [2, 1, 0]


# Branches


def branches(then: list[Any], otherwise: list[Any]) -> Any:
    return node(
        "If", "c", "y", then_branch=graph(then, "", "a"), else_branch=graph(otherwise, "", "b")
    )  # fmt: skip


def test_a_branch_is_taken_by_a_number_that_is_given(load: Read) -> None:
    nodes = [
        constant("rate", 16000),
        node("Equal", "sr rate", "c"),
        branches([node("MatMul", "x w", "a")], [node("MatMul", "x v", "b")]),
    ]
    inputs, weights = {"x": ["N", 4], "sr": []}, {"w": (4, 2), "v": (4, 7)}
    with pytest.raises(paleo.NetSpecError, match="by a condition that is an input of the net: "):
        load(nodes, inputs, weights, types={"sr": INT})
    for rate, size in ((16000, 2), (8000, 7)):
        net = load(nodes, inputs, weights, types={"sr": INT}, values={"sr": (rate,)})
        assert last(net) == ("InnerProduct", (1, size), 4 * size, 2 * 4 * size)


def test_branches_that_cost_the_same_need_no_condition(load: Read) -> None:
    ahead = [node("ReduceMax", "x", "m", keepdims=0), node("Cast", "m", "c", to=BOOL)]
    alike = branches(
        [node("MatMul", "x w", "p"), node("Relu", "p", "a")],
        [node("MatMul", "x w", "q"), node("Relu", "q", "b")],
    )
    net = load([*ahead, alike], {"x": ["N", 4]}, {"w": (4, 6)})
    assert products(net) == (1, 24, 48)
    # Other weights are other parameters, a sigmoid costs more than a rectifier.
    for other in ([node("MatMul", "x v", "q"), node("Relu", "q", "b")],
                  [node("MatMul", "x w", "q"), node("Sigmoid", "q", "b")]):  # fmt: skip
        unlike = branches([node("MatMul", "x w", "p"), node("Relu", "p", "a")], other)
        with pytest.raises(paleo.NetSpecError, match="which cost differently, by a condition"):
            load([*ahead, unlike], {"x": ["N", 4]}, {"w": (4, 6), "v": (4, 6)})


# Sequences


def test_a_sequence_is_the_tensors_in_it(load: Read) -> None:
    nodes = [
        node("SplitToSequence", "x parts", "s", axis=1),  # 2, 3 and 4 of 9 features
        node("SequenceAt", "s last", "tail"),
        node("SequenceErase", "s last", "t"),
        node("SequenceInsert", "t tail first", "u"),  # 4, 2 and 3 of them
        node("SequenceAt", "u last", "three"),
        node("MatMul", "three w"),
    ]
    weights = {"parts": [2, 3, 4], "last": -1, "first": 0, "w": (3, 5)}
    net = load(nodes, {"x": ["N", 9]}, weights)
    assert last(net) == ("InnerProduct", (1, 5), 15, 30)


def test_a_sequence_is_joined(load: Read) -> None:
    nodes = [
        node("Relu", "x", "r"),
        node("SequenceConstruct", "x r x", "s"),
        node("ConcatFromSequence", "s", "j", axis=1),
        node("ConcatFromSequence", "s", "k", axis=1, new_axis=1),
        node("SequenceLength", "s", "n"),
        node("Unsqueeze", "n zero", "n1"),
        node("Concat", "batch n1 rest", "shape", axis=0),
        node("Reshape", "j shape", "l"),
        node("Add", "k l"),
    ]
    weights = {"zero": [0], "batch": [-1], "rest": [4]}
    net = load(nodes, {"x": ["N", 4]}, weights)
    assert last(net)[1] == (1, 3, 4)


def test_a_map_follows_its_graph_for_each_tensor(load: Read) -> None:
    step = graph([node("MatMul", "e w", "f")], "e", "f")
    nodes = [
        node("SplitToSequence", "x", "s", axis=1, keepdims=0),  # six of N x 5
        node("SequenceMap", "s", "t", body=step),
        node("ConcatFromSequence", "t", axis=1, new_axis=1),
    ]
    net = load(nodes, {"x": ["N", 6, 5]}, {"w": (5, 3)})
    assert products(net) == (6, 15, 6 * 30)
    assert last(net)[1] == (1, 6, 3)


def test_an_optional_holds_a_tensor_or_nothing(load: Read) -> None:
    nodes = [
        node("Optional", "x", "o"),
        node("OptionalHasElement", "o", "c"),
        node("OptionalGetElement", "o", "z"),
        branches([node("MatMul", "z w", "a")], [node("Identity", "z", "b")]),
    ]
    net = load(nodes, {"x": ["N", 4]}, {"w": (4, 6)}, opset=18)
    assert last(net)[:2] == ("InnerProduct", (1, 6))


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([node("SequenceAt", "x at")], "SequenceAt reads a tensor where a sequence should be"),
        (
            [node("SequenceConstruct", "x", "s"), node("SequenceAt", "s at")],
            "position 3 in a sequence of 1",
        ),
        (
            [node("SequenceConstruct", "x", "s"), node("Relu", "s")],
            "reads a sequence where a tensor should be",
        ),
        ([node("SplitToSequence", "x at", "y", axis=1)], None),
        ([node("SplitToSequence", "x two", "y", axis=1)], "4 in parts of 2, 3"),
    ],
)
def test_sequences_that_do_not_fit(load: Read, nodes: list[Any], message: str | None) -> None:
    weights = {"at": 3, "two": [2, 3]}
    if message is None:  # 3, and what is left
        assert types(load(nodes, {"x": ["N", 4]}, weights)) == ["Input", "Slice", "Slice"]
        return
    with pytest.raises(paleo.NetSpecError, match=message):
        load(nodes, {"x": ["N", 4]}, weights)
