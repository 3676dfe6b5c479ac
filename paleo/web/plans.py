"""The best plans of what the page shows: of all ways to use as many devices."""

from __future__ import annotations

from typing import Any

from paleo.core.checks import number
from paleo.net.spec import NetSpec
from paleo.step.declarations import declared
from paleo.step.utilization import tokens_of
from paleo.studies.planning import PlanningSettings, best_plans
from paleo.studies.planning.settings import AXES
from paleo.views.answers.planning import planning_answer
from paleo.views.charts.planning import planning_charts
from paleo.views.table import to_cells
from paleo.views.tables.planning import planning_tables
from paleo.web.settings import KEYS, PageSettings

#: Settings that a search has of those of the page, but for what plans may differ in.
_SAME = tuple(
    key
    for key in KEYS
    if key in declared(PlanningSettings)
    and key not in (*AXES, "cluster", "device", "network", "price", "context", "order")
)
#: What is left out of a search, which would take an answer too long: two stages of ZeRO that are
#: near each other, and positions that are not divided.
_FEWER = {"zero": "0,1,3", "sequence_parallel": True}


def plan_options(settings: PageSettings, net: NetSpec) -> dict[str, Any]:
    """Return the options of `paleo plan` for the best plans of what the page shows.

    Nets that read tokens are shared by the devices that are looked at, with the batch of all of
    them; others are trained on as many devices at most.
    """
    of = settings.given(*_SAME)
    if not (of["dataset"] or of["dataset_size"]):
        of["epochs"] = None
    batch = settings.batch_size * (settings.workers if settings.scaling == "weak" else 1)
    own: dict[str, Any] = {"max_devices": settings.workers}
    if tokens_of(net):
        own = {"num_workers": settings.workers, "global_batch": settings.global_batch or batch}
        own |= _FEWER
    return {**settings.placed, **own, **of, **settings.given("price")}


def planned(settings: PageSettings, net: NetSpec) -> dict[str, Any]:
    """Return the best plans: sentences, a table, charts. Raises a PaleoError if there is none."""
    given = plan_options(settings, net)
    if given["price"]:
        given["price"] = number(given["price"])
    if "zero" in given:
        given["zero"] = list(map(int, given["zero"].split(",")))
    if "num_workers" in given:
        given["workers"] = given.pop("num_workers")
    found = best_plans(net, **given)
    charts = planning_charts(found)[1:]  # the table has rates
    return {
        "answer": planning_answer(found),
        "table": to_cells(planning_tables(found)[0]),
        "charts": {chart.key: None if chart.is_empty else chart.to_dict() for chart in charts},
    }
