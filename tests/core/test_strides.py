"""Strides of views, by hand: a tensor of 8 samples of 5 x 6 x 4 elements, and parts of it."""

from __future__ import annotations

import pytest

from paleo.core.strides import Strides, are_rows, contiguous, dense, is_contiguous, reshaped

SHAPE = (8, 5, 6, 4)
#: 4 x 6 x 5 elements a sample, 4 x 6 a row of the second dimension, 4 of the third.
IN_ORDER = (120, 24, 4, 1)
#: Its second and third dimensions exchanged, of 8 x 6 x 5 x 4.
TURNED = (120, 4, 24, 1)


def test_in_order_each_dimension_steps_over_those_behind_it() -> None:
    assert contiguous(SHAPE) == IN_ORDER
    assert is_contiguous(SHAPE, IN_ORDER)
    assert not is_contiguous((8, 6, 5, 4), TURNED)
    # Where a dimension of 1 steps to does not matter.
    assert is_contiguous((8, 1, 4), (4, 99, 1))


def test_a_new_tensor_has_the_order_of_another_without_its_gaps() -> None:
    # Half of each row of 8: rows of 4 at a distance of 8.
    assert dense((2, 3, 4), (24, 8, 1)) == (12, 4, 1)
    assert dense((8, 6, 5, 4), TURNED) == TURNED


@pytest.mark.parametrize(
    ("shape", "strides", "output", "expected"),
    [
        (SHAPE, IN_ORDER, (8, 30, 4), (120, 4, 1)),
        (SHAPE, IN_ORDER, (8, 5, 3, 2, 4), (120, 24, 8, 4, 1)),
        # The last two dimensions of the turned one are 24 and 1 apart: no one step joins them.
        ((8, 6, 5, 4), TURNED, (8, 6, 20), None),
        ((8, 6, 5, 4), TURNED, (8, 3, 2, 5, 4), (120, 8, 4, 24, 1)),
        # A part of rows of 8: neighbours along the dimension before are 8 apart.
        ((2, 3, 4), (24, 8, 1), (2, 3, 2, 2), (24, 8, 2, 1)),
        ((2, 3, 4), (24, 8, 1), (2, 12), None),
    ],
)
def test_a_reshape_is_a_view_where_one_step_leads_through(
    shape: tuple[int, ...], strides: Strides, output: tuple[int, ...], expected: Strides | None
) -> None:
    assert reshaped(shape, strides, output) == expected


def test_rows_of_a_product_are_at_one_distance() -> None:
    assert are_rows(SHAPE, IN_ORDER, 1)
    assert not are_rows((8, 6, 5, 4), TURNED, 1)
    # As a batch of 5 x 4: 8 x 6 of them, 4 apart, but samples are 120 apart, not 6 x 4.
    assert not are_rows((8, 6, 5, 4), TURNED, 2)
    assert are_rows((8, 5, 4), (40, 8, 1), 1)
