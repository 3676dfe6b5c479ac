"""Lists of settings on the command line, every combination as if each had been asked for alone, and
of hardware."""

from __future__ import annotations

import itertools
import json
from typing import Any

import click.testing
import pytest

import paleo
from paleo.cli import cli

LISTS = {
    "device": ("V100_SXM2_16GB", "T4"),
    "network": ("ethernet", "nvlink4"),
    "dtype": ("fp32", "fp16"),
    "cost_model": ("tiled", "roofline"),
    "batch_size": (2, 32),
}


def call(*arguments: str, status: int = 0) -> click.testing.Result:
    result = click.testing.CliRunner().invoke(cli, arguments, prog_name="paleo")
    assert result.exit_code == status, result.output
    return result


def as_json(*arguments: str) -> Any:
    return json.loads(call(*arguments, "--format=json").stdout)


def options(**values: Any) -> list[str]:
    return [f"--{name}={','.join(map(str, value))}" for name, value in values.items()]


@pytest.mark.parametrize(("command", "key"), [("simulate", "runs"), ("metrics", "metrics")])
def test_every_combination_is_there_and_as_if_alone(command: str, key: str) -> None:
    plan = (command, "lenet5", "--num_workers=4")
    found = as_json(*plan, *options(**LISTS))[key]
    combinations = list(itertools.product(*LISTS.values()))
    assert len(found) == len(combinations) == 32
    for values, combination in zip(found, combinations, strict=True):
        asked = dict(zip(LISTS, combination, strict=True))
        # Of metrics the batch of a step is that of all workers.
        batch = "batch_size" if command == "simulate" else "worker_batch_size"
        told = {name: values[batch if name == "batch_size" else name] for name in asked}
        assert told == asked
    for i in (0, 13, 31):
        alone = options(**{k: [v] for k, v in zip(LISTS, combinations[i], strict=True)})
        assert as_json(*plan, *alone)[key] == [found[i]]


def test_nets_scalings_and_workers_vary_as_well() -> None:
    found = as_json(
        *("simulate", "lenet5", "nin", "--scaling=weak,strong", "--num_workers=1,2,4"),
        "--batch_size=4,8",
    )["runs"]
    told = [(run["net"], run["batch_size"], run["scaling"]) for run in found]
    assert told == list(itertools.product(("lenet5", "nin"), (4, 8), ("weak", "strong")))
    assert all([row["workers"] for row in run["rows"]] == [1, 2, 4] for run in found)


def test_memory_and_compare_take_lists_too() -> None:
    found = as_json(
        "memory", "lenet5", "--device=P100_SXM2,T4", "--dtype=fp32,fp16", "--batch_size=1,8"
    )
    told = [(fit["device"], fit["dtype"], fit["batch_size"]) for fit in found["nets"]]
    assert told == list(itertools.product(("P100_SXM2", "T4"), ("fp32", "fp16"), (1, 8)))
    one = as_json("memory", "lenet5", "--device=T4", "--dtype=fp16", "--batch_size=8")["nets"]
    assert found["nets"][-1:] == one
    both = as_json("compare", "lenet5", "--device=P100_SXM2,T4", "--dtype=fp32,fp16")
    settings = [each["settings"] for each in both["comparisons"]]
    assert [(each["device"], each["dtype"]) for each in settings] == [
        ("P100_SXM2", "fp16"),
        ("T4", "fp32"),
        ("T4", "fp16"),
    ]


@pytest.mark.parametrize("command", ["simulate", "metrics", "memory", "compare"])
@pytest.mark.parametrize(
    ("option", "line"),
    [
        ("--device=K40,K41,T4", "unknown device 'K41' (did you mean 'K40'?)"),
        ("--batch_size=2,0", "batch_size: expected a whole number of 1 or more, got 0"),
        ("--batch_size=2,x", 'batch_size: expected a whole number of 1 or more, got "x"'),
        ("--dtype=fp32,fp31", "unknown dtype 'fp31' (did you mean 'fp32'?)"),
    ],
)
def test_one_wrong_value_of_a_list_is_named_and_nothing_is_computed(
    command: str, option: str, line: str
) -> None:
    result = call(command, "lenet5", option, status=1)
    (said,) = result.stderr.splitlines()
    assert said.startswith(f"paleo: {line}")
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("option", "line"),
    [
        ("--network=ethernet,ethernt", "unknown network 'ethernt' (did you mean 'ethernet'?)"),
        ("--cost_model=tiled,roofine", "unknown cost model 'roofine' (did you mean 'roofline'?)"),
        ("--num_workers=1,0", "num_workers: expected a whole number from 1 to 2147483647, got 0"),
    ],
)
@pytest.mark.parametrize("command", ["simulate", "metrics"])
def test_so_it_is_of_what_only_clusters_have(command: str, option: str, line: str) -> None:
    (said,) = call(command, "lenet5", option, status=1).stderr.splitlines()
    assert said.startswith(f"paleo: {line}")


def test_several_wrong_values_are_a_line_each() -> None:
    lines = call(
        "simulate", "lenet5", "--device=K41,T5", "--batch_size=0,1", "--dtype=fp31", status=1
    ).stderr.splitlines()
    beginnings = ("unknown device 'K41'", "unknown device 'T5'", "batch_size: ", "unknown dtype")
    assert len(lines) == len(beginnings)
    for line, beginning in zip(lines, beginnings, strict=True):
        assert line.startswith(f"paleo: {beginning}")


def test_a_scenario_has_one_value_of_each() -> None:
    with pytest.raises(paleo.PaleoError, match="one value of each setting"):
        paleo.scenario("lenet5", device=["K40", "T4"])
    assert paleo.scenario("lenet5", device=["T4"]).plan.device.name == "T4"


# Ranking


