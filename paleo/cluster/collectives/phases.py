"""What a collective does on the tiers of a cluster, as phases one after another.

In a phase messages move over one or more levels at the same time. The seconds of a phase are the
latencies of the messages that wait for one another, and the bytes over the link that takes longest
for them (the alpha-beta model: R. Hockney, "The communication challenge for MPP", Parallel
Computing 20, 1994; R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication
operations in MPICH", IJHPCA 19, 2005).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from paleo.cluster.topology import Group, Level
from paleo.core.frozen import NamedTuple
from paleo.core.quantity import Quantity, ceil_div, is_array, maximum, np, total

#: What bounds messages whose latencies take longer than their bytes.
LATENCY = "latency"


class Move(NamedTuple):
    """What crosses the links of one level during a phase.

    `steps` messages wait for one another; `sent` is what one member of the level sends into it, in
    sizes of the whole message.
    """

    level: Level
    steps: Quantity
    sent: Quantity

    def seconds_for(self, num_bytes: Quantity) -> Quantity:
        """Return the seconds in which a link carries its share of a message of so many bytes."""
        return self.sent * num_bytes / self.level.bandwidth

    @property
    def waiting(self) -> Quantity:
        """The seconds of the messages that wait for one another, however short."""
        return self.steps * self.level.latency


class Phase(NamedTuple):
    """Moves at the same time, as far as links allow."""

    name: str
    moves: tuple[Move, ...]

    def seconds(self, num_bytes: Quantity) -> Quantity:
        """Return the seconds of the phase for a message of so many bytes."""
        return self.waiting + self.carrying(num_bytes)

    @property
    def waiting(self) -> Quantity:
        """The seconds of latency."""
        return total(move.waiting for move in self.moves)

    def carrying(self, num_bytes: Quantity) -> Quantity:
        """Return the seconds of the slowest link."""
        seconds: Quantity = 0
        for move in self.moves:
            seconds = maximum(seconds, move.seconds_for(num_bytes))
        return seconds


Phases = tuple[Phase, ...]


def seconds_of(phases: Iterable[Phase], num_bytes: Quantity) -> Quantity:
    """Return the seconds of phases one after another."""
    return total(phase.seconds(num_bytes) for phase in phases)


def bound_of(phases: Phases, num_bytes: Quantity) -> Any:
    """Return what takes longest of a message: "latency", or the name of a tier for its links.

    A phase counts for the tier whose links take longest in it. Of arrays it is an array of names.
    """
    seconds: dict[str, Quantity] = {LATENCY: total(phase.waiting for phase in phases)}
    for phase in phases:
        slowest = phase.carrying(num_bytes)
        for move in phase.moves:
            own = move.seconds_for(num_bytes)
            name = move.level.tier.name
            seconds[name] = seconds.get(name, 0) + own * (own == slowest)
    names, values = list(seconds), list(seconds.values())
    if any(map(is_array, values)):
        return np.array(names)[np.argmax(np.stack(np.broadcast_arrays(*values)), axis=0)]
    return names[values.index(max(values))]


def across(
    group: Group, index: int, steps: Quantity, sent: Quantity, by_all: bool = False
) -> tuple[Move, ...]:
    """Return moves between members of one level, which pass the links of the levels inside.

    A member sends `sent` messages, or with `by_all` each of its devices that many.
    """
    moves = []
    for i, level in enumerate(group.levels[: index + 1]):
        # One device alone has not all links of its node: its message is as if it were larger.
        senders = level.inside if by_all else level.bandwidth / level.link_bandwidth
        moves.append(Move(level, steps if i == index else 0, sent * senders))
    return tuple(moves)


def chain(group: Group) -> Iterator[tuple[Level, Quantity]]:
    """Yield for each level how many hops it has in a chain through all workers of a group.

    Within a member of the level above, its members are visited one after another, so that there is
    a hop less than there are members of both in all. All hops together are the workers less one.
    """
    counts = [ceil_div(group.workers, level.inside) for level in group.levels]
    for level, members, outer in zip(group.levels, counts, [*counts[1:], 1], strict=True):
        yield level, members - outer
