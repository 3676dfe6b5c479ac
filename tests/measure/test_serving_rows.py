"""Rows of measured serving: what each says, by the files that they come in."""

from __future__ import annotations

import csv
import importlib.util
from collections import Counter
from pathlib import Path

import pytest
from served_points import DUMP, ONE

from paleo.core.errors import MeasurementError
from paleo.measure.validate.served_batches import (
    infersim_cases,
    read_llama_cpp,
    read_splitwise,
)
from paleo.measure.validate.served_samples import read_served
from paleo.measure.validate.serving_rows import Party, ServedRow, ServedRows

MEASURED = Path(__file__).parents[3] / "shared" / "measured"


def read(tmp_path: Path, *rows: dict[str, str]) -> ServedRows:
    path = tmp_path / "silicon_sample.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(ONE))
        writer.writeheader()
        writer.writerows({**ONE, "id": f"row {place}", **row} for place, row in enumerate(rows))
    return read_served(path)


def one(tmp_path: Path, **row: str) -> ServedRow:
    found = read(tmp_path, row)
    assert not found.left_out
    return found.rows[0]


def test_rows_of_more_requests_than_their_server_took_are_left_out(tmp_path: Path) -> None:
    row = {
        "silicon_data_source": "source_file=a.csv; silicon_concurrency=512; measured=2025-12-08T0",
        "backend": "vllm", "backend_version": "0.11.2", "model_path": "openai/gpt-oss-120b",
        "system": "h100_sxm", "precision": "fp4",
    }  # fmt: skip
    other = row | {"system": "h200_sxm"}
    found = read(tmp_path, row, other)
    assert [each.device for each in found.rows] == ["H200_SXM"]
    assert list(found.left_out) == [
        "more requests were sent than the server took, a number not stated"
    ]


def test_row_has_means_and_drawn_lengths(tmp_path: Path) -> None:
    row = one(tmp_path)
    assert (row.net, row.device, row.server, row.version) == (
        "deepseek_v3",
        "H200_SXM",
        "sglang",
        "0.5.9",
    )
    assert (row.ttft_s, row.tpot_s) == (0.5, 0.02)
    # From 0.8 of the lengths on: 0.9 of them on average.
    assert (row.mean_prompt, row.mean_output) == pytest.approx((7372.8, 921.6))
    assert row.requests == 640
    assert row.prefill == row.decode == Party(1, 8, 1, 1, 1, 8)
    assert row.devices == 8
    # dsr1_fp8_h200.sh names no format of the cache, and 256 requests for other lengths than 1k1k.
    assert row.formats == ("fp8_block", "fp8_block", "fp8_block", "bf16")
    assert (row.step_tokens, row.step_requests) == (32768, 256)


@pytest.mark.parametrize(
    ("row", "party"),
    [
        # In the later files the degree of experts stands in others, too.
        ({"tp_size": "64", "moe_tp_size": "8", "moe_ep_size": "8"}, Party(1, 8, 1, 1, 1, 8)),
        ({"tp_size": "16", "moe_tp_size": "4", "moe_ep_size": "4"}, Party(1, 4, 1, 1, 1, 4)),
        (
            {
                "backend": "trtllm",
                "tp_size": "1",
                "attention_dp_size": "64",
                "moe_tp_size": "8",
                "moe_ep_size": "8",
            },
            Party(1, 1, 1, 8, 1, 8),
        ),
        ({"tp_size": "4", "moe_tp_size": "4", "moe_ep_size": "1"}, Party(1, 4, 1, 1, 4, 1)),
        (
            {
                "backend": "vllm",
                "model_path": "moonshotai/Kimi-K2.5",
                "precision": "int4",
                "tp_size": "4",
                "attention_dp_size": "4",
                "moe_tp_size": "1",
                "moe_ep_size": "16",
            },
            Party(1, 4, 1, 1, 1, 4),
        ),
    ],
)
def test_degrees_of_later_files_are_those_that_were_set(
    tmp_path: Path, row: dict[str, str], party: Party
) -> None:
    assert one(tmp_path, silicon_data_source=DUMP, **row).prefill == party


