"""Which tensors are views of others' memory in PyTorch, and which inputs are copied for that.

A permutation of dimensions moves nothing in PyTorch: it is a view with other strides, and so is a
part of a tensor. What reads it decides whether elements are copied into order first:

- What takes each element by itself, joins tensors or picks of them reads any strides. What an
  elementwise kernel writes has the order of what it reads (TensorIterator).
- A reshape that strides cannot express copies (computeStride).
- A product takes rows, or a batch of matrices, at one distance, with neighbours along one of the
  last two dimensions; else its operand is copied (aten/src/ATen/native/LinearAlgebra.cpp, matmul;
  cuda/Blas.cpp, prepare_batch_matrix_for_cublas).
- Fused attention takes any strides but that of features, and writes heads beside features.
- All others, normalizations and softmax among them, want the elements in order.

Images are in the order of the memory format, which is the cost model's, or as paleo.net.orders
says: no convolution or pooling copies here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from paleo.core.operations import (
    PRODUCTS,
    Attention,
    BatchMatMul,
    Convolution,
    Kind,
    Operation,
    Pass,
    Pooling,
    Stream,
)
from paleo.core.quantity import is_array
from paleo.core.strides import Strides, are_rows, contiguous, dense, is_contiguous
from paleo.core.tensor import Shape, Shapes, num_elements
from paleo.net.layers import Layer

#: Dimensions of what attention gives: the batch, heads, queries and their features.
_ATTENDED = 4


def found(
    layer: Layer, inputs: Shapes, output: Shape, strides: Sequence[Strides]
) -> tuple[Strides, tuple[int, ...] | None]:
    """Return the strides of what a layer gives, and which of its inputs are copied into order.

    They are None where sizes are arrays, of which nothing is known.
    """
    if any(is_array(size) for shape in (*inputs, output) for size in shape[1:]):
        return (1,) * len(output), None
    copied = tuple(_copied(layer, inputs, output, strides))
    return _made(layer, inputs, output, strides, copied), copied


def copies(inputs: Shapes, places: tuple[int, ...], element_size: int) -> Iterator[Operation]:
    """Yield the copies that bring inputs into order, of elements of this size."""
    for place in places:
        size = element_size * num_elements(inputs[place])
        yield Stream(Kind.COPY, (size,), (size,), label="copy into order")


def channels_last(found: Iterable[Operation]) -> tuple[Operation, ...]:
    """Return operations whose convolutions are of images channels last."""
    return tuple(
        replace(each, is_last=True) if isinstance(each, Convolution) else each for each in found
    )


def is_view(layer: Layer, inputs: Shapes) -> bool:
    """Tell whether what a layer gives may be a view of its only input."""
    return bool(inputs) and layer.viewed(inputs[0], contiguous(inputs[0])) is not None


def _copied(
    layer: Layer, inputs: Shapes, output: Shape, strides: Sequence[Strides]
) -> Iterator[int]:
    if is_view(layer, inputs):
        if layer.viewed(inputs[0], strides[0]) is None:
            yield 0
        return
    operation = _product(layer, inputs)
    if isinstance(operation, Convolution | Pooling):
        return
    for place, (shape, own) in enumerate(zip(inputs, strides, strict=True)):
        if not _fits(layer, operation, shape, own, len(output)):
            yield place


def _fits(layer: Layer, operation: Operation | None, shape: Shape, own: Strides, rank: int) -> bool:
    """Tell whether a layer with an output of this rank takes a tensor as its elements lie."""
    if isinstance(operation, Attention):
        return own[-1] == 1 or shape[-1] == 1
    if isinstance(operation, BatchMatMul) and len(shape) > 2:
        return 1 in own[-2:] and are_rows(shape, own, 2)
    if isinstance(operation, PRODUCTS) and len(shape) == rank:
        return own[-1] == 1 and are_rows(shape, own, 1)
    any_order = layer.takes_any_order or _is_by_element(layer)
    return any_order or is_contiguous(shape, own)


def of_gradient(
    layer: Layer, inputs: Shapes, output: Shape, strides: Sequence[Strides], given: Strides
) -> tuple[tuple[Strides | None, ...], bool]:
    """Return how gradients of the inputs lie, and whether that of the output is copied into order.

    The inputs have these strides, the output's gradient those that are `given`. The gradients of a
    function of each element lie as the output's, those of fused attention as its inputs, for which
    stands their strides; all others, None, in the order of their dimensions.
    """
    if any(is_array(size) for shape in (*inputs, output) for size in shape[1:]):
        return (None,) * len(inputs), False
    operation = _product(layer, inputs)
    if isinstance(operation, Convolution | Pooling):
        return (None,) * len(inputs), False
    if isinstance(operation, Attention):
        return tuple(strides), False
    made: Iterable[Strides | None] = (None for _ in inputs)
    if _is_by_element(layer):
        made = (given if shape[1:] == output[1:] else None for shape in inputs)
    return tuple(made), not _fits(layer, operation, output, given, len(output))


def _product(layer: Layer, inputs: Shapes) -> Operation | None:
    """Return the first of a layer's operations that is a product or has windows."""
    operations = layer.operations(Pass.FORWARD, inputs, 1) if inputs else ()
    return next((each for each in operations if isinstance(each, (*PRODUCTS, Pooling))), None)


def _is_by_element(layer: Layer) -> bool:
    return layer.is_pointwise or layer.takes_statistics


def _made(
    layer: Layer,
    inputs: Shapes,
    output: Shape,
    strides: Sequence[Strides],
    copied: tuple[int, ...],
) -> Strides:
    if not inputs:
        return contiguous(output)
    if is_view(layer, inputs):
        view = layer.viewed(inputs[0], contiguous(inputs[0]) if copied else strides[0])
        assert view is not None
        return view
    if _is_by_element(layer):
        like = next((k for k, shape in enumerate(inputs) if shape[1:] == output[1:]), None)
        return contiguous(output) if like is None else dense(output, strides[like])
    if len(output) == _ATTENDED and isinstance(_product(layer, inputs), Attention):
        _, heads, queries, features = map(int, (1, *output[1:]))
        return (heads * queries * features, features, heads * features, 1)
    return contiguous(output)
