"""Caffe's layers that work element by element, normalize, or move elements."""

from __future__ import annotations

import re
from math import prod

from paleo.core.checks import MAX_SIZE
from paleo.core.tensor import format_shape
from paleo.net.importers.base import OperatorError
from paleo.net.importers.builder.layout import Value
from paleo.net.importers.caffe.operators import (
    Call,
    Result,
    operator,
    positive,
    rank_of,
)
from paleo.net.layers.functions import FUNCTIONS, spellings

# Element by element

_FUNCTIONS = spellings(FUNCTIONS, "caffe")


@operator(*_FUNCTIONS)
def _activation(call: Call) -> Result:
    return call.builder.activation(call.name, _FUNCTIONS[call.kind], call.bottom())


@operator("HSigmoid")
def _hard_sigmoid(call: Call) -> Result:
    return call.builder.activation(call.name, "hard_sigmoid", call.bottom())


@operator("ReLU")
def _relu(call: Call) -> Result:
    leaky = call.layer.relu_param.negative_slope != 0
    return call.builder.activation(call.name, "leaky_relu" if leaky else "relu", call.bottom())


@operator("PReLU")
def _prelu(call: Call) -> Result:
    x = call.bottom()
    count = 1 if call.layer.prelu_param.channel_shared else x.shape[x.axis(1)]
    return call.builder.prelu(call.name, x, call.parameter(0, (count,), "slope"))


@operator("Power")
def _power(call: Call) -> Result:
    function = "affine" if call.layer.power_param.power == 1 else "power"
    return call.builder.activation(call.name, function, call.bottom())


@operator("Dropout", "SpatialDropout", "Python.SpatialDropoutLayer")
def _dropout(call: Call) -> Result:
    ratio = call.layer.dropout_param.dropout_ratio
    if found := re.search(r"\bp\W+([\d.]+)", call.layer.python_param.param_str):
        ratio = float(found[1])
    if not 0 <= ratio < 1:
        raise OperatorError(f"expected a number from 0 up to 1, got {ratio}", "dropout_ratio")
    return call.builder.dropout(call.name, call.bottom(), ratio)


@operator("Softmax")
def _softmax(call: Call) -> Result:
    x = call.bottom()
    return call.builder.softmax(call.name, x, x.axis(call.layer.softmax_param.axis))


@operator("Eltwise")
def _eltwise(call: Call) -> Result:
    values = call.alike_bottoms()
    function = ("product", "sum", "maximum")[call.layer.eltwise_param.operation]
    return call.builder.elementwise(call.name, function, values)


def _spread(call: Call, x: Value, other: Value, axis: int) -> Value:
    """Return a factor or summand that covers the axes of `x` from `axis` on."""
    missing = len(x.shape) - axis - len(other.shape)
    if missing < 0 or other.shape != x.shape[axis : axis + len(other.shape)]:
        raise OperatorError(
            f"{format_shape(other.shape)} does not cover {format_shape(x.shape)} "
            f"from axis {axis} on",
            "axis",
        )
    rank = len(other.shape)
    return call.builder.unsqueeze(call.name, other, list(range(rank, rank + missing)))


def _covered(x: Value, axis: int, count: int) -> tuple[int, ...]:
    """Return the shape of a parameter for `count` axes from `axis` on, -1 for all."""
    if count < -1 or axis + count > len(x.shape):
        raise OperatorError(
            f"{format_shape(x.shape)} has no {count} axes from {axis} on", "num_axes"
        )
    return x.shape[axis:] if count == -1 else x.shape[axis : axis + count]


@operator("Scale")
def _scale(call: Call) -> Result:
    x, param = call.bottom(), call.layer.scale_param
    axis = x.axis(param.axis)
    if len(call.bottoms) > 1:
        factor = _spread(call, x, call.bottom(1), axis)
        scaled = call.builder.elementwise(call.name, "product", [x, factor])
        if not param.bias_term:
            return scaled
        summand = _spread(call, x, call.parameter(0, call.bottom(1).shape, "bias"), axis)
        return call.builder.elementwise(f"{call.name}_add", "sum", [scaled, summand])
    shape = _covered(x, axis, param.num_axes)
    own = call.parameter(0, shape, "scale")
    own_shift = call.parameter(1, shape, "bias") if param.bias_term else None
    return call.builder.scale(call.name, x, own, own_shift, axis=axis)


