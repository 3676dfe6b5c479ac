"""The contract of a collective: bytes and a group of workers become seconds.

To add one: a subclass of Collective in a file of this folder, registered by
`COLLECTIVES.add(name, instance)`. The folder finds its files by itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any, ClassVar

from paleo.cluster.collectives.phases import Phases, bound_of, seconds_of
from paleo.cluster.collectives.rounds import Carried, Round, busiest, phases_of_rounds
from paleo.cluster.topology import Group, Tier
from paleo.core.errors import SettingError
from paleo.core.frozen import NamedTuple, dataclass
from paleo.core.quantity import Quantity, is_array, np, total
from paleo.core.registry import Registry


class Operation(Enum):
    """What workers want of each other; the message of K workers is counted as nccl-tests do.

    It is what each worker has before an all-reduce, a reduce-scatter, an all-to-all or a
    broadcast, and what each has after an all-gather.
    """

    ALL_REDUCE = "all_reduce"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_GATHER = "all_gather"
    ALL_TO_ALL = "all_to_all"
    BROADCAST = "broadcast"
    POINT_TO_POINT = "point_to_point"

    def bus_share(self, workers: Quantity) -> Quantity:
        """Return what part of the message has to cross each worker's link, at the least.

        The bus bandwidth of nccl-tests is this, times bytes, over seconds: 2 (K - 1) / K of an
        all-reduce, (K - 1) / K of a reduce-scatter, an all-gather or an all-to-all, else 1
        (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md).
        """
        if self in (Operation.BROADCAST, Operation.POINT_TO_POINT):
            return workers * 0 + 1
        return (2 if self is Operation.ALL_REDUCE else 1) * (workers - 1) / workers


#: What the messages of a part of an all-reduce are.
_CARRIED = {
    Operation.REDUCE_SCATTER: Carried.SUM,
    Operation.ALL_GATHER: Carried.RESULT,
    Operation.BROADCAST: Carried.RESULT,
}


class Choice(NamedTuple):
    """What a scheme does with a message, and what bounds it; arrays for an array of messages.

    `protocol` is "" where a scheme knows none. `bound_by` is "latency", or the name of the tier
    whose links take longest. `scheme` is the name of that which the algorithm is.
    """

    algorithm: Any
    protocol: Any
    bound_by: Any
    seconds: Quantity
    scheme: Any


@dataclass(frozen=True)
class _OfRounds:
    """What finds the phases of a group from a scheme's rounds; schemes may have no hash."""

    scheme: Collective
    operation: Operation

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _OfRounds):
            return NotImplemented
        return self.scheme is other.scheme and self.operation is other.operation

    def __hash__(self) -> int:
        return hash((id(self.scheme), self.operation))

    def __call__(self, group: Group) -> Phases:
        def rounds(workers: int) -> Iterator[Round]:
            return self.scheme.rounds_on(Group(workers, group.levels), self.operation)

        return phases_of_rounds(group, rounds, self.operation in self.scheme.pipelined)


