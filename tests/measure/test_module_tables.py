"""Tables of linear attention and of whole modules of attention, made here in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from validation import reasons

from paleo.core.operations import Attention, GroupedMatMul, MatMul
from paleo.core.quantization import Quantize
from paleo.core.scanning import DeltaRule, ShortConvolution
from paleo.core.selection import IndexScores, Select, SelectedAttention
from paleo.measure.validate import operator_cases, predict

parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow")
pyarrow = pytest.importorskip("pyarrow", reason="needs pyarrow")


def table(root: Path, place: str, columns: dict[str, Any]) -> Any:
    """Return the cases of one table that is written at a place."""
    path = root / "systems" / "data" / place
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.table(columns), path)
    return operator_cases(path)


def operations(cases: Any) -> list[tuple[Any, ...]]:
    """Return the operations of each part."""
    return [part.make(part.letters) for part in cases.parts]


def of(kind: type, found: tuple[Any, ...]) -> Any:
    """Return the only operation of a kind."""
    (only,) = [each for each in found if isinstance(each, kind)]
    return only


DELTA: dict[str, Any] = {
    "kernel_source": ["causal_conv1d_fn", "chunk_gated_delta_rule", "somebody_else"],
    "phase": ["context"] * 3,
    "batch_size": [2] * 3,
    "seq_len": [100] * 3,
    "d_conv": [4] * 3,
    "num_k_heads": [4] * 3,
    "head_k_dim": [128] * 3,
    "num_v_heads": [8] * 3,
    "head_v_dim": [64] * 3,
    "latency": [0.004, 0.05, 0.05],
}


def test_linear_attention_is_read_kernel_by_kernel(tmp_path: Path) -> None:
    found = table(tmp_path, "h100_sxm/linear/sglang/0.5.14/gdn_perf.parquet", DELTA)
    assert reasons(found) == {"gdn by somebody_else is not modelled": 1}
    assert set(found.labels["precision"]) == {"bfloat16"}
    convolution, rule = (of(object, each) for each in operations(found))
    assert isinstance(convolution, ShortConvolution)
    # Queries, keys and values: 2 x 4 x 128 and 8 x 64 channels.
    assert np.asarray(convolution.channels).tolist() == [1536]
    assert isinstance(rule, DeltaRule)
    assert (rule.kernel, rule.read_size, np.asarray(rule.value_depth).tolist()) == (
        "fla_delta",
        4,
        [64],
    )
    # TensorRT-LLM's convolution is of the keys alone, and its prompts begin without a state.
    other = table(tmp_path, "h100_sxm/linear/trtllm/1/gdn_perf.parquet", DELTA)
    convolution, rule = (of(object, each) for each in operations(other))
    assert (convolution.kernel, np.asarray(convolution.channels).tolist()) == ("conv_cuda", [512])
    assert (rule.kernel, rule.read_size) == ("trtllm_delta", 0)
    for cases in (found, other):
        assert np.isfinite(predict(cases, "tiled")).all()
    # By the data sheet: 200 tokens of 1,536 channels come and go, and 3 positions of each sequence.
    num_bytes = 2 * 2 * 200 * 1536 + 2 * 2 * 1536 * 3
    assert predict(found, "roofline")[0] == pytest.approx(num_bytes / 3.35e12)


def test_convolutions_that_the_host_was_timed_of_are_left_out(tmp_path: Path) -> None:
    names = ["causal_conv1d_fn_qkv3", "flashkda_fwd", "flashkda_fwd"]
    columns = DELTA | {"kernel_source": names}
    found = table(tmp_path, "h100_sxm/kda/vllm/1/kda_perf.parquet", columns)
    assert reasons(found) == {"kda: convolutions of vLLM, whose host was timed": 1}
    rule = of(DeltaRule, operations(found)[0])
    assert rule.by_feature
    assert rule.kernel == "flash_kda"


def test_convolutions_of_mamba_have_channels_of_states(tmp_path: Path) -> None:
    columns = {key: DELTA[key][:1] for key in ("kernel_source", "phase", "batch_size", "seq_len")}
    columns |= {"d_conv": [4], "latency": [0.01], "nheads": [64], "head_dim": [64]}
    columns |= {"n_groups": [8], "d_state": [128]}
    found = table(tmp_path, "h100_sxm/linear/trtllm/1/mamba2_perf.parquet", columns)
    convolution = of(ShortConvolution, operations(found)[0])
    assert convolution.channels.tolist() == [64 * 64 + 2 * 8 * 128]


MODULE = {
    "kernel_source": ["compressed_flashmla"] * 2,
    "model": ["DeepSeek-V4-Flash"] * 2,
    "gemm_type": ["bfloat16", "fp8_block"],
    "kv_cache_dtype": ["fp8"] * 2,
    "num_heads": [16] * 2,
    "batch_size": [4] * 2,
    "isl": [63] * 2,
    "step": [9968] * 2,
    "latency": [0.5] * 2,
}


def test_modules_of_compressed_attention_are_composed(tmp_path: Path) -> None:
    place = "h100_sxm/sparse/sglang/1/{}_perf.parquet"
    found = table(tmp_path, place.format("dsv4_csa_context_module"), MODULE)
    wide, narrow = operations(found)
    # 252 tokens; 16 of 64 heads have 2 of 8 groups of the output.
    products = [(each.n, each.k) for each in wide if isinstance(each, MatMul)]
    assert [(int(np.max(n)), int(np.max(k))) for n, k in products] == [
        (1024 + 512, 4096), (16 * 512, 1024), (2 * 2 * 512, 4096), (64 * 128, 1024),
        (4 * 128, 4096), (64, 4096), (4096, 2 * 1024),
    ]  # fmt: skip
    # A query sees 9,968 keys and 32 of its own on average: 2,500 of four, of which 512 are chosen.
    scores, best = of(IndexScores, wide), of(Select, wide)
    assert (scores.keys.tolist(), scores.queries.tolist()) == ([2500], [252])
    assert (best.scores.tolist(), best.chosen) == ([2500], 512)
    assert of(SelectedAttention, wide).keys.tolist() == [128 + 512]
    kernels = [each.kernel for each in narrow if isinstance(each, MatMul)]
    assert kernels == ["deepgemm", "deepgemm", "", "deepgemm", "", "", "deepgemm"]
    other = table(tmp_path, place.format("dsv4_hca_context_module"), MODULE)
    wide, _ = operations(other)
    assert not [each for each in wide if isinstance(each, IndexScores)]
    # All of 10,000 / 128 keys of 128 positions.
    assert of(SelectedAttention, wide).keys.tolist() == [128 + 10_000 / 128]
    for cases in (found, other):
        assert np.isfinite(predict(cases, "tiled")).all()


def test_modules_of_a_graphics_card_are_left_out(tmp_path: Path) -> None:
    place = "rtx_pro_6000_server/sparse/sglang/1/dsv4_csa_context_module_perf.parquet"
    found = table(tmp_path, place, MODULE)
    assert len(found) == 0
    assert reasons(found) == {"dsv4_csa_context_module on Blackwell RTX is not modelled": 2}


DSA = MODULE | {
    "kernel_source": ["sglang_dsa_indexer_flashmla_sparse", "sglang_dsa_dense_mha_fa3"],
    "model": ["zai-org/GLM-5"] * 2,
    "gemm_type": ["bfloat16"] * 2,
    "kv_cache_dtype": ["bfloat16"] * 2,
    "isl": [4095, 512],
    "batch_size": [1, 1],
    "step": [2048, 512],
}


def test_prompts_attend_to_what_an_indexer_selects_or_to_all(tmp_path: Path) -> None:
    place = "h100_sxm/sparse/sglang/1/dsa_context_module_perf.parquet"
    found = table(tmp_path, place, DSA)
    by_kernel = {part.make.keywords["call"].kernel: part for part in found.parts}
    part = by_kernel["dsa_sglang_flashmla_sparse"]
    selected = of(SelectedAttention, part.make(part.letters))
    # 16 heads fill up to 64; queries see 4,096 keys on average, of which 2,048 are chosen.
    assert (selected.heads.tolist(), selected.keys.tolist()) == ([64], [2048])
    assert of(IndexScores, part.make(part.letters)).keys.tolist() == [4096]
    dense = by_kernel["fa3_prefill"]
    attention = of(Attention, dense.make(dense.letters))
    # Keys of 192 + 64 features, values of 256; 1,024 keys.
    assert (attention.depth, attention.value_depth) == (256, 256)
    assert attention.keys.tolist() == [1024]
    # The host takes longer than a short prompt: as long as it was found to on the H100.
    short = table(tmp_path, place, DSA | {"isl": [4, 4]})
    assert sorted(predict(short, "tiled").tolist()) == pytest.approx([515e-6, 1065e-6])
    grace = table(tmp_path, place.replace("h100_sxm", "gb200"), DSA | {"isl": [4, 4]})
    assert sorted(predict(grace, "tiled").tolist()) == pytest.approx([1.8 * 515e-6, 1.65 * 1065e-6])


def test_what_a_host_does_more_of_is_left_out(tmp_path: Path) -> None:
    place = "h100_sxm/sparse/sglang/1/dsa_context_module_perf.parquet"
    columns = DSA | {"batch_size": [64, 1], "isl": [128, 128], "step": [4096, 131072]}
    found = table(tmp_path, place, columns)
    # 8,192 queries by 64 x 4,224 keys of 4 bytes are 8.9 GB.
    assert reasons(found) == {
        "dsa_context_module: scores that are computed in parts": 1,
        "dsa_context_module: behind so many positions the host does more": 1,
    }


def test_modules_of_latent_attention_have_all_their_projections(tmp_path: Path) -> None:
    columns = MODULE | {
        "kernel_source": ["default"] * 2, "model": ["deepseek-ai/DeepSeek-V3"] * 2,
        "isl": [1] * 2, "step": [1023] * 2,
    }  # fmt: skip
    place = "h100_sxm/mla/trtllm/1/mla_generation_module_perf.parquet"
    wide, _ = operations(table(tmp_path, place, columns))
    products = [
        (int(np.max(each.n)), int(np.max(each.k))) for each in wide if isinstance(each, MatMul)
    ]
    assert products == [(1536 + 576, 7168), (16 * 192, 1536), (7168, 16 * 128)]
    attention = of(Attention, wide)
    assert (attention.kernel, attention.keys.tolist()) == ("flash_mla", [1024])
    prompt = table(
        tmp_path,
        place.replace("generation", "context"),
        columns | {"isl": [64] * 2, "step": [0] * 2},
    )
    wide, _ = operations(prompt)
    # Keys and values of 256 rows of latents: 16 heads of 128 + 128 features.
    products = [
        (int(np.max(each.n)), int(np.max(each.k))) for each in wide if isinstance(each, MatMul)
    ]
    assert (16 * 256, 512) in products
    assert of(Attention, wide).kernel == "trtllm_fmha_mla"
    assert np.isfinite(predict(prompt, "tiled")).all()


def test_products_of_four_bits_are_quantized_as_the_framework_does(tmp_path: Path) -> None:
    columns = MODULE | {
        "kernel_source": ["default"] * 2, "model": ["deepseek-ai/DeepSeek-V3"] * 2,
        "gemm_type": ["nvfp4"] * 2, "isl": [1] * 2, "step": [1023] * 2,
    }  # fmt: skip
    for framework, method in (("trtllm", "tensor_trtllm"), ("vllm", "group")):
        place = f"b200_sxm/mla/{framework}/1/mla_generation_module_perf.parquet"
        (own,) = operations(table(tmp_path, place, columns))
        quantized = [each for each in own if isinstance(each, Quantize)]
        assert {(each.method, each.element_size) for each in quantized} == {(method, 0.5)}
        products = [each for each in own if isinstance(each, GroupedMatMul)]
        assert [int(np.max(each.n)) for each in products] == [1536 + 576, 16 * 192, 7168]
        # Weights of half a byte with a scale of one for 16, read once.
        assert np.asarray(products[2].reads[1]).tolist() == [7168 * 16 * 128 * (0.5 + 1 / 16)] * 2
        assert np.isfinite(predict(table(tmp_path, place, columns), "tiled")).all()


def test_norms_that_ran_operation_by_operation_are_so_many_kernels(tmp_path: Path) -> None:
    columns = MODULE | {
        "kernel_source": ["FLASHMLA"] * 2, "model": ["deepseek-ai/DeepSeek-V3"] * 2,
        "isl": [1] * 2, "step": [1023] * 2,
    }  # fmt: skip
    place = "h100_sxm/mla/vllm/0.24.0/mla_generation_module_perf.parquet"
    folder = (tmp_path / "systems" / "data" / place).parent
    plain = table(tmp_path, place, columns)
    counts = []
    for notes in ("status: complete", "norm_dispatch: vllm_c_eager_surrogate"):
        (folder / "collection_meta.yaml").write_text(notes, encoding="utf-8")
        wide, _ = operations(table(tmp_path, place, columns))
        counts.append(len(wide))
    # Two norms of six passes over elements and two over tokens, where it was one kernel.
    assert counts == [counts[1] + 2 * 8 - 1, len(operations(plain)[0])]


def test_groups_of_heads_select_blocks_of_keys(tmp_path: Path) -> None:
    columns = MODULE | {
        "kernel_source": ["MiniMaxM3SparseTritonImpl"] * 2, "gemm_type": ["bfloat16", "int4"],
        "num_heads": [32] * 2,
    }  # fmt: skip
    place = "h100_sxm/msa/vllm/1/msa_context_module_perf.parquet"
    found = table(tmp_path, place, columns)
    assert sum(reasons(found).values()) == 1
    (own,) = operations(found)
    # 32 heads are two groups of 16; 252 tokens; 10,000 keys are 78.125 blocks, of which 16 count.
    best, selected = of(Select, own), of(SelectedAttention, own)
    assert (best.rows.tolist(), best.scores.tolist(), best.chosen) == ([504], [78.125], 16)
    assert (selected.queries.tolist(), selected.heads.tolist()) == ([504], [16])
    assert selected.keys.tolist() == [2048]
    # Keys and values of 1 byte each.
    assert selected.key_size == 2
    assert np.isfinite(predict(found, "tiled")).all()
