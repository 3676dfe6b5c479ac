"""Operators by name: the letters of their shapes, and the operations that they are.

A shape maps letters to whole numbers. Where an operator's shapes may be stacked, the letters
may be arrays, and the same operations then price all of them at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from paleo.core.checks import MAX_COUNT, MAX_SIZE, is_number, shown
from paleo.core.errors import near, near_or_known
from paleo.core.frozen import dataclass
from paleo.core.operations import (
    Attention,
    BatchMatMul,
    Convolution,
    Kind,
    MatMul,
    Operation,
    Pass,
    Stream,
)
from paleo.core.quantity import Quantity
from paleo.core.tensor import element_size
from paleo.core.window import axes
from paleo.costs.tiled.attention_kernels import ATTENTION_KERNELS
from paleo.costs.tiled.backends import BACKENDS
from paleo.net.layers.recurrent import GRU, LSTM, RNN

#: Letters by name, each a whole number or an array of them.
Letters = Mapping[str, Any]
Operations = tuple[Operation, ...]


@dataclass(frozen=True)
class Letter:
    """One letter of a shape: what it counts, its default (None: it must be given), its least.

    A 0 of one that is `like` another letter stands for that one's number. One with `names` is a
    text, one of them, or 0 for none.
    """

    meaning: str
    default: int | None = None
    least: int = 1
    like: str = ""
    names: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Operator:
    """An operator of measurements.

    `make(letters, direction, dtype)` gives its operations in one of its `directions`. Letters
    in `scalars` cannot be arrays; None stands for all of them. `short` are other ways to write
    letters: one that sets several.
    """

    kind: str
    letters: Mapping[str, Letter]
    make: Callable[[Letters, str, str], Operations]
    directions: tuple[str, ...] = ("forward",)
    scalars: tuple[str, ...] | None = ()
    short: Mapping[str, tuple[str, ...]] | None = None
    #: Letters that may be there and say nothing about the time.
    ignored: tuple[str, ...] = ()
    check: Callable[[Letters], str] | None = None
    describe: str = ""


def _copy(label: str, read: Any, written: Any) -> Stream:
    return Stream(Kind.COPY, (read,), (written,), label=label)


def _gemm(letters: Letters, direction: str, dtype: str) -> Operations:
    # Integer and 8-bit products are written wider than they are read.
    size = element_size(dtype)
    output = {"int8": 4, "fp8": 2}.get(dtype, 0)
    if letters["backend"]:
        backend = BACKENDS[letters["backend"]]
        scheme = f"{dtype}_block" if letters["blocks"] else dtype
        return backend.product(letters["M"], letters["N"], letters["K"], scheme, size, output)
    product = MatMul(letters["M"], letters["N"], letters["K"], size, output)
    elements = letters["M"] * letters["K"]
    found: Operations = (Stream(Kind.COPY, (), (), label="plan"),) * letters["kernels"]
    if letters["quantized"] > 1:
        found += (Stream(Kind.REDUCTION, (2 * elements,), (), label="largest"),)
    if letters["quantized"]:
        found += (_copy("quantize", 2 * elements, size * elements),)
    return (*found, product)


def _linear(letters: Letters, direction: str, dtype: str) -> Operations:
    plain = {
        **letters,
        "M": letters["B"] * letters["M"],
        "quantized": 0,
        "kernels": 0,
        "backend": 0,
        "blocks": 0,
    }
    return _gemm(plain, direction, dtype)


def _bmm(letters: Letters, direction: str, dtype: str) -> Operations:
    b, m, n, k = (letters[letter] for letter in "BMNK")
    return (BatchMatMul("matmul", b, m, n, k, element_size(dtype)),)


_PASSES = {
    "forward": (Pass.FORWARD,),
    "backward_input": (Pass.INPUT_GRADIENT,),
    "backward_weight": (Pass.WEIGHT_GRADIENT,),
    "backward": (Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT),
}


def _axes(letters: Letters) -> Any:
    return axes(
        (letters["H"], letters["W"]),
        (letters["R"], letters["S"]),
        (letters["stride_h"], letters["stride_w"]),
        ((letters["pad_h"],) * 2, (letters["pad_w"],) * 2),
        (letters["dilation_h"], letters["dilation_w"]),
    )


def _convolution(letters: Letters, direction: str, dtype: str) -> Operations:
    size = element_size(dtype)
    return tuple(
        Convolution(
            each, letters["N"], _axes(letters), letters["C"], letters["K"], size,
            groups=letters["groups"],
        )
        for each in _PASSES[direction]
    )  # fmt: skip


def _check_convolution(letters: Letters) -> str:
    for axis, window, size in zip(_axes(letters), "RS", "HW", strict=True):
        if axis.output < 1:
            padded = axis.size + axis.total_padding
            return (
                f"the filter spans {axis.span} elements ({window}), more than the {padded} of the "
                f"padded input ({size})"
            )
    for letter in "CK":
        if letters[letter] % letters["groups"]:
            return f"{letter} = {letters[letter]} does not divide into {letters['groups']} groups"
    return ""


def _recurrent(layer: type[RNN], letters: Letters, direction: str, dtype: str) -> Operations:
    """Return the operations of one recurrent layer.

    Without an input size there is no product with the inputs: they come in multiplied, as
    with cuDNN's CUDNN_SKIP_INPUT.
    """
    n, t, features = letters["N"], letters["T"], letters["input"]
    built = layer(num_outputs=letters["hidden"], num_layers=1, bidirectional=False, num_biases=0)
    shape = ((n, t, features or letters["hidden"]),)
    size = element_size(dtype)
    forward = built.operations(Pass.FORWARD, shape, size)
    forward = forward if features else forward[1:]
    if direction == "forward":
        return forward
    found: Operations = ()
    products = [each for each in forward if isinstance(each, BatchMatMul)]
    if direction != "backward_weight":
        # Back through time, with the gradient of the first state and that of the input.
        found += tuple(each.gradients()[0] for each in products)
        back = built.operations(Pass.WEIGHT_GRADIENT, shape, size)
        found += tuple(each for each in back if isinstance(each, Stream))
    if direction != "backward_input":
        # The steps' gradients of the weights are summed in one product.
        found += tuple(
            replace(each.gradients()[1], count=1, k=each.m * each.count) for each in products
        )
    return found


def _recurrence_of(layer: type[RNN]) -> Operator:
    return Operator(
        "recurrent",
        {
            "hidden": Letter("hidden units"),
            "N": Letter("samples"),
            "T": Letter("steps"),
            "input": Letter("features in; 0: the inputs come multiplied", 0, 0),
        },
        lambda letters, direction, dtype: _recurrent(layer, letters, direction, dtype),
        tuple(_PASSES),
        None,
        describe=f"a layer of {layer.__name__}",
    )


def _stream(
    kind: Kind, reads: int = 1, passes: int = 1, function: str = "", kernels: int = 1
) -> Operator:
    """Return an operator over rows that are passed over so many times before they are written.

    So many `kernels` each do the same.
    """

    def make(letters: Letters, direction: str, dtype: str) -> Operations:
        row, width = element_size(dtype) * letters["cols"], letters["width"]
        size = letters["rows"] * row
        known = row if passes > 1 or width else 0
        return (
            Stream(
                kind, (size,) * reads, (size,), row=known, passes=passes, width=width,
                function=function,
            ),
        ) * kernels  # fmt: skip

    return Operator(
        "stream",
        {
            "rows": Letter("rows", 1),
            "cols": Letter("columns, or elements"),
            "width": Letter("bytes that a lane moves at a time; as many as it can", 0, 0),
        },
        make,
        scalars=("width",),
        short={"elements": ("cols",)},
        describe=f"reads {reads}, writes 1" + f", in {kernels} kernels" * (kernels > 1),
    )


def _attention(letters: Letters, direction: str, dtype: str) -> Operations:
    size = element_size(dtype)
    kept_size = letters["kv_bytes"] or size
    depth, value_depth = letters["head_dim"], letters["value_dim"]
    heads, shared = letters["batch"] * letters["heads"], letters["batch"] * letters["kv_heads"]
    queries = heads * letters["queries"] * depth
    new = shared * letters["queries"] * (depth + value_depth)
    found: Operations = (Stream(Kind.COPY, (), (), label="plan"),) * letters["kernels"]
    if letters["rotated"]:
        read, written = (2 * queries, 2 * new), (size * queries, kept_size * new)
        found += (Stream(Kind.ELEMENTWISE, read, written, label="rotary"),)
    if letters["stored"]:
        found += (_copy("cache", size * new, kept_size * new),)
    if letters["widened"]:
        # Two elements at a time, so that an access reads 2 bytes or writes 4.
        kept = shared * letters["keys"] * (depth + value_depth)
        widened = Stream(Kind.COPY, (kept,), (size * kept,), width=3, label="widen")
        found, kept_size = (*found, widened), size
    if letters["cast"]:
        found += (_copy("cast", 2 * queries, queries),)
    if letters["fresh"]:
        kept_size = size
    attention = Attention(
        Pass.FORWARD, heads, letters["heads"] // letters["kv_heads"], letters["queries"],
        letters["keys"], depth, value_depth, size, bool(letters["causal"]), letters["window"],
        kept_size, kernel=letters["kernel"] or "",
    )  # fmt: skip
    return (*found, attention)


def _check_attention(letters: Letters) -> str:
    if letters["heads"] % letters["kv_heads"]:
        return f"{letters['heads']} heads do not share {letters['kv_heads']} of keys and values"
    if letters["causal"] and letters["keys"] < letters["queries"]:
        return f"{letters['queries']} causal queries need as many keys, not {letters['keys']}"
    return ""


_MNK = {
    "M": Letter("rows of A and C"),
    "N": Letter("columns of B and C"),
    "K": Letter("columns of A, rows of B"),
}
_BACKEND = Letter("the serving backend whose kernels run", 0, 0, names=BACKENDS)
_KERNELS = Letter("further kernels, which do nothing to speak of", 0, 0)
_ROPE = "1 if queries and keys are first rotated, and keys and values stored, in one kernel"

#: Every operator that can be predicted, by the name after "op:".
OPERATORS: dict[str, Operator] = {
    "gemm": Operator(
        "gemm",
        {
            **_MNK,
            "quantized": Letter(
                "1 if A comes with 2 bytes and is quantized, 2 with its scale", 0, 0
            ),
            "kernels": _KERNELS,
            "backend": _BACKEND,
            "blocks": Letter("1 if its scales are of blocks of 128 numbers, not of rows", 0, 0),
        },
        _gemm,
        scalars=("quantized", "kernels", "backend", "blocks"),
        ignored=("tA", "tB"),
        describe="C = A B",
    ),
    "linear": Operator(
        "gemm", {"B": Letter("batch", 1), **_MNK}, _linear, describe="B M x K times K x N"
    ),
    "bmm": Operator("bmm", {"B": Letter("products"), **_MNK}, _bmm, describe="B products"),
    "conv2d": Operator(
        "convolution",
        {
            "N": Letter("images"),
            "C": Letter("channels"),
            "H": Letter("height"),
            "W": Letter("width"),
            "K": Letter("filters"),
            "R": Letter("filter height"),
            "S": Letter("filter width"),
            "pad_h": Letter("padding above and below", 0, 0),
            "pad_w": Letter("padding left and right", 0, 0),
            "stride_h": Letter("stride down", 1),
            "stride_w": Letter("stride across", 1),
            "dilation_h": Letter("dilation down", 1),
            "dilation_w": Letter("dilation across", 1),
            "groups": Letter("groups", 1),
        },
        _convolution,
        tuple(_PASSES),
        None,
        {name: (f"{name}_h", f"{name}_w") for name in ("pad", "stride", "dilation")},
        check=_check_convolution,
        describe="N images of C x H x W",
    ),
    "rnn_vanilla": _recurrence_of(RNN),
    "rnn_lstm": _recurrence_of(LSTM),
    "rnn_gru": _recurrence_of(GRU),
    "softmax": _stream(Kind.SOFTMAX, passes=3),
    "layernorm": _stream(Kind.LAYER_NORM, passes=2),
    "rmsnorm": _stream(Kind.NORMALIZATION, passes=2),
    **{name: _stream(Kind.ELEMENTWISE, reads=2) for name in ("add", "sub", "mul", "div", "pow")},
    "add3": _stream(Kind.ELEMENTWISE, reads=2, kernels=2),
    **{
        name: _stream(Kind.FUNCTION, function="affine") for name in ("addu", "subu", "mulu", "divu")
    },
    "powu": _stream(Kind.FUNCTION, function="power"),
    **{
        name: _stream(Kind.FUNCTION, function=name)
        for name in ("relu", "gelu", "tanh", "sigmoid", "silu", "exp", "sqrt", "erf")
    },
    # Two halves come in, the product of one with the function of the other goes out.
    "silu_mul_act": _stream(Kind.ELEMENTWISE, reads=2),
    "gelu_mul_act": _stream(Kind.ELEMENTWISE, reads=2),
    "attention": Operator(
        "attention",
        {
            "batch": Letter("samples"),
            "heads": Letter("heads of queries"),
            "kv_heads": Letter("heads of keys and values; as many", 0, 0, "heads"),
            "queries": Letter("queries of a sample"),
            "keys": Letter("keys of a sample; as many", 0, 0, "queries"),
            "head_dim": Letter("features of a head"),
            "value_dim": Letter("features of its values; as many", 0, 0, "head_dim"),
            "causal": Letter("1 if a query sees no later keys, else 0", 1, 0),
            "window": Letter("keys that a query sees at most; 0: all", 0, 0),
            "kv_bytes": Letter("bytes of an element of keys and values; as of queries", 0, 0),
            "stored": Letter("1 if keys and values are first stored in a cache", 0, 0),
            "rotated": Letter(_ROPE, 0, 0),
            "cast": Letter("1 if queries of 2 bytes are first cast to 1", 0, 0),
            "fresh": Letter("1 if keys and values are read as they came, not from the cache", 0, 0),
            "widened": Letter("1 if keys and values of 1 byte are first turned into 2", 0, 0),
            "kernels": _KERNELS,
            "kernel": Letter("the kernel that computes it", 0, 0, names=ATTENTION_KERNELS),
        },
        _attention,
        scalars=(
            "causal",
            "kv_bytes",
            "stored",
            "rotated",
            "cast",
            "fresh",
            "widened",
            "kernels",
            "kernel",
        ),
        check=_check_attention,
        describe="fused attention",
    ),
}

#: The two phases of serving, in the same letters: the prompt at once, then one token after others.
OPERATORS["attention_prefill"] = OPERATORS["attention"]
OPERATORS["attention_decode"] = replace(
    OPERATORS["attention"],
    letters={
        **OPERATORS["attention"].letters,
        "queries": Letter("queries of a sample", 1),
        "keys": Letter("keys of a sample"),
        "causal": Letter("1 if a query sees no later keys, else 0", 0, 0),
    },
)


#: Collectives that are predicted: of their shape, `bytes` is the message of each device.
COLLECTIVE_OPERATORS = (
    "allreduce", "all_reduce", "all_gather", "reduce_scatter", "alltoall", "all_to_all",
    "broadcast", "send_recv",
)  # fmt: skip
#: Nobody sends more in one message.
_MOST_BYTES = 2**50


def read_message(shape: Mapping[str, Any], complaints: list[str]) -> dict[str, int]:
    """Return the bytes of a collective's message; what is wrong is added to `complaints`."""
    value = shape.get("bytes")
    if not (is_number(value) and 1 <= value <= _MOST_BYTES and value == int(value)):
        complaints.append(f"bytes: expected a whole number above 0, got {shown(value)}")
        return {}
    return {"bytes": int(value)}


