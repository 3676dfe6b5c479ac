"""The registry of devices: what every file has to say, and whether its figures fit together."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import click.testing
import pytest

import paleo
from paleo.cli import cli
from paleo.cluster import ARCHITECTURES
from paleo.core.tensor import DTYPES
from paleo.costs.tiled.constants import CONSTANTS

DEVICES = {name: paleo.find_device(name) for name in paleo.device_names()}
NVIDIA = ARCHITECTURES[: ARCHITECTURES.index("Blackwell RTX") + 1]

#: fp32 lanes of a multiprocessor, from NVIDIA's architecture papers. Pascal and Ampere have
#: two designs: that of the large chip (GP100, GA100), and that of the others.
LANES = {
    "Kepler": 192,
    "Maxwell": 128,
    "Pascal": 128,
    "Volta": 64,
    "Turing": 64,
    "Ampere": 128,
    "Ada": 128,
    "Hopper": 128,
    "Blackwell": 128,
    "Blackwell RTX": 128,
}
LANES_OF_LARGE_CHIPS = {"GP100": 64, "GA100": 64}

#: What published measurements and the package aiconfigurator-core call devices.
CALLED = {
    "A100-SXM-80GB": "A100_SXM_80GB",
    "A100-80GB": "A100_SXM_80GB",
    "A100 80GB SXM4": "A100_SXM_80GB",
    "A100-PCIe-40GB": "A100_PCIE_40GB",
    "A100 40GB PCIe": "A100_PCIE_40GB",
    "A100-PCIe-80GB": "A100_PCIE_80GB",
    "V100-PCIe-32GB": "V100_PCIE_32GB",
    "V100-SXM2-16GB": "V100_SXM2_16GB",
    "V100-SXM2-16GB(DGX-1)": "V100_SXM2_16GB",
    "V100-SXM-32GB": "V100_SXM2_32GB",
    "P100-PCIe-16GB": "P100_PCIE",
    "P100-SXM2-16GB (DGX-1)": "P100_SXM2",
    "TitanX-Maxwell": "TITAN_X",
    "TitanX-Pascal": "TITAN_X_PASCAL",
    "TitanV": "TITAN_V",
    "TITANV": "TITAN_V",
    "GTX1080": "GTX_1080",
    "1080Ti": "GTX_1080_TI",
    "GTX1080Ti": "GTX_1080_TI",
    "2080Ti": "RTX_2080_TI",
    "RTX2080Ti": "RTX_2080_TI",
    "Quadro RTX 8000": "QUADRO_RTX_8000",
    "3090 24GB": "RTX_3090",
    "RTX 6000 Ada 48GB": "RTX_6000_ADA",
    "RTX 4000 Ada 20GB": "RTX_4000_ADA",
    "A40 48GB": "A40",
    "K80 (one GK210 die, EC2 p2)": "K80_DIE",
    "M60 (one GPU, EC2 g3.4xlarge)": "M60",
    "a100_sxm": "A100_SXM_80GB",
    "a100_pcie": "A100_PCIE_80GB",
    "a30": "A30",
    "l4": "L4",
    "l40s": "L40S",
    "h100_pcie": "H100_PCIE",
    "h100_sxm": "H100_SXM",
    "h200_sxm": "H200_SXM",
    "b200_sxm": "B200_SXM",
    "b300_sxm": "B300_SXM",
    "gb200": "GB200",
    "gb300": "GB300",
    "rtx_pro_6000_server": "RTX_PRO_6000",
}


def run(*arguments: str) -> str:
    """Return what a command prints."""
    result = click.testing.CliRunner().invoke(cli, ["devices", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of 80 columns."""
    monkeypatch.setattr("paleo.cli.options.terminal_width", lambda: 80)


# Every file


@pytest.mark.parametrize("name", DEVICES)
def test_every_device_states_what_a_cost_model_needs(name: str) -> None:
    device = DEVICES[name]
    assert device.architecture in ARCHITECTURES or device.kind == "cpu"
    assert {"multiprocessors", "memory_bandwidth"} <= set(device.figures)
    # How much memory a CPU has is its owner's to say, and much the same for Apple's chips.
    if device.kind != "cpu" and device.architecture != "Apple":
        assert device.memory_capacity is not None
    assert 20e9 <= device.memory_bandwidth <= 10e12
    assert 2 <= device.peak() / device.memory_bandwidth <= 150 if "fp32" in device.peaks else True


@pytest.mark.parametrize("name", DEVICES)
def test_every_figure_of_a_device_has_a_source(name: str) -> None:
    device = DEVICES[name]
    figures = [*device.figures.values(), *(f for u in device.peaks.values() for f in u.values())]
    assert figures
    for figure in figures:
        assert figure.source in device.sources.values()
        assert figure.value > 0


