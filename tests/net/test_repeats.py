"""Repeated blocks: what they stand for, what is said of faulty ones, how they are written."""

from __future__ import annotations

import copy
import json
from typing import Any

import click.testing
import pytest

import paleo
from paleo.cli import cli
from paleo.net.spec import MAX_LAYERS
from paleo.net.writer import dumps
from paleo.studies.grouping import by_block

DATA = {"type": "Input", "parents": [], "tensor": [2, 8]}


def fc(*parents: str, **keys: Any) -> dict[str, Any]:
    return {"type": "InnerProduct", "parents": list(parents), "num_outputs": 8} | keys


def add(*parents: str) -> dict[str, Any]:
    return {"type": "Elementwise", "parents": list(parents)}


def block(*parents: str, repeat: Any = None, endpoint: str | None = None, **layers: Any) -> Any:
    keys = {"repeat": repeat, "endpoint": endpoint}
    given = {key: value for key, value in keys.items() if value is not None}
    return {"type": "Block", "parents": list(parents), **given, "layers": layers}


def loads(dims: dict[str, Any] | None = None, **layers: Any) -> paleo.NetSpec:
    body = {"name": "n", "dims": dims or {}, "layers": {"data": DATA, **layers}}
    return paleo.loads(json.dumps(body), "f.json")


def parents(net: paleo.NetSpec) -> dict[str, list[str]]:
    return {spec.name: list(spec.parents) for spec in net.layers}


def fault(**layers: Any) -> list[str]:
    with pytest.raises(paleo.NetSpecError) as caught:
        loads(**layers)
    return [str(each).removeprefix("f.json: ") for each in caught.value.mistakes]


CHAIN = block("data", repeat=3, endpoint="sum", a=fc(), b=fc("a"), sum=add("..", "b"))


def test_each_instance_reads_the_one_before() -> None:
    net = loads(h=CHAIN, last=fc("h"), first=fc("h/0"), inner=fc("h/1/b"))
    assert parents(net) == {
        "data": [],
        "h/0/a": ["data"],
        "h/0/b": ["h/0/a"],
        "h/0/sum": ["data", "h/0/b"],
        "h/1/a": ["h/0/sum"],
        "h/1/b": ["h/1/a"],
        "h/1/sum": ["h/0/sum", "h/1/b"],
        "h/2/a": ["h/1/sum"],
        "h/2/b": ["h/2/a"],
        "h/2/sum": ["h/1/sum", "h/2/b"],
        "last": ["h/2/sum"],
        "first": ["h/0/sum"],
        "inner": ["h/1/b"],
    }
    assert net.repeats == {"h/*/": 3}
    assert net.in_file("h/2/sum") == "h/*/sum"
    assert net.in_file("last") == "last"
    assert paleo.summarize(net).num_params == (3 * 2 + 3) * (8 * 8 + 8)


def test_it_is_what_its_instances_are_when_written_out() -> None:
    one, two = (
        block(parent, endpoint="sum", a=fc(), b=fc("a"), sum=add("..", "b"))
        for parent in ("data", "h/0")
    )
    net = loads(h={**CHAIN, "repeat": 2}, last=fc("h"))
    assert net.layers == loads(**{"h/0": one, "h/1": two, "last": fc("h/1")}).layers


def written_out(count: int, **layers: Any) -> dict[str, Any]:
    """Return as many blocks, each reading the one before, as layers that are not repeated."""
    parents = ["data", *(f"h/{i}" for i in range(count - 1))]
    return {f"h/{i}": block(p, endpoint="sum", **layers) for i, p in enumerate(parents)}


def test_a_long_row_is_what_its_instances_are_when_written_out() -> None:
    layers = {"a": fc(), "b": fc("a", shares="/w"), "c": fc("b", shares="a"), "sum": add("..", "c")}
    around = {"w": fc("data"), "last": add("h/12/sum", "h/11/a", "w")}
    net = loads(h=block("data", repeat=13, endpoint="sum", **layers), **around)
    whole = loads(**written_out(13, **layers), **around)
    # Five are there at each end, of 13, and of the three between them none is made yet.
    assert len(net.few.layers) == 1 + 10 * 4 + 2
    assert len(net.layers) == len(whole.layers) == 1 + 13 * 4 + 2
    behind = next(spec for spec in net.few.layers if spec.name == "h/8/sum")
    assert behind.parents == ("h/4/sum", "h/8/c")
    assert hash(net) == hash(whole)
    assert net == whole
    assert net.layers[:3] == whole.layers[:3]
    assert paleo.build(net).nodes == paleo.build(whole).nodes
    assert copy.deepcopy(net) == whole


