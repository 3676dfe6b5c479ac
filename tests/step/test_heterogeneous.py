"""Data parallelism on devices of several kinds, which share a batch by their speed."""

from __future__ import annotations

import re
from typing import Any

import pytest

import paleo
from paleo.core.errors import PaleoError
from paleo.net.graph import build
from paleo.step.parallelism.computations import Computations
from paleo.step.parallelism.heterogeneous import Kind, Together, shared
from paleo.step.results import Simulation
from paleo.views.answers.simulation import simulation_answer
from paleo.views.charts.results import of_simulation
from paleo.views.tables.simulation import simulation_tables

HOW: dict[str, Any] = {
    "device": "V100_SXM2_16GB",
    "network": "ethernet25",
    "batch_size": 32,
    "cost_model": "roofline",
    "workers": 4,
    "parallel": "heterogeneous",
}


def run(net: Any = "vgg16", **settings: Any) -> Any:
    given = {**HOW, "other_devices": "K80:4", **settings}
    (found,) = paleo.simulate(net, **given).runs
    return found


def kinds(**counts: int) -> list[Kind]:
    """Return so many workers on each device, of vgg16 after the roofline."""
    given = {name: HOW[name] for name in ("network", "cost_model")}
    return [
        Kind(
            Computations(paleo.load("vgg16"), paleo.scenario("vgg16", device=device, **given).plan),
            count,
        )
        for device, count in counts.items()
    ]


