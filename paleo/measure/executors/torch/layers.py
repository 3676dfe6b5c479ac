"""What windows, products and recurrent layers are in PyTorch."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from paleo.core.quantity import product
from paleo.measure.executors.shapes import Window, aligned
from paleo.measure.executors.torch.builders import (
    SEQUENCE,
    BuildContext,
    Built,
    CannotBuildError,
    F,
    Order,
    batch_first,
    builds,
    images,
    plain,
    torch,
    whole_images,
)
from paleo.net.layers.attention import Attention
from paleo.net.layers.base import is_one
from paleo.net.layers.convolution import Convolution, Deconvolution
from paleo.net.layers.dense import Einsum, Embedding, InnerProduct, MatMul, Similarity
from paleo.net.layers.matrices import StoredMatrix
from paleo.net.layers.mixtures import Experts
from paleo.net.layers.pooling import AvgPool, GlobalPooling, Pooling, Resize, UpSampling2D
from paleo.net.layers.recurrent import GRU, LSTM, RNN

__all__: list[str] = []

# ---- Windows -----------------------------------------------------------------------------------


def _flat(pairs: Sequence[tuple[int, int]]) -> list[int]:
    """Return what is added before and after each dimension as `pad` takes it, the last first."""
    return [number for pair in reversed(pairs) for number in pair]


def _split(margins: Sequence[tuple[int, int]]) -> tuple[list[int], list[int] | None]:
    """Return what an operator can add on both sides, and what has to be added before, flat."""
    both = [min(pair) for pair in margins]
    if all(before == after for before, after in margins):
        return both, None
    rest = [(before - n, after - n) for (before, after), n in zip(margins, both, strict=True)]
    return both, _flat(rest)


def _padded(x: Any, before: list[int] | None, value: float = 0.0) -> Any:
    return x if before is None else F.pad(x, before, value=value)


_CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


def _filters(context: BuildContext, *shape: int, fan_in: int) -> Callable[[Built], Built]:
    """Hold filters; where they are an input, return what hands them on as if they were held."""
    if len(context.inputs) == 1:
        context.hold(*shape, fan_in=fan_in)
        return lambda built: built
    rank = len(shape)
    read = context.reader(1, (0, rank, rank - 1, *range(1, rank - 1)))
    is_one_for_all, batch = is_one(context.inputs[1][0]), context.values[0].order.index(0)

    def handing_on(built: Built) -> Built:
        run, order = built

        def of_all(tensors: list[Any], held: list[Any], training: bool) -> Any:
            filters = read(tensors)
            if is_one_for_all:
                return run(tensors, [filters[0], *held], training)

            def of_one(x: Any, own: Any) -> Any:
                same = [each.to(own.dtype) for each in held]  # where autocast does not reach
                return run([x.unsqueeze(batch)], [own, *same], training).squeeze(0)

            return torch.vmap(of_one, (batch, 0))(tensors[0], filters)

        return of_all, order

    return handing_on


@builds(Convolution, wanted=images(lambda layer, rank: layer.rank))
def _convolution(context: BuildContext) -> Built:
    at, has_bias = Window(context.layer, context.inputs), context.layer.use_bias
    filters = _filters(context, at.k, at.c // at.groups, *at.size, fan_in=at.terms(at.c))
    if has_bias:
        context.hold(at.k, fill=0)
    both, before = _split(at.margins)
    operator, strides, dilations, groups = (
        _CONVOLUTIONS[at.dims],
        at.strides,
        at.dilations,
        at.groups,
    )

    def run(x: Any, held: list[Any]) -> Any:
        bias = held[1] if has_bias else None
        return operator(_padded(x, before), held[0], bias, strides, both, dilations, groups)

    return filters(context.over_images(run))


@builds(Deconvolution, wanted=images(lambda layer, rank: layer.rank))
def _deconvolution(context: BuildContext) -> Built:
    """A bias of 2017 has as many numbers as channels come in: the first of them are added."""
    at, use_bias = Window(context.layer, context.inputs), context.layer.use_bias
    channels, margins, groups = at.c, at.margins, at.groups
    filters = _filters(context, at.k, channels // groups, *at.size, fan_in=at.terms(at.k))
    biases = at.k if use_bias is None else channels * use_bias
    if biases:
        context.hold(biases, fill=0)
    full = [(axis.output - 1) * axis.stride + axis.span for axis in at.axes]
    missing = [
        size + sum(pair) - have for size, pair, have in zip(at.sizes, margins, full, strict=True)
    ]
    fits = all(before == after for before, after in margins) and all(
        0 <= more < max(axis.stride, axis.dilation)
        for more, axis in zip(missing, at.axes, strict=True)
    )
    operator, strides, dilations = _TRANSPOSED[at.dims], at.strides, at.dilations
    crop = _flat(
        [
            (-before, size + before - have)
            for size, (before, _), have in zip(at.sizes, margins, full, strict=True)
        ]
    )
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
        return x if added is None else x.add_(added.view(-1, *(1,) * at.dims).to(x.dtype))

    return filters(context.over_images(run))


_MAXIMA = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
_MEANS = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


@builds(Pooling, AvgPool, wanted=images(lambda layer, rank: len(layer.ksize)))
def _pooling(context: BuildContext) -> Built:
    """Padding of a mean counts as zeros, but for SAME where it is the same on both sides."""
    layer: Pooling = context.layer
    at, is_same = Window(layer, context.inputs), layer.padding == "SAME"
    window, strides, dilations = at.size, at.strides, at.dilations
    # With paddings in numbers the operators round up by the same rule.
    ceil = layer.rounding == "ceil" and not is_same
    given = [(axis.padding_before, axis.total_padding - axis.padding_before) for axis in at.axes]
    both, before = _split(at.margins if is_same else given)
    if before is not None or any(2 * n > size for n, size in zip(both, window, strict=True)):
        both, ceil, before = [0] * at.dims, False, _flat(at.margins)
    if layer.maximum:
        maximum, lowest = _MAXIMA[at.dims], float("-inf")
        return context.over_images(
            lambda x, _: maximum(
                _padded(x, before, lowest), window, strides, both, dilations, ceil
            ),
        )
    if any(step > 1 for step in dilations):
        return _dilated_mean(context, at)
    mean = _MEANS[at.dims]
    return context.over_images(
        lambda x, _: mean(_padded(x, before), window, strides, both, ceil, not is_same),
    )


def _dilated_mean(context: BuildContext, at: Window) -> Built:
    """PyTorch has no mean with dilations: a convolution of each channel by itself is one."""
    context.hold(at.c, 1, *at.size, fill=1 / product(at.size), learns=False)
    both, before = _split(at.margins)
    operator, strides, dilations = _CONVOLUTIONS[at.dims], at.strides, at.dilations

    def run(x: Any, held: list[Any]) -> Any:
        filters = held[0].to(x.dtype)
        return operator(_padded(x, before), filters, None, strides, both, dilations, at.c)

    return context.over_images(run)


_WHOLE_MAXIMA = {1: F.adaptive_max_pool1d, 2: F.adaptive_max_pool2d, 3: F.adaptive_max_pool3d}


@builds(GlobalPooling, wanted=whole_images)
def _global_pooling(context: BuildContext) -> Built:
    rank = len(context.inputs[0])
    dims = tuple(range(2, rank))

    def run(x: Any, held: list[Any]) -> Any:
        if context.layer.function == "average":
            return x.mean(dims, keepdim=True)
        if len(dims) in _WHOLE_MAXIMA:
            return _WHOLE_MAXIMA[len(dims)](x, 1)
        return x.amax(dims, keepdim=True)

    return context.over_images(run)


@builds(UpSampling2D, wanted=images(lambda layer, rank: len(layer.ksize)))
def _upsampling(context: BuildContext) -> Built:
    size = list(context.output[-len(context.layer.ksize) - 1 : -1])
    return context.over_images(lambda x, _: F.interpolate(x, size))


@builds(Resize, wanted=images(lambda layer, rank: len(layer.size)))
def _resize(context: BuildContext) -> Built:
    spatial, mode = len(context.layer.size), context.layer.mode
    size = list(context.output[-spatial - 1 : -1])
    if mode == "cubic":
        return context.over_images(lambda x, _: _cubic(x, size))
    if mode == "linear":
        mode = {1: "linear", 2: "bilinear", 3: "trilinear"}[spatial]
    return context.over_images(lambda x, _: F.interpolate(x, size, mode=mode))


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


def _whole(layer: StoredMatrix) -> None:
    if layer.weights is not None:
        raise CannotBuildError(f"PyTorch has no product with weights in {layer.weights}")


@builds(InnerProduct)
def _inner_product(context: BuildContext) -> Built:
    """Features are taken in memory's order, as frameworks do with their layers' outputs."""
    layer: InnerProduct = context.layer
    _whole(layer)
    shape, k, has_bias = context.inputs[0], layer.num_outputs, layer.use_bias
    first = layer.axis % len(shape)
    features = product(shape[first:])
    context.hold(k, features, fan_in=features)
    if has_bias:
        context.hold(k, fill=0)
    order, flattens = context.values[0].order, first < len(shape) - 1
    if first == 1:
        order = batch_first(order)
    elif flattens or order[-1] != first:
        order = plain(len(shape))
    read = context.reader(0, order)

    def run(tensors: list[Any], held: list[Any], training: bool) -> Any:
        x = read(tensors)
        if flattens:
            x = x.flatten(first)
        return F.linear(x, held[0], held[1] if has_bias else None)

    return run, plain(2) if first == 1 else order[: first + 1]


def _words_of_sequences(layer: Any, rank: int, after: Order | None) -> Order | None:
    return SEQUENCE[:2] if after == SEQUENCE else None


@builds(Embedding, wanted=_words_of_sequences)
def _embedding(context: BuildContext) -> Built:
    layer: Embedding = context.layer
    context.hold(layer.num_embeddings, layer.num_outputs)
    order = context.values[0].order
    read = context.indices(0, layer.num_embeddings, order)
    return (
        lambda tensors, held, training: F.embedding(read(tensors), held[0]),
        (*order, len(order)),
    )


@builds(Experts)
def _experts(context: BuildContext) -> Built:
    """Rows that are next to each other go to one expert, as if they had been sorted."""
    layer: Experts = context.layer
    if layer.load != "even":
        raise CannotBuildError("rows are spread evenly over experts")
    _whole(layer)
    shape, k, has_bias = context.inputs[0], layer.num_outputs, layer.use_bias
    context.hold(layer.num_experts, shape[-1], k, fan_in=shape[-1])
    if has_bias:
        context.hold(layer.num_experts, k, fill=0)
    read = context.reader(0, plain(len(shape)), dense=True)
    rows = int(product(shape[:-1]))
    groups = min(rows, layer.num_experts)
    each, more = divmod(rows, groups)  # the first groups have one row more
    parts = [(0, more, each + 1)] * bool(more) + [(more, groups, each)]

    def run(tensors: list[Any], held: list[Any], training: bool) -> Any:
        left, made = read(tensors).flatten(0, -2), []
        for first, end, size in parts:
            own, left = left.tensor_split([(end - first) * size])
            y = torch.bmm(own.view(end - first, size, -1), held[0][first:end])
            if has_bias:
                y = y + held[1][first:end, None].to(y.dtype)
            made.append(y.flatten(0, 1))
        joined = made[0] if len(made) == 1 else torch.cat(made)
        return joined.view(*shape[:-1], k)

    return run, plain(len(shape))


@builds(MatMul)
def _matmul(context: BuildContext) -> Built:
    """A factor that is one matrix for all products has two dimensions, so that it is read once."""
    layer: MatMul = context.layer
    longest = max(map(len, context.inputs))
    turned = (layer.transpose_a, layer.transpose_b)
    reads = []
    views: list[tuple[int, ...] | None] = []
    for k, shape in enumerate(context.inputs):
        reads.append(context.reader(k, plain(len(shape))))
        if all(map(is_one, shape[:-2])):
            views.append(shape[-2:])
        else:
            views.append(aligned(shape, longest) if len(shape) < longest else None)
    output = context.output

    def factor(k: int, tensors: list[Any]) -> Any:
        x, view = reads[k](tensors), views[k]
        x = x if view is None else x.reshape(view)
        return x.mT if turned[k] else x

    def run(tensors: list[Any], held: list[Any], training: bool) -> Any:
        made = torch.matmul(factor(0, tensors), factor(1, tensors))
        return made if made.dim() == len(output) else made.reshape(output)

    return run, plain(len(output))


@builds(Einsum)
def _einsum(context: BuildContext) -> Built:
    layer: Einsum = context.layer
    equation = layer.equation
    left, _, right = equation.partition("->")
    alone = [len(term) == 1 and len(shape) == 2
             for term, shape in zip(left.split(","), context.inputs, strict=True)]  # fmt: skip
    reads = [context.reader(k, plain(len(shape))) for k, shape in enumerate(context.inputs)]

    def run(tensors: list[Any], held: list[Any], training: bool) -> Any:
        factors = [
            read(tensors).squeeze(1) if single else read(tensors)
            for read, single in zip(reads, alone, strict=True)
        ]
        made = torch.einsum(equation, *factors)
        return made if len(right) > 1 else made.unsqueeze(1)

    return run, plain(len(context.output))


@builds(Similarity)
def _similarity(context: BuildContext) -> Built:
    first, second = (context.reader(k, plain(2)) for k in range(2))

    def run(tensors: list[Any], held: list[Any], training: bool) -> Any:
        return torch.matmul(first(tensors), second(tensors).T)

    return run, plain(2)


@builds(Attention)
def _attention(context: BuildContext) -> Built:
    layer: Attention = context.layer
    if not layer.is_plain:
        raise CannotBuildError("PyTorch has no operator for chunks, sinks or biases of a kernel")
    order = plain(len(context.output))
    reads = [context.repeated(k, order) for k in range(len(context.inputs))]
    shares = context.inputs[0][-3] != context.inputs[1][-3]
    queries, keys = context.inputs[0][-2], context.inputs[1][-2]
    has_mask = layer.window is not None and layer.window < keys
    if has_mask:
        assert layer.window is not None
        seen = torch.ones(queries, keys, dtype=torch.bool).tril().triu(1 - layer.window)
        context.hold(queries, keys, learns=False, numbers=seen)
    causal = layer.causal and not has_mask

    def run(tensors: list[Any], held: list[Any], training: bool) -> Any:
        q, k, v, *added = (read(tensors) for read in reads)
        mask = held[0] if has_mask else added[0] if added else None
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=causal, enable_gqa=shares
        )

    return run, order


# ---- Recurrent layers --------------------------------------------------------------------------

_NETS = {RNN: torch._VF.rnn_tanh, GRU: torch._VF.gru, LSTM: torch._VF.lstm}
_MODULES = {RNN: torch.nn.RNN, GRU: torch.nn.GRU, LSTM: torch.nn.LSTM}


@builds(RNN, GRU, LSTM, wanted=lambda layer, rank, after: SEQUENCE if rank == 3 else plain(rank))
def _recurrent(context: BuildContext) -> Built:
    """Steps come first in memory, as torch.nn has them.

    With one bias for each gate, the one for the state is zero and is not learnt.
    """
    layer: RNN = context.layer
    *front, _, features = context.inputs[0]
    n, is_plain = product(front), len(front) == 1
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
            context.hold(*shape, fill=0, learns=layer.num_biases == 2 or "ih" in name)
        else:
            context.hold(*shape, fan_in=2 * shape[-1])
    context.joins = context.is_opaque = True
    context.finish = lambda weights: _in_one_piece(module, weights)
    order = SEQUENCE if is_plain else plain(len(front) + 2)
    read = context.reader(0, order, dense=True)
    operator = _NETS[type(layer)]
    states = layers * (2 if both else 1)
    is_lstm = isinstance(layer, LSTM)

    def run(tensors: list[Any], held: list[Any], training: bool) -> Any:
        x = read(tensors)
        if not is_plain:  # what stands beside the batch is a batch as well
            x = x.flatten(0, -3).transpose(0, 1).contiguous()
        state = x.new_zeros(states, n, projection or hidden)
        first = (state, x.new_zeros(states, n, hidden)) if is_lstm else state
        y = operator(x, first, held, has_biases, layers, 0.0, training, both, False)[0]
        return y if is_plain else y.transpose(0, 1).unflatten(0, front)

    def quiet(tensors: list[Any], held: list[Any], training: bool) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that oneDNN has no projections
            return run(tensors, held, training)

    return quiet if projection else run, order


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
