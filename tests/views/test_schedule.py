"""The schedule of a pipeline: as a chart, in characters, and as a picture."""

from __future__ import annotations

import json
from typing import Any

import click.testing
import pytest

import paleo
from paleo.cli import cli
from paleo.net.generators import transformer
from paleo.step.memory.stage import StageMemory
from paleo.studies.mesh_stages import Played, StageTurn
from paleo.views.charts.base import Chart, Series
from paleo.views.charts.results import of_simulation
from paleo.views.charts.stages import memory_by_stage, schedule_chart
from paleo.views.charts_in_text import text_chart

#: Two stages, two micro-batches: a forward pass takes 2 s, a backward pass 4.
TWO = Chart(
    "schedule", "schedule", "Schedule of 2 stages", "a net", "stage", "time (s)",
    (
        Series("forward", ("0", "0", "1", "1"), (2.0,) * 4, ("micro-batch 0",) * 4,
               starts=(0.0, 2.0, 2.0, 8.0), marks=("0", "1", "0", "1")),
        Series("backward", ("1", "1", "0", "0"), (4.0,) * 4, ("micro-batch 0",) * 4,
               starts=(4.0, 10.0, 8.0, 14.0), marks=("0", "1", "0", "1")),
        Series("update", ("0", "1"), (2.0, 2.0), ("", ""), starts=(18.0, 18.0), marks=("", "")),
    ),
    notes=("a note",),
)  # fmt: skip


def simulation(**settings: Any) -> paleo.Simulation:
    usual: Any = {"hidden": 256, "heads": 8, "ffn": 1024, "vocab": 4096, "seq_len": 128}
    known: Any = {"cluster": "dgx_a100", "dtype": "bf16", "pp": 4, "global_batch": 16, "workers": 8}
    return paleo.simulate(transformer(layers=8, **usual), **known | settings)


def test_memory_of_the_host_is_in_no_bar_of_a_device() -> None:
    sizes = {"weights": 4, "gradients": 2, "optimizer_state": 0, "activations": 1, "passing": 1}
    stage = StageMemory(0, **sizes, slack=1, host=50)
    chart = memory_by_stage("net", paleo.find_device("A100_SXM_80GB"), [stage], "")
    names = [series.name for series in chart.series if not series.is_reference]
    assert names == ["weights", "gradients", "activations", "passing", "slack"]


def test_a_row_of_characters_is_what_a_stage_does_and_a_space_where_it_waits() -> None:
    # 49 columns less 7 of "stage 0" and a gap of 2 are 40 for 20 s: two a second.
    assert text_chart(TWO, 49, unicode=False).splitlines() == [
        "Schedule of 2 stages", "a net", "time (s) from left to right, a row for each stage", "",
        "# forward  = backward  - update",
        "stage 0  " + "#" * 8 + " " * 8 + "=" * 8 + " " * 4 + "=" * 8 + "-" * 4,
        "stage 1  " + " " * 4 + "####" + "=" * 8 + "####" + "=" * 8 + " " * 8 + "-" * 4,
        "         0     5.00      10.0      15.0      20.0",
        "", "note: a note",
    ]  # fmt: skip


def test_a_character_is_what_takes_most_of_its_time() -> None:
    # 31 columns for 20 s: the fourth goes from 1.94 to 2.58, of which the forward pass from 2 to 4
    # has most; of the seventh, from 3.87 to 4.52, it has least.
    lines = text_chart(TWO, 40, unicode=False).splitlines()
    (row,) = (line for line in lines if line.startswith("stage 1"))
    assert row[9:16] == "   ###="


@pytest.mark.parametrize("width", [40, 57, 80, 200])
def test_no_line_is_wider_than_a_terminal(width: int) -> None:
    for unicode in (True, False):
        text = text_chart(of_simulation(simulation(schedule="zero_bubble")), width, unicode=unicode)
        assert max(map(len, text.splitlines())) <= width
        assert "gradients of parameters" in text


def test_a_mesh_is_drawn_by_its_stages() -> None:
    charts = {chart.key: chart for chart in of_simulation(simulation())}
    assert list(charts) == ["schedule", "stage_times", "stage_memory"]
    run = simulation().runs[0]
    (row,) = run.rows
    times = charts["stage_times"]
    assert "waiting for others" in [series.name for series in times.series]
    (unit,) = {chart.y_label.partition("(")[2] for chart in (times, charts["schedule"])}
    factor = {"ms)": 1e-3, "us)": 1e-6, "\u00b5s)": 1e-6, "s)": 1.0}[unit]
    for i in range(4):
        whole = sum(series.y[i] or 0.0 for series in times.series)
        assert factor * whole == pytest.approx(row.total(row.best_scheme))
    capacity = charts["stage_memory"].references[0]
    assert capacity.y == (80.0,) * 4 or capacity.y[0] == pytest.approx(80 * 1024)
    more = [chart.key for chart in of_simulation(simulation(workers=[8, 16], pp=2))]
    assert more == ["schedule", "stage_times", "stage_memory", "step", "parts"]


