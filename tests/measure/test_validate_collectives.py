"""Collectives that others measured: rows of files and tables, on which cluster they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from validation import reasons, write

from paleo.cluster import find_cluster
from paleo.cluster.collectives import custom, nccl
from paleo.cluster.collectives.base import Operation
from paleo.core.errors import MeasurementError
from paleo.measure.validate import Cases, Selection, cases_of, operator_cases, predict
from paleo.measure.validate import read_measurements as read

NVSWITCH = "DGX A100 NVSwitch; and so on"


def row(**columns: Any) -> dict[str, Any]:
    plain = {
        "quantity": "allreduce_ms", "value": "0.02", "network": "op:allreduce",
        "op_shape": json.dumps({"bytes": 2048}), "device": "A100-SXM-80GB", "n_devices": "8",
        "devices_per_node": "8", "interconnect": NVSWITCH,
    }  # fmt: skip
    return plain | columns


def cases(folder: Path, **columns: Any) -> Cases:
    return cases_of(read(write(folder, [row(**columns)])))


def test_a_row_is_of_the_cluster_that_its_links_are_of(tmp_path: Path) -> None:
    found = cases(tmp_path)
    assert found.measured == pytest.approx([2e-5])
    expected = nccl.seconds(find_cluster("dgx_a100").group(8), 2048)
    assert predict(found, "tiled") == pytest.approx([expected])
    assert found.shapes() == ["8 devices, 2048 bytes"]
    assert found.labels["kind"].tolist() == ["collective all_reduce"]


def test_bus_bandwidth_is_bytes_of_a_link_a_second(tmp_path: Path) -> None:
    found = cases(tmp_path, quantity="allreduce_busbw", value="70", op_shape='{"bytes": 800000}')
    # 2 x 7/8 of 800,000 bytes at 70 GB/s.
    assert found.measured == pytest.approx([1.75 * 8e5 / 70e9])


def test_the_version_of_nccl_is_of_the_row_or_of_its_source(tmp_path: Path) -> None:
    shape = json.dumps({"bytes": 2**20})
    links = find_cluster("dgx_a100").group(4)
    asked = {"op_shape": shape, "n_devices": "4", "devices_per_node": "4"}
    for source, notes, version in (
        ("llmcompass", "", "2.14"),
        ("llmcompass", "NCCL 2.21", "2.21"),
        ("another", "", nccl.CURRENT.version),
    ):
        found = cases(tmp_path, source_id=source, notes=notes, **asked)
        expected = nccl.seconds(links, 2**20, nccl=nccl.Nccl(version))
        assert predict(found, "tiled") == pytest.approx([expected])
    older, current = (nccl.seconds(links, 2**20, nccl=nccl.Nccl(v)) for v in ("2.14", "2.27"))
    assert older != current


def test_a_message_to_one_other_is_read_too(tmp_path: Path) -> None:
    found = cases(
        tmp_path, quantity="send_recv_ms", network="op:send_recv", n_devices="2",
        devices_per_node="2",
    )  # fmt: skip
    links = find_cluster("dgx_a100").group(2)
    expected = nccl.seconds(links, 2048, Operation.POINT_TO_POINT)
    assert predict(found, "roofline") == pytest.approx([expected])


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"n_devices": "1"}, "a collective of one device"),
        ({"interconnect": "string"}, "no cluster is known of the links 'string'"),
        ({"n_devices": "16"}, "a collective over a network between nodes that is not named"),
        ({"notes": "row 3; algo=OSU Allreduce; x"}, "collectives of OSU Allreduce are not"),
        ({"network": "op:all_gather", "interconnect": ""}, "no cluster is known of the links"),
    ],
)
def test_rows_that_cannot_be_predicted_say_why(
    columns: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    found = cases(tmp_path, **columns)
    assert len(found) == 0
    (said,) = reasons(found)
    assert reason in said


def test_the_model_of_2017_knows_no_protocols(tmp_path: Path) -> None:
    assert np.isnan(predict(cases(tmp_path), "paleo2017")).all()


@pytest.mark.parametrize("shape", [{}, {"bytes": 0}, {"bytes": "2 MiB"}, {"bytes": 1.5}])
def test_a_message_has_whole_bytes(shape: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(MeasurementError, match="bytes: expected a whole number above 0"):
        cases(tmp_path, op_shape=json.dumps(shape))


# Tables


def table(root: Path, place: str, columns: dict[str, Any]) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow")
    pyarrow = pytest.importorskip("pyarrow", reason="needs pyarrow")
    path = root / "systems" / "data" / place
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.table(columns), path)


NCCL = {
    "nccl_dtype": ["half", "int8", "half", "half"],
    "op_name": ["all_reduce", "all_reduce", "alltoall", "gather"],
    "num_gpus": [8, 8, 4, 4],
    "message_size": [2**24, 2**25, 1024, 1024],
    "latency": [0.1, 0.2, 0.01, 0.01],
}
CUSTOM = {
    "allreduce_dtype": ["bfloat16", "bfloat16"],
    "op_name": ["all_reduce", "all_reduce"],
    "num_gpus": [4, 4],
    "message_size": [1024, 1024],
    "latency": [0.005, 0.04],
    "backend": ["vllm_graph", "vllm_eager"],
}


def of(root: Path, operator: str, framework: str) -> Cases:
    return operator_cases(root, Selection(operators=(operator,), frameworks=(framework,)))


def test_sizes_of_tables_are_in_elements_and_switches_sum_no_single_bytes(tmp_path: Path) -> None:
    table(tmp_path, "h100_sxm/comm/nccl/2.16.2/nccl_perf.parquet", NCCL)
    table(tmp_path, "h100_sxm/comm/nccl/2.27.3/nccl_perf.parquet", NCCL)
    found = of(tmp_path, "nccl", "nccl")
    assert reasons(found) == {"collective 'gather' is not modelled": 1}
    assert found.measured.tolist() == pytest.approx([1e-4, 2e-4, 1e-5])
    links = find_cluster("dgx_h100").group(8)
    expected = [
        nccl.seconds(links, 2**25),
        nccl.seconds(links, 2**25, scheme="ring"),
        nccl.seconds(find_cluster("dgx_h100").group(4), 2048, Operation.ALL_TO_ALL),
    ]
    assert predict(found, "tiled").tolist() == pytest.approx(expected)
    assert found.labels["stratum"].tolist() == ["all_reduce x8", "all_reduce x8", "alltoall x4"]
    older = operator_cases(
        tmp_path, Selection(operators=("nccl",), frameworks=("nccl",), versions=("2.16.2",))
    )
    assert predict(older, "tiled")[0] == pytest.approx(expected[1])  # no switches that sum yet


def test_kernels_of_frameworks_are_of_their_kind_and_eager_ones_are_left_out(
    tmp_path: Path,
) -> None:
    for place in ("vllm/0.14.0", "sglang/0.5.12"):
        table(tmp_path, f"h100_sxm/comm/{place}/custom_allreduce_perf.parquet", CUSTOM)
    table(tmp_path, "l40s/comm/vllm/0.14.0/custom_allreduce_perf.parquet", CUSTOM)
    links = find_cluster("dgx_h100").group(4)
    for framework, kernels in (("vllm", custom.BARRIERS), ("sglang", custom.PUSHED)):
        found = of(tmp_path, "custom_allreduce", framework).where(source="h100_sxm")
        assert predict(found, "tiled") == pytest.approx([custom.seconds(links, 2048, kernels)])
    every = of(tmp_path, "custom_allreduce", "vllm")
    said = set(reasons(every))
    assert said == {"custom_allreduce in eager mode waits for the host, not modelled"}
    on_pcie = every.where(source="l40s")
    left = nccl.seconds(find_cluster("l40s_pcie").group(4), 2048)
    assert predict(on_pcie, "tiled") == pytest.approx([left])


def test_a_row_is_of_the_software_that_it_names_where_its_file_is_a_copy(tmp_path: Path) -> None:
    columns = CUSTOM | {"num_gpus": [2, 2], "backend": ["", ""]}
    named = columns | {"framework": ["TRTLLM", "vLLM"], "version": ["1.0.0", "0.14.0"]}
    table(tmp_path, "h100_sxm/comm/sglang/0.5.9/custom_allreduce_perf.parquet", named)
    table(tmp_path, "l40s/comm/sglang/0.5.9/custom_allreduce_perf.parquet", named)
    table(tmp_path, "l40s/comm/sglang/0.5.12/custom_allreduce_perf.parquet", columns)
    found = operator_cases(
        tmp_path,
        Selection(
            operators=("custom_allreduce",), frameworks=("sglang",), versions=("0.5.9", "0.5.12")
        ),
    )
    switched, pair = find_cluster("dgx_h100").group(2), find_cluster("l40s_pcie").group(2)
    expected = [custom.seconds(switched, 2048, kind) for kind in (custom.PUSHED, custom.BARRIERS)]
    own = found.where(source="h100_sxm")
    assert predict(own, "tiled")[np.argsort(own.measured)].tolist() == pytest.approx(expected)
    on_pcie = found.where(source="l40s")
    kernel, left = custom.seconds(pair, 2048), nccl.seconds(pair, 2048)
    assert sorted(predict(on_pcie, "tiled")) == pytest.approx(sorted([left, *3 * [kernel]]))


def test_a_table_needs_its_columns_and_a_known_cluster(tmp_path: Path) -> None:
    lacking = {name: values for name, values in NCCL.items() if name != "num_gpus"}
    table(tmp_path, "h100_sxm/comm/nccl/2.27.3/nccl_perf.parquet", lacking)
    with pytest.raises(MeasurementError, match="no column num_gpus"):
        of(tmp_path, "nccl", "nccl")
    table(tmp_path, "h100_sxm/comm/nccl/2.27.3/nccl_perf.parquet", NCCL | {"latency": [0.0] * 4})
    with pytest.raises(MeasurementError, match="column latency: expected a number above 0"):
        of(tmp_path, "nccl", "nccl")
    table(tmp_path, "h100_sxm/comm/nccl/2.27.3/nccl_perf.parquet", NCCL)
    table(tmp_path, "t4/comm/nccl/2.27.3/nccl_perf.parquet", NCCL)
    assert "no cluster of T4 is known" in reasons(of(tmp_path, "nccl", "nccl"))
