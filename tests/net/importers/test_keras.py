"""Keras models: configurations of both formats, layers by hand, and what is wrong with a file."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from caffe_files import outputs, params

import paleo
from paleo.core.operations import Pass
from paleo.net.importers import ImportOptions, importer_of, keras
from paleo.net.writer import dumps

Layer = dict[str, Any]


def tensor(name: str, node: int = 0, index: int = 0, shape: object = None) -> Layer:
    """Return a tensor as Keras 3 writes it where a layer is called with it."""
    config = {"shape": shape, "dtype": "float32", "keras_history": [name, node, index]}
    return {"class_name": "__keras_tensor__", "config": config}


def layer(kind: str, name: str, *calls: Any, module: str = "keras.layers", **config: Any) -> Layer:
    """Return a layer that is called with these arguments: a tensor's name, or a list of arguments.

    Keys of Python's own words have an underscore behind them.
    """
    nodes: list[Layer] = []
    for call in calls:
        args = [tensor(call)] if isinstance(call, str) else call
        nodes.append({"args": args, "kwargs": {}})  # (where it is no list, the file is damaged)
    own = {"name": name, **config}
    return {
        "module": module,
        "class_name": kind,
        "config": own,
        "name": name,
        "inbound_nodes": nodes,
    }


def fed(name: str, *shape: int | None) -> Layer:
    return layer("InputLayer", name, batch_shape=[None, *shape])


def functional(layers: Sequence[Layer], outs: Sequence[str], name: str = "net") -> Layer:
    ins = [each["name"] for each in layers if each["class_name"] == "InputLayer"]
    config = {
        "name": name,
        "layers": list(layers),
        "input_layers": [[each, 0, 0] for each in ins],
        "output_layers": [[each, 0, 0] for each in outs],
    }
    return {"module": "keras", "class_name": "Functional", "config": config, "name": name}


def sequential(*layers: Layer, name: str = "net") -> Layer:
    config = {"name": name, "layers": list(layers)}
    return {"module": "keras", "class_name": "Sequential", "config": config, "name": name}


def zipped(model: Any, entry: str = "config.json") -> bytes:
    """Return the bytes of a .keras file without weights."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("metadata.json", "{}")
        archive.writestr(entry, json.dumps(model))
    return file.getvalue()


def read(model: Any, **options: Any) -> paleo.Graph:
    spec = keras.read_bytes(zipped(model), "net.keras", ImportOptions(**options))
    return paleo.build(paleo.loads(dumps(spec)))


def fault(model: Any, **options: Any) -> str:
    """Return what is said of a model that cannot be read, without the file's name."""
    with pytest.raises(paleo.NetSpecError) as caught:
        read(model, **options)
    said = str(caught.value)
    assert said.startswith("net.keras: ")
    assert "\n" not in said
    return said.removeprefix("net.keras: ")


def multiply_adds(graph: paleo.Graph) -> float:
    kinds = [
        "Convolution",
        "Deconvolution",
        "InnerProduct",
        "LSTM",
        "GRU",
        "RNN",
        "Attention",
        "MatMul",
        "Einsum",
    ]
    return (
        sum(
            float(operation.flops)
            for node in graph.nodes
            if node.type_name in kinds
            for operation in node.layer.operations(Pass.FORWARD, node.inputs, 4)
        )
        / 2
    )


def total(graph: paleo.Graph) -> int:
    return sum(params(graph).values())


def last(graph: paleo.Graph) -> tuple[int, ...]:
    return tuple(list(outputs(graph).values())[-1])


# Models


def test_a_functional_model_with_a_shared_layer() -> None:
    graph = read(
        functional(
            [
                fed("image", 8, 8, 3),
                layer("Conv2D", "conv", "image", filters=4, kernel_size=[3, 3], padding="same",
                      activation="relu"),
                layer("Flatten", "flat", "conv"),
                layer("Flatten", "flat_1", "conv"),
                layer("Dense", "dense", "flat", "flat_1", units=5),
                layer("Add", "add", [[tensor("dense", 0), tensor("dense", 1)]]),
            ],
            ["add"],
        )
    )  # fmt: skip
    # 3x3 filters of 3 channels and a bias, 4 times; 8x8x4 features to 5, counted once.
    assert params(graph) == {"conv": 4 * (27 + 1), "dense": 256 * 5 + 5}
    # 64 places of 4 filters of 27, and two products of the same matrix.
    assert multiply_adds(graph) == 64 * 4 * 27 + 2 * 256 * 5
    assert outputs(graph)["conv"] == (1, 8, 8, 4)
    assert [node.type_name for node in graph.nodes] == [
        "Input", "Convolution", "Activation", "Flatten", "Flatten", "InnerProduct", "InnerProduct",
        "Elementwise",
    ]  # fmt: skip
    assert last(graph) == (1, 5)
    assert graph.name == "net"


