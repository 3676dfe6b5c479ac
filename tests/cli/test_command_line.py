"""The commands, their options, and what they print, in every format."""

from __future__ import annotations

import csv
import functools
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import click.testing
import pytest

import paleo
from paleo.cli import cli
from paleo.costs import DEFAULT_COST_MODEL
from paleo.views.table import FORMATS

LISTS = ("nets", "devices", "networks")
COMMANDS = [
    ("summary", "nin"),
    ("simulate", "nin"),
    ("metrics", "nin"),
    *((name,) for name in LISTS),
]
#: Nets of the list of nets: all are read in tests/net/test_net_format.py.
FEW_NETS = ["alex_v2", "gpt2", "lenet5", "lstm_lm", "nin"]
SCHEMES = {"OneToAll", "TreeAllReduce", "ButterflyAllReduce", "ButterflyMixing"}


@pytest.fixture(autouse=True)
def _few_nets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paleo.cli.commands.nets.net_names", lambda: FEW_NETS)


def call(*arguments: str, status: int = 0) -> click.testing.Result:
    """Run a command without a process."""
    result = click.testing.CliRunner().invoke(cli, arguments, prog_name="paleo")
    assert result.exit_code == status, result.output
    return result


@functools.cache
def printed(*arguments: str) -> str:
    """Return what a command prints, run once: the lists read all that there is."""
    return call(*arguments).stdout


def as_json(*arguments: str) -> Any:
    return json.loads(call(*arguments, "--format=json").stdout)


def separated(text: str, separator: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text), delimiter=separator))


def process(*arguments: str, **kwargs: Any) -> subprocess.CompletedProcess[bytes]:
    """Run `python -m paleo` in a process of its own."""
    # The environment as Python has it: without one, a process also gets the COLUMNS that readline,
    # which pytest imports, has set behind Python's back.
    kwargs.setdefault("env", dict(os.environ))
    return subprocess.run(
        [sys.executable, "-m", "paleo", *arguments], capture_output=True, **kwargs
    )


def written(folder: Path, name: str, layer: str = "data") -> Path:
    """Write a net of one input."""
    path = folder / "my.json"
    layers = {layer: {"type": "Input", "parents": [], "tensor": [2, 8, 8, 3]}}
    path.write_text(json.dumps({"name": name, "layers": layers}))
    return path


def test_simulate_has_the_defaults_of_2017() -> None:
    # Section 2 of the equations of the 2017 model; the separator has become a table, the cost model
    # may be another, and scaling is weak alone, as everywhere else.
    plain = as_json("simulate", "alex_v2")
    assert [run["scaling"] for run in plain["runs"]] == ["weak"]
    for run in plain["runs"]:
        assert (run["device"], run["network"]) == ("TITAN_X", "ethernet")
        assert (run["batch_size"], run["cost_model"]) == (128, DEFAULT_COST_MODEL)
        assert (run["parallel"], run["ppp_comp"], run["ppp_comm"]) == ("data", 1, 1)
        assert (run["use_pipeline"], run["use_only_gemm"]) == (False, False)
        assert [row["workers"] for row in run["rows"]] == [1, 2, 4, 8, 16, 32, 64, 128]
    (hybrid,) = as_json("simulate", "alex_v2_4gpu", "--parallel=hybrid")["runs"]
    assert [row["workers"] for row in hybrid["rows"]] == [1, 1]


