"""When tensors are alive is found once for a net; what holds at one batch size holds at others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from layer_examples import EXAMPLES, Example
from nets_of_tests import make_net

import paleo
from paleo.core.tensor import Shape
from paleo.net.graph import typical
from paleo.net.layers import Layer
from paleo.net.layers.base import MemoryNeeds
from paleo.net.spec import LayerSpec, NetSpec
from paleo.step.memory import OPTIMIZERS, footprint, largest_batch
from paleo.step.memory.liveness import Schedule, scheduled
from paleo.step.memory.usage import Step
from paleo.step.passes import keep_shape

ADAM = OPTIMIZERS["adam"]


def schedule_of(net: NetSpec, dtype: str, training: bool) -> Schedule:
    return scheduled(typical(net, dtype, keep_shape), training=training)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["densenet40", "alex_v2_4gpu", "gpt2", "lstm_lm", "unet", "ssd300_resnet50"]
)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    ("own", "other"), [("fp32", "fp16"), ("fp64", "fp8"), ("mixed_fp16", "mixed_bf16")]
)
def test_a_schedule_holds_at_other_batches_and_in_other_types(
    name: str, training: bool, own: str, other: str
) -> None:
    net = paleo.load(name)
    schedule, optimizer = schedule_of(net, own, training), ADAM if training else None
    for batch in (2, 5, np.array([1, 2, 9])):
        graph = paleo.build(net, batch, other, keep_shape)
        step, anew = Step(graph, optimizer, schedule), Step(graph, optimizer)
        assert step.schedule is schedule
        assert np.array_equal(step.sums(), anew.sums())
        assert step.schedule.points == anew.schedule.points
        for point in (0, schedule.last_forward, len(schedule.points) - 1):
            assert all(map(np.array_equal, step.activations(point), anew.activations(point)))


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_a_schedule_holds_for_every_type_of_layer(example: Example) -> None:
    net = example.net()
    for training in (True, False):
        schedule = schedule_of(net, "fp32", training)
        for batch in (1, 2, 3, 40):
            graph = paleo.build(net, batch, "fp16", keep_shape)
            optimizer = ADAM if training else None
            found = Step(graph, optimizer, schedule).sums()
            assert found == Step(graph, optimizer).sums()


def test_a_batch_of_one_has_tensors_of_its_own() -> None:
    layers: dict[str, Any] = {
        "data": {"type": "Input", "tensor": [2, 4]},
        "a": {"type": "InnerProduct", "parents": ["data"], "num_outputs": 4},
        "shift": {"type": "Parameter", "shape": [4]},
        "out": {"type": "Elementwise", "parents": ["a", "shift"]},
    }
    net = make_net(layers)
    schedule = schedule_of(net, "fp32", training=True)
    one, two = paleo.build(net, 1), paleo.build(net, 2)
    assert schedule.sizes(two)
    # Of one sample, nothing is repeated: the shift has the gradient of the output as it is.
    assert schedule.sizes(one) is None
    assert Step(one, ADAM, schedule).schedule is not schedule
    assert footprint(net, 1, optimizer="adam").peak == max(Step(one, ADAM).sums())


class Fickle(Layer):
    """A layer that keeps its input at some batch sizes alone."""

    def infer_shape(self, inputs: tuple[Shape, ...]) -> Shape:
        return inputs[0]

    def keeps(
        self, inputs: tuple[Shape, ...], element_size: int, needed: tuple[bool, ...]
    ) -> MemoryNeeds:
        return MemoryNeeds(inputs=(0,) if inputs[0][0] > 4 else (), forward=element_size)


def test_a_layer_that_keeps_something_else_at_another_batch_is_followed_there() -> None:
    layers: dict[str, Any] = {
        "data": {"type": "Input", "tensor": [2, 4]},
        "a": {"type": "InnerProduct", "parents": ["data"], "num_outputs": 4, "use_bias": False},
        "b": {"type": "InnerProduct", "parents": ["data"], "num_outputs": 4, "use_bias": False},
    }
    data, a, b = make_net(layers).layers
    after = LayerSpec("b", b.layer, ("fickle",))
    net = NetSpec("net", (data, a, LayerSpec("fickle", Fickle(), ("a",)), after))
    # What fickle reads is there at the end of the forward pass if it keeps it.
    for batch, kept in ((3, 0), (4, 0), (5, 1), (9, 1)):
        assert footprint(net, batch).layers[1].activations == kept * batch * 16


@pytest.mark.parametrize("name", list(OPTIMIZERS))
@pytest.mark.parametrize("dtype", ["fp16", "mixed_fp16"])
def test_an_optimizer_adds_to_the_largest_batch_of_another(name: str, dtype: str) -> None:
    net = paleo.load("resnet18")
    for optimizer in ("sgd", name):
        batch = largest_batch(net, 10**9, optimizer=optimizer, dtype=dtype)
        of: dict[str, Any] = {"optimizer": optimizer, "dtype": dtype}
        assert footprint(net, batch, **of).peak <= 10**9 < footprint(net, batch + 1, **of).peak
