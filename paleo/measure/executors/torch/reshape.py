"""What layers are in PyTorch that give tensors other shapes, move their elements, or end a net.

They join the table of `pytorch_site`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from paleo.executors.pytorch_elements import each, of_images, with_ones
from paleo.executors.pytorch_site import (
    CannotBuildError,
    F,
    Order,
    Run,
    Site,
    batch_first,
    builds,
    dense_order,
    inverse,
    plain,
    torch,
)
from paleo.layers.base import is_one
from paleo.layers.objectives import Accuracy, Loss
from paleo.layers.shaping import (
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
from paleo.quantity import product
from paleo.tensor import Shape

__all__ = ["is_dense", "labels_of", "rows_of"]

# ---- Shapes and places -------------------------------------------------------------------------


def _axes_of(site: Site, dims: tuple[int, ...]) -> tuple[int, ...]:
    """Return the axes of the first input's tensor that are these dimensions."""
    order = site.values[0].order
    return tuple(order.index(dimension % len(order)) for dimension in dims)


def _without(order: Order, dims: tuple[int, ...]) -> Order:
    """Return the order of the axes that are left when dimensions are gone."""
    left = [dimension for dimension in order if dimension not in dims]
    return tuple(sorted(left).index(dimension) for dimension in left)


@builds(Concatenate)
def _concatenate(site: Site) -> tuple[Run, Order]:
    rank, n = len(site.output), site.output[0]
    largest = max(range(len(site.inputs)), key=lambda k: product(site.inputs[k]))
    order = site.values[largest].order
    dim = rank - 1 if site.layer.dim is None else site.layer.dim
    axis = order.index(dim)
    reads = [site.reader(k, order) for k in range(len(site.inputs))]
    repeated = [is_one(shape[0]) and not is_one(n) for shape in site.inputs]
    if any(repeated):
        rest = (-1,) * (rank - 1)
        reads = [
            _expanded(read, (n, *rest)) if repeats else read
            for read, repeats in zip(reads, repeated, strict=True)
        ]
    return lambda tensors, held, training: torch.cat([read(tensors) for read in reads], axis), order


def _expanded(read: Callable[[list[Any]], Any], shape: tuple[int, ...]) -> Any:
    return lambda tensors: read(tensors).expand(shape)


@builds(Slice)
def _slice(site: Site) -> tuple[Run, Order]:
    layer: Slice = site.layer
    order = site.values[0].order
    dim = layer.dim % len(order)
    axis, begin, size, step = order.index(dim), layer.begin, layer.size, layer.step
    if len(site.output) < len(order):
        return (
            lambda tensors, held, training: tensors[0].select(axis, begin),
            _without(order, (dim,)),
        )
    if step == 1:
        return lambda tensors, held, training: tensors[0].narrow(axis, begin, size), order
    where = (*(slice(None),) * axis, slice(begin, begin + (size - 1) * step + 1, step))
    return lambda tensors, held, training: tensors[0][where], order


@builds(Reshape, Flatten)
def _reshape(site: Site) -> tuple[Run, Order]:
    """A view where memory allows one; else elements are taken in memory's order.

    That costs nothing either, and is what frameworks do that flatten N x C x H x W.
    """
    value, output = site.values[0], site.output
    back = inverse(value.order)
    try:
        made = value.tensor.permute(back).view(output)
    except RuntimeError:
        read = site.reader(0, batch_first(value.order), floats=False)
        return lambda tensors, held, training: read(tensors).reshape(output), plain(len(output))
    order = dense_order(made)
    turned = made.permute(order)
    if value.tensor.is_contiguous() and turned.is_contiguous():
        shape = tuple(turned.shape)
        return lambda tensors, held, training: tensors[0].view(shape), order
    return (
        lambda tensors, held, training: tensors[0].permute(back).view(output).permute(order),
        order,
    )


