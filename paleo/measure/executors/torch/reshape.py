"""What layers are in PyTorch that give tensors other shapes, move their elements, or end a net.

They join the table of `builders`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from paleo.core.quantity import product
from paleo.core.tensor import Shape
from paleo.measure.executors.shapes import changed_dimension, image_scale
from paleo.measure.executors.torch.builders import (
    BuildContext,
    Built,
    CannotBuildError,
    F,
    Order,
    any_order,
    batch_first,
    builds,
    dense_order,
    following,
    image_order,
    inverse,
    plain,
    torch,
)
from paleo.net.layers.base import is_one
from paleo.net.layers.losses import Accuracy, Loss
from paleo.net.layers.reshape import (
    Concatenate,
    Expand,
    Flatten,
    Gather,
    Pad,
    Rearrange,
    Reduce,
    Reshape,
    Slice,
    Transpose,
    Unknown,
)

# ---- Shapes and places -------------------------------------------------------------------------


def _without(order: Order, dims: tuple[int, ...]) -> Order:
    """Return the order of the axes that are left when dimensions are gone."""
    left = [dimension for dimension in order if dimension not in dims]
    return tuple(sorted(left).index(dimension) for dimension in left)


@builds(Concatenate, wanted=following)
def _concatenate(context: BuildContext) -> Built:
    rank = len(context.output)
    largest = max(range(len(context.inputs)), key=lambda k: product(context.inputs[k]))
    order = context.values[largest].order
    dim = rank - 1 if context.layer.dim is None else context.layer.dim
    axis = order.index(dim)
    reads = [context.repeated(k, order) for k in range(len(context.inputs))]
    return lambda tensors, held, training: torch.cat([read(tensors) for read in reads], axis), order


@builds(Slice, wanted=any_order)
def _slice(context: BuildContext) -> Built:
    layer: Slice = context.layer
    order = context.values[0].order
    dim = layer.dim % len(order)
    axis, begin, size, step = order.index(dim), layer.begin, layer.size, layer.step
    if len(context.output) < len(order):
        left = _without(order, (dim,))
        return context.of_first(lambda x: x.select(axis, begin), made=left, floats=False)
    if step == 1:
        return context.of_first(lambda x: x.narrow(axis, begin, size), floats=False)
    where = (*(slice(None),) * axis, slice(begin, begin + (size - 1) * step + 1, step))
    return context.of_first(lambda x: x[where], floats=False)


@builds(Reshape, Flatten)
def _reshape(context: BuildContext) -> Built:
    """A view where memory allows one; else elements are taken in memory's order.

    That costs nothing either, and is what frameworks do that flatten N x C x H x W.
    """
    value, output = context.values[0], context.output
    back = inverse(value.order)
    try:
        made = value.tensor.permute(back).view(output)
    except RuntimeError:
        order, flat = batch_first(value.order), plain(len(output))
        return context.of_first(lambda x: x.reshape(output), order, made=flat, floats=False)
    order = dense_order(made)
    turned = made.permute(order)
    if value.tensor.is_contiguous() and turned.is_contiguous():
        shape = tuple(turned.shape)
        return context.of_first(lambda x: x.view(shape), made=order, floats=False)
    return context.of_first(
        lambda x: x.permute(back).view(output).permute(order), made=order, floats=False
    )


@builds(Transpose)
def _transpose(context: BuildContext) -> Built:
    """The elements move in memory, unless only dimensions of 1 change places.

    Where channels stand before positions in memory they still do: so a shuffle of channels
    moves them, not the images.
    """
    order, perm = context.values[0].order, context.layer.perm
    rank = len(order)
    channels = set(order[1 : order.index(1)])
    keeps = order[0] == 0 and {perm[dimension] for dimension in channels} == channels
    new = order if keeps else plain(rank)
    moves = tuple(order.index(perm[dimension]) for dimension in new)
    return context.of_first(lambda x: x.permute(moves).contiguous(), made=new, floats=False)


@builds(Expand)
def _expand(context: BuildContext) -> Built:
    rank, shape = len(context.output), context.inputs[0]
    order = context.values[0].order if len(shape) == rank else plain(rank)
    read = context.aligned(0, order)
    wide = tuple(context.output[dimension] for dimension in order)
    return lambda tensors, held, training: read(tensors).expand(wide).contiguous(), order


@builds(Pad, wanted=following)
def _pad(context: BuildContext) -> Built:
    order = context.values[0].order
    margins = ((0, 0), *context.layer.margins)
    flat = [number for dimension in reversed(order) for number in margins[dimension]]
    return context.of_first(lambda x: F.pad(x, flat))


@builds(Rearrange, wanted=any_order)
def _rearrange(context: BuildContext) -> Built:
    """Depth and space are exchanged where the shapes say so; else all elements roll by one."""
    old, new, order = context.inputs[0], context.output, context.values[0].order
    wider, narrower = image_scale(old, new), image_scale(new, old)
    if wider or narrower:
        shuffle, times = (F.pixel_shuffle, wider) if wider else (F.pixel_unshuffle, narrower)
        return context.over_images(lambda x, held: shuffle(x, times), image_order(4, 2))
    if old == new:
        axis = order.index(1)
        return context.of_first(lambda x: torch.roll(x, 1, axis))
    flat = plain(len(new))
    return context.of_first(lambda x: torch.roll(x, 1, 1).reshape(new), plain(len(old)), made=flat)


@builds(Gather)
def _gather(context: BuildContext) -> Built:
    """Rows are picked by the indices given, or by fixed ones: the first, again and again."""
    source, output = context.inputs[0], context.output
    rows, picked, row = context.layer.rows(context.inputs)
    read, table = context.reader(0, plain(len(source)), floats=False), (rows, product(row))
    if len(context.inputs) == 1:
        if dim := changed_dimension(source, output):
            order = context.values[0].order
            axis = order.index(dim)
            context.hold(output[dim], learns=False, numbers=_again(output[dim], source[dim]))
            return lambda tensors, held, _: tensors[0].index_select(axis, held[0]), order
        context.hold(picked, learns=False, numbers=_again(picked, rows))

        def fixed(tensors: list[Any], held: list[Any], training: bool) -> Any:
            tables = read(tensors).reshape(source[0], *table)
            return tables.index_select(1, held[0]).reshape(output)

        return fixed, plain(len(output))
    indices = context.indices(1, rows)
    count = product(context.inputs[1][1:])
    if count != picked:
        context.hold(picked, learns=False, numbers=_again(picked, count))

    def run(tensors: list[Any], held: list[Any], training: bool) -> Any:
        where = indices(tensors).flatten(1)
        if held:
            where = where.index_select(1, held[0])
        if is_one(source[0]):
            made = F.embedding(where, read(tensors).reshape(table))
        else:
            tables = read(tensors).reshape(source[0], *table)
            made = tables.gather(1, where.unsqueeze(2).expand(source[0], picked, table[1]))
        return made.reshape(output)

    return run, plain(len(output))


def _again(count: int, below: int) -> Any:
    return torch.arange(count) % below


_REDUCTIONS: dict[str, Callable[..., Any]] = {
    "mean": torch.mean,
    "sum": torch.sum,
    "maximum": torch.amax,
    "minimum": torch.amin,
    "norm": lambda x, dim, keepdim: torch.linalg.vector_norm(x, dim=dim, keepdim=keepdim),
}


@builds(Reduce)
def _reduce(context: BuildContext) -> Built:
    layer: Reduce = context.layer
    order, keep, function = context.values[0].order, layer.keep_dims, layer.function
    over = tuple(sorted(order.index(dimension % len(order)) for dimension in layer.dims))
    left = order if keep else _without(order, layer.dims)
    alone = len(left) < len(context.output)
    read = context.reader(0)

    def reduced(x: Any) -> Any:
        if function == "product":
            for axis in reversed(over):
                x = x.prod(axis, keepdim=keep)
            return x
        if function == "argmax":
            return _argmax(x.detach(), over, keep)
        return _REDUCTIONS[function](x, dim=over, keepdim=keep)

    def run(tensors: list[Any], held: list[Any], training: bool) -> Any:
        made = reduced(read(tensors))
        return made.unsqueeze(1) if alone else made

    return run, plain(2) if alone else left


def _argmax(x: Any, over: tuple[int, ...], keep: bool) -> Any:
    if len(over) == 1:
        return x.argmax(over[0], keepdim=keep)
    rest = [axis for axis in range(x.dim()) if axis not in over]
    made = x.permute(*rest, *over).flatten(len(rest)).argmax(-1)
    if not keep:
        return made
    return made.reshape([1 if axis in over else size for axis, size in enumerate(x.shape)])


# ---- Ends --------------------------------------------------------------------------------------


def labels_of(inputs: tuple[Shape, ...]) -> tuple[int, int]:
    """Return how many scores a sample has, and of how many classes each is."""
    scores = inputs[0]
    return int(product(scores[1:-1])), int(scores[-1])


#: A loss of scores and labels.
_Function: TypeAlias = Callable[[Any, Any], Any]


def _of_classes(function: Callable[..., Any]) -> _Function:
    """Return a loss of scores of classes, from one that takes M x K and M labels."""

    def run(scores: Any, labels: Any) -> Any:
        losses = function(scores.flatten(0, -2), labels.reshape(-1), reduction="none")
        return losses.view(scores.shape[0], -1)

    return run


def _of_differences(function: Callable[..., Any]) -> _Function:
    return lambda scores, targets: function(scores, targets, reduction="none").flatten(1)


#: Losses of classes, by M x K scores and M labels.
_CLASSES: dict[str, _Function] = {
    "softmax_cross_entropy": _of_classes(F.cross_entropy),
    "cross_entropy": _of_classes(
        lambda rows, labels, reduction: F.nll_loss(torch.log(rows), labels, reduction=reduction)
    ),
    "hinge": _of_classes(F.multi_margin_loss),
}
#: The same losses where the labels are as many as the scores: probabilities, or signs.
_DENSE: dict[str, _Function] = {
    "softmax_cross_entropy": lambda scores, targets: (
        -(targets * torch.log_softmax(scores, -1)).sum(-1, keepdim=True).flatten(1)
    ),
    "cross_entropy": lambda scores, targets: -(targets * torch.log(scores)).flatten(1),
    "hinge": lambda scores, targets: torch.relu(1 - scores * targets).flatten(1),
    "sigmoid_cross_entropy": _of_differences(F.binary_cross_entropy_with_logits),
    "squared_error": _of_differences(F.mse_loss),
    "absolute_error": _of_differences(F.l1_loss),
    "smooth_absolute_error": _of_differences(F.smooth_l1_loss),
    "contrastive": lambda scores, targets: (scores - targets).square().flatten(1),
    "other": _of_differences(F.mse_loss),
}


@builds(Loss)
def _loss(context: BuildContext) -> Built:
    """The mean over what each sample has; weights are all inputs behind the labels.

    Labels that a net has fewer or more of than scores are taken again, or left out. Without
    labels all are of the first class, or zero. Any other loss is taken to be a squared error.
    """
    name, shapes = context.layer.function, context.inputs
    if name == "contrastive" and len(shapes) > 2:
        return _contrastive(context)
    scores = context.reader(0, plain(len(shapes[0])))
    count, classes = labels_of(shapes)
    by_class = context.layer.are_classes(shapes)
    function = _CLASSES[name] if by_class else _DENSE[name]
    targets = _labels(context, count, classes) if by_class else _targets(context)
    weights = [context.reader(k, plain(len(shape))) for k, shape in enumerate(shapes)][2:]

    def run(tensors: list[Any], held: list[Any], training: bool) -> Any:
        x = scores(tensors)
        made = function(x, targets(tensors, x)).mean(1, keepdim=True)
        for weight in weights:
            made = made * weight(tensors).flatten(1).mean(1, keepdim=True)
        return made

    return run, plain(2)


def _contrastive(context: BuildContext) -> Built:
    """Pairs that belong together are to be close, others apart: y d^2 + (1 - y) max(1 - d, 0)^2.

    R. Hadsell, S. Chopra, Y. LeCun, Dimensionality Reduction by Learning an Invariant Mapping,
    CVPR 2006, equation 4, without its factors of 1/2. The third input says which are.
    """
    first = context.reader(0, plain(len(context.inputs[0])))
    second, alike = _targets(context), context.reader(2, plain(len(context.inputs[2])))

    def run(tensors: list[Any], held: list[Any], training: bool) -> Any:
        a, y = first(tensors), alike(tensors).flatten(1).mean(1, keepdim=True)
        squares = (a - second(tensors, a)).flatten(1).square().sum(1, keepdim=True)
        return y * squares + (1 - y) * torch.relu(1 - squares.sqrt()).square()

    return run, plain(2)


def _labels(
    context: BuildContext, count: int, classes: int | None
) -> Callable[[list[Any], Any], Any]:
    """Return what gives `count` labels of a sample: numbers, or whole ones below `classes`.

    Those that there are come again, or are left out; without any they are 0.
    """
    n = context.inputs[0][0]
    if len(context.inputs) == 1:
        kind = torch.long if classes else context.dtype
        return lambda tensors, x: torch.zeros(n, count, dtype=kind, device=x.device)
    shape = context.inputs[1]
    read = context.indices(1, classes) if classes else context.reader(1, plain(len(shape)))
    have = product(shape[1:])

    def labels(tensors: list[Any], x: Any) -> Any:
        flat = read(tensors).flatten(1)
        if have != count:
            flat = flat.repeat(1, -(-count // have))[:, :count]
        return flat.expand(n, count)

    return labels


def _targets(context: BuildContext) -> Callable[[list[Any], Any], Any]:
    """Return what gives a number for each score."""
    shape = context.inputs[0]
    labels = _labels(context, product(shape[1:]), None)
    return lambda tensors, x: labels(tensors, x).reshape(shape).to(x.dtype)


@builds(Accuracy)
def _accuracy(context: BuildContext) -> Built:
    """The share of a sample's scores whose best is that of the label."""
    scores = context.reader(0, plain(len(context.inputs[0])))
    count, classes = labels_of(context.inputs)
    labels = _labels(context, count, classes)
    number = context.dtype

    def run(tensors: list[Any], held: list[Any], training: bool) -> Any:
        x = scores(tensors).detach()
        right = x.argmax(-1).reshape(x.shape[0], count) == labels(tensors, x)
        return right.to(number).mean(1, keepdim=True)

    return run, plain(2)


@builds(Unknown, wanted=any_order)
def _unknown(context: BuildContext) -> Built:
    raise CannotBuildError(f"it does not know {context.layer.operator}")
