"""Operations that are priced together take what they take one by one, to the last bit."""

from __future__ import annotations

import random
import sys
from typing import Any

import numpy as np
import pytest

import paleo
from paleo.core.operations import (
    LAYER_PASSES,
    Attention,
    BatchMatMul,
    Convolution,
    Fused,
    Kind,
    MatMul,
    Operation,
    Pass,
    Pooling,
    Stream,
    Update,
)
from paleo.core.quantity import has_arrays
from paleo.core.window import Axis
from paleo.costs import Target, Time, Times
from paleo.costs.times import StackedTimes
from paleo.step.memory import footprints

SIZES = (1, 2, 3, 7, 16, 31, 64, 100, 256, 1000, 4096)
CHANNELS = (1, 3, 4, 8, 17, 64, 192, 512)
DEVICES = ("K40", "H100_SXM", "V100_SXM2_16GB", "MI300X", "XEON_8280")


def stream(rng: random.Random, batch: Any) -> Stream:
    size = batch * rng.choice(SIZES) * 4
    if rng.random() < 0.2:
        pieces = tuple(batch * rng.choice(SIZES) * 4 for _ in range(rng.choice((3, 6, 40))))
        both = (pieces, (size,))
        return Stream(Kind.COPY, *rng.choice((both, both[::-1])))
    kind = rng.choice((Kind.FUNCTION, Kind.BATCH_NORM, Kind.SOFTMAX))
    return Stream(
        kind, (size,) * rng.choice((1, 2)), (size,), row=rng.choice(SIZES) * 4,
        passes=rng.choice((1, 2, 3)), function="relu" if kind is Kind.FUNCTION else "",
    )  # fmt: skip


