"""ONNX files: their inputs, batch and names, weights elsewhere, and everything bad in them."""

from __future__ import annotations

import builtins
import contextlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import paleo

onnx = pytest.importorskip("onnx")

import numpy as np  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from paleo.net.importers.base import ImportOptions  # noqa: E402
from paleo.net.importers.onnx import read  # noqa: E402

FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64

Read = Callable[..., paleo.NetSpec]
Refuse = Callable[..., list[str]]


def node(op: str, inputs: str, outputs: str = "y", name: str = "", **attributes: Any) -> Any:
    return helper.make_node(op, inputs.split(), outputs.split(), name=name, **attributes)


def value(name: str, shape: Any, dtype: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, dtype, shape)


def tensor(name: str, content: Any) -> Any:
    """Make weights of a shape (a tuple), or whole numbers."""
    zeros = isinstance(content, tuple)
    array = np.zeros(content, np.float32) if zeros else np.asarray(content, np.int64)
    return numpy_helper.from_array(array, name)


def elsewhere(name: str, shape: list[int], where: str, dtype: int = FLOAT) -> Any:
    """Make a tensor whose numbers are in another file."""
    made = TensorProto(name=name, dims=shape, data_type=dtype)
    made.data_location = TensorProto.EXTERNAL
    entry = made.external_data.add()
    entry.key, entry.value = "location", where
    return made


def model(
    nodes: list[Any],
    inputs: list[Any],
    outputs: str = "y",
    tensors: list[Any] | None = None,
    opset: int = 17,
    name: str = "small",
    **more: Any,
) -> Any:
    between = more.pop("value_info", None)
    ends = [value(each, None) for each in outputs.split()]
    graph = helper.make_graph(nodes, name, inputs, ends, tensors or [], value_info=between)
    domains = {each.domain: 1 for each in nodes if each.domain}
    opsets = [helper.make_opsetid(domain, 1) for domain in domains]
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset), *opsets], **more)


def convolution(shape: list[Any], **more: Any) -> Any:
    return model(
        [node("Conv", "x w")], [value("x", shape)], "y", [tensor("w", (4, 3, 3, 3))], **more
    )


@pytest.fixture
def load(tmp_path: Path) -> Read:
    def write_and_read(content: Any, **options: Any) -> paleo.NetSpec:
        path = tmp_path / "model.onnx"
        data = content if isinstance(content, bytes) else content.SerializeToString()
        path.write_bytes(data)
        return read(str(path), ImportOptions(**options))

    return write_and_read


@pytest.fixture
def refuse(load: Read, tmp_path: Path) -> Refuse:
    """Read what cannot be read, and return the messages without the file's name."""

    def messages(content: Any, **options: Any) -> list[str]:
        with pytest.raises(paleo.NetSpecError) as caught:
            load(content, **options)
        file = str(tmp_path / "model.onnx")
        lines = str(caught.value).splitlines()
        assert all(line.startswith(file) for line in lines)
        return [line.removeprefix(file).removeprefix(": ") for line in lines]

    return messages


def first(net: paleo.NetSpec) -> tuple[Any, ...]:
    return tuple(paleo.summarize(net).layers[0].output)


# Inputs and the batch


def test_an_open_batch_is_1(load: Read) -> None:
    assert first(load(convolution(["N", 3, 8, 8]))) == (1, 8, 8, 3)
    assert first(load(convolution([None, 3, 8, 8]))) == (1, 8, 8, 3)


def test_a_fixed_batch_is_kept(load: Read) -> None:
    assert first(load(convolution([6, 3, 8, 8]))) == (6, 8, 8, 3)


def test_the_batch_may_be_given(load: Read) -> None:
    assert first(load(convolution(["N", 3, 8, 8]), dims={"N": 4}))[0] == 4
    assert first(load(convolution(["N", 3, 8, 8]), input=((None, (5, 3, 8, 8)),)))[0] == 5