def test_models_in_models_several_inputs_and_outputs() -> None:
    inner = functional(
        [
            fed("a", 6),
            fed("b", 6),
            layer("Dense", "left", "a", units=3, use_bias=False),
            layer("Multiply", "both", [[tensor("a"), tensor("b")]]),
        ],
        ["left", "both"],
        name="inner",
    )
    inner["inbound_nodes"] = [
        {"args": [[tensor("x"), tensor("y")]], "kwargs": {}},
        {"args": [[tensor("y"), tensor("x")]], "kwargs": {}},
    ]
    model = functional(
        [
            fed("x", 6),
            fed("y", 6),
            inner,
            layer("Concatenate", "join", [[tensor("inner", 0, 0), tensor("inner", 1, 0)]]),
            layer("Concatenate", "more", [[tensor("join"), tensor("inner", 1, 1)]]),
        ],
        ["more"],
    )
    graph = read(model)
    assert params(graph) == {"inner/left": 6 * 3}  # called twice, counted once
    assert multiply_adds(graph) == 2 * 18
    assert outputs(graph)["join"] == (1, 6)
    assert outputs(graph)["more"] == (1, 12)


def test_the_lists_of_keras_2() -> None:
    def old(kind: str, name: str, nodes: Any, **config: Any) -> Layer:
        own = {"name": name, **config}
        return {"class_name": kind, "config": own, "name": name, "inbound_nodes": nodes}

    layers = [
        old("InputLayer", "x", [], batch_input_shape=[None, 4]),
        old("Dense", "d", [[["x", 0, 0, {}]]], units=4),
        old("Add", "s", [[["x", 0, 0, {}], ["d", 0, 0, {}]]]),
    ]
    config = {"layers": layers, "input_layers": [["x", 0, 0]], "output_layers": [["s", 0, 0]]}
    graph = read({"class_name": "Functional", "config": {"name": "old", **config}})
    assert total(graph) == 4 * 4 + 4
    assert [node.type_name for node in graph.nodes] == ["Input", "InnerProduct", "Elementwise"]


def test_a_sequential_model_and_the_batch() -> None:
    model = sequential(
        fed("image", 9, 7, 2),
        layer("Conv2D", "conv", filters=4, kernel_size=[2, 2], strides=[2, 2]),
        layer("BatchNormalization", "norm", axis=-1),
        layer("GlobalAveragePooling2D", "pool"),
        sequential(layer("Dense", "d", units=3, activation="softmax"), name="head"),
    )
    graph = read(model, input=((None, (5, 9, 7, 2)),))
    # 4 filters of 2x2x2 and biases; scale and shift, means and variances are not trained; 4 x 3.
    assert params(graph) == {"conv": 4 * 9, "norm": 8, "head/d": 4 * 3 + 3}
    assert outputs(graph)["conv"] == (5, 4, 3, 4)  # of 9 and 7 two each, one is left
    assert last(graph) == (5, 3)


def test_json_alone(tmp_path: Path) -> None:
    path = tmp_path / "net.keras.json"
    path.write_text(json.dumps(sequential(fed("x", 4), layer("Dense", "d", units=2))))
    assert importer_of(str(path)) == "keras"
    assert total(paleo.build(paleo.load(path, ImportOptions(cache=False)))) == 10
    plain = tmp_path / "net.json"
    path.rename(plain)
    with pytest.raises(paleo.NetSpecError, match=r"Keras model: name it net\.keras\.json$"):
        paleo.load(plain)


def test_files_are_read_and_kept_as_bytes_are(tmp_path: Path) -> None:
    path = tmp_path / "net.keras"
    path.write_bytes(zipped(sequential(fed("x", 4), layer("Dense", "d", units=2))))
    target = str(path)
    alone = keras.read(target, ImportOptions())
    assert alone == keras.read_bytes(path.read_bytes(), target, ImportOptions())
    first, second = paleo.load(path), paleo.load(path)
    assert first.layers == second.layers == alone.layers


# Layers: what is given, what it is, what comes out, its parameters and multiply-adds


