"""Parts of sweeps as files: Parquet, separated values, or a JSON object a line.

Each has a row for a point: what it has on each axis, its columns in SI units, and in `error` why it
cannot be. Points that a condition leaves out have none.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from paleo.core.frozen import NamedTuple
from paleo.core.optional import extra
from paleo.core.quantity import Array, np
from paleo.core.texts import json_text, to_cell
from paleo.studies.sweeps.evaluate import Part
from paleo.studies.sweeps.grid import Grid

#: The key under which a Parquet file says of which grid it is.
METADATA = b"paleo.sweep"
#: The column of what is wrong with a point.
ERROR = "error"


class Format(NamedTuple):
    """A format of files: how parts become bytes, and how bytes of parts become one file.

    `needs` imports what it takes; raises PaleoError if that is missing.
    """

    encode: Callable[[Grid, Part], bytes]
    join: Callable[[Iterable[str], Any], None]
    needs: Callable[[], object] = tuple


def to_csv(grid: Grid, part: Part) -> bytes:
    """Return a part as separated values, with a header; no text is a formula to a spreadsheet."""
    columns = _columns(grid, part)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(to_cell, columns))
    writer.writerows(zip(*(map(_cell, own) for own in columns.values()), strict=True))
    return text.getvalue().encode("utf-8", "backslashreplace")


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return to_cell(value)
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else value


def to_json_lines(grid: Grid, part: Part) -> bytes:
    """Return a part as a JSON object a line."""
    columns = _columns(grid, part)
    rows = zip(*columns.values(), strict=True)
    lines = (json_text(dict(zip(columns, row, strict=True))) for row in rows)
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace")


def to_parquet(grid: Grid, part: Part) -> bytes:
    """Return a part as a Parquet file, whose metadata say of which grid; raises PaleoError."""
    arrow = _arrow()
    kept = slice(None) if part.counted.all() else part.counted  # a slice copies nothing
    arrays: dict[str, Any] = {}
    for name, places in grid.places(part.points[kept]).items():
        labels = grid.by_name[name].labels
        if isinstance(labels, list):
            values = arrow.array(_alike(labels))
            indices = arrow.array(places.astype(np.int32))
            arrays[name] = arrow.DictionaryArray.from_arrays(indices, values)
        else:
            arrays[name] = arrow.array(labels[places])
    for name, own in part.columns.items():
        known = own[kept]
        missing = np.isnan(known)
        mask = missing if missing.any() else None  # an array without one is not copied
        filled = known if mask is None else np.where(mask, 0, known)
        arrays[name] = arrow.array(filled.astype(_kind(name), copy=False), mask=mask)
    reasons = arrow.array(["", *part.reasons[1:]])
    codes = part.why[kept]
    arrays[ERROR] = arrow.DictionaryArray.from_arrays(arrow.array(codes, mask=codes <= 0), reasons)
    said = {METADATA: json.dumps({**grid.described, "identity": grid.identity}).encode()}
    table = arrow.table(arrays).replace_schema_metadata(said)
    sink = arrow.BufferOutputStream()
    parquet = extra("pyarrow.parquet", "writing Parquet", "pyarrow", "sweep")
    parquet.write_table(table, sink, **_encoded(table.schema))
    found: bytes = sink.getvalue().to_pybytes()
    return found


def _encoded(schema: Any) -> dict[str, Any]:
    """Return how columns are written: measures hardly repeat, but their leading bytes do."""
    measures = [field.name for field in schema if field.type == _arrow().float64()]
    others = [field.name for field in schema if field.name not in measures]
    return {
        "compression": "zstd",
        "use_dictionary": others,
        "use_byte_stream_split": measures,
    }


def _arrow() -> Any:
    return extra("pyarrow", "writing Parquet", "pyarrow", "sweep")


def _kind(name: str) -> Any:
    """Return the type of a column: bytes are whole, and `fits` is true or false."""
    if name == "fits":
        return np.bool_
    return np.int64 if name.endswith("_bytes") else np.float64


def _alike(labels: list[Any]) -> list[Any]:
    """Return labels of one type: as texts if they are of several."""
    types = {type(each) for each in labels if each is not None}
    if len(types) <= 1 or types == {int, float}:
        return [float(each) if types == {int, float} else each for each in labels]
    return [None if each is None else str(each) for each in labels]


def _columns(grid: Grid, part: Part) -> dict[str, list[Any]]:
    """Return the columns of the rows of a part as lists of Python's numbers and texts."""
    kept = part.counted
    found: dict[str, list[Any]] = {}
    for name, places in grid.places(part.points[kept]).items():
        labels = grid.by_name[name].labels
        is_list = isinstance(labels, list)
        found[name] = [labels[i] for i in places.tolist()] if is_list else labels[places].tolist()
    for name, own in part.columns.items():
        found[name] = _numbers(own[kept], _kind(name))
    reasons = [None, *part.reasons[1:]]
    found[ERROR] = [reasons[code] for code in part.why[kept].tolist()]
    return found


def _numbers(values: Array, kind: Any) -> list[Any]:
    """Return numbers of a column as Python has them, None where they are not known."""
    if kind is np.bool_:
        return [None if math.isnan(each) else bool(each) for each in values.tolist()]
    if kind is np.int64:
        return [None if math.isnan(each) else int(each) for each in values.tolist()]
    return [each if math.isfinite(each) else None for each in values.tolist()]


def _join_lines(paths: Iterable[str], file: Any, *, has_header: bool) -> None:
    for place, path in enumerate(paths):
        with open(path, "rb") as part:
            if has_header and place:
                part.readline()
            while piece := part.read(1 << 20):
                file.write(piece)


def _join_csv(paths: Iterable[str], file: Any) -> None:
    _join_lines(paths, file, has_header=True)


def _join_json_lines(paths: Iterable[str], file: Any) -> None:
    _join_lines(paths, file, has_header=False)


def _join_parquet(paths: Iterable[str], file: Any) -> None:
    parquet = extra("pyarrow.parquet", "writing Parquet", "pyarrow", "sweep")
    writer = None
    try:
        for path in paths:
            table = parquet.read_table(path)
            if writer is None:
                writer = parquet.ParquetWriter(file, table.schema, **_encoded(table.schema))
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()


#: The formats by the endings of files.
FORMATS: Mapping[str, Format] = {
    ".parquet": Format(to_parquet, _join_parquet, _arrow),
    ".csv": Format(to_csv, _join_csv),
    ".jsonl": Format(to_json_lines, _join_json_lines),
}
