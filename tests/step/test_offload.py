"""What devices keep in the memory of their host: bytes, seconds, and what does not go.

An H100 has 63.0 GB/s to its host, of which copies reach 0.88; the host of a dgx_h100 has 614.4 GB/s
for 8 devices, of which an update reaches 0.45. ZeRO-Offload: arXiv:2101.06840.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import paleo
from paleo.cluster import find_cluster, find_device
from paleo.core.errors import HardwareError, PaleoError
from paleo.net.generators import transformer
from paleo.step.mesh import Mesh
from paleo.step.meshed import Meshed
from paleo.step.offload import offload_of
from paleo.step.scenario import scenario
from paleo.studies.fitting import remedy
from paleo.studies.mesh_memory import mesh_memory
from paleo.studies.mesh_stages import meshed_of

LINK = 0.88 * 63.0e9
HOST = 0.45 * 614.4e9


def net(layers: int = 4) -> paleo.NetSpec:
    return transformer(layers=layers, hidden=256, heads=8, ffn=1024, vocab=4096, seq_len=128)


def meshed(devices: int, **settings: Any) -> Meshed:
    usual: dict[str, Any] = {
        "cluster": "dgx_h100",
        "dtype": "mixed_bf16",
        "optimizer": "adam",
        "overlap": False,
        "loss": "none",
        "micro_batch": 1,
    }
    found = scenario(net(), **usual | settings)
    plan = found.plan
    return Meshed(found.net, plan, Mesh.of(devices, plan.tp, plan.cp, plan.ep, plan.pp, plan.order))


def parts(step: Any) -> dict[str, float]:
    return {piece.name: float(piece.seconds) for piece in step.under("auto")}


def test_a_host_updates_as_fast_as_was_published() -> None:
    """Table 4: of 1, 4 and 10 billion parameters, on the host of a DGX-2, within a fifth."""
    settings: Any = {"cluster": "dgx2", "dtype": "mixed_fp16", "optimizer": "adam"}
    plan = scenario(net(), offload="optimizer", **settings).plan
    for billions, seconds in ((1, 0.22), (4, 1.03), (10, 2.57)):
        found = offload_of(plan).update(plan, billions * 10**9, 1)
        assert float(found.total) == pytest.approx(seconds, rel=0.2)


def test_an_update_reads_and_writes_the_memory_of_the_host() -> None:
    """Of a parameter 4 numbers are read and 3 written in fp32, and one in 2 bytes; 2 of 8 share."""
    found = meshed(2, offload="optimizer")
    _, (stage,) = found.stages(1)
    step = parts(found.step(2))
    assert step["update"] == pytest.approx(30 * stage.num_params * 2 / HOST)
    # Gradients of 4 bytes go, parameters of 2 come.
    assert step["offloaded"] == pytest.approx(6 * stage.num_params / LINK)


def test_copies_go_on_beside_the_backward_pass_and_the_update() -> None:
    """A block's gradients while the next are computed; the update takes longer than parameters."""
    found = meshed(1, offload="optimizer", overlap=True)
    _, (stage,) = found.stages(1)
    block = 4 * stage.num_params / LINK / stage.blocks
    beside = float(stage.backward) / stage.blocks
    assert 30 / HOST > 2 / LINK
    wanted = block + (stage.blocks - 1) * max(block - beside, 0.0)
    assert parts(found.step(1))["offloaded"] == pytest.approx(wanted)


def test_shares_of_the_data_update_their_own() -> None:
    whole, shared = (meshed(8, offload="optimizer", zero=zero) for zero in (0, 1))
    one, eighth = (parts(each.step(8))["update"] for each in (whole, shared))
    assert eighth == pytest.approx(one / 8, rel=1e-4)


