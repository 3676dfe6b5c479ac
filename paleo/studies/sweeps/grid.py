"""The grid of a sweep: its axes, what is the same everywhere, and the blocks it is evaluated in.

A block is one combination of settings by which a plan is found, its cell, with some of the values
of axes that are arrays in formulas. Blocks follow one another in the order of points: axes of what
is computed vary slowest, then those of what is sent, then those that are arrays.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from paleo.core.errors import Mistakes, PaleoError, SettingError
from paleo.core.frozen import NamedTuple, dataclass
from paleo.core.quantity import Array, np
from paleo.core.version import __version__
from paleo.net.edit import Edits
from paleo.net.load import load
from paleo.net.spec import NetSpec
from paleo.step.declarations import declared
from paleo.step.distributed_settings import NetworkSettings, SynchronousSettings
from paleo.step.mesh_settings import MeshSettings
from paleo.step.plan_grid import AXES
from paleo.studies.sweeps.axes import (
    NET,
    SCALE_INPUT,
    Axis,
    axis_of,
    checked_value,
    dimension,
    is_edit,
    label_of,
    setting_name,
)
from paleo.studies.sweeps.where import Condition

#: How points are evaluated: as steps of data parallelism, as plans on meshes, or one by one.
DATA, MESH, SINGLE = "data", "mesh", "one by one"
#: The axes that are arrays in formulas, in the order in which they vary.
_INNER = {DATA: ("batch_size", "workers"), MESH: AXES, SINGLE: ()}
#: So many points are a block at most: of data parallelism as the processor's cache holds, of meshes
#: as share what is priced.
BLOCK = {DATA: 16384, MESH: 1 << 18, SINGLE: 1}
#: So many points are a part by default: what is held, written and done anew at a time.
PART = {DATA: 1 << 20, MESH: 1 << 20, SINGLE: 2048}
#: No sweep has more points, so that numbers of them are exact in any format.
MOST_POINTS = 2**53


class Block(NamedTuple):
    """Points from `first` on: those of a cell, the values of inner axes in these slices."""

    cell: Mapping[str, int]
    first: int
    slices: Mapping[str, slice]

    @property
    def shape(self) -> tuple[int, ...]:
        """How many values of each inner axis it has."""
        return tuple(each.stop - each.start for each in self.slices.values())

    @property
    def size(self) -> int:
        """How many points it has."""
        return math.prod(self.shape)


@dataclass(frozen=True, eq=False)
class Grid:
    """Every combination of the values of `axes`, with `fixed` settings.

    Of the points only those count for which the condition `where` holds, if there is one. `bands`
    asks for the ends of error bands, `memory` for the bytes that a device needs.
    """

    axes: tuple[Axis, ...]
    fixed: Mapping[str, Any]
    where: Condition | None = None
    bands: bool = False
    memory: bool = True

    @property
    def shape(self) -> tuple[int, ...]:
        """How many values each axis has."""
        return tuple(map(len, self.axes))

    @property
    def size(self) -> int:
        """How many points there are."""
        return math.prod(self.shape)

    @functools.cached_property
    def by_name(self) -> dict[str, Axis]:
        """The axes by their names."""
        return {axis.name: axis for axis in self.axes}

    @functools.cached_property
    def kind(self) -> str:
        """How its points are evaluated: DATA, MESH or SINGLE."""
        if "parallel" in self.by_name:
            return SINGLE
        parallel = self.fixed.get("parallel", "data")
        names = {*self.fixed, *self.by_name} & {*declared(MeshSettings)}
        if parallel == "mesh" or (parallel == "data" and names):
            return MESH
        return DATA if parallel == "data" else SINGLE

    @functools.cached_property
    def layout(self) -> tuple[Axis, ...]:
        """The axes in the order of points, the last quickest."""
        inner = [self.by_name[name] for name in _INNER[self.kind] if name in self.by_name]
        names = {axis.name for axis in inner}
        outer = [axis for axis in self.axes if axis.name not in names]
        return (*sorted(outer, key=lambda axis: axis.name in _sent()), *inner)

    @property
    def inner(self) -> tuple[Axis, ...]:
        """Those of them that are arrays in formulas."""
        count = sum(axis.name in _INNER[self.kind] for axis in self.axes)
        return self.layout[len(self.layout) - count :]

    @functools.cached_property
    def _cut(self) -> tuple[int, int]:
        """Which inner axis is cut into slices, and of how many values: those behind it are whole.

        Of those before it a block has one value.
        """
        sizes = [len(axis) for axis in self.inner]
        behind = 1
        for place in range(len(sizes) - 1, -1, -1):
            if behind * sizes[place] > BLOCK[self.kind]:
                return place, max(1, BLOCK[self.kind] // behind)
            behind *= sizes[place]
        return 0, sizes[0] if sizes else 1

    @functools.cached_property
    def _turns(self) -> tuple[int, ...]:
        """How many turns blocks take over each axis up to that which is cut."""
        place, width = self._cut
        first = len(self.layout) - len(self.inner)
        sizes = [len(axis) for axis in self.layout[: first + place]]
        cut = len(self.inner[place]) if self.inner else 1
        return (*sizes, -(-cut // width))

    @property
    def num_blocks(self) -> int:
        """How many blocks there are."""
        return math.prod(self._turns)

    @functools.cached_property
    def _block_size(self) -> int:
        """The points of a block that is none of the last."""
        place, width = self._cut
        return width * math.prod(len(axis) for axis in self.inner[place + 1 :])

    def block(self, index: int) -> Block:
        """Return the block of this number."""
        place, width = self._cut
        *turns, piece = (int(each) for each in np.unravel_index(index, self._turns))
        outer = len(self.layout) - len(self.inner)
        cell = {axis.name: turn for axis, turn in zip(self.layout[:outer], turns, strict=False)}
        slices: dict[str, slice] = {}
        for axis, turn in zip(self.inner[:place], turns[outer:], strict=True):
            slices[axis.name] = slice(turn, turn + 1)
        for axis in self.inner[place : place + 1]:
            slices[axis.name] = slice(piece * width, min(len(axis), (piece + 1) * width))
        slices |= {axis.name: slice(0, len(axis)) for axis in self.inner[place + 1 :]}
        first = 0
        begins = [*turns[:outer], *(each.start for each in slices.values())]
        for axis, begin in zip(self.layout, begins, strict=True):
            first = first * len(axis) + begin
        return Block(cell, first, slices)

    def parts(self, points: int | None = None) -> int:
        """Return how many parts of about so many points there are."""
        return -(-self.num_blocks // self._blocks_of_part(points))

    def _blocks_of_part(self, points: int | None) -> int:
        return max(1, (points or PART[self.kind]) // self._block_size)

    def part(self, index: int, points: int | None = None) -> list[Block]:
        """Return the blocks of a part of about so many points; parts follow one another."""
        count = self._blocks_of_part(points)
        last = min(self.num_blocks, (index + 1) * count)
        return [self.block(number) for number in range(index * count, last)]

    def places(self, points: Array) -> dict[str, Array]:
        """Return of points, by their numbers, the places of their values on each axis."""
        found = np.unravel_index(points, tuple(map(len, self.layout)))
        by_name = {axis.name: each for axis, each in zip(self.layout, found, strict=True)}
        return {axis.name: by_name[axis.name] for axis in self.axes}

    def values(self, points: Array) -> dict[str, Array]:
        """Return what points have on each axis, as tables say it."""
        return {
            name: np.asarray(self.by_name[name].labels)[places]
            for name, places in self.places(points).items()
        }

    def in_order(self, values: Array) -> Array:
        """Return values of all points as an array of the grid's shape."""
        whole = values.reshape(tuple(map(len, self.layout)))
        names = [axis.name for axis in self.layout]
        found: Array = whole.transpose([names.index(axis.name) for axis in self.axes])
        return found

    def settings(self, places: Mapping[str, int]) -> dict[str, Any]:
        """Return the settings of the points at these places, by the names of axes."""
        return {**self.fixed, **{name: self.by_name[name].value(i) for name, i in places.items()}}

    def labels(self, point: int) -> dict[str, Any]:
        """Return what a point has on each axis, as tables say it."""
        places = self.places(np.array([point]))
        found = {name: self.by_name[name].labels[int(i[0])] for name, i in places.items()}
        return {
            name: each.item() if hasattr(each, "item") else each for name, each in found.items()
        }

    @functools.cached_property
    def _nets(self) -> dict[str, NetSpec]:
        """Nets by the names that they were given by, each loaded once."""
        return {}

    def net_of(self, settings: dict[str, Any]) -> NetSpec:
        """Return the net of settings, with its dimensions and edits, which are taken from them."""
        given = settings.pop(NET)
        if isinstance(given, str) and given not in self._nets:
            self._nets[given] = load(given)
        net = self._nets[given] if isinstance(given, str) else load(given)
        dims = {dim: settings.pop(name) for name in list(settings) if (dim := dimension(name))}
        if dims:
            net = net.with_dims(**dims)
        edits = {name: settings.pop(name) for name in list(settings) if is_edit(name)}
        if not edits:
            return net
        scale = edits.pop(SCALE_INPUT, None)
        written = tuple(f"{key}={_written(value)}" for key, value in edits.items())
        return Edits(written, (), scale).apply(net)

    @functools.cached_property
    def described(self) -> dict[str, Any]:
        """What it is, for files: axes with their ends, and fixed settings."""
        return {
            "paleo": __version__,
            "points": self.size,
            "axes": {axis.name: _shown(axis) for axis in self.layout},
            "fixed": {name: label_of(None, value) for name, value in self.fixed.items()},
            "where": str(self.where) if self.where else None,
            "bands": self.bands,
            "memory": self.memory,
        }

    @functools.cached_property
    def identity(self) -> str:
        """A text that grids of the same points and figures share, and no others."""
        found = hashlib.sha256(json.dumps(self.described, sort_keys=True).encode())
        for axis in self.axes:
            values = axis.labels.tolist() if hasattr(axis.labels, "tolist") else axis.labels
            found.update(json.dumps([axis.name, values]).encode())
        for name in FILES:
            values = self.by_name[name].values if name in self.by_name else [self.fixed.get(name)]
            for value in values:
                found.update(_content(name, value).encode())
        return found.hexdigest()[:16]


