"""Attention with something added to its scores, and written out in steps: bytes by hand."""

from __future__ import annotations

import pytest

from paleo.core.kinds import Kind, Pass
from paleo.core.operations import Attention as AttentionWork
from paleo.core.operations import BatchMatMul, Stream
from paleo.net.layers.attention import Attention
from paleo.net.layers.base import ShapeError

#: 2 samples of 3 heads, 5 queries and 7 keys of 4 features.
N, H, T, S, D = 2, 3, 5, 7, 4
QKV = ((N, H, T, D), (N, H, S, D), (N, H, S, D))
MASK = (1, H, T, S)
SCORES = N * H * T * S


def test_what_is_added_to_the_scores_is_read_once_in_one_kernel() -> None:
    layer = Attention(causal=False)
    (plain,) = layer.operations(Pass.FORWARD, QKV, 2)
    (masked,) = layer.operations(Pass.FORWARD, (*QKV, MASK), 2)
    assert isinstance(masked, AttentionWork)
    assert masked.reads == (*plain.reads, 2 * H * T * S)
    assert masked.writes == plain.writes
    assert masked.flops == plain.flops
    assert layer.infer_shape((*QKV, MASK)) == (N, H, T, D)
    assert len(masked.read_roles) == len(masked.reads)


def test_the_gradient_of_the_mask_is_summed_up_from_that_of_all_scores() -> None:
    layer, inputs = Attention(causal=False), (*QKV, MASK)
    (only,) = layer.input_gradient(inputs, 2, (True, True, True, False))
    assert isinstance(only, AttentionWork)
    _, of_mask = layer.input_gradient(inputs, 2, (True,) * 4)
    assert (of_mask.reads, of_mask.writes) == ((2 * SCORES,), (2 * SCORES, 2 * H * T * S))


def test_a_mask_of_other_scores_is_refused() -> None:
    with pytest.raises(ShapeError, match="5 x 7"):
        Attention(causal=False).infer_shape((*QKV, (1, H, T, S + 1)))


def test_in_steps_each_writes_its_result_and_the_softmax_is_wide() -> None:
    layer = Attention(causal=False).in_steps(True)
    scores, scaled, up, softmax, down, values = layer.operations(Pass.FORWARD, QKV, 2)
    assert isinstance(scores, BatchMatMul)
    assert (scores.count, scores.m, scores.n, scores.k) == (N * H, T, S, D)
    assert isinstance(values, BatchMatMul)
    assert (values.count, values.m, values.n, values.k) == (N * H, T, D, S)
    half, full = 2 * SCORES, 4 * SCORES
    assert [(each.reads, each.writes) for each in (scaled, up, softmax, down)] == [
        ((half,), (half,)),
        ((half,), (full,)),
        ((full,), (full,)),
        ((full,), (half,)),
    ]
    assert isinstance(softmax, Stream)
    assert (softmax.kind, softmax.row) == (Kind.SOFTMAX, 4 * S)


def test_in_steps_there_are_four_products_back() -> None:
    layer = Attention(causal=False).in_steps(False)
    back = layer.operations(Pass.INPUT_GRADIENT, QKV, 4)
    products = [each for each in back if isinstance(each, BatchMatMul)]
    # Without a wide softmax nothing is cast.
    assert [each.name for each in back if isinstance(each, Stream)] == ["softmax", "scale"]
    flops = sum(each.flops for each in layer.operations(Pass.FORWARD, QKV, 4))
    assert sum(each.flops for each in products) == 2 * flops
    assert len(products) == 4


def test_shared_heads_are_rows_of_one_product() -> None:
    shared = (QKV[0], (N, 1, S, D), (N, 1, S, D))
    scores, *_ = Attention(causal=False).in_steps(False).operations(Pass.FORWARD, shared, 2)
    assert isinstance(scores, BatchMatMul)
    assert (scores.count, scores.m) == (N, H * T)
