"""Rows of language models on many devices: what is read of them, and what is predicted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paleo.measure.validate.measured import read_measurements
from paleo.measure.validate.meshes import MeshCase, gpt, mesh_cases
from paleo.net.graph import build

HEADER = (
    "row_id,source_id,quantity,value,unit,network,op_shape,global_batch,micro_batch,seq_len,device,"
    "n_devices,parallelism,direction,notes"
)
SIZES = {"layers": 4, "hidden": 512, "heads": 8, "vocab": 1000}
FULL = "activation recompute: full"


def cases(tmp_path: Path, *rows: dict[str, object]) -> tuple[list[MeshCase], dict[str, int]]:
    usual: dict[str, object] = {
        "row_id": "1", "source_id": "megatron_seqsel", "quantity": "step_ms", "value": 500,
        "unit": "ms", "network": "gpt", "op_shape": json.dumps(SIZES), "global_batch": 16,
        "micro_batch": 2, "seq_len": 128, "device": "A100-SXM-80GB", "n_devices": 16,
        "parallelism": "tp2 pp2 dp4 interleave1", "direction": "train", "notes": FULL,
    }  # fmt: skip
    lines = [HEADER]
    for row in rows:
        cells = [str(value).replace('"', '""') for value in (usual | row).values()]
        lines.append(",".join(f'"{cell}"' for cell in cells))
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return mesh_cases(read_measurements(path))


def test_a_gpt_has_the_parameters_of_its_formula() -> None:
    """12 L h^2 + 13 L h + (V + s) h, and the last norm (arXiv:2104.04473, equation 2)."""
    layers, hidden, vocabulary, seq = 4, 512, 1000, 128
    graph = build(gpt(layers, hidden, 8, 4 * hidden, vocabulary, seq), 1)
    blocks = layers * (12 * hidden**2 + 13 * hidden)
    assert graph.num_params == blocks + (vocabulary + seq) * hidden + 2 * hidden


def test_a_row_says_the_mesh_and_how_it_is_trained(tmp_path: Path) -> None:
    (case,), left_out = cases(tmp_path, {})
    assert left_out == {}
    assert (case.mesh.tp, case.mesh.pp, case.mesh.dp) == (2, 2, 4)
    settings = dict(case.settings)
    assert (settings["recompute"], settings["micro_batch"]) == ("full", 2)
    assert settings["sequence_parallel"] is False
    assert case.seconds == 0.5
    assert case.predicted() > 0


def test_selective_recomputation_with_positions_divided(tmp_path: Path) -> None:
    notes = "activation recompute: attn_only; tp comm rs_ag (sequence parallel)"
    (case,), _ = cases(tmp_path, {"notes": notes})
    settings = dict(case.settings)
    assert (settings["recompute"], settings["sequence_parallel"]) == ("selective", True)


def test_rates_are_seconds_of_a_step(tmp_path: Path) -> None:
    """TFLOP/s with recomputation: 96 B s L h^2 (1 + s / 6h + V / 16 L h) over all devices."""
    rows = (
        {"quantity": "tflops_per_gpu", "unit": "TFLOP/s/GPU", "value": 100},
        {"quantity": "tokens_per_s_per_gpu", "unit": "tokens/s/GPU", "value": 1000},
    )
    (flops, tokens), _ = cases(tmp_path, *rows)
    per_step = 16 * 96 * 128 * 4 * 512**2 * (1 + 128 / (6 * 512) + 1000 / (16 * 4 * 512))
    assert flops.seconds == pytest.approx(per_step / (100e12 * 16))
    assert tokens.seconds == pytest.approx(16 * 128 / (1000 * 16))


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"source_id": "nobody"}, "no mesh of nobody is modelled"),
        ({"op_shape": "{}"}, "rows that do not say layers, hidden"),
        ({"quantity": "images_per_s", "unit": "images/s"}, "images_per_s is no time of a step"),
    ],
)
def test_what_cannot_be_predicted_is_counted(
    tmp_path: Path, row: dict[str, object], reason: str
) -> None:
    found, left_out = cases(tmp_path, row)
    assert found == []
    ((said, count),) = left_out.items()
    assert said.startswith(reason)
    assert count == 1
