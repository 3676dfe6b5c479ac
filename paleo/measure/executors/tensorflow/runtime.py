"""TensorFlow 2 as an executor: graphs of its own operators, on CPUs and NVIDIA's GPUs.

What each layer is, is in `tensorflow_layers` and `tensorflow_elements`; how layers and nets are
traced and run, in `tensorflow_run`.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import math
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from paleo.errors import ExecutorError, Mistake, Mistakes, SettingError
from paleo.executors import tensorflow_elements, tensorflow_layers
from paleo.executors.base import Executor, LayerRun, NetRun
from paleo.executors.machine import cpu_name, free_memory, keep_freed_memory
from paleo.executors.tensorflow_blocks import Block, Parameter, UnbuildableError, block_of
from paleo.executors.tensorflow_run import RunningLayer, RunningNet, running_parameter
from paleo.graph import Graph, Node
from paleo.layers import shaping
from paleo.quantity import is_array
from paleo.tensor import Precision, find_precision, num_elements

__all__ = ["TensorFlow"]
del tensorflow_elements, tensorflow_layers  # imported for what they register

_TYPES = {
    "fp64": "float64", "fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16"
}  # fmt: skip
_SEED = 2017
#: How many random numbers are drawn; larger tensors repeat them. A prime, so that rows differ.
_DRAWN = 1_000_003
#: How far apart in them different tensors begin.
_STRIDE = 99_991
#: The file of standard error.
_STDERR = 2
_DEVICES = {"cpu": "/CPU:0", "cuda": "/GPU:0"}


class TensorFlow(Executor):
    """TensorFlow's graphs, as a tf.function makes them; XLA is not used.

    In mixed precision parameters are fp32, and each layer casts those that it reads; gradients are
    not scaled. On a GPU, memory is taken as it is needed, and products of fp32 are rounded to tf32
    only if that is the element type; both hold for the whole process.
    """

    name: ClassVar[str] = "tensorflow"
    summary: ClassVar[str] = "TensorFlow 2.16 or newer, on a CPU or a CUDA device"

    def __init__(self, place: str | None = None, dtype: str = "fp32") -> None:
        try:
            with _quiet():
                self.tf: Any = importlib.import_module("tensorflow")
        except ImportError:
            raise SettingError(
                "executor tensorflow needs TensorFlow; install it with: "
                'pip install "paleo[tensorflow]"'
            ) from None
        gpus = self.tf.config.list_physical_devices("GPU")
        self._place = _checked_place(place, bool(gpus))
        self.precision = _checked_type(dtype, self._place)
        self._has_gpu = bool(gpus)
        self._gpu = gpus[0] if self._place == "cuda" else None
        if self._gpu is None:
            keep_freed_memory()
        else:
            self.tf.config.experimental.enable_tensor_float_32_execution(dtype == "tf32")
            with contextlib.suppress(RuntimeError):  # whoever used them before has said how
                for gpu in gpus:
                    self.tf.config.experimental.set_memory_growth(gpu, True)
        #: The types of parameters, and of what layers read.
        self.learning: Any = self.tf.as_dtype(_TYPES[self.precision.learning])
        self.computing: Any = self.tf.as_dtype(_TYPES[self.precision.computing])

    @property
    def place(self) -> str:
        return self._place

    @property
    def hardware(self) -> str:
        if self._gpu is None:
            return cpu_name()
        details = self.tf.config.experimental.get_device_details(self._gpu)
        return str(details.get("device_name", "GPU"))

    @property
    def versions(self) -> Mapping[str, str]:
        found = {"tensorflow": str(self.tf.__version__)}
        if self._gpu is not None:
            built = self.tf.sysconfig.get_build_info()
            for name in ("cuda", "cudnn"):
                if f"{name}_version" in built:
                    found[name] = str(built[f"{name}_version"])
        return found

    def layer(self, graph: Graph, node: Node, needed: tuple[bool, ...]) -> LayerRun:
        """Return a layer in training, each pass run once.

        A pass that moves nothing is missing: TensorFlow's reshapes are views. A time has in it
        what the call of an operator from Python takes, some ten microseconds.
        """
        _check_batch(graph)
        if node.layer.is_input:
            return LayerRun({})
        with self.telling(node), self.on_device():
            if isinstance(node.layer, shaping.Parameter):
                self.check_memory(_layer_bytes(graph, node, 0), node.name)
                return running_parameter(self, node)
            block = self.block(node)
            self.check_memory(_layer_bytes(graph, node, block.makes), node.name)
            return RunningLayer(self, node, block, needed).ready()

    def net(self, graph: Graph) -> NetRun:
        """Return a whole net; its graphs are traced when they are first run."""
        _check_batch(graph)
        mistakes = Mistakes()
        blocks = [
            None
            if isinstance(node.layer, shaping.Input | shaping.Parameter)
            else mistakes.check(self.block, node)
            for node in graph.nodes
        ]
        mistakes.raise_as(ExecutorError)
        return RunningNet(self, graph, blocks)

    def synchronize(self) -> None:
        if self._gpu is not None:  # what runs on the CPU is done when its call returns
            self.tf.test.experimental.sync_devices()

    def block(self, node: Node) -> Block:
        """Return what a node is; raises ExecutorError."""
        inputs: Any = node.inputs  # whole numbers: the batch is no array
        with self.telling(node):
            return block_of(node.layer, inputs)

    def on_device(self) -> contextlib.AbstractContextManager[object]:
        """Place operators where this executor runs, where there is a choice."""
        if not self._has_gpu:
            return contextlib.nullcontext()
        device: contextlib.AbstractContextManager[object] = self.tf.device(_DEVICES[self._place])
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

    def check_memory(self, needed: float, layer: str | None = None, *, have: int = 0) -> None:
        """Raise ExecutorError if `needed` bytes, of which `have` are taken, are not free.

        TensorFlow does not say what is free on a GPU, so there it is seen when it runs.
        """
        free = free_memory() if self._gpu is None else None
        if free is not None and needed > free + have:
            what = "the net" if layer is None else "it"
            raise ExecutorError(
                Mistake(
                    f"{what} needs {needed / 2**30:.3g} GiB, {free / 2**30:.3g} GiB are free",
                    layer=layer,
                )
            )

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
        return self.tf.random.stateless_normal((_DRAWN,), (_SEED, 0))

    def _normal(self, shape: Sequence[int], seed: int) -> Any:
        """Return numbers of mean 0 and variance 1, another part of those drawn for each seed."""
        count, begin = math.prod(shape), seed * _STRIDE % _DRAWN
        flat = self.tf.tile(self._pool, [-(-(begin + count) // _DRAWN)])
        return self.tf.reshape(flat[begin : begin + count], shape)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Drop what is written to standard error for a while.

    When TensorFlow is imported, its libraries say there that they use oneDNN, and no setting keeps
    them from it.
    """
    if sys.stderr is not None:
        sys.stderr.flush()
    try:
        kept = os.dup(_STDERR)
    except OSError:  # there is none
        yield
        return
    try:
        with open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), _STDERR)
        yield
    finally:
        os.dup2(kept, _STDERR)
        os.close(kept)


