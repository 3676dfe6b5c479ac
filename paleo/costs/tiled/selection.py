"""Sparse attention: scores of an indexer, the best of them, and attention to selected keys.

A kernel of attention takes 64 heads of one query at a time, filled up if there are fewer, and its
keys in blocks of 64, fetched from wherever they lie; blocks are spread over multiprocessors. Scores
of pages are limited by the keys that each query reads, from the last cache where all keys fit; else
by the matrix units, block after block of keys. How quick each is, is in `selection_constants/`, in
clocks of a multiprocessor; an architecture without constants of its own has those of Hopper.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TypeAlias

from paleo.core.frozen import NamedTuple
from paleo.core.quantity import Quantity, ceil_div, maximum, total, where_positive
from paleo.core.registry import Registry
from paleo.core.selection import IndexScores, Select, SelectedAttention
from paleo.costs.model import Explanation
from paleo.costs.tiled.kernel_files import ByArchitecture, Constant, read_kernel
from paleo.costs.tiled.machine import Machine
from paleo.costs.tiled.stream import missed
from paleo.costs.times import Time

_FOLDER = Path(__file__).parent / "selection_constants"
_OTHERS = ("Hopper", "Blackwell")
#: Heads of a tile, and keys of a block.
_HEADS, _KEYS = 64, 64
_SCORE = 4
#: Queries, and keys, of a block that goes along all keys; rows and keys of DeepGEMM's.
_ALONG, _ROWS, _COLUMNS = 128, 128, 256
#: A row of scores is read twice: to count, and to pick (a radix selection).
_PASSES = 2

CONSTANTS: dict[str, Constant] = {
    "start": Constant(
        "clocks in which it, and the small kernels of its module, start and end", 0.0, 4e5, 5e3
    ),
    "row": Constant("clocks of one multiprocessor for a query", 0.0, 3e5, 0.0),
    "step": Constant(
        "clocks of a block of keys: 64 of them for 64 heads in attention", 50.0, 2e4, 2e3
    ),
    "pair": Constant("share of that where two tiles take the same keys", 0.3, 1.0, 1.0),
    "cached": Constant("bytes a clock for a multiprocessor from the last cache", 1.0, 64.0, 64.0),
}


class SelectionKernel(NamedTuple):
    """A kernel of sparse attention: `way` prices it."""

    name: str
    summary: str
    source: str
    way: Callable[..., tuple[Quantity, Quantity, Quantity]]

    def constants(self, architecture: str) -> Mapping[str, float]:
        """Return its constants on an architecture, or those of another where it has none."""
        known = _read(self.name)
        return known[next(name for name in (architecture, *_OTHERS) if name in known)]


@cache
def _read(name: str) -> ByArchitecture:
    return read_kernel(_FOLDER / f"{name}.toml", name, CONSTANTS)


_Constants: TypeAlias = Mapping[str, float]
#: Seconds of memory, of the units, and clocks beside them.
_Parts: TypeAlias = "tuple[Quantity, Quantity, Quantity]"
Selecting: TypeAlias = IndexScores | Select | SelectedAttention


def _read_by_all(
    num_bytes: Quantity, kept: Quantity, machine: Machine, constants: _Constants
) -> Quantity:
    """Return the seconds to read so many bytes, of `kept` in all, which the last cache may hold."""
    cached = num_bytes / (constants["cached"] * machine.clock * machine.multiprocessors)
    out = missed(kept, machine) * num_bytes / (machine.bandwidth * machine.memory_share)
    return maximum(cached, out)


def attend(operation: SelectedAttention, machine: Machine, constants: _Constants) -> _Parts:
    """Blocks of keys of each tile of heads, spread over multiprocessors."""
    return _attend(operation, machine, constants, 1.0)


def attend_whole(operation: SelectedAttention, machine: Machine, constants: _Constants) -> _Parts:
    """Tiles of heads, each of which goes along all of its blocks of keys."""
    blocks = ceil_div(operation.keys, _KEYS)
    return _attend(operation, machine, constants, blocks)


def _attend(
    operation: SelectedAttention, machine: Machine, constants: _Constants, least: Quantity
) -> _Parts:
    """Return the parts of attention of which so many blocks follow one another at least."""
    tiles = ceil_div(operation.heads, _HEADS)
    blocks = ceil_div(operation.keys, _KEYS)
    together = 1.0 - (1.0 - constants["pair"]) * (1 * (tiles > 1))
    in_turn = maximum(operation.queries * tiles * blocks / machine.multiprocessors, least)
    units = in_turn * constants["step"] * together
    rows = operation.queries * constants["row"] / machine.multiprocessors
    num_bytes = operation.queries * operation.keys * operation.depth * operation.key_size
    memory = _read_by_all(num_bytes, operation.reads[1], machine, constants)
    return memory, units / machine.clock, constants["start"] + rows


def score_pages(operation: IndexScores, machine: Machine, constants: _Constants) -> _Parts:
    """Each query reads the keys of its sequence by itself, page by page."""
    num_bytes = operation.queries * operation.keys * operation.key_bytes
    memory = _read_by_all(num_bytes, operation.reads[1], machine, constants)
    return memory, 0.0 * memory, constants["start"]


def score_blocks(operation: IndexScores, machine: Machine, constants: _Constants) -> _Parts:
    """Blocks of 128 rows, queries times heads, go along the keys of a query, 256 at a time."""
    blocks = operation.queries * operation.heads / _ROWS
    turns = maximum(blocks / machine.multiprocessors, 1.0)
    units = turns * (operation.keys / _COLUMNS) * constants["step"] / machine.clock
    memory = total((*operation.reads, *operation.writes)) / (
        machine.bandwidth * machine.memory_share
    )
    return memory, units, constants["start"]


def score_along(operation: IndexScores, machine: Machine, constants: _Constants) -> _Parts:
    """Blocks of 128 queries of a head, each of which goes along all keys, 128 at a time."""
    blocks = ceil_div(operation.queries, _ALONG * operation.sequences) * operation.sequences
    turns = ceil_div(blocks * operation.heads, machine.multiprocessors)
    units = turns * ceil_div(operation.keys, _ALONG) * constants["step"] / machine.clock
    return 0.0 * units, units, constants["start"]


def select(operation: Select, machine: Machine, constants: _Constants) -> _Parts:
    """A block of lanes for each row; of no more scores than are chosen nothing is to be done."""
    is_some = where_positive(operation.scores - operation.chosen, 1.0)
    in_turn = maximum(operation.rows / machine.multiprocessors, 1.0) * is_some
    row = constants["row"] + _PASSES * _SCORE * operation.scores / constants["cached"]
    num_bytes = _PASSES * operation.reads[0] * is_some
    out = missed(operation.reads[0], machine) / (machine.bandwidth * machine.memory_share)
    return num_bytes * out, in_turn * row / machine.clock, constants["start"]


def price_with(operation: Selecting, machine: Machine, constants: _Constants) -> Time:
    """Return the time with these constants of the kernel that the operation names."""
    kernel = SELECTION_KERNELS[operation.kernel]
    memory, units, clocks = kernel.way(operation, machine, constants)
    waits = clocks / machine.clock
    return Time(units, memory, waits, maximum(memory, units) + waits)


def price(operation: Selecting, machine: Machine) -> Time:
    """Return the time by the kernel that the operation names."""
    kernel = SELECTION_KERNELS[operation.kernel]
    return price_with(operation, machine, kernel.constants(machine.architecture))


def explain(operation: Selecting, machine: Machine) -> Explanation:
    """Return why it takes what `price` says."""
    kernel, time = SELECTION_KERNELS[operation.kernel], price(operation, machine)
    why = {
        "memory": "keys or scores pass from memory or the last cache",
        "compute": "blocks of keys follow one another on each multiprocessor",
        "overhead": "the kernel starts, and rows wait",
    }[time.bound]
    num_bytes = total((*operation.reads, *operation.writes))
    details = (("operands", num_bytes, "bytes"),)
    return Explanation(f"sparse attention, {kernel.summary}", time, details, why)


SELECTION_KERNELS: Registry[SelectionKernel] = Registry("kernel of sparse attention")
_FLASH_MLA = "deepseek-ai/FlashMLA"
_DEEPGEMM = "deepseek-ai/DeepGEMM"


_VLLM = "vllm-project/vllm, vllm/v1/attention"
_TRTLLM = "NVIDIA/TensorRT-LLM, tensorrt_llm/_torch/attention_backend"
_SGLANG = "sgl-project/sglang, python/sglang/srt/layers/attention"
_PAGED, _RAGGED = f"{_DEEPGEMM}: fp8_paged_mqa_logits", f"{_DEEPGEMM}: fp8_mqa_logits"
for _each in (
    ("flash_mla_compressed", "FlashMLA, latents of 1 byte, SGLang's module", _FLASH_MLA, attend),
    ("flash_mla_vllm", "FlashMLA, selected latents, prompts in vLLM's module", _VLLM, attend),
    ("flash_mla_vllm_step", "FlashMLA, selected latents, steps in vLLM's module", _VLLM, attend),
    ("trtllm_selected", "TensorRT-LLM's kernels, selected latents, prompts", _TRTLLM, attend),
    ("trtllm_selected_step", "TensorRT-LLM's kernels, selected latents, steps", _TRTLLM, attend),
    ("paged_scores", "DeepGEMM's scores of pages", _PAGED, score_pages),
    ("paged_scores_vllm", "DeepGEMM's scores of pages in vLLM's module", _PAGED, score_pages),
    ("paged_scores_trtllm", "scores of pages in TensorRT-LLM's module", _PAGED, score_pages),
    ("scores_vllm", "DeepGEMM's scores of blocks in vLLM's module", _RAGGED, score_blocks),
    ("scores_trtllm", "DeepGEMM's scores of blocks in TensorRT-LLM's", _RAGGED, score_blocks),
    ("topk_sglang", "SGLang's radix selection", _SGLANG, select),
    ("topk_vllm", "vLLM's selection", _VLLM, select),
    ("topk_trtllm", "TensorRT-LLM's selection", _TRTLLM, select),
    (
        "dsa_sglang_flashmla_sparse",
        "FlashMLA, selected latents of 2 bytes",
        _FLASH_MLA,
        attend_whole,
    ),
    ("dsa_sglang_flashmla_kv", "FlashMLA, selected latents of 1 byte, prompts", _FLASH_MLA, attend),
    ("dsa_sglang_flashmla_kv_step", "FlashMLA, selected latents of 1 byte", _FLASH_MLA, attend),
    ("dsa_sglang_fa3_step", "FlashAttention-3, selected latents, a step", _SGLANG, attend),
    ("dsa_sglang_trtllm", "TensorRT-LLM's kernels in SGLang, prompts", _SGLANG, attend),
    ("dsa_sglang_trtllm_step", "TensorRT-LLM's kernels in SGLang, a step", _SGLANG, attend),
    ("dsa_vllm", "FlashMLA in vLLM, selected latents, prompts", _VLLM, attend_whole),
    ("dsa_vllm_step", "FlashMLA in vLLM, selected latents, a step", _VLLM, attend),
    ("dsa_flashinfer", "FlashInfer in vLLM, selected latents, prompts", _VLLM, attend),
    ("dsa_flashinfer_step", "FlashInfer in vLLM, selected latents, a step", _VLLM, attend),
    ("dsa_trtllm", "TensorRT-LLM's kernels, selected latents, prompts", _TRTLLM, attend),
    ("dsa_trtllm_hopper", "FlashMLA in TensorRT-LLM, 2,048 latents", _TRTLLM, attend_whole),
    ("dsa_trtllm_hopper_step", "FlashMLA in TensorRT-LLM, a step", _TRTLLM, attend_whole),
    ("dsa_trtllm_step", "TensorRT-LLM's kernels, selected latents, a step", _TRTLLM, attend),
    ("dsa_blocks_sglang", "DeepGEMM's scores of blocks in SGLang", _RAGGED, score_blocks),
    ("dsa_blocks_vllm", "DeepGEMM's scores of blocks in vLLM", _RAGGED, score_blocks),
    ("dsa_blocks_trtllm", "DeepGEMM's scores of blocks in TensorRT-LLM", _RAGGED, score_blocks),
    ("dsa_paged_sglang", "DeepGEMM's scores of pages in SGLang", _PAGED, score_pages),
    ("dsa_paged_vllm", "DeepGEMM's scores of pages in vLLM", _PAGED, score_pages),
    ("dsa_paged_trtllm", "DeepGEMM's scores of pages in TensorRT-LLM", _PAGED, score_pages),
    ("topk_sglang_step", "SGLang's second selection, of equal scores", _SGLANG, select),
    ("topk_sglang_long", "SGLang's second selection, of many scores", _SGLANG, select),
    ("topk_v1_flat", "SGLang's first selection, of equal scores", _SGLANG, select),
    ("topk_v1_top_last", "SGLang's first selection, the last the best", _SGLANG, select),
    ("topk_v2_flat", "SGLang's second selection, of equal scores, alone", _SGLANG, select),
    ("topk_v2_top_last", "SGLang's second selection, the last the best", _SGLANG, select),
    ("dsa_topk_flat", "SGLang's selection of 2,048 equal scores", _SGLANG, select),
    ("dsa_topk_top_last", "SGLang's selection of 2,048, the last the best", _SGLANG, select),
    (
        "flash_mla_alone",
        "FlashMLA, selected latents of 2 bytes by itself",
        _FLASH_MLA,
        attend_whole,
    ),
    ("flash_mla_vllm_alone", "FlashMLA, compressed latents by itself", _VLLM, attend),
    ("msa_sglang", "SGLang's Triton kernel, selected blocks, prompts", _SGLANG, attend),
    ("msa_sglang_step", "SGLang's Triton kernel, selected blocks, a step", _SGLANG, attend),
    ("msa_vllm", "vLLM's Triton kernel, selected blocks, prompts", _VLLM, attend),
    ("msa_vllm_step", "vLLM's Triton kernel, selected blocks, a step", _VLLM, attend),
    ("msa_vllm_blackwell", "vLLM's kernel for Blackwell, selected blocks", _VLLM, attend),
    ("msa_vllm_blackwell_step", "vLLM's kernel for Blackwell, a step", _VLLM, attend),
    ("msa_trtllm_step", "TensorRT-LLM's kernels, selected blocks, a step", _TRTLLM, attend),
    ("msa_along_sglang", "SGLang's scores of blocks", _SGLANG, score_along),
    ("msa_along_vllm", "vLLM's scores of blocks", _VLLM, score_along),
    ("msa_paged_sglang", "SGLang's scores of pages", _SGLANG, score_pages),
    ("msa_paged_vllm", "vLLM's scores of pages", _VLLM, score_pages),
    ("msa_paged_trtllm", "TensorRT-LLM's scores of pages", _TRTLLM, score_pages),
    ("msa_topk_sglang", "SGLang's selection of blocks", _SGLANG, select),
    ("msa_topk_vllm", "vLLM's selection of blocks", _VLLM, select),
    ("msa_topk_trtllm", "TensorRT-LLM's selection of blocks", _TRTLLM, select),
    ("dsa_topk_sglang", "SGLang's selection of 2,048", _SGLANG, select),
    ("dsa_topk_vllm", "vLLM's selection of 2,048", _VLLM, select),
    ("dsa_topk_trtllm", "TensorRT-LLM's selection of 2,048", _TRTLLM, select),
):
    SELECTION_KERNELS.add(_each[0], SelectionKernel(*_each))
