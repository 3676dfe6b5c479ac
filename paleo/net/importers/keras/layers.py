"""Keras layers that multiply: dense ones, convolutions, recurrences, attention; and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from paleo.core.checks import shown
from paleo.core.tensor import format_shape
from paleo.net.importers.base import OperatorError
from paleo.net.importers.builder.layers import make
from paleo.net.importers.builder.layout import Value, Windows
from paleo.net.importers.keras.call import Call, Result, operator
from paleo.net.importers.keras.elementwise import activated


@operator("Dense")
def _dense(call: Call) -> Result:
    x, units = call.x, call.integer("units")
    if len(x.shape) < 2:
        raise OperatorError(f"a product of {format_shape(x.shape)}")
    weight = call.parameter("kernel", (units, x.shape[-1]))
    bias = call.optional("use_bias", "bias", (units,))
    return activated(call, call.builder.linear(call.name, x, weight, bias))


@operator("Embedding")
def _embedding(call: Call) -> Result:
    weight = call.parameter("embeddings", (call.integer("input_dim"), call.integer("output_dim")))
    return call.builder.embedding(call.name, call.x, weight)


# Windows


def _pads(padding: str, sizes: Sequence[int], taps: Sequence[int], windows: Windows) -> Windows:
    """Return the windows with TensorFlow's padding: what is odd is at the end."""
    pads = []
    for size, span, stride in zip(sizes, windows.spans(taps), windows.strides, strict=True):
        if padding == "causal":
            pads.append((span - 1, 0))
        elif padding == "same":
            whole = max((-(-size // stride) - 1) * stride + span - size, 0)
            pads.append((whole // 2, whole - whole // 2))
        elif span > size:
            raise OperatorError(f"a window of {span} is larger than its input of {size}")
        else:
            pads.append((0, 0))
    return Windows(windows.strides, pads, windows.dilations, windows.groups)


def _windows(call: Call, sizes: Sequence[int], taps: Sequence[int], groups: int = 1) -> Windows:
    rank = len(taps)
    words = ("valid", "same", *(["causal"] if rank == 1 else []))
    windows = Windows(
        call.integers("strides", rank, 1),
        [(0, 0)] * rank,
        call.integers("dilation_rate", rank, 1),
        groups,
    )
    return _pads(call.choice("padding", "valid", words), sizes, taps, windows)


def _rank(call: Call) -> int:
    """Return the number of spatial axes, which stands in the name of the class."""
    return int(next(letter for letter in call.kind if letter.isdigit()))


@operator("Conv1D", "Conv2D", "Conv3D", "Convolution1D", "Convolution2D", "Convolution3D")
def _convolution(call: Call) -> Result:
    rank = _rank(call)
    x, k, groups = call.image(rank), call.integer("filters"), call.integer("groups", 1)
    if x.shape[1] % groups or k % groups:
        raise OperatorError(f"{x.shape[1]} channels to {k} in {groups} groups", "groups")
    taps = call.integers("kernel_size", rank)
    weight = call.parameter("kernel", (k, x.shape[1] // groups, *taps))
    bias = call.optional("use_bias", "bias", (k,))
    windows = _windows(call, x.shape[2:], taps, groups)
    made = call.builder.convolution(call.name, x, weight, bias, windows=windows)
    return activated(call, call.as_it_came(made))


@operator("DepthwiseConv1D", "DepthwiseConv2D")
def _depthwise(call: Call) -> Result:
    x = call.image(_rank(call))
    bias = call.optional("use_bias", "bias", (x.shape[1] * call.integer("depth_multiplier", 1),))
    return activated(call, call.as_it_came(_by_channel(call, call.name, "kernel", x, bias)))


def _by_channel(call: Call, name: str, what: str, x: Value, bias: Value | None) -> Value:
    """Return a convolution of each channel with filters of its own."""
    channels, rank = x.shape[1], len(x.shape) - 2
    taps = call.integers("kernel_size", rank)
    weight = call.parameter(what, (channels * call.integer("depth_multiplier", 1), 1, *taps))
    windows = _windows(call, x.shape[2:], taps, channels)
    return call.builder.convolution(name, x, weight, bias, windows=windows)


@operator("SeparableConv1D", "SeparableConv2D", "SeparableConvolution1D", "SeparableConvolution2D")
def _separable(call: Call) -> Result:
    x, k = call.image(_rank(call)), call.integer("filters")
    apart = _by_channel(call, f"{call.name}/depthwise", "depthwise_kernel", x, None)
    ones = [1] * (len(x.shape) - 2)
    weight = call.parameter("pointwise_kernel", (k, apart.shape[1], *ones))
    bias = call.optional("use_bias", "bias", (k,))
    windows = Windows(ones, [(0, 0)] * len(ones))
    made = call.builder.convolution(f"{call.name}/pointwise", apart, weight, bias, windows=windows)
    return activated(call, call.as_it_came(made))


@operator("Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose")
def _transposed(call: Call) -> Result:
    rank = _rank(call)
    x, k = call.image(rank), call.integer("filters")
    if call.integer("groups", 1) > 1:
        raise OperatorError("groups are not understood here", "groups")
    taps = call.integers("kernel_size", rank)
    weight = call.parameter("kernel", (x.shape[1], k, *taps))
    bias = call.optional("use_bias", "bias", (k,))
    strides = call.integers("strides", rank, 1)
    windows = Windows(strides, [(0, 0)] * rank, call.integers("dilation_rate", rank, 1))
    same = call.choice("padding", "valid", ("valid", "same")) == "same"
    given = call.config.get("output_padding")
    more = [None] * rank if given is None else given if isinstance(given, list) else [given] * rank
    sizes, pads = [], []
    axes = zip(x.shape[2:], windows.spans(taps), strides, more, strict=False)
    for size, span, stride, extra in axes:
        reach = (size - 1) * stride + span
        if extra is None:
            whole = size * stride if same else size * stride + max(span - stride, 0)
        elif isinstance(extra, int):
            whole = reach + extra - (span // 2 * 2 if same else 0)
        else:
            raise OperatorError(f"expected whole numbers, got {shown(extra)}", "output_padding")
        sizes.append(whole)
        pads.append((max(reach - whole, 0) // 2,) * 2)
    if len(sizes) != rank:
        raise OperatorError(f"expected {rank} numbers, got {shown(given)}", "output_padding")
    windows = Windows(strides, pads, windows.dilations)
    made = call.builder.conv_transpose(
        call.name, x, weight, bias, windows=windows, output_shape=sizes
    )
    return activated(call, call.as_it_came(made))


@operator(*(f"{kind}Pooling{rank}D" for kind in ("Max", "Average") for rank in (1, 2, 3)))
def _pooling(call: Call) -> Result:
    rank = _rank(call)
    x, taps = call.image(rank), call.integers("pool_size", rank, 2)
    own = call.config.get("strides")
    strides = taps if own is None else call.integers("strides", rank)
    padding = call.choice("padding", "valid", ("valid", "same"))
    windows = _pads(padding, x.shape[2:], taps, Windows(strides, [(0, 0)] * rank))
    kind = "max" if call.kind.startswith("Max") else "average"
    return call.as_it_came(call.builder.pool(call.name, x, kind, taps, windows))


@operator(*(f"Global{kind}Pooling{rank}D" for kind in ("Max", "Average") for rank in (1, 2, 3)))
def _global_pooling(call: Call) -> Result:
    rank = _rank(call)
    kind = "max" if "Max" in call.kind else "average"
    pooled = call.builder.adaptive_pool(call.name, call.image(rank), kind, [1] * rank)
    if call.flag("keepdims"):
        return call.as_it_came(pooled)
    return call.builder.reshape(call.name, pooled, pooled.shape[:2])


# Recurrences

#: The layer that a recurrence is, and the gates of it.
_CELLS = {"LSTM": ("LSTM", 4), "GRU": ("GRU", 3), "SimpleRNN": ("RNN", 1)}


def _recur(call: Call, bidirectional: bool) -> tuple[Value, Value]:
    """Return the result, of all steps if they are asked for, and the outputs of the last step."""
    x, hidden = call.x, call.integer("units")
    if len(x.shape) != 3:
        raise OperatorError(f"its input must be N x T x D, got {format_shape(x.shape)}")
    kind, gates = _CELLS[call.kind]
    if len(call.inputs) > 1:
        call.builder.note("recurrent layers do not wait for first states that other layers give")
    # A GRU whose gate is applied behind the product has a bias for the state too.
    biases = 1 + (call.kind == "GRU" and call.flag("reset_after", True))
    biases *= call.flag("use_bias", True)
    weights = [
        call.parameter("kernel", (gates * hidden, x.shape[2])),
        call.parameter("recurrent_kernel", (gates * hidden, hidden)),
    ]
    layer = make(kind, num_outputs=hidden, bidirectional=bidirectional, num_biases=biases)
    steps = call.builder.recurrent(call.name, layer, x, weights, batch_first=True)
    every, states = call.flag("return_sequences"), call.flag("return_state")
    last = steps
    if states or not every:
        last = call.builder.select(f"{call.name}_last", steps, 1, steps.shape[1] - 1)
    return steps if every else last, last


@operator(*_CELLS)
def _recurrent(call: Call) -> Result:
    result, last = _recur(call, bidirectional=False)
    states = [last] * (2 if call.kind == "LSTM" else 1)
    return [result, *states] if call.flag("return_state") else result


@operator("Bidirectional")
def _bidirectional(call: Call) -> Result:
    held = call.config.get("layer")
    kind = held.get("class_name") if isinstance(held, dict) else None
    config = held.get("config") if isinstance(held, dict) else None
    if kind not in list(_CELLS) or not isinstance(config, dict):
        raise OperatorError(f"both directions of {shown(kind)} are not understood", "layer")
    other = call.config.get("backward_layer")
    back = other.get("config") if isinstance(other, dict) else config
    decisive = ("units", "use_bias", "reset_after", "return_sequences")
    if not isinstance(back, dict) or any(back.get(key) != config.get(key) for key in decisive):
        raise OperatorError("its two directions differ", "backward_layer")
    inner = call.within("forward", kind=kind, config=config)
    inner.name = call.name
    whole, last = _recur(inner, bidirectional=True)
    hidden = inner.integer("units")
    mode = call.config.get("merge_mode", "concat")
    results = [whole]
    if mode != "concat":
        functions = {"sum": "sum", "mul": "product", "ave": "mean"}
        if mode is not None and mode not in list(functions):
            raise OperatorError(f"{shown(mode)} is not understood", "merge_mode")
        names = [f"{call.name}_forward", f"{call.name}_backward"]
        results = call.builder.split(names, whole, len(whole.shape) - 1, [hidden, hidden])
        if mode is not None:
            merged = call.builder.elementwise(f"{call.name}_merge", functions[mode], results)
            results = [merged]
    if not inner.flag("return_state"):
        return results
    names = [f"{call.name}_state", f"{call.name}_back_state"]
    states = call.builder.split(names, last, 1, [hidden, hidden])
    return [*results, *(state for state in states for _ in range(2 if kind == "LSTM" else 1))]


@operator("TimeDistributed")
def _time_distributed(call: Call) -> Result:
    x, held = call.x, call.config.get("layer")
    if len(x.shape) < 3:
        raise OperatorError(f"its input must be N x T x ..., got {format_shape(x.shape)}")
    steps = x.shape[:2]
    together = call.builder.reshape(call.name, x, (prod(steps), *x.shape[2:]))
    made = call.apply(call.key, held, [together])
    return [call.builder.reshape(call.name, each, (*steps, *each.shape[1:])) for each in made]


# Attention


def _attend(call: Call, q: Value, k: Value, v: Value) -> Value:
    causal = bool(call.kwargs.get("use_causal_mask"))
    return call.builder.attention(call.name, q, k, v, causal=causal)


@operator("MultiHeadAttention")
def _multi_head_attention(call: Call) -> Result:
    builder = call.builder
    given = call.values(1)
    names = ("query", "value", "key")
    by_name = dict(zip(names, call.args, strict=False)) | {
        name: call.kwargs[name] for name in names if name in call.kwargs
    }
    query = by_name.get("query", given[0])
    value = by_name.get("value")
    key = by_name.get("key")
    value = query if value is None else value
    key = value if key is None else key
    if not all(isinstance(each, Value) and len(each.shape) == 3 for each in (query, value, key)):
        raise OperatorError("its inputs must be N x T x D")
    if call.config.get("attention_axes") not in (None, [1], [-2], 1):
        raise OperatorError("axes other than 1 are not understood", "attention_axes")
    if call.flag("use_gate"):
        raise OperatorError("a gate is not understood", "use_gate")
    if call.kwargs.get("return_attention_scores"):
        raise OperatorError("attention whose scores are asked for is not understood")
    heads, size = call.integer("num_heads"), call.integer("key_dim")
    depth = call.integer("value_dim", size)
    output = call.config.get("output_shape")
    width = query.shape[-1] if output is None else call.integers("output_shape", 1)[0]

    def product(what: str, x: Value, units: int) -> Value:
        part = call.within(what)
        weight = part.parameter("kernel", (units, x.shape[-1]))
        bias = part.parameter("bias", (units,)) if call.flag("use_bias", True) else None
        return builder.linear(part.name, x, weight, bias)

    def parted(what: str, x: Value, each: int) -> Value:
        made = product(what, x, heads * each)
        apart = builder.reshape(f"{call.name}/{what}_heads", made, (*x.shape[:2], heads, each))
        return builder.transpose(f"{call.name}/{what}_heads", apart, [0, 2, 1, 3])

    q, k, v = parted("query", query, size), parted("key", key, size), parted("value", value, depth)
    made = _attend(call.within("attention"), q, k, v)
    joined = builder.transpose(f"{call.name}/joined", made, [0, 2, 1, 3])
    rows = builder.reshape(f"{call.name}/joined", joined, (*query.shape[:2], heads * depth))
    return product("attention_output", rows, width)


@operator("Attention")
def _attention(call: Call) -> Result:
    call.choice("score_mode", "dot", ("dot",))
    query, value, *rest = call.values(2)
    if call.kwargs.get("return_attention_scores"):
        raise OperatorError("attention whose scores are asked for is not understood")
    if call.flag("use_scale"):
        scale = call.parameter("scale", (1,))
        query = call.builder.elementwise(f"{call.name}/scale", "product", [query, scale])
    return _attend(call, query, rest[0] if rest else value, value)
