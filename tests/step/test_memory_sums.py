"""The memory of a step where tensors are summed, shared, judged twice or views, point by point.

Elements have 4 bytes, as in test_memory.py; the seed is the gradient that the backward pass
begins with.
"""

from __future__ import annotations

from typing import Any

import pytest
from nets_of_tests import make_net

import paleo
from paleo.step.memory import OPTIMIZERS, footprint, largest_batch
from paleo.step.memory.usage import Step


def data(*shape: int) -> dict[str, Any]:
    return {"type": "Input", "tensor": list(shape)}


def layer(kind: str, *parents: str, **keys: Any) -> dict[str, Any]:
    return {"type": kind, "parents": list(parents), **keys}


def product(parent: str, outputs: int, **keys: Any) -> dict[str, Any]:
    """An inner product without bias, unless `keys` say so."""
    return layer("InnerProduct", parent, num_outputs=outputs, **{"use_bias": False} | keys)


def check(layers: dict[str, Any], expected: list[tuple[str, str, int]]) -> None:
    """Compare layer, pass and bytes alive at each point of a step, and the peak."""
    net = make_net(layers)
    step = Step(paleo.build(net), OPTIMIZERS["sgd"])
    nodes = step.graph.nodes
    points = [(nodes[node].name, direction) for node, direction in step.schedule.points]
    assert [(*point, size) for point, size in zip(points, step.sums(), strict=True)] == expected
    found = footprint(net)
    name, direction, size = max(expected, key=lambda point: point[2])
    assert (found.peak_layer, found.peak_pass, found.peak) == (name, direction, size)


def test_a_gradient_that_sums_hand_on_three_times_is_added_into_one_new_tensor() -> None:
    # Three read a: b, the sum of both, and the sum of that. Each tensor has 16 bytes.
    layers = {
        "data": data(1, 4),
        "a": product("data", 4),
        "b": product("a", 4),
        "inner": layer("Elementwise", "a", "b"),
        "outer": layer("Elementwise", "a", "inner"),
    }
    expected = [
        ("data", "forward", 128 + 16),
        ("a", "forward", 160),
        ("b", "forward", 176),
        ("inner", "forward", 192),
        ("outer", "forward", 192 - 16 + 16),  # b is gone
        ("outer", "backward", 192 - 16 + 16),  # inner is gone; the seed
        ("outer", "backward", 192),  # it is the gradient of a and of inner
        ("inner", "backward", 192),  # and of a once more, and of b
        # b still waits for it, so that the sum of both ways to a is a new tensor.
        ("inner", "backward", 192 + 16),
        ("b", "backward", 208 + 64 + 16),  # the third way is added into that
        ("a", "backward", 288 - 16 - 16 - 16 + 64),  # gone: a, the seed, the third way
        ("a", "update", 2 * 128 + 16 + 16),
    ]
    check(layers, expected)


def test_a_gradient_that_only_one_still_waits_for_is_added_into() -> None:
    # As above, but x reads b too, and the end is the sum of x and the outer sum.
    layers = {
        "data": data(1, 4),
        "a": product("data", 4),
        "b": product("a", 4),
        "x": product("b", 4),
        "inner": layer("Elementwise", "a", "b"),
        "outer": layer("Elementwise", "a", "inner"),
        "total": layer("Elementwise", "outer", "x"),
    }
    expected = [
        ("data", "forward", 192 + 16),
        ("a", "forward", 224),
        ("b", "forward", 240),
        ("x", "forward", 256),
        ("inner", "forward", 272),
        ("outer", "forward", 288),
        ("total", "forward", 288 - 16 + 16),  # inner is gone
        ("total", "backward", 288 - 16 - 16 + 16),  # outer and x are gone; the seed
        ("total", "backward", 272),  # it is the gradient of outer and x
        ("outer", "backward", 272),  # and of a and inner
        ("inner", "backward", 272),  # and of a once more, and of b
        ("inner", "backward", 272 + 16),  # a's is a new one: x and b wait for the seed
        ("x", "backward", 288 + 64 + 16),  # for which then b alone waits, so that this is added
        ("b", "backward", 368 - 16 - 16 + 64 + 16),  # gone: b, what x gave back
        ("a", "backward", 416 - 16 - 16 - 16 + 64),  # gone: a, the seed, what b gave back
        ("a", "update", 2 * 192 + 16 + 16),
    ]
    check(layers, expected)


