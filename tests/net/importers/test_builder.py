"""The Builder of importers: where it puts the dimensions of another framework's tensors.

The property tests follow real elements: each operator is done by NumPy on the source's
arrays and, as the layers that the Builder has made, on Paleo's. Both must agree wherever
the Builder says that an axis of the one is a dimension of the other.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import paleo
from paleo.net.importers.base import OperatorError
from paleo.net.importers.builder.builder import Builder
from paleo.net.importers.builder.layout import Value, Windows
from paleo.net.load import loads
from paleo.net.writer import dumps
from paleo.studies.summary import LayerSummary

B = 7  # the traced batch


def builder(batch: int = 1) -> Builder:
    return Builder("net", None, batch)


def layers_of(b: Builder, *outputs: Value) -> dict[str, LayerSummary]:
    net = b.finish(list(outputs) or None)
    read = loads(dumps(net))
    assert {spec.name: spec for spec in read.layers} == {spec.name: spec for spec in net.layers}
    return {layer.name: layer for layer in paleo.summarize(read).layers}


class Arrays:
    """What the layers of a Builder compute, done by NumPy on whole numbers."""

    def __init__(self, b: Builder, fed: dict[str, Any]) -> None:
        self.b = b
        self.fed = fed
        self.done: dict[str, Any] = {}

    def of(self, name: str) -> Any:
        if name not in self.done:
            self.done[name] = self._compute(name)
        return self.done[name]

    def _compute(self, name: str) -> Any:
        entry: Any = self.b._entries[name]
        layer: Any = entry.layer
        inputs = [self.of(parent) for parent in entry.parents]
        match layer.type_name:
            case "Input" | "Parameter":
                return self._turned(entry, self.fed[name].reshape)
            case "Transpose":
                return inputs[0].transpose(layer.perm)
            case "Reshape" | "Flatten":
                return inputs[0].reshape(len(inputs[0]), *entry.shape[1:])
            case "LayerNorm":
                return inputs[0]
            case "Slice":
                dim = layer.dim % inputs[0].ndim
                end = layer.begin + (layer.size - 1) * layer.step + 1
                index = [slice(None)] * inputs[0].ndim
                index[dim] = slice(layer.begin, end, layer.step)
                part = inputs[0][tuple(index)]
                return part.reshape(len(part), *entry.shape[1:])
            case "Concatenate":
                dim = inputs[0].ndim - 1 if layer.dim is None else layer.dim
                batch = max(map(len, inputs))
                whole = [np.broadcast_to(each, (batch, *each.shape[1:])) for each in inputs]
                return np.concatenate(whole, dim)
            case "Elementwise":
                result = _spread(inputs[0], entry.shape)
                for each in inputs[1:]:
                    result = result + _spread(each, entry.shape)
                return result
            case "Expand":
                return np.broadcast_to(inputs[0], (len(inputs[0]), *entry.shape[1:]))
            case "Reduce":
                most = inputs[0].max(layer.dims)
                return most.reshape(len(most), *entry.shape[1:])
            case "MatMul":
                a, b = inputs
                a = a.swapaxes(-1, -2) if layer.transpose_a else a
                b = b.swapaxes(-1, -2) if layer.transpose_b else b
                rank = max(a.ndim, b.ndim)
                return np.matmul(_deep(a, rank), _deep(b, rank))
            case "Einsum":
                return np.einsum(layer.equation, *inputs)
            case "Activation":
                return inputs[0]
        raise AssertionError(layer.type_name)

    @staticmethod
    def _turned(entry: Any, reshape: Any) -> Any:
        """Return what is fed to an input that was given the order of its first reader."""
        to = entry.moved_to or tuple(range(len(entry.shape)))
        before = [int(entry.shape[new]) for new in to]
        return reshape([-1, *before[1:]]).transpose(np.argsort(to))

    def check(self, value: Value, expected: Any) -> None:
        """Check that a value is the source's array."""
        assert value.shape == expected.shape
        self.done.clear()  # a layer may have taken another order since
        value = self.b.current(self.b.placed(value))
        assert value.layer is not None
        array = self.of(value.layer)
        assert array.shape[1:] == value.dims
        order = [dim for group in value.axes for dim in group]
        hidden = [dim for dim in range(array.ndim) if dim not in order]
        assert all(array.shape[dim] == 1 for dim in hidden)
        array = array.transpose([*order, *hidden])
        sizes = [prod(array.shape[order.index(dim)] for dim in group) for group in value.axes]
        assert np.array_equal(np.broadcast_to(array.reshape(sizes), expected.shape), expected)


