"""`paleo plan`: what it says first, its table, JSON, the front, pictures and mistakes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click.testing
import pytest

from paleo.cli import cli

#: Few plans of a language model, of which two degrees and two stages of ZeRO differ.
FEW = (
    *("gpt2", "--cluster=dgx_a100", "--num_workers=8", "--global_batch=64", "--dtype=bf16"),
    *("--tp=1,2", "--pp=1", "--micro_batch=8", "--zero=0,1", "--interleave=1"),
    *("--recompute=none", "--no_sequence_parallel"),
)
SERVING = ("resnet50", "--device=T4,L4", "--objective=cost", "--latency=20 ms", "--batch_size=1,4")


def call(*arguments: str, status: int = 0) -> click.testing.Result:
    """Run `paleo plan` without a process."""
    result = click.testing.CliRunner().invoke(cli, ["plan", *arguments], prog_name="paleo")
    assert result.exit_code == status, result.output
    return result


def as_json(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(call(*arguments, "--format=json").stdout)
    return found


def test_the_best_comes_first_in_words() -> None:
    text = " ".join(call(*FEW).stdout.split("\n\n")[0].split())
    best, second = as_json(*FEW)["plans"][:2]
    said = re.match(
        r"Best: dgx a100, 8 devices, tp (\d), pp 1, dp (\d), 64 samples, micro-batch 8, ZeRO (\d), "
        r"no recomputation: about [\d,]+ tokens/s/device \(80 % of measured cases: [\d,]+ to "
        r"[\d,]+\), about [\d.]+ ms \([\d.]+ to [\d.]+ ms\) a step, about [\d.]+ USD "
        r"\([\d.]+ to [\d.]+\) for a million tokens, [\d.]+ of 80 GiB\. Runner-up: ([^,]+), which "
        r"takes ([\d.]+) % longer\. Why others are behind: tp \d takes",
        text,
    )
    assert said, text
    assert [int(said[1]), int(said[2]), int(said[3])] == [best["tp"], best["dp"], best["zero"]]
    assert said[4] == f"ZeRO {second['zero']}"
    assert float(said[5]) == pytest.approx(100 * (second["step_s"] / best["step_s"] - 1), abs=0.06)


def test_json_has_plans_best_first_by_the_names_of_options() -> None:
    found = as_json(*FEW)
    assert (found["considered"], found["possible"], found["feasible"]) == (4, 4, 4)
    assert [plan["step_s"] for plan in found["plans"]] == sorted(
        plan["step_s"] for plan in found["plans"]
    )
    keys = {"num_workers", "tp", "pp", "dp", "micro_batch", "global_batch", "zero", "interleave"}
    keys |= {"recompute", "schedule", "step_s", "tokens_per_s", "memory_bytes", "cost", "cluster"}
    for plan in found["plans"]:
        assert keys <= set(plan)
        assert plan["tokens_per_s"] == pytest.approx(64 * 1024 / plan["step_s"])
    assert len(as_json(*FEW, "--top=2")["plans"]) == 2
    assert found["front"][0]["step_s"] == found["plans"][0]["step_s"]


def test_a_plan_is_that_of_simulate_with_its_options() -> None:
    """The footnote has options by which `simulate` says the same."""
    text = " ".join(call(*FEW).stdout.split())
    options = text.split("the best as options: ")[1].split(" cost: of")[0].split()
    best = as_json(*FEW)["plans"][0]
    words = ["simulate", "gpt2", "--parallel=mesh", "--format=json", *options]
    result = click.testing.CliRunner().invoke(cli, words, prog_name="paleo")
    assert result.exit_code == 0, result.output
    (row,) = json.loads(result.stdout)["runs"][0]["rows"]
    assert row["step_s"] == pytest.approx(best["step_s"], rel=1e-12)
    assert row["memory_bytes"] == best["memory_bytes"]


def test_serving_is_of_one_device_within_a_latency() -> None:
    found = as_json(*SERVING)
    assert all(plan["latency_s"] <= 0.020 for plan in found["plans"])
    assert all("step_s" not in plan for plan in found["plans"])
    costs = [plan["cost"] for plan in found["plans"]]
    assert costs == sorted(costs)
    assert found["cost_of"] == "a million samples"
    assert found["limits"] == [{"name": "latency", "most": 0.02}]
    text = " ".join(call(*SERVING).stdout.split())
    assert re.match(r"Best: \w+, batch \d+: about [\d,.]+ images/s \(", text), text
    assert " a batch, about " in text


@pytest.mark.parametrize(("arguments", "time"), [(FEW, "step"), (SERVING, "latency")])
def test_no_column_is_empty(arguments: tuple[str, ...], time: str) -> None:
    """What has no tokens that come one by one has no columns of them."""
    header = call(*arguments, "--format=markdown").stdout.split("\n| ---")[0].splitlines()[-1]
    titles = [title.strip() for title in header.strip("|").split("|")]
    assert re.sub(r" \(m?s\)", "", titles[2]) == time
    assert not any("token" in title and "/s" not in title for title in titles)


@pytest.mark.alike
def test_the_front_and_formats_for_programs() -> None:
    front = as_json(*FEW)["front"]
    rows = call(*FEW, "--front", "--format=csv").stdout.splitlines()
    assert len(rows) == 1 + len(front)
    text = call(*FEW, "--front").stdout
    assert "no other is better in time, cost and memory of gpt2" in text
    assert max(map(len, text.splitlines())) <= 100
    assert "Speed of the best plans of gpt2" in call(*FEW, "--plot=-").stdout


@pytest.mark.alike
def test_a_picture_has_rates_and_the_front(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "plans.svg"
    call(*FEW, f"--plot={path}")
    assert path.read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["gpt2", "--tp="], 1, "paleo: tp: expected one or more, got none"),
        (["gpt2", "--stages=even"], 2, "No such option '--stages'"),
        (["gpt2", "--columns=step", "--format=json"], 2, "are for tables, not JSON"),
        (["resnet50", "--vary=scale_input=1,2"], 1, "vary: a plan is of one net"),
        (["resnet50", "--device=T4", "--latency=1 us"], 1, "latency: the nearest needs "),
    ],
)
def test_mistakes_are_clear_lines(arguments: list[str], status: int, said: str) -> None:
    result = call(*arguments, status=status)
    assert said in result.stderr
    assert "Traceback" not in result.stderr
