"""The cost model `tiled` on every device, and where arrays meet numbers."""

from __future__ import annotations

import numpy as np
import pytest

import paleo
from paleo.core.operations import (
    Attention,
    BatchMatMul,
    Convolution,
    Fused,
    Kind,
    MatMul,
    Pass,
    Stream,
)
from paleo.core.tensor import element_size
from paleo.core.window import axes
from paleo.costs import COST_MODELS, Target
from paleo.costs.tiled.constants import CONSTANTS
from paleo.step.passes import BACKWARD, FORWARD, estimate_pass

TILED = COST_MODELS["tiled"]
DEVICES = paleo.device_names()


@pytest.mark.parametrize("name", DEVICES)
def test_a_large_product_uses_every_device_well(name: str) -> None:
    device = paleo.find_device(name)
    for dtype in device.peaks:
        # From cuBLAS 11 on, of the time of cuDNN 8, matrix units multiply bytes as they come.
        target = Target(device, dtype, constants={"library": 8})
        product = MatMul(4096, 4096, 4096, element_size(dtype))
        reached = product.flops / TILED.price(product, target).total / device.peak(dtype)
        assert 0.2 < reached <= 1.2, f"{dtype}: {reached}"
        # And its memory in one thin product, where the type is not an emergency.
        if dtype == "fp64":
            continue
        thin = MatMul(1, 32768, 8192, element_size(dtype))
        time = TILED.price(thin, target)
        moved = thin.work.num_bytes / (time.total - time.overhead) / device.memory_bandwidth
        assert 0.2 < moved <= 1.2, f"{dtype}: {moved}"


@pytest.mark.parametrize("peak", [5e12, 60e12, 300e12])
def test_a_device_of_ones_own_needs_no_number_of_multiprocessors(peak: float) -> None:
    device = paleo.Device.from_rates("own", clock=1.4e9, peak=peak, memory_bandwidth=900e9)
    product = MatMul(8192, 8192, 8192, 4)
    reached = product.flops / TILED.price(product, Target(device)).total / peak
    assert 0.6 < reached <= 1


@pytest.mark.parametrize("name", sorted(set(CONSTANTS) - {"library"}))
def test_each_constant_alone_may_be_an_array_of_trials(name: str) -> None:
    device = paleo.find_device("A100_SXM_80GB")
    constant = CONSTANTS[name]
    trials = np.linspace(constant.low, constant.high, 4)[1:]
    along = axes((28, 28), (3, 3), (2, 2), "SAME")
    for operation in (
        MatMul(300, 200, 4000, 2),
        BatchMatMul("gru", 7, 64, 96, 32, 2, dependent=True),
        BatchMatMul("matmul", 7, 64, 96, 32, 2),
        Convolution(Pass.WEIGHT_GRADIENT, 8, along, 32, 64, 2),
        Attention(Pass.FORWARD, 32, 4, 128, 128, 64, 64, 2),
        Stream(Kind.FUNCTION, (4000,), (4000,)),
        Fused(MatMul(300, 200, 4000, 2), (Stream(Kind.FUNCTION, (), (), 60_000),)),
    ):
        together = TILED.price(operation, Target(device, "fp16", constants={name: trials})).total
        for i, trial in enumerate(trials.tolist()):
            alone = TILED.price(operation, Target(device, "fp16", constants={name: trial})).total
            found = together[i] if np.ndim(together) else together  # type: ignore[index]
            assert found == alone


def test_what_moves_nothing_costs_nothing_in_arrays_as_in_numbers() -> None:
    # In a batch of 1, sums over samples have nothing to add up.
    net = paleo.load("bert_base")
    target = Target(paleo.find_device("A100_SXM_80GB"))
    batches = np.array([1, 3])
    together = paleo.build(net, batches)
    for directions in (FORWARD, BACKWARD):
        found = np.broadcast_to(estimate_pass(together, directions, target, TILED).upper, (2,))
        for i, batch in enumerate(batches.tolist()):
            alone = estimate_pass(paleo.build(net, batch), directions, target, TILED).upper
            assert found[i] == pytest.approx(alone, rel=1e-12)


def test_elements_of_one_byte_are_loaded_no_faster_than_those_of_two() -> None:
    device = paleo.find_device("H100_SXM")
    slow = Target(device, "bf16", constants={"load_share": 0.5, "latency": 0.0})
    byte = TILED.price(MatMul(8192, 8192, 8192, 1, 2), slow)
    half = TILED.price(MatMul(8192, 8192, 8192, 2), slow)
    assert byte.compute == pytest.approx(half.compute, rel=0.02)


def test_a_million_products_may_vary_in_any_of_their_sizes() -> None:
    target = Target(paleo.find_device("H100_SXM"), "bf16")
    n = np.arange(1, 20_001)
    found = TILED.price(MatMul(64, n, 512, 2), target).total
    assert found[12_345] == TILED.price(MatMul(64, 12_346, 512, 2), target).total  # type: ignore[index]
