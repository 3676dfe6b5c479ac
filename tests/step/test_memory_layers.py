"""What each type of layer keeps for its backward pass: by hand, and what must hold for all."""

from __future__ import annotations

from typing import Any

import pytest
from layer_examples import EXAMPLES, Example, node_of

import paleo
from paleo.core.operations import Pass
from paleo.net.layers.base import Layer, MemoryNeeds

ONE = [1, 1, 1, 1]


def kept(kind: str, shapes: list[list[int]], **keys: Any) -> MemoryNeeds:
    """Return what a layer says that it needs, all its inputs' gradients being computed."""
    _, node = node_of(Example(kind, keys, tuple(shapes)))
    return node.layer.keeps(node.inputs, 4, (True,) * len(shapes))


def test_what_a_layer_keeps() -> None:
    image, row = [2, 6, 6, 4], [2, 10]
    assert kept("Activation", [row], function="tanh") == MemoryNeeds(output=True)
    assert kept("Activation", [row], function="silu") == MemoryNeeds(inputs=(0,))
    assert kept("Activation", [row], function="affine") == MemoryNeeds()
    assert kept("Activation", [row], function="compare") == MemoryNeeds(ends=True)
    # x^p: p x^(p-1), two tensors on the way.
    assert kept("Activation", [row], function="power") == MemoryNeeds(inputs=(0,), backward=2 * 80)
    assert kept("Dropout", [row], dropout_keep_prob=0.5) == MemoryNeeds(saved=80)
    # 2 x 36 positions of 4 channels, padded to 6 for windows of 3; windows' sums; their powers.
    assert kept("LRN", [image], local_size=3) == MemoryNeeds(
        inputs=(0,), own=4 * 72 * (4 + 4), saved=4 * 72 * 6, backward=3 * 4 * 72 * 4
    )
    assert kept("LayerNorm", [image], num_dims=2) == MemoryNeeds(inputs=(0,), saved=4 * 2 * 12)
    assert kept("GroupNorm", [image], num_groups=2) == MemoryNeeds(inputs=(0,), saved=4 * 2 * 2 * 2)
    assert kept("InstanceNorm", [image]) == MemoryNeeds(inputs=(0,), saved=4 * 2 * 2 * 4)
    assert kept("RMSNorm", [row]) == MemoryNeeds(inputs=(0,), saved=4 * 2)
    assert kept("L2Norm", [row]) == MemoryNeeds(inputs=(0,), saved=4 * 2)
    assert kept("Scale", [row]) == MemoryNeeds(inputs=(0,), forward=80)
    assert kept("PReLU", [row]) == MemoryNeeds(inputs=(0,), backward=80)
    assert kept("GlobalPooling", [image]) == MemoryNeeds()
    assert kept("GlobalPooling", [image], function="maximum") == MemoryNeeds(
        inputs=(0,), own=8 * 2 * 4
    )
    assert kept("AvgPool", [image], ksize=[1, 2, 2, 1], strides=ONE, padding="SAME") == MemoryNeeds(
        inputs=(0,)
    )
    assert kept("Reduce", [image], dims=[1]) == MemoryNeeds()
    assert kept("Reduce", [image], dims=[1], function="argmax") == MemoryNeeds(ends=True)
    assert kept("Reduce", [image], dims=[1], function="norm") == MemoryNeeds(
        inputs=(0,), output=True
    )
    heads = [2, 3, 6, 4]
    assert kept("Attention", [heads, heads, heads]) == MemoryNeeds(
        (0, 1, 2), True, saved=4 * 2 * 3 * 6
    )
    assert kept("Loss", [row, [2, 1]], function="squared_error") == MemoryNeeds(inputs=(0, 1))
    assert kept("Loss", [row, [2, 1]]) == MemoryNeeds(inputs=(0, 1), own=80, backward=80)