DOUBLED = {"type": "Concatenate", "parents": ["..", ".."], "dim": 1}


@pytest.mark.parametrize(
    ("keys", "around"),
    [
        ({}, {"last": fc("h/6/sum")}),  # one in the middle is read
        ({"a": fc("/h/0/b")}, {"last": fc("h")}),  # each reads the first
        ({"b": fc("a", dtype={"by_index": ["", "fp16"]})}, {}),
        ({"sum": DOUBLED}, {}),
    ],
)
def test_a_long_row_that_is_not_even_is_all_there(
    keys: dict[str, Any], around: dict[str, Any]
) -> None:
    layers = {"a": fc(), "b": fc("..", num_outputs=8), "sum": add("..", "b"), **keys}
    net = loads(h=block("data", repeat=12, endpoint="sum", **layers), **around)
    assert net.few is net
    assert len(net.layers) == 1 + 12 * 3 + len(around)
    assert paleo.build(net).nodes[-1].inputs[0] == (2, 8 * 2**11 if "sum" in keys else 8)


def test_a_mistake_far_behind_is_said_of_its_instance() -> None:
    # From block to block rows are twice as long, until there are more elements than are counted.
    (line,) = fault(h=block("data", repeat=70, endpoint="sum", sum=DOUBLED))
    assert line.startswith('layer "h/5')
    assert fault(**written_out(70, sum=DOUBLED)) == [line]


def test_a_repeat_of_one_has_an_index() -> None:
    net = loads(h={**CHAIN, "repeat": 1}, last=fc("h"))
    assert [spec.name for spec in net.layers] == ["data", "h/0/a", "h/0/b", "h/0/sum", "last"]


def test_names_around_an_inner_block() -> None:
    inner = block("a", x=fc(), y=add("x", "..", "../a", "../..", "../../other", "/data"))
    net = loads(other=fc("data"), h=block("data", repeat=2, endpoint="i/y", a=fc(), i=inner))
    assert parents(net)["h/1/i/y"] == ["h/1/i/x", "h/1/a", "h/1/a", "h/0/i/y", "other", "data"]
    assert parents(net)["h/0/i/y"] == ["h/0/i/x", "h/0/a", "h/0/a", "data", "other", "data"]


def test_blocks_that_are_not_repeated_take_names_around_too() -> None:
    net = loads(h=block("data", a=fc(), i=block("a", x=add("..", "../a", "../..", "../../data"))))
    assert parents(net)["h/i/x"] == ["h/a", "h/a", "data", "data"]


def test_repeats_in_repeats() -> None:
    inner = block("a", repeat=2, endpoint="x", x=add("..", "../a"))
    net = loads(
        h=block("data", repeat=2, endpoint="i", a=fc(), i=inner),
        last=add("h", "h/0", "h/0/i", "h/1/i/0", "h/0/i/1/x"),
    )
    assert parents(net) == {
        "data": [],
        "h/0/a": ["data"],
        "h/0/i/0/x": ["h/0/a", "h/0/a"],
        "h/0/i/1/x": ["h/0/i/0/x", "h/0/a"],
        "h/1/a": ["h/0/i/1/x"],
        "h/1/i/0/x": ["h/1/a", "h/1/a"],
        "h/1/i/1/x": ["h/1/i/0/x", "h/1/a"],
        "last": ["h/1/i/1/x", "h/0/i/1/x", "h/0/i/1/x", "h/1/i/0/x", "h/0/i/1/x"],
    }
    assert net.repeats == {"h/*/": 2, "h/*/i/*/": 2}
    assert net.in_file("h/1/i/0/x") == "h/*/i/*/x"


def test_what_differs_by_index_is_that_of_the_innermost_block() -> None:
    inner = block("..", repeat=3, endpoint="x", x=fc(num_outputs={"by_index": [4, 8]}))
    net = loads(
        h=block("data", repeat=2, endpoint="b", i=inner,
                b=fc("i", num_outputs={"by_index": ["w", 2]}, dtype={"by_index": ["", "int8"]})),
        dims={"w": 8},
    )  # fmt: skip
    outputs = {spec.name: vars(spec.layer).get("num_outputs") for spec in net.layers}
    assert outputs == {
        "data": None,
        "h/0/i/0/x": 4, "h/0/i/1/x": 8, "h/0/i/2/x": 4, "h/0/b": 8,
        "h/1/i/0/x": 4, "h/1/i/1/x": 8, "h/1/i/2/x": 4, "h/1/b": 2,
    }  # fmt: skip
    assert [spec.dtype for spec in net.layers if spec.name.endswith("/b")] == ["", "int8"]


