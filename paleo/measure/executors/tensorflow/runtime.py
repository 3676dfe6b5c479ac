"""What runs on TensorFlow: random tensors, its places, its memory, its errors."""

from __future__ import annotations

import contextlib
import functools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from paleo.core.errors import ExecutorError, Mistake
from paleo.core.quiet import no_stderr
from paleo.measure.executors.framework import DRAWN, SEED, Framework
from paleo.measure.executors.tensorflow.builders import Parameter, UnbuildableError
from paleo.net.graph import Node

#: How far apart among the numbers that are drawn different tensors begin.
_STRIDE = 99_991
_DEVICES = {"cpu": "/CPU:0", "cuda": "/GPU:0"}


class TensorFlowRuntime(Framework):
    """TensorFlow at one place in one element type: what layers and nets need while they run."""

    title: ClassVar[str] = "TensorFlow"
    module: ClassVar[str] = "tensorflow"
    lacks: ClassVar[Mapping[str, str]] = {
        "cuda": "TensorFlow finds no CUDA device",
        "mps": "it does not run on Apple's GPUs",
    }

    def __init__(self, place: str | None = None, dtype: str = "fp32") -> None:
        super().__init__(place, dtype)
        self.tf = self.library
        if self.place == "cuda":
            self.tf.config.experimental.enable_tensor_float_32_execution(dtype == "tf32")
            with contextlib.suppress(RuntimeError):  # whoever used them before has said how
                for gpu in self._gpus:
                    self.tf.config.experimental.set_memory_growth(gpu, True)

    def _imported(self) -> Any:
        with no_stderr():
            return super()._imported()

    def _places(self) -> list[str]:
        self._gpus = self.library.config.list_physical_devices("GPU")
        return ["cuda", "cpu"] if self._gpus else ["cpu"]

    def _gpu_name(self) -> str:
        details = self.tf.config.experimental.get_device_details(self._gpus[0])
        return str(details.get("device_name", "GPU"))

    @property
    def versions(self) -> Mapping[str, str]:
        found = {"tensorflow": str(self.tf.__version__)}
        if self.place == "cuda":
            built = self.tf.sysconfig.get_build_info()
            for name in ("cuda", "cudnn"):
                if f"{name}_version" in built:
                    found[name] = str(built[f"{name}_version"])
        return found

    def synchronize(self) -> None:
        if self.place == "cuda":  # what runs on the CPU is done when its call returns
            self.tf.test.experimental.sync_devices()

    def free_memory(self) -> int | None:
        # TensorFlow does not say what is free on a GPU: there it is seen when it runs.
        return None if self.place == "cuda" else super().free_memory()

    def on_device(self) -> contextlib.AbstractContextManager[object]:
        """Place operators where this executor runs, where there is a choice."""
        if not self._gpus:
            return contextlib.nullcontext()
        device: contextlib.AbstractContextManager[object] = self.tf.device(_DEVICES[self.place])
        return device

    @contextlib.contextmanager
    def telling(self, node: Node | None = None) -> Iterator[None]:
        """Turn what TensorFlow raises into an ExecutorError, of a layer or of the whole net."""
        errors = self.tf.errors
        layer = None if node is None else node.name
        what = "the net" if node is None else node.type_name
        try:
            yield
        except (errors.ResourceExhaustedError, MemoryError):
            why = "its tensors do not fit in memory"
        except (UnbuildableError, errors.OpError, ValueError, TypeError) as error:
            why = _reason(error)
        else:
            return
        raise ExecutorError(Mistake(f"executor tensorflow cannot run {what}: {why}", layer=layer))

    def random(self, shape: Sequence[Any], seed: int, limit: int | None = None) -> Any:
        """Return random numbers, always the same; whole ones below `limit` if there is one."""
        tf = self.tf
        if limit is not None:
            return tf.random.stateless_uniform(shape, (seed, 0), maxval=limit, dtype=tf.int64)
        return tf.cast(self._normal(shape, seed), self.computing)

    def values(self, parameters: Sequence[Parameter]) -> list[Any]:
        """Return what parameters or statistics begin as."""
        tf = self.tf
        return [
            tf.cast(
                self._normal(each.shape, i) * (2 / each.fan_in) ** 0.5
                if each.fan_in
                else tf.fill(each.shape, each.start),
                self.learning,
            )
            for i, each in enumerate(parameters)
        ]

    @functools.cached_property
    def _pool(self) -> Any:
        return self.tf.random.stateless_normal((DRAWN,), (SEED, 0))

    def _normal(self, shape: Sequence[int], seed: int) -> Any:
        """Return numbers of mean 0 and variance 1, another part of those drawn for each seed."""
        count, begin = math.prod(shape), seed * _STRIDE % DRAWN
        flat = self.tf.tile(self._pool, [-(-(begin + count) // DRAWN)])
        return self.tf.reshape(flat[begin : begin + count], shape)


#: Of an error's text: which operator and function it is of, and where in a program.
_PLACES = re.compile(r"\{\{.*?\}\}|\[\[.*?\]\]|\[Op:.*")
_STACK = re.compile(r" |Graph execution error|Detected at")
_TRACING = "in user code:"


def _reason(error: Exception) -> str:
    """Return the line of an error that says what is wrong."""
    text = _PLACES.sub("", str(getattr(error, "message", None) or error))
    lines = [line for line in text.splitlines() if line.strip()]
    if text.startswith(_TRACING):  # a stack of calls, and the error
        return lines[-1].strip()
    told = [line for line in lines if not _STACK.match(line)] or lines or [type(error).__name__]
    return told[0].strip()
