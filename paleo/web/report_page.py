"""The report: the page and its answers as one HTML file, which asks nobody for anything."""

from __future__ import annotations

import functools
import html
import itertools
import json
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from paleo.cluster import Price
from paleo.core.checks import number
from paleo.core.errors import Mistakes
from paleo.core.version import __version__
from paleo.net.importers import ImportOptions, importer_of
from paleo.net.importers.options import option_words
from paleo.net.spec import NetSpec
from paleo.step.plan_keys import OF_DATA_PARALLEL, TRAINED
from paleo.step.settings import DeviceLike
from paleo.studies.overview import Overview, Study
from paleo.studies.training import checked_price, with_prices
from paleo.views.tables.compared import configuration_names
from paleo.web.answers import EXPORTS, answer, compared_views, overview_of
from paleo.web.choices import depends
from paleo.web.page import STATIC, page_with
from paleo.web.security import policy, source_hash
from paleo.web.settings import DECLARED, MESH, PageSettings

#: Settings that no control of the report changes, with the page's labels.
_SAID = {key: setting.label for key, setting in DECLARED.items() if setting.label}
#: What can be taken from a report: by scheme, and by the number of workers that is looked at.
_BY_SCHEME = ("simulate.csv", "simulate.json")
_BY_WORKERS = ("summary.csv", "memory.csv")
#: Those that the page has as a text, "" where there is none.
_MAYBE = (
    *("price", "dataset", "framework", "cluster", "bucket", "host", "loader_rate"),
    *("gradient_dtype", "compress", "nccl", "optimizer_kernels", "expert_load"),
)
#: Settings of which the usual is not said.
_USUAL = (
    OF_DATA_PARALLEL
    | {key: getattr(PageSettings, key) for key in MESH}
    | {key: DECLARED[key].default for key in TRAINED}
)


