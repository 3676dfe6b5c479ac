"""Convolutions in the model `tiled`: which algorithms there are, and what each costs.

Letters: N batch, H x W input, C channels in, R x S filter, K channels out, P x Q output.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from square_convolutions import conv
from tiled_ways import ways

from paleo.cluster import find_device
from paleo.core.operations import LAYER_PASSES, Convolution, Pass
from paleo.core.window import Axis
from paleo.costs import ConvolutionChoice, Target, Time, find_cost_model
from paleo.costs.convolutions import ALGORITHMS
from paleo.costs.convolutions.fft import FFT, TILED_FFT
from paleo.costs.convolutions.winograd import WINOGRAD_4X4, WINOGRAD_5X5
from paleo.costs.tiled import convolution, implicit_gemm, transforms
from paleo.costs.tiled.constants import find_family
from paleo.costs.tiled.gemm import choose
from paleo.costs.tiled.machine import Machine, machine_for

#: What every generation has for a plain forward pass.
PRODUCTS = {"implicit_gemm", "precomputed_gemm", "explicit_gemm"}
DEEPBENCH = Path(__file__).parents[3] / "shared" / "measured" / "deepbench.csv"


def machine(device: str = "V100_SXM2_16GB", dtype: str = "fp32", library: int = 8) -> Machine:
    return machine_for(Target(find_device(device), dtype, constants={"library": library}))


def test_the_three_passes_are_products_of_their_own_shapes() -> None:
    # 16 images of 28 x 28, 32 channels, 48 filters of 3 x 3: N P Q = 16 * 28 * 28 = 12,544,
    # R S C = 9 * 32 = 288 and R S K = 9 * 48 = 432.
    shapes = {
        direction: implicit_gemm.implicit(conv(direction, c=32, k=48, size=28), machine())
        for direction in LAYER_PASSES
    }
    found = {key: (way.m, way.n, way.k) for key, way in shapes.items() if way}
    assert found == {
        Pass.FORWARD: (12544, 48, 288),
        Pass.INPUT_GRADIENT: (12544, 32, 432),
        Pass.WEIGHT_GRADIENT: (48, 288, 12544),
    }


def test_a_product_reads_an_image_once_though_windows_overlap() -> None:
    # On tensor cores a 3 x 3 convolution of 64 channels would be bound by memory if each window
    # were read: 9 times the image.
    device = machine("A100_SXM_80GB", "fp16")
    op = conv(n=256, element_size=2)
    way = implicit_gemm.implicit(op, device)
    assert way
    assert way.choice
    # Image 256 * 56 * 56 * 64 * 2 bytes = 102,760,448, as much as the output, filters of
    # 9 * 64 * 64 * 2 bytes = 73,728.
    assert way.choice.num_bytes == pytest.approx(2 * 102_760_448 + 73_728)


def test_one_by_one_is_the_product_of_its_channels() -> None:
    # A window of one element overlaps with nothing: N P Q x C times C x K, at a convolution's
    # share of the speed, with the kernels that a convolution has beside its product.
    device, op = machine(), conv(window=1, c=256, k=128, size=14)
    way = implicit_gemm.implicit(op, device)
    assert way
    product = choose(
        16 * 14 * 14, 128, 256, device,
        sizes=(4, 4, 4), share=device.convolution_share, splits=(1,),
    ).time  # fmt: skip
    assert way.time.total == pytest.approx(product.total + 2 * device.launch)
    assert convolution.price(op, device) == way.time


def test_groups_are_as_many_products() -> None:
    device = machine()
    op = conv(c=128, k=128, groups=32)
    way = implicit_gemm.implicit(op, device)
    assert way
    # 32 products of 16 * 56 * 56 = 50,176 positions, 4 filters and 9 * 4 = 36 terms.
    assert (way.m, way.n, way.k, way.products) == (50176, 4, 36, 32)
    image = 4 * 50176 * 128
    product = choose(
        50176, 4, 36, device, sizes=(4, 4, 4), count=32, share=device.convolution_share,
        splits=(1,), stored=(image, 4 * 9 * 4 * 128),
    ).time  # fmt: skip
    assert way.time.total == pytest.approx(product.total + 2 * device.launch)


def test_before_the_seventh_generation_groups_follow_one_another() -> None:
    op = conv(c=128, k=128, groups=32, n=1, size=7)
    at_once = implicit_gemm.implicit(op, machine(library=7))
    in_turn = implicit_gemm.implicit(op, machine(library=6))
    one = implicit_gemm.implicit(conv(c=4, k=4, n=1, size=7), machine(library=6))
    assert at_once
    assert in_turn
    assert one
    assert in_turn.time.total == pytest.approx(32 * one.time.total)
    assert in_turn.time.total > 20 * at_once.time.total


def test_winograd_in_one_kernel_multiplies_2_25_times_less() -> None:
    # F(2 x 2, 3 x 3): 16 products of C K for 4 outputs, which take 36: 2.25 times fewer.
    op = conv(n=16, c=128, k=128, size=56)
    way = transforms.fused_winograd(op, machine())
    assert way
    assert way.m == 16 * 28 * 28
    assert 2 * way.m * way.n * way.k * way.products == op.flops / 2.25


def test_winograd_in_steps_multiplies_4_times_less_and_moves_transforms() -> None:
    # F(4 x 4, 3 x 3): 36 products for 16 outputs, which take 144. 16 * 14 * 14 = 3,136 tiles of
    # 36 elements and 128 channels, transformed in and out: 3136 * 36 * 128 * 4 bytes each, and
    # filters of 36 * 128 * 128 * 4 bytes.
    op = conv(n=16, c=128, k=128, size=56)
    way = transforms.in_steps(WINOGRAD_4X4, op, machine())
    assert way
    assert 2 * way.m * way.n * way.k * way.products == op.flops / 4
    workspace = ALGORITHMS["winograd_4x4"].counts(op).workspace_bytes
    assert workspace == 2 * (3136 * 36 * 128 * 4) + 36 * 128 * 128 * 4
    # The passes go through memory one after another: at least the workspace and the operands.
    device = machine()
    least = (workspace + op.work.num_bytes) / device.bandwidth
    assert way.time.memory >= least


def test_winograd_of_five_by_five_has_36_products_for_100() -> None:
    # F(2 x 2, 5 x 5) has tiles of 6 x 6 too: 36 products for 4 outputs, which take 100.
    op = conv(n=16, c=128, k=128, size=56, window=5)
    way = transforms.in_steps(WINOGRAD_5X5, op, machine())
    assert way
    assert 2 * way.m * way.n * way.k * way.products == op.flops * 36 / 100


@pytest.mark.parametrize(
    "other",
    [
        {"stride": 2}, {"dilation": 2}, {"groups": 2}, {"window": 1}, {"rank": 1}, {"rank": 3},
    ],
)  # fmt: skip
def test_transforms_need_dense_square_windows_of_one_group(other: dict[str, int]) -> None:
    op = conv(**other)  # type: ignore[arg-type]
    assert transforms.fused_winograd(op, machine()) is None
    for algorithm in (WINOGRAD_4X4, WINOGRAD_5X5, FFT, TILED_FFT):
        assert transforms.in_steps(algorithm, op, machine()) is None


def test_transforms_are_for_the_lanes() -> None:
    op, device = conv(element_size=2), machine(dtype="fp16")
    assert set(ways(op, device)) == PRODUCTS


@pytest.mark.parametrize(
    ("library", "expected"),
    [
        (2, set()),
        (3, {"fft"}),
        (4, {"fft", "tiled_fft"}),
        (5, {"fft", "tiled_fft", "winograd_2x2", "winograd_4x4"}),
    ],
)
def test_a_library_has_the_algorithms_of_its_generation(library: int, expected: set[str]) -> None:
    found = ways(conv(), machine(library=library))
    assert set(found) == PRODUCTS | expected


def test_fft_of_images_fills_them_up_to_a_power_of_two() -> None:
    # 27 x 27 with a window of 9 and no padding: 32 x 32, of which 32 * 17 = 544 frequencies
    # differ, each a complex product: 4 real ones, as 2 C terms and 2 K columns.
    op = conv(n=128, c=64, k=96, size=27, window=9, pad=0)
    way = transforms.in_steps(FFT, op, machine())
    assert way
    assert (way.m, way.n, way.k, way.products) == (128, 192, 128, 544)
    # The image, the filters and the result at 544 frequencies, complex: 8 bytes each.
    elements = 128 * 64 + 64 * 96 + 128 * 96
    assert ALGORITHMS["fft"].counts(op).workspace_bytes == 544 * 8 * elements


def test_fft_wins_for_large_filters() -> None:
    # 9 x 9: 81 multiplications an output against 4 * 544 / (24 * 24) = 3.8 in tiles of 32.
    found = convolution.explain(conv(n=128, c=128, k=128, size=32, window=9), machine())
    assert found.algorithm in ("fft", "tiled_fft")


def test_a_depthwise_convolution_is_bound_by_memory() -> None:
    op = conv(c=256, k=256, groups=256, n=64)
    found = convolution.explain(op, machine())
    assert found.algorithm == "direct"
    assert found.bound == "memory"
    assert found.time.total >= op.work.num_bytes / machine().bandwidth


def test_three_channels_are_filled_up_to_eight_on_tensor_cores() -> None:
    # Rows of operands are 16 bytes: 8 halves. 7 x 7 * 8 = 392 terms instead of 147.
    op = conv(c=3, k=64, size=224, window=7, stride=2, element_size=2)
    device = replace(machine("A100_SXM_80GB", "fp16"), vector_peak=None)
    way = implicit_gemm.implicit(op, device)
    assert way
    assert way.k == 392
    # Where the lanes can do it, the quicker is taken.
    lanes = replace(machine("A100_SXM_80GB", "fp16"), matrix_peak=None)
    assert convolution.price(op, machine("A100_SXM_80GB", "fp16")).total == min(
        way.time.total, ways(op, lanes)["implicit_gemm"].total
    )


def test_matrix_units_of_cudnn_7_take_one_place_of_the_window_after_the_other() -> None:
    # For each of 7 x 7 places a sum takes 3 channels in a step of 64 bytes, 32 halves: 1,568 terms.
    op = conv(c=3, k=64, size=224, window=7, stride=2, element_size=2)
    device = replace(machine("V100_SXM2_16GB", "fp16", 7), vector_peak=None)
    way = implicit_gemm.implicit(op, device)
    assert way
    assert (way.m, way.n, way.k, way.products) == (16 * 112 * 112, 64, 49 * 32, 1)
    assert way.choice
    assert min(way.choice.rows, way.choice.columns) == 64
    # The filter's gradient is 49 products of 64 x 8, of channels filled up, each in a tile.
    op = replace(op, direction=Pass.WEIGHT_GRADIENT)
    way = implicit_gemm.implicit(op, device)
    assert way
    assert (way.m, way.n, way.k, way.products) == (64, 8, 16 * 112 * 112, 49)
    assert way.choice
    assert (way.choice.rows, way.choice.columns) == (64, 64)
    assert way.choice.tiles == 49 * way.choice.split
    turing = replace(machine("T4", "fp16", 7), vector_peak=None)
    way = implicit_gemm.implicit(op, turing)
    assert way
    assert way.choice
    assert (way.choice.rows, way.choice.columns) == (128, 128)
    # From 8 on all places are columns of one product, and on the lanes they always are.
    for other in (replace(device, library=8), machine("V100_SXM2_16GB", "fp32", 7)):
        way = implicit_gemm.implicit(replace(op, element_size=other.element_size), other)
        assert way
        assert (way.n, way.products) == (49 * (8 if other.element_size == 2 else 3), 1)


def test_kernels_before_cudnn_3_are_not_made_for_maxwell() -> None:
    # Bound by computation they take 1 / 0.8 of the time, but for the kernels beside.
    op = conv(n=128, c=384, k=384, size=13)
    old, new = (
        implicit_gemm.implicit(op, machine("TITAN_X", library=generation)) for generation in (2, 3)
    )
    assert old
    assert new
    assert old.time.compute == pytest.approx(new.time.compute / 0.8, rel=0.01)
    assert old.time.overhead == new.time.overhead


def test_phases_leave_out_the_zeros_of_a_strided_gradient() -> None:
    # 4 x 4 windows in steps of 2 over 32 x 32: 4 places of 16 x 16 inputs, each reached by 2 x 2
    # of the window: 4 products of 16 * 256 rows and 4 * 64 terms, a quarter of the dense FLOPs.
    op = conv(Pass.INPUT_GRADIENT, size=32, window=4, stride=2, pad=1)
    dense, phases = implicit_gemm.implicit(op, machine()), implicit_gemm.by_phases(op, machine())
    assert dense
    assert phases
    assert (phases.m, phases.n, phases.k, phases.products) == (4096, 64, 256, 4)
    assert dense.m * dense.n * dense.k == 4 * (4 * 4096 * 64 * 256)
    assert "phased_gemm" in ways(op, machine(library=7))
    assert "phased_gemm" not in ways(op, machine(library=6))
    assert phases.time.total < dense.time.total


def test_strides_that_skip_inputs_scatter() -> None:
    # Three quarters of the inputs have no window: a dense product would be of zeros with them.
    op = conv(Pass.INPUT_GRADIENT, c=512, k=1024, size=28, window=1, stride=2, pad=0)
    assert implicit_gemm.by_phases(op, machine()) is None
    found = convolution.explain(op, machine())
    assert found.algorithm == "scattered_gemm"


def test_the_filters_gradient_is_cut_into_parts() -> None:
    # C is 64 x 27: without parts one or two multiprocessors would do all.
    op = conv(Pass.WEIGHT_GRADIENT, c=3, k=64, size=224)
    way = implicit_gemm.implicit(op, machine())
    assert way
    assert way.choice
    assert way.choice.split >= 64


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_any_number_of_dimensions(rank: int) -> None:
    op = conv(rank=rank, size=16)
    way = implicit_gemm.implicit(op, machine())
    assert way
    assert (way.m, way.k) == (16 * 16**rank, 64 * 3**rank)


def test_a_transposed_convolution_costs_what_its_gradient_does() -> None:
    op = conv(Pass.INPUT_GRADIENT, stride=2)
    assert convolution.price(replace(op, transposed=True), machine()) == convolution.price(
        op, machine()
    )


def test_explain_says_what_price_says_and_lists_the_others() -> None:
    device = machine()
    for direction in LAYER_PASSES:
        op = conv(direction)
        found = convolution.explain(op, device)
        assert found.time == convolution.price(op, device)
        others = {name for name, _, unit in found.details if unit == "s"}
        times = ways(op, device)
        best = min(times, key=lambda name: times[name].total)
        assert others == {f"by {name}" for name in times if name != best}
        assert found.algorithm == best
        assert ("units", "vector", "") in found.details
        assert "waves" in found.why or "wave," in found.why


SHAPES = st.fixed_dictionaries(
    {
        "direction": st.sampled_from(LAYER_PASSES),
        "c": st.sampled_from([1, 3, 8, 24, 64, 256]),
        "k": st.sampled_from([8, 32, 96, 512]),
        "size": st.sampled_from([7, 14, 33]),
        "window": st.sampled_from([1, 3, 5]),
        "stride": st.sampled_from([1, 2]),
    }
)
CASES = st.sampled_from(
    [("TITAN_X", "fp32", 5), ("V100_SXM2_16GB", "fp32", 7), ("V100_SXM2_16GB", "fp16", 7)]
)


def parts(time: Time, count: int = 1) -> list[list[float]]:
    """Return the parts of `count` times, each a list of its own."""
    found = (time.compute, time.memory, time.overhead, time.total)
    return np.array([np.broadcast_to(part, count) for part in found]).T.tolist()


@given(SHAPES, CASES)
@settings(max_examples=40, deadline=None)
def test_many_batches_cost_what_each_costs(
    shape: dict[str, object], case: tuple[str, str, int]
) -> None:
    device = machine(*case)
    shape = {**shape, "element_size": 2 if case[1] == "fp16" else 4}
    batches = [1, 2, 7, 16, 100, 640]
    op = conv(**shape)  # type: ignore[arg-type]
    together = convolution.price(replace(op, batch=np.array(batches)), device)
    assert parts(together, len(batches)) == [
        parts(convolution.price(replace(op, batch=batch), device))[0] for batch in batches
    ]


@given(SHAPES, CASES, st.integers(1, 200))
@settings(max_examples=60, deadline=None)
def test_more_images_never_cost_less(
    shape: dict[str, object], case: tuple[str, str, int], batch: int
) -> None:
    device = machine(*case)
    shape = {**shape, "element_size": 2 if case[1] == "fp16" else 4}
    times = [
        convolution.price(conv(**shape, n=n), device).total  # type: ignore[arg-type]
        for n in (batch, batch + 1)
    ]
    assert times[0] <= times[1] * (1 + 1e-12)


@given(SHAPES, CASES)
@settings(max_examples=40, deadline=None)
def test_no_quicker_than_the_bytes_that_do_not_fit_the_cache(
    shape: dict[str, object], case: tuple[str, str, int]
) -> None:
    device = machine(*case)
    op = conv(**shape, n=4096)  # type: ignore[arg-type]
    at_once = op.work.num_bytes / device.bandwidth
    if op.work.num_bytes > 4 * float(device.cache):
        assert convolution.price(op, device).total >= at_once


def rows(device: str, precision: str) -> Iterator[tuple[Convolution, float]]:
    """Yield DeepBench's convolutions on a device, and the seconds that they took."""
    directions = {
        "forward": Pass.FORWARD,
        "backward_input": Pass.INPUT_GRADIENT,
        "backward_weight": Pass.WEIGHT_GRADIENT,
    }
    with DEEPBENCH.open(newline="") as file:
        for row in csv.DictReader(file):
            if (row["network"], row["device"], row["precision"]) != (
                "op:conv2d",
                device,
                precision,
            ):
                continue
            x = json.loads(row["op_shape"])
            axes = (
                Axis(x["H"], x["R"], x["stride_h"], (x["pad_h"],) * 2),
                Axis(x["W"], x["S"], x["stride_w"], (x["pad_w"],) * 2),
            )
            size = 4 if precision == "fp32" else 2
            op = Convolution(directions[row["direction"]], x["N"], axes, x["C"], x["K"], size)
            yield op, float(row["value"]) / 1e3


