"""Prices of devices: what a provider asked for an hour of one, on a date.

Those of large clouds stand in `prices.toml`, read when a price is first asked for. A device file of
one's own may have entries of `[[price]]`, which take their place, and so may a file of prices
(paleo.cluster.price_files). An entry has an `amount` such as "0.90 USD/h", for `count` devices (1);
the `provider`, `what` was let, its `kind` ("on demand" or "spot"), the `date`, and the `source`
that says so, a key of `[sources]`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paleo.cluster.figures import FileReader, Table
from paleo.core.attributes import attributes
from paleo.core.checks import shown
from paleo.core.frozen import dataclass

if TYPE_CHECKING:
    import datetime

#: Whether a device is there until it is given back, or may be taken away for others.
ON_DEMAND, SPOT = KINDS = ("on demand", "spot")
#: More for an hour is no price.
_MOST = 1e12
_AMOUNT = r"\s*([-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?)\s*"
_DATE = r"\d{4}-\d\d(-\d\d)?"
_TEXTS = ("provider", "what", "source", "note")


@dataclass(frozen=True)
class Price:
    """What one device costs for an hour. Money has no SI unit: `currency` is its ISO 4217 code.

    `date` is that of the price, by ISO 8601: a day, or a month if no more is known. `kind` is one
    of KINDS.
    """

    amount: float
    currency: str
    provider: str = ""
    what: str = ""
    date: str = ""
    source: str = ""
    note: str = ""
    kind: str = ON_DEMAND

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        return {
            "price_per_device_hour": self.amount,
            "price_currency": self.currency,
            **attributes(self, "provider", "what", "kind", "date", "source"),
        } | ({"note": self.note} if self.note else {})

    def years_old(self, day: datetime.date | None = None) -> int:
        """Return the full years from its date to a day, today by default."""
        return _years(self.date, (day or today()).isoformat()) if self.date else 0

    def age(self, day: datetime.date | None = None) -> str:
        """Return such as "8 years old", "" of a price that is not a year old yet."""
        years = self.years_old(day)
        return f"{years} year{'s' * (years > 1)} old" if years > 0 else ""

    def origin(self, day: datetime.date | None = None) -> str:
        """Return who let what, how and when, and how old that is if it is a year or more."""
        said = (self.provider, self.what, self.kind, self.date, self.age(day))
        return ", ".join(filter(None, said))


def today() -> datetime.date:
    """Return the day that ages are reckoned to."""
    import datetime

    return datetime.date.today()


def _years(first: str, last: str) -> int:
    """Return the full years between two dates by ISO 8601; a month stands for its first day."""
    return int(last[:4]) - int(first[:4]) - (last[4:] < first[4:])


def usual_price(prices: Iterable[Price]) -> Price | None:
    """Return the price to reckon with where several are known, None of none.

    It is the cheapest on demand; a spot price only where there is no other. Of what a provider has
    asked for the same the newest counts, and only what is less than a year older than the newest of
    all. Currencies do not compare: all are those of the newest.
    """
    known = list(prices)
    found = [price for price in known if price.kind == ON_DEMAND] or known
    if not found:
        return None
    newest = max(found, key=lambda price: price.date)
    latest = {
        (price.provider, price.what): price
        for price in sorted(found, key=lambda price: price.date)
        if price.currency == newest.currency and not _years(price.date, newest.date)
    }
    return min(latest.values(), key=lambda price: price.amount)


def parse_price(text: Any) -> tuple[float, str]:
    """Return the amount and the currency of a text such as "0.90 USD/h"; raises ValueError."""
    said = text if isinstance(text, str) else shown(text)
    match = re.fullmatch(rf"{_AMOUNT}([A-Z]{{3}})/h\s*", said)
    if not match:
        fault = "a price without a currency: " * bool(re.fullmatch(rf"{_AMOUNT}(/h)?\s*", said))
        raise ValueError(
            f"{fault}expected an amount, a currency and the hour, such as "
            f'"0.90 USD/h", got {shown(text)}'
        )
    amount = float(match[1])
    if not 0 <= amount <= _MOST:
        raise ValueError(f"expected a price of 0 or more, up to {_MOST:g}, got {shown(text)}")
    return amount, match[2]


def read_prices(root: Table) -> tuple[Price, ...]:
    """Return the entries of `[[price]]` of a device's file, noting mistakes in them."""
    return tuple(_price(entry) for entry in _entries(root))


def read_prices_of(
    path: Path, device_of: Callable[[Table], str]
) -> Mapping[str, tuple[Price, ...]]:
    """Return the prices in a file of several devices, by the names of devices.

    `device_of` returns the device of an entry, or notes what is wrong with it. Raises HardwareError
    with every mistake in the file.
    """
    root = FileReader(path, ("price", "sources"))
    found: dict[str, list[Price]] = {}
    for entry in _entries(root):
        found.setdefault(device_of(entry), []).append(_price(entry, "device"))
    if not root.values.get("price"):
        root.note("price", "missing: expected entries, each headed [[price]]")
    root.finish()
    return {device: tuple(prices) for device, prices in found.items()}


@functools.cache
def predefined_prices() -> Mapping[str, tuple[Price, ...]]:
    """Return what large clouds have asked, by the names of devices."""
    return read_prices_of(
        Path(__file__).with_name("prices.toml"), lambda entry: entry.text("device")
    )


def _entries(root: Table) -> list[Table]:
    return root.tables("price", "entries, each headed [[price]]")


def _price(entry: Table, *others: str) -> Price:
    entry.only((*others, "amount", "count", "kind", "date", *_TEXTS))
    provider, what, _, note = map(entry.text, _TEXTS)
    amount, currency = 0.0, "USD"
    for key in (*others, "provider", "amount", "date"):
        if entry.values.get(key, "") == "":
            entry.note(key, "missing")
    if entry.values.get("amount", "") != "":
        try:
            amount, currency = parse_price(entry.values["amount"])
        except ValueError as error:
            entry.note("amount", str(error))
    if "count" in entry.values:
        amount /= entry.quantity("count", "count")
    kind = entry.text("kind", ON_DEMAND)
    if kind not in KINDS:
        entry.note("kind", f'expected "on demand" or "spot", got {shown(kind)}')
    date = read_date(entry, "2000-01")
    return Price(amount, currency, provider, what, date, entry.source, note, kind)


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
