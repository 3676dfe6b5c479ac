"""The stages of a step on a mesh: what each spends it on, and what would make them fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paleo.core.units import scale_for
from paleo.step.loader import LOADER
from paleo.step.pieces import Step
from paleo.step.recompute import RECOMPUTATION
from paleo.step.results import Run, Simulation
from paleo.studies.fitting import Remedy
from paleo.studies.mesh_stages import WAITING, StageTime, stages_of
from paleo.views.answers.base import LONGER, percent
from paleo.views.charts.numbers import counted
from paleo.views.charts.settings import joined, run_setting
from paleo.views.table import Column, Table, in_unit, plain

#: What the parts of a stage's time are called at the head of a column.
_PARTS = {
    "forward": "forward",
    RECOMPUTATION: "recom-\nputation",
    "backward": "backward",
    "tensor_parallel": "tensor\nparallel",
    "context_parallel": "context\nparallel",
    "expert_parallel": "expert\nparallel",
    "pipeline_parallel": "to other\nstages",
    "parameters_gathered": "gathering",
    "data_parallel": "data\nparallel",
    "weight_casts": "casts of\nweights",
    "update": "update",
    WAITING: "waiting",
    LOADER: "waiting\nfor data",
}


def stages_tables(runs: Sequence[Run]) -> list[Table]:
    """Return the stages of the step on most workers of each run."""
    return [
        stages_table(run, run.largest, stages_of(run, run.largest)) for run in runs if run.largest
    ]


def stages_values(simulation: Simulation) -> dict[str, Any]:
    """Return the values of a simulation for JSON, with the stages of the step on most workers."""
    values = simulation.to_dict()
    for run, found in zip(simulation.runs, values["runs"], strict=True):
        row = run.largest
        found["stages"] = [stage.to_dict() for stage in stages_of(run, row)] if row else []
    return values


def stages_table(run: Run, row: Step, stages: Sequence[StageTime]) -> Table:
    """Return a row for each stage: the parts of its time, and its memory."""
    found = [name for name in _PARTS if any(name in stage.parts for stage in stages)]
    same = {
        "net": run.net,
        "workers": row.workers,
        "batch_size": row.batch_size,
        "micro_batch": row.worker_batch_size,
    }
    # A unit in which a hundredth of the step is a number: what is shorter does not matter.
    scale = scale_for([[float(row.total(row.best_scheme)) / 100]], "s")
    rows = [
        {
            **same,
            **stage.to_dict(),
            **{f"{name}_s": stage.parts.get(name, 0.0) for name in found},
            **{name: _shown(stage.parts.get(name, 0.0) / scale.factor) for name in found},
        }
        for stage in stages
    ]
    columns = (
        *plain(*same),
        Column("stage", "stage"),
        Column("blocks", "blocks"),
        *(
            Column(name, f"{_PARTS[name]}\n({scale.unit})", for_people=True, right=True)
            for name in found
        ),
        *plain(*(f"{name}_s" for name in found), "step_s"),
        Column("total_bytes", "memory", "bytes", digits=3, least_is_best=True),
    )
    samples = f"{counted(row.batch_size, 'sample')} on {counted(row.workers, 'worker')}"
    title = joined([f"stages of {run.net} on {run_setting(run)}", samples])
    said = (
        "Of all micro-batches of a step; columns of time add up to the step. Messages count as far "
        "as nothing hides them."
    )
    return Table(title, columns, rows, footnotes=[said])


def _shown(value: float) -> str:
    """Return a time in the unit of the step, to three digits of the longest parts."""
    return f"{value:,.{0 if value >= 100 else 1 if value >= 10 else 2}f}"


def remedies_table(remedies: Sequence[Remedy]) -> Table:
    """Return what would make a step fit, and how much longer that takes."""
    rows = [
        {
            "settings": each.options,
            "memory_bytes": each.memory,
            "step_s": each.seconds,
            "longer": longer_said(each),
        }
        for each in remedies
    ]
    columns = (
        Column("settings", "with"),
        Column("memory_bytes", "memory", "bytes", digits=3, least_is_best=True),
        Column("step_s", "step", "s", digits=3, least_is_best=True),
        Column("longer", "a step takes", for_people=True, right=True),
    )
    return Table("Plans that would fit", columns, rows)


def longer_said(remedy: Remedy) -> str:
    """Return how much longer a step takes with a remedy than one that does not fit."""
    if abs(remedy.longer) < LONGER:
        return "as long"
    return f"{percent(abs(remedy.longer))} {'longer' if remedy.longer > 0 else 'less'}"


def fullest_said(stages: Sequence[StageTime]) -> tuple[str, str]:
    """Return how much memory the fullest stage takes, and which that is, "" where there is one."""
    fullest = max(stages, key=lambda stage: int(stage.memory.total))
    size = in_unit(float(fullest.memory.total), "bytes", 3)
    return size, "" if len(stages) == 1 else f"stage {fullest.stage}"
