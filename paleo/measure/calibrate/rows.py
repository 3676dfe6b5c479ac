"""A user's own timings: files of measurements, and what `paleo profile --format=csv` writes."""

from __future__ import annotations

import csv
import functools
import io
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from paleo.cluster import Device, Network, find_device
from paleo.core.checks import shown
from paleo.core.errors import MeasurementError, Mistakes, PaleoError
from paleo.core.files import read_text
from paleo.core.frozen import NamedTuple, dataclass
from paleo.core.operations import (
    Attention,
    BatchMatMul,
    Convolution,
    GroupedMatMul,
    MatMul,
    Operation,
    Pass,
    Unpriced,
    Update,
)
from paleo.core.quantity import Array, np
from paleo.core.tensor import find_precision
from paleo.core.texts import of_cell
from paleo.costs import find_cost_model
from paleo.measure.calibrate.devices import prediction
from paleo.measure.calibrate.points import operations_of
from paleo.measure.calibrate.problem import Problem
from paleo.measure.executors.executor import UPDATE
from paleo.measure.validate.cases import (
    Cases,
    Unpredicted,
    cases_of,
    predict,
    price,
    unpredicted_rows,
)
from paleo.measure.validate.least_squares import Prediction
from paleo.measure.validate.link_constants import LINK_CONSTANTS
from paleo.measure.validate.measured import read_measurements
from paleo.measure.validate.meshes import MeshGroup
from paleo.net.graph import Graph, build
from paleo.net.load import load
from paleo.step.passes import keep_shape, needed_gradients
from paleo.step.settings import DeviceLike

#: Steps of a fit to rows of steps on meshes: each predicts all of them a dozen times, and few are
#: worth another after so many. Few rows do not tell all constants: they hold within a factor of e,
#: as `least_squares.solve` says.
STEPS, SPREAD = 8, 1.0


@dataclass(frozen=True)
class Row:
    """One measured row: its kind, what was measured, in which pass and element type."""

    kind: str
    what: str
    part: str
    dtype: str


@dataclass(frozen=True)
class Rows:
    """The rows of a file that can be predicted, as a problem, and those that cannot.

    `links` are those inside the nodes of rows of steps on a mesh, if they are of one kind.
    """

    device: Device
    problem: Problem
    rows: tuple[Row, ...]
    unpredicted: tuple[Unpredicted, ...]
    notes: tuple[str, ...] = ()
    links: Network | None = None


def read_rows(path: str | os.PathLike[str], device: DeviceLike | None) -> Rows:
    """Return the rows of a file, as they are predicted on a device.

    Without a `device` it is the one that the file names. Raises PaleoError with every mistake,
    or where no row can be predicted.
    """
    file = os.fspath(path)
    mistakes = Mistakes()
    base = mistakes.check(find_device, device) if device is not None else None
    text = mistakes.check(read_text, file, MeasurementError)
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


def _of_measurements(file: str, base: Device | None) -> Rows:
    """Return the rows of a file in the format of docs/validate.md."""
    read = read_measurements(file)
    if base is not None and len({row.device for row in read}) > 1:
        names = ", ".join(sorted({row.device for row in read}))
        raise MeasurementError(f"{file}: rows of several devices cannot be of one: {names}")
    cases = cases_of(read, base)
    if len(cases.devices) > 1:
        names = ", ".join(cases.devices)
        raise MeasurementError(
            f"{file}: rows of several devices, {names}: calibrate each by itself"
        )
    model = find_cost_model("tiled")
    seconds, reasons = price(cases, model, {})
    unpredicted = [*cases.unpredicted, *unpredicted_rows(reasons)]
    cases = cases.select(np.isfinite(seconds))
    if not len(cases):
        why = "; ".join(each.reason for each in unpredicted[:3])
        raise MeasurementError(f"{file}: no row can be predicted: {why}")
    device = next(iter(cases.devices.values()))
    whats, labels = cases.names(), {key: cases.labels[key].tolist() for key in cases.labels}
    networks = labels["network"]
    keys = [
        what if network.startswith("op:") else network
        for what, network in zip(whats, networks, strict=True)
    ]
    notes = []
    if len(set(keys)) < 2:
        keys = whats
        notes.append(f"rows left out are of the same net as the others, {networks[0]}")
    parts = [
        direction or quantity
        for direction, quantity in zip(labels["direction"], labels["quantity"], strict=True)
    ]
    rows = tuple(map(Row, labels["kind"], whats, parts, labels["dtype"]))
    meshes = [part for part in cases.parts if isinstance(part, MeshGroup)]
    links = list({network.name: network for part in meshes if (network := part.links)}.values())
    told = ["host", *(LINK_CONSTANTS if len(links) == 1 else ())]
    known = {name: value for name in told if (value := cases.known(name)) is not None}
    kept = cases.keeping()
    problem = Problem(
        cases.measured,
        [row.kind for row in rows],
        keys,
        lambda _: (device, _predicting(kept)),
        known if meshes else {},
        *((STEPS, SPREAD) if meshes else ()),
    )
    found = links[0] if len(links) == 1 else None
    if len(links) > 1:
        several = ", ".join(network.name for network in links)
        notes.append(f"rows have several kinds of links inside nodes, {several}: none is fitted")
    return Rows(device, problem, rows, tuple(unpredicted), tuple(notes), found)


def _predicting(cases: Cases) -> Callable[[Array], Prediction]:
    def chosen(places: Array) -> Prediction:
        own = cases.select(places)
        return lambda values: predict(own, "tiled", values).reshape(-1, len(own))

    return chosen


#: Columns of `paleo profile --format=csv` that say what was measured.
_PROFILE = ("net", "file", "batch_size", "dtype", "layer", "type", "pass")


def _is_profile(text: str) -> bool:
    header = next(csv.reader(io.StringIO(text, newline="")), [])
    return set(_PROFILE) <= set(header)


class _Timed(NamedTuple):
    row: Row
    operations: tuple[Operation, ...]
    seconds: float


def _of_profile(file: str, text: str, base: Device) -> Rows:
    """Return the rows of layers that an executor measured."""
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
    unpredicted = unpredicted_rows(reasons, Path(file).stem)
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
    graph, needed = _graph(
        of_cell(entry["file"] or entry["net"]), entry["batch_size"], entry["dtype"]
    )
    device.peak(graph.precision.computing)  # says which types it has
    node = next((node for node in graph.nodes if node.name == of_cell(entry["layer"])), None)
    if node is None or node.type_name != entry["type"]:
        raise ValueError(f"{entry['net']} has no {entry['type']} {entry['layer']}")
    part = entry["pass"]
    operations = operations_of(graph, node, part, needed[node.index])
    if joined and part != UPDATE:
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
    return graph, needed_gradients(graph, find_cost_model("tiled").conventions)


_KINDS = (
    (Convolution, "convolution"),
    (Attention, "attention"),
    ((MatMul, BatchMatMul, GroupedMatMul), "product"),
    (Update, "update"),
)


def _kind(operations: Sequence[Operation]) -> str:
    kinds = [kind for types, kind in _KINDS if any(isinstance(each, types) for each in operations)]
    return next(iter(kinds), "stream")
