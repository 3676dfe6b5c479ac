"""Measurements in CSV files: reading them, with every mistake said.

The columns are those of docs/validate.md. A file needs quantity, value, network and device;
the others may be missing or empty, and columns of other names are passed over.
"""

from __future__ import annotations

import csv
import functools
import io
import json
import math
import os
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from paleo.core.checks import MAX_COUNT, MAX_SIZE, is_number, shown
from paleo.core.errors import MeasurementError, Mistakes, near
from paleo.core.files import read_text
from paleo.core.frozen import dataclass
from paleo.measure.validate.quantities import Measured, find_quantity, unit_problem
from paleo.measure.validate.shapes import (
    COLLECTIVE_OPERATORS,
    OPERATORS,
    read_message,
    read_shape,
)
from paleo.measure.validate.spellings import memory_format_of
from paleo.step.optimizers import OPTIMIZERS

#: Columns that a file must have.
REQUIRED = ("quantity", "value", "network", "device")
#: Columns of texts that a Measurement has as they are.
_TEXTS = (
    "interconnect", "precision", "framework", "library_version", "parallelism", "direction",
    "verified", "stratum", "memory_format", "optimizer", "notes", "source",
)  # fmt: skip
#: Columns of numbers, and whether they have to be whole.
_NUMBERS = {
    "batch_per_device": False,
    "global_batch": False,
    "micro_batch": False,
    "seq_len": False,
    "n_devices": True,
    "devices_per_node": True,
}
#: Every column that is looked at.
COLUMNS = (
    *REQUIRED, "op_shape", *_NUMBERS, *_TEXTS, "row_id", "source_id", "unit",
)  # fmt: skip

#: The sizes of a transformer.
SIZES = ("layers", "hidden", "heads", "ffn", "vocab")
#: So many mistakes of a file are shown.
_SHOWN = 20
#: Nobody has measured less, in any unit, or more.
_LEAST, _MOST = 1e-12, 1e15


@dataclass(frozen=True, slots=True)
class Measurement:
    """One row of a file. Numbers are None, and texts "", where the file does not say.

    `shape` has the letters of an operator that can be predicted, defaults filled in. Of a net,
    `image` is the height and width of its images, and `parameters` how many it has, in millions.
    """

    file: str
    line: int
    row_id: str
    source_id: str
    quantity: Measured
    value: float
    network: str
    shape: Mapping[str, int]
    device: str
    batch_per_device: float | None = None
    global_batch: float | None = None
    micro_batch: float | None = None
    seq_len: float | None = None
    n_devices: int = 1
    devices_per_node: int | None = None
    interconnect: str = ""
    precision: str = ""
    framework: str = ""
    library_version: str = ""
    parallelism: str = ""
    direction: str = ""
    verified: str = ""
    stratum: str = ""
    memory_format: str = ""
    optimizer: str = ""
    notes: str = ""
    source: str = ""
    image: int | None = None
    parameters: float | None = None
    #: Those of SIZES that it says.
    sizes: Mapping[str, int] = field(default_factory=dict)

    @property
    def operator(self) -> str:
        """The name of the operator, "" for a net."""
        return operator_of(self.network)


def operator_of(network: str) -> str:
    """Return the operator that stands in the place of a net, "" if there is none."""
    return network.removeprefix("op:") if network.startswith("op:") else ""


def read_measurements(path: str | os.PathLike[str]) -> tuple[Measurement, ...]:
    """Return the rows of a CSV file.

    Raises MeasurementError with every mistake in it (the first 20 and how many there are besides),
    each with its line and column.
    """
    file = os.fspath(path)
    mistakes = Mistakes(file)
    reader = csv.reader(io.StringIO(read_text(file, MeasurementError), newline=""), strict=True)
    rows: list[Measurement] = []
    try:
        header = [name.strip() for name in next(reader, [])]
        _check_header(header, mistakes)
        mistakes.raise_as(MeasurementError, _SHOWN)
        for cells in reader:
            line = reader.line_num
            if not any(map(str.strip, cells)):
                continue
            if len(cells) != len(header):
                mistakes.add(f"line {line}: {len(cells)} cells, the header has {len(header)}")
                continue
            entry = {name: cell.strip() for name, cell in zip(header, cells, strict=True)}
            if row := _row(entry, file, line, mistakes):
                rows.append(row)
    except csv.Error as error:
        mistakes.add(f"line {reader.line_num}: not a CSV file: {error}")
    mistakes.raise_as(MeasurementError, _SHOWN)
    if not rows:
        raise MeasurementError(f"{file}: there are no rows")
    return tuple(rows)


def _check_header(header: list[str], mistakes: Mistakes) -> None:
    if not any(header):
        mistakes.add(f"no header; a file needs the columns {', '.join(REQUIRED)}")
        return
    for name in sorted({name for name in header if name and header.count(name) > 1}):
        mistakes.add(f"line 1: the column {name} is there twice")
    for name in REQUIRED:
        if name not in header:
            # What is spelled otherwise is likelier than what is missing.
            found = near(name, [other for other in header if other not in COLUMNS])
            mistakes.add(f"line 1: no column {name}{found}")


