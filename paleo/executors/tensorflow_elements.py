"""Functions of elements, normalizations, shapes and the ends of a net in TensorFlow's operators.

What a net leaves open (the slope of a leaky rectifier, what is picked or moved where) is chosen
here, so that as many elements are read and written as the layer says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from paleo.executors.tensorflow_blocks import (
    EPSILON,
    Block,
    Parameter,
    Scene,
    Sizes,
    UnbuildableError,
    aligned,
    builds,
    of_all,
    of_one,
)
from paleo.layers import Layer
from paleo.quantity import product
from paleo.tensor import format_shape

__all__ = ["index_limit"]

#: How much of a batch's statistics the running ones take in.
_MOMENTUM = 0.1


def index_limit(layer: Layer, k: int, inputs: tuple[Sizes, ...]) -> int | None:
    """Return below what the whole numbers are that input k is read as; None if it is not."""
    of: Any = layer
    match layer.type_name:
        case "Embedding":
            return int(of.num_embeddings)
        case "Gather" if k == 1:
            return _rows_of(inputs, layer.infer_shape(inputs))[0]
        case "Loss" | "Accuracy" if k == 1 and _are_classes(layer, inputs):
            return int(inputs[0][-1])
    return None


# Functions of elements ----------------------------------------------------------------------

_FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "relu": lambda tf, x: tf.nn.relu(x),
    "relu6": lambda tf, x: tf.nn.relu6(x),
    "leaky_relu": lambda tf, x: tf.nn.leaky_relu(x),
    "elu": lambda tf, x: tf.nn.elu(x),
    "selu": lambda tf, x: tf.nn.selu(x),
    "gelu": lambda tf, x: tf.nn.gelu(x),
    "silu": lambda tf, x: tf.nn.silu(x),
    "softplus": lambda tf, x: tf.nn.softplus(x),
    "sigmoid": lambda tf, x: tf.sigmoid(x),
    "hard_sigmoid": lambda tf, x: tf.nn.relu6(x + 3) / 6,
    "hard_swish": lambda tf, x: x * tf.nn.relu6(x + 3) / 6,
    "tanh": lambda tf, x: tf.tanh(x),
    "absval": lambda tf, x: tf.abs(x),
    "exp": lambda tf, x: tf.exp(x),
    "log": lambda tf, x: tf.math.log(x),
    "power": lambda tf, x: tf.pow(x, tf.cast(2, x.dtype)),
    "celu": lambda tf, x: tf.nn.relu(x) + 2 * tf.math.expm1(-tf.nn.relu(-x) / 2),
    "hard_tanh": lambda tf, x: tf.clip_by_value(x, -1, 1),
    "mish": lambda tf, x: x * tf.tanh(tf.nn.softplus(x)),
    "softsign": lambda tf, x: tf.nn.softsign(x),
    "threshold": lambda tf, x: tf.where(x > 0.5, x, tf.zeros((), x.dtype)),
    "clip": lambda tf, x: tf.clip_by_value(x, -0.5, 0.5),
    "affine": lambda tf, x: x * 0.5 + 0.25,
    "sqrt": lambda tf, x: tf.sqrt(x),
    "reciprocal": lambda tf, x: tf.math.reciprocal(x),
    "erf": lambda tf, x: tf.math.erf(x),
    "sin": lambda tf, x: tf.sin(x),
    "cos": lambda tf, x: tf.cos(x),
    "round": lambda tf, x: tf.round(x),
    "sign": lambda tf, x: tf.sign(x),
    "compare": lambda tf, x: tf.cast(x > 0, x.dtype),
    # Of a type to itself, as all tensors of a net have one: TensorFlow does nothing.
    "cast": lambda tf, x: tf.identity(x),
    # Any other: one that has a gradient and bounds everywhere.
    "other": lambda tf, x: tf.math.atan(x),
}


@builds("Activation")
def _activation(layer: Any, inputs: tuple[Sizes, ...]) -> Block:
    return of_one(_FUNCTIONS[layer.function])


@builds("PReLU")
def _prelu(layer: Any, inputs: tuple[Sizes, ...]) -> Block:
    def run(scene: Scene, xs: Sequence[Any], ws: Sequence[Any], states: Sequence[Any]) -> Any:
        relu = scene.tf.nn.relu
        return relu(xs[0]) - scene.cast(ws[0]) * relu(-xs[0])

    return Block(run, (Parameter((layer.num_params(inputs),), start=0.25),))


@builds("Sigmoid")
def _sigmoid(layer: Any, inputs: tuple[Sizes, ...]) -> Block:
    output = layer.infer_shape(inputs)
    _check_reshape(inputs[0], output)
    return of_one(lambda tf, x: tf.sigmoid(tf.reshape(x, output)))


@builds("Softmax")
def _softmax(layer: Any, inputs: tuple[Sizes, ...]) -> Block:
    output = layer.infer_shape(inputs)
    _check_reshape(inputs[0], output)
    dim = -1 if layer.dim is None else layer.dim
    return of_one(lambda tf, x: tf.nn.softmax(tf.reshape(x, output), dim))


def _check_reshape(shape: Sizes, output: Sizes) -> None:
    if product(shape) != product(output):
        raise UnbuildableError(
            f"{format_shape(shape)} has other elements than {format_shape(output)}"
        )


@builds("Dropout")
def _dropout(layer: Any, inputs: tuple[Sizes, ...]) -> Block:
    def run(scene: Scene, xs: Sequence[Any], ws: Sequence[Any], states: Sequence[Any]) -> Any:
        return scene.tf.nn.dropout(xs[0], 1 - layer.dropout_keep_prob) if scene.training else xs[0]

    return Block(run)


_PAIRS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "sum": lambda tf, a, b: a + b,
    "mean": lambda tf, a, b: a + b,
    "difference": lambda tf, a, b: a - b,
    "product": lambda tf, a, b: a * b,
    "quotient": lambda tf, a, b: a / b,
    "maximum": lambda tf, a, b: tf.maximum(a, b),
    "minimum": lambda tf, a, b: tf.minimum(a, b),
    "power": lambda tf, a, b: tf.pow(a, b),
    "compare": lambda tf, a, b: tf.cast(a > b, a.dtype),
    "logical": lambda tf, a, b: tf.cast((a > 0) & (b > 0), a.dtype),
}


@builds("Elementwise")
def _elementwise(layer: Any, inputs: tuple[Sizes, ...]) -> Block:
    rank, function = max(map(len, inputs)), layer.function
    if function == "where" and len(inputs) > 3:
        raise UnbuildableError("where takes a condition and two tensors at most")

    def run(tf: Any, *xs: Any) -> Any:
        parts = [tf.reshape(x, aligned(shape, rank)) for x, shape in zip(xs, inputs, strict=True)]
        if function == "where":
            one, zero = tf.ones((), parts[0].dtype), tf.zeros((), parts[0].dtype)
            condition, a, b = [*parts, one, zero][:3]
            return tf.where(condition > 0, a, b)
        y = reduce(lambda a, b: _PAIRS[function](tf, a, b), parts)
        return y * (1 / len(parts)) if function == "mean" else y

    return of_all(run)


# Normalizations -----------------------------------------------------------------------------


@builds("BatchNorm")
def _batch_norm(layer: Any, inputs: tuple[Sizes, ...]) -> Block:
    """One kernel, in fp32 inside; fp64, for which there is none, in separate operators."""
    shape, c = inputs[0], inputs[0][-1]
    images = shape if len(shape) == 4 else (int(product(shape[:-1])), 1, 1, c)

    def run(scene: Scene, xs: Sequence[Any], ws: Sequence[Any], states: Sequence[Any]) -> Any:
        tf = scene.tf
        of = tf.float64 if scene.dtype == tf.float64 else tf.float32
        scale, shift = (tf.cast(w, of) for w in ws) if ws else (tf.ones(c, of), tf.zeros(c, of))
        x = tf.reshape(xs[0], images)
        kept = [] if scene.training else [tf.cast(each, of) for each in states]
        if of == tf.float64:
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

    channels = Parameter((c,), start=1.0), Parameter((c,))
    return Block(run, channels if layer.affine else (), channels[::-1])


@builds("Scale")
def _scale(layer: Any, inputs: tuple[Sizes, ...]) -> Block:
    c = inputs[0][-1]

    def run(scene: Scene, xs: Sequence[Any], ws: Sequence[Any], states: Sequence[Any]) -> Any:
        y = xs[0] * scene.cast(ws[0])
        return y + scene.cast(ws[1]) if layer.bias_term else y

    return Block(run, (Parameter((c,), start=1.0), Parameter((c,)))[: 1 + layer.bias_term])


@builds("LayerNorm")
def _layer_norm(layer: Any, inputs: tuple[Sizes, ...]) -> Block:
    own, dims = inputs[0][-layer.num_dims :], list(range(-layer.num_dims, 0))

    def run(scene: Scene, xs: Sequence[Any], ws: Sequence[Any], states: Sequence[Any]) -> Any:
        return _normalized(scene, xs[0], dims, ws)

    parameters = (Parameter(own, start=1.0), Parameter(own))[: 1 + layer.bias_term]
    return Block(run, parameters if layer.affine else ())


@builds("GroupNorm", "InstanceNorm")
def _group_norm(layer: Any, inputs: tuple[Sizes, ...]) -> Block:
    """Moments over the elements of each group; each channel of an InstanceNorm is a group."""
    shape, (n, *front, c) = inputs[0], inputs[0]
    groups = c if layer.type_name == "InstanceNorm" else layer.num_groups
    apart = (n, int(product(front)), groups, c // groups)

    def run(scene: Scene, xs: Sequence[Any], ws: Sequence[Any], states: Sequence[Any]) -> Any:
        tf = scene.tf
        ws = [tf.reshape(w, apart[2:]) for w in ws]
        y = _normalized(scene, tf.reshape(xs[0], apart), [1, 3], ws)
        return tf.reshape(y, shape)

    return Block(run, (Parameter((c,), start=1.0), Parameter((c,))) if layer.affine else ())


def _normalized(scene: Scene, x: Any, dims: list[int], ws: Sequence[Any]) -> Any:
    """Return x brought to mean 0 and variance 1 over some dimensions, scaled, and shifted."""
    tf = scene.tf
    mean, variance = tf.nn.moments(x, dims, keepdims=True)
    scale, shift, *_ = (*map(scene.cast, ws), None, None)
    return tf.nn.batch_normalization(x, mean, variance, shift, scale, EPSILON)


@builds("RMSNorm")
def _rms_norm(layer: Any, inputs: tuple[Sizes, ...]) -> Block:
    own, dims = inputs[0][-layer.num_dims :], list(range(-layer.num_dims, 0))

    def run(scene: Scene, xs: Sequence[Any], ws: Sequence[Any], states: Sequence[Any]) -> Any:
        tf, x = scene.tf, xs[0]
        y = x * tf.math.rsqrt(tf.reduce_mean(tf.square(x), dims, keepdims=True) + EPSILON)
        return y * scene.cast(ws[0]) if ws else y

    return Block(run, (Parameter(own, start=1.0),) if layer.affine else ())


@builds("L2Norm")
def _l2_norm(layer: Any, inputs: tuple[Sizes, ...]) -> Block:
    return of_one(lambda tf, x: tf.math.l2_normalize(x, -1))


@builds("LRN")
def _lrn(layer: Any, inputs: tuple[Sizes, ...]) -> Block:
    if layer.local_size % 2 == 0:
        raise UnbuildableError(
            f"TensorFlow normalizes over an odd number of channels, not {layer.local_size}"
        )
    shape = inputs[0]
    images = (shape[0], int(product(shape[1:-1])), 1, shape[-1])
    constants = {"depth_radius": layer.local_size // 2, "alpha": 1e-4, "beta": 0.75}

    def run(tf: Any, x: Any) -> Any:
        y = tf.nn.local_response_normalization(tf.reshape(x, images), **constants)
        return tf.reshape(y, shape)

    return of_one(run)


# Shapes and places --------------------------------------------------------------------------


@builds("Reshape", "Flatten")
def _reshape(layer: Any, inputs: tuple[Sizes, ...]) -> Block:
    output = layer.infer_shape(inputs)
    return of_one(lambda tf, x: tf.reshape(x, output))


@builds("Concatenate")
def _concatenate(layer: Any, inputs: tuple[Sizes, ...]) -> Block:
    output = layer.infer_shape(inputs)
    dim = (-1 if layer.dim is None else layer.dim) % len(output)

    def run(tf: Any, *xs: Any) -> Any:
        whole = [
            x if shape[0] == output[0] else tf.broadcast_to(x, (output[0], *shape[1:]))
            for x, shape in zip(xs, inputs, strict=True)
        ]
        return tf.concat(whole, dim)

    return of_all(run)


@builds("Slice")
def _slice(layer: Any, inputs: tuple[Sizes, ...]) -> Block:
    output = layer.infer_shape(inputs)
    dim = layer.dim % len(inputs[0])
    end = layer.begin + (layer.size - 1) * layer.step + 1
    taken = (*(slice(None),) * dim, slice(layer.begin, end, layer.step))
    return of_one(lambda tf, x: tf.reshape(x[taken], output))


@builds("Transpose")
def _transpose(layer: Any, inputs: tuple[Sizes, ...]) -> Block:
    return of_one(lambda tf, x: tf.transpose(x, layer.perm))


@builds("Expand")
def _expand(layer: Any, inputs: tuple[Sizes, ...]) -> Block:
    output = layer.infer_shape(inputs)
    shape = aligned(inputs[0], len(output))
    return of_one(lambda tf, x: tf.broadcast_to(tf.reshape(x, shape), output))


@builds("Pad")
def _pad(layer: Any, inputs: tuple[Sizes, ...]) -> Block:
    return of_one(lambda tf, x: tf.pad(x, ((0, 0), *layer.margins)))


def _times(small: Sizes, large: Sizes) -> int:
    """Return how many times as high and wide one image is as another, 0 if that is no number."""
    if not len(small) == len(large) == 4 or large[1] % small[1]:
        return 0
    times = large[1] // small[1]
    return times if large[2] == times * small[2] else 0


@builds("Rearrange")
def _rearrange(layer: Any, inputs: tuple[Sizes, ...]) -> Block:
    """Depth and space are exchanged where the shapes say so; else all elements roll by one."""
    old, new = inputs[0], layer.infer_shape(inputs)
    times = _times(old, new)
    if times > 1:
        return of_one(lambda tf, x: tf.nn.depth_to_space(x, times))
    times = _times(new, old)
    if times > 1:
        return of_one(lambda tf, x: tf.nn.space_to_depth(x, times))
    return of_one(lambda tf, x: tf.reshape(tf.roll(x, 1, 1), new))


def _rows_of(inputs: tuple[Sizes, ...], output: Sizes) -> tuple[int, int]:
    """Return of how many rows of a sample a Gather picks how many.

    A row is as many of the last dimensions as input and output have in common, less one if those
    are all; with indices, as many as leave one of these for each row, if any do.
    """
    source, picked = inputs[0][1:], output[1:]
    pairs = zip(reversed(source), reversed(picked), strict=False)
    differing = [k for k, (own, other) in enumerate(pairs) if own != other]
    common = min([*differing, len(source) - 1, len(picked)])
    choices = [
        (int(product(source[: len(source) - k])), int(product(picked[: len(picked) - k])))
        for k in range(common, -1, -1)
    ]
    if len(inputs) > 1:
        indices = product(inputs[1][1:])
        return next((choice for choice in choices if choice[1] == indices), choices[0])
    return choices[0]


@builds("Gather")
def _gather(layer: Any, inputs: tuple[Sizes, ...]) -> Block:
    """Rows are picked by the indices given, or by fixed ones."""
    output, shape = layer.infer_shape(inputs), inputs[0]
    rows, picked = _rows_of(inputs, output)
    differing = [i for i, size in enumerate(shape) if i and output[i : i + 1] != (size,)]
    along = differing[0] if len(shape) == len(output) and len(differing) == 1 else 0

    def run(scene: Scene, xs: Sequence[Any], ws: Sequence[Any], states: Sequence[Any]) -> Any:
        tf = scene.tf
        if len(xs) == 1 and along:
            return tf.gather(xs[0], scene.fixed(output[along], shape[along]), axis=along)
        table = tf.reshape(xs[0], (shape[0], rows, -1))
        if len(xs) == 1:
            return tf.reshape(tf.gather(table, scene.fixed(picked, rows), axis=1), output)
        indices = _again(scene, scene.indices(xs[1], rows), picked)
        if shape[0] == 1:
            return tf.reshape(tf.gather(table[0], indices), output)
        indices = tf.broadcast_to(indices, (output[0], picked))
        return tf.reshape(tf.gather(table, indices, axis=1, batch_dims=1), output)

    return Block(run)


def _again(scene: Scene, tensor: Any, count: int) -> Any:
    """Return `count` numbers of each sample: those that there are, taken again or left out."""
    tf = scene.tf
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
def _reduce(layer: Any, inputs: tuple[Sizes, ...]) -> Block:
    output = layer.infer_shape(inputs)
    dims = [dim % len(inputs[0]) for dim in layer.dims]
    others = [dim for dim in range(len(inputs[0])) if dim not in dims]

    def run(scene: Scene, xs: Sequence[Any], ws: Sequence[Any], states: Sequence[Any]) -> Any:
        tf, x = scene.tf, xs[0]
        if layer.function == "argmax":
            rows = tf.transpose(x, (*others, *dims)) if dims[-1] != len(inputs[0]) - 1 else x
            rows = tf.reshape(rows, (*(inputs[0][dim] for dim in others), -1))
            y = scene.cast(tf.argmax(rows, -1))
        elif layer.function == "norm":
            y = tf.sqrt(tf.reduce_sum(tf.square(x), dims))
        else:
            y = getattr(tf, _REDUCTIONS[layer.function])(x, dims)
        return tf.reshape(y, output)

    return Block(run)


# Ends ---------------------------------------------------------------------------------------

_BY_CLASS = ("softmax_cross_entropy", "cross_entropy", "hinge")


def _are_classes(layer: Any, inputs: tuple[Sizes, ...]) -> bool:
    """Tell whether labels name a class for each row of scores, not a number for each score."""
    if layer.type_name == "Loss" and layer.function not in _BY_CLASS:
        return False
    return len(inputs) == 1 or bool(product(inputs[0][1:]) != product(inputs[1][1:]))


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


def _scores_and_labels(
    scene: Scene, layer: Any, xs: Sequence[Any], inputs: tuple[Sizes, ...]
) -> tuple[Any, Any]:
    """Return rows of scores; a class for each of them, or a number for each score.

    Labels that a net has fewer or more of are taken again, or left out. Without any they are 0.
    """
    tf, (n, *rest) = scene.tf, inputs[0]
    are_classes = _are_classes(layer, inputs)
    count = int(product(rest)) // (rest[-1] if are_classes else 1)
    scores = tf.reshape(xs[0], (-1, rest[-1]))
    if len(xs) == 1:
        found = tf.zeros((n, count), tf.int64 if are_classes else scores.dtype)
    else:
        labels = scene.indices(xs[1], rest[-1]) if are_classes else xs[1]
        found = tf.broadcast_to(_again(scene, labels, count), (n, count))
    return scores, tf.reshape(found, (-1,) if are_classes else (-1, rest[-1]))


@builds("Loss")
def _loss(layer: Any, inputs: tuple[Sizes, ...]) -> Block:
    """The mean over what each sample has; inputs behind the labels are weights."""
    n, classes, are_classes = inputs[0][0], inputs[0][-1], _are_classes(layer, inputs)

    def each(tf: Any, scores: Any, labels: Any) -> Any:
        if layer.function != "softmax_cross_entropy":
            labels = tf.one_hot(labels, classes, dtype=scores.dtype) if are_classes else labels
            return tf.reduce_sum(_EACH[layer.function](tf, scores, labels), 1)
        if are_classes:
            return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores)
        return tf.nn.softmax_cross_entropy_with_logits(labels, scores)

    def run(scene: Scene, xs: Sequence[Any], ws: Sequence[Any], states: Sequence[Any]) -> Any:
        tf = scene.tf
        made = each(tf, *_scores_and_labels(scene, layer, xs, inputs))
        loss = tf.reduce_mean(tf.reshape(made, (n, -1)), 1, keepdims=True)
        for weight in xs[2:]:
            loss *= tf.reduce_mean(tf.reshape(weight, (weight.shape[0], -1)), 1, keepdims=True)
        return loss

    return Block(run)


@builds("Accuracy")
def _accuracy(layer: Any, inputs: tuple[Sizes, ...]) -> Block:
    """The share of a sample's rows whose best score is that of the label."""
    n, are_classes = inputs[0][0], _are_classes(layer, inputs)

    def run(scene: Scene, xs: Sequence[Any], ws: Sequence[Any], states: Sequence[Any]) -> Any:
        tf = scene.tf
        scores, labels = _scores_and_labels(scene, layer, xs, inputs)
        classes = labels if are_classes else tf.argmax(labels, 1)
        right = scene.cast(tf.argmax(scores, 1) == classes)
        return tf.reduce_mean(tf.reshape(right, (n, -1)), 1, keepdims=True)

    return Block(run)