def _deep(array: Any, rank: int) -> Any:
    """Put ones behind the batch, up to this rank."""
    return array.reshape(len(array), *[1] * (rank - array.ndim), *array.shape[1:])


def _spread(array: Any, shape: Any) -> Any:
    return np.broadcast_to(_deep(array, len(shape)), tuple(map(int, shape)))


def numbered(shape: tuple[int, ...], start: int = 0) -> Any:
    return np.arange(start, start + prod(shape)).reshape(shape)


SIZES = st.sampled_from([1, 2, 3, 4])


@st.composite
def shapes(draw: st.DrawFn) -> tuple[tuple[int, ...], int]:
    """Draw a shape of rank 2 to 5 and the axis that its batch is in."""
    sizes = draw(st.lists(SIZES, min_size=1, max_size=4))
    axis = draw(st.integers(0, len(sizes)))
    return (*sizes[:axis], B, *sizes[axis:]), axis


def fed(b: Builder, name: str, array: Any, axis: int) -> tuple[Value, dict[str, Any]]:
    own = np.moveaxis(array, axis, 0)
    if axis == 0 and array.ndim > 3:  # as an image it would come in with channels last
        flat = b.input(name, (B, prod(array.shape[1:])))
        return b.reshape("parts", flat, array.shape), {name: own}
    return b.input(name, array.shape, batch_axis=axis), {name: own}