@operator("Bias")
def _bias(call: Call) -> Result:
    x, param = call.bottom(), call.layer.bias_param
    axis = x.axis(param.axis)
    if len(call.bottoms) > 1:
        summand = call.bottom(1)
    else:
        summand = call.parameter(0, _covered(x, axis, param.num_axes), "bias")
    return call.builder.elementwise(call.name, "sum", [x, _spread(call, x, summand, axis)])


@operator("Axpy")
def _axpy(call: Call) -> Result:
    factor, x, summand = call.bottom(0), call.bottom(1), call.bottom(2)
    if len(factor.shape) == len(x.shape):
        factor = call.builder.squeeze(call.name, factor, list(range(2, len(x.shape))))
    scaled = call.builder.elementwise(
        f"{call.name}_scale", "product", [x, _spread(call, x, factor, 0)]
    )
    return call.builder.elementwise(call.name, "sum", [scaled, summand])


# Normalizations


@operator("BatchNorm", "BN")
def _batch_norm(call: Call) -> Result:
    x = call.bottom()
    # The scale and shift are a Scale layer's, but in NVIDIA's fork.
    if call.kind == "batchnorm" and not call.layer.batch_norm_param.scale_bias:
        return call.builder.batch_norm(call.name, x)
    channels = (x.shape[x.axis(1)],)
    scale, shift = call.parameter(0, channels, "scale"), call.parameter(1, channels, "bias")
    return call.builder.batch_norm(call.name, x, scale, shift)


@operator("LRN", "LRNRistretto")
def _lrn(call: Call) -> Result:
    return call.builder.lrn(call.name, call.bottom(), positive(call.layer.lrn_param, "local_size"))


@operator("MVN")
def _mvn(call: Call) -> Result:
    x = call.bottom()
    x.axis(1)
    if len(x.shape) < 3 or call.layer.mvn_param.across_channels:
        return call.builder.layer_norm(call.name, x, len(x.shape) - 1)
    return call.builder.instance_norm(call.name, x)


@operator("Normalize", "L2Normalize", "L2Normalization", "NormLayer")
def _normalize(call: Call) -> Result:
    x, param = call.bottom(), call.layer.norm_param
    unit = call.builder.normalize(call.name, x, x.axis(1))
    if not call.layer.HasField("norm_param"):
        return unit  # other forks' have no parameters
    factor = call.parameter(0, (1,) if param.channel_shared else (x.shape[1],), "scale")
    return call.builder.scale(f"{call.name}_scale", unit, factor, axis=1)


# Moving elements


@operator("Split")
def _split(call: Call) -> Result:
    return [call.bottom()] * max(1, call.num_tops)


@operator("Silence", "HDF5Output", needs=0)
def _nothing(call: Call) -> Result:
    return []


@operator("Parameter")
def _parameter(call: Call) -> Result:
    shape = tuple(call.layer.parameter_param.shape.dim)
    if not shape or not all(1 <= size <= MAX_SIZE for size in shape):
        raise OperatorError(f"expected sizes, got {format_shape(shape) or 'none'}", "shape")
    return call.parameter(0, shape)


@operator("Concat")
def _concat(call: Call) -> Result:
    values, param = call.all_bottoms(), call.layer.concat_param
    key = "concat_dim" if param.HasField("concat_dim") else "axis"
    if param.per_fla_fuse:  # Intel's: it first moves channels last and makes a row of each
        turned = [
            call.builder.transpose(call.name, x, [0, 2, 3, 1]) for x in values if rank_of(x, 2)
        ]
        flat = [call.builder.flatten(f"{call.name}_{i}", x) for i, x in enumerate(turned)]
        rows = call.builder.concat(call.name, flat, 1)
        return call.builder.unsqueeze(call.name, rows, [2, 3])
    axis = values[0].axis(getattr(param, key), key)
    apart = [_rows(call, f"{call.name}_{i}", x) for i, x in enumerate(values)]
    if axis or None in apart:
        return call.builder.concat(call.name, values, axis)
    # More rows of each sample: those of a sample stand beside each other.
    joined = call.builder.concat(call.name, [x for x in apart if x is not None], 1)
    return call.builder.flatten(call.name, joined, 0, 1)


