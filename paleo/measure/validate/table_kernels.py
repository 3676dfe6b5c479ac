"""Which kernel of attention the rows of an operator table are of.

The column `kernel_source` names the library, if it does; else the table of the serving backend
says what it runs (`paleo.costs.tiled.backends`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paleo.core.quantity import Array, np
from paleo.costs.tiled.attention_kernels import ATTENTION_KERNELS
from paleo.costs.tiled.backends import BACKENDS, Backend

#: The column of the kernel's name.
KERNEL = "kernel_source"
#: Kernels for prompts and for one query, by the texts that name them.
_FA2 = ("fa2_prefill", "fa2_decode")
_FA3 = ("fa3_prefill", "fa3_decode")
_FLASHINFER = ("flashinfer_prefill", "flashinfer_decode")
_GEN = ("trtllm_gen_context", "trtllm_gen_generation")
_NAMED: Mapping[str, tuple[str, str]] = {
    "flash_attention": _FA3,
    "vllm_flash_attn": _FA2,
    "vllm_flash_attn_fa2": _FA2,
    "fa3": _FA3,
    "vllm_flash_attn_fa3": ("fa3_prefill", "fa3_decode_vllm"),
    "flashinfer": _FLASHINFER,
    "torch_flow_flashinfer": _FLASHINFER,
    "vllm_flashinfer_fiprefill": _FLASHINFER,
    "vllm_flashinfer_fidecode": _FLASHINFER,
    "triton": ("triton_extend", "triton_decode"),
    "vllm_triton_attn": ("triton_unified_prefill", "triton_unified_decode"),
    "trtllm_mha": _GEN,
    "vllm_flashinfer_trtllmprefill": _GEN,
    "vllm_flashinfer_trtllmdecode": _GEN,
}
#: Kernels of encoders, whose tables have no cache.
_OF_ENCODERS: Mapping[str, str] = {
    "vllm_vit_flash_attn_fa2": "fa2_prefill",
    "flash_attention_v3": "fa3_prefill",
    "vllm_vit_flash_attn_fa3": "fa3_prefill",
    "flash_attention_v4": "fa4_prefill",
    "triton": "triton_encoder",
    "vllm_vit_flash_attn_fa4": "fa4_prefill",
}
#: Features that TensorRT-LLM's kernels for Blackwell are not for.
_NOT_GEN = (72,)
#: Texts that name no library.
_UNNAMED = ("", "torch_flow")
#: Architectures with the larger tiles of SGLang's Triton kernel.
_LARGE = {"triton_extend": "triton_extend_sm90"}
_LARGE_ON = ("Hopper", "Blackwell")


def kernels_of(
    columns: Mapping[str, Array], framework: str, architecture: str, is_narrow: Array
) -> Array:
    """Return the kernel of each row, 0 where none is known; `is_narrow` are keys of one byte."""
    count = len(is_narrow)
    texts = columns.get(KERNEL, np.full(count, "", object))
    is_step = columns["isl"] == 1
    # vLLM runs prompts of one query as steps, the others do not.
    if "step" in columns and framework != "vllm":
        is_step = is_step & (columns["step"] > 0)
    sharing = columns["num_heads"] // columns["num_key_value_heads"]
    found = np.zeros(count, object)
    rows: dict[tuple[Any, ...], list[int]] = {}
    backend = _backend(framework)
    limit = min(backend.lone_heads, 2**31) if backend else 2**31
    shared = np.where(sharing > limit, limit + 1, np.minimum(sharing, 2))
    keys = zip(texts.tolist(), is_step.tolist(), is_narrow.tolist(), shared.tolist(), strict=True)
    for place, key in enumerate(keys):
        rows.setdefault(key, []).append(place)
    for (text, step, narrow, heads), places in rows.items():
        name = ""
        if text in _NAMED:
            name = _NAMED[text][step]
        elif text in _UNNAMED and backend:
            name = backend.attention(architecture, is_step=step, is_narrow=narrow, sharing=heads)
        if architecture in _LARGE_ON:
            name = _LARGE.get(name, name)
        if name and ATTENTION_KERNELS[name].runs_on(architecture):
            found[places] = name
    return found


def kernels_of_encoders(
    columns: Mapping[str, Array], framework: str, architecture: str, count: int
) -> Array:
    """Return the kernel of each row of an encoder's table, 0 where none is known."""
    found = np.zeros(count, object)
    backend = _backend(framework)
    for place, text in enumerate(columns.get(KERNEL, np.full(count, "", object)).tolist()):
        name = _OF_ENCODERS.get(text, "")
        if text in _UNNAMED and backend:
            name = backend.attention(architecture, is_step=False, is_narrow=False)
            if name == _GEN[0] and columns["head_dim"][place] in _NOT_GEN:
                name = "trtllm_fmha_sm80"
        if name and ATTENTION_KERNELS[name].runs_on(architecture):
            found[place] = name
    return found


def _backend(framework: str) -> Backend | None:
    if framework not in BACKENDS:
        return None
    return BACKENDS[framework]


def launches_of(framework: str, kernel: str, is_narrow: bool) -> int | None:
    """Return how many further kernels a backend launches around this one; None if unknown."""
    backend = _backend(framework)
    launches = backend.launches.get(kernel) if backend else None
    return launches[is_narrow] if launches else None
