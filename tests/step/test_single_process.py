"""Data parallelism by one process for all devices, by hand: what moves, and who waits for the host.

The net: images of 4 x 4 x 2 in fp32, a convolution of 8 filters of 3 x 3 with biases, a batch
normalization, and an inner product to 10 scores.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import paleo
from paleo.cluster import Network
from paleo.cluster.frameworks import FRAMEWORKS
from paleo.measure.validate import read_measurements
from paleo.measure.validate.nets import Remembering, net_case
from paleo.measure.validate.protocols import protocol_of
from paleo.step.parallelism.single_process import moves
from paleo.studies.timeline import timeline

NET = paleo.loads(
    """{"name": "small", "layers": {
    "images": {"type": "Input", "tensor": [8, 4, 4, 2]},
    "conv": {"type": "Convolution", "parents": ["images"], "filter": [3, 3, 2, 8],
             "padding": "SAME", "strides": [1, 1, 1, 1]},
    "norm": {"type": "BatchNorm", "parents": ["conv"]},
    "scores": {"type": "InnerProduct", "parents": ["norm"], "num_outputs": 10}}}"""
)
#: Filters and biases; scales and shifts; a matrix and biases.
PARAMS = (3 * 3 * 2 * 8 + 8) + 2 * 8 + (4 * 4 * 8 * 10 + 10)
#: Of which there are two a layer; means, variances and a count of batches are buffers.
TENSORS, BUFFERS, REMEMBERED = 6, 3, 8 + 8 + 1
BANDWIDTH, HOST = 1e9, 25e-6
HOW: dict[str, Any] = {
    "device": "RTX_2080_TI",
    "network": Network.from_bandwidth("link", BANDWIDTH),
    "batch_size": 8,
    "parallel": "single_process",
}


def test_what_moves_by_hand() -> None:
    moved = moves(paleo.build(NET, 3), 8, BANDWIDTH, HOST)  # of 8 samples 3, 3 and 2: 3 devices
    assert paleo.build(NET).num_params == PARAMS
    sizes = {
        "scatter": 4 * (4 * 4 * 2) * 5,  # the 5 samples of the others
        "replicate": 4 * (PARAMS + REMEMBERED),
        "gather": 4 * 10 * 5,
        "scatter_gradients": 4 * 10 * 5,
        "reduce": 4 * PARAMS,
    }
    assert {name: move.num_bytes for name, move in moved.items()} == sizes
    for name, move in moved.items():
        assert move.link == pytest.approx(sizes[name] / BANDWIDTH)
    # Each tensor of each of 3 devices passes through the interpreter, which takes longer here.
    assert moved["replicate"].seconds == pytest.approx(3 * (TENSORS + BUFFERS) * HOST)
    assert moved["reduce"].seconds == pytest.approx(3 * TENSORS * HOST)
    slow = moves(paleo.build(NET, 3), 8, 1e3, HOST)
    assert slow["reduce"].seconds == pytest.approx(4 * PARAMS / 1e3)


def test_one_device_moves_nothing() -> None:
    assert not any(move.seconds for move in moves(paleo.build(NET), 8, BANDWIDTH, HOST).values())
    alone, plain = (
        paleo.simulate(NET, **HOW | {"parallel": kind}, workers=1).runs[0].rows[0]
        for kind in ("single_process", "data")
    )
    assert alone.total("Reduce") == pytest.approx(plain.compute)


def test_tensors_that_layers_hold() -> None:
    def tensors(kind: str, shape: tuple[int, ...], **keys: Any) -> tuple[int, tuple[int, ...]]:
        layer = paleo.LAYERS[kind](**keys)
        return layer.num_tensors((shape,)), layer.buffers((shape,))

    assert tensors("BatchNorm", (2, 4, 4, 8)) == (2, (8, 8, 1))
    assert tensors("BatchNorm", (2, 4, 4, 8), affine=False) == (0, (8, 8, 1))
    assert tensors("LayerNorm", (2, 5, 8), bias_term=False) == (1, ())
    assert tensors("Embedding", (2, 5), num_embeddings=9, num_outputs=8) == (1, ())
    # Two matrices and two biases of each of 2 layers in both directions.
    assert tensors("LSTM", (2, 5, 8), num_outputs=4, num_layers=2, bidirectional=True)[0] == 16


def test_a_step_is_its_parts_and_the_host_passes_once_for_each_device() -> None:
    (run,) = paleo.simulate(NET, **HOW, workers=[1, 4], framework="pytorch").runs
    alone, row = run.rows
    assert run.scaling == "strong"
    assert (row.batch_size, row.worker_batch_size) == (8, 2)
    # So small a net waits for the host alone, for each kernel of 4 devices four times as long; the
    # last kernel then runs for less than the host's time of one.
    host = FRAMEWORKS["pytorch"].host
    count, last = divmod(alone["forward"], host)
    assert row["forward"] == pytest.approx(4 * count * host + last, rel=1e-3)
    names = ("scatter", "replicate", "forward", "gather", "scatter_gradients", "backward", "update")
    whole = row.whole_step("Reduce")
    parts = sum(row[name] for name in names) + row.exchanges["Reduce"].seconds
    assert whole.seconds == pytest.approx(parts)
    assert whole.speedup == pytest.approx(alone.total("Reduce") / parts)
    assert row.exposed_communication("Reduce") == pytest.approx(parts - row.compute)
    assert row["update"] == alone["update"]  # by device 0 alone


def test_devices_without_samples_are_said() -> None:
    (run,) = paleo.simulate(NET, **HOW, workers=5).runs  # 2 each: 4 devices have them all
    assert "8 samples leave up to 1 devices without any" in run.notes
    drawn = timeline(NET, **HOW, workers=5)
    assert {event.category for event in drawn.of(4)} == {"wait"}


def test_a_timeline_sends_from_and_to_the_first_device() -> None:
    drawn = timeline(NET, **HOW, workers=4, framework="pytorch")
    moved = [event for event in drawn.events if event.category == "transfer"]
    sent = {
        name: [e for e in moved if e.arguments["move"] == name] for name in ("scatter", "reduce")
    }
    assert [e.worker for e in sent["scatter"]] == [0, 1, 0, 2, 0, 3]
    assert len({e.start for e in sent["scatter"]}) == 3  # one after another
    assert {e.start for e in sent["reduce"]} == {sent["reduce"][0].start}  # as a chain
    assert {e.arguments["bound"] for e in sent["reduce"]} == {"host"}
    ends = {(drawn.events[a].worker, drawn.events[b].worker) for a, b in drawn.flows}
    assert {(0, 3), (3, 0), (3, 2), (0, 1)} <= ends
    assert [e.worker for e in drawn.events if e.category == "update"] == [0]


def test_a_measured_pass_is_priced_as_the_plan_is(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(
        "source_id,quantity,value,network,device,n_devices,interconnect,batch_per_device,"
        "global_batch,precision,framework,parallelism,direction\n"
        "ryujaehun,step_ms,1,resnet18,RTX2080Ti,2,PCIe,12,24,fp32,PyTorch nn.DataParallel,dp,"
        "forward+backward\n"
    )
    device = paleo.find_device("RTX_2080_TI")
    (row,) = read_measurements(file)
    case, _ = net_case(*protocol_of(row.source_id).of(row), device)
    found = case.seconds(device, "fp32", Remembering(paleo.find_cost_model("tiled")), {})
    how: dict[str, Any] = {"network": "pcie3", "framework": "pytorch0", "cost_model": "tiled"}
    how |= {"device": device, "batch_size": 24, "parallel": "single_process"}
    (step,) = paleo.simulate("resnet18", **how, workers=2).runs[0].rows
    # The source copies 24 images to device 0 first, and has no optimizer.
    copied = 24 * 224 * 224 * 3 * 4 / paleo.find_network("pcie3").bandwidth
    assert found == pytest.approx(copied + step.total("Reduce") - step["update"])
