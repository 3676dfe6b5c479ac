"""Families of kernels of attention that a user may ask for, by name.

A family is a library's kernels, for prompts and for one query, by the architecture that they are
for. What each does and how quick it is, a cost model says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from paleo.cluster import Device
from paleo.core.errors import SettingError, near
from paleo.core.frozen import NamedTuple
from paleo.core.registry import Registry, unknown

if TYPE_CHECKING:
    from paleo.costs.model import CostModel

#: The element types that these kernels compute in.
DTYPES = ("fp16", "bf16")


class AttentionFamily(NamedTuple):
    """Kernels of a library: `kernels` are the one for prompts and for one query, by architecture.

    Architectures are those of which it was measured how quick the kernels are. A text is empty
    where there is none of its own. Products of the forward and of the backward pass take `slower`
    times as long as FlashAttention-2's where a family has no kernels with constants of their own.
    """

    name: str
    summary: str
    kernels: Mapping[str, tuple[str, str]]
    slower: tuple[float, float] = (1.0, 1.0)


def _on(architectures: str, prompt: str, step: str) -> dict[str, tuple[str, str]]:
    return dict.fromkeys(architectures.split(", "), (prompt, step))


ATTENTION_FAMILIES: Registry[AttentionFamily] = Registry("family of attention kernels")

for _each in (
    # T. Dao, FlashAttention-2 (arXiv:2307.08691), section 4.1, on the A100: about twice as quick as
    # FlashAttention; 1.3 to 1.5 times, and backward twice, as quick as FlashAttention in Triton.
    AttentionFamily("fa1", "FlashAttention, before 2", _on("Ampere", "", ""), (2.0, 2.0)),
    AttentionFamily(
        "fa1_triton", "FlashAttention, before 2, in Triton", _on("Ampere", "", ""), (1.4, 2.0)
    ),
    AttentionFamily(
        "fa2", "FlashAttention-2", _on("Ampere, Ada, Blackwell RTX", "fa2_prefill", "fa2_decode")
    ),
    AttentionFamily("fa3", "FlashAttention-3", _on("Ampere, Hopper", "fa3_prefill", "fa3_decode")),
    AttentionFamily("fa4", "FlashAttention-4, prompts", _on("Blackwell", "fa4_prefill", "")),
    AttentionFamily(
        "flashinfer", "FlashInfer",
        _on("Ada, Blackwell, Blackwell RTX", "flashinfer_prefill", "flashinfer_decode"),
    ),
    AttentionFamily(
        "triton", "SGLang's in Triton",
        {
            **_on("Ada, Blackwell RTX", "triton_extend", "triton_decode"),
            **_on("Hopper, Blackwell", "triton_extend_sm90", "triton_decode"),
        },
    ),
    AttentionFamily(
        "triton_unified", "vLLM's in Triton",
        _on("Ada, Blackwell, Blackwell RTX", "triton_unified_prefill", "triton_unified_decode"),
    ),
    AttentionFamily(
        "trtllm", "TensorRT-LLM's",
        {
            **_on("Ampere, Ada, Hopper, Blackwell RTX", "trtllm_fmha", "trtllm_xqa"),
            **_on("Blackwell", "trtllm_gen_context", "trtllm_gen_generation"),
        },
    ),
):  # fmt: skip
    ATTENTION_FAMILIES.add(_each.name, _each)
ATTENTION_FAMILIES.built_in = tuple(ATTENTION_FAMILIES)


def checked_attention(name: str | None) -> str | None:
    """Return the name of a family, or None; raises UnknownNameError, which lists them."""
    if name is not None and name not in tuple(ATTENTION_FAMILIES):
        names = list(ATTENTION_FAMILIES)
        listed = f"; there are: {', '.join(names)}" if near(str(name), names) else ""
        raise unknown(ATTENTION_FAMILIES.kind, name, names, listed)
    return name


def check_attention(name: str | None, device: Device, dtype: str, model: CostModel) -> None:
    """Raise SettingError unless a cost model can price a family's kernels on a device.

    `dtype` is the type that products compute in.
    """
    if name is None:
        return
    if not model.knows_attention_kernels:
        raise SettingError(f"attention: cost model {model.name} knows no kernels; tiled does")
    kernels = ATTENTION_FAMILIES[name].kernels
    if device.architecture not in kernels:
        fits = [
            each.name for each in ATTENTION_FAMILIES.values() if device.architecture in each.kernels
        ]
        others = f"which has {', '.join(fits)}" if fits else "of which no kernel is known"
        raise SettingError(
            f"attention: {name} is for devices of {', '.join(kernels)}, not for {device.name} "
            f"({device.architecture or device.kind}), {others}"
        )
    if dtype not in DTYPES:
        raise SettingError(f"attention: {name} computes in {' and '.join(DTYPES)}, not in {dtype}")
