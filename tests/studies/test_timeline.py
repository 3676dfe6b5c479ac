"""Timelines of a step: what adds up to the prediction, and who does what when."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nets_of_tests import make_net
from summing_schemes import EXCHANGES
from timelines import hardware, nets, two_layers

import paleo
from paleo.step.timeline.drawing import MAX_EVENTS
from paleo.step.timeline.values import Timeline
from paleo.studies.timeline import timeline

CLOSE = 1e-9


def predicted(net: Any, **how: Any) -> tuple[float, float]:
    """Return what `paleo.simulate` says a timeline is long, and the sum of all its events."""
    scheme = how.pop("scheme", None)
    run: Any
    (run,) = paleo.simulate(net, schemes=scheme, **{"scaling": "weak", **how}).runs
    if run.parallel == "model":
        return sum(row.total() for row in run.rows), sum(row.busy for row in run.rows)
    if run.step:
        return run.step.seconds, run.step.seconds
    (row,) = run.rows
    return row.total(scheme or row.best_scheme), 0.0


def below_zero(net: Any, **how: Any) -> bool:
    """Tell whether the 2017 formula of hybrid parallelism gives a pass a time below zero."""
    if how.get("parallel") != "hybrid":
        return False
    rows = paleo.simulate(net, **how).runs[0].rows
    return any(row.is_below_zero for row in rows)


def check_sums(found: Timeline, seconds: float) -> None:
    """Assert what the docstring of Timeline says adds up."""
    assert found.seconds == pytest.approx(seconds, rel=CLOSE)
    until = 0.0
    for part in found.parts:
        assert part.start == pytest.approx(until, abs=CLOSE * seconds)
        until = part.start + part.seconds
    assert until == pytest.approx(seconds, rel=CLOSE)
    for worker in range(len(found.workers)):
        until = 0.0
        for event in found.of(worker, lane=0):
            assert event.start == pytest.approx(until, abs=CLOSE * seconds)
            until = event.end
        total = sum(event.seconds for event in found.of(worker, lane=0))
        assert (until, total) == (pytest.approx(seconds, rel=CLOSE),) * 2
        ends: dict[int, float] = {}
        for event in found.of(worker):
            assert event.seconds > 0
            assert event.start >= ends.get(event.lane, 0.0) - CLOSE * seconds
            assert event.end <= seconds * (1 + CLOSE)
            ends[event.lane] = event.end


def check_causes(found: Timeline) -> None:
    """Assert that nothing is handed on before it is there."""
    for source, target in found.flows:
        sent, taken = found.events[source], found.events[target]
        is_same = sent.category == taken.category == "transfer"
        assert sent.worker != taken.worker
        earliest = sent.start if is_same else sent.end
        assert taken.start >= earliest - CLOSE * found.seconds


def test_a_step_of_two_layers_by_hand(tmp_path: Path) -> None:
    # 0.8 GFLOP/s and 1 GB/s, a batch of 2, fp32.
    # fc1: 2 * 2 * 1000 * 1000 FLOPs = 5 ms; 8 + 4000 + 8 KB = 4.016 ms.
    # fc2: 2 * 2 * 1000 * 500 FLOPs = 2.5 ms; 8 + 2000 + 4 KB = 2.012 ms.
    # Backward, fc2 makes both gradients, fc1 that of its weights alone: each as long as forward.
    # The update reads 2 * 4 and writes 4 bytes of each of 1.5 M parameters: 18 ms; its
    # 3 M FLOPs take 3.75 ms. The exchange carries 6 MB twice at 1 GB/s: up, and down.
    found = timeline(
        two_layers(),
        **hardware(tmp_path),
        batch_size=2,
        workers=2,
        scheme="TreeAllReduce",
        cost_model="roofline",
        overlap=False,
    )
    common = [
        ("fc1", "forward", 0.0, 5.0),
        ("fc2", "forward", 5.0, 2.5),
        ("fc2 backward", "backward", 7.5, 5.0),
        ("fc1 backward", "backward", 12.5, 5.0),
        ("update", "update", 17.5, 18.0),
    ]
    up = ("transfer", 35.5, 6.0)
    down = ("transfer", 41.5, 6.0)
    expected = [
        [*common, ("receive from worker 1", *up), ("send to worker 1", *down)],
        [*common, ("send to worker 0", *up), ("receive from worker 0", *down)],
    ]
    for worker, events in enumerate(expected):
        own = found.of(worker)
        assert [(each.name, each.category) for each in own] == [each[:2] for each in events]
        for each, (_, _, start, milliseconds) in zip(own, events, strict=True):
            assert each.start == pytest.approx(start / 1e3)
            assert each.seconds == pytest.approx(milliseconds / 1e3)
            assert each.arguments["seconds"] == each.seconds
            assert each.lane == 0
    assert found.seconds == pytest.approx(47.5e-3)
    assert found.workers == ("worker 0", "worker 1")
    assert [part.name for part in found.parts] == [
        "forward",
        "backward",
        "update",
        "exchange by TreeAllReduce",
    ]

    fc2 = found.of(0)[2].arguments
    assert (fc2["layer"], fc2["type"], fc2["pass"]) == ("fc2", "InnerProduct", "backward")
    assert fc2["flops"] == 2 * 2 * 1000 * 500 * 2
    # dX = dY W reads 4 and 2000 KB and writes 8; dW = X' dY reads 8 and 4 and writes 2000.
    assert (fc2["bytes_read"], fc2["bytes_written"]) == (2_016_000, 2_008_000)
    assert fc2["compute_s"] == pytest.approx(5e-3)
    assert fc2["memory_s"] == pytest.approx(4.024e-3)
    assert (fc2["overhead_s"], fc2["bound"]) == (0, "compute")
    assert found.of(0)[4].arguments["bound"] == "memory"
    sent = found.of(1)[5].arguments
    assert (sent["bytes"], sent["to"], sent["network"]) == (6_000_000, "worker 0", "network")
    assert (sent["scheme"], sent["round"], sent["rounds"]) == ("TreeAllReduce", 1, 2)
    assert (sent["bandwidth_bytes_per_s"], sent["bound"]) == (1e9, "network")
    assert "from" not in sent
    # Worker 1 hands its gradients to worker 0, and then gets the sum from it.
    pairs = [(found.events[a], found.events[b]) for a, b in found.flows]
    assert [(a.worker, b.worker) for a, b in pairs] == [(1, 0), (0, 1)]


def test_a_worker_that_has_no_part_in_a_round_waits() -> None:
    found = timeline("nin", workers=3, scheme="OneToAll", overlap=False)
    # To worker 0, from 1 and then from 2; then back to 1, to 2.
    names = [[e.name for e in found.of(w) if e.category in ("transfer", "wait")] for w in range(3)]
    assert names == [
        [
            "receive from worker 1",
            "receive from worker 2",
            "send to worker 1",
            "send to worker 2",
        ],
        ["send to worker 0", "wait", "receive from worker 0", "wait"],
        ["wait", "send to worker 0", "wait", "receive from worker 0"],
    ]


def test_workers_of_a_butterfly_swap_or_send_around() -> None:
    swaps = timeline("nin", workers=4, scheme="ButterflyAllReduce", overlap=False).of(1)[-2:]
    assert [each.name for each in swaps] == ["swap with worker 0", "swap with worker 3"]
    around = timeline("nin", workers=3, scheme="ButterflyAllReduce", overlap=False).of(1)[-2:]
    assert [each.name for each in around] == ["send to worker 2, receive from worker 0"] * 2
    assert [each.arguments["carries"] for each in around] == [
        "sum so far",
        "sum so far without the sender's own",
    ]


def test_a_worker_alone_exchanges_nothing_but_mixes_in_2017() -> None:
    assert {e.category for e in timeline("nin").events} == {"forward", "backward", "update"}
    old = timeline("nin", scheme="ButterflyMixing", cost_model="paleo2017")
    (mixed,) = (event for event in old.events if event.category == "transfer")
    assert (mixed.name, old.flows) == ("exchange with nobody", ())
    assert "nobody to send to" in mixed.arguments["note"]
    check_sums(
        old, predicted("nin", workers=1, scheme="ButterflyMixing", cost_model="paleo2017")[0]
    )


def test_the_best_scheme_is_taken_where_none_is_asked_for() -> None:
    old = timeline("nin", workers=4, cost_model="paleo2017")
    assert old.settings["scheme"] == "ButterflyAllReduce"
    assert timeline("nin", workers=4).settings["scheme"] == "auto"
    assert timeline("nin", workers=4, scheme="OneToAll").settings["scheme"] == "OneToAll"


def test_buckets_are_exchanged_beside_the_backward_pass(tmp_path: Path) -> None:
    # The net of above. The gradients of fc2, 2 MB, are there after 12.5 ms and fill the first
    # bucket of 1 MiB; up and down they take 4 ms beside fc1's backward pass. Half a GB/s is read
    # and written: all that the memory gives, of which an exchange takes half at the most. So 2 of
    # the 5 ms are done meanwhile, and the pass ends after 19.5 ms. Gradients of fc1, 4 MB, are sent
    # until 27.5 ms, then comes the update of 18 ms.
    found = timeline(
        two_layers(),
        **hardware(tmp_path),
        batch_size=2,
        workers=2,
        scheme="TreeAllReduce",
        cost_model="roofline",
    )
    assert found.seconds == pytest.approx(45.5e-3)
    assert [(part.name, pytest.approx(part.seconds)) for part in found.parts] == [
        ("forward", 7.5e-3),
        ("backward", 10e-3),
        ("exchange by TreeAllReduce", 10e-3),
        ("update", 18e-3),
    ]
    events = sorted(found.of(1), key=lambda each: (round(1e6 * each.start), each.lane))
    assert [(each.name, each.lane, pytest.approx(each.start)) for each in events] == [
        ("fc1", 0, 0.0),
        ("fc2", 0, 5e-3),
        ("fc2 backward", 0, 7.5e-3),
        ("fc1 backward", 0, 12.5e-3),
        ("send to worker 0", 1, 12.5e-3),
        ("receive from worker 0", 1, 14.5e-3),
        ("wait", 0, 19.5e-3),
        ("send to worker 0", 1, 19.5e-3),
        ("receive from worker 0", 1, 23.5e-3),
        ("update", 0, 27.5e-3),
    ]


def test_what_a_library_chooses_is_drawn_as_one() -> None:
    found = timeline("nin", workers=4)
    (first, *_) = [event for event in found.of(2) if event.category == "transfer"]
    assert (first.name, first.lane) == ("all-reduce", 1)
    # nccl-tests count 2 (4 - 1) / 4 of the bytes.
    assert first.arguments["bus_bandwidth_bytes_per_s"] == pytest.approx(
        1.5 * first.arguments["bytes"] / first.seconds
    )


HOW = st.fixed_dictionaries(
    {
        "cost_model": st.sampled_from(list(paleo.COST_MODELS)),
        "use_pipeline": st.booleans(),
        "fuse": st.booleans(),
        "network": st.sampled_from(["ethernet", "infiniband", "pcie2"]),
        "batch_size": st.sampled_from([1, 7, 32]),
        "ppp_comp": st.sampled_from([1.0, 0.5]),
        "ppp_comm": st.sampled_from([1.0, 0.3]),
        "bucket": st.sampled_from([1000, "25 MiB"]),
    }
)
PARALLEL = st.one_of(
    st.fixed_dictionaries(
        {
            "workers": st.integers(1, 9),
            "scaling": st.sampled_from(["weak", "strong"]),
            "scheme": st.sampled_from([None, *EXCHANGES]),
        }
    ),
    st.just({"parallel": "model"}),
    st.fixed_dictionaries({"parallel": st.just("hybrid"), "hybrid_workers": st.integers(1, 7)}),
)


@pytest.mark.slow
@pytest.mark.alike
@settings(max_examples=120, deadline=None)
@given(nets(), HOW, PARALLEL)
def test_events_of_each_worker_add_up_to_the_prediction(
    net: paleo.NetSpec, how: dict[str, Any], parallel: dict[str, Any]
) -> None:
    seconds, upper = predicted(net, **how, **parallel)
    if below_zero(net, **how, **parallel):
        with pytest.raises(paleo.SettingError, match="below zero"):
            timeline(net, **how, **parallel)
        return
    found = timeline(net, **how, **parallel)
    check_sums(found, seconds)
    check_causes(found)
    if parallel.get("parallel") == "model":
        assert found.busy == pytest.approx(upper, rel=CLOSE)


@pytest.mark.slow
@pytest.mark.alike
@pytest.mark.parametrize("model", paleo.COST_MODELS)
@pytest.mark.parametrize("net", ["alex_v2_4gpu", "alex_v2_8gpu", "googlenet", "lstm_lm"])
def test_predefined_nets_add_up_under_every_parallelism(net: str, model: str) -> None:
    cases: tuple[dict[str, Any], ...] = (
        {"workers": 6, "scaling": "strong"},
        {"parallel": "model"},
        {"parallel": "hybrid", "hybrid_workers": 4},
        {"parallel": "hybrid", "hybrid_workers": 8, "use_pipeline": True},
    )
    for how in cases:
        how |= {"cost_model": model}
        found = timeline(net, **how)
        seconds, upper = predicted(net, **how)
        check_sums(found, seconds)
        check_causes(found)
        if how.get("parallel") == "model":
            assert found.busy == pytest.approx(upper, rel=CLOSE)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(nets(), HOW, st.integers(1, 4), st.sampled_from(EXCHANGES))
def test_events_add_up_to_the_piece_that_they_are_of(
    net: paleo.NetSpec, how: dict[str, Any], workers: int, scheme: str
) -> None:
    how |= {"workers": workers, "overlap": False}
    found = timeline(net, **how, scheme=scheme)
    (run,) = paleo.simulate(net, **how, schemes=scheme, scaling="weak").runs
    (step,) = run.rows
    for piece in (*step.pieces, *step.exchanges.values()):
        fine = (e.seconds for e in found.of(0, lane=0) if e.category == piece.category)
        waits = sum(e.seconds for e in found.of(0) if e.name == "wait")
        assert sum(fine) == pytest.approx(
            piece.seconds - (waits if piece.category == "transfer" else 0), rel=CLOSE
        )


@pytest.mark.parametrize("dtype", ["fp16", "mixed_bf16", "int8"])
def test_other_element_types_add_up(dtype: str) -> None:
    how: dict[str, Any] = {"device": "A100_SXM_80GB", "dtype": dtype, "workers": 3}
    check_sums(timeline("resnet18", **how), predicted("resnet18", **how)[0])


def test_what_is_done_in_another_kernel_has_no_event() -> None:
    plain, fused = (
        [event.name for event in timeline("nin", fuse=fuse).events] for fuse in (False, True)
    )
    assert set(fused) < set(plain)
    heads = [e for e in timeline("nin", fuse=True).events if "+" in e.arguments["operations"]]
    assert heads


def test_layers_that_take_no_time_are_left_out() -> None:
    layers = {event.arguments.get("layer") for event in timeline("alexnet").events}
    assert "fc6" in layers
    assert "data" not in layers  # an input
    assert "flatten" not in layers  # a view


def test_branches_of_a_device_are_on_further_lanes(tmp_path: Path) -> None:
    # Products of 1000 and of 500 features beside each other: 5 ms and 2.5 ms, as above.
    product = {"type": "InnerProduct", "use_bias": False}
    net = make_net(
        {
            "data": {"type": "Input", "parents": [], "tensor": [2, 1000]},
            "long": {"parents": ["data"], "num_outputs": 1000, **product},
            "short": {"parents": ["data"], "num_outputs": 500, **product},
        }
    )
    found = timeline(
        net, **hardware(tmp_path), batch_size=2, parallel="model", cost_model="roofline"
    )
    spans = {e.name: (e.lane, e.start, e.seconds) for e in found.events if e.category != "wait"}
    assert spans == {
        "long": (0, 0, pytest.approx(5e-3)),
        "short": (1, 0, pytest.approx(2.5e-3)),
        "short backward": (0, pytest.approx(5e-3), pytest.approx(2.5e-3)),
        "long backward": (1, pytest.approx(5e-3), pytest.approx(5e-3)),
    }
    assert found.seconds == pytest.approx(10e-3)
    assert found.busy == pytest.approx(15e-3)


def test_slices_fetch_from_the_others_before_they_compute() -> None:
    found = timeline("alex_v2_4gpu", parallel="model")
    assert found.workers[1] == "device 1, slice 1"
    own = [event.name for event in found.of(1, lane=0) if event.category != "backward"]
    first = own.index("parallel_fc67/fc6@1")
    assert own[first - 1] == "fetch pool5"
    others = [name for name in own if name.startswith("fetch parallel_fc67/dropout6")]
    assert others == [f"fetch parallel_fc67/dropout6@{i}" for i in (0, 2, 3)]
    (fetched,) = (e for e in found.of(1) if e.name == "fetch pool5")
    # pool5 has 128 x 6 x 6 x 256 halved by a pooling of 3 at stride 2: 5 x 5 here, fp32.
    assert fetched.arguments["bytes"] == 128 * 5 * 5 * 256 * 4
    assert fetched.arguments["from"] == "device 0, unsplit layers and slice 0"
    # Backward, its gradient goes back.
    (sent,) = (e for e in found.of(1) if e.name == "gradient of pool5")
    assert sent.arguments["to"] == "device 0, unsplit layers and slice 0"
    assert sent.seconds == pytest.approx(fetched.seconds)


def test_in_2017_unsplit_layers_are_never_where_slice_0_is() -> None:
    found = timeline("alex_v2_2gpu", parallel="model", cost_model="paleo2017")
    assert found.workers == ("unsplit layers", "slice 0", "slice 1")
    assert {e.arguments["network"] for e in found.events if e.category == "transfer"} == {
        "at memory bandwidth"
    }


def test_slices_take_the_batches_of_all_workers_in_turn() -> None:
    found = timeline("alex_v2_4gpu", parallel="hybrid", hybrid_workers=3)
    assert found.workers == (
        "worker 0, slice 0",
        "worker 1, slice 1",
        "worker 2, slice 2",
        "slice 3",
    )
    batches = [e for e in found.of(3) if e.name == "parallel_fc67/fc6@3"]
    assert [event.arguments["batch"] for event in batches] == [0, 1, 2]
    # Each worker hands its own batch to all other devices; the first before anything is computed.
    sends = [(e.worker, e.lane, e.name) for e in found.events if e.name.startswith("send batch")]
    expected = [(0, 0, "send batch 0"), (1, 1, "send batch 1"), (2, 1, "send batch 2")]
    assert sends == expected * 2  # forward and backward
    fetches = Counter(e.worker for e in found.events if e.name.startswith("fetch batch"))
    assert fetches == {0: 4, 1: 4, 2: 4, 3: 6}
    # What is fetched comes from the one who sends it, to each of the three others.
    handed = Counter(
        (found.events[source].worker, found.events[source].name, found.events[target].name)
        for source, target in found.flows
        if "batch" in found.events[source].name
    )
    assert handed == {(i, f"send batch {i}", f"fetch batch {i}"): 6 for i in range(3)}
    # The last device has no unsplit layers: it waits for them.
    wait = found.of(3)[0]
    assert (wait.name, dict(wait.arguments)) == ("wait", {"seconds": wait.seconds})


def test_unsplit_layers_behind_the_slices_come_after_them() -> None:
    found = timeline("alex_v2_4gpu", parallel="hybrid", hybrid_workers=2)
    names = [event.name for event in found.of(0, lane=0)]
    order = [names.index(name) for name in ("conv5", "parallel_fc67/fc7@0", "fc8")]
    back = [f"{name} backward" for name in ("fc8", "parallel_fc67/fc7@0", "conv5")]
    order += [names.index(name) for name in back]
    assert order == sorted(order)


def test_the_batches_of_2017_that_have_no_layers_of_their_own_say_so() -> None:
    found = timeline("alex_v2_4gpu", parallel="hybrid", hybrid_workers=4, cost_model="paleo2017")
    rest = [event for event in found.of(2) if event.name == "batches 1 to 3"]
    assert [event.category for event in rest] == ["forward", "backward"]
    for event in rest:
        one, less = event.arguments["one_batch_s"], event.arguments["taken_off_each_s"]
        # (Lo - t) K + t is Lo for the first batch, and 3 (Lo - t) for the others.
        assert event.seconds == pytest.approx(3 * (one - less))
        assert "no layers of its own" in event.arguments["note"]
    two = timeline("alex_v2_4gpu", parallel="hybrid", hybrid_workers=2, cost_model="paleo2017")
    assert [e.name for e in two.of(3) if "note" in e.arguments] == ["batch 1"] * 2


def test_a_time_below_zero_cannot_be_drawn() -> None:
    how: dict[str, Any] = {"parallel": "hybrid", "hybrid_workers": 100_000}
    how["cost_model"] = "paleo2017"
    with pytest.raises(paleo.SettingError, match=r"below zero for the slices with 100000 workers"):
        timeline("alex_v2_4gpu", **how)


def test_more_events_than_a_viewer_opens_are_refused() -> None:
    with pytest.raises(paleo.SettingError) as caught:
        timeline("nin", workers=100_000)
    assert str(caught.value) == (
        f"a timeline of 100,000 workers would have more than {MAX_EVENTS:,} events: ask for fewer "
        "workers"
    )
    with pytest.raises(paleo.SettingError, match="ask for fewer workers"):
        timeline("nin", workers=2**31 - 1)


def test_a_net_that_takes_no_time_has_no_timeline() -> None:
    net = make_net({"data": {"type": "Input", "parents": [], "tensor": [1, 3]}})
    for parallel in ("data", "model", "hybrid"):
        with pytest.raises(paleo.SettingError, match=f"{net.name}: no layer takes any time"):
            timeline(net, parallel=parallel, cost_model="roofline")


def test_timelines_are_values() -> None:
    found, again = (timeline("lenet5", workers=2) for _ in range(2))
    assert found == again
    assert {found: "a step"}[again] == "a step"
    assert len({*found.events, *again.events}) == len(found.events)
    assert timeline("lenet5", workers=2, batch_size=64) != found


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"net": ["nin", "alex_v2"]}, "net: a timeline is of one net, got"),
        ({"workers": [1, 2]}, "num_workers: a timeline is of one worker count, got [1, 2]"),
        ({"workers": 0}, "num_workers: expected a whole number from 1"),
        ({"scaling": ["weak"]}, 'scaling: a timeline is of one, got ["weak"]'),
        ({"scheme": ["OneToAll"]}, 'scheme: a timeline is of one, got ["OneToAll"]'),
        ({"scheme": "OneToAl"}, "unknown communication scheme 'OneToAl' (did you mean"),
        (
            {"parallel": "all"},
            (
                "parallel: expected data or mesh or model or hybrid or single_process or "
                "heterogeneous, got 'all'"
            ),
        ),
    ],
)
def test_what_is_wrong_is_said(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(paleo.PaleoError) as caught:
        timeline(**{"net": "nin", **wrong})
    assert str(caught.value).startswith(message)


def test_mistakes_of_net_and_settings_are_said_together() -> None:
    with pytest.raises(paleo.PaleoError) as caught:
        timeline("nim", device="K41", batch_size=0)
    said = [mistake.message for mistake in caught.value.mistakes]
    assert len(said) == 3
    assert said[0].startswith("unknown net 'nim'")