@builds(Transpose)
def _transpose(site: Site) -> tuple[Run, Order]:
    """The elements move in memory, unless only dimensions of 1 change places.

    Where channels stand before positions in memory they still do: so a shuffle of channels
    moves them, not the images.
    """
    order, perm = site.values[0].order, site.layer.perm
    rank = len(order)
    channels = set(order[1 : order.index(1)])
    keeps = order[0] == 0 and {perm[dimension] for dimension in channels} == channels
    new = order if keeps else plain(rank)
    moves = tuple(order.index(perm[dimension]) for dimension in new)
    read = site.reader(0, floats=False)
    return lambda tensors, held, training: read(tensors).permute(moves).contiguous(), new


@builds(Expand)
def _expand(site: Site) -> tuple[Run, Order]:
    rank, shape = len(site.output), site.inputs[0]
    order = site.values[0].order if len(shape) == rank else plain(rank)
    same = len(shape) == rank
    read = site.reader(0, floats=False) if same else with_ones(site, 0, rank, order)
    wide = tuple(site.output[dimension] for dimension in order)
    return lambda tensors, held, training: read(tensors).expand(wide).contiguous(), order


@builds(Pad)
def _pad(site: Site) -> tuple[Run, Order]:
    order = site.values[0].order
    margins = ((0, 0), *site.layer.margins)
    flat = [number for dimension in reversed(order) for number in margins[dimension]]
    return each(site, lambda x: F.pad(x, flat))


@builds(Rearrange)
def _rearrange(site: Site) -> tuple[Run, Order]:
    """Depth and space are exchanged where the shapes say so; else all elements roll by one."""
    old, new, order = site.inputs[0], site.output, site.values[0].order
    if len(old) == len(new) == 4 and old[1] * old[2] != new[1] * new[2]:
        for larger, smaller in ((new, old), (old, new)):
            times, rest = divmod(larger[1], smaller[1])
            grows = not rest and times > 1 and larger[2] == times * smaller[2]
            if grows and smaller[3] == times**2 * larger[3]:
                shuffle = F.pixel_shuffle if larger is new else F.pixel_unshuffle
                return of_images(site, _shuffled(shuffle, times))
    if old == new:
        axis = order.index(1)
        return each(site, lambda x: torch.roll(x, 1, axis))
    read = site.reader(0, plain(len(old)))
    return (
        lambda tensors, held, training: torch.roll(read(tensors), 1, 1).reshape(new),
        plain(len(new)),
    )


def _shuffled(shuffle: Callable[[Any, int], Any], times: int) -> Callable[[Any, list[Any]], Any]:
    return lambda x, held: shuffle(x, times)


def rows_of(inputs: tuple[Shape, ...], output: Shape) -> tuple[int, int, tuple[int, ...]]:
    """Return of how many rows a Gather picks how many, and the shape of a row.

    A row is as many of the last dimensions as input and output have in common; with indices,
    as many as leave one of them for each row, if any do.
    """
    source: tuple[int, ...] = tuple(map(int, inputs[0][1:]))
    picked: tuple[int, ...] = tuple(map(int, output[1:]))
    most = min(len(source), len(picked))
    common = next((k for k in range(most) if source[-1 - k] != picked[-1 - k]), most)
    if common == len(source):
        common -= 1
    choices = [(product(source[: len(source) - k]), product(picked[: len(picked) - k]),
                source[len(source) - k :]) for k in range(common, -1, -1)]  # fmt: skip
    if len(inputs) > 1:
        indices = product(inputs[1][1:])
        return next((choice for choice in choices if choice[1] == indices), choices[0])
    return choices[0]


def _picked_dimension(source: tuple[int, ...], output: tuple[int, ...]) -> int | None:
    """Return the one dimension in which two shapes differ, None if there are none or several."""
    if len(source) != len(output):
        return None
    found = [d for d in range(1, len(source)) if source[d] != output[d]]
    return found[0] if len(found) == 1 else None


