"""What collectives come to, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from paleo.cluster.collectives import Operation
from paleo.core.attributes import at_ends
from paleo.studies.collectives import CollectiveTime
from paleo.views.answers.base import duration, durations, spread
from paleo.views.table import in_unit
from paleo.views.tables.collectives import bounded_by, digits_of

_NAMED = {
    Operation.ALL_REDUCE: "An all-reduce",
    Operation.REDUCE_SCATTER: "A reduce-scatter",
    Operation.ALL_GATHER: "An all-gather",
    Operation.ALL_TO_ALL: "An all-to-all",
    Operation.BROADCAST: "A broadcast",
    Operation.POINT_TO_POINT: "A message",
}


def collectives_answer(found: Sequence[CollectiveTime]) -> list[str]:
    """Return what the longest message takes among most workers, and what the shortest does.

    Of several schemes or clusters it is the quickest.
    """
    if not found:
        return []
    operation = found[0].operation
    workers = max(each.workers for each in found if each.operation is operation)
    asked = [
        each
        for each in found
        if (each.operation, each.workers) == (operation, workers) and each.is_done
    ] or [found[-1]]
    said: list[str] = []
    sizes = {each.num_bytes for each in asked}
    for size in dict.fromkeys((max(sizes), min(sizes))):
        several = [each for each in asked if each.num_bytes == size]
        quickest = min(several, key=lambda each: each.seconds)
        said.append(_said(quickest, several, digits_of(found), is_first=not said))
    return said


def _said(
    one: CollectiveTime, several: Sequence[CollectiveTime], digits: int, *, is_first: bool
) -> str:
    if one.bus_bandwidth is None:
        return f"One worker alone has nobody to exchange anything with on {one.cluster}."
    bound = bounded_by(one)
    what = f"by {one.choice.algorithm}"
    if len({each.cluster for each in several}) > 1:
        what += f" on {one.cluster}, the quickest"
    elif len(several) > 1:
        what += ", the quickest"
    reason = "mostly latency" if bound == "latency" else f"bounded by the {bound}"
    takes = duration(one.seconds, digits)
    ends = durations(at_ends(one.ends, lambda end: end.seconds), digits, one.seconds)
    takes += spread(ends, one.band if is_first else None)
    if not is_first:
        size = in_unit(one.num_bytes, "bytes")
        return f"One of {size} takes {takes}, {reason} ({what})."
    verb = f"{_NAMED[one.operation]} of {in_unit(one.num_bytes, 'bytes')}"
    if one.operation is Operation.POINT_TO_POINT:
        where = f"to the farthest of {one.workers:,} workers"
    else:
        where = f"among {one.workers:,} workers"
    on = "" if len({each.cluster for each in several}) > 1 else f" of {one.cluster}"
    return (
        f"{verb} {where}{on} takes {takes} {what}: "
        f"{in_unit(one.bus_bandwidth, 'bytes/s', digits)} of bus bandwidth, {reason}."
    )
