"""How far predictions are from measurements: statistics of relative errors of times.

The error of a case is (predicted - measured) / measured, of seconds: a rate that was measured has
been turned into the time of what it counts. Percentiles interpolate between the two nearest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from paleo.core.attributes import attributes
from paleo.core.frozen import dataclass
from paleo.core.quantity import Array, np
from paleo.measure.validate.cases import Cases


@dataclass(frozen=True)
class Statistics:
    """Of absolute errors the median, the mean and the 90th percentile; of signed ones the median.

    All are shares (0.1 is 10 %). `worst` is the place of the largest absolute error among the
    cases, and `worst_error` that error with its sign. With no cases they are None.
    """

    count: int
    median: float | None = None
    mean: float | None = None
    bias: float | None = None
    p90: float | None = None
    worst: int | None = None
    worst_error: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        return {
            "count": self.count,
            **attributes(self, "median", "mean", unit="error"),
            "bias": self.bias,
            "p90_error": self.p90,
            "worst_error": self.worst_error,
        }


def statistics(predicted: Array, measured: Array) -> Statistics:
    """Return the statistics of predictions, of which NaN are left out."""
    known = np.isfinite(predicted)
    if not known.any():
        return Statistics(0)
    errors = predicted[known] / measured[known] - 1
    sizes = np.abs(errors)
    worst = int(sizes.argmax())
    return Statistics(
        int(known.sum()),
        float(np.median(sizes)),
        float(sizes.mean()),
        float(np.median(errors)),
        float(np.percentile(sizes, 90)),
        int(known.nonzero()[0][worst]),
        float(errors[worst]),
    )


@dataclass(frozen=True)
class Group:
    """The cases that agree in some labels, and one cost model's errors there.

    `worst_id` and `worst_shape` say which case is the worst.
    """

    cost_model: str
    labels: dict[str, str]
    statistics: Statistics
    worst_id: str = ""
    worst_shape: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        return {
            "cost_model": self.cost_model,
            **self.labels,
            **self.statistics.to_dict(),
            **attributes(self, "worst_id", "worst_shape"),
        }


def grouped(
    cases: Cases, predicted: Array, keys: Sequence[str], cost_model: str
) -> Iterator[Group]:
    """Yield a group for every combination of labels under `keys`, sorted; one without keys."""
    for labels, places in _groups(cases, keys):
        found = statistics(predicted[places], cases.measured[places])
        if found.worst is None:
            yield Group(cost_model, labels, found)
            continue
        worst = int(places[found.worst])
        yield Group(cost_model, labels, found, str(cases.ids[worst]), cases.describe(worst))


def _groups(cases: Cases, keys: Sequence[str]) -> Iterator[tuple[dict[str, str], Array]]:
    if not keys:
        yield {}, np.arange(len(cases))
        return
    members: dict[tuple[str, ...], list[int]] = {}
    columns = (cases.labels[key].tolist() for key in keys)
    for place, values in enumerate(zip(*columns, strict=True)):
        members.setdefault(values, []).append(place)
    for values in sorted(members):
        yield dict(zip(keys, values, strict=True)), np.array(members[values])
