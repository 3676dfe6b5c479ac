"""What workers send of their gradients, how often, to whom, and whom they wait for."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

import paleo
from paleo.cluster.collectives import SERVERS, Operation
from paleo.core.errors import PaleoError, SettingError
from paleo.core.quantity import np
from paleo.core.units import MIB
from paleo.step.gradients import Cast, Compression, OneBit, TopK, find_compression
from paleo.step.parallelism import DataParallel
from paleo.step.parallelism.jitter import expected_slowest
from paleo.studies.knee import curve

#: A net of 2 layers, 1,000 x 1,000 and 1,000 x 10, without biases.
NET = """{"name": "two", "layers": {
    "data": {"type": "Input", "parents": [], "tensor": [8, 1000]},
    "wide": {"type": "InnerProduct", "parents": ["data"], "num_outputs": 1000, "use_bias": false},
    "narrow": {"type": "InnerProduct", "parents": ["wide"], "num_outputs": 10, "use_bias": false}
}}"""
PARAMS = 1_000_000 + 10_000
HOW: dict[str, Any] = {"device": "V100_SXM2_16GB", "network": "ethernet25", "batch_size": 32}


def step(net: Any = "vgg16", **settings: Any) -> paleo.Step:
    """Return the only step on 8 workers, of roofline unless told."""
    given = {**HOW, "workers": 8, "cost_model": "roofline", **settings}
    return paleo.simulate(net, **given).runs[0].rows[0]


def bandwidths(plan: paleo.Plan) -> tuple[float, float]:
    """Return the bytes/s of the device's memory and of the network."""
    return float(plan.device.memory_bandwidth), float(plan.network.bandwidth)


def plan(**settings: Any) -> paleo.Plan:
    return paleo.scenario("nin", **{**HOW, "cost_model": "roofline", **settings}).plan


# Gradient accumulation


def test_turns_repeat_the_passes_and_exchange_and_update_once() -> None:
    one, four = step(), step(accumulate=4)
    memory, _ = bandwidths(plan())
    params = 138_357_544
    assert four["forward"] == pytest.approx(4 * one["forward"])
    # Three times a gradient and the sum so far are read, and the sum is written.
    sums = 3 * 3 * 4 * params / memory
    assert four["backward"] == pytest.approx(4 * one["backward"] + sums, rel=1e-6)
    assert four["update"] == pytest.approx(one["update"])
    assert four.communication["auto"] == pytest.approx(one.communication["auto"])
    assert (four.batch_size, four.worker_batch_size) == (4 * 8 * 32, 32)
    # The last backward pass takes the longer for its sums, so it hides no less.
    assert four.exposed_exchanges["auto"] <= one.exposed_exchanges["auto"]
    assert four.to_dict()["efficiency"]["auto"] > one.to_dict()["efficiency"]["auto"]


def test_what_is_exposed_is_that_of_the_last_pass_alone() -> None:
    # Nothing overlaps: all of the exchange is exposed, however many turns there are.
    one, four = step(overlap=False), step(overlap=False, accumulate=4)
    assert four.exposed_exchanges == one.exposed_exchanges
    assert four.total("auto") == pytest.approx(four.compute + one.exposed_exchanges["auto"])


def test_strong_scaling_divides_the_batch_by_workers_and_turns() -> None:
    found = step("nin", accumulate=4, scaling="strong", batch_size=128, workers=(1, 8))
    # 128 samples of one worker in 4 turns of 32.
    assert (found.worker_batch_size, found.batch_size) == (32, 128)
    (run,) = paleo.simulate(
        "nin", **{**HOW, "batch_size": 100}, workers=(1, 6), scaling="strong", accumulate=3
    ).runs
    assert [row.worker_batch_size for row in run.rows] == [34, 6]  # ceil(100 / 3), ceil(100 / 18)
    assert [row.batch_size for row in run.rows] == [100, 100]
    assert run.rows[0].to_dict()["efficiency"]["auto"] == pytest.approx(1)
    assert run.rows[0].one_worker == pytest.approx(run.rows[0].compute)


def test_a_framework_that_adds_gradients_in_every_step_adds_no_more() -> None:
    one, two = (step("nin", framework="pytorch1", accumulate=turns) for turns in (1, 2))
    assert two["backward"] == pytest.approx(2 * one["backward"])
    newer = [step("nin", framework="pytorch", accumulate=turns) for turns in (1, 2)]
    assert newer[1]["backward"] > 2 * newer[0]["backward"]


