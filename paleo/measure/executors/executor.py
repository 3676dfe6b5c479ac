"""The contract of an executor: a framework runs what the cost models predict.

To add one: a subclass of Executor in a file of this folder, and its line in EXECUTORS of
`paleo/measure/executors/__init__.py`. Its framework is imported when it is made, not before.
"""

from __future__ import annotations

import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, ClassVar

from paleo.core.errors import SettingError
from paleo.core.frozen import dataclass
from paleo.core.operations import Pass
from paleo.net.graph import Graph, Node

#: The parts of a training step, in order.
PARTS = ("forward", "loss", "backward", "update")
#: The update of a layer's parameters, which stands beside the names of passes.
UPDATE = "update"
#: The forward pass of inference, and the whole training step without a stop between its parts.
INFERENCE, STEP = "inference", "step"


@dataclass(frozen=True)
class Timing:
    """Seconds of the same thing, run again and again."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Seconds of the run in the middle."""
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """The distance between the quartiles as a share of the median; 0 for one run."""
        if len(self.seconds) < 2 or not self.median:
            return 0.0
        low, _, high = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return (high - low) / self.median

    def to_dict(self, of: str) -> dict[str, Any]:
        """Return the values under the keys of the JSON output; `of` says what was measured."""
        return {
            f"{of}_s": self.median,
            f"{of}_spread": self.spread,
            f"{of}_runs": len(self.seconds),
        }


def measure(
    run: Callable[[], object],
    synchronize: Callable[[], object],
    *,
    num_warmup: int = 10,
    num_iter: int = 50,
    most_seconds: float | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Timing:
    """Return the seconds of `num_iter` runs after `num_warmup` that do not count.

    `synchronize` waits until the device has done what it was asked to. With `most_seconds`, no
    further run is begun after that time, but one is always measured. Raises SettingError where
    nothing would be.
    """
    if num_iter < 1:
        raise SettingError(f"num_iter: expected 1 or more, got {num_iter}")
    begin = clock()
    for _ in range(num_warmup):
        run()
        if most_seconds is not None and clock() - begin > most_seconds / 3:
            break
    synchronize()
    seconds: list[float] = []
    for _ in range(num_iter):
        start = clock()
        run()
        synchronize()
        end = clock()
        seconds.append(end - start)
        if most_seconds is not None and end - begin > most_seconds:
            break
    return Timing(tuple(seconds))


@dataclass(frozen=True)
class LayerRun:
    """One layer, ready to run: what each pass does, and the update of its parameters.

    A pass that does not exist (the gradient of parameters of a layer without any) is missing.
    `algorithms` say by which algorithm a pass is computed, where the framework says so. Where
    it `joins`, all gradients are made at once, those of the inputs in the parameters' pass.
    """

    passes: Mapping[Pass, Callable[[], object]]
    update: Callable[[], object] | None = None
    algorithms: Mapping[Pass, str] = field(default_factory=dict)
    joins: bool = False

    def part(self, name: str) -> Callable[[], object] | None:
        """Return what does a pass, or the UPDATE; None if there is nothing to do."""
        return self.update if name == UPDATE else self.passes.get(Pass(name))


class NetRun(ABC):
    """A whole net, ready to run."""

    @abstractmethod
    def infer(self) -> None:
        """Run the forward pass of inference: nothing is kept for a backward pass."""

    @abstractmethod
    def step(self, mark: Callable[[str], object] = lambda part: None) -> None:
        """Run one training step; call `mark` with the name of each of PARTS when it has been done.

        The loss is what the net's last layers give, summed with fixed weights to one number:
        the plain sum of a softmax has no gradient.
        """


class Executor(ABC):
    """A framework on one processor of this machine.

    `place` is "cpu", "cuda" or "mps"; None is the best there is. Raises SettingError where the
    framework is not installed (with the extra to install), or has no such place or element type.
    """

    name: ClassVar[str]
    #: One line for lists and help.
    summary: ClassVar[str]
    #: Where it runs: "cpu", "cuda" or "mps".
    place: str

    @abstractmethod
    def __init__(self, place: str | None = None, dtype: str = "fp32") -> None: ...

    @property
    @abstractmethod
    def hardware(self) -> str:
        """The name of the processor, as the framework or the system gives it."""

    @property
    @abstractmethod
    def versions(self) -> Mapping[str, str]:
        """Versions of the framework and its libraries, by name."""

    @abstractmethod
    def layer(self, graph: Graph, node: Node, needed: tuple[bool, ...]) -> LayerRun:
        """Return a layer of a graph, ready to run on random inputs.

        `needed` says of which inputs the gradient is computed. Raises ExecutorError, which names
        the layer, where the executor cannot build it or memory does not suffice.
        """

    @abstractmethod
    def net(self, graph: Graph) -> NetRun:
        """Return a whole net, ready to run; raises ExecutorError as `layer` does."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until the processor has done all it was asked to."""
