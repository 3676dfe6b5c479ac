"""Devices: what one processor can do, from its data sheet and from the 2017 model."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from paleo.cluster.figures import Figure, FileReader, Table, given
from paleo.cluster.prices import Price, predefined_prices, read_prices, usual_price
from paleo.core.errors import HardwareError
from paleo.core.frozen import dataclass
from paleo.core.quantity import Quantity, maximum
from paleo.core.tensor import DTYPES

if TYPE_CHECKING:
    from paleo.cluster.calibration_record import CalibrationRecord

#: The architectures of accelerators, those of one maker by age. CPUs have the names of cores.
ARCHITECTURES = (
    *("Kepler", "Maxwell", "Pascal", "Volta", "Turing", "Ampere", "Ada", "Hopper", "Blackwell"),
    "Blackwell RTX",
    *("GCN", "CDNA", "CDNA 3", "Xe2", "TPU", "Apple"),
)

#: Those of GPUs that NVIDIA did not make.
OTHER_MAKERS = ("GCN", "CDNA", "CDNA 3", "Xe2", "Apple")

#: The figures a device can have, and their dimensions.
FIGURES = {
    "base_clock": "Hz",
    "boost_clock": "Hz",
    "multiprocessors": "count",
    "memory_bandwidth": "bytes/s",
    "memory_capacity": "bytes",
    "memories": "count",
    "cache": "bytes",
    "power": "W",
    # Bytes/s in one direction between a device and the memory of its host.
    "host_bandwidth": "bytes/s",
    # FLOP/s in fp32 of one core of the slowest kind, where there are several kinds.
    "slowest_core": "FLOP/s",
}
_CLOCKS = ("base_clock", "boost_clock")
#: The kinds of device.
KINDS = ("gpu", "cpu", "tpu")
#: What a processor is mounted on, where it is sold on several: the most usual first.
BOARDS = ("SXM", "PCIe", "NVL")
#: The kinds of unit that a peak can be of: general-purpose lanes, or matrix units.
UNITS = ("vector", "matrix")


@dataclass(frozen=True)
class Rates2017:
    """The three figures that the 2017 model takes of a device.

    `memory_bandwidth` is decimal here; that the model reads its "GB/s" as GiB is the cost
    model's affair.
    """

    clock: Quantity  # Hz
    peak: Quantity  # FLOP/s
    memory_bandwidth: Quantity  # bytes/s
    note: str = ""


@dataclass(frozen=True)
class Device:
    """One processor. Every figure is in SI units and carries its source.

    `figures` holds the entries of FIGURES that are known; `peaks` the dense peak for each
    element type and kind of unit, in FLOP/s where one multiply-add is 2; `own_prices` what its
    file says that an hour of it costs.
    """

    name: str
    title: str
    kind: str
    architecture: str
    figures: Mapping[str, Figure]
    peaks: Mapping[str, Mapping[str, Figure]]
    aliases: tuple[str, ...] = ()
    own_rates_2017: Rates2017 | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    own_prices: tuple[Price, ...] = ()
    #: Constants of the cost model `tiled` that the file states for this device.
    constants: Mapping[str, Figure] = field(default_factory=dict)
    #: How `paleo calibrate` measured it, if it did.
    calibration: CalibrationRecord | None = None
    #: One of BOARDS, "" where there is but one.
    board: str = ""
    #: Whether it is made for servers, whose cores are slower than a workstation's.
    is_server: bool = False

    @classmethod
    def from_rates(
        cls, name: str, *, clock: Quantity, peak: Quantity, memory_bandwidth: Quantity
    ) -> Device:
        """Return a device of your own: clock in Hz, fp32 peak in FLOP/s, bandwidth in bytes/s."""
        figures = {
            "base_clock": given(clock, "Hz", "clock"),
            "memory_bandwidth": given(memory_bandwidth, "bytes/s", "memory_bandwidth"),
        }
        return cls(
            name, name, "gpu", "", figures, {"fp32": {"vector": given(peak, "FLOP/s", "peak")}}
        )

    def _figure(self, name: str) -> Quantity:
        try:
            return self.figures[name].value
        except KeyError:
            raise HardwareError(
                f"device {self.name} has no {name}; it has: {', '.join(self.figures)}"
            ) from None

    @property
    def memory_bandwidth(self) -> Quantity:
        """Bytes/s by the data sheet."""
        return self._figure("memory_bandwidth")

    @property
    def host_bandwidth(self) -> Quantity:
        """Bytes/s in one direction between it and its host's memory, by the data sheet."""
        return self._figure("host_bandwidth")

    @property
    def prices(self) -> tuple[Price, ...]:
        """What an hour of it costs: the file's prices, or those of clouds for one of its name."""
        return self.own_prices or predefined_prices().get(self.name, ())

    @property
    def newest_price(self) -> Price | None:
        """The price to reckon with, None if none is known: `usual_price` of its prices."""
        return usual_price(self.prices)

    @property
    def memory_capacity(self) -> int | None:
        """Bytes that one process can have by the data sheet, None if it does not say.

        Of a board with several processors, each with a memory of its own, those of one.
        """
        figure, memories = self.figures.get("memory_capacity"), self.figures.get("memories")
        if figure is None:
            return None
        return int(figure.value) // (int(memories.value) if memories else 1)

    def peak(self, dtype: str = "fp32") -> Quantity:
        """Return the dense peak in FLOP/s for this element type, of the fastest unit.

        Raises HardwareError, saying which types there are, if the device has no figure.
        """
        units = self.peaks.get(dtype)
        if not units:
            known = ", ".join(self.peaks) or "none"
            raise HardwareError(f"device {self.name} has no peak for {dtype}; it has: {known}")
        return functools.reduce(maximum, [figure.value for figure in units.values()])

    @property
    def rates_2017(self) -> Rates2017:
        """The figures for the 2017 model: its own for this device, else the data sheet's.

        The clock is the base clock, the boost clock where no source has that.
        """
        clock = next((name for name in _CLOCKS if name in self.figures), _CLOCKS[0])
        return self.own_rates_2017 or Rates2017(
            self._figure(clock), self.peak("fp32"), self.memory_bandwidth
        )


