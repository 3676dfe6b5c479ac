from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from serving import LinearEngine, RooflineEngine

from paleo.step.serving.scheduling import Scheduling
from paleo.studies.serving.loads import Lognormal, closed_load, open_load
from paleo.studies.serving.lots import Lot, Servers, step_of
from paleo.studies.serving.scheduler import serve
from paleo.studies.serving.server import Party
from paleo.studies.serving.steady import closed, saturation

#: A step takes a second, and a hundredth for each token.
ENGINE = LinearEngine(a=1.0, b=0.01, c=0.0, d=0.0)
SMALL = Scheduling(token_budget=120, max_requests=8, block=1)


def servers_of(engine: Any, scheduling: Scheduling, replicas: int = 1) -> Servers:
    return Servers.of(Party(engine, scheduling, replicas))


def test_one_client_waits_for_nobody() -> None:
    steady = closed(servers_of(ENGINE, SMALL), 1, Lot(100, 3))
    # 1 + 100 / 100, then 1.01 twice.
    assert (steady.ttft, steady.tpot) == (pytest.approx(2.0), pytest.approx(1.01))
    assert steady.requests_per_s == pytest.approx(1 / 4.02)
    assert steady.tokens_per_s == pytest.approx(3 / 4.02)
    assert steady.latency == pytest.approx(4.02)
    assert (steady.running, steady.queued) == (1, 0)


def test_prompts_alone_are_waited_for_by_all() -> None:
    scheduling = replace(SMALL, mixed=False, token_budget=100)
    steady = closed(servers_of(ENGINE, scheduling), 2, Lot(100, 3))
    # Prompts at 2 and 4, then 1.02 twice: one waits 2 for the other one's prompt.
    assert steady.ttft == pytest.approx(3.0)
    assert steady.tpot == pytest.approx((1 + 2 * 1.02) / 2)
    assert steady.requests_per_s == pytest.approx(2 / 6.04)


def test_mixed_steps_in_turn() -> None:
    # A and B come one step apart: each computes 100 beside a token of the other one, 2.01;
    # of its other two steps one is beside the other's prompt, and one has two decodes, 1.02.
    steady = closed(servers_of(ENGINE, replace(SMALL, token_budget=101)), 2, Lot(100, 3))
    assert steady.ttft == pytest.approx(2.01)
    assert steady.tpot == pytest.approx((2.01 + 1.02) / 2)
    assert steady.requests_per_s == pytest.approx(2 / (2 * 2.01 + 1.02))


def test_steps_that_are_full_say_how_many_decode() -> None:
    # n = D q / prompt: with 50 tokens a step and 10 decodes a request, n = 10 q / 40, n + q = 50.
    scheduling = Scheduling(token_budget=50, max_requests=40, block=1)
    steady = closed(servers_of(ENGINE, scheduling), 40, Lot(40, 11))
    assert steady.tpot == pytest.approx(1.5)
    assert steady.requests_per_s == pytest.approx(1 / 1.5)  # q = 40: one prompt a step
    assert steady.ttft == pytest.approx((40 - 10) * 1.5)


def test_what_has_no_place_waits_by_littles_law() -> None:
    served = servers_of(ENGINE, replace(SMALL, max_requests=1))
    steady = closed(served, 3, Lot(100, 3))
    assert steady.queued == pytest.approx(2 * 4.02)
    assert steady.ttft == pytest.approx(2 * 4.02 + 2.0)
    assert steady.requests_per_s == pytest.approx(1 / 4.02)


def test_replicas_share_clients() -> None:
    one = closed(servers_of(ENGINE, SMALL), 4, Lot(100, 3))
    three = closed(servers_of(ENGINE, SMALL, 3), 12, Lot(100, 3))
    assert (three.ttft, three.tpot) == (one.ttft, one.tpot)
    assert three.requests_per_s == pytest.approx(3 * one.requests_per_s)
    # Of more servers than clients, some are idle.
    few = closed(servers_of(ENGINE, SMALL, 3), 2, Lot(100, 3))
    assert few.requests_per_s == pytest.approx(2 / 4.02)


def test_caches_say_how_many_run() -> None:
    lot = Lot(100, 21)
    full = Servers.of(Party(replace(ENGINE, capacity=360), replace(SMALL, reserve=1.0)))
    assert full.slots(lot) == 3  # 100 + 20 each
    half = Servers.of(Party(replace(ENGINE, capacity=360), SMALL))
    assert half.slots(lot) == 3  # 110 each
    assert [bool(half.preempts(clients, lot)) for clients in (3, 4)] == [False, True]
    assert not full.preempts(4, lot)
    assert closed(half, 4, lot).preempts
    assert closed(full, 4, lot).running == 3


