"""Shapes, parameters and work of layers of language models, derived by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from layer_examples import HEADS, SEQUENCE, Example, node_of, works

import paleo
from paleo.core.operations import Fused, Kind, Pass, Work
from paleo.costs import COST_MODELS
from paleo.net.fusion import fused_backward, fused_forward
from paleo.net.layers.base import MemoryNeeds
from paleo.net.layers.mixtures import Combine, Dispatch, Experts, TopK, spread
from paleo.net.layers.pointwise import Gated
from paleo.step.passes import needed_gradients

#: FLOPs, then elements read and written.
Counts = tuple[int, int, int]
NONE = (0, 0, 0)

#: An example; its output, parameters, and the counts of the three passes by hand.
CASES: list[tuple[Example, tuple[int, ...], int, Counts, Counts, Counts]] = [
    # 2*3*6*4 = 144 elements
    (Example("RotaryEmbedding", {}, (HEADS,)), (2, 3, 6, 4), 0, (0, 144, 144), (0, 144, 144), NONE),
    # 48 elements of gate and factor each; back with the gradient, to both
    (
        Example("Gated", {}, (SEQUENCE, SEQUENCE)),
        (2, 6, 4), 0, (0, 96, 48), (0, 48 + 96, 96), NONE,
    ),
    # 12 rows of 4 scores, 2 of which are taken: 24 elements, and as many numbers
    (Example("TopK", {"k": 2}, (SEQUENCE,)), (2, 6, 2), 0, (0, 48, 48), (0, 48, 48), NONE),
    # 12 tokens of 4 to 3 experts each: 36 numbers sorted and read, 12*3*4 = 144 elements
    (
        Example("Dispatch", {}, (SEQUENCE, [2, 6, 3])),
        (2, 6, 3, 4), 0, (0, 36 + 48 + 36, 36 + 144), (0, 144 + 36, 48), NONE,
    ),
    # ceil(1.5 * 18 / 5) = 6 places of each of 5 experts: 2*5*6*4 = 240
    (
        Example("Dispatch", {"capacity": 1.5, "num_experts": 5}, (SEQUENCE, [2, 6, 3])),
        (2, 5, 6, 4), 0, (0, 36 + 48 + 36, 36 + 240), (0, 240 + 36, 48), NONE,
    ),
    (
        Example("Combine", {}, ([2, 6, 3, 4], [2, 6, 3])),
        (2, 6, 4), 0, (0, 144 + 36, 48), (0, 48 + 144 + 36, 144 + 36), NONE,
    ),
    (
        Example("Combine", {}, ([2, 5, 6, 4], [2, 6, 3])),
        (2, 6, 4), 0, (0, 240 + 36, 48), (0, 48 + 240 + 36, 240 + 36), NONE,
    ),
    # 12 rows over 4 experts, by rank 1, 1/4, 1/9, 1/16 of 205/144: 8.4, 1.5 each of the next two,
    # 0.527 of the last: 3.527 matrices of 32 elements, 113, are read; 2 * 12 * 4*8 = 768 FLOPs
    (
        Example("Experts", {"num_experts": 4, "num_outputs": 8, "use_bias": False, "load": 2},
                (SEQUENCE,)),
        (2, 6, 8), 128, (768, 48 + 113, 96), (768, 96 + 113, 48), (768, 48 + 96, 113),
    ),
    # 48 elements are 24 of each
    (Example("Gated", {}, (SEQUENCE,)), (2, 6, 2), 0, (0, 48, 24), (0, 24 + 48, 48), NONE),
]  # fmt: skip


@pytest.mark.parametrize(("example", "output", "params", "passes"),
                         [(case[0], case[1], case[2], case[3:]) for case in CASES],
                         ids=[str(case[0]) for case in CASES])  # fmt: skip
def test_counts_are_those_by_hand(
    example: Example, output: tuple[int, ...], params: int, passes: tuple[Counts, ...]
) -> None:
    _, node = node_of(example)
    assert node.output == output
    assert node.num_params == params
    expected = tuple(Work(flops, 4 * read, 4 * written) for flops, read, written in passes)
    assert works(example) == expected


# Gated functions


def test_a_gate_alone_may_need_a_gradient() -> None:
    inputs = ((2, 6, 4), (2, 6, 4))
    (step,) = Gated().input_gradient(inputs, 4, (True, False))
    assert (step.reads, step.writes) == ((4 * 48,) * 3, (4 * 48,))
    assert Gated().keeps(inputs, 4, (True, True)) == MemoryNeeds(inputs=(0, 1))


def test_a_gate_runs_in_the_kernel_of_the_product_before_it(net: Any) -> None:
    product = {"type": "InnerProduct", "parents": ["data"], "num_outputs": 8, "use_bias": False}
    layers = {
        "data": {"type": "Input", "tensor": [2, 4]},
        "gate": product,
        "up": product,
        "both": {"type": "Gated", "parents": ["gate", "up"]},
        "down": {"type": "InnerProduct", "parents": ["both"], "num_outputs": 4, "use_bias": False},
    }
    graph = paleo.build(net(layers))
    forward = fused_forward(graph).operations[Pass.FORWARD]
    (kernel,) = forward[2]
    assert isinstance(kernel, Fused)
    assert forward[3] == ()
    # The product of 2 x 4 and 4 x 8 is written, for the backward pass needs it, and the gate read.
    assert kernel.reads == (4 * 8, 4 * 32, 4 * 16)
    assert kernel.writes == (4 * 16, 4 * 16)
    backward = fused_backward(
        graph, needed_gradients(graph, COST_MODELS["tiled"].conventions)
    ).operations[Pass.INPUT_GRADIENT]
    (kernel,) = backward[4]
    assert [part.kind for part in getattr(kernel, "parts", ())] == [Kind.MATMUL, Kind.ELEMENTWISE]


@pytest.mark.parametrize(("word", "function"), [("gelu_new", "gelu"), ("relu2", "relu_squared")])
def test_words_of_model_files_are_functions(net: Any, word: str, function: str) -> None:
    layers = {
        "data": {"type": "Input", "tensor": [2, 4]},
        "act": {"type": "Activation", "parents": ["data"], "function": word},
        "gated": {"type": "Gated", "parents": ["data", "act"], "function": word},
    }
    _, act, gated = net(layers).layers
    assert act.layer.function == gated.layer.function == function


# Mixtures of experts


def test_loads_fall_by_a_power_of_the_rank() -> None:
    # Of 7 experts, exponent 1: 1; 1/2 + 1/3 = 5/6; 1/4 + 1/5 + 1/6 + 1/7 = 319/420.
    whole = 1 + 5 / 6 + 319 / 420
    (one, first), (two, second), (four, third) = spread(100, 7, 1)
    assert (one, two, four) == (1, 2, 4)
    assert first == pytest.approx(100 / whole)
    assert second == pytest.approx(100 * 5 / 12 / whole)
    assert third == pytest.approx(100 * 319 / 1680 / whole)
    # The last class is cut off: 6 experts have ranks 4, 5 and 6.
    assert [experts for experts, _ in spread(100, 6, 1)] == [1, 2, 3]
    assert [experts for experts, _ in spread(100, 1, 1)] == [1]


@pytest.mark.parametrize("exponent", [0.5, 1, 1.2])
def test_loads_of_very_many_experts_add_up(exponent: float) -> None:
    loads = spread(10**6, 2**20, exponent)
    assert sum(experts for experts, _ in loads) == 2**20
    assert sum(experts * rows for experts, rows in loads) == pytest.approx(10**6)
    # Twice as far in the ranks is a load of 2**-exponent, also where sums become integrals.
    (_, before), (_, after) = loads[12:14]
    assert after / before == pytest.approx(2**-exponent, rel=1e-3)


def test_experts_without_rows_are_not_read() -> None:
    layer = Experts(num_experts=64, num_outputs=8, use_bias=False, load=2)

    def read(rows: int) -> Any:
        (work,) = layer.operations(Pass.FORWARD, ((rows, 4),), 1)
        matrices = work.reads[1]
        assert work.flops == 2 * rows * 4 * 8
        return matrices / (4 * 8)

    # One row is read by one expert; the shares of ranks 1, 2-3, 4-7 are 0.614, 0.111, ...
    assert read(1) == pytest.approx(1, abs=1 / 32)
    # 0.614 * 12 = 7.4 rows of one, 1.33 each of two, 0.31 each of four: 1 + 2 + 1.26 + ... below 6
    assert 4 <= read(12) <= 6
    assert read(10**6) == 64


def test_experts_of_a_step_go_where_rows_do() -> None:
    many: Any = Experts(num_experts=64, num_outputs=8, load=2).operations(
        Pass.FORWARD, ((np.array([1, 12, 10**6]), 4),), 1
    )
    matrices = many[0].reads[1] / (4 * 8)
    assert list(matrices)[::2] == pytest.approx([1, 64])
    one_by_one = [[1, 12, 10**6][i] for i in range(3)]
    assert [float(sum(n * rows[i] for n, rows in many[0].loads)) for i in range(3)] == (
        pytest.approx(one_by_one)
    )


def test_a_token_that_nobody_trains_needs_no_gradient() -> None:
    inputs = ((2, 6, 4), (2, 6, 3))
    assert Dispatch().input_gradient(inputs, 4, (False, False)) == ()
    rows = ((2, 6, 3, 4), (2, 6, 3))
    (back,) = Combine().input_gradient(rows, 4, (True, False))
    assert (back.reads, back.writes) == ((4 * 48, 4 * 36), (4 * 144,))
    assert Combine().keeps(rows, 4, (True, False)) == MemoryNeeds(inputs=(1,))
    assert Combine().keeps(rows, 4, (True, True)) == MemoryNeeds(inputs=(0, 1))
    assert Dispatch().keeps(inputs, 4, (True, False)) == MemoryNeeds(own=4 * 36)
    assert TopK(k=3).keeps(((2, 6, 4),), 4, (True,)) == MemoryNeeds(own=4 * 36)


def test_places_of_many_lengths_are_those_one_by_one() -> None:
    layer, lengths = Dispatch(capacity=1.1, num_experts=4), [10, 20, 400]
    many: Any = layer.infer_shape(((2, np.array(lengths), 8), (2, np.array(lengths), 2)))
    # 1.1 * 20 / 4 = 5.5; 11 is 11, however 1.1 is rounded; 220
    assert list(many[2]) == [6, 11, 220]
    for length, places in zip(lengths, many[2], strict=True):
        assert layer.infer_shape(((2, length, 8), (2, length, 2))) == (2, 4, places, 8)