@pytest.mark.parametrize(
    ("kind", "config", "shape", "output", "own", "adds"),
    [
        ("Dense", {"units": 3}, (5, 4), (5, 3), 15, 5 * 12),
        ("Conv1D", {"filters": 3, "kernel_size": [3], "padding": "causal", "dilation_rate": [2]},
         (9, 4), (9, 3), 3 * 13, 9 * 3 * 12),
        ("Conv2D", {"filters": 6, "kernel_size": 3, "groups": 2, "strides": 2, "padding": "same"},
         (7, 8, 4), (4, 4, 6), 6 * 19, 16 * 6 * 18),
        ("Conv2D", {"filters": 6, "kernel_size": 3, "data_format": "channels_first"},
         (4, 7, 8), (5, 6, 6), 6 * 37, 30 * 6 * 36),
        ("Conv3D", {"filters": 2, "kernel_size": [1, 2, 3], "use_bias": False},
         (4, 5, 6, 3), (4, 4, 4, 2), 36, 64 * 36),
        ("DepthwiseConv2D", {"kernel_size": [3, 3], "depth_multiplier": 2},
         (5, 5, 4), (3, 3, 8), 8 * 10, 9 * 8 * 9),
        ("SeparableConv2D", {"filters": 5, "kernel_size": [3, 3]},
         (5, 5, 4), (3, 3, 5), 4 * 9 + 5 * 4 + 5, 9 * (4 * 9 + 5 * 4)),
        ("Conv2DTranspose", {"filters": 3, "kernel_size": [4, 4], "strides": 2, "padding": "same"},
         (5, 6, 2), (10, 12, 3), 2 * 3 * 16 + 3, 30 * 2 * 3 * 16),
        # (5 - 1) 2 + 3 = 11; output padding reaches one further.
        ("Conv1DTranspose", {"filters": 3, "kernel_size": 3, "strides": 2},
         (5, 2), (11, 3), 21, 5 * 18),
        ("Conv1DTranspose", {"filters": 3, "kernel_size": 3, "strides": 2, "output_padding": 1},
         (5, 2), (12, 3), 21, 5 * 18),
        ("MaxPooling2D", {"pool_size": [3, 3], "strides": [2, 2], "padding": "same"},
         (7, 8, 4), (4, 4, 4), 0, 0),
        ("AveragePooling1D", {"pool_size": [2]}, (7, 4), (3, 4), 0, 0),
        # (Axes of 1 that are dropped are dropped where somebody needs it.)
        ("GlobalMaxPooling2D", {}, (7, 8, 4), (1, 1, 4), 0, 0),
        ("GlobalAveragePooling1D", {"keepdims": True}, (7, 4), (1, 4), 0, 0),
        ("BatchNormalization", {"scale": False}, (7, 8, 4), (7, 8, 4), 4, 0),
        ("LayerNormalization", {"axis": [2, 3]}, (7, 8, 4), (7, 8, 4), 64, 0),
        ("GroupNormalization", {"groups": 2}, (7, 8, 4), (7, 8, 4), 8, 0),
        ("RMSNormalization", {}, (7, 4), (7, 4), 4, 0),
        ("UnitNormalization", {"axis": [-1]}, (7, 4), (7, 4), 0, 0),
        ("PReLU", {"shared_axes": [1, 2]}, (7, 8, 4), (7, 8, 4), 4, 0),
        ("PReLU", {"shared_axes": None}, (7, 4), (7, 4), 28, 0),
        ("ReLU", {"max_value": 6.0}, (7,), (7,), 0, 0),
        ("Softmax", {"axis": -1}, (7,), (7,), 0, 0),
        ("SpatialDropout2D", {"rate": 0.5}, (7, 8, 4), (7, 8, 4), 0, 0),
        ("Flatten", {}, (7, 8, 4), (224,), 0, 0),
        ("Reshape", {"target_shape": [-1, 16]}, (7, 8, 4), (14, 16), 0, 0),
        ("Permute", {"dims": [3, 1, 2]}, (7, 8, 4), (4, 7, 8), 0, 0),
        ("ZeroPadding2D", {"padding": [[1, 2], [0, 3]]}, (7, 8, 4), (10, 11, 4), 0, 0),
        ("Cropping1D", {"cropping": [1, 2]}, (7, 4), (4, 4), 0, 0),
        ("UpSampling2D", {"size": [2, 3], "interpolation": "bilinear"}, (7, 8, 4), (14, 24, 4),
         0, 0),
        ("Resizing", {"height": 3, "width": 5}, (7, 8, 4), (3, 5, 4), 0, 0),
        ("Rescaling", {"scale": 0.1}, (7, 8, 4), (7, 8, 4), 0, 0),
        ("Normalization", {"axis": [-1], "mean": None}, (7, 8, 4), (7, 8, 4), 0, 0),
        ("Embedding", {"input_dim": 10, "output_dim": 3}, (7,), (7, 3), 30, 0),
        # Four gates read 3 numbers and a state of 5 in each of 7 steps.
        ("LSTM", {"units": 5}, (7, 3), (5,), 4 * 5 * (3 + 5 + 1), 7 * 4 * 5 * 8),
        ("LSTM", {"units": 5, "return_sequences": True, "go_backwards": True}, (7, 3), (7, 5),
         180, 1120),
        # A GRU as cuDNN has it holds a second bias.
        ("GRU", {"units": 5}, (7, 3), (5,), 3 * 5 * (3 + 5 + 2), 7 * 3 * 5 * 8),
        ("GRU", {"units": 5, "reset_after": False}, (7, 3), (5,), 3 * 5 * 9, 840),
        ("SimpleRNN", {"units": 5, "use_bias": False}, (7, 3), (5,), 40, 280),
    ],
)  # fmt: skip
def test_layers(
    kind: str, config: Layer, shape: tuple[int, ...], output: tuple[int, ...], own: int, adds: int
) -> None:
    graph = read(sequential(fed("x", *shape), layer(kind, "layer", **config)))
    assert last(graph) == (1, *output)
    assert total(graph) == own
    assert multiply_adds(graph) == adds


