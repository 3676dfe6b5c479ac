"""The best nets of a design space: of the one that suits the net that the page shows."""

from __future__ import annotations

import functools
from typing import Any

from paleo.core.checks import number
from paleo.core.errors import PaleoError, SettingError
from paleo.core.quantity import ceil_div
from paleo.net.spaces import SPACES, find_design
from paleo.net.spec import NetSpec
from paleo.step.declarations import declared
from paleo.studies.search import search
from paleo.studies.search.settings import SearchSettings
from paleo.views.answers.search import search_answer
from paleo.views.charts.search import search_charts
from paleo.views.table import to_cells
from paleo.views.tables.search import choices_table, front_table
from paleo.web.settings import KEYS, PageSettings

#: Settings that a search has of those of the page, but for what the net runs on.
_SAME = tuple(
    key
    for key in KEYS
    if key in declared(SearchSettings) and key not in ("device", "batch_size", "price")
)
#: What is looked for: all nets of which none is quicker and larger. Where not all nets are looked
#: at, few are, so that an answer does not take too long.
_ASKED = {"objective": "time", "front": "params", "samples": 50}


@functools.cache
def _of_nets() -> dict[str, str]:
    """Return the spaces by the predefined nets that they are for."""
    return {design.net: name for name in SPACES for design in [find_design(name)] if design.net}


def space_of(settings: PageSettings, net: NetSpec) -> str:
    """Return the name of the predefined space that suits a net; raises SettingError if none does.

    Convolutions of one size take the place of those of a chain of layers; others are of one net.
    """
    chains = next(name for name in SPACES if find_design(name).stack)
    try:
        find_design(chains).of(net)
    except PaleoError as error:
        found = None if settings.is_uploaded else _of_nets().get(settings.net)
        if found is None:
            others = ", ".join(own for own, name in _of_nets().items() if name != chains)
            raise SettingError(
                f"net: no design space suits it: {error.mistakes[0]}; others are of {others}. "
                "`paleo search` takes choices of your own"
            ) from None
        return found
    return chains


def search_options(settings: PageSettings, net: NetSpec) -> dict[str, Any]:
    """Return the options of `paleo search` for the best nets around the one that the page shows.

    They run on one of its devices, with the batch that this has.
    """
    shares = settings.workers if settings.scaling == "strong" else 1
    return {
        "space": space_of(settings, net),
        **_ASKED,
        "device": settings.runs_on,
        "batch_size": int(ceil_div(settings.batch_size, shares)),
        **settings.given(*_SAME, "price"),
    }


def searched(settings: PageSettings, net: NetSpec) -> dict[str, Any]:
    """Return the best nets: sentences, tables, a chart. Raises a PaleoError if there are none."""
    given = search_options(settings, net)
    if given["price"]:
        given["price"] = number(given["price"])
    found = search(net, **given)
    return {
        "answer": search_answer(found),
        "table": to_cells(front_table(found, for_people=True)),
        "chosen": to_cells(choices_table(found)),
        "charts": {
            chart.key: None if chart.is_empty else chart.to_dict() for chart in search_charts(found)
        },
    }