def test_lists_of_two_and_three_cycle_each_by_itself() -> None:
    conv: Any = {"type": "Convolution", "parents": [], "strides": [1, 1, 1], "padding": "SAME"}
    conv |= {"filter": {"by_index": [[1, 8, 8], [3, 8, 8]]}}
    conv |= {"use_bias": {"by_index": [True, False, False]}}
    net = paleo.loads(json.dumps({"name": "n", "layers": {
        "data": {"type": "Input", "tensor": [1, 9, 8]},
        "h": block("data", repeat=7, endpoint="c", c=conv),
    }}))  # fmt: skip
    layers = [vars(spec.layer) for spec in net.layers[1:]]
    assert [layer["filter"][0] for layer in layers] == [1, 3, 1, 3, 1, 3, 1]
    assert [layer["use_bias"] for layer in layers] == [True, False, False] * 2 + [True]


def test_parameters_shared_inside_with_the_outside_and_with_the_first() -> None:
    net = loads(
        own=fc("data"),
        h=block(
            "data", repeat=3, endpoint="d",
            a=fc(), b=fc("a", shares="a"), c=fc("b", shares="/own"), d=fc("c", shares="/h/0/d"),
        ),
    )  # fmt: skip
    shares = {spec.name: spec.shares for spec in net.layers if spec.shares}
    assert shares == {
        "h/0/b": "h/0/a", "h/0/c": "own",
        "h/1/b": "h/1/a", "h/1/c": "own", "h/1/d": "h/0/d",
        "h/2/b": "h/2/a", "h/2/c": "own", "h/2/d": "h/0/d",
    }  # fmt: skip
    assert paleo.summarize(net).num_params == (1 + 3 + 1) * 72


def test_split_layers_in_a_repeated_block() -> None:
    split = {"type": "ModelParallel", "parents": [], "splits": 2, "layers": {"x": fc()}}
    join = {"type": "Concatenate", "parents": ["m/x@all"]}
    net = loads(h=block("data", repeat=2, endpoint="j", m=split, j=join))
    assert parents(net)["h/1/m/x@1"] == ["h/0/j"]
    assert parents(net)["h/1/j"] == ["h/1/m/x@0", "h/1/m/x@1"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"repeat": 0}, 'layer "h": key "repeat": expected 1 or more, got 0'),
        ({"repeat": 2.5}, 'layer "h": key "repeat": expected a whole number, got 2.5'),
        ({"repeat": "x"}, 'layer "h": key "repeat": there is no dim "x"; the net has no dims'),
        ({"repeat": None}, 'layer "h": key "repeat": expected a whole number, got null'),
        ({"repeat": MAX_LAYERS // 3 + 1},
         'layer "h": key "repeat": 33334 x 3 layers are too many (at most 100000)'),
        ({"endpoint": "sun"},

         ('layer "h": key "endpoint": there is no layer "sun" in this block'
          " (did you mean 'sum'?)")),
        ({"endpoint": ".."}, 'layer "h": key "endpoint": there is no layer ".." in this block'),
        ({"endpoint": "/data"},
         'layer "h": key "endpoint": there is no layer "/data" in this block'),
        ({"parents": ["data", "data"]},
         'layer "h": key "parents": a repeated block reads one layer, got 2'),
        ({"parents": ["date"]},
         'layer "h": key "parents": there is no layer "date" (did you mean \'data\'?)'),
        ({"type": "ModelParallel", "splits": 2},
         "layer \"h\": key \"repeat\": unknown key; there are: type, parents, layers, splits"),
    ],
)  # fmt: skip
def test_a_faulty_repeat_is_one_line(change: dict[str, Any], said: str) -> None:
    found = fault(h={**CHAIN, **change}, last=fc("h/2/a"))
    assert found[0] == said
    if "type" not in change:
        assert len(found) == 1


