"""Gradients as autograd computes them, each step of a formula by a kernel: bytes by hand."""

from __future__ import annotations

import json
from typing import Any

import paleo
from paleo.cluster.frameworks import FRAMEWORKS
from paleo.core.kinds import Pass
from paleo.net.layers import LAYERS
from paleo.step.passes import computed_by

#: A batch of 2 with 3 rows of 4 numbers, in 4 bytes each, and a number for each of the 4.
SIZE = 4
WHOLE, PART = SIZE * 2 * 3 * 4, SIZE * 4
INPUTS = ((2, 3, 4), (1, 4))


def apart(kind: str, inputs: Any, needed: Any, **keys: Any) -> list[tuple[Any, Any]]:
    found = LAYERS[kind](**keys).gradients_apart(inputs, SIZE, needed)
    return [(each.reads, each.writes) for each in found]


def test_a_product_with_what_is_repeated_is_as_large_as_the_output_before_it_is_summed() -> None:
    # g b; g a, which is written as large as a, and read again for its sum.
    assert apart("Elementwise", INPUTS, (True, True), function="product") == [
        ((WHOLE, PART), (WHOLE,)),
        ((WHOLE, WHOLE), (WHOLE,)),
        ((WHOLE,), (PART,)),
    ]
    # What nobody needs is not computed, and what it takes is not read.
    assert apart("Elementwise", INPUTS, (True, False), function="product") == [
        ((WHOLE, PART), (WHOLE,))
    ]


def test_a_divisor_takes_four_passes_and_a_sum() -> None:
    # g / b; then -g, a / b, (a / b) / b, their product, and its sum.
    assert apart("Elementwise", INPUTS, (True, True), function="quotient") == [
        ((WHOLE, PART), (WHOLE,)),
        ((WHOLE,), (WHOLE,)),
        ((WHOLE, PART), (WHOLE,)),
        ((WHOLE, PART), (WHOLE,)),
        ((WHOLE, WHOLE), (WHOLE,)),
        ((WHOLE,), (PART,)),
    ]


def test_of_other_functions_it_is_as_elsewhere() -> None:
    layer = LAYERS["Elementwise"](function="sum")
    needed = (True, True)
    assert layer.gradients_apart(INPUTS, SIZE, needed) == layer.input_gradient(INPUTS, SIZE, needed)


def test_a_length_of_one_is_a_quotient_by_the_length() -> None:
    rows = SIZE * 2 * 3
    assert apart("L2Norm", INPUTS[:1], (True,)) == [
        ((WHOLE, rows), (WHOLE,)),  # g / |x|
        ((WHOLE,), (WHOLE,)),  # -g
        ((WHOLE, rows), (WHOLE,)),  # x / |x|
        ((WHOLE, rows), (WHOLE,)),  # and again
        ((WHOLE, WHOLE), (WHOLE,)),  # their product
        ((WHOLE,), (rows,)),  # its sum: the gradient of |x|
        ((WHOLE, rows), (WHOLE,)),  # times x / |x|
        ((WHOLE, WHOLE), (WHOLE,)),  # the sum of both
    ]


def test_the_gradient_of_a_multiple_takes_no_input() -> None:
    (found,) = LAYERS["Activation"](function="affine").operations(
        Pass.INPUT_GRADIENT, INPUTS[:1], SIZE
    )
    assert (found.reads, found.writes) == ((WHOLE,), (WHOLE,))


def test_eager_frameworks_have_them_so_and_compiled_ones_do_not() -> None:
    layers = {
        "data": {"type": "Input", "parents": [], "tensor": [2, 3, 4]},
        "scale": {"type": "Parameter", "parents": [], "shape": [4]},
        "y": {"type": "Elementwise", "parents": ["data", "scale"], "function": "product"},
    }
    graph = paleo.build(paleo.loads(json.dumps({"name": "scaled", "layers": layers})))
    eager = FRAMEWORKS["pytorch"]
    assert eager.compiled
    for software, kernels in ((eager, 2), (eager.compiled, 1), (FRAMEWORKS["tensorflow"], 1)):
        found = computed_by(software, graph)
        node = next(each for each in found.nodes if each.name == "y")
        assert len(found.operations(node, Pass.INPUT_GRADIENT, (False, True))) == kernels
