"""Functions of elements, normalizations, shapes and ends: PyTorch computes what the format says.

As `test_executor_torch_layers`, by hand or by NumPy, in fp64.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from torch_runs import close, normal, run

import paleo
from paleo.core.errors import ExecutorError
from paleo.measure.executors import find_executor
from paleo.net.layers.functions import FUNCTIONS as NAMES

X = np.array([[-2.0, -0.5, 0.25, 4.0]])
ERF = np.vectorize(math.erf)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


#: Functions whose name says all of them.
FUNCTIONS = {
    "relu": np.maximum(X, 0),
    "relu6": np.clip(X, 0, 6),
    "elu": np.where(X > 0, X, np.exp(X) - 1),
    "celu": np.where(X > 0, X, np.exp(X) - 1),
    "gelu": X * (1 + ERF(X / np.sqrt(2))) / 2,
    "silu": X * sigmoid(X),
    "softplus": np.log1p(np.exp(X)),
    "sigmoid": sigmoid(X),
    "hard_sigmoid": np.clip(X / 6 + 0.5, 0, 1),
    "hard_swish": X * np.clip(X / 6 + 0.5, 0, 1),
    "tanh": np.tanh(X),
    "absval": np.abs(X),
    "exp": np.exp(X),
    "hard_tanh": np.clip(X, -1, 1),
    "mish": X * np.tanh(np.log1p(np.exp(X))),
    "softsign": X / (1 + np.abs(X)),
    "reciprocal": 1 / X,
    "erf": ERF(X),
    "sin": np.sin(X),
    "cos": np.cos(X),
    "round": np.round(X),
    "sign": np.sign(X),
    "compare": X > 0,
    "cast": X,
    "relu_squared": np.maximum(X, 0) ** 2,
    "quick_gelu": X * sigmoid(1.702 * X),
}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions_are_what_their_names_say(function: str) -> None:
    close(run("Activation", {"function": function}, X), FUNCTIONS[function])


def test_logarithms_and_roots_are_of_positive_numbers() -> None:
    close(run("Activation", {"function": "log"}, np.exp(X)), X)
    close(run("Activation", {"function": "sqrt"}, X**2), np.abs(X))


def test_every_function_runs_on_images() -> None:
    image = normal(2, 3, 4, 5)
    for function in NAMES:
        found = run("Activation", {"function": function}, image)
        assert found.shape == image.shape


def test_slopes_belong_to_channels() -> None:
    x, slopes = normal(2, 3, 4), np.array([0.0, 1.0, -1.0, 0.5])
    close(run("PReLU", {}, x, parameters=[slopes]), np.where(x > 0, x, slopes * x))
    one = np.array([0.5])
    close(run("PReLU", {"shared": True}, x, parameters=[one]), np.where(x > 0, x, x / 2))
    x = normal(2, 4)
    close(run("PReLU", {}, x, parameters=[slopes]), np.where(x > 0, x, slopes * x))


def test_a_softmax_adds_up_to_one_along_its_dimension() -> None:
    x = normal(2, 3, 4, 5)
    for dim in (1, 2, 3, -1):
        powers = np.exp(x)
        wanted = powers / powers.sum(dim, keepdims=True)
        close(run("Softmax", {"dim": dim}, x), wanted)
    pixel = normal(2, 1, 1, 10)
    powers = np.exp(pixel.reshape(2, 10))
    close(run("Softmax", {}, pixel), powers / powers.sum(1, keepdims=True))


def test_scores_that_are_not_as_many_as_the_classes_are_refused() -> None:
    with pytest.raises(ExecutorError) as caught:
        run("Softmax", {"num_classes": 10}, normal(2, 3, 4, 5))
    assert str(caught.value) == (
        'layer "x": executor torch cannot build Softmax: PyTorch gives 2x60, the net format 2x10'
    )
    close(run("Sigmoid", {}, normal(3, 1) * 0), np.full((3, 1), 0.5))
    with pytest.raises(ExecutorError, match="an Activation keeps the shape"):
        run("Sigmoid", {}, normal(2, 3))


def test_dropout_keeps_a_share_and_scales_it_in_training_alone() -> None:
    x = np.ones((100, 1000))
    found = run("Dropout", {"dropout_keep_prob": 0.8}, x)
    assert set(np.unique(found)) == {0.0, 1.25}
    # 100,000 elements: the standard deviation of the share is sqrt(0.16 / 100,000) = 0.0013.
    assert (found > 0).mean() == pytest.approx(0.8, abs=0.01)
    close(run("Dropout", {"dropout_keep_prob": 0.8}, x, training=False), x)


def test_elements_of_several_tensors_are_repeated_as_numpy_does() -> None:
    a, b, c = normal(2, 6, 5, 4), normal(2, 1, 5, 1), normal(2, 4)
    wide = c[:, None, None]
    cases: dict[str, Any] = {
        "sum": a + b + wide,
        "difference": a - b - wide,
        "product": a * b * wide,
        "quotient": a / b / wide,
        "maximum": np.maximum(np.maximum(a, b), wide),
        "minimum": np.minimum(np.minimum(a, b), wide),
        "mean": (a + b + wide) / 3,
    }
    for function, wanted in cases.items():
        close(run("Elementwise", {"function": function}, a, b, c), wanted)
    close(run("Elementwise", {"function": "where"}, a > 0, b, c), np.where(a > 0, b, wide))
    close(run("Elementwise", {"function": "power"}, np.abs(a), b), np.abs(a) ** b)
    close(run("Elementwise", {"function": "compare"}, a, b), a > b)
    close(run("Elementwise", {"function": "logical"}, a > 0, b > 0), (a > 0) & (b > 0))
    # The same for every sample.
    close(run("Elementwise", {}, a, a[:1, 0]), a + a[:1, :1])
    close(run("Elementwise", {"function": "product"}, a), a)


# ---- Normalizations ----------------------------------------------------------------------------


def normalized(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    centred = x - x.mean(axes, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axes, keepdims=True) + 1e-5)


@pytest.mark.parametrize("shape", [(3, 4), (2, 5, 4), (2, 3, 5, 4), (2, 2, 3, 5, 4)])
def test_batch_normalization_is_over_all_but_channels(shape: tuple[int, ...]) -> None:
    x, scale, shift = normal(*shape), normal(4), normal(4)
    wanted = normalized(x, tuple(range(len(shape) - 1)))
    close(run("BatchNorm", {"affine": False}, x), wanted)
    found = run("BatchNorm", {}, x, parameters=[scale, shift])
    close(found, wanted * scale + shift)
    # In inference by running statistics, which begin at mean 0 and variance 1.
    found = run("BatchNorm", {"affine": False}, x, training=False)
    close(found, x / np.sqrt(1 + 1e-5))


def test_other_normalizations_are_over_a_samples_own_elements() -> None:
    x, scale, shift = normal(2, 3, 5, 4), normal(4), normal(4)
    wanted = normalized(x, (3,)) * scale + shift
    close(run("LayerNorm", {}, x, parameters=[scale, shift]), wanted)
    one = normal(5, 4)
    found = run("LayerNorm", {"num_dims": 2, "bias_term": False}, x, parameters=[one])
    close(found, normalized(x, (2, 3)) * one)
    close(run("LayerNorm", {"num_dims": 3, "affine": False}, x), normalized(x, (1, 2, 3)))
    length = np.sqrt((x**2).mean(3, keepdims=True) + 1e-5)
    close(run("RMSNorm", {}, x, parameters=[scale]), x / length * scale)
    wanted = normalized(x, (1, 2)) * scale + shift
    close(run("InstanceNorm", {}, x, parameters=[scale, shift]), wanted)
    groups = normalized(x.reshape(2, 3, 5, 2, 2), (1, 2, 4)).reshape(x.shape)
    found = run("GroupNorm", {"num_groups": 2}, x, parameters=[scale, shift])
    close(found, groups * scale + shift)
    close(run("L2Norm", {}, x), x / np.sqrt((x**2).sum(3, keepdims=True)))


@pytest.mark.parametrize("keys", [{}, {"rotated": 4}, {"rotated": 2}])
def test_pairs_of_a_heads_elements_are_turned(keys: dict[str, int]) -> None:
    x = normal(2, 3, 5, 6)
    turned = keys.get("rotated", 6)
    first, second = x[..., : turned // 2], x[..., turned // 2 : turned]
    # By an angle whose cosine is 0.6 and whose sine is 0.8.
    pairs = (0.6 * first - 0.8 * second, 0.6 * second + 0.8 * first, x[..., turned:])
    close(run("RotaryEmbedding", keys, x), np.concatenate(pairs, -1))


def test_a_scale_multiplies_channels_and_shifts_them() -> None:
    for shape in ((2, 4), (2, 3, 5, 4)):
        x, scale, shift = normal(*shape), normal(4), normal(4)
        close(run("Scale", {}, x, parameters=[scale, shift]), x * scale + shift)
        close(run("Scale", {"bias_term": False}, x, parameters=[scale]), x * scale)


def test_local_responses_are_normalized_over_neighbouring_channels() -> None:
    for shape in ((2, 7), (2, 3, 4, 7)):
        x = 10 * normal(*shape)
        squares = np.pad(x**2, [(0, 0)] * (x.ndim - 1) + [(2, 2)])
        sums = sum(squares[..., i : i + 7] for i in range(5))
        # PyTorch's constants: alpha 0.0001 for the mean, beta 0.75, k 1.
        close(run("LRN", {"local_size": 5}, x), x / (1 + 1e-4 * sums / 5) ** 0.75)


# ---- Shapes and places -------------------------------------------------------------------------


def test_tensors_are_joined_and_cut_where_the_format_says() -> None:
    x, y = normal(2, 3, 4, 5), normal(2, 3, 4, 6)
    close(run("Concatenate", {}, x, y), np.concatenate([x, y], 3))
    close(run("Concatenate", {"dim": 2}, x, x), np.concatenate([x, x], 2))
    close(run("Concatenate", {}, x, y[:1]), np.concatenate([x, y[:1].repeat(2, 0)], 3))
    close(run("Slice", {"begin": 1, "size": 2}, x), x[..., 1:3])
    close(run("Slice", {"dim": 2, "begin": 1, "size": 2, "step": 2}, x), x[:, :, 1::2])
    close(run("Slice", {"dim": 1, "begin": 2, "size": 1}, x), x[:, 2:])
    close(run("Slice", {"dim": 1, "begin": 2, "size": 1, "keep_dim": False}, x), x[:, 2])
    close(run("Pad", {"margins": [[1, 2], [0, 0], [3, 0]]}, x),
          np.pad(x, [(0, 0), (1, 2), (0, 0), (3, 0)]))  # fmt: skip
    close(run("Expand", {"output_shape": [-1, 7, 4, 6]}, y[:, :1]), y[:, :1].repeat(7, 1))
    close(run("Expand", {"output_shape": [-1, 4, 3, 6]}, y[:, 0, :1]),
          y[:, :1, :1].repeat(4, 1).repeat(3, 2))  # fmt: skip


def test_shapes_and_orders_are_numpys() -> None:
    x = normal(2, 3, 4, 5)
    close(run("Reshape", {"output_shape": [-1, 6, -1]}, x), x.reshape(2, 6, 10))
    close(run("Flatten", {}, x), x.reshape(2, 60))
    for perm in ([0, 2, 1, 3], [0, 3, 1, 2], [0, 3, 2, 1]):
        close(run("Transpose", {"perm": perm}, x), x.transpose(perm))


def test_what_is_rearranged_has_the_same_elements() -> None:
    x = normal(2, 4, 4, 8)
    for keys in ({}, {"output_shape": [-1, 8, 8, 2]}, {"output_shape": [-1, 2, 2, 32]},
                 {"output_shape": [-1, 16, 8]}):  # fmt: skip
        found = run("Rearrange", keys, x)
        for i in range(2):
            close(np.sort(found[i].ravel()), np.sort(x[i].ravel()))
    # Depth to space: a pixel's 8 channels are 2 of 2 x 2 pixels, row by row for each.
    found = run("Rearrange", {"output_shape": [-1, 8, 8, 2]}, x)
    close(found[:, 2:4, 4:6, 1].reshape(2, 4), x[:, 1, 2, 4:])


def test_rows_are_gathered_by_their_indices() -> None:
    boxes, best = normal(2, 7, 5), np.array([[6, 0, 3], [1, 1, 2]])
    wanted = np.stack([boxes[0, best[0]], boxes[1, best[1]]])
    close(run("Gather", {"output_shape": [-1, 3, 5]}, boxes, best), wanted)
    # Without indices: the first, and again from there.
    close(run("Gather", {"output_shape": [-1, 9, 5]}, boxes), boxes[:, [*range(7), 0, 1]])
    close(run("Gather", {"output_shape": [-1, 2, 2, 5]}, boxes), boxes[:, :4].reshape(2, 2, 2, 5))
    # Single elements, and rows of a table that is the same for every sample.
    picks = np.array([[34, 0], [2, 3]])
    wanted = np.take_along_axis(boxes.reshape(2, 35), picks, 1)
    close(run("Gather", {"output_shape": [-1, 2]}, boxes, picks), wanted)


def test_a_table_that_is_the_same_for_every_sample_is_gathered_from() -> None:
    layers = {
        "words": {"type": "Input", "tensor": [2, 3]},
        "table": {"type": "Parameter", "shape": [7, 5]},
        "x": {"type": "Gather", "parents": ["table", "words"], "output_shape": [-1, 3, 5]},
    }
    graph = paleo.build(paleo.loads(json.dumps({"name": "n", "layers": layers})))
    net: Any = find_executor("torch", "cpu").net(graph)
    (found,) = net.forward(False).values()
    words, table, _ = net.values
    close(found.detach().numpy(), table.detach().numpy()[0][words.numpy()])


def test_reductions_are_numpys() -> None:
    x = normal(2, 3, 4, 5)
    functions: dict[str, Any] = {
        "mean": np.mean,
        "sum": np.sum,
        "maximum": np.max,
        "minimum": np.min,
        "product": np.prod,
        "norm": lambda x, axis, keepdims: np.sqrt((x**2).sum(axis, keepdims=keepdims)),
    }
    for function, wanted in functions.items():
        for dims in ([1], [3], [1, 2], [2, 3]):
            for keep in (True, False):
                keys = {"function": function, "dims": dims, "keep_dims": keep}
                close(run("Reduce", keys, x), wanted(x, axis=tuple(dims), keepdims=keep))
        keys = {"function": function, "dims": [1, 2, 3]}
        close(run("Reduce", keys, x), wanted(x, axis=(1, 2, 3), keepdims=False).reshape(2, 1))
    best = run("Reduce", {"function": "argmax", "dims": [2]}, x)
    close(best, x.argmax(2))
    best = run("Reduce", {"function": "argmax", "dims": [1, 2], "keep_dims": True}, x)
    close(best, x.reshape(2, 12, 5).argmax(1).reshape(2, 1, 1, 5))


# ---- Ends --------------------------------------------------------------------------------------

SCORES = np.array([[1.0, 3.0, 2.0], [0.0, 0.0, 0.0]])
LABELS = np.array([[2], [0]])


def loss(function: str, *inputs: Any) -> list[float]:
    return run("Loss", {"function": function}, *inputs).ravel().tolist()


def test_losses_of_classes_look_at_the_labels_score() -> None:
    entropy = np.log(np.exp([1, 3, 2]).sum()) - 2
    assert loss("softmax_cross_entropy", SCORES, LABELS) == pytest.approx([entropy, np.log(3)])
    shares = np.array([[0.2, 0.3, 0.5], [1.0, 0.5, 0.5]])
    assert loss("cross_entropy", shares, LABELS) == pytest.approx([np.log(2), 0])
    # (max(0, 1 - 2 + 1) + max(0, 1 - 2 + 3)) / 3, and twice max(0, 1) of three.
    assert loss("hinge", SCORES, LABELS) == pytest.approx([2 / 3, 2 / 3])
    # Without labels all are of the first class.
    assert loss("softmax_cross_entropy", SCORES)[1] == pytest.approx(np.log(3))
    # A third input are weights.
    weights = np.array([[2.0], [3.0]])
    weighted = loss("softmax_cross_entropy", SCORES, LABELS, weights)
    assert weighted == pytest.approx([2 * entropy, 3 * np.log(3)])
    # Of an image with scores for each pixel, the mean.
    pixels = np.stack([SCORES, SCORES], 1).reshape(2, 2, 1, 3)
    labels = np.array([[2, 2], [0, 1]]).reshape(2, 2, 1)
    assert loss("softmax_cross_entropy", pixels, labels) == pytest.approx([entropy, np.log(3)])


def test_losses_of_differences_are_means_over_a_sample() -> None:
    a, b = np.array([[1.0, 2.0], [0.0, 0.5]]), np.array([[0.0, 4.0], [0.0, 0.0]])
    assert loss("squared_error", a, b) == pytest.approx([(1 + 4) / 2, 0.25 / 2])
    assert loss("absolute_error", a, b) == pytest.approx([1.5, 0.25])
    # Squares, halved, up to a distance of 1; from there distances less 1/2.
    assert loss("smooth_absolute_error", a, b) == pytest.approx([(0.5 + 1.5) / 2, 0.125 / 2])
    ones = np.array([[0.0, 0.0], [1.0, 1.0]])
    wanted = [np.log1p(np.exp(a[0])).mean(), np.log1p(np.exp(-a[1])).mean()]
    assert loss("sigmoid_cross_entropy", a, ones) == pytest.approx(wanted)
    assert loss("other", a, b) == pytest.approx([2.5, 0.125])


def test_a_contrastive_loss_draws_together_what_is_alike() -> None:
    a, b = np.array([[0.3, 0.0], [0.3, 0.4]]), np.array([[0.0, 0.4], [0.0, 0.0]])
    alike = np.array([[1.0], [0.0]])
    # The distance is 0.5 in both: 0.5^2, and (1 - 0.5)^2.
    assert loss("contrastive", a, b, alike) == pytest.approx([0.25, 0.25])
    alike = np.array([[0.0], [1.0]])
    assert loss("contrastive", a, 2 * b, alike)[1] == pytest.approx(0.25)


def test_probabilities_and_signs_may_be_labels_too() -> None:
    shares = np.array([[0.0, 0.5, 0.5], [1.0, 0.0, 0.0]])
    logs = SCORES - np.log(np.exp(SCORES).sum(1, keepdims=True))
    wanted = -(shares * logs).sum(1)
    assert loss("softmax_cross_entropy", SCORES, shares) == pytest.approx(wanted.tolist())
    signs = np.array([[1.0, 1.0, -1.0], [1.0, 1.0, 1.0]])
    # max(0, 1 - 1), max(0, 1 - 3), max(0, 1 + 2); three times 1.
    assert loss("hinge", SCORES, signs) == pytest.approx([1, 1])


def test_accuracy_is_one_where_the_best_score_is_the_labels() -> None:
    assert run("Accuracy", {}, SCORES, LABELS).ravel().tolist() == [0, 1]
    assert run("Accuracy", {}, SCORES, np.array([[1], [1]])).ravel().tolist() == [1, 0]
