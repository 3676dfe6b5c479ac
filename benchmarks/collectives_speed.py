"""How fast collectives are predicted, beside a baseline measured in the same run.

    python benchmarks/collectives_speed.py            print the table
    python benchmarks/collectives_speed.py --check    exit with status 1 if a bound is missed

A setting is a cluster, a number of workers, a size and a scheme; of steps the baseline is one on
one worker. Wall-clock times differ between machines; the ratios are what counts.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from ratios import Figure, best, report

import paleo
from paleo.cluster.collectives import COLLECTIVES, Collective
from paleo.cluster.topology import Cluster

#: Settings of each cluster and scheme: as many as a map of sizes and worker counts has.
COUNT = 10_000
#: How many of them are computed one by one.
SOME = 20
#: On how many workers a step is looked at.
MANY = 1024


def pairs() -> Iterator[tuple[Cluster, Collective]]:
    """Yield every predefined cluster with every scheme that sums up gradients on it."""
    for cluster in map(paleo.find_cluster, paleo.cluster_names()):
        for scheme in map(COLLECTIVES.__getitem__, COLLECTIVES.built_in):
            if scheme.can_exchange(cluster.tiers):
                yield cluster, scheme


def figures() -> list[Figure]:
    """Return the rate of arrays over 100,000 a second, and over that of settings one by one."""
    rng = np.random.default_rng(0)
    settings = []
    for cluster, scheme in pairs():
        # From two workers on: of one there is no group whose switches sum.
        workers = rng.integers(2, cluster.size, COUNT, endpoint=True)
        sizes = 2 ** rng.integers(8, 33, COUNT)
        settings.append((cluster, scheme, workers, sizes))

    def as_arrays() -> list[object]:
        return [
            scheme.seconds_on(cluster.group(workers), sizes)
            for cluster, scheme, workers, sizes in settings
        ]

    def one_by_one() -> list[list[float]]:
        return [
            [
                float(scheme.seconds_on(cluster.group(int(count)), int(size)))
                for count, size in zip(workers[:SOME], sizes[:SOME], strict=True)
            ]
            for cluster, scheme, workers, sizes in settings
        ]

    for whole, some in zip(as_arrays(), one_by_one(), strict=True):
        assert np.allclose(np.broadcast_to(np.asarray(whole), COUNT)[:SOME], some, rtol=1e-12)
    of_arrays = best(as_arrays, 5) / (COUNT * len(settings))
    alone = best(one_by_one, 3) / (SOME * len(settings))
    name = f"{len(settings)} pairs of cluster and scheme, {COUNT:,} settings of each"
    return [
        (f"{name}, a second / 100,000", 1 / of_arrays / 100_000, -1.0),
        (f"{name}, as arrays / one by one", of_arrays / alone, 0.1),
    ]


def many_workers() -> list[Figure]:
    """Return a step on 1 to 1,024 workers over the same on one, and its rows in JSON over it."""

    def simulated(workers: Iterable[int]) -> paleo.Simulation:
        how: Any = {"cluster": "dgx_a100", "scaling": scaling, "workers": workers}
        return paleo.simulate("resnet50_v1_5", **how)

    found = []
    for scaling, bound in (("weak", 2.2), ("strong", 3.0)):
        many, one = (
            best(functools.partial(simulated, workers), 10)
            for workers in (range(1, MANY + 1), (1,))
        )
        name = f"resnet50_v1_5, {scaling} scaling"
        found.append((f"{name}: 1 to {MANY:,} workers / one worker", many / one, bound))
        answers = [simulated(range(1, MANY + 1)) for _ in range(3)]
        # Each answer is asked once: its knees and both ends of its bands are worked out then.
        rows = min(best(answer.to_dict, 1) for answer in answers)
        found.append((f"{name}: {MANY:,} rows in JSON / their steps", rows / many, 1.5))
    return found


def main() -> int:
    """Print a row for each figure; return 1 if one misses its bound and --check is given."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="exit with 1 if a bound is missed")
    check = parser.parse_args().check
    missed = report([figures, many_workers])
    return int(check and missed)


if __name__ == "__main__":
    sys.exit(main())