def test_a_net_has_other_batches_than_it_was_read_with(load: Read) -> None:
    nodes = [
        node("Shape", "x", "s"),
        node("Slice", "s a b", "n"),
        node("Concat", "n rest", "t", axis=0),
        node("Reshape", "x t", "r"),
        node("Gemm", "r w"),
    ]
    tensors = [tensor("a", [0]), tensor("b", [1]), tensor("rest", [-1]), tensor("w", (48, 5))]
    net = load(model(nodes, [value("x", ["N", 3, 4, 4])], "y", tensors))
    assert paleo.summarize(net, batch_size=7).layers[-1].output == (7, 5)


def test_open_dimensions_are_given(load: Read, refuse: Refuse) -> None:
    open_model = convolution(["N", 3, "height", "width"])
    assert first(load(open_model, dims={"height": 8, "width": 9})) == (1, 8, 9, 3)
    assert first(load(open_model, input=(("x", (2, 3, 6, 7)),))) == (2, 6, 7, 3)
    assert refuse(open_model) == [
        (
            f'dimension "{name}" of input "x" (Nx3xheightxwidth) is open: give it with --dim '
            f"{name}=..., or all of the shape with --input x=1x3x?x?"
        )
        for name in ("height", "width")
    ]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"dims": {"heigth": 8, "width": 0}},
            [
                (
                    "--dim: no input has a dimension \"heigth\" (did you mean 'height'?); there "
                    "are: N, height, width"
                ),
                "--dim: width must be 1 to 2147483647, got 0",
            ],
        ),
        (
            {"dims": {"height": -1, "width": 1}},
            ["--dim: height must be 1 to 2147483647, got -1"],
        ),
        (
            {"input": ((None, (1, 3, 8)),)},
            ['--input: "x" has 4 dimensions (Nx3xheightxwidth), not the 3 of 1x3x8'],
        ),
        (
            {"input": (("z", (1, 3, 8, 8)),)},
            ['--input: there is no input "z"; there are: x'],
        ),
        (
            {"input": ((None, (1, 3, 0, 8)),)},
            ['--input: sizes of "x" must be 1 to 2147483647, got 1x3x0x8'],
        ),
        (
            {"input": ((None, (1, 3, 6, 8)),), "dims": {"height": 7}},
            ['dimension "height" is 7 in one place and 6 in --input of "x"'],
        ),
    ],
)
def test_wrong_sizes(refuse: Refuse, options: dict[str, Any], expected: list[str]) -> None:
    assert refuse(convolution(["N", 3, "height", "width"]), **options) == expected


def test_an_input_without_a_shape(load: Read, refuse: Refuse) -> None:
    shapeless = model([node("Relu", "x")], [value("x", None)])
    assert refuse(shapeless) == [
        'the file does not say the shape of input "x": give it with --input x=1x3x224x224'
    ]
    assert first(load(shapeless, input=(("x", (2, 5)),))) == (2, 5)


def test_several_inputs_must_be_named(refuse: Refuse) -> None:
    two = model([node("Add", "a b")], [value("a", ["N", 4]), value("b", ["N", 4])])
    assert refuse(two, input=((None, (1, 4)),)) == [
        "--input must say which input it is of; there are: a, b"
    ]


def test_a_sequence_with_the_batch_second(load: Read) -> None:
    tensors = [tensor("w", (1, 24, 5)), tensor("r", (1, 24, 6))]
    nodes = [node("LSTM", "x w r", hidden_size=6), node("Relu", "y", "z")]
    for shape in ([7, "batch", 5], [7, None, 5], [7, 1, 5], ["steps", "batch", 5]):
        options = {"dims": {"steps": 7}} if "steps" in shape else {}
        net = load(model(nodes, [value("x", shape)], "z", tensors, opset=14), **options)
        assert first(net) == (1, 7, 5)


def test_an_input_that_is_the_same_for_all_samples(load: Read) -> None:
    inputs = [value("x", ["N", 4, 6]), value("mask", [4, 6])]
    net = load(model([node("Add", "x mask")], inputs))
    assert [each.name for each in net.layers if each.layer.is_input] == ["x"]


def test_inputs_that_are_weights(load: Read) -> None:
    # As files before IR version 4 have them
    old = convolution([1, 3, 8, 8])
    old.graph.input.append(value("w", [4, 3, 3, 3]))
    assert paleo.summarize(load(old)).num_params == 108


