"""Sparse attention: scores of an indexer, the best of them, and attention to selected keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import paleo
from paleo.core.selection import IndexScores, Select, SelectedAttention
from paleo.costs.model import Target
from paleo.costs.tiled import selection
from paleo.costs.tiled.machine import machine_for
from paleo.costs.tiled.selection import _FOLDER, CONSTANTS, SELECTION_KERNELS

TILED = paleo.costs.find_cost_model("tiled")
H100 = Target(paleo.find_device("H100_SXM"), "fp8")
#: Nothing takes time but what a test says, and a byte.
FREE = {
    "start": 0.0, "row": 0.0, "step": 0.0, "pair": 1.0, "cached": 1e9,
}  # fmt: skip


def attention(**changes: Any) -> SelectedAttention:
    given = {
        "queries": 132, "heads": 16, "keys": 640, "kept": 5000, "depth": 576, "value_depth": 512,
        "kernel": "flash_mla_compressed",
    }  # fmt: skip
    return SelectedAttention(**{**given, **changes})


def clocks(operation: Any, **constants: float) -> Any:
    """Return the clocks of an operation by its kernel with these constants."""
    machine = machine_for(H100)
    return selection.price_with(operation, machine, {**FREE, **constants}).total * machine.clock


def test_work_of_scores_selection_and_attention() -> None:
    scores = IndexScores(2, 10, 1000, 64, 128, "paged_scores")
    assert scores.flops == 2 * 10 * 1000 * 64 * 128
    # Keys of 128 bytes with a scale of 4; scores of 4.
    assert scores.reads == (10 * 64 * 132, 2 * 1000 * 132)
    assert scores.writes == (4 * 10 * 1000,)
    assert IndexScores(2, 10, 1000, 1, 128, "paged_scores", "bf16").key_bytes == 256
    assert Select(10, 1000, 64, "topk_sglang").reads == (4 * 10 * 1000,)
    assert Select(10, 1000, 64, "topk_sglang").writes == (4 * 10 * 64,)
    own = attention(key_size=1)
    assert own.flops == 2 * 132 * 16 * 640 * (576 + 512)
    assert own.reads == (2 * 132 * 16 * 576, 5000 * 576)
    assert own.writes == (2 * 132 * 16 * 512,)


def test_blocks_of_keys_follow_one_another_on_each_multiprocessor() -> None:
    # 640 keys are 10 blocks; one query a multiprocessor, 16 heads of which fill a tile of 64.
    assert clocks(attention(), start=7, step=10) == pytest.approx(7 + 100)
    assert clocks(attention(heads=128), step=10) == pytest.approx(200)
    assert clocks(attention(heads=128), step=10, pair=0.7) == pytest.approx(140)
    # One query's blocks are spread; kernels of prompts go along all of them.
    assert clocks(attention(queries=1), step=10) == pytest.approx(10)
    whole = attention(queries=1, kernel="dsa_trtllm_hopper")
    assert clocks(whole, step=10) == pytest.approx(100)
    assert clocks(attention(queries=264), row=50, step=10) == pytest.approx(2 * (100 + 50))


def test_keys_come_from_the_last_cache_where_it_holds_them() -> None:
    # Each of 132 queries reads 640 keys of 1,152 bytes, at 20 bytes a clock.
    few = attention()
    assert clocks(few, cached=20) == pytest.approx(640 * 1152 / 20)
    machine = machine_for(H100)
    many = attention(kept=10**6)
    seconds = 132 * 640 * 1152 / (machine.bandwidth * machine.memory_share)
    assert clocks(many, cached=1e9) == pytest.approx(seconds * machine.clock)


def test_scores_of_pages_are_bytes_and_those_of_blocks_follow_one_another() -> None:
    pages = IndexScores(1, 132, 1000, 64, 128, "paged_scores")
    assert clocks(pages, start=3, cached=20) == pytest.approx(3 + 1000 * 132 / 20)
    # Two queries of 64 heads are a block of 128 rows: 4,096 of them are 31 a multiprocessor; 25,600
    # keys are 100 steps. One block takes all steps, too.
    blocks = IndexScores(1, 8192, 25_600, 64, 128, "scores_vllm")
    assert clocks(blocks, start=3, step=1000) == pytest.approx(3 + 4096 / 132 * 100 * 1000)
    one = IndexScores(1, 1, 25_600, 64, 128, "scores_vllm")
    assert clocks(one, step=1000) == pytest.approx(100 * 1000)
    # 300 queries of 2 sequences are two blocks of 128 each, for each of 4 heads: 16 blocks, of
    # which all fit; 1,000 keys are 8 steps.
    along = IndexScores(2, 300, 1000, 4, 128, "msa_along_sglang")
    assert clocks(along, step=10) == pytest.approx(80)
    assert clocks(IndexScores(2, 300, 1000, 40, 128, "msa_along_sglang"), step=10) == (
        pytest.approx(160)
    )


def test_a_selection_takes_a_block_for_each_row_and_none_where_all_are_taken() -> None:
    # Scores of 4 bytes are read twice, at 8 bytes a clock: as many clocks as there are.
    own = Select(264, 5000, 512, "topk_sglang")
    assert clocks(own, start=3, row=70, cached=8) == pytest.approx(3 + 2 * (70 + 5000))
    assert clocks(Select(264, 512, 512, "topk_sglang"), start=3, row=70, cached=8) == (
        pytest.approx(3)
    )
    assert clocks(Select(1, 5000, 512, "topk_sglang"), row=70, cached=8) == pytest.approx(5070)


def test_every_kernel_has_its_file_and_constants() -> None:
    assert {path.stem for path in _FOLDER.glob("*.toml")} == set(SELECTION_KERNELS)
    for kernel in SELECTION_KERNELS.values():
        for architecture in ("Ampere", "Hopper", "Blackwell", "Blackwell RTX"):
            assert set(kernel.constants(architecture)) == set(CONSTANTS)
        assert kernel.source
        assert kernel.summary


@pytest.mark.parametrize("name", ["flash_mla_compressed", "dsa_vllm"])
def test_arrays_are_priced_as_their_numbers_are(name: str) -> None:
    queries = np.array([1.0, 100.0, 5000.0])
    together = TILED.price(attention(queries=queries, kernel=name), H100).total
    alone = [TILED.price(attention(queries=each, kernel=name), H100).total for each in queries]
    assert together == pytest.approx(alone)
    found = TILED.explain(attention(queries=5000, kernel=name), H100)
    assert found.time.total == alone[2]
    assert "FlashMLA" in found.algorithm