#: Each option of simulate with another value than its default.
OPTIONS = {
    "device_name": "K40",
    "network_name": "pcie2",
    "batch_size": "96",
    "num_workers": "1,3",
    "scaling": "strong",
    "ppp_comp": "0.5",
    "ppp_comm": "0.25",
    "parallel": "model",
    "use_pipeline": None,
    "use_only_gemm": None,
    "conv_library": "any",
    "workspace": "1MiB",
    "cost_model": "paleo2017",
    "dtype": "fp64",
    "fuse": None,
    "scheme": "OneToAll",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_may_be_written_with_hyphens_or_underscores(name: str) -> None:
    given = OPTIONS[name]
    value = [] if given is None else [given]
    command = ("simulate", "alex_v2", "--cost_model=roofline", "--format=json")
    plain = call(*command).stdout
    low = call(*command, f"--{name}", *value).stdout
    high = call(*command, f"--{name.replace('_', '-')}", *value)
    assert high.stdout == low != plain


def test_the_options_of_summary_and_hybrid_take_hyphens_too() -> None:
    assert as_json("summary", "nin", "--batch-size=3")["nets"][0]["batch_size"] == 3
    (run,) = as_json("simulate", "alex_v2_4gpu", "--parallel=hybrid", "--hybrid-workers=4")["runs"]
    assert {row["workers"] for row in run["rows"]} == {4}


def test_device_and_network_have_second_names() -> None:
    short = call("simulate", "nin", "--device", "K20", "--network", "pcie3").stdout
    assert short == call("simulate", "nin", "--device_name=K20", "--network_name=pcie3").stdout
    assert "nin on K20, pcie3" in short


def test_summary_takes_the_batch_of_the_file(tmp_path: Path) -> None:
    net = str(written(tmp_path, "net"))
    assert as_json("summary", net)["nets"][0]["layers"][0]["output"] == [2, 8, 8, 3]
    assert as_json("summary", net, "--batch_size=5")["nets"][0]["layers"][0]["output"][0] == 5


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_verbose_stands_before_or_after_the_command(command: tuple[str, ...]) -> None:
    before, after = call("--verbose", *command), call(*command, "--verbose")
    assert before.stdout == after.stdout == printed(*command)
    assert before.stderr == after.stderr
    assert all(line.startswith("paleo: ") for line in after.stderr.splitlines())


def test_verbose_says_what_is_read_and_used() -> None:
    assert "nin.json" in call("summary", "nin", "--verbose").stderr
    said = call("simulate", "nin", "--device=K40", "--network=aws", "--verbose").stderr
    for expected in ("nin.json", "K40: memory bandwidth 2.88e+11", "aws: bandwidth 2.5e+08"):
        assert expected in said


def test_debug_shows_the_traceback_and_the_line() -> None:
    for arguments in (["--debug", "summary", "gone"], ["summary", "gone", "--debug"]):
        said = call(*arguments, status=1).stderr
        assert said.startswith("Traceback (most recent call last):")
        assert said.splitlines()[-1].startswith("paleo: unknown net 'gone'")


def test_version_and_help_of_every_command() -> None:
    assert call("--version").stdout == f"paleo {paleo.__version__}\n"
    for command in ("summary", "simulate", *LISTS):
        assert call(command, "-h").stdout == call(command, "--help").stdout
        assert f"Usage: paleo {command} " in call(command, "-h").stdout
        assert f"  {command} " in call("-h").stdout


def test_help_names_every_option_and_its_default() -> None:
    said = " ".join(call("simulate", "-h").stdout.split())
    for name in (*OPTIONS, "device", "network", "hybrid_workers", "separator", "format", "verbose"):
        assert f"--{name}" in said
    for default in ("TITAN_X", "ethernet", "128", "1,2,4,8,16,32,64,128", "weak", "data"):
        assert f"[default: {default}]" in said


def test_no_command_at_all_shows_the_help() -> None:
    said = call(status=2).stderr
    assert "\n  simulate " in said
    assert "\\n" not in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["summary", "nin", "--foo"], "No such option"),
        (["simulate", "nin", "--format=xml"], "Invalid value for '--format': 'xml' is not one of"),
        (["metrics", "nin", "--epochs=x"], "Invalid value for '--epochs': 'x' is not"),
        (["simulate", "nin", "--batch_size"], "Option '--batch_size' requires an argument"),
        (["simulate", "nin", "--parallel=tensor"], "Invalid value for '--parallel': 'tensor'"),
        (["simulate"], "Missing argument 'NET...'"),
        (["nets", "nin"], "Got unexpected extra argument (nin)"),
        (["simulat"], "no such command 'simulat' (did you mean 'simulate'?)"),
        *(
            (["summary", "nin", f"--separator={bad}"], "--separator: expected one character, or ")
            for bad in ("", ";;", '"', "\n", "tabs")
        ),
        (["summary", "nin", "--separator=;", "--format=json"], "--separator does not go with --fo"),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(arguments: list[str], message: str) -> None:
    result = call(*arguments, status=2)
    command = "" if message.startswith("no such command") else f" {arguments[0]}"
    (line,) = result.stderr.splitlines()
    assert result.stdout == ""
    assert line.startswith(f"paleo: {message}")
    assert line.endswith(f"(see paleo{command} --help)")


