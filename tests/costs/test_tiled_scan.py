"""Linear attention of serving frameworks: bytes, blocks that follow one another, and what waits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import paleo
from paleo.core.scanning import DeltaRule, ShortConvolution
from paleo.costs.model import Target
from paleo.costs.tiled import scan
from paleo.costs.tiled.machine import machine_for
from paleo.costs.tiled.scan_kernels import _FOLDER, CONSTANTS, SCAN_KERNELS

TILED = paleo.costs.find_cost_model("tiled")
H100 = Target(paleo.find_device("H100_SXM"), "bf16")
#: Nothing takes time but what a test says; memory is of no weight.
FREE = dict.fromkeys(CONSTANTS, 0.0) | {"share": 1e6}


def rule(kernel: str, **changes: Any) -> DeltaRule:
    given = {
        "sequences": 2, "positions": 130, "groups": 4, "heads": 8, "depth": 128,
        "value_depth": 128, "kernel": kernel,
    }  # fmt: skip
    return DeltaRule(**{**given, **changes})


def clocks(operation: Any, **constants: float) -> Any:
    """Return the clocks of an operation by its kernel with these constants."""
    machine = machine_for(H100)
    kernel = SCAN_KERNELS[operation.kernel]
    time = scan.price_with(operation, kernel, machine, {**FREE, **constants})
    return time.total * machine.clock


def test_bytes_and_flops_of_a_short_convolution() -> None:
    # 3 x 10 positions of 64 channels in and out, 3 positions of each sequence kept, 4 taps.
    prompt = ShortConvolution(3, 10, 64, 4, "conv_triton")
    assert prompt.flops == 2 * 3 * 10 * 64 * 4
    assert prompt.reads == (2 * 3 * 10 * 64,)
    assert prompt.writes == (2 * 3 * 10 * 64, 2 * 3 * 64 * 3)
    step = ShortConvolution(3, 1, 64, 4, "conv_triton_step", step=True)
    assert step.reads == (2 * 3 * 64, 2 * 3 * 64 * 3)


def test_bytes_and_flops_of_a_delta_rule() -> None:
    # 2 x 8 states of 128 x 128 numbers.
    state = 2 * 8 * 128 * 128
    one = rule("fla_step", positions=1)
    assert one.flops == 7 * state
    keys, values = 2 * 2 * 4 * 128, 2 * 2 * 8 * 128
    assert one.reads == (keys, keys, values, 2 * 2 * 8, 4 * state)
    assert one.writes == (values, 4 * state)
    guesses = rule("kda_verify", positions=3, each_position=True, by_feature=True, read_size=2)
    # Decays of each feature; the state comes once in 2 bytes, and goes three times in 4.
    assert guesses.reads[3:] == (3 * values, 2 * state)
    assert guesses.writes[1] == 3 * 4 * state


def test_a_block_of_a_convolution_takes_up_to_eight_positions() -> None:
    for positions, steps in ((1, 1), (8, 8), (4096, 8)):
        convolution = ShortConvolution(1, positions, 512, 4, "conv_triton")
        assert clocks(convolution, start=100, step=10) == pytest.approx(100 + 10 * steps, rel=1e-3)
        # Three convolutions of queries, keys and values are started one after the other.
        apart = ShortConvolution(1, positions, 512, 4, "conv_triton_apart")
        assert clocks(apart, start=100, step=10) == pytest.approx(3 * (100 + 10 * steps), rel=1e-3)


def test_a_rate_is_of_bytes_for_each_clock_of_a_multiprocessor() -> None:
    convolution = ShortConvolution(1, 1000, 512, 4, "conv_triton")
    num_bytes = 2 * 2 * 1000 * 512 + 2 * 512 * 3
    assert clocks(convolution, rate=8) == pytest.approx(num_bytes / (8 * 132), rel=1e-3)


def test_channels_take_turns_on_multiprocessors() -> None:
    # 2,112 blocks at a time (132 x 16): 2,048 channels are one turn, 2 sequences of them two.
    one = ShortConvolution(1, 1024, 2048, 4, "conv_cuda")
    assert clocks(one, start=7, fill=100, step=10) == pytest.approx(7 + 110, rel=1e-2)
    two = ShortConvolution(2, 1032, 2048, 4, "conv_cuda")
    assert clocks(two, start=7, fill=100, step=10) == pytest.approx(7 + 2 * 120, rel=1e-2)
    # Lengths that are no multiple of 8 go element by element.
    odd = ShortConvolution(1, 1023, 2048, 4, "conv_cuda")
    assert clocks(odd, fill=100, step=10) == pytest.approx(1.3 * 110, rel=1e-2)


def test_a_state_is_carried_from_chunk_to_chunk() -> None:
    # 130 positions are 3 chunks of 64; 16 heads are one turn of FlashInfer's, 264 three.
    walk = rule("flashinfer_delta")
    assert clocks(walk, start=5, fill=50, step=10) == pytest.approx(5 + 80, rel=1e-2)
    many = rule("flashinfer_delta", sequences=33)
    assert clocks(many, start=5, fill=50, step=10) == pytest.approx(5 + 2 * 80, rel=1e-2)
    # The rows of a chunk follow one another before that.
    chunked = rule("fla_delta", positions=40)
    assert clocks(chunked, row=2, step=10) == pytest.approx(2 * 40 + 10, rel=1e-2)


def test_kernels_of_all_chunks_read_and_write_what_they_make() -> None:
    # Of 64 positions of a head: norms of 2 x 128 numbers (2 bytes, in and out) for each of half a
    # group; keys and 64 products (4); those, and 64 of the inverse (2); keys, values, inverse in
    # and both out; queries, keys, values in, the output out. A state of 128 x 128 once (2).
    chunk = scan._chunked(rule("fla_delta"), 64)
    of_head = (256 + 256) + (256 + 128) + (256 + 256 + 128 + 512) + (3 * 256 + 256)
    assert (chunk.of_group, chunk.of_head, chunk.of_chunk) == (4 * 256, of_head, 128 * 256)
    own = scan._chunked(rule("fla_kda", by_feature=True), 64)
    # Decays in 2 bytes become sums in 4, which pairs, what is replaced and the output read; pairs
    # of queries and keys are written, too, and keys that decay.
    pairs, replaced = 512 + 512 + 256 + 128, 256 + 256 + 512 + 128 + 512 + 256
    of_head = (256 + 512) + 1024 + pairs + 384 + replaced + (256 + 512 + 256 + 128 + 256)
    assert (own.of_group, own.of_head) == (0, of_head)


def test_every_kernel_has_its_file_and_constants_everywhere() -> None:
    files = {path.stem for path in _FOLDER.glob("*.toml")}
    assert files == {kernel.like or name for name, kernel in SCAN_KERNELS.items()}
    for kernel in SCAN_KERNELS.values():
        for architecture in ("Ampere", "Ada", "Hopper", "Blackwell", "Blackwell RTX"):
            assert set(kernel.constants(architecture)) == set(CONSTANTS)
        assert kernel.source
        assert kernel.summary


@pytest.mark.parametrize("name", ["fla_delta", "flash_kda", "flashinfer_delta", "fla_step"])
def test_arrays_are_priced_as_their_numbers_are(name: str) -> None:
    lengths = np.array([1, 64, 5000])
    together: Any = TILED.price(rule(name, positions=lengths), H100).total
    alone = [TILED.price(rule(name, positions=int(each)), H100).total for each in lengths]
    assert together == pytest.approx(alone)
    assert together[0] <= together[1] < together[2]


def test_explanations_say_what_limits() -> None:
    assert "go along" in TILED.explain(rule("flashinfer_delta", positions=100_000), H100).why
    short = ShortConvolution(1, 1, 64, 4, "conv_triton")
    assert "start and end" in TILED.explain(short, H100).why
    step = rule("fla_step", positions=1, sequences=512)
    assert "memory" in TILED.explain(step, H100).why
