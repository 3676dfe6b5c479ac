"""What an hour of a device costs: the prices of clouds, or those of a file of one's own."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from paleo.cluster import Device, Price, find_device
from paleo.cluster.prices import KINDS, predefined_prices, usual_price
from paleo.core.checks import check_choice, listed, shown
from paleo.core.errors import Mistakes, PaleoError, near_or_known
from paleo.core.frozen import dataclass
from paleo.studies.training import checked_prices


@dataclass(frozen=True)
class DevicePrice:
    """A price of a device; `is_usual` tells whether it is the one that metrics reckon with."""

    device: str
    price: Price
    is_usual: bool

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        return {"device": self.device, **self.price.to_dict(), "is_usual": self.is_usual}


def prices(
    devices: str | os.PathLike[str] | Device | Iterable[Any] | None = None,
    *,
    provider: str | Iterable[str] | None = None,
    kind: str | None = None,
    currency: str | None = None,
    prices: str | os.PathLike[str] | None = None,
) -> tuple[DevicePrice, ...]:
    """Return the prices known of devices, None all that have one, cheapest first for each.

    `provider` is one or several, in any case; `kind` "on demand" or "spot"; `currency` an ISO 4217
    code. The file `prices` of one's own takes the place of what is known of the devices that it
    has. Raises a PaleoError with every mistake.

    >>> paleo.prices("H100_PCIE")[0].price.amount
    2.86
    """
    mistakes = Mistakes()
    own = mistakes.check(checked_prices, prices) or {}
    if devices is None:
        found = sorted({**predefined_prices(), **own}.items())
    else:
        names = mistakes.check(listed, "devices", devices, str | os.PathLike | Device) or []
        asked = mistakes.check_all(find_device, names)
        found = [(device.name, own.get(device.name) or device.prices) for device in asked]
    if kind is not None:
        mistakes.check(check_choice, "kind", kind, KINDS)
    if not isinstance(currency, str | None):
        mistakes.add(f"currency: expected a code such as USD, got {shown(currency)}")
        currency = None
    wanted = [] if provider is None else mistakes.check(listed, "provider", provider, str) or []
    every = dict.fromkeys(price.provider for _, known in found for price in known)
    by_case = {name.casefold(): name for name in every}
    for name in wanted:
        if every and str(name).casefold() not in by_case:
            mistakes.add(f"unknown provider {name!r}{near_or_known(str(name), list(every))}")
    mistakes.raise_as(PaleoError)
    providers = {str(name).casefold() for name in wanted}
    rows = []
    for device, known in found:
        usual = usual_price(known)
        rows += [
            DevicePrice(device, price, price is usual)
            for price in sorted(known, key=_rank)
            if (not providers or price.provider.casefold() in providers)
            and kind in (None, price.kind)
            and (currency is None or price.currency == currency.upper())
        ]
    return tuple(rows)


def _rank(price: Price) -> tuple[int, float]:
    """Return what prices of a device are sorted by: on demand first, then the cheapest."""
    return KINDS.index(price.kind), price.amount
