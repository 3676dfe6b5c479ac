"""The predefined devices that are not NVIDIA's: AMD Instinct, TPUs, Apple's GPUs, server CPUs."""

from __future__ import annotations

import pytest

import paleo

#: Compute units, FLOPs of one in a clock by dtype and kind of unit, MHz.
VECTOR_128 = {("fp32", "vector"): 128}
CDNA2 = VECTOR_128 | {
    ("fp64", "vector"): 128,
    ("fp64", "matrix"): 256,
    ("fp32", "matrix"): 256,
    ("fp16", "matrix"): 1024,
    ("bf16", "matrix"): 1024,
    ("int8", "matrix"): 1024,
}
CDNA3 = {
    ("fp64", "vector"): 128,
    ("fp64", "matrix"): 256,
    ("fp32", "vector"): 256,
    ("fp32", "matrix"): 256,
    ("tf32", "matrix"): 1024,
    ("fp16", "matrix"): 2048,
    ("bf16", "matrix"): 2048,
    ("fp8", "matrix"): 4096,
    ("int8", "matrix"): 4096,
}
AMD = {
    "MI100": (
        120,
        VECTOR_128
        | {
            ("fp64", "vector"): 64,
            ("fp32", "matrix"): 256,
            ("fp16", "matrix"): 1024,
            ("bf16", "matrix"): 512,
            ("int8", "matrix"): 1024,
        },
        1502,
    ),
    "MI210": (104, CDNA2, 1700),
    "MI250": (208, CDNA2, 1700),
    "MI250_DIE": (104, CDNA2, 1700),
    "MI250X": (220, CDNA2, 1700),
    "MI250X_DIE": (110, CDNA2, 1700),
    "MI300X": (304, CDNA3, 2100),
    "MI325X": (304, CDNA3, 2100),
}
#: Bits of the memory's interface, Gbit/s of each.
AMD_MEMORY = {
    "MI100": (4096, 2.4),
    "MI210": (4096, 3.2),
    "MI250": (8192, 3.2),
    "MI250_DIE": (4096, 3.2),
    "MI250X": (8192, 3.2),
    "MI250X_DIE": (4096, 3.2),
    "MI300X": (8192, 5.2),
}
#: Matrix units of 128 x 128, and MHz.
TPUS = {
    "TPU_V2": (2, 700),
    "TPU_V3": (4, 940),
    "TPU_V4": (8, 1050),
    "TPU_V5E": (4, 1500),
    "TPU_V5P": (8, 1750),
}
#: Cores of 128 lanes, and MHz.
APPLE = {
    "APPLE_M1": (8, 1278),
    "APPLE_M1_7_CORE": (7, 1278),
    "APPLE_M1_PRO": (16, 1296),
    "APPLE_M1_MAX": (32, 1296),
    "APPLE_M1_ULTRA": (64, 1296),
    "APPLE_M2": (10, 1398),
    "APPLE_M2_PRO": (19, 1398),
    "APPLE_M2_MAX": (38, 1398),
    "APPLE_M2_ULTRA": (76, 1398),
    "APPLE_M3": (10, 1398),
    "APPLE_M3_MAX": (40, 1398),
    "APPLE_M3_ULTRA": (80, 1398),
    "APPLE_M4": (10, 1578),
    "APPLE_M4_PRO": (20, 1578),
    "APPLE_M4_MAX": (40, 1578),
}
#: Bits of the interface and MT/s of the memory that CPU and GPU share.
APPLE_MEMORY = {
    "APPLE_M1": (128, 4266),
    "APPLE_M1_7_CORE": (128, 4266),
    "APPLE_M1_PRO": (256, 6400),
    "APPLE_M1_MAX": (512, 6400),
    "APPLE_M1_ULTRA": (1024, 6400),
    "APPLE_M2": (128, 6400),
    "APPLE_M2_PRO": (256, 6400),
    "APPLE_M2_MAX": (512, 6400),
    "APPLE_M2_ULTRA": (1024, 6400),
    "APPLE_M3": (128, 6400),
    "APPLE_M3_MAX": (512, 6400),
    "APPLE_M3_ULTRA": (1024, 6400),
    "APPLE_M4": (128, 7500),
    "APPLE_M4_PRO": (256, 8533),
    "APPLE_M4_MAX": (512, 8533),
}
#: Cores, fp32 lanes of a vector, multiply-adds a clock, GHz; channels of 8 bytes, MT/s.
CPUS = {
    "XEON_8280": (28, 16, 2, 2.7, 6, 2933),
    "XEON_8380": (40, 16, 2, 2.3, 8, 3200),
    "XEON_8480_PLUS": (56, 16, 2, 2.0, 8, 4800),
    "EPYC_7742": (64, 8, 2, 2.25, 8, 3200),
    "EPYC_7763": (64, 8, 2, 2.45, 8, 3200),
    "EPYC_9654": (96, 8, 2, 2.4, 12, 4800),
    "XEON_PHI_7250": (68, 16, 2, 1.4, None, None),
}
ALL = [*AMD, *TPUS, *APPLE, *CPUS]


