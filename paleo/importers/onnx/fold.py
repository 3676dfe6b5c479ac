"""The numbers that an ONNX graph computes from numbers it holds.

Exporters write shapes as little graphs of their own: the shape of a tensor, one of its
entries, times four, joined with another, handed to a Reshape. The operators of such graphs
are computed here, by NumPy and on small tensors only; whatever else is constant is known by
its shape alone. Nothing of the file is run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from paleo.importers.onnx.node import Node

__all__ = ["LARGEST", "Array", "Budget", "fold", "slice_bounds"]

Array = NDArray[Any]

#: Elements of a tensor whose numbers are followed; beyond, its shape is all that is known.
LARGEST = 2**20
#: Elements of all of them together: what a file can make Paleo compute and keep.
_ALL_TOGETHER = 2**25

_Fold = Callable[["Node", list[Array]], "Array | list[Array]"]

#: What NumPy raises where numbers do not fit their operator: they are unknown then.
_UNFIT = (ArithmeticError, IndexError, KeyError, MemoryError, TypeError, ValueError)


class Budget:
    """How many elements may still be computed."""

    def __init__(self) -> None:
        self.left = _ALL_TOGETHER

    def allows(self, elements: int) -> bool:
        """Whether a tensor of so many elements may be computed; notes that it was."""
        if elements > min(self.left, LARGEST):
            return False
        self.left -= elements
        return True


def fold(node: Node, budget: Budget) -> list[Array] | None:
    """Return the numbers of a node's outputs; None where they are not to be had."""
    function = _FOLDS.get(node.op) if not node.domain else None
    if function is None:
        return None
    inputs = []
    for tensor in node.inputs:
        # A missing optional input stays in its place: the operators look at positions.
        numbers = np.zeros(0) if tensor is None else tensor.numbers()
        if numbers is None:
            return None
        inputs.append(numbers)
    if not budget.allows(_elements(node, inputs)):
        return None
    try:
        with np.errstate(all="ignore"):
            outputs = function(node, inputs)
    except _UNFIT:
        return None
    return [np.asarray(each) for each in outputs] if isinstance(outputs, list) else [outputs]


def _elements(node: Node, inputs: list[Array]) -> int:
    """Return how large an output becomes, before it is made."""
    if node.op == "Range":
        start, limit, delta = (float(each.reshape(-1)[0]) if each.size else 0.0 for each in inputs)
        steps = (limit - start) / delta if delta else float("inf")
        return int(min(max(steps, 0), LARGEST + 1)) + 1 if steps == steps else LARGEST + 1
    if node.op == "NonZero":
        return inputs[0].size * max(inputs[0].ndim, 1)
    shapes = [shape for shape, _ in node.inferred if shape is not None]
    if len(shapes) < len(node.inferred):
        return LARGEST + 1
    return sum(_product(shape) for shape in shapes)


def _product(shape: Sequence[int]) -> int:
    result = 1
    for size in shape:
        result *= size
    return result


