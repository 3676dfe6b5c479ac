"""Functions of elements, normalizations, shapes and the ends of a net in TensorFlow's operators.

What a net leaves open (the slope of a leaky rectifier, what is picked or moved where) is chosen
here, so that as many elements are read and written as the layer says.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import attrgetter
from typing import Any

from paleo.core.quantity import product
from paleo.measure.executors.shapes import aligned, changed_dimension, image_scale
from paleo.measure.executors.tensorflow.builders import (
    BUILDERS,
    EPSILON,
    Builder,
    Call,
    UnbuildableError,
    builds,
)
from paleo.net.layers.functions import ELEMENTWISE, FUNCTIONS, ElementFunction

#: How much of a batch's statistics the running ones take in.
_MOMENTUM = 0.1


# Functions of elements ----------------------------------------------------------------------

#: What stands for constants that the net does not name.
_CONSTANTS: dict[str, tuple[float, ...]] = {"power": (2,), "clip": (-0.5, 0.5), "compare": (0,)}

#: Those that TensorFlow has no function for.
_COMPOSED: dict[str, Callable[[Any, Any], Any]] = {
    "hard_sigmoid": lambda tf, x: tf.nn.relu6(x + 3) / 6,
    "hard_swish": lambda tf, x: x * tf.nn.relu6(x + 3) / 6,
    "celu": lambda tf, x: tf.nn.relu(x) + 2 * tf.math.expm1(-tf.nn.relu(-x) / 2),
    "hard_tanh": lambda tf, x: tf.clip_by_value(x, -1, 1),
    "mish": lambda tf, x: x * tf.tanh(tf.nn.softplus(x)),
    "threshold": lambda tf, x: tf.where(x > 0.5, x, tf.zeros((), x.dtype)),
    "affine": lambda tf, x: x * 0.5 + 0.25,
    "relu_squared": lambda tf, x: tf.square(tf.nn.relu(x)),
    "quick_gelu": lambda tf, x: x * tf.sigmoid(1.702 * x),
}


def _applied(tf: Any, row: ElementFunction, *operands: Any) -> Any:
    """Return what TensorFlow's function of this name gives, in the type of its operands."""
    kind = operands[0].dtype
    operands = tuple(tf.cast(operand, kind) for operand in operands)
    return tf.cast(attrgetter(row.tensorflow)(tf)(*operands), kind)


def _active(tf: Any, name: str, x: Any) -> Any:
    if name in _COMPOSED:
        return _COMPOSED[name](tf, x)
    return _applied(tf, FUNCTIONS[name], x, *_CONSTANTS.get(name, ()))


@builds("Activation")
def _activation(call: Call) -> Any:
    return _active(call.tf, call.layer.function, call.x)


@builds("Gated")
def _gated(call: Call) -> Any:
    """An activation and a product: TensorFlow has no kernel for both."""
    gate, factor = call.xs if len(call.xs) == 2 else call.tf.split(call.x, 2, -1)
    return _active(call.tf, call.layer.function, gate) * factor


#: Layers that are one operator.
_OPERATORS: dict[str, Builder] = {
    "Sigmoid": lambda call: call.tf.sigmoid(call.reshaped()),
    "L2Norm": lambda call: call.tf.math.l2_normalize(call.x, -1),
    "Reshape": Call.reshaped,
    "Flatten": Call.reshaped,
    "Transpose": lambda call: call.tf.transpose(call.x, call.layer.perm),
    "Pad": lambda call: call.tf.pad(call.x, ((0, 0), *call.layer.margins)),
}
BUILDERS.update(_OPERATORS)


@builds("PReLU")
def _prelu(call: Call) -> Any:
    relu = call.tf.nn.relu
    slope = call.weight(call.layer.num_params(call.inputs), start=0.25)
    return relu(call.x) - slope * relu(-call.x)


@builds("Softmax")
def _softmax(call: Call) -> Any:
    return call.tf.nn.softmax(call.reshaped(), -1 if call.layer.dim is None else call.layer.dim)


@builds("Dropout")
def _dropout(call: Call) -> Any:
    if not call.scene.training:
        return call.x
    return call.tf.nn.dropout(call.x, 1 - call.layer.dropout_keep_prob)


def _pair(tf: Any, name: str, a: Any, b: Any) -> Any:
    if name == "logical":
        return tf.cast((a > 0) & (b > 0), a.dtype)
    return _applied(tf, ELEMENTWISE[name], a, b)


