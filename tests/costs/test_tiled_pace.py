"""Boards whose matrix units are slower than those that shares of their peak are of; by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import paleo
from paleo.core.operations import Attention, MatMul, Pass
from paleo.costs import COST_MODELS, Target
from paleo.costs.tiled.constants import CONSTANTS
from paleo.costs.tiled.machine import Machine, machine_for

TILED = COST_MODELS["tiled"]


def machine(**changes: Any) -> Machine:
    """Return 100 multiprocessors of 1 TFLOP/s each, at 1.5625 GHz."""
    plain: dict[str, Any] = {name: float(each.unit == "1") for name, each in CONSTANTS.items()}
    return Machine(**{
        "multiprocessors": 100, "matrix_peak": 100e12, "vector_peak": 10e12, "bandwidth": 1e12,
        "cache": 1.0, "clock": 1.5625e9, "power": math.inf, "element_size": 2, **plain, **changes,
    })  # fmt: skip


def test_slower_matrix_units_hide_more_of_what_is_no_product() -> None:
    # Shares are of units that do 640 operations a clock (1 TFLOP/s at 1.5625 GHz). Of a loop that
    # reaches half of it products are half: seconds to the power of 1.5 that products and the rest
    # take, of 1 in all, are 0.5^1.5 = 0.354 and 0.646.
    fast = machine(matrix_clock=640.0, matrix_share=0.5)
    assert fast.pace == pytest.approx(1.0)
    assert fast.product_rate == pytest.approx(50e12)
    # At a quarter of the pace products take 2, and with the rest (2^1.5 + 0.646)^(2/3) = 2.294: of
    # 25 TFLOP/s 2 / 2.294 = 0.872.
    slow = machine(matrix_clock=640.0, matrix_share=0.5, matrix_peak=25e12)
    assert slow.pace == pytest.approx(0.25)
    assert slow.product_rate == pytest.approx(25e12 * 2 / 2.294, rel=1e-3)
    # Bytes are as quick as halves at twice the rate; and what is all products is so at any pace.
    bytes_ = replace(slow, matrix_peak=50e12, element_size=1)
    assert bytes_.pace == pytest.approx(0.25)
    assert replace(slow, matrix_share=1.0).product_rate == pytest.approx(25e12)
    # Where shares are of no device in particular, they hold at any pace; none is above theirs.
    assert replace(slow, matrix_clock=0.0).product_rate == pytest.approx(12.5e12)
    assert replace(fast, matrix_peak=200e12).product_rate == 100e12


def test_an_h20_has_a_quarter_of_the_pace_of_an_h100() -> None:
    # 148 TFLOP/s on 78 multiprocessors at 1.98 GHz are 958 a clock, of 3,785.
    found = machine_for(Target(paleo.find_device("H20_SXM"), "bf16"))
    assert found.pace == pytest.approx(148e12 / (78 * 1.98e9) / 3785)
    for name in ("H100_SXM", "H200_SXM", "H800_SXM"):
        assert machine_for(Target(paleo.find_device(name), "fp8")).pace == 1.0
    # DeepGEMM takes 4,469 us for 16,384 x 9,216 x 4,096 on it, and 22.4 for 16 rows
    # (alibaba/InferSim, bench_data/gemm/h20).
    target = Target(paleo.find_device("H20_SXM"), "fp8", training=False)
    for rows, seconds in ((16384, 4469e-6), (16, 22.43e-6)):
        product = MatMul(rows, 9216, 4096, 1, 2, kernel="deepgemm")
        assert TILED.price(product, target).total == pytest.approx(seconds, rel=0.06)


def test_an_h20_takes_what_was_measured_for_attention() -> None:
    # FlashAttention-3 of a prompt and FlashInfer of one query, 32 heads of which 4 share keys
    # (alibaba/InferSim, bench_data/mha): 16.02 ms for 16,384 tokens; 3.02 ms for 256 requests of
    # 8,192 keys, none of which a constant was fitted to.
    target = Target(paleo.find_device("H20_SXM"), "bf16", training=False)
    prompt = Attention(
        Pass.FORWARD, 32, 4, 16384, 16384, 128, 128, 2, causal=True, kernel="fa3_prefill"
    )
    assert TILED.price(prompt, target).total == pytest.approx(16.02e-3, rel=0.05)
    step = Attention(
        Pass.FORWARD, 256 * 32, 4, 1, 8192, 128, 128, 2, causal=True, kernel="flashinfer_decode"
    )
    assert TILED.price(step, target).total == pytest.approx(3.02e-3, rel=0.1)


def test_the_pace_may_be_an_array() -> None:
    peaks = np.array([100e12, 25e12])
    found = machine(matrix_clock=640.0, matrix_share=0.5, matrix_peak=peaks).product_rate
    one_by_one = [
        machine(matrix_clock=640.0, matrix_share=0.5, matrix_peak=peak).product_rate
        for peak in peaks.tolist()
    ]
    assert np.asarray(found).tolist() == pytest.approx(one_by_one, rel=1e-12)
