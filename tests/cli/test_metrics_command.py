"""`paleo metrics`: its options, and what it prints in every format."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import click.testing
import pytest

from paleo.cli import cli
from paleo.views.table import FORMATS


def call(*arguments: str, status: int = 0) -> click.testing.Result:
    """Run `paleo metrics` without a process."""
    result = click.testing.CliRunner().invoke(cli, ["metrics", *arguments], prog_name="paleo")
    assert result.exit_code == status, result.output
    return result


def as_json(*arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(call(*arguments, "--format=json").stdout)["metrics"]
    return found


OPTIONS = [
    ("--device=K40", "device", "K40"),
    ("--network=pcie2", "network", "pcie2"),
    ("--batch_size=32", "batch_size", 32),
    ("--num-workers=4", "workers", 4),
    ("--scaling=weak", "scaling", "weak"),
    ("--scheme=OneToAll", "scheme", "OneToAll"),
    ("--parallel=hybrid", "parallel", "hybrid"),
    ("--cost_model=roofline", "cost_model", "roofline"),
    ("--dtype=fp32", "dtype", "fp32"),
    ("--fuse", "fuse", True),
    ("--conv_library=cudnn4", "conv_library", "cudnn4"),
    ("--workspace=1GiB", "workspace_limit_bytes", 2**30),
    ("--use-only-gemm", "use_only_gemm", True),
    ("--epochs=2", "epochs", 2.0),
    ("--epochs=0.5", "epochs", 0.5),
    ("--dataset=mnist", "dataset_size", 60_000),
    ("--dataset-size=7", "dataset_size", 7),
    ("--weight_bits=8", "weight_bits", 8),
    ("--index_bits=4", "index_bits", 4),
    ("--sparsity=0.5", "sparsity", 0.5),
    ("--optimizer=adam", "optimizer", "adam"),
    ("--price=0.9", "price_per_device_hour", 0.9),
    ("--price=0.9 EUR/h", "price_currency", "EUR"),
    ("--power=180 W", "power_w", 180),
]


@pytest.mark.parametrize(("option", "key", "value"), OPTIONS)
def test_each_option_has_its_effect(option: str, key: str, value: Any) -> None:
    (found,) = as_json("lenet5", option)
    assert found[key] == value
    assert type(found[key]) is type(value) or key == "power_w"


@pytest.mark.parametrize("option", ["--ppp_comp=0.5", "--ppp_comm=0.5", "--use_pipeline"])
def test_shares_of_peak_and_pipelining_change_the_step(option: str) -> None:
    on = ("lenet5", "--num_workers=2", "--cost_model=paleo2017")
    (plain,), (other,) = as_json(*on), as_json(*on, option)
    assert (other["step_s"] > plain["step_s"]) == option.startswith("--ppp")
    assert other["step_s"] != plain["step_s"]


def test_edited_nets_are_taken_too() -> None:
    plain, edited = as_json("lenet5")[0], as_json("lenet5", "--scale_input=2")[0]
    assert edited["inference_flops_per_sample"] > plain["inference_flops_per_sample"]
    assert edited["net"].startswith("lenet5 ")


def test_separated_values_are_those_of_the_json() -> None:
    arguments = ("nin", "lenet5", "--num_workers=1,4", "--epochs=2", "--dataset=mnist")
    found = as_json(*arguments)
    text = call(*arguments, "--format=csv").stdout
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == len(found) == 4
    for row, values in zip(rows, found, strict=True):
        # What is not known has no ends in JSON, but columns in a table of separated values.
        assert values.keys() - {"notes"} <= row.keys()
        assert all(key.endswith(("_low", "_high")) for key in row.keys() - values.keys())
        for key, text in row.items():
            value = values.get(key)
            shown = str(value).lower() if isinstance(value, bool) else str(value)
            assert text == ("" if value is None else shown), key


def test_every_format_has_the_figures() -> None:
    for name in FORMATS:
        result = call("lenet5", "--epochs=2", "--dataset=mnist", f"--format={name}")
        assert "lenet5" in result.stdout
        assert "energy is an upper bound" in result.stdout + result.stderr


def test_people_get_a_line_for_each_metric_and_a_column_for_each_plan() -> None:
    text = call(
        "nin",
        *("--device=K20X", "--network=infiniband", "--ppp_comp=0.21", "--ppp_comm=0.56"),
        *("--scheme=TreeAllReduce", "--num_workers=1,32", "--batch_size=256"),
        "--scaling=strong",
        *("--epochs=47", "--dataset_size=1200000", "--cost_model=paleo2017"),
    ).stdout
    first, text = text.split("\n\n", 1)
    assert " ".join(first.split()) == (
        "The quickest of 2: Training nin for 47 epochs of 1,200,000 images on 32 x K20X takes "
        "7.586 h."
    )
    title, text = text.split("\n\n", 1)
    assert " ".join(title.split()) == (
        "K20X, infiniband, data-parallel, strong scaling, fp32, cost model paleo2017, "
        "ppp_comp 0.21, ppp_comm 0.56"
    )
    lines = [line.rstrip() for line in text.splitlines()]
    assert lines[0].split() == ["nin", "nin"]
    assert lines[1].split() == ["net", "1", "worker", "32", "workers"]
    cells = {line[:32].strip(): line[32:].split() for line in lines if not line.startswith("note")}
    assert cells["workers"] == ["1", "32"]
    assert cells["batch of a worker"] == ["256", "8"]
    assert cells["time (h)"] == ["117.609", "7.586"]
    assert cells["speedup over one worker"] == ["1.000", "15.504"]
    assert cells["ratio of the two"] == ["0.999"]
    assert "training" in cells
    assert "price of a device for 1 h" not in cells
    assert "cost: give --price, what a device costs for an hour" in lines


def test_the_table_says_what_is_missing_and_which_price_counts() -> None:
    text = call("nin", "--device=K80").stdout
    assert "whole training: give --epochs, and --dataset or --dataset_size" in text
    text = call("nin", "--device=K80", "--epochs=90", "--dataset=imagenet").stdout
    assert "1.8 USD" in text
    assert "note: price: 1.8 USD for an hour of a device, AWS, p2.8xlarge" in text


def test_a_balance_that_is_never_reached_is_said() -> None:
    text = call("nin", "--scheme=ButterflyMixing", "--scaling=weak").stdout
    assert "none up to 65,536" in text


def test_notes_of_some_nets_say_of_which() -> None:
    text = call("squeezenet", "alex_v2", "--cost_model=paleo2017").stdout
    assert "note: squeezenet: not counted by paleo2017: bias, concatenate" in text
    assert "note: alex_v2: not counted by paleo2017: bias, relu" in text
    assert text.count("energy is an upper bound") == 1


def test_options_without_effect_are_said() -> None:
    result = call("alex_v2_2gpu", "--parallel=hybrid", "--hybrid_workers=2", "--num_workers=2")
    assert result.stderr == (
        "paleo: note: --num_workers is for --parallel=data or mesh or single_process, it has no "
        "effect here\n"
    )
