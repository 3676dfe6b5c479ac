"""The layer graph: any DAG with any names, deep, in order, with bounds for its branches."""

from __future__ import annotations

import json
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import paleo
from paleo.core.errors import Mistakes
from paleo.core.kinds import Fusion
from paleo.core.operations import LAYER_PASSES, Pass
from paleo.core.tensor import Shape
from paleo.net.fusion import fused_forward
from paleo.net.graph import Graph, Node, cached_for_net, infer_nodes
from paleo.net.layers import Layer
from paleo.net.spec import LayerSpec, NetSpec
from paleo.step.passes import FORWARD, kernels

RELU = {"type": "Activation", "function": "relu"}


def data(shape: list[int]) -> dict[str, Any]:
    return {"type": "Input", "parents": [], "tensor": shape}


def test_any_names_any_order_several_inputs_and_outputs(net: Any) -> None:
    spec = net(
        {
            "sum of both": {"type": "Elementwise", "parents": ["left/bild", "右"]},
            "right end": {**RELU, "parents": ["右"]},
            "left/bild": data([4, 8]),
            "right.end@2x": {**RELU, "parents": ["sum of both"]},
            "右": data([4, 8]),
        }
    )
    names = [node.name for node in paleo.build(spec).nodes]
    assert names == ["left/bild", "右", "sum of both", "right end", "right.end@2x"]


@pytest.mark.slow
def test_a_chain_of_thousands_of_layers_needs_no_recursion(net: Any) -> None:
    layers = {"0": data([1, 4])}
    layers |= {str(i): {**RELU, "parents": [str(i - 1)]} for i in range(1, 5000)}
    graph = paleo.build(net(dict(reversed(layers.items()))))
    assert [node.name for node in graph.nodes] == [str(i) for i in range(5000)]
    assert paleo.estimate_forward(graph, "K40", cost_model="roofline").lower > 0
    assert len(paleo.simulate(net(layers), scaling=("weak", "strong")).runs) == 2


def test_parallel_branches_give_each_pass_a_lower_bound(net: Any) -> None:
    convolution = {"type": "Convolution", "strides": [1, 1, 1, 1], "padding": "SAME"}
    graph = paleo.build(
        net(
            {
                "in": data([8, 32, 32, 16]),
                "short": {**convolution, "filter": [1, 1, 16, 32], "parents": ["in"]},
                "long": {**convolution, "filter": [5, 5, 16, 32], "parents": ["in"]},
                "end": {"type": "Concatenate", "parents": ["short", "long"]},
                "last": {**convolution, "filter": [3, 3, 64, 8], "parents": ["end"]},
            }
        )
    )
    for estimate in (paleo.estimate_forward, paleo.estimate_backward):
        found = estimate(graph, "K40", cost_model="paleo2017")
        seconds = {layer.node.name: layer.seconds for layer in found.layers}
        assert found.lower == seconds["long"] + seconds["last"]
        assert found.upper == pytest.approx(sum(seconds.values()))
        assert seconds["short"] > 0


def test_the_batch_size_replaces_the_first_dimension_everywhere(net: Any) -> None:
    spec = net(
        {
            "in": data([2, 4, 4, 6]),
            "reshape": {"type": "Reshape", "parents": ["in"], "output_shape": [2, 2, 2, -1]},
            "up": {
                "type": "Deconvolution", "parents": ["reshape"], "filter": [3, 3, 8, 24],
                "strides": [1, 2, 2, 1], "padding": "SAME", "output_shape": [2, 4, 4, 8],
            },
            "fc": {"type": "InnerProduct", "parents": ["up"], "num_outputs": 5},
            "softmax": {"type": "Softmax", "parents": ["fc"]},
        }
    )  # fmt: skip
    assert {node.output[0] for node in paleo.build(spec).nodes} == {2}
    for batch in (1, 7):
        graph = paleo.build(spec, batch)
        assert {node.output[0] for node in graph.nodes} == {batch}
        assert graph.batch_size == batch
    assert paleo.build(spec).nodes[-1].output == (2, 5)  # and the net is as it was
    array = np.array([1, 7])
    assert all(np.array_equal(node.output[0], array) for node in paleo.build(spec, array).nodes)


def test_a_net_of_inputs_alone_takes_no_time(net: Any) -> None:
    graph = paleo.build(net({"in": data([2, 4])}))
    assert paleo.estimate_forward(graph, "K40").upper == 0
    assert paleo.estimate_backward(graph, "K40").lower == 0


def test_an_array_of_batches_too_large_to_count_is_refused() -> None:
    with pytest.raises(paleo.NetSpecError, match="too many to mean anything"):
        paleo.build(paleo.load("vgg16"), np.array([1, 2**50]))


