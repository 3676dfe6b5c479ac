"""Whether a net fits a device, and at which batch."""

from __future__ import annotations

from typing import Any

from paleo.cluster import Device
from paleo.core.frozen import dataclass
from paleo.core.quantity import Quantity
from paleo.core.results import Result
from paleo.net.load import NetLike
from paleo.step.memory.footprint import Footprint, footprint, largest_batch


@dataclass(frozen=True)
class Fit(Result):
    """A footprint and, if a device is asked about, the largest batch that it holds."""

    footprint: Footprint
    device: Device | None
    largest_batch: int | None

    @property
    def fits(self) -> bool | None:
        """Whether the peak is within the device's capacity; None if one is not known."""
        capacity = self.device.memory_capacity if self.device else None
        return None if capacity is None else bool(self.footprint.peak <= capacity)

    @property
    def on_device(self) -> dict[str, Any]:
        """What there is to say of the device; None for what is not known."""
        if self.device is None:
            return {}
        return {
            "device": self.device.name,
            "memory_capacity_bytes": self.device.memory_capacity,
            "fits": self.fits,
            "largest_batch_size": self.largest_batch,
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        return {**self.footprint.to_dict(), **self.on_device}


def fit(
    net: NetLike,
    batch_size: Quantity | None = None,
    *,
    device: Device | None = None,
    **settings: Any,
) -> Fit:
    """Return the memory of a net, and if a device is asked about, the largest batch it holds.

    `settings` are those of `footprint`, and so are the errors.
    """
    found = footprint(net, batch_size, **settings)
    capacity = device.memory_capacity if device else None
    largest = None if capacity is None else largest_batch(net, capacity, **settings)
    return Fit(found, device, largest)
