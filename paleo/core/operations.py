"""What a layer makes a device do: operations, each with its own shape, and their work.

One multiply-add is 2 FLOPs. FLOPs are counted for convolutions, matrix products (those of
attention and recurrent layers too), scans over a sequence, pooling (one for each element of
each window) and dropout (one an element). Operations that only stream through memory (activations,
normalizations, concatenation, ...) count none, as is usual in the literature, and are
priced by their bytes.
"""

from __future__ import annotations

import math
from dataclasses import field, replace
from typing import ClassVar

from paleo.core.frozen import dataclass
from paleo.core.kinds import LAYER_PASSES as LAYER_PASSES
from paleo.core.kinds import READ_WITH_WEIGHTS
from paleo.core.kinds import Kind as Kind
from paleo.core.kinds import Pass as Pass
from paleo.core.kinds import Role as Role
from paleo.core.loads import Loads, active
from paleo.core.operation import Operation as Operation
from paleo.core.quantity import Quantity, ceil_div, is_array, minimum, np, total
from paleo.core.windowed import TURNED as TURNED
from paleo.core.windowed import Convolution as Convolution
from paleo.core.windowed import InOrder as InOrder
from paleo.core.windowed import Pooling as Pooling
from paleo.core.work import Work as Work

#: More keys than a tensor can have.
_NO_WINDOW = 2**31


def total_work(operations: tuple[Operation, ...]) -> Work:
    """Return the work of all `operations`; zero if there are none."""
    return sum((operation.work for operation in operations), Work())


def _stored(size: float, count: Quantity) -> Quantity:
    """Return the bytes of so many elements, whole ones: sizes may be below a byte, counts means."""
    if not is_array(count):
        return math.ceil(size * count)
    found = np.asarray(size * count)
    return found if found.dtype.kind == "i" else np.ceil(found)


@dataclass(frozen=True, slots=True)
class MatMul(Operation):
    """C[M, N] = A[M, K] B[K, N]: 2 M N K FLOPs.

    `output_size` is the bytes of an element of C where they are others than those of A and B, and
    `weight_size` of one of B with its scales, where the kernel makes numbers of A's type of them.
    `kernel` is a name of the cost model `tiled` for kernels that are not the vendor library's.
    """

    m: Quantity
    n: Quantity
    k: Quantity
    element_size: int
    output_size: int = 0
    direction: Pass = Pass.FORWARD
    dtype: str = ""
    kernel: str = ""
    weight_size: float = 0
    kind: ClassVar[Kind] = Kind.MATMUL

    @property
    def roles(self) -> tuple[Role, ...]:
        return READ_WITH_WEIGHTS[self.direction]

    @property
    def flops(self) -> Quantity:
        return 2 * self.m * self.n * self.k

    @property
    def reads(self) -> tuple[Quantity, ...]:
        weights = _stored(self.weight_size or self.element_size, self.k * self.n)
        return (self.element_size * self.m * self.k, weights)

    @property
    def writes(self) -> tuple[Quantity, ...]:
        return ((self.output_size or self.element_size) * self.m * self.n,)


