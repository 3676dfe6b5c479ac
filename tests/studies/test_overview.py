"""Overviews, studies that keep what they know, whole trainings, presets, and their charts."""

from __future__ import annotations

import dataclasses
import gc
import weakref
from typing import Any

import pytest

import paleo
from paleo.cluster import Price
from paleo.cluster.frameworks import SOFTWARE
from paleo.core.errors import PaleoError, SettingError
from paleo.step.memory import fit
from paleo.step.parallelism import Computations, Plan
from paleo.step.pieces import TRANSFER, Piece, WholeStep
from paleo.studies.datasets import Schedule
from paleo.studies.overview import Study, overview
from paleo.studies.training import Training, checked_price
from paleo.views.charts.memory import memory_chart
from paleo.views.charts.scaling import scaling_charts
from paleo.views.charts.training import metrics_charts, training_charts
from paleo.views.table import Column, Table, to_cells
from paleo.views.tables.base import common_notes
from paleo.views.tables.overview import headlines, hints, memory_headline, overview_table
from paleo.views.tables.simulation import simulation_table

ON: dict[str, Any] = {"device": "K80", "network": "infiniband", "batch_size": 256}


def test_the_presets_are_those_of_the_paper() -> None:
    # Qi et al. 2017: the shares of peak of Caffe, MXNet and TensorFlow.
    assert {name: (each.ppp_comp, each.ppp_comm) for name, each in SOFTWARE.items()} == {
        "Caffe": (0.21, 0.56),
        "MXNet": (0.49, 0.72),
        "TensorFlow": (0.62, 0.72),
    }


def test_a_training_is_so_many_steps_at_so_much() -> None:
    # 3 epochs of 1,000 samples in batches of 250 are 12 steps; of 5 s each they take 60 s. Two
    # devices at 90 dollars an hour cost 180 / 60 = 3 dollars a minute.
    step = WholeStep(2, 250, 5.0, 5.0, 125)
    training = Training(step, Schedule(3, None, 1000), Price(90, "USD"))
    assert training.num_steps == 12
    assert training.seconds == 60
    assert training.cost == pytest.approx(3)
    assert Training(step, Schedule()).to_dict() == {
        "num_steps": None,
        "training_time_s": None,
        "device_hours": None,
        "training_energy_j": None,
        "training_cost": None,
    }
    assert Training(step, Schedule(3, None, 1000)).cost is None


def test_a_price_is_a_number_or_a_text() -> None:
    assert checked_price(2) == Price(2.0, "USD")
    assert checked_price("0.90 EUR/h") == Price(0.9, "EUR")
    assert checked_price(None) is None
    with pytest.raises(SettingError, match="price: expected a number from 0"):
        checked_price("cheap")


@pytest.mark.parametrize("scaling", ["weak", "strong"])
def test_an_overview_says_what_simulate_and_metrics_say(scaling: str) -> None:
    found = overview("nin", scaling=scaling, workers=12, epochs=47, dataset="imagenet", **ON)
    workers = [1, 2, 4, 8, 12, 16, 32, 64, 128]
    expected = paleo.simulate("nin", scaling=scaling, workers=workers, **ON).runs[0]
    assert found.run.to_dict() == expected.to_dict()
    of: dict[str, Any] = {"epochs": 47, "dataset": "imagenet", "workers": workers}
    for scheme in found.run.plan.exchange_schemes:
        asked = paleo.metrics("nin", scaling=scaling, scheme=scheme, **of, **ON)
        for row, metrics in zip(found.rows, asked, strict=True):
            training = found.training(row, scheme)
            assert training.seconds == metrics.training_time
            assert training.cost == metrics.training_cost
    own = 256 if scaling == "weak" else 22  # 256 / 12, rounded up
    assert found.worker_batch_size == own
    assert found.summary == paleo.summarize("nin", own, device="K80")
    assert found.fit.footprint == paleo.footprint("nin", own)
    assert found.fit.largest_batch == expected.worth.largest_batch


def test_a_study_computes_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    study = Study("nin", device="K80")
    first = study.overview(network="ethernet", scaling="strong", scheme="OneToAll")
    asked = []
    compute = Plan.passes

    def passes(*arguments: Any, **settings: Any) -> Any:
        asked.append(1)
        return compute(*arguments, **settings)

    monkeypatch.setattr(Plan, "passes", passes)
    again = study.overview(network="infiniband", scaling="strong", scheme="OneToAll", price=1)
    assert not asked
    assert again.row.compute == first.row.compute
    assert again.rows[-1].communication["OneToAll"] < first.rows[-1].communication["OneToAll"]
    study.overview(batch_size=100)
    assert asked
    assert study.summary(8) is study.summary(8)


