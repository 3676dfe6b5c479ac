"""Positions that are computed: bytes by hand, what is kept, and in which kernel they are."""

from __future__ import annotations

from typing import Any

import paleo
from paleo.core.operations import Fused, Kind, Pass
from paleo.net.fusion import fused_forward
from paleo.net.layers.base import MemoryNeeds
from paleo.net.layers.positions import RotaryEmbedding

#: 2 samples of 3 heads, 5 positions of 4 features: 120 elements.
SHAPE, COUNT = (2, 3, 5, 4), 120


def test_either_pass_reads_and_writes_a_tensor_once_and_computes_nothing() -> None:
    for layer in (RotaryEmbedding(), RotaryEmbedding(rotated=2)):
        for direction in (Pass.FORWARD, Pass.INPUT_GRADIENT):
            (step,) = layer.operations(direction, (SHAPE,), 2)
            assert (step.flops, step.reads, step.writes) == (0, (2 * COUNT,), (2 * COUNT,))
    assert RotaryEmbedding().num_params((SHAPE,)) == 0
    assert RotaryEmbedding().keeps((SHAPE,), 2, (True,)) == MemoryNeeds()


def test_it_runs_in_the_kernel_of_the_normalization_before_it(net: Any) -> None:
    layers: dict[str, Any] = {
        "data": {"type": "Input", "tensor": list(SHAPE)},
        "norm": {"type": "RMSNorm", "parents": ["data"]},
        "turned": {"type": "RotaryEmbedding", "parents": ["norm"]},
    }
    _, norm, turned = fused_forward(paleo.build(net(layers))).operations[Pass.FORWARD]
    assert turned == ()
    (kernel,) = norm
    assert isinstance(kernel, Fused)
    assert [part.kind for part in kernel.parts] == [Kind.NORMALIZATION, Kind.ELEMENTWISE]
    assert kernel.work.num_bytes == 4 * 2 * COUNT


def test_learned_biases_of_distances_are_an_embedding_added_to_the_scores(net: Any) -> None:
    """T5's: 32 buckets of a number for each of 4 heads, which a constant picks from."""
    heads = {"type": "Input", "tensor": [2, 4, 6, 8]}
    layers: dict[str, Any] = {
        "q": heads,
        "k": heads,
        "buckets": {"type": "Parameter", "shape": [6, 6], "trainable": False},
        "table": {
            "type": "Embedding", "parents": ["buckets"], "num_embeddings": 32, "num_outputs": 4,
        },
        "biases": {"type": "Transpose", "parents": ["table"], "perm": [0, 3, 1, 2]},
        "attention": {"type": "Attention", "parents": ["q", "k", "k", "biases"]},
    }  # fmt: skip
    graph = paleo.build(net(layers))
    assert graph.num_params == 32 * 4
    node = graph.nodes[-1]
    assert node.inputs[3] == (1, 4, 6, 6)
    (work,) = graph.operations(node, Pass.FORWARD)
    assert work.reads[3] == 4 * 4 * 6 * 6
