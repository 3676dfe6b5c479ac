"""`paleo profile`: layers as predicted and as an executor measures them.

The executors here are those of fake_executor.py, and so is the time.
"""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path
from typing import Any

import click.testing
import fake_executor
import pytest
from fake_executor import SECONDS, STOP, Clock

import paleo
from paleo.cli import cli
from paleo.core.operations import LAYER_PASSES, Pass
from paleo.measure.profile import GRADIENTS, JOINED, Profile, convolutions, profile

#: A product with bias and a ReLU: 2 samples of 3 features, 4 outputs.
SMALL = {
    "data": {"type": "Input", "parents": [], "tensor": [2, 3]},
    "fc": {"type": "InnerProduct", "parents": ["data"], "num_outputs": 4},
    "relu": {"type": "Activation", "parents": ["fc"], "function": "relu"},
}
#: Two convolutions of one block, of which the second reads the first, and one below.
CONVOLUTIONS = {
    "data": {"type": "Input", "parents": [], "tensor": [2, 8, 8, 3]},
    "block/a": {
        "type": "Convolution",
        "parents": ["data"],
        "filter": [3, 3, 3, 4],
        "strides": [1, 1, 1, 1],
        "padding": "SAME",
    },
    "block/b": {
        "type": "Convolution",
        "parents": ["block/a"],
        "filter": [1, 1, -1, 5],
        "strides": [1, 2, 2, 1],
        "padding": "VALID",
        "activation_fn": "relu",
    },
    "relu": {"type": "Activation", "parents": ["block/b"], "function": "relu"},
}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return fake_executor.register(monkeypatch)


@pytest.fixture
def file(tmp_path: Path) -> Any:
    """Write a net of layers, and return its path."""

    def write(layers: dict[str, Any], name: str = "net") -> str:
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({"name": name, "layers": layers}))
        return str(path)

    return write


def named(**layers: str) -> dict[str, Any]:
    """Return SMALL with ReLUs of these names behind it, each of its parent."""
    more = {
        name: {"type": "Activation", "parents": [parent], "function": "relu"}
        for name, parent in layers.items()
    }
    return SMALL | more


def call(*arguments: str, status: int = 0, **environment: str) -> click.testing.Result:
    runner = click.testing.CliRunner(env=environment)
    result = runner.invoke(cli, ("profile", *arguments), prog_name="paleo")
    assert result.exit_code == status, result.output
    return result


def of(found: Profile, layer: str, direction: str = "forward") -> Any:
    (row,) = (row for row in found.rows if (row.layer, row.direction) == (layer, direction))
    return row


# Predictions


def test_without_an_executor_there_are_predictions_alone(net: Any) -> None:
    # roofline, K40: 288e9 bytes/s. The ReLU reads and writes 2 x 4 numbers of 4 bytes.
    (found,) = profile(net(SMALL), device="K40", cost_model="roofline").runs
    assert [row.layer for row in found.rows] == ["data", "fc", "relu"]
    assert of(found, "relu").predicted == pytest.approx(2 * 32 / 288e9)
    assert of(found, "data").predicted == 0
    assert found.predicted == pytest.approx(sum(row.predicted for row in found.rows))
    assert (found.measured_anything, found.interrupted) == (False, False)
    assert all(not row.measured for row in found.rows)


@pytest.mark.parametrize("cost_model", paleo.COST_MODELS)
def test_a_step_s_predictions_are_those_of_the_summary(cost_model: str) -> None:
    (found,) = profile("nin", device="K40", cost_model=cost_model, direction="all").runs
    summary = paleo.summarize("nin", device="K40", cost_model=cost_model)
    for layer in summary.layers:
        own = {row.direction: row.predicted for row in found.rows if row.layer == layer.name}
        assert own["forward"] == pytest.approx(layer.forward)
        gradients = own.get("input_gradient", 0) + own.get("weight_gradient", 0)
        assert gradients == pytest.approx(layer.backward)


