"""Memory that all-reduces hold, and a server whose host hands over kernels, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from served_points import prices_on

from paleo.cluster.servers import SERVERS
from paleo.measure.validate.served import prices_of
from paleo.step.serving.deployment import Deployment
from paleo.step.serving.held import held_bytes, renewing_seconds
from paleo.step.serving.prices import Degrees

OLD = SERVERS["vllm_2023"]
#: Llama 3 8B on two A100: 32 blocks with two sums each and the words', of 4096 halves.
A_TOKEN = 65 * 2 * 4096


def test_what_is_reduced_is_held() -> None:
    prices = prices_on("llama3_8b", 2)
    assert held_bytes(prices, 1000) == 1000 * A_TOKEN
    assert held_bytes(prices_on("llama3_8b", 1), 1000) == 0
    # A page of 2 MiB takes 126 us; 1000 tokens lack 532,480,000 - 500,000,000 bytes.
    assert renewing_seconds(prices, 1000, 5e8) == pytest.approx(32.48e6 / 2**21 * 126e-6)
    assert renewing_seconds(prices, 1000, 6e8) == 0


def test_long_prompts_get_memory_anew() -> None:
    prices = prices_on("llama3_8b", 2)
    deployments = [
        Deployment(prices, replace(OLD, holds_reduced=holds), length=600, token_budget=40_000)
        for holds in (True, False)
    ]
    prompts = [(512, 0)] * 64
    held, freed = (each.seconds(prompts, 0, 0) for each in deployments)
    # 32,768 tokens hold 17.4 GB, of which a tenth of 80 GiB is free.
    lacking = 32_768 * A_TOKEN - 8 * 2**30
    assert held - freed == pytest.approx(lacking / 2**21 * 126e-6)
    few = [each.seconds(prompts[:4], 0, 0) for each in deployments]
    assert few[0] == few[1]


def test_groups_of_attention_have_hosts_of_their_own() -> None:
    halves = ("bf16", "bf16", "", "bf16")
    server = replace(SERVERS["sglang"], step_host=1e-3, request_host=20e-6)
    degrees = Degrees(8, 1, 1, attention_dp=4)
    prices = prices_of("llama3_8b", "H100_SXM", "sglang", halves, "", degrees)
    deployment = Deployment(prices, server, length=600, token_budget=4096)
    # 200 requests are 50 of each group; one alone is in one of them.
    assert deployment.host_seconds(200) == pytest.approx(1e-3 + 50 * 20e-6)
    assert deployment.host_seconds(1) == pytest.approx(1e-3 + 20e-6)
    assert deployment.host_seconds(0) == 1e-3


def test_its_host_hands_over_every_kernel() -> None:
    prices = prices_on("llama3_8b", 2)
    deployment = Deployment(prices, OLD, length=600, token_budget=4096)
    # A step of one token is bound by the host: 42 us a kernel, 11 ms, 0.4 ms for the request.
    expected = prices.program.kernels * 42e-6 + 11e-3 + 0.4e-3
    assert deployment.seconds((), 1, 500) == pytest.approx(expected)
