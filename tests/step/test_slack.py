"""The slack of an allocator: a share of what it holds, beside what tensors take."""

from __future__ import annotations

from typing import Any

import click.testing
import pytest

import paleo
from paleo.cli.main import cli
from paleo.step.memory.stage import StageMemory
from paleo.studies.mesh_memory import mesh_memory

ON: dict[str, Any] = {"workers": 2, "tp": 2, "batch_size": 1, "dtype": "bf16"}


def test_slack_is_a_share_of_what_is_held() -> None:
    stage = StageMemory(0, 40, 10, 20, 15, 9)
    assert (stage.allocated, stage.slack, stage.total) == (94, 0, 94)
    held = stage.with_slack(0.06)  # 94 of 100
    assert (held.allocated, held.slack, held.total) == (94, 6, 100)
    assert stage.with_slack(0.0) == stage


def test_memory_of_gpus_has_slack_by_default_and_what_is_said_counts() -> None:
    slacks: tuple[Any, ...] = ({}, {"allocator_slack": 0}, {"allocator_slack": 0.5})
    whole, none, half = (
        mesh_memory("gpt2", cluster="dgx_a100", **ON, **given)[0].fullest for given in slacks
    )
    assert none.total == none.allocated == whole.allocated == half.allocated
    assert whole.slack == int(none.total * 0.06 / 0.94)
    assert half.total == 2 * none.total
    (row,) = paleo.simulate("gpt2", cluster="dgx_a100", **ON).to_dict()["runs"][0]["rows"]
    assert row["memory_bytes"] == whole.total


def test_other_devices_have_none_and_nor_does_one_device_s_memory() -> None:
    (found,) = mesh_memory("gpt2", device="TPU_V3", network="nvlink3", **ON)
    assert found.fullest.slack == 0
    plain = paleo.footprint("gpt2", 1, dtype="bf16")
    (alone,) = mesh_memory(
        "gpt2", device="A100_SXM_80GB", workers=1, batch_size=1, dtype="bf16", loss="none"
    )
    assert alone.fullest.allocated == plain.peak
    assert alone.fullest.slack > 0


def test_a_step_that_tensors_alone_would_fit_may_not() -> None:
    fits = mesh_memory("gpt2", cluster="dgx_a100", **ON)[0]
    assert fits.fits
    share = 1 - float(fits.fullest.allocated) / fits.memory_capacity  # type: ignore[operator]
    slack: Any = {"allocator_slack": share + 0.001}
    assert not mesh_memory("gpt2", cluster="dgx_a100", **ON, **slack)[0].fits


@pytest.mark.parametrize("given", [-0.1, 1, 1.5, "much", float("nan")])
def test_wrong_shares_are_an_error(given: Any) -> None:
    with pytest.raises(paleo.PaleoError, match="allocator_slack: expected a number from 0"):
        mesh_memory("gpt2", cluster="dgx_a100", **ON, allocator_slack=given)


def test_the_table_has_a_line_of_it() -> None:
    arguments = ["memory", "gpt2", "--cluster=dgx_a100", "--num_workers=2", "--tp=2"]
    runner = click.testing.CliRunner()
    out = runner.invoke(cli, [*arguments, "--batch_size=1", "--allocator_slack=0.1"]).stdout
    assert "slack" in out
    assert "slack 0.1" in out