@pytest.mark.parametrize("turns", [1, 3])
def test_state_and_what_is_learnt_are_on_the_host(turns: int) -> None:
    """Of 6 bytes of weights 2 stay, of 8 of state none; gradients stay if they are summed up."""
    plain, away = (meshed(1, offload=where) for where in ("none", "optimizer"))
    (there,), (found,) = (each.memory(1, turns) for each in (plain, away))
    params = away.stages(1)[1][0].num_params
    assert (found.weights, found.optimizer_state) == (2 * params, 0)
    assert found.gradients == 4 * params // (2 if turns == 1 else 1)  # of 2 of 4 blocks
    assert found.kept == there.kept
    assert found.host == (8 + 4 + 4) * params
    assert there.host == 0


@pytest.mark.parametrize(("zero", "ways"), [(0, 1), (1, 1), (2, 1), (3, 8)])
def test_a_device_has_what_it_computes_with(zero: int, ways: int) -> None:
    """2 bytes of each parameter, of its share alone where parameters are divided."""
    found = meshed(8, offload="optimizer", zero=zero)
    _, (stage,) = found.stages(1)
    (memory,) = found.memory(1, 1)
    assert memory.weights == pytest.approx(2 * stage.num_params / ways, rel=1e-4)
    share = stage.num_params / (8 if zero else 1)
    assert memory.host == pytest.approx(16 * share, rel=1e-4)


def test_gradients_are_summed_up_on_the_host() -> None:
    """Each micro-batch sends 4 bytes a parameter; the host reads two numbers and writes one."""
    found = meshed(2, offload="optimizer,gradients")
    _, (stage,) = found.stages(1)
    (memory,) = found.memory(1, 3)
    assert memory.gradients == 2 * stage.num_params
    one = max(4 * stage.num_params / LINK, 12 * stage.num_params * 2 / HOST)
    last = 4 * stage.num_params / LINK / stage.blocks
    back = 2 * stage.num_params / LINK
    assert parts(found.step(6))["offloaded"] == pytest.approx(3 * one + last + back)


