"""What functions of elements and normalizations are in PyTorch.

They join the table of `pytorch_site`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paleo.executors.pytorch_site import (
    CannotBuildError,
    F,
    Order,
    Run,
    Site,
    batch_first,
    builds,
    image_order,
    plain,
    torch,
)
from paleo.layers.normalization import (
    LRN,
    BatchNorm,
    GroupNorm,
    InstanceNorm,
    L2Norm,
    LayerNorm,
    RMSNorm,
    Scale,
)
from paleo.layers.pointwise import Activation, Dropout, Elementwise, PReLU, Sigmoid, Softmax
from paleo.quantity import product

__all__ = ["IN_PLACE", "each", "of_images", "with_ones"]

#: The momentum of running statistics, and what is added to variances: PyTorch's defaults.
_MOMENTUM, _EPSILON = 0.1, 1e-5

# ---- Functions of elements ---------------------------------------------------------------------


def _without_gradient(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: function(x.detach())


#: Where a function has constants that the net does not name, some stand for them.
_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "relu": torch.relu,
    "relu6": F.relu6,
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "selu": torch.selu,
    "gelu": F.gelu,
    "silu": F.silu,
    "softplus": F.softplus,
    "sigmoid": torch.sigmoid,
    "hard_sigmoid": F.hardsigmoid,
    "hard_swish": F.hardswish,
    "tanh": torch.tanh,
    "absval": torch.abs,
    "exp": torch.exp,
    "log": torch.log,
    "power": lambda x: torch.pow(x, 3.0),
    "celu": F.celu,
    "hard_tanh": F.hardtanh,
    "mish": F.mish,
    "softsign": F.softsign,
    "threshold": lambda x: F.threshold(x, 0.1, 0.0),
    "clip": lambda x: torch.clamp(x, -1.0, 1.0),
    # 1 - 2 x, in one pass.
    "affine": lambda x: torch.rsub(x, 1.0, alpha=2.0),
    "sqrt": torch.sqrt,
    "reciprocal": torch.reciprocal,
    "erf": torch.erf,
    "sin": torch.sin,
    "cos": torch.cos,
    "round": _without_gradient(torch.round),
    "sign": _without_gradient(torch.sign),
    "compare": _without_gradient(lambda x: x > 0),
    "cast": torch.clone,
    # Any other: one that has a gradient and bounds everywhere.
    "other": torch.atan,
}

#: Those that may work in the memory of what a layer has just made.
IN_PLACE: dict[str, Callable[[Any], Any]] = {
    "relu": torch.relu_,
    "sigmoid": torch.sigmoid_,
    "tanh": torch.tanh_,
}


def each(site: Site, function: Callable[[Any], Any]) -> tuple[Run, Order]:
    """Return a function of each element, in whatever order they are."""
    read = site.reader(0)
    return lambda tensors, held, training: function(read(tensors)), site.values[0].order


@builds(Activation)
def _activation(site: Site) -> tuple[Run, Order]:
    return each(site, _FUNCTIONS[site.layer.function])


@builds(Sigmoid)
def _sigmoid(site: Site) -> tuple[Run, Order]:
    return each(site, torch.sigmoid)


@builds(PReLU)
def _prelu(site: Site) -> tuple[Run, Order]:
    layer: PReLU = site.layer
    channels = site.inputs[0][-1]
    site.hold(1 if layer.shared else channels, fill=0.25)
    return _by_channel(site, lambda x, held, training: torch.prelu(x, held[0].to(x.dtype)))


@builds(Softmax)
def _softmax(site: Site) -> tuple[Run, Order]:
    layer: Softmax = site.layer
    if layer.dim is not None:
        order = site.values[0].order
        axis = order.index(layer.dim % len(order))
        return each(site, lambda x: torch.softmax(x, axis))
    read = site.reader(0, batch_first(site.values[0].order))
    return lambda tensors, held, training: torch.softmax(read(tensors).flatten(1), 1), (0, 1)


@builds(Dropout)
def _dropout(site: Site) -> tuple[Run, Order]:
    """On a CPU it does what PyTorch's own does, with random numbers of this layer."""
    read, keep = site.reader(0), site.layer.dropout_keep_prob
    site.hold(1, learns=False, is_generator=True)

    def run(tensors: list[Any], held: list[Any], training: bool) -> Any:
        x, generator = read(tensors), held[0]
        if not training or keep == 1 or generator is None:
            return F.dropout(x, 1 - keep, training)
        return x * torch.empty_like(x).bernoulli_(keep, generator=generator).div_(keep)

    return run, site.values[0].order


