"""Error bands of cases that are alike, as wide as sources that are left out ask for.

Rows of one source err together: who measured, with which program, decides more than the shape. So
of several sources each counts the same, whatever its number of rows: the ends of a band are
quantiles of the mean of the sources' distributions (CDF pooling, `bands.pooled`: Dunn, Wasserman,
Ramdas, Distribution-Free Prediction Sets for Two-Layer Hierarchical Models, JASA 118, 2023,
arXiv:1809.07441). With few sources such a band is too narrow for a new one. By how much is
measured, not assumed: each source is left out in turn, bands are made of the others, and of every
row of it the score is taken, its distance from the middle of its band in half widths (a score of
conformal prediction with whole groups left out: Lee, Barber, Willett, Distribution-Free Inference
with Hierarchical Data, arXiv:2306.06342). All bands of a kind are widened by the quantile of the
scores of bands that were made in the same way: of what has all in common or of a wider group, by
one source or by several. For these scores architectures are left out as well. No band is made
narrower.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from paleo.cluster import Device
from paleo.core.frozen import dataclass
from paleo.core.quantity import Array, np
from paleo.core.tensor import element_size
from paleo.costs.error_bands import INFERENCE, NET, TRAINING, UNKNOWN, Band, Like
from paleo.costs.tiled.constants import find_family
from paleo.measure.validate.bands import pooled, weights_of
from paleo.measure.validate.cases import CaseGroup, Cases, NetGroup
from paleo.measure.validate.protocols import protocol_of

#: A band has at least so many rows if they are of two groups, or else more.
FEWEST_ROWS, FEWEST_ALONE = 30, 100
#: Of a kind with fewer sources, each device of a source is left out by itself.
FEWEST_SOURCES = 4
#: From so many rows on a group counts as much as a larger one in the scores: what decides by how
#: much all bands of a kind are widened is to have been measured often.
FULL_SCORES = 200
#: Of fewer groups the scores of one way to make a band say too little: those of all ways by one
#: group, or by several, stand for them, or else all scores.
FEWEST_SCORED = 3
#: Of more rows of a group that have all in common, a sample says by how much bands are widened.
MOST_ROWS = 100
#: What times of operators are from that have the host's launch and wait in them.
HOST = "host"


@dataclass(frozen=True, eq=False)
class Rows:
    """Measured cases that bands are made of, of one entry each, and what they have in common.

    `logs` are the logarithms of measured / predicted, `which` the places in `likes` of what a case
    is like. Cases of one of `groups` err together, and are left out together; `sources` says who
    published them. Cases on one of the architectures `alone` say nothing of others.
    """

    logs: Array
    likes: Sequence[Like]
    which: Array
    groups: Array
    sources: Array
    alone: frozenset[str] = frozenset()

    def select(self, keep: Array) -> Rows:
        """Return those that a mask marks, or that stand at these places."""
        return replace(
            self,
            logs=self.logs[keep],
            which=self.which[keep],
            groups=self.groups[keep],
            sources=self.sources[keep],
        )

    def __len__(self) -> int:
        return len(self.logs)


def rows_of(several: Sequence[tuple[Cases, Array, Array]], *, is_known: bool = True) -> Rows:
    """Return the rows of cases, each with their predictions and who published them.

    If `is_known`, predictions are with the constants of architectures, and devices without any are
    left out. Else they are with constants of no architecture, for all GPUs alike; what is left out
    together is then an architecture.
    """
    logs, likes, sources, devices = [], [], [], []
    alone = set()
    for cases, predicted, published in several:
        found: Array = np.full(len(cases), None, object)
        for part in cases.parts:
            is_cpu = part.device.kind == "cpu"
            if find_family(part.device) if is_known else not is_cpu:
                found[part.index] = _likes(cases, part, is_known)
            if is_cpu:
                alone.add(part.device.architecture)
        kept = np.isfinite(predicted) & (found != None)  # noqa: E711 (element by element)
        logs.append(np.log(cases.measured[kept] / predicted[kept]))
        likes += found[kept].tolist()
        sources.append(published[kept].astype(str))
        devices += [cases.devices[name] for name in cases.labels["device"][kept].tolist()]
    distinct = {like: place for place, like in enumerate(dict.fromkeys(likes))}
    which = np.array([distinct[like] for like in likes], np.int64)
    from_whom = np.concatenate([np.array([], str), *sources])
    kinds = np.array([like.kind for like in likes])
    groups = _groups(kinds, from_whom, devices)
    if not is_known:
        groups = np.array([device.architecture for device in devices])
    none = np.array([], float)
    return Rows(
        np.concatenate([none, *logs]), tuple(distinct), which, groups, from_whom, frozenset(alone)
    )


def _likes(cases: Cases, part: CaseGroup, is_known: bool) -> list[Like]:
    """Return what each case of a group is like."""
    kinds = cases.labels["kind"][part.index].tolist()
    architecture = part.device.architecture if is_known else UNKNOWN
    bits = 8 * element_size(part.dtype)
    if isinstance(part, NetGroup):
        direction = TRAINING if part.case.trains else INFERENCE
        like = Like(NET, direction, bits, part.case.software.family, architecture)
        return [like] * len(kinds)
    sources = cases.labels["source"][part.index].tolist()
    return [
        Like(
            kind.split()[0],
            bits=bits,
            software=HOST if protocol_of(source).from_host else "",
            architecture=architecture,
        )
        for kind, source in zip(kinds, sources, strict=True)
    ]


def _groups(kinds: Array, sources: Array, devices: Sequence[Device]) -> Array:
    """Return what is left out together: sources, of kinds that have few a device of a source."""
    groups = sources.astype(object)
    for kind in set(kinds.tolist()):
        own = (kinds == kind).nonzero()[0]
        if len(set(sources[own].tolist())) < FEWEST_SOURCES:
            groups[own] = [f"{sources[place]} on {devices[place].name}" for place in own.tolist()]
    return groups.astype(str)


class _Narrow(NamedTuple):
    """A band before it is widened: its middle and half width as logarithms, and of how much."""

    middle: float
    half: float
    rows: int
    sources: int
    groups: int

    def widened(self, factor: float, coverage: float) -> Band:
        low, high = (math.exp(self.middle + sign * factor * self.half) for sign in (-1, 1))
        return Band(low, high, self.rows, coverage, sources=self.sources)


def _narrow(rows: Rows, coverage: float) -> dict[Like, _Narrow]:
    """Return the bands of all that rows have in common, where there are enough."""
    members: dict[Like, list[int]] = {}
    for place in np.unique(rows.which).tolist():
        for like in _wider(rows, place):
            members.setdefault(like, []).append(place)
    found = {}
    for like, places in members.items():
        own = rows.select(np.isin(rows.which, places))
        sources, groups = len(set(own.sources.tolist())), len(set(own.groups.tolist()))
        if len(own) < (FEWEST_ROWS if groups > 1 else FEWEST_ALONE):
            continue
        low, high = pooled(own.logs, own.groups, coverage)
        if math.isfinite(high - low):
            middle, half = (low + high) / 2, (high - low) / 2
            found[like] = _Narrow(middle, half, len(own), sources, groups)
    return found


class _Scores(NamedTuple):
    """In how many half widths rows are from the middle of the band that others make.

    `ways` says how that band was made, one of `_way`. Where there is no band, the score is NaN.
    """

    values: Array
    groups: Array
    ways: Array


def _scores(rows: Rows, groups: Array, coverage: float) -> _Scores:
    """Return the scores of rows, the others being those of other groups."""
    scores = _Scores(np.full(len(groups), np.nan), groups, np.zeros(len(groups), int))
    for group in sorted(set(groups.tolist())):
        out = groups == group
        known = _narrow(rows.select(~out), coverage)
        for place in np.unique(rows.which[out]).tolist():
            if like := _nearest(known, rows, place):
                those, found = out & (rows.which == place), known[like]
                scores.values[those] = np.abs(rows.logs[those] - found.middle) / found.half
                scores.ways[those] = _way(like == rows.likes[place], found)
    return scores


def _wider(rows: Rows, place: int) -> list[Like]:
    """Return of what rows may be taken for such a row, or have it among them."""
    asked = rows.likes[place]
    wider = list(asked.wider)
    return [like for like in wider if like.architecture] if _is_alone(rows, asked) else wider


def _is_alone(rows: Rows, like: Like) -> bool:
    return like.architecture in rows.alone


def _nearest(known: Mapping[Like, Any], rows: Rows, place: int) -> Like | None:
    return next((like for like in _wider(rows, place) if like in known), None)


def _quantile(scores: Array, groups: Array, coverage: float) -> float:
    """Return the score that this share has at most, the distributions of groups pooled; or 0."""
    if not len(scores):
        return 0.0
    order = np.argsort(scores, kind="stable")
    weights = np.cumsum(weights_of(groups, FULL_SCORES)[order])
    place = int(np.searchsorted(weights, coverage * weights[-1] - 1e-9))
    return float(scores[order][min(place, len(order) - 1)])


def _way(is_own: bool, narrow: _Narrow) -> int:
    """Return how a band was made: 3 of all in common by several groups, 2 by one, 1, 0 of less."""
    return 2 * is_own + (narrow.groups > 1)


def _factors(rows: Rows, coverage: float) -> list[float]:
    """Return by which factors bands are widened that were made in each way.

    Left out are groups, and architectures with all of their rows.
    """
    architectures = np.array([str(like.architecture) for like in rows.likes])[rows.which]
    found = [_scores(rows, groups, coverage) for groups in (rows.groups, architectures)]
    values, groups, ways = (np.concatenate(parts) for parts in zip(*found, strict=True))
    known = np.isfinite(values)

    def factor(those: Array, fewest: int = 0) -> float:
        if len(set(groups[those].tolist())) < fewest:
            return 0.0
        return _quantile(values[those], groups[those], coverage)

    every = factor(known)
    found_factors = []
    for way in range(4):
        own = factor(known & (ways == way), FEWEST_SCORED)
        alike = factor(known & (ways % 2 == way % 2), FEWEST_SCORED)
        found_factors.append(max(1.0, own or alike or every))
    return found_factors


def _thinned(rows: Rows) -> Rows:
    """Return at most MOST_ROWS of each group that have all in common, always the same."""
    order = np.random.default_rng(0).permutation(len(rows))
    kept: dict[tuple[str, int], list[int]] = {}
    for place in order.tolist():
        kept.setdefault((rows.groups[place], int(rows.which[place])), []).append(place)
    return rows.select(np.sort([place for own in kept.values() for place in own[:MOST_ROWS]]))


def _kinds(rows: Rows) -> list[Array]:
    """Return the places of rows whose bands are widened alike: of a kind that is pooled."""

    def pool(like: Like) -> tuple[str, str]:
        is_apart = like.architecture == UNKNOWN or _is_alone(rows, like)
        return like.kind, f"{like.architecture} apart" if is_apart else ""

    pools = np.array([" ".join(pool(like)) for like in rows.likes])[rows.which]
    return [(pools == name).nonzero()[0] for name in sorted(set(pools.tolist()))]


def learned(rows: Rows, coverage: float = 0.8) -> dict[Like, Band]:
    """Return the bands of all that rows have in common, as the module says."""
    found: dict[Like, Band] = {}
    for places in _kinds(rows):
        own = rows.select(places)
        factors = _factors(_thinned(own), coverage)
        asked = {own.likes[place] for place in np.unique(own.which).tolist()}
        for like, narrow in _narrow(own, coverage).items():
            found[like] = narrow.widened(factors[_way(like in asked, narrow)], coverage)
    return found


def left_out(rows: Rows, coverage: float = 0.8) -> Array:
    """Return 1 for each row that is in its band, 0 if not, NaN without one.

    The band is the one that would be found had the row's group not been measured: neither is it
    made of the group's rows, nor is it widened by their scores.
    """
    inside = np.full(len(rows), np.nan)
    for places in _kinds(rows):
        own = rows.select(places)
        thin = _thinned(own)
        for group in sorted(set(own.groups.tolist())):
            known = learned(thin.select(thin.groups != group), coverage)
            out = own.groups == group
            for place in np.unique(own.which[out]).tolist():
                if like := _nearest(known, own, place):
                    those, found = out & (own.which == place), known[like]
                    ratios = np.exp(own.logs[those])
                    inside[places[those]] = (ratios >= found.low) & (ratios <= found.high)
    return inside