def test_what_is_left_out_is_said() -> None:
    run = simulation().runs[0]
    (row,) = run.rows
    turns = (StageTurn(0, "forward", 0, 1, 0.0, 1.0), StageTurn(0, "sent", 0, 0, 1.0, 2.0))
    chart = schedule_chart(run, row, Played("1f1b", 1, 2, 30, 10, turns, 4.0))
    assert chart.notes[-1] == (
        "drawn as if there were 10 micro-batches: the other 20 of 30 pass in between, in 4.00 s "
        "more"
    )
    assert [(series.name, series.labels) for series in chart.series] == [
        ("forward", ("micro-batch 0, chunk 1",)), ("sent", ("micro-batch 0, chunk 0",)),
    ]  # fmt: skip


def test_a_picture_has_every_turn_and_marks_those_with_room() -> None:
    pytest.importorskip("matplotlib")
    from paleo.views.plots import draw

    figure = draw(TWO)
    (axes,) = figure.axes
    spans = [len(each.get_paths()) for each in axes.collections]
    assert sum(spans) == 10
    assert sorted(text.get_text() for text in axes.texts) == list("00001111")
    low, high = axes.get_xlim()
    assert (low, high) == (0.0, 20.0)
    # The first row is the topmost.
    assert [label.get_text() for label in axes.get_yticklabels()] == ["0", "1"]
    assert axes.get_ylim()[0] > axes.get_ylim()[1]


def test_explained_stages_add_up_to_the_step() -> None:
    words = "simulate gpt2 --cluster=dgx_a100 --num_workers=16 --tp=2 --pp=4 --global_batch=16"
    words += " --dtype=bf16 --seq_len=128 --explain"
    done = click.testing.CliRunner().invoke(cli, [*words.split(), "--format=json"])
    assert done.exit_code == 0, done.output
    (run,) = json.loads(done.stdout)["runs"]
    (row,) = run["rows"]
    assert [stage["stage"] for stage in run["stages"]] == [0, 1, 2, 3]
    for stage in run["stages"]:
        assert sum(stage["parts"].values()) == pytest.approx(row["step_s"])
    assert max(stage["total_bytes"] for stage in run["stages"]) == row["memory_bytes"]
    shown = click.testing.CliRunner().invoke(cli, words.split())
    assert shown.exit_code == 0, shown.output
    lines = [line.split() for line in shown.stdout.splitlines()]
    found = [line for line in lines if line and line[0] in "0123" and len(line) > 5]
    # The third column is the forward pass, in milliseconds.
    assert [float(line[2]) for line in found] == pytest.approx(
        [1e3 * stage["parts"]["forward"] for stage in run["stages"]], abs=0.005
    )


def test_memory_of_stages_is_drawn_alone_too() -> None:
    words = "memory gpt2 --cluster=dgx_a100 --num_workers=8 --pp=2 --seq_len=128 --batch_size=8"
    done = click.testing.CliRunner().invoke(cli, [*words.split(), "--plot=-"])
    assert done.exit_code == 0, done.output
    assert "note: --plot" not in done.stderr
    _, drawn = done.stdout.split("Memory of training gpt2 seq=128 by stage")
    assert "memory of A100_SXM_80GB" in drawn
    values = click.testing.CliRunner().invoke(cli, [*words.split(), "--format=json"])
    (found,) = json.loads(values.stdout)["nets"]
    assert found["net"] == "gpt2 seq=128"  # as long as was asked
    weights = [line.split()[1] for line in drawn.splitlines() if line.startswith("  weights")]
    unit = 2**20 if "(MiB)" in drawn else 2**30
    assert [float(each) for each in weights] == pytest.approx(
        [stage["weights_bytes"] / unit for stage in found["stages"]], rel=0.01
    )


def test_a_command_draws_it_below_the_table() -> None:
    line = (
        "simulate llama3_8b --cluster=dgx_h100 --num_workers=16 --pp=4 --global_batch=16 --plot=-"
    )
    done = click.testing.CliRunner(env={"COLUMNS": "60"}).invoke(cli, line.split())
    assert done.exit_code == 0, done.output
    assert "Schedule of 4 stages of llama3_8b" in done.stdout
    rows = [text for text in done.stdout.splitlines() if text.startswith("stage ")]
    assert [row[:7] for row in rows] == [f"stage {i}" for i in range(4)]