def test_the_update_of_a_layer_is_that_of_its_own_parameters(net: Any) -> None:
    # 3 x 4 weights and 4 biases: reads them and their gradients, writes them, 4 bytes each.
    (found,) = profile(net(SMALL), device="K40", cost_model="roofline", direction="all").runs
    assert of(found, "fc", "update").predicted == pytest.approx(3 * 4 * 16 / 288e9)
    assert [row.direction for row in found.rows if row.layer == "relu"] == [
        "forward",
        "input_gradient",
    ]


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_a_backward_pass_is_of_the_gradients_asked_for(net: Any, gradient: str) -> None:
    (found,) = profile(net(SMALL), direction="backward", gradient_wrt=gradient).runs
    assert found.passes == tuple(each.value for each in GRADIENTS[gradient])
    if gradient != "both":  # every layer has a row, whether there is something to do or not
        assert [row.layer for row in found.rows] == ["data", "fc", "relu"]
        zero = "fc" if gradient == "data" else "relu"  # nobody needs the gradient of the data
        assert of(found, zero, found.passes[0]).predicted == 0


def test_the_algorithm_is_that_of_the_product_of_a_layer() -> None:
    (found,) = profile("alex_v2", device="H100_SXM", dtype="mixed_fp16").runs
    (explained,) = paleo.summarize(
        "alex_v2", device="H100_SXM", dtype="mixed_fp16", explain="fc7"
    ).explained
    product = next(
        each
        for each in explained.operations
        if (each.operation.name, each.direction) == ("convolution", Pass.FORWARD)
    )
    assert of(found, "fc7").algorithm == product.explanation.algorithm != "stream"
    assert of(found, "pool1").algorithm == "stream"
    assert of(found, "data").algorithm == ""


def test_the_algorithms_of_convolutions_may_be_chosen() -> None:
    arguments = ("vgg16", "--device=K40", "--format=json", "--use_only_gemm")
    (found,) = json.loads(call(*arguments).stdout)["nets"]
    rows = [row for row in found["rows"] if row["type"] == "Convolution"]
    assert all("gemm" in row["algorithm"] for row in rows)
    assert any("(GEMM), as asked" in note for note in found["notes"])
    result = call("vgg16", "--workspace=4Gib", "--conv_library=cudnn1", status=1)
    assert len(result.stderr.splitlines()) == 2
    assert result.stdout == ""


# Measuring


def test_each_layer_is_measured_as_often_as_asked(clock: Clock, net: Any) -> None:
    (found,) = profile(net(SMALL), executors="fake", num_warmup=3, num_iter=5).runs
    assert clock.runs == ["fc"] * 8 + ["relu"] * 8  # an input does nothing
    timing = of(found, "fc").measured["fake"].timing
    # Every run is waited for.
    assert timing.seconds == pytest.approx((SECONDS["fc"] + STOP,) * 5)
    assert of(found, "fc").seconds("fake") == pytest.approx(0.00425)
    assert of(found, "data").seconds("fake") is None


def test_the_ratio_is_measured_over_predicted(clock: Clock, net: Any) -> None:
    (found,) = profile(net(SMALL), executors=("fake", "slow"), device="K40").runs
    row = of(found, "relu")
    assert row.ratio("fake") == pytest.approx((0.002 + STOP) / row.predicted)
    assert row.ratio("slow") == pytest.approx((0.004 + STOP) / row.predicted)
    assert of(found, "data").ratio("fake") is None


def test_sums_are_of_what_was_measured_beside_the_predictions_of_the_same(
    clock: Clock, net: Any
) -> None:
    (found,) = profile(net(named(odd="relu", last="odd")), executors="fake").runs
    sums = found.sums("fake")
    # fc, relu and last, which takes what any layer does: 4 + 2 + 1 ms and three stops.
    assert sums.rows == 3
    assert sums.measured == pytest.approx(0.007 + 3 * STOP)
    own = [row.predicted for row in found.rows if row.layer in ("fc", "relu", "last")]
    assert sums.predicted == pytest.approx(sum(own))
    assert sums.ratio == pytest.approx(sums.measured / sums.predicted)
    assert found.predicted == pytest.approx(sum(own) + of(found, "odd").predicted)


