"""Tables as text: alignment, units, folding."""

from __future__ import annotations

from collections import Counter, UserDict
from typing import Any

import pytest

from paleo.core.units import parse, scale_for
from paleo.views.table import Column, Table, to_cells, to_markdown, to_separated, to_text

COLUMNS = (
    Column("name", "name"),
    Column("first_s", "first", "s"),
    Column("second_s", "second", "s"),
    Column("share", "share", "percent"),
    Column("exact"),
    Column("cited", "cited", for_people=True),
)
ROWS = [
    {"name": "a", "first_s": 2.0, "second_s": 0.0005, "share": 0.25, "exact": True, "cited": "[1]"},
    {"name": "長い", "first_s": 31.5, "second_s": None, "share": 1.0, "exact": False, "cited": ""},
]
TABLE = Table("title", COLUMNS, ROWS, marked=frozenset([(1, "first_s")]))


def test_columns_align_where_characters_are_wide() -> None:
    assert to_text([TABLE]).splitlines() == [
        "title",
        "",
        "        first  second  share",
        "name     (ms)    (ms)    (%)  cited",
        "----  -------  ------  -----  -----",
        "a      2,000    0.500     25  [1]",
        "長い  31,500*            100",
    ]


def test_programs_get_unrounded_si_numbers_under_their_keys() -> None:
    assert to_separated([TABLE], ";").splitlines() == [
        "name;first_s;second_s;share;exact",
        "a;2.0;0.0005;0.25;true",
        "長い;31.5;;1.0;false",
    ]


def test_a_page_gets_each_column_with_its_unit_and_the_total_by_itself() -> None:
    columns = (
        Column("name", "a\nlayer"),
        Column("first_s", "first", "s"),
        Column("second_s", "second", "s"),
        Column("exact"),
    )
    rows = [
        {"name": "a", "first_s": 0.5, "second_s": -0.0},
        {"name": "b", "first_s": 0.5, "second_s": 0.0},
        {"name": "c\n", "first_s": 0.0000004, "second_s": True},
    ]
    total = {"name": "total", "first_s": 1.0000004, "second_s": None}
    cells = to_cells(Table("title", columns, rows, total, marked=frozenset([(3, "first_s")])))
    # Of a total of 1 s, ten of a unit or more are ms: 0.4 us are next to nothing.
    assert cells["columns"] == [
        {"title": "a layer", "unit": "", "right": False},
        {"title": "first", "unit": "ms", "right": True},
        {"title": "second", "unit": "ms", "right": True},
    ]
    assert cells["rows"] == [
        ["a", "500.0 ", "-0"],
        ["b", "500.0 ", "0"],
        ["c\\n", "<0.1 ", "True"],
    ]
    assert cells["total"] == ["total", "1,000.0*", ""]


def test_the_unit_suits_the_total_not_the_smallest_rows() -> None:
    rows: list[dict[str, Any]] = [{"n": 2e-6}, {"n": 3e-6}, {"n": 4e-6}, {"n": 0.25}]
    cells = to_cells(Table("", (Column("n", "n", "s"),), rows, {"n": 0.250009}))
    assert cells["columns"] == [{"title": "n", "unit": "ms", "right": True}]
    assert cells["rows"] == [["0.002"], ["0.003"], ["0.004"], ["250.000"]]
    assert cells["total"] == ["250.009"]
    # 9.9 of a unit are too few, and 10 are enough.
    for total, unit in ((0.0099, "us"), (0.01, "ms")):
        (column,) = to_cells(Table("", (Column("n", "n", "s"),), rows[:1], {"n": total}))["columns"]
        assert column["unit"] == unit
    # Without a total, it suits the typical row.
    (column,) = to_cells(Table("", (Column("n", "n", "s"),), rows))["columns"]
    assert column["unit"] == "us"


def test_the_total_decides_on_unit_and_decimals_where_rows_have_no_number() -> None:
    rows: list[dict[str, Any]] = [{"n": None}, {"n": 0}]
    (column,) = to_cells(Table("", (Column("n", "n", "s"),), rows, {"n": 0.0025}))["columns"]
    assert column == {"title": "n", "unit": "us", "right": True}
    assert to_cells(Table("", (Column("n", "n"),), rows, {"n": 2.5}))["total"] == ["2.500"]
    assert to_cells(Table("", (Column("n", "n"),), rows))["rows"] == [[""], ["0"]]


class _Counting(UserDict[str, Any]):
    """A row that counts how often each value is asked for."""

    def __init__(self, values: dict[str, Any]) -> None:
        super().__init__(values)
        self.asked: Counter[str] = Counter()

    def get(self, key: str, default: Any = None) -> Any:
        self.asked[key] += 1
        return super().get(key, default)


@pytest.mark.parametrize("upright", [False, True])
def test_a_cell_is_read_once_however_many_columns_share_a_unit(upright: bool) -> None:
    rows = [_Counting(values) for values in ROWS]
    to_cells(Table("title", COLUMNS, rows, upright=upright))
    shown = {column.key: 1 for column in COLUMNS if column.title}
    assert [row.asked for row in rows] == [shown, shown]


def test_markdown_escapes_what_would_be_markup() -> None:
    table = Table("a*b", (Column("n", "x|y"),), [{"n": "<b> `c` [d] e_f\n"}])
    assert to_markdown([table]).splitlines() == [
        r"**a\*b**",
        "",
        r"| x\|y |",
        "| --- |",
        r"| \<b> \`c\` \[d\] e_f\\n |",
    ]