def test_a_batch_written_into_the_graph(load: Read) -> None:
    nodes = [node("Reshape", "x s", "r"), node("Gemm", "r w")]
    tensors = [tensor("s", [1, 12]), tensor("w", (12, 5))]
    net = load(model(nodes, [value("x", ["N", 3, 4])], "y", tensors))
    assert paleo.summarize(net).layers[-1].output == (1, 5)


# Names


def names(net: paleo.NetSpec) -> list[str]:
    return [each.name for each in net.layers]


def test_names_of_the_first_exporter(load: Read) -> None:
    nodes = [
        node("Conv", "x w", "a", name="/layer1/layer1.0/conv1/Conv"),
        node("Relu", "a", "b", name="/layer1/layer1.0/relu/Relu"),
        node("Add", "a b", "c", name="/layer1/layer1.0/Add"),
        node("Sigmoid", "c", "d", name="/layer1/layer1.0/Sigmoid"),
        node("Tanh", "d", "y", name="/Tanh"),
    ]
    net = load(model(nodes, [value("x", ["N", 3, 8, 8])], "y", [tensor("w", (4, 3, 3, 3))]))
    assert names(net)[1:] == [
        "layer1/0/conv1",
        "layer1/0/relu",
        "layer1/0/Add",
        "layer1/0/Sigmoid",
        "Tanh",
    ]


def test_names_of_the_second_exporter(load: Read) -> None:
    nodes = [
        node("Conv", "x w", "a", name="node_conv2d"),
        node("Relu", "a", "b", name="node_relu"),
        node("MatMul", "z v", "c", name="node_MatMul_3"),
        node("Add", "c u", "y", name="node_linear"),
    ]
    scopes = (
        ["", "stem", "stem.conv", "conv2d"],
        ["", "stem", "relu"],
        ["", "head", "linear"],
        ["", "head", "linear"],
    )
    for each, scope in zip(nodes, scopes, strict=True):
        entry = each.metadata_props.add()
        entry.key, entry.value = "pkg.torch.onnx.name_scopes", str(scope)
    tensors = [tensor("w", (4, 3, 3, 3)), tensor("v", (6, 5)), tensor("u", (5,))]
    inputs = [value("x", ["N", 3, 8, 8]), value("z", ["N", 6])]
    net = load(model(nodes, inputs, "b y", tensors))
    assert names(net)[2:] == ["stem/conv", "stem/Relu", "head"]


def test_nodes_without_names(load: Read) -> None:
    net = load(model([node("Relu", "x", "a"), node("Relu", "a")], [value("x", ["N", 3])]))
    assert names(net) == ["x", "Relu_0", "Relu_1"]


@pytest.mark.parametrize(
    ("graph", "expected"), [("resnet", "resnet"), ("main_graph", "model"), ("torch_jit", "model")]
)
def test_the_name_of_the_net(load: Read, graph: str, expected: str) -> None:
    assert load(convolution(["N", 3, 8, 8], name=graph)).name == expected


@pytest.mark.parametrize("text", ["[" * 5000, "['a', 1]", "import os", "{", "['', 'a', 'b'"])
def test_metadata_that_is_no_list_of_scopes(load: Read, text: str) -> None:
    relu = node("Relu", "x", name="r")
    entry = relu.metadata_props.add()
    entry.key, entry.value = "pkg.torch.onnx.name_scopes", text
    assert names(load(model([relu], [value("x", ["N", 3])]))) == ["x", "r"]


# Weights outside the file


