"""Traces of serving: the events of a small load by hand, and `paleo infer --trace`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click.testing
import numpy as np
import pytest
from serving import LinearEngine

import paleo
from paleo.cli import cli
from paleo.core.errors import SettingError
from paleo.step.serving.scheduling import Scheduling
from paleo.studies.serving.loads import Load
from paleo.studies.serving.scheduler import serve
from paleo.studies.serving.server import Party
from paleo.studies.serving.timeline import ServerLane, ServingTimeline, serving_timeline
from paleo.views import serving_trace

QUICK = ("infer", "llama3_2_1b", "--device=H100_SXM", "--prompt=512", "--output=32")


def small(seconds: float) -> ServingTimeline:
    """Two requests: a step takes a second, and a hundredth for each token."""
    engine = LinearEngine(a=1.0, b=0.01, c=0.0, d=0.0, capacity=1000)
    of = Scheduling(token_budget=120, max_requests=8, block=1)
    load = Load(np.array([100, 50]), np.array([3, 2]), np.zeros(2, np.int64), None, 2)
    served = serve(load, Party(engine, of), log=True)
    steps = tuple(step for step in served.log if step.start < seconds)
    lanes = (ServerLane("server 1", 1000),)
    return ServingTimeline("two", {"server": "vllm"}, seconds, lanes, steps, (0, 1), served)


def events(timeline: ServingTimeline) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(serving_trace.dumps(timeline))["traceEvents"]
    return found


def test_a_small_load_by_hand() -> None:
    # 100 of the first and 20 of the second; a token and 30; a token of each.
    every = events(small(10.0))
    steps = [(each["name"], each["ts"], each["dur"]) for each in every if each["ph"] == "X"]
    assert steps == [
        ("prompts: 2 (120 tokens)", 0, 2.2e6),
        ("prompts: 1 (30 tokens), decode: 1", 2.2e6, 1.31e6),
        ("decode: 2", 3.51e6, 1.02e6),
    ]
    counters = [(each["name"], each["ts"], each["args"]) for each in every if each["ph"] == "C"]
    # 150 tokens of prompts, and the one that the second step has put there; then both are done.
    assert counters == [
        ("server 1: waiting", 0, {"requests": 0}),
        ("server 1: cache", 0, {"percent": 15.0}),
        ("server 1: cache", 3.51e6, {"percent": pytest.approx(15.1)}),
        ("server 1: cache", 4.53e6, {"percent": 0}),
    ]
    requests = [
        (each["name"], each["ph"], each["ts"])
        for each in every
        if each.get("id2") == {"local": "1"}
    ]
    assert requests == [
        ("request", "b", 0),
        ("first token", "b", 0), ("first token", "e", 3.51e6),
        ("decoding", "b", 3.51e6), ("decoding", "e", 4.53e6),
        ("request", "e", 4.53e6),
    ]  # fmt: skip


def test_what_goes_on_is_cut_at_the_end() -> None:
    every = events(small(3.0))
    assert [each["ts"] + each["dur"] for each in every if each["ph"] == "X"] == [2.2e6, 3e6]
    assert max(each.get("ts", 0) for each in every) == 3e6
    names = [
        each["name"] for each in every if each.get("id2") == {"local": "1"} and each["ph"] == "b"
    ]
    assert names == ["request", "first token"]
    # The arguments have what it takes in all.
    (second,) = (each for each in every if each["ph"] == "X" and each["ts"])
    assert second["args"]["seconds"] == pytest.approx(1.31)


@pytest.fixture(scope="module")
def found() -> Any:
    return paleo.infer(
        "llama3_2_1b", cluster="dgx_h100", workers=3, prefill=1, tp=1, prompt=512, output=32,
        rate=20, requests=40, length_cv=1,
    )[0]  # fmt: skip


def test_a_timeline_is_of_the_simulation_that_the_answer_is_of(found: Any) -> None:
    drawn = serving_timeline(found, 1.0)
    assert [lane.name for lane in drawn.servers] == ["prompts 1", "decoding 1", "decoding 2"]
    assert drawn.servers[0].hands_over
    assert (drawn.served.first == found.served.first).all()
    assert list(drawn.requests) == [i for i in range(40) if found.served.arrival[i] < 1]
    assert all(step.start < 1 for step in drawn.steps)
    assert 0 < max(step.cached for step in drawn.steps) <= drawn.servers[0].capacity
    whole = serving_timeline(found, 1e6)
    assert sum(step.seconds for step in whole.steps) == pytest.approx(found.served.busy)
    assert sum(step.count for step in whole.steps) == found.served.steps


def test_steps_of_a_server_and_values_of_a_counter_follow_each_other(found: Any) -> None:
    every = events(serving_timeline(found, 1e6))
    for key in ("tid", "name"):
        lanes: dict[Any, float] = {}
        for each in every:
            if each["ph"] != ("X" if key == "tid" else "C"):
                continue
            assert each["ts"] >= lanes.get(each[key], -1)
            lanes[each[key]] = round(each["ts"] + each.get("dur", 0), 3)
        assert lanes
    begun = [each for each in every if each["ph"] == "b"]
    assert len(begun) == sum(each["ph"] == "e" for each in every)
    assert sum(each["name"] == "request" for each in begun) == 40


def test_what_cannot_be_traced_is_said(found: Any) -> None:
    with pytest.raises(SettingError, match="trace_seconds: expected a number above 0"):
        serving_timeline(found, 0)
    (large,) = paleo.infer("llama3_70b", device="T4", dtype="fp16", concurrency=1)
    with pytest.raises(SettingError, match="llama3_70b does not fit"):
        serving_timeline(large)


def call(*arguments: str, status: int = 0) -> click.testing.Result:
    result = click.testing.CliRunner().invoke(cli, arguments, prog_name="paleo")
    assert result.exit_code == status, result.output
    return result


def test_the_command_writes_the_largest_load(tmp_path: Path) -> None:
    file = tmp_path / "serving.json"
    result = call(*QUICK, "--concurrency=4,2", f"--trace={file}", "--trace_seconds=0.5")
    assert result.stdout.startswith("First token ")
    assert result.stderr.startswith(
        f"paleo: {file}: llama3_2_1b on H100 SXM, bf16, 4 concurrent requests, 0.5 s, "
    )
    about = json.loads(file.read_text("utf-8"))["otherData"]
    assert (about["concurrency"], about["seconds"], about["server"]) == (4, 0.5, "vllm")
    printed = call(*QUICK, "--concurrency=4", "--trace=-", "--trace_seconds=0.5").stdout
    assert printed == file.read_text("utf-8")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("infer", "resnet50"), "--trace: there is none of nets that are no language models"),
        (("infer", "gpt2", "llama3_8b"), "--trace: a timeline is of one net, here are 2"),
        ((*QUICK, "--trace_seconds=-1"), "trace_seconds: expected a number above 0, got -1.0"),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, arguments: tuple[str, ...], line: str) -> None:
    result = call(*arguments, f"--trace={tmp_path / 't.json'}", status=1)
    assert result.stderr == f"paleo: {line}\n"
    assert not (tmp_path / "t.json").exists()