def test_a_study_is_freed_with_its_last_user_without_a_search_for_garbage() -> None:
    study = Study("lenet5", device="K80", fuse=True)
    seen = study.overview(scaling="strong", batch_size=8)
    assert seen.run.worth
    assert seen.summary.reached
    assert seen.fit
    gone = weakref.ref(study)
    gc.disable()
    try:
        del study, seen
        assert gone() is None
    finally:
        gc.enable()


def test_computations_are_refused_for_another_net_or_device() -> None:
    plan = Plan(
        paleo.find_device("K80"), paleo.find_network("ethernet"), paleo.find_cost_model("tiled")
    )
    known = Computations(paleo.load("nin"), plan)
    assert known.suit(paleo.load("nin"), dataclasses.replace(plan, ppp_comm=0.5))
    other = dataclasses.replace(plan, network=paleo.find_network("infiniband"))
    assert known.suit(paleo.load("nin"), other)
    assert not known.suit(paleo.load("lenet5"), plan)
    assert not known.suit(paleo.load("nin"), dataclasses.replace(plan, ppp_comp=0.5))
    with pytest.raises(SettingError, match="computations: they are of another net"):
        paleo.simulate("nin", device="K40", computations=known)


def test_computations_forget_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Computations, "MOST", 2)
    plan = Plan(
        paleo.find_device("K80"), paleo.find_network("ethernet"), paleo.find_cost_model("tiled")
    )
    known = Computations(paleo.load("lenet5"), plan)
    before = [known.of(batch) for batch in (1, 2, 3)]
    assert known.missing([3, 2, 1]) == [1]
    assert [known.of(batch) for batch in (1, 2, 3)] == before


def test_what_is_prepared_is_kept_however_much_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Computations, "MOST", 4)
    plan = Plan(
        paleo.find_device("K80"), paleo.find_network("ethernet"), paleo.find_cost_model("tiled")
    )
    known = Computations(paleo.load("lenet5"), plan)
    before = {batch: known.of(batch) for batch in (3, 100, 101, 102)}
    wanted = range(1, 11)
    known.prepare(wanted)
    assert known.missing(wanted) == []
    assert known.of(3) == before[3]
    known.of(100)
    assert len(known.missing(range(1, 200))) == 199 - 4  # it is small again


def test_the_knee_of_many_batches_computes_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Computations, "MOST", 8)
    calls = []
    compute = Plan.passes

    def passes(*arguments: Any, **settings: Any) -> Any:
        calls.append(1)
        return compute(*arguments, **settings)

    monkeypatch.setattr(Plan, "passes", passes)
    # 1,000 samples are shared out in 62 ways, more than are kept.
    run = paleo.simulate("lenet5", scaling="strong", batch_size=1000, workers=[1]).runs[0]
    assert run.worth.knee
    assert len(calls) <= 4


def test_one_count_is_a_count_too() -> None:
    found = overview("lenet5", workers=2, counts=8)
    assert [row.workers for row in found.rows] == [2, 8]
    with pytest.raises(paleo.PaleoError, match="counts: expected one or several"):
        Study("lenet5").overview(counts=None)  # type: ignore[arg-type]


def test_every_mistake_of_an_overview_is_told() -> None:
    with pytest.raises(paleo.PaleoError) as caught:
        overview("nope", device="nothing", cost_model="none", ppp_comp=2)
    assert len(caught.value.mistakes) == 4
    study = Study("nin")
    with pytest.raises(paleo.PaleoError) as caught:
        study.overview(
            workers=0, batch_size=-1, scaling="no", scheme="x", ppp_comm=0, network="y", epochs=-1,
            price="z", optimizer="q", counts=(-5,),
        )  # fmt: skip
    said = str(caught.value)
    for name in ("workers", "batch", "scaling", "scheme", "ppp_comm", "network", "epochs"):
        assert name in said
    assert len(caught.value.mistakes) == 10


def test_a_run_of_one_scheme_is_as_if_it_alone_had_been_asked_for() -> None:
    run = paleo.simulate("nin", scaling="weak", schemes="all", **ON).runs[0]
    alone = paleo.simulate("nin", scaling="weak", schemes="OneToAll", **ON).runs[0]
    assert run.only("OneToAll").to_dict() == alone.to_dict()


def test_charts_of_scaling_hold_what_the_rows_say() -> None:
    run = paleo.simulate("nin", scaling="strong", schemes="all", **ON).runs[0]
    speedup, step, efficiency, _ = scaling_charts(run, "OneToAll")
    number = list(run.rows[0].exchanges).index("OneToAll")
    one = speedup.series[number]
    assert one.name == "OneToAll"
    assert one.chosen
    assert [each.chosen for each in speedup.series if each.chosen] == ["chosen"]
    assert one.x == (1, 2, 4, 8, 16, 32, 64, 128)
    rows: Any = run.rows
    assert one.y == tuple(row.whole_step("OneToAll").speedup for row in rows)
    assert speedup.series[-1].is_reference
    assert speedup.series[-1].y == one.x
    assert step.y_label == "time of a step (ms)"
    assert step.series[number].y == tuple(row.total("OneToAll") / 1e-3 for row in rows)
    assert efficiency.series[number].y == tuple(
        100 * row.whole_step("OneToAll").efficiency for row in rows
    )
    assert "K80, infiniband, data-parallel, strong scaling, batch 256" in speedup.setting


