"""PyTorch: nets and layers run by its own operators, on a CPU, a CUDA device or Apple's GPU.

How tensors lie in memory, and what each layer is, is in `pytorch_plan` and `pytorch_layers`.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from paleo.errors import ExecutorError, Mistake, PaleoError, SettingError
from paleo.executors.base import Executor, LayerRun, NetRun
from paleo.executors.machine import cpu_name, free_memory, keep_freed_memory
from paleo.executors.pytorch_run import RunningLayer, RunningNet
from paleo.graph import Graph, Node
from paleo.quantity import is_array
from paleo.tensor import Precision, find_precision, num_elements

__all__ = ["PyTorch", "products_in"]

_TYPES = {
    "fp64": "float64", "fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16"
}  # fmt: skip
_SEED = 2017
#: How many random numbers are drawn; larger tensors repeat them. A prime, so that rows differ.
_DRAWN = 1_000_003


class PyTorch(Executor):
    """PyTorch's eager mode, as a program has it that sets no option.

    In mixed precision layers run under autocast, with fp32 parameters; gradients are not scaled.
    In tf32 and fp32 the settings of CUDA's libraries are what the type says while something runs.
    """

    name: ClassVar[str] = "torch"
    summary: ClassVar[str] = "PyTorch 2.7 or newer, on a CPU, a CUDA device or Apple's GPU"

    def __init__(self, place: str | None = None, dtype: str = "fp32") -> None:
        try:
            self.torch: Any = importlib.import_module("torch")
        except ImportError:
            raise SettingError(
                'executor torch needs PyTorch; install it with: pip install "paleo[torch]"'
            ) from None
        self._place = _checked_place(self.torch, place)
        if self._place == "cpu":
            keep_freed_memory()
        self.dtype = dtype
        self.precision = _checked_type(dtype, self._place)
        learning = getattr(self.torch, _TYPES[self.precision.learning])
        #: The types of parameters, and of what layers read.
        self.learning: Any = learning
        self.computing: Any = getattr(self.torch, _TYPES[self.precision.computing])
        self._planner: Any = importlib.import_module("paleo.executors.pytorch_plan")
        self._randoms = _Randoms(self.torch, self._place)
        self._plan: tuple[Graph, list[Any]] | None = None

    @property
    def place(self) -> str:
        return self._place

    @property
    def hardware(self) -> str:
        if self._place == "cuda":
            return str(self.torch.cuda.get_device_name())
        return cpu_name()  # Apple's GPU is on the same chip

    @property
    def versions(self) -> Mapping[str, str]:
        torch = self.torch
        found = {"torch": str(torch.__version__)}
        built = torch.__config__.show()
        libraries = {"mkl": r"Math Kernel Library Version (\S+?)-", "onednn": r"MKL-DNN v(\S+)"}
        for name, pattern in libraries.items():
            match = re.search(pattern, built)
            if match:
                found[name] = match[1]
        if self._place == "cuda":
            for name, version in (("cuda", torch.version.cuda), ("rocm", torch.version.hip)):
                if version:
                    found[name] = str(version)
            cudnn = torch.backends.cudnn.version()
            if cudnn:  # 91002 is 9.10.2
                major, rest = divmod(cudnn, 10_000 if cudnn >= 90_000 else 1_000)
                found["cudnn"] = f"{major}.{rest // 100}.{rest % 100}"
        return found

    def layer(self, graph: Graph, node: Node, needed: tuple[bool, ...]) -> LayerRun:
        planned = self._planned(graph)[node.index]
        if isinstance(planned, PaleoError):
            raise planned
        self.check_memory(self._layer_bytes(graph, node), node.name)
        parents = [self._value(graph, parent) for parent in node.parents]
        return RunningLayer(self, planned, parents, needed).ready()

    def net(self, graph: Graph) -> NetRun:
        found = self._planned(graph)
        mistakes = [each for error in found if isinstance(error, PaleoError)
                    for each in error.mistakes]  # fmt: skip
        if mistakes:
            raise ExecutorError(mistakes)
        return RunningNet(self, graph, found)

    def synchronize(self) -> None:
        if self._place == "cuda":
            self.torch.cuda.synchronize()
        elif self._place == "mps":
            self.torch.mps.synchronize()

    # Plans

    def _planned(self, graph: Graph) -> list[Any]:
        """Return what each node runs; that of the last graph is kept."""
        if is_array(graph.batch_size):
            raise SettingError("executor torch runs a net at one batch size, not at an array")
        if self._plan is None or self._plan[0] is not graph:
            self._plan = (graph, self._planner.plan(graph, self.learning))
        return self._plan[1]

    def _value(self, graph: Graph, index: int) -> Any:
        found = self._planned(graph)[index]
        if not isinstance(found, PaleoError):
            return found.value
        return self._planner.unbuilt(graph.nodes[index], self.learning)

    # Memory

    def free_memory(self) -> int | None:
        """Return the bytes that are free where it runs, None where that is unknown."""
        if self._place == "cuda":
            free, _ = self.torch.cuda.mem_get_info()
            reserved = self.torch.cuda.memory_reserved() - self.torch.cuda.memory_allocated()
            return int(free + reserved)
        return free_memory()

    def check_memory(self, needed: float, layer: str | None = None, *, have: int = 0) -> None:
        """Raise ExecutorError if `needed` bytes, of which `have` are taken, are not free."""
        free = self.free_memory()
        if free is not None and needed > free + have:
            what = "it" if layer is not None else "the net"
            raise ExecutorError(
                Mistake(
                    f"{what} needs {needed / 2**30:.3g} GiB, {free / 2**30:.3g} GiB are free",
                    layer=layer,
                )
            )

    def _layer_bytes(self, graph: Graph, node: Node) -> int:
        """Return the bytes of a layer's tensors, of their gradients and of what it keeps."""
        size, learned = graph.element_size, graph.precision.parameter_size
        needed = (True,) * len(node.inputs)
        kept = node.layer.keeps(node.inputs, size, needed)
        tensors = size * sum(map(num_elements, (*node.inputs, node.output)))
        own = kept.own + kept.saved + max(kept.forward, kept.backward)
        parameters = node.layer.num_params(node.inputs)
        return int(2 * tensors + own + 2 * learned * parameters)

    # Tensors

    def tensor(self, value: Any, dtype: Any = None) -> Any:
        """Return random elements in the shape and in the order in memory of a value's tensor.

        Numbers are of a `dtype`, by default that which layers read.
        """
        like = value.tensor
        span = 1 + sum((n - 1) * s for n, s in zip(like.shape, like.stride(), strict=True))
        if like.is_floating_point():
            flat = self._randoms.normal(span, dtype or self.computing)
        elif like.dtype is self.torch.bool:
            flat = self._randoms.normal(span, self.learning) > 0
        else:
            flat = self._randoms.below(span, value.limit or 1)
        return flat.as_strided(like.shape, like.stride())

    def held(self, stage: Any) -> list[Any]:
        """Return what a stage of a layer holds: parameters, statistics, constants."""
        made = [self.made(each) for each in stage.held]
        if stage.finish is not None:
            stage.finish(made)
        return made

    def learnt(self, held: Sequence[Sequence[Any]]) -> list[Any]:
        """Return the parameters among what the stages of a layer hold."""
        return [
            each
            for tensors in held
            for each in tensors
            if isinstance(each, self.torch.Tensor) and each.requires_grad
        ]

    def made(self, held: Any) -> Any:
        """Return one tensor of those that a layer holds, as it begins."""
        torch, place = self.torch, self._place
        if held.is_generator:
            # On CUDA PyTorch's own dropout is one kernel, which draws from its own source.
            return None if place == "cuda" else torch.Generator(place).manual_seed(_SEED)
        if held.numbers is not None:
            return held.numbers.to(place)
        if held.fill is not None:
            made = torch.full(held.shape, float(held.fill), dtype=self.learning, device=place)
        else:
            flat = self._randoms.normal(math.prod(held.shape), self.learning)
            made = flat.mul_((2 / held.fan_in) ** 0.5).view(held.shape)
        return made.requires_grad_(held.learns)

    def normal(self, count: int, dtype: Any) -> Any:
        """Return so many random numbers of mean 0 and variance 1."""
        return self._randoms.normal(count, dtype)

    # Running

    @contextlib.contextmanager
    def computing_as_asked(self, draws: bool) -> Iterator[None]:
        """Compute in the element type that was asked for, for a while.

        Where CUDA's own random numbers are drawn, their source is left as it was.
        """
        if self._place != "cuda":
            yield
            return
        with contextlib.ExitStack() as stack:
            if self.dtype in ("fp32", "tf32"):
                stack.enter_context(products_in(self.torch, self.dtype == "tf32"))
            if draws:
                state = self.torch.cuda.get_rng_state()
                stack.callback(self.torch.cuda.set_rng_state, state)
            yield

    def autocast(self) -> Any:
        """Return the context of mixed precision for a forward pass."""
        if self.precision.is_mixed:
            return self.torch.autocast(self._place, dtype=self.computing)
        return contextlib.nullcontext()

    def error(self, error: Exception, layer: str | None) -> ExecutorError:
        """Return what PyTorch raised as an error of one line."""
        text = str(error).strip().partition("\n")[0]
        lacks = isinstance(error, self.torch.OutOfMemoryError | MemoryError)
        if lacks or "out of memory" in text or "can't allocate memory" in text:
            free = self.free_memory()
            left = "" if free is None else f", {free / 2**30:.3g} GiB are free"
            what = "its tensors do" if layer is not None else "the net does"
            return ExecutorError(Mistake(f"{what} not fit in memory{left}", layer=layer))
        return ExecutorError(Mistake(f"PyTorch cannot run it: {text}", layer=layer))


