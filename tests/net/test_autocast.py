"""What autocast computes in fp32, and what it casts in between: bytes by hand."""

from __future__ import annotations

import json
from typing import Any

import paleo
from paleo.core.kinds import Autocast, Fusion, Pass
from paleo.net.graph import Graph
from paleo.net.handled import with_autocast
from paleo.step.passes import BACKWARD, FORWARD, keep_shape, kernels

#: Rows of 8 numbers, 4 of them.
N, D = 4, 8
ROWS = N * D
DATA = {"type": "Input", "parents": [], "tensor": [N, D]}


def fc(*parents: str) -> dict[str, Any]:
    return {"type": "InnerProduct", "parents": [*parents], "num_outputs": D, "use_bias": False}


def graph_of(**layers: dict[str, Any]) -> Graph:
    text = json.dumps({"name": "casts", "layers": {"data": DATA, **layers}})
    return with_autocast(paleo.build(paleo.loads(text), None, "mixed_fp16", keep_shape))


def done(graph: Graph, name: str, direction: Pass = Pass.FORWARD) -> list[tuple[str, Any, Any]]:
    """Return the operations of a layer: name, bytes read, bytes written."""
    node = next(each for each in graph.nodes if each.name == name)
    return [(each.name, each.reads, each.writes) for each in graph.operations(node, direction)]


def test_a_product_takes_halves_and_casts_what_comes_in_fp32() -> None:
    graph = graph_of(a=fc("data"), b=fc("a"))
    product = ("matmul", (2 * ROWS, 2 * D * D), (2 * ROWS,))
    # Images come in fp32; what a product gives are halves.
    assert done(graph, "a") == [("cast", (4 * ROWS,), (2 * ROWS,)), product]
    assert done(graph, "b") == [product]


def test_a_normalization_is_computed_in_fp32_and_so_is_what_follows_until_a_product() -> None:
    norm = {"type": "LayerNorm", "parents": ["a"]}
    graph = graph_of(
        a=fc("data"),
        norm=norm,
        relu={"type": "Activation", "parents": ["norm"], "function": "relu"},
        b=fc("relu"),
    )
    cast, (_, reads, writes) = done(graph, "norm")
    assert cast == ("cast", (2 * ROWS,), (4 * ROWS,))
    assert (reads[0], writes[0]) == (4 * ROWS, 4 * ROWS)
    assert done(graph, "relu") == [("relu", (4 * ROWS,), (4 * ROWS,))]
    assert done(graph, "b")[0] == ("cast", (4 * ROWS,), (2 * ROWS,))
    # Each gradient is of the type of what it is the gradient of.
    assert done(graph, "b", Pass.INPUT_GRADIENT)[-1] == ("cast", (2 * ROWS,), (4 * ROWS,))
    assert done(graph, "norm", Pass.INPUT_GRADIENT)[-1] == ("cast", (4 * ROWS,), (2 * ROWS,))


def test_a_sum_takes_the_widest_type_and_reads_each_as_it_is() -> None:
    position = {"type": "Parameter", "parents": [], "shape": [D]}
    graph = graph_of(
        a=fc("data"),
        sum={"type": "Elementwise", "parents": ["a", "data"], "function": "sum"},
        again={"type": "Elementwise", "parents": ["sum", "a"], "function": "sum"},
        position=position,
        placed={"type": "Elementwise", "parents": ["a", "position"], "function": "sum"},
    )
    # A parameter is fp32, so what is added to it is, too.
    assert done(graph, "placed") == [("elementwise", (2 * ROWS, 4 * D), (4 * ROWS,))]
    assert done(graph, "sum") == [("elementwise", (2 * ROWS, 4 * ROWS), (4 * ROWS,))]
    assert done(graph, "again") == [("elementwise", (4 * ROWS, 2 * ROWS), (4 * ROWS,))]


def test_a_batch_normalization_and_a_rectifier_take_halves_as_they_come() -> None:
    graph = graph_of(
        a=fc("data"),
        norm={"type": "BatchNorm", "parents": ["a"]},
        relu={"type": "Activation", "parents": ["norm"], "function": "relu"},
    )
    assert done(graph, "relu") == [("relu", (2 * ROWS,), (2 * ROWS,))]
    assert [name for name, _, _ in done(graph, "norm")] == ["batchnorm"]


