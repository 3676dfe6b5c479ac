"""The contract of a layer type, and the registry of them.

A layer knows shapes, parameters and the operations of each pass. It holds only what its
net file says; batch size, input shapes and element size are arguments. To add a type:
one subclass of Layer in a file of this folder, its keys declared with `key`, registered
with `@layer_type("Name")`. The folder finds its files by itself.

What others ask of a layer, whether it is pointwise or a loss, it says by its traits (`is_...` and
the like, below): nobody asks for its type. Their defaults are right, if not the quickest, for a
type that says nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar, NoReturn, TypeVar, dataclass_transform

from paleo.core.frozen import NamedTuple
from paleo.core.operations import Kind, Operation, Pass, Stream
from paleo.core.quantity import Quantity, every, is_array
from paleo.core.registry import Registry
from paleo.core.strides import Strides
from paleo.core.tensor import Shape, Shapes, format_shape, num_elements
from paleo.net.layers.fields import Key, key

Operations = tuple[Operation, ...]


_Self = TypeVar("_Self", bound="Layer")


class ShapeError(ValueError):
    """Inputs that do not fit a layer; `key` names the key to mend, where it is one."""

    def __init__(self, message: str, key: str | None = None) -> None:
        super().__init__(message)
        self.key = key


class MemoryNeeds(NamedTuple):
    """What a layer needs in memory besides its output and its gradients.

    `inputs` (by position) and `output` are what its backward pass needs, so that they stay.
    `own` are bytes of tensors that it makes on the way and that stay too; what it makes for
    the backward pass alone, such as a mask, is `saved`. `forward` and `backward` are bytes
    that a pass takes and gives back at its end. A `view` is in the memory of its first input.
    Of the inputs `aliased`, the gradient is that of the output as it is, or, where `pieces`
    says so, a piece of it each. Where it `ends`, no gradient goes on.
    """

    inputs: tuple[int, ...] = ()
    output: bool = False
    own: Quantity = 0
    saved: Quantity = 0
    forward: Quantity = 0
    backward: Quantity = 0
    view: bool = False
    aliased: tuple[int, ...] = ()
    pieces: bool = False
    ends: bool = False


class Message(NamedTuple):
    """What the devices of a group exchange in one go: an operation, and bytes as NCCL counts them.

    They are what each has before a reduction or an all-to-all, and what each has after an
    all-gather. What is sent `beside` the products that read a tensor need not be waited for.
    """

    operation: str
    num_bytes: Quantity
    group: str
    beside: bool = False


#: The axis of a tensor of which each device has a term: the sum of all is the tensor.
TERMS = -1


class Divided(NamedTuple):
    """What one of several devices does of a layer, and how they have its output.

    They divide it in the dimension `axis`; None: each has all of it, TERMS: a term of it.
    """

    layer: Layer
    axis: int | None = None


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
    #: What it keeps for its backward pass, where that is the same for all shapes.
    kept: ClassVar[MemoryNeeds | None] = None
    #: How many parents it takes: (least, most); no upper bound if None.
    num_parents: ClassVar[tuple[int, int | None]] = (1, 1)

    # Traits: what others ask of a layer, in place of its type. These are the defaults.

    #: Whether samples come in here: its first dimension is the batch.
    is_input: ClassVar[bool] = False
    #: Whether that is what a stage before made, which wants the gradient of it back.
    wants_gradient: ClassVar[bool] = False
    #: Whether it is known what it does; else, some of its operations are Unpriced.
    is_known: ClassVar[bool] = True
    #: Whether it takes each element by itself, so that it can run in the kernel before it.
    is_pointwise: ClassVar[bool] = False
    #: Whether it takes statistics of the batch in training; in inference it is pointwise.
    takes_statistics: ClassVar[bool] = False
    #: Whether it hands its input on as it is in inference, as dropout does.
    is_training_only: ClassVar[bool] = False
    #: Whether its output always has its first input's shape.
    keeps_shape: ClassVar[bool] = False
    #: Whether its output is all of its input, where that is in memory.
    is_view: ClassVar[bool] = False
    #: Whether it hands on a part of what it reads: gradients of several parts are no sum.
    takes_part: ClassVar[bool] = False
    #: Whether its output's elements are some of its inputs', or zeros, and nothing is computed.
    only_moves: ClassVar[bool] = False
    #: Whether its kernels take inputs in whatever order their elements lie.
    takes_any_order: ClassVar[bool] = False
    #: Whether its output is its inputs one behind the other.
    joins: ClassVar[bool] = False
    #: Whether behind its first operation there may be that of a bias.
    adds_bias: ClassVar[bool] = False
    #: Whether filters slide over its input, by an algorithm that can be chosen.
    is_convolution: ClassVar[bool] = False
    #: Whether it is the way back of such a convolution.
    is_transposed: ClassVar[bool] = False
    #: Whether it is attention as one kernel, which libraries have several of.
    is_attention: ClassVar[bool] = False
    #: Whether it takes rows of its parameters by their numbers.
    looks_up: ClassVar[bool] = False
    #: What it is to a serving program, which joins layers in kernels of its own: a "product", a
    #: "match" of two inputs, a "sum", "norm", "rotation", "score" or "scan", or of experts
    #: "dispatch", "experts" and "combine".
    serves_as: ClassVar[str] = ""
    #: Whether devices exchange messages there.
    is_exchange: ClassVar[bool] = False
    #: Whether it gives each expert as many places for rows, of which some may stay empty.
    pads: ClassVar[bool] = False
    #: Whether it picks, by scores, where rows go.
    picks: ClassVar[bool] = False
    #: Of devices that share a tensor: whose parts it brings together and does not keep, and among
    #: which it divides a sum.
    gathers: ClassVar[int] = 1
    scatters: ClassVar[int] = 1
    #: Whether it judges results, so that who runs the net has what it reads; in training, as loss.
    is_judge: ClassVar[bool] = False
    is_loss: ClassVar[bool] = False

    @property
    def leads(self) -> bool:
        """Whether its kernels take on pointwise layers that read what they make."""
        return False

    @property
    def parts(self) -> tuple[Layer, ...]:
        """The layers that run one after the other as this one, which joins them."""
        return (self,)

    @property
    def orders_channels_last(self) -> bool:
        """Whether it takes images with their channels side by side in memory, and gives them so."""
        return False

    def index_limit(self, k: int, inputs: Shapes) -> int | None:
        """Return below what the whole numbers are that input k is; None if it is no indices."""
        return None

    def viewed(self, shape: Shape, strides: Strides) -> Strides | None:
        """Return the strides of its output where that is its input's memory; else None."""
        return None

    def viewed_back(self, shape: Shape, strides: Strides) -> Strides | None:
        """Return the strides of its input's gradient where that is its output's; else None.

        The gradient of its output has these strides; `shape` is its input's.
        """
        return None

    def in_steps(self, wide: bool) -> Layer:
        """Return what stands for it where no kernel does all of it, its sums in fp32 if `wide`."""
        return self

    def keeping_shape(self) -> Layer:
        """Return what stands for it where no layer has one output a sample by habit of 2017."""
        return self

    def of_shape(self, shape: Shape) -> Layer:
        """Return an input of samples of another shape, batch first; any other layer is as it is."""
        return self

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
    def infer_shape(self, inputs: Shapes) -> Shape:
        """Return the output's shape; raises ShapeError if the inputs do not fit."""

    def num_params(self, inputs: Shapes) -> int:
        """Return the number of trainable parameters."""
        return 0

    def stored_bytes(self, inputs: Shapes, element_size: int) -> int:
        """Return the bytes of its parameters as they are stored for inference."""
        return element_size * self.num_params(inputs)

    def cached(self, inputs: Shapes) -> int:
        """Return the numbers that it keeps of each position for later ones: its keys and values."""
        return 0

    def state(self, inputs: Shapes) -> int:
        """Return the bytes that it keeps of a sequence for its next position, whatever its length.

        None but layers that scan have any.
        """
        return 0

    def num_tensors(self, inputs: Shapes) -> int:
        """Return how many tensors its parameters are: one by default, if it has any."""
        return int(self.num_params(inputs) > 0)

    def filters(self, inputs: Shapes) -> tuple[int, ...]:
        """Return the dimensions of the filters that it learns, () if none: K x C x ... x R x S."""
        return ()

    def multiplied_by(self, inputs: Shapes) -> tuple[int, int, int] | None:
        """Return how many matrices it multiplies rows by, their rows and columns: D and K.

        None where it does not, or they are not trained.
        """
        return None

    def with_loss(self) -> Layer | None:
        """Return it with a softmax cross entropy of its output in one; None where there is none."""
        return None

    def buffers(self, inputs: Shapes) -> tuple[int, ...]:
        """Return the elements of each tensor that it remembers and that is not trained."""
        return ()

    def operations(self, direction: Pass, inputs: Shapes, element_size: int) -> Operations:
        """Return what the device does in this pass; nothing for a view of its input.

        Nobody asks for the gradient of parameters where there are none.
        """
        return ()

    def messages(self, direction: Pass, inputs: Shapes, element_size: int) -> tuple[Message, ...]:
        """Return what devices that share the net exchange in this pass."""
        return ()

    def input_gradient(
        self, inputs: Shapes, element_size: int, needed: tuple[bool, ...]
    ) -> Operations:
        """Return what the device does for the gradients of those inputs that are `needed`.

        By default what it does for all of them.
        """
        return self.operations(Pass.INPUT_GRADIENT, inputs, element_size)

    def gradients_apart(
        self, inputs: Shapes, element_size: int, needed: tuple[bool, ...]
    ) -> Operations:
        """Return what `input_gradient` does where each step of its formula is a kernel.

        So it is by the rules of PyTorch's autograd (tools/autograd/derivatives.yaml).
        """
        return self.input_gradient(inputs, element_size, needed)

    def following(self, before: Shapes, after: Shapes) -> Layer:
        """Return this layer for other inputs: what followed from the old ones follows from these.

        Keys that could be derived, such as the channels that a filter takes, are; what the
        layer was asked for stays. By default that is all of it. Raises ShapeError where neither
        can be told from the other.
        """
        return self

    def keeps(self, inputs: Shapes, element_size: int, needed: tuple[bool, ...]) -> MemoryNeeds:
        """Return what it needs in memory, where the gradients of the inputs `needed` are computed.

        By default the most: a type that does not say keeps its inputs and its output. Those
        of this package keep what PyTorch's operators do (its tools/autograd/derivatives.yaml).
        """
        return self.kept or MemoryNeeds(inputs=tuple(range(len(inputs))), output=True)

    def across(self, inputs: Shapes) -> Collection[int] | None:
        """Return the dimensions, counted from the last (-1), whose elements it takes together.

        None are those of all: nothing is known. In the others each is taken by itself.
        """
        return () if self.is_pointwise else None

    def divided(self, ways: int, inputs: Shapes, axes: tuple[int | None, ...]) -> Divided | None:
        """Return what one of so many devices does where its inputs are divided in these `axes`.

        `inputs` are the whole shapes. None where it cannot do its part without the others'. By
        default it can where no dimension that is divided is one that it goes `across`.
        """
        across = self.across(inputs)
        if all(axis is None for axis in axes):
            return Divided(self)
        if across is None or TERMS in axes:
            return None
        behind = {
            axis - len(shape) for axis, shape in zip(axes, inputs, strict=True) if axis is not None
        }
        if len(behind) > 1 or behind.intersection(across):
            return None
        (place,) = behind
        for shape, axis in zip(inputs, axes, strict=True):
            if axis is None and len(shape) >= -place and not is_one(shape[place]):
                return None  # it has all where the others have a part
        return Divided(self, max(map(len, inputs)) + place)

    def split(self, ways: int, inputs: Shapes) -> Divided | None:
        """Return what one of so many devices does with its part of the parameters.

        All of them have the inputs. None where its parameters do not divide by itself.
        """
        return None

    def by_positions(self, keys: int, ways: int) -> tuple[int, Layer]:
        """Return how many keys a query sees that has one of so many parts of the positions.

        Attention says; any other layer is as it is.
        """
        return keys, self

    @property
    def num_experts_held(self) -> int:
        """How many experts have parameters here; 0 where there are none."""
        return 0

    def held_by(self, ways: int) -> Layer:
        """Return what one of so many devices has that share its experts; any other is as it is."""
        return self

    def busiest(self, ways: int) -> tuple[Layer, float]:
        """Return what the one of them has that most rows go to, and how many times an even share.

        As devices wait for each other at each layer, a step takes as long as its.
        """
        return self.held_by(ways), 1.0

    def spread_over(self, load: Any, capacity: Any, experts: int) -> Layer:
        """Return the layer where experts have such loads, or places; any other is as it is."""
        return self

    def padded(self, multiple: int) -> Layer:
        """Return this layer with words added until their number divides by `multiple`.

        A layer whose parameters are no vocabulary is as it is.
        """
        return self

    def shard(self, splits: int) -> Layer:
        """Return the slice of this layer that one of `splits` devices holds.

        Layers without output channels of their own are the same in every slice.
        """
        return self


