"""Operator tables: Parquet files of measured operators, made here in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from validation import call, hide, reasons

import paleo
from paleo.measure.validate import Selection, operator_cases, predict, validate
from paleo.measure.validate.shapes import OPERATORS

parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow")
pyarrow = pytest.importorskip("pyarrow", reason="needs pyarrow")

GEMM = {
    "gemm_dtype": ["bfloat16", "bfloat16", "fp8", "fp8_block"],
    "m": [1, 256, 256, 256],
    "n": [4096, 4096, 4096, 4096],
    "k": [4096, 4096, 4096, 4096],
    "latency": [0.02, 0.03, 0.02, 0.02],
}
ATTENTION: dict[str, list[Any]] = {
    "batch_size": [2, 2, 2, 2],
    "isl": [128, 128, 128, 128],
    "num_heads": [32, 32, 32, 7],
    "num_key_value_heads": [8, 8, 8, 2],
    "head_dim": [64, 128, 128, 128],
    "attn_dtype": ["bfloat16"] * 4,
    "kv_cache_dtype": ["bfloat16"] * 4,
    "step": [0] * 4,
    "window_size": [0, 0, 64, 0],
    "latency": [0.03, 0.03, 0.03, 0.03],
}


def table(root: Path, place: str, columns: dict[str, Any]) -> Path:
    path = root / "systems" / "data" / place
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.table(columns), path)
    return path


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    table(tmp_path, "h100_sxm/gemm/sglang/0.5.9/gemm_perf.parquet", GEMM | {"m": [7] * 4})
    table(tmp_path, "h100_sxm/gemm/sglang/0.5.14/gemm_perf.parquet", GEMM)
    table(tmp_path, "h100_sxm/gemm/vllm/0.24.0/gemm_perf.parquet", GEMM)
    table(tmp_path, "h100_sxm/attention/sglang/0.5.14/context_attention_perf.parquet", ATTENTION)
    table(tmp_path, "h100_sxm/mhc/sglang/0.5.14/mhc_perf.parquet", {"latency": [1.0, 2.0]})
    table(tmp_path, "a100_sxm/gemm/sglang/0.5.10/gemm_perf.parquet", GEMM)
    table(tmp_path, "b99/gemm/sglang/0.5.10/gemm_perf.parquet", GEMM)
    return tmp_path


def test_rows_become_cases_of_their_system(tables: Path) -> None:
    found = operator_cases(tables, Selection(systems=("h100_sxm",), operators=("gemm",)))
    assert found.ids.tolist() == [f"h100_sxm/sglang/0.5.14/gemm:{row}" for row in range(3)]
    assert found.measured == pytest.approx([20e-6, 30e-6, 20e-6])
    assert found.labels["dtype"].tolist() == ["bf16", "bf16", "fp8"]
    assert found.labels["stratum"].tolist() == ["gemm bf16", "gemm bf16", "gemm fp8"]
    assert set(found.labels["device"]) == {"H100_SXM"}
    assert set(found.labels["library_version"]) == {"0.5.14"}
    shapes = [f"M={m} N=4096 K=4096" for m in (1, 256, 256)]
    assert found.shapes() == [*shapes[:2], f"{shapes[2]} backend=sglang"]
    assert reasons(found) == {"gemm in fp8_block is not modelled": 1}
    # By the data sheet of the registry: the first is bound by memory, the weights and two rows.
    # The last reads its input as 2 bytes an element and writes 1, before it reads that and the
    # weights and writes 2.
    device = paleo.find_device("H100_SXM")
    first = 2 * (4096 * 4096 + 2 * 4096) / device.memory_bandwidth
    last = (4096 * 4096 + 256 * 4096 + 2 * 256 * 4096) / device.memory_bandwidth
    last = max(last, 2 * 256 * 4096 * 4096 / device.peak("fp8"))
    last += 3 * 256 * 4096 / device.memory_bandwidth
    assert predict(found, "roofline")[[0, 2]] == pytest.approx([first, last])


def test_tables_and_rows_that_are_not_modelled_are_counted(tables: Path) -> None:
    found = operator_cases(tables)
    said = reasons(found)
    assert said["operator table 'mhc' is not modelled"] == 2
    (b99,) = [reason for reason in said if reason.startswith("unknown device 'b99'")]
    assert said[b99] == 3  # what is left of it
    assert said["context_attention: heads that do not share keys evenly"] == 1
    assert sum(1 for each in found.labels["source"] if each == "a100_sxm") == 2
    (fp8,) = [reason for reason in said if "has no peak for fp8" in reason]
    assert fp8.startswith("device A100_SXM_80GB")


def test_selections_pick_tables_and_rows(tables: Path) -> None:
    def versions(**selection: Any) -> set[tuple[str, str]]:
        found = operator_cases(tables, Selection(systems=("h100_sxm",), **selection))
        labels = found.labels
        return set(zip(labels["framework"], labels["library_version"], strict=True))

    assert versions() == {("sglang", "0.5.14")}
    assert versions(frameworks=("vllm",)) == {("vllm", "0.24.0")}
    assert versions(versions=("0.5.9",)) == {("sglang", "0.5.9")}
    fp8 = operator_cases(tables, Selection(systems=("h100_sxm",), dtypes=("fp8",)))
    assert fp8.labels["dtype"].tolist() == ["fp8"]
    with pytest.raises(paleo.PaleoError) as caught:
        operator_cases(tables, Selection(systems=("h10_sxm",), operators=("gem",), dtypes=("fp4",)))
    assert [str(mistake) for mistake in caught.value.mistakes] == [
        "system: there are no operator tables of 'h10_sxm' (did you mean 'h100_sxm'?)",
        "operator: there are no operator tables of 'gem' (did you mean 'gemm'?)",
        (
            "dtype: no operator tables of 'fp4' are modelled; there are: bf16, fp16, fp8, "
            "fp8_block, int4_wo, nvfp4, w4a16_mxfp4, w4a8_mxfp4_mxfp8"
        ),
    ]
    with pytest.raises(paleo.PaleoError, match="no operator table has all that was selected"):
        operator_cases(tables, Selection(systems=("b99",), versions=("0.5.14",)))


def test_a_sample_is_spread_over_a_table_and_keeps_the_numbers_of_its_rows(tables: Path) -> None:
    def rows(sample: int) -> list[str]:
        chosen = Selection(systems=("h100_sxm",), operators=("gemm",), sample=sample)
        return [each.partition(":")[2] for each in operator_cases(tables, chosen).ids.tolist()]

    # Of four rows the last is not modelled.
    assert rows(2) == ["0", "2"]
    assert rows(3) == ["0", "1", "2"]
    assert rows(9) == rows(0) == ["0", "1", "2"]
    file = tables / "systems/data/h100_sxm/gemm/sglang/0.5.14/gemm_perf.parquet"
    parquet.write_table(pyarrow.table(GEMM | {"latency": [1.0, 1.0, -1.0, 1.0]}), file)
    with pytest.raises(paleo.PaleoError, match="in 1 rows, the first of them row 2: -1"):
        operator_cases(file, Selection(sample=2))


def test_any_folder_above_a_file_or_an_installed_package_will_do(
    tables: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = Selection(systems=("h100_sxm",), operators=("gemm",))
    expected = operator_cases(tables, chosen).ids.tolist()
    for place in ("systems", "systems/data", "systems/data/h100_sxm", "systems/data/h100_sxm/gemm"):
        assert operator_cases(tables / place, chosen).ids.tolist() == expected
    file = tables / "systems/data/h100_sxm/gemm/sglang/0.5.14/gemm_perf.parquet"
    assert operator_cases(file).ids.tolist() == expected
    # A package of that name, which is not run.
    site = tmp_path_factory.mktemp("site")
    (site / "some_tables").mkdir()
    (site / "some_tables" / "__init__.py").write_text("raise AssertionError\n")
    (tables / "systems").rename(site / "some_tables" / "systems")
    monkeypatch.syspath_prepend(site)
    monkeypatch.chdir(site.parent)
    assert operator_cases("some-tables", chosen).ids.tolist() == expected


def test_a_file_elsewhere_says_itself_what_it_is_of(tmp_path: Path) -> None:
    path = tmp_path / "gemm_perf.parquet"
    own = {"device": ["NVIDIA L40S"] * 4, "framework": ["SGLang"] * 4, "version": ["1"] * 4}
    parquet.write_table(pyarrow.table(GEMM | own), path)
    found = operator_cases(path)
    assert list(found.devices) == ["L40S"]
    assert set(found.labels["framework"]) == {"sglang"}


def test_attention_has_the_letters_of_its_columns(tmp_path: Path) -> None:
    table(tmp_path, "h100_sxm/attention/x/1/context_attention_perf.parquet", ATTENTION)
    decode = ATTENTION | {"isl": [1] * 4, "step": [1000] * 4, "kv_cache_dtype": ["fp8"] * 4}
    table(tmp_path, "h100_sxm/attention/x/1/generation_attention_perf.parquet", decode)
    found = operator_cases(tmp_path)
    assert reasons(found) == {
        "context_attention: heads that do not share keys evenly": 1,
        "generation_attention: heads that do not share keys evenly": 1,
    }
    own = found.where(operator="context_attention").shapes()
    heads = "batch=2 heads=32 kv_heads=8"
    assert own[1] == f"{heads} head_dim=128 stored=1 kernels=1 queries=128"
    assert "window=64" in own[2]
    own = found.where(operator="generation_attention").shapes()
    # The new key is one of those that are seen.
    expected = f"{heads} head_dim=64 kv_bytes=1 stored=1 cast=1 kernels=1 queries=1 keys=1001"
    assert own[0] == expected
    assert np.isfinite(predict(found, "tiled")).all()


@pytest.mark.parametrize(
    ("framework", "source", "expected"),
    [
        ("sglang", "triton", "triton_extend_sm90"),
        ("vllm", "vllm_triton_attn", 0),  # nothing is known of it on Hopper
        ("vllm", "vllm_flash_attn_fa3", "fa3_prefill"),
        ("vllm", "vllm_flash_attn_fa4", 0),
        ("trtllm", "torch_flow", "trtllm_fmha"),
        ("someone", "", 0),
        ("someone", "fa3", "fa3_prefill"),
    ],
)
def test_the_kernel_of_attention_is_that_of_the_row(
    framework: str, source: str, expected: str | int, tmp_path: Path
) -> None:
    place = f"h100_sxm/attention/{framework}/1/context_attention_perf.parquet"
    table(tmp_path, place, ATTENTION | {"kernel_source": [source] * 4})
    found = operator_cases(tmp_path, Selection(frameworks=(framework,)))
    assert {part.letters["kernel"] for part in found.parts} == {expected}  # type: ignore[attr-defined]


def test_heads_that_share_too_many_keys_fall_back(tmp_path: Path) -> None:
    many = ATTENTION | {"isl": [1] * 4, "step": [9] * 4, "num_heads": [8, 64, 64, 64]}
    many |= {"num_key_value_heads": [8, 8, 2, 1], "kernel_source": ["torch_flow"] * 4}
    table(tmp_path, "h100_sxm/attention/trtllm/1/generation_attention_perf.parquet", many)
    found = operator_cases(tmp_path, Selection(frameworks=("trtllm",)))
    kernels = [""] * 4
    for part in found.parts:
        for place in part.index.tolist():
            kernels[place] = part.letters["kernel"]  # type: ignore[attr-defined]
    assert kernels == [*["trtllm_xqa"] * 3, "trtllm_mmha"]


@pytest.mark.parametrize(
    ("framework", "context", "generation"),
    [
        (
            "sglang", "kernel=fa3_prefill stored=1 kernels=2",
            "kernel=fa3_decode stored=1 kernels=3",
        ),
        (
            "vllm", "kernel=fa3_prefill stored=1 kernels=3",
            "kernel=fa3_decode_vllm stored=1 kernels=4",
        ),
        (
            "trtllm", "kernel=trtllm_fmha rotated=1 kernels=3",
            "kernel=trtllm_xqa stored=1 kernels=3",
        ),
    ],
)  # fmt: skip
def test_a_latency_covers_what_its_framework_does(
    framework: str, context: str, generation: str, tmp_path: Path
) -> None:
    folder = f"h100_sxm/attention/{framework}/1"
    one = {name: values[1:2] for name, values in ATTENTION.items()}
    table(tmp_path, f"{folder}/context_attention_perf.parquet", one)
    later = one | {"isl": [1], "step": [7]}
    table(tmp_path, f"{folder}/generation_attention_perf.parquet", later)
    found = operator_cases(tmp_path, Selection(frameworks=(framework,)))
    heads = "batch=2 heads=32 kv_heads=8 head_dim=128"
    assert sorted(found.shapes()) == sorted(
        [f"{heads} {context} queries=128", f"{heads} {generation} queries=1 keys=8"]
    )


@pytest.mark.parametrize(
    ("columns", "mistake"),
    [
        ({"latency": [0.0, 1, 1, 1]}, "column latency: expected a number above 0 in 1 rows"),
        ({"latency": [1, -1, np.nan, 1]}, "column latency: expected a number above 0 in 2 rows"),
        ({"m": [0, 1, 1, 1]}, "column m: expected a whole number above 0 in 1 rows"),
        ({"k": [1.5, 1, 1, 1]}, "column k: expected a whole number above 0 in 1 rows"),
        ({"n": ["a"] * 4}, "column n: expected numbers"),
        ({"gemm_dtype": [1] * 4}, "column gemm_dtype: expected texts"),
    ],
)
def test_impossible_rows_are_mistakes(
    columns: dict[str, Any], mistake: str, tmp_path: Path
) -> None:
    path = table(tmp_path, "h100_sxm/gemm/x/1/gemm_perf.parquet", GEMM | columns)
    with pytest.raises(paleo.PaleoError) as caught:
        operator_cases(path)
    assert mistake in str(caught.value)
    assert str(path) in str(caught.value)


def test_what_is_no_table_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(paleo.PaleoError, match="no such file or folder, and no such package"):
        operator_cases(tmp_path / "none")
    with pytest.raises(paleo.PaleoError, match="there are no Parquet files in it"):
        operator_cases(tmp_path)
    path = tmp_path / "gemm_perf.parquet"
    path.write_bytes(b"nothing")
    with pytest.raises(paleo.PaleoError, match="not a Parquet file"):
        operator_cases(path)
    parquet.write_table(pyarrow.table({"m": [1], "latency": [1.0]}), path)
    with pytest.raises(paleo.PaleoError, match="no column n, k, gemm_dtype"):
        operator_cases(path)


def test_files_and_tables_are_validated_together(tables: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(
        'quantity,value,network,op_shape,device\nop_ms,0.1,op:gemm,"{""M"":9,""N"":9,""K"":9}",T4\n'
    )
    report = validate(path, tables, by="source")
    assert [group.labels["source"] for group in report.groups] == ["a100_sxm", "h100_sxm", "mine"]
    text = call(f"--operators={tables}", "--system=h100_sxm", "--operator=gemm", "-q").stdout
    assert text.startswith("3 rows predicted by tiled\n")


def test_without_pyarrow_the_extra_is_named(tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "pyarrow")
    result = call(f"--operators={tables}", "--operator=gemm", status=1)
    said = 'reading operator tables needs pyarrow; install it with: pip install "paleo[validate]"'
    assert result.stderr == f"paleo: {said}\n"


def test_keys_of_one_byte_are_widened_where_the_backend_does_so(tmp_path: Path) -> None:
    narrow = ATTENTION | {"kv_cache_dtype": ["fp8"] * 4}
    narrow |= {"kernel_source": ["vllm_flashinfer_trtllmprefill"] * 4}
    for framework in ("vllm", "sglang"):
        place = f"b200_sxm/attention/{framework}/1/context_attention_perf.parquet"
        table(tmp_path, place, narrow)
    for framework, widened in (("vllm", 1), ("sglang", 0)):
        found = operator_cases(tmp_path, Selection(frameworks=(framework,)))
        assert {part.letters["widened"] for part in found.parts} == {widened}  # type: ignore[attr-defined]
    # 2 samples of 128 keys, 8 heads, 64 + 64 features: 1 byte read and 2 written of each.
    shape = {"batch": 2, "heads": 32, "window": 0, "kv_bytes": 1, "causal": 1, "kernel": 0}
    letters = dict.fromkeys(OPERATORS["attention"].letters, 0) | shape | {"widened": 1}
    letters |= {"kv_heads": 8, "queries": 128, "keys": 128, "head_dim": 64, "value_dim": 64}
    operations = OPERATORS["attention"].make(letters, "forward", "bf16")
    (widen,) = (each for each in operations if each.name == "widen")
    elements = 2 * 8 * 128 * (64 + 64)
    assert (widen.reads, widen.writes) == ((elements,), (2 * elements,))
    # The kernel then reads 2 bytes.
    assert operations[-1].reads[1] == 2 * elements // 2


def test_products_with_scales_of_blocks_are_those_of_the_kernel_that_is_known(
    tmp_path: Path,
) -> None:
    sources = ["", "", "sglang_sgl_kernel_fp8_scaled_mm", "sglang_deepgemm_gemm_nt_f8f8bf16"]
    rows = GEMM | {"kernel_source": sources}
    table(tmp_path, "h100_sxm/gemm/sglang/1/gemm_perf.parquet", rows)
    table(tmp_path, "h100_sxm/gemm/vllm/1/gemm_perf.parquet", rows)
    found = operator_cases(tmp_path)
    assert found.shapes()[3] == "M=256 N=4096 K=4096 backend=sglang blocks=1"
    assert found.labels["stratum"].tolist()[2:] == ["gemm fp8", "gemm fp8_block"]
    assert found.labels["dtype"].tolist()[2:] == ["fp8", "fp8"]
    # Asked for one of the two types, there is no other.
    for dtype in ("fp8", "fp8_block"):
        chosen = operator_cases(tmp_path, Selection(dtypes=(dtype,)))
        assert chosen.labels["precision"].tolist() == [dtype]
    # What vLLM launches around it is not known.
    vllm = operator_cases(tmp_path, Selection(frameworks=("vllm",)))
    assert reasons(vllm) == {"gemm in fp8_block is not modelled": 1}


@pytest.mark.parametrize(
    ("system", "source", "expected"),
    [
        ("b200_sxm", "vllm_vit_flash_attn_fa4", "fa4_prefill"),
        ("b200_sxm", "flash_attention_v3", 0),  # not measured there
        ("h100_sxm", "flash_attention_v3", "fa3_prefill"),
        # SGLang's kernel for encoders is another than that for prompts.
        ("l40s", "triton", "triton_encoder"),
        ("rtx_pro_6000_server", "triton", "triton_encoder"),
        ("b300_sxm", "triton", "triton_encoder"),
    ],
)
def test_encoders_are_computed_by_the_kernel_of_the_row(
    system: str, source: str, expected: str | int, tmp_path: Path
) -> None:
    names = ("batch_size", "isl", "num_heads", "head_dim", "attn_dtype", "latency")
    rows = {name: ATTENTION[name] for name in names} | {"kernel_source": [source] * 4}
    table(tmp_path, f"{system}/encoder_attention/sglang/1/encoder_attention_perf.parquet", rows)
    found = operator_cases(tmp_path)
    assert {part.letters["kernel"] for part in found.parts} == {expected}  # type: ignore[attr-defined]
    assert np.isfinite(predict(found, "tiled")).all()


def test_encoders_of_72_features_have_another_kernel_on_blackwell(tmp_path: Path) -> None:
    names = ("batch_size", "isl", "num_heads", "attn_dtype", "latency")
    rows = {name: ATTENTION[name] for name in names} | {"head_dim": [72, 72, 64, 80]}
    place = "b200_sxm/encoder_attention/trtllm/1/encoder_attention_perf.parquet"
    table(tmp_path, place, rows)
    found = operator_cases(tmp_path)
    kernels = {
        (part.letters["head_dim"][0], part.letters["kernel"])  # type: ignore[attr-defined]
        for part in found.parts
    }
    assert {name for size, name in kernels if size == 72} == {"trtllm_fmha_sm80"}
    assert {name for size, name in kernels if size != 72} == {"trtllm_gen_context"}
