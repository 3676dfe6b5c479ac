"""ONNX operators that multiply: convolutions, products, recurrences, attention; and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paleo.importers.base import OperatorError
from paleo.importers.onnx.moves import merge
from paleo.importers.onnx.node import Node, Result, operator
from paleo.tensor import format_shape

if TYPE_CHECKING:
    from paleo.importers.builder import Value


@dataclass(frozen=True)
class _Windows:
    """How a window steps over an image, by spatial axis."""

    window: tuple[int, ...]
    strides: list[int]
    pads: list[tuple[int, int]]
    dilations: list[int]


def _windows(node: Node, window: Sequence[int]) -> _Windows:
    sizes = node.shape()[2:]
    rank = len(sizes)
    if len(window) != rank:
        raise OperatorError(
            f"a window of {format_shape(tuple(window))} on {rank} spatial dimensions"
        )
    strides = node.wholes("strides", [1] * rank, rank)
    dilations = node.wholes("dilations", [1] * rank, rank)
    for what, numbers in (("window", window), ("strides", strides), ("dilations", dilations)):
        if any(each < 1 for each in numbers):
            raise OperatorError(f"{node.op}: {what} must be 1 or more, got {list(numbers)}")
    auto = node.text("auto_pad", "NOTSET") or "NOTSET"
    if auto == "NOTSET":
        numbers = node.wholes("pads", [0] * 2 * rank, 2 * rank)
        pads = list(zip(numbers[:rank], numbers[rank:], strict=True))
    elif auto == "VALID":
        pads = [(0, 0)] * rank
    elif auto in ("SAME_UPPER", "SAME_LOWER"):
        pads = []
        for size, taps, stride, step in zip(sizes, window, strides, dilations, strict=True):
            span = (taps - 1) * step + 1
            total = max((-(-size // stride) - 1) * stride + span - size, 0)
            pads.append(_halves(total, auto))
    else:
        raise OperatorError(f'auto_pad "{auto}"')
    return _Windows(tuple(window), strides, pads, dilations)


def _halves(total: int, auto: str) -> tuple[int, int]:
    """Return what is before and after; the odd one is where `auto` says."""
    less, more = total // 2, total - total // 2
    return (more, less) if auto == "SAME_LOWER" else (less, more)


def _fits(node: Node, weight: tuple[int, ...]) -> None:
    stated = node.wholes("kernel_shape", None)
    if stated is not None and tuple(stated) != weight[2:]:
        raise OperatorError(
            f"kernel_shape is {format_shape(tuple(stated))}, its weight {format_shape(weight)}"
        )


def _convolve(node: Node, weight: int, bias: int, x: Value | None = None) -> Value:
    """Return a convolution of the first input; the others are at these positions."""
    shape = node.shape(weight)
    _fits(node, shape)
    if len(shape) < 3:
        raise OperatorError(f"a convolution by a weight of {format_shape(shape)}")
    windows = _windows(node, shape[2:])
    return node.builder.convolution(
        node.name,
        node.value() if x is None else x,
        node.weight(weight),
        node.optional(bias),
        strides=windows.strides,
        pads=windows.pads,
        dilations=windows.dilations,
        groups=_groups(node),
    )


def _groups(node: Node) -> int:
    groups: int = node.whole("group", 1)
    if groups < 1:
        raise OperatorError(f"{node.op} in {groups} groups")
    return groups


@operator("Conv")
def _conv(node: Node) -> Result:
    return _convolve(node, 1, 2)


@operator("ConvInteger")
def _conv_integer(node: Node) -> Result:
    return _convolve(node, 1, len(node.inputs))


@operator("QLinearConv")
def _conv_quantized(node: Node) -> Result:
    return _convolve(node, 3, 8)


@operator("DeformConv")
def _conv_deformed(node: Node) -> Result:
    # The offsets say where each window looks: another net computes them.
    node.keep(2, 4)
    return _convolve(node, 1, 3)


@operator("CausalConvWithState")
def _conv_causal(node: Node) -> Result:
    channels, _, taps = node.shape(1)
    before = taps - 1
    x = node.value()
    if node.has(3) and before:
        x = node.builder.concat(f"{node.name}_past", [node.value(3), x], 2)
        before = 0
    made = node.builder.convolution(
        node.name,
        x,
        node.weight(1),
        node.optional(2),
        strides=[1],
        pads=[(before, 0)],
        dilations=[1],
        groups=channels,
    )
    if node.text("activation", "none") not in ("", "none"):
        made = node.builder.activation(f"{node.name}_activation", "silu", made)
    if not node.wants(1):
        return [made]
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
    strides = node.wholes("strides", [1] * rank, rank)
    dilations = node.wholes("dilations", [1] * rank, rank)
    extra = node.wholes("output_padding", [0] * rank, rank)
    # What comes out without any padding.
    whole = [
        stride * (size - 1) + more + (taps - 1) * step + 1
        for size, taps, stride, step, more in zip(
            sizes, shape[2:], strides, dilations, extra, strict=True
        )
    ]
    auto = node.text("auto_pad", "NOTSET") or "NOTSET"
    output = node.wholes("output_shape", None)
    if output is not None:
        output = output[-rank:]
    elif auto in ("SAME_UPPER", "SAME_LOWER"):
        output = [size * stride for size, stride in zip(sizes, strides, strict=True)]
    if output is not None:
        pads = [
            _halves(max(have - want, 0), auto) for have, want in zip(whole, output, strict=True)
        ]
    else:
        numbers = node.wholes("pads", [0] * 2 * rank, 2 * rank)
        if auto == "VALID":
            numbers = [0] * 2 * rank
        pads = list(zip(numbers[:rank], numbers[rank:], strict=True))
        output = [have - sum(pad) for have, pad in zip(whole, pads, strict=True)]
    return node.builder.conv_transpose(
        node.name,
        node.value(),
        node.weight(1),
        node.optional(2),
        strides=strides,
        pads=pads,
        dilations=dilations,
        groups=_groups(node),
        output_shape=output,
    )


@operator("MaxPool", "AveragePool", "LpPool")
def _pool(node: Node) -> Result:
    windows = _windows(node, node.wholes("kernel_shape", ()))
    made = node.builder.pool(
        node.name,
        "max" if node.op == "MaxPool" else "average",
        node.value(),
        window=windows.window,
        strides=windows.strides,
        pads=windows.pads,
        dilations=windows.dilations,
        ceil=bool(node.whole("ceil_mode", 0)) and node.text("auto_pad", "NOTSET") == "NOTSET",
    )
    # The second output is where each maximum was.
    return [made, made]


@operator("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def _global_pool(node: Node) -> Result:
    kind = "max" if node.op == "GlobalMaxPool" else "average"
    return node.builder.adaptive_pool(node.name, kind, node.value(), [1] * len(node.shape()[2:]))


@operator("Gemm")
def _gemm(node: Node) -> Result:
    builder = node.builder
    if len(node.shape(0)) != 2 or len(node.shape(1)) != 2:
        raise OperatorError("Gemm multiplies matrices")
    x = node.value(0)
    if node.whole("transA", 0):
        x = builder.transpose(f"{node.name}_turned", x, [1, 0])
    turned = bool(node.whole("transB", 0))
    features, outputs = node.shape(1)[::-1] if turned else node.shape(1)
    if not node.is_weight(1):
        other = node.value(1)
        if turned:
            other = builder.transpose(f"{node.name}_other", other, [1, 0])
        product = builder.matmul(node.name, x, other)
        return _plus(node, product, 2)
    weight = node.weight(1, (outputs, features))
    fits = node.has(2) and node.is_weight(2) and node.shape(2)[-1:] == (outputs,)
    if fits and node.tensor(2).size == outputs:
        return builder.linear(node.name, x, weight, node.weight(2, (outputs,)))
    return _plus(node, builder.linear(node.name, x, weight), 2)


def _plus(node: Node, product: Value, index: int) -> Value:
    if not node.has(index):
        return product
    return node.builder.elementwise(f"{node.name}_bias", "sum", [product, node.value(index)])


@operator("MatMul", "MatMulInteger")
def _matmul(node: Node) -> Result:
    return _product(node, 0, 1)


@operator("QLinearMatMul")
def _matmul_quantized(node: Node) -> Result:
    return _product(node, 0, 3)


def _product(node: Node, left: int, right: int) -> Value:
    """Return a product; a weight on the right takes the bias that the next node adds."""
    builder = node.builder
    shape = node.shape(right)
    if len(shape) != 2 or not node.is_weight(right) or len(node.shape(left)) < 2:
        return builder.matmul(node.name, node.value(left), node.value(right))
    if node.shape(left)[-1] != shape[0]:
        raise OperatorError(f"{format_shape(node.shape(left))} times {format_shape(shape)}")
    features, outputs = shape
    bias = node.walk.bias_after(node.proto.output[0], outputs)
    added = None
    if bias is not None and bias.key is not None:
        added = builder.parameter(bias.key, (outputs,))
    weight = node.weight(right, (outputs, features))
    return builder.linear(node.name, node.value(left), weight, added)


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
    hidden = node.whole("hidden_size", node.shape(2)[-1])
    if hidden != node.shape(2)[-1]:
        raise OperatorError(f"hidden_size is {hidden}, but its weights are for {node.shape(2)[-1]}")
    batch_first = bool(node.whole("layout", 0))
    weights = [node.weight(index) for index in (1, 2, 3) if node.has(index)]
    y = builder.recurrent(
        node.name,
        node.op,
        node.value(),
        weights,
        hidden=hidden,
        bidirectional=directions == 2,
        biases=2 if node.has(3) else 0,
        batch_first=batch_first,
    )
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
        n = last.shape[0]
        state = builder.reshape(f"{node.name}_h", last, (n, directions, hidden))
        if not batch_first:
            state = builder.transpose(f"{node.name}_h", state, [1, 0, 2])
        # The cells' state is as large as the hidden one.
        outputs[1:] = [state, state]
    return outputs


def _heads(node: Node, x: Value, count: int) -> Value:
    """Return N x heads x T x d of N x T x (heads d)."""
    if len(x.shape) != 3 or count < 1 or x.shape[-1] % count:
        raise OperatorError(f"{format_shape(x.shape)} in {count} heads")
    n, t, features = x.shape
    parted = node.builder.reshape(f"{node.name}_heads", x, (n, t, count, features // count))
    return node.builder.transpose(f"{node.name}_heads", parted, [0, 2, 1, 3])


@operator("Attention")
def _attention(node: Node) -> Result:
    builder, name = node.builder, node.name
    heads, kv_heads = node.whole("q_num_heads", 0), node.whole("kv_num_heads", 0)
    packed = len(node.shape(0)) == 3
    values = []
    for index, count in ((0, heads), (1, kv_heads), (2, kv_heads)):
        x = node.value(index)
        if packed:
            x = _heads(node, x, count)
        elif len(x.shape) != 4:
            raise OperatorError(f"attention over {format_shape(x.shape)}")
        values.append(x)
    q, k, v = values
    if node.has(4) and node.has(5):
        k = builder.concat(f"{name}_keys", [node.value(4), k], 2)
        v = builder.concat(f"{name}_values", [node.value(5), v], 2)
    made = builder.attention(name, q, k, v, causal=bool(node.whole("is_causal", 0)))
    if packed:
        made = merge(node, f"{name}_merged", made, heads)
    return [made, k, v, None]


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
    heads, kv_heads = node.whole("q_num_heads", 0), node.whole("kv_num_heads", 0)
    q = _heads(node, node.value(0), heads)
    k = _heads(node, node.value(1), kv_heads)
    v = _heads(node, node.value(2), kv_heads)
    turned = builder.transpose(f"{name}_keys", k, [0, 1, 3, 2])
    state = builder.matmul(f"{name}_state", turned, v)
    if "delta" in node.text("update_rule", "gated_delta"):
        asked = builder.matmul(f"{name}_delta", k, state)
        v = builder.elementwise(f"{name}_change", "difference", [v, asked])
        node.walk.kept.append(v)
    shared = state
    if heads != kv_heads:
        n, _, d_k, d_v = state.shape
        shape = (n, kv_heads, heads // kv_heads, d_k, d_v)
        shared = builder.unsqueeze(f"{name}_shared", state, [2])
        shared = builder.expand(f"{name}_shared", shared, shape)
        shared = builder.reshape(f"{name}_shared", shared, (n, heads, d_k, d_v))
    made = builder.matmul(name, q, shared)
    return [merge(node, f"{name}_merged", made, heads), state]


@operator("FusedMatMul", domain="com.microsoft")
def _fused_matmul(node: Node) -> Result:
    values = []
    for index, key in enumerate(("transA", "transB")):
        x = node.value(index)
        if node.whole(key, 0):
            rank = len(x.shape)
            perm = [*range(rank - 2), rank - 1, rank - 2]
            x = node.builder.transpose(f"{node.name}_turned", x, perm)
        values.append(x)
    return node.builder.matmul(node.name, values[0], values[1])
