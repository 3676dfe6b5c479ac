"""Why a layer takes what it takes: `paleo summary --explain`, bounds, and parts of times."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import click.testing
import numpy as np
import pytest

import paleo
from paleo.cli import cli
from paleo.core.operations import Fused, Kind, MatMul, Stream, Update
from paleo.costs import COST_MODELS, Target, Time
from paleo.studies.explain import find_layers
from paleo.views.table import in_unit, to_text

#: 1 TFLOP/s and 100 GB/s: ten FLOPs a byte.
ROUND = paleo.Device.from_rates("round", clock=1e9, peak=1e12, memory_bandwidth=1e11)
#: 128 samples of 1,000 features, 1,000 outputs, a ReLU.
LAYERS = {
    "data": {"type": "Input", "parents": [], "tensor": [128, 1000]},
    "fc": {"type": "InnerProduct", "parents": ["data"], "num_outputs": 1000, "use_bias": False},
    "block/relu": {"type": "Activation", "parents": ["fc"], "function": "relu"},
    "block/flat": {"type": "Flatten", "parents": ["block/relu"]},
}
V100 = ("--device=V100_SXM2_16GB", "--cost_model=tiled")


def call(*arguments: str, status: int = 0) -> click.testing.Result:
    result = click.testing.CliRunner().invoke(cli, arguments, prog_name="paleo")
    assert result.exit_code == status, result.output
    return result


def explained(net: paleo.NetSpec, *names: str, **settings: Any) -> tuple[Any, ...]:
    asked: dict[str, Any] = {"device": ROUND, "cost_model": "roofline"} | settings
    return paleo.summarize(net, explain=names, **asked).explained


# Parts and bounds


def test_a_time_is_bound_by_its_longest_part() -> None:
    assert Time(3.0, 2.0, 1.0, 4.0).bound == "compute"
    assert Time(1.0, 2.0, 1.0, 4.0).bound == "memory"
    assert Time(1.0, 2.0, 3.0, 6.0).bound == "overhead"
    assert Time().bound == ""
    many = Time(
        np.array([3.0, 1.0, 0.0]), np.array([2.0, 2.0, 0.0]), 0.0, np.array([3.0, 2.0, 0.0])
    )
    assert many.bound.tolist() == ["compute", "memory", ""]


def test_the_parts_of_a_pass_by_hand(net: Any) -> None:
    # fc: 2 * 128 * 1000 * 1000 = 256 MFLOP, 0.256 ms; 4 * (128,000 + 1,000,000 + 128,000) bytes,
    # 0.05024 ms. The ReLU: 1.024 MB, 0.01024 ms.
    spec = net(LAYERS)
    found = paleo.summarize(spec, device=ROUND, cost_model="roofline")
    _, fc, relu, flat = (layer.to_dict() for layer in found.layers)
    parts = ("forward_compute_s", "forward_memory_s", "forward_overhead_s")
    assert [fc[key] for key in parts] == pytest.approx([0.256e-3, 0.05024e-3, 0])
    assert [relu[key] for key in parts] == pytest.approx([0, 0.01024e-3, 0])
    assert (fc["forward_bound"], relu["forward_bound"], flat["forward_bound"]) == (
        "compute",
        "memory",
        "",
    )
    values = found.to_dict()
    assert [values[key] for key in parts] == pytest.approx([0.256e-3, 0.06048e-3, 0])
    assert (values["forward_bound"], values["backward_bound"]) == ("compute", "compute")
    # Backward: the weights' gradient, of as many FLOPs and bytes; nobody needs that of the data.
    assert fc["backward_compute_s"] == pytest.approx(0.256e-3)
    assert relu["backward_memory_s"] == pytest.approx(1.5 * 0.01024e-3)


@pytest.mark.parametrize("model", COST_MODELS)
def test_the_parts_of_a_summary_and_a_simulation_agree(model: str) -> None:
    summary = paleo.summarize("alex_v2", 8, device="K80", cost_model=model)
    for workers in ([1], list(range(1, 600))):  # one by one, and as arrays
        (run,) = paleo.simulate(
            "alex_v2", device="K80", batch_size=8, workers=workers, scaling="weak", cost_model=model
        ).runs
        row = run.rows[0]
        values, expected = row.to_dict(), summary.to_dict()
        for of in ("forward", "backward"):
            for part in ("compute", "memory", "overhead"):
                assert values[f"{of}_{part}_s"] == pytest.approx(expected[f"{of}_{part}_s"])
        update = COST_MODELS[model].price(
            Update(summary.num_params, 4), Target(paleo.find_device("K80"))
        )
        assert values["update_memory_s"] == update.memory


def test_the_table_says_what_bounds_each_layer() -> None:
    lines = call("summary", "lenet5", *V100).stdout.splitlines()
    rows = {line.split()[0]: line.split() for line in lines[4:] if line}
    assert rows["conv1"][-1] in ("compute", "memory", "overhead")
    assert rows["ip2"][-1] == "overhead"
    assert rows["data"][-2:] == ["0.00", "0.0"]  # an input takes nothing, and is bound by nothing
    assert rows["total"][-1] == "100.0"
    columns = "--columns=forward_s,forward_bound,backward,backward_bound"
    lines = call("summary", "lenet5", *V100, columns, "--quiet").stdout.splitlines()
    assert lines[3].split() == ["layer", "(us)", "bound", "(us)", "bound"]
    rows = {line.split()[0]: line.split() for line in lines[4:] if line}
    assert rows["ip2"][2] == rows["ip2"][4] == "overhead"
    assert rows["data"] == ["data", "0.00", "0.00"]
    assert rows["total"][-1] in ("compute", "memory", "overhead")


# Explanations


@pytest.mark.parametrize("model", COST_MODELS)
def test_every_cost_model_explains_what_it_prices(model: str) -> None:
    target = Target(paleo.find_device("V100_SXM2_16GB"))
    product = MatMul(512, 512, 512, 4)
    for operation in (
        product,
        Stream(Kind.FUNCTION, (1_000_000,), (1_000_000,)),
        Fused(product, (Stream(Kind.BIAS, (), ()), Stream(Kind.ELEMENTWISE, (1_000_000,), ()))),
        Update(1000, 4),
    ):
        found = COST_MODELS[model].explain(operation, target)
        assert found.time == COST_MODELS[model].price(operation, target)
        assert found.bound == found.time.bound
        assert found.algorithm
    fused = COST_MODELS[model].explain(Fused(product, (Stream(Kind.BIAS, (), ()),)), target)
    assert fused.details[-1] == ("in its kernel", "bias", "")
    assert fused.algorithm == COST_MODELS[model].explain(product, target).algorithm


def test_the_operations_of_a_layer_add_up_to_its_time() -> None:
    for fuse in (False, True):
        found = paleo.summarize(
            "resnet18", 8, device="K80", cost_model="tiled", fuse=fuse, explain="*"
        )
        assert len(found.explained) == len(found.layers)
        for layer, explained in zip(found.layers, found.explained, strict=True):
            assert layer.name == explained.name
            assert layer.forward is not None
            assert layer.backward is not None
            assert explained.total == pytest.approx(layer.forward + layer.backward)
            directions = [each.direction.value for each in explained.operations]
            assert directions == sorted(
                directions, key=["forward", "input_gradient", "weight_gradient"].index
            )


def test_an_explanation_in_json_has_si_units(net: Any) -> None:
    (found,) = explained(net(LAYERS), "fc")
    values = found.to_dict()
    assert (values["name"], values["type"], values["runs_in"]) == ("fc", "InnerProduct", {})
    forward, gradient = values["operations"]
    assert [forward["pass"], gradient["pass"]] == ["forward", "weight_gradient"]
    assert (forward["operation"], forward["bound"], forward["counted"]) == (
        "matmul",
        "compute",
        True,
    )
    assert forward["total_s"] == forward["compute_s"] == pytest.approx(0.256e-3)
    assert (forward["flops"], forward["bytes_read"], forward["bytes_written"]) == (
        256_000_000,
        4 * 1_128_000,
        4 * 128_000,
    )
    json.dumps(values, allow_nan=False)


def test_what_runs_in_another_kernel_says_in_which(net: Any) -> None:
    fc, relu, flat = explained(net(LAYERS), "fc", "block", fuse=True)
    assert relu.runs_in == (("forward", "fc"),)
    assert [each.direction.value for each in relu.operations] == ["input_gradient"]
    assert (flat.operations, flat.runs_in) == ((), ())
    assert fc.operations[0].operation.name == "matmul + relu"


def test_what_a_model_leaves_out_is_not_counted(net: Any) -> None:
    (relu,) = explained(net(LAYERS), "block/relu", cost_model="paleo2017")
    assert [each.is_counted for each in relu.operations] == [False, False]
    assert relu.total == 0
    on = ("--device=K40", "--cost_model=paleo2017", "--explain=conv1")
    text = call("summary", "alex_v2", *on).stdout
    assert "note: not counted by paleo2017: bias, relu\n" in text


# Names


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (["fc"], ["fc"]),
        (["block/relu", "data"], ["data", "block/relu"]),
        (["block"], ["block/relu", "block/flat"]),
        (["*/*"], ["block/relu", "block/flat"]),
        (["f?", "fc"], ["fc"]),
        ([], []),
    ],
)
def test_layers_are_named_or_meant_by_a_pattern_or_a_block(
    net: Any, patterns: list[str], expected: list[str]
) -> None:
    assert find_layers(net(LAYERS), patterns) == expected


def test_the_name_of_a_split_layer_means_its_slices() -> None:
    spec = paleo.load("alex_v2_2gpu")
    assert find_layers(spec, ["parallel_fc67/fc6"]) == [
        "parallel_fc67/fc6@0",
        "parallel_fc67/fc6@1",
    ]
    assert find_layers(spec, ["parallel_fc67/fc6@1"]) == ["parallel_fc67/fc6@1"]


def test_an_unknown_layer_is_one_line_with_a_near_name() -> None:
    result = call("summary", "alex_v2", *V100, "--explain=cnv1", "--explain=zz*", status=1)
    assert result.stderr.splitlines() == [
        "paleo: alex_v2: layer \"cnv1\": there is no such layer to explain (did you mean 'conv1'?)",
        'paleo: alex_v2: layer "zz*": there is no such layer to explain',
    ]
    assert result.stdout == ""
    near = call("summary", "googlenet", *V100, "--explain=3x3", status=1).stderr
    assert "(did you mean 'inception_3a/3x3'?)" in near


def test_explaining_needs_a_device() -> None:
    result = call("summary", "alex_v2", "--explain=conv1", status=2)
    assert "--explain needs --device" in result.stderr
    with pytest.raises(paleo.SettingError, match="explain: it needs a device"):
        paleo.summarize("alex_v2", explain="conv1")
    with pytest.raises(paleo.SettingError, match="one batch size"):
        paleo.summarize("alex_v2", np.array([1, 2]), device="K40", explain="conv1")


# Output


def test_the_table_has_a_row_for_each_operation_and_the_reasons_below() -> None:
    lines = call(
        "summary", "alex_v2", *V100, "--dtype=fp16", "--explain=conv1", "--quiet"
    ).stdout.splitlines()
    assert lines[0] == (
        "conv1 (Convolution) of alex_v2, batch 128, fp16, on V100_SXM2_16GB, cost model tiled, "
        "ppp_comp 1"
    )
    rows = [line for line in lines if line.startswith(("forward: ", "weight gradient: "))]
    names = [row.split("  ")[0] for row in rows]
    assert names[:6] == [
        *(f"forward: {name}" for name in ("convolution", "bias", "relu")),
        *(f"weight gradient: {name}" for name in ("convolution", "relu", "bias")),
    ]
    assert any(line.startswith("total") for line in lines)
    assert any("(us)" in line or "(ms)" in line for line in lines)


def test_the_json_has_the_summary_and_the_explanations() -> None:
    arguments = ("summary", "alex_v2", "vgg11", *V100, "--explain=*1", "--format=json")
    for values in json.loads(call(*arguments).stdout)["nets"]:
        assert values["layers"]
        assert {"forward_s", "dtype", "device"} <= values.keys()
        assert all("1" in layer["name"] for layer in values["explained"])
    plain = json.loads(call("summary", "alex_v2", *V100, "--format=json").stdout)["nets"]
    assert "explained" not in plain[0]


def test_separated_values_have_a_row_for_each_operation() -> None:
    arguments = ("summary", "alex_v2", *V100, "--explain=conv1", "--explain=fc8")
    rows = list(csv.DictReader(io.StringIO(call(*arguments, "--format=csv").stdout)))
    (values,) = json.loads(call(*arguments, "--format=json").stdout)["nets"]
    operations = [
        (layer["name"], each) for layer in values["explained"] for each in layer["operations"]
    ]
    assert len(rows) == len(operations) > 6
    for row, (name, each) in zip(rows, operations, strict=True):
        assert (row["layer"], row["pass"], row["operation"]) == (
            name,
            each["pass"],
            each["operation"],
        )
        for key in ("compute_s", "memory_s", "overhead_s", "total_s"):
            assert float(row[key]) == each[key]


def test_a_table_fits_a_narrow_terminal() -> None:
    from paleo.views.tables.summary import explanation_table

    summary = paleo.summarize(
        "alex_v2", device="V100_SXM2_16GB", cost_model="tiled", explain=["conv1"], fuse=True
    )
    (layer,) = summary.explained
    text = to_text([explanation_table(summary, layer)], 60)
    assert max(map(len, text.splitlines())) <= 60
    assert text.count("forward: ") >= 3


def test_numbers_of_details_are_shown_in_a_unit_that_suits_them() -> None:
    assert in_unit(3 * 2**20, "bytes") == "3 MiB"
    assert in_unit(2.5e-6, "s") == "2.5 us"
    assert in_unit(9e11, "bytes/s") == "900 GB/s"
    assert in_unit(128, "") == "128"
    assert in_unit(12_345, "") == "12,345"
    assert in_unit(0.87654, "") == "0.8765"
    assert in_unit(4, "elements") == "4 elements"


def test_what_a_layer_waits_for_the_host_is_part_of_its_time() -> None:
    how: Any = {"device": "A100_SXM_80GB", "cost_model": "tiled", "framework": "pytorch"}
    names = ["conv1", "res2a_branch2b", "fc1000"]
    summary = paleo.summarize("resnet50", 1, explain=names, **how)
    times: dict[str, Any] = {}
    for each in summary.layers:
        assert each.forward is not None
        assert each.backward is not None
        times[each.name] = each.forward + each.backward
    for layer in summary.explained:
        alone = sum(float(each.explanation.time.total) for each in layer.operations)
        # So small a batch waits for the host in every layer but where a longer one gave it a lead.
        assert float(layer.waits) > 0
        assert float(layer.total) == pytest.approx(alone + float(layer.waits))
        assert float(layer.total) == pytest.approx(times[layer.name])
    (free,) = paleo.summarize(
        "resnet50", 1, explain=["conv1"], **how | {"framework": None}
    ).explained
    assert free.waits == 0
