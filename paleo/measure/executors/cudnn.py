"""Single convolutions through PyTorch's cuDNN, each pass with the algorithm that it takes.

The algorithm is told by the names of the kernels that run, as PyTorch's profiler gives them. The
names below are those in libcudnn_engines_precompiled of the wheel nvidia-cudnn-cu12 9.28.0.42.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any, ClassVar

from paleo.core.errors import ExecutorError, Mistake, SettingError
from paleo.core.frozen import NamedTuple
from paleo.core.operations import LAYER_PASSES, Convolution, Pass
from paleo.costs.convolutions import ALGORITHMS
from paleo.costs.convolutions.cudnn import pads
from paleo.measure.executors.executor import LayerRun, NetRun
from paleo.measure.executors.torch.executor import PyTorch
from paleo.net.graph import Graph, Node
from paleo.net.layers.convolution import Filtered


class Kernel(NamedTuple):
    """What ran on the GPU, and for how long."""

    name: str
    seconds: float


#: What tells an algorithm by the name of one of its kernels; of several that do, the first. Those
#: with transforms or a matrix in memory come before the products that they contain.
_TOLD_BY: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"winograd\w*5x5", ("winograd_5x5",)),
    (r"winograd\w*4x4", ("winograd_4x4",)),
    (r"winograd", ("winograd_2x2",)),
    (r"fft\dd_\w*32x32", ("tiled_fft", "fft")),
    (r"fft", ("fft",)),
    (r"grouped_direct|depthwise", ("direct",)),
    (r"explicit_convolve|im2col", ("explicit_gemm",)),
    (r"strided_dgrad", ("phased_gemm", "implicit_gemm")),
    (r"precomputed_convolve|_indexed|dgrad\w*_alg1", ("precomputed_gemm",)),
    (r"dgrad_engine", ("scattered_gemm",)),
    (r"implicit_convolve|implicit_gemm|[dw]grad_optimized|[dw]grad_analytic", ("implicit_gemm",)),
    (r"wgrad\w*_alg[01]|convolve_common_engine", ("implicit_gemm",)),
    (r"gemm", ("gemm_1x1",)),
)
#: The side of a tile of Fourier transforms.
_TILE = 32


def algorithm_of(kernels: Sequence[Kernel], operation: Convolution) -> str:
    """Return by which algorithm a pass was computed whose kernels these are.

    It is one of paleo.costs.convolutions.ALGORITHMS where the names of kernels tell, else the
    name of the kernel that took longest; "" where nothing ran.
    """
    for pattern, names in _TOLD_BY:
        if any(re.search(pattern, kernel.name) for kernel in kernels):
            for name in names:
                if _may_be(name, operation):
                    return name
    longest = max(kernels, key=lambda kernel: kernel.seconds, default=Kernel("", 0.0))
    return _plain(longest.name)


def _may_be(name: str, operation: Convolution) -> bool:
    if name == "tiled_fft" and all(
        axis.size + axis.total_padding <= _TILE for axis in operation.axes
    ):
        return False  # the whole image is one tile
    # A kernel of a product or of direct sums is that, for whatever it is used.
    return name not in ("gemm_1x1", "phased_gemm") or ALGORITHMS[name].applies(operation)


def _plain(name: str) -> str:
    """Return the name of a kernel without its types and arguments."""
    return re.sub(r"[<(].*", "", name.removeprefix("void ")).strip()


class Cudnn(PyTorch):
    """Convolutions alone, in PyTorch's order of memory: N x C x H x W.

    What a layer has besides (bias, normalization, activation) does not run. PyTorch leaves the
    choice of the algorithm to cuDNN's heuristics, unless a program sets
    torch.backends.cudnn.benchmark, and computes some depthwise convolutions by kernels of its own.
    """

    name: ClassVar[str] = "cudnn"
    summary: ClassVar[str] = "single convolutions through PyTorch's cuDNN, the algorithm named"

    def __init__(self, place: str | None = None, dtype: str = "fp32") -> None:
        if place not in (None, "cuda"):
            raise SettingError(f"executor cudnn runs on cuda, not on {place}")
        torch = self._imported()
        if not torch.cuda.is_available():
            raise SettingError("executor cudnn: PyTorch finds no CUDA device")
        if torch.version.hip or not torch.backends.cudnn.is_available():
            raise SettingError("executor cudnn: this PyTorch has no cuDNN")
        super().__init__("cuda", dtype)

    def layer(self, graph: Graph, node: Node, needed: tuple[bool, ...]) -> LayerRun:
        """Return the convolution of a layer; raises ExecutorError for any other layer."""
        if not isinstance(node.layer, Filtered):
            raise ExecutorError(Mistake("executor cudnn runs convolutions only", layer=node.name))
        self.check_memory(self.layer_bytes(graph, node), node.name)
        # Of a deconvolution, each pass is another one of a convolution.
        operations = {
            direction: operation
            for direction in LAYER_PASSES
            for operation in graph.operations(node, direction)
            if isinstance(operation, Convolution)
        }
        with self.telling(node.name), self.computing_as_asked(False):
            runs = self._runs(operations[Pass.FORWARD])
            if not needed[0]:
                del runs[Pass.INPUT_GRADIENT]
            algorithms = {
                direction: algorithm_of(_kernels(self.torch, run), operations[direction])
                for direction, run in runs.items()
            }
        return LayerRun(
            {direction: self.guarded(run, node.name) for direction, run in runs.items()},
            algorithms={direction: name for direction, name in algorithms.items() if name},
        )

    def net(self, graph: Graph) -> NetRun:
        """Raise ExecutorError: there is more to a net than its convolutions."""
        raise ExecutorError("executor cudnn runs single convolutions, no whole nets")

    def _runs(self, operation: Convolution) -> dict[Pass, Callable[[], object]]:
        """Return what computes each pass of a layer whose forward pass is this.

        If that is transposed, the convolution described goes from the layer's output to its input.
        """
        aten = self.torch.ops.aten
        padding = [pads(axis) for axis in operation.axes]
        n, c, k = int(operation.batch), operation.in_channels, operation.out_channels
        large = [
            int(axis.size) + more for axis, (_, more) in zip(operation.axes, padding, strict=True)
        ]
        small = [int(axis.output) for axis in operation.axes]
        image, output = self._tensor(n, c, *large), self._tensor(n, k, *small)
        window = (axis.window for axis in operation.axes)
        filters = self._tensor(k, c // operation.groups, *window)
        both = [each for each, _ in padding]
        strides = [axis.stride for axis in operation.axes]
        dilations = [axis.dilation for axis in operation.axes]
        left = [0] * len(large)
        if operation.transposed:
            image, output = output, image
            left = [
                size - (axis.output - 1) * axis.stride - axis.span + 2 * pad
                for size, axis, pad in zip(large, operation.axes, both, strict=True)
            ]
        how = (strides, both, dilations, operation.transposed, left, operation.groups)

        def gradient(*wanted: bool) -> Callable[[], object]:
            return lambda: aten.convolution_backward(
                output, image, filters, None, *how, [*wanted, False]
            )

        return {
            Pass.FORWARD: lambda: aten.convolution(image, filters, None, *how),
            Pass.INPUT_GRADIENT: gradient(True, False),
            Pass.WEIGHT_GRADIENT: gradient(False, True),
        }

    def _tensor(self, *shape: int) -> Any:
        return self.normal(prod(shape), self.computing).view(shape)


def _kernels(torch: Any, run: Callable[[], object]) -> list[Kernel]:
    """Run something twice, and return what ran on the GPU the second time."""
    run()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiled:
        run()
        torch.cuda.synchronize()
    return _of_events(profiled.key_averages())


def _of_events(events: Iterable[Any]) -> list[Kernel]:
    """Return the kernels among the profiler's averages, in which times are microseconds."""
    return [
        Kernel(event.key, event.self_device_time_total / 1e6)
        for event in events
        if event.device_type.name == "CUDA" and not event.key.startswith(("Memcpy", "Memset"))
    ]
