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
