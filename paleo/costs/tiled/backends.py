"""Which kernels serving backends run, of products and of attention, each with its source.

A backend is a program that serves language models. What it runs before and for a product is its
own code, so a measured operator of it is these operations and no others.
"""

from __future__ import annotations

from collections.abc import Mapping

from paleo.cluster.device import Device
from paleo.core.frozen import NamedTuple
from paleo.core.operations import MatMul, Operation
from paleo.core.quantity import Quantity
from paleo.core.quantization import Quantize
from paleo.core.registry import Registry
from paleo.costs.tiled.expert_kernels import is_tuned


class Product(NamedTuple):
    """How a product of quantized numbers is computed.

    `quantizer` and `kernel` are names of `quantize.QUANTIZERS` and `product_kernels`; an empty
    kernel is the vendor's library. Served, its input is written in few bits by the kernel before
    (`is_folded`) where checkpoints have its scale: the norm, the gate or the attention.
    """

    quantizer: str
    kernel: str
    source: str
    is_folded: bool = False


class Launches(NamedTuple):
    """Kernels that a backend launches around one of attention, which move next to nothing.

    They prepare what it reads: plans, casts, scales. With keys of 2 bytes, and of 1. (As many as
    the shortest operators of aiconfigurator-core 0.12.0 show.)
    """

    wide: int
    narrow: int


class Backend(NamedTuple):
    """A serving program: its products by element type, of versions from `since` on.

    `prompt` and `step` are its kernels of attention by architecture, for a prompt and for one
    query: those for keys of 2 bytes, and of 1. `launches` are the further kernels by kernel.
    `lone_heads` is how many heads may share keys before it falls back to `fallback`.
    """

    name: str
    since: str
    products: Mapping[str, Product]
    prompt: Mapping[str, tuple[str, str]]
    step: Mapping[str, tuple[str, str]]
    launches: Mapping[str, Launches]
    lone_heads: int = 2**31
    fallback: str = ""
    #: Kernels of latent attention by architecture, for a prompt and for one query.
    latents: Mapping[str, tuple[str, str]] = {}
    #: Kernels of experts by the end of their names, which says the numbers: on Blackwell, and on
    #: all before.
    of_experts: Mapping[str, tuple[str, str]] = {}

    #: Kernels of attention to chosen latents by architecture, for prompts and for one query.
    of_best: Mapping[str, tuple[str, str]] = {}

    def best(self, architecture: str, *, is_step: bool) -> str:
        """Return the kernel of attention to chosen latents, "" if none is known."""
        return self.of_best.get(architecture, ("", ""))[is_step]

    def latent(self, architecture: str, *, is_step: bool) -> str:
        """Return the kernel of latent attention that it runs, "" if none is known."""
        return self.latents.get(architecture, ("", ""))[is_step]

    def experts(self, device: Device, quantization: str, held: int, inner: Quantity) -> str:
        """Return the kernel of so many experts with so many columns, "" if none is known."""
        suffix = {"fp16": "bf16"}.get(quantization, quantization)
        older, newer = self.of_experts.get(suffix, ("", ""))
        found = newer if device.architecture.startswith("Blackwell") else older
        if found == "sglang_triton_bf16" and is_tuned(device.name, held, inner):
            return "sglang_triton_tuned_bf16"
        return found

    def attention(
        self, architecture: str, *, is_step: bool, is_narrow: bool, sharing: int = 1
    ) -> str:
        """Return the kernel of attention that it runs on an architecture, "" if none is known."""
        found = (self.step if is_step else self.prompt).get(architecture)
        if found is None:
            return ""
        if is_step and sharing > self.lone_heads:
            return self.fallback
        # TensorRT-LLM's kernel for Hopper is for keys of 1 byte that several heads share.
        if sharing == 1 and found[1] == "trtllm_xqa_sm90":
            return found[0]
        return found[is_narrow]

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


