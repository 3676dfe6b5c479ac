"""The algorithms for convolutions: what each computes, moves and needs, and who offers it.

Letters: N batch, H x W input, C channels in, R x S filter, K channels out, P x Q output.
"""

from __future__ import annotations

import csv
import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import paleo
from paleo.core.operations import LAYER_PASSES, Convolution, Pass, Work
from paleo.core.units import GIB
from paleo.core.window import Axis
from paleo.costs import COST_MODELS, Target
from paleo.costs.convolutions import ALGORITHMS, LIBRARIES, Algorithm, Counts, check_library
from paleo.costs.convolutions.libraries import offered_by_cudnn
from paleo.costs.counts2017 import counts_of

COPIED = Path(__file__).parents[1] / "reference"
WHOLE = Path(__file__).parents[3] / "shared" / "reference" / "golden"
PALEO2017 = COST_MODELS["paleo2017"]
PASSES = {
    "forward": Pass.FORWARD,
    "backward_data": Pass.INPUT_GRADIENT,
    "backward_filter": Pass.WEIGHT_GRADIENT,
}


def conv(
    direction: Pass = Pass.FORWARD,
    n: Any = 2,
    c: int = 8,
    k: int = 16,
    size: int = 12,
    window: int | tuple[int, int] = 3,
    stride: int = 1,
    pad: int | None = None,
    groups: int = 1,
    dilation: int = 1,
    element_size: int = 4,
) -> Convolution:
    windows = (window, window) if isinstance(window, int) else window
    axes = tuple(
        Axis(size, w, stride, (w // 2,) * 2 if pad is None else (pad, pad), dilation)
        for w in windows
    )
    return Convolution(direction, n, axes, c, k, element_size, groups=groups)


def counts(name: str, operation: Convolution) -> Counts:
    return ALGORITHMS[name].counts(operation)


# What each takes, by hand


def test_implicit_products_move_each_tensor_once() -> None:
    # 2 images of 12 x 12 with a 3 x 3 window and a padding of 1: P = Q = 12, so N P Q = 288.
    # 2 * 288 * 16 * 9 * 8 = 663,552 FLOPs; 4 * 288 * 8 = 9,216 bytes of input, 4 * 9 * 8 * 16 =
    # 4,608 of filters, 4 * 288 * 16 = 18,432 of output.
    found = counts("implicit_gemm", conv())
    assert found.work == Work(663_552, 9_216 + 4_608, 18_432)
    assert found.workspace_bytes == 0
    assert counts("direct", conv()) == Counts(
        (found.kernels[0]._replace(is_product=False),)
    )  # as much, but no product


def test_precomputed_indices_are_four_bytes_for_each_term_of_the_sum() -> None:
    # R S C = 72 forward, R S K = 144 for the input's gradient.
    assert counts("precomputed_gemm", conv()).workspace_bytes == 288
    back = counts("precomputed_gemm", conv(Pass.INPUT_GRADIENT))
    assert back.workspace_bytes == 576
    # Written once and read once, beside what the product moves.
    assert back.work.bytes_written == 9_216 + 576
    assert back.work.bytes_read == 18_432 + 4_608 + 576


def test_explicit_products_write_and_read_the_matrix_of_windows() -> None:
    # N P Q R S C = 288 * 72 = 20,736 elements, 82,944 bytes.
    for direction in LAYER_PASSES:
        found = counts("explicit_gemm", conv(direction))
        plain = conv(direction).work
        assert found.workspace_bytes == 82_944
        assert found.work.bytes_read == plain.bytes_read + 82_944
        assert found.work.bytes_written == plain.bytes_written + 82_944
        # Backward, each element is added to the image.
        added = 20_736 if direction is Pass.INPUT_GRADIENT else 0
        assert found.work.flops == plain.flops + added


def test_a_one_by_one_convolution_is_a_product_of_its_channels() -> None:
    operation = conv(window=1)
    assert counts("gemm_1x1", operation) == counts("implicit_gemm", operation)
    assert not ALGORITHMS["gemm_1x1"].applies(conv(window=(1, 3)))


def test_scattered_products_add_each_window_to_the_image_in_memory() -> None:
    # Stride 2: P = 6, N P Q = 72, N P Q R S C = 5,184 elements of 4 bytes. The image is
    # 2 * 144 * 8 * 4 = 9,216 bytes, the output's gradient 72 * 16 * 4 = 4,608, filters 4,608.
    found = counts("scattered_gemm", conv(Pass.INPUT_GRADIENT, stride=2))
    assert found.work.bytes_read == 4_608 + 4_608 + 4 * 5_184
    assert found.work.bytes_written == 9_216 + 4 * 5_184
    assert found.work.flops == 2 * 72 * 16 * 72 + 5_184


def test_phased_products_leave_out_the_zeros_between_outputs() -> None:
    # Windows of 4 x 4 in steps of 2 over 12 x 12: 4 places of 6 x 6 inputs, each reached by 2 x 2
    # elements of the filter: 2 * (4 * 2 * 36) * (4 * 16) * 8 FLOPs.
    operation = conv(Pass.INPUT_GRADIENT, window=4, stride=2, pad=1)
    assert counts("phased_gemm", operation).work.flops == 2 * 288 * 64 * 8 == operation.flops


def test_winograd_in_one_kernel() -> None:
    # F(2 x 2, 3 x 3): 2 * 6 * 6 = 72 tiles of 16. 2 * 16 * 72 * 8 * 16 = 294,912 FLOPs of
    # products, 32 * 72 * 8 + 28 * 8 * 16 + 24 * 72 * 16 = 49,664 of transforms.
    found = counts("winograd_2x2", conv())
    assert found.work.flops == 294_912 + 49_664
    # 16 * 8 * 16 * 4 = 8,192 bytes of transformed filters are written, and read.
    assert found.workspace_bytes == 8_192
    assert found.work == Work(344_576, 9_216 + 4_608 + 8_192, 18_432 + 8_192)
    # What is multiplied is 2.25 times less.
    assert conv().flops == 2.25 * 294_912


@pytest.mark.parametrize("direction", Pass)
def test_winograd_through_memory(direction: Pass) -> None:
    # F(4 x 4, 3 x 3): 2 * 3 * 3 = 18 tiles of 36 elements: 4 * 36 * 18 * 8 = 20,736 bytes of
    # inputs, 4 * 36 * 8 * 16 = 18,432 of filters, 4 * 36 * 18 * 16 = 41,472 of outputs.
    found = counts("winograd_4x4", conv(direction))
    assert found.workspace_bytes == 20_736 + 18_432 + 41_472
    # Each is written once and read once, beside the tensors themselves.
    plain = conv(direction).work
    assert found.work.bytes_read == plain.bytes_read + found.workspace_bytes
    assert found.work.bytes_written == plain.bytes_written + found.workspace_bytes
    # 2 * 36 * 18 * 8 * 16 = 165,888 FLOPs, a quarter of the plain ones; transforms of what is
    # known cost 156 a tile, of what is not 100, of filters 72 each.
    known, made = (16, 8) if direction is Pass.INPUT_GRADIENT else (8, 16)
    transforms = 156 * 18 * known + 72 * 8 * 16 + 100 * 18 * made
    assert found.work.flops == 165_888 + transforms
    assert plain.flops == 4 * 165_888


def test_winograd_of_five_by_five() -> None:
    # F(2 x 2, 5 x 5): 72 tiles of 36: 36 products for 4 outputs, which take 100.
    operation = conv(window=5)
    multiplied = next(each for each in counts("winograd_5x5", operation).kernels if each.is_product)
    assert multiplied.flops == operation.flops * 36 / 100


def test_fourier_transforms_of_images() -> None:
    # 12 + 2 * 1 = 14 is filled up to 16: 16 * 9 = 144 frequencies of 8 bytes. A transform takes
    # 5 / 2 * 256 * 8 = 5,120 FLOPs; there are 16 of inputs, 128 of filters, 32 of outputs.
    found = counts("fft", conv())
    assert found.workspace_bytes == 144 * 8 * (16 + 128 + 32)
    assert found.work.flops == 5_120 * (16 + 128 + 32) + 8 * 144 * 2 * 8 * 16
    assert found.work.bytes_read == 9_216 + 4_608 + found.workspace_bytes
    assert found.work.bytes_written == 18_432 + found.workspace_bytes


@pytest.mark.parametrize("name", ["fft", "tiled_fft", "winograd_4x4"])
def test_halves_are_transformed_to_single_precision(name: str) -> None:
    # Halves are for storage: operands have half of the bytes, what they are transformed to as many.
    single, halves = counts(name, conv()), counts(name, conv(element_size=2))
    assert halves.workspace_bytes == single.workspace_bytes
    assert single.work.num_bytes - halves.work.num_bytes == (9_216 + 4_608 + 18_432) / 2


def test_long_images_are_transformed_in_two_passes() -> None:
    # 60 + 8 is filled up to 128: rows first, then columns, so that each spectrum moves three times
    # in its transform, and once in the products.
    operation = conv(size=60, window=9)
    found = counts("fft", operation)
    assert found.work.num_bytes - operation.work.num_bytes == 4 * found.workspace_bytes


def test_fourier_transforms_of_tiles() -> None:
    # 64 outputs in tiles that give 32 + 1 - 5 = 28: 3 x 3 = 9 tiles of 32 * 17 = 544 frequencies.
    found = counts("tiled_fft", conv(size=64, window=5))
    assert found.workspace_bytes == 544 * 8 * (2 * 9 * 8 + 8 * 16 + 2 * 9 * 16)
    assert found.work.flops == 2.5 * 1024 * 10 * (144 + 128 + 288) + 8 * 544 * 18 * 8 * 16


# paleo2017


@functools.cache
def graph(net: str, batch: int) -> paleo.Graph:
    return paleo.build(paleo.load(net), batch)


@pytest.mark.slow
@pytest.mark.parametrize("folder", [COPIED, WHOLE], ids=["copied", "whole"])
def test_fourier_transforms_of_2017_agree_with_the_reference(folder: Path) -> None:
    if not folder.is_dir():
        pytest.skip("the whole set of reference figures is not beside the project")
    with (folder / "conv_fft_times.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) >= 72
    for row in rows:
        built = graph(row["net"], int(row["batch"]))
        node = next(node for node in built.nodes if node.name == row["layer"])
        (operation,) = (
            each
            for each in built.operations(node, PASSES[row["pass"]], (True,))
            if isinstance(each, Convolution)
        )
        name = "tiled_fft" if row["tiling"] == "1" else "fft"
        clock, peak, bandwidth = 1e-9, 6.144e12, 336.5 * GIB
        compute: Any = 0.0
        memory: Any = 0.0
        for kernel in counts_of(name, operation).kernels:
            computed = max(clock, kernel.flops / peak) if kernel.flops else 0.0
            compute += kernel.times * computed
            moves = (*kernel.reads, *kernel.writes)
            memory += kernel.times * sum(max(clock, size / bandwidth) for size in moves)
        assert 1e3 * compute == pytest.approx(float(row["comp_ms"]), rel=1e-12, abs=0), row
        assert 1e3 * memory == pytest.approx(float(row["mem_ms"]), rel=1e-12, abs=0), row
        if ALGORITHMS[name].applies(operation):
            time = PALEO2017.price_by(name, operation, Target(paleo.find_device(row["device"])))
            assert time
            assert 1e3 * time.compute == pytest.approx(float(row["comp_ms"]), rel=1e-12, abs=0)
            assert 1e3 * time.memory == pytest.approx(float(row["mem_ms"]), rel=1e-12, abs=0)


def test_a_workspace_of_2017() -> None:
    # 12 x 12 with a padding of 1: A = 196; 8 A (n c + c k + n k) = 8 * 196 * (16 + 128 + 32).
    assert counts_of("fft", conv()).workspace_bytes == 8 * 196 * 176
    # Of tiles, one of 32 x 32.
    assert counts_of("tiled_fft", conv()).workspace_bytes == 8 * 1024 * 176


def test_precomputed_indices_of_2017_cost_the_input_gradient_alone() -> None:
    for direction in (Pass.FORWARD, Pass.WEIGHT_GRADIENT):
        operation = conv(direction, stride=2)
        assert counts_of("precomputed_gemm", operation) == counts_of("implicit_gemm", operation)
    # n y' x' r s c of the dense product: 2 * 144 * 9 * 16 = 41,472, two numbers of 4 bytes each.
    operation = conv(Pass.INPUT_GRADIENT, stride=2)
    plain, more = (counts_of(f"{name}_gemm", operation) for name in ("implicit", "precomputed"))
    assert more.work == plain.work + Work(0, 2 * 4 * 41_472, 0)
    target = Target(paleo.find_device("TITAN_X"))
    times = [PALEO2017.price_by(f"{name}_gemm", operation, target) for name in
             ("implicit", "precomputed")]  # fmt: skip
    assert times[0]
    assert times[1]
    moved = times[1].memory - times[0].memory
    assert moved == pytest.approx(2 * 4 * 41_472 / (336.5 * GIB))


def test_a_direct_convolution_is_a_product_to_the_model_of_2017() -> None:
    for direction in LAYER_PASSES:
        operation = conv(direction, stride=2)
        assert counts_of("direct", operation) == counts_of("implicit_gemm", operation)


# Contracts


OPERATIONS = st.builds(
    conv,
    direction=st.sampled_from(LAYER_PASSES),
    n=st.sampled_from([1, 3, 64]),
    c=st.sampled_from([4, 12]),
    k=st.sampled_from([4, 20]),
    size=st.sampled_from([7, 12, 33]),
    window=st.sampled_from([1, 2, 3, 5, 7, (1, 7), (3, 1)]),
    stride=st.sampled_from([1, 2, 3]),
    groups=st.sampled_from([1, 4]),
    dilation=st.sampled_from([1, 2]),
)


@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)
def test_every_algorithm_says_what_it_is(algorithm: Algorithm) -> None:
    assert ALGORITHMS[algorithm.name] is algorithm
    assert 0 < len(algorithm.summary) < 90
    assert algorithm.source


@pytest.mark.slow
@given(OPERATIONS)
@settings(max_examples=150, deadline=None)
def test_every_algorithm_keeps_the_contract(operation: Convolution) -> None:
    known, made = operation.reads, operation.writes
    for name, algorithm in ALGORITHMS.items():
        if not algorithm.applies(operation):
            continue
        found = algorithm.counts(operation)
        assert found.workspace_bytes >= 0
        # Operands are read and the result is written, once at least.
        assert found.work.bytes_read >= sum(known), name
        assert found.work.bytes_written >= sum(made), name
        if algorithm.is_gemm:
            assert found.work.flops >= operation.flops, name
        batches = np.array([1, 5, 64])
        together = algorithm.counts(replace(operation, batch=batches))
        for place, batch in enumerate(batches.tolist()):
            alone = algorithm.counts(replace(operation, batch=batch))
            assert np.broadcast_to(together.workspace_bytes, 3)[place] == alone.workspace_bytes
            assert np.broadcast_to(together.work.flops, 3)[place] == alone.work.flops
            assert np.broadcast_to(together.work.num_bytes, 3)[place] == alone.work.num_bytes


@pytest.mark.parametrize("library", LIBRARIES.values(), ids=LIBRARIES)
@given(operation=OPERATIONS)
@settings(max_examples=30, deadline=None)
def test_every_library_offers_a_product_without_workspace(
    library: Any, operation: Convolution
) -> None:
    offered = library.offers(operation)
    assert "implicit_gemm" in offered
    assert len(set(offered)) == len(offered)
    for name in offered:
        assert ALGORITHMS[name].applies(operation)
    assert library.summary


def test_the_page_names_every_algorithm_and_library() -> None:
    text = (Path(__file__).parents[2] / "docs" / "convolutions.md").read_text("utf-8")
    before, _, tables = text.partition("<!-- generated -->")
    for name, algorithm in ALGORITHMS.items():
        assert f"`{name}`" in before
        assert f"| `{name}` | {algorithm.summary} | {algorithm.source} |" in tables
    for library in ("cudnn2", "cudnn9", "onednn", "any", "cudnn"):
        assert library in LIBRARIES
        assert library in before


# Who offers what


def test_a_later_generation_offers_what_an_earlier_one_did() -> None:
    for direction in LAYER_PASSES:
        for window in (1, 3, 5, 9):
            before: set[str] = set()
            for generation in range(1, 10):
                found = set(offered_by_cudnn(generation, conv(direction, window=window)))
                assert before <= found
                before = found


def test_what_came_with_which_generation_of_cudnn() -> None:
    def new(generation: float, operation: Convolution) -> set[str]:
        now, before = (set(offered_by_cudnn(g, operation)) for g in (generation, generation - 1))
        return now - before

    assert new(3, conv()) == {"fft"}
    assert new(4, conv()) == {"tiled_fft"}
    assert new(5, conv()) == {"winograd_2x2", "winograd_4x4"}
    assert new(7, conv(window=5)) == {"winograd_5x5"}
    # The gradient of the filter had neither tiles nor Winograd's algorithm so early.
    back = conv(Pass.WEIGHT_GRADIENT)
    assert "fft" in new(3, back)
    assert new(4, back) <= {"precomputed_gemm"}
    assert new(6, back) == {"winograd_4x4", "tiled_fft"}
    assert new(7, conv(Pass.INPUT_GRADIENT, stride=2)) == {"phased_gemm"}


def test_a_filter_of_one_element_was_always_a_product() -> None:
    for direction in LAYER_PASSES:
        for generation in range(1, 10):
            for name in offered_by_cudnn(generation, conv(direction, window=1)):
                assert ALGORITHMS[name].is_gemm


def test_direct_kernels_of_gpus_are_for_one_channel_a_group() -> None:
    assert "direct" not in offered_by_cudnn(9, conv())
    assert "direct" in offered_by_cudnn(4, conv(c=8, k=8, groups=8))
    assert "direct" in LIBRARIES["onednn"].offers(conv())


def test_one_product_and_one_algorithm_of_winograd_sum_up_halves() -> None:
    for direction in LAYER_PASSES:
        found = offered_by_cudnn(6, conv(direction), in_halves=True)
        assert set(found) == {"implicit_gemm", "precomputed_gemm", "winograd_4x4"}
        strided = offered_by_cudnn(7, conv(direction, window=5, stride=2), in_halves=True)
        assert set(strided) == {"implicit_gemm", "precomputed_gemm"}


def test_winograd_is_not_for_double_precision() -> None:
    assert "winograd_4x4" in offered_by_cudnn(5, conv())
    assert not any("winograd" in name for name in offered_by_cudnn(9, conv(element_size=8)))


def test_any_offers_all_that_applies() -> None:
    assert set(LIBRARIES["any"].offers(conv())) == {
        name for name, algorithm in ALGORITHMS.items() if algorithm.applies(conv())
    }


@pytest.mark.parametrize(
    ("library", "device", "message"),
    [
        ("onednn", "TITAN_X", "onednn runs on CPUs, which TITAN_X is not; there are: any"),
        ("cudnn7", "CPU_I7",
         "cudnn7 runs on NVIDIA's GPUs, which CPU_I7 is not; there are: onednn, any"),
        ("cudnn", "MI250X_DIE",
         "cudnn runs on NVIDIA's GPUs, which MI250X_DIE is not; there are: any"),
    ],
)  # fmt: skip
def test_a_library_runs_where_it_can(library: str, device: str, message: str) -> None:
    with pytest.raises(paleo.SettingError) as raised:
        check_library(library, paleo.find_device(device))
    assert str(raised.value) == f"conv_library: {message}"
    for other in (None, "any"):
        check_library(other, paleo.find_device(device))