def test_charts_of_bounds_and_of_parts() -> None:
    (bounds,) = scaling_charts(paleo.simulate("alex_v2_4gpu", parallel="model").runs[0])
    assert bounds.kind == "bars"
    assert bounds.series[0].x[:2] == ("forward, at least", "forward, at most")
    low, high = bounds.series[0].y[:2]
    assert low is not None
    assert high is not None
    assert low < high
    run = paleo.simulate("alex_v2_4gpu", parallel="hybrid", hybrid_workers=4).runs[0]
    (parts,) = scaling_charts(run)
    assert [each.name for each in parts.series] == ["forward", "backward", "update", "exchange"]
    assert parts.setting.endswith("4 workers")
    assert run.step is not None
    assert "ms" in parts.y_label
    shown = sum(value or 0 for each in parts.series for value in each.y[:2])
    assert shown == pytest.approx(run.step.seconds * 1000)


def test_charts_of_training_are_empty_without_what_they_need() -> None:
    time, cost = training_charts(overview("lenet5", device="K40"))
    assert time.is_empty
    assert cost.is_empty
    with pytest.raises(SettingError, match="there is nothing to draw"):
        time.checked()
    found = overview("lenet5", epochs=1, dataset_size=3600, price="2 EUR/h", device="K40")
    time, cost = training_charts(found)
    assert cost.y_label == "training cost (EUR)"
    assert "1 epoch of 3,600 samples, 2 EUR a device-hour" in cost.setting
    assert not time.is_empty
    metrics = paleo.metrics(
        ["lenet5", "nin"], workers=[1, 2], epochs=1, dataset="mnist", price=3, device="K40"
    )
    time, cost = metrics_charts(metrics)
    assert [each.name for each in time.series] == ["lenet5", "nin"]
    assert cost.series[1].y == tuple(each.training_cost for each in metrics[2:])


def test_the_chart_of_memory_has_parts_peak_and_capacity() -> None:
    found = fit(paleo.load("vgg16"), 32, device=paleo.find_device("K40"), optimizer="adam")
    chart = memory_chart([found])
    names = [each.name for each in chart.series]
    parts = ["weights", "gradients", "optimizer state", "activations"]
    assert names == [*parts, "peak", "memory of K40"]
    assert chart.y_label == "memory (GiB)"
    assert chart.series[0].y[0] == found.footprint.weights / 2**30
    assert chart.series[-1].y == (12.0,)
    assert [each.is_reference for each in chart.series] == [False] * 4 + [True] * 2


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (9.0, "9.0 s"),
        (2400.0, "40 min"),
        (5400.0, "90 min"),
        (4.32e6, "50 days"),
        (1e8, "1,200 days"),
    ],
)
def test_a_figure_alone_is_in_a_unit_of_which_it_is_one_or_more(seconds: float, text: str) -> None:
    step = WholeStep(1, 1, seconds, seconds, 1)
    found = overview("lenet5", epochs=1, dataset_size=128)  # one step
    row = dataclasses.replace(
        found.row,
        pieces=(Piece("forward", "forward", step.seconds),),
        exchanges={"OneToAll": Piece("exchange", TRANSFER, 0.0)},
        exchanging=None,
    )
    run = dataclasses.replace(found.run, rows=(row,))
    (head,) = headlines(dataclasses.replace(found, run=run))
    assert {each["key"]: each["value"] for each in head["items"]}["time"] == text


def test_what_takes_all_of_the_memory_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    found = fit(paleo.load("lenet5"), 8, device=paleo.find_device("K40"))
    peak = found.footprint.peak
    for capacity, fits in ((peak, True), (peak - 1, False), (peak + 1, True)):
        monkeypatch.setattr(paleo.Device, "memory_capacity", capacity)
        assert found.fits is fits
    assert fit(paleo.load("lenet5"), 8).fits is None


