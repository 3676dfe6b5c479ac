"""A whole training: how many steps, how long, at what price."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, TypedDict

from paleo.cluster import Device, Price, find_device, parse_price
from paleo.cluster.prices import usual_price
from paleo.core.checks import is_number, python_int, shown
from paleo.core.errors import Mistakes, SettingError
from paleo.core.frozen import dataclass
from paleo.step.declarations import Setting
from paleo.step.pieces import WholeStep
from paleo.step.settings import DeviceLike
from paleo.studies.datasets import DATASETS, Schedule

#: What a price is in that is a number alone.
_CURRENCY = "USD"
#: More money for an hour means nothing.
_MOST = 1e12
#: Seconds.
HOUR = 3600


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
        return times(self.seconds, self.price.amount * self.step.workers / HOUR)

    def to_dict(self) -> dict[str, Any]:
        """Return the values for JSON."""
        return {
            "num_steps": self.num_steps,
            "training_time_s": self.seconds,
            "training_cost": self.cost,
        }


class TrainingSettings(TypedDict, total=False):
    """How long a net is trained, at what price."""

    epochs: Annotated[
        float | None,
        Setting(
            default=None,
            check=lambda value: Schedule(epochs=python_int(value)).epochs,
            help="Epochs: how many times training goes through the dataset.",
            label="Epochs",
        ),
    ]
    dataset: Annotated[
        str | None,
        Setting(
            default=None,
            check=lambda value: Schedule(dataset=value).dataset,
            help="The dataset to train on, for its number of samples.",
            label="Dataset",
            choices=lambda: DATASETS,
        ),
    ]
    dataset_size: Annotated[
        int | None,
        Setting(
            default=None,
            check=lambda value: Schedule(dataset_size=python_int(value)).dataset_size,
            help="Samples in your own dataset, instead of --dataset.",
            label="Samples",
        ),
    ]
    price: Annotated[
        float | str | Price | None,
        Setting(
            default=None,
            check=lambda value: checked_price(value),
            help="Price of one device for an hour: a number of US dollars, or a text such as "
            "'0.90 EUR/h'.",
            label="Price",
            shown_default="the cheapest on demand of `paleo prices`",
        ),
    ]
    prices: Annotated[
        str | os.PathLike[str] | None,
        Setting(
            default=None,
            check=lambda value: checked_prices(value),
            help="Your own prices by device: a TOML file with entries [[price]].",
            label="Prices",
            metavar="FILE",
        ),
    ]


def schedule_of(found: Mapping[str, Any], mistakes: Mistakes) -> Schedule | None:
    """Return the schedule of settings that were found; notes what does not go together."""
    keys = ("epochs", "dataset", "dataset_size")
    return mistakes.check(lambda: Schedule(**{key: found[key] for key in keys}))


def price_of(
    device: Device, price: Price | None, prices: Mapping[str, tuple[Price, ...]] | None
) -> Price | None:
    """Return what an hour of a device costs, None if nobody says.

    A `price` comes first, then `prices`, by the names of devices, then those known of the device.
    """
    return price or usual_price((prices or {}).get(device.name, ())) or device.newest_price


def with_prices(device: DeviceLike, prices: Mapping[str, tuple[Price, ...]]) -> Device:
    """Return a device with the prices that a file of one's own has of it; raises a PaleoError."""
    found = find_device(device)
    return replace(found, own_prices=prices.get(found.name, found.own_prices))


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


def checked_prices(path: Any) -> Mapping[str, tuple[Price, ...]] | None:
    """Return the prices in a file of one's own, by the names of devices; None of None.

    Raises SettingError for what is no path, HardwareError for a bad file.
    """
    if path is None:
        return None
    if not isinstance(path, str | os.PathLike):
        raise SettingError(f"prices: expected a file, got {shown(path)}")
    from paleo.cluster.price_files import read_price_file  # here, since few ask for it

    return read_price_file(path)
