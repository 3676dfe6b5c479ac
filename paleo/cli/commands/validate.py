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
from paleo.measure.validate import KEYS, Selection, validate
from paleo.measure.validate.crossvalidate import PER, SPLITS, fits
from paleo.measure.validate.link_constants import FITTED
from paleo.measure.validate.report import BY
from paleo.views.answers.measuring import validation_answer
from paleo.views.tables import validation as views


@click.command("validate", short_help="Compare predictions with your measurements.")
@click.argument("files", nargs=-1, type=click.Path(), metavar="[FILE.csv]...")
@operator_options
@names_option("cost_model", COST_MODELS, default="tiled", help="Cost models")
@names_option(
    "by", KEYS, default=",".join(BY), metavar="LABEL,...", help="Group the errors by these labels"
)
@click.option("--rows", "show", flag_value="rows", help="Print every row with its prediction.")
@click.option(
    "--unpredicted", "show", flag_value="unpredicted", help="Print why rows have no prediction."
)
@click.option(
    "--fail_above",
    type=float,
    metavar="PERCENT",
    help="Exit with status 1 if the median error of any group is above this. Of several cost "
    "models, the first counts.",
)
@names_option(
    "fit",
    FITTED,
    help="Fit these constants of the cost model tiled to the rows; print the errors on these rows "
    "and on rows that were left out (cross-validation). Constants",
)
@choice_option("split", SPLITS, "shape", "What fitted and left-out rows never share.")
@click.option("--folds", type=int, default=5, help="Parts of the cross-validation.")
@choice_option("fit_per", PER, "architecture", "Fit constants for each of these.")
@output_options
@plot_option_of("predicted against measured times")
def command(
    files: tuple[str, ...],
    operators: str | None,
    selection: Selection,
    served: str | None,
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

    A FILE is CSV with a measured time or rate in each row. It needs the columns quantity, value,
    network and device (all: docs/validate.md). An error is (predicted - measured) / measured time.
    Bias is the median error; the other figures ignore the sign.

    The exit status is 1 if a file is wrong, no row could be predicted, or --fail_above says so.

    \b
    Examples:
      paleo validate docs/example_measurements.csv
      paleo validate mine.csv --cost_model=tiled,roofline --fail_above=20
      paleo validate --operators=aiconfigurator_core --system=h100_sxm
      paleo validate --served=aiconfigurator_core --by=stratum,framework
      paleo validate mine.csv --fit=launch,memory_share --split=shape
    """  # noqa: D301 (click takes the control character, not the escape)
    if fail_above is not None and not fail_above >= 0:
        raise SettingError(f"fail_above: expected a number of 0 or more, got {fail_above}")
    if fit is None:
        say_no_effect("--fit", "split", "folds", "fit_per")
    report = validate(files, operators, cost_model, by=by, selection=selection, served=served)
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
