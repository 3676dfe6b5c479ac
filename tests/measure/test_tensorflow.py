"""The TensorFlow executor: every layer type, gradients by themselves, whole nets, and errors.

What layers compute is in `test_tensorflow_layers` and `test_tensorflow_elements`.
"""

from __future__ import annotations

import os
from math import prod
from typing import Any

import numpy as np
import pytest
from layer_examples import EXAMPLES, Example, node_of
from tensorflow_layers import PERCEPTRON, graph_of, one, run_all

import paleo
from paleo.core.errors import ExecutorError, SettingError
from paleo.core.operations import LAYER_PASSES, Pass
from paleo.core.quiet import no_stderr
from paleo.measure.executors import Executor, find_executor, measure
from paleo.measure.executors.tensorflow import runtime
from paleo.measure.executors.tensorflow.builders import BUILDERS, Scene
from paleo.measure.executors.tensorflow.trace import Traced

tf: Any = pytest.importorskip("tensorflow", reason="needs TensorFlow")

#: What TensorFlow has nothing for, and why.
UNBUILT = {
    "Pooling strides padding ksize rounding dilations": "no pooling that is both dilated and",
    "Convolution strides padding filter groups": "no convolution by a filter for each sample",
    "Deconvolution strides padding filter output_shape use_bias": "no convolution by a filter for",
    "Sigmoid": "2x6x6x4 has other elements than 2x1",
    "Softmax num_classes": "2x6x6x4 has other elements than 2x10",
    "Unknown operator output_shape": "TensorFlow has no operator for it",
    "Proposals num_regions num_compared": "TensorFlow has no operator for it",
    "Proposals num_regions num_values": "TensorFlow has no operator for it",
    "RegionPooling size": "TensorFlow has no operator for it",
    "RegionPooling size samples": "TensorFlow has no operator for it",
    "RegionPooling size mode": "TensorFlow has no operator for it",
    "RegionPooling size mode position_sensitive": "TensorFlow has no operator for it",
    "Attention causal chunk": "TensorFlow has no operator for it",
    "Attention sinks": "TensorFlow has no operator for it",
    "Attention causal best": "TensorFlow has no operator for it",
    "SelectKeys k": "TensorFlow has no operator for it",
    "Attention alibi softcap": "TensorFlow has no operator for it",
    "Experts num_experts num_outputs load": "rows are spread evenly over experts",
    "Experts num_experts num_outputs load shared": "rows are spread evenly over experts",
    "SelectiveScan": "TensorFlow has no operator for it",
    "StateSpaceDual": "TensorFlow has no operator for it",
    "StateSpaceDual chunk": "TensorFlow has no operator for it",
    "GatedDelta": "TensorFlow has no operator for it",
    "GatedDelta chunk": "TensorFlow has no operator for it",
    "GatedDelta chunk resumes": "TensorFlow has no operator for it",
    "LinearCrossEntropy num_outputs": "TensorFlow has no operator for it",
    "LinearCrossEntropy num_outputs use_bias chunk": "TensorFlow has no operator for it",
    "InnerProduct num_outputs weights group": "no product with weights in int4",
    "InnerProduct num_outputs weights": "no product with weights in nvfp4",
    "Experts num_experts num_outputs weights group": "no product with weights in fp8",
    "TopK k": "TensorFlow has no operator for it",
    "Dispatch": "TensorFlow has no operator for it",
    "Dispatch capacity num_experts": "TensorFlow has no operator for it",
    "Combine": "TensorFlow has no operator for it",
}
#: Layers in which no element moves or changes.
VIEWS = ("Input", "Parameter", "Reshape", "Flatten")


@pytest.fixture(scope="module")
def executor() -> Any:
    return find_executor("tensorflow", "cpu")


# ---- Layers ------------------------------------------------------------------------------------

BUILT = [
    example
    for example in EXAMPLES
    if str(example) not in UNBUILT
    and not paleo.LAYERS[example.kind].is_exchange  # of which a device alone has none
]


