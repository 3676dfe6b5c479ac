"""NCCL's collectives: which algorithm and protocol its tuner takes, and how long that lasts.

Both are asked apart. What is taken follows from NCCL's own model with its own constants
(`ncclTopoTuneModel` and `ncclTopoGetAlgoTime` of src/graph/tuning.cc): the least of latency +
bytes / bandwidth. How long it lasts is the model here, with what was measured of the links, for
the tuner errs by up to a factor of three, and switches where it is not quickest.

Letters: K workers of N nodes, k hops of a ring (2 (K - 1) of an all-reduce, K - 1 of one half of
it), S bytes, B bytes/s of the slowest tier that is used. Protocols (Z. Hu et al., "Demystifying
NCCL: an in-depth analysis of GPU communication protocols and algorithms", 2025): LL sends 4 bytes
of data beside 4 of a flag, LL128 120 beside 8; Simple sends whole chunks and synchronizes.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

from paleo.cluster.collectives.base import NCCL_VERSION, Choice, Collective, Operation
from paleo.cluster.collectives.paths import PROTOCOLS, Path, is_modelled
from paleo.cluster.collectives.tuner import SUMS_SECONDS, Tuner
from paleo.cluster.topology import Group, beyond_one
from paleo.core.errors import SettingError
from paleo.core.frozen import NamedTuple, dataclass
from paleo.core.quantity import (
    Quantity,
    ceil_log2,
    is_array,
    maximum,
    minimum,
    np,
    some,
    where,
)

#: The part of what is sent that is data: 4 of 8 bytes, 120 of 128 as NCCL counts them, all.
PAYLOAD = (0.5, 0.92, 1.0)
#: Bytes of a message in protocol LL at the most, between two workers (NCCL_P2P_LL_THRESHOLD).
_LL_MESSAGE = 16384
#: Bytes that one channel sends at a time in protocol LL (512 threads, 8 bytes each).
_LL_LINES = 4096
#: Channels, and bytes that all of them have on their way at the most (2 MiB each).
_CHANNELS = 32
_CHUNKS = _CHANNELS * 2**21


@dataclass(frozen=True)
class Nccl:
    """A version of NCCL: what it has, and how its protocols spend their time.

    The shares are the same for all links and all versions; they were read off the tables that
    the constants of links are fitted to (docs/collectives.md):

    - `fill`: a hop of LL takes so much longer when each thread of a channel has a line to send;
    - `start`: Simple starts and ends as long as so many launches of LL, messages between pairs as
      long as `message_start`;
    - `blend`: hops and bytes of Simple, and of trees, overlap: the norm of this degree of both;
    - `tail`: the first and the last step copy a share of the message once more, at so much of
      what channels copy, LL unpacks its last one at `unpack` of it;
    - `sums`: the part of the bandwidth of switches that sum which is reached, of that counted;
    - `message_share`: the part of the bandwidth that messages between all pairs reach.
    """

    version: str = NCCL_VERSION
    fill: float = 0.24
    start: float = 3.2
    message_start: float = 2.4
    blend: float = 1.47
    tail: float = 0.7
    unpack: float = 0.23
    sums: float = 0.91
    message_share: float = 0.9

    @functools.cached_property
    def tuner(self) -> Tuner:
        """What this version chooses by; raises SettingError for a version that is no number."""
        parts = self.version.split(".")
        if len(parts) < 2 or not all(part.isdecimal() for part in parts):
            raise SettingError(
                f"nccl: expected a version such as 2.27 or 2.18.3, got {self.version!r}"
            )
        return Tuner(tuple(map(int, parts)))


#: The version that is taken unless told otherwise.
CURRENT = Nccl()


def find_nccl(version: str) -> Nccl:
    """Return a version of NCCL, such as 2.18; raises SettingError for what is none."""
    found = Nccl(version)
    _ = found.tuner  # says what is no version
    return found


class Times(NamedTuple):
    """How long it is: `waiting` for hops and kernel, `carrying` the bytes, `seconds` in all."""

    waiting: Quantity
    carrying: Quantity
    seconds: Quantity


class Option(NamedTuple):
    """An algorithm with a protocol: the seconds that the tuner counts, and its real times.

    `scheme` is the name of the scheme that it is; one scheme may be several algorithms.
    """

    scheme: str
    algorithm: Any
    protocol: str
    counted: Quantity
    times: Callable[[], Times]


def choice(
    group: Group,
    num_bytes: Quantity,
    operation: Operation = Operation.ALL_REDUCE,
    nccl: Nccl = CURRENT,
    scheme: str = "",
) -> Choice:
    """Return what NCCL does with a message of so many bytes, for arrays element by element.

    With `scheme` it has the algorithms that are that one alone. Raises SettingError where no
    constants are known of the links, or where the scheme cannot do it.
    """
    path, options, index = _considered(group, num_bytes, operation, nccl, scheme)
    return Choice(
        _picked(index, options, lambda option: option.algorithm),
        _picked(index, options, lambda option: option.protocol),
        _picked(index, options, lambda option: _bound(path, option.times())),
        _picked(index, options, _seconds) * beyond_one(group.workers),
        _picked(index, options, lambda option: option.scheme),
    )


def seconds(
    group: Group,
    num_bytes: Quantity,
    operation: Operation = Operation.ALL_REDUCE,
    nccl: Nccl = CURRENT,
    scheme: str = "",
) -> Quantity:
    """Return the seconds of `choice` alone, which is quicker."""
    _, options, index = _considered(group, num_bytes, operation, nccl, scheme)
    taken: Quantity = _picked(index, options, _seconds)
    return taken * beyond_one(group.workers)


def _considered(
    group: Group, num_bytes: Quantity, operation: Operation, nccl: Nccl, scheme: str
) -> tuple[Path, list[Option], Any]:
    """Return what there is to choose from, and the place of what NCCL counts as the quickest."""
    path = group.once(Path)
    options = _options(path, num_bytes, operation, nccl, scheme == "tree")
    if scheme:
        options = [option for option in options if option.scheme == scheme]
        if not options:
            raise SettingError(f"scheme: {scheme} cannot do {operation.value} here")
    return path, options, _least([option.counted for option in options])


def _options(
    path: Path, num_bytes: Quantity, operation: Operation, nccl: Nccl, with_trees: bool
) -> list[Option]:
    """Return what NCCL can do; trees on one node, which never are the quickest, if asked for."""
    if operation in (Operation.ALL_TO_ALL, Operation.POINT_TO_POINT):
        return _messages(path, num_bytes, operation, nccl)
    sums_up = operation is Operation.ALL_REDUCE
    with_trees = sums_up and nccl.tuner.has_trees and (with_trees or some(path.nodes > 1))
    options = []
    for number in nccl.tuner.protocols(path):
        options.append(_ring(path, num_bytes, operation, nccl, number))
        if with_trees:
            options.append(_tree(path, num_bytes, nccl, number))
    if sums_up and path.sums and nccl.tuner.has_sums:
        options.append(_sums(path, num_bytes, nccl))
    return options


def _ring(path: Path, num_bytes: Quantity, operation: Operation, nccl: Nccl, number: int) -> Option:
    """Return a ring in one protocol: k hops, and k / K of the message over each link.

    In a broadcast the whole message passes each link; there is no first or last step to copy.
    """
    workers = path.workers
    times = 2 if operation is Operation.ALL_REDUCE else 1
    hops = times * (workers - 1)
    between = times * (path.nodes - 1)
    passed = num_bytes * hops / workers
    copied = num_bytes / workers
    if operation is Operation.BROADCAST:
        passed, copied = num_bytes * beyond_one(workers), num_bytes * 0
    counted = nccl.tuner.ring(path, passed, hops, between, number, times == 2)
    sizes = (num_bytes, passed, copied)
    lasting = functools.partial(_ring_times, path, sizes, hops, between, nccl, number)
    return Option("ring", "ring", PROTOCOLS[number], counted, lasting)


def _ring_times(
    path: Path,
    sizes: tuple[Quantity, Quantity, Quantity],
    hops: Quantity,
    between: Quantity,
    nccl: Nccl,
    number: int,
) -> Times:
    """Return the times of a ring; `sizes` are bytes of the message, of a link, of a last step.

    Lines of LL carry their own flags, so that a device sends them on as they arrive, before the
    rest of the chunk has: over PCIe, where the link is slower than the threads that copy, a step
    is as long as its hop or as its bytes, whichever is longer. Between nodes chunks go as a whole.
    """
    num_bytes, passed, copied = sizes
    launch = path.links.value("launch")
    waiting = (hops - between) * path.ring_hops[number] + between * path.net_ring_hops[number]
    carrying = passed / (PAYLOAD[number] * path.bandwidth)
    channels = _CHANNELS * path.links.value("channel")
    if number == 2:
        fixed = nccl.start * launch + waiting
        carrying = carrying + nccl.tail * copied / channels
        ramp = _ramp(path, num_bytes)
        return Times(fixed, carrying + ramp, _blended(fixed, carrying, nccl) + ramp)
    fixed = launch + waiting
    if number == 1:
        carrying = carrying + copied / (PAYLOAD[1] * path.bandwidth)
        return Times(fixed, carrying, fixed + carrying)
    filled = nccl.fill * fixed * minimum(copied / _LL_LINES, 1)
    unpacked = copied / (nccl.unpack * channels)
    together = fixed + maximum(filled, carrying + unpacked)
    if path.links.kind == "pci":
        streamed = launch + maximum(waiting + filled, carrying) + unpacked
        together = where(path.nodes == 1, streamed, together)
    return Times(fixed, carrying + unpacked, together)


def _tree(path: Path, num_bytes: Quantity, nccl: Nccl, number: int) -> Option:
    """Return two binary trees over nodes, chains inside of them: up and down, 2 S a link."""
    depth = ceil_log2(path.nodes)

    def times() -> Times:
        waiting = (path.on_node - 1) * path.tree_hops[number] + depth * path.net_tree_hops[number]
        fixed = path.links.value("launch") * (nccl.start if number == 2 else 1) + 2 * waiting
        carrying = 2 * num_bytes / (PAYLOAD[number] * path.bandwidth)
        return Times(fixed, carrying, _blended(fixed, carrying, nccl))

    counted = nccl.tuner.tree(path, num_bytes, depth, number)
    return Option("tree", "tree", PROTOCOLS[number], counted, times)


def _sums(path: Path, num_bytes: Quantity, nccl: Nccl) -> Option:
    """Return switches that sum inside of a node (NVLS), over nodes with a tree of them.

    Each worker sends S and gets S, and the sums of one K-th cross once more.
    """
    workers, depth = path.workers, ceil_log2(path.nodes)

    def times() -> Times:
        share = path.links.value("sums_share") * nccl.sums
        carrying = num_bytes * (1 + 1 / workers) / (share * path.inside)
        over = num_bytes * 2 * (workers - 1) / workers / path.between
        carrying = maximum(carrying, over) + _ramp(path, num_bytes)
        fixed = path.links.value("launch") + SUMS_SECONDS + 2 * depth * path.net_tree_hops[2]
        return Times(fixed, carrying, fixed + carrying)

    name = where(path.nodes > 1, "nvls_tree", "nvls")
    return Option("in_network", name, "Simple", nccl.tuner.sums(path, num_bytes, depth), times)


def _messages(path: Path, num_bytes: Quantity, operation: Operation, nccl: Nccl) -> list[Option]:
    """Return messages between pairs: short ones in LL, others in Simple.

    Of an all-to-all each worker sends a K-th to each other, and copies one for itself. The last
    node, which may not be full, has fewer workers to send, and fewer cards to do it.
    """
    workers = path.workers
    launch, hop = path.links.value("launch"), path.ring_hops[0]
    net = where(path.nodes > 1, path.net_ring_hops[0], 0.0)
    reached = nccl.message_share * path.inside
    if operation is Operation.ALL_TO_ALL:
        length, partners = num_bytes / workers, 1 + ceil_log2(workers)
        carrying = maximum(
            num_bytes * (workers - 1) / workers / reached,
            num_bytes / (_CHANNELS * path.links.value("channel")),
        )
        for level in path.outer:
            last = minimum(workers - (level.members - 1) * level.inside, level.inside)
            for devices, narrowing in ((level.inside, 1), (last, level.narrowing)):
                leaving = devices * (workers - devices) / workers * num_bytes
                leaving = leaving * narrowing * beyond_one(level.members)
                carrying = maximum(carrying, leaving / level.nccl_bandwidth)
    else:
        length, partners = num_bytes, 2
        carrying = num_bytes / path.inside
        for level in path.outer:
            one = minimum(level.links, level.nearest) * level.nccl_bandwidth / level.links
            carrying = maximum(carrying, num_bytes * beyond_one(level.members) / one)
    is_short = length <= _LL_MESSAGE
    fixed = launch + hop * partners + net
    filled = nccl.fill * fixed * minimum(length / _LL_MESSAGE, 1)
    if operation is Operation.ALL_TO_ALL:
        start, ramp = nccl.message_start * launch + net, _ramp(path, num_bytes)
    else:
        start, ramp = launch + net, 0.0

    def short() -> Times:
        sent = carrying / PAYLOAD[0]
        return Times(fixed, sent, fixed + maximum(filled, sent))

    def long() -> Times:
        seconds = maximum(start + carrying + ramp, fixed + filled)
        return Times(start, carrying + ramp, seconds)

    never = float("inf")
    return [
        Option("pairwise", "p2p", "LL", where(is_short, 0.0, never), short),
        Option("pairwise", "p2p", "Simple", where(is_short, never, 0.0), long),
    ]


def _blended(waiting: Quantity, carrying: Quantity, nccl: Nccl) -> Quantity:
    """Return the seconds of hops and of bytes that overlap."""
    both: Quantity = (waiting**nccl.blend + carrying**nccl.blend) ** (1 / nccl.blend)
    return both


def _ramp(path: Path, num_bytes: Quantity) -> Quantity:
    """Return what a message loses until all channels have whole chunks on their way."""
    return path.links.value("ramp") * num_bytes / (num_bytes + _CHUNKS)


def _least(counted: list[Quantity]) -> Any:
    """Return the place of the least, for arrays element by element."""
    if any(map(is_array, counted)):
        return np.argmin(np.stack(np.broadcast_arrays(*counted)), axis=0)
    return min(range(len(counted)), key=counted.__getitem__)


def _picked(index: Any, options: list[Option], of: Callable[[Option], Any]) -> Any:
    """Return something of the option at a place; for arrays, of each element's."""
    if is_array(index):
        return np.choose(index, np.broadcast_arrays(index, *map(of, options))[1:])
    return of(options[index])


