"""Named dimensions: what expressions come to, who uses them, what is wrong with them."""

from __future__ import annotations

import json
from typing import Any

import click.testing
import pytest
from hypothesis import given
from hypothesis import strategies as st

import paleo
from paleo.cli import cli
from paleo.core.errors import Mistakes
from paleo.net.dims import Dims
from paleo.net.writer import dumps

WORDS = {"type": "Input", "tensor": [4, "seq"]}
TABLE = {"type": "Embedding", "parents": ["words"], "num_embeddings": 50, "num_outputs": "width"}
FC = {"type": "InnerProduct", "parents": ["table"], "num_outputs": "4 * width", "axis": -1}
NET: dict[str, Any] = {
    "name": "n",
    "dims": {"seq": 12, "width": "heads * 8", "heads": 3},
    "layers": {"words": WORDS, "table": TABLE, "fc": FC},
}


def loads(dims: dict[str, Any] | None = None, **layers: Any) -> paleo.NetSpec:
    net = {**NET, "dims": {**NET["dims"], **(dims or {})}}
    net["layers"] = {**NET["layers"], **layers}
    return paleo.loads(json.dumps(net), "f.json")


def fault(dims: dict[str, Any] | None = None, **layers: Any) -> str:
    """Return what is said of the net with other dimensions and layers, without the file's name."""
    with pytest.raises(paleo.NetSpecError) as caught:
        loads(dims, **layers)
    return "\n".join(str(each).removeprefix("f.json: ") for each in caught.value.mistakes)


def value(text: str, **sizes: Any) -> int:
    mistakes = Mistakes()
    found = Dims(sizes, {}, mistakes).evaluate(text)
    assert not mistakes
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", 12),
        ("2 + 3*a", 38),
        ("(2+3) * a", 60),
        ("a - b - 1", 6),  # from the left
        ("a / 2 / 3", 2),
        ("a // b", 2),
        ("a % b + 0", 2),
        ("-a // b", -3),  # rounds down, and - binds closer
        ("- -a", 12),
        ("ceil_div(a, b)", 3),
        ("min(a, b, 7)", 5),
        ("max(a, b) + min(1, 2)", 13),
        ("9007199254740993 * a", 108086391056891916),  # more than a float holds
    ],
)
def test_an_expression_comes_to(text: str, expected: int) -> None:
    assert value(text, a=12, b=5) == expected


_Tree = Any


def trees() -> st.SearchStrategy[_Tree]:
    leaves = st.integers(0, 99) | st.sampled_from(["a", "b_2"])
    signs = st.sampled_from(["+", "-", "*", "//", "%"])
    return st.recursive(leaves, lambda inner: st.tuples(signs, inner, inner), max_leaves=8)


def written(tree: _Tree) -> str:
    return (
        f"({written(tree[1])} {tree[0]} {written(tree[2])})" if type(tree) is tuple else str(tree)
    )


def computed(tree: Any) -> int:
    if type(tree) is not tuple:
        return int({"a": 7, "b_2": 10}.get(tree, tree))
    sign, left, right = tree[0], computed(tree[1]), computed(tree[2])
    if sign in ("+", "-"):
        return left + right * (1 if sign == "+" else -1)
    if sign == "*":
        return left * right
    quotient, rest = divmod(left, right)
    return quotient if sign == "//" else rest


@given(trees())
def test_a_written_tree_comes_to_what_the_tree_does(tree: _Tree) -> None:
    text = f"{written(tree)} + 0"
    try:
        expected = computed(tree)
    except ZeroDivisionError:
        with pytest.raises(ValueError, match="divides by zero"):
            value(text, a=7, b_2=10)
    else:
        assert value(text, a=7, b_2=10) == expected


def test_layers_take_dimensions_by_name_and_arithmetic() -> None:
    net = loads()
    # width = 3 heads x 8; the file's order of dimensions is free
    assert net.dims == {"seq": 12, "width": 24, "heads": 3}
    summary = paleo.summarize(net)
    assert [layer.output for layer in summary.layers] == [(4, 12), (4, 12, 24), (4, 12, 96)]
    assert summary.num_params == 50 * 24 + 24 * 96 + 96


def test_other_sizes_take_the_place_of_the_files() -> None:
    net = loads().with_dims(seq=5, heads=2)
    assert net.dims == {"seq": 5, "width": 16, "heads": 2}
    assert paleo.summarize(net).layers[-1].output == (4, 5, 64)
    assert net.name == "n seq=5, heads=2"
    # what an expression comes to may be chosen too; what was chosen before stays
    assert net.with_dims(width=10).dims == {"seq": 5, "width": 10, "heads": 2}
    assert net.with_dims(seq=12, heads=3) == loads()
    assert net.with_dims() is net