def reshapes(shape: tuple[int, ...], draw: Any) -> tuple[int, ...]:
    """Draw another shape of as many elements: axes merged, split, ones added and dropped."""
    sizes = [size for size in shape if size > 1 or draw(st.booleans())]
    if sizes and draw(st.booleans()):
        i = draw(st.integers(0, len(sizes) - 1))
        for factor in (2, 3):
            if sizes[i] % factor == 0 and draw(st.booleans()):
                sizes[i : i + 1] = draw(
                    st.sampled_from([[factor, sizes[i] // factor], [sizes[i] // factor, factor]])
                )
                break
    if len(sizes) > 1 and draw(st.booleans()):
        i = draw(st.integers(0, len(sizes) - 2))
        sizes[i : i + 2] = [sizes[i] * sizes[i + 1]]
    if len(sizes) < 5 and draw(st.booleans()):
        sizes.insert(draw(st.integers(0, len(sizes))), 1)
    return tuple(sizes)


def step(draw: Any, b: Builder, value: Value, array: Any) -> tuple[Value, Any]:
    """Draw an operator and do it on both sides."""
    kind = draw(
        st.sampled_from(
            [
                "transpose",
                "reshape",
                "slice",
                "select",
                "join",
                "concat",
                "max",
                "expand",
                "relu",
                "read",
            ]
        )
    )
    rank = array.ndim
    if kind == "transpose":
        perm = draw(st.permutations(range(rank)))
        return b.transpose("t", value, perm), array.transpose(perm)
    if kind == "reshape":
        shape = reshapes(array.shape, draw)
        return b.reshape("r", value, shape), array.reshape(shape)
    if kind == "read":
        # A reader that needs the source's own order, of all axes.
        read = b._with_order(b.placed(value), range(rank))
        return draw(st.sampled_from([value, read])), array
    if kind == "relu":
        return b.activation("a", "relu", value), array
    if rank == 0:
        return value, array
    axis = draw(st.integers(0, rank - 1))
    size = array.shape[axis]
    if kind == "slice":
        start = draw(st.integers(0, size - 1))
        count = draw(st.integers(1, size - start))
        index = (slice(None),) * axis + (slice(start, start + count),)
        return b.slice("s", value, axis, start, count), array[index]
    if kind == "select":
        i = draw(st.integers(0, size - 1))
        return b.select("s", value, axis, i), array.take(i, axis)
    if kind == "max":
        keep = draw(st.booleans())
        assume(axis != value.batch_axis)
        return b.reduce("m", "maximum", value, [axis], keep), array.max(axis, keepdims=keep)
    if kind == "expand":
        assume(size == 1 and axis != value.batch_axis)
        shape = (*array.shape[:axis], 3, *array.shape[axis + 1 :])
        return b.expand("e", value, shape), np.broadcast_to(array, shape)
    perm = draw(st.permutations(range(rank)))
    back = tuple(int(i) for i in np.argsort(perm))
    # The same tensor, transposed there and back by way of a copy.
    other = b.activation("c", "relu", b.transpose("t", value, perm))
    # (Of a tensor that is transposed itself, the copy would only be another layout.)
    if value.natural and draw(st.booleans()):
        copied = array.transpose(perm)
        other = b.reshape("rr", b.reshape("r", other, (copied.size,)), copied.shape)
    other = b.transpose("t", other, back)
    if kind == "join":
        return b.elementwise("j", "sum", [value, other]), array + array
    assume(axis != value.batch_axis)
    return b.concat("k", [value, other], axis), np.concatenate([array, array], axis)


@pytest.mark.slow
@pytest.mark.alike
@settings(max_examples=400, deadline=None)
@given(st.data())
def test_elements_are_where_the_builder_says(data: st.DataObject) -> None:
    b = builder()
    shape, axis = data.draw(shapes())
    array = numbered(shape)
    value, given = fed(b, "x", array, axis)
    arrays = Arrays(b, given)
    for _ in range(data.draw(st.integers(1, 6))):
        try:
            value, array = step(data.draw, b, value, array)
        except OperatorError:
            # Only the batch may stand in the way.
            assume(False)
        arrays.check(value, array)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.data())
def test_products_multiply_what_they_should(data: st.DataObject) -> None:
    b = builder()
    heads, m, k, n = (data.draw(SIZES) for _ in range(4))
    left, right = numbered((B, heads, m, k)), numbered((B, heads, k, n), 5)

    def source(name: str, array: Any) -> tuple[Value, Any]:
        """Feed an array in another order of axes, and transpose it back."""
        perm = data.draw(st.permutations(range(1, 4)))
        order = [0, *perm]
        turned = array.transpose(order)
        value = b.input(name, (B, prod(turned.shape[1:])))
        fed_arrays[name] = turned.reshape(B, -1)
        value = b.reshape("r", value, turned.shape)
        return b.transpose("t", value, [int(i) for i in np.argsort(order)]), array

    fed_arrays: dict[str, Any] = {}
    one, _ = source("one", left)
    other, _ = source("other", right)
    arrays = Arrays(b, fed_arrays)
    if data.draw(st.booleans()):
        arrays.check(b.matmul("p", one, other), left @ right)
    else:
        result = b.einsum("p", "bhmk,bhkn->bmhn", [one, other])
        arrays.check(result, np.einsum("bhmk,bhkn->bmhn", left, right))


def test_images_come_in_with_channels_last() -> None:
    b = builder(4)
    x = b.input("x", (B, 3, 32, 24))
    weight, bias = b.parameter("w", (16, 3, 5, 3)), b.parameter("b", (16,))
    y = b.convolution("c", x, weight, bias, windows=Windows([2, 1], [(2, 2), (1, 0)]))
    # floor((32 + 4 - 5) / 2) + 1 = 16, 24 + 1 - 3 + 1 = 23
    assert y.shape == (B, 16, 16, 23)
    layers = layers_of(b, y)
    assert layers["x"].output == (4, 32, 24, 3)
    assert layers["c"].output == (4, 16, 23, 16)
    assert layers["c"].num_params == 5 * 3 * 3 * 16 + 16


def test_a_sequence_takes_the_order_that_its_reader_needs() -> None:
    b = builder()
    x = b.input("x", (B, 8, 100))  # N x C x L
    y = b.convolution("c", x, b.parameter("w", (4, 8, 3)), windows=Windows([1], [(1, 1)]))
    assert y.shape == (B, 4, 100)
    layers = layers_of(b, y)
    assert layers["x"].output == (1, 100, 8)
    assert "Reshape" not in {layer.type_name for layer in layers.values()}


def test_a_layout_that_is_not_paleos_costs_nothing() -> None:
    """Permuting an image to channels last and back is no layer."""
    b = builder()
    x = b.input("x", (B, 3, 8, 8))
    y = b.convolution("c", x, b.parameter("w", (6, 3, 1, 1)), windows=Windows([1, 1], [(0, 0)] * 2))
    y = b.transpose("t", y, [0, 2, 3, 1])
    y = b.layer_norm("n", y, 1, b.parameter("g", (6,)), b.parameter("s", (6,)))
    y = b.linear("fc", y, b.parameter("fw", (12, 6)))
    y = b.transpose("u", y, [0, 3, 1, 2])
    y = b.convolution(
        "d", y, b.parameter("v", (3, 12, 1, 1)), windows=Windows([1, 1], [(0, 0)] * 2)
    )
    assert y.shape == (B, 3, 8, 8)
    assert list(layers_of(b, y)) == ["x", "c", "n", "fc", "d"]


def test_the_batch_may_be_joined_with_another_axis() -> None:
    b = builder()
    x = b.input("x", (B, 10, 12))
    y = b.reshape("heads", b.linear("fc", x, b.parameter("w", (12, 12))), (B * 10, 12))
    y = b.linear("fc2", y, b.parameter("v", (5, 12)))
    assert y.shape == (B * 10, 5)
    layers = layers_of(b, y)
    assert layers["fc2"].output == (1, 10, 5)
    assert layers["fc2"].forward_flops == 2 * 10 * 12 * 5


def test_weights_are_counted_once() -> None:
    b = builder()
    x = b.input("ids", (B, 9))
    table = b.parameter("table", (100, 16))
    h = b.embedding("embed", x, table)
    h = b.linear("one", h, b.parameter("w", (16, 16)), b.parameter("b", (16,)))
    h = b.linear("two", h, b.parameter("w", (16, 16)), b.parameter("b", (16,)))
    y = b.linear("out", h, table, b.parameter("own", (100,)))
    layers = layers_of(b, y)
    assert layers["embed"].num_params == 1600
    assert (layers["one"].num_params, layers["two"].num_params) == (272, 0)
    assert layers["out"].num_params == 0
    assert sum(layer.num_params for layer in layers.values()) == 1600 + 272 + 100


def test_a_parameter_that_is_added_is_a_layer_of_its_own() -> None:
    b = builder()
    x = b.input("x", (B, 9, 16))
    y = b.elementwise("add", "sum", [x, b.parameter("position", (1, 9, 16))])
    token = b.expand("token", b.parameter("class", (1, 1, 16)), (B, 1, 16))
    y = b.concat("cat", [token, y], 1)
    assert y.shape == (B, 10, 16)
    layers = layers_of(b, y)
    assert layers["position"].output == (1, 9, 16)
    assert layers["class"].num_params == 16
    assert layers["cat"].output == (1, 10, 16)


def test_a_part_of_a_parameter_leaves_the_rest_counted() -> None:
    b = builder()
    x = b.input("x", (B, 9, 16))
    part = b.slice("first", b.parameter("position", (1, 50, 16)), 1, 0, 9)
    layers = layers_of(b, b.elementwise("add", "sum", [x, part]))
    assert sum(layer.num_params for layer in layers.values()) == 50 * 16


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda b, x: b.reshape("r", x, (B, 3)), "7x4x6 cannot become 7x3"),
        (lambda b, x: b.reshape("r", x, (3, B, 8)), "mixes the batch's samples"),
        (lambda b, x: b.select("s", x, 0, 2), "takes some samples out of the batch"),
        (lambda b, x: b.softmax("s", x, 0), "over the samples of the batch"),
        (
            lambda b, x: b.matmul(
                "m",
                b.reshape("r", x, (4 * B, 6)),
                b.transpose("t", b.reshape("r", x, (4 * B, 6)), [1, 0]),
            ),
            "multiplies samples of the batch with each other",
        ),
        (lambda b, x: b.transpose("t", x, [0, 1, 1]), "no order of 3 axes"),
        (lambda b, x: b.elementwise("e", "sum", [x, b.constant((5,))]), "do not go together"),
        (lambda b, x: b.linear("l", x, b.parameter("w", (3, 5))), "does not fit"),
        (lambda b, x: b.pad("p", x, [(1, 0), (0, 0), (0, 0)]), "adds samples to the batch"),
        (lambda b, x: b.input("y", (B + 1, 2)), "is not that of the first input"),
        (lambda b, x: b.parameter("w", (0, 2)), "a dimension of 0"),
        (lambda b, x: b.slice("s", x, 5, 0, 1), "there is no axis 5"),
    ],
)
def test_what_does_not_fit_is_said(act: Any, message: str) -> None:
    b = builder()
    x = b.input("x", (B, 4, 6))
    with pytest.raises(OperatorError, match=message):
        act(b, x)


