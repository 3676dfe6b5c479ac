"""Tables of whole modules of latent attention: `mla_*_module` and `dsa_*_module`.

They are of the package `aiconfigurator-core` (read: 0.12.0); what a latency covers is in its
repository, collector/*/collect_mla_module.py: one module of DeepSeek-V3, DeepSeek-V3.2, Kimi-K3 or
GLM-5 on one of the devices that share its heads, from the hidden state to the output projection.
SGLang's begins behind the first projection. With an indexer (DSA) a query attends to 2,048 keys;
SGLang attends to all of a prompt that has no more. Prompts of SGLang and vLLM were timed without
CUDA graphs, so that one takes what the host takes at least.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from paleo.cluster import Device
from paleo.core.frozen import NamedTuple
from paleo.core.operations import Attention, BatchMatMul, Operation, Pass
from paleo.core.quantity import Array, Quantity, minimum, np
from paleo.core.selection import IndexScores, Select, SelectedAttention
from paleo.costs.tiled.attention_kernels import ATTENTION_KERNELS
from paleo.measure.validate.sparse_tables import DEEPGEMM, TYPES, copy, product, products_of
from paleo.measure.validate.table_files import Rows, Table
from paleo.measure.validate.table_groups import Letters, Part, Reading
from paleo.measure.validate.table_kernels import KERNEL

_HALF = 2
#: Features of the latent of keys and values, and of what is rotated; keys that an indexer selects;
#: features of an index head; heads that kernels take at a time.
_LATENT, _ROTATED, _CHOSEN, _INDEX_DEPTH, _TILE = 512, 64, 2048, 128, 64
#: Bytes read and written of an element by PyTorch's operations of an RMSNorm (vllm,
#: model_executor/layers/layernorm.py: forward_native): to fp32, its square, the mean, times the
#: root's inverse, back to 2 bytes, times the weights.
_NATIVE = ((2, 4), (4, 4), (4, 0), (4, 4), (4, 2), (2, 2))
#: What a table's notes say where norms were single kernels, and of which version others were not.
_NOTES, _SINGLE, _CHAINED = "collection_meta.yaml", "norm_dispatch", "0.24"
#: FlashMLA's kernels of prompts take as many keys whatever a query has; TensorRT-LLM's on Hopper
#: takes 128 heads, too.
_WHOLE = ("dsa_sglang_flashmla_sparse", "dsa_trtllm_hopper", "dsa_trtllm_hopper_step")
_FILLED, _FILLED_HEADS = "trtllm_hopper", 128
#: Bytes of scores above which SGLang computes them in parts, as its free memory allows.
_SCORES = 2.0e9
#: A prompt behind more positions was timed with further work of the host.
_LONG = 131072


class _Model(NamedTuple):
    """Sizes: hidden, of the latent of queries, of a head's keys and values, index heads."""

    hidden: int
    latent: int
    plain: int
    values: int
    index_heads: int


_DEEPSEEK, _GLM = _Model(7168, 1536, 128, 128, 64), _Model(6144, 2048, 192, 256, 32)
_MODELS = {"DeepSeek-V3": _DEEPSEEK, "Kimi-K3": _DEEPSEEK, "GLM-5": _GLM}


class Host(NamedTuple):
    """Seconds in which a host hands over the kernels of a module.

    With products in fp8 by blocks, or in nvfp4, it takes so much longer, and with a cache in fp8;
    `grace` is how many times as long where the host is NVIDIA's Grace.
    """

    base: float
    block: float = 0.0
    quarter: float = 0.0
    narrow: float = 0.0
    grace: float = 1.0

    def of(self, device: Device, word: str, is_narrow: bool) -> float:
        """Return its time on a device's host, with products of a type of the tables."""
        more = {"fp8_block": self.block, "nvfp4": self.quarter}.get(word, 0.0)
        seconds = self.base + more + self.narrow * is_narrow
        return seconds * (self.grace if device.name.startswith("GB") else 1.0)


#: Those of the shortest prompts on the H100, and on the GB200 for Grace: medians, to 5 us.
NO_HOST = Host(0.0)
_HOSTS = {
    ("sglang", "dense"): Host(515e-6, 335e-6, narrow=120e-6, grace=1.8),
    ("sglang", "selected"): Host(1065e-6, 405e-6, narrow=80e-6, grace=1.65),
    ("sglang", "given"): Host(345e-6, 235e-6, narrow=100e-6, grace=2.0),
    ("vllm", "selected"): Host(1310e-6, 260e-6, 380e-6, 40e-6, 2.1),
}


class _Call(NamedTuple):
    """A module: `kind` says how it attends.

    That is to all keys ("dense", absorbed in a step), to keys that it selects, or to those that a
    layer before has selected ("given").
    """

    model: _Model
    kind: str
    is_step: bool
    is_narrow: bool
    products: str
    framework: str
    kernel: str
    is_native: bool = False


