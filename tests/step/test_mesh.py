"""Meshes: who stands where, how nets are dealt out to stages, and what steps consist of."""

from __future__ import annotations

import bisect
import functools
import json
from dataclasses import replace
from typing import Any

import pytest

import paleo
from paleo.cli import cli
from paleo.cluster import find_cluster, find_device
from paleo.cluster.collectives import COLLECTIVES, Operation
from paleo.core.errors import PaleoError, SettingError
from paleo.net.generators import transformer
from paleo.net.graph import build
from paleo.step.mesh import Mesh
from paleo.step.meshed import Meshed
from paleo.step.scenario import scenario
from paleo.step.stages import cut
from paleo.studies.fitting import remedy
from paleo.studies.mesh_memory import mesh_memory
from paleo.studies.mesh_stages import meshed_of
from paleo.views.answers.mesh_memory import mesh_memory_answer

#: Nodes of 8 devices.
CLUSTER = find_cluster("dgx_a100")


def net(layers: int = 8, **sizes: Any) -> paleo.NetSpec:
    usual = {"hidden": 256, "heads": 8, "ffn": 1024, "vocab": 4096, "seq_len": 128}
    return transformer(layers=layers, **usual | sizes)


def meshed(devices: int, spec: paleo.NetSpec | None = None, **settings: Any) -> Meshed:
    usual: dict[str, Any] = {"cluster": "dgx_a100", "dtype": "bf16", "overlap": False}
    usual["loss"] = "none"
    found = scenario(spec or net(), **usual | settings)
    plan = found.plan
    mesh = Mesh.of(devices, plan.tp, plan.cp, plan.ep, plan.pp, plan.order)
    return Meshed(found.net, plan, mesh)


def sent(group: Any, num_bytes: float, operation: Operation) -> float:
    return float(COLLECTIVES["auto"].seconds_on(group, num_bytes, operation))


def test_kinds_stand_in_their_order() -> None:
    mesh = Mesh.of(64, tp=4, cp=2, pp=2)
    assert (mesh.dp, mesh.size, mesh.replicas) == (4, 64, 8)
    assert {kind: mesh.stride(kind) for kind in mesh.order} == {
        "tp": 1, "cp": 4, "ep": 8, "dp": 8, "pp": 32,
    }  # fmt: skip
    turned = Mesh.of(64, tp=4, cp=2, pp=2, order=("pp", "dp", "ep", "cp", "tp"))
    assert {kind: turned.stride(kind) for kind in ("pp", "dp", "cp", "tp")} == {
        "pp": 1, "dp": 2, "cp": 8, "tp": 16,
    }  # fmt: skip


def test_experts_are_shared_by_devices_with_other_data() -> None:
    mesh = Mesh.of(32, tp=2, ep=8)
    assert (mesh.dp, mesh.size) == (16, 32)
    (same,), (experts,) = (mesh.replicated(CLUSTER, experts=each) for each in (False, True))
    assert (same.workers, experts.workers) == (16, 2)


def test_neighbours_are_as_far_apart_as_the_tiers_they_cross() -> None:
    """With 4 devices a stage two stages stand in a node, and the next two in another."""
    mesh = Mesh.of(16, tp=4, pp=4)
    crossing = [
        float(mesh.neighbours(CLUSTER, "pp", first).levels[1].members) > 1 for first in range(3)
    ]
    assert crossing == [False, True, False]


