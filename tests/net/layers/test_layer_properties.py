"""What holds for layers of every type: batches, arrays, cost models; and where types agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layer_examples import EXAMPLES, HEADS, PASSES, SEQUENCE, Example, node_of, works

import paleo
from paleo.core.operations import Pass
from paleo.costs import COST_MODELS

FAST = settings(max_examples=60, deadline=None)


@FAST
@given(st.sampled_from(EXAMPLES), st.integers(1, 40))
def test_work_is_linear_in_the_batch_but_for_weights(example: Example, batch: int) -> None:
    # Each sample with each is as many pairs.
    times = batch**2 if example.kind == "Similarity" else batch
    for one, many in zip(works(example, 1), works(example, batch), strict=True):
        assert many.flops == times * one.flops
        assert one.num_bytes <= many.num_bytes <= times * one.num_bytes
    assert node_of(example, 1)[1].num_params == node_of(example, batch)[1].num_params


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_arrays_of_batches_give_the_same_as_one_by_one(example: Example) -> None:
    batches = [1, 2, 7]
    graph, node = node_of(example, np.array(batches))
    for i, batch in enumerate(batches):
        other, single = node_of(example, batch)
        assert [np.broadcast_to(size, 3)[i] for size in node.output] == list(single.output)
        for direction in PASSES:
            both = graph.operations(node, direction), other.operations(single, direction)
            for many, one in zip(*both, strict=True):
                counts = zip(
                    (many.flops, *many.reads, *many.writes),
                    (one.flops, *one.reads, *one.writes),
                    strict=True,
                )
                assert all(np.broadcast_to(whole, 3)[i] == count for whole, count in counts)


def made_device() -> paleo.Device:
    return paleo.Device.from_rates("made", clock=1e9, peak=1e12, memory_bandwidth=1e11)


def seconds(example: Example, model: str) -> tuple[float, float]:
    graph, node = node_of(example)
    estimates = (paleo.estimate_forward, paleo.estimate_backward)
    forward, backward = (
        estimate(graph, made_device(), cost_model=model).layers[node.index].seconds
        for estimate in estimates
    )
    return float(forward), float(backward)


#: What the model of 2017 prices.
PRICED = ("Convolution", "Deconvolution", "InnerProduct", "Pooling", "AvgPool", "Dropout")


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_each_cost_model_prices_a_layer_or_says_that_it_does_not(example: Example) -> None:
    graph, node = node_of(example)
    names = {
        operation.name for direction in PASSES for operation in graph.operations(node, direction)
    }
    forward = graph.operations(node, Pass.FORWARD)
    left_out = {}
    for model in COST_MODELS:
        (run,) = paleo.simulate(example.net(), cost_model=model, scaling="weak").runs
        left_out[model] = set(run.not_counted)
    unknown = {"NonMaxSuppression"} if example.kind == "Unknown" else set()
    assert left_out["roofline"] == unknown
    assert (seconds(example, "roofline")[0] > 0) == (bool(forward) and not unknown)
    if example.kind in PRICED or example.kind == "GlobalPooling":
        assert seconds(example, "paleo2017")[0] > 0
        assert left_out["paleo2017"] <= {"bias", "relu", "batch_norm"}
    else:
        assert seconds(example, "paleo2017") == (0, 0)
        # A net of inputs and one layer needs no gradients of these.
        assert {each.name for each in forward} <= left_out["paleo2017"] <= names


def conv(shape: list[int], window: list[int], strides: list[int], padding: Any) -> Example:
    keys = {"filter": [*window, 4, 8], "strides": [1, *strides, 1], "padding": padding}
    return Example("Convolution", keys, (shape,))


@pytest.mark.parametrize("model", COST_MODELS)
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (  # rows of a sequence and samples
            Example("InnerProduct", {"num_outputs": 8, "axis": -1}, (SEQUENCE,)),
            Example("InnerProduct", {"num_outputs": 8}, ([12, 4],)),
        ),
        (  # frames of a video and images
            conv([2, 3, 6, 6, 4], [3, 3], [1, 1], "SAME"),
            conv([6, 6, 6, 4], [3, 3], [1, 1], "SAME"),
        ),
        (  # a sequence and an image one pixel wide
            conv([2, 7, 4], [3], [2], [1]),
            conv([2, 7, 1, 4], [3, 1], [2, 1], [1, 0]),
        ),
        (  # a volume of one image and that image
            conv([2, 1, 7, 9, 4], [1, 3, 2], [1, 2, 1], [0, 1, 0]),
            conv([2, 7, 9, 4], [3, 2], [2, 1], [1, 0]),
        ),
        (
            Example("GlobalPooling", {}),
            Example("AvgPool", {"ksize": [1, 6, 6, 1], "strides": [1] * 4, "padding": "VALID"}),
        ),
        (
            Example("MatMul", {}, (HEADS, [2, 3, 4, 5])),
            Example("Einsum", {"equation": "nhij,nhjk->nhik"}, (HEADS, [2, 3, 4, 5])),
        ),
    ],
    ids=str,
)
def test_the_same_work_takes_the_same_time(model: str, one: Example, other: Example) -> None:
    assert seconds(one, model) == seconds(other, model)


def test_the_price_of_an_inner_product_over_rows_is_that_by_hand() -> None:
    example = Example(
        "InnerProduct", {"num_outputs": 8, "axis": -1, "use_bias": False}, (SEQUENCE,)
    )
    # 768 FLOPs at 1e12 a second; 4 * (48 + 32 + 96) = 704 bytes at 1e11
    assert seconds(example, "roofline")[0] == pytest.approx(max(768 / 1e12, 704 / 1e11))
    # Here a clock is 1e-9 s, which no operand's transfer is below.
    gib = 1e11 * 2**30 / 1e9
    transfers = sum(max(1e-9, 4 * size / gib) for size in (48, 32, 96))
    assert seconds(example, "paleo2017")[0] == pytest.approx(1e-9 + transfers)


SIZES = st.integers(1, 9)


@FAST
@given(SIZES, SIZES, SIZES, SIZES, SIZES, st.integers(1, 4), st.integers(1, 3))
def test_attention_has_the_products_of_its_two_einsums(
    n: int, t: int, s: int, d: int, e: int, heads: int, sharing: int
) -> None:
    q, k, v = [n, heads * sharing, t, d], [n, heads, s, d], [n, heads, s, e]
    whole = works(Example("Attention", {}, (q, k, v)))
    q = [n, heads, sharing, t, d]
    scores = works(Example("Einsum", {"equation": "nhgtd,nhsd->nhgts"}, (q, k)))
    p = [n, heads, sharing, t, s]
    values = works(Example("Einsum", {"equation": "nhgts,nhse->nhgte"}, (p, v)))
    assert whole[0].flops == scores[0].flops + values[0].flops
    assert whole[1].flops == scores[1].flops + values[1].flops
    # It moves less: the scores stay where they are.
    assert whole[0].num_bytes < scores[0].num_bytes + values[0].num_bytes


@FAST
@given(st.sampled_from(["RNN", "GRU", "LSTM"]), SIZES, SIZES, SIZES, SIZES)
def test_two_directions_are_twice_one(kind: str, n: int, t: int, d: int, h: int) -> None:
    one, both = (
        Example(kind, {"num_outputs": h, "bidirectional": flag}, ([n, t, d],))
        for flag in (False, True)
    )
    assert tuple(2 * each for each in works(one)) == works(both)
    assert 2 * node_of(one)[1].num_params == node_of(both)[1].num_params


@pytest.mark.slow
@FAST
@given(st.lists(st.sampled_from([1, 3]), max_size=3), st.lists(st.sampled_from([1, 3]), max_size=3))
def test_elementwise_and_matmul_repeat_dimensions_as_numpy_does(a: list[int], b: list[int]) -> None:
    shapes = [2, *a, 5, 4], [2, *b, 4, 6]
    _, node = node_of(Example("MatMul", {}, shapes))
    assert node.output == (2, *np.broadcast_shapes(tuple(a), tuple(b)), 5, 6)
    shapes = [2, *a, 4], [2, *b, 4]
    _, node = node_of(Example("Elementwise", {}, shapes))
    assert node.output == (2, *np.broadcast_shapes((*a, 4), (*b, 4)))
