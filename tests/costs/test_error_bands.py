"""Error bands of predictions, and what published rows state of the software."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner

import paleo
from paleo.cli import cli
from paleo.cluster import ARCHITECTURES
from paleo.core.operations import (
    BatchMatMul,
    Convolution,
    Fused,
    Kind,
    MatMul,
    Operation,
    Pass,
    Pooling,
    Stream,
)
from paleo.core.window import axes
from paleo.costs import COST_MODELS, Target
from paleo.costs.error_bands import (
    INFERENCE,
    NET,
    ON_MESH,
    TRAINING,
    UNKNOWN,
    Band,
    Like,
    kind_of,
)
from paleo.costs.tiled.constants import CONSTANTS, constants_of, families
from paleo.costs.tiled.error_bands import find_band, known_bands
from paleo.measure.validate.spellings import library_of
from paleo.net.layers.normalization import BatchNorm

TILED = COST_MODELS["tiled"]


def test_a_band_says_how_far_the_truth_may_be() -> None:
    band = Band(0.93, 1.09, 1234, 0.8, "gemm on Hopper")
    assert str(band) == "+9 % -7 %"
    assert band.around(10.0) == (pytest.approx(9.3), pytest.approx(10.9))
    assert band.said == (
        "80 % of measured cases took between 0.93 and 1.09 times what is predicted "
        "(1,234 cases: gemm on Hopper)"
    )
    assert band.says("48", "83 ms") == (
        "80 % of measured cases took between 48 and 83 ms (1,234 cases: gemm on Hopper)"
    )
    assert "took at least 48 ms (" in band.says("48 ms", None)
    assert "took at most 83 ms (" in band.says(None, "83 ms")
    assert "sources" not in band.to_dict()
    open_band = Band(0.0, float("inf"), 3, 0.8)
    assert open_band.said == "too few cases were measured (3 cases)"
    assert open_band.to_dict()["high"] is None
    assert open_band.around(10.0) == (None, None)


KINDS: list[tuple[Operation, str]] = [
    (MatMul(8, 8, 8, 4), "gemm"),
    (BatchMatMul("product", 4, 8, 8, 8, 4), "bmm"),
    (BatchMatMul("gru", 4, 8, 8, 8, 4, dependent=True), "recurrent"),
    (Convolution(Pass.FORWARD, 2, axes((8,), (3,), (1,), "SAME"), 4, 4, 4), "convolution"),
    (Stream(Kind.FUNCTION, (8,), (8,)), "stream"),
    (Fused(MatMul(8, 8, 8, 4), (Stream(Kind.FUNCTION, (), ()),)), "gemm"),
]


@pytest.mark.parametrize(("operation", "kind"), KINDS)
def test_every_operation_is_of_a_kind_that_has_a_band(operation: Operation, kind: str) -> None:
    assert kind_of(operation) == kind
    assert find_band(Like(kind, architecture="no such architecture"))


def test_bands_of_unknown_architectures_are_those_of_any_other() -> None:
    any_other = find_band(Like(NET, architecture=UNKNOWN))
    assert any_other
    assert find_band(Like(NET, architecture="no such architecture")) == any_other
    own = find_band(Like("gemm", bits=16, architecture="Hopper"))
    other = find_band(Like("gemm", bits=16, architecture="no such architecture"))
    assert own
    assert other
    # What was measured is known better.
    assert own.high / own.low < other.high / other.low
    assert own.low < 1 < own.high


def test_a_band_is_looked_for_from_what_has_all_in_common_to_ever_wider_groups() -> None:
    asked = Like(NET, TRAINING, 16, "pytorch", "Hopper")
    assert list(asked.wider) == [
        asked,
        Like(NET, TRAINING, 16, "pytorch"),
        Like(NET, TRAINING, None, "pytorch"),
        Like(NET, TRAINING, 16, None, "Hopper"),
        Like(NET, TRAINING, 16),
        Like(NET, TRAINING, architecture="Hopper"),
        Like(NET, TRAINING),
        Like(NET, architecture="Hopper"),
        Like(NET),
    ]
    # Times of kernels are not taken with those from the host, nor what was fitted with the rest.
    product = Like("gemm", bits=8, software="", architecture="Ada")
    assert list(product.wider) == [
        product,
        Like("gemm", bits=8, software=""),
        Like("gemm", software="", architecture="Ada"),
        Like("gemm", software=""),
    ]
    unknown = Like("gemm", bits=8, software="", architecture=UNKNOWN)
    assert list(unknown.wider) == [unknown, Like("gemm", software="", architecture=UNKNOWN)]
    # What is not asked for is any: then groups are the same, and each is looked for once.
    assert list(Like(NET, architecture="Ada").wider) == [Like(NET, architecture="Ada"), Like(NET)]


def test_the_band_found_is_the_first_of_those_and_says_what_there_was_too_little_of() -> None:
    known = known_bands()
    for architecture in ("Ampere", "Hopper", "Kepler"):
        for bits in (32, 16):
            for direction in (TRAINING, INFERENCE):
                for software in ("", "pytorch", "timm", "tensorrt"):
                    asked = Like(NET, direction, bits, software, architecture)
                    first = next(like for like in asked.wider if like in known)
                    found = find_band(Like(NET, direction, bits, software, architecture))
                    assert found
                    assert (found.low, found.high) == (known[first].low, known[first].high)
                    missed = "too few were measured" in found.source
                    assert missed == (first != asked)
    asked = Like(NET, TRAINING, 8, "pytorch", "Hopper")
    assert asked.said() == "nets in training in 8 bits by pytorch on Hopper"
    wider = Like(NET, TRAINING, None, "pytorch")
    assert wider.said(asked) == (
        "nets in training by pytorch; too few were measured in 8 bits on Hopper"
    )
    assert Like(NET, software="").said() == "nets by other frameworks"
    host = Like("stream", bits=16, software="host", architecture=UNKNOWN)
    assert host.said() == (
        "operations that move data in 16 bits timed from the host "
        "on architectures as if nothing had been fitted to them"
    )


def test_one_cpu_says_nothing_of_another() -> None:
    measured = paleo.find_device("CORE_I7_12700H")
    assert TILED.band(Like(NET, INFERENCE, 32, "pytorch_compiled"), measured)
    assert TILED.band(Like("gemm"), measured) is None
    assert TILED.band(Like(NET), paleo.find_device("EPYC_7742")) is None


def test_where_no_band_is_known_one_line_says_so() -> None:
    line = "no error band is known for these settings\n"
    for command in (
        ["simulate", "nin", "--device=EPYC_7742"],
        ["simulate", "nin", "--device=H100_SXM", "--cost_model=roofline"],
        ["summary", "nin", "--device=EPYC_7742"],
        ["metrics", "nin", "--device=EPYC_7742"],
    ):
        run = CliRunner().invoke(cli, command)
        assert run.exit_code == 0, run.output
        assert run.stdout.count(line) == 1
        assert "80 % of measured cases" not in run.stdout


def test_summaries_and_simulations_carry_the_band_of_nets() -> None:
    device = paleo.find_device("A100_SXM_80GB")
    band = TILED.band(Like(NET, TRAINING, 32, ""), device)
    assert band
    summary = paleo.summarize("resnet18", 8, device=device)
    values = summary.to_dict()
    assert values["band"] == band.to_dict()
    assert values["forward_low_s"] == values["forward_s_low"] == band.low * values["forward_s"]
    assert paleo.simulate("resnet18", device=device).runs[0].band == band
    apart = paleo.simulate("resnet18", device=device, workers=4, overlap=False)
    (row,) = apart.to_dict()["runs"][0]["rows"]
    compute, exchange = row["compute_s"], row["communication_s"]["auto"]
    assert row["compute_s_low"] == pytest.approx(band.low * compute)
    # Of the exchange no band is known: it is as long at both ends.
    most = band.high * compute + exchange
    assert row["step_s_high"]["auto"] == pytest.approx(most)
    assert row["throughput_per_s_low"]["auto"] == pytest.approx(row["batch_size"] / most)
    assert "communication_s_low" not in row
    inference = TILED.band(Like(NET, INFERENCE, 32, ""), device)
    metrics = paleo.metrics("resnet18", device=device)[0].to_dict()
    assert inference
    assert metrics["inference_s_low"] == pytest.approx(inference.low * metrics["inference_s"])
    # The errors were those of plain nets at the full share of peak, by this cost model.
    for settings in ({"fuse": True}, {"ppp_comp": 0.5}, {"cost_model": "roofline"}):
        found: Any = paleo.simulate("resnet18", device=device, **settings)
        assert found.runs[0].band is None
        assert found.to_dict()["runs"][0]["band"] is None


def test_the_command_line_says_the_band() -> None:
    arguments = ["summary", "nin", "--device=H100_SXM", "--batch_size=8"]
    run = CliRunner().invoke(cli, arguments)
    assert run.exit_code == 0
    band = find_band(Like(NET, TRAINING, 32, "", "Hopper"))
    assert band
    said = " ".join(run.stdout.split())
    assert "error band of both passes: 80 % of measured cases took between " in said
    assert f" ms ({band.count:,} cases from {band.sources} sources: {band.source})" in said
    explained = CliRunner().invoke(cli, [*arguments, "--explain=conv1"])
    own = find_band(Like("convolution", bits=32, architecture="Hopper"))
    assert f"error band {own}" in explained.stdout
    as_json = CliRunner().invoke(cli, [*arguments, "--format=json"])
    assert json.loads(as_json.stdout)["nets"][0]["band"]["count"] == band.count


def test_every_family_is_an_architecture_and_says_where_its_constants_are_from() -> None:
    for name, family in families().items():
        assert name in (*ARCHITECTURES, "CPU")
        for constant, figure in family.constants.items():
            assert figure.source != "the file itself", f"{name}: {constant}"
    own = constants_of(paleo.find_device("T4"))
    assert set(own) == set(CONSTANTS)
    # The T4's own file has these, the architecture's the others, the cost model what is left.
    assert own["matrix_share"].value == 0.65
    assert "DeepBench" in own["launch"].source
    assert own["host"].source == "the cost model, for any architecture"


def test_a_constant_out_of_bounds_or_unknown_is_one_line(tmp_path: Any) -> None:
    path = tmp_path / "own.toml"
    path.write_text(
        '[figures]\nmemory_bandwidth = "1 GB/s"\n[peak.fp32]\nvector = "1 GFLOP/s"\n'
        "[tiled]\nlaunch = 1.0\nvector_shar = 0.5\n"
    )
    device = paleo.find_device(path)
    with pytest.raises(paleo.HardwareError) as caught:
        paleo.summarize("nin", device=device)
    said = str(caught.value)
    limits = "expected 5e-07 to 4e-05 s (fixed time of one kernel), got 1"
    assert f'key "tiled.launch": {limits}' in said
    assert "unknown constant" in said
    assert "vector_share" in said


def test_pooling_loads_its_windows() -> None:
    device = paleo.find_device("V100_SXM2_16GB")
    along = axes((56, 56), (3, 3), (2, 2), "SAME")
    forward = Pooling(Pass.FORWARD, 256, along, 64, 64, 4, maximum=True)
    # 256 x 64 channels: 56 x 56 read and 28 x 28 written; of 9 loads each of 28 x 28 the first of
    # an input takes two of its bytes, another one.
    num_bytes = 4 * 256 * 64 * (56 * 56 + 28 * 28 + 2 * 56 * 56 + (9 * 28 * 28 - 56 * 56))
    rate = device.memory_bandwidth * constants_of(device)["memory_share"].value
    assert TILED.price(forward, Target(device)).memory == pytest.approx(num_bytes / rate)


@pytest.mark.parametrize(
    ("name", "element_size", "forward", "back"),
    [
        # An element at a time: 3.4 a clock on each of 132 multiprocessors at 1.98 GHz are 1.78 TB/s
        # of halves, below 0.91 of 3.35 TB/s.
        ("H100_SXM", 2, 1.9 * 3 / (3.4 * 2 * 132 * 1.98e9), 1.4 * 5 / (3.4 * 2 * 132 * 1.98e9)),
        # Of 4 bytes they would be 3.55 TB/s, above it: memory is the limit.
        ("H100_SXM", 4, 1.9 * 3 / (0.91 * 3.35e12), 1.4 * 5 / (0.91 * 3.35e12)),
        # 108 at 1.41 GHz: 1.04 of 0.88 of 2.039 TB/s.
        ("A100_SXM_80GB", 2, 1.9 * 3 / (3.4 * 2 * 108 * 1.41e9), None),
        # 82 at 1.1 times 1.695 GHz: 1.04 TB/s, above 0.88 of 0.936.
        ("RTX_3090", 2, 1.9 * 3 / (0.88 * 936e9), None),
    ],
)
def test_batch_normalization_moves_an_element_at_a_time(
    name: str, element_size: int, forward: float, back: float | None
) -> None:
    # Forward x is read twice and y written; back x and its gradient are read twice, dx is written.
    layer, shape = BatchNorm(), (64, 512, 512, 64)
    count = 64 * 512 * 512 * 64
    target = Target(paleo.find_device(name), "fp16" if element_size == 2 else "fp32")
    (there,) = layer.operations(Pass.FORWARD, (shape,), element_size)
    found = TILED.price(there, target).memory
    assert found == pytest.approx(element_size * count * forward, rel=0.01)
    (inward,) = layer.operations(Pass.INPUT_GRADIENT, (shape,), element_size)
    (parameters,) = layer.operations(Pass.WEIGHT_GRADIENT, (shape,), element_size)
    if back:
        found = TILED.price(inward, target).memory
        assert found == pytest.approx(element_size * count * back, rel=0.01)
    # The same kernel sums up the gradients of scale and shift.
    assert TILED.price(parameters, target).total == 0
    assert "input's gradient" in TILED.explain(parameters, target).algorithm


@pytest.mark.parametrize(
    ("text", "library"),
    [
        ("cudnn5105", 5.1),
        ("cudnn4007", 4.0),
        ("cudnn4", 4.0),
        ("cudnn2 (May 2015)", 2.0),
        ("CUDA 8.0 / cuDNN 5.1", 5.1),
        ("Amazon p3, CUDA 9.0.176, CuDNN 7.0.0.3", 7.0),
        ("CUDA Version=8.0.88; Cudnn Version=6.0.21; Nvidia Driver=375.66", 6.0),
        ("cuDNN 8902 cu121", 8.9),
        ("CuDNN[R4]-fp16 (Torch)", 4.0),
        ("torch7/cudnn", None),
        ("PyTorch 1.0.0", None),
    ],
)
def test_the_library_of_a_row_is_read_from_its_version(text: str, library: float | None) -> None:
    assert library_of(text) == library


def test_steps_on_meshes_have_bands_of_their_own() -> None:
    """One of data parallelism has that of nets; one that shares its net that of steps on meshes."""
    settings: Any = {"cluster": "dgx_a100", "dtype": "bf16", "framework": "pytorch"}
    alone, shared = (
        paleo.scenario("gpt2", **settings, tp=ways, attention=attention).plan.band
        for ways, attention in ((1, None), (2, "fa1"))
    )
    assert alone is not None
    assert shared is not None
    assert (alone.whole, shared.whole) == (False, True)
    assert shared.source.startswith("steps on meshes in training in 16 bits")
    known = [like for like in known_bands() if like.kind == ON_MESH]
    assert {like.direction for like in known} <= {TRAINING, None}
    assert shared in [
        replace(band, source=shared.source, whole=True)
        for like, band in known_bands().items()
        if like.kind == ON_MESH
    ]