@pytest.mark.parametrize(
    ("degrees", "said"),
    [
        ({"tp": 3}, "num_workers: 16 devices do not divide by tp 3"),
        ({"tp": 2, "pp": 3}, "num_workers: 16 devices do not divide by tp 2 x pp 3"),
        ({"ep": 3}, "ep: 16 shares of the data do not divide by ep 3"),
        ({"cp": 2, "ep": 32}, "ep: 8 shares of the data x cp 2 do not divide by ep 32"),
    ],
)
def test_devices_that_do_not_divide_are_said(degrees: dict[str, int], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        Mesh.of(16, **degrees)  # type: ignore[arg-type]


def bounds(stages: int, chunks: int, dealt: Any, layers: int = 8) -> list[list[int]]:
    """Return which blocks of a transformer each chunk has."""
    graph = build(net(layers), 1)
    seconds = [1.0 if node.type_name == "InnerProduct" else 0.0 for node in graph.nodes]
    found = cut(graph, stages, chunks, dealt, seconds)
    blocks: list[set[int]] = [set() for _ in range(stages * chunks)]
    for node in graph.nodes:
        if node.name.startswith("layers/"):
            blocks[bisect.bisect_right(found.bounds, node.index) - 1].add(
                int(node.name.split("/")[1])
            )
    assert [len(own) for own in blocks] == list(found.counts)
    return [sorted(own) for own in blocks]


def test_blocks_are_dealt_out_evenly() -> None:
    assert bounds(4, 1, "even") == [[0, 1], [2, 3], [4, 5], [6, 7]]
    # The first and the last, with what stands before and behind, have fewer.
    assert bounds(4, 1, "even", 10) == [[0, 1], [2, 3, 4], [5, 6, 7], [8, 9]]
    assert bounds(2, 1, (3, 5)) == [[0, 1, 2], [3, 4, 5, 6, 7]]
    assert bounds(2, 2, "even") == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_balanced_stages_give_room_to_the_head() -> None:
    """7 products a block, and a head that is as long as one: 57 in 2 stages are 28 and 29."""
    assert bounds(2, 1, "balanced") == [[0, 1, 2, 3], [4, 5, 6, 7]]
    graph = build(net(4), 1)
    seconds = [20.0 if node.name == "lm_head" else 1.0 for node in graph.nodes]
    found = cut(graph, 2, 1, "balanced", seconds)
    per_block = sum(node.name.startswith("layers/0/") for node in graph.nodes)
    # A block more before makes the first stage longer by a block, the second shorter.
    assert found.counts == (3, 1) if per_block < 20 + 3 else (2, 2)


@pytest.mark.parametrize(
    ("dealt", "stages", "said"),
    [
        ((3, 4), 2, "stages: .* has 8 blocks for 2 stages, got 3,4"),
        ((2, 2, 4), 2, "stages: .* has 8 blocks for 2 stages, got 2,2,4"),
        ("even", 9, "pp: .* has 8 blocks, too few for 9 stages"),
    ],
)
def test_stages_that_do_not_fit_are_said(dealt: Any, stages: int, said: str) -> None:
    with pytest.raises(SettingError, match=said):
        cut(build(net(), 1), stages, 1, dealt, [])


def test_a_net_without_blocks_is_cut_where_one_tensor_goes_on() -> None:
    """Not within the two branches of an addition."""
    product = {"type": "InnerProduct", "num_outputs": 8}
    layers: dict[str, Any] = {
        "in": {"type": "Input", "parents": [], "tensor": [1, 8]},
        "a": {**product, "parents": ["in"]},
        "b": {**product, "parents": ["a"]},
        "c": {**product, "parents": ["b"]},
        "sum": {"type": "Elementwise", "parents": ["a", "c"]},
        "d": {**product, "parents": ["sum"]},
    }
    graph = build(paleo.loads(json.dumps({"name": "net", "layers": layers})), 1)
    found = cut(graph, 2, 1, "balanced", [0, 1, 1, 1, 0, 1])
    first = graph.nodes[found.bounds[1]].name
    assert first in ("b", "d")
    assert [graph.nodes[i].name for i in found.passed(graph)[1]] == [
        {"b": "a", "d": "sum"}[first]
    ]  # fmt: skip


def parts(step: Any) -> dict[str, float]:
    return {piece.name: float(piece.seconds) for piece in step.under("auto")}


def test_parts_add_up_to_the_step() -> None:
    (row,) = _json()["runs"][0]["rows"]
    assert sum(row["parts"].values()) == pytest.approx(row["step_s"])
    assert row["bubble_s"] == row["parts"]["bubble"]
    messages = ("tensor_parallel", "pipeline_parallel", "data_parallel", "parameters_gathered")
    exposed = sum(row["parts"][name] for name in messages)
    assert row["exposed_communication_s"] == pytest.approx(exposed)


def test_a_device_alone_takes_what_data_parallelism_says() -> None:
    """A mesh of one device with one micro-batch is a worker alone."""
    usual: Any = {"device": "A100_SXM_80GB", "dtype": "bf16", "batch_size": 4}
    alone = paleo.simulate(net(), workers=1, **usual).runs[0].rows[0]
    found = paleo.simulate(net(), workers=1, micro_batch=4, **usual).runs[0]
    assert found.parallel == "mesh"
    for name in ("forward", "backward", "update"):
        assert found.rows[0][name] == pytest.approx(float(alone[name]))


def test_tensor_parallel_messages_are_those_of_a_group() -> None:
    """Four all-reduces of b s h a block and micro-batch, one for words; the head's input once."""
    b, s, h, blocks = 2, 128, 256, 8
    found = parts(meshed(8, tp=8, micro_batch=b).step(2 * b))
    one = sent(CLUSTER.group(8), 2 * b * s * h, Operation.ALL_REDUCE)
    assert found["tensor_parallel"] == pytest.approx(2 * (4 * blocks + 2) * one)


def test_a_loss_of_divided_words_is_summed_over_devices() -> None:
    """A number for each sample; scores are never gathered."""
    plain, judged = (
        parts(meshed(8, tp=8, micro_batch=2, loss=loss).step(4))
        for loss in ("none", "cross_entropy")
    )
    one = sent(CLUSTER.group(8), 2 * 2, Operation.ALL_REDUCE)
    assert judged["tensor_parallel"] - plain["tensor_parallel"] == pytest.approx(2 * one)


def test_what_is_computed_again_sends_again() -> None:
    b, blocks = 2, 8
    plain, again = (
        parts(meshed(8, tp=8, micro_batch=b, recompute=mode).step(b)) for mode in ("none", "full")
    )
    one = sent(CLUSTER.group(8), 2 * b * 128 * 256, Operation.ALL_REDUCE)
    more = again["tensor_parallel"] - plain["tensor_parallel"]
    assert more == pytest.approx(2 * blocks * one)


def test_a_pipeline_waits_as_its_formula_says() -> None:
    """Stages of equal blocks, but for words and head: bubble of the sum of all but the slowest."""
    pipe = meshed(4, pp=4, micro_batch=1)
    _, stages = pipe.stages(1)
    seconds = [float(stage.work.seconds) for stage in stages]
    waited = parts(pipe.step(8))["bubble"]
    # The last stage, with the head, is the slowest: it waits for the others' forward passes first,
    # and they for its last backward pass.
    assert seconds[-1] == max(seconds)
    assert waited == pytest.approx(sum(seconds[:-1]))
    # Between stages N x S x H goes once each way; a stage in the middle has two boundaries.
    one = sent(CLUSTER.group(2), 2 * 128 * 256, Operation.POINT_TO_POINT)
    assert [float(stage.passed) for stage in stages] == pytest.approx([one / 2, one, one, one / 2])


def test_messages_between_stages_are_shared_by_those_that_have_all() -> None:
    """Each of t devices sends its t-th, and the next stage gathers (arXiv:2104.04473, 4.1)."""
    pipe = meshed(8, tp=4, pp=2, micro_batch=1)
    _, stages = pipe.stages(1)
    size = 2 * 128 * 256
    one = sent(CLUSTER.group(2, 4), size / 4, Operation.POINT_TO_POINT)
    gathered = sent(CLUSTER.group(4), size, Operation.ALL_GATHER)
    assert float(stages[0].passed) == pytest.approx((one + gathered) / 2)


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_shares_of_the_data_exchange_what_zero_says(zero: int) -> None:
    """arXiv:1910.02054, section 7: all-reduce; or reduce-scatter and all-gather, by micro-batch."""
    turns = 4
    found = meshed(8, micro_batch=1, zero=zero)
    step = parts(found.step(8 * turns))
    size = 2 * build(net(), 1).num_params
    group = CLUSTER.group(8)
    reduce, scatter, gather = (
        sent(group, size, operation)
        for operation in (Operation.ALL_REDUCE, Operation.REDUCE_SCATTER, Operation.ALL_GATHER)
    )
    blocks = 8
    part = {
        operation: blocks * sent(group, size, operation) / blocks
        for operation in (Operation.ALL_GATHER, Operation.REDUCE_SCATTER)
    }
    exchanged = {0: reduce, 1: scatter + gather, 2: turns * scatter + gather, 3: 0.0}[zero]
    assert step["data_parallel"] == pytest.approx(exchanged)
    by_turn = 2 * part[Operation.ALL_GATHER] + part[Operation.REDUCE_SCATTER]
    assert step["parameters_gathered"] == pytest.approx(turns * by_turn * (zero == 3))


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_groups_divide_among_them_and_sum_across(zero: int) -> None:
    """16 devices in 2 nodes: a reduce-scatter within, an all-reduce of an eighth, a gathering."""
    turns, size = 4, 2 * build(net(), 1).num_params
    found = meshed(16, micro_batch=1, zero=zero, shard_degree=8)
    step = parts(found.step(16 * turns))
    inside, across = CLUSTER.group(8), CLUSTER.group(2, 8)
    scatter, gather = (
        sent(inside, size, operation)
        for operation in (Operation.REDUCE_SCATTER, Operation.ALL_GATHER)
    )
    summed = sent(across, size / 8, Operation.ALL_REDUCE)  # once a step
    exchanged = {1: scatter + gather, 2: turns * scatter + gather, 3: 0.0}[zero]
    assert step["data_parallel"] == pytest.approx(exchanged + summed)
    gathered = turns * (2 * gather + scatter) * (zero == 3)
    assert step["parameters_gathered"] == pytest.approx(gathered)


def test_groups_hold_a_share_of_a_group() -> None:
    """Of 16 devices each of a group of 4 has a quarter, and updates it.

    Once a micro-batch has come back all gradients are there.
    """
    whole, shared, grouped = (
        meshed(16, micro_batch=1, optimizer="adam", zero=3, shard_degree=shards).memory(1, 2)[0]
        for shards in (1, None, 4)
    )
    for name in ("weights", "gradients", "optimizer_state"):
        assert getattr(shared, name) == getattr(whole, name) // 16
        assert getattr(grouped, name) == getattr(whole, name) // 4
    found = meshed(16, micro_batch=1, zero=1, shard_degree=4)
    _, (stage,) = found.stages(1)
    params = stage.num_params // 4
    assert found.updated(stage)[0] == found.plan.update_time(params, stage.num_tensors)


def test_groups_that_share_experts_divide_what_they_have() -> None:
    """16 devices, experts 4 ways: in a group of 8 are 2 with the same; in one of 4 none is."""
    spec = paleo.load("mixtral_8x7b")
    for shards, same in ((8, 2), (4, 1)):
        found = meshed(16, spec, ep=4, micro_batch=1, zero=3, shard_degree=shards)
        _, (stage,) = found.stages(1)
        (memory,) = found.memory(1, 1)
        others = stage.num_params - stage.experts
        wanted = 2 * (others / shards + stage.experts / same)
        assert memory.weights == pytest.approx(wanted, rel=1e-6)
        replicas = found._replicas(stage, experts=True)
        assert [group.group.workers for group in replicas.groups] == ([2, 2] if same > 1 else [4])
        assert replicas.shares == same


def test_what_is_summed_across_groups_goes_on_beside_the_next() -> None:
    """Of n messages of g and h beside c: the last shows whole, of others the longer of both."""
    found = meshed(8, micro_batch=1, zero=3, overlap=True)
    assert found._exposed(2.0, 3.0, 5, 1.0) == 3.0
    assert found._exposed(2.0, 3.0, 5, 4.0) == 6.0 + 4 * 1.0
    assert meshed(8, micro_batch=1, zero=3)._exposed(2.0, 3.0, 5, 4.0) == 30.0


def test_what_overlaps_shows_only_what_is_longer() -> None:
    """Of n messages of g beside as many computations of c: g + (n - 1) max(g - c, 0)."""
    found = meshed(8, micro_batch=1, zero=3, overlap=True)
    assert found._exposed(2.0, 3.0, 5) == 2.0
    assert found._exposed(5.0, 3.0, 5) == 5.0 + 4 * 2.0
    assert meshed(8, micro_batch=1, zero=3)._exposed(2.0, 3.0, 5) == 10.0


def test_experts_and_other_parameters_are_exchanged_apart() -> None:
    """Those of experts by as many fewer devices as share experts."""
    spec = paleo.load("mixtral_8x7b")
    found = meshed(16, spec, ep=8, micro_batch=1)
    _, (stage,) = found.stages(1)
    experts = 32 * 3 * 14336 * 4096  # one of eight
    assert stage.experts == experts
    others = stage.num_params - experts
    wanted = sent(CLUSTER.group(16), 2 * others, Operation.ALL_REDUCE)
    wanted += sent(CLUSTER.group(2, 8), 2 * experts, Operation.ALL_REDUCE)
    assert float(found.exchanged(stage, 1)) == pytest.approx(wanted)


def test_memory_is_that_of_stages_and_their_micro_batches() -> None:
    """Adam in mixed precision: 6 bytes of weights, 4 of gradients, 8 of state for a parameter."""
    usual: Any = {"pp": 4, "dtype": "mixed_bf16", "optimizer": "adam"}
    found = meshed(4, micro_batch=4, **usual)
    _, stages = found.stages(4)
    for stage, own in zip(stages, found.memory(4, 8), strict=True):
        params = stage.num_params
        assert (own.weights, own.gradients, own.optimizer_state) == (
            6 * params, 4 * params, 8 * params,
        )  # fmt: skip
    # A stage in the middle keeps what comes into each of its two blocks, of p - s micro-batches.
    kept = 2 * 2 * 128 * 256
    memory = meshed(4, micro_batch=1, recompute="full", **usual).memory(1, 8)
    assert memory[1].kept == memory[1].activations == 3 * kept
    assert memory[2].kept == memory[2].activations == 2 * kept


@pytest.mark.parametrize(
    ("zero", "divided"),
    [
        (0, ()),
        (1, ("optimizer_state",)),
        (2, ("optimizer_state", "gradients")),
        (3, ("optimizer_state", "gradients", "weights")),
    ],
)
def test_zero_divides_state_gradients_and_weights(zero: int, divided: tuple[str, ...]) -> None:
    whole, shared = (
        meshed(8, micro_batch=1, zero=stage, optimizer="adam").memory(1, 2)[0]
        for stage in (0, zero)
    )
    for name in ("weights", "gradients", "optimizer_state"):
        ways = 8 if name in divided else 1
        # Beside parameters that stay gathered there is the share that is updated.
        beside = whole.weights // 8 if zero == 2 and name == "weights" else 0
        assert getattr(shared, name) == getattr(whole, name) // ways + beside


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "tp=0": ({"tp": 0}, "tp: expected a whole number from 1"),
    "zero=4": ({"zero": 4}, "zero: expected 0, 1, 2 or 3, got 4"),
    "order": ({"tp": 2, "order": "tp,pp"}, "order: expected each of tp, cp, ep, dp, pp once"),
    "stages": ({"pp": 2, "stages": "much"}, "stages: expected even, balanced, or blocks"),
    "schedule": ({"pp": 2, "schedule": "gpip"}, "unknown pipeline schedule 'gpip'.*gpipe"),
    "global": ({"tp": 2, "global_batch": 3}, "global_batch: 3 samples do not divide among 4"),
    "micro": ({"tp": 2, "batch_size": 4, "micro_batch": 3}, "micro_batch: 4 samples .* by 3"),
    "interleave": ({"interleave": 2}, "interleave: one stage has no chunks: give --pp"),
    "gpipe": (
        {"pp": 2, "schedule": "gpipe", "interleave": 2},
        "interleave: gpipe has no chunks of stages",
    ),
    "shards": ({"shard_degree": 4}, "shard_degree: nothing is divided: give --zero, too"),
    "groups": (
        {"zero": 3, "shard_degree": 3},
        "shard_degree: 8 devices with the same layers do not divide into groups of 3",
    ),
    "no groups": ({"zero": 3, "shard_degree": 0}, "shard_degree: expected a whole number from 1"),
    "heads": ({"tp": 8, "net": {"heads": 4}}, "tp: 4 heads of .* do not divide 8 ways"),
}


