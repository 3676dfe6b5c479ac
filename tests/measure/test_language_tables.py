"""Tables of layers of experts, of latent attention and of quantization, made here in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from validation import reasons

import paleo
from paleo.core.operations import GroupedMatMul
from paleo.costs import COST_MODELS, Target
from paleo.measure.validate import Selection, operator_cases, predict
from paleo.measure.validate.expert_tables import rank_loads

parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow")
pyarrow = pytest.importorskip("pyarrow", reason="needs pyarrow")


def table(root: Path, place: str, columns: dict[str, Any]) -> None:
    path = root / "systems" / "data" / place
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.table(columns), path)


def test_choices_that_go_around_are_even() -> None:
    # 4 tokens choose 2 of 8 experts: 0 and 4, 1 and 5, 2 and 6, 3 and 7. Rank 0 has the first four.
    sizes, rows = rank_loads(4, 2, 8, 2, "balanced")
    assert sizes[:4] == (1, 1, 2, 0)
    assert rows[:4] == (1, 1, 1, 0)
    # One token chooses 0 and 4.
    sizes, rows = rank_loads(1, 2, 8, 1, "balanced")
    assert sizes[:5] == (1, 1, 2, 4, 0)
    assert rows[:5] == (1, 1, 0, 0, 0)


@pytest.mark.parametrize("tokens", [1, 16, 1000])
@pytest.mark.parametrize(("experts", "chosen"), [(8, 2), (128, 8)])
def test_a_power_law_shares_out_all_choices(tokens: int, experts: int, chosen: int) -> None:
    sizes, rows = rank_loads(tokens, chosen, experts, 1, "power_law_1.2")
    assert sum(sizes) == experts
    given = sum(size * each for size, each in zip(sizes, rows, strict=True))
    assert given == pytest.approx(tokens * chosen, rel=0.01)
    assert max(rows) <= tokens
    assert (np.diff(rows[: sizes.index(0)]) < 1e-9).all()
    # The rank that has most has its share at least.
    sizes, rows = rank_loads(tokens, chosen, experts, 4, "power_law_1.2")
    assert sum(sizes) == experts // 4
    own = sum(size * each for size, each in zip(sizes, rows, strict=True))
    assert own >= tokens * chosen / 4 * 0.99


MOE = {
    "moe_dtype": ["bfloat16", "bfloat16", "w4afp8", "bfloat16"],
    "kernel_source": ["moe_torch_flow_cutlass"] * 3 + ["somebody_else"],
    "num_tokens": [1, 4096, 16, 16],
    "hidden_size": [2048] * 4,
    "inter_size": [768] * 4,
    "topk": [8] * 4,
    "num_experts": [128] * 4,
    "moe_tp_size": [1, 2, 1, 1],
    "moe_ep_size": [1, 4, 1, 1],
    "distribution": ["balanced", "power_law_1.01", "balanced", "balanced"],
    "latency": [0.047, 0.2, 0.1, 0.1],
}


def test_layers_of_experts_are_read(tmp_path: Path) -> None:
    table(tmp_path, "h100_sxm/moe/trtllm/1/moe_perf.parquet", MOE)
    found = operator_cases(tmp_path)
    assert reasons(found) == {
        "moe in bfloat16 by somebody_else is not modelled": 1,
        "moe in w4afp8 by moe_torch_flow_cutlass is not modelled": 1,
    }
    assert found.shapes() == [
        "tokens=1 topk=8 hidden=2048 inner=768", "tokens=4096 topk=8 hidden=2048 inner=384",
    ]  # fmt: skip
    assert set(found.labels["kind"]) == {"moe"}
    # By the data sheet: 8 experts' matrices, and a token that comes and goes.
    num_bytes = 2 * 8 * 3 * 2048 * 768 + 2 * 2 * 2048
    assert predict(found, "roofline")[0] == pytest.approx(num_bytes / 3.35e12)
    assert np.isfinite(predict(found, "tiled")).all()
    few = operator_cases(tmp_path, Selection(dtypes=("fp8",)))
    assert len(few) == 0
    # Selected cases keep their predictions.
    assert predict(found.select([1]), "tiled") == pytest.approx(predict(found, "tiled")[1:])


def test_a_file_of_experts_elsewhere_says_itself_what_it_is_of(tmp_path: Path) -> None:
    said = {"device": ["NVIDIA H200"] * 4, "framework": ["TRTLLM"] * 4, "version": ["1"] * 4}
    parquet.write_table(pyarrow.table(MOE | said), tmp_path / "moe_perf.parquet")
    found = operator_cases(tmp_path / "moe_perf.parquet")
    assert len(found) == 2
    assert list(found.devices) == ["H200_SXM"]
    assert set(found.labels["framework"]) == {"trtllm"}


LATENT = {
    "mla_dtype": ["bfloat16"] * 2,
    "kv_cache_dtype": ["bfloat16", "fp8"],
    "kernel_source": ["default"] * 2,
    "num_heads": [16] * 2,
    "batch_size": [4] * 2,
    "isl": [1] * 2,
    "step": [4095] * 2,
    "latency": [0.02] * 2,
}


def test_steps_of_latent_attention_read_the_latent_once(tmp_path: Path) -> None:
    table(tmp_path, "h100_sxm/mla/trtllm/1/generation_mla_perf.parquet", LATENT)
    prompt = LATENT | {"isl": [128] * 2, "step": [0] * 2}
    table(tmp_path, "h100_sxm/mla/sglang/1/context_mla_perf.parquet", prompt)
    found = operator_cases(tmp_path, Selection(frameworks=("trtllm",)))
    assert set(found.shapes()) == {"batch=4 heads=16 queries=1 keys=4096"}
    # By the data sheet: 4 new latents come in 2 bytes and are stored in as many, or in 1; then
    # queries, the latents of 4 x 4,096 keys and the output pass.
    rows = 4 * 576
    attention = [2 * 4 * 16 * (576 + 512) + size * 4 * 4096 * 576 for size in (2, 1)]
    stored = [4 * rows, 3 * rows]
    expected = [(a + s) / 3.35e12 for a, s in zip(attention, stored, strict=True)]
    assert predict(found, "roofline") == pytest.approx(expected)
    both = operator_cases(tmp_path, Selection(frameworks=("sglang", "trtllm")))
    assert np.isfinite(predict(both, "tiled")).all()


def test_products_with_the_latent_are_of_each_head(tmp_path: Path) -> None:
    columns = {
        "bmm_dtype": ["bfloat16"] * 2,
        "op_name": ["mla_gen_pre", "mla_gen_post"],
        "num_tokens": [8192] * 2,
        "num_heads": [128] * 2,
        "latency": [0.5] * 2,
    }
    table(tmp_path, "h100_sxm/mla_bmm/vllm/1/mla_bmm_perf.parquet", columns)
    found = operator_cases(tmp_path)
    assert found.shapes() == [
        "tokens=8192 heads=128 N=512 K=128", "tokens=8192 heads=128 N=128 K=512",
    ]  # fmt: skip
    # By the data sheet, and 1.1 us between two replays of a graph.
    num_bytes = 2 * 128 * (8192 * 128 + 128 * 512 + 8192 * 512)
    assert predict(found, "roofline") == pytest.approx([num_bytes / 3.35e12 + 1.1e-6] * 2)


def test_the_host_hands_over_no_graph_in_less_than_its_time(tmp_path: Path) -> None:
    columns = {
        "bmm_dtype": ["bfloat16"] * 2,
        "op_name": ["mla_gen_pre"] * 2,
        "num_tokens": [1, 8192],
        "num_heads": [1, 128],
        "latency": [0.004, 0.5],
    }
    table(tmp_path, "h100_sxm/mla_bmm/vllm/1/mla_bmm_perf.parquet", columns)
    table(tmp_path, "a100_sxm/mla_bmm/trtllm/1.0.0/mla_bmm_perf.parquet", columns)
    new, old = (
        predict(operator_cases(tmp_path, Selection(systems=(each,), frameworks=())), "tiled")
        for each in ("h100_sxm", "a100_sxm")
    )
    # One row of one head takes 4.2 us, 5.8 of versions that were measured before.
    assert (new[0], old[0]) == (4.2e-6, 5.8e-6)
    # What takes longer than that takes as long, and 1.1 us to the next.
    product = GroupedMatMul(
        "x", 128, 8192 * 128, 512, 128, 2, dtype="bf16", loads=((128, 8192),), output_size=2
    )
    alone = COST_MODELS["tiled"].price(product, Target(paleo.find_device("H100_SXM"), "bf16")).total
    assert new[1] == pytest.approx(alone + 1.1e-6)


def test_differences_that_are_none_are_left_out(tmp_path: Path) -> None:
    columns = {"quant_dtype": ["fp8"] * 2, "m": [16, 4096], "k": [4096] * 2}
    both = columns | {"latency": [0.0, 0.03]}
    table(tmp_path, "h100_sxm/quantize/trtllm/1/computescale_perf.parquet", both)
    table(tmp_path, "h100_sxm/quantize/sglang/1/computescale_perf.parquet", both)
    for framework in ("trtllm", "sglang", "vllm"):
        place = f"h100_sxm/quantize/{framework}/1/scale_matrix_perf.parquet"
        table(tmp_path, place, columns | {"latency": [0.002, 0.02]})
    found = operator_cases(tmp_path, Selection(frameworks=("trtllm", "sglang", "vllm")))
    counts = sorted((each.reason, each.count) for each in found.unpredicted)
    assert counts == [
        ("computescale of sglang is not modelled", 1),
        *[("computescale: a difference that is not above 0", 1)] * 2,
    ]
    predicted = predict(found, "tiled")
    assert (predicted > 0).all()
    # What finds a scale takes longer than what knows it by the difference.
    difference = predicted[found.labels["operator"] == "computescale"]
    assert len(difference) == 1
