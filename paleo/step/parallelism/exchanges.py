"""What exchanges of gradients add to a backward pass, by the software that makes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from paleo.cluster import Device
from paleo.cluster.gradient_exchange import Exchange
from paleo.core.quantity import Quantity, total
from paleo.core.units import MIB
from paleo.step.parallelism.overlap import (
    Made,
    Overlapped,
    Sent,
    buckets,
    overlapped,
    sent_in_cycles,
)
from paleo.step.parallelism.slowdown import slowdown

#: Bytes of a message that is long enough to tell at which rate exchanges go on.
_TYPICAL = 16 * MIB


def exchanged(
    software: Exchange,
    made: Sequence[Made],
    seconds: Callable[[Quantity], Quantity],
    device: Device,
    workers: Quantity,
    factor: Quantity = 1.0,
    carried: Callable[[Quantity], Quantity] = lambda num_bytes: num_bytes,
) -> Overlapped:
    """Return a backward pass on one of so many workers with the exchanges beside it, or after it.

    `made` are gradients in the order in which the pass makes them, `seconds` gives the time to
    exchange so many bytes, of which links carry as much as of an all-reduce of `carried` bytes.
    Computation takes `factor` times as long as said. Copies into buckets
    and out of them are not in it, see `Exchange.copying`.
    """
    num_bytes = sum(one.num_bytes for one in made)
    if software.bucket is None:
        alone = factor * total(one.seconds for one in made)
        spans = (Sent(alone, alone + seconds(num_bytes), num_bytes),)
        return Overlapped(alone, alone, spans, ((0.0, 0.0), (alone, alone)))
    slower: Quantity = 1.0
    if not software.on_host:
        typical = max(software.bucket, min(num_bytes, _TYPICAL))
        slower = slowdown(device, carried(typical), seconds(typical), workers)
    if software.cycle:
        return sent_in_cycles(made, seconds, software.cycle, slower, factor)
    parts = buckets(made, software.bucket, software.first or software.bucket)
    return overlapped(parts, seconds, slower, factor)
