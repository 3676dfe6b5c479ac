"""The timeline of one simulated step: what each worker does when, and why it takes that long."""

from __future__ import annotations

from typing import Annotated, Unpack

from paleo.core.checks import python_int, shown
from paleo.core.errors import Mistakes, PaleoError, SettingError
from paleo.net.load import ONE_NET
from paleo.step.distributed_settings import ExchangeSettings
from paleo.step.parallelism import PARALLELISMS
from paleo.step.pieces import no_time
from paleo.step.results import Run
from paleo.step.scenario import PARALLEL, Scenario, ScenarioLike, StepSettings, asked
from paleo.step.settings import (
    WORKERS,
)
from paleo.step.timeline.drawing import check_room
from paleo.step.timeline.values import Timeline
from paleo.studies.simulate import runs_of


class TimelineSettings(StepSettings, ExchangeSettings, total=False):
    """Of one step."""

    workers: Annotated[int, WORKERS.with_default(1)]
    parallel: Annotated[str, PARALLEL]


def timeline(net: ScenarioLike, **settings: Unpack[TimelineSettings]) -> Timeline:
    """Return the timeline of one step of a net, as `paleo.simulate` predicts it.

    The settings are those of `simulate`, of one net, one worker count and one scaling. `scheme` is
    one of paleo.COLLECTIVES; None is the best one. Raises a PaleoError with every mistake in the
    settings and files, and SettingError where there is nothing to draw: no layer takes any time,
    there would be more than MAX_EVENTS events, or `paleo2017` predicts a time below zero.
    """
    if not isinstance(net, ONE_NET | Scenario):
        raise SettingError(f"net: a timeline is of one net, got {shown(net)}")
    scheme = settings.get("scheme")
    for name, value in (("scaling", settings.get("scaling", "weak")), ("scheme", scheme)):
        if not isinstance(value, str) and not (name == "scheme" and value is None):
            raise SettingError(f"{name}: a timeline is of one, got {shown(value)}")
    workers = python_int(settings.get("workers", 1))
    if not isinstance(workers, int | float):
        raise SettingError(f"num_workers: a timeline is of one worker count, got {shown(workers)}")
    mistakes = Mistakes()
    scenarios, _ = asked(net, TimelineSettings, settings, mistakes, {"schemes": scheme})
    mistakes.raise_as(PaleoError)
    runs = list(runs_of(scenarios[0], mistakes))
    mistakes.raise_as(PaleoError)
    return _drawn(runs[0], scheme)


def _drawn(run: Run, scheme: str | None) -> Timeline:
    net, plan = run.scenario.net, run.plan
    first = run.rows[0]
    check_room(first.workers, first.workers)  # each has an event at least
    if first.exchanges:
        scheme = first.scheme_of(scheme)
    schedule = PARALLELISMS[run.parallel].schedule(net, plan, run.rows, scheme)
    settings = {key: value for key, value in run.settings().items() if value not in (None, "")}
    seconds = float(sum(row.total(scheme if row.exchanges else None) for row in run.rows))
    if PARALLELISMS[run.parallel].has_others:  # whose rows are at the same time
        seconds = float(first.total())
    if not seconds > 0:
        raise SettingError(no_time(net.name))
    drawing = schedule.drawn(seconds)
    return Timeline(
        net.name,
        settings | schedule.settings,
        drawing.seconds,
        tuple(schedule.workers),
        tuple(drawing.parts),
        drawing.finish(),
        tuple(drawing.flows),
        run.notes,
    )
