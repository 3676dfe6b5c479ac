"""Tables of multi-head latent attention: `context_mla`, `generation_mla`, `mla_bmm`.

They are of the package `aiconfigurator-core` (read: 0.12.0); what a latency covers is in its
repository, collector/*/collect_mla.py and collect_mla_bmm.py. A prompt has keys of 128 + 64
features and values of 128 (DeepSeek-V3), but for SGLang before Blackwell, which attends to the
latent itself; a step attends to the latent of 512 + 64 features, which all heads share. A call
stores the new latents in the cache, rotates queries and keys where the framework does so in the
same operator, and quantizes them for a cache in fp8. `mla_bmm` are the products of each head with
its part of the latent, before and after a step.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from paleo.cluster import Device
from paleo.core.frozen import NamedTuple
from paleo.core.operations import Attention, GroupedMatMul, Kind, Operation, Pass, Stream
from paleo.core.quantity import Array, Quantity, np
from paleo.core.quantization import Quantize
from paleo.costs.tiled.attention_kernels import ATTENTION_KERNELS
from paleo.measure.validate.table_files import Rows, Table
from paleo.measure.validate.table_groups import Letters, Part, Reading
from paleo.measure.validate.table_kernels import KERNEL

#: Features of a head that are not rotated, of one that are, and of the latent.
_PLAIN, _ROTATED, _LATENT = 128, 64, 512
_KEY, _LATENT_KEY = _PLAIN + _ROTATED, _LATENT + _ROTATED
_HALF = 2
#: Bytes that a lane of PyTorch's casts from 1 byte to 2 moves at a time, on average.
_WIDENED = 3
#: Seconds from one replay of a graph to the next in which the host hands it over: products of few
#: rows take as long on every device. (`mla_bmm` of the H100. Versions that were measured earlier
#: took longer: on the L40S, whose TensorRT-LLM was measured twice, 5.8 and then 4.3.) And those on
#: the device that pass between two, where it computes for longer.
_REPLAYED, _REPLAYED_BEFORE, _BETWEEN = 4.2e-6, 5.8e-6, 1.1e-6
_OLD = {"trtllm": ("1.0.0",), "sglang": ("0.5.10",)}
#: Words of element types.
_WIDE, _NARROW = ("bfloat16", "float16"), "fp8"


class _Call(NamedTuple):
    """How rows are computed: by which kernel, with a cache in 1 byte or 2."""

    kernel: str
    is_step: bool
    is_narrow: bool


def kernel_of(architecture: str, text: str, *, is_step: bool) -> str:
    """Return the kernel that computes latent attention, by the column `kernel_source`."""
    if text == "triton":
        return "triton_mla_decode" if is_step else "triton_extend"
    if text == "flash_attention":
        return "fa3_mla_decode" if is_step else "fa3_mla_prefill"
    if architecture == "Blackwell":
        return "trtllm_gen_mla" if is_step else "trtllm_gen_mla_context"
    if not is_step:
        return "trtllm_fmha_mla" if architecture == "Hopper" else "trtllm_fmha_mla_sm80"
    return "flash_mla" if architecture == "Hopper" else "trtllm_xqa_mla"


def _copy(label: str, read: Quantity, written: Quantity, width: int = 0) -> Stream:
    return Stream(Kind.COPY, (read,), (written,), width=width, label=label)


def _attend(letters: Letters, call: _Call) -> tuple[Operation, ...]:
    batch, heads, queries = letters["batch"], letters["heads"], letters["queries"]
    rows, kernel = batch * queries, call.kernel
    cache = 1 if call.is_narrow else _HALF
    latents = rows * _LATENT_KEY
    if kernel in ("trtllm_fmha_mla", "trtllm_fmha_mla_sm80", "trtllm_gen_mla_context"):
        rotated = _HALF * rows * heads * _ROTATED
        read, written = (rotated, _HALF * latents), (rotated, rotated, _HALF * rows * _LATENT)
        found: tuple[Operation, ...] = (
            Stream(Kind.ELEMENTWISE, read, written, label="rotary and cache"),
        )
        if call.is_narrow:
            elements = rows * heads * (2 * _KEY + _PLAIN)
            found += (_copy("quantize", _HALF * elements, elements),)
        attention = Attention(
            Pass.FORWARD, batch * heads, 1, queries, letters["keys"], _KEY, _PLAIN,
            1 if call.is_narrow else _HALF, causal=True, kernel=kernel,
        )  # fmt: skip
        return (*found, attention)
    # With a cache in 1 byte the same kernel of Blackwell quantizes queries, too.
    fused = rows * heads * _LATENT_KEY if call.is_narrow and kernel == "trtllm_gen_mla" else 0
    found = (_copy("cache", _HALF * (latents + fused), cache * latents + fused),)
    kept = letters["batch"] * letters["keys"]
    size = kv_size = _HALF
    if call.is_narrow and call.is_step:
        if kernel == "trtllm_gen_mla":
            size = kv_size = 1
        elif kernel in ("flash_mla", "trtllm_xqa_mla"):
            kv_size = 1
        else:  # keys, and values once more, are cast to halves
            found += (Stream(Kind.COPY, (), (), label="plan"),)
            found += tuple(
                _copy("widen", kept * features, _HALF * kept * features, _WIDENED)
                for features in (_LATENT_KEY, _LATENT)
            )
    attention = Attention(
        Pass.FORWARD, batch * heads, heads, queries, letters["keys"], _LATENT_KEY, _LATENT, size,
        causal=not call.is_step, kv_size=kv_size, kernel=kernel, values_in_keys=True,
    )  # fmt: skip
    return (*found, attention)


def _attention_parts(
    table: Table, columns: Mapping[str, Array], rows: Rows, device: Device
) -> list[Part]:
    words, caches = columns["mla_dtype"], columns["kv_cache_dtype"]
    rows.leave_out(f"{table.operator} in other types", ~np.isin(words.tolist(), _WIDE))
    unknown = ~np.isin(caches.tolist(), (*_WIDE, _NARROW))
    rows.leave_out(f"{table.operator} with a cache in other types", unknown)
    is_step = table.operator == "generation_mla"
    found = []
    texts = columns[KERNEL]
    for text in sorted(set(texts[rows.left].tolist())):
        kernel = kernel_of(device.architecture, text, is_step=is_step)
        of_text = rows.left & (texts == text)
        if not ATTENTION_KERNELS[kernel].runs_on(device.architecture):
            reason = f"{table.operator} by {kernel} on {device.architecture} is not modelled"
            rows.leave_out(reason, of_text)
            continue
        for is_narrow in (False, True):
            places = (of_text & ((caches == _NARROW) == is_narrow)).nonzero()[0]
            if not len(places):
                continue
            queries = np.ones(len(places), np.int64) if is_step else columns["isl"][places]
            keys = columns["step"][places] + (1 if is_step else columns["isl"][places])
            letters = {
                "batch": columns["batch_size"][places].astype(np.int64),
                "heads": columns["num_heads"][places].astype(np.int64),
                "queries": queries.astype(np.int64),
                "keys": keys.astype(np.int64),
            }
            # Kernels for Blackwell, and TensorRT-LLM's for prompts, multiply what they quantized.
            is_fp8 = is_narrow and kernel.startswith(("trtllm_gen", "trtllm_fmha"))
            make = functools.partial(_attend, call=_Call(kernel, is_step, is_narrow))
            dtype = "fp8" if is_fp8 else "bf16"
            found.append(Part(places, dtype, make, letters, kernel=kernel))
    return found


def _multiply(letters: Letters, quantizer: str, dtype: str) -> tuple[Operation, ...]:
    tokens, heads, n, k = (letters[name] for name in ("tokens", "heads", "N", "K"))
    size = 1 if dtype == "fp8" else _HALF
    product = GroupedMatMul(
        "absorbed", heads, tokens * heads, n, k, size, dtype=dtype, loads=((heads, tokens),),
        output_size=_HALF,
    )  # fmt: skip
    if not quantizer:
        return (product,)
    return (Quantize(tokens * heads, k, 1, quantizer, alone=True, leads=True), product)


def _product_parts(
    table: Table, columns: Mapping[str, Array], rows: Rows, device: Device
) -> list[Part]:
    words, texts = columns["bmm_dtype"], columns[KERNEL]
    is_before = columns["op_name"] == "mla_gen_pre"
    found = []
    for word in sorted(set(words.tolist())):
        for text in sorted(set(texts[words == word].tolist())):
            places = (rows.left & (words == word) & (texts == text)).nonzero()[0]
            if word not in (*_WIDE, _NARROW):
                rows.leave_out(f"{table.operator} in {word} is not modelled", words == word)
                continue
            # What has been turned back into halves beforehand is a product of halves.
            is_fp8 = word == _NARROW and "dequant" not in text
            dtype = "fp8" if is_fp8 else "bf16"
            quantizer = ""
            if is_fp8:
                quantizer = "tensor_sglang" if table.framework == "sglang" else "static"
            before = is_before[places]
            letters = {
                "tokens": columns["num_tokens"][places].astype(np.int64),
                "heads": columns["num_heads"][places].astype(np.int64),
                "N": np.where(before, _LATENT, _PLAIN),
                "K": np.where(before, _PLAIN, _LATENT),
            }
            make = functools.partial(_multiply, quantizer=quantizer, dtype=dtype)
            is_old = table.version in _OLD.get(table.framework, ())
            handed_over = _REPLAYED_BEFORE if is_old else _REPLAYED
            found.append(Part(places, dtype, make, letters, None, handed_over, _BETWEEN))
    return found


_LENGTHS = ("num_heads", "batch_size", "isl", "step")
CONTEXT = Reading(
    "latent attention prefill", ("mla_dtype", "kv_cache_dtype"), _LENGTHS, "kv_cache_dtype",
    _attention_parts,
)  # fmt: skip
GENERATION = CONTEXT._replace(kind="latent attention decode")
PRODUCTS = Reading(
    "latent bmm", ("bmm_dtype", "op_name"), ("num_tokens", "num_heads"), "bmm_dtype",
    _product_parts,
)  # fmt: skip