def _checked_place(torch: Any, place: str | None) -> str:
    there = ["cpu"]
    if torch.backends.mps.is_available():
        there.insert(0, "mps")
    if torch.cuda.is_available():
        there.insert(0, "cuda")
    if place is None:
        return there[0]
    if place in there:
        return place
    names = {"cuda": "no CUDA device", "mps": "no GPU of Apple's"}
    why = names.get(place, f"unknown place {place!r}")
    raise SettingError(f"executor torch: {why}; places here: {', '.join(there)}")


def _checked_type(dtype: str, place: str) -> Precision:
    precision = find_precision(dtype)
    if precision.computing not in _TYPES:
        raise SettingError(f"executor torch cannot compute a net in {dtype}")
    if dtype == "tf32" and place != "cuda":
        raise SettingError(f"executor torch: tf32 is a type of CUDA devices, not of {place}")
    if dtype == "fp64" and place == "mps":
        raise SettingError("executor torch: GPUs of Apple's have no fp64")
    return precision


@contextlib.contextmanager
def products_in(torch: Any, tf32: bool) -> Iterator[None]:
    """Have CUDA's libraries round the operands of fp32 products to tf32, or not, for a while.

    By the settings of each kind of product, where there are such: those can be restored exactly.
    """
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    if hasattr(cudnn, "conv"):  # since PyTorch 2.9
        places: list[Any] = [(each, "fp32_precision") for each in (matmul, cudnn.conv, cudnn.rnn)]
        wanted: Any = "tf32" if tf32 else "ieee"
    else:
        places, wanted = [(matmul, "allow_tf32"), (cudnn, "allow_tf32")], tf32
    before = [getattr(place, name) for place, name in places]
    try:
        for place, name in places:
            setattr(place, name, wanted)
        yield
    finally:
        for (place, name), value in zip(places, before, strict=True):
            setattr(place, name, value)


class _Randoms:
    """Random numbers of a fixed seed, drawn once: a tensor repeats them as often as it takes."""

    def __init__(self, torch: Any, place: str) -> None:
        self._torch, self._place = torch, place
        self._generator = torch.Generator().manual_seed(_SEED)
        self._pool = torch.randn(_DRAWN, generator=self._generator).to(place)

    def normal(self, count: int, dtype: Any) -> Any:
        """Return numbers of mean 0 and variance 1, from anywhere among those drawn."""
        made = self._torch.empty(count, dtype=dtype, device=self._place)
        begin = int(self._torch.randint(_DRAWN, (), generator=self._generator))
        first = min(count, _DRAWN - begin)
        made[:first].copy_(self._pool[begin : begin + first])
        whole, rest = divmod(count - first, _DRAWN)
        if whole:
            made[first : first + whole * _DRAWN].view(whole, -1).copy_(self._pool)
        made[count - rest :].copy_(self._pool[:rest])
        return made

    def below(self, count: int, limit: int) -> Any:
        """Return whole numbers from 0 up to, without, a limit."""
        return self._torch.randint(limit, (count,), generator=self._generator).to(self._place)