def test_nets_are_found_by_name_and_by_path_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    by_name = call("summary", "alex_v2").stdout
    assert call("summary", "nets/alex_v2.json").stdout == by_name
    assert call("summary", "alex_v2.json").stdout == by_name
    Path("nets").mkdir()
    own = written(Path("nets"), "mine").rename("nets/alex_v2.json")
    assert "mine, batch 2" in call("summary", str(own)).stdout
    assert "mine, batch 2" in call("summary", str(own.absolute())).stdout
    assert call("summary", "alex_v2").stdout == by_name


def test_several_nets_come_in_order() -> None:
    nets = ["nin", "alex_v2", "nin"]
    assert [net["name"] for net in as_json("summary", *nets)["nets"]] == nets
    runs = as_json("simulate", *nets, "--num_workers=1,2", "--scaling=weak,strong")["runs"]
    assert [(run["net"], run["scaling"]) for run in runs] == [
        (net, scaling) for net in nets for scaling in ("weak", "strong")
    ]


@pytest.mark.slow
def test_python_m_paleo_is_the_command() -> None:
    done = process("simulate", "alex_v2", cwd="/")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode() == call("simulate", "alex_v2").stdout
    assert b"\x1b" not in done.stdout
    assert 80 < max(map(len, done.stdout.decode().splitlines())) <= 100


def types(values: dict[str, Any]) -> dict[str, type]:
    return {key: type(value) for key, value in values.items()}


RUN: dict[str, type] = dict.fromkeys(("net", "device", "network", "cost_model", "dtype"), str)
RUN |= {"ppp_comp": float, "ppp_comm": float}
RUN |= {"batch_size": int, "use_pipeline": bool, "fuse": bool, "rows": list}
PARTS = {"forward_s": float, "backward_s": float, "update_s": float}


def test_the_json_of_summary_has_layers_and_totals() -> None:
    (net,) = as_json("summary", "alex_v2_2gpu")["nets"]
    totals = dict.fromkeys(("params", "forward_flops", "weights_bytes", "activations_bytes"), int)
    assert types(net).items() >= ({"name": str, "dtype": str, "layers": list} | totals).items()
    keys = {"name": str, "type": str, "parents": list, "output": list} | totals
    for layer in net["layers"]:
        assert types(layer).items() >= keys.items()
    for key in totals:
        assert net[key] == sum(layer[key] for layer in net["layers"])
    fc7 = next(layer for layer in net["layers"] if layer["name"] == "parallel_fc67/fc7@1")
    assert fc7["parents"] == ["parallel_fc67/concat6@1"]
    assert (fc7["type"], fc7["output"]) == ("Convolution", [128, 1, 1, 2048])


def test_the_json_of_data_parallel_runs() -> None:
    settings = (
        *("--batch_size=8", "--num_workers=1,4", "--ppp_comm=0.5", "--scaling=weak,strong"),
        "--cost_model=paleo2017",
    )
    runs = as_json("simulate", "nin", *settings)
    keys = {"workers": int, "batch_size": int, "iterations": int, "compute_s": float} | PARTS
    keys |= {
        f"{of}_{part}_s": float
        for of in ("forward", "backward", "update")
        for part in ("compute", "memory", "overhead")
    }
    assert [run["scaling"] for run in runs["runs"]] == ["weak", "strong"]
    for run, batches in zip(runs["runs"], ([8, 32], [8, 8]), strict=True):
        assert types(run).items() >= (RUN | {"scaling": str}).items()
        assert [row["batch_size"] for row in run["rows"]] == batches  # of all workers
        for row in run["rows"]:
            assert types(row).items() >= keys.items()
            assert row["compute_s"] == row["forward_s"] + row["backward_s"] + row["update_s"]
            assert types(row["communication_s"]) == dict.fromkeys(SCHEMES, float)
            assert row["iterations"] == 1


def test_the_json_of_model_parallel_runs() -> None:
    (run,) = as_json("simulate", "alex_v2_4gpu", "--parallel=model")["runs"]
    assert types(run).items() >= RUN.items()
    assert [row["pass"] for row in run["rows"]] == ["forward", "backward"]
    for row in run["rows"]:
        assert types(row).items() >= {"lower_s": float, "upper_s": float}.items()
        assert 0 < row["lower_s"] < row["upper_s"]


