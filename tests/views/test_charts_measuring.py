"""Pictures of what is measured: layers, whole steps and calibrations, predicted beside measured.

The executors are those of fake_executor.py and modelled_executor.py, and so is the time.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click.testing
import fake_executor
import pytest
from fake_executor import INFERENCE, PARTS, SECONDS, STOP, Clock
from modelled_executor import POINTS, Modelled
from validation import device_file, hide

import paleo
from paleo.cli import cli
from paleo.measure.calibrate import Calibration, calibrate, calibration, system
from paleo.measure.profile import fullpass, profile
from paleo.views.charts.base import Chart
from paleo.views.charts.measuring import of_calibration, of_fullpasses, of_profiles
from paleo.views.charts_in_text import text_chart

#: A product with bias and a ReLU: 2 samples of 3 features, 4 outputs.
SMALL: dict[str, dict[str, Any]] = {
    "data": {"type": "Input", "parents": [], "tensor": [2, 3]},
    "fc": {"type": "InnerProduct", "parents": ["data"], "num_outputs": 4},
    "relu": {"type": "Activation", "parents": ["fc"], "function": "relu"},
}
NO_IMAGE = "a plot is a file that ends in one of .png, .svg, .pdf"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return fake_executor.register(monkeypatch)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Write a net into a folder that no picture goes to, go to another one, return its path."""
    (tmp_path / "nets").mkdir()
    (tmp_path / "pictures").mkdir()
    monkeypatch.chdir(tmp_path / "pictures")

    def write(layers: dict[str, Any] | None = None, name: str = "net") -> str:
        path = tmp_path / "nets" / f"{name}.json"
        path.write_text(json.dumps({"name": name, "layers": layers or SMALL}))
        return str(path)

    return write


def behind(**layers: str) -> dict[str, Any]:
    """Return SMALL with ReLUs of these names behind it, each of its parent."""
    more = {
        name: {"type": "Activation", "parents": [parent], "function": "relu"}
        for name, parent in layers.items()
    }
    return SMALL | more


def chain(count: int) -> dict[str, Any]:
    """Return a net of so many layers, products and ReLUs in turn, with the input."""
    layers, last = {"data": SMALL["data"]}, "data"
    for i in range(1, count):
        name = f"block_{i // 10}/layer_{i:03}"
        kind = {"type": "InnerProduct", "num_outputs": 2 + 37 * i % 41} if i % 2 else SMALL["relu"]
        layers[name] = {**kind, "parents": [last]}
        last = name
    return layers


def call(*arguments: str, status: int = 0) -> click.testing.Result:
    result = click.testing.CliRunner().invoke(cli, arguments, prog_name="paleo")
    assert result.exit_code == status, result.output + result.stderr
    return result


def values(chart: Chart) -> dict[str, dict[Any, float | None]]:
    return {series.name: dict(zip(series.x, series.y, strict=True)) for series in chart.series}


def points(chart: Chart) -> dict[str, dict[str, tuple[float, float | None]]]:
    return {
        each.name: dict(zip(each.labels, zip(each.x, each.y, strict=True), strict=True))
        for each in chart.series
        if not each.is_reference
    }


def milliseconds(seconds: float | None) -> Any:
    assert seconds is not None
    return pytest.approx(1e3 * seconds)


# Layer by layer


