"""States that run along a sequence: state-space models and linear attention.

Letters: N batch, L positions, D channels, S numbers of state, H heads of P features, G groups of
heads that share what they read. Long sequences are cut into chunks of Q positions: inside a chunk
all is matrix products, and states go from chunk to chunk. A last chunk that is not full is computed
as if it were, and what lies on one side of a diagonal too, as kernels do.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import ClassVar

from paleo.core.operations import BatchMatMul, Kind, Pass, Role, Stream
from paleo.core.quantity import Quantity, ceil_div, largest, minimum
from paleo.core.tensor import Shape, Shapes, format_shapes, num_elements
from paleo.net.layers.base import (
    Layer,
    MemoryNeeds,
    Operations,
    ShapeError,
    are_same,
    batch_of,
    layer_type,
    tensor_bytes,
)
from paleo.net.layers.fields import Flag, Whole, key

#: Positions after which the kernel of a selective scan writes its states for the backward pass
#: (mamba, csrc/selective_scan/selective_scan.cpp).
_SAVED_EVERY = 2048
#: FLOPs of a selective scan for each number of state: decay times step, input times B, the state
#: times its decay and their sum, the state times C and its sum; and for each channel: input times
#: step, and the input times D and its sum. Exponentials are not counted.
_OF_STATE, _OF_CHANNEL = 6, 3
#: Bytes of a number of state that is kept from call to call, and FLOPs of a delta rule for each:
#: what it holds of a key (2), its decay (1), what replaces that (2), what it holds of a query (2).
_STATE, _OF_DELTA = 4, 7


@layer_type("SelectiveScan")
class SelectiveScan(Layer):
    """The scan of Mamba (Gu and Dao, arXiv:2312.00752, algorithm 2): N x L x D to N x L x D.

    Its parents are the input and the steps, N x L x D each, and B and C, N x L x S each; a fifth,
    N x L x D, gates the output. Its parameters are the decays, D x S, and D for what passes by. One
    kernel reads all this and writes the output: states stay on the chip, and are computed again in
    the backward pass.
    """

    serves_as: ClassVar[str] = "scan"

    num_parents: ClassVar[tuple[int, int | None]] = (4, 5)

    def infer_shape(self, inputs: Shapes) -> Shape:
        x, step, b, c, *gate = inputs
        of_channels = are_same(*(each[1:] for each in (x, step, *gate)))
        if not (len(x) == 3 and of_channels and are_same(b[1:], c[1:], (x[1], b[-1]))):
            raise ShapeError(
                "its parents must be N x L x D twice, N x L x S twice, and a gate of N x L x D, "
                f"got {format_shapes(inputs)}"
            )
        return (batch_of(inputs), *x[1:])

    def num_params(self, inputs: Shapes) -> int:
        return int(inputs[0][-1]) * (int(inputs[2][-1]) + 1)

    def num_tensors(self, inputs: Shapes) -> int:
        return 2

    def state(self, inputs: Shapes) -> int:
        return _STATE * int(inputs[0][-1]) * int(inputs[2][-1])

    def operations(self, direction: Pass, inputs: Shapes, element_size: int) -> Operations:
        reads, output = tensor_bytes(inputs, element_size), self.infer_shape(inputs)
        (whole,) = tensor_bytes((output,), element_size)
        flops = num_elements(output) * (_OF_STATE * inputs[2][-1] + _OF_CHANNEL)
        if direction is Pass.FORWARD:
            scan = Stream(Kind.GATES, reads, (whole,), flops, label="selective scan")
        elif direction is Pass.INPUT_GRADIENT:
            scan = Stream(
                Kind.GATES, (whole, *reads), reads, 2 * flops,
                direction=direction, label="selective scan",
            )  # fmt: skip
        else:  # the same kernel sums them up
            written = element_size * self.num_params(inputs)
            scan = Stream(
                Kind.GATES, (whole, whole), (written,),
                direction=direction, roles=(Role.AGAIN, Role.AGAIN), label="selective scan",
            )  # fmt: skip
        return (scan,)

    def keeps(self, inputs: Shapes, element_size: int, needed: tuple[bool, ...]) -> MemoryNeeds:
        n, positions, channels = self.infer_shape(inputs)
        # Pairs of decay and state, in 4 bytes; and the output as it was before it was gated.
        saved = 4 * 2 * n * ceil_div(positions, _SAVED_EVERY) * channels * inputs[2][-1]
        ungated = element_size * n * positions * channels * (len(inputs) > 4)
        return MemoryNeeds(inputs=tuple(range(len(inputs))), saved=saved + ungated)


class _InChunks(Layer):
    """A layer that computes chunk by chunk: products, and passes over memory between them."""

    chunk: int

    @abstractmethod
    def _steps(self, inputs: Shapes, element_size: int) -> tuple[BatchMatMul | Stream, ...]:
        """Return what the forward pass does, a kernel each."""

    @abstractmethod
    def _by_head(self, inputs: Shapes) -> Shape:
        """Return a shape with a number for each position and head."""

    def _chunks(self, positions: Quantity) -> tuple[Quantity, Quantity]:
        """Return into how many chunks so many positions are cut, and the positions of one."""
        own = minimum(positions, self.chunk)
        return ceil_div(positions, own), own

    def operations(self, direction: Pass, inputs: Shapes, element_size: int) -> Operations:
        if direction is Pass.FORWARD:
            return self._steps(inputs, element_size)
        if direction is Pass.WEIGHT_GRADIENT:
            # Of each head, sums over positions of what its numbers have made.
            (own,) = tensor_bytes((self._by_head(inputs),), element_size)
            written = element_size * self.num_params(inputs)
            summed = Stream(
                Kind.REDUCTION, (own, own), (written,), direction=direction,
                roles=(Role.KEPT, Role.OUTPUT_GRADIENT), label="decays",
            )  # fmt: skip
            return (summed,)
        found: Operations = ()
        for step in reversed(self._steps(inputs, element_size)):
            if isinstance(step, BatchMatMul):
                found += step.gradients()
            else:
                back = replace(
                    step, reads=(*step.writes, *step.reads), writes=step.reads,
                    flops=2 * step.flops, direction=direction, roles=(),
                )  # fmt: skip
                found += (back,)
        return found


@layer_type("StateSpaceDual")
class StateSpaceDual(_InChunks):
    """The scan of Mamba-2 in chunks (Dao and Gu, arXiv:2405.21060, section 6).

    N x L x H x P to the same. Its parents are the input; the steps, N x L x H; B and C, each of
    N x L x G x S. Each head has a decay, a bias of its steps, and a factor of what passes by. The
    kernels are those of the authors (mamba_ssm/ops/triton/ssd_combined.py): sums of decays, the
    state that each chunk leaves, what goes from chunk to chunk, C times B inside a chunk, and the
    output, from that and from the state before.
    """

    serves_as: ClassVar[str] = "scan"

    num_parents: ClassVar[tuple[int, int | None]] = (4, 4)

    chunk: int = key(Whole(), "Q, the positions of a chunk", default=256)

    def infer_shape(self, inputs: Shapes) -> Shape:
        x, step, b, c = inputs
        fit = len(x) == len(b) == 4 and are_same(x[1:-1], step[1:]) and are_same(b[1:], c[1:])
        if not fit or not are_same(x[1:2], b[1:2]) or x[2] % b[2]:
            raise ShapeError(
                "its parents must be N x L x H x P, N x L x H, and twice N x L x G x S with H in "
                f"G groups, got {format_shapes(inputs)}"
            )
        return (batch_of(inputs), *x[1:])

    def num_params(self, inputs: Shapes) -> int:
        return 3 * int(inputs[0][2])

    def num_tensors(self, inputs: Shapes) -> int:
        return 3

    def state(self, inputs: Shapes) -> int:
        return _STATE * int(num_elements(inputs[0][2:])) * int(inputs[2][-1])

    def _by_head(self, inputs: Shapes) -> Shape:
        return self.infer_shape(inputs)[:-1]

    def _steps(self, inputs: Shapes, element_size: int) -> tuple[BatchMatMul | Stream, ...]:
        n, positions, heads, features = self.infer_shape(inputs)
        groups, numbers = inputs[2][-2:]
        chunks, own = self._chunks(positions)
        (steps,) = tensor_bytes((self._by_head(inputs),), element_size)
        states = element_size * n * chunks * heads * features * numbers
        count = n * chunks * heads
        return (
            Stream(Kind.REDUCTION, (steps,), (steps, steps), label="sums of decays"),
            BatchMatMul("states of chunks", count, features, numbers, own, element_size),
            Stream(Kind.GATES, (states, steps), (states,), label="passing of states"),
            BatchMatMul("C times B", n * chunks * groups, own, own, numbers, element_size),
            # What comes of the chunk's own positions and of the state before, in one sum.
            BatchMatMul("chunk scan", count, own, features, own + numbers, element_size),
        )

    def keeps(self, inputs: Shapes, element_size: int, needed: tuple[bool, ...]) -> MemoryNeeds:
        # Steps and sums of decays, in 4 bytes; states are computed again.
        saved = 2 * 4 * num_elements(self._by_head(inputs))
        return MemoryNeeds(inputs=(0, 1, 2, 3), output=True, saved=saved)


@layer_type("GatedDelta")
class GatedDelta(_InChunks):
    """Gated delta rule in chunks (Yang et al., arXiv:2412.06464, section 3.3).

    Its parents are queries and keys, N x L x G x d each; values, N x L x H x e; how much of a
    head's state decays, N x L x H, or N x L x H x d where each feature of a key decays by itself
    (Kimi Delta Attention, arXiv:2510.26692); and how much a value replaces, N x L x H. It gives
    N x L x H x e; H is a multiple of G. Each head has a decay, and each decay a bias. The kernels
    are those of the authors (fla/ops/gated_delta_rule): sums of decays, keys and queries times
    keys, a triangular inverse, what that makes of keys and values, states from chunk to chunk, and
    the output. A layer that `resumes` reads states of d x e numbers a head and writes them, in 4
    bytes; one position of it, a step of decoding, is one kernel (fused_recurrent.py there).
    """

    serves_as: ClassVar[str] = "scan"

    num_parents: ClassVar[tuple[int, int | None]] = (5, 5)

    chunk: int = key(Whole(), "Q, the positions of a chunk", default=64)
    resumes: bool = key(
        Flag(), "whether it goes on from states that are kept, as a step of decoding does",
        default=False,
    )  # fmt: skip

    def infer_shape(self, inputs: Shapes) -> Shape:
        q, k, v, decay, replaced = inputs
        fit = len(q) == len(v) == 4 and are_same(q[1:], k[1:]) and are_same(q[1:2], v[1:2])
        fit = fit and decay[3:] in ((), q[3:])
        if not fit or not are_same(v[1:-1], decay[1:3], replaced[1:]) or v[2] % k[2]:
            raise ShapeError(
                "its parents must be twice N x L x G x d, N x L x H x e with H a multiple of G, "
                "N x L x H, with or without x d, and N x L x H, "
                f"got {format_shapes(inputs)}"
            )
        return (batch_of(inputs), *v[1:])

    def num_params(self, inputs: Shapes) -> int:
        return int(inputs[2][2]) + int(num_elements(inputs[3][2:]))

    def num_tensors(self, inputs: Shapes) -> int:
        return 2

    def state(self, inputs: Shapes) -> int:
        return _STATE * int(num_elements(inputs[2][2:])) * int(inputs[1][-1])

    def _by_head(self, inputs: Shapes) -> Shape:
        return (batch_of(inputs), *inputs[3][1:])

    def _step(self, inputs: Shapes, element_size: int) -> Stream:
        """Return the kernel of one position: 7 FLOPs a number of state, as the recurrence has."""
        output = self.infer_shape(inputs)
        numbers = num_elements(output) * inputs[1][-1]
        reads = (*tensor_bytes(inputs, element_size), _STATE * numbers)
        writes = (*tensor_bytes((output,), element_size), _STATE * numbers)
        return Stream(Kind.GATES, reads, writes, _OF_DELTA * numbers, label="step of states")

    def _steps(self, inputs: Shapes, element_size: int) -> tuple[BatchMatMul | Stream, ...]:
        n, positions, heads, values = self.infer_shape(inputs)
        depth = inputs[1][-1]
        if self.resumes and largest(positions) == 1:
            return (self._step(inputs, element_size),)
        chunks, own = self._chunks(positions)
        count = n * chunks * heads
        (decays,) = tensor_bytes((self._by_head(inputs),), element_size)
        square = element_size * count * own * own
        # Row after row, each a product with the rows before: i (i - 1) / 2 of them in row i.
        solved = count * (own * (own - 1) * (own - 2) // 3)

        def products(label: str, m: Quantity, n: Quantity, k: Quantity) -> BatchMatMul:
            return BatchMatMul(label, count, m, n, k, element_size)

        states = _STATE * n * heads * depth * values
        kept: tuple[Stream, ...] = ()
        if self.resumes:
            kept = (Stream(Kind.COPY, (states,), (states,), label="states that are kept"),)
        return (
            *kept,
            Stream(Kind.REDUCTION, (decays, decays), (decays,), label="sums of decays"),
            products("keys and queries times keys", 2 * own, own, depth),
            Stream(Kind.GATES, (square,), (square,), solved, label="triangular inverse"),
            products("keys and values replaced", own, depth + values, own),
            products("what states hold of keys", own, values, depth),
            products("states", depth, values, own),
            # From the state before, and from the chunk's own positions, in one sum.
            products("chunk output", own, values, depth + own),
        )

    def keeps(self, inputs: Shapes, element_size: int, needed: tuple[bool, ...]) -> MemoryNeeds:
        # The inverse of each chunk, and the sums of decays in 4 bytes; all else is computed again.
        positions = inputs[0][1]
        chunks, own = self._chunks(positions)
        heads = num_elements(inputs[2][2:3]) * batch_of(inputs)
        inverse = element_size * heads * chunks * own * own
        sums = 4 * num_elements(self._by_head(inputs))
        return MemoryNeeds(inputs=(0, 1, 2, 3, 4), saved=inverse + sums)