#: What may be a file of one's own.
FILES = (NET, "device", "network", "cluster", "host")


def _content(name: str, value: Any) -> str:
    """Return what stands behind a name, where that may change: a net, or figures of hardware."""
    if value is None:
        return ""
    if name == NET:
        net = load(value)
        return repr((net.layers, net.dims))
    return repr(checked_value(name, value))


@functools.cache
def _sent() -> frozenset[str]:
    """Return the settings by which what a worker computes does not change."""
    names = {*declared(NetworkSettings), *declared(SynchronousSettings), "schemes", "scaling"}
    return frozenset(names - {"cluster", "accumulate"})


def _shown(axis: Axis) -> Any:
    """Return the values of an axis, of many whole numbers the ends and how many."""
    values = axis.labels.tolist() if hasattr(axis.labels, "tolist") else list(axis.labels)
    return values if len(values) <= _MOST_SHOWN else [values[0], "...", values[-1], len(values)]


_MOST_SHOWN = 100


def grid_of(
    nets: Any,
    axes: Mapping[str, Any],
    fixed: Mapping[str, Any],
    *,
    where: str | None = None,
    bands: bool = False,
    memory: bool = True,
) -> Grid:
    """Return the grid of nets, axes and settings, each checked by itself.

    Nets may be the axis `net` instead. Raises a PaleoError with every mistake: a name that no
    command knows, a value that is none, an axis without any.
    """
    mistakes = Mistakes()
    if nets is None:
        nets, axes = axes.get(NET), {name: axes[name] for name in axes if name != NET}
    several = axis_of(NET, nets) if nets is not None else mistakes.check(_no_net)
    named: dict[str, Any] = {}
    for name, given in axes.items():
        found = mistakes.check(setting_name, name)
        if found in named or found == NET:
            mistakes.add(f"{name}: it is given twice")
        elif found:
            named[found] = given
    own: dict[str, Any] = {}
    for name, given in fixed.items():
        found = mistakes.check(setting_name, name)
        if found in named or found in own:
            mistakes.add(f"{name}: it is given twice")
        elif found:
            own[found] = given
            mistakes.check(checked_value, found, given)
    made = [mistakes.check(axis_of, name, given) for name, given in named.items()]
    if not axes and several and len(several) == 1:
        mistakes.add("a grid of nothing: give one axis or more, such as batch_size")
    names = [*named, *([NET] if several and len(several) > 1 else [])]
    condition = mistakes.check(Condition, where, names) if where else None
    mistakes.raise_as(PaleoError)
    assert several
    found_axes = [axis for axis in made if axis]
    if len(several) > 1:
        found_axes.insert(0, several)
    else:
        own = {NET: several.value(0), **own}
    grid = Grid(tuple(found_axes), {"workers": 1, **own} if "workers" not in named else own,
                condition, bands, memory)  # fmt: skip
    if grid.size > MOST_POINTS:
        raise SettingError(f"{grid.size:,} points are more than {MOST_POINTS:,}")
    return grid


def _no_net() -> Axis:
    raise SettingError("net: expected one or more, got none")


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def values_of(grid: Grid, block: Block, name: str) -> Any:
    """Return the values of an inner axis in a block; of a fixed setting the one."""
    if name in block.slices:
        return grid.by_name[name].values[block.slices[name]]
    return grid.fixed.get(name)


def cells(blocks: list[Block]) -> Iterator[tuple[Mapping[str, int], list[Block]]]:
    """Yield cells with those of these blocks that are theirs, in order."""
    own: list[Block] = []
    for block in blocks:
        if own and own[-1].cell != block.cell:
            yield own[0].cell, own
            own = []
        own.append(block)
    if own:
        yield own[0].cell, own
