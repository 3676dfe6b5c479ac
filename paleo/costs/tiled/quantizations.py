"""In which numbers serving programs multiply: element types, and the bytes of weights and scales.

Letters: M rows, N columns, K features of a product C[M, N] = A[M, K] B[K, N], whose A comes in 2
bytes an element.
"""

from __future__ import annotations

from collections.abc import Mapping

from paleo.core.frozen import NamedTuple
from paleo.core.operations import GroupedMatMul, Kind, MatMul, Operation, Stream
from paleo.core.quantity import Quantity
from paleo.core.quantization import Quantize
from paleo.costs.tiled.backends import Backend

#: Bytes of what comes in and goes out.
_HALF = 2
#: Numbers whose scales no checkpoint has.
_DYNAMIC = "fp8_dynamic"
#: What finds scales where no program says: one for each row.
_QUANTIZER = "token_sglang"


class Quantization(NamedTuple):
    """What is multiplied: `dtype` computes, `size` and `weight_size` are bytes of A and B.

    Scales are counted in `weight_size`. `suffix` ends the names of kernels of experts.
    """

    summary: str
    dtype: str
    size: float
    weight_size: float
    suffix: str = ""


#: By the name that a user gives. Scales are of 128 x 128 weights in fp8_block, of 128 in int4, of
#: 32 in mxfp4 (one byte) and of 16 in nvfp4 (one byte). Products of 4 bits are twice as quick as
#: those of fp8. GGUF's blocks are those of ggml (ggml/src/ggml-common.h): 34 bytes of 32 numbers in
#: q8_0, 144 of 256 in q4_K, 210 of 256 in q6_K; of q4_k_m half of the values' and the second
#: products' matrices are q6_K (llama.cpp, src/llama-quant.cpp), 4.9 bits on the whole.
QUANTIZATIONS: Mapping[str, Quantization] = {
    "bf16": Quantization("bf16, as it is", "bf16", 2, 2, "bf16"),
    "fp16": Quantization("fp16, as it is", "fp16", 2, 2, "bf16"),
    "fp8": Quantization("fp8, a scale for each row or tensor", "fp8", 1, 1, "fp8"),
    "fp8_dynamic": Quantization("fp8, scales of inputs found as they come", "fp8", 1, 1, "fp8"),
    "fp8_block": Quantization(
        "fp8, a scale for each block of 128", "fp8", 1, 1 + 4 / 128**2, "fp8_block"
    ),
    "int8": Quantization("int8, weights and activations", "int8", 1, 1),
    "int4": Quantization("int4 weights alone", "bf16", 2, 0.5 + 2 / 128, "int4"),
    "mxfp4": Quantization("mxfp4 weights alone", "bf16", 2, 0.5 + 1 / 32, "mxfp4"),
    "mxfp4_mxfp8": Quantization("mxfp4 by mxfp8", "fp8", 1, 0.5 + 1 / 32, "mxfp4_mxfp8"),
    "nvfp4": Quantization("nvfp4, weights and activations", "fp8", 0.5, 0.5 + 1 / 16, "nvfp4"),
    "q8_0": Quantization("GGUF's 8 bits", "fp16", 2, 34 / 32),
    "q4_k_m": Quantization("GGUF's 4 bits, a mix of 4 and 6", "fp16", 2, 4.9 / 8),
}

#: Architectures that DeepGEMM is for; elsewhere products of blocks are the vendor library's.
DEEPGEMM = ("Hopper", "Blackwell")


#: Of up to so many rows llama.cpp multiplies by lanes, without tiles: a pass over the weights
#: (ggml-org/llama.cpp, ggml/src/ggml-cuda/mmvq.cuh: MMVQ_MAX_BATCH_SIZE; mmvf.cu).
ROWS_OF_LANES = 8


def by_lanes(
    rows: Quantity, columns: Quantity, features: Quantity, name: str, count: int
) -> tuple[Operation, Operation]:
    """Return products of few rows that lanes compute as they read the weights: `count` of them.

    The first is one kernel with its rows, the second the weights of all of them, which no cache
    keeps from one step to the next.
    """
    weights = QUANTIZATIONS[name].weight_size * columns * features
    read, written = _HALF * rows * features, _HALF * rows * columns
    return (
        Stream(Kind.REDUCTION, (read,), (written,), label="product by lanes"),
        Stream(Kind.REDUCTION, (count * weights,), (0 * rows,), label="weights"),
    )


def product(
    rows: Quantity, columns: Quantity, features: Quantity, name: str, architecture: str,
    backend: Backend | None,
) -> tuple[Operation, ...]:  # fmt: skip
    """Return the operations of a product whose weights are so quantized, by a program's kernels."""
    kind = QUANTIZATIONS[name]
    m, n, k = rows, columns, features
    if kind.size == _HALF:
        weights = 0 if kind.weight_size == _HALF else kind.weight_size
        return (MatMul(m, n, k, _HALF, dtype=kind.dtype, weight_size=weights),)
    if name == "nvfp4":
        # A grouped product of one group, whose numbers have half a byte.
        multiply = GroupedMatMul(
            "projection", 1, m, n, k, kind.size, dtype=kind.dtype, loads=((1, m),),
            weight_size=kind.weight_size, output_size=_HALF,
        )  # fmt: skip
        # Its one scale of a tensor is the checkpoint's, those of 16 numbers are found.
        return (Quantize(m, k, kind.size, "group"), multiply)
    quantizer, kernel, is_folded = _QUANTIZER, "", False
    if name == "fp8_block":
        quantizer, kernel = "group", "deepgemm" if architecture in DEEPGEMM else ""
    elif backend is not None and kind.suffix in backend.products:
        own = backend.products[kind.suffix]
        quantizer, kernel = own.quantizer, own.kernel
        is_folded = own.is_folded and name != _DYNAMIC
    narrow = MatMul(m, n, k, 1, _HALF, dtype=kind.dtype, kernel=kernel)
    return (narrow,) if is_folded else (Quantize(m, k, 1, quantizer), narrow)
