"""Which columns and rows of tables are shown: --columns, --wide, --sort and --top."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import click.testing
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paleo.cli import cli
from paleo.core.errors import SettingError
from paleo.views.arrange import Arrangement
from paleo.views.table import Column, Table, to_cells

COLUMNS = (
    Column("name", "layer"),
    Column("time_s", "time", "s", least_is_best=True),
    Column("params", "parameters"),
    Column("memory_bytes", "memory", "bytes", wide=True),
    Column("cost_model"),
)
ROWS: list[dict[str, Any]] = [
    {"name": "b", "time_s": 2.0, "params": 5, "memory_bytes": 1024, "cost_model": "tiled"},
    {"name": "a", "time_s": 1.0, "params": 7, "memory_bytes": 4096, "cost_model": "tiled"},
    {"name": "c", "time_s": None, "params": 6, "memory_bytes": 2048, "cost_model": "tiled"},
]
TABLE = Table("title", COLUMNS, ROWS, {"name": "total"}, marked=frozenset([(0, "time_s")]))


def names(**asked: Any) -> list[str]:
    (table,) = Arrangement(**asked).applied([TABLE])
    return [row["name"] for row in table.rows]


def titles(**asked: Any) -> list[str]:
    (table,) = Arrangement(**asked).applied([TABLE])
    return [column["title"] for column in to_cells(table)["columns"]]


def test_rows_are_put_in_order_with_the_best_first() -> None:
    assert names() == ["b", "a", "c"]
    assert names(sort="time") == names(sort="time_s") == ["a", "b", "c"]  # the least time
    assert names(sort="params") == names(sort="parameters") == ["a", "c", "b"]  # the most
    assert names(sort="-params") == ["b", "c", "a"]
    assert names(sort="-time") == ["b", "a", "c"]  # what is not known is last either way
    assert names(sort="name") == names(sort="layer") == ["a", "b", "c"]
    assert names(sort="memory") == ["a", "c", "b"]  # a column that is not shown will do


def test_marks_move_with_their_rows_and_the_total_stays_that_of_all() -> None:
    (table,) = Arrangement(sort="time", top=1).applied([TABLE])
    assert table.total == {"name": "total"}
    assert table.marked == frozenset()
    (table,) = Arrangement(sort="time").applied([TABLE])
    assert table.marked == {(1, "time_s")}
    (table,) = Arrangement(sort="-time", top=2).applied([TABLE])
    assert table.marked == {(0, "time_s")}
    assert list(table.footnotes) == ["2 of 3 rows (--top)"]
    assert names(top=9) == ["b", "a", "c"]
    assert list(Arrangement(top=3).applied([TABLE])[0].footnotes) == []


def test_columns_are_those_that_were_asked_for_behind_the_first() -> None:
    assert titles() == ["layer", "time", "parameters"]
    assert titles(wide=True) == ["layer", "time", "parameters", "memory"]
    assert titles(columns=("memory", "time")) == ["layer", "memory", "time"]
    assert titles(columns=("layer", "params", "params")) == ["layer", "parameters"]
    # A column for programs alone is shown, too, to who asks for it.
    assert (
        titles(columns=("cost_model",))
        == titles(columns=("Cost-Model",))
        == [
            *("layer", "cost model"),
        ]
    )


@pytest.mark.parametrize(
    ("asked", "lines"),
    [
        ({"sort": "tim"}, ["--sort: there is no column 'tim' (did you mean 'time'?)"]),
        ({"sort": "-memry"}, ["--sort: there is no column 'memry' (did you mean 'memory'?)"]),
        (
            {"columns": ("zz", "parms"), "sort": "tome"},
            [
                "--columns: there is no column 'zz'; there are: name, time, params, memory",
                "--columns: there is no column 'parms' (did you mean 'params'?)",
                "--sort: there is no column 'tome' (did you mean 'time'?)",
            ],
        ),
        ({"columns": ("",)}, ["--columns: there is no column ''; there are: name, time, params, "]),
    ],
)
def test_unknown_names_are_a_line_each_with_a_near_one(
    asked: dict[str, Any], lines: list[str]
) -> None:
    with pytest.raises(SettingError) as caught:
        Arrangement(**asked).applied([TABLE])
    said = str(caught.value).splitlines()
    assert len(said) == len(lines)
    for line, beginning in zip(said, lines, strict=True):
        assert line.startswith(beginning)


def test_a_name_that_one_of_several_tables_has_is_enough() -> None:
    other = Table("other", (Column("name", "layer"), Column("share", "share")), [])
    first, second = Arrangement(sort="share").applied([TABLE, other])
    assert [row["name"] for row in first.rows] == ["b", "a", "c"]
    assert list(second.rows) == []


VALUES = st.lists(st.one_of(st.none(), st.integers(-3, 3), st.floats(-2, 2)), max_size=8)


@given(VALUES, st.booleans(), st.booleans(), st.integers(1, 9))
def test_the_first_rows_are_the_best(
    values: list[float | None], least: bool, turned: bool, top: int
) -> None:
    table = Table("", (Column("v", "v", least_is_best=least),), [{"v": value} for value in values])
    (found,) = Arrangement(sort="-v" if turned else "v", top=top).applied([table])
    known = sorted((v for v in values if v is not None), reverse=least == turned)
    expected = [*known, *[None] * values.count(None)]
    assert [row["v"] for row in found.rows] == expected[:top]


# On the command line


def call(*arguments: str, status: int = 0) -> click.testing.Result:
    result = click.testing.CliRunner().invoke(cli, arguments, prog_name="paleo")
    assert result.exit_code == status, result.output
    return result


def rows_of(*arguments: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(call(*arguments, "--format=csv").stdout)))


def test_the_longest_layers_come_first() -> None:
    asked = ("summary", "resnet18", "--device=T4")
    (values,) = json.loads(call(*asked, "--format=json").stdout)["nets"]
    times = {layer["name"]: layer["forward_s"] + layer["backward_s"] for layer in values["layers"]}
    longest = sorted(times, key=times.__getitem__, reverse=True)[:5]
    lines = call(*asked, "--sort=time", "--top=5", "--quiet").stdout.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("-----")) + 1
    assert [line.split()[0] for line in lines[start : start + 5]] == longest
    assert f"5 of {len(times)} rows (--top)" in lines
    # 3 x 3 filters of 512 channels to 512.
    (row,) = rows_of(*asked, "--sort=params", "--top=1")
    assert row["params"] == str(3 * 3 * 512 * 512)


def test_columns_of_separated_values_may_be_chosen_too() -> None:
    (row,) = rows_of("simulate", "lenet5", "--num_workers=2", "--columns=throughput,step")
    assert {"throughput_per_s", "step_s"} < row.keys()
    assert "forward_s" not in row


def test_wide_shows_all_columns_of_a_simulation() -> None:
    asked = ("simulate", "lenet5", "--num_workers=1,2", "--quiet", "--cost_model=paleo2017")
    narrow, wide = call(*asked).stdout, call(*asked, "--wide").stdout
    assert "forward" not in narrow
    assert "forward" in wide
    for scheme in ("OneToAll", "Mixing"):
        assert scheme not in narrow
        assert scheme in wide


@pytest.mark.parametrize("command", ["simulate", "metrics", "memory", "summary"])
@pytest.mark.parametrize("option", ["--columns=stap", "--sort=stap"])
def test_an_unknown_column_is_one_line_and_status_1(command: str, option: str) -> None:
    result = call(command, "lenet5", option, status=1)
    (line,) = result.stderr.splitlines()
    name = option.partition("=")[0]
    assert line.startswith(f"paleo: {name}: there is no column 'stap'")
    assert result.stdout == ""


@pytest.mark.parametrize("option", ["--columns=name", "--sort=name", "--top=3", "--wide"])
def test_json_has_everything_and_takes_no_order(option: str) -> None:
    (line,) = call("summary", "lenet5", option, "--format=json", status=2).stderr.splitlines()
    assert line.startswith("paleo: --columns, --wide, --sort and --top are for tables, not JSON")


@pytest.mark.parametrize("top", ["0", "-1", "many"])
def test_so_many_rows_are_one_or_more(top: str) -> None:
    (line,) = call("summary", "lenet5", f"--top={top}", status=2).stderr.splitlines()
    assert line.startswith("paleo: Invalid value for '--top'")
