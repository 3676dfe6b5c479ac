"""The error band of memory: what the page of measured peaks says, and where it holds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from paleo.step.memory import footprint
from paleo.step.memory.footprint import MEASURED


def test_the_band_of_memory_is_what_the_measured_rows_say() -> None:
    page = (Path(__file__).parents[2] / "docs" / "memory.md").read_text("utf-8")
    rows = page.partition("Training with plain gradient descent")[2].partition("Mean error")[0]
    found = re.findall(
        r"^\| \S+ \| \d+ \| ([\d,.]+) \| [\d,.]+ \| \S+ % \| ([\d,.]+) \|", rows, re.MULTILINE
    )
    ratios = [
        float(allocated.replace(",", "")) / float(predicted.replace(",", ""))
        for predicted, allocated in found
    ]
    assert len(ratios) == MEASURED.count
    inside = sum(MEASURED.low <= ratio <= MEASURED.high for ratio in ratios)
    assert inside / len(ratios) == pytest.approx(MEASURED.coverage, abs=0.03)
    assert footprint("lenet5", 16).peak_ends == (
        pytest.approx(MEASURED.low * footprint("lenet5", 16).peak),
        pytest.approx(MEASURED.high * footprint("lenet5", 16).peak),
    )
    # Of neither was anything measured.
    assert footprint("lenet5", 16, training=False).band is None
    assert footprint("lenet5", 16, workspace=2**20).band is None
