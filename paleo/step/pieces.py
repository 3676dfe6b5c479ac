"""A step as the pieces that it consists of: what, how long, on which lane, after what.

How long a step takes, what of it is communication that nothing hides, and the lines of tables all
follow from its pieces. Quantities are numbers or arrays.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from paleo.cluster.collectives import COLLECTIVES
from paleo.core.attributes import Ends, at_ends, with_ends
from paleo.core.errors import SettingError
from paleo.core.frozen import NamedTuple, dataclass
from paleo.core.quantity import (
    Quantity,
    every,
    is_array,
    maximum,
    minimum,
    np,
    product,
    smallest,
    some,
    spread,
    total,
)
from paleo.costs import Time
from paleo.costs.error_bands import Band
from paleo.step.loader import LOADER, waiting
from paleo.step.utilization import Sample

#: The keys of how well a step uses devices, by the convention of paleo.step.utilization.
USED = ("tokens_per_s", "mfu", "hfu")
#: The category of the time in which a worker does nothing.
WAIT = "wait"
#: The category of what moves between workers; "forward", "backward" and "update" are computation.
TRANSFER = "transfer"


class Piece(NamedTuple):
    """What a worker does for so many seconds, or all workers alike.

    `category` is "forward", "backward", "update", "transfer" or "wait". It starts at `start`
    seconds, or as soon as the pieces called `after` end (None: the one before it), on a `lane` of
    which no two pieces overlap. `time` says what of it is computation, memory traffic and overhead;
    `busy` how long it takes with everything one after the other, where branches run at the same
    time. `arguments` say more of it, in SI units, with the unit in the key; they are not to be
    changed.
    """

    name: str
    category: str
    seconds: Quantity
    arguments: Mapping[str, Any] = {}
    start: Quantity = 0.0
    after: tuple[str, ...] | None = None
    lane: int = 0
    time: Time | None = None
    busy: Quantity | None = None

    @property
    def end(self) -> Quantity:
        """When it ends, in seconds."""
        return self.start + self.seconds

    def of_floats(self) -> Piece:
        """Return a piece of numbers with seconds that are no integers."""
        busy = None if self.busy is None else float(self.busy)
        return self._replace(seconds=float(self.seconds), busy=busy)

    def taking(self, factor: float) -> Piece:
        """Return the piece as it is if computation takes so many times as long."""
        return self if self.category == TRANSFER else self.longer_by(factor)

    def longer_by(self, factor: float) -> Piece:
        """Return the piece as it is if it takes so many times as long."""
        busy = None if self.busy is None else factor * self.busy
        return self._replace(seconds=factor * self.seconds, busy=busy)

    def longer(self, time: Time) -> Piece:
        """Return the piece with more to do, which takes this time."""
        return self._replace(
            seconds=self.seconds + time.total, time=time if self.time is None else self.time + time
        )

    def spread(self, shape: tuple[int, ...]) -> list[Piece]:
        """Return a piece of arrays that broadcast to this shape as pieces of numbers."""
        if not any(map(is_array, (self.seconds, self.busy, *(self.time or ())))):
            return [self.of_floats()] * product(shape)
        seconds = spread(self.seconds * 1.0, shape)
        times: Iterable[Time | None] = [None] * len(seconds)
        if self.time:
            times = map(Time, *(spread(part, shape) for part in self.time))
        busy = [None] * len(seconds) if self.busy is None else spread(self.busy * 1.0, shape)
        same = (self.arguments, self.start, self.after, self.lane)
        return [
            Piece(self.name, self.category, alone, *same, time, whole)
            for alone, time, whole in zip(seconds, times, busy, strict=True)
        ]


def scheduled(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """Return the pieces with their starts: each as soon as those end that it is to be after."""
    ends: dict[str, Quantity] = {}
    started: list[Piece] = []
    before: tuple[str, ...] = ()
    for piece in pieces:
        after = before if piece.after is None else piece.after
        started.append(piece._replace(start=_latest([ends[name] for name in after]), after=after))
        ends[piece.name], before = started[-1].end, (piece.name,)
    return tuple(started)


def _whole(pieces: Sequence[Piece]) -> Any:
    """Return the seconds until the last of these pieces ends."""
    if all(piece.after is None for piece in pieces):  # many are asked: this is quicker
        return total([piece.seconds for piece in pieces])
    pieces = scheduled(pieces)
    awaited = {name for piece in pieces for name in piece.after or ()}
    return _latest([piece.end for piece in pieces if piece.name not in awaited])


def _latest(ends: Sequence[Quantity]) -> Quantity:
    return functools.reduce(maximum, ends) if ends else 0


def _hidden(piece: Piece, others: Sequence[Piece]) -> Quantity:
    """Return the seconds of a piece during which any of the others lasts."""
    spans = [
        tuple(minimum(maximum(time, piece.start), piece.end) for time in (other.start, other.end))
        for other in others
    ]
    times: list[Quantity] = []  # in order, element by element
    for time in itertools.chain(*spans):
        for i, earlier in enumerate(times):
            times[i], time = minimum(earlier, time), maximum(earlier, time)
        times.append(time)
    return total(
        (end - start)
        * functools.reduce(operator.or_, [(a <= start) & (end <= b) for a, b in spans])
        for start, end in itertools.pairwise(times)
    )


class Field(NamedTuple):
    """A value of steps: its key in JSON and tables, and what it is.

    `title` heads it in tables for people, "" leaves it to programs; a mapping by scheme takes a
    column for each scheme if it is `wide`, else the best scheme's value. Tables have those of a
    higher `place` further right. A `banded` value has the error band of times: "time" itself, or
    a "rate".
    """

    key: str
    value: Callable[[Step], Any]
    title: str = ""
    dimension: str = ""
    place: int = 0
    is_wide: bool = False
    banded: str = ""
    #: Whether it is a mapping that tables have no column for.
    is_nested: bool = False


def no_time(net: str) -> str:
    """Return what is wrong with a net of this name whose steps take no time, and what to do."""
    return f"{net}: no layer takes any time; add one that computes, such as a Convolution"


@dataclass(frozen=True)
class WholeStep:
    """How a step scales: all of it, communication or both hybrid parts included.

    `seconds` for `batch_size` samples on `workers` workers; `one_worker` is the seconds in
    which a single worker computes `one_worker_batch` samples, split layers and all. `net` is the
    net's name. `low` and `high` are the ends of the error band of `seconds`, None where one is not
    known. `sample` is what a sample has and takes, by the convention of paleo.step.utilization;
    None where nobody said.
    """

    workers: int
    batch_size: int
    seconds: float
    one_worker: float
    one_worker_batch: int
    net: str = field(default="", compare=False)
    low: float | None = None
    high: float | None = None
    sample: Sample | None = field(default=None, compare=False, repr=False)

    @property
    def ends(self) -> Ends[WholeStep]:
        """The step at both ends of its error band."""
        return at_ends(
            (self.low, self.high), lambda end: replace(self, seconds=end, low=None, high=None)
        )

    @property
    def _time(self) -> float:
        if not every(self.seconds != 0):
            raise SettingError(no_time(self.net))
        return self.seconds

    @property
    def throughput(self) -> float:
        """Samples a second; raises SettingError if the step takes no time."""
        return self.batch_size / self._time

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens a second, None of a net without; raises as `throughput`."""
        tokens = self.sample.tokens if self.sample else None
        return None if tokens is None else tokens * self.throughput

    @property
    def mfu(self) -> float | None:
        """Model FLOP utilization, None where it is not known; raises as `throughput`."""
        return self._utilization(self.sample.flops) if self.sample else None

    @property
    def hfu(self) -> float | None:
        """Hardware FLOP utilization, None where it is not known; raises as `throughput`."""
        return self._utilization(self.sample.hardware_flops) if self.sample else None

    def _utilization(self, flops: float) -> float | None:
        assert self.sample
        found: float | None = self.sample.utilization(flops, self.throughput, self.workers)
        return found

    @property
    def speedup(self) -> float:
        """How many times the throughput of one worker; raises as `throughput`."""
        return self.one_worker / self._time * (self.batch_size / self.one_worker_batch)

    @property
    def efficiency(self) -> float:
        """The speedup over the number of workers."""
        return self.speedup / self.workers

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        values = self._values()
        if self.low is None and self.high is None:
            return values
        ends = at_ends(self.ends, WholeStep._values)
        return with_ends(values, ends, times=["step_s"], rates=["throughput_per_s", *USED])

    def _values(self) -> dict[str, Any]:
        return {
            "step_s": self.seconds,
            "throughput_per_s": self.throughput,
            **{key: getattr(self, key) for key in USED},
            "speedup": self.speedup,
            "efficiency": self.efficiency,
        }


