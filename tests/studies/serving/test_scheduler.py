from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving import LinearEngine, RooflineEngine, plainly_served

from paleo.core.errors import SettingError
from paleo.step.serving.scheduling import Scheduling
from paleo.studies.serving.loads import Load, Lognormal, Uniform, closed_load, open_load
from paleo.studies.serving.scheduler import Link, serve
from paleo.studies.serving.served import Served
from paleo.studies.serving.server import Party

#: A step takes a second, and a hundredth for each token.
ENGINE = LinearEngine(a=1.0, b=0.01, c=0.0, d=0.0)
SMALL = Scheduling(token_budget=120, max_requests=8, block=1)


def load_of(prompt: list[int], output: list[int], *, cached: Any = 0, arrival: Any = None) -> Load:
    zeros = np.zeros(len(prompt), np.int64)
    clients = len(prompt) if arrival is None else None
    came = None if arrival is None else np.array(arrival, np.float64)
    return Load(np.array(prompt), np.array(output), zeros + cached, came, clients)


def times(served: Served) -> tuple[list[float], list[float]]:
    return [round(second, 9) for second in served.first], [
        round(second, 9) for second in served.finish
    ]


TWO = load_of([100, 50], [3, 2])


def test_prompts_and_decodes_share_the_budget_of_a_step() -> None:
    # 100 of A and 20 of B; a token of A and 30 of B; a token of each.
    assert times(serve(TWO, Party(ENGINE, SMALL))) == ([2.2, 3.51], [4.53, 4.53])


def test_prompts_go_alone_and_first() -> None:
    # 100 of A and 20 of B; 30 of B; a token of each; a token of A.
    alone = replace(SMALL, mixed=False)
    assert times(serve(TWO, Party(ENGINE, alone))) == ([2.2, 3.5], [5.53, 4.52])


def test_prompts_are_whole() -> None:
    # Of A and of B; a token of A goes with B where steps are mixed.
    whole = replace(SMALL, chunked=False)
    assert times(serve(TWO, Party(ENGINE, whole))) == ([2.0, 3.51], [4.53, 4.53])
    alone = replace(whole, mixed=False)
    assert times(serve(TWO, Party(ENGINE, alone))) == ([2.0, 3.5], [5.53, 4.52])
    # One that is larger than the budget goes by itself.
    large = serve(load_of([300, 50], [1, 1]), Party(ENGINE, alone))
    assert times(large) == ([4.0, 5.5], [4.0, 5.5])


def test_a_static_batch_takes_all_that_wait_and_ends_with_the_last() -> None:
    static = replace(SMALL, batching="static")
    load = load_of([100, 50, 10], [3, 2, 1], arrival=[0, 0, 1])
    # Prompts of A and B in two steps; then B is done, but keeps its place: 1.02 twice; then C.
    assert times(serve(load, Party(ENGINE, static))) == ([2.2, 3.5, 6.64], [5.54, 4.52, 6.64])
    one = replace(static, max_requests=1)
    assert times(serve(TWO, Party(ENGINE, one))) == ([2.0, 5.52], [4.02, 6.53])


def test_a_cached_prefix_is_not_computed() -> None:
    served = serve(load_of([100], [2], cached=60), Party(ENGINE, SMALL), log=True)
    assert times(served) == ([1.4], [2.41])
    (prompt, decode) = served.log
    assert (prompt.prompt_tokens, prompt.decodes) == (40, 0)
    assert (decode.prompt_tokens, decode.decodes, decode.context) == (0, 1, 100)


def test_prompts_attend_to_what_is_before_them() -> None:
    engine = LinearEngine(a=0.0, b=0.0, c=1.0, d=1.0)
    served = serve(load_of([200], [3], cached=10), Party(engine, SMALL))
    # 120 tokens after 10: 120 (10 + 60); 70 after 130: 70 (130 + 35). Then caches of 200 and 201.
    assert times(served) == ([8400 + 11550], [8400 + 11550 + 401])


def test_requests_that_come_in_a_step_wait_for_its_end() -> None:
    served = serve(load_of([100, 100], [2, 1], arrival=[0, 0.5]), Party(ENGINE, SMALL))
    assert served.start.tolist() == [0, 2.0]
    assert times(served) == ([2.0, 4.01], [4.01, 4.01])


def test_a_client_sends_when_its_last_request_is_done() -> None:
    served = serve(closed_load(1, 3, 100, 2), Party(ENGINE, SMALL))
    assert np.allclose(served.arrival, [0, 3.01, 6.02])
    assert times(served) == ([2.0, 5.01, 8.02], [3.01, 6.02, 9.03])


