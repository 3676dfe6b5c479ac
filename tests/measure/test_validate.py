"""Measurements: what is predicted for each row, by arithmetic on a device of round figures.

Under `roofline` an operation takes the longer of FLOPs at 1 TFLOP/s (2 in fp16) and bytes at
100 GB/s.
"""

from __future__ import annotations

import json
import re
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from validation import cases, device_file, reasons, write

import paleo
from paleo.core.operations import Attention, BatchMatMul, MatMul, Pass
from paleo.measure.validate import (
    KEYS,
    Statistics,
    join,
    predict,
    read_measurements,
    statistics,
    validate,
)
from paleo.measure.validate.measured import COLUMNS, Measurement
from paleo.measure.validate.names import NETS
from paleo.measure.validate.protocols import PROTOCOLS, Protocol
from paleo.measure.validate.quantities import QUANTITIES
from paleo.measure.validate.sequences import with_length
from paleo.measure.validate.shapes import COLLECTIVE_OPERATORS, OPERATORS, read_message, read_shape
from paleo.measure.validate.spellings import UnmappedError

ROOT = Path(__file__).parents[2]

GEMM = {"M": 100, "N": 200, "K": 300}
CONV = {"N": 1, "C": 2, "H": 4, "W": 4, "K": 3, "R": 3, "S": 3, "pad": 1}
LSTM = {"hidden": 10, "N": 2, "T": 3}

#: Operator, shape, direction, and the nanoseconds that it takes.
OPERATIONS: list[tuple[str, dict[str, Any], str, float]] = [
    # 2 x 100 x 200 x 300 FLOPs are 12 us; 4 (100 x 300 + 300 x 200 + 100 x 200) bytes 4.4 us.
    ("gemm", GEMM, "", 12_000),
    ("gemm", GEMM | {"tA": "N", "tB": "T"}, "forward", 12_000),
    # Twice the rows, the same second matrix.
    ("linear", GEMM | {"B": 2}, "", 24_000),
    # 48,000 FLOPs, 48 ns; 4 x 2 (300 + 600 + 200) bytes, 88 ns.
    ("bmm", {"B": 2, "M": 10, "N": 20, "K": 30}, "", 88),
    # Input 32, filters 54, output 48 elements: 536 bytes. 2 x 9 x 2 x 3 x 16 FLOPs are 1.7 ns.
    ("conv2d", CONV, "forward", 5.36),
    ("conv2d", CONV, "backward_input", 5.36),
    ("conv2d", CONV, "backward_weight", 5.36),
    ("conv2d", CONV, "backward", 10.72),
    # Without padding, 2 x 2 outputs: 4 (32 + 54 + 12) bytes.
    ("conv2d", {**CONV, "pad": 0}, "forward", 3.92),
    ("conv2d", {**CONV, "pad": 0, "pad_h": 1, "pad_w": 1}, "forward", 5.36),
    # Every second position, 2 x 2 outputs again.
    ("conv2d", CONV | {"stride": 2}, "forward", 3.92),
    # Three products of 2 x 10 by 10 x 40: 12 (20 + 400 + 80) bytes, 60 ns. The gates of 6 rows:
    # 4 x 6 (40 + 40 + 20) bytes in, 4 x 6 (40 + 20) out, 38.4 ns.
    ("rnn_lstm", LSTM, "forward", 98.4),
    # And one product of 6 x 10 by 10 x 40: 4 (60 + 400 + 240) bytes.
    ("rnn_lstm", LSTM | {"input": 10}, "forward", 126.4),
    # 10 x 6 by 6 x 40: 4 (60 + 240 + 400) bytes.
    ("rnn_lstm", LSTM, "backward_weight", 28),
    # Three products of 2 x 40 by 40 x 10, 60 ns; gates read twice and written, 3 x 960 bytes.
    ("rnn_lstm", LSTM, "backward_input", 88.8),
    ("rnn_lstm", LSTM, "backward", 116.8),
    # 12 (20 + 100 + 20) bytes; one gate, one state: 4 x 6 x 10 bytes, three in, two out.
    ("rnn_vanilla", LSTM, "forward", 16.8 + 12),
    # 12 (20 + 300 + 60) bytes; three gates, one state: 4 x 6 x (30 + 30 + 10 + 30 + 10) bytes.
    ("rnn_gru", LSTM, "forward", 45.6 + 26.4),
    ("softmax", {"rows": 10, "cols": 100}, "", 80),
    ("layernorm", {"rows": 10, "cols": 100}, "", 80),
    ("rmsnorm", {"rows": 10, "cols": 100}, "", 80),
    ("gelu", {"elements": 1000}, "inference", 80),
    ("addu", {"rows": 10, "cols": 100}, "", 80),
    ("add", {"rows": 10, "cols": 100}, "", 120),
    ("add3", {"rows": 10, "cols": 100}, "", 240),
    ("silu_mul_act", {"rows": 10, "cols": 100}, "", 120),
    # The 30,000 elements of A come in 2 bytes and go out in 4: 1.8 us more.
    ("gemm", GEMM | {"quantized": 1}, "", 13_800),
    # They come once more for the scale: 0.6 us.
    ("gemm", GEMM | {"quantized": 2, "kernels": 3}, "", 14_400),
    # Queries 2 x 4 x 8, keys and values half of that each, output: 192 elements.
    (
        "attention",
        {"batch": 1, "heads": 2, "kv_heads": 1, "queries": 4, "head_dim": 8, "causal": 0},
        "",
        7.68,
    ),
    # Of 100 keys a query sees 10. Queries and output are 2 x 8 elements of 4 bytes, keys and
    # values 10 x 8 of 1: 288 bytes. To store the new key and value, 2 x 8 elements, takes 64 bytes
    # in and 16 out; to cast the queries, 32 in and 16 out.
    (
        "attention",
        {
            "batch": 1, "heads": 2, "kv_heads": 1, "queries": 1, "keys": 100, "head_dim": 8,
            "window": 10, "kv_bytes": 1, "stored": 1, "cast": 1,
        },
        "",
        2.88 + 0.8 + 0.48,
    ),
    # Queries are 16 elements, and so are the new key and value: to rotate both takes 2 bytes each
    # in and 4 out. Then 16 of queries, of output, of keys, of values, 4 bytes each.
    (
        "attention",
        {"batch": 1, "heads": 2, "kv_heads": 1, "queries": 1, "keys": 2, "head_dim": 8}
        | {"rotated": 1},
        "",
        1.92 + 2.56,
    ),
]  # fmt: skip


