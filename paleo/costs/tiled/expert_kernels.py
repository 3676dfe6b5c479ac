"""Kernels of layers of experts that serving frameworks have: what each does, and its constants.

What a kernel does with rows, and its largest tile, is as its code says; how quick that is on an
architecture is in `expert_constants/`, fitted to measured rows of it there. On an architecture
without constants of its own it has those of another.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paleo.core.errors import HardwareError
from paleo.core.frozen import dataclass
from paleo.core.quantity import Quantity, minimum
from paleo.core.registry import Registry
from paleo.costs.tiled.kernel_files import Constant, KernelFiles
from paleo.costs.tiled.machine import Machine

_FOLDER = Path(__file__).parent / "expert_constants"
#: Whose constants an architecture has that has none: the first of these, and before them of those
#: like it: kernels of CUTLASS before Hopper, and on Blackwell RTX, are others than Hopper's.
_OTHERS = ("Hopper", "Blackwell")
_LIKE = {"Ampere": "Ada", "Blackwell RTX": "Ada"}

#: FLOPs of halves that the matrix units of a multiprocessor of Hopper do in a clock (NVIDIA, H100
#: Tensor Core GPU Architecture), and the bytes of a half.
_HOPPER_CLOCK, _HALF = 4096, 2

#: All of them, in SI units; shares have none.
CONSTANTS: dict[str, Constant] = {
    "start": Constant("time of its small kernels beside the two products", 0.0, 150e-6, 20e-6),
    "share": Constant("share of a product's speed", 0.02, 1.3, 0.8),
    "operands": Constant(
        "share of the rate of a product's operands at which matrices come", 0.05, 1.4, 1.0
    ),
    "drawn": Constant(
        "bytes of matrices that each multiprocessor draws in a clock", 0.5, 64.0, 64.0
    ),
    "fill": Constant("time in which a tile starts and ends", 0.0, 20e-6, 0.0),
    "stream": Constant("share of a stream's rate of passes over rows", 0.02, 1.3, 0.6),
}

#: Shapes of bf16 that SGLang has tuned tiles for, by device: columns of an expert by experts. (The
#: files of python/sglang/srt/layers/moe/moe_runner/triton_utils/configs, 0.5.10; before that in
#: fused_moe_triton/configs.)
_TUNED: Mapping[str, Mapping[int, tuple[int, ...]]] = {
    "A100_SXM_80GB": {
        1: (1792, 3584, 7168, 14336), 8: (1792, 2048, 3584, 4096, 7168),
        16: (1344, 1792, 2688, 3584, 7168, 14336), 64: (640, 1280), 257: (64,),
    },
    "H100_SXM": {
        1: (3072,), 8: (1792, 2048, 3584, 4096, 7168), 16: (1024, 1344, 1856, 2048, 2688),
        20: (2048,), 24: (1024,), 32: (928, 1856), 64: (320, 464, 640, 928, 1280, 1856, 2688),
        128: (192, 232, 384, 464, 512, 768, 928, 1344, 1856, 2688), 144: (512,),
        256: (672, 1344, 2688), 512: (64, 128, 336, 672, 1344, 2688),
    },
    "H200_SXM": {
        8: (1792, 2048, 3584, 4096, 7168, 14336), 16: (1024,), 20: (1536,),
        64: (320, 640, 1280, 2560), 128: (192, 384, 768), 161: (192,), 512: (64, 128, 256),
    },
    "H20_SXM": {
        128: (96, 192, 384, 768), 256: (512,), 512: (64, 128),
    },
    "L40S": {
        8: (3584,), 128: (928, 1856),
    },
    "B200_SXM": {
        16: (1024, 1856, 2048), 32: (928, 1856), 64: (464, 928, 1856, 2688),
        128: (232, 464, 928, 1344, 1856, 2688), 256: (256, 512, 672, 1344, 2688),
        512: (128, 256, 336, 672, 1344, 2688),
    },
}  # fmt: skip


def is_tuned(device: str, experts: Quantity, inner: Quantity) -> Any:
    """Return whether SGLang has tuned its tiles for experts of so many columns, in bf16."""
    found: Any = experts != experts
    for number, columns in _TUNED.get(device, {}).items():
        for width in columns:
            found = found | ((experts == number) & (inner == width))
    return found


@dataclass(frozen=True)
class ExpertKernel:
    """A framework's layer of experts; see the module.

    It `copies` rows into the order of experts and back, unless its products gather them
    (`gathers`), or else has a place for every token and choice, here or elsewhere; where rows are
    `brought` in that order by what exchanges them, that takes them back and sums them, too. With
    `fuses` the first product applies the function. `sides` are the most rows and columns of a tile,
    `least_rows` the least rows, `tile` is the only one where there is but one, and `few` that for
    no more tokens than experts. `like` is the kernel whose constants hold on architectures where it
    has none of its own. `by_warps` are those that multiply warp by warp (mma.sync), so that they do
    as many operations a clock on any multiprocessor, whatever share that is of a peak that is of
    groups of warps.
    """

    name: str
    summary: str
    source: str
    copies: bool = True
    gathers: bool = False
    brought: bool = False
    fuses: bool = False
    sides: int = 0
    tile: tuple[int, int] | None = None
    few: tuple[int, int] | None = None
    like: str = ""
    by_warps: bool = False
    least_rows: int = 0

    def share(self, machine: Machine) -> Quantity:
        """Return the share of a product's speed: of `by_warps` at the pace of the matrix units.

        Where a kernel has no constants of its own, Hopper's holds for want of another.
        """
        share = self.constants(machine.architecture)["share"]
        if not self.by_warps or machine.matrix_peak is None:
            return share
        if self.name and machine.architecture in FILES(self.name):
            return minimum(share / machine.pace, 1.0)
        a_clock = machine.matrix_peak / (machine.multiprocessors * machine.clock)
        return min(share * _HOPPER_CLOCK * _HALF / machine.element_size / float(a_clock), 1.0)

    def operands(self, machine: Machine) -> Quantity:
        """Return the share of the rate of a product's operands at which matrices come."""
        constant = self.constants(machine.architecture)
        rate = machine.bandwidth * machine.memory_share * machine.operand_share
        drawn = constant["drawn"] * machine.clock * machine.multiprocessors
        return minimum(constant["operands"], drawn / rate)

    def constants(self, architecture: str) -> Mapping[str, float]:
        """Return its constants on an architecture, or those of another where it has none."""
        known = FILES(self.name) if self.name else {}
        if architecture not in known and self.like:
            return EXPERT_KERNELS[self.like].constants(architecture)
        for name in (architecture, _LIKE.get(architecture, ""), *_OTHERS):
            if name in known:
                return known[name]
        if known:
            raise HardwareError(f"the experts' kernel {self.name} has no constants")
        return {key: each.value for key, each in CONSTANTS.items()}


