"""Which library offered which algorithm, on which pass: tables, each with its source.

A library is asked for the names that it offers for a convolution; which of them is quickest is
for a cost model to say. A matrix product without workspace is always among them.
"""

from __future__ import annotations

import math
from typing import Any

from paleo.cluster import Device
from paleo.core.errors import SettingError
from paleo.core.frozen import NamedTuple
from paleo.core.operations import LAYER_PASSES, Convolution
from paleo.core.quantity import some
from paleo.core.registry import Registry
from paleo.costs.convolutions.base import ALGORITHMS
from paleo.costs.convolutions.direct import is_depthwise

#: What every library has, and needs no workspace.
GEMM = "implicit_gemm"
#: The library that is asked itself, on the GPU of this machine.
ASKED = "cudnn"
#: The newest generation of cuDNN.
NEWEST = 9.0
_NEVER = math.inf

#: From which generation of cuDNN on it has an algorithm: forward, for the gradient of the input,
#: for that of the filter. A generation without a digit behind it stands for its last version: 5 for
#: 5.1. Sources: "What's new in cuDNN" (developer.nvidia.com/cudnn-whatsnew) for FFT (3), tiled FFT
#: (4) and Winograd (5); the enumerations of cudnn.h as bindings of each version have them
#: (soumith/cudnn.torch, ffi.lua, for 5.1; the cuDNN API reference for 7 to 9).
_CUDNN: dict[str, tuple[float, float, float]] = {
    GEMM: (1, 1, 1),
    # IMPLICIT_PRECOMP_GEMM; BWD_DATA_ALGO_1, which came with 3; BWD_FILTER_ALGO_3.
    "precomputed_gemm": (2, 3, 4),
    "explicit_gemm": (2, _NEVER, _NEVER),
    "scattered_gemm": (_NEVER, 1, _NEVER),
    # No release note has it; strided gradients of DeepBench are cheaper than dense ones from 7 on.
    "phased_gemm": (_NEVER, 7, _NEVER),
    # For one channel a group alone: frameworks have kernels of their own. (ALGO_DIRECT is a name
    # in cudnn.h that nothing stands behind.)
    "direct": (1, 1, 1),
    "winograd_2x2": (5, 5, _NEVER),
    # WINOGRAD_NONFUSED. The filter's gradient has it in 5.1's header; measured times on 5 lack it.
    "winograd_4x4": (5, 5, 6),
    "winograd_5x5": (7, 7, 7),
    "fft": (3, 3, 3),
    # BWD_FILTER_ALGO_FFT_TILING is not in 5.1's header.
    "tiled_fft": (4, 4, 6),
}
#: What cuDNN has that sums up halves: a product (IMPLICIT_PRECOMP_GEMM, ALGO_1) and Winograd's
#: algorithm in steps for 3 x 3 windows, on each pass (the user guides of cuDNN 5.1 to 7, as
#: theano/gpuarray/cudnn_defs.py of Theano/Theano has them).
_IN_HALVES = (GEMM, "precomputed_gemm", "winograd_4x4")
#: Bytes of the largest elements that cuDNN has Winograd for.
_LARGEST = 4

#: oneDNN, "Convolution" and "Verbose message catalogue" (2025.1): direct kernels, those for 1 x 1
#: windows, and im2col with a product ("gemm:jit") where neither fits, a part of the matrix at a
#: time. Winograd is left out: on x86 it was for AVX-512 alone and is gone, and PyTorch asks for
#: `convolution_direct` (uxlfoundation/oneDNN, pull request 3139).
_ONEDNN = ("gemm_1x1", "direct", "explicit_gemm", GEMM)
#: Accelerators that are no NVIDIA GPUs, by architecture.
_OTHER_MAKERS = ("CDNA", "CDNA 3", "TPU", "Apple")


class Library(NamedTuple):
    """A library, or a generation of one.

    `kind` is the kind of device that it runs on, "" for any; `generation` that of cuDNN, None for
    what is not cuDNN or is of any generation.
    """

    name: str
    summary: str
    kind: str = ""
    generation: float | None = None

    def offers(self, operation: Convolution) -> dict[str, Any]:
        """Return the algorithms that it has for this pass, GEMM among them, by name.

        Each with `True`; of several convolutions as one, with for which of them.
        """
        if self.generation is not None:
            return offered_by_cudnn(self.generation, operation)
        names = _ONEDNN if self.name == "onednn" else tuple(ALGORITHMS)
        return _offered({name: ALGORITHMS[name].applies(operation) for name in names})


LIBRARIES: Registry[Library] = Registry("convolution library")

for _library in (
    *(
        Library(f"cudnn{version}", f"what cuDNN {version} offers", "gpu", float(version))
        for version in range(2, int(NEWEST) + 1)
    ),
    Library("onednn", "what oneDNN offers on CPUs", "cpu"),
    Library("any", "every algorithm that there is"),
    Library(ASKED, "what the cuDNN of this machine itself would choose", "gpu"),
):
    LIBRARIES.add(_library.name, _library)


def offered_by_cudnn(
    generation: float, operation: Convolution, *, in_halves: bool = False
) -> dict[str, Any]:
    """Return the algorithms that this generation of cuDNN has for this pass, as `offers` does.

    If `in_halves`, those that sum up halves as such.
    """
    place = LAYER_PASSES.index(operation.direction)
    return _offered(
        {
            name: is_depthwise(operation)
            if name == "direct"
            else ALGORITHMS[name].applies(operation)
            for name, since in _CUDNN.items()
            if since[place] <= generation
            and (name in _IN_HALVES or not in_halves)
            and not (name.startswith("winograd") and operation.element_size > _LARGEST)
        }
    )


def _offered(where: dict[str, Any]) -> dict[str, Any]:
    """Return the algorithms that apply anywhere."""
    return {name: applies for name, applies in where.items() if some(applies)}


def check_library(library: str | None, device: Device) -> None:
    """Raise SettingError if a library does not run on such a device."""
    if library is None:
        return
    kind = LIBRARIES[library].kind
    if kind and (device.kind != kind or (kind == "gpu" and device.architecture in _OTHER_MAKERS)):
        runs = "NVIDIA's GPUs" if kind == "gpu" else "CPUs"
        fits = "onednn, any" if device.kind == "cpu" else "any"
        raise SettingError(
            f"conv_library: {library} runs on {runs}, which {device.name} is not; there are: {fits}"
        )
