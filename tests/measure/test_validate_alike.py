"""Error bands that hold of sources left out: pooling, widening and backing off, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from paleo.costs.error_bands import NET, TRAINING, UNKNOWN, Like
from paleo.measure.validate.alike import (
    FEWEST_ALONE,
    FEWEST_ROWS,
    SHIFT,
    Rows,
    learned,
    left_out,
)
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
    # Where four say the same, 88 % of their rows are asked for: 89 of 101 are up to 0.088.
    one = learned(rows({f"{k}": (like, EVEN) for k in range(4)}))[like]
    end = 0.088 * half_of(4, 0.082) / half_of(3, 0.082)
    assert (math.log(one.low), math.log(one.high)) == pytest.approx((-end, end), abs=0.003)


def half_of(sources: int, half: float) -> float:
    """Return the half width of a band of so many sources, with what they may be off."""
    return math.hypot(half, SHIFT / math.sqrt(sources))


def test_of_sources_with_the_same_errors_the_widening_is_that_of_their_scores() -> None:
    """By hand: errors of -49 to 49 in each of four sources.

    Of the three others together, 297 rows, floor(298 x 0.1) = 29 are outside of an end or on it:
    each error is there three times, so the 29th is the 10th error, -40. Of two of those it is the
    10th, too. Their scores are distances over the half width of two sources. Of three sources
    0.8 (1 + 1 / 8) = 90 % are asked for: of 297 distances 3 x 89 are below 45, which is less, and
    3 x 91 are not above.
    """
    like = Like("gemm", bits=16, software="", architecture="Ada")
    errors = np.arange(-49, 50) / 1000
    found = rows({f"{k}": (like, errors) for k in range(4)})
    end = half_of(3, 0.04) * 0.045 / half_of(2, 0.04)
    assert (left_out(found) == (np.abs(found.logs) <= end)).all()
    shipped = learned(found)[like]
    # Of all four the 39th of 396 is the 10th error, too; their scores are by bands of three, of
    # which 0.8 (1 + 1 / 10) = 88 % are asked for: 4 x 87 of 396 are less.
    end = half_of(4, 0.04) * 0.044 / half_of(3, 0.04)
    assert math.log(shipped.low) == pytest.approx(-end)
    assert math.log(shipped.high) == pytest.approx(end)


def test_a_kind_of_few_sources_is_widened_as_other_kinds_are() -> None:
    """Products in three types, of two sources each that are 0.2 apart, and a kind of one source.

    Each band of products is made of one source, and so is that of the other kind. Of the other
    source the distances are 0.1 to 0.3, 96 % of them up to 0.292: of no source of its own no more
    is asked for.
    """
    bmm = Like("bmm", bits=16, software="", architecture="Ada")
    few = {"own": (bmm, EVEN)}
    products = {
        f"{bits} {shift}": (Like("gemm", bits=bits, software="", architecture="Ada"), EVEN + shift)
        for bits in (8, 16, 32)
        for shift in (0.0, 0.2)
    }
    found = learned(rows(few | products))[bmm]
    assert math.log(found.high) == pytest.approx(0.292, abs=0.005)
    assert math.log(found.low) == pytest.approx(-0.292, abs=0.005)
    # Four sources of its own, which agree, stand alone. Their scores are of bands of one source,
    # none of two as this: 96 % of their distances are asked for, up to 0.097.
    bmm8 = Like("bmm", bits=8, software="", architecture="Ada")
    enough = {f"{k}": ((bmm, bmm8)[k % 2], EVEN) for k in range(4)}
    alone = learned(rows({**enough, **products}))[bmm]
    assert math.log(alone.high) == pytest.approx(
        half_of(2, 0.082) * 0.097 / half_of(1, 0.082), abs=0.003
    )


def test_a_source_left_out_is_not_widened_by_its_rows_of_other_kinds() -> None:
    """Of products three sources that agree, and a fourth that is 0.3 off.

    The fourth's own scores are 0.2 to 0.4 over 0.09, which is a quarter of all. Those of the others
    are of bands that it makes wide: 0.207 around 0.135, of which they are off by up to 0.235, 96 %
    by up to 0.227. So a band of another kind, 0.0945 wide, is 0.104 wide, and has 87 of 101 rows in
    it that are up to 0.1 off, and 0.03 besides.
    """
    like = {kind: Like(kind, bits=16, software="", architecture="Ada") for kind in ("bmm", "gemm")}
    products = {"one": EVEN, "two": EVEN, "three": EVEN}
    few = {"one": EVEN, "far": EVEN + 0.03}

    def inside(far: str) -> float:
        of_products = [
            (name, "gemm", logs) for name, logs in (products | {far: EVEN + 0.3}).items()
        ]
        every = [*of_products, *((name, "bmm", logs) for name, logs in few.items())]
        names = np.concatenate([[name] * len(logs) for name, _, logs in every])
        which = np.concatenate([np.full(len(logs), kind == "bmm") for _, kind, logs in every])
        logs = np.concatenate([logs for *_, logs in every])
        found = Rows(logs, (like["gemm"], like["bmm"]), which.astype(int), names, names)
        return float(left_out(found)[(names == "far") & (which == 1)].mean())

    # A source of another kind, whose band is of one source, half 0.096 wide: where the products
    # that are far off are another source's, they widen it, and else they do not.
    assert inside("another") == 1
    assert inside("far") == pytest.approx(0.86, abs=0.03)


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
    # Of two sources there are too few scores: the band is that of both on Hopper for the one, and
    # of the other one on Hopper for each of the two, with what those may be off.
    for name, sources in (("one", 2), ("two", 1), ("three", 1)):
        own = found.groups == name
        # The 10th error of 101, and the 20th of both.
        assert (inside[own] == (np.abs(found.logs[own]) <= half_of(sources, 0.082))).all()


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
