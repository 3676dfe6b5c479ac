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

from dataclasses import replace

from paleo.core.operations import (
    Attention,
    BatchMatMul,
    Fused,
    Kind,
    MatMul,
    Operation,
    Pass,
    Pooling,
    Role,
    Stream,
    Update,
)
from paleo.core.quantity import (
    Quantity,
    all_of,
    every,
    minimum,
    root,
    rounded_up,
    total,
    where_positive,
)
from paleo.costs.model import Detail, Explanation
from paleo.costs.tiled.machine import Machine
from paleo.costs.tiled.stream import missed
from paleo.costs.times import Time
from paleo.net.layers.functions import FUNCTIONS

#: Bytes moved for each byte written: the line is first read from memory.
WRITTEN = 2
#: Of what was not used for long, as much is in the cache as if the operation had so many times its
#: bytes.
_AGO = 6
#: Bytes from which on a tensor's memory is new each time: the C library asks the system for it, and
#: gives it back (glibc, mallopt(3): M_MMAP_THRESHOLD grows to 32 MiB at most, and PyTorch's
#: allocator for CPUs keeps nothing either). It comes page by page, so many bytes each.
_MAPPED, _PAGE = 32 * 2**20, 4096
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

#: Steps for each element of the result (or of what is read, where the result is a sum), on all
#: cores.
_STEPS = {
    (Kind.BATCH_NORM, Pass.FORWARD): 1.0,
    (Kind.BATCH_NORM, Pass.WEIGHT_GRADIENT): 1.0,
    (Kind.LOCAL_RESPONSE_NORM, Pass.FORWARD): 7.5,
    (Kind.LOCAL_RESPONSE_NORM, Pass.INPUT_GRADIENT): 9.0,
}
#: Those of exponentials and the like, which are vectorized; those of functions are in their table.
_VECTORIZED = {
    (Kind.SOFTMAX, Pass.FORWARD): 0.2,
    (Kind.LAYER_NORM, Pass.FORWARD): 0.1,
    (Kind.LAYER_NORM, Pass.INPUT_GRADIENT): 0.1,
    (Kind.LAYER_NORM, Pass.WEIGHT_GRADIENT): 0.1,
}
#: FLOPs that all vectors could do in one of them: 2.1 ns of a core of 107 GFLOP/s. Its time goes
#: with the vectors', not with the clock: on a core of Zen 5 an element's sigmoid and product take
#: 0.56 ns with AVX2 and 0.28 ns with AVX-512 (PyTorch 2.14, eager and compiled alike).
_FLOPS_A_STEP = 225
#: Those of a batch normalization in inference within a kernel that a compiler generated: it takes
#: the root and the reciprocal of the variance for each element. (On a core of Zen 5, by PyTorch
#: 2.14: 0.17 ns with AVX2, 0.09 ns with AVX-512.)
_NORMALIZED = 0.11
#: Those for each score of attention.
_SCORED = 0.3
#: Steps for each random number, which one core draws while the others wait.
_DRAWN = 5.0
#: Steps of a maximum for each element of a window; more for each that the window before had not,
#: since the processor cannot guess whether it is larger; and of scattering one gradient.
_LOOKED_AT, _NEW, _SCATTERED = 0.5, 2.0, 1.0
#: Launches that an operation is worth before it starts: checks, outputs, library calls. The rest is
#: one. (One of 10 numbers takes 4 us, a product 12, batch normalization 12 to 25.)
_LAUNCHES = {Kind.MATMUL: 3, Kind.SOFTMAX: 2, Kind.LAYER_NORM: 2, Kind.LOCAL_RESPONSE_NORM: 8}
#: Those of batch normalization in inference, and where there are statistics or gradients.
_NORMALIZING, _WITH_STATISTICS = 3, 6
_POOLING = 2
#: More of them for a gradient from what was kept, for the record of what is to be done.
_NODE = 2
#: Kinds of which that was not seen.
_NO_NODE = (Kind.ELEMENTWISE, Kind.LOCAL_RESPONSE_NORM)
#: What an operation reads that was not used for long.
_OLD = (Role.EARLIER_INPUT, Role.WEIGHT, Role.KEPT)
#: The kernel of a convolution adds the bias to what it has in registers, that of a product to what
#: it finds in its result; both sum up the bias' gradient in passing.
_FREE = Kind.BIAS
#: Why an operation takes its time that neither computation nor memory takes.
_STARTS = "it starts for longer than it runs"


def multiplied(flops: Quantity, machine: Machine) -> Quantity:
    """Return the seconds of so many FLOPs of products."""
    return flops / machine.product_rate


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


def mapped(num_bytes: Quantity, machine: Machine) -> Quantity:
    """Return the seconds in which the system hands over the memory of a large tensor.

    Each core asks for the pages that it writes. Pointwise operations write where they read, or into
    what a small tensor left.
    """
    pages = num_bytes / _PAGE
    return where_positive(num_bytes - _MAPPED, pages * machine.fault / machine.multiprocessors)


def together(compute: Quantity, memory: Quantity) -> Quantity:
    """Return the seconds of both where they overlap in part: the root of the sum of squares."""
    return root(compute * compute + memory * memory)


def price(operation: Operation, machine: Machine) -> Time:
    """Return the time of any operation but a convolution."""
    match operation:
        case MatMul():
            return _product(operation, 1, machine)
        case BatchMatMul(dependent=True):
            return _steps(operation, machine)
        case BatchMatMul():
            return _product(operation, operation.count, machine)
        case Attention():
            return _attention(operation, machine)
        case Pooling():
            return _pooling(operation, machine)
        case _:
            return _stream(operation, machine)


