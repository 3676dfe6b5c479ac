"""Answers: what the Python API says of some settings, put together for the page.

What does not depend on a control that changed is kept: one `paleo.studies.overview.Study` for each
net on a device, and whole answers. Both are bounded, so that a server that runs for long stays as
it is.
"""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from paleo.core.checks import number
from paleo.core.errors import Mistake, PaleoError, SettingError
from paleo.net.spec import NetSpec
from paleo.step.results import Simulation
from paleo.studies.datasets import takes_images
from paleo.studies.folding import folded_fit, folded_summary
from paleo.studies.overview import Overview, Study
from paleo.views.charts.base import Chart
from paleo.views.charts.compared import compared_charts
from paleo.views.charts.layers import footprint_by_layer, time_by_layer
from paleo.views.charts.memory import memory_chart
from paleo.views.charts.roofline import roofline
from paleo.views.charts.scaling import scaling_charts
from paleo.views.charts.stages import schedules, stage_memory, stage_times
from paleo.views.charts.training import training_charts
from paleo.views.table import Table, to_cells, to_json, to_separated
from paleo.views.tables.blocks import blocks
from paleo.views.tables.compared import compared_said, compared_table, configuration_names
from paleo.views.tables.memory import memory_table
from paleo.views.tables.mesh_memory import mesh_memory_tables
from paleo.views.tables.overview import (
    answered,
    headlines,
    hints,
    memory_headline,
    overview_table,
    tiers,
)
from paleo.views.tables.stages import remedies_table, stages_table
from paleo.views.tables.summary import by_type_table, summary_table
from paleo.web import predefined
from paleo.web.cache import Cache
from paleo.web.commands import command_lines, inference_line, plan_line, search_line
from paleo.web.fair_lock import Turns
from paleo.web.inference import inferred
from paleo.web.nets import searched
from paleo.web.plans import planned
from paleo.web.settings import COMPARED, DEPENDS, PLANNED, PRICED, PageSettings
from paleo.web.uploads import Uploaded

#: Layers of all nets that are kept on a device, and characters of answers.
_MOST_LAYERS = 20_000
#: So many nets are kept at most, however few their layers are.
_MOST_NETS = 64
_MOST_CHARACTERS = 16 << 20
#: Overviews of a net on a device that are kept: the page asks several things of each.
_MOST_OVERVIEWS = 2
#: More configurations are no lines of one chart.
_MOST_LINES = 6


