"""`paleo.sweep`: every combination of values of settings, as arrays with names."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

from paleo.core.errors import SettingError, near_or_known
from paleo.core.frozen import dataclass
from paleo.core.optional import extra
from paleo.core.quantity import Array, np
from paleo.step.pieces import WholeStep
from paleo.step.plan import Plan
from paleo.studies.simulate import simulate
from paleo.studies.sweeps.axes import NET
from paleo.studies.sweeps.evaluate import LEFT_OUT, Evaluator, Part, evaluated
from paleo.studies.sweeps.grid import MESH, Grid, grid_of
from paleo.studies.sweeps.tally import Tally, added

#: More points are not held at once.
MOST_HELD = 50_000_000
#: What is said of points that a condition leaves out.
_LEFT_OUT = "left out by where"


@dataclass(frozen=True, eq=False)
class Sweep:
    """The points of a grid; they are evaluated when somebody asks.

    `sweep["step_s"]` is an array with an axis for each of `axes`, in their order, NaN where a point
    cannot be; so are the other `columns`. `valid` tells which can be, `reasons` why others cannot.
    """

    grid: Grid = field(repr=False)

    def __repr__(self) -> str:
        axes = ", ".join(f"{axis.name}: {len(axis):,}" for axis in self.grid.axes)
        return f"Sweep of {self.size:,} points ({axes})"

    @property
    def axes(self) -> Mapping[str, Array]:
        """The values of each axis by its name, as tables have them."""
        return {axis.name: np.asarray(axis.labels) for axis in self.grid.axes}

    @property
    def shape(self) -> tuple[int, ...]:
        """How many values each axis has."""
        return self.grid.shape

    @property
    def size(self) -> int:
        """How many points there are."""
        return self.grid.size

    def __len__(self) -> int:
        return self.size

    @functools.cached_property
    def columns(self) -> tuple[str, ...]:
        """The names of what is known of points, in SI units."""
        return Evaluator(self.grid).columns

    def parts(self, points: int | None = None) -> Iterator[Part]:
        """Yield all points, about so many at a time, which is all that is held."""
        return evaluated(self.grid, points)

    @functools.cached_property
    def _whole(self) -> Part:
        if self.size > MOST_HELD:
            raise SettingError(
                f"{self.size:,} points are more than {MOST_HELD:,}, which are held at once: take "
                "them part by part, with parts(), or write them with `paleo sweep`"
            )
        parts = list(self.parts())
        reasons: dict[str, int] = {}
        codes = []
        for part in parts:
            own = [reasons.setdefault(text, len(reasons)) for text in part.reasons]
            codes.append(np.where(part.why == LEFT_OUT, LEFT_OUT, np.array(own)[part.why]))
        columns = {
            name: np.concatenate([part.columns[name] for part in parts]) for name in self.columns
        }
        return Part(0, columns, np.concatenate(codes), tuple(reasons))

    def __getitem__(self, name: str) -> Array:
        """Return a column by its name, as an array of the sweep's shape."""
        if name not in self.columns:
            raise SettingError(f"{name}: no column{near_or_known(name, self.columns)}")
        return self.grid.in_order(self._whole.columns[name])

    @property
    def valid(self) -> Array:
        """Which points can be."""
        return self.grid.in_order(self._whole.valid)

    @property
    def reasons(self) -> Array:
        """Of each point why it cannot be, "" where it can."""
        texts = np.array([*self._whole.reasons, _LEFT_OUT])
        return self.grid.in_order(texts[self._whole.why])

    @functools.cached_property
    def tally(self) -> Tally:
        """How many points can be, why others cannot, and the quickest that fits."""
        held = vars(self).get("_whole")
        return Tally.of(held) if held else added(map(Tally.of, self.parts()))

    def settings(self, *place: int) -> dict[str, Any]:
        """Return net and settings at these indices, one for each axis.

        `paleo.simulate(**settings)` answers for that point alone.
        """
        if len(place) != len(self.shape):
            raise SettingError(f"expected {len(self.shape)} indices, got {len(place)}")
        names = (axis.name for axis in self.grid.axes)
        return _point(self.grid, dict(zip(names, place, strict=True)))

    @property
    def best(self) -> tuple[int, ...] | None:
        """The indices of the point with most samples a second of those that fit; None of none."""
        if self.tally.best is None:
            return None
        places = self.grid.places(np.array([self.tally.best]))
        return tuple(int(own[0]) for own in places.values())

    def labels(self, *place: int) -> dict[str, Any]:
        """Return what a point has on each axis, as tables have it."""
        return {
            name: _plain(labels[i])
            for (name, labels), i in zip(self.axes.items(), place, strict=True)
        }

    def to_pandas(self) -> Any:
        """Return a row for each point as a pandas.DataFrame, in the order of the axes.

        Raises PaleoError if pandas is missing.
        """
        pandas = extra("pandas", "a table of pandas", "pandas", "notebook")
        spread = np.meshgrid(*self.axes.values(), indexing="ij") if self.axes else []
        found: dict[str, Any] = {
            name: own.ravel() for name, own in zip(self.axes, spread, strict=True)
        }
        found |= {name: self[name].ravel() for name in self.columns}
        found["error"] = [text or None for text in self.reasons.ravel().tolist()]
        return pandas.DataFrame(found)

    def to_xarray(self) -> Any:
        """Return an xarray.Dataset: a variable for each column, with axes as coordinates.

        Its attributes are the settings that are the same everywhere. Raises PaleoError if xarray is
        missing.
        """
        xarray = extra("xarray", "a labelled array", "xarray", "xarray")
        names = tuple(self.axes)
        columns = {name: (names, self[name]) for name in (*self.columns,)}
        masks = {"valid": (names, self.valid), "error": (names, self.reasons)}
        said = {name: str(value) for name, value in self.grid.described["fixed"].items()}
        return xarray.Dataset({**columns, **masks}, coords=dict(self.axes), attrs=said)


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def _point(grid: Grid, places: Mapping[str, int]) -> dict[str, Any]:
    """Return the settings of a point as `paleo.simulate` takes them."""
    settings = grid.settings(places)
    given = settings[NET]
    net = grid.net_of(settings)
    is_as_given = isinstance(given, str) and net is grid.net_of({NET: given})
    return {"nets": given if is_as_given else net, **settings}


