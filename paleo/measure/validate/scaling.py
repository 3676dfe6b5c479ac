"""How measured steps scale: steps of several devices beside those of the fewest that did the same.

Two predictions are made of a step on many devices: with nothing measured, and given the measured
step of a base, the system of the fewest devices of the same kind. Given that, all that is computed
takes as many times as long as predicted as on the base; what is exchanged is as predicted.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator

from paleo.core.errors import PaleoError
from paleo.core.frozen import dataclass
from paleo.core.quantity import Quantity
from paleo.costs import CostModel, find_cost_model
from paleo.measure.validate.cases import Case, case_of
from paleo.measure.validate.measured import Measurement
from paleo.measure.validate.nets import NetCase, Remembering
from paleo.measure.validate.spellings import UnmappedError

#: How far a factor is looked for that makes a base's prediction what was measured.
_STEPS, _CLOSE = 40, 1e-6


@dataclass(frozen=True)
class Scaled:
    """A measured step of several devices: seconds measured, and predicted in both ways.

    `given` is None of rows without a base, whose id is `base_id` and which has `base_workers`.
    """

    row: Measurement
    case: Case
    measured: float
    alone: float
    given: float | None = None
    base_id: str = ""
    base_workers: int = 0


def same_table(row: Measurement) -> Hashable:
    """Return what rows of one table have in common that differ in their devices' number alone."""
    said = row.notes if row.source_id == "dlperf" else ""
    return (
        row.source_id, row.source, said, row.network, row.device, row.precision, row.framework,
        row.library_version, row.batch_per_device, row.seq_len, row.direction, row.quantity.name,
    )  # fmt: skip


def same_submission(row: Measurement) -> Hashable:
    """Return what systems have in common of one submitter, round and framework of MLPerf."""
    submitter = row.source.partition(" ")[2].partition("/")[0]
    return (row.source_id, submitter, row.network, row.device, row.framework, row.precision)


def scaled(
    rows: Iterable[Measurement],
    cost_model: str | CostModel = "tiled",
    alike: Callable[[Measurement], Hashable] = same_table,
    most: int | None = None,
) -> Iterator[Scaled]:
    """Yield the training steps of several devices, `most` at the most, with both predictions.

    A base is the row of the fewest devices among those `alike`; rows of as many are no cases.
    Rows that cannot be predicted are left out.
    """
    pricing = Remembering(find_cost_model(cost_model))
    groups: dict[Hashable, list[tuple[Measurement, Case]]] = {}
    for row in rows:
        try:
            case = case_of(row)
        except (UnmappedError, PaleoError):
            continue
        if isinstance(case.what, NetCase) and "update" in case.what.parts:
            groups.setdefault(alike(row), []).append((row, case))
    for group in groups.values():
        group.sort(key=lambda pair: pair[0].n_devices)
        base_row, base = group[0]
        factor: float | None = None
        for row, case in group:
            if row.n_devices == 1 or (most and row.n_devices > most):
                continue
            alone = float(_seconds(case, pricing))
            if row.n_devices == base_row.n_devices:
                yield Scaled(row, case, case.seconds, alone)
                continue
            factor = factor or _factor(base, pricing)
            given = float(_seconds(case, pricing, factor))
            yield Scaled(row, case, case.seconds, alone, given, base_row.row_id, base_row.n_devices)


def _seconds(case: Case, pricing: Remembering, factor: float = 1.0) -> Quantity:
    assert isinstance(case.what, NetCase)
    return case.what.seconds(case.device, case.dtype, pricing, dict(case.stated), factor)


def _factor(base: Case, pricing: Remembering) -> float:
    """Return how many times as long computation of a base takes as predicted, by its measured time.

    What it exchanges is as predicted: by secants, since exchanges hide behind computation.
    """
    factor = base.seconds / float(_seconds(base, pricing))
    for _ in range(_STEPS):
        found = float(_seconds(base, pricing, factor))
        if abs(found / base.seconds - 1) < _CLOSE:
            break
        factor *= base.seconds / found
    return factor