def test_what_a_sum_hands_on_of_a_piece_is_a_piece() -> None:
    layers = {
        "data": data(1, 4),
        "a": product("data", 4),
        "b": product("a", 4),
        "sum": layer("Elementwise", "a", "b"),
        "c": product("data", 4),
        "both": layer("Concatenate", "sum", "c"),
    }
    expected = [
        ("data", "forward", 192 + 16),
        ("a", "forward", 224),
        ("b", "forward", 240),
        ("sum", "forward", 256),
        ("c", "forward", 256 - 16 + 16),  # b is gone
        ("both", "forward", 256 + 32),
        ("both", "backward", 288 - 16 - 16 + 32),  # sum and c are gone; the seed
        ("both", "backward", 288),  # its halves are the gradients of sum and c
        ("c", "backward", 288 + 64),
        ("sum", "backward", 352),  # half of it is that of a and of b
        ("b", "backward", 352 + 64 + 16),
        ("b", "backward", 432 - 16 + 16),  # a is gone; the half and the new one together
        ("a", "backward", 432 - 32 - 16 + 64),  # gone: the seed, what b gave back
        ("a", "update", 2 * 192 + 16 + 32),
    ]
    check(layers, expected)


def test_a_sum_hands_its_gradient_to_a_concatenation_and_that_its_pieces() -> None:
    # a and b have 16 bytes, both, c and the sum 32; matrices of 64, 64 and 128 bytes.
    layers = {
        "data": data(1, 4),
        "a": product("data", 4),
        "b": product("a", 4),
        "both": layer("Concatenate", "a", "b"),
        "c": product("data", 8),
        "sum": layer("Elementwise", "both", "c"),
    }
    expected = [
        ("data", "forward", 256 + 16),
        ("a", "forward", 288),
        ("b", "forward", 304),
        ("both", "forward", 336),
        ("c", "forward", 336 - 16 + 32),  # b is gone
        ("sum", "forward", 352 + 32),
        ("sum", "backward", 384 - 32 - 32 + 32),  # both and c are gone; the seed
        ("sum", "backward", 352),  # it is the gradient of both and c
        ("c", "backward", 352 + 128),
        ("both", "backward", 480),  # its halves are those of a and b
        ("b", "backward", 480 + 64 + 16),
        ("b", "backward", 560 - 16 + 16),  # a is gone; half the seed and the new one together
        ("a", "backward", 560 - 32 - 16 + 64),  # gone: the seed, and what b gave back
        ("c", "update", 2 * 256 + 16 + 32),
    ]
    check(layers, expected)


def test_a_shared_matrix_has_one_gradient_and_each_bias_its_own() -> None:
    # b and c take the matrix of a, 64 bytes, and have a bias of 16 each.
    layers = {
        "data": data(1, 4),
        "a": product("data", 4),
        "b": product("a", 4, shares="a", use_bias=True),
        "c": product("b", 4, shares="a", use_bias=True),
    }
    expected = [
        ("data", "forward", 64 + 16 + 16 + 16),
        ("a", "forward", 128),
        ("b", "forward", 144),
        ("c", "forward", 160),
        ("c", "backward", 176),  # the seed
        ("c", "backward", 176 + 64 + 16 + 16),  # of the matrix, the bias and b
        # Gone: b and the seed. Of the bias; of the matrix, to be added to the first; of a.
        ("b", "backward", 272 - 16 - 16 + 16 + 64 + 16),
        ("a", "backward", 336 - 16 - 16 - 64 + 64),  # the matrix's once more
        ("a", "update", 2 * 96 + 16 + 16),
    ]
    check(layers, expected)
    found = footprint(make_net(layers), optimizer="adam")
    assert [each.weights for each in found.layers] == [0, 64, 16, 16]
    assert (found.gradients, found.optimizer_state) == (96, 192)


