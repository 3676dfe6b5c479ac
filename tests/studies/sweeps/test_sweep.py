"""Sweeps: the steps of one by one, each batch priced once, and why points cannot be."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import paleo
from paleo.step.plan import Plan
from paleo.studies.sweeps.axes import axis_of
from paleo.studies.sweeps.evaluate import evaluated
from paleo.studies.sweeps.grid import BLOCK, DATA, grid_of
from paleo.studies.sweeps.priced import AT_ONCE, Priced
from paleo.studies.sweeps.result import Sweep

BATCHES, WORKERS = [1, 17, 100], [1, 3]


def seconds(**settings: Any) -> float:
    """Return the seconds of a step as `paleo.simulate` has it."""
    run = paleo.simulate(**settings).runs[0]
    row = run.rows[-1]
    if run.step:
        return run.step.seconds
    if row.exchanges:
        return row.whole_step(row.best_scheme).seconds
    return float(sum(each.total() for each in run.rows))


def differences(found: Sweep) -> list[float]:
    """Return by how much steps differ from those one by one, as shares of these."""
    return [
        abs(found["step_s"][place] / seconds(**found.settings(*place)) - 1)
        for place in itertools.product(*map(range, found.shape))
        if found.valid[place]
    ]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"scaling": "strong"},
        {"overlap": True},
        {"overlap": True, "gradient_dtype": "fp16"},
        {"framework": "tensorflow", "overlap": True},
        {"accumulate": 4, "schemes": "all"},
        {"recompute": "full", "jitter": 0.05, "scaling": "strong"},
    ],
)
@pytest.mark.parametrize(("model", "most"), [("paleo2017", 0.0), ("tiled", 1e-12)])
def test_steps_are_those_of_one_by_one(model: str, most: float, settings: dict[str, Any]) -> None:
    axes = {"network": ["ethernet", "infiniband"], "batch_size": BATCHES, "workers": WORKERS}
    found = paleo.sweep("lenet5", axes, cost_model=model, device="K80", **settings)
    assert found.shape == (2, 3, 2)
    assert max(differences(found)) <= most


def test_memory_and_rates_are_those_of_one_by_one() -> None:
    axes = {"batch_size": [1, 8], "workers": [1, 3], "scaling": ["weak", "strong"]}
    found = paleo.sweep("lenet5", axes, device="K80", bands=True)
    for place in itertools.product(*map(range, found.shape)):
        row = paleo.simulate(**found.settings(*place)).runs[0].rows[0]
        step = row.whole_step(row.best_scheme)
        assert found["memory_bytes"][place] == paleo.footprint("lenet5", row.worker_batch_size).peak
        assert found["samples_per_s"][place] == step.throughput
        assert found["compute_s"][place] == row.compute
        assert (found["step_s_low"][place], found["step_s_high"][place]) == (step.low, step.high)
        assert found["fits"][place] == 1


def test_devices_that_share_a_net() -> None:
    axes = {"pp": [1, 2], "seq_len": [64, 128], "tp": [1, 2, 3], "micro_batch": [1, 2]}
    found = paleo.sweep("gpt2", axes, cluster="dgx_a100", workers=8, global_batch=16, dtype="bf16")
    assert (
        found.valid.tolist()
        == (np.array([1, 2, 3]) != 3)[None, None, :, None]
        .repeat(2, axis=0)
        .repeat(2, axis=1)
        .repeat(2, axis=3)
        .tolist()
    )
    assert found.reasons[0, 0, 2, 0] == "num_workers: 8 devices do not divide by tp 3"
    some = found.settings(1, 1, 1, 0)
    row = paleo.simulate(**some).runs[0].rows[0]
    assert found["step_s"][1, 1, 1, 0] == pytest.approx(seconds(**some), rel=1e-12)
    assert found["memory_bytes"][1, 1, 1, 0] == row.to_dict()["memory_bytes"]


def test_what_arrays_of_plans_do_not_know_goes_one_by_one() -> None:
    axes = {"tp": [1, 2], "stages": ["even", "balanced"]}
    found = paleo.sweep("gpt2", axes, device="A100_SXM_80GB", workers=4, pp=2, global_batch=8)
    assert max(differences(found)) <= 1e-12


def test_other_kinds_of_parallelism_and_edits() -> None:
    kinds = {"parallel": ["data", "model", "hybrid"], "batch_size": [16, 64]}
    found = paleo.sweep("alex_v2_4gpu", kinds, device="K40", cost_model="paleo2017")
    assert max(differences(found)) == 0
    axes = {"fc8.filter[3]": [10, 1000], "scale_input": [1.0, 2.0], "workers": [1, 2]}
    edited = paleo.sweep("alex_v2", axes, cost_model="paleo2017")
    assert max(differences(edited)) == 0
    assert edited["step_s"][0, 0, 0] < edited["step_s"][1, 0, 0] < edited["step_s"][1, 1, 0]


def test_a_batch_is_priced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 128 samples on 1 to 128 workers, there are few shares: ceil(128 / workers)."""
    priced: list[int] = []
    price = Priced._priced

    def counted(self: Priced, batches: Any) -> Any:
        priced.extend(batches.tolist())
        return price(self, batches)

    monkeypatch.setattr(Priced, "_priced", counted)
    axes = {"workers": range(1, 129), "network": ["ethernet", "infiniband", "nvlink4"]}
    found = paleo.sweep("lenet5", axes, batch_size=128, scaling="strong")
    assert found.valid.all()
    assert sorted(priced) == sorted({-(-128 // workers) for workers in range(1, 129)})


def test_a_message_is_priced_once_whatever_batches_are(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    priced = Plan.communication

    def noted(self: Plan, num_bytes: Any, *others: Any) -> Any:
        asked.append(num_bytes)
        return priced(self, num_bytes, *others)

    monkeypatch.setattr(Plan, "communication", noted)
    how: dict[str, Any] = {"device": "K80", "network": "ethernet"}
    many = {"from": 1, "to": 4096}
    counts = []
    for batches in (range(1, 2), range(1, 3 * BLOCK[DATA] // 4096)):
        asked.clear()
        found = paleo.sweep("lenet5", {"batch_size": batches, "workers": many}, **how)
        assert sum(part.size for part in found.parts()) == len(batches) * 4096
        counts.append(len(asked))
    assert counts[0] == counts[1] > 0


def test_batches_of_later_parts_are_priced_with_those_of_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    priced: list[int] = []
    price = Priced._priced

    def counted(self: Priced, batches: Any) -> Any:
        priced.append(len(batches))
        return price(self, batches)

    monkeypatch.setattr(Priced, "_priced", counted)
    axes = {"batch_size": range(1, 10_001), "workers": [1, 2]}
    found = evaluated(grid_of("lenet5", axes, {"device": "K80"}), points=1)
    assert len([*found]) > 1
    assert priced == [AT_ONCE, 10_000 - AT_ONCE]


def test_nets_may_be_among_the_axes() -> None:
    others = {"device": ["K40", "K80"]}
    two = ["lenet5", "alex_v2"]
    assert grid_of(None, {**others, "net": two}, {}).identity == grid_of(two, others, {}).identity
    assert grid_of(None, {**others, "net": "nin"}, {}).fixed["net"] == "nin"
    with pytest.raises(paleo.PaleoError, match=r"^net: it is given twice$"):
        grid_of("nin", {**others, "net": two}, {})
    with pytest.raises(paleo.PaleoError, match=r"^net: expected one or more values, got none$"):
        grid_of(None, {**others, "net": []}, {})


def test_a_net_file_that_was_changed_is_read_again(tmp_path: Path) -> None:
    text = (
        '{"name": "small", "layers": {"data": {"type": "Input", "tensor": [8, 28, 28, 1]}, '
        '"scores": {"type": "InnerProduct", "parents": ["data"], "num_outputs": %d}}}'
    )
    path = tmp_path / "small.json"
    found = []
    for outputs in (10, 10_000):
        path.write_text(text % outputs)
        swept = paleo.sweep(str(path), {"batch_size": [8, 64]}, device="K80")
        assert max(differences(swept)) <= 1e-12
        found.append(swept["step_s"][1])
    assert found[1] > 5 * found[0]


def test_a_point_that_cannot_be_has_a_reason() -> None:
    axes = {"workers": [8, 16, 10_000], "cluster": ["dgx_a100"], "scaling": ["weak", "strong"]}
    found = paleo.sweep("lenet5", axes)
    assert found.valid.tolist() == [[[True, True]], [[True, True]], [[False, False]]]
    size = paleo.find_cluster("dgx_a100").size
    reason = f"workers: more than the {size:,} devices of dgx_a100"
    assert set(found.reasons[2].ravel()) == {reason}
    assert np.isnan(found["step_s"][2]).all()
    assert dict(found.tally.reasons) == {reason: 2}
    assert (found.tally.points, found.tally.valid) == (6, 4)


def test_one_wrong_batch_leaves_the_others() -> None:
    """Batches are sixteen times the largest count, over 2^60, where the last is."""
    axes = {"batch_size": [1, 2, 2**31 - 1], "workers": [1, 2**31 - 1]}
    found = paleo.sweep("lenet5", axes, cost_model="paleo2017")
    assert not found.valid.all()
    for place in itertools.product(range(3), range(2)):
        try:
            assert seconds(**found.settings(*place)) == found["step_s"][place]
        except paleo.PaleoError as error:
            said = str(error)
            assert found.reasons[place] == said


def test_a_condition_leaves_points_out() -> None:
    axes = {"batch_size": [16, 32, 64], "workers": [1, 2, 4], "dtype": ["fp32", "fp64"]}
    where = "batch_size * workers <= 64 and not dtype == 'fp64'"
    found = paleo.sweep("lenet5", axes, where=where, device="K80")
    expected = [[[b * w <= 64, False] for w in (1, 2, 4)] for b in (16, 32, 64)]
    assert found.valid.tolist() == expected
    assert found.tally.left_out == 18 - np.array(expected).sum()
    assert found.reasons[2, 2, 0] == "left out by where"


def test_a_billion_points_are_a_stream() -> None:
    axes = {
        "batch_size": {"from": 1, "to": 10_000},
        "workers": {"from": 1, "to": 10_000},
        "network": ["ethernet", "infiniband", "nvlink4", "infiniband_hdr"],
        "bucket": ["1MiB", "25MiB", "100MiB"],
    }
    found = paleo.sweep("lenet5", axes, cost_model="paleo2017", device="K80")
    assert found.size == 1_200_000_000
    first = next(found.parts())
    assert 0 < first.size <= 1 << 20
    assert first.columns["step_s"].shape == (first.size,)
    with pytest.raises(paleo.SettingError, match=r"1,200,000,000 points are more than"):
        found["step_s"]


@given(
    sizes=st.lists(st.integers(1, 7), min_size=1, max_size=4),
    points=st.integers(1, 50),
    largest=st.integers(1, 20),
)
def test_parts_are_all_points_in_order(sizes: list[int], points: int, largest: int) -> None:
    names = ["network", "batch_size", "dtype", "workers"]
    values: dict[str, Any] = {
        name: list(range(1, size + 1)) if name in ("batch_size", "workers") else ["fp32"] * size
        for name, size in zip(names, sizes, strict=False)
    }
    values["network"] = ["ethernet"] * sizes[0]
    grid = grid_of("lenet5", values, {})
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(BLOCK, DATA, largest)
        blocks = [block for i in range(grid.parts(points)) for block in grid.part(i, points)]
    at = 0
    for block in blocks:
        assert block.first == at
        places = grid.places(np.arange(block.first, block.first + block.size))
        for name, place in block.cell.items():
            assert set(places[name]) == {place}
        for name, part in block.slices.items():
            assert set(places[name]) == set(range(part.start, part.stop))
        at += block.size
    assert at == grid.size


def test_labelled_arrays() -> None:
    xarray = pytest.importorskip("xarray", reason="needs xarray")
    axes = {"workers": [1, 2], "device": ["K40", "K80"], "batch_size": [16, 32, 64]}
    found = paleo.sweep("lenet5", axes, dtype="fp32")
    dataset = found.to_xarray()
    assert dataset["step_s"].dims == ("workers", "device", "batch_size")
    picked = dataset["step_s"].sel(workers=2, device="K80", batch_size=32)
    assert float(picked) == found["step_s"][1, 1, 1]
    assert dataset.attrs["dtype"] == "fp32"
    assert isinstance(dataset, xarray.Dataset)


def test_rows_of_pandas() -> None:
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    axes = {"workers": [2, 10**6], "cluster": ["dgx_a100"], "batch_size": [16, 32]}
    frame = paleo.sweep("lenet5", axes).to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert frame["workers"].tolist() == [2, 2, 10**6, 10**6]
    assert frame["batch_size"].tolist() == [16, 32, 16, 32]
    assert frame["error"].isna().tolist() == [True, True, False, False]
    assert frame["step_s"].isna().tolist() == [False, False, True, True]


def test_the_best_point_fits() -> None:
    """A batch of a million samples is quicker than one of 64, and fits no K40."""
    axes = {"batch_size": [64, 1_000_000], "workers": [1, 2]}
    found = paleo.sweep("alex_v2", axes, device="K40", network="nvlink4")
    rates = found["samples_per_s"]
    assert rates[1, 1] > rates[0, 1] > rates[0, 0]
    assert found.best == (0, 1)
    assert found.labels(*found.best) == {"batch_size": 64, "workers": 2}


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        ({"from": 2, "to": 8, "step": 3}, [2, 5, 8]),
        ({"from": 1, "to": 4}, [1, 2, 3, 4]),
        ({"from": 1, "to": 1000, "factor": 10}, [1, 10, 100, 1000]),
        ({"from": 1, "to": 5, "factor": 1.5}, [1, 2, 3]),
        ([7, 3], [7, 3]),
        (range(1, 4), [1, 2, 3]),
        (5, [5]),
    ],
)
def test_values_of_an_axis(given_: Any, expected: list[int]) -> None:
    """1, 1.5, 2.25 and 3.375 round to 1, 2, 2 and 3; what comes next is beyond 5."""
    assert list(axis_of("batch_size", given_).values) == expected


@pytest.mark.parametrize(
    ("axes", "settings", "message"),
    [
        ({}, {}, "a grid of nothing: give one axis or more, such as batch_size"),
        ({"batch_size": []}, {}, "batch_size: expected one or more values, got none"),
        ({"batch": [1]}, {}, "batch: no setting of that name"),
        ({"batch_size": [0]}, {}, "batch_size: expected a whole number"),
        ({"device": ["K40", "K4"]}, {}, "unknown device 'K4'"),
        ({"plan": ["a.sh"]}, {}, "plan: a sweep has no plan file: give its settings"),
        ({"workers": [1]}, {"num_workers": 2}, "num_workers: it is given twice"),
        ({"workers": {"from": 1}}, {}, "workers: expected a range such as"),
        ({"workers": {"from": 1, "to": 8, "step": 0}}, {}, "the step of a range is above 0"),
        ({"workers": {"from": 1, "to": 8, "factor": 1}}, {}, "by a factor above 1"),
        ({"workers": {"from": 8, "to": 1}}, {}, "workers: expected one or more values, got none"),
        ({"workers": [1, 2]}, {"where": "tp < 2"}, "where: tp: no axis of that name"),
        ({"workers": [1, 2]}, {"where": "workers <"}, "where: expected a condition"),
        ({"workers": [1, 2]}, {"where": "__import__('os')"}, "where: __import__('os'): expected"),
        ({"workers": [1, 2]}, {"ppp_comp": 7}, "ppp_comp: expected a number above 0"),
    ],
)
def test_mistakes(axes: dict[str, Any], settings: dict[str, Any], message: str) -> None:
    with pytest.raises(paleo.PaleoError) as caught:
        paleo.sweep("lenet5", axes, **settings)
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
