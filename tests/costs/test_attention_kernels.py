"""Kernels of attention that libraries have: tiles, packed heads, windows, splits; by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import paleo
from paleo.core.operations import Attention, Pass
from paleo.costs import COST_MODELS, Target
from paleo.costs.tiled import attention, attention_kernels
from paleo.costs.tiled.attention_kernels import ATTENTION_KERNELS, CONSTANTS, AttentionKernel, Tile
from paleo.costs.tiled.backends import BACKENDS
from paleo.costs.tiled.constants import CONSTANTS as MACHINE_CONSTANTS
from paleo.costs.tiled.kernel_files import KernelFiles
from paleo.costs.tiled.machine import Machine

TILED = COST_MODELS["tiled"]
#: 100 multiprocessors of 1 TFLOP/s, exponentials for nothing, memory for nothing.
ROUND: dict[str, Any] = {
    "multiprocessors": 100,
    "matrix_peak": 100e12,
    "vector_peak": 10e12,
    "bandwidth": 1e30,
    "cache": 1.0,
    "clock": 1e9,
    "power": math.inf,
    "element_size": 2,
    **{name: 1.0 if each.unit == "1" else 0.0 for name, each in MACHINE_CONSTANTS.items()},
    "exponentials": 1e30,
    "architecture": "Hopper",
}
#: 128 x 128 scores over 128 + 128 features: 8.389 MFLOP.
BLOCK = 2 * 128 * 128 * 256 / 1e12
#: 1 of every constant that is a share, 0 of those that are times or nothing unless given.
PLAIN = {name: 1.0 if each.value else 0.0 for name, each in CONSTANTS.items()}


def machine(**changes: Any) -> Machine:
    return Machine(**{**ROUND, **changes})


@pytest.fixture
def a_kernel(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that makes a kernel "ours" of some form, with some constants."""

    def make(constants: Mapping[str, float] | None = None, **form: Any) -> None:
        kernel = AttentionKernel("ours", "ours", "nowhere", **form)
        kernels = {**ATTENTION_KERNELS, "ours": kernel}
        monkeypatch.setattr(attention, "ATTENTION_KERNELS", kernels)
        known = {"Hopper": {**PLAIN, **(constants or {})}}
        monkeypatch.setattr(attention_kernels, "FILES", lambda name: known)

    return make


def prefill(heads: int, length: int, sharing: int = 1, **changes: Any) -> Attention:
    fields: dict[str, Any] = {"causal": True, "kernel": "ours", **changes}
    return Attention(Pass.FORWARD, heads, sharing, length, length, 128, 128, 2, **fields)


def decode(heads: int, keys: int, sharing: int = 1, **changes: Any) -> Attention:
    fields: dict[str, Any] = {"causal": True, "kernel": "ours", **changes}
    return Attention(Pass.FORWARD, heads, sharing, 1, keys, 128, 128, 2, **fields)


def seconds(operation: Attention, **changes: Any) -> float:
    return float(attention.price(operation, machine(**changes)).total)


def test_tiles_have_the_kernels_own_size(a_kernel: Any) -> None:
    # 512 queries in tiles of 128 see 1, 2, 3 and 4 blocks of 128 keys: 1,000 heads have 10,000
    # blocks, 100 for each multiprocessor.
    a_kernel(packed=(0,))
    assert seconds(prefill(1000, 512)) == pytest.approx(100 * BLOCK)
    # Tiles of 64 queries: 1, 1, 2, 2, 3, 3, 4, 4 of half a block each, as long together.
    a_kernel(tiles=(Tile(64, 128),), packed=(0,))
    assert seconds(prefill(1000, 512)) == pytest.approx(100 * BLOCK)
    # Tiles of 128 queries by 64 keys: 2, 4, 6 and 8 of half a block.
    a_kernel(tiles=(Tile(128, 64),), packed=(0,))
    assert seconds(prefill(1000, 512)) == pytest.approx(100 * BLOCK)
    # One head: a tile's multiprocessor has at most 4 blocks, of 64 queries 4 half ones.
    assert seconds(prefill(1, 512)) == pytest.approx(8 * BLOCK / 2)
    a_kernel(tiles=(Tile(64, 128),), packed=(0,))
    assert seconds(prefill(1, 512)) == pytest.approx(4 * BLOCK / 2)


