"""Grouped products by load, and layers of experts: derived by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paleo
from paleo.core.loads import active, row_tiles
from paleo.core.operations import Attention, FusedExperts, GroupedMatMul, Pass
from paleo.core.quantization import Quantize
from paleo.costs import COST_MODELS, Target
from paleo.costs.tiled import experts, grouped, quantize
from paleo.costs.tiled.constants import CONSTANTS
from paleo.costs.tiled.expert_kernels import _FOLDER, EXPERT_KERNELS, FILES, GENERAL, is_tuned
from paleo.costs.tiled.expert_kernels import CONSTANTS as OF_EXPERTS
from paleo.costs.tiled.kernel_files import KernelFiles
from paleo.costs.tiled.machine import Machine

TILED = COST_MODELS["tiled"]
#: 100 multiprocessors of 1 TFLOP/s each, memory and cache that take no time, 1 us to start.
ROUND: dict[str, Any] = {
    "multiprocessors": 100,
    "matrix_peak": 100e12,
    "vector_peak": 10e12,
    "bandwidth": 1e18,
    "cache": 1.0,
    "clock": 1e12,
    "power": math.inf,
    "element_size": 2,
    **{name: 1.0 if each.unit == "1" else 0.0 for name, each in CONSTANTS.items()},
    "launch": 1e-6,
    "dtype": "bf16",
    "architecture": "Hopper",
}
#: One wave of tiles of 128 x 128 along 8,192 elements of K, and the step of 64 that fills them.
WAVE = (8192 + 64) * 2 * 128 * 128 / 1e12


def machine(**changes: Any) -> Machine:
    return Machine(**{**ROUND, **changes})


def test_tiles_have_rows_of_one_group() -> None:
    # 3 groups of 129 rows have two tiles of 128 each, 4 of 1 row one each.
    assert row_tiles(((3, 129), (4, 1)), 128) == 3 * 2 + 4
    # Of 10 groups with 0.2 rows on average two have one.
    assert active(((10, 0.2), (1, 7))) == pytest.approx(3)
    assert row_tiles(((10, 0.2), (1, 7)), 128) == pytest.approx(3)
    # Arrays are as numbers one by one.
    several = ((np.array([3, 10]), np.array([129, 0.2])), (np.array([4, 1]), np.array([1, 7])))
    assert np.asarray(row_tiles(several, 128)).tolist() == pytest.approx([10, 3])


def test_only_matrices_of_groups_with_rows_are_read() -> None:
    product = GroupedMatMul(
        "x", 8, 6, 32, 16, 2, loads=((2, 3), (6, 0)), weight_size=0.5, output_size=4
    )
    assert product.flops == 2 * 6 * 32 * 16
    assert product.reads == (2 * 6 * 16, 0.5 * 2 * 16 * 32)
    assert product.writes == (4 * 6 * 32,)
    even = GroupedMatMul("x", 8, 6, 32, 16, 2)
    assert even.reads == (2 * 6 * 16, 2 * 8 * 16 * 32)


@pytest.mark.parametrize(
    ("loads", "waves"),
    [
        (((100, 128),), 1),  # a tile each, on a multiprocessor each
        (((100, 129),), 2),  # a second tile each for one row
        (((50, 256), (50, 0)), 1),  # those without rows have none
        (((99, 1), (1, 12_800)), 2),  # 99 tiles and 100
    ],
)
def test_tiles_of_all_groups_run_in_the_same_waves(loads: Any, waves: int) -> None:
    rows = sum(groups * each for groups, each in loads)
    product = GroupedMatMul("x", 100, rows, 128, 8192, 2, loads=loads)
    found = grouped.choose(product, machine(), grouped.Library(tile=(128, 128)))
    # 1 us to start, 0.7 of half of which pass while the first bytes come.
    assert found.time.total == pytest.approx(waves * WAVE + 0.65e-6, rel=1e-4)
    assert found.waves == waves
    # A share of the speed, and the time in which a tile starts and ends.
    slower = grouped.Library(share=0.5, fill=1e-3, tile=(128, 128))
    total = grouped.choose(product, machine(), slower).time.total
    assert total == pytest.approx(waves * (2 * WAVE + 1e-3) + 0.65e-6, rel=1e-4)


def test_matrices_that_the_cache_keeps_come_at_its_own_rate() -> None:
    # 100 matrices of 1,024 x 1,024 halves, 210 MB, and few rows. The cache of 1 GB keeps them (0.45
    # of it: operands are in both of its halves), and gives 22 bytes a clock for each of 100
    # multiprocessors at 1 GHz, 2.2 TB/s; memory gives 1.
    product = GroupedMatMul("x", 100, 100, 1024, 1024, 2, loads=((100, 1),))
    sizes = {"bandwidth": 1e12, "clock": 1e9}
    kept = grouped.choose(product, machine(cache=1e9, **sizes), grouped.Library())
    gone = grouped.choose(product, machine(**sizes), grouped.Library())
    num_bytes = 100 * (2 * 1024 * 1024 + 2 * 2 * 1024)
    first = 0.5e-6  # until the first bytes come
    assert kept.time.memory == pytest.approx(num_bytes / 2.2e12 + first)
    assert gone.time.memory == pytest.approx(num_bytes / 1e12 + first)


def test_four_bits_are_multiplied_twice_as_fast_as_eight() -> None:
    library = grouped.Library(tile=(128, 128))
    times = [
        grouped.choose(
            GroupedMatMul("x", 100, 12_800, 128, 8192, size, loads=((100, 128),)),
            machine(element_size=1, dtype="fp8"), library,
        ).time.total
        for size in (1, 0.5)
    ]  # fmt: skip
    assert (times[0] - 0.65e-6) / (times[1] - 0.65e-6) == pytest.approx(2, rel=1e-4)


def layer(**changes: Any) -> FusedExperts:
    given = {
        "tokens": 1000, "chosen": 2, "hidden": 512, "inner": 256, "loads": ((4, 300), (4, 200)),
        "element_size": 2, "weight_size": 2, "dtype": "bf16",
    }  # fmt: skip
    return FusedExperts(**{**given, **changes})


def test_a_layer_of_experts_is_two_products_and_passes_over_rows() -> None:
    operation = layer()
    assert operation.rows == 2000
    assert operation.flops == 2 * 2000 * 512 * 256 * 3
    assert operation.reads == (2 * 1000 * 512, 2 * 8 * 3 * 512 * 256)
    assert operation.writes == (2 * 1000 * 512,)
    assert layer(gated=False).flops == 2 * 2000 * 512 * 256 * 2
    # Rows copied in (read and written), gate and up read and their function written, rows of the
    # second product read and tokens written.
    passes = 2000 * 512 * 4 + 2000 * (512 * 2 + 256 * 2) + (2000 + 1000) * 512 * 2
    found = experts.price(operation, machine(bandwidth=1e12))
    share, start = OF_EXPERTS["stream"].value, OF_EXPERTS["start"].value
    library = grouped.Library(OF_EXPERTS["share"].value, OF_EXPERTS["operands"].value)
    products = sum(
        grouped.choose(each, machine(bandwidth=1e12), library).time.total
        for each in operation.products
    )
    assert found.total == pytest.approx(products + passes / 1e12 / share + start)


def test_kernels_that_copy_nothing_have_a_place_for_choices_elsewhere() -> None:
    # Half of the choices are of experts of other devices: their rows are passed over, and written
    # as zeros.
    half = layer(loads=((4, 150), (4, 100)), kernel="vllm_triton")
    kernel = EXPERT_KERNELS["vllm_triton"]
    places, own = 2000, 1000
    assert experts._passes(half, kernel) == (
        places * (512 * 2 + 256 * 2),
        places * 512 * 2 + 1000 * 512 * 2,
        (places - own) * (512 + 512) * 2,
    )
    # Products that gather rows and apply the function leave the sum alone.
    gathering = layer(kernel="flashinfer_gen_bf16")
    assert experts._passes(gathering, EXPERT_KERNELS["flashinfer_gen_bf16"]) == (
        2000 * 512 * 2 + 1000 * 512 * 2,
    )


def test_a_kernel_with_one_tile_has_a_smaller_one_for_few_tokens() -> None:
    kernel = EXPERT_KERNELS["sglang_triton_bf16"]
    assert experts._tile(layer(tokens=8), kernel) == (16, 32)
    assert experts._tile(layer(tokens=9), kernel) == (64, 64)
    assert experts._tile(layer(), GENERAL) is None


def test_arrays_are_as_if_alone() -> None:
    tokens = np.array([10, 1000, 5000])
    loads = (
        (np.array([1, 4, 8]), np.array([8.0, 300.0, 1200.0])),
        (np.array([7, 4, 0]), np.full(3, 0.5)),
    )
    target = Target(paleo.find_device("H100_SXM"), "bf16")
    for kernel in ("", "trtllm_cutlass_bf16", "sglang_triton_bf16"):
        operation = layer(tokens=tokens, loads=loads, kernel=kernel)
        together = np.asarray(TILED.price(operation, target).total)
        for place, number in enumerate(tokens.tolist()):
            own = tuple((groups[place].item(), rows[place].item()) for groups, rows in loads)
            alone = TILED.price(layer(tokens=number, loads=own, kernel=kernel), target).total
            assert together[place] == pytest.approx(alone)


def test_every_kernel_has_its_file_and_constants_where_it_was_measured() -> None:
    files = {path.stem for path in _FOLDER.glob("*.toml")}
    # A tile that somebody tuned was measured on the H100 alone.
    assert files == set(EXPERT_KERNELS)
    for name, kernel in EXPERT_KERNELS.items():
        for architecture in ("Ampere", "Ada", "Hopper", "Blackwell", "Blackwell RTX"):
            constants = kernel.constants(architecture)
            assert set(constants) == set(OF_EXPERTS), name
        assert kernel.source
        assert kernel.summary


def test_shapes_are_tuned_by_device() -> None:
    assert is_tuned("H100_SXM", 8, 4096)
    assert not is_tuned("H100_SXM", 8, 4097)
    assert not is_tuned("GB300", 8, 4096)
    found = is_tuned("H100_SXM", np.array([8, 9]), np.array([4096, 4096]))
    assert found.tolist() == [True, False]


def test_rows_that_are_brought_in_order_pass_once_between_the_products() -> None:
    # 2,000 rows of gate and up, 2 x 256 columns, read in halves, and their function in bytes.
    operation = layer(kernel="deepgemm_fp8_block", element_size=1, weight_size=1, dtype="fp8")
    (passed,) = experts._passes(operation, EXPERT_KERNELS["deepgemm_fp8_block"])
    assert passed == 2000 * (2 * 512 + 256)


def test_a_group_of_warps_has_64_rows_whether_there_are_any() -> None:
    # 100 groups of 4 rows and 128 columns: 100 tiles of 32 x 128, or in as many waves of 64 x 128,
    # which take twice as long along 8,192 elements of K.
    operation = GroupedMatMul("ours", 100, 400, 128, 8192, 2, loads=((100, 4),))
    few = grouped.choose(operation, machine(launch=0.0), grouped.Library())
    many = grouped.choose(operation, machine(launch=0.0), grouped.Library(least_rows=64))
    assert few.time.total == pytest.approx(WAVE / 4, rel=1e-3)
    assert many.time.total == pytest.approx(WAVE / 2, rel=1e-3)


def test_explanations_say_how_rows_are_spread() -> None:
    target = Target(paleo.find_device("H100_SXM"), "bf16")
    operation = layer(kernel="trtllm_cutlass_bf16")
    found = TILED.explain(operation, target)
    assert found.time.total == TILED.price(operation, target).total
    assert ("groups", 8, "") in found.details
    assert ("rows of the largest", 300, "") in found.details
    assert "CUTLASS" in found.algorithm


def test_values_that_are_part_of_the_keys_are_not_read_besides() -> None:
    sizes = (Pass.FORWARD, 128, 128, 1, 4096, 576, 512, 2)
    apart, latent = Attention(*sizes), Attention(*sizes, values_in_keys=True)
    assert apart.reads == (2 * 128 * 576, 2 * 4096 * 576, 2 * 4096 * 512)
    assert latent.reads == (2 * 128 * 576, 2 * 4096 * 576, 0)
    assert latent.flops == apart.flops == 2 * 128 * 4096 * (576 + 512)


def test_nothing_waits_behind_numbers_that_are_quantized_alone() -> None:
    behind, alone = (
        quantize.price(Quantize(1, 32, 1, "static", alone=each), machine(prologue=1e-6)).total
        for each in (False, True)
    )
    assert behind == pytest.approx(0.7e-6 + 1e-6, rel=1e-3)  # of 1 us to start a product
    # 3,900 clocks at 1 THz; TensorRT-LLM's kernels overlap on Hopper alone: 0.69 of that.
    assert alone == pytest.approx(3.9e-9, rel=1e-3)
    few = Quantize(1, 32, 1, "static_trtllm", alone=True)
    for architecture, share in (("Hopper", 0.69), ("Ada", 1.0)):
        found = quantize.price(few, machine(architecture=architecture)).total
        assert found == pytest.approx(3.9e-9 * share, rel=1e-3)


def test_kernels_of_warps_do_as_much_in_a_clock_on_any_multiprocessor() -> None:
    kernel = EXPERT_KERNELS["marlin_int4"]
    share = kernel.constants("Hopper")["share"]
    # 2,048 FLOPs a clock on Ampere's, half of Hopper's: twice the share of a product's speed.
    ampere = machine(architecture="Ampere", matrix_peak=100 * 2048 * 1e9, clock=1e9)
    assert kernel.share(ampere) == pytest.approx(2 * share)
    # Never more than all of it, and on Hopper what was measured there.
    ada = machine(architecture="Ada", matrix_peak=100 * 512 * 1e9, clock=1e9)
    assert kernel.share(ada) == 1
    assert kernel.share(machine()) == share
    # A board of it whose units are at half the pace: twice the share of their speed there, at most
    # all of it.
    half = machine(matrix_peak=100 * 2048 * 1e9, clock=1e9, matrix_clock=4096.0)
    assert kernel.share(half) == pytest.approx(2 * share)
    eighth = machine(matrix_peak=100 * 512 * 1e9, clock=1e9, matrix_clock=4096.0)
    assert kernel.share(eighth) == 1
    # Others have Hopper's share as it is.
    assert EXPERT_KERNELS["vllm_triton_fp8_block"].share(ada) == pytest.approx(
        EXPERT_KERNELS["vllm_triton_fp8_block"].constants("Hopper")["share"]
    )


def test_pipelines_of_one_shape_draw_bytes_by_the_clock() -> None:
    kernel = EXPERT_KERNELS["marlin_int4"]
    plain = {key: each.value for key, each in OF_EXPERTS.items()}
    # 100 multiprocessors at 1 GHz draw 4 bytes each: 0.4 TB/s of the 1 TB/s that memory gives.
    slow = machine(bandwidth=1e12, clock=1e9)
    with FILES.trying("marlin_int4", "Hopper", {**plain, "drawn": 4.0}):
        assert kernel.operands(slow) == pytest.approx(0.4)
        # Memory of four times the rate brings nothing, a clock of half as much halves it.
        faster = machine(bandwidth=4e12, clock=1e9)
        assert kernel.operands(faster) == pytest.approx(0.1)
        assert kernel.operands(machine(bandwidth=1e12, clock=5e8)) == pytest.approx(0.2)
    with FILES.trying("marlin_int4", "Hopper", {**plain, "operands": 0.7}):
        assert kernel.operands(slow) == pytest.approx(0.7)


def test_cards_without_constants_have_those_of_their_like() -> None:
    kernel = EXPERT_KERNELS["trtllm_cutlass_bf16"]
    for architecture in ("Ampere", "Blackwell RTX"):
        assert kernel.constants(architecture) == kernel.constants("Ada")
    assert kernel.constants("Ada") != kernel.constants("Hopper")
    # Where Ada has none, all three have Hopper's.
    kernel = EXPERT_KERNELS["vllm_triton"]
    for architecture in ("Ampere", "Ada", "Blackwell RTX"):
        assert kernel.constants(architecture) == kernel.constants("Hopper")


def test_files_say_which_constants_they_give(tmp_path: Path) -> None:
    (tmp_path / "ours.toml").write_text(
        'name = "ours"\n[sources]\nus = "here"\n[Ada]\nshare = { value = 0.5, source = "us" }\n'
    )
    files = KernelFiles(tmp_path, OF_EXPERTS)
    assert files.given("ours")["Ada"] == ("share",)
    assert files.given("ours")["Hopper"] == ()
    assert files("ours")["Ada"]["start"] == OF_EXPERTS["start"].value
