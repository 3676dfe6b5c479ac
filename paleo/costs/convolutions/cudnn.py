"""What cuDNN's own heuristics choose, on the GPU of this machine.

They are asked through the library's C interface: that which PyTorch or the nvidia-cudnn wheels
install, or the system has. Declared here is what of it is called: names, order of arguments,
values of enumerations and the layout of results are those of the headers cudnn_graph.h,
cudnn_ops.h and cudnn_cnn.h in the wheel nvidia-cudnn-cu12 9.28.0.42. The functions "..._v7" are
there since cuDNN 7.
"""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import cache
from typing import Any

from paleo.core.checks import MAX_SIZE
from paleo.core.errors import SettingError
from paleo.core.operations import Convolution, Pass
from paleo.core.optional import package_folders
from paleo.core.window import Axis
from paleo.costs.convolutions.base import ALGORITHMS

#: cudnnDataType_t: of the tensors, and of what is computed.
_FLOAT, _DOUBLE, _HALF, _BFLOAT16 = 0, 1, 2, 9
#: cudnnMathType_t. FMA_MATH is there since cuDNN 8; before, the default was as strict.
_DEFAULT_MATH, _TENSOR_OP_MATH, _FMA_MATH = 0, 1, 3
_VERSION_8 = 8000
#: cudnnTensorFormat_t and cudnnConvolutionMode_t.
_NCHW, _CROSS_CORRELATION = 0, 1
#: The fewest dimensions that a tensor of a convolution has: N, C, H, W.
_LEAST_DIMS = 4

#: Of an element type: that of the tensors, of the sums, and which units may be used.
_TYPES = {
    "fp64": (_DOUBLE, _DOUBLE, _DEFAULT_MATH),
    "fp32": (_FLOAT, _FLOAT, _FMA_MATH),
    "tf32": (_FLOAT, _FLOAT, _DEFAULT_MATH),
    "fp16": (_HALF, _FLOAT, _TENSOR_OP_MATH),
    "bf16": (_BFLOAT16, _FLOAT, _TENSOR_OP_MATH),
}

_NONFUSED = ("winograd_4x4", "winograd_5x5")
#: The algorithms of this package that an algorithm of cuDNN may be: the first that applies is it.
#: Forward, cudnnConvolutionFwdAlgo_t: IMPLICIT_GEMM, IMPLICIT_PRECOMP_GEMM, GEMM, DIRECT, FFT,
#: FFT_TILING, WINOGRAD, WINOGRAD_NONFUSED. Of the input, cudnnConvolutionBwdDataAlgo_t: 0, 1, FFT,
#: FFT_TILING, WINOGRAD, WINOGRAD_NONFUSED. Of the filter, cudnnConvolutionBwdFilterAlgo_t: 0, 1,
#: FFT, 3, WINOGRAD, WINOGRAD_NONFUSED, FFT_TILING.
_ALGORITHMS: dict[Pass, tuple[tuple[str, ...], ...]] = {
    Pass.FORWARD: (
        ("implicit_gemm",),
        ("precomputed_gemm",),
        ("explicit_gemm",),
        ("direct",),
        ("fft",),
        ("tiled_fft",),
        ("winograd_2x2",),
        _NONFUSED,
    ),
    Pass.INPUT_GRADIENT: (
        ("scattered_gemm",),
        ("phased_gemm", "precomputed_gemm"),
        ("fft",),
        ("tiled_fft",),
        ("winograd_2x2",),
        _NONFUSED,
    ),
    Pass.WEIGHT_GRADIENT: (
        ("implicit_gemm",),
        ("implicit_gemm",),
        ("fft",),
        ("precomputed_gemm",),
        ("winograd_2x2",),
        _NONFUSED,
        ("tiled_fft",),
    ),
}


class _Result(ctypes.Structure):
    """cudnnConvolutionFwdAlgoPerf_t; those of the gradients have the same layout."""

    _fields_ = (
        ("algorithm", ctypes.c_int),
        ("status", ctypes.c_int),
        ("time", ctypes.c_float),
        ("memory", ctypes.c_size_t),
        ("determinism", ctypes.c_int),
        ("math", ctypes.c_int),
        ("reserved", ctypes.c_int * 3),
    )


def ask(operation: Convolution, dtype: str, limit: int | None) -> tuple[str, ...]:
    """Return the algorithms that cuDNN would take for one pass, by name, what it prefers first.

    Tensors are N x C x H x W without gaps, as PyTorch's are by default; what a padding has more on
    one side than on the other is taken as part of the input, as frameworks pad. Those that need
    more than `limit` bytes of workspace are left out; nothing is left of a convolution that cuDNN
    does not support. The batch is a number. Raises SettingError without a library or a GPU, or for
    an element type that cuDNN has no heuristics for.
    """
    if dtype not in _TYPES:
        raise SettingError(
            f"conv_library: cuDNN chooses for {', '.join(_TYPES)} only, not for {dtype}"
        )
    found: list[str] = []
    for result in _results(_opened(), operation, dtype):
        if result.status or (limit is not None and result.memory > limit):
            continue
        choices = _ALGORITHMS[operation.direction]
        names = choices[result.algorithm] if 0 <= result.algorithm < len(choices) else ()
        found += [name for name in names if ALGORITHMS[name].applies(operation)][:1]
    return tuple(dict.fromkeys(found))


def find_library() -> Any:
    """Return the library, loaded; raises SettingError if there is none on this machine."""
    for place in _places():
        try:
            return ctypes.CDLL(place)
        except OSError:  # it is not there, or something that it needs is not
            continue
    raise SettingError(
        "conv_library: there is no cuDNN library on this machine to ask; PyTorch for CUDA has one, "
        "and: pip install nvidia-cudnn-cu12"
    )


