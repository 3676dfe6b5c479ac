"""A device of what was measured: figures by the data sheet, the system, or the measurement."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from paleo.cluster import Device, Figure, find_device
from paleo.cluster.device import FIGURES
from paleo.core.errors import ExecutorError, UnknownNameError
from paleo.core.frozen import dataclass
from paleo.core.operations import Operation
from paleo.core.quantity import Array, np, total
from paleo.costs import find_cost_model
from paleo.costs.host import handed_over
from paleo.costs.tiled.cpu import WRITTEN
from paleo.measure.calibrate.measuring import Sample
from paleo.measure.calibrate.points import COPY, PRODUCT
from paleo.measure.calibrate.system import Found
from paleo.measure.executors import Executor
from paleo.measure.validate.least_squares import Prediction
from paleo.step.passes import checked_target

#: The unit that products of a type are taken to run on, where no data sheet says so.
_UNITS = {"fp64": "vector", "fp32": "vector"}
#: A copy of so many times the cache does not profit from it.
_UNCACHED = 4


def base_device(executor: Executor) -> Device | None:
    """Return the device whose data sheet counts, as it is known by the processor's name.

    Of a CPU there is none: how many of its cores are used, and how fast its memory is, no data
    sheet says. Raises HardwareError.
    """
    name = executor.hardware
    if executor.place == "cpu" or "/" in name or name.endswith(".toml"):
        return None
    try:
        return find_device(name)
    except UnknownNameError:
        return None


@dataclass(frozen=True)
class Described:
    """A machine before it is measured: its names, and figures that the system knows.

    `measured` and `read` are the sources of figures.
    """

    name: str
    title: str
    kind: str
    architecture: str
    found: Found
    measured: str
    read: str

    def device(self, samples: Sequence[Sample]) -> Device:
        """Return the device with the rates of these samples.

        Raises ExecutorError where no product or no copy was measured.
        """
        figures = {
            name: Figure(value, FIGURES[name], self.read, note)
            for name, (value, note) in self.found.items()
        }
        figures["memory_bandwidth"] = self._bandwidth(samples)
        dtypes = dict.fromkeys(sample.dtype for sample in samples)
        peaks = {
            dtype: {_UNITS.get(dtype, "matrix"): self._peak(samples, dtype)} for dtype in dtypes
        }
        return Device(
            self.name,
            self.title,
            self.kind,
            self.architecture,
            {name: figures[name] for name in FIGURES if name in figures},
            peaks,
            sources={"calibration": self.measured, "system": self.read},
        )

    def _bandwidth(self, samples: Sequence[Sample]) -> Figure:
        copies = [
            (sum(self._moved(each) for each in sample.operations), sample)
            for sample in samples
            if sample.point.kind == COPY
        ]
        if not copies:
            raise ExecutorError("no copy could be measured, so that the bandwidth is not known")
        cache = self.found["cache"][0] if "cache" in self.found else 0.0
        least = min(_UNCACHED * cache, max(size for size, _ in copies))
        return self._best([each for each in copies if each[0] >= least], "bytes/s")

    def _moved(self, operation: Operation) -> float:
        """Return the bytes that pass the memory: a CPU reads a line before it writes to it."""
        work = operation.work
        times = WRITTEN if self.kind == "cpu" else 1
        return float(work.bytes_read + times * work.bytes_written)

    def _peak(self, samples: Sequence[Sample], dtype: str) -> Figure:
        products = [
            (sum(float(each.flops) for each in sample.operations), sample)
            for sample in samples
            if sample.point.kind == PRODUCT and sample.dtype == dtype
        ]
        if not products:
            raise ExecutorError(f"no product could be measured in {dtype}: its peak is not known")
        return self._best(products, "FLOP/s")

    def _best(self, counted: Sequence[tuple[float, Sample]], unit: str) -> Figure:
        """Return the highest rate, and say of what it is."""
        rate, sample = max(
            ((count / sample.timing.median, sample) for count, sample in counted),
            key=lambda pair: pair[0],
        )
        rounded = float(f"{rate:.5g}")
        part = sample.part.replace("_", " ")
        return Figure(rounded, unit, self.measured, f"{sample.point.what}, {part}")


def prediction(
    of: Sequence[tuple[Sequence[Operation], str, bool]], device: Device
) -> Callable[[Array], Prediction]:
    """Return the predictions of some of the measurements on a device, by the cost model `tiled`.

    Of each there are the operations, the type that they compute in, and whether it is in training.
    """
    model = find_cost_model("tiled")

    def chosen(places: Array) -> Prediction:
        own = [of[place] for place in places.tolist()]

        def predict(values: Mapping[str, Array]) -> Array:
            trials = max((len(each) for each in values.values()), default=1)
            # A single trial in numbers takes a fifth of the time that it takes in arrays.
            constants = (
                {name: float(value[0]) for name, value in values.items()} if trials == 1 else values
            )
            targets = {
                key: replace(
                    checked_target(device, model, key[0]), constants=constants, training=key[1]
                )
                for key in {(dtype, training) for _, dtype, training in own}
            }
            found = np.empty((trials, len(own)))
            for i, (operations, dtype, training) in enumerate(own):
                target = targets[dtype, training]
                seconds = [model.price(each, target).total for each in operations]
                groups = [(each, 1) for each in seconds]
                found[:, i] = total(seconds) + total(handed_over(groups, model.host(target)).waits)
            return found

        return predict

    return chosen
