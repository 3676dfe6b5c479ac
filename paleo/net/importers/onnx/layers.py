"""ONNX operators that multiply: convolutions, products, recurrences, attention; and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from paleo.core.tensor import format_shape
from paleo.net.importers.base import OperatorError
from paleo.net.importers.builder.layers import make
from paleo.net.importers.builder.layout import Value, Windows
from paleo.net.importers.onnx.node import Node, Result, Tensor, operator
from paleo.net.importers.onnx.reshape import merge


def _steps(node: Node, window: Sequence[int]) -> Windows:
    """Return how a window steps, by its strides and dilations; without padding."""
    rank = len(node.shape()[2:])
    if len(window) != rank:
        raise OperatorError(
            f"a window of {format_shape(tuple(window))} on {rank} spatial dimensions"
        )
    strides = node.integers("strides", [1] * rank, rank)
    dilations = node.integers("dilations", [1] * rank, rank)
    for what, numbers in (("window", window), ("strides", strides), ("dilations", dilations)):
        if any(number < 1 for number in numbers):
            raise OperatorError(f"{node.op}: {what} must be 1 or more, got {list(numbers)}")
    groups = node.integer("group", 1)
    if groups < 1:
        raise OperatorError(f"{node.op} in {groups} groups")
    return Windows(strides, [(0, 0)] * rank, dilations, groups)


def _auto_pad(node: Node) -> str:
    return node.text("auto_pad") or "NOTSET"


def _pads(node: Node, rank: int) -> list[tuple[int, int]]:
    """Return the padding that a node states."""
    numbers = node.integers("pads", [0] * 2 * rank, 2 * rank)
    return list(zip(numbers[:rank], numbers[rank:], strict=True))


def _windows(node: Node, window: Sequence[int]) -> Windows:
    windows, auto = _steps(node, window), _auto_pad(node)
    if auto == "NOTSET":
        return replace(windows, pads=_pads(node, len(window)))
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        sizes = node.shape()[2:]
        counts = [-(-size // stride) for size, stride in zip(sizes, windows.strides, strict=True)]
        reach = windows.reach(counts, window)
        lacking = [max(have - size, 0) for have, size in zip(reach, sizes, strict=True)]
        return replace(windows, pads=[_halves(total, auto) for total in lacking])
    if auto != "VALID":
        raise OperatorError(f'auto_pad "{auto}"')
    return windows


def _halves(total: int, auto: str) -> tuple[int, int]:
    """Return what is before and after; the odd one is where `auto` says."""
    less, more = total // 2, total - total // 2
    return (more, less) if auto == "SAME_LOWER" else (less, more)


def _fits(node: Node, weight: tuple[int, ...]) -> None:
    stated = node.integers("kernel_shape", None)
    if stated is not None and tuple(stated) != weight[2:]:
        raise OperatorError(
            f"kernel_shape is {format_shape(tuple(stated))}, its weight {format_shape(weight)}"
        )


def convolve(node: Node, weight: int, bias: int) -> Value:
    """Return a convolution of the first input; the others are at these positions."""
    shape = node.shape(weight)
    _fits(node, shape)
    if len(shape) < 3:
        raise OperatorError(f"a convolution by a weight of {format_shape(shape)}")
    windows = _windows(node, shape[2:])
    weights = node.weight(weight), node.optional(bias)
    return node.builder.convolution(node.name, node.value(), *weights, windows=windows)


#: Where these have their weight and their bias; integer convolutions have none.
_CONVOLUTIONS = {"Conv": (1, 2), "ConvInteger": (1, 4), "QLinearConv": (3, 8)}


@operator(*_CONVOLUTIONS)
def _conv(node: Node) -> Result:
    return convolve(node, *_CONVOLUTIONS[node.op])


@operator("DeformConv")
def _conv_deformed(node: Node) -> Result:
    # The offsets say where each window looks: another net computes them.
    node.keep(2, 4)
    return convolve(node, 1, 3)


@operator("CausalConvWithState")
def _conv_causal(node: Node) -> Result:
    channels, _, taps = node.shape(1)
    before = taps - 1
    x = node.value()
    if node.has(3) and before:
        x = node.builder.concat(f"{node.name}_past", [node.value(3), x], 2)
        before = 0
    windows = Windows([1], [(before, 0)], [1], channels)
    weights = node.weight(1), node.optional(2)
    made = node.builder.convolution(node.name, x, *weights, windows=windows)
    if node.text("activation", "none") not in ("", "none"):
        made = node.builder.activation(f"{node.name}_activation", "silu", made)
    if not node.wants(1):
        return [made]
    if taps == 1:  # a state of nothing
        return [made, Tensor((*x.shape[:2], 0), node.tensor(0).dtype)]
    steps = x.shape[2]
    if steps < taps - 1:
        x = node.builder.pad(f"{node.name}_state", x, [(0, 0), (0, 0), (taps - 1 - steps, 0)])
        return [made, x]
    return [made, node.builder.slice(f"{node.name}_state", x, 2, steps - taps + 1, taps - 1)]


@operator("ConvTranspose")
def _conv_transpose(node: Node) -> Result:
    shape = node.shape(1)
    _fits(node, shape)
    sizes = node.shape()[2:]
    rank = len(sizes)
    if len(shape) != rank + 2:
        raise OperatorError(f"a weight of {format_shape(shape)} on {rank} spatial dimensions")
    windows, auto = _steps(node, shape[2:]), _auto_pad(node)
    extra = node.integers("output_padding", [0] * rank, rank)
    # What comes out without any padding.
    reach = windows.reach(sizes, shape[2:])
    whole = [have + more for have, more in zip(reach, extra, strict=True)]
    output = node.integers("output_shape", None)
    if output is not None:
        output = output[-rank:]
    elif auto in ("SAME_UPPER", "SAME_LOWER"):
        output = [size * stride for size, stride in zip(sizes, windows.strides, strict=True)]
    if output is not None:
        lacking = [max(have - want, 0) for have, want in zip(whole, output, strict=True)]
        windows = replace(windows, pads=[_halves(total, auto) for total in lacking])
    else:
        if auto != "VALID":
            windows = replace(windows, pads=_pads(node, rank))
        output = [have - sum(pad) for have, pad in zip(whole, windows.pads, strict=True)]
    weights = node.weight(1), node.optional(2)
    return node.builder.conv_transpose(
        node.name, node.value(), *weights, windows=windows, output_shape=output
    )


@operator("MaxPool", "AveragePool", "LpPool")
def pool(node: Node) -> Result:
    """Return the maximum or the average of each window of the first input."""
    taps = node.integers("kernel_shape", ())
    windows = _windows(node, taps)
    kind = "max" if node.op == "MaxPool" else "average"
    ceil = bool(node.integer("ceil_mode", 0)) and _auto_pad(node) == "NOTSET"
    made = node.builder.pool(node.name, node.value(), kind, taps, windows, ceil=ceil)
    # The second output is where each maximum was.
    return [made, made]


@operator("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(node: Node) -> Result:
    """Return the maximum or the average of the first input's whole image."""
    kind = "max" if node.op == "GlobalMaxPool" else "average"
    return node.builder.adaptive_pool(node.name, node.value(), kind, [1] * len(node.shape()[2:]))


