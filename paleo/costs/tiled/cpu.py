"""Operations on a processor's cores, as PyTorch runs them with oneDNN.

The operands of a product are packed into blocks that the caches hold, and multiplied by the vector
lanes.
What streams through memory takes as long as its bytes, where a line that is written is read first.
Some kernels of PyTorch are not vectorized (maximum pooling, the statistics of batch normalization,
random numbers): they go step by step, and those of random numbers on one core alone.

How many steps they take was measured with PyTorch 2.13 on two cores of an EPYC of 2023 (Zen 4), by
its profiler inside of training steps of nets.
"""

from __future__ import annotations

from paleo.costs.base import Explanation, Time, explanation
from paleo.costs.tiled.machine import Machine
from paleo.costs.tiled.stream import missed
from paleo.quantity import (
    Quantity,
    all_of,
    ceil_div,
    every,
    minimum,
    root,
    total,
    where_positive,
)
from paleo.work import (
    Attention,
    BatchMatMul,
    MatMul,
    Operation,
    Pass,
    Pooling,
    Stream,
    Update,
)

__all__ = ["WRITTEN", "explain", "is_whole", "multiplied", "passed", "price", "stepped", "together"]

#: Bytes moved for each byte written: the line is first read from memory.
WRITTEN = 2
#: Of what was not used for long, as much is in the cache as if the operation had so many times its
#: bytes.
_AGO = 6
#: The result of a product is read once more: it is added up part by part of K.
_ADDED = 1
#: Steps of packing an element of an operand, and where the other operand is a vector.
_PACKED, _UNPACKED = 0.3, 0.2
#: K of a product is filled up to a multiple: the registers of a block are added up in one go.
_UNROLLED = 8
#: What a fused kernel of attention reaches of a product's speed, its products being small.
_ATTENTION = 0.7
#: Products backward for those forward: the scores are computed again.
_ATTENTION_BACK = 2.5

#: Steps for each element of the result (or of what is read, where the result is a sum), forward
#: and backward; on all cores. Exponentials and the like are vectorized, and take less than one.
_STEPS = {
    "batchnorm": (1.0, 0.0),
    "batch_norm": (1.0, 0.0),
    "lrn": (7.5, 9.0),
    "gelu": (0.25, 0.45),
    "tanh": (0.25, 0.0),
    "sigmoid": (0.25, 0.0),
    "silu": (0.25, 0.3),
    "softmax": (0.2, 0.0),
    "layernorm": (0.1, 0.1),
    "attention": (0.3, 0.3),
}
#: Steps for each random number, which one core draws while the others wait.
_DRAWN = 5.0
#: Steps of a maximum for each element of a window; more for each that the window before had not,
#: since the processor cannot guess whether it is larger; and of scattering one gradient.
_LOOKED_AT, _NEW, _SCATTERED = 0.5, 2.0, 1.0
#: Launches that an operation is worth before it starts: checks, outputs, library calls. The rest is
#: one. (One of 10 numbers takes 4 us, a product 12, batch normalization 12 to 25.)
_LAUNCHES = {"matmul": 3, "softmax": 2, "layernorm": 2, "lrn": 8}
#: Those of batch normalization by what it reads: in inference the input; in training the input
#: twice; backward.
_NORMALIZING = {1: 3, 2: 6, 4: 6}
#: What it reads backward besides the gradient: the input, and both once more.
_BACKWARD = 3
_POOLING = 2
#: More of them backward, for the record of what is to be done.
_NODE = 2
#: The kernel of a convolution adds the bias to what it has in registers, that of a product to what
#: it finds in its result; both sum up the bias' gradient in passing.
_FREE = ("bias",)


def _rate(machine: Machine) -> Quantity:
    """Return the FLOP/s of long products."""
    if machine.matrix_peak is not None:
        return machine.matrix_peak * machine.matrix_share
    assert machine.vector_peak is not None
    return machine.vector_peak * machine.vector_share


def multiplied(flops: Quantity, machine: Machine) -> Quantity:
    """Return the seconds of so many FLOPs of products."""
    return flops / _rate(machine)


