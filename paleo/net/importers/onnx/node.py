"""A node of an ONNX graph and the tensors it reads, as the operators' functions see them."""

from __future__ import annotations

import importlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from paleo.core.tensor import format_shape
from paleo.net.importers.base import OperatorError, register
from paleo.net.importers.builder.builder import Builder
from paleo.net.importers.builder.layout import Value

Array = NDArray[Any]
Shape = tuple[int, ...]

#: Elements of a tensor whose numbers are followed; beyond, its shape is all that is known.
LARGEST = 2**20
#: TensorProto's numbers of whole numbers and of text, and of a tensor outside the file.
INT64, STRING = 7, 8
_EXTERNAL = 1


class NotUnderstoodError(Exception):
    """Raised by an operator for what Paleo has no layer for."""


class InsideError(OperatorError):
    """Raised where a graph that a node holds went wrong; what did is noted already."""


@dataclass(slots=True)
class Tensor:
    """What a name in the graph stands for.

    It is numbers, a parameter of the net, or what the Builder made of one; `key` names the
    tensor in the file that it is, maybe with its dimensions in another order.
    """

    shape: Shape
    dtype: int = 1
    made: Value | None = None
    key: str | None = None
    trainable: bool = False
    #: Whether it stands among the weights though it is none: all that read it read the same.
    untrained: bool = False
    array: Array | None = None
    proto: Any = None
    #: The element type of what it is computed from, if it stands for stored numbers of few bits.
    stored: int | None = None
    #: The tensors in it, if it is a sequence.
    items: tuple[Tensor, ...] | None = None
    #: Why its numbers are not known, where they are not.
    why: str = "computed from what the net reads"

    @property
    def size(self) -> int:
        """How many elements it has."""
        return prod(self.shape)

    @property
    def is_constant(self) -> bool:
        """Whether it is neither a parameter nor computed from parameters or inputs."""
        return self.made is None and not self.trainable

    def numbers(self) -> Array | None:
        """Return its numbers, where they are known and not too many."""
        if self.array is None and self.proto is not None:
            proto, self.proto = self.proto, None
            if proto.data_location == _EXTERNAL:
                self.why = "stored outside the file"
            elif proto.data_type != STRING and self.size <= LARGEST:
                helper = importlib.import_module("onnx.numpy_helper")
                try:
                    self.array = np.asarray(helper.to_array(proto))
                except (KeyError, TypeError, ValueError) as error:
                    raise OperatorError(
                        f'tensor "{proto.name}" does not hold what it says: {one_line(error)}'
                    ) from None
        return self.array

    def value(self, builder: Builder) -> Value:
        """Return what the Builder knows it as."""
        if self.items is not None:
            raise OperatorError("it reads a sequence where a tensor should be")
        if self.made is not None:
            return self.made
        if self.trainable and self.key is not None:
            return builder.parameter(self.key, self.shape)
        if self.untrained:
            return builder.parameter(f"constants/{self.key}", self.shape, trainable=False)
        return builder.constant(self.shape)


Output = Value | Tensor | None
#: What an operator gives: its outputs in order, or the only one.
Result = Value | Tensor | Sequence[Output]
Operator: TypeAlias = "Callable[[Node], Result]"

#: What is understood, by (domain, operator).
OPERATORS: dict[tuple[str, str], Operator] = {}


def operator(*names: str, domain: str = "") -> Callable[[Operator], Operator]:
    """Register a function as what these operators are."""
    return register(OPERATORS, *((domain, name) for name in names))


_PREFIXES = re.compile(r"^(\[[^\]]*\]|\((op_type|node)[^)]*\)|[:\s])+")


def one_line(error: object) -> str:
    """Return what a library says, without its own prefixes, as one line."""
    text = " ".join(str(error).split())
    return (_PREFIXES.sub("", text) or type(error).__name__)[:300].rstrip(". ")