def test_layers_have_predicted_and_measured_bars_in_one_unit(clock: Clock, net: Any) -> None:
    found = profile(net(SMALL), executors=["fake", "slow"], device="K40", num_iter=3)
    bars, fake, slow = of_profiles(found.runs)
    rows = {row.layer: row for row in found.runs[0].rows}
    assert (bars.kind, bars.x_label) == ("grouped", "layer")
    assert bars.y_label == "time of the forward pass (ms)"
    assert bars.setting == (
        "net, batch 2, fp32, on K40, cost model tiled, ppp_comp 1, measured by fake on Some CPU "
        "9000 (cpu), measured by slow on Some CPU 9000 (cpu), medians of 3 runs"
    )
    drawn = values(bars)
    assert list(drawn) == ["predicted", "measured by fake", "measured by slow"]
    for layer in ("fc", "relu"):
        assert drawn["predicted"][layer] == milliseconds(rows[layer].predicted)
        assert drawn["measured by fake"][layer] == milliseconds(SECONDS[layer] + STOP)
        assert drawn["measured by slow"][layer] == milliseconds(2 * SECONDS[layer] + STOP)
    # The input takes no time; that two processors are compared stands in the picture, too.
    assert "1 of 3 layers takes no time and is left out" in bars.notes
    assert any("two different processors" in note for note in bars.notes)
    assert fake.setting == slow.setting == bars.setting  # side by side
    assert (fake.x_label, fake.y_label) == ("measured (ms)", "predicted by tiled (ms)")


def test_points_are_by_type_and_those_that_are_most_apart_are_first(clock: Clock, net: Any) -> None:
    found = profile(net(behind(slow="relu", late_not="slow")), executors="fake", device="K40")
    _, chart = of_profiles(found.runs)
    assert (chart.kind, chart.log_x, chart.log_y) == ("points", True, True)
    assert chart.title == "Predicted against measured by fake"
    drawn = points(chart)
    assert {name: list(own) for name, own in drawn.items()} == {
        "InnerProduct (1)": ["fc"],
        "Activation (3)": ["relu", "slow", "late_not"],  # 2 ms, then 1 ms each
    }
    row = found.runs[0].rows[1]
    assert drawn["InnerProduct (1)"]["fc"] == (
        milliseconds(row.seconds("fake")),
        milliseconds(row.predicted),
    )
    reference = chart.series[-1]
    assert reference.is_reference
    assert reference.x == reference.y
    every = [value for own in drawn.values() for point in own.values() for value in point if value]
    assert reference.x[0] < min(every) < max(every) < reference.x[1]
    ratio = found.runs[0].sums("fake").ratio
    assert any(note.startswith(f"fake / predicted: {ratio:,.0f}, ") for note in chart.notes)


def test_without_an_executor_the_predictions_are_drawn_alone(net: Any) -> None:
    (chart,) = of_profiles(profile(net(SMALL), device="K40", direction="all").runs)
    assert list(values(chart)) == ["predicted"]
    assert chart.title == "Time by layer, predicted"
    assert chart.setting == "net, batch 2, fp32, on K40, cost model tiled, ppp_comp 1"
    assert chart.y_label.startswith("time of a training step (")


@pytest.mark.parametrize(
    ("direction", "gradient", "what"),
    [
        ("backward", "data", "the input gradient"),
        ("backward", "filter", "the weight gradient"),
        ("backward", "both", "the backward pass"),
        ("forward", "data", "the forward pass"),
    ],
)
def test_the_axis_says_what_is_timed(direction: str, gradient: str, what: str) -> None:
    found = profile("lenet5", direction=direction, gradient_wrt=gradient)
    (chart,) = of_profiles(found.runs)
    assert chart.y_label.startswith(f"time of {what} (")


def test_several_passes_are_together_in_bars_and_apart_in_points(clock: Clock, net: Any) -> None:
    joint = {**SMALL, "joint": {**SMALL["fc"], "parents": ["relu"]}}
    found = profile(net(joint), executors="fake", device="K40", direction="all", num_iter=2)
    bars, chart = of_profiles(found.runs)
    (run,) = found.runs
    drawn = values(bars)
    fc = SECONDS["fc"]
    # Forward, the weight gradient and the update, each with a stop; nobody needs the input's.
    assert drawn["measured by fake"]["fc"] == milliseconds(fc + 3 * fc + fc / 4 + 3 * STOP)
    assert drawn["predicted"]["fc"] == milliseconds(
        sum(row.predicted for row in run.rows if row.layer == "fc")
    )
    # The joint one's input gradient is in its weight gradient, and so nothing is missing.
    other = SECONDS[""]
    assert drawn["measured by fake"]["joint"] == milliseconds(4.25 * other + 3 * STOP)
    assert list(points(chart)) == [
        "forward (3)", "input gradient (1)", "weight gradient (2)", "update (2)",
    ]  # fmt: skip
    (row,) = [r for r in run.rows if (r.layer, r.direction) == ("joint", "weight_gradient")]
    assert row.compared("fake") > row.predicted
    assert points(chart)["weight gradient (2)"]["joint"][1] == milliseconds(row.compared("fake"))


