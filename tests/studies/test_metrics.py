"""What running and training a net takes: published figures, and a net worked out by hand."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import click.testing
import pytest

import paleo
from paleo.cli import cli
from paleo.cluster import Price, prices
from paleo.step.memory import footprint, largest_batch
from paleo.studies.metrics import Metrics, Storage, metrics


def call(*arguments: str, status: int = 0) -> click.testing.Result:
    """Run `paleo metrics` without a process."""
    result = click.testing.CliRunner().invoke(cli, ["metrics", *arguments], prog_name="paleo")
    assert result.exit_code == status, result.output
    return result


def as_json(*arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(call(*arguments, "--format=json").stdout)["metrics"]
    return found


def one(*nets: Any, **settings: Any) -> Metrics:
    (found,) = metrics(*nets, **settings)
    return found


# Published figures

#: Section 14 of ../shared/reference/paleo2017_equations.md: workers, batch, hours.
FIRECAFFE = [(1, 256, 117.61), (32, 256, 7.59), (32, 1024, 4.65), (128, 1024, 2.28)]
HYBRID = [(1, 96.94), (2, 49.88), (4, 25.58), (8, 14.45)]


@pytest.mark.parametrize(("workers", "batch", "hours"), FIRECAFFE)
def test_the_hours_of_table_3_follow(workers: int, batch: int, hours: float) -> None:
    found = one(
        "nin",
        device="K20X",
        network="infiniband",
        ppp_comp=0.21,
        ppp_comm=0.56,
        batch_size=batch,
        workers=workers,
        scaling="strong",
        scheme="TreeAllReduce",
        epochs=47,
        dataset_size=1_200_000,
        cost_model="paleo2017",
    )
    assert found.training_time is not None
    assert round(found.training_time / 3600, 2) == hours
    assert (found.batch_size, found.worker_batch_size) == (batch, batch // workers)


@pytest.mark.parametrize(("workers", "hours"), HYBRID)
def test_the_hours_of_table_4_follow(workers: int, hours: float) -> None:
    found = one(
        f"alex_v2_{workers}gpu",
        device="K20",
        network="pcie2",
        ppp_comp=0.46,
        ppp_comm=0.75,
        parallel="hybrid",
        hybrid_workers=workers,
        epochs=90,
        dataset_size=1_200_000,
        cost_model="paleo2017",
    )
    assert found.training_time is not None
    assert round(found.training_time / 3600, 2) == hours
    assert (found.workers, found.batch_size) == (workers, 128 * workers)
    assert (found.scaling, found.scheme, found.balance_workers) == (None, None, None)


@pytest.mark.parametrize(
    ("net", "share", "frames"),
    # Section 2.3 of the dissertation: at the 10.6 TFLOP/s of a P100. Its 117 GFLOP a frame of
    # VGG-19 are what training takes, three times inference.
    [("vgg19", 3, 91), ("lenet5_224", 1, 3900)],
)
def test_the_frame_rates_at_peak_of_the_dissertation(net: str, share: int, frames: float) -> None:
    device = paleo.Device.from_rates("P100", clock=1e9, peak=10.6e12, memory_bandwidth=7e11)
    found = one(net, device=device)
    assert found.peak_throughput is not None
    assert found.peak_throughput / share == pytest.approx(frames, rel=0.015)
    inference, training = found.inference_flops_per_sample, found.training_flops_per_sample
    assert training == pytest.approx(3 * inference, rel=0.03)


def test_a_model_of_6_bit_weights_is_as_small_as_published() -> None:
    # Table 5.2 of the dissertation, in MiB: AlexNet 240 and SqueezeNet 4.8 with 32 bits.
    assert one("squeezenet").model_bytes / 2**20 == pytest.approx(4.8, rel=0.01)
    assert one("squeezenet").model_bytes == 4 * paleo.summarize("squeezenet").num_params
    # A third of the weights in 6 bits: 1,248,424 / 3 = 416,141.3 of them.
    small = one("squeezenet", weight_bits=6, sparsity=2 / 3)
    assert small.model_bytes == -(-416_141 * 6 // 8) == 312_106


# A net of 10 inputs and 20 outputs: 220 parameters, 2 * 10 * 20 = 400 FLOPs a sample forward, as
# many for the weights' gradient; nobody needs that of the input.

LAYERS = {
    "data": {"type": "Input", "parents": [], "tensor": [2, 10]},
    "fc": {"type": "InnerProduct", "parents": ["data"], "num_outputs": 20},
}
#: So much bandwidth that memory traffic takes no time beside 1 MFLOP/s.
DEVICE = """
[figures]
base_clock = "1 GHz"
memory_bandwidth = "1000 PB/s"
memory_capacity = "1 MB"
power = "50 W"
[peak.fp32]
vector = "1000 kFLOP/s"
[[price]]
provider = "Somebody"
what = "by the hour"
amount = "7.20 EUR/h"
date = 2020-02-29
"""
#: All parameters, 880 bytes, in 0.01 s.
NETWORK = '[figures]\nbandwidth = "88 kB/s"\n'
SCHEDULE: dict[str, Any] = {"epochs": 3, "dataset_size": 1000}


@pytest.fixture
def plan(tmp_path: Path) -> dict[str, Any]:
    """Settings of four workers with 25 samples each."""
    (tmp_path / "own.toml").write_text(DEVICE)
    (tmp_path / "link.toml").write_text(NETWORK)
    return {
        "device": tmp_path / "own.toml",
        "network": tmp_path / "link.toml",
        "cost_model": "roofline",
        "batch_size": 100,
        "workers": 4,
        "scaling": "strong",
        "scheme": "TreeAllReduce",
        "overlap": False,
    }


@pytest.fixture
def spec(net: Any) -> paleo.NetSpec:
    found: paleo.NetSpec = net(LAYERS)
    return found


def test_every_metric_of_a_net_by_hand(
    spec: paleo.NetSpec, plan: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prices, "today", lambda: datetime.date(2026, 11, 23))
    origin = "Somebody, by the hour, on demand, 2020-02-29, 6 years old"
    found = one(spec, **plan, **SCHEDULE)
    expected = {
        "net": "net",
        "device": "own",
        "network": "link",
        "cluster": None,
        "cost_model": "roofline",
        "dtype": "fp32",
        "fuse": False,
        "framework": None,
        "compile": False,
        "graphs": False,
        "memory_format": "contiguous",
        "attention": None,
        "conv_library": None,
        "workspace_limit_bytes": None,
        "use_only_gemm": False,
        "convolution_algorithm": "gemm",
        "parallel": "data",
        "scaling": "strong",
        "scheme": "TreeAllReduce",
        "workers": 4,
        "batch_size": 100,
        "worker_batch_size": 25,
        "inference_flops_per_sample": 400,
        "training_flops_per_sample": 800,
        "params": 220,
        "model_bytes": 880,
        "weight_bits": 32,
        "index_bits": 0,
        "sparsity": 0.0,
        "inference_s": 0.01,  # 25 * 400 FLOPs
        "inference_throughput_per_s": 2500,
        "peak_throughput_per_s": 2500,  # 1 MFLOP/s over 400 FLOPs
        "compute_s": 0.02044,  # forward, weights' gradient, and 2 * 220 FLOPs of the update
        "communication_s": 0.04,  # 2 * log2(4) transfers
        "exposed_communication_s": 0.04,  # after the backward pass
        "step_s": 0.06044,
        "computation_communication_ratio": 0.511,
        # 3 workers: 4 transfers, 0.04 s, and 34 * 800 FLOPs + 440: 0.02764 s.
        # 2 workers: 0.02 s and 50 * 800 + 440: 0.04044 s.
        "balance_workers": 3,
        "training_throughput_per_s": 100 / 0.06044,
        "speedup": 0.08044 / 0.06044,  # one worker: 100 * 800 + 440 FLOPs
        "epochs": 3,
        "dataset": None,
        "dataset_size": 1000,
        "tokens": None,
        "tokens_per_s": None,
        "mfu": 80_000 / 0.06044 / 4e6,  # 100 * 800 FLOPs, on 4 devices of 1 MFLOP/s
        "hfu": 80_000 / 0.06044 / 4e6,
        "device_hours": 4 * 1.8132 / 3600,
        "num_steps": 30,
        "training_flops": 2_400_000,
        "training_time_s": 1.8132,
        "power_w": 50,
        "inference_energy_per_sample_j": 0.02,  # 50 W * 0.01 s / 25
        "training_energy_per_sample_j": 0.12088,  # 4 * 50 W * 0.06044 s / 100
        "training_energy_j": 362.64,  # 3000 samples
        "price_per_device_hour": 7.2,
        "price_currency": "EUR",
        "price_provider": "Somebody",
        "price_date": "2020-02-29",
        "training_cost": 0.0145056,  # 4 * 1.8132 s at 7.20 / 3600 a second
        "inference_cost_per_million": 0.8,  # 400 s of one device at 0.002 a second
        "training_cost_per_million": 4.8352,  # 604.4 s of four
        "inference_memory_bytes": footprint(spec, 25, training=False).peak,
        "training_memory_bytes": footprint(spec, 25).peak,
        "weights_bytes": 880,
        "gradients_bytes": 880,
        "optimizer_state_bytes": 0,
        "activations_bytes": footprint(spec, 25).activations,
        "workspace_bytes": 0,
        "optimizer": "sgd",
        "optimizer_kernels": None,
        "memory_capacity_bytes": 1_000_000,
        "largest_batch_size": largest_batch(spec, 1_000_000),
        "notes": [
            (
                "energy is an upper bound: devices are assumed to draw their full board power "
                "all the time"
            ),
            f"price: 7.2 EUR for an hour of a device, {origin}",
        ],
    }
    values = found.to_dict()
    assert values.keys() == expected.keys()
    for key, value in expected.items():
        if isinstance(value, int | float):
            assert values[key] == pytest.approx(value, rel=1e-6), key
        else:
            assert values[key] == value, key
    for key in ("inference_flops_per_sample", "training_flops", "model_bytes", "params"):
        assert isinstance(values[key], int)


def test_a_cost_model_that_computes_more_gradients_counts_more(
    spec: paleo.NetSpec, plan: dict[str, Any]
) -> None:
    # The model of 2017 leaves out the input's gradient of a first convolution alone.
    assert one(spec, **plan | {"cost_model": "paleo2017"}).training_flops_per_sample == 1200


def test_weak_scaling_gives_every_worker_the_batch(
    spec: paleo.NetSpec, plan: dict[str, Any]
) -> None:
    found = one(spec, **plan | {"scaling": "weak"}, **SCHEDULE)
    assert (found.batch_size, found.worker_batch_size, found.num_steps) == (400, 100, 7.5)
    # 7.5 steps of 100 * 800 + 440 FLOPs and 0.04 s.
    assert found.training_time == pytest.approx(7.5 * 0.12044)
    assert found.inference_memory == footprint(spec, 100, training=False)


def test_settings_take_the_place_of_the_devices_figures(
    spec: paleo.NetSpec, plan: dict[str, Any]
) -> None:
    found = one(spec, **plan, **SCHEDULE, price=3.6, power="0.1 kW")
    assert found.price == Price(3.6, "USD")
    assert found.training_cost == pytest.approx(4 * 1.8132 * 0.001)
    assert found.training_energy == pytest.approx(2 * 362.64)
    assert found.notes == ()
    assert one(spec, **plan, power=100).power == 100.0
    for price in (0, "0 GBP/h", Price(0.0, "GBP")):
        assert one(spec, **plan, **SCHEDULE, price=price).training_cost == 0


def test_what_is_not_known_is_none() -> None:
    own = paleo.Device.from_rates("own", clock=1e9, peak=1e12, memory_bandwidth=1e11)
    values = one("nin", device=own).to_dict()
    unknown = {key for key, value in values.items() if value is None}
    assert unknown == {
        *("epochs", "dataset", "dataset_size", "num_steps", "training_flops", "training_time_s"),
        *("tokens", "tokens_per_s", "device_hours"),
        *("power_w", "inference_energy_per_sample_j", "training_energy_per_sample_j"),
        *("training_energy_j", "price_per_device_hour", "price_currency", "price_provider"),
        *("price_date", "training_cost", "memory_capacity_bytes", "largest_batch_size"),
        *("inference_cost_per_million", "training_cost_per_million"),
        "computation_communication_ratio",  # a worker alone
        "cluster",  # devices behind one network
        "balance_workers",  # in weak scaling, its exchange never takes as long
        *(
            "conv_library",
            "workspace_limit_bytes",
            "framework",
            "attention",
            "optimizer_kernels",
        ),  # nobody asked for any
    }
    assert "no energy: the file of own has no power" in values["notes"]
    assert one("nin", device="TITAN_X", **SCHEDULE).training_cost is None  # nobody lets them


def test_a_net_that_only_one_cost_model_can_take_has_its_metrics_without_memory(net: Any) -> None:
    # The 2017 format gives a Sigmoid one output; its memory would be that of sixteen.
    spec = net(
        {
            "in": {"type": "Input", "parents": [], "tensor": [2, 16]},
            "sigmoid": {"type": "Sigmoid", "parents": ["in"]},
            "one": {"type": "Reshape", "parents": ["sigmoid"], "output_shape": [-1, 1]},
        }
    )
    values = one(spec, cost_model="paleo2017").to_dict()
    memory = ("inference_memory_bytes", "training_memory_bytes", "largest_batch_size")
    assert [values[key] for key in memory] == [None] * 3
    assert values["step_s"] > 0


def test_a_net_without_operations_has_no_rates(net: Any) -> None:
    spec = net({"data": LAYERS["data"]})
    found = one(spec, cost_model="paleo2017")
    assert (found.inference_throughput, found.peak_throughput) == (None, None)
    json.dumps(found.to_dict(), allow_nan=False)


def test_numbers_are_those_of_simulate_and_memory() -> None:
    (run,) = paleo.simulate("alex_v2", workers=[2, 8], scaling="strong").runs
    found_of = metrics("alex_v2", workers=[2, 8], scaling="strong")
    for found, row in zip(found_of, run.rows, strict=True):
        assert found.scheme == row.best_scheme
        assert found.step == row.whole_step(row.best_scheme)
        assert found.compute == row.compute
        assert found.balance_workers == run.worth.balance[row.best_scheme]
        assert found.inference == row["forward"]
        assert found.training_memory == footprint("alex_v2", 128 // row.workers)
        assert found.params == paleo.summarize("alex_v2").num_params


def test_the_optimizer_counts_in_the_memory() -> None:
    plain, adam = one("lenet5"), one("lenet5", optimizer="adam")
    assert plain.training_memory is not None
    assert adam.training_memory is not None
    assert adam.training_memory.optimizer_state == 8 * plain.params
    assert adam.largest_batch == largest_batch("lenet5", 12 * 2**30, optimizer="adam")
    assert adam.inference_memory == plain.inference_memory


def test_what_does_not_fit_is_said() -> None:
    said = "training takes more memory than TITAN_X has"
    largest = one("vgg16").largest_batch
    assert largest is not None
    assert said not in one("vgg16", batch_size=largest).notes
    assert said in one("vgg16", batch_size=largest + 1).notes


def test_memory_of_slices_on_several_devices_is_not_said() -> None:
    apart = one("alex_v2_2gpu", parallel="hybrid", hybrid_workers=2)
    assert (apart.training_memory, apart.largest_batch) == (None, None)
    assert any("split over devices" in note for note in apart.notes)
    assert one("alex_v2_2gpu").training_memory == footprint("alex_v2_2gpu", 128)
    whole = one("alex_v2", parallel="hybrid", hybrid_workers=2)
    assert whole.training_memory == footprint("alex_v2", 128)


def test_a_lone_worker_gets_the_scheme_whose_communication_catches_up_last() -> None:
    (run,) = paleo.simulate("nin", workers=1, scaling="weak", cost_model="paleo2017").runs
    found = one("nin", scaling="weak", cost_model="paleo2017")
    assert run.worth.balance["OneToAll"] == 4
    assert found.scheme == "ButterflyAllReduce"
    assert found.balance_workers == run.worth.balance["ButterflyAllReduce"] == 33


def test_several_nets_and_worker_counts_come_in_order() -> None:
    found = metrics(["nin", "lenet5"], workers=[1, 2])
    assert [(each.net, each.workers) for each in found] == [
        ("nin", 1),
        ("nin", 2),
        ("lenet5", 1),
        ("lenet5", 2),
    ]


@pytest.mark.parametrize(
    ("storage", "expected"),
    [
        (Storage(), 400),
        (Storage(weight_bits=1), 13),  # 100 bits
        (Storage(sparsity=0.9), 40),
        (Storage(6, 4, 0.5), 63),  # 50 weights of 10 bits
        (Storage(8, 0, 0.7), 30),
    ],
)
def test_a_model_of_100_weights_takes_its_bits(storage: Storage, expected: int) -> None:
    assert storage.num_bytes(100) == expected


# Mistakes

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"epochs": 0}, "epochs: expected a number above 0, got 0"),
    ({"epochs": 1e300}, "epochs: 1e+300 is too large to mean anything"),
    ({"dataset_size": 2**70}, "dataset_size: 1.18059e+21 is too large to mean anything"),
    ({"dataset_size": 0}, "dataset_size: expected a whole number of 1 or more, got 0"),
    ({"dataset": "mnits"}, "unknown dataset 'mnits' (did you mean 'mnist'?)"),
    ({"sparsity": 1.0}, "sparsity: expected a number from 0 to below 1, got 1.0"),
    ({"sparsity": -0.5}, "sparsity: expected a number from 0 to below 1, got -0.5"),
    ({"weight_bits": 0}, "weight_bits: expected a whole number from 1 to 64, got 0"),
    ({"index_bits": -1}, "index_bits: expected a whole number from 0 to 64, got -1"),
    (
        {"price": -1},
        'price: expected a number from 0 to 1e+12, or a text such as "0.90 EUR/h", got',
    ),
    ({"price": "1 EUR"}, "price: expected a number from 0 to 1e+12, or a text such as"),
    ({"price": "-1 EUR/h"}, "price: expected a number from 0 to 1e+12, or a text such as"),
    ({"price": "nan"}, "price: expected a number from 0 to 1e+12, or a text such as"),
    ({"power": "0 W"}, "power: expected a positive number, got '0 W'"),
    ({"power": "180"}, "power: expected a number with a unit, such as \"10 W\", got '180'"),
    ({"optimizer": "adm"}, "unknown optimizer 'adm' (did you mean 'adam'?)"),
    ({"scaling": "wide"}, "scaling: expected weak or strong, got 'wide'"),
    ({"scheme": "Ring"}, "unknown communication scheme 'Ring'"),
    ({"batch_size": 0}, "batch_size: expected a whole number of 1 or more, got 0"),
    ({"ppp_comp": 0.0}, "ppp_comp: expected a number above 0, up to 1, got 0.0"),
]


@pytest.mark.parametrize(("settings", "message"), WRONG, ids=[str(each) for each, _ in WRONG])
def test_a_wrong_setting_is_one_line_in_python_and_in_the_shell(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(paleo.PaleoError) as caught:
        metrics("lenet5", **settings)
    (mistake,) = caught.value.mistakes
    assert mistake.message.startswith(message)
    options = [f"--{name}={value}" for name, value in settings.items()]
    result = call("lenet5", *options, status=1)
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"paleo: {message}")


def test_all_mistakes_come_together() -> None:
    result = call(
        "gone", "lenet5", "--device=none", "--epochs=0", "--price=-1", "--sparsity=2", status=1
    )
    starts = ["unknown net", "unknown device", "epochs:", "price:", "sparsity:"]
    lines = result.stderr.splitlines()
    assert len(lines) == len(starts)
    for line, start in zip(lines, starts, strict=True):
        assert line.startswith(f"paleo: {start}")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"parallel": "model"},
            "parallel: expected data or mesh or hybrid or single_process, got 'model'",
        ),
        ({"scaling": ["weak"]}, "scaling: expected weak or strong, got ['weak']"),
        ({"scheme": ["OneToAll"]}, 'scheme: expected one, got ["OneToAll"]'),
        ({"power": 0}, "power: expected watts, a number above 0, up to 1e+12, got 0"),
        ({"power": True}, "power: expected watts, a number above 0, up to 1e+12, got true"),
        ({"price": float("nan")}, "price: expected a number from 0 to 1e+12, or a text such as"),
        ({"weight_bits": 1.5}, "weight_bits: expected a whole number from 1 to 64, got 1.5"),
        ({"nets": []}, "nets: expected one or more, got none"),
    ],
)
def test_settings_of_the_wrong_kind_are_one_line(settings: Any, message: str) -> None:
    with pytest.raises(paleo.PaleoError) as caught:
        metrics(**{"nets": "lenet5", **settings})
    (mistake,) = caught.value.mistakes
    assert mistake.message.startswith(message)


def test_no_metrics_follow_from_a_time_below_zero() -> None:
    # The 2017 formula of the hybrid scheme takes the fetch of all workers' activations off each
    # batch, which many workers bring below zero.
    with pytest.raises(paleo.SettingError) as caught:
        metrics(
            "alex_v2_8gpu",
            parallel="hybrid",
            hybrid_workers=64,
            cost_model="paleo2017",
        )
    assert str(caught.value) == (
        "alex_v2_8gpu: paleo2017 gives a time below zero for 64 workers, from which no metrics "
        "follow"
    )