@pytest.mark.parametrize("example", BUILT, ids=str)
def test_every_example_runs_with_the_passes_that_it_has(example: Example, executor: Any) -> None:
    graph, node = node_of(example)
    run = executor.layer(graph, node, (True,) * len(node.parents))
    found = run_all(run)
    is_view = example.kind in VIEWS or example == Example("Elementwise", {})
    assert (Pass.FORWARD in found) != is_view
    if not is_view:
        # Shapes of outputs are checked when the graph is made; here, that one comes back.
        assert any(tuple(each.shape) == node.output for each in found[Pass.FORWARD])
    assert (run.update is not None) == (node.num_params > 0)
    if example.kind != "Parameter":
        assert (Pass.WEIGHT_GRADIENT in found) == (node.num_params > 0)
    no_gradient = is_view or example.kind in ("Embedding", "Accuracy")
    assert (Pass.INPUT_GRADIENT in found) == (not no_gradient and not run.joins)


@pytest.mark.parametrize("example", BUILT, ids=str)
def test_every_example_has_the_parameters_that_are_counted(example: Example, executor: Any) -> None:
    if example.kind in ("Input", "Parameter"):
        return  # they are no operators
    _, node = node_of(example)
    made = sum(prod(each.shape) for each in executor.block(node).parameters)
    if example.kind == "Deconvolution" and "use_bias" not in example.keys:
        # Channels in are counted, 4, and channels out have a bias, 8: the habit of 2017.
        made += 4 - 8
    assert made == node.num_params


@pytest.mark.parametrize("name", list(UNBUILT))
def test_what_cannot_be_built_names_the_layer_and_its_type(name: str, executor: Any) -> None:
    example = next(each for each in EXAMPLES if str(each) == name)
    graph, node = node_of(example)
    with pytest.raises(ExecutorError) as caught:
        executor.layer(graph, node, (True,) * len(node.parents))
    assert str(caught.value).startswith(
        f'layer "x": executor tensorflow cannot run {example.kind}: '
    )
    assert UNBUILT[name] in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(ExecutorError, match=f'layer "x": .* {example.kind}'):
        executor.net(graph)


