"""The tables of networks: a list, and what is known of some; and the same for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paleo.cluster import Network
from paleo.core.attributes import attributes
from paleo.views.table import Column, Table
from paleo.views.tables.base import cite, described

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


def network_list(networks: Sequence[Network]) -> Table:
    """Return a row for each network, sorted as people look for them."""
    shown = sorted(networks, key=_rank)
    rows = [{**_row(network), "bandwidth_again": network.bandwidth} for network in shown]
    return Table("", _LIST, rows, footnotes=_LIST_NOTES)


def network_table(networks: Sequence[Network]) -> Table:
    """Return the networks with their sources and a note of each, for people as footnotes."""
    rows, numbered = cite(
        [_row(network) for network in networks],
        [list(network.sources.values()) for network in networks],
    )
    notes = [f"{network.name}: {_note(network)}" for network in networks if _note(network)]
    blank = [""] if notes and numbered else []
    return Table("", _COLUMNS, rows, footnotes=[*notes, *blank, *numbered])


def _rank(network: Network) -> tuple[str, float, str]:
    """Return what a list for people is sorted by: the first word of the name, bandwidth, name."""
    word = network.name.split("_")[0].rstrip("0123456789")
    return word, float(network.bandwidth), network.name


def _row(network: Network) -> dict[str, Any]:
    return {
        **attributes(network, "name", "title"),
        "bandwidth_bytes_per_s": network.bandwidth,
        "paleo2017_bandwidth_bytes_per_s": network.own_bandwidth_2017,
        "aliases": "; ".join(network.aliases),
        "sources": "; ".join(network.sources.values()),
    }


def _note(network: Network) -> str:
    """Return what is said of a network's figure, and of that for 2017."""
    note, old = network.figures["bandwidth"].note, network.note_2017
    return f"{note}; 2017: {old}" if note and old else note or old


def network_json(network: Network) -> dict[str, Any]:
    """Return a network as JSON has it: SI units, and the source of every figure."""
    old = network.own_bandwidth_2017
    return {
        **described(network),
        "paleo2017": old and {"bandwidth_bytes_per_s": old, "note": network.note_2017},
    }
