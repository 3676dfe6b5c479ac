"""What each ATen operator is in the terms of the Builder: products, windows, normalizations.

`OPERATORS` has a function for each, by the operator's name without overload and without the
underscore of one that works in place. It takes a Call and returns a Value, or a tuple of them
where the operator returns several that differ. `reshape`, `elementwise` and `recurrent` add to the
table. An operator without an entry is taken apart by PyTorch itself, where PyTorch can.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from string import ascii_lowercase
from typing import Any, TypeGuard

from paleo.core.frozen import dataclass
from paleo.net.importers.base import OperatorError, by_word, register
from paleo.net.importers.builder.builder import Builder
from paleo.net.importers.builder.layout import Pads, Windows, symmetric
from paleo.net.importers.pytorch.names import leaves_of

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Call:
    """One operator of the graph: its arguments by their names in PyTorch's schema."""

    builder: Any
    name: str
    operator: str
    overload: str
    arguments: Mapping[str, Any]
    #: The shapes of its outputs, None where one is no tensor.
    shapes: tuple[Shape | None, ...]
    #: Which of several outputs are read by anything.
    used: frozenset[int]
    #: The tensors among the arguments that hold truth values, by name ("indices/0" in a list).
    truths: frozenset[str] = frozenset()
    #: The modules that call it, the innermost last: as PyTorch keeps them, name and class.
    modules: Mapping[str, tuple[str, Any]] = field(default_factory=dict)

    @property
    def module(self) -> str:
        """The class of the module that calls it, with its path; "" if none does."""
        return str([*self.modules.values()][-1][1]) if self.modules else ""

    def __getitem__(self, key: str) -> Any:
        return self.arguments[key]

    def get(self, key: str, default: Any = None) -> Any:
        """Return an argument, or `default` if it is None or the operator has no such."""
        value = self.arguments.get(key)
        return default if value is None else value

    @property
    def shape(self) -> Shape:
        """The shape of its first output."""
        shape = self.shapes[0]
        assert shape is not None
        return shape

    @property
    def first(self) -> Any:
        """Its first argument."""
        return next(iter(self.arguments.values()))

    @property
    def tensors(self) -> list[Any]:
        """The tensors among its arguments, those in lists too."""
        return [value for value in leaves_of(self.arguments) if is_value(value)]

    def leading(self, count: int) -> list[Any]:
        """Return its first arguments."""
        return list(self.arguments.values())[:count]

    def part(self, name: str) -> str:
        """Return the name of one of several layers that this operator becomes."""
        return f"{self.name}/{name}"


@dataclass(frozen=True)
class Empty:
    """A tensor without elements, such as a list begins with that is then filled."""

    shape: Shape
    is_constant: bool = True
    batched: bool = False


Handler = Callable[[Call], Any]

OPERATORS: dict[str, Handler] = {}


def operator(*names: str) -> Callable[[Handler], Handler]:
    """Register a handler under the names of operators."""
    assert not OPERATORS.keys() & names, names
    return register(OPERATORS, *names)


def is_value(thing: Any) -> TypeGuard[Any]:
    """Say whether an argument is a tensor, not a number or None."""
    return hasattr(thing, "is_constant")


def spatial(value: Any, rank: int) -> list[int]:
    """Return one number for each spatial axis, where PyTorch lets one stand for all."""
    numbers = list(value) if isinstance(value, Sequence) else [value]
    return [int(n) for n in (numbers * rank if len(numbers) == 1 else numbers)]


def axes_of(value: Any, rank: int) -> list[int]:
    """Return the axes that an operator reduces: all of them where it names none."""
    if value is None or (isinstance(value, Sequence) and not value):
        return list(range(rank))
    axes = value if isinstance(value, Sequence) else [value]
    return [axis % rank for axis in axes] if rank else []


def elementwise(call: Call, name: str, function: str, values: Sequence[Any]) -> Any:
    """Return a function of several tensors; numbers among them are left to the pass itself."""
    return call.builder.elementwise(name, function, [value for value in values if is_value(value)])


# ---- Convolutions ----------------------------------------------------------------------------


