"""What of the settings of a mesh does not go together: every mistake at once."""

from __future__ import annotations

from paleo.core.errors import Mistakes, SettingError
from paleo.step.mesh import Mesh
from paleo.step.pipelines import PIPELINES
from paleo.step.plan import Plan


def check_mesh(plan: Plan, mesh: Mesh) -> None:
    """Raise SettingError, with every mistake, for settings that do not go together on a mesh."""
    mistakes = Mistakes()
    if plan.interleave > 1 and mesh.pp == 1:
        mistakes.add("interleave: one stage has no chunks: give --pp, too")
    elif plan.interleave > 1 and not PIPELINES[plan.schedule].interleaves:
        mistakes.add(f"interleave: {plan.schedule} has no chunks of stages")
    mistakes.raise_as(SettingError)
