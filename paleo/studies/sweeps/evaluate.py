"""Points of a sweep to columns of what their steps take, block by block.

Of data parallelism a block is one step of arrays: batches along one axis, workers along the other,
of what `Priced` knows of distinct batches. Of devices that share a net it is `paleo.plans`. Other
points are one `paleo.simulate` each. Where a block cannot be evaluated, its halves are, down to
the point that is wrong, which has the reason in the place of numbers.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from paleo.core.errors import PaleoError
from paleo.core.frozen import NamedTuple
from paleo.core.quantity import Array, is_array, np
from paleo.net.spec import NetSpec
from paleo.step.parallelism.computations import divided
from paleo.step.parallelism.data import DataParallel
from paleo.step.pieces import Step
from paleo.step.plan import Plan
from paleo.step.scenario import Scenario, scenario
from paleo.step.utilization import tokens_of
from paleo.studies.plans import plans
from paleo.studies.simulate import simulate
from paleo.studies.sweeps.axes import NET
from paleo.studies.sweeps.grid import DATA, MESH, Block, Grid, cells, values_of
from paleo.studies.sweeps.priced import AT_ONCE, Priced

#: So many computations of nets on devices are kept.
_KEPT = 4

#: The columns of each kind of sweep, in SI units: where they are not known, NaN.
COLUMNS: Mapping[str, tuple[str, ...]] = {
    DATA: ("step_s", "samples_per_s", "compute_s", "exposed_communication_s", "memory_bytes"),
    MESH: ("step_s", "samples_per_s", "bubble_s", "exposed_communication_s", "memory_bytes"),
}
_SINGLE = ("step_s", "samples_per_s", "memory_bytes")
_BANDS = ("step_s_low", "step_s_high")
#: Stands for a reason of points that a condition leaves out.
LEFT_OUT = -1


class Part(NamedTuple):
    """Points from `first` on, as columns.

    `why` says of each point which of `reasons` it cannot be for; the first is "": it can be. It is
    LEFT_OUT of points for which the grid's condition does not hold.
    """

    first: int
    columns: Mapping[str, Array]
    why: Array
    reasons: Sequence[str]

    @property
    def size(self) -> int:
        """How many points it has."""
        return len(self.why)

    @property
    def valid(self) -> Array:
        """Which points can be."""
        found: Array = self.why == 0
        return found

    @property
    def counted(self) -> Array:
        """Which points the condition does not leave out."""
        found: Array = self.why != LEFT_OUT
        return found

    @property
    def points(self) -> Array:
        """The numbers of its points."""
        return np.arange(self.first, self.first + self.size)


class Evaluator:
    """Evaluates the blocks of a grid; what is priced is kept from one to the next."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self._priced: list[Priced] = []

    @functools.cached_property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns that parts have."""
        names = [*COLUMNS.get(self.grid.kind, _SINGLE)]
        if not self.grid.memory:
            names.remove("memory_bytes")
        if self._has_tokens:
            names.insert(2, "tokens_per_s")
        bands = _BANDS if self.grid.bands and self.grid.kind != MESH else ()
        return (*names[:1], *bands, *names[1:], *(("fits",) if self.grid.memory else ()))

    @functools.cached_property
    def _has_tokens(self) -> bool:
        nets = [self.grid.fixed[NET]] if NET in self.grid.fixed else self.grid.by_name[NET].values
        with contextlib.suppress(PaleoError):
            return any(tokens_of(self.grid.net_of({NET: net})) for net in nets)
        return False

    def part(self, blocks: Sequence[Block]) -> Part:
        """Return the part that these blocks are, which follow one another."""
        found = _Found(blocks, self.columns)
        for places, own in cells(list(blocks)):
            settings = self.grid.settings(places)
            cell = _CELLS.get(self.grid.kind, _SingleCell)(self, settings)
            try:
                cell.prepare(own)
            except PaleoError as error:
                for block in own:
                    found.note(block, error)
                continue
            for block in own:
                found.add(self.grid, cell, block)
        return found.part(self.grid)

    def priced(self, net: NetSpec, plan: Plan) -> Priced:
        """Return the computations of a net under a plan, those that are known if there are any."""
        known = next((each for each in self._priced if each.suit(net, plan)), None)
        if known is None:
            known = Priced(net, plan, self.grid.memory)
        else:
            self._priced.remove(known)
        self._priced = [*self._priced[1 - _KEPT :], known]
        return known


class _Found:
    """The columns of a part while they are filled."""

    def __init__(self, blocks: Sequence[Block], names: Sequence[str]) -> None:
        self.first = blocks[0].first
        size = sum(block.size for block in blocks)
        self.columns = {name: np.full(size, np.nan) for name in names}
        self.why = np.zeros(size, np.int32)
        self.reasons: dict[str, int] = {"": 0}

    def note(self, block: Block, error: PaleoError, places: Array | None = None) -> None:
        """Note why a block, or these places of it, cannot be."""
        text = "; ".join(map(str, error.mistakes))
        own = np.arange(block.size) if places is None else places
        self.why[block.first - self.first + own] = self._code(text)

    def _code(self, text: str) -> int:
        return self.reasons.setdefault(text, len(self.reasons))

    def add(self, grid: Grid, cell: _Cell, block: Block) -> None:
        """Evaluate a block, or if that cannot be its halves."""
        whole = np.arange(block.size).reshape(block.shape)
        self._add(cell, block, [np.arange(count) for count in block.shape], whole, grid)

    def _add(
        self, cell: _Cell, block: Block, chosen: list[Array], places: Array, grid: Grid
    ) -> None:
        """Evaluate the points at the `chosen` places of each axis, which are `places` of all."""
        whole = ((name, values_of(grid, block, name)) for name in block.slices)
        values = {
            name: every[own] if is_array(every) else [every[i] for i in own]
            for (name, every), own in zip(whole, chosen, strict=True)
        }
        try:
            found = cell.columns(values)
        except PaleoError as error:
            if places.size == 1:
                self.note(block, error, places.ravel())
                return
            longest = max(range(places.ndim), key=lambda axis: places.shape[axis])
            half = places.shape[longest] // 2
            for own in (slice(None, half), slice(half, None)):
                part = list(chosen)
                part[longest] = part[longest][own]
                index = (slice(None),) * longest + (own,)
                self._add(cell, block, part, places[index], grid)
            return
        where = block.first - self.first + places.ravel()
        reasons = found.pop("why", None)
        for name, column in found.items():
            if name in self.columns:
                self.columns[name][where] = np.broadcast_to(column, places.shape).ravel()
        if reasons is not None:
            for text in filter(None, np.unique(reasons)):
                self.why[where[np.ravel(reasons) == text]] = self._code(str(text))

    def part(self, grid: Grid) -> Part:
        """Return what was found."""
        found = Part(self.first, self.columns, self.why, tuple(self.reasons))
        if grid.where is None:
            return found
        is_out = ~grid.where.holds(grid.values(found.points))
        columns = {name: np.where(is_out, np.nan, own) for name, own in self.columns.items()}
        return found._replace(columns=columns, why=np.where(is_out, LEFT_OUT, self.why))


class _Cell(ABC):
    """One combination of settings by which a plan is found."""

    def __init__(self, evaluator: Evaluator, settings: dict[str, Any]) -> None:
        self.evaluator, self.settings = evaluator, settings

    @functools.cached_property
    def net(self) -> NetSpec:
        """The net, which is taken from the settings."""
        return self.evaluator.grid.net_of(self.settings)

    def prepare(self, blocks: Sequence[Block]) -> None:  # noqa: B027 (some need nothing)
        """Find what all blocks need; raises PaleoError if none can be."""

    @abstractmethod
    def columns(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the columns of all combinations of these values, in their shape.

        Under "why" stands of each why it cannot be, where that is not raised. Raises PaleoError.
        """


