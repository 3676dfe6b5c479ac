"""What is predicted and what is measured: the settings that profiles and full passes share."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Annotated, Any, Generic, TypeVar

from paleo.cluster import Device, device_names
from paleo.core.attributes import attributes
from paleo.core.checks import listed, python_int, whole_number
from paleo.core.errors import ExecutorError, Mistake, Mistakes, PaleoError, SettingError
from paleo.core.frozen import dataclass
from paleo.core.quantity import identity
from paleo.core.results import Result
from paleo.costs.convolutions import DEFAULT
from paleo.measure.executors import Executor, Timing, find_executor
from paleo.measure.validate.spellings import plain
from paleo.net.graph import Graph, build
from paleo.net.importers import ImportOptions
from paleo.net.load import ONE_NET, NetLike
from paleo.net.spec import NetSpec
from paleo.step.declarations import Setting as Declared
from paleo.step.passes import keep_shape, not_counted
from paleo.step.plan import RATED, Plan
from paleo.step.scenario import asked
from paleo.step.settings import (
    NET_BATCH_SIZE,
    ConvolutionSettings,
    DeviceSettings,
    OptimizerSettings,
    RateSettings,
)

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
        return attributes(self, "place", "hardware", "versions")


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

    plan: Plan
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
        return tuple(each for each in self.processors if not _is(self.plan.device, each.hardware))

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know who compares the two."""
        device = self.plan.device
        named = device.name if device.title == device.name else f"{device.name} ({device.title})"
        return tuple(
            f"predicted for {named}, measured by {each.executor} on {each.hardware} "
            f"({each.place}): by their names two different processors"
            for each in self.elsewhere
        ) + (
            (f"predicted for {self.plan.optimizer}, measured with plain gradient descent",)
            if self.processors and self.plan.optimizer != "sgd"
            else ()
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        return {
            **self.plan.to_dict("dtype", *RATED, *DEFAULT.to_dict()),
            **attributes(self, "num_warmup", "num_iter"),
            "executors": {each.executor: each.to_dict() for each in self.processors},
        }


@dataclass(frozen=True)
class NetGraphs:
    """A net: `graph` as the cost model sees it, `real` as frameworks run it.

    `file` is the name or file by which it was asked for, None if it was an object.
    """

    spec: NetSpec
    file: str | None
    graph: Graph
    real: Graph

    def notes(self, setting: Setting) -> tuple[str, ...]:
        """What a reader should know of the predictions."""
        model, notes = setting.plan.cost_model, [*self.spec.notes]
        if any(node.layer.is_convolution for node in self.graph.nodes):
            notes.append(setting.plan.convolution_note)
        if left_out := not_counted(self.graph, model):
            notes.append(f"not counted by {model.name}: {', '.join(left_out)}")
        notes += setting.plan.notes_on(self.spec)
        return tuple(filter(None, notes))

    def to_dict(self) -> dict[str, Any]:
        """Return what net this is, under the keys of the JSON output; None for no file."""
        return {
            "net": self.spec.name,
            "file": self.file,
            "batch_size": self.graph.batch_size,
        }


def _runs(name: str, default: int, least: int, text: str) -> Declared:
    """Return the setting of a number of runs."""

    def check(value: Any) -> int:
        try:
            return whole_number(python_int(value), least)
        except ValueError as error:
            raise SettingError(f"{name}: {error}") from None

    return Declared(default=default, check=check, help=text)


class MeasuringSettings(
    DeviceSettings, RateSettings, ConvolutionSettings, OptimizerSettings, total=False
):
    """What is predicted for, how it is measured, and how nets are read.

    `place` is "cpu", "cuda" or "mps", None for the best there is; each thing is measured
    `num_iter` times after `num_warmup` that do not count. `batch_size` None is the file's;
    `importing` is as in `load`.
    """

    num_warmup: Annotated[int, _runs("num_warmup", 10, 0, "Runs before those that are measured.")]
    num_iter: Annotated[int, _runs("num_iter", 50, 1, "Runs that are measured.")]
    batch_size: Annotated[int | None, NET_BATCH_SIZE]
    place: Annotated[
        str | None, Declared(default=None, check=identity, help="Where executors run.")
    ]
    importing: ImportOptions | None


def prepare(
    nets: NetLike | Sequence[NetLike],
    executors: str | Sequence[str],
    settings: Mapping[str, Any],
) -> tuple[Setting, list[NetGraphs], list[Executor]]:
    """Return the settings, the nets and the executors; raises PaleoError with every mistake."""
    mistakes = Mistakes()
    many = mistakes.check(listed, "nets", nets, ONE_NET)
    scenarios, values = asked(nets if many is None else many, MeasuringSettings, settings, mistakes)
    names = [executors] if isinstance(executors, str) else list(dict.fromkeys(executors))
    dtype = values["dtype"] or "fp32"  # to find more mistakes
    running = mistakes.check_all(lambda name: find_executor(name, values["place"], dtype), names)
    if executors:  # which compute every layer in the net's element type
        scenarios = [
            replace(each, net=each.net.without_dtypes(each.net.dtypes)) for each in scenarios
        ]
    graphs = mistakes.check_all(lambda scenario: scenario.graph(), scenarios)
    real = graphs
    if executors:
        real = mistakes.check_all(
            lambda scenario: build(scenario.net, scenario.batch_size, dtype, keep_shape), scenarios
        )
    mistakes.raise_as(PaleoError)
    cases = [
        NetGraphs(
            scenario.net, os.fspath(net) if isinstance(net, str | os.PathLike) else None, *both
        )
        for net, scenario, *both in zip(many or (), scenarios, graphs, real, strict=True)
    ]
    processors = tuple(
        Processor(each.name, each.place, each.hardware, dict(each.versions)) for each in running
    )
    plan = scenarios[0].plan
    return Setting(plan, values["num_warmup"], values["num_iter"], processors), cases, running


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


class Compared(ABC):
    """Something that is predicted, beside what executors measured of it."""

    @abstractmethod
    def timing(self, executor: str) -> Timing | None:
        """Return what an executor measured, None if it did not."""

    @abstractmethod
    def compared(self, executor: str) -> float | None:
        """Return the predicted seconds of all that an executor's time has in it."""

    def seconds(self, executor: str) -> float | None:
        """Return the median of what an executor measured, None if it did not."""
        timing = self.timing(executor)
        return timing.median if timing else None

    def ratio(self, executor: str) -> float | None:
        """Return measured / predicted; None where there is not both."""
        seconds, predicted = self.seconds(executor), self.compared(executor)
        return seconds / predicted if seconds is not None and predicted else None

    def measured_to_dict(self, executor: str) -> dict[str, Any]:
        """Return the values of an executor under the keys of the JSON output."""
        timing = self.timing(executor)
        none = dict.fromkeys(Timing((0.0,)).to_dict(executor))
        times = timing.to_dict(executor) if timing else none
        return {**times, f"{executor}_ratio": self.ratio(executor)}


@dataclass(frozen=True)
class MeasuredNet(ABC):
    """A net with what is predicted and measured of it."""

    case: NetGraphs
    setting: Setting

    @property
    def net(self) -> str:
        """The net's name."""
        return self.case.spec.name

    @property
    @abstractmethod
    def measured_anything(self) -> bool:
        """Whether an executor measured some of it."""

    @property
    @abstractmethod
    def interrupted(self) -> bool:
        """Whether an interrupt came before all was measured."""

    @abstractmethod
    def _own_notes(self) -> Iterator[str]:
        """Yield what there is to know of what was measured."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know of these figures."""
        return (*self.setting.notes, *self._own_notes(), *self.case.notes(self.setting))

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        return {
            **self.case.to_dict(),
            **self.setting.to_dict(),
            **self._own_values(),
            **attributes(self, "notes", "interrupted"),
        }

    @abstractmethod
    def _own_values(self) -> dict[str, Any]:
        """Return what was predicted and measured, under the keys of the JSON output."""


_Net = TypeVar("_Net", bound=MeasuredNet)


@dataclass(frozen=True)
class Nets(Result, Generic[_Net]):
    """Nets; after an interrupt, those that were begun, `missed` names the others."""

    runs: tuple[_Net, ...]
    missed: tuple[str, ...] = ()

    @property
    def interrupted(self) -> bool:
        """Whether an interrupt came before all was measured."""
        return bool(self.missed) or any(run.interrupted for run in self.runs)

    @property
    def measured_anything(self) -> bool:
        """Whether an executor measured some of a net."""
        return any(run.measured_anything for run in self.runs)

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        runs = [run.to_dict() for run in self.runs]
        return {"nets": runs, **attributes(self, "missed", "interrupted")}