def test_an_owner_with_a_bias_adds_its_own_to_the_gradient_of_the_matrix() -> None:
    layers = {
        "data": data(1, 4),
        "a": product("data", 4, use_bias=True),
        "b": product("a", 4, shares="a"),
    }
    expected = [
        ("data", "forward", 80 + 16),
        ("a", "forward", 112),
        ("b", "forward", 128),
        ("b", "backward", 144),
        ("b", "backward", 144 + 64 + 16),
        # Gone: a and the seed. The bias's is new, the matrix's is added.
        ("a", "backward", 224 - 16 - 16 + 16 + 64),
        ("a", "update", 2 * 80 + 16 + 16),
    ]
    check(layers, expected)


def test_a_layer_in_between_that_shares_the_matrix_alone_leaves_the_bias() -> None:
    # a owns matrix and bias, 80 bytes, which c takes too; b takes the matrix.
    layers = {
        "data": data(1, 4),
        "a": product("data", 4, use_bias=True),
        "b": product("a", 4, shares="a"),
        "c": product("b", 4, shares="a", use_bias=True),
    }
    expected = [
        ("data", "forward", 80 + 16),
        ("a", "forward", 112),
        ("b", "forward", 128),
        ("c", "forward", 144),
        ("c", "backward", 160),
        ("c", "backward", 160 + 80 + 16),
        ("b", "backward", 256 - 16 - 16 + 64 + 16),  # gone: b, the seed; of the matrix again
        ("a", "backward", 304 - 16 - 16 - 64 + 80),  # of both again: nothing of it is new
        ("a", "update", 2 * 80 + 16 + 16),
    ]
    check(layers, expected)


def test_two_losses_begin_the_backward_pass_together() -> None:
    # Labels and losses have 4 bytes each; the scores are a result, for losses alone read them.
    layers = {
        "data": data(1, 4),
        "a": product("data", 4),
        "labels": data(1, 1),
        "one": layer("Loss", "a", "labels", function="squared_error"),
        "two": layer("Loss", "a", "labels", function="squared_error"),
    }
    expected = [
        ("data", "forward", 64 + 16 + 4),
        ("a", "forward", 100),
        ("labels", "forward", 100),
        ("one", "forward", 104),
        ("two", "forward", 108),
        ("two", "backward", 108 + 4 + 4),  # a seed for each
        ("two", "backward", 116 + 16),
        ("one", "backward", 132 - 4 + 16),  # added into the first one's
        ("a", "backward", 144 - 4 - 16 + 64),
        ("a", "update", 2 * 64 + 16 + 4 + 16 + 4 + 4),
    ]
    check(layers, expected)


@pytest.mark.parametrize("first", ["top", "loss"])
def test_an_accuracy_beside_a_loss_takes_no_part_in_the_backward_pass(first: str) -> None:
    judges = {"top": layer("Accuracy", "a", "labels"), "loss": layer("Loss", "a", "labels")}
    second = "loss" if first == "top" else "top"
    layers = {
        "data": data(1, 4),
        "a": product("data", 4),
        "labels": data(1, 1),
        first: judges[first],
        second: judges[second],
    }
    # Of the loss: 4 bytes, and the logarithms of the scores, 16.
    taken = {"top": 4, "loss": 4 + 16}
    expected = [
        ("data", "forward", 64 + 16 + 4),
        ("a", "forward", 100),
        ("labels", "forward", 100),
        (first, "forward", 100 + taken[first]),
        (second, "forward", 124),
        ("loss", "backward", 124 + 4),
        ("loss", "backward", 128 + 16 + 16),  # of the logarithms and of the scores
        ("a", "backward", 160 - 4 - 16 - 16 + 64),  # gone: seed, logarithms and their gradient
        ("a", "update", 2 * 64 + 16 + 4 + 16 + 4 + 4),
    ]
    check(layers, expected)


