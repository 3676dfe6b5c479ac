"""`paleo networks`: the predefined networks, with their figures and sources."""

from __future__ import annotations

import click

from paleo.cli.hardware import describe, find_all, sourced_table
from paleo.cli.options import NETWORK, Output, output_options
from paleo.hardware import find_network, network_names
from paleo.report import Column

_COLUMNS = (
    Column("name", "network"),
    Column("title", "title"),
    Column("bandwidth_bytes_per_s", "bandwidth", "network"),
    Column("paleo2017_bandwidth_bytes_per_s", "2017\nbandwidth", "network"),
    Column("aliases"),
    Column("cited", "cited", for_people=True),
    Column("sources"),
)


@click.command("networks", short_help="The predefined networks, their figures and sources.")
@click.argument("names", nargs=-1, type=NETWORK, metavar="[NAME]...")
@output_options
def command(names: tuple[str, ...], output: Output) -> None:
    """List networks: each NAME (a name, an alias or a TOML file), or all predefined ones.

    Bandwidths are those of one direction; those headed 2017 are what the cost model
    paleo2017 uses.
    """
    networks = find_all(names or network_names(), find_network)
    rows = [
        {
            "name": network.name,
            "title": network.title,
            "bandwidth_bytes_per_s": network.bandwidth,
            "paleo2017_bandwidth_bytes_per_s": network.own_bandwidth_2017,
            "aliases": "; ".join(network.aliases),
        }
        for network in networks
    ]
    table = sourced_table(
        _COLUMNS,
        rows,
        [list(network.sources.values()) for network in networks],
        [
            "; ".join(filter(None, (network.figures["bandwidth"].note, network.note_2017)))
            for network in networks
        ],
    )
    output.write(
        [table],
        lambda: {
            "networks": [
                {
                    **describe(network.name, network.title, network.aliases, network.figures),
                    "paleo2017": network.own_bandwidth_2017
                    and {
                        "bandwidth_bytes_per_s": network.own_bandwidth_2017,
                        "note": network.note_2017,
                    },
                }
                for network in networks
            ]
        },
    )
