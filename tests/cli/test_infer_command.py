"""`paleo infer`: options, sentences, tables, JSON and mistakes."""

from __future__ import annotations

import json
from typing import Any

import click.testing
import pytest

from paleo.cli.main import cli

QUICK = (
    "infer",
    "llama3_2_1b",
    "--device=H100_SXM",
    "--prompt=512",
    "--length_cv=0",
    "--output=32",
)


def call(*arguments: str, status: int = 0) -> str:
    result = click.testing.CliRunner().invoke(cli, [*arguments], prog_name="paleo")
    assert result.exit_code == status, result.output
    return result.stdout if status == 0 else result.stderr


def rows(*arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(call(*arguments, "--format=json"))["rows"]
    return found


def test_the_answer_comes_first_and_then_a_row_for_each_load() -> None:
    lines = call(*QUICK, "--concurrency=1,4").splitlines()
    assert lines[0].startswith("First token ")
    text = " ".join(lines[:3])
    assert "a token at 4 concurrent requests" in text
    assert "requests fit." in text
    assert "llama3_2_1b on H100 SXM, bf16, vLLM on 1 device" in lines
    assert [line.split()[0] for line in lines if line.strip().startswith(("1 ", "4 "))] == [
        "1",
        "4",
    ]
    assert "steps on one device" in lines


def test_output_is_of_answers() -> None:
    (short,) = rows(*QUICK, "--concurrency=1")
    (long,) = rows(*QUICK[:-1], "--output=64", "--concurrency=1")
    assert long["latency_s"] > short["latency_s"]
    # The first token is with the prompt, and each other one takes as long.
    assert short["latency_s"] == pytest.approx(short["ttft_s"] + 31 * short["tpot_s"])
    assert long["latency_s"] == pytest.approx(long["ttft_s"] + 63 * long["tpot_s"])


def test_json_and_csv_have_the_same_rows() -> None:
    arguments = (*QUICK, "--concurrency=1,2")
    header, *lines = call(*arguments, "--format=csv").splitlines()
    names = header.split(",")
    assert names[:3] == ["net", "device", "cluster"]
    found = rows(*arguments)
    for row, line in zip(found, lines, strict=True):
        values = dict(zip(names, line.split(","), strict=True))
        for key in ("ttft_s", "tpot_s", "tokens_per_s", "memory_bytes"):
            assert float(values[key]) == pytest.approx(row[key])
        assert values["fits"] == "true"


def test_what_does_not_fit_says_what_would() -> None:
    text = call("infer", "llama3_70b", "--device=H100_SXM", "--concurrency=1")
    said = " ".join(text.splitlines()[:2])
    assert said.startswith("It does not fit: ")
    assert "It would with --dtype=fp8 or --tp=2." in said


def test_devices_of_prompts_that_do_not_hold_the_model_say_so() -> None:
    # 70.6 billion weights of 2 bytes are 132 GiB: one device has 80, four have 320.
    shared = ("--cluster=dgx_h100", "--prefill=2", "--prefill_tp=1", "--decode=4", "--tp=4")
    said = " ".join(call("infer", "llama3_70b", *shared, "--concurrency=1").split())
    assert said.startswith("It does not fit: ")
    assert ", of the servers of prompts, need 135 of 80 GiB." in said
    assert "It would with --dtype=fp8 or --prefill_tp=2." in said
    (row,) = rows("infer", "llama3_70b", *shared, "--concurrency=1")
    assert not row["fits"]


def test_devices_are_those_of_one_copy_where_nobody_says_how_many() -> None:
    text = call("infer", "llama3_70b", "--tp=2", "--pp=2", "--concurrency=1")
    assert "on 4 devices, tp 2, pp 2" in text
    # No cluster says how they are connected.
    assert "devices of a copy exchange over ethernet" in text


def test_a_queue_that_grows_is_said() -> None:
    text = " ".join(call(*QUICK, "--rate=5000", "--requests=200").split())
    assert "the queue grows without end: up to about" in text


def test_limits_have_a_column() -> None:
    text = call(*QUICK, "--rate=5", "--requests=100", "--ttft=1 s", "--tpot=100 ms")
    assert "in the" in text
    assert "100 %" in text


def test_other_nets_have_the_time_of_a_batch() -> None:
    arguments = ("infer", "resnet18", "--device=T4,L4", "--batch_size=1,8", "--dtype=fp16")
    assert "images/s" in call(*arguments)
    assert [row["batch_size"] for row in rows(*arguments)] == [1, 8, 1, 8]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("resnet18", "--concurrency=4"), "concurrency: is for language models alone"),
        (("resnet18", "--num_workers=4"), "num_workers: is for language models alone"),
        (("resnet18", "llama3_2_1b"), "ask apart"),
        (("llama3_2_1b", "--batch_size=4"), "is not for language models"),
        (("llama3_2_1b", "--prompts=/nowhere.csv"), "/nowhere.csv"),
        (("llama3_2_1b", "--tp=3", "--num_workers=3", "--cluster=dgx_h100"), "3"),
    ],
)
def test_a_mistake_is_a_line(arguments: tuple[str, ...], said: str) -> None:
    (line,) = call("infer", *arguments, status=1).splitlines()
    assert said in line


def test_a_plain_call_asks_for_four_loads() -> None:
    found = rows("infer", "llama3_2_1b", "--device=L4", "--output=16")
    assert [row["concurrency"] for row in found] == [1, 8, 32, 128]
