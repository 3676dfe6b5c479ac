"""Error bands of cases that are alike, as wide as sources that are left out ask for.

Rows of one source err together: who measured, with which program, decides more than the shape. So
of several sources each counts the same, whatever its number of rows: the ends of a band are
quantiles of the mean of the sources' distributions (CDF pooling, `bands.pooled`: Dunn, Wasserman,
Ramdas, Distribution-Free Prediction Sets for Two-Layer Hierarchical Models, JASA 118, 2023,
arXiv:1809.07441). To its half width is added, in quadrature, by how much the middle of so few
sources may be off (SHIFT; as random effects are: DerSimonian, Laird, Meta-Analysis in Clinical
Trials, Controlled Clinical Trials 7, 1986). Such a band may yet be too narrow or too wide for a
new source. By how much is measured, not assumed: each source is left out in turn, bands are made of
the others, and of every row of it the score is taken, its distance from the middle of its band in
half widths (a score of conformal prediction with whole groups left out: Lee, Barber, Willett,
Distribution-Free Inference with Hierarchical Data, arXiv:2306.06342). Architectures are left out as
well. A band's half width is then multiplied by a quantile of the scores of bands that were made in
the same way: of one source or of several, and of cases that have all in common with what is asked,
or lack its architecture, its element type or its software. A kind of which few sources tell says
little of how much sources differ; since scores are in half widths, other kinds stand in for the
sources that it lacks, as where groups of few members share the spread between them (partial
pooling: Gelman, Hill, Data Analysis Using Regression and Multilevel Models, 2007, chapter 12).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from paleo.cluster import Device
from paleo.core.frozen import NamedTuple, dataclass
from paleo.core.quantity import Array, np
from paleo.core.tensor import element_size
from paleo.costs.error_bands import INFERENCE, NET, ON_MESH, TRAINING, UNKNOWN, Band, Like
from paleo.costs.tiled.constants import find_family
from paleo.measure.validate.bands import pooled, weights_of
from paleo.measure.validate.cases import Cases, NetGroup
from paleo.measure.validate.groups import CaseGroup
from paleo.measure.validate.meshes import MeshGroup
from paleo.measure.validate.protocols import protocol_of

#: A band has at least so many rows if they are of two groups, or else more.
FEWEST_ROWS, FEWEST_ALONE = 30, 100
#: Of a kind with fewer sources, each device of a source is left out by itself.
FEWEST_SOURCES = 4
#: Half of all sources are, in the middle, off by more than this share from others whose cases have
#: all in common with theirs, of 126 pairs of a source and what its cases are like, all kinds
#: together. Of n sources the middle is as sure as this over the root of n.
SHIFT = 0.047
#: From so many rows on a source counts as much as a larger one in the scores: what decides by how
#: much all bands are widened is to have been measured often.
FULL_SCORES = 200
#: The scores of fewer sources say too little of one way to make a band: other kinds count as much
#: as the sources that a kind lacks. Where they are fewer of all kinds together, those of all ways
#: by one group, or by several, stand for them, or else all scores.
FEWEST_SCORED = 3
#: No larger share of the scores is asked for: beyond it they are a few rows of one source.
MOST_ASKED = 0.96
#: Of more rows of a source that have all in common, a sample says by how much bands are widened.
MOST_ROWS = 100
#: What times of operators are from that have the host's launch and wait in them.
HOST = "host"


@dataclass(frozen=True, eq=False)
class Rows:
    """Measured cases that bands are made of, of one entry each, and what they have in common.

    `logs` are the logarithms of measured / predicted, `which` the places in `likes` of what a case
    is like. Cases of one of `groups` err together, and are left out together; `sources` says who
    published them. Cases on one of the architectures `alone` say nothing of others. Where
    nothing was `fitted` to any, errors on several architectures are those on a new one as they are:
    bands of all together are not widened.
    """

    logs: Array
    likes: Sequence[Like]
    which: Array
    groups: Array
    sources: Array
    alone: frozenset[str] = frozenset()
    fitted: bool = True

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
    if isinstance(part, MeshGroup):
        return [Like(ON_MESH, TRAINING, bits, part.software, architecture)] * len(kinds)
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
            middle = (low + high) / 2
            half = math.hypot((high - low) / 2, SHIFT / math.sqrt(groups))
            found[like] = _Narrow(middle, half, len(own), sources, groups)
    return found


class _Scores(NamedTuple):
    """In how many half widths rows are from the middle of the band that others make.

    `ways` says how that band was made, one of `_way`. `units` are whose rows they are, numbers that
    count from 0 on, and `names` what another kind's rows have to share to be left out with them.
    """

    values: Array
    ways: Array
    units: Array
    names: Array

    def select(self, keep: Array) -> _Scores:
        return _Scores(*(each[keep] for each in self))


def _scores(rows: Rows, coverage: float) -> _Scores:
    """Return the scores of rows of one pool, the others being those of other groups.

    There are two of a row whose architecture is left out as well.
    """
    _, units = np.unique(np.char.add(rows.groups, rows.sources), return_inverse=True)
    names = rows.groups if _is_unknown(rows) else rows.sources
    architectures = np.array([str(like.architecture) for like in rows.likes])[rows.which]
    parts = [_Scores(*(np.array([], kind) for kind in (float, int, int, str)))]
    for groups in (rows.groups, architectures):
        for group in sorted(set(groups.tolist())):
            out = groups == group
            known = _narrow(rows.select(~out), coverage)
            for place in np.unique(rows.which[out]).tolist():
                if like := _nearest(known, rows, place):
                    those, found = out & (rows.which == place), known[like]
                    values = np.abs(rows.logs[those] - found.middle) / found.half
                    ways = np.full(len(values), _way(like, found))
                    parts.append(_Scores(values, ways, units[those], names[those]))
    return _Scores(*map(np.concatenate, zip(*parts, strict=True)))


def _together(several: Sequence[_Scores]) -> _Scores:
    """Return the scores of several kinds, whose sources are not the same."""
    if not several:
        return _Scores(*(np.array([], kind) for kind in (float, int, int, str)))
    counts = [int(each.units.max(initial=-1)) + 1 for each in several]
    firsts = np.cumsum([0, *counts[:-1]])
    moved = [
        each._replace(units=each.units + first) for each, first in zip(several, firsts, strict=True)
    ]
    return _Scores(*map(np.concatenate, zip(*moved, strict=True)))


def _wider(rows: Rows, place: int) -> list[Like]:
    """Return of what rows may be taken for such a row, or have it among them."""
    asked = rows.likes[place]
    wider = list(asked.wider)
    return [like for like in wider if like.architecture] if _is_alone(rows, asked) else wider


def _is_alone(rows: Rows, like: Like) -> bool:
    return like.architecture in rows.alone


def _nearest(known: Mapping[Like, Any], rows: Rows, place: int) -> Like | None:
    return next((like for like in _wider(rows, place) if like in known), None)


def _quantile(scores: Array, weights: Array, coverage: float) -> float:
    """Return the score that this share of the weights has at most."""
    order = np.argsort(scores, kind="stable")
    below = np.cumsum(weights[order])
    place = int(np.searchsorted(below, coverage * below[-1] - 1e-9))
    return float(scores[order][min(place, len(order) - 1)])


def _way(like: Like, narrow: _Narrow) -> int:
    """Return how a band was made: by what its cases lack, and an odd number if by several groups.

    What is lacking is nothing, the architecture, the element type (and maybe the architecture), or
    the software (and maybe either).
    """
    lacks = (like.software, like.bits, like.architecture)
    level = next((len(lacks) - place for place, each in enumerate(lacks) if each is None), 0)
    return 2 * level + (narrow.groups > 1)


def _factor(way: int, own: _Scores, others: _Scores, coverage: float) -> float:
    """Return by which factor a band is widened, or narrowed, that was made in such a way.

    That is by the scores of its `own` kind, and as far as those are of few sources by `others`. Of
    n sources a new one is one of n + 1. Were all its rows outside, (n + 1) / n of the coverage
    would have to be asked of the others (Lee, Barber, Willett, section 3); half of that is, since
    new sources are like the others more than not.
    """
    known = len(np.unique(own.units[own.ways == way]))
    coverage = min(MOST_ASKED, coverage * (1 + 1 / (2 * (known + 1))))
    alike: tuple[Callable[[Array], Array], ...] = (
        lambda ways: ways == way, lambda ways: ways % 2 == way % 2, lambda ways: ways >= 0,
    )  # fmt: skip
    for is_alike in alike:
        near, far = own.select(is_alike(own.ways)), others.select(is_alike(others.ways))
        sources, further = (len(np.unique(each.units)) for each in (near, far))
        if sources + further < FEWEST_SCORED:
            continue
        lacking = min(1.0, max(0, FEWEST_SCORED - sources) / max(1, further))
        weights = [
            weights_of(near.units, FULL_SCORES),
            weights_of(far.units, FULL_SCORES) * lacking,
        ]
        return _quantile(
            np.concatenate([near.values, far.values]), np.concatenate(weights), coverage
        )
    return 1.0


def _thinned(rows: Rows) -> Rows:
    """Return at most MOST_ROWS of each source that have all in common, always the same."""
    order = np.random.default_rng(0).permutation(len(rows))
    kept: dict[tuple[str, str, int], list[int]] = {}
    for place in order.tolist():
        whose = (rows.groups[place], rows.sources[place], int(rows.which[place]))
        kept.setdefault(whose, []).append(place)
    return rows.select(np.sort([place for own in kept.values() for place in own[:MOST_ROWS]]))


def _kinds(rows: Rows) -> list[Array]:
    """Return the places of rows of which bands are made together: of a kind that is pooled."""

    def pool(like: Like) -> tuple[str, str]:
        is_apart = like.architecture == UNKNOWN or _is_alone(rows, like)
        return like.kind, f"{like.architecture} apart" if is_apart else ""

    pools = np.array([" ".join(pool(like)) for like in rows.likes])[rows.which]
    return [(pools == name).nonzero()[0] for name in sorted(set(pools.tolist()))]


def _is_unknown(rows: Rows) -> bool:
    return bool(len(rows)) and rows.likes[rows.which[0]].architecture == UNKNOWN


def _others(pools: Sequence[Rows], scores: Sequence[_Scores], own: Rows) -> _Scores:
    """Return the scores of kinds that may stand in for one, its own not among them.

    What is predicted with constants of architectures and without are told apart; rows on
    architectures that stand alone say nothing of others.
    """
    return _together(
        [
            each
            for pool, each in zip(pools, scores, strict=True)
            if pool is not own
            and _is_unknown(pool) == _is_unknown(own)
            and not _is_alone(pool, pool.likes[pool.which[0]])
        ]
    )


def _widened(
    rows: Rows, own: _Scores, others: _Scores, coverage: float
) -> Iterator[tuple[Like, Band]]:
    """Yield the bands of rows of one pool, widened by these scores."""
    factors: dict[int, float] = {}
    for like, narrow in _narrow(rows, coverage).items():
        way = _way(like, narrow)
        if way not in factors:
            known = rows.fitted or like.architecture is not None
            factors[way] = _factor(way, own, others, coverage) if known else 1.0
        yield like, narrow.widened(factors[way], coverage)


def learned(rows: Rows, coverage: float = 0.8) -> dict[Like, Band]:
    """Return the bands of all that rows have in common, as the module says."""
    pools = [rows.select(places) for places in _kinds(rows)]
    scores = [_scores(_thinned(pool), coverage) for pool in pools]
    return dict(
        entry
        for pool, own in zip(pools, scores, strict=True)
        for entry in _widened(pool, own, _others(pools, scores, pool), coverage)
    )


def left_out(rows: Rows, coverage: float = 0.8) -> Array:
    """Return 1 for each row that is in its band, 0 if not, NaN without one.

    The band is the one that would be found had the row's group not been measured: neither is it
    made of the group's rows, nor is it widened by their scores, nor by those of other kinds' rows
    of the same source, or on the same architecture where those are left out.
    """
    inside = np.full(len(rows), np.nan)
    kinds = _kinds(rows)
    pools = [rows.select(places) for places in kinds]
    thinned = [_thinned(pool) for pool in pools]
    scores = [_scores(thin, coverage) for thin in thinned]
    for places, own, thin in zip(kinds, pools, thinned, strict=True):
        others = _others(pools, scores, own)
        for group in sorted(set(own.groups.tolist())):
            out, rest = own.groups == group, thin.select(thin.groups != group)
            names = own.groups[out] if _is_unknown(own) else own.sources[out]
            apart = others.select(~np.isin(others.names, names))
            known = dict(_widened(rest, _scores(rest, coverage), apart, coverage))
            for place in np.unique(own.which[out]).tolist():
                if like := _nearest(known, own, place):
                    those, found = out & (own.which == place), known[like]
                    ratios = np.exp(own.logs[those])
                    inside[places[those]] = (ratios >= found.low) & (ratios <= found.high)
    return inside
