"""Devices that share a net on the page and in reports: settings, schedule, stages, what fits."""

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
from paleo.web.answers import Answers
from paleo.web.choices import choices
from paleo.web.settings import MESH, PageSettings, read_settings

ASKED = {
    "net": "gpt2", "cluster": "dgx_a100", "dtype": "bf16", "workers": "16", "tp": "2", "pp": "4",
    "global_batch": "16", "seq_len": "128", "dataset": "",
}  # fmt: skip


def answer(what: str, **settings: str) -> Any:
    return json.loads(Answers().text(what, read_settings({**ASKED, **settings})))


def printed(line: str) -> Any:
    done = CliRunner().invoke(cli, [*shlex.split(line)[1:], "--format=json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_a_page_says_what_its_commands_print() -> None:
    found = answer("scaling")
    table, report = (each["text"] for each in found["commands"])  # there are no metrics of a mesh
    for line in (table, report):
        assert {"--tp=2", "--pp=4", "--global_batch=16", "--num_workers=16"} <= set(line.split())
    assert report.startswith("paleo report gpt2")
    (run,) = printed(table)["runs"]
    (row,) = run["rows"]
    assert (row["dp"], row["tp"], row["pp"]) == (2, 2, 4)
    (headline,) = found["headlines"]
    items = {each["key"]: each["value"] for each in headline["items"]}
    assert headline["fits"] is True
    assert items["mfu"] == f"{100 * row['mfu']:.0f} %"
    assert float(items["tokens"].replace(",", "")) == pytest.approx(row["tokens_per_s"], rel=0.06)
    assert not {"speedup", "efficiency", "scheme"} & set(items)
    assert found["answer"][0].startswith("16 x A100 SXM 80GB of dgx_a100 train gpt2 seq=128 at")


def test_a_schedule_has_a_row_for_each_stage_and_ends_with_the_step() -> None:
    found = answer("scaling")
    assert [key for key, chart in found["charts"].items() if chart] == ["schedule", "stage_times"]
    chart = found["charts"]["schedule"]
    assert chart["kind"] == "schedule"
    assert {row for series in chart["series"] for row in series["x"]} == set("0123")
    ends = [
        start + length
        for series in chart["series"]
        for start, length in zip(series["starts"], series["y"], strict=True)
    ]
    factor = {"ms": 1e-3, "s": 1.0, "\u00b5s": 1e-6}[chart["y_label"].split("(")[1].rstrip(")")]
    (row,) = printed(found["commands"][0]["text"])["runs"][0]["rows"]
    assert factor * max(ends) == pytest.approx(row["step_s"])
    # 8 samples of a share of the data, one at a time: as many turns forward on each of 4 stages.
    forward = next(series for series in chart["series"] if series["name"] == "forward")
    assert len(forward["y"]) == 4 * 8
    assert forward["marks"].count("7") == 4
    assert [cells[0] for cells in found["stages"]["rows"]] == ["0", "1", "2", "3"]


def test_memory_is_that_of_each_stage() -> None:
    found = answer("memory", optimizer="adamw", zero="1")
    (line,) = (each["text"] for each in found["commands"])
    (wanted,) = printed(line)["nets"]
    (given,) = answer("memory.json", optimizer="adamw", zero="1")["nets"]
    assert given == wanted
    assert len(found["table"]["rows"]) == len(wanted["stages"]) == 4
    memory, fits = found["headlines"]
    fullest = max(wanted["stages"], key=lambda stage: stage["total_bytes"])
    assert memory["note"] == f"stage {fullest['stage']}"
    assert float(memory["value"].split()[0]) == pytest.approx(
        fullest["total_bytes"] / 2 ** {"GiB": 30, "MiB": 20}[memory["value"].split()[1]], rel=0.006
    )
    assert (fits["value"], fits["is_warning"]) == ("fits in 80 GiB", False)
    assert list(found["charts"]) == ["stage_memory"]
    assert found["remedies"] is None


def test_what_does_not_fit_has_plans_that_would() -> None:
    settings = {
        "net": "llama3_8b", "cluster": "dgx_h100", "dtype": "mixed_bf16", "optimizer": "adamw",
        "tp": "1", "pp": "1", "micro_batch": "1", "batch_size": "4", "global_batch": "",
        "seq_len": "",
    }  # fmt: skip
    found = answer("scaling", **settings)
    assert found["headlines"][0]["fits"] is False
    assert found["answer"][0].startswith("It does not fit: the fullest stage needs ")
    memory = answer("memory", **settings)
    *_, fits, remedy = memory["headlines"]
    assert fits["is_warning"] is True
    row = memory["remedies"]["rows"][0]  # the quickest of those that are as few
    assert (remedy["key"], remedy["value"]) == ("remedy", row[0])
    zero = int(row[0].removeprefix("--zero="))
    (fitting,) = paleo.simulate(
        "llama3_8b", cluster="dgx_h100", dtype="mixed_bf16", optimizer="adamw", zero=zero,
        micro_batch=1, batch_size=4, workers=16,
    ).runs[0].rows  # fmt: skip
    values = fitting.to_dict()
    assert values["fits"] is True
    assert float(row[1]) == pytest.approx(values["memory_bytes"] / 2**30, rel=0.01)
    assert float(row[2]) == pytest.approx(values["step_s"], rel=0.01)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"tp": "3"}, "num_workers: 16 devices do not divide by tp 3 x pp 4"),
        ({"pp": "16", "workers": "32"}, "pp: gpt2 seq=128 has 12 blocks, too few for 16 stages"),
        ({"zero": "4"}, "zero: expected 0, 1, 2 or 3, got 4"),
        ({"schedule": "1f2b"}, "schedule: unknown pipeline schedule '1f2b' (did you mean '1f1b'?)"),
        (
            {"order": "tp,dp"},
            "order: expected each of tp, cp, ep, dp, pp once, such as tp,cp,ep,dp,pp; got 'tp,dp'",
        ),
        ({"micro_batch": "3"}, "micro_batch: 8 samples of a share of the data do not divide by 3"),
        ({"accumulate": "2"}, "accumulate: is for --parallel=data, not mesh"),
        ({"host": "A100"}, "host: expected a processor (kind cpu), got A100_SXM_80GB"),
        ({"stages": "1,2,3"}, "stages: gpt2 seq=128 has 12 blocks for 4 stages, got 1,2,3"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_under_its_key(settings: dict[str, str], said: str) -> None:
    with pytest.raises(paleo.PaleoError) as caught:
        answer("scaling", **settings)
    assert [str(each).replace('"', "'") for each in caught.value.mistakes] == [said]


def test_controls_are_made_of_what_is_declared() -> None:
    fields = {each["key"]: each for each in choices()["mesh"]}
    assert tuple(fields) == MESH
    assert all(each["label"] and each["note"].endswith(".") for each in fields.values())
    assert [name for name, each in fields.items() if each["flag"]] == ["sequence_parallel"]
    assert [each["name"] for each in fields["schedule"]["choices"]][:2] == ["1f1b", "gpipe"]
    # Labels stand for options, and a long text of what holds by itself stands in the note.
    assert fields["global_batch"]["empty"] == "by itself"
    assert not any("--" in each["note"] for each in fields.values())
    assert {key: getattr(PageSettings, key) for key in ("tp", "order", "stages")} == {
        "tp": 1, "order": "tp,cp,ep,dp,pp", "stages": "even",
    }  # fmt: skip


def test_a_host_is_a_predefined_processor_and_never_a_file() -> None:
    with pytest.raises(paleo.PaleoError) as caught:
        answer("scaling", host="/etc/passwd")
    assert [str(each).partition("(")[0] for each in caught.value.mistakes] == [
        "host: unknown device '/etc/passwd' "
    ]
    fields = {each["key"]: each for each in choices()["mesh"]}
    names = [each["name"] for each in fields["host"]["choices"]]
    assert names
    assert all(paleo.find_device(name).kind == "cpu" for name in names)
    assert fields["offload"]["choices"] is None  # several may be given
    found = answer("scaling", offload="optimizer", zero="1")
    assert "--offload=optimizer" in found["commands"][0]["text"]


@pytest.mark.parametrize(("given", "text"), [("1.5", "1.5"), (1.5, "1.5"), ("even", "even")])
def test_a_load_of_experts_is_a_number_or_a_word(given: Any, text: str) -> None:
    assert read_settings({"expert_load": given}).expert_load == text
    with pytest.raises(paleo.PaleoError, match="expert_load: expected even, or the exponent"):
        read_settings({"expert_load": "odd"})
    with pytest.raises(paleo.PaleoError, match="expert_load: expected a text, got true"):
        read_settings({"expert_load": True})


def test_two_plans_stand_beside_each_other() -> None:
    found = answer("compare", other_cluster="dgx_h100")
    assert found["fits"] == [True, True]
    assert found["names"] == ["dgx_a100", "dgx_h100"]
    assert "times the" in found["answer"][-1]


def report(tmp_path: Path, line: str, status: int = 0) -> Any:
    file = tmp_path / "report.html"
    done = CliRunner().invoke(cli, [*shlex.split(f"report {line}"), "-o", str(file)])
    assert done.exit_code == status, done.output
    if status:
        return done.stderr
    data = re.search(
        r'<script type="application/json" id="report">(.*?)</script>', file.read_text("utf-8")
    )
    assert data
    return json.loads(data[1])


@pytest.mark.alike
def test_a_report_has_the_stages_for_each_number_of_workers(tmp_path: Path) -> None:
    line = "gpt2 --cluster=dgx_a100 --dtype=bf16 --seq_len=128 --tp=2 --pp=4 --batch_size=8"
    found = report(tmp_path, f"{line} --num_workers=8,16")
    said = {each["label"]: each["value"] for each in found["said"]}
    assert said.items() >= {"Tensor parallel": "2", "Pipeline stages": "4"}.items()
    assert not {"Context parallel", "Order", "Schedule", "ZeRO"} & set(said)
    (view,) = found["views"]["gpt2"]["dgx_a100"]["8"].values()
    scaling = found["answers"][view["scaling"][""]]
    assert [row["workers"] for row in scaling["headlines"]] == [8, 16]
    assert scaling["charts"]["schedule"]["kind"] == "schedule"
    memory = [found["answers"][view["memory"][count]] for count in ("8", "16")]
    assert memory[0] is not memory[1]
    assert [len(each["table"]["rows"]) for each in memory] == [4, 4]
    # Without numbers of workers there are those that divide by 2 x 4.
    assert report(tmp_path, line)["choices"]["workers"] == [8, 16, 32, 64, 128]


def test_a_report_without_a_mesh_says_nothing_of_one(tmp_path: Path) -> None:
    found = report(tmp_path, "lenet5 --device=K20X --network=ethernet --num_workers=2")
    defaults = PageSettings()
    assert {key: found["settings"][key] for key in MESH} == {
        key: getattr(defaults, key) for key in MESH
    }
    assert not {each["label"] for each in found["said"]} & {
        each["label"] for each in choices()["mesh"]
    }


def test_a_report_says_what_does_not_divide(tmp_path: Path) -> None:
    line = "gpt2 --cluster=dgx_a100 --dtype=bf16"
    assert report(tmp_path, f"{line} --tp=2 --pp=3 --num_workers=16", 1) == (
        "paleo: num_workers: 16 devices do not divide by tp 2 x pp 3\n"
    )
    assert report(tmp_path, f"{line} --pp=3", 1) == (
        "paleo: num_workers: none of 1, 2, 4, 8, 16, 32, 64 or 128 devices divide by pp 3: give "
        "more\n"
    )
    assert report(tmp_path, f"{line} --tp=0 --zero=7", 1).count("\n") == 2