def _check_batch(graph: Graph) -> None:
    if is_array(graph.batch_size):
        raise SettingError("executor tensorflow runs a net at one batch size, not at an array")


def _checked_place(place: str | None, has_gpu: bool) -> str:
    there = ["cuda", "cpu"] if has_gpu else ["cpu"]
    if place is None:
        return there[0]
    if place in there:
        return place
    names = {"cuda": "TensorFlow finds no CUDA device", "mps": "it does not run on Apple's GPUs"}
    why = names.get(place, f"unknown place {place!r}")
    raise SettingError(f"executor tensorflow: {why}; places here: {', '.join(there)}")


def _checked_type(dtype: str, place: str) -> Precision:
    precision = find_precision(dtype)
    if precision.computing not in _TYPES:
        raise SettingError(f"executor tensorflow cannot compute a net in {dtype}")
    if dtype == "tf32" and place != "cuda":
        raise SettingError(f"executor tensorflow: tf32 is a type of CUDA devices, not of {place}")
    return precision


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


def _layer_bytes(graph: Graph, node: Node, makes: int) -> int:
    """Return the bytes of a layer's tensors and parameters, and of their gradients."""
    elements = makes + sum(map(num_elements, (*node.inputs, node.output)))
    parameters = node.layer.num_params(node.inputs)
    return int(2 * (graph.element_size * elements + graph.precision.parameter_size * parameters))