def read_shape(name: str, shape: Mapping[str, Any], complaints: list[str]) -> dict[str, int]:
    """Return the letters of one shape of the operator `name`, defaults filled in.

    What is wrong with it is added to `complaints`; the letters are then of no use.
    """
    operator = OPERATORS[name]
    short = operator.short or {}
    given: dict[str, Any] = {}
    before = len(complaints)
    for letter, value in shape.items():
        names = short.get(letter, (letter,))
        if letter in operator.ignored:
            continue
        if letter not in operator.letters and letter not in short:
            known = [*operator.letters, *short, *operator.ignored]
            hint = near(letter, known) or f"; {name} has: {', '.join(known)}"
            complaints.append(f"unknown letter {letter!r}{hint}")
            continue
        choices = operator.letters[names[0]].names
        if choices is not None and value != 0:
            if value in choices:
                given[letter] = value
            else:
                hint = near_or_known(str(value), choices)
                complaints.append(f"{letter}: unknown name {shown(value)}{hint}")
        elif problem := _wrong(value, min(operator.letters[each].least for each in names)):
            complaints.append(f"{letter}: {problem}")
        else:
            given |= dict.fromkeys(names, int(value))
    for letter, known_letter in operator.letters.items():
        if letter not in given and known_letter.default is not None:
            given[letter] = known_letter.default
    if len(complaints) == before:
        missing = [letter for letter in operator.letters if letter not in given]
        if missing:
            complaints.append(f"missing: {', '.join(missing)} ({_example(operator)})")
    if len(complaints) > before:
        return given
    for letter, each in operator.letters.items():
        if each.like:
            given[letter] = given[letter] or given[each.like]
    problem = operator.check(given) if operator.check else ""
    if not problem and _magnitude(operator, given) > MAX_COUNT:
        problem = "too large to mean anything"
    if problem:
        complaints.append(problem)
    return given


def _wrong(value: Any, least: int) -> str:
    """Return what is wrong with the value of a letter, "" if nothing is."""
    if value is True or value is False:
        value = int(value) if least == 0 else value
    if not is_number(value):
        return f"expected a whole number, got {shown(value)}"
    if not least <= value <= MAX_SIZE:  # true of NaN
        return f"expected a whole number from {least} to {MAX_SIZE}, got {shown(value)}"
    if value != int(value):
        return f"expected a whole number, got {shown(value)}"
    return ""


def _magnitude(operator: Operator, letters: dict[str, int]) -> Quantity:
    operations = operator.make(letters, operator.directions[-1], "fp64")
    return max(each.magnitude for each in operations)


def _example(operator: Operator) -> str:
    needed = [letter for letter, each in operator.letters.items() if each.default is None]
    return "expected " + ", ".join(needed)
