"""Layers of Caffe's forks: of face recognition, optical flow, text and segmentation.

What some of them compute depends on data, or is no operation of the net format. They keep the
shapes of a net, and are listed as not counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from paleo.net.importers.base import OperatorError
from paleo.net.importers.builder.layout import Value, Windows, symmetric
from paleo.net.importers.caffe.operators import (
    Call,
    Result,
    convolved,
    operator,
    positive,
    rank_of,
)

#: How many convolutions a block may have.
_MOST_CONVOLUTIONS = 1000


def _uncounted(call: Call, name: str, values: Sequence[Value], shape: Sequence[int]) -> Value:
    """Return what a layer gives whose shape is known, and whose cost is not."""
    return call.builder.unknown(name, call.file_layer.type, values, shape)


# Faces


@operator("MarginInnerProduct", "LargeMarginInnerProduct", needs=1)
def _margin_inner_product(call: Call) -> Result:
    layer, x = call.layer, call.bottom()
    large = layer.HasField("large_margin_inner_product_param")
    param = layer.large_margin_inner_product_param if large else layer.margin_inner_product_param
    axis, outputs = x.axis(param.axis), positive(param, "num_output")
    weight = call.parameter(0, (outputs, prod(x.shape[axis:])))
    product = call.builder.linear(call.name, x, weight, axis=axis)
    # A second top has how strong the margin is by now.
    return [product, *[call.builder.constant((1,))] * (call.num_tops - 1)]


@operator(
    "LabelSpecificAdd", "LabelSpecificMargin", "LabelSpecificRescale", "SVX", "CombinedMargin",
    "CosinAdd", "CosinMul", "ArcFace", needs=1,
)  # fmt: skip
def _label_specific(call: Call) -> Result:
    """Change each sample's score of the class that is right, and write all scores."""
    margin = [call.builder.constant((1,))] * (call.num_tops - 1)
    return [call.builder.activation(call.name, "affine", call.bottom()), *margin]


@operator("CenterLoss")
def _center_loss(call: Call) -> Result:
    x, labels = call.bottom(), call.bottom(1)
    classes = positive(call.layer.center_loss_param, "num_output")
    centers = call.parameter(0, (classes, prod(x.shape[1:])), "centers")
    # How far each sample is from the center of its class.
    rows = call.builder.embedding(f"{call.name}_centers", labels, centers)
    own = call.builder.reshape(f"{call.name}_own", rows, x.shape)
    return [call.builder.loss(call.name, "squared_error", x, own)] * max(1, call.num_tops)


# Blocks in one layer


