"""A device as the model `tiled` sees it: rates, units and constants for one element type."""

from __future__ import annotations

import math

from paleo.cluster import Device
from paleo.core.frozen import dataclass
from paleo.core.quantity import Quantity, largest, maximum, minimum
from paleo.core.tensor import element_size
from paleo.costs.convolutions.settings import CONTIGUOUS, ConvolutionChoice
from paleo.costs.convolutions.settings import DEFAULT as CHOICE
from paleo.costs.model import Target
from paleo.costs.tiled.constants import constants_of

#: How many there are where a file does not say: as in a device of the middle.
_MULTIPROCESSORS = 64
#: Bytes of the last cache where the data sheet does not say, for a multiprocessor.
_CACHE = 128 * 1024
#: Bytes a clock between a multiprocessor and the last cache, in all recent designs.
_LOADED = 64
#: No operation takes less, in J: the constant is 0 where nothing is known.
_LEAST_ENERGY = 1e-30
_HALVES = ("fp16", "bf16")
#: fp32 lanes of a multiprocessor that the constant `filling` is of.
LANES = 64
#: Warps of a product's kernel that the registers of a multiprocessor hold, of 128 a thread.
RESIDENT = 16
#: Energy of an instruction that multiplies four pairs of bytes, of one that multiplies one of fp32:
#: in 70 W a T4 does 23.4 TOP/s of the one in DeepBench (CUDA 10.1), and 4.0 TFLOP/s of the other.
_INTEGERS = 0.69
#: Bytes of the numbers that `matrix_clock` is of.
_HALF = 2
#: How products and what they do not hide add up: 1 where one follows the other, infinite where all
#: is hidden behind the longer.
_HIDDEN = 1.5
#: Hz where the data sheet has no clock.
_CLOCK = 1.5e9