def test_a_layer_that_was_not_run_whole_has_no_measured_bar(clock: Clock, net: Any) -> None:
    found = profile(net(behind(odd="relu", late="odd")), executors="fake", direction="all")
    bars, chart = of_profiles(found.runs)
    drawn = values(bars)
    assert drawn["measured by fake"]["odd"] is None
    assert drawn["measured by fake"]["late"] is None  # its gradient was measured
    assert drawn["predicted"]["late"] is not None
    assert "late" in points(chart)["input gradient (2)"]
    assert any(note.startswith("fake did not run odd: ") for note in bars.notes)


def test_what_nothing_is_predicted_for_has_no_point(clock: Clock, net: Any) -> None:
    layers = SMALL | {"flat": {"type": "Flatten", "parents": ["relu"]}}
    bars, chart = of_profiles(profile(net(layers), executors="fake", device="K40").runs)
    assert values(bars)["predicted"]["flat"] == 0
    assert not any("flat" in own for own in points(chart).values())
    said = "1 time that fake measured has no point: nothing is predicted there"
    assert said in chart.notes


def test_of_many_types_those_of_least_time_are_one_group(clock: Clock, net: Any) -> None:
    found = profile(net(chain(15)), executors="fake", device="K40")
    (run,) = found.runs
    rows = [
        replace(row, type_name=f"Type{i}" if i else row.type_name) for i, row in enumerate(run.rows)
    ]
    _, chart = of_profiles([replace(run, rows=tuple(rows))])
    names = list(points(chart))
    assert len(names) == 10
    assert names[-1] == "5 others (5)"


def test_nothing_to_draw_is_said(clock: Clock, net: Any) -> None:
    only = {"data": SMALL["data"]}
    for runs in ((), profile(net(only), executors="fake").runs):
        with pytest.raises(paleo.SettingError, match="there is nothing to draw"):
            of_profiles(runs)
    with pytest.raises(paleo.SettingError, match="there is nothing to draw"):
        of_fullpasses([])
    # One that takes time is drawn alone.
    found = profile([net(only, "only"), net(SMALL)], device="K40")
    assert [chart.setting.split(",")[0] for chart in of_profiles(found.runs)] == ["net"]


# In one piece


def test_a_step_is_drawn_with_its_parts(clock: Clock, net: Any) -> None:
    found = fullpass(net(SMALL), executors="fake", device="K40", num_iter=2)
    (chart,) = of_fullpasses(found.runs)
    drawn = values(chart)
    assert list(drawn["predicted"]) == [*PARTS, "step"]
    assert drawn["predicted"]["loss"] is None
    assert "not predicted: loss" in chart.notes
    assert chart.y_label == "time (ms)"
    for name, seconds in (PARTS | {"step": sum(PARTS.values())}).items():
        assert drawn["measured by fake"][name] == milliseconds(seconds + STOP)
    for part in found.runs[0].parts:
        if part.predicted is not None:
            assert drawn["predicted"][part.name] == milliseconds(part.predicted)
    assert found.runs[0].band
    assert f"error band of predicted times: {found.runs[0].band.said}" in chart.notes
    assert chart.setting == (
        "net, batch 2, fp32, on K40, cost model tiled, ppp_comp 1, measured by fake on Some CPU "
        "9000 (cpu), medians of 2 runs"
    )


