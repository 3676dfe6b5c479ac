"""Every way in which the model `tiled` computes a convolution."""

from __future__ import annotations

from paleo.core.operations import Convolution
from paleo.costs import Time
from paleo.costs.tiled import convolution
from paleo.costs.tiled.machine import Machine


def ways(operation: Convolution, machine: Machine) -> dict[str, Time]:
    """Return the time by each algorithm that the device's own library has for it."""
    chooser = convolution.chooser(operation, machine)
    times = {name: chooser.price(name, operation) for name in chooser.candidates()}
    return {name: time for name, time in times.items() if time is not None}
