"""The PyTorch executor: every layer type, whole nets, errors, and what it leaves behind.

What layers compute is in `test_executor_torch_layers` and `test_executor_torch_elements`.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from typing import Any

import pytest
from layer_examples import EXAMPLES, Example, node_of

import paleo
from paleo.core.errors import ExecutorError, SettingError
from paleo.core.operations import LAYER_PASSES, Pass
from paleo.costs import find_cost_model
from paleo.measure.executors import Executor, LayerRun, find_executor
from paleo.measure.executors.executor import PARTS
from paleo.measure.executors.torch.runtime import products_in
from paleo.net.layers.base import Layer
from paleo.step.passes import keep_shape, needed_gradients

torch: Any = pytest.importorskip("torch", reason="needs PyTorch")

#: What the format of 2017 gives, and no operator: see nets/README.md.
ODDITIES = ("Sigmoid", "Softmax num_classes", "Unknown operator output_shape")
#: Those of torchvision are not PyTorch's own.
REGIONS = ("Proposals", "RegionPooling")
#: Those that kernels of other libraries compute.
KERNELS = (
    "TopK", "Dispatch", "Combine",
    "SelectiveScan", "StateSpaceDual", "GatedDelta", "LinearCrossEntropy", "SelectKeys",
)  # fmt: skip
OPTIONS = {"chunk", "sinks", "alibi", "load", "weights", "best"}
BUILT = [
    each
    for each in EXAMPLES
    if str(each) not in ODDITIES
    and each.kind not in (*REGIONS, *KERNELS)
    and not paleo.LAYERS[each.kind].is_exchange  # of which a device alone has none
    and not OPTIONS & each.keys.keys()
]
#: Nets of every kind, in a batch and with images or words that take little time.
NETS = (
    "lenet5", "alex_v2_2gpu", "squeezenet_simple_bypass", "resnet18", "mobilenet_v3_small",
    "shufflenet_v2_x0_5", "densenet40", "dcgan_generator", "dcgan_discriminator", "googlenet",
    "mnasnet0_5", "nin_227", "msft_speech", "lstm_lm",
)  # fmt: skip


@pytest.fixture(scope="module")
def executor() -> Any:
    return find_executor("torch", "cpu")


def graph_of(name: str, batch: int = 2, dtype: str = "fp32") -> paleo.Graph:
    return paleo.build(paleo.load(name), batch, dtype, keep_shape)


def one(layer: dict[str, Any], *inputs: list[int], dtype: str = "fp32") -> paleo.Graph:
    """Return a graph of inputs and one layer, "x"."""
    layers: dict[str, Any] = {
        f"in{i}": {"type": "Input", "tensor": shape} for i, shape in enumerate(inputs)
    }
    layers["x"] = {"parents": list(layers), **layer}
    return paleo.build(paleo.loads(json.dumps({"name": "n", "layers": layers})), dtype=dtype)


def run_all(run: LayerRun) -> dict[Pass, Any]:
    """Run every pass twice and return what the second gave."""
    found = {}
    for direction, call in run.passes.items():
        call()
        found[direction] = call()
    if run.update is not None:
        run.update()
        run.update()
    return found


# ---- Layers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("example", BUILT, ids=str)
@pytest.mark.parametrize("dtype", ["fp32", "mixed_bf16"])
def test_every_example_runs_with_outputs_and_gradients_of_the_right_shapes(
    example: Example, dtype: str
) -> None:
    executor: Any = find_executor("torch", "cpu", dtype)
    graph, node = node_of(example)
    graph = replace(graph, dtype=dtype)
    run = executor.layer(graph, node, (True,) * len(node.parents))
    planned = executor._planned(graph)
    found = run_all(run)
    if not node.parents:
        assert run.passes == {}
        assert (run.update is not None) == node.is_trained
        return

    def shape(tensor: Any, index: int) -> tuple[int, ...]:
        order = planned[index].value.order
        return tuple(tensor.shape[order.index(dimension)] for dimension in range(len(order)))

    assert shape(found[Pass.FORWARD], node.index) == node.output
    assert (Pass.WEIGHT_GRADIENT in found) == (run.update is not None) == node.is_trained
    if node.is_trained:
        gradients = list(found[Pass.WEIGHT_GRADIENT])
        if run.joins:
            assert Pass.INPUT_GRADIENT not in found
            assert shape(gradients.pop(), node.parents[0]) == node.inputs[0]
        assert sum(each.numel() for each in gradients) == node.num_params
        assert {each.dtype for each in gradients} == {torch.float32}
    if Pass.INPUT_GRADIENT in found:
        floats = [k for k in node.parents if planned[k].value.tensor.is_floating_point()]
        assert len(found[Pass.INPUT_GRADIENT]) == len(floats)
        for gradient, k in zip(found[Pass.INPUT_GRADIENT], floats, strict=True):
            assert gradient is None or shape(gradient, k) == graph.nodes[k].output


def test_a_layer_that_has_no_gradient_has_no_such_pass(executor: Any) -> None:
    cases: list[tuple[dict[str, Any], list[list[int]], bool]] = [
        ({"type": "Activation", "function": "sign"}, [[2, 3]], False),
        ({"type": "Activation", "function": "relu"}, [[2, 3]], True),
        ({"type": "Elementwise", "function": "compare"}, [[2, 3], [2, 3]], False),
        ({"type": "Reduce", "function": "argmax", "dims": [1]}, [[2, 3]], False),
        ({"type": "Accuracy"}, [[2, 3], [2, 1]], False),
        ({"type": "Embedding", "num_embeddings": 5, "num_outputs": 3}, [[2, 3]], False),
    ]
    for layer, inputs, expected in cases:
        graph = one(layer, *inputs)
        run = executor.layer(graph, graph.nodes[-1], (True,) * len(inputs))
        assert (Pass.INPUT_GRADIENT in run.passes) == expected


def test_only_the_gradients_that_are_needed_are_computed(executor: Any) -> None:
    graph = one({"type": "MatMul"}, [2, 3, 4], [2, 4, 5])
    node = graph.nodes[-1]
    first = executor.layer(graph, node, (True, False)).passes[Pass.INPUT_GRADIENT]()
    second = executor.layer(graph, node, (False, True)).passes[Pass.INPUT_GRADIENT]()
    both = executor.layer(graph, node, (True, True)).passes[Pass.INPUT_GRADIENT]()
    shapes = [[tuple(each.shape) for each in found] for found in (first, second, both)]
    assert shapes == [[(2, 3, 4)], [(2, 4, 5)], [(2, 3, 4), (2, 4, 5)]]
    assert Pass.INPUT_GRADIENT not in executor.layer(graph, node, (False, False)).passes


def test_of_a_convolution_with_an_activation_the_inputs_gradient_is_the_convolutions(
    executor: Any,
) -> None:
    keys = {"filter": [3, 3, 4, 8], "strides": [1, 1, 1, 1], "padding": "SAME"}
    graph = one({"type": "Convolution", **keys, "activation_fn": "relu"}, [2, 6, 6, 4])
    passes = executor.layer(graph, graph.nodes[-1], (True,)).passes

    def nodes(tensors: Any) -> set[str]:
        """Return the backward functions that ran."""
        return {event.name for event in tensors if "Backward" in event.name}

    from torch.profiler import ProfilerActivity, profile

    ran = {}
    for direction in (Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT):
        passes[direction]()
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            passes[direction]()
        ran[direction] = " ".join(nodes(profiler.events()))
    assert "ReluBackward" in ran[Pass.WEIGHT_GRADIENT]
    assert "ReluBackward" not in ran[Pass.INPUT_GRADIENT]
    assert all("ConvolutionBackward" in each for each in ran.values())


@pytest.mark.parametrize("dtype", ["fp64", "bf16", "fp16", "mixed_fp16"])
def test_layers_compute_in_the_type_that_is_asked_for(dtype: str) -> None:
    executor: Any = find_executor("torch", "cpu", dtype)
    graph = one({"type": "InnerProduct", "num_outputs": 5}, [2, 3], dtype=dtype)
    found = run_all(executor.layer(graph, graph.nodes[-1], (True,)))
    types = {
        "fp64": (torch.float64, torch.float64),
        "bf16": (torch.bfloat16, torch.bfloat16),
        "fp16": (torch.float16, torch.float16),
        "mixed_fp16": (torch.float16, torch.float32),
    }
    computing, learning = types[dtype]
    assert found[Pass.FORWARD].dtype == computing
    assert {each.dtype for each in found[Pass.INPUT_GRADIENT]} == {computing}
    assert {each.dtype for each in found[Pass.WEIGHT_GRADIENT]} == {learning}
    net = executor.net(graph)
    net.infer()
    net.step()
    assert {each.dtype for each in net.parameters} == {learning}


def test_a_dropout_of_one_keeps_everything_and_runs(executor: Any) -> None:
    graph = one({"type": "Dropout", "dropout_keep_prob": 1}, [2, 3])
    assert set(run_all(executor.layer(graph, graph.nodes[-1], (True,)))) == {
        Pass.FORWARD,
        Pass.INPUT_GRADIENT,
    }


# ---- Nets --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NETS)
def test_nets_infer_and_step_with_parameters_as_counted(name: str, executor: Any) -> None:
    graph = graph_of(name)
    net = executor.net(graph)
    assert sum(each.numel() for each in net.parameters) == graph.num_params
    before = [each.detach().clone() for each in net.parameters]
    net.infer()
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters, strict=True))
    done: list[str] = []
    net.step(done.append)
    assert tuple(done) == PARTS
    assert all(each.grad is None for each in net.parameters)
    changed = [not torch.equal(a, b) for a, b in zip(before, net.parameters, strict=True)]
    # Some gradients are too small for a step to be seen, such as of a bias before a normalization.
    assert sum(changed) >= len(changed) / 3


@pytest.mark.parametrize(
    "name", ["convnext", "upsampled_unet", "norms", "gpt", "tagger", "swin", "einsum_attention"]
)
def test_nets_that_come_from_pytorch_go_back_to_it(name: str, executor: Any) -> None:
    import torch_nets

    factory, shape, *_ = torch_nets.SMALL_NETS[name]
    options = paleo.ImportOptions(input=((None, shape),))
    spec = paleo.load(f"python:{factory.__module__}:{factory.__name__}", options)
    net = executor.net(paleo.build(spec, adapt=keep_shape))
    learnt = sum(each.numel() for each in factory().parameters())
    assert sum(each.numel() for each in net.parameters) == learnt
    net.infer()
    net.step()


@pytest.mark.parametrize("name", [*NETS, "gpt2", "bert_base", "unet", "ssd300_resnet50"])
def test_gradients_come_back_to_the_layers_that_need_them(name: str, executor: Any) -> None:
    graph = graph_of(name)
    planned = executor._planned(graph)
    needed = needed_gradients(graph, find_cost_model("tiled").conventions)
    for node, wanted in zip(graph.nodes, needed, strict=True):
        found = tuple(planned[k].value.tensor.requires_grad for k in node.parents)
        assert found == wanted, node.name


@pytest.mark.parametrize("name", ["resnet18", "shufflenet_v2_x0_5", "lstm_lm", "densenet40"])
def test_tensors_lie_in_memory_as_planned(name: str, executor: Any) -> None:
    graph = graph_of(name)
    net, planned = executor.net(graph), executor._planned(graph)
    values = net.values.copy()
    for at, run, held, reads, _ in net.calls:
        values[at] = run([values[k] for k in reads], held, True)
    for value, each in zip(values, planned, strict=True):
        like = each.value.tensor
        assert (value.shape, value.stride(), value.dtype) == (like.shape, like.stride(), like.dtype)


def test_images_are_in_memory_channels_first(executor: Any) -> None:
    graph = graph_of("resnet18")
    for each in executor._planned(graph):
        if len(each.node.output) == 4:
            n, h, w, c = each.node.output
            assert tuple(each.value.tensor.shape) == (n, c, h, w)
            assert each.value.tensor.is_contiguous()


def test_views_move_nothing(executor: Any) -> None:
    layers = {
        "data": {"type": "Input", "tensor": [2, 8, 8, 6]},
        "conv": {"type": "Convolution", "parents": ["data"], "filter": [1, 1, 6, 6],
                 "strides": [1, 1, 1, 1], "padding": "SAME"},
        "flat": {"type": "Flatten", "parents": ["conv"]},
        "groups": {"type": "Reshape", "parents": ["conv"], "output_shape": [-1, 8, 8, 2, 3]},
        "half": {"type": "Slice", "parents": ["conv"], "size": 3},
        "words": {"type": "Reshape", "parents": ["conv"], "output_shape": [-1, 64, 6]},
    }  # fmt: skip
    graph = paleo.build(paleo.loads(json.dumps({"name": "n", "layers": layers})))
    net = executor.net(graph)
    values = net.values.copy()
    for at, run, held, reads, _ in net.calls:
        values[at] = run([values[k] for k in reads], held, True)
    places = {node.name: values[node.index].untyped_storage().data_ptr() for node in graph.nodes}
    assert len({places[name] for name in ("conv", "flat", "groups", "half", "words")}) == 1


def test_shared_parameters_are_one_tensor(executor: Any) -> None:
    layers = {
        "words": {"type": "Input", "tensor": [8, 20]},
        "table": {"type": "Embedding", "parents": ["words"], "num_embeddings": 100,
                  "num_outputs": 64},
        "once": {"type": "InnerProduct", "parents": ["table"], "num_outputs": 64, "axis": -1},
        "again": {"type": "InnerProduct", "parents": ["once"], "num_outputs": 64, "axis": -1,
                  "shares": "once"},
        "steps": {"type": "LSTM", "parents": ["again"], "num_outputs": 64},
        "more": {"type": "LSTM", "parents": ["steps"], "num_outputs": 64, "shares": "steps"},
        "scores": {"type": "InnerProduct", "parents": ["more"], "num_outputs": 100, "axis": -1,
                   "shares": "table"},
    }  # fmt: skip
    graph = paleo.build(paleo.loads(json.dumps({"name": "n", "layers": layers})))
    net = executor.net(graph)
    # 100*64, 64*64 + 64, 4*64 * (64 + 64 + 2), and the 100 biases of the scores.
    assert graph.num_params == 6400 + 4160 + 33280 + 100
    assert sum(each.numel() for each in net.parameters) == graph.num_params
    held = {graph.nodes[at].name: tensors for at, _, tensors, *_ in net.calls}
    assert held["scores"][0] is held["table"][0]
    assert held["again"][0] is held["once"][0]
    assert held["again"][1] is held["once"][1]
    assert held["more"][3] is held["steps"][3]
    net.step()
    # By itself a layer has parameters of its own.
    run = executor.layer(graph, graph.nodes[-1], (True,))
    assert sum(each.numel() for each in run.passes[Pass.WEIGHT_GRADIENT]()) == 6400 + 100


def test_shared_parameters_of_another_shape_are_taken_in_the_layers_own(executor: Any) -> None:
    layers = {
        "data": {"type": "Input", "tensor": [2, 6]},
        "wide": {"type": "InnerProduct", "parents": ["data"], "num_outputs": 10},
        "back": {"type": "InnerProduct", "parents": ["wide"], "num_outputs": 6, "shares": "wide",
                 "use_bias": False},
        "odd": {"type": "InnerProduct", "parents": ["back"], "num_outputs": 7, "shares": "wide"},
    }  # fmt: skip
    spec = paleo.loads(json.dumps({"name": "n", "layers": layers}))
    with pytest.raises(ExecutorError, match=r'layer "odd": .* the parameters of wide have not'):
        executor.net(paleo.build(spec))
    del layers["odd"]
    graph = paleo.build(paleo.loads(json.dumps({"name": "n", "layers": layers})))
    net = executor.net(graph)
    assert sum(each.numel() for each in net.parameters) == graph.num_params == 70
    net.step()


def test_labels_and_words_are_whole_numbers_in_their_range(executor: Any) -> None:
    layers = {
        "words": {"type": "Input", "tensor": [4, 300]},
        "turned": {"type": "Reshape", "parents": ["words"], "output_shape": [-1, 3, 100]},
        "table": {"type": "Embedding", "parents": ["turned"], "num_embeddings": 7,
                  "num_outputs": 5},
        "labels": {"type": "Input", "tensor": [4, 300]},
        "flat": {"type": "Reshape", "parents": ["table"], "output_shape": [-1, 300, 5]},
        "loss": {"type": "Loss", "parents": ["flat", "labels"]},
    }  # fmt: skip
    net = executor.net(paleo.build(paleo.loads(json.dumps({"name": "n", "layers": layers}))))
    words, labels = (value for value in net.values if value is not None)
    assert sorted(words.unique().tolist()) == list(range(7))
    assert sorted(labels.unique().tolist()) == list(range(5))
    net.infer()
    net.step()


def test_in_inference_there_is_no_graph_and_dropout_does_nothing(executor: Any) -> None:
    graph = one({"type": "Dropout", "dropout_keep_prob": 0.5}, [2, 1000])
    net = executor.net(graph)
    (found,) = net.forward(False).values()
    assert torch.equal(found, net.values[0])
    (found,) = net.forward(True).values()
    assert not torch.equal(found, net.values[0])


def test_a_net_without_parameters_steps(executor: Any) -> None:
    done: list[str] = []
    executor.net(one({"type": "Softmax", "dim": -1}, [2, 3])).step(done.append)
    assert tuple(done) == PARTS


def test_the_same_seed_gives_the_same_numbers() -> None:
    graph = graph_of("lenet5")
    nets: list[Any] = [find_executor("torch", "cpu").net(graph) for _ in range(2)]
    results = [next(iter(net.forward(False).values())) for net in nets]
    assert torch.equal(*results)


# ---- Errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "dtype", "message"),
    [
        ("tpu", "fp32", "executor torch: unknown place 'tpu'; places here: cpu"),
        ("cpu", "tf32", "executor torch: tf32 is a type of CUDA devices, not of cpu"),
        ("cpu", "int8", "executor torch cannot compute a net in int8"),
        ("cpu", "fp8", "executor torch cannot compute a net in fp8"),
        ("cpu", "fp31", "unknown dtype 'fp31'"),
    ],
)
def test_places_and_types_that_there_are_not(
    place: str, dtype: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(SettingError) as caught:
        find_executor("torch", place, dtype)
    assert str(caught.value).startswith(message)


def test_without_a_gpu_the_places_that_there_are_are_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(SettingError) as caught:
        find_executor("torch", "cuda")
    assert str(caught.value) == "executor torch: no CUDA device; places here: cpu"
    assert find_executor("torch").place == "cpu"
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    with pytest.raises(SettingError, match="no CUDA device; places here: mps, cpu"):
        find_executor("torch", "cuda")
    with pytest.raises(SettingError, match="GPUs of Apple's have no fp64"):
        find_executor("torch", "mps", "fp64")


def test_what_cannot_be_built_is_named_and_the_rest_runs(executor: Any) -> None:
    layers = {
        "data": {"type": "Input", "tensor": [2, 6, 6, 3]},
        "odd": {"type": "Unknown", "parents": ["data"], "operator": "NonMaxSuppression",
                "output_shape": [-1, 6, 6, 3]},
        "conv": {"type": "Convolution", "parents": ["odd"], "filter": [3, 3, 3, 4],
                 "strides": [1, 1, 1, 1], "padding": "SAME"},
    }  # fmt: skip
    graph = paleo.build(paleo.loads(json.dumps({"name": "n", "layers": layers})))
    _, odd, conv = graph.nodes
    message = 'layer "odd": executor torch cannot build Unknown: it does not know NonMaxSuppression'
    with pytest.raises(ExecutorError) as caught:
        executor.net(graph)
    assert list(map(str, caught.value.mistakes)) == [message]
    with pytest.raises(ExecutorError) as caught:
        executor.layer(graph, odd, (True,))
    assert str(caught.value) == message
    assert set(run_all(executor.layer(graph, conv, (True,)))) == set(LAYER_PASSES)


def test_a_type_that_nobody_has_built_is_named(executor: Any) -> None:
    class Odd(Layer):
        type_name = "Odd"

        def infer_shape(self, inputs: Any) -> Any:
            return inputs[0]

    graph = one({"type": "Flatten"}, [2, 3])
    data, node = graph.nodes
    odd = replace(graph, nodes=(data, replace(node, layer=Odd())))
    with pytest.raises(ExecutorError) as caught:
        executor.net(odd)
    assert str(caught.value) == (
        'layer "x": executor torch cannot build Odd: there is nothing for this type'
    )


def test_what_needs_more_memory_than_there_is_is_refused_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    executor: Any = find_executor("torch", "cpu")
    monkeypatch.setattr(executor, "free_memory", lambda: 2**20)
    graph = one({"type": "InnerProduct", "num_outputs": 8192}, [2, 8192])
    with pytest.raises(ExecutorError) as caught:
        executor.layer(graph, graph.nodes[-1], (True,))
    # Parameters and gradients, 2 * 4 * (8192**2 + 8192) bytes, are a little more than 0.5 GiB.
    assert str(caught.value) == 'layer "x": it needs 0.5 GiB, 0.000977 GiB are free'
    with pytest.raises(ExecutorError) as caught:
        executor.net(graph)
    assert str(caught.value) == "the net needs 0.25 GiB, 0.000977 GiB are free"


def test_a_net_that_can_infer_but_not_train_says_so_when_it_is_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    executor: Any = find_executor("torch", "cpu")
    graph = one({"type": "InnerProduct", "num_outputs": 1000}, [2, 1000])  # 4 MB of parameters
    net = executor.net(graph)
    monkeypatch.setattr(executor, "free_memory", lambda: 2**20)
    net.infer()
    # Parameters and gradients, 2 * 4 * (1000**2 + 1000), and 3 * 8000 of activations.
    with pytest.raises(ExecutorError, match=r"^the net needs 0\.00748 GiB, 0\.000977 GiB are free"):
        net.step()
    monkeypatch.setattr(executor, "free_memory", lambda: 2**23)
    net.step()


def test_what_the_system_does_not_give_is_an_error_of_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    executor: Any = find_executor("torch", "cpu")
    monkeypatch.setattr(executor, "free_memory", lambda: None)  # unknown
    graph = one({"type": "InnerProduct", "num_outputs": 2**23}, [2, 2**23])  # 256 TiB
    for build in (executor.net, lambda graph: executor.layer(graph, graph.nodes[-1], (True,))):
        with pytest.raises(ExecutorError) as caught:
            build(graph)
        assert str(caught.value) == 'layer "x": its tensors do not fit in memory'


def test_memory_that_runs_out_in_a_run_is_an_error_that_names_the_layer(executor: Any) -> None:
    graph = one({"type": "Activation", "function": "relu"}, [2, 3])

    def fails(*arguments: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB\nmore")

    net = executor.net(graph)
    net.calls = [(at, fails, *rest) for at, _, *rest in net.calls]
    for run in (net.infer, net.step):
        with pytest.raises(ExecutorError, match=r'^layer "x": its tensors do not fit in memory, '):
            run()

    def wrong(*arguments: Any) -> Any:
        raise RuntimeError("\"odd\" not implemented for 'Half'\nmore")

    net.calls = [(at, wrong, *rest) for at, _, *rest in net.calls]
    with pytest.raises(ExecutorError) as caught:
        net.infer()
    assert str(caught.value) == (
        'layer "x": PyTorch cannot run it: "odd" not implemented for \'Half\''
    )


def test_an_array_of_batch_sizes_is_refused(executor: Any) -> None:
    import numpy as np

    graph = paleo.build(paleo.load("lenet5"), np.array([1, 2]))
    with pytest.raises(SettingError, match="at one batch size, not at an array"):
        executor.net(graph)


# ---- What it says and leaves behind ------------------------------------------------------------


def test_it_says_where_it_runs(executor: Executor) -> None:
    assert (executor.name, executor.place) == ("torch", "cpu")
    assert executor.hardware
    assert executor.versions["torch"] == torch.__version__
    assert all(executor.versions.values())
    executor.synchronize()


def state() -> dict[str, Any]:
    """Return what PyTorch and Python keep for everybody."""
    backends = torch.backends
    return {
        "random": torch.get_rng_state().tolist(),
        "threads": (torch.get_num_threads(), torch.get_num_interop_threads()),
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "grad": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "autocast": (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "tf32": (backends.cuda.matmul.allow_tf32, backends.cudnn.allow_tf32),
        "precision": (
            torch.get_float32_matmul_precision(),
            *(
                getattr(place, "fp32_precision", None)
                for place in (backends.cuda.matmul, getattr(backends.cudnn, "conv", None))
            ),
        ),
        "cudnn": (backends.cudnn.enabled, backends.cudnn.benchmark, backends.mkldnn.enabled),
        "warnings": list(warnings.filters),
    }


@pytest.mark.parametrize("dtype", ["fp32", "mixed_bf16"])
def test_pytorch_is_left_as_it_was(dtype: str) -> None:
    before = state()
    executor: Any = find_executor("torch", "cpu", dtype)
    graph = graph_of("lenet5", dtype=dtype)
    net = executor.net(graph)
    net.infer()
    net.step()
    for kind in ("Dropout", "LSTM", "Attention"):
        example = next(each for each in EXAMPLES if each.kind == kind)
        small, node = node_of(example)
        run_all(executor.layer(replace(small, dtype=dtype), node, (True,) * len(node.parents)))
    assert state() == before
    with pytest.raises(ExecutorError):
        executor.net(node_of(EXAMPLES[-1])[0])
    assert state() == before


@pytest.mark.parametrize("tf32", [True, False])
def test_products_are_rounded_to_tf32_only_while_that_is_asked_for(tf32: bool) -> None:
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn

    def rounded() -> set[Any]:
        if hasattr(cudnn, "conv"):  # since PyTorch 2.9
            places = (matmul, cudnn.conv, cudnn.rnn)
            return {place.fp32_precision == "tf32" for place in places}
        return {matmul.allow_tf32, cudnn.allow_tf32}

    before = state()
    with products_in(torch, tf32):
        assert rounded() == {tf32}
    assert state() == before
    with pytest.raises(KeyError), products_in(torch, tf32):
        raise KeyError
    assert state() == before
