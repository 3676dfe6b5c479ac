"""Rows of operator tables that are no operator of `shapes`: arrays, and the operations of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Self, TypeAlias

from paleo.cluster import Device
from paleo.core.errors import HardwareError, MeasurementError
from paleo.core.frozen import NamedTuple, dataclass
from paleo.core.operations import Operation
from paleo.core.quantity import Array, Quantity, maximum, np, total
from paleo.measure.validate.cases import KEYS, Cases
from paleo.measure.validate.groups import CaseGroup
from paleo.measure.validate.nets import Remembering
from paleo.measure.validate.spellings import UnmappedError, device_of
from paleo.measure.validate.table_files import Rows, Table, TableFile, check, none_of, of_each
from paleo.measure.validate.table_kernels import KERNEL
from paleo.step.passes import checked_target

#: Words of element types in tables that have another name.
_NAMES = {"bfloat16": "bf16", "float16": "fp16"}
#: Letters by name, arrays with an entry a row: of numbers, or of several.
Letters: TypeAlias = Mapping[str, Array]
#: Returns the operations of rows.
Make: TypeAlias = Callable[[Letters], tuple[Operation, ...]]


@dataclass(frozen=True, eq=False)
class TableGroup(CaseGroup):
    """Rows of one table that the same formulas price: `letters` are arrays of one entry a row.

    With `less` they are how much longer the operations of `make` take than those. Operations of a
    graph that is replayed take `between` seconds more. All together take as long as the `host`
    takes to hand them over, one by one or a graph. `kernel` is that of layers of experts, or of
    attention.
    """

    make: Make
    letters: Letters
    less: Make | None = None
    host: float = 0.0
    between: float = 0.0
    kernel: str = ""

    def seconds(self, pricing: Remembering, constants: Mapping[str, Quantity]) -> Quantity:
        model = pricing.model
        target = replace(checked_target(self.device, model, self.dtype), constants=constants)
        operations = self.make(self.letters)
        if not all(model.counts(each) for each in operations):
            raise UnmappedError(f"{model.name} leaves out {operations[0].name}")
        times = total(model.price(each, target.of(each)).total for each in operations)
        if self.less:
            without = self.less(self.letters)
            times = times - total(model.price(each, target.of(each)).total for each in without)
        return np.zeros(len(self.index)) + maximum(times + self.between, self.host)

    def at(self, keep: Array, index: Array) -> Self:
        letters = {name: values[keep] for name, values in self.letters.items()}
        return replace(self, index=index, letters=letters)

    def describe(self, place: int) -> str:
        return " ".join(
            f"{name}={values[place]:g}" for name, values in self.letters.items() if values.ndim == 1
        )


class Part(NamedTuple):
    """Rows of a table at some places that are priced together, as in `TableGroup`."""

    places: Array
    dtype: str
    make: Make
    letters: Letters
    less: Make | None = None
    host: float = 0.0
    between: float = 0.0
    kernel: str = ""


class Reading(NamedTuple):
    """How a table is read: its columns, and what its rows are.

    `parts(table, columns, rows, device)` returns those that are predicted; it leaves others out of
    `rows`. `precision` is the column of the element type; "" where all rows are of bfloat16.
    """

    kind: str
    texts: tuple[str, ...]
    numbers: tuple[str, ...]
    precision: str
    parts: Callable[[Table, Mapping[str, Array], Rows, Device], Sequence[Part]]


def table_cases(
    table: Table, file: TableFile, reading: Reading, dtypes: Sequence[str] = ()
) -> Cases:
    """Return the cases of a table; of some element types only, if there are `dtypes`."""
    needed = [*reading.texts, *reading.numbers, "latency"]
    if missing := [name for name in needed if name not in file.names]:
        raise MeasurementError(f"{table.path}: no column {', '.join(missing)}")
    said = ("device", "framework", "version")
    columns = file.columns((*needed, KERNEL, *said))
    if not table.system:  # a file elsewhere says itself what it is of
        own = (str(columns[name][0]) if len(columns.get(name, ())) else "" for name in said)
        system, framework, version = own
        table = replace(table, system=system, framework=framework.lower(), version=version)
    columns.setdefault(KERNEL, np.full(len(columns["latency"]), "", object))
    columns.setdefault("", np.full(len(columns["latency"]), "bfloat16", object))
    rows = Rows(len(columns["latency"]), table.system)
    is_measured = columns["latency"] > 0
    rows.leave_out(f"{table.operator}: a difference that is not above 0", ~is_measured)
    columns["latency"] = np.where(is_measured, columns["latency"], 1.0)
    check(table, reading.texts, reading.numbers, columns, file.rows)
    if dtypes:
        given = [_NAMES.get(word, word) for word in columns[reading.precision].tolist()]
        rows.left &= np.isin(given, list(dtypes))
    try:
        device = device_of(table.system)
    except UnmappedError as error:
        rows.leave_out(str(error), rows.left)
        return none_of(rows.reasons)
    found = []
    for part in reading.parts(table, columns, rows, device):
        try:
            device.peak(part.dtype)  # says which types it has
        except HardwareError as error:
            mask = np.zeros(len(rows.left), bool)
            mask[part.places] = True
            rows.leave_out(str(error.mistakes[0]), mask)
            continue
        found.append(part)
    kept = rows.left.nonzero()[0]
    if not len(kept):
        return none_of(rows.reasons)
    where = np.cumsum(rows.left) - 1
    computed = np.full(len(rows.left), "", object)
    for part in found:
        computed[part.places] = part.dtype
    groups = tuple(
        TableGroup(where[part.places], device, part.dtype, (), *part[2:]) for part in found
    )
    words = columns[reading.precision][kept]
    texts = {
        "source": table.system,
        "stratum": of_each(words, lambda word: f"{reading.kind} {word}"),
        "kind": reading.kind,
        "operator": table.operator,
        "network": f"op:{table.operator}",
        "device": device.name,
        "precision": words,
        "dtype": computed[kept],
        "framework": table.framework,
        "library_version": table.version,
        "kernel": columns[KERNEL][kept],
        "quantity": "op_ms",
        "direction": "forward",
        "n_devices": "1",
        "file": os.fspath(table.path),
    }
    labels = {key: np.full(len(kept), texts.get(key, ""), object) for key in KEYS}
    begin = f"{table.where}/{table.operator}"
    ids = np.array([f"{begin}:{row}" for row in file.rows[kept].tolist()], object)
    return Cases(columns["latency"][kept] * 1e-3, ids, labels, groups, tuple(rows.reasons))
