"""`paleo validate`: predictions against measurements."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import click

from paleo.cli.operator_tables import operator_options
from paleo.cli.options import (
    Output,
    choice_option,
    names_option,
    output_options,
    say_no_effect,
    verbose,
)
from paleo.cli.plotting import Plot, plot_option_of, scattered
from paleo.cli.printing import say
from paleo.core.errors import SettingError
from paleo.costs import COST_MODELS
from paleo.costs.tiled.constants import CONSTANTS
from paleo.measure.validate import KEYS, Selection, validate
from paleo.measure.validate.crossvalidate import PER, SPLITS, fits
from paleo.measure.validate.report import BY
from paleo.views.answers.measuring import validation_answer
from paleo.views.tables import validation as views


@click.command("validate", short_help="Predictions against measurements: errors by group.")
@click.argument("files", nargs=-1, type=click.Path(), metavar="[FILE.csv]...")
@operator_options
@names_option("cost_model", COST_MODELS, default="tiled", help="Cost models")
@names_option(
    "by", KEYS, default=",".join(BY), metavar="LABEL,...", help="What the rows of a group agree in"
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
@names_option(
    "fit",
    CONSTANTS,
    help="Fit constants of the cost model tiled to the rows; print their errors on these rows "
    "and on rows left out. Constants",
)
@choice_option("split", SPLITS, "shape", "What the rows that a fit leaves out differ in.")
@click.option("--folds", type=int, default=5, help="Parts that are left out in turn.")
@choice_option("fit_per", PER, "architecture", "What has constants of its own.")
@output_options
@plot_option_of("predicted against measured times")
def command(
    files: tuple[str, ...],
    operators: str | None,
    selection: Selection,
    cost_model: list[str],
    by: list[str],
    show: str | None,
    fail_above: float | None,
    plot: Plot,
    fit: list[str] | None,
    output: Output,
    **settings: Any,
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
      paleo validate mine.csv --cost_model=tiled,roofline --by=device --fail_above=20
      paleo validate --operators=aiconfigurator_core --system=h100_sxm
      paleo validate mine.csv --fit=launch,memory_share --split=shape
    """  # noqa: D301 (click takes the control character, not the escape)
    if fail_above is not None and not fail_above >= 0:
        raise SettingError(f"fail_above: expected a number of 0 or more, got {fail_above}")
    if fit is None:
        say_no_effect("--fit", "split", "folds", "fit_per")
    report = validate(files, operators, cost_model, by=by, selection=selection)
    verbose(f"{len(report.cases):,} rows predicted, {report.unpredicted_count:,} not")
    if fit is not None:
        say_no_effect("errors without --fit", "plot", "cost_model", "by")
        fitted = fits(report.cases, fit, per=settings.pop("fit_per"), **settings)
        results = [result.to_dict() for result in fitted]
        output.write([views.fit_table(fitted, fit)], lambda: {"fits": results})
        return _status(views.fit_failures(fitted, fail_above))
    tables = [views.validation_table(report, show)]

    def values() -> Any:
        return report.to_dict() | ({"rows": report.rows()} if show == "rows" else {})

    said = functools.partial(validation_answer, report)
    if len(report.cases):
        plot.write(output, tables, values, lambda of: of.of_validation(report), scattered, said)
    else:
        output.write(tables, values, said)
    return _status(views.group_failures(report, fail_above))


def _status(failures: Sequence[str]) -> int:
    """Return the exit status, and say on standard error why it is 1."""
    for failure in failures:
        say(failure)
    return int(bool(failures))
