"""Kernels that quantize the rows of a product before it, by the method that a framework has.

A kernel reads numbers of 2 bytes, finds the largest of a row, of a group or of all, and writes
them in fewer bits with their scales. It moves little, so that what it waits for decides: its start,
blocks of lanes that wait for memory, atomic operations that all blocks do on one number, one after
the other. A product behind such a kernel cannot start early, as it does behind another product.
"""

from __future__ import annotations

from collections.abc import Callable

from paleo.core.frozen import NamedTuple
from paleo.core.quantity import Quantity, ceil_div, maximum
from paleo.core.quantization import Quantize
from paleo.core.registry import Registry
from paleo.costs.model import Explanation
from paleo.costs.tiled.machine import Machine
from paleo.costs.tiled.stream import ACCESSES, moved
from paleo.costs.times import Time

#: The first kernel's fixed time beside that of a product, and what each further one adds: 1.9 us
#: with one kernel (SGLang) and 2.2 with three (vLLM) on the H100, 1.3 and 1.7 on the L40S.
#: (aiconfigurator-core 0.12.0: products in fp8 of few rows, less a product as long.)
_START, _NODE = 0.7, 0.2e-6
#: Kernels of a graph that have no product between them follow one another after so long, whatever
#: the device takes to start a product. (The same tables, scale_matrix of vLLM on the H100; cards of
#: other architectures take 1.4 to 2.1 us.)
_APART = 1.85e-6
#: TensorRT-LLM's kernels start while the one before ends: 1.35 us from one to the next on the H100
#: (the same tables, scale_matrix).
_OVERLAPPED = 0.51
#: A block of 256 lanes waits so long for memory, and so long again for each further step along its
#: row. (vLLM's static_scaled_fp8_quant there: 32,768 rows of 128 numbers take 22 us on the H100,
#: whose 132 multiprocessors have 8 blocks each; one row of 51,200 takes 4.1 us longer than one of
#: 128, in 12 more steps.)
_WAIT, _STEP = 0.65e-6, 0.35e-6
_LANES = 256
#: Numbers that a lane reads in a step.
_WIDE = 16
#: A block of 1,024 lanes that adds up what each has found lives so long. (The same tables:
#: TensorRT-LLM's compute_scale on cards that have one such block a multiprocessor at a time.)
_LARGE_LIVES = 0.9e-6
#: TensorRT-LLM's computeFP8QuantizeScale: so many blocks, of so many lanes, whatever the size.
_LARGE_BLOCKS, _LARGE_LANES = 1024, 1024
#: SGLang has a block for each row up to this many rows a multiprocessor, of which three are under
#: way at a time; then a warp, eight in a block, that reads rows of 2,048 numbers and more twice.
#: (sgl-kernel, csrc/gemm/per_token_quant_fp8.cu.)
_ROWS_OF_BLOCKS, _BLOCKS = 16, 3
_WARPS, _WARP_LANES, _KEPT_ROW = 8, 32, 2048
_BLOCK_LIVES, _WARP_LIVES = 1.0e-6, 1.5e-6


class Quantizer(NamedTuple):
    """A way to quantize: how many kernels, and the seconds that they take beside their starts.

    `source` is where the kernels are.
    """

    name: str
    summary: str
    source: str
    kernels: int
    seconds: Callable[[Quantize, Machine], Quantity]
    #: The first kernel's fixed time beside that of a product.
    start: float = _START


