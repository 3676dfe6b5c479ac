"""What layers say of themselves, so that nobody else has to know their types."""

from __future__ import annotations

from math import prod

import pytest
from layer_examples import EXAMPLES, Example, node_of

from paleo.core.tensor import Shape
from paleo.net.layers import Layer
from paleo.net.layers.convolution import Convolution
from paleo.net.layers.dense import Einsum, Embedding
from paleo.net.layers.losses import Accuracy, Loss
from paleo.net.layers.normalization import BatchNorm
from paleo.net.layers.pointwise import Activation, Elementwise, Sigmoid
from paleo.net.layers.recurrent import RNN
from paleo.net.layers.reshape import Gather, Input


class Plain(Layer):
    """A type of somebody else, which says nothing of itself."""

    def infer_shape(self, inputs: tuple[Shape, ...]) -> Shape:
        return inputs[0]


def test_a_type_that_says_nothing_is_taken_to_be_nothing_special() -> None:
    layer = Plain()
    said = {name: value for name, value in vars(Layer).items() if isinstance(value, bool)}
    assert said.pop("is_known")
    assert len(said) >= 12
    assert not any(said.values())
    assert not layer.leads
    assert not layer.is_source()
    assert layer.parts == (layer,)
    assert layer.keeping_shape() is layer
    assert layer.of_shape((2, 3)) is layer
    assert layer.index_limit(0, ((2, 3),)) is None


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_traits_fit_the_shapes(example: Example) -> None:
    _, node = node_of(example)
    layer, inputs, output = node.layer, node.inputs, node.output
    if layer.keeps_shape:
        assert output == inputs[0]
    if layer.is_view:
        assert layer.only_moves
        assert prod(output) == prod(inputs[0])
    if layer.is_pointwise or layer.takes_statistics:
        assert not layer.only_moves
    if layer.is_transposed:
        assert layer.is_convolution
    if layer.is_loss:
        assert layer.is_judge


def test_a_convolution_is_made_of_what_is_joined_in_it() -> None:
    conv = Convolution(filter=(3, 3, 4, 8), strides=(1, 1, 1, 1), padding="SAME")
    joined = conv.replace(normalizer_fn="bn", activation_fn="tanh")
    assert joined.parts == (conv, BatchNorm(affine=False), Activation(function="tanh"))
    assert conv.replace(activation_fn="linear").parts == (conv,)
    deep = RNN(num_outputs=5, num_layers=2)
    assert deep.parts == (RNN(num_outputs=5),) * 2


def test_which_inputs_are_indices_and_below_what() -> None:
    scores, one, many, dense = (2, 10), (2, 1), (2, 3), (2, 10)
    assert Embedding(num_embeddings=50, num_outputs=4).index_limit(0, (many,)) == 50
    # Labels are classes, unless there are as many as scores, or the loss compares numbers.
    assert Loss().index_limit(1, (scores, one)) == 10
    assert Loss().index_limit(0, (scores, one)) is None
    assert Loss().index_limit(1, (scores, dense)) is None
    assert Loss(function="squared_error").index_limit(1, (scores, one)) is None
    assert Accuracy().index_limit(1, (scores, one)) == 10
    assert Accuracy().index_limit(1, (scores, dense)) is None
    # Of 6 rows of 4 numbers, the second input picks 3; of one input nothing is read as indices.
    gather = Gather(output_shape=(-1, 3, 4))
    assert gather.rows(((2, 6, 4), many)) == (6, 3, (4,))
    assert gather.index_limit(1, ((2, 6, 4), many)) == 6
    assert gather.index_limit(0, ((2, 6, 4), many)) is None


def test_a_sum_does_not_lead_and_products_do() -> None:
    assert not Einsum(equation="nhqk->nq").leads
    assert Einsum(equation="nij,njk->nik").leads
    assert Elementwise().leads


def test_a_sigmoid_of_2017_has_one_that_keeps_the_shape() -> None:
    assert Sigmoid().infer_shape(((4, 7),)) == (4, 1)
    assert Sigmoid().keeping_shape().infer_shape(((4, 7),)) == (4, 7)


def test_an_input_takes_another_shape() -> None:
    assert Input(tensor=(1, 8)).of_shape((5, 8)) == Input(tensor=(5, 8))
