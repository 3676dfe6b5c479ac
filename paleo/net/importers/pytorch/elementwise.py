"""ATen operators that act on each element, or that reduce axes.

See `aten.py`, whose table these join.
"""

from __future__ import annotations

from typing import Any

from paleo.importers.base import OperatorError
from paleo.importers.pytorch.aten import Call, axes_of, elementwise, expand_to, is_value, operator

__all__ = ["NOTHING", "pointwise"]

# ---- Elements ----------------------------------------------------------------------------------

#: Functions of one element, as Paleo calls them. Other pointwise operators are "other".
_UNARY = {
    "relu": "relu", "relu6": "relu6", "leaky_relu": "leaky_relu", "rrelu": "leaky_relu",
    "rrelu_with_noise": "leaky_relu", "elu": "elu", "celu": "celu", "selu": "selu",
    "gelu": "gelu", "silu": "silu", "mish": "mish", "softplus": "softplus",
    "sigmoid": "sigmoid", "hardsigmoid": "hard_sigmoid", "hardswish": "hard_swish",
    "tanh": "tanh", "hardtanh": "hard_tanh", "threshold": "threshold", "hardshrink": "threshold",
    "softshrink": "threshold", "abs": "absval", "absolute": "absval", "exp": "exp", "exp2": "exp",
    "expm1": "exp", "log": "log", "log2": "log", "log10": "log", "log1p": "log", "pow": "power",
    "square": "power", "sqrt": "sqrt", "rsqrt": "sqrt", "reciprocal": "reciprocal", "erf": "erf",
    "erfc": "erf", "sin": "sin", "cos": "cos", "round": "round", "floor": "round", "ceil": "round",
    "trunc": "round", "fix": "round", "frac": "round", "sign": "sign", "sgn": "sign",
    "clamp": "clip", "clamp_min": "clip", "clamp_max": "clip", "clip": "clip", "neg": "affine",
    "negative": "affine", "add": "affine", "sub": "affine", "subtract": "affine", "rsub": "affine",
    "mul": "affine", "multiply": "affine", "div": "affine", "divide": "affine",
    "true_divide": "affine", "floor_divide": "round", "eq": "compare", "ne": "compare",
    "lt": "compare", "le": "compare", "gt": "compare", "ge": "compare", "not_equal": "compare",
    "less": "compare", "less_equal": "compare", "greater": "compare", "greater_equal": "compare",
    "isnan": "compare", "isinf": "compare", "isfinite": "compare", "logical_not": "compare",
    "bitwise_not": "compare", "bernoulli": "compare",
}  # fmt: skip

#: Functions of several elements, as Paleo calls them. Other pointwise operators are "product".
_BINARY = {
    "add": "sum", "sub": "difference", "subtract": "difference", "rsub": "difference",
    "mul": "product", "multiply": "product", "div": "quotient", "divide": "quotient",
    "true_divide": "quotient", "floor_divide": "quotient", "remainder": "quotient",
    "fmod": "quotient", "pow": "power", "float_power": "power", "maximum": "maximum",
    "minimum": "minimum", "fmax": "maximum", "fmin": "minimum", "max": "maximum",
    "min": "minimum", "clamp": "maximum", "clamp_min": "maximum", "clamp_max": "minimum",
    "clip": "maximum", "where": "where", "masked_fill": "where", "eq": "compare",
    "ne": "compare", "lt": "compare", "le": "compare", "gt": "compare", "ge": "compare",
    "logical_and": "logical", "logical_or": "logical", "logical_xor": "logical",
    "bitwise_and": "logical", "bitwise_or": "logical", "bitwise_xor": "logical",
    "__and__": "logical", "__or__": "logical", "__xor__": "logical", "lerp": "sum",
    "addcmul": "sum", "addcdiv": "sum", "hypot": "sum", "logaddexp": "sum",
}  # fmt: skip


@operator(*sorted({*_UNARY, *_BINARY} - {"max", "min", "where"}))
def pointwise(call: Call) -> Any:
    """Return a function of each element, of one tensor or of several."""
    values = [value for value in call.arguments.values() if is_value(value)]
    if len(values) == 1:
        function = _UNARY.get(call.operator, "other")
        return call.builder.activation(call.name, function, values[0])
    return elementwise(call, call.name, _BINARY.get(call.operator, "product"), values)


@operator("where")
def _where(call: Call) -> Any:
    if call.get("self") is None and call.get("other") is None:
        raise OperatorError("how many elements there are depends on the data")
    return pointwise(call)


