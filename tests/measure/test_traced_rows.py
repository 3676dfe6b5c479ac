"""Steps that vTrain composes of a trace of one layer on one GPU."""

from __future__ import annotations

import json
from typing import Any

import pytest

import paleo
from paleo.measure.validate import cases_of, predict
from paleo.measure.validate.measured import Measurement, read_measurements
from paleo.measure.validate.meshes import TRACED, shared_step

A100 = paleo.find_device("A100_SXM_80GB")
HEADER = (
    "row_id,source_id,quantity,value,unit,network,op_shape,global_batch,micro_batch,seq_len,device,"
    "n_devices,interconnect,precision,framework,parallelism,direction,notes"
)


def steps(tmp_path: Any, *rows: dict[str, Any]) -> list[float]:
    """Return the seconds predicted of rows, whose sizes stand beside their columns."""
    return predict(cases_of(read(tmp_path, *rows)), "tiled").tolist()


def read(tmp_path: Any, *rows: dict[str, Any]) -> list[Measurement]:
    lines = [HEADER]
    for number, given in enumerate(rows):
        row = {"layers": 8, "batch": 8, "devices": 1, "split": "tp1 pp1 dp1"} | given
        sizes = json.dumps({"layers": row["layers"], "hidden": 512, "heads": 8, "vocab": 1001})
        cells = (
            number, "vtrain", "step_ms", 100, "ms", "gpt", sizes, row["batch"], 1, 128,
            "A100-SXM-80GB", row["devices"], "dgx_a100", "fp16", TRACED, row["split"], "train",
            "activation checkpointing on",
        )  # fmt: skip
        lines.append(",".join('"{}"'.format(str(cell).replace('"', '""')) for cell in cells))
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return list(read_measurements(path))


def test_the_net_that_is_traced_has_one_layer_and_words_that_fill_all_shares(tmp_path: Any) -> None:
    """Of 1,001 words two devices have 500 each; nothing is computed again."""
    (row,) = read(tmp_path, {"devices": 2, "split": "tp2 pp1 dp1"})
    found = shared_step(row, A100)
    assert (found.composed, dict(found.settings)["recompute"]) == (8, "none")
    graph = found.meshed(A100).part.of(1).graph
    assert sum(node.layer.type_name == "LayerNorm" for node in graph.nodes) == 3
    assert next(node for node in graph.nodes if node.name == "head").output[-1] == 500


def test_steps_are_sums_over_micro_batches_and_layers(tmp_path: Any) -> None:
    """Of m micro-batches and L layers: m (L a + h) + L u + e."""
    found = steps(tmp_path, *({"batch": m, "layers": n} for m in (8, 16, 32) for n in (8, 16)))
    (short, long), (short_2, long_2), (short_4, long_4) = zip(found[::2], found[1::2], strict=True)
    assert short_4 - short_2 == pytest.approx(2 * (short_2 - short))
    more, more_2, more_4 = long - short, long_2 - short_2, long_4 - short_4
    assert more_4 - more_2 == pytest.approx(2 * (more_2 - more))


def test_stages_wait_for_messages_of_twice_the_bytes_at_25_gib_a_second(tmp_path: Any) -> None:
    """With two stages one more micro-batch costs the last one's layers, scores and a message.

    A message is 128 positions of 512 numbers in halves. Its 8 layers of 16 are those of the net of
    8 layers, which has the embedding besides; so a net of 24 has 16 layers' more.
    """
    one_8, one_8m, one_24, one_24m = steps(
        tmp_path, *({"batch": m, "layers": n} for n in (8, 24) for m in (8, 9))
    )
    split = {"devices": 2, "split": "tp1 pp2 dp1"}
    two_16, two_16m, two_48, two_48m = steps(
        tmp_path, *(split | {"batch": m, "layers": n} for n in (16, 48) for m in (8, 9))
    )
    whole, staged = one_8m - one_8, two_16m - two_16
    # Layers add the same on a stage as in the whole.
    assert (two_48m - two_48) - staged == pytest.approx((one_24m - one_24) - whole)
    # Of the last stage, what stands before the layers is left out, and a message comes.
    message = 2 * 128 * 512 * 2 / (25 * 2**30)
    assert whole - staged + message > 0
    assert whole - staged + message < whole


def test_shares_of_the_data_sum_all_gradients_once_a_step(tmp_path: Any) -> None:
    """What they add does not depend on the number of micro-batches."""
    split = {"devices": 8, "split": "tp1 pp1 dp8"}
    alone, more = steps(tmp_path, {"batch": 8}, {"batch": 16})
    shared, shared_more = steps(tmp_path, split | {"batch": 64}, split | {"batch": 128})
    assert shared > alone
    assert shared_more - shared == pytest.approx(more - alone)
