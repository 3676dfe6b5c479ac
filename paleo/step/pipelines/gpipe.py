"""GPipe: forward passes of all micro-batches, then their backward passes.

Y. Huang et al., "GPipe: efficient training of giant neural networks using pipeline parallelism",
arXiv:1811.06965, section 2.3.
"""

from __future__ import annotations

from collections.abc import Sequence

from paleo.core.quantity import Quantity
from paleo.step.pipelines.base import PIPELINES, Pipeline, Turn, Work, slowest, summed


class GPipe(Pipeline):
    """All forward passes, then all backward passes."""

    name = "gpipe"
    summary = "all forward passes, then all backward passes"

    def seconds(self, stages: Sequence[Work], batches: Quantity, chunks: int = 1) -> Quantity:
        """Return the seconds of two flow shops of equal jobs, one after the other.

        The first micro-batch passes all stages, the others follow it as the slowest lets them.
        """
        passes = ([work.forward for work in stages], [work.backward for work in stages])
        return summed([summed(one) + (batches - 1) * slowest(one) for one in passes])

    def least(
        self,
        forward: Quantity,
        backward: Quantity,
        longest: Quantity,
        stages: int,
        batches: Quantity,
        chunks: int = 1,
    ) -> Quantity:
        """Return what `seconds` gives: the slowest of each pass are together as long as one stage.

        Forward and backward that may be two, which take no less together than the longest does.
        """
        return forward + backward + (batches - 1) * longest

    def turns(self, stage: int, stages: int, batches: int, chunks: int = 1) -> list[Turn]:
        return [Turn(kind, batch) for kind in ("forward", "backward") for batch in range(batches)]

    def in_flight(self, stage: int, stages: int, batches: Quantity, chunks: int = 1) -> Quantity:
        return batches


PIPELINES.add(GPipe.name, GPipe())
