"""The memory of a step: every tensor and every point of small nets by hand, and what must hold.

Elements have 4 bytes. A timeline in a comment lists the bytes alive at each point; the seed is
the gradient that the backward pass begins with.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layer_examples import EXAMPLES, Example
from model_configurations import DIFFERENT
from nets_of_tests import make_net

import paleo
from paleo.step.memory import OPTIMIZERS, Footprint, footprint, largest_batch
from paleo.step.memory.usage import Step

ONE = [1, 1, 1, 1]


def data(*shape: int) -> dict[str, Any]:
    return {"type": "Input", "tensor": list(shape)}


def layer(kind: str, *parents: str, **keys: Any) -> dict[str, Any]:
    return {"type": kind, "parents": list(parents), **keys}


def conv(parent: str, window: int, k: int, **keys: Any) -> dict[str, Any]:
    shape = {"filter": [window, window, -1, k], "strides": ONE, "padding": "SAME"}
    return layer("Convolution", parent, **shape | keys)


def product(parent: str, outputs: int, **keys: Any) -> dict[str, Any]:
    """An inner product without bias."""
    return layer("InnerProduct", parent, num_outputs=outputs, use_bias=False, **keys)


def timeline(net: paleo.NetSpec, optimizer: str | None = "sgd") -> list[tuple[str, str, int]]:
    """Return the layer, the pass and the bytes alive at each point."""
    step = Step(paleo.build(net), OPTIMIZERS[optimizer] if optimizer else None)
    return [
        (step.graph.nodes[node].name, direction, bytes_)
        for (node, direction), bytes_ in zip(step.schedule.points, step.sums(), strict=True)
    ]


CLASSIFIER = make_net(
    {
        "data": data(2, 4, 4, 1),
        "conv": conv("data", 3, 2),
        "relu": layer("Activation", "conv", function="relu"),
        "pool": layer("Pooling", "relu", ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID"),
        "ip": layer("InnerProduct", "pool", num_outputs=3),
        "labels": data(2, 1),
        "loss": layer("Loss", "ip", "labels"),
    }
)
# Of 2 samples: data 2 x 16 x 4 = 128; conv and relu 2 x 16 x 2 x 4 = 256 each; pool 2 x 4 x 2 x 4 =
# 64 and its 16 places 8 x 16 = 128; ip 2 x 3 x 4 = 24; labels 2 x 4 = 8; loss 8, and 24 of
# logarithms. Weights: conv 9 x 2 + 2 = 20, ip 8 x 3 + 3 = 27 numbers, 80 + 108 = 188 bytes.


def test_a_classifier_is_followed_tensor_by_tensor() -> None:
    assert timeline(CLASSIFIER) == [
        ("data", "forward", 324),  # weights 188, data 128, labels 8: they are there from the start
        ("conv", "forward", 324 + 256),
        ("relu", "forward", 324 + 256 + 256),
        ("pool", "forward", 324 + 256 + 64 + 128),  # what conv gave is gone
        ("ip", "forward", 324 + 256 + 64 + 128 + 24),
        ("labels", "forward", 796),
        ("loss", "forward", 796 + 8 + 24),
        ("loss", "backward", 828 + 8),  # the seed
        ("loss", "backward", 836 + 24 + 24),  # the gradients of logarithms and scores
        # Seed and logarithms, 32, are gone. Gradients of ip: 24, of its weights and its input.
        ("ip", "backward", 828 - 24 + 24 + 108 + 64),
        # Gone: what pool gave, 64, and the gradient of ip's output, 24.
        ("pool", "backward", 1000 - 64 - 24 + 256),
        ("relu", "backward", 1168 - 64 - 128 + 256),  # gone: the gradient of pool, its places
        ("conv", "backward", 1232 - 256 - 256 + 80),  # the image needs no gradient
        # Weights and gradients twice 188, data, labels; who called has scores and loss.
        ("ip", "update", 376 + 128 + 8 + 24 + 8),
    ]
    found = footprint(CLASSIFIER)
    assert (found.peak, found.peak_layer, found.peak_pass) == (1232, "relu", "backward")
    assert (found.weights, found.gradients, found.optimizer_state) == (188, 188, 0)
    assert found.activations == 828 - 188
    assert {each.name: each.activations for each in found.layers} == {
        "data": 128,
        "conv": 0,
        "relu": 256,
        "pool": 64 + 128,
        "ip": 24,
        "labels": 8,
        "loss": 8 + 24,
    }
    conv1 = found.layers[1]
    assert (conv1.output, conv1.weights, conv1.gradients, conv1.total) == (256, 80, 80, 160)


def test_in_inference_a_tensor_goes_after_its_last_reader() -> None:
    assert timeline(CLASSIFIER, None) == [
        ("data", "forward", 324),
        ("conv", "forward", 324 + 256),
        ("relu", "forward", 324 + 256 + 256),
        ("pool", "forward", 324 + 256 + 64 + 128),
        ("ip", "forward", 324 + 64 + 24),
        ("labels", "forward", 324 + 24),
        ("loss", "forward", 324 + 24 + 8 + 24),
    ]
    found = footprint(CLASSIFIER, training=False)
    assert (found.peak, found.peak_layer, found.peak_pass) == (836, "relu", "forward")
    assert (found.weights, found.gradients, found.optimizer_state) == (188, 0, 0)
    # At once: the batch, labels, and what conv and relu give.
    assert found.activations == 128 + 8 + 256 + 256
    assert [each.activations for each in found.layers] == [128, 256, 256, 0, 0, 8, 0]


def test_what_is_joined_in_a_convolution_works_in_its_memory() -> None:
    net = make_net(
        {
            "data": data(1, 2, 2, 1),
            "conv": conv(
                "data", 1, 2, use_bias=False, normalizer_fn="batch_norm", activation_fn="relu"
            ),
        }
    )
    # data 16; 2 weights, 8; a map of 2 channels is 32; its 2 means and 2 variances 16.
    assert timeline(net) == [
        ("data", "forward", 8 + 16),
        ("conv", "forward", 24 + 32),
        ("conv", "forward", 56 + 32 + 16),  # normalized: its input stays
        ("conv", "forward", 104),  # rectified, in the same memory
        ("conv", "backward", 104 + 32),  # the seed
        ("conv", "backward", 136 + 32),
        ("conv", "backward", 168 - 32 + 32),
        ("conv", "backward", 168 - 32 - 32 - 16 + 8),
        ("conv", "update", 8 + 8 + 16 + 32),
    ]
    found = footprint(net)
    assert (found.layers[1].activations, found.peak) == (32 + 32 + 16, 168)
    # A function whose gradient takes its input leaves that as it is.
    smooth = make_net({"data": data(1, 2, 2, 1), "conv": conv("data", 1, 2, activation_fn="gelu")})
    assert footprint(smooth).layers[1].activations == 32 + 32
    unknown = make_net(
        {"data": data(1, 2, 2, 1), "conv": conv("data", 1, 2, activation_fn="other")}
    )
    assert footprint(unknown).layers[1].activations == 32 + 32


RESIDUAL = {
    "data": data(1, 4),
    "a": product("data", 4),
    "b": product("a", 4),
    "sum": layer("Elementwise", "a", "b"),
    "out": product("sum", 4),
}


def test_a_sum_hands_on_one_gradient_into_which_the_branch_adds() -> None:
    # Each tensor has 16 bytes, each matrix 64.
    assert timeline(make_net(RESIDUAL)) == [
        ("data", "forward", 192 + 16),
        ("a", "forward", 208 + 16),
        ("b", "forward", 224 + 16),
        ("sum", "forward", 240 + 16),
        ("out", "forward", 256 - 16 + 16),  # b is gone: nobody keeps it
        ("out", "backward", 256 + 16),
        ("out", "backward", 272 + 64 + 16),
        ("sum", "backward", 352 - 16 - 16),  # gone: the seed, and what sum gave
        ("b", "backward", 320 + 64 + 16),  # the gradient of a by this way
        ("a", "backward", 400 - 16 - 16 + 64),  # it was added to the other; a is gone
        ("a", "update", 2 * 192 + 16 + 16),
    ]


def test_pieces_of_a_gradient_are_added_into_a_new_tensor() -> None:
    net = make_net(
        {
            "data": data(1, 4),
            "a": product("data", 4),
            "b": product("a", 4),
            "both": layer("Concatenate", "a", "b"),
        }
    )
    assert timeline(net) == [
        ("data", "forward", 128 + 16),
        ("a", "forward", 160),
        ("b", "forward", 176),
        ("both", "forward", 176 + 32),
        ("both", "backward", 208 - 16 + 32),  # b is gone; the seed
        ("both", "backward", 224),  # its halves are the gradients of a and b
        ("b", "backward", 224 + 64 + 16),
        ("b", "backward", 304 - 16 + 16),  # a is gone; the sum of half the seed and the new one
        ("a", "backward", 304 - 32 - 16 + 64),
        ("a", "update", 2 * 128 + 16 + 32),
    ]


def test_a_gradient_that_somebody_else_holds_is_not_added_into() -> None:
    net = make_net(
        {
            "data": data(1, 4),
            "a": product("data", 4),
            "twice": layer("Elementwise", "a", "a"),
        }
    )
    assert timeline(net) == [
        ("data", "forward", 64 + 16),
        ("a", "forward", 96),
        ("twice", "forward", 112),
        ("twice", "backward", 112 - 16 + 16),  # a is gone; the seed
        ("twice", "backward", 112),  # it is the gradient of a by either way
        ("twice", "backward", 112 + 16),  # and their sum another tensor
        ("a", "backward", 128 - 16 + 64),
        ("a", "update", 2 * 64 + 16 + 16),
    ]


def test_shared_parameters_count_once_and_their_gradients_are_added() -> None:
    net = make_net(
        {
            "data": data(1, 4),
            "a": product("data", 4),
            "b": product("a", 4, shares="a"),
        }
    )
    assert timeline(net) == [
        ("data", "forward", 64 + 16),
        ("a", "forward", 96),
        ("b", "forward", 112),
        ("b", "backward", 112 + 16),
        ("b", "backward", 128 + 64 + 16),
        ("a", "backward", 208 - 16 - 16 + 64),  # a second gradient, which is added to the first
        ("a", "update", 2 * 64 + 16 + 16),
    ]
    assert [each.weights for each in footprint(net, optimizer="adam").layers] == [0, 64, 0]
    assert footprint(net, optimizer="adam").optimizer_state == 2 * 64


def test_views_are_in_the_memory_of_what_they_show() -> None:
    net = make_net(
        {
            "data": data(1, 4),
            "a": product("data", 8),
            "shaped": layer("Reshape", "a", output_shape=[-1, 2, 4]),
            "half": layer("Slice", "shaped", dim=1, size=1),
            "flat": layer("Flatten", "half"),
            "b": product("flat", 2),
        }
    )
    # a 32 bytes, b 8; weights 128 + 32.
    assert timeline(net)[:6] == [
        ("data", "forward", 160 + 16),
        ("a", "forward", 176 + 32),
        ("shaped", "forward", 208),
        ("half", "forward", 208),
        ("flat", "forward", 208),
        ("b", "forward", 216),  # it keeps what flat shows: all of a
    ]
    assert timeline(net)[6:] == [
        ("b", "backward", 216 + 8),
        ("b", "backward", 224 + 32 + 16),
        ("flat", "backward", 272 - 8 - 32),  # a is gone; the same gradient
        ("half", "backward", 232 + 32),  # of what was sliced: the slice, and zeros
        ("shaped", "backward", 264 - 16),
        ("a", "backward", 248 + 128),
        ("a", "update", 2 * 160 + 16 + 8),
    ]
    found = {each.name: each for each in footprint(net).layers}
    assert [found[name].activations for name in ("shaped", "half", "flat")] == [0, 0, 0]
    assert (found["a"].activations, found["half"].output) == (32, 16)


def test_a_loss_decides_what_the_backward_pass_begins_with() -> None:
    layers = {
        "data": data(1, 4),
        "a": product("data", 4),
        "side": product("a", 2),
        "labels": data(1, 1),
        "loss": layer("Loss", "a", "labels", function="squared_error"),
    }
    # The side branch has no gradient: a stays for it to the end.
    directions = [(name, way) for name, way, _ in timeline(make_net(layers))]
    assert directions[5:] == [("loss", "backward")] * 2 + [("a", "backward"), ("a", "update")]
    found = timeline(make_net(layers))
    # Weights 64 + 32, data 16, labels 4; a 16, side 8, loss 4; then also all gradients: 64.
    assert found[-1] == ("a", "update", 96 + 20 + 28 + 64)


def test_accuracy_has_no_gradient() -> None:
    layers = {
        "data": data(1, 4),
        "a": product("data", 4),
        "labels": data(1, 1),
        "top": layer("Accuracy", "a", "labels"),
    }
    found = timeline(make_net(layers))
    assert [(name, way) for name, way, _ in found[4:]] == [
        ("a", "backward"),
        ("a", "backward"),
        ("a", "update"),
    ]


def test_a_net_without_parameters_has_no_backward_pass() -> None:
    net = make_net({"data": data(1, 4), "relu": layer("Activation", "data", function="relu")})
    assert timeline(net) == [
        ("data", "forward", 16),
        ("relu", "forward", 32),
        ("data", "update", 32),
    ]


def test_constants_stay_and_trained_tensors_are_weights() -> None:
    net = make_net(
        {
            "data": data(2, 4),
            "mask": {"type": "Parameter", "shape": [4], "trainable": False},
            "masked": layer("Elementwise", "data", "mask", function="product"),
            "shift": {"type": "Parameter", "shape": [4]},
            "out": layer("Elementwise", "masked", "shift"),
        }
    )
    assert timeline(net) == [
        ("data", "forward", 16 + 32 + 16),  # the trained tensor, data, the constant
        ("mask", "forward", 64),
        ("masked", "forward", 64 + 32),
        ("shift", "forward", 96),
        ("out", "forward", 96 + 32),
        ("out", "backward", 128 - 32 + 32),  # what was masked is gone; the seed
        ("out", "backward", 128 + 16),  # the gradient of the shift, summed over the batch
        ("shift", "backward", 144 - 32 + 16),
        ("shift", "update", 16 + 16 + 32 + 16 + 32),
    ]


@pytest.mark.parametrize(
    ("name", "states", "temporaries"),
    [
        ("sgd", 0, 0),
        ("momentum", 1, 0),
        ("rmsprop", 1, 1),
        ("adagrad", 1, 1),
        ("adam", 2, 2),
        ("adamw", 2, 2),
        ("bert_adam", 2, 2),
        ("fused_adam", 2, 0),  # a kernel that keeps its temporaries in registers
        ("lamb", 2, 0),  # what it makes of a gradient it writes in its place
    ],
)
def test_an_optimizer_keeps_states_and_takes_memory_while_it_updates(
    name: str, states: int, temporaries: int
) -> None:
    # Matrices of 100 x 50 and 50 x 4, 20,000 and 800 bytes; a sample has 100, 50 and 4 numbers.
    net = make_net({"data": data(1, 100), "a": product("data", 50), "b": product("a", 4)})
    found = footprint(net, optimizer=name)
    assert found.weights == found.gradients == 20_800
    assert found.optimizer_state == states * 20_800
    # The update: weights, gradients and states, temporaries of the larger matrix, and what who
    # called has: 400 of data and 16 of results. Without temporaries the end of the backward
    # pass takes more: a's gradient, 200, is still there.
    fixed = (2 + states) * 20_800 + 416
    assert found.peak == fixed + max(200, temporaries * 20_000)
    assert found.peak_pass == ("update" if temporaries else "backward")
    assert found.peak_layer == "a"


def test_every_optimizer_says_what_it_is() -> None:
    names = (
        "sgd momentum rmsprop adagrad adam fused_adam adamw bert_adam adafactor lion adam_8bit "
        "muon lamb"
    )
    assert list(OPTIMIZERS) == names.split()
    for name, optimizer in OPTIMIZERS.items():
        assert (optimizer.name, bool(optimizer.summary)) == (name, True)


def test_stacked_recurrent_layers_are_followed_one_by_one() -> None:
    stacked = make_net(
        {"data": data(2, 3, 4), "rnn": layer("RNN", "data", num_outputs=5, num_layers=2)}
    )
    # Each layer gives 2 x 3 x 5 numbers and keeps as many; weights 5 (4 + 5 + 2), 5 (5 + 5 + 2).
    weights, one = 4 * (55 + 60), 120
    assert timeline(stacked) == [
        ("data", "forward", weights + 96),
        ("rnn", "forward", 556 + 2 * one),
        ("rnn", "forward", 796 + 2 * one),
        ("rnn", "backward", 1036 + one),
        ("rnn", "backward", 1156 + 240 + 100 + one),  # the upper layer; a matrix on the way
        ("rnn", "backward", 1616 - 100 - one - one + 220 + 100),  # gone: its seed, its states
        ("rnn", "update", 2 * weights + 96 + one),
    ]


def test_in_inference_masks_and_statistics_are_not_made() -> None:
    net = make_net(
        {
            "data": data(2, 3, 4),
            "lstm": layer("LSTM", "data", num_outputs=5),
            "drop": layer("Dropout", "lstm", dropout_keep_prob=0.5),
            "norm": layer("LayerNorm", "drop", affine=False),
        }
    )
    weights = 4 * 4 * 5 * (4 + 5 + 2)
    assert timeline(net, None) == [
        ("data", "forward", weights + 96),
        ("lstm", "forward", weights + 96 + 120),
        ("drop", "forward", weights + 96 + 120),  # it does nothing
        ("norm", "forward", weights + 96 + 120 + 120),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=str)
@pytest.mark.parametrize("training", [True, False])
def test_every_layer_has_a_footprint(example: Example, training: bool) -> None:
    found = footprint(example.net(), training=training, optimizer="adam")
    at_least = found.weights + found.gradients + found.optimizer_state
    assert found.peak >= at_least
    assert found.peak >= found.weights + found.activations


SOME = ["lenet5", "inception_v3", "resnet18", "densenet40", "lstm_lm", "alex_v2_4gpu", "unet"]


@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize("training", [True, False])
def test_an_array_of_batch_sizes_gives_the_same_as_one_by_one(name: str, training: bool) -> None:
    batches = [1, 2, 5, 300]
    many: Any = footprint(name, np.array(batches), optimizer="adam", training=training)
    for i, batch in enumerate(batches):
        one = footprint(name, batch, optimizer="adam", training=training)
        assert isinstance(one.peak, int)
        assert many.peak[i] == one.peak
        assert (many.peak_layer[i], many.peak_pass[i]) == (one.peak_layer, one.peak_pass)
        assert many.activations[i] == one.activations
        for all_, single in zip(many.layers, one.layers, strict=True):
            assert np.broadcast_to(all_.total, 4)[i] == single.total
            assert np.broadcast_to(all_.output, 4)[i] == single.output


@pytest.mark.slow
@pytest.mark.alike
@pytest.mark.parametrize("name", DIFFERENT)
def test_the_footprint_of_every_net_adds_up(name: str) -> None:
    found = footprint(name, 4, optimizer="momentum")
    summary = paleo.summarize(name, 4)
    assert found.weights == found.gradients == found.optimizer_state == summary.weights_bytes
    assert [each.name for each in found.layers] == [each.name for each in summary.layers]
    for part in ("weights", "gradients", "optimizer_state", "activations"):
        assert getattr(found, part) == sum(getattr(each, part) for each in found.layers)
    assert found.weights + found.optimizer_state + found.activations <= found.peak
    assert found.peak <= found.weights * 3 + 3 * found.activations
    inference = footprint(name, 4, training=False)
    assert inference.activations + inference.weights <= inference.peak < found.peak
    assert inference.peak_pass == "forward"


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(SOME),
    st.integers(0, 2**36),
    st.sampled_from(list(OPTIMIZERS)),
    st.booleans(),
    st.sampled_from([0, 10**9]),
)
def test_the_largest_batch_fits_and_one_more_does_not(
    name: str, capacity: int, optimizer: str, training: bool, workspace: int
) -> None:
    asked: dict[str, Any] = {"optimizer": optimizer, "training": training, "workspace": workspace}
    batch = largest_batch(name, capacity, **asked)
    assert footprint(name, batch + 1, **asked).peak > capacity
    if batch:
        assert footprint(name, batch, **asked).peak <= capacity


def test_the_largest_batch_of_one_sample_or_none() -> None:
    one = int(footprint("vgg16", 1).peak)
    assert largest_batch("vgg16", one) == 1
    assert largest_batch("vgg16", one - 1) == 0
    assert largest_batch("vgg16", one + 0.5) == 1
    assert largest_batch("vgg16", one, workspace=0.5) == 0
    assert largest_batch("vgg16", 0) == 0


def test_where_a_parameter_is_added_to_every_sample_one_fits_too() -> None:
    layers = {
        "data": data(2, 4),
        "a": product("data", 4),
        "shift": {"type": "Parameter", "shape": [4]},
        "out": layer("Elementwise", "a", "shift"),
    }
    net = make_net(layers)
    for batch in (1, 2, 3):
        assert largest_batch(net, int(footprint(net, batch).peak)) == batch


def test_workspace_is_added_at_every_point() -> None:
    plain = footprint("lenet5")
    more = footprint("lenet5", workspace=1000.5)
    assert (more.workspace, more.peak) == (1001, plain.peak + 1001)
    assert (more.peak_layer, more.layers) == (plain.peak_layer, plain.layers)


def test_smaller_elements_take_less_but_places_stay() -> None:
    full, half = footprint(CLASSIFIER), footprint(CLASSIFIER, dtype="fp16")
    assert half.weights == full.weights // 2
    assert half.activations == (full.activations - 128) // 2 + 128


def test_slices_of_split_layers_all_count() -> None:
    found = footprint("alex_v2_4gpu", 1)
    assert found.notes == ("layers that are split over devices count with all their slices",)
    assert footprint("alex_v2", 1).notes == ()


def test_what_is_not_understood_is_named() -> None:
    net = make_net(
        {
            "data": data(2, 4),
            "a": product("data", 4),
            "x": layer("Unknown", "a", operator="Sort", output_shape=[-1, 4]),
        }
    )
    found = footprint(net)
    assert found.notes == ("not known, and assumed to keep what they read: Sort",)
    # It keeps a and gives as much.
    assert [each.activations for each in found.layers] == [32, 32, 32]


def test_a_sigmoid_of_2017_keeps_its_shape() -> None:
    net = make_net({"data": data(2, 4), "s": layer("Sigmoid", "data")})
    assert footprint(net).layers[1].output == 32


def test_the_dictionary_has_bytes_in_its_keys() -> None:
    found: Footprint = footprint("lenet5", 2, optimizer="adam")
    values = found.to_dict()
    for key in ("weights", "gradients", "optimizer_state", "activations", "workspace", "peak"):
        assert values[f"{key}_bytes"] == getattr(found, key)
    assert values["optimizer"] == "adam"
    assert footprint("lenet5", 2, training=False).to_dict()["optimizer"] is None
    assert values["layers"][1] == {
        "name": "conv1",
        "type": "Convolution",
        "output_bytes": 4 * 2 * 24 * 24 * 20,
        "weights_bytes": 4 * 1520,
        "gradients_bytes": 4 * 1520,
        "optimizer_state_bytes": 8 * 1520,
        "activations_bytes": 4 * 2 * 24 * 24 * 20,
        "total_bytes": 16 * 1520 + 4 * 2 * 24 * 24 * 20,
    }


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"optimizer": "adan"}, "unknown optimizer 'adan' (did you mean 'adam'?)"),
        ({"batch_size": 0}, "batch_size: expected a whole number of 1 or more, got 0"),
        ({"batch_size": 1.5}, "batch_size: expected a whole number of 1 or more, got 1.5"),
        ({"workspace": -1}, "workspace: expected bytes, 0 or more, got -1"),
        ({"workspace": math.nan}, "workspace: expected bytes, 0 or more, got NaN"),
        ({"workspace": math.inf}, "workspace: expected bytes, 0 or more, got Infinity"),
        ({"workspace": "4 GiB"}, 'workspace: expected bytes, 0 or more, got "4 GiB"'),
        ({"dtype": "fp31"}, "unknown dtype 'fp31' (did you mean 'fp32'?)"),
        ({"net": "lenet6"}, "unknown net 'lenet6' (did you mean 'lenet5'?)"),
    ],
)
def test_a_wrong_setting_is_named(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(paleo.PaleoError) as caught:
        footprint(**{"net": "lenet5"} | asked)
    (mistake,) = caught.value.mistakes
    assert str(mistake).startswith(message)


def test_all_wrong_settings_are_said_together() -> None:
    with pytest.raises(paleo.PaleoError) as caught:
        footprint("gone", 0, optimizer="x", dtype="y", workspace=-1)
    assert len(caught.value.mistakes) == 5
    with pytest.raises(paleo.PaleoError) as caught:
        largest_batch("gone", -1, optimizer="x", dtype="y", workspace=-1)
    assert len(caught.value.mistakes) == 5
    assert "capacity: expected bytes, 0 or more, got -1" in str(caught.value)