@pytest.mark.parametrize("where", ["weights.bin", "../../../../etc/passwd", "/dev/zero", ""])
def test_weights_elsewhere_are_not_read(
    load: Read, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    content = convolution(["N", 3, 8, 8])
    content.graph.initializer[0].CopyFrom(elsewhere("w", [4, 3, 3, 3], where))
    opened: list[str] = []
    real = builtins.open

    def watched(file: Any, *arguments: Any, **options: Any) -> Any:
        opened.append(str(file))
        return real(file, *arguments, **options)

    monkeypatch.setattr(builtins, "open", watched)
    net = load(content)
    monkeypatch.undo()
    assert paleo.summarize(net).num_params == 108
    assert not [file for file in opened if where and file.endswith(where)]


def test_weights_of_more_than_a_file_can_hold_are_elsewhere(load: Read) -> None:
    tensors = [elsewhere("w", [40_000, 30_000], "a"), elsewhere("v", [30_000, 10], "b")]
    nodes = [node("MatMul", "x w", "h"), node("MatMul", "h v")]
    summary = paleo.summarize(load(model(nodes, [value("x", ["N", 40_000])], "y", tensors)))
    assert summary.num_params == 40_000 * 30_000 + 30_000 * 10  # 4.8 GB, none of it there


def test_a_shape_elsewhere_is_needed(refuse: Refuse) -> None:
    tensors = [elsewhere("s", [2], "/etc/passwd", INT)]
    content = model([node("Reshape", "x s", name="flat")], [value("x", ["N", 4])], "y", tensors)
    assert refuse(content) == [
        'layer "flat": Reshape needs numbers that are stored outside the file'
    ]


# Functions, unknown operators


def function(name: str, nodes: list[Any]) -> Any:
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    return helper.make_function("own", name, ["a"], ["b"], nodes, opsets)


def test_functions_are_followed(load: Read) -> None:
    inner = function("Twice", [node("Relu", "a", "c"), node("Tanh", "c", "b")])
    nodes = [node("Twice", "x", "m", domain="own"), node("Gemm", "m w")]
    content = model(nodes, [value("x", ["N", 4])], "y", [tensor("w", (4, 2))], functions=[inner])
    summary = paleo.summarize(load(content))
    assert [each.type_name for each in summary.layers] == [
        "Input",
        *["Activation"] * 2,
        "InnerProduct",
    ]
    assert summary.num_params == 8


def test_functions_that_call_each_other_a_million_times(refuse: Refuse) -> None:
    bomb = [
        function(
            f"F{i}",
            [node(f"F{i + 1}", "a", "c", domain="own"), node(f"F{i + 1}", "c", "b", domain="own")],
        )
        for i in range(40)
    ]
    bomb.append(function("F40", [node("Relu", "a", "b")]))
    content = model([node("F0", "x", domain="own")], [value("x", ["N", 4])], functions=bomb)
    assert refuse(content) == ["the model has more than 100,000 nodes, which is too many to read"]


def test_a_function_that_calls_itself(refuse: Refuse) -> None:
    inner = function("F", [node("F", "a", "b", domain="own")])
    content = model([node("F", "x", domain="own")], [value("x", ["N", 4])], functions=[inner])
    assert refuse(content) == ['the function "F" calls itself']


def test_what_is_not_understood_is_named_at_once(refuse: Refuse) -> None:
    nodes = [
        *(node("Foo", "x", f"f{i}", name=f"n{i}", domain="com.example") for i in range(6)),
        node("Multinomial", "x", "z", name="where"),
        node("Concat", "f0 f1 f2 f3 f4 f5", "c", axis=1),
        node("Relu", "z", "q"),
    ]
    assert refuse(model(nodes, [value("x", ["N", 4])], "c q")) == [
        (
            'not understood: Foo (com.example) ("n0", "n1", "n2", "n3" and 2 more); Multinomial '
            '("where"); with --unknown=zero they cost nothing and are listed as not counted'
        )
    ]


def test_what_is_not_understood_may_cost_nothing(load: Read, refuse: Refuse) -> None:
    nodes = [node("Foo", "x", "f", name="odd", domain="com.example"), node("Gemm", "f w")]
    tensors = [tensor("w", (5, 2))]
    known = model(nodes, [value("x", ["N", 4])], "y", tensors, value_info=[value("f", ["N", 5])])
    net = load(known, unknown="zero")
    assert [each.layer.type_name for each in net.layers] == ["Input", "Unknown", "InnerProduct"]
    del known.graph.value_info[:]
    assert refuse(known, unknown="zero") == [
        (
            'layer "odd": Foo (com.example) is not understood, and neither onnx nor the file says '
            "what shape it gives: it cannot be left out"
        )
    ]


def test_what_no_output_needs_is_not_looked_at(load: Read) -> None:
    nodes = [node("Relu", "x"), node("Foo", "x", "f", domain="com.example")]
    assert names(load(model(nodes, [value("x", ["N", 4])]))) == ["x", "Relu_0"]


# Bad files


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b'{"layers": []}', "not an ONNX model, but JSON"),
        (b'name: "net"\nlayer { }\n', "not an ONNX model, but text; ONNX files are binary"),
        (b"PK\x03\x04rest", "not an ONNX model, but a zip archive, as PyTorch saves them"),
        (bytes(range(256)), "not an ONNX model, or not all of one"),
    ],
)
def test_what_is_no_model(refuse: Refuse, content: bytes, message: str) -> None:
    assert refuse(content) == [message]


