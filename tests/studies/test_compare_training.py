"""Comparisons under settings of training: recomputation, loss, kernels of the optimizer."""

from __future__ import annotations

from typing import Any

import click.testing
import pytest

import paleo
from paleo.cli import cli
from paleo.step.memory import footprint
from paleo.studies.compare.comparison import compare


def call(*arguments: str, status: int = 0) -> click.testing.Result:
    result = click.testing.CliRunner().invoke(cli, ["compare", *arguments])
    assert result.exit_code == status, result.output
    return result


def test_what_is_computed_again_counts_in_time_and_memory() -> None:
    settings: Any = {"batch_size": 4, "optimizer": "adam", "dtype": "bf16", "device": "A100"}
    found = compare("gpt2", recompute=["none", "full", "full:h/0,h/1"], totals=True, **settings)
    plain, full, two = found.reference, *(each.other for each in found.differences)
    for variant, recompute in ((plain, "none"), (full, "full"), (two, "full:h/0,h/1")):
        (run,) = paleo.simulate("gpt2", workers=1, recompute=recompute, **settings).runs
        assert variant.total.time == pytest.approx(run.rows[0].total(run.best_scheme))
        same: Any = {"optimizer": "adam", "dtype": "bf16", "loss": "cross_entropy"}
        wanted = footprint("gpt2", 4, recompute=recompute, **same)
        assert variant.total.memory_bytes == wanted.peak
        assert variant.settings.to_dict()["recompute"] == recompute
    # All blocks are alike: two of twelve take a sixth.
    assert two.total.recomputation == pytest.approx(full.total.recomputation / 6)
    assert plain.total.recomputation == 0
    assert full.totals()["recomputation_s"] == full.total.recomputation


def test_blocks_to_be_computed_again_may_stand_in_a_list() -> None:
    text = call(
        "gpt2", "--recompute=none,full:h/0,h/1,selective", "--totals", "--device=A100"
    ).stdout
    assert "gpt2, recomputation full:h/0,h/1 " in text
    assert "gpt2, recomputation selective " in text
    assert "the update and what is computed again; memory" in " ".join(text.split())
    wrong = call("gpt2", "--recompute=none,ful", "--totals", status=1).stderr
    assert wrong == (
        'paleo: recompute: expected none, selective or full, or such as full:BLOCK, got "ful"\n'
    )


def test_kernels_of_an_optimizer_are_compared() -> None:
    names = ["fused", "foreach", None]
    found = compare("gpt2", optimizer="adam", optimizer_kernels=names, totals=True, device="A100")
    fused, foreach, usual = found.reference, *(each.other for each in found.differences)
    assert foreach.total.update > 2 * fused.total.update == 2 * usual.total.update
    assert [each.settings.to_dict()["optimizer_kernels"] for each in (fused, foreach)] == names[:2]


def test_losses_are_told_apart() -> None:
    text = call(
        "gpt2", "--loss=cross_entropy,none,fused_linear", "--totals", "--device=A100"
    ).stdout
    for name in ("gpt2 ", "gpt2, no loss ", "gpt2, loss fused_linear "):
        assert any(line.startswith(name) for line in text.splitlines())
