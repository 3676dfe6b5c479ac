"""Inference of what the page shows: a language model on a server, or batches of another net."""

from __future__ import annotations

from typing import Any

from paleo.core.checks import number
from paleo.core.errors import SettingError
from paleo.core.tensor import PRECISIONS
from paleo.net.spec import NetSpec
from paleo.studies.metrics import metrics
from paleo.studies.serving.infer import infer_within, requests_asked
from paleo.studies.serving.placing import is_served
from paleo.views.answers.metrics import INFERENCE, metrics_answer
from paleo.views.answers.serving import serving_answer
from paleo.views.charts.serving import serving_charts
from paleo.views.table import to_cells
from paleo.views.tables.ranking import ranking_table
from paleo.views.tables.serving import serving_tables
from paleo.web.serving_settings import infer_options, infer_settings
from paleo.web.settings import PageSettings

#: Devices that serve, loads, requests of all of them, and events that are simulated, of some
#: seconds: more take an answer too long, and are for the command.
_MOST_DEVICES = 1024
_MOST_LOADS = 16
_MOST_REQUESTS = 20_000
_MOST_EVENTS = 160_000


def inference_options(settings: PageSettings, net: NetSpec) -> dict[str, Any]:
    """Return the options of `paleo infer` for what the page shows."""
    priced = settings.given("cost_model", "price")
    if is_served(net):
        given = infer_options(settings.infer)
        return {**settings.placed, "num_workers": settings.workers, **given, **priced}
    return {**settings.placed, **_batches(settings), **priced}


def inferred(settings: PageSettings, net: NetSpec) -> dict[str, Any]:
    """Return what there is to see: sentences, tables, charts. Raises a PaleoError."""
    priced = settings.given("cost_model", "price")
    if priced["price"]:
        priced["price"] = number(priced["price"])
    if not is_served(net):
        batches = _batches(settings)
        batches["batch_size"] = list(map(int, batches["batch_size"].split(",")))
        found = metrics(net, **settings.placed, **batches, **priced)
        return {
            "answer": metrics_answer(found, INFERENCE),
            "table": to_cells(ranking_table(found, INFERENCE)),
            "parts": None,
            "charts": {},
        }
    given = infer_settings(settings.infer)
    served = infer_within(
        _most_events(settings.workers, given), net, **settings.placed, workers=settings.workers,
        **given, **priced,
    )  # fmt: skip
    table, *parts = serving_tables(served)
    charts = serving_charts(served)
    return {
        "answer": serving_answer(served),
        "table": to_cells(table),
        "parts": to_cells(parts[0]) if parts else None,
        "charts": {chart.key: None if chart.is_empty else chart.to_dict() for chart in charts},
    }


def _batches(settings: PageSettings) -> dict[str, Any]:
    """Return what batches of nets that are no language models have: one image, and the batch.

    Their numbers are those that the tab says, or those in which training multiplies.
    """
    dtype = infer_options(settings.infer).get("dtype") or PRECISIONS[settings.dtype].multiplying
    sizes = dict.fromkeys((1, settings.batch_size))
    return {
        "batch_size": ",".join(map(str, sizes)),
        "dtype": dtype,
        **settings.given("framework"),
    }


def _most_events(devices: int, given: dict[str, Any]) -> int:
    """Return the events that each load may have; raises SettingError for too much to begin with."""
    if devices > _MOST_DEVICES:
        raise SettingError(
            f"workers: {_MOST_DEVICES:,} devices are the most that serve here, got {devices:,}"
        )
    loads = requests_asked(given)
    if len(loads) > _MOST_LOADS:
        raise SettingError(f"{_MOST_LOADS} loads are the most that are simulated here")
    if sum(loads) > _MOST_REQUESTS:
        raise SettingError(
            f"requests: {_MOST_REQUESTS:,} are the most that are simulated here, of all loads, got "
            f"{sum(loads):,}"
        )
    return _MOST_EVENTS // len(loads)