def test_a_batch_keeps_dimensions() -> None:
    net = loads().with_batch(9).with_dims(seq=2)
    assert paleo.build(net).nodes[1].output == (9, 2, 24)
    assert json.loads(dumps(net))["dims"] == {"seq": 2, "width": "heads * 8", "heads": 3}
    # where a dimension is the batch, its name gives way
    batch = loads({"n": 4}, words={**WORDS, "tensor": ["n", "seq"]}).with_batch(6)
    assert paleo.build(batch).batch_size == 6


def test_a_net_with_dimensions_is_written_as_it_was_read() -> None:
    net = loads().with_dims(seq=7)
    body = json.loads(dumps(net))
    expected = {**NET, "name": "n seq=7", "dims": {**NET["dims"], "seq": 7}}
    assert body == expected
    assert paleo.loads(dumps(net)) == paleo.loads(dumps(paleo.loads(dumps(net))))
    assert paleo.loads(dumps(net)).layers == net.layers


def test_an_edited_net_has_numbers_and_no_dimensions_to_set() -> None:
    net = paleo.edit(loads(), set="fc.num_outputs=10")
    assert json.loads(dumps(net))["layers"]["table"]["num_outputs"] == 24
    with pytest.raises(paleo.NetSpecError, match="set its dims before it is edited"):
        net.with_dims(seq=3)


@pytest.mark.parametrize(
    ("dims", "said"),
    [
        ({"spare": 1}, 'key "dims.spare": no layer uses it'),
        ({"seq": "width", "width": "seq"}, 'key "dims.seq": a cycle: seq -> width -> seq'),
        ({"seq": "seq + 1"}, 'key "dims.seq": a cycle: seq -> seq'),
        ({"seq": 0}, 'key "dims.seq": expected 1 or more, got 0'),
        ({"seq": 2**31}, 'key "dims.seq": 2147483648 is too large to mean anything'),
        ({"seq": "heads - 3"}, 'key "dims.seq": expected 1 or more, got 0'),
        ({"seq": 1.5}, 'key "dims.seq": expected a whole number, got 1.5'),
        ({"seq": "5"}, 'key "dims.seq": expected a whole number, got "5"'),
        ({"seq": [1]}, 'key "dims.seq": expected a whole number, got [1]'),
        ({"seq": "heads / 2"}, 'key "dims.seq": "heads / 2": 3 / 2 leaves a remainder'),
        ({"seq": "1 // (heads - 3)"}, 'key "dims.seq": "1 // (heads - 3)" divides by zero'),
        ({"seq": "head * 2"}, "there is no dim \"head\" (did you mean 'heads'?)"),
        ({"seq": "heads *"}, '"heads *" is no expression: a number, a dim or "(" is missing'),
        ({"seq": "heads heads"}, '"heads" stands where it should end'),
        ({"seq": "(heads"}, 'a ")" is missing'),
        ({"seq": "heads ^ 2"}, '"^" has no meaning there'),
        ({"seq": "abs(heads)"}, 'there is no function "abs": min, max, ceil_div are all'),
        ({"seq": "min(heads)"}, "min takes two or more numbers, got 1"),
        ({"seq": "ceil_div(heads, 1, 2)"}, "ceil_div takes two numbers, got 3"),
        ({"seq": "heads" + " + 1" * 60}, "longer than 200 characters"),
        ({"seq": "(" * 21 + "heads" + ")" * 21}, "nested more than 20 deep"),
        ({"seq": "heads + " + "-" * 30 + "1"}, "nested more than 20 deep"),
        ({"seq": "heads + " + "1" * 31}, "too many digits"),
        ({"a b": 1}, 'key "dims.a b": not a name of a dim'),
        ({"max": 1}, 'key "dims.max": not a name of a dim'),
    ],
)
def test_a_faulty_dimension_is_one_line(dims: dict[str, Any], said: str) -> None:
    message = fault(dims)
    assert said in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        ({**FC, "num_outputs": "widht"}, "there is no dim \"widht\" (did you mean 'width'?)"),
        ({**FC, "num_outputs": "width - 24"}, "expected 1 or more, got 0"),
        ({**FC, "num_outputs": "width / 5"}, '"width / 5": 24 / 5 leaves a remainder'),
        ({**FC, "num_outputs": "12"}, 'expected a whole number, got "12"'),
    ],
)
def test_a_faulty_expression_names_layer_and_key(layer: dict[str, Any], said: str) -> None:
    assert fault(fc=layer) == f'layer "fc": key "num_outputs": {said}'