def test_the_tile_follows_from_the_features(a_kernel: Any) -> None:
    a_kernel(tiles=(Tile(128, 128, 64), Tile(64, 64)), packed=(0,))
    # 128 features: tiles of 64 x 64, of which one head of 128 queries has 1 and 2.
    assert seconds(prefill(1, 128)) == pytest.approx(2 * BLOCK / 4)
    # 64 features: one tile of 128 x 128 with half the FLOPs.
    few = Attention(Pass.FORWARD, 1, 1, 128, 128, 64, 64, 2, causal=True, kernel="ours")
    assert seconds(few) == pytest.approx(BLOCK / 2)


def test_tiles_are_those_of_the_architecture_and_of_the_length(a_kernel: Any) -> None:
    # 64 keys at most are one half of a block of 64 x 64; 65 of them are one of 64 x 128.
    tiles = (Tile(64, 64, until=64), Tile(64, 128))
    a_kernel(packed=(0,), own_tiles={"Hopper": tiles})
    assert seconds(decode(1, 64)) == pytest.approx(BLOCK / 4)
    assert seconds(decode(1, 65)) == pytest.approx(BLOCK / 2)
    assert seconds(decode(1, 64), architecture="Hopper") == pytest.approx(BLOCK / 4)
    # On no other architecture: of 128 rows 64 are computed.
    a_kernel(packed=(0,), own_tiles={"Ada": tiles})
    assert seconds(decode(1, 64)) == pytest.approx(BLOCK / 2)


def test_rows_are_computed_as_many_at_once_as_on_the_architecture(a_kernel: Any) -> None:
    # One query has 64 rows of a tile of 128 computed, by two groups of warps all of them.
    a_kernel(packed=(0,))
    assert seconds(decode(1, 128)) == pytest.approx(BLOCK / 2)
    a_kernel(packed=(0,), own_rows={"Hopper": 128})
    assert seconds(decode(1, 128)) == pytest.approx(BLOCK)
    a_kernel(packed=(0,), own_rows={"Ada": 128})
    assert seconds(decode(1, 128)) == pytest.approx(BLOCK / 2)


def test_a_multiprocessor_draws_so_many_bytes_a_clock(a_kernel: Any) -> None:
    # Two heads of 4,096 keys, 2 x 4,096 x 128 x 2 bytes each, on two multiprocessors of 1 GHz that
    # draw 10 bytes a clock; products of 32 blocks for half the rows take 0.134 ms.
    a_kernel({"loads": 10.0}, packed=(0,))
    assert seconds(decode(2, 4096)) == pytest.approx(2 * 4096 * 128 * 2 / 10e9)
    # 1,000 heads are 10 waves for 100 multiprocessors, which draw at once.
    loaded = 1000 * 2 * 4096 * 128 * 2 / (100 * 10e9)
    assert seconds(decode(1000, 4096)) == pytest.approx(loaded)


def test_exponentials_are_hidden_behind_products_of_slower_units(a_kernel: Any) -> None:
    # Products of a block and as long for exponentials: at half the pace products take 2 of 2 and
    # the rest (2^1.5 - 1)^(2/3) = 1.495, together (2^1.5 + 1.828)^(2/3) = 2.787.
    a_kernel({"exponentials": 1.0}, packed=(0,))
    clocks = {"matrix_clock": 1000.0, "exponentials": 128 * 128 / BLOCK / 1e9}
    assert seconds(prefill(1, 128), **clocks) == pytest.approx(2 * BLOCK)
    slow = seconds(prefill(1, 128), **clocks, matrix_peak=50e12)
    assert slow == pytest.approx(2.787 * BLOCK, rel=1e-3)


def test_wide_heads_leave_a_share_of_the_speed(a_kernel: Any) -> None:
    a_kernel({"wide": 0.5}, packed=(0,))
    assert seconds(prefill(1, 128)) == pytest.approx(BLOCK)
    # 160 features in both products are 1.25 times the FLOPs, at half the speed.
    wide = Attention(Pass.FORWARD, 1, 1, 128, 128, 160, 160, 2, causal=True, kernel="ours")
    assert seconds(wide) == pytest.approx(2 * 1.25 * BLOCK)


