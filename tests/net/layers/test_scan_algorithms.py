"""Scans in chunks, computed by NumPy: they give what the recurrence gives, by these products."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from paleo.core.operations import BatchMatMul, Pass, Stream
from paleo.net.layers.scans import GatedDelta, StateSpaceDual

Array = np.ndarray
#: One sample of 12 positions in chunks of 4, one head: states of 3 by 5 numbers.
LENGTH, CHUNK, NUMBERS, FEATURES = 12, 4, 3, 5
RNG = np.random.default_rng(0)


class Products:
    """Matrix products, counted by M, N and K."""

    def __init__(self) -> None:
        self.done: Counter[tuple[int, int, int]] = Counter()

    def __call__(self, a: Array, b: Array) -> Array:
        self.done[a.shape[0], b.shape[1], a.shape[1]] += 1
        return a @ b


def of_layer(layer: Any, *inputs: tuple[int, ...]) -> Counter[tuple[int, int, int]]:
    found: Counter[tuple[int, int, int]] = Counter()
    for each in layer.operations(Pass.FORWARD, inputs, 4):
        if isinstance(each, BatchMatMul):
            found[int(each.m), int(each.n), int(each.k)] += int(each.count)
    return found


def decays() -> tuple[Array, list[tuple[slice, Array, Array]]]:
    """Return decays, and of each chunk its positions, their products, and ratios of these."""
    own = RNG.uniform(0.5, 1, LENGTH)
    found = []
    for first in range(0, LENGTH, CHUNK):
        at = slice(first, first + CHUNK)
        passed = np.cumprod(own[at])
        found.append((at, passed[:, None], np.tril(passed[:, None] / passed)))
    return own, found


def test_a_dual_in_chunks_is_its_recurrence() -> None:
    x = RNG.normal(size=(LENGTH, FEATURES))
    b, c = RNG.normal(size=(2, LENGTH, NUMBERS))
    own, chunks = decays()
    state, expected = np.zeros((FEATURES, NUMBERS)), []
    for t in range(LENGTH):
        state = own[t] * state + np.outer(x[t], b[t])
        expected.append(state @ c[t])

    times, state, found = Products(), np.zeros((FEATURES, NUMBERS)), []
    for at, passed, ratios in chunks:
        inside = times(c[at], b[at].T) * ratios
        both = np.hstack([inside, passed * c[at]])
        found.append(times(both, np.vstack([x[at], state.T])))
        left = times(x[at].T, (passed[-1] / passed) * b[at])
        state = passed[-1] * state + left
    assert np.allclose(np.vstack(found), expected)
    x_shape, b_shape = (1, LENGTH, 1, FEATURES), (1, LENGTH, 1, NUMBERS)
    counted = of_layer(StateSpaceDual(chunk=CHUNK), x_shape, x_shape[:-1], b_shape, b_shape)
    assert counted == times.done


def inverse(lower: Array) -> tuple[Array, int]:
    """Return the inverse of 1 + a strictly lower triangle, and the FLOPs that it takes."""
    found, flops = np.eye(len(lower)), 0
    for i in range(len(lower)):
        for j in range(i):
            found[i, j] = -lower[i, j]
            for between in range(j + 1, i):
                found[i, j] -= lower[i, between] * found[between, j]
                flops += 2
    return found, flops


def test_a_gated_delta_rule_in_chunks_is_its_recurrence() -> None:
    q, k = RNG.normal(size=(2, LENGTH, NUMBERS))
    v, replaced = RNG.normal(size=(LENGTH, FEATURES)), RNG.uniform(size=(LENGTH, 1))
    own, chunks = decays()
    state, expected = np.zeros((NUMBERS, FEATURES)), []
    for t in range(LENGTH):
        kept = own[t] * (state - replaced[t] * np.outer(k[t], k[t] @ state))
        state = kept + replaced[t] * np.outer(k[t], v[t])
        expected.append(q[t] @ state)

    times, solved = Products(), 0
    state, found = np.zeros((NUMBERS, FEATURES)), []
    for at, passed, ratios in chunks:
        of_keys, of_queries = np.split(times(np.vstack([k[at], q[at]]), k[at].T), 2)
        triangle, flops = inverse(np.tril(replaced[at] * of_keys * ratios, -1))
        solved += flops
        both = replaced[at] * np.hstack([passed * k[at], v[at]])
        keys, values = np.split(times(triangle, both), [NUMBERS], axis=1)
        new = values - times(keys, state)
        scores = np.hstack([passed * q[at], of_queries * ratios])
        found.append(times(scores, np.vstack([state, new])))
        state = passed[-1] * state + times(((passed[-1] / passed) * k[at]).T, new)
    assert np.allclose(np.vstack(found), expected)
    keys_shape, values_shape = (1, LENGTH, 1, NUMBERS), (1, LENGTH, 1, FEATURES)
    own_shape = values_shape[:-1]
    layer, inputs = (
        GatedDelta(chunk=CHUNK),
        (keys_shape, keys_shape, values_shape, own_shape, own_shape),
    )
    assert of_layer(layer, *inputs) == times.done
    streams = [s for s in layer.operations(Pass.FORWARD, inputs, 4) if isinstance(s, Stream)]
    assert sum(stream.flops for stream in streams) == solved
