"""Operations along a sequence as serving frameworks have them: short convolutions, delta rules.

Letters: N sequences, L positions, C channels, G heads of keys, H heads of values, d and e features
of a key and of a value. Elements have 2 bytes, states as many as the kernel keeps them in.
"""

from __future__ import annotations

from typing import ClassVar

from paleo.core.frozen import dataclass
from paleo.core.operations import Kind, Operation, Pass
from paleo.core.quantity import Quantity

_HALF = 2


@dataclass(frozen=True, slots=True)
class ShortConvolution(Operation):
    """A causal convolution of each channel by itself over the last `taps` positions: N x L x C.

    The last `taps` - 1 positions of each sequence are kept for the next call, and read in a
    `step`, whose positions follow a sequence that was there before. `kernel` is a name of the cost
    model `tiled`.
    """

    sequences: Quantity
    positions: Quantity
    channels: Quantity
    taps: int
    kernel: str
    step: bool = False
    kind: ClassVar[Kind] = Kind.GATES
    direction: ClassVar[Pass] = Pass.FORWARD

    @property
    def flops(self) -> Quantity:
        return 2 * self.sequences * self.positions * self.channels * self.taps

    @property
    def _kept(self) -> Quantity:
        return _HALF * self.sequences * self.channels * (self.taps - 1)

    @property
    def reads(self) -> tuple[Quantity, ...]:
        inputs = _HALF * self.sequences * self.positions * self.channels
        return (inputs, self._kept) if self.step else (inputs,)

    @property
    def writes(self) -> tuple[Quantity, ...]:
        return (_HALF * self.sequences * self.positions * self.channels, self._kept)


@dataclass(frozen=True, slots=True)
class DeltaRule(Operation):
    """A gated delta rule along sequences: queries and keys N x L x G x d, values N x L x H x e.

    Each head of values has a state of d x e numbers, which is read in `read_size` bytes each where
    a sequence goes on (0: none is) and written in `written_size`. With `each_position` the state
    after each position is written, as where the positions are guesses of which some may be taken
    back. `by_feature` says whether each feature of a key decays at a rate of its own (Kimi Delta
    Attention), not each head. `kernel` is a name of the cost model `tiled`.

    FLOPs are those of the recurrence (Yang et al., arXiv:2412.06464, equation 10): what the state
    holds of a key, its decay, what replaces that, and what it holds of a query, 7 d e a position.
    """

    sequences: Quantity
    positions: Quantity
    groups: Quantity
    heads: Quantity
    depth: Quantity
    value_depth: Quantity
    kernel: str
    read_size: int = 4
    written_size: int = 4
    each_position: bool = False
    by_feature: bool = False
    kind: ClassVar[Kind] = Kind.GATES
    direction: ClassVar[Pass] = Pass.FORWARD

    @property
    def tokens(self) -> Quantity:
        """Positions of all sequences."""
        return self.sequences * self.positions

    @property
    def state(self) -> Quantity:
        """Numbers of the states of all sequences."""
        return self.sequences * self.heads * self.depth * self.value_depth

    @property
    def flops(self) -> Quantity:
        return 7 * self.positions * self.state

    @property
    def reads(self) -> tuple[Quantity, ...]:
        keys = _HALF * self.tokens * self.groups * self.depth
        values = _HALF * self.tokens * self.heads * self.value_depth
        decays = _HALF * self.tokens * self.heads * (self.depth if self.by_feature else 1)
        return (keys, keys, values, decays, self.read_size * self.state)

    @property
    def writes(self) -> tuple[Quantity, ...]:
        states = self.state * (self.positions if self.each_position else 1)
        values = _HALF * self.tokens * self.heads * self.value_depth
        return (values, self.written_size * states)
