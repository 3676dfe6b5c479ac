"""What numbers are of, in words: the parts of titles and of the settings below them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from paleo.step.pieces import Step
from paleo.step.plan import Plan
from paleo.step.results import Run

if TYPE_CHECKING:  # a simulation has no metrics
    from paleo.studies.metrics import Metrics


def plan_setting(predicted: Run | Metrics, *what: str, varied: Collection[str] = ()) -> str:
    """Return on what steps were predicted, how workers share them, `what`, and how it is priced.

    What is `varied`, such as "device", is not said: it is not that of all.
    """
    plan = predicted.plan
    scaling = f"{predicted.scaling} scaling" if predicted.scaling else ""
    workers = (predicted.division, scaling)
    where: dict[Any, str] = {"device": plan.device.name, "network": plan.network.name}
    if "cluster" in varied:  # each has its own device
        where = {}
    elif plan.cluster:
        where = {"cluster": plan.cluster.name, "device": plan.device.name}
    said = {
        **where,
        **dict(enumerate([*workers, *what])),
        "dtype": plan.dtype,
        **plan.said(),
    }
    return joined(text for key, text in said.items() if key not in varied)


def places(plans: Sequence[Plan]) -> list[dict[str, str]]:
    """Return by setting where each plan is: on a device behind a network, or in a cluster.

    Where one is in a cluster, the cluster tells them apart, which has its device and networks.
    """
    if any(plan.cluster for plan in plans):
        return [{"cluster": plan.topology.name} for plan in plans]
    return [{"device": plan.device.name, "network": plan.network.name} for plan in plans]


def best_said(row: Step) -> str:
    """Return what the best scheme is: "best exact" where others, which may be quicker, are not.

    After an exact one all workers have the sum.
    """
    num_exact = len(row.exact_schemes)
    return "best exact" if 0 < num_exact < len(row.exchanges) else "best"


def joined(parts: Iterable[str]) -> str:
    """Return the parts that say something as one text."""
    return ", ".join(filter(None, parts))


def run_setting(run: Run) -> str:
    """Return what the numbers of a run are of, but for the net."""
    return plan_setting(run, "" if run.plan.global_batch else f"batch {run.batch_size}")
