"""What runs on PyTorch: its tensors with random elements, its memory, its settings, its errors."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from paleo.core.errors import ExecutorError, Mistake
from paleo.core.tensor import num_elements
from paleo.measure.executors.framework import DRAWN, SEED, Framework
from paleo.net.graph import Graph, Node

#: What PyTorch raises where it cannot do what it is asked to.
FAULTS = (RuntimeError, ValueError, TypeError, IndexError, MemoryError)


class TorchRuntime(Framework):
    """PyTorch at one place in one element type: what layers and nets need while they run."""

    title: ClassVar[str] = "PyTorch"
    module: ClassVar[str] = "torch"
    lacks: ClassVar[Mapping[str, str]] = {"cuda": "no CUDA device", "mps": "no GPU of Apple's"}

    def __init__(self, place: str | None = None, dtype: str = "fp32") -> None:
        super().__init__(place, dtype)
        self.torch = self.library
        self._randoms = _Randoms(self.torch, self.place)

    def _places(self) -> list[str]:
        torch = self.library
        has = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
        return [*(place for place, there in has.items() if there), "cpu"]

    def _gpu_name(self) -> str:
        return str(self.torch.cuda.get_device_name())

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
        if self.place == "cuda":
            for name, version in (("cuda", torch.version.cuda), ("rocm", torch.version.hip)):
                if version:
                    found[name] = str(version)
            cudnn = torch.backends.cudnn.version()
            if cudnn:  # 91002 is 9.10.2
                major, rest = divmod(cudnn, 10_000 if cudnn >= 90_000 else 1_000)
                found["cudnn"] = f"{major}.{rest // 100}.{rest % 100}"
        return found

    def synchronize(self) -> None:
        if self.place == "cuda":
            self.torch.cuda.synchronize()
        elif self.place == "mps":
            self.torch.mps.synchronize()

    # Memory

    def free_memory(self) -> int | None:
        if self.place == "cuda":
            free, _ = self.torch.cuda.mem_get_info()
            reserved = self.torch.cuda.memory_reserved() - self.torch.cuda.memory_allocated()
            return int(free + reserved)
        return super().free_memory()

    def layer_bytes(self, graph: Graph, node: Node) -> int:
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
        torch, place = self.torch, self.place
        if held.is_generator:
            # On CUDA PyTorch's own dropout is one kernel, which draws from its own source.
            return None if place == "cuda" else torch.Generator(place).manual_seed(SEED)
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
        if self.place != "cuda":
            yield
            return
        with contextlib.ExitStack() as stack:
            if self.dtype in ("fp32", "tf32"):
                stack.enter_context(products_in(self.torch, self.dtype == "tf32"))
            if draws:
                state = self.torch.cuda.get_rng_state()
                stack.callback(self.torch.cuda.set_rng_state, state)
            yield

    @contextlib.contextmanager
    def telling(self, layer: str) -> Iterator[None]:
        """Turn what PyTorch raises into an error that names the layer."""
        try:
            yield
        except FAULTS as error:
            raise self.error(error, layer) from None

    def guarded(
        self,
        run: Callable[[], object],
        layer: str,
        draws: bool = False,
        after_fault: Callable[[], object] = lambda: None,
    ) -> Callable[[], object]:
        """Return what runs in the element type that was asked for; errors name the layer."""

        def guarded() -> object:
            try:
                if self.place == "cpu":  # small layers take microseconds: nothing around them
                    return run()
                with self.computing_as_asked(draws):
                    return run()
            except FAULTS as error:
                after_fault()
                raise self.error(error, layer) from None

        return guarded

    def autocast(self) -> Any:
        """Return the context of mixed precision for a forward pass."""
        if self.precision.is_mixed:
            return self.torch.autocast(self.place, dtype=self.computing)
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
        self._generator = torch.Generator().manual_seed(SEED)
        self._pool = torch.randn(DRAWN, generator=self._generator).to(place)

    def normal(self, count: int, dtype: Any) -> Any:
        """Return numbers of mean 0 and variance 1, from anywhere among those drawn."""
        made = self._torch.empty(count, dtype=dtype, device=self._place)
        begin = int(self._torch.randint(DRAWN, (), generator=self._generator))
        first = min(count, DRAWN - begin)
        made[:first].copy_(self._pool[begin : begin + first])
        whole, rest = divmod(count - first, DRAWN)
        if whole:
            made[first : first + whole * DRAWN].view(whole, -1).copy_(self._pool)
        made[count - rest :].copy_(self._pool[:rest])
        return made

    def below(self, count: int, limit: int) -> Any:
        """Return whole numbers from 0 up to, without, a limit."""
        return self._torch.randint(limit, (count,), generator=self._generator).to(self._place)
