"""Messages as flows that share links fairly: what a round of a collective takes, one by one.

Flows on their way at the same time get max-min fair rates: all grow alike until a link is full, and
those through it stay as they are (D. Bertsekas, R. Gallager, "Data Networks", 1992, section 6.5.2).
When one has arrived, the others share what it leaves. The closed forms of collectives are checked
against this, and it holds for placements that they do not know.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

from paleo.cluster.collectives.base import Round
from paleo.cluster.topology import Cluster

Link = Hashable


class Flow(NamedTuple):
    """A message: its bytes, the links that it crosses, and the seconds before it flows."""

    num_bytes: float
    links: tuple[Link, ...]
    latency: float = 0.0


def fair_rates(flows: Sequence[Flow], capacities: Mapping[Link, float]) -> list[float]:
    """Return the max-min fair bytes/s of each flow."""
    rates = [0.0] * len(flows)
    room, open_flows = dict(capacities), set(range(len(flows)))
    crossing: dict[Link, set[int]] = defaultdict(set)
    for i, flow in enumerate(flows):
        for link in flow.links:
            crossing[link].add(i)
    while open_flows:
        shares = {link: room[link] / len(using) for link, using in crossing.items() if using}
        tightest = min(shares, key=lambda link: shares[link])
        rate = shares[tightest]
        for i in tuple(crossing[tightest]):
            rates[i] = rate
            open_flows.discard(i)
            for link in flows[i].links:
                room[link] -= rate
                crossing[link].discard(i)
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
    """Where the workers of a job stand in a cluster, by the number of their device."""

    def __init__(self, cluster: Cluster, devices: Sequence[int]) -> None:
        self.cluster = cluster
        self.devices = tuple(devices)
        self.capacities: dict[Link, float] = {}

    def flow(self, sender: int, receiver: int, num_bytes: float) -> Flow:
        """Return the message between two workers."""
        links: list[Link] = []
        latency, inner = 0.0, 1
        a, b = self.devices[sender], self.devices[receiver]
        for i, tier in enumerate(self.cluster.tiers):
            first, second = a // inner, b // inner
            if first == second:
                break
            rate = float(tier.network.bandwidth)
            count = float(tier.links_of(tier.size))
            nearest = max(count / inner, 1) if inner > 1 else count
            for device, member, way in ((a, first, "out"), (b, second, "in")):
                links.append((i, member, way))
                self.capacities[links[-1]] = count * rate
                if inner > 1:
                    links.append((i, "device", device, way))
                    self.capacities[links[-1]] = nearest * rate
            latency = float(tier.network.latency)
            inner *= tier.size
        return Flow(num_bytes, tuple(links), latency)

    def seconds(self, rounds: Iterable[Round], num_bytes: float) -> float:
        """Return the seconds of the rounds of a collective, one after another."""
        return sum(
            seconds_of_flows(
                [self.flow(a, b, one.crossings * num_bytes) for a, b in one.pairs],
                self.capacities,
            )
            for one in rounds
        )
