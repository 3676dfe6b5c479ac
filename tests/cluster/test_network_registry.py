"""The predefined networks: their rates by hand, their sources and names, `paleo networks`."""

from __future__ import annotations

import json

import click.testing
import pytest

import paleo
from paleo.cli import cli

#: GT/s, and which share of what a lane transfers is data: 8 bits in 10, 128 in 130, and all
#: but the 8 bytes of CRC and 6 of FEC in a flit of 256.
PCIE = {
    "pcie2": (5, 8 / 10),
    "pcie3": (8, 128 / 130),
    "pcie4": (16, 128 / 130),
    "pcie5": (32, 128 / 130),
    "pcie6": (64, 242 / 256),
}
#: Links, GB/s of one in one direction, GB/s of all in both as the makers print it.
LINKS = {
    "nvlink1": (4, 20, 160),
    "nvlink1_link": (1, 20, 40),
    "nvlink2": (6, 25, 300),
    "nvlink2_link": (1, 25, 50),
    "nvlink3": (12, 25, 600),
    "nvlink3_bridge": (4, 14.0625, 112.5),
    "nvlink4": (18, 25, 900),
    "nvlink5": (18, 50, 1800),
    "infinity_mi100": (3, 46, 276),
    "infinity_mi210": (3, 50, 300),
    "infinity_mi250x": (8, 50, 800),
    "infinity_mi300x": (7, 64, 896),
    "infinity_link": (1, 64, 128),
    "xgmi": (1, 64, 128),
    "ici_v2_link": (1, 62, 124),
    "ici_v3_link": (1, 70, 140),
    "ici_v4_link": (1, 50, 100),
    "ici_v5e_link": (1, 50, 100),
    "ici_v5p_link": (1, 100, 200),
    "ici_v3": (4, 70, 560),
    "ici_v4": (6, 50, 600),
    "ici_v5e": (4, 50, 400),
    "ici_v5p": (6, 100, 1200),
}
ETHERNET = (20, 25, 40, 50, 100, 200, 400, 800)
#: Gbit/s of a lane and the share of it that is data; 4 lanes each.
INFINIBAND = {
    "infiniband_qdr": (10, 8 / 10),
    "infiniband_fdr": (14.0625, 64 / 66),
    "infiniband_edr": (25.78125, 64 / 66),
    "infiniband_hdr": (50, 1),
    "infiniband_ndr": (100, 1),
    "infiniband_xdr": (200, 1),
}
#: Gbit/s of an instance, which has 8 GPUs.
EFA = {"p3dn": 100, "p4d": 400, "p5": 3200}
#: Gbit/s of others: 64 bytes each five cycles of 650 MHz; what the makers print.
OTHERS = {
    "gemini": 64 * 8 * 0.650 / 5,
    "omnipath": 100,
    "ena25": 25,
    "roce400": 400,
    "efa_p4d_card": EFA["p4d"] / 4,
    "efa_p5_card": EFA["p5"] / 32,
}
#: Networks whose latency no source has, and two that stand for none that can be bought.
NO_LATENCY = {"aws", "infiniband", "infiniband_xdr", "omnipath"}


def bandwidth(name: str) -> float:
    return float(paleo.find_network(name).bandwidth)


@pytest.mark.parametrize("name", PCIE)
def test_pci_express_is_16_lanes_after_line_coding(name: str) -> None:
    rate, data = PCIE[name]
    assert bandwidth(name) == pytest.approx(rate * 1e9 * 16 * data / 8, rel=5e-4)


def test_pci_express_has_the_figures_that_are_printed_of_it() -> None:
    # GB/s of x16 in one direction, as tables of the generations have them.
    printed = {"pcie2": 8.0, "pcie3": 15.754, "pcie4": 31.508, "pcie5": 63.015, "pcie6": 121.0}
    for name, figure in printed.items():
        assert bandwidth(name) / 1e9 == pytest.approx(figure, rel=5e-4), name


@pytest.mark.parametrize("name", LINKS)
def test_links_of_a_device_are_added_up_in_one_direction(name: str) -> None:
    links, rate, both = LINKS[name]
    assert bandwidth(name) == pytest.approx(links * rate * 1e9, rel=1e-12)
    assert 2 * bandwidth(name) == pytest.approx(both * 1e9, rel=1e-12)
    assert f"{both:g}" in paleo.find_network(name).figures["bandwidth"].note


@pytest.mark.parametrize("rate", ETHERNET)
def test_ethernet_has_the_rate_of_its_name(rate: int) -> None:
    assert bandwidth(f"ethernet{rate}") == rate * 1e9 / 8


def test_ethernet_of_10_gbit_is_the_one_of_2017() -> None:
    assert paleo.find_network("ethernet10") == paleo.find_network("ethernet")
    assert bandwidth("ethernet10") == 10e9 / 8


@pytest.mark.parametrize("name", INFINIBAND)
def test_infiniband_is_4_lanes_of_data(name: str) -> None:
    rate, data = INFINIBAND[name]
    assert bandwidth(name) == pytest.approx(4 * rate * data * 1e9 / 8, rel=1e-4)


@pytest.mark.parametrize("instance", EFA)
def test_efa_is_given_for_an_instance_and_for_one_of_its_8_gpus(instance: str) -> None:
    assert bandwidth(f"efa_{instance}") == EFA[instance] * 1e9 / 8
    assert bandwidth(f"efa_{instance}_gpu") == EFA[instance] * 1e9 / 8 / 8