@operator("Gemm")
def gemm(node: Node) -> Result:
    """Return a product of two matrices, either of which may be turned, plus a third."""
    builder = node.builder
    if len(node.shape(0)) != 2 or len(node.shape(1)) != 2:
        raise OperatorError("Gemm multiplies matrices")
    x = node.value(0)
    if node.integer("transA", 0):
        x = builder.turned(f"{node.name}_turned", x)
    turned = bool(node.integer("transB", 0))
    features, outputs = node.shape(1)[::-1] if turned else node.shape(1)
    if not node.is_weight(1):
        other = node.value(1)
        if turned:
            other = builder.turned(f"{node.name}_other", other)
        return plus(node, builder.matmul(node.name, x, other), 2)
    weight = node.weight(1, (outputs, features))
    fits = node.has(2) and node.is_weight(2) and node.shape(2)[-1:] == (outputs,)
    if fits and node.tensor(2).size == outputs:
        return builder.linear(node.name, x, weight, node.weight(2, (outputs,)))
    return plus(node, builder.linear(node.name, x, weight), 2)


def plus(node: Node, product: Value, index: int) -> Value:
    """Return a product, and what an input adds to it if it is there."""
    if not node.has(index):
        return product
    return node.builder.elementwise(f"{node.name}_bias", "sum", [product, node.value(index)])


