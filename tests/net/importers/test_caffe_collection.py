"""Prototxts of our own in the forms that public ones have, beside a count of their text alone."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("google.protobuf")

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
FOLDER = Path(__file__).parents[2] / "helpers" / "prototxts"
NAMES = sorted(path.name for path in FOLDER.glob("*.prototxt"))


@pytest.fixture
def collection(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    module = importlib.import_module("collected.caffe")
    monkeypatch.setattr(module, "FOLDER", FOLDER)
    return module


@pytest.mark.parametrize("name", NAMES)
def test_forms_of_public_files(name: str, collection: Any) -> None:
    outcome = collection.run(name)
    assert (outcome.verdict, outcome.detail) == ("exact", "")


def test_solvers_are_left_out(
    tmp_path: Path, collection: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "solver.prototxt").write_text('net: "a.prototxt" base_lr: 0.1')
    (tmp_path / "labelmap.prototxt").write_text('item { name: "cat" label: 1 }')
    text = (FOLDER / "v0_deploy.prototxt").read_text()
    (tmp_path / "deep" / "net.prototxt").write_text(text)
    collection.FOLDER = tmp_path
    assert collection.names() == ["deep/net.prototxt"]
    assert "caffe: 2 solvers and files without layers are left out" in capsys.readouterr().err
