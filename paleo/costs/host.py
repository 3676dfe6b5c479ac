"""How long a device waits for its host: a queue of kernels.

A framework hands one operation after another to the device and does not wait for it: the host runs
ahead, and the device does them in their order. Each begins when it has been handed over and the one
before it has ended. So the host shows where kernels are shorter than it takes to hand them over,
and not behind long ones, which give it a lead.
"""

from __future__ import annotations

from collections.abc import Iterable

from paleo.core.frozen import NamedTuple
from paleo.core.quantity import Quantity, maximum, where_positive


class Handed(NamedTuple):
    """Seconds that a device waits before or within each group of kernels, and the host's lead.

    `ahead` are the seconds by which the host was done before the device.
    """

    waits: list[Quantity]
    ahead: Quantity


def handed_over(
    groups: Iterable[tuple[Quantity, Quantity]], host: Quantity, ahead: Quantity = 0.0
) -> Handed:
    """Return how long a device waits for a host that takes `host` seconds for each kernel.

    `groups` are, in the order of the device, the seconds of a group of kernels and their number (of
    arrays, element by element). A group begins when its first kernel has been handed over, and ends
    no sooner than its last has. The host begins `ahead` seconds before the device.
    """
    waits: list[Quantity] = []
    end: Quantity = 0.0
    issued: Quantity = -1.0 * ahead
    for seconds, count in groups:
        first = issued + where_positive(count, host)
        issued = issued + count * host
        done = maximum(maximum(end, first) + seconds, issued)
        waits.append(where_positive(count, done - end - seconds))
        end = end + seconds + waits[-1]
    return Handed(waits, maximum(end - issued, 0.0))
