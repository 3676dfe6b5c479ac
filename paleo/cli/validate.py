"""`paleo validate`: predictions against measurements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from paleo.cli.options import Names, Output, output_options, verbose
from paleo.cli.plan import say_no_effect
from paleo.cli.plotting import Plot, plot_option_of
from paleo.costs import COST_MODELS
from paleo.costs.tiled.constants import CONSTANTS
from paleo.errors import SettingError
from paleo.report import Column, Table
from paleo.validate import KEYS, Group, Report, Selection, Unpredicted, validate
from paleo.validate.fit import PER, SPLITS, FitOf, fits
from paleo.validate.report import BY

if TYPE_CHECKING:
    from paleo.charts.base import Chart

#: Reasons for rows without a prediction that are said unasked.
_FEW = 8

_STATISTICS = (
    Column("count", "rows"),
    Column("median_error", "median\nerror", "percent"),
    Column("mean_error", "mean\nerror", "percent"),
    Column("bias", "bias", "percent"),
    Column("p90_error", "90th\npercentile", "percent"),
)
_WORST = (
    Column("worst_error", "worst", "percent"),
    Column("worst_id", "worst row"),
    Column("worst_shape"),
)


@click.command("validate", short_help="Predictions against measurements: errors by group.")
@click.argument("files", nargs=-1, type=click.Path(), metavar="[FILE.csv]...")
@click.option(
    "--operators",
    metavar="PLACE",
    type=click.Path(),
    help="Operator tables: a folder with Parquet files in the layout of aiconfigurator-core, one "
    "such file, or the name of an installed package.",
)
@click.option("--system", metavar="NAME,...", type=Names(()), help="Of operator tables, systems.")
@click.option(
    "--operator", metavar="NAME,...", type=Names(()), help="Of operator tables, operators."
)
@click.option(
    "--dtype", metavar="NAME,...", type=Names(()), help="Of operator tables, element types."
)
@click.option(
    "--framework",
    metavar="NAME,...",
    type=Names(()),
    help="Of operator tables, frameworks.  [default: sglang]",
)
@click.option(
    "--framework_version",
    metavar="NAME,...",
    type=Names(()),
    help="Of operator tables, versions of the framework.  [default: the newest]",
)
@click.option(
    "--cost_model",
    type=Names(COST_MODELS),
    default="tiled",
    show_default=True,
    metavar="NAME,...",
    help=f"Cost models: {', '.join(COST_MODELS)}.",
)
@click.option(
    "--by",
    type=Names(KEYS),
    default=",".join(BY),
    show_default=True,
    metavar="LABEL,...",
    help=f"What the rows of a group agree in: {', '.join(KEYS)}.",
)
@click.option("--rows", "show", flag_value="rows", help="Print the prediction of every row.")
@click.option(
    "--unpredicted", "show", flag_value="unpredicted", help="Print why rows have no prediction."
)
@click.option(
    "--fail_above",
    type=float,
    metavar="PERCENT",
    help="Exit with status 1 if the median error of a group is above this, by the first cost "
    "model.",
)
@click.option(
    "--fit",
    type=Names(CONSTANTS),
    metavar="NAME,...",
    help="Fit constants of the cost model tiled to the rows; print their errors on these rows "
    f"and on rows left out. Constants: {', '.join(CONSTANTS)}.",
)
@click.option(
    "--split",
    type=click.Choice(SPLITS),
    default="shape",
    show_default=True,
    help="What the rows that a fit leaves out differ in from the others.",
)
@click.option(
    "--folds", type=int, default=5, show_default=True, help="Parts that are left out in turn."
)
@click.option(
    "--fit_per",
    type=click.Choice(PER),
    default="architecture",
    show_default=True,
    help="What has constants of its own.",
)
@output_options
@plot_option_of("predicted against measured times")
def command(
    files: tuple[str, ...],
    operators: str | None,
    cost_model: list[str],
    by: list[str],
    show: str | None,
    fail_above: float | None,
    plot: Plot,
    fit: list[str] | None,
    split: str,
    folds: int,
    fit_per: str,
    output: Output,
    **selected: list[str] | None,
) -> int:
    """Compare predictions with measurements, and print the errors by group.

    A FILE has rows of measured times or rates, at least under the columns quantity, value,
    network and device; docs/validate.md describes all. Errors are of times:
    (predicted - measured) / measured. Bias is their median; the other figures are of their size.

    Exit status 1 tells that a file is wrong, that no row could be predicted, or what
    --fail_above asks for.

    \b
    Examples:
      paleo validate docs/example_measurements.csv
      paleo validate mine.csv --cost_model=tiled,roofline --by=device
      paleo validate mine.csv --fail_above=20 --plot=mine.png
      paleo validate --operators=aiconfigurator_core --system=h100_sxm
      paleo validate mine.csv --fit=launch,memory_share --split=shape
    """  # noqa: D301 (click takes the control character, not the escape)
    if fail_above is not None and not fail_above >= 0:
        raise SettingError(f"fail_above: expected a number of 0 or more, got {fail_above}")
    if operators is None:
        for option in _SELECTED:
            say_no_effect(option, "--operators")
    if fit is None:
        for option in ("split", "folds", "fit_per"):
            say_no_effect(option, "--fit")
    report = validate(files, operators, cost_model, by=by, selection=_selection(selected))
    verbose(f"{len(report.cases):,} rows predicted, {report.unpredicted_count:,} not")
    if fit is not None:
        for option in ("plot", "cost_model", "by"):
            say_no_effect(option, "errors without --fit")
        found = fits(report.cases, fit, per=fit_per, split=split, folds=folds)
        output.write([_fit_table(found, fit)], lambda: {"fits": [each.to_dict() for each in found]})
        return _status_of_fits(found, fail_above)
    tables = [_TABLES[show](report)]

    def values() -> Any:
        return report.to_dict() | ({"rows": report.rows()} if show == "rows" else {})

    if len(report.cases):
        plot.write(output, tables, values, lambda _: [_chart(report)], _picture)
    else:
        output.write(tables, values)
    return _status(report, fail_above)


def _chart(report: Report) -> Chart:
    from paleo.charts.validation import validation_chart

    return validation_chart(report)


def _picture(charts: Sequence[Chart]) -> Any:
    from paleo.plots.scatter import scatter

    return scatter(*charts)


_SELECTED = {
    "system": "systems",
    "operator": "operators",
    "dtype": "dtypes",
    "framework": "frameworks",
    "framework_version": "versions",
}


def _selection(selected: Mapping[str, list[str] | None]) -> Selection:
    return Selection(**{name: tuple(selected[option] or ()) for option, name in _SELECTED.items()})


def _status(report: Report, fail_above: float | None) -> int:
    """Return the exit status, and say on standard error why it is 1."""
    if not any(group.statistics.count for group in report.totals):
        click.echo("paleo: no row could be predicted", err=True)
        return 1
    if fail_above is None:
        return 0
    above = [
        group
        for group in report.groups or report.totals
        if group.cost_model == report.cost_models[0]
        and group.statistics.median is not None
        and 100 * group.statistics.median > fail_above
    ]
    for group in above:
        named = ", ".join(filter(None, group.labels.values())) or "all rows"
        click.echo(
            f"paleo: {named}: the median error is {100 * (group.statistics.median or 0):.1f} %, "
            f"above {fail_above:g} %",
            err=True,
        )
    return int(bool(above))


def _status_of_fits(found: Sequence[FitOf], fail_above: float | None) -> int:
    """Return the exit status by the errors on rows left out, or on all where there are none."""
    above = 0
    for each in found if fail_above is not None else ():
        median = (each.fit.held_out or each.fit.in_sample).median
        if median is not None and 100 * median > (fail_above or 0):
            said = f"paleo: {each.name}: the median error is {100 * median:.1f} %"
            click.echo(f"{said}, above {fail_above:g} %", err=True)
            above = 1
    return above


def _group_table(report: Report) -> Table:
    several = len(report.cost_models) > 1
    labels = [
        column
        for key in report.by
        for column in (Column(key), Column(f"first_{key}", key.replace("_", " "), for_people=True))
    ]
    models = Column("cost_model", "cost model" if several or not labels else "")
    rows: list[dict[str, Any]] = []
    before: dict[str, str] | None = None
    for group in report.groups:
        row = group.to_dict()
        # For people, the labels stand once above several cost models.
        row |= {
            f"first_{key}": "" if group.labels == before else text
            for key, text in group.labels.items()
        }
        rows.append(row)
        before = group.labels
    worst = _WORST if rows else ()
    return Table(
        _title(report),
        (*labels, models, *_STATISTICS, *worst),
        rows,
        footnotes=[*_totals(report), *_reasons(report.unpredicted)],
    )


def _title(report: Report) -> str:
    measured = f"{len(report.cases):,} row{'s' * (len(report.cases) != 1)}"
    return f"{measured} predicted by {', '.join(report.cost_models)}"


def _totals(report: Report) -> list[str]:
    if len(report.groups) <= len(report.cost_models):
        return []
    return [f"all rows, {group.cost_model}: {_sentence(group)}" for group in report.totals]


def _sentence(group: Group) -> str:
    found = group.statistics
    if found.median is None or found.mean is None or found.bias is None or found.p90 is None:
        return "no prediction"
    return (
        f"median error {100 * found.median:.1f} %, mean {100 * found.mean:.1f} %, "
        f"bias {100 * found.bias:+.1f} %, 90th percentile {100 * found.p90:.1f} %"
    )


def _reasons(unpredicted: Sequence[Unpredicted]) -> list[str]:
    """Return why rows have no prediction, the most frequent reasons first."""
    lines = []
    for model in dict.fromkeys(each.cost_model for each in unpredicted):
        own = [each for each in unpredicted if each.cost_model == model]
        count = sum(each.count for each in own)
        by_whom = f"by {model} " if model else ""
        plural = "row is" if count == 1 else "rows are"
        lines += ["", f"{count:,} {plural} not predicted {by_whom}(--unpredicted lists them):"]
        reasons: dict[str, int] = {}
        for each in own:
            reasons[each.reason] = reasons.get(each.reason, 0) + each.count
        ordered = sorted(reasons.items(), key=lambda pair: -pair[1])
        width = len(f"{ordered[0][1]:,}")
        lines += [f"  {number:>{width},}  {reason}" for reason, number in ordered[:_FEW]]
        if len(ordered) > _FEW:
            rest = sum(number for _, number in ordered[_FEW:])
            lines.append(f"  {rest:>{width},}  for {len(ordered) - _FEW} other reasons")
    return lines[1:] if lines and not lines[0] else lines


def _unpredicted_table(report: Report) -> Table:
    columns = (
        Column("source", "source"),
        Column("count", "rows"),
        Column("reason", "reason"),
        Column("cost_model", "by"),
        Column("ids"),
        Column("first_ids", "first rows", for_people=True),
    )
    rows = [each.to_dict() | {"first_ids": ", ".join(each.ids[:2])} for each in report.unpredicted]
    count = report.unpredicted_count
    return Table(f"{count:,} row{'s' * (count != 1)} not predicted", columns, rows)


def _row_table(report: Report) -> Table:
    shown = {"network": "network", "device": "device", "dtype": "type"}
    columns = [Column("id", "row")]
    columns += [Column(key, shown.get(key, "")) for key in KEYS]
    columns += [Column("shape", "shape"), Column("measured_s", "measured", "s", digits=3)]
    for name in report.cost_models:
        columns.append(Column(f"{name}_s", name, "s", digits=3))
        columns.append(Column(f"{name}_error", "error", "percent"))
    return Table(_title(report), columns, report.rows())


_TABLES = {None: _group_table, "rows": _row_table, "unpredicted": _unpredicted_table}


def _fit_table(found: Iterable[FitOf], constants: Sequence[str]) -> Table:
    rows: list[dict[str, Any]] = []
    lines = []
    for each in found:
        fit = each.fit
        values = {name: fit.constants[name] for name in constants}
        for where, errors in (("these rows", fit.in_sample), ("rows left out", fit.held_out)):
            if errors is not None:
                rows.append({"of": each.name, "errors": where} | errors.to_dict() | values)
        texts = [
            f"{name} {_value(name, value)}{' (on a bound)' * (name in fit.on_bound)}"
            for name, value in values.items()
        ]
        lines.append(f"{each.name}: {', '.join(texts)}")
        if fit.held_out is None:
            lines.append(f"{each.name}: only one {fit.split}, so that none can be left out")
        else:
            lines.append(f"{each.name}: {len(fit.folds)} folds by {fit.split}")
    return Table(
        "constants of tiled, fitted",
        (
            Column("of", "fitted for"),
            Column("errors", "errors on"),
            *_STATISTICS,
            Column("worst_error", "worst", "percent"),
            *map(Column, constants),
        ),
        rows,
        footnotes=lines,
    )


def _value(name: str, value: float) -> str:
    unit = CONSTANTS[name].unit
    if unit == "s":
        return f"{value * 1e6:.3g} us"
    return f"{value:.3g}" if unit == "1" else f"{value:.3g} {unit}"
