"""`paleo sweep`: files of every combination, which go on where a process was killed."""

from __future__ import annotations

import csv
import json
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click.testing
import pytest

import paleo
from paleo.cli import cli
from paleo.cli.sweep_dask import _PROCESSES

GRID = """
net = "lenet5"
dtype = "fp32"
where = "batch_size * workers <= 128"
[axes]
batch_size = {from = 16, to = 64, factor = 2}
workers = [1, 2, 1000000]
cluster = ["dgx_a100"]
"""
#: Points that are evaluated one by one, so that there is time to kill what does.
#: So many points, two in each part: seconds, in which another process has time to look.
POINTS = 72
SLOW = f"""
net = "alex_v2_4gpu"
parallel = "hybrid"
[axes]
batch_size = {{from = 1, to = {POINTS}}}
"""
DEVICE = """
name = "mine"
kind = "gpu"
[sources]
own = "measured here"
[figures]
memory_bandwidth = {value = "100 GB/s", source = "own"}
memory_capacity = {value = "12 GiB", source = "own"}
[peak.fp32]
vector = {value = "1 TFLOP/s", source = "own"}
"""
#: Of data parallelism: 3 x 2 x 2 points.
QUICK = """
net = "lenet5"
cost_model = "paleo2017"
[axes]
network = ["infiniband", "ethernet"]
batch_size = [16, 32, 64]
workers = [1, 4]
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "grid.toml"
    path.write_text(text)
    return path


def command(*arguments: Any) -> list[str]:
    return [sys.executable, "-m", "paleo", "sweep", *map(str, arguments)]


def sweep(*arguments: Any) -> click.testing.Result:
    words = ["sweep", *map(str, arguments)]
    return click.testing.CliRunner().invoke(cli, words, prog_name="paleo")


def done(*arguments: Any) -> str:
    """Return what a sweep prints that succeeds."""
    found = sweep(*arguments)
    assert (found.exit_code, found.stderr) == (0, "")
    return found.stdout


def said(*arguments: Any) -> str:
    """Return the one line that a sweep stops with."""
    found = sweep(*arguments)
    assert found.exit_code == 1, found
    return one_line(found.stderr)


def one_line(text: str) -> str:
    (line,) = text.splitlines()
    return line.removeprefix("paleo: ")


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.01)


def rows_of(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_a_row_for_each_point(tmp_path: Path) -> None:
    grid = written(tmp_path, QUICK)
    text = done(grid, "-o", tmp_path / "out.csv")
    assert text.startswith("12 points. The quickest that fits: ")
    rows = rows_of(tmp_path / "out.csv")
    assert len(rows) == 12
    for row in rows:
        batch, workers = int(row["batch_size"]), int(row["workers"])
        how: Any = {"cost_model": "paleo2017", "network": row["network"], "workers": workers}
        (step,) = paleo.simulate("lenet5", batch_size=batch, **how).runs[0].rows
        whole = step.whole_step(step.best_scheme)
        assert float(row["step_s"]) == whole.seconds
        assert float(row["samples_per_s"]) == whole.throughput
        assert int(row["memory_bytes"]) == paleo.footprint("lenet5", batch).peak
        assert (row["fits"], row["error"]) == ("true", "")
    assert not (tmp_path / "out.csv.parts").exists()


def test_all_formats_have_the_same_rows(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow")
    grid = written(tmp_path, GRID)
    for name in ("a.csv", "a.jsonl", "a.parquet"):
        done(grid, "-o", tmp_path / name, "--part=2")
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert len(lines) == 6  # 16, 32 and 64 on 1 and 2 workers
    table = parquet.read_table(tmp_path / "a.parquet")
    assert table.to_pylist() == lines
    assert json.loads(table.schema.metadata[b"paleo.sweep"])["fixed"]["dtype"] == "fp32"
    plain = [
        {key: "" if value is None else str(value).lower() for key, value in line.items()}
        for line in lines
    ]
    assert [{k: v.lower() for k, v in row.items()} for row in rows_of(tmp_path / "a.csv")] == plain


def test_a_point_that_cannot_be_is_a_row_with_its_error(tmp_path: Path) -> None:
    text = QUICK.replace("[1, 4]", "[1, 100000]").replace("[axes]", '[axes]\ncluster=["dgx_a100"]')
    grid = written(tmp_path, text.replace('network = ["infiniband", "ethernet"]', ""))
    found = json.loads(done(grid, "-o", tmp_path / "out.csv", "--format=json"))
    size = paleo.find_cluster("dgx_a100").size
    reason = f"workers: more than the {size:,} devices of dgx_a100"
    assert (found["points"], found["valid"]) == (6, 3)
    assert found["reasons"] == [{"error": reason, "points": 3}]
    assert found["best"]["settings"]["workers"] == 1
    wrong = [row for row in rows_of(tmp_path / "out.csv") if row["workers"] == "100000"]
    assert [(row["step_s"], row["error"]) for row in wrong] == [("", reason)] * 3


def killed_and_resumed(tmp_path: Path, how: signal.Signals) -> None:
    grid, folder = written(tmp_path, SLOW), tmp_path / "out"
    arguments = (grid, "-o", f"{folder}/", "--part=2", "--part_format=jsonl")
    with subprocess.Popen(
        command(*arguments),
        stderr=subprocess.DEVNULL,
        # What runs in the background of a script ignores interrupts, and so would this.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as running:
        until(lambda: len(list(folder.glob("part-*.jsonl"))) >= 1)
        running.send_signal(how)
        running.wait()
    before = {path: path.stat().st_mtime_ns for path in folder.glob("part-*.jsonl")}
    assert 1 <= len(before) < POINTS // 2
    assert sweep(*arguments).exit_code == 0
    parts = sorted(folder.glob("part-*.jsonl"))
    assert len(parts) == POINTS // 2
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert not list(folder.glob(".paleo-*"))
    rows = [json.loads(line) for path in parts for line in path.read_text().splitlines()]
    assert [row["batch_size"] for row in rows] == list(range(1, POINTS + 1))
    whole = paleo.simulate("alex_v2_4gpu", parallel="hybrid", batch_size=POINTS).runs[0].step
    assert whole is not None
    assert rows[-1]["step_s"] == whole.seconds


@pytest.mark.slow
def test_a_sweep_that_was_killed_goes_on(tmp_path: Path) -> None:
    killed_and_resumed(tmp_path, signal.SIGKILL)


@pytest.mark.slow
def test_a_sweep_that_was_interrupted_goes_on(tmp_path: Path) -> None:
    killed_and_resumed(tmp_path, signal.SIGINT)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextmanager
def process(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    options: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen([sys.executable, *arguments], **options) as running:
        try:
            yield running
        finally:
            running.kill()


@contextmanager
def scheduler() -> Iterator[tuple[str, subprocess.Popen[str]]]:
    port = free_port()
    how = ("--host", "127.0.0.1", "--port", str(port), "--no-dashboard")
    with process("-m", "distributed.cli.dask_scheduler", *how) as running:

        def answers() -> bool:
            with socket.socket() as sock:
                return sock.connect_ex(("127.0.0.1", port)) == 0

        until(answers)
        yield f"tcp://127.0.0.1:{port}", running


def worker(address: str, *others: str) -> Any:
    how = ("--nthreads", "1", "--no-dashboard", "--no-nanny", *others)
    return process("-m", "distributed.cli.dask_worker", address, *how)


@pytest.mark.slow
def test_a_worker_that_dies_loses_nothing(tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="needs Dask")
    grid, folder = written(tmp_path, SLOW), tmp_path / "out"
    local = ("--local-directory", str(tmp_path))
    with scheduler() as (address, _), worker(address, *local) as first, worker(address, *local):
        arguments = (grid, "-o", f"{folder}/", "--part=2", "--part_format=csv")
        how = command(*arguments, f"--dask={address}")
        with subprocess.Popen(how, stderr=subprocess.PIPE, text=True) as running:
            until(lambda: len(list(folder.glob("part-*.csv"))) >= 1)
            first.kill()
            _, errors = running.communicate(timeout=90)
    assert (running.returncode, errors) == (0, "")
    rows = [row for path in sorted(folder.glob("part-*.csv")) for row in rows_of(path)]
    assert [int(row["batch_size"]) for row in rows] == list(range(1, POINTS + 1))
    whole = paleo.simulate("alex_v2_4gpu", parallel="hybrid", batch_size=7).runs[0].step
    assert whole is not None
    assert float(rows[6]["step_s"]) == whole.seconds


@pytest.mark.slow
def test_a_scheduler_that_goes_away_is_one_line(tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="needs Dask")
    grid, folder = written(tmp_path, SLOW), tmp_path / "out"
    arguments = (grid, "-o", f"{folder}/", "--part=2", "--part_format=csv")
    with scheduler() as (address, server), worker(address, "--local-directory", str(tmp_path)):
        how = command(*arguments, f"--dask={address}")
        with subprocess.Popen(how, stderr=subprocess.PIPE, text=True) as running:
            until(lambda: len(list(folder.glob("part-*.csv"))) >= 1)
            server.kill()
            _, errors = running.communicate(timeout=90)
    assert running.returncode == 1
    line = one_line(errors)
    assert "the Dask scheduler is gone" in line
    assert "parts are kept, and the same command goes on" in line
    assert sweep(*arguments).exit_code == 0
    assert len(list(folder.glob("part-*.csv"))) == POINTS // 2


def test_dask_knows_the_settings_of_processes_and_the_docs_show_them() -> None:
    config = pytest.importorskip("dask.config", reason="needs Dask")
    pytest.importorskip("distributed", reason="needs Dask")
    yaml = pytest.importorskip("yaml", reason="needs PyYAML")
    page = Path(__file__).parents[2] / "docs" / "sweeps.md"
    (text,) = re.findall(r"^```yaml\n(.*?)^```$", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    shown = yaml.safe_load(text)
    for key, value in _PROCESSES.items():
        assert config.get(key, default=None) is not None, key  # else it would do nothing
        own = config.get(key, config=shown)
        if isinstance(value, dict):
            assert own.items() <= value.items()
        else:
            assert own == value


def test_no_scheduler_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="needs Dask")
    monkeypatch.setattr("paleo.cli.sweep_dask.PATIENCE", 1)
    grid = written(tmp_path, QUICK)
    out = ("-o", tmp_path / "out.csv")
    address = f"tcp://127.0.0.1:{free_port()}"
    assert said(grid, *out, f"--dask={address}").startswith(f"{address}: no Dask scheduler answers")
    assert said(grid, *out, "--dask=nonsense").startswith("--dask: expected the address")


def test_a_folder_of_another_grid(tmp_path: Path) -> None:
    grid, folder = written(tmp_path, QUICK), tmp_path / "out"
    arguments = (grid, "-o", f"{folder}/", "--part_format=csv")
    done(*arguments)
    first = (folder / "part-000000.csv").read_bytes()
    done(*arguments)  # there is nothing left to do
    written(tmp_path, QUICK.replace("[1, 4]", "[1, 8]"))
    assert said(*arguments).startswith(f"{folder}: it has the results of another grid")
    assert (folder / "part-000000.csv").read_bytes() == first
    written(tmp_path, QUICK)
    assert "its parts are .csv of the usual points" in said(*arguments, "--part=6")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("Dear")
    line = said(grid, "-o", f"{tmp_path / 'mine'}/", "--part_format=csv")
    assert "there is something else in it, such as letter.txt" in line


def test_a_changed_device_file_is_another_grid(tmp_path: Path) -> None:
    device = tmp_path / "mine.toml"
    text = DEVICE
    device.write_text(text)
    grid = written(tmp_path, 'device = "mine.toml"\n' + QUICK.replace("paleo2017", "roofline"))
    arguments = (grid, "-o", f"{tmp_path}/out/", "--part_format=csv")
    done(*arguments)
    device.write_text(text.replace("100 GB/s", "200 GB/s"))
    assert "results of another grid, or of a changed net or device" in said(*arguments)


def test_every_point_is_wrong(tmp_path: Path) -> None:
    text = 'net = "lenet5"\ncluster = "dgx_a100"\n[axes]\nworkers = [100000, 200000]\n'
    grid = written(tmp_path, text)
    line = said(grid, "-o", tmp_path / "out.csv")
    size = paleo.find_cluster("dgx_a100").size
    assert f"none of its 2 points can be: 2 x workers: more than the {size:,} devices" in line
    assert len(rows_of(tmp_path / "out.csv")) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("net = ", "not TOML"),
        ('net = "lenet5"', "a grid of nothing: give one axis or more"),
        ("[axes]\nworkers = [1]", "net: expected one or more, got none"),
        ('net = "lenet5"\n[axes]\nwarkers = [1]', "warkers: no setting of that name (did you mean"),
        ('net = "lenet5"\naxes = 3', "axes: expected a table, got 3"),
        ('net = "lenet5"\nwhere = 3\n[axes]\nworkers = [1]', "where: expected a text, got 3"),
        (
            'net = "lenet5"\n[axes]\nworkers = [1979-05-27]',
            "expected numbers and texts, got a date",
        ),
        ('net = "lenet5"\nwhere = "workers > 1"\n[axes]\nworkers = [1]', "where leaves nothing"),
        ('net = "lenet5"\n[axes]\nworkers = []', "workers: expected one or more values, got none"),
    ],
)
def test_mistakes_of_a_grid_file(tmp_path: Path, text: str, message: str) -> None:
    grid = written(tmp_path, text)
    line = said(grid, "-o", tmp_path / "out.csv")
    assert line.startswith(f"{grid}: ")
    assert message in line


def test_other_mistakes(tmp_path: Path) -> None:
    grid = written(tmp_path, QUICK)
    assert said(tmp_path / "none.toml", "-o", tmp_path / "out.csv").endswith(
        "none.toml: cannot be read: No such file or directory"
    )
    assert "there is no folder" in said(grid, "-o", tmp_path / "none" / "out.csv")
    found = sweep(grid, "-o", tmp_path / "out.txt")
    assert found.exit_code == 2
    assert "a file that ends in .parquet, .csv, .jsonl" in found.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits of POSIX")
def test_a_full_disk_keeps_what_was_written(tmp_path: Path) -> None:
    """No file may have more than 1,000 bytes: what is said of a part has fewer, a part more."""
    grid = written(tmp_path, QUICK)
    arguments = (grid, "-o", f"{tmp_path}/out/", "--part=4", "--part_format=jsonl")

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    how: Any = {"capture_output": True, "text": True, "preexec_fn": limit}
    found = subprocess.run(command(*arguments), **how)
    assert found.returncode == 1
    line = one_line(found.stderr)
    assert "part-000000.jsonl: cannot be written: File too large" in line
    kept = tmp_path / "out" / "part-000000.jsonl"
    assert not kept.exists()
    done(*arguments)
    assert len(kept.read_text().splitlines()) == 6