@pytest.mark.parametrize(
    ("mode", "sequences", "output"),
    [
        ("concat", False, (10,)),
        ("concat", True, (7, 10)),
        ("sum", False, (5,)),
        ("ave", True, (7, 5)),
    ],
)
def test_both_directions(mode: str, sequences: bool, output: tuple[int, ...]) -> None:
    inner = layer("LSTM", "lstm", units=5, return_sequences=sequences)
    graph = read(
        sequential(fed("x", 7, 3), layer("Bidirectional", "b", layer=inner, merge_mode=mode))
    )
    assert last(graph) == (1, *output)
    assert total(graph) == 2 * 180  # as one LSTM above, for each direction
    assert multiply_adds(graph) == 2 * 1120


def test_a_vector_for_each_step_and_states() -> None:
    encoder = layer("LSTM", "encoder", "x", units=5, return_state=True)
    again = layer("RepeatVector", "again", "encoder", n=4)
    state = [tensor("encoder", 0, 1), tensor("encoder", 0, 2)]
    decoder = layer("LSTM", "decoder", [tensor("again"), state], units=6, return_sequences=True)
    model = functional([fed("x", 7, 3), encoder, again, decoder], ["decoder"])
    assert keras.read_bytes(zipped(model), "net.keras", ImportOptions()).notes == (
        "recurrent layers do not wait for first states that other layers give",
    )
    graph = read(model)
    assert last(graph) == (1, 4, 6)
    assert params(graph) == {"encoder": 180, "decoder": 4 * 6 * (5 + 6 + 1)}
    assert multiply_adds(graph) == 1120 + 4 * 4 * 6 * 11


def test_a_layer_for_each_step() -> None:
    conv = layer("Conv2D", "conv", filters=4, kernel_size=3)
    graph = read(sequential(fed("x", 6, 8, 8, 3), layer("TimeDistributed", "t", layer=conv)))
    assert last(graph) == (1, 6, 6, 6, 4)
    assert total(graph) == 4 * 28
    assert multiply_adds(graph) == 6 * 36 * 4 * 27


def test_attention_in_heads() -> None:
    call = [tensor("q"), tensor("v")]
    heads = layer("MultiHeadAttention", "mha", call, num_heads=2, key_dim=3, value_dim=4)
    graph = read(functional([fed("q", 7, 6), fed("v", 9, 5), heads], ["mha"]))
    assert last(graph) == (1, 7, 6)
    # To 2 heads of 3, 3 and 4, and from 8 back to 6, each with a bias.
    assert params(graph) == {
        "mha/query": 6 * 6 + 6,
        "mha/value": 5 * 8 + 8,
        "mha/key": 5 * 6 + 6,
        "mha/attention_output": 8 * 6 + 6,
    }
    # The four products, 2 heads of 7 x 9 scores of 3 numbers, and as many sums of 4.
    products = 7 * 36 + 9 * 30 + 9 * 40 + 7 * 48
    assert multiply_adds(graph) == products + 2 * 63 * (3 + 4)