@pytest.mark.parametrize(("operator", "shape", "direction", "expected"), OPERATIONS)
def test_an_operator_is_priced_from_its_letters(
    operator: str, shape: dict[str, Any], direction: str, expected: float, tmp_path: Path
) -> None:
    row = {"network": f"op:{operator}", "op_shape": json.dumps(shape), "direction": direction}
    found = cases(tmp_path, row)
    assert reasons(found) == {}
    assert predict(found, "roofline") * 1e9 == pytest.approx([expected])


def test_every_operator_has_an_example_above_or_is_like_one() -> None:
    streams = {name for name, each in OPERATORS.items() if each.kind == "stream"}
    phases = {"attention_prefill", "attention_decode"}
    assert set(OPERATORS) - streams - phases <= {name for name, *_ in OPERATIONS}


def test_narrow_products_are_written_wider(tmp_path: Path) -> None:
    folder = tmp_path / "int8.toml"
    folder.write_text(
        Path(device_file(tmp_path)).read_text() + '[peak.int8]\nmatrix = "1000 TFLOP/s"\n'
    )
    row = {"network": "op:gemm", "op_shape": '{"M":10,"N":10,"K":10}', "precision": "int8"}
    # 100 + 100 bytes in, 4 x 100 out.
    assert predict(cases(tmp_path, row | {"device": folder}), "roofline") == pytest.approx(6e-9)