def passed(
    machine: Machine,
    *,
    recent: Quantity = 0,
    old: Quantity = 0,
    written: Quantity = 0,
    among: Quantity | None = None,
) -> Quantity:
    """Return the seconds in which bytes are read and written.

    `recent` ones were written just before, and are in the cache if all of the operation fits, which
    is `among` so many bytes, or those that are named here. `old`
    ones were not used for long (weights, what was kept for the backward pass), nor was the memory
    that is `written` in training: they are there if several times as much fits.
    """
    held = recent + old + written if among is None else among
    if not machine.training:
        # What was freed just before is written to.
        recent, written = recent + WRITTEN * written, 0
    soon, late = (missed(times * held, machine) for times in (1, _AGO))
    rate = machine.bandwidth * machine.memory_share
    ratio = machine.cache_ratio
    return (
        recent * (soon + (1.0 - soon) / ratio)
        + (old + WRITTEN * written) * (late + (1.0 - late) / ratio)
    ) / rate


def together(compute: Quantity, memory: Quantity) -> Quantity:
    """Return the seconds of both where they overlap in part: the root of the sum of squares."""
    return root(compute * compute + memory * memory)


def price(operation: Operation, machine: Machine) -> Time:
    """Return the time of any operation but a convolution."""
    match operation:
        case MatMul():
            return _product(
                operation.m, operation.n, operation.k, 1, operation.work.bytes_read,
                operation.work.bytes_written, machine,
            )  # fmt: skip
        case BatchMatMul(dependent=True):
            return _steps(operation, machine)
        case BatchMatMul():
            return _product(
                operation.m, operation.n, operation.k, operation.count,
                operation.work.bytes_read, operation.work.bytes_written, machine,
            )  # fmt: skip
        case Attention():
            return _attention(operation, machine)
        case Pooling():
            return _pooling(operation, machine)
        case _:
            return _stream(operation, machine)


def _time(compute: Quantity, memory: Quantity, machine: Machine, launches: int = 1) -> Time:
    start = where_positive(compute + memory, launches * machine.launch)
    return Time(compute, memory, start, compute + memory + start)


def _product(
    m: Quantity, n: Quantity, k: Quantity, count: Quantity,
    reads: Quantity, writes: Quantity, machine: Machine,
) -> Time:  # fmt: skip
    """Return the time of `count` products of M x N x K with operands of so many bytes."""
    compute = multiplied(2 * count * m * n * (ceil_div(k, _UNROLLED) * _UNROLLED), machine)
    is_vector = (m == 1) | (n == 1)
    packed = _PACKED + (_UNPACKED - _PACKED) * is_vector
    compute = compute + stepped(packed * (reads / machine.element_size), machine)
    memory = passed(machine, old=reads + _ADDED * writes, written=writes)
    return _time(compute, memory, machine, _LAUNCHES["matmul"])


def _steps(operation: BatchMatMul, machine: Machine) -> Time:
    """Return the time of products that wait for one another, as in a recurrent layer.

    Their weights are packed once, and read in every step.
    """
    compute = multiplied(operation.flops, machine)
    memory = operation.count * passed(machine, recent=total(operation.reads) / operation.count)
    between = operation.count * machine.step + machine.launch
    return Time(compute, memory, between, together(compute, memory) + between)


def _attention(operation: Attention, machine: Machine) -> Time:
    """Return the time of a fused kernel: its products, and the exponentials in between."""
    times = 1.0 if operation.direction is Pass.FORWARD else _ATTENTION_BACK / 2
    scores = operation.heads * operation.queries * operation.seen
    steps = _STEPS["attention"][operation.direction is not Pass.FORWARD]
    compute = multiplied(times * operation.flops, machine) / _ATTENTION
    compute = compute + stepped(steps * scores, machine)
    memory = passed(machine, recent=total(operation.reads), written=total(operation.writes))
    return _time(compute, memory, machine)


def is_whole(operation: Pooling) -> bool:
    """Tell whether windows are as large as the images."""
    return every(all_of(axis.output == 1 for axis in operation.axes))


