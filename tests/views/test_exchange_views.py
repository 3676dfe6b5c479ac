"""Sentences and tables about exchanges, read back against what is explained."""

from __future__ import annotations

import json
from typing import Any

import click.testing
import pytest

import paleo
from paleo.cli import cli
from paleo.step.results import Run
from paleo.studies.explain_exchange import explain_run
from paleo.studies.metrics import Metrics
from paleo.studies.timeline import timeline
from paleo.views.answers.base import duration
from paleo.views.answers.simulation import exchange_said, run_answer
from paleo.views.charts.results import of_metrics
from paleo.views.charts.scaling import scaling_charts
from paleo.views.tables.exchanges import explained_tables
from paleo.views.tables.simulation import simulation_table
from paleo.views.trace import dumps

CLUSTER: dict[str, Any] = {"cluster": "aws_p3dn", "schemes": "ring", "workers": 32}


def run(net: str = "alex_v2", **settings: Any) -> Run:
    return paleo.simulate(net, **{**CLUSTER, "batch_size": 32, **settings}).runs[0]


def printed(*arguments: str, width: int = 100) -> str:
    result = click.testing.CliRunner(env={"COLUMNS": str(width)}).invoke(
        cli, ["simulate", *arguments], prog_name="paleo"
    )
    assert result.exit_code == 0, result.output
    return result.stdout


def test_an_answer_says_what_is_hidden_and_which_links_are_the_bottleneck() -> None:
    found = run()
    (explained,) = explain_run(found)
    digits = found.plan.digits
    share = explained.exposed / explained.step.total("ring")
    assert share > 0.5
    speed, hidden, bottleneck, *_ = run_answer(found)
    assert speed.startswith("32 x V100 SXM2 32GB of aws_p3dn train alex_v2 at about ")
    assert hidden == (
        f"Of {duration(explained.communication, digits)} of communication "
        f"{duration(explained.hidden, digits)} are hidden behind the backward pass; the rest is "
        f"{100 * share:.0f} % of the step."
    )
    # An instance has one card of 100 Gbit/s.
    assert bottleneck == (
        "The links from one instance to another (efa_p3dn, 12.5 GB/s per instance) are the "
        "bottleneck: quicker ones or a larger batch would help."
    )


def test_what_is_nearly_all_hidden_is_said_by_what_is_not() -> None:
    (explained,) = explain_run(run("resnet50_v1_5", batch_size=128, workers=16))
    (said,) = exchange_said(explained, 2)
    whole, exposed = duration(explained.communication, 2), duration(explained.exposed, 2)
    assert said.startswith(f"Of {whole} of communication all but {exposed}")
    assert said.endswith("is hidden behind the backward pass.")


def test_what_is_not_overlapped_comes_after_the_backward_pass() -> None:
    found = run(overlap=False)
    (explained,) = explain_run(found)
    share = explained.exposed / explained.step.total("ring")
    first, _ = exchange_said(explained, 2)
    assert first == (
        f"{duration(explained.communication, 2)} of communication, {100 * share:.0f} % of the "
        "step, come after the backward pass."
    )


@pytest.mark.parametrize(
    ("settings", "where"),
    [
        ({"workers": 8}, "The links inside an instance"),
        (
            {"cluster": None, "device": "K80", "network": "ethernet"},
            "The links of the network (ethernet, 1.25 GB/s per device)",
        ),
        ({"workers": 2048, "bucket": 1, "net": "lenet5"}, "Latency, of many messages in turn,"),
    ],
)
def test_every_bottleneck_has_its_words(settings: dict[str, Any], where: str) -> None:
    (explained,) = explain_run(run(**{"batch_size": 1, **settings}))
    assert exchange_said(explained)[-1].startswith(where)


def test_the_tables_that_explain_have_every_row_and_the_largest_in_detail() -> None:
    found = run(workers=(1, 8, 32), schemes=("ring", "tree"))
    steps, *others = explained_tables([found])
    assert [(row["workers"], row["scheme"]) for row in steps.rows] == [
        (8, "ring"), (8, "tree"), (32, "ring"), (32, "tree"),
    ]  # fmt: skip
    assert {row["bounded_by"] for row in steps.rows} <= {
        "computation", "links of instance", "links of instances",
    }  # fmt: skip
    titles = [table.title for table in others]
    assert len(titles) == 4  # phases and buckets by both schemes
    assert all("among 32 workers" in title for title in titles)
    buckets = [table for table in others if table.title.startswith("Buckets by ring")]
    (explained,) = (
        each for each in explain_run(found) if (each.workers, each.scheme) == (32, "ring")
    )
    assert len(buckets[0].rows) == len(explained.buckets)
    assert len(explained_tables([found], for_people=False)) == 1


