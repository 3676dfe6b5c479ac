"""Kernels of attention that libraries have: what each does, and its constants by architecture.

A kernel is its tile of queries and keys, whether heads that share keys stand in one tile, when it
splits keys, and what it does with a window, as its code says. How quick each of that is on an
architecture is in `kernels/`, fitted to measured rows of that kernel there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from paleo.core.errors import HardwareError
from paleo.core.frozen import NamedTuple, dataclass
from paleo.core.quantity import Quantity, rounded_up
from paleo.core.registry import Registry
from paleo.costs.tiled.kernel_files import Constant, KernelFiles

_FOLDER = Path(__file__).parent / "kernels"
_FEATURES = _KEYS = 2**31
#: Features are rounded up to so many.
_MULTIPLE = 32
_SPLITS = (1, 2, 4, 8, 16, 32, 64, 128)


#: All of them, in SI units; shares have none.
CONSTANTS: dict[str, Constant] = {
    "start": Constant("fixed time of the kernel", 0.0, 40e-6, 0.0),
    "fill": Constant("time in which a first tile starts and ends", 0.0, 10e-6, 0.0),
    "again": Constant("time that each further wave of tiles adds to that", 0.0, 20e-6, 0.0),
    "step": Constant("time from one block of keys to the next that hides nothing", 0.0, 10e-6, 0.0),
    "combine": Constant("fixed time of adding up split keys", 0.0, 50e-6, 0.0),
    "head": Constant("time of a head of queries on one multiprocessor", 0.0, 1e-6, 0.0),
    "share": Constant("share of a product's speed", 0.01, 2.0, 0.9),
    "clocked": Constant(
        "FLOPs of products that a multiprocessor does in a clock; 0: a share of its units' speed",
        0.0,
        8192.0,
        0.0,
    ),
    "exponentials": Constant("share of the exponentials that products do not hide", 0.0, 5.0, 0.5),
    "memory": Constant("share of a stream's rate at which keys and values come", 0.2, 2.0, 1.0),
    "cached": Constant(
        "bytes a clock for each multiprocessor that come from the last cache; 0: as streams do",
        0.0,
        16.0,
        0.0,
    ),
    "loads": Constant(
        "bytes of keys and values that a multiprocessor draws in a clock; 0: any number",
        0.0,
        64.0,
        0.0,
    ),
    "uneven": Constant(
        "share of the longest tile for which multiprocessors wait where tiles are not equal",
        0.0,
        2.0,
        0.0,
    ),
    "wide": Constant("share of its speed that is left with more than 128 features", 0.1, 2.0, 1.0),
    "unaligned": Constant(
        "times as long as others that a block with rows of no multiple of 16 features takes",
        1.0,
        8.0,
        1.0,
    ),
    "lanes": Constant(
        "elements of keys and values that a multiprocessor's lanes multiply in a clock; "
        "0: the matrix units do",
        0.0,
        64.0,
        0.0,
    ),
    "narrow_lanes": Constant("those of keys of one byte; 0: as many", 0.0, 64.0, 0.0),
    "merge": Constant("time of adding up one row of one head of split keys", 0.0, 1e-7, 0.0),
    "drawn": Constant(
        "share of the bandwidth that a multiprocessor can draw, times their number", 0.1, 10.0, 2.0
    ),
}


class Tile(NamedTuple):
    """Rows of queries in a tile and keys in a block.

    It is for heads of up to `features` and, of those, for prompts of up to `until` keys.
    """

    rows: int
    keys: int
    features: int = _FEATURES
    until: int = _KEYS

    def fits(self, depth: Quantity, keys: Quantity) -> Quantity:
        """Return 1 where it is for heads of so many features and prompts of so many keys, or 0."""
        return 1 * (depth <= self.features) * (keys <= self.until)


@dataclass(frozen=True)
class AttentionKernel:
    """A kernel of fused attention; see the module.

    The first of its tiles that is for a shape is taken; `own_tiles` are those of architectures
    that have others. Rows are computed in multiples of `rows_at_once`. `packed` says whether the
    heads that share keys stand in one tile: always (1), never (0) or what is quicker. `splits` are
    those of the keys, of tiles that have all queries or, with `splits_tiles`, of any: what is
    quickest, or with `fills` as many as make so many tiles for each multiprocessor, of at least
    128 keys. With `window_alone`, where there is a window heads are not packed and keys not split.
    `skips_window` says whether keys outside it are left alone. `narrow` is, by architecture, the
    time of a block with keys of one byte beside that of keys of the queries' size. `carried` are
    architectures that it runs on with Ada's constants. `sizes` are, by architecture, the features
    that it is compiled for, where those are not all multiples of 32.
    """

    name: str
    summary: str
    source: str
    tiles: tuple[Tile, ...] = (Tile(128, 128),)
    rows_at_once: int = 64
    packed: tuple[int, ...] = (1, 0)
    splits: tuple[int, ...] = (1,)
    splits_tiles: bool = False
    fills: int = 0
    window_alone: bool = False
    skips_window: bool = True
    narrow: Mapping[str, float] = field(default_factory=dict)
    own_tiles: Mapping[str, tuple[Tile, ...]] = field(default_factory=dict)
    carried: tuple[str, ...] = ()
    sizes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    own_rows: Mapping[str, int] = field(default_factory=dict)

    def padded(self, features: Quantity, architecture: str) -> Quantity:
        """Return so many features as it computes: the next of its sizes, or of `_MULTIPLE`."""
        found: Quantity = rounded_up(features, _MULTIPLE)
        for size in sorted(self.sizes.get(architecture, ()), reverse=True):
            fits = 1 * (features <= size)
            found = fits * size + (1 - fits) * found
        return found

    def tiles_on(self, architecture: str) -> tuple[Tile, ...]:
        """Return its tiles on an architecture: the first that is for a shape is taken."""
        return self.own_tiles.get(architecture, self.tiles)

    def runs_on(self, architecture: str) -> bool:
        """Tell whether its constants are known for an architecture."""
        return architecture in FILES(self.name) or architecture in self.carried

    def constants(self, architecture: str) -> Mapping[str, float]:
        """Return the constants for an architecture; raises HardwareError if it is not for it."""
        by_architecture = FILES(self.name)
        if architecture in self.carried:
            architecture = "Ada"
        if architecture not in by_architecture:
            known = ", ".join(sorted(by_architecture))
            raise HardwareError(
                f"nothing is known of the attention kernel {self.name} on "
                f"{architecture or 'this device'}; it is for {known}"
            )
        return by_architecture[architecture]


#: The constants of a kernel by architecture.
FILES = KernelFiles(_FOLDER, CONSTANTS)


ATTENTION_KERNELS: Registry[AttentionKernel] = Registry("attention kernel")

_FLASH = "Dao-AILab/flash-attention"
_FLASHINFER = "flashinfer-ai/flashinfer, include/flashinfer/attention"
_TRTLLM = "NVIDIA/TensorRT-LLM, cpp/tensorrt_llm/kernels"
_SMALL = (Tile(32, 64),)
#: Architectures of graphics cards: 100 KiB of shared memory for a multiprocessor, not 160 or more.
_GDDR = ("Ada", "Blackwell RTX")
for _each in (
    AttentionKernel(
        "fa2_prefill", "FlashAttention-2, prompts", f"{_FLASH}, csrc/flash_attn/src",
        (Tile(128, 128, 64), Tile(128, 64)), packed=(0,),
        own_tiles={
            "Ada": (Tile(128, 128, 64), Tile(64, 64, 128), Tile(128, 64, 192), Tile(64, 64)),
            "Blackwell RTX": (Tile(128, 128, 64), Tile(128, 64, 192), Tile(64, 64)),
        },
    ),
    AttentionKernel(
        "fa2_decode", "FlashAttention-2, one query: split keys, heads packed but with a window",
        f"{_FLASH}, csrc/flash_attn/flash_api.cpp: seqlenq_ngroups_swapped",
        (Tile(64, 256, 64), Tile(64, 128, 128), Tile(64, 64)), 16,
        splits=_SPLITS, window_alone=True,
    ),
    AttentionKernel(
        "fa3_prefill", "FlashAttention-3, prompts; SGLang builds it for Ampere too",
        f"{_FLASH}, hopper; sgl-project/sglang, sgl-kernel/CMakeLists.txt",
    ),
    AttentionKernel(
        "fa3_decode",
        "FlashAttention-3, one query: split keys, packed heads; two groups of warps have 64 rows "
        "each, whether there are any",
        f"{_FLASH}, hopper/tile_size.h", packed=(1,), splits=_SPLITS, own_rows={"Hopper": 128},
    ),
    AttentionKernel(
        "fa3_decode_vllm",
        "vLLM's FlashAttention-3, one query: as there, by one group of warps",
        "vllm-project/flash-attention, hopper/heuristics.h: use_one_mma_wg",
        (Tile(64, 128, 128), Tile(128, 128)), packed=(1,), splits=_SPLITS,
    ),
    AttentionKernel(
        "fa4_prefill", "FlashAttention-4, prompts", f"{_FLASH}, flash_attn/cute/flash_fwd_sm100.py",
        packed=(0,),
    ),
    AttentionKernel(
        "flashinfer_prefill", "FlashInfer, prompts: packed heads, keys split where tiles are few",
        f"{_FLASHINFER}/prefill.cuh, scheduler.cuh, utils.cuh: FA2DetermineCtaTileQ",
        (Tile(128, 64, 128), Tile(64, 64)), 16, (1,), splits_tiles=True, fills=2,
        narrow={"Ada": 1.33, "Blackwell RTX": 1.35},
        own_tiles=dict.fromkeys(_GDDR, (Tile(128, 64, 64), Tile(128, 32, 128), Tile(64, 16))),
    ),
    AttentionKernel(
        "flashinfer_decode", "FlashInfer, one query: split keys, packed heads",
        f"{_FLASHINFER}/decode.cuh, scheduler.cuh, utils.cuh: FA2DetermineCtaTileQ", packed=(1,),
        splits=_SPLITS, own_tiles={"Hopper": (Tile(64, 64),)}, own_rows={"Hopper": 16},
    ),
    AttentionKernel(
        "triton_extend", "SGLang's Triton kernel, prompts: all keys whatever the window",
        "sgl-project/sglang, python/sglang/srt/layers/attention/triton_ops/extend_attention.py",
        (Tile(64, 128, 128), Tile(64, 64, 256), Tile(32, 32)), 16, (0,), skips_window=False,
    ),
    AttentionKernel(
        "triton_extend_sm90", "SGLang's Triton kernel, prompts, on Hopper and Blackwell",
        "sgl-project/sglang, python/sglang/srt/layers/attention/triton_ops/extend_attention.py",
        (Tile(128, 64, 128), Tile(64, 64, 256), Tile(32, 64)), 16, (0,), skips_window=False,
        own_tiles={"Blackwell": (Tile(64, 64, 256), Tile(16, 64))},
    ),
    AttentionKernel(
        "triton_decode", "SGLang's Triton kernels, one query: keys in up to 8 parts",
        "sgl-project/sglang, python/sglang/srt/layers/attention/triton_ops/decode_attention.py",
        (Tile(16, 32),), 16, (1,), _SPLITS[:4],
    ),
    AttentionKernel(
        "triton_unified_prefill", "vLLM's Triton kernel, prompts: tiles of 16 rows, packed heads",
        "vllm-project/vllm, vllm/v1/attention/ops/triton_unified_attention.py", (Tile(16, 32),),
        16, (1,),
    ),
    AttentionKernel(
        "triton_unified_decode", "vLLM's Triton kernel, one query: keys in one part or 16",
        "vllm-project/vllm, vllm/v1/attention/ops/triton_unified_attention.py", (Tile(16, 32),),
        16, (1,), (1, 16),
    ),
    AttentionKernel(
        "trtllm_fmha", "TensorRT-LLM's FMHA, prompts; on Hopper in keys' type where it is narrow",
        f"{_TRTLLM}/contextFusedMultiHeadAttention/fmhaRunner.cpp; cpp/kernels/fmha_v2/setup.py",
        (Tile(64, 128),), packed=(0,), narrow={"Hopper": 0.7},
        own_tiles={
            "Ampere": (Tile(128, 128, 64), Tile(64, 128)),
            **dict.fromkeys(
                _GDDR, (Tile(64, 32, 128), Tile(64, 16, 255), Tile(64, 16, until=64), Tile(64, 128))
            ),
        },
        sizes={
            "Hopper": (32, 64, 128),
            **dict.fromkeys(("Ampere", *_GDDR), (16, 32, 40, 48, 64, 80, 96, 104, 128)),
        },
    ),
    AttentionKernel(
        "trtllm_fmha_sm80",
        "TensorRT-LLM's FMHA on Blackwell, for features that its own kernels there are not for",
        f"{_TRTLLM}/contextFusedMultiHeadAttention/fmhaRunner.cpp; cpp/kernels/fmha_v2/setup.py",
        (Tile(64, 64),), packed=(0,), sizes={"Blackwell": (80,)},
    ),
    AttentionKernel(
        "triton_encoder", "SGLang's Triton kernel for encoders",
        "sgl-project/sglang, python/sglang/srt/layers/attention/triton_ops/prefill_attention.py",
        (Tile(128, 128),), 16, (0,), own_tiles={"Ada": (Tile(64, 64),)},
        carried=("Blackwell RTX",),
        sizes=dict.fromkeys(("Ada", "Blackwell", "Blackwell RTX"), (16, 32, 64, 128, 256)),
    ),
    AttentionKernel(
        "trtllm_xqa", "TensorRT-LLM's XQA, one query: split keys, packed heads",
        "NVIDIA/TensorRT-LLM, cpp/kernels/xqa/mha.cu", _SMALL, 16, (1,), _SPLITS,
    ),
    AttentionKernel(
        "trtllm_xqa_fp8", "TensorRT-LLM's XQA but for Hopper, one query, keys of 1 byte",
        "NVIDIA/TensorRT-LLM, cpp/kernels/xqa/mha.cu", _SMALL, 16, (1,), _SPLITS,
    ),
    AttentionKernel(
        "trtllm_xqa_sm90", "TensorRT-LLM's XQA for Hopper, one query, keys of 1 byte",
        "NVIDIA/TensorRT-LLM, cpp/kernels/xqa/mha_sm90.cu", _SMALL, 16, (1,), _SPLITS,
    ),
    AttentionKernel(
        "trtllm_mmha", "TensorRT-LLM's masked attention on lanes, one query: each head by itself",
        f"{_TRTLLM}/decoderMaskedMultiheadAttention", packed=(0,),
    ),
    AttentionKernel(
        "trtllm_gen_context", "TensorRT-LLM's kernels for Blackwell, prompts",
        f"{_TRTLLM}/trtllmGenKernels/fmha; {_FLASHINFER}, trtllm_fmha",
        (Tile(128, 128, 128), Tile(128, 64)), packed=(0,),
    ),
    AttentionKernel(
        "trtllm_gen_generation", "TensorRT-LLM's kernels for Blackwell, one query",
        f"{_TRTLLM}/trtllmGenKernels/fmha; {_FLASHINFER}, trtllm_fmha", packed=(1,),
        splits=_SPLITS,
    ),
    AttentionKernel(
        "fa3_mla_prefill", "FlashAttention-3, prompts, absorbed latent attention",
        f"{_FLASH}, hopper; sgl-project/sglang, layers/attention/flashattention_backend.py",
        (Tile(64, 64),), packed=(1, 0),
    ),
    AttentionKernel(
        "fa3_mla_decode", "FlashAttention-3, one query, absorbed latent attention",
        f"{_FLASH}, hopper; sgl-project/sglang, layers/attention/flashattention_backend.py",
        (Tile(64, 64),), packed=(1,), splits=_SPLITS, splits_tiles=True,
    ),
    AttentionKernel(
        "flash_mla", "FlashMLA, one query, absorbed latent attention",
        "deepseek-ai/FlashMLA; NVIDIA/TensorRT-LLM, cpp/tensorrt_llm/kernels/flashMLA",
        (Tile(64, 64),), packed=(1,), splits=_SPLITS, splits_tiles=True,
    ),
    AttentionKernel(
        "trtllm_xqa_mla",
        "TensorRT-LLM's kernel but for Hopper and Blackwell, one query, absorbed latent attention",
        "NVIDIA/TensorRT-LLM, cpp/kernels/xqa/mla_sm120.cu; keys are not split",
        (Tile(64, 64),), packed=(1,), carried=("Ampere", "Blackwell RTX"),
    ),
    AttentionKernel(
        "triton_mla_decode", "SGLang's Triton kernels, one query, absorbed latent attention",
        "sgl-project/sglang, python/sglang/srt/layers/attention/triton_ops/decode_attention.py",
        (Tile(16, 32),), 16, (1,), (8,), splits_tiles=True, carried=("Blackwell RTX",),
    ),
    AttentionKernel(
        "trtllm_gen_mla",
        "TensorRT-LLM's kernels for Blackwell, one query, absorbed latent attention",
        f"{_TRTLLM}/trtllmGenKernels/fmha; {_FLASHINFER}, trtllm_fmha",
        (Tile(64, 128),), packed=(1,), splits=_SPLITS, splits_tiles=True,
    ),
    AttentionKernel(
        "trtllm_fmha_mla", "TensorRT-LLM's FMHA, prompts, keys of 192 and values of 128 features",
        f"{_TRTLLM}/contextFusedMultiHeadAttention/fmhaRunner.cpp; cpp/kernels/fmha_v2/setup.py",
        (Tile(128, 128),), packed=(0,),
    ),
    AttentionKernel(
        "trtllm_fmha_mla_sm80",
        "TensorRT-LLM's FMHA but for Hopper and Blackwell, prompts, latent attention not absorbed",
        f"{_TRTLLM}/contextFusedMultiHeadAttention/fmhaRunner.cpp; cpp/kernels/fmha_v2/setup.py",
        (Tile(64, 64),), packed=(0,), carried=("Ampere", "Blackwell RTX"),
    ),
    AttentionKernel(
        "trtllm_gen_mla_context",
        "TensorRT-LLM's kernels for Blackwell, prompts, keys of 192 and values of 128 features",
        f"{_TRTLLM}/trtllmGenKernels/fmha; {_FLASHINFER}, trtllm_fmha",
        (Tile(128, 128),), packed=(0,),
    ),
):  # fmt: skip
    ATTENTION_KERNELS.add(_each.name, _each)
