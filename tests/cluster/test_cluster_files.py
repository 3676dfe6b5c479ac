"""The files of clusters: the predefined ones by hand, and the mistakes that a file may have."""

from __future__ import annotations

from pathlib import Path

import pytest

import paleo
from paleo.cluster import cluster_aliases
from paleo.cluster.cluster_files import read_cluster
from paleo.cluster.topology import Cluster
from paleo.core.errors import HardwareError, SettingError, UnknownNameError

FOLDER = Path(paleo.__file__).parent / "cluster" / "clusters"
FILES = sorted(FOLDER.glob("*.toml"))


def cluster(name: str) -> Cluster:
    return paleo.find_cluster(name)


#: Devices of each tier, from the inside out, as the makers count them.
SIZES = {
    "aws_g3": (2, 2),
    "aws_p2_16xlarge": (2, 8),
    "aws_p3_16xlarge": (8, 8),
    "aws_p3dn": (8, 256),
    "aws_p4d": (8, 500),
    "aws_p5": (8, 2500),
    "dgx1_p100": (8, 124),
    "dgx1_v100": (8, 660),
    "dgx2": (16, 96),
    "dgx_a100": (8, 140),
    "dgx_h100": (8, 2048),
    "ethernet_cluster": (48, 16),
    "firecaffe": (128,),
    "gb200_nvl72": (72, 128),
    "gce_k80": (2, 4),
    "hgx_b200": (8, 2048),
    "hgx_h200": (8, 2048),
    "l40s_pcie": (2, 2, 2),
    "mi300x_platform": (8, 1024),
    "rtx_pro_6000_pcie": (2, 2, 2),
    "tpu_v2_pod": (256,),
    "tpu_v3_pod": (1024,),
    "tpu_v4_pod": (4096,),
    "tpu_v5e_pod": (256,),
    "tpu_v5p_pod": (8960,),
}
#: Devices in all, as sources print them.
PRINTED = {
    "aws_p2_16xlarge": 16,
    "aws_p3_16xlarge": 64,
    "aws_p3dn": 2048,
    "aws_p4d": 4000,
    "aws_p5": 20_000,
    "dgx2": 1536,
    "dgx_a100": 1120,
    "firecaffe": 128,
    "gb200_nvl72": 9216,
    "hgx_b200": 16_384,
    "mi300x_platform": 8192,
    "tpu_v5p_pod": 16 * 20 * 28,
}
#: Of so many devices in a cluster: GB/s in one direction that one member of each tier has to the
#: others, links x GB/s of one, from the inside out.
BANDWIDTHS = {
    # Two of a DGX-1 have one link. Of four, the first V100 has 1 + 1 + 2, of eight 1 + 1 + 2 + 2.
    ("dgx1_v100", 2): (1 * 25,),
    ("dgx1_v100", 4): (4 * 25,),
    ("dgx1_v100", 8): (6 * 25,),
    ("dgx1_v100", 16): (6 * 25, 4 * 12.5),
    # A P100 has one to each of its quad, and one to its like in the other.
    ("dgx1_p100", 2): (1 * 20,),
    ("dgx1_p100", 4): (3 * 20,),
    ("dgx1_p100", 8): (4 * 20,),
    ("aws_p3_16xlarge", 16): (6 * 25, 3.125),
    ("aws_p3dn", 16): (6 * 25, 12.5),
    ("aws_p4d", 16): (300, 4 * 12.5),
    ("aws_p5", 16): (450, 32 * 12.5),
    ("dgx2", 16): (150,),
    ("dgx2", 32): (150, 8 * 12.5),
    ("dgx_a100", 8): (300,),
    ("dgx_a100", 1120): (300, 8 * 25),
    ("dgx_h100", 32): (450, 8 * 50),
    ("hgx_h200", 32): (450, 8 * 50),
    ("hgx_b200", 32): (900, 8 * 50),
    # Two dies of a board have a way of their own, of which boards pass on one.
    ("gce_k80", 2): (15.75,),
    ("gce_k80", 8): (15.75, 15.75),
    ("gb200_nvl72", 72): (900,),
    ("gb200_nvl72", 144): (900, 72 * 50),
    # Two dies on a board, whose slot they share.
    ("aws_p2_16xlarge", 16): (15.75, 15.75),
    ("aws_g3", 4): (15.75, 15.75),
    # PCI Express 4.0 from a GPU, 5.0 from a switch, three links of xGMI from a socket.
    ("l40s_pcie", 2): (31.5075,),
    ("l40s_pcie", 4): (31.5075, 63.015),
    ("l40s_pcie", 8): (31.5075, 63.015, 3 * 64),
    ("rtx_pro_6000_pcie", 8): (63.015, 63.015, 3 * 64),
    # A link to each of the others.
    ("mi300x_platform", 2): (64,),
    ("mi300x_platform", 4): (3 * 64,),
    ("mi300x_platform", 8): (7 * 64,),
    ("mi300x_platform", 16): (7 * 64, 8 * 50),
    # 2 x 2 have two neighbours each, 4 x 4 have four; 2 x 2 x 2 three, 4 x 4 x 4 six.
    ("tpu_v2_pod", 4): (2 * 62,),
    ("tpu_v3_pod", 1024): (4 * 70,),
    ("tpu_v5e_pod", 16): (4 * 50,),
    ("tpu_v4_pod", 8): (3 * 50,),
    ("tpu_v4_pod", 64): (6 * 50,),
    ("tpu_v5p_pod", 8960): (6 * 100,),
    ("firecaffe", 128): (8.32,),
    # 48 nodes of 25 Gbit/s share 4 x 100 Gbit/s upwards: 3 to 1.
    ("ethernet_cluster", 48): (3.125,),
    ("ethernet_cluster", 96): (3.125, 4 * 12.5),
}


