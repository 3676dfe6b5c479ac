"""How far predictions are from measurements: files of them, operator tables, fits, error bands."""

from __future__ import annotations

from paleo.measure.validate.cases import KEYS, Cases, Unpredicted, cases_of, join, predict
from paleo.measure.validate.measured import read_measurements
from paleo.measure.validate.report import Report, validate
from paleo.measure.validate.statistics import Group, Statistics, statistics
from paleo.measure.validate.tables import Selection, operator_cases

__all__ = [
    "KEYS",
    "Cases",
    "Group",
    "Report",
    "Selection",
    "Statistics",
    "Unpredicted",
    "cases_of",
    "join",
    "operator_cases",
    "predict",
    "read_measurements",
    "statistics",
    "validate",
]