def _rows(call: Call, name: str, x: Value) -> Value | None:
    """Return the rows of each sample as an axis of its own; None where the first axis is other."""
    samples = call.builder.traced
    if x.batch_axis != 0 or x.shape[0] % samples:
        return None
    return call.builder.reshape(name, x, (samples, x.shape[0] // samples, *x.shape[1:]))


@operator("Slice")
def _slice(call: Call) -> Result:
    x, param = call.bottom(), call.layer.slice_param
    key = "slice_dim" if param.HasField("slice_dim") else "axis"
    axis = x.axis(getattr(param, key), key)
    size, count = x.shape[axis], max(1, call.num_tops)
    points = list(param.slice_point)
    if points:
        if len(points) != count - 1:
            raise OperatorError(
                f"expected {count - 1} for {count} tops, got {len(points)}", "slice_point"
            )
        sizes = [end - begin for begin, end in zip([0, *points], [*points, size], strict=True)]
        if min(sizes) < 1:
            raise OperatorError(f"{points} do not rise from 1 to less than {size}", "slice_point")
    elif size % count:
        raise OperatorError(f"{size} does not divide into {count} tops", key)
    else:
        sizes = [size // count] * count
    names = [f"{call.name}_{i + 1}" for i in range(count)]
    samples = call.builder.traced
    apart = None if axis or any(part % samples for part in sizes) else _rows(call, call.name, x)
    if apart is None:
        return call.builder.split(names, x, axis, sizes)
    # As many rows of each sample.
    parts = call.builder.split(names, apart, 1, [part // samples for part in sizes])
    return [call.builder.flatten(name, y, 0, 1) for name, y in zip(names, parts, strict=True)]


@operator("Flatten")
def _flatten(call: Call) -> Result:
    x, param = call.bottom(), call.layer.flatten_param
    begin, end = x.axis(param.axis), x.axis(param.end_axis, "end_axis")
    if begin > end:
        raise OperatorError(f"axis {begin} is behind axis {end}", "end_axis")
    return call.builder.flatten(call.name, x, begin, end)


@operator("Reshape")
def _reshape(call: Call) -> Result:
    x, param = call.bottom(), call.layer.reshape_param
    rank = len(x.shape)
    begin = param.axis if param.axis >= 0 else rank + param.axis + 1
    if not 0 <= begin <= rank:
        raise OperatorError(f"there is no axis {param.axis} in {format_shape(x.shape)}", "axis")
    end = rank if param.num_axes == -1 else begin + param.num_axes
    if not begin <= end <= rank:
        raise OperatorError(
            f"{format_shape(x.shape)} has no {param.num_axes} axes there", "num_axes"
        )
    middle = []
    for i, size in enumerate(param.shape.dim):
        if size == 0 and begin + i >= rank:
            raise OperatorError(f"{format_shape(x.shape)} has no axis {begin + i} to keep", "dim")
        if not -1 <= size <= MAX_SIZE:
            raise OperatorError(f"expected -1, 0 or a size, got {size}", "dim")
        middle.append(x.shape[begin + i] if size == 0 else size)
    shape = [*x.shape[:begin], *middle, *x.shape[end:]]
    left = middle.count(-1)
    known = -prod(shape) if left == 1 else prod(shape)
    if left > 1 or (left and prod(x.shape) % known) or (not left and prod(x.shape) != known):
        wanted = "x".join(map(str, shape))
        raise OperatorError(f"{format_shape(x.shape)} cannot become {wanted}", "dim")
    shape = [prod(x.shape) // known if size == -1 else size for size in shape]
    return call.builder.reshape(call.name, x, shape)


@operator("Permute")
def _permute(call: Call) -> Result:
    x = call.bottom()
    order = list(call.layer.permute_param.order)
    rank = len(x.shape)
    if len(set(order)) < len(order) or not all(0 <= axis < rank for axis in order):
        raise OperatorError(f"{order} is no order of the axes of {format_shape(x.shape)}", "order")
    order += [axis for axis in range(rank) if axis not in order]
    return call.builder.transpose(call.name, x, order)


@operator("Reverse")
def _reverse(call: Call) -> Result:
    return call.builder.rearrange(call.name, call.bottom())


@operator("ShuffleChannel", "ChannelShuffle")
def _shuffle_channel(call: Call) -> Result:
    x = call.bottom()
    groups = positive(call.layer.shuffle_channel_param, "group")
    if x.shape[x.axis(1)] % groups:
        raise OperatorError(f"{x.shape[1]} channels do not divide into {groups} groups", "group")
    return call.builder.rearrange(call.name, x)


@operator("Reorg", "Reorganize")
def _reorg(call: Call) -> Result:
    x = call.bottom()
    layer = call.layer
    param = layer.reorg_param if layer.HasField("reorg_param") else layer.reorganize_param
    stride = positive(param, "stride")
    rank_of(x, 2)
    n, c, h, w = x.shape
    area = stride * stride
    if (c % area) if param.reverse else (h % stride or w % stride):
        raise OperatorError(f"{format_shape(x.shape)} does not divide by {stride}", "stride")
    if param.reverse:
        shape = (n, c // area, h * stride, w * stride)
    else:
        shape = (n, c * area, h // stride, w // stride)
    return call.builder.rearrange(call.name, x, shape)


@operator("Crop")
def _crop(call: Call) -> Result:
    x, reference, param = call.bottom(0), call.bottom(1), call.layer.crop_param
    cut = list(range(x.axis(param.axis), len(x.shape)))
    offsets = list(param.offset) or [0]
    if len(offsets) == 1:
        offsets *= len(cut)
    if len(offsets) != len(cut):
        raise OperatorError(f"expected 1 or {len(cut)}, got {len(offsets)}", "offset")
    if len(reference.shape) != len(x.shape):
        raise OperatorError(
            f"its bottoms differ in rank: {format_shape(x.shape)}, {format_shape(reference.shape)}"
        )
    pads = [(0, 0)] * len(x.shape)
    for i, offset in zip(cut, offsets, strict=True):
        after = x.shape[i] - offset - reference.shape[i]
        if offset < 0 or after < 0:
            raise OperatorError(
                f"no {reference.shape[i]} are left of axis {i} of {format_shape(x.shape)} "
                f"from {offset} on",
                "offset",
            )
        pads[i] = (-offset, -after)
    return call.builder.pad(call.name, x, pads)


@operator("Upsample")
def _upsample(call: Call) -> Result:
    x, param = call.bottom(), call.layer.upsample_param
    rank_of(x, 2)
    sizes = []
    for side, size, whole in zip("hw", x.shape[2:], ("height", "width"), strict=True):
        for key in (f"upsample_{side}", whole):
            if param.HasField(key):
                sizes.append(positive(param, key))
                break
        else:
            # With a mask it undoes a pooling, which halves a size unless something else is said.
            keys = [key for key in (f"scale_{side}", "scale", "stride") if param.HasField(key)]
            if not keys and len(call.bottoms) < 2:
                raise OperatorError("it must be given", "scale")
            factor = positive(param, keys[0]) if keys else 2
            sizes.append(size * factor - getattr(param, f"pad_out_{side}"))
    return call.builder.resize(call.name, x, (*x.shape[:2], *sizes), "nearest")


@operator("Interp")
def _interp(call: Call) -> Result:
    x, param = call.bottom(), call.layer.interp_param
    rank_of(x, 2)
    sizes = [size + param.pad_beg + param.pad_end for size in x.shape[2:]]
    if len(call.bottoms) > 1:
        rank_of(call.bottom(1), 2)
        sizes = list(call.bottom(1).shape[2:])
    elif param.HasField("height") or param.HasField("width"):
        sizes = [positive(param, "height"), positive(param, "width")]
    else:
        shrink, zoom = positive(param, "shrink_factor"), positive(param, "zoom_factor")
        if not param.HasField("shrink_factor") and not param.HasField("zoom_factor"):
            raise OperatorError(
                "height and width, a factor or a second bottom must be given", "height"
            )
        sizes = [(size - 1) // shrink + 1 for size in sizes]
        sizes = [size + (size - 1) * (zoom - 1) for size in sizes]
    if min(sizes) < 1:
        raise OperatorError(f"nothing is left of {format_shape(x.shape)}", "pad_beg")
    mode = "nearest" if param.interp_type.startswith("nearest") else "linear"
    return call.builder.resize(call.name, x, (*x.shape[:2], *sizes), mode)


@operator("Tile")
def _tile(call: Call) -> Result:
    x, param = call.bottom(), call.layer.tile_param
    axis, tiles = x.axis(param.axis), positive(param, "tiles")
    builder = call.builder
    apart = builder.unsqueeze(call.name, x, [axis])
    shape = (*x.shape[:axis], tiles, *x.shape[axis:])
    merged = (*x.shape[:axis], tiles * x.shape[axis], *x.shape[axis + 1 :])
    return builder.reshape(call.name, builder.expand(call.name, apart, shape), merged)


@operator("Reduction")
def _reduction(call: Call) -> Result:
    x, param = call.bottom(), call.layer.reduction_param
    axis = x.axis(param.axis)
    functions = {2: "norm", 3: "norm", 4: "mean"}
    function = functions.get(param.operation, "sum")
    return call.builder.reduce(call.name, function, x, list(range(axis, len(x.shape))), False)


@operator("ArgMax")
def _arg_max(call: Call) -> Result:
    x, param = call.bottom(), call.layer.argmax_param
    top = positive(param, "top_k")
    if param.HasField("axis"):
        axis = x.axis(param.axis)
        best = call.builder.reduce(call.name, "argmax", x, [axis], True)
        return call.builder.expand(call.name, best, (*x.shape[:axis], top, *x.shape[axis + 1 :]))
    best = call.builder.reduce(call.name, "argmax", x, list(range(1, len(x.shape))), False)
    each = call.builder.unsqueeze(call.name, best, [1, 2])
    # Its tops are padded to three axes, the second for indices and values.
    return call.builder.expand(call.name, each, (x.shape[0], 1 + param.out_max_val, top))


# Detection


@operator("PriorBox")
def _prior_box(call: Call) -> Result:
    x, param = call.bottom(), call.layer.prior_box_param
    rank_of(x, 2)
    ratios = [1.0]
    for ratio in param.aspect_ratio:
        if ratio <= 0:
            raise OperatorError(f"expected a number above 0, got {ratio}", "aspect_ratio")
        if all(abs(ratio - known) >= 1e-6 for known in ratios):
            ratios += [ratio, 1 / ratio] if param.flip else [ratio]
    boxes = len(ratios) * max(1, len(param.min_size)) + len(param.max_size)
    # They depend on sizes alone: corners, and variances.
    return call.builder.constant((1, 2, x.shape[2] * x.shape[3] * boxes * 4))


@operator("DetectionOutput", "YoloDetectionOutput", "Yolov3DetectionOutput")
def _detection_output(call: Call) -> Result:
    # How many boxes are left is in the data; a row of 7 numbers says what each is.
    boxes = [value for value in call.all_bottoms() if value.batched]
    kind = call.file_layer.type
    return call.builder.unknown(call.name, kind, boxes, (call.bottom().shape[0], 7))


@operator(
    "DetectionEvaluate", "EvalDetection", "YoloEvalDetection", "MatWrite", "FLOWriter", "IMGWriter",
    "CTCGreedyDecoder", "CTCDecoder", needs=1,
)  # fmt: skip
def _evaluation(call: Call) -> Result:
    # It compares what was found with what is there (a row of 5 numbers for each box), or writes it.
    found, kind = call.bottom(), call.file_layer.type
    made = call.builder.unknown(call.name, kind, [found], (found.shape[0], 5))
    return [made] * call.num_tops
