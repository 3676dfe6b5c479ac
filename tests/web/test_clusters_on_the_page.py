"""Clusters on the page: settings that take the place of others, tiers, commands, and reports."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import paleo
from paleo.cli import cli
from paleo.core.errors import SettingError
from paleo.web.answers import Answers
from paleo.web.choices import choices
from paleo.web.settings import PageSettings, read_settings

#: 2 of 8 instances of P3.16xlarge: eight V100 each.
ASKED = {"net": "alex_v2", "batch_size": "32", "cluster": "aws_p3_16xlarge", "workers": "16"}


def scaling(**settings: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        Answers().text("scaling", read_settings({**ASKED, **settings}))
    )
    return found


def printed(command: str) -> Any:
    result = CliRunner().invoke(cli, [*shlex.split(command)[1:], "--format=json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_cluster_takes_the_place_of_device_and_network() -> None:
    found = scaling(device="K80", network="ethernet")
    assert found["answer"][0].startswith("16 x V100 SXM2 16GB of aws_p3_16xlarge train alex_v2")
    assert "aws_p3_16xlarge, V100_SXM2_16GB" in found["table"]["title"]
    settings = read_settings(ASKED)
    assert settings.runs_on == "V100_SXM2_16GB"
    assert settings.placed == {"cluster": "aws_p3_16xlarge"}
    assert PageSettings().placed == {"cluster": "dgx_a100"}


def test_a_device_or_a_network_without_a_cluster_stands_for_none() -> None:
    flat = {"device": "A100_SXM_80GB", "network": "infiniband_hdr"}
    assert read_settings({"cluster": ""}).placed == flat
    assert read_settings({"device": "K80"}).placed == flat | {"device": "K80"}
    assert read_settings({"network": "aws"}).placed == flat | {"network": "aws"}
    assert read_settings({"device": "K80", "cluster": "dgx_a100"}).placed == {"cluster": "dgx_a100"}


def test_curves_end_where_the_cluster_does_and_more_workers_are_a_mistake_of_theirs() -> None:
    counts = [line["workers"] for line in scaling()["headlines"]]
    assert counts == [1, 2, 4, 8, 16, 32, 64]
    with pytest.raises(SettingError, match="workers: 128, but cluster aws_p3_16xlarge has 64 dev"):
        read_settings({**ASKED, "workers": "128"})
    with pytest.raises(SettingError, match="cluster: unknown cluster 'aws_p3'"):
        read_settings({**ASKED, "cluster": "aws_p3"})


def test_tiers_are_drawn_from_the_outside_in_as_workers_use_them() -> None:
    outer, inner = scaling(scheme="ring")["tiers"]
    assert (outer["name"], inner["name"]) == ("instances", "instance")
    # EC2 at 25 Gbit/s; six links of NVLink 2 at 25 GB/s each.
    assert outer["members"] == "2 x instance (of 8)"
    assert "ena25: 3.12 GB/s" in outer["links"]
    assert inner["members"] == "8 x V100_SXM2_16GB (of 8)"
    assert "nvlink2_link: " in inner["links"]
    assert (outer["bound"], inner["bound"]) == ("holds exchanges back", "")
    (flat,) = scaling(cluster="", network="infiniband")["tiers"]
    assert flat["name"] == "infiniband"
    assert flat["members"].startswith("16 x ")


def test_exposed_communication_is_a_headline_a_column_and_a_part_of_a_chart() -> None:
    found = scaling()
    (row,) = (each for each in found["headlines"] if each["workers"] == 16)
    (item,) = (each for each in row["items"] if each["key"] == "exposed")
    assert item["label"] == "exposed communication"
    (line,) = (row for row in printed(found["commands"][0]["text"])["runs"][0]["rows"]
               if row["workers"] == 16)  # fmt: skip
    shown = float(item["value"].split()[0]) * {"ms": 1e-3, "us": 1e-6}[item["value"].split()[1]]
    assert shown == pytest.approx(line["exposed_communication_s"]["auto"], rel=5e-3)
    assert "exposed" in [column["title"] for column in found["table"]["columns"]]
    names = [series["name"] for series in found["charts"]["parts"]["series"]]
    assert names == [
        "computation", "computation that hides communication", "exposed communication", "update",
        "step",
    ]  # fmt: skip
    (alone,) = (each for each in found["headlines"] if each["workers"] == 1)
    assert "exposed" not in [each["key"] for each in alone["items"]]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, []),
        ({"overlap": "false"}, ["--no_overlap"]),
        ({"overlap": "true", "bucket": "100MiB"}, ["--overlap", "--bucket=100MiB"]),
        ({"scheme": "hierarchical", "ppp_comm": "0.5"}, ["--scheme=hierarchical"]),
        ({"accumulate": "4", "jitter": "0.1"}, ["--accumulate=4", "--jitter=0.1"]),
        ({"gradient_dtype": "fp8", "nccl": "2.18"}, ["--gradient_dtype=fp8", "--nccl=2.18"]),
        ({"compress": "topk:0.01"}, ["--compress=topk:0.01"]),
        (
            {"scheme": "parameter_server", "num_servers": "2"},
            ["--scheme=parameter_server", "--num_servers=2"],
        ),
    ],
)
def test_commands_print_what_the_page_shows(settings: dict[str, str], words: list[str]) -> None:
    found = scaling(**settings)
    table, metrics, report = (each["text"] for each in found["commands"])
    for line in (table, metrics, report):
        assert "--cluster=aws_p3_16xlarge" in line
        assert "--device" not in line
        assert "--network" not in line
        assert set(words) <= set(shlex.split(line))
        assert ("overlap" in line) == ("overlap" in settings)
    (run,) = printed(table)["runs"]
    scheme = settings.get("scheme", "auto")
    steps = [row["step_s"][scheme] for row in run["rows"]]
    unit = {"ms": 1e-3, "us": 1e-6, "s": 1.0}
    for row, step in zip(found["headlines"], steps, strict=True):
        value, name = next(each for each in row["items"] if each["key"] == "step")["value"].split()
        assert float(value.replace(",", "")) * unit[name] == pytest.approx(step, rel=0.06)
    assert len(printed(metrics)["metrics"]) == len(steps)
    layers = json.loads(Answers().text("layers", read_settings({**ASKED, **settings})))
    assert "--device=V100_SXM2_16GB" in layers["commands"][0]["text"]


def test_settings_of_exchanges_change_figures_as_by_the_command() -> None:
    def figure(key: str, **settings: str) -> str:
        (row,) = (row for row in scaling(**settings)["headlines"] if row["workers"] == 16)
        (item,) = (each for each in row["items"] if each["key"] == key)
        return str(item["value"])

    # Four batches for each exchange: a step computes four times as long.
    steps = [
        paleo.simulate(
            "alex_v2", cluster="aws_p3_16xlarge", batch_size=32, workers=16, dtype="mixed_fp16",
            accumulate=turns,
        ).runs[0].rows[0] for turns in (1, 4)
    ]  # fmt: skip
    assert steps[1].piece("forward").seconds == pytest.approx(4 * steps[0].piece("forward").seconds)
    for turns, step in zip(("1", "4"), steps, strict=True):
        shown = float(figure("throughput", accumulate=turns).replace(",", ""))
        assert shown == pytest.approx(step.whole_step("auto").throughput, rel=0.06)
    titles = [column["title"] for column in scaling(jitter="0.2")["table"]["columns"]]
    assert "waiting" in titles
    # Of one study, of which the last computations are kept, the first are found again.
    answers = Answers()
    texts = [
        answers.text("scaling", read_settings({**ASKED, "accumulate": turns}))
        for turns in ("1", "4", "1")
    ]
    assert texts[0] == texts[2] != texts[1]
    assert read_settings({**ASKED, "jitter": "0.2"}).jitter == 0.2
    assert read_settings({**ASKED, "jitter": ""}).jitter is None


def test_the_page_makes_controls_of_what_is_declared() -> None:
    fields = {each["key"]: each for each in choices()["exchange"]}
    assert list(fields) == [
        "accumulate", "gradient_dtype", "compress", "num_servers", "jitter", "nccl",
    ]  # fmt: skip
    sent = fields["gradient_dtype"]
    assert (sent["label"], sent["empty"]) == ("Gradients sent in", "that of the parameters")
    assert [each["name"] for each in sent["choices"]] == ["fp32", "fp16", "bf16", "fp8"]
    assert fields["jitter"]["choices"] is None
    assert not any("--" in each["note"] for each in fields.values())
    assert all(each["label"] for each in fields.values())


def test_another_cluster_or_device_can_stand_beside() -> None:
    settings = read_settings({**ASKED, "price": "2", "other_cluster": "dgx1_v100"})
    other = settings.other
    assert other is not None
    assert (other.cluster, other.price) == ("dgx1_v100", "")
    beside = read_settings({**ASKED, "other_network": "infiniband"}).other
    assert beside is not None  # the same device, but behind one network
    assert (beside.cluster, beside.device, beside.network) == ("", "V100_SXM2_16GB", "infiniband")
    found = json.loads(Answers().text("compare", settings))
    assert found["names"] == ["aws_p3_16xlarge", "dgx1_v100"]
    assert [each["text"].count("--cluster=") for each in found["commands"]] == [1, 1]


def test_the_lists_have_clusters_with_their_devices() -> None:
    found = {each["name"]: each for each in choices()["clusters"]}
    assert found["dgx_a100"]["device"] == "A100_SXM_80GB"
    assert found["dgx_a100"]["note"].endswith("8 x 140 A100_SXM_80GB")
    assert [each["name"] for each in choices()["overlaps"]] == ["true", "false"]
    for kind in ("layers", "memory", "scaling"):
        assert "cluster" in choices()["depends"][kind]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"overlap": "maybe"}, "overlap: expected true or false"),
        ({"bucket": "0"}, "bucket: expected one byte or more"),
        ({"bucket": "much"}, "bucket: expected a number with a unit"),
        ({"accumulate": "0"}, "accumulate: expected a whole number from 1"),
        ({"accumulate": ""}, "accumulate: expected a whole number from 1"),
        ({"gradient_dtype": "fp7"}, "gradient_dtype: "),
        ({"compress": "zip"}, "compress: expected onebit or topk:SHARE"),
        ({"num_servers": "some"}, "num_servers: expected a whole number from 1"),
        ({"jitter": "2"}, "jitter: expected a number from 0 to 1"),
        ({"nccl": "new"}, "nccl: "),
        ({"other_cluster": "x"}, "other_cluster: unknown cluster 'x'"),
    ],
)
def test_what_is_wrong_is_said_with_its_key(settings: dict[str, str], said: str) -> None:
    with pytest.raises(SettingError, match=re.escape(said)):
        read_settings({**ASKED, **settings})


# Reports.


def report(tmp_path: Path, *arguments: str) -> dict[str, Any]:
    path = tmp_path / "report.html"
    result = CliRunner().invoke(cli, ["report", "lenet5", f"--output={path}", *arguments])
    assert result.exit_code == 0, result.output
    block = re.search(
        r'<script type="application/json" id="report">(.*?)</script>',
        path.read_text("utf-8"),
        re.DOTALL,
    )
    assert block
    found: dict[str, Any] = json.loads(block[1])
    return found


def test_a_report_of_a_cluster_has_its_device_and_a_choice_of_schemes(tmp_path: Path) -> None:
    given = ("--cluster=aws_g3", "--scheme=ring,tree", "--bucket=1MiB", "--jitter=0.1")
    found = report(tmp_path, *given)
    assert found["title"] == "lenet5 on aws_g3"
    assert (found["choices"]["cluster"], found["choices"]["device"]) == (["aws_g3"], [])
    assert found["settings"]["device"] == "M60"
    assert found["choices"]["scheme"] == ["", "ring", "tree"]
    assert found["choices"]["workers"] == [1, 2, 4]  # as many as there are
    said = {each["label"]: each["value"] for each in found["said"]}
    assert said["Cluster"] == "aws_g3"
    assert (said["Bucket"], said["Jitter"]) == ("1MiB", "0.1")
    assert "Accumulated batches" not in said  # nothing is, but it can be
    assert "Network" not in said
    (view,) = found["views"]["lenet5"]["aws_g3"].values()
    answers = {name: found["answers"][i] for name, i in view["weak"]["scaling"].items()}
    assert [tier["name"] for tier in answers["ring"]["tiers"]] == ["instance", "board"]
    for name, schemes in {"": "ring,tree", "ring": "ring", "tree": "tree"}.items():
        table = answers[name]["commands"][0]["text"]
        assert shlex.split(table)[2:] == [
            "lenet5", "--cluster=aws_g3", "--batch_size=128", "--num_workers=1,2,4",
            "--bucket=1MiB", "--jitter=0.1", f"--scheme={schemes}",
        ]  # fmt: skip
        assert printed(table)["runs"][0]["cluster"] == "aws_g3"
        assert "ring,tree" in answers[name]["commands"][-1]["text"]


def test_a_report_has_several_clusters_beside_each_other(tmp_path: Path) -> None:
    found = report(tmp_path, "--cluster=aws_g3,aws_p3_16xlarge", "--batch_size=32")
    assert found["title"] == "lenet5 on aws_g3, aws_p3_16xlarge"
    assert found["choices"]["cluster"] == ["aws_g3", "aws_p3_16xlarge"]
    assert found["choices"]["workers"] == [1, 2, 4]  # as many as both have
    assert found["compare"]["names"] == ["aws_g3", "aws_p3_16xlarge"]
    said = [each["label"] for each in found["said"]]
    assert not {"Cluster", "Device", "Network"}.intersection(said)
    for cluster, device in {"aws_g3": "M60", "aws_p3_16xlarge": "V100_SXM2_16GB"}.items():
        view = found["views"]["lenet5"][cluster]["32"]["weak"]
        answer = found["answers"][view["scaling"][""]]
        assert (answer["settings"]["cluster"], answer["settings"]["device"]) == (cluster, device)
        (run,) = printed(answer["commands"][0]["text"])["runs"]
        assert (run["cluster"], run["device"]) == (cluster, device)
        layers = found["answers"][view["layers"]["4"]]
        assert f"--device={device}" in layers["commands"][0]["text"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--cluster=aws_g3,aws_g3"], "cluster: one is given twice"),
        (["--cluster="], "cluster: expected one or more, got none"),
        (["--cluster=aws_p3_16xlarge,aws_g3", "--num_workers=8"], "8 devices, but cluster aws_g3"),
        (["--cluster=aws_g3", "--device=K40"], "device: a cluster has its own"),
        (["--cluster=aws_g3", "--num_workers=8"], "num_workers: 8 devices, but cluster aws_g3"),
        (["--cluster=aws_g3", "--network=aws"], "network: a cluster has its own"),
        (["--cluster=no"], "paleo: unknown cluster 'no'"),
    ],
)
def test_a_report_of_no_such_cluster_is_one_line(
    tmp_path: Path, arguments: list[str], said: str
) -> None:
    path = tmp_path / "report.html"
    result = CliRunner().invoke(
        cli, ["report", "lenet5", f"--output={path}", *arguments], prog_name="paleo"
    )
    assert result.exit_code == 1
    assert said in result.output
    assert not path.exists()
