"""Operations that pass over memory: pointwise, normalizations, copies, poolings, the update.

They take as long as their bytes take at the rate that long streams reach, or as their arithmetic
on the general-purpose lanes. What all fits into the last cache is found there: the kernel before
wrote it, or a benchmark's round before read it. A sum over a row has to end before the row can
be written: rows that a multiprocessor cannot keep until then are read again.
"""

from __future__ import annotations

from dataclasses import replace

from paleo.core.operations import Kind, Operation, Pass, Pooling, Role, Stream, Update
from paleo.core.quantity import (
    Quantity,
    ceil_div,
    maximum,
    minimum,
    product,
    total,
    where_positive,
)
from paleo.costs.convolutions.settings import CHANNELS_LAST
from paleo.costs.model import Detail, Explanation
from paleo.costs.tiled.machine import LANES, Machine
from paleo.costs.times import Time

#: The fixed time of a kernel here beside that of a product, which also fills its pipeline: 2.0 of
#: 2.85 us on the A100 (Vidur's additions), 2.0 of 2.6 us on the H100 (the small kernels before
#: attention in aiconfigurator-core 0.12.0).
_START = 0.75
#: The last cache keeps all of what fits this share of it, and nothing of what fills it: some is
#: kept twice where the cache has two halves, and lines are not thrown out in the best order.
_KEPT, DECAY = 0.65, 0.35
#: Bytes a clock that each multiprocessor moves from and to the last cache, and through it, where
#: nothing else has been there in between: a benchmark of one operation. (aiconfigurator-core
#: 0.12.0, scale_matrix of vLLM on the H100: 12.6 MB take 2.0 us beside the kernel's start.)
CACHED = 22.0
#: Accesses to memory that a multiprocessor has under way, a clock: its lanes wait for each. (Of
#: vLLM's kernels of 2023, which moved 2 bytes at a time, on an A100: silu_and_mul moved 1.02 TB/s,
#: 3.35 accesses a clock on each of 108 multiprocessors at 1.41 GHz, and rms_norm 3.4.)
ACCESSES = 3.4
#: The same in loops that wait for each element, of 64 lanes. (Passes and steps of nets in halves of
#: PyTorch 1.4 on a TITAN V and an RTX 2080 Ti, half of the nets: ryujaehun/pytorch-gpu-benchmark;
#: the other half, and those of PyTorch 0.3 and 1.0 of u39kun/deep-learning-benchmark, agree.)
_WAITING = 1.4
#: Architectures whose kernels for pointwise functions and normalizations all are such loops. (Of
#: PyTorch on the MI210 in halves a GELU moves 0.62 TB/s, 1.7 accesses a clock, a layer
#: normalization 1.2 and a softmax 1.0: LLMCompass' operators.)
_ALL_WAIT = ("CDNA",)
#: Bytes that a lane moves at once where a library has seen to it.
_WIDTH = 16
#: Bytes that come with each piece that lanes go down a column for (NVIDIA, CUDA C++ Best Practices
#: Guide, Coalesced Access to Global Memory): from the last cache, where lanes beside them want the
#: other columns of them.
_SECTOR = 32
#: Lanes that walk over a row together where each moves less, and the seconds from one of their
#: steps to the next when they wait for memory. (The same kernels, for up to eight rows: 0.68 us in
#: a fifth of silu_and_mul, 0.81 us in the few of rms_norm.)
_LANES, _WAIT = 1024, 0.7e-6
#: How much of what idle lanes could move is lost: a multiprocessor has room for two such blocks,
#: and while one has lanes that are idle the other goes on. (Fitted to a fifth of the same kernels,
#: of all lengths, it is 0.45.)
_IDLE = 0.5
#: Rows under way on a multiprocessor by how often they are read: PyTorch's layer_norm gives
#: one to 128 lanes, its softmax to 512.
_ROWS = {2: 16, 3: 4}
#: Loads of a pooling's windows beside its bytes, each of an element: those of what no window before
#: has read at the rate of memory times the first, those of what one has, found in the chip's first
#: caches, times the second; and three times so many backward, where each looks for the windows that
#: it is in. (One pair of values for 40 groups of published steps of nets, cuDNN 4 to 8.)
_WINDOWED, _OVERLAPPED, _LOOKING = 2.0, 1.0, 3.0
#: How many times its bytes a batch normalization moves in training, forward and back, where it goes
#: element by element: some lines are fetched twice, since a channel is a piece of each image.
#: (Steps of nets of seven sources, torch7 to containers of 2022, either memory format: one pair of
#: values fits them all.)
_NORMALIZING = {Pass.FORWARD: 1.9, Pass.INPUT_GRADIENT: 1.4}
#: So of images channels last, of which neighbours are of several channels: cuDNN has other kernels
#: for them since 7.4 (its release notes), which PyTorch asks for in training
#: (aten/src/ATen/native/cudnn/BatchNorm.cpp, getCudnnBatchNormMode). (0.85 of the others by steps
#: of a random half of timm's 130 nets with batch normalizations on the RTX 3090; the other half is
#: off by 4.6 % with it and 5.3 % without.)
_NORMALIZING_LAST = {Pass.FORWARD: 1.6, Pass.INPUT_GRADIENT: 1.2}
#: Share of a multiprocessor's fast memory that rows may take. Of rows twice as long none is left.
_ROWS_SHARE = 0.66


