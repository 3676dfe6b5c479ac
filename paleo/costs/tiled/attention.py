"""Attention as one fused kernel: prefill and decode, causal, grouped queries, windows.

After Dao, FlashAttention-2 (arXiv:2307.08691), and Shah et al., FlashAttention-3
(arXiv:2407.08608). A tile of queries is the work of one multiprocessor. It walks over the blocks
of keys that its queries see, multiplies, takes exponentials, and sums values up; the scores
stay on the chip. The heads that share keys may stand in one tile. Where that gives few tiles,
as in decoding, the keys are split among several multiprocessors, and one more kernel adds up
what they found. The library is taken to choose what is quickest.

A tile begins with loading its queries and ends with writing its output, while its multiprocessor
computes nothing; in between, it computes and loads keys and values at the same time.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from paleo.core.frozen import NamedTuple
from paleo.core.operations import Attention, Pass
from paleo.core.quantity import (
    Quantity,
    ceil_div,
    is_array,
    largest,
    maximum,
    minimum,
    np,
    rounded_up,
)
from paleo.costs.attention import ATTENTION_FAMILIES
from paleo.costs.model import Detail, Explanation, quicker
from paleo.costs.tiled.attention_kernels import ATTENTION_KERNELS, AttentionKernel
from paleo.costs.tiled.machine import Machine
from paleo.costs.tiled.power import slowed_by_power
from paleo.costs.tiled.stream import missed, moved
from paleo.costs.times import Time

#: Rows of queries in a tile, and keys in a block, as in both papers for 128 features.
_TILE = 128
#: Matrix units compute so many rows of a tile at once: one multiplication of a warp group, and of
#: FlashAttention-2's smaller tiles one.
_ROWS = 64
#: Bytes of an element that kernels of libraries compute in.
_HALF = 2
#: Triton moves several numbers at a time only where a row is a multiple of so many (its integer
#: arguments are specialized by whether 16 divides them).
_ALIGNED = 16
#: Features are rounded up to so many.
_FEATURES = 32
#: Into how many parts keys may be split.
_SPLITS = (1, 2, 4, 8, 16, 32, 64, 128)
#: The cache keeps all keys and values that fit this share of it, as it keeps operands of products.
_KEPT = 0.9
#: Features beyond which a tile's sums leave room for few other numbers in the registers.
_WIDE = 128
#: Keys of a part, where a plan splits them to have tiles for all multiprocessors.
_LEAST_KEYS = 128
#: A multiprocessor can draw so many times its share of the memory bandwidth.
_DRAWN = 2.0
#: Share of a product's speed that is left where operands have one byte: values are turned around
#: in shared memory, probabilities rounded. (Measured; FlashAttention-3 reports 1.2 PFLOP/s
#: beside 740 TFLOP/s with two bytes at best, 0.8 of twice as much.)
_NARROW = 0.65
#: Speed of the backward pass beside the forward: 63 and 73 % of the peak (FlashAttention-2, 1).
_BACKWARD = 0.63 / 0.73
#: Share of a product's speed, of that without, where something is added to the scores: PyTorch then
#: takes its kernels of CUTLASS, which do not overlap as FlashAttention-2's do
#: (aten/src/ATen/native/transformers/cuda/sdp_utils.cpp).
_MASKED = 0.7
#: Kernels of a backward pass: sums over output and its gradient, the pass, queries' gradients.
_BACKWARD_KERNELS = 3
#: Sums that are not yet final are kept in 4 bytes, written once and read once.
_PARTIAL = 2 * 4


class _Way(NamedTuple):
    """How a pass is computed, and its time; numbers or arrays."""

    time: Time
    packed: Quantity
    split: Quantity
    tiles: Quantity
    waves: Quantity
    blocks: Quantity
    num_bytes: Quantity


class _Tiling(NamedTuple):
    """Tiles of one kind: `groups` of `tiles` each, which have `blocks` together.

    The `longest` of a group's tiles has so many.
    """

    groups: Quantity
    tiles: Quantity
    blocks: Quantity
    longest: Quantity


def _stairs(number: Any, width: Any) -> Any:
    """Return the sum of ceil(i / width) for i from 1 to `number`."""
    whole = number // width
    return width * whole * (whole + 1) // 2 + (number - whole * width) * (whole + 1)


def _tiling(
    operation: Attention, sharing: Quantity, rows: Any = _TILE, keys: Any = _TILE
) -> _Tiling:
    """Return the tiles of so many rows where so many heads of queries stand in one.

    Each walks over blocks of so many `keys`. A tile has rows / sharing queries of each head; where
    that is less than a block, several tiles end in the first block of keys on the diagonal, as many
    in the second, and so on; where it is more, each tile ends several blocks behind the one before.
    """
    tiles = ceil_div(operation.queries * sharing, rows)
    in_tile = minimum(operation.queries, maximum(rows // sharing, 1))
    longest = minimum(ceil_div(operation.keys, keys), ceil_div(operation.reach + in_tile - 1, keys))
    groups = operation.heads // sharing
    if not operation.causal:
        return _Tiling(groups, tiles, tiles * longest, longest)
    width, rise = maximum(sharing * keys // rows, 1), maximum(rows // (sharing * keys), 1)
    before = maximum(operation.keys - operation.queries, 0) * sharing // rows
    rising = minimum(maximum(longest * width // rise - before, 0), tiles)
    blocks = rise * (_stairs(rising + before, width) - _stairs(before, width))
    blocks = minimum(blocks + (tiles - rising) * longest, tiles * longest)
    return _Tiling(groups, tiles, blocks, longest)


class _OnKernel(NamedTuple):
    """A kernel on a machine: its constants, and its tile for the heads at hand."""

    kernel: AttentionKernel
    machine: Machine
    constants: Mapping[str, float]
    rows: Any
    keys: Any


def _by_kernel(operation: Attention, machine: Machine) -> _Way:
    """Return how the kernel that the operation names computes it."""
    kernel = ATTENTION_KERNELS[operation.kernel]
    if not kernel.skips_window:
        operation = replace(operation, window=0 * operation.window)
    constants = kernel.constants(machine.architecture)
    *others, last = kernel.tiles_on(machine.architecture)
    rows: Any = last.rows
    keys: Any = last.keys
    for tile in reversed(others):
        fits = tile.fits(operation.depth, operation.keys)
        rows = fits * tile.rows + (1 - fits) * rows
        keys = fits * tile.keys + (1 - fits) * keys
    chosen = _OnKernel(kernel, machine, constants, rows, keys)
    ways = [
        _split_way(operation, chosen, packed, split)
        for packed in kernel.packed
        for split in kernel.splits
    ]
    return functools.reduce(_quicker, ways)


def _split_way(operation: Attention, on: _OnKernel, packed: int, split: Any) -> _Way:
    """Return the pass by a kernel that packs heads, or not, and splits keys in so many parts."""
    kernel, machine, constant = on.kernel, on.machine, on.constants
    queries, keys, values, *_ = operation.reads
    (output,) = operation.writes
    held = queries + keys + values + output
    alone = 1 * (operation.window > 0) if kernel.window_alone else 0
    sharing = (1 - alone) * operation.sharing + alone if packed else 1
    tiling = _tiling(operation, sharing, on.rows, on.keys)
    may_split = 1 if kernel.splits_tiles else 1 * (tiling.tiles == 1)
    if kernel.fills:
        room = kernel.fills * machine.multiprocessors // (tiling.groups * tiling.tiles)
        split = minimum(maximum(room, 1), ceil_div(operation.keys, _LEAST_KEYS))
    parts = 1 + (minimum(split, tiling.longest) - 1) * may_split * (1 - alone)
    is_split = 1 * (parts > 1)
    units = tiling.groups * tiling.tiles * parts
    length = ceil_div(tiling.longest, parts)
    # Equal tiles run in waves. Others fill gaps, but for those of a long one that comes late.
    equal: Quantity = 1 * (tiling.blocks == tiling.tiles * tiling.longest)
    equal = equal * (1 - is_split * (tiling.tiles > 1))
    waves = ceil_div(units, machine.multiprocessors)
    more = maximum(units / machine.multiprocessors - 1, 0.0)
    gaps = maximum(length, tiling.groups * tiling.blocks / machine.multiprocessors)
    gaps = gaps + constant["uneven"] * length * minimum(more, 1.0)
    blocks = equal * (waves * length) + (1 - equal) * gaps
    at_once = kernel.own_rows.get(machine.architecture, kernel.rows_at_once)
    rows = rounded_up(minimum(operation.queries * sharing, on.rows), at_once)
    filled = minimum(rows, on.rows) / on.rows
    compute = blocks * _block_of(operation, on) * filled
    partial = _PARTIAL * parts * operation.heads * operation.queries * operation.value_depth
    ends = queries + output + is_split * partial
    share = minimum(1.0, constant["drawn"] * units / machine.multiprocessors)
    outside = _loaded(ends, held, share, on)
    inside = _loaded(keys + values, held, share, on, constant["memory"])
    if constant["loads"]:
        drawn = constant["loads"] * machine.clock * minimum(units, machine.multiprocessors)
        inside = maximum(inside, (keys + values) / drawn)
    if constant["lanes"]:
        each = (keys + values) / operation.key_size * operation.sharing / (tiling.groups * parts)
        compute = waves * each / (_lanes_of(operation, constant) * machine.clock)
    overhead = (
        constant["start"]
        + (constant["combine"] + constant["merge"] * operation.heads * operation.queries) * is_split
        + constant["fill"]
        + constant["again"] * more
        + constant["step"] * length
        + constant["head"] * operation.heads / machine.multiprocessors
    )
    total = overhead + outside + maximum(compute, inside)
    features = _computed(operation, on)
    flops = 2 * features * tiling.groups * tiling.blocks * on.rows * on.keys * filled
    longer = slowed_by_power(flops, total, machine)
    time = Time(compute * longer, outside + inside, overhead, total * longer)
    num_bytes = ends + keys + values
    return _Way(
        time, 1 * (sharing > 1), parts, units, waves, tiling.groups * tiling.blocks, num_bytes
    )


def _loaded(
    num_bytes: Quantity, held: Quantity, share: Quantity, on: _OnKernel, of_stream: float = 1.0
) -> Quantity:
    """Return the seconds in which bytes come from memory and the last cache.

    Memory gives a share `of_stream` of a stream's rate. The cache runs with the clock of the
    multiprocessors, whatever the memory does.
    """
    machine, constant = on.machine, on.constants
    if not constant["cached"]:
        return moved(num_bytes, machine, among=held, share=share) / of_stream
    out = missed(held, machine, _KEPT)
    memory = machine.bandwidth * machine.memory_share * of_stream
    cache = constant["cached"] * machine.clock * machine.multiprocessors
    return num_bytes * (out / memory + (1.0 - out) / cache) / share


def _lanes_of(operation: Attention, constant: Mapping[str, float]) -> Quantity:
    """Return the elements of keys and values that lanes multiply in a clock."""
    is_narrow = 1 * (operation.key_size < operation.element_size)
    narrow = constant["narrow_lanes"] or constant["lanes"]
    return narrow * is_narrow + constant["lanes"] * (1 - is_narrow)


def _share_of(operation: Attention, constant: Mapping[str, float]) -> Quantity:
    """Return the share of a product's speed that a kernel reaches in its products."""
    is_wide = 1 * (operation.depth > _WIDE)
    share: Quantity = constant["share"] * (1.0 + (constant["wide"] - 1.0) * is_wide)
    return share