@pytest.mark.parametrize("name", list(MISTAKES))
def test_mistakes_are_said_in_a_line(name: str) -> None:
    given, said = MISTAKES[name]
    settings = dict(given)
    spec = net(**settings.pop("net", {}))
    usual: Any = {"cluster": "dgx_a100", "workers": 8, "dtype": "bf16"}
    with pytest.raises(PaleoError, match=said) as caught:
        paleo.simulate(spec, **usual | settings)
    assert "\n" not in str(caught.value)


def test_mistakes_of_a_mesh_are_said_at_once() -> None:
    settings: Any = {"cluster": "dgx_a100", "workers": 8, "interleave": 2, "shard_degree": 3}
    with pytest.raises(PaleoError) as caught:
        paleo.simulate(net(), dtype="bf16", **settings)
    keys = [line.partition(":")[0] for line in str(caught.value).splitlines()]
    assert keys == ["interleave", "shard_degree", "shard_degree"]
    with pytest.raises(PaleoError, match="groups of 6 devices, and of ep 4 which share experts"):
        mesh_memory("mixtral_8x7b", cluster="dgx_a100", workers=24, ep=4, zero=1, shard_degree=6)
    with pytest.raises(PaleoError, match="interleave: one stage has no chunks"):
        mesh_memory(net(), cluster="dgx_a100", workers=8, interleave=2)


