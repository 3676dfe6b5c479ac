"""A net from the operators of another framework: what importers speak to.

Shapes, axes and paddings are the source's (images N x C x H x W), whole numbers at the batch that
is traced. Every operator takes a name, such as "layer1/0/conv1", and values, and returns a value;
it raises OperatorError if it does not fit. `paleo.net.importers.builder.layout` says what a value
is, `paleo.net.importers.builder.layers` how layers are made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

from paleo.core.tensor import format_shape
from paleo.net.importers.base import OperatorError
from paleo.net.importers.builder.layers import broadcast, checked, held, make
from paleo.net.importers.builder.layout import BATCH, Group, Pads, Tensor, Value, Weight, Windows
from paleo.net.importers.builder.matmul import Multiplier
from paleo.net.layers import Layer

#: What a function of two tensors is when the other is a single number.
_WITH_A_NUMBER = {
    "power": "power",
    "maximum": "clip",
    "minimum": "clip",
    "compare": "compare",
    "logical": "compare",
}


class Builder(Multiplier):
    """See the module. What moves and what multiplies tensors is in the classes below it."""

    def input(self, name: str, shape: Sequence[int], batch_axis: int | None = 0) -> Value:
        """Return a tensor that is fed; without a batch, it is a constant."""
        sizes = checked(shape)
        if batch_axis is None:
            return self.constant(sizes)
        if len(sizes) > 8:
            raise OperatorError(f"more than 8 dimensions: {format_shape(sizes)}")
        if not any(entry.layer.is_input for entry in self._entries.values()):
            self.traced = sizes[batch_axis]
        elif sizes[batch_axis] != self.traced:
            raise OperatorError(
                f"its batch of {sizes[batch_axis]} is not that of the first input, {self.traced}"
            )
        rest = [axis for axis in range(len(sizes)) if axis != batch_axis]
        if len(sizes) in (4, 5) and batch_axis == 0:
            rest = [*rest[1:], rest[0]]
        axes: list[Group] = [()] * len(sizes)
        axes[batch_axis] = (BATCH,)
        for dim, axis in enumerate(rest, start=1):
            axes[axis] = (dim,)
        dims = [sizes[axis] for axis in rest] or [1]
        layer = self.add(name, make("Input", tensor=(self.traced, *dims)), [])
        entry = self._entries[layer]
        entry.layer = make("Input", tensor=(self.batch, *dims))
        return self.result(layer, sizes, axes)

    def sample(self, name: str, shape: Sequence[int]) -> Value:
        """Return a tensor that is fed and of which all is one sample, whatever its axes are.

        The net is then of one sample, and all its inputs are such: no axis is the batch, so that
        nothing can mix samples.
        """
        sizes = checked(shape)
        self.traced = self.batch = 1
        self.one_sample = True
        own = held(Tensor(name, sizes, False), sizes)
        layer = self.add(name, make("Input", tensor=(1, *(own.dims or (1,)))), [])
        return self.result(layer, sizes, own.axes)

    # Windows

    def _last(self, x: Value, axis: int) -> Value:
        """Return the value in a layer with this axis last, the others as they are."""
        x = self.placed(x)
        if axis == x.batch_axis:
            raise OperatorError("it works across the samples of the batch")
        return self._with_order(x, [*(a for a in x.in_order() if a != axis), axis])

    def _windowed(
        self, name: str, layer: Layer, x: Value, channels: int, shares: str | None = None,
        filters: Sequence[str] = (),
    ) -> Value:  # fmt: skip
        """Add a layer whose output has other spatial sizes and channels than `x`."""
        made = self.add(name, layer, [x.source, *filters], shares)
        spatial = self.dims(made)[-1 - (len(x.shape) - 2) : -1]
        # The output is new: where its channels are is a matter of layout again.
        return self.result(made, (x.shape[0], channels, *spatial), x.axes)

    def _filtered(
        self,
        name: str,
        type_name: str,
        x: Value,
        weights: tuple[Value, Weight],
        channels: int,
        windows: Windows,
        **keys: object,
    ) -> Value:
        """Add a convolution in either direction, with its weight and bias counted once.

        Filters that are constant or computed are an input of the layer.
        """
        own, apart = self._own_bias(*weights)
        held = [each for each in (weights[0], own) if each is not None and each.is_parameter]
        shares, name = self.owner(name, held)
        filters = []
        if not weights[0].is_parameter:
            placed = self.placed(weights[0])
            order = [*range(2, len(placed.shape)), 1, 0]
            filters = [self._with_order(placed, order).source]
        layer = make(
            type_name,
            use_bias=own is not None,
            strides=tuple(windows.strides),
            padding=tuple(windows.pads),
            dilations=_given(windows.dilations),
            groups=windows.groups,
            **keys,
        )
        made = self._windowed(name, layer, x, channels, shares, filters)
        return made if apart is None else self._add_bias(name, made, apart, 1)

    def convolution(
        self, name: str, x: Value, weight: Value, bias: Weight = None, *, windows: Windows
    ) -> Value:
        """Return N x K x P x Q of N x C x H x W and a weight of K x C/groups x R x S."""
        k, seen, *taps = weight.shape
        x = self._image(x, len(taps))
        windows, times = self._of_samples(x, weight, windows)
        size = (*taps, seen, k // times)
        return self._filtered(name, "Convolution", x, (weight, bias), k, windows, filter=size)

    def _of_samples(self, x: Value, weight: Value, windows: Windows) -> tuple[Windows, int]:
        """Return the windows of one sample, and how many samples the channels are of.

        Filters that are computed for each sample are applied to all at once by groups: channels
        and filters then stand in the same axis as the samples.
        """
        mixed = weight.summed and not self.one_sample
        if mixed or (x.batch_axis == 1) != (weight.batch_axis == 0):
            raise OperatorError("it convolves samples of the batch with each other")
        if x.batch_axis != 1:
            return windows, 1
        if windows.groups % self.traced:
            raise OperatorError("it convolves samples of the batch with each other")
        return replace(windows, groups=windows.groups // self.traced), self.traced

    def conv_transpose(
        self,
        name: str,
        x: Value,
        weight: Value,
        bias: Weight = None,
        *,
        windows: Windows,
        output_shape: Sequence[int],
    ) -> Value:
        """Return N x K x `output_shape` of N x C x P x Q and a weight of C x K/groups x R x S."""
        channels_in, given, *taps = weight.shape
        k = given * windows.groups
        x = self._image(x, len(taps))
        windows, times = self._of_samples(x, weight, windows)
        return self._filtered(
            name,
            "Deconvolution",
            x,
            (weight, bias),
            k,
            replace(windows, pads=self._fitting(x, taps, windows, output_shape)),
            filter=(*taps, given, channels_in // times),
            output_shape=(-1, *checked(output_shape), k // times),
        )

    @staticmethod
    def _fitting(
        x: Value, taps: Sequence[int], windows: Windows, output_shape: Sequence[int]
    ) -> Pads:
        """Return pads with which the convolution leads back from the output to the input.

        Output padding makes the output larger than the last window reaches: what is left
        over at its end, the convolution must not look at. Negative pads at the end do the
        same for a smaller one.
        """
        fitted = []
        reach = windows.reach(x.shape[2:], taps)
        axes = zip(reach, windows.strides, output_shape, windows.pads, strict=True)
        for needed, stride, output, (before, after) in axes:
            if not needed <= output + before + after < needed + stride:
                after = needed - output - before
            fitted.append((before, max(after, 0)))
        return fitted

    def pool(
        self,
        name: str,
        x: Value,
        kind: str,
        window: Sequence[int],
        windows: Windows,
        *,
        ceil: bool = False,
    ) -> Value:
        """Return the maximum or the average of each window; `kind` is "max" or "average"."""
        x = self._image(x, len(window))
        layer = _pooling(
            kind,
            window,
            windows.strides,
            padding=tuple(windows.pads),
            rounding="ceil" if ceil else "floor",
            dilations=_given(windows.dilations),
        )
        return self._windowed(name, layer, x, x.shape[1])

    def adaptive_pool(self, name: str, x: Value, kind: str, sizes: Sequence[int]) -> Value:
        """Return an image of these spatial sizes, of windows that cover the whole.

        Where a size does not divide the input's, windows overlap.
        """
        sizes = checked(sizes)
        x = self._image(x, len(sizes))
        whole = x.shape[2:]
        if tuple(sizes) == whole:
            return x
        if any(size > 1 for size in sizes):
            strides = [have // size for have, size in zip(whole, sizes, strict=True)]
            if not all(strides):
                texts = map(format_shape, (whole, sizes))
                raise OperatorError(f"a pooling from {' to '.join(texts)}")
            window = [
                have - (size - 1) * stride
                for have, size, stride in zip(whole, sizes, strides, strict=True)
            ]
            layer = _pooling(kind, window, strides)
        elif len(self.dims(x.source)) > len(x.shape) - 1:
            # What stands before the image belongs to the batch: a window says so.
            layer = _pooling(kind, whole, (1,) * len(whole))
        else:
            layer = make("GlobalPooling", function="maximum" if kind == "max" else "average")
        return self._windowed(name, layer, x, x.shape[1])

    # Normalizations

    def _normalization(
        self, name: str, x: Value, layer: Layer, weights: Sequence[Value] = ()
    ) -> Value:
        shares, name = self.owner(name, weights)
        made = self.add(name, layer, [x.source], shares)
        return self.result(made, x.shape, x.axes, x.moved)

    def _affine(
        self, name: str, type_name: str, x: Value, axis: int, weights: Sequence[Weight],
        holds: Sequence[int], **keys: object,
    ) -> Value:  # fmt: skip
        """Return a normalization, and what is scaled and shifted from `axis` on.

        The layer holds parameters of its own, of a scale and a shift as many as one of `holds`.
        What it cannot hold, and what is computed, is applied behind it; what is constant is not
        counted at all.
        """
        given = [None if w is None or w.is_constant else w for w in weights]
        own = [weight for weight in given if weight is not None and weight.is_parameter]
        fits = given[: len(own)] == own and len(own) in holds
        if not fits or len({self.is_owned(weight) for weight in own}) > 1:
            own = []
        if len(own) == 1 and len(weights) > 1:
            keys["bias_term"] = False
        result = self._normalization(name, x, make(type_name, affine=bool(own), **keys), own)
        for i, function in enumerate(("product", "sum")[: len(given)]):
            weight = given[i]
            if weight is not None and weight not in own:
                suffix = ("scale", "shift")[i]
                result = self._along(f"{name}_{suffix}", function, result, weight, axis)
        return result

    def _of_channels(
        self, name: str, type_name: str, x: Value, weights: Sequence[Weight], **keys: object
    ) -> Value:
        return self._affine(name, type_name, self._image(x), 1, weights, (2,), **keys)

    def batch_norm(self, name: str, x: Value, scale: Weight = None, shift: Weight = None) -> Value:
        """Return channels (axis 1) normalized over the batch; scale and shift are parameters."""
        return self._of_channels(name, "BatchNorm", x, (scale, shift))

    def instance_norm(
        self, name: str, x: Value, scale: Weight = None, shift: Weight = None
    ) -> Value:
        """Return each sample's channels (axis 1) normalized."""
        return self._of_channels(name, "InstanceNorm", x, (scale, shift))

    def group_norm(
        self, name: str, x: Value, groups: int, scale: Weight = None, shift: Weight = None
    ) -> Value:
        """Return groups of channels (axis 1) normalized."""
        return self._of_channels(name, "GroupNorm", x, (scale, shift), num_groups=groups)

    def layer_norm(
        self, name: str, x: Value, num_axes: int, scale: Weight = None, shift: Weight = None,
        *, custom: bool = False,
    ) -> Value:  # fmt: skip
        """Return the last `num_axes` axes normalized, by a layer of the net's own if `custom`."""
        keys = {"custom": True} if custom else {}
        return self._over_last(name, "LayerNorm", x, num_axes, (scale, shift), (1, 2), **keys)

    def rms_norm(self, name: str, x: Value, num_axes: int, scale: Weight = None) -> Value:
        """Return the last `num_axes` axes divided by their root mean square."""
        return self._over_last(name, "RMSNorm", x, num_axes, (scale,), (1,))

    def _over_last(
        self, name: str, type_name: str, x: Value, num_axes: int, weights: Sequence[Weight],
        holds: Sequence[int], **keys: Any,
    ) -> Value:  # fmt: skip
        x = self.placed(x)
        last = list(range(len(x.shape) - num_axes, len(x.shape)))
        if x.batch_axis in last or last[0] < 0:
            raise OperatorError("it normalizes over the samples of the batch")
        order = [*(axis for axis in x.in_order() if axis not in last), *last]
        x = self._with_order(x, order)
        return self._affine(name, type_name, x, last[0], weights, holds, num_dims=num_axes, **keys)

    def lrn(self, name: str, x: Value, size: int) -> Value:
        """Return local response normalization across channels (axis 1)."""
        return self._normalization(name, self._image(x), make("LRN", local_size=size))

    def normalize(self, name: str, x: Value, axis: int) -> Value:
        """Return the elements along an axis brought to a length of 1."""
        return self._normalization(name, self._last(x, x.axis(axis)), make("L2Norm"))

    def scale(
        self, name: str, x: Value, scale: Value, shift: Weight = None, *, axis: int = 1
    ) -> Value:
        """Return x times a parameter of each element of `axis`, and plus another."""
        at = x.axis(axis)
        own = [weight for weight in (scale, shift) if weight is not None]
        fits = scale.shape == (x.shape[at],) and all(weight.is_parameter for weight in own)
        if not fits or at == x.batch_axis:
            return self._scale_widely(name, x, scale, shift, at)
        layer = make("Scale", bias_term=shift is not None)
        return self._normalization(name, self._last(x, at), layer, own)

    def _scale_widely(self, name: str, x: Value, scale: Value, shift: Weight, axis: int) -> Value:
        """Scale by a tensor that covers several axes, beginning with `axis`."""
        result = self._along(name, "product", x, scale, axis)
        return result if shift is None else self._along(f"{name}_shift", "sum", result, shift, axis)

    # Element by element

    def _as_it_is(self, name: str, layer: Layer, x: Value) -> Value:
        x = self.placed(x)
        made = self.add(name, layer, [x.source])
        return self.result(made, x.shape, x.axes, x.moved, x.summed)

    def activation(self, name: str, function: str, x: Value) -> Value:
        """Return a function of each element."""
        if x.is_constant:
            return self.constant(x.shape)
        return self._as_it_is(name, make("Activation", function=function), x)

    def dropout(self, name: str, x: Value, drop_probability: float) -> Value:
        """Return elements set to zero with this probability."""
        keep = 1 - drop_probability
        if keep >= 1 or x.is_constant:
            return x
        layer = make("Dropout", dropout_keep_prob=round(max(keep, 1e-9), 9))
        return self._as_it_is(name, layer, x)

    def prelu(self, name: str, x: Value, weight: Value) -> Value:
        """Return a rectifier with a trained slope for all, or for each channel (axis 1)."""
        count = prod(weight.shape)
        if not weight.is_parameter:
            axis = 1 if count > 1 else len(x.shape) - len(weight.shape)
            return self._along(name, "product", x, weight, axis)
        x = self.placed(x) if count == 1 or len(x.shape) < 2 else self._last(x, 1)
        return self._normalization(name, x, make("PReLU", shared=count == 1), (weight,))

    def softmax(self, name: str, x: Value, axis: int) -> Value:
        """Return scores made probabilities along an axis."""
        x = self.placed(x)
        at = x.axis(axis)
        if at == x.batch_axis:
            raise OperatorError("a softmax over the samples of the batch")
        if not x.axes[at]:
            x = self._last(x, at)
        (dim,) = x.axes[at]
        last = len(x.dims)
        layer = make("Softmax", dim=None if last == 1 else (-1 if dim == last else dim))
        return self._normalization(name, x, layer)

    def elementwise(self, name: str, function: str, values: Sequence[Value], **keys: bool) -> Value:
        """Return a function of one element of each, axes of 1 repeated as NumPy does."""
        shape = values[0].shape
        for value in values[1:]:
            shape = broadcast(shape, value.shape)
        if all(value.is_constant for value in values):
            return self.constant(shape)
        # A single number costs nothing to read.
        many = [v for v in values if not (v.is_constant and prod(v.shape) == 1)]
        if len(many) == 1 and len(values) > 1:
            function = _WITH_A_NUMBER.get(function, "affine")
            result = self.activation(name, function, many[0])
            return self.unsqueeze(name, result, list(range(len(shape) - len(result.shape))))
        return self._join(name, make("Elementwise", function=function, **keys), many, shape)

    # Regions

    def proposals(
        self,
        name: str,
        candidates: Sequence[Value],
        num_regions: int,
        *,
        num_values: int = 4,
        num_compared: int | None = None,
    ) -> Value:
        """Return what is kept of each sample's candidates: (N `num_regions`) x `num_values`."""
        placed = [self.placed(value) for value in candidates if not value.is_constant]
        layer = make(
            "Proposals",
            num_regions=num_regions,
            num_values=num_values,
            num_compared=num_compared,
        )
        made = self.add(name, layer, [value.source for value in placed])
        return self.result(made, (self.traced * num_regions, num_values), [self._rows, (2,)])

    @property
    def _rows(self) -> Group:
        """The dimensions of an axis of regions, which come one sample's after another's."""
        return (1,) if self.one_sample else (BATCH, 1)

    def region_pooling(
        self,
        name: str,
        images: Sequence[Value],
        regions: Value,
        size: Sequence[int],
        mode: str = "align",
        *,
        samples: int | None = None,
        position_sensitive: bool = False,
    ) -> Value:
        """Return (N R) x C x `size` of images N x C x H x W and regions (N R) x numbers."""
        bins = checked(size)
        sources = [self._image(image, 2).source for image in images]
        regions = self.placed(regions)
        if len(regions.shape) != 2 or not (self.one_sample or regions.axes[0][:1] == (BATCH,)):
            raise OperatorError(f"its regions are {format_shape(regions.shape)} and no sample's")
        wanted = [*self._one(regions, 0), *self._one(regions, 1)]
        layer = make(
            "RegionPooling",
            size=bins,
            mode=mode,
            samples=samples,
            position_sensitive=position_sensitive,
        )
        made = self.add(name, layer, [*sources, self.arranged(regions, wanted)])
        shape = (regions.shape[0], self.dims(made)[-1], *bins)
        return self.result(made, shape, [self._rows, (4,), (2,), (3,)])

    # The end of a net

    def loss(self, name: str, function: str, scores: Value, labels: Value | None = None) -> Value:
        """Return a number for each sample."""
        return self._judge(name, make("Loss", function=function), scores, labels)

    def accuracy(self, name: str, scores: Value, labels: Value | None = None) -> Value:
        """Return for each sample whether it is right."""
        return self._judge(name, make("Accuracy"), scores, labels)

    def _judge(self, name: str, layer: Layer, scores: Value, labels: Value | None) -> Value:
        placed = [self.placed(value) for value in (scores, labels) if value is not None]
        made = self.add(name, layer, [value.source for value in placed])
        return self.result(made, (self.traced,), [(BATCH,)])

    def unknown(
        self, name: str, operator: str, inputs: Sequence[Value], shape: Sequence[int]
    ) -> Value:
        """Return what an operator that is not understood gives, at no cost."""
        sizes = checked(shape)
        placed = [self.placed(value) for value in inputs if not value.is_constant]
        if not placed:
            return self.constant(sizes)
        batched = any(value.batched for value in placed)
        fitting = [i for i, size in enumerate(sizes) if size % self.traced == 0]
        own = [i for i in fitting if sizes[i] == self.traced]
        at = next(iter(own or fitting), None) if batched and not self.one_sample else None
        # What is as large as the batch, and is not the batch, is samples against samples.
        whole = [
            self.batch if batched and axis != at and size == self.traced else size
            for axis, size in enumerate(sizes)
        ]
        axes, dims = self._laid_out(whole, at, range(len(sizes)))
        layer = make("Unknown", operator=operator, output_shape=(-1, *(dims or [1])))
        made = self.add(name, layer, [value.source for value in placed])
        return self.result(made, sizes, axes, summed=batched and at is None)


def _given(numbers: Sequence[int] | None) -> tuple[int, ...] | None:
    return tuple(numbers) if numbers else None


def _pooling(kind: str, taps: Sequence[int], strides: Sequence[int], **keys: object) -> Layer:
    type_name = "Pooling" if kind == "max" else "AvgPool"
    keys = {"padding": "VALID", **keys}
    return make(type_name, ksize=tuple(taps), strides=tuple(strides), **keys)
