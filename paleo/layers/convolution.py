"""Convolution and its transpose.

Letters: N batch, H x W input, C input channels, R x S filter, K output channels, P x Q
output. A transposed convolution is described by the convolution V that it is the
transpose of: V takes the *output* (N, H, W, C) to the *input* (N, P, Q, K).
"""

from __future__ import annotations

from typing import Any

from paleo.layers.base import (
    Layer,
    Operations,
    ShapeError,
    image,
    layer_type,
    parameter_stream,
    share,
    stream,
)
from paleo.layers.keys import FilterShape, Ignored, Name, PaddingKind, Sizes, Whole, Window, key
from paleo.tensor import Shape, format_shape
from paleo.window import Axis, axes
from paleo.work import Convolution as ConvolutionWork
from paleo.work import Pass

__all__ = ["Convolution", "Deconvolution"]

#: Names of an activation that does nothing.
_IDENTITY = ("linear", "identity", "none")

_STRIDES = "steps of the window, [1, height, width, 1]"
PADDING = (
    '"VALID", "SAME", [p_h, p_w], the elements added on each side, '
    "or [[top, bottom], [left, right]]"
)
_DILATIONS = "steps between the elements of the filter, [1, height, width, 1]"
_GROUPS = "groups of channels; each filter sees those of its own"
_ACTIVATION = "name of a pointwise function applied to the output, or null"
_NORMALIZER = "name of a normalization applied to the output, or null"
_BIAS = "taken for older files and ignored: a bias of K parameters is always counted"


def window_output(along: tuple[Axis, ...], key: str) -> tuple[int, ...]:
    """Return the number of window positions along each axis; raises ShapeError at none."""
    for axis in along:
        if axis.output < 1:
            padded = axis.size + max(axis.total_padding, 0)
            raise ShapeError(
                f"a window of {axis.span} is larger than its padded input of {padded}", key
            )
    return tuple(axis.output for axis in along)


class _Filtered(Layer):
    """What convolutions in either direction share: a bias, an activation, a normalization."""

    activation_fn: str | None = key(Name(optional=True), _ACTIVATION, None)
    normalizer_fn: str | None = key(Name(optional=True), _NORMALIZER, None)
    bias: None = key(Ignored(), _BIAS, None)

    def _after(
        self, direction: Pass, output: Shape, num_biases: int, element_size: int
    ) -> Operations:
        """Return the passes of bias, normalization and activation over the output.

        Their gradients are needed for the filter's, so they belong to that pass, which is
        never skipped. Normalizations read their input twice, for statistics and result.
        """
        active = self.activation_fn if self.activation_fn not in _IDENTITY else None
        if direction is Pass.FORWARD:
            found = stream("bias", output, element_size)
            if self.normalizer_fn:
                found += stream(self.normalizer_fn, output, element_size, reads=2)
            return found + (stream(active, output, element_size) if active else ())
        if direction is Pass.WEIGHT_GRADIENT:
            found = stream(active, output, element_size, reads=2) if active else ()
            if self.normalizer_fn:
                found += stream(self.normalizer_fn, output, element_size, reads=4)
            return found + parameter_stream("bias", output, num_biases, element_size)
        return ()


