"""The best nets that the demo answers are those of the command, of the space that suits a net."""

from __future__ import annotations

import json
import shlex
from typing import Any
from urllib.parse import urlencode

import pytest
from click.testing import CliRunner

import paleo
from paleo.cli import cli
from paleo.web import predefined
from paleo.web.nets import search_options, space_of
from paleo.web.settings import PageSettings, read_settings

#: Few nets: a chain of two convolutions and as many products.
SMALL: dict[str, Any] = {"net": "alexnet", "batch_size": 8, "dtype": "fp32", "workers": 2}


def of(net: str, **settings: Any) -> tuple[PageSettings, paleo.NetSpec]:
    return read_settings({"net": net, **settings}), predefined.net(net)


@pytest.mark.parametrize(
    ("net", "space"),
    [
        ("alexnet", "thesis"),
        ("nin_227", "thesis"),
        ("resnet50_v1_5", "resnet"),
        ("squeezenet", "squeezenet"),
        ("mixtral_8x7b", "moe"),
    ],
)
def test_a_space_suits_chains_or_the_net_that_it_is_for(net: str, space: str) -> None:
    assert space_of(*of(net)) == space


def test_where_no_space_suits_a_net_a_line_says_why() -> None:
    with pytest.raises(paleo.PaleoError) as caught:
        space_of(*of("gpt2"))
    (line,) = map(str, caught.value.mistakes)
    assert line.startswith("net: no design space suits it: gpt2: convolutions are put into chains")
    assert "resnet50_v1_5" in line


def test_a_net_of_a_predefined_name_that_is_uploaded_is_another() -> None:
    settings, net = of("resnet50_v1_5")
    uploaded = read_settings({}, "resnet50_v1_5", "", net)
    assert space_of(settings, net) == "resnet"
    with pytest.raises(paleo.PaleoError, match="net: no design space suits it"):
        space_of(uploaded, net)


@pytest.mark.parametrize(("scaling", "batch"), [("weak", 9), ("strong", 5)])
def test_a_device_has_its_share_of_a_batch(scaling: str, batch: int) -> None:
    found = search_options(*of("alexnet", batch_size=9, workers=2, scaling=scaling))
    assert found["batch_size"] == batch
    assert (found["objective"], found["front"]) == ("time", "params")


@pytest.mark.alike
def test_the_best_nets_are_those_of_the_command_line() -> None:
    pytest.importorskip("flask", reason="needs Flask")
    from paleo.web.app import create_app

    client = create_app().test_client()
    found = client.get(f"/api/search?{urlencode(SMALL)}").get_json()
    (command,) = found["commands"]
    done = CliRunner().invoke(cli, [*shlex.split(command["text"])[1:], "--format=json"])
    assert done.exit_code == 0, done.output
    values = json.loads(done.stdout)
    assert f"The best of {values['count']:,} nets" in found["answer"][0]
    assert len(found["chosen"]["rows"]) == 16  # convolutions of the space
    assert 1 < len(found["table"]["rows"]) <= len(values["front"])
    assert set(found["charts"]) == {"front_params"}
    wrong = client.get("/api/search?net=gpt2")
    assert wrong.status_code == 400
    assert wrong.get_json()["errors"][0].startswith("net: no design space suits it")
