"""The tables of collectives: what each takes, and of what that is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from paleo.cluster.collectives.phases import LATENCY, seconds_of
from paleo.studies.collectives import CollectiveTime
from paleo.views.answers.base import duration
from paleo.views.table import Column, Table, in_unit, plain

#: Digits of what has no error band.
_DIGITS = 3
#: What differs between rows stands in a column of its own, what does not in the title.
_HEADS = {
    "cluster": Column("cluster", "cluster"),
    "collective": Column("collective", "collective"),
    "scheme": Column("scheme", "scheme"),
    "workers": Column("workers", "workers"),
}
#: Messages and their times differ by factors of thousands: for people each has a unit of its own.
_TIMES = (
    Column("message", "message", right=True, for_people=True),
    Column("bytes"),
    Column("algorithm", "algorithm"),
    Column("protocol", "protocol"),
    Column("time", "time", right=True, for_people=True),
    Column("seconds", least_is_best=True),
    Column("algorithm_bandwidth"),
    Column("bus_bandwidth", "bus bandwidth", "bytes/s", digits=_DIGITS),
    Column("bounded_by", "bounded by", for_people=True),
    *plain("seconds_low", "seconds_high", "stride", "bound", "note"),
)
_NOTES = (
    "Bus bandwidth: bytes/s that have to cross each worker's link, as nccl-tests count them.",
)
#: By how much less seconds differ they are the same.
_LIKE = 1e-6
_MOVES = (
    Column("phase", "phase"),
    Column("tier", "tier"),
    Column("steps", "messages\nin turn"),
    Column("latency", "latency", right=True),
    Column("sent", "sent by\na member", right=True),
    Column("bandwidth_bytes_per_s", "its links", "bytes/s", digits=3),
    Column("transfer", "bytes over\nlinks", right=True),
    Column("slowest", "slowest"),
)


def collectives_table(found: Sequence[CollectiveTime], *, for_people: bool = True) -> Table:
    """Return a row for each; for people without the columns that say the same of all."""
    digits = digits_of(found)
    rows = [{**each.to_dict(), **_texts(each, digits)} for each in found]
    same = [key for key in _HEADS if len({row[key] for row in rows}) == 1 and key != "workers"]
    heads = [column for key, column in _HEADS.items() if not for_people or key not in same]
    times = [
        column
        for column in _TIMES
        if not for_people or column.key != "protocol" or any(row["protocol"] for row in rows)
    ]
    if for_people and all(row["algorithm"] == row["scheme"] for row in rows):
        times = [column for column in times if column.key != "algorithm"]
    title = ", ".join(str(rows[0][key]) for key in same) if for_people else ""
    times = [
        replace(column, digits=digits) if column.key == "bus_bandwidth" else column
        for column in times
    ]
    footnotes = [*_NOTES, *_bands_said(found)]
    if (stride := found[0].stride) > 1:
        footnotes.append(
            f"{stride} such groups go on at the same time and share links: a group has each "
            f"{stride}th device."
        )
    return Table(title, [*heads, *times], rows, footnotes=footnotes, notes=unfilled_notes(found))


def unfilled_notes(found: Sequence[CollectiveTime]) -> tuple[str, ...]:
    """Return what is said of workers that do not fill nodes, of which cluster if there are more."""
    several = len({each.cluster for each in found}) > 1
    return tuple(
        dict.fromkeys(
            f"{each.cluster}: {each.unfilled}" if several else each.unfilled
            for each in found
            if each.unfilled
        )
    )


def _texts(found: CollectiveTime, digits: int) -> dict[str, Any]:
    return {
        "message": in_unit(found.num_bytes, "bytes"),
        "time": duration(found.seconds, digits) if found.seconds else "0",
        "bounded_by": bounded_by(found) if found.seconds else "",
    }


def digits_of(found: Sequence[CollectiveTime]) -> int:
    """Return how many digits error bands support: of what has none no more is known."""
    return max((each.band.digits for each in found if each.band), default=_DIGITS)


def _bands_said(found: Sequence[CollectiveTime]) -> list[str]:
    """Return what measured cases took, of each band that there is."""
    bands = dict.fromkeys(each.band for each in found if each.seconds)
    said = [f"error band: {band.said}" for band in bands if band]
    return [*said, "no error band is known of the other rows"] if said and None in bands else said


def bounded_by(found: CollectiveTime) -> str:
    """Return what takes longest: latency, or the links of a tier."""
    bound = found.choice.bound_by
    return str(bound) if bound == LATENCY else f"links of {bound}"


def phases_tables(found: Sequence[CollectiveTime]) -> list[Table]:
    """Return for each what crosses the links of each tier, in one phase after another."""
    return [_phases_table(each) for each in found]


def _phases_table(found: CollectiveTime) -> Table:
    rows = [
        {
            **move,
            "latency": duration(move["latency_s"], 3) if move["latency_s"] else "",
            "sent": in_unit(move["sent_bytes"], "bytes", 3),
            "transfer": duration(move["transfer_s"], 3) if move["transfer_s"] else "",
            "slowest": "*" if move["is_slowest"] else "",
        }
        for move in found.moves()
    ]
    notes = ["A phase takes all latencies, and the slowest (*) of the tiers over which bytes pass."]
    textbook = float(seconds_of(found.phases, found.num_bytes))
    if abs(textbook - found.seconds) > _LIKE * textbook:
        notes.append(
            f"So it would take {duration(textbook, 3)}; with the protocols of a library and what "
            f"is measured of these links it is {duration(found.seconds, 3)}."
        )
    if found.flows_s is not None:
        notes.append(
            f"Messages that share links fairly, simulated one by one: {duration(found.flows_s, 3)},"
            f" beside {duration(textbook, 3)} of the phases."
        )
    title = (
        f"{found.operation.value} of {in_unit(found.num_bytes, 'bytes')} among {found.workers} "
        f"workers of {found.cluster} by {found.choice.algorithm}"
    )
    return Table(title, _MOVES, rows, footnotes=notes)