def test_the_last_one_in_is_preempted_where_blocks_run_out() -> None:
    engine = replace(ENGINE, capacity=8)
    load = load_of([3, 3], [4, 4])
    # Prompts 1.06; a token each, the cache is full: 2.08; B goes, A has two more: 4.10; then B has
    # 3 + 2 tokens computed again, which makes its third: 5.15; and its fourth.
    served = serve(load, Party(engine, SMALL))
    assert times(served) == ([1.06, 1.06], [4.10, 6.16])
    assert served.preemptions == 1
    # Nothing is preempted where room for all of the output is kept.
    kept = serve(load, Party(engine, replace(SMALL, reserve=1.0)))
    assert kept.preemptions == 0
    assert times(kept) == ([1.03, 5.09], [4.06, 8.12])


def test_prompts_are_handed_over_to_servers_that_decode() -> None:
    link = Link(lambda tokens: tokens / 100)
    prefill = decode = Party(ENGINE, SMALL)
    # Prompts at 2.2 and 3.5, caches at 3.2 and 4.0. A's token at 4.21, then one of each.
    served = serve(TWO, decode, prefill, link)
    assert times(served) == ([3.2, 4.0], [5.23, 5.23])
    shown = serve(TWO, decode, prefill, replace(link, shows_first=True))
    assert times(shown) == ([2.2, 3.5], [5.23, 5.23])


def test_caches_wait_for_one_another_on_a_link() -> None:
    slow = Link(lambda tokens: tokens / 50)
    party = Party(ENGINE, SMALL)
    # A's cache takes from 2.2 to 4.2, B's a second from then on, or at once on a second lane.
    assert times(serve(TWO, party, party, slow))[0] == [4.2, 5.2]
    assert times(serve(TWO, party, party, replace(slow, lanes=2)))[0] == [4.2, 4.5]


def test_what_has_one_token_is_done_where_its_prompt_is() -> None:
    party = Party(ENGINE, SMALL)
    assert times(serve(load_of([100], [1]), party, party)) == ([2.0], [2.0])


def test_a_request_goes_to_the_server_that_has_fewest() -> None:
    load = load_of([100, 50, 50], [2, 1, 1])
    served = serve(load, Party(ENGINE, SMALL, replicas=2), log=True)
    # A, B, and the first of equals again: C, 20 of it with A, 30 with a token of A.
    assert times(served)[0] == [2.2, 1.5, 3.51]
    assert {step.server for step in served.log} == {0, 1}


def test_a_prompt_s_cache_is_held_until_it_has_moved() -> None:
    link = Link(lambda tokens: 10.0)
    held = Party(replace(ENGINE, capacity=100), SMALL)
    load = load_of([100, 100], [2, 2])
    served = serve(load, Party(ENGINE, SMALL), held, link)
    # The second prompt begins when the first one's cache is gone, at 12.
    assert times(served)[0] == [12.0, 24.0]