@operator("MatMul", "MatMulInteger", "QLinearMatMul")
def _matmul(node: Node) -> Result:
    """A weight on the right takes the bias that the next node adds."""
    builder, right = node.builder, 3 if node.op == "QLinearMatMul" else 1
    rows, shape = node.shape(), node.shape(right)
    if len(shape) != 2 or not node.is_weight(right) or len(rows) < 2:
        return builder.matmul(node.name, node.value(), node.value(right))
    if rows[-1] != shape[0]:
        raise OperatorError(f"{format_shape(rows)} times {format_shape(shape)}")
    features, outputs = shape
    bias = node.context.bias_after(node.proto.output[0], outputs)
    added = None
    if bias is not None and bias.key is not None:
        added = builder.parameter(bias.key, (outputs,))
    weight = node.weight(right, (outputs, features))
    return builder.linear(node.name, node.value(), weight, added)


@operator("Einsum")
def _einsum(node: Node) -> Result:
    values = [each.value(node.builder) for each in node.inputs if each is not None]
    return node.builder.einsum(node.name, node.text("equation"), values)


@operator("LSTM", "GRU", "RNN")
def _recurrent(node: Node) -> Result:
    builder = node.builder
    directions = 2 if node.text("direction", "forward") == "bidirectional" else 1
    if len(node.shape(0)) != 3 or len(node.shape(2)) != 3:
        raise OperatorError(f"{node.op} of {format_shape(node.shape(0))}")
    hidden = node.integer("hidden_size", node.shape(2)[-1])
    if hidden != node.shape(2)[-1]:
        raise OperatorError(f"hidden_size is {hidden}, but its weights are for {node.shape(2)[-1]}")
    batch_first = bool(node.integer("layout", 0))
    weights = [node.weight(index) for index in (1, 2, 3) if node.has(index)]
    if not any(node.is_weight(index) for index in (1, 2)) and weights[0].is_constant:
        builder.note(f"the weights of {node.name} are fed, and count as parameters of its own")
    biases = 2 if node.has(3) else 0
    layer = make(node.op, num_outputs=hidden, bidirectional=directions == 2, num_biases=biases)
    y = builder.recurrent(node.name, layer, node.value(), weights, batch_first=batch_first)
    first, second, _ = y.shape
    outputs: list[Value | None] = [None, None, None]
    if node.wants(0):
        parted = builder.reshape(f"{node.name}_y", y, (first, second, directions, hidden))
        outputs[0] = (
            parted if batch_first else builder.transpose(f"{node.name}_y", parted, [0, 2, 1, 3])
        )
    if node.wants(1) or node.wants(2):
        step = 1 if batch_first else 0
        last = builder.select(f"{node.name}_last", y, step, y.shape[step] - 1)
        state = builder.reshape(f"{node.name}_h", last, (last.shape[0], directions, hidden))
        if not batch_first:
            state = builder.transpose(f"{node.name}_h", state, [1, 0, 2])
        # The cells' state is as large as the hidden one.
        outputs[1:] = [state, state]
    return outputs