@builds(Gather)
def _gather(site: Site) -> tuple[Run, Order]:
    """Rows are picked by the indices given, or by fixed ones: the first, again and again."""
    source, output = site.inputs[0], site.output
    rows, picked, row = rows_of(site.inputs, output)
    read = site.reader(0, plain(len(source)), floats=False)
    width = product(row)
    if len(site.inputs) == 1:
        dim = _picked_dimension(source, output)
        if dim is not None:
            axis, order = site.values[0].order.index(dim), site.values[0].order
            site.hold(output[dim], learns=False, numbers=_again(output[dim], source[dim]))
            return (
                lambda tensors, held, training: tensors[0].index_select(axis, held[0]),
                order,
            )
        site.hold(picked, learns=False, numbers=_again(picked, rows))

        def fixed(tensors: list[Any], held: list[Any], training: bool) -> Any:
            table = read(tensors).reshape(source[0], rows, width)
            return table.index_select(1, held[0]).reshape(output)

        return fixed, plain(len(output))
    indices = site.whole_numbers(1, rows)
    count = product(site.inputs[1][1:])
    if count != picked:
        site.hold(picked, learns=False, numbers=_again(picked, count))

    def run(tensors: list[Any], held: list[Any], training: bool) -> Any:
        where = indices(tensors).flatten(1)
        if held:
            where = where.index_select(1, held[0])
        if is_one(source[0]):
            made = F.embedding(where, read(tensors).reshape(rows, width))
        else:
            table = read(tensors).reshape(source[0], rows, width)
            made = table.gather(1, where.unsqueeze(2).expand(source[0], picked, width))
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
def _reduce(site: Site) -> tuple[Run, Order]:
    layer: Reduce = site.layer
    order, keep, function = site.values[0].order, layer.keep_dims, layer.function
    over = tuple(sorted(_axes_of(site, layer.dims)))
    left = order if keep else _without(order, layer.dims)
    alone = len(left) < len(site.output)
    read = site.reader(0)

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
    return product(scores[1:-1]), int(scores[-1])


#: A loss of scores and labels; the site says of what shapes.
_Function: TypeAlias = Callable[[Any, Any, Site], Any]


def _of_classes(function: Callable[[Any, Any], Any]) -> _Function:
    """Return a loss of scores of classes, from one that takes M x K and M labels."""

    def run(scores: Any, labels: Any, site: Site) -> Any:
        count, classes = labels_of(site.inputs)
        rows = scores.reshape(-1, classes)
        return function(rows, labels.reshape(-1)).view(scores.shape[0], count)

    return run


def _of_differences(function: Callable[..., Any]) -> _Function:
    return lambda scores, targets, site: function(scores, targets, reduction="none").flatten(1)


#: Losses of classes, by M x K scores and M labels.
_CLASSES: dict[str, _Function] = {
    "softmax_cross_entropy": _of_classes(
        lambda rows, labels: F.cross_entropy(rows, labels, reduction="none")
    ),
    "cross_entropy": _of_classes(
        lambda rows, labels: F.nll_loss(torch.log(rows), labels, reduction="none")
    ),
    "hinge": _of_classes(lambda rows, labels: F.multi_margin_loss(rows, labels, reduction="none")),
}
#: The same losses where the labels are as many as the scores: probabilities, or signs.
_DENSE: dict[str, _Function] = {
    "softmax_cross_entropy": lambda scores, targets, site: (
        -(targets * torch.log_softmax(scores, -1)).sum(-1).flatten(1)
        if scores.dim() > 2
        else -(targets * torch.log_softmax(scores, -1)).sum(-1, keepdim=True)
    ),
    "cross_entropy": lambda scores, targets, site: -(targets * torch.log(scores)).flatten(1),
    "hinge": lambda scores, targets, site: torch.relu(1 - scores * targets).flatten(1),
    "sigmoid_cross_entropy": _of_differences(F.binary_cross_entropy_with_logits),
    "squared_error": _of_differences(F.mse_loss),
    "absolute_error": _of_differences(F.l1_loss),
    "smooth_absolute_error": _of_differences(F.smooth_l1_loss),
    "contrastive": lambda scores, targets, site: (scores - targets).square().flatten(1),
    "other": _of_differences(F.mse_loss),
}


def is_dense(inputs: tuple[Shape, ...], k: int) -> bool:
    """Tell whether an input of a loss has a number for each score."""
    return bool(product(inputs[k][1:]) == product(inputs[0][1:]))


