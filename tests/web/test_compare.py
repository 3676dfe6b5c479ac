"""Two configurations beside each other are answered as each alone."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any
from urllib.parse import urlencode

import pytest
from click.testing import CliRunner

import paleo
from paleo.cli import cli
from paleo.web.answers import KINDS, Answers
from paleo.web.choices import choices
from paleo.web.settings import KEYS, read_settings

pytest.importorskip("flask", reason="needs Flask")


@pytest.fixture(scope="module")
def client() -> Any:
    from paleo.web.app import create_app

    return create_app().test_client()


def test_two_configurations_are_answered_as_each_alone(client: Any) -> None:
    first = {"net": "nin", "cluster": "", "workers": "4", "price": "2", "batch_size": "64"}
    other = {"net": "vgg11", "device": "T4", "network": "ethernet", "batch_size": "32"}
    asked = first | {f"other_{key}": value for key, value in other.items()}
    found = client.get(f"/api/compare?{urlencode(asked)}").get_json()
    assert found["names"] == [
        "nin, A100_SXM_80GB, infiniband_hdr, batch 64", "vgg11, T4, ethernet, batch 32",
    ]  # fmt: skip
    rows = [paleo.simulate(
        each["net"], device=each.get("device", "A100_SXM_80GB"), dtype="mixed_fp16",
        network=each.get("network", "infiniband_hdr"), batch_size=int(each["batch_size"]),
        workers=[1, 4],
    ).runs[0].rows[1] for each in (first, other)]  # fmt: skip
    steps = [row.whole_step(row.best_scheme) for row in rows]
    shown = {line[0]: line[1:] for line in found["table"]["rows"]}
    assert shown["batch"] == ["256", "128"]
    assert [float(text.replace(",", "")) for text in shown["samples/s"]] == pytest.approx(
        [step.throughput for step in steps], rel=0.06
    )
    assert shown["price of a device for 1 h"][0] == "2.00 USD"  # which is of its device alone
    lines = found["charts"]["throughput"]["series"]
    assert [line["name"] for line in lines] == found["names"]
    place = lines[0]["x"].index(4)
    assert [line["y"][place] for line in lines] == [step.throughput for step in steps]
    ratio = steps[1].throughput / steps[0].throughput
    (said,) = re.findall(r"([\d.]+) times", found["answer"][0])
    assert float(said) == pytest.approx(ratio, rel=0.06)
    for line, step in zip(lines, steps, strict=True):
        ends = (line["low"][place], line["high"][place])
        assert ends == tuple(end.throughput for end in step.ends[::-1] if end)
    for each, step in zip(found["commands"], steps, strict=True):
        run = _run(each["text"])
        (row,) = (row for row in run["rows"] if row["workers"] == 4)
        assert min(row["step_s"].values()) <= step.seconds


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "there is no other configuration to compare with: give other_net or "),
        ({"other_device": "K81"}, "other_device: unknown device 'K81'"),
        ({"other_net": "python:os:system"}, "other_net: unknown net"),
        ({"other_batch_size": "0"}, "other_batch_size: expected a whole number"),
        ({"other_batch_size": "2000000"}, "other_batch_size: 1,000,000 are the most"),
        ({"other_dtype": "fp7"}, "other_dtype: "),
        ({"other_device": "K80", "other_dtype": "fp16"}, "other_dtype: device K80 has no peak"),
    ],
)
def test_a_mistake_in_the_other_configuration_is_one_line_with_its_key(
    client: Any, values: dict[str, str], said: str
) -> None:
    response = client.get(f"/api/compare?{urlencode({'net': 'lenet5', **values})}")
    assert response.status_code == 400
    (line,) = response.get_json()["errors"]
    assert line.startswith(said)


def test_what_stands_beside_it_changes_no_answer_but_its_own() -> None:
    base = {"net": "lenet5"}
    changed = base | {
        "other_net": "nin", "other_device": "K80", "other_network": "aws", "other_dtype": "fp32",
        "other_batch_size": "3", "other_cluster": "aws_g3",
    }  # fmt: skip
    assert {key for key in KEYS if key.startswith("other_")} == set(changed) - set(base)
    for kind in KINDS:
        first, found = (json.loads(Answers().text(kind, read_settings(s))) for s in (base, changed))
        assert first | {"settings": None} == found | {"settings": None}
        assert not any(key.startswith("other_") for key in choices()["depends"][kind])


def _run(line: str) -> Any:
    """Return the run that a command line prints."""
    done = CliRunner().invoke(cli, [*shlex.split(line)[1:], "--format=json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)["runs"][0]
