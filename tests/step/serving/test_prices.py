"""What a step of a server consists of: kernels that are folded, exchanges, products by lanes."""

from __future__ import annotations

import pytest

import paleo
from paleo.cluster import find_cluster, find_device
from paleo.cluster.collectives import COLLECTIVES, Operation
from paleo.core.operations import FusedExperts, GroupedMatMul, MatMul, Stream
from paleo.core.quantity import np
from paleo.core.quantization import Quantize
from paleo.costs import COST_MODELS
from paleo.costs.tiled.backends import BACKENDS
from paleo.costs.tiled.quantizations import by_lanes, product
from paleo.net.division import divided
from paleo.net.heads import with_repeated_heads
from paleo.step.serving.parts import ONCE_A_HOST
from paleo.step.serving.prices import EXCHANGE, Degrees, Kernels, StepPrices
from paleo.step.serving.program import Product, read_program


def prices(
    net: str, kernels: Kernels, degrees: Degrees | None = None, device: str = "H100_SXM"
) -> StepPrices:
    degrees = degrees or Degrees()
    program = read_program(divided(paleo.load(net, dims={"seq": 1}), degrees.of_attention))
    cluster = find_cluster("dgx_h100") if degrees.devices > 1 else None
    return StepPrices(program, find_device(device), COST_MODELS["tiled"], kernels, degrees, cluster)


def names(*given: object) -> list[type]:
    return [type(each) for each in product(*given)]  # type: ignore[arg-type]


def test_a_known_scale_is_applied_by_the_kernel_before() -> None:
    shape = 8, 4096, 4096
    for server in ("vllm", "trtllm"):
        assert names(*shape, "fp8", "Hopper", BACKENDS[server]) == [MatMul]
        assert names(*shape, "fp8_dynamic", "Hopper", BACKENDS[server]) == [Quantize, MatMul]
    # SGLang finds one for each token in any case.
    assert names(*shape, "fp8", "Hopper", BACKENDS["sglang"]) == [Quantize, MatMul]
    assert names(*shape, "nvfp4", "Blackwell", BACKENDS["trtllm"]) == [Quantize, GroupedMatMul]


def test_products_of_attention_may_be_of_other_numbers() -> None:
    vllm = BACKENDS["vllm"]
    of = prices("deepseek_v3", Kernels(vllm, "nvfp4", "nvfp4", attention="bf16"), device="B200_SXM")
    inside = Product(7168, 2112, "q_a_proj", is_of_attention=True)
    outside = Product(7168, 4096, "gate_proj")
    assert [type(each) for each in of._product(inside, 4)] == [MatMul]
    assert [type(each) for each in of._product(outside, 4)] == [Quantize, GroupedMatMul]
    marked = {each.name for each, _ in of.program.products if each.is_of_attention}
    assert marked == {"q_a_proj", "q_b_proj", "o_proj"}


def test_an_all_reduce_normalizes_too() -> None:
    kernels = Kernels(BACKENDS["trtllm"], reduces="pushed_all_reduce")
    degrees = Degrees(tp=8)
    plain = prices("llama3_70b", kernels, degrees)
    folded = prices(
        "llama3_70b", Kernels(BACKENDS["trtllm"], reduces="pushed_all_reduce", folds_norms=True),
        degrees,
    )  # fmt: skip
    norms = "norms and sums"
    # 160 norms add what came before; one kernel is left a layer (rotary, gates), and the first.
    (of_norm,) = [row for row, n in plain.program.rows if n == 160]
    each = plain._priced([(norms, plain._operations(of_norm, 8), 160)]).seconds
    spared = plain.rows(8).times[norms].total - folded.rows(8).times[norms].total
    assert spared == pytest.approx(each)
    # Messages of 8 MiB and more are NCCL's, which adds nothing: 512 tokens of 8192 halves.
    assert folded.rows(512).times[norms].total == plain.rows(512).times[norms].total


def test_all_reduces_wait_for_the_last_device() -> None:
    kernels = Kernels(BACKENDS["vllm"], reduces="custom_all_reduce")
    of = prices("llama3_8b", kernels, Degrees(tp=2))
    group = find_cluster("dgx_h100").group(2, 1)
    # 65 messages of 16 tokens; of two devices the last is 0.589 of 3.5 us behind the mean.
    alone = COLLECTIVES["custom_all_reduce"].seconds_on(group, 16 * 2 * 4096)
    expected = 65 * (alone + 0.5895 * 3.5e-6)
    assert of.rows(16).times[EXCHANGE].total == pytest.approx(expected, rel=1e-3)


