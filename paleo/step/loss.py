"""The loss of a language model in training, which published nets leave out: they end at scores.

A net has one if it reads words (an Embedding looks up an Input) and ends in a score for each word
at each position, N x T x V. Labels come in then, N x T, and the loss is a softmax cross entropy
over all V words. A net that judges its results already keeps what it has.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from paleo.cluster.frameworks import Framework
from paleo.core.checks import check_choice
from paleo.core.errors import PaleoError, SettingError
from paleo.core.tensor import Shape
from paleo.net.graph import Graph, Node, build, cached_for_net, typical
from paleo.net.spec import LayerSpec, NetSpec, Sweep
from paleo.step.passes import keep_shape

NONE, FUSED_LINEAR, IN_STEPS = "none", "fused_linear", "in_steps"
#: What is said of each.
LOSSES = {
    "cross_entropy": "the logarithms of all words' probabilities are written, as by PyTorch",
    "fused": "one kernel of a row of scores writes none",
    IN_STEPS: "each step is a kernel in fp32, as by Megatron-LM without cross-entropy-loss-fusion",
    FUSED_LINEAR: "the last product is in it too, chunk by chunk: scores are never all there",
    NONE: "no loss",
}


def checked_loss(value: Any) -> str:
    """Return one of LOSSES; raises SettingError for others."""
    return str(check_choice("loss", value, tuple(LOSSES)))


def with_loss(net: NetSpec, loss: str) -> NetSpec:
    """Return a net with this loss, one of LOSSES, if it is a language model that has none.

    Raises SettingError where the last product is to be in it, and the net does not end in one.
    """
    layers = {id(spec.layer): spec.layer for spec in net.few.layers}.values()
    if loss == NONE or not any(layer.looks_up for layer in layers):
        return net
    if any(layer.is_judge for layer in layers):
        return net
    return cached_for_net(_with_loss, net, loss) or net


def composed(net: NetSpec, software: Framework | None) -> NetSpec:
    """Return a net whose layers are composed in steps where those of a framework's models are."""
    if software is None or not software.runs_transformers:
        return net
    from paleo.net.composed_transformers import as_composed  # here, since most commands name none

    return cached_for_net(as_composed, net)


def word_lookups(graph: Graph) -> Iterator[tuple[Node, Node]]:
    """Yield the nodes that look up words which come in, each with the input that it reads."""
    for node in graph.nodes:
        if node.is_trained and node.layer.index_limit(0, node.inputs) is not None:
            source = graph.nodes[node.parents[0]]
            while source.layer.is_view:
                source = graph.nodes[source.parents[0]]
            if source.layer.is_input and len(source.output) > 1:
                yield node, source


def _with_loss(net: NetSpec, loss: str) -> NetSpec | None:
    """Return the net with a loss, None if it takes none."""
    if net.sweep:
        return _swept(net, net.sweep, loss)
    if net.few is not net:
        found = _with_loss(net.few, loss)
        return net.with_few(found) if found else None
    try:
        graph = build(net, adapt=keep_shape)
    except PaleoError:  # a net that only the conventions of a cost model can take
        return None
    last = graph.nodes[-1]
    places = last.output[1:-1]
    words = {node.layer.index_limit(0, node.inputs) for node, _ in word_lookups(graph)}
    if not places or net.layers[-1].shard is not None:
        return None
    if last.output[-1] not in words:
        return None
    from paleo.net.layers.losses import Loss  # here, since most commands are about other nets

    labels = _free("labels", net)
    *before, head = net.layers
    judged = Loss(fused=loss not in ("cross_entropy", IN_STEPS), stepwise=loss == IN_STEPS)
    added = (LayerSpec(_free("loss", net), judged, (head.name, labels)),)
    if loss == FUSED_LINEAR:
        added = (_joined(net, head, labels),)
    else:
        before = [*before, head]
    batch = next(node.layer.infer_shape(())[0] for node in graph.nodes if node.layer.is_input)
    coming = next(spec.layer for spec in net.layers if spec.layer.is_input)
    shape: Shape = (batch, *places)
    return replace(net, layers=(*before, LayerSpec(labels, coming.of_shape(shape), ()), *added))


def _swept(net: NetSpec, sweep: Sweep, loss: str) -> NetSpec | None:
    """Return a net with arrays of sizes: of labels, too."""
    found = _with_loss(replace(net, sweep=None), loss)
    if found is None:
        return None
    _, *places, _ = typical(net, "fp32", keep_shape).nodes[-1].output
    layers = {}
    for spec in found.layers:
        if spec.layer.is_input and spec.name not in sweep.layers:  # the labels
            batch, *_ = spec.layer.infer_shape(())
            layers[spec.name] = spec.layer.of_shape((batch, *places))
        elif spec.name not in sweep.layers or spec.layer.is_loss:
            layers[spec.name] = spec.layer
    return replace(found, sweep=replace(sweep, layers={**sweep.layers, **layers}))


def _joined(net: NetSpec, head: LayerSpec, labels: str) -> LayerSpec:
    """Return the head of a net as one layer with its loss."""
    joined = head.layer.with_loss()
    if joined is None:
        raise SettingError(
            f"loss: {net.name} ends in {head.name}, which is no product: {FUSED_LINEAR} has none "
            "to join; fused does without"
        )
    return replace(head, layer=joined, parents=(*head.parents, labels))


def _free(name: str, net: NetSpec) -> str:
    """Return a name that no layer has."""
    names = {spec.name for spec in net.layers}
    while name in names:
        name += "_"
    return name
