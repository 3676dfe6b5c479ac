"""`paleo prices`: what an hour of a device costs, at whom, with date and source."""

from __future__ import annotations

from typing import Any

import click

from paleo.cli.options import Names, Output, output_options, setting_option
from paleo.cluster import device_names
from paleo.cluster.prices import ON_DEMAND, SPOT
from paleo.step.declarations import declared
from paleo.studies.prices import prices
from paleo.studies.training import TrainingSettings
from paleo.views.answers.prices import prices_answer
from paleo.views.tables.prices import prices_table


@click.command("prices", short_help="List what clouds charge for an hour of a device.")
@click.argument(
    "devices", nargs=-1, type=Names(device_names, may_be_file=True), metavar="[DEVICE]..."
)
@click.option("--provider", metavar="NAME,...", type=Names(()), help="Only prices of these clouds.")
@click.option("--on_demand", "kind", flag_value=ON_DEMAND, help="Only on-demand prices.")
@click.option("--spot", "kind", flag_value=SPOT, help="Only spot prices.")
@click.option("--currency", metavar="CODE", help="Only prices in this currency, such as USD.")
@setting_option(declared(TrainingSettings)["prices"], type=click.Path())
@output_options
def command(devices: tuple[str, ...], output: Output, **settings: Any) -> None:
    """List what an hour of each DEVICE costs, cheapest first; all that have a price by default.

    A price is for one device: that of an instance, divided by its number of devices. It is a
    list price of the date that stands beside it, and changes; [n] is where it is from.

    \b
    Examples:
      paleo prices H100_SXM
      paleo prices --provider=aws,azure --on_demand
      paleo prices A100_SXM_40GB --spot --format=json
    """  # noqa: D301 (click takes the control character, not the escape)
    found = prices(devices or None, **settings)
    output.write(
        [prices_table(found)] if found or not output.for_people else [],
        lambda: {"prices": [each.to_dict() for each in found]},
        lambda: prices_answer(found),
    )
