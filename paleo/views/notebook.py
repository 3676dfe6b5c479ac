"""Results in notebooks: in a line, as HTML, as a pandas.DataFrame, as a picture."""

from __future__ import annotations

import html as markup
from collections.abc import Callable, Sequence
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
from paleo.studies.compare.plans import PlansComparison
from paleo.studies.folding import folded_fit, folded_summary
from paleo.studies.metrics import Metrics
from paleo.studies.planning import Planning
from paleo.studies.search import Search
from paleo.studies.serving.answers import Serving
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
from paleo.views.answers.planning import planning_answer
from paleo.views.answers.plans import plans_answer
from paleo.views.answers.search import search_answer
from paleo.views.answers.serving import serving_answer
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
from paleo.views.tables.planning import planning_tables
from paleo.views.tables.plans import plans_table
from paleo.views.tables.ranking import ranking_table
from paleo.views.tables.search import search_tables
from paleo.views.tables.serving import loads_table, serving_tables
from paleo.views.tables.simulation import simulation_table, simulation_tables
from paleo.views.tables.summary import summary_table
from paleo.views.tables.validation import validation_table

#: Rows of a table before the rest is a number.
_ROWS = 60


@dataclass(frozen=True)
class View:
    """How results of a kind are shown: sentences, tables, charts, and the tables for programs.

    Each is found of a result; of what is shown together with others of its kind, of all of them.
    """

    answer: Callable[[Any], Sequence[str]]
    tables: Callable[[Any], Sequence[Table]]
    charts: Callable[[Any], Sequence[Chart]]
    rows: Callable[[Any], Sequence[Table]] | None = None


#: Kinds of results that stand alone.
_ALONE: dict[type, View] = {
    Simulation: View(simulation_answer, simulation_tables, charts_of.of_simulation),
    Run: View(
        run_answer,
        lambda run: [simulation_table(run)],
        lambda run: charts_of.of_simulation(Simulation((run,))),
    ),
    Comparison: View(
        comparison_answer,
        lambda found: [totals_table(found, with_notes=True)],
        charts_of.of_comparison,
        lambda found: comparison_tables(
            found,
            only_totals=not any(each.layers for each in found.differences),
            with_totals=False,
        ),
    ),
    PlansComparison: View(plans_answer, lambda found: [plans_table(found)], charts_of.of_plans),
    Planning: View(planning_answer, planning_tables, charts_of.of_planning),
    Search: View(
        search_answer,
        lambda found: search_tables(found, for_people=True),
        charts_of.of_search,
        lambda found: search_tables(found, for_people=False),
    ),
    Profiles: View(
        lambda found: profile_answer(found.runs),
        lambda found: list(map(profile_table, found.runs)),
        lambda found: charts_of.of_profiles(found.runs),
    ),
    FullPasses: View(
        lambda found: fullpass_answer(found.runs),
        lambda found: list(map(fullpass_table, found.runs)),
        lambda found: charts_of.of_fullpasses(found.runs),
    ),
    Report: View(
        validation_answer, lambda report: [validation_table(report)], charts_of.of_validation
    ),
    Calibration: View(
        lambda found: calibration_answer(found, f"{found.device.name}.toml"),
        lambda found: calibration_tables(found, f"{found.device.name}.toml"),
        charts_of.of_calibration,
    ),
}
#: Kinds of which several are shown together.
_TOGETHER: dict[type, View] = {
    Metrics: View(
        metrics_answer,
        lambda found: [ranking_table(found, TRAINING) if len(found) > 1 else metrics_table(found)],
        charts_of.of_metrics,
    ),
    Fit: View(
        memory_answer,
        lambda found: memory_tables(list(map(folded_fit, found))),
        lambda found: charts_of.of_fits(list(map(folded_fit, found))),
        lambda fits: list(map(memory_table, fits)),
    ),
    NetSummary: View(
        summary_answer,
        lambda found: [summary_table(folded_summary(each)) for each in found],
        lambda found: charts_of.of_summaries(list(map(folded_summary, found))),
        lambda found: list(map(summary_table, found)),
    ),
    Serving: View(serving_answer, serving_tables, charts_of.of_serving, loads_table),
}


def _viewed(result: Result) -> tuple[View, Any]:
    """Return the view of a result, and what it is of; raises TypeError for what has none."""
    if isinstance(result, Footprint):
        result = Fit(result, None, None)
    if type(result) in _ALONE:
        return _ALONE[type(result)], result
    several = result if isinstance(result, Results) else Results([result])
    kind = type(several[0]) if several else type(several)
    if kind not in _TOGETHER:
        raise TypeError(f"there is no view of {kind.__name__}")
    return _TOGETHER[kind], several


def line(result: Result) -> str:
    """Return a result in one line: what it is, and the first sentence of its answer."""
    kind = type(result).__name__
    try:
        view, found = _viewed(result)
        answer = next(iter(view.answer(found)), "")
    except (PaleoError, ArithmeticError, LookupError, TypeError, ValueError):
        # Whoever looks at a value in a debugger is to see something.
        answer = ""
    return f"<{kind}: {answer}>" if answer else f"<{kind}>"


def html(result: Result) -> str:
    """Return the sentences of a result and its tables, as HTML of which nothing is a file's."""
    view, found = _viewed(result)
    parts = [f"<p>{markup.escape(' '.join(view.answer(found)))}</p>"]
    parts += map(_html_table, view.tables(found))
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
    view, found = _viewed(result)
    tables = (view.rows or view.tables)(found)
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

    view, found = _viewed(result)
    return draw(view.charts(found))
