"""Results in notebooks: in a line, as HTML, as a pandas.DataFrame, as a picture."""

from __future__ import annotations

import html as markup
from collections.abc import Callable, Sequence
from functools import singledispatch
from typing import Any

from paleo.core.errors import PaleoError
from paleo.core.frozen import dataclass
from paleo.core.optional import extra
from paleo.core.results import Result, Results
from paleo.measure.calibrate import Calibration
from paleo.measure.profile import FullPasses, Profiles
from paleo.measure.validate.report import Report
from paleo.step.memory import Fit, Footprint
from paleo.step.results import Run, Simulation
from paleo.studies.compare import Comparison
from paleo.studies.metrics import Metrics
from paleo.studies.summary import NetSummary
from paleo.views.answers.comparison import comparison_answer
from paleo.views.answers.measuring import (
    calibration_answer,
    fullpass_answer,
    profile_answer,
    validation_answer,
)
from paleo.views.answers.memory import memory_answer
from paleo.views.answers.metrics import TRAINING, metrics_answer
from paleo.views.answers.simulation import run_answer, simulation_answer
from paleo.views.answers.summary import summary_answer
from paleo.views.charts import results as charts_of
from paleo.views.charts.base import Chart
from paleo.views.table import Table, to_cells
from paleo.views.tables.calibration import calibration_tables
from paleo.views.tables.comparison import comparison_tables, totals_table
from paleo.views.tables.measuring import fullpass_table, profile_table
from paleo.views.tables.memory import memory_table, memory_tables
from paleo.views.tables.metrics import metrics_table
from paleo.views.tables.ranking import ranking_table
from paleo.views.tables.simulation import simulation_table, simulation_tables
from paleo.views.tables.summary import summary_table
from paleo.views.tables.validation import validation_table

#: Rows of a table before the rest is a number.
_ROWS = 60


@dataclass(frozen=True)
class Shown:
    """How a result is shown: its sentences, its tables, those for programs, and its charts."""

    answer: Callable[[], Sequence[str]]
    tables: Callable[[], Sequence[Table]]
    charts: Callable[[], Sequence[Chart]]
    rows: Callable[[], Sequence[Table]] | None = None


@singledispatch
def shown(result: Any) -> Shown:
    """Return how a result is shown; raises TypeError for what is none."""
    raise TypeError(f"there is no view of a {type(result).__name__}")


@shown.register
def _(result: Simulation) -> Shown:
    return Shown(
        lambda: simulation_answer(result),
        lambda: simulation_tables(result),
        lambda: charts_of.of_simulation(result),
    )


@shown.register
def _(result: Run) -> Shown:
    return Shown(
        lambda: run_answer(result),
        lambda: [simulation_table(result)],
        lambda: charts_of.of_simulation(Simulation((result,))),
    )


@shown.register
def _(result: Metrics) -> Shown:
    return shown(Results([result]))


@shown.register
def _(result: Fit) -> Shown:
    return shown(Results([result]))


@shown.register
def _(result: Footprint) -> Shown:
    return shown(Results([Fit(result, None, None)]))


@shown.register
def _(result: NetSummary) -> Shown:
    return shown(Results([result]))


@shown.register
def _(result: Comparison) -> Shown:
    return Shown(
        lambda: comparison_answer(result),
        lambda: [totals_table(result, with_notes=True)],
        lambda: charts_of.of_comparison(result),
        lambda: (
            comparison_tables(result, only_totals=False, with_totals=False)
            if any(each.layers for each in result.differences)
            else [totals_table(result, with_notes=False)]
        ),
    )


@shown.register
def _(result: Results) -> Shown:  # type: ignore[type-arg]
    if not result:
        raise TypeError("there is no view of no results")
    first = result[0]
    if isinstance(first, Metrics):
        return Shown(
            lambda: metrics_answer(result),
            lambda: [ranking_table(result, TRAINING) if len(result) > 1 else metrics_table(result)],
            lambda: charts_of.of_metrics(result),
        )
    if isinstance(first, Fit):
        return Shown(
            lambda: memory_answer(result),
            lambda: memory_tables(result),
            lambda: charts_of.of_fits(result),
            lambda: list(map(memory_table, result)),
        )
    return Shown(
        lambda: summary_answer(result),
        lambda: list(map(summary_table, result)),
        lambda: charts_of.of_summaries(result),
    )