def test_a_timeline_adds_up_to_the_step() -> None:
    drawn = paleo.timeline(
        net(), cluster="dgx_a100", workers=8, tp=2, pp=4, dtype="bf16", batch_size=8
    )
    assert len(drawn.workers) == 4
    for stage in range(4):
        own = [event for event in drawn.events if event.worker == stage and event.lane == 0]
        assert sum(event.seconds for event in own) == pytest.approx(drawn.seconds)
        names = [event.name for event in own]
        assert [f"forward {i}" in names and f"backward {i}" in names for i in range(8)] == 8 * [
            True
        ]


@functools.cache
def _json() -> dict[str, Any]:
    settings: Any = {"cluster": "dgx_a100", "workers": 16, "tp": 2, "pp": 2, "dtype": "bf16"}
    return paleo.simulate(net(), batch_size=4, **settings).to_dict()


def test_a_row_of_json_has_the_degrees_and_what_a_reader_asks_for() -> None:
    (run,) = _json()["runs"]
    (row,) = run["rows"]
    assert run["parallel"] == "mesh"
    assert {kind: row[kind] for kind in ("dp", "tp", "pp", "cp", "ep")} == {
        "dp": 4, "tp": 2, "pp": 2, "cp": 1, "ep": 1,
    }  # fmt: skip
    needed = {
        "step_s", "parts", "bubble_s", "exposed_communication_s", "tokens_per_s", "mfu",
        "memory_bytes", "fits",
    }  # fmt: skip
    assert needed <= row.keys()
    assert row["tokens_per_s"] == pytest.approx(16 * 128 / row["step_s"])
    assert row["fits"] is True


