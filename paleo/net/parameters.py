"""What frameworks do with parameters and their gradients besides what layers do.

Letters: a layer has P parameters in so many tensors, each of which takes a kernel of its own.
"""

from __future__ import annotations

from dataclasses import replace

from paleo.core.frozen import NamedTuple
from paleo.core.operations import Kind, Operation, Pass, Role, Stream

#: What goes through a framework's loops over elements.
_POINTWISE = (Kind.BIAS, Kind.FUNCTION, Kind.ELEMENTWISE, Kind.BATCH_NORM, Kind.COPY, Kind.DROPOUT)


class Handling(NamedTuple):
    """Whether parameters are cast in every step, and gradients added to what was set to zero.

    `in_block` are those of a layer normalization whose gradients one block of
    threads sums up, over all rows; 0 where blocks share the rows. With `rewrites` biases' are
    summed so, too, and such kernels write the gradient of the input.
    With `is_narrow` what goes element by element is moved so, not in the widest accesses.
    """

    is_cast: bool = False
    is_added: bool = False
    in_block: int = 0
    rewrites: bool = False
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
    fill = Stream(Kind.COPY, (), (held,), direction=Pass.WEIGHT_GRADIENT, label="zero gradient")
    return (fill, sum_of(held)) * tensors


def sum_of(num_bytes: int) -> Stream:
    """Return what adds a gradient of so many bytes, just made, to the sum of those before."""
    return Stream(
        Kind.ELEMENTWISE, (num_bytes, num_bytes), (num_bytes,), direction=Pass.WEIGHT_GRADIENT,
        label="added gradient", roles=(Role.OUTPUT_GRADIENT, Role.KEPT),
    )  # fmt: skip


def by_columns(
    found: tuple[Operation, ...], tensors: int, size: int, handling: Handling
) -> tuple[Operation, ...]:
    """Return the operations, sums over rows in blocks of so many columns each.

    Each lane loads an element of `size` bytes one at a time. A normalization's sums are of so many
    `tensors`. In PyTorch 1 a block has 16 columns (aten/src/ATen/native/cuda/layer_norm_kernel.cu,
    GammaBetaBackwardCUDAKernel). In MindSpore (gpu/cuda_impl/layer_norm_grad_impl.cu,
    GammaAndBetaPropKernel) and in PaddlePaddle (operators/layer_norm_op.cu,
    LayerNormBackwardGradientAll) it has one, and lanes beside each other read other rows. So do
    PaddlePaddle's biases (operators/elementwise/elementwise_op_function.h,
    ElemwiseGradBroadcast1CUDAKernel); either writes what it read as the gradient of the input.
    """
    summed = {Kind.LAYER_NORM: tensors, Kind.BIAS: 1}
    if not handling.rewrites:
        del summed[Kind.BIAS]
    run = size * handling.in_block

    def of(operation: Operation) -> Operation:
        if not isinstance(operation, Stream) or operation.kind not in summed:
            return operation
        blocks = -(-int(operation.writes[0]) // size // summed[operation.kind] // handling.in_block)
        written = (*operation.writes, *operation.reads[: handling.rewrites])
        return replace(operation, width=size, run=run, blocks=blocks, writes=written)

    return tuple(map(of, found))


def by_element(operation: Operation, size: int) -> Operation:
    """Return an operation that moves elements of `size` bytes one at a time, if it is pointwise."""
    if isinstance(operation, Stream) and operation.kind in _POINTWISE:
        return replace(operation, width=min(operation.width or size, size), waits=True)
    return operation
