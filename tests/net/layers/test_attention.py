"""Attention with something added to its scores, and written out in steps: bytes by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paleo.core.kinds import Kind, Pass
from paleo.core.operations import Attention as AttentionWork
from paleo.core.operations import BatchMatMul, Stream, total_work
from paleo.net.layers.attention import Attention
from paleo.net.layers.base import ShapeError
from paleo.net.layers.selection import SelectKeys

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


def pieces(layer: Attention, queries: int, keys: int) -> list[Any]:
    """Return heads, queries and keys of each operation."""
    shapes = ((N, H, queries, D), (N, H, keys, D), (N, H, keys, D))
    found: tuple[Any, ...] = layer.operations(Pass.FORWARD, shapes, 2)
    return [(each.heads, each.queries, each.keys) for each in found]


def test_each_chunk_is_attention_by_itself() -> None:
    layer, heads = Attention(causal=True, chunk=4), N * H
    assert pieces(layer, 12, 12) == [(heads * 3, 4, 4)]
    assert pieces(layer, 14, 14) == [(heads * 3, 4, 4), (heads, 2, 2)]
    assert pieces(layer, 3, 3) == [(heads, 3, 3)]
    # The last 7 of 13 positions: 6 and 7 are the last two of their chunk, then 8 to 11, then 12.
    assert pieces(layer, 7, 13) == [(heads, 2, 4), (heads, 4, 4), (heads, 1, 1)]
    # One query after 9 others, the second of its chunk.
    assert pieces(layer, 1, 10) == [(heads, 1, 2)]
    assert pieces(layer, 1, 9) == [(heads, 1, 1)]


def test_chunks_of_many_lengths_have_the_same_counts_as_one_by_one() -> None:
    layer = Attention(causal=True, chunk=4)

    def works(lengths: Any) -> Any:
        return total_work(layer.operations(Pass.FORWARD, ((N, H, lengths, D),) * 3, 2))

    for lengths in ([4, 8, 400], [5, 11, 402]):
        whole = works(np.array(lengths))
        ones = [works(length) for length in lengths]
        assert list(whole.flops) == [one.flops for one in ones]
        assert list(whole.num_bytes) == [one.num_bytes for one in ones]
    # 3 and 4 are one chunk, 8 two; 6 counts as two of 3, not as one of 4 and one of 2.
    mixed = works(np.array([3, 4, 6, 8]))
    each = 4 * D * N * H
    assert list(mixed.flops) == [each * 9, each * 16, each * 2 * 9, each * 2 * 16]


def test_queries_of_chunks_must_be_the_last_of_the_keys() -> None:
    with pytest.raises(ShapeError, match="8 are no part of 7"):
        Attention(chunk=4).infer_shape(((N, H, 8, D), *QKV[1:]))


def test_a_sink_is_a_parameter_of_each_head_of_the_queries() -> None:
    layer, shared = Attention(sinks=True), (QKV[0], (N, 1, S, D), (N, 1, S, D))
    assert layer.num_params(shared) == H
    assert Attention().num_params(shared) == 0
    # The sums of two numbers for each query and head, of all samples.
    (summed,) = layer.operations(Pass.WEIGHT_GRADIENT, shared, 2)
    assert (summed.reads, summed.writes) == ((2 * N * H * T,) * 2, (2 * H,))
    assert layer.in_steps(False).operations(Pass.WEIGHT_GRADIENT, shared, 2) == (summed,)
    assert layer.operations(Pass.FORWARD, shared, 2) == Attention().operations(
        Pass.FORWARD, shared, 2
    )


def test_values_that_are_part_of_the_keys_are_read_once() -> None:
    # DeepSeek-V2's absorbed form: all heads share one latent of 512 with 64 turned features.
    heads, latent = 128, ((1, 128, 1, 576), (1, 1, 4096, 576), (1, 1, 4096, 512))
    (work,) = Attention(causal=True, values_in_keys=True).operations(Pass.FORWARD, latent, 2)
    assert work.flops == 2 * heads * 4096 * (576 + 512)
    assert sum(work.reads) == 2 * (heads * 576 + 4096 * 576)
    assert work.writes == (2 * heads * 512,)
    with pytest.raises(ShapeError, match="600 features are no part of keys of 576"):
        Attention(values_in_keys=True).infer_shape((*latent[:2], (1, 1, 4096, 600)))


def test_an_indexer_scores_all_keys_and_attention_sees_the_best() -> None:
    # GLM-5: 32 heads of 128 features choose 2,048 of 8,192 keys.
    index = ((1, 32, 8192, 128), (1, 1, 8192, 128), (1, 8192, 32))
    select = SelectKeys(k=2048)
    scored, summed, chosen = select.operations(Pass.FORWARD, index, 2)
    assert select.infer_shape(index) == (1, 1, 8192, 1)
    assert scored.flops == 2 * 32 * 8192**2 * 128
    scores = 2 * 8192**2
    assert (summed.reads, summed.writes) == ((32 * scores, 2 * 8192 * 32), (scores,))
    assert (chosen.reads, chosen.writes) == ((scores,), (4 * 8192 * 2048,))
    assert select.operations(Pass.INPUT_GRADIENT, index, 2) == ()
    assert select.cached(index) == 128
    heads = ((1, 64, 8192, 256),) * 3
    (work,) = Attention(causal=True, best=2048).operations(
        Pass.FORWARD, (*heads, (1, 1, 8192, 1)), 2
    )
    assert work.flops == 2 * 64 * 8192 * 2048 * (256 + 256)
    # Of fewer keys all are seen.
    few = ((1, 32, 10, 128), (1, 1, 10, 128), (1, 10, 32))
    assert select.operations(Pass.FORWARD, few, 2)[-1].writes == (4 * 10 * 10,)
