"""Layers that a framework composes of elementary functions, each a kernel that writes its result.

A step is said by what it reads and what it writes, a letter for each tensor: `x` is one of the
layer's own size, `r` one of a number for each row, `c` one of a number for each column, `m` a mask
of a byte for each element.
"""

from __future__ import annotations

from typing import ClassVar

from paleo.core.frozen import NamedTuple
from paleo.core.operations import Kind, Pass, Role, Stream
from paleo.core.quantity import Quantity
from paleo.core.tensor import Shapes, num_elements
from paleo.net.layers.base import Layer, Operations
from paleo.net.layers.normalization import LayerNorm
from paleo.net.layers.pointwise import Activation, Dropout

_SUM = Kind.REDUCTION


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
    Step("mean", "x", "r", _SUM),
    Step("square of the difference", "xr"),
    Step("variance", "x", "r", _SUM),
    Step("s", "rc"),
    Step("x s", "xx"),
    Step("mean s", "xr"),
    Step("shift less that", "xc"),
    Step("sum", "xx"),
)
_NORM_BACK = (
    Step("gradient negated", "x"),
    Step("times s", "xx"),
    Step("summed for the mean", "x", "r", _SUM),
    Step("times the mean", "xr"),
    Step("gradient times s", "xx"),
    Step("gradient times x", "xx"),
    Step("gradients of s added", "xx"),
    Step("times the scale", "xc"),
    Step("summed for the root", "x", "r", _SUM),
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
    Step("summed for the shift", "x", "c", _SUM),
    Step("gradient of s times 1 / root", "xr"),
    Step("summed for the scale", "x", "c", _SUM),
)


class _Composed:
    """What makes a layer of one whose passes are steps."""

    is_pointwise: ClassVar[bool] = False
    #: The steps of each pass.
    steps: ClassVar[dict[Pass, tuple[Step, ...]]]

    def operations(self, direction: Pass, inputs: Shapes, element_size: int) -> Operations:
        count, columns = num_elements(inputs[0]), inputs[0][-1]
        sizes = {
            "x": element_size * count,
            "r": element_size * num_elements(inputs[0][:-1]),
            "c": element_size * columns,
            "m": count,
        }
        return tuple(
            _kernel(step, direction, count, sizes) for step in self.steps.get(direction, ())
        )


def _kernel(step: Step, direction: Pass, count: Quantity, sizes: dict[str, Quantity]) -> Stream:
    reads = tuple(sizes[letter] for letter in step.reads)
    writes = tuple(sizes[letter] for letter in step.writes)
    roles = tuple(
        Role.WEIGHT if letter == "c" else (Role.INPUT if i == 0 else Role.EARLIER_INPUT)
        for i, letter in enumerate(step.reads)
    )
    return Stream(
        step.kind, reads, writes, count, drawn=count * step.drawn, direction=direction,
        roles=roles, function="tanh" if step.kind is Kind.FUNCTION else "", label=step.name,
    )  # fmt: skip


class ComposedGelu(_Composed, Activation):
    """GELU by its tanh, as models of TensorFlow and GPT-2 of transformers compose it."""

    steps: ClassVar[dict[Pass, tuple[Step, ...]]] = {
        Pass.FORWARD: _GELU,
        Pass.INPUT_GRADIENT: _GELU_BACK,
    }


class ComposedDropout(_Composed, Dropout):
    """Dropout as TensorFlow composes it."""

    steps: ClassVar[dict[Pass, tuple[Step, ...]]] = {
        Pass.FORWARD: _DROPOUT,
        Pass.INPUT_GRADIENT: _DROPOUT_BACK,
    }


class ComposedNorm(_Composed, LayerNorm):
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