class _DataCell(_Cell):
    """Workers that share a batch."""

    base: Scenario
    data: DataParallel
    priced: Priced

    def prepare(self, blocks: Sequence[Block]) -> None:
        net, grid = self.net, self.evaluator.grid
        settings = dict(self.settings)
        workers = values_of(grid, blocks[0], "workers")
        settings["workers"] = 1  # which every cluster has
        if "batch_size" in blocks[0].slices:
            settings["batch_size"] = int(values_of(grid, blocks[0], "batch_size")[0])
        self.base = scenario(net, **settings)
        self._fixed = {"workers": workers, "batch_size": self.base.batch_size}
        plan = self.base.plan
        self.priced = self.evaluator.priced(self.base.net, plan)
        self.data = DataParallel(self.base.net, plan, self.priced)
        own = [
            self._shares(
                {name: grid.by_name[name].values[part] for name, part in each.slices.items()}
            )
            for each in blocks
        ]
        for ahead in (self._ahead(blocks[0]), ()):
            with contextlib.suppress(PaleoError):  # it is said of the batches that are wrong
                self.priced.learn(own, ahead)
                return

    def _ahead(self, block: Block) -> Sequence[int]:
        """Return batches of one worker of which later parts ask for, as far as that is known."""
        part = block.slices.get("batch_size")
        if part is None or self.base.scaling[0] != "weak":
            return ()
        found: Sequence[int] = self.evaluator.grid.by_name["batch_size"].values
        return found[part.start : part.start + AT_ONCE]

    def _axes(self, values: Mapping[str, Any]) -> list[Array]:
        """Return batches and workers, each as an array along its axis."""
        count = len(values)
        found = []
        for name in ("batch_size", "workers"):
            own = values.get(name)
            if own is None:
                found.append(np.full((1,) * count, self._fixed[name], np.int64))
            else:
                place = list(values).index(name)
                shape = [-1 if axis == place else 1 for axis in range(count)]
                found.append(np.asarray(own, np.int64).reshape(shape))
        return found

    def _shares(self, values: Mapping[str, Any]) -> Array:
        """Return the batches of one worker."""
        batch, workers = self._axes(values)
        found: Array = divided(batch, workers, self.base.scaling[0], self.base.plan.accumulate)[0]
        return np.asarray(found)

    def columns(self, values: Mapping[str, Any]) -> dict[str, Any]:
        batch, workers = self._axes(values)
        cluster = self.base.plan.cluster
        too_many = None
        if cluster is not None and workers.max() > cluster.size:
            too_many, workers = workers > cluster.size, np.minimum(workers, cluster.size)
        step = self.data.step(batch, workers, self.base.scaling[0])
        found = self._of_step(step)
        if too_many is not None:
            said = f"workers: more than the {cluster.size:,} devices of {cluster.name}"  # type: ignore[union-attr]
            shape = np.broadcast_shapes(batch.shape, workers.shape)
            found["why"] = np.broadcast_to(np.where(too_many, said, ""), shape)
            for name in list(found.keys() - {"why"}):
                found[name] = np.where(too_many, np.nan, found[name])
        return found

    def _of_step(self, step: Step) -> dict[str, Any]:
        """Return the columns of a step of arrays, by the best scheme of each."""
        seconds, exposed = _by_best_scheme(step)
        rate = step.batch_size / seconds
        found = {
            "step_s": seconds,
            "samples_per_s": rate,
            "compute_s": step.compute,
            "exposed_communication_s": exposed,
        }
        tokens = step.sample.tokens if step.sample else None
        if tokens is not None:
            found["tokens_per_s"] = tokens * rate
        if self.evaluator.grid.memory:
            found["memory_bytes"] = self.priced.memory_of(step.worker_batch_size)
            found["fits"] = _fits(found["memory_bytes"], self.base.plan)
        if self.evaluator.grid.bands:
            for name, end in zip(_BANDS, step.ends, strict=True):
                if end is not None:
                    found[name] = _by_best_scheme(end)[0]
        return found


