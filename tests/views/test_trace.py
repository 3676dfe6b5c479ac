"""Trace files: their format, and `--trace`."""

from __future__ import annotations

import json
import stat
from decimal import Decimal
from pathlib import Path
from typing import Any

import click.testing
import pytest
from hypothesis import given, settings
from nets_of_tests import make_net
from timelines import hardware, nets, two_layers
from trace_format import Read

import paleo
from paleo.cli import cli
from paleo.step.timeline.values import Event, StepPart, Timeline
from paleo.studies.timeline import timeline
from paleo.views import trace

#: The step of `timelines.two_layers`, derived in test_timeline.py.
HOW: dict[str, Any] = {"batch_size": 2, "workers": 2, "scheme": "TreeAllReduce"}


INSTEAD = "--trace - prints the trace instead of a table: leave out"


def run(*arguments: str) -> click.testing.Result:
    return click.testing.CliRunner().invoke(cli, ["simulate", *arguments], prog_name="paleo")


def test_a_small_file_by_hand(tmp_path: Path) -> None:
    found = timeline(
        two_layers(), **hardware(tmp_path), **HOW, cost_model="roofline", overlap=False
    )
    lines = trace.dumps(found).decode("ascii").splitlines()
    assert lines[0].endswith(',"traceEvents":[')
    assert lines[-1] == "]}"
    events = [line.removesuffix(",") for line in lines[1:-1]]
    assert events[:4] == [
        '{"name":"process_name","ph":"M","pid":1,"tid":1,"args":{"name":"two, predicted step"}}',
        '{"name":"process_sort_index","ph":"M","pid":1,"tid":1,"args":{"sort_index":1}}',
        '{"name":"thread_name","ph":"M","pid":1,"tid":1,"args":{"name":"parts of the step"}}',
        '{"name":"thread_sort_index","ph":"M","pid":1,"tid":1,"args":{"sort_index":1}}',
    ]
    starts = [line.partition(',"args"')[0] for line in events if '"ph":"X"' in line]
    assert starts[:4] == [
        '{"name":"forward","cat":"forward","ph":"X","ts":0.000,"dur":7500.000,"pid":1,"tid":1',
        '{"name":"backward","cat":"backward","ph":"X","ts":7500.000,"dur":10000.000,"pid":1,"tid":1',
        '{"name":"update","cat":"update","ph":"X","ts":17500.000,"dur":18000.000,"pid":1,"tid":1',
        (
            '{"name":"exchange by TreeAllReduce","cat":"transfer","ph":"X","ts":35500.000,'
            '"dur":12000.000,"pid":1,"tid":1'
        ),
    ]
    assert starts[4] == (
        '{"name":"fc1","cat":"forward","ph":"X","ts":0.000,"dur":5000.000,"pid":1,"tid":2'
    )
    assert events[-4:] == [
        '{"name":"data","cat":"flow","ph":"s","id":1,"ts":35500.000,"pid":1,"tid":3}',
        '{"name":"data","cat":"flow","ph":"f","id":1,"ts":35500.000,"pid":1,"tid":2,"bp":"e"}',
        '{"name":"data","cat":"flow","ph":"s","id":2,"ts":41500.000,"pid":1,"tid":2}',
        '{"name":"data","cat":"flow","ph":"f","id":2,"ts":41500.000,"pid":1,"tid":3,"bp":"e"}',
    ]
    head = json.loads(trace.dumps(found))["otherData"]
    assert (head["net"], head["scheme"], head["workers"]) == ("two", "TreeAllReduce", 2)
    assert head["predicted_s"] == found.seconds


CASES: list[tuple[str, dict[str, Any]]] = [
    ("nin", {"workers": 5, "scheme": "ButterflyAllReduce"}),
    ("alex_v2_4gpu", {"parallel": "hybrid", "hybrid_workers": 4}),
    ("alex_v2_4gpu", {"parallel": "hybrid", "hybrid_workers": 4, "cost_model": "paleo2017"}),
    ("googlenet", {"parallel": "model"}),
    ("alex_v2_8gpu", {"parallel": "model", "fuse": True}),
]


