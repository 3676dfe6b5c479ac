"""Which gradients a training step computes: those that some parameter above needs."""

from __future__ import annotations

from typing import Any

import pytest

import paleo
from paleo.core.operations import Pass, Work, total_work
from paleo.costs import find_cost_model
from paleo.step.passes import needed_gradients

LAYERS: dict[str, Any] = {
    "x": {"type": "Input", "tensor": [2, 3, 4]},
    "y": {"type": "InnerProduct", "parents": ["x"], "num_outputs": 4, "axis": -1},
    "mask": {"type": "Parameter", "shape": [3, 4], "trainable": False},
    "masked": {"type": "Elementwise", "parents": ["y", "mask"], "function": "product"},
    "moved": {"type": "Elementwise", "parents": ["masked", "mask"]},
    "m": {"type": "MatMul", "parents": ["moved", "x"], "transpose_b": True},
    "e": {"type": "Einsum", "parents": ["x", "m", "x"], "equation": "nij,nki,nkl->nijl"},
}


@pytest.fixture
def graph(net: Any) -> paleo.Graph:
    return paleo.build(net(LAYERS))


def needed(graph: paleo.Graph, cost_model: str = "roofline") -> dict[str, tuple[bool, ...]]:
    found = needed_gradients(graph, find_cost_model(cost_model).conventions)
    return {node.name: each for node, each in zip(graph.nodes, found, strict=True)}


def work(graph: paleo.Graph, name: str) -> Work:
    (node,) = [node for node in graph.nodes if node.name == name]
    return total_work(graph.operations(node, Pass.INPUT_GRADIENT, needed(graph)[name]))


def test_a_gradient_is_needed_where_parameters_are_above(graph: paleo.Graph) -> None:
    assert needed(graph) == {
        "x": (),
        "y": (False,),
        "mask": (),
        "masked": (True, False),
        "moved": (True, False),
        "m": (True, False),
        "e": (False, True, False),
    }


def test_the_model_of_2017_spares_convolutions_on_inputs_alone(graph: paleo.Graph) -> None:
    assert all(all(each) for each in needed(graph, "paleo2017").values())


def test_what_nobody_needs_costs_nothing(graph: paleo.Graph) -> None:
    assert work(graph, "y") == Work()
    # It reads the gradient and y, 24 elements each, and the mask, 12; it writes y's alone.
    assert work(graph, "masked") == Work(0, 4 * (24 + 24 + 12), 4 * 24)
    # A sum hands its gradient on; that of the mask would have been summed over the batch.
    assert work(graph, "moved") == Work()
    # 3 x 4 of the first factor, each a sum of 3 products, for 2 samples.
    assert work(graph, "m").flops == 2 * 2 * 3 * 4 * 3


def test_a_chain_of_products_computes_what_leads_to_a_parameter(graph: paleo.Graph) -> None:
    # First x times m, over no letter: n i j k. Then that times x, over k: n i j l. Needed are
    # the gradients of m and, on the way to it, of the first product.
    first = 2 * (2 * 3 * 4 * 3)
    second = 2 * (2 * 3 * 4) * 4 * 3
    assert work(graph, "e").flops == first + second