def _block_of(operation: Attention, on: _OnKernel) -> Quantity:
    """Return the seconds of one block of a kernel's scores."""
    machine, constant = on.machine, on.constants
    features = _computed(operation, on)
    exponential = constant["exponentials"] / (machine.exponentials * machine.clock)
    if constant["clocked"]:
        score = 2 * features / (constant["clocked"] * machine.clock) + exponential
    else:
        share = _share_of(operation, constant) * (_NARROW if machine.element_size == 1 else 1.0)
        score = _score(features, share, exponential, machine)
    block = on.rows * on.keys * score
    is_narrow = 1 * (operation.key_size < operation.element_size)
    odd = 1 * (operation.depth % _ALIGNED != 0)
    block = block * (1.0 + (constant["unaligned"] - 1.0) * odd)
    slower: Quantity = 1.0 + (on.kernel.narrow.get(machine.architecture, 1.0) - 1.0) * is_narrow
    return cast(Quantity, block * slower)


def _computed(operation: Attention, on: _OnKernel) -> Quantity:
    """Return the features in both products of a kernel."""
    return sum(
        on.kernel.padded(each, on.machine.architecture)
        for each in (operation.depth, operation.value_depth)
    )


def _score(
    features: Quantity, share: Quantity, exponential: Quantity, machine: Machine
) -> Quantity:
    """Return the seconds of one score on a multiprocessor, over so many `features` in all products.

    `share` is that of a product's speed, `exponential` are the seconds that products do not hide.
    """
    if machine.matrix_peak is None:
        rate = machine.product_rate * share / machine.multiprocessors
        return 2 * features / rate + exponential
    # As if matrix units did as many operations a clock as where shares are known, and then what of
    # that is theirs at their own pace.
    pace = machine.pace
    peak = machine.matrix_peak / (pace * machine.multiprocessors)
    products = 2 * features / peak
    seconds = products / (machine.matrix_share * share) + exponential
    return seconds / (pace * machine.gain(products / seconds))