@pytest.mark.parametrize(("net", "how"), CASES)
def test_files_keep_the_format_and_add_up(net: str, how: dict[str, Any]) -> None:
    found = timeline(net, **how)
    read = Read(trace.dumps(found))
    whole = Decimal(round(found.seconds * 1e9)) / 1000
    assert read.total("parts of the step") == whole
    for worker in found.workers:
        assert read.total(worker) == whole
    assert sum(map(len, read.complete.values())) == len(found.events) + len(found.parts)
    assert len(read.flows) == len(found.flows)
    for sent, taken in read.flows:
        assert sent["tid"] != taken["tid"]


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(nets())
def test_files_of_any_net_keep_the_format(net: paleo.NetSpec) -> None:
    for how in (
        {"workers": 3},
        {"parallel": "model"},
        {"parallel": "hybrid", "hybrid_workers": 3, "network": "infiniband"},
    ):
        Read(trace.dumps(timeline(net, **how)))


def test_names_of_layers_stay_data() -> None:
    names = ['<script>alert("1")</script>', "слой 层 😀", 'a "b" \\ c\n\td', "\ud800"]
    layers: dict[str, Any] = {"data": {"type": "Input", "parents": [], "tensor": [1, 100]}}
    for name in names:
        parents = [next(reversed(layers))]
        layers[name] = {"type": "InnerProduct", "parents": parents, "num_outputs": 10}
    net = make_net(layers, "<b>net</b>")
    read = Read(trace.dumps(timeline(net)))
    found = {event["name"] for events in read.complete.values() for event in events}
    assert set(names) < found
    assert read.processes == {1: "<b>net</b>, predicted step"}


def test_the_command_writes_a_step_beside_its_table(tmp_path: Path) -> None:
    path = tmp_path / "step.json"
    table = run("nin", "--num_workers=2,8,4")
    result = run("nin", "--num_workers=2,8,4", "--trace", str(path))
    assert (result.exit_code, result.stdout) == (0, table.stdout)
    # The first scaling, most workers, the best scheme.
    assert result.stderr.startswith(
        f"paleo: {path}: nin, data-parallel, weak scaling, auto, 8 workers, "
    )
    assert len(result.stderr.splitlines()) == 1
    head = Read(path.read_bytes()).file["otherData"]
    assert (head["workers"], head["scaling"]) == (8, "weak")
    run_: Any
    (run_,) = paleo.simulate("nin", workers=8, scaling="weak").runs
    assert float(head["predicted_s"]) == run_.rows[0].total("auto")


def test_the_command_takes_the_schemes_and_scalings_that_it_compares(tmp_path: Path) -> None:
    path = tmp_path / "step.json"
    options = ("--scheme=OneToAll,TreeAllReduce", "--scaling=strong,weak", "--num_workers=4")
    result = run("nin", *options, "--trace", str(path))
    assert "strong scaling, TreeAllReduce, 4 workers" in result.stderr
    assert Read(path.read_bytes()).file["otherData"]["scheme"] == "TreeAllReduce"


def test_the_command_counts_workers_and_slices(tmp_path: Path) -> None:
    def said(net: str, *options: str) -> str:
        return run(net, *options, "--trace", str(tmp_path / "step.json")).stderr

    hybrid = "--parallel=hybrid"
    four = said("alex_v2_4gpu", hybrid, "--hybrid_workers=3")
    assert "alex_v2_4gpu, hybrid-parallel, 3 workers, 4 slices, " in four
    none = said("nin", hybrid, "--hybrid_workers=3")
    assert "nin, hybrid-parallel, 3 workers, " in none
    assert "slice" not in none
    assert "model-parallel, 4 devices, " in said("alex_v2_4gpu", "--parallel=model")


def test_the_command_draws_most_workers_wherever_they_stand(tmp_path: Path) -> None:
    # A plot "-" is no file: a trace named "./-" may stand beside it.
    path = tmp_path / "-"
    result = run("nin", "--num_workers=4,16,2", "--plot=-", "--trace", str(path))
    assert result.exit_code == 0
    assert Read(path.read_bytes()).file["otherData"]["workers"] == 16


def drawn(*events: Event) -> list[tuple[str, str, str]]:
    """Return the names, starts and durations in the trace of a worker's events."""
    part = StepPart("forward", "forward", 0.0, 5e-9)
    found = Timeline("net", {}, 5e-9, ("worker 0",), (part,), events)
    _, spans = Read(trace.dumps(found)).complete.values()
    return [(span["name"], str(span["ts"]), str(span["dur"])) for span in spans]


