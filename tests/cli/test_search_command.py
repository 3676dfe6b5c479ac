"""`paleo search`: sentences, tables, files, and what programs get."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import click.testing
import pytest

import paleo
from paleo.cli import cli

VARY = ("--vary=conv8.filter[3]=192,384,none", "--vary=conv9.filter[3]=192,384,none")


def call(*arguments: str, status: int = 0) -> click.testing.Result:
    result = click.testing.CliRunner().invoke(cli, ["search", *arguments], prog_name="paleo")
    assert result.exit_code == status, result.output
    return result


def words(text: str) -> str:
    return " ".join(text.split())


def test_the_answer_is_the_best_of_all_nets_beside_the_original() -> None:
    said = words(call("nin_227", *VARY, "--constraint=layers>=11", "--cost_model=paleo2017").stdout)
    found = paleo.search(
        "nin_227",
        vary=[each.removeprefix("--vary=") for each in VARY],
        constraint="layers>=11",
        cost_model="paleo2017",
    )
    assert said.startswith("The best of 9 nets, exactly, has the least time of a training step on")
    assert found.original is not None
    factor = found.objective / found.original["time"]
    assert f"That is {factor:.4g} times what nin_227 has" in said
    assert f"{found.best.values['params']:,} parameters" in said
    assert "It keeps to layers>=11 (11)." in said
    assert f"conv8.filter[3] {found.best.choices['conv8.filter[3]']}" in said


def test_a_best_net_is_written_and_is_the_one_that_was_found(tmp_path: Path) -> None:
    file = tmp_path / "best.json"
    shown = call("nin_227", *VARY, "--constraint=params>=7.5e6", "-o", str(file), "--format=json")
    best = json.loads(shown.stdout)["best"]
    written = paleo.summarize(str(file))
    # conv8 and conv9 as they are: 7,595,176 parameters; a half of either is 73,920 fewer and more.
    assert written.num_params == best["params"] == 7_595_176
    assert best["choices"] == {"conv8.filter[3]": "384", "conv9.filter[3]": "384"}


@pytest.mark.alike
def test_a_front_is_a_row_for_each_net_to_programs(tmp_path: Path) -> None:
    text = call("nin_227", *VARY, "--front=params", "--format=csv").stdout
    rows = list(csv.DictReader(io.StringIO(text)))
    found = paleo.search(
        "nin_227", vary=[each.removeprefix("--vary=") for each in VARY], front="params"
    )
    assert [float(row["time_s"]) for row in rows] == [each.values["time"] for each in found.front]
    assert [row["conv8.filter[3]"] for row in rows] == [
        each.choices["conv8.filter[3]"] for each in found.front
    ]
    picture = tmp_path / "front.svg"
    call("nin_227", *VARY, "--front=params", f"--plot={picture}")
    assert "Best nets of varied" in picture.read_text("utf-8")
    drawn = call("nin_227", *VARY, "--plot=-").stdout
    assert "conv9.filter[3]" in drawn


def test_edits_come_before_choices_and_a_space_has_a_net_of_its_own() -> None:
    text = call("nin_227", "--remove=conv11", *VARY, "--objective=params", "--format=json").stdout
    assert "conv11" not in json.loads(text)["best"]["net"]["layers"]
    text = call("--space=thesis", "--objective=params", "--format=json").stdout
    assert (json.loads(text)["net"], json.loads(text)["count"]) == ("nin_227", 5**16)


def test_what_is_wrong_is_a_line_each() -> None:
    assert call("nin_227", status=1).stderr.startswith("paleo: space: name a design space (moe,")
    assert call(status=1).stderr == "paleo: net: name a net, or a space that has one\n"
    said = call("nin_227", "--space=thesis", "--constraint=params<1e6", status=1).stderr
    # conv10 to conv12 with one layer of 64 filters before them, and conv1.
    assert said == (
        "paleo: constraint: no net of thesis has params<1e6: the least params of any is 2,755,752 "
        "(176 % off)\n"
    )
    said = call("nin_227", *VARY, "--exact", "--fuse", "--samples=3", status=1).stderr
    assert "not additive" in said
    assert said.count("\n") == 1