def _resident(lanes: int, machine: Machine) -> Quantity:
    """Return the blocks of so many lanes that a device has under way at a time."""
    return machine.multiprocessors * maximum(machine.threads // lanes, 1)


def _moves(operation: Quantize, machine: Machine, reads: Quantity = 1) -> Quantity:
    """Return the seconds of memory where the input is read so many times."""
    (read,), (written,) = operation.reads, operation.writes
    return moved(read * reads + written, machine, among=read + written)


def _steps(operation: Quantize, lanes: int) -> Quantity:
    return ceil_div(operation.columns, lanes * _WIDE)


def _static_rows(operation: Quantize, machine: Machine) -> Quantity:
    """A block of 256 lanes for each row, whose scale is known."""
    later = ceil_div(operation.rows, _resident(_LANES, machine)) - 1
    waits = later * _WAIT + (_steps(operation, _LANES) - 1) * _STEP
    return maximum(waits, _moves(operation, machine))


def _token(operation: Quantize, machine: Machine) -> Quantity:
    """SGLang: a block, or a warp, for each row, which it passes twice."""
    rows, multiprocessors = operation.rows, machine.multiprocessors
    later = ceil_div(rows, multiprocessors * _BLOCKS) - 1
    waits = later * _BLOCK_LIVES + 2 * (_steps(operation, _LANES) - 1) * _STEP
    blocks = maximum(waits, _moves(operation, machine))
    in_turn = ceil_div(rows, _WARPS * _resident(_WARPS * _WARP_LANES, machine))
    lives = _WARP_LIVES + 2 * (_steps(operation, _WARP_LANES) - 1) * _STEP
    long = 1 * (operation.columns >= _KEPT_ROW)
    warps = maximum(in_turn * lives, _moves(operation, machine, 1 + long))
    by_warps = 1 * (rows >= _ROWS_OF_BLOCKS * multiprocessors)
    return by_warps * warps + (1 - by_warps) * blocks


def _narrow(operation: Quantize, machine: Machine) -> Quantity:
    """Return the seconds to read all numbers one at a time."""
    (read,) = operation.reads
    size = read / (operation.rows * operation.columns)
    rate = ACCESSES * size * machine.clock * machine.multiprocessors
    return maximum(read / rate, moved(read, machine, among=read + operation.writes[0]))


def _tensor_by_rows(operation: Quantize, machine: Machine) -> Quantity:
    """vLLM: each row's largest number, an atomic maximum for each row, then static."""
    later = ceil_div(operation.rows, _resident(_LANES, machine)) - 1
    largest = maximum(later * _WAIT, operation.rows * machine.atomic)
    largest = maximum(largest, _narrow(operation, machine))
    return largest + _static_rows(operation, machine)


def _tensor_by_blocks(operation: Quantize, machine: Machine) -> Quantity:
    """TensorRT-LLM: 1,024 blocks of 1,024 lanes, an atomic maximum for each, then static."""
    in_turn = ceil_div(_LARGE_BLOCKS, _resident(_LARGE_LANES, machine))
    largest = maximum(in_turn * _LARGE_LIVES, _LARGE_BLOCKS * machine.atomic)
    largest = maximum(largest, _narrow(operation, machine))
    return _LARGE_LIVES + largest + _moves(operation, machine)


def _group(operation: Quantize, machine: Machine) -> Quantity:
    """Groups of a row, each by the few lanes that hold it."""
    return _moves(operation, machine)


QUANTIZERS: Registry[Quantizer] = Registry("quantizer")

for _each in (
    Quantizer(
        "static", "a known scale for all", "vLLM, csrc/quantization/w8a8/fp8/common.cu: "
        "static_scaled_fp8_quant", 1, _static_rows,
    ),
    Quantizer(
        "static_trtllm", "a known scale for all", "TensorRT-LLM, "
        "cpp/tensorrt_llm/common/cudaFp8Utils.cu: invokeQuantizeMatrix", 1, _group, _OVERLAPPED,
    ),
    Quantizer(
        "token_sglang", "a scale for each row", "sgl-kernel, csrc/gemm/per_token_quant_fp8.cu",
        1, _token,
    ),
    Quantizer(
        "tensor_vllm", "one scale, found in the input", "vLLM, "
        "csrc/quantization/w8a8/fp8/common.cu: dynamic_scaled_fp8_quant", 3, _tensor_by_rows,
    ),
    Quantizer(
        "tensor_trtllm", "one scale, found in the input", "TensorRT-LLM, "
        "cpp/tensorrt_llm/common/cudaFp8Utils.cu: invokeComputeScalesAndQuantizeMatrix",
        3, _tensor_by_blocks,
    ),
    Quantizer(
        "group", "a scale for each 128 numbers of a row", "sgl-kernel, "
        "csrc/gemm/per_token_group_quant_8bit.cu; vLLM, csrc/quantization/w8a8/fp8", 1, _group,
    ),
):  # fmt: skip
    QUANTIZERS.add(_each.name, _each)


def price(operation: Quantize, machine: Machine) -> Time:
    """Return the time of the kernels that quantize."""
    quantizer = QUANTIZERS[operation.method]
    first = _APART / _START if operation.alone else machine.launch
    start = quantizer.start * first + (quantizer.kernels - 1) * _NODE
    start = start + (0.0 if operation.alone else machine.prologue)
    seconds = quantizer.seconds(operation, machine)
    memory = _moves(operation, machine)
    return Time(0.0 * memory, memory, start + (seconds - memory), start + seconds)


def explain(operation: Quantize, machine: Machine) -> Explanation:
    """Return why it takes what `price` says."""
    quantizer, time = QUANTIZERS[operation.method], price(operation, machine)
    why = {
        "memory": "its bytes pass through memory",
        "compute": "",
        "overhead": "kernels start, and blocks wait for memory and for one another",
    }[time.bound]
    num_bytes = operation.reads[0] + operation.writes[0]
    return Explanation(
        f"quantization, {quantizer.summary}", time,
        (("kernels", quantizer.kernels, ""), ("traffic", num_bytes, "bytes")), why,
    )  # fmt: skip
