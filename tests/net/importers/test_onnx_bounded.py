"""ONNX operators whose output is as long as data say, Fourier transforms, and views by indices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx_models import BOOL, INT, Read, last, load, node, types

import paleo

__all__ = ["load"]


@pytest.mark.parametrize(
    ("options", "kept"),
    [({}, 4 * 10), ({"proposals": 15}, 15), ({"proposals": 100}, 40)],
)
def test_suppression_keeps_all_boxes_that_it_may(
    load: Read, options: dict[str, int], kept: int
) -> None:
    nodes = [node("NonMaxSuppression", "b s most")]
    inputs = {"b": ["N", 50, 4], "s": ["N", 4, 50]}
    # 10 of 50 boxes in each of 4 classes; a row is an image, a class and a box.
    net = load(nodes, inputs, {"most": np.asarray([10])}, **options)
    assert last(net)[:2] == ("Proposals", (1, kept, 3))
    (note,) = net.notes
    assert f"at most 40 of an image: {kept} are counted" in note


def test_more_than_there_are_cannot_be_kept(load: Read) -> None:
    nodes = [node("NonMaxSuppression", "b s most")]
    net = load(nodes, {"b": ["N", 6, 4], "s": ["N", 2, 6]}, {"most": np.asarray([200])})
    assert last(net)[1] == (1, 2 * 6, 3)


@pytest.mark.parametrize(
    ("nodes", "weights", "output", "bounded"),
    [
        ([node("Compress", "x c", axis=2)], {}, (1, 5, 8), True),
        ([node("Compress", "x k", axis=2)], {"k": np.asarray([True, False] * 2)}, (1, 5, 2), False),
        ([node("Unique", "x", "y i j n", axis=2)], {}, (1, 5, 8), True),
        ([node("NonZero", "x")], {}, (1, 3, 40), True),
    ],
)  # fmt: skip
def test_all_elements_are_counted_of_which_data_pick_some(
    load: Read, nodes: list[Any], weights: dict[str, Any], output: tuple[int, ...], bounded: bool
) -> None:
    net = load(nodes, {"x": [1, 5, 8], "c": [8]}, weights, types={"c": BOOL})
    assert last(net)[1] == output
    assert any("as many elements as data say, at most" in note for note in net.notes) == bounded


@pytest.mark.parametrize(
    ("nodes", "opset", "output"),
    [
        ([node("DFT", "x", axis=1, onesided=1)], 17, (1, 9, 2)),  # 16 / 2 + 1 bins
        ([node("DFT", "x - a")], 20, (1, 16, 2)),
        # Frames of 8 every 4 of 16: 3 of them, 5 bins of two numbers.
        ([node("STFT", "x step - length", onesided=1)], 17, (1, 3, 5, 2)),
    ],
)
def test_a_fourier_transform_is_a_pass_over_memory(
    load: Read, nodes: list[Any], opset: int, output: tuple[int, ...]
) -> None:
    weights = {"a": 1, "step": 4, "length": 8}
    net = load(nodes, {"x": ["N", 16, 1]}, weights, opset=opset)
    assert last(net)[1] == output
    assert net.notes == ("a Fourier transform is a pass over memory for each axis, without FLOPs",)


def test_a_transform_across_samples_is_one_sample(load: Read) -> None:
    with pytest.raises(paleo.NetSpecError, match="transforms across the samples of the batch"):
        load([node("DFT", "x - a")], {"x": ["N", 16, 2]}, {"a": 0}, opset=20)


def test_all_elements_in_order_are_a_view(load: Read) -> None:
    nodes = [
        node("Reshape", "x flat", "f"),
        node("Gather", "f i", axis=0),
    ]
    weights = {"flat": [-1], "i": np.arange(24).reshape(2, 3, 4)}
    net = load(nodes, {"x": [2, 12]}, weights)
    assert types(net) == ["Input", "Reshape"]
    assert (last(net)[1], net.notes) == ((2, 3, 4), ())


def test_operators_of_version_6_say_where_the_second_input_stands(load: Read) -> None:
    nodes = [node("Add", "x b", "a", axis=1, broadcast=1), node("Conv", "a w")]
    net = load(nodes, {"x": ["N", 3, 9, 8]}, {"b": (3,), "w": (4, 3, 3, 3)}, opset=6)
    assert [paleo.summarize(net).num_params, last(net)[1]] == [3 + 108, (1, 7, 6, 4)]


def test_what_is_fed_decides_nothing_here(load: Read) -> None:
    nodes = [node("NonMaxSuppression", "b s most")]
    inputs = {"b": ["N", 6, 4], "s": ["N", 2, 6], "most": [1]}
    with pytest.raises(paleo.NetSpecError, match=r"how many boxes it keeps.*--value most="):
        load(nodes, inputs, types={"most": INT})


def test_classical_machine_learning_is_refused_by_name(load: Read) -> None:
    tree = node("Binarizer", "x", name="forest", domain="ai.onnx.ml")
    with pytest.raises(paleo.NetSpecError) as caught:
        load([tree], {"x": ["N", 4]})
    assert (
        'not understood: Binarizer (ai.onnx.ml) ("forest"), of which ai.onnx.ml is no neural '
        "network's; with --unknown=zero"
    ) in str(caught.value)