def _norms(tokens: Quantity, features: int) -> tuple[Operation, ...]:
    """Return an RMSNorm as PyTorch's operations, one after the other."""
    elements = tokens * features
    passes = tuple(copy("norm", read * elements, written * elements) for read, written in _NATIVE)
    # The mean of squares, its sum with epsilon and its root are of a number for each token.
    return (*passes, *(copy("norm", 4 * tokens, 4 * tokens) for _ in range(2)))


def _inputs(letters: Letters, call: _Call) -> tuple[Operation, ...]:
    """Return what makes queries of the hidden state, and the latent."""
    model, tokens = call.model, letters["tokens"]
    latent = model.latent + _LATENT + _ROTATED
    first: tuple[Operation, ...]
    if call.framework == "sglang":
        first = (copy("random latents", 0.0 * tokens, _HALF * tokens * latent),)
    else:
        first = product(tokens, latent, model.hidden, call.products)
    heads = letters["heads"] * (model.plain + _ROTATED)
    kept = _HALF * tokens * latent
    norms: tuple[Operation, ...] = (copy("norms", kept, kept),)
    if call.is_native:
        norms = (*_norms(tokens, model.latent), *_norms(tokens, _LATENT))
    return (
        *first,
        *norms,
        *product(tokens, heads, model.latent, call.products),
        copy("rotary and cache", kept, kept),
    )


def _index(letters: Letters, call: _Call) -> tuple[Operation, ...]:
    """Return the indexer: its queries and key, scores and selection."""
    model, tokens, keys = call.model, letters["tokens"], letters["keys"]
    width = model.index_heads * _INDEX_DEPTH
    name = "paged" if call.is_step else "blocks"
    return (
        *product(tokens, width, model.latent, call.products),
        *product(tokens, _INDEX_DEPTH, model.hidden, call.products),
        *product(tokens, model.index_heads, model.hidden),
        copy("norm, rotary and quantize", _HALF * tokens * width, tokens * width),
        IndexScores(
            letters["batch"], tokens, keys, model.index_heads, _INDEX_DEPTH,
            f"dsa_{name}_{call.framework}",
        ),
        Select(tokens, keys, _CHOSEN, f"dsa_topk_{call.framework}"),
    )  # fmt: skip


def _dense(letters: Letters, call: _Call) -> tuple[Operation, ...]:
    """Return attention of prompts to keys and values that are made of all latents."""
    model, heads, batch = call.model, letters["heads"], letters["batch"]
    rows = batch * letters["all"]
    made = rows * heads * (model.plain + model.values)
    found: tuple[Operation, ...] = ()
    if call.kind == "dense with index":  # the cache of the indexer is filled all the same
        found = product(letters["tokens"], _INDEX_DEPTH, model.hidden, call.products)
    return (
        *found,
        *product(rows, heads * (model.plain + model.values), _LATENT, call.products),
        copy("keys", _HALF * made, _HALF * rows * heads * (model.plain + _ROTATED)),
        Attention(
            Pass.FORWARD, batch * heads, 1, letters["queries"], letters["all"],
            model.plain + _ROTATED, model.values, _HALF, causal=True, kernel=call.kernel,
        ),
    )  # fmt: skip


def _absorbed(letters: Letters, call: _Call) -> tuple[Operation, ...]:
    """Return attention to latents, with products of each head before and after."""
    model, heads, tokens = call.model, letters["heads"], letters["tokens"]
    size = 1 if call.is_narrow else _HALF
    width = _LATENT + _ROTATED
    attention: tuple[Operation, ...]
    if call.kind == "dense":
        attention = (
            Attention(
                Pass.FORWARD, letters["batch"] * heads, heads, 1, letters["keys"], width, _LATENT,
                _HALF, kv_size=size, kernel=call.kernel, values_in_keys=True,
            ),
        )  # fmt: skip
    else:
        tile = _FILLED_HEADS if _FILLED in call.kernel else _TILE
        least = _CHOSEN * (call.kernel in _WHOLE)
        keys = minimum(letters["keys"], _CHOSEN)
        filled = np.where(heads < tile, _HALF * tokens * tile * width, 0.0)
        attention = (
            copy("heads filled up", filled, filled),
            SelectedAttention(
                tokens, np.maximum(heads, tile), np.maximum(keys, least),
                letters["batch"] * letters["all"],
                width, _LATENT, call.kernel, size,
            ),
        )  # fmt: skip
    queries = _HALF * tokens * heads
    return (
        BatchMatMul("absorbed", heads, tokens, _LATENT, model.plain, _HALF),
        copy("queries", queries * width, queries * width),
        *attention,
        BatchMatMul("values", heads, tokens, model.values, _LATENT, _HALF),
    )


def _module(letters: Letters, call: _Call) -> tuple[Operation, ...]:
    found = _inputs(letters, call)
    if call.kind == "selected":
        found += _index(letters, call)
    is_whole = call.kind.startswith("dense") and not call.is_step
    found += _dense(letters, call) if is_whole else _absorbed(letters, call)
    width = letters["heads"] * call.model.values
    return (*found, *product(letters["tokens"], call.model.hidden, width, call.products))