def test_accumulation_keeps_the_activations_of_one_turn() -> None:
    alone, many = (paleo.metrics("nin", **HOW, workers=8, accumulate=turns)[0] for turns in (1, 4))
    assert many.training_memory == alone.training_memory
    assert many.batch_size == 4 * alone.batch_size


# Types


def test_gradients_are_sent_in_the_type_that_is_asked_for() -> None:
    for dtype, share in (("fp32", 1), ("fp16", 2), ("bf16", 2), ("fp8", 4)):
        row = step(overlap=False, gradient_dtype=dtype, network="ethernet")
        whole = step(overlap=False, network="ethernet")
        # Latency is small beside 0.55 GB at 10 Gbit/s.
        assert row.communication["auto"] == pytest.approx(
            whole.communication["auto"] / share, rel=1e-3
        )


def test_casts_read_one_type_and_write_the_other() -> None:
    memory, _ = bandwidths(plan())
    one, cast = step(overlap=False), step(overlap=False, gradient_dtype="fp16")
    params = 138_357_544
    assert cast["backward"] - one["backward"] == pytest.approx((4 + 2) * params / memory, rel=1e-6)
    assert cast["update"] - one["update"] == pytest.approx((2 + 4) * params / memory, rel=1e-6)
    scaled = step(overlap=False, gradient_dtype="fp8")
    # 8 bits take a scale, for which all gradients are read once more.
    expected = (4 + 4 + 1) * params / memory
    assert scaled["backward"] - one["backward"] == pytest.approx(expected, rel=1e-6)


def test_the_type_that_gradients_have_needs_no_kernel() -> None:
    assert Cast("fp32", "fp32").packing(8) == ()
    assert step(gradient_dtype="fp32").total("auto") == step().total("auto")
    mixed = [step(dtype="mixed_fp16", gradient_dtype=dtype) for dtype in (None, "fp32", "fp16")]
    assert mixed[0].communication == mixed[1].communication
    assert mixed[2].communication["auto"] < 0.51 * mixed[0].communication["auto"]


def test_a_worker_alone_casts_nothing() -> None:
    for settings in ({"gradient_dtype": "fp16"}, {"compress": "onebit"}, {"compress": "topk"}):
        row = step(workers=1, **settings)
        assert row.total("auto") == step(workers=1).total("auto")


# Compression


def test_one_bit_sends_a_bit_of_each_and_two_floats() -> None:
    encoding = OneBit("fp32", "fp32")
    assert encoding.message(Operation.ALL_TO_ALL, 800, 4) == 100 + 8
    assert encoding.message(Operation.ALL_GATHER, 800, 4) == 100 + 4 * 8
    assert encoding.message(Operation.ALL_TO_ALL, 801, 4) == 101 + 8
    added, packed = encoding.packing(800)
    # Gradient and residual are added; the sum is read, of which signs and a residual are kept.
    assert (added.reads, added.writes) == ((3200, 3200), (3200,))
    assert (packed.reads, packed.writes) == ((3200,), (100, 3200))
    summed, *again, unpacked = encoding.unpacking(800, 4)
    # A quarter of the gradients of 4 workers is as many bits as all of one.
    assert (summed.reads, summed.writes) == ((100,), (800,))
    assert [each.writes for each in again] == [(800,), (25, 800)]
    assert (unpacked.reads, unpacked.writes) == ((100,), (3200,))


def test_top_k_sends_values_and_indices_of_all_workers() -> None:
    encoding = TopK("fp32", "fp32", 0.01)
    # 10 of 1,000, and 11 of 1,001: 8 bytes each, or 6 with halves; gathered from 4 workers.
    assert encoding.message(Operation.ALL_GATHER, 1000, 4) == 4 * 10 * 8
    assert encoding.message(Operation.ALL_GATHER, 1001, 4) == 4 * 11 * 8
    assert TopK("fp32", "fp16", 0.01).message(Operation.ALL_GATHER, 1000, 4) == 4 * 10 * 6
    added, *counted, gathered, cleared = encoding.packing(1000)
    assert added.reads == (4000, 4000)
    assert [each.reads for each in counted] == [(4000,)] * 4  # a digit of 8 bits each
    assert (gathered.reads, gathered.writes) == ((4000,), (80,))
    assert cleared.writes == (10 * 32,)  # a sector for each
    zero, largest = encoding.unpacking(1000, 4)
    assert zero.writes == (4000,)
    assert (largest.reads, largest.writes) == ((320, 40 * 32), (40 * 32,))
    # No more moves than there is.
    assert encoding.unpacking(1000, 100)[1].writes == (4000,)


