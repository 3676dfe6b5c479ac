"""What all other layers compute in TensorFlow, beside NumPy."""

from __future__ import annotations

from collections.abc import Callable
from math import erf

import numpy as np
import pytest
from tensorflow_layers import Array, close, computed, normal, normalized, sigmoid

from paleo.net.layers.functions import ELEMENTWISE, FUNCTIONS

pytest.importorskip("tensorflow", reason="needs TensorFlow")

# ---- Functions of elements ---------------------------------------------------------------------

_ERF = np.vectorize(erf)
OF_ONE: dict[str, Callable[[Array], Array]] = {
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "leaky_relu": lambda x: np.where(x > 0, x, 0.2 * x),
    "elu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "gelu": lambda x: x * (1 + _ERF(x / np.sqrt(2))) / 2,
    "silu": lambda x: x * sigmoid(x),
    "softplus": lambda x: np.log1p(np.exp(x)),
    "sigmoid": sigmoid,
    "hard_sigmoid": lambda x: np.clip(x + 3, 0, 6) / 6,
    "hard_swish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "tanh": np.tanh,
    "absval": np.abs,
    "exp": np.exp,
    "log": np.log,
    "power": np.square,
    "celu": lambda x: np.where(x > 0, x, 2 * np.expm1(x / 2)),
    "hard_tanh": lambda x: np.clip(x, -1, 1),
    "mish": lambda x: x * np.tanh(np.log1p(np.exp(x))),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "sqrt": np.sqrt,
    "reciprocal": lambda x: 1 / x,
    "erf": _ERF,
    "sin": np.sin,
    "cos": np.cos,
    "round": np.round,
    "sign": np.sign,
    "compare": lambda x: x > 0,
    "cast": lambda x: x,
    "relu_squared": lambda x: np.maximum(x, 0) ** 2,
    "quick_gelu": lambda x: x / (1 + np.exp(-1.702 * x)),
}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions_of_one_element(function: str) -> None:
    x = normal(2, 3, 4) * 3
    if function in ("log", "sqrt"):
        x = np.abs(x) + 0.1
    found = computed("Activation", x, function=function)
    assert np.isfinite(found).all()
    if function in OF_ONE:
        assert close(found, OF_ONE[function](x))


OF_SEVERAL: dict[str, Callable[..., Array]] = {
    "sum": lambda x, y: x + y,
    "difference": lambda x, y: x - y,
    "product": lambda x, y: x * y,
    "quotient": lambda x, y: x / y,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "mean": lambda x, y: (x + y) / 2,
    "power": np.power,
    "where": lambda x, y: np.where(x > 0, y, 1),
    "compare": lambda x, y: x > y,
    "logical": lambda x, y: (x > 0) & (y > 0),
}


@pytest.mark.parametrize("function", ELEMENTWISE)
def test_functions_of_several_elements(function: str) -> None:
    x, y = np.abs(normal(2, 3, 4)) + 0.1, np.abs(normal(2, 3, 4)) + 0.1
    wanted = OF_SEVERAL[function]
    assert close(computed("Elementwise", x, y, function=function), wanted(x, y))
    # Dimensions are compared from the last, the batch aside: 2 x 4 is 2 x 1 x 4.
    z = y[:, 0]
    assert close(computed("Elementwise", x, z, function=function), wanted(x, z[:, None]))


def test_three_elements_and_a_tensor_for_all_samples() -> None:
    x, y, z = normal(2, 3), normal(2, 3), normal(1, 3)
    assert close(computed("Elementwise", x, y, z), x + y + z)
    assert close(computed("Elementwise", x, y, z, function="mean"), (x + y + z) / 3)
    assert close(computed("Elementwise", x, y, z, function="where"), np.where(x > 0, y, z))


def test_slopes_probabilities_and_dropped_elements() -> None:
    x, a = normal(2, 3, 4), normal(4)
    assert close(computed("PReLU", x, ws=(a,)), np.where(x > 0, x, a * x))
    weights = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    assert close(computed("Softmax", x, dim=1), weights)
    flat = x[:, :1]
    assert close(
        computed("Softmax", flat), (np.exp(flat) / np.exp(flat).sum(2, keepdims=True))[:, 0]
    )
    assert close(computed("Sigmoid", x[:, :1, :1]), sigmoid(x[:, 0, :1]))
    ones = np.ones((4, 500), np.float32)
    kept = computed("Dropout", ones, dropout_keep_prob=0.8)
    # Elements that stay are 1 / 0.8; of 2000, 1600 do, give or take ten times 18.
    assert set(np.unique(kept)) == {0, np.float32(1.25)}
    assert 1400 < np.count_nonzero(kept) < 1800
    assert close(computed("Dropout", ones, dropout_keep_prob=0.8, training=False), ones)


