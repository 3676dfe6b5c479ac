"""How many deployments of a language model are evaluated in a second, and what a question costs.

    python benchmarks/serving_speed.py            print the table
    python benchmarks/serving_speed.py --check    exit with status 1 if a bound is missed

Deployments are from nothing: reading and dividing the net, pricing, and every deployment. Seconds
are those of the CPU, which others on the machine change least. The baselines are a deployment by
`paleo.infer`, which simulates its requests, and the start of a process that imports what every
command needs.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from typing import Any

from ratios import Figure, report

import paleo

SETTINGS: dict[str, Any] = {
    "cluster": "dgx_h100",
    "workers": 8,
    "dtype": ["bf16", "fp8"],
    "kv_dtype": ["bf16", "fp8"],
    "tp": [1, 2, 4, 8],
    "pp": [1, 2],
    "prompt": [256, 512, 1024, 2048, 4096, 7000],
    "output": [64, 128, 256, 512, 1024],
    "concurrency": [*range(1, 64)],
}
#: What is asked for.
WANTED = 20_000
#: Deployments of one kind at a time are so many.
ONE_BY_ONE = 5
#: So often a process runs, of which the quickest counts.
RUNS = 5


def deployments() -> list[Figure]:
    """Return the rate over what is wanted, and the seconds of one over those of `paleo.infer`."""
    begun = time.process_time()
    found = paleo.deployments("llama3_70b", **SETTINGS)
    seconds = time.process_time() - begun
    rate = len(found) / seconds
    name = f"llama3_70b on 8 H100, {len(found):,} deployments"
    print(f"{name}: {seconds:.2f} s, {rate:,.0f} a second")
    return [
        (f"{name}, a second / {WANTED:,}", rate / WANTED, -1.0),
        (f"{name}, one / one of paleo.infer", seconds / len(found) / one_by_one(), 1e-3),
    ]


def one_by_one() -> float:
    """Return the CPU seconds of a deployment by `paleo.infer`."""
    begun = time.process_time()
    for concurrency in range(1, ONE_BY_ONE + 1):
        paleo.infer("llama3_70b", cluster="dgx_h100", workers=8, tp=8, concurrency=8 * concurrency)
    return (time.process_time() - begun) / ONE_BY_ONE


def seconds_of(*arguments: str) -> float:
    """Return the CPU seconds of a run of Python from its start to its end, modules compiled."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}

    def run() -> float:
        begun = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        return ended.ru_utime + ended.ru_stime - begun.ru_utime - begun.ru_stime

    run()
    return min(run() for _ in range(RUNS))


def starts() -> list[Figure]:
    """Return what commands take from start to end over the start of what they all import.

    The first has an answer for each of four loads.
    """
    base = seconds_of("-c", "import click, numpy")
    found: list[Figure] = []
    for arguments, bound in (
        (("infer", "llama3_8b", "--device=H100_SXM"), 3.0),
        (("plan", "llama3_8b", "--serve", "--device=H100_SXM", "--tpot=30 ms"), 8.0),
    ):
        name = f"paleo {' '.join(arguments[:2])}, start to end / import click, numpy"
        found.append((name, seconds_of("-m", "paleo", *arguments) / base, bound))
    return found


#: Figures that are known to be missed, or may be while the machine does other things, and what they
#: are held to until they are met.
MISSED = {
    "llama3_70b on 8 H100, 60,480 deployments, a second / 20,000": -0.5,
}


def main() -> int:
    """Print a row for each figure; return 1 if one misses its bound and --check is given."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="exit with 1 if a bound is missed")
    asked = parser.parse_args()
    missed = report([deployments, starts], MISSED)
    return int(asked.check and missed)


if __name__ == "__main__":
    sys.exit(main())
