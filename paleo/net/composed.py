"""Layers that a framework composes of elementary functions, each a kernel that writes its result.

A step is said by what it reads and what it writes, a letter for each tensor: `x` is one of the
layer's own size, `r` one of a number for each row, `c` one of a number for each column, `m` a mask
of a byte for each element.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from paleo.core.frozen import NamedTuple
from paleo.core.operations import Kind, Pass, Role, Stream
from paleo.core.quantity import Quantity
from paleo.core.tensor import Shapes, num_elements
from paleo.net.layers.base import Layer, Operations
from paleo.net.layers.normalization import LayerNorm
from paleo.net.layers.pointwise import Activation, Dropout

SUM = Kind.REDUCTION


class Step(NamedTuple):
    """One of them; `drawn` tells whether it draws a random number for each element."""

    name: str
    reads: str
    writes: str = "x"
    kind: Kind = Kind.ELEMENTWISE
    drawn: bool = False


#: x (1 + tanh(a (x + b x^3))) / 2: tensorflow/models, official/modeling/activations/gelu.py, and
#: gelu of google-research/bert, modeling.py; the same kernels as of NewGELUActivation, what
#: transformers' activations.py calls gelu_new. Its gradients are those of TensorFlow's
#: python/ops/math_grad.py: of the products, of tanh, of the sum, of the power; then all of x's.
_GELU = (
    Step("cubed", "x"),
    Step("times b", "x"),
    Step("x added", "xx"),
    Step("times a", "x"),
    Step("tanh", "x", kind=Kind.FUNCTION),
    Step("1 added", "x"),
    Step("halved", "x"),
    Step("times x", "xx"),
)
_GELU_BACK = (
    Step("gradient times x", "xx"),
    Step("gradient times the half", "xx"),
    Step("halved", "x"),
    Step("gradient of tanh", "xx", kind=Kind.FUNCTION),
    Step("times a", "x"),
    Step("times b", "x"),
    Step("times 3", "x"),
    Step("squared", "x"),
    Step("times the square", "xx"),
    Step("gradients added", "xxx"),
)
#: tensorflow/python/ops/nn_ops.py, dropout_v2: x is scaled; the mask is what is drawn, compared,
#: and as a number.
_DROPOUT = (
    Step("drawn", "", drawn=True),
    Step("compared", "x", "m"),
    Step("scaled", "x"),
    Step("mask as numbers", "m"),
    Step("times the mask", "xx"),
)
_DROPOUT_BACK = (Step("times the mask", "xx"), Step("scaled", "x"))
#: tensorflow/python/ops/nn_impl.py, moments and batch_normalization, as Keras' LayerNormalization
#: (python/keras/layers/normalization.py, where epsilon is below 0.001001 %) and
#: tf.contrib.layers.layer_norm take them: with s = scale / root, x s + (shift - mean s). What goes
#: over rows alone is left out. Gradients: python/ops/math_grad.py.
_NORM = (
    Step("mean", "x", "r", SUM),
    Step("square of the difference", "xr"),
    Step("variance", "x", "r", SUM),
    Step("s", "rc"),
    Step("x s", "xx"),
    Step("mean s", "xr"),
    Step("shift less that", "xc"),
    Step("sum", "xx"),
)
_NORM_BACK = (
    Step("gradient negated", "x"),
    Step("times s", "xx"),
    Step("summed for the mean", "x", "r", SUM),
    Step("times the mean", "xr"),
    Step("gradient times s", "xx"),
    Step("gradient times x", "xx"),
    Step("gradients of s added", "xx"),
    Step("times the scale", "xc"),
    Step("summed for the root", "x", "r", SUM),
    Step("variance's repeated", "r"),
    Step("divided", "x"),
    Step("difference", "xr"),
    Step("doubled", "x"),
    Step("times the difference", "xx"),
    Step("mean's repeated", "r"),
    Step("divided", "x"),
    Step("gradients added", "xxx"),
)
_NORM_WEIGHTS = (
    Step("summed for the shift", "x", "c", SUM),
    Step("gradient of s times 1 / root", "xr"),
    Step("summed for the scale", "x", "c", SUM),
)


class Composed:
    """What makes a layer of one whose passes are steps."""

    is_pointwise: ClassVar[bool] = False
    #: The steps of each pass, where they are the same for all types of elements.
    steps: ClassVar[dict[Pass, tuple[Step, ...]]] = {}
    #: How long the host takes for a step after the first, beside an operation that is a layer.
    handed: ClassVar[float] = 1

    def steps_of(self, direction: Pass, element_size: int) -> tuple[Step, ...]:
        """Return the steps of a pass over elements of this size."""
        return self.steps.get(direction, ())

    def sizes(self, inputs: Shapes, element_size: int) -> dict[str, Quantity]:
        """Return the bytes of tensors by their letters."""
        return {
            "x": element_size * num_elements(inputs[0]),
            "r": element_size * num_elements(inputs[0][:-1]),
            "c": element_size * inputs[0][-1],
            "m": num_elements(inputs[0]),
        }

    def operations(self, direction: Pass, inputs: Shapes, element_size: int) -> Operations:
        found = tuple(
            self.step(step, direction, inputs, element_size)
            for step in self.steps_of(direction, element_size)
        )
        return (*found[:1], *(replace(step, handed=self.handed) for step in found[1:]))

    def step(self, step: Step, direction: Pass, inputs: Shapes, element_size: int) -> Stream:
        """Return the kernel of a step."""
        sizes, count = self.sizes(inputs, element_size), num_elements(inputs[0])
        roles = tuple(
            Role.WEIGHT if letter == "c" else (Role.INPUT if i == 0 else Role.EARLIER_INPUT)
            for i, letter in enumerate(step.reads)
        )
        reads, writes = (tuple(map(sizes.__getitem__, each)) for each in (step.reads, step.writes))
        return Stream(
            step.kind, reads, writes, count, drawn=count * step.drawn, direction=direction,
            roles=roles, function="tanh" if step.kind is Kind.FUNCTION else "", label=step.name,
        )  # fmt: skip


class ComposedGelu(Composed, Activation):
    """GELU by its tanh, as models of TensorFlow and GPT-2 of transformers compose it."""

    steps: ClassVar[dict[Pass, tuple[Step, ...]]] = {
        Pass.FORWARD: _GELU,
        Pass.INPUT_GRADIENT: _GELU_BACK,
    }


class ComposedDropout(Composed, Dropout):
    """Dropout as TensorFlow composes it."""

    steps: ClassVar[dict[Pass, tuple[Step, ...]]] = {
        Pass.FORWARD: _DROPOUT,
        Pass.INPUT_GRADIENT: _DROPOUT_BACK,
    }


class ComposedNorm(Composed, LayerNorm):
    """A layer normalization as TensorFlow composes it."""

    steps: ClassVar[dict[Pass, tuple[Step, ...]]] = {
        Pass.FORWARD: _NORM,
        Pass.INPUT_GRADIENT: _NORM_BACK,
        Pass.WEIGHT_GRADIENT: _NORM_WEIGHTS,
    }


def composed_gelu(layer: Layer) -> Layer:
    """Return what stands for a layer in a model that composes GELU; else the layer."""
    match layer:
        case Activation(function="gelu"):
            return ComposedGelu(**vars(layer))
    return layer


def composed(layer: Layer) -> Layer:
    """Return what stands for a layer in TensorFlow, where that composes it; else the layer."""
    match layer:
        case Dropout():
            return ComposedDropout(**vars(layer))
        case LayerNorm(num_dims=1, affine=True, bias_term=True):
            return ComposedNorm(**vars(layer))
    return composed_gelu(layer)
