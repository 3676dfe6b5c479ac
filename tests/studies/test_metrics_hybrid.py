"""Metrics of hybrid steps, and of inference on a share of the peak."""

from __future__ import annotations

from typing import Any

import pytest
from nets_of_tests import make_net

import paleo
from paleo.studies.metrics import Metrics, metrics


def one(net: Any, **settings: Any) -> Metrics:
    (found,) = metrics(net, **settings)
    return found


HYBRID: dict[str, Any] = {"parallel": "hybrid", "network": "pcie2", "ppp_comm": 0.75}


@pytest.mark.parametrize("cost_model", ["paleo2017", "roofline"])
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_a_hybrid_step_computes_in_both_parts_and_synchronizes(
    workers: int, cost_model: str
) -> None:
    plan = {**HYBRID, "hybrid_workers": workers, "cost_model": cost_model}
    (run,) = paleo.simulate("alex_v2_2gpu", **plan).runs
    data, model = run.rows
    parts = [row[name] for row in run.rows for name in ("forward", "backward", "update")]
    assert all(seconds > 0 for seconds in parts)
    found = one("alex_v2_2gpu", **plan)
    values = found.to_dict()
    assert values["compute_s"] == pytest.approx(sum(parts), rel=1e-12)
    # The slices have their own parameters: the data part alone has something to exchange.
    assert (values["communication_s"], model["sync"]) == (data["sync"], 0)
    assert (data["sync"] > 0) == (workers > 1)
    assert values["step_s"] == pytest.approx(sum(parts) + data["sync"], rel=1e-12)
    ratio = sum(parts) / data["sync"] if workers > 1 else None
    assert values["computation_communication_ratio"] == (ratio and pytest.approx(ratio))
    assert (found.workers, found.batch_size) == (workers, 128 * workers)
    assert found.worker_batch_size == 128


#: 1 MFLOP/s, and such a bandwidth that the 2017 model, which takes GB/s for GiB/s, has 1 MB/s.
SLOW = paleo.Device.from_rates("slow", clock=1e9, peak=1e6, memory_bandwidth=1e6 * 1e9 / 2**30)
#: 10 inputs and 20 outputs. Of 4 samples forward takes 2 * 4 * 10 * 20 = 1600 FLOPs, 1.6 ms;
#: it moves 4 * 10 + 10 * 20 + 4 * 20 = 320 numbers, 1280 bytes, 1.28 ms.
FC = make_net(
    {
        "data": {"type": "Input", "parents": [], "tensor": [4, 10]},
        "fc": {"type": "InnerProduct", "parents": ["data"], "num_outputs": 20},
    }
)


@pytest.mark.parametrize("parallel", ["data", "hybrid"])
@pytest.mark.parametrize(
    ("settings", "milliseconds"),
    [
        ({}, 1.6 + 1.28),
        ({"use_pipeline": True}, 1.6),  # the longer of the two
        ({"ppp_comp": 0.5}, 3.2 + 2.56),  # both at half their peaks
        ({"ppp_comp": 0.25, "use_pipeline": True}, 6.4),
    ],
)
def test_inference_takes_its_share_of_the_peak_and_overlaps_transfers(
    parallel: str, settings: dict[str, Any], milliseconds: float
) -> None:
    on = {"device": SLOW, "batch_size": 4, "parallel": parallel, "cost_model": "paleo2017"}
    found = one(FC, **on, **settings)
    assert found.to_dict()["inference_s"] == pytest.approx(milliseconds / 1000, rel=1e-9)
    assert found.inference_throughput == pytest.approx(4 / (milliseconds / 1000), rel=1e-9)


def test_half_the_peak_takes_twice_the_time_but_for_what_takes_a_clock() -> None:
    # The 2017 model divides FLOPs and bytes by the same share of their peaks, and nothing is
    # faster than a clock: where t seconds become 2 t, max(clock, t) becomes max(clock, 2 t), at
    # most twice as much and less by no more than a clock. Each layer of this net has one
    # computation and three transfers at the most.
    whole, half = (
        one("alex_v2", ppp_comp=share, cost_model="paleo2017").inference for share in (1.0, 0.5)
    )
    clock = 1 / paleo.find_device("TITAN_X").rates_2017.clock
    terms = 4 * len(paleo.load("alex_v2").layers)
    assert 2 * whole - terms * clock <= half <= 2 * whole * (1 + 1e-12)
    assert half == pytest.approx(2 * whole, rel=1e-4)
    # What overlaps takes the longer of the two, which is half of their sum or more.
    overlapped = one("alex_v2", use_pipeline=True, cost_model="paleo2017").inference
    assert whole / 2 <= overlapped < whole


def test_inference_runs_branches_one_after_the_other() -> None:
    fc = {"type": "InnerProduct", "parents": ["data"], "num_outputs": 20}
    data = {"type": "Input", "parents": [], "tensor": [4, 10]}
    net = make_net({"data": data, "a": fc, "b": fc})
    found = one(net, device=SLOW, batch_size=4, cost_model="paleo2017")
    assert found.inference == pytest.approx(2 * (1.6 + 1.28) / 1000, rel=1e-9)