def test_numbers_of_several_quantities_have_so_many_digits_each() -> None:
    columns = (Column("n", "n", digits=3), Column("text", "text", right=True))
    rows: list[dict[str, Any]] = [
        {"n": 1234.5, "text": "1230"},
        {"n": 0.012345, "text": "0.0123 (r)"},
        {"n": 7, "text": "7"},
        {"n": 0.0, "text": None},
    ]
    assert to_text([Table("", columns, rows, marked=frozenset([(2, "n")]))]).splitlines() == [
        "      n        text",
        "-------  ----------",
        " 1,230         1230",
        "0.0123   0.0123 (r)",
        "     7*           7",
        " 0.000",
    ]


def test_a_table_wider_than_the_terminal_folds_and_its_title_wraps() -> None:
    row = {
        "name": "net/layers/0/attention/query",
        "first_s": 1.0,
        "second_s": 2.0,
        "share": 0.5,
        "cited": "[1]",
    }
    table = Table("word " * 12, COLUMNS, [row], notes=["note " * 12])
    lines = to_text([table], 32).splitlines()
    assert max(map(len, lines)) <= 32
    # 16 columns for the name: 4 of its front, 9 of its end, by which layers differ.
    assert sum(line.startswith("net/...ion/query ") for line in lines) > 1


UPRIGHT = Table(
    "title",
    (
        Column("plan", "net", for_people=True),
        Column("name"),
        Column("workers", "workers"),
        Column("size", "size", "bytes"),
        Column("step_s", "a\nstep", "s", group="training"),
        Column("run_s", "all", "duration", group="training"),
        Column("unknown", "unknown", group="training"),
        Column("gone", "gone", group="nothing"),
        Column("cost", "cost", for_people=True),
    ),
    [
        {
            "plan": ["a*", "1 worker"],
            "name": "a*",
            "workers": 1,
            "size": 2**20,
            "step_s": 2.0,
            "run_s": 36000.0,
            "unknown": None,
            "cost": "2.00 USD",
        },
        {"plan": "b", "name": "b", "workers": 1000, "size": 2**10, "step_s": 0.025, "run_s": None},
    ],
    footnotes=["foot"],
    notes=["note"],
    marked=frozenset([(0, "workers")]),
    upright=True,
)


def test_an_upright_table_has_a_line_for_each_metric_in_a_unit_of_its_own() -> None:
    # The least of a line has its digits; lines and groups without a value are left out.
    assert to_text([UPRIGHT]).splitlines() == [
        "title",
        "",
        "                     a*",
        "net            1 worker       b",
        "-------------  --------  ------",
        "workers              1*  1,000",
        "size (KiB)        1,024       1",
        "training",
        "  a step (ms)     2,000      25",
        "  all (h)            10",
        "cost           2.00 USD",
        "",
        "foot",
        "note: note",
    ]


def test_an_upright_table_folds_plan_by_plan() -> None:
    lines = to_text([UPRIGHT], 24).splitlines()
    assert [line for line in lines if line.startswith("net")] == [
        "net           1 worker",
        "net                b",
    ]
    assert max(map(len, lines)) <= 24


def test_an_upright_table_is_upright_in_markdown_and_one_row_a_plan_for_programs() -> None:
    lines = to_markdown([UPRIGHT]).splitlines()
    assert lines[2:7] == [
        r"| net | a\* 1 worker | b |",
        "| --- | ---: | ---: |",
        r"| workers | 1\* | 1,000 |",
        "| size (KiB) | 1,024 | 1 |",
        "| training |  |  |",
    ]
    assert to_separated([UPRIGHT], ",").splitlines() == [
        "name,workers,size,step_s,run_s,unknown,gone",
        "a*,1,1048576,2.0,36000.0,,",
        "b,1000,1024,0.025,,,",
    ]


@pytest.mark.parametrize(
    ("seconds", "unit"),
    [(20 * 86400, "d"), (9 * 86400, "h"), (7200, "h"), (300, "min"), (5, "s"), (0.1, "s")],
)
def test_long_times_read_in_hours_or_days(seconds: float, unit: str) -> None:
    assert scale_for([[seconds]], "duration").unit == unit


@pytest.mark.parametrize(
    ("joules", "unit"), [(5e8, "GJ"), (5e6, "MJ"), (500, "kJ"), (0.4, "J"), (0.05, "mJ")]
)
def test_energy_has_its_units(joules: float, unit: str) -> None:
    assert scale_for([[joules]], "J").unit == unit


@pytest.mark.parametrize(
    ("columns", "unit"),
    [
        ([[3.0]], "s"),
        ([[3.0], [0.05]], "ms"),  # 0.05 s would look small
        ([[3.0], [0.2]], "s"),
        ([[3.0], [3e-9]], "s"),  # less than a millionth of it does not count
        ([[0.0]], "ms"),
        ([[]], "ms"),
        ([[2e-5]], "us"),
    ],
)
def test_one_unit_serves_all_columns(columns: list[list[float]], unit: str) -> None:
    assert scale_for(columns, "s").unit == unit


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("288 GB/s", "bytes/s", 288e9),
        ("20 Gbit/s", "bytes/s", 2.5e9),
        (b"12 GiB", "bytes", 12 * 2**30),
        ("1.5GHz", "Hz", 1.5e9),
        ("4.29 TFLOP/s", "FLOP/s", 4.29e12),
        ("250 W", "W", 250),
        ("5 us", "s", 5e-6),
    ],
)
def test_units_are_read(text: str, dimension: str, value: float) -> None:
    assert parse(text, dimension) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("288", "expected a number with a unit"),
        ("288 GB", r"did you mean 'GB/s'\?"),
        ("-1 GB/s", "expected a positive number"),
        ("1e-320 B/s", "too small to mean anything"),
        ("1e400 B/s", "too large to mean anything"),
    ],
)
def test_what_is_no_quantity_says_why(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse(text, "bytes/s")
