"""What there is to say of a sweep: how many points can be, why others cannot, and the quickest.

It is added up part by part, so that it holds for any number of points.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from paleo.core.frozen import NamedTuple
from paleo.core.quantity import np
from paleo.studies.sweeps.evaluate import Part

#: So many of the reasons are said, and so many are told apart.
MOST_REASONS, _TOLD_APART = 3, 1000


class Tally(NamedTuple):
    """Of so many `points` those that are `valid`, and the reasons of others with their counts.

    `left_out` are those for which the condition does not hold. `best` is the number of the point
    with most samples a second that fits as far as that is known, None if there is none;
    `best_rate` are these samples.
    """

    points: int = 0
    valid: int = 0
    left_out: int = 0
    reasons: Mapping[str, int] = {}
    best: int | None = None
    best_rate: float = 0.0

    @classmethod
    def of(cls, part: Part) -> Tally:
        """Return the tally of a part."""
        valid = part.valid
        codes, counts = np.unique(part.why[part.why > 0], return_counts=True)
        reasons = {part.reasons[i]: int(count) for i, count in zip(codes, counts, strict=True)}
        can_be = valid & np.isfinite(part.columns["samples_per_s"])
        if "fits" in part.columns:
            can_be &= part.columns["fits"] != 0  # true for what is not known
        rate = np.where(can_be, part.columns["samples_per_s"], -np.inf)
        place = int(np.argmax(rate))
        found = bool(can_be[place])
        return cls(
            part.size,
            int(valid.sum()),
            int((~part.counted).sum()),
            reasons,
            part.first + place if found else None,
            float(rate[place]) if found else 0.0,
        )

    @classmethod
    def of_dict(cls, values: Mapping[str, Any]) -> Tally:
        """Return the tally that `to_dict` wrote."""
        return cls(*(values[name] for name in cls._fields))

    def to_dict(self) -> dict[str, Any]:
        """Return the values by their names."""
        return {**self._asdict(), "reasons": dict(self.reasons)}

    def __add__(self, other: Any) -> Tally:
        """Return the tally of the points of both."""
        better = other if self.best is None or other.best_rate > self.best_rate else self
        return Tally(
            self.points + other.points,
            self.valid + other.valid,
            self.left_out + other.left_out,
            dict((Counter(self.reasons) + Counter(other.reasons)).most_common(_TOLD_APART)),
            better.best,
            better.best_rate,
        )

    def most_frequent(self, count: int = MOST_REASONS) -> list[tuple[str, int]]:
        """Return the most frequent reasons, each with how many points have it."""
        return Counter(self.reasons).most_common(count)


def added(tallies: Iterable[Tally]) -> Tally:
    """Return the tally of all points of several."""
    return sum(tallies, Tally())
