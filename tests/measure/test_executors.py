"""What all executors share: timing, names, and what the system says of this machine."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from paleo.core.errors import SettingError, UnknownNameError
from paleo.measure.executors import EXECUTORS, Timing, find_executor, host, measure


class Clock:
    """A clock that a run moves on."""

    def __init__(self) -> None:
        self.now = 100.0
        self.runs = 0
        self.waits = 0

    def __call__(self) -> float:
        return self.now

    def run(self) -> None:
        self.runs += 1
        self.now += 2.0

    def wait(self) -> None:
        self.waits += 1
        self.now += 0.5


def test_a_timing_has_the_median_and_the_distance_between_quartiles() -> None:
    timing = Timing((5.0, 1.0, 2.0, 4.0, 3.0))
    assert timing.median == 3.0
    # The quartiles of 1, 2, 3, 4, 5 are 2 and 4.
    assert timing.spread == pytest.approx(2 / 3)
    assert timing.to_dict("forward") == {
        "forward_s": 3.0,
        "forward_spread": pytest.approx(2 / 3),
        "forward_runs": 5,
    }


def test_one_run_has_no_spread_and_neither_have_runs_that_take_no_time() -> None:
    assert Timing((7.0,)).median == 7.0
    assert Timing((7.0,)).spread == 0.0
    assert Timing((0.0, 0.0, 0.0)).spread == 0.0


def test_warm_up_does_not_count_and_each_run_is_waited_for() -> None:
    clock = Clock()
    timing = measure(clock.run, clock.wait, num_warmup=3, num_iter=4, clock=clock)
    assert timing.seconds == (2.5,) * 4  # 2 of the run and 0.5 of waiting
    assert clock.runs == 3 + 4
    assert clock.waits == 1 + 4


def test_no_run_is_begun_after_the_most_seconds_but_one_is_measured() -> None:
    clock = Clock()
    # 10 s: the warm-up ends when a third of it is over, after 2 runs of 2 s; waiting takes 0.5 s;
    # runs end after 7, 9.5 and 12 s.
    timing = measure(
        clock.run, clock.wait, num_warmup=10, num_iter=50, most_seconds=10, clock=clock
    )
    assert len(timing.seconds) == 3
    assert clock.runs == 2 + 3
    clock = Clock()
    timing = measure(clock.run, clock.wait, num_warmup=1, num_iter=50, most_seconds=0, clock=clock)
    assert len(timing.seconds) == 1


def test_no_runs_are_refused() -> None:
    clock = Clock()
    with pytest.raises(SettingError, match="num_iter: expected 1 or more, got 0"):
        measure(clock.run, clock.wait, num_iter=0, clock=clock)
    assert clock.runs == 0


def test_an_unknown_executor_has_a_near_name() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'torch'"):
        find_executor("torsh")


def test_without_pytorch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # importing it fails
    with pytest.raises(SettingError) as caught:
        find_executor("torch")
    assert str(caught.value) == (
        'executor torch needs PyTorch; install it with: pip install "paleo[torch]"'
    )


def test_executors_can_be_listed_without_their_frameworks() -> None:
    for module, name in EXECUTORS.values():
        found = getattr(import_module(module), name)
        assert found.name in EXECUTORS
        assert found.summary
    modules = ", ".join(module for module, _ in EXECUTORS.values())
    code = f"import sys, {modules}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"torch", "tensorflow", "numpy"}.isdisjoint(done.stdout.split())


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Stand a folder in for /proc and for the control groups' folder."""
    monkeypatch.setattr(host, "_PROC", tmp_path)
    monkeypatch.setattr(host, "_CGROUP", tmp_path)
    return tmp_path


def test_the_cpu_has_the_name_that_linux_gives_it(system: Path) -> None:
    lines = "processor\t: 0\nmodel name\t: AMD EPYC  7763 64-Core Processor\nmodel name\t: other\n"
    (system / "cpuinfo").write_text(lines)
    assert host.cpu_name() == "AMD EPYC 7763 64-Core Processor"


def test_a_cpu_without_a_name_has_that_of_its_architecture(
    system: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "sysctl_text", lambda name: "")
    monkeypatch.setattr("platform.processor", lambda: "")
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert host.cpu_name() == "aarch64"
    monkeypatch.setattr(host, "sysctl_text", lambda name: "Apple M2 Pro")
    assert host.cpu_name() == "Apple M2 Pro"


def test_free_memory_is_what_linux_says_is_available(system: Path) -> None:
    (system / "meminfo").write_text("MemTotal: 100 kB\nMemAvailable:    48 kB\n")
    assert host.free_memory() == 48 * 1024


def test_a_container_leaves_less(system: Path) -> None:
    (system / "meminfo").write_text("MemAvailable:    48 kB\n")
    (system / "memory.max").write_text("max\n")
    (system / "memory.current").write_text("20000\n")
    assert host.free_memory() == 48 * 1024
    (system / "memory.max").write_text("30000\n")
    assert host.free_memory() == 10_000
    # Files that nobody uses can go.
    (system / "memory.stat").write_text("anon 7\ninactive_file 500\n")
    assert host.free_memory() == 10_500


def test_elsewhere_memory_is_what_the_system_calls_free(
    system: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {"SC_AVPHYS_PAGES": 10, "SC_PHYS_PAGES": 100, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr("os.sysconf", sizes.__getitem__, raising=False)
    assert host.free_memory() == 40_960

    def unknown(name: str) -> int:
        if name == "SC_AVPHYS_PAGES":
            raise ValueError(name)
        return sizes[name]

    monkeypatch.setattr("os.sysconf", unknown, raising=False)
    assert host.free_memory() == 50 * 4096  # half of all

    def nothing(name: str) -> int:
        raise ValueError(name)

    monkeypatch.setattr("os.sysconf", nothing, raising=False)
    assert host.free_memory() is None
