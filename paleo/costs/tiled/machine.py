"""A device as the model `tiled` sees it: rates, units and constants for one element type."""

from __future__ import annotations

import math
from dataclasses import dataclass

from paleo.costs.base import Target
from paleo.costs.convolutions.choice import DEFAULT as CHOICE
from paleo.costs.convolutions.choice import ConvolutionChoice
from paleo.costs.tiled.constants import constants_of
from paleo.hardware import Device
from paleo.quantity import Quantity, maximum, minimum
from paleo.tensor import element_size

__all__ = ["Machine", "machine_for"]

#: How many there are where a file does not say: as in a device of the middle.
_MULTIPROCESSORS = 64
#: Bytes of the last cache where the data sheet does not say, for a multiprocessor.
_CACHE = 128 * 1024
#: Bytes a clock between a multiprocessor and the last cache, in all recent designs.
_LOADED = 64
#: No operation takes less, in J: the constant is 0 where nothing is known.
_LEAST_ENERGY = 1e-30
_HALVES = ("fp16", "bf16")
#: Hz where the data sheet has no clock.
_CLOCK = 1.5e9


@dataclass(frozen=True)
class Machine:
    """Rates in SI units, already times `ppp_comp`; constants as in `CONSTANTS`.

    `matrix_peak` is None where the device has no matrix units for the type, `vector_peak`
    where it has no figure for its lanes. Any of them but `library` may be an array.
    """

    multiprocessors: Quantity
    matrix_peak: Quantity | None
    vector_peak: Quantity | None
    bandwidth: Quantity
    cache: Quantity
    clock: Quantity
    power: Quantity
    element_size: int
    launch: Quantity
    host: Quantity
    matrix_share: Quantity
    vector_share: Quantity
    memory_share: Quantity
    operand_share: Quantity
    energy: Quantity
    cache_ratio: Quantity
    load_share: Quantity
    latency: Quantity
    attention_share: Quantity
    attention_fill: Quantity
    exponentials: Quantity
    scratch: Quantity
    convolution_share: Quantity
    library: Quantity
    scalar: Quantity
    step: Quantity
    dtype: str = "fp32"
    is_cpu: bool = False
    training: bool = True
    convolutions: ConvolutionChoice = CHOICE

    @property
    def load_rate(self) -> Quantity:
        """Bytes/s that one multiprocessor loads from the last cache."""
        return self.load_share * _LOADED * self.clock

    @property
    def powered_rate(self) -> Quantity:
        """FLOP/s of the matrix units for which the power suffices, without end."""
        joules = self.energy * self.element_size / 2
        return self.power / maximum(joules, _LEAST_ENERGY)


def machine_for(target: Target) -> Machine:
    """Return what a target offers; raises HardwareError if it has no figure for the type."""
    device = target.device
    device.peak(target.dtype)  # says which types there are
    units = device.peaks[target.dtype]
    figures = device.figures
    clock = next(
        (figures[name].value for name in ("boost_clock", "base_clock") if name in figures), _CLOCK
    )
    multiprocessors: Quantity = _MULTIPROCESSORS
    if "multiprocessors" in figures:
        multiprocessors = figures["multiprocessors"].value
    cache = figures["cache"].value if "cache" in figures else _CACHE * multiprocessors
    constants = {name: figure.value for name, figure in constants_of(device).items()}
    constants.update(target.constants)
    share = target.ppp_comp
    return Machine(
        multiprocessors,
        units["matrix"].value * share if "matrix" in units else None,
        _lanes(device, target.dtype) * share if "vector" in units else None,
        device.memory_bandwidth * share,
        cache,
        clock * share,
        figures["power"].value if "power" in figures else math.inf,
        element_size(target.dtype),
        **constants,
        dtype=target.dtype,
        is_cpu=device.kind == "cpu",
        training=target.training,
        convolutions=target.convolutions,
    )


def _lanes(device: Device, dtype: str) -> Quantity:
    """Return the vector lanes' FLOP/s in products: of halves no more than of fp32.

    Libraries add up halves in fp32: on the P100, whose lanes have twice the rate in fp16, the
    products of DeepBench take as long in either.
    """
    peak = device.peaks[dtype]["vector"].value
    single = device.peaks.get("fp32", {}).get("vector")
    return minimum(peak, single.value) if dtype in _HALVES and single else peak