def test_links_carry_a_gathered_message_once_and_a_summed_one_twice() -> None:
    # 1,000 gradients in fp32: half of the bytes as halves; of 4 workers 10 each, gathered; signs
    # of all to all and back.
    assert Cast("fp32", "fp16").carried(4000, 4) == 2000
    assert TopK("fp32", "fp32", 0.01).carried(4000, 4) == 4 * 10 * 8 / 2
    assert OneBit("fp32", "fp32").carried(4000, 4) == (125 + 8) / 2 + (125 + 4 * 8) / 2


def test_compressed_gradients_take_less_of_a_slow_network_and_more_of_the_device() -> None:
    whole = step(network="ethernet")
    for compress in ("onebit", "topk:0.001"):
        row = step(network="ethernet", compress=compress)
        assert row.communication["auto"] < whole.communication["auto"] / 10
        assert row.compute > whole.compute
        assert row.total("auto") < whole.total("auto")


def test_compressed_gradients_by_hand() -> None:
    # A flat network of 1 GB/s without latency, 4 workers, 1,010,000 gradients at once.
    network = paleo.Network.from_bandwidth("here", 1e9)
    given = {**HOW, "network": network, "workers": 4, "overlap": False}
    row = step(paleo.loads(NET), **given, compress="onebit")
    # Three quarters of the bits to others, and as many back.
    bits = PARAMS / 8 + 8
    expected = (3 / 4 * bits + 3 / 4 * (PARAMS / 8 + 4 * 8)) / 1e9
    assert row.communication["auto"] == pytest.approx(expected, rel=1e-9)
    row = step(paleo.loads(NET), **given, compress="topk")
    # Each has 10,100 with indices, and gets those of three others.
    assert row.communication["auto"] == pytest.approx(3 * 10_100 * 8 / 1e9, rel=1e-9)


def test_gathered_gradients_grow_with_the_workers() -> None:
    few, many = (
        step(workers=workers, compress="topk").communication["auto"] for workers in (8, 80)
    )
    assert many == pytest.approx(79 / 7 * few, rel=0.2)  # but for latencies


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("onebit", Compression("onebit")),
        ("topk", Compression("topk", 0.01)),
        ("topk:0.001", Compression("topk", 0.001)),
        ("topk:1", Compression("topk", 1.0)),
        (Compression("onebit"), Compression("onebit")),
        (None, None),
    ],
)
def test_compressions_are_read(text: Any, found: Any) -> None:
    assert find_compression(text) == found


# Servers


def test_the_links_of_servers_or_of_workers_are_what_takes_longest() -> None:
    scheme = paleo.COLLECTIVES[SERVERS]
    for servers, workers, crossed in (
        (1, 1, 0),  # nobody else has gradients
        (1, 4, 8),  # 4 in, 4 out
        (2, 4, 4),
        (4, 4, 2),
        (8, 4, 2),  # each worker's own link
        (3, 4, 8 / 3),
    ):
        assert scheme.with_servers(servers).transfers(workers) == pytest.approx(crossed)
    many: Any = scheme.with_servers(2).transfers(np.array([1, 2, 4, 6]))
    assert list(many) == [0, 2, 4, 6]


def test_on_tiers_devices_of_a_node_share_its_card() -> None:
    cluster = paleo.find_cluster("aws_p3_16xlarge")  # 8 V100s, one card of 25 Gbit/s a node
    outer = cluster.tiers[-1]
    card = float(outer.network.bandwidth) * float(outer.links)
    group = cluster.group(16)
    num_bytes = 10**9
    for servers in (1, 2, 8):
        found = paleo.COLLECTIVES[SERVERS].with_servers(servers).seconds_on(group, num_bytes)
        # In and out: 8 GB over the card of a node, or a share of 16 GB over that of a server.
        one = float(outer.network.bandwidth)
        longest = max(8 * num_bytes / card, 16 * num_bytes / servers / one)
        assert found == pytest.approx(2 * longest + 2 * float(outer.network.latency), rel=1e-3)


def test_servers_choose_their_scheme() -> None:
    assert plan(num_servers=4).exchange_schemes == (SERVERS,)
    assert plan(schemes=SERVERS).exchange_schemes == (SERVERS,)
    row = step(num_servers=4, overlap=False)
    one = step(schemes=SERVERS, overlap=False)
    # 8 workers on 1 or 4 servers: 16 or 4 times the message.
    assert one.communication[SERVERS] == pytest.approx(4 * row.communication[SERVERS], rel=1e-2)
    old = step(num_servers=4, cost_model="paleo2017")
    assert old.communication[SERVERS] == pytest.approx(
        4 * 4 * 138_357_544 / float(plan().network.bandwidth_2017)
    )