def test_settings_that_make_a_step_fit_are_found() -> None:
    """On a device that holds the weights of a stage, but not the optimizer's state as well."""
    params = build(net(), 1).num_params
    device = find_device("A100_SXM_80GB")
    figure = replace(device.figures["memory_capacity"], value=float(2 * params * 2.5))
    small = replace(device, figures={**device.figures, "memory_capacity": figure})
    settings: Any = {"device": small, "dtype": "bf16", "optimizer": "adam", "workers": 8}
    (run,) = paleo.simulate(net(), batch_size=1, micro_batch=1, **settings).runs
    (row,) = run.rows
    assert row.to_dict()["fits"] is False
    found = remedy(meshed_of(run, row), row.batch_size)
    assert found is not None
    # 2 bytes of weights, 2 of gradients and 4 of state for a parameter; activations beside.
    assert found.settings["zero"] in (1, 3)
    assert found.memory <= small.memory_capacity  # type: ignore[operator]
    again = paleo.simulate(net(), batch_size=1, micro_batch=1, **settings, **found.settings)
    (there,) = again.runs[0].rows
    assert there.to_dict()["step_s"] == pytest.approx(found.seconds)
    assert found.longer == pytest.approx(found.seconds / row.to_dict()["step_s"] - 1)
    # The memory of the same step says it, too; of one that fits nothing would.
    on: Any = {"batch_size": 1, "micro_batch": 1, **settings}
    (memory,) = mesh_memory(net(), **on)
    assert memory.remedy == found
    assert mesh_memory_answer([memory])[-1].startswith(f"With {found.options} it needs ")
    assert mesh_memory(net(), **on, **found.settings)[0].remedy is None