@pytest.mark.parametrize(
    ("party", "prefill", "message"),
    [
        (
            Party(LinearEngine(capacity=95), Scheduling()),
            None,
            "a request of 100 \\+ 3 tokens does not fit into a cache of 80",
        ),
        (
            Party(LinearEngine(capacity=16), Scheduling()),
            None,
            "a request of 100 \\+ 3 tokens does not fit into a cache of 16, nor do 1 others",
        ),
        (Party(ENGINE, replicas=0), None, "replicas: expected 1 or more, got 0"),
        (Party(ENGINE), Party(ENGINE, Scheduling(batching="static")), "batching: prefill and dec"),
    ],
)
def test_what_cannot_be_served(party: Party, prefill: Party | None, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        serve(TWO, party, prefill)


LENGTHS = st.builds(
    lambda low, more: Uniform(low, low + more), st.integers(1, 20), st.integers(0, 30)
)
CLOSED = st.builds(
    closed_load,
    st.integers(1, 9),
    st.integers(1, 14),
    LENGTHS,
    LENGTHS,
    hit_rate=st.sampled_from([0.0, 0.5]),
    seed=st.integers(0, 99),
)
OPEN = st.builds(
    open_load,
    st.sampled_from([3, 30, 300]),
    st.integers(1, 14),
    LENGTHS,
    LENGTHS,
    cv=st.sampled_from([0.0, 1.0, 2.0]),
    seed=st.integers(0, 99),
)
SCHEDULINGS = st.builds(
    Scheduling,
    batching=st.sampled_from(["continuous", "continuous", "continuous", "static"]),
    token_budget=st.sampled_from([8, 20, 64, 300]),
    max_requests=st.sampled_from([1, 3, 8]),
    chunked=st.booleans(),
    mixed=st.booleans(),
    decode_first=st.booleans(),
    block=st.sampled_from([1, 2, 4, 16]),
    watermark=st.sampled_from([0.0, 0.1]),
    reserve=st.sampled_from([0.0, 0.0, 0.3, 1.0]),
)
ENGINES = st.builds(
    lambda make, capacity: make(capacity=capacity),
    st.sampled_from([LinearEngine, RooflineEngine]),
    st.sampled_from([None, 112, 160]),
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(load=CLOSED | OPEN, engine=ENGINES, scheduling=SCHEDULINGS)
def test_it_is_what_looking_at_each_request_in_each_step_gives(
    load: Load, engine: Any, scheduling: Scheduling
) -> None:
    plain = plainly_served(load, engine, scheduling)
    exact = serve(load, Party(engine, scheduling), exact=True)
    for name in ("arrival", "start", "first", "finish"):
        assert np.allclose(getattr(exact, name), getattr(plain, name), rtol=1e-12, atol=1e-12)
    assert exact.preemptions == plain.preemptions
    assert exact.steps == len(plain.blocks)
    assert max(plain.blocks) <= (engine.capacity or 10**9) // scheduling.block
    if isinstance(engine, LinearEngine):  # steps that are taken together lose nothing then
        together = serve(load, Party(engine, scheduling))
        assert np.allclose(together.first, exact.first, rtol=1e-9)
        assert np.allclose(together.finish, exact.finish, rtol=1e-9)


@settings(max_examples=60, deadline=None)
@given(
    load=CLOSED | OPEN,
    engine=ENGINES,
    scheduling=SCHEDULINGS.filter(lambda each: not each.is_static),
    replicas=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    seconds=st.sampled_from([0.0, 0.01]),
    shows_first=st.booleans(),
)
def test_all_tokens_are_made_wherever_prompts_are_computed(
    load: Load,
    engine: Any,
    scheduling: Scheduling,
    replicas: tuple[int, int],
    seconds: float,
    shows_first: bool,
) -> None:
    prefill, decode = (Party(engine, scheduling, count) for count in replicas)
    link = Link(lambda tokens: seconds, shows_first=shows_first)
    for served in (
        serve(load, decode, log=True),
        serve(load, decode, prefill, link, log=True),
    ):
        assert (served.arrival <= served.start).all()
        assert (served.start < served.first).all()
        assert (served.first <= served.finish).all()
        assert ((served.first < served.finish) == (load.output > 1)).all()
        decoded = sum(step.decodes * step.count for step in served.log)
        computed = sum(step.prompt_tokens for step in served.log)
        if served.preemptions:  # a prompt that is computed again makes a token, too
            assert decoded < (load.output - 1).sum()
            assert computed > (load.prompt - load.cached).sum()
        else:
            assert decoded == (load.output - 1).sum()
            assert computed == (load.prompt - load.cached).sum()
        assert sum(step.seconds for step in served.log) == pytest.approx(served.busy)
        if load.concurrency:  # never more than there are clients
            alive = [
                int(((served.arrival <= now) & (served.finish > now)).sum())
                for now in served.arrival
            ]
            assert max(alive) <= load.concurrency


def test_many_preemptions_are_those_of_each_step() -> None:
    engine = LinearEngine(capacity=400)
    scheduling = Scheduling(token_budget=64, max_requests=16, block=4)
    load = closed_load(16, 80, Uniform(5, 40), Uniform(20, 80), seed=3)
    plain = plainly_served(load, engine, scheduling)
    served = serve(load, Party(engine, scheduling))
    assert served.preemptions == plain.preemptions > 20
    assert np.allclose(served.finish, plain.finish)


def test_steps_taken_together_bend_little() -> None:
    """An engine whose seconds are two lines: off by less than a thousandth."""
    load = open_load(2, 300, Lognormal(800, 1), Lognormal(300, 1), seed=1)
    engine = RooflineEngine(cached=0.0)

    class Bent:
        capacity = None

        def seconds(self, chunks: Any, decodes: int, context: int) -> float:
            return max(engine.seconds(chunks, decodes, 0), 2e-6 * context)

    exact = serve(load, Party(Bent()), exact=True)
    together = serve(load, Party(Bent()))
    assert together.tpot.mean() == pytest.approx(exact.tpot.mean(), rel=1e-3)
    assert together.ttft.mean() == pytest.approx(exact.ttft.mean(), rel=1e-2)


def test_it_is_repeatable() -> None:
    load = open_load(4, 200, Lognormal(500, 1), Lognormal(100, 1), seed=5)
    party = Party(LinearEngine(), replicas=2)
    first, second = (
        serve(load, party, Party(LinearEngine()), Link(lambda t: 1e-6 * t)) for _ in "ab"
    )
    assert (first.finish == second.finish).all()


class Counting(LinearEngine):
    """One that counts how often it is asked."""

    asked = 0

    def seconds(self, *step: Any) -> float:
        self.asked += 1
        return super().seconds(*step)


def test_steps_in_which_nothing_comes_or_goes_are_taken_together() -> None:
    engine = Counting()
    served = serve(closed_load(64, 1000, 1000, 256), Party(engine))
    assert served.steps > 4000
    assert engine.asked < 400
