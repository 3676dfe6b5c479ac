"""How far predictions are from measurements: files of them, operator tables, fits, error bands."""

from __future__ import annotations

from paleo.validate.cases import KEYS, Cases, Unpredicted, cases_of, join, predict
from paleo.validate.measured import Measurement, read_measurements
from paleo.validate.report import Report, validate
from paleo.validate.statistics import Group, Statistics, grouped, statistics
from paleo.validate.tables import Selection, operator_cases

__all__ = [
    "KEYS",
    "Cases",
    "Group",
    "Measurement",
    "Report",
    "Selection",
    "Statistics",
    "Unpredicted",
    "cases_of",
    "grouped",
    "join",
    "operator_cases",
    "predict",
    "read_measurements",
    "statistics",
    "validate",
]
