"""What windows, products and recurrent layers are in PyTorch."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from paleo.executors.pytorch_site import (
    SEQUENCE,
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
from paleo.layers.attention import Attention
from paleo.layers.base import image, is_one
from paleo.layers.convolution import Convolution, Deconvolution, steps
from paleo.layers.dense import Einsum, Embedding, InnerProduct, MatMul
from paleo.layers.pooling import AvgPool, GlobalPooling, Pooling, Resize, UpSampling2D
from paleo.layers.recurrent import GRU, LSTM, RNN
from paleo.quantity import product
from paleo.window import Axis, axes

__all__: list[str] = []

# ---- Windows -----------------------------------------------------------------------------------


def _over_images(
    site: Site, spatial: int, run: Callable[[Any, list[Any]], Any]
) -> tuple[Run, Order]:
    """Return what runs on N x C x ...: dimensions before the spatial ones are a batch."""
    rank = len(site.inputs[0])
    order = image_order(rank, spatial)
    read = site.reader(0, order, dense=True)
    lead = rank - spatial - 1
    if lead == 1:
        return lambda tensors, held, training: run(read(tensors), held), order
    front = (-1, *site.output[1:lead])

    def over_frames(tensors: list[Any], held: list[Any], training: bool) -> Any:
        made = run(read(tensors).flatten(0, lead - 1), held)
        return made.reshape(*front, *made.shape[1:])

    return over_frames, order


def _margins(along: tuple[Axis, ...]) -> list[tuple[int, int]]:
    """Return the elements to add before and after: windows that hang over are filled up."""
    found = []
    for axis in along:
        before = max(axis.padding_before, 0)
        if axis.padding == "SAME":
            after = max(axis.total_padding - before, 0)
        elif axis.ceil:
            after = max((axis.output - 1) * axis.stride + axis.span - axis.size - before, 0)
        else:
            after = axis.total_padding - before
        found.append((before, after))
    return found


def _split(margins: list[tuple[int, int]]) -> tuple[list[int], list[int] | None]:
    """Return what an operator can add on both sides, and what has to be added before, flat."""
    both = [min(pair) for pair in margins]
    if all(before == after for before, after in margins):
        return both, None
    rest = [(before - n, after - n) for (before, after), n in zip(margins, both, strict=True)]
    return both, [number for pair in reversed(rest) for number in pair]


_CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


@builds(Convolution)
def _convolution(site: Site) -> tuple[Run, Order]:
    layer: Convolution = site.layer
    rank, k, groups = layer.rank, layer.filter[-1], layer.groups
    _, sizes, c = image(site.inputs[0], rank)
    window, dilations = layer.filter[:rank], steps(layer.dilations, rank)
    along = axes(sizes, window, layer.strides, layer.padding, dilations)
    seen = int(c) // groups
    site.hold(k, seen, *window, fan_in=seen * product(window))
    if layer.use_bias:
        site.hold(k, fill=0)
    both, before = _split(_margins(along))
    operator, strides, has_bias = _CONVOLUTIONS[rank], layer.strides, layer.use_bias

    def run(x: Any, held: list[Any]) -> Any:
        if before is not None:
            x = F.pad(x, before)
        bias = held[1] if has_bias else None
        return operator(x, held[0], bias, strides, both, dilations, groups)

    return _over_images(site, rank, run)


@builds(Deconvolution)
def _deconvolution(site: Site) -> tuple[Run, Order]:
    """A bias of 2017 has as many numbers as channels come in: the first of them are added."""
    layer: Deconvolution = site.layer
    rank, groups = layer.rank, layer.groups
    _, small, k = image(site.inputs[0], rank)
    large, channels = layer.output_shape[1:-1], layer.output_shape[-1]
    window, dilations = layer.filter[:rank], steps(layer.dilations, rank)
    along = axes(large, window, layer.strides, layer.padding, dilations)
    site.hold(int(k), channels // groups, *window, fan_in=int(k) // groups * product(window))
    biases = int(k) if layer.use_bias is None else channels * layer.use_bias
    if biases:
        site.hold(biases, fill=0)
    margins = _margins(along)
    full = [(p - 1) * axis.stride + axis.span for p, axis in zip(small, along, strict=True)]
    missing = [
        size + before + after - have
        for size, (before, after), have in zip(large, margins, full, strict=True)
    ]
    fits = all(before == after for before, after in margins) and all(
        0 <= more < max(axis.stride, axis.dilation)
        for more, axis in zip(missing, along, strict=True)
    )
    operator, strides = _TRANSPOSED[rank], layer.strides
    ends = [
        (-before, size + before - have)
        for size, (before, _), have in zip(large, margins, full, strict=True)
    ]
    crop = [number for pair in reversed(ends) for number in pair]
    both = [before for before, _ in margins] if fits else 0
    more = missing if fits else 0

    def bias(held: list[Any]) -> Any:
        if biases == channels:
            return held[1]
        return held[1][:channels] if biases > channels else F.pad(held[1], (0, channels - biases))

    def run(x: Any, held: list[Any]) -> Any:
        added = bias(held) if biases else None
        if fits:
            return operator(x, held[0], added, strides, both, more, groups, dilations)
        x = F.pad(operator(x, held[0], None, strides, 0, 0, groups, dilations), crop)
        return x if added is None else x.add_(added.view(-1, *(1,) * rank).to(x.dtype))

    return _over_images(site, rank, run)


_MAXIMA = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
_MEANS = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


@builds(Pooling, AvgPool)
def _pooling(site: Site) -> tuple[Run, Order]:
    """Padding of a mean counts as zeros, but for SAME where it is the same on both sides."""
    layer: Pooling = site.layer
    window, strides = layer.ksize, layer.strides
    rank = len(window)
    _, sizes, c = image(site.inputs[0], rank)
    ceil = layer.rounding == "ceil"
    dilations = steps(layer.dilations, rank)
    along = axes(sizes, window, strides, layer.padding, dilations, ceil=ceil)
    exact = _margins(tuple(along))
    given = [(max(axis.padding_before, 0), axis.total_padding) for axis in along]
    if layer.padding != "SAME":  # the operators round up by the same rule
        margins = [(before, total - before) for before, total in given]
    else:
        margins, ceil = exact, False
    both, before = _split(margins)
    if before is not None or any(2 * n > size for n, size in zip(both, window, strict=True)):
        both, ceil = [0] * rank, False
        before = [number for pair in reversed(exact) for number in pair]
    if layer.maximum:
        maximum, lowest = _MAXIMA[rank], float("-inf")

        def largest(x: Any, held: list[Any]) -> Any:
            x = x if before is None else F.pad(x, before, value=lowest)
            return maximum(x, window, strides, both, dilations, ceil)

        return _over_images(site, rank, largest)
    if any(step > 1 for step in dilations):
        return _dilated_mean(site, exact, int(c))
    mean, counts = _MEANS[rank], layer.padding != "SAME"

    def average(x: Any, held: list[Any]) -> Any:
        x = x if before is None else F.pad(x, before)
        return mean(x, window, strides, both, ceil, counts)

    return _over_images(site, rank, average)


def _dilated_mean(site: Site, margins: list[tuple[int, int]], c: int) -> tuple[Run, Order]:
    """PyTorch has no mean with dilations: a convolution of each channel by itself is one."""
    layer = site.layer
    window = layer.ksize
    rank = len(window)
    site.hold(c, 1, *window, fill=1 / product(window), learns=False)
    both, before = _split(margins)
    operator, strides, dilations = _CONVOLUTIONS[rank], layer.strides, layer.dilations

    def run(x: Any, held: list[Any]) -> Any:
        x = x if before is None else F.pad(x, before)
        return operator(x, held[0].to(x.dtype), None, strides, both, dilations, c)

    return _over_images(site, rank, run)


_WHOLE_MAXIMA = {1: F.adaptive_max_pool1d, 2: F.adaptive_max_pool2d, 3: F.adaptive_max_pool3d}


@builds(GlobalPooling)
def _global_pooling(site: Site) -> tuple[Run, Order]:
    rank = len(site.inputs[0])
    spatial = rank - 2
    dims = tuple(range(2, rank))

    def run(x: Any, held: list[Any]) -> Any:
        if site.layer.function == "average":
            return x.mean(dims, keepdim=True)
        if spatial in _WHOLE_MAXIMA:
            return _WHOLE_MAXIMA[spatial](x, 1)
        return x.amax(dims, keepdim=True)

    return _over_images(site, spatial, run)


@builds(UpSampling2D, Resize)
def _resize(site: Site) -> tuple[Run, Order]:
    layer = site.layer
    spatial = len(layer.ksize if isinstance(layer, UpSampling2D) else layer.size)
    size = list(site.output[-spatial - 1 : -1])
    way = "nearest" if isinstance(layer, UpSampling2D) else layer.mode
    if way == "cubic":
        return _over_images(site, spatial, lambda x, _: _cubic(x, size))
    mode = {1: "linear", 2: "bilinear", 3: "trilinear"}[spatial] if way == "linear" else way
    return _over_images(site, spatial, lambda x, _: F.interpolate(x, size, mode=mode))


def _cubic(x: Any, size: list[int]) -> Any:
    """Interpolate along one to three dimensions, two at a time."""
    if len(size) == 2:
        return F.interpolate(x, size, mode="bicubic")
    if len(size) == 1:
        return F.interpolate(x.unsqueeze(2), [1, *size], mode="bicubic").squeeze(2)
    n, c, d, h, w = x.shape
    x = F.interpolate(x.reshape(n, c * d, h, w), size[1:], mode="bicubic")
    x = x.reshape(n, c, d, size[1] * size[2])
    return F.interpolate(x, [size[0], x.shape[-1]], mode="bicubic").reshape(n, c, *size)


# ---- Products ----------------------------------------------------------------------------------


@builds(InnerProduct)
def _inner_product(site: Site) -> tuple[Run, Order]:
    """Features are taken in memory's order, as frameworks do with their layers' outputs."""
    layer: InnerProduct = site.layer
    shape, k, has_bias = site.inputs[0], layer.num_outputs, layer.use_bias
    first = layer.axis % len(shape)
    features = product(shape[first:])
    site.hold(k, features, fan_in=features)
    if has_bias:
        site.hold(k, fill=0)
    order, flattens = site.values[0].order, first < len(shape) - 1
    if first == 1:
        order = batch_first(order)
    elif flattens or order[-1] != first:
        order = plain(len(shape))
    read = site.reader(0, order)

    def run(tensors: list[Any], held: list[Any], training: bool) -> Any:
        x = read(tensors)
        if flattens:
            x = x.flatten(first)
        return F.linear(x, held[0], held[1] if has_bias else None)

    return run, plain(2) if first == 1 else order[: first + 1]


@builds(Embedding)
def _embedding(site: Site) -> tuple[Run, Order]:
    layer: Embedding = site.layer
    site.hold(layer.num_embeddings, layer.num_outputs)
    order = site.values[0].order
    read = site.whole_numbers(0, layer.num_embeddings, order)
    return (
        lambda tensors, held, training: F.embedding(read(tensors), held[0]),
        (*order, len(order)),
    )


@builds(MatMul)
def _matmul(site: Site) -> tuple[Run, Order]:
    """A factor that is one matrix for all products has two dimensions, so that it is read once."""
    layer: MatMul = site.layer
    longest = max(map(len, site.inputs))
    turned = (layer.transpose_a, layer.transpose_b)
    reads = []
    views: list[tuple[int, ...] | None] = []
    for k, shape in enumerate(site.inputs):
        reads.append(site.reader(k, plain(len(shape))))
        if all(map(is_one, shape[:-2])):
            views.append(shape[-2:])
        else:
            fronts = (shape[0], *(1,) * (longest - len(shape)), *shape[1:-2])
            views.append((*fronts, *shape[-2:]) if len(shape) < longest else None)
    output = site.output

    def factor(k: int, tensors: list[Any]) -> Any:
        x, view = reads[k](tensors), views[k]
        x = x if view is None else x.reshape(view)
        return x.mT if turned[k] else x

    def run(tensors: list[Any], held: list[Any], training: bool) -> Any:
        made = torch.matmul(factor(0, tensors), factor(1, tensors))
        return made if made.dim() == len(output) else made.reshape(output)

    return run, plain(len(output))


@builds(Einsum)
def _einsum(site: Site) -> tuple[Run, Order]:
    layer: Einsum = site.layer
    equation = layer.equation
    left, _, right = equation.partition("->")
    alone = [len(term) == 1 and len(shape) == 2
             for term, shape in zip(left.split(","), site.inputs, strict=True)]  # fmt: skip
    reads = [site.reader(k, plain(len(shape))) for k, shape in enumerate(site.inputs)]

    def run(tensors: list[Any], held: list[Any], training: bool) -> Any:
        factors = [
            read(tensors).squeeze(1) if single else read(tensors)
            for read, single in zip(reads, alone, strict=True)
        ]
        made = torch.einsum(equation, *factors)
        return made if len(right) > 1 else made.unsqueeze(1)

    return run, plain(len(site.output))


@builds(Attention)
def _attention(site: Site) -> tuple[Run, Order]:
    layer: Attention = site.layer
    rank, output = len(site.output), site.output
    reads = [site.reader(k, plain(rank)) for k in range(3)]
    shares = site.inputs[0][-3] != site.inputs[1][-3]
    repeated = [is_one(shape[0]) and not is_one(output[0]) for shape in site.inputs]
    queries, keys = site.inputs[0][-2], site.inputs[1][-2]
    has_mask = layer.window is not None and layer.window < keys
    if has_mask:
        assert layer.window is not None
        seen = torch.ones(queries, keys, dtype=torch.bool).tril().triu(1 - layer.window)
        site.hold(queries, keys, learns=False, numbers=seen)
    causal = layer.causal and not has_mask

    def run(tensors: list[Any], held: list[Any], training: bool) -> Any:
        q, k, v = (
            read(tensors).expand(output[0], *(-1,) * (rank - 1)) if repeat else read(tensors)
            for read, repeat in zip(reads, repeated, strict=True)
        )
        mask = held[0] if has_mask else None
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=causal, enable_gqa=shares
        )

    return run, plain(rank)


# ---- Recurrent layers --------------------------------------------------------------------------

_NETS = {RNN: torch._VF.rnn_tanh, GRU: torch._VF.gru, LSTM: torch._VF.lstm}
_MODULES = {RNN: torch.nn.RNN, GRU: torch.nn.GRU, LSTM: torch.nn.LSTM}


@builds(RNN, GRU, LSTM)
def _recurrent(site: Site) -> tuple[Run, Order]:
    """Steps come first in memory, as torch.nn has them.

    With one bias for each gate, the one for the state is zero and is not learnt.
    """
    layer: RNN = site.layer
    n, _, features = site.inputs[0]
    projection = layer.projection if isinstance(layer, LSTM) else 0
    if projection >= layer.num_outputs:
        raise CannotBuildError("PyTorch projects an output to fewer features only")
    layers, both, has_biases = layer.num_layers, layer.bidirectional, layer.num_biases > 0
    hidden = layer.num_outputs
    options: dict[str, Any] = {"proj_size": projection} if projection else {}
    module = _MODULES[type(layer)](
        int(features), hidden, layers, bias=has_biases, bidirectional=both, device="meta", **options
    )
    for name in module._flat_weights_names:
        shape = tuple(getattr(module, name).shape)
        if name.startswith("bias"):
            site.hold(*shape, fill=0, learns=layer.num_biases == 2 or "ih" in name)
        else:
            site.hold(*shape, fan_in=2 * shape[-1])
    site.joins = site.is_opaque = True
    site.finish = lambda weights: _in_one_piece(module, weights)
    read = site.reader(0, SEQUENCE, dense=True)
    operator = _NETS[type(layer)]
    states = layers * (2 if both else 1)
    is_lstm = isinstance(layer, LSTM)

    def run(tensors: list[Any], held: list[Any], training: bool) -> Any:
        x = read(tensors)
        state = x.new_zeros(states, n, projection or hidden)
        first = (state, x.new_zeros(states, n, hidden)) if is_lstm else state
        return operator(x, first, held, has_biases, layers, 0.0, training, both, False)[0]

    def quiet(tensors: list[Any], held: list[Any], training: bool) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that oneDNN has no projections
            return run(tensors, held, training)

    return quiet if projection else run, SEQUENCE


def _in_one_piece(module: Any, weights: list[Any]) -> None:
    """Move weights on CUDA into one piece of memory, as cuDNN takes them and torch.nn does."""
    if weights[0].is_cuda and torch.backends.cudnn.is_acceptable(weights[0]):
        kinds = (4 if module.bias else 2) + bool(module.proj_size)
        mode = torch.backends.cudnn.rnn.get_cudnn_mode(module.mode)
        with torch.no_grad():
            torch._cudnn_rnn_flatten_weight(
                weights, kinds, module.input_size, mode, module.hidden_size, module.proj_size,
                module.num_layers, False, module.bidirectional,
            )  # fmt: skip