def _shared(operation: Attention, machine: Machine) -> Quantity:
    """Return the share of a product's speed that those of attention reach."""
    share = machine.attention_share * (_NARROW if machine.element_size == 1 else 1.0)
    return share * (_MASKED if operation.has_mask else 1.0)


def _block(features: Quantity, share: Quantity, machine: Machine) -> Quantity:
    """Return the seconds of one block of scores, over so many `features` in all products."""
    exponential = 1.0 / (machine.exponentials * machine.clock)
    return _TILE * _TILE * _score(features, share, exponential, machine)


def _slower(machine: Machine) -> tuple[float, float]:
    """Return how many times as long products take as FlashAttention-2's, forward and backward."""
    if machine.attention is None or machine.element_size != _HALF:
        return 1.0, 1.0
    return ATTENTION_FAMILIES[machine.attention].slower


def _filled(rows: Quantity, machine: Machine) -> Quantity:
    """Return the share of a tile's rows that is computed."""
    at_once = 1 if machine.matrix_peak is None else _ROWS
    return rounded_up(minimum(rows, _TILE), at_once) / _TILE


def _busy(tiling: _Tiling, split: Any, machine: Machine) -> tuple[Quantity, Quantity, Quantity]:
    """Return tiles in all, their waves, and the blocks that the last multiprocessor computes.

    Equal tiles run in waves. Of others the longest come first, and the short ones fill gaps. Only
    where all queries are in one tile are keys split.
    """
    parts = 1 + (minimum(split, tiling.longest) - 1) * (tiling.tiles == 1)
    units = tiling.groups * tiling.tiles * parts
    waves = ceil_div(units, machine.multiprocessors)
    length = ceil_div(tiling.longest, parts)
    equal = tiling.blocks == tiling.tiles * tiling.longest
    filled = maximum(length, tiling.groups * tiling.blocks / machine.multiprocessors)
    return units, waves, equal * (waves * length) + (1 - equal) * filled