def test_two_servers_are_understood_by_the_dump(tmp_path: Path) -> None:
    page = {
        "mode": "disagg",
        "backend": "trtllm",
        "prefill_tp_size": "4",
        "prefill_moe_ep_size": "4",
        "decode_tp_size": "8",
        "decode_moe_tp_size": "2",
        "decode_moe_ep_size": "4",
    }
    parties = {
        "silicon_data_source": DUMP,
        "prefill_num_workers": "1",
        "prefill_tp_size": "1",
        "prefill_pp_size": "1",
        "prefill_attention_dp_size": "4",
        "prefill_moe_tp_size": "1",
        "prefill_moe_ep_size": "4",
        "decode_num_workers": "5",
        "decode_tp_size": "8",
        "decode_pp_size": "1",
        "decode_attention_dp_size": "1",
        "decode_moe_tp_size": "1",
        "decode_moe_ep_size": "8",
    }
    found = read(tmp_path, page, {**page, **parties}, {**page, "silicon_tpot_ms": "21.0"})
    assert found.left_out == {
        "disaggregated: neither workers nor degrees of attention are stated": 1
    }
    for row in found.rows:
        assert row.prefill == Party(1, 1, 1, 4, 1, 4)
        assert row.decode == Party(5, 8, 1, 1, 1, 8)
        assert row.devices == 4 + 5 * 8
    assert [row.twins for row in found.rows] == [("row 1",), ("row 0",)]


def test_runs_with_drafts_are_told_by_their_day(tmp_path: Path) -> None:
    run = {"backend": "trtllm", "silicon_data_source": ONE["silicon_data_source"]}
    drafting = {**run, "silicon_data_source": "source_file=2026-03-25.csv; "
                "silicon_concurrency=64; measured=2026-01-14T00:00:00Z"}  # fmt: skip
    groups = {"tp_size": "1", "attention_dp_size": "8"}
    assert one(tmp_path, **run).drafts == 0
    assert one(tmp_path, **drafting).drafts == 3
    assert one(tmp_path, **drafting, **groups).drafts == 1


def test_own_rows_of_nvidia_have_exact_lengths(tmp_path: Path) -> None:
    own = {
        "silicon_data_source": "source_file=/data/h100_sxm/x.csv; silicon_concurrency=8",
        "backend": "trtllm",
        "backend_version": "1.0.0rc3",
        "model_path": "Qwen/Qwen3-32B",
        "precision": "",
        "batch_size": "8",
        "tp_size": "2",
        "attention_dp_size": "",
        "moe_tp_size": "1",
        "moe_ep_size": "1",
    }
    row = one(tmp_path, **own)
    assert (row.net, row.mean_prompt, row.prefill) == ("qwen3_32b", 8192, Party(1, 2))
    assert row.formats == ("bf16", "bf16", "", "bf16")
    assert (row.step_tokens, row.step_requests) == (None, None)
    left_out = read(tmp_path, {**own, "batch_size": "2"}).left_out
    assert left_out == {"several servers or groups of attention, of a number not stated": 1}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"silicon_data_source": "source_file=/x.csv"}, "no concurrency is stated"),
        ({"tp_size": "72", "moe_tp_size": "72"}, "one server of the devices of several nodes"),
        ({"precision": "int4"}, "deepseek-ai/DeepSeek-R1 in int4"),
        ({"moe_ep_size": "4"}, "experts on other devices than attention"),
    ],
)
def test_rows_that_are_not_understood_are_counted(
    tmp_path: Path, row: dict[str, str], reason: str
) -> None:
    if "72" in row.values():
        row = {**row, "moe_ep_size": "1"}
    assert read(tmp_path, row, row).left_out == {reason: 2}


