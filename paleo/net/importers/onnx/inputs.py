"""The inputs of an ONNX graph: their sizes, and which of their dimensions is the batch.

Exporters leave the batch open, mostly as the first dimension of every input. It is then
traced with a number that no other dimension has or is a multiple of, so that it can be
recognized in every shape behind; what is written is the batch that was asked for.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from paleo.core.checks import shown
from paleo.core.errors import Mistakes
from paleo.core.frozen import dataclass
from paleo.core.quantity import is_array
from paleo.net.importers.base import ImportOptions, prime_batch

_BATCH = re.compile(r"(.*[^a-z])?(batch(_?size)?|bs|n)([^a-z].*)?\Z", re.IGNORECASE)
#: What a name has that is one; PaddlePaddle's exporter calls every open dimension "?".
_NAME = re.compile(r"[^\W\d]")
_LARGEST = 2**31 - 1
#: How the batch is read, in the order in which that is tried: followed by a size of its own, as
#: large as it is written into the graph, or not at all, so that all of every input is one sample.
READINGS = ("traced", "written", "whole")

#: Where operators read weights: an input that stands there is the same for all samples.
_WEIGHTS: Mapping[str, Sequence[int]] = {
    "BatchNormalization": (1, 2, 3, 4), "CausalConvWithState": (1, 2), "Conv": (1, 2),
    "ConvInteger": (1,), "ConvTranspose": (1, 2), "DeformConv": (1, 3), "GRU": (1, 2, 3),
    "GroupNormalization": (1, 2), "InstanceNormalization": (1, 2), "LSTM": (1, 2, 3, 7),
    "LayerNormalization": (1, 2), "QLinearConv": (3, 8), "RMSNormalization": (1,),
    "RNN": (1, 2, 3),
}  # fmt: skip

#: A dimension: its size; its name if it is open; None if it is open without one.
Dimension: TypeAlias = "int | str | None"


@dataclass(frozen=True)
class Input:
    """An input at the sizes it is traced with; without a batch it is the same for all samples."""

    name: str
    shape: tuple[int, ...]
    batch_axis: int | None
    dtype: int
    is_weight: bool = False


@dataclass(frozen=True)
class Inputs:
    """All inputs; `batch` is what the net is written with."""

    inputs: tuple[Input, ...]
    batch: int
    #: Sizes of dimensions that have a name.
    sizes: dict[str, int]
    #: The numbers of inputs that --value makes constants.
    values: dict[str, NDArray[Any]]


@dataclass
class _Declared:
    """An input as the file declares it; no dimensions if it says nothing of them."""

    name: str
    dims: list[Dimension] | None
    dtype: int
    #: Where the batch is unless names say otherwise: second in a sequence, T x N x D; None for
    #: what an operator reads as its weight.
    leading: int | None = 0


def find_inputs(
    graph: Any, read: Container[str], options: ImportOptions, mistakes: Mistakes, reading: str
) -> Inputs | None:
    """Return the inputs of a graph; None, with mistakes noted, if their sizes are not known.

    Those that no node needs are left out: `read` are the names that some do. `reading` is one
    of READINGS.
    """
    before = len(mistakes.found)
    finder = _Finder(graph, read, options, mistakes)
    if len(mistakes.found) > before:
        return None
    inputs = finder.find(graph, reading)
    return None if len(mistakes.found) > before else inputs


class _Finder:
    """Brings together what a file declares of its inputs and what the options say."""

    def __init__(
        self, graph: Any, read: Container[str], options: ImportOptions, mistakes: Mistakes
    ) -> None:
        self.options = options
        self.mistakes = mistakes
        held = {tensor.name for tensor in graph.initializer}
        held.update(tensor.values.name for tensor in graph.sparse_initializer)
        named = {name for name, _ in options.input}
        protos = [
            proto
            for proto in graph.input
            if proto.name not in held and (proto.name in read or proto.name in named)
        ]
        #: What --value says of inputs, which are then constants.
        self.values = self._find_values(protos)
        protos = [proto for proto in protos if proto.name not in options.values]
        self.declared = [known for proto in protos if (known := _declare(proto, mistakes))]
        #: The shapes of --input, by the inputs they are of.
        self.given = self._given()
        #: The sizes of open dimensions that --dim and --input give, by name.
        self.sizes = self._sizes()
        self.batch_axes: dict[str, int] = {}

    def find(self, graph: Any, reading: str) -> Inputs:
        """Return the inputs; what is lacking is noted."""
        sequences, weights, whole = _sequences(graph), _weights(graph), reading == "whole"
        for known in self.declared:
            if known.dims is None and known.name in self.given:
                known.dims = list(self.given[known.name])
            if known.name in weights:
                known.leading = None
            elif known.name in sequences and len(known.dims or ()) == 3:
                known.leading = 1
        self.batch_axes, batch, alone = ({}, 1, False) if whole else self._find_batch()
        traced = batch
        if reading == "traced" and alone:
            others = [size for known in self.declared for size in known.dims or ()]
            others += [*self.sizes.values()]
            others += [size for tensor in graph.initializer for size in tensor.dims]
            others += [size for shape in self.given.values() for size in shape]
            traced = prime_batch(n for n in others if isinstance(n, int) and n > 1) or batch
        for known in self.declared:
            axis = self.batch_axes.get(known.name)
            dim = known.dims[axis] if known.dims and axis is not None else None
            if isinstance(dim, str):
                self.sizes[dim] = traced
        axes = self.batch_axes
        inputs = [
            Input(
                known.name,
                self._shape(known, traced),
                axes.get(known.name),
                known.dtype,
                known.leading is None,
            )
            for known in self.declared
        ]
        if not axes and not whole:
            inputs = _fixed_batch(inputs, {known.name: known.leading for known in self.declared})
            fixed = (x.shape[x.batch_axis] for x in inputs if x.batch_axis is not None)
            batch = next(fixed, 1)
        return Inputs(tuple(inputs), batch, self.sizes, self.values)

    def _find_values(self, protos: Sequence[Any]) -> dict[str, NDArray[Any]]:
        """Return the numbers that --value gives for inputs, in the shapes that the file declares.

        Where one leaves its shape open, they are a list, or of the shape that --input says.
        """
        values: dict[str, NDArray[Any]] = {}
        by_name = {proto.name: proto for proto in protos}
        helper = importlib.import_module("onnx.helper")
        for name, numbers in self.options.values.items():
            if name not in by_name:
                self._refuse("--value: there is no input", name, list(by_name))
                continue
            known = _declare(by_name[name], self.mistakes)
            if known is None:
                continue
            dims: Sequence[Dimension] | None = dict(self.options.input).get(name, known.dims)
            if dims is None or (len(dims) == 1 and not isinstance(dims[0], int)):
                dims = [len(numbers)]
            sizes = [dim for dim in dims if isinstance(dim, int)]
            if len(sizes) < len(dims) or prod(sizes) != len(numbers):
                self.mistakes.add(
                    f'--value: input "{name}" is {format_dims(dims) or "one number"}, which '
                    f"{len(numbers)} numbers are not"
                )
                continue
            dtype = helper.tensor_dtype_to_np_dtype(known.dtype)
            values[name] = np.asarray(numbers).astype(dtype).reshape(sizes)
        return values

    def _given(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of --input, by the inputs they are of."""
        given: dict[str, tuple[int, ...]] = {}
        by_name = {each.name: each for each in self.declared}
        for name, shape in self.options.input:
            if name is None:
                if len(self.declared) != 1:
                    names = ", ".join(by_name) or "none"
                    self.mistakes.add(f"--input must say which input it is of; there are: {names}")
                    continue
                name = self.declared[0].name
            if name not in by_name:
                self._refuse("--input: there is no input", name, list(by_name))
                continue
            dims = by_name[name].dims
            text = "x".join(map(str, shape))
            if dims is not None and len(dims) != len(shape):
                self.mistakes.add(
                    f'--input: "{name}" has {len(dims)} dimensions '
                    f"({format_dims(dims)}), not the {len(shape)} of {text}"
                )
            elif not all(0 < size <= _LARGEST for size in shape):
                self.mistakes.add(f'--input: sizes of "{name}" must be 1 to {_LARGEST}, got {text}')
            else:
                given[name] = tuple(shape)
        return given

    def _refuse(self, what: str, name: str, known: Sequence[str]) -> None:
        """Note that an option names what is not among those known."""
        hint = self.mistakes.near(name, known)
        self.mistakes.add(f'{what} "{name}"{hint}; there are: {", ".join(known) or "none"}')

    def _names(self) -> Iterator[str]:
        """Yield the names of open dimensions, in the order of the inputs."""
        for known in self.declared:
            yield from (dim for dim in known.dims or () if isinstance(dim, str))

    def _sizes(self) -> dict[str, int]:
        """Return the sizes of open dimensions that --dim and --input give, by name."""
        names = set(self._names())
        sizes: dict[str, int] = {}
        for name, size in self.options.dims.items():
            if name not in names:
                self._refuse("--dim: no input has a dimension", name, sorted(names))
            elif is_array(size) or not 0 < size <= _LARGEST:
                self.mistakes.add(f"--dim: {name} must be 1 to {_LARGEST}, got {shown(size)}")
            else:
                sizes[name] = int(size)
        for each in self.declared:
            for dim, size in zip(each.dims or (), self.given.get(each.name, ()), strict=False):
                if isinstance(dim, str) and sizes.setdefault(dim, size) != size:
                    self.mistakes.add(
                        f'dimension "{dim}" is {sizes[dim]} in one place and {size} in --input of '
                        f'"{each.name}"'
                    )
        return sizes

    def _find_batch(self) -> tuple[dict[str, int], int, bool]:
        """Return where each input has the batch, how large it is, and whether nothing else is.

        An input has none if its sizes are fixed: where all are, the batch is found later.
        """
        named = (dim for dim in self._names() if _BATCH.match(dim))
        symbol: Dimension = next(named, 0)
        if symbol == 0:
            first = [each for each in self.declared if _is_open(each)]
            if not first:
                return {}, 1, False
            assert first[0].dims is not None
            symbol = first[0].dims[first[0].leading or 0]
        axes: dict[str, int] = {}
        batch = self.sizes.get(symbol) if isinstance(symbol, str) else None
        for each in self.declared:
            dims = each.dims or []
            if each.leading is None:
                continue
            if isinstance(symbol, str) and symbol in dims:
                axes[each.name] = dims.index(symbol)
            elif _is_open(each):
                # Other exporters give the batch another name in every input.
                dim, at = str(dims[each.leading]), each.leading
                size = self.given[each.name][at] if each.name in self.given else self.sizes.get(dim)
                batch = size if batch is None else batch
                if size in (None, batch) and dim not in self.options.dims:
                    axes[each.name] = at
            elif _is_state(each):
                given = self.given.get(each.name)
                if given is None or batch in (None, given[1]):
                    axes[each.name] = 1
        counts = [(each.dims or []).count(symbol) for each in self.declared]
        return axes, batch or 1, symbol is None or max(counts, default=0) < 2

    def _shape(self, declared: _Declared, traced: int) -> tuple[int, ...]:
        given = self.given.get(declared.name)
        if declared.dims is None:
            if given is None:
                self.mistakes.add(
                    f'the file does not say the shape of input "{declared.name}": '
                    f"give it with --input {declared.name}=1x3x224x224"
                )
            return given or ()
        shape: list[int] = []
        unnamed: list[int] = []
        for axis, dim in enumerate(declared.dims):
            if axis == self.batch_axes.get(declared.name):
                shape.append(traced)
            elif given is not None:
                shape.append(given[axis])
            elif isinstance(dim, int):
                shape.append(dim)
            elif dim in self.sizes:
                shape.append(self.sizes[dim])
            elif dim is None:
                unnamed.append(axis)
            elif not any(f'dimension "{dim}" of' in each.message for each in self.mistakes.found):
                self.mistakes.add(
                    f'dimension "{dim}" of input "{declared.name}" '
                    f"({format_dims(declared.dims)}) is open: give it with --dim {dim}=..., or all "
                    f"of the shape with {self._advice(declared)}"
                )
        if unnamed:
            are = (
                "s {} are open and have no names" if unnamed[1:] else " {} is open and has no name"
            )
            numbers = " and ".join(map(str, unnamed))
            self.mistakes.add(
                f'dimension{are.format(numbers)} in input "{declared.name}" '
                f"({format_dims(declared.dims)}): give the whole shape with "
                f"{self._advice(declared)}"
            )
        return tuple(shape)

    def _advice(self, declared: _Declared) -> str:
        """Return the option that says a whole shape, with question marks for what is not known."""
        sizes = []
        for axis, dim in enumerate(declared.dims or ()):
            size = self.sizes.get(dim) if isinstance(dim, str) else dim
            is_batch = axis == self.batch_axes.get(declared.name)
            if size is None and isinstance(dim, str) and _BATCH.match(dim):
                is_batch = True
            sizes.append("1" if is_batch else format_dims([size]))
        return f"--input {declared.name}={'x'.join(sizes)}"


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
        # Some exporters write 0, -1 or a question mark for a dimension that is open.
        name = dim.dim_param if _NAME.search(dim.dim_param) else None
        dims.append(dim.dim_value if dim.dim_value > 0 else name)
    return _Declared(proto.name, dims, tensor.elem_type or 1)