def test_the_json_of_hybrid_parallel_runs() -> None:
    (run,) = as_json("simulate", "alex_v2_4gpu", "--parallel=hybrid", "--hybrid_workers=4")["runs"]
    assert types(run).items() >= RUN.items()
    assert [row["part"] for row in run["rows"]] == ["data", "model"]
    for row in run["rows"]:
        assert types(row).items() >= (PARTS | {"sync_s": float}).items()
        assert (row["workers"], row["batch_size"]) == (4, 512)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "separator"),
    [("format=csv", ","), ("format=tsv", "\t"), ("separator=;", ";"), ("separator=tab", "\t")],
)
def test_separated_values_are_those_of_the_json(option: str, separator: str) -> None:
    data = (
        *("simulate", "nin", "vgg16", "--num_workers=1,3,128", "--scaling=weak,strong"),
        "--cost_model=paleo2017",
    )
    rows = separated(call(*data, f"--{option}").stdout, separator)
    runs = as_json(*data)["runs"]
    expected = [{**run, **row} for run in runs for row in run["rows"]]
    assert len(rows) == len(expected) == 12
    for found, row in zip(rows, expected, strict=True):
        for key in ("net", "device", "scaling", "workers", "batch_size"):
            assert found[key] == str(row[key])
        for key in (*PARTS, "compute_s"):
            assert float(found[key]) == row[key]
        for scheme in SCHEMES:
            assert float(found[f"{scheme}_s"]) == row["communication_s"][scheme]

    rows = separated(call("summary", "alex_v2_2gpu", f"--{option}").stdout, separator)
    (net,) = as_json("summary", "alex_v2_2gpu")["nets"]
    assert [(row["net"], row["name"]) for row in rows] == [
        (net["name"], layer["name"]) for layer in net["layers"]
    ]
    for row, layer in zip(rows, net["layers"], strict=True):
        assert row["output"] == "x".join(map(str, layer["output"]))
        assert row["parents"].split() == layer["parents"]
        for key in ("params", "forward_flops", "weights_bytes", "activations_bytes"):
            assert int(row[key]) == layer[key]


@pytest.mark.parametrize("parallel", ["model", "hybrid"])
def test_separated_values_of_model_and_hybrid_runs(parallel: str) -> None:
    arguments = ("simulate", "alex_v2_2gpu", f"--parallel={parallel}")
    (run,) = as_json(*arguments)["runs"]
    rows = separated(call(*arguments, "--format=csv").stdout, ",")
    for found, row in zip(rows, run["rows"], strict=True):
        values = {
            key: str(value)
            for key, value in row.items()
            if not key.endswith(("_low", "_high"))  # ends of bands are in JSON alone
        }
        assert found.items() >= values.items()


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_prints_every_format(command: tuple[str, ...]) -> None:
    texts = {name: printed(*command, f"--format={name}") for name in FORMATS}
    assert len(set(texts.values())) == len(FORMATS)
    assert printed(*command) == texts["table"]
    json.loads(texts["json"])
    assert separated(texts["csv"], ",") == separated(texts["tsv"], "\t")
    rows = [line for line in texts["markdown"].splitlines() if line.startswith("|")]
    assert len({row.count(" | ") for row in rows}) == 1


@pytest.mark.slow
@pytest.mark.parametrize("command", LISTS)
def test_lists_have_figures_and_sources_in_every_format(command: str) -> None:
    names = getattr(paleo, f"{command.removesuffix('s')}_names")()
    if command == "nets":
        names = FEW_NETS
    found = json.loads(printed(command, "--format=json"))[command]
    assert [entry["name"] for entry in found] == names
    assert not any("cited" in entry for entry in found)  # the numbers are the table's
    assert [row["name"] for row in separated(printed(command, "--format=csv"), ",")] == names
    figure = {"nets": "50,303,912", "devices": "TITAN_X", "networks": "126.0"}[command]
    source = {"nets": "arXiv:1404.5997", "devices": "https://", "networks": "IEEE"}[command]
    for name in FORMATS:
        text = printed(command, f"--format={name}")
        # So much hardware has its sources on request: `paleo devices NAME`.
        assert source in text or (command != "nets" and name in ("table", "markdown"))
        assert figure in text or name in ("csv", "tsv", "json")


