"""Measuring points within a time: in turn over the kinds, twice if there is time.

What else a machine does only ever makes things slower, for a while: of two rounds, the one counts
in which a sample was quicker.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from paleo.core.errors import ExecutorError
from paleo.core.frozen import dataclass
from paleo.core.operations import Operation, Pass
from paleo.core.quantity import product
from paleo.measure.calibrate.points import Point
from paleo.measure.executors import Executor, LayerRun, NetRun, Timing, measure
from paleo.measure.executors.executor import INFERENCE, STEP
from paleo.measure.profile.setup import Progress, failure

Clock = Callable[[], float]

#: So many samples of each kind are taken even where there is no time left, and an interrupted
#: measurement with so many is of use.
ENOUGH = 3
#: What is quicker is run several times between two looks at the clock, until it takes so long:
#: neither the clock nor waiting for the processor then counts.
_LOOK = 1e-3
_MOST_LOOPS = 1000
#: Times that all is measured, and runs of a sample in each, if there is time.
_ROUNDS, _RUNS = 2, 15
#: Seconds that a reference has at least: one run says nothing of the machine.
_REFERENCE = 0.1
#: More bytes than these are in no cache: no further set of operands is needed.
_UNCACHED = 256 * 2**20


@dataclass(frozen=True)
class Sample:
    """A part of a point in an element type, and the seconds that it took.

    Where the gradient of the inputs is made in that of the parameters, it is `joined` to it.
    """

    point: Point
    part: str
    dtype: str
    timing: Timing
    joined: bool = False

    @property
    def operations(self) -> tuple[Operation, ...]:
        """What a device does in that time."""
        parts = (self.part, Pass.INPUT_GRADIENT.value) if self.joined else (self.part,)
        return tuple(each for part in parts for each in self.point.operations(part, self.dtype))


@dataclass(frozen=True)
class Run:
    """What was measured.

    `spread` is how far the medians of a reference were apart at the beginning, in the middle and
    at the end, as a share of their median, of the reference in the middle, which is `unsteady`;
    None where there is no second time. `seconds` is what it took; `left` counts points that there
    was no time for; `failures` says what could not be run. `covered` tells whether there is enough
    of every kind.
    """

    samples: tuple[Sample, ...]
    spread: float | None
    unsteady: str
    seconds: float
    left: int
    failures: tuple[str, ...]
    covered: bool
    interrupted: bool = False


class Measuring:
    """Measures points with executors, by element type, for about so many seconds."""

    def __init__(
        self,
        executors: Mapping[str, Executor],
        points: Sequence[Point],
        seconds: float,
        clock: Clock,
    ) -> None:
        self.executors = executors
        self.steps = [(point, dtype) for point in points for dtype in executors]
        self.references = [point for point in points if point.reference]
        self.clock = clock
        self.begin = clock()
        self.deadline = self.begin + seconds
        self.samples: dict[tuple[Point, str, str], Sample] = {}
        self.failures: list[str] = []
        self.medians: dict[Point, list[float]] = {}
        self.wanted = Counter[str]()
        for point, _ in self.steps:
            self.wanted[point.kind] += len(point.parts)

    def run(self, progress: Progress) -> Run:
        """Return what is measured; a KeyboardInterrupt ends it with what there is by then."""
        done = 0
        interrupted = False
        steps = _ROUNDS * self.steps
        total = len(steps) + 4 * len(self.references)
        try:
            with progress("measuring", total) as advance:
                # The first time is that of libraries that get ready.
                self._refer(advance, total)
                self.medians.clear()
                self._refer(advance, total)
                for point, dtype in steps:
                    if self.clock() >= self.deadline and self._covers():
                        break
                    if done == len(self.steps):
                        self._refer(advance, len(steps) - done)
                    advance(f"{point.kind}: {point.what}")
                    parts = len(point.parts)
                    ahead = len(steps) - done + len(self.references)
                    for sample in self._timed(point, dtype, self._share(ahead) / parts):
                        self._keep(sample)
                    done += 1
                self._refer(advance, 1)
        except KeyboardInterrupt:
            interrupted = True
        spreads = {
            point.what: (max(own) - min(own)) / sorted(own)[len(own) // 2]
            for point, own in self.medians.items()
            if len(own) > 1
        }
        # Memory alone may be shared with machines that nobody here sees.
        by_spread = sorted(spreads, key=spreads.__getitem__)
        unsteady = by_spread[len(by_spread) // 2] if by_spread else ""
        return Run(
            tuple(self.samples.values()),
            spreads.get(unsteady),
            unsteady,
            self.clock() - self.begin,
            max(len(self.steps) - done, 0),
            tuple(dict.fromkeys(self.failures)),
            self._covers(),
            interrupted,
        )

    def _keep(self, sample: Sample) -> None:
        """Keep a sample, unless it was quicker in the round before."""
        key = (sample.point, sample.part, sample.dtype)
        before = self.samples.get(key)
        if before is None or sample.timing.median < before.timing.median:
            self.samples[key] = sample

    def _covers(self) -> bool:
        """Tell whether there is enough of every kind."""
        found = Counter(sample.point.kind for sample in self.samples.values())
        return all(found[kind] >= min(ENOUGH, wanted) for kind, wanted in self.wanted.items())

    def _share(self, ahead: int) -> float:
        """Return the seconds for one of so many things that there is still to do."""
        return max(self.deadline - self.clock(), 0.0) / max(ahead, 1)

    def _refer(self, advance: Callable[[str], object], ahead: int) -> None:
        """Measure the references once more."""
        dtype = next(iter(self.executors))
        for point in self.references:
            advance(f"reference: {point.what}")
            most = max(self._share(ahead), _REFERENCE)
            for sample in self._timed(point, dtype, most, point.parts[:1]):
                self.medians.setdefault(point, []).append(sample.timing.median)

    def _timed(
        self, point: Point, dtype: str, most: float, parts: tuple[str, ...] = ()
    ) -> list[Sample]:
        """Return a sample of each part, as far as it can be run."""
        executor = self.executors[dtype]
        found = []
        try:
            runs = _built(executor, point, dtype)
            for part in parts or point.parts:
                calls = [call for run in runs if (call := _call(run, part)) is not None]
                if calls:
                    timing = _timing(calls, executor, most, self.clock)
                    joins = any(isinstance(run, LayerRun) and run.joins for run in runs)
                    is_joint = joins and part == Pass.WEIGHT_GRADIENT.value
                    found.append(Sample(point, part, dtype, timing, is_joint))
        except (ExecutorError, MemoryError) as error:
            self.failures.append(f"{point.what} ({dtype}): {failure(error)}")
        return found


def _built(executor: Executor, point: Point, dtype: str) -> Sequence[LayerRun | NetRun]:
    """Return the layer, as often as it takes to have as many sets of operands, or the net."""
    graph = point.graph(dtype)
    if point.net:
        return [executor.net(graph)]
    node = graph.nodes[-1]
    elements = sum(int(product(shape)) for shape in (*node.inputs, node.output))
    size = graph.element_size * (elements + node.num_params)
    sets = min(point.sets, max(1, math.ceil(_UNCACHED / size)))
    return [executor.layer(graph, node, point.needed) for _ in range(sets)]


def _call(run: LayerRun | NetRun, part: str) -> Callable[[], object] | None:
    if isinstance(run, NetRun):
        return {INFERENCE: run.infer, STEP: run.step}[part]
    return run.part(part)


def _timing(
    calls: Sequence[Callable[[], object]], executor: Executor, most: float, clock: Clock
) -> Timing:
    """Return the seconds of a call, where all of `calls` are made in turn."""
    in_turn = itertools.cycle(calls)

    def timed(times: int, runs: int) -> Timing:
        def run() -> None:
            for call in itertools.islice(in_turn, times):
                call()

        return measure(
            run, executor.synchronize,
            num_warmup=1, num_iter=runs, most_seconds=most, clock=clock,
        )  # fmt: skip

    # Every set of operands is touched before it counts.
    once = timed(len(calls), 1).median / len(calls)
    loops = max(1, min(math.ceil(_LOOK / once) if once > 0 else _MOST_LOOPS, _MOST_LOOPS))
    return Timing(tuple(seconds / loops for seconds in timed(loops, _RUNS).seconds))
