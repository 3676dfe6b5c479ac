"""Layers as the library transformers composes them, of which PyTorch runs each step as a kernel.

The library's models are written in Python, of PyTorch's functions: root mean square normalizations
and rotary embeddings have no kernel of their own there, a function that gates is two, and scores of
words are cast to fp32 before the loss. (transformers 5: models/llama/modeling_llama.py,
LlamaRMSNorm, rotate_half, apply_rotary_pos_emb, LlamaMLP; loss/loss_utils.py, ForCausalLMLoss.
Gradients: PyTorch's tools/autograd/derivatives.yaml.)
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from paleo.core.operations import Kind, Pass
from paleo.core.quantity import Quantity
from paleo.core.tensor import Shapes, num_elements
from paleo.net.composed import SUM, Composed, ComposedGelu, Step
from paleo.net.layers.base import Layer, MemoryNeeds, Operations
from paleo.net.layers.losses import Loss
from paleo.net.layers.normalization import RMSNorm
from paleo.net.layers.pointwise import Activation, Gated
from paleo.net.layers.positions import RotaryEmbedding
from paleo.net.spec import NetSpec

#: Bytes of an element of fp32.
_FULL = 4
#: An operation is handed over in that share of the time that a layer takes, which is Python's own:
#: 12 to 20 us beside 60 to 70 on the host of an H100 (PyTorch 2.11, transformers 5.17: 200 times a
#: product with a number, and layers of BERT-Large).
_HANDED = 0.25

#: Squares and their mean in fp32 (`f`, a number `s` a row), whatever comes.
_NORM = (
    Step("to fp32", "x", "f"),
    Step("squared", "f", "f"),
    Step("mean", "f", "s", SUM),
    Step("epsilon added", "s", "s"),
    Step("1 / root", "s", "s"),
    Step("times that", "fs", "f"),
    Step("from fp32", "f"),
)
_NORM_BACK = (
    Step("gradient to fp32", "x", "f"),
    Step("times x", "ff", "f"),
    Step("summed for 1 / root", "f", "s", SUM),
    Step("gradient times 1 / root", "fs", "f"),
    Step("gradient of 1 / root", "ss", "s"),
    Step("mean's repeated", "s", "f"),
    Step("x doubled", "f", "f"),
    Step("times that", "ff", "f"),
    Step("gradients added", "ff", "f"),
    Step("from fp32", "f"),
)
_SCALED = Step("times the scale", "xc")
_SCALED_WEIGHTS = (Step("gradient times x", "xx"), Step("summed for the scale", "x", "c", SUM))
#: x cos + rotate_half(x) sin: of the half `h` that changes sign, and the other.
_ROTARY = (
    Step("times cosines", "x"),
    Step("half negated", "h", "h"),
    Step("joined", "hh"),
    Step("times sines", "x"),
    Step("added", "xx"),
)
#: Gradients of slices are tensors of zeros with the slice in its place.
_ROTARY_BACK = (
    Step("gradient times sines", "x"),
    Step("half negated", "h", "h"),
    Step("zeros", ""),
    Step("half in its place", "h", "h"),
    Step("zeros", ""),
    Step("other half in its place", "h", "h"),
    Step("halves added", "xx"),
    Step("gradient times cosines", "x"),
    Step("gradients added", "xx"),
)
_GATED = (Step("function", "x", kind=Kind.FUNCTION), Step("times the other", "xx"))
_GATED_BACK = (
    Step("gradient times the other", "xx"),
    Step("gradient times the function", "xx"),
    Step("gradient of the function", "xx", kind=Kind.FUNCTION),
)


def _in_fp32(inputs: Shapes) -> dict[str, Quantity]:
    """Return the bytes of tensors of fp32 by their letters."""
    count, rows = num_elements(inputs[0]), num_elements(inputs[0][:-1])
    return {"f": _FULL * count, "s": _FULL * rows}


def _needed(steps: tuple[Step, ...], element_size: int) -> tuple[Step, ...]:
    """Return the steps that are taken: tensors of fp32 are not cast to it."""
    if element_size < _FULL:
        return steps
    return tuple(step for step in steps if not step.name.endswith(" fp32"))


class _InPython(Composed):
    handed: ClassVar[float] = _HANDED


class ComposedRMSNorm(_InPython, RMSNorm):
    """A root mean square normalization in fp32."""

    def steps_of(self, direction: Pass, element_size: int) -> tuple[Step, ...]:
        scaled = (_SCALED,) * self.affine
        if direction is Pass.FORWARD:
            return _needed(_NORM, element_size) + scaled
        if direction is Pass.INPUT_GRADIENT:
            return scaled + _needed(_NORM_BACK, element_size)
        return _SCALED_WEIGHTS * self.affine

    def sizes(self, inputs: Shapes, element_size: int) -> dict[str, Quantity]:
        return super().sizes(inputs, element_size) | _in_fp32(inputs)

    def keeps(self, inputs: Shapes, element_size: int, needed: tuple[bool, ...]) -> MemoryNeeds:
        # In fp32, what is squared; and what is scaled, in its own type.
        count = num_elements(inputs[0])
        cast, scaled = _FULL * count * (element_size < _FULL), element_size * count * self.affine
        return MemoryNeeds(inputs=(0,), own=cast + scaled, backward=2 * _FULL * count)


class ComposedRotary(_InPython, RotaryEmbedding):
    """A rotary embedding by halves."""

    steps: ClassVar[dict[Pass, tuple[Step, ...]]] = {
        Pass.FORWARD: _ROTARY,
        Pass.INPUT_GRADIENT: _ROTARY_BACK,
    }

    def sizes(self, inputs: Shapes, element_size: int) -> dict[str, Quantity]:
        turned = inputs[0][-1] if self.rotated is None else self.rotated
        size = element_size * num_elements(inputs[0][:-1]) * turned
        return {"x": size, "h": size // 2, "w": element_size * num_elements(inputs[0])}

    def operations(self, direction: Pass, inputs: Shapes, element_size: int) -> Operations:
        found = super().operations(direction, inputs, element_size)
        if self.rotated is None or direction is Pass.WEIGHT_GRADIENT:
            return found
        # What is not turned is taken off before, and joined to the rest behind.
        return (*found, self.step(Step("joined", "w", "w"), direction, inputs, element_size))


class ComposedGated(_InPython, Gated):
    """A function of a gate, and the product with the other factor."""

    steps: ClassVar[dict[Pass, tuple[Step, ...]]] = {
        Pass.FORWARD: _GATED,
        Pass.INPUT_GRADIENT: _GATED_BACK,
    }

    def sizes(self, inputs: Shapes, element_size: int) -> dict[str, Quantity]:
        return {"x": element_size * num_elements(self.infer_shape(inputs))}

    def input_gradient(
        self, inputs: Shapes, element_size: int, needed: tuple[bool, ...]
    ) -> Operations:
        return self.operations(Pass.INPUT_GRADIENT, inputs, element_size)

    def keeps(self, inputs: Shapes, element_size: int, needed: tuple[bool, ...]) -> MemoryNeeds:
        kept = super().keeps(inputs, element_size, needed)
        return kept._replace(own=element_size * num_elements(self.infer_shape(inputs)))


class OwnGelu(_InPython, ComposedGelu):
    """GELU by its tanh."""

    def keeps(self, inputs: Shapes, element_size: int, needed: tuple[bool, ...]) -> MemoryNeeds:
        # Besides x the tanh, and both factors of the last product.
        one = element_size * num_elements(inputs[0])
        return MemoryNeeds(inputs=(0,), own=3 * one, backward=2 * one)


class FullLoss(_InPython, Loss):
    """A loss of scores that are cast to fp32 before."""

    def operations(self, direction: Pass, inputs: Shapes, element_size: int) -> Operations:
        found = Loss.operations(self, direction, inputs, max(element_size, _FULL))
        if element_size >= _FULL or direction is Pass.WEIGHT_GRADIENT:
            return found
        step = Step("to fp32", "x", "f") if direction is Pass.FORWARD else Step("from fp32", "f")
        cast = self.step(step, direction, inputs, element_size)
        return (cast, *found) if direction is Pass.FORWARD else (*found, cast)

    def sizes(self, inputs: Shapes, element_size: int) -> dict[str, Quantity]:
        return super().sizes(inputs, element_size) | _in_fp32(inputs)

    def keeps(self, inputs: Shapes, element_size: int, needed: tuple[bool, ...]) -> MemoryNeeds:
        kept = super().keeps(inputs, max(element_size, _FULL), needed)
        cast = _FULL * num_elements(inputs[0]) * (element_size < _FULL)
        return kept._replace(forward=kept.forward + cast)


def as_composed(net: NetSpec) -> NetSpec:
    """Return a net with the layers that transformers composes in steps.

    Scores are cast in models that are causal alone.
    """
    distinct = {id(spec.layer): spec.layer for spec in net.layers}.values()
    is_causal = all(getattr(layer, "causal", True) for layer in distinct)
    known: dict[int, Layer] = {}  # equal layers are one object, and stay one

    def of(layer: Layer) -> Layer:
        if id(layer) not in known:
            stays = layer.is_loss and not is_causal
            known[id(layer)] = layer if stays else composed(layer)
        return known[id(layer)]

    sweep = net.sweep
    if sweep:
        sweep = replace(sweep, layers={name: of(each) for name, each in sweep.layers.items()})
    layers = tuple(replace(spec, layer=of(spec.layer)) for spec in net.layers)
    return replace(net, layers=layers, sweep=sweep)


def composed(layer: Layer) -> Layer:
    """Return what stands for a layer in transformers, where its code composes it."""
    match layer:
        case Activation(function="gelu", custom=True):
            return OwnGelu(**vars(layer))
        case RMSNorm(num_dims=1):
            return ComposedRMSNorm(**vars(layer))
        case RotaryEmbedding():
            return ComposedRotary(**vars(layer))
        case Gated():
            return ComposedGated(**vars(layer))
        case Loss(function="softmax_cross_entropy", fused=False, stepwise=False):
            return FullLoss(**vars(layer))
    return layer
