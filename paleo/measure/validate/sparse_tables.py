"""Tables of whole modules of sparse attention: `dsv4_csa_*` and `dsv4_hca_*`.

They are of the package `aiconfigurator-core` (read: 0.12.0); what a latency covers is in its
repository, collector/*/collect_dsv4_attn.py: one module of DeepSeek-V4 on one of the devices that
share its heads, from the hidden state to the output projection, without the sum over devices. A
query attends to a window of 128 keys and to compressed ones, each of which stands for 4 (CSA) or
128 (HCA) positions: with 4, to the best by an indexer, else to all. All operations of a module are
priced one by one: projections by the products of the framework, with what quantizes their inputs.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from paleo.cluster import Device
from paleo.core.frozen import NamedTuple
from paleo.core.operations import BatchMatMul, GroupedMatMul, Kind, MatMul, Operation, Stream
from paleo.core.quantity import Array, Quantity, minimum, np
from paleo.core.quantization import Quantize
from paleo.core.selection import IndexScores, Select, SelectedAttention
from paleo.measure.validate.table_files import Rows, Table
from paleo.measure.validate.table_groups import Letters, Part, Reading
from paleo.measure.validate.table_kernels import KERNEL

_QUARTER, _HALF, _SINGLE = 0.5, 2, 4
#: DeepSeek-V4: features of a head and of the latent, of an index head, and their number; columns of
#: a group's first output projection; keys of the window.
_DEPTH, _INDEX_DEPTH, _INDEX_HEADS, _OUTPUT, _WINDOW = 512, 128, 64, 1024, 128
#: Kernels take the heads of 64 at a time: queries of fewer are filled up in a copy.
_TILE = 64


class _Model(NamedTuple):
    """Sizes of a model: hidden, of the latent of queries, heads, output groups, keys selected."""

    hidden: int
    latent: int
    heads: int
    groups: int
    chosen: int


_MODELS = {
    "Flash": _Model(4096, 1024, 64, 8, 512),
    "Pro": _Model(7168, 1536, 128, 16, 1024),
}


class _Kernels(NamedTuple):
    """Kernels of a framework: of attention, of scores, and of the selection."""

    attention: str
    scores: str
    selection: str


_SGLANG = _Kernels("flash_mla_compressed", "paged_scores", "topk_sglang")
_STEP = _SGLANG._replace(selection="topk_sglang_step")
#: Scores of one query beyond which SGLang's selection of steps goes another way.
_MANY, _LONG = 32768, "topk_sglang_long"
#: By the text of a table: of prompts, and of steps.
_KERNELS = {
    "compressed_flashmla": (_SGLANG, _STEP),
    "FLASHMLA_SPARSE_DSV4": (
        _Kernels("flash_mla_vllm", "scores_vllm", "topk_vllm"),
        _Kernels("flash_mla_vllm_step", "paged_scores_vllm", "topk_vllm"),
    ),
    "DeepseekV4TrtllmAttention": (
        _Kernels("trtllm_selected", "scores_trtllm", "topk_trtllm"),
        _Kernels("trtllm_selected_step", "paged_scores_trtllm", "topk_trtllm"),
    ),
}


class _Call(NamedTuple):
    """A module: its model, which positions a compressed key stands for, and how it is computed."""

    model: _Model
    ratio: int
    products: str
    kernels: _Kernels


#: Where DeepGEMM has kernels; elsewhere products of blocks are priced as those of the vendor.
DEEPGEMM = ("Hopper", "Blackwell")


#: nvfp4 whose second scale, of all numbers, is found in the input, as TensorRT-LLM does.
_FOUND = "nvfp4_found"
#: Types of products in the tables of modules.
TYPES = ("bfloat16", "fp8_block", "nvfp4")


def products_of(word: str, architecture: str, framework: str) -> str:
    """Return how products in a type of the tables are computed, for `product`."""
    if word == "nvfp4":
        return _FOUND if framework == "trtllm" else word
    if word != "fp8_block":
        return ""
    return "deepgemm" if architecture in DEEPGEMM else "library"


def product(rows: Quantity, n: Quantity, k: Quantity, how: str = "") -> tuple[Operation, ...]:
    """Return the operations of a projection.

    It is in bf16, in fp8 with a scale for each 128 numbers, or in nvfp4 with one of a byte for 16:
    a grouped product with one group, whose numbers may have half a byte.
    """
    if not how:
        return (MatMul(rows, n, k, _HALF, dtype="bf16"),)
    if how in ("nvfp4", _FOUND):
        multiply = GroupedMatMul(
            "projection", 1, rows, n, k, _QUARTER, dtype="fp8", loads=((1, rows),),
            weight_size=_QUARTER + 1 / 16, output_size=_HALF,
        )  # fmt: skip
        method = "tensor_trtllm" if how == _FOUND else "group"
        return (Quantize(rows, k, _QUARTER, method), multiply)
    quantize = Quantize(rows, k, 1, "group")
    kernel = how if how == "deepgemm" else ""
    return (quantize, MatMul(rows, n, k, 1, _HALF, dtype="fp8", kernel=kernel))


def copy(label: str, read: Quantity, written: Quantity) -> Stream:
    """Return a kernel that passes over memory."""
    return Stream(Kind.COPY, (read,), (written,), label=label)


def _module(letters: Letters, call: _Call) -> tuple[Operation, ...]:
    model, ratio = call.model, call.ratio
    batch, heads, tokens = letters["batch"], letters["heads"], letters["tokens"]
    keys = letters["keys"]
    groups = np.maximum(model.groups * heads // model.heads, 1)
    is_indexed = ratio == 4
    project = functools.partial(product, tokens, how=call.products)
    queries = tokens * heads * _DEPTH
    # A compressor of overlapping windows has two of each.
    compressed = (1 + is_indexed) * 2 * _DEPTH
    found = (
        *project(model.latent + _DEPTH, model.hidden),
        copy("norms", *(_HALF * tokens * (model.latent + _DEPTH),) * 2),
        *project(heads * _DEPTH, model.latent),
        copy("norm and rotary", _HALF * queries, _HALF * queries),
        *product(tokens, compressed, model.hidden),
        copy("compressor", _SINGLE * tokens * compressed, _SINGLE * tokens * _DEPTH),
    )
    candidates = keys / ratio
    chosen: Quantity = candidates
    if is_indexed:
        index = _INDEX_HEADS * _INDEX_DEPTH
        chosen = minimum(candidates, model.chosen)
        found += (
            *project(index, model.latent),
            copy("rotary and quantize", _HALF * tokens * index, tokens * index),
            *product(tokens, 4 * _INDEX_DEPTH, model.hidden),
            copy("compressor", _SINGLE * 4 * tokens * _INDEX_DEPTH, tokens * _INDEX_DEPTH),
            *product(tokens, _INDEX_HEADS, model.hidden),
            IndexScores(batch, tokens, candidates, _INDEX_HEADS, _INDEX_DEPTH, call.kernels.scores),
            Select(tokens, candidates, model.chosen, call.kernels.selection),
        )
    filled = np.where(heads < _TILE, tokens * _TILE * _DEPTH, 0)
    return (
        *found,
        copy("heads filled up", _HALF * filled, _HALF * filled),
        SelectedAttention(
            tokens, heads, minimum(keys, _WINDOW) + chosen, batch * (candidates + _WINDOW), _DEPTH,
            _DEPTH, call.kernels.attention, 1,
        ),
        copy("rotary", _HALF * queries, _HALF * queries),
        BatchMatMul("output groups", groups, tokens, _OUTPUT, heads * _DEPTH // groups, _HALF),
        *project(model.hidden, groups * _OUTPUT),
    )  # fmt: skip


def _parts(table: Table, columns: Mapping[str, Array], rows: Rows, device: Device) -> list[Part]:
    texts, models, types = columns[KERNEL], columns["model"], columns["gemm_type"]
    if device.architecture not in DEEPGEMM:
        rows.leave_out(f"{table.operator} on {device.architecture} is not modelled", rows.left)
    is_step = "generation" in table.operator
    ratio = 4 if "csa" in table.operator else 128
    found = []
    for text, name, word in sorted(
        set(zip(texts.tolist(), models.tolist(), types.tolist(), strict=True))
    ):
        mask = rows.left & (texts == text) & (models == name) & (types == word)
        if not mask.any():
            continue
        model = next((known for key, known in _MODELS.items() if key in name), None)
        kernels = _KERNELS.get(text, (None, None))[is_step]
        if model is None or kernels is None or word not in TYPES:
            reason = f"{table.operator} of {name} in {word} by {text} is not modelled"
            rows.leave_out(reason, mask)
            continue
        call = _Call(model, ratio, products_of(word, device.architecture, table.framework), kernels)
        is_long = columns["step"] / ratio > _MANY
        if kernels is _STEP:
            many = call._replace(kernels=kernels._replace(selection=_LONG))
            found += _part(columns, mask & is_long, is_step, many)
            mask = mask & ~is_long
        found += _part(columns, mask, is_step, call)
    return found


def _part(columns: Mapping[str, Array], mask: Array, is_step: bool, call: _Call) -> list[Part]:
    """Return the rows of a mask as one part, none if there are none."""
    places = mask.nonzero()[0]
    if not len(places):
        return []
    isl, step = columns["isl"][places], columns["step"][places]
    letters = {
        "batch": columns["batch_size"][places].astype(float),
        "heads": columns["num_heads"][places].astype(np.int64),
        "tokens": (columns["batch_size"][places] * isl).astype(float),
        # A query sees the positions before it, and itself.
        "keys": step + (1.0 if is_step else (isl + 1) / 2),
    }
    return [Part(places, "bf16", functools.partial(_module, call=call), letters)]


DSV4 = Reading(
    "sparse attention", ("model", "gemm_type"), ("num_heads", "batch_size", "isl", "step"),
    "gemm_type", _parts,
)  # fmt: skip
