"""A mesh: how many devices share a net in each way, and which of them stand next to each other.

Tensor parallelism shares each layer, data parallelism a batch, pipeline parallelism the layers one
behind the other. A group of each kind has devices a `stride` apart: as many as the kinds before it
in the order have in all.
"""

from __future__ import annotations

from paleo.cluster.topology import Cluster, Group
from paleo.core.errors import SettingError
from paleo.core.frozen import dataclass
from paleo.core.quantity import product

#: The kinds, and in which order they stand by default, from the inside out.
KINDS = ("tp", "dp", "pp")
ORDER = ("tp", "dp", "pp")


@dataclass(frozen=True)
class Mesh:
    """How many devices there are of each kind, and in which order they stand."""

    tp: int = 1
    dp: int = 1
    pp: int = 1
    order: tuple[str, ...] = ORDER

    @classmethod
    def of(cls, workers: int, tp: int, pp: int, order: tuple[str, ...] = ORDER) -> Mesh:
        """Return the mesh of so many devices, of which the rest is data-parallel.

        Raises SettingError if they do not divide so.
        """
        share = tp * pp
        if workers % share:
            ways = " x ".join(
                f"{name} {count}" for name, count in (("tp", tp), ("pp", pp)) if count > 1
            )
            raise SettingError(f"num_workers: {workers} devices do not divide by {ways}")
        return cls(tp, workers // share, pp, order)

    @property
    def size(self) -> int:
        """How many devices there are in all."""
        return self.tp * self.dp * self.pp

    def stride(self, kind: str) -> int:
        """Return how far the devices of a group stand from each other."""
        inner = self.order[: self.order.index(kind)]
        return int(product(getattr(self, name) for name in inner))

    def group(self, cluster: Cluster, kind: str) -> Group:
        """Return a group of a kind; raises SettingError if the cluster has not so many devices."""
        return cluster.group(getattr(self, kind), self.stride(kind))

    def neighbours(self, cluster: Cluster, kind: str, first: int) -> Group:
        """Return two devices of a group next to each other, of which the first has this number.

        So many pairs as there are devices between them exchange at the same time.
        """
        stride = self.stride(kind)
        place = first * stride
        inner = 1
        for tier in cluster.tiers:
            if place // (inner * tier.size) == (place + stride) // (inner * tier.size):
                break
            inner *= tier.size
        return cluster.group(2, max(stride, inner))