@dataclass
class Context(ABC):
    """What stands around a node: the Builder, the tensors by name, and who reads them."""

    builder: Builder
    #: The boxes that non-maximum suppression keeps of an image, if that was said.
    proposals: int | None = field(default=None, init=False)
    tensors: dict[str, Tensor] = field(default_factory=dict, init=False)
    #: How often each name is read.
    uses: dict[str, int] = field(default_factory=dict, init=False)
    #: Values that the net ends in too, so that nothing before them is dropped.
    kept: list[Value] = field(default_factory=list, init=False)
    #: MatMul nodes and the Add after each that is its bias, by the names they give.
    biases: dict[str, Any] = field(default_factory=dict, init=False)
    #: What such an Add gives, with what its MatMul gives.
    merged: dict[str, str] = field(default_factory=dict, init=False)

    @abstractmethod
    def inside(self, graph: Any, name: str, inputs: Sequence[Tensor] = ()) -> list[Tensor]:
        """Return what a graph that a node holds gives for these inputs.

        Its layers have names that begin with `name`. Raises InsideError if anything goes wrong.
        """

    @abstractmethod
    def attempt(self) -> AbstractContextManager[None]:
        """Forget what goes wrong in a block, which then ends."""

    def bias_after(self, name: str, features: int) -> Tensor | None:
        """Return the bias that the next node adds to `name`; that node then does nothing."""
        proto = self.biases.get(name)
        if proto is None:
            return None
        bias = self.tensors[next(each for each in proto.input if each != name)]
        if not (bias.trainable and bias.size == features == bias.shape[-1]):
            return None
        self.merged[proto.output[0]] = name
        return bias


