"""The data loader: at most how quickly it delivers samples, however quick devices are.

A step takes at least as long as what it reads takes to come. Loaders read ahead, so that it need
not wait while devices compute (PyTorch, torch.utils.data, prefetch_factor).
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from paleo.core.checks import is_number, number, shown
from paleo.core.errors import SettingError
from paleo.core.frozen import TypedDict, dataclass
from paleo.core.quantity import Quantity, maximum
from paleo.step.declarations import Setting

#: What the time is called in which devices wait for data.
LOADER = "data_loader"
_TEXT = re.compile(r"([\d.,]+(?:e[+-]?\d+)?)\s*(?:(samples|images|tokens)/s(?:/(device|worker))?)?")
_MOST = 1e15


@dataclass(frozen=True)
class LoaderRate:
    """So many samples a second, or `tokens`; of each device if they are `apart`, else of all."""

    rate: float
    tokens: bool = False
    apart: bool = False

    def __str__(self) -> str:
        each = "/device" if self.apart else ""
        return f"{self.rate:g} {'tokens' if self.tokens else 'samples'}/s{each}"

    def seconds(self, samples: Quantity, workers: Quantity, tokens: Any) -> Quantity:
        """Return the seconds in which so many samples come, of so many tokens each, for a step.

        Raises SettingError where tokens are given of a net that has none.
        """
        if self.tokens and tokens is None:
            raise SettingError("loader_rate: the net has no tokens: give samples/s")
        count = samples * tokens if self.tokens else samples
        return count / (self.rate * (workers if self.apart else 1))


def waiting(delivered: Quantity, seconds: Quantity) -> Quantity:
    """Return how long a step of so many seconds waits for what comes within `delivered`."""
    return maximum(delivered - seconds, 0.0)


def find_rate(value: Any) -> LoaderRate | None:
    """Return what a number, or a text such as "5e4 tokens/s/device", means; raises SettingError.

    A number alone is of samples a second, of all devices together.
    """
    if value is None or isinstance(value, LoaderRate):
        return value
    match = _TEXT.fullmatch(value.strip()) if isinstance(value, str) else None
    rate = number(match[1].replace(",", "")) if match else value
    if not is_number(rate) or not 0 < rate <= _MOST:  # false for NaN
        raise SettingError(
            "loader_rate: expected samples or tokens a second above 0, such as 2500, "
            f'"5e4 tokens/s" or "300 samples/s/device", got {shown(value)}'
        )
    return LoaderRate(float(rate), *((match[2] == "tokens", bool(match[3])) if match else ()))


LOADER_RATE = Setting(
    default=None,
    check=find_rate,
    help="What the data loader delivers at most, such as 2500 (samples/s of all devices), "
    '"5e4 tokens/s" or "300 samples/s/device": no step is quicker.',
    label="Data loader",
    metavar="RATE",
    shown_default="as much as devices take",
)


class LoaderSettings(TypedDict, total=False):
    """How quickly samples come."""

    loader_rate: Annotated[str | float | LoaderRate | None, LOADER_RATE]
