"""Messages as flows that share links fairly: what a round of a collective takes, one by one.

Flows on their way at the same time get max-min fair rates: all grow alike until a link is full, and
those through it stay as they are (D. Bertsekas, R. Gallager, "Data Networks", 1992, section 6.5.2).
When one has arrived, the others share what it leaves. The closed forms of collectives are checked
against this, and it holds for placements that they do not know.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

from paleo.cluster.collectives import SWITCH, Round
from paleo.cluster.topology import Cluster
from paleo.core.errors import SettingError
from paleo.core.frozen import NamedTuple

#: Shares of links that differ by less are the same one, rounded.
_ALIKE = 1 + 1e-12


class Link(NamedTuple):
    """The links of one member of a tier, or those that one of its devices has, in one direction."""

    tier: int
    of_device: bool
    number: int
    way: str


class Flow(NamedTuple):
    """A message: its bytes, the links that it crosses, and the seconds before it flows."""

    num_bytes: float
    links: tuple[Link, ...]
    latency: float = 0.0


def fair_rates(flows: Sequence[Flow], capacities: Mapping[Link, float]) -> list[float]:
    """Return the max-min fair bytes/s of each flow; each crosses a link at least."""
    rates = [0.0] * len(flows)
    room = dict(capacities)
    crossing: dict[Link, set[int]] = defaultdict(set)
    for i, flow in enumerate(flows):
        for link in flow.links:
            crossing[link].add(i)
    while crossing:
        shares = {link: room[link] / len(using) for link, using in crossing.items()}
        rate = min(shares.values())
        # Links that are full at the same rate are so for each other's flows, too.
        full = [link for link, share in shares.items() if share <= rate * _ALIKE]
        for i in set().union(*(crossing[link] for link in full)):
            rates[i] = rate
            for link in flows[i].links:
                room[link] -= rate
                crossing[link].discard(i)
        crossing = {link: using for link, using in crossing.items() if using}
    return rates


def seconds_of_flows(flows: Iterable[Flow], capacities: Mapping[Link, float]) -> float:
    """Return the seconds until all messages have arrived that start at the same time."""
    under_way = [flow for flow in flows if flow.links]
    latency = max((flow.latency for flow in under_way), default=0.0)
    left = [flow.num_bytes for flow in under_way]
    now = 0.0
    while under_way:
        rates = fair_rates(under_way, capacities)
        step = min(num_bytes / rate for num_bytes, rate in zip(left, rates, strict=True))
        now += step
        after = [
            (flow, num_bytes - rate * step)
            for flow, num_bytes, rate in zip(under_way, left, rates, strict=True)
        ]
        # What rounding leaves of a message that has arrived is no message.
        after = [(flow, rest) for flow, rest in after if rest > 1e-9 * flow.num_bytes]
        under_way, left = [flow for flow, _ in after], [rest for _, rest in after]
    return latency + now


class Placement:
    """Where the workers of a job stand in a cluster, by the number of their device.

    Raises SettingError for devices that the cluster has not, or that two workers would have.
    """

    def __init__(self, cluster: Cluster, devices: Sequence[int]) -> None:
        self.cluster = cluster
        self.devices = tuple(devices)
        if not all(0 <= device < cluster.size for device in self.devices):
            raise SettingError(f"devices: {cluster.name} has those from 0 to {cluster.size - 1}")
        if len(set(self.devices)) < len(self.devices):
            raise SettingError("devices: one device cannot be that of two workers")

    def flow(self, sender: int, receiver: int, num_bytes: float) -> Flow:
        """Return the message between two workers."""
        links: list[Link] = []
        latency, inner = 0.0, 1
        a, b = self.devices[sender], self.devices[receiver]
        for i, tier in enumerate(self.cluster.tiers):
            first, second = a // inner, b // inner
            if first == second:
                break
            for device, member, way in ((a, first, "out"), (b, second, "in")):
                links.append(Link(i, False, member, way))
                if inner > 1:  # of the cards of a node a device alone has its own
                    links.append(Link(i, True, device, way))
            latency = float(tier.network.latency)
            inner *= tier.size
        return Flow(num_bytes, tuple(links), latency)

    def flows(self, one: Round, num_bytes: float) -> list[Flow]:
        """Return the messages of a round; raises SettingError for those to a switch."""
        if any(SWITCH in pair for pair in one.pairs):
            raise SettingError("flows: between workers alone, not to a switch that sums")
        return [
            self.flow(a, b, share * num_bytes)
            for (a, b), share in zip(one.pairs, one.shares, strict=True)
        ]

    def seconds(self, rounds: Iterable[Round], num_bytes: float) -> float:
        """Return the seconds of the rounds of a collective, one after another."""
        return seconds_together([(self, rounds)], num_bytes)


def seconds_together(jobs: Sequence[tuple[Placement, Iterable[Round]]], num_bytes: float) -> float:
    """Return the seconds in which jobs on one cluster go through their rounds side by side.

    The next round starts for all when the slowest message of the one before has arrived.
    """
    seconds = known = 0.0
    before: list[Round | None] = []
    for together in zip_longest(*(rounds for _, rounds in jobs)):
        if not _is_alike(before, together):
            flows = [
                flow
                for (job, _), one in zip(jobs, together, strict=True)
                if one is not None
                for flow in job.flows(one, num_bytes)
            ]
            known = seconds_of_flows(flows, _capacities(jobs[0][0].cluster, flows))
            before = list(together)
        seconds += known
    return seconds


def _is_alike(before: Sequence[Round | None], after: Sequence[Round | None]) -> bool:
    """Tell whether the same pairs send as much as before, as in all rounds of a ring."""
    return len(before) == len(after) and all(
        one is other
        or (
            (one is not None and other is not None)
            and (one.pairs is other.pairs and one.shares == other.shares)
        )
        for one, other in zip(before, after, strict=True)
    )


def _capacities(cluster: Cluster, flows: Iterable[Flow]) -> dict[Link, float]:
    """Return the bytes/s of the links that flows cross."""
    of_members, of_devices = [], []
    inner = 1
    for tier in cluster.tiers:
        count, rate = float(tier.links_of(tier.size)), float(tier.network.bandwidth)
        of_members.append(count * rate)
        of_devices.append((max(count / inner, 1) if inner > 1 else count) * rate)
        inner *= tier.size
    return {
        link: (of_devices if link.of_device else of_members)[link.tier]
        for flow in flows
        for link in flow.links
    }