def _is_open(declared: _Declared) -> bool:
    """Whether the dimension that is the batch, unless names say otherwise, has no size."""
    if not declared.dims or declared.leading is None:
        return False
    return not isinstance(declared.dims[declared.leading], int)


def _is_state(declared: _Declared) -> bool:
    """Whether it is layers x batch x features, of which the batch alone is open, without a name."""
    dims = declared.dims or []
    return len(dims) == 3 and dims[1] is None and None not in (dims[0], dims[2])


def _weights(graph: Any) -> set[str]:
    """Return the names that operators read as their weights."""
    return {
        node.input[index]
        for node in graph.node
        for index in _WEIGHTS.get(node.op_type, ())
        if index < len(node.input)
    }


def _sequences(graph: Any) -> set[str]:
    """Return the names of sequences that recurrent layers read with the batch second."""
    return {
        node.input[0]
        for node in graph.node
        if node.op_type in ("LSTM", "GRU", "RNN")
        and node.input
        and not any(each.name == "layout" and each.i for each in node.attribute)
    }


def _fixed_batch(inputs: Sequence[Input], leading: dict[str, int | None]) -> list[Input]:
    """Return inputs of fixed sizes with the batch found: the first dimension of the first."""
    fed = [each for each in inputs if not each.is_weight and each.shape]
    first = next((each for each in fed if len(each.shape) > 1), next(iter(fed), None))
    if first is None:
        return list(inputs)
    batch = first.shape[leading[first.name] or 0]
    result = []
    for each in inputs:
        at = leading[each.name]
        # An initial state is layers x batch x features.
        if at is not None and batch in each.shape[at:2]:
            each = replace(each, batch_axis=each.shape.index(batch, at))
        result.append(each)
    return result


def format_dims(dims: Sequence[Dimension]) -> str:
    """Return dimensions as text, with names and question marks for what is open."""
    return "x".join("?" if dim is None else str(dim) for dim in dims)