def test_all_passes_are_measured_for_a_step(clock: Clock, net: Any) -> None:
    (found,) = profile(net(SMALL), executors="fake", direction="all", num_iter=1).runs
    seconds = {(row.layer, row.direction): row.seconds("fake") for row in found.rows}
    assert seconds == {
        ("data", "forward"): None,
        ("fc", "forward"): pytest.approx(0.004 + STOP),
        ("fc", "weight_gradient"): pytest.approx(0.012 + STOP),
        ("fc", "update"): pytest.approx(0.001 + STOP),
        ("relu", "forward"): pytest.approx(0.002 + STOP),
        ("relu", "input_gradient"): pytest.approx(0.004 + STOP),
    }


def test_a_pass_that_is_predicted_and_not_run_is_named(clock: Clock, net: Any) -> None:
    # paleo2017 prices the gradient of the data, which no framework computes.
    (found,) = profile(
        net(SMALL), executors="fake", direction="backward", cost_model="paleo2017"
    ).runs
    assert of(found, "fc", "input_gradient").predicted > 0
    assert "fake did not run fc: it computes no input gradient there" in found.notes


def test_gradients_that_are_made_at_once_are_compared_together(clock: Clock, net: Any) -> None:
    layers = {**SMALL, "joint": {"type": "InnerProduct", "parents": ["relu"], "num_outputs": 4}}
    (found,) = profile(
        net(layers), executors="fake", device="K40", direction="backward", gradient_wrt="both"
    ).runs
    data, weights = (of(found, "joint", f"{name}_gradient") for name in ("input", "weight"))
    assert (data.seconds("fake"), data.measured["fake"].missing) == (None, JOINED)
    # Three times what any layer takes.
    seconds = 0.003 + STOP
    assert weights.seconds("fake") == pytest.approx(seconds)
    assert weights.ratio("fake") == pytest.approx(seconds / (data.predicted + weights.predicted))
    (note,) = (note for note in found.notes if "joint" in note)
    assert note.startswith("fake makes all gradients of joint at once: in the time of the weight ")
    # The sums have either once.
    sums = found.sums("fake")
    assert sums.predicted == pytest.approx(found.predicted)
    (alone,) = profile(
        net(layers), executors="fake", device="K40", direction="backward", gradient_wrt="filter"
    ).runs
    assert of(alone, "joint", "weight_gradient").ratio("fake") == weights.ratio("fake")


def test_layers_that_cannot_be_run_are_named_with_the_reason(clock: Clock, net: Any) -> None:
    layers = named(odd="relu", huge="odd", late="huge", odd2="late", last="late")
    (found,) = profile(net(layers), executors="fake").runs
    assert found.notes[1:] == (
        "fake did not run odd, odd2: fake knows no Activation",
        "fake did not run huge: not enough memory",
        "fake did not run late: out of memory: 3 GiB are free",
    )
    assert of(found, "last").seconds("fake") is not None
    (found,) = profile(net(named(**{f"odd{i}": "relu" for i in range(9)})), executors="fake").runs
    assert found.notes[1].startswith("fake did not run 9 layers (odd0, odd1, odd2, odd3, ...): ")


def test_an_interrupt_leaves_the_layers_that_were_measured(clock: Clock, net: Any) -> None:
    # 60 runs a layer: the second net's fc is through, its relu is not.
    clock.reset(interrupt_at=4 * 60 - 1)
    nets = [net(SMALL, "one"), net(SMALL, "two"), net(SMALL, "three")]
    found = profile(nets, executors="fake")
    assert (found.interrupted, found.missed) == (True, ("three",))
    one, two = found.runs
    assert (one.interrupted, two.interrupted) == (False, True)
    assert [row.layer for row in two.rows] == ["data", "fc"]
    assert two.sums("fake").rows == 1
    assert "interrupted after 2 of 3 layers" in two.notes
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["interrupted"] is True


