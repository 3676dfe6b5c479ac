"""Figures that are ratios of two times of one run, and the table that holds them to bounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

#: A name, the ratio, and its bound. A negative bound is one from below.
Figure = tuple[str, float, float]
#: How often a figure is measured until it meets its bound. What else a machine does can only make
#: one of both sides slower, seldom in every look; a program that became slower is it in each.
LOOKS = 3


def best(run: Callable[[], object], repeats: int = 15) -> float:
    """Return the least of several wall-clock times, in seconds."""
    times = []
    for _ in range(repeats):
        begun = time.perf_counter()
        run()
        times.append(time.perf_counter() - begun)
    return min(times)


def ratio(own: Callable[[], object], other: Callable[[], object], rounds: int) -> float:
    """Return the least time of one over that of the other, taken in turns.

    The machine may be slower for a while, and is for whoever comes first: both warm up.
    """
    other(), own()
    turns = [(best(own, 1), best(other, 1)) for _ in range(rounds)]
    return min(ours for ours, _ in turns) / min(theirs for _, theirs in turns)


def report(
    measures: Iterable[Callable[[], Iterable[Figure]]],
    missed_so_far: Mapping[str, float] = MappingProxyType({}),
) -> bool:
    """Print a row for each figure with its bound; tell whether one is missed in every look.

    Of those that are known to be missed, by name, only what is beyond `missed_so_far` counts.
    """
    missed = False
    print(f"{'figure':62}  {'ratio':>8}  bound")
    for measure in measures:
        looks = [list(measure())]
        while any(map(_beyond, looks[-1])) and len(looks) < LOOKS:
            looks.append(list(measure()))
        for seen in zip(*looks, strict=True):
            figure = min(seen, key=lambda each: -each[1] if each[2] < 0 else each[1])
            name, found, bound = figure
            limit = f"at least {-bound:g}" if bound < 0 else f"at most {bound:g}"
            mark = "  MISSED" if _beyond(figure) else ""
            again = f"  (the best of {len(looks)})" if len(looks) > 1 else ""
            print(f"{name:62}  {found:8.4g}  {limit}{again}{mark}", flush=True)
            missed |= _beyond((name, found, missed_so_far.get(name, bound)))
    return missed


def _beyond(figure: Figure) -> bool:
    _, found, bound = figure
    return found < -bound if bound < 0 else found > bound
