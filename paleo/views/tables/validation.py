"""The tables of a validation: errors by group, rows, reasons, and fitted constants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from paleo.measure.validate import KEYS, Group, Report, Unpredicted
from paleo.measure.validate.crossvalidate import CrossValidation
from paleo.measure.validate.link_constants import FITTED
from paleo.views.charts.numbers import counted
from paleo.views.table import Column, Table

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


def validation_table(report: Report, show: str | None = None) -> Table:
    """Return the errors by group or, as `show` says, "rows" or why some are "unpredicted"."""
    return {None: _group_table, "rows": _row_table, "unpredicted": _unpredicted_table}[show](report)


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
        # For people, the labels stand once above several cost models.
        shown = dict.fromkeys(group.labels, "") if group.labels == before else group.labels
        rows.append(group.to_dict() | {f"first_{key}": text for key, text in shown.items()})
        before = group.labels
    worst = _WORST if rows else ()
    return Table(
        _title(report),
        (*labels, models, *_STATISTICS, *worst),
        rows,
        footnotes=[*_totals(report), *_reasons(report.unpredicted)],
    )


def _title(report: Report) -> str:
    return f"{counted(len(report.cases), 'row')} predicted by {', '.join(report.cost_models)}"


def _totals(report: Report) -> list[str]:
    if len(report.groups) <= len(report.cost_models):
        return []
    return [f"all rows, {group.cost_model}: {_sentence(group)}" for group in report.totals]


def _sentence(group: Group) -> str:
    errors = group.statistics
    if errors.median is None or errors.mean is None or errors.bias is None or errors.p90 is None:
        return "no prediction"
    return (
        f"median error {100 * errors.median:.1f} %, mean {100 * errors.mean:.1f} %, "
        f"bias {100 * errors.bias:+.1f} %, 90th percentile {100 * errors.p90:.1f} %"
    )


def _reasons(unpredicted: Sequence[Unpredicted]) -> list[str]:
    """Return why rows have no prediction, the most frequent reasons first."""
    lines: list[str] = []
    for model in dict.fromkeys(group.cost_model for group in unpredicted):
        reasons: Counter[str] = Counter()
        for group in unpredicted:
            if group.cost_model == model:
                reasons[group.reason] += group.count
        count = reasons.total()
        by_whom = f"by {model} " if model else ""
        plural = "row is" if count == 1 else "rows are"
        lines += [""] if lines else []
        lines.append(f"{count:,} {plural} not predicted {by_whom}(--unpredicted lists them):")
        ordered = reasons.most_common()
        width = len(f"{ordered[0][1]:,}")
        lines += [f"  {number:>{width},}  {reason}" for reason, number in ordered[:_FEW]]
        if len(ordered) > _FEW:
            rest = sum(number for _, number in ordered[_FEW:])
            lines.append(f"  {rest:>{width},}  for {len(ordered) - _FEW} other reasons")
    return lines


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
    return Table(f"{counted(report.unpredicted_count, 'row')} not predicted", columns, rows)


def _row_table(report: Report) -> Table:
    shown = {"network": "network", "device": "device", "dtype": "type"}
    columns = [Column("id", "row")]
    columns += [Column(key, shown.get(key, "")) for key in KEYS]
    columns += [Column("shape", "shape"), Column("measured_s", "measured", "s", digits=3)]
    for name in report.cost_models:
        columns.append(Column(f"{name}_s", name, "s", digits=3))
        columns.append(Column(f"{name}_error", "error", "percent"))
    return Table(_title(report), columns, report.rows())


def group_failures(report: Report, percent: float | None) -> list[str]:
    """Return the groups whose median error by the first cost model is above this, in sentences."""
    if not any(group.statistics.count for group in report.totals):
        return ["no row could be predicted"]
    medians = (
        (", ".join(filter(None, group.labels.values())) or "all rows", group.statistics.median)
        for group in report.groups or report.totals
        if group.cost_model == report.cost_models[0]
    )
    return _above(medians, percent)


def fit_failures(fits: Iterable[CrossValidation], percent: float | None) -> list[str]:
    """Return the same of fits: of rows left out, or of all where there are none."""
    errors = ((fit.name, fit.held_out or fit.in_sample) for fit in fits)
    return _above(((name, error.median) for name, error in errors), percent)


def _above(medians: Iterable[tuple[str, float | None]], percent: float | None) -> list[str]:
    return [
        f"{name}: the median error is {100 * median:.1f} %, above {percent:g} %"
        for name, median in medians
        if percent is not None and median is not None and 100 * median > percent
    ]


def fit_table(fits: Iterable[CrossValidation], constants: Sequence[str]) -> Table:
    """Return the errors of fits, with the constants that each gave."""
    rows: list[dict[str, Any]] = []
    lines = []
    for fit in fits:
        name = fit.name
        values = {constant: fit.constants[constant] for constant in constants}
        for where, errors in (("these rows", fit.in_sample), ("rows left out", fit.held_out)):
            if errors is not None:
                rows.append({"of": name, "errors": where} | errors.to_dict() | values)
        texts = [
            f"{constant} {_value(constant, value)}{' (on a bound)' * (constant in fit.on_bound)}"
            for constant, value in values.items()
        ]
        lines.append(f"{name}: {', '.join(texts)}")
        if fit.held_out is None:
            lines.append(f"{name}: only one {fit.split}, so that none can be left out")
        else:
            lines.append(f"{name}: {len(fit.folds)} folds by {fit.split}")
    columns = (
        Column("of", "fitted for"),
        Column("errors", "errors on"),
        *_STATISTICS,
        _WORST[0],
        *map(Column, constants),
    )
    return Table("constants of tiled, fitted", columns, rows, footnotes=lines)


def _value(name: str, value: float) -> str:
    unit = FITTED[name].unit
    if unit == "s":
        return f"{value * 1e6:.3g} us"
    return f"{value:.3g}" if unit == "1" else f"{value:.3g} {unit}"
