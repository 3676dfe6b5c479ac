"""Plans of devices that share a net, beside each other: `paleo compare --tp=1,2 ...`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click.testing
import pytest

import paleo
from paleo.cli import cli
from paleo.net.generators import transformer
from paleo.studies.compare.plans import PlansComparison, compare_plans
from paleo.views.answers.plans import plans_answer
from paleo.views.charts.results import of_plans
from paleo.views.tables.plans import plan_labels, plans_table

KNOWN: dict[str, Any] = {"cluster": "dgx_a100", "dtype": "bf16", "workers": 16}


def net(**sizes: Any) -> paleo.NetSpec:
    usual = {"layers": 8, "hidden": 256, "heads": 8, "ffn": 1024, "vocab": 4096, "seq_len": 128}
    return transformer(**usual | sizes)


def compared(**settings: Any) -> PlansComparison:
    return compare_plans(net(), **KNOWN | settings)


def call(*words: str, status: int = 0) -> click.testing.Result:
    done = click.testing.CliRunner().invoke(cli, ["compare", *words], prog_name="paleo")
    assert done.exit_code == status, done.output
    return done


def test_every_combination_is_what_simulate_says_of_it() -> None:
    found = compared(tp=[1, 2], zero=[0, 1], global_batch=16)
    assert [(v.run.plan.tp, v.run.plan.zero) for v in found.variants] == [
        (1, 0), (1, 1), (2, 0), (2, 1),
    ]  # fmt: skip
    for variant in found.variants:
        plan = variant.run.plan
        run = paleo.simulate(
            net(), **KNOWN, tp=plan.tp, zero=plan.zero, global_batch=16, parallel="mesh"
        ).runs[0]
        assert variant.row.to_dict() == run.rows[0].to_dict()
    first, last = found.variants[0], found.variants[-1]
    factors = found.factors(last)
    assert factors["time_factor"] == last.step.seconds / first.step.seconds
    # Of equal batches a step that takes twice as long is half as quick.
    assert factors["speed_factor"] == pytest.approx(1 / factors["time_factor"])
    assert factors["memory_factor"] == last.memory / first.memory
    assert set(found.factors(first).values()) == {1.0}


def test_plans_wait_for_the_same_loader() -> None:
    """16 samples of which 4 come a second take 4 s, however they are shared."""
    found = compared(tp=[1, 2], global_batch=16, loader_rate=4)
    assert [variant.step.seconds for variant in found.variants] == [pytest.approx(4.0)] * 2
    words = ["lenet5", "nin", "--cluster=dgx_a100", "--num_workers=2", "--batch_size=4"]
    out = call(*words, "--loader_rate=8", "--format=json").stdout
    assert [plan["step_s"] for plan in json.loads(out)["plans"]] == [pytest.approx(1.0)] * 2


def test_nets_are_compared_by_their_rates() -> None:
    found = compare_plans([net(), net(layers=16)], **KNOWN, pp=2, global_batch=16)
    small, large = found.variants
    assert small.rate == pytest.approx(16 * 128 / small.step.seconds)
    assert found.quickest is small
    assert found.factors(large)["speed_factor"] < 1
    images = compare_plans(
        ["alex_v2", "lenet5"], cluster="dgx_a100", workers=2, tp=2, batch_size=16
    )
    assert [each.rate for each in images.variants] == [
        pytest.approx(16 / each.step.seconds) for each in images.variants
    ]


def test_the_quickest_is_one_that_fits() -> None:
    found = compare_plans(
        "llama3_8b", cluster="dgx_h100", workers=16, micro_batch=1, batch_size=4, zero=[0, 3],
        dtype="mixed_bf16", optimizer="adamw",
    )  # fmt: skip
    assert [variant.fits for variant in found.variants] == [False, True]
    assert found.quickest is found.variants[1]
    first, second, third = plans_answer(found)
    assert first == "1 of 2 does not fit in memory."
    assert second.startswith("The plan that fits is ZeRO 3: about ")
    assert third.endswith("the speed of ZeRO 0, which does not fit.")


def test_what_does_not_divide_is_left_out_where_others_do() -> None:
    found = compared(tp=[1, 2, 3], pp=[1, 2], global_batch=16)
    assert len(found.variants) == 4
    assert found.left_out == (
        "num_workers: 16 devices do not divide by tp 3",
        "num_workers: 16 devices do not divide by tp 3 x pp 2",
    )
    assert plans_answer(found)[-1] == "2 combinations of settings cannot be: notes say why."
    notes = plans_table(found).notes
    assert notes[-1] == "left out: num_workers: 16 devices do not divide by tp 3 x pp 2"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"tp": 2}, ["nets: expected two or more, or one under several plans, got one"]),
        (
            {"tp": [3, 5]},
            [
                "num_workers: 16 devices do not divide by tp 3",
                "num_workers: 16 devices do not divide by tp 5",
            ],
        ),
        (
            {"tp": [0, 2], "zero": [4, 1]},
            [
                "tp: expected a whole number from 1 to 2147483647, got 0",
                "zero: expected 0, 1, 2 or 3, got 4",
            ],
        ),
        (
            {"tp": [1, 2], "zero": [0, 1, 2, 3], "micro_batch": list(range(1, 14))},
            ["nets: 104 of them, times settings, are too many to compare (at most 100)"],
        ),
        ({"micro_bach": 2}, ["micro_bach: unknown setting (did you mean 'micro_batch'?)"]),
    ],
)
def test_mistakes_are_said_at_once(settings: dict[str, Any], said: list[str]) -> None:
    with pytest.raises(paleo.PaleoError) as caught:
        compared(**settings)
    assert [str(each) for each in caught.value.mistakes] == said


def test_labels_are_what_differs() -> None:
    labels, common = plan_labels(compared(tp=[1, 2], pp=[1, 2], global_batch=16).variants)
    # A share of the data has 16 / dp samples, all at once without stages.
    assert labels == [
        "tp 1, pp 1, micro-batch 1", "tp 1, pp 2, micro-batch 1",
        "tp 2, pp 1, micro-batch 2", "tp 2, pp 2, micro-batch 1",
    ]  # fmt: skip
    assert common.startswith("transformer_8x256, dgx_a100, 16 workers, 16 samples, 1f1b, bf16")


def test_plan_files_are_plans(tmp_path: Path) -> None:
    files = []
    for tp in (1, 2):
        files.append(tmp_path / f"tp{tp}.sh")
        files[-1].write_text(
            "torchrun --nproc_per_node 8 --nnodes 2 train.py --pipeline-model-parallel-size 2 "
            f"--tensor-model-parallel-size {tp} --micro-batch-size 1 --global-batch-size 16 "
            "--seq-length 128 --bf16 --num-layers 12 --overlap-grad-reduce\n"
        )
    found = compare_plans("gpt2", cluster="dgx_a100", plan=files)
    assert [(v.run.plan.tp, v.row.workers) for v in found.variants] == [(1, 16), (2, 16)]
    assert [v.net for v in found.variants] == ["gpt2 seq=128"] * 2
    labels, _ = plan_labels(found.variants)
    assert labels == ["tp1.sh, tp 1", "tp2.sh, tp 2"]
    names = ",".join(map(str, files))
    done = call("gpt2", "--cluster=dgx_a100", f"--plan={names}", "--zero=1", "--format=json")
    values = json.loads(done.stdout)
    assert [(each["tp"], each["zero"]) for each in values["plans"]] == [(1, 1), (2, 1)]
    assert [each["plan"] for each in values["plans"]] == list(map(str, files))


def test_a_command_prints_answer_and_table() -> None:
    words = "gpt2 --cluster=dgx_a100 --num_workers=8 --pp=1,2,4 --global_batch=16 --seq_len=128"
    done = call(*words.split(), "--dtype=bf16")
    assert done.stdout.startswith("The quickest of 3 plans is pp ")
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("pp ")]
    assert [row[1].rstrip(",") for row in rows] == ["1", "2", "4"]
    values = json.loads(call(*words.split(), "--dtype=bf16", "--format=json").stdout)
    assert [each["pp"] for each in values["plans"]] == [1, 2, 4]
    assert values["left_out"] == []
    for row, each in zip(rows, values["plans"], strict=True):
        assert f"{each['speed_factor']:.2f}"[:3] in " ".join(row)
    said = call(*words.split(), "--totals").stderr
    assert said == "paleo: note: --totals is for one device, it has no effect here\n"


def test_charts_have_a_bar_for_each_plan() -> None:
    found = compared(pp=[1, 2, 4], global_batch=16)
    rates, steps, memory = of_plans(found)
    (series,) = rates.series
    unit = 1000 if rates.y_label.startswith("thousand ") else 1
    assert [unit * (y or 0) for y in series.y] == pytest.approx([v.rate for v in found.variants])
    assert all(low < (series.y[i] or 0) < high for i, (low, high) in series.band.items())
    assert len(series.band) == 3
    factor = {"ms": 1e-3, "s": 1.0, "\u00b5s": 1e-6}[steps.y_label.split("(")[1].rstrip(")")]
    for i, variant in enumerate(found.variants):
        whole = factor * sum(series.y[i] or 0.0 for series in steps.series)
        assert whole == pytest.approx(variant.step.seconds)
    assert memory.references[0].name == "memory of the device"


def test_a_notebook_shows_it() -> None:
    found = compared(pp=[1, 2], global_batch=16)
    assert repr(found).startswith("<PlansComparison: The quickest of 2 plans is pp ")
    assert found._repr_html_().count("<tr>") >= 3