def peak(device: paleo.Device, dtype: str, unit: str) -> float:
    return float(device.peaks[dtype][unit].value)


@pytest.mark.parametrize("name", AMD)
def test_peaks_of_amd_are_units_times_flops_a_clock_times_the_clock(name: str) -> None:
    units, rates, clock = AMD[name]
    device = paleo.find_device(name)
    assert device.figures["multiprocessors"].value == units
    assert device.figures["boost_clock"].value == clock * 1e6
    found = {(dtype, unit) for dtype, kinds in device.peaks.items() for unit in kinds}
    assert found == set(rates)
    for (dtype, unit), flops in rates.items():
        # The white papers print three or four digits.
        expected = units * flops * clock * 1e6
        assert peak(device, dtype, unit) == pytest.approx(expected, rel=3e-3), (dtype, unit)


@pytest.mark.parametrize("name", AMD_MEMORY)
def test_memory_bandwidth_of_amd_is_bits_times_their_rate(name: str) -> None:
    bits, rate = AMD_MEMORY[name]
    expected = bits * rate * 1e9 / 8
    assert paleo.find_device(name).memory_bandwidth == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("name", ["MI250", "MI250X"])
def test_a_module_of_two_dies_has_twice_what_one_die_has(name: str) -> None:
    module, die = paleo.find_device(name), paleo.find_device(f"{name}_DIE")
    assert module.figures["memories"].value == 2
    # No process has the memory of both.
    assert module.memory_capacity == die.memory_capacity == 64 * 2**30
    for figure in ("multiprocessors", "memory_bandwidth", "cache", "power"):
        assert module.figures[figure].value == 2 * die.figures[figure].value
    for dtype, units in module.peaks.items():
        for unit, both in units.items():
            assert both.value == pytest.approx(2 * die.peaks[dtype][unit].value, rel=1e-12)


@pytest.mark.parametrize("name", TPUS)
def test_peaks_of_tpus_are_those_of_their_matrix_units(name: str) -> None:
    units, clock = TPUS[name]
    device = paleo.find_device(name)
    assert (device.kind, device.architecture) == ("tpu", "TPU")
    assert device.figures["multiprocessors"].value == units
    expected = units * 128 * 128 * 2 * clock * 1e6
    assert peak(device, "bf16", "matrix") == pytest.approx(expected, rel=3e-3)


@pytest.mark.parametrize("name", TPUS)
def test_a_tpu_has_no_peak_for_fp32_and_says_which_it_has(name: str) -> None:
    device = paleo.find_device(name)
    has = {"TPU_V2": "bf16", "TPU_V3": "bf16"}.get(name, "bf16, int8")
    with pytest.raises(paleo.HardwareError) as caught:
        device.peak("fp32")
    assert str(caught.value) == f"device {name} has no peak for fp32; it has: {has}"


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("MI210", "fp8"), ("MI100", "tf32"), ("APPLE_M2_ULTRA", "bf16"), ("EPYC_9654", "fp16")],
)
def test_a_dtype_without_a_figure_is_an_error_not_another_dtype(name: str, dtype: str) -> None:
    device = paleo.find_device(name)
    with pytest.raises(paleo.HardwareError, match=f"{name} has no peak for {dtype}; it has: "):
        device.peak(dtype)
    assert dtype not in device.peaks