# Stragglers


def test_all_wait_for_the_slowest() -> None:
    even, uneven = step(), step(jitter=0.05)
    slowest = float(expected_slowest(8, 0.05))
    assert uneven.compute == even.compute
    assert uneven.waiting == pytest.approx((slowest - 1) * even.compute)
    # What goes on longer hides more.
    assert uneven.exposed_exchanges["auto"] <= even.exposed_exchanges["auto"]
    total = slowest * even.compute + uneven.exposed_exchanges["auto"]
    assert uneven.total("auto") == pytest.approx(total)
    assert uneven.exposed_communication("auto") == pytest.approx(uneven.exposed_exchanges["auto"])
    assert uneven.to_dict()["efficiency"]["auto"] < even.to_dict()["efficiency"]["auto"]
    alone = step(workers=1, jitter=0.05)
    assert alone.total("auto") == pytest.approx(step(workers=1).total("auto"))


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("jitter", [0.03, 0.15])
def test_steps_of_drawn_workers_take_as_long_on_average(jitter: float, overlap: bool) -> None:
    """Steps are drawn: each worker's computation, and the exchange once the slowest is so far."""
    workers = 16
    data = DataParallel(paleo.load("vgg16"), plan(overlap=overlap, network="ethernet"))
    computed = float(data.computing(32))
    draws = np.random.default_rng(19).normal(1, jitter, size=(2000, workers)).max(axis=1)
    # With computation that takes so many times as long the exchange is that of an even step.
    steps = [
        factor * computed + float(data.worker(workers, 32).exchange("auto", factor).seconds)
        for factor in draws.tolist()
    ]
    expected = step(network="ethernet", workers=workers, overlap=overlap, jitter=jitter)
    error = float(np.std(steps)) / math.sqrt(len(steps))
    assert float(np.mean(steps)) == pytest.approx(expected.total("auto"), abs=4 * error)
    even = step(network="ethernet", workers=workers, overlap=overlap)
    assert expected.total("auto") > even.total("auto") + 40 * error * (not overlap)


# Together


@pytest.mark.parametrize(
    "settings",
    [
        {"accumulate": 3},
        {"gradient_dtype": "fp16"},
        {"compress": "onebit"},
        {"compress": "topk:0.01"},
        {"num_servers": 3},
        {"jitter": 0.1},
        {"accumulate": 2, "gradient_dtype": "bf16", "jitter": 0.05, "overlap": False},
    ],
)
def test_arrays_of_workers_are_as_one_by_one(settings: dict[str, Any]) -> None:
    data = DataParallel(paleo.load("lenet5"), plan(**settings))
    counts = np.array([1, 2, 3, 8, 100])
    for scaling in ("weak", "strong"):
        many = data.step(128, counts, scaling)
        (scheme,) = many.exchanges
        totals = np.broadcast_to(many.total(scheme), counts.shape)
        for count, total in zip(counts.tolist(), totals, strict=True):
            assert total == pytest.approx(data.step(128, count, scaling).total(scheme), rel=1e-12)


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize(
    "settings",
    [
        {"accumulate": 3},
        {"gradient_dtype": "fp16", "accumulate": 2},
        {"compress": "onebit"},
        {"compress": "topk:0.01"},
        {"num_servers": 3},
        {"jitter": 0.1},
    ],
)
def test_a_timeline_is_as_long_as_the_step(settings: dict[str, Any], overlap: bool) -> None:
    given = {**HOW, "cost_model": "roofline", "workers": 4, "overlap": overlap, **settings}
    row = paleo.simulate("lenet5", **given).runs[0].rows[0]
    drawn = paleo.timeline("lenet5", **given)
    assert drawn.seconds == pytest.approx(row.total(row.best_scheme))
    assert sum(part.seconds for part in drawn.parts) == pytest.approx(drawn.seconds)
    turns = settings.get("accumulate", 1)
    assert [part.name for part in drawn.parts].count("forward") == turns
    assert max(event.end for event in drawn.events) <= drawn.seconds * (1 + 1e-9)
    computed = sum(
        event.seconds for event in drawn.of(0, lane=0) if event.category not in ("transfer", "wait")
    )
    assert computed >= row.compute * (1 - 1e-9)


