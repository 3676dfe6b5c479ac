"""Why exchanges of gradients take what they do: bucket by bucket, and tier by tier."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from paleo.cluster import Network, cluster_names, find_cluster
from paleo.cluster.collectives import COLLECTIVES, Choice, Operation
from paleo.cluster.topology import Group, Level
from paleo.core.attributes import attributes
from paleo.core.frozen import NamedTuple, dataclass
from paleo.core.quantity import product
from paleo.step.parallelism import DataParallel
from paleo.step.pieces import Step
from paleo.step.plan import Plan
from paleo.step.results import Run, Simulation

#: What bounds a step that is not held back by exchanges.
COMPUTATION = "computation"
#: Of more numbers of workers that do not fill nodes one is named.
_MOST_NAMED = 2
#: Devices of a node, where no cluster is known that has such links.
_IN_NODE = 8


class Message(NamedTuple):
    """What a collective moves of a bucket: so many bytes, in the type in which they are sent."""

    operation: Operation
    num_bytes: int
    choice: Choice


@dataclass(frozen=True)
class BucketExchange:
    """Gradients that are exchanged together, in seconds from the start of the backward pass.

    They are there at `filled`, and on their way from `start` to `end`; `exposed` is how long of
    that nothing is computed. `messages` move them: one all-reduce, unless they are compressed.
    """

    num_bytes: int
    filled: float
    start: float
    end: float
    exposed: float
    messages: tuple[Message, ...]

    @property
    def choice(self) -> Choice:
        """The choice of the message that takes longest."""
        return max((one.choice for one in self.messages), key=lambda choice: float(choice.seconds))

    @property
    def seconds(self) -> float:
        """Seconds of the exchange."""
        return self.end - self.start

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        return {
            "bytes": self.num_bytes,
            "sent_bytes": sum(message.num_bytes for message in self.messages),
            **attributes(self, "filled", "start", "end", "seconds", "exposed", unit="s"),
            "algorithm": str(self.choice.algorithm),
            "protocol": str(self.choice.protocol) or None,
            "bound": str(self.choice.bound_by),
        }


@dataclass(frozen=True)
class TierExchange:
    """What a phase of all buckets has on one tier: latencies in turn, and bytes over its links.

    `sent` are the bytes that a member sends at `bandwidth` bytes/s, for which its links take
    `transfer` seconds. Of tiers at the same time the slowest counts: `counted` are those seconds of
    them, by which the phase takes longer.
    """

    phase: str
    tier: str
    latency: float
    transfer: float
    counted: float
    sent: float
    bandwidth: float

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        return {
            **attributes(self, "phase", "tier"),
            **attributes(self, "latency", "transfer", "counted", unit="s"),
            **attributes(self, "sent", unit="bytes"),
            "bandwidth_bytes_per_s": self.bandwidth,
        }


@dataclass(frozen=True)
class ExplainedStep:
    """A step of several workers under a scheme, and what bounds it.

    `tiers` are what the textbook's phases of the chosen algorithms have on each tier; a library's
    protocols may take longer. They are none where the cost model knows one link alone. `computed`
    is when the backward pass ends, in seconds from its start.
    """

    step: Step
    scheme: str
    plan: Plan
    group: Group
    buckets: tuple[BucketExchange, ...]
    tiers: tuple[TierExchange, ...]
    computed: float

    @property
    def workers(self) -> int:
        """How many workers there are."""
        return int(self.step.workers)

    @property
    def communication(self) -> float:
        """Seconds of the exchange, hidden or not."""
        return float(self.step.communication[self.scheme])

    @property
    def exposed(self) -> float:
        """Seconds by which the exchange makes the step longer."""
        return float(self.step.exposed_communication(self.scheme))

    @property
    def hidden(self) -> float:
        """Seconds of the exchange during which the backward pass goes on."""
        return max(0.0, self.communication - self.exposed)

    @property
    def copies(self) -> float:
        """Seconds of copies into buckets and out of them, which is communication, too."""
        return max(0.0, self.communication - sum(bucket.seconds for bucket in self.buckets))

    @property
    def slowed(self) -> float:
        """Seconds by which computation is slower beside exchanges; they count as exposed."""
        return max(0.0, self.exposed - self.copies - sum(each.exposed for each in self.buckets))

    @property
    def exchange_bound(self) -> str:
        """What of the exchange takes longest: "latency", or a tier; of what is exposed, if any."""
        spent: dict[str, float] = {}
        is_exposed = any(bucket.exposed > 0 for bucket in self.buckets)
        for bucket in self.buckets:
            bound = str(bucket.choice.bound_by)
            seconds = bucket.exposed if is_exposed else bucket.seconds
            spent[bound] = spent.get(bound, 0.0) + seconds
        return max(spent, key=lambda bound: spent[bound])

    @property
    def bound(self) -> str:
        """What most of the step waits for: "computation", or what bounds the exchange."""
        return COMPUTATION if self.step.compute >= self.exposed else self.exchange_bound

    @property
    def bounding_level(self) -> Level | None:
        """The tier whose links bound the exchange, as these workers use it; None of latency."""
        return next((x for x in self.group.levels if x.tier.name == self.exchange_bound), None)

    @property
    def textbook(self) -> float:
        """Seconds of all phases, with the latencies and bytes of the textbook."""
        return sum(tier.latency + tier.counted for tier in self.tiers)

    @property
    def algorithms(self) -> tuple[str, ...]:
        """The algorithms that buckets are exchanged by, with their protocols."""
        said = (
            " ".join(filter(None, [str(each.choice.algorithm), str(each.choice.protocol)]))
            for each in self.buckets
        )
        return tuple(dict.fromkeys(said))

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        return {
            **attributes(self, "workers", "scheme", "bound", "exchange_bound"),
            "step_s": float(self.step.total(self.scheme)),
            "compute_s": float(self.step.compute),
            **attributes(self, "communication", "hidden", "exposed", unit="s"),
            **attributes(self, "copies", "slowed", unit="s"),
            "algorithms": list(self.algorithms),
            "buckets": [bucket.to_dict() for bucket in self.buckets],
            "tiers": [tier.to_dict() for tier in self.tiers],
        }


def explain_run(run: Run) -> tuple[ExplainedStep, ...]:
    """Return why the steps of a run of data parallelism take what they take, by every scheme.

    Of a worker alone, and of other kinds of parallelism, there is nothing to explain.
    """
    return tuple(
        explained
        for row in run.rows
        for scheme in row.exchanges
        if (explained := explain_step(run, row, scheme))
    )


def explained_values(simulation: Simulation) -> dict[str, Any]:
    """Return a simulation under the keys of the JSON output, with what bounds the rows of runs."""
    runs = ((run, [each.to_dict() for each in explain_run(run)]) for run in simulation.runs)
    return {"runs": [{**run.to_dict(), "explained": explained} for run, explained in runs]}


def explain_step(run: Run, row: Step, scheme: str) -> ExplainedStep | None:
    """Return why a row of a run takes what it takes by a scheme; None if there is no exchange."""
    if run.data is None or row.workers == 1 or scheme not in COLLECTIVES:
        return None
    data, group = run.data, run.plan.group(row.workers)
    explain = _overlapped if run.plan.overlaps else _after_all
    buckets, computed = explain(data, row, scheme, group)
    if not buckets:
        return None
    is_flat = run.plan.cost_model.conventions.exchanges_after_all
    tiers = () if is_flat else tuple(_tiers(group, scheme, buckets))
    return ExplainedStep(row, scheme, run.plan, group, buckets, tiers, computed)


def _after_all(
    data: DataParallel, row: Step, scheme: str, group: Group
) -> tuple[tuple[BucketExchange, ...], float]:
    """Return one exchange of all gradients, and when the backward pass before it ends."""
    end, seconds = float(row["backward"]), float(row.communication[scheme])
    num_bytes = data.computations.num_bytes
    if not num_bytes:
        return (), end
    messages = _messages(data.plan, num_bytes, row.workers, scheme)
    return (BucketExchange(num_bytes, end, end, end + seconds, seconds, messages),), end


def _overlapped(
    data: DataParallel, row: Step, scheme: str, group: Group
) -> tuple[tuple[BucketExchange, ...], float]:
    """Return the exchanges of buckets, and when the backward pass beside them ends."""
    worker = data.worker(row.workers, row.worker_batch_size)
    found = worker.overlapped(scheme)
    computed, made, buckets = float(found.computed), worker.computation.made, []
    alone, there, sent_bytes, gradients = 0.0, 0, 0, iter(made)
    for start, end, num_bytes in found.spans:
        size = round(float(num_bytes))
        sent_bytes += size
        while there < sent_bytes:
            seconds, more = next(gradients)
            alone, there = alone + float(seconds), there + more
        exposed = max(0.0, float(end) - max(float(start), computed))
        messages = _messages(data.plan, size, row.workers, scheme)
        filled = found.when(alone)
        buckets.append(BucketExchange(size, filled, float(start), float(end), exposed, messages))
    return tuple(buckets), computed


def _messages(plan: Plan, num_bytes: int, workers: int, scheme: str) -> tuple[Message, ...]:
    """Return what collectives move of gradients of so many bytes, as they are sent."""
    encoding = plan.encoding
    elements, found = num_bytes // encoding.size, []
    for operation in encoding.operations:
        size = int(encoding.message(operation, elements, workers))
        choice = plan.choice(size, workers, scheme, operation)
        found.append(Message(operation, size, choice))
    return tuple(found)


def _tiers(group: Group, scheme: str, buckets: Iterable[BucketExchange]) -> Iterator[TierExchange]:
    """Yield what all buckets together have in each phase on each tier."""
    sums: dict[tuple[str, str], list[float]] = {}
    bandwidths: dict[str, float] = {}
    for message in itertools.chain(*(bucket.messages for bucket in buckets)):
        chosen = COLLECTIVES.get(str(message.choice.scheme), COLLECTIVES[scheme])
        for phase in chosen.phases(group, message.operation):
            slowest = float(phase.carrying(message.num_bytes))
            for move in phase.moves:
                transfer, tier = float(move.seconds_for(message.num_bytes)), move.level.tier.name
                if not (transfer or move.steps):
                    continue
                counted = transfer if transfer == slowest else 0.0
                slowest -= counted  # of those that take as long the first counts
                sent = float(move.sent * message.num_bytes)
                before = sums.get((phase.name, tier), [0.0] * 4)
                more = (float(move.waiting), transfer, counted, sent)
                sums[phase.name, tier] = [x + y for x, y in zip(before, more, strict=True)]
                bandwidths[tier] = float(move.level.bandwidth)
    for (name, tier), (latency, transfer, counted, sent) in sums.items():
        yield TierExchange(name, tier, latency, transfer, counted, sent, bandwidths[tier])


def unfilled_notes(plan: Plan, counts: Sequence[int]) -> list[str]:
    """Return what a reader should know of numbers of workers that do not fill nodes."""
    tiers = plan.cluster.tiers[:-1] if plan.cluster else ()
    nodes = list(itertools.accumulate((tier.size for tier in tiers), operator.mul))
    found = [
        count
        for count in dict.fromkeys(counts)
        if any(count > node and count % node for node in nodes)
    ]
    if not found:
        return []
    from paleo.studies.collectives import unfilled  # here: most start without

    said = [unfilled(plan.group(count)) for count in found[:_MOST_NAMED]]
    if len(found) <= _MOST_NAMED:
        return said
    return [f"{said[0]}; so it is with {len(found) - 1} other numbers of workers"]


def _is_inside(network: Network) -> bool:
    return network.nccl is not None and network.nccl.kind != "network"


def crowded_notes(plan: Plan, most: int) -> list[str]:
    """Return what a reader should know of so many workers behind a link of the inside of nodes.

    No known cluster has as many of them in one node.
    """
    is_of_2017 = plan.cost_model.conventions.exchanges_after_all
    if plan.cluster or is_of_2017 or not _is_inside(plan.network):
        return []
    known = _clusters_with(plan.network.name)
    room = max((each.node for each in known), default=_IN_NODE)
    if most <= room:
        return []
    said = f"{plan.network.name} connects {room} devices of a node at most, not {most:,}"
    fitting = [each for each in known if each.size >= most]
    if not fitting:
        return [f"{said}: what connects nodes is left out"]
    best = max(fitting, key=lambda each: (each.device == plan.device.name, each.node))
    return [f"{said}: --cluster={best.name} has what connects nodes, too"]


class _Known(NamedTuple):
    """A predefined cluster, its device, and how many of them are in a node and in all."""

    name: str
    device: str
    node: int
    size: int


@functools.cache
def _clusters_with(network: str) -> tuple[_Known, ...]:
    """Return the predefined clusters that have a network inside of their nodes."""
    found = []
    for cluster in map(find_cluster, cluster_names()):
        node = [tier for tier in cluster.tiers if _is_inside(tier.network)]
        if any(tier.network.name == network for tier in node):
            size = product(tier.size for tier in node)
            found.append(_Known(cluster.name, cluster.device.name, size, cluster.size))
    return tuple(found)
