"""Whole trainings whose length is said in tokens."""

from __future__ import annotations

from typing import Any

import pytest

import paleo
from paleo.views.tables.simulation import simulation_tables

#: Tokens of a sample of GPT-2.
LENGTH = 1024


def of_gpt2(**settings: Any) -> tuple[dict[str, Any], Any]:
    given: Any = {"device": "H100_SXM", "dtype": "bf16", "batch_size": 8, "scaling": "weak"}
    simulation = paleo.simulate("gpt2", workers=4, tokens=2**40, **given, **settings)
    (run,) = simulation.runs
    return run.to_dict()["rows"][0], run


def test_tokens_are_steps_of_a_batch_of_sequences() -> None:
    row, run = of_gpt2(price=2, power="500 W")
    assert row["num_steps"] == 2**40 / (4 * 8 * LENGTH)
    seconds = row["num_steps"] * row["step_s"][row["best_scheme"]]
    assert row["training_time_s"] == pytest.approx(seconds)
    assert row["device_hours"] == pytest.approx(4 * seconds / 3600)
    assert row["training_energy_j"] == pytest.approx(4 * 500 * seconds)
    assert row["training_cost"] == pytest.approx(2 * 4 * seconds / 3600)
    share = row["step_s_high"][row["best_scheme"]] / row["step_s"][row["best_scheme"]]
    for key in ("training_time_s", "device_hours", "training_energy_j", "training_cost"):
        assert row[f"{key}_high"] == pytest.approx(share * row[key])
    assert not [note for note in run.notes if "price" in note or "energy" in note]


def test_power_and_price_are_the_device_s_where_none_is_given() -> None:
    row, run = of_gpt2()
    device = paleo.find_device("H100_SXM")
    assert device.newest_price
    assert row["training_cost"] == pytest.approx(device.newest_price.amount * row["device_hours"])
    power = float(device.figures["power"].value)
    assert row["training_energy_j"] == pytest.approx(3600 * power * row["device_hours"])
    assert any(note.startswith("price: ") for note in run.notes)
    assert any(note.startswith("energy is an upper bound") for note in run.notes)


def test_without_tokens_a_row_says_nothing_of_a_training() -> None:
    (run,) = paleo.simulate("gpt2", workers=1, scaling="weak").runs
    assert "training_time_s" not in run.to_dict()["rows"][0]


def test_metrics_take_tokens_too() -> None:
    given: Any = {"device": "H100_SXM", "dtype": "bf16", "batch_size": 8, "workers": 4}
    (found,) = paleo.metrics("gpt2", tokens=2**40, scaling="weak", **given)
    row, _ = of_gpt2()
    values = found.to_dict()
    for key in ("num_steps", "training_time_s", "device_hours", "training_cost"):
        assert values[key] == pytest.approx(row[key])
    assert values["training_energy_j"] == pytest.approx(row["training_energy_j"])
    assert values["tokens"] == 2**40
    per_sample = values["training_flops_per_sample"]
    assert values["training_flops"] == pytest.approx(2**40 / LENGTH * per_sample)


def test_devices_of_several_kinds_have_neither_cost_nor_energy() -> None:
    (run,) = paleo.simulate(
        "gpt2",
        device="A100_SXM_40GB",
        other_devices="H100_SXM:1",
        parallel="heterogeneous",
        workers=1,
        scaling="weak",
        tokens=1e9,
    ).runs
    values = run.to_dict()
    assert run.step
    assert values["training_time_s"] == pytest.approx(
        1e9 / LENGTH / run.step.batch_size * run.step.seconds
    )
    assert values["training_cost"] is values["training_energy_j"] is None


@pytest.mark.parametrize(
    ("net", "settings", "message"),
    [
        ("resnet50", {"tokens": 1e9}, "tokens: resnet50 reads none: "),
        ("gpt2", {"tokens": 0}, "tokens: expected a number of 1 or more, got 0"),
        ("gpt2", {"tokens": "many"}, 'tokens: expected a number of 1 or more, got "many"'),
        ("gpt2", {"tokens": 1e30}, "tokens: 1e+30 is too large to mean anything"),
    ],
)
@pytest.mark.parametrize("study", [paleo.simulate, paleo.metrics])
def test_bad_tokens_are_one_line(study: Any, net: str, settings: Any, message: str) -> None:
    with pytest.raises(paleo.PaleoError) as error:
        study(net, workers=1, **settings)
    (line,) = str(error.value).splitlines()
    assert line.startswith(message)


def test_tokens_and_epochs_exclude_each_other() -> None:
    with pytest.raises(paleo.PaleoError, match=r"^tokens: give them or epochs of a dataset"):
        paleo.metrics("gpt2", tokens=1e9, epochs=2, dataset_size=100)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, ""),
        ({"recompute": "full"}, "; HFU that, too"),
    ],
)
def test_tables_say_what_utilization_counts(settings: dict[str, Any], said: str) -> None:
    start = "MFU counts attention in full, causal or not, and nothing that is computed again"
    for scaling in ("weak", ["weak", "strong"]):
        found = paleo.simulate("gpt2", device="H100_SXM", scaling=scaling, **settings)
        (table,) = simulation_tables(found)
        assert table.footnotes.count(start + said) == 1
    (table,) = simulation_tables(paleo.simulate("lenet5", device="H100_SXM", scaling="weak"))
    assert not [line for line in table.footnotes if "MFU" in line]
