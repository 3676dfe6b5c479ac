"""ONNX operators that work element by element, normalize, or reduce."""

from __future__ import annotations

from paleo.net.importers.base import OperatorError, by_word
from paleo.net.importers.builder.layout import Value, axis_in
from paleo.net.importers.onnx.node import Node, Result, Tensor, operator
from paleo.net.layers.functions import ELEMENTWISE, FUNCTIONS, spellings

#: Element functions by the operators that they are.
FUNCTION_NAMES = spellings(FUNCTIONS, "onnx")
_ELEMENTWISE = spellings(ELEMENTWISE, "onnx")
_REDUCTIONS = by_word(
    {
        "norm": "ReduceL1 ReduceL2 ReduceSumSquare",
        "sum": "ReduceLogSum ReduceLogSumExp ReduceSum",
        "maximum": "ReduceMax",
        "mean": "ReduceMean",
        "minimum": "ReduceMin",
        "product": "ReduceProd",
    }
)


@operator(*FUNCTION_NAMES)
def _activation(node: Node) -> Result:
    return node.builder.activation(node.name, FUNCTION_NAMES[node.op], node.value())


#: What clipping is called between some bounds.
_CLIPS: dict[tuple[float | None, float | None], str] = {(0, 6): "relu6", (-1, 1): "hard_tanh"}


@operator("Clip")
def _clip(node: Node) -> Result:
    low: float | None
    high: float | None
    if node.version < 11:
        low, high = node.real("min", float("-inf")), node.real("max", float("inf"))
    else:
        low, high = (_bound(node, index) for index in (1, 2))
    # Where a bound is not known, it is still one.
    function = _CLIPS.get((low, high), "clip")
    return node.builder.activation(node.name, function, node.value())


def _bound(node: Node, index: int) -> float | None:
    numbers = node.tensor(index).numbers() if node.has(index) else None
    return float(numbers.reshape(-1)[0]) if numbers is not None and numbers.size else None


@operator("PRelu")
def _prelu(node: Node) -> Result:
    x, slope = node.tensor(0), node.tensor(1)
    channels = x.shape[1] if len(x.shape) > 1 else 1
    # The slope of each channel is C x 1 x 1, aligned from the right as NumPy does it.
    aligned = (1,) * (len(x.shape) - len(slope.shape)) + slope.shape
    per_channel = slope.size == channels and len(aligned) > 1 and aligned[1] == channels
    if node.is_weight(1) and (slope.size == 1 or per_channel):
        return node.builder.prelu(node.name, node.value(), node.weight(1, (slope.size,)))
    return node.builder.elementwise(node.name, "where", [node.value(), node.weight(1)])


@operator("Dropout")
def _dropout(node: Node) -> Result:
    if node.version < 12:
        ratio = node.real("ratio", 0.5)
    else:
        known = _bound(node, 1)
        ratio = 0.5 if known is None else known
    if not 0 <= ratio <= 1:
        raise OperatorError(f"it drops elements with probability {ratio}")
    made = node.builder.dropout(node.name, node.value(), ratio)
    return [made, made]


@operator(*_ELEMENTWISE)
def _elementwise(node: Node) -> Result:
    tensors = [each for each in node.inputs if each is not None]
    if not tensors:
        raise OperatorError(f"{node.op} has no inputs")
    values = [each.value(node.builder) for each in tensors]
    if len(values) == 1:
        return values[0]
    axis = node.integer("axis", None) if node.version < 7 else None
    if axis is not None and node.integer("broadcast", 0):
        # Before version 7, the second one stands at an axis of the first.
        behind = len(tensors[0].shape) - axis_in(tensors[0].shape, axis) - len(tensors[1].shape)
        if behind < 0:
            raise OperatorError(f"{node.op} at axis {axis}")
        rank = len(tensors[1].shape)
        values[1] = node.builder.unsqueeze(node.name, values[1], list(range(rank, rank + behind)))
    return node.builder.elementwise(node.name, _ELEMENTWISE[node.op], values)


@operator("SwiGLU")
def _swiglu(node: Node) -> Result:
    gate = node.builder.activation(f"{node.name}_gate", "silu", node.value(0))
    return node.builder.elementwise(node.name, "product", [gate, node.value(1)])


@operator("Softmax", "LogSoftmax", "Hardmax")
def _softmax(node: Node) -> Result:
    # Before version 13, all dimensions from the axis on were one: as many elements.
    axis = node.integer("axis", -1 if node.version >= 13 else 1)
    if not -len(node.shape()) <= axis < len(node.shape()):
        axis = -1
    return node.builder.softmax(node.name, node.value(), axis)


