"""Which settings would make a step on a mesh fit the memory of its devices, and what they cost."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from paleo.core.errors import PaleoError
from paleo.core.frozen import NamedTuple
from paleo.step.mesh import Mesh
from paleo.step.mesh_settings import OFFLOADED
from paleo.step.meshed import Meshed, micro_batch_of
from paleo.step.offload import ACTIVATIONS, GRADIENTS, OPTIMIZER, can_offload, fits
from paleo.step.plan import Plan
from paleo.step.recompute import find_recompute

#: What is moved to the host, in which order it is tried.
_OFFLOADED = ((ACTIVATIONS,), (OPTIMIZER,), (OPTIMIZER, GRADIENTS), OFFLOADED)


class Remedy(NamedTuple):
    """Settings that make a step fit: bytes of the fullest stage then, and seconds of the step.

    `longer` is by which share of what does not fit it takes longer.
    """

    settings: dict[str, Any]
    memory: int
    seconds: float
    longer: float

    @property
    def options(self) -> str:
        """The settings as options of a command."""
        return " ".join(
            f"--{name}" + ("" if value is True else f"={_spelt(value)}")
            for name, value in self.settings.items()
        )


def _spelt(value: Any) -> str:
    """Return a value as an option has it."""
    return ",".join(value) if isinstance(value, tuple) else str(value)


def remedy(meshed: Meshed, global_batch: int) -> Remedy | None:
    """Return the settings that make a step of so many samples fit; None if none that is tried does.

    What costs least time comes first: positions divided with tensors, the optimizer's state
    divided among shares of the data (ZeRO 1), smaller micro-batches, recomputation, parameters
    divided too (ZeRO 3) and among all; where it is known what the host can do, activations or the
    optimizer's state on it, or both. The fewest of them that fit are taken.
    """
    return next(_fitting(meshed, global_batch), None)


def remedies(meshed: Meshed, global_batch: int) -> list[Remedy]:
    """Return all that are as few settings as `remedy` has, the quickest first."""
    found = _fitting(meshed, global_batch)
    first = next(found, None)
    if first is None:
        return []
    alike = itertools.takewhile(lambda each: len(each.settings) == len(first.settings), found)
    return sorted([first, *alike], key=lambda each: each.seconds)


def _fitting(meshed: Meshed, global_batch: int) -> Iterator[Remedy]:
    """Yield what makes a step fit, fewer settings first."""
    plan, mesh = meshed.plan, meshed.mesh
    if plan.device.memory_capacity is None:
        return
    given = micro_batch_of(meshed.net, plan, mesh, global_batch)
    as_it_is = _seconds(meshed, global_batch)
    for settings in _tried(plan, mesh, given):
        changed = replace(plan, **settings)
        with contextlib.suppress(PaleoError):
            other = Meshed(meshed.net, changed, mesh)
            micro = settings.get("micro_batch", given)
            stages = other.memory(micro, global_batch // (mesh.dp * micro))
            if fits(changed, stages, mesh.size):
                memory = int(max(each.total for each in stages))
                seconds = _seconds(other, global_batch)
                yield Remedy(settings, memory, seconds, seconds / as_it_is - 1)


def _seconds(meshed: Meshed, global_batch: int) -> float:
    step = meshed.step(global_batch)
    return float(step.total(step.best_scheme))


def _tried(plan: Plan, mesh: Mesh, micro_batch: int) -> Iterator[dict[str, Any]]:
    """Yield settings to be tried: one of them, then two, and so on."""
    steps: list[dict[str, Any]] = []
    if mesh.tp > 1 and not plan.sequence_parallel:
        steps.append({"sequence_parallel": True})
    if mesh.replicas > 1 and not plan.zero:
        steps.append({"zero": 1})
    if micro_batch > 1:
        steps.append({"micro_batch": 1})
    if plan.recompute.mode != "full":
        steps.append({"recompute": find_recompute("full")})
    if mesh.replicas > 1 and plan.zero < 3:
        steps.append({"zero": 3})
    if plan.shard_degree:
        steps.append({"shard_degree": mesh.replicas})
    yield from _combined(steps)
    if can_offload(plan):
        for names in _OFFLOADED:
            moved = {"offload": tuple(name for name in OFFLOADED if name in names)}
            if set(plan.offload) < set(names):
                yield moved
                # With one other setting, or all: each is tried, and there would be hundreds.
                yield from (each | moved for each in steps)
                yield {name: value for each in steps for name, value in each.items()} | moved


def _combined(steps: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield each of some settings, then two of different ones, and so on."""
    for count in range(1, len(steps) + 1):
        for chosen in itertools.combinations(steps, count):
            settings = {name: value for each in chosen for name, value in each.items()}
            if len(settings) == count:
                yield settings
