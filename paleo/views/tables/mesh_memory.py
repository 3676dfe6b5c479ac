"""The table of the memory of devices that share a net: a row for each stage."""

from __future__ import annotations

from collections.abc import Sequence

from paleo.step.memory.stage import PARTS
from paleo.step.plan import SHARES
from paleo.studies.mesh_memory import MeshMemory
from paleo.views.charts.numbers import counted
from paleo.views.charts.settings import joined
from paleo.views.table import Column, Table


def mesh_memory_tables(found: Sequence[MeshMemory]) -> list[Table]:
    """Return a table for each net."""
    return [_table(one) for one in found]


def mesh_setting(found: MeshMemory) -> str:
    """Return what the memory of a net is of."""
    plan = found.plan
    said = [text for key, text in plan.said().items() if key not in SHARES]
    where = plan.cluster.name if plan.cluster else ""
    return joined([where, plan.device.name, plan.dtype, *said])


def _table(found: MeshMemory) -> Table:
    values = found.to_dict()
    title = joined([found.net, mesh_setting(found)])
    batch = (
        f"{counted(found.mesh.size, 'device')}, {found.global_batch:,} samples a step, "
        f"{found.micro_batch:,} at a time: what there is at the peak, of all on their way"
    )
    return Table(
        title,
        (
            Column("stage", "stage"),
            *(
                Column(f"{part}_bytes", part.replace("_", "\n"), "bytes", digits=3)
                for part in (*PARTS, "slack")
            ),
            Column("total_bytes", "total", "bytes", digits=3, least_is_best=True),
            *(Column("host_bytes", "on\nhost", "bytes", digits=3) for _ in found.plan.offload[:1]),
        ),
        [{**values, **stage.to_dict()} for stage in found.stages],
        footnotes=[batch],
        notes=list(found.notes),
    )