class _Net:
    """A net on a device, which one thread at a time asks."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self.lock = threading.Lock()
        #: What `overview_of` says of settings.
        self.overview = functools.lru_cache(_MOST_OVERVIEWS)(
            lambda settings: overview_of(study, settings, **_placed(settings))
        )


class Answers:
    """Answers to settings, as texts of JSON or CSV. Several threads may ask at once."""

    def __init__(self, layers: int = _MOST_LAYERS, characters: int = _MOST_CHARACTERS) -> None:
        """Keep nets of `layers` layers together, and as many characters of answers and of parts."""
        self._nets: Cache[_Net] = Cache(layers)
        self._texts: Cache[str] = Cache(characters)
        #: The parts of answers that do not depend on the cluster.
        self._parts: Cache[str] = Cache(characters)
        self._turns = Turns()

    def text(self, what: str, settings: PageSettings, uploaded: Uploaded | None = None) -> str:
        """Return an answer, one of KINDS as JSON, or an export, one of EXPORTS.

        Raises a PaleoError with every mistake.
        """
        asked = (what, settings, uploaded.key if uploaded else None)
        found = self._texts.find(asked)
        if found is not None:
            return found
        if what == COMPARE:
            return self._texts.get(asked, lambda: self._compared(settings, uploaded), len)
        if what in FOUND:
            return self._texts.get(asked, lambda: self._found(what, settings, uploaded), len)
        key = uploaded.key if uploaded else settings.net
        net = self._net(key, settings, uploaded)
        with net.lock, self._turns.turn():
            # Another thread may have answered the same while this one waited for the net.
            return self._texts.get(asked, lambda: self._made(what, key, net, settings), len)

    def _made(self, what: str, key: Hashable, net: _Net, settings: PageSettings) -> str:
        overview = net.overview(settings)
        if what in EXPORTS:
            return EXPORTS[what](overview)
        if what not in DEPENDS or overview.is_mesh:  # whose memory depends on everything
            return answer(what, settings, overview)
        of = (what, key, overview.worker_batch_size, *settings.given(*DEPENDS[what]).values())
        part = self._parts.get(of, lambda: _part(what, overview), len)
        return answer(what, settings, overview, part)

    def _compared(self, settings: PageSettings, uploaded: Uploaded | None) -> str:
        other = settings.other
        if other is None:
            given = " or ".join(f"other_{key}" for key in COMPARED)
            raise SettingError(f"there is no other configuration to compare with: give {given}")
        first = self._overview(settings, uploaded)
        try:
            second = self._overview(other, None if settings.other_net else uploaded)
        except PaleoError as error:
            key = next(key for key in COMPARED[::-1] if getattr(settings, f"other_{key}"))
            said = [Mistake(f"other_{key}: {each}") for each in error.mistakes]
            raise SettingError(said) from None
        with self._turns.turn():
            return compared(settings, other, first, second)

    def _found(self, what: str, settings: PageSettings, uploaded: Uploaded | None) -> str:
        net = _with_dims(uploaded.net if uploaded else predefined.net(settings.net), settings)
        label, line, find = FOUND[what]
        with self._turns.turn():
            commands = [{"label": label, "text": line(settings, net)}]
            return _json(
                {"settings": settings.to_dict(), **find(settings, net), "commands": commands}
            )

    def _overview(self, settings: PageSettings, uploaded: Uploaded | None) -> Overview:
        net = self._net(uploaded.key if uploaded else settings.net, settings, uploaded)
        with net.lock, self._turns.turn():
            return net.overview(settings)

    def _net(self, key: Hashable, settings: PageSettings, uploaded: Uploaded | None) -> _Net:
        plan = settings.given(*PRICED)
        spec: NetSpec = uploaded.net if uploaded else predefined.net(settings.net)
        spec = _with_dims(spec, settings)
        plan["device"] = settings.runs_on
        device = predefined.device(settings.runs_on)
        return self._nets.get(
            (key, settings.seq_len, *plan.values()),
            lambda: _Net(Study(spec, **{**plan, "device": device})),
            lambda made: max(len(made.study.net.layers), self._nets.most // _MOST_NETS),
        )


def _with_dims(net: NetSpec, settings: PageSettings) -> NetSpec:
    """Return the net with the dimensions that settings say; raises SettingError."""
    try:
        return net.with_dims(**settings.dims)
    except PaleoError as error:
        raise SettingError([Mistake(f"seq_len: {each}") for each in error.mistakes]) from None


def compared(settings: PageSettings, other: PageSettings, first: Overview, second: Overview) -> str:
    """Return two overviews beside each other as JSON, with the command lines that print them."""
    names = configuration_names([first, second])
    found = compared_views(dict(zip(names, (first, second), strict=True)), upright=True)
    commands = [
        {"label": name, "text": command_lines(each, "scaling", 0)[0]["text"]}
        for name, each in zip(names, (settings, other), strict=True)
    ]
    return _json({"settings": settings.to_dict(), **found, "commands": commands})


def compared_views(configurations: Mapping[str, Overview], *, upright: bool) -> dict[str, Any]:
    """Return what there is to see of configurations beside each other, by their names."""
    return {
        "names": list(configurations),
        "answer": compared_said(configurations),
        "fits": [each.fits(each.row) for each in configurations.values()],
        "table": to_cells(compared_table(configurations, upright=upright)),
        "charts": {
            each.key: None if each.is_empty or len(configurations) > _MOST_LINES else each.to_dict()
            for each in compared_charts(configurations)
        },
    }


def _json(value: Any) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def _placed(settings: PageSettings) -> dict[str, Any]:
    """Return the cluster or the network that settings name."""
    if settings.cluster:
        return {"cluster": predefined.cluster(settings.cluster)}
    return {"network": predefined.network(settings.network)}


def overview_of(study: Study, settings: PageSettings, **known: Any) -> Overview:
    """Return what there is to see of a study under these settings.

    `known` are those of `Study.overview` that are at hand: the cluster or the network that settings
    name, and what the page does not ask for. Raises a PaleoError with every mistake.
    """
    plan = {**settings.given(*PLANNED), "schemes": settings.schemes or None, **known}
    if settings.price:
        plan["price"] = number(settings.price)
    if plan["cluster"] is not None:  # which has networks of its own
        del plan["network"]
    return study.overview(counts=settings.counts, **plan)


def answer(kind: str, settings: PageSettings, overview: Overview, part: str | None = None) -> str:
    """Return an answer, one of KINDS, as JSON, with the command lines that print the same.

    `part` is what KINDS says of the overview, if it is at hand as JSON.
    """
    head = _json({"settings": settings.to_dict()})
    tail = _json({"commands": command_lines(settings, kind, overview.worker_batch_size)})
    middle = _part(kind, overview) if part is None else part
    # One object of three.
    return f"{head[:-1]},{middle[1:-1]},{tail[1:]}"


def _part(kind: str, overview: Overview) -> str:
    return _json(KINDS[kind](overview))


def _scaling(overview: Overview) -> dict[str, Any]:
    charts = [*scaling_charts(overview.run, overview.scheme), *training_charts(overview)]
    stages = None
    if overview.is_mesh:
        if len(overview.rows) == 1:  # one number of workers is no line
            charts = []
        run, row = overview.run, overview.row
        charts += [*schedules(run, row), stage_times(run, row, overview.stages)]
        stages = to_cells(stages_table(run, row, overview.stages))
    return {
        "answer": answered(overview),
        "takes_images": takes_images(overview.study.net),
        "headlines": headlines(overview),
        "table": to_cells(overview_table(overview)),
        "stages": stages,
        "tiers": tiers(overview),
        # A chart of nothing is none: `hints` say what to give for it.
        "charts": {each.key: None if each.is_empty else each.to_dict() for each in charts},
        "hints": hints(overview),
    }


def _layers(overview: Overview) -> dict[str, Any]:
    summary = folded_summary(overview.summary)
    charts = {"layers": time_by_layer, "roofline": roofline}
    return {
        "table": to_cells(summary_table(summary, only_shown=True)),
        "blocks": blocks(summary),
        "kinds": to_cells(by_type_table(overview.summary)),
        "charts": {key: _chart(functools.partial(make, summary)) for key, make in charts.items()},
    }


def _chart(make: Callable[[], Chart]) -> dict[str, Any] | None:
    """Return a chart, None if there is nothing to draw."""
    try:
        return make().to_dict()
    except SettingError:
        return None


def _memory(overview: Overview) -> dict[str, Any]:
    if overview.is_mesh:
        return _stage_memory(overview)
    fit = folded_fit(overview.fit)
    return {
        "headlines": memory_headline(overview),
        "table": to_cells(memory_table(fit)),
        "charts": {
            "memory": memory_chart([fit]).to_dict(),
            "footprint": _chart(lambda: footprint_by_layer(fit.footprint)),
        },
        "hints": [],
    }


def _stage_memory(overview: Overview) -> dict[str, Any]:
    run, row = overview.run, overview.row
    (table,) = mesh_memory_tables([overview.stage_memory])
    found = overview.remedies
    chart = stage_memory(run, row, overview.stages)
    return {
        "headlines": memory_headline(overview),
        "table": to_cells(table),
        "charts": {chart.key: chart.to_dict()},
        "remedies": to_cells(remedies_table(found)) if found else None,
        "hints": [],
    }


def _memory_table(overview: Overview) -> Table:
    if overview.is_mesh:
        return mesh_memory_tables([overview.stage_memory])[0]
    return memory_table(overview.fit)


def _memory_values(overview: Overview) -> dict[str, Any]:
    return (overview.stage_memory if overview.is_mesh else overview.fit).to_dict()


def _simulation(overview: Overview) -> Simulation:
    run = overview.run
    return Simulation((run if overview.scheme is None else run.only(overview.scheme),))


def _csv(table: Callable[[Overview], Table]) -> Callable[[Overview], str]:
    return lambda overview: to_separated([table(overview)], ",")


#: The kind of answers about two configurations beside each other.
COMPARE = "compare"
#: The kinds that take long, and are asked for where they are looked at: what they are called, the
#: command line that prints them, and what each has besides settings and commands.
FOUND: dict[
    str,
    tuple[
        str,
        Callable[[PageSettings, NetSpec], str],
        Callable[[PageSettings, NetSpec], dict[str, Any]],
    ],
] = {
    "plan": ("the best plans", plan_line, planned),
    "infer": ("inference", inference_line, inferred),
    "search": ("the best nets", search_line, searched),
}
#: The kinds of answers, and what each has besides settings and commands.
KINDS: dict[str, Callable[[Overview], dict[str, Any]]] = {
    "scaling": _scaling,
    "layers": _layers,
    "memory": _memory,
}
#: What the commands print with --format=csv and --format=json.
EXPORTS: dict[str, Callable[[Overview], str]] = {
    "simulate.csv": _csv(overview_table),
    "simulate.json": lambda overview: to_json(_simulation(overview).to_dict()),
    "summary.csv": _csv(lambda overview: summary_table(overview.summary)),
    "summary.json": lambda overview: to_json({"nets": [overview.summary.to_dict()]}),
    "memory.csv": _csv(_memory_table),
    "memory.json": lambda overview: to_json({"nets": [_memory_values(overview)]}),
}