@builds("Elementwise")
def _elementwise(call: Call) -> Any:
    tf, function, rank = call.tf, call.layer.function, max(map(len, call.inputs))
    parts = [
        tf.reshape(x, aligned(shape, rank)) for x, shape in zip(call.xs, call.inputs, strict=True)
    ]
    if function == "where":
        if len(parts) > 3:
            raise UnbuildableError("where takes a condition and two tensors at most")
        one, zero = tf.ones((), parts[0].dtype), tf.zeros((), parts[0].dtype)
        condition, a, b = [*parts, one, zero][:3]
        return tf.where(condition > 0, a, b)
    y = reduce(lambda a, b: _pair(tf, function, a, b), parts)
    return y * (1 / len(parts)) if function == "mean" else y


# Normalizations -----------------------------------------------------------------------------


@builds("BatchNorm")
def _batch_norm(call: Call) -> Any:
    """One kernel, in fp32 inside; fp64, for which there is none, in separate operators."""
    tf, scene, shape, c = call.tf, call.scene, call.inputs[0], call.inputs[0][-1]
    images = shape if len(shape) == 4 else (int(product(shape[:-1])), 1, 1, c)
    inside = tf.float64 if scene.dtype == tf.float64 else tf.float32
    scale, shift = tf.ones(c, inside), tf.zeros(c, inside)
    if call.layer.affine:
        scale, shift = (tf.cast(call.hold(c, start=start), inside) for start in (1.0, 0.0))
    states = [call.hold(c, start=start, learns=False) for start in (0.0, 1.0)]
    x = tf.reshape(call.x, images)
    kept = [] if scene.training else [tf.cast(state, inside) for state in states]
    if inside == tf.float64:
        mean, variance = kept or tf.nn.moments(x, [0, 1, 2])
        y = tf.nn.batch_normalization(x, mean, variance, shift, scale, EPSILON)
    else:
        y, mean, variance, *_ = tf.raw_ops.FusedBatchNormV3(
            x=x,
            scale=scale,
            offset=shift,
            mean=kept[0] if kept else tf.zeros(0),
            variance=kept[1] if kept else tf.zeros(0),
            epsilon=EPSILON,
            is_training=scene.training,
        )
    if scene.training:
        scene.updates.extend(
            state.assign_sub((state - tf.cast(new, state.dtype)) * _MOMENTUM, read_value=False)
            for state, new in zip(states, (mean, variance), strict=True)
        )
    return tf.reshape(y, shape)


@builds("Scale")
def _scale(call: Call) -> Any:
    scale, *shift = call.affine(call.inputs[0][-1], terms=1 + call.layer.bias_term)
    y = call.x * scale
    return y + shift[0] if shift else y


@builds("LayerNorm")
def _layer_norm(call: Call) -> Any:
    layer = call.layer
    terms = call.affine(*_normalized_shape(call), terms=layer.affine * (1 + layer.bias_term))
    return _normalized(call.tf, call.x, list(range(-layer.num_dims, 0)), *terms)


def _normalized_shape(call: Call) -> tuple[Any, ...]:
    return call.inputs[0][-call.layer.num_dims :]


