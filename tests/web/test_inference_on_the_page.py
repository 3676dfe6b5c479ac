"""Inference that the demo answers is that of the command, and no more than it has time for."""

from __future__ import annotations

import json
import shlex
from typing import Any
from urllib.parse import urlencode

import pytest
from click.testing import CliRunner

import paleo
from paleo.cli import cli
from paleo.step.declarations import declared
from paleo.studies.serving.settings import InferSettings
from paleo.web.choices import choices, depends
from paleo.web.serving_settings import SERVED, infer_settings
from paleo.web.settings import PageSettings, read_settings

pytest.importorskip("flask", reason="needs Flask")

#: A small model with a device of its own, and a load that is soon simulated.
QUICK = {
    "net": "llama3_2_1b", "device": "H100_SXM", "workers": 1, "infer_prompt": 256,
    "infer_output": 16,
}  # fmt: skip


@pytest.fixture(scope="module")
def client() -> Any:
    from paleo.web.app import create_app

    return create_app().test_client()


def asked(client: Any, **settings: Any) -> Any:
    return client.get(f"/api/infer?{urlencode(settings)}")


def printed(line: str, *options: str) -> str:
    """Return what a command line of the page prints."""
    done = CliRunner().invoke(cli, [*shlex.split(line)[1:], *options])
    assert done.exit_code == 0, (line, done.output)
    return done.stdout


@pytest.mark.parametrize(
    "settings",
    [
        {**QUICK, "infer_concurrency": "1,4", "infer_ttft": "20 ms", "price": "2.5"},
        {**QUICK, "workers": 2, "infer_rate": "5", "infer_requests": 20, "infer_dtype": "fp8"},
        {"net": "lenet5", "device": "T4", "batch_size": 8, "infer_prompt": 9},
    ],
)
def test_inference_is_that_of_the_command_line(client: Any, settings: dict[str, Any]) -> None:
    found = asked(client, **settings).get_json()
    (command,) = found["commands"]
    text = printed(command["text"]).partition("\n\n")[0]
    assert " ".join(text.split()) == " ".join(" ".join(found["answer"]).split())
    rows = json.loads(printed(command["text"], "--format=json"))["rows"]
    assert len(found["table"]["rows"]) == len(rows)
    is_served = "llama" in settings["net"]
    assert set(found["charts"]) == ({"serving", "first_token"} if is_served else set())
    assert (found["parts"] is not None) == is_served
    if is_served:
        (line,) = (one for one in found["charts"]["serving"]["series"] if not one["is_reference"])
        assert line["y"] == [row["tokens_per_s_per_gpu"] for row in rows]


def test_what_is_wrong_together_is_said_in_the_words_of_the_command(client: Any) -> None:
    response = asked(client, **QUICK, infer_decode=2)
    assert response.status_code == 400
    assert response.get_json()["errors"] == [
        "decode: is for devices that compute prompts alone: give prefill, too"
    ]


@pytest.mark.alike
@pytest.mark.parametrize(
    ("settings", "line"),
    [
        # 10 requests for each.
        ({"infer_concurrency": "2001"}, "requests: 20,000 are the most that are simulated here"),
        # A step for each token of 256, of each of 1,000 requests.
        ({"infer_requests": "1000", "infer_concurrency": "1", "infer_token_budget": "1"},
         "requests: 1,000 of them take more than 160,000 events to simulate"),
        ({"infer_rate": ",".join(["1"] * 17)}, "16 loads are the most"),
        ({"workers": 1025}, "workers: 1,024 devices are the most that serve here, got 1,025"),
    ],
)  # fmt: skip
def test_an_answer_takes_no_longer_than_there_is_time(
    client: Any, settings: dict[str, Any], line: str
) -> None:
    response = asked(client, **{**QUICK, **settings})
    assert response.status_code == 400
    (said,) = response.get_json()["errors"]
    assert said.startswith(line)


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("prompt", "x", 'expected a whole number from 1 to 1,048,576, got "x"'),
        ("eager", "yes", 'expected true or false, got "yes"'),
        ("hit_rate", "2", "expected a number from 0 to 1, got 2"),
        ("ttft", "soon", "expected a number with a unit"),
        ("server", "./mine.toml", "unknown server './mine.toml'"),
        ("draft", "/etc/passwd", "unknown net '/etc/passwd'"),
        ("dtype", ["fp8"], "expected a text"),
        ("kv_dtype", "x" * 300, "longer than 200 characters"),
    ],
)
def test_a_mistake_is_one_line_with_the_key_of_the_page(name: str, value: Any, line: str) -> None:
    with pytest.raises(paleo.SettingError) as caught:
        read_settings({f"infer_{name}": value})
    (said,) = map(str, caught.value.mistakes)
    assert said.startswith(f"infer_{name}: {line}")


def test_what_was_given_is_kept_and_the_rest_is_as_declared() -> None:
    given = {
        "infer_rate": "4,8.5",
        "infer_prompt": "7",
        "infer_eager": "true",
        "infer_tpot": "30 ms",
    }
    found = read_settings({**given, "infer_seed": "0", "infer_draft": ""})
    assert infer_settings(found.infer) == {
        "rate": [4, 8.5], "prompt": 7, "eager": True, "tpot": "30 ms"
    }  # fmt: skip
    assert read_settings(found.to_dict()) == found
    own = PageSettings().to_dict()
    for key, setting in SERVED.items():
        assert own[key] == setting.default
        assert setting.label, key


def test_every_setting_has_a_control_but_files_and_what_the_page_has_elsewhere() -> None:
    missing = set(declared(InferSettings)) - {setting.name for setting in SERVED.values()}
    assert missing == {
        "cluster", "device", "network", "cost_model", "workers", "batch_size", "framework",
        "price", "prices", "prompts", "power",
    }  # fmt: skip
    controls = {field["key"]: field for field in choices()["infer"]}
    assert list(controls) == list(SERVED)
    assert controls["infer_experts_dtype"]["empty"] == '"Data type of products"'
    assert "fp8" in [each["name"] for each in controls["infer_dtype"]["choices"]]


def test_steps_of_training_do_not_depend_on_inference() -> None:
    found = depends()
    for kind in ("scaling", "layers", "memory", "plan", "search", "compare"):
        assert not set(found[kind]) & set(SERVED)
    assert set(SERVED) < set(found["infer"])
