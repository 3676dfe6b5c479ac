"""Products in the cost model `tiled`: tiles, waves, splits, cache, power; derived by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import paleo
from paleo.core.operations import BatchMatMul, MatMul
from paleo.costs import COST_MODELS, Target
from paleo.costs.tiled import gemm, recurrent, tiles
from paleo.costs.tiled.constants import CONSTANTS
from paleo.costs.tiled.gemm import choose
from paleo.costs.tiled.machine import Machine, machine_for

TILED = COST_MODELS["tiled"]
#: Whole numbers that make the arithmetic short: 100 multiprocessors of 1 TFLOP/s each, which
#: load 100 GB/s each; 1 TB/s of memory; no launch, no latency, no limit of power.
ROUND: dict[str, Any] = {
    "multiprocessors": 100,
    "matrix_peak": 100e12,
    "vector_peak": 10e12,
    "bandwidth": 1e12,
    "cache": 1.0,
    "clock": 100e9 / 64,
    "power": math.inf,
    "element_size": 2,
    **{name: 1.0 if each.unit == "1" else 0.0 for name, each in CONSTANTS.items()},
    "partial": 1.0,
}
HALVES = (2, 2, 2)


def machine(**changes: Any) -> Machine:
    return Machine(**{**ROUND, **changes})


def test_a_product_of_many_tiles_runs_at_the_peak() -> None:
    # 25,600 x 25,600: 100 x 100 tiles of 256 x 256 on 100 multiprocessors are 100 waves.
    # A step of 64 along K multiplies 2 x 256 x 256 x 64 = 8.389 MFLOP at 1 TFLOP/s: 8.389 us,
    # and loads 2 x 512 x 64 = 65.5 kB at 100 GB/s: 0.655 us; (8.389^4 + 0.655^4)^(1/4) is
    # 8.389 within 1e-5. K = 6,400 is 100 steps and one more to fill the pipeline. The tile is
    # written in 2 x 2 x 256 x 256 / 100 GB/s = 2.621 us.
    chosen = choose(25600, 25600, 6400, machine(), sizes=HALVES)
    assert (chosen.rows, chosen.columns, chosen.split) == (256, 256, 1)
    assert (chosen.tiles, chosen.waves) == (10_000, 100)
    by_hand = 100 * (101 * 8.388608e-6 + 2.62144e-6)
    assert chosen.time.compute == pytest.approx(by_hand, rel=2e-5)
    # 2 (25,600 x 6,400 x 2 + 25,600^2) bytes at 1 TB/s, none of it in so small a cache.
    assert chosen.time.memory == pytest.approx(1.96608e-3)
    together = (by_hand**4 + 1.96608e-3**4) ** 0.25
    assert chosen.time.total == pytest.approx(together, rel=2e-5)
    # The unhindered peak would take 2 x 25,600^2 x 6,400 / 100e12 s: no more than 2 % is lost.
    assert chosen.time.total == pytest.approx(2 * 25600**2 * 6400 / 100e12, rel=0.02)


def test_one_row_more_than_fills_a_wave_takes_two(monkeypatch: pytest.MonkeyPatch) -> None:
    only = tiles.MATRIX._replace(tiles=((256, 256),), splits=(1,))
    monkeypatch.setattr(gemm, "MATRIX", only)
    full = choose(2560, 2560, 6400, machine(), sizes=HALVES)
    more = choose(2561, 2560, 6400, machine(), sizes=HALVES)
    # 10 x 10 tiles are a whole wave; 11 x 10 are two.
    assert (full.waves, more.waves) == (1, 2)
    assert more.time.compute == 2 * full.time.compute


def test_a_long_k_over_few_tiles_is_split() -> None:
    # One tile of 64 x 64 on one multiprocessor of 100; split, more of them work.
    one = choose(64, 64, 64_000, machine(), sizes=HALVES)
    assert one.split == 32
    assert one.tiles >= 32
    # Without a split, 1,000 steps load 2 x 128 x 64 bytes each at 100 GB/s, which takes longer
    # than the multiplications: at least 163.84 us.
    assert one.time.total < 163.84e-6 / 4
    # A split costs another kernel, so that it does not pay where a kernel takes long to start.
    slow = choose(64, 64, 64_000, machine(launch=1.0, reduction=1.0), sizes=HALVES)
    assert slow.split == 1
    # (But for what the first bytes take of it, within a microsecond.)
    assert slow.time.overhead == pytest.approx(1.0, rel=1e-6)


def test_a_thin_product_takes_what_its_operands_take_from_memory() -> None:
    # One row: 2 (16,384 + 16,384^2 + 16,384) bytes at 1 TB/s and share 0.8.
    thin = choose(1, 16384, 16384, machine(memory_share=0.8, multiprocessors=1000), sizes=HALVES)
    num_bytes = 2 * (16384 + 16384**2 + 16384)
    assert thin.num_bytes == num_bytes
    assert thin.time.memory == pytest.approx(num_bytes / 0.8e12)
    assert thin.time.memory <= thin.time.total < 1.5 * thin.time.memory


def test_operands_are_found_in_the_cache_if_six_sets_of_them_fit() -> None:
    # 2 (100 x 1,000 + 1,000 x 500) = 1.2 MB read, 0.1 MB written. Six sets and what is written
    # are 7.3 MB: within 0.9 of a cache of 10 MB, and more than 1.25 of one of 5 MB.
    assert choose(100, 500, 1000, machine(cache=10e6), sizes=HALVES).num_bytes == 0
    cold = choose(100, 500, 1000, machine(cache=5e6), sizes=HALVES)
    assert cold.num_bytes == 1.2e6
    warm = choose(100, 500, 1000, machine(cache=10e6, cache_ratio=4.0), sizes=HALVES)
    assert warm.time.memory == pytest.approx(1.3e6 / 4e12)
    # In between, a part of them: (7.3 / 7 - 0.9) / 0.35 of what is read.
    part = choose(100, 500, 1000, machine(cache=7e6), sizes=HALVES)
    assert part.num_bytes == pytest.approx((7.3 / 7 - 0.9) / 0.35 * 1.2e6)


def test_power_limits_long_products_wholly_and_short_ones_less() -> None:
    # 50 W at 1 pJ are 50 TFLOP/s of the 100; bursts may take 1.2 times that, 60.
    limited = machine(power=50.0, energy=1e-12)
    assert limited.powered_rate == pytest.approx(50e12)
    long = choose(25600, 25600, 6400, limited, sizes=HALVES).time.total
    assert long == pytest.approx(2 * 25600**2 * 6400 / 50e12, rel=1e-3)
    # One wave of 256 x 256 x 25,600: 2.2 GFLOP... 56 us each at 0.6 TFLOP/s.
    short = choose(2560, 2560, 2560, limited, sizes=HALVES).time
    free = choose(2560, 2560, 2560, machine(), sizes=HALVES).time
    assert short.total < 0.7e-3
    assert short.compute / free.compute == pytest.approx(1 / 0.6, rel=0.02)
    # Elements of one byte take half the energy.
    assert machine(power=50.0, energy=1e-12, element_size=1).powered_rate == pytest.approx(100e12)


def test_bytes_take_their_part_of_the_power() -> None:
    # 2 x 25,600^2 x 6,400 operations at 1 pJ are 8.39 J; 1.966 GB (above) at 1 nJ are 1.97 J more.
    flops, num_bytes = 2 * 25600**2 * 6400, 2 * (2 * 25600 * 6400 + 25600**2)
    limited = machine(power=50.0, energy=1e-12, byte_energy=1e-9)
    long = choose(25600, 25600, 6400, limited, sizes=HALVES).time.total
    assert long == pytest.approx((flops * 1e-12 + num_bytes * 1e-9) / 50, rel=1e-3)
    # On the lanes at any length: 2 x 1,280^2 x 800 at 10 pJ, and 4 (2 x 1,280 x 800 + 1,280^2)
    # bytes at 10 nJ: 26.2 and 147 mJ.
    lanes = machine(**LANES, power=40.0, lane_energy=10e-12, byte_energy=10e-9, element_size=4)
    short = choose(1280, 1280, 800, lanes, sizes=(4, 4, 4), tile=(128, 128)).time.total
    joules = 2 * 1280**2 * 800 * 10e-12 + 4 * (2 * 1280 * 800 + 1280**2) * 10e-9
    assert short == pytest.approx(joules / 40, rel=1e-6)
    # A stream that no operation goes with is limited by its bandwidth alone, 50 GB/s here.
    assert limited.powered_bandwidth == pytest.approx(50e9)


def test_the_first_bytes_come_after_half_a_microsecond() -> None:
    # Of a launch of 2 us, 0.35 us are the wait for the first bytes, beside the tile's own steps;
    # what is loaded, 2 (2 x 64 x 64 + 64^2) bytes at 1 TB/s, comes after the half microsecond.
    time = choose(64, 64, 64, machine(launch=2e-6), sizes=HALVES, tile=(64, 64)).time
    bare = choose(64, 64, 64, machine(), sizes=HALVES, tile=(64, 64)).time
    assert time.overhead == pytest.approx(2e-6 - 0.35e-6)
    assert time.memory == pytest.approx(0.5e-6 + 24576e-12)
    assert time.compute == bare.compute
    assert time.total == pytest.approx(1.65e-6 + (bare.compute**4 + 0.524576e-6**4) ** 0.25)


def test_a_library_that_splits_long_sums_only_leaves_shorter_ones_whole() -> None:
    # 64 x 64 x 512 is 2^21. Of 2 x 32, sums of more than 8,192 elements are split all the same.
    split_from = {"Ampere": (0, 0), "Ada": (512, 8193), "Blackwell RTX": (2048, 8193)}
    for architecture, (square, narrow) in split_from.items():
        own = machine(architecture=architecture)
        for m, n, least in ((64, 64, square), (2, 32, narrow)):
            k = np.array([511, 512, 2047, 2048, 8192, 8193])
            together = choose(m, n, k, own, sizes=HALVES)
            for i, each in enumerate(k.tolist()):
                alone = choose(m, n, each, own, sizes=HALVES)
                assert (alone.split > 1) == (each >= least)
                assert together.split[i] == alone.split  # type: ignore[index]
                assert together.time.total[i] == alone.time.total  # type: ignore[index]


def test_a_product_with_a_vector_adds_up_its_parts_by_itself_on_the_graphics_line() -> None:
    # Of any length; no kernel of 3 us comes behind it, as one does for two rows.
    for rows, again in ((1, 0.0), (2, 3e-6)):
        own = machine(architecture="Ada", reduction=3e-6, latency=1e-6)
        chosen = choose(rows, 32, 8200, own, sizes=HALVES, splits=(16,))
        assert chosen.split == 16
        assert chosen.time.overhead == pytest.approx(again + again / 3e-6 * 16 * 64 / 1e12)
    assert choose(1, 32, 512, machine(architecture="Ada"), sizes=HALVES).split > 1


def test_the_graphics_line_has_one_cache_with_a_rate_of_its_own() -> None:
    # 500 x 1000, 1000 x 100 and 500 x 100 halves are 1, 0.2 and 0.1 MB: six sets of 1.2 MB and the
    # result are 7.3 MB, which all stay in 7.3 MB of cache, and come at 7.5 bytes a clock of each of
    # 100 multiprocessors, of 1.5625 GHz here.
    fits = choose(500, 100, 1000, machine(cache=7.3e6, architecture="Ada"), sizes=HALVES)
    assert fits.num_bytes == 0
    assert fits.time.memory == pytest.approx(1.3e6 / (7.5 * 100 * 100e9 / 64))
    # Of a tenth less than the cache all operands are gone: 1.2 MB come from memory at 1 TB/s.
    gone = choose(500, 100, 1000, machine(cache=7.3e6 / 1.1, architecture="Ada"), sizes=HALVES)
    assert gone.num_bytes == pytest.approx(1.2e6)
    assert gone.time.memory == pytest.approx(1.2e-6 + 0.1e6 / (7.5 * 100 * 100e9 / 64))


def test_a_tile_is_written_and_started_in_its_own_time_on_the_graphics_line() -> None:
    # 2 x 64 x 64 bytes at 100 GB/s, once, not twice; 0.2 of a launch of 2 us are the first bytes'.
    own, other = (machine(launch=2e-6, architecture=each) for each in ("Ada", "Ampere"))
    quick, slow = (
        choose(64, 64, 64, each, sizes=HALVES, tile=(64, 64)).time for each in (own, other)
    )
    assert slow.compute - quick.compute == pytest.approx(2 * 64 * 64 / 100e9)
    assert quick.overhead == pytest.approx(2e-6 - 0.2e-6)
    assert slow.overhead == pytest.approx(2e-6 - 0.35e-6)


def test_large_tiles_of_cutlass_are_written_one_at_a_time() -> None:
    # vLLM's kernels on Ada pass 1.5 times over C beside all else, with tiles of 128 x 128, and
    # twice as often with those of 256 x 128 that they have for 4,096 to 8,192 columns.
    own = machine(architecture="Ada", dtype="fp8", element_size=1)
    for n, tile, passes in ((4096, (128, 128), 1.5), (8192, (256, 128), 3.0)):
        operation = MatMul(512, n, 64, 1, 2, kernel="cutlass_vllm")
        bare = choose(512, n, 64, own, sizes=(1, 1, 2), tile=tile).time
        assert gemm.price(operation, own).memory - bare.memory == pytest.approx(
            passes * 2 * 512 * n / 1e12
        )


def test_halves_have_tiles_of_160_rows_where_sums_are_outside_registers() -> None:
    # 100 products of 160 x 128 are a tile each on 100 multiprocessors; others cut them in two.
    def tile(architecture: str, size: int) -> tuple[float, float]:
        own = machine(architecture=architecture, element_size=size)
        chosen = choose(160, 128, 6400, own, sizes=(size, size, 2), count=100)
        return chosen.rows, chosen.columns  # type: ignore[return-value]

    assert tile("Hopper", 2) == tile("Blackwell", 2) == (160, 128)
    assert 160 not in (*tile("Hopper", 1), *tile("Ampere", 2))


def test_two_partitions_of_a_cache_keep_half_as_many_operands() -> None:
    # 7.3 MB (as below) within 0.9 of 10 MB, but not within 0.45: (0.73 - 0.45) / 0.35 go out.
    parted = choose(100, 500, 1000, machine(cache=10e6, architecture="Hopper"), sizes=HALVES)
    assert parted.num_bytes == pytest.approx((0.73 - 0.45) / 0.35 * 1.2e6)


def test_rows_of_odd_length_are_slow_to_load_for_matrix_units_alone() -> None:
    # Tiles of 256 x 256 are fed as quickly as they multiply, at least: with loads that take twice
    # as long, in pieces of less than 16 bytes, a step takes ((1 + 16) / (1 + 1))^(1/4) times.
    loading = machine(load_share=0.01, multiprocessors=100, matrix_peak=1e15)
    even = choose(4096, 4096, 4096, loading, sizes=HALVES).time
    odd = choose(4096, 4096, 4095, loading, sizes=HALVES).time
    assert odd.compute == pytest.approx(8.5**0.25 * even.compute, rel=0.05)
    # Rows of A and C may be any number: those of B are N long.
    assert choose(4095, 4096, 4096, loading, sizes=HALVES).time.compute == even.compute
    lanes = machine(matrix_peak=None, load_share=0.01)
    singles = (4, 4, 4)
    even = choose(4096, 4096, 4096, lanes, sizes=singles).time
    odd = choose(4096, 4096, 4095, lanes, sizes=singles).time
    assert odd.total == pytest.approx(even.total, rel=1e-3)


def test_operands_that_overlap_in_memory_are_counted_as_they_are_stored() -> None:
    # A 3x3 window makes A nine times as wide as the images are.
    apart = choose(10_000, 64, 576, machine(), sizes=HALVES)
    images = 2 * 10_000 * 64
    overlapping = choose(10_000, 64, 576, machine(), sizes=HALVES, stored=(images, 2 * 576 * 64))
    assert apart.num_bytes == 2 * (10_000 * 576 + 576 * 64 + 10_000 * 64)
    assert overlapping.num_bytes == images + 2 * (576 * 64 + 10_000 * 64)
    whole = choose(64, 64, 64_000, machine(), sizes=HALVES, splits=(1,))
    assert whole.split == 1


def test_products_of_one_kernel_share_its_waves() -> None:
    # 100 products of one tile of 64 x 64 each fill 100 multiprocessors; one leaves 99 idle.
    one = choose(64, 64, 64, machine(launch=1e-6), sizes=HALVES).time.total
    hundred = choose(64, 64, 64, machine(launch=1e-6), sizes=HALVES, count=100).time.total
    # The one is cut into smaller tiles, for more of the multiprocessors.
    assert one < hundred < 3 * one


def test_the_device_and_its_type_say_what_a_machine_is() -> None:
    h100 = machine_for(Target(paleo.find_device("H100_SXM"), "bf16"))
    assert (h100.multiprocessors, h100.matrix_peak) == (132, 989.4e12)
    assert h100.bandwidth == 3350e9
    assert h100.cache == 50 * 2**20
    # A share of 64 bytes a clock of 1980 MHz.
    assert h100.load_rate == pytest.approx(h100.load_share * 64 * 1980e6)
    half = machine_for(Target(paleo.find_device("H100_SXM"), "bf16", share=0.5))
    assert half.matrix_peak == 989.4e12 / 2
    # The lanes of a P100 have twice the rate in fp16, of which products have nothing.
    p100 = paleo.find_device("P100_PCIE")
    assert machine_for(Target(p100, "fp16")).vector_peak == p100.peaks["fp32"]["vector"].value
    trial = machine_for(Target(p100, constants={"launch": 1.0}))
    assert trial.launch == 1.0
    with pytest.raises(paleo.HardwareError, match="P100_PCIE has no peak for int8; it has: "):
        machine_for(Target(p100, "int8"))


@given(
    st.lists(st.tuples(*[st.integers(1, 20_000)] * 3, st.integers(1, 64)), min_size=1, max_size=20),
    st.sampled_from(["H100_SXM", "V100_SXM2_16GB", "TITAN_X", "APPLE_M1", "XEON_8280"]),
)
@settings(max_examples=40, deadline=None)
def test_arrays_give_what_numbers_give(shapes: list[tuple[int, int, int, int]], name: str) -> None:
    device = paleo.find_device(name)
    own = machine_for(Target(device, "fp16" if "fp16" in device.peaks else "fp32"))
    m, n, k, count = (np.array(column) for column in zip(*shapes, strict=True))
    together = choose(m, n, k, own, sizes=HALVES, count=count)
    for i, shape in enumerate(shapes):
        one = choose(*shape[:3], own, sizes=HALVES, count=shape[3])
        assert one.time.total == together.time.total[i]  # type: ignore[index]
        assert one.time.compute == together.time.compute[i]  # type: ignore[index]
        assert one.split == together.split[i]  # type: ignore[index]
        flops = 2 * math.prod(shape)
        peak = own.matrix_peak or own.vector_peak
        assert peak
        assert one.time.total >= flops / (1.2 * peak)


def test_many_products_are_priced_in_parts_that_make_no_difference() -> None:
    target = Target(paleo.find_device("A100_SXM_80GB"), "bf16")
    m = np.arange(1, 20_001)
    whole = TILED.price(MatMul(m, 512, 1024, 2), target)
    for i in (0, 8191, 8192, 19_999):
        alone = TILED.price(MatMul(i + 1, 512, 1024, 2), target)
        assert (alone.total, alone.memory) == (whole.total[i], whole.memory[i])  # type: ignore[index]
    assert whole.total.shape == whole.overhead.shape == m.shape  # type: ignore[union-attr]


def test_constants_may_be_arrays_of_trials() -> None:
    device = paleo.find_device("A100_SXM_80GB")
    launches = np.array([1e-6, 3e-6])[:, None]
    m = np.array([128, 256, 4096])
    both = TILED.price(
        MatMul(m, 512, 1024, 2), Target(device, "bf16", constants={"launch": launches})
    )
    assert both.total.shape == (2, 3)  # type: ignore[union-attr]
    for row, launch in enumerate((1e-6, 3e-6)):
        alone = TILED.price(
            MatMul(256, 512, 1024, 2), Target(device, "bf16", constants={"launch": launch})
        )
        assert alone.total == both.total[row, 1]  # type: ignore[index]


def test_an_explanation_names_tile_waves_and_bound() -> None:
    target = Target(paleo.find_device("H100_SXM"), "bf16")
    found = TILED.explain(MatMul(8192, 8192, 8192, 2), target)
    assert found.time == TILED.price(MatMul(8192, 8192, 8192, 2), target)
    assert found.bound == "compute"
    assert found.algorithm == "product on matrix units"
    details = {name: value for name, value, _ in found.details}
    rows, columns = map(int, str(details["tile"]).split("x"))
    tiles = math.ceil(8192 / rows) * math.ceil(8192 / columns)
    assert details["tiles"] == tiles
    assert details["waves"] == math.ceil(tiles / 132)
    assert f"{tiles} tiles of {rows}x{columns} on 132 multiprocessors" in found.why
    assert TILED.explain(MatMul(1, 8192, 8192, 2), target).bound == "memory"
    assert TILED.explain(MatMul(8, 8, 8, 2), target).bound == "overhead"


def test_trials_of_constants_over_many_products_are_rows() -> None:
    device = paleo.find_device("A100_SXM_80GB")
    shares = np.array([0.5, 0.8])[:, None]
    m = np.arange(1, 10_001)
    found = TILED.price(
        MatMul(m, 512, 1024, 2), Target(device, "bf16", constants={"memory_share": shares})
    )
    assert found.total.shape == (2, 10_000)  # type: ignore[union-attr]
    alone = TILED.price(
        MatMul(9_000, 512, 1024, 2), Target(device, "bf16", constants={"memory_share": 0.8})
    )
    assert found.total[1, 8_999] == alone.total  # type: ignore[index]


#: Lanes of 10 TFLOP/s on ten multiprocessors, 1 TFLOP/s each, which load 1 TB/s each.
LANES: dict[str, Any] = {"matrix_peak": None, "multiprocessors": 10, "clock": 1e12 / 64}


def test_lanes_are_full_with_as_many_warps_as_registers_hold() -> None:
    # A tile of 128 x 128 is 8 warps of 32 threads with 8 x 8 elements, registers hold 16. With a
    # `filling` of 4 warps, 8 reach 8 / (8 + 4) and 16 reach 16 / (16 + 4) of the lanes: a tile
    # alone takes (12 / 8) / (20 / 16) = 1.2 times as long as each of two.
    own = machine(**LANES, filling=4.0)
    (alone, two, four) = (
        choose(1280, n, 8000, own, sizes=(4, 4, 4), tile=(128, 128)).time.compute
        for n in (128, 256, 512)
    )
    # 2 x 128 x 128 FLOP for each of 8,000 + 8 elements of K at 1 TFLOP/s; loads take 1 / 32.
    assert two == pytest.approx(2 * 8008 * 2 * 128 * 128 / 1e12, rel=1e-5)
    assert alone == pytest.approx(1.2 * two / 2, rel=1e-5)
    assert four == pytest.approx(2 * two)
    # Tiles of 64 x 64 are 2 warps: alone (6 / 2) / (20 / 16) = 2.4 times as long, and they load
    # twice as much for each multiplication: 6 % of 64 lanes' time.
    small = choose(640, 64, 8000, own, sizes=(4, 4, 4), tile=(64, 64)).time.compute
    assert small == pytest.approx(2.4 * 1.06 * 8008 * 2 * 64 * 64 / 1e12, rel=1e-4)


def test_small_tiles_load_more_for_each_multiplication() -> None:
    # A tile of 128 x 64 loads 1 / 128 + 1 / 64 elements where 128 x 128 loads 2 / 128: half more,
    # 3 % of the time of 64 lanes and 6 % of 128, whose shared memory is no quicker. Where power is
    # the limit it is 3 % of that, too.
    for lanes, power, longer in ((64, math.inf, 1.03), (128, math.inf, 1.06), (128, 20.0, 1.03)):
        own = machine(**LANES, filling=0.0, lanes=lanes, power=power, lane_energy=10e-12)
        large, small = (
            choose(12800, 12800, 800, own, sizes=(4, 4, 4), tile=(128, columns)).time.compute
            for columns in (128, 64)
        )
        assert small == pytest.approx(longer * large, rel=1e-4)
    # A product with a vector has no tiles.
    vector = choose(12800, 1, 800, own, sizes=(4, 4, 4), tile=(128, 128)).time.compute
    other = choose(12800, 1, 800, own, sizes=(4, 4, 4), tile=(128, 64)).time.compute
    assert vector == other


def test_twice_the_lanes_take_twice_the_warps() -> None:
    # 16 warps reach 16 / (16 + 4) of 64 lanes and 16 / (16 + 8) of 128.
    few = machine(**LANES, filling=4.0)
    many = machine(**LANES, filling=4.0, lanes=128)
    assert few.filled_rate == 10e12
    assert many.filled_rate == pytest.approx(10e12 * 20 / 24)
    alone, two = (
        choose(1280, n, 8000, many, sizes=(4, 4, 4), tile=(128, 128)).time.compute
        for n in (128, 256)
    )
    # A tile alone: (8 + 8) / 8 of the time of endless warps, where two take (16 + 8) / 16.
    assert 2 * alone / two == pytest.approx(2 / 1.5, rel=1e-4)


def test_the_lanes_of_a_small_board_are_held_back_by_its_power() -> None:
    # 40 W at 10 pJ are 4 TFLOP/s of the 10, however short the product is: a loop of short ones
    # takes the same power as a long one.
    own = machine(**LANES, power=40.0, lane_energy=10e-12, element_size=4)
    assert own.vector_rate == pytest.approx(4e12)
    for k in (800, 80_000):
        chosen = choose(1280, 1280, k, own, sizes=(4, 4, 4), tile=(128, 128))
        by_hand = 2 * 1280 * 1280 * (k + 8) / 4e12
        assert chosen.time.compute == pytest.approx(by_hand, rel=1e-3)
    # Lanes that are not full take less power: 10 / 2.4 TFLOP/s are within 5.
    rich = machine(**LANES, power=50.0, lane_energy=10e-12, element_size=4, filling=4.0)
    free = machine(**LANES, filling=4.0)
    small = [
        choose(640, 64, 8000, each, sizes=(4, 4, 4), tile=(64, 64)).time.compute
        for each in (rich, free)
    ]
    assert small[0] == small[1]
    # What a loop does besides multiplying takes power as well: with 0.8 of the speed it does 3.2.
    slow = choose(1280, 1280, 8000, own, sizes=(4, 4, 4), tile=(128, 128), share=0.8).time.compute
    assert slow == pytest.approx(2 * 1280 * 1280 * 8008 / 3.2e12, rel=1e-3)
    # Elements of two bytes take half, integers of one 0.69 of an instruction for four of them.
    assert replace(own, element_size=2).powered_lanes == pytest.approx(8e12)
    bytes_ = replace(own, element_size=1, dtype="int8")
    assert bytes_.powered_lanes == pytest.approx(40 / (0.69 * 2.5e-12))


def test_multiprocessors_without_a_tile_leave_half_of_their_power_to_the_others() -> None:
    # 50 W at 10 pJ are 5 TFLOP/s of the 10. A tile of 128 x 128 on each of 10 multiprocessors
    # takes `alone` at 1 TFLOP/s and twice that within the power. Without a tile one takes half:
    # 5 tiles need 5 + 5 / 2 tenths of the power, 15 in two waves 15 + 5 / 2.
    own = machine(**LANES, power=50.0, lane_energy=10e-12, element_size=4, filling=0.0)
    alone = 2 * 128 * 128 * 8008 / 1e12
    for count, longer in ((5, 1.5), (10, 2), (15, 3.5)):
        chosen = choose(128 * count, 128, 8000, own, sizes=(4, 4, 4), tile=(128, 128))
        assert chosen.time.compute == pytest.approx(longer * alone, rel=1e-3)


def test_batched_products_fill_up_the_tiles_that_the_library_has() -> None:
    # 1,000 products of 64 x 128: a tile of 128 x 128 for each is 100 waves of ten. Tiles of
    # 64 x 128 would have half the work; with a `batched_tile` of 128 there are none.
    free = machine(**LANES, filling=0.0)
    only = replace(free, batched_tile=128)
    batch = BatchMatMul("matmul", 1000, 64, 128, 512, 4)
    half, whole = (recurrent.price(batch, each).compute for each in (free, only))
    assert whole == pytest.approx(100 * (512 + 8) * 2 * 128 * 128 / 1e12, rel=1e-4)
    assert 1.03 * whole == pytest.approx(2 * half, rel=1e-4)  # 64 x 128 load half more, of 6 %
    # A product alone is not batched.
    alone = MatMul(64, 128, 512, 4)
    assert gemm.price(alone, only) == gemm.price(alone, free)


def test_batched_products_do_not_split_their_sums() -> None:
    # Two products of at most four tiles each on ten multiprocessors walk along all of K; one alone
    # has it split.
    own = machine(**LANES, filling=0.0)
    for count, is_whole in ((2, True), (1, False)):
        chosen = recurrent._chosen(BatchMatMul("matmul", count, 128, 128, 8000, 4), own)
        assert (chosen.split == 1) == is_whole
    two = recurrent.price(BatchMatMul("matmul", 2, 128, 128, 8000, 4), own)
    together = recurrent.price(BatchMatMul("matmul", np.array([2, 1]), 128, 128, 8000, 4), own)
    assert np.asarray(together.total).tolist()[0] == two.total


def test_old_libraries_share_out_only_very_long_sums() -> None:
    # 16 x 1760 by 1760: with a library of the time of cuDNN 5 a tile has 64 rows at least and walks
    # along all of K; later ones share K out. Of 16
    # times as many elements as the longer side has, it always is.
    own = machine(**LANES)
    product = MatMul(16, 1760, 1760, 4)
    old, new = (gemm._chosen(product, replace(own, library=each)) for each in (5, 7))
    assert (old.split, min(old.rows, old.columns)) == (1, 64)
    assert new.split > 1
    long = MatMul(16, 1760, 16 * 1760, 4)
    assert gemm.price(long, replace(own, library=5)) == gemm.price(long, replace(own, library=7))
    rows = np.array([16, 16])
    together = gemm.price(
        MatMul(rows, 1760, np.array([1760, 16 * 1760]), 4), replace(own, library=5)
    )
    each = [gemm.price(one, replace(own, library=5)).total for one in (product, long)]
    assert np.asarray(together.total).tolist() == each


def test_old_libraries_have_no_small_tiles_for_few_rows() -> None:
    # 16 x 2560 by 2560 in tiles of 64 rows at least with a library of the time of cuDNN 6; for 17
    # rows, for a vector, and from 7 on in what is quickest.
    own = machine(**LANES)

    def rows(count: int, generation: float) -> Any:
        return gemm._chosen(MatMul(count, 2560, 2560, 4), replace(own, library=generation)).rows

    assert (rows(16, 6), rows(17, 6), rows(16, 7)) == (64, 32, 32)
    assert rows(1, 6) == rows(1, 7)
    counts = np.array([1, 16, 17])
    together = gemm._chosen(MatMul(counts, 2560, 2560, 4), replace(own, library=6)).rows
    assert np.asarray(together).tolist() == [rows(1, 7), 64, 32]


def test_bytes_are_multiplied_on_the_lanes_before_the_library_has_matrix_units_do_it() -> None:
    own = machine(dtype="int8", element_size=1, vector_peak=40e12, library=7, filling=0.0)
    old, new = (
        gemm.price(MatMul(25600, 25600, 6400, 1, 4), replace(own, library=generation)).compute
        for generation in (7, 8)
    )
    # 40 TOP/s of the lanes, 100 of the matrix units.
    assert old == pytest.approx(2 * 25600**2 * 6400 / 40e12, rel=0.03)
    assert new == pytest.approx(2 * 25600**2 * 6400 / 100e12, rel=0.06)
    # What has no lanes for bytes has matrix units for them.
    none = replace(own, vector_peak=None)
    assert gemm.price(MatMul(256, 256, 256, 1, 4), none).compute > 0


def test_the_power_of_a_t4_and_an_l4_follows_from_their_boards() -> None:
    # NeuSight's longest fp32 products: 3.7 to 4.1 TFLOP/s in 70 W of a peak of 8.1.
    for name, low, high in (("T4", 3.7e12, 4.2e12), ("L4", 9e12, 11e12)):
        target = Target(paleo.find_device(name))
        product = MatMul(16384, 8192, 8192, 4)
        assert low < product.flops / TILED.price(product, target).total < high


def test_warps_keep_no_tile_that_fills_their_registers() -> None:
    # 256 x 256 sums of 4 bytes are the 256 KiB of registers of a multiprocessor. Where tensor
    # cores read operands from shared memory (Hopper), two multiprocessors have such a tile.
    product = (25600, 25600, 6400)
    for architecture, tile in (
        ("Hopper", (256, 256)),
        ("Ampere", (256, 128)),
        ("Volta", (256, 128)),
    ):
        chosen = choose(*product, machine(architecture=architecture), sizes=HALVES)
        assert (chosen.rows, chosen.columns) == tile
    # 192 x 128 x 100 products of one tile each, a wave: no kernel of the older ones has 192 rows.
    odd = {
        architecture: choose(
            192, 128, 6400, machine(architecture=architecture), sizes=HALVES, count=100
        )
        for architecture in ("Hopper", "Ampere")
    }
    assert (odd["Hopper"].rows, odd["Hopper"].columns) == (192, 128)
    assert 192 not in (odd["Ampere"].rows, odd["Ampere"].columns)
    # A sum may be split in three there: 33 tiles on 100 multiprocessors.
    split = choose(33 * 128, 128, 64_000, machine(architecture="Ampere"), sizes=HALVES)
    assert split.split % 3 == 0


def test_arrays_choose_among_the_tiles_and_splits_of_warps_as_numbers_do() -> None:
    n = np.array([1, 31, 192, 700, 5000])
    own = machine(architecture="Ampere")
    together = choose(384, n, 9000, own, sizes=HALVES)
    for i, each in enumerate(n.tolist()):
        alone = choose(384, each, 9000, own, sizes=HALVES)
        assert together.time.total[i] == alone.time.total  # type: ignore[index]
        assert (together.rows[i], together.split[i]) == (alone.rows, alone.split)  # type: ignore[index]


def test_what_adds_up_the_parts_of_a_sum_takes_its_own_time() -> None:
    # The same split with a kernel of 3 us more behind it, though a product starts at once.
    tile, shape = (64, 64), (64, 64, 64_000)
    whole = choose(*shape, machine(), sizes=HALVES, tile=tile)
    quick = choose(*shape, machine(), sizes=HALVES, splits=(16,))
    slow = choose(*shape, machine(reduction=3e-6), sizes=HALVES, splits=(16,))
    assert slow.time.overhead == pytest.approx(quick.time.overhead + 3e-6)
    assert slow.time.total == pytest.approx(quick.time.total + 3e-6)
    # 16 parts of 64 x 64 sums, a byte of each in the time that memory takes; or four bytes.
    assert quick.time.overhead == pytest.approx(16 * 64 * 64 / 1e12)
    more = choose(*shape, machine(partial=4.0), sizes=HALVES, splits=(16,)).time.overhead
    assert more == pytest.approx(4 * quick.time.overhead)
    assert whole.time.overhead == 0


@pytest.mark.parametrize("own", [machine(), machine(architecture="Ampere"), machine(**LANES)])
def test_many_products_at_once_are_those_of_few(own: Machine) -> None:
    """Of many the splits of K are left out that a bound says are no quicker."""
    m = np.arange(1, 3001)
    for n, k, splits in ((64, 9000, None), (512, 300, None), (192, 4096, (1, 2, 4, 8))):
        together = choose(m, n, k, own, sizes=HALVES, splits=splits).time
        for first in range(0, 3000, 500):
            few = choose(m[first : first + 500], n, k, own, sizes=HALVES, splits=splits).time
            for part, other in zip(together, few, strict=True):
                every = np.broadcast_to(part, m.shape)[first : first + 500]
                assert (every == other).all()
