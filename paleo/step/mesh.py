"""A mesh: how many devices share a net in each way, and which of them stand next to each other.

Tensor parallelism shares each layer, context parallelism the positions of a sequence, data
parallelism a batch, pipeline parallelism the layers one behind the other. The experts of mixtures
are shared by devices that have different data: of `dp` x `cp` devices so many have all of them. A
group of each kind has devices a stride apart: as many as the kinds before it in the order have in
all.
"""

from __future__ import annotations

from paleo.cluster.topology import Cluster, Group
from paleo.core.errors import SettingError
from paleo.core.frozen import dataclass
from paleo.core.quantity import product

#: The kinds, and in which order they stand by default, from the inside out.
KINDS = ("tp", "cp", "ep", "dp", "pp")
ORDER = KINDS


@dataclass(frozen=True)
class Mesh:
    """How many devices there are of each kind, and in which order they stand.

    `ep` are those that share experts, of the `dp` x `cp` that have all other parameters.
    """

    tp: int = 1
    cp: int = 1
    ep: int = 1
    dp: int = 1
    pp: int = 1
    order: tuple[str, ...] = ORDER

    @classmethod
    def of(
        cls,
        workers: int,
        tp: int = 1,
        cp: int = 1,
        ep: int = 1,
        pp: int = 1,
        order: tuple[str, ...] = ORDER,
    ) -> Mesh:
        """Return the mesh of so many devices, of which the rest is data-parallel.

        Raises SettingError if they do not divide so.
        """  # fmt: skip
        degrees = {"tp": tp, "cp": cp, "pp": pp}
        share = int(product(degrees.values()))
        if workers % share:
            ways = " x ".join(f"{name} {count}" for name, count in degrees.items() if count > 1)
            raise SettingError(f"num_workers: {workers} devices do not divide by {ways}")
        dp = workers // share
        if dp * cp % ep:
            shares = f"{dp} shares of the data" + (f" x cp {cp}" if cp > 1 else "")
            raise SettingError(f"ep: {shares} do not divide by ep {ep}")
        return cls(tp, cp, ep, dp, pp, order)

    @property
    def size(self) -> int:
        """How many devices there are in all."""
        return self.tp * self.cp * self.dp * self.pp

    @property
    def replicas(self) -> int:
        """How many devices have the same parameters, but for those of experts."""
        return self.cp * self.dp

    def stride(self, kind: str) -> int:
        """Return how far the devices of a group stand from each other.

        Those that share experts are among those that share a batch, and no kind beside it.
        """
        inner = self.order[: self.order.index(kind)]
        return int(product(getattr(self, name) for name in inner if name != "ep"))

    def group(self, cluster: Cluster, kind: str) -> Group:
        """Return a group of a kind; raises SettingError if the cluster has not so many devices."""
        return cluster.group(getattr(self, kind), self.stride(kind))

    def replicated(
        self, cluster: Cluster, *, experts: bool = False, within: int | None = None
    ) -> tuple[Group, ...]:
        """Return the devices that have the same parameters, those of `experts` or all others.

        They are one group, or of so many `within` a group those, and then those of all groups that
        have the same place in theirs. Of experts there are fewer in a group: so many have others.
        """
        shared = self.ep if experts else 1
        stride = min(self.stride(kind) for kind in ("cp", "dp")) * shared
        count = self.replicas // shared
        inner = count if within is None else max(1, within // shared)
        inside = cluster.group(inner, stride)
        if within is None:
            return (inside,)
        return inside, cluster.group(count // inner, stride * inner)

    def neighbours(
        self, cluster: Cluster, kind: str, first: int, second: int | None = None
    ) -> Group:
        """Return two devices of a group: that of this number, and another, by default the next.

        So many pairs as there are devices between neighbours exchange at the same time.
        """
        return cluster.group(2, self.distance(cluster, kind, first, second))

    def distance(self, cluster: Cluster, kind: str, first: int, second: int | None = None) -> int:
        """Return how many pairs of two devices of a group exchange at the same time."""
        stride = self.stride(kind)
        places = first * stride, (first + 1 if second is None else second) * stride
        inner = 1
        for tier in cluster.tiers:
            if places[0] // (inner * tier.size) == places[1] // (inner * tier.size):
                break
            inner *= tier.size
        # Where they are in members of a tier, all devices of a member have others to send to.
        return stride if inner == 1 else inner
