"""What the devices of a mesh take of memory, stage by stage, when they train a net together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Unpack

from paleo.core.attributes import attributes
from paleo.core.errors import Mistakes, PaleoError
from paleo.core.frozen import dataclass
from paleo.core.results import Result, Results
from paleo.step.memory.stage import StageMemory
from paleo.step.mesh import KINDS, Mesh
from paleo.step.meshed import Meshed, micro_batch_of
from paleo.step.offload import fits
from paleo.step.plan import Plan
from paleo.step.plan_keys import MESH, UPDATED
from paleo.step.scenario import ScenarioLike, StepSettings, asked
from paleo.step.settings import WORKERS
from paleo.studies.fitting import Remedy, remedy


class MeshMemorySettings(StepSettings, total=False):
    """Of the memory of devices that share a net: those of one step."""

    workers: Annotated[int, WORKERS.with_default(1)]


@dataclass(frozen=True)
class MeshMemory(Result):
    """The memory of one device of each stage; `micro_batch` samples are computed at a time."""

    net: str
    meshed: Meshed
    global_batch: int
    micro_batch: int
    stages: tuple[StageMemory, ...]
    notes: tuple[str, ...] = ()

    @property
    def fullest(self) -> StageMemory:
        """The stage whose devices take most."""
        return max(self.stages, key=lambda stage: int(stage.total))

    @property
    def plan(self) -> Plan:
        """What the net is trained on, and how."""
        return self.meshed.plan

    @property
    def mesh(self) -> Mesh:
        """How devices share the net."""
        return self.meshed.mesh

    @property
    def remedy(self) -> Remedy | None:
        """What would make it fit, if it does not and something that is known would."""
        return None if self.fits is not False else remedy(self.meshed, self.global_batch)

    @property
    def memory_capacity(self) -> int | None:
        """Bytes of a device's memory, None where that is not known."""
        return self.plan.device.memory_capacity

    @property
    def fits(self) -> bool | None:
        """Whether every stage fits; None where the capacity is not known."""
        return fits(self.plan, self.stages, self.mesh.size)

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        return {
            "net": self.net,
            **self.plan.to_dict("device", "cluster", "dtype", *UPDATED, "recompute", "loss"),
            **self.plan.to_dict(*MESH),
            "num_workers": self.mesh.size,
            **{kind: getattr(self.mesh, kind) for kind in KINDS},
            **attributes(self, "global_batch", "micro_batch"),
            "stages": [stage.to_dict() for stage in self.stages],
            "memory_bytes": int(self.fullest.total),
            "memory_capacity_bytes": self.memory_capacity,
            "fits": self.fits,
            "notes": list(self.notes),
        }


def mesh_memory(
    nets: ScenarioLike | Iterable[ScenarioLike], **settings: Unpack[MeshMemorySettings]
) -> Results[MeshMemory]:
    """Return what one device of each stage takes in training, for one net or several.

    The settings are those of a step of `paleo.simulate` on a mesh: `tp`, `pp`, `cp`, `ep`, `zero`
    and so on, and the number of `workers`. Raises a PaleoError with every mistake.

    >>> from paleo.studies.mesh_memory import mesh_memory
    >>> (found,) = mesh_memory("llama3_8b", cluster="dgx_h100", workers=8, tp=8, batch_size=1)
    >>> len(found.stages), found.fits
    (1, True)
    """
    mistakes = Mistakes()
    known: Mapping[str, Any] = settings
    scenarios, _ = asked(nets, MeshMemorySettings, known, mistakes)
    mistakes.raise_as(PaleoError)
    found = []
    for each in scenarios:
        plan, (workers,) = each.plan, each.workers
        mesh = mistakes.check(Mesh.of, workers, plan.tp, plan.cp, plan.ep, plan.pp, plan.order)
        if mesh:
            found.append(mistakes.check(memory_of, Meshed(each.net, plan, mesh), each.batch_size))
    mistakes.raise_as(PaleoError)
    return Results(one for one in found if one)


def memory_of(meshed: Meshed, batch_size: Any) -> MeshMemory:
    """Return the memory of each stage; raises SettingError if batches do not divide."""
    plan, mesh = meshed.plan, meshed.mesh
    batch = plan.global_batch or int(batch_size) * mesh.dp
    micro = micro_batch_of(meshed.net, plan, mesh, batch)
    stages: Sequence[StageMemory] = meshed.memory(micro, meshed.batches(batch))
    notes = (*meshed.net.notes, *plan.recompute.notes(plan.graph(meshed.net, None)))
    return MeshMemory(meshed.net.name, meshed, batch, micro, tuple(stages), notes)
