"""Language models on the page and in reports: length, loss, recomputation, kernels, tokens."""

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
from paleo.web.settings import read_settings

ASKED = {
    "net": "gpt2", "device": "H100_SXM", "network": "nvlink4", "dtype": "bf16", "batch_size": "4",
    "workers": "2", "seq_len": "512", "optimizer": "adamw", "optimizer_kernels": "fused",
    "clip_gradients": "true", "loss": "fused", "recompute": "full", "tokens": "1e12",
}  # fmt: skip


#: What is said of 4,096 positions of a net that has 1,024.
BEYOND = (
    'gpt2: layer "wpe": key "output_shape": it picks 4096 different rows, such as positions, of '
    "1024"
)


def answer(what: str, **settings: str) -> Any:
    return json.loads(Answers().text(what, read_settings({**ASKED, **settings})))


def printed(line: str) -> Any:
    done = CliRunner().invoke(cli, [*shlex.split(line)[1:], "--format=json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_a_page_says_what_its_commands_print() -> None:
    found = answer("scaling")
    table, metrics, report = (each["text"] for each in found["commands"])
    words = [
        "--seq_len=512", "--optimizer=adamw", "--optimizer_kernels=fused", "--clip_gradients",
        "--loss=fused", "--recompute=full",
    ]  # fmt: skip
    for line in (table, metrics, report):
        assert set(words) <= set(shlex.split(line))
    for line in (metrics, report):
        assert "--tokens=1000000000000" in line
        assert "--epochs" not in line
    (run,) = printed(table)["runs"]
    row = next(row for row in run["rows"] if row["workers"] == 2)
    (whole,) = (each for each in printed(metrics)["metrics"] if each["workers"] == 2)
    assert whole["step_s"] == row["step_s"][row["best_scheme"]]
    items = {each["key"]: each["value"] for each in found["headlines"][1]["items"]}
    # 1e12 tokens, of which a step of 2 x 4 samples reads 4,096.
    days = whole["step_s"] * 1e12 / 4096 / 86400
    number, unit = items["time"].split()
    assert unit in ("days", "years")
    shown = float(number.replace(",", "")) * (365 if unit == "years" else 1)
    assert shown == pytest.approx(days, rel=0.06)


def test_a_step_waits_for_the_loader_on_the_page_and_in_what_its_commands_print() -> None:
    """Each of two devices has 4 samples a step, of which one comes a second: 4 s."""
    found = answer("scaling", loader_rate="1 samples/s/device")
    table, metrics, report = (each["text"] for each in found["commands"])
    for line in (table, metrics, report):
        assert "--loader_rate=1 samples/s/device" in shlex.split(line)
    (run,) = printed(table)["runs"]
    row = next(row for row in run["rows"] if row["workers"] == 2)
    assert row["step_s"][row["best_scheme"]] == pytest.approx(4.0)
    (whole,) = (each for each in printed(metrics)["metrics"] if each["workers"] == 2)
    assert whole["step_s"] == pytest.approx(4.0)
    assert "4.0 s" in " ".join(found["answer"])


def test_memory_is_that_of_all_settings() -> None:
    how: Any = {"optimizer": "adamw", "dtype": "bf16", "recompute": "full", "loss": "fused"}
    net = paleo.load("gpt2", dims={"seq": 512})
    wanted = paleo.footprint(net, 4, optimizer_kernels="fused", **how)
    answers = Answers()
    text = answers.text("memory.json", read_settings(ASKED))
    (found,) = json.loads(text)["nets"]
    assert found["peak_bytes"] == wanted.peak
    (line,) = (each["text"] for each in answer("memory")["commands"])
    assert printed(line)["nets"] == [found]


@pytest.mark.parametrize("compiled", ["false", "true"])
def test_memory_has_the_lists_of_pytorch_where_it_takes_them_by_itself(compiled: str) -> None:
    settings = {"framework": "pytorch", "compile": compiled, "optimizer_kernels": ""}
    (line,) = (each["text"] for each in answer("memory", **settings)["commands"])
    assert "--optimizer_kernels=foreach" in line
    (found,) = json.loads(Answers().text("memory.json", read_settings({**ASKED, **settings})))[
        "nets"
    ]
    assert printed(line)["nets"] == [found]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"net": "alexnet", "tokens": ""}, "seq_len: alexnet: it has no dims to set"),
        (
            {"seq_len": "4096"},
            f"seq_len: {BEYOND}",
        ),
        (
            {"net": "alexnet", "seq_len": ""},
            "tokens: alexnet reads none: no Embedding reads one of its inputs",
        ),
        ({"epochs": "3"}, "tokens: give them or epochs of a dataset, not both"),
        (
            {"recompute": "full:h/99"},
            "recompute: gpt2 seq=512 has no block 'h/99' (did you mean 'h/9'?)",
        ),
        (
            {"optimizer": "lion"},
            "optimizer_kernels: lion has no choice of them, got 'fused'",
        ),
    ],
)
def test_what_a_net_lacks_is_one_line(settings: dict[str, str], said: str) -> None:
    with pytest.raises(paleo.PaleoError) as caught:
        answer("scaling", **settings)
    assert [str(each).replace('"', "'") for each in caught.value.mistakes] == [
        said.replace('"', "'")
    ]


def test_controls_are_made_of_what_is_declared() -> None:
    fields = {each["key"]: each for each in choices()["training"]}
    assert list(fields) == [
        "loss",
        "recompute",
        "optimizer_kernels",
        "clip_gradients",
        "scale_loss",
        "loader_rate",
    ]
    assert [each["flag"] for each in fields.values()] == [False] * 3 + [True] * 2 + [False]
    assert (fields["loss"]["empty"], fields["recompute"]["empty"]) == (None, None)
    assert fields["optimizer_kernels"]["empty"] == "the framework's own, of PyTorch foreach on GPUs"
    assert all(each["label"] and each["note"] for each in fields.values())


def test_a_report_has_them_too(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    line = (
        "report gpt2 --device=H100_SXM --network=nvlink4 --dtype=bf16 --seq_len=512 "
        "--batch_size=4 --optimizer=adamw --optimizer_kernels=fused --recompute=full --loss=fused "
        f"--tokens=1e12 --num_workers=1,2 --scaling=weak -o {file}"
    )
    done = CliRunner().invoke(cli, shlex.split(line))
    assert done.exit_code == 0, done.output
    data = re.search(
        r'<script type="application/json" id="report">(.*?)</script>', file.read_text()
    )
    assert data
    said = {each["label"]: each["value"] for each in json.loads(data[1])["said"]}
    wanted = {"Loss": "fused", "Recomputation": "full", "Tokens": "1000000000000"}
    assert said.items() >= wanted.items()
    plain = CliRunner().invoke(cli, shlex.split(line.replace("--recompute=full --loss=fused", "")))
    assert plain.exit_code == 0
    data = re.search(
        r'<script type="application/json" id="report">(.*?)</script>', file.read_text()
    )
    assert data
    assert not {"Loss", "Recomputation"} & {each["label"] for each in json.loads(data[1])["said"]}
    wrong = CliRunner().invoke(cli, shlex.split(line.replace("=full", "=ful")))
    assert wrong.exit_code == 1
    assert wrong.stderr.count("\n") == 1
    assert wrong.stderr.startswith("paleo: recompute: expected none, selective or full")
