"""A whole training: how many steps, how long, at what price."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

from paleo.cluster import Device, Price, find_device, parse_price
from paleo.cluster.prices import usual_price
from paleo.core.attributes import Ends, at_ends, with_ends
from paleo.core.checks import is_number, python_int, shown
from paleo.core.errors import Mistakes, SettingError
from paleo.core.frozen import NamedTuple, TypedDict, dataclass
from paleo.core.units import parse
from paleo.step.declarations import Setting
from paleo.step.pieces import WholeStep
from paleo.step.scenario import Scenario
from paleo.step.settings import DeviceLike
from paleo.step.utilization import tokens_of
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

    `price` is that of one device for an hour, `power` the watts that it draws.
    """

    step: WholeStep
    schedule: Schedule
    price: Price | None = None
    power: float | None = None

    @property
    def num_samples(self) -> float | None:
        """Samples of the whole training."""
        tokens: int | None = self.step.sample.tokens if self.step.sample else None
        if self.schedule.tokens is None or tokens is None:
            return self.schedule.num_samples
        return self.schedule.tokens / tokens

    @property
    def num_steps(self) -> float | None:
        """Steps of the whole training, of which the last may be part of one."""
        return times(self.num_samples, 1 / self.step.batch_size)

    @property
    def seconds(self) -> float | None:
        """Seconds of the whole training."""
        return times(self.num_steps, self.step.seconds)

    @property
    def device_hours(self) -> float | None:
        """Hours of all devices together."""
        return times(self.seconds, self.step.workers / HOUR)

    @property
    def energy(self) -> float | None:
        """Joules that the devices draw all the while."""
        return times(times(self.device_hours, HOUR), self.power)

    @property
    def cost(self) -> float | None:
        """What the devices cost all the while, in the currency of the price."""
        return times(self.device_hours, self.price.amount if self.price else None)

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output, with both ends of their bands."""
        values = self._values()
        has_band = self.step.ends != (None, None)
        ends = at_ends(self.ends(), Training._values)
        return with_ends(values, ends, times=TIMES) if has_band else values

    def _values(self) -> dict[str, Any]:
        return {
            "num_steps": self.num_steps,
            "training_time_s": self.seconds,
            "device_hours": self.device_hours,
            "training_energy_j": self.energy,
            "training_cost": self.cost,
        }

    def ends(self) -> Ends[Training]:
        """Return the training at both ends of the error band of its steps."""
        return at_ends(self.step.ends, lambda end: replace(self, step=end))


#: What of a training is the longer, or the more, the longer its steps are.
TIMES = ("training_time_s", "device_hours", "training_energy_j", "training_cost")
#: What is said of energy by the power of a data sheet.
ENERGY_BOUND = (
    "energy is an upper bound: devices are assumed to draw their full board power all the time"
)


class TokenSettings(TypedDict, total=False):
    """How many tokens a net reads in training."""

    tokens: Annotated[
        float | None,
        Setting(
            default=None,
            check=lambda value: Schedule(tokens=python_int(value)).tokens,
            help="Tokens that training reads, such as 15e12, in place of epochs of a dataset.",
            label="Tokens",
        ),
    ]


class PowerSettings(TypedDict, total=False):
    """What devices draw."""

    power: Annotated[
        float | str | None,
        Setting(
            default=None,
            check=lambda value: _power(value),
            help="Power that one device draws, such as '180 W'.",
            shown_default="its board power, from the device's file",
        ),
    ]


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
    keys = ("epochs", "dataset", "dataset_size", "tokens")
    return mistakes.check(lambda: Schedule(**{key: found.get(key) for key in keys}))


def check_tokens(schedule: Schedule, scenario: Scenario) -> None:
    """Raise SettingError if tokens are to be read by a net that reads none."""
    net = scenario.net
    if schedule.tokens is not None and tokens_of(net, scenario.plan.adapt) is None:
        raise SettingError(f"tokens: {net.name} reads none: no Embedding reads one of its inputs")


def price_of(
    device: Device, price: Price | None, prices: Mapping[str, tuple[Price, ...]] | None
) -> Price | None:
    """Return what an hour of a device costs, None if nobody says.

    A `price` comes first, then `prices`, by the names of devices, then those known of the device.
    """
    return price or usual_price((prices or {}).get(device.name, ())) or device.newest_price


def power_of(device: Device) -> float | None:
    """Return the watts that a device draws at most, None if its file does not say."""
    known = device.figures.get("power")
    return float(known.value) if known else None


class Rates(NamedTuple):
    """What an hour of a device costs and the watts that it draws, None where nobody says.

    `notes` are what is to be said where they are not one's own.
    """

    price: Price | None
    power: float | None
    notes: tuple[str, ...]


def rates_of(
    device: Device,
    own_price: Price | None,
    prices: Mapping[str, tuple[Price, ...]] | None,
    own_power: float | None,
) -> Rates:
    """Return what a device costs and draws, by `price_of` and `power_of` where nothing is given."""
    price, power = price_of(device, own_price, prices), own_power or power_of(device)
    notes = []
    if power is None:
        notes.append(f"no energy: the file of {device.name} has no power")
    elif own_power is None:
        notes.append(ENERGY_BOUND)
    if price and own_price is None:
        hour = f"{price.amount:g} {price.currency} for an hour of a device"
        notes.append(f"price: {hour}, {price.origin()}")
    return Rates(price, power, tuple(notes))


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


def _power(power: Any) -> float | None:
    if power is None:
        return None
    if is_number(power) and 0 < power <= _MOST:
        return float(power)
    try:
        if not isinstance(power, str):
            raise ValueError(
                f"expected watts, a number above 0, up to {_MOST:g}, got {shown(power)}"
            )
        return parse(power, "W")
    except ValueError as error:
        raise SettingError(f"power: {error}") from None
