"""Where the ticks of an axis stand, and what they say."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from paleo.core.frozen import NamedTuple
from paleo.views.charts.numbers import plain
from paleo.views.plots.texts import Ruler, apart

#: More numbers along an axis help nobody; from fewer nobody sees how a logarithmic one goes.
_MOST, _LEAST = 8, 3
#: Inches between numbers side by side, and above each other.
_BESIDE, _ABOVE = 0.1, 0.06


class Ticks(NamedTuple):
    """Places on an axis, in its unit, and their texts."""

    places: Sequence[float]
    texts: list[str]


class Axis(NamedTuple):
    """An axis from `low` to `high`, as in a chart."""

    low: float
    high: float
    is_log: bool

    @classmethod
    def around(
        cls, values: Sequence[float], is_log: bool, *, from_zero: bool = False, margin: float = 0.05
    ) -> Axis:
        """Return the axis that holds these values with a margin, a share of its length."""
        known = [value for value in values if value > 0 or not is_log]
        low, high = min(known, default=1.0), max(known, default=1.0)
        if is_log:
            if low == high:
                low, high = low / 2, high * 2
            more = (high / low) ** margin
            return cls(low / more, high * more, True)
        if from_zero:
            low, high = min(0.0, low), max(0.0, high)
        if low == high:
            low, high = (0.0, 1.0) if not low else (low - abs(low) / 2, high + abs(high) / 2)
        more = (high - low) * margin
        return cls(low - more * (low != 0 or not from_zero), high + more * (high != 0), False)

    def share(self, value: float) -> float:
        """Return where a value is, 0 at the low end, 1 at the high one."""
        if self.is_log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(
        self,
        ruler: Ruler,
        size: float,
        length: float,
        values: Sequence[float] = (),
        *,
        upright: bool = False,
    ) -> Ticks:
        """Return ticks for numbers side by side or `upright`, the most of those that leave gaps.

        `length` is in inches. They are of `values`, if there are any and not too many; of whole
        values they are whole.
        """
        own = sorted(set(values))
        if len(own) == 1:
            return Ticks(own, [plain(own[0])])
        are_whole = bool(own) and all(float(value).is_integer() for value in own)
        least = min(_LEAST if self.is_log else 2, len(own) or _LEAST)
        found = Ticks([], [])
        for places in self._candidates(own):
            inside = [
                place
                for place in places
                if self.low <= place <= self.high and (not are_whole or place.is_integer())
            ]
            texts = [plain(place) for place in inside]
            at = [length * self.share(place) for place in inside]
            sizes = [ruler.height(size) if upright else ruler.width(text, size) for text in texts]
            if len(inside) > len(found.places) and apart(at, sizes, _ABOVE if upright else _BESIDE):
                found = Ticks(inside, texts)
                if len(inside) >= least:
                    return found
        return found

    def _candidates(self, own: Sequence[float]) -> Iterator[list[float]]:
        """Yield lists of places, of which earlier ones are better if there is room.

        The first are of `own` values, in order.
        """
        if 0 < len(own) <= 2 * _MOST:
            for step in (1, 2, 3, 4, 6, 8):
                yield list(own[::step])
        if self.is_log:
            yield from self._decades()
        for most in range(6, 0, -1):
            yield self._even(most)
        if self.is_log:  # at the ends and in the middle, whatever room the numbers take
            whole = self.high / self.low
            yield [float(f"{self.low * whole**share:.1e}") for share in (0.1, 0.5, 0.9)]

    def _decades(self) -> Iterator[list[float]]:
        first = math.floor(math.log10(self.low))
        last = math.ceil(math.log10(self.high))
        for digits in ((1, 2, 3, 5, 7), (1, 2, 5), (1, 3)):
            places = [digit * 10.0**power for power in range(first, last + 1) for digit in digits]
            inside = [place for place in places if self.low <= place <= self.high]
            if _LEAST <= len(inside) <= _MOST:
                yield inside
        powers = [10.0**power for power in range(first, last + 1)]
        inside = [place for place in powers if self.low <= place <= self.high]
        for step in range(1, len(inside)):
            for start in range(step):
                if _LEAST <= len(places := inside[start::step]) <= _MOST:
                    yield places

    def _even(self, most: int) -> list[float]:
        """Return multiples of a round number, no more than so many steps apart."""
        rough = (self.high - self.low) / most
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * (1 - 1e-9))
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [round(number * step, 12) for number in range(first, last + 1)]
