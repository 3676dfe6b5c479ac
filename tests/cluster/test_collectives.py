"""Who sends to whom in the rounds of collectives, by letting them carry what they say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from paleo.cluster.collectives import COLLECTIVES, Carried, Collective, Round

#: Powers of two, those beside them, and others.
WORKERS = (*range(1, 34), 63, 64, 65, 100, 128, 1000)


def sums_after(workers: int, rounds: list[Round]) -> list[Counter[int]]:
    """Return of whose gradients each worker has the sum after the rounds, and how many times."""
    sums = [Counter({worker: 1}) for worker in range(workers)]
    for each in rounds:
        before = [sums[worker].copy() for worker in range(workers)]
        for sender, receiver in each.pairs:
            sent = before[sender].copy()
            if each.carried is Carried.OTHERS:
                sent[sender] -= 1
            if each.carried is Carried.RESULT:  # only a sum of all may take the place of one
                assert sent == Counter(range(workers))
                sums[receiver] = sent
            else:
                sums[receiver] = before[receiver] + sent
    return sums


@pytest.mark.parametrize("scheme", COLLECTIVES)
def test_rounds_cross_links_as_often_as_the_formula_says(scheme: str) -> None:
    collective = COLLECTIVES[scheme]
    for workers in WORKERS:
        assert Collective.transfers(collective, workers) == collective.transfers(workers), workers


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


@pytest.mark.parametrize("scheme", COLLECTIVES)
def test_the_workers_of_a_pair_exist_and_send_once_in_a_round(scheme: str) -> None:
    for workers in WORKERS:
        for each in COLLECTIVES[scheme].rounds(workers):
            senders = [sender for sender, _ in each.pairs]
            receivers = [receiver for _, receiver in each.pairs]
            assert set(senders + receivers) <= set(range(workers))
            assert len(set(senders)) == len(senders)
            assert len(set(receivers)) == len(receivers)
            assert all(sender != receiver for sender, receiver in each.pairs)
            assert bool(each.pairs) == (workers > 1)


@pytest.mark.parametrize("scheme", [name for name in COLLECTIVES if COLLECTIVES[name].exact])
def test_after_the_rounds_of_an_exact_scheme_all_have_each_gradient_once(scheme: str) -> None:
    for workers in WORKERS[:-1]:
        sums = sums_after(workers, list(COLLECTIVES[scheme].rounds(workers)))
        assert sums == [Counter(range(workers))] * workers, workers


def test_mixing_leaves_two_workers_of_four_agreed() -> None:
    # Pairs at distance 1: 0 and 1 have the sum of both, 2 and 3 that of theirs.
    sums = sums_after(4, list(COLLECTIVES["ButterflyMixing"].rounds(4)))
    assert sums == [Counter([0, 1]), Counter([0, 1]), Counter([2, 3]), Counter([2, 3])]


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


def test_three_workers_get_the_sum_in_two_rounds() -> None:
    # Each has the sum of itself and the one before; then it gets what the one before has of others.
    first, second = COLLECTIVES["ButterflyAllReduce"].rounds(3)
    assert first == Round(((0, 1), (1, 2), (2, 0)))
    assert second == Round(((0, 1), (1, 2), (2, 0)), Carried.OTHERS)