def test_every_file_is_looked_at() -> None:
    assert {path.stem for path in FILES} == set(SIZES)
    assert {name for name, _ in BANDWIDTHS} == set(SIZES)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_loads_and_every_tier_has_a_source(path: Path) -> None:
    found = cluster(path.stem)
    assert found.name == path.stem
    assert found.title
    used = {tier.source for tier in found.tiers}
    used |= {tier.reached_source for tier in found.tiers} - {""}
    used |= {found.host.source} if found.host else set()
    assert used == set(found.sources.values())  # each is in the file, and each is cited
    assert all(len(text) > 20 for text in used)
    for tier in found.tiers:
        figures = tier.network.figures
        assert all(figure.source in tier.network.sources.values() for figure in figures.values())
        assert tier.network.latency > 0


@pytest.mark.parametrize("name", SIZES)
def test_sizes_multiply_up(name: str) -> None:
    found = cluster(name)
    assert tuple(tier.size for tier in found.tiers) == SIZES[name]
    product = 1
    for size in SIZES[name]:
        product *= size
    assert found.size == product == PRINTED.get(name, product)
    group = found.group(product)
    assert tuple(level.members for level in group.levels) == SIZES[name]
    with pytest.raises(SettingError, match=f"has {product} at most"):
        found.group(product + 1)


@pytest.mark.parametrize(("name", "workers"), BANDWIDTHS)
def test_groups_have_the_bandwidth_of_their_links(name: str, workers: int) -> None:
    levels = [level for level in cluster(name).group(workers).levels if level.members > 1]
    found = [level.bandwidth / 1e9 for level in levels]
    assert found == pytest.approx(BANDWIDTHS[name, workers], rel=1e-12)


def test_names_and_aliases_are_unique() -> None:
    found = [cluster(path.stem) for path in FILES]
    spellings = [word.lower() for each in found for word in (each.name, *each.aliases)]
    assert len(set(spellings)) == len(spellings)