@builds(Loss)
def _loss(site: Site) -> tuple[Run, Order]:
    """The mean over what each sample has; weights are all inputs behind the labels.

    Labels that a net has fewer or more of than scores are taken again, or left out. Without
    labels all are of the first class, or zero. Any other loss is taken to be a squared error.
    """
    name, shapes = site.layer.function, site.inputs
    if name == "contrastive" and len(shapes) > 2:
        return _contrastive(site)
    scores = site.reader(0, plain(len(shapes[0])))
    count, classes = labels_of(shapes)
    by_class = name in _CLASSES and not (len(shapes) > 1 and is_dense(shapes, 1))
    function = _CLASSES[name] if by_class else _DENSE[name]
    targets = _labels(site, count, classes) if by_class else _targets(site)
    weights = [site.reader(k, plain(len(shape))) for k, shape in enumerate(shapes)][2:]

    def run(tensors: list[Any], held: list[Any], training: bool) -> Any:
        x = scores(tensors)
        made = function(x, targets(tensors, x), site).mean(1, keepdim=True)
        for weight in weights:
            made = made * weight(tensors).flatten(1).mean(1, keepdim=True)
        return made

    return run, plain(2)


def _contrastive(site: Site) -> tuple[Run, Order]:
    """Pairs that belong together are to be close, others apart: y d^2 + (1 - y) max(1 - d, 0)^2.

    R. Hadsell, S. Chopra, Y. LeCun, Dimensionality Reduction by Learning an Invariant Mapping,
    CVPR 2006, equation 4, without its factors of 1/2. The third input says which are.
    """
    first = site.reader(0, plain(len(site.inputs[0])))
    second, alike = _targets(site), site.reader(2, plain(len(site.inputs[2])))

    def run(tensors: list[Any], held: list[Any], training: bool) -> Any:
        a, y = first(tensors), alike(tensors).flatten(1).mean(1, keepdim=True)
        squares = (a - second(tensors, a)).flatten(1).square().sum(1, keepdim=True)
        return y * squares + (1 - y) * torch.relu(1 - squares.sqrt()).square()

    return run, plain(2)


def _labels(site: Site, count: int, classes: int) -> Callable[[list[Any], Any], Any]:
    """Return what gives the labels, a class for each of `count` scores of a sample."""
    n = site.inputs[0][0]
    if len(site.inputs) == 1:
        return lambda tensors, x: torch.zeros(n, count, dtype=torch.long, device=x.device)
    read, have = site.whole_numbers(1, classes), product(site.inputs[1][1:])

    def labels(tensors: list[Any], x: Any) -> Any:
        found = read(tensors).flatten(1)
        if have != count:
            found = found.repeat(1, -(-count // have))[:, :count]
        return found.expand(n, count)

    return labels


def _targets(site: Site) -> Callable[[list[Any], Any], Any]:
    """Return what gives a number for each score."""
    if len(site.inputs) == 1:
        return lambda tensors, x: torch.zeros_like(x)
    shape, have = site.inputs[0], product(site.inputs[1][1:])
    wanted = product(shape[1:])
    read = site.reader(1, plain(len(site.inputs[1])))

    def targets(tensors: list[Any], x: Any) -> Any:
        found = read(tensors).flatten(1)
        if have != wanted:
            found = found.repeat(1, -(-wanted // have))[:, :wanted]
        return found.expand(shape[0], wanted).reshape(shape).to(x.dtype)

    return targets


@builds(Accuracy)
def _accuracy(site: Site) -> tuple[Run, Order]:
    """The share of a sample's scores whose best is that of the label."""
    scores = site.reader(0, plain(len(site.inputs[0])))
    count, classes = labels_of(site.inputs)
    labels = _labels(site, count, classes)
    number = site.dtype

    def run(tensors: list[Any], held: list[Any], training: bool) -> Any:
        x = scores(tensors).detach()
        right = x.argmax(-1).reshape(x.shape[0], count) == labels(tensors, x)
        return right.to(number).mean(1, keepdim=True)

    return run, plain(2)


@builds(Unknown)
def _unknown(site: Site) -> tuple[Run, Order]:
    raise CannotBuildError(f"it does not know {site.layer.operator}")
