"""Error bands of the model `tiled` from everything that was measured, and how well they hold.

`benchmarks/accuracy.py --bands` makes them. What they are is in paleo/measure/validate/alike.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from paleo.core.errors import PaleoError
from paleo.costs.error_bands import NET, UNKNOWN, WHOLE, Band, Like
from paleo.costs.tiled.constants import CONSTANTS
from paleo.measure.validate import Cases, predict
from paleo.measure.validate.alike import Rows, learned, left_out, rows_of

COVERAGE = 0.8
#: Rows of an operator table that are taken, at random.
TABLE_ROWS = 3000
#: What is asked of the share of rows inside, in percent: of all, of nets, and the least of any
#: part with more rows than these.
WANTED, WANTED_NETS, LEAST, MANY = (78, 82), (75, 85), 70, 200
ALL_KINDS = "all kinds"
#: The files of published rows that bands are made of, beside those of nets.
FILES = (
    "deepbench", "neusight_ops", "vidur_ops", "llmcompass", "neusight_e2e",
    "nvidia_dle", "dlperf", "more/mlperf", "more/timm",
)  # fmt: skip
#: Operators of the tables, and their element types.
OPERATORS = (
    ("gemm", ("bf16", "fp8", "fp8_block")),
    ("context_attention", ("bf16",)),
    ("generation_attention", ("bf16",)),
)
FRAMEWORKS = ("trtllm", "sglang", "vllm")
#: What a file of bands says of each, in this order.
_KEYS = ("kind", "direction", "bits", "software", "architecture")


@dataclass(frozen=True)
class Held:
    """How many of some rows are inside of their bands, what they are of left out."""

    name: str
    rows: int
    inside: float
    #: The same with every source counting once.
    of_sources: float

    @property
    def percent(self) -> str:
        return f"{100 * self.inside:.0f} %"


@dataclass(frozen=True)
class Bands:
    """All bands, and for each of `rows` whether it is inside with its source left out."""

    found: Mapping[Like, Band]
    rows: Rows
    inside: Any

    def held(self, name: str, keep: Any) -> Held | None:
        """Return how well those rows hold that a mask marks, None if none has a band."""
        keep = keep & np.isfinite(self.inside)
        if not keep.any():
            return None
        inside, sources = self.inside[keep], self.rows.sources[keep]
        by_source = [inside[sources == source].mean() for source in set(sources.tolist())]
        return Held(name, int(keep.sum()), float(inside.mean()), float(np.mean(by_source)))

    def like(self, wanted: Like) -> Any:
        """Return a mask of the rows that have all of this in common."""
        is_like = [wanted in each.wider for each in self.rows.likes]
        return np.array(is_like, bool)[self.rows.which]

    @property
    def totals(self) -> list[Held]:
        """Of all rows, of every kind, and of every part that has all in common and many rows."""
        likes = self.rows.likes
        unknown = np.array([like.architecture == UNKNOWN for like in likes])[self.rows.which]
        kinds = np.array([like.kind for like in likes])[self.rows.which]
        found = [self.held(ALL_KINDS, ~unknown)]
        found += [
            self.held(kind, ~unknown & (kinds == kind)) for kind in sorted(set(kinds.tolist()))
        ]
        found.append(self.held("architectures as if nothing had been fitted to them", unknown))
        return list(filter(None, found))

    @property
    def parts(self) -> list[Held]:
        """Of every part that has a kind and an architecture in common, and many rows."""
        likes = [Like(like.kind, architecture=like.architecture) for like in self.rows.likes]
        of_rows = np.array([str(like) for like in likes])[self.rows.which]
        found = []
        for part in dict.fromkeys(like for like in likes if like.architecture):
            held = self.held(part.said(), of_rows == str(part))
            if held and held.rows > MANY:
                found.append(held)
        return sorted(found, key=lambda held: held.name)

    def file(self, known: Mapping[Like, Band] | None = None) -> str:
        """Return the file that ships the bands, with those that are `known` of other kinds."""
        kinds = {like.kind for like in self.found}
        kept = {like: band for like, band in (known or {}).items() if like.kind not in kinds}
        lines = [
            "# Error bands: of cases like those that these were made of, the share `coverage` took",
            "# between `low` and `high` times as long as predicted. A key that an entry lacks is",
            "# any. Written by `python benchmarks/accuracy.py --bands`; docs/accuracy.md says from",
            "# what.",
            f"coverage = {COVERAGE}",
        ]
        for like, band in _in_order({**kept, **self.found}):
            known = {key: getattr(like, key) for key in _KEYS if getattr(like, key) is not None}
            lines += ["", "[[band]]"]
            lines += [
                f'{key} = "{value}"' if isinstance(value, str) else f"{key} = {value}"
                for key, value in known.items()
            ]
            lines += [f"low = {band.low:.4g}", f"high = {band.high:.4g}"]
            lines += [f"count = {band.count}", f"sources = {band.sources}"]
        return "\n".join(lines) + "\n"

    def table(self) -> list[tuple[str, ...]]:
        """Return rows of bands: what they are of, rows, sources, ends, and how well they hold.

        Of the wider groups only those of all architectures are there.
        """
        rows: list[tuple[str, ...]] = []
        for like, band in _in_order(self.found):
            if None in (like.bits, like.software) or (like.kind in WHOLE and not like.direction):
                continue
            held = self.held("", self.like(like))
            rows.append(
                (
                    like.said(), f"{band.count:,}", str(band.sources),
                    f"{100 * (band.low - 1):+.0f} %", f"{100 * (band.high - 1):+.0f} %",
                    held.percent if held else "",
                )
            )  # fmt: skip
        return rows


def _in_order(found: Mapping[Like, Band]) -> list[tuple[Like, Band]]:
    """Return bands by kind, those of all in common first."""

    def key(entry: tuple[Like, Band]) -> tuple[str, ...]:
        like = entry[0]
        values = [getattr(like, key) for key in _KEYS]
        return (like.kind, str(values.count(None)), *(str(value) for value in values))

    return sorted(found.items(), key=key)


def cases_of_bands(data: Any, nets: Sequence[str], systems: Sequence[str]) -> Iterator[Any]:
    """Yield cases, and who published each, of files of `data` and tables of these systems.

    Of several devices only MLPerf's nodes of up to eight count.
    """
    for name in (*FILES, *nets):
        cases = data.file(name)
        most = 8 if name == "more/mlperf" else 1
        cases = cases.select(cases.labels["n_devices"].astype(int) <= most)
        cases = by_makers(cases)
        if not len(cases):
            raise PaleoError(f"{name}: no row is predicted; are torch, torchvision, timm there?")
        yield cases, cases.labels["source"].astype(str)
    for system in systems:
        for framework in FRAMEWORKS:
            for operator, dtypes in OPERATORS:
                for dtype in dtypes:
                    try:
                        cases = data.table(system, operator, dtype, framework)
                    except PaleoError:  # there is no such table
                        continue
                    cases = _held_out(cases)
                    yield cases, np.full(len(cases), f"aiconfigurator-core {system} {framework}")


def by_makers(cases: Cases) -> Cases:
    """Return the cases but for libraries that convnet_benchmarks compares with the maker's.

    What is behind a slash is whose kernels a framework ran: torch7's own (nn) and fbfft's in one
    log with cuDNN's, whose version stands in the same column (imagenet_winners/output_raw.log).
    """
    software = zip(cases.labels["framework"], cases.labels["library_version"], strict=True)
    makers = [
        "cudnn" in (framework if "/" in framework else f"{framework} {version}").casefold()
        for framework, version in software
    ]
    others = cases.labels["source"].astype(str) != "convnet_benchmarks"
    return cases.select(np.array(makers, bool) | others)


def _held_out(cases: Cases) -> Cases:
    """Return a sample of a table without the tenth that constants may have been fitted to."""
    order = np.random.default_rng(0).permutation(len(cases))[len(cases) // 10 :]
    return cases.select(np.sort(order[:TABLE_ROWS]))


def make_bands(data: Any, nets: Sequence[str], systems: Sequence[str]) -> Bands:
    """Return the bands of all measured cases, and how well they hold.

    Those of unknown architectures are of predictions with constants of no architecture.
    """
    general = {name: constant.value for name, constant in CONSTANTS.items()}
    known, unknown = [], []
    for cases, published in cases_of_bands(data, nets, systems):
        known.append((cases, predict(cases, "tiled"), published))
        unknown.append((cases, predict(cases, "tiled", general), published))
    rows = _join(rows_of(known), rows_of(unknown, is_known=False))
    return Bands(learned(rows, COVERAGE), rows, left_out(rows, COVERAGE))


def mesh_bands(several: Sequence[Cases]) -> Bands:
    """Return the bands of steps on meshes, made of these cases alone, and how well they hold.

    Those of other kinds say nothing of what messages and waiting add, nor these of others. Nothing
    was fitted to any of them; nearly all are on one architecture, so that no band is made of
    predictions as if nothing had been fitted to devices.
    """
    known = [
        (cases, predict(cases, "tiled"), cases.labels["source"].astype(str)) for cases in several
    ]
    rows = replace(rows_of(known), fitted=False)
    return Bands(learned(rows, COVERAGE), rows, left_out(rows, COVERAGE))


def _join(first: Rows, second: Rows) -> Rows:
    def both(name: str) -> Any:
        return np.concatenate([getattr(first, name), getattr(second, name)])

    return replace(
        first,
        logs=both("logs"),
        likes=(*first.likes, *second.likes),
        which=np.concatenate([first.which, len(first.likes) + second.which]),
        groups=both("groups"),
        sources=both("sources"),
    )


def figures(found: Bands) -> Iterator[tuple[str, str, str, bool]]:
    """Yield what is reached of the share inside: its name, value, what is wanted, and if it is."""
    ends = {ALL_KINDS: WANTED, NET: WANTED_NETS}
    for held in (*found.totals, *found.parts):
        name, value = f"inside error bands, {held.name}", f"{held.percent} of {held.rows:,} rows"
        if held.name in ends:
            low, high = ends[held.name]
            is_met = low <= round(100 * held.inside) <= high
            yield name, value, f"{low} to {high} %", is_met
        else:
            yield name, value, f"at least {LEAST} %", 100 * held.inside >= LEAST