@dataclass(frozen=True)
class Step:
    """A training step, or a pass or a part of one, from its pieces; quantities may be arrays.

    `label` says which pass or part it is, "" where it is a step. Of `batch_size` samples a worker
    has `worker_batch_size`. `exchanges` are by scheme the pieces of which one ends the step.
    `one_worker` is the seconds in which a single worker computes `one_worker_batch` samples, to
    which speedups relate; `sample` what each sample has and takes. `fields` are its values in
    tables and JSON; `net` is the net's name. `band` is how far the truth may be from the seconds of
    what is computed, or of all of it; None where that is not known. `exchanging` gives the
    exchanges if computation
    takes so many times as long: None where they are the same however long that is. `delivered` are
    the seconds in which the data loader delivers its samples, 0 where it is never waited for.
    """

    workers: Any
    batch_size: Any
    worker_batch_size: Any
    pieces: tuple[Piece, ...]
    fields: tuple[Field, ...] = field(repr=False)
    label: str = ""
    exchanges: Mapping[str, Piece] = field(default_factory=dict)
    one_worker: float = 0.0
    one_worker_batch: int = 1
    net: str = field(default="", compare=False)
    sample: Sample | None = field(default=None, compare=False, repr=False)
    band: Band | None = None
    exchanging: Callable[[float], Mapping[str, Piece]] | None = field(
        default=None, repr=False, compare=False
    )
    delivered: Quantity = 0.0

    @functools.cached_property
    def ends(self) -> Ends[Step]:
        """The step at both ends of its error band."""
        return at_ends(self.band.ends if self.band else (None, None), self._taking)

    def _taking(self, factor: float) -> Step:
        """Return the step as it is if computation takes so many times as long, or all of it."""
        changed: dict[str, Any] = {}
        take = Piece.taking
        if self.band and self.band.whole:
            take = Piece.longer_by
            exchanges = {name: piece.longer_by(factor) for name, piece in self.exchanges.items()}
            changed["exchanges"] = exchanges
        elif self.exchanging:
            found = self.exchanging(factor)
            changed["exchanges"] = {scheme: found[scheme] for scheme in self.exchanges}
        return replace(
            self,
            pieces=tuple(take(piece, factor) for piece in self.pieces),
            one_worker=factor * self.one_worker,
            band=None,
            **changed,
        )

    def of_floats(self) -> Step:
        """Return a step of numbers with seconds that are no integers."""
        return replace(
            self,
            pieces=tuple(piece.of_floats() for piece in self.pieces),
            exchanges={name: piece.of_floats() for name, piece in self.exchanges.items()},
        )

    def spread(self, shape: tuple[int, ...]) -> Steps:
        """Return a step of arrays that broadcast to this shape as steps of numbers."""

        @functools.cache
        def exchanges(factor: float) -> list[dict[str, Piece]]:
            assert self.exchanging
            return _each(self.exchanging(factor), shape)

        def exchanging(place: int, factor: float) -> dict[str, Piece]:
            return exchanges(factor)[place]  # of all worked out at once

        sizes = (self.workers, self.batch_size, self.worker_batch_size)
        parts: tuple[Iterable[Any], ...] = (
            *(spread(size, shape) for size in sizes),
            zip(*(piece.spread(shape) for piece in self.pieces), strict=True),
            _each(self.exchanges, shape),
            spread(self.delivered * 1.0, shape),
        )
        steps = (
            Step(
                workers,
                batch,
                share,
                pieces,
                self.fields,
                self.label,
                exchanged,
                self.one_worker,
                self.one_worker_batch,
                self.net,
                self.sample,
                self.band,
                functools.partial(exchanging, place) if self.exchanging else None,
                delivered,
            )
            for place, (workers, batch, share, pieces, exchanged, delivered) in enumerate(
                zip(*parts, strict=True)
            )
        )
        return Steps(steps, self, shape)

    def __getitem__(self, name: str) -> Any:
        """Return the seconds of the piece of this name."""
        return self.piece(name).seconds

    def seconds_of(self, name: str) -> Quantity:
        """Return the seconds of the piece of this name, 0 if there is none."""
        return next((piece.seconds for piece in self.pieces if piece.name == name), 0.0)

    def piece(self, name: str) -> Piece:
        """Return the piece of this name."""
        return next(piece for piece in self.pieces if piece.name == name)

    def under(self, scheme: str | None = None) -> tuple[Piece, ...]:
        """Return all pieces, ended by the exchange of a scheme if there is any, with starts."""
        return scheduled(self._ended_by(scheme))

    def _ended_by(self, scheme: str | None) -> tuple[Piece, ...]:
        """Return all pieces; where data come slowly, the last waits for them."""
        pieces = self.pieces if scheme is None else (*self.pieces, self.exchanges[scheme])
        if not some(self.delivered > 0):
            return pieces
        return (*pieces, Piece(LOADER, WAIT, waiting(self.delivered, _whole(pieces))))

    def total(self, scheme: str | None = None) -> Any:
        """Return the seconds of the step, ended by the exchange of a scheme if there is any."""
        return _whole(self._ended_by(scheme))

    def loading(self, scheme: str | None = None) -> Quantity:
        """Return the seconds that the step waits for the data loader."""
        last = self._ended_by(scheme)[-1]
        return last.seconds if last.name == LOADER else 0.0

    @property
    def is_below_zero(self) -> bool:
        """Whether a piece takes less than no time, which formulas of 2017 may give."""
        return any(smallest(piece.seconds) < 0 for piece in self.pieces)

    @property
    def compute(self) -> Any:
        """The seconds of computation."""
        return total(
            piece.seconds for piece in self.pieces if piece.category not in (TRANSFER, WAIT)
        )

    @property
    def waiting(self) -> Any:
        """The seconds in which workers, on average, wait for the slowest."""
        return total((0.0, *(piece.seconds for piece in self.pieces if piece.category == WAIT)))

    @property
    def busy(self) -> Any:
        """The seconds of all pieces, with everything one after the other; without an exchange."""
        return total(piece.seconds if piece.busy is None else piece.busy for piece in self.pieces)

    @property
    def communication(self) -> Mapping[str, Any]:
        """The seconds of exchanges by scheme, also those while other pieces go on."""
        return {
            scheme: piece.seconds if piece.busy is None else piece.busy
            for scheme, piece in self.exchanges.items()
        }

    @property
    def exposed_exchanges(self) -> Mapping[str, Any]:
        """The seconds by which exchanges make the step longer, by scheme."""
        return {scheme: piece.seconds for scheme, piece in self.exchanges.items()}

    def exposed_communication(self, scheme: str | None = None) -> Quantity:
        """Return the seconds of transfers during which nothing is computed."""
        pieces = self.under(scheme)
        beside = [piece for piece in pieces if piece.category != TRANSFER]
        exposed: Quantity = 0
        for piece in pieces:
            if piece.category == TRANSFER:
                exposed = exposed + piece.seconds - _hidden(piece, beside)
                beside.append(piece)
        return exposed

    @property
    def exact_schemes(self) -> list[str]:
        """The schemes after which all workers go on with the sum, as with one that is no choice."""
        return [
            name for name in self.exchanges if name not in COLLECTIVES or COLLECTIVES[name].exact
        ]

    def scheme_of(self, wanted: str | None) -> str:
        """Return the scheme that is wanted, or the best one where there is none of that name."""
        return wanted if wanted and wanted in self.exchanges else self.best_scheme

    @property
    def best_scheme(self) -> str:
        """The scheme that takes least of those after which all workers have the sum.

        Butterfly mixing is one only where no other is asked for. Of arrays it is an array of names.
        """
        names: list[str] = self.exact_schemes or list(self.exchanges)
        seconds = [self.exchanges[name].seconds for name in names]
        if any(map(is_array, seconds)):
            best: str = np.array(names)[np.argmin(np.broadcast_arrays(*seconds), axis=0)]
            return best
        return min(names, key=lambda name: self.exchanges[name].seconds)

    @functools.cached_property
    def _wholes(self) -> dict[str, WholeStep]:
        return {
            scheme: WholeStep(
                self.workers,
                self.batch_size,
                self.total(scheme),
                self.one_worker,
                self.one_worker_batch,
                self.net,
                *at_ends(self.ends, operator.methodcaller("total", scheme)),
                self.sample,
            )
            for scheme in self.exchanges
        }

    def whole_step(self, scheme: str) -> WholeStep:
        """Return the step of numbers under this scheme, and how it scales."""
        return self._wholes[scheme]

    def by_scheme(self, value: Callable[[WholeStep], float]) -> dict[str, float]:
        """Return a value of the whole step under each scheme."""
        return {scheme: value(whole) for scheme, whole in self._wholes.items()}

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        values = self._values()
        if self.band is None:
            return values
        times, rates = (
            [entry.key for entry in self.fields if entry.banded == kind]
            for kind in ("time", "rate")
        )
        ends = at_ends(self.ends, Step._values)
        return with_ends(values, ends, times=times, rates=rates)

    def _values(self) -> dict[str, Any]:
        return {entry.key: entry.value(self) for entry in self.fields}


class Steps(tuple[Step, ...]):
    """Steps of numbers that are `together` one of arrays, of which all their values follow at once.

    What is made of them, such as a slice, is a plain tuple.
    """

    together: Step
    shape: tuple[int, ...]

    def __new__(cls, steps: Iterable[Step], together: Step, shape: tuple[int, ...]) -> Steps:
        """Make them of the steps one by one, and of those of arrays that have this shape."""
        made = super().__new__(cls, steps)
        made.together, made.shape = together, shape
        return made

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return the values of each under the keys of the JSON output."""
        return _each(self.together.to_dict(), self.shape)


def _each(values: Mapping[str, Any], shape: tuple[int, ...]) -> list[dict[str, Any]]:
    """Return the values of each element; they broadcast to this shape, or are mappings of such."""

    def column(value: Any) -> list[Any]:
        if isinstance(value, Mapping):
            return _each(value, shape)
        return value.spread(shape) if isinstance(value, Piece) else spread(value, shape)

    columns = list(map(column, values.values()))
    rows = zip(*columns, strict=True) if columns else [()] * product(shape)
    return [dict(zip(values, row, strict=True)) for row in rows]
