"""What the operating system and the framework say of this machine."""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from paleo.measure.executors import Executor
from paleo.measure.executors.host import sysctl_number, system_text

#: The value of a figure in SI units, and what there is to say about it.
Found = dict[str, tuple[float, str]]

_CACHES = "sys/devices/system/cpu/cpu{}/cache"
_CLOCKS = {
    "base_clock": "sys/devices/system/cpu/cpu0/cpufreq/base_frequency",
    "boost_clock": "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq",
}
#: What macOS calls figures. The second of a name is for systems without the first.
_OF_MACOS = (
    ("cache", "hw.l3cachesize", "L3"),
    ("cache", "hw.perflevel0.l2cachesize", "L2 of the fast cores, the last that is known"),
    ("boost_clock", "hw.cpufrequency_max", ""),
    ("memory_capacity", "hw.memsize", ""),
)
#: The architecture of compute capabilities, major or exact: https://developer.nvidia.com/cuda-gpus
_CAPABILITIES = {
    "5": "Maxwell",
    "6": "Pascal",
    "7": "Volta",
    "7.5": "Turing",
    "8": "Ampere",
    "8.9": "Ada",
    "9": "Hopper",
    "10": "Blackwell",
    "12": "Blackwell RTX",
}
_SIZES = {"K": 2**10, "M": 2**20, "G": 2**30}


def figures(executor: Executor) -> Found:
    """Return the figures of the processor that an executor runs on, as far as they are known."""
    if executor.place == "cpu":
        return _cpu(_threads(executor), sys.platform, Path("/"), sysctl_number)
    return _gpu(executor)


def architecture(executor: Executor) -> str:
    """Return the architecture of the processor; "" where it is not known."""
    if executor.place != "cuda" or executor.name not in _OF_TORCH:
        return ""
    properties = _properties()
    exact = f"{properties.major}.{properties.minor}"
    return _CAPABILITIES.get(exact) or _CAPABILITIES.get(str(properties.major), "")


#: Executors that compute by PyTorch.
_OF_TORCH = ("torch", "cudnn")


def _torch() -> Any:
    return importlib.import_module("torch")


def _properties() -> Any:
    torch = _torch()
    return torch.cuda.get_device_properties(torch.cuda.current_device())


def _available() -> list[int]:
    """Return the numbers of the CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _threads(executor: Executor) -> int:
    """Return how many threads an executor computes with."""
    if executor.name in _OF_TORCH:
        return int(_torch().get_num_threads())
    return len(_available())


def _cpu(threads: int, platform: str, root: Path, sysctl: Callable[[str], int | None]) -> Found:
    found: Found = {"multiprocessors": (threads, "threads of the executor")}
    if platform == "darwin":
        for name, key, note in _OF_MACOS:
            if name not in found and (number := sysctl(key)):
                found[name] = (number, note)
        return found
    for name, path in _CLOCKS.items():
        if text := system_text(root / path):
            found[name] = (1e3 * int(text), "")
    if not found.keys() & _CLOCKS and (clock := _clock(system_text(root / "proc/cpuinfo"))):
        found["base_clock"] = (clock, "as the system had it at that time")
    caches = [cache for number in _available() for cache in _caches(root, number)]
    last = max((level for level, *_ in caches), default=0)
    sizes = {shared: size for level, shared, size in caches if level == last}
    if sizes:
        total = sum(sorted(sizes.values(), reverse=True)[:threads])
        found["cache"] = (total, f"L{last}, of the cores that are used")
    if hasattr(os, "sysconf"):
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        limit = system_text(root / "sys/fs/cgroup/memory.max")  # of a container; else "max"
        found["memory_capacity"] = (min(memory, int(limit)) if limit.isdecimal() else memory, "")
    return found


def _clock(cpuinfo: str) -> float:
    """Return the clock in Hz that /proc/cpuinfo has, 0 if it has none."""
    lines = (line.partition(":") for line in cpuinfo.splitlines())
    return next((1e6 * float(value) for key, _, value in lines if key.strip() == "cpu MHz"), 0.0)


def _caches(root: Path, cpu: int) -> Iterator[tuple[int, str, int]]:
    """Yield the level, the CPUs that share it and the bytes of each cache of data of a CPU."""
    for index in sorted((root / _CACHES.format(cpu)).glob("index*")):
        level, kind, shared, size = (
            system_text(index / name) for name in ("level", "type", "shared_cpu_list", "size")
        )
        if kind != "Instruction" and level.isdecimal() and size[:-1].isdecimal():
            yield int(level), shared, int(size[:-1]) * _SIZES.get(size[-1], 1)


def _gpu(executor: Executor) -> Found:
    found: Found = {}
    if executor.name not in _OF_TORCH:
        return found
    if executor.place == "mps":
        memory = _torch().mps.recommended_max_memory()
        return {"memory_capacity": (memory, "what PyTorch says that a process should take")}
    properties = _properties()
    for name, attribute, unit in (
        ("multiprocessors", "multi_processor_count", 1),
        ("memory_capacity", "total_memory", 1),
        ("cache", "L2_cache_size", 1),
        ("boost_clock", "clock_rate", 1e3),  # kHz; not in every version
    ):
        value = getattr(properties, attribute, None)
        if value:
            found[name] = (value * unit, "")
    return found


def busy(seconds: float = 0.5) -> float | None:
    """Return the share of the CPUs that others use, watched for so long; None if unknown.

    Where the system does not count its CPUs' time, it is the load average of the last minute.
    """
    before = _times(system_text(Path("/proc/stat")))
    if before:
        time.sleep(seconds)
        after = _times(system_text(Path("/proc/stat"))) or before
        idle, every = (after[i] - before[i] for i in range(2))
        return 1 - idle / every if every > 0 else None
    if hasattr(os, "getloadavg"):
        return os.getloadavg()[0] / (os.cpu_count() or 1)
    return None


def _times(stat: str) -> tuple[int, int] | None:
    """Return the ticks in which the CPUs were idle, and all ticks; None without these."""
    words = stat.partition("\n")[0].split()
    if len(words) < 6 or words[0] != "cpu":
        return None
    # user, nice, system, idle, iowait, irq, softirq, steal: proc_stat(5). What follows is in user.
    ticks = [int(word) for word in words[1:9]]
    return ticks[3] + ticks[4], sum(ticks)
