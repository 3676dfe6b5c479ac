from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from serving import LinearEngine

from paleo.step.serving.scheduling import Scheduling
from paleo.studies.serving.disaggregated import disaggregated, saturation
from paleo.studies.serving.loads import closed_load
from paleo.studies.serving.lots import Lot, Servers
from paleo.studies.serving.scheduler import Link, serve
from paleo.studies.serving.server import Party

#: A step takes a second, and a hundredth for each token.
ENGINE = LinearEngine(a=1.0, b=0.01, c=0.0, d=0.0)
SMALL = Scheduling(token_budget=120, max_requests=8, block=1)
SERVERS = Servers.of(Party(ENGINE, SMALL))


def test_one_client() -> None:
    steady = disaggregated(SERVERS, SERVERS, 1, Lot(100, 3), 0.5)
    # A prompt of 2 s, half a second on the link, and 1.01 twice.
    assert (steady.ttft, steady.tpot) == (pytest.approx(2.5), pytest.approx(1.01))
    assert steady.requests_per_s == pytest.approx(1 / 4.52)
    shown = disaggregated(SERVERS, SERVERS, 1, Lot(100, 3), 0.5, shows_first=True)
    assert (shown.ttft, shown.tpot) == (pytest.approx(2.0), pytest.approx(1.01 + 0.25))


def test_a_prompt_in_parts_is_their_sum() -> None:
    # 120, 120 and 10.
    assert disaggregated(SERVERS, SERVERS, 1, Lot(250, 2), 0).ttft == pytest.approx(2.2 + 2.2 + 1.1)


def test_what_is_slowest_says_the_rate() -> None:
    lot = Lot(120, 3)
    # Prompts 2.2 s each; eight that decode in 2 x 1.08 s; a link of two lanes.
    assert saturation(SERVERS, SERVERS, lot, 1.0) == pytest.approx(1 / 2.2)
    assert saturation(SERVERS, SERVERS, lot, 10.0, lanes=2) == pytest.approx(1 / 5)
    many = Servers.of(Party(ENGINE, SMALL, 100))
    assert saturation(many, SERVERS, lot, 1.0) == pytest.approx(8 / 2.16)
    # What waits for prompts waits before the first token.
    steady = disaggregated(SERVERS, SERVERS, 50, lot, 0.0)
    assert steady.requests_per_s == pytest.approx(1 / 2.2)
    assert steady.latency == pytest.approx(50 * 2.2)
    # What waits for a place to decode, behind it.
    late = disaggregated(many, SERVERS, 400, lot, 0.0)
    assert late.queued == 0
    assert late.ttft == pytest.approx(2.2)
    assert late.latency == pytest.approx(400 / (8 / 2.16))


CASES = [
    (clients, prompt, output, prefills, decodes)
    for clients in (1, 8, 64)
    for prompt, output in ((1000, 256), (4000, 500), (2000, 20))
    for prefills, decodes in ((1, 1), (1, 4), (4, 1))
]


@pytest.mark.slow
def test_closed_forms_agree_with_simulations() -> None:
    engine, scheduling = LinearEngine(), Scheduling()
    rows: list[Any] = []
    for clients, prompt, output, prefills, decodes in CASES:
        prefill, decode = (Party(engine, scheduling, count) for count in (prefills, decodes))
        requests = max(10 * clients, 20)
        load = closed_load(clients, requests, prompt, output)
        served = serve(load, decode, prefill, Link(lambda tokens: tokens * 1e-6, lanes=64))
        means = disaggregated(
            Servers.of(prefill),
            Servers.of(decode),
            clients,
            Lot(prompt, output),
            prompt * 1e-6,
            lanes=64,
            requests=requests,
        )
        rows.append(
            [
                means.ttft / served.ttft.mean() - 1,
                means.tpot / served.tpot.mean() - 1,
                means.requests_per_s / served.requests_per_s - 1,
            ]
        )
    found = np.abs(np.array(rows))
    # How prompts drift apart is half a guess, but they matter where there are many.
    assert found[:, 0].mean() < 0.15
    assert found[:, 1:].mean() < 0.02
    assert found[:, 1:].max() < 0.12
