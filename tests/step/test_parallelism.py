"""Data, model and hybrid parallelism, against steps put together by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from model_configurations import IN_TURN
from nets_of_tests import predefined

import paleo
from paleo.costs import COST_MODELS
from paleo.step.parallelism.fetch import fetches_of

K20, PCIE2 = paleo.find_device("K20"), paleo.find_network("pcie2")
GIB_PER_GB = 2**30 / 1e9


def plan(model: str = "paleo2017", **settings: Any) -> paleo.Plan:
    return paleo.Plan(K20, PCIE2, COST_MODELS[model], **settings)


def test_collectives_by_hand() -> None:
    """One transfer of a gigabyte takes 0.125 s at 64 Gbit/s; workers 1, 2, 5, 8."""
    expected = {
        "OneToAll": [0, 2, 8, 14],
        "TreeAllReduce": [0, 2, 6, 6],
        "ButterflyAllReduce": [0, 1, 3, 3],
        "ButterflyMixing": [1, 1, 1, 1],
    }
    for scheme, transfers in expected.items():
        for workers, count in zip((1, 2, 5, 8), transfers, strict=True):
            seconds = paleo.estimate_communication(
                10**9, workers, "pcie2", scheme=scheme, cost_model="paleo2017"
            )
            assert seconds == pytest.approx(count * 0.125), (scheme, workers)


def test_alone_a_worker_sends_nothing_except_when_mixing_in_2017() -> None:
    for scheme, collective in paleo.COLLECTIVES.items():
        if not collective.can_exchange(paleo.find_cluster("dgx_a100").tiers):
            continue
        for workers in (1, np.array([1])):
            newer, old = (
                paleo.estimate_communication(
                    10**9, workers, "pcie2", scheme=scheme, cost_model=model
                )
                for model in ("roofline", "paleo2017")
            )
            assert newer == 0
            assert (old > 0) == (scheme == "ButterflyMixing")


def test_weak_scaling_gives_each_worker_the_batch() -> None:
    alone, many = (
        paleo.data_parallel(paleo.load("nin"), plan(), 32, workers, "weak") for workers in (1, 6)
    )
    assert many.batch_size == 192
    assert many.pieces == alone.pieces


def test_strong_scaling_divides_the_batch_rounding_up() -> None:
    shared = paleo.data_parallel(paleo.load("nin"), plan(), 100, 6, "strong")
    alone = paleo.data_parallel(paleo.load("nin"), plan(), 17, 1, "strong")  # ceil(100 / 6)
    assert shared.batch_size == 100
    assert shared.compute == alone.compute


def test_more_workers_than_samples_have_one_sample_each() -> None:
    crowd = paleo.data_parallel(paleo.load("nin"), plan(), 4, 100, "strong")
    alone = paleo.data_parallel(paleo.load("nin"), plan(), 1, 1, "strong")
    assert crowd.compute == alone.compute


def test_a_step_is_computation_then_communication() -> None:
    step = paleo.data_parallel(paleo.load("nin"), plan(), 32, 4)
    assert step.compute == step["forward"] + step["backward"] + step["update"]
    assert step.total("OneToAll") == step.compute + step.communication["OneToAll"]


def split_net(net: Any, splits: int) -> paleo.NetSpec:
    """Return 4 x 100 elements into `splits` slices of 64 outputs, gathered, and summed up."""
    spec: paleo.NetSpec = net(
        {
            "in": {"type": "Input", "parents": [], "tensor": [4, 100]},
            "split": {
                "type": "ModelParallel",
                "parents": ["in"],
                "splits": splits,
                "layers": {
                    "fc": {"type": "InnerProduct", "parents": [], "num_outputs": 64},
                    "all": {"type": "Concatenate", "parents": ["fc@all"]},
                    "next": {"type": "InnerProduct", "parents": ["all@self"], "num_outputs": 64},
                },
            },
            "gather": {"type": "Concatenate", "parents": ["split/next@all"]},
        }
    )
    return spec


def test_an_inner_product_is_divided_by_splits(net: Any) -> None:
    summary = paleo.summarize(split_net(net, 4))
    by_name = {layer.name: layer for layer in summary.layers}
    assert by_name["split/fc@3"].output == (4, 16)
    assert by_name["split/fc@3"].num_params == 100 * 16 + 16
    assert by_name["split/all@0"].output == (4, 64)
    assert by_name["gather"].output == (4, 64)


def transfers(model: str, splits: int, layer: str, net: Any) -> list[Any]:
    """Return the bytes over the bandwidth, in units of one slice at full bandwidth."""
    graph = paleo.build(split_net(net, splits))
    found = fetches_of(graph, plan(model), 1e6)
    node = next(node for node in graph.nodes if node.name == layer)
    slice_bytes = 4 * 4 * (64 // splits)
    unit = slice_bytes / (1e6 * (GIB_PER_GB if model == "paleo2017" else 1))
    return (
        [sum(fetch.time.total for fetch in found[node.index]) / unit] if node.index in found else []
    )


def test_slices_fetch_what_other_devices_hold(net: Any) -> None:
    # A slice's own part is local; three others are fetched.
    assert transfers("paleo2017", 4, "split/all@1", net) == [pytest.approx(3)]
    # An unsplit layer has no slice: it fetches all four; newer models put it on device 0.
    assert transfers("paleo2017", 4, "gather", net) == [pytest.approx(4)]
    assert transfers("roofline", 4, "gather", net) == [pytest.approx(3)]
    assert transfers("roofline", 4, "split/next@2", net) == []


def test_bandwidth_halves_between_groups_of_four_and_stays_halved_in_2017(net: Any) -> None:
    # Slice 5 fetches 0 to 3 at b/2, b/4, b/8, b/16, and 4, 6, 7 at b/16.
    expected = 2 + 4 + 8 + 16 + 3 * 16
    assert transfers("paleo2017", 8, "split/all@5", net) == [pytest.approx(expected)]
    # Newer models halve it for that transfer: 4 at b/2 and 3 at b.
    assert transfers("roofline", 8, "split/all@5", net) == [pytest.approx(4 * 2 + 3)]


def test_a_layer_that_fetches_from_too_many_groups_is_refused(net: Any) -> None:
    split = {"fc": {"type": "InnerProduct", "parents": [], "num_outputs": 1024}}
    spec = net(
        {
            "in": {"type": "Input", "parents": [], "tensor": [4, 64]},
            "m": {"type": "ModelParallel", "parents": ["in"], "splits": 600, "layers": split},
            "gather": {"type": "Concatenate", "parents": ["m/fc@all", "m/fc@all"]},
        }
    )
    for parallel in ("model", "hybrid"):
        with pytest.raises(paleo.PaleoError, match='layer "gather" fetches from so many groups'):
            paleo.simulate(spec, parallel=parallel, cost_model="paleo2017")
        assert paleo.simulate(spec, parallel=parallel, cost_model="roofline").runs


def test_model_parallel_ignores_network_and_pipelining_in_2017(net: Any) -> None:
    spec = split_net(net, 8)
    plain = paleo.model_parallel(spec, plan(), 4)
    slow = paleo.Plan(K20, paleo.find_network("aws"), COST_MODELS["paleo2017"], use_pipeline=True)
    assert paleo.model_parallel(spec, slow, 4) == plain
    newer = [
        paleo.model_parallel(spec, paleo.Plan(K20, network, COST_MODELS["roofline"]), 4)
        for network in (PCIE2, paleo.find_network("aws"))
    ]
    assert newer[0][0].busy < newer[1][0].busy


@pytest.mark.slow
@pytest.mark.alike
@pytest.mark.parametrize(("model", "name"), IN_TURN)
def test_model_parallelism_works_on_every_net(model: str, name: str) -> None:
    spec = predefined(name)
    graph = paleo.build(spec, 8)
    for each in paleo.model_parallel(spec, plan(model), 8):
        assert 0 < each.total() <= each.busy
        branches = any(len(node.parents) > 1 for node in graph.nodes)
        # They are one sum where the net is a chain.
        assert branches or each.total() == pytest.approx(each.busy)


@pytest.mark.slow
@pytest.mark.alike
@pytest.mark.parametrize(("model", "name"), IN_TURN)
def test_hybrid_parallelism_works_on_every_net(model: str, name: str) -> None:
    spec = predefined(name)
    for workers in (1, 3, 8):
        data, sliced = paleo.hybrid_parallel(spec, plan(model), 8, workers)
        assert data.batch_size == sliced.batch_size == 8 * workers
        assert data["forward"] > 0
        assert (sliced["forward"] > 0) == bool(spec.splits)
        assert sliced["sync"] == 0
        assert (data["sync"] > 0) == (workers > 1)


def test_newer_models_update_one_slice_and_fetch_bytes_in_the_hybrid_scheme(net: Any) -> None:
    spec = split_net(net, 4)
    _, old = paleo.hybrid_parallel(spec, plan(), 4, 2)
    _, new = paleo.hybrid_parallel(spec, plan("roofline"), 4, 2)
    all_slices = 4 * (100 * 16 + 16 + 64 * 16 + 16)
    assert old["update"] == paleo.estimate_update(all_slices, K20, cost_model="paleo2017")
    assert new["update"] == paleo.estimate_update(all_slices // 4, K20, cost_model="roofline")
    # (Lo - t) K + t with t = (K - 1) e / b, the elements e of 4 x 100, at 8 GiB/s.
    one, three = (
        paleo.hybrid_parallel(spec, plan(), 4, workers)[1]["forward"] for workers in (1, 3)
    )
    gather = 2 * 400 / (8e9 * GIB_PER_GB)
    assert three == pytest.approx((one - gather) * 3 + gather)
    # t + c + (K - 1) max(c, t): t fetches the 1600 bytes of one batch at 8 GB/s.
    one, three = (
        paleo.hybrid_parallel(spec, plan("roofline"), 4, workers)[1]["forward"]
        for workers in (1, 3)
    )
    fetch = 1600 / 8e9
    assert three == pytest.approx(one + 2 * max(one - fetch, fetch))


def test_a_time_below_zero_is_said() -> None:
    """The 2017 formula takes more off each batch than it takes, if there are many workers."""
    run: Any = paleo.simulate(
        "alex_v2_8gpu", parallel="hybrid", hybrid_workers=500, cost_model="paleo2017"
    ).runs[0]
    assert run.rows[1]["forward"] < 0
    assert any("below zero" in note for note in run.notes)
    newer: Any = paleo.simulate(
        "alex_v2_8gpu", parallel="hybrid", hybrid_workers=500, cost_model="roofline"
    ).runs[0]
    assert newer.rows[1]["forward"] > 0
    assert not any("below zero" in note for note in newer.notes)


def test_an_update_moves_elements_of_its_type() -> None:
    single, double = (
        paleo.estimate_update(10**9, K20, cost_model="roofline", dtype=dtype)
        for dtype in ("fp32", "fp64")
    )
    assert double == pytest.approx(2 * single)  # bound by memory


def test_data_parallelism_of_a_split_net_runs_all_slices_on_each_worker(net: Any) -> None:
    step = paleo.data_parallel(split_net(net, 4), plan(), 4, 2)
    graph = paleo.build(split_net(net, 4), 4)
    assert step["forward"] == paleo.estimate_forward(graph, K20, cost_model="paleo2017").upper


def test_settings_are_checked() -> None:
    spec = paleo.load("nin")
    for arguments, words in (
        ((0, 1), "batch_size"),
        ((1.5, 1), "batch_size"),
        ((True, 1), "batch_size"),
        ((np.array([1.5]), 1), "batch_size"),
        ((1, 0), "num_workers"),
        ((1, np.array([0, 1])), "num_workers"),
        ((1, 2**31), "num_workers"),
        ((1, 1, "wide"), "scaling"),
    ):
        with pytest.raises(paleo.SettingError, match=words):
            paleo.data_parallel(spec, plan(), *arguments)
    with pytest.raises(paleo.UnknownNameError, match="TreeAllReduce"):
        paleo.estimate_communication(1, 2, "aws", scheme="TreeAllreduce")
    shares: tuple[Any, ...] = (0, -0.5, 1.1, float("nan"), True, "0.5", np.array([0.5, 0.0]))
    for share in shares:
        with pytest.raises(paleo.SettingError, match="ppp_comm"):
            paleo.estimate_communication(1, 2, "aws", ppp_comm=share)