def test_winograds_steps_take_sixteen_images_at_a_time() -> None:
    for direction in (Pass.FORWARD, Pass.INPUT_GRADIENT):
        few, many, more = (
            transforms.in_steps(WINOGRAD_4X4, conv(direction, n=n), machine()) for n in (1, 16, 17)
        )
        assert few
        assert many
        assert more
        # 14 x 14 tiles of 4 x 4 each.
        assert (few.m, many.m, more.m) == (16 * 196, 16 * 196, 32 * 196)
    back = transforms.in_steps(WINOGRAD_4X4, conv(Pass.WEIGHT_GRADIENT, n=1), machine())
    assert back
    assert back.k == 196


@pytest.mark.skipif(not DEEPBENCH.exists(), reason="the measurements of DeepBench are not here")
@pytest.mark.parametrize(
    ("measured", "precision", "device", "dtype", "bounds"),
    # Medians forward, of the gradient of the input, and of that of the filter, with a margin.
    # (DeepBench had tensor cores compute one and three channels too, where lanes are quicker.)
    [
        ("M40", "fp32", "M40", "fp32", (0.11, 0.11, 0.19)),
        ("TitanX-Maxwell", "fp32", "TITAN_X", "fp32", (0.12, 0.12, 0.2)),
        ("P100", "fp32", "P100_PCIE", "fp32", (0.12, 0.14, 0.15)),
        ("P100", "fp16", "P100_PCIE", "fp16", (0.11, 0.27, 0.18)),
        ("V100-SXM2-16GB(DGX-1)", "fp32", "V100_SXM2_16GB", "fp32", (0.1, 0.1, 0.19)),
        ("V100-SXM2-16GB(DGX-1)", "fp16_in_fp32_acc", "V100_SXM2_16GB", "fp16", (0.19, 0.22, 0.3)),
        ("T4", "fp32", "T4", "fp32", (0.14, 0.15, 0.16)),
        ("T4", "fp16_in_fp32_acc", "T4", "fp16", (0.19, 0.21, 0.31)),
    ],
)
def test_deepbench(
    measured: str,
    precision: str,
    device: str,
    dtype: str,
    bounds: tuple[float, float, float],
) -> None:
    choice = ConvolutionChoice(in_halves=True)  # as its program asks for
    target = Target(find_device(device), dtype, convolutions=choice)
    if find_family(target.device) is None:
        pytest.skip(f"nothing is known of {target.device.architecture}")
    own = machine_for(target)
    errors: dict[Pass, list[float]] = {direction: [] for direction in LAYER_PASSES}
    for op, seconds in rows(measured, precision):
        errors[op.direction].append(abs(float(convolution.price(op, own).total) / seconds - 1))
    found = [median(errors[direction]) for direction in LAYER_PASSES]
    assert all(one <= bound for one, bound in zip(found, bounds, strict=True)), found


