"""Whole nets in TensorFlow: what they compute, learn and share, in one graph and in parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tensorflow_layers import PERCEPTRON, graph_of

import paleo
from paleo.core.operations import Pass
from paleo.measure.executors import find_executor
from paleo.measure.executors.executor import PARTS
from paleo.step.passes import keep_shape

tf: Any = pytest.importorskip("tensorflow", reason="needs TensorFlow")

NETS = (
    "lenet5", "alex_v2_2gpu", "squeezenet_simple_bypass", "resnet18", "mobilenet_v3_small",
    "shufflenet_v2_x0_5", "densenet40", "dcgan_generator", "dcgan_discriminator", "googlenet",
    "mnasnet0_5", "nin_227", "msft_speech", "lstm_lm",
)  # fmt: skip
#: Others have their blocks, or the like.
DEEPER = {"densenet40", "mnasnet0_5", "shufflenet_v2_x0_5"}


@pytest.fixture(scope="module")
def executor() -> Any:
    return find_executor("tensorflow", "cpu")


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=[pytest.mark.deeper] * (each in DEEPER)) for each in NETS]
)
def test_predefined_nets_infer_and_step(name: str, executor: Any) -> None:
    net = executor.net(paleo.build(paleo.load(name), 2, "fp32", keep_shape))
    marks: list[str] = []
    net.infer()
    net.step()
    net.step(marks.append)
    assert tuple(marks) == PARTS


def weights(net: Any) -> list[Any]:
    return [each.numpy() for own in net._weights for each in own]


@pytest.mark.parametrize("in_parts", [False, True])
def test_a_step_descends_along_the_gradient_of_the_weighted_results(
    executor: Any, in_parts: bool
) -> None:
    net = executor.net(graph_of(PERCEPTRON))
    x, counts = net._training.traced.given.values()
    matrix, bias = weights(net)
    net.step(*[lambda part: None] * in_parts)
    new_matrix, new_bias = weights(net)
    # loss = sum(counts * (x W + b)), so dW = x' counts and db is the sum of counts over samples.
    rate = np.float32(1e-6)
    assert np.allclose(new_matrix, matrix - rate * x.numpy().T @ counts.numpy(), atol=1e-9)
    assert np.allclose(new_bias, bias - rate * counts.numpy().sum(0), atol=1e-9)
    assert not np.array_equal(new_matrix, matrix)


def test_a_step_in_parts_gives_what_a_step_in_one_does(executor: Any) -> None:
    graph = paleo.build(paleo.load("lenet5"), 2)
    whole, cut = executor.net(graph), executor.net(graph)
    for _ in range(3):
        whole.step()
        cut.step(lambda part: None)
    for one_, other in zip(weights(whole), weights(cut), strict=True):
        assert np.allclose(one_, other, rtol=1e-5, atol=1e-7)


def test_shared_parameters_are_one_variable_and_their_gradients_add_up(executor: Any) -> None:
    layers = {
        "data": {"type": "Input", "tensor": [2, 3]},
        "a": {"type": "InnerProduct", "parents": ["data"], "num_outputs": 3, "use_bias": False},
        "b": {"type": "InnerProduct", "parents": ["data"], "num_outputs": 3, "shares": "a"},
    }
    net = executor.net(graph_of(layers))
    # The matrix, and the bias that `b` has for itself.
    assert [each.shape for each in weights(net)] == [(3, 3), (3,)]
    x, of_a, of_b = net._training.traced.given.values()
    before = weights(net)[0]
    net.step()
    gradient = x.numpy().T @ (of_a.numpy() + of_b.numpy())
    assert np.allclose(weights(net)[0], before - np.float32(1e-6) * gradient, atol=1e-9)


def test_a_table_is_shared_as_a_matrix(executor: Any) -> None:
    layers = {
        "words": {"type": "Input", "tensor": [2, 5]},
        "table": {"type": "Embedding", "parents": ["words"], "num_embeddings": 50,
                  "num_outputs": 8},
        "scores": {"type": "InnerProduct", "parents": ["table"], "num_outputs": 50, "axis": -1,
                   "use_bias": False, "shares": "table"},
    }  # fmt: skip
    graph = graph_of(layers)
    net = executor.net(graph)
    assert [each.shape for each in weights(net)] == [(50, 8)]
    net.infer()
    net.step()
    run = executor.layer(graph, graph.nodes[2], (True,))
    assert run.update is None  # there is nothing of its own


def test_a_parameter_is_trained_and_a_constant_is_not(executor: Any) -> None:
    layers = {
        "data": {"type": "Input", "tensor": [2, 3]},
        "place": {"type": "Parameter", "shape": [3]},
        "mask": {"type": "Parameter", "shape": [3], "trainable": False},
        "sum": {"type": "Elementwise", "parents": ["data", "place"]},
        "x": {"type": "Elementwise", "parents": ["sum", "mask"], "function": "product"},
    }
    net = executor.net(graph_of(layers))
    _, counts = net._training.traced.given.values()
    (place,), mask = weights(net), net._states[2][0].numpy()
    assert place.shape == mask.shape == (1, 3)
    net.step()
    # loss = sum(counts (x + p) m), so dp is the sum of counts m over samples.
    gradient = (counts.numpy() * mask).sum(0, keepdims=True)
    assert np.allclose(weights(net)[0], place - np.float32(1e-6) * gradient, atol=1e-9)
    assert np.array_equal(net._states[2][0].numpy(), mask)


def test_a_normalization_learns_statistics_and_infers_with_them(executor: Any) -> None:
    layers = {
        "data": {"type": "Input", "tensor": [4, 3]},
        "norm": {"type": "BatchNorm", "parents": ["data"], "affine": False},
    }
    net = executor.net(graph_of(layers))
    x = net._inputs[0].numpy()
    mean, variance = (each.numpy() for each in net._states[1])
    assert np.array_equal(mean, np.zeros(3))
    assert np.array_equal(variance, np.ones(3))
    net.infer()
    # With mean 0 and variance 1, inference hands its input on.
    assert np.allclose(net._inference()[0].numpy(), x / np.sqrt(1 + 1e-5), atol=1e-5)
    net.step()
    mean, variance = (each.numpy() for each in net._states[1])
    assert np.allclose(mean, 0.1 * x.mean(0), atol=1e-6)
    # TensorFlow takes the variance of 4 numbers over 3.
    assert np.allclose(variance, 0.9 + 0.1 * x.var(0, ddof=1), atol=1e-5)


def test_dropout_is_for_training(executor: Any) -> None:
    layers = {
        "data": {"type": "Input", "tensor": [4, 100]},
        "drop": {"type": "Dropout", "parents": ["data"], "dropout_keep_prob": 0.5},
    }
    graph = graph_of(layers)
    net = executor.net(graph)
    assert np.array_equal(net._inference()[0].numpy(), net._inputs[0].numpy())
    run = executor.layer(graph, graph.nodes[1], (True,))
    kept = run.passes[Pass.FORWARD]()[0].numpy()
    # 400 elements of which about half are 0; 300 would be ten standard deviations off.
    assert 100 < np.count_nonzero(kept == 0) < 300


def test_words_are_whole_numbers_below_the_tables_length(executor: Any) -> None:
    layers = {
        "words": {"type": "Input", "tensor": [4, 60]},
        "rows": {"type": "Reshape", "parents": ["words"], "output_shape": [-1, 6, 10]},
        "table": {"type": "Embedding", "parents": ["rows"], "num_embeddings": 7,
                  "num_outputs": 2},
    }  # fmt: skip
    net = executor.net(graph_of(layers))
    words = net._inputs[0].numpy()
    assert words.dtype == np.int64
    assert set(words.ravel()) == set(range(7))  # of 240 numbers
    net.step()


def test_words_that_are_moved_and_joined_are_still_words(executor: Any) -> None:
    layers = {
        "words": {"type": "Input", "tensor": [4, 60]},
        "more": {"type": "Input", "tensor": [4, 20]},
        "rolled": {"type": "Rearrange", "parents": ["words"]},
        "all": {"type": "Concatenate", "parents": ["rolled", "more"]},
        "table": {"type": "Embedding", "parents": ["all"], "num_embeddings": 7, "num_outputs": 2},
    }
    net = executor.net(graph_of(layers))
    assert [net._inputs[i].dtype for i in (0, 1)] == [tf.int64, tf.int64]
    assert set(net._inputs[0].numpy().ravel()) == set(range(7))
    net.step()


def test_what_is_read_as_labels_and_as_an_image_stays_an_image(executor: Any) -> None:
    layers = {
        "data": {"type": "Input", "tensor": [4, 6]},
        "fc": {"type": "InnerProduct", "parents": ["data"], "num_outputs": 3},
        "loss": {"type": "Loss", "parents": ["fc", "data"]},
    }
    net = executor.net(graph_of(layers))
    assert net._inputs[0].dtype == tf.float32
    net.step()


def test_a_net_without_parameters_or_gradients_steps(executor: Any) -> None:
    layers = {
        "data": {"type": "Input", "tensor": [2, 3]},
        "x": {"type": "Activation", "parents": ["data"], "function": "relu"},
        "y": {"type": "Reduce", "parents": ["x"], "dims": [1], "function": "argmax"},
    }
    net = executor.net(graph_of(layers))
    net.infer()
    net.step()
    marks: list[str] = []
    net.step(marks.append)
    assert tuple(marks) == PARTS
