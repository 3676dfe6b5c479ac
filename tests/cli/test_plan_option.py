"""`paleo simulate --plan`: what of a plan file holds beside options, and what is said of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click.testing
import pytest

from paleo.cli import cli

#: 16 devices: 32 samples are 2 x 2 x dp 8, of which each has tp 2.
LINE = (
    "torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --tensor-model-parallel-size 2 "
    "--micro-batch-size 2 --global-batch-size 32 --seq-length 256 --bf16 --overlap-grad-reduce"
)


@pytest.fixture(autouse=True)
def _with_a_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.sh").write_text(LINE)


def call(*arguments: str, status: int = 0) -> click.testing.Result:
    words = ["simulate", "gpt2", "--cluster=dgx_a100", "--plan=train.sh", *arguments]
    result = click.testing.CliRunner().invoke(cli, words, prog_name="paleo")
    assert result.exit_code == status, result.output
    return result


def row(*arguments: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the net, and its only row, of the JSON output."""
    (run,) = json.loads(call(*arguments, "--format=json").stdout)["runs"]
    (only,) = run["rows"]
    return run, only


def test_the_file_is_in_the_place_of_options() -> None:
    run, only = row()
    given = "--num_workers=16 --tp=2 --micro_batch=2 --global_batch=32 --dtype=mixed_bf16"
    others = "--optimizer=fused_adam --clip_gradients --overlap --seq_len=256 --framework=megatron"
    words = ["simulate", "gpt2", "--cluster=dgx_a100", *given.split(), *others.split()]
    result = click.testing.CliRunner().invoke(cli, [*words, "--format=json"], prog_name="paleo")
    (same,) = json.loads(result.stdout)["runs"]
    assert same["rows"] == [only]
    assert (only["workers"], only["dp"], only["tp"], only["micro_batch"]) == (16, 8, 2, 2)
    assert run["net"] == same["net"]


def test_options_win_over_the_file() -> None:
    _, only = row("--tp=4", "--seq_len=128", "--batch_size=4")
    assert (only["workers"], only["dp"], only["tp"], only["batch_size"]) == (16, 4, 4, 16)
    shown = " ".join(call("--tp=4", "--seq_len=128").stdout.split())
    assert "train.sh: --tensor-model-parallel-size says tp 2, but 4 is given and counts" in shown
    assert "train.sh: sequences of 256, but the net has 128, which counts" in shown


def test_an_option_of_the_default_value_wins_too() -> None:
    _, only = row("--tp=1")
    assert (only["tp"], only["dp"]) == (1, 16)


def test_several_lengths_are_nets_of_their_own() -> None:
    result = call("--seq_len=64,128", "--format=json")
    runs = json.loads(result.stdout)["runs"]
    assert [run["net"] for run in runs] == ["gpt2 seq=64", "gpt2 seq=128"]


def test_what_is_wrong_with_a_file_is_a_line_each() -> None:
    Path("train.sh").write_text(f"{LINE} --fp16 --global-batch-size 33")
    batches = "--global-batch-size: 33 does not divide by --micro-batch-size 2 x dp 8 = 16"
    assert call(status=1).stderr.splitlines() == [
        "paleo: train.sh: --fp16 and --bf16: a net is trained in one type",
        f"paleo: train.sh: {batches}",
    ]
    Path("train.sh").unlink()
    assert call(status=1).stderr == "paleo: train.sh: No such file or directory\n"
