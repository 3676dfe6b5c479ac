"""Where the dimensions of another framework's tensors are in Paleo's.

Other frameworks write images as N x C x H x W, sequences as T x N x D, the heads of
attention as (N heads) x T x d. Paleo's tensors have the batch first and channels last. A
`Value` is a tensor of the source and says which dimensions of a Paleo layer make up each of
its axes. So a transposition that only goes from one layout to the other is nothing in
Paleo, and a true one is found when somebody needs the elements in another order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from paleo.importers.base import OperatorError
from paleo.tensor import format_shape

__all__ = [
    "BATCH",
    "Block",
    "Group",
    "Regrouped",
    "Tensor",
    "Value",
    "before_and_after",
    "regroup",
]

#: The number of the batch among the dimensions of a Paleo layer.
BATCH = 0

Group = tuple[int, ...]
Block = tuple[Group, tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True)
class Tensor:
    """A tensor that the net holds: parameters, or constants if it is not `trainable`.

    `key` identifies it, `shape` is its own, and `cut` the part that is used: (axis, begin,
    size, step).
    """

    key: str
    shape: tuple[int, ...]
    trainable: bool
    cut: tuple[int, int, int, int] | None = None

    @property
    def identity(self) -> tuple[object, ...]:
        """What two uses of the same elements have in common."""
        return (self.key, self.cut)


@dataclass(frozen=True)
class Value:
    """A tensor of the source net.

    `shape` is the source's, at the batch that is traced. `axes` has for each axis of it the
    dimensions of the Paleo layer, slowest first: one, none if there is nothing but
    repetition, or for the axis of the batch what stands before and after it. `dims` are the
    layer's sizes from dimension 1 on. `moved` is the name of a transposition that the layer
    has not gone through yet. `layer` is None for a tensor that no layer holds so far.
    """

    shape: tuple[int, ...]
    axes: tuple[Group, ...]
    dims: tuple[int, ...]
    layer: str | None = None
    tensor: Tensor | None = None
    moved: str | None = None
    summed: bool = False
    #: How often the dimensions of the layer had been reordered when this was made.
    version: int = 0

    @property
    def batched(self) -> bool:
        """Whether it has a part for each sample."""
        return self.summed or self.batch_axis is not None

    @property
    def is_constant(self) -> bool:
        """Whether it is neither trained nor computed."""
        return self.tensor is not None and not self.tensor.trainable

    @property
    def batch_axis(self) -> int | None:
        """The axis that the batch is in, None if there is none."""
        return next((i for i, group in enumerate(self.axes) if BATCH in group), None)

    @property
    def natural(self) -> bool:
        """Whether the layer's dimensions are in the order of the source's axes."""
        order = [dim for group in self.axes for dim in group if dim != BATCH]
        return order == sorted(order)

    def axis(self, number: int) -> int:
        """Return an axis counted from 0; raises OperatorError if there is none."""
        rank = len(self.shape)
        if not -rank <= number < rank:
            raise OperatorError(f"there is no axis {number} in {format_shape(self.shape)}")
        return number % rank

    def owner(self, dim: int) -> int | None:
        """Return the axis that a dimension of the layer belongs to."""
        return next((i for i, group in enumerate(self.axes) if dim in group), None)

    def in_order(self) -> list[int]:
        """Return the axes in the order of the layer's dimensions.

        The batch's is among them if it has a dimension besides the batch. Axes without a
        dimension come before the next axis that has one.
        """
        placed: list[int] = []
        for dim in range(1, len(self.dims) + 1):
            axis = self.owner(dim)
            if axis is not None and axis not in placed:
                placed.append(axis)
        for axis in reversed(range(len(self.axes))):
            if not self.axes[axis] and axis not in placed:
                after = next((a for a in range(axis + 1, len(self.axes)) if a in placed), None)
                placed.insert(len(placed) if after is None else placed.index(after), axis)
        return placed

    def with_axes(self, axes: Sequence[Group], shape: Sequence[int]) -> Value:
        """Return the same tensor under other axes."""
        return replace(self, axes=tuple(axes), shape=tuple(shape))


def before_and_after(group: Group) -> tuple[Group, Group]:
    """Split the group of the batch's axis into what is before and after the batch."""
    at = group.index(BATCH)
    return group[:at], group[at + 1 :]