def _padded(features: Quantity) -> Quantity:
    return rounded_up(features, _FEATURES)


def _forward(operation: Attention, machine: Machine) -> _Way:
    """Return the quickest way to compute the forward pass."""
    queries, keys, values, *_ = operation.reads
    (output,) = operation.writes
    held = queries + keys + values + output + operation.mask
    features = _padded(operation.depth) + _padded(operation.value_depth)
    block = _block(features, _shared(operation, machine), machine) * _slower(machine)[0]
    rows = operation.heads * operation.queries
    best: _Way | None = None
    for packed in (1, 0):
        sharing = operation.sharing if packed else 1
        tiling = _tiling(operation, sharing)
        filled = _filled(operation.queries * sharing, machine)
        for split in _SPLITS:
            units, waves, length = _busy(tiling, split, machine)
            ends = queries + output
            launches = machine.launch
            if split > 1:
                ends = ends + _PARTIAL * split * rows * operation.value_depth
                launches = 2 * machine.launch
            ends = ends + operation.mask
            share = minimum(1.0, _DRAWN * units / machine.multiprocessors)
            outside = moved(ends, machine, among=held, share=share)
            inside = moved(keys + values, machine, among=held, share=share)
            compute = length * block * filled
            overhead = launches + (waves + 1) * machine.attention_fill
            time = Time(
                compute, outside + inside, overhead, overhead + outside + maximum(compute, inside)
            )
            blocks = tiling.groups * tiling.blocks
            found = _Way(time, packed, split, units, waves, blocks, ends + keys + values)
            best = found if best is None else _quicker(best, found)
    assert best
    return best


