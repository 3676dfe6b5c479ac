"""Error bands that hold of sources left out: pooling, widening and backing off, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from paleo.costs.error_bands import NET, TRAINING, UNKNOWN, Like
from paleo.measure.validate.alike import FEWEST_ALONE, FEWEST_ROWS, Rows, learned, left_out
from paleo.measure.validate.bands import band, pooled, weights_of

#: Evenly spaced logarithms: of 101, the middle 80 % and both ends of it are those from -8 to 8.
EVEN = np.linspace(-10, 10, 101) / 100


def rows(groups: dict[str, tuple[Like, np.ndarray]]) -> Rows:
    """Return rows of sources, each with what it is like and its logarithms."""
    likes = tuple(dict.fromkeys(like for like, _ in groups.values()))
    names = np.concatenate([[name] * len(logs) for name, (_, logs) in groups.items()])
    which = np.concatenate(
        [np.full(len(logs), likes.index(like)) for like, logs in groups.values()]
    )
    logs = np.concatenate([logs for _, logs in groups.values()])
    return Rows(logs, likes, which, names, names)


def test_of_one_group_the_middle_is_that_of_order_statistics() -> None:
    generator = np.random.default_rng(0)
    for count in (9, 10, 19, 20, 99, 101, 500):
        logs = generator.normal(size=count)
        low, high = pooled(logs, np.full(count, "one"))
        same = band(np.exp(logs))
        assert (math.exp(low), math.exp(high)) == pytest.approx((same.low, same.high))
    # floor(9 x 0.1) rows are outside of an end: none.
    assert pooled(EVEN[:8], np.full(8, "one")) == (-math.inf, math.inf)


def test_each_group_counts_the_same_from_so_many_rows_on() -> None:
    weights = weights_of(np.repeat(["few", "many"], [30, 300]))
    assert weights[0] == 1
    assert weights[-1] == pytest.approx(0.1)
    assert weights_of(np.repeat(["few", "many"], [30, 300]), 300).tolist() == [1.0] * 330
    # A fifth of each of two groups is a tenth of both together: 1,000 rows around 0 do not outweigh
    # 100 around 1, so that the ends are the lower fifth of the one and the upper one of the other.
    near, far = np.linspace(-0.1, 0.1, 1000), 1 + np.linspace(-0.1, 0.1, 100)
    low, high = pooled(np.concatenate([near, far]), np.repeat(["near", "far"], [1000, 100]))
    assert low == pytest.approx(-0.06, abs=0.002)
    assert high == pytest.approx(1.06, abs=0.002)


def test_bands_are_widened_until_sources_left_out_are_inside() -> None:
    """Four sources with the same errors, each shifted by -3, -1, 1, 3 times as much."""
    like = Like("gemm", bits=16, software="", architecture="Ada")
    shift = 0.1
    found = rows({f"{k}": (like, EVEN + k * shift) for k in (-3, -1, 1, 3)})
    plain = pooled(found.logs, found.groups)
    wide = learned(found)[like]
    assert math.log(wide.low) < plain[0]
    assert math.log(wide.high) > plain[1]
    assert math.log(wide.low * wide.high) == pytest.approx(sum(plain))
    assert (wide.count, wide.sources) == (404, 4)
    # Nothing is widened where every source says the same, and no band is made narrower.
    same = rows({f"{k}": (like, EVEN) for k in range(4)})
    low, high = pooled(same.logs, same.groups)
    one = learned(same)[like]
    assert (math.log(one.low), math.log(one.high)) == pytest.approx((low, high), abs=0.003)


def test_of_sources_with_the_same_errors_81_of_99_rows_are_inside() -> None:
    """By hand: errors of -49 to 49 in each of four sources.

    Of the three others together, 297 rows, floor(298 x 0.1) = 29 are outside of an end or on it:
    each error is there three times, so the 29th is the 10th error, -40. The quantile of the scores
    is 1: of 297 distances, in units of 40, 3 x 79 are below it, which is less than 80 %. Inside are
    the errors from -40 to 40.
    """
    like = Like("gemm", bits=16, software="", architecture="Ada")
    errors = np.arange(-49, 50) / 1000
    found = rows({f"{k}": (like, errors) for k in range(4)})
    inside = left_out(found)
    assert inside.sum() == 4 * 81
    assert (inside == (np.abs(found.logs) <= 0.0401)).all()
    shipped = learned(found)[like]
    # Of all four the 39th of 396 is the 10th error, too.
    assert math.log(shipped.low) == pytest.approx(-0.04)
    assert math.log(shipped.high) == pytest.approx(0.04)


def test_of_many_sources_80_percent_of_the_rows_of_a_new_one_are_inside() -> None:
    generator = np.random.default_rng(3)
    like = Like("gemm", bits=16, software="", architecture="Ada")
    shifts = generator.normal(0, 0.1, 40)
    found = rows(
        {f"{i}": (like, shift + generator.normal(0, 0.05, 50)) for i, shift in enumerate(shifts)}
    )
    inside = left_out(found)
    assert np.isfinite(inside).all()
    assert 0.77 < inside.mean() < 0.83
    # In the middle 80 % of its own rows alone, of others' about half would be.
    alone = band(np.exp(found.logs[found.groups == "0"]))
    others = np.exp(found.logs[found.groups != "0"])
    assert ((others >= alone.low) & (others <= alone.high)).mean() < 0.6


def test_a_source_left_out_is_tried_on_the_next_wider_group() -> None:
    ada = Like("gemm", bits=16, software="", architecture="Ada")
    hopper = Like("gemm", bits=16, software="", architecture="Hopper")
    found = rows({"one": (ada, EVEN), "two": (hopper, EVEN), "three": (hopper, EVEN)})
    known = learned(found)
    everywhere = Like("gemm", bits=16, software="")
    assert known[everywhere].count == 303
    assert known[ada].sources == 1
    inside = left_out(found)
    # All have the same errors: of 101, ten are below the 11th, as many above, and 81 inside.
    for name in ("one", "two", "three"):
        assert inside[found.groups == name].mean() == pytest.approx(0.8, abs=0.03)


def test_few_rows_make_no_band_and_what_is_apart_is_not_pooled() -> None:
    ada = Like(NET, TRAINING, 16, "", "Ada")
    few = rows({"one": (ada, EVEN[: FEWEST_ALONE - 1])})
    assert learned(few) == {}
    half = FEWEST_ROWS // 2
    assert ada in learned(rows({"one": (ada, EVEN[:half]), "two": (ada, EVEN[-half:])}))
    unknown = Like(NET, TRAINING, 16, "", UNKNOWN)
    cpu = Like(NET, TRAINING, 16, "", "Zen")
    found = rows({"one": (ada, EVEN), "two": (unknown, EVEN + 1), "three": (cpu, EVEN - 1)})
    assert learned(found)[Like(NET)].count == 202
    apart = Rows(
        found.logs, found.likes, found.which, found.groups, found.sources, frozenset({"Zen"})
    )
    known = learned(apart)
    assert known[Like(NET)].count == known[ada].count == 101
    assert known[Like(NET, architecture=UNKNOWN)].low > 1 > known[cpu].high
    # Neither is there anything to try them on.
    assert np.isnan(left_out(apart)).all()
