"""The functions of elements, from `functions.csv`: what each is called where, and what it costs.

A row is a function of one element, or of one of each of several tensors. `aliases` are spellings
that net files may have too; `onnx`, `aten` and `caffe` the operators that become it, with blanks
between them; `torch` and `tensorflow` what runs it there, looked up when it runs. Without one the
executor puts it together. (Where a setting decides, as the slope of Caffe's ReLU, the importer
says so.) "other" stands for all that have no row.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import Path

from paleo.core.frozen import NamedTuple


class Gradient(Enum):
    """What the gradient of a function is computed from, besides that of its output."""

    INPUT = "input"
    OUTPUT = "output"
    #: It is that of the output, but for a factor.
    NOTHING = "nothing"
    #: There is none.
    NONE = "none"


class ElementFunction(NamedTuple):
    """A row of the table.

    `made` counts the tensors that the formula of the gradient makes besides its result.
    `forward` and `backward` are the steps of a processor's core for an element of the result,
    where its kernel is bound by them (measured with PyTorch, see `paleo.costs.tiled.cpu`).
    """

    name: str
    aliases: tuple[str, ...]
    onnx: tuple[str, ...]
    aten: tuple[str, ...]
    caffe: tuple[str, ...]
    torch: str
    tensorflow: str
    gradient: Gradient
    made: int
    forward: float
    backward: float


def _row(cells: dict[str, str]) -> ElementFunction:
    words = {name: tuple(cells[name].split()) for name in ("aliases", "onnx", "aten", "caffe")}
    return ElementFunction(
        name=cells["name"],
        **words,
        torch=cells["torch"],
        tensorflow=cells["tensorflow"],
        gradient=Gradient(cells["gradient"]),
        made=int(cells["made"]),
        forward=float(cells["forward"]),
        backward=float(cells["backward"]),
    )


def _read() -> dict[str, dict[str, ElementFunction]]:
    rows = Path(__file__).with_suffix(".csv").read_text("utf-8").splitlines()
    header, *lines = ([cell.strip() for cell in row.split(",")] for row in rows)  # none has quotes
    tables: dict[str, dict[str, ElementFunction]] = {"one": {}, "several": {}}
    for line in lines:
        cells = dict(zip(header, line, strict=True))
        tables[cells["elements"]][cells["name"]] = _row(cells)
    return tables


_TABLES = _read()
#: Functions of one element, and of several elements, one of each parent.
FUNCTIONS: Mapping[str, ElementFunction] = _TABLES["one"]
ELEMENTWISE: Mapping[str, ElementFunction] = _TABLES["several"]


def spellings(table: Mapping[str, ElementFunction], column: str) -> dict[str, str]:
    """Return which function each word of a column (`"onnx"`, `"aliases"`, ...) means."""
    return {word: row.name for row in table.values() for word in getattr(row, column)}
