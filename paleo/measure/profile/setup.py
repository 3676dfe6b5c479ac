"""What is predicted and what is measured: the settings that profiles and full passes share."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from paleo.costs import CostModel, Target, convolution_choice, find_cost_model
from paleo.costs.convolutions import DEFAULT
from paleo.errors import ExecutorError, Mistake, Mistakes, PaleoError, SettingError
from paleo.estimate import (
    DeviceLike,
    adapter,
    checked_share,
    checked_target,
    keep_shape,
    not_counted,
)
from paleo.executors import Executor, find_executor
from paleo.graph import Graph, build
from paleo.hardware import Device, device_names, find_device
from paleo.importers import ImportOptions
from paleo.layers.convolution import Filtered
from paleo.load import load
from paleo.netspec import NetSpec
from paleo.quantity import is_array
from paleo.tensor import find_precision
from paleo.validate.places import plain
from paleo.values import listed, python_int, shown, whole

__all__ = [
    "Case",
    "NetLike",
    "Nets",
    "Processor",
    "Progress",
    "Setting",
    "failure",
    "no_progress",
    "prepare",
]

NetLike = str | os.PathLike[str] | NetSpec

#: Shows how far a long work is: of a label and a number of steps, what to call as each begins.
Progress = Callable[[str, int], AbstractContextManager[Callable[[str], object]]]


@contextmanager
def no_progress(label: str, total: int) -> Iterator[Callable[[str], object]]:
    """Show nothing."""
    yield lambda text: None


@dataclass(frozen=True)
class Processor:
    """Where an executor ran: its `place` ("cpu", "cuda" or "mps") and the processor's name."""

    executor: str
    place: str
    hardware: str
    versions: Mapping[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        return {
            "place": self.place,
            "hardware": self.hardware,
            "versions": dict(self.versions),
        }


def _is(device: Device, hardware: str) -> bool:
    """Tell whether a device goes by the name that a framework or system gives a processor.

    Models are told apart by the words with digits (H100, 7763), which all of one name have to be
    in the other. A calibrated device knows the name that its executor gave; the title of a user's
    own device may have the processor's in it.
    """
    own, numbers = plain(hardware), _numbers(hardware)
    if device.calibration and device.calibration.hardware:
        return plain(device.calibration.hardware) == own
    for name in (device.name, device.title, *device.aliases):
        known = _numbers(name)
        if plain(name) == own or (known and numbers and (known <= numbers or numbers <= known)):
            return True
    return bool(own) and own in plain(device.title) and device.name not in device_names()


def _numbers(name: str) -> set[str]:
    """Return the words of a name that have digits, but for sizes of memory."""
    words = re.findall(r"[a-z]*\d\w*", name.casefold().replace("_", " "))
    return {word for word in words if not word.endswith(("gb", "gib", "ghz"))}


@dataclass(frozen=True)
class Setting:
    """What holds for all that is predicted and measured together."""

    device: Device
    cost_model: CostModel
    target: Target
    dtype: str
    num_warmup: int
    num_iter: int
    processors: tuple[Processor, ...] = ()

    @property
    def executors(self) -> tuple[str, ...]:
        """The names of the executors."""
        return tuple(each.executor for each in self.processors)

    @property
    def elsewhere(self) -> tuple[Processor, ...]:
        """The processors that do not go by a name of the device that is predicted."""
        return tuple(each for each in self.processors if not _is(self.device, each.hardware))

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know who compares the two."""
        named = self.device.name
        if self.device.title != named:
            named += f" ({self.device.title})"
        return tuple(
            f"predicted for {named}, measured by {each.executor} on {each.hardware} "
            f"({each.place}): by their names two different processors"
            for each in self.elsewhere
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        return {
            "dtype": self.dtype,
            "device": self.device.name,
            "cost_model": self.cost_model.name,
            "ppp_comp": self.target.ppp_comp,
            **self.target.convolutions.to_dict(),
            "num_warmup": self.num_warmup,
            "num_iter": self.num_iter,
            "executors": {each.executor: each.to_dict() for each in self.processors},
        }


@dataclass(frozen=True)
class Case:
    """A net: `graph` as the cost model sees it, `real` as frameworks run it.

    `file` is the name or file by which it was asked for, None if it was a NetSpec.
    """

    spec: NetSpec
    file: str | None
    graph: Graph
    real: Graph

    def notes(self, setting: Setting) -> tuple[str, ...]:
        """What a reader should know of the predictions."""
        model, notes = setting.cost_model, []
        if any(isinstance(node.layer, Filtered) for node in self.graph.nodes):
            notes.append(setting.target.convolutions.note(model.convolution_algorithm))
        if left_out := not_counted(self.graph, model):
            notes.append(f"not counted by {model.name}: {', '.join(left_out)}")
        return tuple(filter(None, notes))

    def to_dict(self) -> dict[str, Any]:
        """Return what net this is, under the keys of the JSON output; None for no file."""
        return {
            "net": self.spec.name,
            "file": self.file,
            "batch_size": self.graph.batch_size,
        }


def prepare(
    nets: NetLike | Sequence[NetLike],
    batch_size: int | None,
    importing: ImportOptions | None,
    *,
    device: DeviceLike,
    cost_model: str | CostModel,
    ppp_comp: float,
    dtype: str,
    executors: str | Sequence[str],
    place: str | None,
    num_warmup: int,
    num_iter: int,
    conv_library: str | None,
    workspace: int | str | None,
    use_only_gemm: bool,
) -> tuple[Setting, list[Case], list[Executor]]:
    """Return the settings, the nets and the executors; raises PaleoError with every mistake."""
    mistakes = Mistakes()
    targets = mistakes.check(listed, "nets", nets, str | os.PathLike | NetSpec) or []
    specs = [mistakes.check(load, net, importing) for net in targets]
    if mistakes.check(find_precision, dtype) is None:
        dtype = "fp32"  # to find more mistakes
    batch = mistakes.check(_checked_batch, batch_size)
    found_device = mistakes.check(find_device, device)
    model = mistakes.check(find_cost_model, cost_model)
    mistakes.check(checked_share, ppp_comp, "ppp_comp")
    choice = mistakes.check(convolution_choice, conv_library, workspace, use_only_gemm) or DEFAULT
    if found_device and model:
        mistakes.check(checked_target, found_device, model, dtype, 1.0, choice)
    mistakes.check(_checked_runs, "num_warmup", num_warmup, 0)
    mistakes.check(_checked_runs, "num_iter", num_iter, 1)
    graphs = [
        (
            spec,
            None if isinstance(net, NetSpec) else os.fspath(net),
            mistakes.check(build, spec, batch, dtype, adapter(model) if model else None),
            mistakes.check(build, spec, batch, dtype, keep_shape) if executors else None,
        )
        for net, spec in zip(targets, specs, strict=True)
        if spec
    ]
    names = [executors] if isinstance(executors, str) else list(dict.fromkeys(executors))
    made = [mistakes.check(find_executor, name, place, dtype) for name in names]
    mistakes.raise_as(PaleoError)
    assert found_device
    assert model
    running = [executor for executor in made if executor]
    setting = Setting(
        found_device,
        model,
        checked_target(found_device, model, dtype, ppp_comp, choice),
        dtype,
        num_warmup,
        num_iter,
        tuple(
            Processor(each.name, each.place, each.hardware, dict(each.versions)) for each in running
        ),
    )
    cases = [Case(spec, file, graph, real or graph) for spec, file, graph, real in graphs if graph]
    return setting, cases, running


def _checked_batch(batch_size: Any) -> int | None:
    """Return a batch size that is a number; raises SettingError for an array."""
    found = python_int(batch_size)
    if is_array(found):
        raise SettingError(f"batch_size: expected a whole number of 1 or more, got {shown(found)}")
    return found  # type: ignore[no-any-return]


def _checked_runs(name: str, value: Any, least: int) -> int:
    try:
        return whole(python_int(value), least)
    except ValueError as error:
        raise SettingError(f"{name}: {error}") from None


#: So many reasons are said why a net cannot be run.
_REASONS = 3


def failure(error: ExecutorError | MemoryError, *, named: bool = False) -> str:
    """Return why something could not be run, with the names of layers if they are to be `named`."""
    if isinstance(error, MemoryError):
        return f"not enough memory: {error}" if str(error) else "not enough memory"
    said = [
        str(Mistake(each.message, layer=each.layer if named else None))
        for each in error.mistakes[:_REASONS]
    ]
    more = len(error.mistakes) - _REASONS
    return "; ".join([*said, *([f"and {more} more"] if more > 0 else [])])


class Measurable(Protocol):
    """A net that was to be measured."""

    @property
    def measured_anything(self) -> bool:
        """Whether an executor measured some of it."""

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""


_Net = TypeVar("_Net", bound=Measurable)


@dataclass(frozen=True)
class Nets(Generic[_Net]):
    """Nets; after an interrupt, those that were begun, `missed` names the others."""

    runs: tuple[_Net, ...]
    interrupted: bool = False
    missed: tuple[str, ...] = ()

    @property
    def measured_anything(self) -> bool:
        """Whether an executor measured some of a net."""
        return any(run.measured_anything for run in self.runs)

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        return {
            "nets": [run.to_dict() for run in self.runs],
            "missed": list(self.missed),
            "interrupted": self.interrupted,
        }
