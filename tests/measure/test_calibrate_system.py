"""What a calibration reads of the machine: its CPUs, caches and memory, and who else uses it."""

from __future__ import annotations

import os
import types
from pathlib import Path
from typing import Any

import pytest
from modelled_executor import Modelled

import paleo
from paleo.measure.calibrate import system
from paleo.measure.calibrate.devices import base_device

ROUND = paleo.Device.from_rates("round", clock=1e9, peak=1e12, memory_bandwidth=100e9)


def executor(name: str = "modelled", **options: Any) -> Modelled:
    made = Modelled(ROUND, {}, **options)
    made.name = name  # type: ignore[misc]
    return made


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", "utf-8")


def cache(root: Path, cpu: int, index: int, level: int, shared: str, size: str, kind: str) -> None:
    folder = f"sys__devices__system__cpu__cpu{cpu}__cache__index{index}__"
    texts = {"level": str(level), "shared_cpu_list": shared, "size": size, "type": kind}
    write(root, **{folder + name: text for name, text in texts.items()})


def test_figures_of_a_cpu_are_those_of_linux(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Four CPUs: two and two share an L2 of 1 MiB, all an L3 of 8 MiB; the last has another.
    monkeypatch.setattr(system, "_available", lambda: [0, 1, 2, 3])
    for cpu, pair in enumerate(("0-1", "0-1", "2-3", "2-3")):
        cache(tmp_path, cpu, 0, 1, str(cpu), "32K", "Instruction")
        cache(tmp_path, cpu, 1, 2, pair, "1024K", "Unified")
        cache(tmp_path, cpu, 2, 3, pair, "8M", "Unified")
    write(
        tmp_path,
        sys__devices__system__cpu__cpu0__cpufreq__base_frequency="2000000",
        sys__devices__system__cpu__cpu0__cpufreq__cpuinfo_max_freq="3500000",
        sys__fs__cgroup__memory__max="max",
    )
    found = system._cpu(4, "linux", tmp_path, lambda name: None)
    assert found["multiprocessors"][0] == 4
    assert (found["base_clock"][0], found["boost_clock"][0]) == (2e9, 3.5e9)
    assert found["cache"] == (2 * 8 * 2**20, "L3, of the cores that are used")
    assert found["memory_capacity"][0] > 0
    # One thread has the cache of one core.
    assert system._cpu(1, "linux", tmp_path, lambda name: None)["cache"][0] == 8 * 2**20


def test_a_system_that_says_nothing_has_no_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "_available", lambda: [0])
    found = system._cpu(3, "linux", tmp_path, lambda name: None)
    assert set(found) == {"multiprocessors", "memory_capacity"}
    write(tmp_path, proc__cpuinfo="processor\t: 0\nmodel name\t: X\ncpu MHz\t\t: 2500.125")
    assert system._cpu(3, "linux", tmp_path, lambda name: None)["base_clock"][0] == 2500.125e6


def test_a_container_has_the_memory_that_it_may_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("1048576\n")
    assert system._cpu(1, "linux", tmp_path, lambda name: None)["memory_capacity"][0] == 2**20


def test_figures_of_a_cpu_are_those_of_macos(tmp_path: Path) -> None:
    known = {"hw.perflevel0.l2cachesize": 12 * 2**20, "hw.memsize": 16 * 2**30}
    found = system._cpu(8, "darwin", tmp_path, known.get)
    assert {name: value for name, (value, _) in found.items()} == {
        "multiprocessors": 8,
        "cache": 12 * 2**20,
        "memory_capacity": 16 * 2**30,
    }
    found = system._cpu(8, "darwin", tmp_path, {**known, "hw.l3cachesize": 2**25}.get)
    assert found["cache"] == (2**25, "L3")


def gpu(monkeypatch: pytest.MonkeyPatch, **properties: Any) -> None:
    values = {"major": 8, "minor": 9, "multi_processor_count": 20, "total_memory": 2**33}
    found = types.SimpleNamespace(**values | properties)
    monkeypatch.setattr(system, "_properties", lambda: found)


def test_figures_of_a_gpu_are_those_of_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu(monkeypatch, L2_cache_size=2**22, clock_rate=1_500_000)
    found = system.figures(executor("torch"))
    assert {name: value for name, (value, _) in found.items()} == {
        "multiprocessors": 20,
        "memory_capacity": 2**33,
        "cache": 2**22,
        "boost_clock": 1.5e9,
    }
    gpu(monkeypatch)
    assert set(system.figures(executor("torch"))) == {"multiprocessors", "memory_capacity"}
    assert system.figures(executor("other")) == {}


@pytest.mark.parametrize(
    ("major", "minor", "architecture"),
    [
        (5, 2, "Maxwell"),
        (6, 1, "Pascal"),
        (7, 0, "Volta"),
        (7, 5, "Turing"),
        (8, 0, "Ampere"),
        (8, 6, "Ampere"),
        (8, 9, "Ada"),
        (9, 0, "Hopper"),
        (10, 3, "Blackwell"),
        (12, 0, "Blackwell RTX"),
        (99, 0, ""),
    ],
)
def test_a_compute_capability_is_an_architecture(
    major: int, minor: int, architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu(monkeypatch, major=major, minor=minor)
    assert system.architecture(executor("torch")) == architecture
    assert architecture in ("", *paleo.cluster.ARCHITECTURES)
    assert system.architecture(executor("torch", place="cpu")) == ""
    assert system.architecture(executor("other")) == ""


def test_a_gpu_is_found_by_the_name_that_the_framework_gives_it() -> None:
    found = base_device(executor(hardware="NVIDIA H200"))
    assert found is not None
    assert found.name == "H200_SXM"
    # Only exactly: another card may have nearly its name.
    assert base_device(executor(hardware="NVIDIA H200 NVL")) is None
    assert base_device(executor(hardware="a/path.toml")) is None
    # How many of a CPU's cores are used no data sheet says.
    assert base_device(executor(hardware="EPYC_7763", place="cpu")) is None


def test_others_are_who_use_the_cpus_while_nothing_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # user, nice, system, idle, iowait, irq, softirq, steal, guest: 100 ticks, 30 of them not idle.
    texts = iter(["cpu 10 0 10 80 0 0 0 0 5\ncpu0 1", "cpu 30 0 15 140 10 0 0 5 9\ncpu0 1"])
    monkeypatch.setattr(system, "system_text", lambda path: next(texts))
    assert system.busy(0.0) == pytest.approx(1 - 70 / 100)


def test_without_counts_of_ticks_it_is_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "system_text", lambda path: "")
    monkeypatch.setattr(os, "getloadavg", lambda: (1.0, 2.0, 3.0), raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    assert system.busy(0.0) == 0.25
    monkeypatch.delattr(os, "getloadavg")
    assert system.busy(0.0) is None


def test_this_machine_says_something() -> None:
    found = system.figures(executor(place="cpu"))
    assert found["multiprocessors"][0] >= 1
    share = system.busy(0.01)
    assert share is None or share >= 0
