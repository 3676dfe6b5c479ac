"""Predicted steps of language models on many devices beside those that others published.

    python benchmarks/meshes.py            print the errors by source
    python benchmarks/meshes.py --rows     and every row
    python benchmarks/meshes.py --write    write them into docs/parallelism.md
    python benchmarks/meshes.py --check    exit with 1 if a bound is missed that is known to be met

Nothing is fitted to these rows, nor to others of these sources.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from paleo.measure.validate.measured import read_measurements
from paleo.measure.validate.meshes import SOURCES, MeshCase, mesh_cases

ROOT = Path(__file__).parents[1]
PAGE, HEADING = ROOT / "docs" / "parallelism.md", "## How far off it is\n"


class Kind(NamedTuple):
    """Rows of a kind: their source, how many nodes, and percent of the mean error wanted."""

    source: str
    title: str
    is_of: Any
    wanted: float
    #: What others reach on the same rows, as their authors say.
    beside: str
    is_met: bool = True


KINDS = (
    Kind(
        "vtrain", "vTrain, one node", lambda case: case.mesh.size <= 8, 12,
        "vTrain 8.4 % (profiled on the device), Calculon 38.9 %",
    ),
    Kind(
        "vtrain", "vTrain, 8 nodes", lambda case: case.mesh.size > 8, 11,
        "vTrain 14.7 %, Calculon 15.3 %", is_met=False,
    ),
    Kind(
        "megatron_seqsel", "Korthikanti et al., 8 to 512 devices", lambda case: True, 3.5,
        "Calculon 3.7 %",
    ),
    Kind(
        "megatron_a100", "Narayanan et al., 32 to 3,072 devices", lambda case: True, 5, "",
        is_met=False,
    ),
)  # fmt: skip


def errors(cases: list[MeshCase]) -> np.ndarray:
    """Return the errors of predictions, in percent of what was measured."""
    return np.array([100 * (case.predicted() / case.seconds - 1) for case in cases])


def table(measured: Path, *, with_rows: bool) -> Iterator[tuple[Kind, list[str]]]:
    """Yield for each kind of rows the cells of its line in the table; print rows if asked."""
    cases = {}
    for source in SOURCES:
        found, left_out = mesh_cases(read_measurements(measured / f"{source}.csv"))
        assert not left_out, left_out
        cases[source] = found
    for kind in KINDS:
        own = [case for case in cases[kind.source] if kind.is_of(case)]
        wrong = errors(own)
        if with_rows:
            for case, error in zip(own, wrong, strict=True):
                mesh = f"tp {case.mesh.tp} pp {case.mesh.pp} dp {case.mesh.dp}"
                print(f"{case.row.row_id}  {case.row.network}  {mesh}  {error:+.1f} %")
        mean = float(np.mean(np.abs(wrong)))
        cells = [
            kind.title, str(len(own)), f"{mean:.1f} %", f"{np.median(np.abs(wrong)):.1f} %",
            f"{np.mean(wrong):+.1f} %", f"{kind.wanted:g} %", kind.beside,
        ]  # fmt: skip
        yield kind._replace(is_met=mean <= kind.wanted), cells


def main() -> int:
    """Print the table; return 1 with --check if a bound is missed that is known to be met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measured", type=Path, default=ROOT.parent / "shared" / "measured")
    for name in ("rows", "write", "check"):
        parser.add_argument(f"--{name}", action="store_true")
    arguments = parser.parse_args()
    if not arguments.measured.is_dir():
        print(f"left out: there are no measurements in {arguments.measured}")
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
    worse = [
        kind.title
        for kind, (now, _) in zip(KINDS, found, strict=True)
        if kind.is_met and not now.is_met
    ]
    for title in worse:
        print(f"missed: {title}")
    return int(arguments.check and bool(worse))


if __name__ == "__main__":
    sys.exit(main())
