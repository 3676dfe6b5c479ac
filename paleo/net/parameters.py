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

    With `is_narrow` what goes element by element is moved so, not in the widest accesses.
    """

    is_cast: bool = False
    is_added: bool = False
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


def by_element(operation: Operation, size: int) -> Operation:
    """Return an operation that moves elements of `size` bytes one at a time, if it is pointwise."""
    if isinstance(operation, Stream) and operation.kind in _POINTWISE:
        return replace(operation, width=min(operation.width or size, size), waits=True)
    return operation