def test_steps_of_several_nets_stand_beside_each_other_first(clock: Clock, net: Any) -> None:
    found = fullpass([net(SMALL), net(SMALL, "huge")], executors="fake", device="K40")
    steps, *parts = of_fullpasses(found.runs)
    assert (steps.title, steps.y_label) == ("Training steps", "time of a training step (ms)")
    drawn = values(steps)
    assert list(drawn["predicted"]) == ["net, batch 2", "huge, batch 2"]
    whole = milliseconds(sum(PARTS.values()) + STOP)
    assert drawn["measured by fake"] == {"net, batch 2": whole, "huge, batch 2": None}
    assert [chart.setting.split(",")[0] for chart in parts] == ["net", "huge"]
    assert list(values(parts[1])) == ["predicted"]
    assert any("it does not fit" in note for note in parts[1].notes)


@pytest.mark.parametrize("count", [1, 2])
def test_inference_is_one_chart_of_all_nets(clock: Clock, net: Any, count: int) -> None:
    nets = [net(SMALL, name) for name in ("one", "two")[:count]]
    (chart,) = of_fullpasses(fullpass(nets, executors="fake", inference=True).runs)
    assert chart.y_label == "time of inference (ms)"
    measured = values(chart)["measured by fake"]
    assert measured["one, batch 2"] == milliseconds(INFERENCE + STOP)
    assert len(measured) == count


def test_an_interrupted_step_says_up_to_how_many_runs(clock: Clock, net: Any) -> None:
    clock.reset(interrupt_at=4 * (10 + 3))
    (chart,) = of_fullpasses(fullpass(net(SMALL), executors="fake", num_iter=10).runs)
    assert "medians of up to 10 runs" in chart.setting
    assert any(note.startswith("interrupted after ") for note in chart.notes)


# Calibrations


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Modelled:
    pytest.importorskip("scipy", reason="needs SciPy")
    device = paleo.find_device(device_file(tmp_path))
    made = Modelled(device, {"vector_share": 0.6, "launch": 7e-6}, noise=0.02)
    monkeypatch.setattr(calibration, "find_executor", lambda name, place, dtype: made)
    monkeypatch.setattr(calibration, "perf_counter", made.clock)
    monkeypatch.setattr(calibration, "standard_points", lambda place: POINTS)
    monkeypatch.setattr(system, "busy", lambda: 0.02)
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path / "out")
    return made


def calibrated(tmp_path: Path) -> Calibration:
    return calibrate("torch", device=device_file(tmp_path), name="mine")


@pytest.mark.slow
@pytest.mark.alike
def test_points_of_a_calibration_are_by_kind(machine: Modelled, tmp_path: Path) -> None:
    found = calibrated(tmp_path)
    fitted, others = of_calibration(found)
    error = found.record.errors[-1]
    assert fitted.title == f"By the fitted constants: median error {100 * error.in_sample:.1f} %"
    assert error.held_out is not None
    assert others.title == (
        f"By constants fitted to other shapes: median error {100 * error.held_out:.1f} %"
    )
    assert fitted.setting == others.setting
    assert fitted.setting == (
        f"mine: Round, modelled on cuda, {found.record.date}, fp32, "
        f"{len(found.record.fitted)} constants of cost model tiled fitted"
    )
    kinds = {each.kind: each.points for each in found.record.errors if each.kind != "all"}
    named = [f"{kind} ({count})" for kind, count in kinds.items()]
    for chart in (fitted, others):
        assert [series.name for series in chart.series] == [*named, "predicted as measured"]
    product = fitted.series[0]
    factor = {"measured (ms)": 1e3, "measured (\u00b5s)": 1e6}[fitted.x_label]
    expected = {
        (point.seconds, point.predicted) for point in found.record.points if point.kind == "product"
    }
    assert sorted(product.x) == pytest.approx(sorted(factor * x for x, _ in expected))
    assert sorted(filter(None, product.y)) == pytest.approx(sorted(factor * y for _, y in expected))


@pytest.mark.slow
@pytest.mark.alike
def test_a_kind_of_one_shape_is_drawn_by_its_own_fit_alone(
    machine: Modelled, tmp_path: Path
) -> None:
    found = calibrated(tmp_path)
    record = found.record
    alone = replace(record, points=tuple(replace(point, held_out=None) for point in record.points))
    device = replace(found.device, calibration=alone)
    assert len(of_calibration(replace(found, device=device))) == 1


