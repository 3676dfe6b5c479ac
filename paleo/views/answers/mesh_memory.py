"""What the memory of devices that share a net says: the fullest stage, and whether it fits."""

from __future__ import annotations

from collections.abc import Sequence

from paleo.studies.mesh_memory import MeshMemory
from paleo.views.answers.base import device_named
from paleo.views.table import in_unit

_PARTS = {
    "weights": "weights",
    "gradients": "gradients",
    "optimizer_state": "the optimizer's state",
    "activations": "activations",
    "buffers": "buffers of what devices exchange",
}


def mesh_memory_answer(found: Sequence[MeshMemory]) -> list[str]:
    """Return the sentences of each net."""
    return [sentence for one in found for sentence in _of_one(one)]


def _of_one(found: MeshMemory) -> list[str]:
    stage, plan = found.fullest, found.plan
    which = f"stage {stage.stage} is the fullest" if len(found.stages) > 1 else "all take the same"
    sizes = {name: float(getattr(stage, part)) for part, name in _PARTS.items()}
    most = max(sizes, key=lambda name: sizes[name])
    said = (
        f"Training of {found.net} takes {in_unit(float(stage.total), 'bytes', 3)} of each of "
        f"{found.mesh.size:,} {device_named(plan.device.name)}, {which}: most of it are {most}, "
        f"{in_unit(sizes[most], 'bytes', 3)}."
    )
    if found.memory_capacity is None:
        return [said]
    there = in_unit(found.memory_capacity, "bytes")
    return [said, f"It {'fits' if found.fits else 'does not fit'} the {there} that one has."]
