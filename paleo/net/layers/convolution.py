"""Convolution and its transpose, of sequences, images and volumes.

Letters: N batch, H x W input, C input channels, R x S filter, K output channels, P x Q
output; a sequence has one spatial dimension and a volume three, in the place of H x W. A
transposed convolution is described by the convolution V that it is the transpose of: V
takes the *output* (N, H, W, C) to the *input* (N, P, Q, K).
"""

from __future__ import annotations

from typing import Any

from paleo.layers.base import (
    Kept,
    Layer,
    Operations,
    ShapeError,
    image,
    layer_type,
    parameter_stream,
    share,
    stream,
)
from paleo.layers.keys import (
    FilterShape,
    Flag,
    Ignored,
    Name,
    PaddingKind,
    Sizes,
    Whole,
    Window,
    key,
)
from paleo.quantity import product
from paleo.tensor import Shape, format_shape
from paleo.window import Axis, axes
from paleo.work import Convolution as ConvolutionWork
from paleo.work import Pass

__all__ = ["Convolution", "Deconvolution", "Filtered"]

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
_BIAS = "taken for older files and ignored: see use_bias"
_USE_BIAS = "whether a bias is added, one parameter for each channel out"


def check_ranks(rank: int, **values: Any) -> None:
    """Raise ShapeError if one of the keys has not `rank` spatial dimensions."""
    for name, value in values.items():
        if not isinstance(value, str) and len(value) != rank:
            many = "s" * (len(value) > 1)
            raise ShapeError(
                f"it has {len(value)} spatial dimension{many}, the window has {rank}", name
            )