def test_element_types_change_bytes_only() -> None:
    single, half = (paleo.build(paleo.load("nin"), 4, dtype) for dtype in ("fp32", "fp16"))
    for one, other in zip(single.nodes, half.nodes, strict=True):
        work, less = single.work(one, Pass.FORWARD), half.work(other, Pass.FORWARD)
        assert (work.flops, work.num_bytes) == (less.flops, 2 * less.num_bytes)
    with pytest.raises(paleo.SettingError, match=r"unknown dtype 'fp31' \(did you mean"):
        paleo.build(paleo.load("nin"), 4, "fp31")


def test_nets_are_read_from_bytes_too() -> None:
    text = json.dumps({"name": "é", "layers": {"in": data([1, 2])}}, ensure_ascii=False)
    assert paleo.loads(text.encode()) == paleo.loads(text)


def test_blocks_nest_and_inherit(net: Any) -> None:
    spec = net(
        {
            "in": data([2, 4]),
            "outer": {
                "type": "Block",
                "parents": ["in"],
                "endpoint": "inner",
                "layers": {
                    "first": {**RELU, "parents": []},
                    "inner": {
                        "type": "Block",
                        "parents": ["first"],
                        "endpoint": "b",
                        "layers": {
                            "a": {**RELU, "parents": []},
                            "b": {"type": "Elementwise", "parents": ["a", "a"]},
                        },
                    },
                    "second": {**RELU, "parents": ["inner/a"]},
                },
            },
            "end": {"type": "Concatenate", "parents": ["outer", "outer/second", "outer/inner/a"]},
        }
    )
    parents = {each.name: each.parents for each in spec.layers}
    assert parents == {
        "in": (),
        "outer/first": ("in",),
        "outer/inner/a": ("outer/first",),
        "outer/inner/b": ("outer/inner/a", "outer/inner/a"),
        "outer/second": ("outer/inner/a",),
        "end": ("outer/inner/b", "outer/second", "outer/inner/a"),
    }


def test_slices_name_each_other(net: Any) -> None:
    split = {"type": "ModelParallel", "splits": 2}
    spec = net(
        {
            "in": data([2, 4]),
            "one": {
                **split,
                "parents": ["in"],
                "layers": {
                    "fc": {"type": "InnerProduct", "parents": [], "num_outputs": 7},
                    "both": {"type": "Concatenate", "parents": ["fc@all"]},
                    "swap": {"type": "Elementwise", "parents": ["fc@self", "fc@0"]},
                    "nested": {
                        "type": "Block",
                        "parents": ["both@self"],
                        "endpoint": "relu",
                        "layers": {"relu": {**RELU, "parents": []}},
                    },
                },
            },
            # A second split block takes slice i of the first for its slice i.
            "two": {**split, "parents": ["one/fc@self"], "layers": {"r": {**RELU, "parents": []}}},
            "end": {"type": "Concatenate", "parents": ["two/r@all", "one/nested@1"]},
        }
    )
    parents = {each.name: each.parents for each in spec.layers}
    assert parents["one/both@1"] == ("one/fc@0", "one/fc@1")
    assert parents["one/swap@1"] == ("one/fc@1", "one/fc@0")
    assert parents["one/nested/relu@1"] == ("one/both@1",)
    assert parents["two/r@1"] == ("one/fc@1",)
    assert parents["end"] == ("two/r@0", "two/r@1", "one/nested/relu@1")
    assert spec.splits == (2,)
    assert paleo.build(spec).nodes[1].output == (2, 3)  # 7 / 2, rounded down


def facts(nodes: Sequence[Node]) -> list[Any]:
    """Return what a layer in a graph is, with arrays as lists."""
    return [
        (
            node.index, node.name, node.layer, node.shard, node.parents, node.owner,
            node.num_params, node.is_trained,
            [[np.array(size).tolist() for size in shape] for shape in (*node.inputs, node.output)],
        )
        for node in nodes
    ]  # fmt: skip


@pytest.mark.parametrize(
    "name", ["densenet40", "alex_v2_4gpu", "gpt2", "lstm_lm", "unet", "ssd300_resnet50"]
)
@pytest.mark.parametrize("batch", [None, 1, 2, 33, np.array([1, 2, 33]), np.array(4)])
def test_nodes_at_every_batch_are_those_found_layer_by_layer(name: str, batch: Any) -> None:
    spec, mistakes = paleo.load(name), Mistakes()
    found = paleo.build(spec, batch).nodes
    assert facts(found) == facts(infer_nodes(spec, mistakes, batch))
    assert not mistakes
    for node in found:
        like = found[node.like]
        assert (like.layer, like.inputs, like.output) == (node.layer, node.inputs, node.output)