def _backward(operation: Attention, machine: Machine) -> _Way:
    """Return how the backward pass is computed: tiles of keys walk over blocks of queries.

    Each block has five products, scores computed again among them; the gradients of the
    queries are summed up in 4 bytes by all tiles.
    """
    tiling = _tiling(operation, 1)
    keys = ceil_div(operation.keys, _TILE)
    tiling = tiling._replace(tiles=keys, longest=ceil_div(tiling.blocks, keys))
    if operation.causal:
        seen_by = minimum(operation.queries, operation.reach + _TILE - 1)
        tiling = tiling._replace(longest=ceil_div(seen_by, _TILE))
    units, waves, length = _busy(tiling, 1, machine)
    features = 3 * _padded(operation.depth) + 2 * rounded_up(operation.value_depth, _FEATURES)
    block = _block(features, _shared(operation, machine) * _BACKWARD, machine)
    block = block * _slower(machine)[1]
    compute = length * block * _filled(operation.queries, machine)
    held = operation.work.num_bytes
    num_bytes = held + _PARTIAL * operation.heads * operation.queries * operation.depth
    memory = moved(num_bytes, machine, among=held)
    overhead = _BACKWARD_KERNELS * machine.launch + (waves + 1) * machine.attention_fill
    time = Time(compute, memory, overhead, overhead + maximum(compute, memory))
    return _Way(time, 0, 1, units, waves, tiling.groups * tiling.blocks, num_bytes)


def _quicker(a: _Way, b: _Way) -> _Way:
    """Return the quicker of two, element by element."""
    second, time = quicker(a.time, b.time)
    if not is_array(second):
        return b if second else a
    return _Way(time, *(np.where(second, y, x) for x, y in zip(a[1:], b[1:], strict=True)))


def asked_for(operation: Attention, machine: Machine) -> Attention:
    """Return the operation by the kernel of the family that the target asks for, if it has one.

    Such kernels compute in 2 bytes, forward; nothing is added to the scores. Layers that are not so
    are computed as if none had been asked for, but for what `_slower` says.
    """
    fits = operation.direction is Pass.FORWARD and operation.element_size == _HALF
    if machine.attention is None or operation.kernel or operation.has_mask or not fits:
        return operation
    prompt, step = ATTENTION_FAMILIES[machine.attention].kernels[machine.architecture]
    return replace(operation, kernel=step if largest(operation.queries) == 1 else prompt)


def _chosen(operation: Attention, machine: Machine) -> _Way:
    if operation.direction is Pass.FORWARD:
        return (_by_kernel if operation.kernel else _forward)(operation, machine)
    return _backward(operation, machine)


def price(operation: Attention, machine: Machine) -> Time:
    """Return the time of one fused attention kernel."""
    return _chosen(operation, machine).time


def explain(operation: Attention, machine: Machine) -> Explanation:
    """Return why it takes what `price` says."""
    way = _chosen(operation, machine)
    kind = "prefill" if operation.direction is Pass.FORWARD else "backward"
    if kind == "prefill" and operation.queries == 1:
        kind = "split decode" if way.split > 1 else "decode"
    rows, keys = _TILE, _TILE
    algorithm = f"fused attention, {kind}"
    if operation.kernel:
        kernel = ATTENTION_KERNELS[operation.kernel]
        algorithm = f"fused attention, {kernel.summary}"
        tiles = kernel.tiles_on(machine.architecture)
        rows, keys, *_ = next(t for t in tiles if t.fits(operation.depth, operation.keys))
    details: list[Detail] = [
        ("tile", f"{rows} rows of queries by blocks of {keys} keys", ""),
        ("heads in a tile", operation.sharing if way.packed else 1, ""),
        ("tiles", way.tiles, ""),
        ("waves", way.waves, ""),
        ("blocks of scores", way.blocks, ""),
        ("traffic", way.num_bytes, "bytes"),
        ("rate", way.num_bytes / way.time.memory, "bytes/s"),
    ]
    if operation.kernel:
        constants = kernel.constants(machine.architecture)
        details.insert(1, ("share of a product's speed", _share_of(operation, constants), ""))
    if way.split > 1:
        details.insert(2, ("parts of the keys", way.split, ""))
    why = {
        "memory": "queries, keys, values and output pass through memory for longer than all else",
        "compute": "products and exponentials of the blocks of scores take longest",
        "overhead": "kernels start, and tiles start and end, for longer than all else",
    }[way.time.bound]
    return Explanation(algorithm, way.time, tuple(details), why)