def _object(text: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the JSON object that a text is, and what is wrong with it; an empty text is none."""
    try:
        found: Any = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        return {}, (f"expected a JSON object, got {shown(text)}",)
    return found, ()


@functools.lru_cache(maxsize=4096)
def _shape(operator: str, text: str) -> tuple[dict[str, int], tuple[str, ...]]:
    """Return the letters of an operator, and what is wrong with them: files repeat shapes."""
    found, wrong = _object(text)
    if wrong:
        return {}, wrong
    complaints: list[str] = []
    letters = {}
    if operator in OPERATORS:
        letters = read_shape(operator, found, complaints)
    elif operator in COLLECTIVE_OPERATORS:
        letters = read_message(found, complaints)
    return letters, tuple(complaints)


@functools.lru_cache(maxsize=4096)
def _net_shape(text: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return what Measurement has of the shape of a net, and what is wrong with it."""
    found, wrong = _object(text)
    if wrong:
        return {}, wrong
    complaints = []
    image, parameters = found.get("image"), found.get("params_m")
    # (Whether a float is in a range, Python finds out number by number.)
    if image is not None and not (is_number(image) and 0 < image < MAX_SIZE and not image % 1):
        complaints.append(f"image: expected a whole number above 0, got {shown(image)}")
    if parameters is not None and not (is_number(parameters) and 0 < parameters < MAX_SIZE):
        complaints.append(f"params_m: expected a number above 0, got {shown(parameters)}")
    sizes = {name: found[name] for name in SIZES if found.get(name) is not None}
    complaints += [
        f"{name}: expected a whole number above 0, got {shown(size)}"
        for name, size in sizes.items()
        if not (is_number(size) and 0 < size < MAX_SIZE and not size % 1)
    ]
    if complaints:
        return {}, tuple(complaints)
    return {"image": image and int(image), "parameters": parameters, "sizes": sizes}, ()


def _row(entry: dict[str, str], file: str, line: int, mistakes: Mistakes) -> Measurement | None:
    """Return a row; None, with its mistakes noted, if it has any."""
    before = len(mistakes.found)

    def add(message: str, column: str) -> None:
        mistakes.add(f"line {line}, column {column}: {message}")

    quantity = find_quantity(entry["quantity"])
    if quantity is None:
        add("missing: what was measured, such as step_ms", "quantity")
    elif problem := unit_problem(quantity, entry.get("unit", "")):
        add(problem, "unit")
    value = _number(entry["value"], "value", add, _LEAST, _MOST)
    numbers: dict[str, Any] = {}
    for column, is_whole in _NUMBERS.items():
        if entry.get(column):
            number = _number(entry[column], column, add, 0, MAX_COUNT, is_whole=is_whole)
            numbers[column] = int(number) if is_whole else number
    for column in ("network", "device"):
        if not entry[column]:
            add("missing", column)
    network = entry["network"]
    stated = entry.get("memory_format", "")
    if stated and not memory_format_of(stated):
        add(f"expected contiguous or channels_last, got {shown(stated)}", "memory_format")
    optimizer = entry.get("optimizer", "")
    if optimizer and optimizer not in OPTIMIZERS:
        add(f"expected one of {', '.join(OPTIMIZERS)}, got {shown(optimizer)}", "optimizer")
    operator, shape = operator_of(network), entry.get("op_shape", "")
    letters, complaints = _shape(operator, shape) if operator else ({}, ())
    of_net, wrong = ({}, ()) if operator else _net_shape(shape)
    for complaint in (*complaints, *wrong):
        add(complaint, "op_shape")
    if len(mistakes.found) > before:
        return None
    assert isinstance(quantity, Measured)
    texts: dict[str, Any] = {name: entry.get(name, "") for name in _TEXTS} | of_net
    stem = Path(file).stem
    return Measurement(
        file, line, entry.get("row_id") or f"{stem}:{line}",
        entry.get("source_id") or stem,
        quantity, value, network, letters, entry["device"], **numbers, **texts,
    )  # fmt: skip


def _number(
    text: str, column: str, add: Any, least: float, most: float, *, is_whole: bool = False
) -> float:
    """Return a positive number of a cell; 1, with the mistake noted, if it is none."""
    try:
        number = float(text.replace("_", "x"))
    except ValueError:
        add(f"expected a number, got {shown(text)}" if text else "missing", column)
        return 1.0
    if not number > 0 or math.isinf(number):  # true for NaN
        add(f"expected a number above 0, got {text}", column)
    elif not least <= number <= most:
        add(f"{text} is too {'small' if number < least else 'large'} to mean anything", column)
    elif is_whole and number != int(number):
        add(f"expected a whole number, got {text}", column)
    else:
        return number
    return 1.0
