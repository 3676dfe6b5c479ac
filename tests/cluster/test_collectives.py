"""Who sends to whom in the rounds of collectives, by letting them carry what they say."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest

import paleo
from paleo.cluster.collectives import (
    AUTO,
    COLLECTIVES,
    SWITCH,
    Carried,
    Collective,
    Operation,
    Round,
)
from paleo.cluster.figures import Figure
from paleo.cluster.network import Network
from paleo.cluster.topology import Cluster, Group, Tier, flat_group

#: Powers of two, those beside them, and others.
WORKERS = (*range(1, 34), 63, 64, 65, 100, 128, 1000)


def network(rate: float, latency: float = 0.0) -> Network:
    """Return one of so many bytes/s and seconds."""
    figures = {
        "bandwidth": Figure(rate, "bytes/s", "here"),
        "latency": Figure(latency, "s", "here"),
    }
    return Network("here", "here", figures)


def two_tiers(
    devices: int,
    nodes: int,
    rates: tuple[float, float] = (1e9, 1e9),
    latencies: tuple[float, float] = (0.0, 0.0),
) -> Cluster:
    """Return nodes of so many devices, each with one link."""
    inner, outer = map(network, rates, latencies)
    tiers = (Tier("node", inner, devices), Tier("fabric", outer, nodes))
    return Cluster("two", "two tiers", paleo.find_device("K40"), tiers)


def contributions(workers: int, rounds: Iterable[Round]) -> np.ndarray:
    """Return of whose gradients each worker has the sum after the rounds, by part of the message.

    The dimensions: worker (the last is the switches), part, whose gradients; values are how often.
    """
    listed = list(rounds)
    num_parts = math.lcm(*(each.num_parts for each in listed))
    sums = np.zeros((workers + 1, num_parts, workers), np.int16)
    for worker in range(workers):
        sums[worker, :, worker] = 1
    for each in listed:
        before = sums.copy()
        scale = num_parts // each.num_parts
        for (sender, receiver), part in zip(
            each.pairs, each.parts or [range(1)] * len(each.pairs), strict=True
        ):
            moved = slice(part.start * scale, part.stop * scale)
            sent = before[sender, moved].copy()
            if each.carried is Carried.OTHERS:
                sent[:, sender] -= 1
            if each.carried is Carried.RESULT:  # only a sum of all may take the place of one
                assert (sent == 1).all()
                sums[receiver, moved] = sent
            else:
                sums[receiver, moved] += sent
    return sums


def on_one_network(workers: Any) -> Group:
    """Return workers behind links of 1 byte/s without latency."""
    return flat_group(workers, Network.from_bandwidth("flat", 1.0))


@pytest.mark.parametrize("scheme", COLLECTIVES)
def test_rounds_cross_links_as_often_as_the_formula_says(scheme: str) -> None:
    collective = COLLECTIVES[scheme]
    for workers in WORKERS:
        crossed = Collective.transfers(collective, workers)
        assert crossed == pytest.approx(collective.transfers(workers), rel=1e-12), workers


@pytest.mark.parametrize("scheme", [name for name in COLLECTIVES if name != AUTO])
def test_a_round_crosses_links_as_often_as_the_largest_of_its_parts(scheme: str) -> None:
    for workers in WORKERS[:-1]:
        for each in COLLECTIVES[scheme].rounds(workers):
            assert not each.parts or len(each.parts) == len(each.pairs)
            assert each.crossings == max(each.shares, default=each.crossings)
            assert all(0 <= part.start < part.stop <= each.num_parts for part in each.parts)


#: Schemes in which one round follows another, and a formula has the latency of each. In others a
#: worker has several messages on their way at once, or pieces wait for a tree's height.
ROUND_BY_ROUND = (
    *("OneToAll", "TreeAllReduce", "ButterflyAllReduce", "ButterflyMixing"),
    *("ring", "hierarchical", "halving_doubling", "recursive_doubling"),
)
#: On one tier what switches sum is asked for apart.
FORMULAS = [name for name in COLLECTIVES if name not in (AUTO, "in_network")]


@pytest.mark.parametrize("scheme", FORMULAS)
def test_phases_of_one_tier_are_those_of_the_rounds(scheme: str) -> None:
    collective = COLLECTIVES[scheme]
    for operation in collective.operations:
        for workers in WORKERS[:-1]:
            group = on_one_network(workers)
            steps, sent = totals(collective.phases(group, operation))
            from_rounds = totals(Collective.phases(collective, group, operation))
            if scheme == "ButterflyMixing" and workers == 1:
                assert (steps, sent, from_rounds) == (1, 1, (0, 0))  # charged to one worker too
                continue
            assert sent == pytest.approx(from_rounds[1], rel=1e-12, abs=1e-12), workers
            if scheme in ROUND_BY_ROUND:
                assert steps == from_rounds[0], (workers, operation)


def totals(phases: Any) -> tuple[Any, Any]:
    """Return the steps and the messages of all phases on the only tier."""
    moves = [move for phase in phases for move in phase.moves]
    assert len({move.level.tier.name for move in moves}) <= 1
    return sum(move.steps for move in moves), sum(move.sent for move in moves)


class Ring(Collective):
    """2 (K - 1) rounds, in each of which every worker hands on a share of 1 / K."""

    name = "Ring"
    summary = "a ring"

    def rounds(self, workers: int) -> Iterator[Round]:
        pairs = tuple((worker, (worker + 1) % workers) for worker in range(workers))
        for step in range(2 * (workers - 1)):
            carried = Carried.SUM if step < workers - 1 else Carried.RESULT
            yield Round(pairs, carried, 1 / workers)


def test_a_scheme_that_says_its_rounds_alone_has_its_seconds() -> None:
    ring = Ring()
    # 2 (K - 1) / K: 0, 1, 6/4 and 14/8 times 10^9 bytes at 1 GB/s.
    assert [ring.seconds(10**9, count, 1e9) for count in (1, 2, 4, 8)] == [0, 1, 1.5, 1.75]
    many = ring.seconds(10**9, np.array([[8, 1], [4, 8]]), 1e9)
    assert np.array_equal(many, [[1.75, 0], [1.5, 1.75]])


def test_on_tiers_it_has_the_phases_of_its_rounds() -> None:
    # Two nodes of four: the node's link carries one message of a round out and one in, 14 times
    # 1/8 of the message; so does each device's. Every round waits for the link between nodes.
    ring = Ring()
    cluster = two_tiers(4, 2, rates=(100e9, 10e9), latencies=(1e-6, 5e-6))
    (phase,) = ring.phases(cluster.group(8))
    assert [(move.steps, move.sent) for move in phase.moves] == [(0, 1.75), (14, 1.75)]
    assert ring.seconds_on(cluster.group(8), 10**9) == pytest.approx(14 * 5e-6 + 1.75e9 / 10e9)
    # Of arrays each count is gone through: 2 and 4 are within a node, 1 has no rounds.
    found = ring.seconds_on(cluster.group(np.array([[1, 2], [4, 8]])), 10**9)
    expected = [ring.seconds_on(cluster.group(count), 10**9) for count in (1, 2, 4, 8)]
    assert np.ravel(found) == pytest.approx(expected, rel=1e-12)
    assert expected[1] == pytest.approx(2e-6 + 1e9 / 100e9)


def test_rounds_are_looked_at_once_for_messages_of_any_size() -> None:
    class Counted(Ring):
        looks = 0
        __hash__ = None  # type: ignore[assignment]  # as of a dataclass

        def rounds(self, workers: int) -> Iterator[Round]:
            self.looks += 1
            return super().rounds(workers)

    counted, group = Counted(), two_tiers(4, 2).group(8)
    found = [counted.seconds_on(group, num_bytes) for num_bytes in (1, 10**9)]
    assert counted.looks == 1
    assert found == [Ring().seconds_on(group, num_bytes) for num_bytes in (1, 10**9)]


@pytest.mark.parametrize("scheme", COLLECTIVES)
def test_the_workers_of_a_pair_exist_and_send_once_in_a_round(scheme: str) -> None:
    for workers in WORKERS:
        for each in COLLECTIVES[scheme].rounds(workers):
            senders = [sender for sender, _ in each.pairs if sender != SWITCH]
            receivers = [receiver for _, receiver in each.pairs if receiver != SWITCH]
            assert len(each.pairs) in (len(senders), len(receivers))
            assert set(senders + receivers) <= set(range(workers))
            assert len(set(senders)) == len(senders)
            assert len(set(receivers)) == len(receivers)
            assert all(sender != receiver for sender, receiver in each.pairs)
            assert bool(each.pairs) == (workers > 1)


@pytest.mark.parametrize("scheme", [name for name in COLLECTIVES if COLLECTIVES[name].exact])
def test_after_the_rounds_of_an_exact_scheme_all_have_each_gradient_once(scheme: str) -> None:
    for workers in WORKERS[:-1]:
        sums = contributions(workers, COLLECTIVES[scheme].rounds(workers))
        assert (sums[:workers] == 1).all(), workers


def test_messages_of_numbers_are_summed_up() -> None:
    rng = np.random.default_rng(0)
    for scheme in ("ring", "tree", "halving_doubling", "hierarchical", "in_network"):
        for workers in (2, 5, 8, 12):
            rounds = list(COLLECTIVES[scheme].rounds(workers))
            count = math.lcm(*(each.num_parts for each in rounds))
            messages = rng.normal(size=(workers + 1, count, 3))
            messages[workers] = 0  # the switches have none of their own
            expected = messages[:workers].sum(axis=0)
            for each in rounds:
                before = messages.copy()
                for (sender, receiver), part in zip(
                    each.pairs, each.parts or [range(1)] * len(each.pairs), strict=True
                ):
                    scale = count // each.num_parts
                    moved = slice(part.start * scale, part.stop * scale)
                    if each.carried is Carried.RESULT:
                        messages[receiver, moved] = before[sender, moved]
                    else:
                        messages[receiver, moved] += before[sender, moved]
            for worker in range(workers):
                assert messages[worker] == pytest.approx(expected), (scheme, workers)


@pytest.mark.parametrize("workers", WORKERS[:-1])
def test_a_half_of_an_all_reduce_leaves_each_with_the_sum_of_a_part(workers: int) -> None:
    for scheme in ("ring", "hierarchical", "sharded_server", "halving_doubling"):
        collective, group = COLLECTIVES[scheme], on_one_network(workers)
        if scheme == "halving_doubling" and workers & (workers - 1):
            continue
        rounds = list(collective.rounds_on(group, Operation.REDUCE_SCATTER))
        if workers == 1:
            assert rounds == []
            continue
        sums = contributions(workers, rounds)[:workers]
        summed = (sums == 1).all(axis=2)
        assert (summed.sum(axis=1) == 1).all()  # one part of K each, and each part somewhere
        assert (summed.sum(axis=0) == 1).all()


def test_after_an_all_to_all_each_has_the_part_that_is_for_it() -> None:
    for workers in WORKERS[:-1]:
        got: list[set[int]] = [{worker} for worker in range(workers)]
        for each in COLLECTIVES["pairwise"].rounds(workers):
            assert each.carried is Carried.OWN
            for (sender, receiver), part in zip(each.pairs, each.parts, strict=True):
                assert part == range(receiver, receiver + 1)
                assert sender not in got[receiver]
                got[receiver].add(sender)
        assert got == [set(range(workers))] * workers


@pytest.mark.parametrize("scheme", ["ring", "TreeAllReduce"])
def test_a_broadcast_reaches_all_from_the_first(scheme: str) -> None:
    for workers in WORKERS[:-1]:
        reached = {0}
        for each in COLLECTIVES[scheme].rounds_on(on_one_network(workers), Operation.BROADCAST):
            assert {sender for sender, _ in each.pairs} <= reached
            reached |= {receiver for _, receiver in each.pairs}
        assert reached == set(range(workers))


@pytest.mark.parametrize("scheme", ["ring", "hierarchical"])
@pytest.mark.parametrize("sizes", [(4, 3), (2, 2, 2), (3, 2, 4), (8, 1)])
def test_rounds_on_tiers_sum_up_too(scheme: str, sizes: tuple[int, ...]) -> None:
    workers = math.prod(sizes)
    tiers = tuple(
        Tier(f"tier{i}", Network.from_bandwidth("n", 1e9), size) for i, size in enumerate(sizes)
    )
    cluster = Cluster("c", "", paleo.find_device("K40"), tiers)
    sums = contributions(workers, COLLECTIVES[scheme].rounds_on(cluster.group(workers)))
    assert (sums[:workers] == 1).all()


def test_a_ring_on_nodes_leaves_them_at_each_device() -> None:
    # Rings side by side: from each device of a node one goes to the next node.
    cluster = two_tiers(4, 3)
    first = next(COLLECTIVES["ring"].rounds_on(cluster.group(12)))
    leaving = [pair for pair in first.pairs if pair[0] // 4 != pair[1] // 4]
    assert sorted(a for a, _ in leaving) == sorted(b for _, b in leaving) == list(range(12))
    assert first.shares == [pytest.approx(1 / 48)] * 48


def test_mixing_leaves_two_workers_of_four_agreed() -> None:
    # Pairs at distance 1: 0 and 1 have the sum of both, 2 and 3 that of theirs.
    sums = contributions(4, COLLECTIVES["ButterflyMixing"].rounds(4))[:4, 0]
    assert sums.tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]]


def test_the_rounds_of_four_workers_by_hand() -> None:
    def pairs(scheme: str) -> list[tuple[tuple[int, int], ...]]:
        return [each.pairs for each in COLLECTIVES[scheme].rounds(4)]

    gather = [((1, 0),), ((2, 0),), ((3, 0),)]
    assert pairs("OneToAll") == [*gather, ((0, 1),), ((0, 2),), ((0, 3),)]
    assert pairs("TreeAllReduce") == [
        ((1, 0), (3, 2)),
        ((2, 0),),
        ((0, 2),),
        ((0, 1), (2, 3)),
    ]
    assert pairs("ButterflyAllReduce") == [
        ((0, 1), (1, 0), (2, 3), (3, 2)),
        ((0, 2), (1, 3), (2, 0), (3, 1)),
    ]
    assert pairs("recursive_doubling") == pairs("ButterflyAllReduce")
    # Two trees: 0 - 2 - (1, 3), and 3 - 1 - (2, 0), each for half.
    up = [((1, 2), (2, 1)), ((3, 2), (0, 1)), ((2, 0), (1, 3))]
    assert pairs("tree") == [*up, *(tuple((b, a) for a, b in one) for one in reversed(up))]
    # Swaps of the half, then of the quarter that the partner keeps; and back what each has.
    swaps = list(COLLECTIVES["halving_doubling"].rounds(4))
    assert [each.pairs for each in swaps] == [
        *pairs("ButterflyAllReduce"),
        *reversed(pairs("ButterflyAllReduce")),
    ]
    spans = [[(part.start, part.stop) for part in each.parts] for each in swaps]
    assert spans == [
        [(2, 4), (0, 2), (2, 4), (0, 2)],
        [(1, 2), (3, 4), (0, 1), (2, 3)],
        [(0, 1), (2, 3), (1, 2), (3, 4)],
        [(0, 2), (2, 4), (0, 2), (2, 4)],
    ]
    # A ring hands on the part of the one behind the sender, and so on: after three 0 has part 0.
    parts = [each.parts[0].start for each in COLLECTIVES["ring"].rounds(4)]
    assert parts == [3, 2, 1, 0, 3, 2]


def test_three_workers_get_the_sum_in_two_rounds() -> None:
    # Each has the sum of itself and the one before; then it gets what the one before has of others.
    first, second = COLLECTIVES["ButterflyAllReduce"].rounds(3)
    assert first == Round(((0, 1), (1, 2), (2, 0)))
    assert second == Round(((0, 1), (1, 2), (2, 0)), Carried.OTHERS)
