"""One plan of a net of many equal blocks: found from a few of them, bit for bit as from all."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

import paleo
from paleo.net.graph import Graph, Node, build
from paleo.net.layers.dense import InnerProduct
from paleo.net.layers.pointwise import Activation
from paleo.net.layers.reshape import Input
from paleo.net.spec import LayerSpec, NetSpec
from paleo.step.memory.footprint import step_for, step_once
from paleo.step.mesh import Mesh
from paleo.step.meshed import Meshed, micro_batch_of
from paleo.step.parallelism.computations import sample_of
from paleo.step.part import Part, part_of
from paleo.step.recompute import find_recompute
from paleo.step.scenario import scenario
from paleo.step.shortened import LongGraph, Row, shortened
from paleo.step.stages import (
    block_names,
    found_homes,
    found_last_uses,
    found_likes,
    found_standing,
    found_starts,
)

D = 64


def chain(blocks: int, *, exit_of: int | None = None) -> NetSpec:
    """Return blocks of two products, of which one may be read by what is behind all of them."""
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
    if exit_of is not None:
        read = (f"h/{exit_of}/down",)
        layers.append(LayerSpec("exit", InnerProduct(num_outputs=10), read))
    return NetSpec("chain", tuple(layers))


#: Nets with settings: chunks, positions, experts, first blocks that differ, casts to fp8, blocks
#: that are computed again, a table that the head reads, and stages that are not even.
CASES: list[tuple[Any, dict[str, Any]]] = [
    (chain(24), {"workers": 8, "tp": 2, "pp": 2, "interleave": 3, "global_batch": 64}),
    (
        "gpt3_175b",
        {
            "workers": 256,
            "tp": 8,
            "pp": 4,
            "interleave": 2,
            "global_batch": 64,
            "sequence_parallel": True,
            "recompute": "full",
            "dtype": "bf16",
        },
    ),
    (
        "mixtral_8x7b",
        {
            "workers": 32,
            "tp": 2,
            "ep": 8,
            "pp": 2,
            "cp": 2,
            "zero": 3,
            "dtype": "bf16",
            "global_batch": 32,
            "optimizer": "adamw",
        },
    ),
    (
        "deepseek_v3",
        {
            "workers": 128,
            "ep": 16,
            "pp": 8,
            "dtype": "fp8",
            "zero": 1,
            "schedule": "dualpipe",
            "global_batch": 1024,
            "recompute": "selective",
        },
    ),
    (
        "bert_large",
        {
            "workers": 16,
            "tp": 2,
            "pp": 4,
            "stages": "balanced",
            "dtype": "mixed_bf16",
            "global_batch": 64,
            "schedule": "zero_bubble",
        },
    ),
]


def asked(net: Any, settings: dict[str, Any]) -> tuple[NetSpec, paleo.Plan, Mesh, int]:
    found = scenario(net, cluster="dgx_h100", **settings)
    plan = found.plan
    mesh = Mesh.of(settings["workers"], plan.tp, plan.cp, plan.ep, plan.pp, plan.order)
    return found.net, plan, mesh, settings["global_batch"]


def same_graph(one: Graph, other: Graph) -> None:
    """Check that all nodes are the same, and what is known of them."""
    assert len(one.nodes) == len(other.nodes)
    for node, expected in zip(one.nodes, other.nodes, strict=True):
        for each in fields(Node):
            assert getattr(node, each.name) == getattr(expected, each.name), node.name
    for what in (found_standing, found_likes, found_homes, found_last_uses, found_starts):
        assert list(one.once(what)) == list(other.once(what)), what.__name__
    for mode in ("full", "selective"):
        again = find_recompute(mode)
        assert again.regions(one) == again.regions(other)


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_few_blocks_say_what_all_of_them_do(name: Any, settings: dict[str, Any]) -> None:
    net, plan, mesh, batch = asked(name, settings)
    assert len(shortened(net).net.layers) < len(net.layers) / 2
    micro = micro_batch_of(net, plan, mesh, batch)
    few, whole = part_of(net, plan, mesh), Part(net, plan, mesh)
    found, expected = few.of(micro), whole.of(micro)
    assert isinstance(found.graph, LongGraph)
    same_graph(found.graph, expected.graph)
    assert found.seconds == expected.seconds
    specs = {spec.name: spec for spec in expected.net.layers}
    made = found.graph.net_of(found.net, range(len(found.graph.nodes))).layers
    assert {spec.name: spec for spec in made} == specs
    one, other = (Meshed(net, plan, mesh, part) for part in (few, whole))
    step, same = one.step(batch), other.step(batch)
    assert [piece.seconds for piece in step.pieces] == [piece.seconds for piece in same.pieces]
    assert step.exchanges == same.exchanges
    batches = one.batches(batch)
    assert one.memory(micro, batches) == other.memory(micro, batches)
    assert sample_of(net, plan, shortened(net)) == sample_of(net, plan)


def test_where_few_differ_all_are_priced(monkeypatch: pytest.MonkeyPatch) -> None:
    net, plan, mesh, _ = asked(*CASES[0])
    monkeypatch.setattr(Row, "is_even", lambda *_: False)
    part = part_of(net, plan, mesh)
    found, expected = part.of(4), Part(net, plan, mesh).of(4)
    assert not isinstance(found.graph, LongGraph)
    assert found.seconds == expected.seconds
    # So is it with other figures of devices and links.
    faster = replace(plan, device=paleo.find_device("B200"))
    assert part.under_plan(faster).of(4).seconds == Part(net, faster, mesh).of(4).seconds


def test_a_row_knows_whether_numbers_are_even() -> None:
    row = Row(4, 6, 10, ())
    values = [0.0, 0.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 5.0]
    assert row.is_even(values)
    assert row.all(values) == [0.0, 0.0, *[1.0, 2.0] * 13, 5.0]
    for place in range(2, 8):
        assert not row.is_even([*values[:place], 7.0, *values[place + 1 :]])


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("gpt3_175b", {"recompute": "full:transformer/h/50"}),  # a block is looked for
        ("gpt3_175b", {"framework": "pytorch"}),  # the host is ahead by more and more
        ("gemma2_9b", {}),  # every second block attends to a window
        ("resnet50_v1_5", {}),  # no blocks repeat
    ],
)
def test_all_blocks_are_priced_where_few_are_not_enough(
    name: str, settings: dict[str, Any]
) -> None:
    net, plan, mesh, _ = asked(name, {"workers": 8, "tp": 2, "global_batch": 8, **settings})
    assert type(part_of(net, plan, mesh)) is Part


@pytest.mark.parametrize(("place", "is_short"), [(3, True), (4, False), (24, False), (26, True)])
def test_a_block_that_is_read_far_behind_is_not_left_out(place: int, is_short: bool) -> None:
    # Of blocks 1 to 28 the fourth stands for 20 behind it.
    net = chain(30, exit_of=place)
    found = shortened(net)
    assert (found.like is not None) == is_short
    if is_short:
        graph = build(found.net)
        row = Row.of(graph, found)
        assert row
        same_graph(LongGraph.of(graph, row), build(net))


def test_blocks_have_their_names_in_order() -> None:
    assert block_names(build(chain(12))) == tuple(f"h/{i}" for i in range(12))
    assert block_names(build(chain(1))) == ()


@pytest.mark.parametrize("name", ["gpt2", "resnet50_v1_5", "bert_base"])
@pytest.mark.parametrize("batch", [1, 3])
def test_a_step_that_is_built_once_is_any_other(name: str, batch: int) -> None:
    settings: dict[str, Any] = {
        "optimizer": "adam",
        "optimizer_kernels": None,
        "loss": "none",
        "dtype": "mixed_bf16",
        "recompute": find_recompute("none"),
    }
    net = paleo.load(name)
    once, usual = step_once(net, batch, **settings), step_for(net, batch, **settings)
    assert once.schedule.points == usual.schedule.points
    assert once.sums() == usual.sums()
    assert once.of_micro_batch == usual.of_micro_batch