def test_tokens_of_other_groups_reach_experts() -> None:
    vllm = BACKENDS["vllm"]
    degrees = Degrees(tp=4, ep=4, attention_dp=4)
    group = find_cluster("dgx_h100").group(4, 1)
    auto = COLLECTIVES["auto"]

    def seconds(size: float, operation: str) -> float:
        return float(auto.seconds_on(group, size, Operation(operation)))

    # Qwen3 30B-A3B: 48 layers, hidden 2048, 8 of 128 experts. Of 16 tokens of each of four groups
    # all devices gather 64 x 2048 numbers of 2 bytes, and scatter as many sums.
    gathered = prices("qwen3_30b_a3b", Kernels(vllm), degrees).rows(16).times[EXCHANGE].total
    size = 64 * 2048 * 2
    expected = 48 * (seconds(size, "all_gather") + seconds(size, "reduce_scatter"))
    assert gathered == pytest.approx(expected, rel=1e-6)
    # Each token goes to 4 (1 - 0.75^8) = 3.5995 of four devices, a quarter of them of one device.
    kernels = Kernels(vllm, exchange="all_to_all")
    sent = prices("qwen3_30b_a3b", kernels, degrees).rows(16).times[EXCHANGE].total
    each = size * 4 * (1 - 0.75**8) / 4
    assert sent == pytest.approx(48 * 2 * seconds(each, "all_to_all"), rel=1e-6)


def test_deepep_sends_many_tokens_once_to_each_host() -> None:
    degrees = Degrees(tp=16, ep=16, attention_dp=16)
    of = prices("qwen3_30b_a3b", Kernels(BACKENDS["sglang"], exchange=ONCE_A_HOST), degrees)
    group = find_cluster("dgx_h100").group(16, 1)
    # Of 8 choices 16 (1 - (15/16)^8) = 6.4529 devices hold some, and of two hosts 1.9922. 256
    # tokens of a device go to devices, 257 to hosts; each in 2 x 2048 bytes, there and back.
    for tokens, copies in ((256, 6.45287), (257, 1.99219)):
        seconds = COLLECTIVES["auto"].seconds_on(
            group, copies * tokens * 2 * 2048, Operation.ALL_TO_ALL
        )
        sent = of.rows(tokens).times[EXCHANGE].total
        assert sent == pytest.approx(48 * 2 * float(seconds), rel=1e-4)


def test_experts_may_have_as_many_rows_as_the_others() -> None:
    degrees = Degrees(tp=4, ep=4, attention_dp=4)
    of = prices("qwen3_30b_a3b", Kernels(BACKENDS["sglang"], evens_experts=True), degrees)
    ((experts, _),) = of.program.experts
    # 400 tokens of all four groups have 8 of 128 experts each: 25 rows of each of the 32 here.
    (layer,) = of._experts(experts, 100)
    assert isinstance(layer, FusedExperts)
    assert layer.loads == ((32, 25),)


def test_llama_cpp_reads_weights_once_for_few_rows() -> None:
    one, weights = by_lanes(1, 4096, 4096, "q8_0", 32)
    # 34 bytes for each 32 numbers, of 32 products together; 4096 halves come in and go out.
    assert isinstance(weights, Stream)
    assert weights.reads == (32 * 4096 * 4096 * 34 / 32,)
    assert isinstance(one, Stream)
    assert (one.reads, one.writes) == ((8192,), (8192,))
    of = prices("llama3_8b", Kernels(None, "q8_0", "q8_0"), device="RTX_3090")
    found = of.rows(np.array([1.0, 8.0, 64.0]))
    alone = [of.rows(count).seconds for count in (1, 8, 64)]
    assert np.asarray(found.seconds).tolist() == pytest.approx(alone)
    # 7 billion weights of 1.0625 bytes at 936 GB/s take 7.9 ms at the least, tiles longer.
    assert 7.9e-3 < alone[0] < alone[2]


def test_heads_are_repeated_where_more_devices_share_them() -> None:
    net = paleo.load("qwen3_30b_a3b", dims={"seq": 1})
    # 32 heads of queries, 4 of keys: eight devices have a head of keys each, two devices the same.
    program = read_program(divided(with_repeated_heads(net, 8), 8))
    assert Product(2048, (4 + 1 + 1) * 128, "q_proj", is_of_attention=True) in dict(
        program.products
    )
    ((mixer, _),) = program.mixers
    assert mixer.cached == 2 * 128
    assert with_repeated_heads(net, 4) is net
    with pytest.raises(paleo.PaleoError, match="do not divide 8 ways"):
        divided(net, 8)
