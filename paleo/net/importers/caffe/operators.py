"""What Caffe's layers compute, in the terms of the Builder.

Each type of layer is a function that takes a `Call` and returns the values of its tops. To
add a type, write one and register it with `@operator("Name")`; its parameter message goes
into `messages.txt`. Sizes and roundings are Caffe's own.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from paleo.core.checks import MAX_SIZE
from paleo.core.tensor import format_shape
from paleo.net.importers.base import (
    ImportOptions,
    OperatorError,
    by_word,
    free_name,
    register,
)
from paleo.net.importers.builder.builder import Builder
from paleo.net.importers.builder.layers import make
from paleo.net.importers.builder.layout import Value, Windows, symmetric
from paleo.net.importers.caffe.layers import Layer, canonical


def _parameter_name(layer: Any, index: int) -> str:
    if index >= len(layer.param):
        return ""
    spec = layer.param[index]
    name: str = spec if isinstance(spec, str) else spec.name
    return name


@dataclass
class Call:
    """One layer of a file, with all that it takes to build it."""

    builder: Builder
    file_layer: Layer
    take: Callable[[str], Value | None]
    #: How many elements each parameter of the net has; those that layers share by name are one.
    sizes: dict[str, int]
    options: ImportOptions
    #: The types of all layers of the net.
    kinds: Container[str]

    def __post_init__(self) -> None:
        layer = self.file_layer
        self.layer, self.name, self.kind = layer.message, layer.name, layer.kind
        self.bottoms, self.num_tops = layer.bottoms, len(layer.tops)

    def bottom(self, index: int = 0) -> Value:
        """Return one of its inputs."""
        if index >= len(self.bottoms):
            many = "one bottom" if index == 0 else f"{index + 1} bottoms"
            raise OperatorError(f"it needs {many}, and has {len(self.bottoms) or 'none'}", "bottom")
        value = self.take(self.bottoms[index])
        assert value is not None  # the first of NEEDS are, and those of all other types
        return value

    def optional(self, index: int) -> Value | None:
        """Return an input that it may do without; None if it is not there or has no shape."""
        return self.take(self.bottoms[index]) if index < len(self.bottoms) else None

    def there(self) -> list[Value]:
        """Return those of its inputs that have a shape."""
        values = [self.optional(i) for i in range(len(self.bottoms))]
        return [value for value in values if value is not None]

    def all_bottoms(self) -> list[Value]:
        """Return its inputs, of which it needs at least one."""
        return [self.bottom(i) for i in range(max(1, len(self.bottoms)))]

    def alike_bottoms(self) -> list[Value]:
        """Return its inputs, which must have one shape."""
        values = self.all_bottoms()
        first = values[0].shape
        for value in values:
            if value.shape != first:
                raise OperatorError(
                    "its bottoms differ in shape: "
                    f"{format_shape(first)} and {format_shape(value.shape)}",
                    "bottom",
                )
        return values

    def parameter(self, index: int, shape: Sequence[int], what: str = "weight") -> Value:
        """Return a parameter of its own, or one that it shares by name, by its place among them."""
        size, key = prod(shape), _parameter_name(self.layer, index)
        if not key:
            key = free_name(f"{self.name}_{what}", self.sizes)
        elif self.sizes.get(key, size) != size:
            raise OperatorError(
                f'its parameter "{key}" has {size} elements here and '
                f"{self.sizes[key]} in another layer",
                "param",
            )
        self.sizes[key] = size
        return self.builder.parameter(key, shape)

    def bias(self, has: bool, size: int) -> Value | None:
        """Return a bias, if it has one."""
        return self.parameter(1, (size,), "bias") if has else None


Result = Value | Sequence[Value]
Operator = Callable[[Call], Result]

OPERATORS: dict[str, Operator] = {}
#: How many of its first bottoms a type needs; it does without those behind them, such as labels.
NEEDS: dict[str, int] = {}


def operator(*kinds: str, needs: int | None = None) -> Callable[[Operator], Operator]:
    """Register a function for some types of layers, which may need their first bottoms alone."""
    names = [canonical(kind) for kind in kinds]
    if needs is not None:
        NEEDS.update(dict.fromkeys(names, needs))
    return register(OPERATORS, *names)


def needed(layer: Layer) -> tuple[str, ...]:
    """Return the bottoms of a layer that it cannot do without; one, if it is not understood."""
    return layer.bottoms[: NEEDS.get(layer.kind, None if layer.kind in OPERATORS else 1)]


def positive(param: Any, key: str, least: int = 1) -> int:
    """Return a field that must be a size."""
    number: int = getattr(param, key)
    if not param.HasField(key) and number < least:
        raise OperatorError("it must be given", key)
    if not least <= number <= MAX_SIZE:
        raise OperatorError(f"expected {least} or more, up to {MAX_SIZE}; got {number}", key)
    return number


def rank_of(x: Value, *ranks: int) -> int:
    """Return the number of spatial axes of an image, which must be one of these."""
    rank = len(x.shape) - 2
    if rank not in ranks:
        wanted = "N x C x L x H x W" if ranks == (3,) else "N x C x H x W"
        raise OperatorError(f"its input must be {wanted}, got {format_shape(x.shape)}")
    return rank


def _rank_for(call: Call) -> int:
    """Return the number of spatial axes, which types for volumes want to be 3."""
    return rank_of(call.bottom(), *([3] if call.kind.endswith("3d") else [1, 2, 3]))


#: The fields of an image's height and width.
_SIDES = {f"{what}_{side}" for what in ("kernel", "pad", "stride", "hole") for side in "hw"}
#: The fields of a volume's first axis, as C3D has them.
_DEPTH = {"kernel_size": "kernel_depth", "pad": "temporal_pad", "stride": "temporal_stride"}


def _along(param: Any, key: str, rank: int, default: int | None, least: int) -> list[int]:
    """Return a window's sizes along each spatial axis: given once, or for each, or as h and w."""
    both = [side for side in (f"{key.removesuffix('_size')}_{s}" for s in "hw") if side in _SIDES]
    given = list(getattr(param, key)) or _as_shape(param, key)
    if any(param.HasField(side) for side in both):
        if given:
            raise OperatorError(f"it is given, and so is {both[0]} or {both[1]}", key)
        if rank != 2:
            raise OperatorError(f"images have it, and its input has {rank} spatial axes", both[0])
        if default is None and not all(param.HasField(side) for side in both):
            raise OperatorError(f"{both[0]} and {both[1]} are given together", both[0])
        sizes = [getattr(param, side) if param.HasField(side) else default or 0 for side in both]
    elif len(given) in (1, rank):
        sizes = given * (rank // len(given))
    elif not given and default is not None:
        sizes = [default] * rank
    else:
        raise OperatorError(f"expected 1 number or {rank}, got {len(given) or 'none'}", key)
    if rank == 3 and len(given) < 2 and param.HasField("kernel_depth"):
        depth = _DEPTH.get(key, "")
        sizes[0] = getattr(param, depth) if depth and param.HasField(depth) else default or 0
    for size in sizes:
        if not least <= size <= MAX_SIZE:
            raise OperatorError(f"expected {least} or more, up to {MAX_SIZE}; got {size}", key)
    return sizes


def _as_shape(param: Any, key: str) -> list[int]:
    """Return sizes that are given as a shape, as convolutions of any rank have them."""
    name = f"{key.removesuffix('_size')}_shape"
    return list(getattr(param, name).dim) if name in param.DESCRIPTOR.fields_by_name else []


def _dilations(param: Any, rank: int) -> list[int]:
    key = "dilation"
    if param.hole or param.HasField("hole_h") or param.HasField("hole_w"):
        key = "hole"  # its name in DeepLab
    return _along(param, key, rank, 1, 1)


def _windows_of(call: Call, name: str) -> Any:
    """Return what a layer says of its windows; newer C3D has messages of its own for volumes."""
    volumes = f"{name}3d_param"
    return getattr(call.layer, volumes if call.layer.HasField(volumes) else f"{name}_param")


def _too_large(span: int, size: int, pad: int) -> OperatorError:
    return OperatorError(
        f"a window of {span} is larger than its input of {size} with {pad} on either side",
        "kernel_size",
    )


# Products

_DEPTHWISE = ("depthwiseconvolution", "convolutiondepthwise")


def _filter(call: Call, transposed: bool) -> tuple[Value, Value | None, list[int], Windows]:
    """Return the weight, the bias, the kernel and the windows of a convolution."""
    x, param = call.bottom(), _windows_of(call, "convolution")
    rank, channels = _rank_for(call), x.shape[1]
    if x.axis(param.axis) != 1:
        raise OperatorError("channels other than axis 1 are not read", "axis")
    outputs, groups = positive(param, "num_output"), positive(param, "group")
    if call.kind in _DEPTHWISE and not param.HasField("group"):
        groups = channels
    if channels % groups or outputs % groups:
        raise OperatorError(
            f"{channels} channels and num_output {outputs} do not divide into {groups} groups",
            "group",
        )
    kernel = _along(param, "kernel_size", rank, None, 1)
    first, second = (channels, outputs) if transposed else (outputs, channels)
    weight = call.parameter(0, (first, second // groups, *kernel))
    windows = _steps(param, rank, _dilations(param, rank), groups)
    return weight, call.bias(param.bias_term, outputs), kernel, windows


def _steps(param: Any, rank: int, dilations: list[int], groups: int = 1) -> Windows:
    strides, pads = _along(param, "stride", rank, 1, 1), _along(param, "pad", rank, 0, 0)
    return Windows(strides, symmetric(pads), dilations, groups)


def _sizes_of(x: Value, kernel: Sequence[int], windows: Windows) -> list[int]:
    """Return how many windows there are along each axis; raises where there are none."""
    axes = zip(x.shape[2:], windows.spans(kernel), windows.strides, windows.pads, strict=True)
    sizes = []
    for size, span, stride, (pad, _) in axes:
        if span > size + 2 * pad:
            raise _too_large(span, size, pad)
        sizes.append((size + 2 * pad - span) // stride + 1)
    return sizes


def convolved(call: Call, x: Value) -> tuple[list[int], list[int]]:
    """Return the kernel of `convolution_param`, and how many windows of it there are."""
    param, rank = call.layer.convolution_param, rank_of(x, 2)
    kernel = _along(param, "kernel_size", rank, None, 1)
    return kernel, _sizes_of(x, kernel, _steps(param, rank, _dilations(param, rank)))


def _several(call: Call, apply: Callable[[str, Value], Value]) -> list[Value]:
    """Return what a layer makes of each of its inputs, with the same parameters."""
    values = call.alike_bottoms()
    names = [call.name, *(f"{call.name}_{i + 1}" for i in range(1, len(call.bottoms)))]
    return [apply(name, x) for name, x in zip(names, values, strict=True)]


@operator("Convolution", "DepthwiseConvolution", "ConvolutionDepthwise", "Convolution3D",
          "NdConvolution", "ConvolutionRistretto")  # fmt: skip
def _convolution(call: Call) -> Result:
    weight, bias, kernel, windows = _filter(call, transposed=False)

    def convolve(name: str, x: Value) -> Value:
        _sizes_of(x, kernel, windows)
        return call.builder.convolution(name, x, weight, bias, windows=windows)

    return _several(call, convolve)


@operator("Deconvolution", "DepthwiseDeconvolution", "Deconvolution3D", "DeconvolutionRistretto")
def _deconvolution(call: Call) -> Result:
    weight, bias, kernel, windows = _filter(call, transposed=True)

    def convolve(name: str, x: Value) -> Value:
        reach = windows.reach(x.shape[2:], kernel)
        sizes = [whole - sum(pads) for whole, pads in zip(reach, windows.pads, strict=True)]
        if min(sizes) < 1:
            raise OperatorError(
                f"nothing is left of its output: {format_shape(tuple(sizes))}", "pad"
            )
        return call.builder.conv_transpose(
            name, x, weight, bias, windows=windows, output_shape=sizes
        )

    return _several(call, convolve)


@operator("InnerProduct", "FcRistretto")
def _inner_product(call: Call) -> Result:
    x, param = call.bottom(), call.layer.inner_product_param
    axis = x.axis(param.axis)
    outputs = positive(param, "num_output")
    # A transposed weight has the same elements.
    weight = call.parameter(0, (outputs, prod(x.shape[axis:])))
    return call.builder.linear(call.name, x, weight, call.bias(param.bias_term, outputs), axis=axis)


@operator("Embed")
def _embed(call: Call) -> Result:
    param = call.layer.embed_param
    outputs = positive(param, "num_output")
    weight = call.parameter(0, (positive(param, "input_dim"), outputs))
    rows = call.builder.embedding(call.name, call.bottom(), weight)
    bias = call.bias(param.bias_term, outputs)
    if bias is None:
        return rows
    return call.builder.elementwise(f"{call.name}_add", "sum", [rows, bias])


def _recurrent(call: Call, gates: int, states: int) -> tuple[Value, list[Value], int]:
    """Return all steps, the states after the last, and the number of the next parameter."""
    # A fork had an LSTM of its own before Caffe did.
    older = call.layer.HasField("lstm_param")
    param = call.layer.lstm_param if older else call.layer.recurrent_param
    x, hidden = call.bottom(), positive(param, "num_output")
    if len(x.shape) < 3:
        raise OperatorError(f"its input must be T x N x D, got {format_shape(x.shape)}")
    if len(x.shape) > 3:
        x = call.builder.flatten(f"{call.name}_flat", x, 2)
    exposed = states if param.expose_hidden else 0
    weights = [
        call.parameter(0, (gates * hidden, x.shape[2]), "x"),
        call.parameter(1, (gates * hidden,), "bias"),
    ]
    index = 2
    # The bottoms are the sequence, where it goes on, and what is the same at every step.
    if len(call.bottoms) > 2 + exposed:
        static = call.bottom(2)
        weight = call.parameter(index, (gates * hidden, prod(static.shape[1:])), "static")
        call.builder.linear(f"{call.name}_static", static, weight, axis=1)
        index += 1
    weights.append(call.parameter(index, (gates * hidden, hidden), "hidden"))
    layer = make("LSTM" if gates > 1 else "RNN", num_outputs=hidden, num_biases=1)
    steps = call.builder.recurrent(call.name, layer, x, weights)
    if call.num_tops < 2 or not exposed:
        return steps, [], index + 1
    end = call.builder.slice(f"{call.name}_last", steps, 0, x.shape[0] - 1, 1)
    return steps, [end] * exposed, index + 1


@operator("LSTM")
def _lstm(call: Call) -> Result:
    steps, states, _ = _recurrent(call, 4, 2)
    return [steps, *states]


@operator("RNN")
def _rnn(call: Call) -> Result:
    # What Caffe's gives is a product of the hidden state, and a tanh of that.
    hidden, states, index = _recurrent(call, 1, 1)
    size = hidden.shape[2]
    weight = call.parameter(index, (size, size), "output")
    shift = call.parameter(index + 1, (size,), "shift")
    product = call.builder.linear(f"{call.name}_output", hidden, weight, shift, axis=2)
    return [call.builder.activation(f"{call.name}_tanh", "tanh", product), *states]


# Pooling

_KINDS = ("max", "average", "average")  # stochastic pooling reads a window once, as an average


@operator("Pooling", "Pooling3D", "NdPooling")
def _pooling(call: Call) -> Result:
    x, param = call.bottom(), _windows_of(call, "pooling")
    rank, kind = _rank_for(call), _KINDS[param.pool]
    if param.global_pooling:
        pooled = call.builder.adaptive_pool(call.name, x, kind, [1] * rank)
        return [pooled] * call.num_tops
    kernel = _along(param, "kernel_size", rank, None, 1)
    windows = _steps(param, rank, _along(param, "dilation", rank, 1, 1))
    floor = bool(param.round_mode) or not param.ceil_mode
    margins, roundings = [], set()
    is_padded = any(map(any, windows.pads))
    axes = zip(x.shape[2:], windows.spans(kernel), windows.strides, windows.pads, strict=True)
    for size, span, stride, (pad, _) in axes:
        if pad >= span:
            raise OperatorError(f"{pad} is not less than the window, {span}", "pad")
        count, rounding = _windows(size, span, stride, pad, floor, is_padded)
        margins.append((pad, max((count - 1) * stride + span - size - pad, 0)))
        roundings.add(rounding)
    # Where symmetric padding gives the same sizes, it is what the file says.
    as_written = len(roundings - {"either"}) < 2 and "neither" not in roundings
    if not as_written:
        windows = replace(windows, pads=margins)
    ceil = as_written and "ceil" in roundings
    pooled = call.builder.pool(call.name, x, kind, kernel, windows, ceil=ceil)
    # A second top says where each maximum was; what undoes the pooling reads it.
    return [pooled] * call.num_tops


def _windows(
    size: int, span: int, stride: int, pad: int, floor: bool, padded: bool
) -> tuple[int, str]:
    """Return how many windows there are along an axis, and which rounding gives as many.

    Caffe drops a last window that begins behind the input only where there is padding; the
    "ceil" of Paleo and others always does.
    """
    left = size + 2 * pad - span
    count = (left // stride if floor else -(-left // stride)) + 1
    behind = (count - 1) * stride >= size + pad
    if padded and behind:
        count -= 1
    if count < 1:
        raise _too_large(span, size, pad)
    if count == left // stride + 1:
        return count, "floor" if left % stride else "either"
    if left >= 0 and not behind:
        return count, "ceil"
    return count, "neither"


@operator("SPP")
def _spatial_pyramid(call: Call) -> Result:
    x, param = call.bottom(), call.layer.spp_param
    height = positive(param, "pyramid_height")
    if 2 ** (height - 1) > min(x.shape[2:], default=1):
        raise OperatorError(
            f"{height} levels are too many for {format_shape(x.shape)}", "pyramid_height"
        )
    levels = []
    for level in range(height):
        name = f"{call.name}_{level}"
        sizes = [2**level] * rank_of(x, 1, 2, 3)
        pooled = call.builder.adaptive_pool(name, x, _KINDS[param.pool], sizes)
        levels.append(call.builder.flatten(f"{name}_flat", pooled))
    return call.builder.concat(call.name, levels, 1)


# The end of a net

LOSSES = by_word(
    {
        "softmax_cross_entropy": "softmaxwithloss softmaxloss voxelsoftmaxloss softmaxwithlossohem",
        "sigmoid_cross_entropy": "sigmoidcrossentropyloss",
        "cross_entropy": "multinomiallogisticloss infogainloss",
        "squared_error": "euclideanloss",
        "absolute_error": "l1loss",
        "smooth_absolute_error": "smoothl1loss smoothl1lossohem",
        "hinge": "hingeloss",
        "contrastive": "contrastiveloss",
        "other": "tripletloss ctcloss focalloss softmaxwithfocalloss diceloss",
    }
)


#: What only judges, or gives nothing on: it can do without labels.
JUDGES = frozenset(LOSSES) | {"accuracy", "multilabelaccuracy", "segaccuracy", "silence"}


def labels(call: Call, index: int, scores: Value) -> Value | None:
    """Return labels, if they are there and are those of these scores."""
    labels = call.optional(index)
    fits = labels is not None and labels.batched and labels.shape[:1] == scores.shape[:1]
    return labels if fits else None


@operator(*LOSSES, needs=1)
def _loss(call: Call) -> Result:
    scores = call.bottom()
    loss = call.builder.loss(call.name, LOSSES[call.kind], scores, labels(call, 1, scores))
    if call.num_tops < 2:
        return loss
    if call.kind == "smoothl1lossohem":
        return [loss, loss]  # of all regions, and of each
    axis = scores.axis(call.layer.softmax_param.axis)
    return [loss, call.builder.softmax(f"{call.name}_scores", scores, axis), loss]


@operator("MultiBoxLoss", needs=3)
def _multi_box_loss(call: Call) -> Result:
    boxes, classes = call.bottom(0), call.bottom(1)
    truth = labels(call, 3, boxes)
    places = call.builder.loss(f"{call.name}_loc", "smooth_absolute_error", boxes, truth)
    call.builder.loss(f"{call.name}_conf", "softmax_cross_entropy", classes, truth)
    return places


@operator("Accuracy", "MultiLabelAccuracy", "SegAccuracy", needs=1)
def _accuracy(call: Call) -> Result:
    # A second top has the accuracy of each class.
    scores = call.bottom()
    found = call.builder.accuracy(call.name, scores, labels(call, 1, scores))
    return [found] * max(1, call.num_tops)