@operator("BatchNormalization")
def _batch_norm(node: Node) -> Result:
    # Mean and variance are counted while training, but not trained.
    made = node.builder.batch_norm(node.name, node.value(), node.weight(1), node.weight(2))
    return [made, *(Tensor(node.shape(1), node.tensor(1).dtype) for _ in range(4))]


@operator("InstanceNormalization")
def _instance_norm(node: Node) -> Result:
    return node.builder.instance_norm(node.name, node.value(), node.factor(1), node.factor(2))


@operator("GroupNormalization")
def _group_norm(node: Node) -> Result:
    return node.builder.group_norm(
        node.name, node.value(), node.integer("num_groups", 0), node.factor(1), node.factor(2)
    )


@operator("LayerNormalization")
def _layer_norm(node: Node) -> Result:
    count = _trailing(node)
    made = node.builder.layer_norm(node.name, node.value(), count, node.factor(1), node.factor(2))
    outputs: list[Value | None] = [made, None, None]
    rank = len(node.shape())
    for index in (1, 2):
        # Mean and deviation, which a training graph hands to its backward pass.
        if node.wants(index):
            axes = list(range(rank - count, rank))
            name = f"{node.name}_{index}"
            outputs[index] = node.builder.reduce(name, "mean", node.value(), axes, True)
    return outputs


@operator("RMSNormalization", "SimplifiedLayerNormalization")
def _rms_norm(node: Node) -> Result:
    return node.builder.rms_norm(node.name, node.value(), _trailing(node), node.factor(1))


def _trailing(node: Node) -> int:
    """Return how many of the last axes are normalized."""
    return len(node.shape()) - axis_in(node.shape(), node.integer("axis", -1))


@operator("LRN")
def _lrn(node: Node) -> Result:
    return node.builder.lrn(node.name, node.value(), node.integer("size", 1))


@operator("LpNormalization")
def _lp_normalization(node: Node) -> Result:
    return node.builder.normalize(node.name, node.value(), node.integer("axis", -1))


@operator("MeanVarianceNormalization")
def _mean_variance(node: Node) -> Result:
    axes = node.integers("axes", [0, 2, 3])
    if 0 in axes:
        return node.builder.batch_norm(node.name, node.value())
    return node.builder.instance_norm(node.name, node.value())


@operator(*_REDUCTIONS)
def _reduce(node: Node) -> Result:
    axes = node.axes()
    if axes is None:
        if node.integer("noop_with_empty_axes", 0):
            return node.value()
        axes = list(range(len(node.shape())))
    return _reduced(node, _REDUCTIONS[node.op], axes)


@operator("ArgMax", "ArgMin")
def _arg(node: Node) -> Result:
    return _reduced(node, "argmax", [node.integer("axis", 0)])


def _reduced(node: Node, function: str, axes: list[int]) -> Result:
    rank = len(node.shape())
    axes = sorted({axis_in(node.shape(), axis) for axis in axes})
    keep = bool(node.integer("keepdims", 1))
    spatial = list(range(2, rank))
    if function in ("mean", "maximum") and keep and rank > 2 and axes == spatial:
        # What exporters make of global pooling.
        kind = "average" if function == "mean" else "max"
        return node.builder.adaptive_pool(node.name, node.value(), kind, [1] * len(spatial))
    if not axes:
        return node.value()
    return node.builder.reduce(node.name, function, node.value(), axes, keep)


@operator("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss")
def _loss(node: Node) -> Result:
    softmax = node.op == "SoftmaxCrossEntropyLoss"
    function = "softmax_cross_entropy" if softmax else "cross_entropy"
    labels = node.value(1) if node.tensor(1).made is not None else None
    made = node.builder.loss(node.name, function, node.value(), labels)
    # A mean over the batch is a number; it is as good as one for each sample.
    shape = node.inferred[0][0]
    loss = Tensor(made.shape if shape is None else shape, node.inferred[0][1] or 1, made)
    if not softmax or not node.wants(1):
        return [loss]
    return [loss, node.builder.softmax(f"{node.name}_softmax", node.value(), 1)]


@operator("BitCast", "Cast", "CastLike", "Identity", "QuantizeLinear", "DequantizeLinear")
def _same(node: Node) -> Result:
    return node.value()


@operator("DynamicQuantizeLinear")
def _quantize(node: Node) -> Result:
    return [node.value(), Tensor(()), Tensor(())]