#: The constants of a kernel by architecture.
FILES = KernelFiles(_FOLDER, CONSTANTS)


#: What is of no framework in particular.
GENERAL = ExpertKernel("", "grouped products, rows copied into the order of experts", "")

EXPERT_KERNELS: Registry[ExpertKernel] = Registry("kernel of experts")

_TRTLLM = "NVIDIA/TensorRT-LLM, cpp/tensorrt_llm/kernels/cutlass_kernels/moe_gemm"
_TORCH = "NVIDIA/TensorRT-LLM, tensorrt_llm/_torch/modules/fused_moe"
_FLASHINFER = "flashinfer-ai/flashinfer, flashinfer/fused_moe/core.py"
_VLLM = "vllm-project/vllm, vllm/model_executor/layers/fused_moe"
_SGLANG = "sgl-project/sglang, python/sglang/srt/layers/moe"


def _cutlass(
    name: str, source: str, types: str, *, sides: int = 256, like: str = ""
) -> ExpertKernel:
    owner = "FlashInfer's" if source == _FLASHINFER else "TensorRT-LLM's"
    summary = f"{owner} CUTLASS kernels, {types}"
    return ExpertKernel(name, summary, source, sides=sides, like=like)


def _triton(
    name: str, source: str, types: str, *, sides: int = 64, by_warps: bool = False
) -> ExpertKernel:
    owner = "vLLM's" if source == _VLLM else "SGLang's"
    return ExpertKernel(
        name, f"{owner} Triton kernel, {types}", source, copies=False, sides=sides,
        by_warps=by_warps,
    )  # fmt: skip


