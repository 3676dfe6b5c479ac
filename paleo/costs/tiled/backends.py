"""Which kernels serving backends run: of products by element type, each with its source.

A backend is a program that serves language models. What it runs before and for a product is its
own code, so a measured operator of it is these operations and no others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from paleo.core.operations import MatMul, Operation
from paleo.core.quantity import Quantity
from paleo.core.quantization import Quantize
from paleo.core.registry import Registry


class Product(NamedTuple):
    """How a product of quantized numbers is computed.

    `quantizer` and `kernel` are names of `quantize.QUANTIZERS` and `product_kernels`; an empty
    kernel is the vendor's library.
    """

    quantizer: str
    kernel: str
    source: str


class Backend(NamedTuple):
    """A serving program: its products by element type, of versions from `since` on."""

    name: str
    since: str
    products: Mapping[str, Product]

    def product(
        self, m: Quantity, n: Quantity, k: Quantity, dtype: str, size: int, output_size: int
    ) -> tuple[Operation, ...]:
        """Return the operations of C[m, n] = A[m, k] B[k, n], where A comes in 2 bytes."""
        how = self.products.get(dtype)
        if how is None:
            return (MatMul(m, n, k, size, output_size),)
        return (
            Quantize(m, k, size, how.quantizer),
            MatMul(m, n, k, size, output_size, kernel=how.kernel),
        )


BACKENDS: Registry[Backend] = Registry("serving backend")

for _each in (
    Backend(
        "sglang",
        "0.5.6",
        {
            "fp8": Product(
                "token_sglang",
                "cutlass_sglang",
                "sgl-project/sglang, python/sglang/srt/layers/quantization/fp8_utils.py: "
                "sgl_per_token_quant_fp8 and fp8_scaled_mm of sgl-kernel",
            )
        },
    ),
    Backend(
        "vllm",
        "0.14",
        {
            "fp8": Product(
                "tensor_vllm",
                "cutlass_vllm",
                "vllm-project/vllm, CutlassFP8ScaledMMLinearKernel of "
                "vllm/model_executor/kernels/linear; one scale of the input, found in it",
            )
        },
    ),
    Backend(
        "trtllm",
        "1.0",
        {
            "fp8": Product(
                "tensor_trtllm",
                "",
                "NVIDIA/TensorRT-LLM, tensorrt_llm/_torch/modules/linear.py: "
                "quantize_e4m3_per_tensor and cublas_scaled_mm",
            )
        },
    ),
):
    BACKENDS.add(_each.name, _each)