def slice_bounds(
    node: Node, shape: Sequence[int], lists: Sequence[Sequence[int] | None]
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
        if not -len(shape) <= axis < len(shape):
            raise ValueError(f"there is no axis {axis}")
        if step == 0:
            raise ValueError("a step is 0")
        index = range(*slice(start, end, step).indices(shape[axis]))
        # For a negative step, Python takes an end below -size for "down to the first".
        cuts.append((axis % len(shape), index.start, len(index), step))
    return cuts


def _slice(node: Node, x: list[Array]) -> Array:
    lists = (
        [each.reshape(-1).tolist() if each.size else None for each in [*x[1:], *[np.zeros(0)] * 4]]
        if node.version >= 10
        else [node.wholes(key, None) for key in ("starts", "ends", "axes")] + [None]
    )
    index: list[slice] = [slice(None)] * x[0].ndim
    for axis, start, size, step in slice_bounds(node, x[0].shape, lists[:4]):
        end = start + size * step
        index[axis] = slice(start, end if end >= 0 else None, step)
    return x[0][tuple(index)]


def _axes(node: Node, x: list[Array]) -> list[int] | None:
    """Return the axes of an operator that took them as an attribute, later as an input."""
    if len(x) > 1:
        return [int(axis) for axis in x[1].reshape(-1)] if x[1].size else None
    axes: list[int] | None = node.wholes("axes", None)
    return axes


def _reduce(function: Callable[..., Any]) -> _Fold:
    def reduce(node: Node, x: list[Array]) -> Array:
        axes = _axes(node, x)
        if axes is None and node.whole("noop_with_empty_axes", 0):
            return x[0]
        keep = bool(node.whole("keepdims", 1))
        axis = None if axes is None else tuple(axes)
        return np.asarray(function(x[0], axis=axis, keepdims=keep)).astype(x[0].dtype)

    return reduce


def _divide(node: Node, x: list[Array]) -> Array:
    if not np.issubdtype(x[0].dtype, np.integer):
        return np.asarray(np.divide(x[0], x[1]))
    # ONNX divides integers towards zero, NumPy downwards.
    return np.asarray(np.trunc(np.divide(x[0], x[1]))).astype(x[0].dtype)


def _modulo(node: Node, x: list[Array]) -> Array:
    return np.asarray((np.fmod if node.whole("fmod", 0) else np.mod)(x[0], x[1]))


def _cast(node: Node, x: list[Array]) -> Array:
    return x[0].astype(node.numpy_type(node.whole("to", 1)))


def _reshape(node: Node, x: list[Array]) -> Array:
    shape, _ = node.inferred[0]
    if shape is None:
        raise ValueError
    return x[0].reshape(shape)


def _gather(node: Node, x: list[Array]) -> Array:
    return np.asarray(np.take(x[0], x[1].astype(np.int64), axis=node.whole("axis", 0)))


def _split(node: Node, x: list[Array]) -> list[Array]:
    axis = node.whole("axis", 0)
    shapes = [shape for shape, _ in node.inferred]
    ends = np.cumsum([shape[axis] for shape in shapes if shape is not None])
    return list(np.split(x[0], ends[:-1], axis=axis))


def _expand(node: Node, x: list[Array]) -> Array:
    target = tuple(int(size) for size in x[1].reshape(-1))
    return np.asarray(x[0] * np.ones(target, x[0].dtype))


def _shape_of(node: Node, x: list[Array]) -> Array:
    return np.asarray(x[0].shape[slice(node.whole("start", 0), node.whole("end", None))], np.int64)


def _constant_of_shape(node: Node, x: list[Array]) -> Array:
    value = node.tensor_attribute("value")
    fill = np.zeros(1, np.float32) if value is None else value.reshape(-1)
    return np.full([int(size) for size in x[0].reshape(-1)], fill[0], fill.dtype)


def _cumulative_sum(node: Node, x: list[Array]) -> Array:
    if node.whole("exclusive", 0) or node.whole("reverse", 0):
        raise ValueError
    return np.asarray(np.cumsum(x[0], axis=int(x[1].reshape(-1)[0]), dtype=x[0].dtype))


def _clip(node: Node, x: list[Array]) -> Array:
    if node.version < 11:
        low, high = node.real("min", -np.inf), node.real("max", np.inf)
        return np.asarray(np.clip(x[0], low, high)).astype(x[0].dtype)
    bounds = [each if each.size else None for each in [*x[1:], np.zeros(0), np.zeros(0)]]
    result = x[0]
    if bounds[0] is not None:
        result = np.maximum(result, bounds[0])
    if bounds[1] is not None:
        result = np.minimum(result, bounds[1])
    return np.asarray(result)


def _round_trip(function: Callable[..., Any]) -> _Fold:
    """Make a fold of a NumPy function of all inputs; the type stays the first one's."""

    def apply(node: Node, x: list[Array]) -> Array:
        return np.asarray(function(*x)).astype(x[0].dtype, copy=False)

    return apply


def _truth(function: Callable[..., Any]) -> _Fold:
    return lambda node, x: np.asarray(function(*x), np.bool_)


def _fold_many(function: Callable[..., Any]) -> _Fold:
    def apply(node: Node, x: list[Array]) -> Array:
        result = x[0]
        for each in x[1:]:
            result = function(result, each)
        return np.asarray(result)

    return apply


_FOLDS: dict[str, _Fold] = {
    "Abs": _round_trip(np.abs),
    "Add": _round_trip(np.add),
    "And": _truth(np.logical_and),
    "Cast": _cast,
    "CastLike": lambda node, x: x[0].astype(x[1].dtype),
    "Ceil": _round_trip(np.ceil),
    "Clip": _clip,
    "Concat": lambda node, x: np.concatenate(x, axis=node.whole("axis", 1)),
    "ConstantOfShape": _constant_of_shape,
    "Cos": _round_trip(np.cos),
    "CumSum": _cumulative_sum,
    "Div": _divide,
    "Equal": _truth(np.equal),
    "Exp": _round_trip(np.exp),
    "Expand": _expand,
    "Flatten": _reshape,
    "Floor": _round_trip(np.floor),
    "Gather": _gather,
    "Greater": _truth(np.greater),
    "GreaterOrEqual": _truth(np.greater_equal),
    "Identity": lambda node, x: x[0],
    "Less": _truth(np.less),
    "LessOrEqual": _truth(np.less_equal),
    "Log": _round_trip(np.log),
    "Max": _fold_many(np.maximum),
    "Min": _fold_many(np.minimum),
    "Mod": _modulo,
    "Mul": _round_trip(np.multiply),
    "Neg": _round_trip(np.negative),
    "NonZero": lambda node, x: np.asarray(np.nonzero(np.atleast_1d(x[0])), np.int64),
    "Not": _truth(np.logical_not),
    "Or": _truth(np.logical_or),
    "Pow": _round_trip(np.power),
    "Range": lambda node, x: np.arange(*(each.reshape(-1)[0] for each in x), dtype=x[0].dtype),
    "Reciprocal": _round_trip(np.reciprocal),
    "ReduceMax": _reduce(np.max),
    "ReduceMean": _reduce(np.mean),
    "ReduceMin": _reduce(np.min),
    "ReduceProd": _reduce(np.prod),
    "ReduceSum": _reduce(np.sum),
    "Reshape": _reshape,
    "Round": _round_trip(np.round),
    "Shape": _shape_of,
    "Sign": _round_trip(np.sign),
    "Sin": _round_trip(np.sin),
    "Size": lambda node, x: np.asarray(x[0].size, np.int64),
    "Slice": _slice,
    "Split": _split,
    "Sqrt": _round_trip(np.sqrt),
    "Squeeze": _reshape,
    "Sub": _round_trip(np.subtract),
    "Sum": _fold_many(np.add),
    "Tile": lambda node, x: np.tile(x[0], [int(each) for each in x[1].reshape(-1)]),
    "Transpose": lambda node, x: np.transpose(x[0], node.wholes("perm", None)),
    "Unsqueeze": _reshape,
    "Where": lambda node, x: np.where(x[0].astype(bool), x[1], x[2]),
    "Xor": _truth(np.logical_xor),
}