@pytest.mark.parametrize("name", ["vgg16", "unet", "gpt2_medium"])
def test_a_batch_is_too_large_where_layers_one_by_one_say_so(name: str) -> None:
    spec = paleo.load(name)
    outcomes = set()
    for bits in range(8, 50):
        mistakes = Mistakes(spec.file)
        infer_nodes(spec, mistakes, 2**bits)
        outcomes.add(bool(mistakes))
        said = Mistakes()
        said.check(paleo.build, spec, 2**bits)
        assert said.found == mistakes.found
    assert outcomes == {True, False}


class TwoSamples(Layer):
    """A layer that gives two samples, whatever comes in."""

    def infer_shape(self, inputs: tuple[Shape, ...]) -> Shape:
        return (2, *inputs[0][1:])


@pytest.mark.parametrize("batch", [1, 2, 3, np.array([2, 3])])
def test_layers_that_are_alike_at_one_batch_alone_are_told_apart(net: Any, batch: Any) -> None:
    spec = net({"in": data([2, 4]), "a": {**RELU, "parents": ["in"]}})
    source, relu = spec.layers
    others = (LayerSpec("two", TwoSamples(), ("in",)), LayerSpec("b", relu.layer, ("two",)))
    spec = paleo.NetSpec("net", (source, relu, *others))
    *_, a, _, b = paleo.build(spec, batch).nodes
    assert (a.name, b.name) == ("a", "b")
    assert np.array_equal(a.output[0], batch)
    assert (b.output, b.like == a.index) == ((2, 4), np.array_equal(batch, 2))


def test_a_net_without_inputs_has_nodes_at_any_batch() -> None:
    constant = paleo.LAYERS["Parameter"](shape=(3,))
    spec = paleo.NetSpec("net", (LayerSpec("constant", constant, ()),))
    assert [node.output for node in paleo.build(spec, 7).nodes] == [(1, 3)]


def test_inputs_that_differ_in_their_own_batch_have_another_in_common(net: Any) -> None:
    one, other = (net({"in": data([size, 4])}).layers[0] for size in (2, 3))
    both = (one, LayerSpec("other", other.layer, ()))
    spec = paleo.NetSpec("net", both)
    assert [node.output for node in paleo.build(spec, 5).nodes] == [(5, 4), (5, 4)]
    with pytest.raises(paleo.NetSpecError, match="its batch of 3 is not that of in, 2"):
        paleo.build(spec)


def test_equal_nets_are_known_by_each_other(net: Any) -> None:
    one, other = (net({"in": data([2, 4])}) for _ in range(2))
    assert one == other
    assert one is not other
    assert hash(one) == hash(other)
    assert paleo.build(one, 5).nodes is paleo.build(other, 5).nodes
    assert hash(one.with_batch(3)) != hash(one)


def test_what_is_found_of_a_graph_is_found_once_and_of_equal_nodes_too() -> None:
    graph = paleo.build(paleo.load("resnet50"), 4)
    like = next(node for node in graph.nodes if node.like < node.index)
    first = graph.nodes[like.like]
    for direction in LAYER_PASSES:
        assert graph.operations(like, direction) is graph.operations(first, direction)
    assert graph.operations(first, Pass.INPUT_GRADIENT, (False,)) == ()
    assert fused_forward(graph) is fused_forward(graph)
    assert fused_forward(graph) is not fused_forward(graph, training=False)
    assert graph == Graph(graph.name, graph.nodes, graph.dtype)


def test_a_graph_is_gone_as_soon_as_nobody_has_it(net: Any) -> None:
    layers = {"data": data([2, 8]), "a": {**RELU, "parents": ["data"]}}
    graph = paleo.build(net(layers), np.arange(1, 100))  # more than are kept
    kernels(graph, FORWARD, paleo.COST_MODELS["tiled"], fusion=Fusion.ALL)
    there = weakref.ref(graph)
    del graph
    assert there() is None


def test_what_is_found_of_a_net_is_found_once_as_long_as_the_net_is_there() -> None:
    asked: list[int] = []

    class Found:
        pass

    def find(spec: NetSpec, which: int) -> Found:
        asked.append(which)
        return Found()

    spec = NetSpec("of this test alone", ())
    there = [weakref.ref(cached_for_net(find, spec, which)) for which in (1, 2, 1)]
    assert asked == [1, 2]
    assert there[0]() is there[2]() is not None
    for which in range(100):
        cached_for_net(find, spec, which)
    assert there[0]() is None  # no more than some
    last = weakref.ref(cached_for_net(find, spec, 99))
    assert last() is not None
    del spec
    assert last() is None