# ---- Normalizations ----------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(4, 3), (4, 5, 3), (2, 4, 5, 3), (2, 2, 3, 4, 3)])
def test_channels_are_normalized_over_the_batch(shape: tuple[int, ...]) -> None:
    x, scale, shift = normal(*shape), normal(3), normal(3)
    wanted = normalized(x, tuple(range(len(shape) - 1)))
    assert close(computed("BatchNorm", x, ws=(scale, shift)), wanted * scale + shift)
    assert close(computed("BatchNorm", x, affine=False), wanted)
    # Statistics begin with mean 0 and variance 1.
    found = computed("BatchNorm", x, ws=(scale, shift), training=False)
    assert close(found, x / np.sqrt(1 + 1e-5) * scale + shift)


def test_rows_groups_and_channels_of_a_sample_are_normalized() -> None:
    x = normal(2, 3, 5, 4)
    scale, shift = normal(5, 4), normal(5, 4)
    found = computed("LayerNorm", x, ws=(scale, shift), num_dims=2)
    assert close(found, normalized(x, (2, 3)) * scale + shift)
    found = computed("LayerNorm", x, ws=(scale[0],), bias_term=False)
    assert close(found, normalized(x, 3) * scale[0])
    size = np.sqrt((x * x).mean((2, 3), keepdims=True) + 1e-5)
    assert close(computed("RMSNorm", x, ws=(scale,), num_dims=2), x / size * scale)
    own, more = normal(4), normal(4)
    parts = normalized(x.reshape(2, 15, 2, 2), (1, 3)).reshape(x.shape)
    assert close(computed("GroupNorm", x, ws=(own, more), num_groups=2), parts * own + more)
    assert close(computed("InstanceNorm", x, ws=(own, more)), normalized(x, (1, 2)) * own + more)
    assert close(computed("L2Norm", x), x / np.sqrt((x * x).sum(3, keepdims=True)))
    assert close(computed("Scale", x, ws=(own, more)), x * own + more)
    assert close(computed("Scale", x, ws=(own,), bias_term=False), x * own)


def test_each_element_is_normalized_over_its_neighbours() -> None:
    x = normal(2, 3, 4, 6) * 30
    squares = np.pad(x * x, [(0, 0)] * 3 + [(1, 1)])
    sums = squares[..., :-2] + squares[..., 1:-1] + squares[..., 2:]
    assert close(computed("LRN", x, local_size=3), x / (1 + 1e-4 * sums) ** 0.75)
    assert computed("LRN", x[:, 0, 0], local_size=3).shape == (2, 6)


# ---- Shapes and places -------------------------------------------------------------------------


def test_shapes_and_places() -> None:
    x = normal(2, 6, 4)
    assert close(computed("Reshape", x, output_shape=[-1, 3, -1]), x.reshape(2, 3, 8))
    assert close(computed("Flatten", x), x.reshape(2, 24))
    assert close(computed("Transpose", x, perm=[0, 2, 1]), x.swapaxes(1, 2))
    assert close(computed("Slice", x, dim=1, begin=1, size=2, step=3), x[:, 1:5:3])
    assert close(computed("Slice", x, begin=2, size=1, keep_dim=False), x[:, :, 2])
    assert close(computed("Concatenate", x, x[:, :, :1]), np.concatenate([x, x[:, :, :1]], 2))
    found = computed("Concatenate", x, x[:1], dim=1)
    assert close(found, np.concatenate([x, np.repeat(x[:1], 2, 0)], 1))
    assert close(computed("Pad", x, margins=[[1, 0], [0, 2]]), np.pad(x, [(0, 0), (1, 0), (0, 2)]))
    assert close(computed("Expand", x[:, :1], output_shape=[-1, 5, 4]), np.repeat(x[:, :1], 5, 1))
    found = computed("Expand", x[:, 0], output_shape=[-1, 3, 4])
    assert close(found, np.repeat(x[:, :1], 3, 1))
    assert close(computed("Rearrange", x), np.roll(x, 1, 1))
    image = normal(2, 4, 6, 3)
    deep = computed("Rearrange", image, output_shape=[-1, 2, 3, 12])
    blocks = image.reshape(2, 2, 2, 3, 2, 3).transpose(0, 1, 3, 2, 4, 5).reshape(2, 2, 3, 12)
    assert close(deep, blocks)
    assert close(computed("Rearrange", deep, output_shape=[-1, 4, 6, 3]), image)