class _Pool:
    """Values that views point at; one that is there already is not added again."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._places: dict[Any, int] = {}

    def add(self, key: Any, make: Callable[[], Any]) -> int:
        """Return the place of a value, which is made if its key is new."""
        if key not in self._places:
            self._places[key] = len(self.values)
            self.values.append(make())
        return self._places[key]


def shown_first(
    settings: Mapping[str, Any], workers: Sequence[int], schemes: Sequence[str] | None
) -> PageSettings:
    """Return what a report shows first, of settings of its command."""
    # As many workers are looked at as the demo begins with, if there are so many.
    few = [count for count in workers if count <= PageSettings.workers]
    # These are texts on the page.
    dealt = {
        key: value if isinstance(value, str) else ",".join(map(str, value))
        for key, value in ((key, settings[key]) for key in ("stages", "order", "offload"))
    }
    return PageSettings(
        workers=max(few, default=min(workers)),
        num_workers=tuple(workers),
        schemes=tuple(schemes or ()),
        **{**settings, **{key: settings[key] or "" for key in _MAYBE}, **dealt},
    )


def studies_of(
    nets: Iterable[str | NetSpec],
    device: DeviceLike,
    make: Callable[..., Study],
    mistakes: Mistakes,
    prices: Mapping[str, tuple[Price, ...]] | None = None,
) -> dict[str, Study]:
    """Return the studies that are made of nets on a device, by their names.

    `prices` are one's own, by the names of devices. What is wrong with nets or device is noted.
    """
    priced = mistakes.check(with_prices, device, prices) if prices else device
    studies: dict[str, Study] = {}
    for net in nets:
        study = mistakes.check(functools.partial(make, device=priced or device), net)
        name = net if isinstance(net, str) else net.name
        if name in studies:
            mistakes.add(f"{name}: given twice")
        elif study:
            studies[name] = study
    return studies


def report_page(
    studies: Mapping[str, Mapping[str, Study]],
    settings: PageSettings,
    scalings: Sequence[str],
    batch_sizes: Sequence[int],
    importing: ImportOptions | None = None,
    *,
    with_commands: bool = True,
) -> str:
    """Return the report of studies, by devices and the names of nets, as the text of an HTML file.

    If settings name a cluster, they are by clusters instead, each of which has its own device.
    `settings` are those of all of them, and what is shown first but for the net, the device or the
    cluster, the batch and the scaling, which are the first. Of several nets, devices, clusters or
    batch sizes it has a table and charts that compare them. Nets of other frameworks were read with
    `importing`. `with_commands` tells whether the commands that print the same are shown: they know
    the names of nets, not what was edited. Raises a PaleoError.
    """
    places = list(studies)
    nets = list(studies[places[0]])
    first = replace(
        _in_place(settings, places[0]), net=nets[0], batch_size=batch_sizes[0], scaling=scalings[0]
    )
    answers, texts = _Pool(), _Pool()
    views: dict[str, Any] = {}
    overviews: list[Overview] = []
    compared: list[Overview] = []
    for net, place, size in itertools.product(nets, places, batch_sizes):
        of_size = views.setdefault(net, {}).setdefault(place, {}).setdefault(str(size), {})
        for scaling in scalings:
            words = option_words(importing or ImportOptions(), importer_of(net))
            own = replace(
                _in_place(first, place), net=net, batch_size=size, scaling=scaling,
                options=shlex.join(words),
            )  # fmt: skip
            overview = overview_of(studies[place][net], own)
            overviews.append(overview)
            if scaling == scalings[0]:
                compared.append(overview)
            of_size[scaling] = _view(overview, own, answers, texts, with_commands=with_commands)
    names = list(
        dict.fromkeys(each.device.name for own in studies.values() for each in own.values())
    )
    several: dict[str, list[Any]] = {
        "net": nets,
        "cluster": places if first.cluster else [],
        "device": [] if first.cluster else places,
        "batch_size": list(batch_sizes),
    }
    return _page(
        {
            "title": f"{', '.join(nets)} on {', '.join(places if first.cluster else names)}",
            "version": __version__,
            "settings": first.to_dict(),
            "said": _said(first, [key for key, values in several.items() if len(values) > 1]),
            "choices": {
                **several,
                "scaling": list(scalings),
                "scheme": list(dict.fromkeys(itertools.chain(*map(_schemes, overviews)))),
                "workers": list(settings.counts),
            },
            "depends": depends(),
            "compare": _compared(compared),
            "answers": answers.values,
            "texts": texts.values,
            "views": views,
        }
    )


def _in_place(settings: PageSettings, place: str) -> PageSettings:
    """Return the settings in another cluster, or on another device if there is none."""
    if not settings.cluster:
        return replace(settings, device=place)
    found = replace(settings, cluster=place)
    return replace(found, device=found.runs_on)


def _schemes(overview: Overview) -> tuple[str, ...]:
    """Return the schemes that there is a choice of; "" is the best."""
    schemes = tuple(overview.rows[0].exchanges)
    return ("", *schemes) if len(schemes) > 1 else ("",)


def _compared(overviews: Sequence[Overview]) -> dict[str, Any] | None:
    """Return what there is to see of several configurations beside each other; None of one."""
    if len(overviews) < 2:
        return None
    names = configuration_names(overviews)
    return compared_views(dict(zip(names, overviews, strict=True)), upright=False)


def _view(
    overview: Overview, settings: PageSettings, answers: _Pool, texts: _Pool, *, with_commands: bool
) -> dict[str, Any]:
    """Return where the answers and exports of a configuration under one scaling are."""
    view: dict[str, Any] = {"scaling": {}, "layers": {}, "memory": {}}
    exports: dict[str, dict[str, int]] = {name: {} for name in (*_BY_SCHEME, *_BY_WORKERS)}
    of_view = (settings.net, settings.cluster, settings.device)

    def add(
        asked: PageSettings, own: Overview, choice: str, kinds: Iterable[str], names: Iterable[str]
    ) -> None:
        batch = own.worker_batch_size
        of_step = (asked.batch_size, asked.scaling, asked.scheme)
        # What the answer depends on.
        key: Any = of_step if "scaling" in kinds else batch
        if own.is_mesh:
            key = (*of_step, asked.workers)

        def made(kind: str) -> dict[str, Any]:
            found: dict[str, Any] = json.loads(answer(kind, asked, own))
            found["hints"] = []  # there is nothing to give it in
            return found if with_commands else {**found, "commands": []}

        for kind in kinds:
            make = functools.partial(made, kind)
            view[kind][choice] = answers.add((*of_view, kind, key), make)
        for name in names:
            export = functools.partial(EXPORTS[name], own)
            exports[name][choice] = texts.add((*of_view, name, key), export)

    for scheme in _schemes(overview):
        asked, own = replace(settings, scheme=scheme), replace(overview, scheme=scheme or None)
        add(asked, own, scheme, ["scaling"], _BY_SCHEME)
    for workers in settings.counts:
        asked, own = replace(settings, workers=workers), replace(overview, workers=workers)
        add(asked, own, str(workers), ["layers", "memory"], _BY_WORKERS)
    return {**view, "exports": exports}


def _said(settings: PageSettings, several: Collection[str]) -> list[dict[str, str]]:
    """Return the settings that stay, as texts.

    Those of which there are several are left out, and those that are off or not known.
    """
    values = settings.to_dict()
    if "cluster" in several:
        values["device"] = ""
    price = checked_price(number(settings.price)) if settings.price else None
    if settings.cluster:  # which has networks of its own
        values["network"] = ""
    if price:
        values["price"] = f"{price.amount:g} {price.currency} a device-hour"
    return [
        {"label": label, "value": _text(values[key])}
        for key, label in _SAID.items()
        if values[key] not in (None, "", False, _USUAL.get(key)) and key not in several
    ]


def _text(value: Any) -> str:
    if value is True:
        return "yes"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _page(report: Mapping[str, Any]) -> str:
    """Return the page with everything in it: style, scripts and data."""
    text = page_with("report", report)
    styles, scripts = [_asset("vendor/plot-style.css")], []

    def style(found: re.Match[str]) -> str:
        styles.append(_asset(found[1]))
        return f"<style>{styles[-1]}</style>"

    def script(found: re.Match[str]) -> str:
        scripts.append(_asset(found[1]))
        return f"<script>{scripts[-1]}</script>"

    text = re.sub(r'<link rel="icon"[^>]*>\n', "", text)
    text = re.sub(r'<link rel="stylesheet" href="static/([^"]+)">', style, text)
    text = re.sub(r'<script defer src="static/([^"]+)"></script>', script, text)
    title = html.escape(str(report["title"]))
    text = text.replace("<title>Paleo</title>", f"<title>{title} - Paleo</title>")
    charset = '<meta charset="utf-8">'
    allowed = policy(_hashes(scripts), _hashes(styles), "data:")
    meta = f'<meta http-equiv="Content-Security-Policy" content="{allowed}">'
    return text.replace(charset, f"{charset}\n{meta}", 1)


def _asset(name: str) -> str:
    return (STATIC / name).read_text("utf-8")


def _hashes(texts: Iterable[str]) -> str:
    """Return the sources of a policy that allow these texts and no other."""
    return " ".join(source_hash(text.encode()) for text in texts)