def _windows(call: Call, taps: Sequence[int]) -> Windows:
    """Return how windows of so many taps step over an image."""
    rank, padding = len(taps), call.get("padding", 0)
    strides, dilations = (spatial(call.get(key, 1), rank) for key in ("stride", "dilation"))
    windows = Windows(strides, (), dilations, call.get("groups", 1))
    if padding == "same":
        pads: Pads = [((span - 1) // 2, span // 2) for span in windows.spans(taps)]
    else:
        pads = symmetric(spatial(0 if padding == "valid" else padding, rank))
    return replace(windows, pads=pads)


def _on_images(
    call: Call, x: Any, rank: int, layer: Callable[..., Any], *arguments: Any, **keywords: Any
) -> Any:
    """Return what a layer makes of images; a single one is a batch of one for it."""
    if len(x.shape) != rank + 1:
        return layer(call.name, x, *arguments, **keywords)
    batch = call.builder.unsqueeze(call.part("unsqueeze"), x, [0])
    y = layer(call.name, batch, *arguments, **keywords)
    return call.builder.squeeze(call.part("squeeze"), y, [0])


@operator("conv1d", "conv2d", "conv3d")
def _conv(call: Call) -> Any:
    weights, taps = (call["weight"], call.get("bias")), call["weight"].shape[2:]
    windows, convolve = _windows(call, taps), call.builder.convolution
    return _on_images(call, call["input"], len(taps), convolve, *weights, windows=windows)


@operator("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def _conv_transpose(call: Call) -> Any:
    x, weight = call["input"], call["weight"]
    windows, sizes = _windows(call, weight.shape[2:]), list(call.shape[2:])
    return call.builder.conv_transpose(
        call.name, x, weight, call.get("bias"), windows=windows, output_shape=sizes
    )


@operator("convolution", "_convolution", "convolution_overrideable")
def _any_convolution(call: Call) -> Any:
    return _conv_transpose(call) if call["transposed"] else _conv(call)


# ---- Matrix products -------------------------------------------------------------------------


def once(call: Call, value: Any) -> Any:
    """Return constants without their repetition for each sample; other tensors as they are.

    What a layer makes of them is the same for all samples.
    """
    axes = getattr(value, "axes", ())
    if not value.is_constant or () not in axes or not value.shape:
        return value
    at = axes.index(())
    return call.builder.constant((*value.shape[:at], 1, *value.shape[at + 1 :]))


def _turned(call: Call, x: Any) -> Any:
    return call.builder.turned(call.part("transpose"), x)


@operator("linear")
def _linear(call: Call) -> Any:
    x, weight, bias = call["input"], call["weight"], call.get("bias")
    if weight.is_parameter:
        y = call.builder.linear(call.name, once(call, x), weight, bias)
        return call.builder.expand(call.name, y, call.shape)
    return _product(call, x, _turned(call, weight), bias)


def _product(call: Call, a: Any, b: Any, added: Any = None) -> Any:
    """Return a matrix product, and what is added to it."""
    if added is None:
        return call.builder.matmul(call.name, a, b)
    y = call.builder.matmul(call.part("product"), a, b)
    return elementwise(call, call.part("sum"), "sum", [added, y])


@operator("mm", "bmm", "matmul", "mv", "dot", "vdot", "__matmul__", "__rmatmul__")
def _matmul(call: Call) -> Any:
    a, b = call.leading(2)
    if not a.batched and not b.batched and 1 in (len(a.shape), len(b.shape)):
        # Spectral normalization: a few products of a matrix and a vector, once for all samples.
        return call.builder.constant(call.shape)
    return call.builder.matmul(call.name, a, b)


@operator("cdist", "_cdist_forward")
def _cdist(call: Call) -> Any:
    first, second = call.leading(2)
    y = call.builder.matmul(call.part("product"), first, _turned(call, second))
    return call.builder.activation(call.part("distance"), "other", y)


@operator("addmm", "addmv", "baddbmm", "addbmm")
def _addmm(call: Call) -> Any:
    added, a, b = call.leading(3)
    if call.operator == "addbmm":
        products = call.builder.matmul(call.part("product"), a, b)
        y = call.builder.reduce(call.part("reduce"), "sum", products, [0], False)
        return elementwise(call, call.part("sum"), "sum", [added, y])
    if call.get("beta", 1) == 0:
        return call.builder.matmul(call.name, a, b)
    is_layer = b.is_parameter and len(b.shape) == 2 and a.batched
    if is_layer and added.is_parameter and added.shape == b.shape[-1:]:
        return call.builder.linear(call.name, a, _turned(call, b), added)
    return _product(call, a, b, added)


@operator("outer", "ger", "addr")
def _outer(call: Call) -> Any:
    *added, a, b = call.tensors
    a = call.builder.unsqueeze(call.part("column"), a, [1])
    b = call.builder.unsqueeze(call.part("row"), b, [0])
    y = elementwise(call, call.part("product"), "product", [a, b])
    return elementwise(call, call.part("sum"), "sum", [*added, y]) if added else y


@operator("inner")
def _inner(call: Call) -> Any:
    a, b = call.leading(2)
    if len(b.shape) > 1:
        axes = [len(b.shape) - 1, *range(len(b.shape) - 1)]
        b = call.builder.transpose(call.part("transpose"), b, axes)
        b = call.builder.reshape(call.part("reshape"), b, (b.shape[0], math.prod(b.shape[1:])))
    return call.builder.reshape(call.part("out"), call.builder.matmul(call.name, a, b), call.shape)


@operator("einsum")
def _einsum(call: Call) -> Any:
    equation = call["equation"].replace(" ", "")
    try:
        return call.builder.einsum(call.name, equation, call["tensors"])
    except OperatorError:
        product = _einsum_as_product(call, equation)
        if product is None:
            raise
        return product


def _einsum_as_product(call: Call, equation: str) -> Any:
    """Return an equation of two tensors as a product of matrices; None if it is no such."""
    left, arrow, result = equation.partition("->")
    terms = left.split(",")
    if not arrow or len(terms) != 2 or not "".join(terms).isalpha():
        return None
    first, second = terms
    shared = [c for c in first if c in second and c in result]
    inner = [c for c in first if c in second and c not in result]
    rows = [c for c in first if c not in second]
    columns = [c for c in second if c not in first]
    whole = sorted(result) == sorted([*shared, *rows, *columns])
    if not whole or len(inner) != 1 or len(rows) != 1 or len(columns) != 1:
        return None
    b, (x, y) = call.builder, call["tensors"]
    x = b.transpose(call.part("first"), x, [first.index(c) for c in [*shared, *rows, *inner]])
    y = b.transpose(call.part("second"), y, [second.index(c) for c in [*shared, *inner, *columns]])
    made = b.matmul(call.part("product"), x, y)
    order = [*shared, *rows, *columns]
    return b.transpose(call.part("result"), made, [order.index(c) for c in result])


@operator("tensordot")
def _tensordot(call: Call) -> Any:
    a, b = call["self"], call["other"]
    first = [axis % len(a.shape) for axis in call["dims_self"]]
    second = [axis % len(b.shape) for axis in call["dims_other"]]
    left = list(ascii_lowercase[: len(a.shape)])
    right = list(ascii_lowercase[len(left) :][: len(b.shape)])
    for i, j in zip(first, second, strict=True):
        right[j] = left[i]
    kept = [c for i, c in enumerate(left) if i not in first]
    kept += [c for j, c in enumerate(right) if j not in second]
    equation = f"{''.join(left)},{''.join(right)}->{''.join(kept)}"
    return call.builder.einsum(call.name, equation, [a, b])


@operator("bilinear")
def _bilinear(call: Call) -> Any:
    first, second = call["input1"], call["input2"]
    lead = "abcdefgh"[: len(first.shape) - 1]
    products = [first, call["weight"]]
    y = call.builder.einsum(call.part("first"), f"{lead}i,oij->{lead}oj", products)
    y = call.builder.einsum(call.part("second"), f"{lead}oj,{lead}j->{lead}o", [y, second])
    bias = call.get("bias")
    return y if bias is None else elementwise(call, call.part("sum"), "sum", [y, bias])


@operator("scaled_dot_product_attention")
def _attention(call: Call) -> Any:
    q, k, v = call["query"], call["key"], call["value"]
    mask = call.get("attn_mask")
    # A mask of truths or of constants only says which scores the kernel leaves out; another one
    # is data that the kernel adds, such as learnt biases of positions.
    if mask is None or mask.is_constant or "attn_mask" in call.truths:
        single = len(q.shape) == 3
        name = call.part("attention") if single else call.name
        if single:
            q, k, v = (
                call.builder.unsqueeze(call.part(f"{which}_heads"), value, [1])
                for which, value in (("query", q), ("key", k), ("value", v))
            )
        y = call.builder.attention(name, q, k, v, causal=bool(call.get("is_causal", False)))
        return call.builder.squeeze(call.part("squeeze"), y, [1]) if single else y
    if call.get("enable_gqa"):
        raise OperatorError("attention of grouped queries with a mask that is computed")
    if not (call.get("dropout_p") or mask.batched or len(q.shape) == 3):
        return call.builder.attention(call.name, q, k, v, mask)
    scores = call.builder.matmul(call.part("scores"), q, _turned(call, k))
    scores = elementwise(call, call.part("mask"), "sum", [scores, mask])
    weights = call.builder.softmax(call.part("softmax"), scores, -1)
    if call.get("dropout_p"):
        weights = call.builder.dropout(call.part("dropout"), weights, call["dropout_p"])
    return call.builder.matmul(call.part("values"), weights, v)


# ---- Pooling ---------------------------------------------------------------------------------


@operator(
    "max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d",
    "max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices",
)  # fmt: skip
def _pool(call: Call) -> Any:
    kind = "max" if call.operator.startswith("max") else "average"
    rank = int(call.operator.partition("pool")[2][0])
    taps = spatial(call["kernel_size"], rank)
    windows = replace(_windows(call, taps), strides=spatial(call.get("stride") or taps, rank))
    ceil = bool(call.get("ceil_mode", False))
    # The indices have the output's shape, and are only read to undo the pooling.
    return _on_images(call, call.first, rank, call.builder.pool, kind, taps, windows, ceil=ceil)


@operator(
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "_adaptive_avg_pool2d",
    "_adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d",
    "fractional_max_pool2d", "fractional_max_pool3d",
)  # fmt: skip
def _adaptive_pool(call: Call) -> Any:
    kind = "max" if "max" in call.operator else "average"
    sizes = list(call.shape[-int(call.operator[-2]) :])
    return _on_images(call, call.first, len(sizes), call.builder.adaptive_pool, kind, sizes)


# ---- Normalizations --------------------------------------------------------------------------


def _first(call: Call, value: Any) -> Any:
    """Return a tuple where the operator has more outputs: statistics, which nothing here reads."""
    if len(call.shapes) == 1:
        return value
    return (value, *(s and call.builder.constant(s) for s in call.shapes[1:]))


#: The operators of each normalization.
_NORMALIZATIONS: dict[str, Callable[..., Any]] = by_word(
    {
        Builder.batch_norm: """batch_norm native_batch_norm cudnn_batch_norm
            _native_batch_norm_legit _native_batch_norm_legit_functional
            _native_batch_norm_legit_no_training _batch_norm_with_update _batch_norm_no_update
            _batch_norm_impl_index""",
        Builder.group_norm: "group_norm native_group_norm",
        Builder.instance_norm: "instance_norm",
        Builder.layer_norm: "layer_norm native_layer_norm",
        Builder.rms_norm: "rms_norm _fused_rms_norm",
    }
)


@operator(*_NORMALIZATIONS)
def _normalized(call: Call) -> Any:
    """Return a normalization with its weights; one that is not there is None."""
    function = _NORMALIZATIONS[call.operator]
    held = [call[key] for key in ("weight", "bias") if key in call.arguments]
    keys = {"num_groups", "group", "normalized_shape"} & call.arguments.keys()
    sizes = [len(call[key]) if key == "normalized_shape" else call[key] for key in keys]
    # A module of its own may decide in which type it computes.
    is_custom = function is Builder.layer_norm and not call.module.startswith("torch.")
    said = {"custom": True} if is_custom and call.module else {}
    return _first(call, function(call.builder, call.name, call["input"], *sizes, *held, **said))


@operator("softmax", "_softmax", "log_softmax", "_log_softmax", "_safe_softmax",
          "softmin")  # fmt: skip
def _softmax(call: Call) -> Any:
    return call.builder.softmax(call.name, call.first, call["dim"])


@operator("dropout", "native_dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")
def _dropout(call: Call) -> Any:
    is_active = call.get("train", True) and call["p"]
    return call.builder.dropout(call.name, call.first, call["p"]) if is_active else call.first


@operator("_weight_norm", "_weight_norm_interface")
def _weight_norm(call: Call) -> Any:
    return _first(call, elementwise(call, call.name, "product", [call["v"], call["g"]]))
