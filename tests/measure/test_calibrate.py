"""Calibration of a machine whose times are those of the cost model with known constants."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from modelled_executor import ALL, POINTS, Modelled, point

import paleo
from paleo.cluster import Device, Figure
from paleo.cluster.calibration_record import CalibrationRecord
from paleo.core.errors import ExecutorError
from paleo.costs.tiled.constants import CONSTANTS
from paleo.measure.calibrate import Calibration, calibrate, points, system
from paleo.measure.calibrate.file import to_toml
from paleo.measure.calibrate.measuring import ENOUGH
from paleo.measure.calibrate.points import COPY, PRODUCT, in_turn
from paleo.measure.calibrate.problem import ORDER, Problem, solved
from paleo.measure.executors import Executor
from paleo.measure.profile.setup import no_progress

pytest.importorskip("scipy", reason="needs SciPy")

#: Ten multiprocessors of 100 GFLOP/s each, 100 GB/s, and a cache of 10 MB.
BASE = Device(
    "ROUND",
    "Round",
    "gpu",
    "",
    {
        "base_clock": Figure(2e9, "Hz", "a test"),
        "multiprocessors": Figure(10, "count", "a test"),
        "memory_bandwidth": Figure(100e9, "bytes/s", "a test"),
        "cache": Figure(10e6, "bytes", "a test"),
    },
    {"fp32": {"vector": Figure(1e12, "FLOP/s", "a test")}},
)
#: What the machine is, as far as it is not what the cost model expects.
TRUE = {
    "vector_share": 0.7,
    "memory_share": 0.6,
    "launch": 8e-6,
    "convolution_share": 0.6,
    "cache_ratio": 4.0,
}
#: Each run of a point is off by 2 %.
NOISE = 0.02


def executor(**options: Any) -> Modelled:
    return Modelled(BASE, {**TRUE, **options.pop("true", {})}, **{"noise": NOISE} | options)


def calibrated(machine: Modelled, **options: Any) -> Calibration:
    settings: dict[str, Any] = {"points": POINTS, "busy": lambda: 0.01, "clock": machine.clock}
    return calibrate(machine.make, **settings | options)


@pytest.fixture(scope="module")
def whole() -> Calibration:
    """All points, with the figures of the device that the machine is."""
    return calibrated(executor(), device=BASE, name="mine")


@pytest.mark.slow
def test_a_fit_finds_the_constants_that_made_the_times(whole: Calibration) -> None:
    found = {each.name: each.value for each in whole.constants}
    # The median of 30 runs is off by 1.25 x 2 % / sqrt(30) = 0.5 %; a constant rests on several.
    for name, value in TRUE.items():
        assert found[name] == pytest.approx(value, rel=0.02), name
    for each in whole.constants:
        assert each.before == pytest.approx(
            {**{name: CONSTANTS[name].value for name in CONSTANTS}}[each.name]
        )
        assert each.least is not None
        assert each.most is not None
        assert each.least <= each.most
        assert each.bound == ""
    assert {each.name for each in whole.constants} <= set(ORDER)


@pytest.mark.slow
def test_errors_on_shapes_left_out_are_small_and_counted(whole: Calibration) -> None:
    errors = {each.kind: each for each in whole.record.errors}
    assert set(errors) == {"product", "convolution", "copy", "pointwise", "launch", "all"}
    counts = Counter(each.kind for each in whole.record.points)
    for kind, each in errors.items():
        assert each.points == (counts[kind] if kind != "all" else len(whole.record.points))
        assert each.held_out is not None
        # Five times the noise of a median.
        assert each.in_sample < 0.025
        assert each.held_out < 0.025
    assert errors["all"].before > 0.1
    assert whole.record.spread is not None
    assert whole.record.spread < 0.05
    assert not whole.record.forced


def test_every_point_is_recorded_with_its_shape_pass_time_and_prediction(
    whole: Calibration,
) -> None:
    first = whole.record.points[0]
    assert (first.kind, first.part, first.dtype) == ("product", "forward", "fp32")
    assert first.what == "InnerProduct num_outputs=1024 of 128x1024"
    assert first.predicted == pytest.approx(first.seconds, rel=0.05)
    assert first.held_out == pytest.approx(first.seconds, rel=0.05)
    assert first.spread is not None
    # 30 runs of which the quartiles are 2 x 0.67 standard deviations apart.
    assert 0.005 < first.spread < 0.08
    planned = sum(len(each.parts) for each in POINTS)
    assert len(whole.record.points) == planned


@pytest.mark.slow
def test_rates_that_no_data_sheet_gives_are_the_best_that_were_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known: system.Found = {
        "multiprocessors": (10, "threads"),
        "base_clock": (2e9, ""),
        "cache": (10e6, "L3"),
    }
    monkeypatch.setattr(system, "figures", lambda executor: known)
    found = calibrated(executor(hardware="Some GPU"))
    device, record = found.device, found.record
    assert (device.kind, device.architecture, record.base) == ("gpu", "", "")
    bandwidth, peak = device.figures["memory_bandwidth"], device.peaks["fp32"]["vector"]
    # The best copy of 64 MiB and more: 0.6 x 100 GB/s; the launch of 6 us is 0.3 % of it.
    assert bandwidth.value == pytest.approx(60e9, rel=0.02)
    # No product can be quicker than 0.7 x 1 TFLOP/s.
    assert 0.5e12 < peak.value < 0.7e12 * 1.02
    for figure in (bandwidth, peak):
        assert figure.source == f"measured by paleo calibrate, {record.date}"
        assert " of " in figure.note
    assert device.figures["multiprocessors"].source.startswith("read from the system")
    values = {each.name: each for each in found.constants}
    # A share of a rate that was measured may be all of it: that is no bound.
    assert values["memory_share"].value * bandwidth.value == pytest.approx(60e9, rel=0.02)
    assert values["vector_share"].value * peak.value == pytest.approx(0.7e12, rel=0.03)
    assert "memory_share" not in record.on_bound
    assert all(each.held_out is not None and each.held_out < 0.03 for each in record.errors)


@pytest.mark.slow
def test_a_constant_outside_its_bounds_is_flagged() -> None:
    slow = executor(true={"launch": 45e-6})
    found = calibrated(slow, device=BASE)
    assert {each.name: each.bound for each in found.constants}["launch"] == "upper"
    assert "launch" in found.record.on_bound
    assert found.device.constants["launch"].note == "on its upper bound"
    assert found.device.constants["launch"].value <= CONSTANTS["launch"].high


@pytest.mark.slow
def test_a_floor_below_all_times_stays_as_it_was(whole: Calibration) -> None:
    # Half and one and a half times as much of it would move everything, but the fit did not.
    assert "host" in ORDER
    assert "host" not in {each.name for each in whole.constants}


# The file.


def test_the_file_reads_to_the_same_device(whole: Calibration, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(whole.to_toml(), "utf-8")
    found = paleo.find_device(path)
    assert (found.name, found.title, found.kind) == ("mine", "Round, measured", "gpu")
    for name, figure in whole.device.figures.items():
        assert found.figures[name].value == pytest.approx(figure.value, rel=1e-9)
        assert found.figures[name].unit == figure.unit
    assert found.peak() == pytest.approx(whole.device.peak(), rel=1e-9)
    assert {name: figure.value for name, figure in found.constants.items()} == {
        name: figure.value for name, figure in whole.device.constants.items()
    }
    for each in whole.constants:
        assert found.constants[each.name].value == pytest.approx(each.value, rel=1e-5)
        assert (
            found.constants[each.name].source == f"measured by paleo calibrate, {found_date(found)}"
        )
    record, own = found.calibration, whole.record
    assert record is not None
    assert (record.source, record.hardware, record.base) == ("modelled on cuda", "Round", "ROUND")
    assert record.versions == {"modelled": "1.0"}
    assert (record.fitted, record.on_bound, record.notes) == (own.fitted, (), ())
    assert [(each.kind, each.points) for each in record.errors] == [
        (each.kind, each.points) for each in own.errors
    ]
    for read, written in zip(record.points, own.points, strict=True):
        assert (read.what, read.part, read.dtype) == (written.what, written.part, written.dtype)
        assert read.seconds == pytest.approx(written.seconds, rel=1e-4)
        assert read.predicted == pytest.approx(written.predicted, rel=1e-4)
        assert read.held_out == pytest.approx(written.held_out, rel=1e-4)
    # What a file reads to is written as the same text.
    assert to_toml(found) == to_toml(paleo.find_device(path))


def found_date(device: Device) -> str:
    assert device.calibration is not None
    return device.calibration.date


@pytest.mark.parametrize("name", ["TITAN_X", "T4", "H100_SXM", "CPU_I7", "K80"])
def test_any_device_can_be_written_and_read(name: str, tmp_path: Path) -> None:
    device = paleo.find_device(name)
    path = tmp_path / f"{name}.toml"
    path.write_text(to_toml(device), "utf-8")
    found = paleo.find_device(path)
    assert found.figures.keys() == device.figures.keys()
    for figures, others in (
        (found.figures, device.figures),
        (found.constants, device.constants),
        *((found.peaks[dtype], device.peaks[dtype]) for dtype in device.peaks),
    ):
        for key, figure in figures.items():
            assert figure.value == pytest.approx(others[key].value, rel=1e-9)
            assert (figure.source, figure.note) == (others[key].source, others[key].note)
    assert (found.own_prices, found.aliases, found.sources) == (
        device.own_prices, device.aliases, device.sources
    )  # fmt: skip
    if device.own_rates_2017:
        assert found.own_rates_2017 is not None
        assert found.own_rates_2017.clock == pytest.approx(device.own_rates_2017.clock)
        assert found.own_rates_2017.note == device.own_rates_2017.note


def test_texts_of_all_kinds_are_written(tmp_path: Path) -> None:
    odd = 'a "quoted" \\ name,\nof two lines\twith \x7f, \x01 and \N{GREEK SMALL LETTER MU}'
    record = CalibrationRecord("2026-01-31", odd, versions={odd: odd}, notes=(odd,))
    device = dataclasses.replace(
        BASE, name="odd", title=odd, sources={"a test": "a test", odd: odd}, calibration=record
    )
    path = tmp_path / "odd.toml"
    path.write_text(to_toml(device), "utf-8")
    found = paleo.find_device(path)
    assert (found.title, found.sources, found.calibration) == (odd, device.sources, record)


def test_wrong_entries_of_a_record_are_said(tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(
        """
