"""Measured steps of several devices: what connects them, what exchanges add, how steps scale."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from validation import cases, device_file, write

import paleo
from paleo.cluster import Device
from paleo.cluster.collectives import AUTO, COLLECTIVES
from paleo.cluster.gradient_exchange import EXCHANGES
from paleo.cluster.topology import Cluster
from paleo.measure.validate import predict, read_measurements
from paleo.measure.validate.nets import Remembering
from paleo.measure.validate.row_exchange import RowExchange
from paleo.measure.validate.scaling import same_submission, scaled
from paleo.measure.validate.wiring import Wiring, wiring_of
from paleo.step.parallelism.jitter import expected_slowest


def net_rows(tmp_path: Path, **columns: Any) -> Any:
    return cases(tmp_path, {"network": "lenet5", "batch_per_device": 16, **columns})


def test_several_devices_exchange_gradients_over_their_link(tmp_path: Path) -> None:
    found = net_rows(tmp_path, quantity="step_ms", n_devices=4, interconnect="NVLink3")
    # MindSpore sends all gradients when they are there, copied into one message and out of it.
    columns: dict[str, Any] = {"quantity": "step_ms", "framework": "MindSpore"}
    found = net_rows(tmp_path, n_devices=4, interconnect="NVLink3", **columns)
    (alone,) = predict(net_rows(tmp_path, **columns), "roofline")
    gradients = 4 * paleo.build(paleo.load("lenet5"), 16).num_params
    device = paleo.find_device(device_file(tmp_path))
    four = Cluster.flat(device, paleo.find_network("nvlink3")).group(4)
    exchanged = COLLECTIVES[AUTO].seconds_on(four, gradients)
    expected = expected_slowest(4, 0.03) * alone + 2 * 2 * gradients / 100e9 + exchanged
    assert predict(found, "roofline") == pytest.approx([expected], rel=1e-12)


@pytest.mark.parametrize(
    ("text", "n_devices", "in_node", "network"),
    [
        ("PCIe3", 2, 2, "pcie3"),
        ("NVLink2 and NVSwitch", 8, 8, "nvlink2"),
        ("NVLink/NVSwitch", 8, 8, "nvlink3"),  # an A100's
        ("NVLink2 intra; InfiniBand FDR inter", 8, 8, "nvlink2"),
        ("intra: NVLink2; inter: InfiniBand FDR", 16, 8, "infiniband_fdr"),
        ("ethernet20", 4, 1, "ethernet20"),
        ("accelerator: NVLink Gen3 600GB/s; host: 8x HDR; topology: N/A", 8, 8, "nvlink3"),
        ("accelerator: N/A; host: InfiniBand HDR", 8, 8, "nvlink3"),  # an SXM board's
        ("accelerator: NVLINK 3.0; host: InfiniBand HDR", 16, 8, "infiniband_hdr"),
        ("accelerator: PCIe, Gen5; host: N/A", 4, 4, "pcie5"),
        ("PCIe (see system name)", 2, 2, "pcie4"),  # an A100's
        ("NVLink bridge", 2, 2, "nvlink3"),
        ("NVLink bridge", 4, 4, "pcie4"),  # a bridge joins two
    ],
)
def test_an_interconnect_is_the_link_that_the_devices_need(
    text: str, n_devices: int, in_node: int, network: str, tmp_path: Path
) -> None:
    row = {
        "network": "lenet5", "quantity": "step_ms", "batch_per_device": 1, "interconnect": text,
        "n_devices": n_devices, "devices_per_node": in_node, "device": "A100_SXM_80GB",
    }  # fmt: skip
    (part,) = cases(tmp_path, row).parts
    wiring = part.case.wiring  # type: ignore[attr-defined]
    assert (wiring.outer or wiring.node) == network


# What connects devices.


@pytest.mark.parametrize(
    ("row", "wiring"),
    [
        (
            {"interconnect": "NVLink1 hybrid cube mesh", "device": "P100-SXM2-16GB (DGX-1)"},
            Wiring("dgx1_p100", 8),
        ),
        ({"interconnect": "NVLink2 (DGX-1 hybrid cube mesh)"}, Wiring("dgx1_v100", 8)),
        ({"interconnect": "NVLink2/NVSwitch (DGX-2)"}, Wiring("dgx2", 8)),
        ({"interconnect": "PCIe3", "source": "EC2 p2.8xlarge"}, Wiring("aws_p2_16xlarge", 8)),
        ({"interconnect": "NVLink 600 GB/s", "device": "A100_SXM_80GB"}, Wiring("nvlink3", 8)),
        (
            {
                "interconnect": "accelerator: NVLINK 3.0; host: Storage: 2x ConnectX-6 IB HDR "
                "200Gb/sec, Compute: 8x ConnectX-6 IB HDR 200Gb/Sec; topology: N/A",
                "device": "A100_SXM_80GB", "n_devices": 64,
            },
            Wiring("nvlink3", 8, "infiniband_hdr", 8),
        ),
        (
            {
                "interconnect": "accelerator: PCIe; host: Management: 1 x 25 Gb / Sec Ethernet, "
                "Compute: 1 x ConnectX - 6 IB HDR100 100 Gb / Sec",
                "device": "A100_PCIE_80GB", "n_devices": 4, "devices_per_node": 2,
            },
            Wiring("pcie4", 2, "infiniband_edr", 1),
        ),
        ({"interconnect": "ethernet20", "devices_per_node": 1}, Wiring("", 1, "ethernet20", 1)),
        (
            {"interconnect": "NVLink2 intra; 100 Gb/s InfiniBand inter", "n_devices": 16},
            Wiring("nvlink2", 8, "infiniband_edr", 1),
        ),
        (
            {"interconnect": "PCIe3; 25 Gigabit between nodes", "n_devices": 16},
            Wiring("pcie3", 8, "ethernet25", 1),
        ),
        (
            {"interconnect": "PCIe3", "notes": "EC2 p2.8xlarge", "n_devices": 16},
            Wiring("aws_p2_16xlarge", 8, "ethernet", 1),
        ),
    ],
)  # fmt: skip
def test_a_row_names_a_machine_or_its_links(
    row: dict[str, Any], wiring: Wiring, tmp_path: Path
) -> None:
    columns = {
        "network": "lenet5", "quantity": "step_ms", "value": 1, "batch_per_device": 1,
        "n_devices": 8, "devices_per_node": 8, "device": "V100-SXM2-16GB",
    }  # fmt: skip
    (measured,) = read_measurements(write(tmp_path, [columns | row]))
    device = paleo.find_device("A100_SXM_80GB")
    for name in ("P100_SXM2", "V100_SXM2_16GB", "A100_PCIE_80GB"):
        if measured.device.replace("_", "-").startswith(name.replace("_", "-")[:4]):
            device = paleo.find_device(name)
    assert wiring_of(measured, device) == wiring


def test_a_machine_has_the_tiers_of_its_node() -> None:
    device = paleo.find_device("K80_DIE")
    # Boards of two dies; of two devices a board is enough.
    assert [tier.size for tier in Wiring("gce_k80", 8).cluster(device).tiers] == [2, 4]
    assert [tier.size for tier in Wiring("gce_k80", 2).cluster(device).tiers] == [2]
    # PCIe of more devices than a socket has: two sockets.
    sockets = Wiring("pcie4", 10, "infiniband_edr", 1).cluster(device).tiers
    assert [(tier.name, tier.size) for tier in sockets[:2]] == [("socket", 5), ("node", 2)]
    assert sockets[2].network.name == "infiniband_edr"
    assert len(Wiring("", 1, "ethernet20").cluster(device).tiers) == 1


# What exchanges add.


def lenet(device: Device) -> Any:
    """Return the backward pass of a net of four layers with parameters."""
    graph = paleo.build(paleo.load("lenet5"), 4096)
    return paleo.estimate_backward(graph, device, cost_model="roofline")


@pytest.mark.parametrize("name", EXCHANGES)
def test_software_adds_what_it_exposes(name: str, tmp_path: Path) -> None:
    device = paleo.find_device(device_file(tmp_path))
    backward, software = lenet(device), EXCHANGES[name]
    made = [
        4 * layer.node.num_params for layer in reversed(backward.layers) if layer.node.num_params
    ]
    exchanging = RowExchange(
        device, 4, Wiring("ethernet20", 4), software, paleo.COST_MODELS["roofline"]
    )
    added = exchanging.added(backward)
    copied = software.copies * 2 * sum(made) / 100e9
    every = exchanging.seconds(sum(made))
    if not software.overlaps:
        assert added == pytest.approx(copied + every)
    else:  # some of it is hidden, but for the last gradients
        assert 0.999 * (copied + exchanging.seconds(made[-1])) < added
        assert added < copied + sum(map(exchanging.seconds, made)) + software.cycle
    if software.on_host:  # which takes nothing of the device: a long pass hides all but the last
        assert exchanging.added(backward, 1e6) == pytest.approx(
            exchanging.seconds(made[-1]), rel=1e-4
        )


def test_devices_of_a_node_may_share_the_update(tmp_path: Path) -> None:
    columns: dict[str, Any] = {"quantity": "step_ms", "n_devices": 4, "interconnect": "NVLink3"}
    (group,) = net_rows(tmp_path, **columns, framework="MindSpore").parts
    pricing = Remembering(paleo.COST_MODELS["roofline"])

    def seconds(exchange: str, *parts: str) -> float:
        case = replace(group.case, exchange=exchange, parts=parts)
        return float(case.seconds(group.device, "fp32", pricing, {}))

    whole = ("forward", "backward", "update", "exchange")
    passes = (*whole[:2], whole[3])
    by_all, shared = (
        seconds(by, *whole) - seconds(by, *passes) for by in ("fused", "distributed_lamb")
    )
    assert shared == pytest.approx(by_all / 4)


def test_variables_of_the_host_come_and_go_over_pcie(tmp_path: Path) -> None:
    device = paleo.find_device(device_file(tmp_path))
    software = (EXCHANGES["host_server"], paleo.COST_MODELS["roofline"])
    # Two devices behind one switch share its 126 Gbit/s.
    for inside, seconds in ((1, 1e-3), (8, 2e-3)):
        exchanging = RowExchange(device, inside, Wiring("nvlink1", inside), *software)
        assert exchanging.seconds(15.75e6) == pytest.approx(seconds)
    # Of four nodes each sends three quarters of the gradients of its eight devices away.
    nodes = Wiring("nvlink1", 8, "ethernet")
    slow = RowExchange(device, 32, nodes, *software).seconds(15.75e6)
    assert slow == pytest.approx(0.75 * 8 * 15.75e6 / 1.25e9)


# How steps scale.


def test_a_base_says_how_long_computation_takes(tmp_path: Path) -> None:
    row = {
        "network": "lenet5", "quantity": "step_ms", "batch_per_device": 16,
        "framework": "MindSpore", "interconnect": "NVLink3", "device": device_file(tmp_path),
    }  # fmt: skip
    path = write(
        tmp_path,
        [row | {"n_devices": n, "value": value} for n, value in ((1, 2.0), (4, 3.0), (8, 3.5))],
    )
    four, eight = scaled(read_measurements(path), "roofline")
    assert (four.measured, four.base_workers) == (3e-3, 1)
    alone = Cluster.flat(four.case.device, paleo.find_network("nvlink3"))
    gradients = 4 * paleo.build(paleo.load("lenet5"), 16).num_params
    for found, workers in ((four, 4), (eight, 8)):
        added = COLLECTIVES[AUTO].seconds_on(alone.group(workers), gradients)
        slowest = expected_slowest(workers, 0.03)
        expected = 2e-3 * slowest + 2 * 2 * gradients / 100e9 + added
        assert found.given == pytest.approx(expected, rel=1e-5)
    # Of four as a base: what is exchanged there is no computation.
    later = [each for each in read_measurements(path) if each.n_devices > 1]
    base, more = scaled(later, "roofline")
    assert (base.given, base.alone) == (None, pytest.approx(four.alone))
    exchanged = COLLECTIVES[AUTO].seconds_on(alone.group(4), gradients) + 4 * gradients / 100e9
    computed = (3e-3 - exchanged) / expected_slowest(4, 0.03)
    added = COLLECTIVES[AUTO].seconds_on(alone.group(8), gradients) + 4 * gradients / 100e9
    expected = computed * expected_slowest(8, 0.03) + added
    assert more.given == pytest.approx(expected, rel=1e-4)


def test_systems_of_one_submitter_are_alike(tmp_path: Path) -> None:
    row = {
        "network": "lenet5", "quantity": "step_ms", "value": 1, "batch_per_device": 16,
        "device": device_file(tmp_path), "source_id": "mlperf_training_v9",
    }  # fmt: skip
    sources = ("mlcommons/results A/results/n1", "mlcommons/results A/results/n2", "other B/x")
    rows = read_measurements(write(tmp_path, [row | {"source": text} for text in sources]))
    first, second, other = map(same_submission, rows)
    assert first == second != other


def test_the_model_of_2017_has_one_link_and_no_latency(tmp_path: Path) -> None:
    columns: dict[str, Any] = {"quantity": "step_ms", "device": "K20X", "framework": "MindSpore"}
    found = net_rows(tmp_path, n_devices=4, interconnect="PCIe3", **columns)
    (alone,) = predict(net_rows(tmp_path, **columns), "paleo2017")
    gradients = 4 * paleo.build(paleo.load("lenet5"), 16).num_params
    # Of its schemes a butterfly is the quickest: two rounds of all, at 128 Gbit/s.
    expected = alone + 2 * gradients / 16e9
    assert predict(found, "paleo2017") == pytest.approx([expected], rel=1e-9)
