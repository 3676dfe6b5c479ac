"""Convolution and its transpose, of sequences, images and volumes.

Letters: N batch, H x W input, C input channels, R x S filter, K output channels, P x Q
output; a sequence has one spatial dimension and a volume three, in the place of H x W. A
transposed convolution is described by the convolution V that it is the transpose of: V
takes the *output* (N, H, W, C) to the *input* (N, P, Q, K).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from paleo.core.operations import TURNED, Pass, Stream
from paleo.core.operations import Convolution as ConvolutionWork
from paleo.core.quantity import product
from paleo.core.tensor import Shape, Shapes, format_shape
from paleo.core.window import Axis, axes
from paleo.net.layers.base import (
    TERMS,
    Divided,
    Layer,
    MemoryNeeds,
    Operations,
    ShapeError,
    bias_stream,
    image,
    layer_type,
    share,
)
from paleo.net.layers.fields import (
    FilterShape,
    Flag,
    Ignored,
    PaddingKind,
    Sizes,
    Spelling,
    Whole,
    Window,
    key,
)
from paleo.net.layers.functions import FUNCTIONS, spellings
from paleo.net.layers.normalization import LRN, BatchNorm, InstanceNorm, L2Norm, LayerNorm
from paleo.net.layers.pointwise import Activation, Pointwise

#: What the words for an activation mean; the last do nothing.
_ACTIVATIONS = Spelling(
    {name: Activation(function=name) for name in FUNCTIONS}
    | {word: Activation(function=name) for word, name in spellings(FUNCTIONS, "aliases").items()}
    | dict.fromkeys(("linear", "identity", "none"))
)
_BATCH_NORM = BatchNorm(affine=False)
#: What those for a normalization mean.
_NORMALIZERS = Spelling(
    dict.fromkeys(("batch_norm", "batch_normalization", "bn"), _BATCH_NORM)
    | {
        "layer_norm": LayerNorm(num_dims=1, affine=False, bias_term=False),
        "instance_norm": InstanceNorm(affine=False),
        "l2_norm": L2Norm(),
    }
    | dict.fromkeys(("lrn", "local_response_norm"), LRN(local_size=5))
)

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

    leads = True
    num_parents: ClassVar[tuple[int, int | None]] = (1, 2)
    adds_bias: ClassVar[bool] = True
    is_convolution: ClassVar[bool] = True

    filter: tuple[int, ...]
    use_bias: bool | None
    activation_fn: str | None = key(_ACTIVATIONS, _ACTIVATION, default=None)
    normalizer_fn: str | None = key(_NORMALIZERS, _NORMALIZER, default=None)
    bias: None = key(Ignored(), _BIAS, default=None)
    dilations: tuple[int, ...] = key(Window(), _DILATIONS, default=[1, 1, 1, 1])
    groups: int = key(Whole(), _GROUPS, default=1)

    @property
    def rank(self) -> int:
        """The number of spatial dimensions."""
        return len(self.filter) - 2

    @property
    def activation(self) -> Activation | None:
        """Its activation, None if it has none or one that does nothing."""
        active: Activation | None = _ACTIVATIONS.meaning(self.activation_fn)
        return active

    @property
    def normalization(self) -> Pointwise | None:
        """Its normalization, without parameters; None if it has none."""
        normalizing: Pointwise | None = _NORMALIZERS.meaning(self.normalizer_fn)
        return normalizing

    @property
    def parts(self) -> tuple[Layer, ...]:
        convolution = self.replace(activation_fn=None, normalizer_fn=None)
        joined = (self.normalization, self.activation)
        return (convolution, *(layer for layer in joined if layer is not None))

    def keeps(self, inputs: Shapes, element_size: int, needed: tuple[bool, ...]) -> MemoryNeeds:
        """Return what the convolution by itself needs: its input, for the filter's gradient.

        What is joined in it, normalization and activation, is not here.
        """
        if len(inputs) == 1:
            return MemoryNeeds(inputs=(0,))
        return MemoryNeeds(inputs=tuple(k for k in (0, 1) if needed[1 - k]))

    def input_gradient(
        self, inputs: Shapes, element_size: int, needed: tuple[bool, ...]
    ) -> Operations:
        """Return the gradient of the images, and of the filter where that is an input."""
        found = self.operations(Pass.INPUT_GRADIENT, inputs, element_size)
        return tuple(each for each, wanted in zip(found, needed, strict=True) if wanted)

    def _check_filter(self, inputs: Shapes, *channels: int) -> None:
        """Raise ShapeError if a filter that is an input is not as the layer says."""
        if len(inputs) == 1:
            return
        if self.activation_fn or self.normalizer_fn:
            key = "activation_fn" if self.activation_fn else "normalizer_fn"
            raise ShapeError("with a filter that is a parent, it is a layer of its own", key)
        wanted, made = (*self.filter[:-2], *channels), tuple(inputs[1][1:])
        if wanted != made:
            raise ShapeError(
                f"its second parent must be a filter of {format_shape(wanted)}, "
                f"got {format_shape(made)}",
                "parents",
            )

    def num_tensors(self, inputs: Shapes) -> int:
        return (len(inputs) == 1) + (self.use_bias is not False)

    @staticmethod
    def _own(work: ConvolutionWork, inputs: Shapes) -> Operations:
        """Return the products of a pass; a filter that is an input has its gradient with those."""
        if len(inputs) == 1:
            return (work,)
        work = replace(work, filters=inputs[1][0])
        if work.layer_pass is Pass.WEIGHT_GRADIENT:
            return ()
        if work.layer_pass is Pass.FORWARD:
            return (work,)
        return work, replace(work, direction=Pass.WEIGHT_GRADIENT)

    def _check_split(self, splits: int) -> None:
        """Raise ShapeError if it cannot be split over devices."""
        if self.groups > 1 and splits > 1:
            kind = self.type_name.lower()
            raise ShapeError(f"a {kind} in groups cannot be split over devices", "groups")

    def _grown(self, old: int, new: int, others: int) -> tuple[int, int]:
        """Return the groups, and channels of the other side, where those of the input change.

        Each channel by itself stays so: there are as many of the others for each.
        """
        if self.groups == old > 1 and others % old == 0:
            return new, others // old * new
        return self.groups, others

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
        never skipped.
        """

        def pointwise(step: Pass) -> Operations:
            """Return the operations of normalization and activation, called as the file does."""
            layers = (
                (self.normalization, self.normalizer_fn),
                (self.activation, self.activation_fn),
            )
            return tuple(
                replace(operation, label=label or "")
                for layer, label in layers
                if layer
                for operation in layer.operations(step, (output,), element_size)
                if isinstance(operation, Stream)
            )

        if direction is Pass.INPUT_GRADIENT:
            return ()
        bias = bias_stream(direction, output, num_biases, element_size)
        if direction is Pass.FORWARD:
            return (*bias, *pointwise(direction))
        return (*reversed(pointwise(Pass.INPUT_GRADIENT)), *bias)