def test_clusters_are_found_by_name_by_alias_and_as_they_are(tmp_path: Path) -> None:
    assert paleo.cluster_names() == sorted(SIZES)
    assert cluster_aliases()["dgx1"] == "dgx1_v100"
    found = paleo.find_cluster("dgx1")
    assert found == paleo.find_cluster("dgx1_v100") == paleo.find_cluster(found)
    path = tmp_path / "own.toml"
    path.write_text(OWN)
    assert paleo.find_cluster(path).name == "own"
    with pytest.raises(
        UnknownNameError, match=r"'dgx_a10' \(did you mean 'dgx_a100'\?\); `paleo clus"
    ):
        paleo.find_cluster("dgx_a10")


def test_links_of_a_mesh_are_those_of_its_devices() -> None:
    # Six of a V100, four of a P100, seven of an MI300X, and no pair is listed twice.
    for name, links in (("dgx1_v100", 6), ("dgx1_p100", 4), ("mi300x_platform", 7)):
        tier = cluster(name).tiers[0]
        for device in range(8):
            assert sum(count for *pair, count in tier.wires if device in pair) == links
        assert len({frozenset(pair) for *pair, _ in tier.wires}) == len(tier.wires)
    assert cluster("aws_p3_16xlarge").tiers[0].wires == cluster("dgx1_v100").tiers[0].wires


def test_dimensions_of_pods_are_as_many_as_their_chips_have_pairs_of_links() -> None:
    dims = {"v2": 2, "v3": 2, "v4": 3, "v5e": 2, "v5p": 3}
    for version, count in dims.items():
        assert len(cluster(f"tpu_{version}_pod").tiers[0].dims) == count


def test_switches_sum_where_they_are_of_the_third_generation_or_later() -> None:
    sums = {path.stem for path in FILES if any(tier.sums for tier in cluster(path.stem).tiers)}
    assert sums == {"aws_p5", "dgx_h100", "hgx_h200", "hgx_b200", "gb200_nvl72"}


# A user's own file

