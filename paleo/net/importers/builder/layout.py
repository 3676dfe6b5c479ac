"""Where the dimensions of another framework's tensors are in Paleo's.

Other frameworks write images as N x C x H x W, sequences as T x N x D, the heads of
attention as (N heads) x T x d. Paleo's tensors have the batch first and channels last. A
`Value` is a tensor of the source and says which dimensions of a Paleo layer make up each of
its axes. So a transposition that only goes from one layout to the other is nothing in
Paleo, and a true one is found when somebody needs the elements in another order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from math import prod

from paleo.core.frozen import dataclass
from paleo.core.tensor import format_shape
from paleo.net.importers.base import OperatorError

#: The number of the batch among the dimensions of a Paleo layer.
BATCH = 0

Group = tuple[int, ...]
Block = tuple[Group, tuple[int, ...], tuple[int, ...]]


def axis_in(shape: tuple[int, ...], number: int, key: str | None = None) -> int:
    """Return an axis counted from 0; raises OperatorError, of this key, if there is none."""
    rank = len(shape)
    if not -rank <= number < rank:
        raise OperatorError(f"there is no axis {number} in {format_shape(shape) or 1}", key)
    return number % rank


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
    def source(self) -> str:
        """The layer that gives it, which must have been made."""
        assert self.layer is not None
        return self.layer

    @property
    def batched(self) -> bool:
        """Whether it has a part for each sample."""
        return self.summed or self.batch_axis is not None

    @property
    def is_constant(self) -> bool:
        """Whether it is neither trained nor computed."""
        return self.tensor is not None and not self.tensor.trainable

    @property
    def is_parameter(self) -> bool:
        """Whether it is a tensor of parameters itself, or a part of one, of which none repeats."""
        is_trained = self.tensor is not None and self.tensor.trainable
        return is_trained and prod(self.dims) == prod(self.shape)

    @property
    def batch_axis(self) -> int | None:
        """The axis that the batch is in, None if there is none."""
        return next((i for i, group in enumerate(self.axes) if BATCH in group), None)

    @property
    def natural(self) -> bool:
        """Whether the layer's dimensions are in the order of the source's axes."""
        order = [dim for group in self.axes for dim in group if dim != BATCH]
        return order == sorted(order)

    def axis(self, number: int, key: str = "axis") -> int:
        """Return an axis counted from 0; raises OperatorError, of this key, if there is none."""
        return axis_in(self.shape, number, key)

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


#: A parameter that a layer may have or not.
Weight = Value | None
Pads = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Windows:
    """How windows step over an image, by spatial axis, and its channels' groups.

    `pads` has what is added before and after each axis.
    """

    strides: Sequence[int]
    pads: Pads
    dilations: Sequence[int] | None = None
    groups: int = 1

    def spans(self, taps: Sequence[int]) -> list[int]:
        """Return how many elements windows of so many taps reach over."""
        steps = self.dilations or [1] * len(taps)
        return [(count - 1) * step + 1 for count, step in zip(taps, steps, strict=True)]

    def reach(self, sizes: Sequence[int], taps: Sequence[int]) -> list[int]:
        """Return how many elements so many windows of so many taps reach over, padding too."""
        axes = zip(sizes, self.strides, self.spans(taps), strict=True)
        return [(size - 1) * stride + span for size, stride, span in axes]


def symmetric(pads: Sequence[int]) -> Pads:
    """Return the pads of axes that have as much before as after."""
    return [(pad, pad) for pad in pads]


def before_and_after(group: Group) -> tuple[Group, Group]:
    """Split the group of the batch's axis into what is before and after the batch."""
    at = group.index(BATCH)
    return group[:at], group[at + 1 :]


def regroup(
    value: Value, shape: tuple[int, ...], batch: int
) -> tuple[tuple[Block, ...], int | None]:
    """Return how a value becomes a tensor of another shape of as many elements.

    These are blocks of dimensions that are merged and split, each (dimensions in the source's
    order, sizes that they become, the axes of the result that these are), and the axis of the
    batch. `batch` is the traced batch. Raises OperatorError if the value would be torn apart.
    """
    sizes = (batch, *value.dims)
    atoms = [(dim, sizes[dim]) for group in value.axes for dim in group]
    if value.batch_axis is None:
        return _blocks(atoms, [(size, i) for i, size in enumerate(shape)]), None
    at = next(i for i, (dim, _) in enumerate(atoms) if dim == BATCH)
    ahead = prod(size for _, size in atoms[:at])
    axis, before, after = _find_batch(value, shape, ahead, batch)
    targets = [(size, i) for i, size in enumerate(shape)]
    front = [*targets[:axis], *([(before, axis)] if before > 1 else [])]
    back = [*([(after, axis)] if after > 1 else []), *targets[axis + 1 :]]
    return (*_blocks(atoms[:at], front), *_blocks(atoms[at + 1 :], back)), axis


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
    left, right = deque(atoms), deque(targets)
    while left or right:
        merged = [left.popleft()] if left else []
        split = [right.popleft()] if right and (not merged or merged[0][1] > 1) else []
        while True:
            have, want = prod(size for _, size in merged), prod(size for size, _ in split)
            if have == want:
                break
            waiting, run = (left, merged) if have < want else (right, split)
            if not waiting:
                raise OperatorError("a reshape that does not keep samples together")
            run.append(waiting.popleft())
        dims = tuple(dim for dim, _ in merged)
        blocks.append((dims, tuple(size for size, _ in split), tuple(axis for _, axis in split)))
    return tuple(blocks)