def test_rows_are_picked_by_indices() -> None:
    x, places = normal(2, 6, 4), np.array([[0, 5, 1], [2, 2, 3]])
    wanted = np.stack([x[i, places[i]] for i in range(2)])
    assert close(computed("Gather", x, places, output_shape=[-1, 3, 4]), wanted)
    # One table for all samples.
    assert close(computed("Gather", x[:1], places, output_shape=[-1, 3, 4]), x[0][places])
    # Single elements of a row.
    row, own = x[:, 0], np.array([[0, 3], [1, 1]])
    found = computed("Gather", row, own, output_shape=[-1, 2])
    assert close(found, np.take_along_axis(row, own, 1))
    # Fixed indices pick what is there, along the dimension that changes.
    found = computed("Gather", x, output_shape=[-1, 6, 2])
    assert found.shape == (2, 6, 2)
    assert set(found.ravel()) <= set(x.ravel())
    assert computed("Gather", x, output_shape=[-1, 2, 2, 3]).shape == (2, 2, 2, 3)


def test_dimensions_are_reduced() -> None:
    x = normal(2, 3, 4)
    for name, wanted in {
        "mean": x.mean((1, 2)), "sum": x.sum((1, 2)), "maximum": x.max((1, 2)),
        "minimum": x.min((1, 2)), "product": x.prod((1, 2)),
        "norm": np.sqrt((x * x).sum((1, 2))), "argmax": x.reshape(2, 12).argmax(1),
    }.items():  # fmt: skip
        found = computed("Reduce", x, dims=[1, 2], function=name)
        assert close(found, wanted[:, None])  # a number for each sample is N x 1
    assert close(computed("Reduce", x, dims=[1], function="argmax"), x.argmax(1))
    assert close(computed("Reduce", x, dims=[1], keep_dims=True), x.mean(1, keepdims=True))


# ---- Ends --------------------------------------------------------------------------------------


def test_losses_of_classes() -> None:
    x, labels = normal(3, 5), np.array([[1], [4], [0]])
    logs = x - np.log(np.exp(x).sum(1, keepdims=True))
    picked = -np.take_along_axis(logs, labels, 1)
    assert close(computed("Loss", x, labels), picked)
    assert close(computed("Loss", x), -logs[:, :1])  # without labels, of the first class
    given = np.abs(normal(3, 5))
    assert close(computed("Loss", x, given), -(given * logs).sum(1, keepdims=True))
    shares = np.exp(logs)
    assert close(computed("Loss", shares, labels, function="cross_entropy"), picked)
    signs = np.where(np.arange(5) == labels, 1, -1)
    wanted = np.maximum(1 - signs * x, 0).sum(1, keepdims=True)
    assert close(computed("Loss", x, labels, function="hinge"), wanted)
    # Scores of several words: the mean over them.
    words, each = normal(2, 3, 5), np.array([[0, 1, 2], [3, 4, 0]])
    logs = words - np.log(np.exp(words).sum(2, keepdims=True))
    picked = -np.take_along_axis(logs, each[:, :, None], 2)[:, :, 0]
    assert close(computed("Loss", words, each), picked.mean(1, keepdims=True))


def test_losses_of_differences() -> None:
    x, y = normal(3, 5) * 2, normal(3, 5)
    gap = np.abs(x - y)
    for name, wanted in {
        "squared_error": gap**2,
        "absolute_error": gap,
        "smooth_absolute_error": np.where(gap < 1, gap**2 / 2, gap - 0.5),
        "sigmoid_cross_entropy": np.log1p(np.exp(x)) - x * y,
    }.items():
        assert close(computed("Loss", x, y, function=name), wanted.sum(1, keepdims=True))


def test_a_weight_counts_and_accuracy_is_of_the_best_score() -> None:
    x, labels, weight = normal(3, 5), np.array([[1], [4], [0]]), normal(3, 1)
    assert close(computed("Loss", x, labels, weight), computed("Loss", x, labels) * weight)
    right = x.argmax(1)[:, None]
    assert computed("Accuracy", x, right).ravel().tolist() == [1, 1, 1]
    right[1] = (right[1] + 1) % 5
    assert computed("Accuracy", x, right).ravel().tolist() == [1, 0, 1]