def _gen(name: str, source: str, types: str, *, fuses: bool = True) -> ExpertKernel:
    return ExpertKernel(
        name, f"TensorRT-LLM's kernels for Blackwell, {types}", source, gathers=True, fuses=fuses,
        sides=256,
    )  # fmt: skip


for _each in (
    _cutlass("trtllm_cutlass_bf16", _TRTLLM, "bf16"),
    _cutlass("trtllm_cutlass_fp8", _TRTLLM, "fp8"),
    _cutlass("trtllm_cutlass_fp8_block", _TRTLLM, "fp8 by blocks", sides=128),
    _cutlass("trtllm_cutlass_nvfp4", _TRTLLM, "nvfp4"),
    _cutlass("trtllm_w4a16", _TORCH, "mxfp4 by bf16"),
    _cutlass("trtllm_deepgemm", f"{_TORCH}/fused_moe_deepgemm.py", "DeepGEMM, fp8 by blocks"),
    _gen("trtllm_gen_nvfp4", f"{_TORCH}/fused_moe_trtllm_gen.py", "nvfp4"),
    _gen("trtllm_gen_mxfp4_mxfp8", f"{_TORCH}/fused_moe_trtllm_gen.py", "mxfp4 by mxfp8"),
    ExpertKernel(
        "deepgemm_fp8_block",
        "DeepGEMM, fp8 by blocks, of rows that DeepEP brings in the order of experts",
        "deepseek-ai/DeepGEMM, m_grouped_fp8_gemm_nt_contiguous and _masked", brought=True,
        sides=256, least_rows=64,
    ),
    # They are TensorRT-LLM's, which serving on Hopper and Blackwell ran untuned where measured.
    _cutlass("flashinfer_cutlass_bf16", _FLASHINFER, "bf16", sides=64, like="trtllm_cutlass_bf16"),
    _cutlass("flashinfer_cutlass_fp8", _FLASHINFER, "fp8", sides=64, like="trtllm_cutlass_fp8"),
    _cutlass("flashinfer_cutlass_fp8_block", _FLASHINFER, "fp8 by blocks"),
    _cutlass("flashinfer_cutlass_nvfp4", _FLASHINFER, "nvfp4", like="trtllm_cutlass_nvfp4"),
    _gen("flashinfer_gen_bf16", _FLASHINFER, "bf16"),
    _gen("flashinfer_gen_fp8", _FLASHINFER, "fp8"),
    _gen("flashinfer_gen_fp8_block", _FLASHINFER, "fp8 by blocks", fuses=False),
    _gen("flashinfer_gen_nvfp4", _FLASHINFER, "nvfp4"),
    _gen("flashinfer_gen_int4", _FLASHINFER, "int4 by bf16"),
    _gen("flashinfer_gen_mxfp4", _FLASHINFER, "mxfp4 by bf16"),
    _gen("flashinfer_gen_mxfp4_mxfp8", _FLASHINFER, "mxfp4 by mxfp8"),
    _triton("vllm_triton", _VLLM, "bf16, or fp8 with one scale"),
    _triton("vllm_triton_fp8_block", _VLLM, "fp8 by blocks", sides=256),
    ExpertKernel(
        "sglang_triton_bf16", "SGLang's Triton kernel, bf16, its default tile", _SGLANG,
        copies=False, tile=(64, 64), few=(16, 32), by_warps=True,
    ),
    _triton("sglang_triton_tuned_bf16", _SGLANG, "bf16, tiles tuned for the shape", sides=128),
    _triton("sglang_triton_fp8_block", _SGLANG, "fp8 by blocks"),
    _triton("sglang_triton_mxfp4", _SGLANG, "mxfp4 by bf16", by_warps=True),
    _triton("vllm_triton_kernels_mxfp4", _VLLM, "mxfp4 by bf16, of triton_kernels", sides=256),
    _triton("marlin_int4", _VLLM, "Marlin, int4 by bf16", by_warps=True),
    _triton("marlin_mxfp4", _VLLM, "Marlin, mxfp4 by bf16", by_warps=True),
):  # fmt: skip
    EXPERT_KERNELS.add(_each.name, _each)
