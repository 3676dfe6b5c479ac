"""DualPipeV: DualPipe of twice as many stages as devices, cut in half where both ends meet.

Sea AI Lab, "Cut-in-half" (https://hackmd.io/@ufotalent/r1lVXsa9Jg), and DeepSeek-AI's code, which
has the order of turns: https://github.com/deepseek-ai/DualPipe, dualpipe/dualpipev.py; PyTorch has
the same in torch/distributed/pipelining/schedules.py (ScheduleDualPipeV).

Of p devices each has two stages of the net in a V: that of its number and the one as far from the
last, so that the first device has the first and the last. A device does what it would in DualPipe
with 2 p stages and twice as many micro-batches: those that came from the other end there are here
the same ones on their way back. So there is one copy of all parameters.
"""

from __future__ import annotations

from collections.abc import Sequence

from paleo.core.errors import SettingError
from paleo.core.quantity import Quantity
from paleo.step.pipelines.base import PIPELINES, Turn, Work
from paleo.step.pipelines.dualpipe import DualPipe


class DualPipeV(DualPipe):
    """Stages in a V, forward and backward passes at the same time."""

    name = "dualpipev"
    summary = (
        "each device has two stages in a V, and forward passes go on beside backward ones, whose "
        "messages they hide"
    )
    cuts = 2
    copies = 1

    def check(self, stages: int, batches: int) -> None:
        """Raise SettingError for one device alone, or too few micro-batches for so many."""
        if stages < 2:
            raise SettingError(f"schedule: dualpipev needs several stages, got pp {stages}")
        if batches < 2 * stages:
            raise SettingError(
                f"schedule: dualpipev needs {2 * stages} micro-batches or more with pp {stages}, "
                f"got {batches}"
            )

    def home(self, stage: int, stages: int) -> int:
        return min(self.held(stage, stages))

    def pairs(self, device: int, stages: int, batches: Quantity) -> Quantity:
        """Return as many as DualPipe has, in halves: each is of one of a device's two stages."""
        return super().pairs(device, stages, 2 * batches) / 2

    def seconds(self, stages: Sequence[Work], batches: Quantity, chunks: int = 1) -> Quantity:
        return super().seconds(stages, 2 * batches)

    def turns(self, stage: int, stages: int, batches: int, chunks: int = 1) -> list[Turn]:
        """Return the turns, of which chunk 0 goes down from the first device and chunk 1 back."""
        found = super().turns(stage, stages, 2 * batches)
        return [turn._replace(batch=turn.batch % batches) for turn in found]

    def awaited(
        self, device: int, turn: Turn, stages: int, chunks: int
    ) -> tuple[int, str, int, int] | None:
        kind, batch, chunk = turn.known
        is_turning = kind in ("forward", "backward") and (kind == "forward") is (chunk == 1)
        if device == stages // self.cuts - 1 and is_turning:  # at the bottom of the V
            return device, kind, batch, 1 - chunk
        return super().awaited(device, turn, stages, chunks)


PIPELINES.add(DualPipeV.name, DualPipeV())
