"""The expected slowest of synchronous workers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from paleo.core.errors import PaleoError
from paleo.step.parallelism.jitter import expected_slowest


def test_few_workers_have_closed_forms() -> None:
    # E of the largest of 2, 3, 4 and 5 normal draws (David, Nagaraja, Order Statistics, 3.2).
    root = math.sqrt(math.pi)
    of_three = 3 / (2 * root)
    of_four = 3 / root * (1 / 2 + math.asin(1 / 3) / math.pi)
    of_five = 5 / (2 * root) * (1 / 2 + 3 / math.pi * math.asin(1 / 3))
    known = {1: 0.0, 2: 1 / root, 3: of_three, 4: of_four, 5: of_five}
    for workers, mean in known.items():
        assert expected_slowest(workers, 0.1) == pytest.approx(1 + 0.1 * mean, rel=1e-11)


@pytest.mark.parametrize("workers", [8, 64, 1024])
def test_draws_agree(workers: Any) -> None:
    # 400,000 draws' worth of steps; the mean of the largest is known to its standard error.
    rng = np.random.default_rng(19)
    steps = 3_200_000 // workers
    slowest = (1 + 0.05 * rng.standard_normal((steps, workers))).max(axis=1)
    error = slowest.std() / math.sqrt(steps)
    assert abs(expected_slowest(workers, 0.05) - slowest.mean()) < 4 * error
    assert error < 5e-4


def test_very_many_workers_follow_their_limit() -> None:
    # Largest of n: b + gamma / b, with b where n phi(b) = b (Gumbel's limit; slow to be reached).
    n = 10**9
    b = math.sqrt(2 * math.log(n))
    for _ in range(50):
        b = math.sqrt(2 * math.log(n / (b * math.sqrt(2 * math.pi))))
    assert expected_slowest(n, 1.0) - 1 == pytest.approx(b + 0.5772 / b, rel=5e-3)


def test_arrays_are_single_numbers_side_by_side() -> None:
    workers, jitter = np.array([[1, 8], [64, 8]]), np.array([0.0, 0.1])
    found: Any = expected_slowest(workers, jitter)
    assert found.shape == (2, 2)
    for place in np.ndindex(2, 2):
        alone = expected_slowest(int(workers[place]), float(jitter[place[1]]))
        assert found[place] == alone
    of_eight: Any = expected_slowest(8, jitter)
    assert of_eight.tolist() == [1.0, expected_slowest(8, 0.1)]


@pytest.mark.parametrize("jitter", [-0.1, 1.5, math.nan, "much", None, np.array([0.1, 2.0])])
def test_what_is_no_jitter(jitter: Any) -> None:
    with pytest.raises(PaleoError, match=r"^jitter: expected a number from 0 to 1, got "):
        expected_slowest(8, jitter)


@pytest.mark.parametrize("workers", [0, 1.5, -3])
def test_what_is_no_number_of_workers(workers: Any) -> None:
    with pytest.raises(PaleoError, match=r"^workers: expected a whole number"):
        expected_slowest(workers, 0.1)
