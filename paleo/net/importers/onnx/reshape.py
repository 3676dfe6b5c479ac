"""ONNX operators that move data, or only say of it that it has another shape."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from paleo.net.importers.base import OperatorError
from paleo.net.importers.builder.layout import Value, axis_in
from paleo.net.importers.onnx.node import (
    INT64,
    Node,
    Output,
    Result,
    Tensor,
    operator,
)

#: Operators that pass over what they read once and write what they give, whatever the order.
_MOVES = """
    AffineGrid CenterCropPad Col2Im CumProd CumSum DepthToSpace GatherElements GridSample
    MaxRoiPool MaxUnpool OneHot ReverseSequence RoiAlign RotaryEmbedding Scatter ScatterElements
    ScatterND SpaceToDepth TensorScatter TopK Trilu"""


@operator(*_MOVES.split())
def _one_pass(node: Node) -> Result:
    """What is read beside the data is small, or written as part of it."""
    main = next(
        (
            index
            for index, each in enumerate(node.inputs)
            if each is not None and each.made is not None and each.made.batched
        ),
        0,
    )
    node.keep(*(index for index in range(len(node.inputs)) if index != main))
    made = node.builder.rearrange(node.name, node.value(main), node.output_shape())
    # A TopK's indices are as many as its values.
    return [made] * len(node.proto.output)


@operator("Reshape", "Flatten")
def _reshape(node: Node) -> Result:
    return node.builder.reshape(node.name, node.value(), node.output_shape())


@operator("Squeeze")
def _squeeze(node: Node) -> Result:
    axes = node.axes()
    if axes is None:
        axes = [axis for axis, size in enumerate(node.shape()) if size == 1]
    return node.builder.squeeze(node.name, node.value(), axes) if axes else node.value()


@operator("Unsqueeze")
def _unsqueeze(node: Node) -> Result:
    return node.builder.unsqueeze(node.name, node.value(), node.axes() or [])


@operator("Transpose")
def _transpose(node: Node) -> Result:
    rank = len(node.shape())
    perm = node.integers("perm", list(range(rank))[::-1])
    if sorted(perm) != list(range(rank)):
        raise OperatorError(f"a transposition of {rank} dimensions by {perm}")
    return node.builder.transpose(node.name, node.value(), perm)


@operator("Concat")
def _concat(node: Node) -> Result:
    parts = [each for each in node.inputs if each is not None and each.size]
    values = [each.value(node.builder) for each in parts]
    if not values:
        raise OperatorError("a Concat of nothing")
    return node.builder.concat(node.name, values, node.integer("axis", 1))


@operator("Split")
def _split(node: Node) -> Result:
    axis = axis_in(node.shape(), node.integer("axis", 0))
    sizes = [node.output_shape(index)[axis] for index in range(len(node.proto.output))]
    if sum(sizes) != node.shape()[axis]:
        raise OperatorError(f"{node.shape()[axis]} in parts of {', '.join(map(str, sizes))}")
    parts: list[Output] = [
        Tensor(node.output_shape(index), node.tensor(0).dtype) for index in range(len(sizes))
    ]
    kept = [index for index, size in enumerate(sizes) if size]  # of nothing, there is no layer
    names = [f"{node.name}_{index}" for index in kept]
    made = node.builder.split(names, node.value(), axis, [sizes[index] for index in kept])
    for index, value in zip(kept, made, strict=True):
        parts[index] = value
    return parts


def _slice_bounds(
    shape: tuple[int, ...], lists: Sequence[Sequence[int] | None]
) -> list[tuple[int, int, int, int]]:
    """Return (axis, start, size, step) of every axis that a Slice cuts.

    `lists` has its starts, ends, axes and steps; None for what it does not say.
    """
    starts, ends, axes, steps = lists
    if starts is None or ends is None:
        raise ValueError("it has no starts or no ends")
    if axes is None:
        axes = range(len(starts))
    if steps is None:
        steps = [1] * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise ValueError("starts, ends, axes and steps differ in length")
    cuts = []
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        at = axis_in(shape, axis)
        if step == 0:
            raise ValueError("a step is 0")
        index = range(*slice(start, end, step).indices(shape[at]))
        # For a negative step, Python takes an end below -size for "down to the first".
        cuts.append((at, index.start, len(index), step))
    return cuts


@operator("Slice")
def _slice(node: Node) -> Result:
    lists: list[Any]
    if node.version >= 10:
        lists = [
            node.numbers(index, f"its {part}") if node.has(index) else None
            for index, part in enumerate(("starts", "ends", "axes", "steps"), start=1)
        ]
    else:
        lists = [*(node.integers(part, None) for part in ("starts", "ends", "axes")), None]
    shape = node.shape()
    try:
        cuts = _slice_bounds(shape, lists)
    except (TypeError, ValueError) as error:
        raise OperatorError(f"a Slice of which {error}") from None
    if any(size == 0 for _, _, size, _ in cuts):
        # Exporters write rolls by nothing so; the Concat behind leaves it out.
        return Tensor(node.output_shape(), node.inferred[0][1] or 1)
    if any(step < 0 and size > 1 for _, _, size, step in cuts):
        return node.builder.rearrange(node.name, node.value(), node.output_shape())
    x = node.value()
    for axis, start, size, step in cuts:
        if size != shape[axis]:
            x = node.builder.slice(node.name, x, axis, start, size, max(step, 1))
    return x


@operator("Gather")
def _gather(node: Node) -> Result:
    data, indices = node.tensor(0), node.tensor(1)
    axis = axis_in(data.shape, node.integer("axis", 0))
    if indices.size == 1 and len(indices.shape) < 2 and indices.made is None:
        numbers = indices.numbers()
        index = 0 if numbers is None else int(numbers.reshape(-1)[0])
        if not -data.shape[axis] <= index < data.shape[axis]:
            raise OperatorError(f"a Gather of element {index} of {data.shape[axis]}")
        index %= data.shape[axis]
        if not indices.shape:
            return node.builder.select(node.name, node.value(), axis, index)
        return node.builder.slice(node.name, node.value(), axis, index, 1)
    numbers = indices.numbers() if indices.made is None else None
    if numbers is not None and np.array_equal(numbers.reshape(-1), np.arange(data.shape[axis])):
        # All elements in order: exporters write views that they do not know by their strides so.
        shape = (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :])
        return node.builder.reshape(node.name, node.value(0), shape)
    if axis == 0 and len(data.shape) == 2 and node.is_weight(0):
        table = node.weight(0) if data.trainable else node.value(0)
        return node.builder.embedding(node.name, node.value(1), table)
    return node.builder.gather(node.name, node.value(0), node.value(1), axis)


@operator("GatherND")
def _gather_nd(node: Node) -> Result:
    """Return rows picked by several indices each: by one, over their axes taken together."""
    data, indices = node.tensor(0), node.tensor(1)
    index = node.value(1)
    picks = index.batched and not node.integer("batch_dims", 0)
    if not picks or (data.made is not None and data.made.batch_axis not in (None, 0)):
        return _one_pass(node)
    count = indices.shape[-1]
    x = node.weight(0) if data.trainable else node.value(0)
    if count > 1:
        merged = (prod(data.shape[:count]), *data.shape[count:])
        x = node.builder.reshape(f"{node.name}_rows", x, merged)
    index = node.builder.select(f"{node.name}_index", index, len(indices.shape) - 1, 0)
    return node.builder.gather(node.name, x, index, 0)


@operator("Expand")
def _expand(node: Node) -> Result:
    return node.builder.expand(node.name, node.value(), node.output_shape())


@operator("Tile")
def _tile(node: Node) -> Result:
    before, after = node.shape(), node.output_shape()
    if all(old in (1, new) for old, new in zip(before, after, strict=True)):
        return node.builder.expand(node.name, node.value(), after)
    return node.builder.rearrange(node.name, node.value(), after)


@operator("Pad")
def _pad(node: Node) -> Result:
    rank = len(node.shape())
    if node.version < 11:
        amounts = node.integers("pads", [])
    else:
        amounts = [int(each) for each in node.numbers(1, "its pads")]
    axes = list(range(rank))
    if node.has(3):
        axes = [int(axis) % rank for axis in node.numbers(3, "its axes")]
    if len(amounts) != 2 * len(axes):
        raise OperatorError(f"a Pad of {len(axes)} axes by {amounts}")
    pads = [(0, 0)] * rank
    for position, axis in enumerate(axes):
        pads[axis] = (amounts[position], amounts[position + len(axes)])
    return node.builder.pad(node.name, node.value(), pads)


@operator("Resize", "Upsample")
def _resize(node: Node) -> Result:
    modes = {"nearest": "nearest", "linear": "linear", "bilinear": "linear", "cubic": "cubic"}
    mode = node.text("mode", "nearest")
    if mode not in modes:
        raise OperatorError(f'{node.op} by "{mode}"')
    return node.builder.resize(node.name, node.value(), node.output_shape(), modes[mode])


@operator("ConstantOfShape", "EyeLike", "Range")
def _filled(node: Node) -> Result:
    """Return a constant; its shape is known only where its inputs are."""
    return Tensor(node.output_shape(), node.inferred[0][1] or 1)


@operator("DFT", "STFT")
def _fourier(node: Node) -> Result:
    """Return a transform; its arithmetic is no product."""
    if node.op == "DFT":
        axis = node.integer("axis", 1 if node.version < 20 else -2)
        if node.has(2):
            axis = int(node.numbers(2, "its axis")[0])
        if axis_in(node.shape(), axis) == node.value().batch_axis:
            raise OperatorError("it transforms across the samples of the batch")
    node.builder.note("a Fourier transform is a pass over memory for each axis, without FLOPs")
    return node.builder.rearrange(node.name, node.value(), node.output_shape())


# ---- As many as data say -----------------------------------------------------------------------


def _bounded(node: Node, most: int, axis: int = 0) -> int:
    """Return how long an axis of the output is: as the file says, or as it can be at most.

    The net then says that all are counted.
    """
    declared = node.inferred[0][0]
    if declared is not None and len(declared) > axis:
        return declared[axis]
    node.builder.note(
        f"{node.name} gives as many elements as data say, at most {most:,}: all of them are counted"
    )
    return most


@operator("Compress")
def _compress(node: Node) -> Result:
    axis, shape = node.integer("axis", None), node.shape()
    x = node.value()
    if axis is None:
        axis, shape = 0, (node.tensor(0).size,)
        x = node.builder.reshape(f"{node.name}_flat", x, shape)
    at = axis_in(shape, axis)
    condition = node.tensor(1).numbers() if node.tensor(1).is_constant else None
    if condition is not None:
        count = int(np.count_nonzero(condition.reshape(-1)[: shape[at]]))
    else:
        count = _bounded(node, shape[at], at)
    given = (*shape[:at], count, *shape[at + 1 :])
    return node.builder.rearrange(node.name, x, given) if count else Tensor(given)


@operator("NonZero")
def _non_zero(node: Node) -> Result:
    count = _bounded(node, node.tensor(0).size, 1)
    return node.builder.rearrange(node.name, node.value(), (max(len(node.shape()), 1), count))


@operator("Unique")
def _unique(node: Node) -> Result:
    axis, shape, x = node.integer("axis", None), node.shape(), node.value()
    if axis is None:
        axis, shape = 0, (node.tensor(0).size,)
        x = node.builder.reshape(f"{node.name}_flat", x, shape)
    at = axis_in(shape, axis)
    count = _bounded(node, shape[at], at)
    made = node.builder.rearrange(node.name, x, (*shape[:at], count, *shape[at + 1 :]))
    counts = [Tensor((size,), INT64) for size in (count, shape[at], count)]
    return [made, *counts]


@operator("NonMaxSuppression")
def _suppression(node: Node) -> Result:
    """Return a row for each box that is kept: its image, its class and its number."""
    (_, boxes, _), (_, classes, _) = node.shape_of(0, 3), node.shape_of(1, 3)
    most = int(node.numbers(2, "how many boxes it keeps")[0]) if node.has(2) else 0
    most = classes * min(most, boxes)
    if most < 1:
        raise OperatorError("it keeps no boxes")
    images, declared = node.builder.traced, node.inferred[0][0]
    if declared is not None and declared[0] % images == 0:
        count = declared[0] // images
    else:
        count = min(most, node.context.proposals or most)
        node.builder.note(
            f"{node.name} gives as many boxes as data say, at most {most:,} of an image: {count:,} "
            "are counted, and --proposals says how many"
        )
    return node.builder.proposals(
        node.name, [node.value(0), node.value(1)], count, num_values=3, num_compared=boxes
    )


def merge(node: Node, name: str, x: Value, heads: int) -> Value:
    """Return N x T x (heads d) of N x heads x T x d."""
    n, _, t, d = x.shape
    turned = node.builder.transpose(name, x, [0, 2, 1, 3])
    return node.builder.reshape(name, turned, (n, t, heads * d))