@pytest.mark.parametrize(("zero", "weights", "gradients", "state"), [
    (0, 4 + 2, 4, 8), (1, 4 / 8 + 2, 4, 8 / 8), (2, 4 / 8 + 2, 4 / 8, 8 / 8),
])  # fmt: skip
def test_in_mixed_precision_zero_divides_parameters_of_which_layers_read_halves(
    zero: int, weights: float, gradients: float, state: float
) -> None:
    """Bytes of a parameter on one of eight: fp32 of it, of its gradient and of Adam's moments."""
    found = meshed(8, micro_batch=8, zero=zero, dtype="mixed_bf16", optimizer="adam")
    _, (stage,) = found.stages(8)
    (memory,) = found.memory(8, 2)
    of_each = (memory.weights, memory.gradients, memory.optimizer_state)
    for size, expected in zip(of_each, (weights, gradients, state), strict=True):
        assert size == pytest.approx(expected * stage.num_params, rel=1e-3)


def test_a_loss_is_summed_over_positions_and_over_words() -> None:
    """Where both are divided it is reduced twice: each exchange has a name of its own."""
    found = meshed(4, tp=2, cp=2, micro_batch=1, loss="fused")
    names = [spec.name for spec in found.part.net.layers]
    assert len(set(names)) == len(names)
    assert {"loss/all_reduce", "loss/tensor_all_reduce"} <= set(names)


