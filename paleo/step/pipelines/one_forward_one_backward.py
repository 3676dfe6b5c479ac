"""1F1B: a backward pass as soon as there is one, in turn with forward passes.

D. Narayanan et al., "PipeDream: generalized pipeline parallelism for DNN training", SOSP 2019;
flushed at the end of a step, and interleaved: D. Narayanan et al., "Efficient large-scale language
model training on GPU clusters using Megatron-LM", arXiv:2104.04473, section 2.2.
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
    sums,
)


class OneForwardOneBackward(Pipeline):
    """Forward and backward passes in turn."""

    name = "1f1b"
    summary = "forward and backward passes in turn, so that few activations are kept"
    interleaves = True

    def seconds(self, stages: Sequence[Work], batches: Quantity, chunks: int = 1) -> Quantity:
        """Return the seconds of the stage that is done last.

        A stage takes as many micro-batches forward as there are stages from it on, then waits for
        the first to come back, goes on with the others, and hands its last one back to the stages
        before. Of equal stages that is m + p - 1 times f + b. With several chunks each waits for a
        chunk of each of the others: of equal stages for (p - 1) / (m v) of what it works
        (arXiv:2104.04473, section 2.2).
        """
        if chunks > 1:
            each = [work.seconds for work in stages]
            longest = slowest(each)
            return batches * longest + (summed(each) - longest) / chunks
        ahead, back = [work.forward for work in stages], [work.backward for work in stages]
        before, after = sums(ahead), sums(back)
        done = []
        for i, work in enumerate(stages):
            warm = filled(len(stages) - i, batches)
            own = before[i] + warm * work.forward
            returned = before[-1] + summed(back[i + 1 :])
            rest = (batches - warm) * work.forward + batches * work.backward
            done.append(maximum(own, returned) + rest + after[i])
        return slowest(done)

    def least(
        self,
        forward: Quantity,
        backward: Quantity,
        longest: Quantity,
        stages: int,
        batches: Quantity,
        chunks: int = 1,
    ) -> Quantity:
        """Return the seconds of chunks with the longest stage, or the mean of all stages' ends.

        Stage i is done no sooner than at F + B + (m - 1) b + (m - p) f, of which the mean is that
        of F / p and B / p.
        """
        whole = forward + backward
        if chunks > 1:
            return batches * longest + (whole - longest) / chunks
        rest = (batches - 1) * backward + maximum(batches - stages, 0) * forward
        return maximum(batches * longest, whole + rest / stages)

    def turns(self, stage: int, stages: int, batches: int, chunks: int = 1) -> list[Turn]:
        """Return the turns: of chunks, as many micro-batches as there are stages pass one of them.

        (Megatron-LM, core/pipeline_parallel/schedules.py, forward_backward_pipelining_with_
        interleaving.)
        """
        ahead, back = [], []
        for first in range(0, batches, stages):
            group = range(first, min(first + stages, batches))
            for chunk in range(chunks):
                ahead += [Turn("forward", batch, chunk) for batch in group]
                back += [Turn("backward", batch, chunks - 1 - chunk) for batch in group]
        warm = stages - stage - 1
        return alternating(ahead, back, 2 * warm + (chunks - 1) * stages if chunks > 1 else warm)

    def in_flight(self, stage: int, stages: int, batches: Quantity, chunks: int = 1) -> Quantity:
        """Return how far a stage is ahead of its first backward pass.

        By p minus its number, from 0 on; of chunks, p (1 + (p - 1) / (p v)) at the first (section
        2.2.2, and V. Korthikanti et al., arXiv:2205.05198, section 4.2.3), less by as much at each.
        """
        if chunks == 1:
            return filled(stages - stage, batches)
        warm = (stages - stage - 1) * 2 + (chunks - 1) * stages + 1
        return filled(warm / chunks, batches)


PIPELINES.add(OneForwardOneBackward.name, OneForwardOneBackward())
