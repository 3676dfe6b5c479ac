"""Layers put together by block and by type: nothing is lost, nothing counted twice."""

from __future__ import annotations

import json
import re
from typing import Any

import click.testing
import pytest

import paleo
from paleo.cli import cli
from paleo.studies.grouping import Group, by_block, by_type

NETS = ["inception_v3", "gpt2", "lenet5", "googlenet"]


def call(*arguments: str, status: int = 0) -> click.testing.Result:
    result = click.testing.CliRunner().invoke(cli, arguments, prog_name="paleo")
    assert result.exit_code == status, result.output
    return result


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("depth", [1, 2, 9])
def test_blocks_have_every_layer_once(net: str, depth: int) -> None:
    summary = paleo.summarize(net, 2, device="T4")
    groups = by_block(summary, depth)
    assert sorted(layer.name for group in groups for layer in group.layers) == sorted(
        layer.name for layer in summary.layers
    )
    _check_totals(summary, groups)
    for group in groups:
        for layer in group.layers:
            in_file = re.sub("^h/[0-9]+/", "h/*/", layer.name)  # GPT-2's repeated block
            parts = in_file.replace(".", "/").split("/")
            assert group.name.replace(".", "/") == "/".join(parts[:depth])


@pytest.mark.parametrize("net", NETS)
def test_types_have_every_layer_once(net: str) -> None:
    summary = paleo.summarize(net, 2, device="T4")
    groups = by_type(summary)
    assert [group.name for group in groups] == list(
        dict.fromkeys(layer.type_name for layer in summary.layers)
    )
    assert all(layer.type_name == group.name for group in groups for layer in group.layers)
    _check_totals(summary, groups)


def _check_totals(summary: paleo.NetSummary, groups: tuple[Group, ...]) -> None:
    assert sum(group.num_params for group in groups) == summary.num_params
    assert sum(group.forward_flops for group in groups) == summary.forward_flops
    assert summary.forward is not None
    assert summary.backward is not None
    seconds = sum(group.time or 0.0 for group in groups)
    assert seconds == pytest.approx(summary.forward + summary.backward)


def test_a_net_of_two_blocks_by_hand(net: Any) -> None:
    def dense(parent: str, outputs: int) -> dict[str, Any]:
        return {"type": "InnerProduct", "parents": [parent], "num_outputs": outputs}

    spec = net(
        {
            "in": {"type": "Input", "parents": [], "tensor": [2, 4]},
            "a/x/one": dense("in", 3),  # 4 x 3 weights and 3 biases
            "a/y": dense("a/x/one", 5),  # 3 x 5 and 5
            "b/x": dense("a/y", 2),  # 5 x 2 and 2
        }
    )
    summary = paleo.summarize(spec)
    params = {group.name: group.num_params for group in by_block(summary, 1)}
    assert params == {"in": 0, "a": 35, "b": 12}
    params = {group.name: group.num_params for group in by_block(summary, 2)}
    assert params == {"in": 0, "a/x": 15, "a/y": 20, "b/x": 12}
    assert [len(group.layers) for group in by_type(summary)] == [1, 3]
    assert all(group.time is None for group in by_block(summary, 1))
    values = by_block(summary, 1)[1].to_dict()
    assert (values["name"], values["layers"], values["weights_bytes"]) == ("a", 2, 4 * 35)
    assert values["forward_flops"] == 2 * 2 * (4 * 3 + 3 * 5)
    assert "time_s" not in values


def test_the_command_shows_sums_and_shares() -> None:
    lines = call("summary", "inception_v3", "--depth=1", "--quiet").stdout.splitlines()
    rows = {line.split()[0]: line.split() for line in lines[4:] if line}
    values = json.loads(call("summary", "inception_v3", "--format=json").stdout)["nets"][0]
    block = [layer for layer in values["layers"] if layer["name"].startswith("Mixed_7c/")]
    params = sum(layer["params"] for layer in block)
    total = sum(layer["params"] for layer in values["layers"])
    assert rows["Mixed_7c"][1:4] == [str(len(block)), f"{params:,}", f"{100 * params / total:.1f}"]
    assert rows["total"][1:4] == [str(len(values["layers"])), f"{total:,}", "100.0"]
    types = call("summary", "inception_v3", "--by=type", "--sort=layers", "-q").stdout.splitlines()
    start = next(i for i, line in enumerate(types) if line.startswith("---")) + 1
    assert types[start].split()[0] == "Convolution"


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--depth=0",), "Invalid value for '--depth': 0 is not in the range x>=1"),
        (("--by=size",), "Invalid value for '--by': 'size' is not"),
        (("--depth=1", "--by=type"), "--depth and --by do not go together"),
        (
            ("--depth=1", "--explain=conv1", "--device=K40"),
            "--explain and --depth do not go together",
        ),
    ],
)
def test_what_does_not_go_together_is_one_line(options: tuple[str, ...], line: str) -> None:
    (said,) = call("summary", "lenet5", *options, status=2).stderr.splitlines()
    assert said.startswith(f"paleo: {line}")
