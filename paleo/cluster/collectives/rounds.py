"""The message schedule of a collective: rounds, and the phases that follow from them.

A round is messages that are on their way at the same time. It says which parts of the message move,
so that a schedule can be carried out, and how often the message crosses a link.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import Any

from paleo.cluster.collectives.phases import Move, Phase, Phases
from paleo.cluster.topology import Group
from paleo.core.frozen import NamedTuple
from paleo.core.quantity import is_array, np

#: In a pair, the switches between workers, which sum up what they get and copy what they send.
SWITCH = -1


class Carried(Enum):
    """What the messages of a round are."""

    #: What the sender has summed so far: the receiver adds it to its own.
    SUM = "sum so far"
    #: The same without the sender's own gradients.
    OTHERS = "sum so far without the sender's own"
    #: The sum over all workers, or what one has for all: it takes the place of what is there.
    RESULT = "sum of all workers"
    #: What the sender has for the receiver alone.
    OWN = "the sender's own, for the receiver"


class Round(NamedTuple):
    """Messages that are on their way at the same time, as pairs of sender and receiver.

    Workers are counted from 0; each sends to one at most and receives from one at most. A `SWITCH`
    receives from all, or sends to all. `crossings` is how many times the whole message crosses a
    link: less than one for a part. `parts` are which of the `num_parts` equal parts of the message
    each pair moves, nothing where all move all.
    """

    pairs: tuple[tuple[int, int], ...]
    carried: Carried = Carried.SUM
    crossings: float = 1
    parts: tuple[range, ...] = ()
    num_parts: int = 1

    @property
    def shares(self) -> list[float]:
        """What share of the message each pair moves."""
        if not self.parts:
            return [self.crossings] * len(self.pairs)
        return [len(part) / self.num_parts for part in self.parts]


def of_parts(
    moving: Iterable[tuple[tuple[int, int], range]], num_parts: int, carried: Carried = Carried.SUM
) -> Round:
    """Return a round in which each pair moves a range of so many equal parts."""
    listed = tuple(moving)
    pairs, parts = tuple(pair for pair, _ in listed), tuple(part for _, part in listed)
    return Round(pairs, carried, max(map(len, parts), default=0) / num_parts, parts, num_parts)


class _Load(NamedTuple):
    """What rounds send over the links of each level: so many times, `steps` and messages."""

    times: int
    steps: tuple[int, ...]
    sent: tuple[float, ...]


def phases_of_rounds(
    group: Group, rounds: Callable[[int], Iterable[Round]], pipelined: bool
) -> Phases:
    """Return the phases of the rounds that so many workers of a group go through.

    Workers stand in the order of their numbers. A round waits for its slowest message; if the
    message is `pipelined`, its pieces follow one another, so that a link is busy with all rounds.
    Worker counts may be an array: each that differs is gone through once.
    """
    counts: Any = group.workers
    if not is_array(counts):
        found = _loads(group, 0, rounds(counts), pipelined)
        return tuple(_phase(group, load.times, load.steps, load.sent) for load in found)
    distinct, first, which = np.unique(counts, return_index=True, return_inverse=True)
    tables = [
        _loads(group, int(i), rounds(int(count)), pipelined)
        for count, i in zip(distinct, first, strict=True)
    ]
    nothing = _Load(0, (0,) * len(group.levels), (0.0,) * len(group.levels))
    which = which.reshape(counts.shape)
    phases = []
    for i in range(max(map(len, tables))):
        loads = [table[i] if i < len(table) else nothing for table in tables]
        times = np.array([load.times for load in loads])[which]
        steps, sent = (
            np.array([getattr(load, name) for load in loads])[which] for name in ("steps", "sent")
        )
        phases.append(
            _phase(group, times, [*np.moveaxis(steps, -1, 0)], [*np.moveaxis(sent, -1, 0)])
        )
    return tuple(phases)


def _phase(group: Group, times: Any, steps: Sequence[Any], sent: Sequence[Any]) -> Phase:
    moves = (
        Move(level, times * hops, times * share)
        for level, hops, share in zip(group.levels, steps, sent, strict=True)
    )
    return Phase("rounds", tuple(moves))


def _loads(group: Group, index: int, rounds: Iterable[Round], pipelined: bool) -> list[_Load]:
    """Return the loads of rounds, those that are alike together; arrays have them at an `index`."""

    def at(value: Any) -> Any:
        if not is_array(value):
            return value
        return np.broadcast_to(value, np.shape(group.workers)).flat[index].item()

    insides = [int(at(level.inside)) for level in group.levels]
    alone = [at(level.bandwidth / level.link_bandwidth) for level in group.levels]
    listed = list(rounds)
    steps = [_steps(insides, one) for one in listed]
    if pipelined:
        together = tuple(map(sum, zip(*steps, strict=True))) if steps else (0,) * len(insides)
        return [_Load(1, together, _sent(insides, alone, listed))]
    alike = Counter(
        (hops, _sent(insides, alone, [one])) for hops, one in zip(steps, listed, strict=True)
    )
    return [_Load(times, hops, sent) for (hops, sent), times in alike.items()]


def _steps(insides: Sequence[int], one: Round) -> tuple[int, ...]:
    """Return 1 for the outermost level that a message of the round crosses, 0 for the others."""
    crossed = [any(a // inside != b // inside for a, b in one.pairs) for inside in insides]
    outermost = max((i for i, is_crossed in enumerate(crossed) if is_crossed), default=None)
    return tuple(int(i == outermost) for i in range(len(insides)))


def _sent(
    insides: Sequence[int], alone: Sequence[float], rounds: Sequence[Round]
) -> tuple[float, ...]:
    """Return for each level what the busiest of its members sends or receives in these rounds.

    One device has not all links of its member: what it sends `alone` is as if it were larger.
    """
    found = []
    for inside, larger in zip(insides, alone, strict=True):
        members: dict[tuple[int, int], float] = {}
        devices: dict[tuple[int, int], float] = {}
        for one in rounds:
            for pair, share in zip(one.pairs, one.shares, strict=True):
                if pair[0] // inside == pair[1] // inside:
                    continue
                for receives, worker in enumerate(pair):
                    if worker != SWITCH:
                        member, device = (worker // inside, receives), (worker, receives)
                        members[member] = members.get(member, 0) + share
                        devices[device] = devices.get(device, 0) + share
        busiest = max(members.values(), default=0), larger * max(devices.values(), default=0)
        found.append(float(max(busiest)))
    return tuple(found)


def busiest(rounds: Iterable[Round]) -> float:
    """Return how many messages the busiest worker sends or receives in all rounds together."""
    return _sent([1], [1.0], list(rounds))[0]


def ring_rounds(orders: Sequence[Sequence[int]]) -> Iterator[Round]:
    """Yield the rounds of an all-reduce in rings side by side, each with a part of the message.

    In the first half every worker sends what it has summed of a share, and ends with the sum of the
    one that has its place in the ring; in the second it hands on the sums.
    """
    rings, members = len(orders), len(orders[0])
    places = [(ring, place) for ring in range(rings) for place in range(members)]
    pairs = tuple((orders[ring][i], orders[ring][(i + 1) % members]) for ring, i in places)
    for step in range(2 * (members - 1)):
        parts = []
        for ring, i in places:
            part = ring * members + (i - step - 1) % members
            parts.append(range(part, part + 1))
        carried = Carried.SUM if step < members - 1 else Carried.RESULT
        yield Round(pairs, carried, 1 / (rings * members), tuple(parts), rings * members)
