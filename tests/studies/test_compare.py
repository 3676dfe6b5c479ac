"""Nets, and settings, against the first: figures, factors, and how far a change reaches."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import click.testing
import pytest
from nets_of_tests import make_net

import paleo
from paleo.cli import cli, options
from paleo.step.memory import footprint
from paleo.studies.compare.comparison import MAX_VARIANTS, Comparison, Figures, compare
from paleo.views.table import FORMATS

DATA = {"type": "Input", "parents": [], "tensor": [2, 8, 8, 3]}
POOL = {"type": "Pooling", "ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}


def conv(parent: str, size: int, channels: int, filters: int) -> dict[str, Any]:
    return {
        "type": "Convolution",
        "parents": [parent],
        "filter": [size, size, channels, filters],
        "strides": [1, 1, 1, 1],
        "padding": "SAME",
    }


def small(filters: int = 4, **more: Any) -> paleo.NetSpec:
    """A convolution, a pooling and a product: 2 images of 8 x 8 x 3, 10 outputs."""
    layers = {
        "data": DATA,
        "conv": conv("data", 3, 3, filters),
        "pool": {**POOL, "parents": ["conv"]},
        "fc": {"type": "InnerProduct", "parents": ["pool"], "num_outputs": 10},
    }
    return make_net(layers | more, f"small{filters}")


def call(*arguments: str, status: int = 0) -> click.testing.Result:
    result = click.testing.CliRunner().invoke(cli, ["compare", *arguments], prog_name="paleo")
    assert result.exit_code == status, result.output
    return result


def as_json(*arguments: str) -> Any:
    return json.loads(call(*arguments, "--format=json").stdout)


def rows_of(*arguments: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(call(*arguments, "--format=csv").stdout)))


def refused(*arguments: str) -> list[str]:
    result = call(*arguments, status=1)
    assert result.stdout == ""
    return [line.removeprefix("paleo: ") for line in result.stderr.splitlines()]


def only(found: Comparison) -> Any:
    (difference,) = found.differences
    return difference


def test_every_layer_and_the_total_have_figures_and_factors() -> None:
    found = compare([small(4), small(8)], optimizer="adam")
    difference = only(found)
    layers = {layer.name: layer for layer in difference.layers}
    # conv: 3 x 3 x 3 x 8 weights and 8 biases; 2 x 8 x 8 x 8 outputs of 4 bytes; a multiply-add
    # for each weight at each of 2 x 8 x 8 places.
    new, old = layers["conv"].other.figures, layers["conv"].reference.figures
    assert (new.num_params, old.num_params) == (27 * 8 + 8, 27 * 4 + 4)
    assert (new.output_bytes, old.output_bytes) == (4 * 2 * 64 * 8, 4 * 2 * 64 * 4)
    assert (new.forward_flops, old.forward_flops) == (2 * 128 * 27 * 8, 2 * 128 * 27 * 4)
    # fc: 4 x 4 x 8 inputs instead of 4 x 4 x 4, and as many outputs as before.
    assert layers["fc"].factors() == {
        "output_factor": 1,
        "params_factor": (128 * 10 + 10) / (64 * 10 + 10),
        "forward_flops_factor": 2,
        "time_factor": pytest.approx(layers["fc"].other.figures.time / times(small(4))["fc"]),
        "memory_factor": pytest.approx(memory(small(8))["fc"] / memory(small(4))["fc"]),
    }
    assert set(layers["data"].factors().values()) == {1}
    # 192, 64 x filters, 16 x filters and 10 outputs of each of 2 samples.
    assert difference.other.total.output_bytes == 4 * 2 * (192 + 64 * 8 + 16 * 8 + 10)
    assert difference.factors()["output_factor"] == (192 + 512 + 128 + 10) / (192 + 256 + 64 + 10)
    assert difference.factors()["params_factor"] == (224 + 1290) / (112 + 650)
    assert difference.other.total.memory_bytes == footprint(small(8), 2, optimizer="adam").peak


def times(net: paleo.NetSpec) -> dict[str, Any]:
    """Return the seconds of each layer, both passes, by the pieces that estimates are made of."""
    graph = paleo.build(net)
    there, back = (
        estimate(graph, "TITAN_X").layers
        for estimate in (paleo.estimate_forward, paleo.estimate_backward)
    )
    return {a.node.name: a.seconds + b.seconds for a, b in zip(there, back, strict=True)}


def memory(net: paleo.NetSpec) -> dict[str, Any]:
    return {layer.name: layer.total for layer in footprint(net, optimizer="adam").layers}


def test_the_time_of_a_layer_is_both_passes_and_of_the_net_the_update_too() -> None:
    difference = only(compare([small(4), small(8)]))
    expected = times(small(8))
    for layer in difference.layers:
        assert layer.other.figures.time == pytest.approx(expected[layer.name])
    update = paleo.estimate_update(1514, "TITAN_X")
    assert difference.other.total.update == update
    assert difference.other.total.time == pytest.approx(sum(expected.values()) + update)
    (row,) = paleo.simulate(small(8), batch_size=2, workers=1, scaling="weak").runs[0].rows
    assert difference.other.total.time == row.compute


def test_one_net_is_compared_with_itself_under_other_settings() -> None:
    layers = {"relu": {"type": "Activation", "parents": ["fc"], "function": "relu"}}
    found = compare(
        small(4, **layers), device=["K40", "K80"], cost_model="roofline", ppp_comp=[1, 0.5]
    )
    reference, *others = [
        (variant.settings.plan.device.name, variant.settings.plan.ppp_comp)
        for variant in (found.reference, *(each.other for each in found.differences))
    ]
    assert reference == ("K40", 1)
    assert others == [("K40", 0.5), ("K80", 1), ("K80", 0.5)]
    # roofline: a ReLU takes what memory takes, at 288 GB/s or 480 GB/s, at half of it twice that.
    factors = [each.layers[-1].factors() for each in found.differences]
    assert [each["time_factor"] for each in factors] == pytest.approx([2, 0.6, 1.2])
    for difference in found.differences:
        assert difference.change.reach == "none"
        same = [value for key, value in difference.factors().items() if key != "time_factor"]
        assert set(same) == {1}


def test_nets_times_settings_are_compared_with_the_first_of_all() -> None:
    found = compare([small(4), small(8)], batch_size=[2, 6], optimizer=["sgd", "adam"])
    variants = [found.reference, *(each.other for each in found.differences)]
    assert [(v.net, v.settings.batch_size, v.settings.optimizer) for v in variants] == [
        (net, batch, optimizer)
        for net in ("small4", "small8")
        for batch in (2, 6)
        for optimizer in ("sgd", "adam")
    ]
    # Three times the batch has three times the outputs and FLOPs, and the parameters it had.
    factors = found.differences[1].factors()
    assert (factors["output_factor"], factors["forward_flops_factor"]) == (3, 3)
    assert factors["params_factor"] == 1
    # Adam has two tensors of the parameters' size more: 650 in fc.
    sgd, adam = (v.layers[-1].figures.memory_bytes for v in variants[:2])
    assert adam - sgd == 2 * 4 * 650


def test_the_batch_is_the_first_net_s_own_for_all() -> None:
    larger = small(4).with_batch(5)
    found = compare([small(4), larger])
    assert only(found).other.settings.batch_size == found.reference.settings.batch_size == 2
    assert compare([larger, small(4)]).reference.settings.batch_size == 5
    assert only(found).change.reach == "none"


def test_a_factor_is_one_of_nothing_and_nothing_and_none_of_something_and_nothing() -> None:
    nothing = Figures(0, 0, 0, 0.0, 0.0, 0)
    something = Figures(8, 2, 4, 1.0, 2.0, 6, update=3.0)
    assert set(nothing.factors(nothing).values()) == {1}
    assert set(something.factors(nothing).values()) == {None}
    assert set(nothing.factors(something).values()) == {0}
    twice = Figures(16, 3, 4, 6.0, 3.0, 3, update=3.0)
    assert list(twice.factors(something).values()) == [2, 1.5, 1, 2, 0.5]


def test_layers_of_one_net_alone_stand_where_they_are_and_have_no_factor() -> None:
    old = small(4, relu={"type": "Activation", "parents": ["fc"], "function": "relu"})
    new = make_net(
        {
            "data": DATA,
            "before": conv("data", 1, 3, 3),
            "conv": conv("before", 3, 3, 4),
            "fc": {"type": "InnerProduct", "parents": ["conv"], "num_outputs": 10},
            "relu": {"type": "Activation", "parents": ["fc"], "function": "relu"},
        }
    )
    difference = only(compare([old, new]))
    assert [(layer.name, layer.change) for layer in difference.layers] == [
        ("data", ""),
        ("before", "added"),
        ("conv", ""),
        ("pool", "removed"),
        ("fc", "follows"),
        ("relu", ""),
    ]
    before, pool = difference.layers[1], difference.layers[3]
    assert (before.reference, pool.other) == (None, None)
    assert set(before.factors().values()) == set(pool.factors().values()) == {None}
    assert before.to_dict()["params"] == 3 * 3 + 3
    assert before.to_dict()["reference_params"] is before.to_dict()["params_factor"] is None
    assert (pool.to_dict()["output"], pool.to_dict()["reference_output"]) == (None, [2, 4, 4, 4])
    assert (difference.change.added, difference.change.removed) == (("before",), ("pool",))
    assert [layer.change for layer in only(compare([new, old])).layers if layer.change] == [
        "removed",
        "added",
        "follows",
    ]


def test_nets_that_have_little_in_common_are_no_change_of_one() -> None:
    found = as_json("alexnet", "resnet18")["comparisons"][0]
    assert (found["reach"], found["common"]) == (None, 1)
    assert "other nets: less than half" in call("alexnet", "resnet18").stdout


def test_nets_with_nothing_in_common_are_refused() -> None:
    # All have data, and most a softmax: that is nothing to compare layer by layer.
    line = (
        "lstm_lm and alexnet have no layer in common (of one name, with parameters); "
        "--totals compares their totals alone"
    )
    assert refused("alexnet", "lstm_lm") == [line]
    assert len(refused("alexnet", "lstm_lm", "inception_v3", "--device=K40,K80")) == 2
    with pytest.raises(paleo.PaleoError) as caught:
        compare(["alexnet", "lstm_lm"])
    assert str(caught.value) == line


def test_totals_are_compared_of_any_nets() -> None:
    found = compare(["alexnet", "lstm_lm"], totals=True)
    assert only(found).layers == ()
    alexnet, lstm = (paleo.summarize(name, 256) for name in ("alexnet", "lstm_lm"))
    assert only(found).factors()["params_factor"] == lstm.num_params / alexnet.num_params
    text = call("alexnet", "lstm_lm", "--totals", "--quiet").stdout
    assert text.startswith("totals: ")
    assert [line.split()[0] for line in text.splitlines()[4:7]] == ["-" * 7, "alexnet", "lstm_lm"]
    rows = rows_of("alexnet", "lstm_lm", "--totals")
    assert [row["net"] for row in rows] == ["alexnet", "lstm_lm"]
    assert [float(row["params_factor"]) for row in rows] == [
        1,
        lstm.num_params / alexnet.num_params,
    ]
    assert as_json("alexnet", "lstm_lm", "--totals")["comparisons"][0]["layers"] == []


def test_edits_are_of_all_nets_but_the_first() -> None:
    edited = ("--set=conv8.filter[3]=1536", "--remove=pool3")
    alone, twice = as_json("nin_227", *edited), as_json("nin_227", "nin_227", *edited)
    assert alone == twice
    assert alone["reference"]["net"] == "nin_227"
    (found,) = alone["comparisons"]
    assert found["net"] == "nin_227 conv8.filter[3]=1536, without pool3"
    assert (found["edited"], found["removed"]) == (["conv8"], ["pool3"])
    three = as_json("nin_227", "nin", "nin_227", "--scale_input=2", "--totals")["comparisons"]
    assert [each["net"] for each in three] == ["nin input x2", "nin_227 input x2"]


def test_a_series_is_compared_with_the_net_itself() -> None:
    found = as_json("nin_227", "--vary=scale_input=1,2", "--totals")
    one, two = found["comparisons"]
    assert {value for key, value in one["total"].items() if key.endswith("_factor")} == {1}
    # Dissertation, table 4.8: 4.3 times the computation, as many parameters.
    assert two["total"]["forward_flops_factor"] == pytest.approx(4.3, abs=0.05)
    assert two["total"]["params_factor"] == 1


def test_the_json_has_both_sides_and_the_factors() -> None:
    model = "--cost_model=paleo2017"
    found = as_json("nin", "--batch_size=2,3", "--device=K40", "--ppp_comp=0.5", model)
    assert found["reference"]["settings"] == {
        "device": "K40",
        "batch_size": 2,
        "cost_model": "paleo2017",
        "ppp_comp": 0.5,
        "optimizer": "sgd",
        "optimizer_kernels": None,
        "loss": "cross_entropy",
        "recompute": "none",
        "use_pipeline": False,
        "dtype": "fp32",
        "fuse": False,
        "framework": None,
        "compile": False,
        "graphs": False,
        "memory_format": "contiguous",
        "attention": None,
        "conv_library": None,
        "workspace_limit_bytes": None,
        "use_only_gemm": False,
        "network": "ethernet",
        "cluster": None,
        "ppp_comm": 1.0,
        "workers": 1,
        "scheme": None,
        "overlap": False,
        "bucket_bytes": None,
        "accumulate": 1,
        "gradient_dtype": "fp32",
        "compress": None,
        "num_servers": None,
        "jitter": 0.0,
        "nccl": None,
    }
    (comparison,) = found["comparisons"]
    assert comparison["settings"] == found["reference"]["settings"] | {"batch_size": 3}
    assert (comparison["reach"], comparison["edited"], comparison["changed"]) == ("none", [], [])
    keys = {"output_bytes", "params", "forward_flops", "forward_s", "backward_s", "time_s"}
    keys |= {"memory_bytes"}
    for values in (*comparison["layers"], comparison["total"]):
        assert {*keys, *(f"reference_{key}" for key in keys)} <= {*values}
        for key in ("output", "params", "forward_flops", "time", "memory"):
            assert f"{key}_factor" in values
    for key in keys | {"update_s"}:
        assert comparison["total"][f"reference_{key}"] == found["reference"]["total"][key]
    conv1 = comparison["layers"][1]
    assert (conv1["name"], conv1["output"], conv1["output_factor"]) == (
        "conv1",
        [3, 54, 54, 96],
        1.5,
    )
    assert conv1["reference_output"] == [2, 54, 54, 96]


@pytest.mark.parametrize("more", [[], ["--totals"]])
def test_separated_values_are_those_of_the_json(more: list[str]) -> None:
    arguments = ("nin_227", "--remove=pool3", "--device=K40,K80", *more)
    found = as_json(*arguments)
    rows = rows_of(*arguments)
    if more:
        expected = [each["total"] for each in (found["reference"], *found["comparisons"])]
    else:
        expected = [layer for each in found["comparisons"] for layer in each["layers"]]
        sources = [each for each in found["comparisons"] for _ in each["layers"]]
        for row, of in zip(rows, sources, strict=True):
            assert (row["net"], row["device"]) == (of["net"], of["settings"]["device"])
            assert (row["reference_net"], row["reference_device"]) == ("nin_227", "K40")
            assert row["reach"] == of["reach"]
    for row, values in zip(rows, expected, strict=True):
        for key, value in values.items():
            if key.endswith(("_low", "_high")):  # ends of bands are in JSON alone
                continue
            shown = "x".join(map(str, value)) if isinstance(value, list) else value
            assert row[key] == ("" if shown is None else str(shown))


def test_the_table_has_a_factor_beside_each_figure_and_says_what_changed() -> None:
    edits = ("--remove=pool3", "--set=conv8.filter[3]=1536")
    model = ("--cost_model=paleo2017", "--quiet", "--wide")
    lines = call("nin_227", *edits, *model).stdout.splitlines()
    assert lines[0] == (
        "nin_227 conv8.filter[3]=1536, without pool3 against nin_227: TITAN_X, batch 1024, "
        "fp32, cost model paleo2017, ppp_comp 1, sgd"
    )
    assert lines[3].split()[:2] == ["layer", "change"]
    rows = {line.split()[0]: line.split() for line in lines[5:25] if line}
    assert rows["pool3"] == ["pool3", "removed"]
    # 27 x 27 instead of 13 x 13, and 4 times the filters: 17.26; as many parameters as 4 times.
    assert rows["conv8"][1:3] == ["edited", "27x27x1536"]
    assert (rows["conv8"][4], rows["conv8"][6]) == ("17.3x", "4.00x")
    assert rows["conv1"][3::2] == ["1x"] * 5
    assert "a global change: the last layers too see another height and width" in lines
    assert "edited: conv8" in lines
    assert "removed: pool3" in lines
    (dimensions,) = (line for line in lines if line.startswith("other dimensions: "))
    assert dimensions.endswith("conv8, conv9, pool9, conv10, conv11, conv12")
    total = lines.index("totals: TITAN_X, batch 1024, fp32, cost model paleo2017, ppp_comp 1, sgd")
    assert lines[total + 5].startswith("nin_227  ")
    assert lines[total + 6].startswith("nin_227 conv8")


def test_a_table_of_settings_names_those_that_differ() -> None:
    model = ("--cost_model=paleo2017", "--quiet", "--wide")
    text = call("nin", "--device=K40,K80", "--optimizer=adam", *model).stdout
    title = "nin, K80 against nin, K40: batch 128, fp32, cost model paleo2017, ppp_comp 1, adam\n"
    assert text.startswith(title)
    assert "the nets are the same" in text
    assert "change" not in text.splitlines()[3]
    pipelined = call("nin", "--batch_size=1,2", "--use_pipeline", *model).stdout.splitlines()[0]
    assert pipelined == (
        "nin, batch 2 against nin, batch 1: TITAN_X, fp32, cost model paleo2017, ppp_comp 1, sgd, "
        "pipelined"
    )


def test_layers_that_are_the_same_may_be_left_out() -> None:
    edit = ("nin_227", "--set=conv8.filter[3]=1536", "--changed")
    for names in (
        [layer["name"] for layer in as_json(*edit)["comparisons"][0]["layers"]],
        [row["name"] for row in rows_of(*edit)],
    ):
        assert names == ["conv8", "conv9"]
    assert "\nconv1 " not in call(*edit).stdout
    assert as_json("nin", "nin", "--changed")["comparisons"][0]["layers"] == []
    assert "total " in call("nin", "nin", "--changed").stdout


def test_notes_say_what_the_cost_models_leave_out() -> None:
    models = ("nin", "--cost_model=paleo2017,roofline", "--use_pipeline")
    notes = [
        "convolutions are priced as matrix multiplication (GEMM)",
        "not counted by paleo2017: bias, relu, softmax",
        "roofline overlaps by itself: use_pipeline has no effect",
    ]
    found = as_json(*models)
    assert found["reference"]["notes"] == notes[:2]
    assert found["comparisons"][0]["notes"] == [notes[0], notes[2]]
    for more in ([], ["--totals"]):
        lines = call(*models, *more).stdout.splitlines()
        assert [line for line in lines if line.startswith("note: ")] == [
            f"note: {n}" for n in notes
        ]
        assert call(*models, *more, "--format=csv").stderr.splitlines() == [
            f"paleo: note: {note}" for note in notes
        ]


def test_every_format_is_printed() -> None:
    arguments = ("nin_227", "--remove=pool3", "--changed")
    texts = {name: call(*arguments, f"--format={name}").stdout for name in FORMATS}
    assert len(set(texts.values())) == len(FORMATS)
    assert call(*arguments).stdout == texts["table"]
    assert texts["tsv"].replace("\t", ",") == texts["csv"]
    assert "| removed |" in texts["markdown"]


def test_a_narrow_terminal_folds_the_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "terminal_width", lambda: 60)
    lines = call("nin_227", "--set=conv8.filter[3]=1536").stdout.splitlines()
    assert max(map(len, lines)) <= 60
    assert sum(line.startswith("layer ") for line in lines) > 1


#: Options, and the lines that they are refused with.
MISTAKES = [
    ("--device=K40,K41", ["unknown device 'K41' (did you mean 'K40'?); `paleo devices` lists"]),
    ("--device=,K40", ["unknown device ''"]),
    ("--device=", ["device: expected one or more, got none"]),
    ("--batch_size=0,2", ["batch_size: expected a whole number of 1 or more, got 0"]),
    ("--batch_size=2,1.5", ["batch_size: expected a whole number of 1 or more, got 1.5"]),
    ("--batch_size=many,2", ['batch_size: expected a whole number of 1 or more, got "many"']),
    (f"--batch_size=1,{10**30}", ['nin.json: layer "data": 1.51e+35 elements in its output are']),
    ("--cost_model=paleo2017,rofline", ["unknown cost model 'rofline' (did you mean 'roofline'?)"]),
    ("--ppp_comp=1,0", ["ppp_comp: expected a number above 0, up to 1, got 0"]),
    ("--ppp_comp=1,nan", ['ppp_comp: expected a number above 0, up to 1, got "nan"']),
    ("--optimizer=sgd,adem", ["unknown optimizer 'adem' (did you mean 'adam'?)"]),
    (
        "--optimizer=sgd",
        ["nets: expected two or more, or one with edits or under several settings"],
    ),
    ("--set=conv99.filter[3]=2", ['nin.json: layer "conv99": there is no such layer']),
    (
        "--batch_size=" + ",".join(map(str, range(1, MAX_VARIANTS + 2))),
        [f"nets: {MAX_VARIANTS + 1} of them, times settings, are too many to compare"],
    ),
]


@pytest.mark.parametrize(("option", "starts"), MISTAKES, ids=[each[:40] for each, _ in MISTAKES])
def test_what_is_wrong_is_one_line(option: str, starts: list[str]) -> None:
    lines = refused("nin.json", option)
    assert len(lines) == len(starts)
    assert all(line.startswith(start) for line, start in zip(lines, starts, strict=True))


def test_all_that_is_wrong_is_said_together() -> None:
    lines = refused("nim", "nin", "nin2", "--device=K41,K42", "--batch_size=0", "--ppp_comp=7")
    starts = ["unknown net 'nim'", "unknown net 'nin2'", "unknown device 'K41'"]
    starts += ["unknown device 'K42'", "batch_size: ", "ppp_comp: "]
    assert len(lines) == len(starts)
    assert all(line.startswith(start) for line, start in zip(lines, starts, strict=True))


def test_programs_are_told_what_is_wrong_with_settings_too() -> None:
    import numpy as np

    wrong: Any
    for wrong in ({"device": []}, {"batch_size": 3.5}, {"ppp_comp": [None]}, {"optimizer": 3}):
        with pytest.raises(paleo.PaleoError):
            compare(["nin", "nin"], **wrong)
    wrong = [np.array([1, 2]), 3]
    with pytest.raises(paleo.PaleoError, match="batch_size: expected one number, got"):
        compare("nin", batch_size=wrong)
    arrays: dict[str, Any] = {"batch_size": np.array([1, 2]), "ppp_comp": np.array([0.5])}
    found = compare("nin", **arrays)
    assert [only(found).other.settings.batch_size] == [2]
    json.dumps(found.to_dict(), allow_nan=False)


def test_a_device_of_ones_own_may_be_in_the_list(tmp_path: Path) -> None:
    source = Path(paleo.__file__).parent / "cluster" / "devices" / "K40.toml"
    own = tmp_path / "own.toml"
    own.write_text(source.read_text("utf-8").replace("K40", "MINE"), "utf-8")
    found = as_json("nin", f"--device=K40,{own}")["comparisons"][0]
    assert found["settings"]["device"] == "MINE"
    assert found["total"]["time_factor"] == 1


def test_verbose_says_what_is_read_and_used() -> None:
    said = call("nin", "--device=K40,K80", "--verbose").stderr
    for expected in ("nin.json", "K40: memory bandwidth 2.88e+11", "K80: memory bandwidth 4.8e+11"):
        assert said.count(expected) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"scheme": "hierarchical"},
        {"accumulate": 4},
        {"gradient_dtype": "fp16"},
        {"compress": "topk:0.01"},
        {"num_servers": 2},
        {"jitter": 0.1},
        {"nccl": "2.18"},
        {"ppp_comm": 0.5},
        {"overlap": False, "bucket": "100MiB"},
    ],
)
def test_settings_of_exchanges_count_as_in_a_simulation(change: dict[str, Any]) -> None:
    how: dict[str, Any] = {"cluster": "dgx1_v100", "workers": 16, "batch_size": 32}
    found = paleo.compare("alex_v2", dtype=["fp32", "mixed_fp16"], **how, **change)
    asked = {name: value for name, value in change.items() if name != "scheme"}
    asked |= {"schemes": change["scheme"]} if "scheme" in change else {}
    plain = paleo.simulate("alex_v2", **how).runs[0].rows[0]
    step = paleo.simulate("alex_v2", **how, **asked).runs[0].rows[0]
    total = found.reference.total
    assert total.time == pytest.approx(step.total(step.best_scheme))
    assert total.communication == pytest.approx(step.exposed_communication(step.best_scheme))
    assert total.wait == pytest.approx(step.waiting)
    if "nccl" not in change:  # whose versions may choose the same
        assert total.time != pytest.approx(plain.total("auto"), rel=1e-6)
    low, _ = found.reference.time_ends
    band = found.reference.settings.plan.band
    assert band is not None
    expected = band.low * (total.compute + total.wait) + total.communication
    assert low == pytest.approx(expected)


def test_ways_to_send_gradients_may_be_several() -> None:
    given = ["--cluster=dgx1_v100", "--num_workers=16", "--totals"]
    found = as_json(
        "alex_v2", *given, "--scheme=auto", "--accumulate=1,2", "--compress=onebit,topk:0.5"
    )
    sides = [found["reference"], *found["comparisons"]]
    assert [(each["settings"]["accumulate"], each["settings"]["compress"]) for each in sides] == [
        (1, "onebit"), (1, "topk:0.5"), (2, "onebit"), (2, "topk:0.5"),
    ]  # fmt: skip
    text = call("alex_v2", *given, "--gradient_dtype=fp32,fp16", "--jitter=0.1").stdout
    assert "alex_v2, gradients in fp16" in text
    assert "and waits for the slowest worker" in " ".join(text.split())
    text = call("alex_v2", *given, "--accumulate=1,2").stdout
    assert "A step of alex_v2, 2 batches a step takes" in " ".join(text.split())
    assert "alex_v2, ," not in text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--scheme=ring,ring2"], "paleo: unknown communication scheme 'ring2'"),
        (["--accumulate=1,0"], "paleo: accumulate: expected a whole number from 1"),
        (["--compress=zip"], "paleo: compress: expected onebit or topk:SHARE"),
        (["--jitter=2"], "paleo: jitter: expected a number from 0 to 1"),
        (["--num_servers=2", "--scheme=ring"], "paleo: num_servers: is for the scheme"),
    ],
)
def test_exchanges_that_cannot_be_are_one_line(options: list[str], said: str) -> None:
    result = call("alex_v2", "--dtype=fp32,fp64", *options, status=1)
    (line,) = result.stderr.splitlines()
    assert line.startswith(said)


def test_workers_exchange_gradients_and_bands_are_of_computation_alone() -> None:
    how: dict[str, Any] = {"device": "T4", "workers": 8, "overlap": False}
    found = paleo.compare("resnet18", network=["ethernet", "ethernet25"], **how)
    (difference,) = found.differences
    slow, quick = found.reference.total, difference.other.total
    step = paleo.simulate("resnet18", batch_size=256, **how).runs[0].rows[0]
    assert slow.communication == pytest.approx(step.communication["auto"])
    assert slow.compute == pytest.approx(step.compute)
    assert slow.time == pytest.approx(slow.compute + slow.communication)
    # Of the data sheets, 10 and 25 Gbit/s; latencies do not count much.
    assert slow.communication / quick.communication == pytest.approx(2.5, rel=0.02)
    band = found.reference.settings.plan.band
    assert band is not None
    low, _ = found.reference.time_ends
    assert low == pytest.approx(band.low * slow.compute + slow.communication)
