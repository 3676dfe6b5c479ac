"""Predicted steps of nets on many devices beside those that others published.

    python benchmarks/meshes.py            print the errors by source, and what is missed
    python benchmarks/meshes.py --rows     and every row
    python benchmarks/meshes.py --write    write them into docs/parallelism.md
    python benchmarks/meshes.py --check    exit with 1 if a bound is missed that is known to be met
    python benchmarks/meshes.py --bands    print and write the error bands of steps on meshes
    python benchmarks/meshes.py --fitted   fit ten constants to 28 rows of vTrain, predict others

Nothing is fitted to these rows, nor to others of these sources, but with --fitted: that is what
`paleo calibrate --from` does for rows of one's own, and what it is worth on rows left out.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from error_bands import mesh_bands

from paleo.costs.tiled.error_bands import known_bands
from paleo.measure.calibrate.rows import SPREAD, STEPS
from paleo.measure.validate import Cases, cases_of, predict, read_measurements
from paleo.measure.validate.crossvalidate import fitted
from paleo.measure.validate.meshes import TRACED, memory_errors

ROOT = Path(__file__).parents[1]
PAGE, HEADING = ROOT / "docs" / "parallelism.md", "## How far off it is\n"
#: Rows of SimuMax, taken over from its documents.
SIMUMAX = ROOT / "benchmarks" / "published" / "simumax_b200.csv"
BANDS = ROOT / "paleo" / "costs" / "tiled" / "errors.toml"
_LANGUAGE = ("bert", "gpt")


def _on(labels: Mapping[str, Any]) -> Any:
    return labels["n_devices"].astype(int)


def _language(labels: Mapping[str, Any]) -> Any:
    """Tell which rows are of BERT or GPT on several devices."""
    of = [any(word in name.casefold() for word in _LANGUAGE) for name in labels["network"]]
    return np.array(of, bool) & (_on(labels) > 1)


class Kind(NamedTuple):
    """Rows of a kind: the file they are in, which of it, and percent of the error wanted.

    `figure` says which error: the "mean" or the "median" of steps, of "memory", or of "scaling",
    which is that of steps where computation of the smallest system is taken as it was.
    """

    file: str
    title: str
    is_of: Callable[[Mapping[str, Any]], Any]
    wanted: float
    figure: str = "mean"
    #: What others reach on the same rows, as their authors say.
    beside: str = ""
    is_met: bool = True


KINDS = (
    Kind(
        "vtrain", "vTrain, one node", lambda of: _on(of) <= 8, 12,
        beside="vTrain 8.4 % (profiled on the device), Calculon 38.9 %",
    ),
    Kind(
        "vtrain", "vTrain, 8 nodes", lambda of: _on(of) > 8, 11,
        beside="vTrain 14.7 %, Calculon 15.3 %",
    ),
    Kind(
        "megatron_seqsel", "Korthikanti et al., 8 to 512 devices", lambda of: _on(of) > 1, 3.5,
        beside="Calculon 3.7 %",
    ),
    Kind("megatron_a100", "Narayanan et al., 32 to 3,072 devices", lambda of: _on(of) > 1, 5),
    Kind(
        "mosaic_llmfoundry", "MosaicML llm-foundry, FSDP, 8 to 64 devices", lambda of: _on(of) > 1,
        8, "median", "one constant 12 to 14 %",
    ),
    Kind(
        "nvidia_dle", "NVIDIA's BERT, 4 and 8 devices", _language, 8, "median",
        "one constant 12 to 14 %", is_met=False,
    ),
    Kind(
        "dlperf", "DLPerf's BERT, 2 to 8 devices", _language, 8, "median",
        "one constant 12 to 14 %", is_met=False,
    ),
    Kind(
        "more/mlperf", "MLPerf GPT-3, beside that on 512",
        lambda of: of["network"] == "gpt3_175b", 6, "scaling",
    ),
    Kind(
        "more/mlperf", "MLPerf GPT-3 in fp8, 512 to 10,752 H100",
        lambda of: of["network"] == "gpt3_175b", 15,
    ),
    Kind(
        "simumax", "SimuMax on 8 B200", lambda of: _on(of) > 1, 8,
        beside="SimuMax 5.6 % (fitted to the machine)", is_met=False,
    ),
    Kind(
        "simumax", "SimuMax on 8 B200, memory (of tensors)", lambda of: _on(of) > 1, 3, "memory",
        "SimuMax 0.5 %",
    ),
)  # fmt: skip


def errors(cases: Cases, figure: str) -> np.ndarray:
    """Return the errors of predicted steps, in percent of what was measured.

    Of "scaling" they are those of rows but for the smallest system's, whose own is taken away.
    """
    ratios = predict(cases, "tiled") / cases.measured
    if figure == "scaling":
        first = np.argmin(_on(cases.labels))
        ratios = np.delete(ratios / ratios[first], first)
    return 100 * (ratios - 1)


def _path(measured: Path, file: str) -> Path:
    return SIMUMAX if file == "simumax" else measured / f"{file}.csv"


def table(measured: Path, *, with_rows: bool) -> Iterator[tuple[Kind, list[str]]]:
    """Yield for each kind of rows the cells of its line in the table; print rows if asked."""
    files: dict[str, Any] = {}
    for kind in KINDS:
        if kind.file not in files:
            rows = read_measurements(_path(measured, kind.file))
            files[kind.file] = rows, cases_of(rows)
        rows, cases = files[kind.file]
        own = cases.select(kind.is_of(cases.labels))
        if kind.figure == "memory":
            wrong = 100 * np.array(memory_errors(rows))
        else:
            wrong = errors(own, kind.figure)
        if with_rows and kind.figure in ("mean", "median"):
            for row_id, name, error in zip(own.ids, own.names(), wrong, strict=True):
                print(f"{row_id}  {name}  {error:+.1f} %")
        mean, median = float(np.mean(np.abs(wrong))), float(np.median(np.abs(wrong)))
        reached = median if kind.figure == "median" else mean
        wanted = f"{kind.wanted:g} %" + (" median" if kind.figure == "median" else "")
        yield kind._replace(is_met=reached <= kind.wanted), [
            kind.title, str(len(wrong)), f"{mean:.1f} %", f"{median:.1f} %",
            f"{np.mean(wrong):+.1f} %", wanted, kind.beside,
        ]  # fmt: skip


#: Rows that constants are fitted to, in turn; the constants: four of links inside a node, six of
#: the device and its host.
FITTED_ROWS, SEEDS = 28, range(3)
FITTED = (
    "link_share", "link_launch", "link_hop", "link_ramp",
    "host", "launch", "matrix_share", "memory_share", "operand_share", "load_share",
)  # fmt: skip


def by_net(cases: Cases) -> Cases:
    """Return the same cases, of which those of a net are predicted one after the other: quicker."""

    def key(part: Any) -> tuple[str, int, int]:
        return part.case.net.name, part.case.mesh.tp, dict(part.case.settings)["micro_batch"]

    return replace(cases, parts=tuple(sorted(cases.parts, key=key)))


def fitted_errors(cases: Cases, seed: int) -> tuple[float, float, float]:
    """Return mean absolute errors, in percent, of constants fitted to some rows drawn at random.

    On these rows, on all others, and on the others before the fit.
    """
    drawn = np.random.default_rng(seed).choice(len(cases), FITTED_ROWS, replace=False)
    own = cases.select(np.sort(drawn))
    others = by_net(cases.select(np.setdiff1d(np.arange(len(cases)), drawn)))
    values = fitted(own, FITTED, steps=STEPS, spread=SPREAD)
    said = ", ".join(f"{name} {value:.3g}" for name, value in values.items())
    print(f"seed {seed}: {said}", flush=True)

    def error(of: Cases, constants: Mapping[str, float]) -> float:
        wrong = predict(of, "tiled", constants) / of.measured - 1
        return 100 * float(np.mean(np.abs(wrong)))

    return error(own, values), error(others, values), error(others, {})


def print_fitted(measured: Path) -> None:
    """Print what constants fitted to a few rows of vTrain are worth on the others."""
    rows = read_measurements(_path(measured, "vtrain"))
    cases = cases_of(replace(row, framework=TRACED) for row in rows if row.n_devices <= 8)
    found = []
    for seed in SEEDS:
        found.append(fitted_errors(cases, seed))
        print("seed {}: {:.1f} % of these, {:.1f} % of others, {:.1f} % before".format(
            seed, *found[-1]), flush=True)  # fmt: skip
    of_these, of_others, before = np.mean(found, axis=0)
    print(
        f"{len(found)} draws of {FITTED_ROWS} rows, ten constants: {of_these:.1f} % of these, "
        f"{of_others:.1f} % of those left out, {before:.1f} % before (wanted: 8 %)"
    )


def write_bands(measured: Path) -> None:
    """Print the error bands of steps on meshes and how well they hold; write them in their file."""
    several = []
    for file in dict.fromkeys(kind.file for kind in KINDS):
        cases = cases_of(read_measurements(_path(measured, file)))
        several.append(cases.select(cases.labels["kind"] == "mesh step"))
    found = mesh_bands([cases for cases in several if len(cases)])
    for line in found.table():
        print(" | ".join(line))
    for held in found.totals:
        print(
            f"{held.name}: {held.percent} of {held.rows} rows inside, their source left out; "
            f"{100 * held.of_sources:.0f} % with each source counting once, as bands are made"
        )
    BANDS.write_text(found.file(known_bands()), "utf-8")


def main() -> int:
    """Print the table; return 1 with --check if a bound is missed that is known to be met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measured", type=Path, default=ROOT.parent / "shared" / "measured")
    for name in ("rows", "write", "check", "bands", "fitted"):
        parser.add_argument(f"--{name}", action="store_true")
    arguments = parser.parse_args()
    if not arguments.measured.is_dir():
        print(f"left out: there are no measurements in {arguments.measured}")
        return 0
    if arguments.fitted:
        print_fitted(arguments.measured)
        return 0
    if arguments.bands:
        write_bands(arguments.measured)
        return 0
    head = ("rows of", "rows", "mean error", "median", "mean, signed", "wanted", "others")
    found = list(table(arguments.measured, with_rows=arguments.rows))
    lines = [head, ("---",) * len(head), *(cells for _, cells in found)]
    text = "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
    print(text, end="")
    if arguments.write:
        page = PAGE.read_text("utf-8")
        pattern = re.compile(rf"({re.escape(HEADING)}.*?\n\n)(\|[^\n]*\n)+", re.DOTALL)
        PAGE.write_text(pattern.sub(lambda match: match[1] + text, page), "utf-8")
    worse = False
    for kind, (now, cells) in zip(KINDS, found, strict=True):
        if not now.is_met:
            print(f"MISSED: {kind.title}: {cells[2]} mean, {cells[3]} median, wanted {cells[5]}")
        elif not kind.is_met:
            print(f"met now: {kind.title}")
        worse |= kind.is_met and not now.is_met
    return int(arguments.check and worse)


if __name__ == "__main__":
    sys.exit(main())
