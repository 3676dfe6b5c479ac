"""Plans as arrays: every combination of degrees, micro-batches, recomputation and ZeRO at once."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from paleo.core.checks import listed
from paleo.core.errors import Mistakes, PaleoError, SettingError
from paleo.core.frozen import dataclass
from paleo.core.quantity import Array, np
from paleo.step.declarations import declared, found_setting
from paleo.step.mesh import Mesh
from paleo.step.mesh_checks import check_mesh
from paleo.step.meshed import micro_batch_of
from paleo.step.plan import Plan
from paleo.step.plan_grid import AXES, Batches, Dealt, PlanGrid, check_known
from paleo.step.recompute import Recompute, find_recompute
from paleo.step.scenario import Scenario, ScenarioLike, SimulateSettings, scenario
from paleo.step.settings import EstimateSettings
from paleo.step.utilization import tokens_of

#: Settings that plans have each for themselves: given as one value or several.
_SEVERAL = ("tp", "pp", "micro_batch", "recompute", "zero", "interleave", "global_batch")
#: Of those may be thousands, of which nothing but that they are whole numbers is to be checked.
_COUNTS = ("micro_batch", "global_batch")
#: Fields of a plan that plans as arrays know, with the formulas of one plan: how operations are
#: priced, and what follows.
_KNOWN = (
    *_SEVERAL,
    *declared(EstimateSettings),
    *("device", "network", "cluster", "dtype", "ppp_comm", "optimizer", "optimizer_kernels"),
    *("clip_gradients", "scale_loss", "loss", "overlap", "bucket", "gradient_dtype", "nccl"),
    *("cp", "context", "ep", "schedule", "stages", "sequence_parallel", "order"),
    *("allocator_slack", "shard_degree", "jitter"),
)
#: The parts of a step that are messages.
_MESSAGES = ("tensor_parallel", "context_parallel", "expert_parallel", "pipeline_parallel")
_EXPOSED = (*_MESSAGES, "parameters_gathered", "data_parallel")


@dataclass(frozen=True, eq=False)
class Plans:
    """Every plan that was asked for, in the order of the last axis quickest.

    `settings` are by name what a plan has, `columns` arrays of what follows, in SI units: `step_s`,
    its parts (`parts` names them) and `memory_bytes`; NaN, and 0 bytes, of plans that cannot be.
    `valid` tells which can; `reasons` are texts of why others cannot, `said` all of these texts
    after an empty one, `why` the place of each plan's in them.
    """

    net: str
    scenario: Scenario = field(repr=False)
    settings: Mapping[str, Array]
    columns: Mapping[str, Array] = field(repr=False)
    why: Array = field(repr=False)
    said: tuple[str, ...] = field(repr=False)
    parts: tuple[str, ...]
    tokens: int | None = None

    def __len__(self) -> int:
        return len(self.why)

    def __getitem__(self, name: str) -> Array:
        """Return a setting, or a column, of all plans by its name."""
        found = self.settings.get(name)
        return self.columns[name] if found is None else found

    @property
    def valid(self) -> Array:
        """Which plans can be."""
        found: Array = self.why == 0
        return found

    @property
    def reasons(self) -> Array:
        """Why each plan cannot be: texts, empty for one that can."""
        found: Array = np.array(self.said, object)[self.why]
        return found

    @property
    def step_s(self) -> Array:
        """Seconds of a step."""
        return self["step_s"]

    @property
    def samples_per_s(self) -> Array:
        """Samples a second of all devices."""
        found: Array = self["global_batch"] / self.step_s
        return found

    @property
    def tokens_per_s(self) -> Array | None:
        """Tokens a second of all devices; None of a net without tokens."""
        return None if self.tokens is None else self.tokens * self.samples_per_s

    @property
    def memory_bytes(self) -> Array:
        """Bytes of the fullest stage."""
        return self["memory_bytes"]

    @property
    def fits(self) -> Array:
        """Which plans can be and fit the memory of a device, if that is known."""
        capacity = self.scenario.plan.device.memory_capacity
        return self.valid if capacity is None else self.valid & (self.memory_bytes <= capacity)

    @property
    def bubble_s(self) -> Array:
        """Seconds of waiting in the pipeline."""
        return self["bubble"]

    @property
    def exposed_communication_s(self) -> Array:
        """Seconds of messages during which nothing is computed."""
        found: Array = sum(
            (self[name] for name in _EXPOSED if name in self.columns), np.zeros(len(self))
        )
        return found

    def best(self, count: int = 1) -> list[int]:
        """Return the places of the plans that fit with most samples a second, best first."""
        rate = np.where(self.fits, self.samples_per_s, -np.inf)
        order = np.argsort(-rate, kind="stable")[:count]
        return [int(i) for i in order if self.fits[i]]

    def at(self, place: int) -> dict[str, Any]:
        """Return the settings of one plan, as `paleo.simulate` takes them."""
        found = {name: values[place] for name, values in self.settings.items()}
        named = {
            name: each.item() if hasattr(each, "item") else each for name, each in found.items()
        }
        del named["dp"]
        return named


def plans(
    net: ScenarioLike,
    workers: int | Sequence[int] | None = None,
    **settings: Any,
) -> Plans:
    """Return the steps of all plans of these settings, as arrays.

    `tp`, `pp`, `micro_batch`, `recompute`, `zero`, `interleave`, `global_batch` and `workers` may
    be one value or several: there is a plan for each combination. Other settings are those of
    `paleo.simulate` on a cluster, of which each has one value. The numbers are those of one plan at
    a time, within rounding. Raises a PaleoError for what plans as arrays do not know, such as
    balanced stages, DualPipe or a data loader; plans that cannot be are no error: see `Plans`.

    >>> found = paleo.plans("gpt2", cluster="dgx_a100", workers=16, tp=[1, 2], global_batch=64)
    >>> found.settings["dp"].tolist(), bool(found.valid.all())
    ([16, 8], True)
    """
    axes: dict[str, list[Any]] = {}
    given: dict[str, Any] = dict(settings)
    for name in _SEVERAL:
        value = given.pop(name, None)
        several = isinstance(value, Sequence) and not isinstance(value, str)
        axes[name] = list(value) if several else [value]
    counts = [None] if workers is None else listed("workers", workers, int)
    base = _checked(net, given, axes, counts)
    plan = base.plan
    check_known(plan, _KNOWN)
    axes = {
        name: [getattr(plan, name) if value is None else value for value in values]
        for name, values in axes.items()
    }
    axes["recompute"] = [find_recompute(value) for value in axes["recompute"]]
    axes["workers"] = list(base.workers if workers is None else counts)
    return _Evaluation(base, axes).found()


def _checked(
    net: ScenarioLike, given: Mapping[str, Any], axes: Mapping[str, list[Any]], counts: list[Any]
) -> Scenario:
    """Return a scenario of the first values; raises a PaleoError with what is wrong with any."""
    mistakes = Mistakes()
    once = {name: next((v for v in values if v is not None), None) for name, values in axes.items()}
    once = {name: value for name, value in once.items() if value is not None}
    if counts != [None]:
        once["workers"] = counts[0]
    asked = {**given, **once, "parallel": "mesh"}
    first = mistakes.check(functools.partial(scenario, net, **asked))
    known = declared(SimulateSettings)
    for name, values in axes.items():
        for value in values[1:]:
            if first and name in _COUNTS:
                mistakes.check(functools.partial(found_setting, known[name], value))
            elif first and value is not None:
                mistakes.check(functools.partial(first.changed, **{name: value}))
    mistakes.raise_as(PaleoError)
    assert first
    if len(first.workers) > 1 and counts == [None]:
        raise SettingError("workers: give how many devices there are")
    return first


class _Evaluation:
    """All combinations of values of axes, evaluated."""

    def __init__(self, base: Scenario, axes: Mapping[str, list[Any]]) -> None:
        self.base, self.axes = base, axes
        self.net, self.plan = base.net, base.plan
        #: Where each plan stands, by the places of its values on the axes.
        self.places = np.arange(math.prod(map(len, axes.values())))
        self.places = self.places.reshape([len(axes[name]) for name in AXES])
        count = self.places.size
        #: The texts of why plans cannot be, and which of them is that of each.
        self.said: dict[str, int] = {"": 0}
        self.reasons, self.dps = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self.micros, self.batches = np.zeros(count, np.int64), np.zeros(count, np.int64)

    def found(self) -> Plans:
        """Return the plans."""
        named = any(recompute.blocks for recompute in self.axes["recompute"])
        grid = PlanGrid(self.net, self.plan, named)
        columns: dict[str, Array] = {}
        degrees = [
            list(enumerate(self.axes[name])) for name in ("tp", "pp", "interleave", "workers")
        ]
        for (t, tp), (p, pp), (i, interleave), (w, workers) in itertools.product(*degrees):
            own = self.places[t, p, :, :, :, i, :, w]  # micro-batch, recompute, zero, batch
            zeros, blocks = self._valid(own, tp, pp, interleave, workers)
            if not zeros:
                continue
            try:
                sizes = {size for batches, _ in blocks for size in batches.sizes.tolist()}
                sizes.update(filter(None, self.axes["micro_batch"]))
                dealt = grid.dealt(tp, pp, interleave, workers, sizes)
                for batches, places in blocks:
                    self._evaluate(dealt, zeros, batches, places, columns)
            except PaleoError as error:
                for batches, places in blocks:
                    for z in zeros.values():
                        self._note(places[:, z][:, batches.can_be], error)
        return self._plans(columns)

    def _evaluate(
        self,
        dealt: Dealt,
        zeros: Mapping[int, int],
        batches: Batches,
        places: Array,
        columns: dict[str, Array],
    ) -> None:
        """Put what follows of these plans in its place; `zeros` have places on their axis.

        `places` are those of plans by recomputation, ZeRO, micro-batch and column.
        """
        meant: dict[Recompute, list[int]] = {}
        for r, recompute in enumerate(self.axes["recompute"]):
            meant.setdefault(dealt.divided.meaning(recompute), []).append(r)
        for zero, part, found in dealt.columns([*meant], [*zeros], batches):
            can_be = batches.can_be[:, part]
            for which, same in enumerate(meant.values()):
                for r in same:
                    own = places[r, zeros[zero], :, part][can_be]
                    for name, values in found.items():
                        self._column(columns, name)[own] = values[which][can_be]

    def _note(self, places: Array, error: PaleoError) -> None:
        """Note why these plans cannot be."""
        self.reasons[places] = self.said.setdefault(str(error), len(self.said))

    def _column(self, columns: dict[str, Array], name: str) -> Array:
        if name not in columns:
            kind = np.int64 if name == "memory_bytes" else np.float64
            columns[name] = np.zeros(self.places.size, kind)
        return columns[name]

    def _valid(
        self, own: Array, tp: int, pp: int, interleave: int, workers: int
    ) -> tuple[dict[int, int], list[tuple[Batches, Array]]]:
        """Return the ZeROs and batches of these plans that can be; of others say why.

        ZeROs have their places on the axis, batches those of plans: see `_evaluate`.
        """
        plan = self.plan
        try:
            mesh = Mesh.of(workers, tp, plan.cp, plan.ep, pp, plan.order)
            plan.group(mesh.size)
        except PaleoError as error:
            self._note(own, error)
            return {}, []
        self.dps[own] = mesh.dp
        blocks = self._batches(own, mesh)
        zeros = {}
        for z, zero in enumerate(self.axes["zero"]):
            try:
                check_mesh(replace(plan, pp=pp, interleave=interleave, zero=zero), mesh)
            except PaleoError as error:
                self._note(own[:, :, z], error)
            else:
                zeros[zero] = z
        return zeros if blocks else {}, blocks

    def _batches(self, own: Array, mesh: Mesh) -> list[tuple[Batches, Array]]:
        """Return what plans of a mesh compute at a time, and their places; of others say why."""
        batches = np.array(
            [batch or self._own_batch * mesh.dp for batch in self.axes["global_batch"]]
        )
        micros = self.axes["micro_batch"]
        sizes = np.zeros((len(micros), len(batches)), np.int64)
        for m, micro in enumerate(micros):
            # Whether a size divides a share of the data is the same for equal ones.
            left = np.where(batches % mesh.dp, -1, batches // mesh.dp % micro) if micro else batches
            _, firsts, same = np.unique(left, return_index=True, return_inverse=True)
            found = np.zeros(len(firsts), np.int64)
            for one, first in enumerate(firsts.tolist()):
                with contextlib.suppress(PaleoError):
                    found[one] = self._micro(mesh, int(batches[first]), micro)
            sizes[m] = found[same]
            for g in np.flatnonzero(sizes[m] == 0).tolist():
                try:
                    self._micro(mesh, int(batches[g]), micro)
                except PaleoError as error:
                    self._note(own[m, :, :, g], error)
        whole = np.broadcast_to(batches, sizes.shape)
        can_be = sizes > 0
        places = own.transpose(1, 2, 0, 3)  # recomputation, ZeRO, micro-batch, batch
        self.micros[places], self.batches[places] = sizes, whole * can_be
        counts = np.where(can_be, whole // (mesh.dp * np.maximum(sizes, 1)), 1)
        given = [m for m, micro in enumerate(micros) if micro]
        blocks = (
            [
                (
                    Batches(sizes[given].max(axis=1), counts[given], can_be[given]),
                    places[:, :, given],
                )
            ]
            if given
            else []
        )
        for m, micro in enumerate(micros):
            if not micro:  # each batch has its own
                of_all = Batches(sizes[m], counts[m][:, None], can_be[m][:, None])
                blocks.append((of_all, places[:, :, m, :, None]))
        return [
            (Batches(*(each[rows] for each in block)), own[:, :, rows])
            for block, own in blocks
            for rows in [block.can_be.any(axis=1)]
            if rows.any()
        ]

    def _micro(self, mesh: Mesh, batch: int, micro: int | None) -> int:
        """Return how many samples a device computes at a time; raises SettingError."""
        return micro_batch_of(self.net, self._planned(micro), mesh, batch)

    @functools.cache  # noqa: B019 (it lives as long as the evaluation)
    def _planned(self, micro: int | None) -> Plan:
        return replace(self.plan, micro_batch=micro)

    @functools.cached_property
    def _own_batch(self) -> int:
        if self.base.batch_size is not None:
            return int(self.base.batch_size)
        return int(self.base.graph().batch_size)

    def _plans(self, columns: dict[str, Array]) -> Plans:
        parts = tuple(name for name in columns if name != "memory_bytes")
        columns["step_s"] = sum((columns[name] for name in parts), np.zeros(self.places.size))
        for name in (*parts, "step_s"):
            columns[name] = np.where(self.reasons == 0, columns[name], np.nan)
        self._column(columns, "memory_bytes")
        axes = {name: np.array([*map(_plain, values)]) for name, values in self.axes.items()}
        spread = np.meshgrid(*(axes[name] for name in AXES), indexing="ij")
        settings: dict[str, Array] = {
            name: values.ravel() for name, values in zip(AXES, spread, strict=True)
        }
        settings |= {"micro_batch": self.micros, "global_batch": self.batches, "dp": self.dps}
        tokens = tokens_of(self.plan.trained(self.net))
        said = tuple(self.said)
        return Plans(
            self.net.name, self.base, settings, columns, self.reasons, said, parts, tokens or None
        )


def _plain(value: Any) -> Any:
    """Return a value of an axis as a number or a text, 0 where it follows from others."""
    return 0 if value is None else value if isinstance(value, int) else str(value)