def test_activations_go_and_come_back() -> None:
    """Each way once a micro-batch; of four blocks two have theirs on the device."""
    plain, found = (meshed(1, offload=where) for where in ("none", "activations"))
    (there,), (left,) = (each.memory(1, 3) for each in (plain, found))
    kept = there.kept
    assert (left.activations, left.host) == (-(-kept // 4) * 2, kept)
    moved = parts(found.step(3))["offloaded"]
    assert moved == pytest.approx(3 * 2 * kept / LINK)
    _, (stage,) = found.stages(1)
    assert float(stage.work.forward) == pytest.approx(float(stage.forward) + kept / LINK)
    hidden = meshed(1, offload="activations", overlap=True)
    _, (stage,) = hidden.stages(1)
    longer = kept / LINK - float(stage.forward)
    assert stage.swapped[0] == pytest.approx(max(longer, 0.0))


def test_each_stage_has_what_it_keeps_on_its_host() -> None:
    """Of the first of four stages four micro-batches are on their way, of the last one."""
    plain, found = (
        meshed(4, pp=4, offload=where, recompute="full").memory(1, 8)
        for where in ("none", "activations")
    )
    assert [one.host for one in found] == [one.kept for one in plain]
    assert all(one.total <= two.total for one, two in zip(found, plain, strict=True))


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "name": ({"offload": "state"}, "offload: expected optimizer or gradients or activations, got"),
    "alone": ({"offload": "gradients"}, "gradients are where they are used: give optimizer, too"),
    "matrices": (
        {"offload": "optimizer", "optimizer": "muon"},
        "offload: muon goes by matrices, which is not for a host",
    ),
    "no host": (
        {"offload": "optimizer", "cluster": "aws_p4d"},
        "offload: nothing is known of the host of aws_p4d: give --host",
    ),
    "no link": (
        {"offload": "optimizer", "device": "K80", "cluster": None, "host": "XEON_8280"},
        "device K80 has no host_bandwidth",
    ),
    "host": ({"offload": "optimizer", "host": "T4"}, "host: expected a processor .* got T4"),
    "unused": ({"host": "XEON_8280"}, "host: nothing is on it: give --offload, too"),
}


@pytest.mark.parametrize("name", list(MISTAKES))
def test_mistakes_are_said_in_a_line(name: str) -> None:
    given, said = MISTAKES[name]
    usual: Any = {"cluster": "dgx_h100", "workers": 1, "dtype": "fp32"}
    with pytest.raises(PaleoError, match=said) as caught:
        paleo.simulate(net(), **usual | given)
    assert "\n" not in str(caught.value)


def test_a_processor_is_named_where_a_cluster_says_nothing() -> None:
    """One XEON_8280, with 140.8 GB/s, for one device."""
    settings: Any = {"device": "RTX_4090", "dtype": "bf16", "optimizer": "adam"}
    plan = scenario(net(), offload="optimizer", host="XEON_8280", **settings).plan
    update = offload_of(plan).update(plan, 10**9, 4)
    assert float(update.total) == pytest.approx(28e9 / (0.45 * 140.8e9))


def test_what_a_host_has_no_room_for_does_not_fit() -> None:
    cluster = find_cluster("dgx_h100")
    assert cluster.host is not None
    found = mesh_memory(net(), cluster=cluster, workers=8, micro_batch=1, offload="activations")[0]
    needed = int(found.stages[0].host)
    for room, fits in ((8 * needed, True), (8 * needed - 1, False)):
        small = replace(cluster, host=replace(cluster.host, memory_capacity=room))
        (one,) = mesh_memory(net(), cluster=small, workers=8, micro_batch=1, offload="activations")
        assert one.fits is fits


def test_what_is_on_the_host_makes_a_step_fit() -> None:
    """On one device that holds what it computes with, but no optimizer's state."""
    params = paleo.summarize(net()).num_params
    device = find_device("H100_SXM")
    figure = replace(device.figures["memory_capacity"], value=float(12 * params))
    small = replace(device, figures={**device.figures, "memory_capacity": figure})
    cluster = replace(find_cluster("dgx_h100"), device=small)
    settings: Any = {"cluster": cluster, "dtype": "mixed_bf16", "optimizer": "adam", "workers": 1}
    (run,) = paleo.simulate(net(), global_batch=2, micro_batch=1, **settings).runs
    (row,) = run.rows
    assert row.to_dict()["fits"] is False
    found = remedy(meshed_of(run, row), row.batch_size)
    assert found is not None
    assert "optimizer" in found.settings["offload"]
    settings |= {"micro_batch": 1, **found.settings}
    again = paleo.simulate(net(), global_batch=2, **settings)
    values = again.runs[0].rows[0].to_dict()
    assert values["fits"] is True
    assert values["step_s"] == pytest.approx(found.seconds)
    assert values["memory_bytes"] == found.memory
    assert values["parts"]["offloaded"] > 0
    assert values["host_memory_bytes"] > 0


def test_a_cluster_file_says_what_its_hosts_have(tmp_path: Path) -> None:
    text = 'device = "A100_SXM_80GB"\n[[tiers]]\nname = "node"\nnetwork = "nvlink3"\nsize = 4\n'
    file = tmp_path / "mine.toml"
    file.write_text(f'{text}[host]\nmemory_bandwidth = "400 GB/s"\ndevices = 4\n', "utf-8")
    host = find_cluster(str(file)).host
    assert host is not None
    assert (host.memory_bandwidth, host.devices, host.memory_capacity) == (400e9, 4, None)
    file.write_text(f'{text}[host]\nmemory_bandwidth = "400"\ncores = 4\n', "utf-8")
    with pytest.raises(HardwareError) as caught:
        find_cluster(str(file))
    said = str(caught.value)
    assert all(key in said for key in ("host.memory_bandwidth", "host.devices", "host.cores"))
