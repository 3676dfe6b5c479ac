"""`paleo memory`: what it prints, in every format, and what it says of bad input."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import click.testing
import pytest

from paleo.cli import cli
from paleo.step.memory import footprint, largest_batch


def call(*arguments: str, status: int = 0) -> click.testing.Result:
    result = click.testing.CliRunner().invoke(cli, ["memory", *arguments], prog_name="paleo")
    assert result.exit_code == status, result.output
    return result


def as_json(*arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(call(*arguments, "--format=json").stdout)["nets"]
    return found


def test_a_table_has_a_row_for_each_layer_and_the_peak_below() -> None:
    lines = call("lenet5", "--batch_size=64", "--optimizer=momentum", "-q").stdout.splitlines()
    assert lines[0] == "lenet5, batch 64, training with momentum, fp32"
    heads = [line.split() for line in lines[2:5]]
    assert heads[1] == ["output", "weights", "gradients", "state", "kept", "total"]
    cells = {line.split()[0]: line.split()[1:] for line in lines[6:-2] if line}
    # conv1: 64 x 24 x 24 x 20 numbers are 2.8125 MiB; 1,520 parameters 0.0058 MiB, three times.
    assert cells["conv1"] == ["Convolution", "2.812", *["0.006"] * 3, "2.812", "2.830"]
    assert cells["flatten"] == ["Flatten", "0.195", *["0.000"] * 5]  # 64 x 800 numbers
    # 432,080 parameters: 1.6483 MiB each time; 7,158.0 KiB, 6.9902 MiB, of activations.
    assert cells["total"] == [*["1.648"] * 3, "6.990", "11.935"]
    # 12,165,312 bytes with plain gradient descent, and 1,728,320 of velocities.
    assert lines[-1] == "peak: 13.25 MiB, in the backward pass of pool1"


def test_inference_has_neither_gradients_nor_optimizer() -> None:
    said = call("lenet5", "--inference", "--quiet").stdout
    assert said.startswith("lenet5, batch 64, inference, fp32\n")
    assert "gradients" not in said
    assert "at once" in said
    assert said.endswith("peak: 7.144 MiB, in the forward pass of pool1\n")  # 7,491,392 bytes
    (values,) = as_json("lenet5", "--inference")
    assert (values["gradients_bytes"], values["optimizer"]) == (0, None)
    note = call("lenet5", "--inference", "--optimizer=adam").stderr
    assert note == "paleo: note: --optimizer is for training, it has no effect here\n"


def test_a_device_says_what_fits() -> None:
    # 12 GiB of a K40.
    (values,) = as_json("vgg16", "--batch_size=64", "--device=K40", "--optimizer=adam")
    assert values["device"] == "K40"
    assert values["memory_capacity_bytes"] == 12 * 2**30
    assert values["largest_batch_size"] == largest_batch("vgg16", 12 * 2**30, optimizer="adam")
    assert values["fits"]
    said = call("vgg16", "--batch_size=64", "--device=K40", "--optimizer=adam").stdout
    most = values["largest_batch_size"]
    last = said.splitlines()[-1]
    assert last == f"it fits in the 12 GiB of K40; the largest batch that does has {most} samples"
    said = call("vgg16", "--batch_size=999", "--device=K40", "--inference").stdout
    assert "it does not fit in the 12 GiB of K40; the largest batch that does has" in said
    said = call("vgg16", "--device=K40", "--workspace=13 GB").stdout
    assert said.endswith("it does not fit in the 12 GiB of K40; not even one sample does\n")
    assert ", 12.11 GiB of it workspace\n" in said


def test_a_device_whose_memory_is_not_known_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[figures]\nmemory_bandwidth = "1 GB/s"\n[peak.fp32]\nvector = "1 TFLOP/s"\n')
    said = call("lenet5", "--device", str(path)).stdout
    assert said.endswith("note: how much memory mine has is not known\n")
    (values,) = as_json("lenet5", "--device", str(path))
    assert [values[key] for key in ("memory_capacity_bytes", "fits", "largest_batch_size")] == [
        None
    ] * 3


def test_the_json_is_the_footprint() -> None:
    options = ("--batch_size=3", "--optimizer=rmsprop", "--dtype=fp16", "--workspace=2 MiB")
    assert as_json("lenet5", "alexnet", *options) == [
        footprint(net, 3, optimizer="rmsprop", dtype="fp16", workspace=2 * 2**20).to_dict()
        for net in ("lenet5", "alexnet")
    ]


@pytest.mark.parametrize(("name", "separator"), [("csv", ","), ("tsv", "\t")])
def test_separated_values_are_exact_and_repeat_what_is_the_nets(name: str, separator: str) -> None:
    text = call("lenet5", "nin", "--device=K40", f"--format={name}").stdout
    rows = list(csv.DictReader(io.StringIO(text), delimiter=separator))
    assert {row["net"] for row in rows} == {"lenet5", "nin"}
    found = footprint("lenet5")
    own = [row for row in rows if row["net"] == "lenet5"]
    assert [row["name"] for row in own] == [layer.name for layer in found.layers]
    assert [int(row["total_bytes"]) for row in own] == [layer.total for layer in found.layers]
    for row in own:
        assert (row["peak_bytes"], row["peak_layer"]) == (str(found.peak), "pool1")
        assert (row["batch_size"], row["training"], row["optimizer"]) == ("64", "true", "sgd")
        assert (row["device"], row["fits"]) == ("K40", "true")


def test_markdown_and_verbose() -> None:
    assert "| conv1 | Convolution |" in call("lenet5", "--format=markdown").stdout
    assert "lenet5.json" in call("lenet5", "--verbose").stderr


def test_nets_may_be_edited() -> None:
    twice, plain = as_json("nin_227", "--scale_input=2", "--batch_size=1"), as_json("nin_227")
    assert twice[0]["net"] == "nin_227 input x2"
    assert twice[0]["weights_bytes"] == plain[0]["weights_bytes"]
    series = as_json("lenet5", "--vary=ip1.num_outputs=10,20")
    # 800 inputs, and 10 classes: 800 x 10 + 10 + 10 x 10 + 10 more or less.
    assert series[1]["weights_bytes"] - series[0]["weights_bytes"] == 4 * 10 * (800 + 1 + 10)


def test_every_mistake_is_a_line_and_the_status_is_1() -> None:
    result = call(
        "gone", "--optimizer=adan", "--batch_size=0", "--workspace=4", "--dtype=x", status=1
    )
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    beginnings = (
        "paleo: unknown net 'gone' (did you mean ",
        "paleo: batch_size: expected a whole number of 1 or more, got 0",
        "paleo: unknown optimizer 'adan' (did you mean 'adam'?)",
        "paleo: unknown dtype 'x'; there are: fp64, ",
        "paleo: workspace: expected a number with a unit, such as \"10 GB\", got '4'",
    )
    assert len(lines) == len(beginnings)
    for line, beginning in zip(lines, beginnings, strict=True):
        assert line.startswith(beginning)
    (line,) = call("lenet5", "--device=K41", status=1).stderr.splitlines()
    assert line.startswith("paleo: unknown device 'K41' (did you mean 'K40'?)")
    (line,) = call("lenet5", "--workspace=-1 GB", status=1).stderr.splitlines()
    assert line == "paleo: workspace: expected a positive number, got '-1 GB'"


def test_help_has_examples_and_fits() -> None:
    said = call("--help").stdout
    assert "paleo memory vgg16 --batch_size=64 --optimizer=adam --device=K40" in said
    assert max(map(len, said.splitlines())) <= 80