def test_features_are_rounded_up_to_what_a_kernel_is_compiled_for(a_kernel: Any) -> None:
    odd = Attention(Pass.FORWARD, 1, 1, 128, 128, 72, 72, 2, causal=True, kernel="ours")
    a_kernel(packed=(0,))
    assert seconds(odd) == pytest.approx(0.75 * BLOCK)  # 96 of 128, the next multiple of 32
    a_kernel(packed=(0,), sizes={"Hopper": (64, 80)})
    assert seconds(odd) == pytest.approx(80 / 128 * BLOCK)
    # Beyond its sizes, and of several at a time.
    wide = Attention(Pass.FORWARD, 1, 1, 128, 128, 128, 128, 2, causal=True, kernel="ours")
    assert seconds(wide) == pytest.approx(BLOCK)
    kernel = AttentionKernel("several", "", "", sizes={"Hopper": (64, 80)})
    found = kernel.padded(np.array([8, 64, 65, 81]), "Hopper")
    assert np.asarray(found).tolist() == [64, 64, 80, 96]


def test_rows_that_16_does_not_divide_take_their_times_as_long(a_kernel: Any) -> None:
    a_kernel({"unaligned": 3.0}, packed=(0,))
    for features, times in ((72, 3), (80, 1)):
        odd = Attention(
            Pass.FORWARD, 1, 1, 128, 128, features, features, 2, causal=True, kernel="ours"
        )
        assert seconds(odd) == pytest.approx(times * 0.75 * BLOCK)


def test_products_by_clocks_take_them_whatever_the_peak(a_kernel: Any) -> None:
    # 8.389 MFLOP of 512 a clock are 16,384 clocks of 1 ns.
    a_kernel({"clocked": 512.0}, packed=(0,))
    for peak in (100e12, 1000e12):
        assert seconds(prefill(1, 128), matrix_peak=peak) == pytest.approx(16384e-9)


def test_a_kernel_that_was_fitted_on_one_card_is_carried_to_others() -> None:
    kernel = ATTENTION_KERNELS["trtllm_xqa_mla"]
    for architecture in ("Ampere", "Blackwell RTX"):
        assert kernel.runs_on(architecture)
        assert kernel.constants(architecture) == kernel.constants("Ada")
    assert not kernel.runs_on("Hopper")


@pytest.mark.parametrize("name", ["flash_mla", "fa3_mla_decode", "trtllm_gen_mla"])
def test_latent_keys_are_split_however_many_heads_share_them(name: str) -> None:
    # 128 heads are two tiles of 64 rows: a step of one long prompt still fills a device.
    kernel = ATTENTION_KERNELS[name]
    on = "Blackwell" if name == "trtllm_gen_mla" else "Hopper"
    step = Attention(
        Pass.FORWARD, 128, 128, 1, 65_536, 576, 512, 2, values_in_keys=True, kernel=name
    )
    way = attention._by_kernel(step, machine(architecture=on))
    assert kernel.splits_tiles
    assert way.split > 1
    assert way.tiles == 2 * way.split


def test_multiprocessors_wait_for_uneven_tiles(a_kernel: Any) -> None:
    a_kernel({"uneven": 0.5}, packed=(0,))
    # 4,000 tiles on 100 multiprocessors: 100 blocks for each, and half of the longest tile's 4.
    assert seconds(prefill(1000, 512)) == pytest.approx(102 * BLOCK)
    # 120 tiles: 4 blocks are more than 300 / 100; a fifth of the tiles come second.
    assert seconds(prefill(30, 512)) == pytest.approx((4 + 0.5 * 4 * 0.2) * BLOCK)
    # 100 tiles do not wait for each other, and neither do equal ones.
    assert seconds(prefill(25, 512)) == pytest.approx(4 * BLOCK)
    assert seconds(prefill(100, 512, causal=False)) == pytest.approx(16 * BLOCK)