@layer_type("Convolution")
class Convolution(_Filtered):
    """N x H x W x C to N x P x Q x K by K filters of R x S."""

    filter: tuple[int, ...] = key(
        FilterShape("R, S, C, K", (2,)),
        "[R, S, C, K]; C, the channels that each filter sees, may be -1, derived from the input",
    )
    strides: tuple[int, int] = key(Window(), _STRIDES)
    padding: Any = key(PaddingKind(), PADDING)
    dilations: tuple[int, int] = key(Window(), _DILATIONS, [1, 1, 1, 1])
    groups: int = key(Whole(), _GROUPS, 1)

    def _axes(self, shape: Shape) -> tuple[Axis, ...]:
        _, h, w, c = image(shape)
        k = self.filter[3]
        if c % self.groups or k % self.groups:
            raise ShapeError(
                f"{c} channels and {k} filters do not divide into {self.groups} groups", "groups"
            )
        if self.filter[2] not in (-1, c // self.groups):
            ways = f" in {self.groups} groups" if self.groups > 1 else ""
            raise ShapeError(
                f"the filter takes {self.filter[2]} channels, the input has {c}{ways}", "filter"
            )
        return axes((h, w), self.filter[:2], self.strides, self.padding, self.dilations)

    def infer_shape(self, inputs: tuple[Shape, ...]) -> Shape:
        return (inputs[0][0], *window_output(self._axes(inputs[0]), "filter"), self.filter[3])

    def num_params(self, inputs: tuple[Shape, ...]) -> int:
        r, s, _, k = self.filter
        return r * s * (int(inputs[0][3]) // self.groups) * k + k

    def operations(
        self, direction: Pass, inputs: tuple[Shape, ...], element_size: int
    ) -> Operations:
        along = self._axes(inputs[0])
        n, c, k = inputs[0][0], int(inputs[0][3]), self.filter[3]
        product = ConvolutionWork(direction, n, along, c, k, element_size, groups=self.groups)
        output = (n, *(axis.output for axis in along), k)
        return (product, *self._after(direction, output, k, element_size))

    def shard(self, splits: int) -> Layer:
        if self.groups > 1 and splits > 1:
            raise ShapeError("a convolution in groups cannot be split over devices", "groups")
        r, s, c, k = self.filter
        return self.replace(filter=(r, s, c, share(k, splits, "filter")))


@layer_type("Deconvolution")
class Deconvolution(_Filtered):
    """The transpose of a convolution: N x P x Q x K to `output_shape`."""

    filter: tuple[int, ...] = key(
        FilterShape("R, S, channels out, channels in", (2, 3)),
        "[R, S, channels out, channels in]; either may be -1, derived",
    )
    strides: tuple[int, int] = key(Window(), _STRIDES)
    padding: Any = key(PaddingKind(), PADDING + ", of the convolution that this transposes")
    output_shape: tuple[int, ...] = key(Sizes(rank=4, derived=(0,)), "[N, H, W, C]; N is the batch")

    def _axes(self, shape: Shape) -> tuple[Axis, ...]:
        _, p, q, k = image(shape)
        _, h, w, _ = self.output_shape
        self._check_channels_out()
        if self.filter[3] not in (-1, k):
            raise ShapeError(
                f"the filter takes {self.filter[3]} channels, the input has {k}", "filter"
            )
        along = axes((h, w), self.filter[:2], self.strides, self.padding)
        sizes = window_output(along, "output_shape")
        if sizes != (p, q):
            raise ShapeError(
                f"an output of {h}x{w} needs an input of {format_shape(sizes)}, got {p}x{q}",
                "output_shape",
            )
        return along

    def infer_shape(self, inputs: tuple[Shape, ...]) -> Shape:
        self._axes(inputs[0])
        return (inputs[0][0], *self.output_shape[1:])

    def num_params(self, inputs: tuple[Shape, ...]) -> int:
        # The reference counts a bias for every channel that comes in, not that goes out.
        r, s, _, _ = self.filter
        k = int(inputs[0][3])
        return r * s * self.output_shape[3] * k + k

    def operations(
        self, direction: Pass, inputs: tuple[Shape, ...], element_size: int
    ) -> Operations:
        turned = {
            Pass.FORWARD: Pass.INPUT_GRADIENT,
            Pass.INPUT_GRADIENT: Pass.FORWARD,
            Pass.WEIGHT_GRADIENT: Pass.WEIGHT_GRADIENT,
        }
        n, k = inputs[0][0], int(inputs[0][3])
        product = ConvolutionWork(
            turned[direction],
            n,
            self._axes(inputs[0]),
            self.output_shape[3],
            k,
            element_size,
            transposed=True,
        )
        output = (n, *self.output_shape[1:])
        return (product, *self._after(direction, output, k, element_size))

    def shard(self, splits: int) -> Layer:
        self._check_channels_out()
        r, s, _, k = self.filter
        *front, channels = self.output_shape
        part = share(channels, splits, "output_shape")
        return self.replace(filter=(r, s, part, k), output_shape=(*front, part))

    def _check_channels_out(self) -> None:
        gives, wanted = self.filter[2], self.output_shape[3]
        if gives not in (-1, wanted):
            raise ShapeError(f"the filter gives {gives} channels, output_shape {wanted}", "filter")
