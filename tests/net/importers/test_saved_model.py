"""SavedModels of TensorFlow, whose weights are not read; counts are by hand."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

import paleo

tf: Any = pytest.importorskip("tensorflow", reason="needs TensorFlow")
pytest.importorskip("tf2onnx", reason="needs tf2onnx")
keras: Any = tf.keras


def saved(model: Any, folder: Path) -> Path:
    """Return the folder of a Keras model's SavedModel."""
    model.export(str(folder), verbose=False)
    return folder


def layers_of(target: Path, kind: str, **options: Any) -> list[tuple[int, Any]]:
    """Return the parameters and the FLOPs of a forward pass of layers at a batch of 1."""
    net = paleo.load(target, paleo.ImportOptions(**options)).with_batch(1)
    return [
        (layer.num_params, layer.forward_flops)
        for layer in paleo.summarize(net).layers
        if layer.type_name == kind
    ]


def dense() -> Any:
    layers = keras.layers
    return keras.Sequential(
        [layers.Input((20,), name="x"), layers.Dense(30, activation="relu"), layers.Dense(5)]
    )


def test_a_dense_net(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = saved(dense(), tmp_path / "small")
    capfd.readouterr()
    net = paleo.load(folder)
    assert net.name == "small"
    assert capfd.readouterr() == ("", "")
    # Names are without those of the functions around them.
    assert [layer.name.partition("/")[0] for layer in net.layers[:1]] == ["x"]
    assert not any("PartitionedCall" in layer.name for layer in net.layers)
    products = [(20 * 30 + 30, 2 * 20 * 30), (30 * 5 + 5, 2 * 30 * 5)]
    assert layers_of(folder, "InnerProduct") == products
    assert layers_of(folder / "saved_model.pb", "InnerProduct") == products
    assert paleo.summarize(net).num_params == sum(params for params, _ in products)
    assert paleo.summarize(net.with_batch(7)).layers[0].output[0] == 7


def test_weights_are_not_read(tmp_path: Path) -> None:
    folder = saved(dense(), tmp_path / "small")
    for path in (folder / "variables").iterdir():
        path.unlink()
    assert paleo.summarize(paleo.load(folder)).num_params == 20 * 30 + 30 + 30 * 5 + 5


def test_a_convolutional_net_keeps_scales_and_shifts_of_normalizations(tmp_path: Path) -> None:
    layers = keras.layers
    net = keras.Sequential(
        [
            layers.Input((None, None, 3)),
            layers.Conv2D(8, 3, strides=2, padding="same"),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.DepthwiseConv2D(3, padding="same", use_bias=False),
            layers.MaxPooling2D(2),
            layers.Conv2DTranspose(4, 2, strides=2),
            layers.GlobalAveragePooling2D(),
            layers.Dense(10),
        ]
    )
    folder = saved(net, tmp_path / "convolutions")
    shape = {"input": ((None, (1, 32, 32, 3)),)}
    pixels = 16 * 16
    assert layers_of(folder, "Convolution", **shape) == [
        (3 * 3 * 3 * 8 + 8, 2 * 3 * 3 * 3 * 8 * pixels),
        (3 * 3 * 8, 2 * 3 * 3 * 8 * pixels),
    ]
    # Each of its 8 x 8 inputs meets all of a filter of 2 x 2.
    assert layers_of(folder, "Deconvolution", **shape) == [
        (2 * 2 * 8 * 4 + 4, 2 * 2 * 2 * 8 * 4 * 8 * 8)
    ]
    assert layers_of(folder, "InnerProduct", **shape) == [(4 * 10 + 10, 2 * 4 * 10)]
    # At inference a normalization is a scale and a shift, as are the parameters that are trained.
    everything = paleo.summarize(
        paleo.load(folder, paleo.ImportOptions(input=((None, (1, 32, 32, 3)),)))
    )
    trained = sum(weight.shape.num_elements() for weight in net.trainable_weights)
    assert trained == 3 * 3 * 3 * 8 + 8 + 2 * 8 + 3 * 3 * 8 + 2 * 2 * 8 * 4 + 4 + 4 * 10 + 10
    assert everything.num_params == trained


def test_a_loop_over_steps_is_a_recurrent_layer(tmp_path: Path) -> None:
    layers = keras.layers
    net = keras.Sequential([layers.Input((12, 8)), layers.LSTM(16), layers.Dense(3)])
    folder = saved(net, tmp_path / "recurrent")
    # ONNX has two biases for each of the four gates.
    assert layers_of(folder, "LSTM")[0][0] == 4 * 16 * (8 + 16 + 2)
    assert layers_of(folder, "InnerProduct") == [(16 * 3 + 3, 2 * 16 * 3)]
    assert any("a bias for the input and another" in note for note in paleo.load(folder).notes)


def test_any_other_loop_is_followed_step_by_step(tmp_path: Path) -> None:
    layers = keras.layers
    net = keras.Sequential(
        [layers.Input((3,), dtype="int32"), layers.Embedding(100, 8), layers.GRU(16)]
    )
    read = paleo.load(saved(net, tmp_path / "steps"))
    # Three gates of weights and two biases, once for all of the steps.
    assert paleo.summarize(read).num_params == 100 * 8 + 3 * 16 * (8 + 16 + 2)


SHAPE = tf.TensorSpec([None, 4], tf.float32, name="x")


def module(**functions: Any) -> tuple[Any, dict[str, Any]]:
    """Return a module and its signatures, by what they do."""
    made = tf.Module()
    made.weight = tf.Variable(tf.zeros((4, 6)))
    return made, {
        name: tf.function(lambda x, f=function: {"y": f(x, made.weight)}).get_concrete_function(
            SHAPE
        )
        for name, function in functions.items()
    }


def save(folder: Path, **functions: Any) -> Path:
    made, signatures = module(**functions)
    tf.saved_model.save(made, str(folder), signatures=signatures)
    return folder


def test_which_signature_is_read(tmp_path: Path) -> None:
    def once(x: Any, weight: Any) -> Any:
        return tf.matmul(x, weight)

    def twice(x: Any, weight: Any) -> Any:
        return tf.matmul(tf.nn.relu(tf.matmul(x, weight)), weight, transpose_b=True)

    flops = 2 * 4 * 6
    only = save(tmp_path / "only", other=once)
    assert [each[1] for each in layers_of(only, "InnerProduct")] == [flops]
    default = save(tmp_path / "default", another=once, serving_default=twice)
    assert [each[1] for each in layers_of(default, "InnerProduct")] == [flops, flops]
    # The product with a weight turned around is of the same weight.
    assert paleo.summarize(paleo.load(default)).num_params == 4 * 6
    several = save(tmp_path / "several", first=once, second=twice)
    with pytest.raises(paleo.NetSpecError, match=r'There are "first", "second"; "serving_default"'):
        paleo.load(several)
    none = save(tmp_path / "none")
    with pytest.raises(paleo.NetSpecError, match="it has no signature"):
        paleo.load(none)


def test_what_is_not_understood_is_one_line(tmp_path: Path) -> None:
    folder = save(
        tmp_path / "special", serving_default=lambda x, weight: tf.math.betainc(x, x, x) @ weight
    )
    with pytest.raises(paleo.NetSpecError, match=r"not understood: Betainc") as caught:
        paleo.load(folder)
    assert "\n" not in str(caught.value)
    # An operator that no library here has, as those of a user's own.
    file = folder / "saved_model.pb"
    file.write_bytes(file.read_bytes().replace(b"Betainc", b"Batainc"))
    with pytest.raises(paleo.NetSpecError, match=r"tf2onnx fails: .*Batainc") as caught:
        paleo.load(folder)
    assert "\n" not in str(caught.value)


def test_what_is_outside_of_a_graph_is_left_alone(tmp_path: Path) -> None:
    def reading(x: Any, weight: Any) -> Any:
        length = tf.strings.length(tf.io.read_file(str(tmp_path / "secret")))
        return x @ weight * tf.cast(length, tf.float32)

    folder = save(tmp_path / "curious", serving_default=reading)
    with pytest.raises(paleo.NetSpecError, match=r"is a ReadFile, which opens files or calls Py"):
        paleo.load(folder)


def test_more_weights_than_a_graph_can_have(tmp_path: Path) -> None:
    folder = save(tmp_path / "large", serving_default=lambda x, weight: x @ weight)
    file = folder / "saved_model.pb"
    message = importlib.import_module("tensorflow.core.protobuf.saved_model_pb2").SavedModel()
    message.ParseFromString(file.read_bytes())
    for node in message.meta_graphs[0].graph_def.node:
        if node.op == "VarHandleOp":
            node.attr["shape"].shape.dim[1].size = 2**28
    file.write_bytes(message.SerializeToString())
    with pytest.raises(paleo.NetSpecError, match=r"it has 4\.0 GiB of variables"):
        paleo.load(folder)


@pytest.mark.parametrize("data", [b"", b"no message of protobuf", b"\x08\x01"])
def test_damaged_files(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(data)
    with pytest.raises(paleo.NetSpecError, match="not a SavedModel, or not all of one"):
        paleo.load(tmp_path)


def test_variables_of_tensorflow_1(tmp_path: Path) -> None:
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None, 4], name="x")
        weight = v1.get_variable("weight", [4, 6], use_resource=False)
        bias = v1.get_variable("bias", [6], use_resource=True)
        y = tf.matmul(x, weight) + bias
        session.run(v1.global_variables_initializer())
        v1.saved_model.simple_save(session, str(tmp_path / "old"), {"x": x}, {"y": y})
    assert layers_of(tmp_path / "old", "InnerProduct") == [(4 * 6 + 6, 2 * 4 * 6)]


def test_without_tf2onnx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save(tmp_path / "only", serving_default=lambda x, weight: x @ weight)
    monkeypatch.setitem(sys.modules, "tf2onnx", None)
    said = r'reading it needs tf2onnx; install it with: pip install "paleo\[tensorflow\]"'
    with pytest.raises(paleo.NetSpecError, match=said):
        paleo.load(folder)