def test_a_result_has_the_dimensions_that_its_axes_name() -> None:
    b = builder(3)
    lone = b.reshape("r", b.input("x", (B,)), (B, 1, 1, 1))
    wider = b.elementwise("a", "sum", [lone, b.parameter("p", (1, 1, 2, 1))])
    y = b.elementwise("c", "sum", [wider, b.parameter("q", (1, 1, 1, 6))])
    assert y.shape == (B, 1, 2, 6)
    assert layers_of(b, y)["c"].output == (3, 2, 6)


def test_equal_sizes_are_still_told_apart() -> None:
    """A layer of 4 x 4 x 4 may need no reshape, but its dimensions have changed places."""
    b = builder()
    x = b.reshape("r", b.activation("a", "relu", b.input("x", (B, 64))), (B, 4, 4, 4))
    x = b.activation("first", "relu", x)
    weight = b.parameter("w", (8, 4, 1, 1))
    y = b.convolution("c", x, weight, windows=Windows([1, 1], [(0, 0)] * 2))
    y = b.reduce("m", "sum", y, [1], False)
    assert y.shape == (B, 4, 4)
    assert layers_of(b, y)["m"].output == (1, 4, 4)


def test_a_bias_that_another_layer_has_is_counted_there() -> None:
    b = builder()
    x = b.input("x", (B, 8))
    bias = b.parameter("b", (8,))
    x = b.linear("one", x, b.parameter("w", (8, 8)), bias)
    y = b.linear("two", x, b.parameter("v", (8, 8)), bias)
    assert sum(layer.num_params for layer in layers_of(b, y).values()) == 2 * 64 + 8


