"""DualPipe: micro-batches enter at both ends, and what one sends another's computation hides.

DeepSeek-AI, "DeepSeek-V3 technical report", arXiv:2412.19437, section 3.2.1, and their code, which
has the order of turns: https://github.com/deepseek-ai/DualPipe, dualpipe/dualpipe.py.

Each device has two stages of the net, that of its number and the one as far from the other end, so
that there are two copies of all. Half of the micro-batches go down from the first device, half up
from the last. In the middle of a step a device takes one forward while it takes another, of the
other direction, back: messages of either go on beside the computation of both.
"""

from __future__ import annotations

from collections.abc import Sequence

from paleo.core.errors import SettingError
from paleo.core.quantity import Quantity, maximum
from paleo.step.pipelines.base import (
    PIPELINES,
    Pipeline,
    Turn,
    Work,
    filled,
    mean,
    slowest,
    summed,
)


class DualPipe(Pipeline):
    """Micro-batches from both ends, forward and backward passes at the same time."""

    name = "dualpipe"
    summary = (
        "micro-batches enter at both ends, each device has two stages, and forward passes go on "
        "beside backward ones, whose messages they hide"
    )
    weights_apart = True
    copies = 2

    def check(self, stages: int, batches: int) -> None:
        """Raise SettingError for an odd number of stages or micro-batches, or too few of these."""
        if stages % 2:
            raise SettingError(
                f"schedule: dualpipe needs an even number of stages, got pp {stages}"
            )
        if batches % 2 or batches < 2 * stages:
            raise SettingError(
                f"schedule: dualpipe needs an even number of micro-batches, {2 * stages} or more "
                f"with pp {stages}, got {batches}"
            )

    def held(self, device: int, stages: int) -> tuple[int, ...]:
        """Return the stage of its number, and the one as far from the other end."""
        return device, stages - 1 - device

    def pairs(self, device: int, stages: int, batches: Quantity) -> Quantity:
        """Return all forward passes but those of warming up: 3 p / 2 less one for each nearer end.

        The middle devices take one more by itself.
        """
        near = min(device, stages - 1 - device)
        return batches - (3 * stages // 2 - near - 1) - (near == stages // 2 - 1)

    def seconds(self, stages: Sequence[Work], batches: Quantity, chunks: int = 1) -> Quantity:
        """Return the seconds of the slowest device, if all waited for it.

        Of equal devices it is exact: one in the middle takes p + 1 micro-batches forward and as
        many back by themselves, the others both ways at once, and it waits for all nearer the end
        to hand it the first, and to be done after it. Where messages are none and all of f, b - w
        and w are equal, (p / 2 - 1) (f + b + b - 3 w) of that are idle (table 2).
        """
        count = len(stages)
        pairs = [mean([stages[i] for i in self.held(i, count)]) for i in range(count // 2)]
        inputs = [work.backward - work.weights for work in pairs]
        idle = [
            work.forward + maximum(each - work.weights, 0.0) + (work.together - work.backward)
            for work, each in zip(pairs, inputs, strict=True)
        ]
        ahead = summed([work.forward for work in pairs])
        found = []
        for work, each, own in zip(pairs, inputs, idle, strict=True):
            busy = (count + 1) * work.seconds + (batches - count - 1) * work.together
            late = maximum(summed(inputs) - each - ahead, 0.0)
            found.append(busy + (summed(idle) - own) + late)
        return slowest(found)

    def turns(self, stage: int, stages: int, batches: int, chunks: int = 1) -> list[Turn]:
        """Return the turns, of which chunk 0 goes down from the first device and chunk 1 up.

        Those that go up have the later half of the numbers.
        """
        half, near = stages // 2, min(stage, stages - 1 - stage)
        far = half - near - 1  # devices between this one and the middle
        order = _Order(batches // 2, flips=stage >= half)
        for _ in range(2 * far):
            order.forward(0)
        for _ in range(near + 1):
            order.forward(0)
            order.forward(1)
        for _ in range(far):
            order.backward(1, apart=True)
            order.weights()
            order.forward(1)
        for turn in range(batches // 2 - stages + near + 1):
            order.forward(0, beside=bool(turn or far))
            order.backward(1)
            order.forward(1, beside=True)
            order.backward(0)
        for _ in range(far):
            order.backward(1)
            order.forward(1, beside=True)
            order.backward(0)
        for turn in range(2 * (near + 1)):  # in the later half gradients of parameters are apart
            order.backward(1 - turn % 2, apart=turn > near)
        for _ in range(far):
            order.weights()
            order.backward(0, apart=True)
        for _ in range(near + 1):
            order.weights()
        return order.turns

    def awaited(
        self, device: int, turn: Turn, stages: int, chunks: int
    ) -> tuple[int, str, int, int] | None:
        kind, batch, chunk = turn.known
        if kind == "weights":
            return device, "backward", batch, chunk
        before = device - 1 if (kind == "forward") is (chunk == 0) else device + 1
        if 0 <= before < stages:
            return before, kind, batch, chunk
        return None if kind == "forward" else (device, "forward", batch, chunk)

    def in_flight(self, stage: int, stages: int, batches: Quantity, chunks: int = 1) -> Quantity:
        """Return p less the number of the stage, on both devices that have it.

        A device has p + 1 of its two stages together (table 2).
        """
        return filled(stages - stage, batches)


class _Order:
    """The turns of a device so far: micro-batches of both directions come in their order.

    Of the devices behind the middle the near direction is the other one.
    """

    def __init__(self, batches: int, *, flips: bool) -> None:
        self.turns: list[Turn] = []
        self._flips = flips
        self._next = {kind: [0, batches] for kind in ("forward", "backward")}
        self._left: list[Turn] = []

    def _add(self, kind: str, direction: int, **how: bool) -> None:
        chunk = direction ^ self._flips
        batch = self._next[kind][chunk]
        self._next[kind][chunk] += 1
        self.turns.append(Turn(kind, batch, chunk, **how))

    def forward(self, direction: int, *, beside: bool = False) -> None:
        """Add the next forward pass, by itself or beside the turn that is added next."""
        self._add("forward", direction, beside=beside)

    def backward(self, direction: int, *, apart: bool = False) -> None:
        """Add the next backward pass, whole or without the gradients of parameters."""
        self._add("backward", direction, apart=apart)
        if apart:
            self._left.append(self.turns[-1])

    def weights(self) -> None:
        """Add the gradients of parameters that are left from the longest ago."""
        _, batch, chunk = self._left.pop(0).known
        self.turns.append(Turn("weights", batch, chunk))


PIPELINES.add(DualPipe.name, DualPipe())