@pytest.mark.parametrize(
    ("device", "same"),
    [("TITAN_X", False), ("H100_SXM", False), ("9000.toml", True), ("mine.toml", True)],
)
def test_another_processor_than_the_predicted_is_named(
    clock: Clock, net: Any, tmp_path: Path, device: str, same: bool
) -> None:
    if device.endswith(".toml"):
        titles = {"9000.toml": "CPU 9000 of mine", "mine.toml": "Some CPU 9000, two cores"}
        text = f'name = "box"\ntitle = "{titles[device]}"\nkind = "gpu"\narchitecture = "Kepler"\n'
        text += '[sources]\nmine = "a guess"\n[figures]\n'
        for key, value in (("base_clock", "1 GHz"), ("memory_bandwidth", "10 GB/s")):
            text += f'{key} = {{ value = "{value}", source = "mine" }}\n'
        text += '[peak.fp32]\nvector = { value = "1 TFLOP/s", source = "mine" }\n'
        (tmp_path / device).write_text(text)
        device = str(tmp_path / device)
    (found,) = profile(net(SMALL), executors="fake", device=device, cost_model="roofline").runs
    assert (found.setting.elsewhere == ()) == same
    if device == "TITAN_X":
        assert found.notes[0] == (
            "predicted for TITAN_X (NVIDIA GeForce GTX Titan X (GM200, 2015)), measured by fake on "
            "Some CPU 9000 (cpu): by their names two different processors"
        )


def test_settings_that_make_no_sense_are_said_together(clock: Clock) -> None:
    with pytest.raises(paleo.PaleoError) as caught:
        profile(
            ["nim", "nin"],
            executors=("fake", "fak", "missing"),
            num_warmup=-1,
            num_iter=0,
            batch_size=0,
            device="TITAN_Y",
            dtype="fp33",
        )
    said = [str(mistake) for mistake in caught.value.mistakes]
    starts = (
        "unknown net 'nim'",
        "unknown device 'TITAN_Y'",
        "unknown dtype 'fp33'",
        "num_warmup: expected 0 or more, got -1",
        "num_iter: expected 1 or more, got 0",
        "batch_size: expected a whole number of 1 or more, got 0",
        "unknown executor 'fak' (did you mean 'fake'?)",
        '--executor missing needs it: pip install "paleo[missing]"',
    )
    assert len(said) == len(starts), said
    assert all(line.startswith(start) for line, start in zip(said, starts, strict=True)), said
    assert clock.runs == []


@pytest.mark.parametrize("setting", [{"direction": "back"}, {"gradient_wrt": "bias"}])
def test_a_direction_that_there_is_not_is_refused(setting: Any) -> None:
    (name,) = setting
    with pytest.raises(paleo.SettingError, match=f"{name}: expected "):
        profile("nin", **setting)


# Convolutions as nets


def test_convolutions_become_nets_of_their_own(net: Any) -> None:
    a, b = convolutions(net(CONVOLUTIONS), batch_size=7)
    assert (a.name, b.name) == ("net_block/a", "net_block/b")
    assert a.source == "layer block/a of net"
    data, layer = paleo.build(b).nodes
    # The first keeps 8 x 8 and gives 4 channels.
    assert data.output == (7, 8, 8, 4)
    assert layer.output == (7, 4, 4, 5)
    whole = {row.layer: row for row in profile(net(CONVOLUTIONS), batch_size=7).runs[0].rows}
    (alone,) = profile(b).runs
    assert of(alone, "block/b").predicted == whole["block/b"].predicted


def test_slices_of_a_split_net_are_convolutions_too() -> None:
    found = convolutions("alex_v2_2gpu")
    assert len(found) == sum(
        "Conv" in node.type_name for node in paleo.build(paleo.load("alex_v2_2gpu")).nodes
    )
    assert any(each.name.endswith("_1") for each in found)


