"""Fits that find what made the data, errors on cases left out, and bands of them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from validation import device_file, write

import paleo
from paleo.costs.error_bands import Band
from paleo.costs.tiled.constants import CONSTANTS
from paleo.measure.validate import Cases, cases_of, predict, read_measurements
from paleo.measure.validate.bands import band, bands, covered
from paleo.measure.validate.crossvalidate import fit, fits, fitted, fold_numbers

TRUE = {"launch": 7e-6, "memory_share": 0.55}


def products(folder: Path, noise: float = 0.0, devices: tuple[str, ...] = ("round",)) -> Cases:
    """Return cases of 60 shapes a device, as `tiled` with the constants TRUE has measured them."""
    generator = np.random.default_rng(1)
    rows = [
        {
            "quantity": "op_s",
            "value": 1,
            "network": "op:add" if i % 2 else "op:gemm",
            "op_shape": json.dumps(
                {"cols": int(n)} if i % 2 else {"M": int(n) // 4096 + 1, "N": 64, "K": 64}
            ),
            "device": device_file(folder, device),
        }
        for device in devices
        for i, n in enumerate(10 ** generator.uniform(3, 8, 60))
    ]
    found = cases_of(read_measurements(write(folder, rows)))
    measured = predict(found, "tiled", TRUE) * np.exp(generator.normal(0, noise, len(found)))
    return Cases(measured, found.ids, found.labels, found.parts)


def test_a_fit_finds_the_constants_that_made_the_data(tmp_path: Path) -> None:
    pytest.importorskip("scipy", reason="needs SciPy")
    found = fit(products(tmp_path), list(TRUE), folds=3)
    assert found.constants == pytest.approx(TRUE, rel=1e-3)
    assert found.in_sample.median is not None
    assert found.in_sample.median < 1e-3
    assert found.held_out is not None
    assert found.held_out.median is not None
    assert found.held_out.median < 1e-3
    assert found.on_bound == ()
    assert len(found.folds) == 3


def test_a_constant_stays_within_its_bounds(tmp_path: Path) -> None:
    pytest.importorskip("scipy", reason="needs SciPy")
    cases = products(tmp_path)
    slow = Cases(cases.measured * 1000, cases.ids, cases.labels, cases.parts)
    found = fit(slow, ["launch"], folds=2)
    assert found.constants["launch"] == pytest.approx(CONSTANTS["launch"].high, rel=0.02)
    assert found.on_bound == ("launch",)


def test_a_fit_is_repeatable_and_takes_no_more_cases_than_asked(tmp_path: Path) -> None:
    pytest.importorskip("scipy", reason="needs SciPy")
    cases = products(tmp_path, noise=0.1)
    first, second = (fitted(cases, ["launch"], most=20, seed=3) for _ in range(2))
    assert first == second
    assert first != fitted(cases, ["launch"], most=20, seed=4)


@pytest.mark.parametrize("split", ["shape", "device", "net"])
def test_folds_have_nothing_in_common(split: str, tmp_path: Path) -> None:
    cases = products(tmp_path, devices=("one", "two", "three"))
    numbers, members = fold_numbers(cases, split, folds=2)
    seen = [name for names in members for name in names]
    assert len(seen) == len(set(seen))
    keys = {
        "shape": [f"{n} {s}" for n, s in zip(cases.labels["network"], cases.shapes(), strict=True)],
        "device": cases.labels["device"].tolist(),
        "net": cases.labels["network"].tolist(),
    }[split]
    for number, names in enumerate(members):
        inside = {key for key, own in zip(keys, numbers.tolist(), strict=True) if own == number}
        assert inside == set(names)
    assert len(members) == 2
    assert set(seen) == set(keys)


def test_errors_on_cases_left_out_are_of_constants_fitted_without_them(tmp_path: Path) -> None:
    pytest.importorskip("scipy", reason="needs SciPy")
    cases = products(tmp_path, noise=0.2, devices=("one", "two"))
    # The second device is three times as slow as what was fitted on the first.
    slow = cases.labels["device"] == "two"
    cases = Cases(
        np.where(slow, 3 * cases.measured, cases.measured), cases.ids, cases.labels, cases.parts
    )
    found = fit(cases, ["launch", "memory_share"], split="device")
    assert found.held_out is not None
    assert found.held_out_predicted is not None
    for fold in found.folds:
        own = cases.where(device=fold.members)
        others = cases.select(~np.isin(cases.labels["device"].astype(str), fold.members))
        again = predict(own, "tiled", fold.constants)
        inside = np.isin(cases.labels["device"].astype(str), fold.members)
        assert found.held_out_predicted[inside].tolist() == again.tolist()
        assert len(others) + len(own) == len(cases)
    assert (found.held_out.mean or 0) > 1.2 * (found.in_sample.mean or 0)


@pytest.mark.slow
def test_a_fit_for_each_device_or_architecture(tmp_path: Path) -> None:
    pytest.importorskip("scipy", reason="needs SciPy")
    cases = products(tmp_path, devices=("one", "two"))
    assert [each.name for each in fits(cases, ["launch"], folds=2)] == ["Ampere"]
    assert [each.name for each in fits(cases, ["launch"], per="device", folds=2)] == ["one", "two"]
    assert [each.name for each in fits(cases, ["launch"], per="all", folds=2)] == ["all"]
    alone = fits(cases.where(device="one"), ["launch"], split="device")
    assert (alone[0].held_out, alone[0].folds) == (None, ())


def test_wrong_settings_of_a_fit_are_said(tmp_path: Path) -> None:
    cases = products(tmp_path)
    with pytest.raises(paleo.PaleoError) as caught:
        fit(cases, ["lunch"], split="fruit", folds=1)
    assert [str(mistake) for mistake in caught.value.mistakes] == [
        "fit: unknown constant 'lunch' (did you mean 'launch'?)",
        "split: expected shape or net or device, got 'fruit'",
        "folds: expected 2 to 1000, got 1",
    ]
    with pytest.raises(paleo.PaleoError, match="expected the name of a constant"):
        fit(cases, [])
    with pytest.raises(paleo.PaleoError, match="there are no cases to fit to"):
        fit(cases.select([]), ["launch"])


# Bands.


def test_a_band_leaves_out_as_many_on_both_sides() -> None:
    # Of 99 ratios 0.01 ... 0.99, ten are outside or on the end: 100 x 0.1.
    ratios = np.arange(1, 100) / 100
    found = band(ratios, 0.8)
    assert (found.low, found.high, found.count) == (0.10, 0.90, 99)
    assert covered(found, np.ones(99), ratios) == pytest.approx(81 / 99)
    assert band(np.append(ratios, np.nan), 0.8) == found


def test_too_few_errors_make_an_open_band() -> None:
    # Nine ratios: floor(10 x 0.1) is one on each side; of eight, none.
    assert band(np.arange(1.0, 10.0), 0.8) == Band(1.0, 9.0, 9, 0.8)
    few = band(np.arange(1.0, 9.0), 0.8)
    assert (few.low, few.high) == (0.0, math.inf)
    assert few.to_dict()["high"] is None
    with pytest.raises(paleo.PaleoError, match="coverage: expected a number between 0 and 1"):
        band(np.ones(3), 1.0)


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9])
def test_a_band_covers_new_data_as_often_as_it_says(coverage: float) -> None:
    generator = np.random.default_rng(0)
    shares = []
    for _ in range(300):
        found = band(np.exp(generator.gumbel(0, 0.3, 99)), coverage)
        new = np.exp(generator.gumbel(0, 0.3, 200))
        shares.append(covered(found, np.ones(200), new))
    # Exchangeable data: between coverage and coverage + 2 / (n + 1).
    assert coverage - 0.01 < np.mean(np.array(shares, float)) < coverage + 0.03


def test_bands_are_for_each_kind() -> None:
    labels = np.array(["a"] * 19 + ["b"] * 19, object)
    measured = np.concatenate([np.arange(1.0, 20.0), np.full(19, 2.0)])
    found = bands(np.ones(38), measured, labels, 0.8)
    assert (found["a"].low, found["a"].high) == (2.0, 18.0)
    assert (found["b"].low, found["b"].high) == (2.0, 2.0)
    assert covered(found["a"], np.array([np.nan]), np.array([1.0])) is None