def test_a_layer_of_another_shape_than_the_graph_says_is_an_error(
    executor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = one({"type": "Activation", "function": "relu"}, [2, 3])
    monkeypatch.setitem(BUILDERS, "Activation", lambda call: tf.nn.relu(call.x[:, :2]))
    with pytest.raises(ExecutorError, match="Activation: TensorFlow gives 2x2, the net format 2x3"):
        executor.layer(graph, graph.nodes[1], (True,))


# ---- Gradients by themselves -------------------------------------------------------------------


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Record the types of the operators of each part that is made of a graph."""
    found: list[list[str]] = []
    original = Traced.part

    def part(self: Traced, operators: Any, fetched: Any) -> Any:
        found.append([each.type for each in operators.values()])
        return original(self, operators, fetched)

    monkeypatch.setattr(Traced, "part", part)
    return found


CONVOLUTION = {
    "type": "Convolution", "filter": [3, 3, 4, 8], "strides": [1, 1, 1, 1], "padding": "SAME",
    "activation_fn": "relu",
}  # fmt: skip


def test_a_gradient_has_neither_the_forward_pass_nor_the_other_gradient(
    executor: Any, parts: list[list[str]]
) -> None:
    graph = one(CONVOLUTION, [2, 6, 6, 4])
    executor.layer(graph, graph.nodes[1], (True,))
    forward, of_filter, of_input, update = parts
    assert {"Conv2D", "BiasAdd", "Relu"} <= set(forward)
    # Bias and activation belong to the parameters' gradient, which is never skipped.
    assert {"Conv2DBackpropFilter", "BiasAddGrad", "ReluGrad"} <= set(of_filter)
    assert "Conv2DBackpropInput" in of_input
    assert {"Conv2D", "Relu", "ReluGrad", "Conv2DBackpropFilter"}.isdisjoint(of_input)
    assert {"Conv2D", "Relu", "Conv2DBackpropInput"}.isdisjoint(of_filter)
    # The filter and the bias.
    assert update.count("ResourceApplyGradientDescent") == 2


def test_without_a_gradient_to_hand_on_only_that_of_the_parameters_runs(
    executor: Any, parts: list[list[str]]
) -> None:
    graph = one(CONVOLUTION, [2, 6, 6, 4])
    run = executor.layer(graph, graph.nodes[1], (False,))
    assert set(run.passes) == {Pass.FORWARD, Pass.WEIGHT_GRADIENT}
    assert not any("Conv2DBackpropInput" in part for part in parts)


@pytest.mark.parametrize("example", BUILT, ids=str)
def test_no_operator_that_computes_is_in_two_passes(
    example: Example, executor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[set[str]] = []
    original = Traced.part

    def part(self: Traced, operators: Any, fetched: Any) -> Any:
        found.append({each.name for each in operators.values() if each.type != "Const"})
        return original(self, operators, fetched)

    monkeypatch.setattr(Traced, "part", part)
    graph, node = node_of(example)
    run = executor.layer(graph, node, (True,) * len(node.parents))
    passes = found[: len(found) - (run.update is not None)]
    assert sum(map(len, passes)) == len(set().union(*passes))


@pytest.mark.parametrize(
    "example", [each for each in BUILT if each.kind not in (*VIEWS, "Dropout")], ids=str
)
def test_gradients_are_those_that_a_tape_computes(example: Example, executor: Any) -> None:
    graph, node = node_of(example)
    block = executor.block(node)
    xs = [
        executor.random(shape, 1 + k, node.layer.index_limit(k, node.inputs))
        for k, shape in enumerate(node.inputs)
    ]
    ws = executor.values(block.parameters)
    states = [tf.Variable(each) for each in executor.values(block.statistics)]
    start = executor.random(node.output, 0)

    @tf.function(autograph=False)
    def gradients() -> list[Any]:
        scene = Scene(tf, executor.computing, training=True)
        with tf.GradientTape() as tape:
            tape.watch([*xs, *ws])
            output = block.run(scene, xs, ws, states)
        found = tape.gradient(output, [*xs, *ws], start)
        return [tf.convert_to_tensor(each) for each in found if each is not None]

    given = run_all(executor.layer(graph, node, (True,) * len(xs)))
    known = [each.numpy() for direction in LAYER_PASSES[1:] for each in given.get(direction, [])
             if each.dtype.is_floating]  # fmt: skip
    handed_on = start.numpy()
    for wanted in gradients():
        value = wanted.numpy()
        if value.size == handed_on.size and np.allclose(value.ravel(), handed_on.ravel()):
            continue  # nothing to compute
        assert any(
            own.shape == value.shape and np.allclose(own, value, rtol=1e-4, atol=1e-5)
            for own in known
        )


def test_gradients_that_one_operator_makes_are_joined(executor: Any) -> None:
    graph = one({"type": "BatchNorm"}, [4, 3, 3, 2])
    run = executor.layer(graph, graph.nodes[1], (True,))
    assert run.joins
    assert set(run.passes) == {Pass.FORWARD, Pass.WEIGHT_GRADIENT}
    # Without parameters it is the input's alone.
    graph = one({"type": "BatchNorm", "affine": False}, [4, 3, 3, 2])
    run = executor.layer(graph, graph.nodes[1], (True,))
    assert not run.joins
    assert set(run.passes) == {Pass.FORWARD, Pass.INPUT_GRADIENT}


def test_inputs_are_not_folded_into_constants(executor: Any, parts: list[list[str]]) -> None:
    graph = one({"type": "InnerProduct", "num_outputs": 3}, [2, 5])
    executor.layer(graph, graph.nodes[1], (True,))
    # What is fed is no operator of a part: input, matrix and bias are not made in it.
    assert "RandomStandardNormal" not in parts[0]
    assert parts[0].count("Placeholder") == 3


# ---- Element types -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "computing", "learning"),
    [
        ("fp64", "float64", "float64"),
        ("fp16", "float16", "float16"),
        ("bf16", "bfloat16", "bfloat16"),
        ("mixed_fp16", "float16", "float32"),
        ("mixed_bf16", "bfloat16", "float32"),
    ],
)
def test_layers_compute_and_learn_in_the_types_that_are_asked_for(
    dtype: str, computing: str, learning: str
) -> None:
    executor: Any = find_executor("tensorflow", "cpu", dtype)
    for layer in (CONVOLUTION, {"type": "BatchNorm"}, {"type": "InnerProduct", "num_outputs": 3}):
        graph = one(layer, [2, 6, 6, 4], dtype=dtype)
        found = run_all(executor.layer(graph, graph.nodes[1], (True,)))
        assert found[Pass.FORWARD][-1].dtype.name in (computing, "float32")
        assert any(each.dtype.name == computing for each in found[Pass.FORWARD])
        assert any(each.dtype.name == learning for each in found[Pass.WEIGHT_GRADIENT])
    net: Any = executor.net(graph_of(PERCEPTRON, dtype))
    net.infer()
    net.step()
    assert {each.dtype.name for own in net._weights for each in own} == {learning}


# ---- The executor, and errors ------------------------------------------------------------------


def test_it_says_where_it_runs_and_of_which_version_it_is(executor: Executor) -> None:
    assert (executor.name, executor.place) == ("tensorflow", "cpu")
    assert executor.hardware
    assert executor.versions == {"tensorflow": tf.__version__}
    executor.synchronize()


def test_on_a_gpu_it_says_which_and_takes_memory_as_it_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    called: list[Any] = []
    experimental = tf.config.experimental
    built = {"cuda_version": "12.5.1", "cudnn_version": "9"}
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [f"{kind}:0"])
    monkeypatch.setattr(experimental, "get_device_details", lambda gpu: {"device_name": "H200"})
    monkeypatch.setattr(experimental, "set_memory_growth", lambda *each: called.append(each))
    monkeypatch.setattr(experimental, "enable_tensor_float_32_execution", called.append)
    monkeypatch.setattr(tf.sysconfig, "get_build_info", lambda: built)
    monkeypatch.setattr(tf.test.experimental, "sync_devices", lambda: called.append("waited"))
    executor = find_executor("tensorflow", None, "tf32")
    assert (executor.place, executor.hardware) == ("cuda", "H200")
    assert executor.versions == {"tensorflow": tf.__version__, "cuda": "12.5.1", "cudnn": "9"}
    executor.synchronize()
    assert called == [True, ("GPU:0", True), "waited"]
    find_executor("tensorflow", "cuda", "fp32")
    assert called[3] is False  # products of fp32 are not rounded


def test_beside_a_gpu_what_runs_on_the_cpu_is_placed_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [f"{kind}:0"])
    executor: Any = find_executor("tensorflow", "cpu")
    assert executor.versions == {"tensorflow": tf.__version__}
    graph = one(CONVOLUTION, [2, 6, 6, 4])
    found = run_all(executor.layer(graph, graph.nodes[1], (True,)))
    for result in (each for own in found.values() for each in own):
        assert result.device.endswith("CPU:0")
    assert isinstance(executor.on_device(), type(tf.device("/CPU:0")))


def test_a_pass_can_be_measured(executor: Any) -> None:
    graph = one(CONVOLUTION, [2, 6, 6, 4])
    run = executor.layer(graph, graph.nodes[1], (True,))
    call = run.passes[Pass.FORWARD]
    timing = measure(call, executor.synchronize, num_warmup=1, num_iter=3)
    assert len(timing.seconds) == 3
    assert timing.median > 0


@pytest.mark.parametrize(
    ("place", "dtype", "message"),
    [
        ("mps", "fp32", "executor tensorflow: it does not run on Apple's GPUs; places here: cpu"),
        ("tpu", "fp32", "executor tensorflow: unknown place 'tpu'; places here: cpu"),
        ("cuda", "fp32", "executor tensorflow: TensorFlow finds no CUDA device; places here: cpu"),
        ("cpu", "fp8", "executor tensorflow cannot compute a net in fp8"),
        ("cpu", "int8", "executor tensorflow cannot compute a net in int8"),
        ("cpu", "tf32", "executor tensorflow: tf32 is a type of CUDA devices, not of cpu"),
    ],
)
def test_what_it_cannot_run_on_or_in_is_one_line(
    place: str, dtype: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [])
    with pytest.raises(SettingError) as caught:
        find_executor("tensorflow", place, dtype)
    assert str(caught.value) == message


def test_a_layer_or_net_larger_than_memory_is_refused_before_it_is_made(
    executor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = one({"type": "InnerProduct", "num_outputs": 1024}, [64, 1024])
    monkeypatch.setattr(executor, "free_memory", lambda: 2**20)
    # Two times 4 bytes of 64 x 1024 in, 64 x 1024 out and 1024 x 1025 parameters: 9 445 376 bytes,
    # 0.0088 GiB; 2**20 bytes are 0.000977 GiB.
    message = r'layer "x": it needs 0.0088 GiB, 0.000977 GiB are free'
    with pytest.raises(ExecutorError, match=message):
        executor.layer(graph, graph.nodes[1], (True,))
    with pytest.raises(ExecutorError, match=r"^the net needs .* GiB, 0\.000977 GiB are free"):
        executor.net(graph)
    monkeypatch.setattr(executor, "free_memory", lambda: 2**40)
    net = executor.net(graph)
    net.infer()
    monkeypatch.setattr(executor, "free_memory", lambda: 0)
    net.infer()
    with pytest.raises(ExecutorError, match=r"^the net needs"):
        net.step()


def test_memory_that_runs_out_while_it_runs_is_an_error_of_the_layer(
    executor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = one(CONVOLUTION, [2, 6, 6, 4])
    original, is_full = Traced.call, False

    def call_of(self: Traced, operators: Any, fetched: Any) -> Any:
        run = original(self, operators, fetched)

        def call() -> Any:
            if is_full:
                raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")
            return run()

        return call

    monkeypatch.setattr(Traced, "call", call_of)
    run = executor.layer(graph, graph.nodes[1], (True,))
    is_full = True
    assert len(run.passes) == 3
    for call in run.passes.values():
        with pytest.raises(ExecutorError) as caught:
            call()
        assert str(caught.value) == (
            'layer "x": executor tensorflow cannot run Convolution: '
            "its tensors do not fit in memory"
        )


SAID = {
    "Gradients for grouped convolutions are not supported on CPU.": (
        "Graph execution error:\n\nDetected at node x defined at (most recent call last):\n"
        '  File "a.py", line 1, in f\n\nGradients for grouped convolutions are not supported on '
        "CPU.\n\t [[{{node Conv2D}}]] [Op:__inference_f_1]"
    ),
    "Current implementations do not.": (
        "{{function_node __wrapped__StatefulPartitionedCall_device_/job:localhost}} Current "
        "implementations do not. [Op:StatefulPartitionedCall] name: "
    ),
    "TypeError: no float64": (
        'in user code:\n\n    File "a.py", line 3, in f  *\n        y = g(x)\n\n    '
        "TypeError: no float64\n"
    ),
    "No OpKernel was registered": "No OpKernel was registered\nmore of it",
    "ValueError": "",
}


@pytest.mark.parametrize("line", list(SAID))
def test_what_tensorflow_says_is_brought_down_to_one_line(line: str) -> None:
    assert runtime._reason(ValueError(SAID[line])) == line


def test_an_array_of_batches_is_refused(executor: Any) -> None:
    graph = paleo.build(paleo.load("lenet5"), np.array([1, 2]))
    with pytest.raises(SettingError, match="at one batch size, not at an array"):
        executor.net(graph)
    with pytest.raises(SettingError, match="at one batch size, not at an array"):
        executor.layer(graph, graph.nodes[1], (False,))


def test_what_runs_leaves_no_trace_in_the_process(executor: Any) -> None:
    state = tf.random.get_global_generator().state.numpy()
    graph = one(CONVOLUTION, [2, 6, 6, 4])
    executor.layer(graph, graph.nodes[1], (True,))
    assert tf.executing_eagerly()
    assert np.array_equal(tf.random.get_global_generator().state.numpy(), state)


def test_while_it_is_imported_nothing_is_said(capfd: pytest.CaptureFixture[str]) -> None:
    os.write(2, b"before ")
    with no_stderr():
        os.write(2, b"while ")
    os.write(2, b"after")
    assert capfd.readouterr().err == "before after"