def test_what_functions_of_several_tensors_keep() -> None:
    whole, part = [2, 5, 4], [2, 1, 4]

    def function(name: str, *shapes: list[int]) -> MemoryNeeds:
        return kept("Elementwise", list(shapes), function=name)

    assert function("sum", whole, whole) == MemoryNeeds(aliased=(0, 1))
    assert function("sum", whole, part) == MemoryNeeds(aliased=(0,))  # the other's is summed
    assert function("sum", whole, whole, whole) == MemoryNeeds(aliased=(0, 1, 2), forward=160)
    assert function("difference", whole, whole) == MemoryNeeds(aliased=(0,))
    assert function("mean", whole, whole) == MemoryNeeds()
    assert function("product", whole, whole) == MemoryNeeds(inputs=(0, 1))
    assert function("product", whole, part) == MemoryNeeds(inputs=(0, 1), backward=160)
    assert function("product", whole, whole, whole) == MemoryNeeds(inputs=(0, 1, 2), own=160)
    assert function("quotient", whole, whole) == MemoryNeeds(inputs=(0, 1))
    assert function("power", whole, whole) == MemoryNeeds(inputs=(0, 1), output=True)
    assert function("maximum", whole, whole) == MemoryNeeds(inputs=(0, 1))
    assert function("logical", whole, whole) == MemoryNeeds(ends=True)
    # Of a mask nobody needs the gradient; it is kept for the other's.
    _, node = node_of(Example("Elementwise", {"function": "where"}, (whole, whole, whole)))
    assert node.layer.keeps(node.inputs, 4, (False, True, True)).inputs == (0,)
    _, node = node_of(Example("Elementwise", {"function": "product"}, (whole, whole)))
    assert node.layer.keeps(node.inputs, 4, (True, False)).inputs == (1,)
    _, node = node_of(Example("Elementwise", {"function": "quotient"}, (whole, whole)))
    assert node.layer.keeps(node.inputs, 4, (True, False)).inputs == (1,)
    # nij,njk,nk->nj: 2 x 6 x 4 by 2 x 4 x 3, the first product 2 x 6 x 3 if nothing is summed.
    found = kept("Einsum", [[2, 6, 4], [2, 4, 3], [2, 6, 3]], equation="nij,njk,nik->nik")
    assert found == MemoryNeeds(inputs=(0, 1, 2), own=4 * 2 * 6 * 3)
    matrices = Example("MatMul", {}, ([2, 6, 4], [2, 4, 3]))
    _, node = node_of(matrices)
    assert node.layer.keeps(node.inputs, 4, (False, True)).inputs == (0,)


def test_recurrent_layers_keep_gates_and_states_layer_by_layer() -> None:
    # 2 samples of 3 steps and 4 features, 5 units.
    sequence = [2, 3, 4]
    assert kept("RNN", [sequence], num_outputs=5) == MemoryNeeds(
        inputs=(0,), output=True, saved=4 * 2 * 3 * 5, backward=4 * 5 * 5
    )
    assert kept("GRU", [sequence], num_outputs=5) == MemoryNeeds(
        inputs=(0,), output=True, saved=4 * 2 * 3 * 7 * 5, backward=4 * 3 * 5 * 5
    )
    # Gates and hidden states 5 x 3 x 5 numbers, and ten rows of 4 steps.
    assert kept("LSTM", [sequence], num_outputs=5) == MemoryNeeds(
        inputs=(0,), output=True, saved=4 * 2 * (75 + 10 * 4 * 5)
    )
    assert kept("LSTM", [sequence], num_outputs=5, bidirectional=True).saved == 2 * 4 * 2 * 275


@pytest.mark.parametrize("name", paleo.LAYERS)
def test_every_layer_type_says_itself_what_it_keeps(name: str) -> None:
    layer = paleo.LAYERS[name]
    says = layer.kept is not None or layer.keeps is not Layer.keeps
    assert says == layer.is_known  # what is not known keeps everything, by default


def test_a_type_that_does_not_say_keeps_everything() -> None:
    class Silent(Layer):
        def infer_shape(self, inputs: Any) -> Any:
            return inputs[0]

    assert Silent().keeps(((2, 3), (2, 3)), 4, (True, False)) == MemoryNeeds((0, 1), output=True)


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_what_a_layer_keeps_is_exact_and_linear_in_the_batch(example: Example) -> None:
    sizes = []
    for batch in (2, 3, 4):
        graph, node = node_of(example, batch)
        needed = (True,) * len(node.inputs)
        found = node.layer.keeps(node.inputs, graph.element_size, needed)
        sizes.append((found.own, found.saved, found.forward, found.backward))
        assert all(isinstance(size, int) and size >= 0 for size in sizes[-1])
        assert set(found.inputs) | set(found.aliased) <= set(range(len(node.inputs)))
        if found.ends:
            assert found == MemoryNeeds(ends=True)
        if found.view:
            assert node.inputs
        if not graph.operations(node, Pass.INPUT_GRADIENT) and not node.num_params:
            assert not found.own  # what has no gradient keeps nothing of its own
    for two, three, four in zip(*sizes, strict=True):
        assert four - three == three - two
