"""What devices that share a net's layers send each other: tensors summed, gathered, scattered.

They do nothing on a device; a cluster says how long a message takes. Nets have them where they are
divided (paleo.net.division): each is of a group of devices, and its gradient is another message.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from paleo.core.operations import Pass
from paleo.core.quantity import product
from paleo.core.tensor import DTYPES, Shape, Shapes, format_shape, num_elements
from paleo.net.layers.base import (
    Divided,
    Layer,
    MemoryNeeds,
    Message,
    ShapeError,
    dimension,
    layer_type,
)
from paleo.net.layers.fields import Dimension, Flag, Name, Sizes, Whole, key

#: Who exchanges: the devices that share tensors, a sequence, or experts.
GROUPS = ("tensor", "context", "expert")


class Exchange(Layer):
    """A message of a group in the forward pass, and another in the backward pass."""

    kept: ClassVar[MemoryNeeds | None] = MemoryNeeds()
    is_exchange: ClassVar[bool] = True

    group: str = key(Name(GROUPS), "who exchanges: those that share tensors, a sequence, experts")

    def infer_shape(self, inputs: Shapes) -> Shape:
        return inputs[0]

    def across(self, inputs: Shapes) -> Collection[int] | None:
        return ()

    def _message(self, operation: str, shape: Shape, size: int, beside: bool = False) -> Message:
        return Message(operation, size * num_elements(shape), self.group, beside)


@layer_type("AllReduce")
class AllReduce(Exchange):
    """The sum of a tensor over all devices of a group, or, `backward`, of its gradient alone.

    (f and g of Shoeybi et al., Megatron-LM, arXiv:1909.08053, section 3.) The sum takes the place
    of what is summed. That of gradients is sent beside the product that makes the weights'.

    Before a norm over dimensions that devices divide it is but one number of single precision for
    each row that is summed: that of its squares, and backward that of what they are multiplied by
    (vllm-project/vllm, model_executor/layers/mamba/linear_attn.py, MiniMaxText01RMSNormTP).
    """

    kept: ClassVar[MemoryNeeds | None] = MemoryNeeds(view=True, aliased=(0,))

    backward: bool = key(Flag(), "whether it is the gradient that is summed", default=False)
    squares: int = key(
        Whole(minimum=0), "last dimensions over which squares alone are summed; 0: all is",
        default=0,
    )  # fmt: skip

    def infer_shape(self, inputs: Shapes) -> Shape:
        if self.squares >= len(inputs[0]):
            raise ShapeError(f"{format_shape(inputs[0])} has no {self.squares} to sum", "squares")
        return inputs[0]

    def messages(self, direction: Pass, inputs: Shapes, element_size: int) -> tuple[Message, ...]:
        if self.squares:
            if direction is Pass.WEIGHT_GRADIENT:
                return ()
            return (self._message("all_reduce", inputs[0][: -self.squares], DTYPES["fp32"]),)
        if direction is not (Pass.INPUT_GRADIENT if self.backward else Pass.FORWARD):
            return ()
        return (self._message("all_reduce", inputs[0], element_size, beside=self.backward),)


class _Along(Exchange):
    """An exchange by which tensors become longer or shorter in one dimension."""

    dim: int = key(Dimension(), "the dimension in which devices divide the tensor")
    ways: int = key(Whole(minimum=2), "how many devices divide it")

    def across(self, inputs: Shapes) -> Collection[int] | None:
        return (dimension(self.dim, inputs[0], "dim") - len(inputs[0]),)

    def _longer(self, shape: Shape) -> Shape:
        dim = dimension(self.dim, shape, "dim")
        return (*shape[:dim], shape[dim] * self.ways, *shape[dim + 1 :])

    def _shorter(self, shape: Shape) -> Shape:
        dim = dimension(self.dim, shape, "dim")
        if shape[dim] % self.ways:
            raise ShapeError(
                f"dimension {dim} of {format_shape(shape)} is not divided {self.ways} ways", "ways"
            )
        return (*shape[:dim], shape[dim] // self.ways, *shape[dim + 1 :])


@layer_type("AllGather")
class AllGather(_Along):
    """The parts of all devices of a group, one behind the other; gradients are summed and divided.

    What is gathered is not kept: where a product before needs it for its weights' gradient, it is
    gathered again, beside the product that makes the input's (Korthikanti et al.,
    arXiv:2205.05198, section 4.2.2).
    """

    again: bool = key(
        Flag(), "whether it is gathered again in the backward pass, and not kept", default=True
    )

    @property
    def gathers(self) -> int:  # type: ignore[override]
        return self.ways if self.again else 1

    def infer_shape(self, inputs: Shapes) -> Shape:
        return self._longer(inputs[0])

    def messages(self, direction: Pass, inputs: Shapes, element_size: int) -> tuple[Message, ...]:
        whole = self.infer_shape(inputs)
        if direction is Pass.FORWARD:
            return (self._message("all_gather", whole, element_size),)
        if direction is Pass.WEIGHT_GRADIENT:
            return ()
        back = self._message("reduce_scatter", whole, element_size, beside=True)
        again = self._message("all_gather", whole, element_size, beside=True)
        return (again, back) if self.again else (back,)

    def keeps(self, inputs: Shapes, element_size: int, needed: tuple[bool, ...]) -> MemoryNeeds:
        whole = element_size * num_elements(self.infer_shape(inputs))
        # It is there twice, forward and backward, but between them only its part is.
        return (
            MemoryNeeds(view=True, forward=whole, backward=whole) if self.again else MemoryNeeds()
        )


@layer_type("ReduceScatter")
class ReduceScatter(_Along):
    """The sum of a tensor over all devices of a group, of which each keeps a part."""

    @property
    def scatters(self) -> int:  # type: ignore[override]
        return self.ways

    def infer_shape(self, inputs: Shapes) -> Shape:
        return self._shorter(inputs[0])

    def messages(self, direction: Pass, inputs: Shapes, element_size: int) -> tuple[Message, ...]:
        if direction is Pass.WEIGHT_GRADIENT:
            return ()
        operation = "reduce_scatter" if direction is Pass.FORWARD else "all_gather"
        return (self._message(operation, inputs[0], element_size),)


@layer_type("Ring")
class Ring(_Along):
    """Keys or values that pass all devices of a group, which have parts of the positions.

    Each device sees those of all, a part at a time, and keeps its own alone (H. Liu et al., "Ring
    attention with blockwise transformers for near-infinite context", arXiv:2310.01889). What it
    gives has as many positions as a query sees: `seen`, by default all. Backward they pass once
    more, and their gradients with them; messages go on beside the attention.
    """

    kept: ClassVar[MemoryNeeds | None] = MemoryNeeds(view=True)

    seen: int | None = key(
        Whole(optional=True), "positions that a query sees on average; by default all", default=None
    )

    def infer_shape(self, inputs: Shapes) -> Shape:
        whole = self._longer(inputs[0])
        dim = dimension(self.dim, whole, "dim")
        return whole if self.seen is None else (*whole[:dim], self.seen, *whole[dim + 1 :])

    def messages(self, direction: Pass, inputs: Shapes, element_size: int) -> tuple[Message, ...]:
        if direction is Pass.WEIGHT_GRADIENT:
            return ()
        one = self._message("all_gather", self._longer(inputs[0]), element_size, beside=True)
        return (one,) if direction is Pass.FORWARD else (one, one)


@layer_type("Swap")
class Swap(Exchange):
    """An all-to-all after which a device has all of one dimension, and a part of another.

    (S. Jacobs et al., "DeepSpeed Ulysses", arXiv:2309.14509, section 3.1.) The gradient goes back
    by another.
    """

    joined: int = key(Dimension(), "the dimension of which a device has all then")
    parted: int = key(Dimension(), "the dimension of which it has a part then")
    ways: int = key(Whole(minimum=2), "how many devices there are")

    def infer_shape(self, inputs: Shapes) -> Shape:
        shape = list(inputs[0])
        joined, parted = (
            dimension(getattr(self, of), inputs[0], of) for of in ("joined", "parted")
        )
        if shape[parted] % self.ways:
            raise ShapeError(
                f"dimension {parted} of {format_shape(inputs[0])} is not divided {self.ways} ways",
                "ways",
            )
        shape[joined], shape[parted] = shape[joined] * self.ways, shape[parted] // self.ways
        return tuple(shape)

    def messages(self, direction: Pass, inputs: Shapes, element_size: int) -> tuple[Message, ...]:
        if direction is Pass.WEIGHT_GRADIENT:
            return ()
        return (self._message("all_to_all", inputs[0], element_size),)


@layer_type("AllToAll")
class AllToAll(Exchange):
    """Rows that each device of a group sends to the others, as many as it gets; so gradients.

    Where one gets more than it sends, the samples' `rows` are those that come to it, or those that
    come back: the message is as long as the more of them.
    """

    rows: tuple[int, ...] | None = key(
        Sizes(min_rank=1, optional=True),
        "the rows of a sample that come, as dimensions before the last; by default as many as go",
        default=None,
    )

    def infer_shape(self, inputs: Shapes) -> Shape:
        batch, *_, features = inputs[0]
        return inputs[0] if self.rows is None else (batch, *self.rows, features)

    def divided(self, ways: int, inputs: Shapes, axes: tuple[int | None, ...]) -> Divided | None:
        found = super().divided(ways, inputs, axes)
        if self.rows is None or found is None or found.axis is None:
            return found
        last = len(inputs[0]) - 1
        if found.axis == last:
            return Divided(self, len(self.rows) + 1)
        first, *others = self.rows
        if found.axis != 1:
            return None
        return Divided(self.replace(rows=(-(-first // ways), *others)), 1)

    def messages(self, direction: Pass, inputs: Shapes, element_size: int) -> tuple[Message, ...]:
        if direction is Pass.WEIGHT_GRADIENT:
            return ()
        most = max(inputs[0], self.infer_shape(inputs), key=lambda shape: product(shape[1:]))
        return (self._message("all_to_all", most, element_size),)