def test_attention_of_one_head_and_dot() -> None:
    both = [[tensor("q"), tensor("v")]]
    one = layer("Attention", "one", both, use_scale=True)
    dot = layer("Dot", "dot", both, axes=2)
    graph = read(functional([fed("q", 7, 6), fed("v", 9, 6), one, dot], ["one", "dot"]))
    assert total(graph) == 1
    assert outputs(graph)["one"] == (1, 1, 7, 6)  # of one head
    assert outputs(graph)["dot"] == (1, 7, 9)
    assert multiply_adds(graph) == 2 * 63 * 6 + 63 * 6


def test_a_permutation_is_a_pass_and_an_order_of_channels_is_not() -> None:
    turned = [layer("Permute", "p", dims=[2, 3, 1]), layer("Conv2D", "c", filters=2, kernel_size=1)]
    graph = read(sequential(fed("x", 7, 8, 4), *turned))
    assert [node.type_name for node in graph.nodes] == ["Input", "Transpose", "Convolution"]
    assert last(graph) == (1, 8, 4, 2)
    assert total(graph) == 7 * 2 + 2


def test_functions_of_keras_ops() -> None:
    module = "keras.src.ops.numpy"
    graph = read(
        functional(
            [
                fed("x", 7, 4),
                layer("Multiply", "half", [tensor("x"), 0.5], module=module),
                layer("Add", "sum", [tensor("x"), tensor("half")], module=module),
                layer("Mean", "mean", "sum", module=module, axis=1, keepdims=False),
            ],
            ["mean"],
        )
    )
    kinds = [node.type_name for node in graph.nodes]
    assert kinds == ["Input", "Activation", "Elementwise", "Reduce"]
    assert last(graph) == (1, 4)


def test_a_mask_is_no_input() -> None:
    module = "keras.src.ops.numpy"
    step = layer("LSTM", "lstm", "masking", units=5)
    step["inbound_nodes"][0]["kwargs"] = {"mask": tensor("any")}
    masked = layer("Add", "add", [[tensor("lstm"), tensor("lstm")]])
    masked["inbound_nodes"][0]["kwargs"] = {"mask": [tensor("any"), None]}
    graph = read(
        functional(
            [
                fed("x", 7, 3),
                layer("NotEqual", "differs", [tensor("x"), 0.0], module=module),
                layer("Any", "any", "differs", module=module, axis=-1, keepdims=False),
                layer("Masking", "masking", "x"),
                step,
                masked,
            ],
            ["add"],
        )
    )
    shapes = outputs(graph)
    assert (shapes["differs"], shapes["any"], shapes["add"]) == ((1, 7, 3), (1, 7), (1, 5))
    assert total(graph) == 180


def test_attention_of_keras_ops() -> None:
    module = "keras.src.ops.numpy"
    graph = read(
        functional(
            [
                fed("x", 7, 4),
                layer("Transpose", "turned", "x", module=module, axes=[0, 2, 1]),
                layer("Matmul", "scores", [tensor("x"), tensor("turned")], module=module),
                layer("ExpandDims", "wide", "scores", module=module, axis=1),
                layer("Squeeze", "back", "wide", module=module, axis=1),
                layer("Softmax", "weights", "back", axis=-1),
                layer("Matmul", "sums", [tensor("weights"), tensor("x")], module=module),
            ],
            ["sums"],
        )
    )
    assert last(graph) == (1, 7, 4)
    assert multiply_adds(graph) == 2 * 7 * 7 * 4


# What is wrong


def unknown_model() -> Layer:
    mine = layer("Mine", "mine", "x", module="my.layers")
    own_add = layer("Add", "add", [[tensor("x"), tensor("x")]], module="my.layers")
    dense = layer("Dense", "d", [tensor("mine", shape=[None, 9])], units=2)
    return functional([fed("x", 4), mine, own_add, dense], ["d", "add"])


