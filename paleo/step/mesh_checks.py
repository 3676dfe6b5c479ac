"""What of the settings of a mesh does not go together: every mistake at once."""

from __future__ import annotations

from paleo.core.errors import Mistakes, SettingError
from paleo.step.mesh import Mesh
from paleo.step.offload import GRADIENTS, OPTIMIZER, offload_of
from paleo.step.pipelines import PIPELINES
from paleo.step.plan import Plan


def check_mesh(plan: Plan, mesh: Mesh) -> None:
    """Raise SettingError, with every mistake, for settings that do not go together on a mesh."""
    mistakes = Mistakes()
    if plan.interleave > 1 and mesh.pp == 1:
        mistakes.add("interleave: one stage has no chunks: give --pp, too")
    elif plan.interleave > 1 and not PIPELINES[plan.schedule].interleaves:
        mistakes.add(f"interleave: {plan.schedule} has no chunks of stages")
    if plan.shard_degree:
        _check_shards(plan, mesh, plan.shard_degree, mistakes)
    if plan.offload:
        mistakes.check(offload_of, plan)
        if GRADIENTS in plan.offload and OPTIMIZER not in plan.offload:
            mistakes.add("offload: gradients are where they are used: give optimizer, too")
    elif plan.host:
        mistakes.add("host: nothing is on it: give --offload, too")
    mistakes.raise_as(SettingError)


def _check_shards(plan: Plan, mesh: Mesh, within: int, mistakes: Mistakes) -> None:
    """Note what of groups that divide shares among them does not divide up."""
    if not plan.zero:
        mistakes.add("shard_degree: nothing is divided: give --zero, too")
    if mesh.replicas % within:
        mistakes.add(
            f"shard_degree: {mesh.replicas} devices with the same layers do not divide into groups "
            f"of {within}"
        )
    elif max(within, mesh.ep) % min(within, mesh.ep):
        mistakes.add(
            f"shard_degree: groups of {within} devices, and of ep {mesh.ep} which share experts, "
            "do not divide by each other"
        )