def test_shapes_of_one_operator_are_one_array_and_as_if_alone(tmp_path: Path) -> None:
    shapes = [{"M": m, "N": 64, "K": 7 * m} for m in (1, 17, 300, 4096)]
    rows = [{"network": "op:gemm", "op_shape": json.dumps(shape)} for shape in shapes]
    together = cases(tmp_path, *rows)
    assert len(together.parts) == 1
    for name in paleo.COST_MODELS:
        alone = [float(predict(cases(tmp_path, row), name)[0]) for row in rows]
        assert predict(together, name).tolist() == alone


def test_constants_may_be_arrays_of_trials(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"network": "op:gemm", "op_shape": json.dumps(GEMM)},
        {"network": "op:conv2d", "op_shape": json.dumps(CONV)},
        {"network": "lenet5", "quantity": "step_ms", "batch_per_device": 4},
    ]
    found = cases(tmp_path, *rows)
    launches = [1e-6, 5e-6]
    trials = predict(found, "tiled", {"launch": np.array(launches)})
    assert trials.shape == (2, 3)
    for trial, launch in zip(trials, launches, strict=True):
        assert trial.tolist() == predict(found, "tiled", {"launch": launch}).tolist()


# Nets.


def net_rows(tmp_path: Path, **columns: Any) -> Any:
    return cases(tmp_path, {"network": "lenet5", "batch_per_device": 16, **columns})


def simulated(tmp_path: Path) -> Any:
    result = paleo.simulate(
        "lenet5", device=device_file(tmp_path), batch_size=16, scaling="weak",
        cost_model="roofline",
    )  # fmt: skip
    return result.runs[0].rows[0]


def test_a_net_takes_what_simulate_says(tmp_path: Path) -> None:
    row = simulated(tmp_path)
    both = row["forward"] + row["backward"]
    for columns, expected in (
        ({"quantity": "forward_ms"}, row["forward"]),
        ({"quantity": "latency_ms"}, row["forward"]),
        ({"quantity": "backward_ms"}, row["backward"]),
        ({"quantity": "step_ms"}, row.compute),
        ({"quantity": "step_ms", "direction": "train"}, row.compute),
        ({"quantity": "step_ms", "direction": "forward+backward"}, both),
        ({"quantity": "images_per_s", "direction": "inference"}, row["forward"]),
        ({"quantity": "images_per_s"}, row.compute),
    ):
        found = net_rows(tmp_path, **columns)
        assert reasons(found) == {}
        assert predict(found, "roofline") == pytest.approx([expected], rel=1e-12)


def test_a_rate_is_the_time_of_what_it_counts(tmp_path: Path) -> None:
    # 16 samples at 200 a second are 80 ms; of two devices 32, 160 ms.
    assert net_rows(tmp_path, quantity="images_per_s", value=200).measured == pytest.approx([0.08])
    two = net_rows(
        tmp_path, quantity="samples_per_s", value=200, n_devices=2, interconnect="NVLink3"
    )
    assert two.measured == pytest.approx([0.16])
    # An update every 64 samples of one device: four passes, 320 ms.
    four = net_rows(tmp_path, quantity="samples_per_s", value=200, global_batch=64)
    assert four.measured == pytest.approx([0.32])
    row = simulated(tmp_path)
    expected = 4 * (row["forward"] + row["backward"]) + row["update"]
    assert predict(four, "roofline") == pytest.approx([expected])
    # 16 sequences of 10 tokens at 1000 a second.
    tokens = cases(
        tmp_path,
        {
            "network": "lstm_lm", "quantity": "tokens_per_s", "value": 1000,
            "batch_per_device": 16, "seq_len": 10,
        },
    )  # fmt: skip
    assert tokens.measured == pytest.approx([0.16])


def test_times_are_in_the_unit_of_their_name(tmp_path: Path) -> None:
    for quantity, expected in (("step_ms", 3e-3), ("step_s", 3.0), ("step_us", 3e-6)):
        assert net_rows(tmp_path, quantity=quantity, value=3).measured == pytest.approx([expected])