# Commands


@pytest.mark.slow
@pytest.mark.parametrize("command", ["profile", "fullpass"])
def test_commands_draw_beside_their_table(
    clock: Clock, file: Callable[..., str], command: str
) -> None:
    pytest.importorskip("matplotlib", reason="needs Matplotlib")
    arguments = (command, file(), file(name="other"), "--executor=fake", "--device=K40")
    plain = call(*arguments).stdout
    for ending, start in (("svg", b"<?xml"), ("png", b"\x89PNG"), ("pdf", b"%PDF")):
        clock.reset()
        assert call(*arguments, f"--plot=plot.{ending}").stdout == plain
        assert Path(f"plot.{ending}").read_bytes().startswith(start)
    assert len(list(Path.cwd().iterdir())) == 3
    # JSON, too, goes with a picture.
    assert json.loads(call(*arguments, "--format=json", "--plot=plot.svg").stdout)["nets"]


@pytest.mark.parametrize("command", ["profile", "fullpass"])
def test_commands_draw_with_characters(
    clock: Clock, file: Callable[..., str], command: str
) -> None:
    arguments = (command, file(), "--executor=fake", "--device=K40")
    plain = call(*arguments).stdout
    clock.reset()
    drawn = call(*arguments, "--plot=-").stdout
    assert drawn.startswith(plain)
    assert "measured by fake" in drawn
    assert "▓▓" in drawn
    clock.reset()
    said = call(*arguments, "--plot=-", "--format=csv", status=2)
    assert "--plot - goes with tables only" in said.stderr
    assert clock.runs == []


