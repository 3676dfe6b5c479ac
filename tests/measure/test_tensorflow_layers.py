"""What layers with windows, products and recurrent ones compute in TensorFlow, beside NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tensorflow_layers import Array, close, computed, normal, normalized, sigmoid

pytest.importorskip("tensorflow", reason="needs TensorFlow")

# ---- Windows -----------------------------------------------------------------------------------


def windows(
    x: Array, window: tuple[int, ...], strides: tuple[int, ...], margins: list[tuple[int, int]],
    dilations: tuple[int, ...], output: tuple[int, ...], fill: float = 0.0,
) -> Array:  # fmt: skip
    """Return N x P x ... x R x ... x C: the elements of each window, one by one."""
    padded = np.pad(x, [(0, 0), *margins, (0, 0)], constant_values=fill)
    found = np.empty((len(x), *output, *window, x.shape[-1]), x.dtype)
    for place in np.ndindex(*output):
        for element in np.ndindex(*window):
            at = tuple(
                p * s + e * d for p, s, e, d in zip(place, strides, element, dilations, strict=True)
            )
            found[(slice(None), *place, *element)] = padded[(slice(None), *at)]
    return found


#: Sizes, window, strides, padding as in a file, margins by hand, dilations, groups.
CASES = {
    # Same: 7 rows need (4 - 1) 2 + 3 - 7 = 2 more, one on each side; 6 columns (6 - 1) + 2 - 6 = 1.
    "same": ((7, 6), (3, 2), (2, 1), "SAME", [(1, 1), (0, 1)], (1, 1), 1),
    "valid": ((7, 6), (3, 2), (2, 1), "VALID", [(0, 0), (0, 0)], (1, 1), 1),
    "numbers": ((7, 6), (3, 3), (2, 2), [[2, 0], [0, 1]], [(2, 0), (0, 1)], (1, 1), 1),
    "both sides": ((6, 6), (3, 3), (2, 2), [1, 1], [(1, 1), (1, 1)], (1, 1), 1),
    "dilated": ((9, 8), (3, 2), (1, 1), "VALID", [(0, 0), (0, 0)], (2, 3), 1),
    "groups": ((6, 6), (3, 3), (1, 1), [1, 0], [(1, 1), (0, 0)], (1, 1), 2),
    "depthwise": ((6, 6), (3, 3), (2, 2), [1, 1], [(1, 1), (1, 1)], (1, 1), 4),
    "sequence": ((9,), (3,), (2,), [[2, 1]], [(2, 1)], (1,), 2),
    "volume": ((4, 5, 6), (2, 3, 3), (1, 2, 1), [1, 0, 1], [(1, 1), (0, 0), (1, 1)], (1, 1, 1), 1),
}


def keys_of(case: Any) -> tuple[dict[str, Any], tuple[int, ...]]:
    """Return the keys of a window, and how often it fits."""
    sizes, window, strides, padding, margins, dilations, _ = case
    output = tuple(
        (size + sum(pair) - (r - 1) * d - 1) // s + 1
        for size, r, s, pair, d in zip(sizes, window, strides, margins, dilations, strict=True)
    )
    keys = {"strides": [1, *strides, 1], "padding": padding, "dilations": [1, *dilations, 1]}
    return keys, output


def convolved(x: Array, w: Array, case: Any) -> Array:
    """Return the convolution by filters of R x S x C/g x K."""
    _, window, strides, _, margins, dilations, groups = case
    _, output = keys_of(case)
    found = windows(x, window, strides, margins, dilations, output)
    dims = tuple(range(1 + len(window), 1 + 2 * len(window)))
    parts = [
        np.tensordot(piece, own, (( *dims, found.ndim - 1), tuple(range(len(window) + 1))))
        for piece, own in zip(np.split(found, groups, -1), np.split(w, groups, -1), strict=True)
    ]  # fmt: skip
    return np.concatenate(parts, -1)


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
    x, filters = normal(1, 6, 6, 4), normal(1, *keys["filter"])
    own = filters[0]
    if keys.get("groups") == 4:  # TensorFlow has those of a channel side by side
        own = own.reshape(3, 3, 4, 2)
    close(computed(kind, x, filters, **keys), computed(kind, x, ws=(own,), **keys))


@pytest.mark.parametrize("name", list(CASES))
def test_a_convolution_sums_each_window_times_the_filter(name: str) -> None:
    case = CASES[name]
    sizes, window, groups = case[0], case[1], case[-1]
    x, w, b = normal(2, *sizes, 4), normal(*window, 4 // groups, 8), normal(8)
    keys, _ = keys_of(case)
    # A depthwise filter is R x S x C x K/C in TensorFlow, in the same order; sequences are images
    # of one row.
    own = w.reshape(*window, 4, 2) if name == "depthwise" else w
    own = own[None] if name == "sequence" else own
    found = computed(
        "Convolution", x, ws=(own, b), filter=[*window, 4 // groups, 8], groups=groups, **keys
    )
    assert close(found, convolved(x, w, case) + b)


@pytest.mark.parametrize("name", [name for name in CASES if name != "depthwise"])
def test_a_deconvolution_is_the_transpose_of_a_convolution(name: str) -> None:
    case = CASES[name]
    sizes, window, groups = case[0], case[1], case[-1]
    keys, output = keys_of(case)
    y, w = normal(2, *output, 8), normal(*window, 4 // groups, 8)
    own = w[None] if name == "sequence" else w
    found = computed(
        "Deconvolution", y, ws=(own,), filter=[*window, 4 // groups, 8], groups=groups,
        output_shape=[-1, *sizes, 4], use_bias=False, **keys,
    )  # fmt: skip
    # <V x, y> = <x, V' y> for every x: one with a 1 at each place would be too many.
    for _ in range(3):
        x = normal(2, *sizes, 4)
        assert np.vdot(convolved(x, w, case), y) == pytest.approx(np.vdot(x, found), rel=1e-3)


POOLED = [name for name, case in CASES.items() if case[-1] == 1 or name == "sequence"]


@pytest.mark.parametrize("name", POOLED)
@pytest.mark.parametrize("kind", ["Pooling", "AvgPool"])
def test_a_pooling_takes_the_largest_or_the_mean_of_each_window(kind: str, name: str) -> None:
    case = CASES[name]
    sizes, window, strides, padding, margins, dilations, _ = case
    keys, output = keys_of(case)
    x = normal(2, *sizes, 3)
    fill = -np.inf if kind == "Pooling" else 0.0
    elements = windows(x, window, strides, margins, dilations, output, fill)
    dims = tuple(range(1 + len(sizes), 1 + 2 * len(sizes)))
    wanted = elements.max(dims) if kind == "Pooling" else elements.mean(dims)
    if kind == "AvgPool" and padding == "SAME":  # of the elements that there are
        ones = windows(np.ones_like(x), window, strides, margins, dilations, output)
        wanted = elements.sum(dims) / ones.sum(dims)
    found = computed(kind, x, ksize=[1, *window, 1], **keys)
    assert close(found, wanted)


def test_a_last_window_that_hangs_over_counts_where_sizes_are_rounded_up() -> None:
    x = np.arange(6, dtype=np.float32).reshape(1, 6, 1)
    keys: dict[str, Any] = {
        "ksize": [1, 3, 1],
        "strides": [1, 2, 1],
        "padding": "VALID",
        "rounding": "ceil",
    }
    # Windows 0 1 2, 2 3 4 and 4 5.
    assert computed("Pooling", x, **keys).ravel().tolist() == [2, 4, 5]
    assert computed("AvgPool", x, **keys).ravel().tolist() == [1, 3, 4.5]


def test_frames_of_a_video_are_a_batch() -> None:
    x, w, b = normal(2, 3, 5, 5, 2), normal(3, 3, 2, 4), normal(4)
    keys: dict[str, Any] = {"filter": [3, 3, 2, 4], "strides": [1, 1, 1, 1], "padding": "SAME"}
    found = computed("Convolution", x, ws=(w, b), **keys)
    frames = computed("Convolution", x.reshape(6, 5, 5, 2), ws=(w, b), **keys)
    assert close(found.reshape(frames.shape), frames)


def test_images_grow_by_repeating_and_by_interpolating() -> None:
    x = normal(2, 2, 3, 1)
    wanted = x.repeat(2, 1).repeat(3, 2)
    assert close(computed("UpSampling2D", x, ksize=[1, 2, 3, 1]), wanted)
    assert close(computed("Resize", x, size=[4, 9]), wanted)
    line = np.array([0, 3], np.float32).reshape(1, 2, 1)
    # At 0.25, 0.75, 1.25 and 1.75 of two elements, whose centres are at 0.5 and 1.5.
    found = computed("Resize", line, size=[4], mode="linear")
    assert found.ravel().tolist() == [0, 0.75, 2.25, 3]
    volume = normal(1, 2, 2, 2, 3)
    assert close(
        computed("UpSampling2D", volume, ksize=[1, 2, 1, 2, 1]), volume.repeat(2, 1).repeat(2, 3)
    )


def test_a_whole_image_is_pooled() -> None:
    x = normal(2, 3, 4, 5)
    assert close(computed("GlobalPooling", x), x.mean((1, 2), keepdims=True))
    assert close(computed("GlobalPooling", x, function="maximum"), x.max((1, 2), keepdims=True))


def test_a_convolution_is_followed_by_what_is_joined_in_it() -> None:
    case = CASES["same"]
    x, w, b = normal(2, 7, 6, 4), normal(3, 2, 4, 8), normal(8)
    keys, _ = keys_of(case)
    found = computed(
        "Convolution", x, ws=(w, b), filter=[3, 2, 4, 8], activation_fn="relu",
        normalizer_fn="batch_norm", **keys,
    )  # fmt: skip
    assert close(found, np.maximum(normalized(convolved(x, w, case) + b, (0, 1, 2)), 0))


# ---- Products ----------------------------------------------------------------------------------


def test_products_with_parameters() -> None:
    x, w, b = normal(2, 3, 4), normal(12, 5), normal(5)
    assert close(computed("InnerProduct", x, ws=(w, b), num_outputs=5), x.reshape(2, 12) @ w + b)
    w = normal(4, 5)
    assert close(
        computed("InnerProduct", x, ws=(w,), num_outputs=5, axis=-1, use_bias=False), x @ w
    )
    table, words = normal(6, 3), np.array([[0, 5], [2, 2]])
    found = computed("Embedding", words, ws=(table,), num_embeddings=6, num_outputs=3)
    assert close(found, table[words])
    # Numbers from a layer before are rounded down, and start again from 0.
    near = np.array([[0.9, 11], [2, -4]], np.float32)
    assert close(
        computed("Embedding", near, ws=(table,), num_embeddings=6, num_outputs=3), table[words]
    )


@pytest.mark.parametrize(
    ("a", "b", "keys"),
    [
        ((2, 3, 4, 5), (2, 3, 5, 6), {}),
        ((2, 3, 5, 4), (2, 1, 6, 5), {"transpose_a": True, "transpose_b": True}),
        ((2, 4, 5), (1, 5, 6), {}),  # one matrix for all samples
        ((2, 3, 4, 5), (1, 6, 5), {"transpose_b": True}),
        ((1, 4, 5), (2, 3, 5, 6), {}),
    ],
)
def test_products_of_two_tensors(
    a: tuple[int, ...], b: tuple[int, ...], keys: dict[str, Any]
) -> None:
    x, y = normal(*a), normal(*b)
    left = x.swapaxes(-1, -2) if keys.get("transpose_a") else x
    right = y.swapaxes(-1, -2) if keys.get("transpose_b") else y
    rank = max(len(a), len(b))
    left, right = (
        each.reshape(each.shape[0], *(1,) * (rank - each.ndim), *each.shape[1:])
        for each in (left, right)
    )
    assert close(computed("MatMul", x, y, **keys), left @ right)


def test_einsums_with_repeated_dimensions_and_batches_alone() -> None:
    x, y, z = normal(2, 3, 4), normal(2, 4, 5), normal(2, 5)
    found = computed("Einsum", x, y, z, equation="nij,njk,nk->nj")
    assert close(found, np.einsum("nij,njk,nk->nj", x, y, z))
    one = normal(2, 1, 4)  # i is 1 here and 3 there
    found = computed("Einsum", one, x, equation="nij,nij->nj")
    assert close(found, (one * x).sum(1))
    number = normal(2, 1)  # one for each sample
    found = computed("Einsum", number, x, equation="n,nij->n")
    assert close(found, number * x.sum((1, 2))[:, None])


def attended(q: Array, k: Array, v: Array, seen: Array) -> Array:
    k, v = (np.repeat(each, q.shape[1] // each.shape[1], 1) for each in (k, v))
    scores = np.where(seen, q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]), -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def test_attention_is_a_softmax_of_products_and_a_sum() -> None:
    q, k, v = normal(2, 6, 3, 4), normal(2, 2, 5, 4), normal(2, 2, 5, 7)
    everything = np.ones((3, 5), bool)
    assert close(computed("Attention", q, k, v), attended(q, k, v, everything))
    # The 3 queries are the last of 5 keys: they see 3, 4 and 5 of them, or the last two of these.
    causal = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 1, 1]], bool)
    assert close(computed("Attention", q, k, v, causal=True), attended(q, k, v, causal))
    two = np.array([[0, 1, 1, 0, 0], [0, 0, 1, 1, 0], [0, 0, 0, 1, 1]], bool)
    assert close(computed("Attention", q, k, v, causal=True, window=2), attended(q, k, v, two))
    for_all = k[:1], v[:1]
    found = computed("Attention", q, *for_all)
    assert close(found, attended(q, np.repeat(k[:1], 2, 0), np.repeat(v[:1], 2, 0), everything))


# ---- Recurrent layers --------------------------------------------------------------------------


def stepped(kind: str, x: Array, ws: tuple[Array, ...], num_biases: int, h: int) -> Array:
    """Return the states of all steps, one after the other."""
    w, u, *rest = ws
    b, c = [*rest[:num_biases], 0, 0][:2]
    down = rest[num_biases] if len(rest) > num_biases else None
    state, cell = np.zeros((len(x), len(u))), np.zeros((len(x), h))
    found = []
    for t in range(x.shape[1]):
        left, right = x[:, t] @ w + b, state @ u + c
        if kind == "RNN":
            state = np.tanh(left + right)
        elif kind == "GRU":
            (r, z, n), (r_u, z_u, n_u) = (np.split(each, 3, 1) for each in (left, right))
            z = sigmoid(z + z_u)
            state = (1 - z) * np.tanh(n + sigmoid(r + r_u) * n_u) + z * state
        else:
            i, f, g, o = np.split(left + right, 4, 1)
            cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
            state = sigmoid(o) * np.tanh(cell)
            state = state if down is None else state @ down
        found.append(state)
    return np.stack(found, 1)


@pytest.mark.parametrize(
    ("kind", "num_biases", "projection"),
    [("RNN", 2, 0), ("RNN", 0, 0), ("GRU", 1, 0), ("GRU", 2, 0), ("LSTM", 2, 0), ("LSTM", 1, 3)],
)
def test_recurrent_layers_go_through_their_steps(
    kind: str, num_biases: int, projection: int
) -> None:
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[kind]
    x, h = normal(2, 4, 3), 5
    out = projection or h
    ws = (
        normal(3, gates * h),
        normal(out, gates * h),
        *(normal(gates * h) for _ in range(num_biases)),
        *[normal(h, out)] * (projection > 0),
    )
    keys: dict[str, Any] = {"num_outputs": h, "num_biases": num_biases}
    found = computed(kind, x, ws=ws, **keys | ({"projection": 3} if projection else {}))
    assert close(found, stepped(kind, x, ws, num_biases, h))
    several = computed(kind, x[None], ws=ws, **keys | ({"projection": 3} if projection else {}))
    assert close(several, found[None])


def test_recurrent_layers_run_backwards_and_on_top_of_each_other() -> None:
    x, h = normal(2, 4, 3), 5
    lower = [(normal(3, h), normal(h, h), normal(h)) for _ in range(2)]
    upper = [(normal(2 * h, h), normal(h, h), normal(h)) for _ in range(2)]
    keys: dict[str, Any] = {
        "num_outputs": h,
        "num_biases": 1,
        "bidirectional": True,
        "num_layers": 2,
    }
    found = computed("RNN", x, ws=sum((*lower, *upper), ()), **keys)
    y = x
    for forth, back in (lower, upper):
        y = np.concatenate(
            [stepped("RNN", y, forth, 1, h), stepped("RNN", y[:, ::-1], back, 1, h)[:, ::-1]], 2
        )
    assert close(found, y)
