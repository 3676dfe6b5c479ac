"""Units: text such as "288 GB/s" to SI numbers, and SI numbers to text for people.

Bandwidth is decimal (1 GB/s is 1e9 bytes/s) and counts bytes; "20 Gbit/s" is 2.5e9
bytes/s. Capacity may be decimal (GB) or binary (GiB), as its source writes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from paleo.core.errors import near

#: Bytes of one GiB.
KIB = 2**10
MIB = 2**20
GIB = 2**30
#: What the 2017 model's reading of "GB" as GiB multiplies a decimal figure by.
GIB_PER_GB = GIB / 1e9

_SI = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


_CAPACITY: dict[str, float] = {f"{p}B": f for p, f in (_SI | _BINARY).items()}
_UNITS: dict[str, dict[str, float]] = {
    "bytes": _CAPACITY,
    "bytes/s": {f"{unit}/s": f for unit, f in _CAPACITY.items()}
    | {f"{p}bit/s": f / 8 for p, f in _SI.items()},
    "FLOP/s": {f"{p}FLOP/s": f for p, f in _SI.items()},
    "Hz": {f"{p}Hz": f for p, f in _SI.items()},
    "W": {"W": 1, "kW": 1e3, "mW": 1e-3},
    "s": {"s": 1, "ms": 1e-3, "us": 1e-6, "ns": 1e-9},
}

#: No figure is outside these, in any SI unit: less or more would make times infinite or zero.
_LEAST, _MOST = 1e-15, 1e30

_EXAMPLES = {
    "bytes": '"10 GB"',
    "bytes/s": '"10 GB/s" or "10 Gbit/s"',
    "FLOP/s": '"10 GFLOP/s"',
    "Hz": '"10 MHz"',
    "W": '"10 W"',
    "s": '"10 us"',
}
_NUMBER = r"\s*([-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?)\s*(\S*)\s*"


def parse(text: str | bytes, dimension: str) -> float:
    """Return `text`, a number and a unit, in the SI unit of `dimension`.

    `dimension` is one of "bytes", "bytes/s", "FLOP/s", "Hz", "W", "s". Raises ValueError,
    saying what was expected, if the text is no number, has no unit or another
    dimension's, or is not positive, or absurd.
    """
    string = text
    if not isinstance(string, str):
        from six import ensure_str  # here, since files and commands have texts

        string = ensure_str(text)
    units = _UNITS[dimension]
    match = re.fullmatch(_NUMBER, string)
    if not match or match[2] not in units:
        guess = near(match[2], units) if match else ""
        example = _EXAMPLES[dimension]
        raise ValueError(f"expected a number with a unit, such as {example}, got {string!r}{guess}")
    value = float(match[1]) * units[match[2]]
    if not _LEAST <= value <= _MOST:
        if value <= 0:
            raise ValueError(f"expected a positive number, got {string!r}")
        size = "small" if value < _LEAST else "large"
        raise ValueError(f"{string!r} is too {size} to mean anything")
    return value


class Scale:
    """How a column of SI numbers is shown: divided by `factor`, with `unit` in the header.

    No smaller number than `least` looks well in it.
    """

    def __init__(self, factor: float, unit: str, least: float | None = None) -> None:
        self.factor = factor
        self.unit = unit
        self.least = factor / 10 if least is None else least


_DAY = 86_400


_SHOWN: dict[str, list[Scale]] = {
    "s": [Scale(1, "s"), Scale(1e-3, "ms"), Scale(1e-6, "us")],
    "duration": [Scale(_DAY, "d", 10 * _DAY), Scale(3600, "h"), Scale(60, "min"), Scale(1, "s")],
    "bytes": [Scale(2**30, "GiB"), Scale(2**20, "MiB"), Scale(2**10, "KiB"), Scale(1, "B")],
    "FLOP": [Scale(1e12, "TFLOP"), Scale(1e9, "GFLOP"), Scale(1e6, "MFLOP"), Scale(1, "FLOP")],
    "FLOP of a sample": [Scale(1e9, "GFLOP"), Scale(1e6, "MFLOP"), Scale(1, "FLOP")],
    "FLOP of a run": [Scale(1e18, "EFLOP"), Scale(1e15, "PFLOP"), Scale(1e12, "TFLOP")],
    "FLOP/s": [Scale(1e12, "TFLOP/s"), Scale(1e9, "GFLOP/s")],
    "bytes/s": [Scale(1e9, "GB/s"), Scale(1e6, "MB/s")],
    "number": [Scale(1e9, "billions"), Scale(1e6, "millions"), Scale(1, "")],
    "network": [Scale(1e9 / 8, "Gbit/s"), Scale(1e6 / 8, "Mbit/s")],
    "Hz": [Scale(1e9, "GHz"), Scale(1e6, "MHz")],
    "W": [Scale(1, "W")],
    "J": [Scale(1e9, "GJ"), Scale(1e6, "MJ"), Scale(1e3, "kJ"), Scale(1, "J"), Scale(1e-3, "mJ")],
}


def scale_for(columns: Iterable[Iterable[float]], dimension: str) -> Scale:
    """Return one scale for several columns: the largest in which none looks small.

    The least of the columns' medians is to be a tenth or more (ten days or more, in days);
    what is less than a millionth of the largest does not count.
    """
    scales = _SHOWN[dimension]
    sizes = (sorted(abs(value) for value in values if value) for values in columns)
    medians = [column[len(column) // 2] for column in sizes if column]
    if not medians:
        return scales[min(1, len(scales) - 1)]
    least = min(median for median in medians if median >= max(medians) / 1e6)
    return next((scale for scale in scales if least >= scale.least), scales[-1])
