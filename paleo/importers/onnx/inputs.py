"""The inputs of an ONNX graph: their sizes, and which of their dimensions is the batch.

Exporters leave the batch open, mostly as the first dimension of every input. It is then
traced with a number that no other dimension has or is a multiple of, so that it can be
recognized in every shape behind; what is written is the batch that was asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from paleo.errors import Mistakes
from paleo.importers.base import ImportOptions

__all__ = ["Input", "Inputs", "find_inputs"]

#: Sizes that no other dimension is likely to be a multiple of.
_PRIMES = (13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97)
_BATCH = re.compile(r"(.*[^a-z])?(batch(_?size)?|bs|n)([^a-z].*)?\Z", re.IGNORECASE)
_LARGEST = 2**31 - 1

#: A dimension: its size; its name if it is open; None if it is open without one.
Dimension: TypeAlias = "int | str | None"


@dataclass(frozen=True)
class Input:
    """An input at the sizes it is traced with; without a batch it is the same for all samples."""

    name: str
    shape: tuple[int, ...]
    batch_axis: int | None
    dtype: int


@dataclass(frozen=True)
class Inputs:
    """All inputs; `batch` is what the net is written with, `traced` what it is read with."""

    inputs: tuple[Input, ...]
    batch: int
    traced: int
    #: Sizes of dimensions that have a name.
    sizes: dict[str, int]


@dataclass
class _Declared:
    """An input as the file declares it; no dimensions if it says nothing of them."""

    name: str
    dims: list[Dimension] | None
    dtype: int
    #: Where the batch is unless names say otherwise: second in a sequence, T x N x D.
    leading: int = 0


def find_inputs(
    graph: Any, options: ImportOptions, dimensions: Iterable[int], mistakes: Mistakes, trace: bool
) -> Inputs | None:
    """Return the inputs of a graph; None, with mistakes noted, if their sizes are not known.

    `dimensions` are those of the tensors that the file holds: the batch is traced with
    another number, or as it is written unless `trace`.
    """
    sequences = _sequences(graph)
    held = {each.name for each in graph.initializer}
    held.update(each.values.name for each in graph.sparse_initializer)
    before = len(mistakes.found)
    declared = [
        each
        for proto in graph.input
        if proto.name not in held and (each := _declare(proto, mistakes)) is not None
    ]
    given = _given(declared, options, mistakes)
    sizes = _sizes(declared, given, options, mistakes)
    if len(mistakes.found) > before:
        return None
    for each in declared:
        if each.dims is None and each.name in given:
            each.dims = list(given[each.name])
        if each.name in sequences and len(each.dims or ()) == 3:
            each.leading = 1
    batch_axes, batch, alone = _find_batch(declared, given, sizes, options)
    traced = batch
    if trace and alone:
        others = [size for each in declared for size in each.dims or () if isinstance(size, int)]
        others += [*sizes.values(), *dimensions]
        others += [size for shape in given.values() for size in shape]
        traced = _prime([size for size in others if size > 1]) or batch
    sizes.update(_traced_names(declared, batch_axes, traced))
    inputs = []
    for each in declared:
        shape = _shape(each, given.get(each.name), batch_axes, traced, sizes, mistakes)
        axis = batch_axes.get(each.name)
        inputs.append(Input(each.name, shape, axis, each.dtype))
    if len(mistakes.found) > before:
        return None
    if not batch_axes:
        inputs = _fixed_batch(inputs, {each.name: each.leading for each in declared})
        batch = traced = next(
            (each.shape[each.batch_axis] for each in inputs if each.batch_axis is not None), 1
        )
    return Inputs(tuple(inputs), batch, traced, sizes)


def _declare(proto: Any, mistakes: Mistakes) -> _Declared | None:
    if not proto.type.HasField("tensor_type"):
        kind = proto.type.WhichOneof("value") or "a value without a type"
        mistakes.add(f'input "{proto.name}" is not a tensor, but {kind.removesuffix("_type")}')
        return None
    tensor = proto.type.tensor_type
    if not tensor.HasField("shape"):
        return _Declared(proto.name, None, tensor.elem_type or 1)
    dims: list[Dimension] = []
    for dim in tensor.shape.dim:
        # Some exporters write 0 or -1 for a dimension that is open.
        size = dim.dim_value if dim.dim_value > 0 else None
        dims.append(dim.dim_param or None if size is None else size)
    return _Declared(proto.name, dims, tensor.elem_type or 1)


def _given(
    declared: Sequence[_Declared], options: ImportOptions, mistakes: Mistakes
) -> dict[str, tuple[int, ...]]:
    """Return the shapes of --input, by the inputs they are of."""
    given: dict[str, tuple[int, ...]] = {}
    by_name = {each.name: each for each in declared}
    for name, shape in options.input:
        if name is None:
            if len(declared) != 1:
                names = ", ".join(by_name) or "none"
                mistakes.add(f"--input must say which input it is of; there are: {names}")
                continue
            name = declared[0].name
        if name not in by_name:
            known = ", ".join(by_name) or "none"
            hint = mistakes.near(name, by_name)
            mistakes.add(f'--input: there is no input "{name}"{hint}; there are: {known}')
            continue
        dims = by_name[name].dims
        text = "x".join(map(str, shape))
        if dims is not None and len(dims) != len(shape):
            mistakes.add(
                f'--input: "{name}" has {len(dims)} dimensions '
                f"({format_dims(dims)}), not the {len(shape)} of {text}"
            )
        elif not all(0 < size <= _LARGEST for size in shape):
            mistakes.add(f'--input: sizes of "{name}" must be 1 to {_LARGEST}, got {text}')
        else:
            given[name] = tuple(shape)
    return given


def _sizes(
    declared: Sequence[_Declared],
    given: dict[str, tuple[int, ...]],
    options: ImportOptions,
    mistakes: Mistakes,
) -> dict[str, int]:
    """Return the sizes of open dimensions that --dim and --input give, by name."""
    names = {dim for each in declared for dim in each.dims or () if isinstance(dim, str)}
    sizes: dict[str, int] = {}
    for name, size in options.dims.items():
        if name not in names:
            known = ", ".join(sorted(names)) or "none"
            hint = mistakes.near(name, names)
            mistakes.add(f'--dim: no input has a dimension "{name}"{hint}; there are: {known}')
        elif not 0 < size <= _LARGEST:
            mistakes.add(f"--dim: {name} must be 1 to {_LARGEST}, got {size}")
        else:
            sizes[name] = size
    for each in declared:
        shape = given.get(each.name, ())
        for dim, size in zip(each.dims or (), shape, strict=False):
            if isinstance(dim, str) and sizes.setdefault(dim, size) != size:
                mistakes.add(
                    f'dimension "{dim}" is {sizes[dim]} in one place and {size} in --input of '
                    f'"{each.name}"'
                )
    return sizes


def _find_batch(
    declared: Sequence[_Declared],
    given: dict[str, tuple[int, ...]],
    sizes: dict[str, int],
    options: ImportOptions,
) -> tuple[dict[str, int], int, bool]:
    """Return where each input has the batch, how large it is, and whether nothing else is.

    An input has none if its sizes are fixed: where all are, the batch is found later.
    """
    symbol: Dimension = 0
    for each in declared:
        named = [dim for dim in each.dims or () if isinstance(dim, str) and _BATCH.match(dim)]
        if named:
            symbol = named[0]
            break
    if symbol == 0:
        first = [each for each in declared if each.dims and _is_open(each)]
        if not first:
            return {}, 1, False
        assert first[0].dims is not None
        symbol = first[0].dims[first[0].leading]
    axes: dict[str, int] = {}
    batch = sizes.get(symbol) if isinstance(symbol, str) else None
    for each in declared:
        dims = each.dims or []
        if isinstance(symbol, str) and symbol in dims:
            axes[each.name] = dims.index(symbol)
        elif dims and _is_open(each):
            # Other exporters give the batch another name in every input.
            dim, at = str(dims[each.leading]), each.leading
            size = given[each.name][at] if each.name in given else sizes.get(dim)
            batch = size if batch is None else batch
            if size in (None, batch) and dim not in options.dims:
                axes[each.name] = at
    twice = any((each.dims or []).count(symbol) > 1 for each in declared if symbol is not None)
    return axes, batch or 1, not twice


def _is_open(declared: _Declared) -> bool:
    """Whether the dimension that is the batch, unless names say otherwise, has no size."""
    return declared.dims is not None and not isinstance(declared.dims[declared.leading], int)


def _sequences(graph: Any) -> set[str]:
    """Return the names of sequences that recurrent layers read with the batch second."""
    return {
        node.input[0]
        for node in graph.node
        if node.op_type in ("LSTM", "GRU", "RNN")
        and node.input
        and not any(each.name == "layout" and each.i for each in node.attribute)
    }


def _shape(
    declared: _Declared,
    given: tuple[int, ...] | None,
    batch_axes: dict[str, int],
    traced: int,
    sizes: dict[str, int],
    mistakes: Mistakes,
) -> tuple[int, ...]:
    if declared.dims is None:
        if given is None:
            mistakes.add(
                f'the file does not say the shape of input "{declared.name}": '
                f"give it with --input {declared.name}=1x3x224x224"
            )
        return given or ()
    shape = []
    for axis, dim in enumerate(declared.dims):
        if axis == batch_axes.get(declared.name):
            shape.append(traced)
        elif given is not None:
            shape.append(given[axis])
        elif isinstance(dim, int):
            shape.append(dim)
        elif dim is None:
            mistakes.add(
                f'dimension {axis} of input "{declared.name}" '
                f"({format_dims(declared.dims)}) is open and has no name: "
                f"give the whole shape with --input {declared.name}=..."
            )
        elif dim in sizes:
            shape.append(sizes[dim])
        else:
            message = (
                f'dimension "{dim}" of input "{declared.name}" '
                f"({format_dims(declared.dims)}) is open: give it with --dim {dim}=..."
            )
            if not any(f'dimension "{dim}" of' in each.message for each in mistakes.found):
                mistakes.add(message)
    return tuple(shape)


def _fixed_batch(inputs: Sequence[Input], leading: dict[str, int]) -> list[Input]:
    """Return inputs of fixed sizes with the batch found: the first dimension of the first."""
    first = next((each for each in inputs if len(each.shape) > 1), None)
    first = first or next((each for each in inputs if each.shape), None)
    if first is None:
        return list(inputs)
    batch = first.shape[leading[first.name]]
    return [
        # An initial state is layers x batch x features.
        Input(each.name, each.shape, each.shape.index(batch, leading[each.name]), each.dtype)
        if batch in each.shape[leading[each.name] : 2]
        else each
        for each in inputs
    ]


def _traced_names(
    declared: Sequence[_Declared], batch_axes: dict[str, int], traced: int
) -> dict[str, int]:
    names = {}
    for each in declared:
        if each.name in batch_axes and each.dims:
            dim = each.dims[batch_axes[each.name]]
            if isinstance(dim, str):
                names[dim] = traced
    return names


def _prime(others: Sequence[int]) -> int | None:
    distinct = set(others)
    return next((prime for prime in _PRIMES if all(size % prime for size in distinct)), None)


def format_dims(dims: Sequence[Dimension]) -> str:
    """Return dimensions as text, with names and question marks for what is open."""
    return "x".join("?" if dim is None else str(dim) for dim in dims)