def test_of_a_difference_of_four_the_first_has_the_gradient_as_it_is() -> None:
    layers = {
        "data": data(1, 4),
        **{name: product("data", 4) for name in "abcd"},
        "rest": layer("Elementwise", *"abcd", function="difference"),
    }
    expected = [
        ("data", "forward", 256 + 16),
        ("a", "forward", 288),
        ("b", "forward", 304),
        ("c", "forward", 320),
        ("d", "forward", 336),
        ("rest", "forward", 336 + 16 + 16),  # a - b goes when c is taken, and that when d is
        ("rest", "backward", 368 - 4 * 16 - 16 + 16),  # nobody keeps the four; the seed
        ("rest", "backward", 304 + 3 * 16),  # it is a's; the others' are its negatives
        ("d", "backward", 352 + 64),
        ("c", "backward", 416 - 16 + 64),
        ("b", "backward", 464 - 16 + 64),
        ("a", "backward", 512 - 16 + 64),
        ("a", "update", 2 * 256 + 16 + 16),
    ]
    check(layers, expected)


def test_of_four_summands_those_that_are_repeated_have_sums_of_the_gradient() -> None:
    # a and the sum are 2 x 4, 32 bytes; b, c and d are 4, 16 bytes, repeated for both rows.
    layers = {
        "data": data(1, 2, 4),
        "small": data(1, 4),
        "a": product("data", 4, axis=2),
        **{name: product("small", 4) for name in "bcd"},
        "sum": layer("Elementwise", *"abcd"),
    }
    expected = [
        ("data", "forward", 256 + 32 + 16),
        ("small", "forward", 304),
        ("a", "forward", 336),
        ("b", "forward", 352),
        ("c", "forward", 368),
        ("d", "forward", 384),
        ("sum", "forward", 384 + 32 + 32),  # with the sum of three
        ("sum", "backward", 448 - 32 - 3 * 16 - 32 + 32),  # the four are gone; the seed
        ("sum", "backward", 368 + 3 * 16),
        ("d", "backward", 416 + 64),
        ("c", "backward", 480 - 16 + 64),
        ("b", "backward", 528 - 16 + 64),
        ("a", "backward", 576 - 16 + 64),  # its gradient is the seed
        ("a", "update", 2 * 256 + 48 + 32),
    ]
    check(layers, expected)


def test_a_choice_keeps_its_mask_alone() -> None:
    # torch.where makes one tensor of three in one pass, and saves the condition.
    layers = {
        "data": data(1, 4),
        "mask": data(1, 4),
        "a": product("data", 4),
        "b": product("data", 4),
        "chosen": layer("Elementwise", "mask", "a", "b", function="where"),
    }
    expected = [
        ("data", "forward", 128 + 16 + 16),
        ("mask", "forward", 160),
        ("a", "forward", 176),
        ("b", "forward", 192),
        ("chosen", "forward", 208),
        ("chosen", "backward", 208 - 16 - 16 + 16),  # a and b are gone; the seed
        ("chosen", "backward", 192 + 16 + 16),
        ("b", "backward", 224 - 16 + 64),
        ("a", "backward", 272 - 16 + 64),
        ("a", "update", 2 * 128 + 32 + 16),
    ]
    check(layers, expected)


