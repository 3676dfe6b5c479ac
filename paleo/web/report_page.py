"""The report: the page and its answers as one HTML file, which asks nobody for anything."""

from __future__ import annotations

import functools
import html
import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from paleo.cluster.collectives import COLLECTIVES
from paleo.core.checks import number
from paleo.core.errors import Mistakes
from paleo.core.version import __version__
from paleo.net.importers import ImportOptions, importer_of
from paleo.net.importers.options import option_words
from paleo.net.spec import NetSpec
from paleo.studies.overview import Study
from paleo.studies.training import checked_price
from paleo.web.answers import EXPORTS, answer, overview_of
from paleo.web.choices import depends
from paleo.web.page import STATIC, page_with
from paleo.web.security import policy, source_hash
from paleo.web.settings import DECLARED, PageSettings

#: The best scheme, and each of them.
_SCHEMES = ("", *COLLECTIVES)
#: Settings that no control of the report changes, with the page's labels.
_SAID = {key: setting.label for key, setting in DECLARED.items() if setting.label}
#: What can be taken from a report: by scheme, and by the number of workers that is looked at.
_BY_SCHEME = ("simulate.csv", "simulate.json")
_BY_WORKERS = ("summary.csv", "memory.csv")


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


def studies_of(
    nets: Iterable[str | NetSpec], make: Callable[[Any], Study], mistakes: Mistakes
) -> dict[str, Study]:
    """Return the studies that are made of nets, by their names; notes what is wrong with them."""
    studies: dict[str, Study] = {}
    for net in nets:
        study = mistakes.check(make, net)
        name = net if isinstance(net, str) else net.name
        if name in studies:
            mistakes.add(f"{name}: given twice")
        elif study:
            studies[name] = study
    return studies


def report_page(
    studies: Mapping[str, Study],
    settings: PageSettings,
    scalings: Sequence[str],
    importing: ImportOptions | None = None,
    *,
    with_commands: bool = True,
) -> str:
    """Return the report of studies, by the names of their nets, as the text of an HTML file.

    `settings` are those of all of them, and what is shown first but for the net and the scaling,
    which are the first. Nets of other frameworks were read with `importing`. `with_commands` tells
    whether the commands that print the same are shown: they know the names of nets, not what was
    edited. Raises a PaleoError.
    """
    nets = list(studies)
    settings = replace(settings, net=nets[0], scaling=scalings[0])
    answers, texts = _Pool(), _Pool()
    views: dict[str, Any] = {}
    for net, study in studies.items():
        for scaling in scalings:
            words = option_words(importing or ImportOptions(), importer_of(net))
            own = replace(settings, net=net, scaling=scaling, options=shlex.join(words))
            view = _view(study, own, answers, texts, with_commands=with_commands)
            views.setdefault(net, {})[scaling] = view
    device = next(iter(studies.values())).device.name
    return _page(
        {
            "title": f"{', '.join(nets)} on {device}",
            "version": __version__,
            "settings": settings.to_dict(),
            "said": _said(settings),
            "choices": {
                "net": nets,
                "scaling": list(scalings),
                "scheme": list(_SCHEMES),
                "workers": list(settings.counts),
            },
            "depends": depends(),
            "answers": answers.values,
            "texts": texts.values,
            "views": views,
        }
    )


def _view(
    study: Study, settings: PageSettings, answers: _Pool, texts: _Pool, *, with_commands: bool
) -> dict[str, Any]:
    """Return where the answers and exports of a net under one scaling are."""
    view: dict[str, Any] = {"scaling": {}, "layers": {}, "memory": {}}
    exports: dict[str, dict[str, int]] = {name: {} for name in (*_BY_SCHEME, *_BY_WORKERS)}

    def add(asked: PageSettings, choice: str, kinds: Iterable[str], names: Iterable[str]) -> None:
        overview = overview_of(study, asked)
        of_step, batch = (asked.scaling, asked.scheme), overview.worker_batch_size
        key = of_step if "scaling" in kinds else batch  # what the answer depends on

        def made(kind: str) -> dict[str, Any]:
            found: dict[str, Any] = json.loads(answer(kind, asked, overview))
            found["hints"] = []  # there is nothing to give it in
            return found if with_commands else {**found, "commands": []}

        for kind in kinds:
            make = functools.partial(made, kind)
            view[kind][choice] = answers.add((asked.net, kind, key), make)
        for name in names:
            export = functools.partial(EXPORTS[name], overview)
            exports[name][choice] = texts.add((asked.net, name, key), export)

    for scheme in _SCHEMES:
        add(replace(settings, scheme=scheme), scheme, ["scaling"], _BY_SCHEME)
    for workers in settings.counts:
        add(replace(settings, workers=workers), str(workers), ["layers", "memory"], _BY_WORKERS)
    return {**view, "exports": exports}


def _said(settings: PageSettings) -> list[dict[str, str]]:
    """Return the settings that stay, as texts; those that are off or not known are left out."""
    values = settings.to_dict()
    price = checked_price(number(settings.price)) if settings.price else None
    if price:
        values["price"] = f"{price.amount:g} {price.currency} a device-hour"
    return [
        {"label": label, "value": _text(values[key])}
        for key, label in _SAID.items()
        if values[key] not in (None, "", False)
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
