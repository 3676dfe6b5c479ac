"""Keras layers without products: functions of elements, normalizations, merges and reshapes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from paleo.core.checks import shown
from paleo.core.tensor import format_shape
from paleo.net.importers.base import OperatorError, by_word
from paleo.net.importers.builder.layout import Value
from paleo.net.importers.keras.call import Call, Result, operator
from paleo.net.layers.functions import FUNCTIONS

#: Activations that Keras calls otherwise.
_ACTIVATIONS = {name: name for name in FUNCTIONS} | by_word(
    {
        "silu": "swish",
        "exp": "exponential",
        "hard_swish": "hard_silu hard_swish",
        "threshold": "soft_shrink hard_shrink",
    }
)
#: What functions of two tensors are in keras.layers and in keras.ops.
_MERGES = by_word(
    {
        "sum": "Add",
        "difference": "Subtract",
        "product": "Multiply",
        "mean": "Average",
        "maximum": "Maximum",
        "minimum": "Minimum",
        "quotient": "Divide TrueDivide",
        "power": "Power",
        "compare": "Equal NotEqual Greater GreaterEqual Less LessEqual",
        "logical": "LogicalAnd LogicalOr",
    }
)
_UNARY = by_word(
    {
        "absval": "Absolute Abs",
        "affine": "Negative",
        "power": "Square",
        "sqrt": "Sqrt Rsqrt",
        "exp": "Exp",
        "log": "Log",
        "relu": "Relu",
        "relu6": "Relu6",
        "sigmoid": "Sigmoid",
        "silu": "Silu",
        "tanh": "Tanh",
        "gelu": "Gelu",
        "clip": "Clip",
        "erf": "Erf",
    }
)


def function(call: Call, name: str, word: Any, x: Value) -> Value:
    """Return an activation of each element, by what a file says of it."""
    if isinstance(word, dict):
        inner = word.get("config")
        if word.get("class_name") not in ("function", "Activation") and isinstance(inner, dict):
            (made,) = call.apply(name, word, [x])
            return made
        word = inner
    if word in (None, "linear"):
        return x
    if word in ("softmax", "log_softmax"):
        return call.builder.softmax(name, x, -1)
    if not isinstance(word, str) or word not in _ACTIVATIONS or word in ("other", "cast"):
        raise OperatorError(f"the activation {shown(word)} is not understood", "activation")
    return call.builder.activation(name, _ACTIVATIONS[word], x)


def activated(call: Call, x: Value) -> Value:
    """Return what a layer's activation makes of its result."""
    return function(call, f"{call.name}/activation", call.config.get("activation"), x)


@operator("Activation")
def _activation(call: Call) -> Result:
    return function(call, call.name, call.config.get("activation"), call.x)


@operator("ReLU")
def _relu(call: Call) -> Result:
    most, slope = call.config.get("max_value"), call.number("negative_slope", 0.0)
    word = "relu" if most is None else "relu6" if most == 6 else "clip"
    if slope:
        word = "leaky_relu"
    elif call.number("threshold", 0.0):
        word = "threshold"
    return call.builder.activation(call.name, word, call.x)


@operator("LeakyReLU", "ELU")
def _rectifier(call: Call) -> Result:
    word = "leaky_relu" if call.kind == "LeakyReLU" else "elu"
    return call.builder.activation(call.name, word, call.x)


@operator("PReLU")
def _prelu(call: Call) -> Result:
    x, builder = call.x, call.builder
    shared = [] if not call.config.get("shared_axes") else call.axes("shared_axes", len(x.shape))
    shape = [1 if axis in shared else x.shape[axis] for axis in range(1, len(x.shape))]
    slope = call.parameter("alpha", shape)
    wide = [axis for axis, size in enumerate(shape, start=1) if size > 1]
    if len(wide) < 2:
        at = wide[0] if wide else -1
        flat = call.parameter("alpha", (prod(shape),))
        return call.last(builder.prelu(call.name, call.first(x, at), flat), at)
    # As Keras has it: what is positive, and what is negative times its slope.
    above = builder.activation(f"{call.name}/positive", "relu", x)
    turned = builder.activation(f"{call.name}/turned", "affine", x)
    below = builder.activation(f"{call.name}/negative", "relu", turned)
    sloped = builder.elementwise(f"{call.name}/slope", "product", [below, slope])
    return builder.elementwise(call.name, "difference", [above, sloped])


