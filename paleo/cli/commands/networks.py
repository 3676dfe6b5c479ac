"""`paleo networks`: the predefined networks, with their figures and sources."""

from __future__ import annotations

import click

from paleo.cli.options import Names, Output, output_options
from paleo.cluster import find_network, network_names
from paleo.core.errors import results_of
from paleo.views.answers.listing import networks_answer
from paleo.views.tables.networks import network_json, network_list, network_table

_NAME = Names(network_names, may_be_file=True)


@click.command("networks", short_help="List the predefined networks, with sources.")
@click.argument("names", nargs=-1, type=_NAME, metavar="[NAME]...")
@output_options
def command(names: tuple[str, ...], output: Output) -> None:
    """List all predefined networks, or show what is known of each NAME.

    A NAME is a network, an alias or a TOML file. Bandwidths are those of one direction, after
    line coding. The cost model paleo2017 uses those headed 2017.

    \b
    Examples:
      paleo networks
      paleo networks pcie3 nvlink4
      paleo networks --format=csv
    """  # noqa: D301 (click takes the control character, not the escape)
    networks = results_of(find_network, names or network_names())
    table = network_list if output.for_people and not names else network_table
    output.write(
        [table(networks)],
        lambda: {"networks": [network_json(network) for network in networks]},
        lambda: networks_answer(networks),
    )
