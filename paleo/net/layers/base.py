"""The contract of a layer type, and the registry of them.

A layer knows shapes, parameters and the operations of each pass. It holds only what its
net file says; batch size, input shapes and element size are arguments. To add a type:
one subclass of Layer in a file of this folder, its keys declared with `key`, registered
with `@layer_type("Name")`, and the file imported in `paleo/layers/__init__.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, NoReturn, TypeVar, dataclass_transform

from paleo.layers.keys import Key, key
from paleo.quantity import Quantity, is_array
from paleo.registry import Registry
from paleo.tensor import Shape, format_shape, num_elements
from paleo.work import Operation, Pass, Stream

__all__ = ["LAYERS", "Kept", "Layer", "ShapeError", "layer_type"]

Operations = tuple[Operation, ...]


_Self = TypeVar("_Self", bound="Layer")


class ShapeError(ValueError):
    """Inputs that do not fit a layer; `key` names the key to mend, where it is one."""

    def __init__(self, message: str, key: str | None = None) -> None:
        super().__init__(message)
        self.key = key


class Kept(NamedTuple):
    """What a layer needs in memory besides its output and its gradients.

    `inputs` (by position) and `output` are what its backward pass needs, so that they stay.
    `own` are bytes of tensors that it makes on the way and that stay too; what it makes for
    the backward pass alone, such as a mask, is `saved`. `forward` and `backward` are bytes
    that a pass takes and gives back at its end. A `view` is in the memory of its first input.
    Of the inputs `handed`, the gradient is that of the output as it is, or, where `pieces`
    says so, a piece of it each. Where it `ends`, no gradient goes on.
    """

    inputs: tuple[int, ...] = ()
    output: bool = False
    own: Quantity = 0
    saved: Quantity = 0
    forward: Quantity = 0
    backward: Quantity = 0
    view: bool = False
    handed: tuple[int, ...] = ()
    pieces: bool = False
    ends: bool = False


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(key,))
class Layer(ABC):
    """One layer of a net, without its name and parents.

    A frozen value: two layers of one type are equal if all their keys are. It is made from
    its keys by name, and `replace` makes another. (A dataclass for each type does the same,
    but compiles half a dozen functions for each whenever Paleo starts.)
    """

    #: The keys of this type, by name: those that the class and its bases declare.
    keys: ClassVar[Mapping[str, Key]] = {}
    #: The `type` in a net file.
    type_name: ClassVar[str] = ""
    #: How many parents it takes: (least, most); no upper bound if None.
    num_parents: ClassVar[tuple[int, int | None]] = (1, 1)
    #: Whether samples come in here: its first dimension is the batch.
    is_input: ClassVar[bool] = False
    #: Whether it is known what it does; else, some of its operations are Unpriced.
    is_known: ClassVar[bool] = True

    @classmethod
    def is_source(cls) -> bool:
        """Tell whether the type takes no parents."""
        return cls.num_parents == (0, 0)

    def __init_subclass__(cls) -> None:
        own = {name: value for name, value in vars(cls).items() if isinstance(value, Key)}
        cls.keys = {**cls.keys, **own}
        for name in own:
            delattr(cls, name)

    def __init__(self, **values: Any) -> None:
        for name, declared in self.keys.items():
            if name not in values and declared.required:
                raise TypeError(f"{type(self).__name__} needs {name}")
            self.__dict__[name] = values.pop(name, declared.default)
        if values:
            raise TypeError(f"{type(self).__name__} has no {', '.join(values)}")

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"a layer is frozen: cannot set {name}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a layer is frozen: cannot delete {name}")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), *vars(self).values()))

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({values})"

    def replace(self: _Self, **values: Any) -> _Self:
        """Return this layer with other values for some of its keys."""
        return type(self)(**{**vars(self), **values})

    @abstractmethod
    def infer_shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """Return the output's shape; raises ShapeError if the inputs do not fit."""

    def num_params(self, inputs: tuple[Shape, ...]) -> int:
        """Return the number of trainable parameters."""
        return 0

    def operations(
        self, direction: Pass, inputs: tuple[Shape, ...], element_size: int
    ) -> Operations:
        """Return what the device does in this pass; nothing for a view of its input."""
        return ()

    def input_gradient(
        self, inputs: tuple[Shape, ...], element_size: int, needed: tuple[bool, ...]
    ) -> Operations:
        """Return what the device does for the gradients of those inputs that are `needed`.

        By default what it does for all of them.
        """
        return self.operations(Pass.INPUT_GRADIENT, inputs, element_size)

    def following(self, before: tuple[Shape, ...], after: tuple[Shape, ...]) -> Layer:
        """Return this layer for other inputs: what followed from the old ones follows from these.

        Keys that could be derived, such as the channels that a filter takes, are; what the
        layer was asked for stays. By default that is all of it. Raises ShapeError where neither
        can be told from the other.
        """
        return self

    def keeps(self, inputs: tuple[Shape, ...], element_size: int, needed: tuple[bool, ...]) -> Kept:
        """Return what it needs in memory, where the gradients of the inputs `needed` are computed.

        By default the most: a type that does not say keeps its inputs and its output. Those
        of this package keep what PyTorch's operators do (its tools/autograd/derivatives.yaml).
        """
        return Kept(inputs=tuple(range(len(inputs))), output=True)

    def shard(self, splits: int) -> Layer:
        """Return the slice of this layer that one of `splits` devices holds.

        Layers without output channels of their own are the same in every slice.
        """
        return self