@pytest.mark.parametrize("command", ["profile", "fullpass"])
def test_a_picture_that_cannot_be_is_said_before_anything_is_measured(
    clock: Clock, file: Callable[..., str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    pytest.importorskip("matplotlib", reason="needs Matplotlib")

    def said(*arguments: str, nets: int = 1) -> str:
        result = call(command, *[file()] * nets, "--executor=fake", *arguments, status=1)
        assert (result.stdout, clock.runs, list(Path.cwd().iterdir())) == ("", [], [])
        (line,) = result.stderr.splitlines()
        return line.removeprefix("paleo: ")

    assert said("--plot=plot.gif") == f"plot.gif: {NO_IMAGE}"
    assert (
        said("--plot=none/plot.svg") == "none/plot.svg: cannot be written: there is no folder none"
    )
    many = {"profile": (13, 26), "fullpass": (24, 25)}[command]
    assert said("--plot=plot.svg", nets=many[0]) == (
        f"plot: {many[1]} charts are too many for one picture (at most 24); choose fewer nets or "
        "settings"
    )
    hide(monkeypatch, "matplotlib")
    assert said("--plot=plot.svg").startswith("a plot needs Matplotlib; ")


@pytest.mark.slow
def test_inference_of_many_nets_is_one_picture(clock: Clock, file: Callable[..., str]) -> None:
    pytest.importorskip("matplotlib", reason="needs Matplotlib")
    nets = [file()] * 30
    call("fullpass", *nets, "--executor=fake", "--inference", "--num_iter=1", "--plot=all.svg")
    assert Path("all.svg").exists()


@pytest.mark.parametrize("command", ["profile", "fullpass"])
def test_an_interrupt_draws_what_there_is(
    clock: Clock, file: Callable[..., str], command: str
) -> None:
    pytest.importorskip("matplotlib", reason="needs Matplotlib")
    arguments = (command, file(), file(name="other"), "--executor=fake", "--plot=plot.svg")
    clock.reset(interrupt_at=0)
    call(*arguments, status=130)
    assert list(Path.cwd().iterdir()) == []  # nothing is measured: there is nothing to draw
    clock.reset(interrupt_at=4 * (10 + 7))
    assert "interrupted" in call(*arguments, status=130).stdout
    assert Path("plot.svg").exists()


@pytest.mark.slow
def test_where_nothing_was_measured_the_predictions_are_drawn(
    clock: Clock, file: Callable[..., str]
) -> None:
    pytest.importorskip("matplotlib", reason="needs Matplotlib")
    net = file({"data": SMALL["data"], "odd": SMALL["fc"]})
    call("profile", net, "--executor=fake", "--plot=plot.svg", status=1)
    assert Path("plot.svg").exists()


@pytest.mark.slow
@pytest.mark.alike
def test_calibrate_draws_its_points(machine: Modelled) -> None:
    pytest.importorskip("matplotlib", reason="needs Matplotlib")
    arguments = ("calibrate", "-o", "mine.toml", "--device", "../round.toml")
    result = call(*arguments, "--plot=points.png")
    assert result.stdout.startswith("mine is calibrated: ")
    assert "\n\nmine: Round, modelled on cuda, " in result.stdout
    assert Path("points.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(each.name for each in Path.cwd().iterdir()) == ["mine.toml", "points.png"]
    drawn = call(*arguments, "--plot=-").stdout
    assert "By the fitted constants: median error" in drawn
    assert "product (" in drawn


def test_calibrate_says_what_cannot_be_drawn_before_it_measures(
    machine: Modelled, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib", reason="needs Matplotlib")

    def said(*arguments: str, status: int = 1) -> str:
        result = call("calibrate", "--device=../round.toml", *arguments, status=status)
        assert (result.stdout, machine.runs, list(Path.cwd().iterdir())) == ("", 0, [])
        (line,) = result.stderr.splitlines()
        return line.removeprefix("paleo: ")

    assert said("-o", "a.toml", "--plot=points.bmp") == f"points.bmp: {NO_IMAGE}"
    assert said("-o", "a.toml", "--plot=no/a.png").startswith("no/a.png: cannot be written: ")
    assert said("-o", "a.svg", "--plot=./a.svg", status=2).startswith(
        "--output and --plot both name ./a.svg"
    )
    hide(monkeypatch, "matplotlib")
    assert said("-o", "a.toml", "--plot=a.svg").startswith("a plot needs Matplotlib; ")


# Pictures


@pytest.mark.slow
@pytest.mark.alike
@pytest.mark.parametrize("count", [2, 5, 150])
@pytest.mark.parametrize("direction", ["forward", "all"])
def test_nothing_overlaps_whatever_the_number_of_layers(
    clock: Clock, net: Any, count: int, direction: str
) -> None:
    pytest.importorskip("matplotlib", reason="needs Matplotlib")
    from paleo.views import plots
    from tests.views.test_plots import overlapping

    executors = ["fake", "slow"]
    found = profile(
        net(chain(count)), executors=executors, device="K40", direction=direction,
        num_warmup=0, num_iter=1,
    )  # fmt: skip
    assert overlapping(plots.profile(found)) == []
    assert overlapping(plots.profile(found.runs[0])) == []
    both = fullpass([net(SMALL), net(SMALL, "other")], executors=executors, num_iter=1)
    assert overlapping(plots.fullpass(both)) == []
    assert overlapping(plots.fullpass(both.runs[0])) == []


@pytest.mark.slow
@pytest.mark.alike
def test_a_calibration_is_a_picture(machine: Modelled, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs Matplotlib")
    from paleo.views import plots
    from tests.views.test_plots import overlapping

    figure = plots.calibration(calibrated(tmp_path))
    assert overlapping(figure) == []
    first, second = figure.axes
    marks = [[line.get_marker() for line in axes.lines] for axes in (first, second)]
    assert marks[0] == marks[1]
    assert len({*marks[0]}) == len(marks[0])  # told apart without colours


def test_lines_of_characters_fit(clock: Clock, net: Any) -> None:
    found = profile(net(chain(30)), executors="fake", device="K40", direction="all", num_iter=1)
    text = text_chart(of_profiles(found.runs), 72)
    assert max(map(len, text.splitlines())) <= 72
