"""What Caffe's layers compute, in the terms of the Builder.

Each type of layer is a function that takes a `Call` and returns the values of its tops. To
add a type, write one and register it with `@operator("Name")`; its parameter message goes
into `paleo.importers.caffe.proto`. Sizes and roundings are Caffe's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from paleo.importers.base import OperatorError
from paleo.importers.builder import Builder, Value
from paleo.tensor import format_shape
from paleo.values import MAX_SIZE

__all__ = ["LOSSES", "OPERATORS", "Call", "FieldError", "Parameters", "canonical", "positive"]


class FieldError(OperatorError):
    """What does not fit in one layer, and the field that is to be mended, where it is one."""

    def __init__(self, message: str, key: str | None = None) -> None:
        super().__init__(message)
        self.key = key


class Parameters:
    """The parameters of a net; those that layers share by name are one."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._sizes: dict[str, int] = {}

    def take(self, call: Call, index: int, shape: Sequence[int], what: str) -> Value:
        """Return the parameter of a layer, by its place among them."""
        shared = _parameter_name(call.layer, index)
        key = shared or f"{call.name}_{what}"
        size = prod(shape)
        if not shared:
            number = 1
            while key in self._sizes:
                number += 1
                key = f"{call.name}_{what}_{number}"
        elif self._sizes.get(key, size) != size:
            raise FieldError(
                f'its parameter "{key}" has {size} elements here and '
                f"{self._sizes[key]} in another layer",
                "param",
            )
        self._sizes[key] = size
        return self._builder.parameter(key, shape)


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
    layer: Any
    name: str
    kind: str
    bottoms: Sequence[str]
    num_tops: int
    take: Callable[[str], Value]
    parameters: Parameters

    def bottom(self, index: int = 0) -> Value:
        """Return one of its inputs."""
        if index >= len(self.bottoms):
            many = "one bottom" if index == 0 else f"{index + 1} bottoms"
            raise FieldError(f"it needs {many}, and has {len(self.bottoms) or 'none'}", "bottom")
        return self.take(self.bottoms[index])

    def all_bottoms(self) -> list[Value]:
        """Return its inputs, of which it needs at least one."""
        return [self.bottom(i) for i in range(max(1, len(self.bottoms)))]

    def alike_bottoms(self) -> list[Value]:
        """Return its inputs, which must have one shape."""
        values = self.all_bottoms()
        first = values[0].shape
        for value in values:
            if value.shape != first:
                raise FieldError(
                    "its bottoms differ in shape: "
                    f"{format_shape(first)} and {format_shape(value.shape)}",
                    "bottom",
                )
        return values

    def parameter(self, index: int, shape: Sequence[int], what: str = "weight") -> Value:
        """Return a parameter of its own, or one that it shares by name."""
        return self.parameters.take(self, index, shape, what)

    def bias(self, has: bool, size: int, index: int = 1) -> Value | None:
        """Return a bias, if it has one."""
        return self.parameter(index, (size,), "bias") if has else None


Result = Value | Sequence[Value]
Operator = Callable[[Call], Result]

OPERATORS: dict[str, Operator] = {}


def canonical(kind: str) -> str:
    """Return a type as it is looked up: INNER_PRODUCT and InnerProduct are one."""
    return kind.replace("_", "").lower()


def operator(*kinds: str) -> Callable[[Operator], Operator]:
    """Register a function for some types of layers."""

    def register(function: Operator) -> Operator:
        OPERATORS.update((canonical(kind), function) for kind in kinds)
        return function

    return register


def positive(param: Any, key: str, least: int = 1) -> int:
    """Return a field that must be a size."""
    number: int = getattr(param, key)
    if not param.HasField(key) and number < least:
        raise FieldError("it must be given", key)
    if not least <= number <= MAX_SIZE:
        raise FieldError(f"expected {least} or more, up to {MAX_SIZE}; got {number}", key)
    return number


def axis_of(value: Value, axis: int, key: str = "axis") -> int:
    """Return an axis counted from 0; raises FieldError if the value has none such."""
    rank = len(value.shape)
    if not -rank <= axis < rank:
        raise FieldError(f"there is no axis {axis} in {format_shape(value.shape)}", key)
    return axis % rank


def _rank(x: Value) -> int:
    """Return the number of spatial axes of an image."""
    rank = len(x.shape) - 2
    if not 1 <= rank <= 3:
        raise FieldError(f"its input must be N x C x H x W, got {format_shape(x.shape)}")
    return rank