@dataclass(frozen=True)
class Machine:
    """Rates in SI units, already times `ppp_comp`; constants as in `CONSTANTS`.

    `matrix_peak` is None where the device has no matrix units for the type, `vector_peak`
    where it has no figure for its lanes. `lanes` are those of fp32 in a multiprocessor.
    `halves_peak` is what they do with pairs of halves, None where they cannot; with `in_halves`
    they do. Any of them but `library` may be an array.
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
    boost: Quantity
    matrix_share: Quantity
    matrix_clock: Quantity
    vector_share: Quantity
    memory_share: Quantity
    operand_share: Quantity
    energy: Quantity
    lane_energy: Quantity
    byte_energy: Quantity
    filling: Quantity
    batched_tile: Quantity
    filter_tile: Quantity
    reduction: Quantity
    partial: Quantity
    cache_ratio: Quantity
    load_share: Quantity
    latency: Quantity
    attention_share: Quantity
    attention_fill: Quantity
    exponentials: Quantity
    scratch: Quantity
    prologue: Quantity
    atomic: Quantity
    threads: Quantity
    convolution_share: Quantity
    library: Quantity
    scalar: Quantity
    fault: Quantity
    step: Quantity
    dtype: str = "fp32"
    architecture: str = ""
    lanes: Quantity = LANES
    halves_peak: Quantity | None = None
    in_halves: bool = False
    is_cpu: bool = False
    training: bool = True
    memory_format: str = CONTIGUOUS
    attention: str | None = None
    persistent: bool = False
    continuous: bool = False
    convolutions: ConvolutionChoice = CHOICE

    @property
    def filled_rate(self) -> Quantity:
        """FLOP/s of the lanes in a long loop of as many warps as there may be, if power suffices.

        The more lanes a multiprocessor has, the less of them these warps fill.
        """
        assert self.vector_peak is not None
        filled = (1 + self.filling / RESIDENT) / (1 + self.filling * self.lanes / LANES / RESIDENT)
        return self.vector_peak * self.vector_share * filled

    @property
    def computed_size(self) -> int:
        """Bytes of the smallest numbers that lanes sum up."""
        return 2 if self.in_halves else 4

    @property
    def powered_lanes(self) -> Quantity:
        """FLOP/s of the lanes for which the power suffices."""
        joules = self.lane_energy * (self.element_size / 4)
        if self.dtype == "int8":
            joules = joules * _INTEGERS
        return self.power / maximum(joules, _LEAST_ENERGY)

    @property
    def vector_rate(self) -> Quantity:
        """FLOP/s of the lanes in a long loop, where the device has a figure for them."""
        return minimum(self.filled_rate, self.powered_lanes)

    @property
    def product_rate(self) -> Quantity:
        """FLOP/s of long products: of the matrix units, or else of the lanes."""
        if self.matrix_peak is None:
            return self.vector_rate
        return self.long_rate()

    @property
    def pace(self) -> Quantity:
        """Operations of the matrix units in a clock, by those that shares of their peak are of."""
        if self.matrix_peak is None or not largest(self.matrix_clock):
            return 1.0
        a_clock = self.matrix_peak / (self.multiprocessors * self.clock)
        return minimum(a_clock * self.element_size / _HALF / self.matrix_clock, 1.0)

    def gain(self, share: Quantity) -> Quantity:
        """Return how many times as large a share of the matrix units' peak is at their pace.

        A kernel that reaches `share` of the peak where shares are known waits for the rest of the
        time: tiles start and end, sums are added and exponentials taken, warps meet. That takes as
        many clocks where the units are slower, and longer products hide more of it: the two add up
        as powers of `_HIDDEN` do.
        """
        found: Quantity = 1.0 - (1.0 - share**_HIDDEN) * (1.0 - self.pace**_HIDDEN)
        return found ** (-1 / _HIDDEN)

    def long_rate(self, share: Quantity = 1.0) -> Quantity:
        """Return the FLOP/s of long products, times `share` what a loop of such a share reaches."""
        assert self.matrix_peak is not None
        return self.matrix_peak * self.matrix_share * self.gain(self.matrix_share * share)

    @property
    def load_rate(self) -> Quantity:
        """Bytes/s that one multiprocessor loads from the last cache."""
        return self.load_share * _LOADED * self.clock

    @property
    def powered_rate(self) -> Quantity:
        """FLOP/s of the matrix units for which the power suffices, without end."""
        joules = self.energy * self.element_size / 2
        return self.power / maximum(joules, _LEAST_ENERGY)

    @property
    def powered_bandwidth(self) -> Quantity:
        """Bytes/s that leave or enter the chip for which the power suffices."""
        return self.power / maximum(self.byte_energy, _LEAST_ENERGY)


def machine_for(target: Target) -> Machine:
    """Return what a target offers; raises HardwareError if it has no figure for the type."""
    device = target.device
    device.peak(target.dtype)  # says which types there are
    units = device.peaks[target.dtype]
    figures = device.figures

    def figure(name: str, otherwise: Quantity) -> Quantity:
        return figures[name].value if name in figures else otherwise

    multiprocessors = figure("multiprocessors", _MULTIPROCESSORS)
    constants = {name: figure.value for name, figure in constants_of(device).items()}
    constants.update(target.constants)
    share = target.share
    even = _even_share(device, multiprocessors)
    # All that runs with the clock; the memory has one of its own.
    clocked = share * constants["boost"]
    return Machine(
        multiprocessors,
        units["matrix"].value * clocked if "matrix" in units else None,
        _lanes(device, target.dtype) * even * clocked if "vector" in units else None,
        device.memory_bandwidth * share,
        figure("cache", _CACHE * multiprocessors),
        figure("boost_clock", figure("base_clock", _CLOCK)) * clocked,
        figure("power", math.inf),
        element_size(target.dtype),
        **constants,
        dtype=target.dtype,
        architecture=device.architecture,
        lanes=_lane_count(device, multiprocessors),
        halves_peak=_halves(device, target.dtype, even * clocked),
        in_halves=False,
        is_cpu=device.kind == "cpu",
        training=target.training,
        memory_format=target.memory_format,
        attention=target.attention,
        persistent=target.persistent,
        continuous=target.continuous,
        convolutions=target.convolutions,
    )


def _even_share(device: Device, multiprocessors: Quantity) -> Quantity:
    """Return the share of all cores' peak that is left where they are of several kinds.

    PyTorch has a thread on each core, and OpenMP gives each as much to do (its static schedule), so
    that all wait for the slowest. Intel says as much of its hybrid processors (oneMKL Developer
    Guide, "Managing Performance with Heterogeneous Cores").
    """
    slowest, single = device.figures.get("slowest_core"), device.peaks.get("fp32", {}).get("vector")
    if slowest is None or single is None:
        return 1.0
    return minimum(multiprocessors * slowest.value / single.value, 1.0)


def _lane_count(device: Device, multiprocessors: Quantity) -> Quantity:
    """Return the fp32 lanes of a multiprocessor, each of which does two FLOPs a clock."""
    single, figures = device.peaks.get("fp32", {}).get("vector"), device.figures
    clock = figures.get("boost_clock", figures.get("base_clock"))
    if single is None or clock is None or "multiprocessors" not in figures:
        return LANES
    return single.value / (2 * clock.value * multiprocessors)


def _halves(device: Device, dtype: str, share: Quantity) -> Quantity | None:
    """Return the FLOP/s of lanes that compute two halves at a time, None where they do not."""
    own = device.peaks.get("fp16", {}).get("vector")
    single = device.peaks.get("fp32", {}).get("vector")
    if dtype != "fp16" or own is None or single is None or own.value <= single.value:
        return None
    return own.value * share


def _lanes(device: Device, dtype: str) -> Quantity:
    """Return the vector lanes' FLOP/s in products: of halves no more than of fp32.

    Libraries add up halves in fp32: on the P100, whose lanes have twice the rate in fp16, the
    products of DeepBench take as long in either.
    """
    peak = device.peaks[dtype]["vector"].value
    single = device.peaks.get("fp32", {}).get("vector")
    return minimum(peak, single.value) if dtype in _HALVES and single else peak
