"""Losses over large vocabularies: what kernels move, and what is kept, by hand."""

from __future__ import annotations

from typing import Any

import pytest
from layer_examples import Example, node_of, works

import paleo
from paleo.core.operations import BatchMatMul, Pass, Stream, Work
from paleo.net.layers.base import MemoryNeeds
from paleo.net.layers.losses import LinearCrossEntropy, Loss

#: 2 samples of 6 positions, 10 words: 120 scores and 12 labels.
SCORES = ((2, 6, 10), (2, 6))
#: 12 rows of 4 features.
HIDDEN = ((2, 6, 4), (2, 6))


def test_a_fused_loss_writes_a_sum_for_each_row_and_no_logarithms() -> None:
    layer = Loss(function="cross_entropy", fused=True)
    (forward,) = layer.operations(Pass.FORWARD, SCORES, 2)
    assert isinstance(forward, Stream)
    assert (forward.reads, forward.writes) == ((240, 24), (2 * 2, 24))
    assert (forward.row, forward.passes) == (20, 2)
    (back,) = layer.operations(Pass.INPUT_GRADIENT, SCORES, 2)
    assert (back.reads, back.writes) == ((240, 24, 24), (240,))
    assert len(back.read_roles) == 3
    assert layer.keeps(SCORES, 2, (True, False)) == MemoryNeeds(inputs=(0, 1), saved=4 * 12)
    apart = Loss(function="cross_entropy").keeps(SCORES, 2, (True, False))
    assert apart == MemoryNeeds(inputs=(0, 1), own=240, backward=240)


def test_a_head_with_its_loss_is_three_products() -> None:
    layer, sizes = LinearCrossEntropy(num_outputs=10, chunk=5), []
    for direction in (Pass.FORWARD, Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT):
        work, *others = layer.operations(direction, HIDDEN, 2)
        assert isinstance(work, BatchMatMul)
        sizes.append((work.count, work.m, work.n, work.k))
        assert work.flops == 2 * 12 * 40
        assert all(each.flops == 0 for each in others)
    assert sizes == [(1, 12, 10, 4), (1, 12, 4, 10), (1, 4, 10, 12)]


@pytest.mark.parametrize(("chunk", "more"), [(5, 2), (12, 0), (100, 0)])
def test_the_gradient_of_its_matrix_is_a_sum_over_chunks(chunk: int, more: int) -> None:
    # 12 rows are chunks of 5, 5 and 2: the second and the third read and write all 40 sums.
    layer = LinearCrossEntropy(num_outputs=10, chunk=chunk)
    _, summed = layer.operations(Pass.WEIGHT_GRADIENT, HIDDEN, 2)
    assert (summed.reads, summed.writes) == ((2 * 40 * more,),) * 2


def test_its_scores_become_their_gradient_where_they_are() -> None:
    layer = LinearCrossEntropy(num_outputs=10, chunk=5)
    *_, loss = layer.operations(Pass.FORWARD, HIDDEN, 2)
    assert (loss.reads, loss.writes) == ((240, 24), (240, 24))
    # 5 rows of scores at a time, and the gradient of 12 rows of 4.
    assert layer.keeps(HIDDEN, 2, (True, False)) == MemoryNeeds(saved=96, forward=2 * 5 * 10)
    assert layer.keeps(HIDDEN, 2, (False, False)) == MemoryNeeds(forward=2 * 5 * 10)


def test_its_parameters_are_a_matrix_and_biases() -> None:
    keys = {"num_outputs": 10, "use_bias": True}
    _, node = node_of(Example("LinearCrossEntropy", keys, ([2, 6, 4], [2, 6])))
    assert (node.num_params, node.num_tensors, node.output) == (50, 2, (2, 1))
    assert node.layer.is_loss
    assert node.layer.index_limit(1, node.inputs) == 10
    # The products, and the sums of 120 gradients that are those of 10 biases.
    *_, weights = works(Example("LinearCrossEntropy", keys, ([2, 6, 4], [2, 6])))
    assert weights == Work(960, 4 * (48 + 120 + 120), 4 * (40 + 10))


@pytest.mark.parametrize("labels", [[2], [2, 1]])
def test_one_row_a_sample_has_one_label(labels: list[int]) -> None:
    assert LinearCrossEntropy(num_outputs=10).infer_shape(((2, 4), tuple(labels))) == (2, 1)


def test_a_head_that_is_the_table_of_words_takes_less_memory_with_its_loss(net: Any) -> None:
    def peak(**last: dict[str, Any]) -> int:
        layers: dict[str, Any] = {
            "words": {"type": "Input", "tensor": [2, 512]},
            "next": {"type": "Input", "tensor": [2, 512]},
            "table": {
                "type": "Embedding", "parents": ["words"], "num_embeddings": 4096,
                "num_outputs": 64,
            },
            **last,
        }  # fmt: skip
        found = paleo.footprint(net(layers), training=True, optimizer="sgd")
        assert found.weights == 4 * 4096 * 64
        return int(found.peak)

    head = {"num_outputs": 4096, "shares": "table"}
    apart = peak(
        head={"type": "InnerProduct", "parents": ["table"], "axis": -1, "use_bias": False, **head},
        loss={"type": "Loss", "parents": ["head", "next"]},
    )
    joined = peak(
        loss={"type": "LinearCrossEntropy", "parents": ["table", "next"], "chunk": 128, **head}
    )
    # Scores, their logarithms and gradients of 1024 rows, against scores of 128.
    scores = 4 * 1024 * 4096
    assert apart - joined > 2 * scores
