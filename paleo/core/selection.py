"""Operations of sparse attention: a score for each key, the best of them, attention to those.

Letters: T queries, n keys that a query scores (a mean where queries are causal), k of them that it
attends to, H heads. DeepSeek-V3.2's lightning indexer (arXiv:2512.02556, section 2.1) scores keys
in 1 byte with a few heads of their own; the latents that heads share are keys and values.
"""

from __future__ import annotations

from typing import ClassVar

from paleo.core.frozen import dataclass
from paleo.core.operations import Kind, Operation, Pass
from paleo.core.quantity import Quantity
from paleo.core.tensor import element_size

#: Bytes of a score, and of the scale of a key or a query of 1 byte an element.
_SCORE, _SCALE = 4, 4


@dataclass(frozen=True, slots=True)
class IndexScores(Operation):
    """The scores of an indexer: T queries of `heads` heads times n keys that all heads share.

    Queries are of `sequences`, whose keys stand in memory once. 2 T n heads depth FLOPs; what sums
    the heads up counts none. `kernel` is a name of the cost model `tiled`.
    """

    sequences: Quantity
    queries: Quantity
    keys: Quantity
    heads: Quantity
    depth: int
    kernel: str
    dtype: str = "fp8"
    kind: ClassVar[Kind] = Kind.ATTENTION
    direction: ClassVar[Pass] = Pass.FORWARD

    @property
    def flops(self) -> Quantity:
        return 2 * self.queries * self.keys * self.heads * self.depth

    @property
    def key_bytes(self) -> int:
        """Bytes of a key, with its scale if it has one byte an element."""
        size = element_size(self.dtype)
        return self.depth * size + (_SCALE if size == 1 else 0)

    @property
    def reads(self) -> tuple[Quantity, ...]:
        queries = self.queries * self.heads * self.key_bytes
        return (queries, self.sequences * self.keys * self.key_bytes)

    @property
    def writes(self) -> tuple[Quantity, ...]:
        return (_SCORE * self.queries * self.keys,)


@dataclass(frozen=True, slots=True)
class Select(Operation):
    """The places of the `chosen` largest of n scores in each of T rows; all if they are no more."""

    rows: Quantity
    scores: Quantity
    chosen: Quantity
    kernel: str
    kind: ClassVar[Kind] = Kind.REDUCTION
    direction: ClassVar[Pass] = Pass.FORWARD
    flops: ClassVar[Quantity] = 0

    @property
    def reads(self) -> tuple[Quantity, ...]:
        return (_SCORE * self.rows * self.scores,)

    @property
    def writes(self) -> tuple[Quantity, ...]:
        return (_SCORE * self.rows * self.chosen,)


@dataclass(frozen=True, slots=True)
class SelectedAttention(Operation):
    """Attention of T queries of H heads to k keys each, which its heads share, wherever they lie.

    A key has `depth` features, of which the first `value_depth` are its value, in `key_size` bytes
    each. 2 T H k (depth + value_depth) FLOPs. `kept` are the keys that there are in memory.
    `kernel` is a name of the cost model `tiled`.
    """

    queries: Quantity
    heads: Quantity
    keys: Quantity
    kept: Quantity
    depth: int
    value_depth: int
    kernel: str
    key_size: int = 2
    kind: ClassVar[Kind] = Kind.ATTENTION
    direction: ClassVar[Pass] = Pass.FORWARD

    @property
    def flops(self) -> Quantity:
        return 2 * self.queries * self.heads * self.keys * (self.depth + self.value_depth)

    @property
    def reads(self) -> tuple[Quantity, ...]:
        return (2 * self.queries * self.heads * self.depth, self.key_size * self.kept * self.depth)

    @property
    def writes(self) -> tuple[Quantity, ...]:
        return (2 * self.queries * self.heads * self.value_depth,)
