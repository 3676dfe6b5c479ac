"""How the inputs of a layer are brought into one order of dimensions.

The result of an operator on several values has the dimensions of the largest of them, in
its order, and what that one lacks. Every other input is arranged to match.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from paleo.core.tensor import format_shape
from paleo.net.importers.base import OperatorError
from paleo.net.importers.builder.layers import Placer, Wanted, held
from paleo.net.importers.builder.layout import BATCH, Group, Value, before_and_after
from paleo.net.layers import Layer

#: A dimension of an aligned layer: the axis that it belongs to (counted in the result), and
#: which part of that axis it is; None for a dimension of 1 that no axis has.
Item = tuple[int | None, str]


class Aligner(Placer):
    """See the module."""

    @staticmethod
    def _one(value: Value, axis: int) -> list[Wanted]:
        """Return the dimensions of an axis, a new one of 1 if it has none."""
        return [dim for dim in value.axes[axis] if dim != BATCH] or [None]

    def _with_order(self, x: Value, order: Sequence[int]) -> Value:
        """Return the value in a layer that has the axes in this order.

        What stands beside the batch in its axis comes first, unless that axis is in `order`.
        """
        axes = list(order)
        at = x.batch_axis
        if at is not None and at not in axes:
            axes.insert(0, at)
        wanted: list[Wanted] = []
        sizes: list[int] = []
        groups: list[Group] = [()] * len(x.shape)
        for axis in axes:
            for dim in x.axes[axis] or (None,):
                if dim == BATCH:
                    groups[axis] += (BATCH,)
                    continue
                wanted.append(dim)
                sizes.append(x.shape[axis] if dim is None else x.dims[dim - 1])
                groups[axis] += (len(wanted),)
        repeated = any(size > 1 and dim is None for size, dim in zip(sizes, wanted, strict=True))
        if not wanted or wanted == list(range(1, len(x.dims) + 1)):
            return x
        source = self.arranged(x, wanted, sizes if repeated else None)
        placed = self.result(source, x.shape, groups)
        return placed if placed.natural else replace(placed, moved=x.moved)

    def in_order(self, x: Value) -> Value:
        """Return the value with its elements in the order of its axes: transpositions are done."""
        return x if x.moved is None else self._with_order(self.placed(x), range(len(x.shape)))

    def _image(self, x: Value, rank: int | None = None) -> Value:
        """Return the value in a layer with channels, axis 1, last."""
        x = self.placed(x)
        if rank is None:
            rank = len(x.shape) - 2
        if len(x.shape) != rank + 2 or not 0 <= rank <= 3:
            wanted = "x".join("NC" + "DHW"[3 - rank :]) if rank else "NxC"
            raise OperatorError(f"its input must be {wanted}, got {format_shape(x.shape)}")
        # Without a batch, what is first stands before the image.
        ahead = [0] if x.batch_axis is None and (x.axes[0] or x.shape[0] > 1) else []
        return self._with_order(x, [*ahead, *range(2, rank + 2), 1])

    def _common_axis(self, values: Sequence[Value], rank: int) -> int | None:
        """Return the axis of the result that has the batch; raises OperatorError if they differ."""
        found = {
            value.batch_axis + rank - len(value.shape)
            for value in values
            if value.batch_axis is not None
        }
        if len(found) > 1:
            raise OperatorError("it puts samples of the batch side by side with others")
        return next(iter(found), None)

    @staticmethod
    def _parts(values: Sequence[Value]) -> tuple[bool, bool]:
        """Tell whether anything stands before and after the batch in its axis."""
        groups = [group for value in values for group in value.axes if BATCH in group]
        parts = [before_and_after(group) for group in groups]
        return any(ahead for ahead, _ in parts), any(behind for _, behind in parts)

    def _front(self, values: Sequence[Value], batch: int | None, until: int) -> list[Item]:
        """Return the dimensions of the first axes in their own order, for all values."""
        items: list[Item] = []
        for axis in range(until):
            if axis == batch:
                before, after = self._parts(values)
                items += [(axis, "before")] * before + [(axis, "after")] * after
            else:
                items.append((axis, "whole"))
        return items

    def _items(
        self,
        values: Sequence[Value],
        main: Value,
        rank: int,
        batch: int | None,
        needed: Sequence[int],
    ) -> list[Item]:
        """Return the dimensions of a result: those of `main`, and what it lacks."""
        shift = rank - len(main.shape)
        items: list[Item] = []
        for dim in range(1, len(main.dims) + 1):
            axis = main.owner(dim)
            if axis is None:
                items.append((None, "hidden"))
            elif axis == main.batch_axis:
                ahead, _ = before_and_after(main.axes[axis])
                items.append((axis + shift, "before" if dim in ahead else "after"))
            else:
                items.append((axis + shift, "whole"))
        known = {axis for axis, _ in items}
        lacking = [axis for axis in needed if axis not in known and axis != batch]
        if lacking:
            items = [item for item in items if item[0] is not None]
        for axis in lacking:
            behind = [i for i, (other, _) in enumerate(items) if (other or 0) > axis]
            items.insert(behind[0] if behind else len(items), (axis, "whole"))
        if batch is not None:
            before, after = self._parts(values)
            for part, there in (("after", after), ("before", before)):
                if there and (batch, part) not in items:
                    items.insert(0, (batch, part))
        return items

    @staticmethod
    def _axes_of(items: Sequence[Item], rank: int, batch: int | None) -> list[Group]:
        """Return the axes of a result that has these dimensions."""

        def numbers(axis: int, part: str) -> Group:
            return tuple(i for i, item in enumerate(items, start=1) if item == (axis, part))

        return [
            (*numbers(axis, "before"), BATCH, *numbers(axis, "after"))
            if axis == batch
            else numbers(axis, "whole")
            for axis in range(rank)
        ]

    def _lead(self, value: Value, rank: int, items: Sequence[Item]) -> list[Wanted]:
        """Return the dimensions of a value that the items ask for; None where it has none."""
        shift = rank - len(value.shape)
        found: list[Wanted] = []
        hidden = [dim for dim in range(1, len(value.dims) + 1) if value.owner(dim) is None]
        for axis, part in items:
            own = -1 if axis is None else axis - shift
            dims = value.axes[own] if own >= 0 else ()
            if part == "hidden":
                found.append(hidden.pop(0) if hidden else None)
            elif part == "whole":
                found.append(next((dim for dim in dims if dim != BATCH), None))
            elif BATCH in dims:
                ahead, behind = before_and_after(dims)
                found.append(next(iter(ahead if part == "before" else behind), None))
            else:
                found.append(None)
        return found

    def _unbatched(self, value: Value, rank: int, batch: int | None) -> Value:
        """Return a value without the repetition for each sample.

        Exporters write what is repeated into the file at the batch that they see. Raises
        OperatorError if it cannot be that.
        """
        own = -1 if batch is None else batch - rank + len(value.shape)
        if value.batched or own < 0 or value.shape[own] == 1 or not value.axes[own]:
            return value
        if value.tensor is None or value.shape[own] != self.traced:
            raise OperatorError("parameters of its own for each sample of the batch")
        shape = tuple(1 if axis == own else size for axis, size in enumerate(value.shape))
        if value.is_constant:
            return self.constant(shape)
        return held(replace(value.tensor, shape=shape), shape)

    def _beside(self, value: Value, main: Value) -> Value:
        """Return a value that is to be brought into the order of another.

        If that one is transposed, the order is not a matter of layout: elements move.
        """
        now = self.current(value)
        return replace(now, moved=now.moved or main.moved)

    def _join(
        self, name: str, layer: Layer, values: Sequence[Value], shape: tuple[int, ...]
    ) -> Value:
        """Add a layer of several values that are compared from the last axis."""
        rank = len(shape)
        batch = self._common_axis(values, rank)
        placed = [self.placed(self._unbatched(value, rank, batch)) for value in values]
        main = max(placed, key=lambda v: (v.batched, prod(v.dims), v.moved is None, -len(v.dims)))
        needed = [
            axis
            for axis in range(rank)
            if any(
                (own := axis - rank + len(v.shape)) >= 0 and v.axes[own] and v.shape[own] > 1
                for v in placed
            )
        ]
        items = self._items(placed, main, rank, batch, needed)
        sources = []
        for value in placed:
            now = self._beside(value, main)
            wanted = self._lead(now, rank, items)
            # Ones at the front go without saying: the largest has all dimensions.
            while value is not main and len(wanted) > 1 and wanted[0] is None:
                wanted = wanted[1:]
            sources.append(self.arranged(now, wanted))
        made = self.add(name, layer, sources)
        axes = self._axes_of(items, rank, batch)
        moved = main.moved if sources[placed.index(main)] == main.layer else None
        return self.result(made, shape, axes, moved, any(value.summed for value in placed))