def test_a_repeat_needs_an_endpoint() -> None:
    said = 'layer "h": key "endpoint": missing: it is what the next instance of a repeated'
    (line,) = fault(h={key: value for key, value in CHAIN.items() if key != "endpoint"})
    assert line.startswith(said)


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        (fc("c"), 'key "parents": there is no layer "c" in Block "h"'),
        (fc("..", "a"), 'key "parents": InnerProduct takes one parent, got 2'),
        (fc("../.."), 'key "parents": there is no layer ".."'),
        (fc(num_outputs=0), 'key "num_outputs": expected 1 or more, got 0'),
        (fc(num_outputs={"by_index": [8, 0, 0]}), 'key "num_outputs": expected 1 or more, got 0'),
        (fc(num_outputs={"by_index": []}), 'key "num_outputs": expected {"by_index": [...]}'),
        (fc(num_outputs=[8]), 'key "num_outputs": expected a whole number, got [8]'),
        (fc(color=1), 'key "color": unknown key'),
        (fc(shares="a"), 'key "shares": name the layer that the parameters belong to'),
        (fc(dtype="int7"), "key \"dtype\": expected an element type, got \"int7\""),
    ],
)  # fmt: skip
def test_a_mistake_in_a_repeated_block_is_said_once(layer: dict[str, Any], said: str) -> None:
    inside = copy.deepcopy(CHAIN)
    inside["layers"] |= {"a": layer, "b": fc(".."), "sum": add("..", "b")}
    (line,) = fault(h=inside)
    assert line.startswith(f'layer "h/*/a": {said}')


def test_shapes_that_do_not_fit_are_said_once() -> None:
    wide = copy.deepcopy(CHAIN)
    wide["layers"]["b"]["num_outputs"] = 9
    (line,) = fault(h=wide)
    assert line == 'layer "h/*/sum": its parents differ in shape: 2x8, 2x9'


def test_a_shape_that_does_not_fit_at_one_index_is_said_of_that() -> None:
    wide = copy.deepcopy(CHAIN)
    wide["layers"]["b"]["num_outputs"] = {"by_index": [8, 9]}
    (line,) = fault(h=wide)
    assert line == 'layer "h/1/sum": its parents differ in shape: 2x8, 2x9'


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("h/3", 'there is no layer "h/3": "h" has 0 to 2'),
        ("h/3/a", 'there is no layer "h/3/a": "h" has 0 to 2'),
        ("/h/*/a", 'there is no layer "/h/*/a": "h" has 0 to 2'),
        ("h/a", 'there is no layer "h/a"'),
        ("h/0/c", 'there is no layer "h/0/c"'),
    ],
)
def test_a_reference_to_no_instance(reference: str, said: str) -> None:
    (line,) = fault(h=CHAIN, last=fc(reference))
    assert line.startswith(f'layer "last": key "parents": {said}')


def test_a_layer_beside_cannot_have_the_name_of_one_inside() -> None:
    assert fault(h=CHAIN, **{"h/1/a": fc("data")}) == ['layer "h/1/a": two layers have this name']


def test_what_cannot_differ_or_be_repeated() -> None:
    (line,) = fault(x=fc("data", num_outputs={"by_index": [8]}))
    assert line == ('layer "x": key "num_outputs": by_index is for the layers of a repeated block')
    split = {"type": "ModelParallel", "parents": ["data"], "splits": 2}
    inside = block(repeat=2, endpoint="x@self", x=fc())
    assert 'layer "m/h": key "repeat": a ModelParallel cannot hold a repeated block' in fault(
        m={**split, "layers": {"h": inside}}
    )


# Writing


def flat(count: int, **changes: Any) -> dict[str, Any]:
    """Return blocks h/0, h/1, ... written out, with layers of some of them changed."""
    layers: dict[str, Any] = {}
    before = "/data"
    for i in range(count):
        inside = {"a": fc(before), "b": fc("a"), "sum": add(before, "b")}
        layers[f"h/{i}"] = block(**inside | changes.get(f"h{i}", {}))
        before = f"/h/{i}/sum"
    return {**layers, "last": fc(before)}


def check(net: paleo.NetSpec) -> dict[str, Any]:
    """Return the layers of what is written of a net, which is read as it was."""
    text = dumps(net)
    again = paleo.loads(text)
    assert again.layers == net.layers
    assert dumps(again) == text
    layers: dict[str, Any] = json.loads(text)["layers"]
    return layers