def _kernel(framework: str, text: str, kind: str, device: Device, is_step: bool) -> str:
    """Return the kernel of attention of a text, "" if none is known."""
    is_hopper = device.architecture == "Hopper"
    if kind.startswith("dense"):
        if not is_step:
            if framework == "trtllm":
                return "trtllm_fmha_mla" if is_hopper else "trtllm_gen_mla_context"
            return "fa3_prefill" if is_hopper else "trtllm_gen_mla_context"
        if not is_hopper:
            return "trtllm_gen_mla"
        return "fa3_mla_decode" if text == "FLASH_ATTN_MLA" else "flash_mla"
    steps = "_step" * is_step
    if framework != "sglang":
        owner = "flashinfer" if "FLASHINFER" in text else framework
        if framework == "trtllm" and is_hopper:
            owner = _FILLED
        return f"dsa_{owner}{steps}"
    for word in ("trtllm", "fa3", "flashmla_kv", "flashmla_sparse"):
        if text.endswith(word):
            return f"dsa_sglang_{word}{steps}"
    return ""


def _kind(table: Table, text: str) -> str:
    if table.operator.startswith("mla"):
        return "dense"
    if "dense" in text:
        return "dense with index"
    return "given" if "skip_indexer" in text else "selected"


def _is_native(table: Table) -> bool:
    """Tell whether norms of vLLM ran operation by operation, which no server does.

    The package's notes of one system say so of all rows before those that it has instead.
    """
    is_one = table.framework == "vllm" and table.operator.startswith("mla")
    notes = table.path.parent / _NOTES
    if not (is_one and table.version.startswith(_CHAINED) and notes.is_file()):
        return False
    return _SINGLE not in notes.read_text(encoding="utf-8", errors="replace")


def _leave_out(table: Table, columns: Mapping[str, Array], rows: Rows) -> None:
    """Leave out what is measured otherwise than the rest."""
    name = table.operator
    batch, isl, step = columns["batch_size"], columns["isl"], columns["step"]
    if "context" not in name or not name.startswith("dsa"):
        return
    scores = 4.0 * batch * isl * batch * (isl + step)
    texts = columns[KERNEL].astype(str)
    is_scored = np.char.find(texts, "dense") + np.char.find(texts, "skip_indexer") < -1
    if table.framework == "sglang":
        rows.leave_out(f"{name}: behind so many positions the host does more", step >= _LONG)
        rows.leave_out(f"{name}: scores that are computed in parts", is_scored & (scores > _SCORES))


def _parts(table: Table, columns: Mapping[str, Array], rows: Rows, device: Device) -> list[Part]:
    texts, models = columns[KERNEL], columns["model"]
    types, caches = columns["gemm_type"], columns["kv_cache_dtype"]
    is_step = "generation" in table.operator
    if device.architecture not in DEEPGEMM:
        rows.leave_out(f"{table.operator} on {device.architecture} is not modelled", rows.left)
    _leave_out(table, columns, rows)
    is_native = _is_native(table)
    found = []
    kinds = zip(texts.tolist(), models.tolist(), types.tolist(), caches.tolist(), strict=True)
    for text, name, word, cache in sorted(set(kinds)):
        mask = rows.left & (texts == text) & (models == name) & (types == word) & (caches == cache)
        if not mask.any():
            continue
        model = next((known for key, known in _MODELS.items() if key in name), None)
        kind = _kind(table, text)
        kernel = _kernel(table.framework, text, kind, device, is_step)
        is_known = bool(kernel) and (
            kernel not in ATTENTION_KERNELS
            or ATTENTION_KERNELS[kernel].runs_on(device.architecture)
        )
        if model is None or not is_known or word not in TYPES:
            reason = f"{table.operator} of {name} in {word} by {text} is not modelled"
            rows.leave_out(reason, mask)
            continue
        places = mask.nonzero()[0]
        batch, isl, step = (columns[key][places] for key in ("batch_size", "isl", "step"))
        letters = {
            "batch": batch.astype(float),
            "heads": columns["num_heads"][places].astype(np.int64),
            "queries": isl.astype(np.int64),
            "tokens": (batch * isl).astype(float),
            # Those that a query sees on average, and all that there are.
            "keys": step + (1.0 if is_step else (isl + 1) / 2),
            "all": (step + isl).astype(float),
        }
        call = _Call(
            model, kind, is_step, cache == "fp8",
            products_of(word, device.architecture, table.framework), table.framework, kernel,
            is_native,
        )  # fmt: skip
        host = NO_HOST
        if not is_step and table.operator.startswith("dsa"):
            host = _HOSTS.get((table.framework, kind.partition(" ")[0]), NO_HOST)
        found.append(
            Part(
                places, "bf16", functools.partial(_module, call=call), letters,
                host=host.of(device, word, cache == "fp8"),
            )
        )  # fmt: skip
    return found


MODULES = Reading(
    "latent module", ("model", "gemm_type", "kv_cache_dtype"),
    ("num_heads", "batch_size", "isl", "step"), "gemm_type", _parts,
)  # fmt: skip
DSA = MODULES._replace(kind="sparse attention")