def missed(
    num_bytes: Quantity, machine: Machine, kept: float = _KEPT, decay: float = DECAY
) -> Quantity:
    """Return the share that is not found in the last cache, of data of so many bytes in all.

    What fits the share `kept` of the cache is found there, of what fills `decay` more nothing.
    """
    over = (num_bytes / machine.cache - kept) / decay
    return minimum(maximum(over, 0.0), 1.0)


def moved(
    num_bytes: Quantity, machine: Machine, *, among: Quantity | None = None, share: Quantity = 1.0
) -> Quantity:
    """Return the seconds to move `num_bytes`, at a `share` of the rate of a long stream.

    They are of data of `among` bytes in all, which the cache holds or does not.
    """
    out = missed(num_bytes if among is None else among, machine)
    rate = machine.bandwidth * machine.memory_share * share
    return num_bytes * (out + (1.0 - out) / machine.cache_ratio) / rate


def _again(operation: Operation, machine: Machine) -> Quantity:
    """Return how many times, on average, what is read is read once more.

    Lanes that move few bytes at a time wait for every access: rows that come from memory cost them
    as much again each time, however short they are, and rows from the last cache nothing.
    """
    if not isinstance(operation, Stream) or operation.passes < 2:
        return 0.0
    if operation.width:
        held = total(operation.reads) + total(operation.writes)
        return (operation.passes - 1) * missed(held, machine)
    rows = _ROWS[min(operation.passes, max(_ROWS))]
    room = _ROWS_SHARE * machine.scratch / rows
    lost = minimum(maximum(operation.row / room - 1.0, 0.0), 1.0)
    return (operation.passes - 1) * lost


def _traffic(operation: Operation, machine: Machine) -> tuple[Quantity, Quantity]:
    """Return the bytes that an operation has, and those that it moves."""
    read, written = total(operation.reads), total(operation.writes)
    held = read + written
    if isinstance(operation, Pooling):
        loads = operation.element_size * operation.window_elements * operation.output_elements
        first = minimum(loads, operation.element_size * operation.input_elements)
        again = _WINDOWED * first + _OVERLAPPED * (loads - first)
        if operation.direction is not Pass.FORWARD:
            again = _LOOKING * again
        # A window that is the whole image is a sum, which reads it once.
        positions = product(axis.output for axis in operation.axes)
        return held, held + where_positive(positions - 1, again)
    if (
        isinstance(operation, Stream)
        and operation.kind is Kind.BATCH_NORM
        and (machine.training and operation.width)
    ):
        is_last = machine.memory_format == CHANNELS_LAST
        moves = _NORMALIZING_LAST if is_last else _NORMALIZING
        return held, held * moves[operation.direction]
    return held, read * (1.0 + _again(operation, machine)) + written


