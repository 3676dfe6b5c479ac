"""Published measurements, where they lie beside the project: every file is read and mapped."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from validation import reasons

from paleo.measure.validate import cases_of, operator_cases, predict, read_measurements, validate
from paleo.measure.validate.measured import COLUMNS

MEASURED = Path(__file__).parents[3] / "shared" / "measured"
pytestmark = [
    pytest.mark.alike,
    pytest.mark.skipif(
        not MEASURED.is_dir(), reason=f"the published measurements are not at {MEASURED}"
    ),
]

#: Files, and the share of their rows that has to be predicted at least. What is left out: several
#: devices without a link or in one process, types that a device lacks, nets that are not there.
SHARES = {
    "caffe2_convnet": 1.0,
    "cnn_benchmarks": 1.0,
    "convnet_benchmarks": 1.0,
    "deepbench": 0.95,
    "dlperf": 0.95,
    "lambda": 1.0,
    "llmcompass": 0.8,
    "more/mlperf": 0.2,
    "mxnet_perf": 1.0,
    "neusight_e2e": 0.6,
    "neusight_ops": 1.0,
    "nvidia_dle": 0.4,
    "ryujaehun": 0.4,
    "tf_cnn_benchmarks": 1.0,
    "u39kun": 1.0,
    "vidur_ops": 1.0,
}
#: Files of quantities that are not predicted one by one (collectives, large language models), or
#: of nets that another package makes.
NOTHING = (
    "megatron_a100", "megatron_seqsel", "mosaic_llmfoundry", "splitwise", "stas_mlengineering",
    "more/timm", "vidur_collectives", "vtrain", "xdai_llamacpp",
)  # fmt: skip
#: About so many rows of a file are predicted here, spread evenly: all of them are where errors are
#: printed, by benchmarks/accuracy.py and meshes.py.
_PREDICTED = 60


def test_every_file_of_measurements_is_listed_here() -> None:
    found = {
        path.relative_to(MEASURED).with_suffix("").as_posix()
        for path in MEASURED.rglob("*.csv")
        if "quantity" in path.read_text("utf-8").partition("\n")[0].split(",")
    }
    assert found <= {*SHARES, *NOTHING}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted([*SHARES, *NOTHING]))
def test_rows_are_read_and_either_predicted_or_counted(name: str) -> None:
    path = MEASURED / f"{name}.csv"
    if not path.is_file():
        pytest.skip(f"there is no {path.name}")
    rows = read_measurements(path)
    found = cases_of(rows)
    assert len(found) + sum(each.count for each in found.unpredicted) == len(rows)
    share = len(found) / len(rows)
    found = found.select(np.arange(0, len(found), max(1, len(found) // _PREDICTED)))
    assert (predict(found, "roofline") > 0).all()
    assert share >= SHARES.get(name, 0.0), reasons(found)


def test_columns_of_the_files_are_known() -> None:
    passed_over = {"tp", "pp", "dp", "cp", "ep"}
    for name in SHARES:
        path = MEASURED / f"{name}.csv"
        if path.is_file():
            header = path.read_text("utf-8").partition("\n")[0].strip().split(",")
            assert set(header) <= {*COLUMNS, *passed_over}


@pytest.mark.slow
def test_a_report_of_several_files_adds_up() -> None:
    files = [MEASURED / f"{name}.csv" for name in ("u39kun", "llmcompass", "vidur_collectives")]
    report = validate(files, cost_models=("roofline", "tiled"))
    count = sum(len(read_measurements(file)) for file in files)
    assert len(report.cases) + report.unpredicted_count == count
    (roofline, _) = report.totals
    assert roofline.statistics.count == len(report.cases)
    assert sum(g.statistics.count for g in report.groups if g.cost_model == "tiled") == len(
        report.cases
    )


def test_installed_operator_tables_are_read() -> None:
    pytest.importorskip("pyarrow", reason="needs pyarrow")
    if importlib.util.find_spec("aiconfigurator_core") is None:
        pytest.skip("needs aiconfigurator-core")
    from paleo.measure.validate import Selection

    found = operator_cases(
        "aiconfigurator_core",
        Selection(systems=("h100_sxm",), operators=("gemm",), dtypes=("bf16",)),
    )
    assert len(found) == 35_742