def test_keys_are_split_until_the_device_is_full(a_kernel: Any) -> None:
    form = {"packed": (1,), "splits_tiles": True, "fills": 2}
    merged = {"merge": 1e-9}
    a_kernel(merged, **form)
    # 10 heads of one tile and 100 multiprocessors: 20 parts of 128 keys, two for each, and 10 rows
    # to add up.
    assert seconds(decode(10, 2560)) == pytest.approx(2 * BLOCK / 2 + 10e-9)
    # A part has at least 128 keys: 512 are 4.
    assert seconds(decode(10, 512)) == pytest.approx(BLOCK / 2 + 10e-9)
    # 60 heads: 3 parts would fill 180 places of 200, of 20 blocks 7.
    assert seconds(decode(60, 2560)) == pytest.approx(2 * 7 * BLOCK / 2 + 60e-9)
    # 101 tiles fill the device already: two waves of 20 blocks.
    assert seconds(decode(101, 2560)) == pytest.approx(2 * 20 * BLOCK / 2)


def test_the_cache_has_a_rate_of_its_own(a_kernel: Any) -> None:
    # 10 bytes a ns for each of 100 multiprocessors, of memory 100.
    a_kernel({"cached": 10.0, "drawn": 1.0, "memory": 0.5}, packed=(0,))
    quick = {"matrix_peak": 1e30, "bandwidth": 1e11}
    keys, ends = 2 * 2 * 200 * 128 * 1000, 2 * 2 * 200 * 128
    # All fits 0.9 of the cache.
    large = {**quick, "cache": (keys + ends) / 0.9}
    assert seconds(decode(200, 1000), **large) == pytest.approx((keys + ends) / 1e12)
    # Nothing does: keys and values come at half the rate of memory.
    assert seconds(decode(200, 1000), **quick) == pytest.approx(keys / 5e10 + ends / 1e11)
    # Ten tiles draw a tenth of either.
    few = {**quick, "cache": 1e12}
    assert seconds(decode(10, 1000), **few) == pytest.approx((keys + ends) / 20 / 1e11)


def test_heads_that_share_keys_are_packed_or_not(a_kernel: Any) -> None:
    # Eight heads of one query each are one tile of 16 rows, or eight, as many rows each.
    tile = {"tiles": (Tile(16, 128),), "rows_at_once": 16}
    half = {"again": 1e-6}
    a_kernel(half, packed=(1,), **tile)
    together = seconds(decode(800, 128, 8))
    a_kernel(half, packed=(0,), **tile)
    alone = seconds(decode(800, 128, 8))
    # 100 tiles are one wave; 800 are eight, of which seven add 1 us each.
    assert together == pytest.approx(BLOCK / 8)
    assert alone == pytest.approx(8 * BLOCK / 8 + 7e-6)


def test_keys_are_split_where_that_is_quicker(a_kernel: Any) -> None:
    # 12,800 keys are 100 blocks of one tile; in four parts, 25 and 1 us to add them up.
    a_kernel({"combine": 1e-6}, splits=(1, 4), rows_at_once=128)
    assert seconds(decode(1, 12800)) == pytest.approx(25 * BLOCK + 1e-6)
    # That does not pay for two blocks. Tiles of a prompt are not split unless the kernel does.
    assert seconds(decode(1, 256), matrix_peak=100e15) == pytest.approx(2 * BLOCK / 1000)
    long = prefill(1, 256, causal=False, kernel="ours")
    assert seconds(long) == pytest.approx(2 * BLOCK)
    a_kernel({}, splits=(1, 2), splits_tiles=True)
    assert seconds(long) == pytest.approx(BLOCK)


