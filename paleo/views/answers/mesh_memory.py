"""What the memory of devices that share a net says: the fullest stage, and whether it fits."""

from __future__ import annotations

from collections.abc import Sequence

from paleo.studies.mesh_memory import MeshMemory
from paleo.views.answers.base import device_named, remedy_said
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
    which = f", stage {stage.stage} is the fullest"
    if len(found.stages) == 1:
        which = ", all take the same" if found.mesh.size > 1 else ""
    of_each = f"each of {found.mesh.size:,}" if found.mesh.size > 1 else "one"
    sizes = {name: float(getattr(stage, part)) for part, name in _PARTS.items()}
    most = max(sizes, key=lambda name: sizes[name])
    said = (
        f"Training of {found.net} takes {in_unit(float(stage.total), 'bytes', 3)} of {of_each} "
        f"{device_named(plan.device.name)}{which}: most of it are {most}, "
        f"{in_unit(sizes[most], 'bytes', 3)}."
    )
    if found.memory_capacity is None:
        return [said]
    there = in_unit(found.memory_capacity, "bytes")
    if found.fits is False and stage.total <= found.memory_capacity:
        on_host = in_unit(float(max(one.host for one in found.stages)), "bytes", 3)
        return [said, f"Each needs {on_host} of its host's memory, which is more than its share."]
    if found.fits:
        return [said, f"It fits the {there} that one has."]
    remedy = found.remedy
    more = [remedy_said(remedy)] if remedy else []
    return [said, f"It does not fit the {there} that one has.", *more]