LAYERS: Registry[type[Layer]] = Registry("layer type", "paleo.layers")

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


def batch_of(inputs: Shapes) -> Quantity:
    """Return the batch of several inputs, of which some may be the same for every sample.

    Those have a first dimension of 1, and take part as if they were repeated.
    """
    return next((shape[0] for shape in reversed(inputs) if not is_one(shape[0])), 1)


def is_one(size: Quantity) -> bool:
    """Tell whether a dimension is 1, so that it is repeated; an array of batches is not."""
    return not is_array(size) and bool(size == 1)


def are_same(*shapes: Shape) -> bool:
    """Tell whether shapes, or parts of them, are equal, of arrays in all elements."""
    first, *others = shapes
    return all(
        len(first) == len(other) and all(every(a == b) for a, b in zip(first, other, strict=True))
        for other in others
    )


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


def tensor_bytes(shapes: Shapes, element_size: int) -> tuple[Quantity, ...]:
    """Return the bytes of a tensor of each shape."""
    return tuple(element_size * num_elements(shape) for shape in shapes)


def stream(
    kind: Kind,
    direction: Pass,
    shape: Shape,
    element_size: int,
    reads: int = 1,
    *,
    row: Quantity = 0,
    **said: Any,
) -> Operations:
    """Return an operation that reads tensors of this shape, so many, and writes one.

    It sums up rows of `row` elements; what else is `said` are fields of Stream.
    """
    size = element_size * num_elements(shape)
    row_bytes = element_size * row
    return (Stream(kind, (size,) * reads, (size,), row=row_bytes, direction=direction, **said),)


