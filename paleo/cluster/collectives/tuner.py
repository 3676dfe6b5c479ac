"""How NCCL's tuner counts the seconds of an algorithm with a protocol.

The constants and formulas are those of src/graph/tuning.cc of NVIDIA/nccl 2.27 and 2.28
(`ncclTunerConstantsDefaults`, `ncclTopoTuneModel`, `ncclTopoGetAlgoTime`). They say what NCCL
chooses, not how long it takes. Of older versions, of which 2.17.1, 2.20.3, 2.21.5 and 2.22.3 were
read, only what is asked of `release` differs here, not their seconds of algorithms and hops.
"""

from __future__ import annotations

import math

from paleo.cluster.collectives.paths import HOPS, Path, Protocols
from paleo.core.frozen import dataclass
from paleo.core.quantity import Quantity, is_array, maximum, minimum, np, some, where

#: Seconds of an algorithm without hops, by protocol; of switches that sum, with all there are.
_RING, _TREE = (6.6e-6, 14e-6, 8.4e-6), (6.8e-6, 14e-6, 8.4e-6)
SUMS_SECONDS = 25e-6
#: What is left of the bandwidth: of rings (0.92 for 120 of 128 bytes), of trees.
_RING_SHARES, _TREE_SHARES = (0.5, 0.92, 1.0), (1 / 3.8, 0.9375, 1.0)
#: What LL was counted with before 2.21, in an all-reduce or on several nodes, and else.
_LL_WHOLE, _LL_HALF = 1 / 4, 1 / 3
_TREE_SHARE, _TREE_INSIDE = 0.92, 7 / 9
#: Seconds of posting a message to a network, which hops inside of nodes take at the least.
_OVERHEAD = (1e-6, 1e-6, 3e-6)
#: Bytes/s of protocol LL at the most, on two nodes and on more.
_LL_ON_TWO, _LL_ON_MORE = 39e9, 20.4e9
#: What trees reach of their bandwidth for 64 bytes, 128, 256, ... by protocol; all of it beyond.
_OF_TREES = (
    (1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
    (1, 1, 1, 1, 1, 0.9, *(0.8,) * 3, 0.7, *(0.6,) * 6, 0.8, *(0.9,) * 4),
    (*(0.9,) * 7, 0.8, 0.7, 0.6, 0.6, *(0.5,) * 4, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9),
)
#: Rings of long messages on several nodes are counted as if their hops were so much longer.
_PLATEAU = 1.4
#: NVLink's bandwidth as the search of channels ends: in whole steps of this.
_STEP = 20e9
#: Stands for the infinite bandwidth of links that are not used.
_MOST = 1e18
#: Stands for the bandwidth of what there is not.
_LEAST = 1e-3


@dataclass(frozen=True)
class Tuner:
    """The tuner of one release, such as (2, 27)."""

    release: tuple[int, ...]

    @property
    def has_trees(self) -> bool:
        """Double binary trees came with 2.4."""
        return self.release >= (2, 4)

    @property
    def has_sums(self) -> bool:
        """Switches that sum (NVLS) are used from 2.17 on, on several nodes from 2.18 on."""
        return self.release >= (2, 17)

    def protocols(self, path: Path) -> tuple[int, ...]:
        """Return the protocols that are used, as places in PROTOCOLS; LL128 came with 2.5."""
        return (0, 1, 2) if self.release >= (2, 5) and some(path.has_ll128) else (0, 2)

    def ring(
        self,
        path: Path,
        passed: Quantity,
        hops: Quantity,
        between: Quantity,
        number: int,
        is_whole: bool,
    ) -> Quantity:
        """Return the seconds of a ring of so many hops, of which some are between nodes.

        `passed` bytes pass each link; `is_whole` is whether it is an all-reduce.
        """
        bandwidth = _RING_SHARES[number] * _searched(path)
        if number == 0:
            if self.release < (2, 21):
                share = where(is_whole | (path.nodes > 1), _LL_WHOLE, _LL_HALF)
                bandwidth = bandwidth * share / _RING_SHARES[0]
            bandwidth = minimum(bandwidth, _ll_bandwidth(path))
        elif number == 1:
            bandwidth = where(path.has_ll128, bandwidth, _LEAST)
        is_spread = path.nodes > 1
        inside = path.counted_hops("ring")[number]
        inside = where(is_spread, maximum(inside, _OVERHEAD[number]), inside)
        nets = _counted_net_hops(path, "ring")[number]
        seconds: Quantity = _RING[number] + (hops - between) * inside + between * nets
        if number == 2:
            seconds = where(is_spread, _PLATEAU * seconds, seconds)
        return seconds + passed / bandwidth

    def tree(self, path: Path, num_bytes: Quantity, depth: Quantity, number: int) -> Quantity:
        """Return the seconds of an all-reduce over two trees of nodes of this depth."""
        bandwidth = _TREE_SHARE * _searched(path)
        if number == 0:
            bandwidth = minimum(bandwidth * _TREE_SHARES[0], _ll_bandwidth(path))
        elif number == 1:
            bandwidth = bandwidth * where(path.nodes > 1, _TREE_SHARES[1], _TREE_INSIDE)
            bandwidth = where(path.has_ll128, bandwidth, _LEAST)
        bandwidth = bandwidth * _of_trees(num_bytes, number)
        inside = path.counted_hops("tree")[number]
        nets = _counted_net_hops(path, "tree")[number]
        seconds = _TREE[number] + 2 * ((path.on_node - 1) * inside + depth * nets)
        return seconds + 2 * num_bytes / bandwidth

    def sums(self, path: Path, num_bytes: Quantity, depth: Quantity) -> Quantity:
        """Return the seconds of an all-reduce by switches that sum, over nodes by a tree of them.

        There is a channel for each worker of a node, one of which NCCL does not count.
        """
        heads = path.on_node
        bandwidth = minimum(_searched(path, path.inside), heads * path.links.value("head"))
        share = path.links.value("sums_share") * maximum(heads - 1, 1) / heads
        bandwidth = 2 * share * bandwidth
        over = where(path.nodes == 2, 2.0, 1.0) * path.between
        if self.release < (2, 18):
            over = where(path.nodes > 1, _LEAST, over)
        bandwidth = minimum(bandwidth, over)
        seconds = SUMS_SECONDS + 2 * depth * _counted_net_hops(path, "tree")[2]
        return seconds + num_bytes * 2 * (path.workers - 1) / path.workers / bandwidth


def _searched(path: Path, bandwidth: Quantity | None = None) -> Quantity:
    """Return the bytes/s of all channels together, as the search of them ends."""
    found = path.bandwidth if bandwidth is None else bandwidth
    if path.links.kind != "nvlink":
        return found
    found = minimum(found, _MOST)
    searched: Quantity = where(found >= _STEP, found // _STEP * _STEP, found)
    return searched


def _ll_bandwidth(path: Path) -> Quantity:
    on_several = where(path.nodes == 2, _LL_ON_TWO, _LL_ON_MORE)
    on_one = path.links.value("ll_bandwidth", float("inf"))
    bandwidth: Quantity = where(path.nodes > 1, on_several, on_one)
    return bandwidth


def _counted_net_hops(path: Path, algorithm: str) -> Protocols:
    """Return the seconds of a hop between nodes, with what the network says of itself."""
    latency = path.net_latency
    hops = HOPS["network"]["tree"]
    if algorithm == "ring":
        first, second, third = (
            where(path.on_node == 1, *pair)
            for pair in zip(hops, HOPS["network"]["ring"], strict=True)
        )
        return first + latency, second + latency, third + 2 * latency
    return hops[0] + latency, hops[1] + latency, hops[2] + 2 * latency


def _of_trees(num_bytes: Quantity, number: int) -> Quantity:
    """Return what trees reach of their bandwidth, by the power of two of the message."""
    shares = _OF_TREES[number]
    if is_array(num_bytes):
        table = np.array((*shares, 1.0))
        powers = np.frexp(np.maximum(num_bytes, 64) / 64)[1] - 1
        found: Quantity = table[np.minimum(powers, len(shares))]
        return found
    power = math.frexp(max(num_bytes, 64) / 64)[1] - 1
    return shares[power] if power < len(shares) else 1.0
