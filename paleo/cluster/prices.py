"""Prices of devices: what a provider asked for an hour of one, on a date.

In a file each is an entry of `[[price]]`, with an `amount` such as "0.90 USD/h" for one device,
`provider`, `what` was let, `date`, and the `source` that says so (a key of `[sources]`).
"""

from __future__ import annotations

import re
from typing import Any

from paleo.cluster.figures import Table
from paleo.core.attributes import attributes
from paleo.core.checks import shown
from paleo.core.frozen import dataclass

#: More for an hour is no price.
_MOST = 1e12
_PRICE = r"\s*([-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?)\s*([A-Z]{3})/h\s*"
_DATE = r"\d{4}-\d\d(-\d\d)?"


@dataclass(frozen=True)
class Price:
    """What one device costs for an hour. Money has no SI unit: `currency` is its ISO 4217 code.

    `date` is that of the price, by ISO 8601: a day, or a month if no more is known.
    """

    amount: float
    currency: str
    provider: str = ""
    what: str = ""
    date: str = ""
    source: str = ""
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        return {
            "price_per_device_hour": self.amount,
            "price_currency": self.currency,
            **attributes(self, "provider", "what", "date", "source"),
        } | ({"note": self.note} if self.note else {})


def parse_price(text: Any) -> tuple[float, str]:
    """Return the amount and the currency of a text such as "0.90 USD/h"; raises ValueError."""
    match = re.fullmatch(_PRICE, text) if isinstance(text, str) else None
    if not match:
        raise ValueError(
            f'expected an amount, a currency and the hour, such as "0.90 USD/h", got {shown(text)}'
        )
    amount = float(match[1])
    if not 0 <= amount <= _MOST:
        raise ValueError(f"expected a price of 0 or more, up to {_MOST:g}, got {shown(text)}")
    return amount, match[2]


def read_prices(root: Table) -> tuple[Price, ...]:
    """Return the entries of `[[price]]`, noting mistakes in them."""
    return tuple(map(_price, root.tables("price", "entries, each headed [[price]]")))


def _price(entry: Table) -> Price:
    texts = ("provider", "what", "source", "note")
    entry.only((*texts, "amount", "date"))
    provider, what, _, note = map(entry.text, texts)
    amount, currency = 0.0, "USD"
    for key in ("provider", "amount", "date"):
        if entry.values.get(key, "") == "":
            entry.note(key, "missing")
    if entry.values.get("amount", "") != "":
        try:
            amount, currency = parse_price(entry.values["amount"])
        except ValueError as error:
            entry.note("amount", str(error))
    date = read_date(entry, "2000-01")
    return Price(amount, currency, provider, what, date, entry.source, note)


def read_date(table: Table, default: str | None = None) -> str:
    """Return the `date` of a table, one of TOML or a text with one, as text."""
    import datetime

    value = table.values.get("date", default)
    text = value.isoformat() if type(value) is datetime.date else value
    try:
        if not isinstance(text, str) or not re.fullmatch(_DATE, text):
            raise ValueError
        datetime.date.fromisoformat(text if len(text) > len("2016-11") else f"{text}-01")
    except ValueError:
        table.note("date", f'expected a date such as 2016-11-28 or "2016-11", got {shown(value)}')
        return ""
    return text
