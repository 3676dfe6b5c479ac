"""The best of all nets of a space, from the last layer to the first.

Before each layer a state has the points of the nets from there on: what these layers take. A point
is left out where another of its state is no worse in anything that is asked for, since whatever
comes before, the other stays no worse (R. Bellman, 1957). Further points go where no net with them
can keep to the constraints, or be better than one that is known: that one, and the bounds, come
from sums in which constraints have prices (Lagrange multipliers), whose least is a shortest way.
All of this is exact: no point goes that a best net might need, and no sums are rounded to a grid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paleo.core.frozen import NamedTuple, dataclass
from paleo.core.quantity import Array, np
from paleo.net.spaces.layered import Layered, NotAdditiveError, Step
from paleo.studies.fronts import TooManyError, undominated
from paleo.studies.search.terms import Columns, Term

#: More points than these are not kept at a time: they take some gigabytes.
MOST_POINTS = 20_000_000
#: Sums in another order differ by less.
_ROUNDING = 1e-12
#: How often a price of a constraint is halved.
_HALVINGS = 40


class Bound(NamedTuple):
    """What a quantity is at least and at most; None for no bound."""

    name: str
    least: float | None = None
    most: float | None = None


@dataclass(frozen=True)
class Wanted:
    """What is asked: quantities of which the least (or the most) is wanted, and bounds.

    With one that is wanted the answer is a best net, with several a front.
    """

    best: Mapping[str, bool]
    bounds: tuple[Bound, ...] = ()

    def directions(self, name: str) -> tuple[bool, bool]:
        """Tell whether less of a quantity may be better, and whether more may be."""
        less = self.best.get(name) is False
        more = self.best.get(name) is True
        for bound in self.bounds:
            if bound.name == name:
                less |= bound.most is not None
                more |= bound.least is not None
        return less, more


class Point(NamedTuple):
    """A net that was found: the places of its options, and its quantities."""

    places: tuple[int, ...]
    values: Mapping[str, float]


class _Points(NamedTuple):
    """Points of a state: columns of each term, by which step and which point behind it each is."""

    columns: dict[str, Columns]
    step: Array
    behind: Array


class Grid:
    """The states and steps of a space as arrays, and sums along its ways."""

    def __init__(self, layers: Layered) -> None:
        self.layers = layers
        self.before = [np.array([s.before for s in steps], np.int64) for steps in layers.steps]
        self.after = [np.array([s.after for s in steps], np.int64) for steps in layers.steps]
        # Of a layer left out the last one, which is 0.
        self.situation = [
            np.array([-1 if s.situation is None else s.situation for s in steps], np.int64)
            for steps in layers.steps
        ]
        self.reaches = self._reaching()

    def _reaching(self) -> list[Array]:
        """Return which states have a way to the end."""
        found = [np.ones(self.layers.states[-1], bool)]
        for k in reversed(range(len(self.before))):
            here = np.zeros(self.layers.states[k], bool)
            here[self.before[k][found[0][self.after[k]]]] = True
            found.insert(0, here)
        return found

    def from_start(self, costs: Array, most: bool = False) -> list[Array]:
        """Return the least (or the most) sum of a way from the start to each state."""
        worst, pick = (-np.inf, np.maximum) if most else (np.inf, np.minimum)
        found = [np.zeros(1)]
        for k, (before, after) in enumerate(zip(self.before, self.after, strict=True)):
            here = np.full(self.layers.states[k + 1], worst)
            pick.at(here, after, found[k][before] + costs[self.situation[k]])
            found.append(here)
        return found

    def to_end(self, costs: Array) -> list[Array]:
        """Return the least sum of a way from each state to the end."""
        found = [np.where(self.reaches[-1], 0.0, np.inf)]
        for k in reversed(range(len(self.before))):
            here = np.full(self.layers.states[k], np.inf)
            np.minimum.at(here, self.before[k], costs[self.situation[k]] + found[0][self.after[k]])
            found.insert(0, here)
        return found

    def shortest(self, costs: Array) -> list[Step]:
        """Return the steps of a way whose sum is least."""
        rest, state, found = self.to_end(costs), 0, []
        for k, steps in enumerate(self.layers.steps):
            own = np.flatnonzero(self.before[k] == state)
            sums = costs[self.situation[k][own]] + rest[k + 1][self.after[k][own]]
            step = steps[own[sums.argmin()]]
            found.append(step)
            state = step.after
        return found


class Solver:
    """Finds the best nets by terms."""

    def __init__(self, grid: Grid, terms: Mapping[str, Term], choices: int) -> None:
        self.grid, self.terms, self.choices = grid, terms, choices
        self.low = {name: grid.from_start(term.values) for name, term in terms.items()}
        self.high = {name: grid.from_start(term.values, most=True) for name, term in terms.items()}

    def found(self, wanted: Wanted) -> list[Point]:
        """Return the best net, or the front of several quantities; none if no net is in bounds.

        Raises NotAdditiveError where more points are to be kept than can be.
        """
        names = list(dict.fromkeys([*wanted.best, *(bound.name for bound in wanted.bounds)]))
        limits = self._limits(wanted) if len(wanted.best) == 1 and wanted.bounds else []
        try:
            return self._solved(wanted, names, limits)
        except TooManyError:
            raise NotAdditiveError(
                "search: there are too many nets of which none is better than another in all that "
                "is asked: leave out a constraint, or a quantity of the front"
            ) from None

    def extremes(self, name: str) -> tuple[float, float]:
        """Return the least and the most of a quantity that waits for nothing, of all nets."""
        term = self.terms[name]
        rest = self.grid.to_end(term.values)[0][0]
        most = -self.grid.to_end(-term.values)[0][0]
        constant = float(term.least(term.end())[0])
        return float(rest) + constant, float(most) + constant

    def value(self, name: str, ways: Sequence[Step]) -> float:
        """Return a quantity of the net of a way."""
        term = self.terms[name]
        columns = term.end()
        for step in reversed(ways):
            columns = term.before(columns, -1 if step.situation is None else step.situation)
        return float(term.total(columns)[0])

    def _limits(self, wanted: Wanted) -> list[tuple[Array, list[Array], float]]:
        """Return costs by which points go: their sum to the end, from the start, and its most.

        A known net that keeps to all constraints is as good as this or better; with prices p of
        constraints v <= m, any better one has a value plus p v of no more than the known value plus
        p m.
        """
        (objective, most), *_ = wanted.best.items()
        sign = -1.0 if most else 1.0
        costs = sign * self.terms[objective].values
        prices = [
            (bound.name, direction, end)
            for bound in wanted.bounds
            for direction, end in ((1.0, bound.most), (-1.0, bound.least))
            if end is not None
        ]
        best, weights = np.inf, [0.0] * len(prices)
        scale = abs(costs).max() or 1.0
        for number, (name, direction, end) in enumerate(prices):
            values = direction * self.terms[name].values
            unit = scale / (abs(values).max() or 1.0)
            low, high = -30.0, 30.0
            for _ in range(_HALVINGS):
                middle = (low + high) / 2
                weights[number] = unit * 2.0**middle
                ways = self.grid.shortest(self._priced(costs, prices, weights))
                if self._keeps(wanted, ways):
                    best = min(best, sign * self.value(objective, ways))
                over = direction * self.value(name, ways) > direction * end
                low, high = (middle, high) if over else (low, middle)
            weights[number] = unit * 2.0**high
        if not np.isfinite(best):
            return []
        limit = best - sign * float(self.terms[objective].least(self.terms[objective].end())[0])
        for weight, (name, direction, end) in zip(weights, prices, strict=True):
            constant = float(self.terms[name].least(self.terms[name].end())[0])
            limit += weight * direction * (end - constant)
        total = self._priced(costs, prices, weights)
        rounding = _ROUNDING * (abs(limit) + abs(total).max() * len(self.grid.before))
        return [(total, self.grid.from_start(total), limit + rounding)]

    def _priced(
        self,
        costs: Array,
        prices: Sequence[tuple[str, float, float]],
        weights: Sequence[float],
    ) -> Array:
        found = costs
        for weight, (name, direction, _) in zip(weights, prices, strict=True):
            found = found + weight * direction * self.terms[name].values
        return found

    def _keeps(self, wanted: Wanted, ways: Sequence[Step]) -> bool:
        """Tell whether the net of a way keeps to all constraints."""
        for name, least, most in wanted.bounds:
            value = self.value(name, ways)
            if (least is not None and value < least) or (most is not None and value > most):
                return False
        return True

    def _solved(
        self,
        wanted: Wanted,
        names: Sequence[str],
        limits: Sequence[tuple[Array, list[Array], float]],
    ) -> list[Point]:
        grid = self.grid
        columns = {name: self.terms[name].end() for name in names}
        spent = [np.zeros(1) for _ in limits]
        nothing = np.zeros(1, np.int64)
        ends = [
            _Points(columns, nothing, nothing) if reaches else None for reaches in grid.reaches[-1]
        ]
        behind, of_limits = ends, [spent if each else None for each in ends]
        every = [behind]
        for k in reversed(range(len(grid.before))):
            here: list[_Points | None] = [None] * grid.layers.states[k]
            own: list[list[Array] | None] = [None] * grid.layers.states[k]
            count = 0
            for state in np.flatnonzero(grid.reaches[k]):
                points, costs = self._joined(k, int(state), behind, of_limits, names, limits)
                kept = self._within(points, costs, k, int(state), wanted, limits)
                kept = kept[undominated(self._compared(_at(points, kept), wanted))]
                if len(kept):
                    here[state] = _at(points, kept)
                    own[state] = [each[kept] for each in costs]
                    count += len(kept)
            if count > MOST_POINTS:
                raise TooManyError
            # To find the way back takes no columns.
            every[-1] = [each and each._replace(columns={}) for each in behind]
            every.append(here)
            behind, of_limits = here, own
        every.reverse()
        return self._answers(every, wanted, names)

    def _joined(
        self,
        k: int,
        state: int,
        behind: Sequence[_Points | None],
        of_limits: Sequence[list[Array] | None],
        names: Sequence[str],
        limits: Sequence[tuple[Array, list[Array], float]],
    ) -> tuple[_Points, list[Array]]:
        """Return all points of a state: those behind each step, with the step's layer before."""
        parts: dict[str, list[Columns]] = {name: [] for name in names}
        costs: list[list[Array]] = [[np.zeros(0)] for _ in limits]
        steps, places = [np.zeros(0, np.int32)], [np.zeros(0, np.int32)]
        for number in np.flatnonzero(self.grid.before[k] == state):
            after = self.grid.after[k][number]
            points, own = behind[after], of_limits[after]
            if points is None or own is None:
                continue
            situation = int(self.grid.situation[k][number])
            for name in names:
                term = self.terms[name]
                moved = term.before(points.columns[name], situation)
                parts[name].append(term.within(moved, k, state))
            for (cost, _, _), rows, spent in zip(limits, costs, own, strict=True):
                rows.append(spent + cost[situation])
            steps.append(np.full(len(points.step), number, np.int32))
            places.append(np.arange(len(points.step), dtype=np.int32))
        columns = {
            name: tuple(map(np.concatenate, zip(*rows, strict=True)))
            if rows
            else tuple(each[:0] for each in self.terms[name].end())
            for name, rows in parts.items()
        }
        points = _Points(columns, np.concatenate(steps), np.concatenate(places))
        return points, [np.concatenate(rows) for rows in costs]

    def _within(
        self,
        points: _Points,
        costs: Sequence[Array],
        k: int,
        state: int,
        wanted: Wanted,
        limits: Sequence[tuple[Array, list[Array], float]],
    ) -> Array:
        """Return the places of points that some net with them may keep to all bounds."""
        keeps = np.ones(len(points.step), bool)
        for name, least, most in wanted.bounds:
            term = self.terms[name]
            value = term.least(points.columns[name])
            if most is not None:
                least_of_all = value + self.low[name][k][state]
                keeps &= least_of_all <= most + _ROUNDING * abs(most)
            if least is not None:
                keeps &= value + self.high[name][k][state] >= least - _ROUNDING * abs(least)
        for spent, (_, before, limit) in zip(costs, limits, strict=True):
            keeps &= spent + before[k][state] <= limit
        return np.flatnonzero(keeps)

    def _compared(self, points: _Points, wanted: Wanted) -> list[Array]:
        """Return the columns by which points dominate others: less is better."""
        found: list[Array] = []
        for name, columns in points.columns.items():
            less, more = wanted.directions(name)
            found += [*columns] * less + [-columns[0]] * more
        return found

    def _answers(
        self, every: Sequence[Sequence[_Points | None]], wanted: Wanted, names: Sequence[str]
    ) -> list[Point]:
        first = every[0][0]
        if first is None:
            return []
        values = {name: self.terms[name].total(first.columns[name]) for name in names}
        keeps = np.ones(len(first.step), bool)
        for name, least, most in wanted.bounds:
            keeps &= values[name] >= (-np.inf if least is None else least)
            keeps &= values[name] <= (np.inf if most is None else most)
        places = np.flatnonzero(keeps)
        if not len(places):
            return []
        compared = [
            (-1 if most else 1) * values[name][places] for name, most in wanted.best.items()
        ]
        chosen = places[undominated(compared)]
        return [
            Point(
                self.grid.layers.places(self._way(every, int(place)), self.choices),
                {name: own[place].item() for name, own in values.items()},
            )
            for place in chosen
        ]

    def _way(self, every: Sequence[Sequence[_Points | None]], place: int) -> list[Step]:
        state, found = 0, []
        for points, steps in zip(every, self.grid.layers.steps, strict=False):
            here = points[state]
            assert here
            step = steps[here.step[place]]
            found.append(step)
            place, state = int(here.behind[place]), step.after
        return found


def _at(points: _Points, places: Array) -> _Points:
    """Return some of the points."""
    columns = {name: tuple(each[places] for each in own) for name, own in points.columns.items()}
    return _Points(columns, points.step[places], points.behind[places])
