"""Validation: files of measurements and operator tables in, errors by group out."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from paleo.core.attributes import attributes
from paleo.core.checks import listed
from paleo.core.errors import Mistakes, PaleoError, SettingError, near_or_known
from paleo.core.frozen import dataclass
from paleo.core.quantity import Array, Quantity
from paleo.core.results import Result
from paleo.costs import CostModel, find_cost_model
from paleo.measure.validate.cases import (
    KEYS,
    Cases,
    Unpredicted,
    cases_of,
    join,
    price,
    unpredicted_rows,
)
from paleo.measure.validate.measured import read_measurements
from paleo.measure.validate.statistics import Group, grouped
from paleo.measure.validate.tables import Selection, operator_cases

#: What groups agree in unless told otherwise.
BY = ("source", "stratum")


@dataclass(frozen=True, eq=False)
class Report(Result):
    """What predictions are worth on measurements.

    `predicted` has seconds by cost model, one a case, NaN where the model has none; `groups` are
    sorted by labels, and each has an entry for every cost model. `totals` has one for each model
    over all cases.
    """

    cases: Cases
    cost_models: tuple[str, ...]
    by: tuple[str, ...]
    predicted: Mapping[str, Array]
    groups: tuple[Group, ...]
    totals: tuple[Group, ...]
    unpredicted: tuple[Unpredicted, ...]

    @property
    def unpredicted_count(self) -> int:
        """Rows that no cost model predicts."""
        return sum(each.count for each in self.unpredicted if not each.cost_model)

    def rows(self) -> list[dict[str, Any]]:
        """Return each case with its labels and predictions, in seconds."""
        columns = {key: self.cases.labels[key].tolist() for key in KEYS}
        measured = self.cases.measured.tolist()
        predicted = {name: self.predicted[name].tolist() for name in self.cost_models}
        found = []
        shapes = self.cases.shapes()
        for place, row_id in enumerate(self.cases.ids.tolist()):
            row = {"id": str(row_id)} | {key: values[place] for key, values in columns.items()}
            row |= {"shape": shapes[place], "measured_s": measured[place]}
            for name in self.cost_models:
                seconds = predicted[name][place]
                known = seconds == seconds
                row[f"{name}_s"] = seconds if known else None
                row[f"{name}_error"] = seconds / measured[place] - 1 if known else None
            found.append(row)
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        return {
            **attributes(self, "cost_models", "by"),
            "predicted": len(self.cases),
            "not_predicted": self.unpredicted_count,
            **attributes(self, "groups", "totals", "unpredicted"),
        }


def validate(
    files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
    operators: str | os.PathLike[str] | None = None,
    cost_models: str | CostModel | Sequence[str | CostModel] = ("tiled",),
    *,
    by: str | Sequence[str] = BY,
    selection: Selection | None = None,
    served: str | os.PathLike[str] | None = None,
    constants: Mapping[str, Quantity] | None = None,
) -> Report:
    """Compare predictions with measurements.

    `files` are CSV files of measurements, `operators` a place of operator tables, of which
    `selection` picks some, `served` a place of a table of served points. Every one of
    `cost_models` predicts every case; the groups agree in the labels `by` (KEYS). `constants`
    replaces constants of the cost models. Raises a PaleoError with every mistake in files and
    settings.
    """
    mistakes = Mistakes()
    many = mistakes.check(listed, "files", files, str | os.PathLike) if files else []
    models = mistakes.check(listed, "cost_models", cost_models, str | CostModel) or []
    found_models = mistakes.check_all(find_cost_model, models)
    keys = mistakes.check(listed, "by", by, str) if by else []
    for key in keys or []:
        if key not in KEYS:
            mistakes.add(f"by: unknown label {key!r}{near_or_known(key, KEYS)}")
    if not files and operators is None and served is None:
        mistakes.add("nothing to validate: no files, no operator tables and no served points")
    read = mistakes.check_all(read_measurements, many or [])
    places = [] if operators is None else [operators]
    tables = mistakes.check_all(lambda place: operator_cases(place, selection), places)
    if served is not None:
        from paleo.measure.validate.served import served_cases  # and what serving needs

        tables += mistakes.check_all(served_cases, [served])
    mistakes.raise_as(PaleoError)

    cases = join([cases_of(chain(*read)), *tables])
    by_keys = tuple(keys or ())
    unpredicted = [*cases.unpredicted]
    predicted: dict[str, Array] = {}
    groups: list[Group] = []
    totals: list[Group] = []
    for model in found_models:
        if model.name in predicted:
            raise SettingError(f"cost_models: {model.name} is there twice")
        predicted[model.name], reasons = price(cases, model, constants or {})
        unpredicted += unpredicted_rows(reasons, cost_model=model.name)
        groups += grouped(cases, predicted[model.name], by_keys, model.name)
        totals += grouped(cases, predicted[model.name], (), model.name)
    order = list(predicted)
    groups.sort(key=lambda group: (*group.labels.values(), order.index(group.cost_model)))
    unpredicted.sort(key=lambda each: (each.cost_model, each.source, -each.count, each.reason))
    return Report(
        cases, tuple(predicted), by_keys, predicted, tuple(groups), tuple(totals),
        tuple(unpredicted),
    )  # fmt: skip