def test_tables_have_units_in_the_header_and_mark_the_best_scheme() -> None:
    two = ("simulate", "alex_v2", "--num_workers=1,8", "--quiet", "--cost_model=paleo2017")
    lines = call(*two, "--scheme=all", "--wide").stdout.splitlines()
    title = "alex_v2 on TITAN_X, ethernet, data-parallel, weak scaling, batch 128, fp32, "
    assert lines[0].startswith(title)
    for word in ("workers", "(ms)", "samples", "speedup", "efficiency", "(%)"):
        assert any(word in line for line in lines[:6])
    (row,) = (line for line in lines if line.split()[:1] == ["8"])
    assert row.count("*") == 1
    best = "* ButterflyAllReduce, the quickest scheme that gives all workers the whole sum"
    assert any(line.startswith(best) for line in lines)
    assert {line.split("  ")[0] for line in lines if "Mixing" in line} != set()
    # One scheme is shown unless several are asked for: the best, or the one asked for.
    alone = call(*two).stdout
    assert "*" not in alone
    assert "Mixing" not in alone
    assert "\ncommunication is by ButterflyAllReduce, the quickest scheme that gives" in alone
    one = call(*two, "--scheme=ButterflyMixing").stdout
    assert "\ncommunication is by ButterflyMixing\n" in one


def test_notes_say_what_a_reader_must_know() -> None:
    strong = ("simulate", "nin", "--scaling=strong", "--num_workers=2,16", "--batch_size=4")
    note = (
        "4 samples for up to 16 workers: where there are more workers than samples, each computes"
    )
    (run,) = as_json(*strong)["runs"]
    assert any(note in said for said in run["notes"])
    assert f"note: {note}" in call(*strong).stdout
    assert f"paleo: note: {note}" in call(*strong, "--format=csv").stderr
    alone = as_json("simulate", "nin", "--num_workers=1", "--batch_size=1")["runs"][0]
    assert run["rows"][1]["forward_s"] == alone["rows"][0]["forward_s"]
    hybrid = ("simulate", "alex_v2_4gpu", "--parallel=hybrid", "--hybrid_workers=3")
    assert "hybrid_workers is 3, the net's layers are split 4 ways" in call(*hybrid).stdout
    assert "split 4 ways" not in call(*hybrid[:-1], "--hybrid_workers=4").stdout
    for options in ([], ["--use_only_gemm"]):
        plan = ("simulate", "nin", "--cost_model=paleo2017", *options)
        assert "(GEMM)" in call(*plan).stdout


@pytest.mark.parametrize("name", FORMATS)
def test_control_characters_in_names_break_no_table(tmp_path: Path, name: str) -> None:
    for command, model in (("summary", "tiled"), ("simulate", "paleo2017")):
        options = (f"--format={name}", f"--cost_model={model}")
        plain = call(command, str(written(tmp_path, "net")), *options).stdout
        net = str(written(tmp_path, "a\nb\x1b", "c\nd\x1b"))
        odd = call(command, net, *options).stdout
        assert len(odd.splitlines()) == len(plain.splitlines())
        assert "\x1b" not in odd


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1", "cp437"])
def test_a_name_that_the_terminal_cannot_show_stops_nothing(tmp_path: Path, encoding: str) -> None:
    net = str(written(tmp_path, "größe 😀", "日本"))
    env = os.environ | {"LC_ALL": "C", "PYTHONIOENCODING": encoding}
    table = process("summary", net, env=env)
    assert (table.returncode, table.stderr) == (0, b"")
    output = process("summary", net, "--format=json", env=env).stdout
    text = output.decode("utf-8" if encoding == "ascii" else encoding)  # as click does it
    assert json.loads(text)["nets"][0]["name"] == "größe 😀"


