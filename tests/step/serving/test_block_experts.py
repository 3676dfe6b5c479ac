"""Experts in fp8 by blocks by versions of vLLM: which kernel, and what padding takes."""

from __future__ import annotations

import pytest

from paleo.core.operations import FusedExperts, MatMul, Stream
from paleo.step.serving.block_experts import How, how_of, padding
from paleo.step.serving.parts import Degrees

FI = "flashinfer_cutlass_fp8_block"


@pytest.mark.parametrize(
    ("version", "degrees", "how"),
    [
        ((0, 10, 2), Degrees(2), How()),
        ((0, 11, 2), Degrees(8), How("", True, True)),
        ((0, 12), Degrees(2), How("", True, True)),
        ((0, 12), Degrees(8), How()),
        ((0, 12), Degrees(8, ep=8), How("", True, True)),
        ((0, 13), Degrees(4), How("", True, False)),
        ((0, 14, 1), Degrees(8), How()),
        ((0, 16), Degrees(8), How(FI)),
        ((0, 18), Degrees(4), How()),
        ((0, 18), Degrees(4, ep=4), How(FI)),
        ((), Degrees(4), How()),
    ],
)
def test_kernels_are_those_of_the_version(
    version: tuple[int, ...], degrees: Degrees, how: How
) -> None:
    assert how_of(version, degrees) == how


def test_places_for_the_worst_case_are_multiplied() -> None:
    # Qwen3 235B on two devices: 16 tokens go to 8 of 128 experts; 100 of them have rows.
    experts = FusedExperts(
        16, 8, 4096, 768, ((100, 1.28), (28, 0.0)), 1, 1, True, "fp8", "vllm_triton_fp8_block"
    )
    assert padding(experts, 128, How()) == ()
    # 128 + 128 * 127 rows are 128 blocks of 128; 128 of the rows are counted with the experts.
    function, quantizer, first, second = padding(experts, 128, How("", True, True))
    assert isinstance(function, Stream)
    assert isinstance(quantizer, Stream)
    assert (function.reads, function.writes) == (((16384 - 128) * 3072,), ((16384 - 128) * 1536,))
    assert (quantizer.reads, quantizer.writes) == (((16384 - 128) * 1536,), ((16384 - 128) * 768,))
    # 100 blocks have rows, so that 28 are empty.
    assert isinstance(first, MatMul)
    assert isinstance(second, MatMul)
    assert (first.m, first.n, first.k) == (28 * 128, 1536, 4096)
    assert (second.m, second.n, second.k) == (28 * 128, 4096, 768)
    assert padding(experts, 128, How("", True, False)) == (function, quantizer)
