"""Layers with windows, products and recurrent layers in TensorFlow's operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from paleo.core.quantity import product
from paleo.core.window import Axis
from paleo.measure.executors.shapes import Window, aligned
from paleo.measure.executors.tensorflow.builders import Call, UnbuildableError, builds
from paleo.net.layers.base import is_one

__all__: list[str] = []


class _Window(Window):
    """A window over images or volumes; a sequence is an image of one row.

    `padding` is what an operator adds by itself, "SAME" or "VALID"; `margins` what is added before:
    those in numbers are SAME where that gives the same windows; else a layer pads first, as models
    of Keras do: operators with paddings in numbers are several times slower on CPUs, and have no
    gradient for groups.
    """

    def __init__(self, call: Call) -> None:
        super().__init__(call.layer, call.inputs, least=2)
        self.call = call
        is_same = all(map(_is_same, self.axes))
        self.padding = "SAME" if is_same else "VALID"
        if is_same:
            self.margins = [(0, 0)] * self.dims
        #: The strides and the dilations of all dimensions.
        self.steps, self.dilation_steps = [1, *self.strides, 1], [1, *self.dilations, 1]

    def taken(self, value: Any = 0) -> Any:
        """Return the input with one dimension for the batch, and its margins."""
        tf = self.call.tf
        x = tf.reshape(self.call.x, (self.batch, *self.sizes, self.c))
        if not any(map(any, self.margins)):
            return x
        return tf.pad(x, [(0, 0), *self.margins, (0, 0)], constant_values=value)

    def weights(self, *channels: int, summed: int) -> Any:
        """Return filters, whose sums are over so many channels; a second input is them."""
        if len(self.call.xs) > 1:
            if not is_one(self.call.inputs[1][0]):
                raise UnbuildableError("there is no convolution by a filter for each sample")
            return self.call.tf.reshape(self.call.xs[1], (*self.size, *channels))
        return self.call.weight(*self.size, *channels, fan_in=self.terms(summed))


def _is_same(axis: Axis) -> bool:
    """Tell whether a padding has the windows of SAME."""
    same = replace(axis, padding="SAME")
    before = max(same.padding_before, 0)
    return same.output == axis.output and before == max(axis.padding_before, 0)


@builds("Convolution")
def _convolution(call: Call) -> Any:
    at, nn = _Window(call), call.tf.nn
    c, k, groups = at.c, at.k, at.groups
    x = at.taken()
    is_depthwise = (
        1 < groups == c
        and at.dims == 2
        and len(set(at.strides)) == 1
        and (max(at.strides) == 1 or max(at.dilations) == 1)
    )
    if is_depthwise:
        w = at.weights(c, k // c, summed=c)
        y = nn.depthwise_conv2d(x, w, at.steps, at.padding, dilations=at.dilations)
    else:
        w = at.weights(c // groups, k, summed=c)
        operator = nn.conv2d if at.dims == 2 else nn.conv3d
        y = operator(x, w, at.steps, at.padding, dilations=at.dilation_steps)
    return call.biased(call.tf.reshape(y, call.output), call.layer.use_bias)


@builds("Deconvolution")
def _deconvolution(call: Call) -> Any:
    """The gradient of a convolution with respect to its input, which TensorFlow has as such.

    A bias is of the channels out, whatever the habit of 2017 counts.
    """
    at, tf = _Window(call), call.tf
    c, k = at.c, at.k
    padded = tuple(size + sum(pair) for size, pair in zip(at.sizes, at.margins, strict=True))
    operators = (tf.raw_ops.Conv2DBackpropInput, tf.raw_ops.Conv3DBackpropInputV2)
    y = operators[at.dims - 2](
        input_sizes=(at.batch, *padded, c),
        filter=at.weights(c // at.groups, k, summed=k),
        out_backprop=tf.reshape(call.x, (at.batch, *at.output, k)),
        strides=at.steps,
        padding=at.padding,
        dilations=at.dilation_steps,
    )
    if padded != at.sizes:
        y = tf.slice(y, (0, *(before for before, _ in at.margins), 0), (-1, *at.sizes, -1))
    return call.biased(tf.reshape(y, call.output), call.layer.use_bias is not False)


@builds("Pooling", "AvgPool")
def _pooling(call: Call) -> Any:
    """Of a mean with the windows of SAME, the padding does not count; else it counts as zeros."""
    at, tf, is_maximum = _Window(call), call.tf, call.layer.maximum
    if max(at.dilations) > 1 and max(at.strides) > 1:
        raise UnbuildableError("TensorFlow has no pooling that is both dilated and strided")
    x = at.taken(call.x.dtype.min if is_maximum else 0)
    kind = "MAX" if is_maximum else "AVG"
    y = tf.nn.pool(x, at.size, kind, at.strides, at.padding, dilations=at.dilations)
    return tf.reshape(y, call.output)


@builds("GlobalPooling")
def _global_pooling(call: Call) -> Any:
    tf = call.tf
    reduce = tf.reduce_mean if call.layer.function == "average" else tf.reduce_max
    return reduce(call.x, list(range(1, len(call.inputs[0]) - 1)), keepdims=True)


@builds("UpSampling2D")
def _upsampling(call: Call) -> Any:
    """Repeats by broadcasting, which is one pass in any number of dimensions."""
    tf, shape, rank = call.tf, call.inputs[0], len(call.layer.ksize)
    sizes, n, c = shape[-rank - 1 : -1], int(product(shape[: -rank - 1])), shape[-1]
    apart = [number for size in sizes for number in (size, 1)]
    repeated = [number for pair in zip(sizes, call.layer.ksize, strict=True) for number in pair]
    y = tf.broadcast_to(tf.reshape(call.x, (n, *apart, c)), (n, *repeated, c))
    return tf.reshape(y, call.output)


@builds("Resize")
def _resize(call: Call) -> Any:
    tf, shape, rank = call.tf, call.inputs[0], len(call.layer.size)
    if rank > 2:
        raise UnbuildableError("TensorFlow resizes sequences and images only")
    single = (1,) * (2 - rank)
    images = (int(product(shape[: -rank - 1])), *single, *shape[-rank - 1 :])
    method = {"nearest": "nearest", "linear": "bilinear", "cubic": "bicubic"}[call.layer.mode]
    y = tf.image.resize(tf.reshape(call.x, images), (*single, *call.layer.size), method)
    return tf.reshape(tf.cast(y, call.x.dtype), call.output)


# Products -----------------------------------------------------------------------------------


def _whole(layer: Any) -> None:
    if layer.weights is not None:
        raise UnbuildableError(f"TensorFlow has no product with weights in {layer.weights}")


@builds("InnerProduct")
def _inner_product(call: Call) -> Any:
    _whole(call.layer)
    tf = call.tf
    d, k = int(product(call.inputs[0]) // product(call.output[:-1])), call.layer.num_outputs
    y = tf.matmul(tf.reshape(call.x, (-1, d)), call.weight(d, k, fan_in=d))
    return tf.reshape(call.biased(y, call.layer.use_bias), call.output)


@builds("Experts")
def _experts(call: Call) -> Any:
    """Rows that are next to each other go to one expert, as if they had been sorted."""
    tf, layer, (*front, d) = call.tf, call.layer, call.inputs[0]
    if layer.load != "even":
        raise UnbuildableError("rows are spread evenly over experts")
    _whole(layer)
    experts, k, rows = layer.num_experts, layer.num_outputs, int(product(front))
    weight = call.weight(experts, d, k, fan_in=d)
    bias = call.weight(experts, 1, k) if layer.use_bias else None
    groups = min(rows, experts)
    each, more = divmod(rows, groups)  # the first groups have one row more
    left, made = tf.reshape(call.x, (rows, d)), []
    for first, end, size in [(0, more, each + 1)] * bool(more) + [(more, groups, each)]:
        own, left = tf.split(left, [(end - first) * size, -1])
        y = tf.matmul(tf.reshape(own, (end - first, size, d)), weight[first:end])
        made.append(tf.reshape(y if bias is None else y + bias[first:end], (-1, k)))
    return tf.reshape(tf.concat(made, 0), call.output)


@builds("Embedding")
def _embedding(call: Call) -> Any:
    # In mixed precision the rows are cast, not the table.
    rows, d = call.layer.num_embeddings, call.layer.num_outputs
    table = call.hold(rows, d, fan_in=d)
    return call.scene.cast(call.tf.gather(table, call.scene.indices(call.x, rows)))


@builds("MatMul")
def _matmul(call: Call) -> Any:
    tf, layer, (x, y), (a, b) = call.tf, call.layer, call.xs, call.inputs
    if all(size == 1 for size in b[:-2]) and not layer.transpose_a:
        # One matrix for all: one larger product.
        x, y = tf.reshape(x, (-1, a[-1])), tf.reshape(y, b[-2:])
    else:
        rank = max(len(a), len(b))
        x, y = tf.reshape(x, aligned(a, rank)), tf.reshape(y, aligned(b, rank))
    made = tf.matmul(x, y, transpose_a=layer.transpose_a, transpose_b=layer.transpose_b)
    return tf.reshape(made, call.output)


@builds("Similarity")
def _similarity(call: Call) -> Any:
    return call.tf.matmul(*call.xs, transpose_b=True)


@builds("Einsum")
def _einsum(call: Call) -> Any:
    tf = call.tf
    left, _, right = call.layer.equation.partition("->")
    terms = left.split(",")
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, call.inputs, strict=True):
        for letter, size in zip(term, shape, strict=False):
            sizes[letter] = max(size, sizes.get(letter, 1))
    factors = []
    for term, x in zip(terms, call.xs, strict=True):
        wanted = tuple(sizes[letter] for letter in term)
        factor = tf.reshape(x, x.shape[: len(term)])  # a number for each sample is N x 1
        factors.append(factor if factor.shape == wanted else tf.broadcast_to(factor, wanted))
    return tf.reshape(tf.einsum(f"{left}->{right}", *factors), call.output)


@builds("Attention")
def _attention(call: Call) -> Any:
    """Two products and a softmax: TensorFlow has no kernel of its own for attention."""
    tf, layer, n, (q, k, _) = call.tf, call.layer, call.output[0], call.inputs[:3]
    if not layer.is_plain:
        raise UnbuildableError("TensorFlow has no operator for it")
    (*front, heads, queries, depth), shared, keys = q[1:], k[-3], k[-2]
    batch, group = (n, *front, shared), heads // shared
    # Products, scaled, with those that are not seen left out, and weights.
    call.scene.makes.append(4 * int(product(batch)) * group * queries * keys)
    x, y, z = (call.repeated(tensor, n) for tensor in call.xs[:3])
    x = tf.reshape(x, (*batch, group * queries, depth))
    scores = tf.matmul(x, y, transpose_b=True) * depth**-0.5
    for mask in call.xs[3:]:
        scores = tf.reshape(scores, (*batch, group, queries, keys)) + mask
        scores = tf.reshape(scores, (*batch, group * queries, keys))
    if layer.causal:
        place = tf.range(queries)[:, None] + (keys - queries)
        seen = tf.range(keys)[None] <= place
        if layer.window:
            seen &= tf.range(keys)[None] > place - layer.window
        scores = tf.reshape(scores, (*batch, group, queries, keys))
        scores = tf.where(seen, scores, scores.dtype.min)
        scores = tf.reshape(scores, (*batch, group * queries, keys))
    return tf.reshape(tf.matmul(tf.nn.softmax(scores), z), call.output)


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
def _recurrent(call: Call) -> Any:
    """The inputs of all steps in one product, then the steps in a loop of the graph.

    So does Keras where it does not use cuDNN.
    """
    tf, layer, (*front, t, d) = call.tf, call.layer, call.inputs[0]
    n = product(front)
    h, units = layer.num_outputs, layer.gates * layer.num_outputs
    out = call.output[-1] // (1 + layer.bidirectional)
    step = _STEPS[layer.type_name]
    start = tuple(tf.zeros((n, width), call.scene.dtype) for width in (out, h)[: layer.states])

    def steps(x: Any) -> Any:
        w, u = call.weight(d, units, fan_in=d), call.weight(out, units, fan_in=out)
        biases: Sequence[Any] = [call.weight(units) for _ in range(layer.num_biases)]
        down = call.weight(h, out, fan_in=h) if getattr(layer, "projection", 0) else None
        gates = tf.matmul(tf.reshape(x, (-1, d)), w)
        gates = tf.nn.bias_add(gates, biases[0]) if biases else gates
        gates = tf.transpose(tf.reshape(gates, (n, t, units)), (1, 0, 2))

        def hidden(state: Any) -> Any:
            made = tf.matmul(state, u)
            return tf.nn.bias_add(made, biases[1]) if len(biases) == 2 else made

        states = tf.scan(lambda state, now: step(tf, now, state, hidden, down), gates, start)
        return tf.transpose(states[0], (1, 0, 2))

    x = tf.reshape(call.x, (n, t, d))
    y = steps(x)
    if layer.bidirectional:
        y = tf.concat((y, tf.reverse(steps(tf.reverse(x, [1])), [1])), 2)
    return tf.reshape(y, call.output)