@pytest.mark.parametrize("name", APPLE)
def test_peaks_of_apple_are_cores_times_lanes_times_the_clock(name: str) -> None:
    cores, clock = APPLE[name]
    device = paleo.find_device(name)
    assert device.architecture == "Apple"
    assert device.figures["multiprocessors"].value == cores
    expected = cores * 128 * 2 * clock * 1e6
    assert peak(device, "fp32", "vector") == pytest.approx(expected, rel=1e-3)
    # Half precision runs no faster.
    assert device.peaks["fp16"]["vector"].value == device.peaks["fp32"]["vector"].value


@pytest.mark.parametrize("name", APPLE_MEMORY)
def test_memory_bandwidth_of_apple_is_bits_times_their_rate(name: str) -> None:
    bits, rate = APPLE_MEMORY[name]
    expected = bits * rate * 1e6 / 8
    assert paleo.find_device(name).memory_bandwidth == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("name", CPUS)
def test_peaks_of_cpus_are_cores_times_lanes_times_the_base_clock(name: str) -> None:
    cores, lanes, units, clock, channels, rate = CPUS[name]
    device = paleo.find_device(name)
    assert device.kind == "cpu"
    assert device.figures["multiprocessors"].value == cores
    assert device.figures["base_clock"].value == pytest.approx(clock * 1e9, rel=1e-12)
    expected = cores * lanes * units * 2 * clock * 1e9
    assert peak(device, "fp32", "vector") == pytest.approx(expected, rel=1e-4)
    assert peak(device, "fp64", "vector") == pytest.approx(expected / 2, rel=1e-4)
    assert "base clock" in device.peaks["fp32"]["vector"].note  # which clock it is at
    if channels and rate:
        bandwidth = channels * 8 * rate * 1e6
        assert device.memory_bandwidth == pytest.approx(bandwidth, rel=1e-3)


def test_amx_is_a_matrix_unit_of_sapphire_rapids() -> None:
    # 1024 operations of bf16 and 2048 of int8 a clock in each of 56 cores, at 2.0 GHz.
    device = paleo.find_device("XEON_8480_PLUS")
    assert peak(device, "bf16", "matrix") == 56 * 1024 * 2.0e9
    assert peak(device, "int8", "matrix") == 56 * 2048 * 2.0e9
    assert "fp32" in device.peaks
    assert "matrix" not in device.peaks["fp32"]
    # 256 of int8 in Ice Lake's vectors, 40 cores at 2.3 GHz.
    assert peak(paleo.find_device("XEON_8380"), "int8", "vector") == pytest.approx(
        40 * 256 * 2.3e9, rel=1e-12
    )


@pytest.mark.parametrize("name", ALL)
def test_each_of_them_has_the_figures_that_a_cost_model_needs(name: str) -> None:
    device = paleo.find_device(name)
    for figure in ("multiprocessors", "memory_bandwidth", "cache"):
        found = device.figures[figure]
        assert found.source in device.sources.values()
    for units in device.peaks.values():
        for found in units.values():
            assert found.source in device.sources.values()
    assert device.own_rates_2017 is None


@pytest.mark.parametrize("name", [name for name in ALL if name not in TPUS])
def test_each_that_has_fp32_simulates_a_step(name: str) -> None:
    for model in ("paleo2017", "roofline"):
        (run,) = paleo.simulate("nin", device=name, cost_model=model, scaling="weak").runs
        row = run.rows[0]
        assert row["forward"] > 0


def test_spellings_of_measurements_are_aliases() -> None:
    for spelling, name in {
        "M2 Ultra 76-Core GPU 192GB": "APPLE_M2_ULTRA",
        "M1 Max 32\N{NON-BREAKING HYPHEN}Core GPU 64GB": "APPLE_M1_MAX",
        "XeonPhi7250F": "XEON_PHI_7250",
        "AMD Instinct MI210": "MI210",
        "TPU v3": "TPU_V3",
    }.items():
        assert paleo.find_device(spelling).name == name