class Node:
    """One operator of the graph, as the functions in `OPERATORS` see it."""

    def __init__(self, context: Context, proto: Any, name: str, version: int) -> None:
        self.context = context
        self.builder = context.builder
        self.proto = proto
        self.op: str = proto.op_type
        self.domain: str = plain_domain(proto.domain)
        self.name = name
        self.version = version
        self.inputs: list[Tensor | None] = []
        #: Shape and element type of every output, each None where onnx does not infer it.
        self.inferred: list[tuple[Shape | None, int | None]] = []
        self._attributes = {attribute.name: attribute for attribute in proto.attribute}

    def attribute(self, name: str) -> Any:
        """Return the protocol buffer of an attribute, or None."""
        return self._attributes.get(name)

    def integer(self, name: str, default: Any) -> Any:
        """Return an attribute that is a whole number."""
        found = self.attribute(name)
        return default if found is None else int(found.i)

    def real(self, name: str, default: float) -> float:
        """Return an attribute that is a number."""
        found = self.attribute(name)
        return default if found is None else float(found.f)

    def text(self, name: str, default: str = "") -> str:
        """Return an attribute that is text."""
        found = self.attribute(name)
        return default if found is None else found.s.decode("utf-8", "replace")

    def integers(self, name: str, default: Any, count: int | None = None) -> Any:
        """Return an attribute that is a list of whole numbers, `count` of them."""
        found = self.attribute(name)
        if found is None:
            return default
        numbers = [int(each) for each in found.ints]
        if count is not None and len(numbers) != count:
            raise OperatorError(f"{name} has {len(numbers)} entries, not {count}: {numbers}")
        return numbers

    def has(self, index: int) -> bool:
        """Whether there is an input at this position; some are optional."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def wants(self, index: int) -> bool:
        """Whether anything reads the output at this position."""
        return index < len(self.proto.output) and self.proto.output[index] in self.context.uses

    def tensor(self, index: int) -> Tensor:
        """Return an input."""
        found = self.inputs[index] if index < len(self.inputs) else None
        if found is None:
            raise OperatorError(f"{self.op} has no input {index}")
        return found

    def shape(self, index: int = 0) -> Shape:
        """Return the shape of an input."""
        return self.tensor(index).shape

    def shape_of(self, index: int, *ranks: int) -> Shape:
        """Return the shape of an input, which has one of these numbers of dimensions."""
        shape = self.shape(index)
        if len(shape) not in ranks:
            many = " or ".join(map(str, ranks))
            raise OperatorError(
                f"{self.op} reads {format_shape(shape) or 'a number'} where a tensor of {many} "
                "dimensions should be"
            )
        return shape

    def value(self, index: int = 0) -> Value:
        """Return an input as the Builder knows it."""
        return self.tensor(index).value(self.builder)

    def weight(self, index: int, shape: Shape | None = None) -> Value:
        """Return an input as a parameter, also where the file has it as a constant.

        `shape` is how the layer sees it, if its dimensions stand in another order there.
        """
        tensor = self.tensor(index)
        if tensor.made is not None or tensor.key is None:
            return self._reordered(tensor.value(self.builder), shape)
        return self.builder.parameter(tensor.key, tensor.shape if shape is None else shape)

    def _reordered(self, value: Value, shape: Shape | None) -> Value:
        """Return a part of a weight as a layer sees it."""
        if shape is None or shape == value.shape:
            return value
        if shape == value.shape[::-1] and len(shape) == 2:
            return self.builder.transpose(self.name, value, [1, 0])
        return self.builder.reshape(self.name, value, shape)

    def optional(self, index: int) -> Value | None:
        """Return an input as a parameter if it is there."""
        return self.weight(index) if self.has(index) else None

    def factor(self, index: int) -> Value | None:
        """Return the scale or the shift of a normalization, if there is one.

        Exporters write one that neither scales nor shifts with constants of ones and zeros.
        """
        tensor = self.tensor(index) if self.has(index) else None
        if tensor is not None and tensor.is_constant:
            numbers = tensor.numbers()
            if numbers is not None and (numbers == numbers.reshape(-1)[:1]).all():
                return None
        return self.optional(index)

    def is_weight(self, index: int) -> bool:
        """Whether an input is a tensor that stands in the file, as weights do."""
        tensor = self.tensor(index)
        if tensor.made is not None:
            held = tensor.made.tensor
            return held is not None and held.trainable
        return tensor.key is not None

    def numbers(self, index: int, what: str) -> list[Any]:
        """Return the numbers of an input, whose part in the operator is `what`."""
        tensor = self.tensor(index)
        numbers = tensor.numbers()
        if numbers is None:
            raise OperatorError(f"{self.op} needs the numbers of {what}, which are {tensor.why}")
        return list(numbers.reshape(-1).tolist())

    def axes(self, index: int = 1) -> list[int] | None:
        """Return the axes, an attribute in old models and an input in new ones."""
        if self.has(index):
            return [int(axis) for axis in self.numbers(index, "its axes")] or None
        axes: list[int] | None = self.integers("axes", None)
        return axes or None

    def output_shape(self, index: int = 0) -> Shape:
        """Return the shape of an output; raises OperatorError if it is not known."""
        shape = self.inferred[index][0] if index < len(self.inferred) else None
        if shape is None:
            for tensor in self.inputs[1:]:
                if tensor is not None and tensor.is_constant and tensor.numbers() is None:
                    raise OperatorError(f"{self.op} needs numbers that are {tensor.why}")
            raise OperatorError(
                f"the shape of what {self.op} gives depends on what the net reads, or is unknown"
            )
        return shape

    def keep(self, *indices: int) -> None:
        """Keep what inputs are computed by, though the Builder is not told that they are read."""
        for index in indices:
            made = self.tensor(index).made if self.has(index) else None
            if made is not None and made.batched:
                self.context.kept.append(made)


def plain_domain(domain: str) -> str:
    """Return a domain; ONNX's own has two names."""
    return "" if domain == "ai.onnx" else domain


def graphs_in(attribute: Any) -> list[Any]:
    """Return the graphs that an attribute of a node holds."""
    return [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]


def reads(proto: Any) -> list[str]:
    """Return the names that a node reads, those of graphs inside it included."""
    names = [name for name in proto.input if name]
    for attribute in proto.attribute:
        for graph in graphs_in(attribute):
            inner = {each.name for each in (*graph.initializer, *graph.input)}
            read = [each.name for each in graph.output]
            for node in graph.node:
                read += reads(node)
                inner.update(node.output)
            names += [name for name in read if name not in inner]
    return names
