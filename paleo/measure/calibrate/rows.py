"""A user's own timings: files of measurements, and what `paleo profile --format=csv` writes."""

from __future__ import annotations

import csv
import functools
import io
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from paleo.calibrate.devices import prediction
from paleo.calibrate.points import UPDATE
from paleo.calibrate.problem import Problem
from paleo.costs import find_cost_model
from paleo.errors import MeasurementError, Mistakes, PaleoError
from paleo.estimate import DeviceLike, keep_shape, needed_gradients
from paleo.graph import Graph, build
from paleo.hardware import Device, find_device
from paleo.load import load
from paleo.quantity import Array
from paleo.tensor import find_precision
from paleo.validate.cases import Cases, Unpredicted, cases_of, predict, price
from paleo.validate.fitting import Prediction
from paleo.validate.measured import read_measurements
from paleo.values import shown
from paleo.work import (
    Attention,
    BatchMatMul,
    Convolution,
    MatMul,
    Operation,
    Pass,
    Unpriced,
    Update,
)

__all__ = ["Row", "Rows", "read_rows"]


@dataclass(frozen=True)
class Row:
    """One measured row: its kind, what was measured, in which pass and element type."""

    kind: str
    what: str
    part: str
    dtype: str


@dataclass(frozen=True)
class Rows:
    """The rows of a file that can be predicted, as a problem, and those that cannot."""

    device: Device
    problem: Problem
    rows: tuple[Row, ...]
    unpredicted: tuple[Unpredicted, ...]
    notes: tuple[str, ...] = ()


def read_rows(path: str | os.PathLike[str], device: DeviceLike | None) -> Rows:
    """Return the rows of a file, as they are predicted on a device.

    Without a `device` it is the one that the file names. Raises PaleoError with every mistake,
    or where no row can be predicted.
    """
    file = os.fspath(path)
    mistakes = Mistakes()
    base = mistakes.check(find_device, device) if device is not None else None
    text = mistakes.check(_text, file)
    mistakes.raise_as(PaleoError)
    assert text is not None
    if _is_profile(text):
        if base is None:
            raise MeasurementError(
                f"{file}: rows of paleo profile do not say what they were measured on: name the "
                "device with --device_name"
            )
        return _of_profile(file, text, base)
    return _of_measurements(file, base)


def _text(file: str) -> str:
    try:
        return Path(file).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise MeasurementError(f"{file}: not text in UTF-8") from None
    except (OSError, ValueError) as error:
        raise MeasurementError(f"{file}: {getattr(error, 'strerror', None) or error}") from None


def _of_measurements(file: str, base: Device | None) -> Rows:
    """Return the rows of a file in the format of docs/validate.md."""
    import numpy as np

    read = read_measurements(file)
    if base is not None and len({row.device for row in read}) > 1:
        names = ", ".join(sorted({row.device for row in read}))
        raise MeasurementError(f"{file}: rows of several devices cannot be of one: {names}")
    cases = cases_of(read, base)
    unpredicted = list(cases.unpredicted)
    if len(cases.devices) > 1:
        names = ", ".join(cases.devices)
        raise MeasurementError(
            f"{file}: rows of several devices, {names}: calibrate each by itself"
        )
    model = find_cost_model("tiled")
    found, reasons = price(cases, model, {})
    for reason, places in reasons.items():
        ids = tuple(str(cases.ids[place]) for place in places)
        unpredicted.append(Unpredicted(reason, "", len(ids), ids))
    cases = cases.select(np.isfinite(found))
    if not len(cases):
        why = "; ".join(each.reason for each in unpredicted[:3])
        raise MeasurementError(f"{file}: no row can be predicted: {why}")
    device = next(iter(cases.devices.values()))
    shapes = cases.shapes()
    networks = [str(each) for each in cases.labels["network"]]
    keys = [
        f"{network} {shape}" if network.startswith("op:") else network
        for network, shape in zip(networks, shapes, strict=True)
    ]
    notes = []
    if len(set(keys)) < 2:
        keys = [f"{network} {shape}" for network, shape in zip(networks, shapes, strict=True)]
        notes.append(f"rows left out are of the same net as the others, {networks[0]}")
    rows = tuple(
        Row(str(kind), f"{network} {shape}", str(direction or quantity), str(dtype))
        for kind, network, shape, direction, quantity, dtype in zip(
            cases.labels["kind"], networks, shapes, cases.labels["direction"],
            cases.labels["quantity"], cases.labels["dtype"], strict=True,
        )
    )  # fmt: skip
    problem = Problem(
        cases.measured, [row.kind for row in rows], keys, lambda _: (device, _predicting(cases))
    )
    return Rows(device, problem, rows, tuple(unpredicted), tuple(notes))


