"""A net written as a net-spec is read again as it was; `shares` and names from the root."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema_rs import Draft202012Validator
from layer_examples import EXAMPLES, Example
from model_configurations import DIFFERENT

import paleo
from paleo.core.operations import LAYER_PASSES
from paleo.net.schema import net_schema
from paleo.net.spec import MAX_NESTING, LayerSpec, NetSpec
from paleo.net.writer import dumps

VALIDATOR = Draft202012Validator(net_schema())
DATA = {"type": "Input", "parents": [], "tensor": [2, 6, 4]}
WHOLE = [name for name in DIFFERENT if not paleo.load(name).splits]


def net(layers: dict[str, Any]) -> NetSpec:
    return paleo.loads(json.dumps({"name": "n", "layers": {"data": DATA, **layers}}))


def flat(*parents: str, **keys: Any) -> dict[str, Any]:
    return {"type": "Flatten", "parents": list(parents), **keys}


def fc(*parents: str, **keys: Any) -> dict[str, Any]:
    return {"type": "InnerProduct", "parents": list(parents), "num_outputs": 5} | keys


def block(*parents: str, **layers: Any) -> dict[str, Any]:
    return {"type": "Block", "parents": list(parents), "layers": layers}


def check(spec: NetSpec, ordered: bool = True) -> str:
    """Check that a net is read as it was written, and written as it was read."""
    text = dumps(spec)
    VALIDATOR.validate(json.loads(text))
    again = paleo.loads(text)
    assert (again.name, again.source) == (spec.name, spec.source)
    if ordered:
        assert again.layers == spec.layers
    else:
        assert len(again.layers) == len(spec.layers)
        assert set(again.layers) == set(spec.layers)
    assert dumps(again) == text
    return text


@pytest.mark.slow
@pytest.mark.parametrize("name", WHOLE)
def test_a_predefined_net_is_read_as_it_was_written(name: str) -> None:
    spec = paleo.load(name)
    text = check(spec)
    assert paleo.summarize(paleo.loads(text)) == paleo.summarize(spec)


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_every_key_is_written_as_it_is_read(example: Example) -> None:
    text = check(example.net())
    # The keys that a file may leave out are left out, and no key else.
    body = json.loads(text)["layers"]["x"]
    cls = paleo.LAYERS[example.kind]
    meant = {
        key
        for key, value in example.keys.items()
        if key != "bias" and (cls.keys[key].required or value != cls.keys[key].written_default)
    }
    assert set(body) - {"type", "parents"} == meant


def test_a_split_net_is_not_written() -> None:
    with pytest.raises(paleo.NetSpecError, match="a net with ModelParallel is written by hand"):
        dumps(paleo.load("alex_v2_2gpu"))


NESTED = {
    "first": flat("data"),
    "b": {
        **block(
            "first",
            x=fc(),
            y=fc("x", shares="x"),
            inner={**block(z=fc(), w=flat("/data")), "parents": []},
            v=fc("/data"),
        ),
        "endpoint": "y",
    },
    "last": fc("b/inner/w", shares="b/x"),
}


def test_names_that_share_a_beginning_become_a_block() -> None:
    text = check(net(NESTED))
    written = json.loads(text)["layers"]
    assert list(written) == ["data", "first", "b", "last"]
    assert written["b"]["parents"] == ["first"]
    inside = written["b"]["layers"]
    assert inside["x"]["parents"] == inside["inner"]["parents"] == []
    assert inside["y"] == fc("x", shares="x")
    assert inside["inner"]["layers"] == {"z": fc(), "w": flat("/data")}
    assert inside["v"]["parents"] == ["/data"]
    assert written["last"] == fc("b/inner/w", shares="b/x")
    assert len(text.splitlines()) == len(net(NESTED).layers) + 2 * 2 + 5  # a line for each layer


@pytest.mark.parametrize(
    "names",
    [
        ["a", "a/b", "a/b/c"],  # "a" is a layer, so it is no block
        ["a/b/c", "a/b"],
        ["a/b", "c", "a/d"],  # the layers of a block stand together when they are written
        ["a/", "/b", "a//c", "/"],  # a block needs a name
        ["a@0/b", "a@all/c", "a/b@x", "d/a@self/c"],  # "@0" at its end means a slice
        ["/".join("b" * depth) + "/x" for depth in (1, MAX_NESTING, MAX_NESTING + 9)],
        ["ä b/\n", 'ä b/"'],
    ],
    ids=lambda names: " ".join(names)[:20],
)
def test_any_names_are_read_as_they_were_written(names: list[str]) -> None:
    data = paleo.LAYERS["Input"](tensor=(2, 5))
    layer = paleo.LAYERS["Flatten"]()
    specs = [LayerSpec("data", data, ())]
    for name in names:
        specs.append(LayerSpec(name, layer, (specs[-1].name,)))
    spec = NetSpec("n", tuple(specs), source="somewhere")
    check(spec, ordered="c" not in names)
    # And each as the input's name.
    for name in names:
        check(NetSpec("n", (LayerSpec(name, data, ()), LayerSpec("z", layer, (name,)))))


PARTS = st.sampled_from(["a", "b", "c", "a@0", "", "@", "é"])
NAMES = st.lists(PARTS, min_size=1, max_size=4).map("/".join).filter(
    lambda name: name and not name.endswith("@0")
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.lists(NAMES, min_size=2, max_size=12, unique=True), st.data())
def test_a_random_net_is_read_as_it_was_written(names: list[str], data: Any) -> None:
    specs = [LayerSpec(names[0], paleo.LAYERS["Input"](tensor=(2, 5)), ())]
    owners: list[str] = []
    for name in names[1:]:
        seen = st.sampled_from([spec.name for spec in specs])
        parents = data.draw(st.lists(seen, min_size=1, max_size=3))
        shares = data.draw(st.sampled_from([None, *owners]))
        if shares is None:
            owners.append(name)
        layer = paleo.LAYERS["Elementwise"](function=data.draw(st.sampled_from(["sum", "mean"])))
        specs.append(LayerSpec(name, layer, tuple(parents), shares=shares))
    order = data.draw(st.permutations(specs))
    check(NetSpec("n", tuple(order)), ordered=False)


# Names from the root


def test_a_layer_in_a_block_names_one_of_the_whole_net() -> None:
    layers = {
        "b": block("data", x=flat(), inner=block(y=flat("/data"), z=flat("/b/x"))),
        "c": flat("/b"),
        "d": block(w=fc("/b/inner/y")),
    }
    layers["b"]["endpoint"] = "x"
    parents = {spec.name: spec.parents for spec in net(layers).layers}
    assert parents == {
        "data": (),
        "b/x": ("data",),
        "b/inner/y": ("data",),
        "b/inner/z": ("b/x",),
        "c": ("b/x",),  # the endpoint
        "d/w": ("b/inner/y",),
    }


def test_the_blocks_own_layer_goes_first() -> None:
    layers = {
        "x": flat("data"),
        "/x": flat("data"),
        "b": block("data", **{"/x": flat(), "y": flat("/x")}),
        "c": flat("/x"),
    }
    parents = {spec.name: spec.parents for spec in net(layers).layers}
    assert parents["b/y"] == ("b//x",)
    assert parents["c"] == ("/x",)


def test_a_slice_is_named_from_the_root() -> None:
    split = {"type": "ModelParallel", "parents": ["data"], "splits": 2, "layers": {"x": fc()}}
    layers = {"m": split, "b": {**block(y=flat("/m/x@1")), "parents": []}}
    assert net(layers).layers[-1].parents == ("m/x@1",)


# Shared parameters


def graph_of(layers: dict[str, Any]) -> paleo.Graph:
    return paleo.build(net(layers))


def test_shared_parameters_are_counted_once() -> None:
    layers = {"a": fc("data"), "b": fc("a", shares="c"), "c": fc("a"), "d": fc("b", shares="c")}
    graph = graph_of(layers)
    # 24*5 + 5 and 5*5 + 5; the order of the file and of the net do not matter.
    assert [node.num_params for node in graph.nodes] == [0, 125, 0, 30, 0]
    assert [node.shared_params for node in graph.nodes] == [0, 0, 30, 0, 30]
    assert graph.num_params == 155
    assert paleo.summarize(net(layers)).weights_bytes == 4 * 155
    alone = graph_of({name: {**body, "shares": None} for name, body in layers.items()})
    for node, other in zip(graph.nodes, alone.nodes, strict=True):
        for direction in LAYER_PASSES:
            # It computes with them, and their gradient, all the same.
            assert graph.work(node, direction) == alone.work(other, direction)
        assert node.is_trained == other.is_trained == (node.name != "data")


def test_what_only_one_has_is_its_own() -> None:
    # A table of 50*4 that is used again as a matrix of 4*50, with 50 biases of its own.
    sizes = {"num_embeddings": 50, "num_outputs": 4}
    graph = graph_of(
        {
            "words": {"type": "Input", "tensor": [2, 6]},
            "table": {"type": "Embedding", "parents": ["words"], **sizes},
            "scores": fc("table", num_outputs=50, axis=2, shares="table"),
            "flat": flat("data", shares="table"),
        }
    )
    assert {node.name: node.num_params for node in graph.nodes} == {
        "data": 0,
        "words": 0,
        "table": 200,
        "scores": 50,
        "flat": 0,
    }


@pytest.mark.parametrize("model", paleo.COST_MODELS)
def test_a_layer_of_shared_parameters_is_trained(model: str) -> None:
    # What comes after it in the net is needed for its gradient, by every cost model.
    shared = graph_of({"a": fc("data", shares="b"), "x": fc("a"), "b": fc("data")})
    owned = graph_of({"a": fc("data"), "x": fc("a"), "b": fc("data", shares="a")})
    times = [
        {
            layer.node.name: layer.seconds
            for layer in paleo.estimate_backward(graph, "K40", cost_model=model).layers
        }
        for graph in (shared, owned)
    ]
    assert times[0] == times[1]
    assert all(seconds > 0 for name, seconds in times[0].items() if name != "data")