@pytest.mark.slow
def test_a_narrow_terminal_folds_tables() -> None:
    pty = pytest.importorskip("pty", reason="there are no pseudo-terminals here")
    import fcntl
    import struct
    import termios

    for command in (["simulate", "alex_v2"], ["summary", "alex_v2"]):
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
        env = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
        child = subprocess.Popen([sys.executable, "-m", "paleo", *command], stdout=theirs, env=env)
        os.close(theirs)
        text = b""
        try:
            while found := os.read(ours, 65536):
                text += found
        except OSError:  # Linux says so when the other end is closed
            pass
        os.close(ours)
        assert child.wait() == 0
        lines = text.decode().splitlines()
        titles = ("alex_v2 ", "alex_v2,", "note: ", "* ")
        assert all(len(line) <= 60 or line.startswith(titles) for line in lines)
        assert sum(line.startswith(("workers  ", "layer  ")) for line in lines) > 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("paleo simulate al", {"alex_v2", "alex_v2_8gpu"}),
        ("paleo simulate nin --device K", {"K20", "K20X", "K40", "K80"}),
        ("paleo simulate nin --device_name tit", {"TITAN_X"}),
        ("paleo simulate nin --network eth", {"ethernet", "ethernet20"}),
        ("paleo si", {"simulate"}),
        ("paleo simulate nin --scheme OneToAll,tree", {"OneToAll,TreeAllReduce"}),
        ("paleo simulate nin --cost_model roof", {"roofline"}),
        ("paleo metrics nin --dataset cifar", {"cifar10", "cifar100"}),
        ("paleo metrics nin --optimizer ad", {"adagrad", "adam", "adamw"}),
        ("paleo metrics nin --scheme tree", {"TreeAllReduce"}),
        ("paleo devices K", {"K20", "K20X", "K40", "K80"}),
        ("paleo networks pc", {"pcie2", "pcie3"}),
    ],
)
def test_the_shell_completes(words: str, expected: set[str]) -> None:
    env = os.environ | {
        "_PALEO_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    offered = process(env=env).stdout.decode().split()
    prefix = words.split()[-1].lower()
    names = {entry.removeprefix("plain,") for entry in offered if entry.startswith("plain,")}
    assert names >= expected
    assert all(name.lower().startswith(prefix) for name in names)


def test_options_without_effect_are_said() -> None:
    result = call("simulate", "nin", "--parallel=model", "--num-workers=5", "--scheme=OneToAll")
    assert [line for line in result.stderr.splitlines() if "no effect" in line] == [
        f"paleo: note: --{option} is for --parallel={kinds}, it has no effect here"
        for option, kinds in (
            ("num_workers", "data or mesh or single_process"),
            ("scheme", "data or mesh"),
        )
    ]
    assert call("simulate", "nin").stderr == ""


def test_a_table_shows_two_parents_and_how_many_more() -> None:
    (line,) = [
        line
        for line in call("summary", "inception_v3", "--wide").stdout.splitlines()
        if line.startswith("Mixed_5b/concat ")
    ]
    assert "Mixed_5b/Branch_0/Conv2d_0a_1x1, Mixed_5b/Branch_1/Conv2d_0b_5x5, +2 " in line
    rows = separated(call("summary", "inception_v3", "--format=csv").stdout, ",")
    (row,) = [row for row in rows if row["name"] == "Mixed_5b/concat"]
    assert len(row["parents"].split()) == 4


def test_a_reader_that_is_gone_before_a_short_output_ends_quietly() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "paleo", "summary", "nin"]
    # Buffered, so that it is written at the end: click sees to what is written before.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, env=env, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


def test_what_asks_for_a_network_takes_a_cluster_in_its_place() -> None:
    context = click.Context(cli)
    commands = {name: cli.get_command(context, name) for name in cli.list_commands(context)}
    names = {
        name: {parameter.name for parameter in command.params}
        for name, command in commands.items()
        if command
    }
    asking = {name for name, own in names.items() if "network" in own}
    assert asking == {"simulate", "metrics", "compare", "plan", "report", "collectives", "infer"}
    # Memory asks for no network, but how many devices share a net.
    assert asking | {"memory"} == {name for name, own in names.items() if "cluster" in own}


@pytest.mark.parametrize("command", ["simulate", "metrics"])
def test_a_cluster_goes_with_no_device_or_network(command: str) -> None:
    for option in ("--device=K40", "--network=aws"):
        said = call(command, "lenet5", "--cluster=aws_g3", option, status=1).stderr
        key = option[2:].partition("=")[0]
        assert said == f"paleo: {key}: a cluster has its own: leave out {key}, or cluster\n"


def test_compare_puts_clusters_beside_each_other() -> None:
    asked = ("compare", "alex_v2", "--cluster=aws_p3dn,dgx1_v100", "--num_workers=16", "--totals")
    text = " ".join(call(*asked, "--batch_size=32").stdout.split())
    assert "A step of alex_v2, dgx1_v100 takes" in text
    assert "the update and what is exposed of the exchange" in text
    found = call(*asked, "--batch_size=32", "--format=json").stdout
    assert found.index('"cluster": "aws_p3dn"') < found.index('"cluster": "dgx1_v100"')