def _repeated_like(site: Site) -> tuple[list[Callable[[list[Any]], Any]], Order]:
    """Return what takes each input so that all have as many axes, in the same order."""
    rank = len(site.output)
    longest = [k for k, shape in enumerate(site.inputs) if len(shape) == rank]
    largest = max(longest, key=lambda k: product(site.inputs[k]))
    order = site.values[largest].order
    reads = []
    for k, shape in enumerate(site.inputs):
        if len(shape) == rank:
            reads.append(site.reader(k, order, floats=False))
        else:
            reads.append(with_ones(site, k, rank, order))
    return reads, order


def with_ones(site: Site, k: int, rank: int, order: Order) -> Callable[[list[Any]], Any]:
    """Return what takes an input of fewer axes: the missing ones stand behind the batch."""
    shape = site.inputs[k]
    read = site.reader(k, plain(len(shape)), floats=False)
    wide = (shape[0], *(1,) * (rank - len(shape)), *shape[1:])
    return lambda tensors: read(tensors).reshape(wide).permute(order)


def _chain(function: Callable[[Any, Any], Any]) -> Callable[[list[Any]], Any]:
    def run(values: list[Any]) -> Any:
        made = values[0]
        for value in values[1:]:
            made = function(made, value)
        return made

    return run


def _mean_of(values: list[Any]) -> Any:
    made = _chain(torch.add)(values)
    return made / len(values)


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


_OF_SEVERAL: dict[str, Callable[[list[Any]], Any]] = {
    "sum": _chain(torch.add),
    "difference": _chain(torch.sub),
    "product": _chain(torch.mul),
    "quotient": _chain(torch.div),
    "maximum": _chain(torch.maximum),
    "minimum": _chain(torch.minimum),
    "mean": _mean_of,
    "power": _chain(torch.pow),
    "where": _where,
    "compare": _chain(lambda a, b: a.detach() > b.detach()),
    "logical": _chain(lambda a, b: torch.logical_and(a.detach(), b.detach())),
}


@builds(Elementwise)
def _elementwise(site: Site) -> tuple[Run, Order]:
    name, number = site.layer.function, site.dtype
    reads, order = _repeated_like(site)
    function = _OF_SEVERAL[name]
    if name not in ("where", "compare", "logical"):
        for k, value in enumerate(site.values):
            if not value.tensor.is_floating_point():
                reads[k] = _as_numbers(reads[k], number)
    if len(reads) == 1 and name != "where":  # one tensor by itself is copied
        return lambda tensors, held, training: reads[0](tensors).clone(), order
    if len(reads) == 2 and name in ("sum", "product"):
        first, second = reads
        operator = torch.add if name == "sum" else torch.mul
        return lambda tensors, held, training: operator(first(tensors), second(tensors)), order
    return lambda tensors, held, training: function([read(tensors) for read in reads]), order


def _as_numbers(read: Callable[[list[Any]], Any], number: Any) -> Callable[[list[Any]], Any]:
    return lambda tensors: read(tensors).to(number)


# ---- Normalizations ----------------------------------------------------------------------------


def _by_channel(site: Site, function: Callable[[Any, list[Any], bool], Any]) -> tuple[Run, Order]:
    """Return what runs with the channels as the second axis, all before them as the first."""
    order = site.values[0].order
    axis = order.index(len(order) - 1)
    read = site.reader(0)
    if axis == 1:
        return lambda tensors, held, training: function(read(tensors), held, training), order

    def run(tensors: list[Any], held: list[Any], training: bool) -> Any:
        x = read(tensors)
        made = function(x.flatten(0, axis - 1), held, training)
        return made.reshape(x.shape)

    return run, order


