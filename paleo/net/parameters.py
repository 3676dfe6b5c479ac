"""What frameworks do with parameters and their gradients besides what layers do.

Letters: a layer has P parameters in so many tensors, each of which takes a kernel of its own.
"""

from __future__ import annotations

from paleo.core.operations import Kind, Operation, Pass, Role, Stream


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