def _narrow(operation: Stream, num_bytes: Quantity, machine: Machine) -> Quantity:
    """Return the least seconds of lanes that move few bytes at a time.

    They take steps along a row together, so that some are idle in the last of several.
    """
    busy = machine.multiprocessors
    if operation.blocks:
        busy = minimum(operation.blocks, busy)
    accesses = _WAITING * machine.lanes / LANES if operation.waits else ACCESSES
    rate = accesses * minimum(operation.width, _WIDTH) * machine.clock * busy
    step = _LANES * operation.width
    steps = ceil_div(operation.row, step)
    idle = _IDLE * where_positive(steps - 1, steps * step / maximum(operation.row, 1) - 1)
    return maximum(num_bytes * (1 + idle) / rate, maximum(steps - 1, 0) * _WAIT)


def _down_columns(run: int, num_bytes: Quantity, machine: Machine) -> Quantity:
    """Return the least seconds to move `num_bytes` of which `run` lie side by side."""
    cached = machine.bandwidth * machine.memory_share * machine.cache_ratio
    return num_bytes * max(_SECTOR / run, 1.0) / cached


def _is_in_passing(operation: Operation) -> bool:
    """Tell whether the kernel of the input's gradient makes this one, too: it reads the same."""
    roles = operation.read_roles
    is_own = operation.direction is Pass.WEIGHT_GRADIENT and bool(roles)
    return is_own and all(role is Role.AGAIN for role in roles)


def price(operation: Operation, machine: Machine) -> Time:
    """Return the time of an operation that computes little for each byte."""
    if _is_in_passing(operation):
        return Time()
    held, num_bytes = _traffic(operation, machine)
    memory = moved(num_bytes, machine, among=held)
    if machine.architecture in _ALL_WAIT and isinstance(operation, Stream) and not operation.width:
        operation = replace(operation, width=machine.element_size, waits=True)
    if isinstance(operation, Stream) and operation.width:
        memory = maximum(memory, _narrow(operation, num_bytes, machine))
    if isinstance(operation, Stream) and operation.run:
        memory = maximum(memory, _down_columns(operation.run, num_bytes, machine))
    compute: Quantity = 0.0
    if machine.vector_peak is not None:
        compute = operation.flops / machine.vector_rate
    start = _START * machine.launch * (operation.kernels if isinstance(operation, Update) else 1)
    if operation.reads or operation.writes:  # without operands it is a kernel all the same
        start = where_positive(held, start)
    return Time(compute, memory, start, maximum(compute, memory) + start)


def explain(operation: Operation, machine: Machine) -> Explanation:
    """Return why it takes what `price` says."""
    time = price(operation, machine)
    if _is_in_passing(operation):
        return Explanation("in the kernel of the input's gradient", time)
    held, num_bytes = _traffic(operation, machine)
    out = missed(held, machine)
    algorithm = "stream"
    times = 1.0 + _again(operation, machine)
    if isinstance(operation, Stream) and operation.passes > 1:
        kept = "kept on the chip" if times == 1 else "read again"
        algorithm = f"stream, rows {kept}"
    place = "memory" if out == 1 else "the last cache" if out == 0 else "the last cache and memory"
    why = {
        "memory": f"its bytes pass through {place}",
        "compute": "its arithmetic takes longer than its bytes",
        "overhead": "the kernel starts for longer than its bytes pass",
    }[time.bound]
    details: list[Detail] = [("traffic", num_bytes, "bytes")]
    if num_bytes:
        details.append(("rate", num_bytes / time.memory, "bytes/s"))
    if times > 1:
        details.append(("reads of a row", times, ""))
    if out < 1:
        details.append(("found in the last cache", 1.0 - out, ""))
    return Explanation(algorithm, time, tuple(details), why)