def step_of(grid: Grid, point: int) -> tuple[WholeStep, Plan]:
    """Return the step of a point, with its error band, and its plan; raises PaleoError."""
    places = {name: int(own[0]) for name, own in grid.places(np.array([point])).items()}
    settings = _point(grid, places)
    if grid.kind == MESH:
        settings["parallel"] = "mesh"
    run = simulate(settings.pop("nets"), **settings).runs[0]
    row = run.rows[-1]
    return run.step or row.whole_step(row.best_scheme), run.plan


def sweep(
    nets: Any,
    axes: Mapping[str, Any],
    *,
    where: str | None = None,
    bands: bool = False,
    memory: bool = True,
    **settings: Any,
) -> Sweep:
    """Return the training steps of all combinations of values of settings.

    `axes` has by the name of a setting of `paleo.simulate` its values: several, or a range such as
    {"from": 1, "to": 1024, "factor": 2}, with both ends. "seq_len" and "dim.NAME" are axes of
    sizes of dimensions, "LAYER.KEY[INDEX]" and "scale_input" edit the net; several `nets` are an
    axis, too. `settings` are the same everywhere; without `workers` there is one. `where` is a
    condition on axes, such as "batch_size * workers <= 4096": other points are left out. `bands`
    adds the ends of error bands, `memory` says what a device needs.

    Nothing is computed before it is asked for. Batches are priced once each, and steps are those of
    `paleo.simulate` with each setting: the same to the last bit with `paleo2017`, else within
    1e-12. A combination that cannot be is no error: see `Sweep`. Raises a PaleoError for a name
    that is no setting and values that are none.

    >>> found = paleo.sweep("alex_v2", {"device": ["K40", "K80"], "workers": [1, 2, 4]})
    >>> found.shape, bool(found.valid.all())
    ((2, 3), True)
    """
    return Sweep(grid_of(nets, axes, settings, where=where, bands=bands, memory=memory))