@shown.register
def _(result: Profiles) -> Shown:
    return Shown(
        lambda: profile_answer(result.runs),
        lambda: list(map(profile_table, result.runs)),
        lambda: charts_of.of_profiles(result.runs),
    )


@shown.register
def _(result: FullPasses) -> Shown:
    return Shown(
        lambda: fullpass_answer(result.runs),
        lambda: list(map(fullpass_table, result.runs)),
        lambda: charts_of.of_fullpasses(result.runs),
    )


@shown.register
def _(result: Report) -> Shown:
    return Shown(
        lambda: validation_answer(result),
        lambda: [validation_table(result)],
        lambda: charts_of.of_validation(result),
    )


@shown.register
def _(result: Calibration) -> Shown:
    return Shown(
        lambda: calibration_answer(result, f"{result.device.name}.toml"),
        lambda: calibration_tables(result, f"{result.device.name}.toml"),
        lambda: charts_of.of_calibration(result),
    )


def line(result: Result) -> str:
    """Return a result in one line: what it is, and the first sentence of its answer."""
    kind = type(result).__name__
    try:
        answer = next(iter(shown(result).answer()), "")
    except (PaleoError, ArithmeticError, LookupError, TypeError, ValueError):
        # Whoever looks at a value in a debugger is to see something.
        answer = ""
    return f"<{kind}: {answer}>" if answer else f"<{kind}>"


def html(result: Result) -> str:
    """Return the sentences of a result and its tables, as HTML of which nothing is a file's."""
    view = shown(result)
    parts = [f"<p>{markup.escape(' '.join(view.answer()))}</p>"]
    parts += map(_html_table, view.tables())
    return "\n".join(parts)


def _html_table(table: Table) -> str:
    cells = to_cells(table)
    heads = "".join(
        f"<th>{markup.escape(column['title'])}"
        f"{' (' + markup.escape(column['unit']) + ')' if column['unit'] else ''}</th>"
        for column in cells["columns"]
    )
    aligned = [
        ' style="text-align:right"' if column["right"] else ' style="text-align:left"'
        for column in cells["columns"]
    ]

    def row(texts: Sequence[str], tag: str = "td") -> str:
        inner = "".join(
            f"<{tag}{style}>{markup.escape(text)}</{tag}>"
            for style, text in zip(aligned, texts, strict=True)
        )
        return f"<tr>{inner}</tr>"

    rows = [row(texts) for texts in cells["rows"][:_ROWS]]
    left = len(cells["rows"]) - len(rows)
    if left:
        rows.append(f'<tr><td colspan="{len(aligned)}">{left:,} more rows</td></tr>')
    if cells["total"]:
        rows.append(row(cells["total"], "th"))
    notes = "".join(
        f"<li>{markup.escape(note)}</li>" for note in [*cells["footnotes"], *cells["notes"]]
    )
    caption = f"<caption>{markup.escape(cells['title'])}</caption>" if cells["title"] else ""
    return (
        f"<table>{caption}<thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
        f"{f'<ul>{notes}</ul>' if notes else ''}"
    )


def frame(result: Result) -> Any:
    """Return the rows that programs get of a result, as a pandas.DataFrame.

    Raises PaleoError if pandas is missing.
    """
    pandas = extra("pandas", "a table of pandas", "pandas", "notebook")
    view = shown(result)
    tables = (view.rows or view.tables)()
    columns = dict.fromkeys(
        column.key for table in tables for column in table.columns if not column.for_people
    )
    rows = [row for table in tables for row in table.rows]
    banded = [f"{key}_{end}" for key in columns for end in ("low", "high")]
    columns |= dict.fromkeys(key for key in banded if any(key in row for row in rows))
    return pandas.DataFrame(
        [{key: _flat(row.get(key)) for key in columns} for row in rows], columns=list(columns)
    )


def _flat(value: Any) -> Any:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else value


def figure(result: Result) -> Any:
    """Return the picture of a result, a matplotlib.figure.Figure.

    Raises PaleoError if Matplotlib is missing, SettingError if there is nothing to draw.
    """
    extra("matplotlib", "a plot", "Matplotlib", "plot")
    from paleo.views.plots import draw

    return draw(shown(result).charts())