@pytest.mark.parametrize(
    ("direction", "share"),
    [(Pass.FORWARD, 0.7), (Pass.INPUT_GRADIENT, 0.5), (Pass.WEIGHT_GRADIENT, 0.35)],
)
def test_a_depthwise_convolution_is_fed_from_memory(direction: Pass, share: float) -> None:
    on = machine("RTX_3090", "fp16")
    # Two images of 256 x 512 x 56 x 56 elements of 2 bytes, and 512 filters of 3 x 3.
    operation = conv(direction, n=256, c=512, k=512, groups=512, element_size=2)
    found = implicit_gemm.direct(operation, on)
    assert found
    num_bytes = 2 * (2 * 256 * 512 * 56 * 56 + 512 * 3 * 3)
    rate = share * 0.88 * 936e9  # of what Ampere's streams reach
    assert found.time.memory == pytest.approx(num_bytes / rate)
    assert found.time.total == pytest.approx(num_bytes / rate + on.launch)


#: Of a convolution channels last by matrix units: channels in a group, groups, and whether cuDNN
#: 8.3 has a kernel with tiles for it, forward and for the filter's gradient.
GROUPS = [
    (8, 32, True, True),  # as ResNeXt's
    (32, 64, True, True),
    (8, 4, False, False),  # as RegNet's
    (64, 32, False, False),  # the shape of pytorch/pytorch, issue 34977
    (128, 2, True, False),  # as NFNet's
]


