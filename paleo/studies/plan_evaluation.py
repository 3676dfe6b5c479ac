"""The evaluation of many plans: those that can be, group by group, and why others cannot."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from paleo.core.errors import PaleoError
from paleo.core.frozen import NamedTuple
from paleo.core.quantity import Array, np
from paleo.step.divided_net import DividedNet
from paleo.step.mesh import Mesh
from paleo.step.mesh_checks import check_mesh
from paleo.step.meshed import micro_batch_of
from paleo.step.plan import Plan
from paleo.step.plan_grid import AXES, Batches, Dealt, PlanGrid
from paleo.step.recompute import Recompute
from paleo.step.scenario import Scenario


class Group(NamedTuple):
    """Plans of one mesh and as many chunks: those that can be.

    `zeros` have their places on the axis, batches those of all plans that have them, by
    recomputation, ZeRO, micro-batch and column.
    """

    mesh: Mesh
    interleave: int
    zeros: Mapping[int, int]
    blocks: list[tuple[Batches, Array]]


class _Shares(NamedTuple):
    """What plans compute at a time whose data has so many shares.

    By micro-batch on its axis and batch there are `sizes` of micro-batches and of `batches`, 0
    where they cannot be and something is `wrong`. `blocks` are those that can be, with where their
    plans are among all, by recomputation, ZeRO, micro-batch and batch.
    """

    sizes: Array
    batches: Array
    wrong: list[tuple[int, int, PaleoError]]
    blocks: list[tuple[Batches, tuple[Any, ...]]]


class Evaluation:
    """All combinations of values of axes, evaluated."""

    def __init__(self, base: Scenario, axes: Mapping[str, list[Any]]) -> None:
        self.base, self.axes = base, axes
        self.net, self.plan = base.net, base.plan
        #: Where each plan stands, by the places of its values on the axes.
        self.places = np.arange(math.prod(map(len, axes.values())))
        self.places = self.places.reshape([len(axes[name]) for name in AXES])
        count = self.places.size
        named = any(recompute.blocks for recompute in axes["recompute"])
        self._grid = PlanGrid(self.net, self.plan, named)
        self._shares = functools.cache(self._found_shares)
        self._checked = functools.cache(functools.partial(replace, base.plan))
        self._group = functools.cache(base.plan.group)
        #: What follows of each plan, by name.
        self.columns: dict[str, Array] = {}
        #: The texts of why plans cannot be, and which of them is that of each.
        self.said: dict[str, int] = {"": 0}
        self.reasons, self.dps = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self.micros, self.batches = np.zeros(count, np.int64), np.zeros(count, np.int64)

    def all(self) -> None:
        """Evaluate every plan."""
        for group in self.groups:
            try:
                dealt = self.dealt(group)
                for batches, places in group.blocks:
                    self._evaluate(dealt, group.zeros, batches, places)
            except PaleoError as error:
                self.note(group, error)

    def seconds_under(self, plan: Plan, places: Array) -> Array:
        """Return the seconds of plans that can be, under a plan that differs in links alone.

        What is computed is not priced again.
        """
        found, wanted = np.zeros(self.places.size), np.zeros(self.places.size, bool)
        wanted[places] = True
        known: dict[int, DividedNet] = {}
        for group in self.groups:
            asked = [block for block in group.blocks if wanted[block[1]].any()]
            if not asked:
                continue
            mesh, divided = group.mesh, self.divided(group)
            changed = replace(plan, tp=mesh.tp, pp=mesh.pp, interleave=group.interleave)
            if id(divided) not in known:
                known[id(divided)] = divided.under_plan(changed)
            dealt = Dealt(known[id(divided)], changed, mesh)
            meant = self.meant(dealt.divided)
            for batches, own in asked:
                zeros = [zero for zero, z in group.zeros.items() if wanted[own[:, z]].any()]
                for zero, part, columns in dealt.columns([*meant], zeros, batches):
                    seconds = functools.reduce(np.add, columns.values())
                    for which, same in enumerate(meant.values()):
                        found[own[same, group.zeros[zero], :, part]] = seconds[which]
        return found[places]

    @functools.cached_property
    def groups(self) -> tuple[Group, ...]:
        """The plans that can be, by what they do not share a net alike in."""
        return tuple(self._groups())

    def _groups(self) -> Iterator[Group]:
        degrees = [list(enumerate(self.axes[name])) for name in ("tp", "pp", "workers")]
        for (t, tp), (p, pp), (w, workers) in itertools.product(*degrees):
            # By chunks, recomputation, ZeRO, micro-batch and batch.
            places = self.places[t, p, ..., w].transpose(3, 1, 2, 0, 4)
            try:
                mesh = Mesh.of(workers, tp, self.plan.cp, self.plan.ep, pp, self.plan.order)
                self._group(mesh.size)
            except PaleoError as error:
                self._note(places, error)
                continue
            self.dps[places] = mesh.dp
            blocks = self._batches(places, mesh)
            for interleave, own in zip(self.axes["interleave"], places, strict=True):
                zeros = self._zeros(own, mesh, interleave)
                if zeros and blocks:
                    each = [(batches, own[where]) for batches, where in blocks]
                    yield Group(mesh, interleave, zeros, each)

    def divided(self, group: Group) -> DividedNet:
        """Return what a device has of the net; raises a PaleoError if it cannot be divided so."""
        return self._grid.divided(group.mesh, self._sizes(group))

    def dealt(self, group: Group) -> Dealt:
        """Return the net as its devices share it; raises a PaleoError if they cannot."""
        zero = max(group.zeros)
        return self._grid.dealt(group.mesh, group.interleave, self._sizes(group), zero)

    def _sizes(self, group: Group) -> set[int]:
        """Return the micro-batches of a group, and those that others have: all are priced once."""
        sizes = {size for batches, _ in group.blocks for size in batches.sizes.tolist()}
        return sizes.union(filter(None, self.axes["micro_batch"]))

    def meant(self, divided: DividedNet) -> dict[Recompute, list[int]]:
        """Return what recomputations mean, and the places of those that mean it on their axis."""
        found: dict[Recompute, list[int]] = {}
        for r, recompute in enumerate(self.axes["recompute"]):
            found.setdefault(divided.meaning(recompute), []).append(r)
        return found

    def _evaluate(
        self, dealt: Dealt, zeros: Mapping[int, int], batches: Batches, places: Array
    ) -> None:
        """Put what follows of these plans in its place; see `Group`."""
        meant = self.meant(dealt.divided)
        for zero, part, found in dealt.columns([*meant], [*zeros], batches):
            for which, same in enumerate(meant.values()):
                memory = dealt.memory([*meant][which], zero, batches, part)
                can_be = batches.can_be[:, part]
                for r in same:
                    own = places[r, zeros[zero], :, part][can_be]
                    self.put(own, {name: of[which][can_be] for name, of in found.items()})
                    self.put(own, {"memory_bytes": memory[can_be]})

    def put(self, places: Array, found: Mapping[str, Array]) -> None:
        """Put what follows of plans in their places."""
        for name, values in found.items():
            self._column(name)[places] = values

    def note(self, group: Group, error: PaleoError) -> None:
        """Note why the plans of a group cannot be."""
        for batches, places in group.blocks:
            for z in group.zeros.values():
                self._note(places[:, z][:, batches.can_be], error)

    def _note(self, places: Array, error: PaleoError) -> None:
        """Note why these plans cannot be."""
        self.reasons[places] = self.said.setdefault(str(error), len(self.said))

    def _column(self, name: str) -> Array:
        if name not in self.columns:
            kind = np.int64 if name == "memory_bytes" else np.float64
            self.columns[name] = np.zeros(self.places.size, kind)
        return self.columns[name]

    def _zeros(self, own: Array, mesh: Mesh, interleave: int) -> dict[int, int]:
        """Return the ZeROs of these plans that can be, with their places; of others say why."""
        plan, zeros = self.plan, {}
        for z, zero in enumerate(self.axes["zero"]):
            # Whether there is any matters for groups of shards alone.
            asked = zero if plan.shard_degree else plan.zero
            try:
                check_mesh(self._checked(pp=mesh.pp, interleave=interleave, zero=asked), mesh)
            except PaleoError as error:
                self._note(own[:, z], error)
            else:
                zeros[zero] = z
        return zeros

    def _batches(self, places: Array, mesh: Mesh) -> list[tuple[Batches, tuple[Any, ...]]]:
        """Return what plans of a mesh compute at a time, and where; of others say why."""
        found = self._shares(mesh.dp, 1 if all(self.axes["micro_batch"]) else mesh.pp)
        for m, g, error in found.wrong:
            self._note(places[..., m, g], error)
        self.micros[places], self.batches[places] = found.sizes, found.batches
        return found.blocks

    def _found_shares(self, dp: int, pp: int) -> _Shares:
        """Return what plans compute at a time whose data has so many shares.

        `pp` matters where nobody says how many samples a micro-batch has.
        """
        micros = self.axes["micro_batch"]
        batches, sizes, wrong = self._found_sizes(dp, pp)
        whole = np.broadcast_to(batches, sizes.shape)
        can_be = sizes > 0
        counts = np.where(can_be, whole // (dp * np.maximum(sizes, 1)), 1)
        blocks: list[tuple[Batches, tuple[Any, ...]]] = []
        each = slice(None)
        given = [m for m, micro in enumerate(micros) if micro and can_be[m].any()]
        if given:
            of_given = Batches(sizes[given].max(axis=1), counts[given], can_be[given])
            blocks.append((of_given, (each, each, given)))
        for m, micro in enumerate(micros):
            if not micro and can_be[m].any():  # each batch has its own
                own = np.flatnonzero(can_be[m])
                of_all = Batches(sizes[m, own], counts[m, own, None], can_be[m, own, None])
                blocks.append((of_all, (each, each, m, own, None)))
        return _Shares(sizes, whole * can_be, wrong, blocks)

    def _found_sizes(
        self, dp: int, pp: int
    ) -> tuple[Array, Array, list[tuple[int, int, PaleoError]]]:
        """Return all batches, the micro-batches of each by place on their axis, and what is wrong.

        They are 0 where something is.
        """
        mesh, micros = Mesh(dp=dp, pp=pp), self.axes["micro_batch"]
        batches = np.array([batch or self._own_batch * dp for batch in self.axes["global_batch"]])
        sizes = np.zeros((len(micros), len(batches)), np.int64)
        wrong = []
        for m, micro in enumerate(micros):
            # Whether a size divides a share of the data is the same for equal ones.
            left = np.where(batches % dp, -1, batches // dp % micro) if micro else batches
            plan = self._of_micro[m]
            for rest in sorted({*left.tolist()}):
                same = np.flatnonzero(left == rest).tolist()
                try:
                    sizes[m, same] = micro_batch_of(self.net, plan, mesh, int(batches[same[0]]))
                except PaleoError:
                    wrong += [(m, g, self._mistake(plan, mesh, int(batches[g]))) for g in same]
        return batches, sizes, wrong

    @functools.cached_property
    def _of_micro(self) -> list[Plan]:
        """The plan with each micro-batch on its axis."""
        return [replace(self.plan, micro_batch=micro) for micro in self.axes["micro_batch"]]

    def _mistake(self, plan: Plan, mesh: Mesh, batch: int) -> PaleoError:
        """Return why a batch has no such micro-batches."""
        try:
            micro_batch_of(self.net, plan, mesh, batch)
        except PaleoError as error:
            return error
        raise AssertionError(f"{batch} samples divide")

    @functools.cached_property
    def _own_batch(self) -> int:
        if self.base.batch_size is not None:
            return int(self.base.batch_size)
        return int(self.base.graph().batch_size)
