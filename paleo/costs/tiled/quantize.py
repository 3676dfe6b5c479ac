"""Kernels that quantize the rows of a product before it, by the method that a framework has.

A kernel reads numbers of 2 bytes, finds the largest of a row, of a group or of all, and writes
them in fewer bits with their scales. It moves little, so that what it waits for decides: its start,
blocks of lanes that wait for memory, atomic operations that all blocks do on one number, one after
the other. A product behind such a kernel cannot start early, as it does behind another product.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from paleo.core.frozen import NamedTuple
from paleo.core.quantity import Quantity, ceil_div, maximum, minimum
from paleo.core.quantization import Quantize
from paleo.core.registry import Registry
from paleo.costs.model import Explanation
from paleo.costs.tiled.machine import Machine
from paleo.costs.tiled.stream import ACCESSES, CACHED, missed, moved
from paleo.costs.times import Time

#: The first kernel's fixed time beside that of a product, and what each further one adds: 1.9 us
#: with one kernel (SGLang) and 2.2 with three (vLLM) on the H100, 1.3 and 1.7 on the L40S.
#: (aiconfigurator-core 0.12.0: products in fp8 of few rows, less a product as long.)
_START, _NODE = 0.7, 0.2e-6
#: Clocks after which kernels of a graph follow one another that have no product between them,
#: whatever the device takes to start a product. (The same tables, scale_matrix of vLLM on the H100:
#: 1.9 us at 1.98 GHz; on the L40S, at 2.52 GHz, 1.5 us.)
_APART = 3900
#: TensorRT-LLM's kernels start while the one before ends, on Hopper: 1.35 us from one to the next
#: on the H100 (the same tables, scale_matrix); on Blackwell they are no closer than others.
_OVERLAPPED = {"Hopper": 0.69}
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
#: Behind no product, its 1,024 blocks begin and find one number in so many clocks, if reading takes
#: no longer. (The same table of the H100: few numbers take 7.2 us more, of which two more kernels
#: that start are 3.9.)
_BEGUN, _FOUND = 1800, 4700
#: TensorRT-LLM's computeFP8QuantizeScale: so many blocks, of so many lanes, whatever the size.
_LARGE_BLOCKS, _LARGE_LANES = 1024, 1024
#: SGLang has a block for each row up to this many rows a multiprocessor, of which three are under
#: way at a time; then a warp, eight in a block, that reads rows of 2,048 numbers and more twice.
#: (sgl-kernel, csrc/gemm/per_token_quant_fp8.cu.)
_ROWS_OF_BLOCKS, _BLOCKS = 16, 3
_WARPS, _WARP_LANES, _KEPT_ROW = 8, 32, 2048
_BLOCK_LIVES, _WARP_LIVES = 1.0e-6, 1.5e-6
#: A block of TensorRT-LLM's kernel with a known scale reads 8 numbers a lane, and is gone after so
#: many clocks, unless there are more than the most blocks. (The same table on the H100: 4.2 million
#: numbers take 2.6 us more than few, in 1.94 times the blocks that are under way.)
_BLOCK_READS, _BLOCK_CLOCKS, _BLOCKS_MOST = 8, 2670, 65536
#: Numbers that a multiprocessor reads in a clock one at a time, as compiled for Hopper and for
#: Blackwell (the tables computescale of TensorRT-LLM, H100 and GB200).
_ONE_BY_ONE = {"Hopper": 2.6, "Blackwell": 5.8}
#: Blocks of SGLang's kernels for latent attention, which find and apply one scale, and the clocks
#: that each lives. (`mla_bmm` of SGLang in fp8 on the H100: 0.74 ns a row for each of two kernels.)
_PROGRAM_LANES, _PROGRAM_CLOCKS = 128, 3050
#: PyTorch's operations in place of a kernel with a known scale, by the bytes an element that each
#: reads and writes: a division, which gives fp32, a clamp, a cast and a copy. The cast, which sets
#: bits one by one (c10/util/Float8_e4m3fn.h), does so many numbers a clock on a multiprocessor.
#: (The tables scale_matrix of SGLang, long ones: 1.03 on the H100; 0.98 to 1.00 on others.)
_EAGER, _CASTS = (6, 8, 5, 2), 1.0
_CAST = 2


class Quantizer(NamedTuple):
    """A way to quantize: how many kernels, and the seconds that they take beside their starts.

    `source` is where the kernels are.
    """

    name: str
    summary: str
    source: str
    kernels: int
    seconds: Callable[[Quantize, Machine], Quantity]
    #: The last kernel's share, by architecture, of the time after which one follows another.
    overlapped: Mapping[str, float] = MappingProxyType({})


def _resident(lanes: int, machine: Machine) -> Quantity:
    """Return the blocks of so many lanes that a device has under way at a time."""
    return machine.multiprocessors * maximum(machine.threads // lanes, 1)


def _moves(operation: Quantize, machine: Machine, reads: Quantity = 1) -> Quantity:
    """Return the seconds of memory where the input is read so many times."""
    (read,), (written,) = operation.reads, operation.writes
    return _passed(read * reads + written, read + written, operation, machine)


def _passed(
    num_bytes: Quantity, among: Quantity, operation: Quantize, machine: Machine
) -> Quantity:
    """Return the seconds in which bytes pass, of data of `among` bytes in all.

    Behind a product's, what the cache holds comes as it does in streams.
    """
    if not operation.alone:
        return moved(num_bytes, machine, among=among)
    cached = num_bytes / (CACHED * machine.clock * machine.multiprocessors)
    out = missed(among, machine) * num_bytes
    return maximum(cached, out / (machine.bandwidth * machine.memory_share))


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
    numbers = _ONE_BY_ONE.get(machine.architecture, ACCESSES) if operation.alone else ACCESSES
    rate = numbers * size * machine.clock * machine.multiprocessors
    among = read + operation.writes[0]
    return maximum(read / rate, _passed(read, among, operation, machine))


def _tensor_by_rows(operation: Quantize, machine: Machine) -> Quantity:
    """vLLM: each row's largest number, an atomic maximum for each row, then static."""
    later = ceil_div(operation.rows, _resident(_LANES, machine)) - 1
    largest = maximum(later * _WAIT, operation.rows * machine.atomic)
    largest = maximum(largest, _narrow(operation, machine))
    return largest + _static_rows(operation, machine)