def test_equal_blocks_in_a_chain_are_written_as_one() -> None:
    written = check(loads(**flat(4)))
    assert written["h"] == {**CHAIN, "repeat": 4}
    assert written["last"] == fc("h/3/sum")


@pytest.mark.parametrize(
    "changes",
    [
        {"h1": {"b": fc("a", num_outputs=8, use_bias=False)}},  # not equal
        {"h2": {"a": fc("/data")}},  # another instance, or the outside, is read
        {"h2": {"a": fc("/h/0/sum")}},
        {"h2": {"a": fc("/h/1/sum"), "c": fc("a"), "b": fc("c")}},
        {"h0": {"a": fc("/data"), "b": fc("a"), "sum": add("b", "/data")}},
    ],
)
def test_blocks_that_differ_are_written_out(changes: dict[str, Any]) -> None:
    written = check(loads(**flat(3, **changes)))
    assert list(written["h"]["layers"]) == ["0", "1", "2"]


def test_inner_blocks_are_written_with_names_around() -> None:
    def one(before: str, i: int) -> Any:
        inner = block(f"/h/{i}/a", x=fc(), y=add("x", before, f"/h/{i}/a", "/data"))
        return block(a=fc(before), i=inner)

    net = loads(**{"h/0": one("/data", 0), "h/1": one("/h/0/i/y", 1), "h/2": one("/h/1/i/y", 2)})
    written = check(net)
    inner = written["h"]["layers"]["i"]
    assert (written["h"]["repeat"], written["h"]["endpoint"]) == (3, "i/y")
    assert inner["parents"] == ["a"]
    # The first instance reads the input: the others name it, so that is what is written.
    assert inner["layers"]["y"] == add("x", "../..", "../a", "/data")


def test_repeats_in_repeats_are_written_as_they_are() -> None:
    inner = block("a", repeat=2, endpoint="x", x=add("..", "../a"))
    net = loads(h=block("data", repeat=3, endpoint="i", a=fc(), i=inner))
    flat_net = paleo.edit(net, set="data.tensor[1]=8")  # no longer what the file says
    assert flat_net.description is None
    assert paleo.loads(dumps(flat_net)).layers == net.layers
    written = json.loads(dumps(flat_net))["layers"]["h"]
    assert (written["repeat"], written["layers"]["i"]["repeat"]) == (3, 2)


def test_layers_that_share_those_of_the_first_are_written_as_one() -> None:
    net = loads(h=block("data", repeat=3, endpoint="d", d=fc(shares="/h/0/d")))
    made = paleo.edit(net, set="data.tensor[1]=8")
    assert json.loads(dumps(made))["layers"]["h"]["layers"]["d"]["shares"] == "/h/0/d"
    assert paleo.loads(dumps(made)).layers == net.layers


def test_names_that_mean_something_are_written_out() -> None:
    net = loads(**{"h/0/..": fc("data"), "h/1/..": fc("h/0/..")})
    assert list(check(net)["h"]["layers"]) == ["0", "1"]


# Summaries


def test_instances_are_one_line() -> None:
    net = loads(h=CHAIN, last=fc("h"))
    groups = {group.name: group for group in by_block(paleo.summarize(net), 2)}
    assert {name: group.instances for name, group in groups.items()} == {
        "data": 1, "h/*": 3, "last": 1,
    }  # fmt: skip
    assert len(groups["h/*"].layers) == 3 * 3
    assert groups["h/*"].num_params == 3 * 2 * 72
    deep = {group.name: group.instances for group in by_block(paleo.summarize(net), 3)}
    assert deep == {"data": 1, "h/*/a": 3, "h/*/b": 3, "h/*/sum": 3, "last": 1}


def test_instances_of_instances_multiply() -> None:
    inner = block("a", repeat=2, endpoint="x", x=add("..", "../a"))
    net = loads(h=block("data", repeat=3, endpoint="i", a=fc(), i=inner))
    groups = by_block(paleo.summarize(net), 4)
    assert {group.name: group.instances for group in groups} == {
        "data": 1, "h/*/a": 3, "h/*/i/*": 6,
    }  # fmt: skip


def test_a_screen_has_blocks_with_how_often_they_are() -> None:
    result = click.testing.CliRunner().invoke(cli, ["summary", "gpt2_xl", "--depth=2"])
    names = [line.split("  ")[0] for line in result.output.splitlines()]
    assert "h x 48" in names
    assert len(names) < 24