def test_every_network_is_derived_here_but_those_of_2017() -> None:
    derived = {*PCIE, *LINKS, *INFINIBAND, *(f"ethernet{rate}" for rate in ETHERNET)}
    derived |= {f"efa_{name}" for name in EFA} | {f"efa_{name}_gpu" for name in EFA}
    assert set(paleo.network_names()) - derived - {*OTHERS} == {"aws", "ethernet", "infiniband"}


@pytest.mark.parametrize("name", OTHERS)
def test_other_networks_have_the_rate_of_their_sources(name: str) -> None:
    assert bandwidth(name) == pytest.approx(OTHERS[name] * 1e9 / 8, rel=1e-12)


def test_a_link_has_its_share_of_what_a_device_has() -> None:
    for name in paleo.network_names():
        if name.endswith("_link") and name.removesuffix("_link") in LINKS:
            device = name.removesuffix("_link")
            assert bandwidth(device) == LINKS[device][0] * bandwidth(name)


def test_latencies_have_the_order_that_links_have() -> None:
    # Seconds of a message: inside a node less than 1.5 us, InfiniBand 0.7 to 2 us, TCP and EC2
    # tens of microseconds.
    bounds = {
        **dict.fromkeys((*LINKS, *PCIE), (0.5e-6, 1.5e-6)),
        **dict.fromkeys((*INFINIBAND, "gemini", "roce400"), (0.5e-6, 2.5e-6)),
        **dict.fromkeys(("ethernet", *(f"ethernet{rate}" for rate in ETHERNET)), (10e-6, 50e-6)),
    }
    for name in paleo.network_names():
        network = paleo.find_network(name)
        assert ("latency" in network.figures) is (name not in NO_LATENCY), name
        low, high = bounds.get(name, (10e-6, 100e-6))  # the networks of EC2
        assert name in NO_LATENCY or low <= network.latency <= high, name


@pytest.mark.parametrize("name", paleo.network_names())
def test_a_network_has_a_title_a_source_and_says_what_it_is_made_of(name: str) -> None:
    network = paleo.find_network(name)
    assert network.name == name
    assert network.title
    assert network.figures["bandwidth"].source in network.sources.values()
    assert all(len(text) > 20 for text in network.sources.values())
    # 10 Gigabit Ethernet is made of nothing.
    assert network.figures["bandwidth"].note or name == "ethernet"


def test_names_and_aliases_are_unique() -> None:
    networks = [paleo.find_network(name) for name in paleo.network_names()]
    spellings = [word.lower() for each in networks for word in (each.name, *each.aliases)]
    assert len(set(spellings)) == len(spellings)


def test_only_the_networks_of_2017_have_a_figure_for_that_model() -> None:
    own = {n for n in paleo.network_names() if paleo.find_network(n).own_bandwidth_2017}
    assert own == {"aws", "ethernet", "ethernet20", "infiniband", "pcie2", "pcie3"}
    assert paleo.find_network("nvlink4").bandwidth_2017 == 450e9


@pytest.mark.parametrize("name", ["nvlink4", "ici_v5p", "pcie6", "efa_p5_gpu"])
def test_a_new_network_works_in_a_simulation(name: str) -> None:
    (run,) = paleo.simulate("nin", device="K40", network=name, scaling="weak").runs
    assert run.network == name


# paleo networks


def output(*arguments: str) -> str:
    result = click.testing.CliRunner().invoke(cli, ["networks", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_list_fits_a_terminal_and_stands_in_order_of_kind_and_rate() -> None:
    lines = output().splitlines()
    assert max(map(len, lines)) <= 80
    names = [line.split()[0] for line in lines[3:] if line and line.split()[0] in NAMES]
    assert sorted(names) == sorted(NAMES)
    assert names[0] == "aws"
    rates = [f"ethernet{rate}" for rate in ETHERNET]
    start = names.index("ethernet")
    assert names[start : start + 9] == ["ethernet", *rates]
    assert names[-7:] == [*PCIE, "roce400", "xgmi"]


NAMES = paleo.network_names()


def test_the_list_has_both_units_and_says_where_the_sources_are() -> None:
    text = output()
    assert "(Gbit/s)" in text
    assert "(GB/s)" in text
    assert "paleo networks NAME" in text
    (row,) = (line.split() for line in text.splitlines() if line.startswith("nvlink4"))
    assert row[-2:] == ["3,600.0", "450.00"]


def test_a_network_that_is_named_has_its_notes_and_sources() -> None:
    text = output("nvlink4", "pcie3")
    assert "nvlink4: 18 links x 25 GB/s; 900 in both directions" in text
    assert "[1] NVIDIA" in text
    assert "2017: The bandwidth differs" in text


@pytest.mark.parametrize("arguments", [(), ("nvlink4", "ici_v4")])
def test_programs_get_sources_and_si_units_in_any_case(arguments: tuple[str, ...]) -> None:
    names = list(arguments) or NAMES
    entries = json.loads(output(*arguments, "--format=json"))["networks"]
    assert [entry["name"] for entry in entries] == names
    for entry in entries:
        figure = entry["figures"]["bandwidth"]
        assert (figure["unit"], figure["value"]) == ("bytes/s", bandwidth(entry["name"]))
        assert figure["source"]
    header, *rows = output(*arguments, "--format=tsv").splitlines()
    assert header.split("\t")[:3] == ["name", "title", "bandwidth_bytes_per_s"]
    assert [row.split("\t")[0] for row in rows] == names
    assert all(row.split("\t")[-1] for row in rows)