def parameter_stream(
    kind: Kind, shape: Shape, num_params: int, element_size: int, reads: int = 1, **said: Any
) -> Operations:
    """Return the sums over `reads` tensors of this shape that are the parameters' gradient."""
    read = element_size * num_elements(shape)
    written = (element_size * num_params,)
    return (Stream(kind, (read,) * reads, written, direction=Pass.WEIGHT_GRADIENT, **said),)


def bias_stream(direction: Pass, output: Shape, num_biases: int, element_size: int) -> Operations:
    """Return the pass that adds biases to an output, or that sums up their gradient."""
    if not num_biases or direction is Pass.INPUT_GRADIENT:
        return ()
    if direction is Pass.FORWARD:
        return stream(Kind.BIAS, direction, output, element_size)
    return parameter_stream(Kind.BIAS, output, num_biases, element_size)


class Copying(Layer):
    """A pass over memory that reads its inputs and writes its output, and back."""

    kept: ClassVar[MemoryNeeds | None] = MemoryNeeds()
    #: What its operations are, and what they are called if not as the type is.
    kind: ClassVar[Kind] = Kind.COPY
    label: ClassVar[str] = ""

    def operations(self, direction: Pass, inputs: Shapes, element_size: int) -> Operations:
        reads = tensor_bytes(inputs, element_size)
        writes = tensor_bytes((self.infer_shape(inputs),), element_size)
        if direction is Pass.INPUT_GRADIENT:
            reads, writes = writes, reads
        label = self.label or self.type_name.lower()
        return (Stream(self.kind, reads, writes, direction=direction, label=label),)