def test_a_text_where_a_net_has_no_dimensions() -> None:
    net = {"name": "n", "layers": {"x": {"type": "Input", "tensor": [1, "seq"]}}}
    with pytest.raises(paleo.NetSpecError) as caught:
        paleo.loads(json.dumps(net))
    assert str(caught.value) == (
        'layer "x": key "tensor": there is no dim "seq"; the net has no dims'
    )


def test_texts_of_their_own_stay_texts() -> None:
    net = loads(
        act={"type": "Activation", "parents": ["fc"], "function": "relu"},
        own={"type": "Einsum", "parents": ["fc"], "equation": "nls->nsl"},
    )
    assert paleo.build(net).nodes[-1].output == (4, 96, 12)


@pytest.mark.parametrize("dims", [3, ["seq"], "seq"])
def test_dims_are_an_object(dims: Any) -> None:
    with pytest.raises(paleo.NetSpecError, match='key "dims": expected an object: names to sizes'):
        paleo.loads(json.dumps({**NET, "dims": dims}))


def test_a_dimension_given_twice() -> None:
    text = json.dumps(NET).replace('"heads": 3', '"heads": 3, "heads": 3')
    with pytest.raises(paleo.NetSpecError, match=r'key "dims\.heads": given twice'):
        paleo.loads(text)


def test_chosen_dimensions_are_checked() -> None:
    net = loads()
    with pytest.raises(paleo.NetSpecError, match=r"there is no such dim \(did you mean 'seq'"):
        net.with_dims(sec=3)
    with pytest.raises(paleo.NetSpecError, match=r'key "dims\.seq": expected 1 or more, got 0'):
        net.with_dims(seq=0)
    with pytest.raises(paleo.NetSpecError, match=r'"dims\.seq": expected a whole number, got "3"'):
        net.with_dims(seq="3")
    with pytest.raises(paleo.NetSpecError, match="alexnet: it has no dims to set"):
        paleo.load("alexnet", dims={"seq": 3})


@pytest.mark.parametrize(
    ("net", "positions", "most"), [("gpt2", "wpe", 1024), ("bert_base", "positions", 512)]
)
def test_a_sequence_beyond_the_positions_is_said(net: str, positions: str, most: int) -> None:
    paleo.load(net, dims={"seq": most})
    with pytest.raises(paleo.NetSpecError) as caught:
        paleo.load(net, dims={"seq": most + 1})
    assert str(caught.value) == (
        f'{net}: layer "{positions}": key "output_shape": it picks {most + 1} different rows, '
        f"such as positions, of {most}"
    )


def test_half_the_words_take_half_the_products_and_a_quarter_of_attention() -> None:
    """GPT-2: 24 H^2 + 4 S H FLOPs a word and layer, 2 V H of scores; and those of a mask."""
    flops = {}
    for seq in (512, 1024):
        net = paleo.load("gpt2", dims={"seq": seq})
        products = (
            layer.forward_flops
            for layer in paleo.summarize(net, 1).layers
            if layer.type_name in ("InnerProduct", "MatMul")
        )
        flops[seq] = sum(products)
        words = 12 * (24 * 768**2 + 4 * seq * 768) + 2 * 50257 * 768
        assert flops[seq] == seq * words


def call(*arguments: str, status: int = 0) -> str:
    result = click.testing.CliRunner().invoke(cli, arguments, prog_name="paleo")
    assert result.exit_code == status, result.output
    return result.output


def test_the_command_line_sets_dimensions() -> None:
    said = call("summary", "gpt2", "--seq_len=64", "--format=csv")
    (row,) = (line for line in said.splitlines() if ",h/11/attn/softmax,Softmax," in line)
    assert "8x12x64x64" in row
    assert said == call("summary", "gpt2", "--dim=seq=64", "--format=csv")


def test_several_sizes_are_several_nets() -> None:
    said = call(
        "memory", "gpt2", "--dim=seq=64,128", "--dim=layers=2", "--batch_size=1", "--format=csv"
    )
    names = {line.split('"')[1] for line in said.splitlines()[1:]}
    assert names == {"gpt2 seq=64, layers=2", "gpt2 seq=128, layers=2"}


def test_a_dimension_is_given_once() -> None:
    said = call("summary", "gpt2", "--dim=seq=64", "--seq_len=32", status=1)
    assert "--dim: seq is given 2 times" in said


def test_an_unknown_dimension_on_the_command_line() -> None:
    said = call("summary", "gpt2", "--dim=sequence=64", status=1)
    assert said.count("\n") == 1
    assert 'key "dims.sequence": there is no such dim' in said
    assert "seq, positions, vocabulary, layers, hidden, heads" in said


def test_one_net_is_compared_with_itself_at_another_length() -> None:
    said = call("compare", "gpt2", "--seq_len=512", "--device=A100_SXM_80GB", "--batch_size=1")
    assert "gpt2 seq=512 against gpt2" in said
