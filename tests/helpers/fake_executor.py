"""Executors that run nothing: their clock goes on by what a layer is said to take.

Tests register them under names of their own, and make `clock` the time of the measuring code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import pytest

from paleo.core.errors import ExecutorError, Mistake, SettingError
from paleo.core.operations import Pass
from paleo.measure.executors import EXECUTORS, Executor, LayerRun, NetRun
from paleo.net.graph import Graph, Node

#: Seconds of each pass of a layer, by its name; others take what "" does.
SECONDS = {"": 0.001, "fc": 0.004, "relu": 0.002}
#: Seconds of the parts of a step, and of inference.
PARTS = {"forward": 0.002, "loss": 0.0005, "backward": 0.004, "update": 0.001}
INFERENCE = 0.0015
#: What each synchronization takes.
STOP = 0.00025


class Clock:
    """A clock that goes on when something is run; `runs` lists what was."""

    def __init__(self) -> None:
        self.reset()

    def reset(self, interrupt_at: int | None = None) -> None:
        """Start again. Of the runs, `interrupt_at` is the first that an interrupt comes in."""
        self.now = 0.0
        self.runs: list[str] = []
        self.interrupt_at = interrupt_at

    def __call__(self) -> float:
        return self.now

    def run(self, what: str, seconds: float) -> None:
        """Let `seconds` go by."""
        if self.interrupt_at is not None and len(self.runs) >= self.interrupt_at:
            raise KeyboardInterrupt
        self.runs.append(what)
        self.now += seconds


CLOCK = Clock()


class Fake(Executor):
    """Runs whatever there is, but for layers and nets whose names say otherwise.

    "odd" cannot be built, "huge" has no memory when it is built, "late" when it is run. All
    gradients of "joint" are made at once.
    """

    name = "fake"
    summary = "runs nothing"
    factor = 1.0

    def __init__(self, place: str | None = None, dtype: str = "fp32") -> None:
        if place == "mps":
            raise SettingError(f"{self.name}: there is no mps here")
        self.place = place or "cpu"

    @property
    def hardware(self) -> str:
        return "Some CPU 9000"

    @property
    def versions(self) -> Mapping[str, str]:
        return {self.name: "1.2"}

    def layer(self, graph: Graph, node: Node, needed: tuple[bool, ...]) -> LayerRun:
        name = node.name
        if "odd" in name:
            message = f"{self.name} knows no {node.type_name}"
            raise ExecutorError(Mistake(message, graph.name, name))
        if "huge" in name:
            raise MemoryError
        seconds = SECONDS.get(name, SECONDS[""]) * self.factor
        passes: dict[Pass, Callable[[], object]] = {}
        if name == "late":
            passes[Pass.FORWARD] = self._fail
        else:
            passes[Pass.FORWARD] = partial(CLOCK.run, name, seconds)
        if any(needed) and name != "joint":
            passes[Pass.INPUT_GRADIENT] = partial(CLOCK.run, name, 2 * seconds)
        if node.num_params:
            passes[Pass.WEIGHT_GRADIENT] = partial(CLOCK.run, name, 3 * seconds)
        update = partial(CLOCK.run, name, seconds / 4) if node.num_params else None
        algorithms = {Pass.FORWARD: "by hand"} if node.num_params else {}
        return LayerRun(passes, update, algorithms, joins=name == "joint")

    def _fail(self) -> None:
        raise ExecutorError(Mistake("out of memory: 3 GiB are free", "net", "late"))

    def net(self, graph: Graph) -> NetRun:
        if "huge" in graph.name:
            raise ExecutorError(Mistake("it does not fit: 3 GiB are free", graph.name))
        return FakeNet(graph.name, self.factor)

    def synchronize(self) -> None:
        CLOCK.now += STOP


class FakeNet(NetRun):
    """Takes the seconds of PARTS."""

    def __init__(self, name: str, factor: float) -> None:
        self.name = name
        self.factor = factor

    def infer(self) -> None:
        CLOCK.run(self.name, INFERENCE * self.factor)

    def step(self, mark: Callable[[str], object] = lambda part: None) -> None:
        for part, seconds in PARTS.items():
            CLOCK.run(f"{self.name}: {part}", seconds * self.factor)
            mark(part)


class Slow(Fake):
    """Takes twice as long."""

    name = "slow"
    factor = 2.0


class Missing(Fake):
    """A framework that is not installed."""

    name = "missing"

    def __init__(self, place: str | None = None, dtype: str = "fp32") -> None:
        raise SettingError('--executor missing needs it: pip install "paleo[missing]"')


def register(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Add the executors, and let their clock, set to zero, be the time; return it."""
    for each in (Fake, Slow, Missing):
        monkeypatch.setitem(EXECUTORS, each.name, ("fake_executor", each.__name__))
    CLOCK.reset()
    for module in ("layers", "steps"):
        monkeypatch.setattr(f"paleo.measure.profile.{module}.perf_counter", CLOCK)
    return CLOCK
