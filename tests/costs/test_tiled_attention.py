"""Fused attention in the cost model `tiled`: tiles, windows, decoding; derived by hand."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layer_examples import Example, works

import paleo
from paleo.core.operations import Attention, Kind, Pass, Stream
from paleo.costs import COST_MODELS, Target
from paleo.costs.tiled import attention, stream
from paleo.costs.tiled.constants import CONSTANTS
from paleo.costs.tiled.machine import Machine, machine_for

TILED = COST_MODELS["tiled"]
#: 100 multiprocessors of 1 TFLOP/s and 16 exponentials a ns each; 1 TB/s; nothing is free of
#: charge in the cache, and nothing takes time to start.
ROUND: dict[str, Any] = {
    "multiprocessors": 100,
    "matrix_peak": 100e12,
    "vector_peak": 10e12,
    "bandwidth": 1e12,
    "cache": 1.0,
    "clock": 1e9,
    "power": math.inf,
    "element_size": 2,
    **{name: 1.0 if each.unit == "1" else 0.0 for name, each in CONSTANTS.items()},
    "exponentials": 16.0,
}
#: A block of 128 x 128 scores over 128 + 128 features: 2 x 128^2 x 256 = 8.389 MFLOP at 1 TFLOP/s,
#: and 128^2 exponentials at 16 a ns.
BLOCK = 8.388608e-6 + 1.024e-6
#: Memory that takes no time.
FREE = {"bandwidth": 1e30}


def machine(**changes: Any) -> Machine:
    return Machine(**{**ROUND, **changes})


def prefill(heads: Any, length: Any, sharing: Any = 1, **changes: Any) -> Attention:
    fields: dict[str, Any] = {"causal": True, **changes}
    return Attention(Pass.FORWARD, heads, sharing, length, length, 128, 128, 2, **fields)


def decode(heads: Any, keys: Any, sharing: Any = 1, **changes: Any) -> Attention:
    fields: dict[str, Any] = {"causal": True, **changes}
    return Attention(Pass.FORWARD, heads, sharing, 1, keys, 128, 128, 2, **fields)


def compute(operation: Attention, **changes: Any) -> float:
    return float(attention.price(operation, machine(**FREE, **changes)).compute)


def test_without_a_mask_equal_tiles_run_in_waves() -> None:
    # 512 queries are 4 tiles, each with 4 blocks of keys. 60 heads: 240 tiles on 100
    # multiprocessors are 3 waves of 4 blocks.
    assert compute(prefill(60, 512, causal=False)) == pytest.approx(3 * 4 * BLOCK)


def test_what_is_added_to_the_scores_is_read_and_slows_the_products() -> None:
    # Products at 0.7 of their speed, exponentials as before: 12 blocks of 8.389 / 0.7 + 1.024 us.
    masked = prefill(60, 512, causal=False, mask=10**9)
    assert compute(masked) == pytest.approx(12 * (8.388608e-6 / 0.7 + 1.024e-6))
    # 1 GB at 1 TB/s.
    plain = prefill(60, 512, causal=False)
    memory = [attention.price(each, machine()).memory for each in (masked, plain)]
    assert memory[0] - memory[1] == pytest.approx(1e-3)


def test_a_causal_mask_halves_the_blocks_but_for_those_on_the_diagonal() -> None:
    # The 4 tiles of 512 queries see 1, 2, 3 and 4 blocks: 10 of 16. 1,000 heads have 10,000
    # blocks, 100 for each of 100 multiprocessors.
    assert compute(prefill(1000, 512)) == pytest.approx(100 * BLOCK)
    # With one head, each tile has a multiprocessor, and the last one 4 blocks.
    assert compute(prefill(1, 512)) == pytest.approx(4 * BLOCK)


def test_queries_that_are_the_last_of_the_keys_see_those_before() -> None:
    # 256 queries behind 256 keys: their 2 tiles see 3 and 4 blocks; 1,000 heads, 7,000 blocks.
    operation = Attention(Pass.FORWARD, 1000, 1, 256, 512, 128, 128, 2, causal=True)
    assert compute(operation) == pytest.approx(70 * BLOCK)


def test_a_window_leaves_two_blocks_of_each_tile_but_the_first() -> None:
    # 1,024 queries are 8 tiles. With a window of 128 keys a tile sees those of its own block and
    # of the one before: 1 + 7 x 2 = 15 blocks instead of 36.
    assert compute(prefill(1000, 1024, window=128)) == pytest.approx(150 * BLOCK)
    assert compute(prefill(1000, 1024)) == pytest.approx(360 * BLOCK)
    # One key more is in a third block: 1 + 2 + 6 x 3 = 21.
    assert compute(prefill(1000, 1024, window=130)) == pytest.approx(210 * BLOCK)
    # A window wider than all keys is none.
    assert prefill(7, 1024, window=5000).flops == prefill(7, 1024).flops
    assert compute(prefill(1000, 1024, window=5000)) == compute(prefill(1000, 1024))


def test_the_work_of_a_window_is_that_of_the_keys_inside() -> None:
    # 1,000 heads, 1,024 queries, 128 of the keys, 128 + 128 features: 2 FLOPs each.
    assert prefill(1000, 1024, window=128).flops == 2 * 1000 * 1024 * 128 * 256
    # All keys are in some query's window.
    assert prefill(1000, 1024, window=128).reads == prefill(1000, 1024).reads
    # The last query alone sees the last 128 of the keys: 128 x 128 features of 2 bytes.
    assert decode(1, 1024, window=128).reads == (256, 128 * 128 * 2, 128 * 128 * 2)


def test_heads_that_share_keys_stand_in_one_tile() -> None:
    # 32 queries of 4 heads are the 128 rows of one tile; alone, each head's 32 rows would be
    # computed as 64. 400 heads: 100 tiles are one wave of one block, not 4 waves of half of one.
    assert compute(prefill(400, 32, sharing=4)) == pytest.approx(BLOCK)
    assert compute(prefill(400, 32)) == pytest.approx(4 * BLOCK / 2)
    # 256 queries of 4 heads are 8 tiles of 32 queries; four see one block and four see two: 12.
    # 1,000 groups have 12,000, as many as 4,000 heads alone with 1 + 2 = 3.
    assert compute(prefill(4000, 256, sharing=4)) == pytest.approx(120 * BLOCK)


def test_shared_keys_are_read_once_for_all_their_heads() -> None:
    # 32 heads share 8 of keys: queries and output have 32 x 128 features of 2 bytes, keys and
    # values 8 x 4,096 x 128 each.
    grouped = decode(32, 4096, sharing=4)
    rows, keys = 32 * 128 * 2, 8 * 4096 * 128 * 2
    assert grouped.reads == (rows, keys, keys)
    # Keys and values take 16.8 us. In 8 parts, the 64 tiles have 4 of the 32 blocks each, of 64 of
    # 128 rows: 18.8 us; in 16 parts, 128 tiles are 2 waves of 2 blocks, the same; in 32, 256
    # are 3 waves of 1: 14.1 us.
    time = attention.price(grouped, machine())
    parts = attention.explain(grouped, machine()).details[2]
    assert parts[:2] == ("parts of the keys", 32)
    assert time.compute == pytest.approx(3 * BLOCK / 2)
    # The sums of the parts have 4 bytes an element, written and read: 8 x 32 x 32 x 128 bytes.
    ends = 2 * rows + 8 * 32 * 32 * 128
    assert time.memory == pytest.approx((ends + 2 * keys) / 1e12)
    assert time.total == pytest.approx(time.memory)


def test_a_cache_of_one_byte_is_read_in_half_the_time() -> None:
    # 1,000 heads keep all multiprocessors busy. 1,000 x 8,192 x 128 elements of keys, and as
    # many of values, beside 1,000 x 128 elements of 2 bytes of queries and of output.
    wide, narrow = decode(1000, 8192), decode(1000, 8192, kv_size=1)
    quick = machine(exponentials=1e9, matrix_peak=1e30)
    ends = 2 * 1000 * 128 * 2
    assert attention.price(wide, quick).total == pytest.approx((ends + 4 * 1.048576e9) / 1e12)
    assert attention.price(narrow, quick).total == pytest.approx((ends + 2 * 1.048576e9) / 1e12)


def test_one_multiprocessor_cannot_draw_all_the_bandwidth() -> None:
    # One head of 128 keys is one tile of one block, which cannot be split. It draws 2 % of
    # 1 TB/s: 4 x 128 x 128 bytes of keys and values, and 2 x 256 of queries and output.
    time = attention.price(decode(1, 128), machine())
    assert time.memory == pytest.approx((65536 + 512) / 0.02e12)


def test_few_heads_of_many_keys_are_split_and_many_are_not() -> None:
    one = attention.explain(decode(1, 128 * 128), machine())
    assert one.algorithm == "fused attention, split decode"
    many = attention.explain(decode(10_000, 128 * 128), machine())
    assert many.algorithm == "fused attention, decode"
    # Where another kernel takes longer than all that, nothing is split.
    slow = attention.explain(decode(1, 128 * 128), machine(launch=1.0))
    assert slow.algorithm == "fused attention, decode"


def test_every_wave_fills_and_empties_its_tiles() -> None:
    # 250 tiles on 100 multiprocessors are 3 waves: 4 times 2 us beside 5 us to start.
    changes = {"attention_fill": 2e-6, "launch": 5e-6}
    with_fill = attention.price(decode(250, 128), machine(**changes))
    assert with_fill.overhead == pytest.approx(4 * 2e-6 + 5e-6)
    without = attention.price(decode(250, 128), machine())
    assert with_fill.total == pytest.approx(without.total + with_fill.overhead)
    # A second kernel adds up what parts of the keys gave.
    split = attention.price(decode(1, 128 * 128), machine(attention_fill=2e-6, launch=1e-7))
    assert split.overhead == pytest.approx(2 * 2e-6 + 2 * 1e-7)


def test_exponentials_do_not_become_fewer_with_the_features() -> None:
    # 64 features halve the products (4.194 us a block) but not the exponentials (1.024 us).
    narrow = Attention(Pass.FORWARD, 1000, 1, 512, 512, 64, 64, 2, causal=True)
    assert compute(narrow) == pytest.approx(100 * (4.194304e-6 + 1.024e-6))
    # 80 features are computed as 96.
    odd = Attention(Pass.FORWARD, 1000, 1, 512, 512, 80, 80, 2, causal=True)
    assert compute(odd) == pytest.approx(100 * (96 * 65536e-12 + 1.024e-6))


def test_operands_of_one_byte_do_not_reach_the_speed_of_a_product() -> None:
    # Twice the peak, of which 0.65 are left.
    time = compute(prefill(1000, 512), matrix_peak=200e12, element_size=1)
    assert time == pytest.approx(100 * (8.388608e-6 / 1.3 + 1.024e-6))


def test_shares_of_the_peak_multiply() -> None:
    time = compute(prefill(1000, 512), matrix_share=0.8, attention_share=0.5)
    assert time == pytest.approx(100 * (8.388608e-6 / 0.4 + 1.024e-6))


def test_lanes_compute_no_empty_rows() -> None:
    # A query on matrix units is one of 64 rows; on lanes of a tenth of the speed, 1 of 128.
    lanes = compute(decode(100, 128), matrix_peak=None)
    assert lanes == pytest.approx((83.88608e-6 + 1.024e-6) / 128)
    assert compute(decode(100, 128)) == pytest.approx(BLOCK / 2)


def test_the_backward_pass_has_five_products_and_three_kernels() -> None:
    # A block over 3 x 128 + 2 x 128 features at 63/73 of the speed.
    backward = Attention(Pass.INPUT_GRADIENT, 1000, 1, 512, 512, 128, 128, 2, causal=True)
    each = 2 * 128 * 128 * 640 / (1e12 * 63 / 73) + 1.024e-6
    time = attention.price(backward, machine(launch=1e-6, attention_fill=1e-7))
    assert time.compute == pytest.approx(100 * each)
    # 4,000 tiles of keys are 40 waves.
    assert time.overhead == pytest.approx(3e-6 + 41e-7)
    # Queries, keys, values, output and its gradient in, three gradients out, 1,000 x 512 x 128
    # elements each; the queries' gradients are 4 bytes for a while, written and read.
    elements = 1000 * 512 * 128
    assert time.memory == pytest.approx((8 * 2 + 8) * elements / 1e12)
    # Without a mask there are 16 blocks of a head: 4,000 tiles of 4.
    whole = Attention(Pass.INPUT_GRADIENT, 1000, 1, 512, 512, 128, 128, 2)
    assert attention.price(whole, machine()).compute == pytest.approx(160 * each)


def test_an_explanation_says_what_was_chosen_and_what_limits_it() -> None:
    found = attention.explain(prefill(400, 32, sharing=4), machine(**FREE))
    assert (found.algorithm, found.bound) == ("fused attention, prefill", "compute")
    details = {name: value for name, value, _ in found.details}
    assert (details["heads in a tile"], details["tiles"], details["waves"]) == (4, 100, 1)
    assert found.time == attention.price(prefill(400, 32, sharing=4), machine(**FREE))
    assert attention.explain(decode(10_000, 4096), machine()).bound == "memory"
    assert attention.explain(decode(1, 1), machine(launch=1.0)).bound == "overhead"
    backward = Attention(Pass.INPUT_GRADIENT, 1, 1, 64, 64, 64, 64, 2)
    assert attention.explain(backward, machine()).algorithm == "fused attention, backward"


SHAPES = st.builds(
    lambda groups, sharing, queries, more, depth, window, kv, causal, direction: Attention(
        direction, groups * sharing, sharing, queries, queries + more, depth, depth, 2,
        causal, window, kv,
    ),
    st.integers(1, 3000),
    st.sampled_from((1, 2, 3, 4, 7, 8, 16, 128, 200)),
    st.one_of(st.just(1), st.integers(1, 5000)),
    st.integers(0, 20_000),
    st.sampled_from((16, 64, 80, 128, 192, 256)),
    st.sampled_from((0, 1, 128, 1000)),
    st.sampled_from((0, 1)),
    st.booleans(),
    st.sampled_from((Pass.FORWARD, Pass.INPUT_GRADIENT)),
)  # fmt: skip


@given(SHAPES)
def test_nothing_is_quicker_than_its_bytes_and_its_products(operation: Attention) -> None:
    # Real constants, but all of the peak and of the bandwidth, and no cache.
    h100 = paleo.find_device("H100_SXM")
    constants = {
        "memory_share": 1.0,
        "cache_ratio": 1.0,
        "matrix_share": 1.0,
        "attention_share": 1.0,
    }
    time = TILED.price(operation, Target(h100, "bf16", constants=constants))
    assert time.total >= operation.work.num_bytes / h100.memory_bandwidth * (1 - 1e-9)
    # A causal mask may save half of the products, and a window is inside of them.
    least = operation.flops / 2 if operation.causal else operation.flops
    assert time.total >= least / h100.peak("bf16") * (1 - 1e-9)
    assert time.total <= (time.compute + time.memory + time.overhead) * (1 + 1e-9)


@settings(max_examples=30)
@given(st.lists(SHAPES, min_size=1, max_size=5))
def test_arrays_of_shapes_give_what_each_gives_alone(operations: list[Attention]) -> None:
    target = Target(paleo.find_device("A100_SXM_80GB"), "bf16")
    first = operations[0]
    alike = [each for each in operations if each.causal == first.causal]
    alike = [each for each in alike if each.direction == first.direction]
    names = ("heads", "sharing", "queries", "keys", "depth", "value_depth", "window", "kv_size")
    stacked: dict[str, Any] = {
        name: np.array([getattr(each, name) for each in alike]) for name in names
    }
    together = TILED.price(
        Attention(first.direction, element_size=2, causal=first.causal, **stacked), target
    )
    for place, each in enumerate(alike):
        alone = TILED.price(each, target)
        for part in ("compute", "memory", "overhead", "total"):
            assert np.broadcast_to(getattr(together, part), len(alike))[place] == getattr(
                alone, part
            )


def test_constants_may_be_arrays_of_trials() -> None:
    device = paleo.find_device("H100_SXM")
    trials = {
        "attention_share": np.array([[0.5], [1.0]]),
        "attention_fill": np.array([[1e-6], [2e-6]]),
    }
    lengths = np.array([64, 512, 4096])
    found = TILED.price(prefill(64, lengths), Target(device, "bf16", constants=trials)).total
    assert np.shape(found) == (2, 3)
    for row, (share, fill) in enumerate(((0.5, 1e-6), (1.0, 2e-6))):
        one = Target(device, "bf16", constants={"attention_share": share, "attention_fill": fill})
        for column, length in enumerate((64, 512, 4096)):
            assert np.asarray(found)[row, column] == TILED.price(prefill(64, length), one).total


def test_a_layer_passes_its_window_on() -> None:
    def flops(**keys: Any) -> Any:
        shapes = ([2, 8, 512, 64], [2, 2, 512, 64], [2, 2, 512, 64])
        return works(Example("Attention", keys, shapes))[0].flops

    # 2 x 8 heads, 512 queries, 64 instead of 512 keys, 64 + 64 features.
    assert flops(causal=True, window=64) == 2 * 16 * 512 * 64 * 128
    assert flops(causal=True) == 2 * 16 * 512 * 512 * 128
    with pytest.raises(paleo.NetSpecError, match="so causal must be true"):
        flops(window=64)


#: Where the package aiconfigurator-core (read: 0.12.0) has its tables.
def _tables() -> Path | None:
    spec = importlib.util.find_spec("aiconfigurator_core")
    places = spec.submodule_search_locations if spec else None
    return Path(next(iter(places))) / "systems" / "data" if places else None


@pytest.mark.skipif(_tables() is None, reason="the package aiconfigurator-core is not installed")
@pytest.mark.parametrize("device", ["H100_SXM", "H200_SXM"])
@pytest.mark.parametrize("phase", ["context", "generation"])
def test_measured_attention_of_a_server_is_near(device: str, phase: str) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="no pyarrow")
    folder = _tables()
    assert folder
    path = folder / device.lower() / f"attention/sglang/0.5.14/{phase}_attention_perf.parquet"
    table = parquet.read_table(path, filters=[("attn_dtype", "==", "bfloat16")])
    columns = {name: np.asarray(table[name].to_pylist()) for name in table.column_names}
    kept = (columns["kernel_source"] == "fa3") & (columns["kv_cache_dtype"] == "bfloat16")
    # Of the rows with 192 features values have fewer, and 8,192 is no window but chunks.
    kept &= (columns["head_dim"] != 192) & (columns["window_size"] != 8192)
    columns = {name: values[kept] for name, values in columns.items()}
    shared, features = columns["num_key_value_heads"], columns["head_dim"]
    batch, heads = columns["batch_size"], columns["num_heads"]
    queries = columns["isl"]
    keys = queries if phase == "context" else columns["step"] + 1
    window = columns["window_size"].astype(np.int64)
    # Before attention itself the new keys and values are written into the cache, and for
    # prompts a kernel plans the tiles.
    new = 2 * 2 * batch * shared * queries * features
    operations = [Stream(Kind.COPY, (new,), (new,)), Stream(Kind.COPY, (), ())]
    constants = {"attention_share": 1.12, "attention_fill": 2.4e-6}
    found = machine_for(Target(paleo.find_device(device), "bf16", constants=constants))
    fused = Attention(
        Pass.FORWARD, batch * heads, heads // shared, queries, keys, features, features, 2, True,
        window,
    )  # fmt: skip
    before = operations if phase == "context" else operations[:1]
    predicted = sum(stream.price(each, found).total for each in before)
    predicted = predicted + attention.price(fused, found).total
    error = np.abs(predicted / (columns["latency"] * 1e-3) - 1)
    assert error.size > 10_000
    # 8 to 10 % when the constants were fitted, to a tenth of the H100's rows.
    assert np.median(error) < 0.13


def test_what_is_added_to_scores_takes_a_kernel_of_less_speed() -> None:
    # One tile of 128 queries and one block of keys: products take 1 / 0.7 of the time, and
    # exponentials, 128 x 128 at 16 a ns, as long as without.
    plain = Attention(Pass.FORWARD, 100, 1, 128, 128, 128, 128, 2)
    masked = Attention(Pass.FORWARD, 100, 1, 128, 128, 128, 128, 2, mask=2 * 128 * 128)
    assert compute(plain) == pytest.approx(BLOCK)
    assert compute(masked) == pytest.approx(8.388608e-6 / 0.7 + 1.024e-6)
    memory = attention.price(masked, machine()).memory - attention.price(plain, machine()).memory
    assert memory == pytest.approx(2 * 128 * 128 / 1e12)
