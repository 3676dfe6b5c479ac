"""nets/README.md, the reference of the net-spec format, against the code; and the schema.

Layer types that have no section there have one made of their docstrings, which is held to the same.
Each ```json block is a whole net. The ```text block after it says what Paleo answers, in
lines that `ANSWER` matches; those after ```json faulty are messages.
"""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from jsonschema_rs import Draft202012Validator, meta

import paleo
from paleo.net.reference import layer_section
from paleo.net.schema import net_schema
from paleo.net.spec import BLOCKS, LAYER_KEYS, ROOT_KEYS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "nets" / "README.md").read_text("utf-8")
#: Types that say all there is to know in their docstrings.
NOT_ON_THE_PAGE = [name for name in paleo.LAYERS if f"\n### {name}\n" not in PAGE]
README = PAGE + "".join(f"\n{layer_section(name)}" for name in NOT_ON_THE_PAGE)
ANSWER = re.compile(
    r"Output of (?P<name>\S+): (?P<output>\d+(?:x\d+)*), "
    r"parameters (?P<params>\d+), forward FLOPs (?P<flops>\d+)"
)
NETS = sorted((ROOT / "nets").glob("*.json"))
VALIDATOR = Draft202012Validator(net_schema())


def blocks(kind: str, text: str = README) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


class Example(NamedTuple):
    """A net on the page, and the lines of the text block that follows, if one does."""

    net: str
    answers: list[str]

    @property
    def name(self) -> str:
        return str(json.loads(self.net)["name"])


def find_examples(kind: str) -> list[Example]:
    pattern = rf"^```{kind}\n(.*?)^```$((?:(?!^```).)*)(?:^```text\n(.*?)^```$)?"
    found = re.findall(pattern, README, re.DOTALL | re.MULTILINE)
    return [Example(net, answers.splitlines()) for net, _, answers in found]


EXAMPLES = find_examples("json")
each_example = pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)


def sections() -> dict[str, str]:
    """Return the text under each heading, up to the next."""
    parts = re.split(r"^#+ (.+)$", README, flags=re.MULTILINE)
    headings = parts[1::2]
    assert len(set(headings)) == len(headings)
    return dict(zip(headings, parts[2::2], strict=True))


SECTIONS = sections()


def table(text: str) -> list[list[str]]:
    """Return the rows of the first table in a text, without its head."""
    lines = iter(text.splitlines())
    rows = []
    for line in lines:
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
        elif rows:
            break
    return rows[2:]


def keys_in(text: str) -> dict[str, str]:
    """Return the keys that the first table lists, each with its last column."""
    return {row[0].strip("`"): row[-1] for row in table(text)}