def _time(compute: Quantity, memory: Quantity, machine: Machine, launches: int = 1) -> Time:
    start = where_positive(compute + memory, launches * machine.launch)
    return Time(compute, memory, start, compute + memory + start)


def _product(operation: MatMul | BatchMatMul, count: Quantity, machine: Machine) -> Time:
    """Return the time of `count` products."""
    m, n, k, work = operation.m, operation.n, operation.k, operation.work
    compute = multiplied(2 * count * m * n * rounded_up(k, _UNROLLED), machine)
    is_vector = (m == 1) | (n == 1)
    packed = _PACKED + (_UNPACKED - _PACKED) * is_vector
    compute = compute + stepped(packed * (work.bytes_read / machine.element_size), machine)
    old = work.bytes_read + _ADDED * work.bytes_written
    memory = passed(machine, old=old, written=work.bytes_written)
    memory = memory + mapped(work.bytes_written, machine)
    return _time(compute, memory, machine, _LAUNCHES[Kind.MATMUL])


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
    compute = multiplied(times * operation.flops, machine) / _ATTENTION
    compute = compute + _vectorized(_SCORED * scores, machine)
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
    if operation.kind is _FREE:
        return Time()
    reads, writes = total(operation.reads), total(operation.writes)
    if isinstance(operation, Update):
        # The lines that are written were read before.
        return _time(0.0, passed(machine, old=reads + writes), machine)
    compute: Quantity = 0.0
    if isinstance(operation, Stream) and operation.writes:
        compute = _computed(operation, operation.writes[0], machine)
    start = machine.launch * _launches(operation)
    if operation.reads or operation.writes:
        start = where_positive(reads + writes, start)
    roles = operation.read_roles
    old = total(size for role, size in zip(roles, operation.reads, strict=True) if role in _OLD)
    memory = passed(machine, old=old, recent=reads - old, written=writes)
    return Time(compute, memory, start, compute + memory + start)


def _launches(operation: Operation) -> int:
    """Return how many launches an operation is worth."""
    kind, roles = operation.kind, operation.read_roles
    if kind is Kind.BATCH_NORM:
        return _WITH_STATISTICS if Role.AGAIN in roles else _NORMALIZING
    node = _NODE if Role.KEPT in roles and kind not in _NO_NODE else 0
    return _LAUNCHES.get(kind, 1) + node


def begun(operation: Fused) -> Operation:
    """Return a kernel without the bias at its head, which is in the kernel before.

    What comes next is a kernel of its own: it reads and writes what the bias would have.
    """
    head, (first, *rest) = operation.head, operation.tail
    if head.kind is not _FREE:
        return operation
    first = replace(
        first,
        reads=head.reads + first.reads,
        writes=head.writes + first.writes,
        roles=head.read_roles + first.read_roles,
    )
    return replace(operation, head=first, tail=tuple(rest)) if rest else first


def behind(operation: Fused, machine: Machine) -> Quantity:
    """Return the seconds of what a kernel's tail computes, for each element of its result."""
    result = operation.head.writes[0]
    norms = sum(isinstance(each, Stream) and _knows_statistics(each) for each in operation.parts)
    seconds = _vectorized(_NORMALIZED * norms * (result / machine.element_size), machine)
    return seconds + total(_computed(part, result, machine) for part in operation.tail)


def _computed(operation: Stream, result: Quantity, machine: Machine) -> Quantity:
    """Return the seconds of steps and of random numbers; `result` are the bytes of a result."""
    elements = result / machine.element_size
    which = operation.kind, operation.direction
    steps = 0.0 if _knows_statistics(operation) else _STEPS.get(which, 0.0)
    vectorized = _VECTORIZED.get(which, 0.0)
    if operation.kind is Kind.FUNCTION:
        function = FUNCTIONS[operation.function]
        forward = operation.direction is Pass.FORWARD
        vectorized = function.forward if forward else function.backward
    seconds = stepped(steps * elements, machine) + _vectorized(vectorized * elements, machine)
    return seconds + _DRAWN * operation.drawn * machine.scalar


def _knows_statistics(operation: Stream) -> bool:
    """Tell whether it is a batch normalization in inference."""
    return operation.kind is Kind.BATCH_NORM and Role.AGAIN not in operation.read_roles


def _vectorized(steps: Quantity, machine: Machine) -> Quantity:
    """Return the seconds of so many steps of vectorized functions, on all cores."""
    if machine.vector_peak is None:
        return stepped(steps, machine)
    return steps * _FLOPS_A_STEP / machine.vector_peak


def explain(operation: Operation, machine: Machine) -> Explanation:
    """Return why it takes what `price` says."""
    time = price(operation, machine)
    if operation.kind is _FREE:
        return Explanation("in the kernel before", time)
    bound = time.bound
    if isinstance(operation, MatMul | BatchMatMul | Attention):
        why = {
            "compute": "its multiplications take longest",
            "memory": "its operands are packed and read for longer than they are multiplied",
        }
        rate = ("rate", machine.product_rate, "FLOP/s")
        return Explanation("packed product", time, (rate,), why.get(bound, _STARTS))
    reads, writes = total(operation.reads), total(operation.writes)
    why = {
        "compute": "it goes element by element, without vectors",
        "memory": "its bytes pass through memory and caches",
    }
    details: list[Detail] = [("traffic", reads + WRITTEN * writes, "bytes")]
    if reads + writes:
        details.append(("rate", (reads + WRITTEN * writes) / time.memory, "bytes/s"))
    return Explanation("stream", time, tuple(details), why.get(bound, _STARTS))