@operator("prelu", "_prelu_kernel")
def _prelu(call: Call) -> Any:
    x, weight = call["self"], call["weight"]
    if not weight.batched and not weight.is_constant and len(weight.shape) <= 1:
        return call.builder.prelu(call.name, x, weight)
    return elementwise(call, call.name, "product", [x, weight])


@operator("glu")
def _glu(call: Call) -> Any:
    x, axis = call["self"], call.get("dim", -1)
    half = x.shape[axis] // 2
    names = [call.part("value"), call.part("scores")]
    value, scores = call.builder.split(names, x, axis, [half, half])
    gate = call.builder.activation(call.part("gate"), "sigmoid", scores)
    return elementwise(call, call.part("product"), "product", [value, gate])


@operator("log_sigmoid_forward")
def _log_sigmoid(call: Call) -> Any:
    return call.builder.activation(call.name, "other", call["self"]), None


@operator("one_hot")
def _one_hot(call: Call) -> Any:
    b, x = call.builder, call["self"]
    wide = b.unsqueeze(call.part("unsqueeze"), x, [len(x.shape)])
    classes = b.constant(call.shape[-1:])
    return b.elementwise(call.part("compare"), "compare", [wide, classes])


@operator("copy", "fill")
def _copy(call: Call) -> Any:
    new = call.get("src", call.get("value"))
    if not is_value(new):
        return call.builder.constant(call.shape)
    return new if tuple(new.shape) == call.shape else expand_to(call, new, call.shape)


#: Those whose output is their input, for what is modelled here: element types cost nothing.
_SAME = (
    "to", "_to_copy", "type_as", "contiguous", "clone", "detach", "alias", "lift_fresh",
    "lift_fresh_copy", "lift", "float", "double", "half", "bfloat16", "long", "int", "bool", "cpu",
    "cuda", "requires_grad", "conj", "_conj", "resolve_conj", "resolve_neg", "real",
    "expand_copy", "positive", "nan_to_num", "view_dtype", "detach_copy", "alias_copy",
    "_autocast_to_reduced_precision", "_autocast_to_full_precision",
    "fake_quantize_per_tensor_affine",
)  # fmt: skip
#: Operators that no layer stands for.
NOTHING = frozenset(_SAME)


@operator(*_SAME)
def _same(call: Call) -> Any:
    x = next(iter(call.arguments.values()))
    return x if tuple(x.shape) == call.shape else call.builder.expand(call.name, x, call.shape)


# ---- Reductions --------------------------------------------------------------------------------

_REDUCTIONS = {
    "mean": "mean", "nanmean": "mean", "sum": "sum", "nansum": "sum", "amax": "maximum",
    "amin": "minimum", "max": "maximum", "min": "minimum", "prod": "product", "norm": "norm",
    "linalg_vector_norm": "norm", "linalg_norm": "norm", "frobenius_norm": "norm",
    "logsumexp": "sum", "argmax": "argmax", "argmin": "argmax", "var": "norm", "std": "norm",
    "any": "maximum", "all": "minimum", "median": "maximum", "nanmedian": "maximum",
    "count_nonzero": "sum", "var_mean": "norm", "std_mean": "norm", "aminmax": "maximum",
}  # fmt: skip


@operator(*_REDUCTIONS)
def _reduce(call: Call) -> Any:
    x = call["self"]
    if call.operator in ("max", "min") and is_value(call.get("other")):
        return pointwise(call)
    axes = axes_of(call.get("dim"), len(x.shape))
    if not axes:
        return x
    keep = bool(call.get("keepdim", False))
    if not keep and len(call.shape) == len(x.shape):
        keep = True
    function = _REDUCTIONS[call.operator]
    y = call.builder.reduce(call.name, function, x, axes, keep)
    return (y,) * len(call.shapes) if len(call.shapes) > 1 else y


@operator("cosine_similarity", "pairwise_distance")
def _similarity(call: Call) -> Any:
    b = call.builder
    first, second = list(call.arguments.values())[:2]
    axis = call.get("dim", 1) if call.operator == "cosine_similarity" else -1
    function = "product" if call.operator == "cosine_similarity" else "difference"
    y = elementwise(call, call.part(function), function, [first, second])
    axis = axis % len(y.shape)
    keep = bool(call.get("keepdim", False))
    return b.reduce(call.part("reduce"), "norm", y, [axis], keep)
