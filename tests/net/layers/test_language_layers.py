"""Shapes, parameters and work of layers of language models, derived by hand."""

from __future__ import annotations

from typing import Any

import pytest
from layer_examples import HEADS, SEQUENCE, Example, node_of, works

import paleo
from paleo.core.operations import Fused, Kind, Pass, Work
from paleo.costs import COST_MODELS
from paleo.net.fusion import fused_backward, fused_forward
from paleo.net.layers.base import MemoryNeeds
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
    backward = fused_backward(graph, needed_gradients(graph, COST_MODELS["tiled"])).operations[
        Pass.INPUT_GRADIENT
    ]
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