def test_a_sigmoid_of_2017_keeps_its_shape_in_the_largest_batch_too() -> None:
    net = make_net(
        {"data": data(1, 4), "a": product("data", 4), "s": layer("Sigmoid", "a")},
    )
    # Of n samples each tensor has 16 n bytes. With data, what s gave, the seed and the gradient
    # of a there are 64 + 64 n; at a, with the matrix's gradient, 128 + 48 n, which is as much
    # for n = 4, and less for more. 64 + 64 * 10 = 704.
    assert footprint(net, 10).peak == 704
    assert [largest_batch(net, room) for room in (703, 704, 767, 768)] == [9, 10, 10, 11]
    # In inference data, a and s: 64 + 48 n, of 13 samples 688 and of 14 736.
    assert [largest_batch(net, room, training=False) for room in (687, 688)] == [12, 13]
    assert largest_batch(net, 735, training=False) == 13


def test_a_reshape_copies_what_is_turned_and_a_product_its_gradient() -> None:
    # The weights have 36 numbers, all tensors 24; forward of `turned` is in a's memory.
    layers = {
        "data": data(1, 4, 6),
        "a": product("data", 6, axis=-1),
        "turned": layer("Transpose", "a", perm=[0, 2, 1]),
        "flat": layer("Reshape", "turned", output_shape=[-1, 24]),
    }
    expected = [
        ("data", "forward", 144 + 96),
        ("a", "forward", 336),
        ("turned", "forward", 336),
        ("flat", "forward", 432),  # a copy in order
        ("flat", "backward", 144 + 96 + 96 + 96),  # a is gone; the seed
        ("flat", "backward", 432),
        ("turned", "backward", 432),
        ("a", "backward", 432 + 96 + 144),  # rows of the gradient in order; that of the weights
        ("a", "update", 144 + 96 + 96 + 144),
    ]
    check(layers, expected)


def test_what_is_turned_and_turned_back_is_never_copied() -> None:
    layers = {
        "data": data(1, 4, 6),
        "a": product("data", 6, axis=-1),
        "turned": layer("Transpose", "a", perm=[0, 2, 1]),
        "back": layer("Transpose", "turned", perm=[0, 2, 1]),
        "flat": layer("Reshape", "back", output_shape=[-1, 24]),
    }
    expected = [
        ("data", "forward", 144 + 96),
        *((name, "forward", 336) for name in ("a", "turned", "back", "flat")),
        ("flat", "backward", 336 + 96),  # the seed
        *((name, "backward", 432) for name in ("flat", "back", "turned")),
        ("a", "backward", 432 + 144),
        ("a", "update", 336 + 144),
    ]
    check(layers, expected)


def test_heads_of_fused_attention_and_what_it_gives_are_views() -> None:
    # Two heads of two tokens with two features: 8 numbers, and 4 logarithms that are kept.
    layers = {
        "data": data(1, 2, 4),
        "a": product("data", 4, axis=-1),
        "parts": layer("Reshape", "a", output_shape=[-1, 2, 2, 2]),
        "heads": layer("Transpose", "parts", perm=[0, 2, 1, 3]),
        "attention": layer("Attention", "heads", "heads", "heads"),
        "turned": layer("Transpose", "attention", perm=[0, 2, 1, 3]),
        "flat": layer("Reshape", "turned", output_shape=[-1, 2, 4]),
    }
    expected = [
        ("data", "forward", 64 + 32),
        *((name, "forward", 128) for name in ("a", "parts", "heads")),
        *((name, "forward", 128 + 32 + 16) for name in ("attention", "turned", "flat")),
        *((name, "backward", 176 + 32) for name in ("flat", "flat", "turned")),
        ("attention", "backward", 208 + 3 * 32),  # of queries, keys and values
        # What it kept is gone but for its output, which is the result, and so is the seed.
        ("heads", "backward", 64 + 32 + 32 + 32),
        ("parts", "backward", 160),
        ("a", "backward", 160 + 64),
        ("a", "update", 64 + 32 + 32 + 64),
    ]
    check(layers, expected)
