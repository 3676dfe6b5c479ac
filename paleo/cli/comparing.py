"""Plans of devices that share a net, beside each other: what `paleo compare` prints of them."""

from __future__ import annotations

from typing import Any

from paleo.cli.edits import NetEdits
from paleo.cli.options import Output, say_no_effect
from paleo.cli.plotting import Plot
from paleo.cli.setting_groups import beside_plan, say_what_is_used


def print_plans(
    nets: tuple[str, ...], edits: NetEdits, output: Output, plot: Plot, settings: dict[str, Any]
) -> None:
    """Print plans of devices that share a net beside each other."""
    # Here, since most comparisons are of one device.
    from paleo.studies.compare.plans import compare_plans
    from paleo.views.answers.plans import plans_answer
    from paleo.views.tables.plans import plans_table

    say_no_effect("one device", "totals", "changed", "every_layer")
    del settings["totals"]
    found = compare_plans(edits.beside() if edits else nets, **beside_plan(settings))
    say_what_is_used(nets, settings)
    plot.write(
        output,
        [plans_table(found)],
        found.to_dict,
        lambda charts: charts.of_plans(found),
        answer=lambda: plans_answer(found),
    )