def test_a_benchmark_begins_with_all_clients_at_once() -> None:
    scheduling = replace(SMALL, token_budget=101)
    servers = servers_of(ENGINE, scheduling)
    steady, all_of_them = (
        closed(servers, 2, Lot(100, 3)),
        closed(servers, 2, Lot(100, 3), requests=20),
    )
    served = serve(closed_load(2, 20, 100, 3), Party(ENGINE, scheduling))
    # One of the first two waits for the other: a step more, of two in twenty.
    assert served.ttft.mean() == pytest.approx((19 * 2.01 + 2.01 + 2.0) / 20, rel=0.01)
    assert all_of_them.ttft == pytest.approx(served.ttft.mean(), rel=0.02)
    assert all_of_them.ttft > steady.ttft
    assert all_of_them.tpot == pytest.approx(served.tpot.mean(), rel=0.02)
    assert all_of_them.requests_per_s == pytest.approx(served.requests_per_s, rel=0.02)


def test_steps_between_whole_numbers() -> None:
    step = step_of(ENGINE)
    assert step(0, 1, 0, 0, 0) == 0
    assert step(2, 50, 0, 0, 0) == pytest.approx(2.0)
    assert step(2.5, 50, 0, 0, 0) == pytest.approx(2.25)
    assert step(0.5, 50, 0, 3, 7) == pytest.approx(1.03 + 0.25)


def cases() -> Iterator[tuple[int, int, int, int]]:
    for clients in (1, 4, 8, 32, 64, 128):
        for prompt, output in ((128, 128), (1000, 256), (4000, 500), (2000, 20)):
            for budget in (2048, 8192):
                yield clients, prompt, output, budget


def differences(engine: Any, **settings: Any) -> Any:
    """Return by how much closed forms differ from simulations: rows of cases, columns of means."""
    rows = []
    for clients, prompt, output, budget in cases():
        scheduling = Scheduling(token_budget=budget, **settings)
        served = serve(closed_load(clients, 8 * clients, prompt, output), Party(engine, scheduling))
        servers, lot = servers_of(engine, scheduling), Lot(prompt, output)
        middle = slice(3 * clients, 6 * clients)
        steady = closed(servers, clients, lot)
        means = closed(servers, clients, lot, requests=8 * clients)
        rows.append(
            [
                steady.ttft / served.ttft[middle].mean() - 1,
                steady.tpot / served.tpot[middle].mean() - 1,
                means.ttft / served.ttft.mean() - 1,
                means.tpot / served.tpot.mean() - 1,
                means.requests_per_s / served.requests_per_s - 1,
            ]
        )
    return np.abs(np.array(rows))


@pytest.mark.slow
@pytest.mark.parametrize("engine", [LinearEngine(), RooflineEngine()], ids=["linear", "roofline"])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"mixed": False},
        {"batching": "static"},
        {"decode_first": False},
        {"mixed": False, "chunked": False},
        {"max_requests": 40},
    ],
    ids=["mixed", "alone", "static", "own budget", "whole", "places"],
)
def test_closed_forms_agree_with_simulations(engine: Any, settings: dict[str, Any]) -> None:
    found = differences(engine, **settings)
    # Time to first token: some per cent on average, and a fifth at most; the rest within 5 %.
    assert found[:, [0, 2]].mean() < 0.03
    assert found[:, [0, 2]].max() < 0.25
    assert found[:, [1, 3, 4]].mean() < 0.01
    assert found[:, [1, 3, 4]].max() < 0.06


@pytest.mark.slow
@pytest.mark.parametrize("mixed", [True, False])
def test_closed_forms_of_requests_that_are_spread(mixed: bool) -> None:
    rows = []
    for clients, prompt, output, budget in cases():
        scheduling = Scheduling(token_budget=budget, mixed=mixed)
        lengths = Lognormal(prompt, 0.15), Lognormal(output, 0.15)
        requests = max(8 * clients, 60)
        engine = RooflineEngine()
        served = serve(closed_load(clients, requests, *lengths), Party(engine, scheduling))
        servers, lot = servers_of(engine, scheduling), Lot(prompt, output)
        steady = closed(servers, clients, lot, in_step=False)
        means = closed(servers, clients, lot, in_step=False, requests=requests)
        middle = slice(3 * clients, requests - 2 * clients)
        rows.append(
            [
                steady.ttft / served.ttft[middle].mean() - 1,
                means.ttft / served.ttft.mean() - 1,
                steady.tpot / served.tpot[middle].mean() - 1,
                means.tpot / served.tpot.mean() - 1,
                means.requests_per_s / served.requests_per_s - 1,
            ]
        )
    found = np.abs(np.array(rows))
    assert found[:, :2].mean() < 0.06
    assert found[:, 2:].mean() < 0.03
    assert found[:, 2:].max() < 0.15


