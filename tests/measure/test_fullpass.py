"""`paleo fullpass`: whole steps as predicted and as an executor measures them; the progress bar.

The executors here are those of fake_executor.py, and so is the time.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

import click.testing
import fake_executor
import pytest
from fake_executor import INFERENCE, PARTS, STOP, Clock

import paleo
from paleo.cli import cli
from paleo.cli.progress import progress
from paleo.measure.executors import EXECUTORS
from paleo.measure.profile import FullPass, fullpass, profile
from paleo.step.estimates import estimate_backward, estimate_forward, estimate_update

SMALL = {
    "data": {"type": "Input", "parents": [], "tensor": [2, 3]},
    "fc": {"type": "InnerProduct", "parents": ["data"], "num_outputs": 4},
    "drop": {"type": "Dropout", "parents": ["fc"], "dropout_keep_prob": 0.5},
}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return fake_executor.register(monkeypatch)


@pytest.fixture
def file(tmp_path: Path) -> Any:
    """Write a net, and return its path."""

    def write(name: str = "net") -> str:
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({"name": name, "layers": SMALL}))
        return str(path)

    return write


def call(*arguments: str, status: int = 0, **environment: str) -> click.testing.Result:
    runner = click.testing.CliRunner(env=environment)
    result = runner.invoke(cli, ("fullpass", *arguments), prog_name="paleo")
    assert result.exit_code == status, result.output
    return result


def by_name(found: FullPass) -> dict[str, Any]:
    return {part.name: part for part in found.parts}


def test_a_step_is_measured_whole_and_in_parts(clock: Clock, net: Any) -> None:
    (found,) = fullpass(net(SMALL), executors="fake", num_warmup=2, num_iter=3).runs
    assert [part.name for part in found.parts] == [*PARTS, "step"]
    # Two to warm up, three whole, one to get ready, three in parts, of four runs each.
    assert len(clock.runs) == (2 + 3 + 1 + 3) * 4
    parts = by_name(found)
    for name, seconds in PARTS.items():
        assert parts[name].measured["fake"].seconds == pytest.approx((seconds + STOP,) * 3)
    assert parts["step"].measured["fake"].seconds == pytest.approx((0.0075 + STOP,) * 3)


def test_the_predictions_are_those_of_the_estimates(clock: Clock) -> None:
    graph = paleo.build(paleo.load("nin"), 4)
    (found,) = fullpass("nin", executors="fake", device="K40", batch_size=4).runs
    expected = {
        "forward": estimate_forward(graph, "K40").upper,
        "backward": estimate_backward(graph, "K40").upper,
        "update": estimate_update(graph.num_params, "K40"),
    }
    parts = by_name(found)
    for name, seconds in expected.items():
        assert parts[name].predicted == pytest.approx(seconds)
    assert parts["step"].predicted == pytest.approx(sum(expected.values()))
    assert parts["loss"].predicted is None
    assert parts["step"].ratio("fake") == pytest.approx(
        parts["step"].seconds("fake") / parts["step"].predicted
    )
    assert parts["loss"].ratio("fake") is None


def test_inference_is_measured_and_predicted_as_such(clock: Clock, net: Any) -> None:
    (found,) = fullpass(net(SMALL), executors="fake", inference=True, device="K40").runs
    (part,) = found.parts
    assert part.name == "inference"
    assert part.seconds("fake") == pytest.approx(INFERENCE + STOP)
    graph = paleo.build(net(SMALL))
    assert part.predicted is not None
    assert part.predicted == pytest.approx(estimate_forward(graph, "K40", training=False).upper)
    assert part.predicted < estimate_forward(graph, "K40").upper  # dropout does nothing


def test_the_band_is_that_of_a_whole_net(clock: Clock) -> None:
    (found,) = fullpass("nin", executors="fake", device="K40").runs
    band = found.band
    assert band is not None
    step = found.to_dict()["parts"][-1]
    assert step["predicted_low_s"] == pytest.approx(band.low * step["predicted_s"])
    assert step["predicted_high_s"] == pytest.approx(band.high * step["predicted_s"])
    (found,) = fullpass("nin", executors="fake", device="K40", ppp_comp=0.5).runs
    assert found.band is None


def test_a_net_that_does_not_fit_is_named_and_the_rest_goes_on(clock: Clock, net: Any) -> None:
    found = fullpass([net(SMALL, "huge"), net(SMALL)], executors="fake")
    huge, small = found.runs
    assert "fake did not run huge: it does not fit: 3 GiB are free" in huge.notes
    assert not huge.measured_anything
    assert by_name(huge)["step"].predicted > 0
    assert small.measured_anything
    assert (found.interrupted, huge.interrupted, small.interrupted) == (False, False, False)


def test_an_interrupt_leaves_the_runs_that_were_measured(clock: Clock, net: Any) -> None:
    # One to warm up and the ten whole steps have four runs each, then come those in parts: one to
    # get ready, three that are through, and in the next there is an interrupt.
    clock.reset(interrupt_at=4 * (1 + 10 + 1 + 3) + 2)
    found = fullpass(
        [net(SMALL, "one"), net(SMALL, "two")], executors="fake", num_warmup=1, num_iter=10
    )
    (one,) = found.runs
    assert (found.interrupted, found.missed, one.interrupted) == (True, ("two",), True)
    parts = by_name(one)
    assert len(parts["step"].measured["fake"].seconds) == 10
    assert {len(parts[name].measured["fake"].seconds) for name in PARTS} == {3}
    assert "interrupted after 13 of 20 runs" in one.notes


def test_several_executors_stand_beside_each_other(clock: Clock, file: Any) -> None:
    result = call(file(), "--executor=fake,slow", "--device=K40", "--quiet", "--wide")
    lines = result.stdout.splitlines()
    assert lines[0] == "net, batch 2, fp32, on K40, tiled, ppp_comp 1"
    (step,) = (line.split() for line in lines if line.startswith("step"))
    # Twice 7.5 ms, and the stop.
    assert {"7,750", "15,250"} <= set(step)
    assert "fake: medians of 50 runs after 10 to warm up, on Some CPU 9000 (cpu)" in lines
    assert result.stderr == ""


def test_the_defaults_are_those_of_2017(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    # Section 2 of the equations of the 2017 model: TITAN_X, 10, 50, the file's batch.
    monkeypatch.setitem(EXECUTORS, "torch", ("fake_executor", "Fake"))
    (found,) = json.loads(call("alex_v2", "--format=json").stdout)["nets"]
    assert (found["device"], found["batch_size"]) == ("TITAN_X", 128)
    assert (found["num_warmup"], found["num_iter"]) == (10, 50)


def test_programs_get_seconds(clock: Clock, file: Any) -> None:
    arguments = (file(), "--executor=fake", "--num_iter=4")
    (found,) = json.loads(call(*arguments, "--format=json").stdout)["nets"]
    rows = list(csv.DictReader(io.StringIO(call(*arguments, "--format=csv").stdout)))
    assert [row["part"] for row in rows] == [part["part"] for part in found["parts"]]
    for row, part in zip(rows, found["parts"], strict=True):
        assert float(row["fake_s"]) == pytest.approx(part["fake_s"])
        assert part["fake_runs"] == 4
    assert found["parts"][1]["predicted_s"] is None
    assert rows[1]["predicted_s"] == ""


def test_where_nothing_is_measured_the_status_is_1(clock: Clock, file: Any) -> None:
    result = call(file("huge"), "--executor=fake", status=1)
    assert result.stdout.count(" not run") == 5 + 1  # the parts, the step
    assert "note: fake did not run huge: it does not fit: 3 GiB are free" in result.stdout
    assert result.stderr == "paleo: nothing could be measured\n"
    call(file("huge"), file(), "--executor=fake")


def test_an_interrupt_prints_what_there_is(clock: Clock, file: Any) -> None:
    clock.reset(interrupt_at=4 * (10 + 7))
    result = call(file(), file("other"), "--executor=fake", status=130)
    assert "note: interrupted after 7 of 100 runs" in result.stdout
    assert result.stderr == "paleo: note: interrupted before other\n"
    clock.reset(interrupt_at=4 * (10 + 7))
    found = json.loads(call(file(), "--executor=fake", "--format=json", status=130).stdout)
    assert found["interrupted"] is True
    step, forward = found["nets"][0]["parts"][-1], found["nets"][0]["parts"][0]
    assert (step["fake_runs"], forward["fake_s"]) == (7, None)
    clock.reset(interrupt_at=0)
    result = call(file(), "--executor=fake", status=130)
    assert (result.stdout, result.stderr) == ("", "paleo: note: interrupted before net\n")
    found = json.loads(call(file(), "--executor=fake", "--format=json", status=130).stdout)
    assert found == {"nets": [], "missed": ["net"], "interrupted": True}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--num_iter=0",), "num_iter: expected 1 or more, got 0"),
        (("--num_warmup=-1",), "num_warmup: expected 0 or more, got -1"),
        (("--executor=missing",), '--executor missing needs it: pip install "paleo[missing]"'),
        (("--executor=",), "executors: expected one or more, got none"),
    ],
)
def test_bad_input_is_one_line(clock: Clock, file: Any, arguments: Any, message: str) -> None:
    result = call(file(), "--executor=fake", *arguments, status=1)
    assert (result.stdout, result.stderr) == ("", f"paleo: {message}\n")


# The progress bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def lines_of(text: str) -> list[str]:
    """Return what stood in the line, one after the other."""
    return text.split("\r\x1b[K")[1:]


def test_a_terminal_shows_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = Terminal()
    monkeypatch.setattr(sys, "stderr", stderr)
    now = iter([0.0, 0.0, 30.0, 60.0, 90.0])
    monkeypatch.setattr("paleo.cli.progress.time.monotonic", lambda: next(now))
    monkeypatch.setenv("COLUMNS", "80")
    with progress("measuring", 4) as advance:
        for name in ("a", "b", "c", "d\n"):
            advance(name)
    assert lines_of(stderr.getvalue()) == [
        "measuring [....................] 0/4  a",
        "measuring [#####...............] 1/4, 1:30 left  b",
        "measuring [##########..........] 2/4, 1:00 left  c",
        r"measuring [###############.....] 3/4, 0:30 left  d\n",
        "",
    ]


def test_a_narrow_terminal_cuts_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = Terminal()
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setenv("COLUMNS", "30")
    with progress("measuring", 2) as advance:
        advance("a very long name of a layer")
    first, last = lines_of(stderr.getvalue())
    assert (len(first), last) == (29, "")


def test_the_line_is_gone_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = Terminal()
    monkeypatch.setattr(sys, "stderr", stderr)

    def measure() -> None:
        with progress("measuring", 2) as advance:
            advance("a")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure()
    assert stderr.getvalue().endswith("\r\x1b[K")


def test_what_is_no_terminal_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    with progress("measuring", 2) as advance:
        advance("a")
    assert stderr.getvalue() == ""


def test_commands_show_it_step_by_step(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, net: Any
) -> None:
    stderr = Terminal()
    monkeypatch.setattr(sys, "stderr", stderr)
    fullpass(net(SMALL), executors="fake", num_iter=2, progress=progress)
    profile(net(SMALL), executors="fake", num_iter=1, progress=progress)
    said = lines_of(stderr.getvalue())
    texts = [line.split("]")[1] for line in said if line]
    assert texts[0] == " 0/4  net: step 1"
    assert texts[3].endswith("left  net: in parts 2")
    assert texts[4] == " 0/3  net: data"
    assert texts[6].endswith("left  net: drop")


# With PyTorch


@pytest.mark.parametrize("inference", [False, True])
def test_pytorch_measures_a_net(file: Any, inference: bool) -> None:
    pytest.importorskip("torch", reason="needs torch")
    arguments = [file(), "--place=cpu", "--num_warmup=0", "--num_iter=2", "--format=json"]
    result = call(*arguments, *["--inference"] * inference)
    (found,) = json.loads(result.stdout)["nets"]
    names = ["inference"] if inference else [*PARTS, "step"]
    assert [part["part"] for part in found["parts"]] == names
    assert all(part["torch_s"] > 0 and part["torch_runs"] == 2 for part in found["parts"])


def test_pytorch_has_no_memory_for_a_net_and_goes_on(file: Any) -> None:
    pytest.importorskip("torch", reason="needs torch")
    # 300 numbers of 10**9 samples take 1.2 TB.
    huge = {**SMALL, "data": {"type": "Input", "parents": [], "tensor": [10**9, 300]}}
    found = fullpass(
        [paleo.loads(json.dumps({"name": "huge", "layers": huge})), file()],
        place="cpu",
        num_warmup=0,
        num_iter=1,
    )
    first, second = found.runs
    assert "GiB" in first.missing["torch"]
    assert (first.measured_anything, second.measured_anything) == (False, True)
