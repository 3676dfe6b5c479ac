"""State-space models and linear attention: counts by hand, and against plain recurrences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from layer_examples import DELTAS, FEATURE_DELTAS, SPACES, Example, node_of, works

from paleo.core.operations import BatchMatMul, Pass, Role, Stream, Work
from paleo.net.layers.base import MemoryNeeds, ShapeError
from paleo.net.layers.scans import GatedDelta, SelectiveScan, StateSpaceDual

#: 2 samples of 6 positions, 4 channels and states of 3 numbers.
SCAN = ([2, 6, 4], [2, 6, 4], [2, 6, 3], [2, 6, 3])


def shapes(*inputs: list[int]) -> tuple[tuple[int, ...], ...]:
    return tuple(map(tuple, inputs))


def products(layer: Any, inputs: tuple[list[int], ...], direction: Pass) -> list[Any]:
    """Return count, M, N and K of each product."""
    found = layer.operations(direction, shapes(*inputs), 2)
    return [(each.count, each.m, each.n, each.k) for each in found if isinstance(each, BatchMatMul)]


# Mamba


def test_a_selective_scan_is_one_kernel_that_keeps_its_states_on_the_chip() -> None:
    # 48 elements of x, of steps and of the output, 36 of B and of C; 2*6*4 * (6*3 + 3) = 1008.
    forward, back, weights = works(Example("SelectiveScan", {}, SCAN))
    assert forward == Work(1008, 4 * (2 * 48 + 2 * 36), 4 * 48)
    assert back == Work(2 * 1008, 4 * (48 + 168), 4 * 168)
    # The kernel of the gradients sums up those of 4*3 decays and 4 factors in passing.
    assert weights == Work(0, 4 * 96, 4 * 16)
    _, node = node_of(Example("SelectiveScan", {}, SCAN))
    assert node.num_params == 4 * 3 + 4
    assert node.num_tensors == 2
    (summed,) = node.layer.operations(Pass.WEIGHT_GRADIENT, node.inputs, 4)
    assert set(summed.read_roles) == {Role.AGAIN}


def test_a_gate_is_one_more_tensor_and_what_it_gates_is_kept() -> None:
    forward, back, _ = works(Example("SelectiveScan", {}, (*SCAN, [2, 6, 4])))
    assert forward == Work(1008, 4 * (3 * 48 + 2 * 36), 4 * 48)
    assert back.bytes_written == 4 * (3 * 48 + 2 * 36)
    # One pair of decay and state for each of 4 channels and 3 numbers, twice for 2049 positions.
    layer, long = SelectiveScan(), ((1, 2049, 4), (1, 2049, 4), (1, 2049, 3), (1, 2049, 3))
    assert layer.keeps(long, 2, (True,) * 4).saved == 4 * 2 * 2 * 4 * 3
    gated = layer.keeps((*long, long[0]), 2, (True,) * 5)
    assert gated == MemoryNeeds(inputs=(0, 1, 2, 3, 4), saved=4 * 2 * 2 * 4 * 3 + 2 * 2049 * 4)


def test_the_flops_of_a_scan_are_those_of_its_recurrence() -> None:
    """Counted in a plain program of the recurrence, one channel after the other."""
    flops = 0

    def times(a: Any, b: Any) -> Any:
        nonlocal flops
        flops += int(np.broadcast(a, b).size)
        return a * b

    def plus(a: Any, b: Any) -> Any:
        nonlocal flops
        flops += int(np.broadcast(a, b).size)
        return a + b

    rng = np.random.default_rng(0)
    channels, numbers, length = 4, 3, 6
    decay, passing = rng.normal(size=(channels, numbers)), rng.normal(size=channels)
    state = np.zeros((channels, numbers))
    for _ in range(length):
        x, step = rng.normal(size=(2, channels))
        b, c = rng.normal(size=(2, numbers))
        entering = times(times(step, x)[:, None], b)
        state = plus(times(np.exp(times(step[:, None], decay)), state), entering)
        weighted = times(state, c)
        y = plus(np.add.reduce(weighted, 1), times(passing, x))
        flops += channels * (numbers - 1)  # the sum over the state
        assert y.shape == (channels,)
    # The first term of a sum over the state is no addition, which 6 S + 3 counts as one.
    one = SelectiveScan().operations(Pass.FORWARD, shapes(*([1, *s[1:]] for s in SCAN)), 4)
    assert flops == one[0].flops - length * channels


# Mamba-2


def test_a_dual_is_three_products_of_each_chunk() -> None:
    # 6 positions are 2 chunks of 4: of 2 samples, 4 heads (5 features) and 2 groups (3 numbers).
    layer = StateSpaceDual(chunk=4)
    assert products(layer, SPACES, Pass.FORWARD) == [(16, 5, 3, 4), (8, 4, 4, 3), (16, 4, 5, 4 + 3)]
    forward, back, weights = works(Example("StateSpaceDual", {"chunk": 4}, SPACES))
    flops = 2 * (16 * 5 * 3 * 4 + 8 * 4 * 4 * 3 + 16 * 4 * 5 * 7)
    assert (forward.flops, back.flops) == (flops, 2 * flops)
    # 48 steps are summed up to 48 sums of parameters of 3 for each head.
    assert weights == Work(0, 4 * 2 * 48, 4 * 12)
    # A short sequence is one chunk.
    assert products(StateSpaceDual(), SPACES, Pass.FORWARD)[1] == (4, 6, 6, 3)


def test_states_pass_from_chunk_to_chunk_through_memory() -> None:
    steps = StateSpaceDual(chunk=4).operations(Pass.FORWARD, shapes(*SPACES), 2)
    _, _, passing, *_ = steps
    assert isinstance(passing, Stream)
    states = 2 * (2 * 2 * 4 * 5 * 3)
    assert (passing.reads, passing.writes) == ((states, 2 * 48), (states,))
    kept = StateSpaceDual(chunk=4).keeps(shapes(*SPACES), 2, (True,) * 4)
    assert kept == MemoryNeeds(inputs=(0, 1, 2, 3), output=True, saved=2 * 4 * 48)


# Gated delta rule


def test_a_gated_delta_rule_is_the_products_of_its_chunks() -> None:
    layer, count = GatedDelta(chunk=4), 2 * 2 * 4
    # Keys and queries of 3 features, values of 5.
    assert products(layer, DELTAS, Pass.FORWARD) == [
        (count, 8, 4, 3),
        (count, 4, 3 + 5, 4),
        (count, 4, 5, 3),
        (count, 3, 5, 4),
        (count, 4, 5, 3 + 4),
    ]
    # A triangular inverse of 4 rows: row 2 takes one product, row 3 three: 4 of 2 FLOPs.
    inverse = count * 8
    flops = 2 * count * (96 + 128 + 60 + 60 + 140) + inverse
    forward, back, weights = works(Example("GatedDelta", {"chunk": 4}, DELTAS))
    assert (forward.flops, back.flops) == (flops, 2 * flops)
    assert weights == Work(0, 4 * 2 * 48, 4 * 8)
    kept = layer.keeps(shapes(*DELTAS), 2, (True,) * 5)
    assert kept == MemoryNeeds(inputs=(0, 1, 2, 3, 4), saved=2 * count * 16 + 4 * 48)


def test_a_decay_for_each_feature_is_a_tensor_of_them() -> None:
    layer = GatedDelta(chunk=4)
    by_head, by_feature = shapes(*DELTAS), shapes(*FEATURE_DELTAS)
    assert layer.infer_shape(by_feature) == (2, 6, 4, 5)
    # Four heads: a decay each, and a bias for each of 4 or of 4 x 3 decays.
    assert (layer.num_params(by_head), layer.num_params(by_feature)) == (8, 16)
    forward = [layer.operations(Pass.FORWARD, each, 2) for each in (by_head, by_feature)]
    # The sums of decays read and write 2 x 6 x 12 numbers, not 48; the products are the same.
    assert [sum(each[0].reads) + sum(each[0].writes) for each in forward] == [6 * 48, 6 * 144]
    assert forward[0][1:] == forward[1][1:]
    count = 2 * 2 * 4
    kept = layer.keeps(by_feature, 2, (True,) * 5)
    assert kept.saved == 2 * count * 16 + 4 * 144
    with pytest.raises(ShapeError, match="with or without x d"):
        layer.infer_shape((*by_head[:3], (2, 6, 4, 2), by_head[4]))


def test_a_step_reads_and_writes_the_states() -> None:
    one = shapes(*([each[0], 1, *each[2:]] for each in DELTAS))
    (step,) = GatedDelta(resumes=True).operations(Pass.FORWARD, one, 2)
    # 2 sequences of 4 heads with states of 3 x 5: 120 numbers of 4 bytes, 7 FLOPs each.
    assert step.flops == 7 * 120
    assert step.reads == (2 * 12, 2 * 12, 2 * 40, 2 * 8, 2 * 8, 4 * 120)
    assert step.writes == (2 * 40, 4 * 120)
    # Without states that are kept, one position is a chunk; a prompt passes over them once.
    assert len(GatedDelta().operations(Pass.FORWARD, one, 2)) == 7
    kept, *others = GatedDelta(chunk=4, resumes=True).operations(Pass.FORWARD, shapes(*DELTAS), 2)
    assert (kept.reads, kept.writes) == ((4 * 120,), (4 * 120,))
    assert tuple(others) == GatedDelta(chunk=4).operations(Pass.FORWARD, shapes(*DELTAS), 2)


@pytest.mark.parametrize("layer", [StateSpaceDual(chunk=4), GatedDelta(chunk=4)])
def test_many_lengths_give_the_same_as_one_by_one(layer: Any) -> None:
    inputs, lengths = SPACES if isinstance(layer, StateSpaceDual) else DELTAS, [3, 4, 9]
    many = tuple((2, np.array(lengths), *each[2:]) for each in inputs)
    for direction in (Pass.FORWARD, Pass.INPUT_GRADIENT):
        for i, length in enumerate(lengths):
            one = layer.operations(direction, tuple((2, length, *s[2:]) for s in inputs), 2)
            for whole, single in zip(layer.operations(direction, many, 2), one, strict=True):
                assert np.broadcast_to(whole.flops, 3)[i] == single.flops
                sizes = zip(whole.operands, single.operands, strict=True)
                assert all(np.broadcast_to(a.num_bytes, 3)[i] == b.num_bytes for a, b in sizes)
    assert list(layer.infer_shape(many)[1]) == lengths


def test_a_short_convolution_before_a_scan_is_a_depthwise_one() -> None:
    keys = {"filter": [4, 1, 8], "strides": [1, 1, 1], "padding": [[3, 0]], "groups": 8}
    _, node = node_of(Example("Convolution", keys, ([2, 6, 8],)))
    assert node.output == (2, 6, 8)
    assert node.num_params == 4 * 8 + 8
    assert works(Example("Convolution", keys, ([2, 6, 8],)))[0].flops == 2 * 4 * 2 * 6 * 8
