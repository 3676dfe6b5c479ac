"""`paleo.simulate` and its rows, from Python."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from model_configurations import DIFFERENT

import paleo
from paleo.step.parallelism import data
from paleo.step.results import Simulation
from paleo.views.tables.simulation import simulation_tables


def rows(**settings: Any) -> tuple[Any, ...]:
    of_2017 = {"scaling": "weak", "cost_model": "paleo2017"}
    return paleo.simulate("alex_v2", **{**of_2017, **settings}).runs[0].rows


def test_one_of_anything_may_be_given_without_a_list() -> None:
    single = paleo.simulate("nin", workers=4, scaling="weak", schemes="TreeAllReduce")
    listed = paleo.simulate(["nin"], workers=[4], scaling=["weak"], schemes=["TreeAllReduce"])
    assert single == listed
    (row,) = single.runs[0].rows
    assert list(row.communication) == ["TreeAllReduce"]


def test_speedup_is_throughput_over_that_of_one_worker() -> None:
    one, eight = rows(workers=[1, 8], batch_size=32)
    assert one.whole_step("OneToAll").speedup == pytest.approx(1)
    step = eight.compute + eight.communication["TreeAllReduce"]
    assert eight.total("TreeAllReduce") == step
    assert eight.whole_step("TreeAllReduce").throughput == pytest.approx(8 * 32 / step)
    assert eight.whole_step("TreeAllReduce").speedup == pytest.approx(8 * one.compute / step)
    assert eight.whole_step("TreeAllReduce").efficiency == pytest.approx(one.compute / step)


def test_speedups_relate_to_one_worker_even_if_it_is_not_asked_for() -> None:
    for scaling in ("weak", "strong"):
        _, among = rows(workers=[1, 8], scaling=scaling)
        (alone,) = rows(workers=[8], scaling=scaling)
        assert alone == among


def test_strong_scaling_relates_to_one_worker_with_the_whole_batch() -> None:
    one, four = rows(workers=[1, 4], batch_size=64, scaling="strong")
    assert one.batch_size == four.batch_size == 64
    assert four.compute < one.compute
    expected = one.compute / (four.compute + four.communication["OneToAll"])
    assert four.whole_step("OneToAll").speedup == pytest.approx(expected)


def test_the_best_scheme_is_the_quickest_that_gives_all_workers_the_sum() -> None:
    (row,) = rows(workers=[16])
    assert min(row.communication, key=lambda name: row.communication[name]) == "ButterflyMixing"
    assert row.best_scheme == "ButterflyAllReduce"
    (row,) = rows(workers=[16], schemes=["OneToAll", "TreeAllReduce"])
    assert row.best_scheme == "TreeAllReduce"
    (row,) = rows(workers=[16], schemes=["ButterflyMixing"])
    assert row.best_scheme == "ButterflyMixing"


def test_large_cases_are_evaluated_as_arrays_with_the_same_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings: Any = {"workers": [1, 3, 200], "batch_size": 100, "use_pipeline": True}
    # The function hides the module of its name from `import ... as`.
    module = importlib.import_module("paleo.studies.simulate")
    monkeypatch.setattr(module, "_WORTH_ARRAYS", 10**9)
    one_by_one = paleo.simulate("inception_v3", **settings)
    for where, threshold in ((module, "_WORTH_ARRAYS"), (data, "_MANY_WORKERS")):
        monkeypatch.setattr(where, threshold, 0)
        assert paleo.simulate("inception_v3", **settings) == one_by_one


def values(answer: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yield what an answer in JSON consists of, each with where it stands."""
    if isinstance(answer, dict | list):
        parts = answer.items() if isinstance(answer, dict) else enumerate(answer)
        for name, part in parts:
            yield from values(part, f"{key}.{name}")
    else:
        yield key, answer


