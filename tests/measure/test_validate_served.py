"""Served points in a validation: which rows are predicted, and what groups say."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from served_points import DEGREES, ONE
from validation import call

from paleo.core.errors import MeasurementError
from paleo.measure.validate import validate

#: Llama 3.1 8B in bf16 on one H100, a request at a time.
LLAMA = ONE | {
    "silicon_data_source": "source_file=/a.csv; silicon_concurrency=1; measured=2026-03-25",
    "backend": "trtllm",
    "backend_version": "1.2.0",
    "model_path": "meta-llama/Llama-3.1-8B-Instruct",
    "system": "h100_sxm",
    "precision": "",
    "gemm_quant_mode": "bfloat16",
    "isl": "1000",
    "osl": "40",
    "batch_size": "1",
    "tp_size": "1",
    "moe_ep_size": "1",
    "silicon_ttft_ms": "40",
    "silicon_tpot_ms": "6",
}


#: The same with a server for prompts and two that decode, of 64 requests at a time.
APART = LLAMA | {
    "silicon_data_source": "source_file=/a.csv; silicon_concurrency=64; measured=2026-03-25",
    "mode": "disagg",
    **{f"{role}_{name}": "1" for role in ("prefill", "decode") for name in DEGREES},
    "decode_num_workers": "2",
    "silicon_tpot_ms": "8",
}


def written(folder: Path, *rows: dict[str, Any]) -> Path:
    (folder / "systems").mkdir()
    with (folder / "systems" / "silicon_sample.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(ONE))
        writer.writeheader()
        writer.writerows(row | {"id": f"row {place}"} for place, row in enumerate(rows))
    return folder


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rows = (
        LLAMA,
        LLAMA | {"system": "b200_sxm", "silicon_tpot_ms": "5"},
        # Too many to be simulated: no first token is predicted.
        LLAMA
        | {
            "silicon_data_source": "source_file=/a.csv; silicon_concurrency=128; measured=2026-03",
            "batch_size": "128",
            "silicon_tpot_ms": "12",
        },
        LLAMA,  # a repetition
    )
    return written(tmp_path, *rows)


def test_tokens_of_servers_that_decode_alone(tmp_path: Path) -> None:
    report = validate(served=written(tmp_path, APART), by=["stratum"])
    (group,) = report.groups
    assert group.labels["stratum"] == "token, prompts computed apart"
    (row,) = report.rows()
    # Of 64 requests one of two servers has 32 at most, and half of them at least: 15.0 GB of
    # weights, and 131,072 bytes for each of some 930 tokens, at 3.35 TB/s and half of it.
    cache = 131072 * 930
    assert (15.0e9 + 16 * cache) / 3.35e12 < row["tiled_s"] < 2 * (15.0e9 + 32 * cache) / 3.35e12


def test_tokens_and_first_tokens_by_devices_of_the_fit_and_others(table: Path) -> None:
    report = validate(served=table, by=["stratum"])
    assert {group.labels["stratum"]: group.statistics.count for group in report.groups} == {
        "token, devices of the fit": 2,
        "token, held-out devices": 1,
        "first token, devices of the fit": 1,
        "first token, held-out devices": 1,
    }
    assert report.unpredicted_count == 1
    rows = {(row["id"], row["quantity"]): row for row in report.rows()}
    alone = rows["row 0", "tpot"]
    # 7.5 billion weights without the table of words, 2 bytes each, at 3.35 TB/s and half of it.
    assert 15.0e9 / 3.35e12 < alone["tiled_s"] < 2 * 15.0e9 / 3.35e12
    assert alone["tiled_error"] == pytest.approx(alone["tiled_s"] / 0.006 - 1)
    assert alone["measured_s"] == 0.006
    assert alone["shape"] == "1 x 1000 + 40 tokens"
    # 2 FLOP for each weight and token, at 989 TFLOP/s at most.
    assert rows["row 0", "ttft"]["tiled_s"] > 1000 * 2 * 7e9 / 989e12
    assert ("row 2", "ttft") not in rows


def test_other_cost_models_price_no_steps_of_servers(table: Path) -> None:
    report = validate(served=table, cost_models=["paleo2017"])
    assert {each.reason for each in report.unpredicted if each.cost_model} == {
        "paleo2017 does not price steps of servers"
    }


def test_folder_without_a_table(tmp_path: Path) -> None:
    with pytest.raises(MeasurementError, match=r"there is no systems/silicon_sample\.csv in it$"):
        validate(served=tmp_path)


def test_command_says_errors_of_servers(table: Path) -> None:
    text = call(f"--served={table}", "--by=stratum").stdout
    assert "5 rows predicted by tiled" in text
    assert "held-out devices" in text
    # Constants of devices are not those of servers.
    said = call(f"--served={table}", "--fit=launch", status=1).stderr
    assert said.startswith("paleo: ")
    assert said.count("\n") == 1