def test_a_window_is_left_alone_or_computed(a_kernel: Any) -> None:
    windowed = prefill(1000, 1280, window=128)
    # Ten tiles see 1, 2, 2, ... 2 blocks through a window, 19; and 55 without.
    a_kernel(packed=(0,))
    assert seconds(windowed) == pytest.approx(190 * BLOCK)
    a_kernel(packed=(0,), skips_window=False)
    assert seconds(windowed) == pytest.approx(550 * BLOCK)
    # With a window, some kernels neither pack heads nor split keys: eight heads are eight tiles
    # that walk over the ten blocks of their window each.
    a_kernel(packed=(1,), splits=(1, 10), rows_at_once=128, window_alone=True)
    assert seconds(decode(8, 12800, 8)) == pytest.approx(10 * BLOCK)
    assert seconds(decode(8, 12800, 8, window=1280)) == pytest.approx(10 * BLOCK)
    assert seconds(decode(800, 12800, 8, window=1280)) == pytest.approx(80 * BLOCK)


def test_times_of_tiles_and_blocks_add_up(a_kernel: Any) -> None:
    constants = {"start": 1e-6, "fill": 2e-6, "again": 3e-6, "step": 1e-7, "head": 1e-8}
    a_kernel(constants, packed=(0,), rows_at_once=128)
    # 300 heads of one query and 256 keys: three waves of two blocks.
    expected = 1e-6 + 2e-6 + 2 * 3e-6 + 2 * 1e-7 + 3 * 1e-8 + 6 * BLOCK
    assert seconds(decode(300, 256)) == pytest.approx(expected)
    # Half the speed, or half the rate of memory: 2 x 2 x 256 x 128 x 300 bytes at 1 TB/s.
    a_kernel({"share": 0.5}, packed=(0,), rows_at_once=128)
    assert seconds(decode(300, 256)) == pytest.approx(12 * BLOCK)
    a_kernel({"memory": 0.5, "drawn": 1.0}, packed=(0,))
    small = 2 * 2 * 300 * 128 / 1e12
    slow = seconds(decode(300, 256), bandwidth=1e12, matrix_peak=1e30)
    assert slow == pytest.approx(2 * 2 * 2 * 256 * 128 * 300 / 1e12 + small)


def test_lanes_read_the_keys_of_each_head(a_kernel: Any) -> None:
    a_kernel({"lanes": 10.0}, packed=(0,))
    # A head has 2 x 1,000 x 128 elements, 10 a ns; 200 heads are two waves, whoever shares keys.
    for sharing in (1, 50):
        found = seconds(decode(200, 1000, sharing))
        assert found == pytest.approx(2 * 2 * 1000 * 128 / 10 * 1e-9)
    # Keys of one byte are turned into others first, 4 a ns, where that has a price.
    assert seconds(decode(200, 1000, kv_size=1)) == pytest.approx(2 * 2 * 1000 * 128 / 10 * 1e-9)
    a_kernel({"lanes": 10.0, "narrow_lanes": 4.0}, packed=(0,))
    assert seconds(decode(200, 1000, kv_size=1)) == pytest.approx(2 * 2 * 1000 * 128 / 4 * 1e-9)


def test_kernels_are_for_architectures() -> None:
    query = Attention(Pass.FORWARD, 8, 1, 1, 100, 128, 128, 2, causal=True, kernel="fa3_decode")
    with pytest.raises(paleo.PaleoError) as caught:
        TILED.price(query, Target(paleo.find_device("B200_SXM"), "bf16"))
    assert str(caught.value) == (
        "nothing is known of the attention kernel fa3_decode on Blackwell; it is for Ampere, Hopper"
    )
    other = Attention(Pass.FORWARD, 8, 1, 1, 100, 128, 128, 2, causal=True, kernel="fa3")
    with pytest.raises(paleo.PaleoError, match="unknown attention kernel 'fa3'"):
        TILED.price(other, Target(paleo.find_device("H100_SXM"), "bf16"))


