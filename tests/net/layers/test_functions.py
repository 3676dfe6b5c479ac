"""The table of element functions: one row a function, each of its names once."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from nets_of_tests import make_net

from paleo.net.layers import LAYERS
from paleo.net.layers.functions import (
    ELEMENTWISE,
    FUNCTIONS,
    ElementFunction,
    Gradient,
    spellings,
)
from paleo.net.layers.pointwise import Activation

TABLES = pytest.mark.parametrize("table", [FUNCTIONS, ELEMENTWISE], ids=["one", "several"])


@TABLES
@pytest.mark.parametrize("column", ["aliases", "onnx", "aten", "caffe"])
def test_a_word_means_one_function(table: Mapping[str, ElementFunction], column: str) -> None:
    words = [word for row in table.values() for word in getattr(row, column)]
    assert len(words) == len(set(words))
    if column == "aliases":
        assert not set(words) & set(table)
    assert spellings(table, column) == {
        word: name for name, row in table.items() for word in getattr(row, column)
    }


def test_rows_say_what_a_gradient_takes() -> None:
    # d tanh(x) = 1 - tanh(x)^2 of the output, d x^2 = 2 x of the input, d (2 x + 1) = 2.
    assert FUNCTIONS["tanh"].gradient is Gradient.OUTPUT
    assert FUNCTIONS["power"].gradient is Gradient.INPUT
    assert FUNCTIONS["affine"].gradient is Gradient.NOTHING
    assert FUNCTIONS["sign"].gradient is Gradient.NONE
    assert ELEMENTWISE["sum"].gradient is Gradient.NOTHING
    assert ELEMENTWISE["product"].gradient is Gradient.INPUT


def test_an_alias_is_the_function_that_it_means() -> None:
    assert spellings(FUNCTIONS, "aliases")["swish"] == "silu"
    spec = {"type": "Activation", "parents": ["data"], "function": "swish"}
    data = {"type": "Input", "tensor": [2, 3]}
    net = make_net({"data": data, "act": spec})
    assert net.layers[1].layer == LAYERS["Activation"](function="silu")
    conv = LAYERS["Convolution"](filter=(1, 1, 2, 2), strides=(1, 1, 1, 1), padding="VALID")
    assert conv.replace(activation_fn="swish").parts == (conv, Activation(function="silu"))


def test_an_unknown_function_is_an_error_that_names_the_nearest() -> None:
    kind = Activation.keys["function"].kind
    with pytest.raises(ValueError, match="did you mean"):
        kind.parse("siluu")