def test_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.csv"
    path.write_text("id,isl\n1,2\n")
    with pytest.raises(MeasurementError, match="no table of served points: it lacks silicon_data"):
        read_served(path)
    with pytest.raises(MeasurementError, match="row 'row 0': unknown system 'K80'"):
        read(tmp_path, {"system": "K80"})


def test_installed_samples_are_read() -> None:
    found = importlib.util.find_spec("aiconfigurator_core")
    if found is None or found.origin is None:
        pytest.skip("needs aiconfigurator-core")
    rows = read_served(Path(found.origin).parent / "systems" / "silicon_sample.csv")
    assert len(rows.rows) + sum(rows.left_out.values()) == 5221
    by_name = {row.row_id: row for row in rows.rows}
    for row in rows.rows:
        for party in (row.prefill, row.decode):
            if row.formats.experts:
                assert party.moe_tp * party.moe_ep == party.tp * party.attention_dp
        # The same measurement is read alike, whatever the file.
        for name in row.twins:
            assert (by_name[name].prefill, by_name[name].drafts) == (row.prefill, row.drafts)
    kinds = Counter((row.mode, row.drafts > 0) for row in rows.rows)
    assert kinds["aggregated", False] == 3291


@pytest.mark.skipif(not MEASURED.is_dir(), reason="the published measurements are not there")
def test_published_batches_are_read() -> None:
    splitwise = read_splitwise(MEASURED / "splitwise.csv")
    assert (len(splitwise.rows), splitwise.left_out) == (76, {})
    first = splitwise.rows[0]
    assert (first.net, first.party, first.prompt, first.output) == (
        "bloom_176b",
        Party(tp=8),
        128,
        128,
    )
    assert (first.prefill_s, first.decode_s) == pytest.approx((0.0796684, 0.0476121))
    llama = read_llama_cpp(MEASURED / "xdai_llamacpp.csv")
    assert len(llama.rows) + sum(llama.left_out.values()) == 312
    assert {row.party.pp for row in llama.rows} == {1, 2, 4, 6}
    assert all((row.prefill_s is None) != (row.decode_s is None) for row in llama.rows)


def test_llama_cpp_has_tokens_after_none(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(
        "quantity,value,unit,network,device,seq_len,precision,n_devices,parallelism\n"
        "decode_tokens_per_s,50,tokens/s,llama3-8B-Q4_K_M,3090 24GB,512,Q4_K_M,1,\n"
        "prefill_tokens_per_s,1024,tokens/s,llama3-70B-F16,A40 48GB,4096,F16,4,layer split x4\n"
        "decode_tokens_per_s,50,tokens/s,llama3-8B-F16,A40 48GB,512,F16,2,\n"
        "decode_tokens_per_s,50,tokens/s,mistral-Q8_0,A40 48GB,512,Q8_0,1,\n"
    )
    found = read_llama_cpp(path)
    decode, prefill = found.rows
    assert (decode.prompt, decode.output, decode.decode_s) == (0, 512, 0.02)
    assert decode.formats == ("q4_k_m", "q4_k_m", "", "fp16")
    assert (prefill.net, prefill.prompt, prefill.prefill_s) == ("llama3_70b", 4096, 4.0)
    assert prefill.party == Party(pp=4)
    assert found.left_out == {
        "several devices that do not divide layers": 1,
        "no net of llama.cpp: mistral-Q8_0": 1,
    }


def test_infersim_counts_tokens_a_device() -> None:
    cases = {case.row_id: case for case in infersim_cases()}
    assert len(cases) == 6
    prefill = cases["infersim:deepseek_v3:prefill"]
    # 16,384 tokens a device at 7,839 a second.
    assert prefill.prefill_s == pytest.approx(16384 / 7839)
    decode = cases["infersim:qwen3_8b:decode"]
    assert decode.decode_s == pytest.approx(64 / 2682)
    assert decode.step == "flashinfer_decode"
    for case in cases.values():
        assert case.party.moe_ep in (1, case.party.attention_dp)
