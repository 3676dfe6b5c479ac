"""What is predicted of single batches: by whose host, and which are no batch at all."""

from __future__ import annotations

import pytest

from paleo.core.errors import SettingError
from paleo.measure.validate.batches import predicted
from paleo.measure.validate.served import prices_of
from paleo.measure.validate.serving_rows import BatchRow, Formats, Party
from paleo.step.serving.prices import Degrees

HALVES = Formats("fp16", "fp16", "", "fp16")


def row(requests: int, tp: int, **more: float) -> BatchRow:
    times = {"prefill_s": None, "decode_s": None} | more
    return BatchRow(
        "row", "by hand", "llama2_70b", "A100_SXM_80GB", "vllm_2023", "", 512, 128, requests,
        HALVES, Party(tp=tp), times["prefill_s"], times["decode_s"],
    )  # fmt: skip


def test_a_host_that_hands_over_kernels_bounds_a_token() -> None:
    prices = prices_of("llama2_70b", "A100_SXM_80GB", "vllm_2023", HALVES, "", Degrees(8))
    point = predicted(row(1, 8, decode_s=0.04))
    expected = prices.program.kernels * 42e-6 + 11e-3 + 0.4e-3
    assert point.tpot == pytest.approx(expected / 0.04)
    assert point.ttft is None


def test_requests_that_have_no_room_are_no_batch() -> None:
    # 69 GB of weights of two devices, of 77.3 GB: 8.3 GB less a step's own for 64 x 640 tokens of
    # 163,840 bytes, 6.7 GB.
    with pytest.raises(SettingError, match=r"the cache has room for .* requests of 64"):
        predicted(row(64, 2, decode_s=0.07))
    assert predicted(row(32, 2, decode_s=0.07)).tpot
