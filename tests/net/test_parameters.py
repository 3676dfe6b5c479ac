"""What frameworks do with gradients of parameters: by hand."""

from __future__ import annotations

from typing import Any

import paleo
from paleo.cluster.frameworks import FRAMEWORKS
from paleo.core.operations import Pass, Stream
from paleo.net.parameters import added
from paleo.step.passes import computed_by


def test_each_tensor_is_filled_and_added_to() -> None:
    # 1,000 parameters of 4 bytes in 2 tensors: 2,000 bytes each.
    operations = added(1000, 2, 4)
    assert [(each.reads, each.writes) for each in operations] == [
        ((), (2000,)),
        ((2000, 2000), (2000,)),
    ] * 2


def test_pytorch_before_2_adds_gradients_of_each_layer() -> None:
    graph = paleo.build(paleo.load("lenet5"), 8)
    older = computed_by(FRAMEWORKS["pytorch1"], graph)
    assert computed_by(FRAMEWORKS["pytorch"], graph) is graph
    moved: Any = 0
    for node, other in zip(graph.nodes, older.nodes, strict=True):
        alone = graph.operations(node, Pass.WEIGHT_GRADIENT)
        found = older.operations(other, Pass.WEIGHT_GRADIENT)
        assert found[: len(alone)] == alone
        more = found[len(alone) :]
        # A weight and a bias each: a fill and a sum for both.
        assert len(more) == (4 if node.num_params else 0)
        assert all(isinstance(each, Stream) for each in more)
        moved += sum(each.work.num_bytes for each in more)
        assert older.operations(other, Pass.FORWARD) == graph.operations(node, Pass.FORWARD)
    # P is written for the zeros; 2 P are read and P is written for the sum.
    assert moved == 4 * 4 * graph.num_params


def test_half_precision_parameters_are_half_as_large() -> None:
    graph = computed_by(FRAMEWORKS["pytorch1"], paleo.build(paleo.load("lenet5"), 8, "fp16"))
    fills = [
        each
        for node in graph.nodes
        for each in graph.operations(node, Pass.WEIGHT_GRADIENT)
        if each.name == "zero gradient"
    ]
    assert sum(each.writes[0] for each in fills) == 2 * graph.num_params