def cells(*arguments: str) -> list[list[str]]:
    """Return the rows of the table, cell by cell."""
    lines = call(*arguments, "--quiet").stdout.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("---")) + 1
    end = next((i for i, line in enumerate(lines) if i > start and not line), len(lines))
    return [line.split() for line in lines[start:end]]


@pytest.mark.alike
def test_metrics_are_ranked_by_cost_and_by_time() -> None:
    asked = ("metrics", "resnet18", "--device=K80,T4,A100_SXM_80GB,H100_SXM", "--batch_size=1,32")
    found = as_json(*asked)["metrics"]
    prices = {each["device"]: each["price_per_device_hour"] for each in found}
    assert None not in prices.values()
    for option, value in (
        ("--sort=cost", lambda each: each["inference_cost_per_million"]),
        ("--sort=latency", lambda each: each["inference_s"]),
        ("--sort=rate", lambda each: -each["inference_throughput_per_s"]),
        ("--sort=-rate", lambda each: each["inference_throughput_per_s"]),
        ("--sort=memory", lambda each: each["inference_memory_bytes"]),
    ):
        ranked = sorted(found, key=value)
        told = [(row[0], row[1]) for row in cells(*asked, "--inference", option)]
        assert told == [(each["device"], str(each["worker_batch_size"])) for each in ranked], option
    best = cells(*asked, "--inference", "--sort=cost", "--top=3")
    assert best == cells(*asked, "--inference", "--sort=cost")[:3]


def test_simulations_are_ranked_over_all_runs() -> None:
    asked = ("simulate", "lenet5", "--device=K40,T4,H100_SXM", "--num_workers=1,8")
    runs = as_json(*asked)["runs"]
    found = [
        (run["device"], str(row["workers"]), row["throughput_per_s"][row["best_scheme"]])
        for run in runs
        for row in run["rows"]
    ]
    ranked = sorted(found, key=lambda each: -each[2])
    for option in ("--sort=throughput", "--sort=throughput_per_s"):
        assert [tuple(row[:2]) for row in cells(*asked, option)] == [each[:2] for each in ranked]


def test_what_differs_heads_the_rows_and_what_does_not_stands_in_the_title() -> None:
    text = call("metrics", "lenet5", "--device=P100_SXM2,T4", "--dtype=fp32,fp16", "--quiet").stdout
    title, head = text.split("\n\n")[:2]
    assert "lenet5" in title
    assert not {"P100_SXM2", "T4", "fp32", "fp16"} & set(title.replace(",", "").split())
    assert {"device", "type"} < set(head.split())
    assert [
        row[:2] for row in cells("metrics", "lenet5", "--device=P100_SXM2,T4", "--dtype=fp32,fp16")
    ] == [
        *(["P100_SXM2", "fp32"], ["P100_SXM2", "fp16"], ["T4", "fp32"], ["T4", "fp16"]),
    ]


# Error bands


def ends(values: Any) -> Any:
    """Yield each value that has ends with them, of all that JSON has."""
    if isinstance(values, list):
        for value in values:
            yield from ends(value)
    elif isinstance(values, dict):
        for key, value in values.items():
            if f"{key}_low" in values:
                yield key, value, values[f"{key}_low"], values[f"{key}_high"]
            yield from ends(value)


@pytest.mark.parametrize(
    ("command", "more"),
    [
        ("simulate", ("--num_workers=1,16",)),
        ("simulate", ("--parallel=hybrid", "--hybrid_workers=4")),
        ("metrics", ("--num_workers=16", "--epochs=2", "--dataset=imagenet", "--price=2")),
        ("summary", ()),
        ("compare", ()),
        ("memory", ()),
    ],
)
def test_a_value_lies_in_its_band_and_rates_are_swapped(
    command: str, more: tuple[str, ...]
) -> None:
    net = "alex_v2_4gpu" if "--parallel=hybrid" in more else "resnet18"
    device = "T4,K40" if command == "compare" else "T4"
    found = list(ends(as_json(command, net, f"--device={device}", *more)))
    assert found
    checked = 0
    for key, value, low, high in found:
        pairs = [(value, low, high)]
        if isinstance(value, dict):
            assert value.keys() == low.keys() == high.keys()
            pairs = [(value[name], low[name], high[name]) for name in value]
        for middle, least, most in pairs:
            assert least is None or least <= middle * (1 + 1e-9), key
            assert most is None or middle <= most * (1 + 1e-9), key
            checked += least is not None or most is not None
    assert checked


def test_a_rate_is_low_where_times_are_high() -> None:
    (values,) = as_json("metrics", "resnet18", "--device=T4", "--batch_size=8")["metrics"]
    for time, rate in (
        ("inference_s", "inference_throughput_per_s"),
        ("step_s", "training_throughput_per_s"),
    ):
        for one, other in (("low", "high"), ("high", "low")):
            assert values[f"{rate}_{one}"] == pytest.approx(8 / values[f"{time}_{other}"])
    # Without a band there are no ends.
    (plain,) = as_json("metrics", "resnet18", "--cost_model=paleo2017")["metrics"]
    assert not [key for key in plain if key.endswith(("_low", "_high"))]


def test_devices_and_networks_are_listed_with_the_source_of_each_figure() -> None:
    (k40,) = as_json("devices", "Tesla K40")["devices"]
    assert k40["figures"]["memory_bandwidth"]["value"] == 288e9
    assert k40["peak_flop_per_s"]["fp32"]["vector"]["value"] == 4.29e12
    assert all(figure["source"] for figure in k40["figures"].values())
    (pcie3,) = as_json("networks", "pcie3")["networks"]
    assert pcie3["paleo2017"]["bandwidth_bytes_per_s"] == 16e9
    assert pcie3["figures"]["bandwidth"]["value"] == 15.75e9