def test_a_fast_norm_computes_the_nets_own_layers_in_halves() -> None:
    layers = {
        "a": fc("data"),
        "own": {"type": "LayerNorm", "parents": ["a"], "custom": True},
        "theirs": {"type": "LayerNorm", "parents": ["a"]},
        "group": {"type": "GroupNorm", "parents": ["a"], "num_groups": 1},
    }
    text = json.dumps({"name": "norms", "layers": {"data": DATA, **layers}})
    plain = paleo.build(paleo.loads(text), None, "mixed_fp16", keep_shape)
    for fast, halves in ((False, set()), (True, {"own", "group"})):
        graph = with_autocast(plain, Autocast(fast))
        names = {node.name for node in graph.nodes if node.name in layers and node.name != "a"}
        cast = {name for name in names if done(graph, name)[0][0] == "cast"}
        assert names - cast == halves


def test_frameworks_have_lists_of_their_own() -> None:
    layers = {
        "a": fc("data"),
        "gelu": {"type": "Activation", "parents": ["a"], "function": "gelu"},
        "softmax": {"type": "Softmax", "parents": ["a"], "dim": -1},
        "norm": {"type": "LayerNorm", "parents": ["a"]},
    }
    text = json.dumps({"name": "lists", "layers": {"data": DATA, **layers}})
    plain = paleo.build(paleo.loads(text), None, "mixed_fp16", keep_shape)
    for lists, casts in (
        (Autocast(), {"softmax"}),
        (Autocast(functions=("gelu",), full_softmax=False), {"gelu"}),
        (Autocast(full_softmax=False), set()),
        (Autocast(half_norms=True), {"softmax"}),
    ):
        graph = with_autocast(plain, lists)
        found = {name for name in ("gelu", "softmax") if done(graph, name)[0][0] == "cast"}
        assert found == casts
        assert (done(graph, "norm")[0][0] == "cast") is not lists.half_norms


def test_equal_layers_of_inputs_of_two_types_are_told_apart() -> None:
    graph = graph_of(a=fc("data"), b=fc("a"), c=fc("b"))
    assert [node.like for node in graph.nodes] == [0, 1, 2, 2]


def test_casts_run_in_a_pass_whatever_is_fused() -> None:
    graph = graph_of(a=fc("data"), b=fc("a"))
    model = paleo.find_cost_model("roofline")
    for fusion in (Fusion.NONE, Fusion.BIAS):
        for training in (True, False):
            found = kernels(graph, FORWARD, model, fusion=fusion, training=training)
            assert [each.name for _, each in found.of[1]] == ["cast", "matmul"]
    assert kernels(graph, BACKWARD, model, fusion=Fusion.BIAS).of[2]


def test_a_plan_of_pytorch_casts_in_mixed_precision_alone() -> None:
    settings: Any = {"device": "A100_SXM_80GB", "cost_model": "tiled"}
    for dtype, casts in (("mixed_fp16", True), ("fp16", False), ("fp32", False)):
        for framework in ("pytorch", None):
            scenario = paleo.scenario("resnet18", dtype=dtype, framework=framework, **settings)
            expected = casts and framework == "pytorch"
            assert any(node.elements for node in scenario.graph().nodes) is expected


def test_a_gradient_has_the_type_of_its_input_whatever_was_computed_with() -> None:
    position = {"type": "Parameter", "parents": [], "shape": [D]}
    graph = graph_of(
        a=fc("data"),
        position=position,
        placed={"type": "Elementwise", "parents": ["a", "position"], "function": "sum"},
    )
    node = next(each for each in graph.nodes if each.name == "placed")
    wanted = graph.operations(node, Pass.INPUT_GRADIENT, (True, False))
    # The sum's gradient comes in fp32, and what is in halves takes it in halves.
    assert [(each.reads, each.writes) for each in wanted] == [((4 * ROWS,), (2 * ROWS,))]
    assert graph.operations(node, Pass.INPUT_GRADIENT, (False, False)) == ()


def test_a_computed_bias_is_added_in_the_type_of_its_product() -> None:
    halves = {"type": "Parameter", "parents": [], "shape": [D // 2]}
    graph = graph_of(
        a=fc("data"),
        q=halves,
        v=halves,
        bias={"type": "Concatenate", "parents": ["q", "v"], "dim": 1},
        sum={"type": "Elementwise", "parents": ["a", "bias"], "adds_to_product": True},
        plain={"type": "Elementwise", "parents": ["a", "bias"]},
    )
    # linear() is given its bias in fp32, casts it, and gives halves; a sum beside it gives fp32.
    cast = ("cast", (4 * D,), (2 * D,))
    assert done(graph, "sum") == [cast, ("elementwise", (2 * ROWS, 2 * D), (2 * ROWS,))]
    assert done(graph, "plain") == [("elementwise", (2 * ROWS, 4 * D), (4 * ROWS,))]
    assert done(graph, "sum", Pass.INPUT_GRADIENT)[-1] == ("cast", (2 * D,), (4 * D,))
