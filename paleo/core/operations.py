"""What a layer makes a device do: operations, each with its own shape, and their work.

One multiply-add is 2 FLOPs. FLOPs are counted for convolutions, matrix products (those of
attention and recurrent layers too), pooling (one for each element of each window) and
dropout (one an element). Operations that only stream through memory (activations,
normalizations, concatenation, ...) count none, as is usual in the literature, and are
priced by their bytes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import field, replace
from typing import ClassVar, NamedTuple

from paleo.core.frozen import dataclass
from paleo.core.kinds import LAYER_PASSES as LAYER_PASSES
from paleo.core.kinds import READ, READ_WITH_WEIGHTS, WRITTEN, Operand
from paleo.core.kinds import Kind as Kind
from paleo.core.kinds import Pass as Pass
from paleo.core.kinds import Role as Role
from paleo.core.quantity import Quantity, ceil_div, minimum, product
from paleo.core.window import Axis
from paleo.core.work import Work as Work

#: More keys than a tensor can have.
_NO_WINDOW = 2**31


class Operation(ABC):
    """One thing that a device is asked to do in one pass of one layer.

    Cost models go by its kind, its pass, the roles of its operands and its sizes. Its name is for
    output alone.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def kind(self) -> Kind:
        """What it is."""

    @property
    def name(self) -> str:
        """What it is called in output."""
        return self.kind.value

    @property
    @abstractmethod
    def direction(self) -> Pass:
        """What it computes: what a pass gives, or an update."""

    @property
    def dtype(self) -> str:
        """The element type that it is computed in, "" for that of the net."""
        return ""

    @property
    def layer_pass(self) -> Pass:
        """The pass of its layer in which it is done."""
        return self.direction

    @property
    @abstractmethod
    def flops(self) -> Quantity:
        """FLOPs by the module's convention."""

    @property
    @abstractmethod
    def reads(self) -> tuple[Quantity, ...]:
        """Bytes of each operand read."""

    @property
    @abstractmethod
    def writes(self) -> tuple[Quantity, ...]:
        """Bytes of each result written."""

    @property
    def roles(self) -> tuple[Role, ...]:
        """The role of each operand read, where that is not what is usual in its pass."""
        return ()

    @property
    def read_roles(self) -> tuple[Role, ...]:
        """The role of each operand read."""
        first, other = READ[self.layer_pass]
        return self.roles or (first, *[other] * len(self.reads))[: len(self.reads)]

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The operands, those read first."""
        written = WRITTEN[self.layer_pass]
        read = map(Operand, self.read_roles, self.reads)
        return (*read, *(Operand(written, size) for size in self.writes))

    @property
    def magnitude(self) -> Quantity:
        """The largest count that any cost model makes of it, to tell the absurd."""
        return max((self.flops, *self.reads, *self.writes))

    @property
    def work(self) -> Work:
        """FLOPs and bytes in one value."""
        return Work(self.flops, sum(self.reads), sum(self.writes))


def total_work(operations: tuple[Operation, ...]) -> Work:
    """Return the work of all `operations`; zero if there are none."""
    return sum((operation.work for operation in operations), Work())


@dataclass(frozen=True, slots=True)
class MatMul(Operation):
    """C[M, N] = A[M, K] B[K, N]: 2 M N K FLOPs.

    `output_size` is the bytes of an element of C where they are others than those of A and B.
    """

    m: Quantity
    n: Quantity
    k: Quantity
    element_size: int
    output_size: int = 0
    direction: Pass = Pass.FORWARD
    dtype: str = ""
    kind: ClassVar[Kind] = Kind.MATMUL

    @property
    def roles(self) -> tuple[Role, ...]:
        return READ_WITH_WEIGHTS[self.direction]

    @property
    def flops(self) -> Quantity:
        return 2 * self.m * self.n * self.k

    @property
    def reads(self) -> tuple[Quantity, ...]:
        return (self.element_size * self.m * self.k, self.element_size * self.k * self.n)

    @property
    def writes(self) -> tuple[Quantity, ...]:
        return ((self.output_size or self.element_size) * self.m * self.n,)


@dataclass(frozen=True, slots=True)
class BatchMatMul(Operation):
    """`count` products C[M, N] = A[M, K] B[K, N] of equal size: 2 M N K FLOPs each.

    Each reads its operands: the steps of a recurrent layer read their weights, B, again. `roles`
    are those of A and B where they are not the usual ones, `name` is for output. Where they
    are `dependent`, each waits for the one before.
    """

    name: str = field(compare=False)
    count: Quantity
    m: Quantity
    n: Quantity
    k: Quantity
    element_size: int
    dependent: bool = False
    direction: Pass = Pass.FORWARD
    roles: tuple[Role, ...] = ()
    dtype: str = ""
    kind: ClassVar[Kind] = Kind.MATMUL

    @property
    def flops(self) -> Quantity:
        return 2 * self.count * self.m * self.n * self.k

    @property
    def reads(self) -> tuple[Quantity, ...]:
        row = self.element_size * self.count * self.k
        return (row * self.m, row * self.n)

    @property
    def writes(self) -> tuple[Quantity, ...]:
        return (self.element_size * self.count * self.m * self.n,)

    def gradients(self) -> tuple[BatchMatMul, BatchMatMul]:
        """Return the products that give the gradients of A and of B.

        Those of A wait for one another as the products do, in the other order; those of B do not.
        """
        m, n, k = self.m, self.n, self.k
        is_weight = self.read_roles[1] is Role.WEIGHT
        to_b = Pass.WEIGHT_GRADIENT if is_weight else Pass.INPUT_GRADIENT
        of_a = (Role.OUTPUT_GRADIENT, Role.WEIGHT if is_weight else Role.KEPT)
        of_b = (Role.KEPT, Role.OUTPUT_GRADIENT)
        return (
            replace(self, n=k, k=n, direction=Pass.INPUT_GRADIENT, roles=of_a),
            replace(self, m=k, k=m, direction=to_b, roles=of_b, dependent=False),
        )


@dataclass(frozen=True, slots=True)
class GroupedMatMul(Operation):
    """Rows A[rows, K], each times one of `groups` matrices B[K, N]: 2 rows N K FLOPs.

    The rows are spread evenly, so that groups differ by one row at most. A pass back to the rows
    has N and K exchanged; the weights' gradient has those of the forward pass.
    """

    name: str = field(compare=False)
    groups: Quantity
    rows: Quantity
    n: Quantity
    k: Quantity
    element_size: int
    direction: Pass = Pass.FORWARD
    dtype: str = ""
    kind: ClassVar[Kind] = Kind.MATMUL

    @property
    def products(self) -> BatchMatMul:
        """The products of equal size that take as long: the longest group waits for no other."""
        rows = ceil_div(self.rows, self.groups)
        m, k = (self.k, rows) if self.direction is Pass.WEIGHT_GRADIENT else (rows, self.k)
        return BatchMatMul(
            self.name, self.groups, m, self.n, k, self.element_size,
            direction=self.direction, roles=READ_WITH_WEIGHTS[self.direction], dtype=self.dtype,
        )  # fmt: skip

    @property
    def roles(self) -> tuple[Role, ...]:
        return READ_WITH_WEIGHTS[self.direction]

    @property
    def flops(self) -> Quantity:
        return 2 * self.rows * self.n * self.k

    @property
    def _tensors(self) -> tuple[Quantity, Quantity, Quantity]:
        """Bytes of the rows that are read, of the matrices, and of the rows of N numbers."""
        size = self.element_size
        return (
            size * self.rows * self.k,
            size * self.groups * self.k * self.n,
            size * self.rows * self.n,
        )

    @property
    def reads(self) -> tuple[Quantity, ...]:
        first, matrices, result = self._tensors
        return (first, result if self.direction is Pass.WEIGHT_GRADIENT else matrices)

    @property
    def writes(self) -> tuple[Quantity, ...]:
        _, matrices, result = self._tensors
        return (matrices if self.direction is Pass.WEIGHT_GRADIENT else result,)


@dataclass(frozen=True, slots=True)
class Attention(Operation):
    """Scaled dot-product attention as one kernel, for `heads` times the batch.

    Each of `queries` is compared with each of `keys` over `depth` features and sums values
    of `value_depth` features; the keys and values of a head serve `sharing` heads of queries.
    The scores stay on the chip (Dao et al., FlashAttention, arXiv:2205.14135). There are two
    products forward and four backward; that a kernel computes the scores again is not
    counted, and neither is that half of the scores of a `causal` one are not needed.

    The queries of a `causal` one are the last of the keys: one query and all keys are a step of
    decoding. With a `window`, each query sees that many keys at most, up to its own place.
    `kv_size` is the bytes of an element of keys and values where they are kept in another type.
    """

    direction: Pass = field()
    heads: Quantity
    sharing: Quantity
    queries: Quantity
    keys: Quantity
    depth: Quantity
    value_depth: Quantity
    element_size: int
    causal: bool = False
    window: Quantity = 0
    kv_size: Quantity = 0
    dtype: str = ""
    kind: ClassVar[Kind] = Kind.ATTENTION

    @property
    def read_roles(self) -> tuple[Role, ...]:
        if self.direction is Pass.FORWARD:
            return (Role.INPUT, Role.EARLIER_INPUT, Role.EARLIER_INPUT)
        return (*[Role.KEPT] * 4, Role.OUTPUT_GRADIENT)

    @property
    def flops(self) -> Quantity:
        compared = self.heads * self.queries * minimum(self.keys, self.reach)
        forward = 2 * compared * (self.depth + self.value_depth)
        return forward if self.direction is Pass.FORWARD else 2 * forward

    @property
    def reach(self) -> Quantity:
        """Keys that one query sees at most: its window, or more than there can be."""
        return self.window + (self.window == 0) * _NO_WINDOW

    @property
    def seen(self) -> Quantity:
        """Keys that any of the queries sees."""
        return minimum(self.keys, self.reach + self.queries - 1)

    @property
    def key_size(self) -> Quantity:
        """Bytes of an element of the keys and values."""
        return self.kv_size + (self.kv_size == 0) * self.element_size

    @property
    def _tensors(self) -> tuple[Quantity, Quantity, Quantity, Quantity]:
        """Bytes of queries, keys, values and output."""
        rows = self.element_size * self.heads * self.queries
        shared = self.key_size * self.heads * self.seen // self.sharing
        return (
            rows * self.depth,
            shared * self.depth,
            shared * self.value_depth,
            rows * self.value_depth,
        )

    @property
    def reads(self) -> tuple[Quantity, ...]:
        tensors = self._tensors
        return tensors[:3] if self.direction is Pass.FORWARD else (*tensors, tensors[3])

    @property
    def writes(self) -> tuple[Quantity, ...]:
        return self._tensors[3:] if self.direction is Pass.FORWARD else self._tensors[:3]


@dataclass(frozen=True, slots=True)
class _Windowed(Operation):
    """An operation whose windows slide along `axes` over `batch` images."""

    direction: Pass = field()
    batch: Quantity
    axes: tuple[Axis, ...]
    in_channels: int
    out_channels: int
    element_size: int

    @property
    def window_elements(self) -> int:
        """R S."""
        return product(axis.window for axis in self.axes)

    @property
    def input_elements(self) -> Quantity:
        """N H W C."""
        return product(axis.size for axis in self.axes) * self.in_channels * self.batch

    @property
    def output_elements(self) -> Quantity:
        """N P Q K."""
        return product(axis.output for axis in self.axes) * self.out_channels * self.batch


class InOrder(NamedTuple):
    """What is of the input, of the filter and of the output of a convolution, in a pass' order.

    The first two are read, the third is written.
    """

    first: Quantity
    second: Quantity
    result: Quantity


#: Which pass of a transposed convolution which of the products of a convolution is.
TURNED = {
    Pass.FORWARD: Pass.INPUT_GRADIENT,
    Pass.INPUT_GRADIENT: Pass.FORWARD,
    Pass.WEIGHT_GRADIENT: Pass.WEIGHT_GRADIENT,
}


@dataclass(frozen=True, slots=True)
class Convolution(_Windowed):
    """One pass of a convolution of N x H x W x C by K filters of R x S, giving N x P x Q x K.

    With `groups` g, each filter sees the C / g channels of its group only.

    `axes` are the spatial dimensions. `direction` says which of the three products it is:
    the forward pass, the gradient with respect to the input, or to the filter. A
    transposed convolution's forward pass is a convolution's input gradient, and so on;
    `transposed` marks those, for cost models which price them apart.
    """

    transposed: bool = False
    groups: int = 1
    #: How often there are as many filters: once for all samples, or once for each.
    filters: Quantity = 1
    dtype: str = ""
    kind: ClassVar[Kind] = Kind.CONVOLUTION

    @property
    def layer_pass(self) -> Pass:
        return TURNED[self.direction] if self.transposed else self.direction

    @property
    def read_roles(self) -> tuple[Role, ...]:
        if self.transposed and self.direction is Pass.WEIGHT_GRADIENT:
            return (Role.OUTPUT_GRADIENT, Role.KEPT)
        return READ_WITH_WEIGHTS[self.layer_pass]

    @property
    def filter_elements(self) -> int:
        """R S C K / g."""
        return self.window_elements * self.in_channels * self.out_channels // self.groups

    @property
    def flops(self) -> Quantity:
        """2 R S C N P Q K / g, the same in all three directions."""
        per_position = self.window_elements * self.in_channels // self.groups
        return 2 * per_position * self.output_elements

    @property
    def magnitude(self) -> Quantity:
        # A strided convolution's input gradient may be priced as if it were dense, and images
        # with their padding, or spread out by the stride.
        dense = 2 * self.window_elements * self.out_channels * self.input_elements
        spread: Quantity = product(
            max(axis.size + abs(axis.total_padding), axis.output * axis.stride) + axis.span
            for axis in self.axes
        )
        images = self.batch * max(self.in_channels, self.out_channels) * spread
        largest = max(images, self.filter_elements * self.filters)
        return max(self.flops, dense, self.element_size * largest)

    def in_order(self, input_: Quantity, filter_: Quantity, output: Quantity) -> InOrder:
        """Return what is of each of the three tensors, what this product reads first."""
        if self.direction is Pass.FORWARD:
            return InOrder(input_, filter_, output)
        if self.direction is Pass.INPUT_GRADIENT:
            return InOrder(output, filter_, input_)
        return InOrder(input_, output, filter_)

    @property
    def _tensors(self) -> InOrder:
        size = self.element_size
        image = size * self.input_elements
        filters = size * self.filter_elements * self.filters
        return self.in_order(image, filters, size * self.output_elements)

    @property
    def reads(self) -> tuple[Quantity, ...]:
        return self._tensors[:2]

    @property
    def writes(self) -> tuple[Quantity, ...]:
        return self._tensors[2:]


@dataclass(frozen=True, slots=True)
class Pooling(_Windowed):
    """One pass of a maximum or an average over windows: one FLOP a window element.

    The gradient of a maximum also reads the input, to find which element was largest.
    """

    maximum: bool = True

    @property
    def kind(self) -> Kind:
        return Kind.MAX_POOLING if self.maximum else Kind.AVERAGE_POOLING

    @property
    def flops(self) -> Quantity:
        return self.window_elements * self.output_elements

    @property
    def reads(self) -> tuple[Quantity, ...]:
        image = self.element_size * self.input_elements
        if self.direction is Pass.FORWARD:
            return (image,)
        gradient = self.element_size * self.output_elements
        return (gradient, image) if self.maximum else (gradient,)

    @property
    def writes(self) -> tuple[Quantity, ...]:
        forward = self.direction is Pass.FORWARD
        return (self.element_size * (self.output_elements if forward else self.input_elements),)


@dataclass(frozen=True, slots=True)
class Stream(Operation):
    """An operation that passes over tensors in memory: pointwise, normalization, copy.

    `reads` and `writes` are the bytes of its operands, `roles` what those are that it reads where
    that is not what is usual in its pass. One that sums over rows of `row` bytes each before it
    writes them reads them `passes` times, unless the chip keeps a row until then. `width` is the
    bytes that one lane moves at a time, where that is less than the device can. `drawn` counts the
    random numbers that it draws. `function` says which one a Kind.FUNCTION computes, as in
    paleo.net.layers. `label` is what it is called in output.
    """

    kind: Kind = field()
    reads: tuple[Quantity, ...] = field()
    writes: tuple[Quantity, ...] = field()
    flops: Quantity = 0
    row: Quantity = 0
    passes: int = 1
    width: int = 0
    drawn: Quantity = 0
    direction: Pass = Pass.FORWARD
    roles: tuple[Role, ...] = ()
    function: str = ""
    label: str = field(default="", compare=False)

    @property
    def name(self) -> str:
        return self.label or self.function or self.kind.value


@dataclass(frozen=True, slots=True)
class Unpriced(Operation):
    """What an importer did not understand: no cost model prices it, every result lists it."""

    name: str
    kind: ClassVar[Kind] = Kind.UNKNOWN
    direction: ClassVar[Pass] = Pass.FORWARD
    flops: ClassVar[Quantity] = 0
    reads: ClassVar[tuple[Quantity, ...]] = ()
    writes: ClassVar[tuple[Quantity, ...]] = ()


@dataclass(frozen=True, slots=True)
class Update(Operation):
    """Plain gradient descent over `num_params`: read weights and gradients, write weights."""

    num_params: Quantity
    element_size: int
    kind: ClassVar[Kind] = Kind.UPDATE
    direction: ClassVar[Pass] = Pass.UPDATE

    @property
    def flops(self) -> Quantity:
        return 2 * self.num_params

    @property
    def reads(self) -> tuple[Quantity, ...]:
        return (self.element_size * self.num_params,) * 2

    @property
    def writes(self) -> tuple[Quantity, ...]:
        return (self.element_size * self.num_params,)


@dataclass(frozen=True, slots=True)
class Fused(Operation):
    """An operation `head` whose kernel also does the pointwise ones behind it, its `tail`.

    Of the tail's bytes there are left those that the kernel moves besides the head's: operands
    from elsewhere, and results on the way that somebody still wants. What the head would have
    written has the size of what the last of the tail gives, which is written in its place.
    """

    head: Operation
    tail: tuple[Stream, ...]

    @property
    def parts(self) -> tuple[Operation, ...]:
        """The head and the tail."""
        return (self.head, *self.tail)

    @property
    def kind(self) -> Kind:
        return self.head.kind

    @property
    def direction(self) -> Pass:
        return self.head.direction

    @property
    def dtype(self) -> str:
        return self.head.dtype

    @property
    def layer_pass(self) -> Pass:
        return self.head.layer_pass

    @property
    def name(self) -> str:
        return " + ".join(part.name for part in self.parts)

    @property
    def flops(self) -> Quantity:
        return sum(part.flops for part in self.parts)

    @property
    def reads(self) -> tuple[Quantity, ...]:
        return tuple(size for part in self.parts for size in part.reads)

    @property
    def read_roles(self) -> tuple[Role, ...]:
        return tuple(role for part in self.parts for role in part.read_roles)

    @property
    def writes(self) -> tuple[Quantity, ...]:
        return tuple(size for part in self.parts for size in part.writes)


#: The operations that matrix units can do; all others run on general-purpose lanes.
PRODUCTS = (MatMul, BatchMatMul, GroupedMatMul, Attention, Convolution)
