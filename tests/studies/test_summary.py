"""The times that a summary gives on a device, beside its counts."""

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
from paleo.core.operations import total_work
from paleo.views.table import to_cells
from paleo.views.tables.summary import summary_table

#: A product with bias and a ReLU: 2 samples of 3 features, 4 outputs.
SMALL = {
    "data": {"type": "Input", "parents": [], "tensor": [2, 3]},
    "fc": {"type": "InnerProduct", "parents": ["data"], "num_outputs": 4},
    "relu": {"type": "Activation", "parents": ["fc"], "function": "relu"},
}


def call(*arguments: str, status: int = 0) -> click.testing.Result:
    result = click.testing.CliRunner().invoke(cli, arguments, prog_name="paleo")
    assert result.exit_code == status, result.output
    return result


def test_each_layer_has_the_seconds_of_its_passes_on_a_device(net: Any) -> None:
    # roofline, K40: 288e9 bytes/s. The ReLU's 2 x 4 outputs have 32 bytes: read and written
    # forward; what is kept and the gradient are read, a gradient written backward. At half of
    # the peak, twice the time.
    found = paleo.summarize(net(SMALL), device="K40", cost_model="roofline", ppp_comp=0.5)
    data, _, relu = found.layers
    assert relu.forward == pytest.approx(2 * 2 * 32 / 288e9)
    assert relu.backward == pytest.approx(2 * 3 * 32 / 288e9)
    assert (data.forward, data.backward) == (0, 0)
    on = found.timed_on
    assert on is not None
    assert (on.plan.device.name, on.plan.cost_model.name) == ("K40", "roofline")
    assert (on.plan.ppp_comp, on.plan.use_pipeline) == (0.5, False)


@pytest.mark.parametrize("name", ["alex_v2_2gpu", "dcgan_discriminator", "lstm_lm"])
@pytest.mark.parametrize("cost_model", paleo.COST_MODELS)
def test_the_totals_are_those_of_the_passes_of_a_worker(name: str, cost_model: str) -> None:
    found = paleo.summarize(name, 8, device="K80", cost_model=cost_model, use_pipeline=True)
    (run,) = paleo.simulate(
        name,
        device="K80",
        batch_size=8,
        workers=1,
        scaling="weak",
        cost_model=cost_model,
        use_pipeline=True,
        loss="none",  # a summary has none
    ).runs
    (row,) = run.rows
    assert (found.forward, found.backward) == (row["forward"], row["backward"])


def test_without_a_device_there_are_no_times() -> None:
    plain = paleo.summarize("nin")
    assert (plain.forward, plain.backward, plain.timed_on) == (None, None, None)
    assert all(layer.forward is layer.backward is None for layer in plain.layers)
    times = {"forward_s", "backward_s", "device", "cost_model", "not_timed"}
    assert not times & {*plain.to_dict(), *plain.layers[0].to_dict()}
    timed = paleo.summarize("nin", device="K40")
    assert times <= {*timed.to_dict()}
    assert {"forward_s", "backward_s"} <= {*timed.layers[0].to_dict()}
    assert (
        timed.to_dict().items()
        >= {key: value for key, value in plain.to_dict().items() if key != "layers"}.items()
    )


#: Three equal layers, of which the last has the parameters of the first.
ALIKE = {
    "data": {"type": "Input", "parents": [], "tensor": [2, 4]},
    "a": {"type": "InnerProduct", "parents": ["data"], "num_outputs": 4},
    "b": {"type": "InnerProduct", "parents": ["a"], "num_outputs": 4},
    "c": {"type": "InnerProduct", "parents": ["b"], "num_outputs": 4, "shares": "a"},
}


def test_equal_layers_differ_in_what_is_their_own(net: Any) -> None:
    found = paleo.summarize(net(ALIKE), device="K40", cost_model="roofline")
    _, a, b, c = found.layers
    assert [each.parents for each in (a, b, c)] == [("data",), ("a",), ("b",)]
    assert [each.num_params for each in (a, b, c)] == [20, 20, 0]
    assert [each.weights_bytes for each in (a, b, c)] == [80, 80, 0]
    assert a.forward_flops == b.forward_flops == c.forward_flops == 2 * 2 * 4 * 4
    assert b.forward_time is c.forward_time
    assert a.backward_time != b.backward_time  # nobody needs the gradient of the data