@pytest.mark.parametrize(
    "settings",
    [{"jitter": 0.2}, {"compress": "topk:0.1", "jitter": 0.1}, {"accumulate": 2, "jitter": 0.1}],
)
@pytest.mark.parametrize("scaling", ["weak", "strong"])
def test_the_knee_looks_at_the_same_steps(settings: dict[str, Any], scaling: str) -> None:
    data = DataParallel(paleo.load("nin"), plan(**settings))
    found = curve(data, 64, scaling, "auto")
    for workers in (1, 8, 100):
        row = data.step(64, workers, scaling)
        seconds = found.computing(workers) + found.communicate(workers)
        assert seconds == pytest.approx(row.total("auto"), rel=1e-9)
        assert not found.steady


def test_settings_are_said_and_stand_in_json() -> None:
    given: dict[str, Any] = {
        "accumulate": 2,
        "gradient_dtype": "fp16",
        "compress": "topk:0.1",
        "jitter": 0.1,
    }
    (run,) = paleo.simulate("nin", **HOW, **given).runs
    values = run.settings()
    assert {name: values[name] for name in given} == given
    assert values["num_servers"] is None
    (plain,) = paleo.simulate("nin", **HOW, dtype="mixed_fp16").runs
    assert (plain.settings()["gradient_dtype"], plain.settings()["compress"]) == ("fp32", None)
    said = run.plan.said()
    assert said["accumulate"] == "2 batches a step"
    assert said["gradient_dtype"] == "gradients in fp16"
    assert said["compress"] == "gradients by topk:0.1"
    assert said["jitter"] == "jitter 0.1"
    assert plan(num_servers=3).said()["num_servers"] == "3 servers"
    assert not any(plan().said()[name] for name in (*given, "num_servers"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"accumulate": 0}, "accumulate: expected a whole number from 1 to"),
        ({"accumulate": 1.5}, "accumulate: expected a whole number from 1 to"),
        ({"gradient_dtype": "fp64"}, "gradient_dtype: expected fp32 or fp16 or bf16 or fp8"),
        ({"compress": "zip"}, "compress: expected onebit or topk:SHARE"),
        ({"compress": "topk:"}, "compress: expected a share above 0, up to 1"),
        ({"compress": "topk:0"}, "compress: expected a share above 0, up to 1"),
        ({"compress": "topk:1.1"}, "compress: expected a share above 0, up to 1"),
        ({"compress": "topk:nan"}, "compress: expected a share above 0, up to 1"),
        ({"compress": "topk", "schemes": "OneToAll"}, "compress: topk takes an all_gather"),
        ({"compress": "onebit", "schemes": "ring"}, "compress: onebit takes an all_to_all"),
        ({"compress": "onebit", "gradient_dtype": "fp16"}, "gradient_dtype: onebit sends one bit"),
        ({"compress": "topk", "cost_model": "paleo2017"}, "compress: paleo2017 knows no"),
        ({"num_servers": 0}, "num_servers: expected a whole number from 1 to"),
        ({"num_servers": 2, "schemes": "ring"}, "num_servers: is for the scheme parameter_server"),
        ({"jitter": 1.1}, "jitter: expected a number from 0 to 1"),
        ({"jitter": -0.1}, "jitter: expected a number from 0 to 1"),
        ({"jitter": "much"}, "jitter: expected a number from 0 to 1"),
        ({"jitter": 0.1, "parallel": "hybrid"}, "jitter: is for --parallel=data, not hybrid"),
        ({"accumulate": 2, "parallel": "model"}, "accumulate: is for --parallel=data, not model"),
    ],
)
def test_bad_input_is_one_clear_line(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(PaleoError) as caught:
        paleo.simulate("nin", **HOW, **settings)
    (line,) = str(caught.value).splitlines()
    assert line.startswith(message)


def test_all_are_the_schemes_that_can_carry_what_is_sent() -> None:
    names = plan(schemes="all", compress="topk").exchange_schemes
    for name in names:
        assert Operation.ALL_GATHER in paleo.COLLECTIVES[name].operations
    assert "ring" in names
    assert "OneToAll" not in names


def test_a_plan_of_ones_own_is_checked_too() -> None:
    with pytest.raises(SettingError, match="compress: onebit takes"):
        replace(plan(schemes="ring"), compress=Compression("onebit"))


def test_a_message_is_packed_bucket_by_bucket() -> None:
    # vgg16's 553 MB in one bucket and in many: as many bytes, more kernels.
    one, many = (
        DataParallel(paleo.load("vgg16"), plan(compress="topk", bucket=size, cost_model="tiled"))
        for size in (1000 * MIB, MIB)
    )
    handling = [data.worker(8, 32).handling for data in (one, many)]
    packed = [float(times[0].total) for times in handling if times]
    assert packed[0] < packed[1] < 2 * packed[0]
