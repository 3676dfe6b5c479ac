"""Rows of language models on many devices: what is read of them, and what is predicted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import paleo
from paleo.measure.validate import cases_of, read_measurements, validate
from paleo.measure.validate.measured import Measurement
from paleo.measure.validate.mesh_nets import GptSizes, gpt, with_layers
from paleo.measure.validate.meshes import MeshCase, MeshGroup, memory_errors, shared_step
from paleo.net.graph import build
from paleo.step.pieces import Step

HEADER = (
    "row_id,source_id,quantity,value,unit,network,op_shape,global_batch,micro_batch,seq_len,device,"
    "n_devices,devices_per_node,interconnect,precision,framework,parallelism,direction,notes"
)
SIZES = {"layers": 4, "hidden": 512, "heads": 8, "vocab": 1000}
FULL = "activation recompute: full"
A100 = paleo.find_device("A100_SXM_80GB")
#: A user's own row: everything stands in its columns.
OWN: dict[str, object] = {
    "source_id": "mine", "network": "gpt3_small", "op_shape": "", "seq_len": 1024,
    "n_devices": 8, "interconnect": "dgx_a100", "precision": "bf16", "framework": "pytorch",
    "parallelism": "tp2 zero1", "notes": "",
}  # fmt: skip


def rows(tmp_path: Path, *changes: dict[str, object]) -> Sequence[Measurement]:
    usual: dict[str, object] = {
        "row_id": "1", "source_id": "megatron_seqsel", "quantity": "step_ms", "value": 500,
        "unit": "", "network": "gpt", "op_shape": json.dumps(SIZES), "global_batch": 16,
        "micro_batch": 2, "seq_len": 128, "device": "A100-SXM-80GB", "n_devices": 16,
        "devices_per_node": 8, "interconnect": "NVSwitch + HDR IB", "precision": "fp16 mixed",
        "framework": "Megatron-LM", "parallelism": "tp2 pp2 dp4 interleave1",
        "direction": "train", "notes": FULL,
    }  # fmt: skip
    lines = [HEADER]
    for change in changes:
        cells = [str(value).replace('"', '""') for value in (usual | change).values()]
        lines.append(",".join(f'"{cell}"' for cell in cells))
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return read_measurements(path)


def case(tmp_path: Path, **change: object) -> MeshCase:
    return shared_step(rows(tmp_path, change)[0], A100)


def settings(tmp_path: Path, **change: object) -> dict[str, Any]:
    return dict(case(tmp_path, **change).settings)


def own_step() -> Step:
    """Return the step of the row OWN, as simulate has it."""
    net = paleo.load("gpt3_small", dims={"seq": 1024})
    trained: dict[str, Any] = {"dtype": "bf16", "optimizer": "adamw", "framework": "pytorch"}
    shared: dict[str, Any] = {"tp": 2, "zero": 1, "global_batch": 16, "micro_batch": 2}
    (run,) = paleo.simulate(net, cluster="dgx_a100", workers=8, **trained, **shared).runs
    return run.rows[0]


def test_a_gpt_has_the_parameters_of_its_formula() -> None:
    """12 L h^2 + 13 L h + (V + s) h, and the last norm (arXiv:2104.04473, equation 2)."""
    layers, hidden, vocabulary, seq = 4, 512, 1000, 128
    for fused in (False, True):
        sizes = GptSizes(layers, hidden, 8, 4 * hidden, vocabulary, seq, fused=fused)
        blocks = layers * (12 * hidden**2 + 13 * hidden)
        assert build(gpt(sizes), 1).num_params == blocks + (vocabulary + seq + 2) * hidden


def test_a_gpt_without_dropout_has_none() -> None:
    sizes = GptSizes(2, 64, 2, 256, 100, 16, fused=True, kept=1)
    assert not [layer for layer in gpt(sizes).layers if layer.layer.type_name == "Dropout"]
    dropouts = [each for each in gpt(sizes._replace(kept=0.9)).layers if "kept" in each.name]
    assert len(dropouts) == 1 + 2 * 2  # behind the embedding, and two a block


def test_a_gpt_of_megatron_has_as_many_words_as_divide_by_128_on_each_device(
    tmp_path: Path,
) -> None:
    """Of 1,000 words 1,024 for 2 or 4 tensor-parallel devices, 2,048 for 16."""
    found = {
        tp: build(case(tmp_path, parallelism=f"tp{tp} pp1").net, 1).nodes[-1].output[-1]
        for tp in (2, 4, 16)
    }
    assert found == {2: 1024, 4: 1024, 16: 2048}


def test_a_net_cut_down_has_one_of_each_kind_of_block_but_the_last() -> None:
    """DeepSeek-V3 has 3 dense blocks and 58 with experts: of 4 blocks 3 have experts."""
    cut = build(with_layers(paleo.load("deepseek_v3"), 4), 1)
    holding = {node.name for node in cut.nodes if node.layer.num_experts_held}
    assert len({name.partition("/mlp/")[0] for name in holding}) == 3
    assert sum(node.layer.is_attention for node in cut.nodes) == 4


def test_a_row_says_the_mesh_and_how_it_is_trained(tmp_path: Path) -> None:
    found = case(tmp_path)
    assert (found.mesh.tp, found.mesh.pp, found.mesh.dp) == (2, 2, 4)
    said = dict(found.settings)
    assert (said["recompute"], said["micro_batch"]) == ("full", 2)
    assert said["sequence_parallel"] is False


def test_selective_recomputation_with_positions_divided(tmp_path: Path) -> None:
    notes = "activation recompute: attn_only; tp comm rs_ag (sequence parallel)"
    said = settings(tmp_path, notes=notes)
    assert (said["recompute"], said["sequence_parallel"]) == ("selective", True)


@pytest.mark.parametrize(
    ("said", "links"),
    [
        ("NVLink3/NVSwitch intra; inter-node 4x200 Gb/s HDR IB (800 Gb/s/node)", 4),
        ("inter-node: 1600 Gb/s RoCE", 8),
        ("NVSwitch + HDR IB (Selene)", 8),
        ("NVLink; host: Storage: 2x ConnectX-7 400Gb/s, Compute: 4x ConnectX-6 IB HDR 200Gb/s", 4),
        ("dgx_a100", 8),
    ],
)
def test_a_node_has_the_cards_that_its_row_lists(tmp_path: Path, said: str, links: int) -> None:
    """DGX A100 has eight of 200 Gbit/s."""
    tiers = case(tmp_path, interconnect=said).cluster.tiers
    assert [tier.links for tier in tiers] == [tiers[0].links, links]


def test_there_are_as_many_nodes_as_a_row_needs(tmp_path: Path) -> None:
    found = case(tmp_path, n_devices=16384, global_batch=4096 * 8, parallelism="tp2 pp2")
    assert found.cluster.size == 16384


def test_rates_are_seconds_of_a_step(tmp_path: Path) -> None:
    """TFLOP/s with recomputation: 96 B s L h^2 (1 + s / 6h + V / 16 L h) over all devices."""
    flops, tokens, sequences = cases_of(
        rows(
            tmp_path,
            {"quantity": "tflops_per_gpu", "value": 100},
            {"quantity": "tokens_per_s_per_gpu", "value": 1000},
            {"quantity": "sequences_per_s", "value": 8},
        )
    ).measured
    per_step = 16 * 96 * 128 * 4 * 512**2 * (1 + 128 / (6 * 512) + 1000 / (16 * 4 * 512))
    assert flops == pytest.approx(per_step / (100e12 * 16))
    assert tokens == pytest.approx(16 * 128 / (1000 * 16))
    assert sequences == pytest.approx(2)


def test_a_row_of_ones_own_is_what_simulate_says(tmp_path: Path) -> None:
    """Eight A100 of a DGX, two of which share each layer: four samples each."""
    path = tmp_path / "rows.csv"
    rows(tmp_path, OWN)
    report = validate(path)
    (predicted,) = report.predicted["tiled"]
    step = own_step()
    assert predicted == pytest.approx(step.total(step.best_scheme))
    assert report.rows()[0]["kind"] == "mesh step"
    assert report.rows()[0]["shape"] == "tp 2 dp 4, batch 16"


def test_fsdp_shares_parameters(tmp_path: Path) -> None:
    assert settings(tmp_path, **OWN | {"parallelism": "fsdp:FULL_SHARD"})["zero"] == 3


def test_constants_change_what_is_predicted(tmp_path: Path) -> None:
    """Products at half of their share of peak make a step longer, up to twice as long."""
    large = {"framework": "", "network": "gpt3_6_7b"}  # no host, and products that fill devices
    cases = cases_of(rows(tmp_path, OWN | large))
    (group,) = cases.parts
    assert isinstance(group, MeshGroup)
    (usual,) = paleo.measure.validate.predict(cases, "tiled")
    (slow,) = paleo.measure.validate.predict(cases, "tiled", {"matrix_share": 0.466})
    assert usual < slow < 2 * usual


def test_memory_of_rows_is_that_of_the_tensors_of_the_fullest_stage(tmp_path: Path) -> None:
    row = OWN | {"quantity": "peak_memory_gib", "value": 1}
    (error,) = memory_errors(rows(tmp_path, row))
    (memory,) = [field for field in own_step().fields if field.key == "memory_bytes"]
    # Tensors are what was measured: 0.94 of what the allocator holds.
    assert 1 + error == pytest.approx(0.94 * memory.value(own_step()) / 2**30)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"op_shape": "{}"}, "rows that do not say layers, hidden, heads"),
        ({"quantity": "images_per_s"}, "images_per_s is no time of a step on a mesh"),
        ({"global_batch": ""}, "no batch of all devices"),
        ({"parallelism": "tp2 pp2 dp8"}, "degrees of parallelism that are not those of so many"),
        ({"parallelism": "tp3"}, "num_workers: 16 devices do not divide by tp 3"),
        ({"source_id": "mine", "parallelism": "tp2"}, "unknown net 'gpt'"),
    ],
)
def test_what_cannot_be_predicted_says_why(
    tmp_path: Path, row: dict[str, object], reason: str
) -> None:
    cases = cases_of(rows(tmp_path, row))
    assert len(cases) == 0
    (unpredicted,) = cases.unpredicted
    assert unpredicted.reason.startswith(reason)
    assert unpredicted.count == 1