def test_what_a_device_does_for_equal_layers_is_summed_up_once(
    net: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = paleo.summarize(net(ALIKE), device="K40", cost_model="roofline")
    sums = []

    def counted(operations: Any) -> Any:
        sums.append(operations)
        return total_work(operations)

    monkeypatch.setattr("paleo.studies.summary.total_work", counted)
    work = {(each.layer, each.pass_name): each.flops for each in found.reached}
    assert [work[name, "forward"] for name in "abc"] == [64, 64, 64]
    assert [work[name, "backward"] for name in "abc"] == [64, 128, 128]
    assert len(sums) == 2 + 3  # the data and one product forward; and two products backward


def test_the_total_is_bound_by_what_all_layers_take_most_of(net: Any) -> None:
    found = paleo.summarize(net(SMALL), device="K40")
    total, said = summary_table(found).total, found.to_dict()
    assert total is not None
    assert said["forward_bound"] in ("compute", "memory", "overhead")
    for name in ("forward", "backward"):
        assert total[f"{name}_bound"] == said[f"{name}_bound"]
        whole = getattr(found, f"{name}_time")
        parts = [getattr(layer, f"{name}_time").memory for layer in found.layers]
        assert whole.memory == pytest.approx(sum(parts), rel=1e-15)


def test_a_summary_takes_an_array_of_batches() -> None:
    found = paleo.summarize("nin", np.array([1, 4]), device="K40")
    for i, batch in enumerate((1, 4)):
        alone = paleo.summarize("nin", batch, device="K40")
        assert np.asarray(found.forward)[i] == pytest.approx(alone.forward)
        assert np.asarray(found.backward)[i] == pytest.approx(alone.backward)


def test_the_shapes_are_the_net_s_whatever_the_cost_model_sees(net: Any) -> None:
    # A Sigmoid has one output a sample in the net format; roofline prices all its elements.
    layers = {**SMALL, "sigmoid": {"type": "Sigmoid", "parents": ["relu"]}}
    found = paleo.summarize(net(layers), device="K40", cost_model="roofline")
    assert found.layers[-1].output == (2, 1)
    assert found.layers[-1].forward == found.layers[-2].forward


def test_notes_say_what_has_no_time() -> None:
    assert paleo.summarize("nin").notes == ()
    gemm = "convolutions are priced as matrix multiplication (GEMM)"
    notes = paleo.summarize("nin", device="K40", cost_model="paleo2017").notes
    assert notes == (gemm, "not counted by paleo2017: bias, relu, softmax")
    notes = paleo.summarize("nin", device="K40", cost_model="roofline", use_pipeline=True).notes
    assert notes == (gemm, "roofline overlaps by itself: use_pipeline has no effect")
    assert paleo.summarize("nin", device="K40").notes == ()


def test_what_is_wrong_is_said_together() -> None:
    with pytest.raises(paleo.PaleoError) as caught:
        paleo.summarize("nim", device="K41", cost_model="roof", ppp_comp=2.5)
    said = [str(mistake) for mistake in caught.value.mistakes]
    starts = ("unknown net 'nim'", "unknown device 'K41'", "unknown cost model 'roof'", "ppp_comp")
    assert len(said) == 4
    assert all(line.startswith(start) for line, start in zip(said, starts, strict=True))
    lines = call(
        "summary", "nim", "--device=K41", "--cost_model=roof", "--ppp_comp=2.5", status=1
    ).stderr
    assert [line.removeprefix("paleo: ") for line in lines.splitlines()] == said


def test_many_layers_are_counted_with_separators() -> None:
    title = summary_table(paleo.summarize("gpt2_xl"), only_shown=True).title
    assert title.endswith(", 1,305 layers")


def test_the_table_has_times_only_with_a_device() -> None:
    plain = call("summary", "nin")
    assert "(ms)" not in plain.stdout
    assert plain.stderr == ""
    setting = ("--device=K40", "--cost_model=paleo2017", "--ppp_comp=0.5")
    timed = call("summary", "nin", *setting, "--quiet", "--wide").stdout.splitlines()
    assert timed[0] == "nin, batch 128, fp32, 19 layers, on K40, cost model paleo2017, ppp_comp 0.5"
    (heads,) = (line for line in timed if line.startswith("layer "))
    assert heads.split()[-8:] == ["(ms)", "bound", "(ms)", "bound", "(ms)", "(%)", "bound", "by"]
    untimed = call("summary", "nin", "--quiet").stdout.splitlines()
    for old, new in zip(untimed[2:-1], timed[2:], strict=False):
        assert new.startswith(old.rstrip())
    assert timed[-1] == "note: not counted by paleo2017: bias, relu, softmax"


def test_programs_get_times_in_seconds() -> None:
    arguments = ("summary", "nin", "--device_name=K40", "--cost_model=roofline")
    (values,) = json.loads(call(*arguments, "--format=json").stdout)["nets"]
    rows = list(csv.DictReader(io.StringIO(call(*arguments, "--format=csv").stdout)))
    for key in ("forward_s", "backward_s"):
        seconds = [layer[key] for layer in values["layers"]]
        assert values[key] == pytest.approx(sum(seconds))
        assert [float(row[key]) for row in rows] == seconds
    assert (values["device"], values["cost_model"], values["ppp_comp"]) == ("K40", "roofline", 1)
    assert {row["device"] for row in rows} == {"K40"}


def test_options_that_only_a_device_gives_something_to_do_are_said() -> None:
    result = call("summary", "nin", "--cost_model=roofline", "--ppp_comp=0.5")
    assert result.stdout == call("summary", "nin").stdout
    assert result.stderr.splitlines() == [
        "paleo: note: --cost_model is for --device, it has no effect here",
        "paleo: note: --ppp_comp is for --device, it has no effect here",
    ]


def test_verbose_says_which_figures_of_the_device_count() -> None:
    said = call("summary", "nin", "--device=K40", "--cost_model=roofline", "--verbose").stderr
    assert "K40: memory bandwidth 2.88e+11 bytes/s, the data sheet's" in said
    assert "device" not in call("summary", "nin", "--verbose").stderr


@pytest.mark.parametrize("device", [None, "K40"])
def test_a_table_of_what_is_shown_shows_the_same(device: str | None) -> None:
    found = paleo.summarize("googlenet", 4, device=device)
    table, whole = summary_table(found, only_shown=True), summary_table(found)
    assert to_cells(table) == to_cells(whole)
    assert "parents" in whole.rows[0]
    assert "parents" not in table.rows[0]
