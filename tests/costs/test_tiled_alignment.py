"""Products whose rows are no whole pieces of 16 bytes: which kernels the library has for them."""

from __future__ import annotations

import numpy as np
import pytest

import paleo
from paleo.core.operations import GroupedMatMul, MatMul, Pass
from paleo.costs import COST_MODELS, Target
from paleo.costs.tiled.alignment import load_share, share_of

#: Shares of an aligned product's speed on Hopper.
WORDS, ELEMENTS, TURNED = 0.35, 0.175, 0.65


def product(
    rows: int, outputs: int, features: int, direction: Pass = Pass.FORWARD, size: int = 2
) -> MatMul:
    """Return a linear layer's product in a pass."""
    m, n, k = {
        Pass.FORWARD: (rows, outputs, features),
        Pass.INPUT_GRADIENT: (rows, features, outputs),
        Pass.WEIGHT_GRADIENT: (features, outputs, rows),
    }[direction]
    return MatMul(m, n, k, size, direction=direction)


@pytest.mark.parametrize("direction", [Pass.FORWARD, Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT])
def test_both_widths_of_a_layer_are_pitches_and_its_rows_are_none(direction: Pass) -> None:
    def share(rows: int, outputs: int, features: int) -> object:
        return share_of(product(rows, outputs, features, direction), "Hopper")

    assert share(4097, 50304, 768) == 1.0  # 50,304 and 768 elements of 2 bytes: whole pieces
    assert share(4096, 50258, 768) == share(4096, 768, 1002) == WORDS  # of 4 bytes
    assert share(4096, 50257, 768) == share(4096, 768, 1001) == ELEMENTS


def test_elements_of_four_bytes_are_words() -> None:
    assert share_of(product(64, 4, 8, size=4), "Hopper") == 1.0
    assert share_of(product(64, 5, 8, size=4), "Hopper") == WORDS
    # Both operands of a weight gradient lie along the other dimension.
    aligned, odd = (product(64, n, 8, Pass.WEIGHT_GRADIENT, 4) for n in (4, 5))
    assert (share_of(aligned, "Hopper"), share_of(odd, "Hopper")) == (TURNED, WORDS)


def test_shares_of_arrays_are_element_by_element() -> None:
    outputs = np.array([8, 12, 9])
    found = share_of(MatMul(64, outputs, 16, 2), "Hopper")
    assert np.asarray(found).tolist() == [1.0, WORDS, ELEMENTS]


def test_rows_of_no_whole_words_have_kernels_of_turing_on_ampere_half_as_quick() -> None:
    """As on Hopper, where kernels of Turing reach 0.175 and those of Ampere 0.35."""
    shares = [share_of(product(64, n, 16), "Ampere") for n in (8, 10, 9)]
    assert shares == [1.0, 1.0, 0.5]
    assert share_of(product(64, 9, 16, size=4), "Ampere") == 1.0
    assert share_of(product(64, 9, 16), "Volta") == 1.0


def test_rows_of_groups_are_no_pitches_of_the_gradient_of_their_weights() -> None:
    """Experts of 1,229 tokens each have a weight gradient little longer than those of 1,232."""
    for name in ("B200_SXM", "H100_SXM", "A100_SXM_80GB"):
        target = Target(paleo.find_device(name), "bf16")
        odd, even = (
            COST_MODELS["tiled"]
            .price(
                GroupedMatMul("experts", 20, 20 * rows, 3072, 5120, 2, Pass.WEIGHT_GRADIENT), target
            )
            .total
            for rows in (1229, 1232)
        )
        assert odd == pytest.approx(even, rel=0.01)


def test_devices_before_load_operands_at_half_the_rate() -> None:
    assert (load_share((2, 2), (16, 9), "Ampere"), load_share((2, 2), (16, 8), "Ampere")) == (
        0.5,
        1.0,
    )
    assert load_share((2, 2), (16, 9), "Hopper") == 1.0


def test_a_head_of_50257_words_takes_several_times_that_of_50304() -> None:
    target = Target(paleo.find_device("H100_SXM"), "bf16")
    price = COST_MODELS["tiled"].price
    odd, padded = (price(product(8192, words, 768), target).total for words in (50257, 50304))
    # Measured on an H100: 6.68 ms, and on an H200 0.88 for 50,256.
    assert 4 < odd / padded < 8
