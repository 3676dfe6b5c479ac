"""How unequally experts are chosen, and what waits for the last of many devices, by hand."""

from __future__ import annotations

import pytest

from paleo.step.serving.program import Experts
from paleo.step.serving.shares import above, loads_of

#: 8 of 64 experts: -log(1 - 1/8) = 0.13353 of an expert's rows are expected of a token.
OF = Experts(64, 8, 4096, 1024, is_gated=True)


def test_the_largest_of_normal_numbers() -> None:
    assert above(1) == 0.0
    # Blom: the quantile of (8 - 3/8) / (8 + 1/4) = 0.92424 is 1.434 in tables of the normal.
    assert above(8) == pytest.approx(1.434, abs=1e-3)
    assert above(2) < above(4) < above(8)


def test_experts_of_one_device_are_chosen_unequally() -> None:
    # 16 tokens: a share 1 - 1 / (1 + 16 x 0.13353) = 0.68117 of 64 has any of 16 x 8 rows.
    (busy, rows), (idle, none) = loads_of(OF, 16, 64)
    assert busy == pytest.approx(64 * 0.68117, rel=1e-4)
    assert busy * rows == pytest.approx(16 * 8)
    assert (busy + idle, none) == (pytest.approx(64), 0)


def test_one_token_has_as_many_experts_as_it_chooses() -> None:
    (busy, rows), _ = loads_of(OF, 1, 64)
    assert (busy, rows) == (pytest.approx(8), pytest.approx(1))


def test_devices_wait_for_that_with_the_most_rows() -> None:
    # Eight experts a device, a mean of 2 rows each, of variance 2 + 2^2: 16 + 1.434 sqrt(8 x 6).
    (busy, rows), _ = loads_of(OF, 16, 8)
    assert busy * rows == pytest.approx(16 + 1.434 * (8 * 6) ** 0.5, rel=1e-3)
    # 0.68117 of eight, and 1.434 deviations of sqrt(8 x 0.68117 x 0.31883).
    assert busy == pytest.approx(8 * 0.68117 + 1.434 * (8 * 0.68117 * 0.31883) ** 0.5, rel=1e-3)


def test_all_experts_are_busy_where_all_are_chosen() -> None:
    everything = Experts(4, 4, 64, 64, is_gated=True)
    ((busy, rows), _) = loads_of(everything, 10, 4)
    assert (busy, rows) == (pytest.approx(4, rel=1e-6), pytest.approx(10, rel=1e-6))