def _places() -> Iterator[str]:
    """Yield where the library may be, the newest first in each folder."""
    for package, folders in (("nvidia.cudnn", ("lib", "bin")), ("torch", ("lib",))):
        for folder in package_folders(package):
            for pattern in ("libcudnn.so*", "cudnn64_*.dll"):
                for own in folders:
                    yield from map(str, sorted((folder / own).glob(pattern), reverse=True))
    known = ctypes.util.find_library("cudnn")
    if known:
        yield known
    yield from ("libcudnn.so.9", "libcudnn.so.8", "libcudnn.so.7", "cudnn64_9.dll")


class _Opened:
    """The library with a handle, which is for the first GPU."""

    def __init__(self, library: Any) -> None:
        self.library = library
        library.cudnnGetErrorString.restype = ctypes.c_char_p
        library.cudnnGetVersion.restype = ctypes.c_size_t
        self.version = int(library.cudnnGetVersion())
        self.handle = ctypes.c_void_p()
        status = library.cudnnCreate(ctypes.byref(self.handle))
        if status:
            raise SettingError(
                f"conv_library: cuDNN finds no GPU to choose for: {self.why(status)}"
            )

    def why(self, status: int) -> str:
        """Return what cuDNN calls a status."""
        text = self.library.cudnnGetErrorString(status)
        return text.decode("ascii", "replace") if text else f"status {status}"

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the library; raises _RefusedError where it does not do it."""
        status = getattr(self.library, f"cudnn{name}")(*arguments)
        if status:
            raise _RefusedError(f"{name}: {self.why(status)}")

    def described(self, kind: str, stack: ExitStack) -> ctypes.c_void_p:
        """Return a new descriptor, which goes with the stack."""
        made = ctypes.c_void_p()
        self.call(f"Create{kind}Descriptor", ctypes.byref(made))
        stack.callback(getattr(self.library, f"cudnnDestroy{kind}Descriptor"), made)
        return made


class _RefusedError(Exception):
    """What cuDNN did not do, and why."""


@cache
def _opened() -> _Opened:
    return _Opened(find_library())


def _results(opened: _Opened, operation: Convolution, dtype: str) -> list[_Result]:
    """Return what cuDNN says of each of its algorithms, those it prefers first."""
    count = len(_ALGORITHMS[operation.direction])
    results, number = (_Result * count)(), ctypes.c_int()
    with ExitStack() as stack:
        try:
            image, filters, convolution, output = _descriptors(opened, operation, dtype, stack)
            which, *tensors = {
                Pass.FORWARD: ("Forward", image, filters, convolution, output),
                Pass.INPUT_GRADIENT: ("BackwardData", filters, output, convolution, image),
                Pass.WEIGHT_GRADIENT: ("BackwardFilter", image, output, convolution, filters),
            }[operation.direction]
            name = f"GetConvolution{which}Algorithm_v7"
            opened.call(name, opened.handle, *tensors, count, ctypes.byref(number), results)
        except _RefusedError as error:
            if "NOT_SUPPORTED" in str(error):
                return []
            raise SettingError(f"conv_library: cuDNN does not choose: {error}") from None
    return list(results[: number.value])


def _descriptors(
    opened: _Opened, operation: Convolution, dtype: str, stack: ExitStack
) -> tuple[ctypes.c_void_p, ...]:
    """Return the descriptors of input, filter, convolution and output."""
    kind, summed, math = _TYPES[dtype]
    if math == _FMA_MATH and opened.version < _VERSION_8:
        math = _DEFAULT_MATH
    along = operation.axes
    while len(along) + 2 < _LEAST_DIMS:
        along = (Axis(1, 1, 1, "VALID"), *along)
    padding = [pads(axis) for axis in along]
    n, c, k = int(operation.batch), operation.in_channels, operation.out_channels
    sizes = (int(axis.size) + more for axis, (_, more) in zip(along, padding, strict=True))
    image = _tensor(opened, kind, (n, c, *sizes), stack)
    output = _tensor(opened, kind, (n, k, *(int(axis.output) for axis in along)), stack)
    filters = opened.described("Filter", stack)
    shape = (k, c // operation.groups, *(axis.window for axis in along))
    opened.call("SetFilterNdDescriptor", filters, kind, _NCHW, len(shape), _whole(shape))
    convolution = opened.described("Convolution", stack)
    opened.call(
        "SetConvolutionNdDescriptor",
        convolution,
        len(along),
        _whole([both for both, _ in padding]),
        _whole([axis.stride for axis in along]),
        _whole([axis.dilation for axis in along]),
        _CROSS_CORRELATION,
        summed,
    )
    opened.call("SetConvolutionGroupCount", convolution, operation.groups)
    opened.call("SetConvolutionMathType", convolution, math)
    return image, filters, convolution, output


def _tensor(opened: _Opened, kind: int, shape: Sequence[int], stack: ExitStack) -> ctypes.c_void_p:
    strides = [1]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * size)
    made = opened.described("Tensor", stack)
    opened.call("SetTensorNdDescriptor", made, kind, len(shape), _whole(shape), _whole(strides))
    return made


def _whole(numbers: Sequence[int]) -> Any:
    """Return an array of ints; raises _RefusedError for a number that none can hold."""
    if max(numbers) > MAX_SIZE:
        raise _RefusedError(f"NOT_SUPPORTED: {max(numbers)} elements")
    return (ctypes.c_int * len(numbers))(*numbers)


def pads(axis: Axis) -> tuple[int, int]:
    """Return the padding of both sides, and by how much the input is larger with the rest."""
    before = max(int(axis.padding_before), 0)
    after = max(int(axis.total_padding) - before, 0)
    both = min(before, after)
    return both, before + after - 2 * both
