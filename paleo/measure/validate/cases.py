"""Cases: what to predict for each measurement, so that any cost model can price all of them.

Rows of one operator on one device are priced as arrays, where its letters may be arrays; a net, and
an operator of other shape, once however many rows are of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from paleo.costs import ConvolutionChoice, CostModel, find_cost_model
from paleo.costs.convolutions import DEFAULT
from paleo.costs.tiled.constants import CONSTANTS
from paleo.errors import PaleoError, near
from paleo.estimate import checked_target
from paleo.hardware import Device, find_device
from paleo.quantity import Array, Quantity, is_array, total
from paleo.tensor import find_precision
from paleo.validate.measured import Measurement
from paleo.validate.nets import NetCase, Remembering, net_case
from paleo.validate.places import UnmappedError, device_of, dtype_of, library_of
from paleo.validate.protocols import protocol_of
from paleo.validate.shapes import OPERATORS, Operator

__all__ = ["KEYS", "Cases", "OperatorPart", "Unpredicted", "cases_of", "join", "predict", "price"]

#: What cases can be grouped by.
KEYS = (
    "source", "stratum", "kind", "operator", "network", "device", "precision", "dtype",
    "framework", "library_version", "kernel", "quantity", "direction", "n_devices", "file",
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
        return {
            "reason": self.reason,
            "source": self.source,
            "cost_model": self.cost_model or None,
            "count": self.count,
            "ids": list(self.ids),
        }


@dataclass(frozen=True, eq=False)
class Part(ABC):
    """Some of the cases, priced together: `index` are their places among all."""

    index: Array
    device: Device
    dtype: str
    #: Constants of `tiled` that the rows say: the generation of the library.
    stated: tuple[tuple[str, float], ...]

    @abstractmethod
    def seconds(self, pricing: Remembering, constants: Mapping[str, Quantity]) -> Quantity:
        """Return the seconds of each; raises UnmappedError or a PaleoError where it cannot."""

    def at(self, keep: Array, index: Array) -> Self:
        """Return those of the cases that `keep` marks, at other places."""
        return replace(self, index=index)

    @abstractmethod
    def describe(self, place: int) -> str:
        """Return the shape of one of them."""


@dataclass(frozen=True, eq=False)
class OperatorPart(Part):
    """Rows of one operator: `letters` are arrays, one entry a row, or the same for all."""

    operator: str
    direction: str
    letters: Mapping[str, Any]

    def seconds(self, pricing: Remembering, constants: Mapping[str, Quantity]) -> Quantity:
        model = pricing.model  # arrays are not remembered
        known = {**dict(self.stated), **constants}
        target = checked_target(self.device, model, self.dtype, convolutions=pricing.convolutions)
        target = replace(target, constants=known)
        operations = OPERATORS[self.operator].make(self.letters, self.direction, self.dtype)
        if not all(model.counts(each) for each in operations):
            raise UnmappedError(f"{model.name} leaves out {operations[0].name}")
        return total(model.price(each, target).total for each in operations)

    def at(self, keep: Array, index: Array) -> Self:
        letters = {
            letter: value[keep] if is_array(value) else value
            for letter, value in self.letters.items()
        }
        return replace(self, index=index, letters=letters)

    def describe(self, place: int) -> str:
        values = {
            letter: value[place] if is_array(value) else value
            for letter, value in self.letters.items()
        }
        known = OPERATORS[self.operator].letters
        return " ".join(
            f"{letter}={number}"
            for letter, number in values.items()
            if number
            != (values[known[letter].like] if known[letter].like else known[letter].default)
        )


@dataclass(frozen=True, eq=False)
class NetPart(Part):
    """Rows of one net at one batch size on one kind of device."""

    case: NetCase

    def seconds(self, pricing: Remembering, constants: Mapping[str, Quantity]) -> Quantity:
        known = {**dict(self.stated), **constants}
        return self.case.seconds(self.device, self.dtype, pricing, known)

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
    parts: tuple[Part, ...]
    unpredicted: tuple[Unpredicted, ...] = ()

    def __len__(self) -> int:
        return len(self.measured)

    def select(self, keep: Any) -> Cases:
        """Return those cases that a mask marks, or that stand at these places, in their order."""
        import numpy as np

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

    @property
    def devices(self) -> dict[str, Device]:
        """The devices of the cases, by name."""
        return {part.device.name: part.device for part in self.parts}

    def where(self, **labels: str | Sequence[str]) -> Cases:
        """Return the cases whose labels are, or are among, these: `where(device="T4")`."""
        import numpy as np

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

    def describe(self, place: int) -> str:
        """Return the shape of a case, for people."""
        for part in self.parts:
            for at in (part.index == place).nonzero()[0]:
                return part.describe(int(at))
        return ""


def join(several: Iterable[Cases]) -> Cases:
    """Return all cases as one."""
    import numpy as np

    found = list(several)
    if len(found) == 1:
        return found[0]
    parts: list[Part] = []
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


@dataclass
class _Builder:
    """Collects rows of operators and nets under what they have in common."""

    operators: dict[tuple[Any, ...], tuple[list[int], list[Mapping[str, int]]]] = field(
        default_factory=dict
    )
    nets: dict[tuple[Any, ...], list[int]] = field(default_factory=dict)
    devices: dict[str, Device] = field(default_factory=dict)

    def operator(
        self, place: int, row: Measurement, direction: str, device: Device, dtype: str
    ) -> None:
        name = row.network.removeprefix("op:")
        shape = {**row.shape, **protocol_of(row.source_id).letters.get(name, {})}
        fixed = _fixed(OPERATORS[name], shape)
        self.devices[device.name] = device
        key = (name, direction, device.name, dtype, _stated(row), fixed)
        places, shapes = self.operators.setdefault(key, ([], []))
        places.append(place)
        shapes.append(shape)

    def net(self, place: int, row: Measurement, case: NetCase, device: Device, dtype: str) -> None:
        self.devices[device.name] = device
        self.nets.setdefault((case, device.name, dtype, _stated(row)), []).append(place)

    def parts(self) -> tuple[Part, ...]:
        import numpy as np

        found: list[Part] = []
        for key, (places, shapes) in self.operators.items():
            name, direction, device, dtype, stated, fixed = key
            letters: dict[str, Any] = dict(shapes[0])
            if OPERATORS[name].scalars is not None:
                one = dict(fixed)
                letters = {
                    letter: one[letter]
                    if letter in one
                    else np.array([shape[letter] for shape in shapes], np.int64)
                    for letter in letters
                }
            index = np.array(places, np.int64)
            on = self.devices[device]
            found.append(OperatorPart(index, on, dtype, stated, name, direction, letters))
        for (case, device, dtype, stated), places in self.nets.items():
            index = np.array(places, np.int64)
            found.append(NetPart(index, self.devices[device], dtype, stated, case))
        return tuple(found)


def _stated(row: Measurement) -> tuple[tuple[str, float], ...]:
    """Return the constants that a row states."""
    library = library_of(row.library_version, row.framework)
    if library is None:
        return ()
    bounds = CONSTANTS["library"]
    return (("library", min(max(library, bounds.low), bounds.high)),)


def _fixed(operator: Operator, shape: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """Return the letters that rows priced together have in common: all, where none is an array."""
    if operator.scalars is None:
        return tuple(shape.items())
    return tuple((letter, shape[letter]) for letter in operator.scalars)


def cases_of(rows: Iterable[Measurement], on: Device | None = None) -> Cases:
    """Return the cases of measured rows; those that cannot be predicted are listed by reason.

    `on` is the device that all rows are of, whatever they call it.
    """
    import numpy as np

    builder = _Builder()
    kept: list[tuple[Measurement, Device, str, str, float]] = []
    reasons: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        try:
            device = _device(row, on)
            case, seconds, direction = None, 0.0, ""
            if row.network.startswith("op:"):
                direction = _operator_direction(row)
                seconds = row.value * row.quantity.scale
            elif not row.quantity.part:
                raise UnmappedError(f"{row.quantity.name} is not modelled")
            else:
                case, seconds = net_case(row, device)
            protocol = protocol_of(row.source_id)
            dtype = dtype_of(row.precision, device, is_net=case is not None, tf32=protocol.tf32)
            device.peak(find_precision(dtype).computing)  # says which types it has
        except (UnmappedError, PaleoError) as error:
            reason = _reason(error)
            reasons.setdefault((reason, row.source_id), []).append(row.row_id)
            continue
        if case is None:
            builder.operator(len(kept), row, direction, device, dtype)
            kind = OPERATORS[row.network.removeprefix("op:")].kind
        else:
            builder.net(len(kept), row, case, device, dtype)
            kind = "+".join(part for part in case.parts if part in ("forward", "backward"))
            kind = f"net {'step' if 'update' in case.parts else kind}"
        kept.append((row, device, dtype, kind, seconds))
    unpredicted = tuple(
        Unpredicted(reason, source, len(ids), tuple(ids))
        for (reason, source), ids in reasons.items()
    )
    rows_kept = [row for row, *_ in kept]
    texts = {
        "source": [row.source_id for row in rows_kept],
        "stratum": [row.stratum for row in rows_kept],
        "kind": [kind for _, _, _, kind, _ in kept],
        "operator": [
            row.network.removeprefix("op:") if row.network.startswith("op:") else ""
            for row in rows_kept
        ],
        "network": [row.network for row in rows_kept],
        "device": [device.name for _, device, *_ in kept],
        "precision": [row.precision for row in rows_kept],
        "dtype": [dtype for _, _, dtype, _, _ in kept],
        "framework": [row.framework for row in rows_kept],
        "library_version": [row.library_version for row in rows_kept],
        "kernel": [""] * len(rows_kept),
        "quantity": [row.quantity.name for row in rows_kept],
        "direction": [row.direction for row in rows_kept],
        "n_devices": [str(row.n_devices) for row in rows_kept],
        "file": [row.file for row in rows_kept],
    }
    return Cases(
        np.array([seconds for *_, seconds in kept], float),
        np.array([row.row_id for row in rows_kept], object),
        {key: np.array(texts[key], object) for key in KEYS},
        builder.parts(),
        unpredicted,
    )


def _reason(error: UnmappedError | PaleoError) -> str:
    return str(error.mistakes[0] if isinstance(error, PaleoError) else error)


def _device(row: Measurement, on: Device | None) -> Device:
    if "suspect" in row.verified:
        raise UnmappedError("marked as suspect")
    if on is not None:
        return on
    named = protocol_of(row.source_id).devices.get(row.device)
    return find_device(named) if named else device_of(row.device)


def _operator_direction(row: Measurement) -> str:
    """Return which pass of an operator a row is of; raises UnmappedError."""
    name = row.network.removeprefix("op:")
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
    import numpy as np

    model = find_cost_model(cost_model)
    trials = {name: value for name, value in (constants or {}).items() if is_array(value)}
    if not trials:
        return price(cases, model, constants or {}, convolutions)[0]
    # One by one: the arrays of the cost model are those of shapes.
    spread = zip(*(np.ravel(np.asarray(value)).tolist() for value in trials.values()), strict=True)
    return np.stack(
        [
            price(
                cases,
                model,
                {**(constants or {}), **dict(zip(trials, each, strict=True))},
                convolutions,
            )[0]
            for each in spread
        ]
    )


def price(
    cases: Cases,
    model: CostModel,
    constants: Mapping[str, Quantity],
    convolutions: ConvolutionChoice = DEFAULT,
) -> tuple[Array, dict[str, list[int]]]:
    """Return predictions, and for those that are none the reasons and places."""
    import numpy as np

    found = np.empty(len(cases))
    reasons: dict[str, list[int]] = {}
    pricing = Remembering(model, convolutions)
    for part in cases.parts:
        try:
            found[part.index] = part.seconds(pricing, constants)
        except (UnmappedError, PaleoError) as error:
            reason = _reason(error)
            found[part.index] = np.nan
            reasons.setdefault(reason, []).extend(part.index.tolist())
    return found, reasons