@pytest.mark.parametrize(("channels", "groups", "forward", "gradient"), GROUPS)
@pytest.mark.parametrize("direction", [Pass.FORWARD, Pass.WEIGHT_GRADIENT])
def test_old_kernels_for_groups_have_tiles_for_few_of_them(
    channels: int, groups: int, forward: bool, gradient: bool, direction: Pass
) -> None:
    c = channels * groups
    operation = conv(direction, c=c, k=c, groups=groups, size=14, element_size=2)
    target = Target(find_device("RTX_3090"), "fp16", memory_format="channels_last")

    def price(library: float) -> Time:
        on = machine_for(replace(target, constants={"library": library}))
        return convolution.price(operation, on)

    # 2 N P Q K R S C / g FLOPs at 6.1 % of the lanes' rate.
    flops = 2 * 16 * 14 * 14 * c * 9 * channels
    untiled = flops / (0.061 * machine_for(target).vector_rate)
    has_tiles = forward if direction is Pass.FORWARD else gradient
    assert (price(8.3).compute == pytest.approx(untiled)) is not has_tiles
    # Later ones have tiles for all, as has what is only said to be of generation 8: its last.
    assert price(8) == price(8.5) == price(9) != (price(8.3) if not has_tiles else None)


def test_groups_of_several_convolutions_are_told_apart_one_by_one() -> None:
    target = Target(
        find_device("RTX_3090"), "fp16", constants={"library": 8.3}, memory_format="channels_last"
    )
    model = find_cost_model("tiled")
    several = [conv(c=256, k=256, groups=groups, element_size=2) for groups in (1, 2, 4, 32, 64)]
    one_by_one = [model.price(each, target) for each in several]
    assert list(model.price_all(several, target)) == one_by_one


