"""What PyTorch computes for a layer is what nets/README.md says the layer is.

Each case gives inputs and parameters in the net format's order of dimensions, and what is to come
out: by hand, or by NumPy from the format's definition. All in fp64.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from torch_runs import close, normal, run

# ---- Windows -----------------------------------------------------------------------------------


def window(size: int, **keys: Any) -> dict[str, Any]:
    return {"filter": [size, 1, 1], "strides": [1, 1, 1], "padding": "VALID"} | keys


def sequence(*values: float) -> np.ndarray:
    return np.array(values, float).reshape(1, -1, 1)


def test_a_1x1_convolution_of_ones_sums_the_channels() -> None:
    keys = {"filter": [1, 1, 3, 2], "strides": [1, 1, 1, 1], "padding": "VALID"}
    weights = [np.ones((2, 3, 1, 1)), np.array([0.0, 10.0])]
    found = run("Convolution", keys, np.ones((1, 2, 2, 3)), parameters=weights)
    close(found[..., 0], 3 * np.ones((1, 2, 2)))
    close(found[..., 1], 13 * np.ones((1, 2, 2)))


def test_convolutions_slide_their_filters_as_the_format_says() -> None:
    x, weights = sequence(1, 2, 3, 4), [np.array([[[1.0, 10.0]]]), np.zeros(1)]

    def found(**keys: Any) -> list[float]:
        return run("Convolution", window(2, **keys), x, parameters=weights).ravel().tolist()

    assert found() == [21, 32, 43]
    # One element is missing: it comes after the last.
    assert found(padding="SAME") == [21, 32, 43, 4]
    assert found(padding=[[1, 0]]) == [10, 21, 32, 43]
    assert found(padding=[[2, 1]]) == [0, 10, 21, 32, 43, 4]
    assert found(strides=[1, 2, 1]) == [21, 43]
    assert found(dilations=[1, 2, 1]) == [31, 42]
    # A window so much smaller than its stride that the last element is never looked at.
    assert found(strides=[1, 3, 1], padding="SAME") == [21, 4]
    one = {"filter": [1, 1, 1], "strides": [1, 3, 1], "padding": "SAME"}
    found_one = run("Convolution", one, x, parameters=[np.ones((1, 1, 1)), np.zeros(1)])
    assert found_one.ravel().tolist() == [1, 4]


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        ("Convolution", {"filter": [3, 3, 2, 6], "groups": 2}),
        ("Convolution", {"filter": [3, 3, 1, 8], "groups": 4}),
        ("Deconvolution", {"filter": [3, 3, 5, 4], "output_shape": [-1, 11, 11, 5]}),
    ],
)
def test_a_filter_that_is_a_parent_does_what_its_own_would(kind: str, keys: dict[str, Any]) -> None:
    keys |= {"strides": [1, 2, 2, 1], "padding": [1, 1], "use_bias": False}
    x, filters = normal(2, 6, 6, 4), normal(1, *keys["filter"])
    own = filters[0].transpose(3, 2, 0, 1)
    found = run(kind, keys, x, filters, parameters=[])
    close(found, run(kind, keys, x, parameters=[own]))
    # One for each sample: each as if it were alone.
    both = np.concatenate([filters, normal(1, *keys["filter"])])
    found = run(kind, keys, x, both, parameters=[])
    alone = [run(kind, keys, x[i : i + 1], both[i : i + 1], parameters=[]) for i in (0, 1)]
    close(found, np.concatenate(alone))


def test_activation_and_normalization_come_after_the_bias() -> None:
    x = sequence(1, 2, 3, 4)
    weights = [np.ones((1, 1, 1)), np.array([-2.0])]
    keys = window(1, activation_fn="relu")
    assert run("Convolution", keys, x, parameters=weights).ravel().tolist() == [0, 0, 1, 2]
    keys["normalizer_fn"] = "batch_norm"
    # Mean 0.5, variance (2.25 + 0.25) * 2 / 4 = 1.25.
    wanted = np.maximum(np.array([-1.5, -0.5, 0.5, 1.5]) / np.sqrt(1.25 + 1e-5), 0)
    close(run("Convolution", keys, x, parameters=weights).ravel(), wanted)


def convolved(
    x: np.ndarray,
    weight: np.ndarray,
    strides: tuple[int, ...],
    margins: list[tuple[int, int]],
    dilations: tuple[int, ...],
    groups: int,
) -> np.ndarray:
    """Return sums over windows, element by element: x is N x ... x C, weight K x C/g x ..."""
    padded: Any = np.pad(x, [(0, 0), *margins, (0, 0)])
    k, seen, *window = weight.shape
    kernels: Any = weight
    sizes = [
        (size - (r - 1) * d - 1) // s + 1
        for size, r, s, d in zip(padded.shape[1:-1], window, strides, dilations, strict=True)
    ]
    found: Any = np.zeros((x.shape[0], *sizes, k))
    for place in itertools.product(*map(range, sizes)):
        for offset in itertools.product(*map(range, window)):
            where = tuple(
                p * s + o * d for p, s, o, d in zip(place, strides, offset, dilations, strict=True)
            )
            pixel = padded[(slice(None), *where)]
            for out in range(k):
                first = out // (k // groups) * seen
                term = pixel[:, first : first + seen] @ kernels[(out, slice(None), *offset)]
                found[(slice(None), *place, out)] += term
    return found


@pytest.mark.parametrize(
    ("sizes", "window", "strides", "margins", "dilations", "groups"),
    [
        ((7,), (3,), (2,), [(2, 0)], (1,), 2),
        ((7, 6), (3, 2), (2, 1), [(1, 1), (0, 1)], (1, 1), 1),
        ((7, 6), (2, 3), (1, 2), [(0, 0), (2, 2)], (2, 1), 4),
        ((3, 5, 4), (2, 3, 3), (1, 2, 1), [(1, 0), (1, 1), (0, 0)], (1, 1, 1), 2),
    ],
)
def test_convolutions_and_their_transposes_agree_with_numpy(
    sizes: tuple[int, ...],
    window: tuple[int, ...],
    strides: tuple[int, ...],
    margins: list[tuple[int, int]],
    dilations: tuple[int, ...],
    groups: int,
) -> None:
    c, k = 4, 8
    x, weight = normal(2, *sizes, c), normal(k, c // groups, *window)
    keys = {
        "strides": [1, *strides, 1],
        "padding": [list(pair) for pair in margins],
        "dilations": [1, *dilations, 1],
        "groups": groups,
        "use_bias": False,
    }
    wanted = convolved(x, weight, strides, margins, dilations, groups)
    filters = [*window, c // groups, k]
    close(run("Convolution", {"filter": filters, **keys}, x, parameters=[weight]), wanted)
    # The transpose T of a linear function V: the sum of V(x) y is that of x T(y).
    y = normal(*wanted.shape)
    keys["output_shape"] = [-1, *sizes, c]
    back = run("Deconvolution", {"filter": filters, **keys}, y, parameters=[weight])
    close((wanted * y).sum(), (x * back).sum())


@pytest.mark.parametrize("bias", [True, False, None])
def test_a_deconvolution_adds_its_bias_once(bias: bool | None) -> None:
    keys = {"filter": [3, 2, 4], "strides": [1, 2, 1], "padding": "SAME", "use_bias": bias}
    keys["output_shape"] = [-1, 6, 2]
    biases = {True: [np.array([1.0, 2.0])], False: [], None: [np.array([1.0, 2.0, 3.0, 4.0])]}
    parameters = [np.zeros((4, 2, 3)), *biases[bias]]
    found = run("Deconvolution", keys, normal(2, 3, 4), parameters=parameters)
    # The bias of 2017 has a number for each of four channels in: the first two are added.
    close(found, np.broadcast_to([0.0, 0.0] if bias is False else [1.0, 2.0], (2, 6, 2)))


def test_windows_of_frames_slide_over_each_frame() -> None:
    x, weight = normal(2, 3, 5, 5, 4), normal(6, 4, 3, 3)
    keys = {"filter": [3, 3, 4, 6], "strides": [1, 1, 1, 1], "padding": "VALID", "use_bias": False}
    found = run("Convolution", keys, x, parameters=[weight])
    one = convolved(x[:, 1], weight, (1, 1), [(0, 0), (0, 0)], (1, 1), 1)
    close(found[:, 1], one)


def test_poolings_take_the_largest_and_the_mean_of_each_window() -> None:
    x = sequence(1, 5, 2, 4, 3)

    def found(kind: str, **keys: Any) -> list[float]:
        keys = {"ksize": [1, 2, 1], "strides": [1, 2, 1], "padding": "VALID"} | keys
        return run(kind, keys, x).ravel().tolist()

    assert found("Pooling") == [5, 4]
    assert found("AvgPool") == [3, 3]
    # The last window hangs over the end.
    assert found("Pooling", rounding="ceil") == [5, 4, 3]
    assert found("AvgPool", rounding="ceil") == [3, 3, 3]
    assert found("Pooling", padding=[1]) == [1, 5, 4]
    assert found("Pooling", padding="SAME") == [5, 4, 3]
    assert found("Pooling", padding=[[0, 2]], strides=[1, 1, 1]) == [5, 5, 4, 4, 3, -np.inf]
    assert found("Pooling", dilations=[1, 2, 1], strides=[1, 1, 1]) == [2, 5, 3]
    assert found("AvgPool", dilations=[1, 2, 1], strides=[1, 1, 1]) == [1.5, 4.5, 2.5]
    # What is added on both sides counts as zero, but not what SAME adds.
    assert found("AvgPool", padding=[1]) == [0.5, 3.5, 3.5]
    three = {"ksize": [1, 3, 1], "strides": [1, 1, 1]}
    assert found("AvgPool", padding="SAME", **three)[:2] == [3, pytest.approx(8 / 3)]


def test_global_poolings_leave_a_number_for_each_channel() -> None:
    for shape in ((2, 5, 3), (2, 4, 5, 3), (2, 3, 4, 5, 3), (2, 2, 3, 4, 5, 3)):
        x, axes = normal(*shape), tuple(range(1, len(shape) - 1))
        close(run("GlobalPooling", {}, x), x.mean(axes, keepdims=True))
        close(run("GlobalPooling", {"function": "maximum"}, x), x.max(axes, keepdims=True))


def test_upsampling_repeats_and_resizing_interpolates() -> None:
    x = normal(2, 3, 4, 5)
    wide = x.repeat(2, axis=1).repeat(3, axis=2)
    close(run("UpSampling2D", {"ksize": [1, 2, 3, 1]}, x), wide)
    close(run("Resize", {"size": [6, 12]}, x), wide)
    line = sequence(0, 1)
    # Centres of four quarters lie at 0.25, 0.75, 1.25, 1.75 of elements at 0.5 and 1.5.
    found = run("Resize", {"size": [4], "mode": "linear"}, line)
    close(found.ravel(), [0, 0.25, 0.75, 1])
    # Of what is the same everywhere, every interpolation is that.
    for shape, size in (((1, 5, 2), [9]), ((1, 4, 5, 2), [7, 3]), ((1, 3, 4, 5, 2), [2, 9, 3])):
        for mode in ("nearest", "linear", "cubic"):
            close(run("Resize", {"size": size, "mode": mode}, np.ones(shape)), 1)


# ---- Products ----------------------------------------------------------------------------------


def test_inner_products_multiply_by_a_matrix() -> None:
    x, weight, bias = normal(2, 3, 4), normal(5, 4), normal(5)
    keys = {"num_outputs": 5, "axis": -1}
    close(run("InnerProduct", keys, x, parameters=[weight, bias]), x @ weight.T + bias)
    weight = normal(5, 12)
    keys = {"num_outputs": 5, "use_bias": False}
    close(run("InnerProduct", keys, x, parameters=[weight]), x.reshape(2, 12) @ weight.T)
    x, weight = normal(2, 3, 4, 6), normal(5, 24)
    keys = {"num_outputs": 5, "use_bias": False, "axis": 2}
    close(run("InnerProduct", keys, x, parameters=[weight]), x.reshape(2, 3, 24) @ weight.T)


def test_an_embedding_takes_rows_of_its_table() -> None:
    table, words = normal(10, 3), np.array([[1, 9, 0], [4, 4, 2]])
    keys = {"num_embeddings": 10, "num_outputs": 3}
    close(run("Embedding", keys, words, parameters=[table]), table[words])


def test_matrix_products_repeat_what_is_one() -> None:
    a, b = normal(2, 3, 4, 5), normal(2, 3, 5, 6)
    close(run("MatMul", {}, a, b), a @ b)
    close(run("MatMul", {"transpose_b": True}, a, b.swapaxes(2, 3)), a @ b)
    close(run("MatMul", {"transpose_a": True}, a.swapaxes(2, 3), b), a @ b)
    close(run("MatMul", {}, a, b[:, :1]), a @ b[:, :1])
    close(run("MatMul", {}, a, b[:, 0]), a @ b[:, :1])  # dimensions are missing behind the batch
    close(run("MatMul", {}, a[:, 0], b), a[:, :1] @ b)
    close(run("MatMul", {}, a, b[:1]), a @ b[:1])
    close(run("MatMul", {}, a, b[:1, :1]), a @ b[:1, :1])
    close(run("MatMul", {}, a, b[:1, 0]), a @ b[0, 0])


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("nqhd,nkhd->nhqk", [(2, 6, 3, 4), (2, 5, 3, 4)]),
        ("nij->nji", [(2, 3, 4)]),
        ("nij,njk,nk->ni", [(2, 3, 4), (2, 4, 5), (2, 5)]),
        ("nij,nij->nij", [(2, 3, 4), (2, 1, 4)]),
    ],
)
def test_equations_are_numpys(equation: str, shapes: list[tuple[int, ...]]) -> None:
    values = [normal(*shape) for shape in shapes]
    if shapes[-1] == (2, 1, 4):  # which NumPy does not repeat
        values[1] = values[1].repeat(3, 1)
    wanted = np.einsum(equation, *values)
    close(run("Einsum", {"equation": equation}, *values), wanted)


def test_a_number_for_each_sample_is_a_column() -> None:
    x, y = normal(2, 3), normal(2, 1)
    close(run("Einsum", {"equation": "ni,n->n"}, x, y), x.sum(1, keepdims=True) * y)


def softmax(x: np.ndarray, axis: int = -1) -> np.ndarray:
    powers = np.exp(x - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


@pytest.mark.parametrize(
    "keys", [{}, {"causal": True}, {"causal": True, "window": 2}, {"causal": True, "window": 9}]
)
@pytest.mark.parametrize("heads", [1, 2, 4])
def test_attention_is_a_weighted_sum_of_values(keys: dict[str, Any], heads: int) -> None:
    q, k, v = normal(2, 4, 5, 3), normal(2, heads, 5, 3), normal(2, heads, 5, 6)
    scores = q @ k.repeat(4 // heads, 1).swapaxes(2, 3) / np.sqrt(3)
    if keys:
        row, column = np.indices((5, 5))
        seen = (column <= row) & (column > row - keys.get("window", 5))
        scores = np.where(seen, scores, -np.inf)
    close(run("Attention", keys, q, k, v), softmax(scores) @ v.repeat(4 // heads, 1))


# ---- Recurrent layers --------------------------------------------------------------------------


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def steps(kind: str, x: np.ndarray, w: np.ndarray, u: np.ndarray, b: Any, c: Any) -> np.ndarray:
    """Return the states of a recurrent layer: of gates w x + b and u h + c."""
    h = cell = np.zeros((x.shape[0], u.shape[1]))
    found = []
    for t in range(x.shape[1]):
        one, other = x[:, t] @ w.T + b, h @ u.T + c
        if kind == "RNN":
            h = np.tanh(one + other)
        elif kind == "GRU":  # reset, update, candidate
            (r1, z1, n1), (r2, z2, n2) = np.split(one, 3, 1), np.split(other, 3, 1)
            r, z = sigmoid(r1 + r2), sigmoid(z1 + z2)
            h = (1 - z) * np.tanh(n1 + r * n2) + z * h
        else:  # input, forget, cell, output
            i, f, g, o = np.split(one + other, 4, 1)
            cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(cell)
        found.append(h)
    return np.stack(found, 1)


@pytest.mark.parametrize(("kind", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
@pytest.mark.parametrize("num_biases", [0, 1, 2])
def test_recurrent_layers_go_step_by_step(kind: str, gates: int, num_biases: int) -> None:
    x = normal(2, 4, 3)
    w, u = normal(5 * gates, 3), normal(5 * gates, 5)
    biases = [normal(5 * gates) for _ in range(num_biases)]
    keys = {"num_outputs": 5, "num_biases": num_biases}
    b, c = [*biases, 0, 0][:2]
    close(run(kind, keys, x, parameters=[w, u, *biases]), steps(kind, x, w, u, b, c))


def test_a_second_direction_and_a_second_layer_read_what_they_should() -> None:
    x = normal(2, 4, 3)
    shapes = [(5, 3), (5, 5), (5, 3), (5, 5), (5, 10), (5, 5), (5, 10), (5, 5)]
    weights = [normal(*shape) for shape in shapes]
    keys = {"num_outputs": 5, "num_biases": 0, "num_layers": 2, "bidirectional": True}
    wanted = x
    for i in (0, 4):
        forth = steps("RNN", wanted, weights[i], weights[i + 1], 0, 0)
        back = steps("RNN", wanted[:, ::-1], weights[i + 2], weights[i + 3], 0, 0)[:, ::-1]
        wanted = np.concatenate([forth, back], 2)
    close(run("RNN", keys, x, parameters=weights), wanted)
