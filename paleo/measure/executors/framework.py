"""What the executors of whole frameworks have in common: places, types, memory, constants."""

from __future__ import annotations

import importlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from paleo.core.errors import ExecutorError, Mistake, SettingError
from paleo.core.quantity import is_array
from paleo.core.tensor import find_precision
from paleo.measure.executors.executor import Executor
from paleo.measure.executors.host import cpu_name, free_memory, keep_freed_memory
from paleo.net.graph import Graph

#: What frameworks call the element types that they compute nets in.
_TYPES = {
    "fp64": "float64", "fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16"
}  # fmt: skip
#: Of random numbers, which are the same in every run.
SEED = 2017
#: How many random numbers are drawn; larger tensors repeat them. A prime, so that rows differ.
DRAWN = 1_000_003
#: So small that parameters stay what they are, however many steps are run.
LEARNING_RATE = 1e-6


class Framework(Executor):
    """A framework with tensors of its own, on one of the places that it finds on this machine."""

    #: The name that it goes by, and of its module and the extra that installs it.
    title: ClassVar[str]
    module: ClassVar[str]
    #: Why it does not run at a place that it knows.
    lacks: ClassVar[Mapping[str, str]]

    def __init__(self, place: str | None = None, dtype: str = "fp32") -> None:
        self.library: Any = self._imported()
        places = self._places()
        if place is not None and place not in places:
            why = self.lacks.get(place, f"unknown place {place!r}")
            raise SettingError(f"executor {self.name}: {why}; places here: {', '.join(places)}")
        self.place = place or places[0]
        self.dtype = dtype
        self.precision = find_precision(dtype)
        if self.precision.multiplying not in _TYPES:
            raise SettingError(f"executor {self.name} cannot compute a net in {dtype}")
        if dtype == "tf32" and self.place != "cuda":
            raise SettingError(
                f"executor {self.name}: tf32 is a type of CUDA devices, not of {self.place}"
            )
        if dtype == "fp64" and self.place == "mps":
            raise SettingError(f"executor {self.name}: GPUs of Apple's have no fp64")
        if self.place == "cpu":
            keep_freed_memory()
        #: The types of parameters, and of what layers read.
        self.learning: Any = getattr(self.library, _TYPES[self.precision.learning])
        self.computing: Any = getattr(self.library, _TYPES[self.precision.computing])

    def _imported(self) -> Any:
        """Return the framework's module; raises SettingError where it is not installed."""
        try:
            return importlib.import_module(self.module)
        except ImportError:
            raise SettingError(
                f"executor {self.name} needs {self.title}; install it with: "
                f'pip install "paleo[{self.module}]"'
            ) from None

    @abstractmethod
    def _places(self) -> Sequence[str]:
        """Return the places that there are, the best first."""

    @abstractmethod
    def _gpu_name(self) -> str:
        """Return the name of the CUDA device."""

    @property
    def hardware(self) -> str:
        # Apple's GPU is on the same chip as the CPU.
        return self._gpu_name() if self.place == "cuda" else cpu_name()

    def free_memory(self) -> int | None:
        """Return the bytes that are free where it runs, None where that is unknown."""
        return free_memory()

    def check_memory(self, needed: float, layer: str | None = None, *, have: int = 0) -> None:
        """Raise ExecutorError if `needed` bytes, of which `have` are taken, are not free."""
        free = self.free_memory()
        if free is not None and needed > free + have:
            what = "the net" if layer is None else "it"
            raise ExecutorError(
                Mistake(
                    f"{what} needs {needed / 2**30:.3g} GiB, {free / 2**30:.3g} GiB are free",
                    layer=layer,
                )
            )

    def check_batch(self, graph: Graph) -> None:
        """Raise SettingError if a graph is of several batch sizes."""
        if is_array(graph.batch_size):
            raise SettingError(
                f"executor {self.name} runs a net at one batch size, not at an array"
            )


def ends(graph: Graph) -> list[int]:
    """Return the nodes that nobody reads."""
    inner = {parent for node in graph.nodes for parent in node.parents}
    return [node.index for node in graph.nodes if node.index not in inner]
