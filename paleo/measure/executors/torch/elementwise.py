"""What functions of elements and normalizations are in PyTorch.

They join the table of `builders`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from paleo.core.quantity import product
from paleo.measure.executors.torch.builders import (
    BuildContext,
    Built,
    CannotBuildError,
    F,
    any_order,
    batch_first,
    builds,
    following,
    plain,
    torch,
    whole_images,
)
from paleo.net.layers.functions import ELEMENTWISE, FUNCTIONS, ElementFunction, Gradient
from paleo.net.layers.normalization import (
    LRN,
    BatchNorm,
    GroupNorm,
    InstanceNorm,
    L2Norm,
    LayerNorm,
    RMSNorm,
    Scale,
)
from paleo.net.layers.pointwise import (
    Activation,
    Dropout,
    Elementwise,
    Gated,
    PReLU,
    Sigmoid,
    Softmax,
)
from paleo.net.layers.positions import RotaryEmbedding

#: The momentum of running statistics, and what is added to variances: PyTorch's defaults.
_MOMENTUM, _EPSILON = 0.1, 1e-5

# ---- Functions of elements ---------------------------------------------------------------------


#: What stands for constants that the net does not name.
_CONSTANTS: dict[str, tuple[float, ...]] = {
    "power": (3.0,),
    "threshold": (0.1, 0.0),
    "clip": (-1.0, 1.0),
    "compare": (0.0,),
}

#: Those that PyTorch has no function for.
_COMPOSED: dict[str, Callable[[Any], Any]] = {
    "relu_squared": lambda x: torch.relu(x).square(),
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
}

#: Those that may work in the memory of what a layer has just made.
IN_PLACE: dict[str, Callable[[Any], Any]] = {
    "relu": torch.relu_,
    "sigmoid": torch.sigmoid_,
    "tanh": torch.tanh_,
}


def _operator(row: ElementFunction) -> Callable[..., Any]:
    """Return PyTorch's function of this name."""
    operator: Callable[..., Any] = getattr(torch, row.torch, None) or getattr(F, row.torch)
    return operator


def _function(name: str) -> Callable[[Any], Any]:
    """Return a function of one element, with constants; steps are cut off from the gradient."""
    if name in _COMPOSED:
        return _COMPOSED[name]
    row = FUNCTIONS[name]
    operator, constants = _operator(row), _CONSTANTS.get(name, ())
    if name == "affine":  # 1 - 2 x, in one pass
        return lambda x: operator(x, 1.0, alpha=2.0)
    if row.gradient is Gradient.NONE:
        return lambda x: operator(x.detach(), *constants)
    return (lambda x: operator(x, *constants)) if constants else operator


@builds(Activation, wanted=following)
def _activation(context: BuildContext) -> Built:
    return context.of_first(_function(context.layer.function))


@builds(Gated)
def _gated(context: BuildContext) -> Built:
    """An activation and a product: PyTorch has no kernel for both."""
    function, order = _function(context.layer.function), plain(len(context.output))
    reads = [context.reader(k, order) for k in range(len(context.inputs))]

    def run(tensors: list[Any], held: list[Any], training: bool) -> Any:
        read = [read(tensors) for read in reads]
        gate, factor = read if len(read) == 2 else read[0].chunk(2, -1)
        return function(gate) * factor

    return run, order


@builds(Sigmoid, wanted=any_order)
def _sigmoid(context: BuildContext) -> Built:
    return context.of_first(torch.sigmoid)


@builds(PReLU, wanted=following)
def _prelu(context: BuildContext) -> Built:
    layer: PReLU = context.layer
    channels = context.inputs[0][-1]
    context.hold(1 if layer.shared else channels, fill=0.25)
    return _by_channel(context, lambda x, held, training: torch.prelu(x, held[0].to(x.dtype)))


@builds(Softmax)
def _softmax(context: BuildContext) -> Built:
    layer: Softmax = context.layer
    if layer.dim is not None:
        order = context.values[0].order
        axis = order.index(layer.dim % len(order))
        return context.of_first(lambda x: torch.softmax(x, axis))
    order = batch_first(context.values[0].order)
    return context.of_first(lambda x: torch.softmax(x.flatten(1), 1), order, made=(0, 1))