@layer_type("Convolution")
class Convolution(Filtered):
    """N x H x W x C to N x P x Q x K by K filters of R x S."""

    filter: tuple[int, ...] = key(
        FilterShape("R, S, C, K", (-2,)),
        "[R, S, C, K]; C, the channels that each filter sees, may be -1, derived from the input",
    )
    strides: tuple[int, ...] = key(Window(), _STRIDES)
    padding: Any = key(PaddingKind(), PADDING)
    use_bias: bool = key(Flag(), _USE_BIAS, default=True)

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

    def infer_shape(self, inputs: Shapes) -> Shape:
        along = window_output(self._axes(inputs[0]), "filter")
        batch, _, c = image(inputs[0], self.rank)
        self._check_filter(inputs, c // self.groups, self.filter[-1])
        return (*batch, *along, self.filter[-1])

    def filters(self, inputs: Shapes) -> tuple[int, ...]:
        *window, _, k = self.filter
        seen = int(inputs[0][-1]) // self.groups
        return (k, seen, *window) if len(inputs) == 1 else ()

    def num_params(self, inputs: Shapes) -> int:
        weights = self.filters(inputs)
        return product(weights) * bool(weights) + self.filter[-1] * self.use_bias

    def operations(self, direction: Pass, inputs: Shapes, element_size: int) -> Operations:
        along = self._axes(inputs[0])
        batch, _, c = image(inputs[0], self.rank)
        n, k = product(batch), self.filter[-1]
        work = ConvolutionWork(direction, n, along, int(c), k, element_size, groups=self.groups)
        output = (n, *(axis.output for axis in along), k)
        after = self._after(direction, output, k * self.use_bias, element_size)
        return (*self._own(work, inputs), *after)

    def following(self, before: Shapes, after: Shapes) -> Layer:
        old, new = int(before[0][-1]), int(after[0][-1])
        *window, seen, k = self.filter
        groups, k = self._grown(old, new, k)
        return self.replace(filter=(*window, -1 if seen == -1 else new // groups, k), groups=groups)

    def divided(self, ways: int, inputs: Shapes, axes: tuple[int | None, ...]) -> Divided | None:
        (axis,) = axes
        if axis is None:
            return Divided(self)
        if axis != len(inputs[0]) - 1:
            return None
        *window, seen, k = self.filter
        if self.groups == 1:
            part = seen if seen == -1 else seen // ways
            return Divided(self.replace(filter=(*window, part, k)), TERMS)
        if self.groups % ways:
            return None
        parted = self.replace(filter=(*window, seen, k // ways), groups=self.groups // ways)
        return Divided(parted, axis)

    def split(self, ways: int, inputs: Shapes) -> Divided | None:
        if self.groups > 1 or self.filter[-1] % ways:
            return None
        return Divided(self.shard(ways), len(inputs[0]) - 1)

    def shard(self, splits: int) -> Layer:
        self._check_split(splits)
        *front, k = self.filter
        return self.replace(filter=(*front, share(k, splits, "filter")))


@layer_type("Deconvolution")
class Deconvolution(Filtered):
    """The transpose of a convolution: N x P x Q x K to `output_shape`."""

    is_transposed: ClassVar[bool] = True

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
        Flag(optional=True), _USE_BIAS + "; null: for each channel in, as in 2017", default=None
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

    def infer_shape(self, inputs: Shapes) -> Shape:
        self._axes(inputs[0])
        batch, _, k = image(inputs[0], self.rank)
        self._check_filter(inputs, self.output_shape[-1] // self.groups, k)
        return (*batch, *self.output_shape[1:])

    def _num_biases(self, channels_in: int) -> int:
        if self.use_bias is None:  # the habit of 2017
            return channels_in
        return self.output_shape[-1] * self.use_bias

    def filters(self, inputs: Shapes) -> tuple[int, ...]:
        made = self.output_shape[-1] // self.groups
        return (int(inputs[0][-1]), made, *self.filter[:-2]) if len(inputs) == 1 else ()

    def num_params(self, inputs: Shapes) -> int:
        weights = self.filters(inputs)
        return product(weights) * bool(weights) + self._num_biases(int(inputs[0][-1]))

    def operations(self, direction: Pass, inputs: Shapes, element_size: int) -> Operations:
        batch, _, channels = image(inputs[0], self.rank)
        n, k = product(batch), int(channels)
        turned, along, made = TURNED[direction], self._axes(inputs[0]), self.output_shape[-1]
        work = ConvolutionWork(
            turned, n, along, made, k, element_size, transposed=True, groups=self.groups
        )
        output = (n, *self.output_shape[1:])
        after = self._after(direction, output, self._num_biases(k), element_size)
        return (*self._own(work, inputs), *after)

    def following(self, before: Shapes, after: Shapes) -> Layer:
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
        has = int(after[0][-1])
        groups, channels = self._grown(int(before[0][-1]), has, channels)
        gives, seen = -1 if gives == -1 else channels // groups, -1 if seen == -1 else has
        return self.replace(
            filter=(*window, gives, seen), output_shape=(n, *grown, channels), groups=groups
        )

    def shard(self, splits: int) -> Layer:
        self._check_split(splits)
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
