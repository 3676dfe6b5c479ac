"""Memory of processes of PyTorch that share a small net over gloo, beside what is predicted.

`benchmarks/mesh_memory.py` measures all kinds and writes the table of docs/accuracy.md; here is one
case of some, by two processes each.
"""

from __future__ import annotations

from typing import Any

import pytest
from benchmark_modules import benchmark_of

#: Processes' tensors are to be within this share of the prediction, which nothing is fitted to.
CLOSE = 0.05
KINDS = ("ddp", "fsdp", "sequence", "1f1b")


benchmark = benchmark_of("mesh_memory")


def row(predicted: int, measured: int, **case: Any) -> Any:
    from types import SimpleNamespace

    usual = {"tp": 1, "pp": 1, "sequence": False, "schedule": "", "how": ""}
    return benchmark.Row(SimpleNamespace(**usual | case), 0, predicted, measured)


def test_kinds_are_those_of_the_table() -> None:
    assert row(1, 1, how="fsdp").kind == "fsdp"
    assert row(1, 1, tp=2).kind == "tp"
    assert row(1, 1, tp=2, sequence=True, how="fsdp").kind == "fsdp x sequence"
    assert row(1, 1, pp=2, schedule="1f1b").kind == "1f1b"
    assert row(1, 1, pp=2, schedule="1f1b", how="ddp").kind == "1f1b x ddp"


def test_errors_are_means_without_signs() -> None:
    found = [row(110, 100, how="fsdp"), row(80, 100, how="fsdp"), row(100, 100, how="ddp")]
    assert benchmark.errors(found) == pytest.approx((0.1, 0.2))
    lines = benchmark.table(found).splitlines()
    assert lines[-1] == "| **all** | 3 | 10.0 % | 20.0 % | -3.3 % |"
    assert "| fully_shard (ZeRO 3) | 2 | 15.0 % | 20.0 % | -5.0 % |" in lines


def test_the_page_is_within_the_bounds() -> None:
    begin, end = benchmark.MARKS
    _, _, rest = benchmark.PAGE.read_text("utf-8").partition(begin)
    text, _, _ = rest.partition(end)
    *_, last = text.strip().splitlines()
    average, worst = (float(cell.split()[0]) for cell in last.split("|")[3:5])
    assert average <= 100 * benchmark.BOUND_OF_MEAN == 5
    assert worst <= 100 * benchmark.BOUND_OF_WORST
    kinds = [line.split("|")[1].strip() for line in text.strip().splitlines()[2:-1]]
    assert kinds == list(benchmark.TITLES.values())


@pytest.mark.slow
@pytest.mark.deeper  # .ci/run has the benchmark measure all kinds of them
def test_processes_take_what_is_predicted() -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    distributed = pytest.importorskip("torch.distributed", reason="needs its processes")
    if not (distributed.is_available() and distributed.is_gloo_available()):
        pytest.skip("needs gloo")
    cases = [
        case
        for case in benchmark.small()
        if case.net == "gpt" and benchmark.Row(case, 0, 0, 1).kind in KINDS
    ]
    assert len(cases) == len(KINDS)
    found = list(benchmark.rows(cases))
    assert len(found) == len(KINDS) + 1  # two stages of the pipeline
    for each in found:
        assert each.predicted == pytest.approx(each.measured, rel=CLOSE), each