def test_extracted_convolutions_are_net_files(file: Any, tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "folder"
    arguments = (file(CONVOLUTIONS), f"--extract_conv_dir={folder}", "--batch_size=3")
    call(*arguments)
    assert sorted(path.name for path in folder.iterdir()) == [
        "net_block_a.json",
        "net_block_b.json",
    ]
    assert paleo.load(folder / "net_block_b.json").name == "net_block/b"
    assert paleo.summarize(folder / "net_block_a.json").batch_size == 3
    call(*arguments)  # its own files may be written anew


def test_a_net_without_convolutions_is_said(file: Any, tmp_path: Path) -> None:
    result = call(file(SMALL), f"--extract_conv_dir={tmp_path / 'out'}")
    assert result.stderr == "paleo: note: there are no convolutions to extract\n"


def test_names_that_files_cannot_have_and_that_are_alike_stay_apart(
    file: Any, tmp_path: Path
) -> None:
    conv = CONVOLUTIONS["block/a"]
    layers = {"data": CONVOLUTIONS["data"], "x:y": conv, "x?y": conv, "X/Y": conv}
    call(file(layers), f"--extract_conv_dir={tmp_path / 'out'}")
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["net_X_Y_3.json", "net_x_y.json", "net_x_y_2.json"]


def test_other_files_are_never_replaced_and_then_nothing_is_written(
    file: Any, tmp_path: Path
) -> None:
    (tmp_path / "net_block_b.json").write_text('{"name": "net_block/b", "layers": {}}')
    result = call(file(CONVOLUTIONS), f"--extract_conv_dir={tmp_path}", status=1)
    (line,) = result.stderr.splitlines()
    assert line.endswith("net_block_b.json: there is something else of this name; it is kept")
    assert not (tmp_path / "net_block_a.json").exists()
    assert result.stdout == ""


def test_a_folder_that_cannot_be_written_is_one_line(file: Any, tmp_path: Path) -> None:
    net = file(CONVOLUTIONS)
    result = call(net, f"--extract_conv_dir={net}", status=1)
    assert result.stderr == f"paleo: {net}: cannot be made a folder: File exists\n"
    result = call(net, f"--extract_conv_dir={net}/below", status=1)
    assert result.stderr == f"paleo: {net}/below: cannot be made a folder: Not a directory\n"
    if os.geteuid():  # root writes anywhere
        tmp_path.chmod(0o500)
        assert len(call(net, f"--extract_conv_dir={tmp_path}", status=1).stderr.splitlines()) == 1
        tmp_path.chmod(0o700)


# The command


def test_the_defaults_are_those_of_2017() -> None:
    # Section 2 of the equations of the 2017 model; the cost model may be another.
    (found,) = json.loads(call("alex_v2", "--format=json").stdout)["nets"]
    assert (found["device"], found["ppp_comp"], found["executors"]) == ("TITAN_X", 1, {})
    assert (found["num_warmup"], found["num_iter"]) == (10, 50)
    assert found["passes"] == ["forward"]
    assert found["batch_size"] == 128  # the file's
    (back,) = json.loads(call("alex_v2", "--format=json", "--direction=backward").stdout)["nets"]
    assert back["passes"] == ["input_gradient"]


def test_the_table_has_a_row_for_each_layer_and_a_total(clock: Clock, file: Any) -> None:
    arguments = (file(named(odd="relu")), "--executor=fake", "--device=K40")
    lines = call(*arguments, "--quiet", "--wide").stdout.splitlines()
    assert lines[0] == "net, batch 2, fp32, forward, on K40, tiled, ppp_comp 1"
    heads = " ".join(lines[2:4]).split()
    assert heads == [
        *("predicted", "fake", "spread", "fake", "/", "fake's"),
        *("layer", "type", "(us)", "(us)", "(%)", "predicted", "algorithm", "algorithm"),
    ]
    fc, odd = (next(line for line in lines if line.startswith(name)) for name in ("fc", "odd"))
    assert "4,250" in fc
    assert fc.endswith("by hand")
    assert "not run" in odd
    (total,) = (line for line in lines if line.startswith("total"))
    assert "6,500" in total  # 4 + 2 ms and two stops
    assert "fake: medians of 50 runs after 10 to warm up, on Some CPU 9000 (cpu)" in lines
    assert any(line.startswith("fake: the total's ratio is of the rows that") for line in lines)
    assert "note: fake did not run odd: fake knows no Activation" in lines


def test_programs_get_seconds_and_nothing_where_there_is_nothing(clock: Clock, file: Any) -> None:
    net = file(named(odd="relu"))
    (found,) = json.loads(call(net, "--executor=fake,slow", "--format=json").stdout)["nets"]
    data, fc, _, odd = found["rows"]
    assert fc["fake_s"] == pytest.approx(0.00425)
    assert fc["slow_s"] == pytest.approx(0.00825)
    assert fc["fake_ratio"] == pytest.approx(fc["fake_s"] / fc["predicted_s"])
    assert (fc["fake_runs"], fc["fake_spread"], fc["fake_missing"]) == (50, pytest.approx(0), None)
    assert fc["pass"] == "forward"
    assert (odd["fake_s"], odd["slow_s"], data["fake_s"]) == (None, None, None)
    assert odd["fake_missing"] == "fake knows no Activation"
    assert found["executors"]["fake"] == {
        "place": "cpu",
        "hardware": "Some CPU 9000",
        "versions": {"fake": "1.2"},
    }
    assert found["sums"]["fake"]["measured_s"] == pytest.approx(0.0065)
    text = call(net, "--executor=fake,slow", "--separator=;")
    rows = list(csv.DictReader(io.StringIO(text.stdout), delimiter=";"))
    assert [row["layer"] for row in rows] == ["data", "fc", "relu", "odd"]
    assert float(rows[1]["slow_s"]) == pytest.approx(fc["slow_s"])
    assert (rows[3]["fake_s"], rows[3]["fake_missing"]) == ("", "fake knows no Activation")
    assert {row["file"] for row in rows} == {net}
    assert "paleo: note: fake did not run odd: fake knows no Activation" in text.stderr


def test_where_nothing_is_measured_the_status_is_1(clock: Clock, file: Any) -> None:
    nothing = file({"data": SMALL["data"], "odd": SMALL["fc"]}, "nothing")
    result = call(nothing, "--executor=fake", status=1)
    assert "not run" in result.stdout  # the predictions are there all the same
    assert result.stderr == "paleo: nothing could be measured\n"
    call(nothing, file(SMALL), "--executor=fake")
    call(nothing)


def test_an_interrupt_prints_what_there_is(clock: Clock, file: Any) -> None:
    clock.reset(interrupt_at=4 * 60 - 1)
    nets = [file(SMALL, name) for name in ("one", "two", "three")]
    result = call(*nets, "--executor=fake", status=130)
    assert "note: interrupted after 2 of 3 layers" in result.stdout
    assert result.stdout.count("4,250") == 2 + 1  # the second net's total is that of the one layer
    assert result.stderr == "paleo: note: interrupted before three\n"
    clock.reset(interrupt_at=4 * 60 - 1)
    found = json.loads(call(*nets, "--executor=fake", "--format=json", status=130).stdout)
    assert (found["interrupted"], found["missed"]) == (True, ["three"])
    assert [net["interrupted"] for net in found["nets"]] == [False, True]
    clock.reset(interrupt_at=0)
    # Before anything is measured there is nothing to print.
    assert call(file(SMALL), "--executor=fake", "--format=csv", status=130).stdout.count("\n") == 2


def test_nothing_but_the_result_is_printed_when_piped(clock: Clock, file: Any) -> None:
    result = call(file(SMALL), "--executor=fake", "--device=K40")
    assert result.stderr == ""
    assert "\x1b" not in result.stdout
    assert "\r" not in result.stdout


@pytest.mark.parametrize("executors", ["fake", "fake,slow"])
def test_a_narrow_terminal_gets_blocks(
    clock: Clock, file: Any, monkeypatch: pytest.MonkeyPatch, executors: str
) -> None:
    monkeypatch.setattr("paleo.cli.options.terminal_width", lambda: 60)
    net = file(named(odd="relu", a_layer_with_a_very_long_name_indeed="odd"))
    lines = call(net, f"--executor={executors}", "--direction=all").stdout.splitlines()
    assert max(map(len, lines)) <= 60
    assert len([line for line in lines if line.startswith("fc ")]) > 3  # once in each block
    assert any(line.startswith("note: fake did not run odd") for line in lines)


def test_options_without_an_effect_are_said(file: Any) -> None:
    result = call(file(SMALL), "--place=cpu", "--num_iter=3", "--gradient_wrt=filter")
    assert result.stderr.splitlines() == [
        "paleo: note: --gradient_wrt is for --direction=backward, it has no effect here",
        "paleo: note: --place is for --executor, it has no effect here",
        "paleo: note: --num_iter is for --executor, it has no effect here",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--num_iter=0",), "num_iter: expected 1 or more, got 0"),
        (("--num_warmup=-3",), "num_warmup: expected 0 or more, got -3"),
        (("--executor=missing",), '--executor missing needs it: pip install "paleo[missing]"'),
        (("--place=mps",), "fake: there is no mps here"),
        (("--batch_size=0",), "batch_size: expected a whole number of 1 or more, got 0"),
    ],
)
def test_bad_input_is_one_line(clock: Clock, file: Any, arguments: Any, message: str) -> None:
    result = call(file(SMALL), "--executor=fake", *arguments, status=1)
    assert (result.stdout, result.stderr) == ("", f"paleo: {message}\n")


