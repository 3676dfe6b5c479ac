"""Prices of devices: what a provider asked for an hour of one, on a date.

In a file each is an entry of `[[price]]`, with an `amount` such as "0.90 USD/h" for one device,
`provider`, `what` was let, `date`, and the `source` that says so (a key of `[sources]`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from paleo.hardware.figures import OWN, FileReader
from paleo.values import shown

__all__ = ["Price", "parse_price", "read_date", "read_prices"]

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
            "provider": self.provider,
            "what": self.what,
            "date": self.date,
            "source": self.source,
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


def read_prices(reader: FileReader) -> tuple[Price, ...]:
    """Return the entries of `[[price]]`, noting mistakes in them."""
    entries = reader.root.get("price", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        reader.mistakes.add("expected entries, each headed [[price]]", key="price")
        return ()
    return tuple(_price(reader, entry, f"price[{i}]") for i, entry in enumerate(entries))


def _price(reader: FileReader, entry: dict[str, Any], where: str) -> Price:
    texts = ("provider", "what", "source", "note")
    reader.only(entry, (*texts, "amount", "date"), f"{where}.")
    provider, what, source, note = (reader.text(entry, key, "", f"{where}.") for key in texts)
    amount, currency = 0.0, "USD"
    for key in ("provider", "amount", "date"):
        if entry.get(key, "") == "":
            reader.mistakes.add("missing", key=f"{where}.{key}")
    if entry.get("amount", "") != "":
        try:
            amount, currency = parse_price(entry["amount"])
        except ValueError as error:
            reader.mistakes.add(str(error), key=f"{where}.amount")
    return Price(
        amount,
        currency,
        provider,
        what,
        read_date(reader, entry.get("date", "2000-01"), f"{where}.date"),
        reader.cited(source, where) or OWN,
        note,
    )


def read_date(reader: FileReader, value: Any, where: str) -> str:
    """Return a date of TOML, or a text with one, as text."""
    import datetime

    text = value.isoformat() if type(value) is datetime.date else value
    try:
        if not isinstance(text, str) or not re.fullmatch(_DATE, text):
            raise ValueError
        datetime.date.fromisoformat(text if len(text) > len("2016-11") else f"{text}-01")
    except ValueError:
        reader.mistakes.add(
            f'expected a date such as 2016-11-28 or "2016-11", got {shown(value)}', key=where
        )
        return ""
    return text