def test_a_head_is_in_words() -> None:
    found = overview("nin", workers=2, epochs=1, dataset="imagenet", scaling="strong", **ON)
    heads = headlines(found)
    assert [each["workers"] for each in heads] == [row.workers for row in found.rows]
    items = {each["key"]: each["value"] for each in heads[1]["items"]}
    assert items["scheme"] == found.row.best_scheme
    assert items["speedup"] == f"{found.row.whole_step(found.row.best_scheme).speedup:.2f}"
    assert items["cost"].endswith(" USD")
    assert items["price"] == "1.8 USD"
    assert "scheme" not in {each["key"] for each in heads[0]["items"]}  # a worker alone
    assert [each["label"] for each in heads[1]["items"] if each["key"] == "scheme"] == ["scheme"]
    of_2017 = headlines(overview("nin", workers=2, cost_model="paleo2017", **ON))
    assert [each["label"] for each in of_2017[1]["items"] if each["key"] == "scheme"] == [
        "best exact scheme"
    ]
    assert memory_headline(found)[1]["value"].startswith("fits in")
    assert not any(each["is_warning"] for each in memory_headline(found))
    large = overview("vgg16", **{**ON, "batch_size": 4096})
    capacity = large.study.device.memory_capacity
    assert capacity is not None
    assert [each["value"] for each in memory_headline(large) if each["is_warning"]] == [
        f"does not fit in {capacity / 2**30:g} GiB"
    ]
    assert hints(found) == []
    assert hints(overview("nin", device="K40", epochs=1, dataset="mnist")) == [
        "for a cost give a price: none of K40 is known"
    ]
    assert "give the epochs" in hints(overview("nin"))[0]


def test_the_table_of_an_overview_is_that_of_the_scheme() -> None:
    both = [overview("nin", scheme=scheme, **ON) for scheme in (None, "OneToAll")]
    assert overview_table(both[0]) == simulation_table(both[0].run)
    titles = [column.title for column in overview_table(both[1]).columns]
    assert "OneToAll" in titles
    assert not any("Tree" in title for title in titles)


def test_a_table_becomes_cells_with_units_apart() -> None:
    table = Table(
        "a\nb",
        [Column("name", "layer"), Column("t", "forward", "s"), Column("e", "share", "percent")],
        [{"name": "<b>", "t": 0.25, "e": 0.5}, {"name": "c", "t": 0.5, "e": 1.0}],
        {"name": "total", "t": 0.75},
        footnotes=["foot"],
        notes=["note"],
    )
    cells = to_cells(table)
    assert cells["title"] == "a\\nb"
    assert cells["columns"] == [
        {"title": "layer", "unit": "", "right": False},
        {"title": "forward", "unit": "ms", "right": True},
        {"title": "share", "unit": "%", "right": True},
    ]
    assert cells["rows"] == [["<b>", "250", "50"], ["c", "500", "100"]]
    assert cells["total"][:2] == ["total", "750"]
    assert (cells["footnotes"], cells["notes"]) == (["foot"], ["note"])


def test_notes_of_several_say_of_whom_they_are() -> None:
    # "a" is of both, "b" of the first alone, though twice; "c" is of one that has no name.
    assert common_notes([("x", ["a", "b", "b"]), ("y", ["a"])]) == ("a", "x: b")
    assert common_notes([("x", ["a"]), ("", ["c"])]) == ("x: a", "c")


def test_an_overview_of_a_cluster_is_of_its_device_and_networks() -> None:
    asked: dict[str, Any] = {"cluster": "aws_p3_16xlarge", "batch_size": 32}
    found = overview("alex_v2", workers=16, **asked)
    assert (found.run.cluster, found.run.device) == ("aws_p3_16xlarge", "V100_SXM2_16GB")
    counts = [1, 2, 4, 8, 16, 32, 64]  # of those by default as many as there are
    assert [row.workers for row in found.rows] == counts
    expected = paleo.simulate("alex_v2", workers=counts, **asked).runs[0]
    assert [row.total("auto") for row in found.rows] == [row.total("auto") for row in expected.rows]
    device = paleo.find_cluster("aws_p3_16xlarge").device
    assert found.price == overview("alex_v2", device=device).price
    more = overview("alex_v2", workers=16, overlap=False, schemes=["ring", "tree"], **asked)
    assert list(more.row.exchanges) == ["ring", "tree"]
    assert more.row.exposed_exchanges == more.row.communication


def test_a_study_refuses_a_cluster_of_another_device_and_keeps_its_scenarios() -> None:
    study = Study("alex_v2", device="V100_SXM2_32GB")
    assert study.overview(cluster="dgx1_v100").run.cluster == "dgx1_v100"
    assert study.overview(network="infiniband").run.cluster == ""
    with pytest.raises(SettingError, match="cluster: dgx_a100 has devices A100_SXM_80GB, and this"):
        study.overview(cluster="dgx_a100")
    with pytest.raises(PaleoError, match="network: a cluster has its own"):
        study.overview(cluster="dgx1_v100", network="infiniband")
    own = Study(paleo.scenario("alex_v2", cluster="dgx1_v100"))
    assert own.overview().run.cluster == "dgx1_v100"
    assert own.overview(network="infiniband").run.network == "infiniband"
