"""Fits of kernels' constants: they find what made the times, leave out what does not matter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paleo.costs.tiled import expert_kernels
from paleo.costs.tiled.expert_kernels import EXPERT_KERNELS
from paleo.measure.validate import Cases, operator_cases, predict
from paleo.measure.validate.kernel_fits import fit_kernel, sample

parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow")
pyarrow = pytest.importorskip("pyarrow", reason="needs pyarrow")
pytest.importorskip("scipy", reason="needs SciPy")

FILES = expert_kernels.FILES
FREE = ("start", "fill", "share", "operands", "stream")
NAME = "vllm_triton"


def layers(folder: Path, made_with: Mapping[str, float]) -> Cases:
    """Return layers of experts of an H100, of which some constants have made the times."""
    generator = np.random.default_rng(1)
    count = 150
    columns: dict[str, Any] = {
        "moe_dtype": ["bfloat16"] * count,
        "kernel_source": ["vllm_fused_moe"] * count,
        "num_tokens": generator.choice([1, 8, 64, 256, 1024, 4096, 16384], count).tolist(),
        "hidden_size": generator.choice([1024, 2048, 4096], count).tolist(),
        "inter_size": generator.choice([768, 1536, 4096], count).tolist(),
        "topk": [4] * count,
        "num_experts": generator.choice([16, 64, 128], count).tolist(),
        "moe_tp_size": [1] * count,
        "moe_ep_size": [1] * count,
        "distribution": ["balanced"] * count,
        "latency": [1.0] * count,
    }
    path = folder / "systems" / "data" / "h100_sxm" / "moe" / "vllm" / "1" / "moe_perf.parquet"
    path.parent.mkdir(parents=True)
    parquet.write_table(pyarrow.table(columns), path)
    cases = operator_cases(folder)
    with FILES.trying(NAME, "Hopper", made_with):
        return replace(cases, measured=predict(cases, "tiled"))


def test_a_fit_finds_the_constants_that_made_the_times(tmp_path: Path) -> None:
    true = {"start": 35e-6, "fill": 1.5e-6, "share": 0.45, "operands": 0.7, "stream": 0.3}
    cases = layers(tmp_path, true)
    found = fit_kernel(FILES, NAME, "Hopper", cases, FREE)
    assert dict(found.constants) == pytest.approx(true, rel=0.05)
    assert found.error < 0.005


def test_constants_that_are_those_of_any_kernel_are_left_out(tmp_path: Path) -> None:
    plain = {key: FILES.constants[key].value for key in FREE}
    cases = layers(tmp_path, {**plain, "share": 0.3, "start": 50e-6})
    found = fit_kernel(FILES, NAME, "Hopper", cases, FREE)
    assert dict(found.constants) == pytest.approx({"share": 0.3, "start": 50e-6}, rel=0.02)


def test_constants_that_are_tried_hold_within_their_block_alone() -> None:
    kernel = EXPERT_KERNELS[NAME]
    before = {name: dict(kernel.constants(name)) for name in ("Hopper", "Blackwell")}
    with FILES.trying(NAME, "Hopper", {"share": 0.123}):
        tried = kernel.constants("Hopper")
        assert tried["share"] == 0.123
        # What is not given is as in a kernel without a file; other architectures keep theirs.
        assert tried["start"] == FILES.constants["start"].value
        if "Blackwell" in FILES(NAME):
            assert kernel.constants("Blackwell") == before["Blackwell"]
    assert kernel.constants("Hopper") == before["Hopper"]


def test_samples_are_the_same_for_a_seed_and_leave_the_others(tmp_path: Path) -> None:
    cases = layers(tmp_path, {})
    few, others = sample(cases, 100)
    assert (len(few), len(others)) == (100, 50)
    assert set(few.ids).isdisjoint(others.ids)
    again, _ = sample(cases, 100)
    assert few.ids.tolist() == again.ids.tolist()
    other, _ = sample(cases, 100, seed=1)
    assert few.ids.tolist() != other.ids.tolist()
    everything, none = sample(cases, 1000)
    assert (len(everything), len(none)) == (150, 0)
