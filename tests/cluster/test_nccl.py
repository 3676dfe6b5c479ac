"""NCCL's choice and its seconds, and kernels of one's own: by hand from constants of the files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paleo
from paleo.cluster import find_cluster, find_network
from paleo.cluster.cluster_files import read_cluster
from paleo.cluster.collectives import COLLECTIVES, custom, nccl
from paleo.cluster.collectives.base import Operation
from paleo.cluster.collectives.nccl import CURRENT, Nccl, choice, seconds
from paleo.cluster.collectives.paths import Path as Links
from paleo.cluster.network import read_network
from paleo.cluster.topology import Cluster, Group, flat_group
from paleo.core.errors import HardwareError, SettingError

MIB = 2**20
ALL_REDUCE, ALL_GATHER = Operation.ALL_REDUCE, Operation.ALL_GATHER


def group(cluster: str, workers: object = 8) -> Group:
    return find_cluster(cluster).group(workers)  # type: ignore[arg-type]


def figure(network: str, name: str) -> float:
    link = find_network(network).nccl
    assert link
    return float(link.value(name))


# The choice: NCCL's tuner.


def test_a_short_message_goes_in_a_ring_by_the_protocol_of_the_least_latency() -> None:
    found = choice(group("dgx_a100"), 1024)
    assert (found.algorithm, found.protocol, found.bound_by) == ("ring", "LL", "latency")


def test_two_a100_change_from_ll_to_simple_where_the_tuner_counts_them_equal() -> None:
    # All-gather on two: one hop. LL: 6.6 + 0.6 us and 87.7 GB/s, Simple: 8.4 + 3.4 us and 240 GB/s,
    # half of the message on the link; LL128, 14 + 1.9 us and 0.92 x 240 GB/s, is never less.
    equal = (11.8e-6 - 7.2e-6) / (0.5 / 87.7e9 - 0.5 / 240e9)
    links = group("dgx_a100", 2)
    assert choice(links, 0.99 * equal, ALL_GATHER).protocol == "LL"
    assert choice(links, 1.01 * equal, ALL_GATHER).protocol == "Simple"


def test_eight_a100_gather_in_ll128_between_the_two() -> None:
    # Seven hops: LL 6.6 + 4.2, LL128 14 + 13.3, Simple 8.4 + 23.8 us; 7/8 of the message.
    first = (27.3e-6 - 10.8e-6) / (7 / 8 / 87.7e9 - 7 / 8 / (0.92 * 240e9))
    second = (32.2e-6 - 27.3e-6) / (7 / 8 / (0.92 * 240e9) - 7 / 8 / 240e9)
    sizes = np.array([0.99 * first, 1.01 * first, 0.99 * second, 1.01 * second])
    found = choice(group("dgx_a100"), sizes, ALL_GATHER)
    assert found.protocol.tolist() == ["LL", "LL128", "LL128", "Simple"]
    assert set(found.algorithm.tolist()) == {"ring"}
    assert found.bound_by[-1] == "node"


def test_eight_h100_leave_long_sums_to_the_switches_and_four_do_not() -> None:
    # NVLS: 25 us; eight channels of 45 GB/s, seven of which count, twice 0.85 of 315 GB/s; the ring
    # in LL 6.6 + 14 x 0.6 us and 141 GB/s. 14/8 of the message crosses a link.
    bandwidth = 2 * 0.85 * 360e9 * 7 / 8
    equal = (25e-6 - 15e-6) / (1.75 / 141e9 - 1.75 / bandwidth)
    links = group("dgx_h100")
    assert choice(links, 0.99 * equal).algorithm == "ring"
    assert choice(links, 1.01 * equal).algorithm == "nvls"
    assert choice(links, 1.01 * equal, ALL_GATHER).algorithm == "ring"
    # Four channels of 60 GB/s at the most: 2 x 0.85 x 240 x 3/4 is less than the ring's 360.
    assert set(choice(group("dgx_h100", 4), 2.0 ** np.arange(10, 33)).algorithm) == {"ring"}


def test_versions_have_what_their_releases_brought() -> None:
    links, long = group("dgx_h100"), 64 * MIB
    assert choice(links, long, nccl=Nccl("2.16.5")).algorithm == "ring"
    assert choice(links, long, nccl=Nccl("2.17")).algorithm == "nvls"
    several = group("dgx_a100", 64)
    assert choice(several, 1024, nccl=Nccl("2.3")).algorithm == "ring"
    assert choice(several, 1024, nccl=Nccl("2.4")).algorithm == "tree"
    eight = group("dgx_a100")
    assert choice(eight, 8 * MIB, ALL_GATHER, Nccl("2.4")).protocol != "LL128"
    assert choice(eight, 8 * MIB, ALL_GATHER, Nccl("2.5")).protocol == "LL128"
    # Until 2.20 LL was counted with a quarter of 240 GB/s in an all-reduce, then with 87.7.
    assert choice(eight, 1.5 * MIB, nccl=Nccl("2.20.3")).protocol == "LL128"
    assert choice(eight, 1.5 * MIB, nccl=Nccl("2.21.5")).protocol == "LL"


@pytest.mark.parametrize("version", ["", "2", "two.one", "2.27-1"])
def test_a_version_is_numbers(version: str) -> None:
    with pytest.raises(SettingError, match=r"^nccl: expected a version such as 2\.27 or"):
        seconds(group("dgx_a100"), 1024, nccl=Nccl(version))


# The seconds: what was measured of links.


@pytest.mark.parametrize(("cluster", "network"), [("dgx_a100", "nvlink3"), ("dgx_h100", "nvlink4")])
def test_the_shortest_messages_take_a_launch_and_the_hops(cluster: str, network: str) -> None:
    launch, hop = figure(network, "launch"), figure(network, "hop")
    for workers, hops in ((2, 2), (4, 6), (8, 14)):
        assert seconds(group(cluster, workers), 1) == pytest.approx(launch + hops * hop, rel=1e-3)
        gathered = seconds(group(cluster, workers), 1, ALL_GATHER)
        assert gathered == pytest.approx(launch + hops / 2 * hop, rel=1e-3)


def test_a_ring_in_ll_has_lines_of_half_the_data_and_a_last_step_to_unpack() -> None:
    # 1 MiB on two A100: half of it at half of 240 GB/s, and half unpacked by 32 channels.
    passed = MIB / 2 / 120e9 + MIB / 2 / (CURRENT.unpack * 32 * figure("nvlink3", "channel"))
    expected = figure("nvlink3", "launch") + figure("nvlink3", "hop") + passed
    assert seconds(group("dgx_a100", 2), MIB, ALL_GATHER) == pytest.approx(expected)


def test_lines_of_ll_stream_over_pcie_where_a_hop_or_its_bytes_are_longer() -> None:
    launch, hop = figure("pcie4", "launch"), figure("pcie4", "hop")
    channels = 32 * figure("pcie4", "channel")
    for workers, reached in ((2, 20e9), (4, 5e9)):
        links, hops = group("l40s_pcie", workers), workers - 1
        for size in (2048, 2**15):
            share = size / workers
            filled = CURRENT.fill * (launch + hops * hop) * min(share / 4096, 1)
            sent = hops * share / (reached / 2)
            streamed = max(hops * hop + filled, sent)
            expected = launch + streamed + share / (CURRENT.unpack * channels)
            assert choice(links, size, ALL_GATHER).protocol == "LL"
            assert seconds(links, size, ALL_GATHER) == pytest.approx(expected)


def test_devices_poll_over_their_own_links_in_all_tiers_of_their_kind() -> None:
    # The uplinks of switches are PCIe 5, whose hop was measured between other devices.
    launch, hop = figure("pcie4", "launch"), figure("pcie4", "hop")
    for workers in (4, 8):
        shortest = launch + 2 * (workers - 1) * hop
        assert seconds(group("l40s_pcie", workers), 1) == pytest.approx(shortest, rel=1e-3)


def test_a_long_ring_comes_near_to_the_bandwidth_that_nccl_counts_with() -> None:
    size = 2**36
    bus = 2 * 7 / 8 * size / seconds(group("dgx_a100"), size)
    # 14/8 of the message, and an eighth copied once more at 0.7 of a copy by 32 channels.
    copied = 0.7 / 8 / (32 * figure("nvlink3", "channel"))
    assert bus == pytest.approx(1.75 / (1.75 / 240e9 + copied), rel=2e-3)


def test_switches_that_sum_take_the_whole_message_and_the_sums_of_a_share() -> None:
    size = 2**36
    reached = 0.85 * CURRENT.sums * 370.8e9
    assert seconds(group("dgx_h100"), size) == pytest.approx(size * 1.125 / reached, rel=2e-3)


def test_of_a_last_node_that_is_not_full_few_cards_bind_an_all_to_all() -> None:
    # 8 + 4 workers: between the nodes go 8 x 4 twelfths, on one side over eight cards, on the other
    # over four; of 8 + 8 it is 8 x 8 sixteenths over eight; of 8 + 8 + 4 the last 4 x 16 twentieths
    # over four cards are less than 8 x 12 twentieths over eight.
    size, card = 2**36, figure("infiniband_hdr", "bandwidth")
    for workers, a_card in ((12, 32 / 12 / 4), (16, 4 / 8), (20, 64 / 20 / 4), (24, 128 / 24 / 8)):
        found = seconds(group("dgx_a100", workers), size, Operation.ALL_TO_ALL)
        assert found == pytest.approx(a_card * size / card, rel=2e-3)


def test_messages_between_pairs_are_bound_by_the_links_or_by_what_channels_copy() -> None:
    size = 2**36
    found = seconds(group("dgx_h100"), size, Operation.ALL_TO_ALL)
    assert found == pytest.approx(7 / 8 * size / (CURRENT.message_share * 370.8e9), rel=2e-3)
    pair = seconds(group("dgx_h100", 2), size, Operation.ALL_TO_ALL)
    assert pair == pytest.approx(size / (32 * figure("nvlink4", "channel")), rel=2e-3)
    one = seconds(group("dgx_h100", 2), size, Operation.POINT_TO_POINT)
    assert one == pytest.approx(size / 370.8e9, rel=2e-3)


def test_the_cards_between_nodes_bind_long_messages_of_several() -> None:
    size = 2**36
    found = choice(group("dgx_a100", 64), size)
    assert found.bound_by == "fabric"
    cards = 8 * figure("infiniband_hdr", "bandwidth")
    assert found.seconds == pytest.approx(2 * 63 / 64 * size / cards, rel=0.02)


def test_the_slowest_tier_of_a_pcie_tree_binds_and_is_named() -> None:
    size = 2**32
    for workers, tier, reached in ((2, "switch", 20e9), (4, "socket", 5e9), (8, "node", 1.5e9)):
        found = choice(group("l40s_pcie", workers), size, ALL_GATHER)
        assert found.bound_by == tier
        expected = (workers - 1) / workers * size / reached
        assert found.seconds == pytest.approx(expected, rel=0.02)


def test_less_of_the_bandwidth_takes_longer_and_latency_stays() -> None:
    cluster = find_cluster("dgx_a100")
    half = cluster.with_networks(lambda network: network.reaching(0.5))
    assert seconds(half.group(8), 1) == pytest.approx(seconds(cluster.group(8), 1), rel=1e-3)
    ratio = seconds(half.group(8), 2**36, ALL_GATHER) / seconds(cluster.group(8), 2**36, ALL_GATHER)
    assert 1.9 < ratio < 2


# For arrays, and among schemes.


@pytest.mark.parametrize("operation", Operation)
@pytest.mark.parametrize("cluster", ["dgx_a100", "dgx_h100", "l40s_pcie", "aws_p4d", "dgx1_v100"])
def test_arrays_have_what_each_number_has(cluster: str, operation: Operation) -> None:
    most = min(find_cluster(cluster).size, 300)
    random = np.random.default_rng(0)
    workers = random.integers(1, most + 1, 200)
    workers[:20] = np.minimum(np.arange(1, 21), most)
    sizes = np.exp(random.uniform(0, np.log(2**33), 200)).astype(np.int64)
    many: Any = choice(group(cluster, workers), sizes, operation)
    assert np.array_equal(many.seconds, seconds(group(cluster, workers), sizes, operation))
    for i in range(200):
        one = choice(group(cluster, int(workers[i])), int(sizes[i]), operation)
        assert one.seconds == pytest.approx(many.seconds[i], rel=1e-12)
        if workers[i] > 1:
            assert (one.algorithm, one.protocol) == (many.algorithm[i], many.protocol[i])
            assert one.bound_by == many.bound_by[i]


def test_one_worker_has_nothing_to_send() -> None:
    for operation in Operation:
        assert seconds(group("dgx_h100", 1), MIB, operation) == 0


def test_schemes_of_nccl_take_its_best_protocol() -> None:
    links = group("dgx_h100")
    sizes = 2.0 ** np.arange(10, 33)
    auto = COLLECTIVES["auto"].seconds_on(links, sizes)
    ring = COLLECTIVES["ring"].seconds_on(links, sizes)
    summed = COLLECTIVES["in_network"].seconds_on(links, sizes)
    taken = choice(links, sizes).algorithm
    assert np.array_equal(auto, np.where(taken == "nvls", summed, ring))
    assert COLLECTIVES["tree"].seconds_on(links, 1024) == seconds(links, 1024, scheme="tree")
    with pytest.raises(SettingError, match="in_network cannot do all_gather here"):
        seconds(links, 1024, ALL_GATHER, scheme="in_network")


def test_where_nothing_is_known_of_the_links_the_textbook_stays() -> None:
    links = flat_group(8, find_network("ethernet"))
    ring = COLLECTIVES["ring"]
    (phase,) = ring.phases(links)
    assert ring.seconds_on(links, MIB) == phase.seconds(MIB)
    assert COLLECTIVES["auto"].seconds_on(links, MIB) <= phase.seconds(MIB)
    with pytest.raises(SettingError, match="nccl: no constants are known of the links of ethernet"):
        choice(links, MIB)


def test_a_group_on_nodes_has_what_is_inside_and_between() -> None:
    links = Links(group("dgx_a100", 20))
    assert (links.nodes, links.on_node, links.inside) == (3, 8, 240e9)
    # The last node has four of the twenty, and their four cards.
    assert links.between == 4 * figure("infiniband_hdr", "bandwidth")
    assert Links(group("dgx_a100", 24)).between == 8 * figure("infiniband_hdr", "bandwidth")
    assert Links(group("dgx_a100", 8)).between == float("inf")


# Kernels of one's own.


def test_one_shot_reads_the_message_of_all_others() -> None:
    kernel = figure("nvlink4", "kernel")
    base = custom.PUSHED.waits * kernel
    short = custom.seconds(group("dgx_h100", 2), 2, custom.PUSHED)
    assert short == pytest.approx(base, rel=1e-3)
    read = 3 * 256 * 1024 / (custom.PUSHED.one_share * 370.8e9)
    four = custom.seconds(group("dgx_h100", 4), 256 * 1024, custom.PUSHED)
    assert four == pytest.approx(base * (1 + custom.PUSHED.per_doubling) + read)


def test_kernels_with_barriers_change_to_two_shots_at_the_sizes_of_the_source() -> None:
    for workers, size in ((4, 512 * 1024), (8, 256 * 1024)):
        below, at = (custom.seconds(group("dgx_h100", workers), s) for s in (size - 1, size))
        assert at > 1.1 * below
    two = (custom.seconds(group("dgx_h100", 2), s) for s in (MIB - 1, MIB))
    assert next(two) == pytest.approx(next(two), rel=1e-3)


def test_longer_messages_and_those_between_nodes_are_left_to_nccl() -> None:
    scheme = COLLECTIVES["custom_all_reduce"]
    for workers, size in ((8, 8 * MIB), (16, 1024)):
        links = group("dgx_h100", workers)
        assert scheme.seconds_on(links, size) == seconds(links, size)
    assert scheme.seconds_on(group("dgx_h100", 8), 1024) < seconds(group("dgx_h100", 8), 1024)
    sizes, counts = np.array([1024, 1024, 8 * MIB, MIB]), np.array([2, 16, 8, 1])
    many: Any = scheme.seconds_on(group("dgx_h100", counts), sizes)
    for i in range(4):
        one = scheme.seconds_on(group("dgx_h100", int(counts[i])), int(sizes[i]))
        assert many[i] == pytest.approx(one, rel=1e-12)


def test_on_pcie_two_devices_alone_have_a_kernel_and_tensorrt_llm_has_none() -> None:
    pair, short = group("l40s_pcie", 2), 64 * 1024
    # Begins and ends with a barrier, and reads the other's message at a share of 24 GB/s.
    base = custom.BARRIERS.waits * figure("pcie4", "kernel")
    read = short / (custom.BARRIERS.one_share * 24e9)
    assert custom.seconds(pair, short) == pytest.approx(base + read)
    assert custom.seconds(pair, short, custom.PUSHED) == seconds(pair, short)
    counts: Any = np.array([2, 4, 8])
    many: Any = custom.seconds(group("l40s_pcie", counts), short)
    assert many[0] == pytest.approx(base + read)
    for i in (1, 2):
        assert many[i] == pytest.approx(seconds(group("l40s_pcie", int(counts[i])), short))


def test_where_the_kernel_is_not_known_it_is_the_textbooks() -> None:
    pair = group("dgx1_v100", 2)
    with pytest.raises(SettingError, match="custom_all_reduce is not known for nvlink2_link, tier"):
        custom.seconds(pair, 1024)
    scheme, textbook = COLLECTIVES["custom_all_reduce"], COLLECTIVES["sharded_server"]
    assert scheme.seconds_on(pair, 1024) == textbook.seconds_on(pair, 1024)
    with pytest.raises(SettingError, match="custom_all_reduce does not do all_gather"):
        scheme.seconds_on(group("dgx_h100"), 1024, ALL_GATHER)


# The figures and their files.


def test_every_figure_of_nccl_has_a_source_of_its_file() -> None:
    counted = [name for name in paleo.network_names() if find_network(name).nccl]
    assert {"nvlink3", "nvlink4", "nvlink5", "pcie4", "pcie5"} <= set(counted)
    for name in counted:
        network = find_network(name)
        assert network.nccl
        for of in network.nccl.figures.values():
            assert of.source in network.sources.values()


def test_nvlink_5_scales_from_what_was_published_and_from_nvlink_4() -> None:
    # Intercepts of 9.17, 12.83 and 23.09 us at 2, 6 and 14 hops: least squares.
    hop, launch = np.polyfit([2, 6, 14], [9.169338e-6, 12.827518e-6, 23.092555e-6], 1)
    assert figure("nvlink5", "hop") == pytest.approx(hop, rel=0.01)
    assert figure("nvlink5", "launch") == pytest.approx(launch, rel=0.01)
    scaled = figure("nvlink4", "ramp") * 370.8 / 721.8
    assert figure("nvlink5", "ramp") == pytest.approx(scaled, rel=0.01)


def test_mistakes_of_a_network_file_are_said(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        '[figures]\nbandwidth = "10 GB/s"\n[nccl]\nkind = "wire"\nhop = "1 GB"\nhops = "1 us"\n'
    )
    with pytest.raises(HardwareError) as raised:
        read_network(path)
    assert [str(mistake).partition("mine.toml: ")[2] for mistake in raised.value.mistakes] == [
        "key \"nccl.hops\": unknown key (did you mean 'hop'?)",
        "key \"nccl.kind\": expected one of nvlink, pci, network, got 'wire'",
        'key "nccl.bandwidth": missing',
        'key "nccl.hop": expected a number with a unit, such as "10 us", got \'1 GB\'',
    ]


def test_a_tier_says_what_collectives_reach_over_it(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'device = "L40S"\n[[tiers]]\nname = "box"\nnetwork = "pcie4"\nsize = 4\n'
        'reached = { value = "10 GB/s", note = "of mine" }\n'
    )
    mine = read_cluster(path, paleo.find_device, find_network)
    assert mine.group(4).levels[0].nccl_bandwidth == pytest.approx(10e9)
    path.write_text(path.read_text().replace("10 GB/s", "fast"))
    with pytest.raises(HardwareError, match=r"tiers\[0\]\.reached.: expected a number"):
        read_cluster(path, paleo.find_device, find_network)


def test_a_program_of_its_own_takes_other_constants() -> None:
    def slower(cluster: Cluster) -> Cluster:
        def changed(network: paleo.Network) -> paleo.Network:
            if network.nccl is None:
                return network
            figures = dict(network.nccl.figures)
            if "launch" in figures:
                figures["launch"] = replace(figures["launch"], value=1e-3)
            return replace(network, nccl=replace(network.nccl, figures=figures))

        return cluster.with_networks(changed)

    found = nccl.seconds(slower(find_cluster("dgx_a100")).group(2), 1)
    assert found == pytest.approx(1e-3 + 2 * figure("nvlink3", "hop"), rel=1e-3)


def test_switches_that_sum_alone_are_asked_for_with_arrays_too() -> None:
    # On one node they are NVLS, on two its tree: names that differ within an array.
    scheme, size = COLLECTIVES["in_network"], 64 * MIB
    many: Any = scheme.choice(group("dgx_h100", np.array([8, 16])), size)
    assert list(many.algorithm) == ["nvls", "nvls_tree"]
    for i, workers in enumerate((8, 16)):
        one = scheme.choice(group("dgx_h100", workers), size)
        assert (one.algorithm, one.seconds) == (many.algorithm[i], many.seconds[i])