def test_experts_are_divided_among_those_that_have_the_same() -> None:
    """16 devices that share experts 8 ways: 2 have the same, which divide them with ZeRO 3."""
    found = meshed(16, paleo.load("mixtral_8x7b"), ep=8, micro_batch=1, zero=3)
    _, (stage,) = found.stages(1)
    (memory,) = found.memory(1, 1)
    others = stage.num_params - stage.experts
    assert memory.weights == pytest.approx(2 * (others / 16 + stage.experts / 2), rel=1e-6)


def test_the_memory_of_a_mesh_by_its_command() -> None:
    settings: Any = {"cluster": "dgx_a100", "workers": 8, "tp": 2, "pp": 2, "dtype": "bf16"}
    (found,) = mesh_memory(net(), batch_size=4, **settings)
    assert (found.mesh.dp, found.global_batch, found.micro_batch) == (2, 8, 1)
    assert [stage.stage for stage in found.stages] == [0, 1]
    values = found.to_dict()
    assert values["memory_bytes"] == max(stage["total_bytes"] for stage in values["stages"])
    parts = ("weights", "gradients", "optimizer_state", "activations", "passing", "slack")
    for stage in values["stages"]:
        assert sum(stage[f"{part}_bytes"] for part in parts) == stage["total_bytes"]
    simulated = paleo.simulate(net(), batch_size=4, **settings).runs[0].rows[0].to_dict()
    assert simulated["memory_bytes"] == values["memory_bytes"]


def test_the_command_says_the_fullest_stage(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["memory", "gpt2", "--cluster=dgx_h100", "--num_workers=4", "--pp=4"]
    cli.main([*arguments, "--dtype=bf16", "--batch_size=4"], standalone_mode=False)
    out = capsys.readouterr().out
    assert "of each of 4 H100 SXM, stage 0 is the fullest" in out.replace("\n", " ")
    assert out.count("\n    ") >= 4


def test_the_command_takes_the_length_of_sequences(capsys: pytest.CaptureFixture[str]) -> None:
    """Activations of fused attention grow with it, and no note says that it was not given."""
    kept = []
    for length in (256, 512):
        arguments = ["memory", "llama3_8b", "--tp=8", "--cluster=dgx_h100", "--num_workers=8"]
        options = ["--dtype=bf16", "--batch_size=1", f"--seq_len={length}", "--format=json"]
        cli.main([*arguments, *options], standalone_mode=False)
        (found,) = json.loads(capsys.readouterr().out)["nets"]
        kept.append(found["stages"][0]["activations_bytes"])
        assert not any("--seq_len" in note for note in found["notes"])
    assert kept[1] == pytest.approx(2 * kept[0], rel=0.01)
