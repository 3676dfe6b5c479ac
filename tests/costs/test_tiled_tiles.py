"""Tiles of many products at once, where one is tried alone: the numbers of all tiles."""

from __future__ import annotations

import numpy as np
import pytest

from paleo.costs.tiled.gemm import choose
from paleo.costs.tiled.machine import Machine
from tests.costs.test_tiled_gemm import HALVES, LANES, machine

#: Lanes that need many warps, and a chip whose power they use up.
HUNGRY = machine(**LANES, filling=4.0, lanes=128, power=60.0, latency=2e-7)


@pytest.mark.parametrize(
    "own", [machine(), machine(architecture="Ampere"), machine(architecture="Ada"), HUNGRY]
)
@pytest.mark.parametrize(("n", "k"), [(64, 576), (100, 1152), (512, 4608), (2048, 512)])
def test_of_many_rows_one_tile_is_tried_where_none_is_quicker(own: Machine, n: int, k: int) -> None:
    # From 1 to 49 million rows, by steps of half a percent: the last of them are all settled.
    m = np.unique((1.005 ** np.arange(3554)).astype(np.int64))
    sizes = HALVES if own.matrix_peak else (4, 4, 4)
    assert len(m) > 2048
    together = choose(m, n, k, own, sizes=sizes, splits=(1,)).time
    for i in [*range(0, len(m), 50), len(m) - 1]:
        alone = choose(int(m[i]), n, k, own, sizes=sizes, splits=(1,)).time
        assert [part[i] for part in np.broadcast_arrays(*together, m)[:4]] == list(alone)


@pytest.mark.parametrize(
    "own", [machine(), machine(architecture="Ampere"), machine(architecture="Ada"), HUNGRY]
)
@pytest.mark.parametrize(("n", "k", "count"), [(1000, 2048, 1), (1, 4096, 1), (512, 512, 36)])
def test_rows_that_are_in_as_many_tiles_are_ranked_once(
    own: Machine, n: int, k: int, count: int
) -> None:
    """A vector among them, rows that do not fill a tile, and every split of K."""
    m = np.arange(1, 6001)
    sizes = HALVES if own.matrix_peak else (4, 4, 4)
    together = choose(m, n, k, own, sizes=sizes, count=count).time
    for i in [*range(140), *range(140, len(m), 61), len(m) - 1]:
        alone = choose(int(m[i]), n, k, own, sizes=sizes, count=count).time
        assert [part[i] for part in np.broadcast_arrays(*together, m)[:4]] == list(alone)


@pytest.mark.parametrize("own", [machine(), HUNGRY])
def test_parts_of_a_row_are_no_whole_rows(own: Machine) -> None:
    m = np.arange(1, 3001) * 0.75
    together = np.asarray(choose(m, 1000, 2048, own, sizes=(4, 4, 4)).time.total)
    for i in range(0, len(m), 37):
        assert together[i] == choose(float(m[i]), 1000, 2048, own, sizes=(4, 4, 4)).time.total