def test_explain_prints_text_csv_and_json() -> None:
    asked = ("alex_v2", "--cluster=aws_p3dn", "--num_workers=8,32", "--batch_size=32", "--explain")
    text = printed(*asked, width=80)
    assert max(map(len, text.splitlines())) <= 80
    assert "phases by tier" in text
    header, *rows = printed(*asked, "--format=csv").splitlines()
    assert len(rows) == 2
    assert "exchange_bound" in header.split(",")
    (found,) = json.loads(printed(*asked, "--format=json"))["runs"]
    assert [each["workers"] for each in found["explained"]] == [8, 32]
    assert found["explained"][1]["exposed_s"] == pytest.approx(
        found["rows"][1]["exposed_communication_s"]["auto"]
    )


def test_one_worker_alone_has_nothing_to_explain() -> None:
    assert "there is nothing to explain" in printed("lenet5", "--num_workers=1", "--explain")


def test_explain_is_for_data_parallelism() -> None:
    result = click.testing.CliRunner().invoke(
        cli, ["simulate", "alex_v2_4gpu", "--parallel=model", "--explain"], prog_name="paleo"
    )
    assert result.exit_code == 0
    assert "note: --explain is for --parallel=data" in result.output


def test_a_knee_is_looked_for_as_far_as_the_cluster_goes() -> None:
    notes = simulation_table(run("resnet50_v1_5", batch_size=256, workers=8)).footnotes
    assert any("none up to 2,048 by ring" in note for note in notes)  # 256 instances of 8


def test_the_parts_of_a_step_show_what_computation_hides() -> None:
    found = run(workers=(1, 8, 32))
    (chart,) = (each for each in scaling_charts(found) if each.key == "parts")
    parts: dict[str, Any] = {series.name: series.y for series in chart.series}
    hiding, exposed = parts["computation that hides communication"], parts["exposed communication"]
    assert (hiding[0], exposed[0]) == (0, 0)
    step = [found.rows[i].total("ring") for i in range(3)]
    unit = parts["step"][0] / step[0]
    for i, row in enumerate(found.rows):
        whole = unit * row.communication["ring"]
        assert hiding[i] + exposed[i] == pytest.approx(whole)
        stacked = sum(parts[name][i] for name in parts if name != "step")
        assert stacked == pytest.approx(parts["step"][i])


def test_plans_in_clusters_are_told_apart_by_these() -> None:
    found = paleo.metrics(
        "alex_v2", cluster=["aws_p3dn", "dgx1_v100"], workers=[8, 16], batch_size=32
    )
    charts = of_metrics(found)
    names = {name.split(",")[0] for chart in charts[:1] for name in chart.series[0].x}
    assert names == {"aws_p3dn", "dgx1_v100"}
    assert "alex_v2" in charts[0].title


def metrics_on(device: str) -> Metrics:
    (found,) = paleo.metrics("alex_v2", device=device)
    return found


def test_metrics_have_what_is_exposed_beside_all_communication() -> None:
    (one,) = paleo.metrics("alex_v2", batch_size=32, scheme="ring", cluster="aws_p3dn", workers=32)
    (row,) = run().rows
    assert one.communication == pytest.approx(row.communication["ring"])
    assert one.exposed_communication == pytest.approx(row.exposed_exchanges["ring"])
    assert one.to_dict()["cluster"] == "aws_p3dn"
    # Prices and energy are of the cluster's devices, all of them.
    device = paleo.find_cluster("aws_p3dn").device
    assert one.price == metrics_on(device.name).price
    assert one.training_energy_per_sample == pytest.approx(
        device.figures["power"].value * 32 * one.step.seconds / (32 * 32)
    )


def test_a_trace_names_the_lane_of_exchanges_and_says_what_bounds_them() -> None:
    asked: dict[str, Any] = {"cluster": "aws_p3dn", "batch_size": 32, "workers": 16}
    trace = json.loads(dumps(timeline("alex_v2", **asked)))["traceEvents"]
    names = [each["args"]["name"] for each in trace if each["name"] == "thread_name"]
    assert names[1:3] == ["worker 0", "worker 0, exchange of gradients"]
    tiers = {tier.name for tier in paleo.find_cluster("aws_p3dn").tiers} | {"latency"}
    reduced = [each["args"] for each in trace if each["name"] == "all-reduce"]
    assert reduced
    assert {each["network"] for each in reduced} == {"aws_p3dn"}
    assert {each["bound"] for each in reduced} <= tiers
    assert all(each["algorithm"] for each in reduced)


def test_of_many_buckets_those_at_the_ends_and_exposed_ones_are_shown() -> None:
    run = paleo.simulate(
        "llama3_8b", cluster="dgx_h100", dtype="bf16", batch_size=1, workers=8
    ).runs[0]
    explained = explain_run(run)[0]
    (table,) = [one for one in explained_tables([run]) if one.title.startswith("Buckets")]
    every = range(1, len(explained.buckets) + 1)
    exposed = {number for number in every if explained.buckets[number - 1].exposed > 0}
    wanted = sorted({*every[:8], *every[-8:], *exposed})
    assert [row["bucket"] for row in table.rows] == wanted
    assert len(every) > 40 > len(wanted)
    left = len(every) - len(wanted)
    said = f"{left} buckets between, which are hidden, are left out (JSON has all)"
    assert said in table.footnotes
