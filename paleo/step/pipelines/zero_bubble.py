"""Zero bubble: gradients of parameters are computed where a stage would wait.

P. Qi et al., "Zero bubble pipeline parallelism", arXiv:2401.10241: ZB-H1, which keeps no more
activations than 1F1B does on its first stage.
"""

from __future__ import annotations

from collections.abc import Sequence

from paleo.core.quantity import Quantity, maximum
from paleo.step.pipelines.base import (
    PIPELINES,
    Pipeline,
    Turn,
    Work,
    alternating,
    filled,
    slowest,
    summed,
)


class ZeroBubble(Pipeline):
    """1F1B with gradients of parameters apart."""

    name = "zero_bubble"
    summary = "1F1B with gradients of parameters where a stage would wait (ZB-H1)"
    weights_apart = True

    def seconds(self, stages: Sequence[Work], batches: Quantity, chunks: int = 1) -> Quantity:
        """Return the seconds of 1F1B, of which as much is filled as there are weights' gradients.

        Of equal stages (p - 1) (f + b - w) stay idle, where b are the inputs' gradients and w the
        weights' (section 2.2, table 2).
        """
        each = [work.seconds for work in stages]
        longest = slowest(each)
        idle = [work.seconds - 2 * work.weights for work in stages]
        waits = summed(idle) - slowest(idle)
        return batches * longest + maximum(waits, 0.0)

    def turns(self, stage: int, stages: int, batches: int, chunks: int = 1) -> list[Turn]:
        """Return the turns of 1F1B; parameters' gradients come as many turns later as it warms."""
        ahead = [Turn("forward", batch) for batch in range(batches)]
        back = [Turn("backward", batch, apart=True) for batch in range(batches)]
        found, left = [], 0
        for turn in alternating(ahead, back, stages - stage - 1):
            found.append(turn)
            if turn.kind == "backward" and turn.batch >= stage:
                found.append(Turn("weights", left))
                left += 1
        return [*found, *(Turn("weights", batch) for batch in range(left, batches))]

    def in_flight(self, stage: int, stages: int, batches: Quantity, chunks: int = 1) -> Quantity:
        return filled(stages - stage, batches)

    def waiting(self, stage: int, stages: int, batches: Quantity) -> Quantity:
        """Return as many as the stage's number: all stages keep p in all (section 2.2)."""
        return filled(stages, batches) - filled(stages - stage, batches)


PIPELINES.add(ZeroBubble.name, ZeroBubble())