@pytest.mark.parametrize(
    "settings",
    [
        {"cluster": "dgx_a100"},
        {"cluster": "dgx_a100", "jitter": 0.05, "compress": "topk", "accumulate": 2},
        {"cluster": "dgx1_v100", "schemes": "all", "cost_model": "roofline"},
        {"device": "K40", "network": "infiniband", "cost_model": "paleo2017"},
    ],
)
@pytest.mark.parametrize("scaling", ["weak", "strong"])
def test_rows_that_are_evaluated_at_once_are_as_one_by_one(
    settings: dict[str, Any], scaling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer() -> Any:
        asked = {"workers": (*range(1, 9), 24), "scaling": scaling, **settings}
        (run,) = paleo.simulate("alex_v2", **asked).runs
        ends = [end.to_dict() for row in run.rows for end in row.ends if end]
        return [run.to_dict(), run.only(run.best_scheme).to_dict()["rows"], ends]

    monkeypatch.setattr(data, "_MANY_WORKERS", 10**9)
    alone = dict(values(answer()))
    monkeypatch.setattr(data, "_MANY_WORKERS", 0)
    at_once = dict(values(answer()))
    assert list(at_once) == list(alone)
    of_2017 = settings.get("cost_model") == "paleo2017"
    for key, value in alone.items():
        assert type(at_once[key]) is type(value), key
        close = isinstance(value, float) and not of_2017
        assert at_once[key] == (pytest.approx(value, rel=1e-12) if close else value), key


def test_of_workers_who_share_a_batch_no_size_is_priced_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    priced: list[int] = []
    passes = paleo.Plan.passes

    def noted(plan: paleo.Plan, graph: Any, *others: Any) -> Any:
        priced.extend(np.ravel(graph.batch_size).tolist())
        return passes(plan, graph, *others)

    monkeypatch.setattr(paleo.Plan, "passes", noted)
    how: Any = {"device": "A100_SXM_40GB", "network": "ethernet25", "scaling": "strong"}
    (run,) = paleo.simulate("nin", batch_size=48, workers=range(1, 65), **how).runs
    assert [end is not None for row in run.rows for end in row.ends] == [True, True] * 64
    # ceil(48 / workers): every size of which there are some workers.
    assert sorted(priced) == sorted({-(-48 // workers) for workers in range(1, 65)})


def test_all_mistakes_are_raised_together() -> None:
    with pytest.raises(paleo.PaleoError) as caught:
        paleo.simulate(
            ["alexnett", "nin"],
            device=3,  # type: ignore[arg-type]
            network="ethernett",
            batch_size=0,
            workers=[],
            scaling="wide",
            schemes=["Ring"],
            ppp_comp=2,
        )
    said = [mistake.message for mistake in caught.value.mistakes]
    starts = [
        "unknown net 'alexnett'",
        "device: expected a name or a file, got 3",
        "unknown network 'ethernett' (did you mean 'ethernet'?)",
        "batch_size: expected a whole number of 1 or more, got 0",
        "ppp_comp: expected a number above 0, up to 1, got 2",
        "num_workers: expected one or more, got none",
        "scaling: expected weak or strong, got 'wide'",
        "unknown communication scheme 'Ring'",
    ]
    assert len(said) == len(starts)
    for message, start in zip(said, starts, strict=True):
        assert message.startswith(start)


def test_a_net_that_one_cost_model_cannot_take_is_said_once(net: Any) -> None:
    # The 2017 format gives a Sigmoid one output; newer models keep its sixteen.
    spec = net(
        {
            "in": {"type": "Input", "parents": [], "tensor": [2, 16]},
            "sigmoid": {"type": "Sigmoid", "parents": ["in"]},
            "one": {"type": "Reshape", "parents": ["sigmoid"], "output_shape": [-1, 1]},
        }
    )
    assert len(paleo.simulate(spec, cost_model="paleo2017").runs) == 1
    with pytest.raises(paleo.PaleoError, match="128x16 cannot become") as caught:
        paleo.simulate(spec, cost_model="roofline")
    assert len(caught.value.mistakes) == 1


def test_hardware_files_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "link.toml"
    path.write_bytes(b"\xef\xbb\xbf[figures]\nbandwidth = '25 Gbit/s'\n")
    assert paleo.find_network(path).bandwidth == 25e9 / 8


def test_split_deconvolutions_are_checked_as_unsplit_ones(net: Any) -> None:
    layer = {
        "type": "Deconvolution", "parents": [], "filter": [1, 1, 5, 16],
        "strides": [1, 1, 1, 1], "padding": "SAME", "output_shape": [1, 4, 4, 4],
    }  # fmt: skip
    data = {"type": "Input", "parents": [], "tensor": [2, 4, 4, 16]}
    split = {"type": "ModelParallel", "parents": ["in"], "splits": 2, "layers": {"up": layer}}
    with pytest.raises(paleo.NetSpecError, match="the filter gives 5 channels, output_shape 4"):
        net({"in": data, "split": split})
    layer["filter"] = [1, 1, 4, 16]
    assert paleo.build(net({"in": data, "split": split})).nodes[-1].output == (2, 4, 4, 2)


@pytest.mark.parametrize(
    ("filters", "groups", "message"),
    [
        ([3, 3, 8, 16], 3, "8 channels and 16 filters do not divide into 3 groups"),
        ([3, 3, 8, 12], 8, "8 channels and 12 filters do not divide into 8 groups"),
        ([3, 3, 8, 16], 4, "the filter takes 8 channels, the input has 8 in 4 groups"),
    ],
)
def test_groups_have_to_fit(net: Any, filters: list[int], groups: int, message: str) -> None:
    layer = {
        "type": "Convolution", "parents": ["in"], "filter": filters, "groups": groups,
        "strides": [1, 1, 1, 1], "padding": "SAME",
    }  # fmt: skip
    data = {"type": "Input", "parents": [], "tensor": [2, 4, 4, 8]}
    with pytest.raises(paleo.NetSpecError, match=message):
        net({"in": data, "conv": layer})


def test_a_convolution_in_groups_is_not_split(net: Any) -> None:
    layer = {
        "type": "Convolution", "parents": [], "filter": [3, 3, 4, 16], "groups": 2,
        "strides": [1, 1, 1, 1], "padding": "SAME",
    }  # fmt: skip
    data = {"type": "Input", "parents": [], "tensor": [2, 4, 4, 8]}
    split = {"type": "ModelParallel", "parents": ["in"], "splits": 2, "layers": {"c": layer}}
    with pytest.raises(paleo.NetSpecError, match="in groups cannot be split"):
        net({"in": data, "split": split})


def test_numpy_numbers_are_taken_and_arrays_sent_elsewhere() -> None:
    plain = paleo.simulate("nin", workers=[1, 4], batch_size=64)
    settings: Any = {"workers": np.array([1, 4]), "batch_size": np.int64(64)}
    given = paleo.simulate("nin", **settings)
    assert given == plain
    assert json.loads(json.dumps(given.to_dict())) == plain.to_dict()
    assert paleo.simulate("nin", workers=np.int64(4)) == paleo.simulate("nin", workers=4)  # type: ignore[arg-type]
    with pytest.raises(paleo.PaleoError) as caught:
        paleo.simulate("nin", batch_size=[0, 2], ppp_comp=np.array([0.5]))
    assert [mistake.message.split(",")[0] for mistake in caught.value.mistakes] == [
        "batch_size: expected a whole number of 1 or more",
        "ppp_comp: expected one number",
    ]
    # An array of batch sizes is as good as a list of them.
    settings = {"batch_size": np.array([1, 2]), "workers": 4}
    assert paleo.simulate("nin", **settings) == paleo.simulate("nin", batch_size=[1, 2], workers=4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"nets": 3}, "nets: expected one or several, got 3"),
        ({"nets": []}, "nets: expected one or more, got none"),
        ({"workers": None}, "num_workers: expected one or several, got null"),
        ({"workers": 4.0}, "num_workers: expected a whole number from 1 to 2147483647, got 4.0"),
        ({"workers": ["2"]}, 'num_workers: expected a whole number from 1 to 2147483647, got "2"'),
        ({"scaling": None}, "scaling: expected one or several, got null"),
        ({"schemes": []}, "schemes: expected one or more, got none"),
        ({"batch_size": 2**50, "workers": [2**30]}, "batch_size: with so many workers, too large"),
    ],
)
def test_settings_of_the_wrong_kind_are_one_line(settings: Any, message: str) -> None:
    with pytest.raises(paleo.PaleoError) as caught:
        paleo.simulate(**{"nets": "nin", **settings})
    assert [mistake.message[: len(message)] for mistake in caught.value.mistakes] == [message]


@pytest.mark.slow
@pytest.mark.alike
def test_a_worker_alone_has_a_speedup_of_exactly_one() -> None:
    for name in DIFFERENT:
        for run in paleo.simulate(name, workers=1, schemes="TreeAllReduce", ppp_comp=0.37).runs:
            assert run.rows[0].to_dict()["speedup"] == {"TreeAllReduce": 1.0}


def test_a_hybrid_step_is_both_parts_and_relates_to_one_worker() -> None:
    run = paleo.simulate("alex_v2_4gpu", parallel="hybrid", hybrid_workers=4, batch_size=32).runs[0]
    parts: Any = run.rows
    assert run.step is not None
    assert run.step.seconds == pytest.approx(sum(part.total() for part in parts))
    assert run.step.throughput == pytest.approx(4 * 32 / run.step.seconds)
    alone: Any = paleo.simulate("alex_v2_4gpu", workers=1, batch_size=32).runs[0].rows[0]
    assert run.step.speedup == pytest.approx(4 * alone.compute / run.step.seconds)
    assert run.step.efficiency == pytest.approx(run.step.speedup / 4)
    assert run.to_dict()["step_s"] == run.step.seconds


def test_pipelining_without_effect_is_said() -> None:
    said = "roofline overlaps by itself: use_pipeline has no effect"
    for model, expected in (("roofline", True), ("paleo2017", False)):
        run = paleo.simulate("nin", cost_model=model, use_pipeline=True).runs[0]
        assert (said in run.notes) == expected


@pytest.mark.parametrize(
    ("padding", "stride"),
    [([2**30, 2**30], 2**31 - 1), ([2**29, 2**29], 2**30), ([2**30, 2**30], 1)],
)
def test_paddings_that_would_overflow_are_refused(net: Any, padding: Any, stride: int) -> None:
    layer = {
        "type": "Convolution", "parents": ["in"], "filter": [3, 3, 3, 1], "padding": padding,
        "strides": [1, stride, stride, 1],
    }  # fmt: skip
    with pytest.raises(paleo.NetSpecError, match="too many to mean anything"):
        net({"in": {"type": "Input", "tensor": [128, 8, 8, 3]}, "conv": layer})


def test_the_pieces_check_what_they_are_given() -> None:
    communicate, update = paleo.estimate_communication, paleo.estimate_update
    for workers in (0, -3, 1.5, np.array([1, 0])):
        with pytest.raises(paleo.SettingError, match="workers"):
            communicate(1, workers, "aws")
    for count in (-1, float("nan")):
        with pytest.raises(paleo.SettingError, match="num_bytes"):
            communicate(count, 2, "aws")
        with pytest.raises(paleo.SettingError, match="num_params"):
            update(count, "K40")
    parts: list[Any] = ["K40", paleo.find_network("aws"), paleo.find_cost_model("roofline")]
    with pytest.raises(paleo.SettingError, match="device: expected a Device, such as"):
        paleo.Plan(*parts)
    parts[0] = paleo.find_device("K40")
    for share in (0, 5, float("nan")):
        with pytest.raises(paleo.SettingError, match="ppp_comm"):
            paleo.Plan(parts[0], parts[1], parts[2], ppp_comm=share)


@pytest.mark.parametrize("parallel", ["data", "hybrid"])
def test_a_step_without_any_work_has_no_throughput(net: Any, parallel: str) -> None:
    empty = net({"data": {"type": "Input", "parents": [], "tensor": [2, 8, 8, 3]}})
    result = paleo.simulate(empty, cost_model="roofline", parallel=parallel)
    with pytest.raises(paleo.SettingError) as caught:
        result.to_dict()
    assert str(caught.value) == (
        f"{empty.name}: no layer takes any time; add one that computes, such as a Convolution"
    )
    # In 2017 the update takes its clocks.
    assert paleo.simulate(empty, cost_model="paleo2017").to_dict()


def test_the_memory_of_a_step_is_that_of_all_its_settings() -> None:
    how: Any = {"dtype": "mixed_bf16", "optimizer": "adamw", "recompute": "full", "loss": "fused"}
    (run,) = paleo.simulate("gpt2", device="A100", batch_size=8, workers=1, **how).runs
    capacity = float(paleo.find_device("A100").memory_capacity or 0)
    assert run.worth.largest_batch == paleo.largest_batch("gpt2", capacity, **how)
    found = run.footprint(run.rows[0])
    assert found is not None
    assert found == paleo.footprint("gpt2", 8, **how)
    assert found.optimizer_state == 8 * 124_439_808  # two means in fp32
    (text,) = simulation_tables(Simulation((run,)))
    assert any(line.endswith("samples in training with adamw") for line in text.footnotes)


@pytest.mark.parametrize(
    ("settings", "kernels"),
    [
        ({"device": "A100", "framework": "pytorch"}, "foreach"),  # its default on GPUs
        ({"device": "A100", "framework": "pytorch", "optimizer_kernels": "forloop"}, "forloop"),
        ({"device": "A100", "framework": "pytorch1"}, None),  # tensor by tensor
        ({"device": "A100"}, None),
        ({"device": "EPYC_7763", "framework": "pytorch"}, None),
    ],
)
def test_pytorch_updates_many_tensors_at_once_on_gpus(
    settings: dict[str, Any], kernels: str | None
) -> None:
    (run,) = paleo.simulate("lenet5", workers=1, optimizer="adam", **settings).runs
    wanted = paleo.footprint("lenet5", 128, optimizer="adam", optimizer_kernels=kernels)
    assert run.footprint(run.rows[0]) == wanted