def of_images(site: Site, function: Callable[[Any, list[Any]], Any]) -> tuple[Run, Order]:
    """Return what runs on each sample by itself, its channels as the second axis."""
    rank = len(site.inputs[0])
    order = image_order(rank, rank - 2)
    read = site.reader(0, order, dense=True)
    return lambda tensors, held, training: function(read(tensors), held), order


def _hold_affine(site: Site, *shape: int) -> None:
    site.hold(*shape, fill=1)
    site.hold(*shape, fill=0)


@builds(BatchNorm)
def _batch_norm(site: Site) -> tuple[Run, Order]:
    c, affine = site.inputs[0][-1], site.layer.affine
    site.hold(c, fill=0, learns=False)
    site.hold(c, fill=1, learns=False)
    if affine:
        _hold_affine(site, c)

    def run(x: Any, held: list[Any], training: bool) -> Any:
        mean, variance, *rest = held
        scale, shift = rest if affine else (None, None)
        return torch.batch_norm(
            x, scale, shift, mean, variance, training, _MOMENTUM, _EPSILON, True
        )

    return _by_channel(site, run)


@builds(Scale)
def _scale(site: Site) -> tuple[Run, Order]:
    layer: Scale = site.layer
    order = site.values[0].order
    c, axis = site.inputs[0][-1], order.index(len(order) - 1)
    site.hold(c, fill=1)
    if layer.bias_term:
        site.hold(c, fill=0)
    view = (c, *(1,) * (len(order) - 1 - axis))
    read = site.reader(0)

    def run(tensors: list[Any], held: list[Any], training: bool) -> Any:
        x = read(tensors)
        by, *add = (each.view(view) for each in held)
        # In one pass over memory.
        return torch.addcmul(*add, x, by) if add else x * by

    return run, order


@builds(LayerNorm, RMSNorm)
def _over_last(site: Site) -> tuple[Run, Order]:
    layer, shape = site.layer, site.inputs[0]
    last, order = len(shape) - 1, site.values[0].order
    if layer.num_dims == last:
        order = batch_first(order)
    elif layer.num_dims > 1 or order[-1] != last:
        order = plain(len(shape))
    over = tuple(shape[dimension] for dimension in order[-layer.num_dims :])
    is_centered = isinstance(layer, LayerNorm)
    if layer.affine:
        site.hold(*over, fill=1)
        if is_centered and layer.bias_term:
            site.hold(*over, fill=0)
    read = site.reader(0, order)

    def run(tensors: list[Any], held: list[Any], training: bool) -> Any:
        scale, shift, *_ = [*held, None, None]
        if is_centered:
            return torch.layer_norm(read(tensors), over, scale, shift, _EPSILON)
        x = read(tensors)
        return F.rms_norm(x, over, None if scale is None else scale.to(x.dtype), _EPSILON)

    return run, order


@builds(GroupNorm)
def _group_norm(site: Site) -> tuple[Run, Order]:
    layer: GroupNorm = site.layer
    if layer.affine:
        _hold_affine(site, site.inputs[0][-1])
    groups = layer.num_groups
    return of_images(site, lambda x, held: torch.group_norm(x, groups, *held, eps=_EPSILON))


@builds(InstanceNorm)
def _instance_norm(site: Site) -> tuple[Run, Order]:
    if site.layer.affine:
        _hold_affine(site, site.inputs[0][-1])

    def run(x: Any, held: list[Any]) -> Any:
        scale, shift = held or (None, None)
        return torch.instance_norm(x, scale, shift, None, None, True, _MOMENTUM, _EPSILON, True)

    return of_images(site, run)


@builds(L2Norm)
def _l2_norm(site: Site) -> tuple[Run, Order]:
    order = site.values[0].order
    axis = order.index(len(order) - 1)
    return each(site, lambda x: F.normalize(x, dim=axis))


@builds(LRN)
def _lrn(site: Site) -> tuple[Run, Order]:
    """With PyTorch's constants: alpha 0.0001, beta 0.75, k 1."""
    size, is_vector = site.layer.local_size, len(site.inputs[0]) == 2

    def run(x: Any, held: list[Any]) -> Any:
        if is_vector:
            return F.local_response_norm(x.unsqueeze(2), size).squeeze(2)
        return F.local_response_norm(x, size)

    return of_images(site, run)
