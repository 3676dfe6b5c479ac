"""Numbers in sentences: in the reader's units, with their error band, to the digits it supports."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from paleo.core.attributes import Ends, at_ends
from paleo.core.units import scale_for
from paleo.costs.error_bands import MOST_DIGITS, Band
from paleo.net.spec import NetSpec
from paleo.studies.datasets import takes_images
from paleo.views.table import in_unit, significant

if TYPE_CHECKING:
    from paleo.studies.fitting import Remedy

#: By less than this share nothing is said to take longer.
LONGER = 0.005

#: Of what is long: from how many seconds on it is said in a unit, and how long that is.
_LONG = ((72 * 3600, 24 * 3600, "days"), (2 * 3600, 3600, "h"), (2 * 60, 60, "min"))
#: The most digits that tell both ends of a band apart.
_MOST_APART = 5
#: What is said where errors like those of a prediction were never measured.
NO_BAND = "no error band is known for these settings"

_E = TypeVar("_E")


def rounded(value: float, digits: int) -> str:
    """Return a number with so many significant digits, without an exponent."""
    if not value or not math.isfinite(value):
        return f"{value:g}"
    return significant(value, digits)


def duration(seconds: float, digits: int = MOST_DIGITS, like: float | None = None) -> str:
    """Return a time in the unit that suits it, up to days; or that suits a time `like` this."""
    whole = seconds if like is None else like
    for least, length, unit in _LONG:
        if whole >= least:
            return f"{rounded(seconds / length, digits)} {unit}"
    # A time that stands alone is well said in the largest unit of which it is one or more.
    scale = scale_for([[whole / 10]], "s")
    return f"{rounded(seconds / scale.factor, digits)} {scale.unit}"


def told_apart(ends: Ends[_E], say: Callable[[_E, int], str], digits: int) -> Ends[str]:
    """Return texts of both ends of a band, in more digits if they are the same in so many.

    They stay the same if so many as _MOST_APART do not tell them apart.
    """
    low, high = at_ends(ends, lambda end: say(end, digits))
    if low is None or low != high or digits >= _MOST_APART:
        return low, high
    return told_apart(ends, say, digits + 1)


def durations(ends: Ends[float], digits: int, like: float) -> Ends[str]:
    """Return both ends of a time `like` this, to as many digits as tell them apart."""
    return told_apart(ends, lambda end, digits: duration(end, digits, like), digits)


def amounts(ends: Ends[float], digits: int) -> Ends[str]:
    """Return both ends of a number, to as many digits as tell them apart."""
    return told_apart(ends, rounded, digits)


def percent(share: float) -> str:
    """Return a share in percent: to a tenth near the whole, where that says most."""
    value = 100 * share
    return f"{value:.1f} %" if 95 <= value < 99.95 else f"{value:.0f} %"


def spread(ends: Ends[str], band: Band | None = None) -> str:
    """Return both ends of a band in brackets, behind what they are of; "" if none is known.

    With the `band` it is said what it means, as where it is first spoken of.
    """
    low, high = _in_one_unit(ends)
    if low is None and high is None:
        return ""
    if low is None or high is None:
        said = f"at least {low}" if high is None else f"at most {high}"
    else:
        said = f"about {high}" if low == high else f"{low} to {high}"
    meant = f"{100 * band.coverage:.0f} % of measured cases: " if band else ""
    return f" ({meant}{said})"


def _in_one_unit(ends: Ends[str]) -> Ends[str]:
    """Return both ends, the unit only behind the second where it is that of both."""
    low, high = ends
    if low is None or high is None or low == high or " " not in high:
        return ends
    return low.removesuffix(f" {high.rpartition(' ')[2]}"), high


def band_said(
    of: str, band: Band | None, seconds: float | None = None, digits: int = MOST_DIGITS
) -> str:
    """Return in a line what measured cases took, or that nothing is known of it.

    It is said of cases of so many `seconds`, or as factors of any.
    """
    if band is None:
        return NO_BAND
    return f"error band of {of}: {_band_said(band, seconds, digits)}"


def _band_said(band: Band, seconds: float | None, digits: int) -> str:
    if seconds is None:
        return band.said
    around: Ends[Any] = band.around(seconds)
    return band.says(*_in_one_unit(durations(around, digits, seconds)))


def samples_of(net: NetSpec) -> str:
    """Return what a net takes: "images", or "samples" of anything else."""
    return "images" if takes_images(net) else "samples"


def device_named(name: str) -> str:
    """Return a device's name as people write it: "H100 SXM"."""
    return name.replace("_", " ")


def which(one: Any, every: Sequence[Any], *names: str) -> str:
    """Return the values in which one of several differs under these names, in brackets."""
    differing = [name for name in names if len({getattr(each, name) for each in every}) > 1]
    if "cluster" in differing:  # which has networks of its own
        differing = [name for name in differing if name != "network"]
    values = [getattr(one, name) for name in differing]
    said = (f"batches of {value:,}" if isinstance(value, int) else str(value) for value in values)
    return f" ({', '.join(said)})" if values else ""


def misfits(count: int, every: int) -> list[str]:
    """Return the sentence that so many of several do not fit; none if all do."""
    verb = "does" if count == 1 else "do"
    return [f"{count:,} of {every:,} {verb} not fit in memory."] if count else []


def remedy_said(found: Remedy) -> str:
    """Return what would make a step on a mesh fit, and what that costs."""
    cost = f"{percent(found.longer)} longer" if found.longer >= LONGER else "no longer"
    memory = in_unit(float(found.memory), "bytes", 3)
    return f"With {found.options} it needs {memory} and takes {cost}."


def used(num_bytes: float, capacity: int | None) -> str:
    """Return memory, and of how much if that is known: "10.7 of 80 GiB"."""
    if capacity is None:
        return in_unit(num_bytes, "bytes", 3)
    scale = scale_for([[capacity]], "bytes")
    return f"{rounded(num_bytes / scale.factor, 3)} of {in_unit(capacity, 'bytes')}"


def listed(words: Sequence[str], last: str = "and") -> str:
    """Return words as a sentence lists them."""
    return f" {last} ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def utilization_said(*, with_hfu: bool) -> str:
    """Return what is counted in MFU, and beside it in HFU: the convention of every command."""
    again = "; HFU that, too" if with_hfu else ""
    return f"MFU counts attention in full, causal or not, and nothing that is computed again{again}"