@pytest.mark.parametrize("name", DEVICES)
def test_matrix_units_are_no_slower_than_lanes_and_fewer_bits_than_more(name: str) -> None:
    for units in DEVICES[name].peaks.values():
        if len(units) == 2:
            assert units["matrix"].value >= units["vector"].value
    matrix = {t: u["matrix"].value for t, u in DEVICES[name].peaks.items() if "matrix" in u}
    order = [matrix[dtype] for dtype in ("tf32", "fp16", "fp8") if dtype in matrix]
    assert order == sorted(order)
    if {"fp16", "bf16"} <= set(matrix) and DEVICES[name].architecture in NVIDIA:
        assert matrix["fp16"] == matrix["bf16"]


@pytest.mark.parametrize("name", [n for n, d in DEVICES.items() if d.architecture in NVIDIA])
def test_the_fp32_peak_is_that_of_all_lanes_at_the_clock_it_states(name: str) -> None:
    device = DEVICES[name]
    large = [lanes for chip, lanes in LANES_OF_LARGE_CHIPS.items() if chip in device.title]
    lanes = large[0] if large else LANES[device.architecture]
    peak = device.peaks["fp32"]["vector"]
    at_base = "boost_clock" not in device.figures or "base clock" in peak.note.split(";")[0]
    clock = device.figures["base_clock" if at_base else "boost_clock"].value
    # A multiply-add, two operations, in each lane and clock.
    every = 2 * lanes * device.figures["multiprocessors"].value * clock
    assert peak.value == pytest.approx(every, rel=0.03)


@pytest.mark.parametrize("called", CALLED)
def test_devices_are_found_by_what_measurements_call_them(called: str) -> None:
    assert paleo.find_device(called) == DEVICES[CALLED[called]]


# Single figures, by hand


def value(name: str, dtype: str, unit: str) -> Any:
    return DEVICES[name].peaks[dtype][unit].value


def test_the_a100_is_as_its_data_sheet_says() -> None:
    device = DEVICES["A100_SXM_80GB"]
    # 108 multiprocessors x 64 lanes x 2 x 1410 MHz = 19.49 TFLOP/s, printed as 19.5;
    # 4 tensor cores of 256 multiply-adds: 108 x 1024 x 2 x 1410 MHz = 311.9, printed as 312.
    assert (value("A100_SXM_80GB", "fp32", "vector"), device.peak("fp16")) == (19.5e12, 312e12)
    assert value("A100_SXM_80GB", "tf32", "matrix") == 312e12 / 2
    assert value("A100_SXM_80GB", "int8", "matrix") == 312e12 * 2
    assert device.memory_bandwidth == 2039e9
    assert device.figures["cache"].value == 40 * 2**20
    bandwidths = [DEVICES[f"A100_{form}"].memory_bandwidth for form in ("PCIE_40GB", "PCIE_80GB")]
    assert bandwidths == [1555e9, 1935e9]


def test_an_h200_is_an_h100_with_another_memory() -> None:
    h100, h200 = DEVICES["H100_SXM"], DEVICES["H200_SXM"]
    for dtype, units in h100.peaks.items():
        assert {u: f.value for u, f in units.items()} == {
            u: f.value for u, f in h200.peaks[dtype].items()
        }
    assert (h100.memory_bandwidth, h200.memory_bandwidth) == (3.35e12, 4.8e12)
    assert h200.figures["multiprocessors"].value == h100.figures["multiprocessors"].value == 132


def test_peaks_are_dense() -> None:
    # The data sheets print, with sparsity: H100 SXM bf16 1979, fp8 3958; L40S bf16 733;
    # B200 bf16 4500, fp8 9000; RTX PRO 6000 fp8 2000 (rounded).
    assert value("H100_SXM", "bf16", "matrix") == pytest.approx(1979e12 / 2, rel=1e-3)
    assert value("H100_SXM", "fp8", "matrix") == pytest.approx(3958e12 / 2, rel=1e-3)
    assert value("L40S", "bf16", "matrix") == pytest.approx(733e12 / 2, rel=0.02)
    assert value("B200_SXM", "bf16", "matrix") == 4500e12 / 2
    assert value("B200_SXM", "fp8", "matrix") == 9000e12 / 2
    assert value("RTX_PRO_6000", "fp8", "matrix") == pytest.approx(2000e12 / 2, rel=0.07)


@pytest.mark.parametrize(
    ("name", "fp16_accumulation"),
    [("RTX_2080_TI", 107.6e12), ("RTX_3090", 142e12), ("RTX_4090", 330.3e12)],
)
def test_geforce_cards_have_half_the_rate_with_fp32_accumulation(
    name: str, fp16_accumulation: float
) -> None:
    figure = DEVICES[name].peaks["fp16"]["matrix"]
    assert figure.value == pytest.approx(fp16_accumulation / 2, rel=1e-3)
    assert "fp32 accumulation, half the rate of fp16 accumulation" in figure.note


def test_a_die_of_a_k80_is_half_a_board() -> None:
    board, die = DEVICES["K80"], DEVICES["K80_DIE"]
    for name in ("multiprocessors", "memory_bandwidth", "memory_capacity", "cache", "power"):
        assert 2 * die.figures[name].value == board.figures[name].value, name
    assert die.memory_capacity == board.memory_capacity == 12 * 2**30
    # The board's peak is that of the base clock, 562 MHz, the die's that of 875 MHz.
    assert die.peak() / (board.peak() / 2) == pytest.approx(875 / 562, rel=0.01)


