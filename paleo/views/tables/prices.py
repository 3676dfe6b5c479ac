"""The table of what an hour of devices costs, and the same for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paleo.cluster import Price
from paleo.studies.prices import DevicePrice
from paleo.views.table import Column, Table, plain
from paleo.views.tables.base import cite

#: What is said of the marked ones.
_USUAL = "* what metrics and report take unless --price or --prices says otherwise"


def amount(price: Price) -> str:
    """Return what an hour of a device costs, with its currency."""
    whole, _, decimals = f"{price.amount:,.3f}".partition(".")
    return f"{whole}.{decimals.rstrip('0').ljust(2, '0')} {price.currency}"


def prices_table(found: Sequence[DevicePrice]) -> Table:
    """Return a row for each price; those that metrics reckon with are marked."""
    rows, numbered = cite(
        [_row(each) for each in found],
        [[each.price.source] if each.price.source else [] for each in found],
    )
    marked = frozenset((i, "price") for i, e in enumerate(found) if e.is_usual)
    said = [_USUAL] if marked else []
    said += dict.fromkeys(f"{each.device}: {each.price.note}" for each in found if each.price.note)
    blank = [""] if said and numbered else []
    currencies = {each.price.currency for each in found}
    return Table(
        "", _columns(currencies), rows, footnotes=[*said, *blank, *numbered], marked=marked
    )


def _columns(currencies: set[str]) -> tuple[Column, ...]:
    several = len(currencies) > 1
    price = "price" if several else f"{''.join(currencies)}/h"
    return (
        Column("device", "device"),
        Column("price", price, for_people=True, least_is_best=True),
        *plain("price_per_device_hour"),
        Column("price_currency", "an hour" if several else ""),
        Column("kind", "kind"),
        Column("provider", "provider"),
        Column("date"),
        Column("dated", "date, age", for_people=True),
        Column("what", "what"),
        Column("cited", "from", for_people=True),
        *plain("source", "note", "is_usual"),
    )


def _row(each: DevicePrice) -> dict[str, Any]:
    price, age = each.price, each.price.age()
    return {
        **each.to_dict(),
        "price": price.amount,
        # Of an old price the month says nothing.
        "dated": f"{price.date[:4]}, {age.removesuffix(' old')}" if age else price.date,
    }