def test_sequences_have_the_length_of_the_row(tmp_path: Path) -> None:
    def seconds(length: Any) -> float:
        row = {"network": "lstm_lm", "quantity": "forward_ms", "batch_per_device": 4}
        return float(predict(cases(tmp_path, row | {"seq_len": length}), "roofline")[0])

    assert seconds("") == seconds(35)  # the net's own
    edited = paleo.edit("lstm_lm", set="words.tensor[1]=70")
    graph = paleo.build(edited, 4)
    device = device_file(tmp_path)
    expected = paleo.estimate_forward(graph, device, cost_model="roofline", training=False).upper
    assert seconds(70) == pytest.approx(float(expected))


def test_a_net_may_be_a_file(tmp_path: Path) -> None:
    row = {"network": str(ROOT / "nets" / "lenet5.json"), "batch_per_device": 16}
    found = cases(tmp_path, row | {"quantity": "step_ms"})
    assert predict(found, "roofline") == pytest.approx([simulated(tmp_path).compute])


def test_the_copy_of_the_batch_is_in_the_time_where_the_source_has_it(tmp_path: Path) -> None:
    plain = net_rows(tmp_path, quantity="forward_ms")
    copied = net_rows(tmp_path, quantity="forward_ms", source_id="ryujaehun")
    # 16 images of 28 x 28 x 3 numbers of 4 bytes at 126 Gbit/s.
    extra = 16 * 28 * 28 * 3 * 4 / 15.75e9
    assert predict(copied, "roofline") - predict(plain, "roofline") == pytest.approx(extra)


# Rows that cannot be predicted.

UNMAPPED: list[tuple[dict[str, Any], str]] = [
    ({"device": "H1000"}, "unknown device 'H1000'"),
    ({"device": "V100-PCIe"}, "device 'V100-PCIe' may be any of"),
    ({"precision": "Q4_K_M"}, "unknown precision 'Q4_K_M'"),
    ({"precision": "bf16"}, "has no peak for bf16; it has: fp32, fp16"),
    ({"network": "op:allgather"}, "operator 'allgather' is not modelled"),
    ({"network": "op:gem"}, "operator 'gem' is not modelled (did you mean 'gemm'?)"),
    ({"quantity": "images_per_s"}, "images_per_s of an operator"),
    ({"direction": "comm"}, "comm of operator 'gemm'"),
    ({"direction": "backward"}, "backward of operator 'gemm'"),
    ({"n_devices": "2"}, "operator 'gemm' on several devices"),
    ({"verified": "yes-suspect"}, "marked as suspect"),
    ({"quantity": "prefill_ms"}, "prefill_ms of an operator"),
    ({"network": "resnet50", "op_shape": ""}, "op_ms of a net"),
    ({"network": "resnet51", "quantity": "step_ms"}, "unknown net 'resnet51' (did you mean"),
    ({"network": "resnet50", "quantity": "step_ms", "batch_per_device": ""}, "no batch size"),
    ({"network": "resnet50", "quantity": "step_ms", "batch_per_device": "1.5"}, "no whole number"),
    ({"network": "resnet50", "quantity": "step_ms", "global_batch": "20"}, "no multiple"),
    ({"network": "resnet50", "quantity": "step_ms", "direction": "decode"}, "direction 'decode'"),
    ({"network": "resnet50", "quantity": "allreduce_ms"}, "allreduce_ms is not modelled"),
    ({"network": "resnet50", "quantity": "backward_input_ms"}, "backward_input_ms of a net"),
    ({"network": "resnet50", "quantity": "tokens_per_s"}, "has no length of sequences"),
    ({"network": "resnet50/layer:conv1", "quantity": "forward_ms"}, "single layers of nets"),
    ({"network": "none.json", "quantity": "step_ms"}, "none.json: no such file"),
    ({"network": "python:os:abort", "quantity": "step_ms"}, "would have to be run"),
    (
        {"network": "resnet50", "quantity": "step_ms", "n_devices": "2"},
        "several devices without an interconnect",
    ),
    (
        {"network": "resnet50", "quantity": "step_ms", "n_devices": "2", "interconnect": "wire"},
        "interconnect 'wire' names no link",
    ),
    (
        {"network": "resnet50", "quantity": "step_ms", "n_devices": "2", "parallelism": "model"},
        "parallelism 'model'",
    ),
    (
        {"network": "resnet50", "quantity": "step_ms", "n_devices": "2", "parallelism": "tp2"},
        "no batch of all devices",
    ),
]