def _predicting(cases: Cases) -> Callable[[Array], Prediction]:
    def chosen(places: Array) -> Prediction:
        own = cases.select(places)

        def predicted(values: Mapping[str, Array]) -> Array:
            found = predict(own, "tiled", values)
            result: Array = found.reshape(-1, len(own))
            return result

        return predicted

    return chosen


#: Columns of `paleo profile --format=csv` that say what was measured.
_PROFILE = ("net", "file", "batch_size", "dtype", "layer", "type", "pass")


def _is_profile(text: str) -> bool:
    header = next(csv.reader(io.StringIO(text, newline="")), [])
    return set(_PROFILE) <= set(header)


@dataclass(frozen=True)
class _Timed:
    row: Row
    operations: tuple[Operation, ...]
    seconds: float


def _of_profile(file: str, text: str, base: Device) -> Rows:
    """Return the rows of layers that an executor measured."""
    import numpy as np

    mistakes = Mistakes(file)
    found: list[_Timed] = []
    reasons: dict[str, list[str]] = {}
    reader = csv.DictReader(io.StringIO(text, newline=""))
    executors = [
        name.removesuffix("_s")
        for name in reader.fieldnames or ()
        if name.endswith("_s") and f"{name.removesuffix('_s')}_runs" in (reader.fieldnames or ())
    ]
    if not executors:
        raise MeasurementError(
            f"{file}: no executor measured these rows (paleo profile --executor)"
        )
    for entry in reader:
        where = f"line {reader.line_num}"
        for name in executors:
            cell = entry.get(f"{name}_s") or ""
            if not cell:
                continue
            try:
                seconds = float(cell)
            except ValueError:
                seconds = math.nan
            if not 0 < seconds < math.inf:
                mistakes.add(f"{where}, column {name}_s: expected a time, got {shown(cell)}")
                continue
            try:
                joined = entry.get(f"{name}_joined") == "true"
                found.append(_timed(entry, base, seconds, joined))
            except PaleoError as error:
                reasons.setdefault(str(error.mistakes[0].message), []).append(where)
            except ValueError as error:
                reasons.setdefault(str(error), []).append(where)
    mistakes.raise_as(MeasurementError)
    unpredicted = tuple(
        Unpredicted(reason, Path(file).stem, len(ids), tuple(ids))
        for reason, ids in reasons.items()
    )
    if not found:
        why = "; ".join([*reasons][:3]) or "no layer was measured"
        raise MeasurementError(f"{file}: no row can be predicted: {why}")
    predicting = prediction([(each.operations, each.row.dtype, True) for each in found], base)
    problem = Problem(
        np.array([each.seconds for each in found]),
        [each.row.kind for each in found],
        [repr(each.operations) for each in found],
        lambda _: (base, predicting),
    )
    return Rows(base, problem, tuple(each.row for each in found), unpredicted)


def _timed(entry: Mapping[str, str], device: Device, seconds: float, joined: bool) -> _Timed:
    """Return what a row of a profile is of; raises PaleoError or ValueError where it is of none.

    The gradient of the inputs may be `joined` to that of the parameters.
    """
    graph, needed = _graph(entry["file"] or entry["net"], entry["batch_size"], entry["dtype"])
    device.peak(graph.precision.computing)  # says which types it has
    node = next((node for node in graph.nodes if node.name == entry["layer"]), None)
    if node is None or node.type_name != entry["type"]:
        raise ValueError(f"{entry['net']} has no {entry['type']} {entry['layer']}")
    part = entry["pass"]
    operations: tuple[Operation, ...]
    if part == UPDATE:
        operations = (Update(node.num_params, graph.precision.parameter_size),)
    else:
        operations = graph.operations(node, Pass(part), needed[node.index])
        if joined:
            operations += graph.operations(node, Pass.INPUT_GRADIENT, needed[node.index])
    operations = tuple(each for each in operations if not isinstance(each, Unpriced))
    if not operations:
        raise ValueError(f"nothing is predicted for a {part.replace('_', ' ')} there")
    what = f"{entry['net']}, batch {entry['batch_size']}: {entry['layer']}"
    return _Timed(Row(_kind(operations), what, part, entry["dtype"]), operations, seconds)


@functools.lru_cache(maxsize=32)
def _graph(net: str, batch: str, dtype: str) -> tuple[Graph, Sequence[tuple[bool, ...]]]:
    find_precision(dtype)
    graph = build(load(net), int(batch), dtype, keep_shape)
    return graph, needed_gradients(graph, find_cost_model("tiled"))


_KINDS = (
    (Convolution, "convolution"),
    (Attention, "attention"),
    ((MatMul, BatchMatMul), "product"),
    (Update, "update"),
)


def _kind(operations: Sequence[Operation]) -> str:
    def kinds() -> Iterator[str]:
        for types, kind in _KINDS:
            if any(isinstance(each, types) for each in operations):
                yield kind

    return next(kinds(), "stream")
