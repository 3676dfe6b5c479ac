"""What things are called decides no price: kinds, passes and roles of operands do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layer_examples import EXAMPLES, PASSES, Example, node_of
from nets_of_tests import make_net

import paleo
from paleo.core.errors import NetSpecError
from paleo.core.operations import BatchMatMul, Fused, Kind, Operation, Pass, Role, Stream
from paleo.costs import COST_MODELS, Target
from paleo.net.layers.functions import FUNCTIONS

#: A GPU, and a processor, whose kernels are priced by more of what an operation is.
DEVICES = ("A100_SXM_80GB", "EPYC_7742")
#: Words that prices once followed from.
WORDS = st.sampled_from(
    ["batchnorm", "batch_norm", "Batch", "lrn", "bias", "dropout", "gelu", "softmax", "Odd"]
)
FAST = settings(max_examples=40, deadline=None)


def prices(operations: tuple[Operation, ...]) -> list[float]:
    """Return the seconds of each by every cost model, on a GPU and a processor."""
    return [
        float(model.price(operation, Target(paleo.find_device(device))).total)
        for model in COST_MODELS.values()
        for device in DEVICES
        for operation in operations
    ]


def relabelled(operation: Operation, word: str) -> Operation:
    if isinstance(operation, Fused):
        tail: Any = tuple(relabelled(part, word) for part in operation.tail)
        return Fused(relabelled(operation.head, word), tail)
    if isinstance(operation, BatchMatMul):
        return replace(operation, name=word)
    return replace(operation, label=word) if isinstance(operation, Stream) else operation


@pytest.mark.slow
@pytest.mark.alike
@FAST
@given(st.sampled_from([each for each in EXAMPLES if each.kind != "Unknown"]), WORDS)
def test_what_layers_and_operations_are_called_changes_no_price(
    example: Example, word: str
) -> None:
    graph, node = node_of(example)
    layer, renamed = node.layer, type(word, (type(node.layer),), {"type_name": word})
    for direction in PASSES:
        found = layer.operations(direction, node.inputs, graph.element_size)
        expected = prices(found)
        assert prices(tuple(relabelled(each, word) for each in found)) == expected
        again = renamed(**vars(layer)).operations(direction, node.inputs, graph.element_size)
        assert prices(again) == expected


def net_called(names: list[str], normalizer: str, active: str) -> paleo.NetSpec:
    """Return a net with these names of layers, and words for what follows its convolution."""
    data, conv, norm, act, fc = names
    return make_net(
        {
            data: {"type": "Input", "tensor": [8, 32, 32, 16]},
            conv: {
                "type": "Convolution", "parents": [data], "filter": [3, 3, 16, 32],
                "strides": [1, 1, 1, 1], "padding": "SAME",
                "normalizer_fn": normalizer, "activation_fn": active,
            },
            norm: {"type": "BatchNorm", "parents": [conv]},
            act: {"type": "Activation", "parents": [norm], "function": "gelu"},
            fc: {"type": "InnerProduct", "parents": [act], "num_outputs": 10},
        }
    )  # fmt: skip


def seconds(net: paleo.NetSpec) -> list[Any]:
    """Return a step's seconds by every cost model on a GPU and a processor, fused and not."""
    return [
        (time.compute, time.memory, time.overhead, time.total)
        for model in COST_MODELS
        for device in DEVICES
        for fuse in (False, True)
        for estimate in (paleo.estimate_forward, paleo.estimate_backward)
        for time in [estimate(paleo.build(net), device, cost_model=model, fuse=fuse).time]
    ]


PLAIN = seconds(net_called(list("abcde"), "batch_norm", "silu"))


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(
    st.lists(WORDS, min_size=5, max_size=5, unique=True),
    st.sampled_from(["batchnorm", "batch_norm", "BatchNorm", "batch_normalization", "bn"]),
    st.sampled_from(["silu", "SiLU", "swish"]),
)
def test_how_a_net_spells_things_changes_no_figure(
    names: list[str], normalizer: str, active: str
) -> None:
    assert seconds(net_called(names, normalizer, active)) == PLAIN


@pytest.mark.parametrize(
    ("normalizer", "active", "message"),
    [
        ("batchnrm", "relu", '"normalizer_fn": unknown "batchnrm" (did you mean \'batch_norm\'?)'),
        ("bn", "sillu", '"activation_fn": unknown "sillu" (did you mean \'silu\'?)'),
    ],
)
def test_an_unknown_kind_is_an_error(normalizer: str, active: str, message: str) -> None:
    with pytest.raises(NetSpecError) as caught:
        net_called(["data", "conv", "norm", "act", "fc"], normalizer, active)
    (mistake,) = map(str, caught.value.mistakes)
    assert mistake.startswith(f'layer "conv": key {message}')
    assert "there are: " in mistake
    with pytest.raises(ValueError, match="not a valid Kind"):
        Kind("batch")


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_every_operation_says_what_it_is(example: Example) -> None:
    graph, node = node_of(example)
    for direction in PASSES:
        for operation in graph.operations(node, direction):
            assert isinstance(operation.kind, Kind)
            assert (operation.layer_pass is Pass.FORWARD) == (direction is Pass.FORWARD)
            assert len(operation.read_roles) == len(operation.reads)
            assert len(operation.operands) == len(operation.reads) + len(operation.writes)
            if operation.kind is Kind.FUNCTION and isinstance(operation, Stream):
                assert operation.function in FUNCTIONS


def test_operands_have_the_roles_of_their_pass() -> None:
    conv = Example("Convolution", {
        "filter": [1, 1, 4, 8], "strides": [1, 1, 1, 1], "padding": "SAME", "use_bias": False
    })  # fmt: skip
    graph, node = node_of(conv)
    # 2 x 6 x 6 positions of 4 and 8 channels, and 4 x 8 weights, of 4 bytes each.
    image, result, weights = 4 * 72 * 4, 4 * 72 * 8, 4 * 32
    expected = {
        Pass.FORWARD: [(Role.INPUT, image), (Role.WEIGHT, weights), (Role.OUTPUT, result)],
        Pass.INPUT_GRADIENT: [
            (Role.OUTPUT_GRADIENT, result), (Role.WEIGHT, weights), (Role.INPUT_GRADIENT, image),
        ],
        Pass.WEIGHT_GRADIENT: [
            (Role.KEPT, image), (Role.OUTPUT_GRADIENT, result), (Role.WEIGHT_GRADIENT, weights),
        ],
    }  # fmt: skip
    for direction, operands in expected.items():
        (operation,) = graph.operations(node, direction)
        assert list(operation.operands) == operands
