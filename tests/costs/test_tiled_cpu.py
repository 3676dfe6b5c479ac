"""Operations on a processor's cores in the cost model `tiled`, derived by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import paleo
from paleo.core.operations import (
    LAYER_PASSES,
    Attention,
    BatchMatMul,
    Convolution,
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
from paleo.core.window import axes
from paleo.costs import COST_MODELS, Target
from paleo.costs.error_bands import NET, Like
from paleo.costs.tiled import cpu, onednn
from paleo.costs.tiled.constants import CONSTANTS, constants_of
from paleo.costs.tiled.machine import Machine, machine_for

TILED = COST_MODELS["tiled"]
#: 2 cores of 100 GFLOP/s together, 10 GB/s, a cache of 1 GB that is twice as fast, 1 us for a
#: launch, 1 ns for a step; shares are 1.
ROUND: dict[str, Any] = {
    "multiprocessors": 2,
    "matrix_peak": None,
    "vector_peak": 1e11,
    "bandwidth": 1e10,
    "cache": 1e9,
    "clock": 1e9,
    "power": math.inf,
    "element_size": 4,
    **{name: 1.0 if each.unit == "1" else 0.0 for name, each in CONSTANTS.items()},
    "cache_ratio": 2.0,
    "launch": 1e-6,
    "scalar": 1e-9,
    "is_cpu": True,
}
#: Bytes that are found in the cache, and such that are not.
SMALL, LARGE = 4_000_000, 4_000_000_000


def machine(**changes: Any) -> Machine:
    return Machine(**{**ROUND, **changes})


def seconds(operation: Operation, **changes: Any) -> float:
    return float(cpu.price(operation, machine(**changes)).total)


def convolution(
    direction: Pass = Pass.FORWARD, *, batch: Any = 2, side: int = 56, c: int = 64, k: int = 128,
    window: int = 3, stride: int = 1, groups: int = 1,
) -> Convolution:  # fmt: skip
    pad = window // 2
    along = axes((side, side), (window, window), (stride, stride), ((pad, pad), (pad, pad)))
    return Convolution(direction, batch, along, c, k, 4, groups=groups)


def way(name: str, operation: Convolution, **changes: Any) -> Any:
    return onednn.WAYS[name](operation, machine(**changes))


@pytest.mark.parametrize(("size", "rate"), [(SMALL, 2e10), (LARGE, 1e10)])
def test_a_line_that_is_written_is_read_first(size: int, rate: float) -> None:
    # One byte read and one written are three bytes that move.
    copy = Stream(Kind.COPY, (size,), (size,))
    assert seconds(copy) == pytest.approx(3 * size / rate + 1e-6)


def test_what_was_not_used_for_long_is_in_the_cache_if_more_of_it_fits() -> None:
    # 200 MB fit the cache, six times as much do not. In training the result's memory is as old as
    # the second operand; in inference it was freed just before.
    size = 100_000_000
    both = Stream(Kind.ELEMENTWISE, (size, size), (size,))
    assert seconds(both) == pytest.approx(size / 2e10 + 3 * size / 1e10 + 1e-6)
    assert seconds(both, training=False) == pytest.approx(3 * size / 2e10 + size / 1e10 + 1e-6)


def test_an_update_writes_lines_that_it_has_read() -> None:
    # A billion parameters: weights and gradients read, weights written, 4 bytes each.
    assert seconds(Update(10**9, 4)) == pytest.approx(1.2e10 / 1e10 + 1e-6)


def test_statistics_of_batch_normalization_take_a_step_an_element_on_all_cores() -> None:
    size = LARGE
    training = Stream(Kind.BATCH_NORM, (size, size), (size,), roles=(Role.INPUT, Role.AGAIN))
    inference = Stream(Kind.BATCH_NORM, (size,), (size,))
    # Training reads once more (4 GB, 0.4 s), takes 1e9 steps of 1 ns on two cores (0.5 s), and
    # starts for three launches longer.
    assert seconds(training) - seconds(inference) == pytest.approx(0.4 + 0.5 + 3e-6)


def test_random_numbers_are_drawn_by_one_core() -> None:
    forward = Stream(Kind.DROPOUT, (SMALL,), (SMALL,), 10**6, drawn=10**6)
    backward = Stream(Kind.DROPOUT, (SMALL,), (SMALL,), 10**6)
    # 1e6 numbers, 5 steps of 1 ns each.
    assert seconds(forward) - seconds(backward) == pytest.approx(5e-3)


def test_dropout_draws_in_its_forward_pass_alone() -> None:
    from paleo.net.layers.pointwise import Dropout

    layer = Dropout(dropout_keep_prob=0.5)
    drawn = [layer.operations(each, ((4, 10),), 4)[0] for each in LAYER_PASSES[:2]]
    assert [each.drawn for each in drawn if isinstance(each, Stream)] == [40, 0]


def test_a_maximum_looks_at_every_element_of_its_window() -> None:
    along = axes((100, 100), (2, 2), (2, 2), "VALID")
    # 50 x 50 outputs of 40 channels of 10 images: 1e6, of 4 elements, each half a step, and all
    # of them new, two steps more each: 10 steps over two cores. A launch is worth two.
    forward = Pooling(Pass.FORWARD, 10, along, 40, 40, 4)
    read, written = 16e6, 4e6
    expected = 10e6 * 1e-9 / 2 + (read + 2 * written) / 2e10 + 2e-6
    assert seconds(forward) == pytest.approx(expected)
    # Backward, each gradient is put where the maximum was: one step. A launch is worth four.
    backward = replace(forward, direction=Pass.INPUT_GRADIENT)
    expected = 1e6 * 1e-9 / 2 + (read + written + 2 * read) / 2e10 + 4e-6
    assert seconds(backward) == pytest.approx(expected)
    # A mean has no comparison, and one over the whole image is a sum of vectors.
    mean = replace(forward, maximum=False)
    assert seconds(mean) == pytest.approx(4e6 * 1e-9 / 2 + (read + 2 * written) / 2e10 + 2e-6)
    whole = Pooling(Pass.FORWARD, 10, axes((100, 100), (100, 100), (1, 1), "VALID"), 40, 40, 4)
    whole = replace(whole, maximum=False)
    assert seconds(whole) == pytest.approx((read + 2 * 1600) / 2e10 + 2e-6)


def test_windows_that_overlap_have_less_that_is_new() -> None:
    # Of 3 x 3 elements, 9, 6 or 3 were not in the window before at strides of 3, 2 and 1.
    def compute(stride: int) -> float:
        along = axes((99, 99), (3, 3), (stride, stride), "SAME")
        pooling = Pooling(Pass.FORWARD, 1, along, 1, 1, 4)
        return float(cpu.price(pooling, machine()).compute) / float(pooling.output_elements)

    # 4.5 steps of looking, 2 for each that is new, on two cores.
    expected = [(4.5 + 2 * new) * 0.5e-9 for new in (9, 6, 3)]
    assert [compute(stride) for stride in (3, 2, 1)] == pytest.approx(expected)


def test_a_product_is_packed_and_multiplied() -> None:
    # 2 x 1000 x 500 x 800 FLOPs at 1e11: 8 ms; 1.2 million elements packed in 0.3 steps each on
    # two cores: 0.18 ms; 4.8 MB read and three times 2 MB: 10.8 MB at 20 GB/s: 0.54 ms.
    assert seconds(MatMul(1000, 500, 800, 4)) == pytest.approx(8e-3 + 0.18e-3 + 0.54e-3 + 3e-6)


def test_a_product_with_a_vector_is_packed_less() -> None:
    # K of 1001 is filled up to 1008; 2,003,001 elements are read, 0.2 steps each.
    expected = 2 * 2000 * 1008 / 1e11 + 0.2 * 2_003_001 * 0.5e-9
    expected += (4 * 2_003_001 + 3 * 8000) / 2e10 + 3e-6
    assert seconds(MatMul(1, 2000, 1001, 4)) == pytest.approx(expected)


def test_steps_of_a_recurrent_layer_read_their_weights_again() -> None:
    # 10 steps of 20 x 4000 x 1000: 1.6 ms each; 16 MB and 80 kB from the cache: 0.804 ms.
    steps = BatchMatMul("lstm", 10, 20, 4000, 1000, 4, dependent=True)
    each = math.hypot(1.6e-3, 16.08e6 / 2e10)
    assert seconds(steps, step=5e-6) == pytest.approx(10 * each + 10 * 5e-6 + 1e-6)


def test_attention_multiplies_twice_and_exponentiates_in_between() -> None:
    heads = Attention(Pass.FORWARD, 24, 1, 128, 128, 64, 64, 4)
    # 24 x 128 x 128 scores, two products of depth 64 at 0.7 of the rate, 0.3 steps each, in
    # which the vectors could do 225 FLOPs.
    scores = 24 * 128 * 128
    expected = 4 * 64 * scores / 1e11 / 0.7 + 0.3 * scores * 225 / 1e11
    tensor = 4 * 24 * 128 * 64
    expected += (3 * tensor + 2 * tensor) / 2e10 + 1e-6
    assert seconds(heads) == pytest.approx(expected)


def test_the_gradient_of_a_function_starts_later_than_the_function() -> None:
    none = {"bandwidth": 1e30}
    forward = Stream(Kind.FUNCTION, (8,), (8,), function="relu")
    assert seconds(forward, **none) == pytest.approx(1e-6)
    backward = replace(forward, reads=(8, 8), direction=Pass.INPUT_GRADIENT)
    assert seconds(backward, **none) == pytest.approx(3e-6)
    # What needs nothing of the forward pass starts as soon, and what two tensors are joined by.
    assert seconds(replace(backward, reads=(8,)), **none) == pytest.approx(1e-6)
    assert seconds(Stream(Kind.COPY, (8, 8), (16,)), **none) == pytest.approx(1e-6)
    assert seconds(Stream(Kind.ELEMENTWISE, (8, 8), (8,)), **none) == pytest.approx(1e-6)


def test_a_bias_is_added_in_the_kernel_before() -> None:
    assert cpu.price(Stream(Kind.BIAS, (SMALL,), (SMALL,)), machine()).total == 0


def test_a_convolution_is_brought_into_blocks_and_back() -> None:
    found = way("direct", convolution())
    # 2 x 9 x 64 x 128 x 2 x 56 x 56 FLOPs; 1.6 MB of images, 0.3 MB of filters, 3.2 MB of result.
    flops = 2 * 9 * 64 * 128 * 2 * 56 * 56
    image, filters, result = 4 * 2 * 56 * 56 * 64, 4 * 9 * 64 * 128, 4 * 2 * 56 * 56 * 128
    inside = math.hypot(flops / 1e11, (image + filters + 2 * result) / 2e10)
    # Each is read and written elsewhere, and takes 0.2 steps for each of its elements.
    orders = (3 / 2e10 + 0.2 / 4 * 0.5e-9) * (image + filters + result)
    # Four calls of the library, 3.5 launches each.
    assert found.time.total == pytest.approx(inside + orders + 14e-6)


def test_filters_and_their_gradient_take_longer_to_change_their_order_backward() -> None:
    # A step takes no time, or 1 ns; the difference is that of the elements which change places.
    def orders(direction: Pass) -> float:
        case = convolution(direction)
        with_steps, without = (way("direct", case, scalar=each).time.total for each in (1e-9, 0.0))
        return float(with_steps - without)

    image, filters, result = 2 * 56 * 56 * 64, 9 * 64 * 128, 2 * 56 * 56 * 128
    expected = {
        Pass.FORWARD: 0.2 * (image + filters + result),
        Pass.INPUT_GRADIENT: 0.2 * (image + result) + 0.4 * filters,
        Pass.WEIGHT_GRADIENT: 0.2 * (image + result) + 0.8 * filters,
    }
    for direction, steps in expected.items():
        assert orders(direction) == pytest.approx(steps * 0.5e-9)


def test_blocks_of_channels_are_filled_up() -> None:
    # 20 channels fill two vectors of 16, 37 filters three.
    odd = way("direct", convolution(c=20, k=37)).time.compute
    assert odd == pytest.approx(way("direct", convolution(c=32, k=48)).time.compute)


def test_an_image_of_three_channels_is_read_as_it_is() -> None:
    plain, filled = (way("direct", convolution(c=c)) for c in (3, 4))
    assert plain.time.compute == pytest.approx(filled.time.compute * 3 / 16)
    # Its own order is kept: three calls instead of four.
    assert filled.time.overhead - plain.time.overhead == pytest.approx(3.5e-6)


def test_the_kernels_of_convolutions_go_by_their_windows() -> None:
    ones, threes = convolution(window=1), convolution(window=3)
    assert way("direct", ones) is None
    assert way("gemm_1x1", threes) is None
    assert way("explicit_gemm", ones) is None
    assert way("gemm_1x1", ones) is not None


def test_filters_of_few_channels_are_learned_by_writing_the_windows_out() -> None:
    back = Pass.WEIGHT_GRADIENT
    for groups, window in ((64, 5), (16, 3)):
        case = convolution(back, c=64, k=64, window=window, groups=groups)
        assert way("direct", case) is None
        assert way("explicit_gemm", case) is not None
        assert way("direct", replace(case, direction=Pass.FORWARD)) is not None
    for groups, window in ((64, 3), (8, 3)):
        assert way("direct", convolution(back, c=64, k=64, window=window, groups=groups))


@pytest.mark.parametrize("direction", list(LAYER_PASSES))
@pytest.mark.parametrize("groups", [1, 4, 64])
def test_convolutions_of_many_batches_are_those_of_each(direction: Pass, groups: int) -> None:
    target = Target(paleo.find_device("EPYC_7742"))
    batches = [1, 3, 64]
    together = TILED.price(
        convolution(direction, batch=np.array(batches), c=64, k=64, groups=groups), target
    )
    alone = [
        TILED.price(convolution(direction, batch=n, c=64, k=64, groups=groups), target)
        for n in batches
    ]
    assert list(np.asarray(together.total)) == [each.total for each in alone]


def test_products_of_many_sizes_are_those_of_each() -> None:
    rows = [1, 2, 100]
    together = cpu.price(MatMul(np.array(rows), 500, 800, 4), machine())
    alone = [cpu.price(MatMul(m, 500, 800, 4), machine()).total for m in rows]
    assert list(np.asarray(together.total)) == alone


def test_a_cpu_without_constants_of_its_own_has_those_of_cpus() -> None:
    device = paleo.find_device("XEON_8380")
    assert constants_of(device)["scalar"].value == pytest.approx(2.1e-9)
    assert machine_for(Target(device)).is_cpu
    assert not machine_for(Target(paleo.find_device("K80"))).is_cpu


def test_no_band_is_claimed_for_cpus() -> None:
    assert TILED.band(Like(NET), paleo.find_device("EPYC_7742")) is None


@pytest.mark.parametrize(
    "operation",
    [
        MatMul(64, 64, 64, 4), Stream(Kind.FUNCTION, (SMALL,), (SMALL,), function="relu"),
        Stream(Kind.BIAS, (8,), (8,)),
        BatchMatMul("lstm", 10, 20, 40, 10, 4, dependent=True), convolution(),
        convolution(Pass.WEIGHT_GRADIENT, groups=64, c=64, k=64, window=5),
        Pooling(Pass.FORWARD, 10, axes((8, 8), (2, 2), (2, 2), "VALID"), 4, 4, 4), Update(10, 4),
    ],
)  # fmt: skip
def test_what_is_explained_is_what_is_priced(operation: Operation) -> None:
    target = Target(paleo.find_device("EPYC_7742"))
    assert TILED.explain(operation, target).time == TILED.price(operation, target)


def test_cores_of_several_kinds_wait_for_the_slowest() -> None:
    # 14 cores have a fourteenth each: 14 efficient cores of 16 FLOPs a clock at 1.7 GHz, of which
    # long products reach 0.86.
    machine = machine_for(Target(paleo.find_device("CORE_I7_12700H")))
    assert machine.product_rate == pytest.approx(0.86 * 14 * 16 * 1.7e9)
    halves = machine_for(Target(paleo.find_device("CORE_I7_12700H"), "fp64"))
    assert halves.product_rate == pytest.approx(0.86 * 14 * 8 * 1.7e9)
    # A processor of one kind of core has all of its peak.
    xeon = machine_for(Target(paleo.find_device("XEON_8380")))
    assert xeon.vector_peak == paleo.find_device("XEON_8380").peak()


def test_functions_go_as_quickly_as_the_vectors() -> None:
    # 1e6 elements, a quarter of a step each, in which the vectors could do 225 FLOPs at 1e11.
    plain = Stream(Kind.FUNCTION, (SMALL,), (SMALL,), function="relu")
    gelu = replace(plain, function="gelu")
    assert seconds(gelu) - seconds(plain) == pytest.approx(1e6 * 0.25 * 225 / 1e11)
    # Steps of other code go with the clock, whatever the vectors do.
    assert seconds(gelu, scalar=1e-3) == seconds(gelu)


def test_a_kernels_tail_computes_for_each_element_of_the_result() -> None:
    target = Target(paleo.find_device("EPYC_7742"), training=False)
    norm = Stream(Kind.BATCH_NORM, (SMALL,), (SMALL,))
    relu = Stream(Kind.FUNCTION, (), (), function="relu")
    relued, gelued = (Fused(norm, (replace(relu, function=each),)) for each in ("relu", "gelu"))
    longer = TILED.price(gelued, target).total - TILED.price(relued, target).total
    vectors = paleo.find_device("EPYC_7742").peak()
    assert longer == pytest.approx(1e6 * 0.25 * 225 / vectors)
    assert TILED.explain(gelued, target).time == TILED.price(gelued, target)


def test_what_follows_a_bias_is_a_kernel_of_its_own() -> None:
    # The product or convolution before has added the bias: what is left reads and writes as much.
    target = Target(paleo.find_device("EPYC_7742"), training=False)
    bias = Stream(Kind.BIAS, (SMALL,), (SMALL,))
    tail = Stream(Kind.FUNCTION, (), (), function="gelu")
    alone = replace(tail, reads=(SMALL,), writes=(SMALL,))
    assert TILED.price(Fused(bias, (tail,)), target) == TILED.price(alone, target)
    assert TILED.explain(Fused(bias, (tail,)), target).time == TILED.price(alone, target)
    # So do two of them: one kernel, with the second behind the first.
    twice = TILED.price(Fused(bias, (tail, tail)), target)
    assert twice == TILED.price(Fused(alone, (tail,)), target)
    assert TILED.price(bias, target).total == 0


@pytest.mark.parametrize("direction", LAYER_PASSES)
def test_images_with_their_channels_last_stay_as_they_are(direction: Pass) -> None:
    operation = convolution(direction, c=64, k=64)
    blocks, last = (
        way("direct", operation, memory_format=each).time
        for each in ("contiguous", "channels_last")
    )
    # Of three tensors the filters change their order, and one call of the library is left for that:
    # two calls fewer, of 3.5 launches each. Multiplications are the same.
    assert blocks.overhead - last.overhead == pytest.approx(2 * 3.5e-6)
    assert blocks.compute == last.compute
    assert blocks.memory > last.memory


def test_channels_that_are_last_fill_no_blocks() -> None:
    # 24 channels in blocks of 16 are 32, 20 are 32, too; channels last they are 24, and 24 of 8.
    narrow = convolution(c=24, k=20)
    blocks, last = (
        way("direct", narrow, memory_format=each).time for each in ("contiguous", "channels_last")
    )
    assert blocks.compute / last.compute == pytest.approx((32 * 32) / (24 * 24))


def test_memory_of_large_tensors_is_handed_over_page_by_page() -> None:
    # A result of 4096 x 4096 numbers is 64 MiB: 16,384 pages of 4 KiB, 1 us each, on two cores.
    # One of 2048 rows is 32 MiB, which the C library keeps.
    for rows, pages in ((4096, 16384), (2048, 0)):
        product = MatMul(rows, 4096, 64, 4)
        longer = seconds(product, fault=1e-6) - seconds(product)
        assert longer == pytest.approx(pages * 1e-6 / 2, abs=1e-12)
    # So are 1024 x 4096 x 3 x 3 filters in the order of blocks, 36,864 pages, but no small image.
    filters = convolution(batch=1, side=4, c=1024, k=4096)
    slow, quick = (way("direct", filters, fault=each).time.total for each in (1e-6, 0.0))
    assert slow - quick == pytest.approx(36864e-6 / 2)


def test_generated_code_takes_a_root_for_each_element_of_a_batch_normalization() -> None:
    target = Target(paleo.find_device("EPYC_7742"), training=False)
    relu = Stream(Kind.FUNCTION, (), (), function="relu")
    norm, copy = (Stream(kind, (SMALL,), (SMALL,)) for kind in (Kind.BATCH_NORM, Kind.COPY))
    normed, copied = (TILED.price(Fused(each, (relu,)), target) for each in (norm, copy))
    # 1e6 elements, 0.11 steps each, in which the vectors could do 225 FLOPs.
    vectors = paleo.find_device("EPYC_7742").peak()
    assert normed.compute - copied.compute == pytest.approx(1e6 * 0.11 * 225 / vectors)