def _pooling(operation: Pooling, machine: Machine) -> Time:
    """Return the time of windows that are looked at element by element.

    A mean over whole images is a sum, which is vectorized.
    """
    compute: Quantity = 0.0
    forward = operation.direction is Pass.FORWARD
    if not is_whole(operation):
        each: Quantity = operation.window_elements
        if operation.maximum and forward:
            last = operation.axes[-1]
            new = each / last.window * minimum(last.stride, last.window)
            each = _LOOKED_AT * each + _NEW * new
        elif operation.maximum:
            each = _SCATTERED
        compute = stepped(each * operation.output_elements, machine)
    recent, *old = operation.reads
    memory = passed(machine, recent=recent, old=total(old), written=total(operation.writes))
    return _time(compute, memory, machine, _POOLING if forward else _POOLING + _NODE)


def stepped(steps: Quantity, machine: Machine) -> Quantity:
    """Return the seconds of so many steps of code that is not vectorized, on all cores."""
    return steps * machine.scalar / machine.multiprocessors


def _stream(operation: Operation, machine: Machine) -> Time:
    if operation.name in _FREE:
        return Time()
    reads, writes = total(operation.reads), total(operation.writes)
    if isinstance(operation, Update):
        # The lines that are written were read before.
        return _time(0.0, passed(machine, old=reads + writes), machine)
    compute: Quantity = 0.0
    if isinstance(operation, Stream) and operation.writes:
        elements = operation.writes[0] / machine.element_size
        compute = stepped(_each(operation) * elements, machine)
        compute = compute + _DRAWN * operation.drawn * machine.scalar
    start = machine.launch * _launches(operation)
    if operation.reads or operation.writes:
        start = where_positive(reads + writes, start)
    memory = passed(machine, old=_old(operation), recent=reads - _old(operation), written=writes)
    return Time(compute, memory, start, compute + memory + start)


def _old(operation: Operation) -> Quantity:
    """Return the bytes read that were not written just before.

    These are all operands but the first. Batch normalization reads each twice.
    """
    first, *others = operation.reads or (0,)
    if operation.name.startswith("batch"):
        return first if len(others) == _BACKWARD else 0
    return total(others)


def _launches(operation: Operation) -> int:
    """Return how many launches an operation is worth."""
    reads = operation.reads
    if operation.name.startswith("batch"):
        return _NORMALIZING.get(len(reads), 1)
    # The gradient of a function, from the output's and what was kept.
    backward = len(reads) == 2 and len(operation.writes) == 1 and operation.name != "elementwise"
    return _LAUNCHES.get(operation.name, 1) + (_NODE if backward else 0)


def _each(operation: Stream) -> float:
    """Return the steps for each element of the result."""
    forward, backward = _STEPS.get(operation.name, (0.0, 0.0))
    reads = operation.bytes_read
    if operation.name.startswith("batch"):
        # In inference it reads its input once, without statistics.
        return forward if len(reads) == 2 and len(operation.bytes_written) == 1 else backward
    return forward if len(reads) == 1 else backward


def explain(operation: Operation, machine: Machine) -> Explanation:
    """Return why it takes what `price` says."""
    time = price(operation, machine)
    if operation.name in _FREE:
        return explanation("in the kernel before", time)
    bound = time.bound
    if isinstance(operation, MatMul | BatchMatMul | Attention):
        why = {
            "compute": "its multiplications take longest",
            "memory": "its operands are packed and read for longer than they are multiplied",
        }
        return explanation(
            "packed product", time, ("rate", _rate(machine), "FLOP/s"),
            why=why.get(bound, "it starts for longer than it runs"),
        )  # fmt: skip
    reads, writes = total(operation.reads), total(operation.writes)
    why = {
        "compute": "it goes element by element, without vectors",
        "memory": "its bytes pass through memory and caches",
    }
    details = [("traffic", reads + WRITTEN * writes, "bytes")]
    if reads + writes:
        details.append(("rate", (reads + WRITTEN * writes) / time.memory, "bytes/s"))
    return explanation(
        "stream", time, *details, why=why.get(bound, "it starts for longer than it runs")
    )
