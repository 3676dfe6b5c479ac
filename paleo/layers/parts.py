"""What a layer is made of, where a net file joins several into one."""

from __future__ import annotations

import functools

from paleo.layers.base import Layer
from paleo.layers.convolution import Filtered
from paleo.layers.normalization import BatchNorm
from paleo.layers.pointwise import FUNCTIONS, Activation
from paleo.layers.recurrent import RNN

__all__ = ["made_of"]


@functools.lru_cache(maxsize=1024)
def made_of(layer: Layer) -> tuple[Layer, ...]:
    """Return the layers that run one after the other as this one."""
    if isinstance(layer, RNN):
        return (layer.replace(num_layers=1),) * layer.num_layers
    if not isinstance(layer, Filtered):
        return (layer,)
    found: tuple[Layer, ...] = (layer.replace(activation_fn=None, normalizer_fn=None),)
    if layer.normalizer_fn:
        found += (BatchNorm(affine=False),)
    if layer.activation:
        function = layer.activation if layer.activation in FUNCTIONS else "other"
        found += (Activation(function=function),)
    return found