def _by_best_scheme(step: Step) -> tuple[Any, Any]:
    """Return the seconds of a step, and of its exchange, by the scheme that takes least."""
    names = step.exact_schemes or list(step.exchanges)
    exposed = step.exchanges[names[0]].seconds
    seconds = step.total(names[0])
    for name in names[1:]:
        other = step.exchanges[name].seconds
        seconds = np.where(other < exposed, step.total(name), seconds)
        exposed = np.minimum(other, exposed)
    return seconds, exposed


def _fits(num_bytes: Any, plan: Plan) -> Any:
    """Return 1 where memory is within the device's, 0 where it is not, NaN if that is not known."""
    capacity = plan.device.memory_capacity
    if capacity is None:
        return np.nan
    return np.where(np.isnan(num_bytes), np.nan, num_bytes <= capacity)


class _MeshCell(_Cell):
    """Devices that share a net."""

    def columns(self, values: Mapping[str, Any]) -> dict[str, Any]:
        net, settings = self.net, dict(self.settings)
        shape = tuple(map(len, values.values()))
        own = {name: [*map(_plain, each)] for name, each in values.items()}
        settings.pop("parallel", None)
        if shape.count(1) == len(shape):
            with contextlib.suppress(PaleoError):  # what arrays do not know is one step
                return self._together(net, settings | own, shape)
            single = settings | {name: each[0] for name, each in own.items()}
            return _single(net, {**single, "parallel": "mesh"})
        return self._together(net, settings | own, shape)

    def _together(
        self, net: NetSpec, settings: Mapping[str, Any], shape: tuple[int, ...]
    ) -> dict[str, Any]:
        found = plans(net, **settings)
        known = {
            "step_s": found.step_s,
            "samples_per_s": found.samples_per_s,
            "bubble_s": found.bubble_s,
            "exposed_communication_s": found.exposed_communication_s,
        }
        if found.tokens_per_s is not None:
            known["tokens_per_s"] = found.tokens_per_s
        if self.evaluator.grid.memory:
            memory = np.where(found.valid, found.memory_bytes, np.nan)
            known |= {"memory_bytes": memory, "fits": _fits(memory, found.scenario.plan)}
        columns = {
            name: np.where(found.valid, each, np.nan).reshape(shape) for name, each in known.items()
        }
        return {**columns, "why": found.reasons.reshape(shape)}


