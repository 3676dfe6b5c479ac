from __future__ import annotations

import math

import numpy as np
import pytest
from serving import LinearEngine

from paleo.core.errors import SettingError
from paleo.step.serving.scheduling import Scheduling
from paleo.studies.serving.loads import Lognormal, open_load
from paleo.studies.serving.lots import Lot, Servers
from paleo.studies.serving.queueing import opened
from paleo.studies.serving.scheduler import serve
from paleo.studies.serving.server import Party

SERVERS = Servers.of(Party(LinearEngine()))
LOT = Lot(1000, 256)


def test_a_request_that_is_alone_waits_for_nobody() -> None:
    load = opened(SERVERS, 1e-6, LOT)
    # 1000 tokens: 5 ms + 20 ms + 0.5 ms; then 255 steps with 1000 to 1254 in the cache.
    assert load.steady.ttft == pytest.approx(0.0255, rel=1e-3)
    assert load.steady.tpot == pytest.approx(5.02e-3 + 1127 * 2e-8, rel=1e-3)
    assert load.stable


def test_a_load_that_outruns_the_servers_is_unstable() -> None:
    largest = opened(SERVERS, 1.0, LOT).largest_rate
    beyond = opened(SERVERS, largest * 1.01, LOT)
    assert not beyond.stable
    assert beyond.utilization == pytest.approx(1.01)
    assert beyond.steady.ttft == math.inf
    assert beyond.steady.requests_per_s == largest
    twice = opened(Servers.of(Party(LinearEngine(), replicas=2)), largest * 1.01, LOT)
    assert twice.stable
    assert twice.largest_rate == pytest.approx(2 * largest)


def test_waiting_grows_with_load_and_with_bursts() -> None:
    largest = opened(SERVERS, 1.0, LOT).largest_rate
    loads = [opened(SERVERS, share * largest, LOT) for share in (0.1, 0.3, 0.5, 0.7)]
    for name in ("ttft", "tpot", "queued", "running"):
        values = [getattr(load.steady, name) for load in loads]
        assert values == sorted(values)
    calm, bursts = (opened(SERVERS, largest / 2, LOT, cv=cv).steady for cv in (0.5, 2))
    assert calm.queued < loads[2].steady.queued < bursts.queued


@pytest.mark.slow
@pytest.mark.parametrize("mixed", [True, False])
@pytest.mark.parametrize(("prompt", "output"), [(1000, 256), (4000, 500), (200, 1000)])
def test_light_loads_agree_with_simulations(mixed: bool, prompt: int, output: int) -> None:
    party = Party(LinearEngine(), Scheduling(mixed=mixed))
    servers, lot = Servers.of(party), Lot(prompt, output)
    largest = opened(servers, 1e-6, lot).largest_rate
    for share in (0.02, 0.2, 0.4):
        rate = float(share * largest)
        served = serve(open_load(rate, 2000, prompt, output, seed=1), party)
        steady = opened(servers, rate, lot).steady
        middle = slice(300, 1700)
        assert steady.ttft == pytest.approx(served.ttft[middle].mean(), rel=0.12)
        assert steady.tpot == pytest.approx(served.tpot[middle].mean(), rel=0.12)
        assert steady.running == pytest.approx(served.mean_running, rel=0.15)


def test_loads_of_lengths_that_differ() -> None:
    load = open_load(4, 3000, Lognormal(1000, 0.7), Lognormal(200, 0.7), seed=3)
    party = Party(LinearEngine())
    served = serve(load, party)
    steady = opened(Servers.of(party), 4, Lot.of(load), prompt_cv=0.7).steady
    assert steady.tpot == pytest.approx(served.tpot.mean(), rel=0.1)
    assert steady.ttft == pytest.approx(served.ttft.mean(), rel=0.15)


def test_arrays_are_their_elements() -> None:
    rates = np.array([0.5, 5.0, 500.0])

    def step(prompts: float, tokens: float, past: float, decodes: float, context: float) -> float:
        return 5e-3 + 2e-5 * (prompts * tokens + decodes) + 2e-8 * context

    servers = Servers(step, Scheduling(max_requests=64))
    together = opened(servers, rates, LOT)
    assert together.stable.tolist() == [True, True, False]
    for place, rate in enumerate(rates.tolist()):
        alone = opened(servers, rate, LOT)
        for name in ("ttft", "tpot", "running"):
            expected = pytest.approx(getattr(alone.steady, name), rel=1e-12)
            assert getattr(together.steady, name)[place] == expected


def test_static_batches_have_no_closed_form() -> None:
    static = Servers.of(Party(LinearEngine(), Scheduling(batching="static")))
    with pytest.raises(SettingError, match="batching: no closed form of static batches"):
        opened(static, 1.0, LOT)
