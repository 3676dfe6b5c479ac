"""Kernels that quantize, and products of libraries with one tile by shape: derived by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import paleo
from paleo.core.operations import MatMul
from paleo.core.quantization import Quantize
from paleo.costs import COST_MODELS, Target
from paleo.costs.tiled import gemm, quantize
from paleo.costs.tiled.backends import BACKENDS
from paleo.costs.tiled.constants import CONSTANTS
from paleo.costs.tiled.gemm import choose
from paleo.costs.tiled.machine import Machine
from paleo.costs.tiled.product_kernels import PRODUCT_KERNELS
from paleo.costs.tiled.quantize import QUANTIZERS

TILED = COST_MODELS["tiled"]
#: 100 multiprocessors of 2,048 threads, memory of 1 TB/s, nothing in the cache, 1 us to start.
ROUND: dict[str, Any] = {
    "multiprocessors": 100,
    "matrix_peak": 100e12,
    "vector_peak": 10e12,
    "bandwidth": 1e12,
    "cache": 1.0,
    "clock": 1e12,
    "power": math.inf,
    "element_size": 1,
    **{name: 1.0 if each.unit == "1" else 0.0 for name, each in CONSTANTS.items()},
    "launch": 1e-6,
    "threads": 2048,
    "dtype": "fp8",
    "architecture": "Hopper",
}


def machine(**changes: Any) -> Machine:
    return Machine(**{**ROUND, **changes})


def seconds(method: str, rows: int, columns: int, **changes: Any) -> float:
    operation = Quantize(rows, columns, 1, method)
    return float(quantize.price(operation, machine(**changes)).total)


def test_long_rows_take_what_their_bytes_take() -> None:
    # 100,000 rows of 8,192 numbers: 3 bytes each at 1 TB/s are 2.4576 ms, and 0.7 us to start.
    num_bytes = 3 * 100_000 * 8192
    assert seconds("static", 100_000, 8192) == pytest.approx(num_bytes / 1e12 + 0.7e-6)
    # Those of 2,048 numbers and more are read twice by SGLang's warps: 5 bytes each.
    found = seconds("token_sglang", 100_000, 8192)
    assert found == pytest.approx(num_bytes / 3 * 5 / 1e12 + 0.7e-6)
    # One scale for all: 2 bytes to find it, 3 to write.
    for method in ("tensor_vllm", "tensor_trtllm"):
        assert seconds(method, 100_000, 8192) == pytest.approx(
            num_bytes / 3 * 5 / 1e12 + 0.7e-6 + 2 * 0.2e-6, abs=1e-6
        )


def test_blocks_of_short_rows_wait_in_turns() -> None:
    # 2,048 threads are 8 blocks of 256: 100 multiprocessors have 800 rows under way. 4,000 rows
    # are five turns, four of which wait for 0.65 us; of 1,536 threads, 600 rows: seven turns.
    free = {"bandwidth": 1e30}
    assert seconds("static", 800, 128, **free) == pytest.approx(0.7e-6)
    assert seconds("static", 4000, 128, **free) == pytest.approx(0.7e-6 + 4 * 0.65e-6)
    fewer = seconds("static", 4000, 128, threads=1536, **free)
    assert fewer == pytest.approx(0.7e-6 + 6 * 0.65e-6)


def test_atomic_operations_on_one_number_wait_for_one_another() -> None:
    free = {"bandwidth": 1e30, "atomic": 1e-8}
    # vLLM has one for each row: 10 ns each; then 10,000 static rows in 13 turns.
    expected = 0.7e-6 + 0.4e-6 + 10_000 * 1e-8 + 12 * 0.65e-6
    assert seconds("tensor_vllm", 10_000, 128, **free) == pytest.approx(expected)
    # TensorRT-LLM has one for each of 1,024 blocks, however few the rows.
    expected = 0.7e-6 + 0.4e-6 + 0.9e-6 + 1024 * 1e-8
    for rows in (1, 1000):
        assert seconds("tensor_trtllm", rows, 128, **free) == pytest.approx(expected)


def alone(method: str, rows: int, columns: int, **changes: Any) -> float:
    """100 multiprocessors at 1 GHz: 3,900 clocks are 3.9 us."""
    operation = Quantize(rows, columns, 1, method, alone=True)
    return float(quantize.price(operation, machine(**{"clock": 1e9, **changes})).total)


def test_what_the_cache_holds_comes_at_its_own_rate() -> None:
    # 8,000 rows of 1,024 numbers, 24.6 MB: at 22 bytes a clock, 2.2 TB/s, though memory gives 1.
    num_bytes = 3 * 8000 * 1024
    wide = {"threads": 10**9}
    held = alone("static", 8000, 1024, cache=1e9, **wide)
    assert held == pytest.approx(3.9e-6 + num_bytes / 2.2e12)
    # From memory it comes at 1 TB/s, or at what the cache passes on.
    assert alone("static", 8000, 1024, **wide) == pytest.approx(3.9e-6 + num_bytes / 1e12)
    fast = alone("static", 8000, 1024, bandwidth=1e13, **wide)
    assert fast == pytest.approx(held)


def test_blocks_of_eight_numbers_a_lane_follow_one_another() -> None:
    # 2,048 numbers a block, 800 blocks at a time: 16.4 million numbers are ten turns of 2,670
    # clocks. Beyond 65,536 blocks, 81.92 turns, each does more.
    free = {"cache": 1e12, "clock": 1e9, "architecture": "Ada"}
    numbers = 8000 * 2048
    turns = alone("static_trtllm", 8000, 2048, **free)
    assert turns == pytest.approx(3.9e-6 + 10 * 2.67e-6)
    assert turns > 3.9e-6 + 3 * numbers / 2.2e12
    many = alone("static_trtllm", 8 * 65_536, 2048, **free)
    assert many == pytest.approx(3.9e-6 + 3 * 8 * 65_536 * 2048 / 2.2e12)


def test_a_product_behind_the_only_other_kernels_starts_late() -> None:
    # SGLang's two kernels have a block of 128 lanes a row, 1,600 at a time: 16,000 rows are nine
    # turns of 3,050 clocks beyond the first, in each.
    free = {"bandwidth": 1e30, "cache": 1e30, "prologue": 1e-6}
    found = alone("tensor_sglang", 16_000, 128, **free)
    assert found == pytest.approx(2 * 3.9e-6 + 2 * 9 * 3.05e-6)
    leads = Quantize(16_000, 128, 1, "tensor_sglang", alone=True, leads=True)
    later = quantize.price(leads, machine(clock=1e9, **free)).total
    assert later == pytest.approx(found + 1e-6)


def test_operations_of_pytorch_pass_one_after_another_and_casts_compute() -> None:
    # 100,000 x 10,000 numbers: 6, 8 and 2 bytes at 1 TB/s; the cast, one number a clock on each of
    # 100 multiprocessors, takes 10 ms where its 5 bytes take 5. Four kernels start.
    numbers = 100_000 * 10_000
    expected = 4 * 3.9e-6 + 16 * numbers / 1e12 + numbers / 1e11
    assert alone("static_eager", 100_000, 10_000) == pytest.approx(expected)


def test_a_scale_is_found_by_blocks_that_read_numbers_one_at_a_time() -> None:
    # Few numbers: 1,800 and 4,700 clocks, and two kernels more than with a known scale.
    few = {"cache": 1e12, "architecture": "Blackwell"}
    more = alone("tensor_trtllm", 1, 128, **few) - alone("static_trtllm", 1, 128, **few)
    assert more == pytest.approx(2 * 3.9e-6 + 6.5e-6, rel=1e-3)
    # 58 million: 100,000 clocks of 5.8 numbers on each of 100 multiprocessors.
    more = alone("tensor_trtllm", 5800, 10_000, **few) - alone("static_trtllm", 5800, 10_000, **few)
    assert more == pytest.approx(2 * 3.9e-6 + 1.8e-6 + 100e-6, rel=1e-3)


def test_a_product_behind_starts_late() -> None:
    assert seconds("group", 1, 128, prologue=1e-6) - seconds("group", 1, 128) == pytest.approx(1e-6)


def test_a_library_with_a_table_takes_its_tile_and_does_not_split() -> None:
    h100 = machine(launch=0.0)
    few = gemm._chosen(MatMul(65, 128, 65536, 1, 2, kernel="cutlass_vllm"), h100)
    # 65 rows on Hopper: 64 x 128, so two tiles, each of 2 x 64 x 128 x 65,536 FLOP at 1 TFLOP/s
    # in steps of 64 and one more.
    assert (few.rows, few.columns, few.split, few.tiles) == (64, 128, 1, 2)
    assert few.time.total == pytest.approx(2 * 64 * 128 * (65536 + 64) / 1e12, rel=0.01)
    free = gemm._chosen(MatMul(65, 128, 65536, 1, 2), h100)
    assert free.split > 1
    assert free.time.total < few.time.total / 4
    # sgl-kernel's table: m <= 64 and m <= 128, and all else.
    tiles = [PRODUCT_KERNELS["cutlass_sglang"].tile(m, 4096, h100) for m in (64, 65, 129)]
    assert tiles == [(64, 64), (64, 128), (128, 128)]


def test_elements_of_a_kernel_may_wait_less_and_its_result_be_written_by_all_at_once() -> None:
    # vLLM's on Ada: a tile of 16 x 64 for 16 x 64, whose 65,536 elements of K wait for 128 us / 128
    # = 1 us each, times 0.69; and 1.5 passes over C of 2 bytes at 1 GB/s, 1.5 x 2,048 ns.
    ada = machine(architecture="Ada", launch=0.0, latency=128e-6, bandwidth=1e9)
    found = gemm._chosen(MatMul(16, 64, 65536, 1, 2, kernel="cutlass_vllm"), ada)
    less = replace(ada, latency=0.69 * 128e-6)
    plain = choose(16, 64, 65536, less, sizes=(1, 1, 2), tile=(16, 64))
    assert found.time.total == pytest.approx(plain.time.total + 1.5 * 2.048e-6)
    assert plain.time.compute == pytest.approx((65536 + 64) * 0.69e-6, rel=1e-3)


def test_an_operand_that_the_cache_does_not_keep_is_read_again_by_columns_of_tiles() -> None:
    kernel = PRODUCT_KERNELS["cutlass_sglang"]
    # 51,200 x 12,800: 400 tiles down and 100 across, 100 at a time. The shorter side is taken
    # first: B is read for each of 400 rows of tiles, A once.
    a, b = 51_200 * 1000, 12_800 * 1000
    found = kernel.stored((128, 128), 1, (51_200, 12_800, 1000), machine())
    assert found == pytest.approx((a, 400 * b))
    # Ten of those rows run at a time with 1,000 multiprocessors.
    more = kernel.stored((128, 128), 1, (51_200, 12_800, 1000), machine(multiprocessors=1000))
    assert more == pytest.approx((a, 40 * b))
    # A cache of 1 GB keeps it. On Ada tiles go down the rows, whatever is shorter.
    kept = kernel.stored((128, 128), 1, (51_200, 12_800, 1000), machine(cache=1e9))
    assert kept == pytest.approx((a, b))
    ada = kernel.stored((128, 128), 1, (51_200, 12_800, 1000), machine(architecture="Ada"))
    assert ada == pytest.approx((100 * a, b))


def test_a_kernel_of_another_architecture_is_refused() -> None:
    product = MatMul(64, 64, 64, 2, kernel="cutlass_vllm")
    with pytest.raises(paleo.PaleoError) as caught:
        TILED.price(product, Target(paleo.find_device("A100_SXM_80GB"), "bf16"))
    assert str(caught.value) == (
        "the product kernel cutlass_vllm does not run on Ampere; it is for Ada, Blackwell, "
        "Blackwell RTX, Hopper"
    )
    with pytest.raises(paleo.PaleoError, match="unknown product kernel 'cutlas_vllm'"):
        TILED.price(
            MatMul(64, 64, 64, 2, kernel="cutlas_vllm"),
            Target(paleo.find_device("H100_SXM"), "fp8"),
        )


def test_a_backend_quantizes_what_it_multiplies_in_fp8_and_nothing_else() -> None:
    for backend in BACKENDS.values():
        assert backend.product(2, 3, 4, "bf16", 2, 0) == (MatMul(2, 3, 4, 2),)
        quantized, product = backend.product(2, 3, 4, "fp8", 1, 2)
        assert isinstance(quantized, Quantize)
        assert quantized.method in QUANTIZERS
        assert isinstance(product, MatMul)
        assert product.kernel in ("", *PRODUCT_KERNELS)
        # 2 x 4 numbers of 2 bytes in, of 1 byte out.
        assert (quantized.reads, quantized.writes) == ((16,), (8,))


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(sorted(BACKENDS)),
    st.sampled_from(["H100_SXM", "B200_SXM", "L40S", "RTX_PRO_6000"]),
    st.lists(
        st.tuples(*[st.sampled_from([1, 2, 16, 33, 100, 256, 1000, 4096, 20000])] * 3),
        min_size=1, max_size=5,
    ),
)  # fmt: skip
def test_arrays_have_the_numbers_of_one_by_one(
    backend: str, device: str, shapes: list[tuple[int, int, int]]
) -> None:
    target = Target(paleo.find_device(device), "fp8")
    m, n, k = (np.array(column) for column in zip(*shapes, strict=True))
    for place in range(2):
        together = BACKENDS[backend].product(m, n, k, "fp8", 1, 2)[place]
        found = np.broadcast_to(TILED.price(together, target).total, len(shapes))
        for shape, time in zip(shapes, found, strict=True):
            alone = BACKENDS[backend].product(*shape, "fp8", 1, 2)[place]
            assert TILED.price(alone, target).total == time
            assert TILED.explain(alone, target).time.total == time


def test_a_library_without_rules_takes_any_tile_and_splits_nothing() -> None:
    # DeepGEMM adds up each 128 numbers on the lanes of Hopper: 0.85 of the speed; on Blackwell the
    # matrix units do.
    product = MatMul(128, 128, 65536, 1, 2, kernel="deepgemm")
    hopper = gemm._chosen(product, machine(launch=0.0, matrix_clock=0.0))
    assert hopper.split == 1
    blackwell = gemm._chosen(
        product, machine(launch=0.0, matrix_clock=0.0, architecture="Blackwell")
    )
    assert blackwell.time.total == pytest.approx(0.85 * hopper.time.total, rel=0.01)
    quantized, product = BACKENDS["sglang"].product(128, 128, 256, "fp8_block", 1, 2)  # type: ignore[assignment]
    assert (getattr(quantized, "method", ""), product.kernel) == ("group", "deepgemm")