@builds("GroupNorm", "InstanceNorm")
def _group_norm(call: Call) -> Any:
    """Moments over the elements of each group; each channel of an InstanceNorm is a group."""
    tf, (n, *front, c) = call.tf, call.inputs[0]
    groups = c if call.layer.type_name == "InstanceNorm" else call.layer.num_groups
    apart = (n, int(product(front)), groups, c // groups)
    terms = [tf.reshape(w, apart[2:]) for w in call.affine(c, terms=2 * call.layer.affine)]
    y = _normalized(tf, tf.reshape(call.x, apart), [1, 3], *terms)
    return tf.reshape(y, call.output)


def _normalized(tf: Any, x: Any, dims: list[int], scale: Any = None, shift: Any = None) -> Any:
    """Return x brought to mean 0 and variance 1 over some dimensions, scaled, and shifted."""
    mean, variance = tf.nn.moments(x, dims, keepdims=True)
    return tf.nn.batch_normalization(x, mean, variance, shift, scale, EPSILON)


@builds("RMSNorm")
def _rms_norm(call: Call) -> Any:
    tf, x, dims = call.tf, call.x, list(range(-call.layer.num_dims, 0))
    y = x * tf.math.rsqrt(tf.reduce_mean(tf.square(x), dims, keepdims=True) + EPSILON)
    return y * call.affine(*_normalized_shape(call), terms=1)[0] if call.layer.affine else y


@builds("RotaryEmbedding")
def _rotary(call: Call) -> Any:
    """The first half of what is turned makes pairs with the second; angles are chosen here."""
    tf, x, shape = call.tf, call.x, call.inputs[0]
    turned, place = call.layer.rotated or shape[-1], len(shape) - 2
    table = [1] * (len(shape) - 1) + [turned]
    table[place] = shape[place]
    cosine, sine = (tf.fill(table, tf.constant(value, x.dtype)) for value in (0.6, 0.8))
    above, below = tf.split(x[..., :turned], 2, -1)
    made = x[..., :turned] * cosine + tf.concat([-below, above], -1) * sine
    return tf.concat([made, x[..., turned:]], -1) if turned < shape[-1] else made


@builds("LRN")
def _lrn(call: Call) -> Any:
    tf, size, shape = call.tf, call.layer.local_size, call.inputs[0]
    if size % 2 == 0:
        raise UnbuildableError(f"TensorFlow normalizes over an odd number of channels, not {size}")
    images = tf.reshape(call.x, (shape[0], int(product(shape[1:-1])), 1, shape[-1]))
    y = tf.nn.local_response_normalization(images, depth_radius=size // 2, alpha=1e-4, beta=0.75)
    return tf.reshape(y, shape)


# Shapes and places --------------------------------------------------------------------------


@builds("Concatenate")
def _concatenate(call: Call) -> Any:
    output = call.output
    dim = (-1 if call.layer.dim is None else call.layer.dim) % len(output)
    return call.tf.concat([call.repeated(x, output[0]) for x in call.xs], dim)


@builds("Slice")
def _slice(call: Call) -> Any:
    layer = call.layer
    end = layer.begin + (layer.size - 1) * layer.step + 1
    before = (slice(None),) * (layer.dim % len(call.inputs[0]))
    taken = call.x[(*before, slice(layer.begin, end, layer.step))]
    return call.tf.reshape(taken, call.output)


@builds("Expand")
def _expand(call: Call) -> Any:
    wide = call.tf.reshape(call.x, aligned(call.inputs[0], len(call.output)))
    return call.tf.broadcast_to(wide, call.output)


@builds("Rearrange")
def _rearrange(call: Call) -> Any:
    """Depth and space are exchanged where the shapes say so; else all elements roll by one."""
    tf, old, new = call.tf, call.inputs[0], call.output
    if times := image_scale(old, new):
        return tf.nn.depth_to_space(call.x, times)
    if times := image_scale(new, old):
        return tf.nn.space_to_depth(call.x, times)
    return tf.reshape(tf.roll(call.x, 1, 1), new)


@builds("Gather")
def _gather(call: Call) -> Any:
    """Rows are picked by the indices given, or by fixed ones."""
    tf, scene, output, shape = call.tf, call.scene, call.output, call.inputs[0]
    rows, picked, _ = call.layer.rows(call.inputs)
    along = changed_dimension(shape, output)
    if len(call.xs) == 1 and along:
        return tf.gather(call.x, scene.fixed(output[along], shape[along]), axis=along)
    table = tf.reshape(call.x, (shape[0], rows, -1))
    if len(call.xs) == 1:
        return tf.reshape(tf.gather(table, scene.fixed(picked, rows), axis=1), output)
    indices = _again(tf, scene.indices(call.xs[1], rows), picked)
    if shape[0] == 1:
        return tf.reshape(tf.gather(table[0], indices), output)
    indices = tf.broadcast_to(indices, (output[0], picked))
    return tf.reshape(tf.gather(table, indices, axis=1, batch_dims=1), output)


def _again(tf: Any, tensor: Any, count: int) -> Any:
    """Return `count` numbers of each sample: those that there are, taken again or left out."""
    flat = tf.reshape(tensor, (tensor.shape[0], -1))
    have = flat.shape[1]
    return flat if have == count else tf.tile(flat, (1, -(-count // have)))[:, :count]


_REDUCTIONS = {
    "mean": "reduce_mean",
    "sum": "reduce_sum",
    "maximum": "reduce_max",
    "minimum": "reduce_min",
    "product": "reduce_prod",
}


@builds("Reduce")
def _reduce(call: Call) -> Any:
    tf, x, function, shape = call.tf, call.x, call.layer.function, call.inputs[0]
    dims = [dim % len(shape) for dim in call.layer.dims]
    if function == "argmax":
        others = [dim for dim in range(len(shape)) if dim not in dims]
        rows = tf.transpose(x, (*others, *dims)) if dims[-1] != len(shape) - 1 else x
        rows = tf.reshape(rows, (*(shape[dim] for dim in others), -1))
        y = call.scene.cast(tf.argmax(rows, -1))
    elif function == "norm":
        y = tf.sqrt(tf.reduce_sum(tf.square(x), dims))
    else:
        y = getattr(tf, _REDUCTIONS[function])(x, dims)
    return tf.reshape(y, call.output)


# Ends ---------------------------------------------------------------------------------------


def _squared(tf: Any, x: Any, y: Any) -> Any:
    return tf.math.squared_difference(x, y)


def _huber(tf: Any, x: Any, y: Any) -> Any:
    size = tf.abs(x - y)
    return tf.where(size < 1, size * size / 2, size - 0.5)


#: What each score adds to a loss, by the number that is its label.
_EACH: dict[str, Callable[[Any, Any, Any], Any]] = {
    "cross_entropy": lambda tf, x, y: -y * tf.math.log(tf.maximum(x, tf.cast(1e-6, x.dtype))),
    "hinge": lambda tf, x, y: tf.nn.relu(1 - x * (2 * y - 1)),
    "sigmoid_cross_entropy": lambda tf, x, y: tf.nn.sigmoid_cross_entropy_with_logits(y, x),
    "squared_error": _squared,
    "absolute_error": lambda tf, x, y: tf.abs(x - y),
    "smooth_absolute_error": _huber,
    # Of pairs that belong together (Hadsell, Chopra, LeCun 2006).
    "contrastive": _squared,
    "other": _squared,
}


def _scores_and_labels(call: Call) -> tuple[Any, Any]:
    """Return rows of scores; a class for each of them, or a number for each score.

    Labels that a net has fewer or more of are taken again, or left out. Without any they are 0.
    """
    tf, (n, *rest) = call.tf, call.inputs[0]
    are_classes = call.layer.are_classes(call.inputs)
    count = int(product(rest)) // (rest[-1] if are_classes else 1)
    scores = tf.reshape(call.x, (-1, rest[-1]))
    if len(call.xs) == 1:
        labels = tf.zeros((n, count), tf.int64 if are_classes else scores.dtype)
    else:
        labels = call.scene.indices(call.xs[1], rest[-1]) if are_classes else call.xs[1]
        labels = tf.broadcast_to(_again(tf, labels, count), (n, count))
    return scores, tf.reshape(labels, (-1,) if are_classes else (-1, rest[-1]))


def _mean_of_samples(call: Call, values: Any) -> Any:
    """Return the mean over what each sample has."""
    rows = call.tf.reshape(values, (call.inputs[0][0], -1))
    return call.tf.reduce_mean(rows, 1, keepdims=True)


@builds("Loss")
def _loss(call: Call) -> Any:
    """The mean over what each sample has; inputs behind the labels are weights."""
    tf, name, are_classes = call.tf, call.layer.function, call.layer.are_classes(call.inputs)
    scores, labels = _scores_and_labels(call)
    if name != "softmax_cross_entropy":
        if are_classes:
            labels = tf.one_hot(labels, call.inputs[0][-1], dtype=scores.dtype)
        made = tf.reduce_sum(_EACH[name](tf, scores, labels), 1)
    elif are_classes:
        made = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores)
    else:
        made = tf.nn.softmax_cross_entropy_with_logits(labels, scores)
    loss = _mean_of_samples(call, made)
    for weight in call.xs[2:]:
        loss *= tf.reduce_mean(tf.reshape(weight, (weight.shape[0], -1)), 1, keepdims=True)
    return loss


@builds("Accuracy")
def _accuracy(call: Call) -> Any:
    """The share of a sample's rows whose best score is that of the label."""
    tf, (scores, labels) = call.tf, _scores_and_labels(call)
    classes = labels if call.layer.are_classes(call.inputs) else tf.argmax(labels, 1)
    return _mean_of_samples(call, call.scene.cast(tf.argmax(scores, 1) == classes))