def _same(RTX: str = "", **kernels: str) -> dict[str, tuple[str, str]]:  # noqa: N803
    """Return kernels by architecture, the same for keys of any size."""
    given = {**kernels, **({"Blackwell RTX": RTX} if RTX else {})}
    return {architecture: (kernel, kernel) for architecture, kernel in given.items()}


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
            ),
            "fp8_block": Product(
                "group",
                "deepgemm",
                "sgl-project/sglang, python/sglang/srt/layers/deep_gemm_wrapper",
            ),
        },
        # python/sglang/srt/server_args.py and layers/attention.
        _same(
            Ampere="fa3_prefill",
            Ada="flashinfer_prefill",
            Hopper="fa3_prefill",
            Blackwell="trtllm_gen_context",
            RTX="flashinfer_prefill",
        ),
        _same(
            Ampere="fa3_decode",
            Ada="flashinfer_decode",
            Hopper="fa3_decode",
            Blackwell="trtllm_gen_generation",
            RTX="flashinfer_decode",
        ),
        {
            "fa3_prefill": Launches(2, 2),
            "fa3_decode": Launches(3, 4),
            "flashinfer_prefill": Launches(0, 2),
            "flashinfer_decode": Launches(0, 2),
            "triton_extend": Launches(3, 5),
            "triton_extend_sm90": Launches(3, 5),
            "triton_encoder": Launches(3, 5),
            "triton_decode": Launches(1, 2),
            "trtllm_gen_context": Launches(3, 3),
            "trtllm_gen_generation": Launches(4, 7),
        },
        latents={
            "Hopper": ("fa3_prefill", "fa3_mla_decode"),
            "Blackwell": ("trtllm_gen_mla_context", "trtllm_gen_mla"),
        },
        of_best={
            "Hopper": ("dsa_sglang_flashmla_sparse", "dsa_sglang_fa3_step"),
            "Blackwell": ("dsa_sglang_trtllm", "dsa_sglang_trtllm_step"),
        },
        of_experts={
            "bf16": ("sglang_triton_bf16", "flashinfer_gen_bf16"),
            "fp8": ("vllm_triton", "flashinfer_gen_fp8"),
            "fp8_block": ("sglang_triton_fp8_block", "flashinfer_gen_fp8_block"),
            "int4": ("marlin_int4", "flashinfer_gen_int4"),
            "mxfp4": ("sglang_triton_mxfp4", "flashinfer_gen_mxfp4_mxfp8"),
            "nvfp4": ("", "flashinfer_gen_nvfp4"),
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
                "vllm/model_executor/kernels/linear; one scale of the input, found in it, or that "
                "of a checkpoint, applied by what Inductor compiles before it "
                "(vllm/compilation/fusion.py)",
                is_folded=True,
            )
        },
        # vllm/platforms/cuda.py and vllm/v1/attention/backends.
        {
            **_same(Ampere="fa2_prefill", Hopper="fa3_prefill", Blackwell="trtllm_gen_context"),
            "Ada": ("fa2_prefill", "flashinfer_prefill"),
            "Blackwell RTX": ("fa2_prefill", "flashinfer_prefill"),
        },
        {
            **_same(
                Ampere="fa2_decode", Hopper="fa3_decode_vllm", Blackwell="trtllm_gen_generation"
            ),
            "Ada": ("fa2_decode", "flashinfer_decode"),
            "Blackwell RTX": ("fa2_decode", "flashinfer_decode"),
        },
        {
            "fa2_prefill": Launches(2, 2),
            "fa2_decode": Launches(4, 4),
            "fa3_prefill": Launches(3, 3),
            "fa3_decode_vllm": Launches(4, 4),
            "flashinfer_prefill": Launches(2, 2),
            "flashinfer_decode": Launches(4, 4),
            "triton_unified_prefill": Launches(0, 0),
            "triton_unified_decode": Launches(2, 2),
            "trtllm_gen_context": Launches(4, 3),
            "trtllm_gen_generation": Launches(4, 3),
        },
        latents={
            "Hopper": ("fa3_prefill", "flash_mla"),
            "Blackwell": ("trtllm_gen_mla_context", "trtllm_gen_mla"),
        },
        of_best={
            "Hopper": ("dsa_vllm", "dsa_vllm_step"),
            "Blackwell": ("dsa_flashinfer", "dsa_flashinfer_step"),
        },
        of_experts={
            "bf16": ("vllm_triton", "flashinfer_gen_bf16"),
            "fp8": ("vllm_triton", "flashinfer_gen_fp8"),
            "fp8_block": ("vllm_triton_fp8_block", "flashinfer_gen_fp8_block"),
            "int4": ("marlin_int4", "marlin_int4"),
            "mxfp4": ("vllm_triton_kernels_mxfp4", "flashinfer_gen_mxfp4_mxfp8"),
            "nvfp4": ("", "flashinfer_gen_nvfp4"),
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
                "quantize_e4m3_per_tensor and cublas_scaled_mm; with a checkpoint's scale "
                "RESIDUAL_RMS_NORM_QUANT_FP8, swiglu and attention write fp8",
                is_folded=True,
            ),
            "fp8_block": Product(
                "group",
                "deepgemm",
                "NVIDIA/TensorRT-LLM, tensorrt_llm/_torch/modules/linear.py: fp8_swap_ab_gemm, "
                "on Blackwell",
            ),
        },
        # cpp/tensorrt_llm/common/attentionOp.cpp and kernels/fmhaDispatcher.cpp.
        _same(
            Ampere="trtllm_fmha",
            Ada="trtllm_fmha",
            Hopper="trtllm_fmha",
            Blackwell="trtllm_gen_context",
            RTX="trtllm_fmha",
        ),
        {
            **_same(Ampere="trtllm_xqa", Blackwell="trtllm_gen_generation"),
            "Ada": ("trtllm_xqa", "trtllm_xqa_fp8"),
            "Hopper": ("trtllm_xqa", "trtllm_xqa_sm90"),
            "Blackwell RTX": ("trtllm_xqa", "trtllm_xqa_fp8"),
        },
        {
            "trtllm_fmha": Launches(3, 3),
            "trtllm_xqa": Launches(3, 5),
            "trtllm_xqa_fp8": Launches(3, 5),
            "trtllm_xqa_sm90": Launches(3, 3),
            "trtllm_mmha": Launches(2, 3),
            "trtllm_fmha_sm80": Launches(7, 6),
            "trtllm_gen_context": Launches(7, 6),
            "trtllm_gen_generation": Launches(5, 6),
            "flashinfer_prefill": Launches(0, 1),
            "flashinfer_decode": Launches(0, 3),
        },
        32,
        "trtllm_mmha",
        latents={
            "Hopper": ("trtllm_fmha_mla", "flash_mla"),
            "Blackwell": ("trtllm_gen_mla_context", "trtllm_gen_mla"),
        },
        of_best={
            "Hopper": ("dsa_trtllm_hopper", "dsa_trtllm_hopper_step"),
            "Blackwell": ("dsa_trtllm", "dsa_trtllm_step"),
        },
        of_experts={
            "bf16": ("trtllm_cutlass_bf16", "trtllm_cutlass_bf16"),
            "fp8": ("trtllm_cutlass_fp8", "trtllm_cutlass_fp8"),
            "fp8_block": ("trtllm_cutlass_fp8_block", "flashinfer_gen_fp8_block"),
            "mxfp4": ("trtllm_w4a16", "trtllm_gen_mxfp4_mxfp8"),
            "nvfp4": ("", "trtllm_gen_nvfp4"),
        },
    ),
):
    BACKENDS.add(_each.name, _each)