def read_device(path: Path) -> Device:
    """Read a device file; raises HardwareError with every mistake in it."""
    known = ("name", "title", "kind", "architecture", "aliases", "sources", "figures", "peak")
    root = FileReader(
        path, (*known, "board", "server", "paleo2017", "price", "tiled", "calibration")
    )
    name, kind = root.text("name", path.stem), root.text("kind", "gpu")
    if kind not in KINDS:
        root.note("kind", f'expected "gpu", "cpu" or "tpu", got {kind!r}')

    board = root.text("board")
    if board and board not in BOARDS:
        root.note("board", f"expected one of {', '.join(BOARDS)}, got {board!r}")

    figures = root.table("figures").figures(FIGURES, required="memory_bandwidth")

    peak_table = root.table("peak").only(DTYPES)
    peaks = {}
    for dtype in peak_table.values:
        units = peak_table.table(dtype).only(UNITS)
        peaks[dtype] = {unit: units.figure(unit, "FLOP/s") for unit in units.values}
    if not any(peaks.values()):
        root.note(
            "peak", 'missing: a device needs a peak, such as [peak.fp32] vector = "5 TFLOP/s"'
        )

    rates = None
    if "paleo2017" in root.values:
        old = root.table("paleo2017").only(("clock", "peak", "memory_bandwidth", "note"))
        rates = Rates2017(
            old.quantity("clock", "Hz"),
            old.quantity("peak", "FLOP/s"),
            old.quantity("memory_bandwidth", "bytes/s"),
            old.text("note"),
        )
    device = Device(
        name,
        root.text("title", name),
        kind,
        root.text("architecture"),
        figures,
        peaks,
        root.names("aliases"),
        rates,
        root.sources,
        read_prices(root),
        root.table("tiled").constants(),
        _calibration(root),
        board,
        root.flag("server"),
    )
    root.finish()
    return device


def _calibration(root: Table) -> CalibrationRecord | None:
    if "calibration" not in root.values:
        return None
    # Here, since few files have one and every command reads a device.
    from paleo.cluster.calibration_record import read_calibration

    return read_calibration(root.table("calibration"))