def test_a_layer_that_took_its_first_readers_order_serves_another() -> None:
    b = builder()
    x = b.input("x", (B, 4, 6))  # N x C x L, which the convolution wants as N x L x C
    conv = b.convolution("c", x, b.parameter("w", (4, 4, 1)), windows=Windows([1], [(0, 0)]))
    norm = b.layer_norm("n", x, 1, b.parameter("g", (6,)))  # over L, which it wants last
    assert (conv.shape, norm.shape) == ((B, 4, 6), (B, 4, 6))
    layers = layers_of(b, conv, norm)
    assert layers["x"].output == (1, 6, 4)
    assert layers["n"].output == (1, 4, 6)
    assert layers["n"].num_params == 6


def test_a_transposition_outlives_a_reshape_that_it_does_not_hinder() -> None:
    """2 x 3 of N x 10 x 2 x 3 x 4 become 6 heads, in front of the 10 that stood before them."""
    b = builder()
    array = numbered((B, 10, 24))
    x, given = fed(b, "x", array, 0)
    heads = b.transpose("t", b.reshape("v", x, (B, 10, 2, 3, 4)), [0, 2, 3, 1, 4])
    heads = b.reshape("merge", heads, (B, 6, 10, 4))
    expected = array.reshape(B, 10, 2, 3, 4).transpose(0, 2, 3, 1, 4).reshape(B, 6, 10, 4)
    read = b._with_order(b.placed(heads), range(4))
    Arrays(b, given).check(read, expected)
    Arrays(b, given).check(heads, expected)


