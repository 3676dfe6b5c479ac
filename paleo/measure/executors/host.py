"""What the system says of this machine: the processor's name, the memory that is free."""

from __future__ import annotations

import ctypes
import os
import platform
import re
from pathlib import Path

_PROC = Path("/proc")
_CGROUP = Path("/sys/fs/cgroup")


def cpu_name() -> str:
    """Return what the system calls the CPU, such as "AMD EPYC 7763 64-Core Processor"."""
    found = re.search(r"^model name\s*:\s*(.+)$", system_text(_PROC / "cpuinfo"), re.MULTILINE)
    if found:
        return " ".join(found[1].split())
    return sysctl_text("machdep.cpu.brand_string") or platform.processor() or platform.machine()


#: Names of settings in glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def keep_freed_memory() -> bool:
    """Let this process keep memory that is freed for what it needs next; tell whether it does.

    By default glibc gives large tensors back to the system and asks for them again, step after
    step, and the system clears each page anew. On virtual machines that can take as long as the
    net. It depends on what was freed before, and servers avoid it, with another allocator
    (jemalloc, tcmalloc) or with settings of this one, which are made here (mallopt(3)). Other
    systems' allocators are left as they are.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(_M_MMAP_MAX, 0) and mallopt(_M_TRIM_THRESHOLD, 2**31 - 1))


def free_memory() -> int | None:
    """Return the bytes that a process may take without swapping; None where that is unknown.

    On Linux these are MemAvailable of /proc/meminfo, or what the control group of a container
    leaves, if that is less.
    """
    found = re.search(r"^MemAvailable:\s*(\d+) kB$", system_text(_PROC / "meminfo"), re.MULTILINE)
    if found:
        available = 1024 * int(found[1])
        left = _left_by_group()
        return available if left is None else min(available, left)
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf, macOS no such name
        return _half_of_memory()


def _left_by_group() -> int | None:
    """Return what the limit of this control group leaves, None without a limit.

    Pages of files count as used there, and are given back when they are needed.
    """
    limit, used = system_text(_CGROUP / "memory.max"), system_text(_CGROUP / "memory.current")
    if not limit.isdecimal() or not used.isdecimal():
        return None
    cached = re.search(r"^inactive_file (\d+)$", system_text(_CGROUP / "memory.stat"), re.MULTILINE)
    return int(limit) - int(used) + (int(cached[1]) if cached else 0)


def _half_of_memory() -> int | None:
    # macOS keeps memory full with what it can give back; half of all is a cautious guess.
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, ValueError, OSError):
        return None


def system_text(path: Path) -> str:
    """Return the text of a file of the system, "" where there is none."""
    try:
        return path.read_text("utf-8", "replace").strip()
    except OSError:
        return ""


def sysctl_text(name: str) -> str:
    """Return a text that macOS and the BSDs keep under this name, "" elsewhere."""
    text = ctypes.create_string_buffer(256)
    return text.value.decode("utf-8", "replace").strip() if _sysctl(name, text) else ""


def sysctl_number(name: str) -> int | None:
    """Return a number that macOS and the BSDs keep under this name, None elsewhere."""
    number = ctypes.c_uint64(0)
    return number.value if _sysctl(name, number) else None


def _sysctl(name: str, value: ctypes.Array[ctypes.c_char] | ctypes.c_uint64) -> bool:
    """Fill in what the system keeps under this name, and tell whether it keeps anything."""
    try:
        call = ctypes.CDLL(None).sysctlbyname
    except (AttributeError, OSError, TypeError):
        return False
    size = ctypes.c_size_t(ctypes.sizeof(value))
    failed = call(name.encode(), ctypes.byref(value), ctypes.byref(size), None, ctypes.c_size_t(0))
    return not failed