OWN = """
title = "two boxes"
device = "K40"
aliases = ["boxes"]
note = "in a cellar"
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


def read(folder: Path, text: str) -> Cluster:
    path = folder / "own.toml"
    path.write_text(text)
    return read_cluster(path, paleo.find_device, paleo.find_network)


def mistakes(folder: Path, text: str) -> list[str]:
    with pytest.raises(HardwareError) as caught:
        read(folder, text)
    return str(caught.value).splitlines()


def test_an_own_file_has_its_name_and_may_have_no_sources(tmp_path: Path) -> None:
    found = read(tmp_path, OWN)
    assert (found.name, found.title, found.aliases) == ("own", "two boxes", ("boxes",))
    assert (found.device.name, found.note, found.size) == ("K40", "in a cellar", 8)
    box, cable = found.tiers
    assert (box.source, cable.source) == ("The invoice of the shop, 2015", "the file itself")
    assert (box.links, box.shape, box.sums) == (1, "switch", False)
    assert (cable.links, cable.note) == (2, "two cards each")


def test_a_file_may_say_how_many_devices_the_tiers_multiply_up_to(tmp_path: Path) -> None:
    assert read(tmp_path, OWN.replace("[sources]", "size = 8\n[sources]")).size == 8


def test_files_beside_it_are_named_by_their_paths(tmp_path: Path) -> None:
    (tmp_path / "slow.toml").write_text('[figures]\nbandwidth = "1 GB/s"\nlatency = "3 us"\n')
    found = read(tmp_path, OWN.replace('"pcie3"', '"slow.toml"'))
    level = found.group(2).levels[0]
    assert (level.bandwidth, level.latency) == (1e9, 3e-6)


MESH = 'shape = "mesh"\nwires = [[0, 1, 1]]\n'
TORUS = 'shape = "torus"\ndims = [2, 2]\n'
WIRE = "expected two members, 0 to 3, and a count, got "


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (OWN[OWN.index("[[") :], "", "tiers: missing: a cluster needs at least one tier"),
        ('"K40"', '"K4000"', "device: unknown device 'K4000'"),
        ('device = "K40"', "", "device: missing"),
        ("[sources]", "colour = 3\n[sources]", "colour: unknown key"),
        ("[sources]", "size = 9\n[sources]", "size: 9 devices, but the tiers have 4 x 2 = 8"),
        ("[sources]", "size = 0\n[sources]", "size: expected a whole number of 1 or more, got 0"),
        ('"pcie3"', '"pcie33"', "tiers[0].network: unknown network 'pcie33'"),
        ('network = "pcie3"', "", "tiers[0].network: missing"),
        ('"pcie3"', '"none.toml"', "tiers[0].network: "),
        ("size = 4", "size = 0", "tiers[0].size: expected a whole number of 1 or more, got 0"),
        ("size = 4", "size = 1.5", "tiers[0].size: expected a whole number of 1 or more, got 1.5"),
        ("size = 4", "", "tiers[0].size: missing"),
        ("links = 2", "links = 0", "tiers[1].links: expected a whole number of 1 or more, got 0"),
        ("links = 2", "link = 2", "tiers[1].link: unknown key (did you mean 'links'?)"),
        ('"cable"', '"box"', "tiers: two tiers have the name 'box'"),
        ('name = "box"', "", "tiers[0].name: missing"),
        (
            'source = "shop"',
            'source = "pub"',
            "tiers[0]: no such source: 'pub' is not in [sources]",
        ),
        ('source = "shop"', "sums = 1", "tiers[0].sums: expected true or false, got 1"),
        (
            'source = "shop"',
            'shape = "ring"',
            "tiers[0].shape: expected one of switch, mesh, torus, got 'ring'",
        ),
        ('source = "shop"', 'shape = "mesh"', "tiers[0].wires: a mesh needs it"),
        ('source = "shop"', "wires = [[0, 1, 1]]", "tiers[0].wires: a mesh needs it"),
        ('source = "shop"', MESH.replace("1, 1", "4, 1"), f"tiers[0].wires: {WIRE}[0, 4, 1]"),
        ('source = "shop"', MESH.replace("1, 1", "0, 1"), f"tiers[0].wires: {WIRE}[0, 0, 1]"),
        ('source = "shop"', MESH.replace("1, 1", "1, 0"), f"tiers[0].wires: {WIRE}[0, 1, 0]"),
        ('source = "shop"', MESH.replace("1, 1", "1"), f"tiers[0].wires: {WIRE}[0, 1]"),
        ('source = "shop"', MESH.replace("[[0, 1, 1]]", "3"), f"tiers[0].wires: {WIRE}3"),
        ('source = "shop"', MESH, "tiers[0].wires: member 2 has no link to one before it"),
        ('source = "shop"', 'shape = "torus"', "tiers[0].dims: a torus needs it"),
        ('source = "shop"', "dims = [2, 2]", "tiers[0].dims: a torus needs it"),
        (
            'source = "shop"',
            TORUS.replace("2, 2", "2, 3"),
            "tiers[0].dims: 2 x 3 members are not the size, 4",
        ),
        (
            'source = "shop"',
            TORUS.replace("2, 2", "0, 2"),
            "tiers[0].dims: expected a list of whole numbers, got [0, 2]",
        ),
    ],
)
def test_a_mistake_is_one_line_that_names_its_key(
    tmp_path: Path, old: str, new: str, expected: str
) -> None:
    assert OWN.count(old) == 1
    key, _, message = expected.partition(": ")
    (line,) = mistakes(tmp_path, OWN.replace(old, new))
    assert f'key "{key}": {message}' in line
    assert "own.toml" in line


def test_every_mistake_of_a_file_is_said_at_once(tmp_path: Path) -> None:
    wrong = OWN.replace('"K40"', '"none"').replace("size = 4", "size = -1")
    lines = mistakes(tmp_path, wrong.replace("links = 2", 'links = "two"'))
    assert [key in line for key, line in zip(("device", "size", "links"), lines, strict=True)]
