"""`paleo collectives` and `paleo clusters`: sentences, tables, and what programs get."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import click.testing
import pytest

import paleo
from paleo.cli import cli
from paleo.cluster.topology import Cluster
from paleo.costs.collective_bands import known_bands
from paleo.views.charts.collectives import collectives_charts

RING = ("--cluster=ethernet_cluster", "--scheme=ring", "--collective=all_reduce")
OWN = """
title = "two boxes"
device = "K40"
[sources]
shop = "The invoice of the shop, 2015"
[[tiers]]
name = "box"
network = "pcie3"
size = 4
source = "shop"
[[tiers]]
name = "cable"
network = "ethernet25"
size = 2
links = 2
note = "two cards each"
"""


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)


def call(*arguments: str, status: int = 0) -> click.testing.Result:
    result = click.testing.CliRunner().invoke(cli, arguments, prog_name="paleo")
    assert result.exit_code == status, result.output
    return result


def rows(*arguments: str) -> Any:
    return json.loads(call("collectives", *arguments, "--format=json").stdout)["rows"]


def words(text: str) -> str:
    return " ".join(text.split())


# paleo collectives


def test_the_first_sentences_say_the_longest_message_and_the_shortest() -> None:
    text = call("collectives", *RING, "--num_workers=8,16", "--bytes=1KiB,1MiB,1GiB").stdout
    long, short = (
        next(row for row in rows(*RING, "--num_workers=16", f"--bytes={size}"))
        for size in ("1GiB", "1KiB")
    )
    first = words(text.split("\n\n")[0])
    assert first.startswith("An all-reduce of 1 GiB among 16 workers of ethernet_cluster takes ")
    assert f"takes {1e3 * long['seconds']:.0f} ms by ring: " in first
    assert f"{long['bus_bandwidth'] / 1e9:.3g} GB/s of bus bandwidth, bounded by the links" in first
    assert first.endswith(
        f"One of 1 KiB takes {1e6 * short['seconds']:.3g} us, mostly latency (by ring)."
    )
    assert long["bound"] == "leaf"
    assert f"bounded by the links of {long['bound']}." in first


def test_of_several_schemes_the_quickest_is_said_that_leaves_all_with_the_sum() -> None:
    asked = (*RING[:1], "--collective=all_reduce", "--num_workers=64", "--bytes=1GiB")
    found = rows(*asked, "--scheme=all")
    summing = [row for row in found if row["scheme"] != "ButterflyMixing"]
    quickest = min(summing, key=lambda row: row["seconds"])
    assert min(row["seconds"] for row in found) < quickest["seconds"]  # mixing is not done then
    text = words(call("collectives", *asked, "--scheme=all").stdout)
    assert f"by {quickest['algorithm']}, the quickest: " in text
    both = words(call("collectives", *asked, "--cluster=dgx_a100,dgx_h100").stdout)
    assert "on dgx_h100, the quickest: " in both


def test_programs_get_the_keys_of_every_row() -> None:
    (row,) = rows(*RING, "--num_workers=8", "--bytes=65536")
    assert {"cluster", "collective", "algorithm", "workers", "bytes", "seconds"} < row.keys()
    assert (row["cluster"], row["collective"], row["workers"]) == (
        "ethernet_cluster",
        "all_reduce",
        8,
    )
    assert (row["algorithm"], row["scheme"], row["protocol"]) == ("ring", "ring", None)
    assert row["bytes"] == 64 * 1024
    # As nccl-tests count: 2 (K - 1) / K of the bytes.
    assert row["bus_bandwidth"] == pytest.approx(1.75 * row["bytes"] / row["seconds"])
    assert row["algorithm_bandwidth"] == pytest.approx(row["bytes"] / row["seconds"])
    text = call("collectives", *RING, "--num_workers=8", "--bytes=64KiB", "--format=csv").stdout
    (same,) = csv.DictReader(io.StringIO(text))
    assert float(same["seconds"]) == row["seconds"]
    assert {key: same[key] for key in ("cluster", "collective", "workers", "bytes", "bound")} == {
        key: str(row[key]) for key in ("cluster", "collective", "workers", "bytes", "bound")
    }


def test_a_table_has_columns_for_what_differs_alone() -> None:
    text = call("collectives", *RING, "--num_workers=8", "--quiet").stdout
    title, table, _ = text.split("\n\n", 2)
    assert title == "ethernet_cluster, all_reduce, ring"
    assert words(" ".join(table.splitlines()[:2])) == (
        "bus bandwidth workers message time (GB/s) bounded by"
    )
    both = call("collectives", *RING, "--scheme=ring,tree", "--num_workers=8", "--quiet").stdout
    assert "scheme" in both
    markdown = call("collectives", *RING, "--num_workers=8", "--format=markdown").stdout
    assert "| workers | message | time |" in markdown
    assert "| 8 | 1 GiB | " in markdown


def test_rows_can_be_ranked() -> None:
    asked = (*RING[:1], "--collective=all_reduce", "--num_workers=64", "--bytes=1MiB")
    found = {row["scheme"]: row["seconds"] for row in rows(*asked, "--scheme=all")}
    text = call("collectives", *asked, "--scheme=all", "--sort=seconds", "--format=csv").stdout
    named = [row["scheme"] for row in csv.DictReader(io.StringIO(text))]
    assert named == sorted(found, key=lambda scheme: found[scheme])


def test_explained_are_the_phases_of_each_tier_and_uneven_groups(tmp_path: Path) -> None:
    path = tmp_path / "boxes.toml"
    path.write_text(OWN)
    asked = (f"--cluster={path}", *RING[1:], "--num_workers=5", "--bytes=1GiB", "--explain")
    text = call("collectives", *asked).stdout
    assert "all_reduce of 1 GiB among 5 workers of boxes by ring" in text
    lines = [words(line) for line in text.splitlines()]
    (box,) = [line for line in lines if line.startswith("ring box")]
    (cable,) = [line for line in lines if line.startswith("ring cable")]
    # Twice three hops in a box, twice one between them; 2 (K - 1) / K of the message over two
    # cards of 25 Gbit/s, as if it were twice as long: the second box has one device, and one card.
    assert box.startswith("ring box 6 ")
    assert " 1.60 GiB 15.8 " in box
    assert cable.startswith("ring cable 2 ")
    assert " 3.20 GiB 6.25 " in cable
    assert cable.endswith("*")
    note = "5 workers do not fill each box of 4 devices: the last has 1"
    assert f"note: {note}" in words(text)
    assert "Messages that share links fairly, simulated one by one: " in words(text)
    (row,) = rows(*asked)
    assert row["note"] == note
    assert [(move["phase"], move["tier"]) for move in row["phases"]] == [
        ("ring", "box"),
        ("ring", "cable"),
    ]
    # Four rings side by side share the one card of the second box.
    latency = sum(move["latency_s"] for move in row["phases"])
    slowest = max(move["transfer_s"] for move in row["phases"])
    assert row["flows_s"] == pytest.approx(latency + slowest, rel=0.01)


def test_programs_are_told_beside_that_workers_do_not_fill_nodes() -> None:
    result = call("collectives", *RING, "--num_workers=60", "--format=csv")
    assert result.stderr == (
        "paleo: note: 60 workers do not fill each leaf of 48 devices: the last has 12\n"
    )


def test_a_file_of_ones_own_is_a_cluster(tmp_path: Path) -> None:
    path = tmp_path / "boxes.toml"
    path.write_text(OWN)
    (row,) = rows(f"--cluster={path}", "--num_workers=8", "--bytes=1MiB", *RING[1:])
    assert row["cluster"] == "boxes"
    assert row["bound"] == "cable"
    path.write_text(OWN.replace("size = 2", "size = 0").replace('"pcie3"', '"pcie33"'))
    lines = call("collectives", f"--cluster={path}", status=1).stderr.splitlines()
    assert len(lines) == 2
    assert all(line.startswith(f"paleo: {path}: key ") for line in lines)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--cluster=dgx_a10",), "unknown cluster 'dgx_a10' (did you mean 'dgx_a100'?)"),
        (
            ("--cluster=aws_g3", "--num_workers=5"),
            "num_workers: 5 devices, but cluster aws_g3 has 4",
        ),
        (("--collective=reduce",), 'collective: unknown collective "reduce"'),
        (
            ("--scheme=in_network", "--cluster=dgx_a100"),
            "scheme: in_network needs switches that sum",
        ),
        (("--scheme=tree", "--collective=broadcast"), "collective: tree does not do broadcast"),
        (("--bytes=0",), 'bytes: expected one byte or more, got "0"'),
        (("--num_workers=0",), "num_workers: expected a whole number from 1"),
    ],
)
def test_a_mistake_is_one_line_and_exit_status_1(arguments: tuple[str, ...], line: str) -> None:
    result = call("collectives", *arguments, status=1)
    (said,) = result.stderr.splitlines()
    assert said.startswith(f"paleo: {line}")
    assert result.stdout == ""


# paleo clusters


def test_the_list_has_every_cluster_with_its_tiers() -> None:
    text = call("clusters").stdout
    assert max(map(len, text.splitlines())) <= 100
    ends = "from aws_g3 (4 devices) to aws_p5 (20,000 devices)"
    count = len(paleo.cluster_names())
    assert words(text).startswith(f"{count} clusters, {ends}; a TOML file makes another.")
    names = [line.split()[0] for line in text.splitlines() if line.split()]
    assert [name for name in names if name in paleo.cluster_names()] == paleo.cluster_names()
    (row,) = [words(line) for line in text.splitlines() if line.startswith("dgx_h100 ")]
    assert row == "dgx_h100 NVIDIA DGX H100 on NDR InfiniBand H100_SXM 8 x 2,048 16,384"


def test_one_cluster_is_drawn_from_the_inside_out_with_links_and_sources() -> None:
    text = call("clusters", "dgx_h100").stdout
    assert words(text).startswith(
        "dgx_h100 is NVIDIA DGX H100 on NDR InfiniBand: 16,384 H100 SXM in 2 tiers of links."
    )
    lines = [words(line) for line in text.splitlines()]
    start = lines.index("H100_SXM 1")
    node, fabric = lines[start + 1 : start + 3]
    assert node.startswith("`- node, switches that sum 8 x H100_SXM 1 x nvlink4 450 GB/s ")
    assert node.endswith(" us 8 [1]")
    assert fabric.startswith("`- fabric, switch 2,048 x node 8 x infiniband_ndr 400 GB/s ")
    assert fabric.endswith(" us 16,384 [2]")
    assert "also called: hgx_h100" in lines
    assert "[2] NVIDIA, DGX SuperPOD" in text


def test_shapes_are_named() -> None:
    assert "`- pod, torus of 16 x 16 x 16" in call("clusters", "tpu_v4_pod").stdout
    assert "`- node, mesh" in call("clusters", "dgx1_v100").stdout


def test_programs_get_tiers_in_si_units_with_sources() -> None:
    found = json.loads(call("clusters", "--format=json").stdout)["clusters"]
    assert [each["name"] for each in found] == paleo.cluster_names()
    for each in found:
        cluster: Cluster = paleo.find_cluster(each["name"])
        assert (each["device"], each["devices"]) == (cluster.device.name, cluster.size)
        for told, tier in zip(each["tiers"], cluster.tiers, strict=True):
            assert (told["name"], told["size"], told["sums"]) == (tier.name, tier.size, tier.sums)
            assert told["network"] == tier.network.name
            assert told["latency_s"] == tier.network.latency
            links = tier.links_of(tier.size)
            assert told["bandwidth_bytes_per_s"] == links * tier.network.bandwidth
            assert told["source"]
    header, first, *_ = call("clusters", "dgx_a100", "--format=csv").stdout.splitlines()
    assert header == "name,title,device,devices,tiers,aliases,sources,note"
    assert first.startswith(
        "dgx_a100,NVIDIA DGX A100 (80 GB) on HDR InfiniBand,A100_SXM_80GB,1120,"
        "8 by nvlink3; 140 by infiniband_hdr,"
    )


def test_an_own_file_is_drawn_too(tmp_path: Path) -> None:
    path = tmp_path / "boxes.toml"
    path.write_text(OWN)
    text = call("clusters", str(path)).stdout
    assert "boxes: two boxes" in text
    assert "`- box, switch 4 x K40 1 x pcie3 15.75 GB/s" in words(text)
    assert "cable: two cards each" in text
    path.write_text(OWN.replace("links = 2", "links = 0"))
    (line,) = call("clusters", str(path), status=1).stderr.splitlines()
    assert line.startswith(f'paleo: {path}: key "tiers[1].links": expected a whole number')


# Error bands


def test_inside_of_a_node_times_have_the_band_of_systems_that_no_fit_has_seen() -> None:
    given = ("--cluster=dgx_h100", "--collective=all_reduce", "--bytes=1GiB")
    near, far = rows(*given, "--num_workers=8,16")
    (nccl,) = (each.band for each in known_bands() if each.scheme == "auto")
    assert near["seconds_low"] == pytest.approx(nccl.low * near["seconds"])
    assert near["seconds_high"] == pytest.approx(nccl.high * near["seconds"])
    # A bandwidth is low where the time is long.
    assert near["bus_bandwidth_low"] == pytest.approx(near["bus_bandwidth"] / nccl.high)
    assert (far["seconds_low"], far["bus_bandwidth_high"]) == (None, None)
    text = words(call("collectives", *given, "--num_workers=8").stdout)
    low, high = (1e3 * near[f"seconds_{end}"] for end in ("low", "high"))
    assert f"(80 % of measured cases: {low:.1f} to {high:.1f} ms) by nvls: 440 GB/s" in text
    assert "collectives of NCCL over NVLink in a node" in text
    assert "of the other rows" not in text
    text = words(call("collectives", *given, "--num_workers=8,16").stdout)
    assert "no error band is known of the other rows" in text


@pytest.mark.parametrize(
    ("settings", "has_band"),
    [
        ({}, True),
        ({"cluster": "hgx_b200"}, True),
        ({"collective": "all_to_all"}, True),
        ({"schemes": "custom_all_reduce", "num_bytes": "4 MiB"}, True),
        ({"schemes": "custom_all_reduce", "num_bytes": "8 MiB"}, False),  # as NCCL does
        ({"schemes": "ring"}, False),  # forced, where NCCL would choose
        ({"collective": "broadcast"}, False),  # not measured
        ({"cluster": "dgx1_v100"}, False),  # a mesh of links that nobody measured
        ({"cluster": "l40s_pcie"}, False),  # whose constants are fitted to all that is measured
        ({"cluster": "gb200_nvl72", "workers": 16}, False),  # 8 are the most that were measured
        ({"workers": 1}, False),
        ({"stride": 2, "workers": 4}, False),
    ],
)
def test_nothing_else_has_a_band(settings: dict[str, Any], has_band: bool) -> None:
    asked: dict[str, Any] = {"cluster": "dgx_a100", "collective": "all_reduce", "workers": 8}
    (found,) = paleo.collectives(**{**asked, "num_bytes": "1 MiB", **settings})
    assert (found.band is not None) == has_band
    assert [end is not None for end in found.ends] == [has_band] * 2


def test_the_bands_that_are_shipped_are_of_many_cases_of_several_systems() -> None:
    for each in known_bands():
        assert 0.5 < each.band.low < 1 < each.band.high < 2
        assert each.band.coverage == 0.8
        assert each.band.count > 1000
        assert set(each.networks) <= set(paleo.network_names())


# Pictures


@pytest.mark.alike
def test_a_picture_has_time_and_bus_bandwidth_over_bytes(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "out.svg"
    given = (*RING, "--num_workers=2,4", "--bytes=1KiB,1MiB", f"--plot={path}")
    table = call("collectives", *given).stdout
    text = path.read_text("utf-8")
    for word in ("Time of all_reduce", "Bus bandwidth of all_reduce", "message (KiB)", "4 workers"):
        assert word in text
    assert table == call("collectives", *given[:-1]).stdout  # the same table as without


def test_lines_are_what_the_rows_say() -> None:
    asked: dict[str, Any] = {"collective": ["all_gather", "all_reduce"], "workers": [8, 2, 1]}
    sizes = ("1 MiB", "2 KiB")
    found = paleo.collectives(cluster="dgx_a100", schemes=["ring", "tree"], num_bytes=sizes,
                              **(asked | {"collective": "all_reduce"}))  # fmt: skip
    time, bandwidth = collectives_charts(found)
    assert [line.name for line in time.series] == [
        f"{scheme}, {count} worker{'s' * (count > 1)}"
        for scheme in ("ring", "tree") for count in (8, 2, 1)
    ]  # fmt: skip
    assert (time.x_label, time.log_x) == ("message (KiB)", True)
    assert {line.x for line in time.series} == {(2.0, 1024.0)}
    rows = {(each.scheme, each.workers, each.num_bytes): each for each in found}
    eight = time.series[0], bandwidth.series[0]
    for i, size in enumerate((2048, 1 << 20)):
        row = rows["ring", 8, size]
        assert eight[0].y[i] == pytest.approx(1e6 * row.seconds)
        # An all-reduce has 2 (n - 1) / n of its bytes cross each link.
        assert eight[1].y[i] == pytest.approx(1e-9 * 2 * 7 / 8 * size / row.seconds)
    assert time.series[2].y == (None, None)  # one worker alone
    both = collectives_charts(paleo.collectives(cluster="dgx_a100", num_bytes=sizes, **asked))
    assert [chart.title for chart in both] == [
        "Time of all_gather", "Bus bandwidth of all_gather", "Time of all_reduce",
        "Bus bandwidth of all_reduce",
    ]  # fmt: skip
    assert {chart.setting for chart in both} == {"dgx_a100, auto"}


def test_lines_of_clusters_are_told_apart_and_notes_are_of_one() -> None:
    found = paleo.collectives(
        cluster=["dgx_h100", "dgx_a100"], collective="all_reduce", workers=12, num_bytes="1 MiB"
    )
    time, _ = collectives_charts(found)
    assert [line.name for line in time.series] == ["dgx_h100, 12 workers", "dgx_a100, 12 workers"]
    assert time.notes[0].startswith("dgx_h100: 12 workers do not fill each node")


def test_characters_draw_the_same_and_nothing_is_one_line() -> None:
    text = call("collectives", *RING, "--num_workers=2", "--bytes=1MiB", "--plot=-").stdout
    assert "Time of all_reduce" in text
    assert "2 workers, by message (MiB)" in text
    result = call("collectives", *RING, "--num_workers=1", "--plot=-", status=1)
    (line,) = result.stderr.splitlines()
    assert line == "paleo: plot: Time of all_reduce: there is nothing to draw"