@pytest.mark.parametrize(("columns", "reason"), UNMAPPED, ids=[text for _, text in UNMAPPED])
def test_rows_that_cannot_be_predicted_say_why(
    columns: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    plain = {"network": "op:gemm", "op_shape": json.dumps(GEMM), "batch_per_device": "8"}
    found = cases(tmp_path, plain | columns)
    assert len(found) == 0
    (said,) = reasons(found)
    assert reason in said
    (each,) = found.unpredicted
    assert (each.count, each.ids, each.source) == (1, ("mine:2",), "mine")


def test_a_cost_model_may_predict_fewer_rows_than_another(tmp_path: Path) -> None:
    rows = [
        {"network": "op:gemm", "op_shape": json.dumps(GEMM)},
        {"network": "op:softmax", "op_shape": '{"cols": 8}'},
        {"network": "op:gemm", "op_shape": json.dumps(GEMM), "precision": "fp16"},
    ]
    path = write(
        tmp_path,
        [{"quantity": "op_ms", "value": 1, "device": device_file(tmp_path)} | row for row in rows],
    )
    report = validate(path, cost_models=("roofline", "paleo2017"), by=())
    assert [group.statistics.count for group in report.totals] == [3, 1]
    own = {each.reason: each.ids for each in report.unpredicted}
    assert own == {
        "paleo2017 leaves out softmax": ("mine:3",),
        "cost model paleo2017 knows fp32 only, not fp16": ("mine:4",),
    }
    assert report.unpredicted_count == 0
    row = report.rows()[1]
    assert (row["paleo2017_s"], row["paleo2017_error"]) == (None, None)


# Devices, types, links.


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("T4", "T4"),
        ("tesla t4", "T4"),
        ("NVIDIA T4", "T4"),
        ("TitanX-Maxwell", "TITAN_X"),
        ("2080Ti", "RTX_2080_TI"),
        ("A40 48GB", "A40"),
        ("V100-SXM2-16GB (DGX-1)", "V100_SXM2_16GB"),
        ("K80 (one GK210 die, anywhere)", "K80_DIE"),
        ("K80", "K80"),
        ("NVIDIA A100-SXM4-80GB", "A100_SXM_80GB"),
    ],
)
def test_devices_go_by_letters_and_digits(text: str, name: str, tmp_path: Path) -> None:
    row = {"device": text, "network": "op:gemm", "op_shape": json.dumps(GEMM)}
    assert list(cases(tmp_path, row).devices) == [name]


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("", "fp32"),
        ("FP32", "fp32"),
        ("float32", "fp32"),
        ("fp16_in_fp32_acc", "fp16"),
        ("half", "fp16"),
        ("fp16 (see heading)", "fp16"),
        ("fp16/amp", "mixed_fp16"),
        ("mixed(fp16)", "mixed_fp16"),
        ("fp16 mixed", "mixed_fp16"),
        ("mixed(fp16/bf16)", "mixed_fp16"),
        ("AMP", "mixed_fp16"),
        ("amp_bf16", "mixed_bf16"),
        ("bfloat16", "bf16"),
        ("TF32", "tf32"),
        ("fp32 (TF32 on Ampere+)", "tf32"),
        ("fp64", "fp64"),
        ("int8", "int8"),
    ],
)
def test_precisions_are_words(text: str, dtype: str, tmp_path: Path) -> None:
    row = {"network": "lenet5", "quantity": "step_ms", "batch_per_device": 1}
    found = cases(tmp_path, row | {"precision": text, "device": "A100_SXM_80GB"})
    assert found.labels["dtype"].tolist() == [dtype]


def test_fp32_is_tf32_only_where_there_is_such_a_unit(tmp_path: Path) -> None:
    row = {"network": "op:gemm", "op_shape": json.dumps(GEMM), "precision": "fp32 (TF32 on A100)"}
    assert cases(tmp_path, row | {"device": "T4"}).labels["dtype"].tolist() == ["fp32"]