class _SingleCell(_Cell):
    """One point, by itself."""

    def columns(self, values: Mapping[str, Any]) -> dict[str, Any]:
        net = self.net
        return _single(net, self.settings, bands=self.evaluator.grid.bands)


def _single(net: NetSpec, settings: Mapping[str, Any], *, bands: bool = False) -> dict[str, Any]:
    """Return the columns of one step, which are numbers."""
    (run, *_) = simulate(net, **settings).runs
    row = run.rows[-1]
    whole = run.step or (row.whole_step(row.best_scheme) if row.exchanges else None)
    found: dict[str, Any] = {}
    if whole is None:  # passes alone
        seconds = sum(each.total() for each in run.rows)
        found |= {"step_s": seconds, "samples_per_s": run.batch_size / seconds}
    else:
        found |= {"step_s": whole.seconds, "samples_per_s": whole.throughput}
        if whole.tokens_per_s is not None:
            found["tokens_per_s"] = whole.tokens_per_s
        if bands:
            ends = zip(_BANDS, (whole.low, whole.high), strict=True)
            found |= {name: end for name, end in ends if end is not None}
    said = row.to_dict() if whole is not None else {}
    found |= {name: said[name] for name in ("bubble_s", "exposed_communication_s") if name in said}
    found["memory_bytes"] = said.get("memory_bytes", np.nan)
    if "memory_bytes" not in said and (needed := run.footprint(row)):
        found["memory_bytes"] = needed.peak
    found["fits"] = _fits(np.float64(found["memory_bytes"]), run.plan)
    # One by one a scheme has a value, and more than one a mapping.
    return {name: each for name, each in found.items() if not isinstance(each, Mapping)}


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


_CELLS: Mapping[str, type[_Cell]] = {DATA: _DataCell, MESH: _MeshCell}


def evaluated(grid: Grid, points: int | None = None, first: int = 0) -> Iterator[Part]:
    """Yield the parts of a grid, of about so many points each, from the `first` one on."""
    evaluator = Evaluator(grid)
    for index in itertools.count(first):
        if index >= grid.parts(points):
            return
        yield evaluator.part(grid.part(index, points))
