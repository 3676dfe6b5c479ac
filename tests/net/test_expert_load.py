"""Experts whose loads differ, on several devices: the one with most rows, by hand."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import paleo
from paleo.core.kinds import Pass
from paleo.core.operations import GroupedMatMul
from paleo.net.division import divided, divided_by_experts
from paleo.net.expert_load import with_expert_load
from paleo.net.graph import Graph, Node
from paleo.net.layers.mixtures import Experts
from paleo.step.passes import keep_shape

#: Two texts of 32 tokens of 64 numbers, which go to 2 of 8 experts each.
N, T, H, K, E = 2, 32, 64, 2, 8
#: Shares of the experts where they fall as 1 / rank: 1, 1/2, ... 1/8 of 761/280.
FIRST = 280 / 761
OTHER = (1 - FIRST) / (E - 1)


def net_of(load: Any = 1.0, capacity: float | None = None) -> paleo.NetSpec:
    experts = {"type": "Experts", "num_experts": E, "use_bias": False, "load": load}
    dispatch: dict[str, Any] = {"type": "Dispatch", "parents": ["data", "chosen"]}
    if capacity is not None:
        dispatch |= {"capacity": capacity, "num_experts": E}
    layers = {
        "data": {"type": "Input", "parents": [], "tensor": [N, T, H]},
        "router": {
            "type": "InnerProduct", "parents": ["data"], "num_outputs": E, "axis": -1,
            "use_bias": False,
        },
        "chosen": {"type": "TopK", "parents": ["router"], "k": K},
        "dispatch": dispatch,
        "up": {**experts, "parents": ["dispatch"], "num_outputs": 4 * H},
        "act": {"type": "Activation", "parents": ["up"], "function": "relu"},
        "down": {**experts, "parents": ["act"], "num_outputs": H},
        "combine": {"type": "Combine", "parents": ["down", "chosen"]},
    }  # fmt: skip
    return paleo.loads(json.dumps({"name": "mixture", "layers": layers}))


def graph_of(net: paleo.NetSpec) -> Graph:
    return paleo.build(net, None, "bf16", keep_shape)


def node_of(net: paleo.NetSpec, name: str) -> tuple[Graph, Node]:
    graph = graph_of(net)
    return graph, next(node for node in graph.nodes if node.name == name)


def product_of(net: paleo.NetSpec, name: str, direction: Pass = Pass.FORWARD) -> GroupedMatMul:
    graph, node = node_of(net, name)
    (found,) = graph.operations(node, direction)
    assert isinstance(found, GroupedMatMul)
    return found


def sent(net: paleo.NetSpec, name: str) -> int:
    graph, node = node_of(net, name)
    (message,) = node.layer.messages(Pass.FORWARD, node.inputs, graph.element_size)
    return int(message.num_bytes)


def test_the_device_with_most_rows_has_the_expert_with_most_and_others_of_the_mean() -> None:
    net = divided_by_experts(net_of(), 4)  # two experts a device
    # As many tokens come from each of four devices: 4 x (280/761 + 1 x the mean of the others).
    factor = 4 * (FIRST + OTHER)
    rows = 128 * factor / N  # of 128 rows of a device, 64 a text
    assert rows == pytest.approx(117.3, abs=0.1)
    shapes = {node.name: node.output for node in graph_of(net).nodes}
    assert shapes["dispatch"] == (N, T, K, H)
    assert shapes["dispatch/all_to_all"] == (N, 118, H)
    assert shapes["up"] == (N, 118, 4 * H)
    assert shapes["down/all_to_all"] == (N, T, K, H)
    up = product_of(net, "up")
    whole = N * 118
    share = FIRST / (FIRST + OTHER)
    assert (up.rows, up.groups) == (whole, 2)
    assert up.loads == ((1, pytest.approx(whole * share)), (1, pytest.approx(whole * (1 - share))))
    # The message is as long as what the busiest gets, or gives back.
    assert sent(net, "dispatch/all_to_all") == 2 * whole * H
    assert sent(net, "down/all_to_all") == 2 * whole * H


def test_even_loads_are_as_they_were() -> None:
    net = divided_by_experts(net_of("even"), 4)
    assert product_of(net, "up").rows == N * T * K
    assert product_of(net, "up").groups == 2
    assert sent(net, "dispatch/all_to_all") == 2 * N * T * K * H


def test_with_a_capacity_all_devices_compute_as_much() -> None:
    # Each expert has 32 x 2 x 1.25 / 8 = 10 places of a text.
    for net in (net_of("even", 1.25), with_expert_load(net_of(1.0), capacity=1.25)):
        part = divided_by_experts(net, 4)
        shapes = {node.name: node.output for node in graph_of(part).nodes}
        assert shapes["dispatch/all_to_all"] == (N, E, 10, H)
        up = product_of(part, "up")
        assert (up.rows, up.groups, up.loads) == (N * E * 10, 2, ())


def test_loads_of_a_file_may_be_replaced() -> None:
    assert with_expert_load(net_of("even"), 1.0).layers == net_of(1.0).layers
    assert with_expert_load(net_of(1.0), "even").layers == net_of("even").layers
    assert with_expert_load(net_of()) == net_of()
    with pytest.raises(paleo.SettingError, match="expert_load: lenet5 has no layer of type Exp"):
        with_expert_load(paleo.load("lenet5"), 1.0)


def test_devices_that_divide_positions_too_gather_the_rows_that_came() -> None:
    net = divided(divided_by_experts(net_of(), 4), 2, sequence=True)
    shapes = {node.name: node.output for node in graph_of(net).nodes}
    rows = shapes["up"][1]
    assert 118 <= rows <= 120
    assert shapes["combine"][-1] == H
    assert all(shape[0] == N for shape in shapes.values())


def test_one_expert_a_device_is_the_one_with_most_rows() -> None:
    one, factor = Experts(num_experts=E, num_outputs=H, load=1.0).busiest(E)
    assert factor == pytest.approx(E * FIRST)
    assert one.num_experts_held == 1
    (work,) = one.replace(use_bias=False).operations(Pass.FORWARD, ((N, 10, H),), 2)
    assert isinstance(work, GroupedMatMul)
    assert work.loads == ((1, pytest.approx(N * 10)),)


@pytest.mark.parametrize(("experts", "devices"), [(64, 8), (256, 32)])
@pytest.mark.parametrize("exponent", [0.3, 1.0])
def test_it_is_the_mean_of_the_largest_sum_of_random_places(
    experts: int, devices: int, exponent: float
) -> None:
    shares = np.arange(1, experts + 1.0) ** -exponent
    shares /= shares.sum()
    random = np.random.default_rng(0)
    drawn = [random.permutation(shares).reshape(devices, -1).sum(axis=1).max() for _ in range(300)]
    _, factor = Experts(num_experts=experts, num_outputs=1, load=exponent).busiest(devices)
    assert factor == pytest.approx(devices * np.mean(drawn), rel=0.04)


def test_a_step_waits_for_the_device_with_most_rows() -> None:
    on: dict[str, Any] = {
        "cluster": "dgx_h100", "workers": 8, "ep": 8, "dtype": "bf16", "batch_size": 1,
    }  # fmt: skip
    loads: tuple[dict[str, Any], ...] = (
        {}, {"expert_load": 1.0}, {"expert_load": 1.0, "expert_capacity": 1.5},
    )  # fmt: skip
    even, uneven, padded = (
        paleo.simulate("mixtral_8x7b", **on, **given).to_dict()["runs"][0]["rows"][0]
        for given in loads
    )
    assert uneven["step_s"] > padded["step_s"] > even["step_s"]
    # Messages grow as rows do, but for their latency.
    factor = E * FIRST
    sends = [row["parts"]["expert_parallel"] for row in (uneven, even)]
    assert 0.8 * factor < sends[0] / sends[1] <= 1.02 * factor
    for row in (uneven, padded):
        assert sum(row["parts"].values()) == pytest.approx(row["step_s"])
        assert row["memory_bytes"] > even["memory_bytes"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"expert_load": 0}, "expert_load: expected even, or the exponent"),
        ({"expert_load": "odd"}, "expert_load: expected even, or the exponent"),
        ({"expert_capacity": 0}, "expert_capacity: expected a number above 0"),
        ({"expert_capacity": 1}, "expert_capacity: gpt2 has no layer of type Experts"),
    ],
)
def test_mistakes(given: dict[str, Any], said: str) -> None:
    with pytest.raises(paleo.PaleoError) as caught:
        paleo.simulate("gpt2", cluster="dgx_h100", workers=2, tp=2, **given)
    (mistake,) = caught.value.mistakes
    assert str(mistake).startswith(said)