def _seconds(option: Option) -> Quantity:
    return option.times().seconds


def _bound(path: Path, times: Times) -> Any:
    """Return what lasts longer: hops, or the bytes over the slowest tier, which is named."""
    return where(times.waiting >= times.carrying, "latency", path.bottleneck())


class OfNccl(Collective):
    """A scheme that NCCL has: where its constants are known, they are taken.

    Elsewhere its phases are those of the textbook.
    """

    #: Whether it is what NCCL chooses among all schemes that it has.
    chooses: bool = False
    library: Nccl = CURRENT

    def with_nccl(self, version: str) -> Collective:
        other = copy.copy(self)
        other.library = find_nccl(version)
        return other

    @property
    def _only(self) -> str:
        return "" if self.chooses else self.name

    def of_nccl(self, group: Group, operation: Operation) -> bool:
        """Tell whether NCCL does this on these links, and what is known of them."""
        return is_modelled(group) and operation in self.operations

    def seconds_on(
        self, group: Group, num_bytes: Quantity, operation: Operation = Operation.ALL_REDUCE
    ) -> Quantity:
        if self.of_nccl(group, operation):
            return seconds(group, num_bytes, operation, self.library, self._only)
        return super().seconds_on(group, num_bytes, operation)

    def choice(
        self, group: Group, num_bytes: Quantity, operation: Operation = Operation.ALL_REDUCE
    ) -> Choice:
        if self.of_nccl(group, operation):
            return choice(group, num_bytes, operation, self.library, self._only)
        return super().choice(group, num_bytes, operation)
