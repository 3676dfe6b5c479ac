"""`paleo plan --serve`: what it says first, its table, JSON and mistakes."""

from __future__ import annotations

import json
import re
from typing import Any

import click.testing
import pytest

from paleo.cli import cli

#: Few deployments: of one device or two, of few requests or many.
FEW = (
    *("llama3_2_1b", "--serve", "--cluster=dgx_h100", "--num_workers=2", "--tp=1,2", "--pp=1"),
    *("--dtype=bf16", "--concurrency=2,64", "--prompt=600", "--output=51", "--objective=cost"),
)


def call(*arguments: str, status: int = 0) -> click.testing.Result:
    result = click.testing.CliRunner().invoke(cli, ["plan", *arguments], prog_name="paleo")
    assert result.exit_code == status, result.output
    return result


def as_json(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(call(*arguments, "--format=json").stdout)
    return found


def test_the_best_deployment_comes_first_in_words() -> None:
    text = " ".join(call(*FEW, "--ttft=500 ms", "--tpot=30 ms").stdout.split())
    said = re.match(
        r"Best: dgx h100, 2 devices, tp 1, 64 requests: first token about (\d+) ms "
        r"\([\d.]+ to [\d.]+ ms\), then about ([\d.]+) ms \([\d.]+ to [\d.]+ ms\) a token, about "
        r"[\d,]+ tokens/s/device \(80 % of measured cases: [\d,]+ to [\d,]+\), about ([\d.]+) USD "
        r"\([\d.]+ to [\d.]+\) for a million tokens of answers, [\d.]+ of "
        r"80 GiB\. Runner-up: tp 2, which costs [\d.]+ % more\.",
        text,
    )
    assert said, text
    best = as_json(*FEW, "--ttft=500 ms", "--tpot=30 ms")["plans"][0]
    # Two digits are said at least.
    assert float(said[1]) == pytest.approx(1e3 * best["ttft_s"], rel=0.05)
    assert float(said[2]) == pytest.approx(1e3 * best["tpot_s"], rel=0.05)
    assert "plans considered: 4 can be, 4 fit" in text
    assert "--tp=1" not in text  # as few as hold it: not said in options
    assert "--concurrency=64 --prompt=600 --output=51" in text
    assert "first other latency token tokens" in text  # the columns


def test_places_are_hosts_of_eight_unless_told_otherwise() -> None:
    found = as_json(*(each for each in FEW if "cluster" not in each), "--top=20")
    assert {plan["cluster"] for plan in found["plans"]} == {
        "dgx_a100", "dgx_h100", "hgx_h200", "hgx_b200",
    }  # fmt: skip


def test_json_has_deployments_best_first() -> None:
    found = as_json(*FEW, "--tpot=30 ms")
    assert (found["considered"], found["feasible"]) == (4, 4)
    assert found["limits"] == [{"name": "tpot", "most": 0.03}]
    costs = [plan["cost"] for plan in found["plans"]]
    assert costs == sorted(costs)
    keys = {"ttft_s", "tpot_s", "latency_s", "tokens_per_s", "memory_bytes", "cost", "num_workers"}
    keys |= {"tp", "pp", "ep", "attention_dp", "dtype", "kv_dtype", "concurrency", "server"}
    assert keys <= found["plans"][0].keys()
    assert found["cost_of"] == "a million tokens of answers"


def test_the_table_of_many_has_both_times() -> None:
    header, row, *_ = call(*FEW, "--format=csv").stdout.splitlines()
    values = dict(zip(header.split(","), row.split(","), strict=True))
    assert float(values["ttft_s"]) > float(values["tpot_s"]) > 0
    assert values["concurrency"] == "64"


def test_limits_that_none_keeps_say_how_far_the_nearest_is() -> None:
    said = call(*FEW, "--tpot=1 us", status=1).output
    assert "no plan keeps to all limits: of 4, 4 by tpot do not" in said
    assert re.search(r"tpot: the nearest needs [\d.]+ ms of 1 us, [\d,]+ times as much", said)


def test_each_mistake_is_a_line() -> None:
    said = call("llama3_2_1b", "--device=T4", "--prompt=5", "--tpot=1 ms", status=1).output
    assert said.splitlines() == [
        "paleo: tpot: is of deployments of a language model: give --serve, too",
        "paleo: prompt: is of deployments of a language model: give --serve, too",
    ]