LAYERS: Registry[type[Layer]] = Registry("layer type")

_L = TypeVar("_L", bound=type[Layer])


def layer_type(name: str) -> Callable[[_L], _L]:
    """Register a layer class under the `type` it has in net files."""

    def register(cls: _L) -> _L:
        cls.type_name = name
        LAYERS.add(name, cls)
        return cls

    return register


#: A tensor has no more dimensions than this.
_MAX_RANK = 8
#: The spatial dimensions of an image, a sequence and a volume, for messages.
_SPATIAL = {1: "L", 2: "H x W", 3: "D x H x W"}


def image(shape: Shape, rank: int) -> tuple[Shape, tuple[Any, ...], Any]:
    """Return the batch, the `rank` spatial dimensions and C of a tensor, channels last.

    Dimensions before the spatial ones belong to the batch: (N,), or (N, T) for the frames of
    a video. Raises ShapeError if there are too few.
    """
    if len(shape) < rank + 2:
        wanted = f"N x {_SPATIAL[rank]} x C"
        raise ShapeError(f"its input must be {wanted}, got {format_shape(shape)}")
    return shape[: -rank - 1], shape[-rank - 1 : -1], shape[-1]


def batch_of(inputs: tuple[Shape, ...]) -> Quantity:
    """Return the batch of several inputs, of which some may be the same for every sample.

    Those have a first dimension of 1, and take part as if they were repeated.
    """
    found: Quantity = 1
    for shape in inputs:
        if not is_one(shape[0]):
            found = shape[0]
    return found


def is_one(size: Quantity) -> bool:
    """Tell whether a dimension is 1, so that it is repeated; an array of batches is not."""
    return not is_array(size) and bool(size == 1)


def dimension(number: int, shape: Shape, key: str) -> int:
    """Return which dimension of a shape is meant, -1 the last; raises ShapeError if none."""
    if number >= len(shape):
        raise ShapeError(f"there is no dimension {number} in {format_shape(shape)}", key)
    return number % len(shape)


def at_most_8(shape: Shape, key: str | None = None) -> Shape:
    """Return the shape; raises ShapeError if it has more dimensions than a tensor may."""
    if len(shape) > _MAX_RANK:
        raise ShapeError(
            f"{format_shape(shape)} has {len(shape)} dimensions, {_MAX_RANK} are the most", key
        )
    return shape


def share(channels: int, splits: int, key: str) -> int:
    """Return the output channels of one slice, rounded down; raises ShapeError at zero."""
    if channels < splits:
        raise ShapeError(f"{channels} output channels cannot be split {splits} ways", key)
    return channels // splits


def stream(
    label: str,
    shape: Shape,
    element_size: int,
    reads: int = 1,
    writes: int = 1,
    *,
    row: Quantity = 0,
    passes: int = 1,
) -> Operations:
    """Return an operation that reads and writes tensors of this shape so many times.

    It sums up rows of `row` elements, and reads those that the chip cannot keep in `passes`.
    """
    size = element_size * num_elements(shape)
    row_bytes = element_size * row
    return (Stream(label, (size,) * reads, (size,) * writes, row=row_bytes, passes=passes),)


def parameter_stream(
    label: str, shape: Shape, num_params: int, element_size: int, reads: int = 1
) -> Operations:
    """Return the sums over `reads` tensors of this shape that are the parameters' gradient."""
    read = element_size * num_elements(shape)
    return (Stream(label, (read,) * reads, (element_size * num_params,)),)