def test_a_file_that_is_cut_off(refuse: Refuse) -> None:
    content = convolution(["N", 3, 8, 8]).SerializeToString()
    for end in range(1, len(content) - 1, 7):
        assert len(refuse(content[:end])) == 1


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(paleo.NetSpecError, match="cannot be read: No such file"):
        read(str(tmp_path / "none.onnx"), ImportOptions())


def test_a_name_that_is_not_text(refuse: Refuse) -> None:
    content = convolution(["N", 3, 8, 8], name="graph of mine").SerializeToString()
    damaged = content.replace(b"graph of mine", b"graph \xff\xfe mine")
    assert refuse(damaged) == ["a name in it is not UTF-8: it is damaged"]


@pytest.mark.parametrize(
    ("opset", "message"),
    [
        (5, "its operators are of version 5 (opset); Paleo reads 6 and newer"),
        (1000, "its operators are of version 1000 (opset); the onnx installed here"),
    ],
)
def test_versions_out_of_range(refuse: Refuse, opset: int, message: str) -> None:
    (found,) = refuse(convolution(["N", 3, 8, 8], opset=opset))
    assert found.startswith(message)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        (
            [node("Relu", "b", "a"), node("Relu", "a", "b"), node("Relu", "b")],
            (
                'layer "Relu_0": it reads "b" before a node gives it: the graph has a cycle, or '
                "its nodes are not in order"
            ),
        ),
        (
            [node("Add", "x xx", name="sum")],
            'layer "sum": Add reads "xx", which nothing gives (did you mean \'x\'?)',
        ),
        ([node("Relu", "x", "z")], 'output "y" is given by no node'),
        ([node("Relu", "x"), node("Tanh", "x")], 'two nodes give "y"'),
        ([node("Conv", "x w", name="c")], None),
        ([node("Reshape", "x shape", name="r")], None),
        ([node("Gather", "x far", name="g", axis=1)], "a Gather of element 99 of 4"),
        ([node("Slice", "x far far far", name="s")], None),
        ([node("Transpose", "x", name="t", perm=[0, 0])], None),
        ([node("Gemm", "x w", name="m")], None),
        ([node("Concat", "x x", name="c", axis=7)], None),
        ([node("Softmax", "x", name="s", axis=0)], None),
    ],
)
def test_graphs_that_do_not_hang_together(
    refuse: Refuse, nodes: list[Any], message: str | None
) -> None:
    tensors = [tensor("w", (4, 5, 3, 3)), tensor("shape", [5, 5, 5]), tensor("far", 99)]
    found = refuse(model(nodes, [value("x", ["N", 4])], "y", tensors))
    assert len(found) == 1
    assert message is None or found[0].endswith(message)


def test_all_faults_are_found_at_once(refuse: Refuse) -> None:
    nodes = [
        node("Conv", "x w", "a", name="first"),
        node("Relu", "a", "b", name="behind it"),
        node("Conv", "x v", "c", name="second"),
    ]
    tensors = [tensor("w", (4, 5, 3, 3)), tensor("v", (4, 3, 9, 9))]
    found = refuse(model(nodes, [value("x", ["N", 3, 8, 8])], "b c", tensors))
    assert [line.split(":")[0] for line in found] == ['layer "first"', 'layer "second"']