def _tensor_by_blocks(operation: Quantize, machine: Machine) -> Quantity:
    """TensorRT-LLM: 1,024 blocks of 1,024 lanes, an atomic maximum for each, then static."""
    if operation.alone:
        found = maximum(_FOUND / machine.clock, _narrow(operation, machine))
        return _BEGUN / machine.clock + found + _blocks(operation, machine)
    in_turn = ceil_div(_LARGE_BLOCKS, _resident(_LARGE_LANES, machine))
    largest = maximum(in_turn * _LARGE_LIVES, _LARGE_BLOCKS * machine.atomic)
    largest = maximum(largest, _narrow(operation, machine))
    return _LARGE_LIVES + largest + _moves(operation, machine)


def _blocks(operation: Quantize, machine: Machine) -> Quantity:
    """TensorRT-LLM's kernel with a known scale: blocks follow one another."""
    memory = _moves(operation, machine)
    if not operation.alone:
        return memory
    blocks = minimum(operation.rows * operation.columns / (_LANES * _BLOCK_READS), _BLOCKS_MOST)
    turns = blocks / _resident(_LANES, machine)
    return maximum(memory, turns * _BLOCK_CLOCKS / machine.clock)


def _programs(operation: Quantize, machine: Machine) -> Quantity:
    """SGLang's two kernels in Triton, which have a block of 128 lanes for each row."""
    later = maximum(operation.rows / _resident(_PROGRAM_LANES, machine) - 1.0, 0.0)
    waits = later * _PROGRAM_CLOCKS / machine.clock
    read = operation.reads[0]
    largest = _passed(read, read + operation.writes[0], operation, machine)
    return maximum(waits, largest) + maximum(waits, _moves(operation, machine))


def _eager(operation: Quantize, machine: Machine) -> Quantity:
    """PyTorch's operations one after another, all but the cast as quick as memory."""
    numbers = operation.rows * operation.columns
    found: Quantity = 0.0
    for place, num_bytes in enumerate(_EAGER):
        time = _passed(num_bytes * numbers, num_bytes * numbers, operation, machine)
        if place == _CAST:
            time = maximum(time, numbers / (_CASTS * machine.clock * machine.multiprocessors))
        found = found + time
    return found


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
        "cpp/tensorrt_llm/common/cudaFp8Utils.cu: invokeQuantizeMatrix", 1, _blocks, _OVERLAPPED,
    ),
    Quantizer(
        "static_eager", "a known scale for all, by operations of PyTorch", "ai-dynamo/"
        "aiconfigurator, collector/sglang/collect_computescale.py", len(_EAGER), _eager,
    ),
    Quantizer(
        "token_sglang", "a scale for each row", "sgl-kernel, csrc/gemm/per_token_quant_fp8.cu",
        1, _token,
    ),
    Quantizer(
        "tensor_sglang", "one scale, found in the input", "sgl-project/sglang, python/sglang/srt/"
        "layers/quantization/fp8_kernel.py: per_tensor_quant_mla_fp8", 2, _programs,
    ),
    Quantizer(
        "tensor_vllm", "one scale, found in the input", "vLLM, "
        "csrc/quantization/w8a8/fp8/common.cu: dynamic_scaled_fp8_quant", 3, _tensor_by_rows,
    ),
    Quantizer(
        "tensor_trtllm", "one scale, found in the input", "TensorRT-LLM, "
        "cpp/tensorrt_llm/common/cudaFp8Utils.cu: invokeComputeScalesAndQuantizeMatrix",
        3, _tensor_by_blocks, _OVERLAPPED,
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
    if operation.alone:
        last = quantizer.overlapped.get(machine.architecture, 1.0)
        start = (quantizer.kernels - 1 + last) * _APART / machine.clock
        start = start + (machine.prologue if operation.leads else 0.0)
    else:
        start = _START * machine.launch + (quantizer.kernels - 1) * _NODE + machine.prologue
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
