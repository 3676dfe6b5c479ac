"""Convolutions that sum up halves in the model `tiled`, as cuDNN's TRUE_HALF_CONFIG; by hand."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest
import square_convolutions

from paleo.cluster import find_device
from paleo.core.operations import Pass
from paleo.costs import ConvolutionChoice, Target
from paleo.costs.convolutions.winograd import WINOGRAD_4X4
from paleo.costs.tiled import convolution, implicit_gemm, transforms
from paleo.costs.tiled.machine import Machine, machine_for

conv = functools.partial(square_convolutions.conv, element_size=2)


def in_halves(library: int = 6) -> Machine:
    """Return a P100 that sums up halves, as convolutions find it: 0.86 x 0.93 of 19.05 TFLOP/s."""
    choice = ConvolutionChoice(in_halves=True)
    target = Target(find_device("P100_PCIE"), "fp16", convolutions=choice)
    on = machine_for(replace(target, constants={"library": library}))
    return convolution.asked_for(conv(), on)


def test_halves_are_summed_up_in_tiles_of_256_positions() -> None:
    # 8 x 7 x 7 = 392 positions and 512 channels are 2 x 4 tiles of 256 x 128 for 56
    # multiprocessors. A tile's sums fill all lanes; it loads 128 / 256 + 128 / 128 elements where
    # 128 x 128 loads 2, which saves a quarter of 6 %. K = 2,048 has 8 more to fill the pipeline.
    on = in_halves()
    way = implicit_gemm.implicit(conv(n=8, c=2048, k=512, size=7, window=1), on)
    assert way
    assert way.choice
    assert (way.choice.rows, way.choice.columns, way.choice.tiles) == (256, 128, 8)
    rate = 0.86 * 0.93 * 19.05e12 / 56
    by_hand = 2 * 256 * 128 * 2056 / rate * (1 - 0.06 / 4)
    assert way.choice.time.compute == pytest.approx(by_hand, rel=1e-2)
    # As few channels as half of a tile have tiles of their own, also where there is work for all.
    few = implicit_gemm.implicit(conv(n=64, c=64, k=64), on)
    many = implicit_gemm.implicit(conv(n=64, c=64, k=72), on)
    assert few
    assert few.choice
    assert many
    assert many.choice
    assert (few.choice.columns, many.choice.columns) == (64, 128)


def test_filters_gradients_in_halves_are_a_kernel_for_each_row_of_the_output() -> None:
    # 14 launches of 7 us and one product, whose other 13 go before or after.
    on = in_halves()
    op = conv(Pass.WEIGHT_GRADIENT, n=8, c=256, k=256, size=14, window=1)
    way = implicit_gemm.implicit(op, on)
    assert way
    assert way.choice
    assert way.time.overhead - way.choice.time.overhead == pytest.approx(13 * 7e-6)
    # 256 x 256 is longer than wide in tiles: rows are inputs, columns are filters.
    assert (way.m, way.n, way.k) == (256, 256, 8 * 14 * 14)


def test_what_is_transformed_in_halves_moves_half_the_bytes() -> None:
    # 16 images of 56 x 56 are 14 x 14 tiles each of 36 numbers: of 64 channels and of 64 filters.
    op, halves = conv(), in_halves()
    numbers = 36 * 64 * (2 * 16 * 14 * 14 + 64)
    first, half = (
        sum(map(float, transforms._passes(WINOGRAD_4X4, op, on)))
        for on in (replace(halves, in_halves=False), halves)
    )
    assert first - half == pytest.approx(WINOGRAD_4X4.transform(op).moves * 2 * numbers)


def test_devices_without_pairs_of_halves_sum_up_in_single_precision() -> None:
    choice = ConvolutionChoice(in_halves=True)
    for device in ("M40", "V100_SXM2_16GB", "T4"):
        plain = Target(find_device(device), "fp16" if device != "M40" else "fp32")
        asked = replace(plain, convolutions=choice)
        op = conv()
        assert convolution.price(op, machine_for(asked)) == convolution.price(
            op, machine_for(plain)
        )
