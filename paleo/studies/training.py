"""A whole training: how many steps, how long, at what price."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paleo.datasets import Schedule
from paleo.errors import SettingError
from paleo.hardware import Price, parse_price
from paleo.rows import WholeStep
from paleo.values import is_number, shown

__all__ = ["Training", "checked_price", "times"]

#: What a price is in that is a number alone.
_CURRENCY = "USD"
#: More money for an hour means nothing.
_MOST = 1e12
_HOUR = 3600


@dataclass(frozen=True)
class Training:
    """A training of steps like this one, None where something is not known.

    `price` is that of one device.
    """

    step: WholeStep
    schedule: Schedule
    price: Price | None = None

    @property
    def num_steps(self) -> float | None:
        """Steps of the whole training, of which the last may be part of one."""
        return times(self.schedule.num_samples, 1 / self.step.batch_size)

    @property
    def seconds(self) -> float | None:
        """Seconds of the whole training."""
        return times(self.num_steps, self.step.seconds)

    @property
    def cost(self) -> float | None:
        """What the devices cost all the while, in the currency of the price."""
        if self.price is None:
            return None
        return times(self.seconds, self.price.amount * self.step.workers / _HOUR)

    def to_dict(self) -> dict[str, Any]:
        """Return the values for JSON."""
        return {
            "num_steps": self.num_steps,
            "training_time_s": self.seconds,
            "training_cost": self.cost,
        }


def times(value: float | None, factor: float | None) -> float | None:
    """Return the product, None if one of them is not known."""
    return None if value is None or factor is None else value * factor


def checked_price(price: Any) -> Price | None:
    """Return the price of a device for an hour: a number of dollars, or such as "0.90 EUR/h".

    Raises SettingError if it is neither, nor None or a Price.
    """
    if isinstance(price, Price | None):
        return price
    if is_number(price) and 0 <= price <= _MOST:
        return Price(float(price), _CURRENCY)
    try:
        return Price(*parse_price(price))
    except ValueError:
        raise SettingError(
            f"price: expected a number from 0 to {_MOST:g}, or a text such as "
            f'"0.90 EUR/h", got {shown(price)}'
        ) from None
