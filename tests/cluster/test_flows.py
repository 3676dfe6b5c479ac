"""Flows that share links fairly, by hand; and the closed forms of collectives against them."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import paleo
from paleo.cluster.collectives import COLLECTIVES, Operation, Round
from paleo.cluster.figures import Figure
from paleo.cluster.flows import (
    Flow,
    Link,
    Placement,
    fair_rates,
    seconds_of_flows,
    seconds_together,
)
from paleo.cluster.network import Network
from paleo.cluster.topology import Cluster, Tier
from paleo.core.errors import SettingError

A, B, C = (Link(0, False, number, "out") for number in range(3))
GIGA = 10**9


def network(rate: float, latency: float = 0.0) -> Network:
    figures = {
        "bandwidth": Figure(rate, "bytes/s", "here"),
        "latency": Figure(latency, "s", "here"),
    }
    return Network("here", "here", figures)


def cluster(*tiers: tuple[int, int, float], latency: float = 0.0) -> Cluster:
    """Return a cluster of tiers, each as how many members, links of each, and bytes/s of a link."""
    made = tuple(
        Tier(f"tier{i}", network(rate, latency), size, links)
        for i, (size, links, rate) in enumerate(tiers)
    )
    return Cluster("made up", "", paleo.find_device("K40"), made)


def test_the_example_of_a_textbook() -> None:
    # Two flows share A with capacity 1, the second also B with capacity 2, where a third has the
    # rest: 1/2, 1/2, 3/2.
    flows = [Flow(1, (A,)), Flow(1, (A, B)), Flow(1, (B,))]
    assert fair_rates(flows, {A: 1.0, B: 2.0}) == [0.5, 0.5, 1.5]


def test_who_has_arrived_leaves_its_share_to_others() -> None:
    # Both have 1/2 of the link until the first of 1 byte is there at 2; the second has 2 left.
    assert seconds_of_flows([Flow(1, (A,)), Flow(3, (A,))], {A: 1.0}) == pytest.approx(4)
    # The slowest latency counts once; a message that crosses no link takes nothing.
    assert seconds_of_flows([Flow(1, (A,), 5.0), Flow(1, (B,), 2.0)], {A: 1.0, B: 1.0}) == 6
    assert seconds_of_flows([Flow(7, ())], {}) == 0


LINKS = (A, B, C)


@given(
    st.lists(st.sets(st.sampled_from(LINKS), min_size=1), min_size=1, max_size=12),
    st.lists(st.floats(0.1, 100), min_size=3, max_size=3),
)
def test_rates_are_fair(crossed: list[set[Link]], rates: list[float]) -> None:
    flows = [Flow(1.0, tuple(sorted(links))) for links in crossed]
    capacities = dict(zip(LINKS, rates, strict=True))
    found = fair_rates(flows, capacities)
    used = {
        link: sum(rate for rate, flow in zip(found, flows, strict=True) if link in flow.links)
        for link in LINKS
    }
    assert all(used[link] <= capacities[link] * (1 + 1e-9) for link in LINKS)
    # Each has a link that is full, on which none is quicker: more would be another's loss.
    for rate, flow in zip(found, flows, strict=True):
        assert any(
            used[link] >= capacities[link] * (1 - 1e-9)
            and rate
            >= (1 - 1e-9)
            * max(other for other, one in zip(found, flows, strict=True) if link in one.links)
            for link in flow.links
        )


def test_a_message_crosses_the_links_of_both_ends() -> None:
    # 4 devices a node with 2 cards: two devices that send at once have a card each, four share.
    placed = Placement(cluster((4, 1, 8e9), (2, 2, 1e9), latency=1e-6), range(8))

    def seconds(*pairs: tuple[int, int]) -> float:
        return placed.seconds([Round(pairs)], GIGA)

    assert seconds((0, 1)) == pytest.approx(1e-6 + 1 / 8)
    assert seconds((0, 4)) == pytest.approx(1e-6 + 1)
    assert seconds((0, 4), (1, 5)) == pytest.approx(1e-6 + 1)
    assert seconds((0, 4), (1, 5), (2, 6), (3, 7)) == pytest.approx(1e-6 + 2)
    # There and back are two directions of the links.
    assert seconds((0, 4), (4, 0)) == pytest.approx(1e-6 + 1)
    assert placed.seconds([Round(()), Round(((0, 1),))], GIGA) == pytest.approx(1e-6 + 1 / 8)


def test_devices_are_of_the_cluster_and_of_one_worker_each() -> None:
    pair = cluster((2, 1, 1e9))
    with pytest.raises(SettingError, match="made up has those from 0 to 1"):
        Placement(pair, [0, 2])
    with pytest.raises(SettingError, match="one device cannot be that of two workers"):
        Placement(pair, [1, 1])
    with pytest.raises(SettingError, match="not to a switch that sums"):
        Placement(pair, [0, 1]).seconds(COLLECTIVES["in_network"].rounds(2), 1)


# Closed forms

RATES = st.floats(1e9, 1e12)
LATENCIES = st.floats(0, 1e-4)


@st.composite
def clusters(draw: Any, sizes: tuple[int, ...] = (1, 2, 3, 4, 5), tiers: int = 3) -> Cluster:
    """Return switches of up to three tiers, of 20 devices at most; members have a link or more."""
    made, inner = [], 1
    for _ in range(draw(st.integers(1, tiers))):
        size = draw(st.sampled_from([size for size in sizes if size * inner <= 20]))
        # Devices that share cards evenly: one for all, one for each, or some for each.
        links = draw(st.sampled_from(sorted({1, inner, 2 * inner})))
        made.append((size, links, draw(RATES)))
        inner *= size
    return cluster(*made)


def closed_and_simulated(
    where: Cluster, scheme: str, operation: Operation = Operation.ALL_REDUCE
) -> tuple[float, float]:
    """Return the seconds of a gigabyte among all devices by the formula, and by flows."""
    collective, group = COLLECTIVES[scheme], where.group(where.size)
    rounds = collective.rounds_on(group, operation)
    simulated = Placement(where, range(where.size)).seconds(rounds, GIGA)
    return float(collective.seconds_on(group, GIGA, operation)), simulated


@given(clusters(), st.sampled_from(["ring", "hierarchical"]))
def test_rings_on_full_tiers_take_what_their_formulas_say(where: Cluster, scheme: str) -> None:
    for operation in (
        Operation.ALL_REDUCE,
        Operation.REDUCE_SCATTER,
        Operation.ALL_GATHER,
    ):
        closed, simulated = closed_and_simulated(where, scheme, operation)
        assert closed == pytest.approx(simulated, rel=1e-9)


@given(
    clusters(sizes=(1, 2, 4)),
    st.sampled_from(["halving_doubling", "recursive_doubling", "ButterflyAllReduce"]),
)
def test_swaps_on_full_tiers_of_powers_of_two_do(where: Cluster, scheme: str) -> None:
    closed, simulated = closed_and_simulated(where, scheme)
    assert closed == pytest.approx(simulated, rel=1e-9)


@given(clusters(sizes=(1, 2, 4)), st.sampled_from(["TreeAllReduce", "OneToAll"]))
def test_so_do_the_schemes_of_2017_in_which_one_sends_at_a_time(
    where: Cluster, scheme: str
) -> None:
    closed, simulated = closed_and_simulated(where, scheme)
    assert closed == pytest.approx(simulated, rel=1e-9)


@given(clusters(tiers=1), st.sampled_from(sorted(COLLECTIVES["auto"].operations, key=str)))
def test_on_one_tier_all_schemes_do_all_that_they_can(where: Cluster, operation: Operation) -> None:
    for scheme in ("ring", "sharded_server", "pairwise", "hierarchical", "TreeAllReduce"):
        if operation not in COLLECTIVES[scheme].operations:
            continue
        closed, simulated = closed_and_simulated(where, scheme, operation)
        if scheme == "ring" and operation is Operation.BROADCAST:
            # Pieces follow one another; one after another they take each hop's time.
            simulated /= max(where.size - 1, 1)
        assert closed == pytest.approx(simulated, rel=1e-9)


@given(clusters(), st.sampled_from(["sharded_server", "pairwise"]))
def test_all_at_once_is_a_bound_for_rounds_one_by_one(where: Cluster, scheme: str) -> None:
    # Some rounds are within nodes and leave the links between them idle.
    operation = COLLECTIVES[scheme].operations[0]
    closed, simulated = closed_and_simulated(where, scheme, operation)
    assert closed <= simulated * (1 + 1e-9)
    workers = where.size
    at_once = [
        flow
        for one in COLLECTIVES[scheme].rounds_on(where.group(workers), operation)
        for flow in Placement(where, range(workers)).flows(one, GIGA)
    ]
    capacities = {}
    for flow in at_once:
        for link in flow.links:
            tier = where.tiers[link.tier]
            inner = math.prod(t.size for t in where.tiers[: link.tier])
            links = tier.links_of(tier.size)
            share = max(links / inner, 1) if link.of_device else links
            capacities[link] = share * tier.network.bandwidth
    loads = {
        link: sum(flow.num_bytes for flow in at_once if link in flow.links) for link in capacities
    }
    slowest = max((loads[link] / capacities[link] for link in loads), default=0)
    assert closed == pytest.approx(slowest, rel=1e-9)


@given(st.integers(1, 6), st.integers(1, 6), RATES, RATES, LATENCIES)
def test_latencies_of_a_ring_are_those_along_it(
    devices: int, nodes: int, inside: float, between: float, latency: float
) -> None:
    """In the formula a message waits for the hops along the ring; rounds wait for the slowest."""
    where = cluster((devices, 1, inside), (nodes, 1, between), latency=latency)
    closed, simulated = closed_and_simulated(where, "ring")
    assert closed == pytest.approx(simulated, rel=1e-9)  # where both tiers have the same


@given(
    st.integers(2, 8), st.integers(1, 3), st.integers(1, 7), st.sampled_from([1, 8]), RATES, RATES
)
def test_rings_leave_nodes_that_are_not_full_by_their_own_cards(
    devices: int, full: int, last: int, cards: int, inside: float, between: float
) -> None:
    """Cards are of the devices that are nearest to them: of few devices, few."""
    last = min(last, devices)
    where = cluster((devices, 1, inside), (full + 1, min(cards, devices), between))
    workers = full * devices + last
    group, ring = where.group(workers), COLLECTIVES["ring"]
    assert group.levels[1].links == min(cards, devices)
    assert group.levels[1].last_links == min(cards, devices, last)
    (phase,) = ring.phases(group)
    assert sum(move.steps for move in phase.moves) == 2 * (workers - 1)  # as often as one hands on
    closed = ring.seconds_on(group, GIGA)
    simulated = Placement(where, range(workers)).seconds(ring.rounds_on(group), GIGA)
    # As many rings as a full node has devices may leave the last one unevenly.
    uneven = -(-devices // last) * last / devices
    assert closed * (1 - 1e-9) <= simulated <= closed * uneven * (1 + 1e-9)


# Who shares a link


@given(
    st.sampled_from([2, 4, 6]),
    st.integers(2, 4),
    st.sampled_from([1, 2]),
    RATES,
    RATES,
    st.sampled_from(["ring", "hierarchical"]),
)
def test_groups_beside_one_another_share_the_links(
    devices: int, nodes: int, stride: int, inside: float, between: float, scheme: str
) -> None:
    """With a stride of 2, the even devices are one group and the odd ones another."""
    where = cluster((devices, 1, inside), (nodes, 1, between))
    workers = devices * nodes // stride
    group = where.group(workers, stride)
    jobs = [
        (
            Placement(where, range(first, devices * nodes, stride)),
            COLLECTIVES[scheme].rounds_on(group),
        )
        for first in range(stride)
    ]
    together = seconds_together(jobs, GIGA)
    assert COLLECTIVES[scheme].seconds_on(group, GIGA) == pytest.approx(together, rel=1e-9)


@given(st.sampled_from([2, 4, 8]), st.integers(2, 5), RATES, RATES)
def test_with_a_stride_of_a_node_each_group_has_one_device_of_it(
    devices: int, nodes: int, inside: float, between: float
) -> None:
    where = cluster((devices, 1, inside), (nodes, 1, between))
    group = where.group(nodes, devices)
    jobs = [
        (Placement(where, range(i, devices * nodes, devices)), COLLECTIVES["ring"].rounds_on(group))
        for i in range(devices)
    ]
    together = seconds_together(jobs, GIGA)
    # Each has 1/devices of the node's link, and a link of its own to it.
    slowest = min(between / devices, inside)
    assert together == pytest.approx(2 * (nodes - 1) / nodes * GIGA / slowest)
    assert COLLECTIVES["ring"].seconds_on(group, GIGA) == pytest.approx(together)


def test_two_jobs_on_one_link_take_twice_as_long_as_one() -> None:
    # Two nodes of four devices behind one link each: jobs on two devices of both.
    where = cluster((4, 1, 100e9), (2, 1, 1e9))
    jobs = [Placement(where, devices) for devices in ((0, 1, 4, 5), (2, 3, 6, 7))]
    rounds = [list(COLLECTIVES["ring"].rounds(4)) for _ in jobs]
    alone = jobs[0].seconds(rounds[0], GIGA)
    assert alone == pytest.approx(6 / 4)  # 2 (K - 1) / K of the gigabyte leave a node
    assert seconds_together(list(zip(jobs, rounds, strict=True)), GIGA) == pytest.approx(2 * alone)
    # One that has done leaves the link to the other.
    shorter = [(jobs[0], rounds[0]), (jobs[1], rounds[1][:3])]
    assert seconds_together(shorter, GIGA) == pytest.approx(1.5 * alone)


def test_where_workers_stand_matters() -> None:
    # Neighbours in a ring on one node, or every other on the other node: two links out, not one.
    where = cluster((4, 1, 100e9), (2, 1, 1e9))
    rounds = list(COLLECTIVES["ring"].rounds(4))
    packed = Placement(where, (0, 1, 4, 5)).seconds(rounds, GIGA)
    scattered = Placement(where, (0, 4, 1, 5)).seconds(rounds, GIGA)
    assert scattered == pytest.approx(2 * packed)