@operator("Softmax")
def _softmax(call: Call) -> Result:
    return call.builder.softmax(call.name, call.x, call.axis("axis", len(call.x.shape)))


@operator("Dropout", "AlphaDropout", "GaussianDropout", *(f"SpatialDropout{r}D" for r in (1, 2, 3)))
def _dropout(call: Call) -> Result:
    return call.builder.dropout(call.name, call.x, call.number("rate", 0.0))


@operator("StochasticDepth")
def _stochastic_depth(call: Call) -> Result:
    return call.builder.dropout(call.name, call.x, call.number("drop_path_rate", 0.0))


@operator("LayerScale")
def _layer_scale(call: Call) -> Result:
    gamma = call.parameter("gamma", (call.integer("projection_dim"),))
    return call.builder.elementwise(call.name, "product", [call.x, gamma])


@operator("Masking", "ActivityRegularization", "Identity")
def _identity(call: Call) -> Result:
    return call.x


@operator("GaussianNoise")
def _noise(call: Call) -> Result:
    call.builder.note("the noise that layers add in training is not counted")
    return call.x


@operator("Rescaling")
def _rescaling(call: Call) -> Result:
    return call.builder.activation(call.name, "affine", call.x)


@operator("Normalization")
def _normalization(call: Call) -> Result:
    x = call.x
    axes = [] if call.config.get("axis", -1) in (None, []) else call.axes("axis", len(x.shape))
    shape = [size if axis in axes else 1 for axis, size in enumerate(x.shape)]
    made = x
    for part, word in (("mean", "difference"), ("deviation", "quotient")):
        constant = call.builder.constant(shape)
        made = call.builder.elementwise(f"{call.name}/{part}", word, [made, constant])
    return made


# Normalizations


def _scale_and_shift(call: Call, size: Sequence[int]) -> tuple[Value | None, Value | None]:
    return call.optional("scale", "gamma", size), call.optional("center", "beta", size)


def _own(axis: int) -> None:
    if axis == 0:
        raise OperatorError("it normalizes over the samples of the batch", "axis")


@operator("BatchNormalization", "SyncBatchNormalization")
def _batch_norm(call: Call) -> Result:
    axis = call.axis("axis", len(call.x.shape))
    _own(axis)
    x = call.first(call.x, axis)
    scale, shift = _scale_and_shift(call, (x.shape[1],))
    return call.last(call.builder.batch_norm(call.name, x, scale, shift), axis)


@operator("GroupNormalization")
def _group_norm(call: Call) -> Result:
    axis = call.axis("axis", len(call.x.shape))
    _own(axis)
    x = call.first(call.x, axis)
    groups = call.config.get("groups", 32)
    groups = x.shape[1] if groups == -1 else call.integer("groups", 32)
    if x.shape[1] % groups:
        raise OperatorError(f"{x.shape[1]} channels in {groups} groups", "groups")
    scale, shift = _scale_and_shift(call, (x.shape[1],))
    return call.last(call.builder.group_norm(call.name, x, groups, scale, shift), axis)


@operator("LayerNormalization", "RMSNormalization")
def _layer_norm(call: Call) -> Result:
    x = call.x
    rank = len(x.shape)
    axes = call.axes("axis", rank)
    if axes != list(range(rank - len(axes), rank)):
        raise OperatorError("axes other than the last ones are not understood", "axis")
    size = [x.shape[axis] for axis in axes]
    if call.kind == "RMSNormalization":
        return call.builder.rms_norm(call.name, x, len(axes), call.parameter("scale", size))
    if call.flag("rms_scaling"):
        raise OperatorError("a scaling by variance alone is not understood", "rms_scaling")
    scale, shift = _scale_and_shift(call, size)
    return call.builder.layer_norm(call.name, x, len(axes), scale, shift)


