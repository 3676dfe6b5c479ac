"""Why exchanges take what they do: buckets, phases by tier and what bounds a step, by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

import paleo
from paleo.cluster.collectives import COLLECTIVES
from paleo.core.errors import SettingError
from paleo.step.results import Run
from paleo.studies.explain_exchange import ExplainedStep, explain_run, explain_step, unfilled_notes

ON: dict[str, Any] = {"cluster": "dgx_a100", "batch_size": 128}


def run(net: str = "alex_v2", **settings: Any) -> Run:
    return paleo.simulate(net, **{**ON, **settings}).runs[0]


def explained(**settings: Any) -> ExplainedStep:
    (found,) = explain_run(run(**settings))
    return found


def test_buckets_have_all_gradients_and_their_seconds_are_the_exchange() -> None:
    found = explained(workers=64, schemes="ring")
    num_bytes = 4 * paleo.summarize("alex_v2").num_params
    assert sum(bucket.num_bytes for bucket in found.buckets) == num_bytes
    assert sum(bucket.seconds for bucket in found.buckets) + found.copies == pytest.approx(
        found.step.communication["ring"]
    )
    group = found.plan.group(64)
    for bucket in found.buckets:
        assert bucket.filled <= bucket.start <= bucket.end
        seconds = COLLECTIVES["ring"].seconds_on(group, bucket.num_bytes)
        assert bucket.seconds == pytest.approx(seconds)
    for first, second in zip(found.buckets, found.buckets[1:], strict=False):
        assert second.start == pytest.approx(max(first.end, second.filled))


def test_what_is_exposed_is_what_comes_after_the_pass_and_what_is_slower() -> None:
    found = explained(workers=64, schemes="ring", batch_size=4)
    after = found.buckets[-1].end - found.computed
    slower = found.computed - float(found.step["backward"])
    assert found.exposed == pytest.approx(after + slower)
    assert found.slowed == pytest.approx(slower)
    assert sum(bucket.exposed for bucket in found.buckets) == pytest.approx(after)
    assert found.hidden == pytest.approx(found.communication - found.exposed)


def test_one_exchange_comes_after_all_where_nothing_overlaps() -> None:
    found = explained(workers=64, schemes="ring", overlap=False)
    (bucket,) = found.buckets
    backward = float(found.step["backward"])
    assert (bucket.filled, bucket.start, found.computed) == (backward, backward, backward)
    assert found.hidden == 0
    assert bucket.exposed == pytest.approx(found.exposed)


def test_phases_on_tiers_are_those_of_the_textbook() -> None:
    # 8 nodes of 8. A node of DGX A100 has NVLink at 300 GB/s and 0.6 us, eight cards of 25 GB/s and
    # 1.2 us. Of N bytes a device sends 7/8 N inside, and a node all of 7/8 N to others.
    found = explained(workers=64, schemes="hierarchical", overlap=False)
    num_bytes = 4 * paleo.summarize("alex_v2").num_params
    tiers = {(tier.phase.split(",")[0], tier.tier): tier for tier in found.tiers if tier.counted}
    assert set(tiers) == {
        (phase, tier) for phase in ("reduce-scatter", "all-gather") for tier in ("node", "fabric")
    }
    for phase in ("reduce-scatter", "all-gather"):
        inside, across = tiers[phase, "node"], tiers[phase, "fabric"]
        assert inside.latency == pytest.approx(7 * 0.6e-6)
        assert across.latency == pytest.approx(7 * 1.2e-6)
        assert inside.transfer == pytest.approx(7 / 8 * num_bytes / 300e9)
        assert across.transfer == pytest.approx(7 / 8 * num_bytes / 200e9)
        assert across.sent == pytest.approx(7 / 8 * num_bytes)
        assert (inside.bandwidth, across.bandwidth) == (300e9, 200e9)
    assert found.textbook == pytest.approx(found.communication)
    assert found.textbook == pytest.approx(
        2 * (7 * (0.6e-6 + 1.2e-6) + 7 / 8 * num_bytes * (1 / 300e9 + 1 / 200e9))
    )


def test_a_step_is_bounded_by_what_most_of_it_waits_for() -> None:
    large, small = explained(workers=64), explained(workers=64, batch_size=1, schemes="OneToAll")
    assert large.bound == "computation"
    # A server of 64 workers: all pass the links between nodes of one node.
    assert small.exposed > small.step.compute
    assert (small.bound, small.exchange_bound) == ("fabric", "fabric")
    assert small.bounding_level is not None
    assert small.bounding_level.tier.network.name == "infiniband_hdr"
    tiny = explained(workers=1024, bucket=1, schemes="ring", net="lenet5")
    assert tiny.exchange_bound == "latency"
    assert tiny.bounding_level is None


def test_inside_a_node_its_links_are_what_bounds() -> None:
    assert explained(workers=8, schemes="ring", overlap=False).exchange_bound == "node"


def test_the_model_of_2017_knows_the_slowest_link() -> None:
    found = explained(workers=64, cost_model="paleo2017", schemes="TreeAllReduce")
    assert (found.exchange_bound, found.tiers) == ("fabric", ())
    flat = explain_run(
        paleo.simulate("nin", device="K20X", network="infiniband", workers=4).runs[0]
    )
    assert {each.exchange_bound for each in flat} <= {"infiniband", "latency"}


def test_a_worker_alone_and_split_layers_have_nothing_to_explain() -> None:
    assert explain_run(run(workers=1)) == ()
    model = paleo.simulate("alex_v2_4gpu", parallel="model").runs[0]
    assert explain_run(model) == ()
    single = paleo.simulate("nin", parallel="single_process", workers=2).runs[0]
    row = single.rows[0]
    assert explain_step(single, row, next(iter(row.exchanges), "auto")) is None


def test_every_scheme_and_row_is_explained_in_json() -> None:
    found = run(workers=(1, 8, 16), schemes=("ring", "tree"))
    values = [each.to_dict() for each in explain_run(found)]
    assert [(each["workers"], each["scheme"]) for each in values] == [
        (8, "ring"), (8, "tree"), (16, "ring"), (16, "tree"),
    ]  # fmt: skip
    assert json.loads(json.dumps(values)) == values
    for each in values:
        assert each["hidden_s"] + each["exposed_s"] == pytest.approx(each["communication_s"])


def test_workers_that_do_not_fill_nodes_are_said() -> None:
    assert run(workers=(4, 8, 16)).notes == run(workers=8).notes
    more = set(run(workers=12).notes) - set(run(workers=8).notes)
    assert more == {"12 workers do not fill each node of 8 devices: the last has 4"}
    plan = run(workers=8).plan
    (one,) = unfilled_notes(plan, (9, 10, 11, 16))
    assert one == (
        "9 workers do not fill each node of 8 devices: the last has 1; so it is with 2 other "
        "numbers of workers"
    )


def test_numbers_of_workers_that_nobody_gave_stop_where_the_cluster_ends() -> None:
    rows = paleo.simulate("lenet5", cluster="aws_g3").runs[0].rows
    assert [row.workers for row in rows] == [1, 2, 4]
    with pytest.raises(SettingError, match="num_workers: 8 devices, but cluster aws_g3 has 4"):
        paleo.simulate("lenet5", cluster="aws_g3", workers=(1, 8))


def test_what_is_sent_of_a_bucket_is_what_collectives_move() -> None:
    plain, halves = explained(workers=64), explained(workers=64, gradient_dtype="fp16")
    sizes = [bucket.num_bytes for bucket in plain.buckets]
    assert [bucket.to_dict()["sent_bytes"] for bucket in plain.buckets] == sizes
    # Gradients of fp32 in two bytes each.
    assert [bucket.num_bytes for bucket in halves.buckets] == sizes
    assert [bucket.to_dict()["sent_bytes"] for bucket in halves.buckets] == [
        size // 2 for size in sizes
    ]
    # A bit of each gradient, and two floats of each message: an all-to-all, then an all-gather.
    bits = explained(workers=64, compress="onebit").buckets[0]
    first, second = bits.messages
    assert (first.operation.value, second.operation.value) == ("all_to_all", "all_gather")
    assert first.num_bytes == pytest.approx(bits.num_bytes / 32, rel=1e-3)


def test_more_workers_than_a_node_has_behind_its_links_are_said() -> None:
    def notes(workers: int, network: str, **settings: Any) -> list[str]:
        found = paleo.simulate("lenet5", workers=workers, network=network, **settings)
        return [note for note in found.runs[0].notes if "connects" in note]

    h100: dict[str, Any] = {"device": "H100_SXM"}
    assert notes(8, "nvlink4", **h100) == notes(512, "infiniband_ndr", **h100) == []
    assert notes(512, "nvlink4", **h100, cost_model="paleo2017") == []
    (said,) = notes(512, "nvlink4", **h100)
    assert said.startswith("nvlink4 connects 8 devices of a node at most, not 512: --cluster=")
    # Two L40S behind a switch, two switches at a socket, two sockets.
    assert notes(8, "pcie4", device="L40S") == []
    assert notes(16, "pcie4", device="L40S")
