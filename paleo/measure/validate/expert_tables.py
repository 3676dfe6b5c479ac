"""Tables of layers of experts: `moe`, of the package `aiconfigurator-core` (read: 0.12.0).

What a latency covers is in that package's repository, collector/*/collect_moe.py: one layer behind
its router's scores, on one device of those that share the experts (`moe_ep_size`) and each
expert's columns (`moe_tp_size`), in CUDA graphs; the mean of five draws where loads follow a power
law. The device is the one that has most rows then.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from paleo.cluster import Device
from paleo.core.frozen import NamedTuple
from paleo.core.loads import Loads
from paleo.core.operations import FusedExperts, Operation
from paleo.core.quantity import Array, np
from paleo.costs.tiled.expert_kernels import is_tuned
from paleo.measure.validate.table_files import Rows, Table
from paleo.measure.validate.table_groups import Letters, Part, Reading
from paleo.measure.validate.table_kernels import KERNEL


class _Type(NamedTuple):
    """An element type of the tables: what computes, and the bytes of an element of A and B.

    `suffix` ends the names of its kernels.
    """

    dtype: str
    size: float
    weight_size: float
    suffix: str


#: Scales are of 128 x 128 weights in fp8_block, of 128 in int4, of 32 in mxfp4 (one byte), and of
#: 16 in nvfp4 (one byte). Products of 4 bits are twice as quick as those of fp8.
_TYPES = {
    "bfloat16": _Type("bf16", 2, 2, "bf16"),
    "fp8": _Type("fp8", 1, 1, "fp8"),
    "fp8_block": _Type("fp8", 1, 1 + 4 / 128**2, "fp8_block"),
    "int4_wo": _Type("bf16", 2, 0.5 + 2 / 128, "int4"),
    "w4a16_mxfp4": _Type("bf16", 2, 0.5 + 1 / 32, "mxfp4"),
    "w4a8_mxfp4_mxfp8": _Type("fp8", 1, 0.5 + 1 / 32, "mxfp4_mxfp8"),
    "nvfp4": _Type("fp8", 0.5, 0.5 + 1 / 16, "nvfp4"),
}
#: Those of the tables that have no other name.
WEIGHT_TYPES = ("int4_wo", "w4a16_mxfp4", "w4a8_mxfp4_mxfp8", "nvfp4")
#: Sizes of the classes of experts, those with most rows first.
_CLASSES = (1, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_DRAWS = 5
#: Bounds of the power law: the least, and the most as a share of all tokens; where there are fewer
#: choices than experts, both as they are.
_BOUNDS, _FEW_BOUNDS = (1.0, 0.8), (0.01, 2.0)


def kernel_of(framework: str, text: str, suffix: str) -> str:
    """Return the kernel that a text of the column `kernel_source` names, "" if none is known."""
    if "marlin" in text:
        return "marlin_int4" if suffix == "int4" else "marlin_mxfp4"
    if framework == "trtllm":
        named = {
            "deepgemm": "trtllm_deepgemm",
            "moe_torch_flow_min_latency": "trtllm_gen_nvfp4",
            "moe_torch_flow_triton_fp8_block": "sglang_triton_fp8_block",
        }
        by_type = {"mxfp4": "trtllm_w4a16", "mxfp4_mxfp8": "trtllm_gen_mxfp4_mxfp8"}
        is_flow = text.startswith("moe_torch_flow")
        cutlass = f"trtllm_cutlass_{suffix}" if is_flow and suffix != "int4" else ""
        return named.get(text) or by_type.get(suffix, cutlass)
    if "flashinfer_cutlass" in text:
        return f"flashinfer_cutlass_{suffix}"
    if "flashinfer_trtllm" in text:
        return f"flashinfer_gen_{suffix}"
    if "oaitriton" in text:
        return "vllm_triton_kernels_mxfp4"
    if framework == "sglang" and "fused_moe_triton" in text:
        return f"sglang_triton_{suffix}"
    if framework == "vllm" and ("triton" in text or text == "vllm_fused_moe"):
        return "vllm_triton_fp8_block" if suffix == "fp8_block" else "vllm_triton"
    return ""


def _raised(counts: Array, amount: Any, most: int) -> Array:
    """Return counts, the smallest of each row raised to one level, by so many in all."""
    low = np.sort(counts, axis=-1)
    levels = (np.cumsum(low, axis=-1) + amount) / np.arange(1, low.shape[-1] + 1)
    following = np.concatenate([low[..., 1:], np.full_like(low[..., :1], np.inf)], axis=-1)
    which = np.argmax(levels <= following, axis=-1)[..., None]
    level = np.minimum(np.take_along_axis(levels, which, axis=-1), most)
    found: Array = np.maximum(counts, level)
    return found


def _drawn(tokens: int, chosen: int, experts: int, ranks: int, exponent: float) -> Array:
    """Return the rows of the experts of the rank that has most, draw by draw, in falling order."""
    rows = tokens * chosen
    low, high = (_BOUNDS[0], _BOUNDS[1] * tokens) if rows > experts else _FEW_BOUNDS
    power = 1.0 - exponent
    uniform = np.random.default_rng(0).random((_DRAWS, experts))
    drawn = ((high**power - low**power) * uniform + low**power) ** (1.0 / power)
    counts = np.minimum(np.round(drawn / drawn.sum(axis=1, keepdims=True) * rows), tokens)
    left = (rows - counts.sum(axis=1)).reshape(-1, 1, 1) / ranks
    counts = counts.reshape(_DRAWS, ranks, -1)
    counts = np.where(left > 0, _raised(counts, np.maximum(left, 0), tokens), counts)
    # Rounding gave too many: the largest give them back.
    first = np.arange(counts.shape[-1]) == counts.argmax(axis=-1)[..., None]
    counts = np.maximum(counts + first * np.minimum(left, 0), 0)
    most = counts.sum(axis=2).argmax(axis=1)
    found: Array = np.sort(counts[np.arange(_DRAWS), most], axis=1)[:, ::-1]
    return found


def _even(tokens: int, chosen: int, experts: int, ranks: int) -> Array:
    """Return the rows of the first rank's experts where choices go around, in falling order."""
    stride = -(-experts // chosen)
    token = np.arange(tokens)[:, None]
    spread = token if tokens >= stride else token * stride / tokens
    places = ((spread + np.arange(chosen) * stride) % experts).astype(np.int64)
    counts = np.bincount(places.ravel(), minlength=experts)[: experts // ranks]
    found: Array = np.sort(counts)[None, ::-1]
    return found


@functools.lru_cache(maxsize=65536)
def rank_loads(
    tokens: int, chosen: int, experts: int, ranks: int, distribution: str
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return experts, and rows of each, of the classes of one rank's experts.

    `distribution` is "balanced" or "power_law_" with an exponent.
    """
    if distribution == "balanced":
        counts = _even(tokens, chosen, experts, ranks)
    else:
        counts = _drawn(tokens, chosen, experts, ranks, float(distribution.rpartition("_")[2]))
    mean = counts.mean(axis=0)
    ends = np.minimum(np.cumsum(_CLASSES), len(mean))
    sizes = np.diff(ends, prepend=0)
    sums = np.diff(np.concatenate([[0.0], np.cumsum(mean)])[ends], prepend=0.0)
    rows = sums / np.maximum(sizes, 1)
    return tuple(sizes.tolist()), tuple(rows.tolist())


def _make(letters: Letters, kind: _Type, kernel: str, gated: bool) -> tuple[Operation, ...]:
    loads: Loads = tuple(zip(letters["experts"].T, letters["rows"].T, strict=True))
    return (
        FusedExperts(
            letters["tokens"], letters["topk"], letters["hidden"], letters["inner"], loads,
            kind.size, kind.weight_size, gated=gated, dtype=kind.dtype, kernel=kernel,
        ),
    )  # fmt: skip


def _parts(table: Table, columns: Mapping[str, Array], rows: Rows, device: Device) -> list[Part]:
    words, texts = columns["moe_dtype"], columns[KERNEL]
    distributions = columns["distribution"]
    known = np.char.startswith(distributions.astype(str), ("power_law_"))
    rows.leave_out("moe: unknown distribution", ~(known | (distributions == "balanced")))
    experts, ranks = columns["num_experts"], columns["moe_ep_size"]
    odd = (experts % ranks != 0) | (columns["topk"] > experts)
    rows.leave_out("moe: experts that do not divide", odd)
    places = rows.left.nonzero()[0]
    keys = zip(
        *(columns[name][places].tolist() for name in ("num_tokens", "topk")),
        experts[places].tolist(), ranks[places].tolist(), distributions[places].tolist(),
        strict=True,
    )  # fmt: skip
    loads = np.array([rank_loads(*key) for key in keys], float).reshape(-1, 2, len(_CLASSES))
    where = np.cumsum(rows.left) - 1
    kinds = texts.astype(str).astype(object) + "|" + words
    inner = columns["inter_size"] / columns["moe_tp_size"]
    found = []
    for kind in sorted(set(kinds[places].tolist())):
        text, _, word = kind.partition("|")
        mask = rows.left & (kinds == kind)
        of_type = _TYPES.get(word)
        kernel = kernel_of(table.framework, text, of_type.suffix) if of_type else ""
        if of_type is None or not kernel:
            rows.leave_out(f"moe in {word} by {text or 'an unnamed kernel'} is not modelled", mask)
            continue
        split = {kernel: mask}
        if kernel == "sglang_triton_bf16":
            tuned = is_tuned(device.name, experts // ranks, inner)
            split = {kernel: mask & ~tuned, "sglang_triton_tuned_bf16": mask & tuned}
        for name, own in split.items():
            at = own.nonzero()[0]
            if not len(at):
                continue
            letters = {
                "tokens": columns["num_tokens"][at].astype(float),
                "topk": columns["topk"][at].astype(float),
                "hidden": columns["hidden_size"][at].astype(float),
                "inner": inner[at].astype(float),
                "experts": loads[where[at], 0],
                "rows": loads[where[at], 1],
            }
            make = functools.partial(_make, kind=of_type, kernel=name, gated="nongated" not in text)
            found.append(Part(at, of_type.dtype, make, letters, kernel=name))
    return found


MOE = Reading(
    "moe",
    ("moe_dtype", "distribution"),
    (
        "num_tokens",
        "hidden_size",
        "inter_size",
        "topk",
        "num_experts",
        "moe_tp_size",
        "moe_ep_size",
    ),
    "moe_dtype",
    _parts,
)  # fmt: skip