def test_requests_that_are_spread_wait_less_for_prompts() -> None:
    servers = servers_of(LinearEngine(), Scheduling(mixed=False))
    together, apart = (closed(servers, 64, Lot(1000, 256), in_step=way) for way in (True, False))
    # In step, 64 prompts are waited for; spread, 63 others in 255 steps are a quarter each.
    assert together.ttft > 4 * apart.ttft
    assert together.tpot < apart.tpot
    alone = [closed(servers, 1, Lot(1000, 256), in_step=way) for way in (True, False)]
    assert alone[0].ttft == pytest.approx(alone[1].ttft)
    assert alone[0].tpot == pytest.approx(alone[1].tpot)


def test_room_for_all_of_the_output_is_as_good_as_places() -> None:
    engine = LinearEngine(capacity=20 * 1264)
    scheduling = Scheduling(token_budget=2048, reserve=1.0)
    served = serve(closed_load(64, 640, 1000, 256), Party(engine, scheduling))
    steady = closed(servers_of(engine, scheduling), 64, Lot(1000, 256), requests=640)
    assert served.preemptions == 0
    assert steady.ttft == pytest.approx(served.ttft.mean(), rel=0.05)
    assert steady.tpot == pytest.approx(served.tpot.mean(), rel=0.02)


def linear(prompts: Any, tokens: Any, past: Any, decodes: Any, context: Any) -> Any:
    computed = prompts * tokens
    seconds = 5e-3 + 2e-5 * (computed + decodes) + 2e-8 * context + 1e-9 * computed * past
    return seconds * ((prompts > 0) | (decodes > 0))


@pytest.mark.parametrize("settings", [{}, {"mixed": False}, {"batching": "static"}])
@pytest.mark.parametrize("requests", [None, 1000])
@pytest.mark.parametrize("in_step", [True, False])
def test_arrays_are_their_elements(
    settings: dict[str, Any], requests: int | None, in_step: bool
) -> None:
    clients, prompt, output, _ = np.array(list(cases())).T
    scheduling = Scheduling(token_budget=2048, **settings)
    servers = Servers(linear, scheduling, 64 * 4500)
    all_at_once = closed(servers, clients, Lot(prompt, output), requests=requests, in_step=in_step)
    for place in range(0, len(clients), 7):
        one = Lot(int(prompt[place]), int(output[place]))
        alone = closed(servers, int(clients[place]), one, requests=requests, in_step=in_step)
        for name in ("ttft", "tpot", "queued", "requests_per_s", "running"):
            expected = pytest.approx(getattr(alone, name), rel=1e-12, abs=1e-12)
            assert np.broadcast_to(getattr(all_at_once, name), clients.shape)[place] == expected


@pytest.mark.parametrize("settings", [{}, {"mixed": False}])
def test_no_more_than_saturation_is_served(settings: dict[str, Any]) -> None:
    scheduling = Scheduling(max_requests=64, **settings)
    load = open_load(1000, 1500, Lognormal(800, 0.8, 4000), Lognormal(200, 0.8, 1000), seed=2)
    engine = LinearEngine()
    served = serve(load, Party(engine, scheduling))
    assert load.arrival is not None
    assert load.arrival[-1] < 3
    # Between a quarter and three quarters of requests, all places are taken.
    finish = np.sort(served.finish)
    rate = (len(load) / 2) / (finish[len(load) * 3 // 4] - finish[len(load) // 4])
    largest = saturation(servers_of(engine, scheduling), Lot.of(load))
    assert largest == pytest.approx(rate, rel=0.07)


def test_a_lot_of_a_load_knows_that_longer_ones_decode_longer() -> None:
    load = closed_load(1, 2, 10, 5)
    assert Lot.of(load) == Lot(10, 5, 0, 0)
    load.output[:] = [2, 6]  # one step with 10 in the cache; five with 10 to 14
    lot = Lot.of(load)
    assert (lot.output, lot.context) == (4, (10 + 60) / 6)