@dataclass(frozen=True, slots=True)
class BatchMatMul(Operation):
    """`count` products C[M, N] = A[M, K] B[K, N] of equal size: 2 M N K FLOPs each.

    Each reads its operands: the steps of a recurrent layer read their weights, B, again. `roles`
    are those of A and B where they are not the usual ones, `name` is for output. Where they
    are `dependent`, each waits for the one before. `output_size` is that of `MatMul`.
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
    output_size: int = 0
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
        return ((self.output_size or self.element_size) * self.count * self.m * self.n,)

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

    A pass back to the rows has N and K exchanged; the weights' gradient has those of the forward
    pass. `loads` says how the rows are spread where they are not spread evenly, so that groups
    differ by one row at most: (groups, rows of each) of several classes of groups, together all of
    them. Rows of a class are a mean, below 1 where some of its groups have none: no kernel reads
    their matrices. `weight_size` is the bytes of an element of the matrices with their scales,
    `output_size` of one of the result, where they are others than those of A.
    """

    name: str = field(compare=False)
    groups: Quantity
    rows: Quantity
    n: Quantity
    k: Quantity
    element_size: float
    direction: Pass = Pass.FORWARD
    dtype: str = ""
    loads: Loads = ()
    weight_size: float = 0
    output_size: int = 0
    kind: ClassVar[Kind] = Kind.MATMUL

    @property
    def products(self) -> BatchMatMul:
        """The products of equal size that take as long: the longest group waits for no other."""
        rows = ceil_div(self.rows, self.groups)
        is_back = self.direction is Pass.WEIGHT_GRADIENT
        m, k = (self.k, rows) if is_back else (rows, self.k)
        given = self.weight_size if is_back else self.output_size
        return BatchMatMul(
            self.name, self.groups, m, self.n, k, int(self.element_size),
            direction=self.direction, roles=READ_WITH_WEIGHTS[self.direction], dtype=self.dtype,
            output_size=math.ceil(given),
        )  # fmt: skip

    @property
    def active(self) -> Quantity:
        """Groups that have rows."""
        return active(self.loads) if self.loads else self.groups

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
            _stored(self.weight_size or size, self.active * self.k * self.n),
            (self.output_size or size) * self.rows * self.n,
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
class FusedExperts(Operation):
    """A layer of experts as one operator of a serving framework, forward, behind its router.

    Each of `tokens` of `hidden` numbers goes to `chosen` experts. `loads` says how many rows those
    have that this device holds, as in `GroupedMatMul`. An expert is a product with gate and up,
    2 `inner` columns (with `inner` where it is not `gated`), their function, and a product back;
    the weighted sum of a token's rows comes out. Tokens come and go in 2 bytes an element;
    `element_size` and `weight_size` are the bytes that products read, scales included. `kernel` is
    a name of the cost model `tiled` for the framework's own.
    """

    tokens: Quantity
    chosen: Quantity
    hidden: Quantity
    inner: Quantity
    loads: Loads
    element_size: float
    weight_size: float
    gated: bool = True
    dtype: str = ""
    kernel: str = ""
    kind: ClassVar[Kind] = Kind.MATMUL
    direction: ClassVar[Pass] = Pass.FORWARD

    @property
    def rows(self) -> Quantity:
        """Rows of all experts of this device."""
        return total(groups * rows for groups, rows in self.loads)

    @property
    def widened(self) -> Quantity:
        """Columns of the first product."""
        return (1 + self.gated) * self.inner

    @property
    def products(self) -> tuple[GroupedMatMul, GroupedMatMul]:
        """The two products of the experts."""
        groups = total(groups for groups, _ in self.loads)
        first = GroupedMatMul(
            "gate and up", groups, self.rows, self.widened, self.hidden, self.element_size,
            dtype=self.dtype, loads=self.loads, weight_size=self.weight_size, output_size=2,
        )  # fmt: skip
        return first, replace(first, name="down", n=self.hidden, k=self.inner)

    @property
    def roles(self) -> tuple[Role, ...]:
        return (Role.INPUT, Role.WEIGHT)

    @property
    def flops(self) -> Quantity:
        return total(each.flops for each in self.products)

    @property
    def reads(self) -> tuple[Quantity, ...]:
        return (2 * self.tokens * self.hidden, total(each.reads[1] for each in self.products))

    @property
    def writes(self) -> tuple[Quantity, ...]:
        return (2 * self.tokens * self.hidden,)


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
    `kv_size` is the bytes of an element of keys and values where they are kept in another type,
    `kernel` a name of the cost model `tiled` for the kernel that computes it, if one is asked for.
    `mask` is the bytes of a tensor that is added to the scores, where there is one. With
    `values_in_keys` the values are the first features of the keys, which are read once, as in
    multi-head latent attention whose products with the latent have been absorbed (DeepSeek-V2,
    arXiv:2405.04434, section 2.1).
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
    kernel: str = ""
    dtype: str = ""
    mask: Quantity = 0
    values_in_keys: bool = False
    kind: ClassVar[Kind] = Kind.ATTENTION

    @property
    def read_roles(self) -> tuple[Role, ...]:
        if self.direction is Pass.FORWARD:
            return (Role.INPUT, *[Role.EARLIER_INPUT] * (2 + self.has_mask))
        return (*[Role.KEPT] * 4, Role.OUTPUT_GRADIENT, *[Role.KEPT] * self.has_mask)

    @property
    def has_mask(self) -> bool:
        """Whether something is added to the scores, whatever the batch."""
        return bool(is_array(self.mask) or self.mask)

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
            shared * self.value_depth * (not self.values_in_keys),
            rows * self.value_depth,
        )

    @property
    def reads(self) -> tuple[Quantity, ...]:
        tensors = self._tensors
        read = tensors[:3] if self.direction is Pass.FORWARD else (*tensors, tensors[3])
        return (*read, self.mask) if self.has_mask else read

    @property
    def writes(self) -> tuple[Quantity, ...]:
        return self._tensors[3:] if self.direction is Pass.FORWARD else self._tensors[:3]


@dataclass(frozen=True, slots=True)
class Stream(Operation):
    """An operation that passes over tensors in memory: pointwise, normalization, copy.

    `reads` and `writes` are the bytes of its operands, `roles` what those are that it reads where
    that is not what is usual in its pass. One that sums over rows of `row` bytes each before it
    writes them reads them `passes` times, unless the chip keeps a row until then. `width` is the
    bytes that one lane moves at a time, where that is less than the device can; one that `waits`
    moves no more until those have come. `run` are the bytes that lie side by side of what lanes
    move together, where they go down columns. `blocks` are the multiprocessors that its kernel has
    work for, where they may be few. `drawn` counts the random numbers that it draws. `function`
    says which one a Kind.FUNCTION computes, as in paleo.net.layers. The host takes `handed` times
    as long for it as for an operation that is a layer. `label` is what it is called in output.
    """

    kind: Kind = field()
    reads: tuple[Quantity, ...] = field()
    writes: tuple[Quantity, ...] = field()
    flops: Quantity = 0
    row: Quantity = 0
    passes: int = 1
    width: int = 0
    run: int = 0
    blocks: int = 0
    waits: bool = False
    drawn: Quantity = 0
    direction: Pass = Pass.FORWARD
    roles: tuple[Role, ...] = ()
    function: str = ""
    handed: float = 1
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
    """A pass of an optimizer over `num_params`, by default that of plain gradient descent.

    Of each parameter it reads and writes so many elements, and does `flops_each` FLOPs: plain
    gradient descent reads weights and gradients and writes weights. It takes so many `kernels`.
    """

    num_params: Quantity
    element_size: int
    read: int = 2
    written: int = 1
    flops_each: int = 2
    kernels: Quantity = 1
    label: str = field(default="", compare=False)
    kind: ClassVar[Kind] = Kind.UPDATE
    direction: ClassVar[Pass] = Pass.UPDATE

    @property
    def name(self) -> str:
        return self.label or self.kind.value

    @property
    def flops(self) -> Quantity:
        return self.flops_each * self.num_params

    @property
    def reads(self) -> tuple[Quantity, ...]:
        return (self.element_size * self.num_params,) * self.read

    @property
    def writes(self) -> tuple[Quantity, ...]:
        return (self.element_size * self.num_params,) * self.written


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
PRODUCTS = (MatMul, BatchMatMul, GroupedMatMul, FusedExperts, Attention, Convolution)
