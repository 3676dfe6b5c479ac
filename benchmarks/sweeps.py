"""How fast sweeps are, beside a loop of NumPy's that adds and multiplies arrays once.

    python benchmarks/sweeps.py               print the table
    python benchmarks/sweeps.py --check       exit with status 1 if a bound is missed
    python benchmarks/sweeps.py --dask=2      a sweep on so many processes, beside one process

A ratio is the time that a point takes over the time in which NumPy multiplies and adds a number of
an array that the processor's cache holds. Rates, in points a second, are printed beside it: they
differ between machines, and hold of one core that does nothing else.
"""

from __future__ import annotations

import argparse
import functools
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

#: Of data parallelism: 2,048 batches on 1,024 numbers of workers and three networks.
AXES: Mapping[str, Any] = {
    "batch_size": {"from": 16, "to": 2063},
    "workers": {"from": 1, "to": 1024},
    "network": ["ethernet", "infiniband", "nvlink4"],
}
#: At most so many times as long as NumPy takes, for a point, and for a distinct batch.
BOUNDS = {"paleo2017": 400.0, "tiled": 900.0}
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


def on_dask(processes: int) -> None:
    """Print how long a sweep takes on one process, and on several of Dask's."""
    lines = ['net = "resnet50_v1_5"', 'device = "A100_SXM_80GB"', "[axes]"]
    lines += ["batch_size = {from = 16, to = 4111}", "workers = {from = 1, to = 4096}"]
    lines += ['network = ["ethernet", "infiniband", "nvlink4"]']
    with tempfile.TemporaryDirectory() as folder:
        grid = Path(folder) / "grid.toml"
        grid.write_text("\n".join(lines))
        taken = []
        for count in (1, processes):
            out = Path(folder) / str(count)
            begun = time.perf_counter()
            command = ["sweep", str(grid), "-o", f"{out}/", f"--dask={count}"]
            subprocess.run([sys.executable, "-m", "paleo", *command], check=True)
            taken.append(time.perf_counter() - begun)
    alone, together = taken
    share = alone / together / processes
    print(f"{alone:.1f} s by 1 process, {together:.1f} s by {processes}: {share:.0%} of ideal")


def main() -> int:
    """Print a row for each figure; return 1 if one misses its bound and --check is given."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="exit with 1 if a bound is missed")
    parser.add_argument("--dask", type=int, metavar="N", help="a sweep on N processes of Dask's")
    arguments = parser.parse_args()
    if arguments.dask:
        on_dask(arguments.dask)
        return 0
    missed = report([settings, distinct])
    return int(arguments.check and missed)


if __name__ == "__main__":
    sys.exit(main())
