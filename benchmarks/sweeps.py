"""How fast sweeps are, beside a loop of NumPy's that adds and multiplies arrays once.

    python benchmarks/sweeps.py               print the table
    python benchmarks/sweeps.py --check       exit with status 1 if a bound is missed
    python benchmarks/sweeps.py --dask=2      a sweep on so many processes of Dask's, beside as many
                                              without; with --points=1e9 of so many points

A ratio is the time that a point takes over the time in which NumPy multiplies and adds a number of
an array that the processor's cache holds. Rates, in points a second, are printed beside it: they
differ between machines, and hold of one core that does nothing else.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from ratios import Figure, report

import paleo
from paleo.core.units import GIB, KIB

#: Of data parallelism: 2,048 batches on 1,024 numbers of workers and three networks.
AXES: Mapping[str, Any] = {
    "batch_size": {"from": 16, "to": 2063},
    "workers": {"from": 1, "to": 1024},
    "network": ["ethernet", "infiniband", "nvlink4"],
}
#: At most so many times as long as NumPy takes, for a point, and for a distinct batch.
BOUNDS = {"paleo2017": 400.0, "tiled": 500.0}
DISTINCT = 50_000.0


def seconds_of(run: Callable[[], object], repeats: int) -> float:
    """Return the least processor time of several, in seconds."""
    times = []
    for _ in range(repeats):
        begun = time.process_time()
        run()
        times.append(time.process_time() - begun)
    return min(times)


def one_number() -> float:
    """Return the seconds in which NumPy multiplies and adds one number of an array of 4,096."""
    values, loops = np.ones(4096), 2000

    def loop() -> None:
        for _ in range(loops):
            values * 1.1 + values

    return seconds_of(loop, 5) / (loops * values.size)


def settings() -> list[Figure]:
    """Return points of data parallelism, of which batches are priced once, memory and all."""
    rows: list[Figure] = []
    for model, bound in BOUNDS.items():
        for scaling in ("weak", "strong"):
            found = paleo.sweep(
                "resnet50_v1_5", AXES, device="A100_SXM_80GB", cost_model=model, scaling=scaling
            )
            run = functools.partial(_through, found)
            each, base = seconds_of(run, 2) / found.size, one_number()
            name = f"resnet50 ({model}), {scaling} scaling, {1 / each:,.0f} points a second"
            rows.append((name, each / base, bound))
    return rows


def _through(found: Any) -> int:
    """Go through all parts of a sweep and return how many points they have."""
    return sum(part.size for part in found.parts())


def distinct() -> list[Figure]:
    """Return batches that all differ, so that each is priced."""
    axes = {"batch_size": {"from": 1, "to": 8192}}
    how: dict[str, Any] = {"device": "A100_SXM_80GB", "memory": False}
    found = paleo.sweep("resnet50_v1_5", axes, **how)
    each, base = seconds_of(lambda: _through(found), 3) / found.size, one_number()
    name = f"resnet50 (tiled), distinct batches, {1 / each:,.0f} a second"
    return [(name, each / base, DISTINCT)]


def on_dask(processes: int, points: int) -> None:
    """Print how much of what processes do by themselves as many of Dask's do, and their memory."""
    workers, networks = 4096, ["ethernet", "infiniband", "nvlink4"]
    batches = max(processes, round(points / workers / len(networks)))
    ends = [16 + batches * place // processes for place in range(processes + 1)]
    with tempfile.TemporaryDirectory() as folder:

        def sweep(first: int, last: int, *options: str) -> subprocess.Popen[bytes]:
            name = Path(folder) / f"{first}_{last}"
            lines = ['net = "resnet50_v1_5"', 'device = "A100_SXM_80GB"', "[axes]"]
            lines += [f"batch_size = {{from = {first}, to = {last - 1}}}"]
            lines += [f"workers = {{from = 1, to = {workers}}}", f"network = {networks}"]
            name.with_suffix(".toml").write_text("\n".join(lines))
            own = ["sweep", f"{name}.toml", "-o", f"{name}.{len(options)}/", *options]
            return subprocess.Popen([sys.executable, "-m", "paleo", *own])

        def seconds(started: Callable[[], list[subprocess.Popen[bytes]]]) -> float:
            begun = time.perf_counter()
            codes = [each.wait() for each in started()]
            if any(codes):
                sys.exit(1)
            shutil.rmtree(folder)  # as much of the disk is free for the next
            Path(folder).mkdir()
            return time.perf_counter() - begun

        together = seconds(lambda: [sweep(ends[0], ends[-1], f"--dask={processes}")])
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * KIB
        alone = seconds(lambda: [sweep(ends[0], ends[1])])
        at_once = seconds(lambda: [sweep(*each) for each in itertools.pairwise(ends)])
    size = batches * workers * len(networks)
    print(f"{size:,} points, {size / together:,.0f} a second by {processes} of Dask's processes")
    print(f"{alone / together:.1%} of what a process would do alone ({alone:.1f} s for its part)")
    print(f"{at_once / together:.1%} of what processes do at once without Dask ({at_once:.1f} s)")
    print(f"{peak / GIB:.2f} GiB at most in a process")


def main() -> int:
    """Print a row for each figure; return 1 if one misses its bound and --check is given."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="exit with 1 if a bound is missed")
    parser.add_argument("--dask", type=int, metavar="N", help="a sweep on N processes of Dask's")
    parser.add_argument("--points", type=float, default=5e7, help="points of that sweep")
    arguments = parser.parse_args()
    if arguments.dask:
        on_dask(arguments.dask, round(arguments.points))
        return 0
    missed = report([settings, distinct])
    return int(arguments.check and missed)


if __name__ == "__main__":
    sys.exit(main())
