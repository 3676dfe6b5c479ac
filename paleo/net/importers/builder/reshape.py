"""Operators that join, cut, reshape and move tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from math import prod

from paleo.core.tensor import format_shape
from paleo.net.importers.base import OperatorError
from paleo.net.importers.builder.broadcast import Aligner
from paleo.net.importers.builder.layers import Wanted, checked, held, make
from paleo.net.importers.builder.layout import BATCH, Group, Value, before_and_after, regroup


class Shaper(Aligner):
    """See the module."""

    # Joining and cutting

    def concat(self, name: str, values: Sequence[Value], axis: int) -> Value:
        """Return tensors joined along an axis."""
        first = values[0]
        at = first.axis(axis)
        rank = len(first.shape)
        for value in values:
            if len(value.shape) != rank or any(
                have != wanted and i != at
                for i, (have, wanted) in enumerate(zip(value.shape, first.shape, strict=True))
            ):
                both = f"{format_shape(first.shape)} and {format_shape(value.shape)}"
                raise OperatorError(f"its inputs do not fit along axis {at}: {both}")
        shape = list(first.shape)
        shape[at] = sum(value.shape[at] for value in values)
        if len(values) == 1:
            return first
        if all(value.is_constant for value in values):
            return self.constant(shape)
        batch = self._common_axis(values, rank)
        if at == batch:
            return self._concat_samples(name, values, at, shape)
        placed = [self.placed(self._unbatched(value, rank, batch)) for value in values]
        main = max(placed, key=lambda value: (value.batched, value.moved is None))
        needed = [i for i in range(rank) if any(v.shape[i] > 1 for v in placed) or i == at]
        items = self._items(placed, main, rank, batch, needed)
        sources = []
        for value in placed:
            now = self._beside(value, main)
            wanted = self._lead(now, rank, items)
            sizes = [
                now.shape[axis]
                if axis is not None and part == "whole"
                else (now.dims[dim - 1] if dim else 1)
                for (axis, part), dim in zip(items, wanted, strict=True)
            ]
            sources.append(self.arranged(now, wanted, sizes))
        dim = items.index((at, "whole")) + 1
        made = self.add(name, make("Concatenate", dim=None if dim == len(items) else dim), sources)
        moved = main.moved if sources[placed.index(main)] == main.layer else None
        return self.result(made, shape, self._axes_of(items, rank, batch), moved)

    def _concat_samples(
        self, name: str, values: Sequence[Value], axis: int, shape: Sequence[int]
    ) -> Value:
        """Join batches: each sample then has several parts, as a dimension of its own."""
        sources = []
        axes: list[Group] = []
        for value in values:
            x = self.placed(value)
            if not x.batched or x.axes[axis] != (BATCH,):
                raise OperatorError("it adds samples to the batch")
            order = [a for a in range(len(x.shape)) if a != axis]
            wanted: list[Wanted] = [None]
            axes = [()] * len(x.shape)
            axes[axis] = (1, BATCH)
            for a in order:
                dims = self._one(x, a)
                axes[a] = tuple(range(len(wanted) + 1, len(wanted) + 1 + len(dims)))
                wanted += dims
            sources.append(self.arranged(x, wanted))
        made = self.add(name, make("Concatenate", dim=1), sources)
        return self.result(made, shape, axes)

    def slice(self, name: str, x: Value, axis: int, start: int, size: int, step: int = 1) -> Value:
        """Return some elements along an axis; this costs nothing."""
        at = x.axis(axis)
        if start == 0 and step == 1 and size == x.shape[at]:
            return x
        if size < 1 or start < 0 or start + (size - 1) * step >= x.shape[at]:
            raise OperatorError(f"elements {start} to {start + size * step} of {x.shape[at]}")
        shape = [size if i == at else have for i, have in enumerate(x.shape)]
        x = self.current(x)
        if x.is_constant:
            return self.constant(shape)
        if not x.axes[at]:
            return x.with_axes(x.axes, shape)  # one of many repetitions
        if x.tensor is not None and x.tensor.cut is None and x == held(x.tensor, x.tensor.shape):
            tensor = replace(x.tensor, cut=(at, start, size, step))
            (dim,) = x.axes[at]
            dims = [size if i == dim else have for i, have in enumerate(x.dims, start=1)]
            return replace(x, tensor=tensor, shape=tuple(shape), dims=tuple(dims))
        x = self.placed(x)
        dim, begin, count = self._cut(x, at, start, size, step)
        if count == x.dims[dim - 1]:
            return x.with_axes(x.axes, shape)
        layer = make(
            "Slice", dim=-1 if dim == len(x.dims) else dim, begin=begin, size=count, step=step
        )
        made = self.add(name, layer, [x.source])
        return self.result(made, shape, x.axes, x.moved, x.summed)

    def _cut(self, x: Value, axis: int, start: int, size: int, step: int) -> tuple[int, int, int]:
        """Return the dimension that a slice is of, where it begins, and how much it takes."""
        if axis != x.batch_axis:
            (dim,) = x.axes[axis]
            return dim, start, size
        ahead, behind = before_and_after(x.axes[axis])
        inner = self.traced * prod(x.dims[dim - 1] for dim in behind)
        if step != 1 or not ahead or start % inner or size % inner:
            raise OperatorError("it takes some samples out of the batch")
        return ahead[0], start // inner, size // inner

    def split(self, names: Sequence[str], x: Value, axis: int, sizes: Sequence[int]) -> list[Value]:
        """Return consecutive parts along an axis."""
        starts = accumulate(sizes[:-1], initial=0)
        parts = zip(names, starts, sizes, strict=True)
        return [self.slice(name, x, axis, start, size) for name, start, size in parts]

    def select(self, name: str, x: Value, axis: int, index: int = 0) -> Value:
        """Return one element of an axis, which is dropped."""
        at = x.axis(axis)
        x = self.current(x)
        if x.layer is None or at == x.batch_axis or len(x.dims) < 2 or x.shape[at] == 1:
            return self.squeeze(name, self.slice(name, x, at, index % x.shape[at], 1), [at])
        keep = [axis for axis in range(len(x.shape)) if axis != at]
        shape = [x.shape[axis] for axis in keep]
        if not x.axes[at]:
            return x.with_axes([x.axes[axis] for axis in keep], shape)
        (dim,) = x.axes[at]
        layer = make("Slice", dim=dim, begin=index % x.shape[at], size=1, keep_dim=False)
        made = self.add(name, layer, [x.source])
        axes = [tuple(d - (d > dim) for d in x.axes[axis]) for axis in keep]
        return self.result(made, shape, axes, x.moved, x.summed)

    # Views

    def reshape(self, name: str, x: Value, shape: Sequence[int]) -> Value:
        """Return the same elements in another shape."""
        sizes = checked(shape)
        if sizes == x.shape:
            return x
        if prod(sizes) != prod(x.shape):
            raise OperatorError(f"{format_shape(x.shape)} cannot become {format_shape(sizes) or 1}")
        if x.is_constant:
            return self.constant(sizes)
        if x.tensor is not None and prod(x.dims) == prod(x.shape) and not x.moved:
            return held(x.tensor, sizes)
        for at, size in enumerate(x.shape):
            if size > 1 and not x.axes[at] and (axis := _same_axis(x.shape, at, sizes)) is not None:
                rest = [i for i in range(len(x.shape)) if i != at]
                once = x.with_axes([x.axes[i] for i in rest], [x.shape[i] for i in rest])
                once = self.reshape(name, once, (*sizes[:axis], *sizes[axis + 1 :]))
                return once.with_axes((*once.axes[:axis], (), *once.axes[axis:]), sizes)
        x = self._materialized(self.placed(x))
        x = self._untangled(x, [block[0] for block in regroup(x, sizes, self.traced)[0]])
        all_blocks, batch_axis = regroup(x, sizes, self.traced)
        # New axes of 1 need no dimension.
        blocks = [block for block in all_blocks if block[0]]
        ordered = self._keeps_order(x, [block[0] for block in blocks])
        if ordered:  # as they stand in the layer
            blocks.sort(key=lambda block: max(block[0]))
        dims: list[int] = []
        groups: list[Group] = [()] * len(sizes)
        before: Group = ()
        for block in blocks:
            for size, axis in zip(block[1], block[2], strict=True):
                dims.append(size)
                if axis == batch_axis and self._is_ahead(x, block[0]):
                    before += (len(dims),)
                else:
                    groups[axis] += (len(dims),)
        if batch_axis is not None:
            groups[batch_axis] = (*before, BATCH, *groups[batch_axis])
        if [size for size in dims if size > 1] == [size for size in x.dims if size > 1]:
            return self._renumbered(x, dims, groups, sizes)
        flat = len(dims) == 1 and ordered
        layer = make("Flatten") if flat else make("Reshape", output_shape=(-1, *(dims or [1])))
        made = self.add(name, layer, [x.source])
        result = self.result(made, sizes, groups, summed=x.summed)
        return result if result.natural else replace(result, moved=x.moved)

    def _is_ahead(self, x: Value, dims: Group) -> bool:
        """Tell whether dimensions stand before the batch in memory."""
        order = [dim for group in x.axes for dim in group]
        return order.index(dims[0]) < order.index(BATCH)

    @staticmethod
    def _renumbered(
        x: Value, dims: Sequence[int], groups: Sequence[Group], shape: Sequence[int]
    ) -> Value:
        """Return a reshape that only adds and drops dimensions of 1, as the same layer."""
        old = iter([i for i, size in enumerate(x.dims, start=1) if size > 1])
        to = {i: next(old) for i, size in enumerate(dims, start=1) if size > 1}
        axes = [tuple(to[d] if d else BATCH for d in g if d == BATCH or d in to) for g in groups]
        return x.with_axes(axes, shape)

    def _materialized(self, x: Value) -> Value:
        """Return a value whose repeated axes are truly repeated."""
        if all(x.axes[i] or size == 1 for i, size in enumerate(x.shape)):
            return x
        return self._with_order(x, x.in_order())

    def _keeps_order(self, x: Value, blocks: Sequence[Group]) -> bool:
        """Tell whether each block's dimensions stand together in the layer."""
        return all(
            not block
            or max(block) - min(block) + 1 - len(block)
            == sum(
                1
                for dim in range(min(block), max(block))
                if dim not in block and x.dims[dim - 1] == 1
            )
            for block in blocks
        )

    def _untangled(self, x: Value, blocks: Sequence[Group]) -> Value:
        """Return the value with a transposition carried out that the blocks cannot ignore."""
        if x.moved is None:
            return x
        large = [[dim for dim in block if x.dims[dim - 1] > 1] for block in blocks]
        if self._keeps_order(x, blocks) and all(block == sorted(block) for block in large):
            return x
        first = sorted((block for block in blocks if block), key=max)
        order = [dim for block in first for dim in block]
        source = self.arranged(x, order)
        to = {dim: i for i, dim in enumerate(order, start=1)} | {BATCH: BATCH}
        axes = [tuple(to[dim] for dim in group) for group in x.axes]
        result = self.result(source, x.shape, axes)
        return result if result.natural else replace(result, moved=x.moved)

    def flatten(self, name: str, x: Value, axis: int = 1, end_axis: int = -1) -> Value:
        """Return a tensor whose axes from `axis` to `end_axis` are one."""
        if not x.shape:
            return self.reshape(name, x, (1,))
        start, end = x.axis(axis) if axis < len(x.shape) else axis, x.axis(end_axis)
        inner = prod(x.shape[start : end + 1])
        return self.reshape(name, x, (*x.shape[:start], inner, *x.shape[end + 1 :]))

    def squeeze(self, name: str, x: Value, axes: Sequence[int]) -> Value:
        """Return the tensor without some axes of size 1."""
        gone = {x.axis(axis) for axis in axes}
        for axis in gone:
            if x.shape[axis] != 1:
                raise OperatorError(f"axis {axis} of {format_shape(x.shape)} is not 1")
        if x.batch_axis in gone:
            if x.axes[x.batch_axis or 0] != (BATCH,):
                raise OperatorError("it drops the batch")
            x = replace(x, summed=True)
        keep = [axis for axis in range(len(x.shape)) if axis not in gone]
        return x.with_axes([x.axes[axis] for axis in keep], [x.shape[axis] for axis in keep])

    def unsqueeze(self, name: str, x: Value, axes: Sequence[int]) -> Value:
        """Return the tensor with axes of size 1 put in; they are counted in the result."""
        rank = len(x.shape) + len(axes)
        new = {axis % rank for axis in axes}
        if len(new) < len(axes):
            raise OperatorError(f"axes {list(axes)} put in")
        own = iter(zip(x.axes, x.shape, strict=True))
        both = [((), 1) if axis in new else next(own) for axis in range(rank)]
        return x.with_axes([group for group, _ in both], [size for _, size in both])

    def transpose(self, name: str, x: Value, perm: Sequence[int], free: bool = False) -> Value:
        """Return the axes in another order.

        No element moves before somebody needs it; if `free`, none ever has to.
        """
        order = [x.axis(axis) for axis in perm]
        if sorted(order) != list(range(len(x.shape))):
            raise OperatorError(f"{list(perm)} is no order of {len(x.shape)} axes")
        if order == sorted(order):
            return x
        shape = [x.shape[axis] for axis in order]
        if x.is_constant:
            return self.constant(shape)
        turned = self.current(x).with_axes([self.current(x).axes[axis] for axis in order], shape)
        if turned.natural:
            return replace(turned, moved=None)
        return replace(turned, moved=x.moved if free else (x.moved or name))

    def turned(self, name: str, x: Value, free: bool = False) -> Value:
        """Return a matrix, or each of several, transposed; a vector as it is."""
        axes = list(range(len(x.shape)))
        axes[-2:] = axes[:-3:-1]
        return self.transpose(name, x, axes, free)

    def expand(self, name: str, x: Value, shape: Sequence[int]) -> Value:
        """Return axes of 1 repeated, as numpy.broadcast_to; they are once more read as they are."""
        sizes = checked(shape)
        if sizes == x.shape:
            return x
        if x.is_constant:
            return self.constant(sizes)
        missing = len(sizes) - len(x.shape)
        if missing < 0 or any(
            have not in (1, size) for have, size in zip(x.shape, sizes[missing:], strict=True)
        ):
            raise OperatorError(
                f"{format_shape(x.shape)} cannot be repeated to {format_shape(sizes)}"
            )
        axes: list[Group] = [()] * missing
        for group, have, size in zip(x.axes, x.shape, sizes[missing:], strict=True):
            if have == size:
                axes.append(group)
            elif BATCH in group:
                raise OperatorError("it repeats the samples of the batch")
            else:
                axes.append(())
        return x.with_axes(axes, sizes)

    # Moving elements

    def pad(self, name: str, x: Value, pads: Sequence[tuple[int, int]]) -> Value:
        """Return elements added at both ends of every axis; negative ones are cut off."""
        if not any(map(any, pads)):
            return x
        shape = [have + before + after for have, (before, after) in zip(x.shape, pads, strict=True)]
        if x.is_constant:
            return self.constant(shape)
        for axis, (before, after) in enumerate(pads):
            if before < 0 or after < 0:
                begin, end = max(-before, 0), max(-after, 0)
                x = self.slice(name, x, axis, begin, x.shape[axis] - begin - end)
        if all(before <= 0 and after <= 0 for before, after in pads):
            return x
        x = self._materialized(self.placed(x))
        if x.batch_axis is not None and any(size > 0 for size in pads[x.batch_axis]):
            raise OperatorError("it adds samples to the batch")
        wanted = x.in_order()
        if any(not x.axes[axis] for axis in wanted):
            x = self._with_order(x, wanted)
        margins = [(0, 0)] * len(x.dims)
        for axis, (before, after) in enumerate(pads):
            if axis != x.batch_axis:
                margins[x.axes[axis][0] - 1] = (max(before, 0), max(after, 0))
        made = self.add(name, make("Pad", margins=tuple(margins)), [x.source])
        return self.result(made, shape, x.axes, x.moved)

    def reduce(
        self, name: str, function: str, x: Value, axes: Sequence[int], keepdims: bool
    ) -> Value:
        """Return a sum, a mean, ... over some axes; samples of the batch are kept apart."""
        gone = sorted({x.axis(axis) for axis in axes})
        shape = [
            1 if axis in gone else size
            for axis, size in enumerate(x.shape)
            if keepdims or axis not in gone
        ]
        if x.is_constant:
            return self.constant(shape)
        x = self.placed(x)
        summed = x.summed or x.batch_axis in gone
        dims = [dim for axis in gone for dim in x.axes[axis] if dim != BATCH]
        left = [axis for axis in range(len(x.shape)) if keepdims or axis not in gone]

        def axes_after(to: dict[int, int]) -> list[Group]:
            """Return the axes that are left, with their dimensions' new numbers."""
            return [
                () if axis in gone else tuple(to[dim] if dim else BATCH for dim in x.axes[axis])
                for axis in left
            ]

        every = {dim: dim for dim in range(1, len(x.dims) + 1)}
        if all(x.dims[dim - 1] == 1 for dim in dims):
            return replace(x.with_axes(axes_after(every), shape), summed=summed)
        if self._is_global(function, x, gone, dims):
            kind = "average" if function == "mean" else "maximum"
            made = self.add(name, make("GlobalPooling", function=kind), [x.source])
            return self.result(made, shape, axes_after(every), summed=summed)
        made = self.add(
            name, make("Reduce", function=function, dims=tuple(sorted(dims))), [x.source]
        )
        kept = [dim for dim in every if dim not in dims]
        to = {dim: i for i, dim in enumerate(kept, start=1)}
        return self.result(made, shape, axes_after(to), x.moved, summed)

    @staticmethod
    def _is_global(function: str, x: Value, gone: Sequence[int], dims: Sequence[int]) -> bool:
        """Tell whether it pools an image whole: all but the channels, which are last."""
        return (
            function in ("mean", "maximum")
            and len(x.dims) in (3, 4)
            and list(gone) == list(range(2, len(x.shape)))
            and sorted(dims) == list(range(1, len(x.dims)))
        )

    def resize(self, name: str, x: Value, shape: Sequence[int], mode: str) -> Value:
        """Return an image brought to another size by interpolation."""
        sizes = checked(shape)
        if sizes == x.shape:
            return x
        if x.is_constant:
            return self.constant(sizes)
        if sizes[:2] != x.shape[:2] or len(sizes) != len(x.shape):
            raise OperatorError(f"{format_shape(x.shape)} resized to {format_shape(sizes)}")
        x = self._image(x, len(sizes) - 2)
        made = self.add(name, make("Resize", size=sizes[2:], mode=mode), [x.source])
        return self.result(made, sizes, x.axes)

    def rearrange(self, name: str, x: Value, shape: Sequence[int] | None = None) -> Value:
        """Return the elements at other places, maybe in another shape: one pass over memory."""
        sizes = x.shape if shape is None else checked(shape)
        if x.is_constant:
            return self.constant(sizes)
        x = self._materialized(self.placed(x))
        if sizes == x.shape:
            made = self.add(name, make("Rearrange"), [x.source])
            return self.result(made, sizes, x.axes, x.moved, x.summed)
        axes, dims = self._fresh(sizes, x)
        kind = "Rearrange" if prod(dims) == prod(x.dims) else "Gather"
        made = self.add(name, make(kind, output_shape=(-1, *(dims or [1]))), [x.source])
        return self.result(made, sizes, axes, summed=x.summed)

    def _fresh(self, sizes: Sequence[int], x: Value) -> tuple[list[Group], list[int]]:
        """Return axes and dimensions of a new tensor with the batch where `x` has it."""
        at = x.batch_axis
        if at is not None and (at >= len(sizes) or sizes[at] % self.traced):
            raise OperatorError("it moves elements from one sample of the batch to another")
        order = list(range(len(sizes)))
        if len(sizes) == len(x.shape) and not x.natural and x.moved is None:
            order = x.in_order()
        if at is not None:  # what stands beside the batch comes first
            order = [at, *(axis for axis in order if axis != at)]
        return self._laid_out(sizes, at, order)

    def _laid_out(
        self, sizes: Sequence[int], batch: int | None, order: Sequence[int], ahead: int = 1
    ) -> tuple[list[Group], list[int]]:
        """Return axes and dimensions of a new tensor whose axes are in this order in memory.

        So many parts of each sample stand before the batch in its axis, the others behind it.
        """
        axes: list[Group] = [()] * len(sizes)
        dims: list[int] = []
        for axis in order:
            size = sizes[axis]
            if axis == batch:
                if ahead > 1:
                    dims.append(ahead)
                    axes[axis] = (len(dims),)
                axes[axis] = (*axes[axis], BATCH)
                size //= self.traced * ahead
                if size == 1:
                    continue
            dims.append(size)
            axes[axis] = (*axes[axis], len(dims))
        return axes, dims

    def gather(self, name: str, x: Value, indices: Value, axis: int) -> Value:
        """Return elements of an axis picked by indices, whose axes take its place."""
        at = x.axis(axis)
        shape = (*x.shape[:at], *indices.shape, *x.shape[at + 1 :])
        if x.is_constant and not indices.batched:
            return self.constant(shape)
        x = self._materialized(self.placed(x))
        parents = [x.source]
        if indices.batched:
            indices = self.placed(indices)
            parents.append(indices.source)
        if x.batched and not self.one_sample and x.batch_axis in (at, None):
            # Where each sample picks as many, it is no matter whose they are.
            if x.batch_axis is None or indices.batch_axis is None:
                raise OperatorError("it picks samples out of the batch")
        elif x.batch_axis is not None and indices.batch_axis is not None:
            raise OperatorError("it picks for each sample from all samples")
        place, ahead = None, 1
        if indices.batch_axis is not None:
            place = at + indices.batch_axis
            before, _ = before_and_after(indices.axes[indices.batch_axis])
            ahead = prod(indices.dims[dim - 1] for dim in before)
        elif x.batch_axis is not None:
            place = x.batch_axis if x.batch_axis < at else x.batch_axis + len(indices.shape) - 1
        axes, dims = self._laid_out(shape, place, range(len(shape)), ahead)
        made = self.add(name, make("Gather", output_shape=(-1, *(dims or [1]))), parents)
        return self.result(made, shape, axes)


def _same_axis(shape: Sequence[int], at: int, sizes: Sequence[int]) -> int | None:
    """Return which axis a reshape leaves as it is, so that repetition stays what it is."""
    ahead = prod(shape[:at])
    for axis, size in enumerate(sizes):
        if size == shape[at] and prod(sizes[:axis]) == ahead:
            return axis
    return None
