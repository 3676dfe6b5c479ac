"""What is one sample of an ONNX net, and inputs that are numbers."""

from __future__ import annotations

from typing import Any

import pytest
from onnx_models import INT, Read, last, load, node, types

import paleo

__all__ = ["load"]


def test_what_mixes_the_first_axis_is_one_sample(load: Read) -> None:
    nodes = [
        node("Conv", "x w", "c"),
        node("GlobalAveragePool", "c", "p"),
        node("Flatten", "p", "f"),
        node("Softmax", "f", axis=0),
    ]
    net = load(nodes, {"x": [2, 3, 8, 8]}, {"w": (4, 3, 3, 3)})
    layers = paleo.summarize(net).layers
    # Both images: 2 * 36 windows of 27 products for each of 4 channels.
    assert tuple(layers[1].output) == (1, 2, 6, 6, 4)
    assert (layers[1].num_params, layers[1].forward_flops) == (108, 2 * 27 * 2 * 36 * 4)
    assert len(net.notes) == 1
    assert 'layer "Softmax_3": a softmax over the samples of the batch' in net.notes[0]


def test_samples_that_are_kept_apart_need_no_note(load: Read) -> None:
    net = load([node("Softmax", "x", axis=1)], {"x": [2, 8]})
    assert net.notes == ()
    assert last(net)[1] == (2, 8)


def test_an_open_batch_that_is_mixed_is_refused_until_it_is_given(load: Read) -> None:
    nodes = [node("Softmax", "x", axis=0)]
    said = "a softmax over the samples of the batch; --input x=1x5 makes all of it one sample"
    with pytest.raises(paleo.NetSpecError, match=said):
        load(nodes, {"x": ["N", 5]})
    net = load(nodes, {"x": ["N", 5]}, dims={"N": 7})
    assert last(net)[1] == (1, 7, 5)
    assert len(net.notes) == 1


@pytest.mark.parametrize(
    ("nodes", "shapes", "output"),
    [
        # The batch stands where it is carried to, and is still the batch.
        ([node("Transpose", "x", "t", perm=[1, 0]), node("Relu", "t")], {"x": [3, 4]}, (3, 4)),
        # A sum over the samples: one for all.
        ([node("Einsum", "x z", equation="ij,ij->j")], {"x": [3, 4], "z": [3, 4]}, (1, 4)),
        # Three of five rows.
        ([node("Gather", "x i", axis=0)], {"x": [5, 4], "i": [3]}, (1, 3, 4)),
    ],
)
def test_all_of_an_input_may_be_one_sample(
    load: Read, nodes: list[Any], shapes: dict[str, Any], output: tuple[int, ...]
) -> None:
    net = load(nodes, shapes, types={"i": INT})
    assert last(net)[1] == output
    assert len(net.notes) == (output[0] == 1)


def test_numbers_of_an_input_are_given(load: Read) -> None:
    nodes = [node("Reshape", "x s")]
    inputs = {"x": ["N", 12], "s": [3]}
    with pytest.raises(paleo.NetSpecError, match=r"an input of the net: give them with --value s="):
        load(nodes, inputs, types={"s": INT})
    net = load(nodes, inputs, types={"s": INT}, values={"s": (-1, 3, 4)})
    assert last(net)[1] == (1, 3, 4)
    assert [each.name for each in net.layers] == ["x", "Reshape_0"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"s": (-1.0, 3.0)}, 'input "s" is 3, which 2 numbers are not'),
        ({"r": (1.0,)}, '--value: there is no input "r"'),
    ],
)
def test_numbers_that_do_not_fit(
    load: Read, values: dict[str, tuple[float, ...]], message: str
) -> None:
    with pytest.raises(paleo.NetSpecError, match=message):
        load([node("Reshape", "x s")], {"x": [2, 12], "s": [3]}, types={"s": INT}, values=values)


def test_an_input_that_no_output_needs_is_left_out(load: Read) -> None:
    # Its shape is open, and nobody asks for it.
    net = load([node("Relu", "x")], {"x": [2, 8], "unused": [None, None]})
    assert [each.name for each in net.layers] == ["x", "Relu_0"]


def test_a_cast_like_another_knows_its_type_alone(load: Read) -> None:
    nodes = [node("CastLike", "x like", "c"), node("Relu", "c")]
    net = load(nodes, {"x": [2, 8], "like": [None]})
    assert types(net) == ["Input", "Activation"]


def test_a_recurrent_layer_over_a_sequence_that_is_one_sample(load: Read) -> None:
    nodes = [
        node("MatMul", "x w", "a"),
        node("Unsqueeze", "a one", "u"),
        node("LSTM", "u i h", "y", hidden_size=6),
        node("Squeeze", "y both", "s"),
        node("MatMul", "s v", "z"),
    ]
    weights = {
        "one": [1], "both": [1, 2], "w": (40, 16), "i": (1, 24, 16), "h": (1, 24, 6), "v": (6, 3)
    }  # fmt: skip
    said = "the batch is not where a sequence has it; --input x=.x40 makes all of it one sample"
    with pytest.raises(paleo.NetSpecError, match=said):
        load(nodes, {"x": [None, 40]}, weights)
    net = load(nodes, {"x": [None, 40]}, weights, input=((None, (100, 40)),))
    layers = {each.type_name: each for each in paleo.summarize(net).layers}
    # 100 steps of 24 gates by 16 features and 6 of the state.
    assert layers["LSTM"].forward_flops == 2 * 100 * 24 * (16 + 6)
    assert last(net) == ("InnerProduct", (1, 100, 3), 18, 2 * 100 * 18)


def test_the_open_batch_of_a_state_is_behind_its_layers(load: Read) -> None:
    nodes = [
        node("Slice", "state zero one zero", "h"),
        node("LSTM", "x i r - - h c", "y h2 c2", hidden_size=6),
        node("Slice", "state one two zero", "c"),
        node("Concat", "h2 c2", "next", axis=0),
    ]
    nodes = [nodes[0], nodes[2], nodes[1], nodes[3]]
    weights = {"zero": [0], "one": [1], "two": [2], "i": (1, 24, 5), "r": (1, 24, 6)}
    inputs = {"x": [7, None, 5], "state": [2, None, 6]}
    net = load(nodes, inputs, weights, outputs="next")
    # 7 steps; two states of 6 for each sample.
    assert last(net)[1] == (1, 2, 6)
    assert paleo.summarize(net, batch_size=3).layers[-1].output == (3, 2, 6)


@pytest.mark.parametrize("nameless", [None, "?", "-1"])
@pytest.mark.parametrize(
    ("width", "said"),
    [
        (8, r"dimension 2 is open and has no name in input \"x\" \(\?x3x\?x8\)"),
        (None, r"dimensions 2 and 3 are open and have no names in input \"x\" \(\?x3x\?x\?\)"),
    ],
)
def test_open_dimensions_without_names_are_given_at_once(
    load: Read, nameless: str | None, width: int | None, said: str
) -> None:
    inputs = {"x": [nameless, 3, nameless, width or nameless]}
    advice = rf"{said}: give the whole shape with --input x=1x3x\?x{width or '.'}"
    with pytest.raises(paleo.NetSpecError, match=advice):
        load([node("Relu", "x")], inputs)
    net = load([node("Relu", "x")], inputs, input=((None, (5, 3, 48, 8)),))
    assert last(net)[1] == (5, 48, 8, 3)