def _rank_for(call: Call, x: Value) -> int:
    """Return the number of spatial axes, which types for volumes want to be 3."""
    rank = _rank(x)
    if call.kind.endswith("3d") and rank != 3:
        raise FieldError(f"its input must be N x C x L x H x W, got {format_shape(x.shape)}")
    return rank


#: The fields of an image's height and width.
_SIDES = {f"{what}_{side}" for what in ("kernel", "pad", "stride", "hole") for side in "hw"}
#: The fields of a volume's first axis, as C3D has them.
_DEPTH = {"kernel_size": "kernel_depth", "pad": "temporal_pad", "stride": "temporal_stride"}


def _along(param: Any, key: str, rank: int, default: int | None, least: int) -> list[int]:
    """Return a window's sizes along each spatial axis: given once, or for each, or as h and w."""
    both = [side for side in (f"{key.removesuffix('_size')}_{s}" for s in "hw") if side in _SIDES]
    given = list(getattr(param, key))
    if any(param.HasField(side) for side in both):
        if given:
            raise FieldError(f"it is given, and so is {both[0]} or {both[1]}", key)
        if rank != 2:
            raise FieldError(f"images have it, and its input has {rank} spatial axes", both[0])
        if default is None and not all(param.HasField(side) for side in both):
            raise FieldError(f"{both[0]} and {both[1]} are given together", both[0])
        sizes = [getattr(param, side) if param.HasField(side) else default or 0 for side in both]
    elif len(given) in (1, rank):
        sizes = given * (rank // len(given))
    elif not given and default is not None:
        sizes = [default] * rank
    else:
        raise FieldError(f"expected 1 number or {rank}, got {len(given) or 'none'}", key)
    if rank == 3 and len(given) < 2 and param.HasField("kernel_depth"):
        depth = _DEPTH.get(key, "")
        sizes[0] = getattr(param, depth) if depth and param.HasField(depth) else default or 0
    for size in sizes:
        if not least <= size <= MAX_SIZE:
            raise FieldError(f"expected {least} or more, up to {MAX_SIZE}; got {size}", key)
    return sizes


def _dilations(param: Any, rank: int) -> list[int]:
    key = "dilation"
    if param.hole or param.HasField("hole_h") or param.HasField("hole_w"):
        key = "hole"  # its name in DeepLab
    return _along(param, key, rank, 1, 1)


def _windows_of(call: Call, name: str) -> Any:
    """Return what a layer says of its windows; newer C3D has messages of its own for volumes."""
    volumes = f"{name}3d_param"
    return getattr(call.layer, volumes if call.layer.HasField(volumes) else f"{name}_param")


# Products

_DEPTHWISE = ("depthwiseconvolution", "convolutiondepthwise")


@dataclass
class _Filter:
    """What convolutions in either direction have in common."""

    outputs: int
    groups: int
    kernel: list[int]
    strides: list[int]
    pads: list[int]
    dilations: list[int]

    @property
    def spans(self) -> list[int]:
        """How many elements the window reaches over."""
        return [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True)]


def _filter(call: Call) -> _Filter:
    x, param = call.bottom(), _windows_of(call, "convolution")
    rank, channels = _rank_for(call, x), x.shape[1]
    if axis_of(x, param.axis) != 1:
        raise FieldError("channels other than axis 1 are not read", "axis")
    outputs, groups = positive(param, "num_output"), positive(param, "group")
    if call.kind in _DEPTHWISE and not param.HasField("group"):
        groups = channels
    if channels % groups or outputs % groups:
        raise FieldError(
            f"{channels} channels and num_output {outputs} do not divide into {groups} groups",
            "group",
        )
    return _Filter(
        outputs,
        groups,
        _along(param, "kernel_size", rank, None, 1),
        _along(param, "stride", rank, 1, 1),
        _along(param, "pad", rank, 0, 0),
        _dilations(param, rank),
    )


def _several(call: Call, apply: Callable[[str, Value], Value]) -> list[Value]:
    """Return what a layer makes of each of its inputs, with the same parameters."""
    values = call.alike_bottoms()
    names = [call.name, *(f"{call.name}_{i + 1}" for i in range(1, len(call.bottoms)))]
    return [apply(name, x) for name, x in zip(names, values, strict=True)]