@dataclass(frozen=True)
class Regrouped:
    """How a reshape goes in Paleo: blocks of dimensions that are merged and split.

    Each block is (dimensions in the source's order, sizes that they become, the axes of the
    result that these are); `batch_axis` is that of the result.
    """

    blocks: tuple[Block, ...]
    batch_axis: int | None


def regroup(value: Value, shape: tuple[int, ...], batch: int) -> Regrouped:
    """Return how a value becomes a tensor of another shape of as many elements.

    `batch` is the traced batch. Raises OperatorError if it would be torn apart.
    """
    sizes = (batch, *value.dims)
    atoms = [(dim, sizes[dim]) for group in value.axes for dim in group]
    if value.batch_axis is None:
        return Regrouped(_blocks(atoms, [(size, i) for i, size in enumerate(shape)]), None)
    at = next(i for i, (dim, _) in enumerate(atoms) if dim == BATCH)
    ahead = prod(size for _, size in atoms[:at])
    axis, before, after = _find_batch(value, shape, ahead, batch)
    front = [(size, i) for i, size in enumerate(shape[:axis])]
    back = [(size, i) for i, size in enumerate(shape[axis + 1 :], start=axis + 1)]
    blocks = (
        *_blocks(atoms[:at], [*front, *([(before, axis)] if before > 1 else [])]),
        *_blocks(atoms[at + 1 :], [*([(after, axis)] if after > 1 else []), *back]),
    )
    return Regrouped(blocks, axis)


def _find_batch(
    value: Value, shape: tuple[int, ...], ahead: int, batch: int
) -> tuple[int, int, int]:
    """Return the axis of `shape` that the batch is in, and what is before and after it there.

    In memory, `ahead` repetitions stand outside of the batch, before and after the reshape.
    """
    found = []
    outer = 1
    for axis, size in enumerate(shape):
        if ahead % outer == 0:
            before = ahead // outer
            if size % (before * batch) == 0:
                after = size // (before * batch)
                beside = before * after
                # A batch of 1 fits in many places. Best is an axis of its own, then any but the
                # last, which has features, then where it was; else the first that fits.
                rank = (beside > 1, axis == len(shape) - 1, axis != value.batch_axis, beside)
                found.append((rank, axis, before, after))
        outer *= size
    if not found:
        raise OperatorError(
            f"{format_shape(value.shape)} to {format_shape(shape)} mixes the batch's samples"
        )
    _, axis, before, after = min(found)
    return axis, before, after


def _blocks(atoms: list[tuple[int, int]], targets: list[tuple[int, int]]) -> tuple[Block, ...]:
    """Match runs of (dimension, size) with runs of (size, axis) of equal products."""
    blocks = []
    i = j = 0
    while i < len(atoms) or j < len(targets):
        dims, sizes, axes = [], [], []
        have = want = 1
        if i < len(atoms):
            dims.append(atoms[i][0])
            have = atoms[i][1]
            i += 1
        if j < len(targets) and (have > 1 or not dims):
            sizes.append(targets[j][0])
            axes.append(targets[j][1])
            want = targets[j][0]
            j += 1
        while have != want:
            if have < want:
                if i == len(atoms):
                    raise OperatorError("a reshape that does not keep samples together")
                dims.append(atoms[i][0])
                have *= atoms[i][1]
                i += 1
            else:
                if j == len(targets):
                    raise OperatorError("a reshape that does not keep samples together")
                sizes.append(targets[j][0])
                axes.append(targets[j][1])
                want *= targets[j][0]
                j += 1
        blocks.append((tuple(dims), tuple(sizes), tuple(axes)))
    return tuple(blocks)