def layers_in(layers: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Return all layers and blocks of a decoded net, the nested too."""
    for layer in layers.values():
        yield layer
        yield from layers_in(layer.get("layers", {}))


def test_the_page_is_read_as_it_is_written() -> None:
    assert len(EXAMPLES) == len(blocks("json")) >= 20
    assert len({example.name for example in EXAMPLES}) == len(EXAMPLES)
    assert README.count("```") == 2 * sum(
        len(blocks(kind)) for kind in ("json", "json faulty", "json settings", "text", "python")
    )


@each_example
def test_an_example_gives_what_the_page_says(example: Example) -> None:
    summary = paleo.summarize(paleo.loads(example.net))
    found = {layer.name: layer for layer in summary.layers}
    assert example.answers
    for line in example.answers:
        stated = ANSWER.fullmatch(line)
        assert stated, line
        layer = found[stated["name"]]
        shape = "x".join(map(str, layer.output))
        assert (shape, layer.num_params, layer.forward_flops) == (
            stated["output"],
            int(stated["params"]),
            int(stated["flops"]),
        )


@each_example
def test_an_example_takes_another_batch(example: Example) -> None:
    summary = paleo.summarize(paleo.loads(example.net), 3)
    for layer in summary.layers:
        assert layer.output[0] == (1 if layer.type_name == "Parameter" else 3)


@each_example
def test_an_example_is_valid_by_the_schema(example: Example) -> None:
    VALIDATOR.validate(json.loads(example.net))


@each_example
def test_an_unknown_key_in_any_layer_of_an_example_is_refused(example: Example) -> None:
    count = len(list(layers_in(json.loads(example.net)["layers"])))
    for index in range(count):
        net = json.loads(example.net)
        list(layers_in(net["layers"]))[index]["colour"] = 1
        with pytest.raises(paleo.NetSpecError, match='key "colour": unknown key'):
            paleo.loads(json.dumps(net))
        assert not VALIDATOR.is_valid(net)


def test_the_faulty_example_gives_the_messages_on_the_page() -> None:
    (example,) = find_examples("json faulty")
    with pytest.raises(paleo.NetSpecError) as caught:
        paleo.loads(example.net, file="my_net.json")
    assert example.answers == [f"paleo: {mistake}" for mistake in caught.value.mistakes]


@pytest.mark.parametrize("name", [*paleo.LAYERS, *BLOCKS])
def test_every_type_has_a_section_with_an_example(name: str) -> None:
    assert name in SECTIONS, f"nets/README.md has no section on {name}"
    assert f"\n### {name}\n" in README
    (text,) = blocks("json", SECTIONS[name])
    used = {layer["type"] for layer in layers_in(json.loads(text)["layers"])}
    assert name in used


def test_no_section_is_about_a_type_that_is_gone() -> None:
    titles = re.findall(r"^### (.+)$", README, re.MULTILINE)
    assert set(titles) == {*paleo.LAYERS, *BLOCKS}


@pytest.mark.parametrize("name", list(paleo.LAYERS))
def test_the_table_of_a_type_lists_exactly_its_keys(name: str) -> None:
    expected = {
        key: "required" if declared.required else f"`{json.dumps(declared.written_default)}`"
        for key, declared in paleo.LAYERS[name].keys.items()
    }
    assert keys_in(SECTIONS[name]) == expected
    assert ("no keys of its own" in SECTIONS[name]) == (not expected)


@pytest.mark.parametrize("name", list(BLOCKS))
def test_the_table_of_a_block_lists_exactly_its_keys(name: str) -> None:
    assert set(keys_in(SECTIONS[name])) == {*BLOCKS[name]} - {"type", "parents"}


def test_the_tables_of_a_file_and_of_a_layer_list_exactly_their_keys() -> None:
    first, *_, second = SECTIONS["A file"].partition("Each layer is")
    assert set(keys_in(first)) == set(ROOT_KEYS)
    assert set(keys_in(second)) == set(LAYER_KEYS)


def test_the_list_of_types_has_all_in_the_order_of_the_page() -> None:
    titles = re.findall(r"^### (.+)$", PAGE, re.MULTILINE)
    listed = [row[1] for row in table(SECTIONS["Layer types"])]
    assert re.findall(r"\[(\w+)\]", " ".join(listed)) == titles


def test_the_page_names_every_function_that_may_be_chosen() -> None:
    chosen = 0
    for name, layer in paleo.LAYERS.items():
        rows = {row[0].strip("`"): row[1] for row in table(SECTIONS[name])}
        for key, declared in layer.keys.items():
            choices = getattr(declared.kind, "choices", ())
            if choices:
                chosen += 1
                assert re.findall(r'`"(\w+)"`', rows[key]) == list(choices), (name, key)
                aliases = getattr(declared.kind, "aliases", ())
                assert all(f'`"{alias}"`' in SECTIONS[name] for alias in aliases), (name, key)
    assert chosen >= 8


@pytest.mark.slow
def test_the_table_of_predefined_nets_is_true() -> None:
    rows = table(SECTIONS["The predefined nets"])
    assert [row[0].strip("`") for row in rows] == paleo.net_names()
    for name, published, batch, params, _ in rows:
        summary = paleo.summarize(name.strip("`"))
        assert summary.batch_size == int(batch)
        assert f"{summary.num_params:,}" == params
        if published == "the same":
            assert "arXiv:1404.5997" in summary.source
        else:
            assert summary.source.startswith(published)


def test_links_within_the_page_lead_somewhere() -> None:
    anchors = {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in SECTIONS}
    targets = set(re.findall(r"\]\(#([^)]*)\)", README))
    assert targets
    assert targets <= anchors


def test_the_recipe_for_a_layer_type_works(tmp_path: Path) -> None:
    (recipe,) = blocks("python")
    layers = {
        "data": {"type": "Input", "tensor": [2, 9, 7, 3]},
        "crop": {"type": "Crop", "parents": ["data"], "margin": 2},
    }
    text = json.dumps({"name": "cropped", "layers": layers})
    check = (
        f"import paleo\ncrop = paleo.summarize(paleo.loads({text!r})).layers[1]\n"
        "assert crop.output == (2, 9 - 2 * 2, 7 - 2 * 2, 3)\n"
    )
    script = tmp_path / "crop.py"
    script.write_text(recipe + check, "utf-8")
    subprocess.run([sys.executable, str(script)], check=True, cwd=tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("path", NETS, ids=lambda path: path.stem)
def test_a_predefined_net_loads_and_is_valid(path: Path) -> None:
    VALIDATOR.validate(json.loads(path.read_text("utf-8")))
    assert paleo.load(path).name == path.stem


def test_the_schema_is_one() -> None:
    meta.validate(net_schema())


def test_the_settings_of_the_editor_are_those_on_the_page() -> None:
    settings = json.loads((ROOT / ".vscode" / "settings.json").read_text("utf-8"))
    (stated,) = blocks("json settings")
    assert json.loads(stated) == settings
    (mapping,) = settings["json.schemas"]
    # The page says how it is made: it is a file of each checkout, with the types of its plug-ins.
    assert mapping["url"] == "./net.schema.json"
    assert "`paleo nets --schema > net.schema.json`" in SECTIONS["JSON Schema"]
    assert "/net.schema.json" in (ROOT / ".gitignore").read_text("utf-8").splitlines()
    assert {path for pattern in mapping["fileMatch"] for path in ROOT.glob(pattern)} == set(NETS)


GOOD: dict[str, Any] = {
    "name": "good",
    "layers": {
        "data": {"type": "Input", "parents": [], "tensor": [8, 16, 16, 3]},
        "conv": {
            "type": "Convolution",
            "parents": ["data"],
            "filter": [3, 3, -1, 32],
            "strides": [1, 1, 1, 1],
            "padding": "SAME",
        },
        "drop": {"type": "Dropout", "parents": ["conv"], "dropout_keep_prob": 0.5},
        "norm": {"type": "BatchNorm", "parents": ["drop"], "affine": False},
        "relu": {"type": "Activation", "parents": ["norm"], "function": "relu"},
        "block": {
            "type": "Block",
            "parents": ["relu"],
            "endpoint": "flat",
            "layers": {"flat": {"type": "Flatten", "parents": []}},
        },
        "split": {
            "type": "ModelParallel",
            "parents": ["block"],
            "splits": 2,
            "layers": {"fc": {"type": "InnerProduct", "parents": [], "num_outputs": 10}},
        },
    },
}
GONE = object()


def changed(path: str, value: Any) -> dict[str, Any]:
    """Return GOOD with another value, or none, at a path such as "layers.conv.filter"."""
    net = copy.deepcopy(GOOD)
    *outer, last = path.split(".")
    place = net
    for step in outer:
        place = place[step]
    if value is GONE:
        del place[last]
    else:
        place[last] = value
    return net


def test_the_net_that_mistakes_are_put_into_is_good() -> None:
    VALIDATOR.validate(GOOD)
    paleo.loads(json.dumps(GOOD))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        # a missing key
        ("name", GONE),
        ("layers", GONE),
        ("layers.data.tensor", GONE),
        ("layers.conv.type", GONE),
        ("layers.conv.parents", GONE),
        ("layers.conv.strides", GONE),
        ("layers.block.layers", GONE),
        ("layers.block.parents", GONE),
        ("layers.split.splits", GONE),
        ("layers.split.layers.fc.num_outputs", GONE),
        # an unknown key
        ("author", "someone"),
        ("layers.conv.stride", [1, 1, 1, 1]),
        ("layers.relu.alpha", 0.1),
        ("layers.block.splits", 2),
        ("layers.split.endpoint", "fc"),
        ("layers.block.layers.flat.dim", 1),
        # an unknown layer type
        ("layers.conv.type", "convolution"),
        ("layers.block.type", "Group"),
        ("layers.split.layers.fc.type", "Dense"),
        # another kind of value
        ("name", 5),
        ("name", ""),
        ("source", None),
        ("notes", "a text"),
        ("notes", [1]),
        ("layers", []),
        ("layers", {}),
        ("layers.conv", "data"),
        ("layers.conv.type", None),
        ("layers.conv.parents", "data"),
        ("layers.conv.parents", [1]),
        ("layers.conv.filter", 3),
        ("layers.conv.activation_fn", True),
        ("layers.conv.bias", "yes"),
        ("layers.drop.dropout_keep_prob", "0.5"),
        ("layers.norm.affine", 1),
        ("layers.block.endpoint", 0),
        ("layers.split.splits", "2"),
        # a value out of range
        ("layers.data.parents", ["conv"]),
        ("layers.data.tensor", [8]),
        ("layers.data.tensor", [8, 16, 0, 3]),
        ("layers.data.tensor", [8, 16, -1, 3]),
        ("layers.data.tensor", [1] * 9),
        ("layers.data.tensor", [8, 16, 16, 2**31]),
        ("layers.conv.filter", [3, 32]),
        ("layers.conv.filter", [3, 3, 3, 3, 3, 32]),
        ("layers.conv.filter", [-1, 3, 3, 32]),
        ("layers.conv.filter", [3, 3, 3, 1.5]),
        ("layers.conv.strides", [2, 1, 1, 1]),
        ("layers.conv.strides", [1, 0, 1, 1]),
        ("layers.conv.strides", [1, 1, 1, 2]),
        ("layers.conv.dilations", [1, 1]),
        ("layers.conv.use_bias", None),
        ("layers.conv.shares", 3),
        ("layers.conv.padding", "same"),
        ("layers.conv.padding", [1, 1, 1, 1]),
        ("layers.conv.padding", [[1, 1], 1]),
        ("layers.conv.padding", [-1, 0]),
        ("layers.drop.dropout_keep_prob", 0),
        ("layers.drop.dropout_keep_prob", 1.5),
        ("layers.relu.function", "rellu"),
        ("layers.relu", {"type": "Softmax", "parents": ["norm"], "dim": 0}),
        ("layers.relu", {"type": "Softmax", "parents": ["norm"], "dim": 8}),
        ("layers.split.layers.fc.axis", -2),
        ("layers.relu", {"type": "Slice", "parents": ["norm"], "size": 1, "dim": None}),
        ("layers.relu", {"type": "Slice", "parents": ["norm"], "size": 1, "begin": -1}),
        ("layers.relu", {"type": "Reduce", "parents": ["norm"], "dims": []}),
        ("layers.relu", {"type": "Reduce", "parents": ["norm"], "dims": [1, 1]}),
        ("layers.relu", {"type": "Reduce", "parents": ["norm"], "dims": [-1]}),
        ("layers.relu", {"type": "Transpose", "parents": ["norm"], "perm": [0]}),
        ("layers.relu", {"type": "Transpose", "parents": ["norm"], "perm": [0, 1, 1, 2]}),
        ("layers.relu", {"type": "Pad", "parents": ["norm"], "margins": [[0, 0, 0]]}),
        ("layers.relu", {"type": "Pad", "parents": ["norm"], "margins": [[0, -1]] * 3}),
        ("layers.relu", {"type": "Einsum", "parents": ["norm"], "equation": "nhwc"}),
        ("layers.relu", {"type": "Rearrange", "parents": ["norm"], "output_shape": [1] * 9}),
        ("layers.relu", {"type": "Unknown", "parents": ["norm"], "output_shape": [-1, 1]}),
        ("layers.relu", {"type": "LSTM", "parents": ["norm"], "num_outputs": 1, "projection": -1}),
        ("layers.own", {"type": "Parameter", "shape": []}),
        ("layers.own", {"type": "Parameter", "shape": [1], "parents": ["norm"]}),
        ("layers.split.splits", 0),
        ("layers.split.splits", 4097),
        ("layers.split.layers", {}),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_the_schema_refuses_what_paleo_refuses(path: str, value: Any) -> None:
    net = changed(path, value)
    assert not VALIDATOR.is_valid(net)
    with pytest.raises(paleo.NetSpecError):
        paleo.loads(json.dumps(net))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("$schema", "../net.schema.json"),
        ("source", "a book"),
        ("notes", []),
        ("notes", ["a text", "another"]),
        ("layers.data.parents", GONE),
        ("layers.conv.filter", [3, 3, 3, 32]),
        ("layers.conv.padding", [1, 1]),
        ("layers.conv.activation_fn", None),
        ("layers.conv.normalizer_fn", "batch_norm"),
        ("layers.conv.bias", [32]),
        ("layers.conv.bias", False),
        ("layers.drop.dropout_keep_prob", 1),
        ("layers.norm.affine", GONE),
        ("layers.conv.use_bias", False),
        ("layers.conv.shares", None),
        ("layers.own", {"type": "Parameter", "shape": [1, 3]}),
        ("layers.more", {"type": "Convolution", "parents": ["conv"], "shares": "conv"}
            | {"filter": [3, 3, 32, 32], "strides": [1] * 4, "padding": [[1, 1], [2, 0]]}),
        ("layers.more", {"type": "Pooling", "parents": ["conv"], "ksize": [1, 3, 1]}
            | {"strides": [1, 1, 1], "padding": [1]}),
        ("layers.more", {"type": "Softmax", "parents": ["conv"], "dim": -1}),
        ("layers.more", {"type": "Flatten", "parents": ["/conv"]}),
    ],
)  # fmt: skip
def test_the_schema_takes_what_paleo_takes(path: str, value: Any) -> None:
    net = changed(path, value)
    VALIDATOR.validate(net)
    paleo.loads(json.dumps(net))


def nested(depth: int) -> str:
    layer: dict[str, Any] = {"type": "Flatten", "parents": []}
    for _ in range(depth):
        layer = {"type": "Block", "parents": [], "layers": {"x": layer}}
    layer["parents"] = ["data"]
    layers = {"data": {"type": "Input", "tensor": [2, 2]}, "x": layer}
    return json.dumps({"name": "deep", "layers": layers})


def test_the_limits_are_those_on_the_page() -> None:
    limits = {row[0]: row[1] for row in table(SECTIONS["Limits"])}
    assert limits["nesting of blocks"] == "50"
    paleo.loads(nested(50))
    with pytest.raises(paleo.NetSpecError, match="nested more than 50 deep"):
        paleo.loads(nested(51))
    assert limits["dimensions of a tensor"].startswith("2 to 8")
    paleo.loads(json.dumps(changed("layers", {"x": {"type": "Input", "tensor": [1] * 8}})))
    assert limits["a dimension, window, stride, padding or count"].startswith("2^31 - 1")
    big = {"type": "Input", "tensor": [2**31 - 1, 2**29]}
    paleo.loads(json.dumps(changed("layers", {"x": big})))  # just below 2**60 elements
    big["tensor"] = [2**31 - 1, 2**30]
    with pytest.raises(paleo.NetSpecError, match="too many to mean anything"):
        paleo.loads(json.dumps(changed("layers", {"x": big})))
