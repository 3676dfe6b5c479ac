"""A sample of the operator tests that the onnx package has, each compared with a run of it.

`benchmarks/importing.py --collection onnx_nodes` compares all of them.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

pytest.importorskip("onnx.backend.test.case.node")

_SAMPLE = 150


@pytest.mark.slow  # the package makes all of its tests before it gives one
def test_no_operator_is_read_wrongly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "benchmarks"))
    result = importlib.import_module("collected.table").run("onnx_nodes", _SAMPLE, None)
    assert result.is_met, "\n".join(result.failures())
