"""Element types: bytes and peaks follow them; mixed precision; what knows which of them."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import click.testing
import pytest
from layer_examples import EXAMPLES, PASSES, Example, node_of

import paleo
from paleo.cli import cli
from paleo.core.operations import BatchMatMul, Convolution, MatMul, Pass, Pooling
from paleo.core.tensor import DTYPES, PRECISIONS, element_size, find_precision
from paleo.core.units import GIB
from paleo.core.window import axes
from paleo.costs import COST_MODELS, Target, Time
from paleo.step.estimates import estimate_update
from paleo.step.memory import footprint
from paleo.step.passes import checked_target

ROOFLINE = COST_MODELS["roofline"]
#: 100 GB/s. Matrix units for tf32 and halves, lanes for fp32 and fp16; nothing for fp8.
DEVICE = """
[figures]
base_clock = "1 GHz"
memory_bandwidth = "100 GB/s"
memory_capacity = "1 GiB"
[peak.fp32]
vector = "1 TFLOP/s"
[peak.tf32]
matrix = "8 TFLOP/s"
[peak.fp16]
vector = "2 TFLOP/s"
matrix = "16 TFLOP/s"
[peak.bf16]
matrix = "16 TFLOP/s"
"""
#: A product of 3 features and 4 outputs with a bias, 16 parameters, and a ReLU.
SMALL = {
    "data": {"type": "Input", "parents": [], "tensor": [2, 3]},
    "fc": {"type": "InnerProduct", "parents": ["data"], "num_outputs": 4},
    "relu": {"type": "Activation", "parents": ["fc"], "function": "relu"},
}
HALVES = ("fp16", "bf16", "mixed_fp16", "mixed_bf16")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "own.toml"
    file.write_text(DEVICE)
    return file


@pytest.fixture
def device(path: Path) -> paleo.Device:
    return paleo.find_device(path)


def call(*arguments: str, status: int = 0) -> click.testing.Result:
    result = click.testing.CliRunner().invoke(cli, arguments, prog_name="paleo")
    assert result.exit_code == status, result.output
    return result


# The types


def test_a_type_has_its_bytes_and_mixed_precision_two() -> None:
    assert {name: element_size(name) for name in DTYPES} == DTYPES
    assert (DTYPES["tf32"], DTYPES["bf16"], DTYPES["int8"]) == (4, 2, 1)
    for name in DTYPES:
        kind = find_precision(name)
        assert (kind.computing, kind.learning, kind.is_mixed) == (name, name, False)
    for name, computing in (("mixed_fp16", "fp16"), ("mixed_bf16", "bf16")):
        kind = find_precision(name)
        assert (kind.computing, kind.learning, kind.is_mixed) == (computing, "fp32", True)
        assert (kind.element_size, kind.parameter_size) == (2, 4)


@pytest.mark.parametrize("dtype", ["fp31", 16, None, ["fp16"]])
def test_an_unknown_type_is_an_error_that_says_which_there_are(dtype: Any) -> None:
    with pytest.raises(paleo.SettingError, match=r"unknown dtype .*there are: fp64, .*mixed_bf16"):
        find_precision(dtype)


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_every_layer_moves_half_the_bytes_in_halves_and_computes_as_much(example: Example) -> None:
    if "num_compared" in example.keys:
        return  # a bit for each pair is a bit in every type
    if "weights" in example.keys:
        return  # so are four
    if {"resumes", "stepwise"} & example.keys.keys():
        return  # states that are kept, and probabilities, have 4 bytes in every type
    if example.kind == "SelectKeys":
        return  # places have 4 bytes, too
    graph, node = node_of(example)
    half = paleo.Graph(graph.name, graph.nodes, "mixed_fp16")
    for direction in PASSES:
        whole, part = graph.work(node, direction), half.work(node, direction)
        assert part.flops == whole.flops
        assert 2 * part.bytes_read == whole.bytes_read
        assert 2 * part.bytes_written == whole.bytes_written


# Times


@pytest.mark.parametrize("dtype", HALVES)
def test_memory_traffic_halves_in_halves(net: Any, device: paleo.Device, dtype: str) -> None:
    # 2 x 4 elements, read and written: 64 bytes in fp32, 32 in halves, at 100 GB/s.
    spec = net(SMALL)
    for kind, num_bytes in (("fp32", 64), ("tf32", 64), (dtype, 32)):
        found = paleo.summarize(spec, device=device, cost_model="roofline", dtype=kind)
        assert found.layers[2].forward == pytest.approx(num_bytes / 100e9)
        assert found.layers[2].forward_time == Time(0.0, num_bytes / 100e9, 0.0, num_bytes / 100e9)
        # Backward: the gradient and the output read, a gradient written.
        assert found.layers[2].backward == pytest.approx(1.5 * num_bytes / 100e9)
        assert found.layers[1].activations_bytes == num_bytes / 2


def test_products_run_on_matrix_units_and_all_else_on_lanes(device: paleo.Device) -> None:
    n = 4096  # so large that computation takes longest
    product = MatMul(n, n, n, 4)
    for dtype, peak in (("fp32", 1e12), ("tf32", 8e12), ("fp16", 16e12), ("bf16", 16e12)):
        time = ROOFLINE.price(product, Target(device, dtype))
        assert time.compute == time.total == pytest.approx(2 * n**3 / peak)
        many = BatchMatMul("matmul", 8, n, n, n, 4)
        assert ROOFLINE.price(many, Target(device, dtype)).compute == pytest.approx(
            8 * 2 * n**3 / peak
        )
        image = axes((64, 64), (3, 3), (1, 1), "SAME")
        convolution = Convolution(Pass.FORWARD, 8, image, 512, 512, 4)
        assert ROOFLINE.price(convolution, Target(device, dtype)).compute == pytest.approx(
            2 * 9 * 512 * 512 * 8 * 64 * 64 / peak
        )
    # One FLOP for each element of a window: tf32 outside of products is fp32; of bf16 nothing
    # but matrix units has a figure.
    pooling = Pooling(Pass.FORWARD, 8, axes((64, 64), (2, 2), (2, 2), "VALID"), 3, 3, 4)
    for dtype, peak in (("fp32", 1e12), ("tf32", 1e12), ("fp16", 2e12), ("bf16", 16e12)):
        time = ROOFLINE.price(pooling, Target(device, dtype))
        assert time.compute == pytest.approx(4 * 8 * 32 * 32 * 3 / peak)


def test_the_update_of_mixed_precision_is_in_fp32_with_two_casts(device: paleo.Device) -> None:
    # 1,000 parameters. fp32 reads weights and gradients and writes weights: 12 bytes each; so do
    # halves, of 2 bytes. Mixed precision besides makes fp32 gradients of halves, 2 + 4 bytes, and
    # halves of the new weights, 4 + 2: 24 bytes.
    for dtype, num_bytes in (
        ("fp32", 12_000),
        ("tf32", 12_000),
        ("fp16", 6_000),
        ("mixed_fp16", 24_000),
        ("mixed_bf16", 24_000),
    ):
        seconds = estimate_update(1000, device, cost_model="roofline", dtype=dtype)
        assert seconds == pytest.approx(num_bytes / 100e9), dtype


def test_workers_exchange_gradients_as_the_update_takes_them(net: Any, path: Path) -> None:
    # 16 parameters: 64 bytes in fp32, and in mixed precision too; 32 in halves. A parameter server
    # and one other worker: there and back at 1 Gbit/s, 125 MB/s.
    for dtype, num_bytes in (("fp32", 64), ("fp16", 32), ("mixed_fp16", 64), ("mixed_bf16", 64)):
        (run,) = paleo.simulate(
            net(SMALL),
            device=path,
            network=paleo.Network.from_bandwidth("link", 125e6),
            workers=2,
            scaling="weak",
            cost_model="roofline",
            schemes="OneToAll",
            dtype=dtype,
        ).runs
        (row,) = run.rows
        assert row.communication["OneToAll"] == pytest.approx(2 * num_bytes / 125e6)
        assert row["update"] == estimate_update(16, path, cost_model="roofline", dtype=dtype)
        assert (run.dtype, run.to_dict()["dtype"]) == (dtype, dtype)


def test_slices_fetch_activations_in_their_type() -> None:
    plans = [
        paleo.Plan(
            paleo.find_device("K20"),
            paleo.find_network("pcie2"),
            ROOFLINE,
            dtype,
        )
        for dtype in ("fp32", "fp64")
    ]
    single, double = (
        paleo.model_parallel(paleo.load("alex_v2_4gpu"), plan, 8)[0] for plan in plans
    )
    assert double.busy > 1.9 * single.busy


def test_fp32_is_what_there_is_without_a_type() -> None:
    for model in COST_MODELS:
        plain = paleo.simulate("nin", device="K40", cost_model=model, workers=[1, 8])
        named = paleo.simulate("nin", device="K40", cost_model=model, workers=[1, 8], dtype="fp32")
        assert plain.to_dict() == named.to_dict()


@pytest.mark.parametrize("model", [name for name in COST_MODELS if name != "paleo2017"])
def test_halves_are_never_slower_where_matrix_units_do_them(path: Path, model: str) -> None:
    for name in ("resnet18", "lstm_lm"):
        single, half, mixed = (
            paleo.summarize(name, 8, device=path, cost_model=model, dtype=dtype)
            for dtype in ("fp32", "fp16", "mixed_fp16")
        )
        assert half.forward is not None
        assert single.forward is not None
        assert half.forward < single.forward
        assert (mixed.forward, mixed.backward) == (half.forward, half.backward)


# What does not go together


@pytest.mark.parametrize("dtype", ["fp16", "tf32", "mixed_bf16", "fp64"])
def test_paleo2017_knows_fp32_only_and_says_so(dtype: str) -> None:
    message = f"cost model paleo2017 knows fp32 only, not {dtype}"
    asked: dict[str, Any] = {"cost_model": "paleo2017", "device": "K40", "dtype": dtype}
    graph = paleo.build(paleo.load("nin"), 1, dtype)
    for function in (
        lambda: paleo.summarize("nin", **asked),
        lambda: paleo.simulate(["nin", "lenet5"], **asked),
        lambda: paleo.compare(["nin", "nin"], **asked),
        lambda: paleo.metrics("nin", **asked),
        lambda: paleo.estimate_forward(graph, "K40", cost_model="paleo2017"),
        lambda: paleo.estimate_backward(graph, "K40", cost_model="paleo2017"),
        lambda: paleo.estimate_update(1, **asked),
        lambda: paleo.Plan(
            paleo.find_device("K40"),
            paleo.find_network("aws"),
            paleo.find_cost_model("paleo2017"),
            dtype,
        ),
    ):
        with pytest.raises(paleo.PaleoError) as caught:
            function()
        assert [mistake.message for mistake in caught.value.mistakes] == [message]


@pytest.mark.parametrize("model", [name for name in COST_MODELS if name != "paleo2017"])
def test_a_device_without_a_figure_for_the_type_says_which_it_has(model: str, path: Path) -> None:
    message = "device own has no peak for fp8; it has: fp32, tf32, fp16, bf16"
    for function in (
        lambda: paleo.summarize("nin", device=path, cost_model=model, dtype="fp8"),
        lambda: paleo.simulate(["nin", "lenet5"], device=path, cost_model=model, dtype="fp8"),
        lambda: paleo.metrics("nin", device=path, cost_model=model, dtype="fp8"),
        lambda: paleo.compare(["nin", "nin"], device=path, cost_model=model, dtype="fp8"),
        lambda: estimate_update(1, path, cost_model=model, dtype="fp8"),
    ):
        with pytest.raises(paleo.PaleoError) as caught:
            function()
        assert [mistake.message for mistake in caught.value.mistakes] == [message]


def test_mixed_precision_asks_for_the_type_that_it_computes_in(device: paleo.Device) -> None:
    assert checked_target(device, ROOFLINE, "mixed_bf16").dtype == "bf16"
    with pytest.raises(paleo.HardwareError, match="K40 has no peak for fp16"):
        checked_target(paleo.find_device("K40"), ROOFLINE, "mixed_fp16")


def test_other_mistakes_are_said_with_that_of_the_type() -> None:
    with pytest.raises(paleo.PaleoError) as caught:
        paleo.summarize("nim", device="K41", cost_model="rofline", dtype="fp17")
    assert len(caught.value.mistakes) == 4


# Memory


def test_mixed_precision_takes_16_bytes_a_parameter_with_adam_and_copies_of_2(net: Any) -> None:
    # 16 parameters: 4 bytes each and a copy of 2, a gradient of 4, and two states of 4.
    found = footprint(net(SMALL), optimizer="adam", dtype="mixed_fp16")
    assert (found.weights, found.gradients, found.optimizer_state) == (96, 64, 128)
    single, half = (footprint(net(SMALL), optimizer="adam", dtype=d) for d in ("fp32", "fp16"))
    assert (single.weights, single.gradients, single.optimizer_state) == (64, 64, 128)
    assert (half.weights, half.gradients, half.optimizer_state) == (32, 32, 64)
    assert 2 * half.activations == 2 * found.activations == single.activations


def test_the_peak_of_mixed_precision_by_hand(net: Any) -> None:
    # Without the ReLU: 2 x 3 and 2 x 4 elements, 12 and 16 bytes in halves. All along: the input,
    # 64 bytes of parameters, the result. Backward with the copy (32): the gradient of the result
    # (16), that of the parameters in halves (32). Then the copy and the result's gradient have
    # gone, and that of 4 bytes (64) is made of the other.
    layers = {name: SMALL[name] for name in ("data", "fc")}
    always = 12 + 64 + 16
    assert footprint(net(layers), dtype="mixed_fp16").peak == always + max(32 + 16 + 32, 32 + 64)
    # In the update, Adam has two states and two temporary tensors, and there are the gradients.
    adam = footprint(net(layers), dtype="mixed_fp16", optimizer="adam")
    assert (adam.peak, adam.peak_pass) == (always + 64 + 2 * 64 + 2 * 64, "update")


def test_inference_in_mixed_precision_has_halves_alone() -> None:
    mixed, half = (
        footprint("squeezenet", 4, training=False, dtype=dtype) for dtype in ("mixed_bf16", "bf16")
    )
    assert (mixed.peak, mixed.weights, mixed.layers) == (half.peak, half.weights, half.layers)


def test_the_largest_batch_follows_the_type() -> None:
    room = GIB
    single, mixed, half = (
        paleo.largest_batch("resnet18", room, dtype=dtype)
        for dtype in ("fp32", "mixed_fp16", "fp16")
    )
    assert single < mixed < half
    for dtype, batch in (("fp32", single), ("mixed_fp16", mixed), ("fp16", half)):
        assert footprint("resnet18", batch, dtype=dtype).peak <= room
        assert footprint("resnet18", batch + 1, dtype=dtype).peak > room


def test_simulations_and_metrics_say_what_fits_in_the_type(path: Path) -> None:
    for dtype in ("fp32", "mixed_fp16"):
        fits = paleo.largest_batch("lenet5", GIB, dtype=dtype)
        asked: dict[str, Any] = {"device": path, "cost_model": "roofline", "dtype": dtype}
        run = paleo.simulate("lenet5", workers=1, scaling="weak", **asked).runs[0]
        (found,) = paleo.metrics("lenet5", batch_size=64, **asked)
        assert run.worth.largest_batch == found.largest_batch == fits
        assert found.training_memory == footprint("lenet5", 64, dtype=dtype)


@pytest.mark.parametrize(("name", "batch"), [("lenet5", 64), ("squeezenet", 2)])
def test_mixed_precision_takes_the_memory_that_it_does_in_pytorch(name: str, batch: int) -> None:
    torch: Any = pytest.importorskip("torch", reason="needs torch")
    from torch_nets import INPUTS, NETS, peak

    class Autocast(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = peak.in_place(NETS[name]())

        def forward(self, x: Any) -> Any:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return self.net(x)

    net = Autocast()
    x = torch.randn(batch, *INPUTS[name][1:])
    found = peak.training(net, x, "sgd", lambda scores: scores.float().pow(2).sum())
    predicted = footprint(name, batch, dtype="mixed_bf16").peak
    # The last softmax is in fp32 there.
    assert predicted == pytest.approx(found.tensors, rel=0.07)
    assert {each.dtype for each in net.parameters()} == {torch.float32}
    net(x).float().sum().backward()
    assert {each.grad.dtype for each in net.parameters()} == {torch.float32}


# Commands


def test_every_command_takes_the_type_and_says_it(path: Path) -> None:
    on = (f"--device={path}", "--cost_model=roofline", "--dtype=mixed_fp16")
    for command, *more in (
        ("summary", *on),
        ("simulate", "--num_workers=1,2", *on),
        ("compare", "lenet5", *on),
        ("metrics", *on),
        ("memory", "--dtype=mixed_fp16"),
        ("summary", "--dtype=mixed_fp16"),
    ):
        arguments = (command, "lenet5", *more)
        assert "mixed_fp16" in call(*arguments, "--quiet").stdout.splitlines()[0]
        values = json.loads(call(*arguments, "--format=json").stdout)
        assert '"dtype": "mixed_fp16"' in json.dumps(values)
        rows = list(csv.DictReader(io.StringIO(call(*arguments, "--format=csv").stdout)))
        assert {row["dtype"] for row in rows} == {"mixed_fp16"}


def test_settings_may_be_compared_by_their_types(path: Path) -> None:
    arguments = ("compare", "lenet5", f"--device={path}", "--cost_model=roofline")
    (comparison,) = json.loads(call(*arguments, "--dtype=fp32,fp16", "--format=json").stdout)[
        "comparisons"
    ]
    assert comparison["settings"]["dtype"] == "fp16"
    assert comparison["total"]["output_factor"] == 0.5
    assert comparison["total"]["params_factor"] == 1
    # Half the bytes, and matrix units: at most half the time.
    assert 0 < comparison["total"]["time_factor"] < 0.5
    text = call(*arguments, "--dtype=fp32,fp16", "--quiet").stdout
    assert text.startswith("lenet5, fp16 against lenet5, fp32: own, batch 64, cost model roofline")


def test_a_model_is_stored_in_the_type_of_its_parameters(path: Path) -> None:
    for dtype, bits in (("fp32", 32), ("fp16", 16), ("mixed_fp16", 32)):
        on: dict[str, Any] = {"device": path, "cost_model": "roofline", "dtype": dtype}
        (found,) = paleo.metrics("lenet5", **on)
        assert (found.storage.weight_bits, found.model_bytes) == (bits, bits // 8 * found.params)
        assert paleo.metrics("lenet5", weight_bits=6, **on)[0].storage.weight_bits == 6
        peak = {"fp32": 1e12, "fp16": 16e12, "mixed_fp16": 16e12}[dtype]
        assert found.peak == peak


def test_verbose_gives_the_peak_of_the_type(path: Path) -> None:
    on = (f"--device={path}", "--cost_model=roofline", "--verbose")
    for command in ("summary", "simulate", "metrics"):
        said = call(command, "lenet5", "--dtype=mixed_bf16", *on).stderr
        assert "own: peak 1.6e+13 FLOP/s, the data sheet's" in said
    said = call("compare", "lenet5", "--dtype=fp32,bf16", *on).stderr
    assert "peak 1e+12 FLOP/s" in said
    assert "peak 1.6e+13 FLOP/s" in said


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--dtype=fp8", "device own has no peak for fp8; it has: fp32, tf32, fp16, bf16"),
        ("--dtype=bf17", "unknown dtype 'bf17' (did you mean 'bf16'?); there are: "),
    ],
)
def test_a_wrong_type_is_one_line(path: Path, option: str, message: str) -> None:
    on = (f"--device={path}", "--cost_model=roofline", option)
    for command in ("summary", "simulate", "metrics"):
        said = call(command, "lenet5", *on, status=1).stderr
        assert said.startswith(f"paleo: {message}")
        assert said.count("\n") == 1
    said = call("compare", "lenet5", "lenet5", *on, status=1).stderr
    assert said.startswith(f"paleo: {message}")
    assert said.count("\n") == 1


def test_all_types_are_offered() -> None:
    for command in ("summary", "simulate", "compare", "metrics", "memory"):
        text = call(command, "--help").stdout
        assert all(name in text for name in PRECISIONS)
