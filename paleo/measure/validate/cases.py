"""Cases: what to predict for each measurement, so that any cost model can price all of them.

Rows of one operator on one device are priced as arrays, where its letters may be arrays; a net, and
an operator of other shape, once however many rows are of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from paleo.cluster import Device
from paleo.core.attributes import attributes
from paleo.core.errors import PaleoError, near
from paleo.core.frozen import NamedTuple, dataclass
from paleo.core.quantity import Array, Quantity, identity, is_array, np, total
from paleo.core.tensor import find_precision
from paleo.costs import ConvolutionChoice, CostModel, find_cost_model
from paleo.costs.convolutions import DEFAULT
from paleo.costs.tiled.constants import CONSTANTS
from paleo.measure.validate.collectives import CollectiveGroup, Exchange, exchange_of
from paleo.measure.validate.groups import CaseGroup
from paleo.measure.validate.measured import Measurement
from paleo.measure.validate.meshes import MeshCase, MeshGroup, is_shared, mesh_case
from paleo.measure.validate.nets import NetCase, Remembering, net_case
from paleo.measure.validate.protocols import protocol_of
from paleo.measure.validate.shapes import COLLECTIVE_OPERATORS, OPERATORS, Operator
from paleo.measure.validate.spellings import (
    UnmappedError,
    as_seen,
    device_of,
    dtype_of,
    library_of,
)
from paleo.step.passes import checked_target

#: What cases can be grouped by.
KEYS = (
    "source", "stratum", "kind", "operator", "network", "device", "precision", "dtype",
    "framework", "library_version", "memory_format", "compiled", "kernel", "quantity", "direction",
    "n_devices", "stack", "file",
)  # fmt: skip


@dataclass(frozen=True)
class Unpredicted:
    """Rows of a source that could not be predicted, and why.

    `ids` are theirs; there are none where a table was left out as a whole. `cost_model` is the
    only one that cannot predict them, "" if none can.
    """

    reason: str
    source: str
    count: int
    ids: tuple[str, ...] = ()
    cost_model: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        values = attributes(self, "reason", "source", "cost_model", "count", "ids")
        return {**values, "cost_model": self.cost_model or None}


def unpredicted_rows(
    reasons: Mapping[str, Sequence[str]], source: str = "", cost_model: str = ""
) -> tuple[Unpredicted, ...]:
    """Return the rows of each reason, which has their ids."""
    return tuple(
        Unpredicted(reason, source, len(ids), tuple(ids), cost_model)
        for reason, ids in reasons.items()
    )


@dataclass(frozen=True, eq=False)
class OperatorGroup(CaseGroup):
    """Rows of one operator: `letters` are arrays, one entry a row, or the same for all.

    `handed_over` are seconds of each in which the host hands it over. By which algorithms
    `convolutions` are computed holds unless another choice is asked for.
    """

    operator: str
    direction: str
    letters: Mapping[str, Any]
    handed_over: float = 0.0
    convolutions: ConvolutionChoice = DEFAULT

    def seconds(self, pricing: Remembering, constants: Mapping[str, Quantity]) -> Quantity:
        model = pricing.model  # arrays are not remembered
        asked = pricing.convolutions
        convolutions = self.convolutions if asked == DEFAULT else asked
        target = checked_target(self.device, model, self.dtype, convolutions=convolutions)
        target = replace(target, constants=constants)
        operations = OPERATORS[self.operator].make(self.letters, self.direction, self.dtype)
        if not all(model.counts(each) for each in operations):
            raise UnmappedError(f"{model.name} leaves out {operations[0].name}")
        return self.handed_over + total(model.price(each, target).total for each in operations)

    def at(self, keep: Array, index: Array) -> Self:
        return replace(self, index=index, letters=self._letters_at(keep))

    def _letters_at(self, places: Any) -> dict[str, Any]:
        return {
            letter: value[places] if is_array(value) else value
            for letter, value in self.letters.items()
        }

    def describe(self, place: int) -> str:
        values, known = self._letters_at(place), OPERATORS[self.operator].letters
        return " ".join(
            f"{letter}={number}"
            for letter, number in values.items()
            if number
            != (values[known[letter].like] if known[letter].like else known[letter].default)
        )


@dataclass(frozen=True, eq=False)
class NetGroup(CaseGroup):
    """Rows of one net at one batch size on one kind of device."""

    case: NetCase

    def seconds(self, pricing: Remembering, constants: Mapping[str, Quantity]) -> Quantity:
        return self.case.seconds(self.device, self.dtype, pricing, constants)

    def describe(self, place: int) -> str:
        workers = f" x {self.case.workers} devices" if self.case.workers > 1 else ""
        return f"{'+'.join(self.case.parts)}, batch {self.case.batch}{workers}"


@dataclass(frozen=True, eq=False)
class Cases:
    """Measurements and what is predicted for them.

    `measured` are seconds; `ids` say where each is from; `labels` has a text for each case under
    every key of KEYS. All three have one entry a case. `unpredicted` are the rows that are none.
    """

    measured: Array
    ids: Array
    labels: Mapping[str, Array]
    parts: tuple[CaseGroup, ...]
    unpredicted: tuple[Unpredicted, ...] = ()

    def __len__(self) -> int:
        return len(self.measured)

    def select(self, keep: Any) -> Cases:
        """Return those cases that a mask marks, or that stand at these places, in their order."""
        mask = np.zeros(len(self), bool)
        mask[keep] = True
        places = np.cumsum(mask) - 1
        parts = []
        for part in self.parts:
            kept = mask[part.index]
            if kept.any():
                parts.append(part.at(kept, places[part.index[kept]]))
        labels = {key: values[mask] for key, values in self.labels.items()}
        return Cases(self.measured[mask], self.ids[mask], labels, tuple(parts))

    def keeping(self) -> Cases:
        """Return the same cases, which keep what does not depend on constants: for many trials."""
        return replace(self, parts=tuple(part.keeping() for part in self.parts))

    def known(self, name: str) -> float | None:
        """Return the mean of the values that a constant has for the cases, None where it has none.

        Each kind of device counts the same, and so does each kind of link.
        """
        values = {value for part in self.parts if (value := part.known(name)) is not None}
        return sum(values) / len(values) if values else None

    @property
    def devices(self) -> dict[str, Device]:
        """The devices of the cases, by name."""
        return {part.device.name: part.device for part in self.parts}

    def where(self, **labels: str | Sequence[str]) -> Cases:
        """Return the cases whose labels are, or are among, these: `where(device="T4")`."""
        mask = np.ones(len(self), bool)
        for key, wanted in labels.items():
            mask &= np.isin(
                self.labels[key].astype(str), [wanted] if isinstance(wanted, str) else list(wanted)
            )
        return self.select(mask)

    def shapes(self) -> list[str]:
        """Return the shape of every case, for people."""
        found = [""] * len(self)
        for part in self.parts:
            for at, place in enumerate(part.index.tolist()):
                found[place] = part.describe(at)
        return found

    def names(self) -> list[str]:
        """Return the net or operator of every case, and its shape."""
        networks = self.labels["network"].tolist()
        return [f"{name} {shape}" for name, shape in zip(networks, self.shapes(), strict=True)]

    def describe(self, place: int) -> str:
        """Return the shape of a case, for people."""
        for part in self.parts:
            for at in (part.index == place).nonzero()[0]:
                return part.describe(int(at))
        return ""


def join(several: Iterable[Cases]) -> Cases:
    """Return all cases as one."""
    found = list(several)
    if len(found) == 1:
        return found[0]
    parts: list[CaseGroup] = []
    start = 0
    for cases in found:
        parts += [
            part.at(np.ones(len(part.index), bool), part.index + start) for part in cases.parts
        ]
        start += len(cases)
    empty = np.array([], object)
    return Cases(
        np.concatenate([np.array([], float), *(cases.measured for cases in found)]),
        np.concatenate([empty, *(cases.ids for cases in found)]),
        {key: np.concatenate([empty, *(cases.labels[key] for cases in found)]) for key in KEYS},
        tuple(parts),
        tuple(each for cases in found for each in cases.unpredicted),
    )


class Case(NamedTuple):
    """A row that can be predicted: the seconds measured, and what it shares with others.

    Of an operator `what` are its name, the direction and the letters that rows priced together
    have in common, and `letters` all of them.
    """

    row: Measurement
    device: Device
    dtype: str
    stated: tuple[tuple[str, float], ...]
    kind: str
    seconds: float
    what: NetCase | MeshCase | Exchange | tuple[str, str, tuple[tuple[str, int], ...]]
    letters: Mapping[str, int]

    @property
    def labels(self) -> dict[str, str]:
        """The text under every key of KEYS."""
        row, net = self.row, self.what if isinstance(self.what, NetCase) else None
        found = {
            "source": row.source_id,
            "kind": self.kind,
            "device": self.device.name,
            "dtype": self.dtype,
            "kernel": "",
            "quantity": row.quantity.name,
            "n_devices": str(row.n_devices),
            "stack": "tuned" if protocol_of(row.source_id).is_tuned else "",
            "memory_format": net.memory_format if net else "",
            "compiled": ("yes" if net.compiled else "no") if net else "",
        }
        return {key: found[key] if key in found else getattr(row, key) for key in KEYS}


def case_of(row: Measurement, on: Device | None = None) -> Case:
    """Return what to predict for a row; raises UnmappedError or a PaleoError."""
    if row.quantity.kind == "unknown":
        raise UnmappedError(row.quantity.problem)
    protocol = protocol_of(row.source_id)
    row, protocol = protocol.of(row)
    device, name = _device(row, on), row.operator
    precision = row.precision or protocol.unstated
    if protocol.mixed and not name:
        precision += " mixed"
    letters: Mapping[str, int] = {}
    what: NetCase | MeshCase | Exchange | tuple[str, str, tuple[tuple[str, int], ...]]
    if name in COLLECTIVE_OPERATORS:
        what, seconds = exchange_of(row)
        kind, dtype = f"collective {what.operation.value}", ""
        return Case(row, device, dtype, (), kind, seconds, what, row.shape)
    if name:
        direction, operator = _operator_direction(row), OPERATORS[name]
        dtype = dtype_of(precision, device, is_net=False, tf32=protocol.tf32)
        seconds, kind = row.value * row.quantity.scale + protocol.whole / 2, operator.kind
        units = dtype if "matrix" in device.peaks.get(dtype, {}) else ""
        letters = protocol.read(name, row.shape, units)
        what = (name, direction, _fixed(operator, letters))
    elif is_shared(row):
        what, seconds = mesh_case(row, device)
        kind, dtype = "mesh step", dict(what.settings)["dtype"]
    elif not row.quantity.part:
        raise UnmappedError(f"{row.quantity.name} is not modelled")
    else:
        what, seconds = net_case(row, protocol, device)
        passes = "+".join(part for part in what.parts if part in ("forward", "backward"))
        kind = f"net {'step' if 'update' in what.parts else passes}"
        dtype = dtype_of(precision, device, is_net=True, tf32=protocol.tf32)
    device.peak(find_precision(dtype).computing)  # says which types it has
    return Case(row, device, dtype, _stated(row), kind, seconds, what, letters)


def _group(places: Sequence[int], cases: Sequence[Case]) -> CaseGroup:
    """Return cases that are priced together, which stand at these places."""
    first = cases[0]
    common = (np.array(places, np.int64), first.device, first.dtype, first.stated)
    if isinstance(first.what, Exchange):
        workers = np.array([case.row.n_devices for case in cases], np.int64)
        num_bytes = np.array([case.letters["bytes"] for case in cases], np.int64)
        return CollectiveGroup(*common, first.what, workers, num_bytes)
    if isinstance(first.what, NetCase):
        return NetGroup(*common, first.what)
    if isinstance(first.what, MeshCase):
        return MeshGroup(*common, first.what)
    name, direction, fixed = first.what
    letters: dict[str, Any] = dict(first.letters)
    if OPERATORS[name].scalars is not None:
        for letter in letters.keys() - dict(fixed):
            letters[letter] = np.array([case.letters[letter] for case in cases], np.int64)
    protocol = protocol_of(first.row.source_id)
    return OperatorGroup(
        *common, name, direction, letters, protocol.handed_over, protocol.convolutions
    )


def _stated(row: Measurement) -> tuple[tuple[str, float], ...]:
    """Return the constants that a row states."""
    named = (row.library_version, row.framework, protocol_of(row.source_id).library)
    library = library_of(*named)
    if library is None:
        return ()
    bounds = CONSTANTS["library"]
    return (("library", min(max(library, bounds.low), bounds.high)),)


def _fixed(operator: Operator, shape: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """Return the letters that rows priced together have in common: all, where none is an array."""
    letters = shape if operator.scalars is None else operator.scalars
    return tuple((letter, shape[letter]) for letter in letters)


def cases_of(rows: Iterable[Measurement], on: Device | None = None) -> Cases:
    """Return the cases of measured rows; those that cannot be predicted are listed by reason.

    `on` is the device that all rows are of, whatever they call it.
    """
    kept: list[Case] = []
    reasons: dict[tuple[str, str], list[str]] = {}
    groups: dict[Any, list[int]] = {}
    for row in rows:
        try:
            case = case_of(row, on)
        except (UnmappedError, PaleoError) as error:
            reasons.setdefault((_reason(error), row.source_id), []).append(row.row_id)
            continue
        handed_over = protocol_of(row.source_id).handed_over
        key = (identity(case.what), case.device.name, case.dtype, case.stated, handed_over)
        groups.setdefault(key, []).append(len(kept))
        kept.append(case)
    labels = [case.labels for case in kept]
    return Cases(
        np.array([case.seconds for case in kept], float),
        np.array([case.row.row_id for case in kept], object),
        {key: np.array([texts[key] for texts in labels], object) for key in KEYS},
        tuple(_group(places, [kept[place] for place in places]) for places in groups.values()),
        tuple(
            Unpredicted(reason, source, len(ids), tuple(ids))
            for (reason, source), ids in reasons.items()
        ),
    )


def _reason(error: UnmappedError | PaleoError) -> str:
    return str(error.mistakes[0] if isinstance(error, PaleoError) else error)


def _device(row: Measurement, on: Device | None) -> Device:
    if "suspect" in row.verified:
        raise UnmappedError("marked as suspect")
    if on is not None:
        return on
    return as_seen(device_of(row.device), row.framework)


def _operator_direction(row: Measurement) -> str:
    """Return which pass of an operator a row is of; raises UnmappedError."""
    name = row.operator
    if name not in OPERATORS:
        raise UnmappedError(f"operator {name!r} is not modelled{near(name, OPERATORS)}")
    if row.n_devices > 1:
        raise UnmappedError(f"operator {name!r} on several devices")
    part = row.quantity.part
    if row.quantity.kind != "time" or part not in ("op", *OPERATORS["conv2d"].directions):
        raise UnmappedError(f"{row.quantity.name} of an operator")
    direction = row.direction if part == "op" else part
    direction = "forward" if direction in ("", "inference") else direction
    if direction not in OPERATORS[name].directions:
        raise UnmappedError(f"{direction} of operator {name!r}")
    return direction


def predict(
    cases: Cases,
    cost_model: str | CostModel,
    constants: Mapping[str, Quantity] | None = None,
    convolutions: ConvolutionChoice = DEFAULT,
) -> Array:
    """Return the predicted seconds of each case, NaN for those that this cost model cannot.

    `constants` replaces constants of the cost model (`Target.constants`). If they are arrays of
    P trials, the result is P x cases. `convolutions` says by which algorithms convolutions are
    computed. Raises UnknownNameError for the cost model.
    """
    model, known = find_cost_model(cost_model), dict(constants or {})
    trials = {name: value for name, value in known.items() if is_array(value)}
    if not trials:
        return price(cases, model, known, convolutions)[0]
    # One by one: the arrays of the cost model are those of shapes.
    spread = zip(*(np.ravel(value).tolist() for value in trials.values()), strict=True)
    tried = (known | dict(zip(trials, trial, strict=True)) for trial in spread)
    return np.stack([price(cases, model, values, convolutions)[0] for values in tried])


def price(
    cases: Cases,
    model: CostModel,
    constants: Mapping[str, Quantity],
    convolutions: ConvolutionChoice = DEFAULT,
) -> tuple[Array, dict[str, list[str]]]:
    """Return predictions, and for those that are none the reasons, with the ids of the cases."""
    found = np.empty(len(cases))
    reasons: dict[str, list[str]] = {}
    pricing = Remembering(model, convolutions)
    for part in cases.parts:
        try:
            found[part.index] = part.seconds(pricing, {**dict(part.stated), **constants})
        except (UnmappedError, PaleoError) as error:
            reason = _reason(error)
            found[part.index] = np.nan
            reasons.setdefault(reason, []).extend(map(str, cases.ids[part.index]))
    return found, reasons
