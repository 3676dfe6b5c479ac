"""What eager PyTorch copies where dimensions are permuted, by hand."""

from __future__ import annotations

import json
from typing import Any

import paleo
from paleo.core.kinds import Pass
from paleo.net.graph import Graph
from paleo.net.handled import with_views
from paleo.step.passes import keep_shape

#: Rows of 3 times 2 heads of 4 features, 6 rows a sample.
N, T, H, D = 2, 6, 2, 4
DATA = {"type": "Input", "parents": [], "tensor": [N, T, 3 * H * D]}
#: A third of it, in fp16.
THIRD = 2 * N * T * H * D


def layer(kind: str, *parents: str, **keys: Any) -> dict[str, Any]:
    return {"type": kind, "parents": [*parents], **keys}


def reshape(parent: str, *shape: int) -> dict[str, Any]:
    return layer("Reshape", parent, output_shape=[-1, *shape])


def transpose(parent: str, *perm: int) -> dict[str, Any]:
    return layer("Transpose", parent, perm=[*perm])


def graph_of(data: dict[str, Any] = DATA, **layers: dict[str, Any]) -> Graph:
    text = json.dumps({"name": "views", "layers": {"data": data, **layers}})
    return with_views(paleo.build(paleo.loads(text), None, "fp16", keep_shape))


def done(graph: Graph, name: str) -> list[tuple[str, int]]:
    """Return the names of a layer's operations, and the bytes that each reads."""
    node = next(each for each in graph.nodes if each.name == name)
    return [(each.name, sum(map(int, each.reads))) for each in graph.operations(node, Pass.FORWARD)]


def heads() -> dict[str, dict[str, Any]]:
    """Return queries, keys and values, N x heads x T x features each, as parts of the data."""
    found = {"parts": reshape("data", T, 3, H, D)}
    for i, name in enumerate(("q", "k", "v")):
        part = layer("Slice", "parts", dim=2, begin=i, size=1, keep_dim=False)
        found |= {f"{name}_part": part, name: transpose(f"{name}_part", 0, 2, 1, 3)}
    return found


def test_fused_attention_takes_heads_as_they_lie_and_writes_them_beside_each_other() -> None:
    graph = graph_of(
        **heads(),
        attention=layer("Attention", "q", "k", "v"),
        back=transpose("attention", 0, 2, 1, 3),
        rows=reshape("back", T, H * D),
        out=layer("InnerProduct", "rows", num_outputs=8, axis=-1, use_bias=False),
    )
    for name in ("parts", "q_part", "q", "k", "v", "back", "rows"):
        assert done(graph, name) == []
    assert [name for name, _ in done(graph, "attention")] == ["attention"]
    assert [name for name, _ in done(graph, "out")] == ["matmul"]


def test_products_of_heads_want_them_one_behind_the_other() -> None:
    graph = graph_of(
        **heads(),
        turned=transpose("k", 0, 1, 3, 2),
        scores=layer("MatMul", "q", "turned"),
        values=layer("MatMul", "scores", "v"),
        back=transpose("values", 0, 2, 1, 3),
        rows=reshape("back", T, H * D),
    )
    assert done(graph, "turned") == []
    copies = [("copy into order", THIRD)] * 2
    assert done(graph, "scores")[:2] == copies
    # The scores are in order, the values are not.
    assert done(graph, "values")[:1] == copies[:1]
    assert [name for name, _ in done(graph, "values")] == ["copy into order", "matmul"]
    # No strides say that heads and features are one dimension.
    assert done(graph, "rows") == copies[:1]


def test_windows_are_copied_once() -> None:
    images = {"type": "Input", "parents": [], "tensor": [N, 4, 4, 3]}
    graph = graph_of(
        images,
        cut=reshape("data", 2, 2, 2, 2, 3),
        first=transpose("cut", 0, 2, 1, 3, 4, 5),
        again=transpose("first", 0, 2, 3, 1, 4, 5),
        windows=reshape("again", 4, 4, 3),
    )
    assert done(graph, "first") == done(graph, "again") == []
    assert done(graph, "windows") == [("copy into order", 2 * N * 4 * 4 * 3)]


def test_elementwise_functions_keep_the_order_and_normalizations_want_their_own() -> None:
    graph = graph_of(
        turned=transpose("data", 0, 2, 1),
        relu=layer("Activation", "turned", function="relu"),
        back=transpose("relu", 0, 2, 1),
        norm=layer("LayerNorm", "back"),
        other=layer("LayerNorm", "relu"),
        joined=layer("Concatenate", "relu", "relu"),
    )
    assert [name for name, _ in done(graph, "relu")] == ["relu"]
    assert [name for name, _ in done(graph, "norm")] == ["layernorm"]
    assert done(graph, "other")[0] == ("copy into order", 3 * THIRD)
    assert [name for name, _ in done(graph, "joined")] == ["concatenate"]
