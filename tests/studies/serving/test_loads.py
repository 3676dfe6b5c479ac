from __future__ import annotations

import math

import numpy as np
import pytest

from paleo.core.errors import SettingError
from paleo.studies.serving.loads import (
    Fixed,
    Load,
    Lognormal,
    Uniform,
    closed_load,
    open_load,
)


def test_a_closed_load_has_clients_and_no_arrivals() -> None:
    load = closed_load(4, 10, 1000, 256, hit_rate=0.25)
    assert (len(load), load.concurrency, load.arrival, load.rate) == (10, 4, None, None)
    assert set(load.prompt) == {1000}
    assert set(load.output) == {256}
    assert set(load.cached) == {250}


def test_one_token_of_a_prompt_is_always_computed() -> None:
    load = closed_load(1, 3, Uniform(1, 3), 1, hit_rate=1)
    assert (load.cached == load.prompt - 1).all()


def test_the_same_seed_is_the_same_load_and_another_is_not() -> None:
    first, same, other = (
        open_load(3, 50, Lognormal(500, 1), Uniform(1, 99), seed=seed) for seed in (7, 7, 8)
    )
    for name in ("prompt", "output", "arrival"):
        assert (getattr(first, name) == getattr(same, name)).all()
        assert (getattr(first, name) != getattr(other, name)).any()


def test_lengths_are_the_same_at_another_rate() -> None:
    slow, quick = (open_load(rate, 50, Lognormal(500, 1), 9) for rate in (1, 4))
    assert (slow.prompt == quick.prompt).all()
    assert slow.arrival is not None
    assert quick.arrival is not None
    assert np.allclose(slow.arrival, 4 * quick.arrival)


@pytest.mark.parametrize("cv", [0, 0.5, 1, 2])
def test_times_between_requests_have_the_rate_and_the_variation(cv: float) -> None:
    load = open_load(10, 40_000, 1, 1, cv=cv)
    assert load.arrival is not None
    assert load.arrival[0] == 0
    between = np.diff(load.arrival)
    # The mean of n has a standard deviation of cv / sqrt(n) = 1 % of it at most; five of them.
    assert between.mean() == pytest.approx(0.1, rel=0.05)
    assert between.std() / between.mean() == pytest.approx(cv, abs=0.08)
    assert load.rate == pytest.approx(1 / between.mean())


def test_lognormal_lengths_have_mean_and_variation() -> None:
    drawn = Lognormal(1000, 0.5).draw(np.random.default_rng(0), 40_000)
    assert drawn.mean() == pytest.approx(1000, rel=0.02)
    assert drawn.std() / drawn.mean() == pytest.approx(0.5, rel=0.05)
    assert (Lognormal(1000, 0).draw(np.random.default_rng(0), 5) == 1000).all()
    capped = Lognormal(1000, 2, most=1500).draw(np.random.default_rng(0), 1000)
    assert (capped.min() >= 1, capped.max()) == (True, 1500)


def test_uniform_lengths_have_both_ends() -> None:
    drawn = Uniform(3, 5).draw(np.random.default_rng(0), 200)
    assert set(drawn) == {3, 4, 5}
    assert Uniform(3, 5).mean == 4
    assert Fixed(7).mean == 7


def test_a_load_at_another_rate_has_the_same_requests() -> None:
    ones = np.ones(3, np.int64)
    load = Load(ones, ones, ones, np.array([0.0, 1.0, 4.0]))
    assert load.rate == 0.5  # two intervals in four seconds
    quicker = load.at_rate(2)
    assert quicker.arrival is not None
    assert quicker.arrival.tolist() == [0, 0.25, 1]
    at_once = Load(ones, ones, ones, np.zeros(3))
    assert at_once.rate == math.inf
    for none in (at_once, closed_load(1, 1, 1, 1)):
        with pytest.raises(SettingError, match="no rate of its own"):
            none.at_rate(1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: closed_load(0, 1, 1, 1), "concurrency: expected 1 or more, got 0"),
        (lambda: closed_load(1, 0, 1, 1), "requests: expected 1 or more, got 0"),
        (lambda: closed_load(1, 10**8, 1, 1), "requests: at most 10000000 can be simulated"),
        (lambda: closed_load(1, 1, 0, 1), "prompt: expected 1 or more, got 0"),
        (lambda: closed_load(1, 1, 1, 0), "output: expected 1 or more, got 0"),
        (lambda: closed_load(1, 1, 1, 1, hit_rate=1.5), "hit_rate: expected a share from 0 to 1"),
        (lambda: open_load(0, 1, 1, 1), "rate: expected requests a second, above 0, got 0"),
        (lambda: open_load(math.inf, 1, 1, 1), "rate: expected requests a second, above 0"),
        (lambda: open_load(1, 1, 1, 1, cv=-1), "cv: expected a number of at least 0, got -1"),
        (lambda: Uniform(5, 4), "lengths: expected a range from 1 up, got 5 to 4"),
        (lambda: Lognormal(0, 1), "lengths: expected a mean of at least 1"),
    ],
)
def test_mistakes(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(SettingError, match=message):
        make()