def test_images_are_transposed_in_tiles_of_32_channels_by_32_positions() -> None:
    # 16 and 104 channels of 9 x 9 positions: 32 and 128 of 96, read and written, by two kernels.
    operation = conv(n=64, c=16, k=104, size=9, element_size=2)
    contiguous = Target(find_device("RTX_3090"), "fp16")
    tiles = 64 * 96 * (32 + 128)
    on = machine_for(contiguous)
    # These bytes fit into the last cache, 1.5 times as quick as memory at 0.88 of 936 GB/s.
    seconds = sum(2 * 2 * 64 * 96 * k / (1.5 * 0.88 * 936e9) for k in (32, 128))
    assert 2 * 2 * tiles < 0.65 * on.cache
    last = machine_for(replace(contiguous, memory_format="channels_last"))
    found = [implicit_gemm.implicit(operation, each) for each in (on, last)]
    assert found[0]
    assert found[1]
    longer = found[0].time.total - found[1].time.total
    assert longer == pytest.approx(seconds + 2 * on.launch)


@pytest.mark.parametrize(
    ("memory_format", "library", "window", "share"),
    [
        ("contiguous", 8, 5, None),
        ("contiguous", 8, 7, 0.038),  # PyTorch's own kernels
        ("contiguous", 9, 7, 0.038),
        ("channels_last", 8.3, 7, None),
        ("channels_last", 8.3, 9, 0.011),
        ("channels_last", 9, 9, None),
    ],
)
def test_single_channels_have_kernels_with_tiles_for_small_windows(
    memory_format: str, library: float, window: int, share: float | None
) -> None:
    operation = conv(c=512, k=512, groups=512, window=window, element_size=2)
    on = machine_for(
        Target(
            find_device("RTX_3090"), "fp16", constants={"library": library},
            memory_format=memory_format,
        )
    )  # fmt: skip
    found = convolution.explain(operation, on)
    assert (found.algorithm == "direct") == (share is None)
    if share is not None:
        # 2 N P Q K R S FLOPs, no group having more than one channel.
        flops = 2 * 16 * 56 * 56 * 512 * window**2
        assert found.time.compute == pytest.approx(flops / (share * on.vector_rate))


def test_images_that_lie_channels_last_are_priced_as_if_all_did() -> None:
    operation = conv(c=512, k=512, groups=512, window=7, element_size=2)
    contiguous = machine_for(Target(find_device("RTX_3090"), "fp16"))
    last = replace(contiguous, memory_format="channels_last")
    own = replace(operation, is_last=True)
    assert convolution.price(own, contiguous) == convolution.price(operation, last)
    assert convolution.price(operation, contiguous) != convolution.price(operation, last)
