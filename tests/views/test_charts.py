"""What pictures show, before they are drawn: layers, rooflines, differences, and their units."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from nets_of_tests import make_net

import paleo
from paleo.step.memory import Fit, Footprint, LayerMemory, footprint
from paleo.step.pieces import TRANSFER, Piece
from paleo.studies.overview import overview
from paleo.studies.summary import Reached, Roof
from paleo.views.charts.base import MOST_BARS, Chart, Series, in_one_unit, is_wide, looks_of
from paleo.views.charts.difference import differences
from paleo.views.charts.layers import (
    computation_by_layer,
    footprint_by_layer,
    memory_by_layer,
    ranks,
    time_by_layer,
)
from paleo.views.charts.memory import memory_chart
from paleo.views.charts.numbers import counted, plain, shown
from paleo.views.charts.results import of_metrics, of_simulation, of_summaries
from paleo.views.charts.roofline import roofline
from paleo.views.charts.scaling import scaling_charts
from paleo.views.charts.training import training_charts

#: A product with bias and a ReLU: 2 samples of 3 features, 4 outputs.
SMALL = {
    "data": {"type": "Input", "parents": [], "tensor": [2, 3]},
    "fc": {"type": "InnerProduct", "parents": ["data"], "num_outputs": 4},
    "relu": {"type": "Activation", "parents": ["fc"], "function": "relu"},
}
#: What counts no FLOPs.
STREAMS = {key: SMALL[key] for key in ("data",)} | {
    "relu": {"type": "Activation", "parents": ["data"], "function": "relu"}
}


def values(chart: Chart) -> dict[str, dict[Any, float | None]]:
    return {series.name: dict(zip(series.x, series.y, strict=True)) for series in chart.series}


def lines(*charts: Chart) -> list[Chart]:
    return [chart for chart in charts if chart.kind == "lines"]


def test_a_layer_reaches_its_flops_in_its_time(net: Any) -> None:
    # 2 x 3 by 3 x 4: 2 * 2 * 3 * 4 = 48 FLOPs, reads 4 (6 + 12) and writes 4 * 8 bytes; the bias
    # passes over the outputs, reads and writes 4 * 8 bytes. K40 at 288e9 bytes/s.
    found = paleo.summarize(net(SMALL), device="K40", cost_model="roofline")
    by_name = {(each.layer, each.pass_name): each for each in found.reached}
    assert [each.layer for each in found.reached] == ["data", "fc", "relu"] * 2
    fc = by_name["fc", "forward"]
    assert fc.flops == 48
    assert fc.num_bytes == 4 * (6 + 12 + 8) + 2 * 4 * 8
    assert fc.intensity == 48 / fc.num_bytes
    assert fc.seconds == found.layers[1].forward
    assert fc.flops_per_s == pytest.approx(fc.intensity * 288e9)  # memory holds it back
    # The gradient of the filter alone, since nobody needs that of the data: as many FLOPs.
    assert by_name["fc", "backward"].flops == 48
    relu, data = by_name["relu", "backward"], by_name["data", "forward"]
    assert (relu.flops, relu.num_bytes, relu.intensity) == (0, 3 * 32, 0)
    assert (data.num_bytes, data.intensity, data.flops_per_s) == (0, None, None)
    assert fc.to_dict()["flops_per_byte"] == fc.intensity


def test_the_work_of_a_layer_is_what_the_cost_model_counts(net: Any) -> None:
    # paleo2017 prices no bias: 4 (6 + 12 + 8) bytes are left. Unfused, the ReLU has 2 * 32 bytes;
    # in the kernel of the product it moves nothing of its own.
    (fc,) = (
        each
        for each in paleo.summarize(net(SMALL), device="K40", cost_model="paleo2017").reached
        if (each.layer, each.pass_name) == ("fc", "forward")
    )
    assert (fc.flops, fc.num_bytes) == (48, 4 * (6 + 12 + 8))
    fused = paleo.summarize(net(SMALL), device="K40", cost_model="roofline", fuse=True)
    assert fused.reached[2].num_bytes == 0


def test_the_roof_has_its_ridge_where_its_lines_meet() -> None:
    roof = Roof(10e12, 500e9)
    assert roof.ridge == 20
    assert (roof.at(10), roof.at(20), roof.at(30)) == (5e12, 10e12, 10e12)
    k40 = paleo.summarize("nin", device="K40", cost_model="roofline").timed_on
    assert k40
    assert k40.roof
    assert k40.roof.memory_bandwidth == 288e9


def test_what_is_reached_needs_a_device_and_one_batch() -> None:
    assert paleo.summarize("nin").reached == ()
    several = paleo.summarize("nin", np.array([1, 2]), device="K40")
    with pytest.raises(paleo.SettingError, match="reached: it is for one batch size"):
        _ = several.reached
    for chart in (time_by_layer, memory_by_layer, computation_by_layer, roofline):
        with pytest.raises(paleo.SettingError, match="one batch size, not an array"):
            chart(several)
    for chart in (time_by_layer, roofline):
        with pytest.raises(paleo.SettingError, match="a device"):
            chart(paleo.summarize("nin"))


def test_layers_have_the_times_of_their_passes_in_one_unit(net: Any) -> None:
    summary = paleo.summarize(net(SMALL), device="K40", cost_model="roofline")
    chart = time_by_layer(summary)
    relu = summary.layers[2]
    assert relu.forward is not None
    assert (chart.kind, chart.x_label) == ("bars", "layer")
    assert chart.y_label == "time of a step without the update (\u00b5s)"
    assert chart.setting == "net, batch 2, fp32, on K40, cost model roofline, ppp_comp 1"
    assert values(chart)["forward"].keys() == {"fc", "relu"}
    assert values(chart)["forward"]["relu"] == pytest.approx(1e6 * relu.forward)
    assert chart.notes == ("1 of 3 layers takes no time and is left out",)
    every = time_by_layer(summary, ranks(summary, "time"))
    assert (every.series[0].x, every.notes) == (("data", "fc", "relu"), ())


def test_counts_need_no_device(net: Any) -> None:
    found = paleo.summarize(net(SMALL))
    # 16 parameters and 8 outputs of 4 bytes.
    assert values(memory_by_layer(found)) == {
        "weights": {"data": 0, "fc": 64, "relu": 0},
        "outputs": {"data": 24, "fc": 32, "relu": 32},
    }
    (outputs,) = memory_by_layer(paleo.summarize(net(STREAMS))).series  # no layer has weights
    assert outputs.name == "outputs"
    assert values(computation_by_layer(found)) == {"forward": {"fc": 48}}
    assert [chart.key for chart in of_summaries([found])] == ["memory", "flops"]


def test_memory_of_training_is_stacked_by_what_it_is_for(net: Any) -> None:
    chart = footprint_by_layer(footprint(net(SMALL), optimizer="adam"))
    found = values(chart)
    assert list(found) == ["weights", "gradients", "optimizer state", "activations"]
    assert [found[name]["fc"] for name in found][:3] == [64, 64, 128]
    inference = footprint_by_layer(footprint(net(SMALL), training=False))
    assert [series.name for series in inference.series] == ["weights", "activations"]
    assert inference.setting == "net, batch 2, inference, fp32"


def test_a_roofline_has_the_layers_that_take_longest_first() -> None:
    summary = paleo.summarize("vgg16", 32, device="K80", cost_model="roofline")
    chart = roofline(summary)
    forward, backward, roof = chart.series
    assert (chart.log_x, chart.log_y, roof.is_reference) == (True, True, True)
    longest = max(summary.layers, key=lambda layer: float(layer.forward or 0))
    assert forward.labels[0] == longest.name
    assert "data" not in forward.labels
    assert "softmax" not in forward.labels
    assert len(forward.x) == len(forward.y) == len(forward.labels)
    # A die of the K80 reaches 2.8 TFLOP/s and 240 GB/s, the module twice that.
    assert roof.name == "roof: 5.6 TFLOP/s, 480 GB/s"
    assert roof.x[1] == pytest.approx(5.6e12 / 480e9)
    assert roof.y[1:] == (5.6, 5.6)
    # roofline never is above the roof.
    assert not any("above the roof" in note for note in chart.notes)
    assert chart.notes[0] == "Roofline: the layers that take longest are named"
    for x, y in zip(forward.x + backward.x, forward.y + backward.y, strict=True):
        assert y is not None
        assert y <= (1 + 1e-9) * min(5.6, x * 0.48)


def test_a_net_without_flops_has_no_roofline(net: Any) -> None:
    summary = paleo.summarize(net(STREAMS), device="K40", cost_model="roofline")
    assert roofline(summary).is_empty
    assert [chart.key for chart in of_summaries([summary])] == ["time", "memory"]


@pytest.mark.parametrize("device", [None, "K40"])
def test_charts_side_by_side_have_the_same_rows(net: Any, device: str | None) -> None:
    first, second, *_ = of_summaries([paleo.summarize(net(SMALL), device=device)])
    assert {series.x for series in (*first.series, *second.series)} == {("data", "fc", "relu")}


def test_layers_above_the_roof_are_named(net: Any) -> None:
    summary = paleo.summarize(net(SMALL), device="K40", cost_model="roofline")
    roof, fc = summary.timed_on.roof, summary.reached[1]  # type: ignore[union-attr]
    assert roof is not None
    quick = replace(fc, seconds=fc.flops / roof.at(fc.intensity or 0) / 2)  # twice as quick
    quick_summary = replace(summary)
    quick_summary.__dict__["reached"] = (quick,)
    assert roofline(quick_summary).notes[2] == (
        "above the roof (fc): operands were in a cache, or an algorithm computes less than is "
        "counted"
    )
    assert roofline(quick_summary).notes[1] == "2 of 3 layers count no FLOPs and are no points"


def test_differences_are_totals_and_what_differs_by_layer() -> None:
    found = paleo.compare("alex_v2", device=["K40", "K80"], cost_model="roofline")
    totals, time = differences(found)  # neither memory nor parameters differ
    assert totals.setting == (
        "reference: alex_v2, K40; batch 128, fp32, cost model roofline, ppp_comp 1, sgd"
    )
    own = values(totals)
    assert list(own) == ["alex_v2, K80", "reference"]
    (difference,) = found.differences
    factor = difference.factors()["time_factor"]
    assert own["alex_v2, K80"]["time of a step"] == factor
    assert own["alex_v2, K80"]["parameters"] == 1
    assert set(own["reference"].values()) == {1}
    assert [series.name for series in time.series] == ["alex_v2, K40", "alex_v2, K80"]
    first = difference.layers[1]
    assert first.reference
    assert values(time)["alex_v2, K40"][first.name] == pytest.approx(
        1e3 * first.reference.figures.time
    )


def test_a_layer_that_one_net_lacks_has_no_value_there(net: Any) -> None:
    reference = net(SMALL)
    more = {**SMALL, "fc2": {"type": "InnerProduct", "parents": ["relu"], "num_outputs": 5}}
    _, *by_layer = differences(paleo.compare([reference, net(more)], cost_model="roofline"))
    params = next(chart for chart in by_layer if chart.key == "params")
    # Weights and biases: 3 * 4 + 4, and 4 * 5 + 5.
    assert values(params) == {
        "net (reference)": {"fc": 16, "fc2": None},
        "net (changed)": {"fc": 16, "fc2": 25},
    }
    assert params.notes == ("2 of 4 layers have no parameters and are left out",)


def test_of_many_layers_those_that_differ_are_shown() -> None:
    # 26 layers of SqueezeNet have parameters; twice the filters of the last one change it alone.
    net = paleo.load("squeezenet")
    last = [each for each in paleo.summarize(net).layers if each.num_params][-1]
    changed = paleo.edit(net, set=f"{last.name}.filter[3]=2000")
    charts = differences(paleo.compare([net, changed]))
    params = next(chart for chart in charts if chart.key == "params")
    assert params.series[0].x == (last.name,)
    assert params.notes[1].startswith("Parameters by layer: 25 of ")


def test_a_net_beside_itself_is_said_to_be_the_same() -> None:
    (totals,) = differences(paleo.compare(["lenet5", "lenet5"]))
    assert list(values(totals)) == ["lenet5 (the same)", "reference"]
    assert totals.setting.startswith("reference: lenet5 (reference); ")


def test_totals_alone_are_one_chart() -> None:
    (chart,) = differences(paleo.compare(["nin", "vgg16", "alex_v2"], totals=True))
    assert [series.name for series in chart.series] == ["vgg16", "alex_v2", "reference"]


def test_what_takes_no_time_cannot_be_drawn(net: Any) -> None:
    inputs = net({"data": {"type": "Input", "parents": [], "tensor": [2, 3]}})
    with pytest.raises(paleo.SettingError, match="Speedup of net: there is nothing to draw"):
        of_simulation(paleo.simulate(inputs))
    with pytest.raises(paleo.SettingError, match="Passes of net: there is nothing to draw"):
        of_simulation(paleo.simulate(inputs, parallel="model"))


@pytest.mark.parametrize("counts", [(2, 8), (8, 2), (2, 8, 4), (8, 2, 4)])
def test_the_best_scheme_on_most_workers_is_chosen_wherever_they_stand(
    counts: tuple[int, ...],
) -> None:
    # Of 8 workers the tree takes 1 s and one to all 2 s; of fewer it is the other way around.
    found = overview("lenet5", device="K80", epochs=1, dataset="mnist")
    (row, *_) = found.rows
    seconds = {True: {"OneToAll": 2.0, "TreeAllReduce": 1.0}, False: {"OneToAll": 1.0}}
    seconds[False]["TreeAllReduce"] = 2.0
    exchanges = {
        is_most: {name: Piece("exchange", TRANSFER, took) for name, took in by_scheme.items()}
        for is_most, by_scheme in seconds.items()
    }
    rows = tuple(
        replace(row, workers=k, exchanges=exchanges[k == 8], exchanging=None) for k in counts
    )
    found = replace(found, run=replace(found.run, rows=rows))
    assert (found.run.largest, found.run.best_scheme) == (rows[counts.index(8)], "TreeAllReduce")
    for chart in lines(*scaling_charts(found.run), *training_charts(found)):
        (chosen,) = [series for series in chart.series if series.chosen]
        assert (chosen.name, chosen.chosen) == ("TreeAllReduce", "the best on 8 workers")
        assert chosen.title == "TreeAllReduce (the best on 8 workers)"
    asked = [
        *scaling_charts(found.run, "OneToAll"),
        *training_charts(replace(found, scheme="OneToAll")),
    ]
    assert "Parts of a training step by OneToAll" in [chart.title for chart in asked]
    for chart in lines(*asked):
        assert [each.title for each in chart.series if each.chosen] == ["OneToAll (chosen)"]


def test_of_one_scheme_alone_there_is_nothing_to_choose() -> None:
    for chart in of_simulation(paleo.simulate("lenet5", workers=[1, 4], schemes="OneToAll")):
        assert not any(series.chosen for series in chart.series)


def test_the_best_is_the_best_exact_one_where_a_scheme_is_not() -> None:
    # Butterfly mixing is quicker, but its workers do not have the sum.
    charts = of_simulation(
        paleo.simulate("lenet5", workers=[1, 8], scaling="weak", cost_model="paleo2017")
    )
    for chart in lines(*charts):
        (chosen,) = [series.title for series in chart.series if series.chosen]
        assert chosen == "ButterflyAllReduce (the best exact on 8 workers)"
    (steps,) = [values(chart) for chart in charts if chart.key == "step"]
    assert (steps["ButterflyMixing"][8] or 0) < (steps["ButterflyAllReduce"][8] or 0)


def test_one_worker_has_one_line_for_all_schemes() -> None:
    found = overview(
        "lenet5", device="K80", cost_model="paleo2017", counts=1, epochs=1, dataset="mnist"
    )
    for chart in lines(*scaling_charts(found.run), *scaling_charts(found.run, "TreeAllReduce")):
        names = [series.title for series in chart.series if not series.is_reference]
        assert names == ["any scheme: one worker exchanges nothing"]
    time, _ = training_charts(found)
    assert [series.title for series in time.series] == ["any scheme: one worker exchanges nothing"]
    for chart in lines(*of_simulation(paleo.simulate("lenet5", workers=1, schemes="OneToAll"))):
        assert chart.series[0].title == "OneToAll"


def test_a_hybrid_step_is_the_sum_of_its_parts() -> None:
    run = paleo.simulate("alex_v2_4gpu", parallel="hybrid", hybrid_workers=4).runs[0]
    (chart,) = scaling_charts(run)
    data, model, step = chart.series[0].x
    assert step == "step: one after the other"
    for name, own in values(chart).items():
        assert own[step] == pytest.approx((own[data] or 0) + (own[model] or 0)), name
    assert chart.y_label == "time (ms)"
    assert run.step
    assert sum(own[step] or 0 for own in values(chart).values()) == pytest.approx(
        1e3 * run.step.seconds
    )


def test_steps_of_all_runs_are_in_the_unit_of_the_longest() -> None:
    # Of 1,000 workers, one to all takes seconds; one worker's step is some milliseconds.
    both: Any = {"workers": (1, 1000), "scaling": ("weak", "strong"), "schemes": "all"}
    charts = of_simulation(paleo.simulate("nin", **both))
    assert [chart.y_label for chart in charts if chart.key == "step"] == ["time of a step (s)"] * 2


def test_other_parallelisms_have_no_best_scheme() -> None:
    run = paleo.simulate("alex_v2_4gpu", parallel="model").runs[0]
    assert (run.largest, run.best_scheme) == (None, "")


def test_memory_is_stacked_below_its_peak_and_the_capacity() -> None:
    # In GiB: 1 of weights, 1 of gradients, 2 of activations and 0.5 of workspace are 4.5 at the end
    # of the forward pass; the peak is 5.5, of 12 on a K40.
    gib = 2**30
    layer = LayerMemory("fc", "InnerProduct", gib, gib, gib, 0, 2 * gib)
    found = Footprint(
        "a net", 8, "sgd", True, "fp32", gib // 2, 11 * gib // 2, "fc", "backward", (layer,)
    )  # fmt: skip
    chart = memory_chart([Fit(found, paleo.find_device("K40"), 20)])
    assert (chart.setting, chart.y_label) == ("training with sgd, fp32, on K40", "memory (GiB)")
    assert values(chart) == {
        "weights": {"a net, batch 8": 1},
        "gradients": {"a net, batch 8": 1},
        "activations": {"a net, batch 8": 2},
        "workspace": {"a net, batch 8": 0.5},
        "peak": {"a net, batch 8": 5.5},
        "memory of K40": {"a net, batch 8": 12},
    }
    assert [series.is_reference for series in chart.series] == [False] * 4 + [True] * 2


def test_metrics_are_drawn_as_far_as_they_are_known() -> None:
    cases: tuple[dict[str, Any], ...] = (
        {},
        {"epochs": 1, "dataset": "imagenet"},
        {"epochs": 1, "dataset": "imagenet", "price": 1},
    )
    keys = [
        [chart.key for chart in of_metrics(paleo.metrics("nin", workers=[1, 2], **settings))]
        for settings in cases
    ]
    assert keys == [["steps"], ["steps", "time"], ["steps", "time", "cost"]]
    (alone,) = of_metrics(paleo.metrics("nin", ppp_comm=0.5, use_pipeline=True, scaling="weak"))
    assert [series.name for series in alone.predictions] == [
        "computation"
    ]  # there is nobody to talk to
    scheme = "auto"
    assert alone.setting == (
        f"TITAN_X, ethernet, data-parallel, weak scaling, batch 128, {scheme}, fp32, "
        "cost model tiled, ppp_comp 1, ppp_comm 0.5, pipelined"
    )
    (chart,) = of_metrics(found := paleo.metrics("nin", workers=[1, 2]))
    assert "weak scaling, batch 128, " in chart.setting
    assert (chart.kind, chart.series[0].x) == ("columns", (1, 2))
    times = values(chart)
    exposed = 1e3 * found[1].exposed_communication
    assert times["exposed communication"][2] == pytest.approx(exposed)


def test_a_chart_of_zeros_is_empty() -> None:
    zero = Series("a", ("x",), (0.0,))
    roof = Series("roof", ("x",), (1.0,), is_reference=True)
    assert Chart("k", "bars", "T", "s", "x", "y", (zero, roof)).is_empty
    assert not Chart("k", "bars", "T", "s", "x", "y", (Series("a", ("x",), (-1.0,)),)).is_empty


def test_values_of_a_series_are_texts_too() -> None:
    # Three digits, whole from 100 on, nothing where there is no value.
    series = Series("a", (1, 2, 4, 8), (0.25, None, 0.0, 1234.2))
    assert series.to_dict() == {
        "name": "a",
        "x": [1, 2, 4, 8],
        "y": [0.25, None, 0.0, 1234.2],
        "texts": ["0.250", "", "0", "1,234"],
        "labels": [],
        "is_reference": False,
        "chosen": "",
    }


def test_the_largest_value_is_at_least_one_of_its_unit() -> None:
    for largest, unit in ((0.9, "ms"), (1.1, "s"), (2e-3, "ms"), (5e-8, "\u00b5s")):
        scale, _ = in_one_unit([[1e-6, None], [largest]], "s", by_largest=True)
        assert scale.unit == unit


@pytest.mark.parametrize(
    ("value", "text", "round_text"),
    [
        (0, "0", "0"), (1234567, "1,234,567", "1,234,567"), (0.25, "0.250", "0.25"),
        (12.5, "12.5", "12.5"), (0.00001, "0.0000100", "0.00001"), (-3.0, "-3.00", "-3"),
        (1e-12, "1.00e-12", "0.000000000001"),
    ],
)  # fmt: skip
def test_numbers_are_read_easily(value: float, text: str, round_text: str) -> None:
    assert (shown(value), plain(value)) == (text, round_text)


def test_what_is_counted_has_its_plural() -> None:
    assert [counted(number, "worker") for number in (0, 1, 2, 1000)] == [
        "0 workers", "1 worker", "2 workers", "1,000 workers",
    ]  # fmt: skip


def test_reached_is_a_value() -> None:
    assert Reached("a", "forward", 1, 2, 3.0) == Reached("a", "forward", 1, 2, 3.0)


def test_looks_go_by_name_and_not_by_place() -> None:
    assert looks_of(["weights", "activations", "a", "b"]) == {
        "weights": 2,
        "activations": 5,
        "a": 0,
        "b": 1,
    }
    known = Series("weights", ("x",), (1.0,))
    roof = Series("roof", ("x",), (1.0,), is_reference=True)
    chart = Chart("k", "bars", "T", "s", "x", "y", (Series("a", ("x",), (1.0,)), known, roof))
    assert [series["look"] for series in chart.to_dict()["series"]] == [0, 2, None]


def test_a_layer_without_parameters_makes_no_difference_of_them() -> None:
    # More layers with parameters than are all shown, of which none differs; one without is removed.
    fewer = paleo.edit("resnet50", remove="conv1_relu")
    charts = differences(paleo.compare(["resnet50", fewer]))
    assert [chart.key for chart in charts] == ["totals", "time", "memory"]


def deep(count: int) -> paleo.NetSpec:
    """Return a net of so many layers, of which each has more filters than the one before it."""
    layers: dict[str, Any] = {"data": {"type": "Input", "parents": [], "tensor": [1, 4, 4, 1]}}
    window = {"strides": [1, 1, 1, 1], "padding": "SAME"}
    for i in range(1, count):
        layers[f"conv{i}"] = {
            "type": "Convolution", "parents": [list(layers)[-1]], "filter": [1, 1, i, i + 1],
            **window,
        }  # fmt: skip
    return make_net(layers, "deep")


def test_of_many_layers_the_longest_have_bars_and_the_rest_is_summed() -> None:
    summary = paleo.summarize(deep(100), device="K40")
    time, memory, _ = of_summaries([summary])
    for chart in (time, memory):
        names = chart.series[0].x
        assert (len(names), chart.others, names[-1]) == (MOST_BARS, 61, "61 others")
        assert list(names[:-1]) == sorted(names[:-1], key=lambda name: int(name[4:]))  # the net's
        assert chart.notes[-1].endswith(
            "39 of 100 layers have bars of their own, the 61 others are summed in the last one"
        )
    assert time.series[0].x == memory.series[0].x
    by_name = {layer.name: layer for layer in summary.layers}
    for own, name in zip(memory.series, ("weights_bytes", "activations_bytes"), strict=True):
        whole = sum(getattr(layer, name) for layer in summary.layers)
        ratio = sum(value or 0 for value in own.y) / whole
        assert own.y[0] == pytest.approx(getattr(by_name[own.x[0]], name) * ratio)
    alone = time_by_layer(summary)
    seconds = {layer.name: layer.forward + layer.backward for layer in summary.layers}  # type: ignore[operator]
    least = min(seconds[name] for name in alone.series[0].x[:-1])
    assert least >= max(own for name, own in seconds.items() if name not in alone.series[0].x)


def test_two_bars_for_each_layer_are_no_more_than_bars_of_one() -> None:
    charts = differences(paleo.compare(deep(100), device=["K40", "K80"]))
    (time,) = [chart for chart in charts if chart.key == "time"]
    assert [len(series.x) for series in time.series] == [MOST_BARS // 2] * 2
    assert len(charts) == 2


def test_what_does_not_add_up_is_not_summed() -> None:
    metrics = paleo.metrics(["nin", "lenet5"], workers=list(range(1, 31)))
    steps = of_metrics(metrics)[0]
    assert steps.others == 0
    assert len(steps.series[0].x) == MOST_BARS
    assert "Training step of nin, lenet5: the first 40 of 60 plans are shown" in steps.notes


def test_a_step_over_workers_is_its_parts_and_its_band() -> None:
    run = paleo.simulate("nin", workers=[1, 4], scaling="weak", schemes="TreeAllReduce").runs[0]
    (chart,) = [chart for chart in scaling_charts(run) if chart.key == "parts"]
    assert (chart.kind, chart.title) == ("columns", "Parts of a training step of nin")
    own, (row, *_) = values(chart), [row for row in run.rows if row.workers == 4]
    hiding = "computation that hides communication"
    assert list(own) == ["computation", hiding, "exposed communication", "update", "step"]
    whole = row.whole_step("TreeAllReduce")
    unit = (own["step"][4] or 0) / whole.seconds
    parts = [own[name][4] or 0 for name in list(own)[:4]]
    assert sum(parts) == pytest.approx(own["step"][4])
    assert sum(parts[1:3]) == pytest.approx(unit * row.communication["TreeAllReduce"])
    assert parts[2] == pytest.approx(unit * row.exposed_communication("TreeAllReduce"))
    assert parts[3] == pytest.approx(unit * row["update"])
    assert whole.low is not None
    assert whole.high is not None
    assert chart.references[0].band[1] == pytest.approx((unit * whole.low, unit * whole.high))
    said = "bands of times, of computation: 80 % of measured cases took between "
    assert any(note.startswith(said) for note in chart.notes)


def test_an_axis_is_logarithmic_over_a_factor_of_ten_alone() -> None:
    flat = {
        chart.key: chart
        for chart in of_simulation(paleo.simulate("nin", scaling="weak", workers=[1, 2]))
    }
    assert [flat[key].log_x for key in ("speedup", "step")] == [False, False]
    assert [flat[key].log_y for key in ("speedup", "step")] == [False, False]
    steep = {chart.key: chart for chart in of_simulation(paleo.simulate("nin", schemes="all"))}
    for key in ("speedup", "step"):
        assert (steep[key].log_x, steep[key].log_y) == (True, True)
    assert is_wide([[1, None], [10]])
    assert not is_wide([[1.01], [10]])
    assert not is_wide([[None], [-1, 10]])


def test_plans_that_differ_have_lines_of_their_own() -> None:
    found = paleo.metrics(
        "nin", device=["K40", "K80"], workers=[1, 2], epochs=1, dataset="imagenet"
    )
    steps, time, *_ = of_metrics(found)
    assert [series.name for series in time.series] == ["K40", "K80"]
    assert steps.series[0].x[0] == "K40, 1 worker"
    assert steps.setting.startswith("ethernet, data-parallel")
    assert steps.references[0].band