def test_events_do_not_overlap_by_a_rounding() -> None:
    # The first ends after 1.51 ns, which are 2, and the second begins after 1.49 ns, which are 1:
    # it begins where the first ends, after 2 of the 3.49 ns at which it ends.
    assert drawn(
        Event(0, 0, "a", "forward", 0.0, 1.51e-9), Event(0, 0, "b", "forward", 1.49e-9, 2e-9)
    ) == [("a", "0.000", "0.002"), ("b", "0.002", "0.001")]


def test_an_event_that_a_rounding_swallows_is_left_out() -> None:
    # The second would end after 1.495 ns, which are 1, before the first ends at 2.
    assert drawn(
        Event(0, 0, "a", "forward", 0.0, 1.51e-9),
        Event(0, 0, "b", "forward", 1.49e-9, 0.005e-9),
        Event(0, 0, "c", "forward", 1.51e-9, 2e-9),
    ) == [("a", "0.000", "0.002"), ("c", "0.002", "0.002")]


def test_the_command_passes_all_settings_on(tmp_path: Path) -> None:
    path = tmp_path / "step.json"
    options = [
        "--device=K80",
        "--network=infiniband",
        "--batch_size=16",
        "--use_pipeline",
        "--fuse",
        "--cost_model=roofline",
        "--ppp_comp=0.5",
        "--ppp_comm=0.25",
        "--parallel=hybrid",
        "--hybrid_workers=3",
    ]
    result = run("alex_v2_4gpu", *options, "--trace", str(path), "--format=json")
    (found,) = json.loads(result.stdout)["runs"]
    head = Read(path.read_bytes()).file["otherData"]
    assert float(head["predicted_s"]) == found["step_s"]
    for key in ("device", "network", "batch_size", "use_pipeline", "fuse", "cost_model"):
        assert head[key] == found[key]


def test_the_command_draws_edited_nets(tmp_path: Path) -> None:
    path = tmp_path / "step.json"
    run("nin", "--set=conv1.strides[1:3]=8", "--num_workers=1", "--trace", str(path))
    (row,) = json.loads(
        run(
            "nin",
            "--set=conv1.strides[1:3]=8",
            "--num_workers=1",
            "--scaling=weak",
            "--format=json",
        ).stdout
    )["runs"][0]["rows"]
    assert float(Read(path.read_bytes()).file["otherData"]["predicted_s"]) == row["compute_s"]


def test_a_dash_prints_the_trace_instead_of_the_table() -> None:
    result = run("alex_v2_4gpu", "--parallel=model", "--trace", "-")
    read = Read(result.stdout.encode())
    assert read.processes == {1: "alex_v2_4gpu, predicted step"}
    assert result.stderr.startswith(
        "paleo: standard output: alex_v2_4gpu, model-parallel, 4 devices, "
    )


@pytest.mark.parametrize(
    ("arguments", "status", "line"),
    [
        (["nin", "--trace", "no/x.json"], 1, "no/x.json: cannot be written: there is no folder no"),
        (["nin", "--trace", ""], 1, "expected the name of a file to write, got an empty one"),
        (["nin", "--trace", "."], 1, ".: cannot be written: it names a folder"),
        (["nin", "vgg16", "--trace", "x"], 1, "--trace: a timeline is of one net, here are 2"),
        (
            ["nin", "--vary=scale_input=1,2", "--trace", "x"],
            1,
            "--trace: a timeline is of one net, here are 2",
        ),
        (
            ["nin", "--trace", "-", "--format=json"],
            2,
            f"{INSTEAD} --format json (see paleo simulate --help)",
        ),
        (
            ["nin", "--trace", "-", "--plot", "-"],
            2,
            f"{INSTEAD} --plot (see paleo simulate --help)",
        ),
        (
            ["nin", "--num_workers=1000000", "--scaling=weak", "--trace", "x"],
            1,
            (
                "a timeline of 1,000,000 workers would have more than 500,000 events: "
                "ask for fewer workers"
            ),
        ),
    ],
)
def test_what_cannot_be_traced_is_one_line(
    arguments: list[str], status: int, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert (result.exit_code, result.stdout, result.stderr) == (status, "", f"paleo: {line}\n")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_stays_if_it_cannot_be_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "step.json"
    path.write_text("before")
    path.chmod(stat.S_IRUSR | stat.S_IWUSR)

    def full(_: str, __: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    monkeypatch.setattr("pathlib.Path.replace", full)
    result = run("nin", "--num_workers=1", "--trace", str(path))
    assert result.exit_code == 1
    assert result.stderr == f"paleo: {path}: cannot be written: No space left on device\n"
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]