@operator("Convolution", "DepthwiseConvolution", "ConvolutionDepthwise", "Convolution3D")
def _convolution(call: Call) -> Result:
    found, param = _filter(call), _windows_of(call, "convolution")
    seen = call.bottom().shape[1] // found.groups
    weight = call.parameter(0, (found.outputs, seen, *found.kernel))
    bias = call.bias(param.bias_term, found.outputs)

    def convolve(name: str, x: Value) -> Value:
        for size, span, pad in zip(x.shape[2:], found.spans, found.pads, strict=True):
            if span > size + 2 * pad:
                raise FieldError(
                    f"a window of {span} is larger than its input of {size} with {pad} on "
                    "either side",
                    "kernel_size",
                )
        return call.builder.convolution(
            name,
            x,
            weight,
            bias,
            strides=found.strides,
            pads=[(pad, pad) for pad in found.pads],
            dilations=found.dilations,
            groups=found.groups,
        )

    return _several(call, convolve)


@operator("Deconvolution", "DepthwiseDeconvolution", "Deconvolution3D")
def _deconvolution(call: Call) -> Result:
    found, param = _filter(call), _windows_of(call, "convolution")
    channels = call.bottom().shape[1]
    weight = call.parameter(0, (channels, found.outputs // found.groups, *found.kernel))
    bias = call.bias(param.bias_term, found.outputs)

    def convolve(name: str, x: Value) -> Value:
        sizes = [
            stride * (size - 1) + span - 2 * pad
            for size, span, stride, pad in zip(
                x.shape[2:], found.spans, found.strides, found.pads, strict=True
            )
        ]
        if min(sizes) < 1:
            raise FieldError(f"nothing is left of its output: {format_shape(tuple(sizes))}", "pad")
        return call.builder.conv_transpose(
            name,
            x,
            weight,
            bias,
            strides=found.strides,
            pads=[(pad, pad) for pad in found.pads],
            dilations=found.dilations,
            groups=found.groups,
            output_shape=sizes,
        )

    return _several(call, convolve)


@operator("InnerProduct")
def _inner_product(call: Call) -> Result:
    x, param = call.bottom(), call.layer.inner_product_param
    axis = axis_of(x, param.axis)
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


def _sequence(call: Call) -> tuple[Value, int, int]:
    """Return a recurrent layer's T x N x D, its D and its outputs."""
    x = call.bottom()
    if len(x.shape) < 3:
        raise FieldError(f"its input must be T x N x D, got {format_shape(x.shape)}")
    if len(x.shape) > 3:
        x = call.builder.flatten(f"{call.name}_flat", x, 2)
    return x, x.shape[2], positive(call.layer.recurrent_param, "num_output")


@dataclass
class _Unrolled:
    """What a recurrent layer gives: all steps, the states after the last, the next parameter."""

    steps: Value
    states: list[Value]
    next_index: int


def _recurrent(call: Call, gates: int, states: int) -> _Unrolled:
    x, features, hidden = _sequence(call)
    exposed = states if call.layer.recurrent_param.expose_hidden else 0
    weights = [
        call.parameter(0, (gates * hidden, features), "x"),
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
    kind = "LSTM" if gates > 1 else "RNN"
    result = call.builder.recurrent(
        call.name, kind, x, weights, hidden=hidden, biases=1, batch_first=False
    )
    last = []
    if call.num_tops > 1 and exposed:
        end = call.builder.slice(f"{call.name}_last", result, 0, x.shape[0] - 1, 1)
        last = [end] * exposed
    return _Unrolled(result, last, index + 1)


@operator("LSTM")
def _lstm(call: Call) -> Result:
    unrolled = _recurrent(call, 4, 2)
    return [unrolled.steps, *unrolled.states]


@operator("RNN")
def _rnn(call: Call) -> Result:
    unrolled = _recurrent(call, 1, 1)
    # What Caffe's gives is a product of the hidden state, and a tanh of that.
    hidden, index = unrolled.steps, unrolled.next_index
    size = hidden.shape[2]
    weight = call.parameter(index, (size, size), "output")
    shift = call.parameter(index + 1, (size,), "shift")
    product = call.builder.linear(f"{call.name}_output", hidden, weight, shift, axis=2)
    steps = call.builder.activation(f"{call.name}_tanh", "tanh", product)
    return [steps, *unrolled.states]


# Pooling

_KINDS = ("max", "average", "average")  # stochastic pooling reads a window once, as an average


@operator("Pooling", "Pooling3D")
def _pooling(call: Call) -> Result:
    x, param = call.bottom(), _windows_of(call, "pooling")
    rank, kind = _rank_for(call, x), _KINDS[param.pool]
    if param.global_pooling:
        pooled = call.builder.adaptive_pool(call.name, kind, x, [1] * rank)
        return [pooled] * call.num_tops
    kernel = _along(param, "kernel_size", rank, None, 1)
    strides, pads = _along(param, "stride", rank, 1, 1), _along(param, "pad", rank, 0, 0)
    dilations = _along(param, "dilation", rank, 1, 1)
    spans = [(taps - 1) * step + 1 for taps, step in zip(kernel, dilations, strict=True)]
    floor = bool(param.round_mode) or not param.ceil_mode
    margins, roundings = [], set()
    for size, span, stride, pad in zip(x.shape[2:], spans, strides, pads, strict=True):
        if pad >= span:
            raise FieldError(f"{pad} is not less than the window, {span}", "pad")
        count, rounding = _windows(size, span, stride, pad, floor, any(pads))
        margins.append((pad, max((count - 1) * stride + span - size - pad, 0)))
        roundings.add(rounding)
    # Where symmetric padding gives the same sizes, it is what the file says.
    symmetric = len(roundings - {"either"}) < 2 and "neither" not in roundings
    pooled = call.builder.pool(
        call.name,
        kind,
        x,
        window=kernel,
        strides=strides,
        pads=[(pad, pad) for pad in pads] if symmetric else margins,
        dilations=dilations,
        ceil=symmetric and "ceil" in roundings,
    )
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
        raise FieldError(
            f"a window of {span} is larger than its input of {size} with {pad} on either side",
            "kernel_size",
        )
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
        raise FieldError(
            f"{height} levels are too many for {format_shape(x.shape)}", "pyramid_height"
        )
    levels = []
    for level in range(height):
        name = f"{call.name}_{level}"
        bins = [2**level] * _rank(x)
        pooled = call.builder.adaptive_pool(name, _KINDS[param.pool], x, bins)
        levels.append(call.builder.flatten(f"{name}_flat", pooled))
    return call.builder.concat(call.name, levels, 1)


# The end of a net

LOSSES = {
    "softmaxwithloss": "softmax_cross_entropy",
    "softmaxloss": "softmax_cross_entropy",
    "voxelsoftmaxloss": "softmax_cross_entropy",
    "softmaxwithlossohem": "softmax_cross_entropy",
    "sigmoidcrossentropyloss": "sigmoid_cross_entropy",
    "multinomiallogisticloss": "cross_entropy",
    "infogainloss": "cross_entropy",
    "euclideanloss": "squared_error",
    "l1loss": "absolute_error",
    "smoothl1loss": "smooth_absolute_error",
    "smoothl1lossohem": "smooth_absolute_error",
    "hingeloss": "hinge",
    "contrastiveloss": "contrastive",
    "tripletloss": "other",
    "ctcloss": "other",
}


def _labels(call: Call, index: int) -> Value | None:
    """Return labels, if they are there and are a sample's."""
    labels = call.bottom(index) if len(call.bottoms) > index else None
    return labels if labels is not None and labels.batched else None


@operator(*LOSSES)
def _loss(call: Call) -> Result:
    scores = call.bottom()
    loss = call.builder.loss(call.name, LOSSES[call.kind], scores, _labels(call, 1))
    if call.num_tops < 2:
        return loss
    if call.kind == "smoothl1lossohem":
        return [loss, loss]  # of all regions, and of each
    axis = axis_of(scores, call.layer.softmax_param.axis)
    return [loss, call.builder.softmax(f"{call.name}_scores", scores, axis), loss]


@operator("MultiBoxLoss")
def _multi_box_loss(call: Call) -> Result:
    labels = _labels(call, 3)
    boxes, classes = call.bottom(0), call.bottom(1)
    places = call.builder.loss(f"{call.name}_loc", "smooth_absolute_error", boxes, labels)
    call.builder.loss(f"{call.name}_conf", "softmax_cross_entropy", classes, labels)
    return places


@operator("Accuracy")
def _accuracy(call: Call) -> Result:
    # A second top has the accuracy of each class.
    found = call.builder.accuracy(call.name, call.bottom(), _labels(call, 1))
    return [found] * max(1, call.num_tops)