# Statistics.


def test_statistics_are_those_of_the_errors() -> None:
    measured = np.array([1.0, 1.0, 1.0, 2.0, 1.0])
    predicted = np.array([1.1, 0.8, 1.3, 1.2, np.nan])
    # Errors 0.1, -0.2, 0.3, -0.4: sizes have the median 0.25, the mean 0.25; their 90th
    # percentile is 0.7 of the way from 0.3 to 0.4; the median of the errors is -0.05.
    found = statistics(predicted, measured)
    assert (found.count, found.worst) == (4, 3)
    expected = (0.25, 0.25, -0.05, 0.37, -0.4)
    values = (found.median, found.mean, found.bias, found.p90, found.worst_error)
    assert values == pytest.approx(expected)
    assert statistics(np.array([np.nan]), np.array([1.0])) == Statistics(0)


def test_groups_agree_in_the_labels_asked_for(tmp_path: Path) -> None:
    shapes = [{"M": m, "N": 100, "K": 100} for m in (100, 200, 300)]
    # 2, 4 and 6 us; measured 4, 4 and 3 us: errors -0.5, 0, 1.
    rows = [
        {
            "quantity": "op_us", "value": value, "network": "op:gemm",
            "op_shape": json.dumps(shape), "device": device_file(tmp_path), "stratum": stratum,
        }
        for shape, value, stratum in zip(shapes, (4, 4, 3), "aab", strict=True)
    ]  # fmt: skip
    path = write(tmp_path, rows)
    report = validate(path, cost_models="roofline")
    first, second = report.groups
    assert first.labels == {"source": "mine", "stratum": "a"}
    assert (first.statistics.count, first.statistics.median) == (2, pytest.approx(0.25))
    assert (first.worst_id, first.worst_shape) == ("mine:2", "M=100 N=100 K=100")
    assert second.statistics.bias == pytest.approx(1.0)
    (total,) = report.totals
    assert total.statistics.mean == pytest.approx(0.5)
    assert validate(path, cost_models="roofline", by=()).groups[0].statistics == total.statistics
    for key in KEYS:
        assert sum(g.statistics.count for g in validate(path, by=key).groups) == 3


def test_selected_and_joined_cases_keep_their_predictions(tmp_path: Path) -> None:
    rows = [{"network": "op:gemm", "op_shape": f'{{"M":{m},"N":8,"K":8}}'} for m in (5, 6, 7, 8)]
    rows[2] = {"network": "op:conv2d", "op_shape": json.dumps(CONV)}
    found = cases(tmp_path, *rows)
    predicted = predict(found, "tiled")
    kept = found.select([0, 2, 3])
    assert predict(kept, "tiled").tolist() == predicted[[0, 2, 3]].tolist()
    assert kept.shapes()[2] == "M=8 N=8 K=8"
    assert kept.ids.tolist() == ["mine:2", "mine:4", "mine:5"]
    both = join([kept, found.where(kind="convolution")])
    assert predict(both, "tiled").tolist() == predicted[[0, 2, 3, 2]].tolist()
    assert len(join([])) == 0


def test_settings_are_checked_together(tmp_path: Path) -> None:
    with pytest.raises(paleo.PaleoError) as caught:
        validate(tmp_path / "none.csv", cost_models=("tield", "roofline"), by=("devise",))
    assert [str(mistake) for mistake in caught.value.mistakes] == [
        "unknown cost model 'tield' (did you mean 'tiled'?)",
        "by: unknown label 'devise' (did you mean 'device'?)",
        f"{tmp_path / 'none.csv'}: No such file or directory",
    ]
    with pytest.raises(paleo.PaleoError, match="nothing to validate"):
        validate()
    path = write(tmp_path, [{"quantity": "op_ms", "value": 1, "network": "op:x", "device": "T4"}])
    with pytest.raises(paleo.PaleoError, match="roofline is there twice"):
        validate(path, cost_models=("roofline", "roofline"))


# The documentation.