class Collective(ABC):
    """A scheme by which workers exchange data."""

    name: ClassVar[str]
    #: One line for lists and help.
    summary: ClassVar[str]
    #: Whether every worker ends with the sum over all workers.
    exact: ClassVar[bool] = True
    #: Whether it is one of the schemes of 2017, to which `paleo2017` keeps.
    is_of_2017: ClassVar[bool] = False
    #: What it can be used for.
    operations: ClassVar[tuple[Operation, ...]] = (Operation.ALL_REDUCE,)
    #: For which of them the pieces of a message follow one another through the rounds, so that
    #: links are busy with all rounds at once.
    pipelined: ClassVar[tuple[Operation, ...]] = ()

    #: What sums up between workers, where anything does: a SWITCH of rounds.
    between: ClassVar[str] = "the switch"

    def with_servers(self, servers: int) -> Collective:
        """Return the scheme with so many servers, if it has servers on hosts of their own."""
        return self

    def with_nccl(self, version: str) -> Collective:
        """Return the scheme as a version of NCCL has it, such as 2.18, if it is one of NCCL's.

        Raises SettingError for what is no version.
        """
        return self

    def transfers(self, workers: Quantity) -> Quantity:
        """Return how many times the whole message crosses a link, one after another.

        They are the crossings of the rounds; what the busiest worker sends where pieces follow one
        another. A scheme that overrides this has a formula for them, which is quicker for many
        workers.
        """
        counts: Any = workers
        if is_array(counts):
            known = {count: self.transfers(count) for count in np.unique(counts).tolist()}
            crossed: Quantity = np.vectorize(known.__getitem__)(counts)
            return crossed
        if Operation.ALL_REDUCE in self.pipelined:
            return busiest(self.rounds(counts))
        return total(one.crossings for one in self.rounds(counts))

    @abstractmethod
    def rounds(self, workers: int) -> Iterator[Round]:
        """Yield who sends what to whom, one round after another, in an all-reduce.

        For a scheme that does none it is what the first of its `operations` does. A round without
        pairs is one that is charged though there is nobody to send to.
        """

    def rounds_on(
        self, group: Group, operation: Operation = Operation.ALL_REDUCE
    ) -> Iterator[Round]:
        """Yield the rounds of an operation among workers who stand on these tiers.

        A half of an all-reduce is its rounds that sum, or those that hand out the result. There a
        worker may have several messages on their way at once. Raises SettingError if it cannot do
        this.
        """
        self.check_operation(operation)
        rounds: Any = self.rounds(int(group.workers))
        carried = _CARRIED.get(operation)
        return (one for one in rounds if carried in (None, one.carried))

    def phases(self, group: Group, operation: Operation = Operation.ALL_REDUCE) -> Phases:
        """Return what crosses the links of a group's tiers; numbers may be arrays.

        It follows from the rounds, which are looked at once for all messages. A scheme that
        overrides this has formulas for it, which are quicker for many workers.
        """
        return group.once(_OfRounds(self, operation))

    def check_operation(self, operation: Operation) -> None:
        """Raise SettingError if this is nothing that the scheme does."""
        if operation not in self.operations:
            able = ", ".join(known.value for known in self.operations)
            raise SettingError(
                f"collective: {self.name} does not do {operation.value} (it does {able})"
            )

    def check(self, tiers: Sequence[Tier]) -> None:
        """Raise SettingError if workers behind these tiers cannot exchange gradients so."""
        if Operation.ALL_REDUCE not in self.operations:
            able = ", ".join(operation.value for operation in self.operations)
            raise SettingError(f"schemes: {self.name} does not sum up gradients (it does {able})")

    def can_exchange(self, tiers: Sequence[Tier]) -> bool:
        """Tell whether workers behind these tiers can exchange gradients so."""
        try:
            self.check(tiers)
        except SettingError:
            return False
        return True

    def seconds_on(
        self, group: Group, num_bytes: Quantity, operation: Operation = Operation.ALL_REDUCE
    ) -> Quantity:
        """Return the seconds in which a group of workers does this with a message of so many bytes.

        Latency counts. Raises SettingError for what the scheme or the cluster cannot do.
        """
        self.check_operation(operation)
        return seconds_of(self.phases(group, operation), num_bytes)

    def choice(
        self, group: Group, num_bytes: Quantity, operation: Operation = Operation.ALL_REDUCE
    ) -> Choice:
        """Return which algorithm moves a message of so many bytes, how long, and what bounds it.

        A scheme that is an algorithm itself says its own name. Raises SettingError as `seconds_on`.
        """
        seconds = self.seconds_on(group, num_bytes, operation)
        bound = bound_of(self.phases(group, operation), num_bytes)
        return Choice(self.name, "", bound, seconds, self.name)

    def seconds(self, num_bytes: Quantity, workers: Quantity, bandwidth: Quantity) -> Quantity:
        """Return the seconds to exchange `num_bytes` at `bandwidth` bytes/s, without latency."""
        return self.transfers(workers) * (num_bytes / bandwidth)


__all__ = ["COLLECTIVES", "NCCL_VERSION", "Carried", "Choice", "Collective", "Operation", "Round"]

#: The version of NCCL that is taken unless told otherwise.
NCCL_VERSION = "2.27"
COLLECTIVES: Registry[Collective] = Registry("communication scheme", "paleo.collectives")