def test_constants_are_read_and_bounded(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for kernel in ATTENTION_KERNELS.values():
        assert any(map(kernel.runs_on, ("Ampere", "Ada", "Hopper", "Blackwell")))
    monkeypatch.setattr(attention_kernels, "FILES", KernelFiles(tmp_path, CONSTANTS))
    (tmp_path / "odd.toml").write_text(
        'name = "odd"\n[sources]\nus = "here"\n[Hopper]\nstrat = { value = 1, source = "us" }\n'
        'share = { value = 7, source = "us" }\n'
    )
    with pytest.raises(paleo.PaleoError) as caught:
        AttentionKernel("odd", "", "").constants("Hopper")
    assert [str(mistake) for mistake in caught.value.mistakes] == [
        "odd.toml: key \"Hopper.strat\": unknown constant (did you mean 'start'?)",
        'odd.toml: key "Hopper.share": expected 0.01 to 2 (share of a product\'s speed), got 7',
    ]


def test_backends_run_what_their_architecture_has() -> None:
    def runs(name: str, architecture: str, **what: Any) -> str:
        return BACKENDS[name].attention(architecture, **{"is_narrow": False, **what})

    assert runs("sglang", "Hopper", is_step=False) == "fa3_prefill"
    assert runs("vllm", "Blackwell", is_step=True) == "trtllm_gen_generation"
    # vLLM has FlashAttention-2 for keys of 2 bytes and FlashInfer for those of 1.
    assert runs("vllm", "Ada", is_step=True) == "fa2_decode"
    assert runs("vllm", "Ada", is_step=True, is_narrow=True) == "flashinfer_decode"
    # TensorRT-LLM's XQA is for up to 32 heads that share keys.
    assert runs("trtllm", "Hopper", is_step=True, sharing=32) == "trtllm_xqa"
    assert runs("trtllm", "Hopper", is_step=True, sharing=64) == "trtllm_mmha"
    shared = {"is_step": True, "is_narrow": True}
    assert runs("trtllm", "Hopper", sharing=8, **shared) == "trtllm_xqa_sm90"
    assert runs("trtllm", "Hopper", sharing=1, **shared) == "trtllm_xqa"
    assert runs("sglang", "Kepler", is_step=True) == ""
    for backend in BACKENDS.values():
        for kernels in (backend.prompt, backend.step):
            for architecture, pair in kernels.items():
                assert all(ATTENTION_KERNELS[name].runs_on(architecture) for name in pair)
        assert backend.launches.keys() <= ATTENTION_KERNELS.keys()


SIZES = st.tuples(
    st.sampled_from([1, 3, 64]), st.sampled_from([1, 2, 8, 48]), st.sampled_from([1, 2, 100, 600]),
    st.sampled_from([0, 1, 5000]), st.sampled_from([64, 128, 192, 256]), st.sampled_from([0, 128]),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(ATTENTION_KERNELS)), st.lists(SIZES, min_size=1, max_size=4))
def test_arrays_have_the_numbers_of_one_by_one(kernel: str, sizes: list[tuple[int, ...]]) -> None:
    devices = ("A100_SXM_80GB", "H100_SXM", "B200_SXM", "L40S", "RTX_PRO_6000")
    found = [paleo.find_device(name) for name in devices]
    device = next(each for each in found if ATTENTION_KERNELS[kernel].runs_on(each.architecture))
    target = Target(device, "bf16")

    def operation(
        groups: Any, sharing: Any, queries: Any, more: Any, depth: Any, window: Any
    ) -> Attention:
        return Attention(
            Pass.FORWARD, groups * sharing, sharing, queries, queries + more, depth, depth, 2,
            True, window, 1, kernel,
        )  # fmt: skip

    columns = [np.array(column) for column in zip(*sizes, strict=True)]
    together = np.broadcast_to(TILED.price(operation(*columns), target).total, len(sizes))
    for size, time in zip(sizes, together, strict=True):
        assert TILED.price(operation(*size), target).total == time
        assert TILED.explain(operation(*size), target).time.total == time


def test_the_explanation_names_the_kernel_and_its_speed() -> None:
    # Triton's tiles on Blackwell reach a tenth of the speed: four times slower and more.
    target = Target(paleo.find_device("B200_SXM"), "bf16")
    slow = prefill(128, 8192, kernel="triton_extend_sm90")
    quick = prefill(128, 8192, kernel="trtllm_gen_context")
    found = TILED.explain(slow, target)
    assert found.algorithm == (
        "fused attention, SGLang's Triton kernel, prompts, on Hopper and Blackwell"
    )
    assert dict(each[:2] for each in found.details)["share of a product's speed"] == 0.119
    assert found.time.total > 4 * TILED.price(quick, target).total
