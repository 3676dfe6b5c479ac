"""What a device of a stage does for each micro-batch: of one stage of a net, or of several."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from paleo.core.frozen import dataclass
from paleo.core.quantity import Quantity, total
from paleo.step.pipelines import Work

#: The kinds whose messages may wait while another micro-batch is computed: those of experts
#: (arXiv:2412.19437, section 3.2.1). What comes from other stages may, too.
_MOVABLE = ("ep",)


@dataclass(frozen=True)
class Stage:
    """What one device of a stage does for each micro-batch, and what it has.

    Seconds are of all its chunks: `times` of computation forward, backward, of that the gradients
    of parameters, and again; by kind the messages that nothing hides, forward and backward; those
    to the stages beside it, one way; those that gather parameters, both ways; and those that
    activations on their way to and from the host make either longer by. `experts` of its
    parameters are those of mixtures, `blocks` what it has of the net. `cast` are the seconds in
    which its weights are cast to fp8. A device that has several
    stages (`held`) takes a micro-batch through one of them: its seconds are their mean.
    """

    number: int
    times: tuple[Quantity, ...]
    sent: Mapping[str, tuple[Quantity, Quantity]]
    passed: Quantity
    num_params: int
    num_tensors: int
    experts: int
    blocks: int
    overlaps: bool
    cast: Quantity = 0.0
    gathered: tuple[Quantity, Quantity] = (0.0, 0.0)
    swapped: tuple[Quantity, Quantity] = (0.0, 0.0)
    held: int = 1

    @property
    def forward(self) -> Quantity:
        """Seconds of the forward pass."""
        return self.times[0]

    @property
    def backward(self) -> Quantity:
        """Seconds of the backward pass, without what is computed again."""
        return self.times[1]

    @property
    def again(self) -> Quantity:
        """Seconds of what is computed again."""
        return self.times[3]

    @property
    def movable(self) -> Quantity:
        """Seconds of messages that may go on while another micro-batch is computed."""
        own = [sum(both) for kind, both in self.sent.items() if kind in _MOVABLE]
        return total((2 * self.passed, *own))

    @property
    def work(self) -> Work:
        """What the pipeline reckons with."""
        ahead, back = (
            total((0.0, *(each[place] for each in self.sent.values()))) for place in (0, 1)
        )
        return Work(
            self.forward + ahead + self.gathered[0] + self.swapped[0] + self.passed,
            self.again + self.backward + back + self.gathered[1] + self.swapped[1] + self.passed,
            self.times[2],
            self.movable if self.overlaps else 0.0,
        )

    def messages(self, hidden: Quantity) -> dict[str, Quantity]:
        """Return the seconds of messages by kind, "pp" those between stages, that nothing hides.

        `hidden` are those that another micro-batch's computation hides, of all that it may.
        """
        shown = 1 - hidden / self.movable if hidden else 1.0
        found = {
            kind: sum(both) * (shown if kind in _MOVABLE else 1.0)
            for kind, both in self.sent.items()
        }
        return found | {"pp": 2 * self.passed * shown}


def joined(number: int, stages: Sequence[Stage], copies: int = 1) -> Stage:
    """Return what the device of this number does that has these stages.

    Of stages that have `copies` on so many devices it takes a micro-batch through one of them, else
    through all.
    """
    if len(stages) == 1:
        return stages[0]

    def mean(*values: Quantity) -> Quantity:
        return total(values) / copies

    def means(*values: Sequence[Quantity]) -> tuple[Quantity, ...]:
        return tuple(map(mean, *values))

    names = ("num_params", "num_tensors", "experts", "blocks")
    sums = {name: sum(getattr(stage, name) for stage in stages) for name in names}

    def both(pairs: Iterable[tuple[Quantity, Quantity]]) -> tuple[Quantity, Quantity]:
        ahead, back = means(*pairs)
        return ahead, back

    return replace(
        stages[0],
        number=number,
        times=means(*(stage.times for stage in stages)),
        sent={kind: both(stage.sent[kind] for stage in stages) for kind in stages[0].sent},
        passed=mean(*(stage.passed for stage in stages)),
        cast=total(stage.cast for stage in stages),
        gathered=both(stage.gathered for stage in stages),
        swapped=both(stage.swapped for stage in stages),
        held=copies,
        **sums,
    )