def steps(dilations: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """Return the dilations of `rank` dimensions: all 1 unless a file says otherwise."""
    if all(step == 1 for step in dilations):
        return (1,) * rank
    check_ranks(rank, dilations=dilations)
    return dilations


def window_output(along: tuple[Axis, ...], key: str) -> tuple[int, ...]:
    """Return the number of window positions along each axis; raises ShapeError at none."""
    for axis in along:
        if axis.output < 1:
            padded = axis.size + max(axis.total_padding, 0)
            raise ShapeError(
                f"a window of {axis.span} is larger than its padded input of {padded}", key
            )
    return tuple(axis.output for axis in along)


class Filtered(Layer):
    """What convolutions in either direction share."""

    filter: tuple[int, ...]
    activation_fn: str | None = key(Name(optional=True), _ACTIVATION, None)
    normalizer_fn: str | None = key(Name(optional=True), _NORMALIZER, None)
    bias: None = key(Ignored(), _BIAS, None)
    dilations: tuple[int, ...] = key(Window(), _DILATIONS, [1, 1, 1, 1])
    groups: int = key(Whole(), _GROUPS, 1)

    @property
    def rank(self) -> int:
        """The number of spatial dimensions."""
        return len(self.filter) - 2

    @property
    def activation(self) -> str | None:
        """The name of its activation, None if it has none or one that does nothing."""
        return None if self.activation_fn in _IDENTITY else self.activation_fn

    def keeps(self, inputs: tuple[Shape, ...], element_size: int, needed: tuple[bool, ...]) -> Kept:
        """Return what the convolution by itself needs: its input, for the filter's gradient.

        What is joined in it, normalization and activation, is not here.
        """
        return Kept(inputs=(0,))

    def _check_groups(self, c: Any, k: Any) -> None:
        """Raise ShapeError if channels in and out do not divide into the groups."""
        if c % self.groups or k % self.groups:
            raise ShapeError(
                f"{c} channels and {k} filters do not divide into {self.groups} groups", "groups"
            )

    def _after(
        self, direction: Pass, output: Shape, num_biases: int, element_size: int
    ) -> Operations:
        """Return the passes of bias, normalization and activation over the output.

        Their gradients are needed for the filter's, so they belong to that pass, which is
        never skipped. Normalizations read their input twice, for statistics and result.
        """
        active = self.activation
        found: Operations = ()
        if direction is Pass.FORWARD:
            if num_biases:
                found += stream("bias", output, element_size)
            if self.normalizer_fn:
                found += stream(self.normalizer_fn, output, element_size, reads=2)
            return found + (stream(active, output, element_size) if active else ())
        if direction is Pass.WEIGHT_GRADIENT:
            if active:
                found += stream(active, output, element_size, reads=2)
            if self.normalizer_fn:
                found += stream(self.normalizer_fn, output, element_size, reads=4)
            if num_biases:
                found += parameter_stream("bias", output, num_biases, element_size)
        return found


@layer_type("Convolution")
class Convolution(Filtered):
    """N x H x W x C to N x P x Q x K by K filters of R x S."""

    filter: tuple[int, ...] = key(
        FilterShape("R, S, C, K", (-2,)),
        "[R, S, C, K]; C, the channels that each filter sees, may be -1, derived from the input",
    )
    strides: tuple[int, ...] = key(Window(), _STRIDES)
    padding: Any = key(PaddingKind(), PADDING)
    use_bias: bool = key(Flag(), _USE_BIAS, True)

    def _axes(self, shape: Shape) -> tuple[Axis, ...]:
        rank = self.rank
        check_ranks(rank, strides=self.strides, padding=self.padding)
        _, sizes, c = image(shape, rank)
        self._check_groups(c, self.filter[-1])
        if self.filter[-2] not in (-1, c // self.groups):
            ways = f" in {self.groups} groups" if self.groups > 1 else ""
            raise ShapeError(
                f"the filter takes {self.filter[-2]} channels, the input has {c}{ways}", "filter"
            )
        dilations = steps(self.dilations, rank)
        return axes(sizes, self.filter[:rank], self.strides, self.padding, dilations)

    def infer_shape(self, inputs: tuple[Shape, ...]) -> Shape:
        along = window_output(self._axes(inputs[0]), "filter")
        batch, _, _ = image(inputs[0], self.rank)
        return (*batch, *along, self.filter[-1])

    def num_params(self, inputs: tuple[Shape, ...]) -> int:
        *window, _, k = self.filter
        seen = int(inputs[0][-1]) // self.groups
        weights: int = product(window) * seen * k
        return weights + k * self.use_bias

    def operations(
        self, direction: Pass, inputs: tuple[Shape, ...], element_size: int
    ) -> Operations:
        along = self._axes(inputs[0])
        batch, _, c = image(inputs[0], self.rank)
        n, k = product(batch), self.filter[-1]
        work = ConvolutionWork(direction, n, along, int(c), k, element_size, groups=self.groups)
        output = (n, *(axis.output for axis in along), k)
        return (work, *self._after(direction, output, k * self.use_bias, element_size))

    def following(self, before: tuple[Shape, ...], after: tuple[Shape, ...]) -> Layer:
        old, new = int(before[0][-1]), int(after[0][-1])
        *window, seen, k = self.filter
        groups = self.groups
        if groups == old > 1 and k % old == 0:  # depthwise: so many filters for each channel
            groups, k = new, k // old * new
        return self.replace(filter=(*window, -1 if seen == -1 else new // groups, k), groups=groups)

    def shard(self, splits: int) -> Layer:
        if self.groups > 1 and splits > 1:
            raise ShapeError("a convolution in groups cannot be split over devices", "groups")
        *front, k = self.filter
        return self.replace(filter=(*front, share(k, splits, "filter")))


@layer_type("Deconvolution")
class Deconvolution(Filtered):
    """The transpose of a convolution: N x P x Q x K to `output_shape`."""

    filter: tuple[int, ...] = key(
        FilterShape("R, S, channels out, channels in", (-2, -1)),
        "[R, S, channels out, channels in]; either may be -1, derived",
    )
    strides: tuple[int, ...] = key(Window(), _STRIDES)
    padding: Any = key(PaddingKind(), PADDING + ", of the convolution that this transposes")
    output_shape: tuple[int, ...] = key(
        Sizes(min_rank=3, derived=(0,)), "[N, H, W, C]; N is the batch"
    )
    use_bias: bool | None = key(
        Flag(optional=True), _USE_BIAS + "; null: for each channel in, as in 2017", None
    )

    def _axes(self, shape: Shape) -> tuple[Axis, ...]:
        rank = self.rank
        check_ranks(rank, strides=self.strides, padding=self.padding)
        _, small, k = image(shape, rank)
        if len(self.output_shape) != rank + 2:
            raise ShapeError(
                f"expected {rank + 2} numbers, as the filter has, got {list(self.output_shape)}",
                "output_shape",
            )
        large, channels = self.output_shape[1:-1], self.output_shape[-1]
        self._check_groups(k, channels)
        self._check_channels_out()
        if self.filter[-1] not in (-1, k):
            raise ShapeError(
                f"the filter takes {self.filter[-1]} channels, the input has {k}", "filter"
            )
        dilations = steps(self.dilations, rank)
        along = axes(large, self.filter[:rank], self.strides, self.padding, dilations)
        sizes = window_output(along, "output_shape")
        if sizes != small:
            raise ShapeError(
                f"an output of {format_shape(large)} needs an input of {format_shape(sizes)}, "
                f"got {format_shape(small)}",
                "output_shape",
            )
        return along

    def infer_shape(self, inputs: tuple[Shape, ...]) -> Shape:
        self._axes(inputs[0])
        batch, _, _ = image(inputs[0], self.rank)
        return (*batch, *self.output_shape[1:])

    def _num_biases(self, channels_in: int) -> int:
        if self.use_bias is None:  # the habit of 2017
            return channels_in
        return self.output_shape[-1] * self.use_bias

    def num_params(self, inputs: tuple[Shape, ...]) -> int:
        k = int(inputs[0][-1])
        window: int = product(self.filter[:-2])
        weights = window * self.output_shape[-1] * k // self.groups
        return weights + self._num_biases(k)

    def operations(
        self, direction: Pass, inputs: tuple[Shape, ...], element_size: int
    ) -> Operations:
        turned = {
            Pass.FORWARD: Pass.INPUT_GRADIENT,
            Pass.INPUT_GRADIENT: Pass.FORWARD,
            Pass.WEIGHT_GRADIENT: Pass.WEIGHT_GRADIENT,
        }
        batch, _, channels = image(inputs[0], self.rank)
        n, k = product(batch), int(channels)
        work = ConvolutionWork(
            turned[direction],
            n,
            self._axes(inputs[0]),
            self.output_shape[-1],
            k,
            element_size,
            transposed=True,
            groups=self.groups,
        )
        output = (n, *self.output_shape[1:])
        return (work, *self._after(direction, output, self._num_biases(k), element_size))

    def following(self, before: tuple[Shape, ...], after: tuple[Shape, ...]) -> Layer:
        *window, gives, seen = self.filter
        n, *large, channels = self.output_shape
        fit = len(window) == len(large) == len(self.strides)
        if not fit or len(before[0]) != len(after[0]):
            return self
        _, old, _ = image(before[0], self.rank)
        _, new, _ = image(after[0], self.rank)
        # Of the sizes that give the new input, those that are as much larger as its steps say.
        grown = (
            size + step * (now - was)
            for size, step, was, now in zip(large, self.strides, old, new, strict=True)
        )
        had, has, groups = int(before[0][-1]), int(after[0][-1]), self.groups
        if groups == had > 1 and channels % had == 0:  # depthwise, as of a convolution
            groups, channels = has, channels // had * has
        return self.replace(
            filter=(
                *window,
                -1 if gives == -1 else channels // groups,
                -1 if seen == -1 else has,
            ),
            output_shape=(n, *grown, channels),
            groups=groups,
        )

    def shard(self, splits: int) -> Layer:
        if self.groups > 1 and splits > 1:
            raise ShapeError("a deconvolution in groups cannot be split over devices", "groups")
        self._check_channels_out()
        *window, _, k = self.filter
        *front, channels = self.output_shape
        part = share(channels, splits, "output_shape")
        gives = part // self.groups
        return self.replace(filter=(*window, gives, k), output_shape=(*front, part))

    def _check_channels_out(self) -> None:
        gives, wanted = self.filter[-2], self.output_shape[-1] // self.groups
        if gives not in (-1, wanted):
            raise ShapeError(f"the filter gives {gives} channels, output_shape {wanted}", "filter")