def test_a_graph_of_constants(refuse: Refuse) -> None:
    content = model([node("Shape", "x")], [value("x", ["N", 4])])
    assert refuse(content) == ["none of its outputs is computed from its inputs"]


def test_an_input_that_is_no_tensor(refuse: Refuse) -> None:
    sequence = helper.make_tensor_sequence_value_info("x", FLOAT, [4])
    content = model([node("SequenceAt", "x i")], [sequence], "y", [tensor("i", 0)])
    assert refuse(content) == ['input "x" is not a tensor, but sequence']


def test_weights_of_no_size(refuse: Refuse) -> None:
    content = convolution(["N", 3, 8, 8])
    content.graph.initializer[0].dims[1] = -3
    assert 'tensor "w" has a negative dimension: [4, -3, 3, 3]' in refuse(content)


def test_numbers_that_are_not_all_there(refuse: Refuse) -> None:
    short = TensorProto(name="s", dims=[2], data_type=INT, raw_data=b"abc")
    (message,) = refuse(model([node("Reshape", "x s")], [value("x", ["N", 4])], "y", [short]))
    assert 'tensor "s" does not hold what it says' in message


# Files that ask for too much


@pytest.mark.parametrize(
    ("nodes", "tensors"),
    [
        ([node("ConstantOfShape", "n", "c"), node("Add", "x c")], {"n": [10**9, 10**9, 4]}),
        ([node("Range", "zero n one", "c"), node("Gather", "x c", axis=1)], {"n": 10**15}),
        ([node("Expand", "x n")], {"n": [10**6, 10**6, 10**6, 1, 4]}),
        ([node("Tile", "x n")], {"n": [1, 10**12]}),
        ([node("Tile", "zeros n", "c"), node("Add", "x c")], {"n": [2**40]}),
        ([node("Pad", "x n")], {"n": [0, 0, 0, 10**12]}),
    ],
)
def test_sizes_beyond_all_memory(load: Read, nodes: list[Any], tensors: dict[str, Any]) -> None:
    held = {"zero": 0, "one": 1, "zeros": [0, 0, 0], **tensors}
    made = [tensor(name, content) for name, content in held.items()]
    started = time.process_time()
    # Whether it is refused here or where its layers are priced: nothing so large is made.
    with contextlib.suppress(paleo.NetSpecError):
        load(model(nodes, [value("x", ["N", 4])], "y", made))
    assert time.process_time() - started < 5


@pytest.mark.slow
def test_many_constants_are_not_all_computed(load: Read) -> None:
    # A thousand times eight MiB would be kept if all were.
    chain = [node("Add", f"c{i} c{i}", f"c{i + 1}") for i in range(1000)]
    nodes = [node("ConstantOfShape", "n", "c0"), *chain, node("Add", "x c1000")]
    started = time.process_time()
    net = load(model(nodes, [value("x", ["N", 1])], "y", [tensor("n", [2**20])]))
    assert paleo.summarize(net).layers[-1].output == (1, 2**20)
    assert time.process_time() - started < 5


@pytest.mark.slow
def test_a_million_nodes(refuse: Refuse) -> None:
    nodes = [node("Relu", f"a{i}", f"a{i + 1}") for i in range(100_001)]
    content = model(nodes, [value("a0", ["N", 4])], "a100001")
    assert refuse(content) == ["the model has more than 100,000 nodes, which is too many to read"]


def test_a_long_chain_is_quick(load: Read) -> None:
    nodes = [node("Relu", f"a{i}", f"a{i + 1}") for i in range(3000)]
    content = model(nodes, [value("a0", ["N", 4])], "a3000")
    started = time.process_time()
    load(content)
    assert time.process_time() - started < 5


# The library


def test_without_onnx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(convolution(["N", 3, 8, 8]).SerializeToString())
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(paleo.NetSpecError) as caught:
        read(str(path), ImportOptions())
    assert str(caught.value) == (
        f'{path}: reading it needs onnx; install it with: pip install "paleo[onnx]"'
    )
