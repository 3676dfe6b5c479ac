"""Steps from pieces: when each starts, how long the step takes, and what of it nothing hides."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import paleo
from paleo.costs import COST_MODELS
from paleo.costs.error_bands import Band
from paleo.step.pieces import TRANSFER, Piece, Step, scheduled

FORWARD = Piece("forward", "forward", 3.0)
BACKWARD = Piece("backward", "backward", 6.0)
UPDATE = Piece("update", "update", 1.0)


def step(*pieces: Piece, **exchanges: Piece) -> Step:
    return Step(2, 8, 4, pieces, (), exchanges=exchanges)


def test_pieces_follow_one_another_unless_they_say_after_what() -> None:
    found = step(FORWARD, BACKWARD, UPDATE, OneToAll=Piece("exchange", TRANSFER, 4.0))
    starts = [(piece.name, piece.start) for piece in found.under("OneToAll")]
    assert starts == [("forward", 0), ("backward", 3), ("update", 9), ("exchange", 10)]
    assert (found.total("OneToAll"), found.total(), found.compute, found.busy) == (14, 10, 10, 10)
    assert found.exposed_communication("OneToAll") == 4


def test_an_exchange_beside_the_backward_pass_is_hidden_as_far_as_that_lasts() -> None:
    # Forward 0 to 3, backward 3 to 9, beside it the exchange 3 to 11; then the update, to 12.
    exchange = Piece("exchange", TRANSFER, 8.0, after=("forward",), lane=1)
    update = UPDATE._replace(after=("backward", "exchange"))
    found = step(FORWARD, BACKWARD, exchange, update)
    assert [piece.start for piece in found.under()] == [0, 3, 3, 11]
    assert (found.total(), found.compute, found.busy) == (12, 10, 18)
    assert found.exposed_communication() == 2


def test_what_happens_at_the_same_time_counts_once() -> None:
    # Two computations, 3 to 9 and 3 to 7, hide the exchange 3 to 11 until 9: 2 seconds are left.
    exchange = Piece("exchange", TRANSFER, 8.0, after=("forward",), lane=1)
    branch = Piece("branch", "backward", 4.0, after=("forward",), lane=2)
    assert step(FORWARD, BACKWARD, branch, exchange).exposed_communication() == 2
    # An array of branches, of which the last, 3 to 13, hides all of it.
    branches = branch._replace(seconds=np.array([1.0, 4.0, 10.0]))
    exposed: Any = step(FORWARD, BACKWARD, branches, exchange).exposed_communication()
    assert list(exposed) == [2, 2, 0]
    # Two exchanges beside one another, 3 to 11 and 3 to 5, with nothing else.
    other = Piece("other", TRANSFER, 2.0, after=("forward",), lane=2)
    assert step(FORWARD, exchange, other).exposed_communication() == 8


def test_arrays_give_what_numbers_give() -> None:
    seconds = np.array([2.0, 5.0, 9.0])
    later = Piece("update", "update", 1.0, after=("backward", "exchange"))

    def beside(exchange: Any) -> Step:
        piece = Piece("exchange", TRANSFER, exchange, after=("forward",), lane=1)
        return step(FORWARD, BACKWARD, piece, later)

    many = beside(seconds)
    total: Any = many.total()
    exposed: Any = many.exposed_communication()
    assert list(total) == [10, 10, 13]
    assert list(exposed) == [0, 0, 3]
    for i, alone in enumerate(map(beside, seconds.tolist())):
        assert total[i] == alone.total()
        assert exposed[i] == alone.exposed_communication()
    spread = step(FORWARD._replace(seconds=seconds)).spread((3,))
    assert [alone["forward"] for alone in spread] == [2, 5, 9]
    assert [alone.workers for alone in spread] == [2, 2, 2]


def test_a_time_below_zero_of_a_formula_is_added_as_it_is() -> None:
    found = step(FORWARD._replace(seconds=-5.0), BACKWARD)
    assert (found.total(), found.is_below_zero) == (1, True)
    assert [piece.end for piece in scheduled(found.pieces)] == [-5, 1]


def test_a_piece_that_nothing_waits_for_may_end_last() -> None:
    beside = Piece("copy", TRANSFER, 20.0, after=("forward",), lane=1)
    assert step(FORWARD, beside, BACKWARD._replace(after=("forward",))).total() == 23


@pytest.mark.parametrize("model", COST_MODELS)
def test_whole_steps_are_the_sum_of_their_pieces(model: str) -> None:
    plan = paleo.Plan(paleo.find_device("K80"), paleo.find_network("ethernet"), COST_MODELS[model])
    found = paleo.data_parallel(paleo.load("nin"), plan, 32, 4)
    for scheme, seconds in found.exposed_exchanges.items():
        assert found.communication[scheme] >= seconds
        assert found.total(scheme) == found.compute + seconds
        assert found.exposed_communication(scheme) == pytest.approx(seconds)
    for part in paleo.hybrid_parallel(paleo.load("alex_v2_2gpu"), plan, 32, 2):
        assert part.total() == pytest.approx(sum(piece.seconds for piece in part.pieces))
        assert part.exposed_communication() == part["sync"]


@pytest.mark.parametrize(("whole", "slow"), [(False, 2 * 10 + 4), (True, 2 * 14)])
def test_a_band_is_of_computation_or_of_all_of_a_step(whole: bool, slow: float) -> None:
    """Ten seconds are computed, four exchanged; in truth they take half to two times as long."""
    band = Band(0.5, 2.0, 100, 0.8, whole=whole)
    found = step(FORWARD, BACKWARD, UPDATE, OneToAll=Piece("exchange", TRANSFER, 4.0))
    _, end = replace(found, band=band).ends
    assert end is not None
    assert end.total("OneToAll") == slow
