"""ATen operators that act on each element, or that reduce axes.

See `operators.py`, whose table these join.
"""

from __future__ import annotations

from typing import Any

from paleo.net.importers.base import by_word
from paleo.net.importers.pytorch.operators import (
    Call,
    axes_of,
    elementwise,
    is_value,
    operator,
)
from paleo.net.importers.pytorch.regions import places
from paleo.net.layers.functions import ELEMENTWISE, FUNCTIONS, spellings

# ---- Elements ----------------------------------------------------------------------------------

#: Functions of one element and of several, by their names in ATen.
_UNARY = spellings(FUNCTIONS, "aten")
_BINARY = spellings(ELEMENTWISE, "aten")


@operator(*sorted({*_UNARY, *_BINARY} - {"max", "min", "where"}))
def pointwise(call: Call) -> Any:
    """Return a function of each element, of one tensor or of several."""
    values = call.tensors
    if len(values) == 1:
        return call.builder.activation(call.name, _UNARY.get(call.operator, "other"), values[0])
    return elementwise(call, call.name, _BINARY.get(call.operator, "product"), values)


@operator("where")
def _where(call: Call) -> Any:
    if call.get("self") is None and call.get("other") is None:
        return places(call)
    return pointwise(call)


@operator("prelu", "_prelu_kernel")
def _prelu(call: Call) -> Any:
    x, weight = call["self"], call["weight"]
    if weight.batched:
        return elementwise(call, call.name, "product", [x, weight])
    return call.builder.prelu(call.name, x, weight)


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
    return b.elementwise(call.part("compare"), "compare", [wide, b.constant(call.shape[-1:])])


@operator("copy", "fill")
def _copy(call: Call) -> Any:
    new = call.get("src", call.get("value"))
    if not is_value(new):
        return call.builder.constant(call.shape)
    return call.builder.expand(call.name, new, call.shape)


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
    return call.builder.expand(call.name, call.first, call.shape)


# ---- Reductions --------------------------------------------------------------------------------

_REDUCTIONS = by_word(
    {
        "mean": "mean nanmean",
        "sum": "sum nansum logsumexp count_nonzero",
        "maximum": "amax max any median nanmedian aminmax",
        "minimum": "amin min all",
        "product": "prod",
        "norm": "norm linalg_vector_norm linalg_norm frobenius_norm var std var_mean std_mean",
        "argmax": "argmax argmin",
    }
)


@operator(*_REDUCTIONS)
def _reduce(call: Call) -> Any:
    x = call["self"]
    if call.operator in ("max", "min") and is_value(call.get("other")):
        return pointwise(call)
    axes = axes_of(call.get("dim"), len(x.shape))
    if not axes:
        return x
    keep = len(call.shape) == len(x.shape)
    return call.builder.reduce(call.name, _REDUCTIONS[call.operator], x, axes, keep)


@operator("cosine_similarity", "pairwise_distance")
def _similarity(call: Call) -> Any:
    is_product = call.operator == "cosine_similarity"
    function, axis = ("product", call.get("dim", 1)) if is_product else ("difference", -1)
    y = elementwise(call, call.part(function), function, call.leading(2))
    keep = len(call.shape) == len(y.shape)
    return call.builder.reduce(call.part("reduce"), "norm", y, [axis], keep)