def axis(rng: random.Random, size: int, window: int, stride: int, kind: type[Any]) -> Axis:
    paddings: Any = ("SAME", "SAME", "VALID", (window // 2, window // 2), (0, 1))
    return Axis(
        size, window, stride, rng.choice(paddings), rng.choice((1, 1, 1, 2)),
        ceil=kind is Pooling and rng.random() < 0.3,
    )  # fmt: skip


def windowed(rng: random.Random, batch: Any, kind: type[Any]) -> Any:
    window, stride = rng.choice(((1, 1), (1, 1), (1, 2), (3, 1), (3, 1), (3, 2), (5, 1), (7, 2)))
    size, rank = rng.choice((14, 28, 56)), rng.choice((1, 2, 2, 2, 2, 2, 3))
    along = axis(rng, size, window, stride, kind)
    axes = (along,) * rank
    if rank == 2 and rng.random() < 0.3:
        axes = tuple(axis(rng, size, rng.choice((1, 5)), stride, kind) for _ in range(2))
    if kind is Pooling:
        if rng.random() < 0.2:
            axes = (Axis(size, size, 1, "VALID"),) * rank
        return kind(
            rng.choice(LAYER_PASSES[:2]), batch, axes, 16, 16, 4, maximum=rng.random() < 0.5
        )
    groups = rng.choice((1, 1, 1, 4, 32))
    c, k = (rng.choice(CHANNELS) * groups for _ in range(2))
    if groups > 1 and rng.random() < 0.5:
        c = k = groups  # depthwise
    return kind(rng.choice(LAYER_PASSES), batch, axes, c, k, 4, groups=groups)


def operation(rng: random.Random, batch: Any) -> Operation:
    """Return an operation of a step of `batch` samples: a number, or an array."""
    m, n, k = (rng.choice(SIZES) for _ in range(3))
    kind = rng.randrange(9)
    if kind == 0:
        return MatMul(batch * m, n, k, 4)
    if kind == 1:
        return BatchMatMul("scores", batch * m, n, k, 64, 4, dependent=rng.random() < 0.3)
    if kind == 2:
        return Attention(Pass.FORWARD, batch * 8, 1, m, m, 64, 64, 4)
    if kind == 3:
        return Update(m * n * k, 4)
    if kind == 4:
        return Fused(windowed(rng, batch, Convolution), (stream(rng, batch), stream(rng, batch)))
    if kind == 5:
        return stream(rng, batch)
    if kind == 6:
        moved = (batch * m * 4,)
        return Stream(Kind.DROPOUT, moved, moved, flops=batch * m, drawn=batch * m)
    found: Operation = windowed(rng, batch, Pooling if kind == 7 else Convolution)
    return found


def parts(time: Time) -> list[Any]:
    return [np.asarray(x).tolist() for x in (time.compute, time.memory, time.overhead, time.total)]


def spread(time: Time, batch: Any) -> list[Any]:
    """Return the parts of a time for each batch, be they numbers or arrays."""
    return [np.broadcast_to(part, np.shape(batch)).tolist() for part in time]


@pytest.mark.slow
@pytest.mark.alike
@pytest.mark.parametrize("batch", [32, np.array([1, 2, 32, 77])], ids=["number", "array"])
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("cost_model", ["tiled", "roofline", "paleo2017"])
def test_operations_priced_together_take_what_each_takes_alone(
    cost_model: str, device: str, batch: Any
) -> None:
    rng = random.Random(f"{cost_model} {device}")
    model = paleo.find_cost_model(cost_model)
    target = Target(paleo.find_device(device))
    operations = [operation(rng, batch) for _ in range(150)]

    def alone(each: Operation) -> list[Any]:
        shape = np.shape(batch)
        return [np.broadcast_to(part, shape).tolist() for part in parts(model.price(each, target))]

    found = [
        [np.broadcast_to(part, np.shape(batch)).tolist() for part in parts(time)]
        for time in model.price_all(operations, target)
    ]
    assert found == [alone(each) for each in operations]


@pytest.mark.parametrize("device", DEVICES)
def test_windows_of_any_sides_are_priced_together(device: str) -> None:
    model, target = paleo.find_cost_model("tiled"), Target(paleo.find_device(device))
    batch = np.array([1, 8])
    operations = [
        Convolution(
            each, batch, (Axis(28, rows, 1, "SAME"), Axis(28, columns, 1, "SAME")), c, k, 4,
            groups=groups,
        )
        for each in LAYER_PASSES
        for rows, columns in ((1, 1), (5, 1), (1, 5), (3, 3), (1, 3), (40, 40))
        for c, k, groups in ((8, 8, 8), (32, 32, 32), (64, 16, 8), (64, 64, 4), (64, 32, 1))
    ]  # fmt: skip

    for found, each in zip(model.price_all(operations, target), operations, strict=True):
        assert spread(found, batch) == spread(model.price(each, target), batch)


@pytest.mark.slow
@pytest.mark.parametrize("batch", [16, np.array([1, 16, 300])], ids=["number", "array"])
@pytest.mark.parametrize("library", ["any", "cudnn5"])
@pytest.mark.parametrize("cost_model", ["tiled", "roofline", "paleo2017"])
def test_a_library_and_a_workspace_choose_for_each_of_several_convolutions(
    cost_model: str, library: str, batch: Any
) -> None:
    rng = random.Random(library)
    choice = paleo.costs.convolution_choice(library, 2**22)
    target = Target(paleo.find_device("TITAN_X"), convolutions=choice)
    model = paleo.find_cost_model(cost_model)
    operations = [windowed(rng, batch, Convolution) for _ in range(100)]
    together = [spread(each, batch) for each in model.price_all(operations, target)]
    assert together == [spread(model.price(each, target), batch) for each in operations]


@pytest.mark.parametrize("device", ["K40", "TITAN_X", "P100_SXM2", "A100_SXM_80GB"])
def test_no_algorithm_for_a_convolution_is_quicker_than_its_bound(device: str) -> None:
    from paleo.costs.tiled import convolution
    from paleo.costs.tiled.machine import machine_for

    rng = random.Random(device)
    machine = machine_for(
        Target(paleo.find_device(device), convolutions=paleo.costs.convolution_choice("any"))
    )
    bounded = set()
    for _ in range(60):
        chooser = convolution.chooser(windowed(rng, np.array([1, 7, 300]), Convolution), machine)
        for name in chooser.candidates():
            least = np.asarray(chooser.least(name, chooser.operation))
            time = chooser.price(name, chooser.operation)
            if time is not None and np.isfinite(least).all():
                assert np.all(least <= time.total * (1 + 1e-9))
                bounded |= {name} if np.any(least > 0) else set()
    assert {"implicit_gemm", "scattered_gemm", "phased_gemm", "winograd_2x2", "fft"} <= bounded


def test_convolutions_of_any_window_are_priced_as_few(monkeypatch: pytest.MonkeyPatch) -> None:
    from paleo.costs.tiled import convolution

    asked = []
    price = convolution.price

    def noted(*given: Any) -> Time:
        asked.append(given)
        return price(*given)

    monkeypatch.setattr(convolution, "price", noted)
    rng = random.Random(3)
    operations = [windowed(rng, np.array([1, 32]), Convolution) for _ in range(200)]
    paleo.find_cost_model("tiled").price_all(operations, Target(paleo.find_device("TITAN_X")))
    # By the pass, the number of dimensions, and nothing else.
    assert len(asked) == 3 * 3


def test_rates_that_are_arrays_are_priced_one_operation_after_the_other() -> None:
    target = Target(paleo.find_device("K40"), share=np.array([1.0, 0.5]))
    model = paleo.find_cost_model("tiled")
    operations = [MatMul(64, n, 256, 4) for n in (32, 64, 128, 256)]
    together = list(map(parts, model.price_all(operations, target)))
    assert together == [parts(model.price(each, target)) for each in operations]
    assert np.shape(together[0][3]) == (2,)


def test_numpy_counts_as_there_once_it_has_been_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    assert has_arrays()
    monkeypatch.delitem(sys.modules, "numpy")
    assert not has_arrays()


def test_few_operations_of_numbers_do_without_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(5)
    model, target = paleo.find_cost_model("tiled"), Target(paleo.find_device("K40"))
    operations = [operation(rng, 8) for _ in range(40)]
    with_numpy = list(map(parts, model.price_all(operations, target)))
    monkeypatch.setattr("paleo.costs.batching.has_arrays", lambda: False)
    monkeypatch.setattr("paleo.costs.batching.price_stacked", None)
    assert list(map(parts, model.price_all(operations, target))) == with_numpy


@pytest.mark.parametrize("shape", [(), (3,)], ids=["numbers", "arrays"])
def test_sums_of_stacked_times_are_those_of_listed_ones(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(7)
    values = rng.lognormal(-10, 5, (4, 60, *shape))
    stacked = StackedTimes(values)
    listed = Times(list(stacked))
    lengths = [0, 3, 1, 20, 0, 36]
    places = rng.integers(0, 60, 500).tolist()

    def exact(times: Times) -> list[Any]:
        return [[np.broadcast_to(part, shape).tolist() for part in each] for each in times]

    assert exact(stacked.sums(lengths)) == exact(listed.sums(lengths))
    assert exact(stacked.at(places)) == exact(listed.at(places))
    assert parts(stacked.at(places).time) == parts(listed.at(places).time)
    for seconds in (lambda time: time.total, lambda time: time.compute + time.memory):
        ours, theirs = (times.at(places).total(seconds) for times in (stacked, listed))
        assert np.array_equal(ours, theirs)
    if not shape:
        assert all(type(part) is float for time in (stacked[0], stacked.time) for part in time)
    assert len(stacked) == len(stacked[:60]) == 60
    none = StackedTimes(values[:, :0])
    assert (none.time, none.total(lambda time: time.total), len(none.sums([]))) == (Time(), 0, 0)


def test_nodes_of_an_equal_layer_and_inputs_are_known_as_alike() -> None:
    graph = paleo.build(paleo.load("resnet50"), np.array([1, 8]))
    for node in graph.nodes:
        like = graph.nodes[node.like]
        assert (like.layer, like.output[1:]) == (node.layer, node.output[1:])
        assert like.like == like.index <= node.index
    # Of 229 layers, the blocks of a stage repeat: there are far fewer that differ.
    assert sum(node.like == node.index for node in graph.nodes) < 120


@pytest.mark.parametrize("net", ["alex_v2", "gpt2", "inception_bn"])
@pytest.mark.parametrize("training", [True, False])
def test_footprints_of_several_batches_are_those_of_each(net: str, training: bool) -> None:
    spec = paleo.load(net)
    batches = [64, 1, 2, 7, 64]
    found = footprints(spec, batches, training=training, dtype="mixed_fp16")
    assert found == {
        batch: paleo.footprint(spec, batch, training=training, dtype="mixed_fp16")
        for batch in batches
    }
    assert all(type(layer.activations) is int for layer in found[2].layers)
