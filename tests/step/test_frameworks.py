"""What frameworks, compilers and memory formats change of a pass, by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import paleo
from paleo.cluster import Figure
from paleo.cluster.frameworks import FRAMEWORKS
from paleo.core.errors import PaleoError
from paleo.core.kinds import Fusion, Kind, Pass
from paleo.core.operations import Convolution, Pooling
from paleo.core.tensor import DTYPES
from paleo.core.window import Axis
from paleo.costs import Target
from paleo.costs.tiled.machine import machine_for
from paleo.costs.tiled.stream import moved
from paleo.measure.validate import read_measurements
from paleo.measure.validate.nets import net_case
from paleo.measure.validate.protocols import protocol_of
from paleo.step.passes import BACKWARD, FORWARD, computed_by, keep_shape, kernels

TILED = paleo.find_cost_model("tiled")
A100 = paleo.find_device("A100_SXM_80GB")
DATA = {"type": "Input", "parents": [], "tensor": [8, 16, 16, 64]}


def conv(parent: str) -> dict[str, Any]:
    return {
        "type": "Convolution", "parents": [parent], "filter": [3, 3, 64, 64],
        "strides": [1, 1, 1, 1], "padding": "SAME", "activation_fn": "relu",
    }  # fmt: skip


def graph_of(**layers: dict[str, Any]) -> paleo.Graph:
    text = json.dumps({"name": "small", "layers": {"data": DATA, **layers}})
    return paleo.build(paleo.loads(text), None, "fp16", keep_shape)


FLAT = {"type": "Flatten", "parents": ["a"]}
NET = graph_of(
    a=conv("data"),
    flat=FLAT,
    fc={"type": "InnerProduct", "parents": ["flat"], "num_outputs": 10},
    relu={"type": "Activation", "parents": ["fc"], "function": "relu"},
)


def names(fusion: Fusion, node: int) -> list[str]:
    return [each.name for _, each in kernels(NET, FORWARD, TILED, fusion=fusion).of[node]]


def test_which_kernels_take_on_what_follows() -> None:
    assert names(Fusion.NONE, 1) == ["convolution", "bias", "relu"]
    assert (names(Fusion.NONE, 3), names(Fusion.NONE, 4)) == (["matmul", "bias"], ["relu"])
    # Biases of products alone: PyTorch adds that of a convolution apart.
    assert names(Fusion.BIAS, 1) == ["convolution", "bias", "relu"]
    assert (names(Fusion.BIAS, 3), names(Fusion.BIAS, 4)) == (["matmul + bias"], ["relu"])
    # Batch normalizations alone: here there are none.
    assert (names(Fusion.NORMS, 1), names(Fusion.NORMS, 3)) == (
        names(Fusion.NONE, 1),
        names(Fusion.NONE, 3),
    )
    # All but products and convolutions, which are left to libraries.
    assert names(Fusion.STREAMS, 1) == ["convolution", "bias + relu"]
    assert (names(Fusion.STREAMS, 3), names(Fusion.STREAMS, 4)) == (["matmul + bias"], ["relu"])
    assert names(Fusion.ALL, 1) == ["convolution + bias + relu"]
    assert (names(Fusion.ALL, 3), names(Fusion.ALL, 4)) == (["matmul + bias + relu"], [])


def test_gradients_of_several_readers_are_added_up() -> None:
    graph = graph_of(
        a=conv("data"),
        b=conv("a"),
        c=conv("a"),
        sum={"type": "Elementwise", "parents": ["b", "c", "a"], "function": "sum"},
    )
    size = 2 * 8 * 16 * 16 * 64
    found = [each for _, each in kernels(graph, BACKWARD, TILED).of[1]]
    sums = [each for each in found if each.name == "sum of gradients"]
    # Three tensors make two sums, each of two tensors into one.
    assert [(each.reads, each.writes) for each in sums] == [((size, size), (size,))] * 2
    for node in (2, 3, 4):
        others = [each.name for _, each in kernels(graph, BACKWARD, TILED).of[node]]
        assert "sum of gradients" not in others


def test_loops_of_old_frameworks_move_one_element_at_a_time() -> None:
    # Halves are two bytes; a convolution is no such loop.
    old = computed_by(FRAMEWORKS["pytorch0"], NET)
    found = {
        each.name: (getattr(each, "width", None), getattr(each, "waits", None))
        for _, each in kernels(old, FORWARD, TILED).of[1]
    }
    assert found == {"convolution": (None, None), "bias": (2, True), "relu": (2, True)}
    new = computed_by(FRAMEWORKS["pytorch1"], NET)
    relu = kernels(new, FORWARD, TILED).of[1][-1][1]
    assert (getattr(relu, "width", None), getattr(relu, "waits", None)) == (0, False)


def test_the_gradient_of_what_comes_in_is_made_where_it_is_asked_for() -> None:
    def of_images(of_inputs: bool) -> list[Pass]:
        of = kernels(NET, BACKWARD, TILED, of_inputs=of_inputs).of[1]
        return [direction for direction, each in of if isinstance(each, Convolution)]

    assert of_images(False) == [Pass.WEIGHT_GRADIENT]
    assert set(of_images(True)) == {Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT}


def test_slices_of_a_tensor_give_no_sum() -> None:
    halves = {
        name: {"type": "Slice", "parents": ["a"], "dim": -1, "begin": 32 * i, "size": 32}
        for i, name in enumerate(("left", "right"))
    }
    graph = graph_of(a=conv("data"), **halves)
    found = [each.name for _, each in kernels(graph, BACKWARD, TILED).of[1]]
    assert "sum of gradients" not in found


def convolution(window: int, direction: Pass = Pass.FORWARD, size: int = 2) -> Convolution:
    padding = (window // 2, window // 2)
    axes = (Axis(56, window, 1, padding), Axis(56, window, 1, padding))
    return Convolution(direction, 64, axes, 64, 128, size)


def seconds(operation: Any, target: Target) -> float:
    return float(TILED.price(operation, target).total)


@pytest.mark.parametrize("direction", [Pass.FORWARD, Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT])
def test_images_in_the_order_of_channels_first_are_converted_and_back(direction: Pass) -> None:
    contiguous, last = (
        Target(A100, "fp16", memory_format=each) for each in ("contiguous", "channels_last")
    )
    machine = machine_for(last)
    image, output = 2 * 64 * 56 * 56 * 64, 2 * 64 * 56 * 56 * 128
    passes = moved(2 * image, machine) + moved(2 * output, machine) + 2 * machine.launch
    operation = convolution(3, direction)
    assert seconds(operation, contiguous) == pytest.approx(seconds(operation, last) + passes)


def test_what_is_not_converted() -> None:
    contiguous, last = (
        Target(A100, "fp16", memory_format=each) for each in ("contiguous", "channels_last")
    )
    # A window of one element is a product of the images as they lie.
    assert seconds(convolution(1), contiguous) == seconds(convolution(1), last)
    assert seconds(convolution(1, Pass.INPUT_GRADIENT), contiguous) > seconds(
        convolution(1, Pass.INPUT_GRADIENT), last
    )
    # Kernels of TF32, of lanes, and those of cuDNN 7 are for either order.
    for device, dtype in ((A100, "tf32"), (A100, "fp64"), (paleo.find_device("T4"), "fp16")):
        both = [
            seconds(
                convolution(3, size=DTYPES[dtype]),
                Target(device, dtype, memory_format=each),
            )
            for each in ("contiguous", "channels_last")
        ]
        assert both[0] == both[1]


def test_an_average_over_the_whole_image_reads_it_once() -> None:
    axes = (Axis(64, 64, 1, (0, 0)), Axis(64, 64, 1, (0, 0)))
    whole = Pooling(Pass.FORWARD, 256, axes, 64, 64, 2, maximum=False)
    machine = machine_for(Target(A100, "fp16"))
    num_bytes = 2 * 256 * 64 * (64 * 64 + 1)
    assert TILED.price(whole, Target(A100, "fp16")).memory == pytest.approx(
        moved(num_bytes, machine)
    )


def test_a_board_that_holds_a_higher_clock_computes_quicker_and_moves_no_more() -> None:
    plain, boosted = (
        machine_for(Target(A100, "fp16", constants=each)) for each in ({}, {"boost": 1.1})
    )
    assert boosted.matrix_peak == pytest.approx(1.1 * (plain.matrix_peak or 0))
    assert boosted.vector_peak == pytest.approx(1.1 * (plain.vector_peak or 0))
    assert boosted.clock == pytest.approx(1.1 * plain.clock)
    assert boosted.bandwidth == plain.bandwidth


def test_the_settings_reach_the_times() -> None:
    settings: Any = {"device": "A100_SXM_80GB", "cost_model": "tiled", "dtype": "mixed_fp16"}

    def forward(**more: Any) -> float:
        found = paleo.summarize("resnet18", 64, **settings, **more).forward
        assert isinstance(found, float)
        return found

    plain = forward()
    assert forward(memory_format="channels_last") < plain
    assert forward(compile=True) < forward(framework="pytorch")
    assert forward(framework="tensorrt") == forward(fuse=True, memory_format="channels_last")
    assert forward(framework="pytorch", compile=True) == forward(compile=True)
    assert forward(framework="tensorflow", compile=True) < forward(framework="tensorflow")


def test_a_program_asks_for_recurrent_kernels_that_keep_their_weights() -> None:
    asking = replace(FRAMEWORKS["pytorch"], persistent=True)
    for framework, asked in ((None, False), (FRAMEWORKS["pytorch"], False), (asking, True)):
        plan = paleo.Plan(A100, paleo.find_network("ethernet"), TILED, framework=framework)
        assert plan.target.persistent is asked
        assert machine_for(plan.target).persistent is asked


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"framework": "pytorhc"}, "unknown framework 'pytorhc'"),
        ({"framework": 3}, "framework: expected a framework, got 3"),
        (
            {"memory_format": "nhwc"},
            "memory_format: expected contiguous or channels_last, got 'nhwc'",
        ),
        (
            {"framework": "tensorrt", "compile": True},
            "compile: the framework tensorrt has no compiler of nets",
        ),
    ],
)
def test_what_is_no_framework(settings: Any, message: str) -> None:
    with pytest.raises(PaleoError) as raised:
        paleo.simulate("lenet5", device="A100_SXM_80GB", cost_model="tiled", **settings)
    assert message in str(raised.value)


def test_every_kernel_takes_the_host_its_time() -> None:
    # Of one image every kernel of lenet5 on an A100 is done sooner than in 60 us, twice the 30 of a
    # workstation, the last in 3.
    settings: Any = {"device": "A100_SXM_80GB", "cost_model": "tiled"}
    scenario = paleo.scenario("lenet5", batch_size=1, framework="pytorch", **settings)
    own = scenario.plan.kernels(scenario.graph(), FORWARD).of
    found = paleo.summarize("lenet5", 1, framework="pytorch", **settings).forward
    handed = sum(operation.kind is not Kind.BIAS for each in own for _, operation in each)
    assert found == pytest.approx(60e-6 * handed, abs=3e-6)


@pytest.mark.parametrize("device", ["CORE_I7_12700H", "MI250", "APPLE_M2"])
def test_what_a_device_cannot_run(device: str) -> None:
    with pytest.raises(PaleoError) as raised:
        paleo.simulate("lenet5", device=device, cost_model="tiled", framework="tensorrt")
    assert f"framework: tensorrt runs on GPUs of NVIDIA, not on {device}" in str(raised.value)
    assert FRAMEWORKS["pytorch"].runs_on(paleo.find_device(device))


def test_xla_begins_when_every_tensor_of_parameters_has_come() -> None:
    # lenet5 has two convolutions and two products, each a matrix and a bias: 8 tensors, of which a
    # server hands over one in 6 us, a workstation in 3.
    graph, compiled = paleo.build(paleo.load("lenet5"), 1), FRAMEWORKS["tensorflow"].compiled
    assert compiled is not None
    assert graph.num_tensors == 8
    assert compiled.start_on(A100, 8) == pytest.approx(48e-6)
    assert compiled.start_on(paleo.find_device("RTX_3090"), 8) == pytest.approx(24e-6)
    assert FRAMEWORKS["tensorflow"].start_on(A100, 8) == 0
    settings: Any = {"device": "A100_SXM_80GB", "cost_model": "tiled", "compile": True}
    plan = paleo.scenario("lenet5", batch_size=1, framework="tensorflow", **settings).plan
    later = replace(plan, framework=replace(FRAMEWORKS["tensorflow"], compiled=replace(
        compiled, host_for_tensor=0.0
    )))  # fmt: skip
    forward, backward = plan.passes(graph)
    sooner, then = later.passes(graph)
    assert forward.upper == pytest.approx(sooner.upper + 48e-6)
    # The backward pass is of the same program, whose parameters have come.
    assert backward.upper == pytest.approx(then.upper)


def test_xla_has_halves_channels_last_and_casts_their_parameters() -> None:
    def images(dtype: str) -> str:
        settings: Any = {"device": "A100_SXM_80GB", "framework": "tensorflow", "compile": True}
        return paleo.scenario("lenet5", dtype=dtype, **settings).plan.images

    assert (images("fp32"), images("tf32")) == ("contiguous", "contiguous")
    assert (images("mixed_fp16"), images("fp16")) == ("channels_last", "channels_last")
    compiled = FRAMEWORKS["tensorflow"].compiled
    assert compiled is not None
    graph = computed_by(compiled, paleo.build(paleo.load("lenet5"), 1, "mixed_fp16"))
    assert sum(node.num_weight_casts for node in graph.nodes) == graph.num_tensors


def test_the_host_of_a_server_is_slower_and_a_measured_one_counts() -> None:
    framework = FRAMEWORKS["pytorch"]
    workstation, server = paleo.find_device("RTX_3090"), A100
    assert framework.host_of(workstation) == 30e-6
    assert framework.host_of(server) == 60e-6
    # A board of one form alone may be a server's, too.
    assert framework.host_of(paleo.find_device("T4")) == 60e-6
    assert framework.driving(4).host_of(server) == 240e-6
    stated = replace(server, constants={"host": Figure(5e-6, "s", "measured")})
    assert framework.host_of(stated) == 5e-6
    assert framework.driving(4).host_of(stated) == 20e-6


@pytest.mark.parametrize(
    ("source", "framework", "direction", "expected"),
    [
        ("mine", "PyTorch 2.4", "train", ("pytorch", "")),
        ("mine", "PyTorch 2.4 torch.compile", "train", ("pytorch_compiled", "channels_last")),
        ("mine", "TensorFlow 1.4", "train", ("tensorflow1", "")),
        ("mine", "TensorFlow", "train", ("tensorflow", "")),
        ("dlperf", "NVIDIA DLE TensorFlow", "train", ("tensorflow1", "")),
        ("dlperf", "TensorFlow2", "train", ("tensorflow", "")),
        ("mine", "NVIDIA DLE MXNet", "train", ("mxnet", "")),
        ("dlperf", "PaddlePaddle", "train", ("paddle", "")),
        ("dlperf", "MindSpore", "train", ("mindspore", "")),
        ("mine", "TensorFlow 1.15 +XLA", "train", ("tensorflow_compiled", "channels_last")),
        ("mine", "Torch-7 (native)", "train", ("", "")),
        ("timm", "PyTorch 2.4", "inference", ("timm", "")),
        ("timm", "PyTorch 1.12", "train", ("pytorch1", "")),
        ("mine", "PyTorch 0.3.0", "train", ("pytorch0", "")),
        ("ryujaehun", "PyTorch", "train", ("pytorch1", "")),
        ("mlperf_training_v2.0", "MXNet", "train", ("tuned", "channels_last")),
    ],
)
def test_what_runs_a_measured_net(
    source: str, framework: str, direction: str, expected: tuple[str, str], tmp_path: Path
) -> None:
    quantity = "forward_ms" if direction == "inference" else "step_ms"
    file = tmp_path / "rows.csv"
    file.write_text(
        "source_id,quantity,value,network,device,batch_per_device,precision,framework,direction\n"
        f"{source},{quantity},1,resnet18,A100_SXM_80GB,8,mixed_fp16,{framework},{direction}\n"
    )
    (row,) = read_measurements(file)
    case, _ = net_case(*protocol_of(source).of(row), A100)
    software = case.software
    assert (software.name, software.memory_format) == expected


@pytest.mark.parametrize("how", [{"framework": "pytorch"}, {"compile": True}, {"fuse": True}])
def test_inference_of_a_framework_is_no_pass_of_training(how: Any) -> None:
    settings: Any = {"device": "A100_SXM_80GB", "cost_model": "tiled", "dtype": "fp16"}
    scenario = paleo.scenario("resnet18", batch_size=64, **settings, **how)
    plan, graph = scenario.plan, scenario.graph()
    alone = plan.estimate(graph, FORWARD, training=False).upper
    # Batch normalizations know their statistics.
    assert plan.inference(graph).upper == alone < plan.estimate(graph, FORWARD).upper


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_workers_differ_by_their_gpus_at_the_least(name: str) -> None:
    framework = FRAMEWORKS[name]
    for software in (framework, framework.compiled or framework):
        assert 0.015 <= software.jitter <= 0.05
        assert software.exchange.source
    # Hosts and input pipelines are hidden in tuned stacks alone.
    assert (framework.jitter == 0.015) == (name == "tuned")


@pytest.mark.parametrize("framework", ["pytorch", "tensorflow", "mxnet", None])
def test_graphs_leave_kernels_alone(framework: str | None) -> None:
    settings: Any = {"device": "A100_SXM_80GB", "batch_size": 2, "workers": 1, "scaling": "weak"}
    settings["framework"] = framework
    (eager,) = paleo.simulate("resnet50", **settings).runs[0].rows
    (run,) = paleo.simulate("resnet50", graphs=True, **settings).runs
    (row,) = run.rows
    graph = run.plan.graph(run.scenario.net, 2)
    waits = float(sum(replace(run.plan, graphs=False).waits(graph)))
    assert (waits > 0) is (framework is not None)
    assert eager.compute - row.compute == pytest.approx(waits, abs=1e-12)
    assert sum(run.plan.waits(graph)) == 0


@pytest.mark.parametrize("device", ["EPYC_7763", "MI300X"])
def test_graphs_are_of_cuda(device: str) -> None:
    with pytest.raises(paleo.PaleoError, match=f"^graphs: CUDA graphs run on .*, not on {device}$"):
        paleo.simulate("lenet5", device=device, graphs=True)