@operator("UnitNormalization")
def _unit_norm(call: Call) -> Result:
    axis = call.axis("axis", len(call.x.shape))
    _own(axis)
    return call.builder.normalize(call.name, call.x, axis)


# Several inputs


@operator("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum")
def _merge(call: Call) -> Result:
    values = call.values(2)
    ranks = {len(value.shape) for value in values}
    if len(ranks) > 1:
        raise OperatorError("its inputs have different numbers of axes")
    return call.builder.elementwise(call.name, _MERGES[call.kind], values)


@operator("Concatenate", "ops.Concatenate")
def _concatenate(call: Call) -> Result:
    values = call.values(1)
    axis = call.axis("axis", len(values[0].shape))
    return values[0] if len(values) == 1 else call.builder.concat(call.name, values, axis)


@operator("Dot")
def _dot(call: Call) -> Result:
    values = call.values(2)[:2]
    given = call.config.get("axes")
    both = given if isinstance(given, list) else [given, given]
    if len(both) != 2:
        raise OperatorError(f"expected two axes, got {shown(given)}", "axes")
    terms, letters = [], "abcdefgh"
    for axis, value, own in zip(both, values, (letters[:4], letters[4:]), strict=True):
        rank = len(value.shape)
        if not isinstance(axis, int) or not 0 < axis % rank < rank or rank > 4 or axis >= rank:
            raise OperatorError(f"axes {shown(given)} of {format_shape(value.shape)}", "axes")
        term = ["n", *own[: rank - 1]]
        term[axis % rank] = "z"
        terms.append("".join(term))
    if call.flag("normalize"):
        values = [
            call.builder.normalize(f"{call.name}/unit{i}", value, axis)
            for i, (value, axis) in enumerate(zip(values, both, strict=True))
        ]
    left = "n" + "".join(term[1:].replace("z", "") for term in terms)
    made = call.builder.einsum(call.name, f"{','.join(terms)}->{left}", values)
    return call.builder.unsqueeze(call.name, made, [1]) if len(left) == 1 else made


# Shapes


@operator("Flatten")
def _flatten(call: Call) -> Result:
    x = call.x
    if call.channels_first and len(x.shape) > 2:
        x = call.last(x)
    return call.builder.reshape(call.name, x, (x.shape[0], prod(x.shape[1:])))


