"""ATen operators that give tensors other shapes, and that take and move their elements.

See `operators.py`, whose table these join.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from paleo.net.importers.base import OperatorError
from paleo.net.importers.pytorch.operators import (
    Call,
    Empty,
    Shape,
    axes_of,
    elementwise,
    once,
    operator,
    spatial,
)
from paleo.net.importers.pytorch.regions import first_of_all

__all__: list[str] = []

# ---- Views -------------------------------------------------------------------------------------


@operator("view", "reshape", "_unsafe_view", "view_as", "reshape_as", "unflatten", "_reshape_alias",
          "view_copy", "ravel", "flatten")  # fmt: skip
def _reshape(call: Call) -> Any:
    return call.builder.reshape(call.name, call["self"], call.shape)


@operator("squeeze", "squeeze_copy")
def _squeeze(call: Call) -> Any:
    x = call["self"]
    axes = [i for i in axes_of(call.get("dim"), len(x.shape)) if x.shape[i] == 1]
    return call.builder.squeeze(call.name, x, axes) if axes else x


@operator("unsqueeze", "unsqueeze_copy")
def _unsqueeze(call: Call) -> Any:
    return call.builder.unsqueeze(call.name, call["self"], [call["dim"] % len(call.shape)])


def order_of(call: Call, rank: int) -> list[int]:
    """Return which axis of what it reads each axis is of what a transposition gives."""
    axes = list(range(rank))
    if "dims" in call.arguments:
        return [axis % rank for axis in call["dims"]]
    if call.operator == "numpy_T":
        axes.reverse()
    elif rank > 1:
        named = [v for k, v in call.arguments.items() if k != "self"]
        i, j = named if len(named) == 2 else (-2, -1)
        axes[i], axes[j] = axes[j], axes[i]
    return axes


@operator("permute", "permute_copy", "transpose", "t", "numpy_T", "mT", "mH", "matrix_H", "adjoint",
          "swapaxes", "swapdims", "transpose_copy")  # fmt: skip
def _transpose(call: Call) -> Any:
    x = call["self"]
    return call.builder.transpose(call.name, x, order_of(call, len(x.shape)))


@operator("movedim", "moveaxis")
def _movedim(call: Call) -> Any:
    x = call["self"]
    rank = len(x.shape)
    sources = axes_of(call["source"], rank)
    places = dict(zip(axes_of(call["destination"], rank), sources, strict=True))
    rest = iter(axis for axis in range(rank) if axis not in sources)
    order = [places[i] if i in places else next(rest) for i in range(rank)]
    return call.builder.transpose(call.name, x, order)


@operator("expand", "expand_as", "broadcast_to")
def _expand(call: Call) -> Any:
    return call.builder.expand(call.name, call["self"], call.shape)


@operator("repeat", "tile")
def _repeat(call: Call) -> Any:
    b, x = call.builder, call["self"]
    extra = len(call.shape) - len(x.shape)
    if extra:
        x = b.unsqueeze(call.part("unsqueeze"), x, list(range(extra)))
    grown = tuple(n if m == 1 else m for m, n in zip(x.shape, call.shape, strict=True))
    repeated = [i for i, (m, n) in enumerate(zip(grown, call.shape, strict=True)) if m != n]
    if grown != tuple(x.shape):
        x = b.expand(call.part("expand") if repeated else call.name, x, grown)
    for axis in repeated:
        name = call.name if axis == repeated[-1] else call.part(f"axis_{axis}")
        times = call.shape[axis] // grown[axis]
        if axis != x.batch_axis:
            x = b.concat(name, [x] * times, axis)
            continue
        # Each sample so often, and all of them before any comes again.
        wide = (*x.shape[:axis], times, *x.shape[axis:])
        x = b.expand(call.part("expand"), b.unsqueeze(call.part("copies"), x, [axis]), wide)
        x = b.reshape(name, x, (*wide[:axis], times * wide[axis + 1], *wide[axis + 2 :]))
    return x


@operator("repeat_interleave")
def _repeat_interleave(call: Call) -> Any:
    b, x = call.builder, call["self"]
    if call.overload != "self_int":
        raise OperatorError("how often elements are repeated depends on the data")
    if call.get("dim") is None:
        x = b.reshape(call.part("flatten"), x, (math.prod(x.shape),))
    axis = (call.get("dim") or 0) % len(x.shape)
    x = b.unsqueeze(call.part("unsqueeze"), x, [axis + 1])
    wide = (*x.shape[: axis + 1], call["repeats"], *x.shape[axis + 2 :])
    x = b.expand(call.part("expand"), x, wide)
    return b.reshape(call.part("reshape"), x, call.shape)


# ---- Parts -------------------------------------------------------------------------------------


@operator("select", "select_copy")
def _select(call: Call) -> Any:
    # One that only data know costs as much as the first.
    return call.builder.select(call.name, call["self"], call["dim"], call.get("index", 0))


@operator("slice", "narrow", "slice_copy")
def _slice(call: Call) -> Any:
    x, axis = call["self"], call.get("dim", 0)
    size, step = x.shape[axis], call.get("step", 1)
    start = call.get("start", 0)
    start = min(max(start + size if start < 0 else start, 0), size)
    return call.builder.slice(call.name, x, axis, start, call.shape[axis], step)


@operator("split", "split_with_sizes", "chunk", "unsafe_chunk", "unsafe_split", "tensor_split",
          "split_with_sizes_copy", "unsafe_split_with_sizes", "hsplit", "vsplit")  # fmt: skip
def _split(call: Call) -> Any:
    x, axis = call["self"], call.get("dim", 0)
    if call.operator == "hsplit":
        axis = 1 if len(x.shape) > 1 else 0
    shapes = [shape for shape in call.shapes if shape is not None]
    sizes = [shape[axis] for shape in shapes]
    names = [f"{call.name}_{i}" for i, size in enumerate(sizes, start=1) if size]
    parts = iter(call.builder.split(names, x, axis, list(filter(None, sizes))))
    return tuple(next(parts) if 0 not in shape else Empty(shape) for shape in shapes)


@operator("unbind", "unbind_copy")
def _unbind(call: Call) -> Any:
    x, axis = call["self"], call.get("dim", 0)
    # Only what is read becomes a layer: of an unbound sequence that is often one step.
    return tuple(
        call.builder.select(f"{call.name}_{i + 1}", x, axis, i) if i in call.used else None
        for i in range(len(call.shapes))
    )


@operator("diagonal")
def _diagonal(call: Call) -> Any:
    x = call["self"]
    axes = axes_of([call.get("dim1", 0), call.get("dim2", 1)], len(x.shape))
    x = call.builder.select(call.part("select"), x, axes[0], 0)
    axis = axes[1] - (axes[1] > axes[0])
    order = [*(i for i in range(len(x.shape)) if i != axis), axis]
    return _fit(call, call.builder.transpose(call.name, x, order), call.shape)


def _fit(call: Call, x: Any, shape: Shape) -> Any:
    """Return elements of `x` in another shape, for the shape's and the dependency's sake."""
    b = call.builder
    if len(x.shape) == len(shape):
        for axis, (have, want) in enumerate(zip(x.shape, shape, strict=True)):
            if want < have:
                x = b.slice(call.part(f"slice_{axis}"), x, axis, 0, want)
        missing = [(0, n - m) for m, n in zip(x.shape, shape, strict=True)]
        return b.pad(call.part("pad"), x, missing)
    if math.prod(x.shape) == math.prod(shape):
        return b.rearrange(call.name, x, shape)
    raise OperatorError(f"cannot take {shape} from {tuple(x.shape)}")


@operator("index", "_unsafe_index")
def _index(call: Call) -> Any:
    b, x = call.builder, call["self"]
    indexed = [(axis, index) for axis, index in enumerate(call["indices"]) if index is not None]
    if len(indexed) == 1:
        axis, index = indexed[0]
        if f"indices/{axis}" in call.truths:
            return _masked(call, x, index, axis)
        return b.gather(call.name, x, index, axis)
    # Several indices pick single elements: as one index over their axes taken together.
    axes = [axis for axis, _ in indexed]
    if axes != list(range(axes[0], axes[0] + len(axes))):
        raise OperatorError("indices along axes that are not next to each other")
    rank = max(len(index.shape) for _, index in indexed)
    picked = call.shape[axes[0] : axes[0] + rank]
    varying = [index for _, index in indexed if not index.is_constant]
    each = indexed[0][1].is_constant and tuple(indexed[0][1].shape) == x.shape[:1]
    if axes[0] == 0 and varying and x.batched and rank > 1 and picked[0] == x.shape[0]:
        return _of_each(call, x, len(axes), varying[0], picked)
    # Rows of all samples are picked below, as many of each.
    picks_rows = any(index.batched for index in varying) and picked[0] != x.shape[0]
    if axes[0] == 0 and (varying or each) and x.batched and not picks_rows:
        # One element of each sample, such as the state at the end of each text.
        for axis in reversed(axes[1:]):
            x = b.select(call.part(f"axis_{axis}"), x, axis, 0)
        return _fit(call, x, call.shape)
    merged = (*x.shape[: axes[0]], math.prod(x.shape[i] for i in axes), *x.shape[axes[-1] + 1 :])
    x = b.reshape(call.part("reshape"), x, merged)
    index = varying[0] if varying else b.constant(picked)
    return b.gather(call.name, x, b.expand(call.name, index, picked), axes[0])


def _of_each(call: Call, x: Any, rank: int, index: Any, picked: Shape) -> Any:
    """Return several elements of each sample, such as its best boxes, whose places are computed."""
    b, (samples, *inside) = call.builder, x.shape
    ahead, rest = math.prod(inside[: rank - 1]), inside[rank - 1 :]
    count = math.prod(picked[1:])
    x = b.reshape(call.part("row"), x, (samples, ahead, *rest))
    index = b.expand(call.part("index"), index, picked)
    index = b.reshape(call.part("places"), index, (samples, count, *[1] * len(rest)))
    taken = _fit(call, x, (samples, count, *rest))
    y = elementwise(call, call.name, "where", [index, taken])
    return b.reshape(call.part("reshape"), y, call.shape)


def _masked(call: Call, x: Any, mask: Any, axis: int) -> Any:
    """Return what a mask over some axes picks: as many as there may be, the first of all."""
    rank = len(mask.shape)
    row = (*x.shape[:axis], math.prod(mask.shape), *x.shape[axis + rank :])
    x = call.builder.reshape(call.part("row"), x, row)
    index = first_of_all(call, mask, call.shape[axis])
    return call.builder.gather(call.name, x, index, axis)


@operator("index_select")
def _index_select(call: Call) -> Any:
    return call.builder.gather(call.name, call["self"], call["index"], call["dim"])


@operator("gather", "take_along_dim")
def _gather(call: Call) -> Any:
    # Each element of the output is read from somewhere along the axis: one pass over as many.
    index = call.get("index", call.get("indices"))
    if index.is_constant:
        return call.builder.rearrange(call.name, _fit(call, call["self"], call.shape))
    return elementwise(call, call.name, "where", [index, _fit(call, call["self"], call.shape)])


@operator("embedding")
def _embedding(call: Call) -> Any:
    y = call.builder.embedding(call.name, once(call, call["indices"]), call["weight"])
    return call.builder.expand(call.name, y, call.shape)


@operator("embedding_bag", "_embedding_bag", "_embedding_bag_forward_only")
def _embedding_bag(call: Call) -> Any:
    b, indices = call.builder, call["indices"]
    bags, _ = call.shape
    if math.prod(indices.shape) % bags:
        raise OperatorError("bags of different sizes")
    each = (bags, math.prod(indices.shape) // bags)
    if tuple(indices.shape) != each:
        indices = b.reshape(call.part("bags"), indices, each)
    x = b.embedding(call.part("embedding"), indices, call["weight"])
    function = ("sum", "mean", "maximum")[call.get("mode", 0)]
    y = b.reduce(call.part("reduce"), function, x, [1], False)
    return (y, *[None] * (len(call.shapes) - 1))


@operator("cat", "concat", "concatenate")
def _cat(call: Call) -> Any:
    values = [value for value in call["tensors"] if 0 not in value.shape]
    return call.builder.concat(call.name, values, call.get("dim", 0))


@operator("stack", "hstack", "vstack", "dstack", "column_stack")
def _stack(call: Call) -> Any:
    values = list(call["tensors"])
    rank = len(values[0].shape)
    if rank < 2 and call.operator != "stack":
        raise OperatorError(f"{call.operator} of vectors")
    axes = {"stack": call.get("dim", 0), "hstack": 1, "vstack": 0, "dstack": 2, "column_stack": 1}
    axis = axes[call.operator] % len(call.shape)
    if len(call.shape) == rank:
        return call.builder.concat(call.name, values, axis)
    values = [
        call.builder.unsqueeze(call.part(f"unsqueeze_{i}"), value, [axis])
        for i, value in enumerate(values, 1)
    ]
    return call.builder.concat(call.part("concat"), values, axis)


# ---- Moves -------------------------------------------------------------------------------------


@operator(
    "roll", "flip", "fliplr", "flipud", "rot90", "pixel_shuffle", "pixel_unshuffle",
    "channel_shuffle", "native_channel_shuffle", "cumsum", "cumprod", "logcumsumexp", "tril",
    "triu", "renorm", "fft_fftshift", "fft_ifftshift", "argsort", "msort",
)  # fmt: skip
def _rearrange(call: Call) -> Any:
    return call.builder.rearrange(call.name, call.first, call.shape)


@operator("_fft_c2c", "_fft_r2c", "_fft_c2r")
def _fourier(call: Call) -> Any:
    """Return a transform of each axis, the last in place; its arithmetic is no product."""
    x, axes = call["self"], call["dim"]
    if x.batch_axis is not None and x.batch_axis in axes_of(axes, len(x.shape)):
        raise OperatorError("it transforms across the samples of the batch")
    call.builder.note("a Fourier transform is a pass over memory for each axis, without FLOPs")
    for axis in axes[:-1]:
        x = call.builder.rearrange(call.part(f"axis_{axis}"), x)
    return call.builder.rearrange(call.name, x, call.shape)


@operator("sort", "cummax", "cummin")
def _sort(call: Call) -> Any:
    return call.builder.rearrange(call.name, call["self"])


@operator("topk", "kthvalue", "mode")
def _topk(call: Call) -> Any:
    y = call.builder.rearrange(call.part("sort"), call["self"])
    rank = len(y.shape)
    axis = call.get("dim", -1) % rank
    count = call.shape[axis] if len(call.shape) == rank else 1
    y = call.builder.slice(call.part("first"), y, axis, 0, count)
    if len(call.shape) != rank:
        y = call.builder.squeeze(call.part("squeeze"), y, [axis])
    return y


@operator("constant_pad_nd", "pad", "reflection_pad1d", "reflection_pad2d", "reflection_pad3d",
          "replication_pad1d", "replication_pad2d", "replication_pad3d", "_pad_circular",
          "_pad_enum")  # fmt: skip
def _pad(call: Call) -> Any:
    x = call["self"]
    flat = call.get("pad", call.get("padding"))
    pairs = [(flat[i], flat[i + 1]) for i in range(0, len(flat), 2)][::-1]
    return call.builder.pad(call.name, x, [(0, 0)] * (len(x.shape) - len(pairs)) + pairs)


@operator(
    "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "_upsample_nearest_exact1d",
    "_upsample_nearest_exact2d", "_upsample_nearest_exact3d", "upsample_linear1d",
    "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d",
    "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "max_unpool2d", "max_unpool3d",
)  # fmt: skip
def _upsample(call: Call) -> Any:
    mode = next((mode for mode in ("cubic", "linear") if mode in call.operator), "nearest")
    return call.builder.resize(call.name, call.first, call.shape, mode)


@operator("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
def _grid_sampler(call: Call) -> Any:
    b, x, grid = call.builder, call["input"], call["grid"]
    sampled = b.resize(call.part("sample"), x, call.shape, "linear")
    if grid.is_constant:
        return sampled
    # The grid has a place for each element; the output's gradient flows back to it.
    places = b.reduce(call.part("places"), "sum", grid, [-1], False)
    places = b.unsqueeze(call.part("unsqueeze"), places, [1])
    return elementwise(call, call.part("weigh"), "product", [sampled, places])


@operator("affine_grid_generator")
def _affine_grid(call: Call) -> Any:
    b, theta = call.builder, call["theta"]
    _, *sizes, rank = call.shape
    theta = b.transpose(call.part("transpose"), theta, [0, 2, 1])
    y = b.matmul(call.part("product"), b.constant((math.prod(sizes), rank + 1)), theta)
    return b.reshape(call.part("reshape"), y, call.shape)


@operator("view_as_complex")
def _view_as_complex(call: Call) -> Any:
    return call.builder.select(call.name, call["self"], -1, 0)


@operator("view_as_real")
def _view_as_real(call: Call) -> Any:
    b, x = call.builder, call["self"]
    parts = [b.unsqueeze(call.part(part), x, [len(x.shape)]) for part in ("real", "imaginary")]
    return b.concat(call.part("concat"), parts, len(x.shape))


@operator("complex", "polar")
def _complex(call: Call) -> Any:
    return elementwise(call, call.name, "sum", list(call.arguments.values()))


@operator("slice_scatter", "select_scatter")
def _scatter(call: Call) -> Any:
    """Return the source between what is before and after it in the tensor that it goes into."""
    b, x, new, axis = call.builder, call["self"], call["src"], call.get("dim", 0)
    if call.operator == "select_scatter":
        axis %= len(x.shape)
        new = b.unsqueeze(call.part("unsqueeze"), new, [axis])
        start, step = call["index"] % x.shape[axis], 1
    else:
        axis %= len(x.shape)
        start, step = call.get("start", 0), call.get("step", 1)
    size, count = x.shape[axis], new.shape[axis]
    if count == size:
        return new
    start = min(max(start + size if start < 0 else start, 0), size) if step == 1 else 0
    pieces = [new]
    if start:
        pieces.insert(0, b.slice(call.part("before"), x, axis, 0, start))
    if start + count < size:
        rest = size - start - count
        pieces.append(b.slice(call.part("after"), x, axis, start + count, rest))
    return b.concat(call.part("concat"), pieces, axis)


@operator("index_put", "_index_put_impl")
def _index_put(call: Call) -> Any:
    b, x, new = call.builder, call["self"], call["values"]
    indexed = [(axis, index) for axis, index in enumerate(call["indices"]) if index is not None]
    if new.is_constant:
        return spread(call) if x.is_constant else b.activation(call.name, "other", x)
    axis, index = indexed[0]
    is_of_rows = len(indexed) == 1 and len(new.shape) == len(x.shape)
    if is_of_rows and new.batch_axis == axis and new.shape[axis] != x.shape[axis]:
        return call.builder.put_back(call.name, x, new, axis)
    if f"indices/{axis}" in call.truths and axis == 0 and len(indexed) == 1:
        return _put_by_mask(call, x, index, new)
    if len(indexed) > 1 or len(index.shape) != 1 or len(new.shape) != len(x.shape):
        raise OperatorError("elements set at several indices")
    size, count = x.shape[axis], new.shape[axis]
    if count >= size:
        return _fit(call, new, call.shape)
    rest = b.slice(call.part("others"), x, axis, count, size - count)
    return b.concat(call.part("concat"), [new, rest], axis)


def _put_by_mask(call: Call, x: Any, mask: Any, new: Any) -> Any:
    """Return what is there where a mask over the first axes is false, new rows where it is true."""
    b, rest = call.builder, x.shape[len(mask.shape) :]
    rows = b.expand(call.part("rows"), new, (new.shape[0] if new.shape else 1, *rest))
    rows = _fit(call, rows, (math.prod(mask.shape), *rest))
    rows = b.reshape(call.part("places"), rows, x.shape)
    mask = b.reshape(call.part("mask"), mask, (*mask.shape, *[1] * len(rest)))
    return elementwise(call, call.name, "where", [mask, x, rows])


@operator("scatter", "scatter_add", "scatter_reduce", "index_copy", "index_fill",
          "masked_scatter")  # fmt: skip
def spread(call: Call) -> Any:
    """Return a pass over the tensor and what is written into it, wherever that lands."""
    varying = [value for value in call.tensors if not value.is_constant]
    values = [
        _fit(call, value, call.shape) for value in varying if len(value.shape) == len(call.shape)
    ]
    if not values:
        raise OperatorError(f"cannot write {tuple(varying[0].shape)} into {call.shape}")
    return elementwise(call, call.name, "where", values)


@operator("im2col")
def _im2col(call: Call) -> Any:
    x = call["self"]
    wide = _unfolded(call, spatial(call["kernel_size"], 2), x.shape[2:])
    x = _read_again(call, _read_again(call, x, 2, wide[0]), 3, wide[1])
    return call.builder.rearrange(call.part("rearrange"), x, call.shape)


@operator("col2im")
def _col2im(call: Call) -> Any:
    wide = _unfolded(call, spatial(call["kernel_size"], 2), call.shape[2:])
    x = call["self"]
    x = call.builder.rearrange(call.part("rearrange"), x, (*call.shape[:2], *wide))
    return _read_again(call, _read_again(call, x, 2, call.shape[2]), 3, call.shape[3])


def _read_again(call: Call, x: Any, axis: int, size: int) -> Any:
    """Return a tensor with so many elements along an axis, read from anywhere along it."""
    if x.shape[axis] == size:
        return x
    return call.builder.gather(call.part(f"axis_{axis}"), x, call.builder.constant((size,)), axis)


def _unfolded(call: Call, kernel: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """Return the height and width that all windows have, laid side by side."""
    dilations = spatial(call.get("dilation", 1), 2)
    paddings, strides = spatial(call.get("padding", 0), 2), spatial(call.get("stride", 1), 2)
    return [
        ((size + 2 * p - d * (r - 1) - 1) // s + 1) * r
        for size, r, d, p, s in zip(sizes, kernel, dilations, paddings, strides, strict=True)
    ]


@operator("unfold")
def _unfold(call: Call) -> Any:
    b, x = call.builder, call["self"]
    axis = call["dimension"] % len(x.shape)
    count, size = call.shape[axis], call["size"]
    x = _read_again(call, x, axis, count * size)
    split = (*x.shape[:axis], count, size, *x.shape[axis + 1 :])
    x = b.reshape(call.part("windows"), x, split)
    axes = [i for i in range(len(x.shape)) if i != axis + 1]
    return b.transpose(call.part("transpose"), x, [*axes, axis + 1])
