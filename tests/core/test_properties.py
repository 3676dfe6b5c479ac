"""Properties that hold for nets nobody has written: hypothesis makes them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from summing_schemes import EXCHANGES

import paleo
from paleo.core.operations import Pass, Work
from paleo.costs import COST_MODELS
from paleo.net.asked import longest_path
from paleo.studies.summary import NetSummary

ETHERNET = paleo.find_network("ethernet")
MODELS = list(COST_MODELS)
FAST = settings(max_examples=60, deadline=None)


def device(factor: float = 1.0, **other: float) -> paleo.Device:
    rates = {"clock": 1e9, "peak": 1e12, "memory_bandwidth": 1e11}
    rates = {name: value * other.get(name, factor) for name, value in rates.items()}
    return paleo.Device.from_rates("made", **rates)


@st.composite
def nets(draw: Any, most: int = 12) -> paleo.NetSpec:
    """Make a random DAG of layers over images of 6 to 12 pixels, with any names."""
    size = draw(st.integers(6, 12))
    names = draw(st.lists(st.text(min_size=1, max_size=5), min_size=2, max_size=most, unique=True))
    names = [name for name in names if "@" not in name] or ["only"]
    layers: dict[str, Any] = {
        names[0]: {"type": "Input", "parents": [], "tensor": [2, size, size, 3]}
    }
    for name in names[1:]:
        seen = list(layers)
        parent = draw(st.sampled_from(seen))
        kind = draw(st.sampled_from(["conv", "pool", "drop", "act", "concat", "add", "norm"]))
        window = draw(st.integers(1, 4))
        stride = draw(st.integers(1, 3))
        steps = {"strides": [1, stride, stride, 1], "padding": "SAME"}
        bodies: dict[str, dict[str, Any]] = {
            "conv": {
                "type": "Convolution",
                "filter": [window, window, -1, draw(st.integers(1, 6))],
                **steps,
            },
            "pool": {"type": "Pooling", "ksize": [1, window, window, 1], **steps},
            "drop": {"type": "Dropout", "dropout_keep_prob": 0.5},
            "act": {"type": "Activation", "function": "relu"},
            "concat": {"type": "Concatenate", "dim": 3},
            "add": {"type": "Elementwise"},
            "norm": {"type": "BatchNorm"},
        }
        parents = [parent, parent] if kind in ("concat", "add") else [parent]
        layers[name] = {**bodies[kind], "parents": parents}
    order = draw(st.permutations(list(layers.items())))
    return paleo.loads(json.dumps({"name": "random", "layers": dict(order)}))


def step(net: Any, where: paleo.Device, model: str, batch: Any, workers: Any) -> Any:
    plan = paleo.Plan(where, ETHERNET, COST_MODELS[model])
    return paleo.data_parallel(net, plan, batch, workers, "strong")


@pytest.mark.slow
@FAST
@given(nets(), st.integers(1, 50))
def test_work_is_linear_in_the_batch_but_for_weights(net: paleo.NetSpec, batch: int) -> None:
    one, many = paleo.build(net, 1), paleo.build(net, batch)
    for first, other in zip(one.nodes, many.nodes, strict=True):
        assert other.num_params == first.num_params
        for direction in (Pass.FORWARD, Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT):
            single, whole = one.work(first, direction), many.work(other, direction)
            assert whole.flops == batch * single.flops
            assert whole.num_bytes <= batch * single.num_bytes


@pytest.mark.alike
@FAST
@given(nets())
def test_parents_come_first_and_every_layer_once(net: paleo.NetSpec) -> None:
    graph = paleo.build(net)
    assert sorted(node.name for node in graph.nodes) == sorted(spec.name for spec in net.layers)
    for node in graph.nodes:
        assert all(parent < node.index for parent in node.parents)
        parents = tuple(graph.nodes[parent].name for parent in node.parents)
        assert parents == next(spec.parents for spec in net.layers if spec.name == node.name)


@FAST
@given(nets(most=8), st.randoms(use_true_random=False))
def test_the_longest_path_is_the_longest_of_all_paths(net: paleo.NetSpec, random: Any) -> None:
    graph = paleo.build(net)
    seconds: list[Any] = [float(random.randint(0, 9)) for _ in graph.nodes]

    def longest(index: int) -> Any:
        before = [longest(parent) for parent in graph.nodes[index].parents]
        return seconds[index] + max(before, default=0.0)

    assert longest_path(graph, seconds) == max(map(longest, range(len(graph.nodes))))
    assert longest_path(graph, seconds) <= sum(seconds)


@pytest.mark.alike
@FAST
@given(nets(), st.sampled_from(MODELS), st.integers(1, 64), st.integers(1, 9))
def test_nothing_is_quicker_than_its_flops_at_the_peak(
    net: paleo.NetSpec, model: str, batch: int, workers: int
) -> None:
    found = step(net, device(), model, batch, workers)
    own = -(-batch // workers)
    graph = paleo.build(net, own)
    flops = sum((graph.work(node, Pass.FORWARD) for node in graph.nodes), Work()).flops
    assert found["forward"] * (1 + 1e-12) >= flops / 1e12


@pytest.mark.slow
@FAST
@given(nets(), st.sampled_from(MODELS), st.floats(1, 100))
def test_a_faster_device_is_never_slower(net: paleo.NetSpec, model: str, factor: float) -> None:
    base = step(net, device(), model, 8, 2).compute * (1 + 1e-12)
    for rate in ("clock", "peak", "memory_bandwidth"):
        assert step(net, device(**{rate: factor}), model, 8, 2).compute <= base


@pytest.mark.slow
@FAST
@given(nets(), st.sampled_from(MODELS))
def test_doubling_every_rate_halves_every_time(net: paleo.NetSpec, model: str) -> None:
    slow, fast = step(net, device(), model, 8, 2), step(net, device(2.0), model, 8, 2)
    for name in ("forward", "backward", "update"):
        long, short = slow[name], fast[name]
        if model == "tiled":  # launches and latencies stay as they are
            assert long / 2 * (1 - 1e-9) <= short <= long * (1 + 1e-9)
        else:
            assert short == pytest.approx(long / 2)
    whole, half = (paleo.Network.from_bandwidth("link", rate) for rate in (1e9, 5e8))
    for scheme in EXCHANGES:
        assert paleo.estimate_communication(999, 5, half, scheme=scheme) == pytest.approx(
            2 * paleo.estimate_communication(999, 5, whole, scheme=scheme)
        )


@pytest.mark.slow
@FAST
@given(
    nets(),
    st.sampled_from(MODELS),
    st.lists(st.tuples(st.integers(1, 4096), st.integers(1, 4096)), min_size=1, max_size=6),
    st.sampled_from(["weak", "strong"]),
    st.booleans(),
)
def test_arrays_give_the_same_numbers_as_one_by_one(
    net: paleo.NetSpec, model: str, cases: Any, scaling: str, pipeline: bool
) -> None:
    plan = paleo.Plan(device(), ETHERNET, COST_MODELS[model], use_pipeline=pipeline)
    batches, workers = (np.array(column) for column in zip(*cases, strict=True))
    whole = paleo.data_parallel(net, plan, batches, workers, scaling)
    for i, (batch, count) in enumerate(cases):
        one = paleo.data_parallel(net, plan, batch, count, scaling)
        for name in ("workers", "batch_size", "compute"):
            assert np.broadcast_to(getattr(whole, name), len(cases))[i] == getattr(one, name)
        for piece in one.pieces:
            assert np.broadcast_to(whole[piece.name], len(cases))[i] == piece.seconds
        for scheme, seconds in whole.communication.items():
            assert np.broadcast_to(seconds, len(cases))[i] == one.communication[scheme]


@pytest.mark.slow
@pytest.mark.alike
@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(["alex_v2", "alex_v2_4gpu", "inception_v3"]),
    st.sampled_from(MODELS),
    st.lists(st.integers(1, 512), min_size=1, max_size=4),
)
def test_arrays_of_batches_agree_in_model_and_hybrid_parallelism(
    name: str, model: str, batches: list[int]
) -> None:
    net, plan = paleo.load(name), paleo.Plan(device(), ETHERNET, COST_MODELS[model])
    array = np.array(batches)
    whole = [*paleo.model_parallel(net, plan, array), *paleo.hybrid_parallel(net, plan, array, 4)]
    for i, batch in enumerate(batches):
        one = [*paleo.model_parallel(net, plan, batch), *paleo.hybrid_parallel(net, plan, batch, 4)]
        for many, single in zip(whole, one, strict=True):
            for name in ("workers", "batch_size", "worker_batch_size", "busy"):
                value = getattr(single, name)
                assert np.broadcast_to(getattr(many, name), len(batches))[i] == value
            assert np.broadcast_to(many.total(), len(batches))[i] == single.total()
            for piece in single.pieces:
                assert np.broadcast_to(many[piece.name], len(batches))[i] == piece.seconds


@FAST
@given(st.integers(1, 8), st.integers(1, 64), st.integers(1, 5))
def test_slices_sum_up_to_the_whole(splits: int, per_slice: int, window: int) -> None:
    outputs = splits * per_slice

    def net(body: dict[str, Any]) -> NetSummary:
        data = {"type": "Input", "parents": [], "tensor": [2, 8, 8, 3]}
        layers = {"in": data, "block": {"parents": ["in"], **body}}
        return paleo.summarize(paleo.loads(json.dumps({"name": "n", "layers": layers})))

    inside = {
        "conv": {
            "type": "Convolution", "parents": [], "filter": [window, window, 3, outputs],
            "strides": [1, 1, 1, 1], "padding": "SAME",
        },
        "fc": {"type": "InnerProduct", "parents": [], "num_outputs": outputs},
    }  # fmt: skip
    whole = net({"type": "Block", "layers": inside})
    split = net({"type": "ModelParallel", "splits": splits, "layers": inside})
    for name in ("num_params", "forward_flops", "weights_bytes", "activations_bytes"):
        assert getattr(split, name) == getattr(whole, name)
