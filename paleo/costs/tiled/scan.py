"""Linear attention as serving frameworks compute it: short convolutions and delta rules.

A short convolution, and a step of a delta rule, are one pass over memory, which few instructions
for each byte may slow down. A prompt goes chunk by chunk: kernels that take all chunks at once, and
one that takes the chunks of a head one after the other, whose state it carries. Letters are those
of `paleo.core.scanning`; Q are the positions of a chunk.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from paleo.core.frozen import NamedTuple
from paleo.core.quantity import Quantity, ceil_div, maximum, minimum, total, where_positive
from paleo.core.scanning import DeltaRule, ShortConvolution
from paleo.costs.model import Explanation
from paleo.costs.tiled.machine import Machine
from paleo.costs.tiled.scan_kernels import SCAN_KERNELS, ScanKernel
from paleo.costs.tiled.stream import moved
from paleo.costs.times import Time

Scan: TypeAlias = ShortConvolution | DeltaRule
_Constants: TypeAlias = Mapping[str, float]
_HALF, _SINGLE = 2, 4
#: Positions that lanes of a CUDA kernel of convolutions load at once: others go one by one, which
#: takes so many times as long.
_ALIGNED, _UNALIGNED = 8, 1.3


class _Parts(NamedTuple):
    """Seconds of a scan: of memory, of instructions at once with it, and what waits beside."""

    memory: Quantity
    instructions: Quantity
    waits: Quantity


def _rated(amount: Quantity, machine: Machine, rate: float) -> Quantity:
    """Return the seconds in which all multiprocessors do so much; none without a rate."""
    if not rate:
        return 0.0 * amount
    return amount / (rate * machine.clock * machine.multiprocessors)


def _turns(blocks: Quantity, kernel: ScanKernel, machine: Machine) -> Quantity:
    return ceil_div(blocks, machine.multiprocessors * kernel.resident)


def pass_over(
    operation: Scan, kernel: ScanKernel, machine: Machine, constants: _Constants
) -> _Parts:
    """One pass in which a block takes up to Q positions one after the other."""
    num_bytes = total(operation.reads) + total(operation.writes)
    memory = moved(num_bytes, machine) / constants["share"]
    rated = _rated(num_bytes, machine, constants["rate"])
    in_turn = minimum(operation.positions, kernel.chunk) * constants["step"]
    chain = kernel.kernels * in_turn / machine.clock
    return _Parts(memory, maximum(rated, chain), kernel.kernels * constants["start"])


def by_channel(
    operation: ShortConvolution, kernel: ScanKernel, machine: Machine, constants: _Constants
) -> _Parts:
    """A block for each channel of a sequence, which goes along it Q positions at a time."""
    num_bytes = total(operation.reads) + total(operation.writes)
    positions = operation.positions
    odd = where_positive(positions % _ALIGNED, _UNALIGNED - 1.0)
    life = constants["fill"] + constants["step"] * ceil_div(positions, kernel.chunk)
    turns = _turns(operation.sequences * operation.channels, kernel, machine)
    memory = moved(num_bytes, machine) / constants["share"]
    return _Parts(memory, turns * life * (1.0 + odd) / machine.clock, constants["start"])


def walk(
    operation: DeltaRule, kernel: ScanKernel, machine: Machine, constants: _Constants
) -> _Parts:
    """One kernel whose blocks carry the state of a head along all chunks."""
    memory = moved(total(operation.reads) + total(operation.writes), machine)
    chain = _chain(operation, kernel, machine, constants)
    return _Parts(memory / constants["share"], chain, constants["start"])


def _chain(
    operation: DeltaRule, kernel: ScanKernel, machine: Machine, constants: _Constants
) -> Quantity:
    chunks = ceil_div(operation.positions, kernel.chunk)
    turns = _turns(operation.sequences * operation.heads * kernel.blocks, kernel, machine)
    return turns * (constants["fill"] + chunks * constants["step"]) / machine.clock


class _Chunked(NamedTuple):
    """Bytes for each position and head of keys, of values, and for each chunk and head."""

    of_group: Quantity
    of_head: Quantity
    of_chunk: Quantity


def _chunked(operation: DeltaRule, chunk: int) -> _Chunked:
    """Return what kernels that take all chunks at once read and write.

    They are those of flash-linear-attention: norms of queries and keys, keys times keys, its
    triangular inverse, what that makes of keys and values, and the output, which reads the state
    that each chunk begins with. With decays by feature (fla/ops/kda) decays are summed up and read
    in 4 bytes, queries times keys are written too, and the keys that decay once more.
    """
    d, e = _HALF * operation.depth, _HALF * operation.value_depth
    square, inverse = _SINGLE * chunk, _HALF * chunk
    solved = square + inverse
    state = operation.depth * e
    if not operation.by_feature:
        replaced, output = (d + e + inverse) + (d + e), (2 * d + e) + e
        return _Chunked(4 * d, (d + square) + solved + replaced + output, state)
    decays = _SINGLE * operation.depth
    summed, norms = d + decays, 4 * d
    pairs = 2 * d + decays + square + inverse
    replaced = (d + e + decays + inverse) + (2 * d + e)
    output = d + decays + e + inverse + e
    return _Chunked(0, summed + norms + pairs + solved + replaced + output, state)


def in_chunks(
    operation: DeltaRule, kernel: ScanKernel, machine: Machine, constants: _Constants
) -> _Parts:
    """Kernels of all chunks, and one that carries states from chunk to chunk.

    That one reads keys, what is left of them and values, and writes values and the state that each
    chunk begins with. The rows of a chunk's inverse follow one another.
    """
    chunk, d, e = kernel.chunk, operation.depth, operation.value_depth
    own = _chunked(operation, chunk)
    heads = operation.tokens * operation.heads
    chunks = operation.sequences * operation.heads * ceil_div(operation.positions, chunk)
    at_once = operation.tokens * operation.groups * own.of_group + heads * own.of_head
    at_once = at_once + chunks * own.of_chunk
    carried = heads * _HALF * (2 * d + 2 * e) + chunks * own.of_chunk
    carried = carried + operation.state * (operation.read_size + operation.written_size)
    # Keys times keys, the inverse times both, and the output of queries, states and values.
    pairs = 2 * chunk * chunk * (d * (1 + operation.by_feature) + (d + e) + (d + e))
    flops = chunks * (pairs + 2 * chunk * d * e)
    first = moved(at_once, machine) / constants["share"] + _rated(flops, machine, constants["rate"])
    then = moved(carried, machine) / constants["share"]
    chain = _chain(operation, kernel, machine, constants)
    rows = constants["row"] * minimum(operation.positions, chunk)
    memory = first + maximum(then, chain)
    return _Parts(memory, 0.0 * memory, constants["start"] + rows)


def in_two(
    operation: DeltaRule, kernel: ScanKernel, machine: Machine, constants: _Constants
) -> _Parts:
    """A kernel that makes ready what each chunk needs, and one that carries states along.

    The first reads queries, keys, values and decays of each head and writes four such tensors of
    what it makes of them; the other reads those and the values, and writes the output.
    """
    heads = _HALF * operation.tokens * operation.heads
    depth, values = operation.depth, operation.value_depth
    ready = moved(heads * (7 * depth + values), machine)
    states = operation.state * (operation.read_size + operation.written_size)
    carried = moved(heads * (4 * depth + 2 * values) + states, machine) / constants["share"]
    chain = _chain(operation, kernel, machine, constants)
    memory = ready / constants["share"] + maximum(carried, chain)
    return _Parts(memory, 0.0 * memory, constants["start"])


def price_with(
    operation: Scan, kernel: ScanKernel, machine: Machine, constants: _Constants
) -> Time:
    """Return the time by a kernel with these constants."""
    parts: _Parts = kernel.way(operation, kernel, machine, constants)
    waits = parts.waits / machine.clock
    through = maximum(parts.memory, parts.instructions)
    return Time(parts.instructions, parts.memory, waits, through + waits)


def price(operation: Scan, machine: Machine) -> Time:
    """Return the time of a scan by the kernel that it names."""
    kernel = SCAN_KERNELS[operation.kernel]
    return price_with(operation, kernel, machine, kernel.constants(machine.architecture))


def explain(operation: Scan, machine: Machine) -> Explanation:
    """Return why it takes what `price` says."""
    kernel, time = SCAN_KERNELS[operation.kernel], price(operation, machine)
    why = {
        "memory": "its bytes pass through memory, and states from chunk to chunk",
        "compute": "its blocks go along the sequence one position or chunk after the other",
        "overhead": "its kernels start and end",
    }[time.bound]
    num_bytes = total(operation.reads) + total(operation.writes)
    details = (("operands", num_bytes, "bytes"), ("positions together", kernel.chunk, ""))
    return Explanation(f"linear attention, {kernel.summary}", time, details, why)


_FLA = "fla-org/flash-linear-attention, fla/ops"
_CONV = "Dao-AILab/causal-conv1d"
for _each in (
    ScanKernel(
        "conv_triton", "short convolution in Triton, of prompts", "vllm-project/vllm, "
        "vllm/model_executor/layers/mamba/ops/causal_conv1d.py: BLOCK_M = 8; SGLang has it too",
        pass_over, chunk=8,
    ),
    ScanKernel(
        "conv_triton_apart", "short convolutions in Triton, of queries, keys and values",
        "sgl-project/sglang, python/sglang/srt/layers/attention/linear/kda_backend.py", pass_over,
        chunk=8, kernels=3, like="conv_triton",
    ),
    ScanKernel(
        "conv_triton_step", "short convolution in Triton, a step",
        "vllm-project/vllm, vllm/model_executor/layers/mamba/ops/causal_conv1d.py", pass_over,
    ),
    ScanKernel(
        "conv_kda_step", "short convolutions of Kimi Delta Attention in Triton, a step or guesses",
        "sgl-project/sglang, python/sglang/srt/layers/attention/linear/kda_backend.py", pass_over,
    ),
    ScanKernel(
        "conv_cuda", "short convolution in CUDA, of prompts",
        f"{_CONV}, csrc/causal_conv1d_fwd.cu: 128 lanes of 8 elements; TensorRT-LLM has it too",
        by_channel, chunk=1024, resident=16,
    ),
    ScanKernel(
        "conv_cuda_step", "short convolution in CUDA, a step",
        f"{_CONV}, csrc/causal_conv1d_update.cu", pass_over,
    ),
    ScanKernel(
        "fla_delta", "delta rule in Triton, of prompts, SGLang and vLLM",
        f"{_FLA}/gated_delta_rule/chunk.py", in_chunks, chunk=64, resident=2, blocks=4,
    ),
    ScanKernel(
        "trtllm_delta", "delta rule in Triton, of prompts, TensorRT-LLM",
        "NVIDIA/TensorRT-LLM, tensorrt_llm/_torch/modules/fla/chunk.py", in_chunks, chunk=64,
        resident=2, blocks=4,
    ),
    ScanKernel(
        "fla_kda", "delta rule with decays by feature in Triton, of prompts",
        f"{_FLA}/kda/chunk.py", in_chunks, chunk=64, resident=2, blocks=4,
    ),
    ScanKernel(
        "flashinfer_delta", "delta rule of FlashInfer, of prompts",
        "flashinfer-ai/flashinfer, flashinfer/gdn_prefill.py", walk, chunk=64,
    ),
    ScanKernel(
        "flash_kda", "FlashKDA, of prompts", "MoonshotAI/FlashKDA", in_two, chunk=64, resident=2,
    ),
    ScanKernel(
        "fla_step", "delta rule in Triton, a step", f"{_FLA}/gated_delta_rule/fused_recurrent.py",
        pass_over,
    ),
    ScanKernel(
        "kda_step", "delta rule with decays by feature, a step",
        f"{_FLA}/kda/fused_recurrent.py", pass_over,
    ),
    ScanKernel(
        "kda_step_fused", "step of Kimi Delta Attention with its convolution and norm",
        "vllm-project/vllm and sgl-project/sglang: fused_kda_decode, kda_fused_decode", pass_over,
    ),
    ScanKernel(
        "kda_verify", "delta rule with decays by feature, several guesses at a time",
        f"{_FLA}/kda/fused_recurrent.py, states of each position", pass_over, chunk=1024,
    ),
    ScanKernel(
        "kda_verify_blackwell", "Kimi Delta Attention, several guesses, SGLang's for Blackwell",
        "sgl-project/sglang: fused_kda_decode_mtp_dspark", pass_over, chunk=1024,
    ),
    ScanKernel(
        "sglang_kda_verify", "delta rule with decays by feature, several guesses, SGLang's",
        "sgl-project/sglang, python/sglang/srt/layers/attention/fla/fused_sigmoid_gating_recurrent"
        ".py", pass_over, chunk=1024,
    ),
):  # fmt: skip
    SCAN_KERNELS.add(_each.name, _each)
