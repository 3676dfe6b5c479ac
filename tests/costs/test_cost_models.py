"""The cost models, against times derived by hand; and a contract that all of them keep."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import paleo
from paleo.core.operations import (
    LAYER_PASSES,
    Kind,
    MatMul,
    Operation,
    Pass,
    Pooling,
    Stream,
    Update,
)
from paleo.core.operations import Convolution as ConvolutionWork
from paleo.core.units import GIB
from paleo.core.window import axes
from paleo.costs import COST_MODELS, Target, Time
from paleo.costs.counts2017 import gemm_of
from paleo.net.layers import LAYERS
from paleo.step.passes import estimate_pass, not_counted

PALEO2017, ROOFLINE = COST_MODELS["paleo2017"], COST_MODELS["roofline"]
#: 1 GHz, 1 TFLOP/s, 100 GB/s.
ROUND = paleo.Device.from_rates("round", clock=1e9, peak=1e12, memory_bandwidth=1e11)
#: What the 2017 model takes for 100 GB/s.
GIB_100 = 100 * GIB


def test_paleo2017_adds_compute_and_each_transfer() -> None:
    time = PALEO2017.price(MatMul(1000, 2000, 3000, 4), Target(ROUND, share=0.5))
    assert time.compute == pytest.approx(2 * 1000 * 2000 * 3000 / 0.5e12)
    moved = 4 * (1000 * 3000 + 3000 * 2000 + 1000 * 2000)
    assert time.memory == pytest.approx(moved / (0.5 * GIB_100))
    assert time.total == time.compute + time.memory
    assert PALEO2017.pipelined(time) == max(time.compute, time.memory)


def test_paleo2017_takes_a_clock_at_least_for_a_pass_and_for_each_transfer() -> None:
    time = PALEO2017.price(MatMul(1, 1, 1, 4), Target(ROUND))
    assert (time.compute, time.memory, time.total) == pytest.approx((1e-9, 3e-9, 4e-9))


def test_paleo2017_updates_at_the_peak_whatever_the_percent() -> None:
    time = PALEO2017.price(Update(10**9, 4), Target(ROUND, share=0.1))
    assert time.compute == pytest.approx(2e9 / 1e12)
    assert time.memory == pytest.approx(3 * 4e9 / GIB_100)
    nothing = PALEO2017.price(Update(0, 4), Target(ROUND))
    assert (nothing.compute, nothing.memory) == pytest.approx((0.0, 3e-9))


def test_paleo2017_counts_two_flops_for_a_pooling_element() -> None:
    along = axes((8, 8), (2, 2), (2, 2), "VALID")
    for direction in (Pass.FORWARD, Pass.INPUT_GRADIENT):
        operation = Pooling(direction, 1000, along, 100, 100, 4)
        time = PALEO2017.price(operation, Target(ROUND))
        assert time.compute == pytest.approx(2 * 4 * 1000 * 16 * 100 / 1e12)
        assert time.memory == pytest.approx(4 * 1000 * 100 * (64 + 16) / GIB_100)


def test_paleo2017_knows_fp32_only() -> None:
    with pytest.raises(paleo.SettingError, match="fp32 only, not fp16"):
        PALEO2017.price(MatMul(1, 1, 1, 2), Target(ROUND, "fp16"))


def test_roofline_is_the_longer_of_compute_and_memory() -> None:
    compute_bound = ROOFLINE.price(MatMul(4096, 4096, 4096, 4), Target(ROUND))
    assert compute_bound.total == compute_bound.compute == pytest.approx(2 * 4096**3 / 1e12)
    memory_bound = ROOFLINE.price(Stream(Kind.FUNCTION, (4e9,), (4e9,)), Target(ROUND, share=0.5))
    assert memory_bound.total == memory_bound.memory == pytest.approx(8e9 / 0.5e11)


def test_roofline_takes_the_peak_of_the_type_or_says_which_there_are() -> None:
    half = Target(paleo.find_device("K20"), "fp64")
    assert ROOFLINE.price(MatMul(1000, 1000, 1000, 8), half).compute == pytest.approx(2 / 1170)
    with pytest.raises(paleo.HardwareError, match=r"K20 has no peak for fp16; it has: fp32, fp64"):
        ROOFLINE.price(MatMul(1, 1, 1, 2), Target(paleo.find_device("K20"), "fp16"))


def test_what_a_model_leaves_out_is_listed() -> None:
    graph = paleo.build(paleo.load("inception_v3"))
    expected = ("batch_norm", "bias", "concatenate", "relu", "softmax")
    assert not_counted(graph, PALEO2017) == expected
    assert not_counted(graph, ROOFLINE) == ()
    asked: dict[str, Any] = {"workers": [1], "scaling": "weak", "cost_model": "paleo2017"}
    run = paleo.simulate("inception_v3", **asked).runs[0]
    assert run.not_counted == expected
    assert f"not counted by paleo2017: {', '.join(expected)}" in run.notes


PADDINGS = ("VALID", "SAME", (0, 0), (2, 2), (0, 3), (2, 1))
SIZES = list(itertools.product((1, 4, 7, 13), (1, 2, 3, 5), (1, 2, 3, 4), PADDINGS, (1, 2)))


@pytest.mark.slow  # so many
@pytest.mark.parametrize(("size", "window", "stride", "padding", "dilation"), SIZES)
def test_gradients_have_the_shape_of_what_they_are_gradients_of(
    size: int, window: int, stride: int, padding: Any, dilation: int
) -> None:
    """Convolutions of any size, stride and padding have all three passes in paleo2017."""
    pads = padding if isinstance(padding, str) else (padding, padding)
    along = axes((size, size), (window, window), (stride, stride), pads, (dilation, dilation))
    if along[0].output < 1:
        with pytest.raises(ValueError, match="larger than its padded input"):
            LAYERS["Convolution"](
                filter=(window, window, 3, 5),
                strides=(stride, stride),
                padding=pads,
                dilations=(dilation, dilation),
            ).infer_shape(((2, size, size, 3),))
        return
    counted = {}
    for direction in (Pass.FORWARD, Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT):
        operation = ConvolutionWork(direction, 2, along, 3, 5, 4)
        gemm = gemm_of(operation)
        counted[direction] = gemm.flops
        if direction is not Pass.FORWARD:
            # A stride-1 convolution of what the table says gives the shape it says; of the
            # filter's gradient, as far as the filter has elements.
            step = dilation if direction is Pass.WEIGHT_GRADIENT else 1
            for s, p, w, o in zip(
                gemm.sizes, gemm.paddings, gemm.windows, gemm.outputs, strict=True
            ):
                assert s + p - w == (o - 1) * step
        time = PALEO2017.price(operation, Target(ROUND))
        assert time.compute > 0
        assert time.memory >= 3e-9
    macs = 2 * window**2 * 3 * 2 * along[0].output ** 2 * 5
    assert counted[Pass.FORWARD] == counted[Pass.WEIGHT_GRADIENT] == macs
    assert counted[Pass.INPUT_GRADIENT] >= 2 * window**2 * 3 * 2 * size**2 * 5


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("direction", Pass)
def test_each_dimension_has_its_own_window(direction: Pass, transposed: bool) -> None:
    """What is true of an axis does not depend on the other: rectangles of two square cases."""
    first = axes((13,), (5,), (2,), "SAME")
    second = axes((7,), (2,), (3,), ((1, 0),))
    both = gemm_of(ConvolutionWork(direction, 2, first + second, 3, 5, 4, transposed))
    for index, along in enumerate((first, second)):
        alone = gemm_of(ConvolutionWork(direction, 2, along, 3, 5, 4, transposed))
        for name in ("sizes", "paddings", "windows", "outputs"):
            assert getattr(both, name)[index : index + 1] == getattr(alone, name)
    assert both.flops > 0


def test_groups_and_dilation_in_paleo2017() -> None:
    """A convolution in groups is as many small ones; a dilated one pads and computes as it must."""
    plain = axes((14, 14), (3, 3), (1, 1), "SAME")
    for direction in (Pass.FORWARD, Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT):
        whole, grouped = (
            gemm_of(ConvolutionWork(direction, 8, plain, 16, 32, 4, groups=groups))
            for groups in (1, 4)
        )
        assert grouped.flops == whole.flops // 4
        weights = 3 * 3 * 16 * 32
        others = sorted(e for e in whole.elements if e != weights)
        assert sorted(grouped.elements) == sorted([*others, weights // 4])
    dilated = axes((14, 14), (3, 3), (1, 1), "SAME", (2, 2))
    forward = gemm_of(ConvolutionWork(Pass.FORWARD, 8, dilated, 16, 32, 4))
    assert forward.flops == 2 * 9 * 16 * 32 * 8 * 14 * 14
    # SAME adds 5 - 1 = 4 elements for a window that spans 5.
    assert forward.elements == (8 * 18 * 18 * 16, 9 * 16 * 32, 8 * 14 * 14 * 32)


def test_only_a_first_convolution_skips_its_input_gradient_in_paleo2017(net: Any) -> None:
    layers = {
        "in": {"type": "Input", "parents": [], "tensor": [2, 8, 8, 3]},
        "drop": {"type": "Dropout", "parents": ["in"], "dropout_keep_prob": 0.5},
        "conv": {
            "type": "Convolution", "parents": ["in"], "filter": [3, 3, 3, 4],
            "strides": [1, 1, 1, 1], "padding": "SAME",
        },
        "behind": {
            "type": "Convolution", "parents": ["drop"], "filter": [3, 3, 3, 4],
            "strides": [1, 1, 1, 1], "padding": "SAME",
        },
        "fc": {"type": "InnerProduct", "parents": ["in"], "num_outputs": 4},
        "after": {"type": "InnerProduct", "parents": ["fc"], "num_outputs": 4},
    }  # fmt: skip
    graph = paleo.build(net(layers))

    def skipping(model: paleo.CostModel) -> set[str]:
        times = estimate_pass(graph, (Pass.INPUT_GRADIENT,), Target(ROUND), model)
        return {each.node.name for each in times.layers if each.time.total == 0}

    assert skipping(PALEO2017) == {"in", "conv"}
    # Newer models need no gradient where nothing above has parameters.
    assert skipping(ROOFLINE) == {"in", "drop", "conv", "behind", "fc"}


def test_a_sigmoid_has_one_output_in_2017_and_keeps_its_shape_since(net: Any) -> None:
    spec = net(
        {
            "in": {"type": "Input", "parents": [], "tensor": [2, 10]},
            "sigmoid": {"type": "Sigmoid", "parents": ["in"]},
        }
    )
    plans = [
        paleo.Plan(ROUND, paleo.find_network("ethernet"), model) for model in (PALEO2017, ROOFLINE)
    ]
    shapes = [paleo.build(spec, adapt=plan.adapt).nodes[-1].output for plan in plans]
    assert shapes == [(2, 1), (2, 10)]


ALONG = axes((14, 14), (3, 3), (2, 2), "SAME")
OPERATIONS: list[Operation] = [
    MatMul(64, 64, 64, 4),
    Stream(Kind.DROPOUT, (4000,), (4000,), 1000),
    Stream(Kind.FUNCTION, (4000,), (4000,)),
    Update(1000, 4),
    *(ConvolutionWork(d, 8, ALONG, 16, 32, 4) for d in LAYER_PASSES),
    *(ConvolutionWork(d, 8, ALONG, 16, 32, 4, transposed=True) for d in LAYER_PASSES),
    *(Pooling(d, 8, ALONG, 16, 16, 4, m) for d in LAYER_PASSES[:2] for m in (True, False)),
]


@pytest.mark.parametrize("name", COST_MODELS)
@pytest.mark.parametrize("operation", OPERATIONS, ids=repr)
def test_every_model_keeps_the_contract(name: str, operation: Operation) -> None:
    model = COST_MODELS[name]
    time = model.price(operation, Target(ROUND))
    assert min(time.compute, time.memory, time.overhead) >= 0
    assert model.pipelined(time) <= time.total
    if not model.counts(operation):
        assert time == Time()
        return
    assert time.total >= operation.flops / 1e12
    assert time.total >= max(time.compute, time.memory)
    slower = model.price(operation, Target(ROUND, share=0.5))
    assert slower.total >= time.total
    assert model.summary
    assert model.name == name