def test_an_equation_may_join_the_batch_with_heads() -> None:
    b = builder()
    one, two = numbered((B, 4, 5, 3)), numbered((B, 4, 5, 2), 7)
    values = []
    given: dict[str, Any] = {}
    for name, array in (("one", one), ("two", two)):
        x = b.input(name, (B, array[0].size))
        given[name] = array
        values.append(b.reshape(f"{name}_parts", x, (B * 4, *array.shape[2:])))
    result = b.einsum("e", "bct,bcs->bts", values)
    assert result.shape == (B * 4, 3, 2)
    expected = np.einsum("bct,bcs->bts", one.reshape(B * 4, 5, 3), two.reshape(B * 4, 5, 2))
    Arrays(b, given).check(result, expected)


def test_what_compares_all_samples_is_said_so() -> None:
    b = builder()
    x = b.input("x", (B, 8))
    made = layers_of(b, b.matmul("m", x, b.transpose("t", x, [1, 0])))["m"]
    assert made.output == (1, 1)
    assert made.forward_flops == 2 * 8
    assert b.finish().notes == (
        "m compares each sample of a batch with each: a product of the batch",
    )
    # As an unknown operator it has the net's own batch, not the one that is traced.
    assert layers_of(b, b.unknown("u", "MatMul", [x, x], (B, B)))["u"].output == (1, 1)


@pytest.mark.parametrize(
    ("shape", "perm", "to", "output"),
    [
        # Heads of a sequence that has its steps first: 10 x (N 12) x 64.
        ((10, 1, 768), None, (10, 12, 64), (5, 10, 12, 64)),
        # Steps and samples as rows: (10 N) x 768.
        ((10, 1, 12, 64), None, (10, 768), (5, 10, 768)),
        # Windows of an image: (N 16) x 64 x 96.
        ((1, 4, 8, 4, 8, 96), [0, 1, 3, 2, 4, 5], (16, 64, 96), (5, 16, 64, 96)),
    ],
)
def test_a_batch_of_one_is_found_again(
    shape: tuple[int, ...], perm: Any, to: tuple[int, ...], output: tuple[int, ...]
) -> None:
    b = builder()
    axis = shape.index(1)
    flat = b.input("x", (*shape[: axis + 1], prod(shape[axis + 1 :])), batch_axis=axis)
    x = b.reshape("parts", flat, shape)
    x = b.reshape("r", b.transpose("t", x, perm) if perm else x, to)
    y = b.activation("a", "relu", b.linear("l", x, b.parameter("w", (to[-1], to[-1]))))
    net = loads(dumps(b.finish([y])))
    assert paleo.build(net, 5).nodes[-1].output == output


def test_regions_are_a_dimension_beside_the_batch() -> None:
    b = builder()
    x = b.input("x", (B, 8, 9, 9))
    regions = b.proposals("p", [x], 5, num_compared=20)
    assert regions.shape == (B * 5, 4)
    parts = b.region_pooling("r", [x], regions, (2, 2), "average", position_sensitive=True)
    whole = b.region_pooling("w", [x], regions, (3, 3), samples=4)
    assert (parts.shape, whole.shape) == ((B * 5, 2, 2, 2), (B * 5, 8, 3, 3))
    fc = b.linear("fc", whole, b.parameter("fc_w", (6, 8 * 9)), axis=1)
    made = layers_of(b, parts, fc)
    assert (made["p"].output, made["r"].output) == ((1, 5, 4), (1, 5, 2, 2, 2))
    # The weight is one for all regions.
    assert (made["fc"].output, made["fc"].num_params) == ((1, 5, 6), 8 * 9 * 6)
    with pytest.raises(OperatorError, match="its regions are 7x8x9x9"):
        b.region_pooling("e", [x], x, (2, 2))
