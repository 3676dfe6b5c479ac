"""Deployments as arrays: as one at a time, as simulated, and their memory by hand."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import paleo
from paleo.cluster.servers import SERVERS
from paleo.core.errors import PaleoError, SettingError
from paleo.step.declarations import declared
from paleo.step.scenario import scenario
from paleo.studies.serving.deployments import Deployments, deployments
from paleo.studies.serving.disaggregated import disaggregated
from paleo.studies.serving.lots import Lot, Servers, Steady
from paleo.studies.serving.placing import Model, find_model, moving_of, placed, scheduling_of
from paleo.studies.serving.server import Party
from paleo.studies.serving.settings import InferSettings
from paleo.studies.serving.steady import closed

NET = "llama3_2_1b"
#: Prompts of less than a step's tokens and of more, few clients and more than run at once.
LOADS: dict[str, Any] = {
    "prompt": [300, 9000],
    "output": [2, 120],
    "concurrency": [7, 90],
}
NONE = "no known one has so many"
TIMES = ("ttft_s", "tpot_s", "latency_s", "requests_per_s", "tokens_per_s", "running")


@functools.cache
def model() -> Model:
    return find_model(NET, None)


def one_by_one(found: Deployments, place: int, **more: Any) -> Steady:
    """Return the same by functions of numbers, from the settings of one deployment."""
    own = found.at(place) | more
    plan = found.plans[found["place"][place]]
    known = {name: setting.default for name, setting in declared(InferSettings).items()}
    asked = known | own | {"server": SERVERS[more.get("server", "vllm")]}
    if "prefill" not in own:
        asked["prefill"] = None
    length = own["prompt"] + own["output"]
    one = placed(model(), plan, own["dtype"], asked, length)
    lot = Lot(own["prompt"], own["output"], int(own["prompt"] * own.get("hit_rate", 0)))
    count = own["concurrency"]

    def servers(deployment: Any, copies: int) -> Servers:
        scheduling = scheduling_of(deployment, "continuous", own.get("max_requests"))
        return Servers.of(Party(deployment, scheduling, copies))

    decode = servers(one.deployment, one.copies)
    if not one.prefill:
        return closed(decode, count, lot, requests=10 * count)
    groups = one.prefill.prices.degrees.attention_dp
    return disaggregated(
        servers(one.prefill, one.prefill_copies), decode, count, lot,
        moving_of(plan, one.prefill)(lot.prompt), lanes=one.prefill_copies * groups,
        requests=10 * count,
    )  # fmt: skip


def assert_as_one_by_one(found: Deployments, **more: Any) -> None:
    assert found.fits.all()
    for place in range(len(found)):
        steady = one_by_one(found, place, **more)
        # Behind the server's frontend, to clients, all comes that much later.
        before = SERVERS[more.get("server", "vllm")].first_host
        expected = (
            steady.ttft + before, steady.tpot, steady.latency + before, steady.requests_per_s,
            steady.tokens_per_s, steady.running,
        )  # fmt: skip
        values = [found[name][place] for name in TIMES]
        assert values == pytest.approx(expected, rel=1e-9), found.at(place)


@pytest.mark.parametrize(("server", "hits"), [("vllm", 0), ("sglang", 0.5), ("trtllm", 0)])
def test_arrays_are_as_deployments_one_by_one(server: str, hits: float) -> None:
    found = deployments(model().net, device="H100_SXM", hit_rate=hits, server=server, **LOADS)
    assert len(found) == 2 * 2 * 2
    assert_as_one_by_one(found, server=server)


def test_so_they_are_where_devices_share_a_copy() -> None:
    found = deployments(
        model().net, cluster="dgx_h100", workers=[4, 8], tp=[1, 4], kv_dtype="fp8",
        max_requests=[None, 5], prompt=700, output=30, concurrency=[3, 50],
    )  # fmt: skip
    assert len(found) == 16
    assert_as_one_by_one(found)


def test_so_they_are_where_prompts_are_computed_apart() -> None:
    found = deployments(
        model().net, cluster="dgx_h100", workers=6, prefill=[2, 4], prefill_tp=2, tp=[1, 2],
        prompt=700, output=30, concurrency=50,
    )  # fmt: skip
    assert len(found) == 4
    assert_as_one_by_one(found)


def test_so_they_are_where_tokens_are_drafted() -> None:
    found = deployments(NET, device="H100_SXM", drafts=3, acceptance=0.5, prompt=300)
    assert_as_one_by_one(found, drafts=3, acceptance=0.5)


def test_they_agree_with_a_simulation() -> None:
    found = deployments(NET, cluster="dgx_h100", workers=2, prompt=800, output=[40], tp=[1, 2])
    for place in range(len(found)):
        (served,) = paleo.infer(NET, length_cv=0, **found.at(place))
        row = served.to_dict()
        assert found["tpot_s"][place] == pytest.approx(row["tpot_s"], rel=0.05)
        assert found["tokens_per_s"][place] == pytest.approx(row["tokens_per_s"], rel=0.05)
        assert found["ttft_s"][place] == pytest.approx(row["ttft_s"], rel=0.25)
        assert found["max_concurrency"][place] == row["max_concurrency"]
        assert found["memory_bytes"][place] == pytest.approx(row["memory_bytes"], rel=0.02)


def test_they_agree_with_a_simulation_where_prompts_are_computed_apart() -> None:
    """Within what docs/plan.md says."""
    found = deployments(
        "llama3_8b", cluster="dgx_h100", workers=4, prefill=[1, 2], tp=1, dtype="fp8", prompt=1024,
        output=256, concurrency=[8, 32, 128],
    )  # fmt: skip
    assert len(found) == 6
    for place in range(len(found)):
        (served,) = paleo.infer("llama3_8b", length_cv=0, **found.at(place))
        row = served.to_dict()
        assert found["tpot_s"][place] == pytest.approx(row["tpot_s"], rel=0.05)
        assert found["tokens_per_s"][place] == pytest.approx(row["tokens_per_s"], rel=0.05)
        assert found["ttft_s"][place] == pytest.approx(row["ttft_s"], rel=0.5)


def test_memory_by_hand() -> None:
    found = deployments("llama3_8b", device="H100_SXM", prompt=500, output=[12, 13], concurrency=2)
    # 8,030,261,248 parameters; of each position 8 heads of 128 keys and values in 32 layers, 2
    # bytes each; 512 positions are 32 blocks of 16, 513 are 33.
    per_token = 2 * 8 * 128 * 32 * 2
    held = found["memory_bytes"] - 2 * per_token * np.array([512, 528])
    assert held[0] == held[1] > 2 * 8_030_261_248
    room = 0.9 * 80 * 2**30 - held[0]
    expected = (room / per_token / np.array([512, 528])).astype(int)
    assert found["max_concurrency"].tolist() == expected.tolist()


def test_what_cannot_be_says_why() -> None:
    found = deployments(
        NET, cluster="dgx_h100", tp=[3, 8, 16], workers=[8, 10**6], prompt=[100, 200_000],
        concurrency=1,
    )  # fmt: skip
    reasons = dict.fromkeys(map(str, found.reasons.tolist()))
    assert list(reasons) == [
        "tp: 32 and 8 heads of model/layers/*/self_attn/attention do not divide 3 ways",
        "",
        "prompt: with its answer it has more than 131,072 positions",
        f"num_workers: {10**6} devices, but cluster dgx_h100 has 16384 at most; {NONE}",
        "num_workers: a copy is on 16 devices, which do not divide them",
    ]
    assert np.isnan(found["ttft_s"][~found.valid]).all()
    assert found.valid.sum() == 1


def test_what_does_not_fit_has_no_times() -> None:
    found = deployments("llama3_70b", device=["T4", "H100_SXM"], concurrency=1)
    assert found.valid.tolist() == [False, True] or found.valid.all()
    assert not found.fits.any()
    assert np.isnan(found["tpot_s"]).all()
    capacity = found.plans[1].device.memory_capacity
    assert capacity is not None
    assert found["memory_bytes"][1] > capacity


def test_the_best_has_most_tokens_of_a_device() -> None:
    found = deployments(NET, device="H100_SXM", concurrency=[1, 64, 8])
    assert found.best(2) == [1, 2]
    assert found.at(1)["concurrency"] == 64
    price = found.rates[0].price
    assert price is not None
    hours = 1e6 / found["tokens_per_s"] / 3600
    assert found.cost_per_million == pytest.approx(price.amount * hours)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"rate": 3}, "rate: deployments as arrays are of closed loads of equal requests"),
        ({"tp": [1, 0]}, "tp: expected a whole number from 1 to"),
        ({"concurrency": []}, "concurrency: expected one value at least"),
        ({"dtype": ["fp8", "fp9"]}, "dtype: .*fp9"),
        ({"hit_rate": [2]}, "hit_rate: expected a number from 0 to 1"),
    ],
)
def test_mistakes_are_said(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(PaleoError, match=said):
        deployments(NET, device="H100_SXM", **settings)


def test_only_language_models_are_deployed() -> None:
    with pytest.raises(SettingError, match="it is no language model"):
        deployments("resnet50", device="H100_SXM")


def test_a_scenario_of_itself_is_of_one_device() -> None:
    found = deployments(NET, device="H100_SXM", concurrency=1)
    assert found.plans[0].device == scenario(NET, device="H100_SXM").plan.device
