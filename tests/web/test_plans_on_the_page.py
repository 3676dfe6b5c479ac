"""The best plans that the demo answers are those of the command."""

from __future__ import annotations

import json
import shlex
from typing import Any
from urllib.parse import urlencode

import pytest
from click.testing import CliRunner

from paleo.cli import cli

pytest.importorskip("flask", reason="needs Flask")


@pytest.fixture(scope="module")
def client() -> Any:
    from paleo.web.app import create_app

    return create_app().test_client()


def printed(line: str, *options: str) -> str:
    """Return what a command line of the page prints."""
    done = CliRunner().invoke(cli, [*shlex.split(line)[1:], *options])
    assert done.exit_code == 0, (line, done.output)
    return done.stdout


@pytest.mark.alike
@pytest.mark.parametrize(
    "settings",
    [
        {"net": "lenet5", "workers": 4, "dataset": "mnist", "epochs": 3, "price": "2.5"},
        {"net": "gpt2", "workers": 2, "batch_size": 1, "seq_len": 64, "dtype": "bf16"},
    ],
)
def test_the_best_plans_are_those_of_the_command_line(
    client: Any, settings: dict[str, Any]
) -> None:
    found = client.get(f"/api/plan?{urlencode(settings)}").get_json()
    (command,) = found["commands"]
    text = printed(command["text"]).partition("\n\n")[0]
    assert " ".join(text.split()) == " ".join(" ".join(found["answer"]).split())
    plans = json.loads(printed(command["text"], "--format=json"))["plans"]
    assert len(found["table"]["rows"]) == len(plans)
    assert max(plan["num_workers"] for plan in plans) == settings["workers"]
    assert set(found["charts"]) == {"plan_memory", "plan_cost"}


def test_where_no_plan_fits_the_page_says_so(client: Any) -> None:
    query = urlencode({"net": "llama3_70b", "workers": 1, "batch_size": 1, "dtype": "fp32"})
    response = client.get(f"/api/plan?{query}")
    assert response.status_code == 400
    assert response.get_json()["errors"][0].startswith("no plan keeps to all limits: of ")
