"""Layers with windows, products and recurrent layers in TensorFlow's operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from paleo.executors.tensorflow_blocks import (
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
from paleo.quantity import product
from paleo.window import Axis
from paleo.work import Pass

__all__: list[str] = []


class _Window(NamedTuple):
    """A window over images or volumes; a sequence is an image of one row.

    `padding` is what an operator adds by itself, "SAME" or "VALID"; `margins` what is added before.
    """

    batch: int
    sizes: Sizes
    window: Sizes
    strides: Sizes
    dilations: Sizes
    padding: str
    margins: list[tuple[int, int]]
    output: Sizes

    @property
    def dims(self) -> int:
        """2 or 3 spatial dimensions."""
        return len(self.sizes)

    @property
    def steps(self) -> list[int]:
        """The strides of all dimensions."""
        return [1, *self.strides, 1]

    @property
    def dilation_steps(self) -> list[int]:
        """The dilations of all dimensions."""
        return [1, *self.dilations, 1]

    def taken(self, scene: Scene, x: Any, channels: int, value: Any = 0) -> Any:
        """Return x with one dimension for the batch, and its margins."""
        tf = scene.tf
        x = tf.reshape(x, (self.batch, *self.sizes, channels))
        if not any(map(any, self.margins)):
            return x
        return tf.pad(x, [(0, 0), *self.margins, (0, 0)], constant_values=value)


def _window(operation: Any) -> _Window:
    """Return the window of a convolution or a pooling.

    Margins in numbers are SAME where that gives the same windows; else a layer pads first, as
    models of Keras do: operators with paddings in numbers are several times slower on CPUs, and
    have no gradient for groups.
    """
    along: tuple[Axis, ...] = operation.axes
    if len(along) == 1:
        along = (Axis(1, 1, 1, along[0].padding if along[0].padding == "SAME" else (0, 0)), *along)
    is_same = all(map(_is_same, along))
    return _Window(
        int(operation.batch),
        tuple(int(axis.size) for axis in along),
        tuple(axis.window for axis in along),
        tuple(axis.stride for axis in along),
        tuple(axis.dilation for axis in along),
        "SAME" if is_same else "VALID",
        [(0, 0) if is_same else _margins(axis) for axis in along],
        tuple(axis.output for axis in along),
    )


def _is_same(axis: Axis) -> bool:
    """Tell whether a padding has the windows of SAME."""
    same = replace(axis, padding="SAME")
    before = max(same.padding_before, 0)
    return same.output == axis.output and before == max(axis.padding_before, 0)


def _margins(axis: Axis) -> tuple[int, int]:
    """Return the elements before and after, with those that a last window hangs over."""
    before = axis.padding_before
    needed = (axis.output - 1) * axis.stride + axis.span - axis.size - before
    return before, max(axis.total_padding - before, needed, 0)


@builds("Convolution")
def _convolution(layer: Any, inputs: tuple[Sizes, ...]) -> Block:
    work: Any = layer.operations(Pass.FORWARD, inputs, 4)[0]
    at, output = _window(work), layer.infer_shape(inputs)
    c, k, groups = work.in_channels, work.out_channels, work.groups
    is_depthwise = (
        1 < groups == c
        and at.dims == 2
        and len(set(at.strides)) == 1
        and (max(at.strides) == 1 or max(at.dilations) == 1)
    )
    shape = (*at.window, c, k // c) if is_depthwise else (*at.window, c // groups, k)
    weights = Parameter(shape, product(at.window) * c // groups)

    def run(scene: Scene, xs: Sequence[Any], ws: Sequence[Any], states: Sequence[Any]) -> Any:
        nn = scene.tf.nn
        x, w = at.taken(scene, xs[0], c), scene.cast(ws[0])
        if is_depthwise:
            y = nn.depthwise_conv2d(x, w, at.steps, at.padding, dilations=at.dilations)
        else:
            operator = nn.conv2d if at.dims == 2 else nn.conv3d
            y = operator(x, w, at.steps, at.padding, dilations=at.dilation_steps)
        y = scene.tf.reshape(y, output)
        return nn.bias_add(y, scene.cast(ws[1])) if layer.use_bias else y

    return Block(run, (weights, Parameter((k,)))[: 1 + layer.use_bias])


@builds("Deconvolution")
def _deconvolution(layer: Any, inputs: tuple[Sizes, ...]) -> Block:
    """The gradient of a convolution with respect to its input, which TensorFlow has as such.

    A bias is of the channels out, whatever the habit of 2017 counts.
    """
    work: Any = layer.operations(Pass.FORWARD, inputs, 4)[0]
    at, output = _window(work), layer.infer_shape(inputs)
    c, k = work.in_channels, work.out_channels
    weights = Parameter((*at.window, c // work.groups, k), product(at.window) * k // work.groups)
    has_bias = layer.use_bias is not False
    whole = tuple(size + sum(pair) for size, pair in zip(at.sizes, at.margins, strict=True))

    def run(scene: Scene, xs: Sequence[Any], ws: Sequence[Any], states: Sequence[Any]) -> Any:
        tf = scene.tf
        x, w = tf.reshape(xs[0], (at.batch, *at.output, k)), scene.cast(ws[0])
        operators = (tf.raw_ops.Conv2DBackpropInput, tf.raw_ops.Conv3DBackpropInputV2)
        y = operators[at.dims - 2](
            input_sizes=(at.batch, *whole, c),
            filter=w,
            out_backprop=x,
            strides=at.steps,
            padding=at.padding,
            dilations=at.dilation_steps,
        )
        if whole != at.sizes:
            y = tf.slice(y, (0, *(before for before, _ in at.margins), 0), (-1, *at.sizes, -1))
        y = tf.reshape(y, output)
        return tf.nn.bias_add(y, scene.cast(ws[1])) if has_bias else y

    return Block(run, (weights, Parameter((c,)))[: 1 + has_bias])


@builds("Pooling", "AvgPool")
def _pooling(layer: Any, inputs: tuple[Sizes, ...]) -> Block:
    """Of a mean with the windows of SAME, the padding does not count; else it counts as zeros."""
    work: Any = layer.operations(Pass.FORWARD, inputs, 4)[0]
    at, output, c = _window(work), layer.infer_shape(inputs), work.in_channels
    if max(at.dilations) > 1 and max(at.strides) > 1:
        raise UnbuildableError("TensorFlow has no pooling that is both dilated and strided")

    def run(scene: Scene, xs: Sequence[Any], ws: Sequence[Any], states: Sequence[Any]) -> Any:
        x = at.taken(scene, xs[0], c, xs[0].dtype.min if layer.maximum else 0)
        kind = "MAX" if layer.maximum else "AVG"
        pool = scene.tf.nn.pool
        y = pool(x, at.window, kind, at.strides, at.padding, dilations=at.dilations)
        return scene.tf.reshape(y, output)

    return Block(run)


@builds("GlobalPooling")
def _global_pooling(layer: Any, inputs: tuple[Sizes, ...]) -> Block:
    dims = list(range(1, len(inputs[0]) - 1))
    name = "reduce_mean" if layer.function == "average" else "reduce_max"
    return of_one(lambda tf, x: getattr(tf, name)(x, dims, keepdims=True))


@builds("UpSampling2D")
def _upsampling(layer: Any, inputs: tuple[Sizes, ...]) -> Block:
    """Repeats by broadcasting, which is one pass in any number of dimensions."""
    rank, output = len(layer.ksize), layer.infer_shape(inputs)
    front, sizes, c = inputs[0][: -rank - 1], inputs[0][-rank - 1 : -1], inputs[0][-1]
    n = int(product(front))
    apart = [each for size in sizes for each in (size, 1)]
    repeated = [
        each for size, times in zip(sizes, layer.ksize, strict=True) for each in (size, times)
    ]

    def run(tf: Any, x: Any) -> Any:
        y = tf.broadcast_to(tf.reshape(x, (n, *apart, c)), (n, *repeated, c))
        return tf.reshape(y, output)

    return of_one(run)


@builds("Resize")
def _resize(layer: Any, inputs: tuple[Sizes, ...]) -> Block:
    rank, output = len(layer.size), layer.infer_shape(inputs)
    if rank > 2:
        raise UnbuildableError("TensorFlow resizes sequences and images only")
    n = int(product(inputs[0][: -rank - 1]))
    images = (n, *(1,) * (2 - rank), *inputs[0][-rank - 1 :])
    method = {"nearest": "nearest", "linear": "bilinear", "cubic": "bicubic"}[layer.mode]

    def run(tf: Any, x: Any) -> Any:
        y = tf.image.resize(tf.reshape(x, images), (*(1,) * (2 - rank), *layer.size), method)
        return tf.reshape(tf.cast(y, x.dtype), output)

    return of_one(run)


# Products -----------------------------------------------------------------------------------


@builds("InnerProduct")
def _inner_product(layer: Any, inputs: tuple[Sizes, ...]) -> Block:
    output = layer.infer_shape(inputs)
    d, k = int(product(inputs[0]) // product(output[:-1])), layer.num_outputs

    def run(scene: Scene, xs: Sequence[Any], ws: Sequence[Any], states: Sequence[Any]) -> Any:
        tf = scene.tf
        y = tf.matmul(tf.reshape(xs[0], (-1, d)), scene.cast(ws[0]))
        y = tf.nn.bias_add(y, scene.cast(ws[1])) if layer.use_bias else y
        return tf.reshape(y, output)

    return Block(run, (Parameter((d, k), d), Parameter((k,)))[: 1 + layer.use_bias])


@builds("Embedding")
def _embedding(layer: Any, inputs: tuple[Sizes, ...]) -> Block:
    def run(scene: Scene, xs: Sequence[Any], ws: Sequence[Any], states: Sequence[Any]) -> Any:
        # In mixed precision the rows are cast, not the table.
        return scene.cast(scene.tf.gather(ws[0], scene.indices(xs[0], layer.num_embeddings)))

    return Block(run, (Parameter((layer.num_embeddings, layer.num_outputs), layer.num_outputs),))


@builds("MatMul")
def _matmul(layer: Any, inputs: tuple[Sizes, ...]) -> Block:
    output, rank = layer.infer_shape(inputs), max(map(len, inputs))
    a, b = inputs
    is_shared = all(size == 1 for size in b[:-2]) and not layer.transpose_a

    def run(tf: Any, x: Any, y: Any) -> Any:
        if is_shared:  # one matrix for all: one larger product
            y = tf.reshape(y, b[-2:])
            product_ = tf.matmul(tf.reshape(x, (-1, a[-1])), y, transpose_b=layer.transpose_b)
        else:
            x, y = (tf.reshape(each, aligned(own, rank)) for each, own in ((x, a), (y, b)))
            product_ = tf.matmul(x, y, transpose_a=layer.transpose_a, transpose_b=layer.transpose_b)
        return tf.reshape(product_, output)

    return of_all(run)


@builds("Einsum")
def _einsum(layer: Any, inputs: tuple[Sizes, ...]) -> Block:
    output = layer.infer_shape(inputs)
    left, _, right = layer.equation.partition("->")
    terms = left.split(",")
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, inputs, strict=True):
        for letter, size in zip(term, shape, strict=False):
            sizes[letter] = max(size, sizes.get(letter, 1))

    def run(tf: Any, *xs: Any) -> Any:
        factors = []
        for term, x in zip(terms, xs, strict=True):
            wanted = tuple(sizes[letter] for letter in term)
            own = tf.reshape(x, x.shape[: len(term)])  # a number for each sample is N x 1
            factors.append(own if own.shape == wanted else tf.broadcast_to(own, wanted))
        return tf.reshape(tf.einsum(f"{left}->{right}", *factors), output)

    return of_all(run)


@builds("Attention")
def _attention(layer: Any, inputs: tuple[Sizes, ...]) -> Block:
    """Two products and a softmax: TensorFlow has no kernel of its own for attention."""
    output = layer.infer_shape(inputs)
    n, (q, k, _) = output[0], inputs
    (*front, heads, queries, depth), shared, keys = q[1:], k[-3], k[-2]
    batch = (n, *front, shared)

    def run(scene: Scene, xs: Sequence[Any], ws: Sequence[Any], states: Sequence[Any]) -> Any:
        tf = scene.tf
        x, y, z = (
            tf.broadcast_to(each, (n, *shape[1:])) if shape[0] != n else each
            for each, shape in zip(xs, inputs, strict=True)
        )
        x = tf.reshape(x, (*batch, heads // shared * queries, depth))
        scores = tf.matmul(x, y, transpose_b=True) * depth**-0.5
        if layer.causal:
            place = tf.range(queries)[:, None] + (keys - queries)
            seen = tf.range(keys)[None] <= place
            if layer.window:
                seen &= tf.range(keys)[None] > place - layer.window
            scores = tf.reshape(scores, (*batch, heads // shared, queries, keys))
            scores = tf.where(seen, scores, scores.dtype.min)
            scores = tf.reshape(scores, (*batch, heads // shared * queries, keys))
        return tf.reshape(tf.matmul(tf.nn.softmax(scores), z), output)

    # Products, scaled, with those that are not seen left out, and weights.
    return Block(run, makes=4 * int(product(batch)) * (heads // shared) * queries * keys)


# Recurrent layers ---------------------------------------------------------------------------


def _lstm_step(tf: Any, gates: Any, state: Any, hidden: Callable[[Any], Any], down: Any) -> Any:
    output, cell = state
    i, f, g, o = tf.split(gates + hidden(output), 4, axis=1)
    cell = tf.sigmoid(f) * cell + tf.sigmoid(i) * tf.tanh(g)
    output = tf.sigmoid(o) * tf.tanh(cell)
    return (output if down is None else tf.matmul(output, down)), cell


def _gru_step(tf: Any, gates: Any, state: Any, hidden: Callable[[Any], Any], down: Any) -> Any:
    # The reset gate multiplies the state's product, as in cuDNN, PyTorch and Keras.
    (r, z, n), (r_too, z_too, n_too) = (
        tf.split(each, 3, axis=1) for each in (gates, hidden(state[0]))
    )
    z = tf.sigmoid(z + z_too)
    return ((1 - z) * tf.tanh(n + tf.sigmoid(r + r_too) * n_too) + z * state[0],)


def _rnn_step(tf: Any, gates: Any, state: Any, hidden: Callable[[Any], Any], down: Any) -> Any:
    return (tf.tanh(gates + hidden(state[0])),)


_STEPS = {"RNN": _rnn_step, "GRU": _gru_step, "LSTM": _lstm_step}


@builds("RNN", "GRU", "LSTM")
def _recurrent(layer: Any, inputs: tuple[Sizes, ...]) -> Block:
    """The inputs of all steps in one product, then the steps in a loop of the graph.

    So does Keras where it does not use cuDNN.
    """
    n, t, d = inputs[0]
    h, units = layer.num_outputs, layer.gates * layer.num_outputs
    directions = 1 + layer.bidirectional
    out = layer.infer_shape(inputs)[2] // directions
    step = _STEPS[layer.type_name]
    biases = layer.num_biases
    own = (
        Parameter((d, units), d),
        Parameter((out, units), out),
        *(Parameter((units,)),) * biases,
        *(Parameter((h, out), h),) * (getattr(layer, "projection", 0) > 0),
    )

    def one(scene: Scene, x: Any, ws: Sequence[Any]) -> Any:
        tf = scene.tf
        w, u = ws[:2]
        gates = tf.matmul(tf.reshape(x, (-1, d)), w)
        gates = tf.nn.bias_add(gates, ws[2]) if biases else gates
        gates = tf.transpose(tf.reshape(gates, (n, t, units)), (1, 0, 2))
        down = ws[-1] if len(ws) > 2 + biases else None

        def hidden(state: Any) -> Any:
            product_ = tf.matmul(state, u)
            return tf.nn.bias_add(product_, ws[3]) if biases == 2 else product_

        widths = (out, h)[: layer.states]
        start = tuple(tf.zeros((n, width), scene.dtype) for width in widths)
        states = tf.scan(lambda state, now: step(tf, now, state, hidden, down), gates, start)
        return tf.transpose(states[0], (1, 0, 2))

    def run(scene: Scene, xs: Sequence[Any], ws: Sequence[Any], states: Sequence[Any]) -> Any:
        tf, x = scene.tf, xs[0]
        ws = [scene.cast(w) for w in ws]
        forth = one(scene, x, ws[: len(own)])
        if not layer.bidirectional:
            return forth
        back = one(scene, tf.reverse(x, [1]), ws[len(own) :])
        return tf.concat((forth, tf.reverse(back, [1])), 2)

    return Block(run, own * directions)
