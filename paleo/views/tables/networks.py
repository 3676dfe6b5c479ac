"""`paleo networks`: the predefined networks, with their figures and sources."""

from __future__ import annotations

import click

from paleo.cli.hardware import describe, find_all, sourced_table
from paleo.cli.options import NETWORK, Output, output_options
from paleo.hardware import Network, find_network, network_names
from paleo.report import Column, Table

_NAMED = (
    Column("name", "network"),
    Column("title", "title"),
    Column("bandwidth_bytes_per_s", "bandwidth", "network"),
)
#: A list for people: what one chooses a network by.
_LIST = (*_NAMED, Column("bandwidth_again", "bandwidth", "bytes/s"))
_LIST_NOTES = (
    "Bandwidths are of one direction.",
    "What each is made of, with its source: paleo networks NAME, or --format=json.",
)
#: Some networks for people, and all for programs.
_COLUMNS = (
    *_NAMED,
    Column("paleo2017_bandwidth_bytes_per_s", "2017\nbandwidth", "network"),
    Column("aliases"),
    Column("cited", "cited", for_people=True),
    Column("sources"),
)


@click.command("networks", short_help="The predefined networks, their figures and sources.")
@click.argument("names", nargs=-1, type=NETWORK, metavar="[NAME]...")
@output_options
def command(names: tuple[str, ...], output: Output) -> None:
    """List all predefined networks, or show what is known of each NAME.

    A NAME is that of a network, an alias or a TOML file. Bandwidths are those of one
    direction, after line coding; those headed 2017 are what the cost model paleo2017
    uses. Separated values and JSON have the sources in any case.

    \b
    Examples:
      paleo networks
      paleo networks pcie3 nvlink4
      paleo networks --format=csv
    """  # noqa: D301 (click takes the control character, not the escape)
    networks = find_all(names or network_names(), find_network)
    if output.format in ("table", "markdown") and not names:
        shown = sorted(networks, key=_rank)
        again = [{**_row(network), "bandwidth_again": network.bandwidth} for network in shown]
        table = Table("", _LIST, again, footnotes=_LIST_NOTES)
    else:
        table = sourced_table(
            _COLUMNS,
            [_row(network) for network in networks],
            [list(network.sources.values()) for network in networks],
            [_note(network) for network in networks],
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


def _rank(network: Network) -> tuple[str, float, str]:
    """Return what a list for people is sorted by: the first word of the name, bandwidth, name."""
    word = network.name.split("_")[0].rstrip("0123456789")
    return word, float(network.bandwidth), network.name


def _row(network: Network) -> dict[str, object]:
    return {
        "name": network.name,
        "title": network.title,
        "bandwidth_bytes_per_s": network.bandwidth,
        "paleo2017_bandwidth_bytes_per_s": network.own_bandwidth_2017,
        "aliases": "; ".join(network.aliases),
    }


def _note(network: Network) -> str:
    """Return what is said of a network's figure, and of that for 2017."""
    note, old = network.figures["bandwidth"].note, network.note_2017
    return f"{note}; 2017: {old}" if note and old else note or old
