"""`paleo calibrate`: what it prints, writes and refuses; timings of one's own."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import click.testing
import numpy as np
import pytest
from modelled_executor import POINTS, Modelled
from validation import device_file, hide, write

import paleo
from paleo.cli import cli
from paleo.core.operations import Pass
from paleo.costs import Target
from paleo.measure.calibrate import calibrate_from, calibration, system
from paleo.measure.validate import cases_of, predict, read_measurements

pytest.importorskip("scipy", reason="needs SciPy")

#: What the machine is that `round.toml` of tests.validation describes.
TRUE = {"vector_share": 0.6, "memory_share": 0.55, "launch": 7e-6, "convolution_share": 0.7}


def call(*arguments: Any, status: int = 0) -> click.testing.Result:
    words = ["calibrate", *map(str, arguments)]
    result = click.testing.CliRunner().invoke(cli, words, prog_name="paleo")
    assert result.exit_code == status, result.output + result.stderr
    return result


def refused(*arguments: Any, status: int = 1) -> str:
    """Return the one line that is said when nothing is done, and nothing written."""
    result = call("-o", "out.toml", *arguments, status=status)
    assert result.stdout == ""
    assert not Path("out.toml").exists()
    (line,) = result.stderr.splitlines()
    return line.removeprefix("paleo: ")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def machine(monkeypatch: pytest.MonkeyPatch, folder: Path, **options: Any) -> Modelled:
    """Let the executor be one whose times are those of `round.toml` with the constants TRUE."""
    made = Modelled(paleo.find_device(device_file(folder)), TRUE, noise=0.02, **options)
    monkeypatch.setattr(calibration, "find_executor", lambda name, place, dtype: made)
    monkeypatch.setattr(calibration, "perf_counter", made.clock)
    monkeypatch.setattr(calibration, "standard_points", lambda place: POINTS)
    monkeypatch.setattr(system, "busy", lambda: 0.02)
    return made


# Measuring.


@pytest.mark.slow
def test_the_device_file_works_wherever_a_device_does(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    machine(monkeypatch, folder)
    result = call("-o", "mine.toml", "--device", "round.toml")
    assert result.stderr == ""
    said, _, rest = result.stdout.partition("\n\n")
    assert said.startswith(
        "mine is calibrated: mine.toml is its device file. On shapes that nothing"
    )
    lines = rest.splitlines()
    assert lines[0].startswith("mine: Round, modelled on cuda, ")
    assert [line.split()[0] for line in lines[5:11] if line] == [
        "-----------", "product", "convolution", "copy", "pointwise", "launch",
    ]  # fmt: skip
    assert "figures: those of round" in lines
    assert "other programs used 2 % of the CPUs before the start" in lines
    assert lines[-1] == "note: written: mine.toml"
    for words in (
        ["simulate", "resnet18", "--device=mine.toml", "--batch_size=8"],
        ["summary", "resnet18", "--device=mine.toml"],
        ["memory", "resnet18", "--device=mine.toml"],
    ):
        done = click.testing.CliRunner().invoke(cli, words)
        assert done.exit_code == 0, done.output
    done = click.testing.CliRunner().invoke(cli, ["devices", "mine.toml"])
    date = paleo.find_device("mine.toml").calibration.date  # type: ignore[union-attr]
    assert f"measured by paleo calibrate, {date}" in done.stdout
    assert f"Errors of the constants of mine, calibrated {date}" in done.stdout
    assert "measured by modelled on cuda: Round" in done.stdout
    assert "with modelled 1.0" in done.stdout
    found = json.loads(
        click.testing.CliRunner().invoke(cli, ["devices", "mine.toml", "--format=json"]).stdout
    )["devices"][0]
    assert found["calibration"]["base"] == "round"
    assert found["tiled"]["launch"]["value"] == pytest.approx(7e-6, rel=0.03)


@pytest.mark.slow
def test_separated_values_have_a_row_for_each_point_and_json_has_it_all(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    machine(monkeypatch, folder)
    rows = list(
        csv.DictReader(
            io.StringIO(call("-o", "a.toml", "--device", "round.toml", "--format=csv").stdout)
        )
    )
    machine(monkeypatch, folder)
    result = call("-o", "a.toml", "--device", "round.toml", "--format=json", "--name=other")
    found = json.loads(result.stdout)
    assert (found["file"], found["device"]) == ("a.toml", "other")
    assert paleo.find_device("a.toml").name == "other"
    assert len(found["points"]) == len(rows)
    for row, point in zip(rows, found["points"], strict=True):
        assert row["layer"] == point["layer"]
        assert float(row["measured_s"]) == point["measured_s"]
        assert float(row["predicted_s"]) == point["predicted_s"]
    launch = found["constants"]["launch"]
    assert launch["unit"] == "s"
    assert launch["least_of_folds"] <= launch["value"] * 1.01
    assert launch["on_bound"] is None
    assert {each["kind"] for each in found["errors"]} >= {"product", "all"}
    assert found["versions"] == {"modelled": "1.0"}


@pytest.mark.slow
def test_a_busy_machine_is_refused_and_nothing_is_written(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    machine(monkeypatch, folder, slow_from=4000)
    said = refused("--device", "round.toml")
    assert said.startswith("the machine is too busy to trust: ")
    machine(monkeypatch, folder, slow_from=4000)
    result = call("-o", "out.toml", "--device", "round.toml", "--force")
    assert "note: the machine was too busy to trust" in result.stdout
    record = paleo.find_device("out.toml").calibration
    assert record is not None
    assert record.forced
    assert record.spread is not None
    assert record.spread > 0.1


@pytest.mark.slow
def test_an_interrupt_ends_with_130_and_a_file_only_if_there_is_enough(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    machine(monkeypatch, folder, interrupt_at=100)
    result = call("-o", "out.toml", "--device", "round.toml", status=130)
    assert (result.stdout, Path("out.toml").exists()) == ("", False)
    assert result.stderr == "paleo: interrupted: nothing is written\n"
    whole = machine(monkeypatch, folder)
    call("-o", "other.toml", "--device", "round.toml")
    machine(monkeypatch, folder, interrupt_at=whole.runs - 10)
    result = call("-o", "out.toml", "--device", "round.toml", status=130)
    assert "note: the measurement was interrupted" in result.stdout
    record = paleo.find_device("out.toml").calibration
    assert record is not None
    assert any("was interrupted: " in note for note in record.notes)


@pytest.mark.slow
def test_wrong_settings_are_said_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    made = machine(monkeypatch, folder)
    for seconds in ("0", "-1", "nan", "inf"):
        said = refused(f"--seconds={seconds}")
        assert said.startswith("seconds: expected a number above 0, got ")
    assert refused("--dtype=fp23") == "unknown dtype \"fp23\" (did you mean 'fp32'?)"
    assert refused("--dtype=") == "dtype: expected one or more, got none"
    assert refused("--device=T5").startswith("unknown device 'T5'")
    assert refused("--device=K40", "--dtype=bf16").startswith("device K40 has no peak for bf16")
    result = call("-o", "no/where.toml", status=1)
    assert result.stderr == "paleo: no/where.toml: cannot be written: there is no folder no\n"
    assert call("-o", ".", status=1).stderr == "paleo: .: cannot be written: it names a folder\n"
    assert made.runs == 0
    assert "missing option" in call(status=2).stderr.lower()


def test_what_measures_does_not_go_with_timings_of_ones_own(folder: Path) -> None:
    for option in ("--executor=torch", "--place=cpu", "--dtype=fp32", "--seconds=9", "--force"):
        said = refused("--from=mine.csv", option, status=2)
        name = option.partition("=")[0]
        assert said == (
            f"{name} does not go with --from, which measures nothing (see paleo calibrate --help)"
        )


def test_missing_packages_are_said_with_the_extra(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    made = machine(monkeypatch, folder)
    hide(monkeypatch, "scipy")
    wanted = 'calibrating needs SciPy; install it with: pip install "paleo[calibrate]"'
    assert refused() == wanted
    assert refused("--from=mine.csv") == wanted
    assert made.runs == 0


# Timings of one's own.


def rows(folder: Path, shapes: list[dict[str, Any]], noise: float = 0.0) -> Path:
    """Write rows of the round device, as it has measured them with the constants TRUE."""
    plain = {"quantity": "op_s", "value": 1, "device": device_file(folder)}
    found = [plain | row for row in shapes]
    cases = cases_of(read_measurements(write(folder, found)))
    assert len(cases) == len(found)
    generator = np.random.default_rng(2)
    seconds = predict(cases, "tiled", TRUE) * np.exp(generator.normal(0, noise, len(found)))
    timed = [row | {"value": float(value)} for row, value in zip(found, seconds, strict=True)]
    return write(folder, timed, "timed.csv")


def gemms(count: int) -> list[dict[str, Any]]:
    generator = np.random.default_rng(1)
    sizes = 2 ** generator.integers(5, 11, (count, 3))
    shapes = [dict(zip("MNK", map(int, each), strict=True)) for each in sizes]
    return [{"network": "op:gemm", "op_shape": json.dumps(shape)} for shape in shapes]


def adds(count: int) -> list[dict[str, Any]]:
    elements = np.geomspace(1e3, 1e8, count).astype(int)
    return [
        {"network": "op:add", "op_shape": json.dumps({"elements": int(each)})} for each in elements
    ]


@pytest.mark.slow
def test_thirty_rows_find_the_constants_that_made_them(folder: Path) -> None:
    file = rows(folder, [*gemms(15), *adds(15)], noise=0.02)
    found = calibrate_from(file, name="mine")
    values = {each.name: each.value for each in found.constants}
    # 15 rows of 2 % each: 2 % / sqrt(15) = 0.5 % of what they share; a few constants share them.
    for name in ("vector_share", "memory_share", "launch"):
        assert values[name] == pytest.approx(TRUE[name], rel=0.04), name
    assert found.record.source == "timed.csv"
    assert found.record.base == "round"
    assert found.device.name == "mine"
    assert [(each.kind, each.points) for each in found.record.errors] == [
        ("gemm", 15), ("stream", 15), ("all", 30),
    ]  # fmt: skip
    for each in found.record.errors:
        assert each.held_out is not None
        assert each.held_out < 0.05


def test_ten_rows_suffice_for_three_constants(folder: Path) -> None:
    file = rows(folder, [*gemms(5), *adds(5)])
    result = call("--from", file, "-o", "mine.toml")
    device = paleo.find_device("mine.toml")
    assert device.calibration is not None
    assert device.calibration.fitted == ("vector_share", "memory_share", "launch")
    for name in device.calibration.fitted:
        assert device.constants[name].value == pytest.approx(TRUE[name], rel=0.01)
        assert device.constants[name].source.startswith("fitted by paleo calibrate to timed.csv, ")
    # The figures are those of the device of the rows.
    assert device.figures["memory_bandwidth"].value == 100e9
    assert device.architecture == "Ampere"
    assert "mine: Round, timed.csv" in result.stdout
    assert "figures: those of round" in result.stdout


def test_the_device_may_be_named_for_rows_that_call_it_otherwise(folder: Path) -> None:
    file = rows(folder, [*gemms(5), *adds(5)])
    text = file.read_text().replace(device_file(folder), "my old card")
    Path("other.csv").write_text(text)
    said = refused("--from=other.csv")
    assert said.startswith("other.csv: no row can be predicted: unknown device 'my old card'")
    call("--from=other.csv", "--device=round.toml", "-o", "mine.toml")
    assert paleo.find_device("mine.toml").calibration.base == "round"  # type: ignore[union-attr]


def test_rows_of_several_devices_are_refused(folder: Path) -> None:
    two = [each | {"device": device_file(folder, "two")} for each in adds(5)]
    rows(folder, [*gemms(5), *two])
    assert refused("--from=timed.csv") == (
        "timed.csv: rows of several devices, round, two: calibrate each by itself"
    )
    said = refused("--from=timed.csv", "--device=T4")
    assert said.startswith("timed.csv: rows of several devices cannot be of one: ")


def test_rows_without_a_prediction_are_listed(folder: Path) -> None:
    file = rows(folder, [*gemms(5), *adds(5)])
    device = device_file(folder)
    with file.open("a", newline="") as text:
        csv.writer(text).writerow(["op_s", 1, device, "op:nosuch", ""])
    result = call("--from", file, "-o", "mine.toml")
    assert "Rows that could not be predicted" in result.stdout
    assert "operator 'nosuch' is not modelled" in result.stdout
    assert "timed:12" in result.stdout
    assert "note: 1 row could not be predicted" in result.stdout
    found = json.loads(call("--from", file, "-o", "mine.toml", "--format=json").stdout)
    assert found["unpredicted"][0]["ids"] == ["timed:12"]


def test_too_few_rows_are_refused(folder: Path) -> None:
    rows(folder, gemms(2))
    assert refused("--from=timed.csv") == (
        "no constant can be fitted to 2 measurements: it takes 3 that a constant moves"
    )
    assert refused("--from=nosuch.csv") == "nosuch.csv: No such file or directory"


@pytest.mark.slow
@pytest.mark.alike
def test_whole_nets_can_be_fitted_to(folder: Path) -> None:
    nets = [
        {"quantity": "forward_s", "network": net, "batch_per_device": batch}
        for net in ("lenet5", "alexnet")
        for batch in (1, 4, 16)
    ]
    found = calibrate_from(rows(folder, nets))
    # No net is in two folds: each is predicted by constants fitted to the other.
    assert all(each.least is not None for each in found.constants)
    assert len(found.constants) <= 2
    assert {each.kind for each in found.record.points} == {"net forward"}
    alone = calibrate_from(rows(folder, nets[3:]))
    assert "rows left out are of the same net as the others, alexnet" in alone.record.notes


PROFILE = (
    "net,file,batch_size,dtype,device,layer,type,pass,predicted_s,torch_s,torch_runs,torch_joined"
)


@pytest.mark.slow
def test_rows_of_a_profile_are_read(folder: Path) -> None:
    device = paleo.find_device(device_file(folder))
    graph = paleo.build(paleo.load("alexnet"), 4)
    lines = [PROFILE]
    for node in graph.nodes[1:]:
        for direction in (Pass.FORWARD, Pass.WEIGHT_GRADIENT):
            operations = graph.operations(node, direction)
            # One layer's gradients are made at once.
            joined = node.name == "conv3" and direction is Pass.WEIGHT_GRADIENT
            if joined:
                operations += graph.operations(node, Pass.INPUT_GRADIENT)
            target = Target(device, constants=TRUE)
            model = paleo.COST_MODELS["tiled"]
            seconds = sum(float(model.price(each, target).total) for each in operations)
            measured = repr(seconds) if operations else ""
            lines.append(
                f"alexnet,,4,fp32,TITAN_X,{node.name},{node.type_name},{direction.value},1,"
                f"{measured},50,{str(joined).lower()}"
            )
    lines.append("alexnet,,4,fp32,TITAN_X,nosuch,Convolution,forward,1,0.1,50,false")
    Path("profile.csv").write_text("\n".join(lines) + "\n")
    assert refused("--from=profile.csv") == (
        "profile.csv: rows of paleo profile do not say what they were measured on: name the "
        "device with --device_name"
    )
    result = call("--from=profile.csv", "--device=round.toml", "-o", "mine.toml")
    assert "alexnet has no Convolution nosuch" in result.stdout
    found = paleo.find_device("mine.toml")
    for name in ("vector_share", "launch", "memory_share", "convolution_share"):
        assert found.constants[name].value == pytest.approx(TRUE[name], rel=0.02), name
    assert found.calibration is not None
    for each in found.calibration.points:
        assert each.predicted == pytest.approx(each.seconds, rel=0.02), each.what
    kinds = {each.kind for each in found.calibration.errors}
    assert kinds == {"convolution", "product", "stream", "all"}


def test_wrong_cells_of_a_profile_are_said(folder: Path) -> None:
    Path("profile.csv").write_text(
        f"{PROFILE}\nalexnet,,4,fp32,T4,fc6,InnerProduct,forward,1,x,5\n"
    )
    assert refused("--from=profile.csv", "--device=T4") == (
        'profile.csv: line 2, column torch_s: expected a time, got "x"'
    )
    Path("profile.csv").write_text("net,file,batch_size,dtype,layer,type,pass\n")
    assert refused("--from=profile.csv", "--device=T4") == (
        "profile.csv: no executor measured these rows (paleo profile --executor)"
    )


# A real framework.


def test_a_machine_is_measured_by_pytorch(folder: Path) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    result = call("--place=cpu", "--seconds=3", "--force", "-o", "mine.toml", "--format=json")
    found = json.loads(result.stdout)
    kinds = {each["kind"] for each in found["errors"]}
    assert kinds >= {"product", "convolution", "copy", "pointwise", "launch", "all"}
    assert all(point["measured_s"] > 0 for point in found["points"])
    assert "torch" in found["versions"]
    device = paleo.find_device("mine.toml")
    assert device.kind == "cpu"
    assert {"multiprocessors", "memory_bandwidth"} <= device.figures.keys()
    assert device.peak("fp32") > 0
    assert paleo.simulate("lenet5", device=device).runs