def test_the_page_describes_every_column_quantity_and_operator() -> None:
    page = (ROOT / "docs" / "validate.md").read_text("utf-8")
    for name in COLUMNS:
        assert f"`{name}`" in page, name
    for name, quantity in QUANTITIES.items():
        assert quantity.scale != 1e-3 or f"`{name}`" in page, name
    for name in OPERATORS:
        assert f"`op:{name}`" in page, name


def test_the_page_describes_every_letter() -> None:
    page = (ROOT / "docs" / "validate.md").read_text("utf-8")
    rows = {
        name: row
        for row in re.findall(r"^\| `op:.*$", page, re.MULTILINE)
        for name in re.findall(r"`op:(\w+)`", row)
    }
    for name, operator in OPERATORS.items():
        row = rows[name]
        for letter in operator.letters:
            if operator.kind != "stream":  # which are "the same"
                assert re.search(rf"\b{letter}\b", row), (name, letter)


def test_the_examples_of_the_page_are_shapes() -> None:
    page = (ROOT / "docs" / "validate.md").read_text("utf-8")
    examples = re.findall(r"^\| (`op:.*?) \|.*\| `(\{.*\})` \|$", page, re.MULTILINE)
    assert len(examples) >= 10
    for names, shape in examples:
        for name in re.findall(r"`op:(\w+)`", names):
            complaints: list[str] = []
            read = read_message if name in COLLECTIVE_OPERATORS else partial(read_shape, name)
            read(json.loads(shape), complaints)
            assert complaints == []


def test_the_example_file_is_predicted_whole() -> None:
    path = ROOT / "docs" / "example_measurements.csv"
    report = validate(path)
    assert len(report.cases) == len(read_measurements(path)) == 9
    assert report.unpredicted == ()


# Sequences of another length.


@pytest.mark.parametrize(
    ("name", "layers", "width", "head"),
    [
        ("bert_base", 12, 768, lambda t: 2 * 768 * 768),
        ("gpt2", 12, 768, lambda t: 2 * t * 768 * 50257),
        ("gpt2_medium", 24, 1024, lambda t: 2 * t * 1024 * 50257),
    ],
)
def test_a_traced_net_takes_sequences_of_another_length(
    name: str, layers: int, width: int, head: Any
) -> None:
    def flops(net: paleo.NetSpec) -> Any:
        graph = paleo.build(net, 2)
        operations = [
            operation for node in graph.nodes for operation in graph.operations(node, Pass.FORWARD)
        ]
        kinds = (MatMul, BatchMatMul, Attention)
        return sum(each.flops for each in operations if isinstance(each, kinds))

    for length in (16, 100):
        # A token and layer: four products of width x width, two of width x 4 width. A pair of
        # tokens: scores, and the sum of values.
        expected = layers * (24 * length * width**2 + 4 * length**2 * width) + head(length)
        assert flops(with_length(paleo.load(name), length)) == 2 * expected


def test_a_net_has_as_many_positions_as_its_words_take() -> None:
    def positions(name: str, length: int) -> int:
        net = with_length(paleo.load(name), length)
        assert net.name == name
        return net.dims["positions"]

    # GPT-2's file has as many as words, that of BERT 512 for 128 words.
    assert positions("gpt2", 100) == 100
    assert positions("bert_base", 100) == 512
    assert positions("bert_base", 600) == 600


def test_a_net_without_sequences_has_no_length() -> None:
    with pytest.raises(UnmappedError, match="no length of sequences"):
        with_length(paleo.load("lenet5"), 16)
    net = paleo.load("gpt2")
    assert with_length(net, 1024) is net


def test_what_is_known_of_sources_names_things_that_exist() -> None:
    for protocol in PROTOCOLS.values():
        assert protocol.note
        names = {field.name for kind in (Measurement, Protocol) for field in fields(kind)}
        for script in protocol.scripts:
            assert script.says.keys() <= names
        copies = [protocol.copied, *(script.says.get("copied") for script in protocol.scripts)]
        for copied in copies:
            if copied and copied.network:
                paleo.find_network(copied.network)
    for net in NETS.values():
        assert net in paleo.net_names()