def test_verbose_says_what_measured(clock: Clock, file: Any) -> None:
    said = call(file(SMALL), "--executor=fake", "--verbose").stderr
    assert "paleo: fake: Some CPU 9000 (cpu), fake 1.2" in said.splitlines()


def test_edits_apply(file: Any) -> None:
    (found,) = json.loads(call(file(SMALL), "--set=fc.num_outputs=8", "--format=json").stdout)[
        "nets"
    ]
    # What is in the file is another net.
    assert (found["net"], found["file"]) == ("net fc.num_outputs=8", None)


# With PyTorch


def test_pytorch_measures_every_layer(file: Any) -> None:
    pytest.importorskip("torch", reason="needs torch")
    net = file(
        {**CONVOLUTIONS, "fc": {"type": "InnerProduct", "parents": ["relu"], "num_outputs": 4}}
    )
    result = call(
        net,
        *("--executor=torch", "--place=cpu", "--num_warmup=0", "--num_iter=2", "--direction=all"),
        "--format=json",
    )
    (found,) = json.loads(result.stdout)["nets"]
    assert set(found["executors"]["torch"]["versions"]) >= {"torch"}
    rows = [row for row in found["rows"] if row["type"] != "Input"]
    assert {row["pass"] for row in rows} == {each.value for each in LAYER_PASSES} | {"update"}
    for row in rows:
        assert (row["torch_missing"], row["torch_runs"]) == (None, 2)
        assert row["torch_s"] > 0
    assert found["sums"]["torch"]["rows"] == len(rows)


def test_pytorch_measures_extracted_convolutions(file: Any, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs torch")
    folder = tmp_path / "nets"
    call(file(CONVOLUTIONS), f"--extract_conv_dir={folder}")
    nets = sorted(map(str, folder.iterdir()))
    found = profile(nets, executors="torch", place="cpu", num_warmup=0, num_iter=1)
    assert [run.sums("torch").rows for run in found.runs] == [1, 1]


def test_pytorch_has_no_gpu_where_there_is_none(file: Any) -> None:
    torch = pytest.importorskip("torch", reason="needs torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    (line,) = call(file(SMALL), "--executor=torch", "--place=cuda", status=1).stderr.splitlines()
    assert "CUDA" in line
