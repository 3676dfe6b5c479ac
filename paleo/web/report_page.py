"""The report: the page and its answers as one HTML file, which asks nobody for anything."""

from __future__ import annotations

import html
import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from paleo.collectives import COLLECTIVES
from paleo.importers import ImportOptions, importer_of
from paleo.importers.options import option_words
from paleo.overview import Overview, Study
from paleo.training import checked_price
from paleo.values import number
from paleo.version import __version__
from paleo.web.answers import EXPORTS, answer, overview_of
from paleo.web.choices import depends
from paleo.web.page import STATIC, page_with
from paleo.web.security import policy, source_hash
from paleo.web.settings import Settings

__all__ = ["report_page"]

#: The best scheme, and each of them.
_SCHEMES = ("", *COLLECTIVES)
#: Settings that no control of the report changes, with the page's labels.
_SAID = {
    "device": "Device",
    "network": "Network",
    "batch_size": "Batch size",
    "cost_model": "Cost model",
    "dtype": "Data type",
    "optimizer": "Optimizer",
    "use_pipeline": "Pipelined",
    "fuse": "Fused",
    "ppp_comp": "Share of peak, computing",
    "ppp_comm": "Share of peak, network",
    "dataset": "Dataset",
    "dataset_size": "Samples",
    "epochs": "Epochs",
    "price": "Price",
}
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


def report_page(
    studies: Mapping[str, Study],
    settings: Settings,
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
    study: Study, settings: Settings, answers: _Pool, texts: _Pool, *, with_commands: bool
) -> dict[str, Any]:
    """Return where the answers and exports of a net under one scaling are."""

    def add(kind: str, key: Any, asked: Settings, overview: Overview) -> int:
        def make() -> dict[str, Any]:
            found: dict[str, Any] = json.loads(answer(kind, asked, overview))
            found["hints"] = []  # there is nothing to give it in
            return found if with_commands else {**found, "commands": []}

        return answers.add((settings.net, kind, key), make)

    view: dict[str, Any] = {"scaling": {}, "layers": {}, "memory": {}}
    exports: dict[str, dict[str, int]] = {name: {} for name in (*_BY_SCHEME, *_BY_WORKERS)}

    def export(name: str, choice: str, key: Any, overview: Overview) -> None:
        place = texts.add((settings.net, name, key), lambda: EXPORTS[name](overview))
        exports[name][choice] = place

    for scheme in _SCHEMES:
        asked = replace(settings, scheme=scheme)
        overview = overview_of(study, asked)
        key = (settings.scaling, scheme)
        view["scaling"][scheme] = add("scaling", key, asked, overview)
        for name in _BY_SCHEME:
            export(name, scheme, key, overview)
    for workers in settings.counts:
        asked = replace(settings, workers=workers)
        overview = overview_of(study, asked)
        batch = overview.worker_batch_size
        for kind in ("layers", "memory"):
            view[kind][str(workers)] = add(kind, batch, asked, overview)
        for name in _BY_WORKERS:
            export(name, str(workers), batch, overview)
    return {**view, "exports": exports}


def _said(settings: Settings) -> list[dict[str, str]]:
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
