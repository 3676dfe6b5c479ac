"""Devices that have the same parameters: in which groups they stand, and what they exchange.

They may divide parameters, gradients and the optimizer's state among all of them (ZeRO; S.
Rajbhandari et al., arXiv:1910.02054), or among those of a group, of which the others have copies.
Then gradients are summed and dealt out within a group, each device's share is summed over groups,
and parameters are gathered within one (hybrid sharding: Y. Zhao et al., "PyTorch FSDP",
arXiv:2304.11277, section 3.2.2; Z. Zhang et al., "MiCS", arXiv:2205.00119, section 3.4).
"""

from __future__ import annotations

from collections.abc import Iterator

from paleo.cluster.collectives import Operation as Collecting
from paleo.cluster.topology import Cluster, Group
from paleo.core.frozen import NamedTuple
from paleo.core.quantity import Quantity, product
from paleo.step.mesh import Mesh


class Sharing(NamedTuple):
    """A group of devices with the same parameters, and whether they divide them."""

    group: Group
    divides: bool


class Replicas(NamedTuple):
    """All devices with the same parameters, as groups of groups from the inside out."""

    groups: tuple[Sharing, ...]

    @classmethod
    def of(
        cls,
        mesh: Mesh,
        cluster: Cluster,
        *,
        divides: bool,
        within: int | None = None,
        experts: bool = False,
        mirror: Group | None = None,
    ) -> Replicas:
        """Return those that have a stage, or its experts alone.

        They divide it if they do so at all, `within` groups of so many or all together. `mirror`
        are two devices that have it in two places of a pipeline.
        """
        groups = mesh.replicated(cluster, experts=experts, within=within)
        groups += (mirror,) if mirror else ()
        inner = len(groups) if within is None else 1
        sharing = [Sharing(group, divides and i < inner) for i, group in enumerate(groups)]
        return cls(tuple(each for each in sharing if each.group.workers > 1))

    @property
    def shares(self) -> int:
        """Among how many devices is divided what they divide."""
        return int(product(group.workers for group, divides in self.groups if divides))

    def messages(
        self, num_bytes: Quantity, operation: Collecting
    ) -> Iterator[tuple[Group, Quantity, Collecting]]:
        """Yield what groups exchange to gather so many bytes, or to sum and deal them out.

        To sum them so that all have all (all-reduce), of several groups each sums and deals out,
        the outermost has all of a share, and the others gather again.
        """
        if operation is Collecting.ALL_REDUCE:
            last = len(self.groups) - 1
            inner = Replicas(
                tuple(Sharing(one.group, i < last) for i, one in enumerate(self.groups))
            )
            yield from inner.messages(num_bytes, Collecting.REDUCE_SCATTER)
            yield from inner.messages(num_bytes, Collecting.ALL_GATHER)
            return
        for group, divides in self.groups:
            if divides:
                yield group, num_bytes, operation
                num_bytes = num_bytes / group.workers
            elif operation is Collecting.REDUCE_SCATTER:
                yield group, num_bytes, Collecting.ALL_REDUCE
