"""Charts of characters: what `--plot -` prints."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import click.testing
import pytest
from validation import hide

import paleo
from paleo.cli import cli
from paleo.views.charts.base import Chart, Series
from paleo.views.charts.layers import memory_by_layer, time_by_layer
from paleo.views.charts.results import of_simulation
from paleo.views.charts.roofline import roofline
from paleo.views.charts_in_text import text_chart
from paleo.views.table import columns_of

MEASURED = Path(__file__).parents[2] / "docs" / "example_measurements.csv"
TWO = Chart(
    "time", "bars", "Time by layer", "a net", "layer", "time (ms)",
    (Series("forward", ("conv", "fc"), (4.0, 1.0)), Series("backward", ("conv", "fc"), (6.0, 1.5))),
    notes=("a note",),
)  # fmt: skip


def call(*arguments: str, status: int = 0) -> click.testing.Result:
    result = click.testing.CliRunner().invoke(cli, arguments, prog_name="paleo")
    assert result.exit_code == status, result.output
    return result


def test_stacked_bars_stand_beside_their_values() -> None:
    # 50 columns less 5 of names, 9 and 10 of values and three gaps are 20 for 10 ms: 8 and 12. Of
    # the other layer, 1 ms ends at 2 and 2.5 ms at 5.
    assert text_chart(TWO, 50, unicode=False).splitlines() == [
        "Time by layer", "a net", "bars: time (ms)", "",
        "layer  # forward  = backward",
        "conv        4.00        6.00  " + "#" * 8 + "=" * 12,
        "fc          1.00        1.50  " + "#" * 2 + "=" * 3,
        "", "note: a note",
    ]  # fmt: skip


def test_a_stack_ends_at_the_nearest_character() -> None:
    # Columns as above: 20 characters for 10 ms. 0.8 ms end at 1.6 of them, with 0.55 ms more at
    # 2.7: at the second, then the third. 0.2 ms are 0.4 of one, with 0.1 ms more 0.6: the first.
    series = (
        Series("forward", ("conv", "fc", "pool"), (4.0, 0.8, 0.2)),
        Series("backward", ("conv", "fc", "pool"), (6.0, 0.55, 0.1)),
    )
    chart = Chart("time", "bars", "T", "s", "layer", "time (ms)", series)
    assert text_chart(chart, 50, unicode=False).splitlines()[5:] == [
        "conv       4.00        6.00   " + "#" * 8 + "=" * 12,
        "fc         0.800       0.550  ##=",
        "pool       0.200       0.100  =",
    ]  # fmt: skip


def test_bars_without_room_beside_their_values_have_a_line_each() -> None:
    # 40 columns less an indent of 2, names of 8, values of 4 and two gaps are 22 for 6 ms.
    assert text_chart(TWO, 40, unicode=False).splitlines()[4:10] == [
        "conv",
        "  forward   4.00  " + "#" * 15,
        "  backward  6.00  " + "=" * 22,
        "fc",
        "  forward   1.00  " + "#" * 4,
        "  backward  1.50  " + "=" * 6,
    ]  # fmt: skip


def test_lines_are_a_block_of_bars_for_each_series() -> None:
    chart = Chart(
        "speedup", "lines", "Speedup", "a net", "workers", "speedup",
        (Series("Tree", (1, 16), (1.0, 5.0)), Series("ideal", (1, 16), (1.0, 10.0), (), True)),
    )  # fmt: skip
    # 40 columns less an indent of 2, names of 2, values of 5 (points below each other) and two gaps
    # are 27 for 10.0.
    assert text_chart(chart, 40, unicode=False).splitlines() == [
        "Speedup", "a net", "bars: speedup", "",
        "Tree, by workers",
        "   1   1.00  " + "#" * 3,
        "  16   5.00  " + "#" * 14,
        "",
        "ideal, by workers",
        "   1   1.00  " + "." * 3,
        "  16  10.0   " + "." * 27,
    ]  # fmt: skip


def test_a_bar_is_as_long_as_its_value_to_an_eighth() -> None:
    chart = Chart(
        "k", "bars", "T", "s", "x", "y", (Series("a", ("a", "b", "c", "d"), (10, 5, 0, None)),)
    )
    # 41 less a name of 1, values of 5 and two gaps are 31: 15.5 characters are a half.
    assert text_chart(chart, 41).splitlines()[4:] == [
        "a  10.0   " + "█" * 31, "b   5.00  " + "█" * 15 + "▌", "c   0", "d",
    ]  # fmt: skip


def test_points_of_numbers_stand_below_each_other_where_there_is_room() -> None:
    series = Series("a", ("long", "short"), (123.0, 0.00456))
    chart = Chart("k", "bars", "T", "s", "x", "y", (series,))
    assert text_chart(chart, 40, unicode=False).splitlines()[4:] == [
        "long   123        " + "#" * 22, "short    0.00456",
    ]  # fmt: skip
    names = tuple(f"a layer of such a long name {each}" for each in ("A", "B"))
    narrow = replace(chart, series=(replace(series, x=names),))
    assert [line[20:] for line in text_chart(narrow, 40, unicode=False).splitlines()[4:]] == [
        "      123  #########", "  0.00456",
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("width", [40, 60, 80, 133])
@pytest.mark.parametrize("unicode", [True, False])
def test_no_line_is_wider_than_the_terminal(width: int, unicode: bool) -> None:
    summary = paleo.summarize("resnet152", 32, device="A100_SXM_80GB")
    charts = [
        time_by_layer(summary),
        memory_by_layer(summary),
        roofline(summary),
        *of_simulation(paleo.simulate("nin")),
        *of_simulation(paleo.simulate("alex_v2_4gpu", parallel="hybrid", hybrid_workers=4)),
    ]
    text = text_chart(charts, width, unicode=unicode)
    assert max(map(columns_of, text.splitlines())) <= width
    assert text.isascii() != unicode
    # A line for each of the longest layers, where there is room beside the values.
    if width >= 80:
        longest = roofline(summary).series[0].labels[0]
        begun = [line for line in text.splitlines() if line.startswith(f"{longest} ")]
        assert len(begun) >= 2  # of times, and of memory


def test_many_points_are_cut_and_said_to_be() -> None:
    summary = paleo.summarize("resnet152", 32, device="A100_SXM_80GB")
    chart = roofline(summary)
    text = text_chart(chart)
    assert f"forward, 20 of {len(chart.series[0].x)}:" in text
    first = chart.series[0].labels[0]
    heading = next(i for i, line in enumerate(text.splitlines()) if line.startswith("forward"))
    assert any(first in line for line in text.splitlines()[heading : heading + 4])


def test_names_with_control_characters_stay_on_one_line() -> None:
    chart = Chart("k", "bars", "a\nb", "s", "x", "y", (Series("a", ("c\x1b[31md", "e"), (1, 2)),))
    text = text_chart(chart)
    assert "\x1b" not in text
    assert r"a\nb" in text
    assert r"c\x1b[31md" in text


def test_nothing_is_refused() -> None:
    with pytest.raises(paleo.SettingError, match="plot: T: there is nothing to draw"):
        text_chart(Chart("k", "bars", "T", "s", "x", "y", (Series("a", ("b",), (0,)),)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("simulate", "nin"),
        ("summary", "nin", "--device=K80"),
        ("compare", "nin", "alex_v2", "--totals"),
        ("memory", "nin"),
        ("metrics", "nin"),
        ("validate", str(MEASURED), "--by=source"),
    ],
    ids=lambda own: own[0],
)
def test_commands_print_it_below_their_table_without_matplotlib(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    hide(monkeypatch, "matplotlib")
    plain = call(*arguments).stdout
    drawn = call(*arguments, "--plot=-").stdout
    assert drawn.startswith(f"{plain}\n")
    assert "\nbars: " in drawn
    markdown = call(*arguments, "--plot", "-", "--format=markdown").stdout
    assert "\n```text\n" in markdown
    assert markdown.endswith("\n```\n")


@pytest.mark.parametrize("option", ["--format=json", "--format=csv", "--separator=tab"])
def test_it_goes_with_tables_only(option: str) -> None:
    said = call("simulate", "nin", "--plot=-", option, status=2).stderr
    assert said == "paleo: --plot - goes with tables only (see paleo simulate --help)\n"


@pytest.mark.slow
@pytest.mark.parametrize(("encoding", "bar"), [("ascii", "###"), ("utf-8", "███")])
def test_blocks_are_printed_where_the_output_has_them(encoding: str, bar: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "paleo", "memory", "nin", "--plot=-"],
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"},
    )
    assert bar in done.stdout.decode(encoding)


def test_the_unit_of_microseconds_is_written_in_ascii_too() -> None:
    chart = Chart("c", "bars", "Times", "", "", "time (µs)", (Series("t", ("a",), (2.0,)),))
    assert "bars: time (µs)" in text_chart(chart)
    plain = text_chart(chart, unicode=False)
    assert "bars: time (us)" in plain
    assert plain.isascii()