@builds(Dropout, wanted=following)
def _dropout(context: BuildContext) -> Built:
    """On a CPU it does what PyTorch's own does, with random numbers of this layer."""
    read, keep = context.reader(0), context.layer.dropout_keep_prob
    context.hold(1, learns=False, is_generator=True)

    def run(tensors: list[Any], held: list[Any], training: bool) -> Any:
        x, generator = read(tensors), held[0]
        if not training or keep == 1 or generator is None:
            return F.dropout(x, 1 - keep, training)
        return x * torch.empty_like(x).bernoulli_(keep, generator=generator).div_(keep)

    return run, context.values[0].order


def _where(values: list[Any]) -> Any:
    """Return where(condition, a, b); of two inputs one that holds truth values is the condition."""
    if len(values) > 3:
        raise CannotBuildError("where takes a condition and two tensors at most")
    if len(values) == 2 and values[1].dtype is torch.bool and values[0].dtype is not torch.bool:
        return torch.masked_fill(values[0], values[1], 0.0)
    condition, *others = values
    if condition.dtype is not torch.bool:
        condition = condition > 0
    a, b = [*others, 1.0, 0.0][:2]
    return torch.where(condition, a, b)


def _function_of_several(name: str) -> Callable[[list[Any]], Any]:
    """Return a function of one element of each tensor in a list."""
    if name == "where":
        return _where
    row = ELEMENTWISE[name]
    operator = _operator(row)
    if row.gradient is Gradient.NONE:
        return lambda values: reduce(lambda a, b: operator(a.detach(), b.detach()), values)
    if name == "mean":
        return lambda values: reduce(operator, values) / len(values)
    return lambda values: reduce(operator, values)


@builds(Elementwise, wanted=following)
def _elementwise(context: BuildContext) -> Built:
    name = context.layer.function
    is_smooth = name != "where" and ELEMENTWISE[name].gradient is not Gradient.NONE
    rank = len(context.output)
    longest = [k for k, shape in enumerate(context.inputs) if len(shape) == rank]
    order = context.values[max(longest, key=lambda k: product(context.inputs[k]))].order
    reads = [context.aligned(k, order, floats=is_smooth) for k in range(len(context.inputs))]
    function, operator = _function_of_several(name), _operator(ELEMENTWISE[name])
    if len(reads) == 1 and name != "where":  # one tensor by itself is copied
        return lambda tensors, held, training: reads[0](tensors).clone(), order
    if context.layer.adds_to_product:  # autocast has the bias in the type of the product
        product_of, *biases = reads

        def added(tensors: list[Any], held: list[Any], training: bool) -> Any:
            first = product_of(tensors)
            return function([first, *(bias(tensors).to(first.dtype) for bias in biases)])

        return added, order
    if len(reads) == 2 and name in ("sum", "product"):
        first, second = reads
        return lambda tensors, held, training: operator(first(tensors), second(tensors)), order
    return lambda tensors, held, training: function([read(tensors) for read in reads]), order


# ---- Normalizations ----------------------------------------------------------------------------


def _by_channel(context: BuildContext, function: Callable[[Any, list[Any], bool], Any]) -> Built:
    """Return what runs with the channels as the second axis, all before them as the first."""
    order = context.values[0].order
    axis = order.index(len(order) - 1)
    read = context.reader(0)
    if axis == 1:
        return lambda tensors, held, training: function(read(tensors), held, training), order

    def run(tensors: list[Any], held: list[Any], training: bool) -> Any:
        x = read(tensors)
        made = function(x.flatten(0, axis - 1), held, training)
        return made.reshape(x.shape)

    return run, order


def _hold_affine(context: BuildContext, *shape: int) -> None:
    context.hold(*shape, fill=1)
    context.hold(*shape, fill=0)


@builds(BatchNorm, wanted=whole_images)
def _batch_norm(context: BuildContext) -> Built:
    c, affine = context.inputs[0][-1], context.layer.affine
    context.hold(c, fill=0, learns=False)
    context.hold(c, fill=1, learns=False)
    if affine:
        _hold_affine(context, c)

    def run(x: Any, held: list[Any], training: bool) -> Any:
        mean, variance, *rest = held
        scale, shift = rest if affine else (None, None)
        return torch.batch_norm(
            x, scale, shift, mean, variance, training, _MOMENTUM, _EPSILON, True
        )

    return _by_channel(context, run)


