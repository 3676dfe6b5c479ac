"""How long collectives take on clusters: every combination of what is asked."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Any, Unpack

from paleo.cluster import Cluster, group_of
from paleo.cluster.collectives import AUTO, COLLECTIVES, Choice, Collective, Operation
from paleo.cluster.collectives.nccl import CURRENT
from paleo.cluster.collectives.phases import Phases
from paleo.cluster.flows import Placement
from paleo.cluster.topology import Group
from paleo.core.attributes import Ends, at_ends, with_ends
from paleo.core.checks import checked_bytes, number, shown
from paleo.core.errors import Mistakes, PaleoError, SettingError, near_or_known
from paleo.core.frozen import TypedDict, dataclass
from paleo.core.quantity import Quantity, some
from paleo.costs.collective_bands import collective_band
from paleo.costs.error_bands import Band
from paleo.step.declarations import (
    Setting,
    check_names,
    checked_workers,
    declared,
    name_in,
    several,
)
from paleo.step.distributed_settings import (
    ALL_SCHEMES,
    NCCL,
    NETWORK,
    PPP_COMM,
    ClusterLike,
    NetworkLike,
    checked_count,
)
from paleo.step.settings import (
    DEVICE,
    DeviceLike,
    GridSettings,
    found_settings,
)

#: What is asked of a cluster that has so many devices, if nobody says.
_WORKERS = (2, 8, 64)
_SIZES = ("1KiB", "1MiB", "1GiB")
#: Of more messages in a round no flows are simulated: it would take longer than an answer may.
_MOST_FLOWS = 2048


def _checked_operation(value: Any) -> Operation:
    names = [operation.value for operation in Operation]
    if isinstance(value, Operation):
        return value
    if value not in names:
        hint = near_or_known(str(value), names)
        raise SettingError(f"collective: unknown collective {shown(value)}{hint}")
    return Operation(value)


def _checked_size(value: Any) -> int:
    size = checked_bytes(number(value) if isinstance(value, str) else value, "bytes")
    if size < 1:
        raise SettingError(f"bytes: expected one byte or more, got {shown(value)}")
    return size


def _checked_schemes(value: Any) -> tuple[str, ...]:
    if value in (ALL_SCHEMES, "all", ["all"]):
        return ALL_SCHEMES
    return several("schemes", name_in(COLLECTIVES))(value)


class CollectiveSettings(TypedDict, total=False):
    """Of collectives on clusters."""

    cluster: Annotated[
        ClusterLike | Sequence[ClusterLike | None] | None, declared(GridSettings)["cluster"]
    ]
    device: Annotated[DeviceLike, DEVICE]
    network: Annotated[NetworkLike, NETWORK]
    ppp_comm: Annotated[Quantity, PPP_COMM]
    workers: Annotated[
        int | Sequence[int] | None,
        Setting(
            default=None,
            check=lambda value: (
                value if value is None else several("num_workers", checked_workers, int)(value)
            ),
            help="Numbers of workers (devices) that take part.",
            options=("--num_workers",),
            metavar="N,N,...",
            shown_default="2, 8 and 64, as far as the cluster has them",
        ),
    ]
    num_bytes: Annotated[
        int | str | Sequence[int | str],
        Setting(
            default=_SIZES,
            check=several("bytes", _checked_size, int | str),
            help="Sizes of the message, such as 64KiB: as nccl-tests count it, what each worker "
            "has before the collective, of an all-gather what it has after.",
            options=("--bytes",),
            metavar="SIZE,...",
        ),
    ]
    collective: Annotated[
        str | Sequence[str] | None,
        Setting(
            default=None,
            check=lambda value: (
                value if value is None else several("collective", _checked_operation)(value)
            ),
            help="Which collectives: "
            + ", ".join(operation.value for operation in Operation)
            + ".",
            choices=lambda: [operation.value for operation in Operation],
            metavar="NAME,...",
            shown_default="all that the schemes do",
        ),
    ]
    schemes: Annotated[
        str | Sequence[str],
        Setting(
            default=AUTO,
            check=_checked_schemes,
            help="How workers do it: one scheme, several to compare, or all.",
            describes=True,
            options=("--scheme",),
            choices=lambda: COLLECTIVES,
            metavar="NAME,...",
        ),
    ]
    nccl: Annotated[str | None, NCCL]
    stride: Annotated[
        int,
        Setting(
            default=1,
            check=checked_count("stride"),
            help="Of devices in their order, node by node, a group has each N-th: N groups go on "
            "at the same time and share the links, as groups of data parallelism do beside "
            "tensor parallelism on N devices.",
            metavar="N",
            is_number=True,
        ),
    ]
    explain: Annotated[
        bool,
        Setting(
            default=False,
            check=bool,
            help="Show the phases: on each tier, the latencies and the bytes. Where workers do not "
            "fill nodes, show what messages take that share links fairly, one by one.",
        ),
    ]


@dataclass(frozen=True)
class CollectiveTime:
    """What a collective of a message takes, and which algorithm was chosen for it.

    `phases` and `flows_s` are there where it was asked to explain: the seconds that a simulation of
    messages sharing links gives, of a group that does not fill its nodes. With a `stride` there are
    as many such groups at the same time. `band` says how far the truth may be from the seconds,
    None where nothing like it was held out of fits.
    """

    cluster: str
    operation: Operation
    scheme: str
    workers: int
    num_bytes: int
    choice: Choice
    unfilled: str = ""
    phases: Phases = ()
    flows_s: float | None = None
    stride: int = 1
    band: Band | None = None

    @property
    def seconds(self) -> float:
        """Seconds of the algorithm that was chosen."""
        return float(self.choice.seconds)

    @property
    def is_done(self) -> bool:
        """Whether every worker has the result then, as after butterfly mixing it has not."""
        return self.operation is not Operation.ALL_REDUCE or COLLECTIVES[self.scheme].exact

    @property
    def bus_bandwidth(self) -> float | None:
        """Bytes/s that have to cross each worker's link, at the least; None of one worker alone."""
        if not self.seconds > 0:
            return None
        return float(self.operation.bus_share(self.workers) * self.num_bytes / self.seconds)

    @property
    def algorithm_bandwidth(self) -> float | None:
        """Bytes/s of the message; None of one worker alone."""
        return self.num_bytes / self.seconds if self.seconds > 0 else None

    @property
    def ends(self) -> Ends[CollectiveTime]:
        """The same if it takes the least of its error band, and the most."""
        factors: Ends[float] = self.band.ends if self.band else (None, None)
        return at_ends(
            factors,
            lambda end: replace(self, choice=self.choice._replace(seconds=end * self.seconds)),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        values = self._values()
        ends = at_ends(self.ends, lambda end: end._values())
        rates = ("algorithm_bandwidth", "bus_bandwidth")
        return with_ends(values, ends, times=("seconds",), rates=rates)

    def _values(self) -> dict[str, Any]:
        values = {
            "cluster": self.cluster,
            "collective": self.operation.value,
            "scheme": self.scheme,
            "algorithm": self.choice.algorithm,
            "protocol": self.choice.protocol or None,
            "workers": self.workers,
            "stride": self.stride,
            "bytes": self.num_bytes,
            "seconds": self.seconds,
            "algorithm_bandwidth": self.algorithm_bandwidth,
            "bus_bandwidth": self.bus_bandwidth,
            "bound": self.choice.bound_by,
            "note": self.unfilled or None,
        }
        if self.phases:
            values |= {"phases": list(self.moves()), "flows_s": self.flows_s}
        return values

    def moves(self) -> Iterator[dict[str, Any]]:
        """Yield what crosses the links of each tier in each phase."""
        for phase in self.phases:
            slowest = phase.carrying(self.num_bytes)
            for move in phase.moves:
                carrying = float(move.seconds_for(self.num_bytes))
                if not (carrying or move.steps):
                    continue
                yield {
                    "phase": phase.name,
                    "tier": move.level.tier.name,
                    "steps": float(move.steps),
                    "latency_s": float(move.waiting),
                    "sent_bytes": float(move.sent * self.num_bytes),
                    "bandwidth_bytes_per_s": float(move.level.bandwidth),
                    "transfer_s": carrying,
                    "is_slowest": carrying == slowest,
                }


def collectives(**settings: Unpack[CollectiveSettings]) -> tuple[CollectiveTime, ...]:
    """Return what collectives take: of every cluster, scheme, collective, worker count and size.

    Without a `cluster` there are as many of a `device` as need be, behind one `network`. Sizes may
    be texts such as "4 MiB". Raises a PaleoError with every mistake.

    >>> asked = {"collective": "all_reduce", "workers": 8, "num_bytes": "1 GiB"}
    >>> [found] = paleo.collectives(cluster="dgx_h100", schemes="ring", **asked)
    >>> found.choice.bound_by
    'node'
    """
    mistakes = Mistakes()
    check_names(declared(CollectiveSettings), settings, mistakes)
    found = found_settings(CollectiveSettings, settings, mistakes, base=CollectiveSettings)
    mistakes.raise_as(PaleoError)
    wanted = [
        (cluster or Cluster.flat(found["device"], found["network"])).with_networks(
            lambda network: network.reaching(found["ppp_comm"])
        )
        for cluster in (found["cluster"] or (None,))
    ]
    rows = [row for cluster in wanted for row in _on(cluster, found, mistakes)]
    mistakes.raise_as(SettingError)
    return tuple(rows)


def _on(cluster: Cluster, found: dict[str, Any], mistakes: Mistakes) -> Iterator[CollectiveTime]:
    """Yield the rows of a cluster, and note what is wrong."""
    counts, stride = found["workers"], found["stride"]
    if counts is None:
        most = max(1, cluster.size // stride)
        counts = [count for count in _WORKERS if count <= most] or [most]
    groups = mistakes.check_all(lambda count: group_of(cluster, count, stride), counts)
    everything = found["schemes"] == ALL_SCHEMES
    names = COLLECTIVES.built_in if everything else found["schemes"]
    for operation, name in itertools.product(found["collective"] or tuple(Operation), names):
        scheme = COLLECTIVES[name].with_nccl(found["nccl"] or CURRENT.version)
        is_asked = found["collective"] is not None and not everything
        if not is_asked and operation not in scheme.operations:
            continue
        try:
            for group, size in itertools.product(groups, found["num_bytes"]):
                row = _row(cluster, scheme, group, size, operation, found["explain"])
                # Of groups that share links nothing was measured.
                yield row if stride == 1 else replace(row, stride=stride, flows_s=None, band=None)
        except SettingError as error:
            if not everything:
                mistakes.include(error)


def _row(
    cluster: Cluster,
    scheme: Collective,
    group: Group,
    size: int,
    operation: Operation,
    explain: bool,
) -> CollectiveTime:
    choice = scheme.choice(group, size, operation)
    chosen = COLLECTIVES.get(choice.scheme, scheme)
    note = unfilled(group)
    return CollectiveTime(
        cluster.name,
        operation,
        scheme.name,
        int(group.workers),
        size,
        choice,
        note,
        chosen.phases(group, operation) if explain else (),
        _flows(cluster, chosen, group, size, operation) if explain and note else None,
        band=collective_band(scheme.name, group, size, operation),
    )


def unfilled(group: Group) -> str:
    """Return the sentence that workers do not fill their nodes; "" if they do."""
    for level, inner in zip(group.levels[1:], group.levels, strict=False):
        inside = int(level.inside)
        if some(level.members > 1) and group.workers % inside:
            last = group.workers % inside
            return (
                f"{group.workers} workers do not fill each {inner.tier.name} of {inside} devices: "
                f"the last has {last}"
            )
    return ""


def _flows(
    cluster: Cluster, scheme: Collective, group: Group, size: int, operation: Operation
) -> float | None:
    """Return the seconds of messages that share links fairly, one round after another.

    None where no rounds of the scheme are known on such tiers, where pieces of the message do not
    wait for a round's end, or where it is too many messages.
    """
    workers = int(group.workers)
    is_known = operation not in scheme.pipelined and scheme.name != AUTO
    if not is_known or workers * int(group.levels[-1].inside) > _MOST_FLOWS:
        return None
    try:
        rounds = scheme.rounds_on(group, operation)
        return Placement(cluster, range(workers)).seconds(rounds, size)
    except SettingError:
        return None