def test_a_type_that_a_device_lacks_is_an_error_that_says_which_it_has() -> None:
    with pytest.raises(paleo.HardwareError) as caught:
        paleo.find_device("GTX_1080").peak("bf16")
    known = "fp64, fp32, fp16, int8"
    assert str(caught.value) == f"device GTX_1080 has no peak for bf16; it has: {known}"


def test_without_a_base_clock_the_2017_model_takes_the_boost_clock() -> None:
    device = DEVICES["H100_SXM"]
    assert "base_clock" not in device.figures
    assert device.rates_2017.clock == 1980e6
    assert DEVICES["T4"].rates_2017.clock == 585e6  # it has both


# `paleo devices`


def test_the_list_shows_what_one_chooses_a_device_by() -> None:
    lines = run("--quiet").splitlines()
    assert lines[0].split() == ["fp32", "16-bit", "fp8", "bandwidth", "memory", "multi-"]
    rows = {line.split()[0]: line.split() for line in lines if line and line.split()[0] in DEVICES}
    assert len(rows) == len(DEVICES)
    figures = ["66.90", "989.4", "1,979", "3,350.0", "80.00", "132"]
    assert rows["H100_SXM"] == ["H100_SXM", "Hopper", *figures]
    assert rows["K40"] == ["K40", "Kepler", "4.29", "288.0", "12.00", "15"]


def test_the_list_is_by_maker_and_age_and_ends_with_cpus() -> None:
    names = [line.split()[0] for line in run().splitlines() if line.split()[:1]]
    order = [name for name in names if name in DEVICES]
    kinds = [DEVICES[name].kind == "cpu" for name in order]
    assert kinds == sorted(kinds)
    ours = [name for name in order if DEVICES[name].architecture in NVIDIA]
    ages = [NVIDIA.index(DEVICES[name].architecture) for name in ours]
    assert ages == sorted(ages)
    start = order.index(ours[0])
    assert order[start : start + len(ours)] == ours  # nobody else's between them


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("names", [[], ["K80"], ["RTX_PRO_6000_WS", "H100_SXM"]])
def test_lists_and_figures_fit_a_narrow_terminal(names: list[str]) -> None:
    assert max(map(len, run(*names).splitlines())) <= 80


@pytest.mark.parametrize("form", ["table", "markdown"])
def test_a_device_is_shown_with_every_figure_its_source_and_its_constants(form: str) -> None:
    device = DEVICES["A100_SXM_80GB"]
    text = run("A100 SXM4 80 GB", f"--format={form}", "--wide").replace("\\", "")
    for source in device.sources.values():
        assert source in text
    for said in ("2,039 GB/s", "19.5 TFLOP/s", "40 MiB", "400 W", "1.41 GHz", "80 GiB"):
        assert said in text
    for line in ("fp32 peak, lanes", "fp16 peak, matrix units", "int8 peak, matrix units"):
        assert line in text
    notes = [f.note for f in device.figures.values()]
    notes += [f.note for units in device.peaks.values() for f in units.values()]
    for note in filter(None, notes):
        assert note in text
    for name, constant in CONSTANTS.items():
        assert name in text
        assert constant.meaning in text
    for alias in device.aliases:
        assert alias in text


def test_separated_values_have_a_row_for_each_device() -> None:
    rows = list(csv.DictReader(io.StringIO(run("H200_SXM", "l40s", "--format=csv"))))
    assert [row["name"] for row in rows] == ["H200_SXM", "L40S"]
    assert [float(row["memory_bandwidth_bytes_per_s"]) for row in rows] == [4.8e12, 864e9]
    assert float(rows[1]["fp16_peak_flop_per_s"]) == 362.05e12
    for dtype in DTYPES:
        assert f"{dtype}_peak_flop_per_s" in rows[0]
    assert "https://" in rows[0]["sources"]


def test_json_has_the_constants_with_meaning_and_unit() -> None:
    (found,) = json.loads(run("H100_SXM", "--format=json"))["devices"]
    assert set(found["tiled"]) == set(CONSTANTS)
    for name, constant in CONSTANTS.items():
        entry = found["tiled"][name]
        assert (entry["meaning"], entry["unit"]) == (constant.meaning, constant.unit)
        assert constant.low <= entry["value"] <= constant.high
        assert entry["source"]
    assert found["peak_flop_per_s"]["fp8"]["matrix"]["value"] == 1978.9e12
    assert found["architecture"] == "Hopper"


def test_an_own_file_shows_its_own_constants(tmp_path: Any) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'architecture = "Ampere"\n[figures]\nmemory_bandwidth = "1 TB/s"\n'
        '[peak.fp32]\nvector = "10 TFLOP/s"\n[tiled]\nlaunch = 7.5e-6\n'
    )
    assert "7.5 us" in run(str(path))
    (found,) = json.loads(run(str(path), "--format=json"))["devices"]
    assert found["tiled"]["launch"]["value"] == 7.5e-6
    assert found["tiled"]["launch"]["source"] == "the file itself"