@builds(Scale, wanted=following)
def _scale(context: BuildContext) -> Built:
    layer: Scale = context.layer
    order = context.values[0].order
    c, axis = context.inputs[0][-1], order.index(len(order) - 1)
    context.hold(c, fill=1)
    if layer.bias_term:
        context.hold(c, fill=0)
    view = (c, *(1,) * (len(order) - 1 - axis))
    read = context.reader(0)

    def run(tensors: list[Any], held: list[Any], training: bool) -> Any:
        x = read(tensors)
        by, *add = (each.view(view) for each in held)
        # In one pass over memory.
        return torch.addcmul(*add, x, by) if add else x * by

    return run, order


@builds(LayerNorm, RMSNorm)
def _over_last(context: BuildContext) -> Built:
    layer, shape = context.layer, context.inputs[0]
    last, order = len(shape) - 1, context.values[0].order
    if layer.num_dims == last:
        order = batch_first(order)
    elif layer.num_dims > 1 or order[-1] != last:
        order = plain(len(shape))
    over = tuple(shape[dimension] for dimension in order[-layer.num_dims :])
    is_centered = isinstance(layer, LayerNorm)
    if layer.affine:
        context.hold(*over, fill=1)
        if is_centered and layer.bias_term:
            context.hold(*over, fill=0)
    read = context.reader(0, order)

    def run(tensors: list[Any], held: list[Any], training: bool) -> Any:
        scale, shift, *_ = [*held, None, None]
        if is_centered:
            return torch.layer_norm(read(tensors), over, scale, shift, _EPSILON)
        x = read(tensors)
        return F.rms_norm(x, over, None if scale is None else scale.to(x.dtype), _EPSILON)

    return run, order


@builds(RotaryEmbedding)
def _rotary(context: BuildContext) -> Built:
    """The first half of what is turned makes pairs with the second; angles are chosen here."""
    layer, shape = context.layer, context.inputs[0]
    turned, place = layer.rotated or shape[-1], len(shape) - 2
    table = [1] * (len(shape) - 1) + [turned]
    table[place] = shape[place]
    for fill in (0.6, 0.8):
        context.hold(*table, learns=False, fill=fill)
    read = context.reader(0, plain(len(shape)))

    def run(tensors: list[Any], held: list[Any], training: bool) -> Any:
        x = read(tensors)
        first, rest = x[..., :turned], x[..., turned:]
        above, below = first.chunk(2, -1)
        made = first * held[0].to(x.dtype) + torch.cat([-below, above], -1) * held[1].to(x.dtype)
        return torch.cat([made, rest], -1) if turned < x.shape[-1] else made

    return run, plain(len(shape))


@builds(GroupNorm, wanted=whole_images)
def _group_norm(context: BuildContext) -> Built:
    layer: GroupNorm = context.layer
    if layer.affine:
        _hold_affine(context, context.inputs[0][-1])
    groups = layer.num_groups
    return context.over_images(lambda x, held: torch.group_norm(x, groups, *held, eps=_EPSILON))


@builds(InstanceNorm, wanted=whole_images)
def _instance_norm(context: BuildContext) -> Built:
    if context.layer.affine:
        _hold_affine(context, context.inputs[0][-1])

    def run(x: Any, held: list[Any]) -> Any:
        scale, shift = held or (None, None)
        return torch.instance_norm(x, scale, shift, None, None, True, _MOMENTUM, _EPSILON, True)

    return context.over_images(run)


@builds(L2Norm, wanted=following)
def _l2_norm(context: BuildContext) -> Built:
    order = context.values[0].order
    axis = order.index(len(order) - 1)
    return context.of_first(lambda x: F.normalize(x, dim=axis))


@builds(LRN, wanted=whole_images)
def _lrn(context: BuildContext) -> Built:
    """With PyTorch's constants: alpha 0.0001, beta 0.75, k 1."""
    size, is_vector = context.layer.local_size, len(context.inputs[0]) == 2

    def run(x: Any, held: list[Any]) -> Any:
        if is_vector:
            return F.local_response_norm(x.unsqueeze(2), size).squeeze(2)
        return F.local_response_norm(x, size)

    return context.over_images(run)
