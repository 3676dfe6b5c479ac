"""What frameworks do with parameters and their gradients besides what layers do.

Letters: a layer has P parameters in so many tensors, each of which takes a kernel of its own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from paleo.core.operations import Kind, Operation, Pass, Role, Stream

#: What goes through a framework's loops over elements.
_POINTWISE = (Kind.BIAS, Kind.FUNCTION, Kind.ELEMENTWISE, Kind.BATCH_NORM, Kind.COPY, Kind.DROPOUT)


class Handling(NamedTuple):
    """Whether parameters are cast in every step, and gradients added to what was set to zero.

    `columns` are the elements of a layer normalization's parameters whose gradients one block of
    threads sums up, over all rows; 0 where blocks share the rows.
    With `is_narrow` what goes element by element is moved so, not in the widest accesses.
    """

    is_cast: bool = False
    is_added: bool = False
    columns: int = 0
    is_narrow: bool = False


def cast(num_params: int, tensors: int, half: int, full: int) -> tuple[Operation, ...]:
    """Return what brings parameters of `full` bytes to the `half` that a layer computes in.

    Autocast does so in every step, and keeps the halves no longer than that ("Automatic Mixed
    Precision package", torch.autocast, cache_enabled).
    """
    own = num_params // max(tensors, 1)
    to_half = Stream(
        Kind.COPY, (full * own,), (half * own,), label="cast of parameters", roles=(Role.WEIGHT,)
    )  # fmt: skip
    return (to_half,) * tensors


def cast_back(num_params: int, tensors: int, half: int, full: int) -> tuple[Operation, ...]:
    """Return what brings their gradients from `half` bytes to `full`."""
    own = num_params // max(tensors, 1)
    back = Stream(
        Kind.COPY, (half * own,), (full * own,), direction=Pass.WEIGHT_GRADIENT,
        label="cast of gradients", roles=(Role.AGAIN,),
    )  # fmt: skip
    return (back,) * tensors


def added(num_params: int, tensors: int, size: int) -> tuple[Operation, ...]:
    """Return what adds gradients to those that were set to zero, of `size` bytes a parameter.

    Each tensor is filled with zeros (P written), and what the layer made is added (2 P read, P
    written), as in PyTorch before 2.0: Optimizer.zero_grad filled by default
    (torch/optim/optimizer.py), torch/csrc/autograd/functions/accumulate_grad.h adds.
    """
    held = size * num_params // max(tensors, 1)
    back = Pass.WEIGHT_GRADIENT
    fill = Stream(Kind.COPY, (), (held,), direction=back, label="zero gradient")
    add = Stream(
        Kind.ELEMENTWISE, (held, held), (held,), direction=back, label="added gradient",
        roles=(Role.OUTPUT_GRADIENT, Role.KEPT),
    )  # fmt: skip
    return (fill, add) * tensors


def by_columns(
    found: tuple[Operation, ...], num_params: int, tensors: int, columns: int
) -> tuple[Operation, ...]:
    """Return the operations, sums of layer normalizations in blocks of so many columns each.

    There are P / `tensors` columns, and each lane loads an element of one at a time: in PyTorch 1
    (aten/src/ATen/native/cuda/layer_norm_kernel.cu, GammaBetaBackwardCUDAKernel, 16 columns).
    """
    blocks = -(-num_params // tensors // columns)
    return tuple(
        replace(each, width=int(each.writes[0]) // num_params, blocks=blocks)
        if isinstance(each, Stream) and each.kind is Kind.LAYER_NORM
        else each
        for each in found
    )


def by_element(operation: Operation, size: int) -> Operation:
    """Return an operation that moves elements of `size` bytes one at a time, if it is pointwise."""
    if isinstance(operation, Stream) and operation.kind in _POINTWISE:
        return replace(operation, width=min(operation.width or size, size), waits=True)
    return operation