[figures]
memory_bandwidth = "1 GB/s"
[peak.fp32]
vector = "1 TFLOP/s"
[calibration]
date = "yesterday"
spred = 0.1
spread = -1
seconds = 60
forced = "no"
notes = [1]
errors = [{ kind = "product", points = 0, in_sampel = 0.1 }]
points = [{ kind = "product", predicted = "1 GB" }, { seconds = "1 ms", predicted = "1 ms" }]
""",
        "utf-8",
    )
    with pytest.raises(paleo.HardwareError) as caught:
        paleo.find_device(path)
    found = [str(mistake).removeprefix(f"{path}: ") for mistake in caught.value.mistakes]
    first = 'key "calibration.points[0]'
    wanted = {
        "key \"calibration.spred\": unknown key (did you mean 'spread'?)",
        'key "calibration.date": expected a date such as 2016-11-28 or "2016-11", got "yesterday"',
        'key "calibration.spread": expected a number of 0 or more, got -1',
        'key "calibration.seconds": expected a text with a unit, such as "10 GB/s", got 60',
        'key "calibration.forced": expected true or false, got "no"',
        'key "calibration.notes": expected a list of texts',
        "key \"calibration.errors[0].in_sampel\": unknown key (did you mean 'in_sample'?)",
        'key "calibration.errors[0].points": expected 1 or more, got 0',
        f'{first}.seconds": expected a text with a unit, such as "10 GB/s", got null',
        f'{first}.predicted": expected a number with a unit, such as "10 us", got \'1 GB\'',
    }
    assert set(found) == wanted
    assert len(found) == len(wanted)


# A machine that cannot be trusted.


def test_a_machine_that_changes_its_pace_is_refused() -> None:
    changing = executor(slow_from=4000)
    with pytest.raises(paleo.PaleoError) as caught:
        calibrated(changing, device=BASE)
    assert "too busy to trust: " in str(caught.value)
    assert " took times that are " in str(caught.value)
    assert "more than 15 %" in str(caught.value)
    assert "--force" in str(caught.value)


@pytest.mark.slow
def test_with_force_the_file_records_that_the_machine_was_busy() -> None:
    found = calibrated(
        executor(place="cpu", slow_from=4000), device=BASE, force=True, busy=lambda: 0.4
    )
    assert found.record.forced
    assert found.record.busy == 0.4
    assert (found.record.spread or 0) > 0.4
    said = [note for note in found.record.notes if "too busy to trust" in note]
    assert len(said) == 2
    assert said[1] == "the machine was too busy to trust: others used 40 % of its CPUs"


def test_where_others_use_the_cpus_nothing_is_measured() -> None:
    busy = executor(place="cpu")
    with pytest.raises(paleo.PaleoError, match="others use 40 % of its CPUs, more than 25 %"):
        calibrated(busy, device=BASE, busy=lambda: 0.4)
    assert busy.runs == 0


@pytest.mark.slow
def test_what_others_do_to_the_cpus_is_nothing_to_a_gpu() -> None:
    found = calibrated(executor(), device=BASE, busy=lambda: 0.4)
    assert not found.record.forced
    assert found.record.busy == 0.4


# Time.


@pytest.mark.slow
def test_a_measurement_without_time_has_enough_of_every_kind() -> None:
    hurried = executor()
    found = calibrated(hurried, device=BASE, seconds=1e-6, force=True)
    counts = Counter(each.kind for each in found.record.points)
    kinds = {each.kind for each in POINTS}
    assert set(counts) == kinds
    assert all(counts[kind] >= ENOUGH for kind in kinds)
    assert len(found.record.points) < 40
    left = [note for note in found.record.notes if note.startswith("there was no time for")]
    assert len(left) == 1


@pytest.mark.slow
def test_a_measurement_takes_about_the_time_that_it_is_given() -> None:
    machine = executor()
    calibrated(machine, device=BASE, seconds=2.0)
    # Points are begun until then, and the references measured once more.
    assert 1.0 < machine.now < 2.5


def test_an_interrupt_before_there_is_enough_is_raised() -> None:
    with pytest.raises(KeyboardInterrupt):
        calibrated(executor(interrupt_at=500), device=BASE)


@pytest.mark.slow
def test_an_interrupt_leaves_what_there_is_if_that_is_enough() -> None:
    machine = executor(interrupt_at=20000)
    found = calibrated(machine, device=BASE)
    assert found.interrupted
    assert machine.runs == 20000
    assert any("was interrupted: " in note for note in found.record.notes)
    counts = Counter(each.kind for each in found.record.points)
    assert min(counts.values()) >= ENOUGH
    assert len(found.record.points) < sum(len(each.parts) for each in POINTS)


@pytest.mark.slow
def test_what_cannot_be_run_is_said_and_the_rest_goes_on() -> None:
    found = calibrated(executor(unknown=("Concatenate",)), device=BASE)
    said = [note for note in found.record.notes if note.startswith("not measured: Concatenate")]
    assert len(said) == 5
    assert all(note.endswith("(fp32): modelled knows no Concatenate") for note in said)
    assert not any(each.what.startswith("Concatenate") for each in found.record.points)


@pytest.mark.slow
def test_gradients_that_are_made_at_once_are_predicted_at_once() -> None:
    found = calibrated(executor(joins=True, noise=0.0), device=BASE)
    parts = {(each.kind, each.part) for each in found.record.points}
    assert ("product", "weight_gradient") in parts
    assert ("product", "input_gradient") not in parts
    assert ("pointwise", "input_gradient") in parts
    for each in found.record.points:
        assert each.predicted == pytest.approx(each.seconds, rel=0.02)


def test_where_nothing_can_be_run_the_first_reason_is_said() -> None:
    unknown = tuple({each.graph().nodes[-1].type_name for each in POINTS})
    with pytest.raises(ExecutorError, match=r"InnerProduct.*modelled knows no Inner"):
        calibrated(executor(unknown=unknown), device=BASE)


# Points.


@pytest.mark.parametrize("place", ["cpu", "cuda", "mps"])
def test_points_take_turns_between_the_kinds(place: str) -> None:
    found = points(place)
    kinds = list(dict.fromkeys(each.kind for each in found))
    assert [each.kind for each in found[: len(kinds)]] == kinds
    assert list(in_turn(found)) == list(found)
    assert {PRODUCT, COPY} <= {each.kind for each in found if each.reference}
    for each in found:
        for part in each.parts:
            assert each.operations(part, "fp32"), each.what
    assert len({(each.what, each.parts) for each in found}) == len(found)


def test_a_point_is_a_net_of_one_layer() -> None:
    small = point("product", {"type": "InnerProduct", "num_outputs": 5}, (2, 3), parts=ALL)
    graph = small.graph("fp16")
    assert [node.type_name for node in graph.nodes] == ["Input", "InnerProduct"]
    assert graph.element_size == 2
    assert small.what == "InnerProduct num_outputs=5 of 2x3"
    product, bias = small.operations("forward", "fp32")
    assert product.flops == 2 * 2 * 3 * 5
    assert bias.name == "bias"
    # 3 x 5 weights and 5 biases, each read twice and written.
    (update,) = small.operations("update", "fp32")
    assert (update.work.bytes_read, update.work.bytes_written) == (2 * 4 * 20, 4 * 20)
    wrong = point("product", {"type": "InnerProduct"}, (2, 3))
    with pytest.raises(paleo.NetSpecError, match="num_outputs"):
        wrong.graph()


class Recording(Modelled):
    """Counts the sets of operands of each layer that it is asked for."""

    def layer(self, graph: Any, node: Any, needed: Any) -> Any:
        self.asked = [*getattr(self, "asked", []), (node.type_name, node.inputs, needed)]
        return super().layer(graph, node, needed)


def test_operands_are_as_many_sets_as_a_point_says_unless_one_fills_any_cache() -> None:
    machine = Recording(BASE, TRUE)
    layer = {"type": "InnerProduct", "num_outputs": 64}
    small = point("product", layer, (8, 64), sets=6)
    # 2**26 inputs of 4 bytes are 256 MiB.
    large = point("product", layer, (2**20, 64), sets=6)
    copies = [each for each in POINTS if each.kind == "copy"]
    calibrated(machine, device=BASE, points=[small, large, *copies])
    asked = Counter(inputs for kind, inputs, _ in machine.asked if kind == "InnerProduct")
    # In each of two rounds.
    assert asked == {((8, 64),): 2 * 6, ((2**20, 64),): 2}
    assert all(needed == (True,) * len(inputs) for _, inputs, needed in machine.asked)


@pytest.mark.slow
@pytest.mark.alike
def test_two_element_types_have_a_peak_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "figures", lambda executor: {"multiprocessors": (10, "")})
    both = dataclasses.replace(
        BASE,
        peaks={**BASE.peaks, "bf16": {"matrix": Figure(4e12, "FLOP/s", "a test")}},
    )
    machines = {dtype: Modelled(both, TRUE, dtype=dtype) for dtype in ("fp32", "bf16")}

    def make(place: str | None, dtype: str) -> Executor:
        return machines[dtype]

    clock: Callable[[], float] = lambda: sum(each.now for each in machines.values())  # noqa: E731
    found = calibrate(make, dtypes=["fp32", "bf16"], points=POINTS, clock=clock, busy=lambda: None)
    assert {dtype: list(units) for dtype, units in found.device.peaks.items()} == {
        "fp32": ["vector"],
        "bf16": ["matrix"],
    }
    assert found.device.peak("bf16") > found.device.peak("fp32")
    assert {each.dtype for each in found.record.points} == {"fp32", "bf16"}
    assert found.record.busy is None


# What can be fitted.


def problem(rows: Sequence[tuple[str, str, float]], moved: dict[str, int]) -> Problem:
    """Return measurements that constants multiply: each of the first so many rows."""
    import numpy as np

    measured = np.array([seconds for *_, seconds in rows])

    def learn(_: Any) -> Any:
        def chosen(places: Any) -> Any:
            def predict(values: Any) -> Any:
                trials = max((len(value) for value in values.values()), default=1)
                found = np.ones((trials, len(places)))
                for name, count in moved.items():
                    value = values.get(name, np.array([CONSTANTS[name].value]))
                    mask = places < count
                    found[:, mask] *= (value / CONSTANTS[name].value)[:, None]
                return found

            return predict

        return BASE, chosen

    return Problem(measured, [row[0] for row in rows], [row[1] for row in rows], learn)


def test_as_many_constants_are_fitted_as_there_are_three_rows_for_each() -> None:
    moved = {"launch": 12, "memory_share": 9, "vector_share": 6, "load_share": 12}
    rows = [("any", f"shape {i}", 1 + 0.1 * i) for i in range(11)]
    # Three for eleven, in the order of importance.
    found = solved(problem(rows, moved), no_progress)
    assert [each.name for each in found.constants] == ["vector_share", "memory_share", "launch"]
    found = solved(problem(rows[:5], moved), no_progress)
    assert [each.name for each in found.constants] == ["vector_share"]


def test_a_constant_that_moves_fewer_than_three_rows_is_not_fitted() -> None:
    rows = [("any", f"shape {i}", 1.2) for i in range(9)]
    found = solved(problem(rows, {"vector_share": 2, "launch": 9}), no_progress)
    assert [each.name for each in found.constants] == ["launch"]
    assert found.constants[0].value == pytest.approx(1.2 * CONSTANTS["launch"].value, rel=0.01)
    with pytest.raises(paleo.PaleoError) as caught:
        solved(problem(rows, {"vector_share": 2}), no_progress)
    assert str(caught.value) == (
        "no constant can be fitted to 9 measurements: it takes 3 that a constant moves"
    )
    with pytest.raises(paleo.PaleoError, match="to 2 measurements"):
        solved(problem(rows[:2], {"launch": 9}), no_progress)


def test_a_kind_of_one_shape_has_no_error_on_others() -> None:
    rows = [("many", f"shape {i}", 1.1) for i in range(8)]
    rows += [("single", "the same", 1.1), ("single", "the same", 1.2)]
    found = solved(problem(rows, {"launch": 10}), no_progress)
    errors = {each.kind: each for each in found.errors}
    assert errors["single"].points == 2
    assert errors["single"].held_out is None
    assert errors["many"].held_out is not None
    assert "single: only one shape, so that none can be left out" in found.notes


def test_a_fit_that_is_of_no_use_to_other_shapes_says_so() -> None:
    # Most rows were right as they were; a third, which no constant tells from them, was not.
    rows = [("any", f"shape {i}", (1.0, 1.0, 3.0)[i % 3]) for i in range(9)]
    found = solved(problem(rows, {"launch": 9}), no_progress)
    (note,) = found.notes
    assert "no less than those before the fit (0.0 %)" in note


def test_of_two_rounds_the_quicker_counts() -> None:
    from paleo.measure.calibrate.measuring import Measuring
    from paleo.measure.profile.setup import no_progress

    # All is slower by half from some run of the first round on, until the second has begun.
    machine = executor(slow_from=4000, slow_until=14000)
    steady = executor()
    found, known = (
        Measuring({"fp32": each}, POINTS, 60.0, each.clock).run(no_progress)
        for each in (machine, steady)
    )
    ratios = [
        one.timing.median / other.timing.median
        for one, other in zip(found.samples, known.samples, strict=True)
    ]
    assert max(ratios) < 1.1


def test_nets_of_blocks_are_measured_whole() -> None:
    from paleo.measure.calibrate.points import points
    from paleo.measure.executors.executor import INFERENCE, STEP

    nets = [each for each in points("cpu") if each.net]
    assert nets
    assert all(each.parts == (INFERENCE, STEP) for each in nets)
    net = next(each for each in nets if each.what.startswith("residual blocks: 84 layers"))
    # Twelve blocks of two convolutions of 3 x 3 x 32 x 32, each with a scale and a shift a channel.
    graph = net.graph()
    assert graph.num_params == 12 * 2 * (9 * 32 * 32 + 2 * 32)
    forward, step = (net.operations(part, "fp32") for part in net.parts)
    assert len([each for each in forward if each.name == "convolution"]) == 24
    # Forward, and two gradients; the first layer has none of its input.
    assert len([each for each in step if each.name == "convolution"]) == 24 + 24 + 23
    # In inference a normalization reads its input once.
    assert {len(each.reads) for each in forward if each.name == "batchnorm"} == {1}


@pytest.mark.slow
@pytest.mark.alike
def test_what_a_net_takes_is_predicted_of_inference_and_of_a_step() -> None:
    from paleo.measure.calibrate.points import points

    net = next(each for each in points("cpu") if each.net)
    machine = executor(noise=0.0)
    found = calibrated(machine, device=BASE, points=[*POINTS, net])
    own = {each.part: each for each in found.record.points if each.kind == "net"}
    assert set(own) == {"inference", "step"}
    # Each is predicted from the operations of the pass that was run, by the constants found.
    for each in own.values():
        assert each.predicted == pytest.approx(each.seconds, rel=0.03)
    assert own["step"].seconds > 2 * own["inference"].seconds
