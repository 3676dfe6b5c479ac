"""Sentences before tables: read back against the JSON of the same command, and first screens.

Run as a program, this writes the first screens anew, to be read before they are committed.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
from pathlib import Path
from typing import Any

import click.testing
import pytest
from hypothesis import given
from hypothesis import strategies as st

import paleo
from paleo.cli import cli
from paleo.costs.error_bands import Band
from paleo.views.answers.base import (
    amounts,
    band_said,
    duration,
    durations,
    percent,
    rounded,
    spread,
    used,
)
from paleo.views.answers.simulation import simulation_answer
from paleo.views.table import columns_of, significant

GOLDEN = Path(__file__).parent / "first_screens"
GIB = 2**30
#: Seconds, or bytes, of what sentences speak in.
UNITS = {
    "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "days": 86400.0,
    "KiB": 2**10, "MiB": 2**20, "GiB": GIB,
}  # fmt: skip
NUMBER = r"\d[\d,]*(?:\.\d+)?"
TIME = rf"(?P<{{}}>{NUMBER} (?:us|ms|s|min|h|days))"
BAND = (
    rf"(?: \((?:80 % of measured cases: )?(?P<low{{0}}>{NUMBER})(?: \w+)? to "
    rf"(?P<high{{0}}>{NUMBER})(?: \w+)?\))?"
)
ABOUT = "(?:about )?"


def call(*arguments: str, width: int | None = None) -> str:
    env = {"COLUMNS": str(width)} if width else {}
    result = click.testing.CliRunner(env=env).invoke(cli, arguments, prog_name="paleo")
    assert result.exit_code == 0, result.output
    return result.stdout


def said(*arguments: str) -> str:
    """Return the paragraph before the table, as one line."""
    return " ".join(call(*arguments).split("\n\n")[0].split())


def as_json(*arguments: str) -> Any:
    return json.loads(call(*arguments, "--format=json"))


def is_rounded(text: str, value: float) -> bool:
    """Tell whether a text, with its unit if it has one, is a number in the digits it shows."""
    number, _, unit = text.partition(" ")
    shown = float(number.replace(",", "")) * UNITS.get(unit, 1.0)
    digits = number.replace(",", "").replace(".", "").lstrip("0")
    size = abs(float(number.replace(",", "")))
    if not size:
        return value == 0
    decimals = len(number.partition(".")[2])
    zeros = 0 if decimals else len(digits) - len(digits.rstrip("0"))
    # The last digit that is shown: zeros at the end of a whole number may be rounded.
    step = 10.0 ** (zeros - decimals) * UNITS.get(unit, 1.0)
    return abs(shown - value) <= step / 2 * (1 + 1e-9)


# One sentence, and what the JSON says

SIMULATED = re.compile(
    rf"^(?:One|(?P<workers>[\d,]+) x) (?P<device>.+?) trains? (?P<net>\S+) at {ABOUT}"
    rf"(?P<rate>{NUMBER}) (?P<things>images|samples|tokens)/s{BAND.format('')}: "
    rf"{TIME.format('step')} a step of "
    rf"(?P<batch>[\d,]+) (?:images|samples)(?: of (?P<tokens>[\d,]+) tokens)?"
    rf"(?:, (?P<efficiency>{NUMBER}) % scaling efficiency)?(?:, (?P<mfu>{NUMBER}) % MFU)?"
    rf"(?:, (?P<memory>{NUMBER}) of (?P<capacity>{NUMBER}) GiB used(?: each)?)?[.,]"
)
CASES = [
    (net, device, workers, dtype)
    for net, (device, dtype), workers in itertools.product(
        ("lenet5", "resnet18", "gpt2", "lstm_lm"),
        (("H100_SXM", "mixed_fp16"), ("K40", "fp32"), ("T4", "fp16"), ("EPYC_7763", "fp32")),
        (1, 8, 256),
    )
]


@pytest.mark.alike
@pytest.mark.parametrize(("net", "device", "workers", "dtype"), CASES)
def test_the_first_sentence_of_simulate_is_its_json(
    net: str, device: str, workers: int, dtype: str
) -> None:
    arguments = (
        *("simulate", net, f"--device={device}", f"--num_workers={workers}"),
        *(f"--dtype={dtype}", "--batch_size=2", "--network=nvlink4"),
    )
    text = said(*arguments)
    (run,) = as_json(*arguments)["runs"]
    (row,) = run["rows"]
    found = SIMULATED.match(text)
    assert found, text
    exact = {name: seconds for name, seconds in row["step_s"].items() if "Mixing" not in name}
    best = min(exact, key=exact.__getitem__)
    value = {key: values[best] for key, values in row.items() if isinstance(values, dict)}
    assert int((found["workers"] or "1").replace(",", "")) == workers
    assert found["device"] == device.replace("_", " ")
    assert found["net"] == net
    rate = {"gpt2": "tokens_per_s", "lstm_lm": "tokens_per_s"}.get(net, "throughput_per_s")
    assert (found["things"] == "tokens") is (rate == "tokens_per_s")
    if found["tokens"]:
        assert is_rounded(found["mfu"], 100 * value["mfu"])
        length = int(found["tokens"].replace(",", ""))
        assert value[rate] == pytest.approx(length * value["throughput_per_s"])
    assert is_rounded(found["rate"], value[rate])
    assert is_rounded(found["step"], value["step_s"])
    assert int(found["batch"].replace(",", "")) == 2 * workers == row["batch_size"]
    if run["band"] and run["band"]["high"] is not None:
        assert is_rounded(found["low"], value[f"{rate}_low"])
        assert is_rounded(found["high"], value[f"{rate}_high"])
        assert " at about " in text
    else:
        assert found["low"] is None
    if workers > 1:
        assert is_rounded(found["efficiency"], 100 * value["efficiency"])
    if found["memory"]:
        (fit,) = as_json("memory", net, "--batch_size=2", f"--dtype={dtype}", f"--device={device}")[
            "nets"
        ]
        assert is_rounded(found["memory"] + " GiB", fit["peak_bytes"])
        assert is_rounded(found["capacity"] + " GiB", fit["memory_capacity_bytes"])


def test_what_does_not_fit_is_said_first_and_counted() -> None:
    arguments = ("simulate", "vgg16", "--device=K40", "--num_workers=1", "--network=pcie3")
    text = said(*arguments, "--batch_size=512")
    (fit,) = as_json("memory", "vgg16", "--batch_size=512", "--device=K40")["nets"]
    peak = fit["peak_bytes"] / GIB
    most = fit["largest_batch_size"]
    assert text.startswith(
        f"It does not fit: training needs {peak:.1f} GiB, one K40 has 12 GiB; "
        f"--batch_size={most} is the largest that does;"
    )
    fits = f"--batch_size={most}"
    assert "not fit" not in said(*arguments, fits)
    assert said(*arguments, f"--batch_size={most + 1}").startswith("It does not fit: ")
    assert said(*arguments, "--batch_size=16,32,512,1024").startswith(
        "2 of 4 do not fit in memory. The quickest of 2 (batches of 32): One K40 trains vgg16 at "
    )
    assert said(*arguments, "--batch_size=16,512").startswith(
        "1 of 2 does not fit in memory. The quickest of 1"
    )


@pytest.mark.parametrize("net", ["lenet5", "resnet18", "gpt2", "lstm_lm"])
@pytest.mark.parametrize("device", ["K40", "H100_SXM"])
def test_the_sentences_of_metrics_are_their_json(net: str, device: str) -> None:
    arguments = (
        *("metrics", net, f"--device={device}", "--num_workers=4", "--batch_size=2"),
        *("--epochs=3", "--dataset_size=1000000", "--price=2.50 EUR/h"),
    )
    text = said(*arguments)
    (values,) = as_json(*arguments)["metrics"]
    name = device.replace("_", " ")
    training = re.match(
        rf"Training {net} for 3 epochs of 1,000,000 (?:images|samples) on 4 x {name} takes {ABOUT}"
        rf"{TIME.format('time')}{BAND.format('')} and costs {ABOUT}(?P<cost>{NUMBER}) EUR"
        rf"{BAND.format('_cost')}\.",
        text,
    )
    assert training, text
    inference = re.search(
        rf"Inference of a batch of 2 (?:images|samples) with {net} on one {name} takes {ABOUT}"
        rf"{TIME.format('time')}{BAND.format('')}, (?P<rate>{NUMBER}) (?:images|samples)/s, "
        rf"(?P<million>{NUMBER}) EUR a million\.",
        text,
    )
    assert inference, text
    for found, key in ((training, "training_time_s"), (inference, "inference_s")):
        assert is_rounded(found["time"], values[key])
        unit = found["time"].partition(" ")[2]
        for end in ("low", "high"):
            if f"{key}_{end}" in values and found[end]:
                # One unit stands behind both where they have the same.
                said_ = re.search(rf"{found['low']} (\S+) to", found[0])
                of_low = said_[1] if said_ and end == "low" else None
                behind = re.search(rf"to {re.escape(found['high'])} (\w+)\)", found[0])
                assert behind
                assert is_rounded(f"{found[end]} {of_low or behind[1]}", values[f"{key}_{end}"])
        assert unit in UNITS
    assert is_rounded(training["cost"], values["training_cost"])
    assert is_rounded(training["low_cost"], values["training_cost_low"])
    assert is_rounded(training["high_cost"], values["training_cost_high"])
    assert is_rounded(inference["rate"], values["inference_throughput_per_s"])
    assert is_rounded(inference["million"], values["inference_cost_per_million"])


def test_the_best_of_several_is_the_jsons_best() -> None:
    devices = ("K40", "T4", "V100_SXM2_16GB", "A100_SXM_80GB")
    arguments = ("metrics", "resnet18", f"--device={','.join(devices)}", "--batch_size=1,32")
    found = as_json(*arguments)["metrics"]
    assert len(found) == 8
    quickest = max(found, key=lambda each: each["inference_throughput_per_s"])
    text = said(*arguments, "--inference")
    name, batch = quickest["device"].replace("_", " "), quickest["worker_batch_size"]
    assert text.startswith(
        f"The quickest of 8: Inference of a batch of {batch} images with resnet18 on one {name} "
    )
    cheapest = min(
        (each for each in found if each["inference_cost_per_million"] is not None),
        key=lambda each: each["inference_cost_per_million"],
    )
    if cheapest != quickest:
        where = text.partition("The cheapest: ")[2]
        assert f" on one {cheapest['device'].replace('_', ' ')} takes " in where


@pytest.mark.parametrize("net", ["lenet5", "vgg16", "gpt2"])
@pytest.mark.parametrize("more", [(), ("--inference",), ("--optimizer=adam",)])
def test_the_first_sentence_of_memory_is_its_json(net: str, more: tuple[str, ...]) -> None:
    arguments = ("memory", net, "--batch_size=8", "--device=H100_SXM", *more)
    text = said(*arguments)
    (values,) = as_json(*arguments)["nets"]
    found = re.match(
        rf"(?P<purpose>Training with \w+|Inference) of {net} on batches of 8 takes "
        rf"(?P<peak>{NUMBER} [KMG]iB) at its peak"
        rf"(?: \(80 % of measured cases: (?P<low>{NUMBER}(?: \w+)?) to (?P<high>{NUMBER} \w+)\))?, "
        r"in the (?:forward pass|backward pass|update) of (?P<layer>.+?)\. It fits the 80 GiB of "
        r"one H100 SXM; the largest batch that does is (?P<most>[\d,]+)\.",
        text,
    )
    assert found, text
    assert is_rounded(found["peak"], values["peak_bytes"])
    assert (found["low"] is None) == ("peak_bytes_low" not in values) == ("--inference" in more)
    if found["high"]:
        assert is_rounded(found["high"], values["peak_bytes_high"])
        assert values["peak_bytes_low"] <= values["peak_bytes"] <= values["peak_bytes_high"]
    assert found["layer"] == values["peak_layer"]
    assert int(found["most"].replace(",", "")) == values["largest_batch_size"]


@pytest.mark.parametrize("net", ["lenet5", "resnet50", "gpt2_xl"])
def test_the_sentences_of_a_summary_are_its_json(net: str) -> None:
    arguments = ("summary", net, "--batch_size=4", "--device=A100_SXM_80GB")
    text = said(*arguments)
    (values,) = as_json(*arguments)["nets"]
    found = re.match(
        rf"{net} has (?P<params>{NUMBER})(?P<scale> million| billion)? parameters in "
        rf"(?P<layers>[\d,]+) layers; a forward pass is (?P<flops>{NUMBER}) "
        rf"(?P<prefix>[kMGT]?)FLOP a sample\. On one A100 SXM 80GB a batch of 4 takes "
        rf"{ABOUT}{TIME.format('time')} forward and backward{BAND.format('')}\. "
        rf"(?P<kind>\w+) layers are (?P<share>{NUMBER}) % of that; the longest layer is "
        rf"(?P<longest>\S+), (?P<most>{NUMBER}) %\.",
        text,
    )
    assert found, text
    scale = {" million": 1e6, " billion": 1e9}.get(found["scale"], 1)
    layers = values["layers"]
    params = sum(layer["params"] for layer in layers)
    assert is_rounded(found["params"], params / scale)
    assert int(found["layers"].replace(",", "")) == len(layers)
    prefix = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}[found["prefix"]]
    flops = sum(layer["forward_flops"] for layer in layers) / 4
    assert is_rounded(found["flops"], flops / prefix)
    seconds = [layer["forward_s"] + layer["backward_s"] for layer in layers]
    assert is_rounded(found["time"], sum(seconds))
    longest = max(range(len(layers)), key=seconds.__getitem__)
    assert found["longest"] == layers[longest]["name"]
    assert is_rounded(found["most"], 100 * seconds[longest] / sum(seconds))
    kinds: dict[str, float] = {}
    for layer, time in zip(layers, seconds, strict=True):
        kinds[layer["type"]] = kinds.get(layer["type"], 0.0) + time
    assert found["kind"] == max(kinds, key=kinds.__getitem__)
    assert is_rounded(found["share"], 100 * kinds[found["kind"]] / sum(seconds))


def test_the_sentences_of_a_comparison_are_its_json() -> None:
    arguments = ("compare", "resnet18", "resnet50", "--device=V100_SXM2_16GB", "--totals")
    (other,) = as_json(*arguments)["comparisons"]
    total = other["total"]
    found = re.match(
        rf"A step of resnet50 takes (?P<factor>{NUMBER}) times as long as one of resnet18: "
        rf"{TIME.format('here')}{BAND.format('')} against {TIME.format('there')}.*? It has "
        rf"(?P<params>{NUMBER}) times the parameters, (?P<flops>{NUMBER}) times the FLOPs and "
        rf"(?P<memory>{NUMBER}) times the memory\.",
        said(*arguments),
    )
    assert found, said(*arguments)
    assert is_rounded(found["factor"], total["time_factor"])
    assert is_rounded(found["here"], total["time_s"])
    assert is_rounded(found["there"], total["reference_time_s"])
    assert is_rounded(found["params"], total["params_factor"])
    assert is_rounded(found["flops"], total["forward_flops_factor"])
    assert is_rounded(found["memory"], total["memory_factor"])


def test_of_several_the_quickest_is_compared() -> None:
    arguments = ("compare", "resnet18", "--device=K40,V100_SXM2_16GB,H100_SXM", "--totals")
    text = said(*arguments)
    assert text.startswith("The quickest of 3 is resnet18, H100_SXM. A step of resnet18, H100_SXM ")


# Quiet, and other formats

COMMANDS = [
    ("simulate", "lenet5"),
    ("metrics", "lenet5"),
    ("memory", "lenet5"),
    ("summary", "lenet5"),
    ("compare", "lenet5", "nin", "--totals"),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_quiet_leaves_out_the_sentences_alone(command: tuple[str, ...]) -> None:
    whole, table = call(*command), call(*command, "--quiet")
    assert whole.endswith(f"\n\n{table}")
    assert whole.count("\n\n") > table.count("\n\n")
    assert call(*command, "-q") == table
    markdown = call(*command, "--format=markdown")
    assert markdown.endswith(call(*command, "--format=markdown", "--quiet"))
    for name in ("csv", "tsv", "json"):
        assert call(*command, f"--format={name}") == call(*command, f"--format={name}", "--quiet")


# Numbers in sentences


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (27.4, 2, "27"),
        (9.96, 2, "10"),
        (9.94, 2, "9.9"),
        (99_960, 3, "100,000"),
        (0.0996, 2, "0.10"),
        (12_345, 3, "12,300"),
        (0.012345, 3, "0.0123"),
        (1.0, 3, "1.00"),
        (-9.96, 2, "-10"),
    ],
)
def test_numbers_have_as_many_digits_as_their_band_supports(
    value: float, digits: int, text: str
) -> None:
    assert rounded(value, digits) == significant(value, digits) == text


@given(st.floats(1e-12, 1e15), st.integers(1, 4))
def test_a_rounded_number_is_near(value: float, digits: int) -> None:
    text = rounded(value, digits)
    # Half of the last digit, which is at most a tenth of the number over 10 to the digits before.
    assert float(text.replace(",", "")) == pytest.approx(value, rel=0.5 * 10.0 ** (1 - digits))
    shown = text.replace(",", "").replace(".", "").strip("0")
    assert len(shown) <= digits


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (58.2e-3, "58 ms"),
        (1.31, "1.3 s"),
        (80, "80 s"),
        (150, "2.5 min"),
        (3 * 3600, "3.0 h"),
        (70 * 3600, "70 h"),
        (1008 * 3600, "42 days"),
        (3.2e-6, "3.2 us"),
    ],
)
def test_times_have_the_unit_that_people_speak_in(seconds: float, text: str) -> None:
    assert duration(seconds, 2) == text


def test_shares_spreads_and_memory_are_said_as_people_read_them() -> None:
    assert [percent(share) for share in (0.333, 0.988, 0.99951, 1.0)] == [
        *("33 %", "98.8 %", "100 %", "100 %"),
    ]
    assert spread(("1 s", "2 s")) == " (1 to 2 s)"
    assert spread(("900 ms", "2 s")) == " (900 ms to 2 s)"
    assert spread((None, "2 s")) == " (at most 2 s)"
    assert spread(("1 s", None)) == " (at least 1 s)"
    assert spread((None, None)) == ""
    assert spread(("3 s", "3 s")) == " (about 3 s)"
    assert used(10.7 * GIB, 80 * GIB) == "10.7 of 80 GiB"
    assert used(10.7 * GIB, None) == "10.7 GiB"
    assert used(0.1227 * GIB, None) == "0.123 GiB"


def test_ends_of_a_band_that_are_the_same_have_more_digits() -> None:
    # 3.19 s and 3.24 s are 3.2 s in two digits, and two different ones in three.
    assert durations((3.19, 3.24), 2, 3.2) == ("3.19 s", "3.24 s")
    assert durations((2.9, 3.24), 2, 3.2) == ("2.9 s", "3.2 s")
    assert durations((3.1999, 3.2001), 2, 3.2) == ("3.1999 s", "3.2001 s")
    # Five digits at most; one end alone stands as it is.
    assert amounts((3_200_000.0, 3_200_001.0), 2) == ("3,200,000", "3,200,000")
    assert amounts((3.19, None), 2) == ("3.2", None)
    narrow = Band(0.995, 1.005, 200, 0.8, "nets")
    assert band_said("passes", narrow, 3.2, 2) == (
        "error band of passes: 80 % of measured cases took between 3.18 and 3.22 s "
        "(200 cases: nets)"
    )
    none = Band(1.0, 1.0, 200, 0.8, "nets")
    assert "took about 3.2000 s (" in band_said("passes", none, 3.2, 2)
    assert Band(0.999, 1.001, 9, 0.8).said == (
        "80 % of measured cases took between 0.999 and 1.001 times what is predicted (9 cases)"
    )


# First screens

#: What newcomers ask, on the first screen.
SCREENS = {
    "simulate": (
        *("simulate", "resnet50_v1_5", "--device=H100_SXM", "--network=nvlink4"),
        *("--num_workers=8", "--batch_size=256", "--dtype=mixed_fp16"),
    ),
    "networks": (
        "simulate",
        "resnet50",
        "--network=ethernet25,infiniband_hdr",
        "--num_workers=1,8",
    ),
    "misfit": ("simulate", "vgg16", "--device=K40", "--batch_size=512", "--num_workers=2"),
    "schemes": ("simulate", "alex_v2", "--cost_model=paleo2017", "--scheme=all"),
    "training": (
        *("metrics", "resnet50", "--device=H100_SXM", "--num_workers=8", "--dtype=mixed_fp16"),
        *("--batch_size=256", "--epochs=90", "--dataset=imagenet", "--price=3.00"),
    ),
    "ranking": (
        *("metrics", "resnet18", "--device=K80,T4,A100_SXM_80GB", "--batch_size=1,32"),
        *("--inference", "--sort=cost", "--price=1.00"),
    ),
    "memory": ("memory", "resnet18", "--device=K40", "--batch_size=8,512"),
    "types": ("summary", "resnet50", "--device=T4", "--by=type", "--sort=time"),
    "blocks": ("summary", "inception_v3", "--depth=1", "--sort=params", "--top=5"),
    "compare": ("compare", "resnet18", "resnet50", "--device=V100_SXM2_16GB", "--totals"),
}


@pytest.mark.parametrize("width", [80, 100, 160])
@pytest.mark.parametrize("name", SCREENS)
def test_first_screens_are_as_they_were(name: str, width: int) -> None:
    text = call(*SCREENS[name], width=width)
    assert text == (GOLDEN / f"{name}_{width}.txt").read_text("utf-8")


#: Names of layers of every length, and what makes tables wide.
WIDE = [
    *SCREENS.values(),
    *(
        command
        for net in ("inception_v3", "gpt2", "lenet5", "bert_base")
        for command in (
            ("summary", net),
            ("summary", net, "--device=K40"),
            ("memory", net, "--device=K40"),
            ("compare", net, "--device=K40,T4"),
            ("simulate", net, "--scaling=weak,strong", "--device=K40,T4", "--num_workers=1,64"),
            ("metrics", net, "--device=K40,T4,V100_SXM2_16GB", "--num_workers=1,64"),
        )
    ),
]


@pytest.mark.alike
@pytest.mark.parametrize(
    "width", [100, *(pytest.param(width, marks=pytest.mark.slow) for width in (60, 80))]
)
@pytest.mark.parametrize("command", WIDE, ids=lambda words: "-".join(words)[:40])
def test_no_line_is_wider_than_the_terminal(command: tuple[str, ...], width: int) -> None:
    lines = call(*command, width=width).splitlines()
    assert [line for line in lines if columns_of(line) > width] == []


@functools.cache
def of_pipe(*command: str) -> str:
    return call(*command)


@pytest.mark.parametrize("name", SCREENS)
def test_a_pipe_is_as_wide_as_100_columns(name: str) -> None:
    assert of_pipe(*SCREENS[name]) == call(*SCREENS[name], width=100)


if __name__ == "__main__":
    for screen, columns in itertools.product(SCREENS, (80, 100, 160)):
        (GOLDEN / f"{screen}_{columns}.txt").write_text(
            call(*SCREENS[screen], width=columns), "utf-8"
        )


@pytest.mark.parametrize(
    ("net", "settings", "said"),
    [
        ("gpt2", {"dtype": "fp32"}, "; a smaller type, such as --dtype=mixed_fp16, may help."),
        ("gpt2", {"dtype": "bf16"}, "; --recompute=full may help."),
        ("gpt2", {"dtype": "bf16", "recompute": "full"}, " is the largest that does."),
        ("vgg16", {"dtype": "bf16"}, " is the largest that does."),
    ],
)
def test_what_does_not_fit_is_told_what_takes_less(
    net: str, settings: dict[str, Any], said: str
) -> None:
    found = paleo.simulate(net, device="A100", batch_size=10_000, workers=1, **settings)
    (text, *_) = simulation_answer(found)
    assert text.endswith(f"{said} If it did fit:")
