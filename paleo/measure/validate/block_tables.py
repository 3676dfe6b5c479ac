"""Tables of whole modules of attention to selected blocks: `msa_*_module`.

They are of the package `aiconfigurator-core` (read: 0.12.0); what a latency covers is in its
repository, collector/*/collect_msa_module.py: one module of MiniMax-M3 on one of the devices that
share its heads. 16 heads share keys and values; for each such group an index head scores all keys,
the best 16 blocks of 128 keys are taken, and the group attends to those. SGLang's prompts were
timed without CUDA graphs.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from paleo.cluster import Device
from paleo.core.frozen import NamedTuple
from paleo.core.operations import Operation
from paleo.core.quantity import Array, minimum, np
from paleo.core.selection import IndexScores, Select, SelectedAttention
from paleo.measure.validate.module_tables import NO_HOST, Host
from paleo.measure.validate.sparse_tables import DEEPGEMM, TYPES, copy, product, products_of
from paleo.measure.validate.table_files import Rows, Table
from paleo.measure.validate.table_groups import Letters, Part, Reading
from paleo.measure.validate.table_kernels import KERNEL

_HALF = 2
#: MiniMax-M3: hidden size, features of a head, heads that share keys; keys of a block, and blocks
#: that are selected.
_HIDDEN, _DEPTH, _SHARING, _BLOCK, _BLOCKS = 6144, 128, 16, 128, 16
#: Of SGLang's shortest prompts on the H100, and on the GB200 for Grace: medians, to 5 us.
_HOST = Host(705e-6, narrow=105e-6, grace=1.4)


class _Call(NamedTuple):
    """A module: by which kernels, with products and a cache of which type."""

    framework: str
    kernel: str
    is_step: bool
    is_narrow: bool
    products: str


def _module(letters: Letters, call: _Call) -> tuple[Operation, ...]:
    tokens, heads, keys = letters["tokens"], letters["heads"], letters["keys"]
    groups = np.maximum(heads // _SHARING, 1)
    queries, latents = tokens * heads * _DEPTH, tokens * groups * _DEPTH
    rows = tokens * groups
    cached = latents if call.is_narrow else _HALF * latents
    way = "paged" if call.is_step else "along"
    # Keys and values stand apart: as many bytes again.
    size = 2 * (1 if call.is_narrow else _HALF)
    return (
        *product(tokens, (heads + 2 * groups) * _DEPTH, _HIDDEN, call.products),
        *product(tokens, (groups + 1) * _DEPTH, _HIDDEN, call.products),
        copy("norms and rotary", _HALF * (queries + latents), _HALF * (queries + latents)),
        copy("cache", _HALF * 2 * latents, 2 * cached),
        IndexScores(
            letters["batch"], tokens, keys, groups, _DEPTH, f"msa_{way}_{call.framework}", "bf16"
        ),
        Select(rows, keys / _BLOCK, _BLOCKS, f"msa_topk_{call.framework}"),
        SelectedAttention(
            rows, np.minimum(heads, _SHARING), minimum(keys, _BLOCK * _BLOCKS),
            letters["batch"] * letters["all"] * groups, _DEPTH, _DEPTH, call.kernel, size,
        ),
        *product(tokens, _HIDDEN, heads * _DEPTH, call.products),
    )  # fmt: skip


def _kernel(framework: str, text: str, architecture: str, is_step: bool) -> str:
    """Return the kernel of attention, "" where none is known."""
    steps = "_step" * is_step
    if framework == "trtllm":  # prompts, and all on Hopper, do not run in kernels for this
        return "msa_trtllm_step" if is_step and "msa_fmha" in text else ""
    if framework == "vllm" and "MSAImpl" in text:
        return f"msa_vllm_blackwell{steps}"
    # Beyond 256 sequences SGLang's steps were timed without CUDA graphs, too.
    if architecture not in DEEPGEMM or "radix" in text:
        return ""
    return f"msa_{framework}{steps}"


def _parts(table: Table, columns: Mapping[str, Array], rows: Rows, device: Device) -> list[Part]:
    texts, types, caches = columns[KERNEL], columns["gemm_type"], columns["kv_cache_dtype"]
    is_step = "generation" in table.operator
    found = []
    for text, word, cache in sorted(
        set(zip(texts.tolist(), types.tolist(), caches.tolist(), strict=True))
    ):
        mask = rows.left & (texts == text) & (types == word) & (caches == cache)
        if not mask.any():
            continue
        kernel = _kernel(table.framework, text, device.architecture, is_step)
        if not kernel or word not in TYPES:
            where = f"in {word} by {text} of {table.framework} on {device.architecture}"
            rows.leave_out(f"{table.operator} {where} is not modelled", mask)
            continue
        places = mask.nonzero()[0]
        batch, isl, step = (columns[key][places] for key in ("batch_size", "isl", "step"))
        letters = {
            "batch": batch.astype(float),
            "heads": columns["num_heads"][places].astype(np.int64),
            "tokens": (batch * isl).astype(float),
            # Those that a query sees on average, and all that there are.
            "keys": step + (1.0 if is_step else (isl + 1) / 2),
            "all": (step + isl).astype(float),
        }
        is_narrow = cache == "fp8"
        products = products_of(word, device.architecture, table.framework)
        call = _Call(table.framework, kernel, is_step, is_narrow, products)
        is_eager = table.framework == "sglang" and not is_step
        host = (_HOST if is_eager else NO_HOST).of(device, word, is_narrow)
        make = functools.partial(_module, call=call)
        found.append(Part(places, "bf16", make, letters, host=host))
    return found


MSA = Reading(
    "sparse attention", ("gemm_type", "kv_cache_dtype"),
    ("num_heads", "batch_size", "isl", "step"), "gemm_type", _parts,
)  # fmt: skip
