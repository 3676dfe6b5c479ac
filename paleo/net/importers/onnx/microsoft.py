"""Operators of ONNX Runtime's own domain, com.microsoft, into which its optimizer fuses others.

They are described in its docs/ContribOperators.md. What onnx knows nothing of has the shapes that
the Builder finds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from paleo.core.tensor import format_shape
from paleo.net.importers.base import OperatorError
from paleo.net.importers.builder.layout import Value
from paleo.net.importers.onnx import elementwise, layers
from paleo.net.importers.onnx.node import Node, Operator, Output, Result, operator
from paleo.net.importers.onnx.reshape import merge

_DOMAIN = "com.microsoft"
_FEW_BITS = "weights of {} bits count as any others, and are read as such"


def _own(*names: str) -> Callable[[Operator], Operator]:
    return operator(*names, domain=_DOMAIN)


# ---- Element by element ------------------------------------------------------------------------


@_own("Gelu", "QuickGelu", "FastGelu", "BiasGelu")
def _gelu(node: Node) -> Result:
    x = node.value()
    if node.has(1):
        x = node.builder.elementwise(f"{node.name}_bias", "sum", [x, node.weight(1)])
    return node.builder.activation(node.name, "silu" if node.op == "QuickGelu" else "gelu", x)


@_own("BiasAdd")
def _bias_add(node: Node) -> Result:
    return node.builder.elementwise(node.name, "sum", [node.value(), node.weight(1), node.value(2)])


@_own("QLinearAdd", "QLinearMul")
def _quantized_pair(node: Node) -> Result:
    function = "sum" if node.op == "QLinearAdd" else "product"
    return node.builder.elementwise(node.name, function, [node.value(0), node.value(3)])


@_own("QLinearSigmoid", "QLinearLeakyRelu")
def _quantized_activation(node: Node) -> Result:
    function = "sigmoid" if node.op == "QLinearSigmoid" else "leaky_relu"
    return node.builder.activation(node.name, function, node.value())


@_own("QLinearSoftmax")
def _quantized_softmax(node: Node) -> Result:
    return node.builder.softmax(node.name, node.value(), node.integer("axis", -1))


@_own("QLinearConcat")
def _quantized_concat(node: Node) -> Result:
    values = [node.value(index) for index in range(2, max(len(node.inputs), 3), 3)]
    return node.builder.concat(node.name, values, node.integer("axis", 1))


@_own("QuantizeLinear", "DequantizeLinear")
def _same(node: Node) -> Result:
    return node.value()


# ---- Windows and products ----------------------------------------------------------------------


def _channels_first(function: Operator) -> Operator:
    def checked(node: Node) -> Result:
        if node.integer("channels_last", 0):
            raise OperatorError(f"{node.op} with its channels last is not read")
        return function(node)

    return checked


_own("QLinearAveragePool")(_channels_first(layers.pool))
_own("QLinearGlobalAveragePool")(_channels_first(layers.global_pool))


@_own("QLinearConv")
@_channels_first
def _quantized_conv(node: Node) -> Result:
    return layers.convolve(node, 3, 8)


def _activated(node: Node, made: Value) -> Value:
    """Return a product with the function that is fused with it."""
    name = node.text("activation")
    if not name:
        return made
    functions = elementwise.FUNCTION_NAMES
    if name not in functions and name != "Clip":
        raise OperatorError(f'{node.op} with an activation of "{name}"')
    return node.builder.activation(f"{node.name}_activation", functions.get(name, "clip"), made)


@_own("FusedConv")
def _fused_conv(node: Node) -> Result:
    made = layers.convolve(node, 1, 2)
    if node.has(3):  # what is added before the activation
        made = node.builder.elementwise(f"{node.name}_sum", "sum", [made, node.value(3)])
    return _activated(node, made)


@_own("FusedGemm")
def _fused_gemm(node: Node) -> Result:
    made = layers.gemm(node)
    assert isinstance(made, Value)
    return _activated(node, made)


@_own("FusedMatMul", "TransposeMatMul")
def _fused_matmul(node: Node) -> Result:
    if node.integer("transBatchA", 0) or node.integer("transBatchB", 0):
        raise OperatorError(f"{node.op} that turns its batches is not read")
    a, b = node.value(0), node.value(1)
    if node.integer("transA", 0):
        a = node.builder.turned(f"{node.name}_turned", a)
    if node.integer("transB", 0):
        b = node.builder.turned(f"{node.name}_turned", b)
    return node.builder.matmul(node.name, a, b)


#: Where these products have what they multiply, and what they add.
_PRODUCTS = {
    "DynamicQuantizeMatMul": (0, 1, 4),
    "MatMulIntegerToFloat": (0, 1, 6),
    "QGemm": (0, 3, 6),
}


@_own(*_PRODUCTS)
def _quantized_product(node: Node) -> Result:
    left, right, bias = _PRODUCTS[node.op]
    x, turned = node.value(left), bool(node.integer("transB", 0))
    if node.integer("transA", 0):
        x = node.builder.turned(f"{node.name}_turned", x)
    if not node.is_weight(right) or len(node.shape(right)) != 2:
        other = node.value(right)
        if turned:
            other = node.builder.turned(f"{node.name}_other", other)
        return layers.plus(node, node.builder.matmul(node.name, x, other), bias)
    features, outputs = node.shape(right)[::-1] if turned else node.shape(right)
    weight = node.weight(right, (outputs, features))
    return node.builder.linear(node.name, x, weight, node.optional(bias))


@_own("MatMulNBits")
def _few_bits(node: Node) -> Result:
    """The weight is N x K numbers of a few bits, packed; its scales are no parameters."""
    outputs, features = node.integer("N", 0), node.integer("K", 0)
    if outputs < 1 or node.shape()[-1:] != (features,):
        raise OperatorError(f"{format_shape(node.shape())} times a weight of {outputs}x{features}")
    bits = node.integer("bits", 4)
    node.builder.note(_FEW_BITS.format(bits))
    weight = node.weight(1, (outputs, features))
    return node.builder.linear(node.name, node.value(), weight, node.optional(5))


# ---- Normalizations and embeddings -------------------------------------------------------------


@_own("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
def _skip_norm(node: Node) -> Result:
    builder = node.builder
    simplified = node.op == "SkipSimplifiedLayerNormalization"
    added = [node.value(0), node.value(1)]
    bias = 3 if simplified else 4
    if node.has(bias):
        added.append(node.weight(bias))
    total = builder.elementwise(f"{node.name}_sum", "sum", added)
    if simplified:
        made = builder.rms_norm(node.name, total, 1, node.factor(2))
    else:
        made = builder.layer_norm(node.name, total, 1, node.factor(2), node.factor(3))
    return [made, None, None, total]


@_own("EmbedLayerNormalization")
def _embed(node: Node) -> Result:
    """Words, positions and segments are looked up, added up and normalized."""
    builder, ids = node.builder, node.value(0)
    steps = node.shape_of(0, 2)[-1]
    node.shape_of(3, 2)
    found = [builder.embedding(f"{node.name}_words", ids, node.weight(2))]
    positions = node.value(8) if node.has(8) else builder.constant((1, steps))
    found.append(builder.gather(f"{node.name}_positions", node.weight(3), positions, 0))
    if node.has(1) and node.has(4):
        found.append(builder.embedding(f"{node.name}_segments", node.value(1), node.weight(4)))
    total = builder.elementwise(f"{node.name}_sum", "sum", found)
    made = builder.layer_norm(node.name, total, 1, node.factor(5), node.factor(6))
    return [made, None, total]


# ---- Attention ---------------------------------------------------------------------------------


def _attend(
    node: Node,
    parts: Sequence[Value],
    past: Sequence[Value],
    *,
    heads: int,
    kv_heads: int,
    causal: bool,
) -> Sequence[Output]:
    """Return attention of N x T x features in heads, and all keys and values."""
    builder, name = node.builder, node.name
    split = zip(parts, (heads, kv_heads, kv_heads), strict=True)
    q, k, v = (x if len(x.shape) == 4 else layers.parted(node, x, count) for x, count in split)
    if past:
        k = builder.concat(f"{name}_keys", [past[0], k], 2)
        v = builder.concat(f"{name}_values", [past[1], v], 2)
    made = builder.attention(name, q, k, v, causal=causal)
    return [merge(node, f"{name}_merged", made, heads), k, v]


def _three(node: Node, x: Value, sizes: Sequence[int]) -> list[Value]:
    if sum(sizes) != x.shape[-1]:
        raise OperatorError(f"{x.shape[-1]} features in {' + '.join(map(str, sizes))}")
    names = [f"{node.name}_{part}" for part in ("q", "k", "v")]
    return node.builder.split(names, x, 2, sizes)


@_own("Attention", "QAttention")
def _attention(node: Node) -> Result:
    """Queries, keys and values come of one product; the one behind attention is apart."""
    heads = node.integer("num_heads", 0)
    node.shape_of(0, 3)
    features, outputs = node.shape_of(1, 2)
    sizes = node.integers("qkv_hidden_sizes", [outputs // 3] * 3, 3)
    weight = node.weight(1, (outputs, features))
    made = node.builder.linear(f"{node.name}_qkv", node.value(), weight, node.optional(2))
    past = 8 if node.op == "QAttention" else 4
    if node.has(past):
        raise OperatorError(f"{node.op} with keys and values of before is not read")
    causal = bool(node.integer("unidirectional", 0))
    parts = _three(node, made, sizes)
    return _attend(node, parts, (), heads=heads, kv_heads=heads, causal=causal)[:1]


@_own("MultiHeadAttention")
def _multi_head(node: Node) -> Result:
    if not (node.has(1) and node.has(2)) or len(node.shape()) != 3:
        raise OperatorError(f"{node.op} of queries, keys and values in one tensor is not read")
    heads = node.integer("num_heads", 0)
    for index in (1, 2):
        node.shape_of(index, 3, 4)
    parts = [node.value(index) for index in range(3)]
    if node.has(3):
        sizes = [x.shape[-1] if len(x.shape) == 3 else 0 for x in parts]
        node.shape_of(3, 1)
        bias = node.weight(3)
        if sum(sizes) != bias.shape[0]:
            raise OperatorError(f"a bias of {bias.shape[0]} for {' + '.join(map(str, sizes))}")
        at = 0
        for index, size in enumerate(sizes):
            name = f"{node.name}_bias_{index}"
            own = node.builder.slice(name, bias, 0, at, size)
            parts[index] = node.builder.elementwise(name, "sum", [parts[index], own])
            at += size
    past = [node.value(index) for index in (6, 7) if node.has(index)]
    causal = bool(node.integer("unidirectional", 0))
    return _attend(node, parts, past, heads=heads, kv_heads=heads, causal=causal)


@_own("GroupQueryAttention")
def _group_query(node: Node) -> Result:
    heads, kv_heads = node.integer("num_heads", 0), node.integer("kv_num_heads", 0)
    node.shape_of(0, 3)
    if node.has(1):
        for index in (1, 2):
            node.shape_of(index, 3, 4)
        parts = [node.value(index) for index in range(3)]
    else:
        size = node.shape()[-1] // max(heads + 2 * kv_heads, 1)
        sizes = [heads * size, kv_heads * size, kv_heads * size]
        parts = _three(node, node.value(), sizes)
    if node.integer("do_rotary", 0):
        for index in (0, 1):
            name = f"{node.name}_rotary_{index}"
            parts[index] = node.builder.rearrange(name, parts[index])
    past = [node.value(index) for index in (3, 4) if node.has(index)]
    return _attend(node, parts, past, heads=heads, kv_heads=kv_heads, causal=True)


@_own("RotaryEmbedding")
def _rotary(node: Node) -> Result:
    return node.builder.rearrange(node.name, node.value())


# ---- Mixtures of experts -----------------------------------------------------------------------

#: What is done to what the first product gives, or to the half of it that gates the other.
_BETWEEN = {"relu": "relu", "gelu": "gelu", "silu": "silu", "swiglu": "silu", "geglu": "gelu"}
_GATED = frozenset({"swiglu", "geglu"})
#: Where these operators have each product's weights and biases; scales are no parameters.
_MATRICES = {"MoE": ((2, 3), (4, 5), (6, 7)), "QMoE": ((2, 4), (5, 7), (8, 10))}
#: Bits of a weight by `quant_type`, where that says it alone.
_BITS = {"fp8": 8, "fp4": 4, "nvfp4": 4, "wfp4afp8": 4}


def _packed(node: Node, product: int) -> int:
    """Return of how many bits the weights of a product are, 0 if they are not packed."""
    if node.op == "MoE":
        return 0
    bits: int = node.integer("expert_weight_bits", 4)
    bits = node.integer(f"fc{product + 1}_expert_weight_bits", bits)
    return _BITS.get(node.text("quant_type", "int"), max(bits, 1))


def _expert_product(node: Node, name: str, x: Value, product: int, outputs: int) -> Value:
    """Return rows times the matrices of their experts, of so many columns; of any if it is 0."""
    weight, bias = _MATRICES[node.op][product]
    experts, *dims = node.shape_of(weight, 3)
    bits, features = _packed(node, product), x.shape[-1]
    numbers = dims[0] * dims[1] * 8 // bits if bits else dims[0] * dims[1]
    fits = features in dims or bits
    if experts != node.shape(1)[-1] or numbers % features or not fits:
        raise OperatorError(
            f"rows of {features}, for {node.shape(1)[-1]} experts, times "
            f"{format_shape(node.shape(weight))}" + (f" of {bits} bits" if bits else "")
        )
    outputs = outputs or numbers // features
    if numbers != outputs * features:
        raise OperatorError(
            f"{format_shape(node.shape(weight))} where {experts} matrices of {features}x{outputs} "
            "should be"
        )
    if bits:
        node.builder.note(_FEW_BITS.format(bits))
    held = node.weight(weight, (experts, outputs, features) if bits else None)
    biases = [node.weight(bias)] if node.has(bias) else []
    return node.builder.experts(name, x, [held], biases, k=outputs)


@_own("MoE", "QMoE")
def _mixture(node: Node) -> Result:
    """The k experts with the highest scores of each token compute it, and are added up."""
    builder, name = node.builder, node.name
    *_, hidden = shape = node.shape_of(0, 2, 3)
    tokens, experts = node.shape_of(1, 2)
    k, function = node.integer("k", 1), node.text("activation_type", "relu")
    if function not in (*_BETWEEN, "identity"):
        raise OperatorError(f'{node.op} with an activation of "{function}"')
    if tokens * hidden != node.tensor(0).size or not 1 <= k <= experts:
        raise OperatorError(
            f"{k} of {experts} experts for {format_shape(shape)}, chosen by {tokens} rows"
        )
    node.keep(14)  # other weights of what the experts give
    chances = builder.softmax(f"{name}_router", node.value(1), -1)
    chosen = builder.rearrange(f"{name}_chosen", chances, (tokens, k))
    picks = builder.reshape(f"{name}_picks", chosen, (tokens * k,))
    x = builder.reshape(f"{name}_tokens", node.value(), (tokens, hidden))
    rows = builder.gather(f"{name}_rows", x, picks, 0)
    made = _expert_product(node, f"{name}_fc1", rows, 0, 0)
    other = None
    if node.has(_MATRICES[node.op][2][0]):
        other = _expert_product(node, f"{name}_fc3", rows, 2, made.shape[-1])
    elif function in _GATED:
        if made.shape[-1] % 2:
            raise OperatorError(f"two halves of {made.shape[-1]} features")
        names = [f"{name}_gate", f"{name}_up"]
        made, other = builder.split(names, made, 1, [made.shape[-1] // 2] * 2)
    if function != "identity":
        made = builder.activation(f"{name}_activation", _BETWEEN[function], made)
    if other is not None:
        made = builder.elementwise(f"{name}_gated", "product", [made, other])
    made = _expert_product(node, f"{name}_fc2", made, 1, hidden)
    weights = builder.reshape(f"{name}_weights", chosen, (tokens * k, 1))
    made = builder.elementwise(f"{name}_weighted", "product", [made, weights])
    made = builder.reshape(f"{name}_parts", made, (tokens, k, hidden))
    made = builder.reduce(f"{name}_sum", "sum", made, [1], False)
    return builder.reshape(name, made, shape)