def test_a_batch_is_shared_so_that_all_compute_for_as_long() -> None:
    quick, slow = shared(kinds(V100_SXM2_16GB=4, K80=2), 192)
    assert 4 * quick.batch + 2 * slow.batch in (192, 193, 194, 195)
    assert quick.batch > slow.batch
    # One sample more or less on the slow kind is the most by which they can differ.
    times = [quick.seconds(quick.batch), slow.seconds(slow.batch)]
    one = slow.seconds(slow.batch + 1) - slow.seconds(slow.batch)
    assert abs(times[0] - times[1]) < one
    # No other share is quicker.
    longest = max(times)
    for batch in range(1, 48):
        other = -(-(192 - 2 * batch) // 4)
        assert max(quick.seconds(other), slow.seconds(batch)) >= longest * (1 - 1e-9)


def test_equal_devices_share_evenly() -> None:
    first, second = shared(kinds(K80=3) + kinds(K80=1), 128)
    assert (first.batch, second.batch) == (32, 32)


def test_every_worker_has_a_sample_at_least() -> None:
    assert [kind.batch for kind in shared(kinds(V100_SXM2_16GB=8, K80=8), 4)] == [1, 1]


def test_all_kinds_are_as_long_in_a_step() -> None:
    found = run()
    quick, slow = found.rows
    assert (quick.label, slow.label) == ("V100_SXM2_16GB", "K80")
    assert quick.total() == pytest.approx(slow.total())
    assert found.step.seconds == pytest.approx(quick.total())
    assert quick.batch_size + slow.batch_size == pytest.approx(found.step.batch_size, abs=4)
    assert found.step.batch_size == 8 * 32
    values = [row.to_dict() for row in found.rows]
    assert sum(value["share"] for value in values) == pytest.approx(1)
    assert found.step.throughput == pytest.approx(256 / quick.total())
    samples = f"samples of a step: {quick.worker_batch_size} on each of 4 V100_SXM2_16GB, "
    assert found.notes[-2].startswith(samples) or any(
        note.startswith(samples) for note in found.notes
    )


def test_of_one_kind_a_step_is_that_of_data_parallelism() -> None:
    for overlap in (True, False):
        found = run(device="K80", overlap=overlap)
        given = {**HOW, "device": "K80", "workers": 8, "parallel": "data", "overlap": overlap}
        (plain,) = paleo.simulate("vgg16", **given).runs[0].rows
        assert found.step.seconds == pytest.approx(plain.total("auto"), rel=1e-9)
        assert found.step.efficiency == pytest.approx(plain.whole_step("auto").efficiency)


def test_strong_scaling_divides_the_batch() -> None:
    weak, strong = run(scaling="weak", batch_size=16), run(scaling="strong", batch_size=128)
    assert weak.step.batch_size == strong.step.batch_size == 128
    assert weak.step.seconds == pytest.approx(strong.step.seconds)


def test_gradients_are_sent_once_the_last_worker_has_them() -> None:
    quick, slow = (kind._replace(batch=32) for kind in kinds(V100_SXM2_16GB=1, K80=1))
    together = Together((quick, slow))
    # The K80 is slower in every pass, so each gradient comes when it has it.
    assert together.forward == pytest.approx(slow.until("forward"))
    expected = [float(one.seconds) for one in slow.computed.made]
    assert [one.seconds for one in together.made] == pytest.approx(expected)
    first, second = together.steps()
    assert second.waiting == pytest.approx(0)
    difference = float(slow.computed.seconds) - float(quick.computed.seconds)
    assert first.waiting == pytest.approx(difference)


@pytest.mark.parametrize("overlap", [True, False])
def test_a_timeline_shows_every_worker(overlap: bool) -> None:
    found = run("lenet5", overlap=overlap, other_devices={"K80": 1, "T4": 1}, workers=2)
    drawn = paleo.timeline(found.scenario, scaling="weak", workers=2)
    assert drawn.seconds == pytest.approx(found.step.seconds)
    assert [name.split(", ")[1] for name in drawn.workers] == [
        *["V100_SXM2_16GB"] * 2, "K80", "T4",
    ]  # fmt: skip
    rows = dict(zip((0, 2, 3), found.rows, strict=True))
    for worker, row in rows.items():
        computed = [
            event
            for event in drawn.of(worker, lane=0)
            if event.category in ("forward", "backward", "update")
        ]
        assert sum(event.seconds for event in computed) == pytest.approx(row.compute)
    assert max(event.end for event in drawn.events) <= drawn.seconds * (1 + 1e-9)


def test_what_is_asked_for_stands_in_json_and_title() -> None:
    found = run()
    assert found.to_dict()["other_devices"] == {"K80": 4}
    assert found.plan.said()["other_devices"] == "4 K80"
    assert "other_devices" not in paleo.simulate("nin", workers=1).runs[0].to_dict()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"other_devices": None}, "other_devices: --parallel=heterogeneous takes other devices"),
        ({"other_devices": "K80"}, "other_devices: expected devices and how many of each"),
        ({"other_devices": "K80:0"}, "other_devices: expected devices and how many of each"),
        ({"other_devices": "K80:x"}, "other_devices: expected devices and how many of each"),
        ({"other_devices": {"K80": 1.5}}, "other_devices: expected devices and how many of each"),
        ({"other_devices": 4}, "other_devices: expected devices and how many of each"),
        ({"other_devices": "K8:4"}, "unknown device 'K8' (did you mean 'K80'?)"),
        ({"parallel": "data"}, "other_devices: --parallel=data has no other devices"),
        ({"accumulate": 2}, "accumulate: is for --parallel=data, not heterogeneous"),
        ({"dtype": "fp8", "cost_model": "tiled"}, "V100_SXM2_16GB"),
    ],
)
def test_bad_input_is_one_clear_line(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(PaleoError) as caught:
        run(**settings)
    (line,) = str(caught.value).splitlines()
    assert re.search(re.escape(message), line)


# Several numbers of workers, and clusters.


def in_cluster(**settings: Any) -> Simulation:
    given = {name: value for name, value in HOW.items() if name not in ("device", "network")}
    given |= {"cluster": "aws_p3_16xlarge", "other_devices": "K80:4", **settings}
    return paleo.simulate("nin", **given)


def test_each_number_of_workers_is_predicted_as_alone() -> None:
    given = {**HOW, "other_devices": "K80:4", "workers": [4, 2], "scaling": ["weak", "strong"]}
    found = paleo.simulate("nin", **given)
    assert [(run.scaling, run.rows[0].workers) for run in found.runs] == [
        ("weak", 4), ("weak", 2), ("strong", 4), ("strong", 2),
    ]  # fmt: skip
    for each in found.runs:
        alone = run("nin", scaling=each.scaling, workers=each.rows[0].workers)
        assert each.to_dict() == alone.to_dict()
    assert [[each.step.workers for each in plan if each.step] for plan in found.plans] == [
        [8, 6], [8, 6],
    ]  # fmt: skip
    first, _ = simulation_tables(found)
    assert [(row["all_workers"], row["part"], row["workers"]) for row in first.rows] == [
        (8, "V100_SXM2_16GB", 4), (8, "K80", 4), (6, "V100_SXM2_16GB", 2), (6, "K80", 4),
    ]  # fmt: skip
    assert [line[:10] for line in first.footnotes[:2]] == ["8 workers:", "6 workers:"]
    assert simulation_answer(found)[0].startswith("The quickest of 2 (")
    (weak,) = {each.scaling for each in found.plans[0]}
    (chart, _) = of_simulation(found)
    assert weak == "weak"
    assert chart.series[0].x == (
        "V100_SXM2_16GB, 8 workers", "K80, 8 workers", "V100_SXM2_16GB, 6 workers",
        "K80, 6 workers",
    )  # fmt: skip


def test_a_chart_has_no_sum_of_what_is_at_the_same_time() -> None:
    (chart,) = of_simulation(Simulation((run(),)))
    assert chart.series[0].x == ("V100_SXM2_16GB", "K80")
    for i, row in enumerate(run().rows):
        bar = sum(series.y[i] or 0 for series in chart.series)
        assert 1e-3 * bar == pytest.approx(row.total())  # in ms


def test_kinds_of_devices_are_behind_the_links_of_a_cluster() -> None:
    # 4 + 4 workers are one instance, whose links are NVLink: 4 + 8 are two, behind 25 Gbit/s.
    near, far = (
        in_cluster(overlap=False, schemes="ring", **given).runs[0]
        for given in ({}, {"other_devices": "K80:12"})
    )
    for found, workers in ((near, 8), (far, 16)):
        plain = paleo.scenario("nin", cluster="aws_p3_16xlarge", cost_model="roofline").plan
        size = 4 * build(paleo.load("nin")).num_params
        expected = plain.communication(size, workers, "ring")
        assert found.rows[0]["sync"] == pytest.approx(float(expected), rel=1e-9)
        assert found.step is not None
        assert found.step.workers == workers
    assert far.rows[0]["sync"] > 5 * near.rows[0]["sync"]
    assert (near.device, near.cluster) == ("V100_SXM2_16GB", "aws_p3_16xlarge")
    assert "8 workers" not in " ".join(near.notes)
    odd = in_cluster(workers=5).runs[0]
    assert "9 workers do not fill each instance of 8 devices: the last has 1" in odd.notes


def test_without_a_number_a_cluster_is_filled_as_far_as_others_leave_room() -> None:
    given = {name: value for name, value in HOW.items() if name not in ("device", "network")}
    del given["workers"]
    found = paleo.simulate("lenet5", cluster="aws_p3_16xlarge", other_devices="K80:4", **given)
    assert [each.rows[0].workers for each in found.runs] == [1, 2, 4, 8, 16, 32]  # of 64


def test_a_device_that_is_the_clusters_may_be_named_and_no_other() -> None:
    named, plain = in_cluster(device="V100_SXM2_16GB"), in_cluster()
    assert named.to_dict() == plain.to_dict()
    with pytest.raises(PaleoError, match=r"^device: a cluster has its own: leave out device, or"):
        in_cluster(device="K80")
    with pytest.raises(PaleoError, match=r"^num_workers: 68 devices, but cluster aws_p3_16xlarge"):
        in_cluster(workers=64)
