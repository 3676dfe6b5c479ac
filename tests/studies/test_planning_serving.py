"""The best deployment of all: as the best of arrays of them, under limits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import paleo
from paleo.core.errors import PaleoError, SettingError
from paleo.studies.planning import Planning, best_plans

NET = "llama3_2_1b"
#: Deployments of which tp and how many requests there are differ.
FEW: dict[str, Any] = {
    "serve": True,
    "cluster": "dgx_h100",
    "workers": [2, 4],
    "tp": [1, 2],
    "pp": 1,
    "dtype": "bf16",
    "concurrency": [1, 16, 256],
    "prompt": 600,
    "output": 51,
}


def planned(**settings: Any) -> Planning:
    return best_plans(NET, **{**FEW, **settings})


def arrays() -> Any:
    named = {name: value for name, value in FEW.items() if name != "serve"}
    return paleo.deployments(NET, **named)


def test_the_cheapest_that_keeps_both_limits_is_the_cheapest_of_all() -> None:
    every = arrays()
    limit = float(np.sort(every["tpot_s"])[7])
    found = planned(objective="cost", ttft=0.1, tpot=limit)
    keeps = (every["ttft_s"] <= 0.1) & (every["tpot_s"] <= limit)
    assert 0 < keeps.sum() < len(every) == 12
    assert (found.considered, found.feasible) == (12, int(keeps.sum()))
    # Money for as many tokens goes with the time of devices for each.
    spent = every["latency_s"] * every["num_workers"] / every["concurrency"]
    place = int(np.argmin(np.where(keeps, spent, np.inf)))
    best = found.best
    for name in ("tp", "num_workers", "concurrency"):
        assert best.settings[name] == every[name][place]
    assert best.ttft == pytest.approx(every["ttft_s"][place], rel=1e-9)
    assert best.tpot == pytest.approx(every["tpot_s"][place], rel=1e-9)
    price = best.rates.price
    assert price is not None
    hours = 1e6 / 51 * spent[place] / 3600
    assert best.cost() == pytest.approx(hours * price.amount, rel=1e-9)


@pytest.mark.parametrize(
    ("objective", "of"),
    [
        ("latency", lambda every: every["latency_s"]),
        ("time", lambda every: every["latency_s"] / every["concurrency"]),
        (None, lambda every: every["latency_s"] * every["num_workers"] / every["concurrency"]),
    ],
)
def test_objectives(objective: str | None, of: Any) -> None:
    found = planned(objective=objective)
    every = arrays()
    place = int(np.argmin(of(every)))
    best = found.best.settings
    assert (best["tp"], best["num_workers"], best["concurrency"]) == tuple(
        every[name][place] for name in ("tp", "num_workers", "concurrency")
    )


def test_its_options_are_those_of_infer() -> None:
    best = planned(tpot="3 ms").best
    given = dict(option.removeprefix("--").split("=") for option in best.options.split())
    workers = int(given.pop("num_workers"))
    numbers = ("tp", "concurrency", "prompt", "output")
    settings: dict[str, Any] = {
        name: int(value) if name in numbers else value for name, value in given.items()
    }
    (served,) = paleo.infer(NET, workers=workers, length_cv=0, **settings)
    assert served.tpot is not None
    assert served.tpot.mean == pytest.approx(best.tpot, rel=0.05)


def test_a_row_has_latencies_rates_memory_and_cost() -> None:
    row = planned().to_dict()["plans"][0]
    best = planned().best
    assert row["ttft_s"] + 50 * row["tpot_s"] == pytest.approx(row["latency_s"])
    assert row["requests_per_s"] == pytest.approx(row["concurrency"] / row["latency_s"])
    assert row["tokens_per_s"] == pytest.approx(51 * row["requests_per_s"])
    assert row["dtype"] == "bf16"
    assert row["memory_bytes"] == best.memory > 2 * 1_235_814_400 / row["tp"]
    assert {"cost", "kv_dtype", "attention_dp", "prefill", "ep", "pp", "cluster"} <= row.keys()


def test_without_a_number_of_devices_there_is_one_copy_or_some_for_prompts() -> None:
    found = best_plans(
        NET, 1000, serve=True, cluster="dgx_h100", tp=2, pp=1, dtype="bf16", concurrency=[4, 8]
    )
    devices = {(plan.workers, plan.settings["prefill"]) for plan in found.plans}
    # Copies of 2: one for all; 1, 2 or 3 of 2, 3 or 4 for prompts.
    assert devices == {(2, 0), (4, 2), (6, 2), (6, 4), (8, 2), (8, 6)}
    few = best_plans(NET, 1000, serve=True, cluster="dgx_h100", max_devices=2, concurrency=4)
    assert {plan.workers for plan in few.plans} == {1, 2}
    assert {plan.settings["dtype"] for plan in few.plans} == {"bf16", "fp8"}


def test_devices_compete() -> None:
    found = best_plans(
        NET, serve=True, device=["T4", "H100_SXM"], concurrency=8, tp=1, pp=1, tpot="60 ms"
    )
    assert found.best.place == "H100_SXM"
    (other,) = [each for each in found.alternatives if each.setting == "place"]
    assert other.plan is not None
    # A T4 has no bf16, and no fp8.
    assert other.plan.settings["dtype"] == "fp16"


def test_experts_are_shared_or_not() -> None:
    found = best_plans(
        "qwen1_5_moe_a2_7b", 100, serve=True, cluster="dgx_h100", workers=4, tp=4, pp=1,
        dtype="bf16", concurrency=16,
    )  # fmt: skip
    ways = {(plan.settings["ep"], plan.settings["attention_dp"]) for plan in found.plans}
    assert ways == {(1, 1), (4, 1), (1, 4), (4, 4)}


def test_limits_that_none_keeps_say_by_how_much_the_nearest_misses() -> None:
    every = arrays()
    with pytest.raises(SettingError) as raised:
        planned(tpot="0.1 ms")
    said = str(raised.value)
    assert "no plan keeps to all limits: of 12, 12 by tpot do not" in said
    least = every["tpot_s"].min()
    assert f"the nearest needs {1e3 * least:.4g} ms of 0.1 ms" in said


def test_what_does_not_fit_says_what_it_needs() -> None:
    with pytest.raises(SettingError, match="1 by memory do not\nmemory: the nearest needs 1"):
        best_plans("llama3_70b", serve=True, device="T4", tp=1, pp=1, concurrency=1, dtype="fp16")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"ttft": 1, "serve": False}, "ttft: is of deployments of a language model: give --serve"),
        ({"zero": 1}, "zero: is not for --serve"),
        ({"batch_size": 1}, "batch_size: is not for --serve"),
        ({"prefill": 2, "workers": None}, "prefill: say of how many devices in all"),
        ({"dtype": "fp32"}, "language models are not served in fp32"),
        ({"server": "vlm"}, "vllm"),
        ({"tpot": "3 m"}, "tpot: "),
    ],
)
def test_mistakes_are_said(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(PaleoError, match=said):
        planned(**settings)


def test_only_language_models_are_deployed() -> None:
    with pytest.raises(PaleoError, match="resnet50: it is no language model"):
        best_plans("resnet50", serve=True, device="T4")


def test_number_types_of_deployments_are_none_of_training() -> None:
    with pytest.raises(PaleoError, match="nvfp4"):
        best_plans("gpt2", cluster="dgx_a100", workers=8, dtype="nvfp4")