def parted(node: Node, x: Value, count: int) -> Value:
    """Return N x heads x T x d of N x T x (heads d)."""
    if len(x.shape) != 3 or count < 1 or x.shape[-1] % count:
        raise OperatorError(f"{format_shape(x.shape)} in {count} heads")
    n, t, features = x.shape
    parted = node.builder.reshape(f"{node.name}_heads", x, (n, t, count, features // count))
    return node.builder.transpose(f"{node.name}_heads", parted, [0, 2, 1, 3])


@operator("Attention")
def _attention(node: Node) -> Result:
    builder, name = node.builder, node.name
    heads, kv_heads = node.integer("q_num_heads", 0), node.integer("kv_num_heads", 0)
    packed = len(node.shape(0)) == 3
    values = []
    for index, count in ((0, heads), (1, kv_heads), (2, kv_heads)):
        x = node.value(index)
        if packed:
            x = parted(node, x, count)
        elif len(x.shape) != 4:
            raise OperatorError(f"attention over {format_shape(x.shape)}")
        values.append(x)
    q, k, v = values
    if node.has(4) and node.has(5):
        k = builder.concat(f"{name}_keys", [node.value(4), k], 2)
        v = builder.concat(f"{name}_values", [node.value(5), v], 2)
    scores: Value | None = None
    if node.wants(3):
        made, scores = _attention_in_steps(node, q, k, v)
    else:
        made = builder.attention(name, q, k, v, causal=bool(node.integer("is_causal", 0)))
    if packed:
        made = merge(node, f"{name}_merged", made, heads)
    return [made, k, v, scores]


def _attention_in_steps(node: Node, q: Value, k: Value, v: Value) -> tuple[Value, Value]:
    """Return attention whose scores are given too, so that no kernel can keep them to itself."""
    builder, name = node.builder, node.name
    n, heads, steps, _ = q.shape
    groups = heads // k.shape[1]
    if groups > 1:  # each head of the keys meets several of the queries

        def shared(x: Value) -> Value:
            wide = builder.unsqueeze(f"{name}_shared", x, [2])
            wide = builder.expand(f"{name}_shared", wide, (n, x.shape[1], groups, *x.shape[2:]))
            return builder.reshape(f"{name}_shared", wide, (n, heads, *x.shape[2:]))

        k, v = shared(k), shared(v)
    products = builder.matmul(f"{name}_products", q, builder.turned(f"{name}_turned", k))
    stages = [builder.activation(f"{name}_scaled", "affine", products)]
    mask = node.tensor(3) if node.has(3) else None
    if mask is not None or node.integer("is_causal", 0):
        over = builder.constant((steps, k.shape[2]))
        fits = mask is not None and mask.shape[-1] == k.shape[2] and len(mask.shape) > 1
        over = node.value(3) if fits else over
        stages.append(builder.elementwise(f"{name}_masked", "sum", [stages[-1], over]))
    if node.real("softcap", 0.0):
        stages.append(builder.activation(f"{name}_capped", "tanh", stages[-1]))
    stages.append(builder.softmax(f"{name}_softmax", stages[-1], -1))
    # Which of them is given says a mode; all are as large.
    given = stages[-1] if node.integer("qk_matmul_output_mode", 0) == 3 else stages[0]
    return builder.matmul(name, stages[-1], v), given


@operator("FlexAttention", domain="ai.onnx.preview")
def _flex_attention(node: Node) -> Result:
    # What changes scores and probabilities is part of the kernel.
    if any(len(node.shape(index)) != 4 for index in range(3)):
        raise OperatorError("FlexAttention reads N x heads x T x d")
    return node.builder.attention(node.name, *(node.value(index) for index in range(3)))


@operator("LinearAttention")
def _linear_attention(node: Node) -> Result:
    """A state of d_k x d_v for each head takes in every key and value, and meets every query.

    As many products as the steps make one after the other; the delta rules also ask the
    state for each key.
    """
    builder, name = node.builder, node.name
    heads, kv_heads = node.integer("q_num_heads", 0), node.integer("kv_num_heads", 0)
    q = parted(node, node.value(0), heads)
    k = parted(node, node.value(1), kv_heads)
    v = parted(node, node.value(2), kv_heads)
    state = builder.matmul(f"{name}_state", builder.turned(f"{name}_keys", k), v)
    if "delta" in node.text("update_rule", "gated_delta"):
        asked = builder.matmul(f"{name}_delta", k, state)
        v = builder.elementwise(f"{name}_change", "difference", [v, asked])
        node.context.kept.append(v)
    shared = state
    if heads != kv_heads:
        n, _, d_k, d_v = state.shape
        shape = (n, kv_heads, heads // kv_heads, d_k, d_v)
        shared = builder.unsqueeze(f"{name}_shared", state, [2])
        shared = builder.expand(f"{name}_shared", shared, shape)
        shared = builder.reshape(f"{name}_shared", shared, (n, heads, d_k, d_v))
    return [merge(node, f"{name}_merged", builder.matmul(name, q, shared), heads), state]
