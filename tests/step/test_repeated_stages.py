"""Stages put together from a few blocks: the same bytes as all of their nodes followed at once."""

from __future__ import annotations

import functools
import itertools
import operator
from typing import Any

import numpy as np
import pytest

import paleo
from paleo.net.graph import build
from paleo.net.layers.dense import InnerProduct
from paleo.net.layers.pointwise import Activation
from paleo.net.layers.reshape import Input
from paleo.net.spec import LayerSpec, NetSpec
from paleo.step.memory.repeated import RepeatedStages
from paleo.step.memory.stage import Following, followed, sizes_of
from paleo.step.recompute import find_recompute
from paleo.step.shortened import far_reads, kinds_of, longest_row, shortened
from paleo.step.stage_steps import StageSteps
from paleo.step.stages import cut, units

D = 32
HOWS = [
    Following(*how)
    for how in (
        *((0, False, False), (0, True, False), (1, False, False), (1, True, False)),
        *((2, False, False), (3, False, False), (2, False, True), (3, False, True)),
    )
]


def chain(blocks: int) -> NetSpec:
    """Return blocks of two products with something between them."""
    layers = [LayerSpec("data", Input(tensor=(4, D)), ())]
    layers.append(LayerSpec("first", InnerProduct(num_outputs=D), ("data",)))
    for i in range(blocks):
        for name, layer in (
            ("up", InnerProduct(num_outputs=2 * D)),
            ("act", Activation(function="gelu")),
            ("down", InnerProduct(num_outputs=D, use_bias=False)),
        ):
            layers.append(LayerSpec(f"h/{i}/{name}", layer, (layers[-1].name,)))
    layers.append(LayerSpec("last", InnerProduct(num_outputs=10), (layers[-1].name,)))
    return NetSpec("chain", tuple(layers))


def settings(recompute: str, dtype: str) -> dict[str, Any]:
    return {
        "optimizer": "adamw",
        "optimizer_kernels": None,
        "dtype": dtype,
        "loss": "none",
        "recompute": find_recompute(recompute),
    }


@pytest.mark.parametrize("dtype", ["fp32", "mixed_bf16"])
@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize(("pp", "chunks"), [(1, 1), (2, 1), (2, 2), (3, 3), (7, 2), (14, 1)])
def test_stages_are_those_followed_at_once(
    dtype: str, recompute: str, pp: int, chunks: int
) -> None:
    net = chain(14)
    graph = build(net, 4, dtype)
    found, how = cut(graph, pp, chunks, "even", ()), settings(recompute, dtype)
    whole = StageSteps(net, graph, found, 4, how)
    each = units(graph)
    stages = RepeatedStages(net, graph, each, range(len(each)), [1, 4], how)
    firsts = [0, *itertools.accumulate(found.counts)]
    for stage in range(pp):
        step, blocks = whole.of(stage)
        own = stages.stage([*map(range, firsts[:-1], firsts[1:])][stage::pp])
        expected = sizes_of(step)
        for name, value in zip(expected._fields, own.sizes, strict=True):
            assert np.broadcast_to(value, 2)[1] == getattr(expected, name), name
        for size, following in itertools.product((0, 1, 4), HOWS):
            first, later = followed(step, blocks, following)
            taken = [
                max(each.passing + each.buffers + size * each.gradients for each in moments)
                for moments in (first, later, later[-1:])
            ]
            put_together = own.taken(following, functools.partial(operator.mul, size))
            assert [int(each[1]) for each in put_together] == taken, (stage, size, following)


def test_a_stage_of_one_block_computes_it_again_as_others_do() -> None:
    net = chain(4)
    graph = build(net, 4)
    how = settings("full", "fp32")
    of_one, of_two = (
        StageSteps(net, graph, cut(graph, pp, 1, "even", ()), 4, how).of(1)[0] for pp in (4, 2)
    )
    # A block keeps what comes into it, the last one as well what comes into the layer behind it.
    assert of_one.kept == 4 * 4 * D
    assert of_two.kept == 4 * 4 * D * 3


def test_a_block_is_computed_again_whole_though_others_repeat_within_it() -> None:
    layers = [LayerSpec("data", Input(tensor=(4, D)), ())]
    for i, j in itertools.product(range(2), range(3)):
        layers.append(LayerSpec(f"h/{i}/p/{j}/fc", InnerProduct(num_outputs=D), (layers[-1].name,)))
    net = NetSpec("nested", tuple(layers))
    graph = build(net, 4)
    steps = StageSteps(net, graph, cut(graph, 2, 1, "even", ()), 4, settings("full", "fp32"))
    # Of three products what comes into the first.
    assert steps.of(1)[0].kept == 4 * 4 * D


def test_blocks_that_are_named_are_computed_again_in_the_stages_that_have_them() -> None:
    net = chain(4)
    graph = build(net, 4)
    how = settings("full:h/1", "fp32")
    steps = StageSteps(net, graph, cut(graph, 4, 1, "even", ()), 4, how)
    # Of others what comes into three layers stays: D, and 2 D twice.
    assert steps.of(1)[0].kept == 4 * 4 * D
    assert steps.of(2)[0].kept == 4 * 4 * D * 5


def test_a_net_is_shortened_to_some_of_its_equal_blocks() -> None:
    whole = chain(30)
    found = shortened(whole)
    assert found.like is not None
    # Of the 30 the first has what is before it, and the last what is behind it.
    assert len(found.like) == 30
    assert len({*found.like}) == 2 + 8
    assert found.like[0] == 0
    assert found.like[-1] == 9
    short, long = (build(net, 4) for net in (found.net, whole))
    own, all_of_them = units(short), units(long)
    assert len(own) == 10
    for unit, like in zip(all_of_them, found.like, strict=True):
        layers = (
            [graph.nodes[i].layer for i in nodes]
            for graph, nodes in ((long, unit), (short, own[like]))
        )
        first, second = layers
        assert first == second
    assert longest_row(kinds_of(short, own)) == (1, 8)


def test_a_net_whose_blocks_read_the_same_is_not_shortened() -> None:
    net = paleo.load("gpt2")  # of which all read the mask, the second as what is before it
    assert shortened(net).like is None
    graph = build(net, 1)
    assert all(far_reads(graph, units(graph))[2:])