@operator("DenseBlock")
def _dense_block(call: Call) -> Result:
    """Convolve all that came before, several times, each time with some channels more."""
    builder, x, param = call.builder, call.bottom(), call.layer.denseblock_param
    rank_of(x, 2)
    growth, count = positive(param, "growthRate"), positive(param, "numTransition")
    if count > _MOST_CONVOLUTIONS:
        raise OperatorError(f"expected up to {_MOST_CONVOLUTIONS}, got {count}", "numTransition")
    # `initChannel` is not asked: files leave it as it was, and later versions take the input's.

    def convolved_after(name: str, y: Value, outputs: int, size: int) -> Value:
        channels = y.shape[1]
        scale, shift = (call.parameter(0, (channels,), f"{name}_{what}") for what in ("s", "b"))
        normal = builder.batch_norm(f"{call.name}_{name}_bn", y, scale, shift)
        active = builder.activation(f"{call.name}_{name}_relu", "relu", normal)
        weight = call.parameter(0, (outputs, channels, size, size), f"{name}_w")
        windows = Windows([1, 1], symmetric([size // 2] * 2), [1, 1])
        return builder.convolution(f"{call.name}_{name}", active, weight, None, windows=windows)

    for i in range(1, count + 1):
        new = x
        if param.use_BC:  # a bottleneck of four times as many channels
            new = convolved_after(f"{i}_1x1", new, 4 * growth, 1)
        new = convolved_after(f"{i}_3x3", new, growth, 3)
        x = builder.concat(f"{call.name}_{i}", [x, new], 1)
    return x


# Optical flow


@operator("Correlation", "Correlation1D")
def _correlation(call: Call) -> Result:
    x, param = call.alike_bottoms()[0], call.layer.correlation_param
    rank_of(x, 2)
    reach, kernel = positive(param, "max_displacement"), positive(param, "kernel_size")
    along = call.kind.endswith("1d")
    border = reach + (kernel - 1) // 2
    borders = ((kernel - 1) // 2 if along else border, border)
    stride, step = positive(param, "stride_1"), positive(param, "stride_2")
    pads = (0 if along else param.pad, param.pad)
    sizes = [
        -(-(size + 2 * pad - 2 * edge) // stride)
        for size, pad, edge in zip(x.shape[2:], pads, borders, strict=True)
    ]
    if min(sizes) < 1:
        raise OperatorError("nothing is left of its output", "max_displacement")
    places = reach // step + 1 if along and param.single_direction else 2 * (reach // step) + 1
    channels = places if along else places**2
    return _uncounted(call, call.name, call.all_bottoms(), (x.shape[0], channels, *sizes))


@operator("FlowWarp", "Warp", "DenseCRF")
def _like_the_first(call: Call) -> Result:
    return _uncounted(call, call.name, call.all_bottoms(), call.bottom().shape)


@operator("ChannelNorm")
def _channel_norm(call: Call) -> Result:
    return call.builder.reduce(call.name, "norm", call.bottom(), [1], True)


@operator("Resample", "Downsample")
def _resample(call: Call) -> Result:
    x, layer = call.bottom(), call.layer
    rank_of(x, 2)
    if len(call.bottoms) > 1:
        sizes = call.bottom(1).shape[2:]
    elif call.kind == "resample" and layer.resample_param.HasField("factor"):
        sizes = tuple(int(size * layer.resample_param.factor) for size in x.shape[2:])
    else:
        top = "top_" if call.kind == "downsample" else ""
        param = getattr(layer, f"{call.kind}_param")
        sizes = (positive(param, f"{top}height"), positive(param, f"{top}width"))
    mode = "nearest" if layer.resample_param.type == 1 else "linear"
    return call.builder.resize(call.name, x, (*x.shape[:2], *sizes), mode)


@operator("SpatialTransformer")
def _spatial_transformer(call: Call) -> Result:
    x, param = call.bottom(), call.layer.st_param
    rank_of(x, 2)
    sizes = [
        positive(param, key) if param.HasField(key) else size
        for key, size in zip(("output_H", "output_W"), x.shape[2:], strict=True)
    ]
    return _uncounted(call, call.name, call.all_bottoms(), (*x.shape[:2], *sizes))


# Text


@operator("Im2col")
def _im2col(call: Call) -> Result:
    x = call.bottom()
    kernel, sizes = convolved(call, x)
    columns = x
    for axis, (size, count) in enumerate(zip(kernel, sizes, strict=True), start=2):
        places = call.builder.constant((size * count,))
        columns = call.builder.gather(f"{call.name}_axis_{axis}", columns, places, axis)
    shape = (x.shape[0], x.shape[1] * prod(kernel), *sizes)
    return call.builder.rearrange(call.name, columns, shape)


@operator("Transpose")
def _transpose(call: Call) -> Result:
    order = list(call.layer.transpose_param.dim)
    return call.builder.transpose(call.name, call.bottom(), order)


# Segmentation


@operator("CReLU")
def _crelu(call: Call) -> Result:
    x = call.bottom()
    negative = call.builder.activation(f"{call.name}_negative", "affine", x)
    both = call.builder.concat(f"{call.name}_both", [x, negative], 1)
    return call.builder.activation(call.name, "relu", both)


@operator("Unpooling")
def _unpooling(call: Call) -> Result:
    x, param = call.bottom(), call.layer.unpooling_param
    rank_of(x, 2)
    sides = [param.unpool_h or param.unpool_size, param.unpool_w or param.unpool_size]
    if not all(sides):
        raise OperatorError("it must be given", "unpool_size")
    return call.builder.resize(call.name, x, (*x.shape[:2], *sides), "nearest")


@operator("MultiStageMeanfield")
def _mean_field(call: Call) -> Result:
    """Refine scores by those of places nearby and of the same color, several times."""
    builder, unary, scores, image = call.builder, *(call.bottom(i) for i in range(3))
    channels = unary.shape[1]
    rank_of(unary, 2)
    weights = [
        call.parameter(i, (channels, channels), name)
        for i, name in enumerate(("spatial", "bilateral", "compatibility"))
    ]
    count = call.layer.multi_stage_meanfield_param.num_iterations
    if not 1 <= count <= 100:
        raise OperatorError(f"expected 1 to 100, got {count}", "num_iterations")

    def mixed(name: str, x: Value, index: int) -> Value:
        """Return a product of every place's scores."""
        turned = builder.transpose(name, x, [0, 2, 3, 1])
        product = builder.linear(name, turned, weights[index], axis=3)
        return builder.transpose(name, product, [0, 3, 1, 2])

    for i in range(count):
        name = f"{call.name}_{i + 1}"
        shares = builder.softmax(f"{name}_softmax", scores, 1)
        near = _uncounted(call, f"{name}_near", [shares], shares.shape)
        alike = _uncounted(call, f"{name}_alike", [shares, image], shares.shape)
        both = [mixed(f"{name}_spatial", near, 0), mixed(f"{name}_bilateral", alike, 1)]
        message = builder.elementwise(f"{name}_message", "sum", both)
        pairs = mixed(f"{name}_pairs", message, 2)
        scores = builder.elementwise(f"{name}_scores", "sum", [unary, pairs])
    return scores