def test_classes_that_are_not_understood() -> None:
    # A class of one's own is none of Keras, whatever its name is.
    said = fault(unknown_model())
    assert said == (
        "classes of layers that are not understood: Mine (mine), Add (add); "
        "--unknown=zero takes them as costing nothing"
    )
    graph = read(unknown_model(), unknown="zero")
    assert [node.type_name for node in graph.nodes].count("Unknown") == 2
    assert params(graph) == {"d": 9 * 2 + 2}  # of the 9 numbers that the file says


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ({"class_name": "Mine", "config": {}}, "Mine is a class of its own: only Functional and"),
        ([1], "it is no configuration of a Keras model"),
        (sequential(fed("x", None, 4), layer("LSTM", "l", units=2)),
         'its input "x" leaves sizes open (?x?x4): give --input x=1x...'),
        (sequential(layer("Dense", "d", units=2)), 'its input "input" says no shape'),
        (sequential(fed("x", 4), layer("Conv2D", "c", filters=2, kernel_size=3)),
         'layer "c": Conv2D: its input must have 4 axes, got '),
        (sequential(fed("x", 4), layer("Dense", "d", units=-1)),
         'layer "d": key "units": Dense: expected a whole number of at least 1, got -1'),
        (sequential(fed("x", 4), layer("Dense", "d", units=2, activation="sparsemax")),
         'layer "d": key "activation": Dense: the activation "sparsemax" is not understood'),
        (sequential(fed("x", 4), layer("Dense", "d", units=2, lora_rank=2)),
         'layer "d": key "lora_rank": Dense: factors beside a weight are not understood'),
        (sequential(fed("x", 4), layer("LayerNormalization", "n", axis=[])),
         'layer "n": key "axis": LayerNormalization: it names no axis'),
        (functional([fed("x", 4), layer("Dense", "d", 1.5, units=2)], ["d"]),
         "what its layers are called with is not understood"),
        (functional([fed("x", 4), layer("Dense", "d", "y", units=2)], ["d"]),
         'layer "d": it reads "y", which nothing gives before it'),
        (functional([fed("x", 4), layer("Dense", "d", "d", units=2)], ["d"]),
         'layer "d": it reads "d", which nothing gives before it'),
        (functional([fed("x", 4)], ["y"]), 'its output "y" is given by no layer'),
        (functional([fed("x", 4), layer("Dense", "d", "x", units=2),
                     layer("ReLU", "r", [tensor("d", shape=[None, 3])])], ["r"]),
         'layer "d": Dense: its output of 2 is not what the file says, ?x3'),
    ],
)  # fmt: skip
def test_faults(model: Any, said: str) -> None:
    assert fault(model).startswith(said)


def test_inputs_that_are_given() -> None:
    model = sequential(fed("x", None, 4), layer("LSTM", "l", units=2))
    assert outputs(read(model, input=(("x", (3, 6, 4)),)))["x"] == (3, 6, 4)
    assert fault(model, input=((None, (3, 6, 5)),)) == '--input: "x" is ?x?x4, not 3x6x5'
    model = sequential(fed("x", 4), layer("Dense", "d", units=2))
    assert fault(model, input=(("y", (3, 4)),)) == '--input has no "y"; there are: x'


@pytest.mark.parametrize(
    ("content", "said"),
    [
        # Named, since the time stands in a zip file.
        pytest.param(
            zipped({}, "other.json"),
            "it has no config.json: no Keras model is saved in it",
            id="other file",
        ),
        pytest.param(
            zipped(sequential(fed("x", 4)))[:60],
            "it is damaged: config.json in it cannot be read",
            id="cut off",
        ),
        (b"PK\3\4", "it is damaged: config.json in it cannot be read"),
        (b"", "its configuration is no JSON"),
        (b"{", "its configuration is no JSON"),
        (b"[" * 100_000, "its configuration is no JSON"),
        (b'{"class_name": "Functional", "config": {"layers": 1}}', "Functional is a class of its"),
    ],
)
def test_damaged_files(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "net.keras"
    path.write_bytes(content)
    with pytest.raises(paleo.NetSpecError) as caught:
        paleo.load(path)
    assert str(caught.value).startswith(f"{path}: {said}")
    assert "\n" not in str(caught.value)


def test_a_compressed_stream_that_is_damaged(tmp_path: Path) -> None:
    content = bytearray(zipped(sequential(fed("x", 4), layer("Dense", "d", units=2))))
    middle = content.index(b"config.json") + 40
    content[middle : middle + 8] = b"\xff" * 8
    path = tmp_path / "net.keras"
    path.write_bytes(content)
    with pytest.raises(paleo.NetSpecError, match=r"damaged: config\.json in it cannot"):
        paleo.load(path)
