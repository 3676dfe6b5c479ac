"""What collectives take, by hand; and what is asked for wrongly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import paleo
from paleo.cluster.collectives import COLLECTIVES, Operation
from paleo.core.errors import PaleoError, SettingError
from paleo.studies.collectives import CollectiveTime

#: Two nodes of four devices: 100 GB/s and 1 us inside, one card of 10 GB/s and 5 us each outside.
TWO = """
device = "K40"
[[tiers]]
name = "node"
network = "inside.toml"
size = 4
[[tiers]]
name = "fabric"
network = "outside.toml"
size = 2
"""


@pytest.fixture
def two(tmp_path: Path) -> Path:
    for name, rate, latency in (("inside", 100, 1), ("outside", 10, 5)):
        text = f'[figures]\nbandwidth = "{rate} GB/s"\nlatency = "{latency} us"\n'
        (tmp_path / f"{name}.toml").write_text(text)
    path = tmp_path / "two.toml"
    path.write_text(TWO)
    return path


def one(two: Path, **settings: object) -> CollectiveTime:
    (found,) = paleo.collectives(cluster=two, **settings)  # type: ignore[arg-type]
    return found


#: Of all eight devices and 10^9 bytes, by hand. Latencies of the schemes' steps in microseconds;
#: bytes on the link of a node, 10 GB/s, but where a phase is inside of nodes alone.
BY_HAND = {
    # 2 (K - 1) hops in all: twice three in each of two nodes, twice one between them. 2 x 7/8.
    ("ring", "all_reduce"): 12 * 1e-6 + 2 * 5e-6 + 1.75e9 / 10e9,
    ("ring", "reduce_scatter"): 6 * 1e-6 + 5e-6 + 0.875e9 / 10e9,
    ("ring", "all_gather"): 6 * 1e-6 + 5e-6 + 0.875e9 / 10e9,
    ("ring", "broadcast"): 6 * 1e-6 + 5e-6 + 1e9 / 10e9,
    # Two hops in a node, one between, up and down. Each of two nodes sends half up and half down.
    ("tree", "all_reduce"): 4 * 1e-6 + 2 * 5e-6 + 1e9 / 10e9,
    # 3/4 inside; then each of four has a quarter, of which it swaps half; all of it twice.
    ("hierarchical", "all_reduce"): 2 * (3e-6 + 0.75e9 / 100e9 + 5e-6 + 0.5e9 / 10e9),
    # Halves and quarters inside, then an eighth by each of four devices: half of the message.
    ("halving_doubling", "all_reduce"): 2 * (2e-6 + 0.75e9 / 100e9 + 5e-6 + 0.5e9 / 10e9),
    # Two swaps inside; four devices at once send all of it over the one card.
    ("recursive_doubling", "all_reduce"): 2e-6 + 2e9 / 100e9 + 5e-6 + 4e9 / 10e9,
    # Each of four sends four eighths to the other node, twice.
    ("sharded_server", "all_reduce"): 2 * 1e-6 + 2 * 5e-6 + 4e9 / 10e9,
    # The same, where nothing is known of its kernel.
    ("custom_all_reduce", "all_reduce"): 2 * 1e-6 + 2 * 5e-6 + 4e9 / 10e9,
    ("pairwise", "all_to_all"): 1e-6 + 5e-6 + 2e9 / 10e9,
    ("pairwise", "point_to_point"): 1e-6 + 5e-6 + 1e9 / 10e9,
    # Up and down: two levels inside, one between.
    ("TreeAllReduce", "all_reduce"): 4e-6 + 4e9 / 100e9 + 2 * 5e-6 + 2e9 / 10e9,
    ("TreeAllReduce", "broadcast"): 2e-6 + 2e9 / 100e9 + 5e-6 + 1e9 / 10e9,
    # The server gathers from three in its node and from four in the other, and sends back.
    ("OneToAll", "all_reduce"): 6e-6 + 6e9 / 100e9 + 8 * 5e-6 + 8e9 / 10e9,
}


@pytest.mark.parametrize(("scheme", "collective"), BY_HAND)
def test_seconds_on_two_nodes_by_hand(two: Path, scheme: str, collective: str) -> None:
    found = one(two, workers=8, num_bytes=10**9, schemes=scheme, collective=collective)
    assert found.seconds == pytest.approx(BY_HAND[scheme, collective], rel=1e-12)
    assert (found.cluster, found.workers, found.num_bytes) == ("two", 8, 10**9)
    assert (found.scheme, found.choice.algorithm, found.choice.protocol) == (scheme, scheme, "")
    assert found.choice.bound_by == "fabric"
    share = {"all_reduce": 2 * 7 / 8, "broadcast": 1, "point_to_point": 1}.get(collective, 7 / 8)
    assert found.bus_bandwidth == pytest.approx(share * 1e9 / found.seconds)
    assert found.algorithm_bandwidth == pytest.approx(1e9 / found.seconds)


@pytest.mark.parametrize("scheme", ["hierarchical", "halving_doubling", "sharded_server"])
def test_the_halves_of_an_all_reduce_take_as_long_as_all_of_it(two: Path, scheme: str) -> None:
    halves = [
        one(two, workers=8, num_bytes=4096, schemes=scheme, collective=half).seconds
        for half in ("reduce_scatter", "all_gather")
    ]
    whole = one(two, workers=8, num_bytes=4096, schemes=scheme, collective="all_reduce").seconds
    assert sum(halves) == pytest.approx(whole)


def test_switches_that_sum_get_the_message_once(two: Path) -> None:
    two.write_text(TWO.replace("size = 4\n", "size = 4\nsums = true\n"))
    asked = {"num_bytes": 10**9, "schemes": "in_network"}
    # In a node of four: all of it up, and a quarter again; two hops there and two back.
    found = one(two, workers=4, collective="all_reduce", **asked)
    assert found.seconds == pytest.approx(2e-6 + 1.25e9 / 100e9)
    assert found.choice.bound_by == "node"
    scattered = one(two, workers=4, collective="reduce_scatter", **asked)
    assert scattered.seconds == pytest.approx(1e-6 + 1e9 / 100e9)
    # Between nodes there is a ring for each device's quarter.
    both = one(two, workers=8, collective="all_reduce", **asked)
    expected = 2e-6 + 1.25e9 / 100e9 + 2 * (5e-6 + 0.5e9 / 10e9)
    assert both.seconds == pytest.approx(expected)


def test_what_bounds_it_is_latency_of_short_messages(two: Path) -> None:
    bounds = {
        size: one(two, workers=workers, num_bytes=size, schemes="ring", collective="all_reduce")
        for size, workers in ((1024, 8), (10**9, 8), (10**8, 4))
    }
    assert [found.choice.bound_by for found in bounds.values()] == ["latency", "fabric", "node"]


def test_the_whole_grid_is_there_and_each_operation_once() -> None:
    found = paleo.collectives(
        cluster=["dgx_a100", "dgx_h100"], workers=[8, 16], num_bytes=["1KiB", "1MiB"]
    )
    told = {(row.cluster, row.operation, row.workers, row.num_bytes) for row in found}
    assert len(told) == len(found) == 2 * len(Operation) * 2 * 2
    assert {row.scheme for row in found} == {"auto"}
    # Of all schemes, those that do something on this cluster: no switch of it sums.
    every = paleo.collectives(cluster="dgx_a100", workers=8, num_bytes=1, schemes="all")
    assert {row.scheme for row in every} == set(COLLECTIVES.built_in) - {"in_network"}
    assert {row.operation for row in every if row.scheme == "pairwise"} == {
        Operation.ALL_TO_ALL,
        Operation.POINT_TO_POINT,
    }


def on_one_network(share: float) -> CollectiveTime:
    (found,) = paleo.collectives(
        device="K20X",
        network="infiniband",
        workers=128,
        num_bytes=10**9,
        schemes="ring",
        collective="all_reduce",
        ppp_comm=share,
    )
    return found


def test_without_a_cluster_there_is_one_network() -> None:
    network = paleo.find_network("infiniband")
    latency, transfer = 254 * network.latency, 254 / 128 * 1e9 / network.bandwidth
    found = on_one_network(1.0)
    assert found.seconds == pytest.approx(latency + transfer)
    assert found.cluster == "K20X, infiniband"
    # Of which a share may be reached.
    assert on_one_network(0.5).seconds == pytest.approx(latency + 2 * transfer)


def test_numbers_of_workers_are_those_that_a_cluster_has() -> None:
    def counts(cluster: str) -> set[int]:
        return {row.workers for row in paleo.collectives(cluster=cluster)}

    assert counts("dgx_h100") == {2, 8, 64}
    assert counts("aws_p2_16xlarge") == {2, 8}
    assert counts("aws_g3") == {2}


def test_one_worker_alone_has_no_bandwidth(two: Path) -> None:
    found = one(two, workers=1, num_bytes=1024, schemes="ring", collective="all_reduce")
    assert (found.seconds, found.bus_bandwidth, found.algorithm_bandwidth) == (0, None, None)


def test_an_explanation_adds_up_and_says_what_flows_take(two: Path) -> None:
    asked = {"num_bytes": 10**9, "schemes": "ring", "collective": "all_reduce", "explain": True}
    full = one(two, workers=8, **asked)
    moves = list(full.moves())
    assert [(move["tier"], move["steps"]) for move in moves] == [("node", 12), ("fabric", 2)]
    latency = sum(move["latency_s"] for move in moves)
    slowest = max(move["transfer_s"] for move in moves)
    assert latency + slowest == pytest.approx(full.seconds)
    assert [move["is_slowest"] for move in moves] == [False, True]
    assert (full.unfilled, full.flows_s) == ("", None)
    # Five workers: four and one. Five rings' worth: 2 (K - 1) / K of the message leave each node
    # over the one card; rounds wait for the latency of the fabric.
    five = one(two, workers=5, **asked)
    assert five.unfilled == "5 workers do not fill each node of 4 devices: the last has 1"
    assert five.flows_s == pytest.approx(8 * 5e-6 + 1.6e9 / 10e9)
    assert "phases" not in one(two, workers=8, **{**asked, "explain": False}).to_dict()


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (
            {"workers": 9},
            "num_workers: 9 devices, but cluster two has 8 at most; there are more in ",
        ),
        ({"workers": 2**30}, "has 8 at most; no known one has so many"),
        ({"workers": 0}, "num_workers: expected a whole number from 1 to 2147483647, got 0"),
        ({"num_bytes": 0}, "bytes: expected one byte or more, got 0"),
        ({"num_bytes": -1}, "bytes: expected bytes, a whole number from 0 to"),
        ({"num_bytes": "4 GiB/s"}, "bytes: "),
        ({"collective": "allreduce"}, "\"allreduce\" (did you mean 'all_reduce'?)"),
        ({"schemes": "rings"}, "unknown communication scheme 'rings' (did you mean 'ring'?)"),
        (
            {"schemes": "ring", "collective": "all_to_all"},
            "collective: ring does not do all_to_all (it does all_reduce, reduce_scatter, all_",
        ),
        (
            {"schemes": "in_network", "workers": [8, 4], "num_bytes": [1, 2]},
            "scheme: in_network needs switches that sum: of node, fabric none does",
        ),
        ({"size": 3}, "size: unknown setting"),
    ],
)
def test_a_mistake_is_one_line(two: Path, settings: dict[str, object], line: str) -> None:
    with pytest.raises(PaleoError) as caught:
        one(two, **({"collective": "all_reduce", "schemes": "ring"} | settings))
    (said,) = str(caught.value).splitlines()
    assert line in said


def test_several_mistakes_are_a_line_each(two: Path) -> None:
    with pytest.raises(SettingError) as caught:
        paleo.collectives(cluster=[two, "aws_g3"], workers=[2, 9, 10], schemes=["ring", "pairwise"])
    lines = str(caught.value).splitlines()
    # Both sizes on both clusters; schemes do what they can if no collective is named.
    assert [line.partition(";")[0] for line in lines] == [
        f"num_workers: {count} devices, but cluster {name} has {most} at most"
        for name, most in (("two", 8), ("aws_g3", 4))
        for count in (9, 10)
    ]


@pytest.mark.parametrize(
    ("network", "line"),
    [
        ('bandwidth = "0 GB/s"\nlatency = "1 us"', "bandwidth"),
        ('bandwidth = "1 GB/s"\nlatency = "-1 us"', "latency"),
    ],
)
def test_links_need_a_bandwidth_and_no_latency_below_zero(
    two: Path, network: str, line: str
) -> None:
    (two.parent / "inside.toml").write_text(f"[figures]\n{network}\n")
    with pytest.raises(PaleoError) as caught:
        one(two)
    (said,) = str(caught.value).splitlines()
    assert 'two.toml: key "tiers[0].network"' in said
    assert f'inside.toml: key "figures.{line}"' in said


def test_larger_clusters_are_named_those_of_the_device_first() -> None:
    with pytest.raises(SettingError, match=r"; there are more in aws_p5 \(20,000\)$"):
        paleo.collectives(cluster="dgx_h100", workers=16_385)
    with pytest.raises(SettingError, match=r"there are more in dgx1_v100 \(5,280\), mi300x_plat"):
        paleo.collectives(cluster="dgx_a100", workers=5_000)


def test_a_version_of_nccl_has_what_it_brought() -> None:
    asked: Any = {"cluster": "dgx_h100", "workers": 8, "num_bytes": "1 GiB"}
    asked["collective"] = "all_reduce"
    # Switches that sum came with 2.17.
    for version, algorithm in (("2.16", "ring"), ("2.17", "nvls"), (None, "nvls")):
        [found] = paleo.collectives(**asked, nccl=version)
        assert found.choice.algorithm == algorithm
    for wrong in ("2", "two", ""):
        with pytest.raises(SettingError, match=r"^nccl: expected a version such as 2.27"):
            paleo.collectives(**asked, nccl=wrong)
    steps = [
        paleo.simulate("vgg16", cluster="dgx_h100", workers=8, nccl=version).runs[0].rows[0]
        for version in ("2.16", None)
    ]
    old, new = (step.communication["auto"] for step in steps)
    assert old > new


def test_groups_with_a_stride_share_the_links_between_nodes() -> None:
    # Eight groups of eight devices, one on each of eight nodes: each has one of eight cards.
    asked: Any = {"cluster": "dgx_a100", "workers": 8, "num_bytes": "1 GiB"}
    asked |= {"collective": "all_reduce", "schemes": "hierarchical"}
    [alone] = paleo.collectives(**asked)
    [among] = paleo.collectives(**asked, stride=8)
    # 2 * 7 / 8 of 1 GiB over 25 GB/s, and 14 latencies of 1.2 us.
    assert among.seconds == pytest.approx(1.75 * 2**30 / 25e9 + 14 * 1.2e-6, rel=1e-3)
    assert among.choice.bound_by == "fabric"
    assert alone.seconds < 0.2 * among.seconds
    assert among.to_dict()["stride"] == 8
    with pytest.raises(SettingError, match="1600 devices, but cluster dgx_a100 has 1120"):
        paleo.collectives(**{**asked, "workers": 200}, stride=8)
    with pytest.raises(SettingError, match=r"^stride: expected a whole number from 1"):
        paleo.collectives(**asked, stride=0)