@operator("Reshape")
def _reshape(call: Call) -> Result:
    x, given = call.x, call.config.get("target_shape")
    if not isinstance(given, list) or not all(isinstance(size, int) for size in given):
        raise OperatorError(f"expected sizes, got {shown(given)}", "target_shape")
    known = prod(size for size in given if size != -1)
    if given.count(-1) > 1 or known < 1 or prod(x.shape[1:]) % known:
        raise OperatorError(f"{format_shape(x.shape)} cannot become {given}", "target_shape")
    sizes = [prod(x.shape[1:]) // known if size == -1 else size for size in given]
    return call.builder.reshape(call.name, x, (x.shape[0], *sizes))


@operator("Permute")
def _permute(call: Call) -> Result:
    given = call.config.get("dims")
    if not isinstance(given, list) or sorted(map(str, given)) != sorted(
        str(axis) for axis in range(1, len(call.x.shape))
    ):
        raise OperatorError(f"{shown(given)} is no order of the axes", "dims")
    return call.builder.in_order(call.builder.transpose(call.name, call.x, [0, *given]))


@operator("RepeatVector")
def _repeat_vector(call: Call) -> Result:
    x = call.builder.unsqueeze(call.name, call.x, [1])
    return call.builder.expand(call.name, x, (x.shape[0], call.integer("n"), *x.shape[2:]))


@operator(*(f"{kind}{rank}D" for kind in ("ZeroPadding", "Cropping") for rank in (1, 2, 3)))
def _margins(call: Call) -> Result:
    rank = int(call.kind[-2])
    sign, key = (1, "padding") if call.kind.startswith("Zero") else (-1, "cropping")
    given = call.config.get(key, 1)
    each = given if isinstance(given, list) else [given] * rank
    if rank == 1 and len(each) == 2:
        each = [each]
    pairs = [pair if isinstance(pair, list) else [pair, pair] for pair in each]
    if len(pairs) != rank or not all(
        len(pair) == 2 and all(isinstance(n, int) and n >= 0 for n in pair) for pair in pairs
    ):
        raise OperatorError(f"expected margins of {rank} axes, got {shown(given)}", key)
    pads = [(0, 0), (0, 0), *((sign * before, sign * after) for before, after in pairs)]
    return call.as_it_came(call.builder.pad(call.name, call.image(rank), pads))


def _resized(call: Call, x: Value, sizes: Sequence[int]) -> Value:
    modes = {"nearest": "nearest", "bilinear": "linear", "bicubic": "cubic"}
    default = "bilinear" if call.kind == "Resizing" else "nearest"
    mode = modes[call.choice("interpolation", default, list(modes))]
    return call.as_it_came(call.builder.resize(call.name, x, (*x.shape[:2], *sizes), mode))


@operator("UpSampling1D", "UpSampling2D", "UpSampling3D")
def _up_sampling(call: Call) -> Result:
    rank = int(call.kind[-2])
    x, times = call.image(rank), call.integers("size", rank, 2)
    sizes = [size * factor for size, factor in zip(x.shape[2:], times, strict=True)]
    return _resized(call, x, sizes)


@operator("Resizing")
def _resizing(call: Call) -> Result:
    for key in ("crop_to_aspect_ratio", "pad_to_aspect_ratio"):
        if call.flag(key):
            raise OperatorError("it is not understood", key)
    return _resized(call, call.image(2), [call.integer("height"), call.integer("width")])


# Functions of keras.ops


@operator(*(f"ops.{word}" for word in _MERGES))
def _of_two(call: Call) -> Result:
    values = [
        call.builder.constant(()) if isinstance(each, int | float) else each
        for each in [*call.args, *call.kwargs.values()]
    ]
    if len(values) != 2 or not all(isinstance(value, Value) for value in values):
        raise OperatorError("it needs two tensors or numbers")
    return call.builder.elementwise(call.name, _MERGES[call.kind.partition(".")[2]], values)


@operator(*(f"ops.{word}" for word in _UNARY))
def _of_one(call: Call) -> Result:
    return call.builder.activation(call.name, _UNARY[call.kind.partition(".")[2]], call.x)


_REDUCTIONS = by_word({"mean": "Mean", "sum": "Sum", "maximum": "Max Any", "minimum": "Min All"})


@operator(*(f"ops.{word}" for word in _REDUCTIONS))
def _reduction(call: Call) -> Result:
    if call.config.get("axis") is None:
        raise OperatorError("it reduces the whole batch", "axis")
    axes = call.axes("axis", len(call.x.shape))
    word = _REDUCTIONS[call.kind.partition(".")[2]]
    return call.builder.reduce(call.name, word, call.x, axes, call.flag("keepdims"))


@operator("ops.Matmul")
def _matmul(call: Call) -> Result:
    return call.builder.matmul(call.name, *call.values(2)[:2])


@operator("ops.ExpandDims", "ops.Squeeze")
def _ones(call: Call) -> Result:
    rank = len(call.x.shape)
    if call.kind == "ops.Squeeze":
        return call.builder.squeeze(call.name, call.x, call.axes("axis", rank))
    return call.builder.unsqueeze(call.name, call.x, call.axes("axis", rank + 1))


@operator("ops.Transpose")
def _transpose(call: Call) -> Result:
    given = call.config.get("axes")
    if not isinstance(given, list) or not all(isinstance(axis, int) for axis in given):
        raise OperatorError(f"{shown(given)} is no order of the axes", "axes")
    return call.builder.in_order(call.builder.transpose(call.name, call.x, given))
